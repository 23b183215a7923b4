"""Deletion: at once, after the grace period, or when the last finalizer is gone."""

from typing import TYPE_CHECKING, Any

import msgspec

from fairlead.apiserver.failures import conflict
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.registry.attributes import Write
from fairlead.apiserver.registry.resources import Resource, custom
from fairlead.apiserver.request.options import DeleteOptions, Options

if TYPE_CHECKING:
    from fairlead.apiserver.registry.rest import Rest


async def delete(rest: "Rest", write: Write, deletion: DeleteOptions) -> tuple[JsonObject, bool]:
    """The object after the delete, and whether it is gone."""
    resource, strategy = write.resource, write.resource.strategy
    current = await rest.current(write)
    thing = rest.thing(resource, current)
    check_preconditions(resource, thing, deletion)
    attempt = write.attempt("DELETE", None, thing, len(current.body))
    await rest.admission.mutate(attempt)
    await rest.admission.validate(attempt)
    if (contents := strategy.contents(thing)) and not write.options.dry_run:
        await _delete_contents(rest, contents, write.options)
    strategy.check_delete(write.name)
    before = _marks(thing)
    strategy.begin_deletion(thing, deletion, rest.clock.now())
    over = "deletionTimestamp" not in thing["metadata"] or is_over(resource, thing)
    if deletion.dry_run:
        return thing, over
    if over and strategy.graceful and _marks(thing) != before:
        # A watch shows the deletionTimestamp first, then DELETED.
        await rest.put(write, thing, current.revision)
        current = rest.entry(resource, write.namespace, write.name)
    if over:
        await rest.remove(write, thing, current)
    elif msgspec.json.encode(thing) != current.body:
        await rest.put(write, thing, current.revision)
    return thing, over


async def _delete_contents(rest: "Rest", storage_key: str, options: Options) -> None:
    """Every object of a custom kind, with its definition."""
    kind = rest.resources.custom_kind(storage_key)
    if kind is None:
        return  # its names were never accepted: these are the server's own objects
    for key, entry in list(rest.store.items(storage_key)):
        stored = msgspec.json.decode(entry.body)
        version = stored["apiVersion"].rpartition("/")[2]
        if version not in kind.versions:
            rest.store.delete(storage_key, key, stored, entry.revision)  # nobody can read it any more
            continue
        # In the stored version, so that nothing must be converted.
        metadata = stored["metadata"]
        write = Write(custom(kind, version), metadata.get("namespace", ""), metadata["name"], options)
        await rest.delete(write, DeleteOptions())


def check_preconditions(resource: Resource, thing: JsonObject, deletion: DeleteOptions) -> None:
    metadata = thing["metadata"]
    for what, expected, found in (
        ("UID", deletion.uid, metadata["uid"]),
        ("ResourceVersion", deletion.resource_version, metadata["resourceVersion"]),
    ):
        if expected and expected != found:
            event = "deleted and then recreated" if what == "UID" else "modified"
            why = (
                f"the {what} in the precondition ({expected}) does not match the {what} in record ({found}). "
                f"The object might have been {event}"
            )
            raise conflict(resource.group, resource.kind, metadata["name"], why)


def is_over(resource: Resource, thing: JsonObject) -> bool:
    """Deleted, without finalizers and without a grace period left."""
    metadata = thing["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers") or resource.strategy.is_held(thing):
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def _marks(thing: JsonObject) -> tuple[Any, Any]:
    return thing["metadata"].get("deletionTimestamp"), thing["metadata"].get("deletionGracePeriodSeconds")


def storage_precondition(resource: Resource, metadata: JsonObject, what: str, expected: str, found: str) -> str:
    """A precondition that failed, as the storage of Kubernetes words it."""
    place = resource.storage_key if resource.custom is not None else resource.strategy.storage_path or resource.plural
    key = "/".join(part for part in ("/registry", place, metadata.get("namespace", ""), metadata["name"]) if part)
    return (
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition "
        f"failed: {what} in precondition: {expected}, {what} in object meta: {found}"
    )
