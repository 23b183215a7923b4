"""Who owns what: references to an owner, and claiming by selector.

An owner adopts what matches its selector and belongs to nobody, and lets go what it controls and no longer
matches. Called by the planners; the shell looks once more at the living owner before an adoption is sent.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from fairlead.model.intents import Intent, Patch, patch
from fairlead.model.kinds import Kind
from fairlead.model.meta import HasMetadata, ObjectMeta, OwnerReference
from fairlead.model.selectors import Selector

Json = dict[str, Any]


T = TypeVar("T", bound=HasMetadata)


def owner_reference(kind: Kind[Any], name: str, uid: str) -> Json:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": uid}


def controller_reference(kind: Kind[Any], owner: ObjectMeta) -> Json:
    return {**owner_reference(kind, owner.name, owner.uid), "controller": True, "blockOwnerDeletion": True}


def is_controlled_by(thing: HasMetadata, owner: ObjectMeta) -> bool:
    controller = thing.metadata.controller
    return controller is not None and controller.uid == owner.uid


def claim(
    owner_kind: Kind[Any],
    owner: ObjectMeta,
    selector: Selector,
    kind: Kind[Any],
    candidates: Iterable[T],
    *,
    finalizers: Iterable[str] = (),
) -> tuple[list[T], list[Intent]]:
    """What is the owner's, the adopted included, and the patches that make it so."""
    mine: list[T] = []
    intents: list[Intent] = []
    is_going = owner.deletion_timestamp is not None
    for thing in candidates:
        metadata = thing.metadata
        matches = selector.matches(metadata.labels)
        if is_controlled_by(thing, owner):
            if matches:
                mine.append(thing)
            elif not is_going:
                intents.append(release(kind, metadata, owner.uid, finalizers))
        elif metadata.controller is None and matches and not is_going and metadata.deletion_timestamp is None:
            mine.append(thing)
            intents.append(adopt(owner_kind, owner, kind, metadata, finalizers))
    return mine, intents


def adopt(
    owner_kind: Kind[Any], owner: ObjectMeta, kind: Kind[Any], thing: ObjectMeta, finalizers: Iterable[str] = ()
) -> Patch:
    metadata: Json = {
        "ownerReferences": [*as_json(thing.owner_references), controller_reference(owner_kind, owner)],
    }
    missing = [name for name in finalizers if name not in thing.finalizers]
    if missing:
        metadata["finalizers"] = [*thing.finalizers, *missing]
    return patch_metadata(kind, thing, metadata)


def release(kind: Kind[Any], thing: ObjectMeta, owner_uid: str, finalizers: Iterable[str] = ()) -> Patch:
    """Without the reference to this owner, and without the finalizers that it had put there."""
    left = [reference for reference in thing.owner_references if reference.uid != owner_uid]
    metadata: Json = {"ownerReferences": as_json(left) or None}
    dropped = set(finalizers) & set(thing.finalizers)
    if dropped:
        metadata["finalizers"] = [name for name in thing.finalizers if name not in dropped] or None
    return patch_metadata(kind, thing, metadata)


def drop_finalizer(kind: Kind[Any], thing: ObjectMeta, finalizer: str) -> Patch:
    left = [name for name in thing.finalizers if name != finalizer]
    return patch_metadata(kind, thing, {"finalizers": left or None})


def patch_metadata(kind: Kind[Any], thing: ObjectMeta, metadata: Json) -> Patch:
    """Lists are replaced whole, so nothing may have changed since: the version is a precondition, and the UID."""
    return patch(kind, thing, {"metadata": {"uid": thing.uid, **metadata}})


def is_adoption(intent: Intent, owner_uid: str) -> bool:
    if not isinstance(intent, Patch):
        return False
    references = intent.patch.get("metadata", {}).get("ownerReferences") or ()
    return any(reference["uid"] == owner_uid for reference in references)


def as_json(references: Iterable[OwnerReference]) -> list[Json]:
    found: list[Json] = msgspec.to_builtins(list(references))
    return found
