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
from fairlead.cluster.errors import ClusterError, Refused
from fairlead.cluster.mirror import Delta, Mirror
from fairlead.cluster.mirrors import caught_up
from fairlead.cluster.writer import Outcome, Result
from fairlead.model.intents import Apply, Create, Delete, Intent, RecordEvent, WakeAfter
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiStruct, ObjectMeta
from fairlead.model.times import EARLIEST
from fairlead.runtime import Runtime
from fairlead.tasks import carrier as carriers
from fairlead.tasks.carrier import Adaptation, Carrier, CarrierObject, CarrierOptions
from fairlead.tasks.endpoints import ENDPOINT_SLICES, CarrierEndpoints, probed_services, unlisted_pods
from fairlead.tasks.metrics import TaskMetrics
from fairlead.tasks.names import carrier_names, valid_name
from fairlead.tasks.plan import (
    CarrierPod,
    Observed,
    PlanOptions,
    SharedAgent,
    plan_refusal,
    plan_task,
    ready_actors,
)
from fairlead.tasks.report_address import ADDRESS_MAPS, KEY, is_private, shared_url, without_reserved
from fairlead.tasks.sharing import Sharer, needs_carrier, shared_carrier, sharers, task_reference, with_own_agents
from fairlead.tasks.spec import KINDS, TASK_REPORTS, AppHttpHealthySpec, Task
from fairlead.tasks.templates import (
    AUDIENCE,
    COMPONENT,
    REPORT_ADDRESS,
    TOKEN_FOLDER,
    load_templates,
    token_mount,
    token_volume,
)

log = structlog.get_logger("fairlead.tasks")

FAMILIES_KEPT_S: Final = 60.0
ADDRESS_KEPT_S: Final = 15.0
"""How often the leader looks whether its address is still where agents read it."""
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
PODS = Kind("", "v1", "pods", "Pod", CarrierPod)


def _carrier_index(kind: str) -> Callable[[Task], Iterable[str]]:
    def names(task: Task) -> Iterable[str]:
        found = {shared_carrier(task) or carrier_names(kind, task.metadata.name).workload}
        if (resource := task.status.resource) is not None:
            found |= {resource.runtime_name, resource.service_name_v4 or "", resource.service_name_v6 or ""}
        return found

    return names


_CARRIER_INDEXES: Final = {kind: _carrier_index(kind) for kind in KINDS}


def _own_name(workload: CarrierObject) -> Iterable[str]:
    return (workload.metadata.name,)


def _owner_names(part: CarrierObject) -> Iterable[str]:
    return (owner.name for owner in part.metadata.owner_references)


def _pod_carrier(pod: CarrierPod) -> Iterable[str]:
    return (pod.metadata.labels.get(carriers.UNIQUE_LABEL, ""),)


def _slice_service(endpoints: CarrierEndpoints) -> Iterable[str]:
    return (endpoints.service,)


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
        made = await self.runtime.reader.create(carriers.SERVICES, body, namespace, dry_run=True)
        self._found = tuple(made.spec.get("ipFamilies") or ("IPv4",))
        self._until_s = clock.elapsed_s() + FAMILIES_KEPT_S
        return self._found

    async def enabled(self) -> tuple[bool, bool, list[str]]:
        """IPv4 and IPv6 by settings and cluster, and the families that are turned on and lacking."""
        settings, there = self.runtime.settings.tasks, await self.available()
        enabled, lacking = [], []
        for mode, family in ((settings.ipv4, "IPv4"), (settings.ipv6, "IPv6")):
            enabled.append(mode != "off" and family in there)
            if mode == "on" and family not in there:
                lacking.append(family)
        return enabled[0], enabled[1], lacking


@dataclass(slots=True)
class ReportAddress:
    """The leader's: it keeps its address where its agents look."""

    runtime: Runtime
    _checked_s: float = field(default=float("-inf"))

    @property
    def shared(self) -> str:
        runtime = self.runtime
        return shared_url(runtime.settings, runtime.routes.url, runtime.is_loopback)

    def warn(self) -> None:
        url = self.shared or self.runtime.routes.url
        if not (is_private(url) or self.runtime.settings.api.allow_plaintext):
            hint = "set tls.certificate and tls.key, or tasks.apiUrl to an https:// address"
            log.warning("agents cannot post reports: they send tokens over TLS only", url=url, hint=hint)

    async def publish(self) -> None:
        """Before a round starts, and again when somebody has changed or deleted it."""
        runtime = self.runtime
        if self.shared or runtime.clock.elapsed_s() < self._checked_s + ADDRESS_KEPT_S:
            return
        namespace, url = runtime.settings.namespace, runtime.routes.url
        found = await runtime.reader.find(ADDRESS_MAPS, REPORT_ADDRESS, namespace)
        if found is None or found.data.get(KEY) != url:
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": REPORT_ADDRESS, "namespace": namespace},
                "data": {KEY: url},
            }
            intent = Apply(kind=ADDRESS_MAPS, name=REPORT_ADDRESS, namespace=namespace, body=body)
            _check(await runtime.writer.carry_out(intent))
        self._checked_s = runtime.clock.elapsed_s()


class TaskMirrors:
    """Everything the controller reads."""

    def __init__(self, runtime: Runtime) -> None:
        namespace, label = runtime.settings.namespace, f"app.kubernetes.io/component={COMPONENT}"
        hint = "tasks need deploy/crds and deploy/rbac/tasks.yaml"
        self.tasks: dict[str, Mirror[Any]] = {
            name: runtime.mirror(kind, indexes={"carrier": _CARRIER_INDEXES[name]}, hint=hint)
            for name, kind in KINDS.items()
        }
        self.workloads = {name: runtime.mirror(kind, namespace) for name, kind in carriers.WORKLOADS.items()}
        self.services: Mirror[CarrierObject] = runtime.mirror(carriers.SERVICES, namespace)
        self.ingresses: Mirror[CarrierObject] = runtime.mirror(carriers.INGRESSES, namespace)
        self.pods: Mirror[CarrierPod] = runtime.mirror(PODS, namespace, labels=label, indexes={"carrier": _pod_carrier})
        self.endpoints: Mirror[CarrierEndpoints] = runtime.mirror(
            ENDPOINT_SLICES, namespace, indexes={"service": _slice_service}, hint=hint
        )
        self.reports: Mirror[ReportHead] = runtime.mirror(
            REPORT_HEADS, namespace, indexes={"task": _report_task}, hint=hint
        )

    def all(self) -> list[Mirror[Any]]:
        rest: list[Mirror[Any]] = [self.services, self.ingresses, self.pods, self.endpoints, self.reports]
        return [*self.tasks.values(), *self.workloads.values(), *rest]

    def of_carrier(self, name: str) -> Iterable[Sharer]:
        return ((kind, task) for kind, each in self.tasks.items() for task in each.by("carrier", name))

    def keys_of_carrier(self, name: str) -> Iterable[str]:
        return (f"{kind}/{task.metadata.name}" for kind, task in self.of_carrier(name))


class TaskController:
    def __init__(self, runtime: Runtime, mirrors: TaskMirrors, families: Families, metrics: TaskMetrics) -> None:
        self._runtime = runtime
        self._mirrors = mirrors
        self._families = families
        self._metrics = metrics
        self._templates = load_templates(runtime.settings.tasks)
        self._report_address = ReportAddress(runtime)
        self._progress_s: dict[str, float] = {}
        self._since = EARLIEST
        settings = runtime.settings
        self._options = PlanOptions(
            shared=SharedAgent(),
            most_history=settings.tasks.most_history,
            poll_s=settings.tasks.poll_s,
            creation_deadline_s=settings.tasks.creation_deadline_s,
            settle_s=settings.tasks.settle_s,
            namespace=settings.namespace,
        )

    async def run(self) -> None:
        """Lead until stopped."""
        runtime, mirrors = self._runtime, self._mirrors
        self._report_address = ReportAddress(runtime)
        self._report_address.warn()
        await caught_up(mirrors.all(), runtime.clock, runtime.stop)
        self._since = runtime.clock.now()
        controller = Controller("tasks", self._reconcile, clock=runtime.clock, metrics=runtime.metrics)
        for kind, mirror in mirrors.tasks.items():
            controller.watches(mirror, _prefixed(kind))
        for workloads in mirrors.workloads.values():
            controller.watches(workloads, self._by_carrier(_own_name))
        for parts in (mirrors.services, mirrors.ingresses):
            controller.watches(parts, self._by_carrier(_owner_names))
        controller.watches(mirrors.pods, self._by_carrier(_pod_carrier))
        controller.watches(mirrors.endpoints, self._by_carrier(_slice_service))
        controller.watches(mirrors.reports, _by_report)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(controller.run(), name="tasks")
            await runtime.stop.wait()
            controller.stop()

    def _by_carrier(self, names_of: Callable[[Any], Iterable[str]]) -> Callable[[Delta[Any]], Iterable[str]]:
        """The tasks of the carriers or Services that an object names."""

        def keys(delta: Delta[Any]) -> Iterable[str]:
            names = {name for each in (delta.old, delta.new) if each is not None for name in names_of(each)}
            return [key for name in names if name for key in self._mirrors.keys_of_carrier(name)]

        return keys

    async def _reconcile(self, key: str) -> WakeAfter | None:
        kind, _, name = key.partition("/")
        task: Task | None = self._mirrors.tasks[kind].get(name)
        if task is None:
            self._metrics.forget(kind, name)
            self._progress_s.pop(key, None)
            return None
        seen = await self._observe(kind, task)
        plan = plan_task(seen, self._options, self._runtime.clock.now())
        self._metrics.observe(kind, task)
        prune = self._reports_to_prune(task)
        if plan.is_progress and (wait_s := self._progress_wait_s(key)) > 0:
            await self._carry_out(prune, task, kind)
            return WakeAfter(seconds=min(wait_s, plan.wake_s or wait_s))
        try:
            await self._carry_out([*plan.intents, *prune], task, kind)
        except Refused as problem:
            if any(isinstance(each, Create | Apply) for each in plan.intents):
                message = problem.status.message or str(problem)
                refusal = plan_refusal(seen, message, self._options, self._runtime.clock.now())
                await self._carry_out(refusal.intents, task, kind)
            raise
        if plan.is_progress:
            self._progress_s[key] = self._runtime.clock.elapsed_s()
        if plan.wake_s is None or (plan.wake_s == 0 and plan.intents):
            return None  # what was written brings this key back
        return WakeAfter(seconds=max(0.05, plan.wake_s))

    def _progress_wait_s(self, key: str) -> float:
        """How long until who has reported is written again: a write for each of many agents would be too many."""
        last_s = self._progress_s.get(key, float("-inf"))
        return last_s + self._options.poll_s - self._runtime.clock.elapsed_s()

    async def _observe(self, kind: str, task: Task) -> Observed:
        mirrors, namespace = self._mirrors, self._options.namespace
        if task.metadata.deletion_timestamp is not None or task.unreadable:
            return Observed(kind, task)
        await self._report_address.publish()
        ipv4, ipv6, lacking = await self._families.enabled()
        options = CarrierOptions(namespace, self._templates, ipv4, ipv6)
        sharing: list[Sharer] = []
        common, task = shared_carrier(task), with_own_agents(task)
        if task.spec.agent_spec is None:
            name, carrier = self._options.shared.name, None
            await self._ensure_shared(options, task)
            workload = mirrors.workloads["DaemonSet"].get(f"{namespace}/{name}")
        else:
            if common:
                sharing = sharers(mirrors.of_carrier(common), common)
            carrier = await self._carrier(kind, task, options, sharing)
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
        unlisted = unlisted_pods(
            [list(mirrors.endpoints.by("service", service)) for service in probed_services(task)], ready_actors(pods)
        )
        return Observed(kind, task, carrier, workload, parts, pods, results, lacking, unlisted, sharing, self._since)

    async def _carrier(self, kind: str, task: Task, options: CarrierOptions, sharing: list[Sharer]) -> Carrier:
        specs = [without_reserved(each.spec) for _, each in sharing] or [without_reserved(task.spec)]
        if sharing:
            owners = [task_reference(*each) for each in sharing]
            built = carriers.build_common(shared_carrier(task), specs, owners, options)
        else:
            built = carriers.build(kind, task.metadata, specs[0], options)
        volumes, mounts, copies = [token_volume()], [token_mount()], []
        for original, source_namespace, source, volume, folder in _copied_files(task):
            name = valid_name(built.names.workload, f"-{volume}")
            is_secret = original is carriers.SECRETS
            inner = {"secret": {"secretName": name}} if is_secret else {"configMap": {"name": name}}
            volumes.append({"name": volume, **inner})
            mounts.append({"name": volume, "mountPath": folder, "readOnly": True})
            if (copy := await self._copy(original, source_namespace or "default", source, name)) is not None:
                copies.append(copy)
        adaptation = Adaptation(
            scheduler=self._runtime.settings.schedulers[0],
            env=self._agent_env(),
            volumes=volumes,
            mounts=mounts,
            copies=copies,
        )
        return carriers.adapted(built, specs, adaptation)

    async def _copy(
        self, kind: Kind[CarrierObject], source_namespace: str, source: str, name: str
    ) -> dict[str, Any] | None:
        """A copy of what the task refers to, where it exists; the agents' pods wait for it."""
        found = await self._runtime.reader.find(kind, source, source_namespace)
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
        mirrors = {"Service": self._mirrors.services, "Ingress": self._mirrors.ingresses}
        found = {}
        for body in carrier.parts(""):
            kind, name = body["kind"], body["metadata"]["name"]
            if kind in mirrors:
                part = mirrors[kind].get(f"{namespace}/{name}")
            else:
                part = await self._runtime.reader.find(carriers.PARTS[kind], name, namespace)
            if part is not None:
                found[kind, name] = part
        return found

    def _agent_env(self) -> dict[str, str]:
        """Nothing in it may depend on the replica: a fail-over would replace every pod."""
        settings = self._runtime.settings.tasks
        env = {"AGENT_TOKEN_FILE": f"{TOKEN_FOLDER}/token", "AGENT_AUDIENCE": AUDIENCE}
        if shared := self._report_address.shared:
            env["AGENT_API_URL"] = shared
        if self._runtime.settings.api.allow_plaintext:
            env["AGENT_API_PLAINTEXT"] = "true"
        if settings.api_ca:
            with open(settings.api_ca, encoding="utf-8") as file:
                env["AGENT_API_CA"] = file.read()
        return env

    async def _ensure_shared(self, options: CarrierOptions, task: Task) -> None:
        """On a cluster of our own the shared agent comes with the first task; elsewhere an administrator deploys it.

        It gets what this task tests; others are looked at with their own keys.
        """
        if not self._runtime.is_loopback:
            return
        namespace, name = options.namespace, self._options.shared.name
        specs = [task.spec] if needs_carrier(task) and not task.status.finish else []
        adaptation = Adaptation(env=self._agent_env(), volumes=[token_volume()], mounts=[token_mount()])
        shared = carriers.adapted(carriers.build_shared(options, name, specs), specs, adaptation)
        workload = shared.workload
        workload["metadata"]["labels"] = {**workload["metadata"].get("labels", {}), **OURS}
        found = self._mirrors.workloads["DaemonSet"].get(f"{namespace}/{name}")
        if found is None:
            await self._carry_out([Create(kind=carriers.DAEMON_SETS, body=workload, namespace=namespace)])
        elif self._is_outdated(found, workload):
            await self._carry_out([Apply(kind=carriers.DAEMON_SETS, name=name, namespace=namespace, body=workload)])
        is_ours = found is None or OURS.items() <= found.metadata.labels.items()
        await self._carry_out(list(self._shared_parts(shared, namespace, is_ours)))

    def _shared_parts(self, shared: Carrier, namespace: str, is_ours: bool) -> Iterable[Intent]:
        """Services and Ingress of the shared agent; a load balancer is added where one is tested, and stays."""
        for service in shared.services:
            is_balanced = service["spec"]["type"] == "LoadBalancer"
            body = {**service, "spec": {**service["spec"], "type": "LoadBalancer" if is_balanced else "NodePort"}}
            part = body["metadata"]["name"]
            there = self._mirrors.services.get(f"{namespace}/{part}")
            if there is None:
                yield Create(kind=carriers.SERVICES, body=body, namespace=namespace)
            elif is_ours and is_balanced and there.spec.get("type") != "LoadBalancer":
                yield Apply(kind=carriers.SERVICES, name=part, namespace=namespace, body=body)
        if shared.ingress is not None and is_ours:
            part = shared.ingress["metadata"]["name"]
            if self._mirrors.ingresses.get(f"{namespace}/{part}") is None:
                yield Create(kind=carriers.INGRESSES, body=shared.ingress, namespace=namespace)

    def _is_outdated(self, found: CarrierObject, desired: dict[str, Any]) -> bool:
        """Whether the shared agent is one that we made, from another template, and no round would be disturbed."""
        name = carriers.HASH_ANNOTATION
        is_other = found.metadata.annotations.get(name) != desired["metadata"]["annotations"][name]
        if not is_other or not OURS.items() <= found.metadata.labels.items():
            return False
        return not any(task.status.actors for task in self._on_shared_agent())

    def _on_shared_agent(self) -> Iterable[Task]:
        tasks = (with_own_agents(task) for mirror in self._mirrors.tasks.values() for task in mirror)
        return (task for task in tasks if task.spec.agent_spec is None and not task.unreadable)

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

    async def _carry_out(self, intents: list[Intent], task: Task | None = None, kind: str = "") -> None:
        """One after another: a write that fails keeps the rest from being sent, and events of it from being told.

        Nothing is sent, or sent again, for a task that is seen to be gone: it would be garbage.
        """

        def is_there() -> bool:
            found = self._mirrors.tasks[kind].get(task.metadata.name) if task is not None else None
            return task is None or (found is not None and found.metadata.uid == task.metadata.uid)

        for intent in intents:
            result = await self._runtime.writer.carry_out(intent, is_wanted=is_there)
            if not isinstance(intent, RecordEvent):
                self._metrics.writes.labels(type(intent).__name__, result.outcome).inc()
            _check(result)


def _check(result: Result) -> None:
    match result.outcome:
        case Outcome.DONE | Outcome.EXISTS | Outcome.MISSING:
            return  # what exists already, or is gone already, is seen at the next look
        case Outcome.CONFLICT | Outcome.NOT_LEADER:
            raise TemporaryError(str(result.error))
        case Outcome.UNWANTED:
            raise TemporaryError("the task was deleted meanwhile")
    error: ClusterError | None = result.error
    assert error is not None
    raise error


def _copied_files(task: Task) -> list[tuple[Kind[CarrierObject], str | None, str, str, str]]:
    """What the agents get copies of: kind, namespace and name, with the volume and the folder of the copy."""
    target = task.spec.target if isinstance(task.spec, AppHttpHealthySpec) else None
    if target is None:
        return []
    rows = (
        (carriers.SECRETS, target.tls_secret_namespace, target.tls_secret_name or "", "tls", TLS_FOLDER),
        (carriers.CONFIG_MAPS, target.body_configmap_namespace, target.body_configmap_name or "", "body", BODY_FOLDER),
    )
    return [row for row in rows if row[2]]


def _is_of(pod: CarrierPod, workload: CarrierObject | None) -> bool:
    """A pod of a Deployment is its ReplicaSet's: the label, which carries the carrier's name, has to do."""
    if workload is None:
        return False
    owner = pod.metadata.controller
    if owner is not None and owner.kind == "DaemonSet":
        return owner.uid == workload.metadata.uid
    return (pod.metadata.creation_timestamp or "") >= (workload.metadata.creation_timestamp or "")


def _prefixed(kind: str) -> Callable[[Delta[Any]], Iterable[str]]:
    return lambda delta: (f"{kind}/{delta.key}",)


def _by_report(delta: Delta[ReportHead]) -> Iterable[str]:
    heads = [each.spec for each in (delta.old, delta.new) if each is not None]
    return {f"{each.task_kind}/{each.task_name}" for each in heads if each.task_kind in KINDS}
