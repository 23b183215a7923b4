"""Validation of the kinds of node.k8s.io: RuntimeClasses."""

from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.errors import Errors, Json, immutable, malformed, required


def runtime_class(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], False, names.subdomain, core=False)
    handler = obj.get("handler", "")
    if not handler:
        return [*found, required("handler")]
    return [*found, *malformed("handler", handler, names.label)]


def runtime_class_update(new: Json, old: Json) -> Errors:
    found = metadata.anew(new["metadata"], old["metadata"], False, names.subdomain, core=False)
    return [*found, *immutable("handler", new.get("handler"), old.get("handler"))]
