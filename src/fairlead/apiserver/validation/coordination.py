"""Validation of the kinds of coordination.k8s.io: Leases."""

from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.errors import (
    Errors,
    Json,
    invalid,
)


def lease(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], True, names.subdomain, core=False)
    return [*found, *_lease_spec(obj.get("spec") or {})]


def lease_update(new: Json, old: Json) -> Errors:
    return [*metadata.on_update(new["metadata"], old["metadata"], core=False), *_lease_spec(new.get("spec") or {})]


def _lease_spec(spec: Json) -> Errors:
    found: Errors = []
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        found.append(invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        found.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return found
