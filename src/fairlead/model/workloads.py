"""Namespaces, and the things that select pods: services, their controllers, disruption budgets."""

from typing import Any

from fairlead.model.meta import ApiStruct, ObjectMeta
from fairlead.model.numbers import Int32
from fairlead.model.selectors import LabelSelector


class Namespace(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()


class ServiceSpec(ApiStruct):
    selector: dict[str, str] | None = None


class Service(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class ReplicationController(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class WorkloadSpec(ApiStruct):
    replicas: Int32 | None = None
    selector: LabelSelector | None = None


class ReplicaSet(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()


class StatefulSet(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()


Selecting = Service | ReplicationController | ReplicaSet | StatefulSet


class DisruptionBudgetSpec(ApiStruct):
    selector: LabelSelector | None = None


class DisruptionBudgetStatus(ApiStruct):
    disruptions_allowed: Int32 = 0
    disrupted_pods: dict[str, Any] | None = None


class PodDisruptionBudget(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()
    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()
