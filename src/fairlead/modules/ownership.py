"""Which bases this replica serves: taken, kept, handed over, one version of a node's lease after the other.

    free, or its holder's member lease has run out ──(compare and swap)──▶ served by us
    served by us, and another's by `modules.shares` ──(writes in flight end)──▶ lease given up ──▶ taken by the other

Every replica runs it with the same plan. A node is served only after a write of this term of ours to its lease, so a
replica that was away for too long begins with nothing, whoever the leases name.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import structlog

from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.mirror import Delta, Mirror
from fairlead.cluster.waits import first_of
from fairlead.model.kinds import Lease
from fairlead.model.node import Node
from fairlead.modules.members import DURATION_S, Members
from fairlead.modules.shares import plan_shares, rank
from fairlead.nodes.node import LEASE_NAMESPACE
from fairlead.nodes.node_leases import FindLease, NodeLeases

log = structlog.get_logger("fairlead.modules")

TURN_S: Final = 1.0
SETTLE_S: Final = 0.2
AT_ONCE: Final = 32
NEXT_HAND_OVER_S: Final = 5.0
"""The next node is handed over once somebody has the last one, or after this."""


def is_news_of(delta: Delta[Any]) -> bool:
    """Whether a node or lease came or went, or a lease changed hands."""
    if delta.old is None or delta.new is None:
        return True
    return isinstance(delta.new, Lease) and delta.new.spec.holder_identity != delta.old.spec.holder_identity


def _holder(lease: Lease | None) -> str:
    return (lease.spec.holder_identity or "") if lease is not None else ""


def _renewed(lease: Lease | None) -> str:
    return (lease.spec.renew_time or "") if lease is not None else ""


class Ownership:
    def __init__(
        self,
        members: Members,
        nodes: Mirror[Node],
        leases: Mirror[Lease],
        titles: NodeLeases,
        find_lease: FindLease,
        *,
        clock: Clock,
        serve: Callable[[str], Awaitable[bool]],
        release: Callable[[str], Awaitable[None]],
    ) -> None:
        """`serve` takes up a node that exists, and says whether it did; `release` returns when nothing that we send to
        the node, its pods or its base is in flight any more."""
        self._members = members
        self._nodes = nodes
        self._leases = leases
        self._titles = titles
        self._find_lease = find_lease
        self._clock = clock
        self._serve = serve
        self._release = release
        self._leaving: set[str] = set()
        self._lost: set[str] = set()
        self._no_lease: dict[str, float] = {}
        self._last: tuple[str, float] | None = None
        self._wakeup = asyncio.Event()
        self._is_due = True
        self._tasks: asyncio.TaskGroup | None = None
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Until cancelled; then nothing is given up, since something may be in flight."""
        subscriptions = [mirror.subscribe(self._wakeup) for mirror in (self._nodes, self._leases)]
        try:
            async with asyncio.TaskGroup() as self._tasks:
                turned_s = -math.inf
                while True:
                    # A thousand renewals are no news, and looking at as many nodes is not for nothing.
                    deltas = [delta for each in subscriptions for delta in each.drain()]
                    self._wakeup.clear()
                    now_s = self._clock.elapsed_s()
                    if self._is_due or any(map(is_news_of, deltas)) or now_s - turned_s >= TURN_S:
                        self._is_due, turned_s = False, now_s
                        try:
                            await self._turn()
                        except ClusterError as problem:
                            log.warning("nodes not looked at", problem=str(problem))
                    await first_of(self._wakeup.wait(), self._clock.sleep(TURN_S))
                    await self._clock.sleep(SETTLE_S)
        finally:
            self._tasks = None
            for subscription in subscriptions:
                subscription.close()

    async def _turn(self) -> None:
        self._members.look()
        while self._lost and self._tasks is not None:
            name = self._lost.pop()
            self._leaving.add(name)  # from now on: it must not be taken again before it is dropped
            self._tasks.create_task(self._drop(name), name=f"drop {name}")
        serving = {node.name for node in self._nodes if self._titles.has(node.name)} | self._leaving
        leases = {lease.metadata.name: lease for lease in self._leases}
        holders = {name: _holder(lease) for name, lease in leases.items()}
        names = {node.name for node in self._nodes}
        alive = self._members.alive()
        shares = plan_shares(self._members.me, names, alive, holders, serving, self._members.is_alive)
        self._no_lease = {name: at_s for name, at_s in self._no_lease.items() if name not in holders}
        # First those that nobody has renewed for the longest time: others may take them for dead.
        due = {name: leases.get(name) for name in shares.take if self._may_try(name, holders)}
        await self._take_all(dict(sorted(due.items(), key=lambda each: _renewed(each[1]))))
        if shares.hand_over and not self._leaving and self._is_next(holders) and self._tasks is not None:
            self._leaving.add(shares.hand_over[0])
            self._tasks.create_task(self._hand_over(shares.hand_over[0]), name="hand over a node")

    def _may_try(self, name: str, holders: dict[str, str]) -> bool:
        """A node without a lease is its server's to mend first; that takes it one renewal."""
        if name in holders:
            return True
        now_s = self._clock.elapsed_s()
        return now_s - self._no_lease.setdefault(name, now_s) >= DURATION_S

    def _is_next(self, holders: dict[str, str]) -> bool:
        if self._last is None:
            return True
        name, at_s = self._last
        return bool(holders.get(name)) or self._clock.elapsed_s() - at_s >= NEXT_HAND_OVER_S

    # -- taking ---------------------------------------------------------------------------------------------

    async def _take_all(self, due: Mapping[str, Lease | None]) -> None:
        """`due`: each node with its lease as the watch last showed it.

        First these leases, then, once for all of them, their holders' time: a holder that has come back since has
        changed the leases, or cannot serve their nodes before it has, and then the version is another.
        """
        over = dict.fromkeys(("", self._members.me), True)
        for holder in {_holder(lease) for lease in due.values()} - over.keys():
            over[holder] = await self._members.is_over(holder)
        async with asyncio.TaskGroup() as tasks:
            for name, lease in due.items():
                if over[_holder(lease)]:
                    tasks.create_task(self._take_up(name, lease), name=f"take {name}")

    async def _take_up(self, name: str, lease: Lease | None) -> None:
        async with self._slots:
            try:
                is_taken = lease is not None and await self._take_over(name, lease)
                # The watch may be behind, and a lease that it does not show may be there.
                if (is_taken or await self._take(name)) and not await self._serve(name):
                    await self._titles.give_up(name)
            except ClusterError as problem:
                log.warning("node not taken", node=name, problem=str(problem))

    async def claim(self, name: str) -> bool:
        """Take the node of a base that was just met."""
        if name in self._leaving:
            return False
        return self._titles.has(name) or await self._take(name)

    async def _take(self, name: str) -> bool:
        # The lease first, then its holder's time: a holder that has come back since has changed the lease.
        found = await self._find_lease(name)
        holder = _holder(found)
        if holder not in ("", self._members.me) and not await self._members.is_over(holder):
            return False
        return await self._take_over(name, found)

    async def _take_over(self, name: str, lease: Lease | None) -> bool:
        if not await self._titles.take(name, lease):
            return False
        log.info("node taken", node=name, before=_holder(lease))
        return True

    # -- leaving --------------------------------------------------------------------------------------------

    async def _hand_over(self, name: str) -> None:
        self._leaving.add(name)
        try:
            await self._release(name)
            await self._titles.give_up(name)
            log.info("node handed over", node=name)
        except ClusterError as problem:
            log.warning("node not given up: others take it when its lease has run out", node=name, problem=str(problem))
        finally:
            self._last = (name, self._clock.elapsed_s())
            self._leaving.discard(name)
            self._look_again()

    def lost(self, name: str) -> None:
        """Its lease is another's: nothing more is sent for it."""
        self._lost.add(name)
        self._look_again()

    def _look_again(self) -> None:
        self._is_due = True
        self._wakeup.set()

    async def _drop(self, name: str) -> None:
        try:
            await self._release(name)
        finally:
            self._leaving.discard(name)

    async def leave(self, within_s: float) -> None:
        """Hand all that is ours over at once; where something is still in flight then, the lease has to run out."""
        tasks = [asyncio.create_task(self._hand_over(name), name=f"leave {name}") for name in self._titles.names()]
        if tasks:
            await asyncio.wait(tasks, timeout=within_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- for heartbeats -------------------------------------------------------------------------------------

    def owner(self, name: str) -> str:
        """Who hears of this node: its holder, or whoever it would be for."""
        if self._titles.has(name):
            return self._members.me
        holder = _holder(self._leases.get(f"{LEASE_NAMESPACE}/{name}"))
        if holder not in ("", self._members.me) and self._members.is_alive(holder):
            return holder
        return rank(name, self._members.alive())[0]
