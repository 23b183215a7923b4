"""Validation of the kinds of node.k8s.io: RuntimeClasses."""

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import names
from fairlead.apiserver.validation.errors import Errors, Json


def runtime_class(new: Json, old: Json | None) -> Errors:
    if old is not None:
        return field.immutable("handler", new.get("handler"), old.get("handler"))
    return field.mandatory("handler", new.get("handler", ""), names.label)
