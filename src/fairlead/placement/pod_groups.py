"""PodGroups of Kubernetes (`scheduling.k8s.io`) as units: pods that name a group are placed with it.

A gang is placed once `minCount` of its pods exist, and at least so many at once; the rest as room appears. Of the group
only the condition PodGroupScheduled is written. Where the server has no such kind, there are no groups.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from fairlead.cluster.backoff import Backoff, Rng
from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import NotFound, Refused, Temporary
from fairlead.cluster.mirror import Delta, Mirror
from fairlead.cluster.waits import first_of
from fairlead.cluster.writer import Outcome, Writer
from fairlead.engine.unit import Domains, LostPlace, Member, Unit, UnitOutcome, UnitPlaced, UnitSource, changed_units
from fairlead.model.conditions import transition_time
from fairlead.model.intents import PatchStatus
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiStruct, Condition, ObjectMeta
from fairlead.model.numbers import Int32
from fairlead.model.pod import SchedulerPod

log = structlog.get_logger("fairlead.placement")

GROUP: Final = "scheduling.k8s.io"
SCHEDULED: Final = "PodGroupScheduled"
# Of the kind, until the server says which version it has.
VERSION: Final = "v1alpha2"
# How often a server without the kind is asked whether it has it now.
LOOK_S: Final = 30.0
# A condition that was not written is tried again after this long.
AGAIN_S: Final = 1.0
PREFIX: Final = "podgroup/"


class GangPolicy(ApiStruct):
    min_count: Int32 = 1


class SchedulingPolicy(ApiStruct):
    gang: GangPolicy | None = None


class TopologyConstraint(ApiStruct):
    key: str = ""


class SchedulingConstraints(ApiStruct):
    topology: tuple[TopologyConstraint, ...] | None = None


class PodGroupSpec(ApiStruct):
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    priority: Int32 | None = None


class PodGroupStatus(ApiStruct):
    conditions: tuple[Condition, ...] | None = None


class PodGroup(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


def kind_of(version: str) -> Kind[PodGroup]:
    return Kind(GROUP, version, "podgroups", "PodGroup", PodGroup)


def group_of(pod: SchedulerPod) -> str | None:
    """The group that a pod names, as `namespace/name`."""
    group = pod.spec.scheduling_group
    return f"{pod.metadata.namespace}/{group.pod_group_name}" if group is not None and group.pod_group_name else None


def _groups_of(pod: SchedulerPod) -> Iterable[str]:
    group = group_of(pod)
    return () if group is None else (group,)


class PodGroups(UnitSource):
    period_s = 0.0

    def __init__(
        self,
        pods: Mirror[SchedulerPod],
        *,
        mirror: Callable[[Kind[Any]], Mirror[Any]],
        reader: Client,
        writer: Writer,
        clock: Clock,
        rng: Rng,
        schedulers: Collection[str],
        release: Callable[[str], None] = lambda pod: None,
    ) -> None:
        """`release` is called with each pod of a group when the server has the kind no longer: it goes by itself."""
        self._pods = pods
        pods.add_index("podgroup", _groups_of)
        self._mirror = mirror
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self._rng = rng
        self._schedulers = schedulers
        self._release = release
        self._kind: Kind[PodGroup] = kind_of(VERSION)
        self._groups: Mirror[PodGroup] | None = None
        self._is_ready = False
        self._wake: Callable[[], None] = lambda: None
        self._changed: dict[str, None] = {}
        self._offered: set[str] = set()
        # Nodes that were decided and that the server does not show yet, by UID.
        self._decided: dict[str, str] = {}
        self._news: dict[str, UnitOutcome] = {}
        self._has_news = asyncio.Event()

    # -- following --------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Keep up with groups and their pods, in the version that the server has, until cancelled."""
        while True:
            kind = await self._offered_kind()
            if kind is not None:
                await self._follow(kind)
            self._set_ready()
            await self._clock.sleep(LOOK_S)

    async def _follow(self, kind: Kind[PodGroup]) -> None:
        """Until the server has the kind no longer, or not in this version."""
        self._kind = kind
        mirror = self._groups = self._mirror(kind)
        await mirror.wait_synced()
        await self._pods.wait_synced()
        changed = asyncio.Event()
        groups, pods = mirror.subscribe(changed), self._pods.subscribe(changed)
        try:
            while not mirror.is_absent:
                changed.clear()
                self._see(groups.drain(), pods.drain())
                self._set_ready()
                await first_of(changed.wait(), self._clock.sleep(LOOK_S))
            self._see(groups.drain(), pods.drain())
        finally:
            groups.close()
            pods.close()
        for pod in self._pods:
            if group_of(pod) is not None:
                self._release(pod.key)
        self._wake()

    def _set_ready(self) -> None:
        if self._changed or not self._is_ready:
            self._is_ready = True
            self._wake()

    def _see(self, groups: Sequence[Delta[PodGroup]], pods: Sequence[Delta[SchedulerPod]]) -> None:
        for change in groups:
            self._changed[change.key] = None
        for delta in pods:
            for pod in (delta.old, delta.new):
                if pod is not None and (group := group_of(pod)) is not None:
                    self._changed[group] = None
            if delta.new is None or delta.new.spec.node_name:
                # The server's word counts from here on.
                gone = delta.old if delta.new is None else delta.new
                self._decided.pop(gone.uid if gone is not None else "", None)

    async def _offered_kind(self) -> Kind[PodGroup] | None:
        """The kind in the version that the server has; None where it has none, or where it may not be read."""
        backoff = Backoff(self._rng)
        while True:
            try:
                version = await self._version()
                if version is None:
                    return None
                kind = kind_of(version)
                await self._reader.request("GET", kind.collection_path(), query={"limit": "1"})
                return kind
            except NotFound:
                return None
            except Refused as problem:
                log.debug("pod groups are not read", problem=str(problem))
                return None
            except Temporary as problem:
                await self._clock.sleep(backoff.next_s(problem.retry_after_s))

    async def _version(self) -> str | None:
        found = msgspec.json.decode(await self._reader.request("GET", f"/apis/{GROUP}"), type=ApiGroup)
        for each in found.versions:
            text = await self._reader.request("GET", f"/apis/{GROUP}/{each.version}")
            if any(one.name == "podgroups" for one in msgspec.json.decode(text, type=ApiResources).resources):
                return each.version
        return None

    # -- as a source of units ---------------------------------------------------------------------------------

    def begin(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._decided.clear()
        self._changed = dict.fromkeys(group.metadata.key for group in self._groups or ())

    def is_ready(self) -> bool:
        return self._is_ready

    def changed(self) -> Iterable[tuple[str, Unit | None]]:
        keys, self._changed = self._changed, {}
        return changed_units(keys, self._unit, self._offered, PREFIX)

    def _unit(self, key: str) -> Unit | None:
        group = self._groups.get(key) if self._groups is not None else None
        if group is None:
            return None
        pods = [pod for pod in self._pods.by("podgroup", key) if self._is_ours(pod)]
        gang, constraints = group.spec.scheduling_policy.gang, group.spec.scheduling_constraints
        if not pods or (gang is not None and len(pods) < gang.min_count):
            return None
        topology = constraints.topology if constraints is not None else None
        priority = group.spec.priority
        return Unit(
            PREFIX + key,
            tuple(Member(pod, node=pod.spec.node_name or self._decided.get(pod.uid, "")) for pod in pods),
            minimum=1 if gang is None else gang.min_count,
            priority=max(pod.priority for pod in pods) if priority is None else priority,
            domains=Domains(topology[0].key) if topology else None,
        )

    def _is_ours(self, pod: SchedulerPod) -> bool:
        waits = not pod.is_terminating and not pod.spec.scheduling_gates and pod.status.phase in ("", "Pending")
        return pod.spec.scheduler_name in self._schedulers and (pod.holds_a_node or waits)

    def first(self, waiting: Sequence[Unit]) -> Unit | None:
        return min(waiting, key=self._age)

    def _age(self, unit: Unit) -> tuple[str, str]:
        group = self._groups.get(unit.key.removeprefix(PREFIX)) if self._groups is not None else None
        return (group.metadata.creation_timestamp or "" if group is not None else "", unit.key)

    def unit_of(self, pod: SchedulerPod) -> str | None:
        """A pod waits for its group, also where that does not exist yet; without the kind it goes by itself."""
        group = group_of(pod)
        if group is None or self._groups is None or self._groups.is_absent:
            return None
        return PREFIX + group

    def member_of(self, pod: SchedulerPod) -> str | None:
        return None  # pods exist before they are decided on

    def decided(self, outcome: UnitOutcome) -> None:
        key = outcome.unit.removeprefix(PREFIX)
        if isinstance(outcome, UnitPlaced):
            for placed in outcome.placed:
                pod = self._pods.get(placed.pod)
                if pod is not None:
                    self._decided[pod.uid] = placed.node
            self._changed[key] = None
        self._news[key] = outcome
        self._has_news.set()

    def lost(self, place: LostPlace) -> None:
        pod = self._pods.get(place.member)
        if pod is not None:
            self._decided.pop(pod.uid, None)
        self._changed[place.unit.removeprefix(PREFIX)] = None

    # -- conditions -------------------------------------------------------------------------------------------

    async def write(self, stop: asyncio.Event) -> None:
        """Write what was decided into the groups' conditions, the latest of each, until `stop` is set."""
        while not stop.is_set():
            self._has_news.clear()
            news, self._news = self._news, {}
            for key, outcome in news.items():
                group = self._groups.get(key) if self._groups is not None else None
                intent = condition_of(group, outcome, self._kind, self._clock.now()) if group is not None else None
                result = await self._writer.carry_out(intent) if intent is not None else None
                if result is not None and result.outcome in (Outcome.CONFLICT, Outcome.FAILED):
                    # The group has changed meanwhile, by our last write perhaps, or the server is away.
                    self._news.setdefault(key, outcome)
            again = [self._clock.sleep(AGAIN_S)] if self._news else []
            await first_of(self._has_news.wait(), stop.wait(), *again)


class ApiVersion(ApiStruct):
    version: str = ""


class ApiGroup(ApiStruct):
    versions: tuple[ApiVersion, ...] = ()


class ApiResource(ApiStruct):
    name: str = ""


class ApiResources(ApiStruct):
    resources: tuple[ApiResource, ...] = ()


def condition_of(group: PodGroup, outcome: UnitOutcome, kind: Kind[PodGroup], now: datetime) -> PatchStatus | None:
    """The condition PodGroupScheduled as it is now, beside the others; None where it says so already."""
    if isinstance(outcome, UnitPlaced):
        status, reason, message = "True", "Scheduled", ""
    else:
        status, reason, message = "False", "Unschedulable", outcome.diagnosis.message()
    conditions = group.status.conditions or ()
    known = next((each for each in conditions if each.type == SCHEDULED), None)
    if known is not None and (known.status, known.reason, known.message) == (status, reason, message):
        return None
    since = transition_time(known, status, now)
    condition = Condition(type=SCHEDULED, status=status, reason=reason, message=message, last_transition_time=since)
    metadata = group.metadata
    others = [each for each in conditions if each.type != SCHEDULED]
    return PatchStatus(
        kind=kind,
        name=metadata.name,
        namespace=metadata.namespace,
        status={"conditions": [*others, condition]},
        resource_version=metadata.resource_version,
    )
