"""Units: what is decided as one. A pod is a unit of one; a gang is a unit of several.

Other rooms offer units through a UnitSource; placement orders and decides them and never hears what they were made
from. Offers are declarative: a unit as offered says which members have a node and which still need one.

    source                                   placement
    changed() ── members without a node ──▶ in line; head by priority, then by source.first()
    decided(outcome) ◀───────────────────── the places are in the table, held for unit.hold_s
      │ writes its status, with resourceVersion
      ├─ written: offers the unit with the nodes of its members, and creates the pods
      └─ conflict: offers it without, or withdraws it: the places are released
    member_of(pod) ── the pod appears ────▶ bound to the node of its place, or to none
    lost(place) ◀────────────────────────── the place is gone, and why
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Protocol, TypeVar

import msgspec

from fairlead.model.outcome import Diagnosis, Placed
from fairlead.model.pod import SchedulerPod

T = TypeVar("T")


class Member(msgspec.Struct, frozen=True):
    """One pod of a unit, which may not exist yet: its place is then held for it under its key.

    A planned pod has no UID. The pod that appears in its place need not have its name (see `UnitSource.member_of`).
    Members of one template should differ in name only: then they share one request of the engine.
    """

    pod: SchedulerPod
    role: str = ""
    # The unit is nothing without it, and it is evicted last.
    essential: bool = False
    # The node it has, planned or bound. Empty: it needs one.
    node: str = ""


class Domains(msgspec.Struct, frozen=True):
    """All members within one domain of a topology, such as a rack; if only preferred, anywhere when none has room."""

    key: str
    required: bool = True


class Unit(msgspec.Struct, frozen=True):
    """A gang as its source sees it now: members with a node keep it, those without are decided together.

    While fewer than `minimum` members have a node, a decision brings it up to the minimum or changes nothing. From
    then on each further member is placed if it can be (elastic workers).
    """

    key: str
    members: tuple[Member, ...]
    # So many members, at least one, the essential ones among them, or nobody. None: all of them.
    minimum: int | None = None
    # Of its pods (the leader's PriorityClass): in line before all that is lower, pods and units alike.
    priority: int = 0
    # Among victims of one pod priority, whoever has less goes first. No reason to evict anybody by itself.
    importance: int = 0
    # Members that have a node already decide the domain of those placed later.
    domains: Domains | None = None
    # Job-level policy per role ("" for all others); the profile's own scores where there is none.
    policies: Mapping[str, str] = {}
    # A role whose members belong beside the others, such as the workers of a cache beside its readers: they are placed
    # after the others and before them, and the way with more of the others near their data is taken.
    beside: str = ""
    # The label that members share, by which a policy knows them.
    job_label: str = ""
    # Places beyond the minimum in one decision; None: as many as fit. With 0, and then 1 once it has the minimum,
    # elastic members are units of one, and others come in between.
    most: int | None = None
    # How long a place is held for a pod still to be created; afterwards it is lost.
    hold_s: float = 300.0
    # How long it would run, and when (in Unix time) it is expected to end once it runs; None: not known.
    run_s: float | None = None
    ends_at_s: float | None = None

    def __post_init__(self) -> None:
        if not self.members:
            raise ValueError(f"unit {self.key!r}: must have at least one member")

    @property
    def needed(self) -> int:
        """Nobody placed is no placement: one member at least, whatever the minimum says."""
        return len(self.members) if self.minimum is None else max(1, self.minimum)

    @property
    def placed(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.node)

    @property
    def waiting(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if not member.node)

    @property
    def has_minimum(self) -> bool:
        """Whether what stands is enough without any further member."""
        return len(self.placed) >= self.needed and not any(member.essential for member in self.waiting)

    def with_nodes(self, nodes: Mapping[str, str]) -> "Unit":
        """The unit with other nodes for some members, by their keys; empty for none."""
        members = tuple(
            msgspec.structs.replace(member, node=nodes[member.pod.key]) if member.pod.key in nodes else member
            for member in self.members
        )
        return msgspec.structs.replace(self, members=members)


class UnitPlaced(msgspec.Struct, frozen=True):
    """At least one member got a node, and at least the minimum has one."""

    unit: str
    # The new places only, those of members without a node.
    placed: tuple[Placed, ...]
    # Members beyond the minimum that found no place.
    waiting: tuple[str, ...] = ()
    domain: str = ""

    @property
    def nodes(self) -> dict[str, str]:
        return {each.pod: each.node for each in self.placed}


class LargestNode(msgspec.Struct, frozen=True):
    """Of the nodes that a pod may go to, the one with most of what none of them has enough of; without a node: it may
    go to none."""

    node: str = ""
    resource: str = ""
    needed: int = 0
    has: int = 0


class NeverFits(msgspec.Struct, frozen=True):
    """Proof that waiting does not help while nodes stay as they are: empty, all that are registered have too little.

    So many pods of one shape are needed and so many fit; pods of two, with `beside`; with `resource`, so much of it, in
    the scheduler's unit, by the members that ask for least. Without a pod: more members than the unit has. With `key`,
    each single domain of that label has too little, and this is about the one that comes closest; without `domain`
    there is none.
    """

    pod: str
    needed: int
    room: int
    beside: str = ""
    resource: str = ""
    # Where not even one pod fits.
    largest: LargestNode | None = None
    key: str = ""
    domain: str = ""

    def sentence(self) -> str:
        if self.key:
            return self._of_domains()
        if self.resource:
            return f"the pods needed ask for {self.needed} of {self.resource}, but the cluster, empty, has {self.room}"
        if not self.pod:
            return f"{self.needed} pods are needed, but the unit has {self.room}"
        if self.beside:
            return (
                f"{self.needed} pods like {self.pod} and {self.beside} are needed together, "
                f"but the cluster, empty, has room for {self.room}"
            )
        like = f"1 pod like {self.pod} is" if self.needed == 1 else f"{self.needed} pods like {self.pod} are"
        return f"{like} needed, but the cluster, empty, has room for {self.room}"

    def _of_domains(self) -> str:
        if not self.domain:
            return f"its pods must be within one domain of {self.key}, but no node has that label"
        if self.resource:
            request, room = f"the pods needed ask for {self.needed} of {self.resource}", f"has {self.room}"
        else:
            like = f"{self.pod} and {self.beside}" if self.beside else self.pod
            request = f"{self.needed} {'pod' if self.needed == 1 else 'pods'} like {like} must be"
            room = f"has room for {self.room}"
        within = f"within one domain of {self.key}"
        return f"{request} {within}, but {self.domain}, which comes closest, {room} when it is empty"


class Holder(msgspec.Struct, frozen=True):
    """Who has so much of a resource on a node: a unit, or else a pod."""

    unit: str
    pod: str
    amount: int


class Shortage(msgspec.Struct, frozen=True):
    """What is short for the member that failed: on the node that comes closest, and who holds most of it there."""

    resource: str
    needed: int
    free: int
    node: str
    holders: tuple[Holder, ...] = ()


class UnitRefused(msgspec.Struct, frozen=True):
    """No member got a node. Those that had one before keep it."""

    unit: str
    # The member that failed first, and why.
    pod: str
    diagnosis: Diagnosis
    # New members that would have fitted.
    fitting: int = 0
    never: NeverFits | None = None
    shortages: tuple[Shortage, ...] = ()
    # Pods and held places that are being evicted for it; it is decided again when they are gone.
    evicting: tuple[str, ...] = ()
    # Nodes that are kept for it, and from when on (in Unix time) it is expected to fit.
    reserved: tuple[str, ...] = ()
    fits_at_s: float | None = None


UnitOutcome = UnitPlaced | UnitRefused


def changed_units(
    keys: Iterable[str], unit_of: Callable[[str], Unit | None], offered: set[str], prefix: str
) -> list[tuple[str, Unit | None]]:
    """What a source answers to `changed()`: each unit as it is now, None where one that was offered is no more.

    `offered` holds the keys of the units that stand, and is brought up to date.
    """
    found: list[tuple[str, Unit | None]] = []
    for key in keys:
        unit = unit_of(key)
        if unit is not None or key in offered:
            found.append((prefix + key, unit))
        (offered.discard if unit is None else offered.add)(key)
    return found


class Loss(Enum):
    """Why a member has its place no longer."""

    EXPIRED = "Expired"  # no pod came in time
    NODE_GONE = "NodeGone"
    CORDONED = "Cordoned"  # before the pod was bound
    BINDING_REFUSED = "BindingRefused"
    TAKEN = "Taken"  # by a pod that another scheduler bound
    PREEMPTED = "Preempted"  # by a pod or unit of higher priority; its own pod, if there is one, is being evicted


class LostPlace(msgspec.Struct, frozen=True):
    unit: str
    # The key of the member.
    member: str
    node: str
    loss: Loss
    message: str = ""


class UnitSource(Protocol):
    """Offers units of several pods. Called by the placement loop alone, between two decisions; nothing here may wait.

    All calls come on the event loop's thread. `decided` and `lost` may change what `changed` says next.
    """

    period_s: float
    """Units line up this often, all that something has changed for; 0: at every change."""

    def begin(self, wake: Callable[[], None]) -> None:
        """A leader's term begins: offer everything from the start, the places that members have included.

        Call `wake` whenever there is something new to offer, and when it becomes ready.
        """

    def is_ready(self) -> bool:
        """Whether all that is durable has been read. Until then the leader decides nothing, pods included."""

    def changed(self) -> Iterable[tuple[str, Unit | None]]:
        """Units offered, offered anew in another form, or (None) withdrawn since the last call, by their keys.

        What is offered holds: a place that the unit has in the table and no longer in the offer is released.
        """

    def first(self, waiting: Sequence[Unit]) -> Unit | None:
        """Which of these is decided next. All have the same pod priority and members without a node.

        Called before every decision, since shares move with each placement: by the queue policy, then by creation
        time, then by name, so that it is the same after a fail-over. None: nobody for now (quota, strict order).
        """

    def unit_of(self, pod: SchedulerPod) -> str | None:
        """The unit this pod belongs to: it is placed with that unit and never by itself. None: not one of ours."""

    def member_of(self, pod: SchedulerPod) -> str | None:
        """The key of the planned member that this pod has been created for: it goes to that place or nowhere."""

    def decided(self, outcome: UnitOutcome) -> None:
        """The decision: the nodes of the unit's members, or why there are none. The table holds the places already."""

    def lost(self, place: LostPlace) -> None:
        """A member has its place no longer. Told at once, and not about places that the source itself released.

        The source may have withdrawn the unit meanwhile.
        """


class TrialTable(Protocol):
    """A copy of the table. What is decided on it stays on it, and it is thrown away at the end."""

    def decide(self, unit: Unit) -> UnitOutcome:
        """What would be decided about the unit now, by the same rules; its places are in the copy from then on."""

    def undo(self) -> None:
        """The copy as it was at the beginning."""

    def end(self, units: Iterable[str]) -> None:
        """As if these units were over."""

    def units(self) -> Mapping[str, Unit]:
        """The units that have places, as last offered."""


class NoTrial(Exception):
    """There is nothing to answer from: this process does not lead, or too many ask."""


class Trials(Protocol):
    """Answers about decisions that are not made, beside the loop; nothing of them remains."""

    async def on_copy(self, pods: Sequence[SchedulerPod], work: Callable[[TrialTable], T]) -> T:
        """Do work on a copy of the table, in a thread of its own. `pods` are all that will be asked about.

        Raises NoTrial where there is no table to copy.
        """
