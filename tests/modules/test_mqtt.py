"""Bases behind a real Mosquitto: found, called and asked through it, whatever happens to it meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiomqtt
import msgspec
import pytest

from fairlead.cluster.clock import RealClock
from fairlead.modules import arklet, mqtt
from fairlead.modules.arklet import Outcome, outcome_of, sentence_of
from fairlead.modules.broker import BadBroker, BrokerAddress, parse_broker
from fairlead.modules.client import ArkletClient, TunnelAddress, connections
from fairlead.modules.heartbeats import BaseMetadata, Heartbeat
from fairlead.modules.spec import Module
from fairlead.modules.tunnel import MqttTunnel
from tests.modules.bases import hello, module, running_base
from tests.rigs.install import ensure_mosquitto
from tests.rigs.servers import Mosquitto

FAILS = "def main(context):\n    raise RuntimeError('boom at start')\n"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    program, libraries = ensure_mosquitto()
    with Mosquitto(program, libraries, tmp_path_factory.mktemp("mosquitto")) as running:
        yield running


@dataclass(slots=True)
class Rig:
    tunnel: MqttTunnel
    client: ArkletClient
    broker: Mosquitto
    beats: list[Heartbeat] = field(default_factory=list)
    baseline: list[dict[str, Any]] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)

    def address(self, identity: str) -> TunnelAddress:
        return TunnelAddress("127.0.0.1", identity)

    async def heard(self, identity: str, least: int = 1) -> Heartbeat:
        found: list[Heartbeat] = []

        def is_there() -> bool:
            found[:] = [beat for beat in self.beats if beat.tunnel == identity]
            return len(found) >= least

        await until(is_there)
        return found[-1]


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_true():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.fixture
async def rig(broker: Mosquitto) -> AsyncIterator[Rig]:
    rigs: list[Rig] = []

    async def hear(beat: Heartbeat) -> None:
        rigs[0].beats.append(beat)

    tunnel = MqttTunnel(
        BrokerAddress("127.0.0.1", broker.port),
        "dev",
        "test@@@controller",
        clock=RealClock(),
        rng=lambda: 0.1,
        hear=hear,
        baseline=lambda metadata: rigs[0].baseline,
        count=lambda outcome: rigs[0].outcomes.append(outcome),
    )
    async with connections() as session:
        rigs.append(Rig(tunnel, ArkletClient(session, tunnel=tunnel), broker))
        running = asyncio.create_task(tunnel.run())
        await until(lambda: tunnel.is_connected)
        yield rigs[0]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def behind(broker: Mosquitto, data: Path, identity: str) -> Any:
    return running_base(data, "--mqtt", f"127.0.0.1:{broker.port}", "--identity", identity)


@asynccontextmanager
async def speaking(broker: Mosquitto) -> AsyncIterator[aiomqtt.Client]:
    async with aiomqtt.Client("127.0.0.1", broker.port) as client:
        yield client


def envelope(data: Any, at_ms: int) -> bytes:
    return msgspec.json.encode({"data": data, "publishTimestamp": at_ms})


def now_ms() -> int:
    return int(RealClock().now().timestamp() * 1000)


def heartbeat(identity: str, **other: Any) -> dict[str, Any]:
    metadata = {"clusterName": "default", "identity": identity, "name": "TO_BE_IMPLEMENTED", "version": "1.0.0"}
    body = {"baseMetadata": metadata, "localHostName": "127.0.0.1", "localIP": "127.0.0.1", "port": 0}
    return {**body, "state": "activated", **other}


async def test_a_python_base_behind_a_broker_is_heard_and_takes_commands(rig: Rig, tmp_path: Path) -> None:
    one = Module("hello", "1.0.0", hello(tmp_path))
    fails = Module("fails", "1.0.0", module(tmp_path, "fails", FAILS))
    async with behind(rig.broker, tmp_path / "data", "py-1") as base:
        beat = await rig.heard("py-1")
        assert (beat.metadata.stack, beat.is_active, beat.port) == ("python", True, base.port)
        address = rig.address("py-1")
        health = await rig.client.health(address)
        assert health is not None
        assert (health.state, health.capacity_bytes > 0) == ("ACTIVATED", True)

        answer = await rig.client.install(address, one, request_id="r-1")
        assert outcome_of(arklet.INSTALL, answer) is Outcome.DONE
        assert arklet.identity_installed(answer) == "hello:1.0.0"
        again = await rig.client.install(address, one)
        assert outcome_of(arklet.INSTALL, again) is Outcome.ALREADY
        states = await rig.client.modules(address)
        assert states is not None
        assert [(each.key, each.state) for each in states] == [("hello:1.0.0", "activated")]
        own = await rig.client.call(address, arklet.HEALTH, {"bizName": "hello", "bizVersion": "1.0.0"})
        assert own.fields["healthData"]["bizInfo"]["health"] == "UP"
        log = await rig.client.call(address, arklet.QUERY_LOG, {"bizName": "hello", "bizVersion": "1.0.0"})
        assert "hello 1.0.0 starts" in log.fields["log"]

        broken = await rig.client.install(address, fails)
        assert (outcome_of(arklet.INSTALL, broken), sentence_of(broken)) == (
            Outcome.BROKEN,
            "RuntimeError: boom at start",
        )
        gone = await rig.client.uninstall(address, one)
        assert outcome_of(arklet.UNINSTALL, gone) is Outcome.DONE
        missing = await rig.client.uninstall(address, one)
        assert outcome_of(arklet.UNINSTALL, missing) is Outcome.ALREADY
        assert await base.terminate() == 0
        await until(lambda: any(not each.is_active for each in rig.beats))


async def test_k67_a_base_that_starts_asks_for_its_baseline_and_installs_it(rig: Rig, tmp_path: Path) -> None:
    rig.baseline.append({"bizName": "hello", "bizVersion": "1.0.0", "bizUrl": hello(tmp_path)})
    async with behind(rig.broker, tmp_path / "data", "py-baseline"):
        await rig.heard("py-baseline")
        async with asyncio.timeout(60):
            while not await rig.client.modules(rig.address("py-baseline")):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        states = await rig.client.modules(rig.address("py-baseline"))
        assert states is not None
        assert [each.key for each in states] == ["hello:1.0.0"]


async def test_k66_after_a_restart_of_the_broker_everything_works_and_no_command_is_replayed(
    rig: Rig, tmp_path: Path
) -> None:
    address = rig.address("py-2")
    one = Module("hello", "1.0.0", hello(tmp_path))
    async with behind(rig.broker, tmp_path / "data", "py-2"):
        await rig.heard("py-2")
        assert (await rig.client.install(address, one)).code == arklet.SUCCESS
        assert (await rig.client.uninstall(address, one)).code == arklet.SUCCESS
        rig.broker.stop()
        away = await rig.client.install(address, one)
        assert outcome_of(arklet.INSTALL, away) is Outcome.UNKNOWN
        beats = len(rig.beats)
        rig.broker.start()
        await rig.heard("py-2", beats + 1)
        async with asyncio.timeout(60):
            while await rig.client.modules(address) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert await rig.client.modules(address) == []
        async with speaking(rig.broker) as late:
            await late.subscribe("#", qos=1)
            assert (await rig.client.install(address, one)).code == arklet.SUCCESS
            message = await anext(late.messages)
            assert (str(message.topic), message.retain) == ("koupleless_dev/py-2/installBiz", False)


async def test_k65_a_clock_that_is_off_by_half_a_minute_hides_no_base(rig: Rig) -> None:
    async with speaking(rig.broker) as base:
        await base.publish("koupleless_dev/late/base/heart", envelope(heartbeat("late"), now_ms() - 30_000), qos=1)
        beat = await rig.heard("late")
        assert beat.skew_s == pytest.approx(30, abs=5)
        # A message that took long is old, by the clock of the same base.
        rig.beats.clear()
        await base.publish("koupleless_dev/late/base/heart", envelope(heartbeat("late"), now_ms() - 60_000), qos=1)
        await base.publish("koupleless_dev/late/base/heart", envelope(heartbeat("late"), now_ms() - 30_000), qos=1)
        await rig.heard("late")
        assert len(rig.beats) == 1
        # A clock that is set back is followed after some messages.
        for _ in range(8):
            await base.publish("koupleless_dev/late/base/heart", envelope(heartbeat("late"), now_ms() - 900_000), qos=1)
        await until(lambda: len(rig.beats) >= 2)
        assert rig.beats[-1].skew_s == pytest.approx(900, abs=5)


async def test_a_retained_heartbeat_and_one_of_another_identity_are_nobodys(rig: Rig) -> None:
    async with speaking(rig.broker) as base:
        await base.publish("koupleless_dev/old/base/heart", envelope(heartbeat("old"), now_ms()), qos=1, retain=True)
        await base.publish("koupleless_dev/liar/base/heart", envelope(heartbeat("other"), now_ms()), qos=1)
        await base.publish("koupleless_dev/bad/base/heart", b"{", qos=1)
        await base.publish("koupleless_dev/good/base/heart", envelope(heartbeat("good"), now_ms()), qos=1)
        await rig.heard("good")
        assert {"refused", "malformed"} <= set(rig.outcomes)
        assert {beat.tunnel for beat in rig.beats} == {"old", "good"}
        rig.broker.stop()
        rig.broker.start()
        rig.beats.clear()
    async with asyncio.timeout(60):
        while not rig.tunnel.is_connected:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    async with speaking(rig.broker) as base:
        await base.publish("koupleless_dev/good/base/heart", envelope(heartbeat("good"), now_ms()), qos=1)
        await rig.heard("good")
        assert {beat.tunnel for beat in rig.beats} == {"good"}


async def test_a_java_base_as_recorded_answers_through_the_tunnel(rig: Rig) -> None:
    """The messages of arklet 2.1.11, word for word; Maven does not have it."""
    trace = "java.io.IOException: no\\n\\tat X\\nCaused by: java.io.FileNotFoundException: /nosuch.jar\\n"
    answers = {
        "installBiz": (
            "bizOperation",
            '{"bizName":"plain","response":{"code":"FAILED","data":{"code":"FAILED","message":"TRACE"},'
            '"message":"install biz not success!"},"command":"installBiz","bizVersion":"1.0.0"}'.replace(
                "TRACE", trace
            ),
        ),
        "uninstallBiz": (
            "bizOperation",
            '{"bizName":"plain","response":{"code":"FAILED","data":{"code":"NOT_FOUND_BIZ","message":"gone"},'
            '"message":"uninstall biz not success!"},"command":"uninstallBiz","bizVersion":"1.0.0"}',
        ),
        "queryAllBiz": (
            "simpleBiz",
            '[{"latestStateRecord":{},"name":"plain","state":"activated","version":"1.0.0"}]',
        ),
        "health": (
            "health",
            '{"code":"SUCCESS","data":{"healthData":{"jvm":{"java max metaspace":268435456},'
            '"masterBizInfo":{"bizName":"base","bizState":"ACTIVATED"}}}}',
        ),
    }

    async with speaking(rig.broker) as java:
        await java.subscribe("koupleless_dev/jv/+")

        async def answer() -> None:
            async for message in java.messages:
                what, data = answers[str(message.topic).rpartition("/")[2]]
                payload = f'{{"data":{data},"publishTimestamp":{now_ms()}}}'
                await java.publish(f"koupleless_dev/jv/base/{what}", payload, qos=1)

        answering = asyncio.create_task(answer())
        address, plain = rig.address("jv"), Module("plain", "1.0.0", "file:///nosuch.jar")
        failed = await rig.client.install(address, plain)
        assert outcome_of(arklet.INSTALL, failed) is Outcome.BROKEN
        assert sentence_of(failed) == "java.io.FileNotFoundException: /nosuch.jar"
        assert outcome_of(arklet.UNINSTALL, await rig.client.uninstall(address, plain)) is Outcome.ALREADY
        states = await rig.client.modules(address)
        assert states is not None
        assert [(each.key, each.state) for each in states] == [("plain:1.0.0", "activated")]
        health = await rig.client.health(address)
        assert health is not None
        assert health.capacity_bytes == 268435456
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)


async def test_a_base_that_does_not_answer_is_an_unknown_outcome(rig: Rig) -> None:
    answer = await rig.client.call(rig.address("nobody"), arklet.HEALTH, {}, timeout_s=0.2)
    assert answer.problem == "no answer through the broker within 0.2 s"
    assert rig.tunnel._waiting == {}
    unsupported = await rig.client.call(rig.address("nobody"), arklet.QUERY_OPS, {})
    assert unsupported.code == arklet.UNKNOWN_COMMAND


async def test_a_base_is_heard_though_many_were_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    beats: list[Heartbeat] = []

    async def hear(beat: Heartbeat) -> None:
        beats.append(beat)

    monkeypatch.setattr("fairlead.modules.tunnel.MOST_BASES", 3)
    address = BrokerAddress("127.0.0.1")
    clock = RealClock()
    tunnel = MqttTunnel(
        address, "dev", "c", clock=clock, rng=lambda: 0.1, hear=hear, baseline=lambda metadata: None
    )  # fmt: skip
    for number in range(5):
        identity = f"base-{number}"
        tunnel._receive(f"koupleless_dev/{identity}/base/heart", envelope(heartbeat(identity), now_ms()))
    await asyncio.gather(*tunnel._tasks)
    assert [beat.tunnel for beat in beats] == [f"base-{number}" for number in range(5)]
    assert len(tunnel._bases) == 3


def test_addresses_of_brokers() -> None:
    assert parse_broker("broker.example:8883") == ("broker.example", 8883)
    assert parse_broker("broker.example") == ("broker.example", 1883)
    assert parse_broker("[::1]:1884") == ("::1", 1884)
    for bad in ("", ":1883", "host:0", "host:x", "host:99999"):
        with pytest.raises(BadBroker, match="HOST:PORT"):
            parse_broker(bad)
    with pytest.raises(BadBroker, match="No such file"):
        BrokerAddress("h", password_file="/nosuch/password").check()


def test_an_answer_is_of_the_calls_about_the_same_module() -> None:
    base = mqtt.parse_message("koupleless_dev/i/base/health", b'{"data":{"code":"SUCCESS","data":{"healthData":{}}}}')
    assert base is not None
    reply = mqtt.reply_of(base)
    assert reply is not None
    assert reply.key == ("health", "")
    assert mqtt.reply_of(mqtt.Message("i", "heart", 0, {})) is None
    assert mqtt.parse_message("koupleless_dev/i/base/baseline", b"[]") is None
    assert BaseMetadata().stack == "java"
