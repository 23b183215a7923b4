"""The rig: a real etcd, kube-apiserver and, where asked for, controller-manager and scheduler on loopback.

Fixtures in tests/kube/conftest.py and the comparisons in bench/ start it. It must never listen beyond
127.0.0.1, never end a process that it did not start, and never outlive the process that started it.
"""

import base64
import contextlib
import http.client
import json
import os
import random
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self

import yaml

from tests.rigs.kube.certificates import Authority, KeyPair, write_ec_key

HERE: Final = Path(__file__).resolve().parent
DEPLOY: Final = HERE.parents[2] / "deploy"
RUNTIME_RBAC: Final = DEPLOY / "rbac" / "runtime.yaml"

# Below Linux's ephemeral range (32768 up): while a server is being restarted on its port, no outgoing
# connection, not even a client dialling that very port, may be given it as its own source port.
PORTS: Final = range(20_000, 32_000)
READY_S: Final = 90.0
TERM_S: Final = 10.0
KILL_S: Final = 10.0

AUDIT_POLICY: Final = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*", "/metrics", "/openapi*"]
- level: None
  users: ["system:apiserver"]
- level: Request
  verbs: [create, update, patch, delete, deletecollection]
- level: Metadata
"""

Component = Literal["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]


class RigBroken(Exception):
    """A server did not do what the rig asked of it; the message holds the end of its log."""


class Answer(NamedTuple):
    status: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


_claims: Final[list[socket.socket]] = []
# The kernel sends the leash's signal when the starting *thread* ends, so every server of this process is
# started from one thread that lives as long as the process does, whoever calls.
_spawner: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rig-spawner")


class Server:
    """One started program: its process, its log, its end."""

    def __init__(self, name: Component, command: Sequence[str], log: Path) -> None:
        self.name: Final = name
        self.log: Final = log
        leash = [sys.executable, "-I", "-S", str(HERE / "leash.py"), str(os.getpid())]
        with log.open("ab") as sink:
            self._process = _spawner.submit(
                subprocess.Popen,
                [*leash, *command],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal is for pytest; the servers are ended by their ids, in order.
                start_new_session=True,
            ).result()
        self.pid: Final = self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal (SIGSTOP and SIGCONT included) to this process and no other."""
        self._process.send_signal(number)

    def wait(self, timeout_s: float) -> bool:
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, term_s: float = TERM_S) -> None:
        if self.running:
            self.signal(signal.SIGTERM)
            # A frozen process keeps SIGTERM pending for ever.
            self.signal(signal.SIGCONT)
        if not self.wait(term_s):
            self.kill()

    def kill(self) -> None:
        if self.running:
            self.signal(signal.SIGKILL)
        if not self.wait(KILL_S):
            raise RigBroken(f"{self.name} (pid {self.pid}) survived SIGKILL for {KILL_S:.0f} s")

    def log_tail(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody listens on now and no other rig on this machine is about to."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if reserved(port):
            found.append(port)
            if len(found) == count:
                return found
    raise RigBroken(f"no {count} free ports between {PORTS.start} and {PORTS.stop}")


def reserved(port: int) -> bool:
    """Between finding a port and listening on it seconds go by: until this process ends, it is no one else's.

    The claim is a name in the kernel, not a file: whoever runs the tests, and wherever, nothing is left behind.
    """
    if sys.platform != "linux":
        return True
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0fairlead-port-{port}")
    except OSError:
        claim.close()
        return False
    # Never closed: the name is free again when the process ends.
    _claims.append(claim)
    return True


def until(true: Callable[[], bool], timeout_s: float, every_s: float = 0.05) -> bool:
    """Whether it came true in time. For what another process does; our own code is waited for by events."""
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True


class Rig:
    """A small real Kubernetes. `start`, use, `stop`; or `with Rig(programs) as rig: rig.start()`."""

    def __init__(self, programs: Path, home: Path | None = None) -> None:
        self.programs: Final = programs
        self.home: Final = home or Path(tempfile.mkdtemp(prefix="fairlead-rig-"))
        self._authority = Authority(self.home / "pki")
        self._serving = self._authority.server()
        self._sa_key = self.home / "pki" / "service-accounts.key"
        write_ec_key(self._sa_key)
        self._verify = ssl.create_default_context(cafile=str(self.ca_file))
        self._tokens: dict[str, str] = {}
        self._ports: dict[Component, int] = {}
        self._commands: dict[Component, list[str]] = {}
        self._servers: dict[Component, Server] = {}
        self._audit: list[dict[str, Any]] = []
        self._audit_read = 0
        self._kubeconfigs = 0

    # --- what clients need -------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._ports['kube-apiserver']}"

    @property
    def ca_file(self) -> Path:
        return self._authority.ca_file

    @property
    def serving_certificate(self) -> KeyPair:
        """What the servers show; a stand-in in front of one may show it too."""
        return self._serving

    @property
    def admin_token(self) -> str:
        return self._tokens["admin"]

    @property
    def stranger_token(self) -> str:
        """A known user without any role."""
        return self._tokens["stranger"]

    def client_certificate(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        return self._authority.client(user, groups)

    def kubeconfig(self, user_token: str | None = None, certificate: KeyPair | None = None) -> Path:
        """A kubeconfig file for the admin, for the bearer of a token, or for the holder of a certificate."""
        user: dict[str, str] = {}
        if certificate is not None:
            user["client-certificate-data"] = in_base64(certificate.cert)
            user["client-key-data"] = in_base64(certificate.key)
        else:
            user["token"] = user_token or self.admin_token
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "rig",
                    "cluster": {"server": self.url, "certificate-authority-data": in_base64(self.ca_file)},
                }
            ],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": "user"}}],
            "current-context": "rig",
        }
        self._kubeconfigs += 1
        return self._write(f"kubeconfig-{self._kubeconfigs}.yaml", yaml.safe_dump(config))

    def service_account_token(
        self,
        name: str = "fairlead",
        namespace: str = "fairlead-system",
        manifests: Sequence[Path] = (RUNTIME_RBAC,),
        expires_s: int = 3600,
    ) -> str:
        """Applies the manifests as the admin and returns a fresh token of the service account they make."""
        for manifest in manifests:
            self.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(manifest))
        answer = self.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": expires_s},
            },
        )
        token = answer.json()["status"]["token"]
        assert isinstance(token, str)
        return token

    # --- life --------------------------------------------------------------------------------------------

    def start(
        self,
        controller_manager: bool = False,
        scheduler: bool = False,
        fast_etcd: bool = True,
        apiserver_flags: Sequence[str] = (),
        watch_list: bool = True,
        controller_manager_flags: Sequence[str] = (),
        scheduler_config: Mapping[str, Any] | None = None,
        manifests: Sequence[Path] = (),
    ) -> Self:
        """Starts the servers and returns when each says it is ready (some 5 s).

        `manifests` are applied before the controller-manager starts: its garbage collector learns of kinds that come
        later only every 30 s. `fast_etcd` leaves fsync out. `watch_list=False` is a server that offers no streaming
        initial list.
        `scheduler_config` is laid over the top-level keys of the KubeSchedulerConfiguration.
        """
        if self._servers:
            raise RigBroken("already started")
        self._tokens = {
            name: secrets.token_urlsafe(24) for name in ("admin", "stranger", "controller-manager", "scheduler")
        }
        self._write_tokens()
        self._write("audit-policy.yaml", AUDIT_POLICY)
        names: list[Component] = ["etcd", "kube-apiserver"]
        names += ["kube-controller-manager"] if controller_manager else []
        names += ["kube-scheduler"] if scheduler else []
        *ports, peer_port = free_ports(len(names) + 1)
        self._ports = dict(zip(names, ports, strict=True))
        self._commands = {
            "etcd": self._etcd_flags(peer_port, fast_etcd),
            "kube-apiserver": self._apiserver_flags(watch_list, controller_manager, apiserver_flags),
        }
        try:
            self._launch("etcd")
            self._launch("kube-apiserver")
            for manifest in manifests:
                self.kubectl("apply", "--server-side", "-f", str(manifest))
            # These two start side by side; each may take some seconds to fill its caches.
            if controller_manager:
                self._commands["kube-controller-manager"] = self._controller_manager_flags(controller_manager_flags)
                self._launch("kube-controller-manager", wait=False)
            if scheduler:
                self._commands["kube-scheduler"] = self._scheduler_flags(scheduler_config or {})
                self._launch("kube-scheduler", wait=False)
            for name in names:
                self._await_ready(name)
            # kube-apiserver makes its own namespaces only after it says that it is ready.
            self._await_usable("default")
        except BaseException:
            self._stop_servers()
            raise
        return self

    def stop(self) -> None:
        """Ends every server (SIGTERM, then SIGKILL) and removes the rig's folder."""
        self._stop_servers()
        shutil.rmtree(self.home)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def server(self, name: Component) -> Server:
        return self._servers[name]

    def pids(self) -> dict[Component, int]:
        return {name: server.pid for name, server in self._servers.items()}

    def restart_apiserver(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends kube-apiserver with SIGTERM or SIGKILL and starts it on the same port, its watch cache empty."""
        self.stop_apiserver(how)
        self.start_apiserver()

    def stop_apiserver(self, how: signal.Signals = signal.SIGTERM) -> None:
        server = self._servers.pop("kube-apiserver")
        if how == signal.SIGKILL:
            server.kill()
        else:
            server.stop()

    def start_apiserver(self) -> None:
        self._launch("kube-apiserver")

    def start_scheduler(self, config: Mapping[str, Any] | None = None) -> None:
        """A kube-scheduler on a rig that runs already; `config` as for `start`."""
        if "kube-scheduler" in self._servers:
            raise RigBroken("kube-scheduler runs already")
        self._ports["kube-scheduler"] = free_ports(1)[0]
        self._commands["kube-scheduler"] = self._scheduler_flags(config or {})
        self._launch("kube-scheduler")

    def stop_scheduler(self) -> None:
        self._servers.pop("kube-scheduler").stop()

    # --- what tests do to it ------------------------------------------------------------------------------

    def request(
        self, method: str, path: str, body: Any = None, token: str | None = None, accept: str = "application/json"
    ) -> Answer:
        """One plain HTTP request, as the admin unless another token is given. No retry, no judgement of the status.

        A server that goes away in the middle is an OSError, wherever in the answer that was.
        """
        headers = {"Authorization": f"Bearer {token or self.admin_token}", "Accept": accept}
        payload = None
        if body is not None:
            payload = json.dumps(body)
            headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
        with self._connect("kube-apiserver") as connection:
            connection.request(method, path, payload, headers)
            try:
                response = connection.getresponse()
                return Answer(response.status, response.read())
            except http.client.HTTPException as cut:
                raise ConnectionError(f"{method} {path}: the answer broke off: {cut!r}") from cut

    def write(self, method: str, path: str, body: Any = None) -> Answer:
        """A request as the admin that must succeed: the rig is broken where it does not."""
        answer = self.request(method, path, body)
        if answer.status >= 300:
            raise RigBroken(f"{method} {path}: {answer.status} {answer.body.decode()}")
        return answer

    def kubectl(self, *args: str, stdin: str | None = None, token: str | None = None) -> str:
        """The built kubectl, as the admin unless another token is given; its stdout, or RigBroken with its stderr."""
        command = [str(self.programs / "kubectl"), f"--cache-dir={self.home / 'kubectl-cache'}"]
        command += [f"--kubeconfig={self.kubeconfig(token)}", *args]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=180, check=False)
        if done.returncode != 0:
            raise RigBroken(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def create_namespace(self, name: str) -> None:
        """Makes it and, where a controller-manager runs, waits until pods can be created in it."""
        self.write("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        self._await_usable(name)

    def _await_usable(self, namespace: str) -> None:
        """Waits until pods can be created in it: with a controller-manager they need its ServiceAccount."""
        account = "/serviceaccounts/default" if "kube-controller-manager" in self._servers else ""
        path = f"/api/v1/namespaces/{namespace}{account}"
        if not until(lambda: self.request("GET", path).status == 200, timeout_s=30.0):
            raise RigBroken(f"nobody made {path} within 30 s")

    def delete_namespace(self, name: str) -> None:
        """Deletes it; where no controller-manager runs, does its work: empties the namespace and lets it go."""
        path = f"/api/v1/namespaces/{name}"
        answer = self.request("DELETE", path)
        if answer.status not in (200, 202, 404, 409):
            raise RigBroken(f"namespace {name}: {answer.status} {answer.body.decode()}")
        if answer.status == 404 or "kube-controller-manager" in self._servers:
            return
        for collection in self._collections(name):
            self.request("DELETE", f"{collection}?gracePeriodSeconds=0")
        left = self.request("GET", path).json()
        self.write("PUT", f"{path}/finalize", {**left, "spec": {"finalizers": []}})

    def _collections(self, namespace: str) -> Iterator[str]:
        """The path of every kind of object that can live in the namespace."""
        accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        for root in ("/api", "/apis"):
            for group in self.request("GET", root, accept=accept).json()["items"]:
                version = group["versions"][0]
                prefix = f"/apis/{group['metadata']['name']}" if root == "/apis" else "/api"
                for kind in version["resources"]:
                    if kind["scope"] == "Namespaced" and "deletecollection" in kind["verbs"]:
                        yield f"{prefix}/{version['version']}/namespaces/{namespace}/{kind['resource']}"

    def revision(self) -> int:
        """etcd's present revision: the newest resourceVersion of all."""
        return int(self._etcd("/v3/maintenance/status", {})["header"]["revision"])

    def compact(self, restart: bool = True) -> int:
        """Compacts etcd up to the present revision and returns that revision.

        The watch cache answers from its own window and would still serve a resume from before the
        compaction, so kube-apiserver is restarted as well unless told not to.
        """
        # The revision compacted to stays readable: one more, of nobody's, makes every version handed out so far older.
        self._etcd("/v3/kv/put", {"key": _in_base64("rig/compaction"), "value": _in_base64(secrets.token_hex(4))})
        revision = self.revision()
        self._etcd("/v3/kv/compaction", {"revision": str(revision), "physical": True})
        if restart:
            self.restart_apiserver()
        return revision

    def audit(self) -> list[dict[str, Any]]:
        """Every audit event so far, in the order written; complete for requests answered before the call.

        The log is written in blocking mode, before the end of the response goes out. A marker request that
        must show up in it proves that what we read is not an earlier state of the file.
        """
        marker = f"rig-{secrets.token_hex(8)}"
        self.request("GET", f"/version?marker={marker}")

        def marker_seen() -> bool:
            fresh = self._read_audit()
            self._audit.extend(fresh)
            return any(marker in event["requestURI"] for event in fresh)

        if not until(marker_seen, timeout_s=60.0, every_s=0.02):
            raise RigBroken("the audit log does not show a request that was answered 10 s ago")
        return [event for event in self._audit if "/version?marker=rig-" not in event["requestURI"]]

    def metrics(self, name: Component = "kube-apiserver") -> str:
        """The server's metrics in Prometheus' text format."""
        with self._connect(name) as connection:
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {self.admin_token}"})
            response = connection.getresponse()
            text = response.read().decode()
            if response.status != 200:
                raise RigBroken(f"metrics of {name}: {response.status} {text[:300]}")
            return text

    # --- flags --------------------------------------------------------------------------------------------

    def _etcd_flags(self, peer_port: int, fast: bool) -> list[str]:
        client = f"http://127.0.0.1:{self._ports['etcd']}"
        peer = f"http://127.0.0.1:{peer_port}"
        return [
            "--name=rig",
            f"--data-dir={self.home / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=rig={peer}",
            "--quota-backend-bytes=8589934592",
            *(["--unsafe-no-fsync"] if fast else []),
        ]

    def _apiserver_flags(self, watch_list: bool, controllers: bool, more: Sequence[str]) -> list[str]:
        return [
            f"--etcd-servers=http://127.0.0.1:{self._ports['etcd']}",
            f"--secure-port={self._ports['kube-apiserver']}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--cert-dir={self.home / 'apiserver'}",
            f"--tls-cert-file={self._serving.cert}",
            f"--tls-private-key-file={self._serving.key}",
            f"--client-ca-file={self.ca_file}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._sa_key}",
            f"--service-account-signing-key-file={self._sa_key}",
            f"--token-auth-file={self.home / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",
            f"--audit-policy-file={self.home / 'audit-policy.yaml'}",
            f"--audit-log-path={self._audit_log}",
            "--audit-log-mode=blocking",
            "--audit-log-maxsize=0",
            # Without it, an open HTTP/1.1 watch holds a server that was asked to end for a minute.
            "--shutdown-watch-termination-grace-period=2s",
            # The rig compacts when a test says so; the server's own timer would make 410 a matter of luck.
            "--etcd-compaction-interval=0",
            # Without a controller-manager nobody makes the `default` ServiceAccounts the plugin insists on.
            *([] if controllers else ["--disable-admission-plugins=ServiceAccount"]),
            *([] if watch_list else ["--feature-gates=WatchList=false,WatchListClient=false"]),
            *more,
        ]

    def _side_flags(self, name: Component) -> list[str]:
        return [
            f"--secure-port={self._ports[name]}",
            "--bind-address=127.0.0.1",
            f"--tls-cert-file={self._serving.cert}",
            f"--tls-private-key-file={self._serving.key}",
            "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
        ]

    def _controller_manager_flags(self, more: Sequence[str]) -> list[str]:
        return [
            *self._side_flags("kube-controller-manager"),
            f"--kubeconfig={self.kubeconfig(self._tokens['controller-manager'])}",
            f"--service-account-private-key-file={self._sa_key}",
            f"--root-ca-file={self.ca_file}",
            "--leader-elect=false",
            "--use-service-account-credentials=false",
            # It makes this folder; left to itself, one of the system's.
            f"--flex-volume-plugin-dir={self.home / 'flexvolume'}",
            *more,
        ]

    def _scheduler_flags(self, overlay: Mapping[str, Any]) -> list[str]:
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {
                "kubeconfig": str(self.kubeconfig(self._tokens["scheduler"])),
                # Left to itself it throttles to 50 requests a second.
                "qps": 5000,
                "burst": 10000,
            },
            **overlay,
        }
        path = self._write("scheduler.yaml", yaml.safe_dump(config))
        return [*self._side_flags("kube-scheduler"), f"--config={path}"]

    def _write_tokens(self) -> None:
        users = {
            "admin": ("admin", "system:masters"),
            "stranger": ("stranger", ""),
            # It acts for every controller with its own credentials, which its bootstrap role does not cover.
            "controller-manager": ("system:kube-controller-manager", "system:masters"),
            "scheduler": ("system:kube-scheduler", ""),
        }
        lines = [f'{self._tokens[name]},{user},{user},"{groups}"' for name, (user, groups) in users.items()]
        self._write("tokens.csv", "\n".join(lines) + "\n")

    # --- processes ----------------------------------------------------------------------------------------

    def _launch(self, name: Component, wait: bool = True) -> None:
        command = [str(self.programs / name), *self._commands[name]]
        self._servers[name] = Server(name, command, self.home / f"{name}.log")
        if wait:
            self._await_ready(name)

    def _await_ready(self, name: Component) -> None:
        server = self._servers[name]
        if not until(lambda: not server.running or self._is_ready(name), READY_S):
            raise RigBroken(f"{name} was not ready after {READY_S:.0f} s:\n{server.log_tail()}")
        if not server.running:
            raise RigBroken(f"{name} ended before it was ready:\n{server.log_tail()}")

    def _is_ready(self, name: Component) -> bool:
        path = "/healthz" if name == "kube-controller-manager" else "/readyz"
        headers = {"Authorization": f"Bearer {self.admin_token}"} if name == "kube-apiserver" else {}
        try:
            with self._connect(name, timeout_s=5.0) as connection:
                connection.request("GET", path, headers=headers)
                return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False

    def _stop_servers(self) -> None:
        # Those that write go first, so that nobody waits for a server that is gone.
        while self._servers:
            _, server = self._servers.popitem()
            server.stop()

    @contextlib.contextmanager
    def _connect(self, name: Component, timeout_s: float = 30.0) -> Iterator[http.client.HTTPConnection]:
        port = self._ports[name]
        connection = (
            http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
            if name == "etcd"
            else http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout_s, context=self._verify)
        )
        with contextlib.closing(connection):
            yield connection

    def _etcd(self, path: str, body: Mapping[str, Any]) -> Any:
        with self._connect("etcd") as connection:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
            if response.status != 200:
                raise RigBroken(f"etcd {path}: {response.status} {answer}")
            return answer

    # --- files --------------------------------------------------------------------------------------------

    @property
    def _audit_log(self) -> Path:
        return self.home / "audit.log"

    def _read_audit(self) -> list[dict[str, Any]]:
        with self._audit_log.open("rb") as log:
            log.seek(self._audit_read)
            text = log.read()
        # The last line may be half written.
        whole = text.rfind(b"\n") + 1
        self._audit_read += whole
        return [_audit_event(line) for line in text[:whole].splitlines()]

    def _write(self, name: str, text: str) -> Path:
        path = self.home / name
        path.touch(mode=0o600)
        path.write_text(text)
        return path


def _audit_event(line: bytes) -> dict[str, Any]:
    """The event of a line. A server killed in the middle of one leaves its half, and the next goes on behind it."""
    begins = line.rfind(b'{"kind":"Event","apiVersion":"audit.k8s.io/')
    event: dict[str, Any] = json.loads(line[max(begins, 0) :])
    return event


def in_base64(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def _in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
