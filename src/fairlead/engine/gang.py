"""Gangs: units of several pods placed together or not at all.

All tries happen inside one statement and leave no trace when they fail. Pods of one template share a request, so the
cost grows with nodes and templates, hardly with members.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np

from fairlead.engine.axes import Bools, Floats, Ints
from fairlead.engine.cycle import Cycle
from fairlead.engine.locality import local_values, readings_of
from fairlead.engine.profile import job_profile
from fairlead.engine.proof import capacity, never_fits
from fairlead.engine.request import Request
from fairlead.engine.standing import Standing
from fairlead.engine.statement import Statement
from fairlead.engine.unit import Member, NeverFits, Unit, UnitOutcome, UnitPlaced, UnitRefused
from fairlead.model.outcome import Placed, Refused
from fairlead.model.pod import SchedulerPod
from fairlead.model.resources import CPU, MEMORY

# Cycles kept for policies of units; a label of a job's own makes one of its own.
MOST_POLICIES: Final = 16


class Gangs:
    """Decides units over one table, with one cycle for each policy in use."""

    def __init__(self, cycle: Cycle, standing: Standing | None = None) -> None:
        self._cycle = cycle
        self.table = cycle.table
        self.standing = standing if standing is not None else Standing(cycle.table)
        self._policies: dict[tuple[str, str, bool], Cycle] = {}

    def decide(self, unit: Unit, statement: Statement, nominated: Sequence[SchedulerPod] = ()) -> UnitOutcome:
        """Place members without a node in the statement, up to the minimum at least; else leave it as it was.

        `nominated` are pods that nodes were cleared for and that are not on them yet: their room is not given away.
        """
        never = None if unit.has_minimum else never_fits(self._cycle, unit)
        if never is not None:
            return self._refuse(unit, statement, never, nominated)
        placed, domain = self.fit(unit, statement, nominated)
        if not placed:
            return self._refuse(unit, statement, None, nominated)
        keys = {outcome.pod for outcome in placed}
        waiting = tuple(member.pod.key for member in unit.waiting if member.pod.key not in keys)
        return UnitPlaced(unit.key, tuple(placed), waiting, domain)

    def fit(self, unit: Unit, statement: Statement, nominated: Sequence[SchedulerPod] = ()) -> tuple[list[Placed], str]:
        """The places it would get, in the statement, and their domain; none where the minimum does not fit."""
        for within_N, domain in self._domains(unit):
            for way, members in self._ways(unit, statement, within_N, nominated):
                placed = self._try(way, members, statement, within_N, nominated)
                if placed:
                    return placed, domain
        return [], ""

    def _ways(
        self, unit: Unit, statement: Statement, within_N: Bools | None, nominated: Sequence[SchedulerPod]
    ) -> list[tuple[Unit, tuple[Member, ...]]]:
        """The orders to place members in, and by which policies; of a unit with a role `beside`, the best first."""
        ways = [(unit, members) for members in orders(unit, self.table.request)]
        if not unit.beside:
            return ways
        first = tuple(member for member in unit.waiting if member.role == unit.beside)
        rest = tuple(member for member in unit.waiting if member.role != unit.beside)
        policies = {**unit.policies, "": unit.policies.get(unit.beside, ""), unit.beside: ""}
        ways.append((msgspec.structs.replace(unit, policies=policies), (*first, *rest)))
        worth: list[float] = []
        for way, members in ways:
            start = statement.checkpoint()
            worth.append(self._near(unit, self._try(way, members, statement, within_N, nominated)))
            statement.rollback(start)
            if worth[-1] >= len(rest):
                break
        return [ways[i] for i in sorted(range(len(worth)), key=lambda i: -worth[i])]

    def _near(self, unit: Unit, placed: Sequence[Placed]) -> float:
        """How many others share a node with a member of the role, or read data cached on their node; -1: none fits."""
        if not placed:
            return -1.0
        nodes = {member.pod.key: member.node for member in unit.members} | {each.pod: each.node for each in placed}
        beside = {nodes[member.pod.key] for member in unit.members if member.role == unit.beside} - {""}
        others = [member.pod for member in unit.waiting if member.role != unit.beside]
        return sum(
            1.0 if nodes[pod.key] in beside else self._local_values(pod).get(nodes[pod.key], 0.0) for pod in others
        )

    def may_fit(self, unit: Unit) -> bool:
        """False where there is no room for the minimum, whatever the rules: a cheap check before the full one."""
        room_N = self._room(unit)
        return int(room_N.sum()) >= min(len(unit.waiting), max(1, unit.needed - len(unit.placed)))

    def _try(
        self,
        unit: Unit,
        members: Sequence[Member],
        statement: Statement,
        within_N: Bools | None,
        nominated: Sequence[SchedulerPod],
    ) -> list[Placed]:
        start = statement.checkpoint()
        placed: list[Placed] = []
        # Those that may be missing, and the others among those that may be placed.
        missable, optional = _limits(unit, len(members))
        refused: set[int] = set()
        for member in members:
            if not member.essential and optional == 0:
                continue
            outcome = None
            if not refused or self.table.request(member.pod).number not in refused:
                outcome = self._cycle_for(unit, member).decide(member.pod, statement, within_N, nominated)
            if isinstance(outcome, Placed):
                placed.append(outcome)
                refused.clear()
                optional -= not member.essential
                continue
            refused.add(self.table.request(member.pod).number)
            missable -= 1
            if missable < 0 or member.essential:
                statement.rollback(start)
                return []
        return placed

    def _refuse(
        self, unit: Unit, statement: Statement, never: NeverFits | None, nominated: Sequence[SchedulerPod]
    ) -> UnitRefused:
        """Place what fits once more, to report which member failed first and why; then undo it."""
        start = statement.checkpoint()
        fitting = 0
        failed: Refused | None = None
        for member in unit.waiting:
            outcome = self._cycle_for(unit, member).decide(member.pod, statement, nominated=nominated)
            if isinstance(outcome, Refused):
                failed = failed or outcome
                if never is None or never.pod == member.pod.key:
                    failed = outcome
                    break
            else:
                fitting += 1
        tried = frozenset(occupant.uid for occupant in statement.placed[-fitting:]) if fitting else frozenset()
        short = self.standing.shortages(failed.diagnosis.misses, tried) if failed is not None else ()
        statement.rollback(start)
        if failed is None:
            first = unit.waiting[0].pod
            diagnosis = self._cycle.diagnose(first)
            if never is not None:
                note = never.sentence()
            else:
                # Everything fits somewhere, but not within one domain.
                key = unit.domains.key if unit.domains else ""
                note = f"no single domain of {key} has room for {unit.needed} of {len(unit.members)} pods"
            diagnosis = msgspec.structs.replace(diagnosis, note=note)
            return UnitRefused(unit.key, first.key, diagnosis, fitting, never)
        return UnitRefused(unit.key, failed.pod, failed.diagnosis, fitting, never, short)

    def _domains(self, unit: Unit) -> list[tuple[Bools | None, str]]:
        """Where to try, in order: the one with most of the unit's data cached; else the smallest that may have room
        first, so that large ones stay whole. Members that have a node decide it for those placed later.
        """
        if unit.domains is None:
            return [(None, "")]
        table = self.table
        column = table.label(unit.domains.key)
        ids_N = column.ids_N[: table.size]
        anywhere: list[tuple[Bools | None, str]] = [] if unit.domains.required else [(None, "")]
        rows = [table.row_of[member.node] for member in unit.placed if member.node in table.row_of]
        if rows:
            numbers = set(ids_N[rows].tolist())
            names = [(value, number) for value, number in column.numbers.items() if number in numbers]
            if len(numbers) > 1 or not names:
                return anywhere
            return [(ids_N == names[0][1], names[0][0]), *anywhere]
        room_N = self._room(unit)
        cached_N = self._cached(unit)
        sized: list[tuple[float, int, str, Bools]] = []
        for value, number in column.numbers.items():
            within_N = ids_N == number
            room = int(np.minimum(room_N[within_N], len(unit.members)).sum())
            if room >= unit.needed:
                sized.append((-float(cached_N[within_N].sum()), room, value, within_N))
        sized.sort(key=lambda each: each[:3])
        return [*((within_N, value) for _, _, value, within_N in sized), *anywhere]

    def _cached(self, unit: Unit) -> Floats:
        """How much of the members' data each row has, all members together."""
        table = self.table
        cached_N = np.zeros(table.size)
        for member in unit.members:
            for name, share in self._local_values(member.pod).items():
                if name in table.row_of:
                    cached_N[table.row_of[name]] += share
        return cached_N

    def _local_values(self, pod: SchedulerPod) -> dict[str, float]:
        cache = self.table.catalog.cache
        if cache.is_empty:
            return {}
        request = self.table.request(pod)
        readings = readings_of(cache, request.namespace, request.claims_for_pod, pod.metadata.annotations or {})
        return local_values(cache, readings)

    def _room(self, unit: Unit) -> Ints:
        """An upper bound per row of how many members it could take now, whichever they are."""
        table = self.table
        most_N = np.zeros(table.size, dtype=np.int64)
        free_RN = table.alloc_RN - table.used_RN
        alike: dict[int, list[SchedulerPod]] = {}
        for member in unit.waiting:
            alike.setdefault(table.request(member.pod).number, []).append(member.pod)
        for pods in alike.values():
            evaluation = self._cycle.evaluation(pods[0])
            room_N = np.minimum(capacity(evaluation.request, free_RN, self._cycle), len(pods))
            # Shapes that use different things fit beside each other: only the sum is never too little.
            most_N += np.where(evaluation.static_N, room_N, 0)
        return most_N

    def _cycle_for(self, unit: Unit, member: Member) -> Cycle:
        policy = unit.policies.get(member.role, unit.policies.get("", ""))
        if not policy:
            return self._cycle
        key = (policy, unit.job_label, member.essential)
        cycle = self._policies.get(key)
        if cycle is None:
            profile = job_profile(policy, self._cycle.profile, job_label=unit.job_label, is_leader=member.essential)
            if len(self._policies) >= MOST_POLICIES:
                del self._policies[next(iter(self._policies))]
            cycle = self._policies[key] = Cycle(self.table, profile, self._cycle.pick)
        return cycle


def orders(unit: Unit, request_of: Callable[[SchedulerPod], Request]) -> Iterator[tuple[Member, ...]]:
    """The orders worth trying: as given with essential members first; then largest first, essential ones last."""
    essential = tuple(member for member in unit.waiting if member.essential)
    others = tuple(member for member in unit.waiting if not member.essential)
    given = (*essential, *others)
    yield given

    takes = {member.pod.key: request_of(member.pod).takes for member in others}
    # By names in a fixed order: rows of the table are numbered by its history, which must not decide anything.
    scalars = sorted({name for each in takes.values() for name in each} - {CPU, MEMORY})

    def size(member: Member) -> tuple[int, ...]:
        return tuple(-takes[member.pod.key].get(name, 0) for name in (CPU, MEMORY, *scalars))

    by_size = (*sorted(others, key=size), *essential)
    if by_size != given:
        yield by_size


def _limits(unit: Unit, waiting: int) -> tuple[int, int]:
    """Of the members that wait, how many may stay without a node, and how many that are not essential may get one."""
    short = max(0, unit.needed - len(unit.placed))
    # With the minimum there, nothing new is no placement, but no reason to undo any either.
    missable = waiting - short
    if unit.most is None:
        return missable, waiting
    essential = sum(member.essential for member in unit.waiting)
    return missable, max(0, short - essential) + unit.most
