"""What the table leaves out of an object that it takes in, in words, so that the loss can be reported.

Everything here is bounded for the sake of others, or cannot be parsed; the object counts for the rest of it. A pod that
waits is refused for most of this, with the same words; one that holds a node counts whatever it says.
"""

from fairlead.engine.gpu_requests import DEVICES, MEMORY_LABELS, MOST_DEVICES, device_count, given_devices, gpus_of
from fairlead.engine.node_terms import parse_term
from fairlead.engine.occupant import Occupant
from fairlead.engine.priorities.node_affinity import MOST_PREFERRED
from fairlead.engine.request import Request
from fairlead.engine.spread import unparsable
from fairlead.engine.table import MOST_SCALARS, NodeTable
from fairlead.model.node import Node
from fairlead.model.pod import SchedulerPod
from fairlead.model.selectors import IN, SelectorError, parse_label_selector, parse_requirement
from fairlead.model.volumes import CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim, StorageClass
from fairlead.model.workloads import PodDisruptionBudget, ReplicaSet, StatefulSet


def of_placed_pod(pod: SchedulerPod, occupant: Occupant) -> str:
    """Of a pod that holds a node: terms, constraints and devices that are not counted."""
    return _of_request(occupant.request) or _devices(pod, occupant.request)


def of_waiting_pod(pod: SchedulerPod) -> str:
    """Of a pod that is to be placed: what it is not refused for."""
    affinity = pod.spec.affinity
    preferred = (affinity.node_affinity.preferred if affinity and affinity.node_affinity else None) or ()
    if len(preferred) > MOST_PREFERRED:
        return f"{len(preferred)} preferred node affinity terms, of which the first {MOST_PREFERRED} count"
    return ""


def _of_request(request: Request) -> str:
    known: str | None = request.memo.get(_of_request)
    if known is None:
        known = request.terms.error or unparsable(request) or request.gpu_error
        request.memo[_of_request] = known
    return known


def _devices(pod: SchedulerPod, request: Request) -> str:
    text = pod.metadata.annotations.get(DEVICES, "") if request.gpu.count else ""
    if not text or given_devices(pod):
        return ""
    shown = text if len(text) <= 40 else f"{text[:37]}..."
    return f"{DEVICES}: must be device numbers below {MOST_DEVICES} such as 0,3, not {shown!r}"


def of_node(table: NodeTable, node: Node) -> str:
    if uncounted := table.uncounted(node.name):
        return f"{uncounted} of its resources, since only {MOST_SCALARS} are counted besides cpu, memory and storage"
    devices = device_count(node)
    if devices > MOST_DEVICES:
        return f"{devices} GPUs, of which the first {MOST_DEVICES} are told apart and shared"
    if devices and not gpus_of(node)[2]:
        for key in MEMORY_LABELS:
            if text := node.metadata.labels.get(key):
                return f"{key}: must be the MiB of one GPU, not {text[:63]!r}"
    return ""


def of_related(thing: object) -> str:
    """Of claims, volumes and what selects pods: a selector that does not parse."""
    try:
        match thing:
            case ReplicaSet() | StatefulSet() | PodDisruptionBudget() | PersistentVolumeClaim():
                parse_label_selector(thing.spec.selector)
            case CsiStorageCapacity():
                parse_label_selector(thing.node_topology)
            case PersistentVolume():
                required = thing.spec.node_affinity and thing.spec.node_affinity.required
                for term in (required and required.node_selector_terms) or ():
                    parse_term(term)
            case StorageClass():
                for topology in thing.allowed_topologies or ():
                    for each in topology.match_label_expressions or ():
                        parse_requirement(each.key, IN, each.values or ())
    except SelectorError as error:
        return str(error)
    return ""
