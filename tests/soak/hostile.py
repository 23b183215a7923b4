"""Hostile objects: whatever a tenant may write, of every kind that Fairlead reads, while ordinary pods arrive.

On a real kube-apiserver with `fairlead serve` under the roles it ships with, and on the embedded cluster of `fairlead
up`. The short forms are tests/kube/test_hostile.py and tests/contract/test_hostile.py. Objects are drawn by lot
(tests/hostile); judged from outside: the process lives, each ordinary pod has a node in time, memory stays within its
bound, and neither the embedded API server nor Fairlead's own API answers with a mistake of ours.
"""

import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import yaml

from bench.store import memory_mb
from fairlead.app import CAPABILITIES
from fairlead.model.kinds import LEASES, Kind
from fairlead.nodes.node import LEASE_NAMESPACE
from tests.contract.servers import Contestant, Heard, real
from tests.hostile.bases import BASES, CALLS
from tests.hostile.draw import Draw
from tests.hostile.kinds import known_kinds, own_names
from tests.rigs.kube.build import ensure_built
from tests.rigs.kube.servers import DEPLOY, RUNTIME_RBAC, Rig, RigBroken, free_ports, until
from tests.soak import bad_input

ROOT = Path(__file__).resolve().parents[2]
FLUID = "data.fluid.io"
# Groups of the kinds that rooms act on.
ROOMS = ("fairlead.io", "kdoctor.io", FLUID)
ROLES = ("placement", "requests", "jobs", "tasks", "data", "modules", "nodes", "webhooks")
MANIFESTS = (
    *sorted((DEPLOY / "crds").glob("*.yaml")),
    RUNTIME_RBAC,
    *(DEPLOY / "rbac" / f"{role}.yaml" for role in ROLES),
)
# Nobody is here to take the taint of new nodes away again.
SERVER_FLAGS = ("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",)
HOSTILE, ORDINARY, OWN = "hostile", "ordinary", "fairlead-system"
UNREADABLE = "unreadable"
PODS = f"/api/v1/namespaces/{ORDINARY}/pods"
# Where only ordinary pods go. Each node has its own value: no term of a stranger can shut out all of them at once.
MARK = "soak.example.com/ordinary"
NODES = 8
ALIVE = 60
MEMORY_MB = 900.0
# What wants to be placed in time is tried for so much longer, so that late and never can be told apart.
NEVER_TIMES = 4
# A process that lets go of its socket may take so long to say why and end.
ENDING_S = 20.0
START_S = 120.0
MERGE = "application/merge-patch+json"
NO_BODIES = (b"", b"\xff", b'{"spec": "\xff"}', b"[" * 50_000, b'{"metadata": ' + b'{"a":' * 20_000)


@dataclass
class Verdict:
    """What was seen, and everything that was wrong about it."""

    name: str
    wrong: list[str] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    peak_mb: float = 0.0
    end_mb: float = 0.0

    def told(self) -> str:
        slowest = max(self.took_s, default=0.0)
        return (
            f"{self.name}: {self.accepted.total()} hostile objects taken, {self.refused.total()} refused; "
            f"{len(self.took_s)} ordinary pods, the slowest in {slowest:.1f} s; "
            f"memory {self.peak_mb:.0f} MB at most, {self.end_mb:.0f} MB at the end; {len(self.wrong)} wrong"
        )


def judge_times(took_s: Mapping[str, float | None], within_s: float) -> list[str]:
    """Each pod by name, and after how many seconds it had a node; None: never."""
    if not took_s:
        return ["no ordinary pod was ever tried"]
    wrong = [f"{name} never had a node" for name, seconds in took_s.items() if seconds is None]
    return wrong + [
        f"{name} had a node after {seconds:.1f} s, more than {within_s:g}"
        for name, seconds in took_s.items()
        if seconds is not None and seconds > within_s
    ]


def judge_memory(peak_mb: float, end_mb: float, begin_mb: float) -> list[str]:
    wrong = [f"memory went to {peak_mb:.0f} MB, more than {MEMORY_MB:.0f}"] if peak_mb > MEMORY_MB else []
    most = begin_mb + 0.5 * MEMORY_MB
    return wrong + ([f"{end_mb:.0f} MB are held when all is gone, more than {most:.0f}"] if end_mb > most else [])


def judge_draws(accepted: Counter[str], refused: Counter[str]) -> list[str]:
    """A server that takes nothing of a kind shows nothing: such a kind needs a better base, or to be left out."""
    return [
        f"of {count} {name} drawn none was taken"
        for name, count in refused.items()
        if count > 25 and not accepted[name] and "(no answer)" not in name
    ]


def judge_log(text: str) -> list[str]:
    """Errors with a trace: our own mistakes, though somebody was there to catch them."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("{") and '"exception"' in line:
            entry = json.loads(line)
            if entry["event"] == "object cannot be read":
                continue  # the guard's own report, as it should be
            where = str(entry["exception"]).strip().splitlines()[-1]
            found.setdefault(f"{entry['event']}: {where}", str(entry["exception"])[-1500:])
    return [f"logged {what}\n{trace}" for what, trace in found.items()]


# -- the two places ------------------------------------------------------------------------------------------


@dataclass
class Place:
    """A server, the Fairlead beside or inside it, and where Fairlead's own API is."""

    server: Contestant
    process: subprocess.Popen[bytes]
    log: Path
    api: Callable[[], str]
    # Where bases announce themselves.
    bases: Callable[[], str]
    is_ours: bool

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Heard:
        headers = {"Authorization": f"Bearer {self.server.tokens['admin']}", "Content-Type": kind}
        try:
            return self.server.ask(method, path, None if body is None else json.dumps(body).encode(), headers)
        except (OSError, http.client.HTTPException):
            # Nothing more can be said over a connection that broke in the middle.
            self.server.hang_up()
            raise

    def termination_message(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-6:])[-3000:]


def start(arguments: list[str], log: Path, bug: str, **variables: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.soak.hostile_process", *(["--bug", bug] if bug else []), *arguments]
    with log.open("wb") as sink:
        return subprocess.Popen(command, cwd=ROOT, stdout=sink, stderr=sink, env={**os.environ, **variables})


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait(60)


@contextlib.contextmanager
def beside_a_real_server(rig: Rig, folder: Path, bug: str = "") -> Iterator[Place]:
    """`fairlead serve` with every capability under its own roles; the rig is one started with SERVER_FLAGS."""
    kubeconfig = rig.kubeconfig(rig.service_account_token(manifests=MANIFESTS))
    log = folder / "serve.log"
    flags = [f"--kubeconfig={kubeconfig}", f"--capabilities={','.join(CAPABILITIES)}", "--listen=127.0.0.1:0"]
    bases, (webhooks, listener) = folder / "bases.url", free_ports(2)
    process = start(
        ["serve", *flags],
        log,
        bug,
        FAIRLEAD_WEBHOOKS_LISTEN=f"127.0.0.1:{webhooks}",
        FAIRLEAD_MODULES_LISTEN=f"127.0.0.1:{listener}",
        FAIRLEAD_MODULES_URL_FILE=str(bases),
    )
    server = real(rig)

    def address() -> str:
        for line in log.read_text().splitlines():
            if '"listening"' in line:
                return f"http://{json.loads(line)['address']}"
        return ""

    try:
        leads = len(CAPABILITIES)
        if not until(lambda: process.poll() is not None or log.read_text().count('"leading"') >= leads, START_S):
            raise RigBroken(f"fairlead serve does not lead:\n{log.read_text()[-2000:]}")
        yield Place(server, process, log, address, bases.read_text, is_ours=False)
    finally:
        server.close()
        end(process)


@contextlib.contextmanager
def on_the_embedded_cluster(folder: Path, bug: str = "") -> Iterator[Place]:
    """`fairlead up` without nodes or controllers of its own: what arrives is only read and placed."""
    data, log = folder / "data", folder / "up.log"
    process = start(["up", f"--data={data}", "--empty", "--without=controllers", "--listen=127.0.0.1:0"], log, bug)
    try:
        if not until(lambda: process.poll() is not None or "brings everything back" in log.read_text(), START_S):
            raise RigBroken(f"fairlead up is not up:\n{log.read_text()[-2000:]}")
        config = yaml.safe_load((data / "kubeconfig").read_text())
        token = (data / "api.token").read_text()
        url = config["clusters"][0]["cluster"]["server"]
        server = Contestant("embedded", url, data / "pki" / "ca.crt", {"admin": token})
        try:
            urls = data / "api.url", data / "modules.url"
            yield Place(server, process, log, urls[0].read_text, urls[1].read_text, is_ours=True)
        finally:
            server.close()
    finally:
        end(process)


def open_definition(kind: Kind[Any]) -> dict[str, Any]:
    """The kind as another project defines it: with whatever fields."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": kind.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": kind.plural, "singular": kind.kind.lower(), "kind": kind.kind, "listKind": f"{kind.kind}List"}
    scope = "Namespaced" if kind.namespaced else "Cluster"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.name},
        "spec": {"group": kind.group, "scope": scope, "names": names, "versions": [version]},
    }


# -- the story -----------------------------------------------------------------------------------------------


LEAST_PODS = 4


class Story:
    def __init__(self, place: Place, seed: int, within_s: float) -> None:
        self.place = place
        self.verdict = Verdict(place.server.name)
        self._rng = random.Random(seed)
        self._within_s = within_s
        self._alive: deque[tuple[str, str]] = deque()
        self._uids: deque[str] = deque(maxlen=50)
        self._draw = Draw(self._rng, own_names(), lambda: tuple(self._uids))
        self._kinds = known_kinds(of_placement=True)
        self._answers = bad_input.Judge()
        self._took_s: dict[str, float | None] = {}
        self._enough = threading.Event()
        self._number = 0

    def run(self, draws: int) -> Verdict:
        begin_mb = memory_mb(self.place.process.pid)
        self._furnish()
        arriving = threading.Thread(target=self._arrive, name="ordinary pods", daemon=True)
        arriving.start()
        for _ in range(draws):
            if self.place.process.poll() is not None:
                break
            self._attack()
            self._measure()
        # On a quick machine the draws are over before ordinary pods had a chance to be late.
        until(lambda: self.place.process.poll() is not None or len(self._took_s) >= LEAST_PODS, self._within_s * 20)
        self._enough.set()
        arriving.join(self._within_s * NEVER_TIMES + 60)
        if self.place.process.poll() is None:
            self._check_reports()
            self._clear()
        return self._judged(begin_mb)

    def _judged(self, begin_mb: float) -> Verdict:
        found = self.verdict
        found.took_s = [seconds for seconds in self._took_s.values() if seconds is not None]
        if (code := self.place.process.poll()) is not None:
            found.wrong.append(f"fairlead ended with {code}:\n{self.place.termination_message()}")
        else:
            found.end_mb = memory_mb(self.place.process.pid)
            found.wrong += judge_memory(found.peak_mb, found.end_mb, begin_mb)
            found.wrong += judge_draws(found.accepted, found.refused)
        found.wrong += judge_times(self._took_s, self._within_s)
        found.wrong += judge_log(self.place.log.read_text(errors="replace"))
        if self.place.is_ours:
            found.wrong += self._answers.problems
        return found

    def _measure(self) -> None:
        with contextlib.suppress(OSError):  # it has just ended, which is told elsewhere
            self.verdict.peak_mb = max(self.verdict.peak_mb, memory_mb(self.place.process.pid))

    # -- ordinary pods, one after the other, from a thread of their own -----------------------------------------

    def _furnish(self) -> None:
        for kinds in self._kinds.values():
            if kinds[0].group == FLUID:
                path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
                assert self.place.ask("POST", path, open_definition(kinds[0])).status in (201, 409)
        for name in (HOSTILE, ORDINARY, OWN, LEASE_NAMESPACE):
            assert self.place.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}}).status in (201, 409)
            # No controller is here to make it.
            account = {"metadata": {"name": "default"}}
            path = f"/api/v1/namespaces/{name}/serviceaccounts"
            assert self.place.ask("POST", path, account).status in (201, 409)
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "500"}
        ready = [{"type": "Ready", "status": "True", "reason": "Here"}]
        status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
        for number in range(NODES):
            name = f"ordinary-{number}"
            labels = {"kubernetes.io/hostname": name, MARK: name}
            taint = {"key": MARK, "effect": "NoSchedule"}
            body = {"metadata": {"name": name, "labels": labels}, "spec": {"taints": [taint]}, "status": status}
            assert self.place.ask("POST", "/api/v1/nodes", body).status in (201, 409)
            # Admission taints new nodes; a controller would take that away again.
            told = self.place.ask("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": [taint]}}, MERGE)
            assert told.status == 200, told.body
        web = BASES["deployments.apps"]
        path = f"/apis/apps/v1/namespaces/{HOSTILE}/deployments"
        assert self.place.ask("POST", path, {**web, "metadata": {"name": "web"}}).status in (201, 409)

    def _arrive(self) -> None:
        number = 0
        while not self._enough.is_set() and self.place.process.poll() is None:
            number += 1
            name = f"ordinary-{number}"
            try:
                self._took_s[name] = self._place_one(name)
                self.place.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
            except (OSError, http.client.HTTPException, AssertionError) as problem:
                # The embedded server ends with the process: that it did is told elsewhere.
                if not until(lambda: self.place.process.poll() is not None, ENDING_S):
                    self.verdict.wrong.append(f"{name} was not taken: {problem!r}")
                return
            self._enough.wait(0.2)

    def _place_one(self, name: str) -> float | None:
        wanted = {"key": MARK, "operator": "Exists"}
        spec = {
            "schedulerName": "fairlead",
            "tolerations": [wanted],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [wanted]}]
                    }
                }
            },
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m", "memory": "10Mi"}}}],
        }
        made = self.place.ask("POST", PODS, {"metadata": {"name": name}, "spec": spec})
        assert made.status == 201, made.body
        begun = time.monotonic()

        def has_a_node() -> bool:
            found = self.place.ask("GET", f"{PODS}/{name}")
            return found.status == 200 and "nodeName" in found.json()["spec"]

        def has_ended() -> bool:
            return self.place.process.poll() is not None

        # Nobody places pods any more once it has ended.
        is_over = until(lambda: has_ended() or has_a_node(), NEVER_TIMES * self._within_s)
        return time.monotonic() - begun if is_over and not has_ended() else None

    # -- what its author is told ------------------------------------------------------------------------------

    def _check_reports(self) -> None:
        """An object that cannot be read has an event that says so."""
        kind = self._kinds[f"datasets.{FLUID}"][0]
        head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": UNREADABLE}}
        made = self._sent(kind, "POST", kind.collection_path(HOSTILE), {**head, "spec": {"mounts": 7}})
        uid = made.json()["metadata"]["uid"] if made.status == 201 else ""
        path = f"/apis/events.k8s.io/v1/namespaces/{HOSTILE}/events?fieldSelector=regarding.name={UNREADABLE}"

        def is_reported() -> bool:
            try:
                events = self.place.ask("GET", path).json()["items"]
            except (OSError, http.client.HTTPException):
                return False  # a server with much to do; it is asked again
            return any((each["reason"], each["regarding"].get("uid")) == ("Unreadable", uid) for each in events)

        if not until(is_reported, NEVER_TIMES * self._within_s, every_s=0.5):
            self.verdict.wrong.append(f"no event says that {kind.kind} {UNREADABLE} cannot be read ({made.status})")
        self._remove(kind.name, f"{kind.collection_path(HOSTILE)}/{UNREADABLE}")

    # -- and those who do not wish us well ----------------------------------------------------------------------

    def _attack(self) -> None:
        match self._rng.random():
            case luck if luck < 0.1:
                self._call()
            case luck if luck < 0.2 and self._alive:
                self._change()
            case _:
                self._create()
        while len(self._alive) > ALIVE:
            self._remove(*self._alive.popleft())

    def _create(self) -> None:
        rng = self._rng
        # Pods and nodes are most of what is read; of the others, each as often as the next.
        name = rng.choices(("pods", "nodes", "room", ""), (6, 2, 4, 6))[0]
        if name in ("room", ""):
            name = rng.choice([each for each, kinds in self._kinds.items() if not name or kinds[0].group in ROOMS])
        kind = rng.choice(self._kinds[name])
        body = self._draw.bent(BASES.get(kind.name, {}), kind.struct)
        self._number += 1
        name = f"hostile-{self._number}" if kind.name != "nodes" else f"hostile-{self._number % 10}"
        metadata = body.get("metadata")
        body["metadata"] = {**(metadata if isinstance(metadata, dict) else {}), "name": name}
        if kind.name == "pods" and isinstance(body.get("spec"), dict) and rng.random() < 0.5:
            # Whoever holds a node is counted, whoever placed it.
            body["spec"]["nodeName"] = f"hostile-{rng.randrange(10)}"
        body |= {"apiVersion": kind.api_version, "kind": kind.kind}
        path = kind.collection_path(self._namespace(kind))
        if self._sent(kind, "POST", path, body).status == 201:
            self._alive.append((kind.name, f"{path}/{name}"))
            if kind.name == "nodes" and not isinstance(body.get("spec"), dict):
                self._sent(kind, "PATCH", f"{path}/{name}", {"spec": {"taints": None}}, MERGE)
            if "status" in kind.struct.__struct_fields__:
                self._tell_status(kind, f"{path}/{name}")

    def _tell_status(self, kind: Kind[Any], path: str) -> None:
        """As whoever may write a status: a kubelet, a controller, a tenant with too wide a role."""
        status = self._draw.bent({"status": {}}, kind.struct).get("status")
        if status:
            self._sent(kind, "PATCH", f"{path}/status", {"status": status}, MERGE)

    def _change(self) -> None:
        rng = self._rng
        name, path = rng.choice(self._alive)
        kind = rng.choice(self._kinds[name])
        body = self._draw.bent({}, kind.struct)
        if isinstance(metadata := body.get("metadata"), dict):
            body["metadata"] = {
                key: metadata[key] for key in ("labels", "annotations", "ownerReferences") if key in metadata
            }
        self._sent(kind, "PATCH", path, body, MERGE)

    def _remove(self, name: str, path: str) -> None:
        try:
            # Finalizers are among what is drawn.
            self.place.ask("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
            self.place.ask("DELETE", f"{path}?gracePeriodSeconds=0")
        except (OSError, http.client.HTTPException) as problem:
            self._broke(f"DELETE {path}", name, problem)

    def _broke(self, asked: str, name: str, problem: Exception) -> None:
        """No answer. Ours to give where the server is ours, and lives; a real one may hang up on what it likes."""
        self.verdict.refused[f"{name} (no answer)"] += 1
        if self.place.is_ours and not until(lambda: self.place.process.poll() is not None, ENDING_S):
            self._answers.problems.append(f"{type(problem).__name__} {asked}")

    def _clear(self) -> None:
        while self._alive:
            self._remove(*self._alive.popleft())
        # What has been let go is given back a moment later.
        until(lambda: memory_mb(self.place.process.pid) < MEMORY_MB / 3, 10)

    def _sent(self, kind: Kind[Any], method: str, path: str, body: Any, content: str = "application/json") -> Heard:
        text = json.dumps(body)
        try:
            heard = self.place.ask(method, path, body, content)
        except (OSError, http.client.HTTPException) as problem:
            self._broke(f"{method} {path}: {text[:600]}", kind.name, problem)
            return Heard(0, {}, b"")
        self._answers.look(f"{method} {path} {text[:600]}", method, heard.status, heard.body)
        taken = heard.status in (200, 201)
        (self.verdict.accepted if taken else self.verdict.refused)[kind.name] += 1
        if taken:
            self._uids.append(heard.json()["metadata"]["uid"])
        return heard

    def _namespace(self, kind: Kind[Any]) -> str:
        if not kind.namespaced:
            return ""
        if kind.name == LEASES.name:
            return LEASE_NAMESPACE
        return OWN if kind.name in ("schedulerequests.fairlead.io", "taskreports.fairlead.io") else HOSTILE

    def _call(self) -> None:
        """Fairlead's own APIs, asked by somebody whom the cluster knows."""
        path, base = self._rng.choice(CALLS)
        body = self._draw.odd(base) if self._rng.random() < 0.9 else base
        text = json.dumps(body).encode()
        if self._rng.random() < 0.1:
            text = self._rng.choice(NO_BODIES)
        url = self.place.bases() if path in ("/heartbeat", "/queryBaseline") else self.place.api()
        place = urlsplit(url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)
        headers = {"Authorization": f"Bearer {self.place.server.tokens['admin']}", "Content-Type": "application/json"}
        asked = f"POST {path} {text[:600]!r}"
        with contextlib.closing(connection):
            try:
                connection.request("POST", path, text, headers)
                answer = connection.getresponse()
                if answer.status == 500:
                    self.verdict.wrong.append(f"500 {asked}: {answer.read()[:300]!r}")
            except (OSError, http.client.HTTPException) as problem:
                if not until(lambda: self.place.process.poll() is not None, ENDING_S):
                    self.verdict.wrong.append(f"{type(problem).__name__} {asked}")


def soak(place: Place, *, draws: int, seed: int, within_s: float) -> Verdict:
    found = Story(place, seed, within_s).run(draws)
    click.echo(f"seed {seed}: {found.told()}")
    return found


@click.command()
@click.option("--draws", default=2000, help="Hostile objects and requests on each server.")
@click.option("--seed", default=1)
@click.option("--rounds", default=1, help="Each with another seed.")
@click.option("--within", "within_s", default=5.0, help="Seconds in which an ordinary pod must have a node.")
@click.option("--on", "servers", type=click.Choice(["real", "embedded"]), multiple=True, default=("real", "embedded"))
def main(draws: int, seed: int, rounds: int, within_s: float, servers: tuple[str, ...]) -> None:
    passed = failed = 0
    for number in range(seed, seed + rounds):
        for server in servers:
            with contextlib.ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fairlead-hostile-")))
                if server == "real":
                    rig = stack.enter_context(Rig(ensure_built())).start(apiserver_flags=SERVER_FLAGS)
                    place = stack.enter_context(beside_a_real_server(rig, folder))
                else:
                    place = stack.enter_context(on_the_embedded_cluster(folder))
                found = soak(place, draws=draws, seed=number, within_s=within_s)
            for each in found.wrong[:20]:
                click.echo(f"  wrong: {each}")
            passed, failed = passed + (not found.wrong), failed + bool(found.wrong)
    click.echo(f"{passed} passed, {failed} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
