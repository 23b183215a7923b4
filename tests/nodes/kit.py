"""Pods and reports for the tests of virtual nodes: each builder gives something valid."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from fairlead.nodes.container_state import PodEvent
from fairlead.nodes.plan import Memory, Order, Plan, plan_pod, recall
from fairlead.nodes.provider import PodReport, RunPhase, RunReport
from fairlead.nodes.spec import ContainerStatus, KubeletPod

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def container(name: str = "main", **rest: Any) -> dict[str, Any]:
    return {"name": name, "image": "python:3", **rest}


def pod(name: str = "p", **spec: Any) -> KubeletPod:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "1", "generation": 1}
    metadata |= spec.pop("metadata", {})
    status = spec.pop("status", {})
    spec.setdefault("containers", [container()])
    spec.setdefault("nodeName", "node")
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, KubeletPod)


class Stage:
    """A pod on a node whose provider is played by hand: `runs`, `exits`, and `look` plans."""

    def __init__(self, played: KubeletPod) -> None:
        self.pod = played
        self.memory: Memory = recall(played, T0)
        self.reports: dict[str, RunReport] = {}
        self.events: list[PodEvent] = []

    def runs(self, name: str = "main", second: float = 0.0, attempt: int | None = None) -> None:
        number = self.memory.records[name].attempt if attempt is None else attempt
        self.reports[name] = RunReport(number, RunPhase.RUNNING, at(second), id=f"{name}-{number}")

    def exits(self, name: str = "main", code: int = 0, second: float = 0.0) -> None:
        run = self.reports[name]
        self.reports[name] = RunReport(run.attempt, RunPhase.EXITED, run.started_at, at(second), code, id=run.id)

    def waits(self, name: str, reason: str, message: str = "") -> None:
        number = self.memory.records[name].attempt
        self.reports[name] = RunReport(number, RunPhase.WAITING, reason=reason, message=message)

    def look(self, second: float = 0.0) -> Plan:
        plan = plan_pod(
            self.pod, PodReport("10.0.0.1", dict(self.reports)), self.memory, now=at(second), node_ip="10.1"
        )
        self.memory = plan.memory
        self.events += plan.events
        self.pod = msgspec.structs.replace(self.pod, status=plan.status)
        for order in plan.orders:
            known = self.reports.get(order.name)
            if known is None or known.attempt < order.attempt:
                # The law: once told, a provider speaks of it.
                self.reports[order.name] = RunReport(order.attempt, RunPhase.WAITING)
        return plan

    def started(self, *names: str, second: float = 0.0) -> Plan:
        """Looks, lets everything ordered run, looks again."""
        self.look(second)
        for name in names or ("main",):
            self.runs(name, second)
        return self.look(second)

    def is_deleted(self, grace_s: int = 30) -> None:
        metadata = msgspec.structs.replace(
            self.pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z", deletion_grace_period_seconds=grace_s
        )
        self.pod = msgspec.structs.replace(self.pod, metadata=metadata)


def ordered(plan: Plan) -> list[tuple[str, int]]:
    return [(order.name, order.attempt) for order in plan.orders]


def stopping(plan: Plan) -> list[str]:
    return [order.name for order in plan.orders if order.kill_at is not None]


def status(plan: Plan, name: str = "main") -> ContainerStatus:
    both = (*(plan.status.init_container_statuses or ()), *(plan.status.container_statuses or ()))
    return next(status for status in both if status.name == name)


def conditions(plan: Plan) -> dict[str, str]:
    return {condition.type: condition.status for condition in plan.status.conditions or ()}


__all__ = ["Order", "Stage", "at", "conditions", "container", "ordered", "pod", "status", "stopping"]
