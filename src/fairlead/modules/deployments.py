"""Deployments of modules: the cluster of bases they are for, what a new base starts with, how many replicas a peer has.

Pure. Peer: one replica per Ready base of the Deployment's cluster and of our environment.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiObject, ApiStruct, ObjectMeta
from fairlead.model.node import Node
from fairlead.model.pod import SchedulerPod
from fairlead.modules.heartbeats import BaseMetadata
from fairlead.modules.names import (
    BASE_NAME,
    BASE_STACK,
    BASE_VERSION,
    BASEMENT_VERSION,
    CLUSTER_NAME,
    ENV,
    PAGE_NAME,
    PAGE_VERSION,
    PEER,
    REPLICAS_CONTROL,
    STACK,
    STRATEGY,
    safe_label,
)
from fairlead.modules.spec import Module, module_of
from fairlead.nodes.spec import PodSpec


class Template(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class DeploymentSpec(ApiStruct):
    replicas: int = 1
    template: Template = Template()


class ModuleDeployment(ApiObject, frozen=True):
    spec: DeploymentSpec = DeploymentSpec()


DEPLOYMENTS = Kind("apps", "v1", "deployments", "Deployment", ModuleDeployment)


@dataclass(frozen=True, slots=True)
class PeerChange:
    deployment: ModuleDeployment
    replicas: int


def cluster_name(deployment: ModuleDeployment) -> str:
    """By its label, else its node selector, else a node affinity that allows certain clusters; the first that says."""
    labels = deployment.metadata.labels
    if CLUSTER_NAME in labels:
        return labels[CLUSTER_NAME]
    spec = deployment.spec.template.spec
    if CLUSTER_NAME in (spec.node_selector or {}):
        return (spec.node_selector or {})[CLUSTER_NAME]
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    for term in (required.node_selector_terms or ()) if required is not None else ():
        for expression in term.match_expressions or ():
            if expression.key == CLUSTER_NAME and expression.operator == "In" and expression.values:
                return expression.values[0]
    return ""


def baseline(deployments: Iterable[ModuleDeployment], cluster: str, env: str) -> list[Module]:
    """What a base of this cluster starts with: the modules of its Deployments, the oldest first."""
    if not cluster:
        return []
    chosen = [each for each in deployments if each.metadata.labels.get(ENV) == env and cluster_name(each) == cluster]
    chosen.sort(key=lambda each: each.metadata.creation_timestamp or "")
    return [
        module_of(container, each.spec.template.metadata.annotations)
        for each in chosen
        for container in each.spec.template.spec.containers
    ]


def baseline_of(deployments: Iterable[ModuleDeployment], base: BaseMetadata, env: str) -> list[Module]:
    """What this very base starts with: one version of each module, of Deployments that do not ask for other bases."""
    chosen = [each for each in deployments if _is_for(each, base)]
    return newest_versions(baseline(chosen, base.cluster_name, env))


def _is_for(deployment: ModuleDeployment, base: BaseMetadata) -> bool:
    """By its node selector, as far as that is about a base's name, version and stack."""
    selector = deployment.spec.template.spec.node_selector or {}
    known = {
        BASE_NAME: base.name,
        BASE_VERSION: base.version,
        BASEMENT_VERSION: base.version,
        STACK: base.stack,
        BASE_STACK: base.stack,
        PAGE_NAME: base.name,
        PAGE_VERSION: base.version,
    }
    return all(selector.get(key, safe_label(value)) == safe_label(value) for key, value in known.items())


def newest_versions(modules: Iterable[Module]) -> list[Module]:
    """One version of each module: that of the youngest Deployment, in its place."""
    return list({module.name: module for module in modules}.values())


def in_environment(deployments: Iterable[ModuleDeployment], env: str) -> list[ModuleDeployment]:
    """Without those that name another environment: whoever controls that one counts its bases."""
    return [each for each in deployments if each.metadata.labels.get(ENV, env) == env]


def plan_replicas(deployments: Iterable[ModuleDeployment], nodes: Iterable[Node], env: str) -> list[PeerChange]:
    """Peer Deployments whose replicas are not the number of their bases."""
    counts = _ready_bases(nodes, env)
    changes = []
    for deployment in deployments:
        labels: Mapping[str, str] = deployment.metadata.labels
        cluster = cluster_name(deployment)
        if labels.get(STRATEGY) != PEER or labels.get(REPLICAS_CONTROL) == "true" or not cluster:
            continue
        if deployment.spec.replicas != counts.get(cluster, 0):
            changes.append(PeerChange(deployment, counts.get(cluster, 0)))
    return changes


def is_ready(thing: Node | SchedulerPod) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in thing.status.conditions or ())


def _ready_bases(nodes: Iterable[Node], env: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in nodes:
        labels = node.metadata.labels
        if node.status.phase == "Running" and is_ready(node) and labels.get(ENV) == env and labels.get(CLUSTER_NAME):
            counts[labels[CLUSTER_NAME]] = counts.get(labels[CLUSTER_NAME], 0) + 1
    return counts
