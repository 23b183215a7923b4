"""Validation of the kinds of policy: PodDisruptionBudgets."""

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.apps import at_most_all, int_or_percent
from fairlead.apiserver.validation.errors import Causes, Errors, Json

_BUDGET_FIELDS = ("minAvailable", "selector", "maxUnavailable", "unhealthyPodEvictionPolicy")


def budget(new: Json, old: Json | None) -> Causes:
    found = list(_budget_spec(new["spec"]))
    if found or old is not None:
        return found
    # Errors of the metadata are reported only where there are no others.
    return metadata.on_create(new["metadata"], True, names.path_segment, core=False)


def _budget_spec(spec: Json) -> Causes:
    if "minAvailable" in spec and "maxUnavailable" in spec:
        # The server prints its own struct.
        shown = {name[0].upper() + name[1:]: spec.get(name) for name in _BUDGET_FIELDS}
        yield field.invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set")
    for key in ("minAvailable", "maxUnavailable"):
        if key in spec:
            yield from int_or_percent(spec[key], f"spec.{key}")
            yield from at_most_all(spec[key], f"spec.{key}")
    yield from metadata.selector(spec.get("selector"), "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    known = ("AlwaysAllow", "IfHealthyBudget")
    yield from field.supported_if_set("spec.unhealthyPodEvictionPolicy", policy, known)


def budget_status(new: Json, old: Json) -> Errors:
    keys = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    return field.counts(new.get("status") or {}, keys)
