"""Validation of the kinds of policy: PodDisruptionBudgets."""

from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.apps import at_most_all, int_or_percent
from fairlead.apiserver.validation.counts import counts
from fairlead.apiserver.validation.errors import (
    Errors,
    Json,
    invalid,
    not_supported,
)

_BUDGET_FIELDS = ("minAvailable", "selector", "maxUnavailable", "unhealthyPodEvictionPolicy")


def budget(new: Json, old: Json | None) -> Errors:
    found = _budget_spec(new["spec"])
    if found or old is not None:
        return found
    # Errors of the metadata are reported only where there are no others.
    return metadata.on_create(new["metadata"], True, names.path_segment, core=False)


def _budget_spec(spec: Json) -> Errors:
    found: Errors = []
    if "minAvailable" in spec and "maxUnavailable" in spec:
        # The server prints its own struct.
        shown = {name[0].upper() + name[1:]: spec.get(name) for name in _BUDGET_FIELDS}
        found.append(invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
    for key in ("minAvailable", "maxUnavailable"):
        if key in spec:
            found += int_or_percent(spec[key], f"spec.{key}")
            found += at_most_all(spec[key], f"spec.{key}")
    found += metadata.selector(spec.get("selector"), "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in ("AlwaysAllow", "IfHealthyBudget"):
        path = "spec.unhealthyPodEvictionPolicy"
        found.append(not_supported(path, policy, ("AlwaysAllow", "IfHealthyBudget")))
    return found


def budget_status(new: Json, old: Json) -> Errors:
    return counts(new.get("status") or {}, ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"))
