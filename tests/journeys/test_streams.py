"""`kubectl exec`, `attach`, `run -i`, `cp` and `port-forward` on `fairlead up`, as people type them at once."""

import base64
import contextlib
import fcntl
import http.client
import json
import os
import pty
import re
import select
import signal
import socket
import ssl
import struct
import subprocess
import sys
import termios
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiohttp
import psutil
import pytest
import yaml

from fairlead.cluster.connector import connector
from tests.journeys.test_up import Cluster
from tests.rigs.kube.servers import until

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "volumes": [{"name": "data", "emptyDir": {}}],
        "containers": [
            {
                "name": "server",
                "image": "python:3",
                "command": ["python3", "-m", "http.server", "8080", "--directory", "/data"],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
            }
        ],
    },
}
TWO = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "two"},
    "spec": {
        "restartPolicy": "Never",
        "containers": [
            {"name": "a", "image": "busybox", "command": ["sleep", "1000"]},
            {"name": "over", "image": "busybox", "command": ["true"]},
        ],
    },
}


class Typed:
    """kubectl of this cluster."""

    def __init__(self, kubectl: Path, data: Path) -> None:
        self._command = [str(kubectl), f"--kubeconfig={data / 'kubeconfig'}"]
        self.config = yaml.safe_load((data / "kubeconfig").read_text())
        self.server: str = self.config["clusters"][0]["cluster"]["server"]
        self.token: str = self.config["users"][0]["user"]["token"]

    def line(self, *arguments: str) -> list[str]:
        return [*self._command, *arguments]

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(self.line(*arguments), input=stdin, capture_output=True, timeout=120, check=False)

    def ok(self, *arguments: str, stdin: bytes = b"") -> bytes:
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr.decode()}"
        return done.stdout

    @property
    def tls(self) -> ssl.SSLContext:
        authority = base64.b64decode(self.config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        return ssl.create_default_context(cadata=authority)


@pytest.fixture(scope="module")
def kubectl(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Typed]:
    cluster = Cluster(kube_programs / "kubectl", tmp_path_factory.mktemp("streams") / "data")
    cluster.start("--simulate=1")
    try:
        typed = Typed(kube_programs / "kubectl", cluster.data)
        for manifest in (POD, TWO):
            typed.ok("apply", "-f", "-", stdin=json.dumps(manifest).encode())
        typed.ok("wait", "pod/web", "--for=condition=Ready", "--timeout=120s")
        assert until(lambda: b"terminated" in typed.ok("get", "pod", "two", "-o", "yaml"), 60)
        yield typed
    finally:
        cluster.end(signal.SIGTERM)


# The size follows the first words: kubectl sends it when it has connected.
WAIT_FOR_SIZE = 'until [ "$(stty size)" = "33 101" ]; do sleep 0.1; done; echo sized $POD_NAME-$TERM\n'


class Terminal:
    """A program under a terminal of 101 by 33, typed at by hand."""

    def __init__(self, command: list[str]) -> None:
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
            os.execv(command[0], command)
        self.text = ""

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def reads(self, wanted: str) -> re.Match[str]:
        """What was printed, once it has this; what comes after is read by the next call."""
        deadline = time.monotonic() + 60
        while (found := re.search(wanted, self.text)) is None:
            assert self._more(deadline), f"no {wanted!r} in {self.text!r}"
        self.text = self.text[found.end() :]
        return found

    def code(self) -> int:
        deadline = time.monotonic() + 60
        while self._more(deadline):
            pass
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _more(self, deadline: float) -> bool:
        if not select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return False
        try:
            data = os.read(self._terminal, 1 << 16)
        except OSError:
            return False
        self.text += data.decode(errors="replace")
        return bool(data)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@contextlib.contextmanager
def forwarded(kubectl: Typed, what: str, port: int) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    local = free_port()
    command = kubectl.line("port-forward", what, f"{local}:{port}")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert b"Forwarding from" in process.stdout.readline()
            yield local, process
        finally:
            process.terminate()


# --- exec -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 3, 137, 255])
def test_exit_codes_come_back(kubectl: Typed, code: int) -> None:
    done = kubectl.run("exec", "web", "--", "sh", "-c", f"echo out; echo err >&2; exit {code}")
    assert (done.stdout, done.returncode) == (b"out\n", code)
    assert done.stderr.startswith(b"err\n")
    assert (f"command terminated with exit code {code}" in done.stderr.decode()) == (code != 0)


def test_input_is_piped_to_its_end(kubectl: Typed) -> None:
    data = os.urandom(5_000_000)
    assert kubectl.ok("exec", "-i", "web", "--", "cat", stdin=data) == data


def test_input_that_is_not_read_does_not_keep_the_command(kubectl: Typed) -> None:
    assert kubectl.ok("exec", "-i", "web", "--", "head", "-c", "3", stdin=b"abcdef" * 500_000) == b"abc"


def test_large_output_is_whole(kubectl: Typed) -> None:
    assert len(kubectl.ok("exec", "web", "--", "head", "-c", "50000000", "/dev/zero")) == 50_000_000


def test_a_long_command_is_taken(kubectl: Typed) -> None:
    script = f"# {'x' * 60_000}\nprint('done')"
    assert kubectl.ok("exec", "web", "--", sys.executable, "-c", script) == b"done\n"


def test_a_shell_has_a_terminal(kubectl: Typed) -> None:
    shell = Terminal(kubectl.line("exec", "-it", "web", "--", "sh"))
    shell.type(WAIT_FOR_SIZE)
    shell.reads("sized web-xterm")
    shell.type("cat\n")
    shell.type("word\n")
    # The shell may print its prompt after it has read what was typed ahead.
    shell.reads("word\r\n(# )?word")
    shell.type("\x04")
    shell.type("exit 5\n")
    assert shell.code() == 5


def test_a_command_ends_with_kubectl(kubectl: Typed) -> None:
    # Its input is full, so that nothing more is read from the client: that it is gone must show all the same.
    command = kubectl.line("exec", "-i", "web", "--", "sleep", "86420")
    with open("/dev/zero", "rb") as zeros, subprocess.Popen(command, stdin=zeros) as process:
        assert until(lambda: bool(running("86420")), 60)
        process.kill()
    assert until(lambda: not running("86420"), 60)


def running(text: str) -> list[int]:
    """Processes whose last word this is, kubectl itself aside."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if words[-1:] == [text] and not words[0].endswith("kubectl"):
            found.append(process.pid)
    return found


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("exec", "nope", "--", "ls"), r'pods "nope" not found'),
        (("exec", "web", "-c", "nope", "--", "ls"), "container nope is not valid for pod web"),
        (("exec", "two", "-c", "over", "--", "ls"), r'unable to upgrade connection: container not found \("over"\)'),
        (("exec", "web", "--", "nosuch"), "failed to run 'nosuch': there is no such program on the PATH"),
        (("attach", "two", "-c", "over"), r"current phase is|container not found|terminated"),
        (("attach", "-i", "web"), "container server has no stdin: its spec needs stdin: true"),
        (("exec", "web", "--as=stranger", "--", "ls"), "cannot create resource|forbidden"),
        (("port-forward", "nope", "80"), r'pods "nope" not found'),
    ],
)
def test_what_cannot_be_is_told(kubectl: Typed, arguments: tuple[str, ...], why: str) -> None:
    done = kubectl.run(*arguments)
    assert done.returncode != 0
    assert re.search(why, done.stderr.decode()), done.stderr.decode()


def test_who_may_only_read_opens_no_stream(kubectl: Typed) -> None:
    kubectl.ok("create", "role", "reader", "--verb=get,list", "--resource=pods,pods/exec,pods/attach,pods/portforward")
    kubectl.ok("create", "rolebinding", "reader", "--role=reader", "--user=reader")
    assert until(lambda: kubectl.run("get", "pod", "web", "--as=reader").returncode == 0, 30)
    for arguments in (("exec", "web", "--", "ls"), ("attach", "web"), ("port-forward", "web", "18000:8080")):
        done = kubectl.run(*arguments[:2], "--as=reader", *arguments[2:])
        assert done.returncode != 0
        assert "orbidden" in done.stderr.decode()


def test_a_simulated_pod_says_that_it_is_one(kubectl: Typed) -> None:
    pod = {**TWO, "metadata": {"name": "played"}, "spec": {**TWO["spec"], "nodeName": "sim-1"}}  # type: ignore[dict-item]
    kubectl.ok("apply", "-f", "-", stdin=json.dumps(pod).encode())
    kubectl.ok("wait", "pod/played", "--for=jsonpath={.status.phase}=Running", "--timeout=60s")
    done = kubectl.run("exec", "played", "-c", "a", "--", "ls")
    assert "sim-1 is simulated" in done.stderr.decode()


# --- clients that are not kubectl ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status", "why"),
    [
        ({"Upgrade": "websocket"}, 400, "requested protocol"),
        ({"Upgrade": "websocket", "Sec-WebSocket-Protocol": "v3.channel.k8s.io"}, 400, "v5.channel.k8s.io"),
        ({"Upgrade": "websocket", "Sec-WebSocket-Protocol": "v5.channel.k8s.io"}, 400, "no WebSocket request"),
        ({"Upgrade": "SPDY/3.1"}, 400, "not over SPDY/3.1"),
    ],
)
def test_another_protocol_is_refused(kubectl: Typed, headers: dict[str, str], status: int, why: str) -> None:
    all_headers = {"Authorization": f"Bearer {kubectl.token}", "Connection": "Upgrade", **headers}
    host, _, port = kubectl.server.removeprefix("https://").rpartition(":")
    with contextlib.closing(http.client.HTTPSConnection(host, int(port), context=kubectl.tls, timeout=60)) as called:
        called.request("GET", "/api/v1/namespaces/default/pods/web/exec?command=ls", headers=all_headers)
        answer = called.getresponse()
        assert answer.status == status
        assert why in answer.read().decode()


async def test_version_4_is_spoken_and_nonsense_on_the_channels_is_passed_over(kubectl: Typed) -> None:
    url = f"{kubectl.server}/api/v1/namespaces/default/pods/web/exec?command=head&command=-n1&stdin=true&stdout=1"
    headers = {"Authorization": f"Bearer {kubectl.token}"}
    async with (
        aiohttp.ClientSession(headers=headers, connector=connector()) as session,
        session.ws_connect(url, protocols=["v4.channel.k8s.io"], ssl=kubectl.tls) as opened,
    ):
        assert opened.protocol == "v4.channel.k8s.io"
        for nonsense in (b"", b"\x04", b"\x04{", b'\x04{"Width": "a"}', b"\x04" + b"[" * 100, b"\x09x", b"\xff\x07"):
            await opened.send_bytes(nonsense)
        await opened.send_str("\x00line\n")
        messages = [message.data async for message in opened]
    assert b"".join(data[1:] for data in messages if data[0] == 1) == b"line\n"
    assert [json.loads(data[1:])["status"] for data in messages if data[0] == 3] == ["Success"]


# --- attach and run ---------------------------------------------------------------------------------------


def test_attach_shows_what_is_written_from_now_on(kubectl: Typed) -> None:
    address = kubectl.ok("get", "pod", "web", "-o", "jsonpath={.status.podIP}").decode()
    with subprocess.Popen(kubectl.line("attach", "web"), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            lines: list[bytes] = []
            assert process.stdout is not None
            os.set_blocking(process.stdout.fileno(), False)

            def has_line() -> bool:
                urllib.request.urlopen(f"http://{address}:8080/?attached", timeout=30).close()
                lines.append(process.stdout.read() or b"")  # type: ignore[union-attr]
                return b"GET /?attached" in b"".join(lines)

            assert until(has_line, 60)
        finally:
            process.terminate()


def test_run_pipes_input_and_output(kubectl: Typed) -> None:
    command = ("run", "-i", "--rm", "--restart=Never", "--image=busybox", "piped", "--", "sh", "-c", "cat; echo end")
    done = kubectl.run(*command, stdin=b"one\ntwo\n")
    assert done.returncode == 0
    assert b"one\ntwo\nend\n" in done.stdout


def test_run_gives_a_shell_with_a_terminal(kubectl: Typed) -> None:
    shell = Terminal(kubectl.line("run", "-it", "--rm", "--restart=Never", "--image=busybox", "shell", "--", "sh"))
    shell.reads("pressing enter")
    shell.type(WAIT_FOR_SIZE)
    shell.reads("sized shell-xterm")
    shell.type("exit 4\n")
    assert shell.code() == 4


# --- cp ---------------------------------------------------------------------------------------------------


def test_files_are_copied_both_ways(kubectl: Typed, tmp_path: Path) -> None:
    sent, back = tmp_path / "sent", tmp_path / "back"
    (sent / "deep").mkdir(parents=True)
    (sent / "deep" / "large").write_bytes(os.urandom(8_000_000))
    (sent / "small").write_text("hello\n")
    kubectl.ok("cp", str(sent), "web:/data/copied")
    address = kubectl.ok("get", "pod", "web", "-o", "jsonpath={.status.podIP}").decode()
    with urllib.request.urlopen(f"http://{address}:8080/copied/small", timeout=30) as answer:
        assert answer.read() == b"hello\n"
    kubectl.ok("cp", "web:/data/copied", str(back))
    assert (back / "deep" / "large").read_bytes() == (sent / "deep" / "large").read_bytes()
    assert (back / "small").read_text() == "hello\n"


# --- port-forward -----------------------------------------------------------------------------------------


def test_many_connections_go_through_one_tunnel(kubectl: Typed) -> None:
    kubectl.ok("exec", "web", "--", "sh", "-c", "head -c 3000000 /dev/zero > /data/zeros; echo hi > /data/hi")
    with forwarded(kubectl, "pod/web", 8080) as (port, _):

        def fetch(path: str) -> int:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=60) as answer:
                return len(answer.read())

        with ThreadPoolExecutor(20) as pool:
            assert list(pool.map(fetch, ["zeros", "hi"] * 10)) == [3_000_000, 3] * 10


def test_a_port_that_refuses_is_told(kubectl: Typed) -> None:
    with forwarded(kubectl, "pod/web", 9) as (port, process):
        with pytest.raises((OSError, http.client.HTTPException)):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30)
        assert process.stderr is not None
        assert b"Connection refused" in process.stderr.readline()


def test_a_pod_that_is_gone_is_not_reached(kubectl: Typed) -> None:
    pod = {**POD, "metadata": {"name": "gone"}}
    kubectl.ok("apply", "-f", "-", stdin=json.dumps(pod).encode())
    kubectl.ok("wait", "pod/gone", "--for=condition=Ready", "--timeout=60s")
    with forwarded(kubectl, "pod/gone", 8080) as (port, process):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30).close()
        kubectl.ok("delete", "pod", "gone", "--now")
        with pytest.raises((OSError, http.client.HTTPException)):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30)
        assert process.stderr is not None
        assert b"the pod is gone" in process.stderr.readline()
