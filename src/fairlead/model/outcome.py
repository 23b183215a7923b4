"""The outcome of a decision: Placed, or Refused with a diagnosis. Reasons stay data; the sentence is rendered last."""

from collections import Counter
from enum import IntEnum

import msgspec

from fairlead.model.cluster_events import ClusterEvent


class Code(IntEnum):
    """Kubernetes' status codes of a filter."""

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    UNRESOLVABLE = 3

    @property
    def word(self) -> str:
        return _WORDS[self]


_WORDS = {
    Code.SUCCESS: "Success",
    Code.ERROR: "Error",
    Code.UNSCHEDULABLE: "Unschedulable",
    Code.UNRESOLVABLE: "UnschedulableAndUnresolvable",
}


class Refusal(msgspec.Struct, frozen=True):
    """One reason of one rule and how many nodes it refused; preemption does not help on `unresolvable` of them."""

    rule: str
    reason: str
    nodes: int
    unresolvable: int = 0


class Rejection(msgspec.Struct, frozen=True):
    """A rule refused the pod itself, on every node."""

    rule: str
    reason: str
    code: Code = Code.UNRESOLVABLE


class NearestMiss(msgspec.Struct, frozen=True):
    """The node that came closest to having enough of a resource."""

    resource: str
    node: str
    requested: int
    free: int

    @property
    def short(self) -> int:
        return self.requested - self.free


class Diagnosis(msgspec.Struct, frozen=True):
    """Which rules refused how many nodes, and why."""

    nodes: int
    refusals: tuple[Refusal, ...] = ()
    rejection: Rejection | None = None
    narrowed_by: tuple[str, ...] = ()
    narrowed_out: int = 0
    misses: tuple[NearestMiss, ...] = ()
    wakeup_events: frozenset[ClusterEvent] = frozenset()
    note: str = ""

    def message(self) -> str:
        """The sentence Kubernetes users know."""
        if self.note:
            return self.note
        if not self.nodes:
            return "no nodes available to schedule pods"
        start = f"0/{self.nodes} nodes are available:"
        if self.rejection is not None:
            return f"{start} {self.rejection.reason}."
        counts: Counter[str] = Counter()
        for refusal in self.refusals:
            counts[refusal.reason] += refusal.nodes
        if self.narrowed_out:
            counts[f"node(s) didn't satisfy plugin(s) [{' '.join(self.narrowed_by)}]"] += self.narrowed_out
        parts = sorted(f"{count} {reason}" for reason, count in counts.items())
        return f"{start} {', '.join(parts)}." if parts else start


class VolumeChoice(msgspec.Struct, frozen=True):
    """The volume of a WaitForFirstConsumer claim: this one, or (no name) one to be provisioned for the node."""

    claim: str
    volume: str = ""


class Placed(msgspec.Struct, frozen=True, gc=False):
    """The pod has a node in the table; binding it, and its volumes before it, is done elsewhere."""

    pod: str
    node: str
    score: int = 0
    volumes: tuple[VolumeChoice, ...] = ()
    # Numbers of the GPUs it holds, or holds a share of.
    devices: tuple[int, ...] = ()


class Refused(msgspec.Struct, frozen=True):
    pod: str
    diagnosis: Diagnosis


Outcome = Placed | Refused
