"""ScheduleRequest: what was requested, what was decided, and how far it is.

    Accepted ──▶ Planned ──▶ Scaled ──▶ Done | Partial | Failed
        └──▶ Waiting ──┘   the workload was changed, its pods are coming or going

An item is Planned before anything is done to its workload and Scaled after the one PATCH that changes it; whoever finds
a Planned item after a crash looks at the workload's annotation to learn whether that PATCH happened.
"""

from dataclasses import dataclass
from itertools import zip_longest
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiObject, ApiStruct, Condition, ObjectMeta
from fairlead.model.numbers import Int32
from fairlead.model.pod import SchedulerPod
from fairlead.model.selectors import LabelSelector
from fairlead.model.structural import custom_resource_definition, structural_schema

GROUP: Final = "fairlead.io"
VERSION: Final = "v1alpha1"

ANNOTATION: Final = "fairlead.io/schedule-request"
"""On a workload: the requests that changed it last, newest first."""
UID_ANNOTATION: Final = "fairlead.io/schedule-request-uid"
"""On a workload: the UIDs of the same, in the same order."""
REMEMBERED: Final = 5
"""How many of them are kept there. One at a time changes a workload, so the first would do."""

MOST_ITEMS: Final = 100
MOST_NUMBER: Final = 10_000
"""The largest number an item may ever ask for; settings ask for less."""

Operation = Literal["Add", "Remove"]
Phase = Literal["Accepted", "Waiting", "Planned", "Scaled", "Done", "Partial", "Failed"]
FINISHED: Final = frozenset({"Done", "Partial", "Failed"})
UNDER_WAY: Final = frozenset({"Planned", "Scaled"})


class WorkloadRef(ApiStruct, frozen=True):
    """What makes the pods: a Deployment, ReplicaSet or StatefulSet; a Service for the bare pods behind it."""

    kind: Literal["Deployment", "ReplicaSet", "StatefulSet", "Service"]
    name: str
    uid: str

    def described(self) -> str:
        return f"{self.kind} {self.name}"


class Item(ApiStruct, frozen=True):
    """So many more or fewer pods of one service."""

    operation: Operation
    namespace: str
    service_name: str
    number: Annotated[int, Meta(ge=1, le=MOST_NUMBER)]
    workload: WorkloadRef
    force: Annotated[
        bool, Meta(description="Change it although an autoscaler or another owner may change it back.")
    ] = False

    @property
    def is_removal(self) -> bool:
        return self.operation == "Remove"


class RequestSpec(ApiStruct, frozen=True):
    """The requested changes, with the user and the time; immutable."""

    user: Annotated[str, Meta(description="The user who sent it, as authenticated by the cluster.")]
    accepted_at: str
    items: Annotated[tuple[Item, ...], Meta(min_length=1, max_length=MOST_ITEMS)]
    summary: Annotated[str, Meta(description="The items in short.")] = ""
    warnings: Annotated[tuple[str, ...], Meta(description="Parts of it that may be mistakes.")] = ()
    digest: Annotated[str, Meta(description="Of what was sent, to tell a repeated request from another one.")] = ""


class Replicas(ApiStruct, frozen=True):
    """The workload's replicas before and after the change."""

    before: int
    after: int


class Place(ApiStruct, frozen=True):
    """A pod to come: where room was reserved for it, and what became of it."""

    node: Annotated[str, Meta(description="The reserved node; empty when none had room.")] = ""
    score: Annotated[float, Meta(description="The weighted sum of scores, each 0 to 100.")] = 0
    pod: Annotated[str, Meta(description="The pod that came.")] = ""
    bound_to: Annotated[str, Meta(description="The node it went to.")] = ""
    note: str = ""
    reason: Annotated[str, Meta(description="Why this node, written small; GET with ?explain=true tells it.")] = ""


class VictimScores(ApiStruct, frozen=True):
    """Of the node that a pod is taken from, each 0 to 100; absent where a rule did not count."""

    w1: Annotated[float, Meta(description="How much of it stays used.")] = 0
    w2: Annotated[float, Meta(description="How evenly.")] = 0
    w3: Annotated[float, Meta(description="Its part of the service's pods.")] = 0
    w4: Annotated[float | None, Meta(description="How little it answers the pods' soft rules.")] = None
    w5: Annotated[float | None, Meta(description="How much its load will rise; below zero, fall.")] = None


class Victim(ApiStruct, frozen=True):
    """A pod to go."""

    pod: str
    uid: str
    node: str = ""
    score: Annotated[float, Meta(description="The weighted sum of its node's scores, each 0 to 100.")] = 0
    scores: VictimScores | None = None
    why: Annotated[str, Meta(description="Why this pod of that node.")] = ""
    guaranteed: Annotated[
        bool, Meta(description="Whether its controller will remove this very pod: a Ready pod of a ReplicaSet.")
    ] = False
    cost: Annotated[str | None, Meta(description="Its own pod-deletion-cost, to be given back if it stays.")] = None
    gone: bool = False
    note: str = ""


class ItemStatus(ApiStruct, frozen=True):
    """What was decided about an item, and how far it is."""

    phase: Phase = "Accepted"
    message: str = ""
    replicas: Replicas | None = None
    places: tuple[Place, ...] = ()
    victims: tuple[Victim, ...] = ()
    gone_instead: Annotated[tuple[str, ...], Meta(description="Pods that went in place of a named one.")] = ()
    shortfall: Annotated[
        int, Meta(description="How many fewer than requested: there were no more to remove, or none found a node.")
    ] = 0
    scheduler: Annotated[str, Meta(description="Who places the pods, where that is not Fairlead.")] = ""
    added: int = 0
    removed: int = 0
    planned_at: str = ""
    acted_at: str = ""
    rules: Annotated[str, Meta(description="What the reasons of all places have in common, written small.")] = ""
    # Of use to Fairlead only: the pod that was planned with, and the pods there were.
    planned: Annotated[dict[str, Any] | None, Meta(description="The pod that places were sought for.")] = None
    seen: Annotated[str, Meta(description="The workload's pods when it was planned, by the ends of their names.")] = ""

    @property
    def is_finished(self) -> bool:
        return self.phase in FINISHED


class RequestStatus(ApiStruct, frozen=True):
    """How far the request is as a whole, and each of its items."""

    phase: Phase = "Accepted"
    message: str = ""
    added: int = 0
    removed: int = 0
    finished_at: str = ""
    items: tuple[ItemStatus, ...] = ()
    conditions: Annotated[
        tuple[Condition, ...],
        Meta(description="ForecastsFresh: whether load forecasts counted when it was planned. Absent without any."),
    ] = ()


@dataclass(frozen=True, slots=True)
class ItemKey:
    """An item of a request; as text, the name its places are held under."""

    request: str
    index: int

    def __str__(self) -> str:
        return f"{self.request}/{self.index}"


class ScheduleRequest(ApiObject, frozen=True):
    """More or fewer pods of services, requested with POST /schedulePod and carried out once."""

    spec: RequestSpec
    status: RequestStatus = RequestStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def is_finished(self) -> bool:
        return self.status.phase in FINISHED

    @property
    def item_statuses(self) -> tuple[ItemStatus, ...]:
        """One for each item, whatever has been written so far."""
        known = self.status.items
        return known if len(known) == len(self.spec.items) else tuple(ItemStatus() for _ in self.spec.items)

    @property
    def entries(self) -> list[tuple[ItemKey, Item, ItemStatus]]:
        """Each item with its key and how far it is."""
        both = zip(self.spec.items, self.item_statuses, strict=True)
        return [(ItemKey(self.name, index), item, status) for index, (item, status) in enumerate(both)]

    @property
    def arrival(self) -> tuple[str, str]:
        """Sorts requests as they came."""
        return self.spec.accepted_at, self.name


SCHEDULE_REQUESTS: Final = Kind(GROUP, VERSION, "schedulerequests", "ScheduleRequest", ScheduleRequest)


# --- the workloads ----------------------------------------------------------------------------------------


class PodTemplate(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: Any = msgspec.field(default_factory=dict)

    def pod(self) -> SchedulerPod:
        """A pod as the template says; what admission adds to real ones is not there."""
        return msgspec.convert(
            {"metadata": {"labels": self.metadata.labels, "annotations": self.metadata.annotations}, "spec": self.spec},
            SchedulerPod,
        )


class Ordinals(ApiStruct, frozen=True):
    start: int = 0


class RollingUpdate(ApiStruct, frozen=True):
    # Of a StatefulSet; a Deployment's has none.
    partition: int | None = None


class UpdateStrategy(ApiStruct, frozen=True):
    rolling_update: RollingUpdate | None = None


class ScaledSpec(ApiStruct, frozen=True):
    replicas: Int32 | None = None
    selector: LabelSelector | None = None
    template: PodTemplate = PodTemplate()
    # Of a Deployment.
    paused: bool = False
    # Of a StatefulSet.
    ordinals: Ordinals | None = None
    update_strategy: UpdateStrategy | None = None
    volume_claim_templates: tuple[ApiObject, ...] | None = None


class ScaledStatus(ApiStruct, frozen=True):
    # Of a StatefulSet.
    current_revision: str = ""
    update_revision: str = ""


class Workload(ApiObject, frozen=True):
    """A Deployment, ReplicaSet or StatefulSet, as far as scaling it needs."""

    spec: ScaledSpec = ScaledSpec()
    status: ScaledStatus = ScaledStatus()

    @property
    def replicas(self) -> int:
        return 1 if self.spec.replicas is None else self.spec.replicas

    @property
    def first_ordinal(self) -> int:
        """Of the pods of a StatefulSet."""
        return self.spec.ordinals.start if self.spec.ordinals is not None else 0

    @property
    def changed_by(self) -> tuple[str, ...]:
        """The requests that changed it last."""
        return _listed(self.metadata.annotations.get(ANNOTATION, ""))

    def was_changed_by(self, request: str, uid: str) -> bool:
        """Whether that very request did it.

        A name may come again, when its request was tidied away and its idempotency key is used anew; a UID does not.
        Where the UID is not known the name alone counts: a change too few is better than one too many.
        """
        uids = _listed(self.metadata.annotations.get(UID_ANNOTATION, ""))
        known = zip_longest(self.changed_by, uids[: len(self.changed_by)], fillvalue="")
        return any(name == request and its_uid in ("", uid) for name, its_uid in known)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(each for each in text.split(",") if each)


class ScaleTarget(ApiStruct, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""


class AutoscalerSpec(ApiStruct, frozen=True):
    scale_target_ref: ScaleTarget = ScaleTarget()


class Autoscaler(ApiObject, frozen=True):
    spec: AutoscalerSpec = AutoscalerSpec()


WORKLOADS: Final[dict[str, Kind[Workload]]] = {
    "Deployment": Kind("apps", "v1", "deployments", "Deployment", Workload),
    "StatefulSet": Kind("apps", "v1", "statefulsets", "StatefulSet", Workload),
    "ReplicaSet": Kind("apps", "v1", "replicasets", "ReplicaSet", Workload),
}
UNSCALABLE: Final[dict[str, tuple[Kind[ApiObject], str]]] = {
    "DaemonSet": (
        Kind("apps", "v1", "daemonsets", "DaemonSet", ApiObject),
        "it runs one pod on every node that its template selects; change that selection",
    ),
    "Job": (Kind("batch", "v1", "jobs", "Job", ApiObject), "change its parallelism"),
    "CronJob": (Kind("batch", "v1", "cronjobs", "CronJob", ApiObject), "it makes Jobs by the clock"),
    "ReplicationController": (
        Kind("", "v1", "replicationcontrollers", "ReplicationController", ApiObject),
        "put its pods into a Deployment",
    ),
}
"""Workloads that are known by name and not scaled here, and what to do instead."""
AUTOSCALERS: Final = Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", Autoscaler)


# --- the definition ---------------------------------------------------------------------------------------


def definition() -> dict[str, Any]:
    """The CustomResourceDefinition, as deploy/crds holds it."""
    spec, status = structural_schema(RequestSpec), structural_schema(RequestStatus)
    # What was accepted is what is carried out.
    spec["x-kubernetes-validations"] = [{"rule": "self == oldSelf", "message": "a request does not change"}]
    columns = [
        ("Phase", "string", ".status.phase", "How far it is."),
        ("Items", "string", ".spec.summary", "The requested changes."),
        ("Added", "integer", ".status.added", "Pods that came."),
        ("Removed", "integer", ".status.removed", "Pods that went."),
        ("Age", "date", ".metadata.creationTimestamp", ""),
    ]
    return custom_resource_definition(
        SCHEDULE_REQUESTS,
        {"spec": spec, "status": {**status, "default": {"phase": "Accepted"}}},
        columns,
        description=ScheduleRequest.__doc__,
        short_names=("sreq",),
    )
