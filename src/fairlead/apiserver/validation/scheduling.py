"""Validation of the kinds of scheduling.k8s.io: PriorityClasses."""

from fairlead.apiserver.validation.errors import Errors, Json, forbidden, immutable, supported

_LARGEST_PRIORITY = 1_000_000_000


def priority_class(new: Json, old: Json | None) -> Errors:
    return _on_create(new) if old is None else _on_update(new, old)


def _on_create(obj: Json) -> Errors:
    found: Errors = []
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
    found += supported("preemptionPolicy", policy, ("PreemptLowerPriority", "Never"))
    return found


def _on_update(new: Json, old: Json) -> Errors:
    found: Errors = []
    if new.get("value") != old.get("value"):
        found.append(forbidden("value", "may not be changed in an update."))
    return [*found, *immutable("preemptionPolicy", new.get("preemptionPolicy"), old.get("preemptionPolicy"))]
