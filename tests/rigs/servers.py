"""Real servers on loopback (Prometheus, Elasticsearch, Mosquitto, Java bases), ended with the run that started them."""

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from tests.rigs.kube.servers import HERE as KUBE_RIG
from tests.rigs.kube.servers import _spawner, free_ports

READY_S: Final = 120.0
END_S: Final = 20.0
# The last: a JVM leaves its counters in a folder of the system's otherwise.
HEAP: Final = "-Xms512m\n-Xmx512m\n-XX:-UsePerfData\n"


class ServerBroken(Exception):
    """A server did not do what was asked of it; the message holds the end of its log."""


def _running_threads(group: int) -> int:
    """How many threads of a process group are not stopped."""
    running = 0
    for stat in Path("/proc").glob("[0-9]*/task/[0-9]*/stat"):
        try:
            # After the program's name, which may hold anything: state, parent, process group.
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue  # it has ended meanwhile
        running += int(its_group) == group and state not in "TtZX"
    return running


class Server:
    """One started program in a session of its own: signals reach it and its children, nobody else."""

    name: str
    url: str
    _process: subprocess.Popen[bytes] | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return os.environ

    def is_ready(self) -> bool:
        raise NotImplementedError

    def start(self) -> Self:
        leash = [sys.executable, "-I", "-S", str(KUBE_RIG / "leash.py"), str(os.getpid())]
        with self.log.open("ab") as sink:
            self._process = _spawner.submit(
                subprocess.Popen,
                [*leash, *self.command()],
                cwd=self.folder,
                env=dict(self.environment()),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ).result()
        self._wait_ready()
        return self

    def _wait_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + READY_S
        while not self.is_ready():
            if self._process.poll() is not None:
                raise ServerBroken(f"{self.name} ended with {self._process.returncode}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.stop()
                raise ServerBroken(f"{self.name} was not ready in {READY_S:.0f} s:\n{self.log_tail()}")
            time.sleep(0.1)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def freeze(self) -> None:
        """Returns once every thread has stopped: until then, one of them may still answer."""
        assert self._process is not None
        self.signal(signal.SIGSTOP)
        deadline = time.monotonic() + END_S
        while _running_threads(self._process.pid):
            if time.monotonic() > deadline:
                raise ServerBroken(f"{self.name} did not stop in {END_S:.0f} s")
            time.sleep(0.01)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self.thaw()
            self.signal(signal.SIGTERM)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self._process.wait(END_S)
        self._process = None

    def log_tail(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def answers(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=30) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


class Prometheus(Server):
    """With a history given as OpenMetrics lines; `web` is its --web.config.file, for basic auth."""

    name = "prometheus"

    def __init__(self, programs: Path, folder: Path, *, history: Iterable[str] = (), web: str = "") -> None:
        super().__init__(folder)
        self._programs = programs
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self._web = folder / "web.yml"
        self._web.write_text(web)
        self._guarded = bool(web)
        (folder / "prometheus.yml").write_text("global: {scrape_interval: 1h}\nscrape_configs: []\n")
        (folder / "data").mkdir()
        lines = list(history)
        if lines:
            self.fill(lines)

    def fill(self, lines: list[str]) -> None:
        source = self.folder / "history.om"
        source.write_text("\n".join([*lines, "# EOF\n"]))
        made = [str(self._programs / "promtool"), "tsdb", "create-blocks-from", "openmetrics", str(source)]
        subprocess.run([*made, str(self.folder / "data")], check=True, capture_output=True, timeout=120)

    def command(self) -> list[str]:
        return [
            str(self._programs / "prometheus"),
            f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/data",
            "--storage.tsdb.retention.time=10y",
            f"--web.listen-address=127.0.0.1:{self.port}",
            f"--web.config.file={self._web}",
        ]

    def is_ready(self) -> bool:
        # Who has no password is refused before the server is ready, too: its own word counts then.
        return "ready to receive web requests" in self.log_tail(200) if self._guarded else self.answers("/-/ready")


class Mosquitto(Server):
    """An MQTT broker without passwords, or with TLS and certificates of clients."""

    name = "mosquitto"

    def __init__(self, program: Path, libraries: Mapping[str, str], folder: Path) -> None:
        super().__init__(folder)
        self._program = program
        self._libraries = libraries
        (self.port,) = free_ports(1)
        self.url = f"mqtt://127.0.0.1:{self.port}"
        self._config = folder / "mosquitto.conf"
        self._config.write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\nuser root\n")

    def command(self) -> list[str]:
        return [str(self._program), "-c", str(self._config)]

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, **self._libraries}

    def is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5):
                return True
        except OSError:
            return False


class JavaBase(Server):
    """A Java base with arklet on a port of its own; `web` is the one whose modules may have a web interface."""

    name = "java base"

    def __init__(self, jars: Path, folder: Path, *flags: str, web: bool = False) -> None:
        super().__init__(folder)
        self.port, self.web_port = free_ports(2)
        self.address = ("127.0.0.1", self.port)
        self.url = f"http://127.0.0.1:{self.port}"
        self._jar = jars / ("web-base.jar" if web else "base.jar")
        self._flags = flags

    def command(self) -> list[str]:
        java = shutil.which("java")
        assert java is not None, "Java bases need Java 17 (Debian: default-jre-headless)"
        usual = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:MaxMetaspaceSize=256m", "-Xshare:auto"]
        # Everything it writes stays in its folder: logs in its home, unpacked modules in its temporary folder.
        own = [f"-Duser.home={self.folder}", f"-Djava.io.tmpdir={self.folder}", "-XX:-UsePerfData"]
        port = f"-Dkoupleless.arklet.http.port={self.port}"
        return [
            java,
            *usual,
            *own,
            port,
            "-Dsofa.ark.telnet.server.enable=false",
            *self._flags,
            "-jar",
            str(self._jar),
            f"--server.port={self.web_port}",
        ]

    def is_ready(self) -> bool:
        request = urllib.request.Request(f"{self.url}/queryAllBiz", data=b"{}", method="POST")
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return b"SUCCESS" in answer.read() and "base: ready" in self.log.read_text(errors="replace")
        except (urllib.error.URLError, OSError, http.client.HTTPException):
            return False


class Elasticsearch(Server):
    name = "elasticsearch"

    def __init__(self, distribution: Path) -> None:
        # It refuses to run as root, and nobody may look into root's folders: a copy where everybody may.
        self._own = Path(tempfile.mkdtemp(prefix="fairlead-elasticsearch-"))
        super().__init__(self._own / "home")
        shutil.copytree(distribution, self.folder)
        (self.folder / "tmp").mkdir()
        self.port, self._transport = free_ports(2)
        self.url = f"http://127.0.0.1:{self.port}"
        (self.folder / "config" / "elasticsearch.yml").write_text(
            "network.host: 127.0.0.1\n"
            f"http.port: {self.port}\n"
            f"transport.port: {self._transport}\n"
            "discovery.type: single-node\n"
            "xpack.security.enabled: false\n"
            "xpack.ml.enabled: false\n"
            "cluster.routing.allocation.disk.threshold_enabled: false\n"
        )
        (self.folder / "config" / "jvm.options.d" / "heap.options").write_text(HEAP)
        self.log.touch()
        self._as_nobody: list[str] = []
        if os.geteuid() == 0:
            setpriv = shutil.which("setpriv")
            assert setpriv is not None, "as root Elasticsearch is started through setpriv (package util-linux)"
            self._own.chmod(0o755)
            for path in (self._own, *self._own.rglob("*")):
                shutil.chown(path, "nobody")
            # Changing the user clears the leash's death signal, so it is set once more.
            self._as_nobody = [setpriv, "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--pdeathsig", "KILL"]

    def command(self) -> list[str]:
        return [*self._as_nobody, str(self.folder / "bin" / "elasticsearch")]

    def environment(self) -> Mapping[str, str]:
        java = shutil.which("java")
        assert java is not None, "Elasticsearch needs Java 17 (Debian: default-jre-headless)"
        own = {"ES_TMPDIR": str(self.folder / "tmp"), "HOME": str(self.folder), "CLI_JAVA_OPTS": "-XX:-UsePerfData"}
        return {**os.environ, **own, "ES_JAVA_HOME": str(Path(java).resolve().parents[1])}

    def is_ready(self) -> bool:
        return self.answers("/_cluster/health?wait_for_status=yellow&timeout=1s")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._own, ignore_errors=True)

    # -- what tests put in ------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> Any:
        request = urllib.request.Request(f"{self.url}/{path}", data=body, method=method, headers={"Content-Type": kind})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return msgspec.json.decode(answer.read())

    def put(
        self, index: str, documents: Iterable[Mapping[str, Any]], mappings: Mapping[str, Any] | None = None
    ) -> None:
        """An index with these documents, searchable when this returns."""
        self.ask("PUT", index, msgspec.json.encode({"mappings": mappings} if mappings else {}))
        lines = [line for each in documents for line in (b'{"index":{}}', msgspec.json.encode(each))]
        if lines:
            told = self.ask("POST", f"{index}/_bulk?refresh=true", b"\n".join(lines) + b"\n", "application/x-ndjson")
            assert not told["errors"], told

    def drop(self, index: str) -> None:
        self.ask("DELETE", index)
