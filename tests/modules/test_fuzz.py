"""Bytes from anybody, more than ten thousand, by lot: no crash, no node, nothing outside the cache."""

import contextlib
import io
import json
import random
import stat
import zipfile
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import pytest

from fairlead.cluster.clock import RealClock
from fairlead.modules import arklet
from fairlead.modules.arklet import Answer, Outcome, health_of, outcome_of, read_answer, sentence_of, states_of
from fairlead.modules.base.artefact import BadArtefact, Limits, unpack
from fairlead.modules.base_node import NodeOptions
from fairlead.modules.bases import Bases, Refused, Trust, parse_networks
from fairlead.modules.broker import BrokerAddress
from fairlead.modules.client import ArkletClient
from fairlead.modules.heartbeats import Heartbeat, Unreadable, parse_heartbeat
from fairlead.modules.provider import ArkletProvider
from fairlead.modules.spec import Module
from fairlead.modules.tunnel import MqttTunnel
from fairlead.nodes.provider import RunPhase, Sandbox
from fairlead.nodes.spec import KubeletPod
from fairlead.testing.base_suite import pod_of
from fairlead.testing.provider_suite import runs_of
from tests.modules.test_bases import FakeKubelet

HEARTBEATS: Final = 5000
MESSAGES: Final = 3500
REPLIES: Final = 3500
ARTEFACTS: Final = 800

BEAT: Final = {
    "baseMetadata": {"identity": "10.1.1.1", "name": "base", "version": "1.0.0", "clusterName": "default"},
    "localIP": "127.0.0.1",
    "localHostName": "h",
    "port": 1238,
    "state": "activated",
    "bootId": "b",
    "podName": "p",
    "podNamespace": "n",
    "podUid": "u",
}
INFO: Final = {"bizName": "cart", "bizVersion": "1", "bizState": "activated", "bizStateRecords": [{"changeTime": 5}]}
REPLY: Final = {
    "code": "SUCCESS",
    "message": "m",
    "errorStackTrace": "Caused by: x",
    "data": {
        "code": "SUCCESS",
        "bizInfos": [INFO],
        "status": "FAILED",
        "throwable": {"@type": "t", "message": "m", "cause": {"message": "x"}},
        "healthData": {"jvm": {"java max metaspace": 5}, "masterBizInfo": {"bizState": "activated"}},
    },
}
HOSTILE: Final[list[Any]] = [
    None,
    True,
    -1,
    2**64,
    1e308,
    "",
    "../../etc/passwd",
    "x" * 5000,
    "\u0000",
    "+/#",
    [],
    {},
    [[[[[[]]]]]],
    "127.0.0.1",
    "::1",
    "10.1.1.1/8",
    65536,
    "ACTIVATED",
]


def bend(value: Any, rng: random.Random) -> Any:
    """The value with some of its parts replaced, dropped or added, anywhere in it."""
    if rng.random() < 0.12:
        return rng.choice(HOSTILE)
    if isinstance(value, dict):
        kept = {name: bend(part, rng) for name, part in value.items() if rng.random() > 0.08}
        if rng.random() < 0.1:
            kept[rng.choice(["x", "", "localIP", "data", "code"])] = rng.choice(HOSTILE)
        return kept
    if isinstance(value, list):
        return [bend(part, rng) for part in value for _ in range(rng.choice([0, 1, 1, 2]))]
    return value


def damaged(text: bytes, rng: random.Random) -> bytes:
    """Bytes flipped, cut, doubled."""
    data = bytearray(text)
    for _ in range(rng.randint(0, 4)):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
    whole = bytes(data)
    cut = rng.random()
    return whole[: rng.randrange(len(whole) + 1)] if cut < 0.2 else whole * 2 if cut < 0.25 else whole


def drawn(model: Any, rng: random.Random) -> bytes:
    text = json.dumps(bend(model, rng)).encode()
    return damaged(text, rng) if rng.random() < 0.4 else text


class Silent:
    """A client whose bases answer what it is given; nothing where that is all."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer or Answer(problem="nobody")

    async def call(self, *_: object, **__: object) -> Answer:
        return self.answer

    async def modules(self, *_: object) -> Any:
        return states_of(self.answer.data) if self.answer.code == arklet.SUCCESS else None

    async def stats(self, *_: object) -> Any:
        listed = self.answer.data
        return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []

    async def health(self, *_: object) -> Any:
        return health_of(self.answer)

    install = uninstall = call


def bases_of(kubelet: FakeKubelet, client: Silent, trust: Trust) -> Bases:
    clock = RealClock()
    given = cast("ArkletClient", client)
    return Bases(
        cast("Any", kubelet),
        cast("Any", None),
        ArkletProvider(given, clock),
        given,
        NodeOptions(),
        trust,
        clock=clock,
        rng=lambda: 0.5,
        poll_s=5.0,
        remove_s=300.0,
    )


async def test_fuzzed_heartbeats_make_no_node() -> None:
    rng = random.Random(16)
    kubelet = FakeKubelet()
    bases = bases_of(kubelet, Silent(), Trust(parse_networks(["0.0.0.0/0", "::/0"])))
    read = 0
    for _ in range(HEARTBEATS):
        with contextlib.suppress(Unreadable):
            beat = parse_heartbeat(drawn(BEAT, rng))
            read += 1
            with contextlib.suppress(Refused):
                # From wherever it says: all that is missing is an arklet.
                await bases.take_in(bases.believe(beat, beat.ip, ""))
    assert kubelet.nodes == {}
    assert read > HEARTBEATS / 4


async def test_a_heartbeat_that_is_believed_makes_a_node_with_valid_names() -> None:
    """The counterpart: where an arklet answers, the same lot makes nodes, and none that a server would refuse."""
    rng = random.Random(17)
    kubelet = FakeKubelet()
    bases = bases_of(kubelet, Silent(Answer(arklet.SUCCESS, data={})), Trust(parse_networks(["0.0.0.0/0", "::/0"])))
    for _ in range(2000):
        with contextlib.suppress(Unreadable, Refused):
            beat = parse_heartbeat(drawn(BEAT, rng))
            await bases.take_in(bases.believe(beat, beat.ip, ""))
    assert len(kubelet.nodes) > 5
    for name, profile in kubelet.nodes.items():
        assert len(name) <= 63
        assert name == name.lower()
        assert all(len(value) <= 63 and "/" not in value for value in profile.labels.values())


async def test_fuzzed_mqtt_messages_make_no_node_and_end_no_connection() -> None:
    rng = random.Random(18)
    kubelet = FakeKubelet()
    bases = bases_of(kubelet, Silent(), Trust(parse_networks(["0.0.0.0/0", "::/0"])))
    heard: list[str] = []

    async def hear(beat: Heartbeat) -> None:
        heard.append(beat.tunnel)
        with contextlib.suppress(Refused):
            await bases.take_in(bases.believe(beat, beat.ip, ""))

    tunnel = MqttTunnel(
        BrokerAddress("h"), "dev", "t", clock=RealClock(), rng=lambda: 0.5, hear=hear, baseline=lambda metadata: []
    )
    now_ms = int(RealClock().now().timestamp() * 1000)
    models: dict[str, Any] = {
        "heart": BEAT,
        "queryBaseline": BEAT["baseMetadata"],
        "health": REPLY,
        "simpleBiz": [{"name": "cart", "version": "1", "state": "activated", "latestStateRecord": {}}],
        "biz": REPLY,
        "bizOperation": {"command": "installBiz", "bizName": "cart", "bizVersion": "1", "response": REPLY},
        "batchInstallBizResponse": {"command": "batchInstallBiz", "response": REPLY},
        "baseline": [INFO],
        "nosuch": {},
    }
    before = len(tunnel._bases)
    for _ in range(MESSAGES):
        what = rng.choice(list(models))
        identity = rng.choice(["10.1.1.1", "x", "", "é", "a" * 300])
        topic = rng.choice([f"koupleless_dev/{identity}/base/{what}"] * 9 + ["a/b", "", "////", f"x/{what}"])
        payload = drawn({"publishTimestamp": now_ms, "data": models[what]}, rng)
        tunnel._read(topic, payload)
        for task in list(tunnel._tasks):
            await task
    assert kubelet.nodes == {}
    assert heard
    assert before < len(tunnel._bases) <= 5


async def test_fuzzed_replies_of_arklets_are_outcomes_and_run_nothing() -> None:
    rng = random.Random(19)
    client = Silent()
    provider = ArkletProvider(cast("ArkletClient", client), RealClock())
    provider.serve("node", ("127.0.0.1", 1), lambda: None)
    pod = pod_of(Module("shop", "9", "http://h/shop-9.zip"))
    await provider.create(Sandbox(pod))
    counted = dict.fromkeys(Outcome, 0)
    for number in range(REPLIES):
        model = [INFO] if number % 4 == 0 else REPLY
        text = drawn(model if number % 4 else {"code": "SUCCESS", "data": model}, rng)
        answer = read_answer(rng.choice([200] * 9 + [500]), text)
        counted[outcome_of(rng.choice([arklet.INSTALL, arklet.UNINSTALL]), answer)] += 1
        assert len(sentence_of(answer)) <= 4096
        health = health_of(answer)
        assert health is None or health.capacity_bytes >= 0
        client.answer = answer
        await provider.poll("node", rng.choice(["java", "python"]))
        if number % 50 == 0:
            await provider.update(pod.uid, runs_of(pod))
            report = provider.status(pod.uid)
            assert report is not None
            assert report.runs["shop"].phase is RunPhase.WAITING
    await provider.delete(pod.uid)
    assert min(counted[outcome] for outcome in (Outcome.DONE, Outcome.BROKEN, Outcome.UNKNOWN)) > 50


GOOD_NAMES: Final = ["m.py", "lib/a.py", "a/b/c.txt", "é"]
BAD_NAMES: Final = ["../out", "/out", "a/../../out", "a\\b", "C:x", "META-INF/MANIFEST.MF", "m.py/x", ""]


def hostile_archive(rng: random.Random) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as zipped:
        manifest = "Ark-Biz-Name: {}\nArk-Biz-Version: {}\nStart-Class: {}\nweb-context-path: {}\n".format(
            rng.choice(["m"] * 9 + ["../m", "", "a" * 300]),
            rng.choice(["1"] * 9 + ["..", "1/2"]),
            rng.choice(["m:main"] * 9 + ["m", "os:system('x')"]),
            rng.choice(["", "/m", "/m", "/../m"]),
        )
        if rng.random() < 0.9:
            zipped.writestr("META-INF/MANIFEST.MF", manifest)
        for _ in range(rng.randint(0, 3)):
            info = zipfile.ZipInfo(rng.choice(GOOD_NAMES * 3 + BAD_NAMES))
            kind = rng.choice([0, 0, 0, 0, stat.S_IFREG, stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
            info.external_attr = (kind | 0o777) << 16
            content = b"\0" * 300_000 if rng.random() < 0.05 else rng.choice([b"x = 1\n", b"/etc", b"../../out"])
            zipped.writestr(info, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_k72_fuzzed_artefacts_write_nothing_outside_the_cache(tmp_path: Path) -> None:
    rng = random.Random(20)
    home = tmp_path / "home"
    cache = home / "cache"
    cache.mkdir(parents=True)
    path = tmp_path / "a.zip"
    limits = Limits(unpacked_bytes=200_000, entries=10)
    kept = 0
    for _ in range(ARTEFACTS):
        data = hostile_archive(rng)
        path.write_bytes(damaged(data, rng) if rng.random() < 0.5 else data)
        with contextlib.suppress(BadArtefact):
            manifest, folder = unpack(path, cache, limits)
            kept += 1
            assert folder.is_relative_to(cache)
            assert manifest.entry == "m:main"
    assert kept > 10
    assert [each.name for each in home.iterdir()] == ["cache"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.zip", "home"]
    for each in cache.rglob("*"):
        assert not each.is_symlink()
        assert each.is_file() or each.is_dir()
    assert not [each for each in cache.iterdir() if each.name.startswith(".unpack")]


def test_the_lot_is_large_enough() -> None:
    assert HEARTBEATS + MESSAGES + REPLIES + ARTEFACTS > 10_000
    assert msgspec.json.decode(drawn(BEAT, random.Random(0))) != BEAT
    assert KubeletPod().uid == ""
