"""Gangs: units of several pods placed together or not at all.

All tries happen inside one statement and leave no trace when they fail. Pods of one template share a request, so the
cost grows with nodes and templates, hardly with members.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from fairlead.engine.axes import Bools, Floats, Ints
from fairlead.engine.cycle import Cycle
from fairlead.engine.locality import local_values, readings_of
from fairlead.engine.profile import job_profile
from fairlead.engine.proof import capacity, never_fits
from fairlead.engine.request import Request
from fairlead.engine.statement import Statement
from fairlead.engine.unit import Member, NeverFits, Unit, UnitOutcome, UnitPlaced, UnitRefused
from fairlead.model.outcome import Placed, Refused
from fairlead.model.pod import Pod
from fairlead.model.resources import CPU, MEMORY

# Cycles kept for policies of units; a label of a job's own makes one of its own.
MOST_POLICIES: Final = 16


class Gangs:
    """Decides units over one table, with one cycle for each policy in use."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._table = cycle.table
        self._policies: dict[tuple[str, str, bool], Cycle] = {}

    def decide(self, unit: Unit, statement: Statement, nominated: Sequence[Pod] = ()) -> UnitOutcome:
        """Place the unit in the statement, at least its minimum; else leave the statement as it was and say why.

        `nominated` are pods that nodes were cleared for and that are not on them yet: their room is not given away.
        """
        never = never_fits(self._cycle, unit)
        if never is not None:
            return self._refuse(unit, statement, never, nominated)
        for within_N, domain in self._domains(unit):
            for members in orders(unit, self._table.request):
                placed = self._try(unit, members, statement, within_N, nominated)
                if placed is not None:
                    keys = {outcome.pod for outcome in placed}
                    waiting = tuple(member.pod.key for member in unit.members if member.pod.key not in keys)
                    return UnitPlaced(unit.key, tuple(placed), waiting, domain)
        return self._refuse(unit, statement, None, nominated)

    def _try(
        self,
        unit: Unit,
        members: Sequence[Member],
        statement: Statement,
        within_N: Bools | None,
        nominated: Sequence[Pod],
    ) -> list[Placed] | None:
        start = statement.checkpoint()
        placed: list[Placed] = []
        missing = 0
        for member in members:
            outcome = self._cycle_for(unit, member).decide(member.pod, statement, within_N, nominated)
            if isinstance(outcome, Placed):
                placed.append(outcome)
                continue
            missing += 1
            if member.essential or len(unit.members) - missing < unit.needed:
                statement.rollback(start)
                return None
        return placed

    def _refuse(
        self, unit: Unit, statement: Statement, never: NeverFits | None, nominated: Sequence[Pod]
    ) -> UnitRefused:
        """Place what fits once more, to tell who failed first and why; then leave no trace."""
        start = statement.checkpoint()
        fitting = 0
        failed: Refused | None = None
        for member in unit.members:
            outcome = self._cycle_for(unit, member).decide(member.pod, statement, nominated=nominated)
            if isinstance(outcome, Refused):
                failed = failed or outcome
                if never is None or never.pod == member.pod.key:
                    failed = outcome
                    break
            else:
                fitting += 1
        statement.rollback(start)
        if failed is None:
            first = unit.members[0].pod
            diagnosis = self._cycle.diagnose(first)
            if never is not None:
                note = never.sentence()
            else:
                # Everything fits somewhere, but not within one domain.
                key = unit.domains.key if unit.domains else ""
                note = f"no single domain of {key} has room for {unit.needed} of {len(unit.members)} pods"
            return UnitRefused(unit.key, first.key, msgspec.structs.replace(diagnosis, note=note), fitting, never)
        return UnitRefused(unit.key, failed.pod, failed.diagnosis, fitting, never)

    def _domains(self, unit: Unit) -> list[tuple[Bools | None, str]]:
        """Where to try, in order: the one with most of the unit's data cached; else the smallest that may have room
        first, so that large ones stay whole.
        """
        if unit.domains is None:
            return [(None, "")]
        table = self._table
        column = table.label(unit.domains.key)
        ids_N = column.ids_N[: table.size]
        room_N = self._room(unit)
        cached_N = self._cached(unit)
        sized: list[tuple[float, int, str, Bools]] = []
        for value, number in column.numbers.items():
            within_N = ids_N == number
            room = int(np.minimum(room_N[within_N], len(unit.members)).sum())
            if room >= unit.needed:
                sized.append((-float(cached_N[within_N].sum()), room, value, within_N))
        sized.sort(key=lambda each: each[:3])
        tries: list[tuple[Bools | None, str]] = [(within_N, value) for _, _, value, within_N in sized]
        return tries if unit.domains.required else [*tries, (None, "")]

    def _cached(self, unit: Unit) -> Floats:
        """How much of the members' data each row has, all members together."""
        table = self._table
        cached_N = np.zeros(table.size)
        cache = table.catalog.cache
        for member in unit.members if not cache.is_empty else ():
            request = table.request(member.pod)
            annotations = member.pod.metadata.annotations or {}
            readings = readings_of(cache, request.namespace, request.claims_for_pod, annotations)
            for name, share in local_values(cache, readings).items():
                if name in table.row_of:
                    cached_N[table.row_of[name]] += share
        return cached_N

    def _room(self, unit: Unit) -> Ints:
        """An upper bound per row of how many members it could take now, whichever they are."""
        table = self._table
        most_N = np.zeros(table.size, dtype=np.int64)
        free_RN = table.alloc_RN - table.used_RN
        alike: dict[int, list[Pod]] = {}
        for member in unit.members:
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
            cycle = self._policies[key] = Cycle(self._table, profile, self._cycle.pick)
        return cycle


def orders(unit: Unit, request_of: Callable[[Pod], Request]) -> list[tuple[Member, ...]]:
    """The orders worth trying: as given with essential members first; then largest first, essential ones last."""
    essential = tuple(member for member in unit.members if member.essential)
    others = tuple(member for member in unit.members if not member.essential)

    # By names in a fixed order: rows of the table are numbered by its history, which must not decide anything.
    scalars = sorted({name for member in others for name in request_of(member.pod).takes} - {CPU, MEMORY})

    def size(member: Member) -> tuple[int, ...]:
        takes = request_of(member.pod).takes
        return tuple(-takes.get(name, 0) for name in (CPU, MEMORY, *scalars))

    given = (*essential, *others)
    by_size = (*sorted(others, key=size), *essential)
    return [given] if by_size == given else [given, by_size]
