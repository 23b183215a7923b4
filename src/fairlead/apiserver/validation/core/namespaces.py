"""Validation of namespaces and of the accounts in them."""

from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.errors import (
    Errors,
    Json,
    invalid,
)


def namespace(obj: Json) -> Errors:
    return metadata.on_create(obj["metadata"], False, names.label)


def namespace_update(new: Json, old: Json) -> Errors:
    return metadata.anew(new["metadata"], old["metadata"], False, names.label)


def service_account(obj: Json) -> Errors:
    return metadata.on_create(obj["metadata"], True, names.subdomain)


def service_account_update(new: Json, old: Json) -> Errors:
    return metadata.anew(new["metadata"], old["metadata"], True, names.subdomain)


def namespace_status(new: Json, old: Json) -> Errors:
    phase = (new.get("status") or {}).get("phase", "")
    going = bool(new["metadata"].get("deletionTimestamp"))
    expected, when = ("Terminating", "not empty") if going else ("Active", "empty")
    if phase == expected:
        return []
    return [invalid("status.Phase", phase, f"may only be '{expected}' if `deletionTimestamp` is {when}")]
