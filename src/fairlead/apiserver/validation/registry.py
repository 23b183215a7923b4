"""Validation of objects beyond their shape, at creation and at change.

Objects come decoded and defaulted. The answer is a list of causes as in `Status.details.causes`; empty means valid.
Of a kind that is not in the table only the metadata is validated.
"""

from collections.abc import Callable
from typing import Final

from fairlead.apiserver.schema import facts
from fairlead.apiserver.validation import admissionregistration as webhooks
from fairlead.apiserver.validation import apiextensions as definitions
from fairlead.apiserver.validation import (
    apiregistration,
    coordination,
    metadata,
    names,
    node,
    policy,
    rbac,
    scheduling,
    storage,
)
from fairlead.apiserver.validation import apps as workloads
from fairlead.apiserver.validation import autoscaling as autoscalers
from fairlead.apiserver.validation import batch as jobs
from fairlead.apiserver.validation import networking as routing
from fairlead.apiserver.validation import resource as devices
from fairlead.apiserver.validation.core import claims, config, events, namespaces, nodes, pod_status, pods, services
from fairlead.apiserver.validation.core import persistent_volumes as persistent
from fairlead.apiserver.validation.core import quotas as limits
from fairlead.apiserver.validation.errors import Errors, FieldError, Json, bounded

__all__ = ["FieldError", "validate_create", "validate_status", "validate_update"]

Create = Callable[[Json], Errors]
Update = Callable[[Json, Json], Errors]
_RBAC = "rbac.authorization.k8s.io"


@bounded()
def validate_create(group: str, version: str, kind: str, obj: Json) -> list[FieldError]:
    rule = _RULES.get((group, kind))
    if rule is not None:
        return rule[0](obj)
    return metadata.on_create(obj["metadata"], _is_namespaced(group, version, kind), names.subdomain)


@bounded()
def validate_update(group: str, version: str, kind: str, new: Json, old: Json) -> list[FieldError]:
    found = metadata.common(new["metadata"], old["metadata"], _is_namespaced(group, version, kind))
    rule = _RULES.get((group, kind))
    if rule is not None:
        return [*found, *rule[1](new, old)]
    return [*found, *metadata.on_update(new["metadata"], old["metadata"])]


@bounded()
def validate_status(group: str, version: str, kind: str, new: Json, old: Json) -> list[FieldError]:
    """For a write of the status alone."""
    found = metadata.common(new["metadata"], old["metadata"], _is_namespaced(group, version, kind))
    return [*found, *_status(group, kind, new, old)]


def _status(group: str, kind: str, new: Json, old: Json) -> Errors:
    """Of a kind that is not in the table only the metadata is validated; of a PodDisruptionBudget not even that."""
    found: Errors = []
    if (group, kind) != ("policy", "PodDisruptionBudget"):
        found += metadata.on_update(new["metadata"], old["metadata"])
    check = _STATUSES.get((group, kind))
    return found if check is None else [*found, *check(new, old)]


def _is_namespaced(group: str, version: str, kind: str) -> bool:
    resource = facts.load().by_kind.get((group, version, kind))
    return resource is not None and resource.namespaced


_RULES: Final[dict[tuple[str, str], tuple[Create, Update]]] = {
    ("", "ConfigMap"): (config.config_map, config.config_map_update),
    ("", "Endpoints"): (services.endpoints, services.endpoints_update),
    ("", "Event"): (events.core_event, events.core_event_update),
    ("", "LimitRange"): (limits.limit_range, limits.limit_range_update),
    ("", "Namespace"): (namespaces.namespace, namespaces.namespace_update),
    ("", "Node"): (nodes.node, nodes.node_update),
    ("", "PersistentVolume"): (persistent.volume, persistent.volume_update),
    ("", "PersistentVolumeClaim"): (claims.claim, claims.claim_update),
    ("", "Pod"): (pods.on_create, pods.on_update),
    ("", "PodTemplate"): (pods.pod_template, pods.pod_template_update),
    ("", "ReplicationController"): (workloads.replication_controller, workloads.replication_controller_update),
    ("", "ResourceQuota"): (limits.quota, limits.quota_update),
    ("", "Secret"): (config.secret, config.secret_update),
    ("", "Service"): (services.service, services.service_update),
    ("", "ServiceAccount"): (namespaces.service_account, namespaces.service_account_update),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): (webhooks.webhooks, webhooks.webhooks_update),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): (webhooks.webhooks, webhooks.webhooks_update),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): (definitions.definition, definitions.definition_update),
    ("apiregistration.k8s.io", "APIService"): (apiregistration.api_service, apiregistration.api_service_update),
    ("apps", "ControllerRevision"): (workloads.controller_revision, workloads.controller_revision_update),
    ("apps", "DaemonSet"): (workloads.daemon_set, workloads.daemon_set_update),
    ("apps", "Deployment"): (workloads.deployment, workloads.deployment_update),
    ("apps", "ReplicaSet"): (workloads.replica_set, workloads.replica_set_update),
    ("apps", "StatefulSet"): (workloads.stateful_set, workloads.stateful_set_update),
    ("autoscaling", "HorizontalPodAutoscaler"): (autoscalers.autoscaler, autoscalers.autoscaler_update),
    ("batch", "CronJob"): (jobs.cron_job, jobs.cron_job_update),
    ("batch", "Job"): (jobs.job, jobs.job_update),
    ("coordination.k8s.io", "Lease"): (coordination.lease, coordination.lease_update),
    ("discovery.k8s.io", "EndpointSlice"): (services.endpoint_slice, services.endpoint_slice_update),
    ("events.k8s.io", "Event"): (events.event, events.event_update),
    ("networking.k8s.io", "Ingress"): (routing.ingress, routing.ingress_update),
    ("networking.k8s.io", "IngressClass"): (routing.ingress_class, routing.ingress_class_update),
    ("networking.k8s.io", "NetworkPolicy"): (routing.network_policy, routing.network_policy_update),
    ("node.k8s.io", "RuntimeClass"): (node.runtime_class, node.runtime_class_update),
    ("policy", "PodDisruptionBudget"): (policy.budget, policy.budget_update),
    (_RBAC, "ClusterRole"): (rbac.cluster_role, rbac.cluster_role_update),
    (_RBAC, "ClusterRoleBinding"): (rbac.cluster_role_binding, rbac.cluster_role_binding_update),
    (_RBAC, "Role"): (rbac.role, rbac.role_update),
    (_RBAC, "RoleBinding"): (rbac.role_binding, rbac.role_binding_update),
    ("resource.k8s.io", "DeviceClass"): (devices.device_class, devices.device_class_update),
    ("resource.k8s.io", "ResourceClaim"): (devices.claim, devices.claim_update),
    ("resource.k8s.io", "ResourceClaimTemplate"): (devices.template, devices.claim_update),
    ("resource.k8s.io", "ResourceSlice"): (devices.device_slice, devices.device_slice_update),
    ("scheduling.k8s.io", "PriorityClass"): (scheduling.priority_class, scheduling.priority_class_update),
    ("storage.k8s.io", "CSIDriver"): (storage.csi_driver, storage.csi_driver_update),
    ("storage.k8s.io", "CSINode"): (storage.csi_node, storage.csi_node_update),
    ("storage.k8s.io", "CSIStorageCapacity"): (storage.storage_capacity, storage.storage_capacity_update),
    ("storage.k8s.io", "StorageClass"): (storage.storage_class, storage.storage_class_update),
    ("storage.k8s.io", "VolumeAttachment"): (storage.volume_attachment, storage.volume_attachment_update),
}


_STATUSES: Final[dict[tuple[str, str], Update]] = {
    ("", "Namespace"): namespaces.namespace_status,
    ("", "Node"): nodes.node_change,
    ("", "PersistentVolumeClaim"): claims.claim_status,
    ("", "Pod"): pod_status.pod_status,
    ("", "ReplicationController"): workloads.replica_set_status,
    ("", "ResourceQuota"): limits.quota_status,
    ("", "Service"): services.service_status,
    ("apps", "DaemonSet"): workloads.daemon_set_status,
    ("apps", "Deployment"): workloads.deployment_status,
    ("apps", "ReplicaSet"): workloads.replica_set_status,
    ("apps", "StatefulSet"): workloads.stateful_set_status,
    ("autoscaling", "HorizontalPodAutoscaler"): autoscalers.autoscaler_status,
    ("batch", "Job"): jobs.job_status,
    ("policy", "PodDisruptionBudget"): policy.budget_status,
}
