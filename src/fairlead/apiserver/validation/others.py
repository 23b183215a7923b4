"""What is asked of the smaller kinds: configuration, access, nodes, priorities, leases."""

import base64
import json
import re
from typing import Any

from fairlead.apiserver.json_values import token
from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.core import scheduling as placing
from fairlead.apiserver.validation.errors import (
    Errors,
    Json,
    duplicate,
    forbidden,
    immutable,
    invalid,
    not_supported,
    required,
    too_long,
)
from fairlead.apiserver.validation.quantities import amount

MOST_BYTES = 1024 * 1024
_RBAC = "rbac.authorization.k8s.io"
_LARGEST_PRIORITY = 1_000_000_000


def config_map(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], True, names.subdomain)
    return [*found, *_config_data(obj)]


def _config_data(obj: Json) -> Errors:
    found: Errors = []
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    size = 0
    for key, value in data.items():
        found += [invalid(f"data[{key}]", key, text) for text in names.config_key(key)]
        if key in binary:
            found.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
        size += len(value.encode())
    for key, value in binary.items():
        found += [invalid(f"binaryData[{key}]", key, text) for text in names.config_key(key)]
        size += len(base64.b64decode(value))
    if size > MOST_BYTES:
        found.append(too_long("", MOST_BYTES))
    return found


def config_map_update(new: Json, old: Json) -> Errors:
    found = metadata.anew(new["metadata"], old["metadata"], True, names.subdomain)
    found += _frozen(new, old, ("data", "binaryData"))
    return [*found, *_config_data(new)]


def _frozen(new: Json, old: Json, keys: tuple[str, ...]) -> Errors:
    if not old.get("immutable"):
        return []
    text = "field is immutable when `immutable` is set"
    found: Errors = [] if new.get("immutable") else [forbidden("immutable", text)]
    return [*found, *(forbidden(key, text) for key in keys if new.get(key) != old.get(key))]


_SECRET_KEYS = {
    "kubernetes.io/dockercfg": ".dockercfg",
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
    "kubernetes.io/ssh-auth": "ssh-privatekey",
}


def secret(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], True, names.subdomain)
    return [*found, *_secret_data(obj)]


def _secret_data(obj: Json) -> Errors:
    found: Errors = []
    data = obj.get("data") or {}
    for key in data:
        found += [invalid(f"data[{key}]", key, text) for text in names.config_key(key)]
    if sum(len(base64.b64decode(value)) for value in data.values()) > MOST_BYTES:
        found.append(too_long("data", MOST_BYTES))
    match obj.get("type"):
        case "kubernetes.io/service-account-token":
            if not (obj["metadata"].get("annotations") or {}).get("kubernetes.io/service-account.name"):
                found.append(required("metadata.annotations[kubernetes.io/service-account.name]"))
        case "kubernetes.io/dockercfg" | "kubernetes.io/dockerconfigjson":
            key = _SECRET_KEYS[obj["type"]]
            if key not in data:
                found.append(required(f"data[{key}]"))
            else:
                found += _json_secret(base64.b64decode(data[key]), f"data[{key}]")
        case "kubernetes.io/basic-auth":
            if "username" not in data and "password" not in data:
                found += [required("data[username]"), required("data[password]")]
        case "kubernetes.io/ssh-auth":
            if not data.get("ssh-privatekey"):
                found.append(required("data[ssh-privatekey]"))
        case "kubernetes.io/tls":
            found += [required(f"data[{key}]") for key in ("tls.crt", "tls.key") if key not in data]
    return found


def _json_secret(content: bytes, path: str) -> Errors:
    try:
        json.loads(content)
    except ValueError:
        return [invalid(path, "<secret contents redacted>", "invalid character")]
    return []


def secret_update(new: Json, old: Json) -> Errors:
    found = metadata.anew(new["metadata"], old["metadata"], True, names.subdomain)
    found += immutable("type", new.get("type"), old.get("type"))
    found += _frozen(new, old, ("data",))
    return [*found, *_secret_data(new)]


def namespace(obj: Json) -> Errors:
    return metadata.on_create(obj["metadata"], False, names.label)


def namespace_update(new: Json, old: Json) -> Errors:
    return metadata.anew(new["metadata"], old["metadata"], False, names.label)


def service_account(obj: Json) -> Errors:
    return metadata.on_create(obj["metadata"], True, names.subdomain)


def service_account_update(new: Json, old: Json) -> Errors:
    return metadata.anew(new["metadata"], old["metadata"], True, names.subdomain)


def node(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], False, names.subdomain)
    return [*found, *_node(obj)]


def _node(obj: Json) -> Errors:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    found = placing.taints(spec.get("taints") or [], "metadata.taints")
    found += _node_resources(status)
    found += declared_features(status.get("declaredFeatures") or [])
    blocks = spec.get("podCIDRs") or []
    for index, block in enumerate(blocks):
        found += [invalid(f"spec.podCIDRs[{index}]", block, text) for text in names.cidr(block)]
    if len(blocks) > 1 and (len(blocks) > 2 or len({":" in block for block in blocks}) < 2):
        told = "may specify no more than one CIDR for each IP family"
        found.append(invalid("spec.podCIDRs", blocks, told))
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
            told = (
                f'invalid feature name "{name}": must start with an UpperCamelCase segment, with subsequent segments '
                "separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric "
                "characters and slashes"
            )
            found.append(invalid(path, name, told))
        if index + 1 < len(given):
            after, path = given[index + 1], f"status.declaredFeatures[{index + 1}]"
            if name == after:
                found.append(duplicate(path, after))
            elif name > after:
                found.append(invalid(path, after, "list must be sorted alphabetically"))
    return found


def node_update(new: Json, old: Json) -> Errors:
    # What a new one is asked it is asked too.
    return [*node(new), *metadata.on_update(new["metadata"], old["metadata"]), *node_change(new, old)]


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


def priority_class(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], False, names.subdomain)
    name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
    if name.startswith("system-"):
        if name not in ("system-node-critical", "system-cluster-critical"):
            found.append(
                forbidden(
                    "metadata.name",
                    "priority class names with 'system-' prefix are reserved for system use only. "
                    f"error: {name} is not a known system priority class",
                )
            )
    elif value > _LARGEST_PRIORITY:
        found.append(forbidden("value", f"maximum allowed value of a user defined priority is {_LARGEST_PRIORITY}"))
    policy = obj.get("preemptionPolicy")
    if policy not in ("PreemptLowerPriority", "Never"):
        found.append(not_supported("preemptionPolicy", policy, ("PreemptLowerPriority", "Never")))
    return found


def priority_class_update(new: Json, old: Json) -> Errors:
    found = metadata.on_update(new["metadata"], old["metadata"])
    if new.get("value") != old.get("value"):
        found.append(forbidden("value", "may not be changed in an update."))
    return [*found, *immutable("preemptionPolicy", new.get("preemptionPolicy"), old.get("preemptionPolicy"))]


def lease(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], True, names.subdomain, core=False)
    return [*found, *_lease_spec(obj.get("spec") or {})]


def lease_update(new: Json, old: Json) -> Errors:
    return [*metadata.on_update(new["metadata"], old["metadata"], core=False), *_lease_spec(new.get("spec") or {})]


def _lease_spec(spec: Json) -> Errors:
    found: Errors = []
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        found.append(invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        found.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return found


# --- access -----------------------------------------------------------------------------------------------------


def role(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], True, names.path_segment)
    return [*found, *_rules(obj, namespaced=True)]


def role_update(new: Json, old: Json) -> Errors:
    return [*role(new), *metadata.on_update(new["metadata"], old["metadata"])]


def cluster_role(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], False, names.path_segment)
    found += _rules(obj, namespaced=False)
    rule = obj.get("aggregationRule")
    if rule is None:
        return found
    path, selectors = "aggregationRule.clusterRoleSelectors", rule.get("clusterRoleSelectors") or ()
    if not selectors:
        told = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        return [*found, required(path, told)]
    for index, selector in enumerate(selectors):
        found += metadata.selector(selector, f"{path}[{index}]")
    return found


def cluster_role_update(new: Json, old: Json) -> Errors:
    return [*cluster_role(new), *metadata.on_update(new["metadata"], old["metadata"])]


def _rules(obj: Json, namespaced: bool) -> Errors:
    found: Errors = []
    for index, rule in enumerate(obj.get("rules") or ()):
        path = f"rules[{index}]"
        if not rule.get("verbs"):
            found.append(required(f"{path}.verbs", "verbs must contain at least one value"))
        urls = rule.get("nonResourceURLs")
        if urls:
            if namespaced:
                found.append(
                    invalid(f"{path}.nonResourceURLs", urls, "namespaced rules cannot apply to non-resource URLs")
                )
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                found.append(
                    invalid(
                        f"{path}.nonResourceURLs",
                        urls,
                        "rules cannot apply to both regular resources and non-resource URLs",
                    )
                )
            continue
        if not rule.get("apiGroups"):
            found.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
        if not rule.get("resources"):
            found.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
    return found


def role_binding(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], True, names.path_segment)
    return [*found, *_binding(obj, ("Role", "ClusterRole"))]


def cluster_role_binding(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], False, names.path_segment)
    return [*found, *_binding(obj, ("ClusterRole",))]


def _binding(obj: Json, kinds: tuple[str, ...]) -> Errors:
    found: Errors = []
    reference = obj.get("roleRef") or {}
    if reference.get("apiGroup") != _RBAC:
        found.append(not_supported("roleRef.apiGroup", reference.get("apiGroup", ""), (_RBAC,)))
    if reference.get("kind") not in kinds:
        found.append(not_supported("roleRef.kind", reference.get("kind", ""), kinds))
    name = reference.get("name", "")
    if not name:
        found.append(required("roleRef.name"))
    else:
        found += [invalid("roleRef.name", name, text) for text in names.path_segment(name)]
    for index, subject in enumerate(obj.get("subjects") or ()):
        found += _subject(subject, len(kinds) > 1, f"subjects[{index}]")
    return found


def _subject(subject: Json, namespaced: bool, path: str) -> Errors:
    found: Errors = []
    name, group = subject.get("name", ""), subject.get("apiGroup", "")
    if not name:
        found.append(required(f"{path}.name"))
    match subject.get("kind"):
        case "ServiceAccount":
            found += [invalid(f"{path}.name", name, text) for text in (names.subdomain(name) if name else ())]
            if group:
                found.append(not_supported(f"{path}.apiGroup", group, ("",)))
            if not namespaced and not subject.get("namespace"):
                found.append(required(f"{path}.namespace"))
        case "User" | "Group":
            if group != _RBAC:
                found.append(not_supported(f"{path}.apiGroup", group, (_RBAC,)))
        case kind:
            found.append(not_supported(f"{path}.kind", kind or "", ("ServiceAccount", "User", "Group")))
    return found


def role_binding_update(new: Json, old: Json) -> Errors:
    found = [*role_binding(new), *metadata.on_update(new["metadata"], old["metadata"])]
    return [*found, *_same_role(new, old)]


def cluster_role_binding_update(new: Json, old: Json) -> Errors:
    found = [*cluster_role_binding(new), *metadata.on_update(new["metadata"], old["metadata"])]
    return [*found, *_same_role(new, old)]


def _same_role(new: Json, old: Json) -> Errors:
    if new.get("roleRef") == old.get("roleRef"):
        return []
    given = new.get("roleRef") or {}
    # The server prints its own struct.
    shown = {name: given.get(key) for name, key in (("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name"))}
    return [invalid("roleRef", shown, "cannot change roleRef")]
