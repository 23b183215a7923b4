"""Whether an object may be written: validation and warnings."""

from fairlead.apiserver.failures import invalid
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.registry.attributes import Write
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.schema.shape import forget_empty
from fairlead.apiserver.validation import registry as validate
from fairlead.apiserver.validation import warnings


def judge(write: Write, thing: JsonObject, old: JsonObject | None, *, has_empty: bool) -> None:
    """Raises a Failure where it is invalid; warns of what is valid and discouraged."""
    resource, subresource = write.resource, write.subresource
    _check(resource, thing, old, subresource)
    if resource.custom is None:
        found = warnings.on_write(resource.group, resource.kind, thing, old, subresource)
    else:
        found = [] if subresource else warnings.of_finalizers(thing, old)
    for text in found:
        write.warn(text)
    if has_empty:
        forget_empty(resource.schema, thing)


def _check(resource: Resource, thing: JsonObject, old: JsonObject | None, subresource: str) -> None:
    kind = (resource.group, resource.version, resource.kind)
    if resource.custom is not None:
        found = resource.custom.validate(resource.version, thing, old, subresource)
    elif old is None:
        found = validate.validate_create(*kind, thing)
    elif subresource == "status":
        found = validate.validate_status(*kind, thing, old)
    elif subresource:
        return
    else:
        found = validate.validate_update(*kind, thing, old)
    if found:
        group = resource.strategy.storage_group(resource.group)
        called = thing["kind"] if resource.custom is not None else resource.kind
        raise invalid(group, called, thing["metadata"].get("name", ""), *found)
