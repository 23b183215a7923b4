"""A wait for room near a pod's data, in the loop and without a scheduling gate.

While it lasts, the pod is decided with one more required condition: the warm nodes, then their zones. Nothing of that
is written anywhere, so nothing has to be loosened afterwards.
"""

from typing import Final

import msgspec

from fairlead.engine.locality import readings_of
from fairlead.engine.locality_wait import LOCALITY_WAIT, BadWait, is_worth_it, parse_wait, staying_values, warm_nodes
from fairlead.engine.table import NodeTable
from fairlead.model.pod import Affinity, NodeAffinity, SchedulerPod
from fairlead.model.selectors import LabelSelectorRequirement, NodeSelector, NodeSelectorTerm

LOOK_S: Final = 0.5
LABELS: Final = {"node": "kubernetes.io/hostname", "zone": "topology.kubernetes.io/zone"}


def near_its_data(pod: SchedulerPod, table: NodeTable, waited_s: float) -> SchedulerPod | None:
    """The pod as it is decided while it waits; None where it goes anywhere."""
    text = pod.metadata.annotations.get(LOCALITY_WAIT)
    if text is None or table.catalog.cache.is_empty:
        return None
    try:
        wait = parse_wait(text)
    except BadWait:
        return None  # the webhook warns of it
    stage = wait.stage(waited_s)
    request, cache = table.request(pod), table.catalog.cache
    readings = readings_of(cache, request.namespace, request.claims_for_pod, pod.metadata.annotations)
    if not stage or not is_worth_it(cache, readings, wait.longest_s - waited_s):
        return None
    values = _values(table, LABELS[stage], warm_nodes(staying_values(cache, readings)))
    return _required(pod, LABELS[stage], values) if values else None


def _values(table: NodeTable, label: str, nodes: list[str]) -> tuple[str, ...]:
    """What these nodes have under a label."""
    column = table.label(label)
    numbers = {int(column.ids_N[table.row_of[node]]) for node in nodes if node in table.row_of}
    return tuple(sorted(value for value, number in column.numbers.items() if number in numbers))


def _required(pod: SchedulerPod, label: str, values: tuple[str, ...]) -> SchedulerPod:
    """The pod with one more condition in each of its required terms."""
    condition = LabelSelectorRequirement(key=label, operator="In", values=values)
    affinity = pod.spec.affinity or Affinity()
    nodes = affinity.node_affinity or NodeAffinity()
    terms: tuple[NodeSelectorTerm, ...] = (NodeSelectorTerm(),)
    if nodes.required is not None:
        terms = tuple(term for term in nodes.required.node_selector_terms or () if not term.is_empty)
    joined = tuple(
        msgspec.structs.replace(term, match_expressions=(*(term.match_expressions or ()), condition)) for term in terms
    )
    replaced = msgspec.structs.replace(nodes, required=NodeSelector(node_selector_terms=joined))
    spec = msgspec.structs.replace(pod.spec, affinity=msgspec.structs.replace(affinity, node_affinity=replaced))
    return msgspec.structs.replace(pod, spec=spec)
