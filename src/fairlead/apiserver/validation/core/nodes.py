"""Validation of nodes."""

import re
from typing import Any

from fairlead.apiserver.json_values import token
from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.core import scheduling as placing
from fairlead.apiserver.validation.errors import Errors, Json, duplicate, forbidden, invalid, malformed
from fairlead.apiserver.validation.quantities import amount


def node(new: Json, old: Json | None) -> Errors:
    found = [*metadata.on_create(new["metadata"], False, names.subdomain), *_node(new)]
    if old is None:
        return found
    # The rules of a new node apply too.
    return [*found, *metadata.on_update(new["metadata"], old["metadata"]), *node_change(new, old)]


def _node(obj: Json) -> Errors:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    found = placing.taints(spec.get("taints") or [], "metadata.taints")
    found += _node_resources(status)
    found += declared_features(status.get("declaredFeatures") or [])
    blocks = spec.get("podCIDRs") or []
    for index, block in enumerate(blocks):
        found += malformed(f"spec.podCIDRs[{index}]", block, names.cidr)
    if len(blocks) > 1 and (len(blocks) > 2 or len({":" in block for block in blocks}) < 2):
        detail = "may specify no more than one CIDR for each IP family"
        found.append(invalid("spec.podCIDRs", blocks, detail))
    return found


def _node_resources(status: Json) -> Errors:
    found: Errors = []
    for key in ("capacity", "allocatable"):
        for name, quantity in (status.get(key) or {}).items():
            found += amount(name, quantity, f"status.{key}.{name}")
    return found


def declared_features(given: list[str]) -> Errors:
    found: Errors = []
    for index, name in enumerate(given):
        path = f"status.declaredFeatures[{index}]"
        if not re.fullmatch(r"[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*", name):
            detail = (
                f'invalid feature name "{name}": must start with an UpperCamelCase segment, with subsequent segments '
                "separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric "
                "characters and slashes"
            )
            found.append(invalid(path, name, detail))
        if index + 1 < len(given):
            after, path = given[index + 1], f"status.declaredFeatures[{index + 1}]"
            if name == after:
                found.append(duplicate(path, after))
            elif name > after:
                found.append(invalid(path, after, "list must be sorted alphabetically"))
    return found


def node_change(new: Json, old: Json) -> Errors:
    status = new.get("status") or {}
    found = _node_resources(status)
    found += declared_features(status.get("declaredFeatures") or [])
    seen: set[Any] = set()
    for index, address in enumerate(status.get("addresses") or ()):
        if token(address) in seen:
            shown = {"Type": address.get("type", ""), "Address": address.get("address", "")}
            found.append(duplicate(f"status.addresses[{index}]", shown))
        seen.add(token(address))
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if before.get("podCIDRs") and spec.get("podCIDRs") != before["podCIDRs"]:
        found.append(forbidden("spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid'))
    if before.get("providerID") and spec.get("providerID") != before["providerID"]:
        found.append(forbidden("spec.providerID", 'node updates may not change providerID except from "" to valid'))
    found += placing.taints(spec.get("taints") or [], "metadata.taints")
    if spec.get("externalID") != before.get("externalID"):
        found.append(forbidden("spec.externalID", "may not be updated"))
    return found
