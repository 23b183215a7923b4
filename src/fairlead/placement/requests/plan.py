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
        return failed(item_input, f"{item.workload.described()} has {len(pods)} pods; up to {MOST_PODS} are dealt with")
    before = len(pods) if item_input.workload is None else item_input.workload.replicas
    after = max(0, before - item.number)
    count = min(before - after, max(0, len(pods) - after))
    now_s = now.timestamp()
    pick = _pick_for(handle, pods)
    if item.workload.kind == "StatefulSet":
        victims = _highest(statement, pods, count, options)
    elif item.workload.kind == "Service":
        victims = _by_score(statement, pods, count, now_s, options, pick)
    else:
        victims = _of_replica_sets(statement, pods, count, now_s, options, pick)
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


def _pick_for(handle: TableHandle, pods: Sequence[SchedulerPod]) -> Pick | None:
    """Nodes that are level are taken as the profile of the pods takes them."""
    cycle = handle.cycle(pods[0].spec.scheduler_name) if pods else None
    return cycle.pick if cycle is not None else None


def _highest(
    statement: Statement, pods: Sequence[SchedulerPod], count: int, options: RoundOptions
) -> tuple[Victim, ...]:
    ordered = sorted(pods, key=lambda pod: _ordinal(pod.metadata.name), reverse=True)[:count]
    why = "a StatefulSet removes its highest ordinal"
    standing = node_scores(statement.table, pods, options.weights, options.load_basis)
    return tuple(_victim(pod, standing.get(pod.uid), why=why, guaranteed=True) for pod in ordered)


def _of_replica_sets(
    statement: Statement,
    pods: Sequence[SchedulerPod],
    count: int,
    now_s: float,
    options: RoundOptions,
    pick: Pick | None,
) -> tuple[Victim, ...]:
    sets = {owner.uid for pod in pods if (owner := pod.metadata.controller) is not None}
    if len(sets) > 1:
        return ()  # a roll-out divides a change over its ReplicaSets, and which takes how many is its own affair
    # Kubernetes takes pods that are not ready before it looks at any cost.
    idle = sorted((pod for pod in pods if not _is_ready(pod)), key=lambda pod: scale_down_order(pod, 0, now_s))[:count]
    why = "not ready: Kubernetes takes such pods first"
    standing = node_scores(statement.table, pods, options.weights, options.load_basis) if idle else {}
    named = tuple(_victim(pod, standing.get(pod.uid), why=why) for pod in idle)
    for pod in idle:
        if (occupant := statement.table.occupants.get(pod.uid)) is not None:
            statement.remove(occupant)
    ready = [pod for pod in pods if _is_ready(pod)]
    return named + _by_score(statement, ready, count - len(named), now_s, options, pick)


def _by_score(
    statement: Statement,
    pods: Sequence[SchedulerPod],
    count: int,
    now_s: float,
    options: RoundOptions,
    pick: Pick | None,
) -> tuple[Victim, ...]:
    plan = plan_removal(
        statement, pods, count, now_s=now_s, weights=options.weights, pick=pick, basis=options.load_basis
    )
    by_uid = {pod.uid: pod for pod in pods}
    return tuple(
        _victim(by_uid[each.uid], (each.score, each.scores), why=each.why, guaranteed=True) for each in plan.removed
    )


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
    there: dict[str, list[SchedulerPod]] = {}
    models: dict[str, SchedulerPod] = {}
    placed: dict[str, list[Placed]] = {}
    refused: dict[str, str] = {}
    statement, nominated, claims = Statement(handle.table), handle.nominated(), handle.table.catalog.claims
    reasons = Reasons(handle.table.node_count)
    for key in dict.fromkeys(order):
        item_input = open_[key]
        pods = item_input.pods(handle)
        if len(pods) > MOST_PODS:
            why = f"{item_input.item.workload.described()} has {len(pods)} pods; up to {MOST_PODS} are dealt with"
            found[key] = failed(item_input, why)
        else:
            there[key], models[key], placed[key] = pods, item_input.model(pods), []
    reservations: list[Reservation] = []
    try:
        for key in order:
            if key not in models or key in refused:
                continue
            pod = numbered(models[key], key, len(placed[key]), claims)
            cycle = handle.cycle(pod.spec.scheduler_name)
            if cycle is None:
                continue
            reasons.explain(key, cycle, pod, nominated)
            outcome = cycle.decide(pod, statement, nominated=nominated)
            if isinstance(outcome, Placed):
                placed[key].append(outcome)
            else:
                # A table that only fills up has no room for the next one like it either.
                refused[key] = outcome.diagnosis.message()
        lacking = [numbered(models[key], key, len(placed[key]), claims) for key in refused]
        helped = _helped_by_leaving(handle, lacking, leaving)
        soon = {key for key, is_helped in zip(refused, helped, strict=True) if is_helped}
        for key, places in placed.items():
            item_input, late = open_[key], list[Placed]()
            if key in soon and options.reuse_terminating:
                late = _after_leaving(handle, statement, models[key], item_input, len(places), leaving, reasons)
            elif key in soon and not is_over(item_input.accepted_at, options.settle_s, now):
                for place in places:
                    statement.remove(handle.table.occupants[place.pod])
                now_have = f"{len(places)} of {item_input.item.number} pods have room now"
                why = f"{now_have}; more will have when the pods that are on their way out are gone"
                found[key] = waiting(item_input, why)
                continue
            reservations += _reserve(handle, item_input, models[key], places, late, options)
            status = _added(handle, item_input, models[key], places, late, refused.get(key, ""), reasons, now)
            found[key] = msgspec.structs.replace(status, seen=ends_of_names(there[key], item_input.item.workload.name))
    except BaseException:
        statement.rollback()
        raise
    # Last: whatever breaks above leaves no planned pod behind.
    statement.commit()
    for reservation in reservations:
        handle.reservations.hold(reservation)
    return found


def _after_leaving(
    handle: TableHandle,
    planned: Statement,
    model: SchedulerPod,
    item_input: ItemInput,
    placed: int,
    leaving: frozenset[str],
    reasons: Reasons,
) -> list[Placed]:
    """Places for the rest on room that pods are still leaving: held now, taken when those are gone."""
    cycle, statement = handle.cycle(model.spec.scheduler_name), Statement(handle.table)
    assert cycle is not None, "who has no room was decided on"
    found: list[Placed] = []
    pods: list[SchedulerPod] = []
    try:
        for occupant in _going(handle, leaving):
            statement.remove(occupant)
        for number in range(placed, item_input.item.number):
            pod = numbered(model, item_input.key, number, handle.table.catalog.claims)
            reasons.explain(item_input.key, cycle, pod, ())
            outcome = cycle.decide(pod, statement)
            if not isinstance(outcome, Placed):
                break
            found.append(outcome)
            pods.append(pod)
    finally:
        statement.rollback()
    for pod, each in zip(pods, found, strict=True):
        planned.place(occupant_of(pod, handle.table.request(pod), each.node))
    return found


def _going(handle: TableHandle, leaving: frozenset[str]) -> list[Occupant]:
    return [each for each in handle.table.occupants.values() if each.terminating or each.uid in leaving]


def _helped_by_leaving(handle: TableHandle, lacking: Sequence[SchedulerPod], leaving: frozenset[str]) -> list[bool]:
    """For pods that have no room now: whether they would have some without the pods that are on their way out."""
    if not lacking:
        return []
    statement = Statement(handle.table)
    helped: list[bool] = []
    try:
        for occupant in _going(handle, leaving):
            statement.remove(occupant)
        for pod in lacking:
            cycle = handle.cycle(pod.spec.scheduler_name)
            if cycle is None:
                helped.append(False)
                continue
            with on_trial(cycle.pick):
                helped.append(isinstance(cycle.decide(pod, statement), Placed))
    finally:
        statement.rollback()
    return helped


def _reserve(
    handle: TableHandle,
    item_input: ItemInput,
    model: SchedulerPod,
    placed: Sequence[Placed],
    late: Sequence[Placed],
    options: RoundOptions,
) -> list[Reservation]:
    until_s, claims = handle.now_s + options.settle_s, handle.table.catalog.claims
    return [
        Reservation(
            numbered(model, item_input.key, number, claims),
            place.node,
            item_input.item.workload.uid,
            item_input.key,
            until_s,
            number >= len(placed),
        )
        for number, place in enumerate((*placed, *late))
    ]


def _added(
    handle: TableHandle,
    item_input: ItemInput,
    model: SchedulerPod,
    placed: Sequence[Placed],
    late: Sequence[Placed],
    why_not: str,
    reasons: Reasons,
    now: datetime,
) -> ItemStatus:
    item, workload = item_input.item, item_input.owner
    scheduler = model.spec.scheduler_name
    cycle = handle.cycle(scheduler)
    unit = cycle.profile.unit if cycle is not None else BEST
    # One for each place, in order, until there is no more room or time for reasons.
    lines = iter(reasons.lines.get(item_input.key, ()))
    places = [
        Place(
            node=each.node,
            score=on_scale(each.score, unit),
            reason=next(lines, ""),
            note=f"{AFTER_LEAVING}{each.node}" if number >= len(placed) else "",
        )
        for number, each in enumerate((*placed, *late))
    ]
    # Pods of another scheduler have places too: what it does with them is followed and reported.
    note = why_not if cycle is not None else f"up to scheduler {scheduler}"
    places += [Place(note=note)] * (item.number - len(places))
    return msgspec.structs.replace(
        item_input.status,
        phase="Planned",
        message=_addition_sentence(item, (*placed, *late), why_not, "" if cycle is not None else scheduler),
        replicas=Replicas(before=workload.replicas, after=workload.replicas + item.number),
        places=tuple(places),
        rules=reasons.rules.get(item_input.key, ""),
        scheduler="" if cycle is not None else scheduler,
        planned_at=rfc3339(now),
        # As the server will give it back, so that both compare equal.
        planned=msgspec.json.decode(msgspec.json.encode(model)),
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
