"""Validation of Services and of what routes to pods."""

import ipaddress
from collections.abc import Sequence

from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.core.containers import port_or_name
from fairlead.apiserver.validation.errors import (
    Errors,
    Json,
    duplicate,
    forbidden,
    immutable,
    invalid,
    malformed,
    not_supported,
    one_of,
    repeated,
    required,
    supported,
    supported_if_set,
    too_many,
)

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_FAMILIES = ("IPv4", "IPv6")
_FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
_DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def service(new: Json, old: Json | None) -> Errors:
    if old is None:
        return _spec(new)
    found: Errors = []
    before = old["spec"]
    spec = _one_address(new["spec"], before)
    if "ExternalName" not in (spec.get("type"), before.get("type")):
        found += _same_addresses(spec, before)
        found += _same_families(spec, before)
    found += _balancer_class(spec, before)
    both = _needs_check(spec) and _needs_check(before)
    if both and spec.get("healthCheckNodePort") != before.get("healthCheckNodePort"):
        found.append(forbidden("spec.healthCheckNodePort", "field is immutable"))
    return [*found, *_spec({**new, "spec": spec})]


def _one_address(spec: Json, before: Json) -> Json:
    """The spec with clusterIPs set to clusterIP, where only the latter was changed."""
    one, many = spec.get("clusterIP"), spec.get("clusterIPs")
    if one == before.get("clusterIP") or many != before.get("clusterIPs"):
        return spec
    return {**spec, "clusterIPs": [one] if one else []}


def _headless(spec: Json) -> bool:
    return (spec.get("clusterIPs") or [spec.get("clusterIP")]) == ["None"]


def _same_addresses(spec: Json, before: Json) -> Errors:
    if _headless(spec) and _headless(before):
        return []
    path, has, had = "spec.clusterIPs", spec.get("clusterIPs") or [], before.get("clusterIPs") or []
    shown = has or None
    if len(has) == len(had):
        detail = "may not change once set"
        return [invalid(f"{path}[{at}]", shown, detail) for at, one in enumerate(had) if one != has[at]]
    found: Errors = []
    if not has:
        found.append(invalid(f"{path}[0]", shown, "primary clusterIP can not be unset"))
    if has and had and has[0] != had[0]:
        found.append(invalid(f"{path}[0]", shown, "may not change once set"))
    if len(has) == 1 and len(had) > 1 and spec.get("ipFamilyPolicy") != "SingleStack":
        detail = "must be set to 'SingleStack' when releasing the secondary clusterIP"
        found.append(invalid("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), detail))
    return found


def _same_families(spec: Json, before: Json) -> Errors:
    if _headless(spec) or _headless(before):
        return []
    has, had = spec.get("ipFamilies") or [], before.get("ipFamilies") or []
    path = "spec.ipFamilies[0]"
    if len(has) == len(had):
        return [invalid(path, has, "may not change once set") for at, one in enumerate(had) if one != has[at]]
    if has and had and has[0] != had[0]:
        return [invalid(path, spec.get("clusterIPs"), "may not change once set")]
    return []


def _balancer_class(spec: Json, before: Json | None) -> Errors:
    path, class_name = "spec.loadBalancerClass", spec.get("loadBalancerClass")
    found: Errors = []
    balanced = spec.get("type") == "LoadBalancer"
    both = before is not None and balanced and before.get("type") == "LoadBalancer"
    if both and before is not None and before.get("loadBalancerClass") != class_name:
        found.append(invalid(path, class_name, "may not change once set"))
    if class_name is not None:
        if balanced:
            found += malformed(path, class_name, names.qualified)
        else:
            found.append(forbidden(path, "may only be used when `type` is 'LoadBalancer'"))
    return found


def _needs_check(spec: Json) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _spec(obj: Json) -> Errors:
    spec = obj["spec"]
    found = _topology(obj["metadata"].get("annotations") or {})
    kind = spec.get("type", "")
    headless = _headless(spec)
    ports = spec.get("ports") or []
    if not ports and not headless and kind != "ExternalName":
        found.append(required("spec.ports"))
    if kind in ("LoadBalancer", "NodePort") and headless:
        found.append(invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services"))
    if kind == "ExternalName":
        found += _external_name(spec)
    seen: set[str] = set()
    for index, port in enumerate(ports):
        found += _port(port, len(ports) > 1, seen, f"spec.ports[{index}]")
    found += metadata.labels(spec.get("selector") or {}, "spec.selector")
    found += _affinity(spec)
    if kind != "ExternalName":
        found += cluster_ips(spec)
    for index, address in enumerate(spec.get("externalIPs") or ()):
        path = f"spec.externalIPs[{index}]"
        problems = malformed(path, address, names.ip)
        found += problems or reachable(address, path, loopback=False)
    if kind not in _TYPES:
        found.append(not_supported("spec.type", kind, _TYPES) if kind else required("spec.type"))
    if kind == "ClusterIP":
        for index, port in enumerate(ports):
            if port.get("nodePort"):
                path = f"spec.ports[{index}].nodePort"
                found.append(forbidden(path, "may not be used when `type` is 'ClusterIP'"))
    found += _repeated(ports)
    found += _source_ranges(obj, kind)
    if "allocateLoadBalancerNodePorts" in spec and kind != "LoadBalancer":
        path = "spec.allocateLoadBalancerNodePorts"
        found.append(forbidden(path, "may only be used when `type` is 'LoadBalancer'"))
    return [*found, *_balancer_class(spec, None), *_traffic(spec, kind)]


def _topology(noted: Json) -> Errors:
    hints, mode = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
    if hints in noted and mode in noted and noted[hints] != noted[mode]:
        detail = f"must match annotations[{hints}] when both are specified"
        return [invalid(f"metadata.annotations[{mode}]", noted[mode], detail)]
    return []


def _external_name(spec: Json) -> Errors:
    found: Errors = []
    for key in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(key) or (key == "clusterIPs" and spec.get("clusterIP")):
            found.append(forbidden(f"spec.{key}", "may not be set for ExternalName services"))
    name = spec.get("externalName", "").removesuffix(".")
    if not name:
        return [*found, required("spec.externalName")]
    return [*found, *malformed("spec.externalName", name, names.subdomain)]


def _affinity(spec: Json) -> Errors:
    affinity, config = spec.get("sessionAffinity", ""), spec.get("sessionAffinityConfig")
    path = "spec.sessionAffinityConfig"
    found: Errors = []
    found += one_of("spec.sessionAffinity", affinity, ("ClientIP", "None"))
    if affinity == "None" and config is not None:
        found.append(forbidden(path, "must not be set when session affinity is None"))
    if affinity == "ClientIP":
        seconds = ((config or {}).get("clientIP") or {}).get("timeoutSeconds", 10800)
        if not 0 < seconds <= 86400:
            detail = "must be greater than 0 and less than 86400"
            found.append(invalid(f"{path}.clientIP.timeoutSeconds", seconds, detail))
    return found


def _source_ranges(obj: Json, kind: str) -> Errors:
    ranges, key = (
        obj["spec"].get("loadBalancerSourceRanges") or [],
        "service.beta.kubernetes.io/load-balancer-source-ranges",
    )
    noted = obj["metadata"].get("annotations") or {}
    path = "spec.LoadBalancerSourceRanges"
    paths = [f"{path}[{index}]" for index, _ in enumerate(ranges)]
    if not ranges:
        if key not in noted:
            return []
        path = f"metadata.annotations[{key}]"
        ranges = [each for each in noted[key].strip().split(",") if noted[key].strip()]
        paths = [path for _ in ranges]
    found: Errors = []
    if kind != "LoadBalancer":
        found.append(forbidden(path, "may only be used when `type` is 'LoadBalancer'"))
    for here, block in zip(paths, ranges, strict=True):
        found += malformed(here, block.strip(), names.cidr)
    return found


def cluster_ips(spec: Json) -> Errors:
    """clusterIP with clusterIPs, ipFamilies with ipFamilyPolicy."""
    one, many, path = spec.get("clusterIP", ""), spec.get("clusterIPs") or [], "spec.clusterIPs"
    found: Errors = []
    if one and many and many[0] != one:
        found.append(invalid(path, many, "first value must match `clusterIP`"))
    elif many and not one:
        found.append(invalid(path, many, "must be empty when `clusterIP` is not specified"))
    families = spec.get("ipFamilies") or []
    for index, (family, again) in enumerate(zip(families, repeated(families), strict=True)):
        here = f"spec.ipFamilies[{index}]"
        found += supported(here, family, ("IPv4", "IPv6"))
        if again:
            found.append(duplicate(here, family))
    policy = spec.get("ipFamilyPolicy")
    found += supported_if_set("spec.ipFamilyPolicy", policy, _FAMILY_POLICIES)
    bad = False
    for index, address in enumerate(many):
        if index == 0 and address == "None":
            if len(many) > 1:
                bad = True
                found.append(invalid(path, many, "'None' must be the first and only value"))
            continue
        problems = malformed(f"{path}[{index}]", address, names.ip)
        bad = bad or bool(problems)
        found += problems
    if len(many) > 2:
        found.append(invalid(path, many, "may only hold up to 2 values"))
    if bad:
        return found
    if len(many) > 1 and len({":" in each for each in many}) < 2:
        found.append(invalid(path, many, "may specify no more than one IP for each IP family"))
    for index, (address, family) in enumerate(zip(many, families, strict=False)):
        if address != "None" and family in _FAMILIES and (family == "IPv6") != (":" in address):
            detail = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
            found.append(invalid(f"{path}[{index}]", address, detail))
    return found


def _traffic(spec: Json, kind: str) -> Errors:
    found: Errors = []
    policy = spec.get("externalTrafficPolicy", "")
    external = kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and spec.get("externalIPs"))
    path = "spec.externalTrafficPolicy"
    if not external:
        if policy:
            found.append(invalid(path, policy, "may only be set for externally-accessible services"))
    else:
        found += one_of(path, policy, ("Cluster", "Local"))
    checked, path = spec.get("healthCheckNodePort", 0), "spec.healthCheckNodePort"
    if checked and not _needs_check(spec):
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        found.append(invalid(path, checked, detail))
    elif checked:
        found += malformed(path, checked, names.port_number)
    internal = spec.get("internalTrafficPolicy")
    found += supported_if_set("spec.internalTrafficPolicy", internal, ("Cluster", "Local"))
    spread = spec.get("trafficDistribution")
    found += supported_if_set("spec.trafficDistribution", spread, _DISTRIBUTIONS)
    return found


def _port(port: Json, needs_name: bool, seen: set[str], path: str) -> Errors:
    found: Errors = []
    name = port.get("name", "")
    if needs_name and not name:
        found.append(required(f"{path}.name"))
    elif name:
        found += malformed(f"{path}.name", name, names.label)
        if name in seen:
            found.append(duplicate(f"{path}.name", name))
        seen.add(name)
    number = port.get("port", 0)
    found += malformed(f"{path}.port", number, names.port_number)
    protocol = port.get("protocol")
    found += supported(f"{path}.protocol", protocol, _PROTOCOLS)
    found += port_or_name(port.get("targetPort"), f"{path}.targetPort")
    if port.get("appProtocol") is not None:
        given = port["appProtocol"]
        found += malformed(f"{path}.appProtocol", given, names.qualified)
    return found


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


def endpoint_slice(new: Json, old: Json | None) -> Errors:
    fixed = immutable("addressType", new.get("addressType"), old.get("addressType")) if old is not None else []
    return [*_slice(new), *fixed]


def _slice(obj: Json) -> Errors:
    found: Errors = []
    kind = obj.get("addressType", "")
    found += one_of("addressType", kind, ("FQDN", "IPv4", "IPv6"))
    endpoints = obj.get("endpoints") or ()
    if len(endpoints) > 1000:
        found.append(too_many("endpoints", len(endpoints), 1000))
    for index, endpoint in enumerate(endpoints):
        found += _endpoint(endpoint, kind, f"endpoints[{index}]")
    seen: set[str] = set()
    for index, port in enumerate(obj.get("ports") or ()):
        name = port.get("name", "")
        if name:
            found += malformed(f"ports[{index}].name", name, names.label)
        if name in seen:
            found.append(duplicate(f"ports[{index}].name", name))
        seen.add(name)
        found += supported(f"ports[{index}].protocol", port.get("protocol"), _PROTOCOLS)
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
            problems = malformed(here, address, names.ip)
            if not problems and ipaddress.ip_address(address).version != (4 if kind == "IPv4" else 6):
                problems.append(invalid(f"{path}.addresses", address, f"must be an {kind} address"))
            found += problems or reachable(address, here)
        elif kind == "FQDN":
            found += malformed(here, address, names.subdomain)
    if endpoint.get("nodeName") is not None:
        name = endpoint["nodeName"]
        found += malformed(f"{path}.nodeName", name, names.subdomain)
    if endpoint.get("hostname") is not None:
        name = endpoint["hostname"]
        found += malformed(f"{path}.hostname", name, names.label)
    return found


# --- the old endpoints ------------------------------------------------------------------------------------------


def endpoints(new: Json, old: Json | None) -> Errors:
    is_same = old is not None and new.get("subsets") == old.get("subsets")
    return [] if is_same else _subsets(new.get("subsets") or ())


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
    found = malformed(f"{path}.ip", given, names.ip)
    if address.get("hostname"):
        found += malformed(f"{path}.hostname", address["hostname"], names.label)
    if address.get("nodeName") is not None:
        name = address["nodeName"]
        found += malformed(f"{path}.nodeName", name, names.subdomain)
    return [*found, *reachable(given, f"{path}.ip")]


def reachable(address: str, path: str, *, loopback: bool = True) -> Errors:
    """Refuse special-purpose addresses; loopback is allowed on the embedded cluster, unlike on a real one."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return [invalid(path, address, "must be a valid IP address")]
    if found.is_unspecified:
        return [invalid(path, address, f"may not be unspecified ({address})")]
    if found.is_loopback and not loopback:
        return [invalid(path, address, "may not be in the loopback range (127.0.0.0/8, ::1/128)")]
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
        found += malformed(f"{path}.name", name, names.label)
    number = port.get("port", 0)
    found += malformed(f"{path}.port", number, names.port_number)
    if not port.get("protocol"):
        found.append(required(f"{path}.protocol"))
    elif port["protocol"] not in _PROTOCOLS:
        found.append(not_supported(f"{path}.protocol", port["protocol"], _PROTOCOLS))
    if port.get("appProtocol") is not None:
        given = port["appProtocol"]
        found += malformed(f"{path}.appProtocol", given, names.qualified)
    return found


_LOCAL_GROUPS = {4: ipaddress.ip_network("224.0.0.0/24"), 6: ipaddress.ip_network("ff02::/16")}


def service_status(new: Json, old: Json) -> Errors:
    ingress = ((new.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    path = "status.loadBalancer.ingress"
    if ingress and new["spec"].get("type") != "LoadBalancer":
        return [forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")]
    before = ((old.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    known = {each.get("ip") for each in before}
    found: Errors = []
    for index, each in enumerate(ingress):
        here, address, mode, host = f"{path}[{index}]", each.get("ip"), each.get("ipMode"), each.get("hostname")
        if address and address not in known:
            found += malformed(f"{here}.ip", address, names.ip)
        if mode is not None and not address:
            found.append(forbidden(f"{here}.ipMode", "may not be specified when `ip` is not set"))
        elif mode is not None and mode not in ("Proxy", "VIP"):
            found.append(not_supported(f"{here}.ipMode", mode, ("Proxy", "VIP")))
        if host:
            found += malformed(f"{here}.hostname", host, names.subdomain)
            if not names.ip(host):
                found.append(invalid(f"{here}.hostname", host, "must be a DNS name, not an IP address"))
    return found
