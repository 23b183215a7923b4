"""Which address leads where, and what names and variables tell of it: Services and endpoint slices → values.

Pure; `proxy.server` listens and `nodes` and the process provider tell pods.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_address

from fairlead.local.networks import addresses_for, is_in
from fairlead.local.proxy.spec import EndpointPort, EndpointSlice, Service, ServicePort

Address = tuple[str, int]
DOMAIN = "cluster.local"


@dataclass(frozen=True, slots=True)
class Route:
    """Where connections to one address go; without backends nobody listens there, so they are refused."""

    service: str
    backends: tuple[Address, ...] = ()
    sticks_s: int = 0
    """For how long a client comes back to the same backend."""


@dataclass(frozen=True, slots=True)
class Names:
    """What Services are called: per namespace, because a bare name means the one next door."""

    common: Mapping[str, tuple[str, ...]]
    short: Mapping[str, Mapping[str, tuple[str, ...]]]

    def within(self, namespace: str) -> dict[str, tuple[str, ...]]:
        return {**self.common, **self.short.get(namespace, {})}


def plan_routes(
    services: Iterable[Service],
    slices: Iterable[EndpointSlice],
    *,
    network: IPv4Network,
    node_addresses: Iterable[str],
    protocol: str = "TCP",
    balancers: Mapping[str, str] | None = None,
) -> dict[Address, Route]:
    """Every address to be served over a protocol: cluster addresses within the network, node ports at every node's
    address, and the addresses of load balancers."""
    by_service = _by_service(slices)
    routes: dict[Address, Route] = {}
    for service in services:
        if not service.spec.has_address:
            continue
        is_here = is_in(service.spec.cluster_ip, network)
        for port in service.spec.ports or ():
            if port.protocol != protocol:
                continue
            route = Route(service.metadata.key, _backends(service, port, by_service), service.spec.sticks_s)
            if is_here:
                routes[service.spec.cluster_ip, port.port] = route
            if (balancer := (balancers or {}).get(service.metadata.key)) is not None:
                routes[balancer, port.port] = route
            if port.node_port:
                routes |= dict.fromkeys(((address, port.node_port) for address in node_addresses), route)
    return routes


def plan_unserved(services: Iterable[Service]) -> dict[str, str]:
    """Services with ports that nobody will ever listen on, and why."""
    unserved = {}
    for service in services:
        ports = service.spec.ports or ()
        others = [f"{port.port}/{port.protocol}" for port in ports if port.protocol not in ("TCP", "UDP")]
        if others and service.spec.has_address:
            why = "only TCP and UDP are led to pods here; pods can be reached at their own addresses"
            unserved[service.metadata.key] = f"{', '.join(others)}: {why}"
    return unserved


def plan_balancers(services: Iterable[Service], network: IPv4Network) -> dict[str, str]:
    """The load balancer's address of each Service that has one: the one in its status, else one by its UID."""
    balanced = [service for service in services if service.spec.is_balanced_here]
    found: dict[str, str] = {}
    for service in balanced:
        ours = next((ip for ip in service.balanced_ips if is_in(ip, network)), "")
        if ours and ours not in found.values():
            found[service.metadata.key] = ours
    for service in sorted(balanced, key=lambda each: each.metadata.uid):
        if service.metadata.key not in found:
            taken = set(found.values())
            places = addresses_for(service.metadata.uid, network)
            found[service.metadata.key] = next(place for place in places if place not in taken)
    return found


def _backends(
    service: Service, port: ServicePort, by_service: Mapping[str, list[EndpointSlice]]
) -> tuple[Address, ...]:
    found: dict[Address, None] = {}
    for part in by_service.get(service.metadata.key, ()):
        number = next((p.port for p in part.ports or () if _is_port(p, port)), None)
        if number is None or part.address_type != "IPv4":
            continue
        for endpoint in part.endpoints or ():
            # Only our own processes listen, on loopback: an address a simulated pod made up is never dialled.
            is_led_to = endpoint.is_ready or service.spec.publish_not_ready_addresses
            if is_led_to and endpoint.addresses and _is_loopback(endpoint.addresses[0]):
                found[endpoint.addresses[0], number] = None
    return tuple(sorted(found))


def _is_port(found: EndpointPort, service_port: ServicePort) -> bool:
    is_named = (found.name or "") == service_port.name and bool(found.port)
    return is_named and (found.protocol or "TCP") == service_port.protocol


def plan_names(services: Iterable[Service], slices: Iterable[EndpointSlice]) -> Names:
    """`svc.ns`, `svc.ns.svc` and the whole form for every Service; pods of headless ones by name before that.

    An ExternalName is one more name for what it names, if that is a name of ours.
    """
    by_service = _by_service(slices)
    aliases: list[Service] = []
    common: dict[str, tuple[str, ...]] = {}
    short: dict[str, dict[str, tuple[str, ...]]] = {}
    for service in services:
        name, namespace = service.metadata.name, service.metadata.namespace
        if service.spec.has_address:
            addresses: tuple[str, ...] = (service.spec.cluster_ip,)
        elif service.spec.is_headless:
            pods = _pods(service, by_service)
            addresses = tuple(sorted(address for _, address in pods))
            for pod, address in pods:
                for whole in _forms(f"{pod}.{name}", namespace):
                    common[whole] = (address,)
                short.setdefault(namespace, {})[f"{pod}.{name}"] = (address,)
        else:
            aliases.append(service)
            continue
        _enter(service, addresses, common, short)
    for service in aliases:
        _enter(service, common.get(service.spec.external_name.rstrip("."), ()), common, short)
    return Names(common, short)


def _enter(
    service: Service,
    addresses: tuple[str, ...],
    common: dict[str, tuple[str, ...]],
    short: dict[str, dict[str, tuple[str, ...]]],
) -> None:
    if addresses:
        name, namespace = service.metadata.name, service.metadata.namespace
        common.update(dict.fromkeys(_forms(name, namespace), addresses))
        short.setdefault(namespace, {})[name] = addresses


def _forms(name: str, namespace: str) -> tuple[str, ...]:
    return f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.{DOMAIN}"


def _pods(service: Service, by_service: Mapping[str, list[EndpointSlice]]) -> list[tuple[str, str]]:
    found = []
    for part in by_service.get(service.metadata.key, ()):
        for endpoint in part.endpoints or ():
            name = endpoint.hostname or (endpoint.target_ref.name if endpoint.target_ref else "")
            if name and endpoint.addresses and (endpoint.is_ready or service.spec.publish_not_ready_addresses):
                found.append((name, endpoint.addresses[0]))
    return sorted(set(found))


def service_env(services: Iterable[Service], namespace: str, api: Address | None = None) -> dict[str, str]:
    """The environment variables of Services, as Kubernetes sets them: those of the namespace, and where the API is."""
    env: dict[str, str] = {}
    for service in sorted(services, key=lambda service: service.metadata.name):
        is_api = service.metadata.key == "default/kubernetes"
        if not service.spec.has_address or not (service.metadata.namespace == namespace or is_api):
            continue
        env |= _variables(service.metadata.name, service.spec.cluster_ip, service.spec.ports or ())
    if api is not None:
        # Straight to the server: the Service's port 443 takes a right to listen on that we may not have.
        env |= {"KUBERNETES_SERVICE_HOST": api[0], "KUBERNETES_SERVICE_PORT": str(api[1])}
        env |= {"KUBERNETES_SERVICE_PORT_HTTPS": str(api[1])}
    return env


def _variables(name: str, ip: str, ports: tuple[ServicePort, ...]) -> dict[str, str]:
    prefix = _upper(name)
    env = {f"{prefix}_SERVICE_HOST": ip}
    for number, port in enumerate(ports):
        if number == 0:
            env[f"{prefix}_SERVICE_PORT"] = str(port.port)
            env[f"{prefix}_PORT"] = f"{port.protocol.lower()}://{ip}:{port.port}"
        if port.name:
            env[f"{prefix}_SERVICE_PORT_{_upper(port.name)}"] = str(port.port)
        whole = f"{prefix}_PORT_{port.port}_{port.protocol}"
        env[whole] = f"{port.protocol.lower()}://{ip}:{port.port}"
        env[f"{whole}_PROTO"] = port.protocol.lower()
        env[f"{whole}_PORT"] = str(port.port)
        env[f"{whole}_ADDR"] = ip
    return env


def _upper(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def _by_service(slices: Iterable[EndpointSlice]) -> dict[str, list[EndpointSlice]]:
    found: dict[str, list[EndpointSlice]] = {}
    for part in slices:
        found.setdefault(part.service_key, []).append(part)
    return found


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
