"""An occupant: a pod that holds a place on a node, as the table and whoever undoes its changes know it."""

from fairlead.engine import axes
from fairlead.engine.gpu_requests import given_devices
from fairlead.engine.gpus import GpuHold
from fairlead.engine.request import Request
from fairlead.model.outcome import VolumeChoice
from fairlead.model.pod import SchedulerPod


class Occupant:
    """A pod that holds a place on a node."""

    __slots__ = ("gpus", "key", "node", "preempted", "request", "row", "started_at", "terminating", "uid", "volumes")

    def __init__(self, uid: str, key: str, request: Request, node: str, started_at: str, terminating: bool) -> None:
        self.uid = uid
        self.key = key
        self.request = request
        self.node = node
        self.row = axes.ABSENT
        # Empty when it has not started yet, which counts as later than any start.
        self.started_at = started_at
        self.terminating = terminating
        # On its way out because the scheduler evicted it for another.
        self.preempted = False
        # The devices it holds, kept when it is removed so that undoing the removal gives back the same ones.
        self.gpus: GpuHold | None = None
        # Volumes reserved for its claims, until the cluster shows them bound.
        self.volumes: tuple[VolumeChoice, ...] = ()

    @property
    def is_held(self) -> bool:
        """Whether the place is only held for a pod that does not exist yet, and so has no UID."""
        return self.uid == self.key

    def __repr__(self) -> str:
        return f"Occupant({self.key} on {self.node})"


def occupant_of(pod: SchedulerPod, request: Request, node: str) -> Occupant:
    meta = pod.metadata
    key = meta.key
    occupant = Occupant(meta.uid or key, key, request, node, pod.status.start_time or "", False)
    # What a pod without a node says about devices was not said by who placed it.
    if request.gpu.count and pod.spec.node_name and (devices := given_devices(pod)):
        occupant.gpus = GpuHold(devices)
    if meta.deletion_timestamp is not None:
        occupant.terminating = True
        occupant.preempted = is_preempted(pod)
    return occupant


def is_preempted(pod: SchedulerPod) -> bool:
    if pod.metadata.deletion_timestamp is None:
        return False
    target = pod.condition("DisruptionTarget")
    return target is not None and target.status == "True" and target.reason == "PreemptionByScheduler"
