"""Cached bytes as preferred terms, for schedulers that know nothing of datasets.

By levels: terms that grow with the label `data.fairlead.io/cl-<dataset>` of a node, evaluated when the pod is
scheduled. By host names: the nodes of this moment in steps of their value, without a label of ours on any node.
"""

from collections.abc import Mapping
from typing import Final

from fairlead.data.draft import Draft, greater, in_
from fairlead.data.facts import DatasetFacts
from fairlead.data.plugin import PluginContext
from fairlead.engine.locality import Reading, local_values, readings_of, shares

LADDER: Final = ((0, 10), (2, 20), (4, 20), (6, 20), (8, 30))
"""Values of a label above which a node gets more, and how much: 10 at level 1, 100 at level 9."""
MOST_HOSTS: Final = 64
STEPS: Final = 10
EVERY_NODE: Final = "kubernetes.io/os"
HOST: Final = "kubernetes.io/hostname"


def readings(draft: Draft, context: PluginContext) -> list[Reading]:
    claims = [each.claim for each in context.datasets]
    return readings_of(context.locality.cache, context.namespace, claims, draft.annotations)


def dataset_shares(draft: Draft, context: PluginContext) -> Mapping[str, float]:
    return shares(context.locality.cache, readings(draft, context))


def prefer_levels(
    draft: Draft, dataset: DatasetFacts, context: PluginContext, weight: int, known: Mapping[str, float]
) -> None:
    """`known`: the part of each dataset in what the pod reads, where its size is known."""
    key = dataset.physical.level_key()
    share = known.get(dataset.physical.key, 1.0 / max(1, len(context.datasets)))
    for above, part in LADDER:
        because = f"more than {10 * above} % of {dataset.physical.key} cached, which is {share:.0%} of the pod's data"
        draft.prefer(max(1, round(part * share * weight / 100)), [greater(key, above)], because)


def prefer_warm_nodes(draft: Draft, context: PluginContext) -> None:
    """Terms about all datasets together: named hosts, and the term that makes preferences mild."""
    locality = context.locality
    if locality.form == "hostnames":
        values = local_values(locality.cache, readings(draft, context))
        best = sorted(values.items(), key=lambda each: (-each[1], each[0]))[:MOST_HOSTS]
        steps: dict[int, list[str]] = {}
        for node, value in best:
            if (step := int(STEPS * value)) > 0:
                steps.setdefault(step, []).append(node)
        for step, nodes in sorted(steps.items(), reverse=True):
            because = f"{10 * step} % or more of the pod's data cached"
            draft.prefer(step * (100 // STEPS), [in_(HOST, *sorted(nodes))], because)
    if locality.strength:
        because = f"data.strength {locality.strength}: preferences count for less beside other scores"
        draft.prefer(locality.strength, [{"key": EVERY_NODE, "operator": "Exists"}], because)
