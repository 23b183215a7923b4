"""Indexes that most reconciling rooms want of a mirror: by UID, by owner, by namespace, by lack of an owner."""

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.cluster.mirror import Index, Mirror
from fairlead.cluster.watch import T
from fairlead.model.meta import HasMetadata, ObjectMeta
from fairlead.model.owners import is_controlled_by


def _uid(thing: HasMetadata) -> Iterable[str]:
    return (thing.metadata.uid,)


def _owners(thing: HasMetadata) -> Iterable[str]:
    return {reference.uid for reference in thing.metadata.owner_references}


def _namespace(thing: HasMetadata) -> Iterable[str]:
    return (thing.metadata.namespace,)


def _orphan(thing: HasMetadata) -> Iterable[str]:
    return () if thing.metadata.controller else (thing.metadata.namespace,)


INDEXES: Mapping[str, Index[Any]] = {"uid": _uid, "owner": _owners, "namespace": _namespace, "orphan": _orphan}


def claimable(mirror: Mirror[T], owner: ObjectMeta) -> tuple[T, ...]:
    """What the owner controls, and what nobody controls in its namespace. The mirror has these indexes."""
    controlled = [found for found in mirror.by("owner", owner.uid) if is_controlled_by(found, owner)]
    return (*controlled, *mirror.by("orphan", owner.namespace))
