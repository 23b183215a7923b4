"""NetReach, AppHttpHealthy and Netdns of `kdoctor.io/v1beta1`, and TaskReport: what tasks ask for and how far they are.

Fields, defaults and status are kdoctor's, so that its manifests work. Of our own in the status: `conditions`, `actors`
(the pods of the running round) and `runNow` (the last nonce that was carried out).
"""

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, field

from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiStruct, Condition, ObjectMeta
from fairlead.model.numbers import Int32, Int64
from fairlead.model.structural import custom_resource_definition, structural_schema

GROUP: Final = "kdoctor.io"
VERSION: Final = "v1beta1"

PREFIX: Final = "tasks.fairlead.io/"
SUSPEND: Final = f"{PREFIX}suspend"
RUN_NOW: Final = f"{PREFIX}run-now"
OVERLAP: Final = f"{PREFIX}overlap"
MISSED: Final = f"{PREFIX}missed"
TIME_ZONE: Final = f"{PREFIX}time-zone"
START_WITH: Final = f"{PREFIX}start-with"
SHARE_CARRIER: Final = f"{PREFIX}share-carrier"
ANNOTATIONS: Final = (SUSPEND, RUN_NOW, OVERLAP, MISSED, TIME_ZONE, START_WITH, SHARE_CARRIER)

MOST_MINUTES: Final = 5_256_000  # ten years
MOST_MS: Final = 315_360_000_000
MOST_QPS: Final = 100_000
MOST_REPLICAS: Final = 10_000
MOST_HEADERS: Final = 64

Json = dict[str, Any]
CarrierKind = Literal["Deployment", "DaemonSet"]
RoundStatus = Literal["succeed", "fail", "ongoing", "notstarted"]


class AgentSpec(ApiStruct, frozen=True):
    """The carrier: the workload whose pods carry out one task. Without it the task runs on the shared agent."""

    annotation: dict[str, str] | None = None
    """Added to the workload, its pods and its Services."""
    kind: CarrierKind = "DaemonSet"
    deployment_replicas: Int32 | None = None
    affinity: Json | None = None
    env: list[Json] | None = None
    host_network: bool = False
    resources: Json | None = None
    termination_grace_period_minutes: Int64 | None = None
    """Minutes from the end of the task until its carrier is removed."""


class SchedulePlan(ApiStruct, frozen=True):
    """When to run: `startAfterMinute intervalMinute`, or the five fields of cron."""

    schedule: str | None = None
    round_timeout_minute: Annotated[int, Meta(ge=1, le=MOST_MINUTES)] = 60
    round_number: Annotated[
        int,
        Meta(
            ge=-1,
            extra_json_schema={
                "x-kubernetes-validations": [{"rule": "self != 0", "message": "must be -1 (for ever) or at least 1"}]
            },
        ),
    ] = 1


class HttpRequest(ApiStruct, frozen=True):
    """Load of one agent on one target."""

    duration_in_second: Annotated[int, Meta(ge=1, le=MOST_MINUTES)] = 2
    qps: Annotated[int, Meta(ge=1, le=MOST_QPS)] = 5
    per_request_timeout_in_ms: Annotated[int, Meta(ge=1, le=MOST_MS)] = field(default=5, name="perRequestTimeoutInMS")


class DnsRequest(HttpRequest, frozen=True):
    """Queries of one agent to one server."""

    domain: str = "kubernetes.default.svc.cluster.local"
    protocol: Literal["udp", "tcp", "tcp-tls"] = "udp"


class Expectation(ApiStruct, frozen=True):
    """What a target must fulfil to pass."""

    success_rate: Annotated[float, Meta(ge=0, le=1)] | None = field(default=1)
    mean_access_delay_in_ms: Annotated[int, Meta(ge=1, le=MOST_MS)] | None = 5000
    status_code: Annotated[int, Meta(ge=100, le=599)] | None = None


class NetReachTarget(ApiStruct, frozen=True):
    """Ways in which agents reach each other."""

    ipv4: bool = True
    ipv6: bool = False
    endpoint: bool = True
    multus_interface: bool = False
    cluster_ip: bool = field(default=True, name="clusterIP")
    node_port: bool = True
    load_balancer: bool = False
    ingress: bool = False
    enable_latency_metric: bool = False


Method = Literal["GET", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "PATCH", "HEAD"]


class AppHttpTarget(ApiStruct, frozen=True, kw_only=True):
    """An HTTP server outside of the agents."""

    host: str
    method: Method
    http2: bool = False
    body_configmap_name: str | None = None
    body_configmap_namespace: str | None = None
    tls_secret_name: str | None = None
    tls_secret_namespace: str | None = None
    header: Annotated[list[str], Meta(max_length=MOST_HEADERS)] | None = None
    enable_latency_metric: bool = False


class TargetUser(ApiStruct, frozen=True):
    """A DNS server by address."""

    server: str | None = None
    port: Annotated[int, Meta(ge=1, le=65535)] = 53


class TargetDns(ApiStruct, frozen=True):
    """A DNS server of the cluster, by its Service; without a name, the cluster's own."""

    service_name: str | None = None
    service_namespace: str | None = None
    test_ipv4: bool = field(default=True, name="testIPv4")
    test_ipv6: bool = field(default=False, name="testIPv6")


class NetdnsTarget(ApiStruct, frozen=True):
    """Either `targetUser` or `targetDns`."""

    target_user: TargetUser | None = None
    target_dns: TargetDns | None = None
    enable_latency_metric: bool = False


class NetReachSpec(ApiStruct, frozen=True):
    agent_spec: AgentSpec | None = None
    schedule: SchedulePlan | None = None
    target: NetReachTarget | None = None
    request: HttpRequest | None = None
    expect: Expectation | None = None


class AppHttpHealthySpec(ApiStruct, frozen=True):
    agent_spec: AgentSpec | None = None
    schedule: SchedulePlan | None = None
    target: AppHttpTarget | None = None
    request: HttpRequest | None = None
    expect: Expectation | None = None


class NetdnsSpec(ApiStruct, frozen=True):
    agent_spec: AgentSpec | None = None
    schedule: SchedulePlan | None = None
    source_agent_node_selector: Json | None = None
    target: NetdnsTarget | None = None
    request: DnsRequest | None = None
    expect: Expectation | None = None


class RoundRecord(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """One round. Only what has no value is left out: the lists are always there."""

    status: RoundStatus
    round_number: int
    start_time_stamp: str
    dead_line_time_stamp: str = field(name="deadLineTimeStamp")
    failed_agent_node_list: list[str] = []
    succeed_agent_node_list: list[str] = []
    not_report_agent_node_list: list[str] = []
    failure_reason: str | msgspec.UnsetType = msgspec.UNSET
    end_time_stamp: str | msgspec.UnsetType = msgspec.UNSET
    duration: str | msgspec.UnsetType = msgspec.UNSET
    expected_actor_number: int | msgspec.UnsetType = msgspec.UNSET


class TaskResource(ApiStruct, frozen=True):
    """The carrier, and how far it is."""

    runtime_name: str = ""
    runtime_type: str = ""
    service_name_v4: str | None = None
    service_name_v6: str | None = None
    runtime_status: Literal["creating", "created", "deleted"] = "creating"


class Actor(ApiStruct, frozen=True):
    """A pod that takes part in the running round."""

    pod: str = ""
    uid: str = ""
    node: str = ""


class TaskStatus(ApiStruct, frozen=True):
    expected_round: Annotated[int, Meta(ge=-1)] | None = None
    done_round: Annotated[int, Meta(ge=0)] | None = None
    finish: bool = False
    finish_time: str | None = None
    last_round_status: Literal["succeed", "fail", "unknown"] | None = None
    history: list[RoundRecord] = []
    resource: TaskResource | None = None
    conditions: list[Condition] = []
    actors: list[Actor] = []
    run_now: str = ""

    def to_json(self) -> Json:
        """As it is written: these two are there, whatever they are."""
        found: Json = msgspec.to_builtins(self)
        if self.resource is not None:
            found["resource"]["runtimeStatus"] = self.resource.runtime_status
        return {"finish": self.finish, **found}


class NetReach(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NetReachSpec = NetReachSpec()
    status: TaskStatus = TaskStatus()
    unreadable: str = ""
    """Not of the API: why nothing but the metadata could be read of it."""


class AppHttpHealthy(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: AppHttpHealthySpec = AppHttpHealthySpec()
    status: TaskStatus = TaskStatus()
    unreadable: str = ""


class Netdns(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NetdnsSpec = NetdnsSpec()
    status: TaskStatus = TaskStatus()
    unreadable: str = ""


Task = NetReach | AppHttpHealthy | Netdns


class TaskHead(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


def _head_of(struct: type[Any]) -> Callable[[Any], Any]:
    """What is left of a task that does not decode, such as one that was stored under another definition."""

    def rest(document: Any) -> Any:
        head = msgspec.convert(document, TaskHead)
        try:
            return msgspec.convert(document, struct)
        except msgspec.ValidationError as problem:
            return struct(metadata=head.metadata, unreadable=f"the task cannot be read: {problem}"[:1000])

    return rest


def _task_kind(plural: str, kind: str, struct: type[Any]) -> Kind[Any]:
    return Kind(GROUP, VERSION, plural, kind, struct, namespaced=False, rest=_head_of(struct))


NET_REACHES = _task_kind("netreaches", "NetReach", NetReach)
APP_HTTP_HEALTHIES = _task_kind("apphttphealthies", "AppHttpHealthy", AppHttpHealthy)
NETDNSES = _task_kind("netdnses", "Netdns", Netdns)
KINDS: Final[dict[str, Kind[Any]]] = {each.kind: each for each in (NET_REACHES, APP_HTTP_HEALTHIES, NETDNSES)}


class TaskReportSpec(ApiStruct, frozen=True, kw_only=True):
    """What one pod found in one round of one task."""

    task_kind: str
    task_name: str
    task_uid: str = field(name="taskUID")
    round_number: Annotated[int, Meta(ge=1)]
    pod_name: str
    pod_uid: str = field(name="podUID")
    node_name: str = ""
    report: Json = {}


class TaskReport(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: TaskReportSpec


TASK_REPORTS = Kind("fairlead.io", "v1alpha1", "taskreports", "TaskReport", TaskReport)

_COLUMNS: Final = (
    ("finish", "boolean", ".status.finish"),
    ("expectedRound", "integer", ".status.expectedRound"),
    ("doneRound", "integer", ".status.doneRound"),
    ("lastRoundStatus", "string", ".status.lastRoundStatus"),
    ("schedule", "string", ".spec.schedule.schedule"),
)
_REPORT_COLUMNS: Final = (
    ("kind", "string", ".spec.taskKind"),
    ("task", "string", ".spec.taskName"),
    ("round", "integer", ".spec.roundNumber"),
    ("node", "string", ".spec.nodeName"),
    ("result", "string", ".spec.report.roundResult"),
)
_IMMUTABLE: Final = {
    "rule": "self == oldSelf",
    "message": "is immutable: delete the task and create it again, or use the annotations tasks.fairlead.io/...",
}
_ONE_TARGET: Final = {
    "rule": "!(has(self.targetUser) && has(self.targetDns))",
    "message": "name either targetUser or targetDns, not both",
}


def definitions() -> tuple[Json, ...]:
    """The CustomResourceDefinitions."""
    return (
        _definition(NET_REACHES, NetReachSpec, ["nr"]),
        _definition(APP_HTTP_HEALTHIES, AppHttpHealthySpec, ["ahh"]),
        _definition(NETDNSES, NetdnsSpec, []),
        custom_resource_definition(
            TASK_REPORTS,
            {"spec": structural_schema(TaskReportSpec)},
            _REPORT_COLUMNS,
            required=("metadata",),
            short_names=("tr",),
        ),
    )


def _definition(kind: Kind[Any], spec: type, short_names: list[str]) -> Json:
    schema = _without_null(structural_schema(spec, defaults=True))
    schema["x-kubernetes-validations"] = [_IMMUTABLE]
    # What the schema refuses is read all the same: an older object must not stop its task.
    agent = schema["properties"]["agentSpec"]["properties"]
    agent["deploymentReplicas"] |= {"minimum": 0, "maximum": MOST_REPLICAS}
    agent["terminationGracePeriodMinutes"] |= {"minimum": 0, "maximum": MOST_MINUTES}
    if kind is NETDNSES:
        schema["properties"]["target"]["x-kubernetes-validations"] = [_ONE_TARGET]
    status = _without_null(structural_schema(TaskStatus))
    status["required"] = ["finish"]
    return custom_resource_definition(
        kind,
        {"spec": schema, "status": status},
        _COLUMNS,
        required=("metadata",),
        short_names=short_names,
        categories=("kdoctor",),
    )


def _without_null(schema: Json) -> Json:
    """Absent and null are one thing here: a null is dropped by the server, and then defaulted."""
    found = {name: value for name, value in schema.items() if name != "nullable"}
    if "properties" in found:
        found["properties"] = {name: _without_null(each) for name, each in found["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(found.get(name), dict):
            found[name] = _without_null(found[name])
    return found
