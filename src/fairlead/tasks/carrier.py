"""The objects of a task's carrier: a workload with the agents, a Service per IP family, an Ingress where asked for.

`build` makes them from the templates as kdoctor does; `adapted` then makes of them what Fairlead runs: never on nodes
that run no processes, at least one pod, a Service type that suits the targets, and what the agent needs to report.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fairlead.model.hashes import short_hash
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiStruct, ObjectMeta
from fairlead.model.owners import controller_reference
from fairlead.model.quantity import nanos
from fairlead.tasks.names import CarrierNames, carrier_names, names_of
from fairlead.tasks.spec import KINDS, AgentSpec, NetReachSpec, NetReachTarget, TaskResource

Json = dict[str, Any]

UNIQUE_LABEL: Final = "app.kubernetes.io/name"
PROVIDER_LABEL: Final = "fairlead.io/provider"
QUANTITIES: Final = frozenset({"limits", "requests"})
HASH_ANNOTATION: Final = "tasks.fairlead.io/template-hash"
EXCLUDED_PROVIDERS: Final = ("simulated", "arklet")


class CarrierObject(ApiStruct, frozen=True):
    """A workload or a part of a carrier, as written."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Json = {}
    status: Json = {}
    data: dict[str, str] = {}


DAEMON_SETS = Kind("apps", "v1", "daemonsets", "DaemonSet", CarrierObject)
DEPLOYMENTS = Kind("apps", "v1", "deployments", "Deployment", CarrierObject)
SERVICES = Kind("", "v1", "services", "Service", CarrierObject)
INGRESSES = Kind("networking.k8s.io", "v1", "ingresses", "Ingress", CarrierObject)
SECRETS = Kind("", "v1", "secrets", "Secret", CarrierObject)
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", CarrierObject)
WORKLOADS: Final = {each.kind: each for each in (DAEMON_SETS, DEPLOYMENTS)}
PARTS: Final = {each.kind: each for each in (SERVICES, INGRESSES, SECRETS, CONFIG_MAPS)}


@dataclass(frozen=True, slots=True)
class CarrierOptions:
    """Where carriers are made, and from what."""

    namespace: str
    templates: Mapping[str, Json]
    ipv4: bool = True
    ipv6: bool = False
    unique_label: str = UNIQUE_LABEL


@dataclass(frozen=True, slots=True)
class Carrier:
    """The objects as they should be. Owners of Services and Ingress are filled in once the workload has a UID."""

    names: CarrierNames
    workload: Json
    services: tuple[Json, ...] = ()
    ingress: Json | None = None
    copies: tuple[Json, ...] = ()
    """The Secret and the ConfigMap that the task refers to, for its agents."""

    @property
    def resource(self) -> TaskResource:
        made = {service["metadata"]["name"] for service in self.services}
        v4, v6 = self.names.service_v4, self.names.service_v6
        return TaskResource(
            runtime_name=self.workload["metadata"]["name"],
            runtime_type=self.workload["kind"],
            service_name_v4=v4 if v4 in made else None,
            service_name_v6=v6 if v6 in made else None,
        )

    def parts(self, workload_uid: str) -> list[Json]:
        """Services, Ingress and copies, owned by the workload."""
        owner = ObjectMeta(name=self.workload["metadata"]["name"], uid=workload_uid)
        reference = controller_reference(WORKLOADS[self.workload["kind"]], owner)
        found = [*self.services, *([self.ingress] if self.ingress is not None else []), *self.copies]
        return [{**each, "metadata": {**each["metadata"], "ownerReferences": [reference]}} for each in found]


def build_shared(options: CarrierOptions, name: str, specs: Sequence[Any] = ()) -> Carrier:
    """The shared agent: nobody owns it, and it carries every task without an agentSpec; `specs` are theirs."""
    return _build(names_of(name), AgentSpec(), specs, ["--shared"], (), options)


def build(kind: str, metadata: ObjectMeta, spec: Any, options: CarrierOptions) -> Carrier:
    """The carrier of a task with an agentSpec."""
    arguments = [f"--task-kind={kind}", f"--task-name={metadata.name}"]
    owners = [controller_reference(KINDS[kind], metadata)]
    return _build(carrier_names(kind, metadata.name), spec.agent_spec, [spec], arguments, owners, options)


def build_common(name: str, specs: Sequence[Any], owners: Sequence[Json], options: CarrierOptions) -> Carrier:
    """The carrier of several tasks with one agentSpec: its agents look at every task, and act where they are actors."""
    return _build(names_of(name), specs[0].agent_spec, specs, ["--shared"], owners, options)


def _build(
    names: CarrierNames,
    agent: AgentSpec,
    specs: Sequence[Any],
    arguments: list[str],
    owners: Sequence[Json],
    options: CarrierOptions,
) -> Carrier:
    identity = {options.unique_label: names.workload}
    families = [("IPv4", names.service_v4)] if options.ipv4 else []
    families += [("IPv6", names.service_v6)] if options.ipv6 else []
    arguments = [*arguments, *(f"--service-{family.lower()}-name={name}" for family, name in families)]
    workload = _workload(names.workload, agent, identity, arguments, options)
    if owners:
        workload["metadata"]["ownerReferences"] = list(owners)
    services = tuple(_service(name, family, agent, identity, options) for family, name in families)
    ingress = _ingress(names, options) if wants_ingress(specs) and options.ipv4 else None
    return Carrier(names, workload, services, ingress)


def wants_ingress(specs: Sequence[Any]) -> bool:
    return any(isinstance(each, NetReachSpec) and each.target is not None and each.target.ingress for each in specs)


def _workload(
    name: str, agent: AgentSpec, identity: Mapping[str, str], arguments: Sequence[str], options: CarrierOptions
) -> Json:
    workload = copy.deepcopy(options.templates[f"{agent.kind.lower()}.yml"])
    _set_metadata(workload, name, agent, options.namespace)
    spec = workload.setdefault("spec", {})
    selector = spec.setdefault("selector", {})
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), **identity}
    spec["template"] = _pod_template(agent, identity, arguments, options)
    if agent.kind == "Deployment" and agent.deployment_replicas is not None:
        spec["replicas"] = agent.deployment_replicas
    return workload


def _pod_template(
    agent: AgentSpec, identity: Mapping[str, str], arguments: Sequence[str], options: CarrierOptions
) -> Json:
    pod = copy.deepcopy(options.templates["pod.yml"])
    metadata, spec = pod.get("metadata") or {}, pod["spec"]
    metadata["labels"] = {**(metadata.get("labels") or {}), **identity}
    if annotations := {**(metadata.get("annotations") or {}), **(agent.annotation or {})}:
        metadata["annotations"] = annotations
    for container in spec["containers"]:
        container["args"] = [*(container.get("args") or ()), *arguments]
        if agent.env:
            container["env"] = [*(container.get("env") or ()), *agent.env]
        if agent.resources is not None:
            container["resources"] = agent.resources
    if agent.affinity is not None:
        spec["affinity"] = agent.affinity
    if agent.host_network != bool(spec.get("hostNetwork")):
        spec["dnsPolicy"] = "ClusterFirstWithHostNet" if agent.host_network else "ClusterFirst"
        spec["hostNetwork"] = agent.host_network
        if not agent.host_network:
            del spec["hostNetwork"]
    return {"metadata": metadata, "spec": spec}


def _service(name: str, family: str, agent: AgentSpec, identity: Mapping[str, str], options: CarrierOptions) -> Json:
    service = copy.deepcopy(options.templates["service.yml"])
    _set_metadata(service, name, agent, options.namespace)
    spec = service["spec"]
    spec["selector"] = {**(spec.get("selector") or {}), **identity}
    spec["ipFamilies"] = [family]
    return service


def _ingress(names: CarrierNames, options: CarrierOptions) -> Json:
    ingress = copy.deepcopy(options.templates["ingress.yml"])
    ingress["metadata"] = {**(ingress.get("metadata") or {}), "name": names.ingress, "namespace": options.namespace}
    first = ingress["spec"]["rules"][0]["http"]["paths"][0]
    first["backend"]["service"]["name"] = names.service_v4
    return ingress


def _set_metadata(thing: Json, name: str, agent: AgentSpec, namespace: str) -> None:
    metadata = thing.get("metadata") or {}
    thing["metadata"] = {**metadata, "name": name, "namespace": namespace}
    if annotations := {**(metadata.get("annotations") or {}), **(agent.annotation or {})}:
        thing["metadata"]["annotations"] = annotations


# -- what Fairlead runs ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Adaptation:
    """What the agents of this installation need beside the templates."""

    scheduler: str = "fairlead"
    env: Mapping[str, str] = field(default_factory=dict)
    volumes: Sequence[Json] = ()
    mounts: Sequence[Json] = ()
    copies: Sequence[Json] = ()


def adapted(carrier: Carrier, specs: Sequence[Any], adaptation: Adaptation) -> Carrier:
    """The carrier as it is run for these tasks; the recordings are compared without this last step."""
    workload = copy.deepcopy(carrier.workload)
    pod = workload["spec"]["template"]["spec"]
    term = {"key": PROVIDER_LABEL, "operator": "NotIn", "values": list(EXCLUDED_PROVIDERS)}
    pod["affinity"] = with_required_term(pod.get("affinity") or {}, term)
    if workload["kind"] == "Deployment":
        pod["schedulerName"] = adaptation.scheduler
        workload["spec"]["replicas"] = max(1, workload["spec"].get("replicas") or 0)
    pod["volumes"] = [*(pod.get("volumes") or ()), *adaptation.volumes]
    for container in pod["containers"]:
        env = [{"name": name, "value": value} for name, value in adaptation.env.items()]
        container["env"] = [*(container.get("env") or ()), *env]
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), *adaptation.mounts]
    digest = short_hash(workload["spec"])
    for metadata in (workload["metadata"], workload["spec"]["template"]["metadata"]):
        metadata["annotations"] = {**(metadata.get("annotations") or {}), HASH_ANNOTATION: digest}
    services = tuple({**each, "spec": {**each["spec"], "type": service_type(specs)}} for each in carrier.services)
    return Carrier(carrier.names, workload, services, carrier.ingress, tuple(adaptation.copies))


def service_type(specs: Sequence[Any]) -> str:
    """A node port or a load balancer is opened only where it is tested."""
    targets = [each.target or NetReachTarget() for each in specs if isinstance(each, NetReachSpec)]
    if any(target.load_balancer for target in targets):
        return "LoadBalancer"
    return "NodePort" if any(target.node_port for target in targets) else "ClusterIP"


def with_required_term(affinity: Json, expression: Json) -> Json:
    """The affinity, with one more requirement on nodes: terms are alternatives, so it goes into each of them.

    What is no affinity is left as it is: the API server refuses the workload, and says why.
    """
    node = affinity.get("nodeAffinity") or {}
    required = (node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}) if isinstance(node, dict) else None
    if not isinstance(required, dict):
        return affinity
    terms = required.get("nodeSelectorTerms") or [{"matchExpressions": []}]
    if not isinstance(terms, list) or not all(_is_term(term) for term in terms):
        return affinity
    # An empty term of the author's matches no node, and must not match more with ours.
    extended = [{**term, "matchExpressions": [*(term.get("matchExpressions") or ()), expression]} if term else term
                for term in terms]  # fmt: skip
    return {
        **affinity,
        "nodeAffinity": {
            **node,
            "requiredDuringSchedulingIgnoredDuringExecution": {**required, "nodeSelectorTerms": extended},
        },
    }


def _is_term(term: Any) -> bool:
    return isinstance(term, dict) and isinstance(term.get("matchExpressions") or [], list)


def missing_part(desired: Any, actual: Any) -> bool:
    """Whether the actual value lacks something of the desired one; what a server adds is no difference."""
    if isinstance(desired, dict):
        if not isinstance(actual, dict):
            return bool(desired) or actual is not None
        return any(
            not _same_quantities(each, actual.get(key)) if key in QUANTITIES else missing_part(each, actual.get(key))
            for key, each in desired.items()
        )
    if isinstance(desired, list):
        if not isinstance(actual, list) or len(desired) != len(actual):
            return bool(desired) or bool(actual)
        return any(missing_part(one, other) for one, other in zip(desired, actual, strict=True))
    return bool(desired != actual) and not (not desired and actual is None)


def _same_quantities(desired: Any, actual: Any) -> bool:
    """Limits or requests that are equal, however they are written: a server stores 1000m as 1."""
    if not isinstance(desired, dict) or not isinstance(actual, dict) or not desired.keys() <= actual.keys():
        return not missing_part(desired, actual)
    try:
        return all(nanos(each) == nanos(actual[name]) for name, each in desired.items())
    except (ValueError, TypeError):
        return not any(missing_part(each, actual[name]) for name, each in desired.items())


def is_ready(kind: str, workload: CarrierObject | None, start_with: float = 1.0) -> bool:
    """Whether enough pods of the carrier are ready; ValueError for a kind that is no carrier."""
    if kind not in WORKLOADS:
        raise ValueError(f"a carrier is a {' or a '.join(WORKLOADS)}, not a {kind}")
    if workload is None:
        return False
    status = workload.status
    if status.get("observedGeneration", 0) < workload.metadata.generation:
        return False
    if kind == "DaemonSet":
        desired, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    else:
        replicas = workload.spec.get("replicas")
        desired, ready = (1 if replicas is None else replicas), status.get("readyReplicas", 0)
    if desired < 1:
        return False
    return bool(desired == ready) if start_with >= 1 else bool(ready >= 1 and ready / desired >= start_with)
