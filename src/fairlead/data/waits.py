"""Waiting for data: what pods ask for, and when a gate is removed. Pure.

A gate is never renewed and never outlives its deadline: strictness comes, if at all, when the pod is released, because
required affinity cannot be loosened afterwards.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from fairlead.data.names import DOMAIN
from fairlead.data.spec import PODS, DataLoad, ReaderPod, data_event
from fairlead.engine.locality import CacheMap, Reading, local_values
from fairlead.engine.locality_wait import (
    LOCALITY_WAIT,
    LONGEST_WAIT_S,
    BadWait,
    is_worth_it,
    parse_wait,
    seconds,
    staying_values,
    warm_nodes,
)
from fairlead.model.hashes import short_hash
from fairlead.model.intents import Intent, Patch
from fairlead.model.times import parse_time_or_none

LOCALITY_DEADLINE: Final = f"{DOMAIN}locality-deadline"
LOCALITY_GATE: Final = f"{DOMAIN}data-locality"
LOCALITY: Final = f"{DOMAIN}locality"
"""Annotation of a released pod: `near`, `zone` or `missed`."""
PREFETCH: Final = f"{DOMAIN}prefetch"
PREFETCH_DEADLINE: Final = f"{DOMAIN}prefetch-deadline"
PREFETCH_GATE: Final = f"{DOMAIN}prefetch"
LONGEST_PREFETCH_S: Final = 3600.0
KEPT_S: Final = 3600
"""A finished DataLoad is deleted by Fluid after that."""
MOST_LOADS: Final = 100
MOST_TARGETS: Final = 8
LOOK_S: Final = 1.0
AHEAD_S: Final = 10.0
"""How long a pod is held for facts about its claims that are not here yet."""
HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
ZONE_WEIGHT: Final = 50
MOST_VALUES: Final = 64


class Prefetch(msgspec.Struct, frozen=True):
    paths: tuple[str, ...]
    until: float = 0.8
    timeout_s: float = 600.0


def parse_prefetch(text: str) -> Prefetch:
    try:
        document = json.loads(text)
        if not isinstance(document, dict):
            raise ValueError("must be an object")
        paths = document.get("paths", ["/"])
        until = str(document.get("until", "80%"))
        share = float(until.removesuffix("%")) / 100
        if not (isinstance(paths, list) and paths and all(isinstance(each, str) for each in paths)) or len(paths) > 100:
            raise ValueError("paths: must be a list of paths")
        if not 0 < share <= 1:
            raise ValueError("until: must be a percentage")
        timeout_s = seconds(str(document.get("timeout", "10m")), PREFETCH)
    except RecursionError:
        raise BadWait(f"annotation {PREFETCH}: is nested too deeply") from None
    except ValueError as problem:
        raise BadWait(
            f'annotation {PREFETCH}: must be such as {{"paths": ["/a"], "until": "80%", "timeout": "10m"}}: {problem}'
        ) from None
    return Prefetch(tuple(paths), share, min(timeout_s, LONGEST_PREFETCH_S))


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
    zones: Mapping[str, str] = {}
    """By node."""
    targets: tuple[str, ...] = ()
    """Nodes that the data of the pod's loads was sent to."""


class Load(msgspec.Struct, frozen=True):
    """Paths of a dataset that are to be loaded, and the nodes where the pod will find them."""

    dataset: str
    paths: tuple[str, ...]
    nodes: tuple[str, ...] = ()


class WaitStep(msgspec.Struct, frozen=True):
    intents: tuple[Intent, ...] = ()
    wake_s: float | None = None
    loads: tuple[Load, ...] = ()


def plan(seen: WaitInput) -> WaitStep:
    if _is_ahead(seen):
        return WaitStep(wake_s=LOOK_S)
    if seen.pod.is_gated(LOCALITY_GATE):
        return _plan_locality(seen)
    if seen.pod.is_gated(PREFETCH_GATE):
        return _plan_prefetch(seen)
    return WaitStep()


def _is_ahead(seen: WaitInput) -> bool:
    """Whether a new pod came before what we know of its claims: admission may have read them from the server."""
    created_at = parse_time_or_none(seen.pod.metadata.creation_timestamp)
    is_new = created_at is not None and (seen.now - created_at).total_seconds() < AHEAD_S
    return is_new and not seen.readings and bool(seen.pod.claims or seen.pod.sidecar_datasets)


def _plan_locality(seen: WaitInput) -> WaitStep:
    warm = warm_nodes(staying_values(seen.cache, seen.readings))
    zones = sorted({seen.zones[node] for node in warm if node in seen.zones})
    left_s = _left_s(seen, LOCALITY_DEADLINE, LONGEST_WAIT_S)
    if fitting := [node for node in warm if node in seen.fitting]:
        return WaitStep((_release(seen.pod, LOCALITY_GATE, "near", _preferred(100, HOST, fitting)),))
    near = any(seen.zones.get(node) in zones for node in seen.fitting)
    if left_s > 0 and near and _stage(seen, left_s) == "zone":
        return WaitStep((_release(seen.pod, LOCALITY_GATE, "zone", _preferred(ZONE_WEIGHT, ZONE, zones)),))
    if left_s > 0 and is_worth_it(seen.cache, seen.readings, left_s):
        return WaitStep(wake_s=min(left_s, LOOK_S))
    # The zone of the data is the next best: a preference, for it may be full as well.
    term = _preferred(ZONE_WEIGHT, ZONE, zones) if zones else None
    return WaitStep((_release(seen.pod, LOCALITY_GATE, "missed", term), _missed(seen.pod)))


def _stage(seen: WaitInput, left_s: float) -> str:
    try:
        wait = parse_wait(seen.pod.metadata.annotations.get(LOCALITY_WAIT, ""))
    except BadWait:
        return ""
    return wait.stage(wait.longest_s - left_s)


def _preferred(weight: int, key: str, values: Sequence[str]) -> dict[str, Any]:
    expression = {"key": key, "operator": "In", "values": list(values[:MOST_VALUES])}
    return {"weight": weight, "preference": {"matchExpressions": [expression]}}


def _missed(pod: ReaderPod) -> Intent:
    return data_event(PODS, pod.metadata, "LocalityMissed", "no warm node had room in time; placed anywhere")


def mark(pod: ReaderPod, cache: CacheMap, readings: Sequence[Reading], zones: Mapping[str, str]) -> list[Intent]:
    """What became of a pod whose scheduler waited by itself: said once it has a node."""
    warm = warm_nodes(local_values(cache, readings))
    node = pod.spec.node_name
    near_zones = {zones[each] for each in warm if each in zones}
    found = "near" if node in warm else "zone" if zones.get(node) in near_zones else "missed"
    patch = {"metadata": {"annotations": {LOCALITY: found}}}
    marked = Patch(kind=PODS, namespace=pod.metadata.namespace, name=pod.metadata.name, patch=patch)
    return [marked, _missed(pod)] if found == "missed" else [marked]


def _plan_prefetch(seen: WaitInput) -> WaitStep:
    try:
        prefetch = parse_prefetch(seen.pod.metadata.annotations.get(PREFETCH, ""))
    except BadWait:
        return WaitStep((_release(seen.pod, PREFETCH_GATE),))
    left_s = _left_s(seen, PREFETCH_DEADLINE, LONGEST_PREFETCH_S)
    datasets = [each.dataset for each in seen.readings]
    if all(seen.loaded.get(each, 0.0) >= prefetch.until for each in datasets):
        return WaitStep((_loaded(seen),))
    if left_s <= 0:
        failed = sorted(seen.failed_loads & set(datasets))
        why = f"loading {', '.join(failed)} failed" if failed else "the data was not loaded in time"
        note = f"{why}; the pod starts cold"
        return WaitStep((_loaded(seen), data_event(PODS, seen.pod.metadata, "PrefetchMissed", note, warning=True)))
    loads = tuple(Load(each, prefetch.paths) for each in datasets if seen.loaded.get(each, 0.0) < prefetch.until)
    return WaitStep(wake_s=min(left_s, LOOK_S), loads=loads)


def target_nodes(
    cache: CacheMap, readings: Sequence[Reading], fitting: frozenset[str], dataset: str
) -> tuple[str, ...]:
    """The dataset's nodes where a pod has room now: first those with most of its datasets, then by what they hold."""
    values = local_values(cache, readings)
    workers = {each.dataset: _workers(cache, each.dataset) for each in readings}

    def worth(node: str) -> tuple[int, float, str]:
        return -sum(node in nodes for nodes in workers.values()), -values.get(node, 0.0), node

    return tuple(sorted(workers.get(dataset, frozenset()) & fitting, key=worth)[:MOST_TARGETS])


def _workers(cache: CacheMap, dataset: str) -> frozenset[str]:
    of_dataset = cache.datasets.get(dataset)
    nodes = of_dataset.nodes.items() if of_dataset is not None else ()
    return frozenset(name for name, node in nodes if not node.is_draining)


def _loaded(seen: WaitInput) -> Patch:
    """The pod goes, by preference, where its data was loaded."""
    term = _preferred(100, HOST, seen.targets) if seen.targets else None
    return _release(seen.pod, PREFETCH_GATE, term=term)


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


def load_name(dataset: str, paths: Sequence[str], number: int = 1) -> str:
    """One DataLoad for the same data, whoever asks for it; a later one of the same data has a number."""
    name = f"fairlead-{short_hash(dataset, sorted(paths))}"
    return name if number == 1 else f"{name}-{number}"


def next_number(loads: Sequence[DataLoad], pod_created: str, running: str) -> int | None:
    """The number of the DataLoad to create for a pod, if any.

    `loads` are those of the same data, oldest first; `running` is what the dataset says it is loading now: Fluid loads
    one at a time. A load that ended before the pod was created says nothing of what is cached now.
    """
    latest = loads[-1] if loads else None
    if latest is not None:
        is_over = latest.status.phase in ("Complete", "Failed")
        if not is_over or (latest.metadata.creation_timestamp or "") >= pod_created:
            return None
    if running and all(running != each.metadata.name for each in loads):
        return None
    return len(loads) + 1


def nodes_of_load(load: DataLoad) -> list[str]:
    """The nodes that a DataLoad of ours was sent to; none of one that somebody else wrote in another form."""
    try:
        (term,) = (load.spec.affinity or {})["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        (expression,) = term["preference"]["matchExpressions"]
        names = expression["values"] if expression["key"] == HOST else []
    except (KeyError, TypeError, ValueError):
        return []
    return [each for each in names if isinstance(each, str)][:MOST_TARGETS]


def load_body(load: Load, number: int = 1) -> dict[str, Any]:
    namespace, _, name = load.dataset.partition("/")
    terms = [_preferred(100, HOST, load.nodes)] if load.nodes else []
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    return {
        "apiVersion": "data.fluid.io/v1alpha1",
        "kind": "DataLoad",
        "metadata": {
            "name": load_name(load.dataset, load.paths, number),
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": "fairlead"},
        },
        "spec": {
            "dataset": {"name": name, "namespace": namespace},
            "target": [{"path": path} for path in sorted(load.paths)],
            **({"affinity": affinity} if terms else {}),
            "ttlSecondsAfterFinished": KEPT_S,
        },
    }
