"""The controller of tasks: reads the mirrors, plans one task, and hands the intents to the writer in their order.

One key per task, `Kind/name`. Names of objects are fixed, so a create that was sent twice finds its object there.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import structlog

from fairlead.cluster.controller import Controller, TemporaryError
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.mirror import Delta, Mirror
from fairlead.cluster.mirrors import caught_up
from fairlead.cluster.writer import Outcome, Result
from fairlead.model.intents import Apply, Create, Delete, Intent, RecordEvent, WakeAfter
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiStruct, ObjectMeta
from fairlead.runtime import Runtime
from fairlead.tasks import carrier as carriers
from fairlead.tasks.carrier import Adaptation, Carrier, CarrierOptions
from fairlead.tasks.metrics import TaskMetrics
from fairlead.tasks.names import carrier_names, valid_name
from fairlead.tasks.plan import (
    CarrierObject,
    CarrierPod,
    Observed,
    PlanOptions,
    SharedAgent,
    plan_task,
)
from fairlead.tasks.spec import KINDS, TASK_REPORTS, AppHttpHealthySpec, Task, TaskReport
from fairlead.tasks.templates import (
    AUDIENCE,
    COMPONENT,
    TOKEN_FOLDER,
    load_templates,
    token_volume,
)

log = structlog.get_logger("fairlead.tasks")

FAMILIES_KEPT_S: Final = 60.0
OURS: Final = {"app.kubernetes.io/managed-by": "fairlead"}
"""On a shared agent that came with the first task, and not with a manifest of the administrator's."""
MOST_PRUNED: Final = 50
"""Reports of rounds that have left the history, deleted in one go."""
BODY_FOLDER: Final = "/etc/fairlead-agent/body"
TLS_FOLDER: Final = "/etc/fairlead-agent/tls"


class ReportResult(ApiStruct, frozen=True):
    round_result: str = ""


class ReportHeadSpec(ApiStruct, frozen=True):
    """What the controller reads of a report: the rest stays on the server."""

    task_kind: str = ""
    task_name: str = ""
    task_uid: str = msgspec.field(default="", name="taskUID")
    round_number: int = 0
    pod_uid: str = msgspec.field(default="", name="podUID")
    report: ReportResult = ReportResult()


class ReportHead(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ReportHeadSpec = ReportHeadSpec()


REPORT_HEADS = Kind(TASK_REPORTS.group, TASK_REPORTS.version, TASK_REPORTS.plural, TASK_REPORTS.kind, ReportHead)
WORKLOADS: Final[dict[str, Kind[Any]]] = {
    name: msgspec.structs.replace(kind, struct=CarrierObject) for name, kind in carriers.WORKLOADS.items()
}
SERVICES = Kind("", "v1", "services", "Service", CarrierObject)
INGRESSES = Kind("networking.k8s.io", "v1", "ingresses", "Ingress", CarrierObject)
SECRETS = Kind("", "v1", "secrets", "Secret", CarrierObject)
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", CarrierObject)
PODS = Kind("", "v1", "pods", "Pod", CarrierPod)


def _carrier_index(kind: str) -> Callable[[Task], Iterable[str]]:
    def names(task: Task) -> Iterable[str]:
        found = {carrier_names(kind, task.metadata.name).workload}
        if task.status.resource is not None:
            found.add(task.status.resource.runtime_name)
        return found

    return names


_CARRIER_INDEXES: Final = {kind: _carrier_index(kind) for kind in KINDS}


def _pod_carrier(pod: CarrierPod) -> Iterable[str]:
    return (pod.metadata.labels.get(carriers.UNIQUE_LABEL, ""),)


def _report_task(report: ReportHead) -> Iterable[str]:
    return (report.spec.task_uid,)


@dataclass(slots=True)
class Families:
    """Which IP families Services can have here: what the server gives to a Service that would take both."""

    runtime: Runtime
    _found: tuple[str, ...] = ()
    _until_s: float = field(default=float("-inf"))

    async def available(self) -> tuple[str, ...]:
        clock = self.runtime.clock
        if self._found and clock.elapsed_s() < self._until_s:
            return self._found
        body = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "fairlead-families"},
            "spec": {"ipFamilyPolicy": "PreferDualStack", "ports": [{"port": 1}], "selector": {"none": "none"}},
        }
        namespace = self.runtime.settings.namespace
        made = await self.runtime.reader.create(SERVICES, body, namespace, dry_run=True)
        self._found = tuple(made.spec.get("ipFamilies") or ("IPv4",))
        self._until_s = clock.elapsed_s() + FAMILIES_KEPT_S
        return self._found

    async def enabled(self) -> tuple[bool, bool, list[str]]:
        """IPv4 and IPv6 by settings and cluster, and the families that are turned on and lacking."""
        settings, there = self.runtime.settings.tasks, await self.available()
        enabled, lacking = [], []
        for wanted, family in ((settings.ipv4, "IPv4"), (settings.ipv6, "IPv6")):
            enabled.append(wanted != "off" and family in there)
            if wanted == "on" and family not in there:
                lacking.append(family)
        return enabled[0], enabled[1], lacking


class TaskMirrors:
    """Everything the controller reads."""

    def __init__(self, runtime: Runtime) -> None:
        namespace, label = runtime.settings.namespace, f"app.kubernetes.io/component={COMPONENT}"
        hint = "tasks need deploy/crds and deploy/rbac/tasks.yaml"
        self.tasks: dict[str, Mirror[Any]] = {
            name: runtime.mirror(kind, indexes={"carrier": _CARRIER_INDEXES[name]}, hint=hint)
            for name, kind in KINDS.items()
        }
        self.workloads = {name: runtime.mirror(kind, namespace) for name, kind in WORKLOADS.items()}
        self.services: Mirror[CarrierObject] = runtime.mirror(SERVICES, namespace)
        self.ingresses: Mirror[CarrierObject] = runtime.mirror(INGRESSES, namespace)
        self.pods: Mirror[CarrierPod] = runtime.mirror(PODS, namespace, labels=label, indexes={"carrier": _pod_carrier})
        self.reports: Mirror[ReportHead] = runtime.mirror(
            REPORT_HEADS, namespace, indexes={"task": _report_task}, hint=hint
        )

    def all(self) -> list[Mirror[Any]]:
        rest: list[Mirror[Any]] = [self.services, self.ingresses, self.pods, self.reports]
        return [*self.tasks.values(), *self.workloads.values(), *rest]

    def keys_of_carrier(self, name: str) -> Iterable[str]:
        return (
            f"{kind}/{task.metadata.name}" for kind, each in self.tasks.items() for task in each.by("carrier", name)
        )


class TaskController:
    def __init__(self, runtime: Runtime, mirrors: TaskMirrors, families: Families, metrics: TaskMetrics) -> None:
        self._runtime = runtime
        self._mirrors = mirrors
        self._families = families
        self._metrics = metrics
        self._templates = load_templates(runtime.settings.tasks)
        settings = runtime.settings
        self._options = PlanOptions(
            shared=SharedAgent(),
            most_history=settings.tasks.most_history,
            poll_s=settings.tasks.poll_s,
            creation_deadline_s=settings.tasks.creation_deadline_s,
            namespace=settings.namespace,
        )

    async def run(self) -> None:
        """Lead until stopped."""
        runtime, mirrors = self._runtime, self._mirrors
        await caught_up(mirrors.all(), runtime.clock, runtime.stop)
        controller = Controller("tasks", self._reconcile, clock=runtime.clock, metrics=runtime.metrics)
        for kind, mirror in mirrors.tasks.items():
            controller.watches(mirror, _prefixed(kind))
        for workloads in mirrors.workloads.values():
            controller.watches(workloads, self._by_name)
        for parts in (mirrors.services, mirrors.ingresses):
            controller.watches(parts, self._by_owner)
        controller.watches(mirrors.pods, self._by_label)
        controller.watches(mirrors.reports, _by_report)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(controller.run(), name="tasks")
            await runtime.stop.wait()
            controller.stop()

    def _by_name(self, delta: Delta[Any]) -> Iterable[str]:
        return self._mirrors.keys_of_carrier(delta.key.rpartition("/")[2])

    def _by_owner(self, delta: Delta[Any]) -> Iterable[str]:
        names = {
            owner.name
            for each in (delta.old, delta.new)
            if each is not None
            for owner in each.metadata.owner_references
        }
        return [key for name in names for key in self._mirrors.keys_of_carrier(name)]

    def _by_label(self, delta: Delta[Any]) -> Iterable[str]:
        names = {name for each in (delta.old, delta.new) if each is not None for name in _pod_carrier(each)}
        return [key for name in names for key in self._mirrors.keys_of_carrier(name)]

    async def _reconcile(self, key: str) -> WakeAfter | None:
        kind, _, name = key.partition("/")
        task: Task | None = self._mirrors.tasks[kind].get(name)
        if task is None:
            self._metrics.forget(kind, name)
            return None
        seen = await self._observe(kind, task)
        plan = plan_task(seen, self._options, self._runtime.clock.now())
        self._metrics.observe(kind, task)
        prune = self._reports_to_prune(task)
        await self._carry_out([*plan.intents, *prune])
        if plan.wake_s is None or (plan.wake_s == 0 and plan.intents):
            return None  # what was written brings this key back
        return WakeAfter(seconds=max(0.05, plan.wake_s))

    async def _observe(self, kind: str, task: Task) -> Observed:
        mirrors, namespace = self._mirrors, self._options.namespace
        if task.metadata.deletion_timestamp is not None:
            return Observed(kind, task)
        ipv4, ipv6, lacking = await self._families.enabled()
        options = CarrierOptions(namespace, self._templates, ipv4, ipv6)
        if task.spec.agent_spec is None:
            name, carrier = self._options.shared.name, None
            await self._ensure_shared(options)
            workload = mirrors.workloads["DaemonSet"].get(f"{namespace}/{name}")
        else:
            carrier = await self._carrier(kind, task, options)
            name = carrier.workload["metadata"]["name"]
            workload = mirrors.workloads[carrier.workload["kind"]].get(f"{namespace}/{name}")
        parts = await self._parts(carrier) if carrier is not None else {}
        record = task.status.history[0] if task.status.history else None
        results = {
            report.spec.pod_uid: report.spec.report.round_result == "succeed"
            for report in mirrors.reports.by("task", task.metadata.uid)
            if record is not None and report.spec.round_number == record.round_number
        }
        pods = [pod for pod in mirrors.pods.by("carrier", name) if _is_of(pod, workload)]
        return Observed(kind, task, carrier, workload, parts, pods, results, lacking)

    async def _carrier(self, kind: str, task: Task, options: CarrierOptions) -> Carrier:
        built = carriers.build(kind, task.metadata, task.spec, options)
        volumes, mounts, copies = [token_volume()], [_mount("report-token", TOKEN_FOLDER)], []
        if isinstance(task.spec, AppHttpHealthySpec) and task.spec.target is not None:
            target = task.spec.target
            for original, source, volume, folder, secret in (
                (SECRETS, (target.tls_secret_namespace, target.tls_secret_name), "tls", TLS_FOLDER, True),
                (
                    CONFIG_MAPS,
                    (target.body_configmap_namespace, target.body_configmap_name),
                    "body",
                    BODY_FOLDER,
                    False,
                ),
            ):
                if not source[1]:
                    continue
                name = valid_name(built.names.workload, f"-{volume}")
                inner = {"secret": {"secretName": name}} if secret else {"configMap": {"name": name}}
                volumes.append({"name": volume, **inner})
                mounts.append(_mount(volume, folder))
                if (copy := await self._copy(original, source, name)) is not None:
                    copies.append(copy)
        adaptation = Adaptation(
            scheduler=self._runtime.settings.schedulers[0],
            env=self._agent_env(),
            volumes=volumes,
            mounts=mounts,
            copies=copies,
        )
        return carriers.adapted(built, task.spec, adaptation)

    async def _copy(self, kind: Kind[Any], source: tuple[str | None, str | None], name: str) -> dict[str, Any] | None:
        """A copy of what the task refers to, where it exists; the agents' pods wait for it."""
        found: CarrierObject | None = await self._runtime.reader.find(kind, source[1] or "", source[0] or "default")
        if found is None:
            return None
        metadata = {
            "name": name,
            "namespace": self._options.namespace,
            "labels": {"app.kubernetes.io/component": COMPONENT},
        }
        return {"apiVersion": "v1", "kind": kind.kind, "metadata": metadata, "data": dict(found.data)}

    async def _parts(self, carrier: Carrier) -> dict[tuple[str, str], CarrierObject]:
        namespace = self._options.namespace
        found: dict[tuple[str, str], CarrierObject | None] = {}
        for body in carrier.parts(""):
            kind, name = body["kind"], body["metadata"]["name"]
            match kind:
                case "Service":
                    found[kind, name] = self._mirrors.services.get(f"{namespace}/{name}")
                case "Ingress":
                    found[kind, name] = self._mirrors.ingresses.get(f"{namespace}/{name}")
                case _:
                    of_kind = SECRETS if kind == "Secret" else CONFIG_MAPS
                    copy = await self._runtime.reader.find(of_kind, name, namespace)
                    found[kind, name] = copy
        return {key: each for key, each in found.items() if each is not None}

    def _agent_env(self) -> dict[str, str]:
        settings = self._runtime.settings.tasks
        env = {
            "AGENT_API_URL": settings.api_url or self._runtime.routes.url,
            "AGENT_TOKEN_FILE": f"{TOKEN_FOLDER}/token",
            "AGENT_AUDIENCE": AUDIENCE,
        }
        if settings.api_ca:
            with open(settings.api_ca, encoding="utf-8") as file:
                env["AGENT_API_CA"] = file.read()
        return env

    async def _ensure_shared(self, options: CarrierOptions) -> None:
        """The shared agent comes with the first task that needs it, unless it was deployed before."""
        namespace, name = options.namespace, self._options.shared.name
        shared = carriers.adapted(
            carriers.build_shared(options, name),
            None,
            Adaptation(env=self._agent_env(), volumes=[token_volume()], mounts=[_mount("report-token", TOKEN_FOLDER)]),
        )
        workload = shared.workload
        workload["metadata"]["labels"] = {**workload["metadata"].get("labels", {}), **OURS}
        found = self._mirrors.workloads["DaemonSet"].get(f"{namespace}/{name}")
        if found is None:
            await self._carry_out([Create(kind=carriers.DAEMON_SETS, body=workload, namespace=namespace)])
        elif self._is_outdated(found, workload):
            await self._carry_out([Apply(kind=carriers.DAEMON_SETS, name=name, namespace=namespace, body=workload)])
        for service in shared.services:
            body = {**service, "spec": {**service["spec"], "type": "NodePort"}}
            if self._mirrors.services.get(f"{namespace}/{body['metadata']['name']}") is None:
                await self._carry_out([Create(kind=carriers.SERVICES, body=body, namespace=namespace)])

    def _is_outdated(self, found: CarrierObject, wanted: dict[str, Any]) -> bool:
        """Whether the shared agent is one that we made, from another template, and no round would be disturbed."""
        name = carriers.HASH_ANNOTATION
        is_other = found.metadata.annotations.get(name) != wanted["metadata"]["annotations"][name]
        if not is_other or not OURS.items() <= found.metadata.labels.items():
            return False
        tasks = (task for mirror in self._mirrors.tasks.values() for task in mirror)
        return not any(task.spec.agent_spec is None and task.status.actors for task in tasks)

    def _reports_to_prune(self, task: Task) -> list[Intent]:
        """Reports of rounds that have left the history."""
        if not task.status.history:
            return []
        oldest = task.status.history[-1].round_number
        old = [each for each in self._mirrors.reports.by("task", task.metadata.uid) if each.spec.round_number < oldest]
        return [
            Delete(kind=TASK_REPORTS, name=each.metadata.name, namespace=each.metadata.namespace, uid=each.metadata.uid)
            for each in old[:MOST_PRUNED]
        ]

    async def _carry_out(self, intents: list[Intent]) -> None:
        """One after another: a write that fails keeps the rest from being sent, and events of it from being told."""
        for intent in intents:
            result = await self._runtime.writer.carry_out(intent)
            if not isinstance(intent, RecordEvent):
                self._metrics.writes.labels(type(intent).__name__, result.outcome).inc()
            _check(result)


def _check(result: Result) -> None:
    match result.outcome:
        case Outcome.DONE | Outcome.EXISTS | Outcome.MISSING:
            return  # what exists already, or is gone already, is seen at the next look
        case Outcome.CONFLICT | Outcome.NOT_LEADER:
            raise TemporaryError(str(result.error))
    error: ClusterError | None = result.error
    assert error is not None
    raise error


def _mount(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "mountPath": path, "readOnly": True}


def _is_of(pod: CarrierPod, workload: CarrierObject | None) -> bool:
    """A pod of a Deployment is its ReplicaSet's: the label, which carries the carrier's name, has to do."""
    return workload is not None and (pod.metadata.creation_timestamp or "") >= (
        workload.metadata.creation_timestamp or ""
    )


def _prefixed(kind: str) -> Callable[[Delta[Any]], Iterable[str]]:
    return lambda delta: (f"{kind}/{delta.key}",)


def _by_report(delta: Delta[ReportHead]) -> Iterable[str]:
    heads = [each.spec for each in (delta.old, delta.new) if each is not None]
    return {f"{each.task_kind}/{each.task_name}" for each in heads if each.task_kind in KINDS}


__all__ = ["Families", "TaskController", "TaskMirrors", "TaskReport"]
