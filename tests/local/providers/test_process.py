"""Containers as processes: what they see, what is written down of them, and that none is ever left behind."""

import asyncio
import contextlib
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from fairlead.cluster.clock import RealClock
from fairlead.local.providers.lowports import may_listen_low
from fairlead.local.providers.pod_sandbox import translated
from fairlead.local.providers.process import ProcessProvider
from fairlead.local.providers.supervisor import MARK, marked
from fairlead.nodes.provider import (
    File,
    Folder,
    LogOptions,
    ProviderError,
    Run,
    RunPhase,
    RunReport,
    Sandbox,
    Unsupported,
)
from fairlead.nodes.spec import KubeletPod, Probe


def pod(name: str, *command: str, image: str = "busybox", **container: Any) -> KubeletPod:
    main = {"name": "main", "image": image, "command": list(command) or None, **container}
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "n", "containers": [main]}}, KubeletPod)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


class Machine:
    """A process provider at work, and what tests ask of it."""

    def __init__(self, provider: ProcessProvider) -> None:
        self.provider = provider

    async def start(self, started: KubeletPod, volumes: dict[str, Folder] | None = None, attempt: int = 0) -> None:
        await self.provider.create(Sandbox(started, volumes or {}))
        container = started.spec.containers[0]
        env = {variable.name: variable.value or "" for variable in container.env or ()}
        run = Run(container, attempt, command=container.command, args=container.args, env=env)
        await self.provider.update(started.uid, (run,))

    def report(self, started: KubeletPod) -> RunReport:
        report = self.provider.status(started.uid)
        assert report is not None
        return report.runs["main"]

    async def ended(self, started: KubeletPod) -> RunReport:
        await until(lambda: self.report(started).phase is RunPhase.EXITED)
        return self.report(started)

    async def says(self, started: KubeletPod, options: LogOptions | None = None) -> str:
        text = [part async for part in self.provider.logs(started.uid, "main", options or LogOptions())]
        return b"".join(text).decode()

    async def run(self, started: KubeletPod, volumes: dict[str, Folder] | None = None) -> str:
        """What it wrote, once it has ended."""
        await self.start(started, volumes)
        await self.ended(started)
        return await self.says(started)


async def until(true: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Once it holds, be it a plain question or one to be awaited."""
    async with asyncio.timeout(timeout_s):
        while True:
            answer = true()
            if await answer if inspect.isawaitable(answer) else answer:
                return
            await asyncio.sleep(0.01)


async def is_ok(machine: "Machine", probed: KubeletPod, probe: Probe) -> bool:
    return (await machine.provider.probe(probed.uid, "main", probe)).ok


async def has_said(machine: "Machine", heard: KubeletPod, text: str) -> bool:
    return await machine.says(heard) == text


@contextlib.asynccontextmanager
async def at_work(provider: ProcessProvider) -> AsyncIterator[Machine]:
    work = asyncio.create_task(provider.run())
    try:
        yield Machine(provider)
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    async with at_work(ProcessProvider(tmp_path / "data", clock=RealClock())) as made:
        yield made


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[Machine]:
    """Without mount namespaces."""
    async with at_work(ProcessProvider(tmp_path, clock=RealClock(), mounts=False)) as made:
        yield made


CONFIG = {"config": Folder(files={"a/b.txt": File(b"hello\n")}), "empty": Folder()}
MOUNTS = [{"name": "config", "mountPath": "/etc/app"}, {"name": "empty", "mountPath": "/scratch/deep"}]


async def test_volumes_are_at_their_mount_paths(machine: Machine) -> None:
    assert "mount namespaces" in await machine.provider.mode()
    command = (
        "sh",
        "-c",
        "cat /etc/app/a/b.txt; echo there > /scratch/deep/x; cat /scratch/deep/x; test -f /etc/passwd",
    )
    said = await machine.run(pod("p", *command, volumeMounts=MOUNTS), CONFIG)
    assert said == "hello\nthere\n"
    assert machine.report(pod("p")).exit_code == 0


async def test_without_namespaces_a_pod_is_told_where_its_service_account_is(plain: Machine, tmp_path: Path) -> None:
    account = "/var/run/secrets/kubernetes.io/serviceaccount"
    volumes = {"kube-api-access-x": Folder(files={"token": File(b"secret")})}
    mounts = [{"name": "kube-api-access-x", "mountPath": account}]
    command = ("sh", "-c", "cat $FAIRLEAD_SERVICE_ACCOUNT/token")
    assert await plain.run(pod("p", *command, volumeMounts=mounts), volumes) == "secret\n"
    assert await plain.run(pod("none", "sh", "-c", 'echo "[$FAIRLEAD_SERVICE_ACCOUNT]"')) == "[]\n"


@pytest.mark.parametrize(
    ("kind", "is_made"), [("", True), ("DirectoryOrCreate", True), ("FileOrCreate", True), ("Directory", False)]
)
async def test_a_host_path_is_made_or_asked_for(machine: Machine, tmp_path: Path, kind: str, is_made: bool) -> None:
    path = tmp_path / "there"
    started = pod("p", "true", volumeMounts=[{"name": "v", "mountPath": "/v"}])
    made = machine.provider.create(Sandbox(started, {"v": Folder(host_path=str(path), host_type=kind)}))
    if is_made:
        await made
        assert path.is_file() is (kind == "FileOrCreate")
    else:
        with pytest.raises(ProviderError, match=f"type check failed: {path} is not a directory"):
            await made
        assert not path.exists()


async def test_a_volume_may_lie_over_what_we_use_ourselves(machine: Machine, tmp_path: Path) -> None:
    mounts = [{"name": "empty", "mountPath": f"/{tmp_path.parts[1]}"}]
    said = await machine.run(pod("p", "sh", "-c", f"ls -A /{tmp_path.parts[1]}; pwd", volumeMounts=mounts), CONFIG)
    assert said == "/\n"


async def test_without_namespaces_mount_paths_are_translated_and_told_in_variables(plain: Machine) -> None:
    assert "FAIRLEAD_VOLUME_" in await plain.provider.mode()
    command = (
        "sh",
        "-c",
        'cat /etc/app/a/b.txt "$FILE" "$FAIRLEAD_VOLUME_CONFIG/a/b.txt"; ls $(dirname /scratch/deep)',
    )
    env = [{"name": "FILE", "value": "/etc/app/a/b.txt"}]
    said = await plain.run(pod("p", *command, volumeMounts=MOUNTS, env=env), CONFIG)
    assert said.startswith("hello\nhello\nhello\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data", "/v"),
        ("/data/x", "/v/x"),
        ("--file=/data/x,/data", "--file=/v/x,/v"),
        ("/database", "/database"),
        ("/my/data", "/my/data"),
        ("/data-old", "/data-old"),
    ],
)
def test_only_whole_mount_paths_are_translated(text: str, expected: str) -> None:
    assert translated(text, [("/v", "/data")]) == expected


async def test_contents_of_volumes_follow_what_is_created_again(machine: Machine) -> None:
    started = pod(
        "p", "sh", "-c", "until grep -q new /etc/app/k; do sleep 0.05; done; ls /etc/app", volumeMounts=MOUNTS[:1]
    )
    old = {"config": Folder(files={"k": File(b"old"), "gone": File(b"")})}
    await machine.start(started, old)
    await machine.provider.create(Sandbox(started, {"config": Folder(files={"k": File(b"new")})}))
    await machine.ended(started)
    assert await machine.says(started) == "k\n"


async def test_names_resolve_inside_pods_and_follow(machine: Machine) -> None:
    script = "until getent hosts web.ns.svc; do sleep 0.05; done; getent hosts web"
    started = pod("p", "sh", "-c", script)
    await machine.start(started)
    web = {"web": ("127.96.0.7",), "web.ns.svc": ("127.96.0.7",)}
    await machine.provider.set_names(lambda namespace: web if namespace == "ns" else {})
    await machine.ended(started)
    assert [line.split()[0] for line in (await machine.says(started)).splitlines()] == ["127.96.0.7"] * 2


async def test_host_aliases_are_in_the_hosts_file_and_go_before_services(machine: Machine) -> None:
    aliases = [{"ip": "127.1.2.3", "hostnames": ["one", "two"]}, {"ip": "127.1.2.4", "hostnames": ["web"]}]
    await machine.provider.set_names(lambda namespace: {"web": ("127.96.0.7",)})
    body = msgspec.to_builtins(pod("p", "sh", "-c", "getent ahostsv4 two web | grep STREAM; cat /etc/hosts"))
    body["spec"]["hostAliases"] = aliases
    said = await machine.run(msgspec.convert(body, KubeletPod))
    assert [line.split()[0] for line in said.splitlines() if "STREAM" in line][:2] == ["127.1.2.3", "127.1.2.4"]
    assert "# Entries added by HostAliases.\n127.1.2.3\tone\ttwo\n127.1.2.4\tweb\n" in said


async def test_a_container_may_bring_its_own_hosts_file(machine: Machine) -> None:
    mounts = [{"name": "h", "mountPath": "/etc/hosts", "subPath": "hosts"}]
    own = {"h": Folder(files={"hosts": File(b"127.9.9.9 mine\n")})}
    assert await machine.run(pod("p", "cat", "/etc/hosts", volumeMounts=mounts), own) == "127.9.9.9 mine\n"


async def test_a_pod_knows_itself(machine: Machine) -> None:
    said = await machine.run(
        pod(
            "p",
            "sh",
            "-c",
            "echo $POD_NAME $POD_NAMESPACE $NODE_NAME $POD_IP $MINE",
            env=[{"name": "MINE", "value": "mine"}],
        )
    )
    name, namespace, node, ip, mine = said.split()
    assert (name, namespace, node, mine) == ("p", "ns", "n", "mine")
    report = machine.provider.status("uid-p")
    assert report is not None
    assert report.ip == ip
    assert ip.startswith("127.")


async def test_a_pod_has_a_host_name_of_its_own(machine: Machine) -> None:
    assert await machine.run(pod("p", "sh", "-c", "echo $HOSTNAME $(uname -n)")) == "p p\n"
    assert await machine.run(pod("q" * 80, "uname", "-n")) == "q" * 63 + "\n"


async def test_a_host_port_leads_to_the_pod_while_it_is_there(machine: Machine) -> None:
    wanted = free_port()
    ports = [{"containerPort": 18432, "hostPort": wanted}]
    serving = pod("p", "python3", "-m", "http.server", "18432", image="python:3.12", ports=ports)
    await machine.start(serving)

    async def is_answered() -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{wanted}/") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    await until(is_answered)
    late = pod("late", "sleep", "1000", ports=ports)
    await machine.start(late)
    report = machine.report(late)
    assert (report.phase, report.reason) == (RunPhase.WAITING, "HostPortNotAvailable")
    await machine.provider.delete(serving.uid)
    assert not await is_answered()
    ends = pod("ends", "true", ports=ports)
    await machine.run(ends)
    await until(lambda: is_free(wanted))


async def test_a_pod_with_thousands_of_host_ports_takes_no_files_from_others(machine: Machine) -> None:
    before = len(os.listdir("/proc/self/fd"))
    greedy = pod("greedy", "sleep", "1000", ports=[{"containerPort": n, "hostPort": n} for n in range(20_000, 40_000)])
    began = time.process_time()
    await machine.start(greedy)
    report = machine.report(greedy)
    why = "the pod has 20000 host ports, and at most 256 of a pod are served"
    assert (report.phase, report.reason, report.message) == (RunPhase.WAITING, "HostPortNotAvailable", why)
    assert len(os.listdir("/proc/self/fd")) < before + 50
    assert time.process_time() - began < 1.0


async def test_python_pods_that_listen_everywhere_listen_on_their_own_address(machine: Machine) -> None:
    pods = [pod(name, "python3", "-m", "http.server", "18431", image="python:3.12") for name in ("a", "b")]
    for one in pods:
        await machine.start(one)
    async with aiohttp.ClientSession() as session:
        for one in pods:
            report = machine.provider.status(one.uid)
            assert report is not None
            probe = msgspec.convert({"httpGet": {"port": 18431, "path": "/"}, "timeoutSeconds": 2}, Probe)
            await until(partial(is_ok, machine, one, probe))
            async with session.get(f"http://{report.ip}:18431/") as answer:
                assert answer.status == 200


# --- logs -------------------------------------------------------------------------------------------------


async def test_logs_are_read_back_as_asked(machine: Machine) -> None:
    started = pod("p", "sh", "-c", "for n in 1 2 3 4 5; do echo line $n; done; echo err >&2; printf last")
    assert await machine.run(started) == "line 1\nline 2\nline 3\nline 4\nline 5\nerr\nlast\n"
    assert await machine.says(started, LogOptions(tail_lines=2)) == "err\nlast\n"
    assert await machine.says(started, LogOptions(tail_lines=0)) == ""
    assert await machine.says(started, LogOptions(limit_bytes=10)) == "line 1\nlin"
    soon = RealClock().now() + timedelta(seconds=60)
    assert await machine.says(started, LogOptions(since=soon)) == ""
    stamped = await machine.says(started, LogOptions(timestamps=True, tail_lines=1))
    assert stamped.endswith("Z last\n")


async def test_the_log_of_the_attempt_before_is_kept(machine: Machine) -> None:
    started = pod("p", "sh", "-c", "echo $$")
    first = await machine.run(started)
    with pytest.raises(Unsupported):
        machine.provider.logs(started.uid, "main", LogOptions(previous=True))
    await machine.start(started, attempt=1)
    await machine.ended(started)
    assert await machine.says(started) != first
    assert await machine.says(started, LogOptions(previous=True)) == first


async def test_a_log_is_followed_to_its_end(machine: Machine) -> None:
    started = pod("p", "sh", "-c", "echo one; sleep 0.4; echo two")
    await machine.start(started)
    assert await machine.says(started, LogOptions(follow=True)) == "one\ntwo\n"


# --- probes and problems ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "ok", "output"),
    [
        pytest.param(["sh", "-c", "test -f $TMPDIR/ready"], True, "", id="sees what the container made"),
        pytest.param(["sh", "-c", "echo no; exit 1"], False, "no", id="fails with its output"),
        pytest.param(["sleep", "20"], False, "timed out", id="takes too long"),
        pytest.param(["no-such-command"], False, "no such program", id="is not there"),
    ],
)
async def test_exec_probes_run_beside_the_container(
    machine: Machine, command: list[str], ok: bool, output: str
) -> None:
    started = pod("p", "sh", "-c", "touch $TMPDIR/ready; echo up; sleep 60")
    await machine.start(started)
    await until(partial(has_said, machine, started, "up\n"))
    # Only what is to take too long is given little time.
    timeout_s = 1 if command[0] == "sleep" else 60
    probe = msgspec.convert({"exec": {"command": command}, "timeoutSeconds": timeout_s}, Probe)
    result = await machine.provider.probe(started.uid, "main", probe)
    assert result.ok is ok
    assert output in result.output


@pytest.mark.parametrize(
    ("program", "why"), [("/no/such/program", "No such file or directory"), ("nonesuch", "no such program on the PATH")]
)
async def test_a_command_that_is_not_there_is_a_start_error(machine: Machine, program: str, why: str) -> None:
    started = pod("p", program)
    await machine.start(started)
    report = machine.report(started)
    assert (report.phase, report.exit_code, report.reason) == (RunPhase.EXITED, 128, "StartError")
    assert program in report.message
    assert report.message.endswith(why)


async def test_a_working_directory_that_is_not_there_is_named(machine: Machine) -> None:
    started = pod("p", "pwd", workingDir="/no/such/place")
    await machine.start(started)
    assert machine.report(started).reason == "StartError"
    assert "working directory '/no/such/place': No such file or directory" in machine.report(started).message


@pytest.mark.parametrize("kind", ["httpGet", "tcpSocket"])
async def test_a_probe_that_finds_nobody_listening_says_so(machine: Machine, kind: str) -> None:
    started = pod("p", "sleep", "60")
    await machine.start(started)
    probe = msgspec.convert({kind: {"port": free_port()}, "timeoutSeconds": 60}, Probe)
    result = await machine.provider.probe(started.uid, "main", probe)
    assert not result.ok
    assert result.output.startswith("dial tcp 127.")
    assert result.output.endswith("connect: connection refused")


@pytest.mark.parametrize("mounts", [True, False])
async def test_last_words_are_reported(tmp_path: Path, mounts: bool) -> None:
    async with at_work(ProcessProvider(tmp_path, clock=RealClock(), mounts=mounts)) as machine:
        ends = pod("p", "sh", "-c", "echo to the log; echo farewell > /dev/termination-log; exit 3")
        await machine.start(ends)
        assert (await machine.ended(ends)).message == "farewell\n"
        elsewhere = pod("q", "sh", "-c", "echo bye > /last/words", terminationMessagePath="/last/words")
        await machine.start(elsewhere)
        assert (await machine.ended(elsewhere)).message == "bye\n"


@pytest.mark.parametrize(("code", "message"), [(3, "one\ntwo\n"), (0, "")])
async def test_the_log_speaks_for_who_failed_without_a_word(machine: Machine, code: int, message: str) -> None:
    fails = pod("p", "sh", "-c", f"echo one; echo two; exit {code}", terminationMessagePolicy="FallbackToLogsOnError")
    await machine.start(fails)
    assert (await machine.ended(fails)).message == message


async def test_an_unknown_image_waits_and_says_what_to_do(machine: Machine) -> None:
    started = pod("p", image="example.com/shop:1")
    await machine.start(started)
    report = machine.report(started)
    assert (report.phase, report.reason) == (RunPhase.WAITING, "ErrImagePull")
    assert "give it a `command`" in report.message


async def test_a_low_port_without_the_right_to_it_waits_and_says_so(tmp_path: Path) -> None:
    async with at_work(ProcessProvider(tmp_path, clock=RealClock(), low_ports=False)) as machine:
        started = pod("p", "sleep", "60", ports=[{"containerPort": 80}])
        await machine.start(started)
        report = machine.report(started)
        assert (report.phase, report.reason) == (RunPhase.WAITING, "PortNotPermitted")
        assert "port 80" in report.message


async def test_a_low_port_is_listened_on_where_fairlead_may(machine: Machine) -> None:
    ports = [{"containerPort": 81}]
    serving = pod("p", "python3", "-m", "http.server", "81", image="python:3.12", ports=ports)
    await machine.start(serving)
    if not may_listen_low():
        assert machine.report(serving).reason == "PortNotPermitted"
        return
    await until(partial(is_ok, machine, serving, msgspec.convert({"tcpSocket": {"port": 81}}, Probe)))
    await machine.provider.delete(serving.uid)
    assert machine.provider.status(serving.uid) is None


async def test_usage_is_counted(machine: Machine) -> None:
    started = pod("p", "sleep", "60")
    await machine.start(started)
    await until(lambda: machine.provider.usage(started.uid)["main"].memory_bytes > 0)
    assert list(machine.provider.usage(started.uid)) == ["main"]


# --- ends -------------------------------------------------------------------------------------------------


async def test_what_ignores_its_grace_is_killed(machine: Machine) -> None:
    started = pod("p", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done")
    await machine.start(started)
    await until(partial(has_said, machine, started, "up\n"))
    container = started.spec.containers[0]
    kill_at = RealClock().now() + timedelta(seconds=0.5)
    await machine.provider.update(started.uid, (replace(Run(container, 0), kill_at=kill_at),))
    report = await machine.ended(started)
    assert (report.exit_code, report.signal) == (137, 9)
    assert report.finished_at is not None
    assert report.finished_at >= kill_at


TRAP = "trap 'echo term; exit 0' TERM; echo up; while :; do sleep 0.05; done"


@pytest.mark.parametrize(
    "hook",
    [
        pytest.param({"exec": {"command": ["sh", "-c", "sleep 0.3; touch $TMPDIR/hooked"]}}, id="exec"),
        pytest.param({"sleep": {"seconds": 1}}, id="sleep"),
    ],
)
async def test_a_pre_stop_hook_comes_before_the_signal(machine: Machine, hook: dict[str, Any]) -> None:
    started = pod("p", "sh", "-c", TRAP, lifecycle={"preStop": hook})
    await machine.start(started)
    await until(partial(has_said, machine, started, "up\n"))
    began = RealClock().now()
    ending = replace(Run(started.spec.containers[0], 0), kill_at=began + timedelta(seconds=10))
    await machine.provider.update(started.uid, (ending,))
    report = await machine.ended(started)
    assert report.exit_code == 0
    assert report.finished_at is not None
    assert report.finished_at - began >= timedelta(seconds=0.3)


async def test_a_container_whose_post_start_hook_fails_is_ended(machine: Machine) -> None:
    hook = {"exec": {"command": ["sh", "-c", "echo broken; exit 1"]}}
    started = pod("p", "sh", "-c", TRAP, lifecycle={"postStart": hook})
    await machine.start(started)
    report = await machine.ended(started)
    assert "postStart hook failed: broken" in report.message
    assert report.has_failed_hook


def left(folder: Path) -> list[int]:
    return marked(f"{folder}/")


async def test_what_a_container_leaves_running_goes_with_it(machine: Machine, tmp_path: Path) -> None:
    started = pod("p", "sh", "-c", "setsid sleep 60 & sleep 0.2; exit 3")
    await machine.start(started)
    assert (await machine.ended(started)).exit_code == 3
    await until(lambda: not left(tmp_path))


async def test_deleting_leaves_no_process_and_no_folder(machine: Machine, tmp_path: Path) -> None:
    started = pod("p", "sh", "-c", "sleep 60 & sleep 60")
    await machine.start(started)
    assert left(tmp_path)
    await machine.provider.delete(started.uid)
    await until(lambda: not left(tmp_path))
    assert os.listdir(tmp_path / "data" / "pods") == []


async def test_a_killed_keeper_takes_everything_along_and_is_replaced(machine: Machine, tmp_path: Path) -> None:
    started = pod("p", "sh", "-c", "sleep 60 & sleep 60")
    await machine.start(started)
    keeper = machine.provider._supervisor
    assert keeper is not None
    os.kill(keeper.pid, signal.SIGKILL)
    assert (await machine.ended(started)).exit_code == 137
    again = pod("q", "true")
    await machine.start(again)
    assert (await machine.ended(again)).exit_code == 0
    await until(lambda: not left(tmp_path))


PROGRAM = textwrap.dedent("""
    import asyncio, msgspec, signal, sys
    # A shell that starts us in the background has it ignored, and that is inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from pathlib import Path
    from fairlead.cluster.clock import RealClock
    from fairlead.local.providers.process import ProcessProvider
    from fairlead.nodes.provider import Run, Sandbox
    from fairlead.nodes.spec import KubeletPod

    async def main():
        provider = ProcessProvider(Path(sys.argv[1]), clock=RealClock())
        asyncio.ensure_future(provider.run())
        spec = {"containers": [{"name": "main", "image": "x",
                "command": ["sh", "-c", "setsid sh -c 'sleep 300 & sleep 301' & sleep 302"]}]}
        pod = msgspec.convert({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec}, KubeletPod)
        await provider.create(Sandbox(pod))
        container = pod.spec.containers[0]
        await provider.update("u", (Run(container, 0, command=container.command),))
        await asyncio.sleep(0.3)
        print("up", flush=True)
        await asyncio.sleep(600)

    asyncio.run(main())
""")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_us_however_we_end(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with process:
        assert process.stdout is not None
        try:
            assert "up\n" in process.stdout, "it ended before it was up"
            assert len(left(tmp_path)) >= 4
            process.send_signal(number)
            process.wait(10)
        finally:
            process.kill()
    asyncio.run(until(lambda: not left(tmp_path)))


async def test_what_an_earlier_keeper_left_is_swept_at_start(tmp_path: Path) -> None:
    mark = {MARK: f"{tmp_path}/uid-old/main/0/"}
    lost = subprocess.Popen(["sleep", "60"], env={**os.environ, **mark})
    other = subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: f"{tmp_path}-other/uid/main/0/"})
    try:
        async with at_work(ProcessProvider(tmp_path, clock=RealClock())) as machine:
            await machine.provider.mode()
            assert await asyncio.to_thread(lost.wait, 5) == -signal.SIGKILL
            assert other.poll() is None
    finally:
        for process in (lost, other):
            process.kill()
            process.wait()


def test_the_supervisor_needs_nothing_but_python() -> None:
    path = Path(sys.modules[ProcessProvider.__module__].__file__ or "").with_name("supervisor.py")
    code = f"import runpy, sys, json; runpy.run_path({str(path)!r}); print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, check=True, text=True)
    assert not [name for name in json.loads(done.stdout) if name.startswith(("fairlead", "asyncio"))]
