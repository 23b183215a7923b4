"""Objects deleted: at once, after their grace, or once nobody holds them any more."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from fairlead.apiserver.failures import (
    conflict,
    forbidden,
)
from fairlead.apiserver.registry.attributes import AdmissionAttributes, JsonObject
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.request.options import DeleteOptions, Options
from fairlead.apiserver.storage.store import Entry
from fairlead.cluster.clock import rfc3339

if TYPE_CHECKING:
    from fairlead.apiserver.registry.rest import Rest


async def delete(
    rest: "Rest", resource: Resource, namespace: str, name: str, wanted: DeleteOptions, options: Options
) -> tuple[JsonObject, bool]:
    current = rest.entry(resource, namespace, name)
    await rest.ready(resource, current)
    thing = rest.thing(resource, current)
    metadata = thing["metadata"]
    check_preconditions(resource, thing, wanted)
    await rest.admitted(
        rest.mutating, AdmissionAttributes("DELETE", resource, namespace, name, None, thing, "", options)
    )
    await rest.admitted(
        rest.validating, AdmissionAttributes("DELETE", resource, namespace, name, None, thing, "", options)
    )
    if resource.storage_key == "/namespaces":
        return await _delete_namespace(rest, resource, name, thing, current, wanted)
    grace_s = _grace_s(resource, thing, wanted)
    _set_deletion_finalizers(metadata, wanted.propagation or resource.strategy.usual_propagation)
    already = "deletionTimestamp" in metadata
    if not resource.strategy.graceful and not already and not metadata.get("finalizers"):
        pass  # it goes as it is, never marked
    elif not already or grace_s < metadata.get("deletionGracePeriodSeconds", 0):
        metadata["deletionTimestamp"] = rfc3339(rest.clock.now() + timedelta(seconds=grace_s))
        metadata["deletionGracePeriodSeconds"] = grace_s
        if resource.strategy.has_generation and not already:
            metadata["generation"] = metadata.get("generation", 0) + 1
    over = is_over(thing) or "deletionTimestamp" not in metadata
    if wanted.dry_run:
        return thing, over
    if over and resource.strategy.graceful and _marks(thing) != _marks(rest.thing(resource, current)):
        # Those who watch see it marked first, and then gone.
        await rest.put(resource, namespace, name, thing, current.revision)
        current = rest.entry(resource, namespace, name)
    if over:
        await rest.remove(resource, namespace, name, thing, current)
    elif msgspec.json.encode(thing) != current.body:
        await rest.put(resource, namespace, name, thing, current.revision)
    return thing, over


def check_preconditions(resource: Resource, thing: JsonObject, wanted: DeleteOptions) -> None:
    metadata = thing["metadata"]
    for what, asked, found in (
        ("UID", wanted.uid, metadata["uid"]),
        ("ResourceVersion", wanted.resource_version, metadata["resourceVersion"]),
    ):
        if asked and asked != found:
            meant = "deleted and then recreated" if what == "UID" else "modified"
            why = (
                f"the {what} in the precondition ({asked}) does not match the {what} in record ({found}). "
                f"The object might have been {meant}"
            )
            raise conflict(resource.group, resource.kind, metadata["name"], why)


def _grace_s(resource: Resource, thing: JsonObject, wanted: DeleteOptions) -> int:
    if not resource.strategy.graceful:
        return 0
    spec, status = thing["spec"], thing.get("status") or {}
    asked = wanted.grace_s if wanted.grace_s is not None else spec.get("terminationGracePeriodSeconds", 30)
    # Nobody runs it, or it has run: there is nothing to wait for.
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    left = thing["metadata"].get("deletionGracePeriodSeconds")
    return int(asked if left is None else min(asked, left))


def _set_deletion_finalizers(metadata: JsonObject, propagation: str) -> None:
    wanted = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(propagation)
    if not propagation:
        return
    kept = [each for each in metadata.get("finalizers") or [] if each not in ("foregroundDeletion", "orphan")]
    if wanted is not None:
        kept.append(wanted)
    if kept:
        metadata["finalizers"] = kept
    else:
        metadata.pop("finalizers", None)


async def _delete_namespace(
    rest: "Rest", resource: Resource, name: str, thing: JsonObject, current: Entry, wanted: DeleteOptions
) -> tuple[JsonObject, bool]:
    metadata = thing["metadata"]
    if name in PROTECTED_NAMESPACES:
        raise forbidden("", "namespaces", name, "this namespace may not be deleted")
    if "deletionTimestamp" not in metadata:
        metadata["deletionTimestamp"] = rfc3339(rest.clock.now())
        thing["status"] = {**(thing.get("status") or {}), "phase": "Terminating"}
    elif thing["spec"].get("finalizers"):
        return thing, False
    over = not thing["spec"].get("finalizers") and not metadata.get("finalizers")
    if wanted.dry_run:
        return thing, over
    if over:
        await rest.remove(resource, "", name, thing, current)
    else:
        await rest.put(resource, "", name, thing, current.revision)
    return thing, over


def is_over(thing: JsonObject) -> bool:
    """Deleted, and nobody left who wants to see it first."""
    metadata = thing["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if thing.get("kind") == "Namespace" and (thing.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")


PROTECTED_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})


def _marks(thing: JsonObject) -> tuple[Any, Any]:
    return thing["metadata"].get("deletionTimestamp"), thing["metadata"].get("deletionGracePeriodSeconds")


def storage_precondition(resource: Resource, metadata: JsonObject, what: str, asked: str, found: str) -> str:
    """A precondition that failed, as the storage of Kubernetes words it."""
    place = {"/services": "services/specs", "/nodes": "minions"}.get(resource.storage_key, resource.plural)
    if resource.custom is not None:
        place = resource.storage_key
    key = "/".join(part for part in ("/registry", place, metadata.get("namespace", ""), metadata["name"]) if part)
    return (
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition "
        f"failed: {what} in precondition: {asked}, {what} in object meta: {found}"
    )
