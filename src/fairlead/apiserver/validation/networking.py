"""Validation of Ingresses, their classes and network policies."""

import ipaddress

from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.core.containers import port_or_name
from fairlead.apiserver.validation.errors import (
    Errors,
    Json,
    forbidden,
    immutable,
    invalid,
    malformed,
    mandatory,
    not_supported,
    required,
    supported,
    too_long,
)

_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")


def ingress(new: Json, old: Json | None) -> Errors:
    spec = new.get("spec") or {}
    found: Errors = []
    rules, backend = spec.get("rules") or (), spec.get("defaultBackend")
    if not rules and backend is None:
        found.append(invalid("spec", None, "either `defaultBackend` or `rules` must be specified"))
    if backend is not None:
        found += _backend(backend, "spec.defaultBackend")
    for index, rule in enumerate(rules):
        found += _rule(rule, f"spec.rules[{index}]")
    name = spec.get("ingressClassName")
    if name is not None:
        found += malformed("spec.ingressClassName", name, names.subdomain)
    return found


def _rule(rule: Json, path: str) -> Errors:
    found: Errors = []
    host = rule.get("host", "")
    if host:
        try:
            ipaddress.ip_address(host)
            found.append(invalid(f"{path}.host", host, "must be a DNS name, not an IP address"))
        except ValueError:
            found += [invalid(f"{path}.host", host, text) for text in names.subdomain(host.removeprefix("*."))]
    if rule.get("http") is None:
        return found
    paths = rule["http"].get("paths") or ()
    if not paths:
        found.append(required(f"{path}.http.paths"))
    for index, each in enumerate(paths):
        here = f"{path}.http.paths[{index}]"
        kind, text = each.get("pathType"), each.get("path", "")
        if kind is None:
            found.append(required(f"{here}.pathType", "pathType must be specified"))
        elif kind not in _PATH_TYPES:
            found.append(not_supported(f"{here}.pathType", kind, _PATH_TYPES))
        elif not text.startswith("/") and (text or kind != "ImplementationSpecific"):
            found.append(invalid(f"{here}.path", text, "must be an absolute path"))
        found += _backend(each.get("backend") or {}, f"{here}.backend")
    return found


def _backend(backend: Json, path: str) -> Errors:
    service, resource = backend.get("service"), backend.get("resource")
    if service is None and resource is None:
        return [invalid(path, "", "resource or service backend is required")]
    if service is not None and resource is not None:
        return [invalid(path, "", "cannot set both resource and service backends")]
    found: Errors = []
    if service is not None:
        name, port = service.get("name", ""), service.get("port") or {}
        found += mandatory(f"{path}.service.name", name, names.label)
        if port.get("name") and port.get("number"):
            found.append(invalid(path, "", "cannot set both port name & port number"))
        elif port.get("name"):
            here = f"{path}.service.port.name"
            found += malformed(here, port["name"], names.port_name)
        elif port.get("number"):
            here = f"{path}.service.port.number"
            found += malformed(here, port["number"], names.port_number)
        else:
            found.append(required(path, "port name or number is required"))
    return found


def _ingress_class(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], False, names.subdomain)
    spec = obj.get("spec") or {}
    controller = spec.get("controller", "")
    if len(controller) > 250:
        found.append(too_long("spec.controller", 250))
    found += names.domain_prefixed(controller, "spec.controller")
    if spec.get("parameters") is not None:
        found += _class_parameters(spec["parameters"], "spec.parameters")
    return found


def _class_parameters(given: Json, path: str) -> Errors:
    found: Errors = []
    if given.get("apiGroup") is not None:
        group = given["apiGroup"]
        found += malformed(f"{path}.apiGroup", group, names.subdomain)
    for key in ("kind", "name"):
        value = given.get(key, "")
        found += mandatory(f"{path}.{key}", value, names.path_segment)
    scope, space = given.get("scope"), given.get("namespace")
    if scope is None:
        return [*found, required(f"{path}.scope")]
    if scope not in ("Cluster", "Namespace"):
        return [*found, not_supported(f"{path}.scope", scope, ("Cluster", "Namespace"))]
    if scope == "Namespace":
        if space is None:
            return [*found, required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'")]
        return [*found, *malformed(f"{path}.namespace", space, names.label)]
    if space is not None:
        found.append(forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'"))
    return found


def ingress_class(new: Json, old: Json | None) -> Errors:
    if old is None:
        return _ingress_class(new)
    found = metadata.on_update(new["metadata"], old["metadata"])
    controllers = [(each.get("spec") or {}).get("controller") for each in (new, old)]
    return [*found, *immutable("spec.controller", *controllers), *_ingress_class(new)]


def network_policy(new: Json, old: Json | None) -> Errors:
    spec = new.get("spec") or {}
    found = metadata.selector(spec.get("podSelector"), "spec.podSelector")
    for direction, side in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction) or ()):
            path = f"spec.{direction}[{index}]"
            for at, port in enumerate(rule.get("ports") or ()):
                found += _policy_port(port, f"{path}.ports[{at}]")
            for at, peer in enumerate(rule.get(side) or ()):
                found += _peer(peer, f"{path}.{side}[{at}]")
    for index, kind in enumerate(spec.get("policyTypes") or ()):
        found += supported(f"spec.policyTypes[{index}]", kind, ("Ingress", "Egress"))
    return found


def _policy_port(port: Json, path: str) -> Errors:
    found: Errors = []
    found += supported(f"{path}.protocol", port.get("protocol"), ("TCP", "UDP", "SCTP"))
    if port.get("port") is not None:
        found += port_or_name(port["port"], f"{path}.port")
    return found


def _peer(peer: Json, path: str) -> Errors:
    found: Errors = []
    if not peer:
        return [required(path, "must specify a peer")]
    for key in ("podSelector", "namespaceSelector"):
        found += metadata.selector(peer.get(key), f"{path}.{key}")
    block = peer.get("ipBlock")
    if block is not None:
        if len(peer) > 1:
            found.append(forbidden(path, "may not specify both ipBlock and another peer"))
        cidr = block.get("cidr", "")
        try:
            ipaddress.ip_network(cidr, strict=False)
            whole = "/" in cidr
        except ValueError:
            whole = False
        if not cidr:
            found.append(required(f"{path}.ipBlock.cidr"))
        elif not whole:
            text = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            found.append(invalid(f"{path}.ipBlock.cidr", cidr, text))
    return found
