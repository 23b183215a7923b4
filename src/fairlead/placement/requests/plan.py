"""A round: every request that waits is planned on one table, removals first, before anything is done.

Pure but for the table it is given: places of pods to come are reserved there, pods to go stay in it until they
are really gone. What this returns is written down before it is acted on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import msgspec

from fairlead.engine import axes
from fairlead.engine.cycle import Cycle
from fairlead.engine.forecast import unmatched
from fairlead.engine.load_basis import REQUESTS
from fairlead.engine.occupant import Occupant, occupant_of
from fairlead.engine.pick import Pick, RoundRobin, on_trial
from fairlead.engine.presort import Ask, Presort, presort
from fairlead.engine.presort import Operation as Sign
from fairlead.engine.priorities.seed import ONE
from fairlead.engine.profile import BEST
from fairlead.engine.removal import (
    DELETION_COST,
    RemovalScores,
    RemovalWeights,
    node_scores,
    plan_removal,
    scale_down_order,
)
from fairlead.engine.statement import Statement
from fairlead.model.numbers import whole_number
from fairlead.model.outcome import Placed
from fairlead.model.pod import SchedulerPod
from fairlead.model.resources import CPU, MEMORY
from fairlead.model.times import rfc3339
from fairlead.placement.forecasts.documents import Subject
from fairlead.placement.forecasts.profiles import Profiles
from fairlead.placement.requests.admission import Unadmitted
from fairlead.placement.requests.model import Maker, model_pod, numbered
from fairlead.placement.requests.progress import (
    AFTER_LEAVING,
    by_node,
    ends_of_names,
    is_over,
    match_places,
    moment,
    new_pods,
)
from fairlead.placement.requests.reasons import Reasons
from fairlead.placement.requests.spec import Item, ItemKey, ItemStatus, Place, Replicas, Victim, VictimScores, Workload
from fairlead.placement.reservations import Reservation
from fairlead.placement.scale import on_scale
from fairlead.placement.table_handle import TableHandle

FORECAST_RULES: Final = ("NodeLoadForecast", "SeedForecast")
MOST_PODS: Final = 20_000
"""A workload with more pods than this is not taken on: they are all written down while it is changed."""


Loads = Callable[[datetime], Mapping[Subject, Mapping[str, float]]]
"""What pods of services use now, where it is known; the forecast reader's."""


@dataclass(frozen=True, slots=True)
class RoundOptions:
    """How a round is held. `settle_s`: how long a reservation is held, and pods are waited for."""

    settle_s: float = 300.0
    presort: Presort = Presort.SEED
    weights: RemovalWeights = field(default_factory=RemovalWeights)
    load_basis: str = REQUESTS
    # Whether pods are planned, and made, on room that others are still leaving.
    reuse_terminating: bool = False
    loads: Loads = lambda now: {}
    # What is wrong with the forecasts, if anything is; None where nobody forecasts.
    forecasts_problem: Callable[[], str | None] | None = None
    # Whether they count all the same: a few documents that make no sense spoil nothing.
    are_forecasts_fresh: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class ItemInput:
    """An item to be planned, and what its workload looks like now."""

    request: str
    index: int
    item: Item
    status: ItemStatus
    accepted_at: str
    # None for pods of nobody behind a Service; those are then `loose`.
    workload: Workload | None
    loose: tuple[SchedulerPod, ...] = ()
    # Of an addition: who makes the pods, and what admission makes of one, or why that is not known.
    maker: Maker | None = None
    admitted: SchedulerPod | Unadmitted | None = None

    @property
    def item_key(self) -> ItemKey:
        return ItemKey(self.request, self.index)

    @property
    def key(self) -> str:
        return str(self.item_key)

    @property
    def owner(self) -> Workload:
        assert self.workload is not None, "pods are added to workloads only"
        return self.workload

    def model(self, pods: Sequence[SchedulerPod]) -> SchedulerPod:
        """A pod as the workload will make it."""
        admitted = self.admitted if isinstance(self.admitted, SchedulerPod) else None
        return model_pod(self.owner, pods, self.maker, admitted)

    def pods(self, handle: TableHandle) -> list[SchedulerPod]:
        """Those that stay unless something is done."""
        pods = self.loose if self.workload is None else handle.pods_of(self.workload.metadata.uid)
        return [pod for pod in pods if not pod.is_terminating and not pod.is_finished]


def plan_round(
    handle: TableHandle,
    inputs: Sequence[ItemInput],
    *,
    now: datetime,
    options: RoundOptions,
    busy: Mapping[str, str],
    leaving: frozenset[str] = frozenset(),
) -> list[ItemStatus]:
    """What to do about each item, in their order.

    `busy`: UIDs of workloads that a request is changing, and which one. `leaving`: UIDs of pods that requests under
    way have named to go.
    """
    found: dict[str, ItemStatus] = {}
    taken = dict(busy)
    open_: dict[str, ItemInput] = {}
    for each in inputs:
        other = taken.get(each.item.workload.uid)
        if other is not None:
            found[each.key] = waiting(
                each, f"request {other} is changing {each.item.workload.described()}; this is next"
            )
        else:
            taken[each.item.workload.uid] = each.request
            open_[each.key] = each
    whole = _cluster(handle)
    profiles = Profiles(options.loads(now), (whole[CPU], whole[MEMORY]))
    order = presort([ask for each in open_.values() for ask in asks(handle, each, profiles)], options.presort, whole)
    keys = list(dict.fromkeys(ask.key for ask in order))
    going, removals = _plan_removals(handle, [open_[key] for key in keys if open_[key].item.is_removal], now, options)
    found |= removals
    adding = [ask.key for ask in order if not open_[ask.key].item.is_removal]
    found |= _plan_additions(handle, open_, adding, now, options, going | leaving)
    return [found[each.key] for each in inputs]


def forecast_uses(handle: TableHandle, inputs: Sequence[ItemInput], options: RoundOptions) -> dict[str, str]:
    """By the key of each item why forecasts do not count in its plan; empty where they do."""
    forecast, table = handle.table.catalog.forecast, handle.table
    missing = unmatched(forecast, table)
    if len(missing) >= len(forecast.nodes) + len(forecast.services):
        why = "no forecast is of a node, Service or workload that is there"
        return {each.key: why for each in inputs}
    return {each.key: _forecast_use(handle, each, options) for each in inputs}


def _forecast_use(handle: TableHandle, item_input: ItemInput, options: RoundOptions) -> str:
    item, weights = item_input.item, options.weights
    if item.is_removal:
        if item.workload.kind == "StatefulSet":
            return f"{item.workload.described()} removes its highest ordinals, whatever is forecast"
        if not weights.forecast * weights.forecast_sign:
            return "forecasts have no weight for removing (weights.remove.w5, forecast.removeSign)"
        return ""
    scheduler = item_input.model(item_input.pods(handle)).spec.scheduler_name
    cycle = handle.cycle(scheduler)
    if cycle is None:
        return f"scheduler {scheduler} places the pods of {item.workload.described()}"
    counted = {rule.name for rule, weight in cycle.profile.priorities if weight}
    if counted.isdisjoint(FORECAST_RULES):
        return f"the profile of {scheduler} leaves {' and '.join(FORECAST_RULES)} out"
    return ""


def plan_all(
    handle: TableHandle,
    inputs: Sequence[ItemInput],
    *,
    now: datetime,
    options: RoundOptions,
    busy: Mapping[str, str],
    leaving: frozenset[str] = frozenset(),
    broken: Callable[[str], None] = lambda key: None,
) -> list[ItemStatus]:
    """A round that no single item can spoil: if planning them together breaks, each is planned alone.

    `broken` is called with the key of an item that cannot be planned, with the exception at hand.
    """
    turns = {cycle.pick: cycle.pick.counter for cycle in handle.cycles.values() if isinstance(cycle.pick, RoundRobin)}
    try:
        return plan_round(handle, inputs, now=now, options=options, busy=busy, leaving=leaving)
    except Exception as problem:
        for pick, counter in turns.items():
            pick.counter = counter
        if len(inputs) == 1:
            broken(inputs[0].key)
            return [failed(inputs[0], f"it cannot be planned: {type(problem).__name__}: {problem}")]
    statuses: list[ItemStatus] = []
    taken = dict(busy)
    for each in inputs:
        statuses += plan_all(handle, [each], now=now, options=options, busy=taken, leaving=leaving, broken=broken)
        if statuses[-1].phase != "Failed":
            taken.setdefault(each.item.workload.uid, each.request)
    return statuses


def asks(handle: TableHandle, item_input: ItemInput, profiles: Profiles) -> list[Ask]:
    """One for each pod of the item."""
    pods = item_input.pods(handle)
    if item_input.workload is None:
        sample = pods[0] if pods else SchedulerPod()
    else:
        sample = item_input.model(pods)
    names = [item_input.item.service_name, item_input.item.workload.name]
    names += handle.table.catalog.services_named(item_input.item.namespace, sample.metadata.labels)
    profile = profiles.of(item_input.item.namespace, names, sample)
    ask = Ask(
        Sign.REMOVE if item_input.item.is_removal else Sign.ADD,
        item_input.key,
        profile.kind,
        profile.cpu_milli,
        profile.memory_bytes,
        profile.load_cpu_milli,
        profile.load_memory_bytes,
        sample.priority,
    )
    return [ask] * item_input.item.number


def waiting(item_input: ItemInput, why: str) -> ItemStatus:
    return msgspec.structs.replace(item_input.status, phase="Waiting", message=why)


def failed(item_input: ItemInput, why: str) -> ItemStatus:
    return msgspec.structs.replace(item_input.status, phase="Failed", message=why)


def _too_many(item_input: ItemInput, pods: Sequence[SchedulerPod]) -> ItemStatus:
    whose = item_input.item.workload.described()
    return failed(item_input, f"{whose} has {len(pods)} pods; up to {MOST_PODS} are dealt with")


# --- removing ---------------------------------------------------------------------------------------------


def _plan_removals(
    handle: TableHandle, inputs: Sequence[ItemInput], now: datetime, options: RoundOptions
) -> tuple[frozenset[str], dict[str, ItemStatus]]:
    """The plans, and the UIDs of the pods named in them. The table is left as it was: they are still there."""
    statement = Statement(handle.table)
    try:
        plans = {each.key: _plan_removal(handle, statement, each, now, options) for each in inputs}
    finally:
        statement.rollback()
    return frozenset(victim.uid for plan in plans.values() for victim in plan.victims), plans


def _plan_removal(
    handle: TableHandle, statement: Statement, item_input: ItemInput, now: datetime, options: RoundOptions
) -> ItemStatus:
    item, pods = item_input.item, item_input.pods(handle)
    if len(pods) > MOST_PODS:
        return _too_many(item_input, pods)
    before = len(pods) if item_input.workload is None else item_input.workload.replicas
    after = max(0, before - item.number)
    count = min(before - after, max(0, len(pods) - after))
    cycle = handle.cycle(pods[0].spec.scheduler_name) if pods else None
    choice = VictimChoice(statement, options, now.timestamp(), cycle.pick if cycle is not None else None)
    if item.workload.kind == "StatefulSet":
        victims = choice.highest(pods, count)
    elif item.workload.kind == "Service":
        victims = choice.by_score(pods, count)
    else:
        victims = choice.of_replica_sets(pods, count)
    shortfall = item.number - (before - after)
    return msgspec.structs.replace(
        item_input.status,
        phase="Planned",
        message=_removal_sentence(item, before - after, count, victims, shortfall),
        replicas=Replicas(before=before, after=after),
        victims=victims,
        shortfall=shortfall,
        planned_at=rfc3339(now),
        seen=ends_of_names(pods, item.workload.name),
    )


@dataclass(frozen=True, slots=True)
class VictimChoice:
    """How the pods to go are chosen; level nodes are taken as the profile of the pods takes them."""

    statement: Statement
    options: RoundOptions
    now_s: float
    pick: Pick | None

    def highest(self, pods: Sequence[SchedulerPod], count: int) -> tuple[Victim, ...]:
        ordered = sorted(pods, key=lambda pod: _ordinal(pod.metadata.name), reverse=True)[:count]
        why, standing = "a StatefulSet removes its highest ordinal", self._node_scores(pods)
        return tuple(_victim(pod, standing.get(pod.uid), why=why, guaranteed=True) for pod in ordered)

    def of_replica_sets(self, pods: Sequence[SchedulerPod], count: int) -> tuple[Victim, ...]:
        sets = {owner.uid for pod in pods if (owner := pod.metadata.controller) is not None}
        if len(sets) > 1:
            return ()  # a roll-out divides a change over its ReplicaSets, and which takes how many is its own affair
        # Kubernetes takes pods that are not ready before it looks at any cost.
        unready = [pod for pod in pods if not _is_ready(pod)]
        idle = sorted(unready, key=lambda pod: scale_down_order(pod, 0, self.now_s))[:count]
        why, standing = "not ready: Kubernetes takes such pods first", self._node_scores(pods) if idle else {}
        named = tuple(_victim(pod, standing.get(pod.uid), why=why) for pod in idle)
        for pod in idle:
            if (occupant := self.statement.table.occupants.get(pod.uid)) is not None:
                self.statement.remove(occupant)
        return named + self.by_score([pod for pod in pods if _is_ready(pod)], count - len(named))

    def by_score(self, pods: Sequence[SchedulerPod], count: int) -> tuple[Victim, ...]:
        weights, basis = self.options.weights, self.options.load_basis
        plan = plan_removal(self.statement, pods, count, now_s=self.now_s, weights=weights, pick=self.pick, basis=basis)
        by_uid = {pod.uid: pod for pod in pods}
        return tuple(
            _victim(by_uid[each.uid], (each.score, each.scores), why=each.why, guaranteed=True) for each in plan.removed
        )

    def _node_scores(self, pods: Sequence[SchedulerPod]) -> dict[str, tuple[int, RemovalScores]]:
        return node_scores(self.statement.table, pods, self.options.weights, self.options.load_basis)


def _victim(
    pod: SchedulerPod, standing: tuple[int, RemovalScores | None] | None, *, why: str, guaranteed: bool = False
) -> Victim:
    score, scores = standing or (0, None)
    return Victim(
        pod=pod.metadata.name,
        uid=pod.metadata.uid,
        node=pod.spec.node_name,
        score=on_scale(score, ONE),
        scores=_victim_scores(scores) if scores is not None else None,
        why=why,
        guaranteed=guaranteed,
        cost=pod.metadata.annotations.get(DELETION_COST),
    )


def _victim_scores(scores: RemovalScores) -> VictimScores:
    return VictimScores(
        w1=on_scale(scores.used, ONE),
        w2=on_scale(scores.even, ONE),
        w3=on_scale(scores.service, ONE),
        w4=None if scores.wishes is None else on_scale(scores.wishes, ONE),
        w5=None if scores.forecast is None else on_scale(scores.forecast, ONE),
    )


def _removal_sentence(item: Item, fewer: int, going: int, victims: Sequence[Victim], shortfall: int) -> str:
    sentence = f"{fewer} fewer {'pod' if fewer == 1 else 'pods'} of {item.workload.described()}"
    if victims:
        sentence += f": from {by_node(victim.node or 'no node yet' for victim in victims)}"
    elif going:
        sentence += ": a roll-out is under way, so which pods go is up to it"
    elif fewer:
        sentence += ": they were not made yet"
    return f"{sentence}; {shortfall} fewer than requested: there are no more" if shortfall else sentence


# --- adding -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Addition:
    """The pods that an item adds, while places are sought for them."""

    item_input: ItemInput
    there: Sequence[SchedulerPod]
    # A pod as the workload will make it, and by which decisions it is placed; None: another scheduler places it.
    model: SchedulerPod
    cycle: Cycle | None
    placed: list[Placed] = field(default_factory=list)
    # Why the next one has no room now, and whether it would have some without the pods that are on their way out.
    refusal: str = ""
    has_room_soon: bool = False
    # Places on room that pods are still leaving: held now, taken when those are gone.
    late: list[Placed] = field(default_factory=list)

    def pod(self, number: int, handle: TableHandle) -> SchedulerPod:
        """The pod of this number among those to come."""
        return numbered(self.model, self.item_input.key, number, handle.table.catalog.claims)


def _plan_additions(
    handle: TableHandle,
    open_: Mapping[str, ItemInput],
    order: Sequence[str],
    now: datetime,
    options: RoundOptions,
    leaving: frozenset[str],
) -> dict[str, ItemStatus]:
    # Those `leaving` count as being there, in scores as in room: scored as if they were gone, new pods would be
    # reserved nodes that cannot have them yet, or, where a named pod stays, never.
    found: dict[str, ItemStatus] = {}
    additions: dict[str, Addition] = {}
    refused: list[Addition] = []
    statement, nominated = Statement(handle.table), handle.nominated()
    reasons = Reasons(handle.table.node_count)
    for key in dict.fromkeys(order):
        item_input = open_[key]
        pods = item_input.pods(handle)
        if len(pods) > MOST_PODS:
            found[key] = _too_many(item_input, pods)
        else:
            model = item_input.model(pods)
            additions[key] = Addition(item_input, pods, model, handle.cycle(model.spec.scheduler_name))
    reservations: list[Reservation] = []
    try:
        for key in order:
            addition = additions.get(key)
            if addition is None or addition.cycle is None or addition.refusal:
                continue
            pod = addition.pod(len(addition.placed), handle)
            reasons.explain(key, addition.cycle, pod, nominated)
            outcome = addition.cycle.decide(pod, statement, nominated=nominated)
            if isinstance(outcome, Placed):
                addition.placed.append(outcome)
            else:
                # A table that only fills up has no room for the next one like it either.
                addition.refusal = outcome.diagnosis.message()
                refused.append(addition)
        _look_beyond_leaving(handle, refused, leaving)
        for key, addition in additions.items():
            item_input = addition.item_input
            if addition.has_room_soon and options.reuse_terminating:
                _place_after_leaving(handle, statement, addition, leaving, reasons)
            elif addition.has_room_soon and not is_over(item_input.accepted_at, options.settle_s, now):
                for place in addition.placed:
                    statement.remove(handle.table.occupants[place.pod])
                now_have = f"{len(addition.placed)} of {item_input.item.number} pods have room now"
                why = f"{now_have}; more will have when the pods that are on their way out are gone"
                found[key] = waiting(item_input, why)
                continue
            reservations += _reserve(handle, addition, options)
            found[key] = _added(addition, reasons, now)
    except BaseException:
        statement.rollback()
        raise
    # Last: whatever breaks above leaves no planned pod behind.
    statement.commit()
    for reservation in reservations:
        handle.reservations.hold(reservation)
    return found


def _place_after_leaving(
    handle: TableHandle, planned: Statement, addition: Addition, leaving: frozenset[str], reasons: Reasons
) -> None:
    """Find places for the rest on room that pods are still leaving."""
    cycle, statement = addition.cycle, Statement(handle.table)
    assert cycle is not None, "who has no room was decided on"
    pods: list[SchedulerPod] = []
    try:
        for occupant in _going(handle, leaving):
            statement.remove(occupant)
        for number in range(len(addition.placed), addition.item_input.item.number):
            pod = addition.pod(number, handle)
            reasons.explain(addition.item_input.key, cycle, pod, ())
            outcome = cycle.decide(pod, statement)
            if not isinstance(outcome, Placed):
                break
            addition.late.append(outcome)
            pods.append(pod)
    finally:
        statement.rollback()
    for pod, each in zip(pods, addition.late, strict=True):
        planned.place(occupant_of(pod, handle.table.request(pod), each.node))


def _going(handle: TableHandle, leaving: frozenset[str]) -> list[Occupant]:
    return [each for each in handle.table.occupants.values() if each.terminating or each.uid in leaving]


def _look_beyond_leaving(handle: TableHandle, refused: Sequence[Addition], leaving: frozenset[str]) -> None:
    """Of pods that have no room now, find out which would have some without the pods that are on their way out."""
    statement = Statement(handle.table)
    try:
        for occupant in _going(handle, leaving) if refused else ():
            statement.remove(occupant)
        for addition in refused:
            assert addition.cycle is not None, "who has no room was decided on"
            with on_trial(addition.cycle.pick):
                outcome = addition.cycle.decide(addition.pod(len(addition.placed), handle), statement)
            addition.has_room_soon = isinstance(outcome, Placed)
    finally:
        statement.rollback()


def _reserve(handle: TableHandle, addition: Addition, options: RoundOptions) -> list[Reservation]:
    item_input, until_s = addition.item_input, handle.now_s + options.settle_s
    return [
        Reservation(
            addition.pod(number, handle),
            place.node,
            item_input.item.workload.uid,
            item_input.key,
            until_s,
            number >= len(addition.placed),
        )
        for number, place in enumerate((*addition.placed, *addition.late))
    ]


def _added(addition: Addition, reasons: Reasons, now: datetime) -> ItemStatus:
    item_input, cycle, model = addition.item_input, addition.cycle, addition.model
    item, workload = item_input.item, item_input.owner
    other = "" if cycle is not None else model.spec.scheduler_name
    placed = (*addition.placed, *addition.late)
    # One for each place, in order, until there is no more room or time for reasons.
    lines = iter(reasons.lines.get(item_input.key, ()))
    places = [
        Place(
            node=each.node,
            score=on_scale(each.score, cycle.profile.unit if cycle is not None else BEST),
            reason=next(lines, ""),
            note=f"{AFTER_LEAVING}{each.node}" if number >= len(addition.placed) else "",
        )
        for number, each in enumerate(placed)
    ]
    # Pods of another scheduler have places too: what it does with them is followed and reported.
    note = f"up to scheduler {other}" if other else addition.refusal
    places += [Place(note=note)] * (item.number - len(places))
    return msgspec.structs.replace(
        item_input.status,
        phase="Planned",
        message=_addition_sentence(item, placed, addition.refusal, other),
        replicas=Replicas(before=workload.replicas, after=workload.replicas + item.number),
        places=tuple(places),
        rules=reasons.rules.get(item_input.key, ""),
        scheduler=other,
        planned_at=rfc3339(now),
        # As the server will give it back, so that both compare equal.
        planned=msgspec.json.decode(msgspec.json.encode(model)),
        seen=ends_of_names(addition.there, item.workload.name),
    )


def _addition_sentence(item: Item, placed: Sequence[Placed], why_not: str, other: str) -> str:
    sentence = f"{item.number} more {'pod' if item.number == 1 else 'pods'} of {item.workload.described()}"
    if other:
        return f"{sentence}: their places are up to scheduler {other}"
    if placed:
        sentence += f": on {by_node(place.node for place in placed)}"
    missing = item.number - len(placed)
    return f"{sentence}; {missing} without room now ({why_not})" if missing else sentence


def restore_reservations(
    handle: TableHandle, maker: str, item: Item, status: ItemStatus, settle_s: float, now: datetime
) -> None:
    """Reserve again what an earlier leader reserved and no pod has taken up, where there still is room."""
    if status.planned is None:
        return
    left = settle_s - (now - moment(status.acted_at or status.planned_at)).total_seconds()
    if left <= 0:
        return
    model = msgspec.convert(status.planned, SchedulerPod)
    cycle = handle.cycle(model.spec.scheduler_name)
    if cycle is None:
        return
    new = new_pods(status, item, handle.pods_of(item.workload.uid))
    for number, place in enumerate(match_places(status.places, new)):
        row = handle.table.row_of.get(place.node) if place.node and not place.pod else None
        if row is None:
            continue
        pod = numbered(model, maker, number, handle.table.catalog.claims)
        with on_trial(cycle.pick):
            is_placed = isinstance(cycle.decide(pod, within_N=handle.table.view().among({row})), Placed)
        if is_placed:
            handle.reservations.hold(Reservation(pod, place.node, item.workload.uid, maker, handle.now_s + left))


# --- small ------------------------------------------------------------------------------------------------


def _ordinal(name: str) -> int:
    _, _, end = name.rpartition("-")
    number = whole_number(end, 0, 2**31 - 1)
    return -1 if number is None else number


def _is_ready(pod: SchedulerPod) -> bool:
    ready = pod.condition("Ready")
    is_true = ready is not None and ready.status == "True"
    return is_true and bool(pod.spec.node_name) and pod.status.phase == "Running"


def _cluster(handle: TableHandle) -> dict[str, int]:
    """What the whole cluster has, for shares of it."""
    table = handle.table
    valid_N = table.valid_N[: table.size]
    return {
        CPU: int(table.alloc_RN[axes.CPU, : table.size][valid_N].sum()),
        MEMORY: int(table.alloc_RN[axes.MEMORY, : table.size][valid_N].sum()),
    }
