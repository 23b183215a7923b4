"""How much of a pod's data a node has: one function for the webhook, for scores here and for benchmarks.

`value` is the share of one dataset that is cached on a node, lowered by a slow medium and by an old report, never below
what Fluid's label of the node stands for. `local_value` is L: the values of a pod's datasets, weighed by their bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from fairlead.model.quantity import nanos, whole

TIERS: Final = {"MEM": 1.0, "SSD": 0.8, "HDD": 0.5}
"""How much a cached byte counts by the medium it is on."""
BYTES_READ: Final = "data.fairlead.io/wanted-bytes"
"""Annotation of a pod: how many bytes it reads of a claim, `claim=10Gi,other=500Mi`."""
LABEL_FLOOR: Final = 0.1
"""What a node is worth of which only Fluid's label is known: a worker is there, warm or not."""


class NodeCache(msgspec.Struct, frozen=True):
    """What a node has of a dataset."""

    tier_bytes: float = 0.0
    """Bytes cached, each counted by its medium."""
    cached_bytes: float = 0.0
    freshness: float = 1.0
    """1 for a report of this minute, 0 for one so old that it says nothing."""
    is_labelled: bool = False
    is_draining: bool = False


class DatasetCache(msgspec.Struct, frozen=True):
    total_bytes: float = 0.0
    """0: not known."""
    capacity_bytes: float = 0.0
    nodes: Mapping[str, NodeCache] = {}
    fuse_needs: Mapping[str, int] = {}
    """What its fuse requests, in the scheduler's units; empty where that is not known."""
    fuse_nodes: frozenset[str] = frozenset()
    """Nodes where its fuse runs already."""


class CacheMap(msgspec.Struct, frozen=True):
    """What is cached where, by dataset (namespace/name); and which claims lead to which dataset."""

    datasets: Mapping[str, DatasetCache] = {}
    claims: Mapping[str, str] = {}
    local_bytes_per_s: float = 2e9
    remote_bytes_per_s: float = 2e8
    """How fast a pod reads what its node has, and what it has not."""

    @property
    def is_empty(self) -> bool:
        return not self.datasets


NO_CACHE: Final = CacheMap()


class Reading(msgspec.Struct, frozen=True):
    """A dataset that a pod reads, and how many bytes of it, where the pod says so."""

    dataset: str
    read_bytes: float = 0.0


def value(cache: DatasetCache, node: NodeCache, read_bytes: float = 0.0) -> float:
    """0 to 1: the share of a dataset that a reader finds on the node."""
    size = cache.total_bytes or cache.capacity_bytes
    if read_bytes > 0:
        size = min(size, read_bytes) if size > 0 else read_bytes
    share = min(1.0, node.tier_bytes / size) if size > 0 else 0.0
    floor = LABEL_FLOOR if node.is_labelled else 0.0
    return max(floor, node.freshness * share + (1.0 - node.freshness) * min(floor, share))


def local_values(cache: CacheMap, readings: Sequence[Reading]) -> dict[str, float]:
    """L of every node that has something; the others' is 0."""
    known = [each for each in readings if each.dataset in cache.datasets]
    shares = _shares(cache, known)
    found: dict[str, float] = {}
    for reading, share in zip(known, shares, strict=True):
        of_dataset = cache.datasets[reading.dataset]
        for name, node in of_dataset.nodes.items():
            found[name] = found.get(name, 0.0) + share * value(of_dataset, node, reading.read_bytes)
    return found


def _shares(cache: CacheMap, readings: Sequence[Reading]) -> list[float]:
    """Each dataset's part of the bytes that a pod reads; one of unknown size counts as the mean of the others."""
    sizes = [_size(cache.datasets[each.dataset], each.read_bytes) for each in readings]
    known = [size for size in sizes if size > 0]
    mean = sum(known) / len(known) if known else 1.0
    filled = [size or mean for size in sizes]
    return [size / sum(filled) for size in filled]


def _size(cache: DatasetCache, read_bytes: float) -> float:
    size = cache.total_bytes
    return min(size, read_bytes) if size > 0 and read_bytes > 0 else size or read_bytes


def readings_of(
    cache: CacheMap, namespace: str, claims: Sequence[str], annotations: Mapping[str, str]
) -> list[Reading]:
    """The datasets behind a pod's claims, with the bytes that its annotation says it reads."""
    bytes_read = parse_bytes_read(annotations.get(BYTES_READ, ""))
    by_dataset: dict[str, float] = {}
    for claim in claims:
        dataset = cache.claims.get(f"{namespace}/{claim}", "")
        if dataset in cache.datasets:
            by_dataset.setdefault(dataset, bytes_read.get(claim, 0.0))
    return [Reading(dataset, size) for dataset, size in by_dataset.items()]


def parse_bytes_read(text: str) -> dict[str, float]:
    """`claim=10Gi,other=500Mi`; what cannot be read is left out."""
    found = {}
    for part in text.split(",") if text else ():
        claim, _, size = part.partition("=")
        try:
            read = float(whole(nanos(size.strip())))
        except ValueError:
            continue
        if read > 0:
            found[claim.strip()] = read
    return found


def shares(cache: CacheMap, readings: Sequence[Reading]) -> dict[str, float]:
    """By dataset, its part of the bytes that a pod reads."""
    known = [each for each in readings if each.dataset in cache.datasets]
    return dict(zip((each.dataset for each in known), _shares(cache, known), strict=True))
