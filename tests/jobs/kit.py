"""Jobs, pods and decisions for tests, and a small world that carries plans out."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from fairlead.engine.unit import Loss, NeverFits, UnitOutcome, UnitPlaced, UnitRefused
from fairlead.jobs.allocations import Place, decode
from fairlead.jobs.observed import JobInput
from fairlead.jobs.plan import JobPlan, PlanOptions, plan_job
from fairlead.jobs.pods import places_of, pod_name
from fairlead.jobs.spec import JOB_PODS, JobContainerStatus, JobPod, JobSpec, JobStatus, TYJob, parse_spec
from fairlead.model.intents import Create, Delete
from fairlead.model.meta import Condition, ObjectMeta
from fairlead.model.outcome import Diagnosis, Placed

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
META = ObjectMeta(name="train", namespace="lab", uid="u1", generation=1, creation_timestamp="2026-01-01T12:00:00Z")
CONTAINER = {"name": "main", "image": "python:3", "resources": {"requests": {"cpu": "1"}}}


def template(**pod: Any) -> dict[str, Any]:
    return {"spec": {"containers": [dict(CONTAINER)], **pod}}


def spec_json(workers: int = 2, **fields: Any) -> dict[str, Any]:
    return {
        "leader": {"name": "learner", "template": template()},
        "workerSets": [{"name": "actors", "counts": workers, "template": template()}],
        **fields,
    }


def job(workers: int = 2, **fields: Any) -> TYJob:
    return TYJob(metadata=META, spec=spec_json(workers, **fields))


def spec(workers: int = 2, **fields: Any) -> JobSpec:
    parsed = parse_spec(job(workers, **fields))
    assert isinstance(parsed, JobSpec), parsed
    return parsed


def placed(job_spec: JobSpec, count: int | None = None, node: str = "n{}", start: int = 0) -> UnitPlaced:
    """The first so many pods, each on a node of its own."""
    keys = [f"lab/{pod_name('train', job_spec, place)}" for place in places_of(job_spec)]
    chosen = keys[start:count]
    return UnitPlaced("lab/train", tuple(Placed(key, node.format(n + start)) for n, key in enumerate(chosen)))


def refused(never: bool = False) -> UnitRefused:
    proof = NeverFits("lab/train-actors-0", 3, 2) if never else None
    return UnitRefused("lab/train", "lab/train-actors-0", Diagnosis(nodes=3), fitting=1, never=proof)


@dataclass
class World:
    """One job, its stored status and its pods; `settle` plans and carries out until nothing changes."""

    spec: JobSpec
    status: JobStatus = field(default_factory=JobStatus)
    pods: dict[str, JobPod] = field(default_factory=dict)
    now: datetime = START
    services: int = 0
    deleted: bool = False
    stages: list[str] = field(default_factory=list)
    options: PlanOptions = field(default_factory=PlanOptions)
    unusable: frozenset[str] = frozenset()
    metadata: ObjectMeta = META
    uids: int = 0

    def look(self, **more: Any) -> JobInput:
        seen = JobInput(
            self.metadata,
            self.spec,
            self.status,
            tuple(self.pods.values()),
            has_service=bool(self.services),
            unusable=self.unusable,
        )
        return replace(seen, **more)

    def plan(self, **more: Any) -> JobPlan:
        return plan_job(self.look(**more), self.now, self.options)

    def settle(self, outcome: UnitOutcome | None = None, lost: dict[Place, Loss] | None = None, **more: Any) -> "World":
        """News first; then what follows from the status and the pods alone."""
        if not self.stages:
            self.carry_out(self.plan(**more))  # nobody decides about a job that has not been looked at
        self.carry_out(self.plan(outcome=outcome, lost=lost or {}, **more))
        for _ in range(50):
            plan = self.plan(**{name: value for name, value in more.items() if name != "refusal"})
            if not self.carry_out(plan):
                return self
        raise AssertionError(f"does not come to rest: {self.status}")

    def carry_out(self, plan: JobPlan) -> bool:
        changed = plan.status != self.status or bool(plan.intents)
        if plan.status.stage != self.status.stage or not self.stages:
            self.stages.append(plan.status.stage)
        self.status = plan.status
        assert not (plan.is_status_first and plan.intents), "pods are touched before the status is stored"
        for intent in plan.intents:
            match intent:
                case Create() if intent.kind is JOB_PODS:
                    self._create(intent.body)
                case Create():
                    self.services += 1
                case Delete() if intent.kind is JOB_PODS:
                    assert self.pods[intent.name].metadata.uid == intent.uid
                    del self.pods[intent.name]
                case Delete():
                    self.deleted = True
        return changed

    def _create(self, body: dict[str, Any]) -> None:
        name = body["metadata"]["name"]
        assert name not in self.pods, f"{name} is created twice"
        self.uids += 1
        pod = msgspec.convert(body, JobPod)
        metadata = msgspec.structs.replace(pod.metadata, uid=f"pod-{self.uids}")
        self.bodies[name] = body
        self.pods[name] = msgspec.structs.replace(pod, metadata=metadata)

    @property
    def bodies(self) -> dict[str, Any]:
        return self.__dict__.setdefault("_bodies", {})  # type: ignore[no-any-return]

    @property
    def places(self) -> dict[Place, str]:
        return decode(self.status.allocations, self.spec)

    # -- what happens to pods ------------------------------------------------------------------------------------

    def run(self, *names: str) -> "World":
        """Bound to their places, with an address, Ready."""
        nodes = {pod_name("train", self.spec, place): node for place, node in self.places.items()}
        for name in names or tuple(self.pods):
            self.set(name, phase="Running", pod_ip="10.0.0.1", conditions=(Condition(type="Ready", status="True"),))
            pod = self.pods[name]
            self.pods[name] = msgspec.structs.replace(
                pod, spec=msgspec.structs.replace(pod.spec, node_name=nodes.get(name, ""))
            )
        return self

    def set(self, name: str, **status: Any) -> "World":
        pod = self.pods[name]
        self.pods[name] = msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, **status))
        return self

    def state(self, name: str, *, restarts: int = 0, **state: Any) -> "World":
        """Of the pod's only container."""
        return self.containers(name, ("main", restarts, state))

    def containers(self, name: str, *states: tuple[str, int, Any]) -> "World":
        """Name, restarts and state of each."""
        found = [{"name": each, "restartCount": restarts, "state": state} for each, restarts, state in states]
        return self.set(name, container_statuses=msgspec.convert(found, tuple[JobContainerStatus, ...]))

    def fail(self, name: str, exit_code: int = 1) -> "World":
        self.state(name, terminated={"exitCode": exit_code})
        return self.set(name, phase="Failed" if exit_code else "Succeeded", conditions=())

    def advance(self, seconds: float) -> "World":
        self.now += timedelta(seconds=seconds)
        return self

    def begin(self) -> "World":
        """From submit to Running."""
        self.settle(outcome=placed(self.spec))
        self.run("train-learner").settle()
        return self.run().settle()
