"""Users grant only rights that they have: admission of roles and of bindings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fairlead.apiserver.auth.default_roles import FULL_AUTHORITY
from fairlead.apiserver.auth.rbac import GROUP, Action, Rbac, rule_allows
from fairlead.apiserver.failures import forbidden, not_found
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.registry.attributes import AdmissionAttributes
from fairlead.apiserver.validation.errors import some

Rule = Mapping[str, Any]
Scope = tuple[frozenset[str], ...]
MOST_COMPARISONS = 100_000
MOST_GLANCES = 500_000
# What the garbage collector writes, whatever an object grants.
_COLLECTED = frozenset({"finalizers", "ownerReferences", "managedFields", "resourceVersion", "selfLink"})


class NoEscalation:
    def __init__(self, rbac: Rbac) -> None:
        self._rbac = rbac

    def check(self, attempt: AdmissionAttributes) -> None:
        thing, user, resource = attempt.thing, attempt.options.user, attempt.resource
        if resource.group != GROUP or thing is None or user.is_master or attempt.operation not in ("CREATE", "UPDATE"):
            return
        if attempt.old is not None and _granted(attempt.old) == _granted(thing):
            return
        namespace = attempt.namespace if resource.namespaced else ""
        if resource.plural in ("roles", "clusterroles"):
            self._check_role(attempt, thing, namespace)
        else:
            self._check_binding(attempt, thing, namespace)

    def _check_role(self, attempt: AdmissionAttributes, role: JsonObject, namespace: str) -> None:
        # Who creates names nothing in the path: leave to escalate one role by name is none to create it.
        named = attempt.name if attempt.operation == "UPDATE" else ""
        escalate = Action("escalate", GROUP, attempt.resource.plural, "", named, namespace)
        if self._rbac.allows(attempt.options.user, escalate):
            return
        self._check_held(attempt, role.get("rules") or (), namespace)
        # An aggregationRule gathers whatever there will be.
        gathers = any(
            ((each or {}).get("aggregationRule") or {}).get("clusterRoleSelectors") for each in (role, attempt.old)
        )
        if gathers and self._missing(attempt, FULL_AUTHORITY, namespace):
            why = "must have cluster-admin privileges to use the aggregationRule"
            raise forbidden(GROUP, attempt.resource.plural, attempt.name, why)

    def _check_binding(self, attempt: AdmissionAttributes, binding: JsonObject, namespace: str) -> None:
        reference = binding["roleRef"]
        plural = "roles" if reference["kind"] == "Role" else "clusterroles"
        if self._rbac.allows(attempt.options.user, Action("bind", GROUP, plural, "", reference["name"], namespace)):
            return
        role = self._rbac.role_of(reference, namespace)
        if role is None:  # whoever makes it later would grant what nobody checked
            raise not_found(GROUP, attempt.resource.plural, reference["name"])
        self._check_held(attempt, role.get("rules") or (), namespace)

    def _check_held(self, attempt: AdmissionAttributes, rules: Iterable[Rule], namespace: str) -> None:
        missing = self._missing(attempt, rules, namespace)
        if missing:
            user = attempt.options.user
            groups = " ".join(f'"{group}"' for group in user.groups)
            listed = "\n".join(sorted(set(some(_compact(each) for each in missing))))
            why = f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:'
            raise forbidden(GROUP, attempt.resource.plural, attempt.name, f"{why}\n{listed}")

    def _missing(self, attempt: AdmissionAttributes, rules: Iterable[Rule], namespace: str) -> list[Rule]:
        held = list(self._rbac.rules(attempt.options.user, namespace))
        apart = _apart(held, list(rules))
        if apart is None or sum(map(_combinations, apart)) * (len(held) + 1) > MOST_COMPARISONS:
            why = "the rules combine too many groups, resources, names and verbs to compare them with those you have"
            raise forbidden(GROUP, attempt.resource.plural, attempt.name, why)
        return _compacted(each for rule in apart for each in _missing(held, rule))


def _granted(thing: JsonObject) -> JsonObject:
    """An object without what the garbage collector changes of it."""
    return {**thing, "metadata": {key: value for key, value in thing["metadata"].items() if key not in _COLLECTED}}


def _apart(held: Sequence[Rule], rules: Sequence[Rule]) -> list[Rule] | None:
    """The rules that no single one that is held grants at a glance: names and paths are compared one by one later.

    None where even that would be too many comparisons; what is held or given several times is compared once.
    """
    granted = {_scope(each) for each in held if not each.get("resourceNames")}
    others = {_scope(rule) for rule in rules} - granted
    if len(granted) * len(others) > MOST_GLANCES:
        return None
    apart = {scope for scope in others if not any(_covers(each, scope) for each in granted)}
    return [rule for rule in rules if rule.get("nonResourceURLs") or _scope(rule) in apart]


def _scope(rule: Rule) -> Scope:
    return tuple(frozenset(rule.get(key) or ()) for key in ("verbs", "apiGroups", "resources"))


def _covers(held: Scope, scope: Scope) -> bool:
    return all("*" in has or needs <= has for has, needs in zip(held, scope, strict=True))


def _combinations(rule: Rule) -> int:
    groups, resources, verbs, names, paths = (
        len(rule.get(key) or ()) for key in ("apiGroups", "resources", "verbs", "resourceNames", "nonResourceURLs")
    )
    return verbs * (groups * resources * max(names, 1) + paths)


def _missing(held: list[Rule], rule: Rule) -> Iterator[Rule]:
    """What of a rule no single rule that is held covers, per resource with all its verbs together."""
    unnamed = [each for each in held if not each.get("resourceNames")]
    for group in rule.get("apiGroups") or ():
        for called in rule.get("resources") or ():
            for name in rule.get("resourceNames") or ("",):
                resource, _, subresource = called.partition("/")
                covering = held if name else unnamed
                verbs = [
                    verb
                    for verb in rule.get("verbs") or ()
                    if not any(rule_allows(each, Action(verb, group, resource, subresource, name)) for each in covering)
                ]
                if verbs:
                    names = {"resourceNames": [name]} if name else {}
                    yield {"apiGroups": [group], "resources": [called], "verbs": verbs, **names}
    for path in rule.get("nonResourceURLs") or ():
        verbs = [
            verb
            for verb in rule.get("verbs") or ()
            if not any(rule_allows(each, Action(verb, path=path)) for each in held)
        ]
        if verbs:
            yield {"nonResourceURLs": [path], "verbs": verbs}


def _compacted(rules: Iterable[Rule]) -> list[Rule]:
    """One rule a resource, with all its verbs."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for rule in rules:
        about: tuple[Any, ...] = tuple(tuple(rule.get(key, ())) for key in ("apiGroups", "resources", "resourceNames"))
        if "nonResourceURLs" in rule:
            about = (*about, *rule["nonResourceURLs"], len(found))
        known = found.setdefault(about, {**rule, "verbs": []})
        known["verbs"] += rule["verbs"]
    return list(found.values())


def _compact(rule: Rule) -> str:
    parts = []
    for key, shown in (
        ("apiGroups", "APIGroups"), ("nonResourceURLs", "NonResourceURLs"), ("resourceNames", "ResourceNames"),
        ("resources", "Resources"), ("verbs", "Verbs"),
    ):  # fmt: skip
        if rule.get(key):
            parts.append(f"{shown}:[" + " ".join(f'"{each}"' for each in rule[key]) + "]")
    return "{" + ", ".join(parts) + "}"
