"""Namespaces, and the things that select pods: services, their controllers, disruption budgets."""

from typing import Any

from fairlead.model.meta import Noun, ObjectMeta
from fairlead.model.numbers import Int32
from fairlead.model.selectors import LabelSelector


class Namespace(Noun):
    metadata: ObjectMeta = ObjectMeta()


class ServiceSpec(Noun):
    selector: dict[str, str] | None = None


class Service(Noun):
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class ReplicationController(Noun):
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class WorkloadSpec(Noun):
    replicas: Int32 | None = None
    selector: LabelSelector | None = None


class ReplicaSet(Noun):
    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()


class StatefulSet(Noun):
    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()


class DisruptionBudgetSpec(Noun):
    selector: LabelSelector | None = None


class DisruptionBudgetStatus(Noun):
    disruptions_allowed: Int32 = 0
    disrupted_pods: dict[str, Any] | None = None


class PodDisruptionBudget(Noun):
    metadata: ObjectMeta = ObjectMeta()
    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()
