"""What a node holds of datasets, for its CacheReport: by a runtime's metrics, by cache folders, by the page cache.

Bounded: a folder with too many files is measured as far as the bound goes.
"""

import ctypes
import ctypes.util
import mmap
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fairlead.data.spec import MOST_BYTES

MOST_FILES: Final = 200_000
MOST_METRICS_BYTES: Final = 8 << 20
_SAMPLE: Final = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{([^}]*)\})?\s+(\S+)")
# An Alluxio worker adds its host to the names of its metrics: at the end since 2.1, before that in the middle.
_CAPACITY: Final = re.compile(r"Worker_?(?:\w+_)?Capacity(Used|Total)(?:Tier(MEM|SSD|HDD))?(?:_\w+)?", re.IGNORECASE)
_BLOCKS: Final = re.compile(r"Worker_?(?:\w+_)?BlocksCached(?:_\w+)?", re.IGNORECASE)
_LIBC: Final = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)


@dataclass(frozen=True, slots=True)
class Holding:
    """Bytes by medium, and how many there could be."""

    tiers: Mapping[str, int]
    capacity_bytes: int = 0

    def __add__(self, other: "Holding") -> "Holding":
        media = {*self.tiers, *other.tiers}
        tiers = {each: self.tiers.get(each, 0) + other.tiers.get(each, 0) for each in sorted(media)}
        return Holding(tiers, self.capacity_bytes + other.capacity_bytes)


def parse_metrics(text: str, medium: str = "SSD") -> Holding:
    """What a worker says it holds, by its metrics in Prometheus' form: an Alluxio worker's, or a JuiceFS mount's.

    JuiceFS does not say what it caches on: `medium` does. Alluxio counts the space that a worker reserves (1 GiB for
    each folder) as used: one without any block holds nothing all the same.
    """
    used: dict[str, float] = {}
    total = plain = plain_total = 0.0
    is_empty = False
    for name, value in _samples(text[:MOST_METRICS_BYTES]):
        capacity = _CAPACITY.fullmatch(name)
        if name == "juicefs_blockcache_bytes":
            used[medium] = used.get(medium, 0.0) + value
        elif capacity is None:
            is_empty = is_empty or (value == 0 and _BLOCKS.fullmatch(name) is not None)
        elif tier := (capacity[2] or "").upper():
            if capacity[1].lower() == "used":
                used[tier] = used.get(tier, 0.0) + value
            else:
                total += value
        elif capacity[1].lower() == "used":
            plain += value
        else:
            plain_total += value
    if not used and plain:
        used = {"MEM": plain}
    if is_empty:
        used = {}
    return Holding({each: _bounded(size) for each, size in used.items()}, _bounded(total or plain_total))


def _samples(text: str) -> Iterator[tuple[str, float]]:
    for line in text.splitlines():
        found = _SAMPLE.match(line)
        if found is not None:
            try:
                yield found[1], float(found[3])
            except ValueError:
                continue


def _bounded(size: float) -> int:
    return int(min(max(size, 0.0), MOST_BYTES)) if size == size else 0


def measure_folder(folder: Path, medium: str, *, most_files: int = MOST_FILES) -> Holding:
    """Bytes of the files below a folder, and how many of them are in the page cache by the kernel's word."""
    size = resident = 0
    for path, length in _files(folder, most_files):
        size += length
        resident += resident_bytes(path, length)
    return Holding({medium: max(0, size - resident), "PageCache": resident})


def _files(folder: Path, most: int) -> Iterator[tuple[Path, int]]:
    count = 0
    for root, _, names in os.walk(folder, followlinks=False):
        for name in names:
            path = Path(root) / name
            try:
                found = path.lstat()
            except OSError:
                continue  # gone meanwhile
            if stat.S_ISREG(found.st_mode) and found.st_size:
                yield path, found.st_size
                count += 1
                if count >= most:
                    return


def resident_bytes(path: Path, length: int) -> int:
    """How many bytes of a file are in memory (mincore); 0 where the kernel does not say."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
            pages = (len(mapped) + mmap.PAGESIZE - 1) // mmap.PAGESIZE
            states = (ctypes.c_ubyte * pages)()
            start = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
            if _LIBC.mincore(ctypes.c_void_p(start), ctypes.c_size_t(len(mapped)), states) != 0:
                return 0
            resident = sum(state & 1 for state in states)
            return min(length, resident * mmap.PAGESIZE)
    except (OSError, ValueError, BufferError):
        return 0


def report_body(node: str, seen: Mapping[str, tuple[Holding, str]]) -> dict[str, Any]:
    """The CacheReport of a node: by namespace/name of a dataset, what is held of it and when that was seen."""
    return {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "CacheReport",
        "metadata": {"name": node},
        "spec": {
            "datasets": [
                {
                    "namespace": key.partition("/")[0],
                    "name": key.partition("/")[2],
                    "tiers": [{"medium": medium, "bytes": size} for medium, size in sorted(held.tiers.items()) if size],
                    "capacityBytes": held.capacity_bytes,
                    "seenAt": seen_at,
                }
                for key, (held, seen_at) in sorted(seen.items(), key=lambda each: each[0])
            ]
        },
    }
