"""The scheduler under everything at once: killed, frozen, its server restarted, writes failing, pods coming and going.

The short form is tests/kube/test_scheduler_soak.py. Judged from the server's audit log and the objects it holds at
the end, by arithmetic of the judge's own: every pod that fits is bound, each once, no node ever held more than it has,
and every request for pods that was accepted has changed its workload once.
"""

import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import click

from fairlead.model.quantity import nanos
from tests.rigs.kube.build import ensure_built
from tests.rigs.kube.servers import DEPLOY, RUNTIME_RBAC, Rig, RigBroken, free_ports, until
from tests.soak.forking import Forked, Forking

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = (
    DEPLOY / "crds" / "schedulerequests.yaml",
    RUNTIME_RBAC,
    DEPLOY / "rbac" / "placement.yaml",
    DEPLOY / "rbac" / "requests.yaml",
)
NAMESPACE = "soak"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/fairlead-system/leases/fairlead"
REQUESTS = "/apis/fairlead.io/v1alpha1/namespaces/fairlead-system/schedulerequests"
WEB = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/web"
CHANGED_BY = "fairlead.io/schedule-request"
# Short leases make for many take-overs; a busy machine cannot keep the shortest.
DURATION_S, LONG_FORM_S = 3, 8
MOST_PATIENCE = 8
# Nobody is here to take the taint of new nodes away again.
SERVER_FLAGS = ("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",)
# Nodes without kubelets would soon be taken for dead.
CONTROLLER_FLAGS = ("--controllers=*,-node-lifecycle-controller",)
ZONES = ("a", "b", "c")
SIZES = (("100m", "128Mi"), ("250m", "512Mi"), ("500m", "256Mi"), ("1", "2Gi"), ("2", "1Gi"), ("3", "4Gi"))
NODE = {"cpu": "8", "memory": "16Gi", "pods": "40"}
WEB_SIZE = ("50m", "64Mi")
WEB_REPLICAS = 10
FINAL = ("Done", "Partial", "Failed")


# -- the judge ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Amounts:
    cpu: int
    memory: int
    pods: int = 1

    def __add__(self, other: "Amounts") -> "Amounts":
        return Amounts(self.cpu + other.cpu, self.memory + other.memory, self.pods + other.pods)

    def __sub__(self, other: "Amounts") -> "Amounts":
        return Amounts(self.cpu - other.cpu, self.memory - other.memory, self.pods - other.pods)

    def fits(self, room: "Amounts") -> bool:
        return self.cpu <= room.cpu and self.memory <= room.memory and self.pods <= room.pods


NOTHING = Amounts(0, 0, 0)


def asked(pod: Mapping[str, Any]) -> Amounts:
    cpu = memory = 0
    for container in pod["spec"]["containers"]:
        requests = container.get("resources", {}).get("requests", {})
        cpu += nanos(requests.get("cpu", "0"))
        memory += nanos(requests.get("memory", "0"))
    return Amounts(cpu, memory)


WEB_ASKS = asked(
    {"spec": {"containers": [{"resources": {"requests": dict(zip(("cpu", "memory"), WEB_SIZE, strict=True))}}]}}
)


def has(node: Mapping[str, Any]) -> Amounts:
    amounts = node["status"]["allocatable"]
    return Amounts(nanos(amounts["cpu"]), nanos(amounts["memory"]), int(amounts["pods"]))


def judge_bindings(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """No pod was bound twice."""
    bound: dict[str, list[str]] = defaultdict(list)
    for event in events:
        if _is_binding(event):
            body = event["requestObject"]
            bound[body["metadata"]["uid"]].append(body["target"]["name"])
    return [f"pod {uid} was bound {len(to)} times: {', '.join(to)}" for uid, to in bound.items() if len(to) > 1]


def judge_room(
    events: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]], sizes: Mapping[str, Amounts]
) -> list[str]:
    """At no moment did the pods bound to a node ask for more than it has. `sizes` by the names of all pods made.

    A pod counts from the end of its binding to the beginning of its deletion: nobody is blamed for what crossed on
    the way. A server that is killed may not have told of its last writes; those count in what the objects show.
    """
    room = {node["metadata"]["name"]: has(node) for node in nodes}
    moves: list[tuple[datetime, int, str, str]] = []
    node_of: dict[str, str] = {}
    for event in events:
        if _is_binding(event):
            name, node = event["objectRef"]["name"], event["requestObject"]["target"]["name"]
            node_of[name] = node
            moves.append((_moment(event["stageTimestamp"]), 1, name, node))
    for event in events:
        name = event.get("objectRef", {}).get("name", "")
        if _is(event, "pods", "delete") and name in node_of:
            moves.append((_moment(event["requestReceivedTimestamp"]), 0, name, node_of[name]))
    used: dict[str, Amounts] = defaultdict(lambda: NOTHING)

    def size_of(name: str) -> Amounts:
        return WEB_ASKS if name.startswith("web-") else sizes[name]

    gone: set[str] = set()
    wrong = []
    for at, comes, name, node in sorted(moves):
        if not comes:
            if name not in gone:
                gone.add(name)
                used[node] = used[node] - size_of(name)
            continue
        used[node] = used[node] + size_of(name)
        if not used[node].fits(room[node]):
            wrong.append(f"{node} was oversold at {at} when {name} was bound to it: {used[node]} of {room[node]}")
    return wrong


def judge_end(pods: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the objects show in the end: no node over what it has, and nobody waits who would fit."""
    free = {node["metadata"]["name"]: has(node) for node in nodes}
    wrong = []
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node:
            free[node] = free[node] - asked(pod)
    wrong += [f"{name} holds more than it has: {left} left" for name, left in free.items() if not NOTHING.fits(left)]
    labels = {node["metadata"]["name"]: node["metadata"].get("labels", {}) for node in nodes}
    for pod in pods:
        if pod["spec"].get("nodeName"):
            continue
        wanted = pod["spec"].get("nodeSelector", {}).items()
        where = [name for name, left in free.items() if wanted <= labels[name].items() and asked(pod).fits(left)]
        if where:
            wrong.append(f"{pod['metadata']['name']} waits although it fits {where[0]} and {len(where) - 1} others")
    return wrong


def judge_requests(
    accepted: Mapping[str, int],
    requests: Sequence[Mapping[str, Any]],
    replicas: int,
    events: Sequence[Mapping[str, Any]],
) -> list[str]:
    """Each accepted request was carried out, and once. `accepted` is by how many replicas each was to change."""
    wrong = []
    phases = {each["metadata"]["name"]: each.get("status", {}).get("phase", "none yet") for each in requests}
    for name in accepted:
        if name not in phases:
            wrong.append(f"request {name} was accepted and is not there")
        elif phases[name] not in FINAL:
            wrong.append(f"request {name} is still {phases[name]}")
    wanted = WEB_REPLICAS + sum(accepted.values())
    if replicas != wanted:
        wrong.append(f"the workload has {replicas} replicas; with all that was accepted it should have {wanted}")
    changes = Counter[str]()
    for event in events:
        if _is(event, "deployments", "patch") and not event["objectRef"].get("subresource"):
            told = event["requestObject"].get("metadata", {}).get("annotations", {}).get(CHANGED_BY, "")
            changes[told.partition(",")[0]] += 1
    wrong += [f"request {name} changed the workload {count} times" for name, count in changes.items() if count > 1]
    return wrong


def _is(event: Mapping[str, Any], resource: str, verb: str) -> bool:
    told = event.get("objectRef", {})
    about = (event["verb"], told.get("resource"), told.get("namespace")) == (verb, resource, NAMESPACE)
    return about and int(event["responseStatus"]["code"]) < 300


def _is_binding(event: Mapping[str, Any]) -> bool:
    return _is(event, "pods", "create") and bool(event["objectRef"].get("subresource") == "binding")


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


# -- the story ------------------------------------------------------------------------------------------------


@dataclass
class Replica:
    name: str
    process: Forked


@dataclass
class Story:
    """One run: its servers, its two replicas, its troubles."""

    program: ClassVar = "tests.soak.scheduler_process"
    rig: Rig
    seed: int
    bug: str = ""
    duration_s: int = DURATION_S
    rng: random.Random = field(init=False)
    replicas: list[Replica] = field(default_factory=list)
    started: int = 0
    made: int = 0
    troubles: Counter[str] = field(default_factory=Counter)
    sizes: dict[str, Amounts] = field(default_factory=dict)
    # By the name of each accepted request, how many replicas it was to add.
    accepted: dict[str, int] = field(default_factory=dict)
    asked: int = 0
    forking: Forking = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.off = self.rig.home / "no-faults"
        self.forking = Forking(self.program)

    @contextlib.contextmanager
    def running(self, nodes: int, share: float, lose: str) -> Iterator[None]:
        rig = self.rig
        rig.create_namespace(NAMESPACE)
        for number in range(nodes):
            name = f"node-{number:03}"
            body = {
                "metadata": {"name": name, "labels": {"zone": ZONES[number % len(ZONES)]}},
                "status": {"capacity": NODE, "allocatable": NODE, "conditions": [{"type": "Ready", "status": "True"}]},
            }
            assert rig.request("POST", "/api/v1/nodes", body).status == 201
        token = rig.service_account_token(manifests=MANIFESTS)
        template = {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "schedulerName": "fairlead",
                "terminationGracePeriodSeconds": 0,
                "containers": [_container(WEB_SIZE)],
            },
        }
        web = {"replicas": WEB_REPLICAS, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        made = rig.request("POST", WEB.rpartition("/")[0], {"metadata": {"name": "web"}, "spec": web})
        assert made.status == 201, made.body
        (port,) = free_ports(1)
        through = rig.kubeconfig(token).read_text().replace(rig.url, f"https://127.0.0.1:{port}")
        self.kubeconfig = rig.home / "through-faults.yaml"
        self.kubeconfig.write_text(through)
        serving = rig.serving_certificate
        with contextlib.ExitStack() as ended:
            log = ended.enter_context((rig.home / "faults.log").open("wb"))
            command = [sys.executable, "-m", "tests.soak.faults_process", f"--upstream={rig.url}", f"--port={port}"]
            command += [f"--ca-file={rig.ca_file}", f"--cert={serving.cert}", f"--key={serving.key}"]
            command += [f"--share={share}", f"--seed={self.seed}", f"--off={self.off}", f"--lose={lose}"]
            proxy = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
            ended.callback(_end, proxy)
            ended.callback(self._end_replicas)
            self.start()
            self.start()
            if not until(lambda: self.holder() != "", 60):
                raise RigBroken(f"nobody took the lease within a minute:\n{self._last_words()}")
            yield

    def start(self) -> None:
        self.started += 1
        name = f"replica-{self.started}"
        arguments = [f"--kubeconfig={self.kubeconfig}", f"--identity={name}", f"--duration={self.duration_s}"]
        arguments += [f"--bug={self.bug}"] if self.bug else []
        self.replicas.append(Replica(name, self.forking.start(arguments, self.rig.home / f"{name}.log")))

    def holder(self) -> str:
        with contextlib.suppress(OSError):
            answer = self.rig.request("GET", LEASE)
            if answer.status == 200:
                return str(answer.json()["spec"].get("holderIdentity") or "")
        return ""

    def leader(self) -> Replica | None:
        name = self.holder()
        return next((each for each in self.replicas if each.name == name), None)

    def kill(self) -> None:
        """Ends the leader without a word and starts another in its place."""
        leader = self.leader() or self.replicas[0]
        _end(leader.process)
        self.replicas.remove(leader)
        self.start()
        self.troubles["kills"] += 1

    def freeze(self) -> None:
        """The leader sleeps past its lease and goes on as if nothing had been."""
        leader = self.leader() or self.replicas[0]
        leader.process.send_signal(signal.SIGSTOP)
        until(lambda: self.holder() not in ("", leader.name), 4 * self.duration_s)
        time.sleep(self.rng.random())
        leader.process.send_signal(signal.SIGCONT)
        self.troubles["freezes"] += 1

    def restart_server(self) -> None:
        self.rig.restart_apiserver(self.rng.choice((signal.SIGTERM, signal.SIGKILL)))
        self.troubles["server restarts"] += 1

    def pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.rig.request("GET", f"{PODS}?limit=20000").json()["items"]
        return found

    def burst(self, count: int) -> None:
        """So many pods, made from four connections at once."""
        names = range(self.made, self.made + count)
        self.made += count
        choices = [(self.rng.choice(SIZES), self.rng.choice((*ZONES, "", "", ""))) for _ in names]

        def make(number: int, size: tuple[str, str], zone: str) -> None:
            spec: dict[str, Any] = {
                "schedulerName": "fairlead",
                "terminationGracePeriodSeconds": 0,
                "containers": [_container(size)],
            }
            if zone:
                spec["nodeSelector"] = {"zone": zone}
            name = f"pod-{number:06}"
            self.sizes[name] = asked({"spec": spec})
            self._patiently("POST", PODS, {"metadata": {"name": name}, "spec": spec})

        with ThreadPoolExecutor(4) as pool:
            tasks: list[Future[None]] = [
                pool.submit(make, number, size, zone) for number, (size, zone) in zip(names, choices, strict=True)
            ]
        for task in tasks:
            task.result()

    def ask(self) -> None:
        """One request for more or fewer pods, repeated under its key until some replica says that it is accepted."""
        self.asked += 1
        change = self.rng.choice((1, 2, 3, -1))
        item = {"operation": 1 if change > 0 else 2, "namespace": NAMESPACE, "serviceName": "web"}
        body = json.dumps({"podList": [{**item, "number": str(abs(change))}]})
        headers = {"Authorization": f"Bearer {self.rig.admin_token}", "Idempotency-Key": f"{self.seed}-{self.asked}"}
        said = ""
        for _ in range(300):
            replica = self.rng.choice(self.replicas)
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection(self._address(replica), timeout=5)
                with contextlib.closing(connection):
                    connection.request("POST", "/schedulePod", body, headers)
                    answer = connection.getresponse()
                    said = answer.read().decode()
                    if answer.status == 202:
                        self.accepted[json.loads(said)["requestId"]] = change
                        return
            time.sleep(0.2)
        raise RigBroken(f"no replica took a request for a minute; the last answer was {said!r}")

    def _address(self, replica: Replica) -> str:
        """Where it listens, by its own log; empty while it has not said so."""
        log = self.rig.home / f"{replica.name}.log"
        for line in log.read_text().splitlines():
            if '"listening"' in line:
                return str(json.loads(line)["address"])
        raise OSError("does not listen yet")

    def requests(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.rig.request("GET", REQUESTS).json()["items"]
        return found

    def _requests_wrong(self, events: Sequence[Mapping[str, Any]]) -> list[str]:
        replicas = self.rig.request("GET", WEB).json()["spec"]["replicas"]
        return judge_requests(self.accepted, self.requests(), replicas, events)

    def thin(self, share: float) -> None:
        """Some pods go, bound or not, so that there is room again."""
        for pod in self.pods():
            if self.rng.random() < share:
                self._patiently("DELETE", f"{PODS}/{pod['metadata']['name']}?gracePeriodSeconds=0", None)

    def _patiently(self, method: str, path: str, body: Any) -> None:
        """The story's own writes outlast a server that restarts; 404 and 409 say that an earlier send was heard."""
        for _ in range(300):
            with contextlib.suppress(OSError):
                if self.rig.request(method, path, body).status in (200, 201, 404, 409):
                    return
            time.sleep(0.1)
        raise RigBroken(f"{method} {path} found no server for half a minute")

    def verdict(self, patience_s: float) -> list[str]:
        """What is wrong once the troubles are over and nothing has come any further for so long."""
        self.off.touch()
        nodes = self.rig.request("GET", "/api/v1/nodes").json()["items"]
        self._settle(nodes, patience_s)
        pods, events = self.pods(), self.rig.audit()
        bound = sum("nodeName" in pod["spec"] for pod in pods)
        bindings = sum(_is_binding(event) for event in events)
        told = ", ".join(f"{count} {name}" for name, count in sorted(self.troubles.items()))
        print(
            f"{self.made} pods made, {bindings} bindings, {bound} bound at the end and {len(pods) - bound} waiting; "
            f"{len(self.accepted)} requests; {told or 'no troubles'}",
            flush=True,
        )
        wrong = judge_bindings(events) + judge_room(events, nodes, self.sizes) + judge_end(pods, nodes)
        wrong += self._requests_wrong(events)
        if wrong:
            print(self._story_told(), flush=True)
        for replica in self.replicas:
            if replica.process.poll() is not None:
                wrong.append(f"{replica.name} has ended:\n{self._last_words()}")
        return wrong

    def _settle(self, nodes: Sequence[Mapping[str, Any]], patience_s: float) -> None:
        """A slow machine is given time while it gets on, eight times the patience at most."""
        progress, since_s = (-1, -1), time.monotonic()
        give_up_s = since_s + MOST_PATIENCE * patience_s
        while time.monotonic() < min(since_s + patience_s, give_up_s):
            pods, left = self.pods(), self._requests_wrong([])
            if not left and not judge_end(pods, nodes):
                return
            now = (sum("nodeName" in pod["spec"] for pod in pods), -len(left))
            if now > progress:
                progress, since_s = now, time.monotonic()
            time.sleep(1.0)

    def _last_words(self) -> str:
        logs = [self.rig.home / f"{replica.name}.log" for replica in self.replicas]
        return "\n".join(line for log in logs if log.exists() for line in log.read_text().splitlines()[-5:])

    def _story_told(self) -> str:
        """What the replicas alive at the end have said, counted, and the last of it: who reads a failure needs that."""
        lines = []
        for replica in self.replicas:
            said = Counter[str]()
            for line in (self.rig.home / f"{replica.name}.log").read_text().splitlines():
                said[str(json.loads(line).get("event")) if line.startswith("{") else line[:80]] += 1
            lines.append(f"  {replica.name}: " + ", ".join(f"{count} {what}" for what, count in said.most_common(12)))
        return "\n".join([*lines, self._last_words()])

    def _end_replicas(self) -> None:
        for replica in self.replicas:
            _end(replica.process)
        self.forking.close()


def _container(size: tuple[str, str]) -> dict[str, Any]:
    requests = {"cpu": size[0], "memory": size[1]}
    return {"name": "main", "image": "none", "resources": {"requests": requests}}


def _end(process: subprocess.Popen[bytes] | Forked) -> None:
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    process.wait(60)


def soak(
    rig: Rig,
    *,
    nodes: int,
    kills: int,
    burst: int,
    freezes: int,
    restarts: int,
    seed: int,
    bug: str = "",
    share: float = 0.05,
    asks: int = 1,
    lose: str = "",
    duration_s: int = DURATION_S,
) -> list[str]:
    """Everything that was found wrong. `lose`: writes on such paths lose every other answer as well."""
    story = Story(rig, seed, bug, duration_s)
    with story.running(nodes, share, lose):
        troubles = ["kill"] * kills + ["freeze"] * freezes + ["restart"] * restarts
        story.rng.shuffle(troubles)
        with ThreadPoolExecutor(1) as pool:
            for trouble in troubles or [""]:
                making = pool.submit(story.burst, burst)
                time.sleep(story.rng.random())
                if trouble:
                    {"kill": story.kill, "freeze": story.freeze, "restart": story.restart_server}[trouble]()
                for _ in range(asks):
                    story.ask()
                making.result()
                story.thin(0.15)
                time.sleep(story.rng.random() * story.duration_s)
        return story.verdict(patience_s=90.0 if not bug else 12.0)


def start(rig: Rig) -> Rig:
    """The servers as this story needs them."""
    return rig.start(controller_manager=True, apiserver_flags=SERVER_FLAGS, controller_manager_flags=CONTROLLER_FLAGS)


@click.command()
@click.option("--nodes", default=150)
@click.option("--kills", default=20)
@click.option("--burst", default=200, help="Pods made at every trouble.")
@click.option("--freezes", default=3)
@click.option("--restarts", default=4, help="Of the API server.")
@click.option("--lease", "duration_s", default=LONG_FORM_S, help="Seconds after which a silent leader is followed.")
@click.option("--seed", default=1)
def main(nodes: int, kills: int, burst: int, freezes: int, restarts: int, duration_s: int, seed: int) -> None:
    with Rig(ensure_built()) as rig:
        start(rig)
        wrong = soak(
            rig,
            nodes=nodes,
            kills=kills,
            burst=burst,
            freezes=freezes,
            restarts=restarts,
            seed=seed,
            duration_s=duration_s,
        )
    for line in wrong[:20]:
        print(f"  wrong: {line}")
    print(f"{0 if wrong else 1} passed, {1 if wrong else 0} failed")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
