"""Allocations: the node of each pod of a job, written small: one entry per worker set and node, indexes as ranges.

A place is (set, index); the leader's is LEADER_PLACE. Reading bounds every range by the set's counts, so that a status
edited by hand cannot name more places than the job has.
"""

from collections.abc import Mapping
from typing import Final

from fairlead.jobs.spec import Allocations, JobSpec
from fairlead.model.numbers import index_ranges

Place = tuple[str, int]
"""Worker set and index."""
LEADER_PLACE: Final[Place] = ("", 0)
Places = Mapping[Place, str]
"""The node of each place."""


def decode(allocations: Allocations, spec: JobSpec) -> dict[Place, str]:
    """The node of each place that the job has; what does not belong to it is dropped."""
    places = {LEADER_PLACE: allocations.leader} if allocations.leader else {}
    for name, nodes in allocations.workers.items():
        worker_set = spec.worker_set(name)
        if worker_set is None:
            continue
        for node, text in nodes.items():
            for index in indexes(text, worker_set.counts):
                places.setdefault((name, index), node)
    return places


def encode(places: Places, *, domain: str = "", since: str = "") -> Allocations:
    by_set: dict[str, dict[str, list[int]]] = {}
    for (name, index), node in sorted(places.items()):
        if name:
            by_set.setdefault(name, {}).setdefault(node, []).append(index)
    workers = {
        name: {node: ranges(found) for node, found in sorted(nodes.items())} for name, nodes in sorted(by_set.items())
    }
    leader = places.get(LEADER_PLACE, "")
    return Allocations(leader=leader, workers=workers, domain=domain if leader else "", since=since if leader else "")


def ranges(numbers: list[int]) -> str:
    """`0-7,9` of ascending numbers."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def indexes(text: str, count: int) -> list[int]:
    """The numbers of `0-7,9` below the count; parts that are no ranges are left out."""
    return [index for first, last in index_ranges(text, count - 1) for index in range(first, last + 1)]
