"""The base's MQTT tunnel: heartbeats, commands and their results through a broker, on Koupleless's topics.

Beside HTTP or instead of it. Heartbeats go on whatever happens to a single one; the baseline is asked for once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import structlog

from fairlead.cluster.backoff import Rng
from fairlead.cluster.clock import Clock
from fairlead.cluster.waits import first_of
from fairlead.modules import arklet
from fairlead.modules.base.records import epoch_ms
from fairlead.modules.broker import Broker, BrokerAddress
from fairlead.modules.mqtt import MOST_MESSAGE_BYTES, topic

log = structlog.get_logger("fairlead.base")

HEARTBEAT_S: Final = 10.0
MOST_COMMANDS: Final = 100
"""At work at once; more are dropped, as a base that is not there drops them."""

Reply = dict[str, Any]
CarryOut = Callable[[str, dict[str, Any]], Awaitable[Reply]]


class BaseTunnel:
    def __init__(
        self,
        address: BrokerAddress,
        env: str,
        prefix: str,
        heartbeat: dict[str, Any],
        carry_out: CarryOut,
        *,
        clock: Clock,
        rng: Rng,
    ) -> None:
        """`heartbeat`: what the base says of itself, without its state."""
        self._env = env
        self._body = heartbeat
        self._identity: str = heartbeat["baseMetadata"]["identity"]
        self._carry_out = carry_out
        self._clock = clock
        self._rng = rng
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_baseline = False
        self._connected = asyncio.Event()
        self._broker = Broker(
            address,
            f"{prefix}@@@{self._identity}",
            [topic(env, self._identity, "+"), topic(env, self._identity, "base/baseline")],
            self._receive,
            clock=clock,
            rng=rng,
            on_connected=self._connected.set,
        )

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._broker.run(), name="mqtt: broker")
            while True:
                self._connected.clear()
                if await self.send("activated") and not self._has_baseline:
                    # Once in the life of a base: later its modules are the controller's matter.
                    self._has_baseline = await self._publish("base/queryBaseline", self._body["baseMetadata"])
                # At once after each connection, then from time to time.
                pause_s = HEARTBEAT_S * (0.9 + 0.2 * self._rng())
                await first_of(self._clock.sleep(pause_s), self._connected.wait())

    async def send(self, state: str) -> bool:
        return await self._publish("base/heart", {**self._body, "state": state})

    async def _publish(self, what: str, data: Any) -> bool:
        envelope = {"data": data, "publishTimestamp": epoch_ms(self._clock.now())}
        return await self._broker.publish(topic(self._env, self._identity, what), msgspec.json.encode(envelope))

    def _receive(self, name: str, payload: bytes) -> None:
        what = name.rpartition("/")[2]
        if len(payload) > MOST_MESSAGE_BYTES or len(self._tasks) >= MOST_COMMANDS:
            log.warning("command dropped", command=what)
            return
        try:
            body = msgspec.json.decode(payload) if payload.strip() else {}
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
            log.warning("command not readable", command=what, problem=str(problem))
            return
        if what == "baseline":
            work = self._take_baseline(body)
        elif isinstance(body, dict):
            work = self._command(what, body)
        else:
            return
        task = asyncio.create_task(work, name=f"mqtt: {what}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take_baseline(self, listed: Any) -> None:
        if not isinstance(listed, list):
            return
        reply = await self._carry_out(arklet.BATCH_INSTALL, {"bizList": listed})
        await self._publish("base/batchInstallBizResponse", {"command": arklet.BATCH_INSTALL, "response": loud(reply)})

    async def _command(self, command: str, body: dict[str, Any]) -> None:
        reply = await self._carry_out(command, body)
        match command:
            case arklet.QUERY_ALL:
                await self._publish("base/simpleBiz", [_brief(each) for each in reply.get("data") or ()])
            case arklet.HEALTH:
                await self._publish("base/health", loud(reply))
            case _ if reply["code"] != arklet.UNKNOWN_COMMAND:
                result = {"command": command, "response": loud(reply)}
                names = {name: str(body[name]) for name in ("bizName", "bizVersion") if name in body}
                await self._publish("base/bizOperation", {**result, **names})
            case _:
                log.warning("unknown command", command=command[:100])


def _brief(info: dict[str, Any]) -> dict[str, Any]:
    records = info.get("bizStateRecords") or [{}]
    return {
        "latestStateRecord": records[-1],
        "name": info["bizName"],
        "state": str(info["bizState"]).lower(),
        "version": info["bizVersion"],
    }


def loud(reply: Any) -> Any:
    """The reply with states in capitals, as arklet spells them over MQTT."""
    if isinstance(reply, dict):
        return {name: value.upper() if name == "bizState" else loud(value) for name, value in reply.items()}
    return [loud(each) for each in reply] if isinstance(reply, list) else reply
