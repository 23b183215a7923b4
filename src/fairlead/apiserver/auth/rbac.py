"""Role-based access: what a user's roles allow, evaluated as Kubernetes does.

Reads roles and bindings from the store, each once until it changes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from fairlead.apiserver.request.info import User
from fairlead.apiserver.storage.store import Entry, Store

GROUP = "rbac.authorization.k8s.io"
ROLES, CLUSTER_ROLES = f"{GROUP}/roles", f"{GROUP}/clusterroles"
BINDINGS, CLUSTER_BINDINGS = f"{GROUP}/rolebindings", f"{GROUP}/clusterrolebindings"
KINDS = (ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS)


@dataclass(frozen=True, slots=True)
class Action:
    """A request to authorize: a verb on a resource, or on a path that is none."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""

    @property
    def called(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def rule_allows(rule: Mapping[str, Any], action: Action) -> bool:
    verbs = rule.get("verbs") or ()
    if action.verb not in verbs and "*" not in verbs:
        return False
    if action.path:
        paths = rule.get("nonResourceURLs") or ()
        return any(path == action.path or (path.endswith("*") and action.path.startswith(path[:-1])) for path in paths)
    groups = rule.get("apiGroups") or ()
    if action.group not in groups and "*" not in groups:
        return False
    resources = rule.get("resources") or ()
    anywhere = f"*/{action.subresource}" if action.subresource else "*"
    if not any(resource in ("*", action.called, anywhere) for resource in resources):
        return False
    names = rule.get("resourceNames") or ()
    return not names or action.name in names


class Rbac:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: tuple[int, ...] = ()
        self._read: dict[str, dict[str, tuple[Entry, dict[str, Any]]]] = {kind: {} for kind in KINDS}
        self._bindings: dict[str, list[dict[str, Any]]] = {}

    def allows(self, user: User, action: Action) -> bool:
        return user.is_master or any(rule_allows(rule, action) for rule in self.rules(user, action.namespace))

    def rules(self, user: User, namespace: str) -> Iterator[Mapping[str, Any]]:
        """Every rule that binds this user, cluster-wide and in the namespace."""
        return (rule for rule, _ in self._bound(user, namespace))

    def why(self, user: User, action: Action) -> str:
        """Which binding allows an action; "" where none does."""
        for rule, reason in self._bound(user, action.namespace):
            if rule_allows(rule, action):
                return reason
        return ""

    def _bound(self, user: User, namespace: str) -> Iterator[tuple[Mapping[str, Any], str]]:
        self._refresh()
        found = [("ClusterRoleBinding", "", each) for each in self._bindings[""]]
        found += [("RoleBinding", namespace, each) for each in (self._bindings.get(namespace, ()) if namespace else ())]
        for kind, place, binding in found:
            subject = _subject(user, binding.get("subjects") or (), place)
            if subject:
                called = binding["metadata"]["name"] + (f"/{place}" if place else "")
                reference = binding["roleRef"]
                reason = f'RBAC: allowed by {kind} "{called}" of {reference["kind"]} "{reference["name"]}" to {subject}'
                for rule in self.rules_of(reference, place):
                    yield rule, reason

    def rules_of(self, reference: Mapping[str, str], namespace: str) -> Iterable[Mapping[str, Any]]:
        """The rules of a role; none where there is no such role."""
        return (self.role_of(reference, namespace) or {}).get("rules") or ()

    def cluster_roles(self) -> dict[str, Mapping[str, Any]]:
        self._refresh()
        return {name: role for name, (_, role) in self._read[CLUSTER_ROLES].items()}

    def role_of(self, reference: Mapping[str, str], namespace: str) -> Mapping[str, Any] | None:
        self._refresh()
        if reference["kind"] == "Role":
            found = self._read[ROLES].get(f"{namespace}/{reference['name']}")
        else:
            found = self._read[CLUSTER_ROLES].get(reference["name"])
        return None if found is None else found[1]

    def _refresh(self) -> None:
        """Read what was written since the last look."""
        kind_stores = {kind: self._store.of_kind(kind) for kind in KINDS}
        seen = tuple(kind_store.writes for kind_store in kind_stores.values())
        if seen == self._seen:
            return
        for kind, kind_store in kind_stores.items():
            before = self._read[kind]
            self._read[kind] = {
                key: known
                if (known := before.get(key)) is not None and known[0] is entry
                else (entry, msgspec.json.decode(entry.body))
                for key, entry in kind_store.entries.items()
            }
        self._bindings = {"": [binding for _, binding in self._read[CLUSTER_BINDINGS].values()]}
        for key, (_, binding) in self._read[BINDINGS].items():
            self._bindings.setdefault(key.partition("/")[0], []).append(binding)
        self._seen = seen


def _subject(user: User, subjects: Iterable[Mapping[str, str]], namespace: str) -> str:
    """The first subject that is this user, as a sentence names it; "" where none is."""
    for subject in subjects:
        name = subject.get("name", "")
        match subject.get("kind"):
            case "User" if name == user.name:
                return f'User "{name}"'
            case "Group" if name in user.groups:
                return f'Group "{name}"'
            case "ServiceAccount":
                of = subject.get("namespace") or namespace
                if user.name == f"system:serviceaccount:{of}:{name}":
                    return f'ServiceAccount "{name}/{of}"'
    return ""
