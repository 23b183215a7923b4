"""Commands in containers and containers themselves, with their streams: what they see, and that none is left behind."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from fairlead.cluster.clock import RealClock
from fairlead.local.providers.lowports import may_listen_low
from fairlead.local.providers.process import ProcessProvider
from fairlead.nodes.provider import (
    File,
    Folder,
    Interactive,
    NotRunning,
    NotStarted,
    ProviderError,
    RunPhase,
    Session,
    StreamOptions,
    Unsupported,
)
from fairlead.nodes.spec import KubeletPod
from tests.local.providers.test_process import Machine, at_work, pod, until

OUTPUT_ONLY = StreamOptions()
WITH_INPUT = StreamOptions(stdin=True)
TERMINAL = StreamOptions(stdin=True, tty=True)


@pytest.fixture(params=[True, False], ids=["mounts", "no mounts"])
async def machine(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Machine]:
    async with at_work(ProcessProvider(tmp_path, clock=RealClock(), mounts=request.param)) as made:
        yield made


async def running(machine: Machine, name: str = "p", *command: str, **container: Any) -> KubeletPod:
    started = pod(name, *(command or ("sleep", "1000")), **container)
    await machine.start(started)
    await until(lambda: machine.report(started).phase is RunPhase.RUNNING)
    return started


async def everything(session: Session, stream: int = 1) -> bytes:
    text = b""
    while data := await session.read(stream):
        text += data
    return text


async def until_read(session: Session, wanted: bytes) -> bytes:
    text = b""
    async with asyncio.timeout(30):
        while wanted not in text:
            data = await session.read(1)
            assert data, f"it ended with {text!r}"
            text += data
    return text


@contextlib.asynccontextmanager
async def in_pod(
    machine: Machine, where: KubeletPod, *command: str, options: StreamOptions = OUTPUT_ONLY
) -> AsyncIterator[Session]:
    session = await machine.provider.exec(where.uid, "main", command, options)
    try:
        yield session
    finally:
        await session.close()


def processes(text: str) -> list[psutil.Process]:
    """Those whose command line has the text, which no other test uses."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if text in (process.info["cmdline"] or []) and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


async def test_the_streams_of_a_command_are_apart_and_its_code_is_told(machine: Machine) -> None:
    here = await running(machine)
    async with in_pod(machine, here, "sh", "-c", "echo out; echo err >&2; exit 7") as session:
        out, err = await asyncio.gather(everything(session, 1), everything(session, 2))
        assert (out, err, await session.wait()) == (b"out\n", b"err\n", 7)


async def test_a_command_sees_what_its_container_sees(machine: Machine) -> None:
    volumes = {"config": Folder(files={"a.txt": File(b"hello")})}
    mounts = [{"name": "config", "mountPath": "/etc/app"}]
    env = [{"name": "COLOUR", "value": "blue"}]
    here = pod("p", "sh", "-c", "pwd; hostname; exec sleep 1000", volumeMounts=mounts, env=env, workingDir="/usr")
    await machine.start(here, volumes)
    script = 'cat /etc/app/a.txt; echo " $COLOUR $POD_NAME"; pwd; hostname'
    await until(lambda: machine.report(here).phase is RunPhase.RUNNING)
    async with in_pod(machine, here, "sh", "-c", script) as session:
        text = (await everything(session)).decode()
    assert text.startswith("hello blue p\n")
    await until(lambda: (machine.provider._boxes[here.uid].log("main", 0)).read_text().count("\n") >= 2)
    assert text.endswith(await machine.says(here))


async def test_a_command_joins_the_mounts_of_its_container(tmp_path: Path) -> None:
    # The container's own root is a file system that exists only in its namespace.
    async with at_work(ProcessProvider(tmp_path, clock=RealClock())) as machine:
        here = await running(machine, "p", "sh", "-c", "echo mine > /only-here; exec sleep 1000")
        await until(lambda: has_file(machine, here, "/only-here"))
        async with in_pod(machine, here, "sh", "-c", "cat /only-here; echo too > /from-exec") as session:
            assert await everything(session) == b"mine\n"
        async with in_pod(machine, here, "cat", "/from-exec") as session:
            assert await everything(session) == b"too\n"
        assert not Path("/only-here").exists()


async def has_file(machine: Machine, where: KubeletPod, path: str) -> bool:
    async with in_pod(machine, where, "test", "-s", path) as session:
        return await session.wait() == 0


async def test_input_reaches_a_command_and_ends(machine: Machine) -> None:
    here = await running(machine)
    data = os.urandom(3 << 20)
    async with in_pod(machine, here, "cat", options=WITH_INPUT) as session:
        reading = asyncio.create_task(everything(session))
        await session.write(data)
        session.close_stdin()
        assert await reading == data
        assert await session.wait() == 0


async def test_a_command_without_input_finds_it_at_its_end(machine: Machine) -> None:
    here = await running(machine)
    async with in_pod(machine, here, "cat") as session:
        assert (await everything(session), await session.wait()) == (b"", 0)


async def test_input_that_nobody_reads_is_dropped(machine: Machine) -> None:
    here = await running(machine)
    async with in_pod(machine, here, "true", options=WITH_INPUT) as session:
        assert await session.wait() == 0
        await session.write(b"x" * (1 << 20))
        session.close_stdin()
        await session.write(b"more")


async def test_nothing_of_a_large_output_is_lost(machine: Machine) -> None:
    here = await running(machine)
    async with in_pod(machine, here, "head", "-c", "20000000", "/dev/zero") as session:
        assert len(await everything(session)) == 20_000_000
    async with in_pod(machine, here, "head", "-c", "50000", "/dev/zero") as session:
        await session.wait()  # the command is over before any of it is read
        assert len(await everything(session)) == 50_000


async def test_who_stops_reading_leaves_the_file_to_the_next(machine: Machine) -> None:
    here = await running(machine)
    async with in_pod(machine, here, "sleep", "86411") as session:
        reading = asyncio.create_task(everything(session))
        for _ in range(10):  # until it waits for the file
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
    # Its pipe has the number of the one before; and it goes on, so that only its words end the wait for them.
    async with asyncio.timeout(30), in_pod(machine, here, "sh", "-c", "sleep 0.1; echo word; sleep 86412") as session:
        assert await session.read(1) == b"word\n"


async def test_a_command_has_a_terminal(machine: Machine) -> None:
    here = await running(machine)
    async with in_pod(machine, here, "sh", options=TERMINAL) as session:
        session.resize(101, 33)
        await session.write(b"stty size; tty; echo $TERM\n")
        text = await until_read(session, b"xterm")
        assert b"33 101" in text
        assert b"/dev/" in text
        await session.write(b"sleep 86408\n")
        await until(lambda: processes("86408"))

        async def is_interrupted() -> bool:
            await session.write(b"\x03")
            return not processes("86408")

        await until(is_interrupted)
        await session.write(b"exit 9\n")
        await everything(session)
        assert await session.wait() == 9


async def test_a_command_joins_a_container_that_has_processes_of_its_own(tmp_path: Path) -> None:
    # With a low port, where Fairlead may listen there, the container has a PID namespace, which the command enters;
    # else it has a user namespace. Either way the command has a terminal there, and ends with it.
    ports, few = ([{"containerPort": 80}], "test $$ -lt 100 && ") if may_listen_low() else ([], "")
    async with at_work(ProcessProvider(tmp_path, clock=RealClock())) as machine:
        here = await running(machine, ports=ports)
        async with in_pod(machine, here, "sh", options=TERMINAL) as session:
            session.resize(101, 33)
            await session.write(f"stty size; {few}echo few; setsid sleep 86409 & sleep 86410\n".encode())
            text = await until_read(session, b"few\r\n")
            assert b"33 101" in text
            await until(lambda: processes("86409") and processes("86410"))
            await machine.provider.delete(here.uid)
            assert await session.wait() == 137
            assert not processes("86409")
            assert not processes("86410")


async def test_end_of_input_on_a_terminal_ends_what_reads_it(machine: Machine) -> None:
    here = await running(machine)
    async with in_pod(machine, here, "cat", options=TERMINAL) as session:
        await session.write(b"word\n")
        await until_read(session, b"word\r\nword")
        session.close_stdin()
        await everything(session)
        assert await session.wait() == 0


@pytest.mark.parametrize("options", [OUTPUT_ONLY, TERMINAL], ids=["plain", "terminal"])
async def test_a_command_ends_with_its_client(machine: Machine, options: StreamOptions) -> None:
    here = await running(machine)
    script = "trap '' HUP TERM; sleep 86401 & sleep 86402"
    async with in_pod(machine, here, "sh", "-c", script, options=options):
        await until(lambda: processes("86401") and processes("86402"))
    await until(lambda: not processes("86401") and not processes("86402"))
    assert machine.report(here).phase is RunPhase.RUNNING, "the container goes on"


@pytest.mark.parametrize("leave", ["", "setsid "], ids=["in its session", "in a session of its own"])
async def test_a_command_never_outlives_the_container(machine: Machine, leave: str) -> None:
    here = await running(machine)
    async with in_pod(machine, here, "sh", "-c", f"trap '' HUP TERM; {leave}sleep 86403 & sleep 86404") as session:
        await until(lambda: processes("86403") and processes("86404"))
        os.kill(int(machine.report(here).id.rpartition("/")[2]), signal.SIGKILL)
        assert await session.wait() == 137
        await until(lambda: not processes("86403") and not processes("86404"))


async def test_a_command_never_outlives_the_pod(machine: Machine) -> None:
    here = await running(machine)
    async with in_pod(machine, here, "sleep", "86405") as session:
        await machine.provider.delete(here.uid)
        assert await session.wait() == 137
    assert not processes("86405")


async def test_what_a_command_leaves_running_goes_with_it(machine: Machine) -> None:
    here = await running(machine)
    async with in_pod(machine, here, "sh", "-c", "sleep 86406 & echo done") as session:
        assert (await everything(session), await session.wait()) == (b"done\n", 0)
    await until(lambda: not processes("86406"))


async def test_a_command_whose_output_somebody_else_keeps_open_is_over_all_the_same(machine: Machine) -> None:
    here = await running(machine)
    async with in_pod(machine, here, "sh", "-c", "setsid sleep 86407 & echo done") as session:
        async with asyncio.timeout(30):
            assert (await everything(session), await session.wait()) == (b"done\n", 0)
    await machine.provider.delete(here.uid)
    await until(lambda: not processes("86407"))


@pytest.mark.parametrize(("program", "why"), [("nosuch", "no such program"), ("/etc/passwd", "Permission denied")])
async def test_a_command_that_cannot_start_says_why(machine: Machine, program: str, why: str) -> None:
    here = await running(machine)
    with pytest.raises(NotStarted, match=why):
        await machine.provider.exec(here.uid, "main", (program,), OUTPUT_ONLY)


async def test_nothing_is_done_in_what_does_not_run(machine: Machine) -> None:
    here = await running(machine)
    for uid, container in (("nope", "main"), (here.uid, "nope")):
        with pytest.raises(NotRunning, match="container not found"):
            await machine.provider.exec(uid, container, ("true",), OUTPUT_ONLY)
        with pytest.raises(NotRunning):
            await machine.provider.attach(uid, container, OUTPUT_ONLY)
    ended = pod("ended", "true")
    await machine.start(ended)
    await machine.ended(ended)
    with pytest.raises(NotRunning):
        await machine.provider.exec(ended.uid, "main", ("true",), OUTPUT_ONLY)


async def test_no_file_is_left_open(machine: Machine) -> None:
    here = await running(machine)
    before = open_files()
    for options in (OUTPUT_ONLY, WITH_INPUT, TERMINAL):
        async with in_pod(machine, here, "true", options=options) as session:
            await everything(session)
        with pytest.raises(NotStarted):
            await machine.provider.exec(here.uid, "main", ("nosuch",), options)
        session = await machine.provider.attach(here.uid, "main", OUTPUT_ONLY)
        await session.close()
    assert open_files() == before


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


# --- the container itself ---------------------------------------------------------------------------------


async def test_who_attaches_reads_what_is_written_from_now_on(machine: Machine) -> None:
    here = await running(
        machine, "p", "sh", "-c", "echo early; read x; echo late; echo partly | tr -d '\\n'", stdin=True
    )
    await until(lambda: "early" in machine.provider._boxes[here.uid].log("main", 0).read_text())
    session = await machine.provider.attach(here.uid, "main", WITH_INPUT)
    try:
        await session.write(b"go\n")
        assert (await everything(session), await session.wait()) == (b"late\npartly", 0)
    finally:
        await session.close()
    assert await machine.says(here) == "early\nlate\npartly\n"


async def test_a_container_may_have_a_terminal(machine: Machine) -> None:
    here = await running(machine, "p", "sh", "-c", "while read line; do stty size; tty; done", stdin=True, tty=True)
    for _ in range(2):  # who goes leaves the container as it is
        session = await machine.provider.attach(here.uid, "main", TERMINAL)
        session.resize(99, 44)
        await session.write(b"again\n")
        text = await until_read(session, b"/dev/")
        await session.close()
        assert b"44 99" in text
    assert machine.report(here).phase is RunPhase.RUNNING


@pytest.mark.parametrize("once", [True, False])
async def test_input_ends_with_the_first_client_where_it_is_given_once(machine: Machine, once: bool) -> None:
    here = await running(machine, "p", "cat", stdin=True, stdinOnce=once)
    session = await machine.provider.attach(here.uid, "main", WITH_INPUT)
    await session.write(b"word\n")
    await until_read(session, b"word\n")
    await session.close()
    if once:
        assert (await machine.ended(here)).exit_code == 0
        return
    session = await machine.provider.attach(here.uid, "main", WITH_INPUT)
    await session.write(b"second\n")
    await until_read(session, b"second\n")
    await session.close()


async def test_a_container_without_input_says_so(machine: Machine) -> None:
    here = await running(machine)
    with pytest.raises(Unsupported, match="stdin: true"):
        await machine.provider.attach(here.uid, "main", WITH_INPUT)


async def test_who_does_not_read_is_cut_off_and_holds_nobody_up(machine: Machine) -> None:
    script = "import sys; input()\nfor _ in range(300): sys.stdout.write('x' * 10000 + chr(10))\nprint('end'); input()"
    here = await running(machine, "p", sys.executable, "-c", script, stdin=True)
    slow = await machine.provider.attach(here.uid, "main", WITH_INPUT)
    await slow.write(b"go\n")
    log = machine.provider._boxes[here.uid].log("main", 0)
    await until(lambda: "stdout F end\n" in log.read_text())
    text = await everything(slow)
    assert len(text) < 3_000_000
    with pytest.raises(ProviderError, match="attach again"):
        await slow.wait()
    await slow.close()
    assert machine.report(here).phase is RunPhase.RUNNING


async def test_ports_are_reached_while_the_pod_is_there(machine: Machine) -> None:
    here = await running(machine, "p", sys.executable, "-m", "http.server", "18099")
    reader, writer = await until_connected(machine, here, 18099)
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.0 200")
    writer.close()
    with pytest.raises(OSError, match="Connection refused"):
        await machine.provider.dial(here.uid, 18098)
    await machine.provider.delete(here.uid)
    with pytest.raises(OSError, match="gone"):
        await machine.provider.dial(here.uid, 18099)


async def until_connected(
    machine: Machine, where: KubeletPod, port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    found: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def is_there() -> bool:
        with contextlib.suppress(OSError):
            found.append(await machine.provider.dial(where.uid, port))
        return bool(found)

    await until(is_there)
    return found[0]


def test_the_provider_is_interactive(tmp_path: Path) -> None:
    assert isinstance(ProcessProvider(tmp_path, clock=RealClock()), Interactive)
