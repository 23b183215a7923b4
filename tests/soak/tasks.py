"""`scripts/soak tasks`: the tasks controller killed at every write, and tasks deleted at every write, on a real server.

Each replica talks to kube-apiserver through a gate of this process. At a write of a kind it has not met, the gate kills
the replica (-9) before the write is passed on, at the next one after it was answered; or it has the task deleted and
created again under the same name while the write is held, or deleted, to be created again once nothing is left of it;
or it holds a create beyond the time-out of its replica, while the task becomes another; or it answers each status with
a conflict first, cuts every connection in each phase, and takes none for a while. A thread's worth of kubelet and agent
makes pods ready and posts reports. What exists in the end and the server's audit log are the judge. Then a tenant's
tasks come and go beside a good one, and thousands are there at once (scenario 48).
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from tests.jobs.lab import Api
from tests.rigs.kube.build import ensure_built
from tests.rigs.kube.gate import Gate
from tests.rigs.kube.servers import DEPLOY, RUNTIME_RBAC, Rig, until

Json = dict[str, Any]

HOME: Final = "fairlead-system"
SERVICES: Final = ("kdoctor-netreach-story-ipv4", "kdoctor-netreach-story-ipv6")
TASKS: Final = "/apis/kdoctor.io/v1beta1/netreaches"
APPS: Final = f"/apis/apps/v1/namespaces/{HOME}"
CORE: Final = f"/api/v1/namespaces/{HOME}"
REPORTS: Final = f"/apis/fairlead.io/v1alpha1/namespaces/{HOME}/taskreports"
LEFT: Final = (
    *(f"{APPS}/{each}" for each in ("daemonsets", "deployments")),
    *(f"{CORE}/{each}" for each in ("services", "pods", "configmaps", "secrets")),
    f"/apis/discovery.k8s.io/v1/namespaces/{HOME}/endpointslices",
    REPORTS,
)
LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/fairlead-tasks"
NODE: Final = "worker-1"
DUAL_STACK: Final = "--service-cluster-ip-range=10.0.0.0/16,fd00:10::/112"
ONE_FAMILY: Final = "--service-cluster-ip-range=10.0.0.0/16"
# Nobody renews the node's heartbeat: it would be declared lost after 40 s, and its pods not ready.
PATIENT: Final = "--node-monitor-grace-period=24h"
# By default it collects the garbage of 500 tasks for minutes.
SWIFT: Final = ("--kube-api-qps=500", "--kube-api-burst=500")
MOST_LIVES: Final = 3
MODES: Final = ("kill", "recreate", "late", "delete", "outage")
LATE_S: Final = 3.0
"""Longer than a replica waits for an answer: the difference of the first two of `QUICK`."""
TENANT: Final = "tenant-"
"""How the names of the tasks begin that come and go beside the story."""
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
    Bug("stubborn", "late", ("creation", "round"), "times: DaemonSet"),
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
        self.late: Counter[str] = Counter()
        self.deleted: Counter[str] = Counter()
        self.conflicts: Counter[str] = Counter()
        self.outages: Counter[str] = Counter()
        self.answers: Counter[int] = Counter()
        self.uids: list[str] = []
        self.mode = ""
        acts = {"recreate": self._recreate, "late": self._recreate_late, "delete": self._delete}
        self.gate = Gate(rig, described, self._at, self._kill, acts)
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
        if self.mode == "late" and write.startswith("POST") and not self.late[write]:
            self.late[write] += 1
            return "late"
        if self.mode == "delete" and not self.deleted[write]:
            self.deleted[write] += 1
            return "delete"
        if self.mode == "outage" and not self.outages[phase_of(write)]:
            self.outages[phase_of(write)] += 1
            return "outage"
        return "pass"

    def _kill(self, port: int) -> None:
        self.replicas.pop(port).kill()
        # Its lease has run out, and a standby does not wait for the clock.
        self.rig.request("DELETE", LEASE)

    def _delete(self) -> None:
        self.rig.request("DELETE", f"{TASKS}/story")

    def _recreate(self) -> None:
        self._delete()
        self.create()

    def _recreate_late(self) -> None:
        """A create is held until its replica has given it up, and would send it again.

        It must not where the task has been deleted: there would be two. The last report is sent again first.
        """
        if not any(each == "POST taskreports 2" for each in self.late):
            self._recreate()
            time.sleep(LATE_S)
            return
        assert until(self._is_reported, 60), "the report was not sent again"
        self._recreate()
        assert until(lambda: not self.items(REPORTS), 60), "the report of a deleted task stays"

    def _is_reported(self) -> bool:
        """In the second round."""
        return any(each["spec"]["roundNumber"] == 2 for each in self.items(REPORTS))

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
            task = await asyncio.to_thread(self.task)
            if mode == "delete" and not task and not await asyncio.to_thread(self.left_over):
                await asyncio.to_thread(self.create)  # nothing is left of the one that was deleted
            status = task.get("status") or {}
            if (status.get("resource") or {}).get("runtimeStatus") == "deleted":
                break
            if time.monotonic() - begun_s > self.deadline_s:
                self.rig.request("DELETE", f"{TASKS}/story")
                words = f"{self.kills}, {self.recreated}, {self.answers}: {json.dumps(status)[:2000]}"
                words += "" if task else f"; it was deleted, and left over are {self.left_over()}"
                return [f"the task did not end in {self.deadline_s:.0f} s: {words}", *self._logs()[-3:]]
            await asyncio.sleep(0.1)
        wrong = judge(self.rig.audit()[before:], self.uids, status, self.lost())
        self.rig.request("DELETE", f"{TASKS}/story")
        self.mode = ""
        while left := self.left_over():
            if time.monotonic() - begun_s > self.deadline_s:
                return [*wrong, f"left over: {left}"]
            await asyncio.to_thread(self.act)
            await asyncio.sleep(0.2)
        return wrong + self.errors()

    def lost(self) -> Counter[str]:
        """Reports, by name, whose replica had given up when they were stored."""
        return Counter(about_whom({"requestObject": body}) for body in self.gate.unanswered)

    def errors(self) -> list[str]:
        return [f"an error was logged:\n{text}" for text in self._logs() if "Traceback" in text]

    def left_over(self) -> list[str]:
        paths = (f"{APPS}/daemonsets", f"{CORE}/services", f"{CORE}/pods", REPORTS)
        return [path for path in paths if self.items(path)]

    def _logs(self) -> list[str]:
        return [each.read_text()[-3000:] for each in sorted(self.folder.glob("replica-*.log"))]

    def end(self) -> None:
        for replica in self.replicas.values():
            replica.kill()


def _report_words(uid: str, number: int) -> str:
    return f"report of {uid} on round {number}"


def _reports(uid: str) -> list[str]:
    return [_report_words(uid, number) for number in (1, 2)]


@dataclass(slots=True)
class StoredReports:
    """Reports by name, and whether one that is created again is the repeat of one whose task was deleted since.

    A replica that has no answer in time sends a report again, while the first may still be under way. Whichever the
    API server takes second finds the name taken, unless the task was deleted between the two: then the garbage
    collector has removed the first report, and the server, which does not look at owners, takes the second. It is
    garbage too. So there is at most one more for each send without an answer, and none while the task is there.
    """

    lost: Mapping[str, int]
    current: set[str] = field(default_factory=set)
    garbage: set[str] = field(default_factory=set)
    repeats: Counter[str] = field(default_factory=Counter)

    def are_garbage(self) -> None:
        """Their task was deleted."""
        self.garbage |= self.current
        self.current = set()

    def is_repeat(self, name: str) -> bool:
        if name not in self.garbage:
            self.current.add(name)
            return False
        self.repeats[name] += 1
        return self.repeats[name] <= self.lost.get(name, 0)


def judge(events: list[Json], uids: list[str], status: Json, lost: Mapping[str, int] | None = None) -> list[str]:
    """By the audit log: each task had one carrier, one Service a family, each round once, one report a round."""
    made: Counter[str] = Counter()
    wrong: list[str] = []
    owners_seen: set[str] = set()
    rounds: list[list[tuple[int, int]]] = [[]]
    finished: set[int] = set()
    reports = StoredReports(lost or {})
    removed = 0
    for event in events:
        about, code = event.get("objectRef") or {}, int((event.get("responseStatus") or {}).get("code", 500))
        if code >= 300 or "dryRun=All" in event["requestURI"] or TENANT in about_whom(event):
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
            uid, number = body["spec"]["taskUID"], body["spec"]["roundNumber"]
            made[_report_words(uid, number)] += not reports.is_repeat(about_whom(event))
        elif verb == "delete" and kind == "netreaches":
            reports.are_garbage()
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
        controller_manager_flags=[PATIENT, *SWIFT],
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


async def crowd(kubeconfig: Path, count: int, deadline_s: float = 1800.0) -> list[str]:
    """Scenario 48: so many tasks at once; who has no carrier in the end."""
    async with open_api(kubeconfig) as api:
        began_s = time.monotonic()
        await each_of(count, lambda number: create_task(api, f"many-{number}"))
        click.echo(f"  {count} tasks were created in {time.monotonic() - began_s:.0f} s")
        while lost := await without_carrier(api, [f"many-{number}" for number in range(count)]):
            if time.monotonic() - began_s > deadline_s:
                return [f"{len(lost)} of {count} tasks have no carrier: {lost[:5]}"]
            await asyncio.sleep(max(2.0, count / 250))  # a list of thousands is work for the server, too
        click.echo(f"  and each had a carrier of its own {time.monotonic() - began_s:.0f} s after the first")
    return []


async def without_carrier(api: Api, names: Sequence[str]) -> list[str]:
    """Of which tasks the status, the DaemonSet or the Service is missing."""

    async def listed(path: str) -> dict[str, Json]:
        return {each["metadata"]["name"]: each for each in (await api.call("GET", path))["items"]}

    tasks = await listed(TASKS)
    resources = {name: (tasks.get(name, {}).get("status") or {}).get("resource") or {} for name in names}
    if lost := [name for name in names if resources[name].get("runtimeStatus") != "creating"]:
        return lost
    workloads, services = await listed(f"{APPS}/daemonsets"), await listed(f"{CORE}/services")
    carriers = {name: f"kdoctor-netreach-{name}" for name in names}
    return [n for n, each in carriers.items() if each not in workloads or f"{each}-ipv4" not in services]


async def churn(rig: Rig, folder: Path, count: int, deadline_s: float = 600.0) -> list[str]:
    """A tenant creates and deletes so many tasks while the story goes on; what was wrong."""
    add_node(rig)
    story = Story(rig, folder, (), deadline_s)
    before, began_s = len(rig.audit()), time.monotonic()
    names = [f"{TENANT}{number}" for number in range(count)]
    async with story.gate.open(), open_api(rig.kubeconfig()) as api, asyncio.TaskGroup() as group:
        try:
            tenant = group.create_task(come_and_go(api, names, deadline_s))
            wrong = await story.run("")
            click.echo(f"  the task beside a tenant's {count} ended after {time.monotonic() - began_s:.0f} s")
            wrong += await tenant
            while left := [path for path in LEFT if story.items(path, TENANT)]:
                if time.monotonic() - began_s > deadline_s:
                    wrong.append(f"left over of {count} tasks: {left}")
                    break
                await asyncio.sleep(1)
            else:
                click.echo(f"  and nothing was left of any after {time.monotonic() - began_s:.0f} s")
        finally:
            story.end()
    return wrong + doubled(rig.audit()[before:], count)


async def come_and_go(api: Api, names: Sequence[str], deadline_s: float) -> list[str]:
    """Every second one is deleted as soon as it is there, the others once all of them have carriers."""
    began_s = time.monotonic()

    async def come(number: int) -> None:
        await create_task(api, names[number])
        if number % 2:
            await api.call("DELETE", f"{TASKS}/{names[number]}")

    await each_of(len(names), come)
    while lost := await without_carrier(api, names[::2]):
        if time.monotonic() - began_s > deadline_s:
            return [f"{len(lost)} tasks of the tenant have no carrier: {lost[:5]}"]
        await asyncio.sleep(1)
    await each_of(len(names[::2]), lambda number: api.call("DELETE", f"{TASKS}/{names[2 * number]}"))
    return []


def doubled(events: list[Json], count: int) -> list[str]:
    """What was created twice for one of a tenant's tasks; and that at least every second had a carrier."""
    made: Counter[str] = Counter()
    for event in events:
        if event["verb"] != "create" or event["user"]["username"] != FAIRLEAD or "dryRun=All" in event["requestURI"]:
            continue
        name = about_whom(event)
        if TENANT in name and int((event.get("responseStatus") or {}).get("code", 500)) < 300:
            owners = (event["requestObject"]["metadata"].get("ownerReferences")) or [{}]
            made[f"{event['objectRef']['resource']} {name} of {owners[0].get('uid')}"] += 1
    carriers = sum(each.startswith("daemonsets") for each in made)
    few = [] if carriers >= count // 2 else [f"only {carriers} of {count} tasks of the tenant ever had a carrier"]
    return few + [f"{times} times: {what}" for what, times in made.items() if times > 1]


def about_whom(event: Json) -> str:
    """The name of the object that an audit event is about."""
    body = event.get("requestObject") or {}
    return str((event.get("objectRef") or {}).get("name") or (body.get("metadata") or {}).get("name") or "")


@contextlib.asynccontextmanager
async def open_api(kubeconfig: Path) -> AsyncIterator[Api]:
    clock = RealClock()
    async with Client(connect_by_kubeconfig([kubeconfig], clock), clock=clock) as client:
        yield Api(client)


async def each_of(count: int, act: Callable[[int], Awaitable[object]]) -> None:
    few = asyncio.Semaphore(16)

    async def one(number: int) -> None:
        async with few:
            await act(number)

    await asyncio.gather(*map(one, range(count)))


async def create_task(api: Api, name: str) -> None:
    schedule = {"schedule": "60 60", "roundTimeoutMinute": 60}
    # A cluster has but 2,768 node ports.
    target = {"clusterIP": False, "nodePort": False}
    spec = {"agentSpec": {"terminationGracePeriodMinutes": 0}, "schedule": schedule, "target": target}
    body = {"apiVersion": "kdoctor.io/v1beta1", "kind": "NetReach", "metadata": {"name": name}, "spec": spec}
    await api.call("POST", TASKS, body)


def many_on_a_real_server(programs: Path, folder: Path, count: int) -> list[str]:
    """Nodes and garbage collection have no part in it: no controller-manager."""
    with Rig(programs, folder / "rig") as rig:
        rig.start(apiserver_flags=[ONE_FAMILY], manifests=MANIFESTS)
        kubeconfig = rig.kubeconfig(rig.service_account_token(manifests=()))
        command = [sys.executable, "-m", "fairlead", "serve", f"--kubeconfig={kubeconfig}", "--capabilities=tasks"]
        return many(command, folder / "serve.log", '"leading"', rig.kubeconfig(), count)


def many_on_the_embedded_one(folder: Path, count: int) -> list[str]:
    data, without = folder / "data", "--without=controllers,nodes,placement,jobs,data,modules"
    command = [sys.executable, "-m", "fairlead", "up", f"--data={data}", "--empty", without]
    return many(command, folder / "up.log", "brings everything back", data / "kubeconfig", count)


def many(command: list[str], log: Path, ready: str, kubeconfig: Path, count: int) -> list[str]:
    """By a process of its own, with the settings that users have."""
    environment = {**os.environ, "FAIRLEAD_WEBHOOKS_LISTEN": "127.0.0.1:0"}
    with log.open("wb") as sink:
        process = subprocess.Popen([*command, "--listen=127.0.0.1:0"], stdout=sink, stderr=sink, env=environment)
    try:
        if not until(lambda: ready in log.read_text(), 60):
            return [f"it does not start: {log.read_text()}"]
        wrong = asyncio.run(crowd(kubeconfig, count))
    finally:
        process.terminate()
        process.wait(60)
    return wrong + [f"an error was logged:\n{log.read_text()[-3000:]}"] * ("Traceback" in log.read_text())


@click.command()
@click.option("--deadline", "deadline_s", default=600.0, show_default=True, help="Seconds for each mode.")
@click.option("--mode", "modes", multiple=True, default=MODES, show_default=True)
@click.option("--bugs/--no-bugs", default=True, help="Whether the judge is tried on a controller with bugs, too.")
@click.option("--churn", "churned", default=500, show_default=True, help="Tasks that come and go beside another.")
@click.option(
    "--many", "count", default=5001, show_default=True, help="Tasks at once on each server, real and embedded."
)
def main(deadline_s: float, modes: tuple[str, ...], bugs: bool, churned: int, count: int) -> None:
    programs = ensure_built(click.echo)
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / each for each in ("logs", "churn", "real", "embedded")]
        for folder in folders:
            folder.mkdir()
        with Rig(programs, Path(name) / "rig") as rig:
            start(rig)
            story, wrong = asyncio.run(soak(rig, folders[0], deadline_s=deadline_s, modes=modes))
            if bugs:
                wrong += asyncio.run(missed_bugs(rig, folders[0]))
            if churned:
                wrong += asyncio.run(churn(rig, folders[1], churned))
        if count:
            click.echo("a real server:")
            wrong += many_on_a_real_server(programs, folders[2], count)
            click.echo("the embedded one:")
            wrong += many_on_the_embedded_one(folders[3], count)
    for line in wrong:
        click.echo(f"  wrong: {line}")
    for what, times in story.kills.items():
        click.echo(f"  killed {times} times at {what}")
    click.echo(f"  deleted and created again at {len(story.recreated)} writes: {', '.join(story.recreated)}")
    click.echo(f"  held until its replica had given it up: {len(story.late)}: {', '.join(story.late)}")
    click.echo(f"  deleted at {len(story.deleted)} writes: {', '.join(story.deleted)}")
    click.echo(f"  conflicts at {len(story.conflicts)} writes: {', '.join(story.conflicts)}")
    click.echo(f"  away for {story.gate.outage_s:.0f} s at the first write of: {', '.join(story.outages)}")
    total = sum(map(len, (story.recreated, story.late, story.deleted, story.conflicts, story.outages)))
    total += sum(story.kills.values()) + churned + 2 * count
    click.echo(f"{total if not wrong else 0} passed, {len(wrong)} failed")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
