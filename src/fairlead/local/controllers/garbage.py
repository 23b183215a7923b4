"""The garbage collector: what its owners leave behind goes, stays, or goes first, as their deletion asked.

Background: an owner is gone, so what only it owned is deleted. Foreground: an owner waits, under a finalizer, for
what blocks it. Orphan: an owner waits until nothing refers to it any more. An owner that no mirror shows is asked
for at the server before anything is deleted on its account.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final

import msgspec
import structlog

from fairlead.cluster.controller import Controller, TemporaryError
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.mirror import Delta, Mirror
from fairlead.local.controllers.discovery import Catalogue, discover
from fairlead.local.controllers.mirrors import ControllerContext, Mirrors
from fairlead.model.intents import Intent, delete
from fairlead.model.kinds import DEFINITIONS, Kind
from fairlead.model.meta import ApiObject, ObjectMeta, OwnerReference
from fairlead.model.owners import as_json, drop_finalizer, patch_metadata, release

log = structlog.get_logger("fairlead.garbage")

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
NOT_WATCHED: Final = frozenset({"events", "events.events.k8s.io"})
NEEDED: Final = frozenset({"list", "watch", "delete", "patch"})
DISCOVER_AGAIN_S: Final = 1.0
SYNC_S: Final = 30.0


class Owner(Enum):
    SOLID = "there, and to stay or to go by itself"
    WAITING = "going, and waits for what it owns"
    ABSENT = "gone"


@dataclass(frozen=True, slots=True)
class GarbageInput:
    kind: Kind[Any]
    item: ObjectMeta
    owners: tuple[tuple[OwnerReference, Owner], ...] = ()
    dependents: tuple[tuple[Kind[Any], ObjectMeta], ...] = ()


def plan_garbage(seen: GarbageInput, now: datetime) -> list[Intent]:
    item = seen.item
    if item.deletion_timestamp is not None:
        return _plan_going(seen)
    solid = [reference for reference, state in seen.owners if state is Owner.SOLID]
    waiting = [reference for reference, state in seen.owners if state is Owner.WAITING]
    if len(solid) == len(seen.owners):
        return []
    if solid:
        return [patch_metadata(seen.kind, item, {"ownerReferences": as_json(solid)})]
    if waiting and seen.dependents:
        policy = "Foreground"  # its owner waits for it, so it must wait for its own
    elif ORPHAN in item.finalizers:
        policy = "Orphan"
    elif FOREGROUND in item.finalizers:
        policy = "Foreground"
    else:
        policy = "Background"
    return [delete(seen.kind, item, resource_version=item.resource_version, propagation=policy)]


def _plan_going(seen: GarbageInput) -> list[Intent]:
    item = seen.item
    if FOREGROUND in item.finalizers:
        blocking = [found for found in seen.dependents if _blocks(found[1], item.uid)]
        return [] if blocking else [drop_finalizer(seen.kind, item, FOREGROUND)]
    if ORPHAN in item.finalizers:
        if not seen.dependents:
            return [drop_finalizer(seen.kind, item, ORPHAN)]
        return [release(kind, dependent, item.uid) for kind, dependent in seen.dependents]
    return []


def _blocks(dependent: ObjectMeta, owner_uid: str) -> bool:
    return any(ref.uid == owner_uid and ref.block_owner_deletion for ref in dependent.owner_references)


def is_waiting(item: ObjectMeta) -> bool:
    return item.deletion_timestamp is not None and FOREGROUND in item.finalizers


def keys_of(mirrors: Mirrors, kind: Kind[Any], delta: Delta[Any]) -> Iterator[str]:
    """Who must be looked at because of this change: the thing itself, what it owned, or who waits for it."""
    old: ObjectMeta | None = delta.old.metadata if delta.old is not None else None
    new: ObjectMeta | None = delta.new.metadata if delta.new is not None else None
    if old is not None and (new is None or old.uid != new.uid):
        yield from _all(mirrors.holders_of("owner", old.uid))
        for owner in old.owner_references:
            yield from _going(mirrors, owner.uid)
    if new is None:
        return
    if old is not None and _relations(old) == _relations(new):
        return
    if new.owner_references or {FOREGROUND, ORPHAN} & set(new.finalizers):
        yield entry(kind, new.key)
    if is_waiting(new):
        yield from _all(mirrors.holders_of("owner", new.uid))
    for reference in (*(old.owner_references if old else ()), *new.owner_references):
        yield from _going(mirrors, reference.uid)


def _relations(item: ObjectMeta) -> tuple[Any, ...]:
    return item.uid, item.owner_references, item.finalizers, item.deletion_timestamp


def _all(holders: Iterable[tuple[Kind[Any], Any]]) -> Iterator[str]:
    for kind, found in holders:
        yield entry(kind, found.metadata.key)


def _going(mirrors: Mirrors, uid: str) -> Iterator[str]:
    for kind, found in mirrors.holders_of("uid", uid):
        if found.metadata.deletion_timestamp is not None:
            yield entry(kind, found.metadata.key)


def entry(kind: Kind[Any], key: str) -> str:
    return f"{kind.name} {key}"


class Collector:
    """Follows every kind the server serves; not a plain controller because kinds come and go."""

    name = "garbage"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._mirrors = context.mirrors
        self._controller: Controller = context.live_controller(DEFINITIONS, self._plan, name=self.name, workers=8)
        self._catalogue = Catalogue()
        self._following: dict[str, list[asyncio.Task[None]]] = {}

    def stop(self) -> None:
        self._controller.stop()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            await self._follow_all(tasks)
            await self._wait_synced()
            watching = tasks.create_task(self._watch_kinds(tasks), name="garbage: kinds")
            await self._controller.run()
            watching.cancel()
            for following in self._following.values():
                for task in following:
                    task.cancel()

    async def _wait_synced(self) -> None:
        """One kind not yet listed could hide what an owner waits for; one that never lists must not stop us all."""
        mirrors = [mirror for mirror in self._mirrors if mirror.kind.name in self._following]
        try:
            async with asyncio.timeout(SYNC_S):
                for mirror in mirrors:
                    await mirror.wait_synced()
        except TimeoutError:
            late = [mirror.kind.name for mirror in mirrors if not mirror.is_synced]
            log.warning("collecting without some kinds", kinds=late)

    async def _watch_kinds(self, tasks: asyncio.TaskGroup) -> None:
        """Discover a new kind when its definition is observed, and once more when it has had time to be served."""
        subscription = self._mirrors.of(DEFINITIONS).subscribe()
        try:
            while True:
                await subscription.wait()
                subscription.drain()
                await self._context.clock.sleep(1.0)
                await self._follow_all(tasks)
        finally:
            subscription.close()

    async def _discovered(self) -> Catalogue:
        while True:
            try:
                return await discover(self._context.reader)
            except ClusterError as problem:
                log.info("discovery failed", problem=str(problem), again_in_s=DISCOVER_AGAIN_S)
                await self._context.clock.sleep(DISCOVER_AGAIN_S)

    async def _follow_all(self, tasks: asyncio.TaskGroup) -> None:
        """Follow the kinds that are new on the server, and those that are gone no longer."""
        self._catalogue = found = await self._discovered()
        desired = {
            served.kind.name: served.kind
            for served in found.served
            if served.verbs >= NEEDED and served.kind.name not in NOT_WATCHED
        }
        for name, kind in desired.items():
            if name in self._following:
                continue
            mirror: Mirror[Any] | None = self._mirrors.find(kind)
            running: list[asyncio.Task[None]] = []
            if mirror is None:
                mirror = self._mirrors.add(kind)
                running.append(tasks.create_task(mirror.run(), name=f"garbage mirror: {name}"))
            running.append(tasks.create_task(self._feed(mirror), name=f"garbage: {name}"))
            self._following[name] = running
        if found.missing:
            return  # a group that is away for a moment has not lost its kinds
        for name in self._following.keys() - desired.keys():
            running = self._following.pop(name)
            for task in running:
                task.cancel()
            if len(running) == 2:
                self._mirrors.drop_name(name)

    async def _feed(self, mirror: Mirror[Any]) -> None:
        await mirror.wait_synced()
        subscription = mirror.subscribe()
        try:
            while True:
                await subscription.wait()
                for delta in subscription.drain():
                    for key in keys_of(self._mirrors, mirror.kind, delta):
                        self._controller.queue.add(key)
                await asyncio.sleep(0)
        finally:
            subscription.close()

    # -- one thing ------------------------------------------------------------------------------------------

    async def _plan(self, key: str) -> list[Intent]:
        name, _, key_there = key.partition(" ")
        mirror = self._mirrors.by_name(name)
        held = mirror.get(key_there) if mirror is not None else None
        if mirror is None or held is None:
            return []
        if not plan_garbage(await self._input(mirror.kind, held.metadata), self._context.clock.now()):
            return []
        # The mirror may be behind: nothing is deleted or cut loose but by what the server holds now.
        living = await self._living(mirror.kind, held.metadata)
        if living is None or living.uid != held.metadata.uid:
            return []
        return plan_garbage(await self._input(mirror.kind, living), self._context.clock.now())

    async def _living(self, kind: Kind[Any], item: ObjectMeta) -> ObjectMeta | None:
        plain = msgspec.structs.replace(kind, struct=ApiObject)
        found = await self._context.reader.find(plain, item.name, item.namespace)
        return found.metadata if found is not None else None

    async def _input(self, kind: Kind[Any], item: ObjectMeta) -> GarbageInput:
        dependents = tuple(
            (kind, found.metadata)
            for kind, found in self._mirrors.holders_of("owner", item.uid)
            if found.metadata.namespace == item.namespace or not item.namespace
        )
        if item.deletion_timestamp is not None:
            return GarbageInput(kind, item, (), dependents)
        owners = [(reference, await self._state(item, reference)) for reference in item.owner_references]
        return GarbageInput(kind, item, tuple(owners), dependents)

    async def _state(self, item: ObjectMeta, reference: OwnerReference) -> Owner:
        for _, found in self._mirrors.holders_of("uid", reference.uid):
            if found.metadata.namespace in ("", item.namespace):
                return Owner.WAITING if is_waiting(found.metadata) else Owner.SOLID
        kind = self._catalogue.kind(reference.api_version, reference.kind)
        if kind is None:
            raise TemporaryError(f"owner {reference.kind} of {reference.api_version} is not served", 30.0)
        if kind.namespaced and not item.namespace:
            return Owner.SOLID  # what belongs to no namespace cannot be owned from within one: left alone
        found = await self._context.reader.find(kind, reference.name, item.namespace)
        if found is None or found.metadata.uid != reference.uid:
            return Owner.ABSENT
        return Owner.WAITING if is_waiting(found.metadata) else Owner.SOLID
