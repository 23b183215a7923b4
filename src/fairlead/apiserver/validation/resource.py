"""Validation of claims to devices, their templates, device classes and the slices that offer devices."""

import re
from collections.abc import Callable
from typing import Any

from fairlead.apiserver.cel import syntax as cel_syntax
from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.core import scheduling as placing
from fairlead.apiserver.validation.errors import Causes, Errors, Json
from fairlead.apiserver.validation.storage import driver_name

_MOST = 32  # requests, constraints, configurations, selectors
_MOST_ALTERNATIVES = 8
_MOST_DEVICES = 128
_MOST_TEXT = 64
_MOST_POOL_NAME = 253
_MOST_RULE = 10 * 1024
_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
    r"(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ONE_REQUEST = "exactly one of `exactly` or `firstAvailable` is required"
_WHERE = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_A_REQUEST = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"


def claim(new: Json, old: Json | None) -> Causes:
    return _claim_spec(new.get("spec") or {}, "spec") if old is None else _same_spec(new, old)


def template(new: Json, old: Json | None) -> Causes:
    if old is not None:
        yield from _same_spec(new, old)
        return
    spec = new.get("spec") or {}
    meta = spec.get("metadata") or {}
    yield from metadata.labels(meta.get("labels") or {}, "spec.metadata.labels")
    yield from metadata.annotations(meta.get("annotations") or {}, "spec.metadata.annotations")
    yield from _claim_spec(spec.get("spec") or {}, "spec.spec")


def _same_spec(new: Json, old: Json) -> Errors:
    return field.immutable("spec", new.get("spec"), old.get("spec"))


def device_class(new: Json, old: Json | None) -> Causes:
    spec = new.get("spec") or {}
    yield from _each(spec.get("selectors"), _MOST, _selector, "spec.selectors")
    yield from _each(spec.get("config"), _MOST, _configuration, "spec.config")


# --- claims -----------------------------------------------------------------------------------------------------


def _claim_spec(spec: Json, path: str) -> Causes:
    devices, here = spec.get("devices") or {}, f"{path}.devices"
    known = _request_names(devices)
    yield from _each(devices.get("requests"), _MOST, _request, f"{here}.requests")
    yield from _unique(devices.get("requests"), "name", f"{here}.requests")
    yield from _each(
        devices.get("constraints"), _MOST, lambda each, at: _constraint(each, at, known), f"{here}.constraints"
    )

    def configuration(each: Json, at: str) -> Causes:
        yield from _references(each.get("requests"), known, f"{at}.requests")
        yield from _configuration(each, at)

    yield from _each(devices.get("config"), _MOST, configuration, f"{here}.config")


def _request_names(devices: Json) -> set[str]:
    known: set[str] = set()
    for request in devices.get("requests") or ():
        known.add(request.get("name", ""))
        known |= {f"{request.get('name', '')}/{each.get('name', '')}" for each in request.get("firstAvailable") or ()}
    return known


def _request(request: Json, path: str) -> Causes:
    yield from _label(request.get("name", ""), f"{path}.name")
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable")
    if exactly is None and not alternatives:
        yield field.required(path, _ONE_REQUEST)
    elif exactly is not None and alternatives:
        yield field.invalid(path, None, f"{_ONE_REQUEST}, but multiple fields are set")
    elif alternatives:
        yield from _each(alternatives, _MOST_ALTERNATIVES, _alternative, f"{path}.firstAvailable")
        yield from _unique(alternatives, "name", f"{path}.firstAvailable")
    else:
        yield from _device_request(exactly or {}, f"{path}.exactly")


def _alternative(request: Json, path: str) -> Causes:
    yield from _label(request.get("name", ""), f"{path}.name")
    yield from _device_request(request, path)


def _device_request(request: Json, path: str) -> Causes:
    name = request.get("deviceClassName", "")
    yield from field.mandatory(f"{path}.deviceClassName", name, names.subdomain)
    yield from _each(request.get("selectors"), _MOST, _selector, f"{path}.selectors")
    count = request.get("count", 0)
    match request.get("allocationMode"):
        case "All":
            if count:
                yield field.invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'")
        case "ExactCount":
            if count <= 0:
                yield field.invalid(f"{path}.count", count, "must be greater than zero")
        case mode:
            yield field.not_supported(f"{path}.allocationMode", mode or "", ("All", "ExactCount"))


def _selector(selector: Json, path: str) -> Errors:
    rule = selector.get("cel")
    if rule is None:
        return [field.required(f"{path}.cel")]
    text, here = rule.get("expression", ""), f"{path}.cel.expression"
    if len(text.encode()) > _MOST_RULE:
        return [field.too_long(here, _MOST_RULE)]
    try:
        cel_syntax.parse(text)
    except cel_syntax.SyntaxMistake as problem:
        return [field.invalid(here, text, f"compilation failed: {cel_syntax.pointed(text, problem.at, str(problem))}")]
    return []


def _constraint(constraint: Json, path: str, known: set[str]) -> Causes:
    yield from _references(constraint.get("requests"), known, f"{path}.requests")
    attribute = constraint.get("matchAttribute")
    if attribute is None and constraint.get("distinctAttribute") is None:
        text = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        yield field.required(path, text)
    elif attribute is not None:
        if "/" not in attribute:
            text = "a fully qualified name must be a domain and a name separated by a slash"
            yield field.invalid(f"{path}.matchAttribute", attribute, text)
        else:
            yield from _qualified(attribute, f"{path}.matchAttribute")


def _references(given: list[str] | None, known: set[str], path: str) -> Causes:
    seen: set[str] = set()
    for index, name in enumerate(given or ()):
        here = f"{path}[{index}]"
        parts = name.split("/")
        if len(parts) <= 2:
            yield from (each for part in parts for each in _label(part, here))
        if name not in known:
            yield field.invalid(here, name, _A_REQUEST)
        yield from field.unique(seen, here, name)


def _configuration(config: Json, path: str) -> Causes:
    opaque = config.get("opaque")
    if opaque is None:
        yield field.required(f"{path}.opaque")
        return
    yield from driver_name(opaque.get("driver", ""), f"{path}.opaque.driver")
    parameters = opaque.get("parameters")
    if parameters is None:
        yield field.required(f"{path}.opaque.parameters")
    elif not isinstance(parameters, dict):
        yield field.invalid(f"{path}.opaque.parameters", "<value omitted>", "must be a valid JSON object")


# --- slices -----------------------------------------------------------------------------------------------------


def device_slice(new: Json, old: Json | None) -> Causes:
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    yield from driver_name(spec.get("driver", ""), "spec.driver")
    pool = spec.get("pool") or {}
    yield from _pool(pool, "spec.pool")
    if old is not None:
        yield from field.immutable("spec.pool.name", pool.get("name"), (before.get("pool") or {}).get("name"))
        for key in ("driver", "nodeName"):
            yield from field.immutable(f"spec.{key}", spec.get(key), before.get(key))
    yield from _where(spec)
    yield from _each(spec.get("devices"), _MOST_DEVICES, lambda each, at: _device(each, at, spec), "spec.devices")
    yield from _unique(spec.get("devices"), "name", "spec.devices")


def _pool(pool: Json, path: str) -> Causes:
    name = pool.get("name", "")
    if not name:
        yield field.required(f"{path}.name")
    else:
        if len(name) > _MOST_POOL_NAME:
            yield field.too_long(f"{path}.name", _MOST_POOL_NAME)
        for part in name.split("/"):
            yield from field.malformed(f"{path}.name", part, names.subdomain)
    if pool.get("resourceSliceCount", 0) <= 0:
        count = pool.get("resourceSliceCount", 0)
        yield field.invalid(f"{path}.resourceSliceCount", count, "must be greater than zero")
    if pool.get("generation", 0) < 0:
        yield field.invalid(f"{path}.generation", pool["generation"], "must be greater than or equal to zero")


def _where(spec: Json) -> Causes:
    given: list[str] = []
    node = spec.get("nodeName")
    if node:
        given.append("`nodeName`")
        yield from field.malformed("spec.nodeName", node, names.subdomain)
    elif node is not None:
        yield field.invalid("spec.nodeName", node, "must be either unset or set to a non-empty string")
    selector = spec.get("nodeSelector")
    if selector is not None:
        given.append("`nodeSelector`")
        yield from placing.node_selector(selector, "spec.nodeSelector")
        terms = selector.get("nodeSelectorTerms") or []
        if len(terms) != 1:
            text = "must have exactly one node selector term"
            yield field.invalid("spec.nodeSelector.nodeSelectorTerms", terms, text)
    for key in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(key):
            given.append(f"`{key}`")
        elif spec.get(key) is not None:
            yield field.invalid(f"spec.{key}", spec[key], "must be either unset or set to true")
    if not given:
        yield field.required("spec", _WHERE)
    elif len(given) > 1:
        yield field.invalid("spec", f"{{{', '.join(given)}}}", f"{_WHERE}, but multiple fields are set")


def _device(device: Json, path: str, spec: Json) -> Causes:
    yield from _label(device.get("name", ""), f"{path}.name")
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if len(attributes) + len(capacity) > _MOST:
        text = f"the total number of attributes and capacities must not exceed {_MOST}"
        yield field.invalid(path, len(attributes) + len(capacity), text)
    for key, attribute in attributes.items():
        yield from _qualified(key, f"{path}.attributes")
        yield from _attribute(attribute, f"{path}.attributes[{key}]")
    for key in capacity:
        yield from _qualified(key, f"{path}.capacity")
    if not spec.get("perDeviceNodeSelection") and any(
        device.get(key) is not None for key in ("nodeName", "nodeSelector", "allNodes")
    ):
        text = (
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in "
            "the ResourceSlice spec"
        )
        yield field.invalid(path, None, text)


def _attribute(attribute: Json, path: str) -> Causes:
    text, version = attribute.get("string"), attribute.get("version")
    if text is not None and len(text.encode()) > _MOST_TEXT:
        yield field.too_long(f"{path}.string", _MOST_TEXT)
    if version is not None:
        if not _VERSION.fullmatch(version):
            yield field.invalid(f"{path}.version", version, "must be a string compatible with semver.org spec 2.0.0")
        if len(version.encode()) > _MOST_TEXT:
            yield field.too_long(f"{path}.version", _MOST_TEXT)
    if not attribute:
        yield field.invalid(path, "", "exactly one value must be specified")
    elif len(attribute) > 1:
        # The server prints its own struct.
        shown = {f"{key.title()}Value": attribute.get(key) for key in ("int", "bool", "string", "version")}
        yield field.invalid(path, shown, "exactly one value must be specified")


# --- small ------------------------------------------------------------------------------------------------------


def _label(name: str, path: str) -> Errors:
    return field.malformed(path, name, names.label)


def _qualified(name: str, path: str) -> Causes:
    domain, slash, identifier = name.rpartition("/")
    if slash and not domain:
        yield field.required(path, "the domain must not be empty")
    elif slash:
        yield from field.malformed(path, domain, names.subdomain)
    if not identifier:
        yield field.required(path, "the name must not be empty")
    elif not _IDENTIFIER.fullmatch(identifier):
        text = (
            "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
            "characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is "
            "'[A-Za-z_][A-Za-z0-9_]*')"
        )
        yield field.invalid(path, identifier, text)


def _each(items: list[Any] | None, most: int, check: Callable[[Any, str], Causes], path: str) -> Causes:
    yield from field.each(path, items, check)
    if items and len(items) > most:
        yield field.too_many(path, len(items), most)


def _unique(items: list[Json] | None, key: str, path: str) -> Causes:
    seen: set[str] = set()
    for index, item in enumerate(items or ()):
        name = item.get(key, "")
        yield from field.unique(seen, f"{path}[{index}]", name)
