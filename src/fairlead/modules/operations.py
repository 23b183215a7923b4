"""Installs under way on bases: one look at a base serves all that is being installed there.

Used by `modules.provider`. Arklet carries installs out by itself and tells nobody when one has ended, so it is asked;
the more bases are at work, the less often each is, so that asking never costs more than installing. Whoever waits
first looks for all; there is no task of its own that could be left over.
"""

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from fairlead.cluster.clock import Clock
from fairlead.cluster.waits import first_of
from fairlead.modules import arklet
from fairlead.modules.arklet import Answer, Outcome, outcome_of
from fairlead.modules.client import ArkletClient
from fairlead.modules.spec import ACTIVATED, BROKEN, DEACTIVATED, ModuleState

FIRST_WAIT_S: Final = 0.2
WAIT_SHARE: Final = 0.05
MOST_WAIT_S: Final = 1.0
MOST_OPERATION_S: Final = 600.0
QUIET_S: Final = 30.0
"""Where the installs of a base end one after the other, one that has failed is seen after this."""
CALLS_PER_S: Final = 150.0
"""How often all bases together are asked, where many are at work."""

States = list[ModuleState] | None


@dataclass(slots=True)
class Operation:
    key: str
    """Of the module: `name:version`."""
    request_id: str
    begun_s: float
    queried_s: float
    """When it was last asked about by itself, or begun."""
    end: tuple[Answer, States] | None = None
    """What it came to, and every module of the base where that is how it was seen."""
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    """It is over, or its waiter is to look from now on."""


@dataclass(slots=True)
class BusyBase:
    """A base with installs under way."""

    address: Callable[[], tuple[str, int]]
    changed_s: float
    """When an install was last begun, or seen to have ended."""
    looked_s: float
    operations: list[Operation] = field(default_factory=list)
    looker: Operation | None = None
    """Whose waiter looks for all; only that one is woken by what is not its own."""

    def wake_looker(self) -> None:
        if self.looker is not None:
            self.looker.wakeup.set()


class Operations:
    def __init__(self, client: ArkletClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._bases: dict[str, BusyBase] = {}

    async def wait(
        self, node: str, address: Callable[[], tuple[str, int]], key: str, request_id: str
    ) -> tuple[Answer, States]:
        """Until the install is over, or too long under way: its answer, and what the base has where that was seen."""
        now_s = self._clock.elapsed_s()
        base = self._bases.setdefault(node, BusyBase(address, now_s, now_s))
        operation = Operation(key, request_id, now_s, now_s)
        base.operations.append(operation)
        base.changed_s = now_s
        base.wake_looker()
        try:
            while operation.end is None:
                operation.wakeup.clear()
                base.looker = base.looker or operation
                if base.looker is operation:
                    await self._look_when_due(base, operation.wakeup)
                else:
                    await operation.wakeup.wait()
            return operation.end
        finally:
            self._leave(node, base, operation)

    def _leave(self, node: str, base: BusyBase, operation: Operation) -> None:
        base.operations.remove(operation)
        if base.looker is operation:
            base.looker = base.operations[0] if base.operations else None
            base.wake_looker()
        if not base.operations and self._bases.get(node) is base:
            del self._bases[node]

    def observe(self, node: str, states: Iterable[ModuleState]) -> None:
        """Somebody has looked for another reason."""
        base = self._bases.get(node)
        if base is not None:
            base.looked_s = self._clock.elapsed_s()
            self._take_in(base, list(states))

    async def _look_when_due(self, base: BusyBase, wakeup: asyncio.Event) -> None:
        """One look, unless something happens before it is due."""
        now_s = self._clock.elapsed_s()
        due_s = base.looked_s + look_wait_s(now_s - base.changed_s, len(self._bases))
        if due_s > now_s:
            await first_of(wakeup.wait(), self._clock.sleep(due_s - now_s))
        if not wakeup.is_set():
            await self._look(base)

    async def _look(self, base: BusyBase) -> None:
        now_s = self._clock.elapsed_s()
        # Looks that are late for want of time are no reason to ask for more.
        between_s = min(now_s - base.looked_s, look_wait_s(now_s - base.changed_s, len(self._bases)))
        base.looked_s = now_s
        is_news = False
        if len(base.operations) > 1:
            # What has succeeded is there: one question for all of them.
            states = await self._client.modules(base.address())
            is_news = states is not None and self._take_in(base, states)
        # Where one has ended the base goes on: the others are asked about one by one if that was long ago.
        before_s = now_s - (QUIET_S if is_news else MOST_WAIT_S) if len(base.operations) > 1 else math.inf
        for operation in to_ask(base.operations, between_s, len(self._bases), before_s):
            operation.queried_s = now_s
            body: dict[str, object] = {"requestId": operation.request_id}
            answer = await self._client.call(base.address(), arklet.QUERY_OPS, body)
            if outcome_of(arklet.INSTALL, answer) is not Outcome.RUNNING:
                self._end(base, operation, answer, None)
        for operation in base.operations:
            if now_s - operation.begun_s > MOST_OPERATION_S:
                self._end(base, operation, Answer(problem="the install does not end"), None)

    def _take_in(self, base: BusyBase, states: list[ModuleState]) -> bool:
        """Whether an install is over by that."""
        under_way = sum(each.end is None for each in base.operations)
        by_key = {state.key: state.state.upper() for state in states}
        for operation in base.operations:
            match by_key.get(operation.key):
                case word if word in (ACTIVATED, DEACTIVATED):
                    self._end(base, operation, Answer(code=arklet.SUCCESS), states)
                case word if word == BROKEN:
                    operation.queried_s = -math.inf
        return sum(each.end is None for each in base.operations) < under_way

    def _end(self, base: BusyBase, operation: Operation, answer: Answer, states: States) -> None:
        if operation.end is None:
            operation.end = (answer, states)
            base.changed_s = self._clock.elapsed_s()
            operation.wakeup.set()


def look_wait_s(waited_s: float, bases: int) -> float:
    """Until a base is looked at again: the longer nothing has happened, the less a moment matters."""
    usual_s = min(MOST_WAIT_S, max(FIRST_WAIT_S, waited_s * WAIT_SHARE))
    return max(usual_s, 2 * bases / CALLS_PER_S)


def to_ask(
    operations: Iterable[Operation], between_s: float, bases: int, before_s: float = math.inf
) -> list[Operation]:
    """Those asked about one by one, longest ago first: an install that failed is seen in no other way.

    `before_s`: only those last asked about before."""
    waiting = [each for each in operations if each.end is None and each.queried_s < before_s]
    most = max(1, int(CALLS_PER_S * between_s / bases) - 1)
    return sorted(waiting, key=lambda each: each.queried_s)[:most]
