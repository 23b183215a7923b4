"""Proof that a unit can never fit: what its members need against all registered nodes, empty.

Counted are all nodes that a member's own selector and affinity allow, cordoned, tainted and unready ones too, since
those may change; where no node is registered nothing is proven. Three counts are made, each an upper bound of what
fits: pods of one shape; pods of two shapes beside each other, exactly, node by node; and over all shapes each resource
by itself. A unit that passes them all may still not fit.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Final

import numpy as np

from fairlead.engine import axes
from fairlead.engine.axes import Bools, Ints
from fairlead.engine.cycle import Cycle
from fairlead.engine.request import Request
from fairlead.engine.unit import LargestNode, Member, NeverFits, Unit

# Rules about what a pod asks of a node by name and label. All others may change their mind while a unit waits.
LASTING: Final = frozenset({"NodeName", "NodeAffinity"})
# Pairs are compared up to so many shapes, and so many members of the rarer one.
MOST_SHAPES: Final = 8
MOST_OF_A_SHAPE: Final = 1024

_NEVER: Final = -(1 << 40)


class Shape:
    """Members that need the same of the same nodes: how many there are, and how many the unit cannot do without."""

    def __init__(self, cycle: Cycle, members: Sequence[Member]) -> None:
        table = cycle.table
        self.pod = members[0].pod.key
        self.count = len(members)
        self.essential = sum(member.essential for member in members)
        self.request = table.request(members[0].pod)
        self.allowed_N: Bools = table.valid_N[: table.size].copy()
        for rule in cycle.profile.predicates:
            if rule.name in LASTING and rule.applies(table, self.request):
                self.allowed_N &= rule.mask(table.view(), self.request)
        # A rejection says nothing about room: a claim can appear, a class can be made.
        self.is_open = cycle.evaluation(members[0].pod).rejection is not None
        self.room_N = np.where(self.allowed_N, capacity(self.request, table.alloc_RN, cycle), 0)

    @property
    def demand(self) -> tuple[object, ...]:
        return tuple(sorted(self.request.needs.items())), self.request.ports, self.allowed_N.tobytes()


def joined(shapes: Iterable[Shape]) -> list[Shape]:
    """One shape for all requests of the same demand: those of several worker sets may differ in labels only."""
    result: dict[tuple[object, ...], Shape] = {}
    for shape in shapes:
        first = result.setdefault(shape.demand, shape)
        if first is not shape:
            first.count += shape.count
            first.essential += shape.essential
    return list(result.values())


def never_fits(cycle: Cycle, unit: Unit) -> NeverFits | None:
    if unit.needed > len(unit.members):
        return NeverFits("", unit.needed, len(unit.members))
    if not cycle.table.node_count:
        return None
    surplus = len(unit.members) - unit.needed
    kinds: dict[int, list[Member]] = {}
    for member in unit.members:
        kinds.setdefault(cycle.table.request(member.pod).number, []).append(member)
    closed = [shape for shape in (Shape(cycle, members) for members in kinds.values()) if not shape.is_open]
    shapes = joined(closed)
    for shape in shapes:
        # Of the members, `surplus` may stay out, and those may all be of this shape.
        needed = max(shape.count - surplus, shape.essential)
        room = int(shape.room_N.sum())
        if room < needed:
            return NeverFits(shape.pod, needed, room, largest=largest_node(cycle, shape) if not room else None)
    if len(shapes) <= MOST_SHAPES:
        for pair in combinations(shapes, 2):
            # The rarer one is gone through count by count.
            one, other = sorted(pair, key=lambda shape: shape.count)
            needed = max(one.count + other.count - surplus, one.essential + other.essential)
            room = room_for_two(cycle, one, other, needed)
            if room < needed:
                return NeverFits(pair[0].pod, needed, room, beside=pair[1].pod)
    return short_of_a_resource(cycle, unit, shapes) if len(closed) == len(kinds) > 1 else None


def largest_node(cycle: Cycle, shape: Shape) -> LargestNode | None:
    """What keeps a single pod of this shape out: the first resource of which no allowed node has enough."""
    table = cycle.table
    rows = np.flatnonzero(shape.allowed_N)
    if not len(rows):
        return LargestNode()
    for name, needed in sorted(shape.request.needs.items()):
        at = table.axis.known(name)
        has_K = table.alloc_RN[at, rows] if at is not None else np.zeros(len(rows), dtype=np.int64)
        most = int(has_K.max())
        if most < needed:
            row = min(rows[has_K == most].tolist(), key=lambda each: int(table.rank[each]))
            return LargestNode(table.name(row), name, needed, most)
    return None


def room_for_two(cycle: Cycle, one: Shape, other: Shape, needed: int) -> int:
    """How many pods of two shapes all nodes take together at most, the essential ones among them; once it is at least
    what is needed, that. 0 where the essential ones do not fit beside each other."""
    if one.count > MOST_OF_A_SHAPE:
        return needed
    most = min(one.count, int(one.room_N.max(initial=0)))
    beside_JN = np.stack([beside(cycle, one, other, count) for count in range(most + 1)])
    kinds_JK, times_K = np.unique(beside_JN, axis=1, return_counts=True)
    # For each number of the one, how many of the other the nodes looked at so far take besides.
    best_J = np.array([0])
    for k, times in enumerate(times_K.tolist()):
        best_J = _added(best_J, _repeated(kinds_JK[:, k], times, one.count, other.count), one.count, other.count)
        if (room := _together(best_J, one, other)) >= needed:
            return room
    return _together(best_J, one, other)


def beside(cycle: Cycle, one: Shape, other: Shape, count: int) -> Ints:
    """On each row with so many pods of the one, how many of the other fit; negative where not even those do."""
    table = cycle.table
    left_RN = table.alloc_RN.copy()
    for name, amount in one.request.needs.items():
        row = table.axis.known(name)
        if row is not None:
            left_RN[row] -= count * amount
    left_RN[axes.PODS] -= count
    fits_N = np.minimum(np.where(other.allowed_N, capacity(other.request, left_RN, cycle), 0), other.count)
    return np.where(one.room_N >= count, fits_N, _NEVER)


def _together(best_J: Ints, one: Shape, other: Shape) -> int:
    count_J = np.arange(len(best_J))
    fits_J = (best_J >= other.essential) & (count_J >= one.essential)
    return int((count_J + best_J)[fits_J].max(initial=0))


def _added(first_J: Ints, second_J: Ints, most: int, most_other: int) -> Ints:
    """Two groups of nodes as one: however the ones are shared out between them, the most of the other."""
    size = min(len(first_J) + len(second_J) - 1, most + 1)
    sum_J = np.full(size, _NEVER, dtype=np.int64)
    for count, value in enumerate(second_J[:size].tolist()):
        part_J = first_J[: size - count] + value
        np.maximum(sum_J[count : count + len(part_J)], part_J, out=sum_J[count : count + len(part_J)])
    return np.clip(sum_J, _NEVER, most_other)


def _repeated(frontier_J: Ints, times: int, most: int, most_other: int) -> Ints:
    """So many nodes of one kind, by doubling."""
    result_J, power_J = np.array([0]), frontier_J
    while times:
        if times & 1:
            result_J = _added(result_J, power_J, most, most_other)
        times >>= 1
        if times:
            power_J = _added(power_J, power_J, most, most_other)
    return result_J


def short_of_a_resource(cycle: Cycle, unit: Unit, shapes: Sequence[Shape]) -> NeverFits | None:
    """Whether even the members that ask for least of a resource ask for more than the nodes have that suit any."""
    table = cycle.table
    for name in sorted({name for shape in shapes for name, amount in shape.request.needs.items() if amount > 0}):
        row = table.axis.known(name)
        if row is None:
            continue
        asks = [(shape.request.needs.get(name, 0), shape.count, shape.essential) for shape in shapes]
        requested = sum(amount * essential for amount, _, essential in asks)
        missing = unit.needed - sum(essential for _, _, essential in asks)
        for amount, count, essential in sorted(asks):
            taken = min(count - essential, max(missing, 0))
            requested, missing = requested + amount * taken, missing - taken
        suits_N = np.logical_or.reduce([shape.room_N > 0 for shape in shapes if shape.request.needs.get(name, 0) > 0])
        has = sum(table.alloc_RN[row, : table.size][suits_N].tolist())  # beyond 64 bits, if need be
        if requested > has:
            return NeverFits(shapes[0].pod, requested, has, resource=name)
    return None


def capacity(request: Request, free_RN: Ints, cycle: Cycle) -> Ints:
    """How many pods of a request each row's free amounts hold, ports and everything else aside."""
    table = cycle.table
    room_N = np.maximum(free_RN[axes.PODS, : table.size], 0)
    for name, amount in request.needs.items():
        if amount > 0:
            row = table.axis.known(name)
            if row is None:
                return np.zeros(table.size, dtype=np.int64)
            room_N = np.minimum(room_N, np.maximum(free_RN[row, : table.size], 0) // amount)
    if request.ports:
        # The second pod would want the first one's port.
        room_N = np.minimum(room_N, 1)
    return room_N
