"""Nobody gives away rights they do not have: admission of roles and of the bindings that hand them out."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fairlead.apiserver.auth.rbac import GROUP, Action, Rbac, rule_allows
from fairlead.apiserver.failures import forbidden
from fairlead.apiserver.registry.rest import Attempt, Thing

Rule = Mapping[str, Any]


class NoEscalation:
    def __init__(self, rbac: Rbac) -> None:
        self._rbac = rbac

    async def admit(self, attempt: Attempt) -> Thing | None:
        thing, user, resource = attempt.thing, attempt.options.user, attempt.resource
        if resource.group != GROUP or thing is None or user.is_master or attempt.operation not in ("CREATE", "UPDATE"):
            return thing
        namespace = attempt.namespace if resource.namespaced else ""
        if resource.plural in ("roles", "clusterroles"):
            if attempt.old is not None and attempt.old.get("rules") == thing.get("rules"):
                return thing
            wanted = Action("escalate", GROUP, resource.plural, "", attempt.name, namespace)
            rules: Iterable[Rule] = thing.get("rules") or ()
        else:
            reference = thing["roleRef"]
            plural = "roles" if reference["kind"] == "Role" else "clusterroles"
            wanted = Action("bind", GROUP, plural, "", reference["name"], namespace)
            rules = self._rbac.rules_of(reference, namespace)
        if self._rbac.allows(user, wanted):
            return thing
        held = list(self._rbac.rules(user, namespace))
        missing = sorted({_compact(each) for rule in rules for each in _missing(held, rule)})
        if missing:
            groups = " ".join(f'"{group}"' for group in user.groups)
            listed = "\n".join(missing)
            why = f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:'
            raise forbidden(GROUP, resource.plural, attempt.name, f"{why}\n{listed}")
        return thing


def _missing(held: list[Rule], rule: Rule) -> Iterator[Rule]:
    """What of a rule no single rule that is held covers, per resource with all its verbs together."""
    for group in rule.get("apiGroups") or ():
        for called in rule.get("resources") or ():
            for name in rule.get("resourceNames") or ("",):
                resource, _, subresource = called.partition("/")
                verbs = [
                    verb
                    for verb in rule.get("verbs") or ()
                    if not any(
                        rule_allows(each, Action(verb, group, resource, subresource, name or "\0")) for each in held
                    )
                ]
                if verbs:
                    yield {"apiGroups": [group], "resources": [called], "verbs": verbs} | (
                        {"resourceNames": [name]} if name else {}
                    )
    for path in rule.get("nonResourceURLs") or ():
        verbs = [
            verb
            for verb in rule.get("verbs") or ()
            if not any(rule_allows(each, Action(verb, path=path)) for each in held)
        ]
        if verbs:
            yield {"nonResourceURLs": [path], "verbs": verbs}


def _compact(rule: Rule) -> str:
    parts = []
    for key, shown in (
        ("apiGroups", "APIGroups"), ("nonResourceURLs", "NonResourceURLs"), ("resourceNames", "ResourceNames"),
        ("resources", "Resources"), ("verbs", "Verbs"),
    ):  # fmt: skip
        if rule.get(key):
            parts.append(f"{shown}:[" + " ".join(f'"{each}"' for each in rule[key]) + "]")
    return "{" + ", ".join(parts) + "}"
