"""NodeAffinityWithCache: a pod goes to the nodes, the zone or the region of its datasets' workers.

Preferred, or required where the pod's label `fluid.io/dataset.<claim or dataset>.sched` is `required`. A pod that
speaks of one of the configured places itself is left alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from fairlead.data.draft import Draft, Expression, in_
from fairlead.data.facts import DatasetFacts, Unready
from fairlead.data.locality_terms import dataset_shares, prefer_levels, prefer_warm_nodes
from fairlead.data.plugin import BadArguments, PluginContext, Policy

NODE: Final = "fluid.io/node"
FUSE: Final = "fluid.io/fuse"
HEAVIEST: Final = 100


class CacheAffinity:
    name = "NodeAffinityWithCache"
    policy: Policy = "ignore"

    def __init__(self, arguments: Any = None) -> None:
        arguments = {} if arguments is None else arguments
        if not isinstance(arguments, dict):
            raise BadArguments("must have preferred and required")
        self.weights = dict(_weights(arguments.get("preferred")))
        required = arguments.get("required") or []
        if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
            raise BadArguments("required: must be a list of names")
        self.required = tuple(required)

    def mutate(self, draft: Draft, context: PluginContext) -> bool:
        places = {*self.weights, *self.required}
        if places & draft.node_keys():
            draft.note(
                "nothing", f"the pod has a rule of its own about {', '.join(sorted(places & draft.node_keys()))}"
            )
            return False
        for each in context.datasets:
            if not each.is_mirrored:
                # As in Fluid: a runtime that has just appeared may have declared nothing yet.
                raise Unready(f"the runtime of dataset {each.dataset.key} has just appeared; try again")
        required = [each for each in context.datasets if is_required(draft, each)]
        for each in required:
            self._require(draft, each)
        known = dataset_shares(draft, context) if context.locality.form == "levels" else {}
        for each in context.datasets:
            if each not in required:
                self._prefer(draft, each, context, known)
        if NODE in self.weights and len(required) < len(context.datasets):
            prefer_warm_nodes(draft, context)
        return False

    def _require(self, draft: Draft, dataset: DatasetFacts) -> None:
        because = f"label {sched_label(dataset.claim)}: required"
        keys = [key for name, key in self._keys(dataset) if name in self.required]
        draft.require([in_(key, "true") for key in keys], because)
        branches = [_of_places(term, self.required) for term in dataset.declared]
        # A declared alternative that says nothing of the required places leaves them open.
        if branches and all(branches):
            draft.require_any(branches, f"{because}; declared for the workers of {dataset.physical.key}")

    def _prefer(self, draft: Draft, dataset: DatasetFacts, context: PluginContext, known: Mapping[str, float]) -> None:
        for name, key in self._keys(dataset):
            if name == NODE and name in self.weights and context.locality.form == "levels":
                prefer_levels(draft, dataset, context, self.weights[name], known)
            elif name in self.weights:
                what = "workers" if name == NODE else "mounts"
                # Beside named hosts the plain label only says which nodes may warm up later.
                weight = 10 if name == NODE and context.locality.form == "hostnames" else self.weights[name]
                draft.prefer(weight, [in_(key, "true")], f"nodes with {what} of {dataset.physical.key}")
        for term in dataset.declared:
            for expression in _of_places(term, self.weights):
                because = f"declared for the workers of {dataset.physical.key}"
                draft.prefer(self.weights[expression["key"]], [expression], because)

    def _keys(self, dataset: DatasetFacts) -> Iterator[tuple[str, str]]:
        if {NODE, FUSE} & {*self.weights, *self.required}:
            yield NODE, dataset.physical.common_key()
            yield FUSE, dataset.physical.fuse_key()


def is_required(draft: Draft, dataset: DatasetFacts) -> bool:
    """Either name counts: that of the claim, and that of the dataset behind it."""
    names = (dataset.claim, dataset.dataset.name)
    return any(draft.labels.get(sched_label(name)) == "required" for name in names)


def sched_label(name: str) -> str:
    return f"fluid.io/dataset.{name}.sched"


def _of_places(term: Any, places: Any) -> Sequence[Expression]:
    """The expressions of a declared term about these places."""
    return [
        {name: each[name] for name in ("key", "operator", "values") if name in each}
        for each in term.get("matchExpressions") or ()
        if isinstance(each, dict) and each.get("key") in places
    ]


def _weights(preferred: Any) -> Iterator[tuple[str, int]]:
    """A name given twice has its last weight."""
    if not isinstance(preferred or [], list):
        raise BadArguments("preferred: must be a list of names with weights")
    for each in preferred or ():
        name, weight = (each.get("name"), each.get("weight")) if isinstance(each, dict) else (None, None)
        if not isinstance(name, str) or not name:
            raise BadArguments(f"preferred: must be a name, not {each!r}")
        if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= HEAVIEST:
            raise BadArguments(f"preferred: {name}: must be a weight from 1 to {HEAVIEST}, not {weight!r}")
        yield name, weight
