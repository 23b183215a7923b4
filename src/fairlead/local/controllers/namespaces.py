"""Namespaces being deleted: emptied, pods first, and finalized when nothing is left.

The contents are listed from the server, kind by kind; a group that does not answer keeps the namespace.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from fairlead.cluster.controller import Controller
from fairlead.local.controllers.discovery import discover
from fairlead.local.controllers.mirrors import ControllerContext
from fairlead.local.controllers.spec import NAMESPACES, PODS, Namespace
from fairlead.local.controllers.statuses import plan_status, with_condition
from fairlead.model.intents import Intent, Replace, WakeAfter, delete
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiObject, ObjectMeta

FINALIZER: Final = "kubernetes"
AGAIN_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class NamespaceInput:
    namespace: Namespace
    content: tuple[tuple[Kind[Any], ObjectMeta], ...] = ()
    missing: tuple[str, ...] = ()  # groups that did not answer


def plan_namespace(seen: NamespaceInput, now: datetime) -> list[Intent]:
    namespace, metadata = seen.namespace, seen.namespace.metadata
    finalizers = namespace.spec.finalizers or ()
    if metadata.deletion_timestamp is None or FINALIZER not in finalizers:
        return []
    if not seen.content and not seen.missing:
        return [_let_go(metadata, [name for name in finalizers if name != FINALIZER])]
    # Pods first: what runs must not see its configuration and its guards vanish.
    pods = [(kind, item) for kind, item in seen.content if kind.name == PODS.name]
    deletes = [delete(kind, item) for kind, item in pods or seen.content if item.deletion_timestamp is None]
    status = plan_status(NAMESPACES, namespace, {"conditions": _conditions(seen, now)})
    return [*deletes, *status, WakeAfter(seconds=AGAIN_S)]


def _let_go(metadata: ObjectMeta, finalizers: list[str]) -> Replace:
    kept: dict[str, Any] = msgspec.to_builtins(metadata)
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": kept, "spec": {"finalizers": finalizers}}
    return Replace(kind=NAMESPACES, name=metadata.name, body=body, subresource="finalize")


def _conditions(seen: NamespaceInput, now: datetime) -> list[dict[str, Any]]:
    kinds = Counter(kind.name for kind, _ in seen.content)
    held = Counter(name for _, item in seen.content for name in item.finalizers)
    entries = [
        (
            "NamespaceDeletionDiscoveryFailure",
            "DiscoveryFailed" if seen.missing else "ResourcesDiscovered",
            f"No answer from: {', '.join(seen.missing)}" if seen.missing else "All resources successfully discovered",
            bool(seen.missing),
        ),
        (
            "NamespaceDeletionContentFailure",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
            False,
        ),
        (
            "NamespaceContentRemaining",
            "SomeResourcesRemain" if kinds else "ContentRemoved",
            _counted("Some resources are remaining: {} has {} resource instances", kinds)
            or "All content successfully removed",
            bool(kinds),
        ),
        (
            "NamespaceFinalizersRemaining",
            "SomeFinalizersRemain" if held else "ContentHasNoFinalizers",
            _counted("Some content in the namespace has finalizers remaining: {} in {} resource instances", held)
            or "All content-preserving finalizers finished",
            bool(held),
        ),
    ]
    conditions = seen.namespace.conditions
    for kind, reason, message, is_so in entries:
        conditions = with_condition(conditions, kind, "True" if is_so else "False", reason, message, now)
    return conditions


def _counted(sentence: str, counts: Mapping[str, int]) -> str:
    start, _, rest = sentence.partition("{}")
    return start + ", ".join(name + rest.format(count) for name, count in sorted(counts.items())) if counts else ""


def namespace_controller(context: ControllerContext) -> Controller:
    namespaces = context.mirrors.of(NAMESPACES)

    async def plan(key: str) -> list[Intent]:
        namespace = namespaces.get(key)
        if namespace is None or namespace.metadata.deletion_timestamp is None:
            return []
        return plan_namespace(await look_into(namespace), context.clock.now())

    async def look_into(namespace: Namespace) -> NamespaceInput:
        found = await discover(context.reader)
        kinds = [
            served.kind for served in found.served if served.kind.namespaced and served.verbs >= {"list", "delete"}
        ]
        lists = await asyncio.gather(*(listed(kind, namespace.metadata.name) for kind in kinds))
        return NamespaceInput(namespace, tuple(entry for entries in lists for entry in entries), found.missing)

    async def listed(kind: Kind[ApiObject], namespace: str) -> Iterable[tuple[Kind[Any], ObjectMeta]]:
        return [(kind, item.metadata) for item in await context.reader.list(kind, namespace)]

    return context.live_controller(NAMESPACES, plan).watches(namespaces)
