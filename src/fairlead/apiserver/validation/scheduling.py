"""Validation of the kinds of scheduling.k8s.io: PriorityClasses."""

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation.errors import Causes, Json

_LARGEST_PRIORITY = 1_000_000_000


def priority_class(new: Json, old: Json | None) -> Causes:
    name, value, policy = new["metadata"].get("name", ""), new.get("value", 0), new.get("preemptionPolicy")
    if old is not None:
        if new.get("value") != old.get("value"):
            yield field.forbidden("value", "may not be changed in an update.")
        yield from field.immutable("preemptionPolicy", policy, old.get("preemptionPolicy"))
        return
    if name.startswith("system-"):
        if name not in ("system-node-critical", "system-cluster-critical"):
            text = "priority class names with 'system-' prefix are reserved for system use only. error:"
            yield field.forbidden("metadata.name", f"{text} {name} is not a known system priority class")
    elif value > _LARGEST_PRIORITY:
        yield field.forbidden("value", f"maximum allowed value of a user defined priority is {_LARGEST_PRIORITY}")
    yield from field.supported("preemptionPolicy", policy, ("PreemptLowerPriority", "Never"))
