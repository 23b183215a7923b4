"""One contract over three kinds of bases: a real Java base, the Python base, and the one that only acts."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fairlead.modules import arklet
from fairlead.modules.arklet import Outcome, outcome_of
from fairlead.modules.client import ArkletClient, connections
from fairlead.modules.heartbeats import parse_heartbeat
from fairlead.modules.spec import Module
from fairlead.testing.base_suite import BaseCase, BaseSuite
from fairlead.testing.mock_base import MockBase
from tests.modules.bases import PythonBase, module
from tests.rigs.install import ensure_java_bases
from tests.rigs.servers import JavaBase

pytestmark = pytest.mark.xdist_group("java-bases")

PLAIN = "def main(context):\n    print('plain starts with', *context['args'])\n"
SLOW = "import time\ndef main(context):\n    time.sleep(1.5)\n"
FAILING = "def main(context):\n    raise RuntimeError('boom at start')\n"


@pytest.fixture(scope="module")
def jars() -> Path:
    return ensure_java_bases()


@pytest.fixture(scope="module")
def java(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaBase]:
    with JavaBase(jars, tmp_path_factory.mktemp("java")) as base:
        yield base


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PythonBase]:
    with PythonBase(tmp_path_factory.mktemp("python")) as base:
        yield base


@pytest.fixture(scope="module")
def zips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modules")
    for name, version, source in (
        ("plain", "1.0.0", PLAIN),
        ("plain", "2.0.0", PLAIN),
        ("slow", "1.0.0", SLOW),
        ("failing", "1.0.0", FAILING),
    ):
        module(folder, name, source, version=version)
    return folder


class TestJavaBase(BaseSuite):
    @pytest.fixture
    async def case(self, java: JavaBase, jars: Path) -> AsyncIterator[BaseCase]:
        async with connections() as session:
            case = BaseCase(
                ArkletClient(session), java.address, lambda name, version: f"file://{jars}/{name}-{version}.jar"
            )
            yield case
            await case.clear()


class TestPythonBase(BaseSuite):
    @pytest.fixture
    async def case(self, python: PythonBase, zips: Path) -> AsyncIterator[BaseCase]:
        async with connections() as session:
            case = BaseCase(
                ArkletClient(session),
                python.address,
                lambda name, version: f"file://{zips}/{name}-{version}.zip",
                stack="python",
            )
            yield case
            await case.clear()


class TestMockBase(BaseSuite):
    @pytest.fixture
    async def case(self) -> AsyncIterator[BaseCase]:
        async with MockBase(install_s=0.3).serving() as base, connections() as session:
            address = ("127.0.0.1", base.port)
            yield BaseCase(ArkletClient(session), address, lambda name, version: f"http://h/{name}-{version}.zip")


async def test_k26_a_java_base_of_before_batches_says_so(java: JavaBase) -> None:
    async with connections() as session:
        answer = await ArkletClient(session).call(java.address, arklet.BATCH_INSTALL, {"bizList": []})
    assert outcome_of(arklet.BATCH_INSTALL, answer) is Outcome.UNSUPPORTED


async def test_a_leaking_module_leaves_memory_behind_on_a_java_base(java: JavaBase, jars: Path) -> None:
    leaking = Module("leaking", "1.0.0", f"file://{jars}/leaking-1.0.0.jar")
    used = []
    async with connections() as session:
        client = ArkletClient(session)
        for _ in range(4):
            assert (await client.install(java.address, leaking)).code == arklet.SUCCESS
            assert (await client.uninstall(java.address, leaking)).code == arklet.SUCCESS
            health = await client.health(java.address)
            assert health is not None
            used.append(health.used_bytes or 0)
    # Some 0.7 MB of classes each time, of which nothing is given back.
    assert used[3] - used[0] > 3 * 400_000


async def test_a_java_base_announces_itself_and_serves_a_web_module(jars: Path, tmp_path: Path) -> None:
    beats: asyncio.Queue[bytes] = asyncio.Queue()

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        beats.put_nowait(await reader.readexactly(length))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nSUCCESS")
        await writer.drain()
        writer.close()

    def get(url: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, ""

    async with await asyncio.start_server(hear, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        flags = (
            f"-Dfairlead.heartbeat=http://127.0.0.1:{port}",
            "-Dfairlead.identity=web-1",
            "-Dfairlead.goodbye=true",
        )
        base = JavaBase(jars, tmp_path, *flags, web=True)
        await asyncio.to_thread(base.start)
        try:
            beat = parse_heartbeat(await asyncio.wait_for(beats.get(), 60))
            assert (beat.metadata.identity, beat.port, beat.is_active) == ("web-1", base.port, True)
            async with connections() as session:
                client = ArkletClient(session)
                web = Module("web", "1.0.0", f"file://{jars}/web-1.0.0-ark-biz.jar")
                assert outcome_of(arklet.INSTALL, await client.install(base.address, web)) is Outcome.DONE
                url = f"http://127.0.0.1:{base.web_port}/web/hello"
                assert await asyncio.to_thread(get, url) == (200, "hello from module web")
                assert outcome_of(arklet.UNINSTALL, await client.uninstall(base.address, web)) is Outcome.DONE
                assert (await asyncio.to_thread(get, url))[0] == 404
        finally:
            await asyncio.to_thread(base.stop)
        while not beats.empty():
            beat = parse_heartbeat(beats.get_nowait())
        assert not beat.is_active
