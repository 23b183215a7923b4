"""Validation of the status of namespaces."""

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation.errors import Errors, Json


def namespace_status(new: Json, old: Json) -> Errors:
    phase = (new.get("status") or {}).get("phase", "")
    going = bool(new["metadata"].get("deletionTimestamp"))
    expected, when = ("Terminating", "not empty") if going else ("Active", "empty")
    if phase == expected:
        return []
    return [field.invalid("status.Phase", phase, f"may only be '{expected}' if `deletionTimestamp` is {when}")]
