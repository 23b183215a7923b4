"""TYJob and JobQueue: what a user writes, what is reported, and the pods of a job as this room reads them.

The mirrors hold spec and status as plain JSON, which `parse_spec` and `parse_status` read: an object that bypassed
validation is one job's problem and stops no other.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
from msgspec import Meta

from fairlead.model import mistakes
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiObject, ApiStruct, Condition
from fairlead.model.numbers import Int32
from fairlead.model.pod_state import PodState
from fairlead.model.quantity import Quantity, QuantityError, nanos
from fairlead.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY
from fairlead.model.taints import CORDON, PREFER_NO_SCHEDULE, UNREADY_KEYS, Taint

Json = dict[str, Any]

GROUP: Final = "fairlead.io"
VERSION: Final = "v1alpha1"

JOB_LABEL: Final = "fairlead.io/job"
ROLE_LABEL: Final = "fairlead.io/role"
SET_LABEL: Final = "fairlead.io/worker-set"
INDEX_ANNOTATION: Final = "fairlead.io/worker-index"
ATTEMPT_ANNOTATION: Final = "fairlead.io/attempt"
RESTARTS_ANNOTATION: Final = "fairlead.io/restarts"
"""On a pod: how many restarts were counted before it was created."""

LEADER, WORKER = "leader", "worker"
MOST_SETS: Final = 32
MOST_WORKERS: Final = 10_000
"""Of all sets of a job together: what is done for a job in one step is in proportion to it."""
LONGEST_NAME: Final = 63
MOST_SECONDS: Final = 2**31 - 1
MOST_COUNT: Final = 2**31 - 1
"""Of what a status counts."""
DEFAULT_QUEUE: Final = "default"
MOST_QUOTAS: Final = 64
LONGEST_QUANTITY: Final = 64
HUGEPAGES: Final = "hugepages-"
PLAIN_RESOURCES: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
NO_LABEL: Final = "must not have dots: it begins the names of pods and of a Service, which are DNS labels"
NO_AMOUNT: Final = "must be a quantity that is not negative, such as 4, 500m or 16Gi"
NO_RESOURCE: Final = (
    "must name resources as pods request them: cpu, memory, ephemeral-storage, hugepages-<size> or <domain>/<name>"
)

Stage = Literal["Pending", "Starting", "Running", "Rescheduling", "Succeeded", "Failed"]
ScheduleState = Literal["Unscheduled", "ScheduledSucceed", "ScheduledFailed", "ScheduledPartly"]
CleanPodPolicy = Literal["Running", "All", "None"]
PlacementPolicy = Literal["BinPack", "LeaderFirst", "MinFragment", "JobAffinity", "JobAntiAffinity"]
BasicPolicy = Literal["Gang", "BinPack", "LeaderFirst", "MinFragment", "JobAffinity", "JobAntiAffinity"]
QueuePolicy = Literal["Priority", "DRF"]
DrfBasis = Literal["request", "allocated"]
TopologyMode = Literal["Required", "Preferred"]
AddressMode = Literal["DNS", "IP"]
CHOICES: Final = {
    "spec.cleanPodPolicy": get_args(CleanPodPolicy),
    "spec.addressMode": get_args(AddressMode),
    "spec.schedulerPolicy.drfBasis": get_args(DrfBasis),
    "spec.schedulerPolicy.topology.mode": get_args(TopologyMode),
}
"""Where only some values are allowed, which the server says too."""

FINISHED: Final = frozenset({"Succeeded", "Failed"})
GANG: Final = "Gang"
GANG_PLACEMENT: Final = "BinPack"
"""How the pods of a gang are placed where `schedulerPolicy.placement` does not say."""
BASIC_POLICIES: Final[tuple[str, ...]] = get_args(BasicPolicy)
PLACEMENT_POLICIES: Final[tuple[str, ...]] = get_args(PlacementPolicy)
QUEUE_POLICIES: Final[tuple[str, ...]] = get_args(QueuePolicy)

DnsLabel = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]

Count = Annotated[int, Meta(ge=0, le=MOST_COUNT)]


def _described(text: str) -> Meta:
    return Meta(description=text)


class Topology(ApiStruct, frozen=True):
    """All pods within one domain of a node label."""

    key: Annotated[str, Meta(min_length=1, max_length=317, description="The node label, such as rack.")]
    mode: Annotated[TopologyMode, _described("Preferred: anywhere when no single domain has room.")] = "Required"


class SchedulerPolicy(ApiStruct, frozen=True):
    """How the job is ordered in its queue and where its pods are placed."""

    job_queue_policy: Annotated[
        str, _described("Priority: higher spec.priority first. DRF: the smaller dominant share first.")
    ] = "Priority"
    basic_policy: Annotated[
        str, _described("Gang: all pods or none. The others: the leader and minWorkersNum workers, by that policy.")
    ] = "BinPack"
    placement: Annotated[str, _described("The placement policy of a Gang.")] = ""
    drf_basis: Annotated[DrfBasis, _described("What a DRF share counts: the job's requests, or the queue's use.")] = (
        "request"
    )
    topology: Topology | None = None


class Leader(ApiStruct, frozen=True):
    """The leader: one pod, created first. The job succeeds with it."""

    name: DnsLabel
    template: Annotated[Json, _described("The PodTemplateSpec of the leader.")]


class WorkerSet(ApiStruct, frozen=True):
    """Workers that share one template."""

    name: DnsLabel
    template: Annotated[Json, _described("The PodTemplateSpec of each worker.")]
    counts: Annotated[int, Meta(ge=1, le=MOST_WORKERS, description="How many workers.")] = 1


class JobSpec(ApiStruct, frozen=True):
    """A leader and sets of workers that run as one job."""

    leader: Leader
    worker_sets: Annotated[tuple[WorkerSet, ...], Meta(min_length=1, max_length=MOST_SETS)]
    restart_limit: Annotated[
        int, Meta(ge=0, le=1_000_000, description="Restarts of the leader, and of each worker, before giving up.")
    ] = 3
    volumes: Annotated[
        tuple[Json, ...], Meta(max_length=64, description="Volumes that the leader and all workers get.")
    ] = ()
    clean_pod_policy: Annotated[CleanPodPolicy, _described("Which pods are deleted when the job has ended.")] = "All"
    terminating: Annotated[bool, _described("End the job now.")] = False
    min_workers_num: Annotated[
        int, Meta(ge=0, le=MOST_WORKERS, description="So many ready workers make the job Running.")
    ] = 1
    priority: Annotated[int, Meta(ge=1, le=10, description="Among jobs of the same pod priority, higher first.")] = 5
    scheduler_policy: SchedulerPolicy = SchedulerPolicy()
    queue: Annotated[DnsLabel, _described("The JobQueue it waits in.")] = DEFAULT_QUEUE
    suspend: Annotated[bool, _described("Delete the pods and release their places until it is false again.")] = False
    ttl_seconds_after_finished: (
        Annotated[int, Meta(ge=0, le=MOST_SECONDS, description="Delete the job so many seconds after its end.")] | None
    ) = None
    start_timeout_seconds: Annotated[
        int, Meta(ge=1, le=MOST_SECONDS, description="Within this time enough workers must be ready.")
    ] = 1800
    estimated_run_seconds: (
        Annotated[int, Meta(ge=1, le=MOST_SECONDS, description="How long it is expected to run, for backfill.")] | None
    ) = None
    address_mode: Annotated[AddressMode, _described("Whether workers get the leader's DNS name or its IP.")] = "DNS"
    count_infra_failures: Annotated[
        bool, _described("Whether the loss of a node and evictions by Fairlead count as restarts.")
    ] = False

    @property
    def total(self) -> int:
        """How many workers there should be."""
        return sum(each.counts for each in self.worker_sets)

    @property
    def is_gang(self) -> bool:
        return self.scheduler_policy.basic_policy == GANG

    @property
    def policy(self) -> str:
        """The placement policy of its pods."""
        chosen = self.scheduler_policy
        return (chosen.placement or GANG_PLACEMENT) if self.is_gang else chosen.basic_policy

    @property
    def quorum(self) -> int:
        """How many pods, the leader among them, run together or not at all."""
        return 1 + (self.total if self.is_gang else self.min_workers_num)

    def worker_set(self, name: str) -> WorkerSet | None:
        return next((each for each in self.worker_sets if each.name == name), None)


# --- status -----------------------------------------------------------------------------------------------


class Allocations(ApiStruct, frozen=True):
    """The node of each pod: written before any pod is created, and kept while it is the pod's place."""

    leader: Annotated[str, _described("The leader's node.")] = ""
    workers: Annotated[
        dict[str, dict[str, str]], _described("Worker set, node, indexes of the workers there: 0-7,9.")
    ] = {}
    domain: Annotated[str, _described("The value of the topology's label that all pods share.")] = ""
    since: Annotated[str, _described("When the leader's place was decided.")] = ""


class Explain(ApiStruct, frozen=True):
    """Why the job is pending, in short; GET /jobs/{namespace}/{name}/explain has more."""

    message: str = ""
    pod: Annotated[str, _described("The first pod without a node.")] = ""
    resource: Annotated[str, _described("What the best node is short of.")] = ""
    needed: int = 0
    free: int = 0
    node: Annotated[str, _described("The node that came closest.")] = ""
    fitting: Annotated[int, _described("So many pods of the job would fit now.")] = 0
    nodes: Annotated[int, _described("How many nodes there are.")] = 0
    refusals: Annotated[dict[str, int], _described("How many nodes were refused for which reason.")] = {}


class JobStatus(ApiStruct, frozen=True):
    """How far the job is. Only Fairlead writes it."""

    stage: Stage = "Pending"
    schedule_state: ScheduleState = "Unscheduled"
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    observed_generation: int = 0
    restarts: Annotated[Count, _described("Restarts of the leader that count.")] = 0
    worker_restarts: Annotated[
        dict[str, dict[str, Count]], _described("Worker set, index: restarts of that worker.")
    ] = {}
    leader_address: Annotated[str, _described("What workers get as TYJOB_LEADER_ADDRESS.")] = ""
    total_workers: Count = 0
    ready_workers: Count = 0
    ready: Annotated[str, _described("readyWorkers/totalWorkers, for a column.")] = ""
    failed_workers: Annotated[Count, _described("Workers that are not restarted any more.")] = 0
    start_time: str = ""
    completion_time: str = ""
    last_schedule_time: str = ""
    queue_position: Annotated[Count, _described("Its position among the pending jobs of its queue, from 1.")] = 0
    share: Annotated[float, _described("The dominant share by which DRF orders it.")] = 0.0
    quorum: Annotated[Count, _described("So many pods were placed together or not at all.")] = 0
    attempt: Annotated[Count, _described("How often its pods were created anew.")] = 0
    allocations: Allocations = Allocations()
    explain: Explain | None = None
    stage_time: Annotated[str, _described("When the stage was entered.")] = ""
    below_quorum_since: str = ""
    never_fits_cycles: Annotated[Count, _described("How often in a row the job was proven never to fit.")] = 0
    retry_after: Annotated[str, _described("It is not planned again before.")] = ""
    backoffs: Annotated[Count, _described("How often in a row its places were released.")] = 0

    @property
    def needed_workers(self) -> int:
        """So many workers must be ready."""
        return max(0, self.quorum - 1)


class TYJob(ApiObject, frozen=True):
    """A leader and worker sets that are placed together and run as one job."""

    spec: Any = None
    status: Any = None

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None


# --- queues -----------------------------------------------------------------------------------------------


class QueueSpec(ApiStruct, frozen=True):
    """What jobs of the queue may use together."""

    weight: Annotated[
        int, Meta(ge=1, le=1_000_000, description="A queue of weight 2 may use twice as much before others go first.")
    ] = 1
    quota: Annotated[
        dict[str, int | str],
        Meta(max_length=MOST_QUOTAS, description="The most that pods of its jobs may request together."),
    ] = {}
    max_priority: Annotated[int, Meta(ge=1, le=10, description="Jobs of a higher spec.priority count as this.")] = 10
    strict_fifo: Annotated[bool, _described("A job that does not fit holds up all later ones of the queue.")] = (
        msgspec.field(default=False, name="strictFIFO")
    )


class QueueStatus(ApiStruct, frozen=True):
    """What the queue's jobs use."""

    used: Annotated[dict[str, str], _described("Requests of allocated pods.")] = {}
    share: Annotated[float, _described("The dominant share of the cluster, divided by the weight.")] = 0.0
    pending: int = 0
    running: int = 0


class JobQueue(ApiObject, frozen=True):
    """A tenant's queue of TYJobs."""

    spec: Any = None
    status: Any = None


TYJOBS: Final = Kind(GROUP, VERSION, "tyjobs", "TYJob", TYJob)
JOB_QUEUES: Final = Kind(GROUP, VERSION, "jobqueues", "JobQueue", JobQueue, namespaced=False)


# --- what the room reads of other kinds -------------------------------------------------------------------


class Waiting(ApiStruct):
    reason: str = ""
    message: str = ""


class Terminated(ApiStruct):
    exit_code: Int32 = 0


class ContainerState(ApiStruct):
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class JobContainerStatus(ApiStruct):
    name: str = ""
    restart_count: Int32 = 0
    state: ContainerState = ContainerState()


class JobPodSpec(ApiStruct):
    node_name: str = ""


class JobPodStatus(ApiStruct):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] | None = None
    pod_ip: str = msgspec.field(default="", name="podIP")
    container_statuses: tuple[JobContainerStatus, ...] | None = None


class JobPod(PodState, ApiObject):
    """A pod of a job, as far as its controller needs."""

    spec: JobPodSpec = JobPodSpec()
    status: JobPodStatus = JobPodStatus()

    @property
    def is_ready(self) -> bool:
        ready = self.condition("Ready")
        return ready is not None and ready.status == "True" and not self.is_terminating and not self.is_finished


JOB_PODS: Final = Kind("", "v1", "pods", "Pod", JobPod)
SERVICES: Final = Kind("", "v1", "services", "Service", ApiObject)


class JobNodeSpec(ApiStruct):
    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class JobNodeStatus(ApiStruct):
    allocatable: dict[str, Quantity] | None = None
    conditions: tuple[Condition, ...] | None = None


class JobNode(ApiObject):
    """A node, for the cluster's totals."""

    spec: JobNodeSpec = JobNodeSpec()
    status: JobNodeStatus = JobNodeStatus()

    @property
    def is_ready(self) -> bool:
        ready = next((each for each in self.status.conditions or () if each.type == "Ready"), None)
        return ready is not None and ready.status == "True"

    @property
    def is_usable(self) -> bool:
        return self.is_ready and not self.spec.unschedulable

    @property
    def repelling(self) -> tuple[Taint, ...]:
        """What takes a place there from a pod that does not exist and does not tolerate it: the node is cordoned, or
        not ready."""
        cordon = (CORDON,) if self.spec.unschedulable else ()
        known = () if self.is_ready else self.spec.taints or ()
        return (*cordon, *(each for each in known if each.key in UNREADY_KEYS and each.effect != PREFER_NO_SCHEDULE))


JOB_NODES: Final = Kind("", "v1", "nodes", "Node", JobNode, namespaced=False)


# --- reading ----------------------------------------------------------------------------------------------


def parse_spec(job: TYJob) -> JobSpec | str:
    """The spec, or why it makes no sense; the server checks the same rules where the CRD is applied."""
    try:
        spec = msgspec.convert(job.spec, JobSpec)
    except msgspec.ValidationError as problem:
        return mistakes.sentence(problem, job.spec, "spec", CHOICES)
    return "; ".join(problems(job.metadata.name, spec)) or spec


def parse_status(job: TYJob) -> tuple[JobStatus, str]:
    """The status and, where it could not be read, why; then it is a new one."""
    try:
        return msgspec.convert(job.status or {}, JobStatus), ""
    except msgspec.ValidationError as problem:
        return JobStatus(), f"status: {problem}"


def parse_queue(queue: JobQueue | None) -> QueueSpec:
    """A queue that makes no sense counts as one without rules; none of its jobs is planned (`queue_problem`)."""
    parsed = read_queue(queue) if queue is not None else QueueSpec()
    return parsed if isinstance(parsed, QueueSpec) else QueueSpec()


@dataclass(frozen=True, slots=True)
class QueueProblem:
    """Why no job of a queue is planned: the condition of its jobs, and the message."""

    condition: str
    message: str


def queue_problem(name: str, queue: JobQueue | None) -> QueueProblem | None:
    """`queue`: the JobQueue of that name, where there is one."""
    if queue is None:
        missing = f"there is no JobQueue {name!r}; create it or name another in spec.queue"
        return QueueProblem("QueueNotFound", missing) if name != DEFAULT_QUEUE else None
    parsed = read_queue(queue)
    if isinstance(parsed, QueueSpec):
        return None
    return QueueProblem("QueueInvalid", f"JobQueue {name!r} is invalid, and its jobs wait until it is mended: {parsed}")


def read_queue(queue: JobQueue) -> QueueSpec | str:
    """The spec, or why it makes no sense; the server checks the same rules where the CRD is applied."""
    try:
        spec = msgspec.convert(queue.spec or {}, QueueSpec)
    except msgspec.ValidationError as problem:
        return mistakes.sentence(problem, queue.spec, "spec")
    for name, amount in spec.quota.items():
        if not _is_amount(amount):
            return f"spec.quota.{name[:100]}: {NO_AMOUNT}, got {mistakes.shown(amount)}"
        if not is_requested(name):
            return f"spec.quota.{name[:100]}: {NO_RESOURCE}"
    return spec


def _is_amount(quantity: int | str) -> bool:
    try:
        return nanos(quantity) >= 0
    except QuantityError:
        return False


def is_requested(resource: str) -> bool:
    """Whether pods can request it, by its name: a quota of anything else would limit nothing."""
    return resource in PLAIN_RESOURCES or resource.startswith(HUGEPAGES) or "/" in resource


def problems(job: str, spec: JobSpec) -> list[str]:
    """What is wrong beyond types and bounds, each with its field."""
    policy = spec.scheduler_policy
    found = [
        *_unknown("spec.schedulerPolicy.jobQueuePolicy", policy.job_queue_policy, QUEUE_POLICIES),
        *_unknown("spec.schedulerPolicy.basicPolicy", policy.basic_policy, BASIC_POLICIES),
    ]
    if policy.placement:
        found += _unknown("spec.schedulerPolicy.placement", policy.placement, PLACEMENT_POLICIES)
        if not spec.is_gang:
            found.append("spec.schedulerPolicy.placement: only with basicPolicy Gang")
    if spec.total > MOST_WORKERS:
        found.append(f"spec.workerSets: {spec.total} workers in all; one job may have {MOST_WORKERS}")
    if spec.min_workers_num > spec.total:
        found.append(
            f"spec.minWorkersNum: {spec.min_workers_num} is more than the {spec.total} workers of all workerSets"
        )
    names = [spec.leader.name, *(each.name for each in spec.worker_sets)]
    if len(set(names)) < len(names):
        found.append("spec.workerSets: names must differ from each other and from spec.leader.name")
    if any(re.fullmatch(rf"{re.escape(each.name)}-[0-9]+", spec.leader.name) for each in spec.worker_sets):
        found.append("spec.leader.name: must not be a worker set's name with a number, which is a worker's name")
    longest = max(
        len(f"{job}-{spec.leader.name}"), *(len(f"{job}-{each.name}-{each.counts - 1}") for each in spec.worker_sets)
    )
    if longest > LONGEST_NAME:
        found.append(f"metadata.name: pod names would have {longest} characters, at most {LONGEST_NAME} are allowed")
    if "." in job:
        found.append(f"metadata.name: {NO_LABEL}")
    try:
        shared = {each.name for each in msgspec.convert(spec.volumes, tuple[_NamedPart, ...])}
    except msgspec.ValidationError as problem:
        return [*found, mistakes.sentence(problem, spec.volumes, "spec.volumes")]
    for field, template in templates(spec):
        found += _template_problems(field, template, shared)
    return found


def templates(spec: JobSpec) -> list[tuple[str, Json]]:
    """Every pod template with its field."""
    sets = [(f"spec.workerSets[{n}].template", each.template) for n, each in enumerate(spec.worker_sets)]
    return [("spec.leader.template", spec.leader.template), *sets]


class _NamedPart(ApiStruct):
    """A container or a volume."""

    name: str = ""
    env: tuple[Json, ...] | None = None


class _TemplateMeta(ApiStruct):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: tuple[str, ...] | None = None


class _TemplateSpec(ApiStruct):
    containers: tuple[_NamedPart, ...] | None = None
    init_containers: tuple[_NamedPart, ...] | None = None
    volumes: tuple[_NamedPart, ...] | None = None
    node_name: str | None = None


class _Template(ApiStruct):
    """As much of a PodTemplateSpec as is read here; the rest is the server's to refuse."""

    metadata: _TemplateMeta | None = None
    spec: _TemplateSpec | None = None


def _template_problems(field: str, template: Json, shared: set[str]) -> list[str]:
    try:
        pod = msgspec.convert(template, _Template).spec
    except msgspec.ValidationError as problem:
        return [mistakes.sentence(problem, template, field)]
    if pod is None or not pod.containers:
        return [f"{field}.spec.containers: at least one container is needed"]
    found = []
    if pod.node_name:
        found.append(f"{field}.spec.nodeName: must not be set, the scheduler chooses nodes; use nodeSelector")
    both = sorted({each.name for each in pod.volumes or ()} & shared)
    if both:
        found.append(f"{field}.spec.volumes: {', '.join(both)} is also in spec.volumes; rename one of them")
    return found


def _unknown(field: str, value: str, known: tuple[str, ...]) -> list[str]:
    return [] if value in known else [mistakes.not_one_of(field, value, known)]
