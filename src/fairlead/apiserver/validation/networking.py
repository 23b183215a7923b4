"""Validation of Ingresses, their classes and network policies."""

import ipaddress

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.core.containers import port_or_name
from fairlead.apiserver.validation.errors import Causes, Json

_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")


def ingress(new: Json, old: Json | None) -> Causes:
    spec = new.get("spec") or {}
    rules, backend = spec.get("rules") or (), spec.get("defaultBackend")
    if not rules and backend is None:
        yield field.invalid("spec", None, "either `defaultBackend` or `rules` must be specified")
    if backend is not None:
        yield from _backend(backend, "spec.defaultBackend")
    yield from field.each("spec.rules", rules, _rule)
    yield from field.malformed_if_set("spec.ingressClassName", spec.get("ingressClassName"), names.subdomain)


def _rule(rule: Json, path: str) -> Causes:
    host = rule.get("host", "")
    if host:
        try:
            ipaddress.ip_address(host)
            yield field.invalid(f"{path}.host", host, "must be a DNS name, not an IP address")
        except ValueError:
            yield from (field.invalid(f"{path}.host", host, text) for text in names.subdomain(host.removeprefix("*.")))
    if rule.get("http") is None:
        return
    paths = rule["http"].get("paths") or ()
    if not paths:
        yield field.required(f"{path}.http.paths")
    for index, each in enumerate(paths):
        here = f"{path}.http.paths[{index}]"
        kind, text = each.get("pathType"), each.get("path", "")
        if kind is None:
            yield field.required(f"{here}.pathType", "pathType must be specified")
        elif kind not in _PATH_TYPES:
            yield field.not_supported(f"{here}.pathType", kind, _PATH_TYPES)
        elif not text.startswith("/") and (text or kind != "ImplementationSpecific"):
            yield field.invalid(f"{here}.path", text, "must be an absolute path")
        yield from _backend(each.get("backend") or {}, f"{here}.backend")


def _backend(backend: Json, path: str) -> Causes:
    service, resource = backend.get("service"), backend.get("resource")
    if service is None and resource is None:
        yield field.invalid(path, "", "resource or service backend is required")
        return
    if service is not None and resource is not None:
        yield field.invalid(path, "", "cannot set both resource and service backends")
        return
    if service is not None:
        name, port = service.get("name", ""), service.get("port") or {}
        yield from field.mandatory(f"{path}.service.name", name, names.label)
        if port.get("name") and port.get("number"):
            yield field.invalid(path, "", "cannot set both port name & port number")
        elif port.get("name"):
            yield from field.malformed(f"{path}.service.port.name", port["name"], names.port_name)
        elif port.get("number"):
            yield from field.malformed(f"{path}.service.port.number", port["number"], names.port_number)
        else:
            yield field.required(path, "port name or number is required")


def ingress_class(new: Json, old: Json | None) -> Causes:
    spec = new.get("spec") or {}
    if old is not None:
        yield from metadata.on_update(new["metadata"], old["metadata"])
        before = (old.get("spec") or {}).get("controller")
        yield from field.immutable("spec.controller", spec.get("controller"), before)
    # The rules of a new one apply too.
    yield from metadata.on_create(new["metadata"], False, names.subdomain)
    controller = spec.get("controller", "")
    if len(controller) > 250:
        yield field.too_long("spec.controller", 250)
    yield from names.domain_prefixed(controller, "spec.controller")
    if spec.get("parameters") is not None:
        yield from _class_parameters(spec["parameters"], "spec.parameters")


def _class_parameters(given: Json, path: str) -> Causes:
    yield from field.malformed_if_set(f"{path}.apiGroup", given.get("apiGroup"), names.subdomain)
    for key in ("kind", "name"):
        yield from field.mandatory(f"{path}.{key}", given.get(key, ""), names.path_segment)
    scope, space = given.get("scope"), given.get("namespace")
    if scope is None:
        yield field.required(f"{path}.scope")
    elif scope not in ("Cluster", "Namespace"):
        yield field.not_supported(f"{path}.scope", scope, ("Cluster", "Namespace"))
    elif scope == "Cluster" and space is not None:
        yield field.forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'")
    elif scope == "Namespace" and space is None:
        yield field.required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'")
    elif scope == "Namespace":
        yield from field.malformed(f"{path}.namespace", space, names.label)


def network_policy(new: Json, old: Json | None) -> Causes:
    spec = new.get("spec") or {}
    yield from metadata.selector(spec.get("podSelector"), "spec.podSelector")
    for direction, side in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction) or ()):
            path = f"spec.{direction}[{index}]"
            yield from field.each(f"{path}.ports", rule.get("ports"), _policy_port)
            yield from field.each(f"{path}.{side}", rule.get(side), _peer)
    for index, kind in enumerate(spec.get("policyTypes") or ()):
        yield from field.supported(f"spec.policyTypes[{index}]", kind, ("Ingress", "Egress"))


def _policy_port(port: Json, path: str) -> Causes:
    yield from field.supported(f"{path}.protocol", port.get("protocol"), ("TCP", "UDP", "SCTP"))
    if port.get("port") is not None:
        yield from port_or_name(port["port"], f"{path}.port")


def _peer(peer: Json, path: str) -> Causes:
    if not peer:
        yield field.required(path, "must specify a peer")
        return
    for key in ("podSelector", "namespaceSelector"):
        yield from metadata.selector(peer.get(key), f"{path}.{key}")
    block = peer.get("ipBlock")
    if block is not None:
        if len(peer) > 1:
            yield field.forbidden(path, "may not specify both ipBlock and another peer")
        cidr = block.get("cidr", "")
        try:
            ipaddress.ip_network(cidr, strict=False)
            whole = "/" in cidr
        except ValueError:
            whole = False
        if not cidr:
            yield field.required(f"{path}.ipBlock.cidr")
        elif not whole:
            text = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            yield field.invalid(f"{path}.ipBlock.cidr", cidr, text)
