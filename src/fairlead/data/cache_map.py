"""What is cached where: reports of nodes, with Fluid's labels as floor; and how old a report may be.

A report counts in full for its time to live, then less and less, and at twice that age not at all.
"""

import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from fairlead.data.facts import dataset_of, is_managed, referring, root_of
from fairlead.data.names import DatasetName, key_or_nothing
from fairlead.data.objects import Claim, Dataset
from fairlead.data.spec import CacheNode, CacheReport, DatasetReport
from fairlead.engine.locality import TIERS, CacheMap, DatasetCache, NodeCache
from fairlead.model.times import parse_time_or_none

_SIZE: Final = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([KMGTPE]?)i?B?\s*", re.IGNORECASE)
_POWERS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
MEDIUM_FACTORS: Final = {**TIERS, "PageCache": TIERS["MEM"]}


def parse_size(text: str) -> float:
    """Bytes of a size as Fluid prints it, binary whatever the unit says; 0 for one that is not known."""
    found = _SIZE.fullmatch(text)
    return float(found[1]) * 1024 ** _POWERS[found[2].upper()] if found else 0.0


def freshness(seen_at: str, now: datetime, ttl_s: float) -> float:
    seen = parse_time_or_none(seen_at)
    if seen is None:
        return 0.0
    age_s = (now - seen).total_seconds()
    # A clock that is ahead of ours by more than that is not believed.
    if age_s < -ttl_s:
        return 0.0
    return min(1.0, max(0.0, 2.0 - age_s / ttl_s))


def build(
    datasets: Iterable[Dataset],
    claims: Iterable[Claim],
    nodes: Iterable[CacheNode],
    reports: Iterable[CacheReport],
    now: datetime,
    ttl_s: float,
    fuses: Mapping[str, Mapping[str, int]] | None = None,
    speeds: tuple[float, float] = (2e9, 2e8),
) -> CacheMap:
    """`fuses`: by dataset, what its fuse requests; `speeds`: bytes per second that are read locally and remotely."""
    names = {each.metadata.key: each for each in datasets}
    holdings: dict[str, dict[str, NodeCache]] = {key: {} for key in names}
    capacity = dict.fromkeys(names, 0.0)
    for report in reports:
        for each in report.spec.datasets:
            key = f"{each.namespace}/{each.name}"
            if key in names:
                holdings[key][report.metadata.name] = _node_cache(each, now, ttl_s)
                capacity[key] = max(capacity[key], float(each.capacity_bytes))
    known = list(nodes)
    alive = {node.metadata.name for node in known}
    labelled = _labelled(known, {key: name_of(dataset) for key, dataset in names.items()})
    for key in names:
        found = {node: cache for node, cache in holdings[key].items() if node in alive}
        for node in labelled.workers[key] | labelled.draining[key]:
            cache = found.get(node, NodeCache(freshness=0.0))
            found[node] = NodeCache(
                cache.tier_bytes,
                cache.cached_bytes,
                cache.freshness,
                is_labelled=node in labelled.workers[key],
                is_draining=node in labelled.draining[key],
            )
        holdings[key] = found
    return CacheMap(
        datasets={
            key: DatasetCache(
                total_bytes=parse_size(dataset.status.ufs_total),
                capacity_bytes=capacity[key]
                or parse_size((dataset.status.cache_states or {}).get("cacheCapacity", "")),
                nodes=holdings[key],
                fuse_needs=(fuses or {}).get(key, {}),
                fuse_nodes=frozenset(labelled.fuses[key]) if (fuses or {}).get(key) else frozenset(),
            )
            for key, dataset in names.items()
        },
        claims=dict(_claims(claims, names)),
        local_bytes_per_s=speeds[0],
        remote_bytes_per_s=speeds[1],
    )


def name_of(dataset: Dataset) -> DatasetName:
    return DatasetName(dataset.metadata.namespace, dataset.metadata.name, dataset.metadata.uid)


def _node_cache(report: DatasetReport, now: datetime, ttl_s: float) -> NodeCache:
    return NodeCache(
        tier_bytes=math.fsum(MEDIUM_FACTORS[each.medium] * each.bytes for each in report.tiers),
        cached_bytes=float(sum(each.bytes for each in report.tiers)),
        freshness=freshness(report.seen_at, now, ttl_s),
    )


class Labelled(NamedTuple):
    """By dataset, the nodes whose labels speak of it."""

    workers: dict[str, set[str]]
    draining: dict[str, set[str]]
    fuses: dict[str, set[str]]


def _labelled(nodes: Iterable[CacheNode], names: Mapping[str, DatasetName]) -> Labelled:
    """One look at every label of every node: datasets may be many, and most nodes have labels of a few."""
    found = Labelled({key: set() for key in names}, {key: set() for key in names}, {key: set() for key in names})
    by_label: dict[str, list[tuple[dict[str, set[str]], str]]] = {}
    for key, name in names.items():
        keys = (name.common_key, name.scale_in_key, name.fuse_key)
        for group, make_key in zip(found, keys, strict=True):
            # Two datasets may share a key: both are meant.
            by_label.setdefault(key_or_nothing(make_key), []).append((group, key))
    by_label.pop("", None)
    for node in nodes:
        for label, value in node.metadata.labels.items():
            if value == "true":
                for group, key in by_label.get(label, ()):
                    group[key].add(node.metadata.name)
    return found


def _claims(claims: Iterable[Claim], names: Mapping[str, Dataset]) -> Iterable[tuple[str, str]]:
    for claim in claims:
        for dataset in dataset_keys(claim):
            root = root_of(dataset, names.get)
            if root in names:
                yield claim.metadata.key, root


def dataset_keys(claim: Claim) -> Iterable[str]:
    """The dataset that a claim leads to in one step, if it is one of a dataset; `root_of` leads to its data."""
    if target := referring(claim):
        return (target,)
    metadata = claim.metadata
    return (f"{metadata.namespace}/{dataset_of(metadata.name, claim)}",) if is_managed(claim) else ()
