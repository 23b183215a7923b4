"""Discovery: which groups, versions and resources there are, in the plain and in the aggregated form."""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.apiserver.registry.resources import Resource, Resources
from fairlead.apiserver.schema.custom import version_rank
from fairlead.apiserver.schema.facts import Subresource

# The order kubectl lists things in, and which version it prefers, follow from the order here.
_PRIORITY = (
    "apiregistration.k8s.io",
    "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "autoscaling", "batch",
    "networking.k8s.io", "policy", "rbac.authorization.k8s.io", "storage.k8s.io", "admissionregistration.k8s.io",
    "apiextensions.k8s.io", "scheduling.k8s.io", "coordination.k8s.io", "node.k8s.io", "discovery.k8s.io",
    "resource.k8s.io",
)  # fmt: skip

Elsewhere = Mapping[tuple[str, str], list[dict[str, Any]]]
"""What other servers serve, by group and version: the resources of an APIResourceList."""


def groups(resources: Resources, elsewhere: Elsewhere) -> dict[str, list[str]]:
    """Named groups with their versions, the preferred one first."""
    found: dict[str, list[str]] = {}
    for name, version in elsewhere:
        found.setdefault(name, []).append(version)
    for resource in resources:
        if resource.group:
            versions = found.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
    for versions in found.values():
        versions.sort(key=version_rank, reverse=True)
    order = {name: number for number, name in enumerate(_PRIORITY)}
    return dict(sorted(found.items(), key=lambda item: (order.get(item[0], len(order)), item[0])))


def api_versions(server_address: str) -> dict[str, Any]:
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    }


def group(name: str, versions: list[str]) -> dict[str, Any]:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def group_list(resources: Resources, elsewhere: Elsewhere) -> dict[str, Any]:
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [group(name, versions) for name, versions in groups(resources, elsewhere).items()],
    }


def resource_list(resources: Iterable[Resource], api_version: str) -> dict[str, Any]:
    listed: list[dict[str, Any]] = []
    for resource in sorted(resources, key=lambda each: each.plural):
        entry: dict[str, Any] = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(resource.verbs),
        }
        entry |= _other_names(resource)
        if resource.is_stored:
            entry["storageVersionHash"] = storage_hash(resource)
        listed.append(entry)
        for sub in _in_order(resource):
            subresource: dict[str, Any] = {
                "name": f"{resource.plural}/{sub.name}",
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": sub.kind,
                "verbs": list(sub.verbs),
            }
            if (sub.group, sub.version) != (resource.group, resource.version):
                subresource |= {"group": sub.group, "version": sub.version}
            listed.append(subresource)
    made: dict[str, Any] = {"kind": "APIResourceList"}
    if "/" in api_version:
        made["apiVersion"] = "v1"  # the core group's list does not say
    return made | {"groupVersion": api_version, "resources": listed}


def _other_names(resource: Resource) -> dict[str, list[str]]:
    names = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {key: listed for key, listed in names.items() if listed}


def _in_order(resource: Resource) -> list[Subresource]:
    """By name; a custom kind's as they were made, status first."""
    subs = list(resource.subresources)
    return subs if resource.custom is not None else sorted(subs, key=lambda each: each.name)


def storage_hash(resource: Resource) -> str:
    """storageVersionHash: it changes when objects are stored in another version."""
    group = resource.strategy.storage_group(resource.group)
    version = resource.strategy.storage_version or resource.version
    if resource.custom is not None:
        version = resource.custom.storage_version
    digest = hashlib.sha256(f"{group}/{version}/{resource.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def aggregated(resources: Resources, *, core: bool, elsewhere: Elsewhere) -> dict[str, Any]:
    named = {"": ["v1"]} if core else groups(resources, elsewhere)
    in_order = sorted(resources, key=lambda each: each.plural)
    items = []
    for name, versions in named.items():
        listed = []
        for version in versions:
            here = [_discovered(each) for each in in_order if (each.group, each.version) == (name, version)]
            there = _discovered_elsewhere(name, version, elsewhere.get((name, version), []))
            listed.append({"version": version, "resources": here + there, "freshness": "Current"})
        items.append({"metadata": {"name": name} if name else {}, "versions": listed})
    head = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}}
    return {**head, "items": items}


def _discovered_elsewhere(group: str, version: str, listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The resources another server serves, in the aggregated form, without subresources."""
    return [
        {
            "resource": each["name"],
            "responseKind": {"group": group, "version": version, "kind": str(each.get("kind", ""))},
            "scope": "Namespaced" if each.get("namespaced") else "Cluster",
            "singularResource": str(each.get("singularName", "")),
            "verbs": [verb for verb in each.get("verbs") or () if isinstance(verb, str)],
            **({"shortNames": each["shortNames"]} if each.get("shortNames") else {}),
        }
        for each in listed
        if "/" not in each["name"]
    ]


def _discovered(resource: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    entry |= _other_names(resource)
    if resource.subresources:
        entry["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
                "verbs": list(sub.verbs),
            }
            for sub in _in_order(resource)
        ]
    return entry
