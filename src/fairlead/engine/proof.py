"""Proof that a unit can never fit: what its members need against all registered nodes, empty.

Counted are all nodes that a member's own selector and affinity allow, cordoned, tainted and unready ones too, since
those may change; where no node is registered nothing is proven. Three counts are made, each an upper bound of what
fits: pods of one shape; pods of two shapes beside each other, exactly, node by node; and over all shapes each resource
by itself. A unit that passes them all may still not fit. One that must stay within a domain is counted in each domain.
"""

import copy
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Final

import msgspec
import numpy as np

from fairlead.engine import axes
from fairlead.engine.axes import ABSENT, Bools, Ints
from fairlead.engine.cycle import Cycle
from fairlead.engine.request import Request
from fairlead.engine.unit import LargestNode, Member, NeverFits, Unit

# Rules about what a pod asks of a node by name and label. All others may change their mind while a unit waits.
LASTING: Final = frozenset({"NodeName", "NodeAffinity"})
# Pairs are compared up to so many shapes, and so many members of the rarer one.
MOST_SHAPES: Final = 8
MOST_OF_A_SHAPE: Final = 1024
# Of domains with room for each shape by itself, so many different ones are looked at; beyond that nothing is proven.
MOST_DOMAINS: Final = 32

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
        self.alloc_RN: Ints = table.alloc_RN[:, : table.size]
        self.room_N = np.where(self.allowed_N, capacity(self.request, self.alloc_RN, cycle), 0)

    def needed(self, surplus: int) -> int:
        """Of the unit's members, `surplus` may stay out, and those may all be of this shape."""
        return max(self.count - surplus, self.essential)

    def within(self, rows: Ints) -> "Shape":
        """The same members where there are these rows only."""
        part = copy.copy(self)
        part.alloc_RN, part.allowed_N, part.room_N = self.alloc_RN[:, rows], self.allowed_N[rows], self.room_N[rows]
        return part

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
    kinds: dict[int, list[Member]] = {}
    for member in unit.members:
        kinds.setdefault(cycle.table.request(member.pod).number, []).append(member)
    closed = [shape for shape in (Shape(cycle, members) for members in kinds.values()) if not shape.is_open]
    shapes = joined(closed)
    is_whole = len(closed) == len(kinds) > 1
    surplus = len(unit.members) - unit.needed
    for shape in shapes:
        room = int(shape.room_N.sum())
        if room < shape.needed(surplus):
            largest = largest_node(cycle, shape) if not room else None
            return NeverFits(shape.pod, shape.needed(surplus), room, largest=largest)
    never = not_together(cycle, unit, shapes, is_whole)
    if never is None and unit.domains is not None and unit.domains.required:
        return in_no_domain(cycle, unit, shapes, is_whole, unit.domains.key)
    return never


def not_together(cycle: Cycle, unit: Unit, shapes: Sequence[Shape], is_whole: bool) -> NeverFits | None:
    """Whether shapes that each have room do not have it beside each other; `is_whole`: they are all the members."""
    surplus = len(unit.members) - unit.needed
    if len(shapes) <= MOST_SHAPES:
        for pair in combinations(shapes, 2):
            # The rarer one is gone through count by count.
            one, other = sorted(pair, key=lambda shape: shape.count)
            needed = max(one.count + other.count - surplus, one.essential + other.essential)
            room = room_for_two(cycle, one, other, needed)
            if room < needed:
                return NeverFits(pair[0].pod, needed, room, beside=pair[1].pod)
    return short_of_a_resource(cycle, unit, shapes) if is_whole else None


def in_no_domain(cycle: Cycle, unit: Unit, shapes: Sequence[Shape], is_whole: bool, key: str) -> NeverFits | None:
    """Whether each single domain of the label, empty, has too little: then by how much the one that comes closest."""
    table = cycle.table
    column = table.label(key)
    ids_N = np.where(table.valid_N[: table.size], column.ids_N[: table.size], ABSENT)
    labelled = np.flatnonzero(ids_N != ABSENT)
    if not len(labelled):
        return NeverFits("", unit.needed, 0, key=key)
    if not shapes:
        return None
    rooms_SD = [np.bincount(ids_N[labelled], shape.room_N[labelled], column.size) for shape in shapes]
    total_D = np.sum(rooms_SD, axis=0)
    found: list[NeverFits] = []
    roomy: list[tuple[str, int]] = []
    # By names where they have the same room: numbers are by the table's history, which must not decide anything.
    for value, number in sorted(column.numbers.items(), key=lambda each: (-total_D[each[1]], each[0])):
        never = _too_small(unit, shapes, [int(room_D[number]) for room_D in rooms_SD])
        if never is None:
            roomy.append((value, number))
        else:
            found.append(msgspec.structs.replace(never, key=key, domain=value))
    for count, (value, rows) in enumerate(_different(shapes, ids_N, roomy)):
        parts = [shape.within(rows) for shape in shapes]
        never = not_together(cycle, unit, parts, is_whole) if count < MOST_DOMAINS else None
        if never is None:
            return None
        found.append(msgspec.structs.replace(never, key=key, domain=value))
    return max(found, key=lambda each: each.room / each.needed)


def _too_small(unit: Unit, shapes: Sequence[Shape], rooms: Sequence[int]) -> NeverFits | None:
    surplus = len(unit.members) - unit.needed
    for shape, room in zip(shapes, rooms, strict=True):
        if room < shape.needed(surplus):
            return NeverFits(shape.pod, shape.needed(surplus), room)
    return None


def _different(shapes: Sequence[Shape], ids_N: Ints, domains: Sequence[tuple[str, int]]) -> Iterator[tuple[str, Ints]]:
    """These domains with their rows, without those that have the same nodes, as far as counts go, as one before."""
    if domains:
        yield domains[0][0], np.flatnonzero(ids_N == domains[0][1])
    if len(domains) < 2:
        return
    facts_RN = np.vstack([shapes[0].alloc_RN, *(shape.allowed_N for shape in shapes)])
    kinds_N = np.unique(facts_RN, axis=1, return_inverse=True)[1].ravel()
    order_N = np.argsort(ids_N, kind="stable")
    starts = np.searchsorted(ids_N[order_N], [number for _, number in domains])
    ends = np.searchsorted(ids_N[order_N], [number for _, number in domains], side="right")
    seen: set[bytes] = set()
    for i, (value, _) in enumerate(domains):
        rows = order_N[starts[i] : ends[i]]
        kind = np.sort(kinds_N[rows]).tobytes()
        if kind not in seen and i:
            yield value, rows
        seen.add(kind)


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
    left_RN = one.alloc_RN.copy()
    for name, amount in one.request.needs.items():
        row = cycle.table.axis.known(name)
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
        has = sum(shapes[0].alloc_RN[row][suits_N].tolist())  # beyond 64 bits, if need be
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
                return np.zeros_like(room_N)
            room_N = np.minimum(room_N, np.maximum(free_RN[row, : table.size], 0) // amount)
    if request.ports:
        # The second pod would want the first one's port.
        room_N = np.minimum(room_N, 1)
    return room_N
