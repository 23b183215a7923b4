"""The MQTT tunnel of the controller: heartbeats of bases behind a broker, commands to them, and their answers.

    call ─▶ koupleless_ENV/IDENTITY/installBiz ─▶ base ─▶ koupleless_ENV/IDENTITY/base/bizOperation ─▶ Answer

Answers bear no number: an answer is that of every call to the base which waits for such a one. One subscription
covers every base, so that a broker which comes back needs nothing but it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
import structlog

from fairlead.cluster.backoff import Rng
from fairlead.cluster.clock import Clock
from fairlead.modules import arklet, mqtt
from fairlead.modules.arklet import Answer
from fairlead.modules.broker import Broker, BrokerAddress
from fairlead.modules.heartbeats import BaseMetadata, Heartbeat, Unreadable

log = structlog.get_logger("fairlead.modules")

SKEW_MESSAGES: Final = 8
"""The base's clock is judged by so many last messages: the quickest one says how far it is off."""
WARN_SKEW_MS: Final = 5000
MOST_BASES: Final = 5000
MOST_TASKS: Final = 1000

Hear = Callable[[Heartbeat], Awaitable[None]]
Baseline = Callable[[BaseMetadata], list[dict[str, Any]] | None]
"""What a base starts with; None where somebody else tells it."""


@dataclass(slots=True)
class Correspondent:
    """A base as its messages show it."""

    delays_ms: deque[int] = field(default_factory=lambda: deque(maxlen=SKEW_MESSAGES))

    @property
    def skew_ms(self) -> int:
        """How far the base's clock is behind ours, as far as its messages tell."""
        return min(self.delays_ms, default=0)


class MqttTunnel:
    def __init__(
        self,
        address: BrokerAddress,
        env: str,
        identifier: str,
        *,
        clock: Clock,
        rng: Rng,
        hear: Hear,
        baseline: Baseline,
        count: Callable[[str], None] = lambda outcome: None,
    ) -> None:
        """`hear` is given heartbeats and may refuse them; `baseline` says what a base starts with."""
        self._env = env
        self._clock = clock
        self._hear = hear
        self._baseline = baseline
        self._count = count
        self._bases: dict[str, Correspondent] = {}
        self._waiting: dict[tuple[str, str, str], list[asyncio.Future[Answer]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        topics = [mqtt.topic(env, "+", "base/+")]
        self._broker = Broker(address, identifier, topics, self._receive, clock=clock, rng=rng)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await self._broker.run()
        finally:
            for task in self._tasks:
                task.cancel()

    @property
    def is_connected(self) -> bool:
        return self._broker.is_connected

    def skew_s(self, identity: str) -> float:
        """How far the clock of a base is behind ours."""
        known = self._bases.get(identity)
        return known.skew_ms / 1000 if known is not None else 0.0

    async def call(self, identity: str, command: str, body: Mapping[str, Any], timeout_s: float) -> Answer:
        """The base's answer, or one that says why there is none."""
        # An asynchronous command is followed by a query that the tunnel does not have; its result comes by itself.
        plain = {name: value for name, value in body.items() if name not in ("async", "requestId")}
        key = (identity, command, mqtt.subject_of(plain))
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(answered)
        try:
            async with asyncio.timeout(timeout_s):
                sent = await self._broker.publish(mqtt.topic(self._env, identity, command), msgspec.json.encode(plain))
                if not sent:
                    return Answer(problem="the broker is away")
                return await answered
        except TimeoutError:
            return Answer(problem=f"no answer through the broker within {timeout_s:g} s")
        finally:
            waiting = self._waiting.get(key, [])
            with suppress(ValueError):
                waiting.remove(answered)
            if not waiting:
                self._waiting.pop(key, None)

    # -- messages -------------------------------------------------------------------------------------------

    def _receive(self, topic: str, payload: bytes) -> None:
        try:
            self._read(topic, payload)
        except Exception:
            # One base's bytes must not end the connection of all.
            log.exception("bug while reading a message", topic=topic[:200])

    def _read(self, topic: str, payload: bytes) -> None:
        now_ms = int(self._clock.now().timestamp() * 1000)
        message = mqtt.parse_message(topic, payload)
        if message is None:
            if mqtt.is_from_base(topic):
                self._count("malformed")
            return
        base = self._correspondent(message.identity)
        self._note(message, base, now_ms)
        if (reply := mqtt.reply_of(message)) is not None:
            for waiting in self._waiting.pop((message.identity, *reply.key), []):
                if not waiting.done():
                    waiting.set_result(reply.answer)
            return
        try:
            report = mqtt.report_of(message, now_ms=now_ms, skew_ms=base.skew_ms)
        except Unreadable:
            self._count("malformed")
            return
        if report is None:
            return
        if report.heartbeat is not None:
            self._begin(self._heartbeat(message.identity, report.heartbeat))
        elif report.query is not None:
            self._begin(self._answer_query(message.identity, report.query))

    def _correspondent(self, identity: str) -> Correspondent:
        """The one that was silent for the longest time makes room for another: nothing is lost but its clock."""
        known = self._bases[identity] = self._bases.pop(identity, Correspondent())
        if len(self._bases) > MOST_BASES:
            del self._bases[next(iter(self._bases))]
        return known

    def _note(self, message: mqtt.Message, base: Correspondent, now_ms: int) -> None:
        if not message.at_ms:
            return
        before = base.skew_ms
        base.delays_ms.append(now_ms - message.at_ms)
        if abs(base.skew_ms) >= WARN_SKEW_MS > abs(before):
            log.warning("the clock of a base is off", base=message.identity[:200], behind_s=base.skew_ms / 1000)

    def _begin(self, work: Any) -> None:
        if len(self._tasks) >= MOST_TASKS:
            work.close()
            self._count("dropped")
            return
        task = asyncio.create_task(work, name="mqtt: message")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _heartbeat(self, identity: str, beat: Heartbeat) -> None:
        if beat.metadata.identity != identity:
            self._count("refused")
            log.warning("heartbeat refused", base=identity[:200], reason="its topic and its identity differ")
            return
        try:
            await self._hear(replace(beat, tunnel=identity, skew_s=self.skew_s(identity)))
        except Exception:
            log.exception("bug in handling a heartbeat", base=identity[:200])

    async def _answer_query(self, identity: str, metadata: BaseMetadata) -> None:
        known = self._baseline(metadata) if metadata.identity == identity else None
        if known is not None:
            body = msgspec.json.encode(known)
            await self._broker.publish(mqtt.topic(self._env, identity, "base/baseline"), body)


def is_sent_by_tunnel(command: str) -> bool:
    """What bases with a tunnel answer; the last two Python's only."""
    known = (arklet.INSTALL, arklet.UNINSTALL, arklet.HEALTH, arklet.QUERY_ALL, arklet.QUERY_LOG, arklet.STATS)
    return command in known
