"""Validation of the kinds of coordination.k8s.io: Leases."""

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation.errors import Causes, Json


def lease(new: Json, old: Json | None) -> Causes:
    spec = new.get("spec") or {}
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        yield field.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    if transitions is not None and transitions < 0:
        yield field.invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")
