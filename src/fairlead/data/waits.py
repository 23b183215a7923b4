"""Waiting for data: what pods ask for, and when a gate is removed. Pure.

A gate is never renewed and never outlives its deadline: strictness comes, if at all, when the pod is released, because
required affinity cannot be loosened afterwards.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from fairlead.data.names import DOMAIN
from fairlead.data.plugin import LocalityOptions
from fairlead.data.spec import PODS, ReaderPod
from fairlead.engine.locality import CacheMap, Reading, local_values
from fairlead.model.hashes import short_hash
from fairlead.model.intents import Intent, Patch, event
from fairlead.model.times import parse_time_or_none

LOCALITY_WAIT: Final = f"{DOMAIN}locality-wait"
LOCALITY_DEADLINE: Final = f"{DOMAIN}locality-deadline"
LOCALITY_GATE: Final = f"{DOMAIN}data-locality"
LOCALITY: Final = f"{DOMAIN}locality"
"""Annotation of a released pod: `near` or `missed`."""
PREFETCH: Final = f"{DOMAIN}prefetch"
PREFETCH_DEADLINE: Final = f"{DOMAIN}prefetch-deadline"
PREFETCH_GATE: Final = f"{DOMAIN}prefetch"
LONGEST_WAIT_S: Final = 60.0
LONGEST_PREFETCH_S: Final = 3600.0
WARM: Final = 0.5
"""The part of the best node's value from which a node counts as warm."""
LOOK_S: Final = 1.0
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


class Prefetch(msgspec.Struct, frozen=True):
    paths: tuple[str, ...]
    until: float = 0.8
    timeout_s: float = 600.0


def parse_wait(text: str) -> Wait:
    found: dict[str, float] = {}
    for part in text.split(","):
        place, _, length = part.strip().partition("=")
        if place not in ("node", "zone"):
            raise BadWait(f"annotation {LOCALITY_WAIT}: wanted node=5s,zone=10s, got {text!r}")
        found[place] = _seconds(length, LOCALITY_WAIT)
    return Wait(found.get("node", 0.0), found.get("zone", 0.0))


def parse_prefetch(text: str) -> Prefetch:
    try:
        document = json.loads(text)
        paths = document.get("paths", ["/"])
        until = str(document.get("until", "80%"))
        share = float(until.removesuffix("%")) / 100
        if not (isinstance(paths, list) and paths and all(isinstance(each, str) for each in paths)) or len(paths) > 100:
            raise ValueError("paths: wanted a list of paths")
        if not 0 < share <= 1:
            raise ValueError("until: wanted a percentage")
        timeout_s = _seconds(str(document.get("timeout", "10m")), PREFETCH)
    except (ValueError, AttributeError, RecursionError) as problem:
        raise BadWait(
            f'annotation {PREFETCH}: wanted {{"paths": ["/a"], "until": "80%", "timeout": "10m"}}: {problem}'
        ) from None
    return Prefetch(tuple(paths), share, min(timeout_s, LONGEST_PREFETCH_S))


def _seconds(text: str, annotation: str) -> float:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise BadWait(f"annotation {annotation}: wanted a duration such as 5s, got {text!r}")
    return float(found[1]) * _UNITS[found[2]]


def gain_s(locality: LocalityOptions, readings: Sequence[Reading]) -> float:
    """Seconds of reading that the warmest node saves."""
    cache = locality.cache
    best = max(local_values(cache, readings).values(), default=0.0)
    total = sum(each.wanted_bytes or cache.datasets[each.dataset].total_bytes for each in readings)
    return best * total * (1 / locality.remote_bytes_per_s - 1 / locality.local_bytes_per_s)


# -- releasing -----------------------------------------------------------------------------------------------------


class WaitInput(msgspec.Struct, frozen=True):
    """A pod that is held, and what decides on it."""

    pod: ReaderPod
    cache: CacheMap
    readings: tuple[Reading, ...]
    fitting: frozenset[str]
    """Nodes with room for the pod."""
    loaded: Mapping[str, float]
    """By dataset, the share that is cached."""
    failed_loads: frozenset[str]
    now: datetime


class WaitStep(msgspec.Struct, frozen=True):
    intents: tuple[Intent, ...] = ()
    wake_s: float | None = None
    loads: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(dataset, paths) that are to be loaded."""


def plan(seen: WaitInput) -> WaitStep:
    if seen.pod.is_gated(LOCALITY_GATE):
        return _plan_locality(seen)
    if seen.pod.is_gated(PREFETCH_GATE):
        return _plan_prefetch(seen)
    return WaitStep()


def _plan_locality(seen: WaitInput) -> WaitStep:
    values = local_values(seen.cache, seen.readings)
    enough = WARM * max(values.values(), default=1.0)
    warm = sorted(node for node, value in values.items() if value >= enough > 0 and node in seen.fitting)
    left_s = _left_s(seen, LOCALITY_DEADLINE, LONGEST_WAIT_S)
    if warm:
        term = {
            "weight": 100,
            "preference": {
                "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": warm[:64]}]
            },
        }
        return WaitStep((_release(seen.pod, LOCALITY_GATE, "near", term),))
    if left_s <= 0:
        note = "no warm node had room in time; placed anywhere"
        told = event(PODS, seen.pod.metadata, "LocalityMissed", note, reporter="fairlead-data")
        return WaitStep((_release(seen.pod, LOCALITY_GATE, "missed"), told))
    return WaitStep(wake_s=min(left_s, LOOK_S))


def _plan_prefetch(seen: WaitInput) -> WaitStep:
    try:
        prefetch = parse_prefetch(seen.pod.metadata.annotations.get(PREFETCH, ""))
    except BadWait:
        return WaitStep((_release(seen.pod, PREFETCH_GATE),))
    left_s = _left_s(seen, PREFETCH_DEADLINE, LONGEST_PREFETCH_S)
    datasets = [each.dataset for each in seen.readings]
    if all(seen.loaded.get(each, 0.0) >= prefetch.until for each in datasets):
        return WaitStep((_release(seen.pod, PREFETCH_GATE),))
    if left_s <= 0:
        failed = sorted(seen.failed_loads & set(datasets))
        why = f"loading {', '.join(failed)} failed" if failed else "the data was not loaded in time"
        told = event(
            PODS, seen.pod.metadata, "PrefetchMissed", f"{why}; the pod starts cold", warning=True,
            reporter="fairlead-data",
        )  # fmt: skip
        return WaitStep((_release(seen.pod, PREFETCH_GATE), told))
    loads = tuple((each, prefetch.paths) for each in datasets if seen.loaded.get(each, 0.0) < prefetch.until)
    return WaitStep(wake_s=min(left_s, LOOK_S), loads=loads)


def _left_s(seen: WaitInput, annotation: str, longest_s: float) -> float:
    """Seconds until the gate must go; one without a deadline goes at once."""
    deadline = parse_time_or_none(seen.pod.metadata.annotations.get(annotation))
    return min(longest_s, (deadline - seen.now).total_seconds()) if deadline is not None else 0.0


def _release(pod: ReaderPod, gate: str, locality: str = "", term: Mapping[str, Any] | None = None) -> Patch:
    gates = [{"name": each.name} for each in pod.spec.scheduling_gates or () if each.name != gate]
    spec: dict[str, Any] = {"schedulingGates": gates or None}
    if term is not None:
        node = (pod.spec.affinity or {}).get("nodeAffinity") or {}
        preferred = node.get("preferredDuringSchedulingIgnoredDuringExecution") or []
        spec["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [*preferred, term]}}
    patch: dict[str, Any] = {"spec": spec}
    if locality:
        patch["metadata"] = {"annotations": {LOCALITY: locality}}
    version = pod.metadata.resource_version
    return Patch(
        kind=PODS, namespace=pod.metadata.namespace, name=pod.metadata.name, patch=patch, resource_version=version
    )


def load_name(dataset: str, paths: Sequence[str]) -> str:
    """One DataLoad for the same data, whoever asks for it."""
    return f"fairlead-{short_hash(dataset, sorted(paths))}"


def load_body(dataset: str, paths: Sequence[str]) -> dict[str, Any]:
    namespace, _, name = dataset.partition("/")
    return {
        "apiVersion": "data.fluid.io/v1alpha1",
        "kind": "DataLoad",
        "metadata": {"name": load_name(dataset, paths), "labels": {"app.kubernetes.io/managed-by": "fairlead"}},
        "spec": {
            "dataset": {"name": name, "namespace": namespace},
            "target": [{"path": path} for path in sorted(paths)],
        },
    }
