"""Whether an object may be written as it is: what validation asks, and what there is to warn of."""

from fairlead.apiserver.failures import (
    invalid,
)
from fairlead.apiserver.registry.attributes import JsonObject
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.request.options import Options
from fairlead.apiserver.schema.shape import (
    forget_empty,
)
from fairlead.apiserver.validation import registry as validate
from fairlead.apiserver.validation import warnings


def judge(
    resource: Resource, thing: JsonObject, old: JsonObject | None, options: Options, subresource: str = ""
) -> None:
    _check(resource, thing, old, subresource)
    _warn(resource, thing, old, options, subresource)
    if options.has_empty:
        forget_empty(resource.schema, thing)


def _check(resource: Resource, thing: JsonObject, old: JsonObject | None, subresource: str = "") -> None:
    name = thing["metadata"].get("name", "")
    if resource.custom is not None:
        found = resource.custom.validate(resource.version, thing, old, subresource)
    elif old is None:
        found = validate.validate_create(resource.group, resource.version, resource.kind, thing)
    elif subresource == "status":
        found = validate.validate_status(resource.group, resource.version, resource.kind, thing, old)
    elif subresource:
        return
    else:
        found = validate.validate_update(resource.group, resource.version, resource.kind, thing, old)
    if found:
        # Events are of the core group inside, whichever way they came.
        group = "" if resource.storage_key == "events.k8s.io/events" else resource.group
        kind = thing["kind"] if resource.custom is not None else resource.kind
        raise invalid(group, kind, name, [(each.type, each.message, each.field) for each in found])


def _warn(
    resource: Resource, thing: JsonObject, old: JsonObject | None, options: Options, subresource: str = ""
) -> None:
    if resource.custom is not None:
        if not subresource:
            options.warnings += warnings.of_finalizers(thing, old)
    else:
        options.warnings += warnings.on_write(resource.group, resource.kind, thing, old, subresource)
