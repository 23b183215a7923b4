"""EndpointSlices: for each Service with a selector, the addresses of its pods and what may be sent to them.

Endpoints stay in the slice they are in; room is filled before a slice is added. A Service without endpoints keeps
one empty slice, so that whoever watches knows it was looked at.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fairlead.cluster.controller import Controller
from fairlead.cluster.mirror import Delta
from fairlead.cluster.shell import selecting_keys
from fairlead.local.controllers.mirrors import ControllerContext
from fairlead.local.controllers.spec import (
    ENDPOINT_SLICES,
    NODES,
    PODS,
    SERVICES,
    ControllerPod,
    EndpointSlice,
    Json,
    Service,
    ServicePort,
)
from fairlead.model.hashes import short_hash
from fairlead.model.intents import Create, Intent, delete, patch
from fairlead.model.owners import controller_reference
from fairlead.model.selectors import Selector, equal_to

Ports = tuple[Json, ...]

SERVICE_NAME: Final = "kubernetes.io/service-name"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
MANAGER: Final = "endpointslice-controller.k8s.io"
HEADLESS: Final = "service.kubernetes.io/headless"
ZONE: Final = "topology.kubernetes.io/zone"
MOST: Final = 100


@dataclass(frozen=True, slots=True)
class ServiceInput:
    service: Service
    pods: tuple[ControllerPod, ...]  # that its selector matches
    slices: tuple[EndpointSlice, ...]  # that we keep for it
    zones: dict[str, str]  # node → zone


def plan_endpoints(seen: ServiceInput, now: datetime) -> list[Intent]:
    service = seen.service
    if service.metadata.deletion_timestamp is not None or not service.spec.selector:
        return []
    families = service.spec.ip_families or ("IPv6" if ":" in service.spec.cluster_ip else "IPv4",)
    intents = [intent for family in families for intent in _plan_family(seen, family)]
    others = [found for found in seen.slices if found.address_type not in families]
    return [*intents, *(delete(ENDPOINT_SLICES, found.metadata) for found in others)]


def _plan_family(seen: ServiceInput, family: str) -> Iterable[Intent]:
    """Pods may resolve a named port differently, so slices are kept per set of ports."""
    desired: dict[str, tuple[Ports, dict[str, Json]]] = {}
    for pod in sorted(seen.pods, key=lambda pod: pod.metadata.name):
        address = _address(pod, family)
        if address and not pod.is_finished:
            ports = _ports(seen.service, pod)
            _, endpoints = desired.setdefault(_named(ports), (ports, {}))
            endpoints[pod.metadata.uid] = _endpoint(seen, pod, address)
    held = [found for found in seen.slices if found.address_type == family]
    if not desired:
        desired[_named(())] = ((), {})
    # Whoever reads slices follows one that changes more easily than one that goes and another that comes.
    spare = [found for found in held if _named(found.ports or ()) not in desired]
    for text, (ports, endpoints) in desired.items():
        slices = [found for found in held if _named(found.ports or ()) == text]
        if not slices and spare:
            slices = [spare.pop(0)]
        yield from _plan_slices(seen, family, ports, endpoints, slices)
    yield from (delete(ENDPOINT_SLICES, found.metadata) for found in spare)


def _named(ports: Ports) -> str:
    """The set of ports as a name, whatever order a server writes the fields in."""
    return repr([sorted(port.items()) for port in ports])


def _plan_slices(
    seen: ServiceInput, family: str, ports: Ports, endpoints: dict[str, Json], slices: Sequence[EndpointSlice]
) -> Iterable[Intent]:
    left = dict(endpoints)
    packed: list[tuple[EndpointSlice, list[Json]]] = []
    for found in slices:
        uids = (endpoint.get("targetRef", {}).get("uid", "") for endpoint in found.endpoints or ())
        packed.append((found, [left.pop(uid) for uid in uids if uid in left]))
    waiting = list(left.values())
    # The fullest with room first: fewer slices change, and fewer are left half empty.
    for _, kept in sorted(packed, key=lambda entry: -len(entry[1])):
        room = MOST - len(kept)
        kept += waiting[:room]
        waiting = waiting[room:]
    is_last = not endpoints
    for found, kept in packed:
        if not kept and not is_last:
            yield delete(ENDPOINT_SLICES, found.metadata)
            continue
        is_last = is_last and bool(kept)  # one empty slice stays, further ones go
        yield from _changed(seen.service, found, kept, ports)
    taken = {found.metadata.name for found in seen.slices}
    while waiting or (not endpoints and not slices):
        body = _slice(seen.service, family, ports, waiting[:MOST], taken)
        taken.add(body["metadata"]["name"])
        yield Create(kind=ENDPOINT_SLICES, namespace=seen.service.metadata.namespace, body=body)
        waiting = waiting[MOST:]
        if not waiting:
            return


def _changed(service: Service, found: EndpointSlice, endpoints: list[Json], ports: Ports) -> Iterable[Intent]:
    changes: Json = {}
    if _named(found.ports or ()) != _named(ports):
        changes["ports"] = list(ports)
    if list(found.endpoints or ()) != endpoints:
        changes["endpoints"] = endpoints
    labels = _labels(service)
    if found.metadata.labels != labels:
        gone = {name: None for name in found.metadata.labels if name not in labels}
        changes["metadata"] = {"labels": {**labels, **gone}}
    if changes:
        yield patch(ENDPOINT_SLICES, found.metadata, changes)


def _slice(service: Service, family: str, ports: Ports, endpoints: list[Json], taken: set[str]) -> Json:
    metadata = service.metadata
    prefix = f"{metadata.name}-"[:58]
    numbers = range(len(taken) + 1)
    names = (prefix + short_hash(metadata.uid, family, ports, number, length=5) for number in numbers)
    return {
        "apiVersion": ENDPOINT_SLICES.api_version,
        "kind": ENDPOINT_SLICES.kind,
        "metadata": {
            "name": next(name for name in names if name not in taken),
            "generateName": prefix,
            "namespace": metadata.namespace,
            "labels": _labels(service),
            "ownerReferences": [controller_reference(SERVICES, metadata)],
        },
        "addressType": family,
        "endpoints": endpoints,
        "ports": list(ports),
    }


def _labels(service: Service) -> dict[str, str]:
    own = {SERVICE_NAME: service.metadata.name, MANAGED_BY: MANAGER}
    headless = {HEADLESS: ""} if service.spec.cluster_ip == "None" else {}
    copied = {name: value for name, value in service.metadata.labels.items() if name != HEADLESS}
    return {**copied, **own, **headless}


def _address(pod: ControllerPod, family: str) -> str:
    addresses = [address.ip for address in pod.status.pod_ips or ()] or [pod.status.pod_ip]
    return next((address for address in addresses if address and (":" in address) == (family == "IPv6")), "")


def _endpoint(seen: ServiceInput, pod: ControllerPod, address: str) -> Json:
    is_serving, metadata = pod.is_ready, pod.metadata
    is_ready = seen.service.spec.publish_not_ready_addresses or (is_serving and not pod.is_terminating)
    endpoint: Json = {
        "addresses": [address],
        "conditions": {"ready": is_ready, "serving": is_serving, "terminating": pod.is_terminating},
        "targetRef": {"kind": PODS.kind, "namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid},
    }
    if pod.spec.node_name:
        endpoint["nodeName"] = pod.spec.node_name
    if zone := seen.zones.get(pod.spec.node_name, ""):
        endpoint["zone"] = zone
    if pod.spec.hostname and pod.spec.subdomain == seen.service.metadata.name:
        endpoint["hostname"] = pod.spec.hostname
    return endpoint


def _ports(service: Service, pod: ControllerPod) -> Ports:
    found = []
    for port in service.spec.ports or ():
        number = _number(port, pod)
        if number:
            made: Json = {"name": port.name, "port": number, "protocol": port.protocol}
            if port.app_protocol is not None:
                made["appProtocol"] = port.app_protocol
            found.append(made)
    return tuple(found)


def _number(port: ServicePort, pod: ControllerPod) -> int:
    target = port.target_port if port.target_port not in (None, "", 0) else port.port
    if isinstance(target, int):
        return target
    sidecars = [container for container in pod.spec.init_containers or () if container.restart_policy == "Always"]
    for container in (*(pod.spec.containers or ()), *sidecars):
        for offered in container.ports or ():
            if offered.name == target and offered.protocol == port.protocol:
                return offered.container_port
    return 0


def endpoints_controller(context: ControllerContext) -> Controller:
    services, pods = context.mirrors.of(SERVICES), context.mirrors.of(PODS)
    slices, nodes = context.mirrors.of(ENDPOINT_SLICES), context.mirrors.of(NODES)

    def see(key: str) -> ServiceInput | None:
        service = services.get(key)
        if service is None or not service.spec.selector or service.spec.type == "ExternalName":
            return None
        metadata = service.metadata
        selector = equal_to(service.spec.selector)
        chosen = tuple(pod for pod in pods.by("namespace", metadata.namespace) if selector.matches(pod.metadata.labels))
        ours = {SERVICE_NAME: metadata.name, MANAGED_BY: MANAGER}.items()
        kept = (each for each in slices.by("namespace", metadata.namespace) if ours <= each.metadata.labels.items())
        found = {pod.spec.node_name: nodes.get(pod.spec.node_name) for pod in chosen if pod.spec.node_name}
        zones = {name: node.metadata.labels.get(ZONE, "") for name, node in found.items() if node is not None}
        return ServiceInput(service, chosen, tuple(kept), zones)

    def selector_of(service: Service) -> Selector | None:
        return equal_to(service.spec.selector) if service.spec.selector else None

    def of_slice(delta: Delta[EndpointSlice]) -> Iterable[str]:
        named = {
            f"{found.metadata.namespace}/{found.metadata.labels[SERVICE_NAME]}"
            for found in (delta.old, delta.new)
            if found is not None and SERVICE_NAME in found.metadata.labels
        }
        return sorted(named)

    return (
        context.controller(SERVICES, see, plan_endpoints, name="endpointslices")
        .watches(services)
        .watches(pods, selecting_keys(services, selector_of))
        .watches(slices, of_slice)
    )
