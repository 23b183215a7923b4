"""A cluster in memory for jobs and placement together: objects as JSON, mirrors that show every write at once.

Nodes run what is bound to them when `kubelet` is called. `revisions` remembers every state that a watcher could see,
and `judge` finds those that must never be.
"""

import asyncio
import copy
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec

from fairlead.cluster.client import Client
from fairlead.cluster.errors import AlreadyExists, ClusterError, Conflict, Forbidden, NotFound, Status
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.watch import Watch
from fairlead.cluster.writer import Outcome, Result, Writer
from fairlead.engine.profile import kube_profile
from fairlead.jobs.allocations import decode
from fairlead.jobs.capability import _job_of
from fairlead.jobs.controller import JobController, JobMirrors
from fairlead.jobs.plan import PlanOptions
from fairlead.jobs.pods import place_of
from fairlead.jobs.spec import (
    JOB_LABEL,
    JOB_NODES,
    JOB_PODS,
    JOB_QUEUES,
    SERVICES,
    TYJOBS,
    JobPod,
    JobSpec,
    TYJob,
    parse_spec,
    parse_status,
)
from fairlead.model.intents import Bind, Create, Delete, Intent, Patch, PatchStatus, RecordEvent
from fairlead.model.kinds import Kind
from fairlead.placement.loop import Loop
from fairlead.testing.clock import ManualClock, settle
from tests.jobs.judge import judge

Json = dict[str, Any]


class FakeCluster:
    """Objects by plural and key; stands for the client that reads and for the writer."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.metrics = Metrics()
        self.objects: dict[str, dict[str, Json]] = {}
        self.mirrors: dict[tuple[str, type, str], Mirror[Any]] = {}
        self.events: list[RecordEvent] = []
        self.sent: list[Intent] = []
        self.refuse: dict[str, str] = {}
        """Pod name, or its beginning: why it is refused."""
        self.admit: Callable[[Json], None] = lambda body: None
        """What admission adds to a pod."""
        self.conflicts = 0
        """So many status writes to come are answered with a conflict."""
        self.late: list[Json] = []
        """TYJobs that are stored and that the mirrors do not show yet."""
        self.is_release_lost = False
        """The next status write that takes all places away is carried out, shown late, and answered with a conflict."""
        self.on_allocated: Callable[[str], None] | None = None
        """Called once with the leader's node when places are written, before anything else happens."""
        self.complaints: list[str] = []
        self.version = 0
        self.events_waiting = 0

    # -- mirrors ------------------------------------------------------------------------------------------------

    def mirror(self, kind: Kind[Any], *, labels: str = "", **indexes: Any) -> Mirror[Any]:
        identity = (kind.plural, kind.struct, labels)
        if identity not in self.mirrors:
            watch = Watch(cast("Client", None), kind, clock=self.clock, rng=random.random, metrics=self.metrics)
            made: Mirror[Any] = Mirror(watch, kind, self.metrics)
            held = self.objects.get(kind.plural, {}).items()
            shown = {key: each for key, each in held if not labels or labels in (each["metadata"].get("labels") or {})}
            made.replace({key: msgspec.convert(copy.deepcopy(each), kind.struct) for key, each in shown.items()})
            made.is_current = lambda since_s, now_s: True  # type: ignore[method-assign]
            self.mirrors[identity] = made
        for name, index in indexes.items():
            self.mirrors[identity].add_index(name, index)
        return self.mirrors[identity]

    def put(self, plural: str, thing: Json, *, is_late: bool = False) -> Json:
        self.version += 1
        metadata = thing["metadata"]
        metadata["resourceVersion"] = str(self.version)
        metadata.setdefault("uid", f"{plural}-{self.version}")
        metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        key = f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]
        self.objects.setdefault(plural, {})[key] = thing
        if not is_late:
            self._show(plural, thing, True)
        return thing

    def show_late(self) -> None:
        for job in self.late:
            self._show(TYJOBS.plural, job, True)
        self.late.clear()

    def remove(self, plural: str, key: str) -> None:
        thing = self.objects.get(plural, {}).pop(key, None)
        if thing is not None:
            self._show(plural, thing, False)

    def _show(self, plural: str, thing: Json, exists: bool) -> None:
        for (name, struct, labels), mirror in self.mirrors.items():
            if name == plural and (not labels or labels in (thing["metadata"].get("labels") or {})):
                mirror.apply([(exists, msgspec.convert(copy.deepcopy(thing), struct))])
        if plural in (TYJOBS.plural, JOB_PODS.plural):
            jobs, pods = (self.objects.get(each, {}).values() for each in (TYJOBS.plural, JOB_PODS.plural))
            self.complaints += judge(jobs, pods)

    # -- the client ---------------------------------------------------------------------------------------------

    async def create(self, kind: Kind[Any], body: Json, namespace: str = "", *, dry_run: bool = False) -> Any:
        assert dry_run
        self._check(body)
        admitted = copy.deepcopy(body)
        self.admit(admitted)
        return msgspec.convert(admitted, kind.struct)

    async def find(self, kind: Kind[Any], name: str, namespace: str = "") -> Any:
        found = self.objects.get(kind.plural, {}).get(f"{namespace}/{name}")
        return msgspec.convert(copy.deepcopy(found), kind.struct) if found is not None else None

    # -- the writer ---------------------------------------------------------------------------------------------

    async def carry_out_all(self, intents: Iterable[Intent]) -> list[Result]:
        return [await self.carry_out(intent) for intent in intents]

    async def carry_out(self, intent: Intent, *, is_wanted: Callable[[], bool] = lambda: True) -> Result:
        await asyncio.sleep(0)
        if isinstance(intent, RecordEvent):
            self.events.append(intent)
            return Result(intent, Outcome.DONE)
        if not is_wanted():
            return Result(intent, Outcome.UNWANTED)
        self.sent.append(intent)
        try:
            return Result(intent, Outcome.DONE, answer=self._apply(intent))
        except ClusterError as problem:
            outcomes: dict[type, Outcome] = {
                Conflict: Outcome.CONFLICT,
                NotFound: Outcome.MISSING,
                AlreadyExists: Outcome.EXISTS,
                Forbidden: Outcome.REFUSED,
            }
            return Result(intent, outcomes[type(problem)], problem)

    def _apply(self, intent: Intent) -> Any:
        match intent:
            case Create(kind, body, namespace):
                self._check(body)
                key = f"{namespace}/{body['metadata']['name']}"
                if key in self.objects.get(kind.plural, {}):
                    raise AlreadyExists("POST", Status(code=409))
                admitted = copy.deepcopy(body)
                if kind is JOB_PODS:
                    self.admit(admitted)
                return msgspec.convert(copy.deepcopy(self.put(kind.plural, admitted)), kind.struct)
            case Delete(kind=kind, name=name, namespace=namespace, uid=uid):
                held = self._get(kind, namespace, name)
                if uid and held["metadata"]["uid"] != uid:
                    raise Conflict("DELETE", Status(code=409))
                self.remove(kind.plural, f"{namespace}/{name}" if namespace else name)
                return None
            case PatchStatus(kind=kind, name=name, namespace=namespace, status=status, resource_version=version):
                held = self._get(kind, namespace, name)
                if self.conflicts and kind is TYJOBS:
                    self.conflicts -= 1
                    raise Conflict("PATCH", Status(code=409))
                if version and held["metadata"]["resourceVersion"] != version:
                    raise Conflict("PATCH", Status(code=409))
                changed = copy.deepcopy(held)
                changed["status"] = merged(held.get("status") or {}, status)
                if self.is_release_lost and (status.get("allocations") or {}).get("leader", "") is None:
                    self.is_release_lost = False
                    self.late.append(self.put(kind.plural, changed, is_late=True))
                    raise Conflict("PATCH", Status(code=409))
                answer = msgspec.convert(copy.deepcopy(self.put(kind.plural, changed)), kind.struct)
                if self.on_allocated is not None and (node := (status.get("allocations") or {}).get("leader")):
                    hook, self.on_allocated = self.on_allocated, None
                    hook(node)
                return answer
            case Bind(namespace=namespace, name=name, uid=uid, node=node):
                pod = copy.deepcopy(self._get(JOB_PODS, namespace, name))
                if pod["metadata"]["uid"] != uid or pod["spec"].get("nodeName"):
                    raise Conflict("POST binding", Status(code=409))
                self._check_place(pod, node)
                pod["spec"]["nodeName"] = node
                self.put(JOB_PODS.plural, pod)
                return None
            case Patch():
                return None  # a pod's condition: nobody here reads it
        raise AssertionError(f"unexpected write: {intent}")

    def _check_place(self, pod: Json, node: str) -> None:
        """A pod of a job is bound to the node that the stored status names for it, and to no other."""
        if any(owner["kind"] == TYJOBS.kind for owner in pod["metadata"].get("ownerReferences") or ()):
            key = f"{pod['metadata']['namespace']}/{pod['metadata']['labels'][JOB_LABEL]}"
            job = msgspec.convert(copy.deepcopy(self.objects[TYJOBS.plural][key]), TYJob)
            spec, (status, _) = parse_spec(job), parse_status(job)
            places = decode(status.allocations, spec) if isinstance(spec, JobSpec) else {}
            place = place_of(msgspec.convert(pod, JobPod))
            if place is None or places.get(place) != node:
                self.complaints.append(f"{pod['metadata']['name']} is bound to {node}, which is not its place")

    def _get(self, kind: Kind[Any], namespace: str, name: str) -> Json:
        key = f"{namespace}/{name}" if namespace else name
        if key not in self.objects.get(kind.plural, {}):
            raise NotFound("GET", Status(code=404))
        return self.objects[kind.plural][key]

    def _check(self, body: Json) -> None:
        name = body["metadata"]["name"]
        for start, why in self.refuse.items():
            if name.startswith(start):
                raise Forbidden("POST", Status(code=403, message=why))

    # -- what a test does ---------------------------------------------------------------------------------------

    def add_node(self, name: str, cpu: str = "4", **labels: str) -> None:
        self.put(
            "nodes",
            {
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
                "spec": {},
                "status": {
                    "allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "110"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            },
        )

    def submit(self, name: str, spec: Json, namespace: str = "lab") -> str:
        self.put(
            TYJOBS.plural,
            {"metadata": {"name": name, "namespace": namespace, "generation": 1, "uid": f"uid-{name}"}, "spec": spec},
        )
        return f"{namespace}/{name}"

    def edit(self, key: str, **fields: Any) -> None:
        held = copy.deepcopy(self.objects[TYJOBS.plural][key])
        held["spec"].update(fields)
        self.put(TYJOBS.plural, held)

    def status(self, key: str) -> Json:
        return cast("Json", self.objects[TYJOBS.plural][key].get("status") or {})

    def pods(self, job: str = "") -> dict[str, Json]:
        return {
            key.partition("/")[2]: pod
            for key, pod in self.objects.get(JOB_PODS.plural, {}).items()
            if not job or (pod["metadata"].get("labels") or {}).get("fairlead.io/job") == job
        }

    def kubelet(self) -> None:
        """Every bound pod that has not ended runs and is ready."""
        for pod in list(self.objects.get(JOB_PODS.plural, {}).values()):
            if pod["spec"].get("nodeName") and not pod.get("status"):
                running = copy.deepcopy(pod)
                running["status"] = {
                    "phase": "Running",
                    "podIP": "10.0.0.1",
                    "conditions": [{"type": "Ready", "status": "True"}],
                }
                self.put(JOB_PODS.plural, running)

    def end(self, name: str, phase: str = "Succeeded", namespace: str = "lab") -> None:
        pod = copy.deepcopy(self.objects[JOB_PODS.plural][f"{namespace}/{name}"])
        pod["status"] = {**pod.get("status", {}), "phase": phase, "conditions": []}
        self.put(JOB_PODS.plural, pod)


def merged(held: Json, patch: Json) -> Json:
    found = dict(held)
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        elif isinstance(value, dict):
            found[name] = merged(found[name] if isinstance(found.get(name), dict) else {}, value)
        else:
            found[name] = value
    return found


class Together:
    """Jobs and placement on one cluster, as one process that leads."""

    def __init__(self, cluster: FakeCluster, options: PlanOptions = PlanOptions(), period_s: float = 1.0) -> None:  # noqa: B008
        mirrors = JobMirrors(
            jobs=cluster.mirror(TYJOBS),
            queues=cluster.mirror(JOB_QUEUES),
            pods=cluster.mirror(JOB_PODS, labels="fairlead.io/job", job=_job_of),
            services=cluster.mirror(SERVICES, labels="fairlead.io/job"),
            nodes=cluster.mirror(JOB_NODES),
        )
        writer, reader = cast("Writer", cluster), cast("Client", cluster)
        self.controller = JobController(
            mirrors,
            reader=reader,
            writer=writer,
            clock=cluster.clock,
            metrics=Metrics(),
            period_s=period_s,
            options=options,
        )
        self.loop = Loop(
            {"fairlead": kube_profile()},
            writer=writer,
            clock=cluster.clock,
            metrics=Metrics(),
            mirror=cluster.mirror,
            reader=reader,
            sources=[self.controller.source],
        )

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        tasks = [
            asyncio.create_task(self.loop.follow()),
            asyncio.create_task(self.loop.lead(stop)),
            asyncio.create_task(self.controller.lead(stop)),
        ]
        await settle(100)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def turn(cluster: FakeCluster, seconds: float = 10.0) -> None:
    """Let time pass, with nodes that run what is bound to them."""
    for _ in range(round(seconds * 2)):
        await cluster.clock.advance(0.5)
        await settle(80)
        cluster.kubelet()
        await settle(80)
