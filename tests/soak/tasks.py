"""`scripts/soak tasks`: the tasks controller killed at every write, and tasks deleted at every write, on a real server.

Each replica talks to kube-apiserver through a gate of this process. At a write of a kind it has not met, the gate kills
the replica (-9) before the write is passed on, at the next one after it was answered; or it has the task deleted and
created again under the same name while the write is held; or it answers each status with a conflict first, cuts every
connection in each phase, and takes none for a while. A thread's worth of kubelet and agent makes pods ready and
posts reports. What exists in the end and the server's audit log are the judge.
"""

import asyncio
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import click
from aiohttp import web

from tests.rigs.kube.build import ensure_built
from tests.rigs.kube.servers import DEPLOY, RUNTIME_RBAC, Rig

Json = dict[str, Any]

HOME: Final = "fairlead-system"
SERVICES: Final = ("kdoctor-netreach-story-ipv4", "kdoctor-netreach-story-ipv6")
TASKS: Final = "/apis/kdoctor.io/v1beta1/netreaches"
APPS: Final = f"/apis/apps/v1/namespaces/{HOME}"
CORE: Final = f"/api/v1/namespaces/{HOME}"
REPORTS: Final = f"/apis/fairlead.io/v1alpha1/namespaces/{HOME}/taskreports"
LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/fairlead-tasks"
NODE: Final = "worker-1"
DUAL_STACK: Final = "--service-cluster-ip-range=10.0.0.0/24,fd00:10::/112"
# Nobody renews the node's heartbeat: it would be declared lost after 40 s, and its pods not ready.
PATIENT: Final = "--node-monitor-grace-period=24h"
MOST_LIVES: Final = 3
MODES: Final = ("kill", "recreate", "outage")
MANIFESTS: Final = (
    RUNTIME_RBAC,
    DEPLOY / "rbac" / "tasks.yaml",
    DEPLOY / "rbac" / "webhooks.yaml",
    DEPLOY / "crds" / "tasks.yaml",
    DEPLOY / "tasks" / "agent.yaml",
)
# No write of a task: who leads, what happened, who may do what, certificates, and the trial that finds IP families.
OTHERS: Final = ("/leases", "/events", "/tokenreviews", "/subjectaccessreviews", "/secrets/fairlead-", "dryRun=All")
QUICK: Final = {
    "FAIRLEAD_LEASE_DURATION_S": "5",
    "FAIRLEAD_LEASE_RENEW_DEADLINE_S": "4",
    "FAIRLEAD_LEASE_RETRY_S": "0.3",
    "FAIRLEAD_TASKS_POLL_S": "1",
    "FAIRLEAD_WEBHOOKS_LISTEN": "127.0.0.1:0",
}
FAIRLEAD: Final = f"system:serviceaccount:{HOME}:fairlead"
ORDER: Final = ("notstarted", "ongoing", "fail", "succeed")
# In the order of a task's life.
PHASES: Final = ("creation", "round", "finish", "removal")


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug of tests/soak/tasks_process.py: under what it shows, and what the judge says of it."""

    name: str
    mode: str
    phases: tuple[str, ...]
    words: str
    deadline_s: float = 300.0


BUGS: Final = (
    Bug("unowned", "", (), "left over"),
    Bug("renamed", "kill", ("round",), "times: report"),
    Bug("blind", "recreate", ("round",), "did not end", deadline_s=90.0),
    Bug("hasty", "kill", ("removal",), "before its task was finished"),
)


def described(method: str, path: str, body: Any) -> str:
    """What a write does, in words that are the same for every task; empty for one that is no write of a task."""
    if method not in ("POST", "PUT", "PATCH", "DELETE") or any(each in path for each in OTHERS):
        return ""
    parts = path.partition("?")[0].split("/")
    if "netreaches" in parts and parts[-1] == "status":
        return f"status: {_status_words((body or {}).get('status') or {})}"
    for kind in ("daemonsets", "services", "taskreports"):
        if kind in parts:
            name = (body or {}).get("metadata", {}).get("name", "") if isinstance(body, dict) else ""
            family = name.rpartition("-")[2] if kind == "services" else ""
            number = (body or {}).get("spec", {}).get("roundNumber", "") if kind == "taskreports" else ""
            return " ".join(str(each) for each in (method, kind, family, number) if each)
    return ""


def _status_words(status: Json) -> str:
    words = []
    if (resource := status.get("resource") or {}).get("runtimeStatus"):
        words.append(resource["runtimeStatus"])
    if status.get("history"):
        record = status["history"][0]
        words.append(f"round {record['roundNumber']} {record['status']}")
    return ", ".join([*words, *(["finished"] if status.get("finish") else [])]) or "conditions"


def phase_of(write: str) -> str:
    """Which part of a task's life a write belongs to."""
    if "deleted" in write or write.startswith("DELETE"):
        return "removal"
    if "finished" in write:
        return "finish"
    return "round" if "round" in write or "taskreports" in write else "creation"


@dataclass(slots=True)
class Replica:
    process: subprocess.Popen[bytes]
    log: Path
    port: int

    @property
    def url(self) -> str:
        for line in self.log.read_text().splitlines():
            if '"listening"' in line:
                return f"http://{json.loads(line)['address']}"
        return ""

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)


@dataclass(slots=True)
class Gate:
    """Between the replicas and the server. `at` decides at a write: pass, before, after, recreate, conflict, outage."""

    rig: Rig
    at: Callable[[str], str]
    recreate: Callable[[], None]
    kill: Callable[[int], None]
    outage_s: float = 60.0
    describe: Callable[[str, str, Any], str] = described
    """What a write does, in words; empty for one that passes unseen."""
    met: list[str] = field(default_factory=list)
    _until_s: float = 0.0
    _open: dict[asyncio.Task[Any], asyncio.Transport] = field(default_factory=dict)
    _session: aiohttp.ClientSession | None = None
    _runner: web.ServerRunner | None = None
    _tls: ssl.SSLContext | None = None

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        verify = ssl.create_default_context(cafile=str(self.rig.ca_file))
        pair = self.rig.serving_certificate
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(pair.cert, pair.key)
        connector = aiohttp.TCPConnector(ssl=verify, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._session:
            self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)
            await self._runner.setup()
            try:
                yield
            finally:
                # Watches would last.
                for handler in (pending := tuple(self._open)):
                    handler.cancel()
                await asyncio.gather(*pending, return_exceptions=True)
                await self._runner.cleanup()

    async def listen(self) -> int:
        """One more way in, for one replica."""
        assert self._runner is not None
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        port: int = self._runner.addresses[-1][1]
        return port

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        handler = asyncio.current_task()
        assert handler is not None
        assert request.transport is not None
        self._open[handler] = request.transport
        try:
            return await self._answer(request)
        except (ConnectionError, aiohttp.ClientError):
            # The replica is dead, or the server has ended the watch: either way the connection is over.
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)
        finally:
            del self._open[handler]

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self._check_outage()
        body = await request.read()
        decoded = json.loads(body) if body[:1] == b"{" else {}
        write = self.describe(request.method, request.path_qs, decoded)
        assert request.transport is not None
        port: int = request.transport.get_extra_info("sockname")[1]
        what = self.at(write) if write else "pass"
        if write:
            self.met.append(write)
        if what == "before":
            self.kill(port)
            raise ConnectionResetError("killed before the write")
        if what == "recreate":
            await asyncio.to_thread(self.recreate)
        if what == "conflict":
            conflict = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409}
            return web.json_response({**conflict, "message": "the object has been modified"}, status=409)
        if what == "outage":
            self._until_s = time.monotonic() + self.outage_s
            for transport in tuple(self._open.values()):
                transport.abort()
            self._check_outage()
        return await self._pass_on(request, body, port if what == "after" else 0)

    def _check_outage(self) -> None:
        if time.monotonic() < self._until_s:
            raise ConnectionResetError("the server is away")

    async def _pass_on(self, request: web.BaseRequest, body: bytes, killed: int) -> web.StreamResponse:
        assert self._session is not None
        headers = {k: v for k, v in request.headers.items() if k.lower() not in ("host", "content-length")}
        url = f"{self.rig.url}{request.path_qs}"
        async with self._session.request(
            request.method, url, data=body or None, headers=headers, timeout=aiohttp.ClientTimeout(total=None)
        ) as answer:
            if killed:
                await answer.read()
                self.kill(killed)
                raise ConnectionResetError("killed after the write")
            dropped = ("transfer-encoding", "content-length", "connection")
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in dropped}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response


class Story:
    """One task, again and again, under a controller that is killed or a name that is used again."""

    def __init__(self, rig: Rig, folder: Path, phases: tuple[str, ...], deadline_s: float, bug: str = "") -> None:
        self.rig = rig
        self.program = ["tests.soak.tasks_process", bug] if bug else ["fairlead"]
        self.folder = folder
        self.phases = phases
        self.deadline_s = deadline_s
        self.replicas: dict[int, Replica] = {}
        self.kills: Counter[str] = Counter()
        self.recreated: Counter[str] = Counter()
        self.conflicts: Counter[str] = Counter()
        self.outages: Counter[str] = Counter()
        self.answers: Counter[int] = Counter()
        self.uids: list[str] = []
        self.mode = ""
        self.gate = Gate(rig, self._at, self._recreate, self._kill)
        self._made = 0
        token = rig.service_account_token(manifests=())
        self._kubeconfig = rig.kubeconfig(token).read_text()
        self._tokens: dict[str, str] = {}
        self._acknowledged: set[tuple[str, int, str]] = set()

    # -- what happens at a write

    def _at(self, write: str) -> str:
        if self.mode == "outage" and write.startswith("status") and not self.conflicts[write]:
            self.conflicts[write] += 1
            return "conflict"
        if phase_of(write) not in self.phases:
            return "pass"
        if self.mode == "kill":
            times = self.kills[write]
            self.kills[write] += times < 2
            return ("before", "after", "pass")[times]
        if self.mode == "recreate" and not self.recreated[write]:
            self.recreated[write] += 1
            return "recreate"
        if self.mode == "outage" and not self.outages[phase_of(write)]:
            self.outages[phase_of(write)] += 1
            return "outage"
        return "pass"

    def _kill(self, port: int) -> None:
        self.replicas.pop(port).kill()
        # Its lease has run out, and a standby does not wait for the clock.
        self.rig.request("DELETE", LEASE)

    def _recreate(self) -> None:
        self.rig.request("DELETE", f"{TASKS}/story")
        self.create()

    def create(self) -> None:
        spec = {
            "agentSpec": {"terminationGracePeriodMinutes": 0},
            "schedule": {"schedule": "0 60", "roundTimeoutMinute": 60, "roundNumber": 2},
            "target": {"ipv4": True, "ipv6": True},
        }
        body = {"apiVersion": "kdoctor.io/v1beta1", "kind": "NetReach", "metadata": {"name": "story"}, "spec": spec}
        answer = self.rig.request("POST", TASKS, body)
        assert answer.status == 201, answer.body
        self.uids.append(answer.json()["metadata"]["uid"])

    async def start_replica(self) -> None:
        self._made += 1
        port = await self.gate.listen()
        kubeconfig = self.folder / f"kubeconfig-{self._made}.yaml"
        kubeconfig.write_text(self._kubeconfig.replace(self.rig.url, f"https://127.0.0.1:{port}"))
        log = self.folder / f"replica-{self._made}.log"
        command = [sys.executable, "-m", *self.program, "serve", f"--kubeconfig={kubeconfig}", "--listen=127.0.0.1:0"]
        with log.open("wb") as sink:
            process = subprocess.Popen([*command, "--capabilities=tasks"], stderr=sink, env={**os.environ, **QUICK})
        self.replicas[port] = Replica(process, log, port)

    # -- kubelet and agent

    def items(self, path: str, part: str = "story") -> list[Json]:
        found = self.rig.request("GET", path).json().get("items", [])
        return [each for each in found if part in each["metadata"]["name"] or path == REPORTS]

    def task(self) -> Json:
        answer = self.rig.request("GET", f"{TASKS}/story")
        found: Json = answer.json() if answer.status == 200 else {}
        return found

    def act(self) -> None:
        """Pods run, agents report, and the second round starts at once."""
        task = self.task()
        status = task.get("status") or {}
        for pod in self.items(f"{CORE}/pods"):
            self._run_pod(pod)
        history = status.get("history") or [{}]
        if history[0].get("status") == "ongoing":
            for actor in status.get("actors") or ():
                self._report(task, history[0]["roundNumber"], actor)
        elif history[0].get("roundNumber") == 2 and history[0].get("status") == "notstarted" and not status["finish"]:
            self.rig.request(
                "PATCH", f"{TASKS}/story", {"metadata": {"annotations": {"tasks.fairlead.io/run-now": "second"}}}
            )

    def _run_pod(self, pod: Json) -> None:
        path = f"{CORE}/pods/{pod['metadata']['name']}"
        if pod["metadata"].get("deletionTimestamp"):
            self.rig.request("DELETE", f"{path}?gracePeriodSeconds=0")
        elif not pod["spec"].get("nodeName"):
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod["metadata"]["name"]}}
            self.rig.request("POST", f"{path}/binding", {**binding, "target": {"kind": "Node", "name": NODE}})
        elif pod["status"].get("phase") != "Running":
            addresses = [{"ip": "10.1.0.1"}, {"ip": "fd00:1::1"}]
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            ready = [{"type": "Ready", "status": "True", "lastTransitionTime": now}]
            status = {"phase": "Running", "podIP": "10.1.0.1", "podIPs": addresses, "conditions": ready}
            self.rig.request("PATCH", f"{path}/status", {"status": status})

    def _report(self, task: Json, number: int, actor: Json) -> None:
        uid = task["metadata"]["uid"]
        if (uid, number, actor["uid"]) in self._acknowledged:
            return  # an answer that was lost is none: it is sent again
        body = {"taskKind": "NetReach", "taskName": "story", "taskUID": uid, "roundNumber": number}
        body["report"] = {"roundResult": "succeed"}
        token = self._token(actor)
        for replica in list(self.replicas.values()):
            if token and replica.url:
                status = post(replica.url, token, body)
                self.answers[status] += 1
                if status in (200, 201):
                    self._acknowledged.add((uid, number, actor["uid"]))
                    return

    def _token(self, actor: Json) -> str:
        if actor["uid"] not in self._tokens:
            bound = {"kind": "Pod", "apiVersion": "v1", "name": actor["pod"], "uid": actor["uid"]}
            spec = {"audiences": ["tasks.fairlead.io"], "boundObjectRef": bound, "expirationSeconds": 3600}
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
            answer = self.rig.request("POST", f"{CORE}/serviceaccounts/fairlead-agent/token", body)
            if answer.status != 201:
                return ""  # the pod is gone
            self._tokens[actor["uid"]] = answer.json()["status"]["token"]
        return self._tokens[actor["uid"]]

    # -- the whole

    async def run(self, mode: str) -> list[str]:
        """The life of a task, until nothing is left of it; what was wrong."""
        self.mode = mode
        self.uids = []
        begun_s, before = time.monotonic(), len(self.rig.audit())
        await asyncio.to_thread(self.create)
        while True:
            if gone := [each for each in self.replicas.values() if each.process.poll() is not None]:
                return [f"a replica ended by itself:\n{each.log.read_text()[-3000:]}" for each in gone]
            while len(self.replicas) < 2:
                await self.start_replica()
            await asyncio.to_thread(self.act)
            status = (await asyncio.to_thread(self.task)).get("status") or {}
            if (status.get("resource") or {}).get("runtimeStatus") == "deleted":
                break
            if time.monotonic() - begun_s > self.deadline_s:
                self.rig.request("DELETE", f"{TASKS}/story")
                words = f"{self.kills}, {self.recreated}, {self.answers}: {json.dumps(status)[:2000]}"
                return [f"the task did not end in {self.deadline_s:.0f} s: {words}", *self._logs()[-3:]]
            await asyncio.sleep(0.1)
        wrong = judge(self.rig.audit()[before:], self.uids, status)
        self.rig.request("DELETE", f"{TASKS}/story")
        self.mode = ""
        paths = (f"{APPS}/daemonsets", f"{CORE}/services", f"{CORE}/pods", REPORTS)
        while left := [path for path in paths if self.items(path)]:
            if time.monotonic() - begun_s > self.deadline_s:
                return [*wrong, f"left over: {left}"]
            await asyncio.to_thread(self.act)
            await asyncio.sleep(0.2)
        return wrong + [f"an error was logged:\n{text}" for text in self._logs() if "Traceback" in text]

    def _logs(self) -> list[str]:
        return [each.read_text()[-3000:] for each in sorted(self.folder.glob("replica-*.log"))]

    def end(self) -> None:
        for replica in self.replicas.values():
            replica.kill()


def _report_words(uid: str, number: int) -> str:
    return f"report of {uid} on round {number}"


def _reports(uid: str) -> list[str]:
    return [_report_words(uid, number) for number in (1, 2)]


def judge(events: list[Json], uids: list[str], status: Json) -> list[str]:
    """By the audit log: each task had one carrier, one Service a family, each round once, one report a round."""
    made: Counter[str] = Counter()
    wrong: list[str] = []
    owners_seen: set[str] = set()
    rounds: list[list[tuple[int, int]]] = [[]]
    finished: set[int] = set()
    removed = 0
    for event in events:
        about, code = event.get("objectRef") or {}, int((event.get("responseStatus") or {}).get("code", 500))
        if code >= 300 or "dryRun=All" in event["requestURI"]:
            continue
        body, kind, verb = event.get("requestObject") or {}, about.get("resource"), event["verb"]
        owners = [each["uid"] for each in (body.get("metadata") or {}).get("ownerReferences") or ()]
        if verb == "create" and kind == "netreaches":
            rounds.append([])  # another task of this name
        elif verb == "create" and kind == "daemonsets" and event["user"]["username"] == FAIRLEAD:
            made[f"DaemonSet of {owners}"] += 1
            owners_seen |= set(owners)
        elif verb == "delete" and kind == "daemonsets" and event["user"]["username"] == FAIRLEAD:
            removed += 1
            if removed > len(finished):
                wrong.append("a carrier was deleted before its task was finished")
        elif verb == "create" and kind == "services" and event["user"]["username"] == FAIRLEAD:
            made[f"Service {body['metadata']['name'][-4:]} of {owners}"] += 1
        elif verb == "create" and kind == "taskreports":
            made[_report_words(body["spec"]["taskUID"], body["spec"]["roundNumber"])] += 1
        elif kind == "netreaches" and about.get("subresource") == "status" and body.get("status", {}).get("history"):
            record = body["status"]["history"][0]
            rounds[-1].append((record["roundNumber"], ORDER.index(record["status"])))
            finished |= {len(rounds)} if body["status"].get("finish") else set()
    wrong += [f"{count} times: {what}" for what, count in made.items() if count > 1]
    wrong += [f"no {what}" for what in _reports(uids[-1]) if not made[what]]
    if uids[-1] not in owners_seen:
        wrong.append("the last task had no carrier")
    if owners_seen - set(uids):
        wrong.append(f"carriers of tasks that were never created: {owners_seen - set(uids)}")
    wrong += [f"rounds went back: {steps}" for steps in rounds if steps != sorted(steps)]
    numbers = [record["roundNumber"] for record in status["history"]]
    if (status["doneRound"], numbers) != (2, [2, 1]) or {each["status"] for each in status["history"]} != {"succeed"}:
        wrong.append(f"rounds: {json.dumps(status)[:1500]}")
    return wrong


def post(url: str, token: str, body: Any) -> int:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/tasks/reports", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code
    except OSError:
        return 0


def add_node(rig: Rig) -> None:
    rig.request("POST", "/api/v1/nodes", {"metadata": {"name": NODE}, "spec": {}})
    ready = {"type": "Ready", "status": "True", "reason": "Test", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
    room = {"pods": "10", "cpu": "4", "memory": "8Gi"}
    rig.request("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": {"conditions": [ready], "allocatable": room}})


def start(rig: Rig) -> Rig:
    return rig.start(
        controller_manager=True,
        apiserver_flags=[DUAL_STACK],
        controller_manager_flags=[PATIENT],
        manifests=MANIFESTS,
    )


async def soak(
    rig: Rig,
    folder: Path,
    phases: tuple[str, ...] = PHASES,
    deadline_s: float = 300.0,
    modes: Sequence[str] = MODES,
    bug: str = "",
    outage_s: float = 60.0,
) -> tuple[Story, list[str]]:
    """Killed at every write of these phases, before and after it; deleted and created again at each; and so on."""
    add_node(rig)
    story = Story(rig, folder, phases, deadline_s, bug)
    story.gate.outage_s = outage_s
    wrong: list[str] = []
    async with story.gate.open():
        try:
            for mode in modes:
                # A write that came once was killed at before it only.
                for _ in range(MOST_LIVES if mode == "kill" else 1):
                    wrong += [f"{mode}: {each}" for each in await story.run(mode)]
                    if wrong or 1 not in story.kills.values():
                        break
        finally:
            story.end()
    return story, wrong


async def missed_bugs(rig: Rig, folder: Path) -> list[str]:
    """The bugs that the judge does not notice."""
    missed = []
    for bug in BUGS:
        logs = folder / bug.name
        logs.mkdir()
        _, wrong = await soak(rig, logs, bug.phases, bug.deadline_s, (bug.mode,), bug.name)
        click.echo(f"  bug {bug.name}: {[each[:100] for each in wrong]}")
        if not any(bug.words in each for each in wrong):
            missed.append(f"the judge does not notice the bug {bug.name}: {wrong}")
        rig.request("DELETE", f"{TASKS}/story")
        for path in (f"{APPS}/daemonsets/kdoctor-netreach-story", *(f"{CORE}/services/{each}" for each in SERVICES)):
            rig.request("DELETE", path)
    return missed


@click.command()
@click.option("--deadline", "deadline_s", default=600.0, show_default=True, help="Seconds for each mode.")
@click.option("--mode", "modes", multiple=True, default=MODES, show_default=True)
@click.option("--bugs/--no-bugs", default=True, help="Whether the judge is tried on a controller with bugs, too.")
def main(deadline_s: float, modes: tuple[str, ...], bugs: bool) -> None:
    with tempfile.TemporaryDirectory() as name, Rig(ensure_built(click.echo), Path(name) / "rig") as rig:
        start(rig)
        folder = Path(name) / "logs"
        folder.mkdir()
        story, wrong = asyncio.run(soak(rig, folder, deadline_s=deadline_s, modes=modes))
        if bugs:
            wrong += asyncio.run(missed_bugs(rig, folder))
    for line in wrong:
        click.echo(f"  wrong: {line}")
    for what, times in story.kills.items():
        click.echo(f"  killed {times} times at {what}")
    click.echo(f"  deleted and created again at {len(story.recreated)} writes: {', '.join(story.recreated)}")
    click.echo(f"  conflicts at {len(story.conflicts)} writes: {', '.join(story.conflicts)}")
    click.echo(f"  away for {story.gate.outage_s:.0f} s at the first write of: {', '.join(story.outages)}")
    total = sum(map(len, (story.recreated, story.conflicts, story.outages))) + sum(story.kills.values())
    click.echo(f"{total if not wrong else 0} passed, {len(wrong)} failed")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
