"""What is asked of Services and of what routes to pods."""

import ipaddress
from collections.abc import Sequence

from fairlead.local.objects.rules import metadata, names
from fairlead.local.objects.rules.containers import port_or_name
from fairlead.local.objects.rules.errors import (
    Errors,
    Json,
    duplicate,
    forbidden,
    immutable,
    invalid,
    not_supported,
    required,
    too_many,
)

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def service(obj: Json) -> Errors:
    return [*metadata.on_create(obj["metadata"], True, names.label), *_spec(obj)]


def service_update(new: Json, old: Json) -> Errors:
    found = metadata.on_update(new["metadata"], old["metadata"])
    spec, before = new["spec"], old["spec"]
    if before.get("type") != "ExternalName" and spec.get("type") != "ExternalName":
        had, has = before.get("clusterIP"), spec.get("clusterIP")
        if had and has != had:
            # The list is what is compared, and its first address must be the single one.
            found.append(invalid("spec.clusterIPs[0]", [has] if has else None, "may not change once set"))
    return [*found, *_spec(new)]


def _spec(obj: Json) -> Errors:
    spec = obj["spec"]
    found: Errors = []
    kind = spec.get("type", "")
    headless = spec.get("clusterIP") == "None"
    ports = spec.get("ports") or []
    if not ports and not headless and kind != "ExternalName":
        found.append(required("spec.ports"))
    if kind in ("LoadBalancer", "NodePort") and headless:
        found.append(invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services"))
    if kind == "ExternalName":
        if spec.get("clusterIP") or spec.get("clusterIPs"):
            found.append(forbidden("spec.clusterIPs", "may not be set for ExternalName services"))
        name = spec.get("externalName", "").removesuffix(".")
        if not name:
            found.append(required("spec.externalName"))
        else:
            found += [invalid("spec.externalName", name, text) for text in names.subdomain(name)]
    seen: set[str] = set()
    for index, port in enumerate(ports):
        found += _port(port, len(ports) > 1, seen, f"spec.ports[{index}]")
    found += metadata.labels(spec.get("selector") or {}, "spec.selector")
    affinity = spec.get("sessionAffinity")
    if affinity not in ("ClientIP", "None"):
        found.append(not_supported("spec.sessionAffinity", affinity, ("ClientIP", "None")))
    if affinity == "ClientIP":
        seconds = ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds", 10800)
        if not 0 < seconds <= 86400:
            found.append(
                invalid(
                    "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
                    seconds,
                    "must be greater than 0 and less than 86400",
                )
            )
    for index, address in enumerate(spec.get("externalIPs") or ()):
        found += [invalid(f"spec.externalIPs[{index}]", address, text) for text in names.ip(address)]
    if kind not in _TYPES:
        found.append(not_supported("spec.type", kind, _TYPES) if kind else required("spec.type"))
    if kind == "ClusterIP":
        for index, port in enumerate(ports):
            if port.get("nodePort"):
                path = f"spec.ports[{index}].nodePort"
                found.append(forbidden(path, "may not be used when `type` is 'ClusterIP'"))
    found += _repeated(ports)
    if "allocateLoadBalancerNodePorts" in spec and kind != "LoadBalancer":
        path = "spec.allocateLoadBalancerNodePorts"
        found.append(forbidden(path, "may only be used when `type` is 'LoadBalancer'"))
    return [*found, *_traffic(spec, kind), *_cluster_ip(spec)]


def _cluster_ip(spec: Json) -> Errors:
    address = spec.get("clusterIP")
    if not address or address == "None" or spec.get("type") == "ExternalName":
        return []
    return [invalid("spec.clusterIPs[0]", address, text) for text in names.ip(address)]


def _traffic(spec: Json, kind: str) -> Errors:
    found: Errors = []
    policy = spec.get("externalTrafficPolicy")
    external = kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and spec.get("externalIPs"))
    if policy and not external:
        found.append(
            invalid("spec.externalTrafficPolicy", policy, "may only be set for externally-accessible services")
        )
    elif policy and policy not in ("Cluster", "Local"):
        found.append(not_supported("spec.externalTrafficPolicy", policy, ("Cluster", "Local")))
    internal = spec.get("internalTrafficPolicy")
    if internal is not None and internal not in ("Cluster", "Local"):
        found.append(not_supported("spec.internalTrafficPolicy", internal, ("Cluster", "Local")))
    return found


def _port(port: Json, needs_name: bool, seen: set[str], path: str) -> Errors:
    found: Errors = []
    name = port.get("name", "")
    if needs_name and not name:
        found.append(required(f"{path}.name"))
    elif name:
        found += [invalid(f"{path}.name", name, text) for text in names.label(name)]
        if name in seen:
            found.append(duplicate(f"{path}.name", name))
        seen.add(name)
    number = port.get("port", 0)
    found += [invalid(f"{path}.port", number, text) for text in names.port_number(number)]
    protocol = port.get("protocol")
    if protocol not in _PROTOCOLS:
        found.append(not_supported(f"{path}.protocol", protocol, _PROTOCOLS))
    return [*found, *port_or_name(port.get("targetPort"), f"{path}.targetPort")]


def _repeated(ports: list[Json]) -> Errors:
    found: Errors = []
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        if port.get("nodePort"):
            key = (port.get("protocol", ""), port["nodePort"])
            if key in seen:
                found.append(duplicate(f"spec.ports[{index}].nodePort", port["nodePort"]))
            seen.add(key)
    seen = set()
    for index, port in enumerate(ports):
        key = (port.get("protocol", ""), port.get("port", 0))
        if key in seen:
            # The server prints its own struct.
            shown = {
                "Name": "",
                "Protocol": key[0],
                "AppProtocol": None,
                "Port": key[1],
                "TargetPort": 0,
                "NodePort": 0,
            }
            found.append(duplicate(f"spec.ports[{index}]", shown))
        seen.add(key)
    return found


def endpoint_slice(obj: Json) -> Errors:
    return [*metadata.on_create(obj["metadata"], True, names.subdomain), *_slice(obj)]


def endpoint_slice_update(new: Json, old: Json) -> Errors:
    found = metadata.on_update(new["metadata"], old["metadata"])
    found += _slice(new)
    return [*found, *immutable("addressType", new.get("addressType"), old.get("addressType"))]


def _slice(obj: Json) -> Errors:
    found: Errors = []
    kind = obj.get("addressType", "")
    if not kind:
        found.append(required("addressType"))
    elif kind not in ("FQDN", "IPv4", "IPv6"):
        found.append(not_supported("addressType", kind, ("FQDN", "IPv4", "IPv6")))
    endpoints = obj.get("endpoints") or ()
    if len(endpoints) > 1000:
        found.append(too_many("endpoints", len(endpoints), 1000))
    for index, endpoint in enumerate(endpoints):
        found += _endpoint(endpoint, kind, f"endpoints[{index}]")
    seen: set[str] = set()
    for index, port in enumerate(obj.get("ports") or ()):
        name = port.get("name", "")
        if name:
            found += [invalid(f"ports[{index}].name", name, text) for text in names.label(name)]
        if name in seen:
            found.append(duplicate(f"ports[{index}].name", name))
        seen.add(name)
        if port.get("protocol") not in _PROTOCOLS:
            found.append(not_supported(f"ports[{index}].protocol", port.get("protocol"), _PROTOCOLS))
    return found


def _endpoint(endpoint: Json, kind: str, path: str) -> Errors:
    found: Errors = []
    addresses = endpoint.get("addresses") or ()
    if not addresses:
        found.append(required(f"{path}.addresses", "must contain at least 1 address"))
    elif len(addresses) > 100:
        found.append(too_many(f"{path}.addresses", len(addresses), 100))
    for index, address in enumerate(addresses):
        here = f"{path}.addresses[{index}]"
        if kind in ("IPv4", "IPv6"):
            problems = [invalid(here, address, text) for text in names.ip(address)]
            if not problems and ipaddress.ip_address(address).version != (4 if kind == "IPv4" else 6):
                problems.append(invalid(f"{path}.addresses", address, f"must be an {kind} address"))
            found += problems or reachable(address, here)
        elif kind == "FQDN":
            found += [invalid(here, address, text) for text in names.subdomain(address)]
    if endpoint.get("nodeName") is not None:
        name = endpoint["nodeName"]
        found += [invalid(f"{path}.nodeName", name, text) for text in names.subdomain(name)]
    if endpoint.get("hostname") is not None:
        name = endpoint["hostname"]
        found += [invalid(f"{path}.hostname", name, text) for text in names.label(name)]
    return found


# --- the old endpoints ------------------------------------------------------------------------------------------


def endpoints(obj: Json) -> Errors:
    return [*metadata.on_create(obj["metadata"], True, names.subdomain), *_subsets(obj.get("subsets") or ())]


def endpoints_update(new: Json, old: Json) -> Errors:
    found = metadata.anew(new["metadata"], old["metadata"], True, names.subdomain)
    return found if new.get("subsets") == old.get("subsets") else [*found, *_subsets(new.get("subsets") or ())]


def _subsets(subsets: Sequence[Json]) -> Errors:
    found: Errors = []
    for index, subset in enumerate(subsets):
        path = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            found.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
        for key in ("addresses", "notReadyAddresses"):
            for at, address in enumerate(subset.get(key) or ()):
                found += _address(address, f"{path}.{key}[{at}]")
        ports = subset.get("ports") or ()
        for at, port in enumerate(ports):
            found += _endpoint_port(port, len(ports) > 1, f"{path}.ports[{at}]")
    return found


def _address(address: Json, path: str) -> Errors:
    given = address.get("ip", "")
    found = [invalid(f"{path}.ip", given, text) for text in names.ip(given)]
    if address.get("hostname"):
        found += [invalid(f"{path}.hostname", address["hostname"], text) for text in names.label(address["hostname"])]
    if address.get("nodeName") is not None:
        name = address["nodeName"]
        found += [invalid(f"{path}.nodeName", name, text) for text in names.subdomain(name)]
    return [*found, *reachable(given, f"{path}.ip")]


def reachable(address: str, path: str) -> Errors:
    """Addresses that lead nowhere; loopback ones do lead somewhere on the embedded cluster, unlike on a real one."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return [invalid(path, address, "must be a valid IP address")]
    if found.is_unspecified:
        return [invalid(path, address, f"may not be unspecified ({address})")]
    if found.is_link_local:
        return [invalid(path, address, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")]
    if found in _LOCAL_GROUPS[found.version]:
        text = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
        return [invalid(path, address, text)]
    return []


def _endpoint_port(port: Json, needs_name: bool, path: str) -> Errors:
    found: Errors = []
    name = port.get("name", "")
    if needs_name and not name:
        found.append(required(f"{path}.name"))
    elif name:
        found += [invalid(f"{path}.name", name, text) for text in names.label(name)]
    number = port.get("port", 0)
    found += [invalid(f"{path}.port", number, text) for text in names.port_number(number)]
    if not port.get("protocol"):
        found.append(required(f"{path}.protocol"))
    elif port["protocol"] not in _PROTOCOLS:
        found.append(not_supported(f"{path}.protocol", port["protocol"], _PROTOCOLS))
    if port.get("appProtocol") is not None:
        given = port["appProtocol"]
        found += [invalid(f"{path}.appProtocol", given, text) for text in names.qualified(given)]
    return found


_LOCAL_GROUPS = {4: ipaddress.ip_network("224.0.0.0/24"), 6: ipaddress.ip_network("ff02::/16")}
