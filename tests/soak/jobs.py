"""TYJobs under everything at once: Fairlead killed and frozen, writes failing, nodes lost, leaders crashing.

The short form is tests/kube/test_jobs_soak.py. Judged from the server's audit log: no status ever had a part of a
gang's places, no pod was bound outside its place or twice, there were never two leaders; and when the troubles are
over, no node is oversold, and every job runs, has ended, or waits with a reason.
"""

import contextlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

import click
import msgspec

from fairlead.jobs.allocations import LEADER_PLACE, decode
from fairlead.jobs.pods import place_of
from fairlead.jobs.spec import JobPod, JobSpec, TYJob, parse_spec, parse_status
from fairlead.jobs.status_patches import merge_patch
from tests.jobs.kit import spec_json
from tests.rigs.kube.build import ensure_built
from tests.rigs.kube.servers import DEPLOY, RUNTIME_RBAC, Rig, RigBroken, free_ports, until
from tests.soak.scheduler import DURATION_S, LEASE, LONG_FORM_S, NAMESPACE, PODS, ROOT, Story, _end, start

MANIFESTS = (
    DEPLOY / "crds" / "jobs.yaml",
    RUNTIME_RBAC,
    DEPLOY / "rbac" / "placement.yaml",
    DEPLOY / "rbac" / "jobs.yaml",
)
JOBS = f"/apis/fairlead.io/v1alpha1/namespaces/{NAMESPACE}/tyjobs"
NODE = {"cpu": "8", "memory": "16Gi", "pods": "40"}
POLICIES = ("Gang", "Gang", "BinPack", "JobAntiAffinity", "MinFragment")

Json = dict[str, Any]


# -- the judge ----------------------------------------------------------------------------------------------------


@dataclass
class JobLife:
    """A job by its audit events: each status with the time from which it holds."""

    spec: JobSpec
    job: TYJob
    statuses: list[tuple[datetime, Json]] = field(default_factory=list)


def judge_audit(events: Sequence[Mapping[str, Any]]) -> list[str]:
    jobs = job_lives(events)
    return [*_parts_of_gangs(jobs), *_strays(jobs, events), *_twins(events), *_bound_twice(events)]


def job_lives(events: Sequence[Mapping[str, Any]]) -> dict[str, JobLife]:
    found: dict[str, JobLife] = {}
    planned_on = {_version(event) for event in events if _is(event, "tyjobs")}
    for event in sorted(events, key=lambda event: str(event.get("stageTimestamp"))):
        # The write of one who was killed meanwhile is a timeout in the log, and was carried out all the same if nobody
        # planned on the version before it any more.
        is_cut = _code(event) == 504 and _is_about(event, "tyjobs") and _version(event) not in planned_on
        if not _is(event, "tyjobs") and not is_cut:
            continue
        name, verb = event["objectRef"].get("name", ""), event["verb"]
        if verb == "create":
            body = event["requestObject"]
            job = msgspec.convert(body, TYJob)
            spec = parse_spec(job)
            assert isinstance(spec, JobSpec), spec
            found[job.metadata.name] = JobLife(spec, job)
        elif verb == "patch" and event["objectRef"].get("subresource") == "status" and name in found:
            life = found[name]
            held = life.statuses[-1][1] if life.statuses else {}
            life.statuses.append((_moment(event["stageTimestamp"]), _merged(held, event["requestObject"]["status"])))
    return found


def _parts_of_gangs(jobs: Mapping[str, JobLife]) -> Iterator[str]:
    for name, life in jobs.items():
        for at, raw in life.statuses:
            status, problem = parse_status(msgspec.structs.replace(life.job, status=raw))
            places = decode(status.allocations, life.spec)
            if problem:
                yield f"{name}: at {at} its status was nonsense: {problem}"
            elif places and (len(places) < max(status.quorum, 1) or LEADER_PLACE not in places):
                yield f"{name}: at {at} it had {len(places)} places of a quorum of {status.quorum}"


def _strays(jobs: Mapping[str, JobLife], events: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Pods bound to a node that no status of that time names for them."""
    pods: dict[str, JobPod] = {}
    for event in sorted(events, key=lambda event: str(event.get("stageTimestamp"))):
        if not _is(event, "pods") or event["verb"] != "create":
            continue
        if event["objectRef"].get("subresource") != "binding":
            body = event["requestObject"]
            if "dryRun" not in event["requestURI"]:
                pods[body["metadata"]["name"]] = msgspec.convert(body, JobPod)
            continue
        pod = pods.get(event["objectRef"]["name"])
        owner = pod.metadata.controller if pod is not None else None
        life = jobs.get(owner.name) if owner is not None else None
        if pod is None or life is None:
            continue
        place, node = place_of(pod), event["requestObject"]["target"]["name"]
        if not any(places.get(place) == node for places in _places_around(life, event) if place is not None):
            yield f"{pod.metadata.name} was bound to {node}, which is not its place"


def _places_around(life: JobLife, event: Mapping[str, Any]) -> Iterator[dict[tuple[str, int], str]]:
    """The places by every status that held while the binding was on its way, and just before it."""
    begun, done = _moment(event["requestReceivedTimestamp"]), _moment(event["stageTimestamp"])
    before = [raw for at, raw in life.statuses if at <= begun][-2:]
    during = [raw for at, raw in life.statuses if begun < at <= done]
    for raw in (*before, *during):
        status, _ = parse_status(msgspec.structs.replace(life.job, status=raw))
        yield decode(status.allocations, life.spec)


def _twins(events: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Two leaders of one job at a time, by creates and deletes."""
    alive: dict[str, set[str]] = {}
    leaders: dict[str, str] = {}
    for event in sorted(events, key=lambda event: str(event.get("stageTimestamp"))):
        if not _is(event, "pods") or event["objectRef"].get("subresource") or "dryRun" in event["requestURI"]:
            continue
        if event["verb"] == "create":
            pod = msgspec.convert(event["requestObject"], JobPod)
            owner = pod.metadata.controller
            if owner is not None and place_of(pod) == LEADER_PLACE:
                names = alive.setdefault(owner.uid, set())
                names.add(pod.metadata.name)
                leaders[pod.metadata.name] = owner.uid
                if len(names) > 1:
                    yield f"{owner.name} had two leaders: {', '.join(sorted(names))}"
        elif event["verb"] == "delete":
            name = event["objectRef"].get("name", "")
            alive.get(leaders.get(name, ""), set()).discard(name)


def _bound_twice(events: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    bound: dict[str, str] = {}
    for event in events:
        if _is(event, "pods") and event["verb"] == "create" and event["objectRef"].get("subresource") == "binding":
            uid, node = event["requestObject"]["metadata"]["uid"], event["requestObject"]["target"]["name"]
            if uid in bound:
                yield f"pod {uid} was bound twice: {bound[uid]}, {node}"
            bound[uid] = node


def judge_rest(jobs: Sequence[Json], pods: Sequence[Json], nodes: Sequence[Json]) -> list[str]:
    """When all is quiet: every job runs or has ended, or waits with a reason; no node holds more than it has."""
    wrong = []
    for job in jobs:
        status = job.get("status") or {}
        stage = status.get("stage", "unseen")
        why = (status.get("explain") or {}).get("message")
        if stage in ("Starting", "unseen") or (stage == "Rescheduling" and not why):
            wrong.append(f"{job['metadata']['name']} is still {stage}: {status.get('message', '')}")
        elif stage == "Pending" and not why:
            wrong.append(f"{job['metadata']['name']} is pending without a reason")
    room = {node["metadata"]["name"]: int(node["status"]["allocatable"]["cpu"]) for node in nodes}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node in room and pod["status"].get("phase") not in ("Succeeded", "Failed"):
            room[node] -= 1
    return [
        *wrong,
        *(f"{name} holds {-left} pods more than it has room for" for name, left in room.items() if left < 0),
    ]


def _is(event: Mapping[str, Any], resource: str) -> bool:
    return _is_about(event, resource) and _code(event) < 300


def _is_about(event: Mapping[str, Any], resource: str) -> bool:
    about = event.get("objectRef", {})
    return (about.get("resource"), about.get("namespace")) == (resource, NAMESPACE)


def _code(event: Mapping[str, Any]) -> int:
    return int(event.get("responseStatus", {}).get("code", 500))


def _version(event: Mapping[str, Any]) -> str:
    """The resourceVersion that a write was planned on."""
    return str(((event.get("requestObject") or {}).get("metadata") or {}).get("resourceVersion", ""))


def _merged(held: Json, patch: Json) -> Json:
    found = {name: value for name, value in held.items() if patch.get(name, ()) is not None}
    for name, value in patch.items():
        if isinstance(value, dict):
            found[name] = _merged(held[name] if isinstance(held.get(name), dict) else {}, value)
        elif value is not None:
            found[name] = value
    assert merge_patch(found, found) == {}
    return found


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


# -- the story ----------------------------------------------------------------------------------------------------


class JobStory(Story):
    """Two replicas, nodes whose pods run because a thread says so, jobs that come, crash, end and are deleted."""

    gives_up_leases = False
    program: ClassVar = "tests.soak.jobs_process"

    @contextlib.contextmanager
    def running(self, nodes: int, share: float, lose: str) -> Iterator[None]:
        rig = self.rig
        self.quiet = threading.Event()
        self.lock = threading.Lock()
        rig.create_namespace(NAMESPACE)
        for number in range(nodes):
            self.add_node(f"node-{number:03}")
        token = rig.service_account_token(manifests=MANIFESTS)
        (port,) = free_ports(1)
        self.kubeconfig = rig.home / "through-faults.yaml"
        self.kubeconfig.write_text(rig.kubeconfig(token).read_text().replace(rig.url, f"https://127.0.0.1:{port}"))
        serving = rig.serving_certificate
        with contextlib.ExitStack() as ended:
            log = ended.enter_context((rig.home / "faults.log").open("wb"))
            command = [sys.executable, "-m", "tests.soak.faults_process", f"--upstream={rig.url}", f"--port={port}"]
            command += [f"--ca-file={rig.ca_file}", f"--cert={serving.cert}", f"--key={serving.key}"]
            command += [f"--share={share}", f"--seed={self.seed}", f"--off={self.off}", f"--lose={lose}"]
            ended.callback(_end, subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log))
            ended.callback(self._end_replicas)
            self.start()
            self.start()
            if not until(lambda: self.holder() != "", 60):
                raise RigBroken(f"nobody took the lease within a minute:\n{self._last_words()}")
            stop = threading.Event()
            kubelet = threading.Thread(target=self._run_pods, args=(stop,), name="kubelet")
            kubelet.start()
            ended.callback(kubelet.join, 60)
            ended.callback(stop.set)
            yield

    def add_node(self, name: str) -> None:
        ready = [{"type": "Ready", "status": "True"}]
        status = {"capacity": NODE, "allocatable": NODE, "conditions": ready}
        self._patiently("POST", "/api/v1/nodes", {"metadata": {"name": name}, "status": status})

    def submit(self) -> None:
        self.made += 1
        rng = self.rng
        spec = spec_json(
            rng.randint(1, 8),
            schedulerPolicy={"basicPolicy": rng.choice(POLICIES)},
            priority=rng.randint(1, 10),
            addressMode="IP",
            startTimeoutSeconds=60,
        )
        for template in (spec["leader"]["template"], spec["workerSets"][0]["template"]):
            template["spec"]["terminationGracePeriodSeconds"] = 0
        body = {"apiVersion": "fairlead.io/v1alpha1", "kind": "TYJob", "spec": spec}
        self._patiently("POST", JOBS, {**body, "metadata": {"name": f"job-{self.made:04}"}})

    def kill(self) -> None:
        """Ends the leader without a word. Its lease has to run out, or else it is given up in the dead one's name three
        times of four, which saves the wait and changes nothing else."""
        killed = self.leader() or self.replicas[0]
        super().kill()
        if self.gives_up_leases and self.troubles["kills"] % 4 and self.holder() == killed.name:
            self._patiently("PATCH", LEASE, {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})

    def lose_node(self) -> None:
        """A node and its pods are gone; it comes back empty."""
        name = f"node-{self.rng.randrange(4):03}"
        self.rig.request("DELETE", f"/api/v1/nodes/{name}")
        for pod in self.pods():
            if pod["spec"].get("nodeName") == name:
                self.rig.request("DELETE", f"{PODS}/{pod['metadata']['name']}?gracePeriodSeconds=0")
        self.add_node(name)
        self.troubles["nodes lost"] += 1

    def _run_pods(self, stop: threading.Event) -> None:
        """What kubelets do: bound pods run and are ready; some leaders crash, most end after a while."""
        rng = random.Random(self.seed + 1)
        while not stop.wait(0.3):
            with contextlib.suppress(OSError, KeyError, ValueError):
                for pod in self.pods():
                    self._run_pod(pod, rng)

    def _run_pod(self, pod: Json, rng: random.Random) -> None:
        phase = pod.get("status", {}).get("phase", "Pending")
        name = pod["metadata"]["name"]
        if not pod["spec"].get("nodeName") or phase in ("Succeeded", "Failed"):
            return
        is_leader = pod["metadata"].get("labels", {}).get("fairlead.io/role") == "leader"
        if phase == "Pending":
            ready = [{"type": "Ready", "status": "True"}]
            self._status(
                name, {"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}], "conditions": ready}
            )
        elif is_leader and not self.quiet.is_set() and rng.random() < 0.04:
            self._status(name, {"phase": rng.choice(("Succeeded", "Succeeded", "Failed")), "conditions": []})

    def _status(self, name: str, status: Json) -> None:
        self.rig.request("PATCH", f"{PODS}/{name}/status", {"status": status})

    def jobs(self) -> list[Json]:
        found: list[Json] = self.rig.request("GET", f"{JOBS}?limit=5000").json()["items"]
        return found

    def verdict(self, patience_s: float) -> list[str]:
        self.off.touch()
        self.quiet.set()
        wrong = self._at_rest(patience_s)
        events = self.rig.audit()
        stages: dict[str, int] = {}
        for job in self.jobs():
            stage = (job.get("status") or {}).get("stage", "unseen")
            stages[stage] = stages.get(stage, 0) + 1
        told = ", ".join(f"{count} {name}" for name, count in sorted(self.troubles.items()))
        print(f"{self.made} jobs: {stages}; {told or 'no troubles'}", flush=True)
        wrong = [*judge_audit(events), *wrong]
        if wrong:
            print(self._story_told(), flush=True)
        for replica in self.replicas:
            if replica.process.poll() is not None:
                wrong.append(f"{replica.name} has ended:\n{self._last_words()}")
        return wrong

    def _at_rest(self, patience_s: float) -> list[str]:
        give_up_s = time.monotonic() + patience_s
        wrong: list[str] = []
        while time.monotonic() < give_up_s:
            nodes = self.rig.request("GET", "/api/v1/nodes").json()["items"]
            wrong = judge_rest(self.jobs(), self.pods(), nodes)
            if not wrong:
                return []
            time.sleep(1.0)
        return wrong


def soak(
    rig: Rig,
    *,
    nodes: int,
    kills: int,
    freezes: int,
    losses: int,
    jobs: int,
    seed: int,
    bug: str = "",
    share: float = 0.05,
    duration_s: int = DURATION_S,
    patience_s: float = 120.0,
    give_up_leases: bool = False,
) -> list[str]:
    """Everything that was found wrong. `jobs`: submitted at every trouble."""
    story = JobStory(rig, seed, bug, duration_s)
    story.gives_up_leases = give_up_leases
    with story.running(nodes, share, ""):
        troubles = ["kill"] * kills + ["freeze"] * freezes + ["lose"] * losses
        story.rng.shuffle(troubles)
        for trouble in troubles or [""]:
            for _ in range(jobs):
                story.submit()
            # Somebody must be at work to be killed at it.
            if not until(lambda: story.leader() is not None, 60):
                raise RigBroken(f"nobody leads:\n{story._last_words()}")
            time.sleep(story.rng.random() * 2)
            if trouble:
                {"kill": story.kill, "freeze": story.freeze, "lose": story.lose_node}[trouble]()
        return story.verdict(patience_s)


@click.command()
@click.option("--nodes", default=20)
@click.option("--kills", default=200)
@click.option("--freezes", default=10)
@click.option("--losses", default=20, help="Of nodes.")
@click.option("--jobs", default=1, help="Submitted at every trouble.")
@click.option("--lease", "duration_s", default=LONG_FORM_S, help="Seconds after which a silent leader is followed.")
@click.option("--give-up-leases", is_flag=True, help="Do not wait for most leases of killed leaders to run out.")
@click.option("--seed", default=1)
def main(
    nodes: int, kills: int, freezes: int, losses: int, jobs: int, duration_s: int, give_up_leases: bool, seed: int
) -> None:
    with Rig(ensure_built()) as rig:
        wrong = soak(
            start(rig),
            nodes=nodes,
            kills=kills,
            freezes=freezes,
            losses=losses,
            jobs=jobs,
            seed=seed,
            duration_s=duration_s,
            # Whoever could not start backs off for up to a minute, and has a minute to start again.
            patience_s=300.0,
            give_up_leases=give_up_leases,
        )
    for line in wrong[:20]:
        print(f"  wrong: {line}")
    print(f"{0 if wrong else 1} passed, {1 if wrong else 0} failed")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
