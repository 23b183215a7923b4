"""Validation of objects beyond their shape, at creation and at change.

Objects come decoded and defaulted. The answer is a list of causes as in `Status.details.causes`; empty means valid.
Of a kind that is not in the table only the metadata is validated.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

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
from fairlead.apiserver.validation.errors import Causes, Check, FieldError, Json, bounded

__all__ = ["FieldError", "validate_create", "validate_status", "validate_update"]

Update = Callable[[Json, Json], Causes]
# What is wrong with an object; the second argument is the one it replaces, None for a new one.
Validation = Callable[[Json, Json | None], Causes]
_RBAC = "rbac.authorization.k8s.io"


class Rule(NamedTuple):
    """How a kind is validated: its metadata first, then its fields."""

    fields: Validation = lambda new, old: []
    name: Check = names.subdomain
    anew: bool = False  # whether an update validates the metadata as if the object were new
    core: bool = True  # whether finalizers need a prefix


METADATA_ONLY: Final = Rule()


@bounded()
def validate_create(group: str, version: str, kind: str, obj: Json) -> list[FieldError]:
    own = _OWN.get((group, kind))
    if own is not None:
        return list(own(obj, None))
    rule = _RULES.get((group, kind), METADATA_ONLY)
    found = metadata.on_create(obj["metadata"], _is_namespaced(group, version, kind), rule.name, rule.core)
    return [*found, *rule.fields(obj, None)]


@bounded()
def validate_update(group: str, version: str, kind: str, new: Json, old: Json) -> list[FieldError]:
    namespaced = _is_namespaced(group, version, kind)
    found = metadata.common(new["metadata"], old["metadata"], namespaced)
    own = _OWN.get((group, kind))
    if own is not None:
        return [*found, *own(new, old)]
    rule = _RULES.get((group, kind), METADATA_ONLY)
    if rule.anew:
        found += metadata.anew(new["metadata"], old["metadata"], namespaced, rule.name, rule.core)
    else:
        found += metadata.on_update(new["metadata"], old["metadata"], rule.core)
    return [*found, *rule.fields(new, old)]


@bounded()
def validate_status(group: str, version: str, kind: str, new: Json, old: Json) -> list[FieldError]:
    """For a write of the status alone."""
    found = metadata.common(new["metadata"], old["metadata"], _is_namespaced(group, version, kind))
    if (group, kind) != ("policy", "PodDisruptionBudget"):  # whose own rules do not look at the metadata
        found += metadata.on_update(new["metadata"], old["metadata"])
    check = _STATUSES.get((group, kind))
    return found if check is None else [*found, *check(new, old)]


def _is_namespaced(group: str, version: str, kind: str) -> bool:
    resource = facts.load().by_kind.get((group, version, kind))
    return resource is not None and resource.namespaced


_RULES: Final[dict[tuple[str, str], Rule]] = {
    ("", "ConfigMap"): Rule(config.config_map, anew=True),
    ("", "Endpoints"): Rule(services.endpoints, anew=True),
    ("", "Namespace"): Rule(name=names.label, anew=True),
    ("", "PersistentVolume"): Rule(persistent.volume, anew=True),
    ("", "PersistentVolumeClaim"): Rule(claims.claim, anew=True),
    ("", "Pod"): Rule(pods.pod, anew=True),
    ("", "PodTemplate"): Rule(pods.pod_template),
    ("", "ReplicationController"): Rule(workloads.replication_controller),
    ("", "ResourceQuota"): Rule(limits.quota),
    ("", "Secret"): Rule(config.secret, anew=True),
    ("", "Service"): Rule(services.service, names.label),
    ("", "ServiceAccount"): Rule(anew=True),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): Rule(webhooks.webhooks, core=False),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): Rule(webhooks.webhooks, core=False),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): Rule(definitions.definition, core=False),
    ("apiregistration.k8s.io", "APIService"): Rule(apiregistration.api_service, names.path_segment),
    ("apps", "ControllerRevision"): Rule(workloads.controller_revision, anew=True),
    ("apps", "DaemonSet"): Rule(workloads.daemon_set),
    ("apps", "Deployment"): Rule(workloads.deployment),
    ("apps", "ReplicaSet"): Rule(workloads.replica_set),
    ("apps", "StatefulSet"): Rule(workloads.stateful_set, names.label),
    ("autoscaling", "HorizontalPodAutoscaler"): Rule(autoscalers.autoscaler),
    ("batch", "CronJob"): Rule(jobs.cron_job),
    ("coordination.k8s.io", "Lease"): Rule(coordination.lease, core=False),
    ("discovery.k8s.io", "EndpointSlice"): Rule(services.endpoint_slice),
    ("networking.k8s.io", "Ingress"): Rule(routing.ingress, anew=True),
    ("networking.k8s.io", "NetworkPolicy"): Rule(routing.network_policy),
    ("node.k8s.io", "RuntimeClass"): Rule(node.runtime_class, anew=True, core=False),
    ("resource.k8s.io", "DeviceClass"): Rule(devices.device_class, anew=True),
    ("resource.k8s.io", "ResourceClaim"): Rule(devices.claim, anew=True),
    ("resource.k8s.io", "ResourceClaimTemplate"): Rule(devices.template, anew=True),
    ("resource.k8s.io", "ResourceSlice"): Rule(devices.device_slice),
    ("scheduling.k8s.io", "PriorityClass"): Rule(scheduling.priority_class),
    ("storage.k8s.io", "CSIDriver"): Rule(storage.csi_driver),
    ("storage.k8s.io", "StorageClass"): Rule(storage.storage_class, anew=True),
}
# Kinds whose metadata the server validates in another order, or not on every write: they do it themselves.
_OWN: Final[dict[tuple[str, str], Validation]] = {
    ("", "Event"): events.core_event,
    ("", "LimitRange"): limits.limit_range,
    ("", "Node"): nodes.node,
    ("batch", "Job"): jobs.job,
    ("events.k8s.io", "Event"): events.event,
    ("networking.k8s.io", "IngressClass"): routing.ingress_class,
    ("policy", "PodDisruptionBudget"): policy.budget,
    (_RBAC, "ClusterRole"): rbac.cluster_role,
    (_RBAC, "ClusterRoleBinding"): rbac.cluster_role_binding,
    (_RBAC, "Role"): rbac.role,
    (_RBAC, "RoleBinding"): rbac.role_binding,
    ("storage.k8s.io", "CSINode"): storage.csi_node,
    ("storage.k8s.io", "CSIStorageCapacity"): storage.storage_capacity,
    ("storage.k8s.io", "VolumeAttachment"): storage.volume_attachment,
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
