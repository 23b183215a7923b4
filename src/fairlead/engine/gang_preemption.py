"""Preemption by gangs: which pods to evict so that a unit that fits nowhere gets its minimum.

Victims are pods of lower priority by themselves, members that a lower gang can spare, and lower gangs as wholes. They
are put in the order in which they would go; the shortest beginning of that order that makes room is found, and what
is not in the way after all is given back. Nothing is evicted here.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from fairlead.engine.gang import Gangs
from fairlead.engine.occupant import Occupant
from fairlead.engine.preemption import Budget, by_budget, importance, later_first
from fairlead.engine.standing import Standing
from fairlead.engine.statement import Statement
from fairlead.engine.table import NodeTable
from fairlead.engine.unit import Unit, UnitOutcome, UnitPlaced
from fairlead.model.outcome import Placed
from fairlead.model.pod import SchedulerPod

# Members that may be placed while it is tried without whom it fits as well: so many small gangs, or few large ones.
MOST_TRIED: Final = 2_048


class UnitEviction(msgspec.Struct, frozen=True):
    """The pods to evict, essential members of a gang last, and where the unit goes then."""

    victims: tuple[Occupant, ...]
    places: tuple[Placed, ...]


class Group(msgspec.Struct, frozen=True):
    """Occupants that go together, and how soon: the smallest key first."""

    key: tuple[object, ...]
    occupants: tuple[Occupant, ...]


def decide_unit(
    gangs: Gangs,
    unit: Unit,
    statement: Statement,
    nominated: Sequence[SchedulerPod],
    leaving: Sequence[str] = (),
) -> tuple[UnitOutcome, UnitEviction | None]:
    """The decision, in the statement, and who has to go if that helps: the same for the loop, replay and a trial.

    `leaving` are those that are already being evicted for it.
    """
    outcome = gangs.decide(unit, statement, nominated)
    if isinstance(outcome, UnitPlaced) or outcome.never is not None:
        return outcome, None
    if leaving:
        return msgspec.structs.replace(outcome, evicting=tuple(leaving)), None
    eviction = plan_eviction(gangs, unit, nominated)
    if eviction is None:
        return outcome, None
    keys = tuple(victim.key for victim in eviction.victims)
    return msgspec.structs.replace(outcome, evicting=keys), eviction


def plan_eviction(gangs: Gangs, unit: Unit, nominated: Sequence[SchedulerPod]) -> UnitEviction | None:
    """The cheapest eviction that gives the unit its minimum; None where none does. The table is left as it was."""
    table, standing = gangs.table, gangs.standing
    if unit.priority <= table.lowest_priority() or any(
        member.pod.spec.preemption_policy == "Never" for member in unit.waiting
    ):
        return None
    # Only the minimum is worth an eviction.
    least = msgspec.structs.replace(unit, most=0)
    if unit.has_minimum:
        return None
    groups = sorted(victim_groups(unit, table, standing), key=lambda group: group.key)
    statement = Statement(table)

    def fits(evicted: Iterable[Occupant]) -> list[Placed]:
        statement.rollback()
        for occupant in evicted:
            statement.remove(occupant)
        return gangs.fit(least, statement, nominated)[0]

    try:
        if not groups or not fits(_of(groups)):
            return None
        # So many do not suffice, so many do.
        few, enough = 0, len(groups)
        while enough - few > 1:
            middle = (few + enough) // 2
            few, enough = (few, middle) if fits(_of(groups[:middle])) else (middle, enough)
        groups = groups[:enough]
        blocking = _in_the_way(groups, statement, fits(_of(groups)))

        def with_all(victims: Iterable[Occupant]) -> UnitEviction | None:
            statement.rollback()
            whole = standing.whole(victims)
            places = fits(whole)
            return UnitEviction(tuple(whole), tuple(places)) if places else None

        # What was given back may be in the way by other things than amounts.
        eviction = with_all(blocking) or with_all(_of(groups))
        return None if eviction is None else _spared(eviction, groups, with_all, len(least.waiting))
    finally:
        statement.rollback()


def _spared(
    eviction: UnitEviction,
    groups: Sequence[Group],
    with_all: Callable[[Iterable[Occupant]], UnitEviction | None],
    members: int,
) -> UnitEviction:
    """Without those that it can do without after all, the most important first; so many are tried as time allows."""
    left = MOST_TRIED // max(1, members)
    again = True
    while again:
        again = False
        for group in reversed(groups):
            mine = {each.uid for each in group.occupants}
            rest = [each for each in eviction.victims if each.uid not in mine]
            if len(rest) + len(mine) > len(eviction.victims) or left <= 0:
                continue
            left -= 1
            found = with_all(rest)
            # As many again: it goes with another that must go.
            if found is not None and len(found.victims) < len(eviction.victims):
                eviction, again = found, True
    return eviction


def _of(groups: Iterable[Group]) -> list[Occupant]:
    return [occupant for group in groups for occupant in group.occupants]


def victim_groups(unit: Unit, table: NodeTable, standing: Standing) -> list[Group]:
    """All that is of lower priority, by what goes together."""
    weaker = [
        occupant
        for occupants in table.on_row
        for occupant in occupants.values()
        if standing.priority_of(occupant) < unit.priority
    ]
    protected = {occupant.uid for occupant in _protected(weaker, table)}
    lone: list[Occupant] = []
    gangs: dict[str, Unit] = {}
    for occupant in weaker:
        other = standing.unit_of(occupant)
        if other is None:
            lone.append(occupant)
        elif other.key != unit.key:
            gangs[other.key] = other
    found = [Group(_key(occupant, occupant.uid in protected, 1, 0), (occupant,)) for occupant in lone]
    for other in gangs.values():
        members = standing.occupants(other)
        if any(standing.priority_of(occupant) >= unit.priority for _, occupant in members):
            continue
        # The last of those that it can do without go first.
        spares = [occupant for member, occupant in reversed(members) if not member.essential][: standing.spare(other)]
        found += [Group(_key(each, each.uid in protected, 0, other.importance), (each,)) for each in spares]
        rest = tuple(occupant for _, occupant in members if occupant not in spares)
        if rest:
            breaks = any(occupant.uid in protected for occupant in rest)
            found.append(Group(_key(rest[0], breaks, 1, other.importance), rest))
    return found


def _protected(occupants: Sequence[Occupant], table: NodeTable) -> list[Occupant]:
    budgets = Budget.all_of(table.catalog.budgets.values())
    return by_budget(sorted(occupants, key=importance), budgets)[0] if budgets else []


def _key(occupant: Occupant, breaks_budget: bool, whole: int, rank: int) -> tuple[object, ...]:
    priority, started, key = importance(occupant)
    # What is going anyway costs nothing; later starts have less to lose.
    is_staying = not occupant.terminating
    return is_staying, breaks_budget, -priority, whole, rank, later_first(started), key


def _in_the_way(groups: Sequence[Group], statement: Statement, places: Iterable[Placed]) -> list[Occupant]:
    """Those that do not fit beside the unit's places in the statement; the most important are given back first.

    A node without such a place may be oversold for other reasons, such as room that is kept there for a unit.
    """
    table = statement.table
    own = {place.pod for place in places}
    placed = {
        node: [uid for uid, each in table.on_row[table.row_of[node]].items() if each.key in own]
        for node in {place.node for place in places}
    }
    victims: list[Occupant] = []
    for group in reversed(groups):
        start = statement.checkpoint()
        for occupant in group.occupants:
            statement.place(occupant)
        nodes = {occupant.node for occupant in group.occupants}
        over = any(table.takes_oversold(uid) for node in nodes for uid in placed.get(node, ()))
        without = any(occupant.request.gpu.count and occupant.gpus is None for occupant in group.occupants)
        if over or without:
            statement.rollback(start)
            victims.extend(group.occupants)
    return victims
