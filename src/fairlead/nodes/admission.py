"""Whether a node admits a pod that was bound to it: the kubelet's rules, reasons and messages.

Pure but for `Occupancy`, which sums up what the admitted pods of one node use. A rejected pod is Failed, so that its
controller replaces it. Critical pods do not preempt others here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fairlead.model.meta import Condition, ObjectMeta
from fairlead.model.node import Node
from fairlead.model.pod import Affinity
from fairlead.model.pod import Container as PlacedContainer
from fairlead.model.pod import PodSpec as PlacedSpec
from fairlead.model.pod import SchedulerPod as PlacedPod
from fairlead.model.quantity import nanos
from fairlead.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, amount, counted, is_extended, pod_requests
from fairlead.model.selectors import NodeSelectorTerm, SelectorError, equal_to, parse_requirement
from fairlead.model.taints import NO_EXECUTE, is_tolerated
from fairlead.nodes.spec import Container, KubeletPod, PodStatus
from fairlead.nodes.status import pod_qos_class

OS_LABEL = "kubernetes.io/os"
ANY_ADDRESS = "0.0.0.0"
# Conditions that a kubelet owns; a pod that it rejects keeps the others.
KUBELET_CONDITIONS = frozenset(
    {
        "PodScheduled",
        "Ready",
        "Initialized",
        "ContainersReady",
        "PodReadyToStartContainers",
        "PodResizeInProgress",
        "PodResizePending",
    }
)

HostPort = tuple[str, str, int]
"""Address, protocol, port."""


@dataclass(frozen=True, slots=True)
class Rejection:
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Charge:
    """What one admitted pod takes of its node."""

    key: str
    generation: int
    amounts: Mapping[str, int]
    ports: frozenset[HostPort]


@dataclass(slots=True)
class Occupancy:
    """What the admitted pods of one node take together, kept as a running sum."""

    charges: dict[str, Charge] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)

    def add(self, pod: KubeletPod) -> None:
        """Once for each pod; again with what it asks for now after its spec has changed."""
        held = self.charges.get(pod.uid)
        if held is not None and held.generation == pod.metadata.generation:
            return
        self.remove(pod.uid)
        charge = self.charges[pod.uid] = charge_of(pod)
        for name, value in charge.amounts.items():
            self.used[name] = self.used.get(name, 0) + value

    def remove(self, uid: str) -> None:
        charge = self.charges.pop(uid, None)
        for name, value in charge.amounts.items() if charge is not None else ():
            self.used[name] -= value
            if not self.used[name]:
                del self.used[name]


def charge_of(pod: KubeletPod) -> Charge:
    amounts = {name: value for name, value in counted(pod_requests(_placed(pod))) if value}
    return Charge(pod.key, pod.metadata.generation, amounts, host_ports(pod))


def host_ports(pod: KubeletPod) -> frozenset[HostPort]:
    """Of everything that runs as long as the pod does."""
    return frozenset(
        (port.host_ip or ANY_ADDRESS, port.protocol or "TCP", port.host_port)
        for container in pod.lasting_containers
        for port in container.ports or ()
        if port.host_port > 0
    )


def has_begun(pod: KubeletPod) -> bool:
    """A node admits a pod once: what it took up before a restart of ours is not asked again."""
    return pod.status.start_time is not None or pod.is_terminating or pod.is_finished


def admit(pod: KubeletPod, node: Node, occupancy: Occupancy, operating_system: str = "linux") -> Rejection | None:
    """The first reason against the pod in the kubelet's order; None where it is welcome."""
    if (selected := pod.metadata.labels.get(OS_LABEL)) is not None and selected != operating_system:
        message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
        return Rejection("PodOSSelectorNodeLabelDoesNotMatch", message)
    if pod.spec.os is not None and pod.spec.os.name != operating_system:
        return Rejection("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
    charge = charge_of(pod)
    if (lacking := _insufficient(charge.amounts, node, occupancy)) is not None:
        return lacking
    if not matches_node(pod.spec.node_selector, pod.spec.affinity, node.metadata):
        return _failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
    taken = (port for other in occupancy.charges.values() for port in other.ports) if charge.ports else ()
    if any(_collide(ours, theirs) for theirs in taken for ours in charge.ports):
        return _failed("NodePorts", "node(s) didn't have free ports for the requested pod ports")
    taints = [taint for taint in node.spec.taints or () if taint.effect == NO_EXECUTE]
    if not all(is_tolerated(taint, pod.spec.tolerations or ()) for taint in taints):
        return _failed("TaintToleration", "node(s) had taints that the pod didn't tolerate")
    return None


def _failed(predicate: str, why: str) -> Rejection:
    return Rejection(predicate, f"Predicate {predicate} failed: {why}")


def _insufficient(needs: Mapping[str, int], node: Node, occupancy: Occupancy) -> Rejection | None:
    offered = {name: amount(name, nanos(quantity)) for name, quantity in node.allocatable.items()}
    usual = (CPU, MEMORY, EPHEMERAL_STORAGE)
    needed = [(PODS, 1, len(occupancy.charges))]
    needed += [
        (name, needs.get(name, 0), occupancy.used.get(name, 0))
        for name in (*usual, *sorted(needs.keys() - set(usual)))
        # An extended resource that the node does not know is somebody else's to count.
        if name in offered or not is_extended(name)
    ]
    for name, requested, used in needed:
        capacity = offered.get(name, 0)
        if requested > 0 and requested > capacity - used:
            message = f"Node didn't have enough resource: {name}, requested: {requested}, used: {used}"
            return Rejection(f"OutOf{name}", f"{message}, capacity: {capacity}")
    return None


def _collide(ours: HostPort, theirs: HostPort) -> bool:
    is_same_address = ours[0] == theirs[0] or ANY_ADDRESS in (ours[0], theirs[0])
    return is_same_address and ours[1:] == theirs[1:]


def matches_node(selector: Mapping[str, str] | None, affinity: Affinity | None, node: ObjectMeta) -> bool:
    """nodeSelector and required node affinity; a term that cannot be parsed matches nothing."""
    if not equal_to(selector or {}).matches(node.labels):
        return False
    required = affinity.node_affinity.required if affinity is not None and affinity.node_affinity else None
    return required is None or any(_matches(term, node) for term in required.node_selector_terms or ())


def _matches(term: NodeSelectorTerm, node: ObjectMeta) -> bool:
    if term.is_empty:
        return False
    fields = {"metadata.name": node.name}
    try:
        return all(
            parse_requirement(expression.key, expression.operator, expression.values or ()).matches(labels)
            for expressions, labels in ((term.match_expressions, node.labels), (term.match_fields, fields))
            for expression in expressions or ()
        )
    except SelectorError:
        return False


def rejected_status(pod: KubeletPod, rejection: Rejection, started_at: str) -> PodStatus:
    kept: Iterable[Condition] = pod.status.conditions or ()
    return PodStatus(
        phase="Failed",
        reason=rejection.reason,
        message=f"Pod was rejected: {rejection.message}",
        start_time=started_at,
        qos_class=pod_qos_class(pod),
        conditions=tuple(condition for condition in kept if condition.type not in KUBELET_CONDITIONS) or None,
        observed_generation=pod.metadata.generation,
    )


def _placed(pod: KubeletPod) -> PlacedPod:
    """As far as its requests go."""

    def placed(container: Container) -> PlacedContainer:
        policy = container.restart_policy
        return PlacedContainer(name=container.name, resources=container.resources, restart_policy=policy)

    spec = PlacedSpec(
        containers=tuple(map(placed, pod.spec.containers)),
        init_containers=tuple(map(placed, pod.inits)),
        overhead=pod.spec.overhead,
        resources=pod.spec.resources,
    )
    return PlacedPod(spec=spec)
