"""Scale-in without losing readers: the node of the worker to go is labelled, its readers leave, then it goes.

Pure: what is seen and the time give the next writes. A drain is kept in annotations of the runtime, so that another
leader goes on where this one stopped; each step may be repeated.

    wish ──► labelled ──► settled ──► readers gone ──► replicas lowered ──► workers gone: unlabelled
                 │                        │ deadline: Wait goes on, Force lowers, Abort unlabels
                 └────────────────────────┴── the wish is withdrawn or replicas rise: unlabelled
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from fairlead.data.names import DOMAIN, SCALE_IN, DatasetName, key_or_nothing
from fairlead.data.objects import FluidRuntime, replicas_patch, worker_replicas
from fairlead.data.spec import NODES, PODS, CacheNode, ReaderPod, data_event
from fairlead.model.intents import Intent, Patch
from fairlead.model.kinds import Kind
from fairlead.model.numbers import whole_number
from fairlead.model.times import bounded_time, parse_time_or_none, rfc3339

SCALE_IN_TO: Final = f"{DOMAIN}scale-in-to"
"""Annotation of a runtime: how many workers it should have; ours or a user's."""
BEGUN_AT: Final = f"{DOMAIN}scale-in-begun-at"
LABELLED_AT: Final = f"{DOMAIN}scale-in-labelled-at"
MARKS: Final = (SCALE_IN_TO, BEGUN_AT, LABELLED_AT)
SETTLE_S: Final = 5.0
"""After labelling: a scheduler may not have seen the label, nor we a pod that it has just placed."""
MOST_REPLICAS: Final = 100_000

DrainPolicy = Literal["Wait", "Force", "Abort"]
_ORDINAL: Final = re.compile(r"-(\d{1,9})$")


class DrainInput(msgspec.Struct, frozen=True):
    """What a step of a drain is decided on."""

    dataset: DatasetName
    kind: Kind[FluidRuntime]
    runtime: FluidRuntime | None
    workers: tuple[ReaderPod, ...]
    readers: Mapping[str, tuple[str, ...]]
    """Pods that mount the dataset and are not finished, by node."""
    nodes: tuple[CacheNode, ...]
    now: datetime
    policy: DrainPolicy = "Wait"
    deadline_s: float = 600.0
    kept: frozenset[str] = frozenset()
    """Nodes that another dataset, whose label is the same, keeps labelled."""


class DrainStep(msgspec.Struct, frozen=True):
    intents: tuple[Intent, ...] = ()
    wake_s: float | None = None
    waiting_for: tuple[str, ...] = ()


def target(kind: Kind[FluidRuntime], runtime: FluidRuntime) -> int | None:
    """How many workers are wished for, where that is fewer than there are."""
    text = runtime.metadata.annotations.get(SCALE_IN_TO, "")
    wished = whole_number(text, 0, MOST_REPLICAS)
    return wished if wished is not None and wished < worker_replicas(kind, runtime) else None


def ordinal(worker: ReaderPod) -> int:
    """Its number in its StatefulSet; -1 for a pod without one."""
    found = _ORDINAL.search(worker.metadata.name)
    return int(found[1]) if found else -1


def victims(workers: Sequence[ReaderPod], wished: int) -> list[ReaderPod]:
    """The workers that a StatefulSet removes first: those of the highest ordinals."""
    return sorted((pod for pod in workers if ordinal(pod) >= wished), key=ordinal)


def leaving_nodes(kind: Kind[FluidRuntime], runtime: FluidRuntime | None, workers: Sequence[ReaderPod]) -> set[str]:
    """Nodes whose worker is to go. One that is on its way out keeps its node's label until it has gone."""
    if runtime is None:
        return set()
    wished = target(kind, runtime)
    going = victims(workers, worker_replicas(kind, runtime) if wished is None else wished)
    return {pod.spec.node_name for pod in going if pod.spec.node_name}


def orphans(nodes: Iterable[CacheNode], is_known: Callable[[str], bool]) -> list[Intent]:
    """Labels of datasets that are gone are removed."""
    found = ((node.metadata.name, key) for node in nodes for key in node.metadata.labels if key.startswith(SCALE_IN))
    return [each for node, key in sorted(found) if not is_known(key) for each in _unlabel(key, [node])]


def plan(seen: DrainInput) -> DrainStep:
    key = key_or_nothing(seen.dataset.scale_in_key)
    if not key:
        return DrainStep()
    labelled = {node.metadata.name for node in seen.nodes if node.metadata.labels.get(key) == "true"}
    wished = target(seen.kind, seen.runtime) if seen.runtime is not None else None
    leaving = sorted(leaving_nodes(seen.kind, seen.runtime, seen.workers))
    intents: list[Intent] = [*_unlabel(key, labelled - set(leaving) - seen.kept)]
    if seen.runtime is None or wished is None:
        return DrainStep((*intents, *_forget(seen)))
    annotations = seen.runtime.metadata.annotations
    begun = bounded_time(annotations.get(BEGUN_AT), seen.now)
    labelled_at = parse_time_or_none(annotations.get(LABELLED_AT))
    missing = [node for node in leaving if node not in labelled]
    if missing or labelled_at is None:
        intents += [_label(key, node) for node in missing]
        # After the labels: a time that is written is a time at which they were there.
        intents.append(_annotate(seen, {BEGUN_AT: rfc3339(begun), LABELLED_AT: rfc3339(seen.now)}))
        drained = f"draining {', '.join(leaving)}" if leaving else "no node to drain"
        note = f"{drained} to reduce the workers to {wished}"
        intents.append(data_event(seen.kind, seen.runtime.metadata, "ScaleInStarted", note))
        return DrainStep(tuple(intents), wake_s=SETTLE_S)
    settled = bounded_time(annotations.get(LABELLED_AT), seen.now) + timedelta(seconds=SETTLE_S)
    if wished and seen.now < settled:
        return DrainStep(tuple(intents), (settled - seen.now).total_seconds())
    readers = sorted(pod for node in leaving for pod in seen.readers.get(node, ()))
    # Without workers there is nothing to read from, so nobody is waited for.
    staying = readers if wished else []
    deadline = begun + timedelta(seconds=seen.deadline_s)
    if staying and seen.now < deadline:
        return DrainStep(tuple(intents), (deadline - seen.now).total_seconds(), tuple(staying))
    if staying and seen.policy == "Wait":
        return DrainStep(tuple(intents), None, tuple(staying))
    if staying and seen.policy == "Abort":
        note = f"scale-in to {wished} given up: still read by {', '.join(staying[:5])}"
        drain_event = data_event(seen.kind, seen.runtime.metadata, "ScaleInAborted", note, warning=True)
        return DrainStep((_annotate(seen, dict.fromkeys(MARKS)), drain_event, *_unlabel(key, labelled - seen.kept)))
    who = (
        f"still read by {', '.join(readers[:5])}"
        if readers
        else f"nobody reads on {', '.join(leaving) or 'their nodes'}"
    )
    note = f"reducing the workers to {wished}: {who}"
    lowered = Patch(
        kind=seen.kind,
        namespace=seen.dataset.namespace,
        name=seen.dataset.name,
        # In one write with the end of the wish: a raise in between is a conflict, not overwritten.
        patch={
            "metadata": {"annotations": dict.fromkeys(MARKS)},
            "spec": replicas_patch(seen.kind, wished),
        },
        resource_version=seen.runtime.metadata.resource_version,
    )
    drain_event = data_event(seen.kind, seen.runtime.metadata, "ScaledIn", note)
    # The labels go when the workers have: the next look, without a wish, removes them.
    return DrainStep((*intents, lowered, drain_event), wake_s=1.0)


def lowers_to(seen: DrainInput) -> int | None:
    """How many workers are left by the next step, if that is the one which removes some."""
    lowers = any(isinstance(each, Patch) and "spec" in each.patch for each in plan(seen).intents)
    return target(seen.kind, seen.runtime) if lowers and seen.runtime is not None else None


def held_up(pod: ReaderPod, fitting: Collection[str], draining: Collection[str], key: str) -> Intent | None:
    """What a pod is told that fits only on nodes that are being drained: no scheduler names the label."""
    if pod.spec.node_name or pod.spec.scheduling_gates or pod.is_finished:
        return None
    if not fitting or set(fitting) - set(draining):
        return None
    note = (
        f"every node with room is being drained (label {key}); the pod is placed when the scale-in is over or cancelled"
    )
    return data_event(PODS, pod.metadata, "NodesDraining", note, warning=True)


def _label(key: str, node: str) -> Patch:
    return Patch(kind=NODES, name=node, patch={"metadata": {"labels": {key: "true"}}})


def _unlabel(key: str, nodes: Iterable[str]) -> list[Intent]:
    return [Patch(kind=NODES, name=node, patch={"metadata": {"labels": {key: None}}}) for node in sorted(nodes)]


def _forget(seen: DrainInput) -> list[Intent]:
    """A wish that is no longer one is taken back, so that a later raise does not revive it."""
    annotations = seen.runtime.metadata.annotations if seen.runtime is not None else {}
    stale = {name: None for name in MARKS if name in annotations}
    found: list[Intent] = [_annotate(seen, stale)] if stale else []
    text = annotations.get(SCALE_IN_TO)
    if seen.runtime is not None and text is not None and whole_number(text, 0, MOST_REPLICAS) is None:
        note = f"annotation {SCALE_IN_TO}: must be a number of workers from 0 to {MOST_REPLICAS}, not {text[:100]!r}"
        found.append(data_event(seen.kind, seen.runtime.metadata, "ScaleInInvalid", note, warning=True))
    return found


def _annotate(seen: DrainInput, annotations: Mapping[str, str | None]) -> Patch:
    return Patch(
        kind=seen.kind,
        namespace=seen.dataset.namespace,
        name=seen.dataset.name,
        patch={"metadata": {"annotations": dict(annotations)}},
    )
