"""Waiting for room near one's data: what a pod asks for, and when waiting is worth it.

`data.fairlead.io/locality-wait: node=5s,zone=10s` on a pod: for five seconds it goes only to warm nodes, until ten only
to their zones, then anywhere. One policy, whether a scheduling gate holds the pod or placement's own loop does.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from fairlead.engine.locality import CacheMap, Reading, local_values

LOCALITY_WAIT: Final = "data.fairlead.io/locality-wait"
LONGEST_WAIT_S: Final = 60.0
WARM: Final = 0.5
"""The part of the best node's value from which a node counts as warm."""
_DURATION: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(ms|s|m|h)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class BadWait(Exception):
    """An annotation about waiting cannot be read."""


class Wait(msgspec.Struct, frozen=True):
    node_s: float = 0.0
    zone_s: float = 0.0

    @property
    def longest_s(self) -> float:
        return min(LONGEST_WAIT_S, max(self.node_s, self.zone_s))

    def stage(self, waited_s: float) -> str:
        """Where the pod may go after so long: `node`, `zone`, or `` for anywhere."""
        if waited_s < min(self.node_s, LONGEST_WAIT_S):
            return "node"
        return "zone" if waited_s < min(self.zone_s, LONGEST_WAIT_S) else ""


def parse_wait(text: str) -> Wait:
    found: dict[str, float] = {}
    for part in text.split(","):
        place, _, length = part.strip().partition("=")
        if place not in ("node", "zone"):
            raise BadWait(f"annotation {LOCALITY_WAIT}: must be such as node=5s,zone=10s, not {text!r}")
        found[place] = seconds(length, LOCALITY_WAIT)
    return Wait(found.get("node", 0.0), found.get("zone", 0.0))


def seconds(text: str, annotation: str) -> float:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise BadWait(f"annotation {annotation}: must be a duration such as 5s, not {text!r}")
    return float(found[1]) * _UNITS[found[2]]


def staying_values(cache: CacheMap, readings: Sequence[Reading]) -> dict[str, float]:
    """L of every node but those that are being drained, where no pod with the dataset may go."""
    known = [cache.datasets[each.dataset].nodes for each in readings if each.dataset in cache.datasets]
    leaving = {name for nodes in known for name, node in nodes.items() if node.is_draining}
    return {name: share for name, share in local_values(cache, readings).items() if name not in leaving}


def gain_s(cache: CacheMap, readings: Sequence[Reading]) -> float:
    """Seconds of reading that the warmest node saves."""
    best = max(staying_values(cache, readings).values(), default=0.0)
    total = sum(each.read_bytes or cache.datasets[each.dataset].total_bytes for each in readings)
    return best * total * (1 / cache.remote_bytes_per_s - 1 / cache.local_bytes_per_s)


def is_worth_it(cache: CacheMap, readings: Sequence[Reading], left_s: float) -> bool:
    """Whether reading near saves more than the wait that is left would cost."""
    return gain_s(cache, readings) > left_s


def warm_nodes(values: Mapping[str, float]) -> list[str]:
    """The nodes that hold enough beside the best; `values` is L by node.

    A node with L of a half is always among them. A fixed half would leave none for data that is spread over many nodes.
    """
    enough = WARM * max(values.values(), default=0.0)
    return sorted(node for node, value in values.items() if value >= enough > 0)
