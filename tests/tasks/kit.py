"""Tasks and what exists of them, for tests of plans."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from fairlead.model.intents import Create, Intent
from fairlead.model.times import EARLIEST, rfc3339
from fairlead.settings import TaskSettings
from fairlead.tasks.carrier import Adaptation, Carrier, CarrierObject, CarrierOptions, adapted, build
from fairlead.tasks.plan import CarrierPod, Observed, Plan, PlanOptions, plan_task
from fairlead.tasks.spec import KINDS, Task
from fairlead.tasks.templates import built_in

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
NAMESPACE = "fairlead-system"
OPTIONS = CarrierOptions(NAMESPACE, built_in(TaskSettings()), ipv4=True, ipv6=False)
SPEC = {"agentSpec": {}, "schedule": {"schedule": "0 60", "roundTimeoutMinute": 5, "roundNumber": 2}}


def make_task(kind: str = "NetReach", name: str = "a", spec: Any = None, status: Any = None, **metadata: Any) -> Task:
    body = {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", **metadata},
        "spec": SPEC if spec is None else spec,
        "status": status or {},
    }
    found: Task = msgspec.convert(body, KINDS[kind].struct)
    return found


def carrier_of(task: Task, kind: str = "NetReach") -> Carrier:
    return adapted(build(kind, task.metadata, task.spec, OPTIONS), [task.spec], Adaptation())


def stored(body: dict[str, Any], uid: str, **status: Any) -> CarrierObject:
    metadata = {**body["metadata"], "uid": uid, "generation": 1}
    return msgspec.convert({**body, "metadata": metadata, "status": status}, CarrierObject)


def pod(name: str, node: str, *, ready: bool = True, since: datetime | None = None, **metadata: Any) -> CarrierPod:
    changed = {"lastTransitionTime": rfc3339(since)} if since is not None else {}
    conditions = [{"type": "Ready", "status": "True" if ready else "False", **changed}]
    body = {"metadata": {"name": name, "uid": f"uid-{name}", **metadata}, "spec": {"nodeName": node}}
    return msgspec.convert({**body, "status": {"conditions": conditions}}, CarrierPod)


class World:
    """A cluster in which plans are carried out at once: what a controller and an API server would make of them."""

    def __init__(self, task: Task, kind: str = "NetReach") -> None:
        self.kind = kind
        self.task = task
        self.workload: CarrierObject | None = None
        self.parts: dict[tuple[str, str], CarrierObject] = {}
        self.pods: Sequence[CarrierPod] = ()
        self.results: dict[str, bool] = {}
        self.now = NOW
        self.log: list[Intent] = []
        self.skipped: Sequence[str] = ()
        self.unlisted: Sequence[str] = ()
        self.options = PlanOptions()
        self.since = EARLIEST

    def look(self) -> Plan:
        carrier = carrier_of(self.task, self.kind) if self.task.spec.agent_spec is not None else None
        seen = Observed(
            self.kind,
            self.task,
            carrier,
            self.workload,
            self.parts,
            self.pods,
            self.results,
            self.skipped,
            self.unlisted,
            since=self.since,
        )
        return plan_task(seen, self.options, self.now)

    def step(self) -> Plan:
        plan = self.look()
        for intent in plan.intents:
            self.carry_out(intent)
        return plan

    def settle(self) -> Plan:
        for _ in range(20):
            plan = self.step()
            if not plan.intents:
                return plan
        raise AssertionError("the plan does not come to rest")

    def lose(self) -> None:
        """Everything of the carrier was deleted."""
        self.workload, self.parts, self.pods = None, {}, ()

    def settle_status(self) -> None:
        """Carry out what is written to the status alone."""
        for intent in self.look().intents:
            if type(intent).__name__ == "PatchStatus":
                self.carry_out(intent)

    def carry_out(self, intent: Intent) -> None:
        self.log.append(intent)
        match type(intent).__name__:
            case "Create":
                assert isinstance(intent, Create)
                made = stored(intent.body, f"uid-{intent.kind.kind}-{len(self.log)}")
                if intent.kind.kind in ("DaemonSet", "Deployment"):
                    self.workload = made
                else:
                    self.parts[intent.kind.kind, made.metadata.name] = made
            case "Delete":
                self.lose()
            case "PatchStatus":
                merged = {**self.task.status.to_json(), **intent.status}  # type: ignore[attr-defined]
                clean = {name: _without_null(value) for name, value in merged.items() if value is not None}
                self.task = msgspec.structs.replace(self.task, status=msgspec.convert(clean, type(self.task.status)))

    def make_ready(self, *nodes: str) -> None:
        self.settle()
        assert self.workload is not None
        self.pods = [pod(f"pod-{node}", node) for node in nodes]
        status = {"observedGeneration": 1, "desiredNumberScheduled": len(nodes), "numberReady": len(nodes)}
        self.workload = msgspec.structs.replace(self.workload, status=status)

    def writes(self, name: str) -> list[Intent]:
        return [intent for intent in self.log if type(intent).__name__ == name]


def _without_null(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: each for name, each in value.items() if each is not None}
