"""Validation of the parts of a pod that say where it may run: tolerations, affinity, spreading."""

from typing import Any

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import names
from fairlead.apiserver.validation.errors import Causes, Errors, Json
from fairlead.apiserver.validation.metadata import operator_and_values, selector

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def tolerations(given: list[Json], path: str) -> Causes:
    for index, toleration in enumerate(given):
        here = f"{path}[{index}]"
        key, operator = toleration.get("key", ""), toleration.get("operator", "")
        effect, value = toleration.get("effect", ""), toleration.get("value", "")
        if key:
            yield from field.malformed(f"{here}.key", key, names.qualified)
        elif operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield field.invalid(f"{here}.operator", operator, detail)
        if "tolerationSeconds" in toleration and effect != "NoExecute":
            yield field.invalid(f"{here}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
        if operator in ("Equal", ""):
            problems = names.label_value(value)
            if problems:
                yield field.invalid(f"{here}.operator", value, ";".join(problems))
        elif operator == "Exists":
            if value:
                yield field.invalid(f"{here}.operator", value, "value must be empty when `operator` is 'Exists'")
        elif operator in ("Lt", "Gt"):
            yield field.not_supported(f"{here}.operator", operator, ("Equal", "Exists", "Lt", "Gt"))
        else:
            yield field.not_supported(f"{here}.operator", operator, ("Equal", "Exists"))
        if effect:
            yield from field.supported(f"{here}.effect", effect, EFFECTS)


def taints(given: list[Json], path: str) -> Causes:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(given):
        here = f"{path}[{index}]"
        key, effect = taint.get("key", ""), taint.get("effect", "")
        yield from field.malformed(f"{here}.key", key, names.qualified)
        problems = names.label_value(taint.get("value", ""))
        if problems:
            yield field.invalid(f"{here}.value", taint.get("value", ""), ";".join(problems))
        yield from field.one_of(f"{here}.effect", effect, EFFECTS)
        if (key, effect) in seen:
            yield _twice(here, taint)
        seen.add((key, effect))


def _twice(path: str, taint: Json) -> Any:
    # The server prints its own struct.
    names_ = {"Key": "key", "Value": "value", "Effect": "effect"}
    error = field.duplicate(path, {**{name: taint.get(key, "") for name, key in names_.items()}, "TimeAdded": None})
    return error._replace(message=f"{error.message}: taints must be unique by key and effect pair")


def affinity(given: Json, path: str) -> Causes:
    node, here = given.get("nodeAffinity") or {}, f"{path}.nodeAffinity"
    if _REQUIRED in node:
        yield from node_selector(node[_REQUIRED], f"{here}.{_REQUIRED}")
    yield from field.each(f"{here}.{_PREFERRED}", node.get(_PREFERRED), _preferred_node)
    for kind in ("podAffinity", "podAntiAffinity"):
        pods, here = given.get(kind) or {}, f"{path}.{kind}"
        yield from field.each(f"{here}.{_REQUIRED}", pods.get(_REQUIRED), _pod_term)
        yield from field.each(f"{here}.{_PREFERRED}", pods.get(_PREFERRED), _preferred_pods)


def _preferred_node(term: Json, path: str) -> Causes:
    yield from _weight(term, path)
    yield from node_term(term.get("preference") or {}, f"{path}.preference", values=False)


def _preferred_pods(term: Json, path: str) -> Causes:
    yield from _weight(term, path)
    yield from _pod_term(term.get("podAffinityTerm") or {}, f"{path}.podAffinityTerm")


def _weight(term: Json, path: str) -> Errors:
    weight = term.get("weight", 0)
    return [] if 1 <= weight <= 100 else [field.invalid(f"{path}.weight", weight, "must be in the range 1-100")]


def _pod_term(term: Json, path: str) -> Causes:
    yield from selector(term.get("labelSelector"), f"{path}.labelSelector")
    yield from selector(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    for name in term.get("namespaces") or ():
        yield from field.malformed(f"{path}.namespace", name, names.label)
    yield from _label_keys(term, path)
    key = term.get("topologyKey", "")
    if not key:
        yield field.required(f"{path}.topologyKey", "can not be empty")
    yield from field.malformed(f"{path}.topologyKey", key, names.qualified)


def _label_keys(term: Json, path: str) -> Causes:
    """Keys whose values are taken from the pod when it is created."""
    matched, avoided = term.get("matchLabelKeys") or [], term.get("mismatchLabelKeys") or []
    if not matched and not avoided:
        return
    given = term.get("labelSelector")
    for kind, keys in (("matchLabelKeys", matched), ("mismatchLabelKeys", avoided)):
        if keys and given is None:
            yield field.forbidden(f"{path}.{kind}", "must not be specified when labelSelector is not set")
            continue
        for index, key in enumerate(keys):
            yield from field.malformed(f"{path}.{kind}[{index}]", key, names.qualified)
    last, avoids = {key: index for index, key in enumerate(matched)}, set(avoided)
    seen = set((given or {}).get("matchLabels") or ())
    for expression in (given or {}).get("matchExpressions") or ():
        key = expression.get("key", "")
        if key in seen and key in last:
            yield field.invalid(f"{path}[{last[key]}]", key, "exists in both matchLabelKeys and labelSelector")
        seen.add(key)
    for index, key in enumerate(matched):
        if key in avoids:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield field.invalid(f"{path}.matchLabelKeys[{index}]", key, detail)


def node_selector(given: Json, path: str) -> Errors:
    terms = given.get("nodeSelectorTerms") or ()
    if not terms:
        return [field.required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")]
    return list(field.each(f"{path}.nodeSelectorTerms", terms, node_term))


def node_term(term: Json, path: str, values: bool = True) -> Causes:
    """`values`: whether values must be valid label values; those of a preference need not be."""
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        yield from _requirement(expression, f"{path}.matchExpressions[{index}]", values)
    for index, expression in enumerate(term.get("matchFields") or ()):
        here = f"{path}.matchFields[{index}]"
        given = expression.get("values") or ()
        if expression.get("operator") in ("In", "NotIn"):
            if len(given) != 1:
                detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
                yield field.required(f"{here}.values", detail)
        else:
            yield field.invalid(f"{here}.operator", expression.get("operator", ""), "not a valid selector operator")
        if expression.get("key") != "metadata.name":
            yield field.invalid(f"{here}.key", expression.get("key", ""), "not a valid field selector key")
        else:
            for at, value in enumerate(given):
                yield from field.malformed(f"{here}.values[{at}]", value, names.subdomain)


def _requirement(expression: Json, path: str, check_values: bool) -> Causes:
    values = expression.get("values") or ()
    if expression.get("operator") not in ("Gt", "Lt"):
        yield from operator_and_values(expression, path)
    elif len(values) != 1:
        yield field.required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    yield from field.malformed(f"{path}.key", expression.get("key", ""), names.qualified)
    if check_values:
        for index, value in enumerate(values):
            yield from field.malformed(f"{path}.values[{index}]", value, names.label_value)


def spread(given: list[Json], path: str) -> Causes:
    last = {(each.get("topologyKey"), each.get("whenUnsatisfiable", "")): at for at, each in enumerate(given)}
    for index, constraint in enumerate(given):
        here = f"{path}[{index}]"
        if constraint.get("maxSkew", 0) <= 0:
            yield field.invalid(f"{here}.maxSkew", constraint.get("maxSkew", 0), "must be greater than zero")
        if not constraint.get("topologyKey"):
            yield field.required(f"{here}.topologyKey", "can not be empty")
        action = constraint.get("whenUnsatisfiable", "")
        yield from field.supported(f"{here}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway"))
        if last[constraint.get("topologyKey"), action] > index:
            pair = f"{{{constraint.get('topologyKey')}, {action}}}"
            yield field.duplicate(f"{here}.{{topologyKey, whenUnsatisfiable}}", pair)
        domains = constraint.get("minDomains")
        if domains is not None:
            if domains <= 0:
                yield field.invalid(f"{here}.minDomains", domains, "must be greater than zero")
            if action != "DoNotSchedule":
                detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                yield field.invalid(f"{here}.minDomains", domains, detail)
        for key in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            yield from field.supported_if_set(f"{here}.{key}", constraint.get(key), ("Honor", "Ignore"))
        yield from _label_keys({**constraint, "mismatchLabelKeys": None}, here)
        yield from selector(constraint.get("labelSelector"), f"{here}.labelSelector")
