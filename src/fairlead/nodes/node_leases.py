"""Leases of nodes that several processes may serve: each names the one that does, and changes hands by version only.

A lease is taken over exactly the version that was judged, so of two that judge alike one is refused. `nodes.kubelet`
renews; who may take which node is for others to judge (`modules.ownership`). What a successor must know of a node is
noted on its lease: it is small, and written often anyway.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
import structlog

from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.writer import Outcome, Writer
from fairlead.model.intents import Create, Replace
from fairlead.model.kinds import LEASES, Lease
from fairlead.model.owners import owner_reference
from fairlead.model.times import rfc3339_micro
from fairlead.nodes.node import LEASE_DURATION_S, LEASE_NAMESPACE, NODES

log = structlog.get_logger("fairlead.nodes")

PERIOD_S = 10.0
"""Between two renewals."""

FindLease = Callable[[str], Awaitable[Lease | None]]
"""The lease of a node as the server has it now."""


class NodeLeases:
    def __init__(
        self,
        writer: Writer,
        find: FindLease,
        holder: str,
        *,
        clock: Clock,
        labels: Mapping[str, str] | None = None,
        lost: Callable[[str], None],
    ) -> None:
        """`lost` is called with a node whose lease turns out to be another's."""
        self._writer = writer
        self._find = find
        self._holder = holder
        self._clock = clock
        self._labels = dict(labels or {})
        self._lost = lost
        self._known: dict[str, Lease] = {}
        # A renewal that is under way would make the version old that a lease is given up at.
        self._locks: dict[str, asyncio.Lock] = {}
        self._notes: dict[str, Mapping[str, str]] = {}
        # How often each lease was sent with its notes, and which of these the server has.
        self._sent: dict[str, int] = {}
        self._written: dict[str, int] = {}
        self._noted_s: dict[str, float] = {}

    async def take(self, name: str, over: Lease | None) -> bool:
        """Name ourselves in the lease, provided that it is still as `over` was read; None: that there is none."""
        async with self._lock(name):
            return await self._take(name, over)

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    async def _take(self, name: str, over: Lease | None) -> bool:
        number = self._next(name)
        body = self._body(name, over, self._holder)
        create = Create(kind=LEASES, body=body, namespace=LEASE_NAMESPACE)
        result = await self._writer.carry_out(create if over is None else _replace(name, body))
        if not result.is_done:
            # Even if it did happen: the next look finds us named, and takes it over that version.
            return False
        self._known[name] = result.answer
        self._written[name] = number
        self._noted_s[name] = self._clock.elapsed_s()
        return True

    def _next(self, name: str) -> int:
        number = self._sent[name] = self._sent.get(name, 0) + 1
        return number

    def note(self, name: str, notes: Mapping[str, str]) -> None:
        """Annotations that a lease of ours shall have from its next renewal on, also when it is given up."""
        if name in self._known:
            self._notes[name] = notes

    def notes(self, name: str) -> Mapping[str, str]:
        """The annotations of a lease that is ours, as it was last read or written."""
        known = self._known.get(name)
        return known.metadata.annotations if known is not None else {}

    async def write_notes(self, name: str) -> bool:
        """Make what was noted until now durable; whether it is. Many may wait for one write."""
        before = self._sent.get(name, 0)
        async with self._lock(name):
            if self._written.get(name, 0) <= before:
                await self._renew(name, "")
                self._noted_s[name] = self._clock.elapsed_s()
            return name in self._known and self._written.get(name, 0) > before

    async def renew(self, name: str, node_uid: str = "", period_s: float = PERIOD_S) -> float | None:
        """Once more for its whole duration; a lease that is another's is not touched. Taken, or written with notes,
        within the period, it was renewed: then in how many seconds the next is due."""
        async with self._lock(name):
            left_s = self._noted_s.get(name, -math.inf) + period_s - self._clock.elapsed_s()
            if left_s > 0 and self._is_owned(name, node_uid):
                return left_s
            await self._renew(name, node_uid)
            return None

    def _is_owned(self, name: str, node_uid: str) -> bool:
        """Whether the lease goes with this node, and stays with it: a node may be made anew."""
        known = self._known.get(name)
        owners = [each.uid for each in known.metadata.owner_references] if known is not None else []
        return not node_uid or owners == [node_uid]

    async def _renew(self, name: str, node_uid: str) -> None:
        known = self._known.get(name)
        if known is None:
            return
        number = self._next(name)
        body = self._body(name, known, self._holder, node_uid)
        result = await self._writer.carry_out(_replace(name, body), is_wanted=lambda: name in self._known)
        match result.outcome:
            case Outcome.DONE:
                if name in self._known:
                    self._known[name] = result.answer
                    self._written[name] = number
            case Outcome.CONFLICT | Outcome.MISSING:
                await self._look_again(name)
            case Outcome.UNWANTED:
                return
            case _:
                assert result.error is not None
                raise result.error

    async def _look_again(self, name: str) -> None:
        found = await self._find(name)
        if found is not None and found.spec.holder_identity != self._holder:
            log.warning("another replica serves the node", node=name, holder=found.spec.holder_identity)
            self._forget(name)
            self._lost(name)
            return
        if found is not None:
            self._known[name] = found  # somebody's label, or a write of ours whose answer was lost
        if not await self._take(name, found):
            raise ClusterError(f"the lease of node {name} has changed meanwhile")

    async def give_up(self, name: str) -> None:
        """Leave the node to whoever takes it; it counts as alive for the rest of its duration."""
        async with self._lock(name):
            known = self._known.pop(name, None)
            while known is not None and known.spec.holder_identity == self._holder:
                result = await self._writer.carry_out(_replace(name, self._body(name, known, "")))
                if result.outcome is not Outcome.CONFLICT:
                    break
                known = await self._find(name)
            self._forget(name)

    def forget(self, name: str) -> None:
        """The node is gone, and its lease goes with it."""
        self._forget(name)
        self._locks.pop(name, None)

    def _forget(self, name: str) -> None:
        for known in (self._known, self._notes, self._sent, self._written, self._noted_s):
            known.pop(name, None)

    def names(self) -> list[str]:
        """The nodes whose leases name us."""
        return sorted(self._known)

    def has(self, name: str) -> bool:
        return name in self._known

    def _body(self, name: str, current: Lease | None, holder: str, node_uid: str = "") -> dict[str, Any]:
        now = rfc3339_micro(self._clock.now())
        metadata: dict[str, Any] = {"name": name, "namespace": LEASE_NAMESPACE}
        if current is not None:
            metadata = msgspec.to_builtins(current.metadata)
        metadata["labels"] = {**metadata.get("labels", {}), **self._labels}
        if notes := self._notes.get(name):
            metadata["annotations"] = {**metadata.get("annotations", {}), **notes}
        if node_uid:
            # Owned by its node, so that it goes when the node does.
            metadata["ownerReferences"] = [owner_reference(NODES, name, node_uid)]
        spec = current.spec if current is not None else None
        is_same = spec is not None and spec.holder_identity == holder
        transitions = (spec.lease_transitions or 0) if spec is not None else 0
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": metadata,
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": LEASE_DURATION_S,
                "acquireTime": spec.acquire_time if spec is not None and is_same else now,
                "renewTime": now,
                "leaseTransitions": transitions if is_same or not holder or spec is None else transitions + 1,
            },
        }


def _replace(name: str, body: dict[str, Any]) -> Replace:
    return Replace(kind=LEASES, name=name, body=body, namespace=LEASE_NAMESPACE)
