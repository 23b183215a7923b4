"""Validation of Services and of what routes to pods."""

import ipaddress
from collections.abc import Sequence

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.core.containers import port_or_name
from fairlead.apiserver.validation.errors import Causes, Errors, Json

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_FAMILIES = ("IPv4", "IPv6")
_FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
_DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def service(new: Json, old: Json | None) -> Causes:
    if old is None:
        yield from _spec(new)
        return
    before = old["spec"]
    spec = _one_address(new["spec"], before)
    if "ExternalName" not in (spec.get("type"), before.get("type")):
        yield from _same_addresses(spec, before)
        yield from _same_families(spec, before)
    yield from _balancer_class(spec, before)
    both = _needs_check(spec) and _needs_check(before)
    if both and spec.get("healthCheckNodePort") != before.get("healthCheckNodePort"):
        yield field.forbidden("spec.healthCheckNodePort", "field is immutable")
    yield from _spec({**new, "spec": spec})


def _one_address(spec: Json, before: Json) -> Json:
    """The spec with clusterIPs set to clusterIP, where only the latter was changed."""
    one, many = spec.get("clusterIP"), spec.get("clusterIPs")
    if one == before.get("clusterIP") or many != before.get("clusterIPs"):
        return spec
    return {**spec, "clusterIPs": [one] if one else []}


def _headless(spec: Json) -> bool:
    return (spec.get("clusterIPs") or [spec.get("clusterIP")]) == ["None"]


def _same_addresses(spec: Json, before: Json) -> Causes:
    if _headless(spec) and _headless(before):
        return
    path, has, had = "spec.clusterIPs", spec.get("clusterIPs") or [], before.get("clusterIPs") or []
    shown = has or None
    if len(has) == len(had):
        detail = "may not change once set"
        yield from (field.invalid(f"{path}[{at}]", shown, detail) for at, one in enumerate(had) if one != has[at])
        return
    if not has:
        yield field.invalid(f"{path}[0]", shown, "primary clusterIP can not be unset")
    if has and had and has[0] != had[0]:
        yield field.invalid(f"{path}[0]", shown, "may not change once set")
    if len(has) == 1 and len(had) > 1 and spec.get("ipFamilyPolicy") != "SingleStack":
        detail = "must be set to 'SingleStack' when releasing the secondary clusterIP"
        yield field.invalid("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), detail)


def _same_families(spec: Json, before: Json) -> Errors:
    if _headless(spec) or _headless(before):
        return []
    has, had = spec.get("ipFamilies") or [], before.get("ipFamilies") or []
    path = "spec.ipFamilies[0]"
    if len(has) == len(had):
        return [field.invalid(path, has, "may not change once set") for at, one in enumerate(had) if one != has[at]]
    if has and had and has[0] != had[0]:
        return [field.invalid(path, spec.get("clusterIPs"), "may not change once set")]
    return []


def _balancer_class(spec: Json, before: Json | None) -> Causes:
    path, class_name = "spec.loadBalancerClass", spec.get("loadBalancerClass")
    balanced = spec.get("type") == "LoadBalancer"
    both = before is not None and balanced and before.get("type") == "LoadBalancer"
    if both and before is not None and before.get("loadBalancerClass") != class_name:
        yield field.invalid(path, class_name, "may not change once set")
    if class_name is not None:
        if balanced:
            yield from field.malformed(path, class_name, names.qualified)
        else:
            yield field.forbidden(path, "may only be used when `type` is 'LoadBalancer'")


def _needs_check(spec: Json) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _spec(obj: Json) -> Causes:
    spec = obj["spec"]
    yield from _topology(obj["metadata"].get("annotations") or {})
    kind = spec.get("type", "")
    headless = _headless(spec)
    ports = spec.get("ports") or []
    if not ports and not headless and kind != "ExternalName":
        yield field.required("spec.ports")
    if kind in ("LoadBalancer", "NodePort") and headless:
        yield field.invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    if kind == "ExternalName":
        yield from _external_name(spec)
    seen: set[str] = set()
    for index, port in enumerate(ports):
        yield from _port(port, len(ports) > 1, seen, f"spec.ports[{index}]")
    yield from metadata.labels(spec.get("selector") or {}, "spec.selector")
    yield from _affinity(spec)
    if kind != "ExternalName":
        yield from cluster_ips(spec)
    for index, address in enumerate(spec.get("externalIPs") or ()):
        path = f"spec.externalIPs[{index}]"
        problems = field.malformed(path, address, names.ip)
        yield from problems or reachable(address, path, loopback=False)
    yield from field.one_of("spec.type", kind, _TYPES)
    if kind == "ClusterIP":
        for index, port in enumerate(ports):
            if port.get("nodePort"):
                path = f"spec.ports[{index}].nodePort"
                yield field.forbidden(path, "may not be used when `type` is 'ClusterIP'")
    yield from _repeated(ports)
    yield from _source_ranges(obj, kind)
    if "allocateLoadBalancerNodePorts" in spec and kind != "LoadBalancer":
        path = "spec.allocateLoadBalancerNodePorts"
        yield field.forbidden(path, "may only be used when `type` is 'LoadBalancer'")
    yield from _balancer_class(spec, None)
    yield from _traffic(spec, kind)


def _topology(noted: Json) -> Errors:
    hints, mode = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
    if hints in noted and mode in noted and noted[hints] != noted[mode]:
        detail = f"must match annotations[{hints}] when both are specified"
        return [field.invalid(f"metadata.annotations[{mode}]", noted[mode], detail)]
    return []


def _external_name(spec: Json) -> Causes:
    for key in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(key) or (key == "clusterIPs" and spec.get("clusterIP")):
            yield field.forbidden(f"spec.{key}", "may not be set for ExternalName services")
    yield from field.mandatory("spec.externalName", spec.get("externalName", "").removesuffix("."), names.subdomain)


def _affinity(spec: Json) -> Causes:
    affinity, config = spec.get("sessionAffinity", ""), spec.get("sessionAffinityConfig")
    path = "spec.sessionAffinityConfig"
    yield from field.one_of("spec.sessionAffinity", affinity, ("ClientIP", "None"))
    if affinity == "None" and config is not None:
        yield field.forbidden(path, "must not be set when session affinity is None")
    if affinity == "ClientIP":
        seconds = ((config or {}).get("clientIP") or {}).get("timeoutSeconds", 10800)
        if not 0 < seconds <= 86400:
            detail = "must be greater than 0 and less than 86400"
            yield field.invalid(f"{path}.clientIP.timeoutSeconds", seconds, detail)


def _source_ranges(obj: Json, kind: str) -> Causes:
    ranges = obj["spec"].get("loadBalancerSourceRanges") or []
    key = "service.beta.kubernetes.io/load-balancer-source-ranges"
    noted = obj["metadata"].get("annotations") or {}
    path = "spec.LoadBalancerSourceRanges"
    paths = [f"{path}[{index}]" for index, _ in enumerate(ranges)]
    if not ranges:
        if key not in noted:
            return
        path = f"metadata.annotations[{key}]"
        ranges = [each for each in noted[key].strip().split(",") if noted[key].strip()]
        paths = [path for _ in ranges]
    if kind != "LoadBalancer":
        yield field.forbidden(path, "may only be used when `type` is 'LoadBalancer'")
    for here, block in zip(paths, ranges, strict=True):
        yield from field.malformed(here, block.strip(), names.cidr)


def cluster_ips(spec: Json) -> Causes:
    """clusterIP with clusterIPs, ipFamilies with ipFamilyPolicy."""
    one, many, path = spec.get("clusterIP", ""), spec.get("clusterIPs") or [], "spec.clusterIPs"
    if one and many and many[0] != one:
        yield field.invalid(path, many, "first value must match `clusterIP`")
    elif many and not one:
        yield field.invalid(path, many, "must be empty when `clusterIP` is not specified")
    families = spec.get("ipFamilies") or []
    for index, (family, again) in enumerate(zip(families, field.repeated(families), strict=True)):
        here = f"spec.ipFamilies[{index}]"
        yield from field.supported(here, family, ("IPv4", "IPv6"))
        if again:
            yield field.duplicate(here, family)
    yield from field.supported_if_set("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), _FAMILY_POLICIES)
    bad = False
    for index, address in enumerate(many):
        if index == 0 and address == "None":
            if len(many) > 1:
                bad = True
                yield field.invalid(path, many, "'None' must be the first and only value")
            continue
        problems = field.malformed(f"{path}[{index}]", address, names.ip)
        bad = bad or bool(problems)
        yield from problems
    if len(many) > 2:
        yield field.invalid(path, many, "may only hold up to 2 values")
    if bad:
        return
    if len(many) > 1 and len({":" in each for each in many}) < 2:
        yield field.invalid(path, many, "may specify no more than one IP for each IP family")
    for index, (address, family) in enumerate(zip(many, families, strict=False)):
        if address != "None" and family in _FAMILIES and (family == "IPv6") != (":" in address):
            detail = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
            yield field.invalid(f"{path}[{index}]", address, detail)


def _traffic(spec: Json, kind: str) -> Causes:
    policy = spec.get("externalTrafficPolicy", "")
    external = kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and spec.get("externalIPs"))
    path = "spec.externalTrafficPolicy"
    if not external:
        if policy:
            yield field.invalid(path, policy, "may only be set for externally-accessible services")
    else:
        yield from field.one_of(path, policy, ("Cluster", "Local"))
    checked, path = spec.get("healthCheckNodePort", 0), "spec.healthCheckNodePort"
    if checked and not _needs_check(spec):
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        yield field.invalid(path, checked, detail)
    elif checked:
        yield from field.malformed(path, checked, names.port_number)
    inside = spec.get("internalTrafficPolicy")
    yield from field.supported_if_set("spec.internalTrafficPolicy", inside, ("Cluster", "Local"))
    yield from field.supported_if_set("spec.trafficDistribution", spec.get("trafficDistribution"), _DISTRIBUTIONS)


def _port(port: Json, needs_name: bool, seen: set[str], path: str) -> Causes:
    name = port.get("name", "")
    if needs_name and not name:
        yield field.required(f"{path}.name")
    elif name:
        yield from field.malformed(f"{path}.name", name, names.label)
        yield from field.unique(seen, f"{path}.name", name)
    yield from field.malformed(f"{path}.port", port.get("port", 0), names.port_number)
    yield from field.supported(f"{path}.protocol", port.get("protocol"), _PROTOCOLS)
    yield from port_or_name(port.get("targetPort"), f"{path}.targetPort")
    yield from field.malformed_if_set(f"{path}.appProtocol", port.get("appProtocol"), names.qualified)


def _repeated(ports: list[Json]) -> Causes:
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        if port.get("nodePort"):
            key = (port.get("protocol", ""), port["nodePort"])
            if key in seen:
                yield field.duplicate(f"spec.ports[{index}].nodePort", port["nodePort"])
            seen.add(key)
    seen = set()
    for index, port in enumerate(ports):
        key = (port.get("protocol", ""), port.get("port", 0))
        if key in seen:
            # The server prints its own struct.
            shown = {"Name": "", "Protocol": key[0], "AppProtocol": None, "Port": key[1]}
            shown |= {"TargetPort": 0, "NodePort": 0}
            yield field.duplicate(f"spec.ports[{index}]", shown)
        seen.add(key)


def endpoint_slice(new: Json, old: Json | None) -> Errors:
    fixed = field.immutable("addressType", new.get("addressType"), old.get("addressType")) if old is not None else []
    return [*_slice(new), *fixed]


def _slice(obj: Json) -> Causes:
    kind = obj.get("addressType", "")
    yield from field.one_of("addressType", kind, ("FQDN", "IPv4", "IPv6"))
    endpoints = obj.get("endpoints") or ()
    if len(endpoints) > 1000:
        yield field.too_many("endpoints", len(endpoints), 1000)
    yield from field.each("endpoints", endpoints, lambda endpoint, path: _endpoint(endpoint, kind, path))
    seen: set[str] = set()
    for index, port in enumerate(obj.get("ports") or ()):
        name = port.get("name", "")
        yield from field.optional(f"ports[{index}].name", name, names.label)
        yield from field.unique(seen, f"ports[{index}].name", name)
        yield from field.supported(f"ports[{index}].protocol", port.get("protocol"), _PROTOCOLS)


def _endpoint(endpoint: Json, kind: str, path: str) -> Causes:
    addresses = endpoint.get("addresses") or ()
    if not addresses:
        yield field.required(f"{path}.addresses", "must contain at least 1 address")
    elif len(addresses) > 100:
        yield field.too_many(f"{path}.addresses", len(addresses), 100)
    for index, address in enumerate(addresses):
        here = f"{path}.addresses[{index}]"
        if kind in ("IPv4", "IPv6"):
            problems = field.malformed(here, address, names.ip)
            if not problems and ipaddress.ip_address(address).version != (4 if kind == "IPv4" else 6):
                problems.append(field.invalid(f"{path}.addresses", address, f"must be an {kind} address"))
            yield from problems or reachable(address, here)
        elif kind == "FQDN":
            yield from field.malformed(here, address, names.subdomain)
    yield from field.malformed_if_set(f"{path}.nodeName", endpoint.get("nodeName"), names.subdomain)
    yield from field.malformed_if_set(f"{path}.hostname", endpoint.get("hostname"), names.label)


# --- the old endpoints ------------------------------------------------------------------------------------------


def endpoints(new: Json, old: Json | None) -> Causes:
    is_same = old is not None and new.get("subsets") == old.get("subsets")
    return [] if is_same else _subsets(new.get("subsets") or ())


def _subsets(subsets: Sequence[Json]) -> Causes:
    for index, subset in enumerate(subsets):
        path = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            yield field.required(path, "must specify `addresses` or `notReadyAddresses`")
        for key in ("addresses", "notReadyAddresses"):
            yield from field.each(f"{path}.{key}", subset.get(key), _address)
        ports = subset.get("ports") or ()
        for at, port in enumerate(ports):
            yield from _endpoint_port(port, len(ports) > 1, f"{path}.ports[{at}]")


def _address(address: Json, path: str) -> Causes:
    given = address.get("ip", "")
    yield from field.malformed(f"{path}.ip", given, names.ip)
    yield from field.optional(f"{path}.hostname", address.get("hostname"), names.label)
    yield from field.malformed_if_set(f"{path}.nodeName", address.get("nodeName"), names.subdomain)
    yield from reachable(given, f"{path}.ip")


def reachable(address: str, path: str, *, loopback: bool = True) -> Errors:
    """Refuse special-purpose addresses; loopback is allowed on the embedded cluster, unlike on a real one."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return [field.invalid(path, address, "must be a valid IP address")]
    if found.is_unspecified:
        return [field.invalid(path, address, f"may not be unspecified ({address})")]
    if found.is_loopback and not loopback:
        return [field.invalid(path, address, "may not be in the loopback range (127.0.0.0/8, ::1/128)")]
    if found.is_link_local:
        return [field.invalid(path, address, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")]
    if found in _LOCAL_GROUPS[found.version]:
        text = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
        return [field.invalid(path, address, text)]
    return []


def _endpoint_port(port: Json, needs_name: bool, path: str) -> Causes:
    name = port.get("name", "")
    if needs_name and not name:
        yield field.required(f"{path}.name")
    elif name:
        yield from field.malformed(f"{path}.name", name, names.label)
    yield from field.malformed(f"{path}.port", port.get("port", 0), names.port_number)
    yield from field.one_of(f"{path}.protocol", port.get("protocol"), _PROTOCOLS)
    yield from field.malformed_if_set(f"{path}.appProtocol", port.get("appProtocol"), names.qualified)


_LOCAL_GROUPS = {4: ipaddress.ip_network("224.0.0.0/24"), 6: ipaddress.ip_network("ff02::/16")}


def service_status(new: Json, old: Json) -> Causes:
    ingress = ((new.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    path = "status.loadBalancer.ingress"
    if ingress and new["spec"].get("type") != "LoadBalancer":
        yield field.forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")
        return
    before = ((old.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    known = {each.get("ip") for each in before}
    for index, each in enumerate(ingress):
        here, address, mode, host = f"{path}[{index}]", each.get("ip"), each.get("ipMode"), each.get("hostname")
        if address and address not in known:
            yield from field.malformed(f"{here}.ip", address, names.ip)
        if mode is not None and not address:
            yield field.forbidden(f"{here}.ipMode", "may not be specified when `ip` is not set")
        else:
            yield from field.supported_if_set(f"{here}.ipMode", mode, ("Proxy", "VIP"))
        yield from field.optional(f"{here}.hostname", host, names.subdomain)
        if host and not names.ip(host):
            yield field.invalid(f"{here}.hostname", host, "must be a DNS name, not an IP address")
