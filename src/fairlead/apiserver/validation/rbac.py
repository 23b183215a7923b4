"""Validation of the kinds of rbac.authorization.k8s.io: roles and their bindings."""

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.errors import Causes, Errors, Json

_RBAC = "rbac.authorization.k8s.io"


def role(new: Json, old: Json | None) -> Causes:
    return _with_metadata(new, old, _rules(new, namespaced=True), namespaced=True)


def cluster_role(new: Json, old: Json | None) -> Causes:
    found = [*_rules(new, namespaced=False), *_aggregation(new.get("aggregationRule"))]
    return _with_metadata(new, old, found, namespaced=False)


def role_binding(new: Json, old: Json | None) -> Causes:
    return _with_metadata(new, old, _binding(new, ("Role", "ClusterRole")), namespaced=True)


def cluster_role_binding(new: Json, old: Json | None) -> Causes:
    return _with_metadata(new, old, _binding(new, ("ClusterRole",)), namespaced=False)


def _with_metadata(new: Json, old: Json | None, fields: Causes, *, namespaced: bool) -> Causes:
    """The server validates a changed one as a new one first."""
    yield from metadata.on_create(new["metadata"], namespaced, names.path_segment)
    yield from fields
    if old is None:
        return
    yield from metadata.on_update(new["metadata"], old["metadata"])
    yield from _same_role(new, old)


def _aggregation(rule: Json | None) -> Errors:
    if rule is None:
        return []
    path, selectors = "aggregationRule.clusterRoleSelectors", rule.get("clusterRoleSelectors") or ()
    if not selectors:
        return [field.required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")]
    return [each for at, one in enumerate(selectors) for each in metadata.selector(one, f"{path}[{at}]")]


def _rules(obj: Json, namespaced: bool) -> Causes:
    for index, rule in enumerate(obj.get("rules") or ()):
        path = f"rules[{index}]"
        if not rule.get("verbs"):
            yield field.required(f"{path}.verbs", "verbs must contain at least one value")
        urls = rule.get("nonResourceURLs")
        if urls:
            if namespaced:
                text = "namespaced rules cannot apply to non-resource URLs"
                yield field.invalid(f"{path}.nonResourceURLs", urls, text)
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                text = "rules cannot apply to both regular resources and non-resource URLs"
                yield field.invalid(f"{path}.nonResourceURLs", urls, text)
            continue
        if not rule.get("apiGroups"):
            yield field.required(f"{path}.apiGroups", "resource rules must supply at least one api group")
        if not rule.get("resources"):
            yield field.required(f"{path}.resources", "resource rules must supply at least one resource")


def _binding(obj: Json, kinds: tuple[str, ...]) -> Causes:
    reference = obj.get("roleRef") or {}
    yield from field.supported("roleRef.apiGroup", reference.get("apiGroup", ""), (_RBAC,))
    yield from field.supported("roleRef.kind", reference.get("kind", ""), kinds)
    yield from field.mandatory("roleRef.name", reference.get("name", ""), names.path_segment)
    for index, subject in enumerate(obj.get("subjects") or ()):
        yield from _subject(subject, len(kinds) > 1, f"subjects[{index}]")


def _subject(subject: Json, namespaced: bool, path: str) -> Causes:
    name, group = subject.get("name", ""), subject.get("apiGroup", "")
    if not name:
        yield field.required(f"{path}.name")
    match subject.get("kind"):
        case "ServiceAccount":
            yield from field.optional(f"{path}.name", name, names.subdomain)
            if group:
                yield field.not_supported(f"{path}.apiGroup", group, ("",))
            if not namespaced and not subject.get("namespace"):
                yield field.required(f"{path}.namespace")
        case "User" | "Group":
            yield from field.supported(f"{path}.apiGroup", group, (_RBAC,))
        case kind:
            yield field.not_supported(f"{path}.kind", kind or "", ("ServiceAccount", "User", "Group"))


def _same_role(new: Json, old: Json) -> Errors:
    if new.get("roleRef") == old.get("roleRef"):
        return []
    given = new.get("roleRef") or {}
    # The server prints its own struct.
    shown = {name: given.get(key) for name, key in (("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name"))}
    return [field.invalid("roleRef", shown, "cannot change roleRef")]
