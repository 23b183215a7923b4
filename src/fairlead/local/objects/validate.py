"""What Kubernetes asks of an object beyond its shape, at creation and at change.

Objects come decoded and defaulted. The answer is a list of causes as in `Status.details.causes`; empty means good.
A kind that is not in the table is asked for good metadata only.
"""

from collections.abc import Callable
from typing import Final

from fairlead.local.objects import facts
from fairlead.local.objects.rules import (
    definitions,
    metadata,
    names,
    others,
    pods,
    routing,
    services,
    small,
    storage,
    workloads,
)
from fairlead.local.objects.rules.errors import Errors, FieldError, Json

__all__ = ["FieldError", "validate_create", "validate_update"]

Create = Callable[[Json], Errors]
Update = Callable[[Json, Json], Errors]
_RBAC = "rbac.authorization.k8s.io"


def validate_create(group: str, version: str, kind: str, obj: Json) -> list[FieldError]:
    rule = _RULES.get((group, kind))
    if rule is not None:
        return rule[0](obj)
    return metadata.on_create(obj["metadata"], _is_namespaced(group, version, kind), names.subdomain)


def validate_update(group: str, version: str, kind: str, new: Json, old: Json) -> list[FieldError]:
    rule = _RULES.get((group, kind))
    if rule is not None:
        return rule[1](new, old)
    return metadata.on_update(new["metadata"], old["metadata"])


def _is_namespaced(group: str, version: str, kind: str) -> bool:
    resource = facts.load().by_kind.get((group, version, kind))
    return resource is not None and resource.namespaced


def _only_metadata(new: Json, old: Json) -> Errors:
    return metadata.on_update(new["metadata"], old["metadata"])


_RULES: Final[dict[tuple[str, str], tuple[Create, Update]]] = {
    ("", "ConfigMap"): (others.config_map, others.config_map_update),
    ("", "Event"): (small.event, _only_metadata),
    ("", "Namespace"): (others.namespace, _only_metadata),
    ("", "Node"): (others.node, others.node_update),
    ("", "PersistentVolume"): (storage.volume, storage.volume_update),
    ("", "PersistentVolumeClaim"): (storage.claim, storage.claim_update),
    ("", "Pod"): (pods.on_create, pods.on_update),
    ("", "PodTemplate"): (small.pod_template, small.pod_template_update),
    ("", "ReplicationController"): (workloads.replication_controller, workloads.replication_controller_update),
    ("", "ResourceQuota"): (others.quota, others.quota_update),
    ("", "Secret"): (others.secret, others.secret_update),
    ("", "Service"): (services.service, services.service_update),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): (others.webhooks, others.webhooks_update),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): (others.webhooks, others.webhooks_update),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): (definitions.definition, definitions.definition_update),
    ("apps", "ControllerRevision"): (small.controller_revision, small.controller_revision_update),
    ("apps", "DaemonSet"): (workloads.daemon_set, workloads.daemon_set_update),
    ("apps", "Deployment"): (workloads.deployment, workloads.deployment_update),
    ("apps", "ReplicaSet"): (workloads.replica_set, workloads.replica_set_update),
    ("apps", "StatefulSet"): (workloads.stateful_set, workloads.stateful_set_update),
    ("autoscaling", "HorizontalPodAutoscaler"): (workloads.autoscaler, workloads.autoscaler_update),
    ("batch", "CronJob"): (workloads.cron_job, workloads.cron_job_update),
    ("batch", "Job"): (workloads.job, workloads.job_update),
    ("coordination.k8s.io", "Lease"): (others.lease, others.lease_update),
    ("discovery.k8s.io", "EndpointSlice"): (services.endpoint_slice, services.endpoint_slice_update),
    ("events.k8s.io", "Event"): (small.event, _only_metadata),
    ("networking.k8s.io", "Ingress"): (routing.ingress, routing.ingress_update),
    ("networking.k8s.io", "IngressClass"): (routing.ingress_class, routing.ingress_class_update),
    ("networking.k8s.io", "NetworkPolicy"): (routing.network_policy, routing.network_policy_update),
    ("node.k8s.io", "RuntimeClass"): (small.runtime_class, small.runtime_class_update),
    ("policy", "PodDisruptionBudget"): (workloads.budget, workloads.budget_update),
    (_RBAC, "ClusterRole"): (others.cluster_role, others.cluster_role_update),
    (_RBAC, "ClusterRoleBinding"): (others.cluster_role_binding, others.cluster_role_binding_update),
    (_RBAC, "Role"): (others.role, others.role_update),
    (_RBAC, "RoleBinding"): (others.role_binding, others.role_binding_update),
    ("scheduling.k8s.io", "PriorityClass"): (others.priority_class, others.priority_class_update),
    ("storage.k8s.io", "CSIDriver"): (small.csi_driver, _only_metadata),
    ("storage.k8s.io", "CSINode"): (small.csi_node, _only_metadata),
    ("storage.k8s.io", "CSIStorageCapacity"): (small.storage_capacity, _only_metadata),
    ("storage.k8s.io", "StorageClass"): (storage.storage_class, storage.storage_class_update),
    ("storage.k8s.io", "VolumeAttachment"): (small.volume_attachment, small.volume_attachment_update),
}
