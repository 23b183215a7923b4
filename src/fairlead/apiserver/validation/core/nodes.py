"""Validation of nodes."""

import re
from typing import Any

from fairlead.apiserver.json_values import token
from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.core import scheduling as placing
from fairlead.apiserver.validation.errors import Causes, Json
from fairlead.apiserver.validation.quantities import amount


def node(new: Json, old: Json | None) -> Causes:
    yield from metadata.on_create(new["metadata"], False, names.subdomain)
    yield from _node(new)
    if old is None:
        return
    # The rules of a new node apply too.
    yield from metadata.on_update(new["metadata"], old["metadata"])
    yield from node_change(new, old)


def _node(obj: Json) -> Causes:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    yield from placing.taints(spec.get("taints") or [], "metadata.taints")
    yield from _node_resources(status)
    yield from declared_features(status.get("declaredFeatures") or [])
    blocks = spec.get("podCIDRs") or []
    for index, block in enumerate(blocks):
        yield from field.malformed(f"spec.podCIDRs[{index}]", block, names.cidr)
    if len(blocks) > 1 and (len(blocks) > 2 or len({":" in block for block in blocks}) < 2):
        yield field.invalid("spec.podCIDRs", blocks, "may specify no more than one CIDR for each IP family")


def _node_resources(status: Json) -> Causes:
    for key in ("capacity", "allocatable"):
        for name, quantity in (status.get(key) or {}).items():
            yield from amount(name, quantity, f"status.{key}.{name}")


def declared_features(given: list[str]) -> Causes:
    for index, name in enumerate(given):
        path = f"status.declaredFeatures[{index}]"
        if not re.fullmatch(r"[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*", name):
            detail = (
                f'invalid feature name "{name}": must start with an UpperCamelCase segment, with subsequent segments '
                "separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric "
                "characters and slashes"
            )
            yield field.invalid(path, name, detail)
        if index + 1 < len(given):
            after, path = given[index + 1], f"status.declaredFeatures[{index + 1}]"
            if name == after:
                yield field.duplicate(path, after)
            elif name > after:
                yield field.invalid(path, after, "list must be sorted alphabetically")


def node_change(new: Json, old: Json) -> Causes:
    status = new.get("status") or {}
    yield from _node_resources(status)
    yield from declared_features(status.get("declaredFeatures") or [])
    seen: set[Any] = set()
    for index, address in enumerate(status.get("addresses") or ()):
        if token(address) in seen:
            shown = {"Type": address.get("type", ""), "Address": address.get("address", "")}
            yield field.duplicate(f"status.addresses[{index}]", shown)
        seen.add(token(address))
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if before.get("podCIDRs") and spec.get("podCIDRs") != before["podCIDRs"]:
        yield field.forbidden("spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid')
    if before.get("providerID") and spec.get("providerID") != before["providerID"]:
        yield field.forbidden("spec.providerID", 'node updates may not change providerID except from "" to valid')
    yield from placing.taints(spec.get("taints") or [], "metadata.taints")
    if spec.get("externalID") != before.get("externalID"):
        yield field.forbidden("spec.externalID", "may not be updated")
