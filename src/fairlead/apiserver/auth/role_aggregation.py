"""Aggregated ClusterRoles, updated whenever a role that they select changes.

In Kubernetes a controller does this; here it is part of the write, so that no request sees roles that are half
aggregated.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from fairlead.apiserver.auth.rbac import CLUSTER_ROLES, Rbac
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.registry.ownership import merged
from fairlead.apiserver.registry.reader import Reader
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.request.info import User
from fairlead.apiserver.request.options import Options
from fairlead.apiserver.request.selectors import labels_match
from fairlead.cluster.clock import Clock

MANAGER = "clusterrole-aggregation-controller"
Role = Mapping[str, Any]


def gathered(roles: Mapping[str, Role]) -> dict[str, list[Any]]:
    """The rules that each role with an aggregationRule must have; one role may gather from another that gathers."""
    return {name: _distinct(_rules(roles, name, {name})) for name, role in roles.items() if _selectors(role)}


def _selectors(role: Role) -> list[Any]:
    return (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or []


def _rules(roles: Mapping[str, Role], name: str, visited: set[str]) -> Iterator[Any]:
    selectors = _selectors(roles[name])
    if not selectors:
        yield from roles[name].get("rules") or ()
        return
    for selector in selectors:
        for other in sorted(roles):
            if other not in visited and labels_match(selector, roles[other]["metadata"].get("labels") or {}):
                visited.add(other)
                yield from _rules(roles, other, visited)


def _distinct(rules: Iterator[Any]) -> list[Any]:
    return list({msgspec.json.encode(rule, order="deterministic"): rule for rule in rules}.values())


class RoleAggregation:
    def __init__(self, reader: Reader, rbac: Rbac, user: User, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._rbac = rbac
        self._options = Options(user, manager=MANAGER, force=True)

    def learn(self, resource: Resource, thing: JsonObject, exists: bool) -> None:
        if resource.storage_key != CLUSTER_ROLES:
            return
        roles = self._rbac.cluster_roles()
        for name, rules in gathered(roles).items():
            if rules != (roles[name].get("rules") or []):
                self._write(resource, name, rules)

    def _write(self, resource: Resource, name: str, rules: list[Any]) -> None:
        current = self._reader.entry(resource, "", name)
        live = self._reader.thing(resource, current)
        applied = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
        # Rules are owned all together: the first tell as much about their owners as thousands would.
        new = merged(
            resource.schema, {**live, "rules": (live.get("rules") or [])[:1]}, {**applied, "rules": rules[:1]},
            self._options, api_version=resource.api_version, now=self._clock.now(),
        )  # fmt: skip
        self._reader.store.put(CLUSTER_ROLES, name, {**live, **new, "rules": rules or None}, current.revision)
