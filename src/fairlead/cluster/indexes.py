"""Indexes that most reconciling rooms want of a mirror: by UID, by owner, by namespace, by lack of an owner."""

from collections.abc import Mapping
from typing import Any

from fairlead.cluster.mirror import Index, Mirror
from fairlead.cluster.watch import T
from fairlead.model.meta import ObjectMeta
from fairlead.model.owners import is_controlled_by

INDEXES: Mapping[str, Index[Any]] = {
    "uid": lambda thing: (thing.metadata.uid,),
    "owner": lambda thing: {reference.uid for reference in thing.metadata.owner_references},
    "namespace": lambda thing: (thing.metadata.namespace,),
    "orphan": lambda thing: () if thing.metadata.controller else (thing.metadata.namespace,),
}


def claimable(mirror: Mirror[T], owner: ObjectMeta) -> tuple[T, ...]:
    """What the owner controls, and what nobody controls in its namespace. The mirror has these indexes."""
    controlled = [found for found in mirror.by("owner", owner.uid) if is_controlled_by(found, owner)]
    return (*controlled, *mirror.by("orphan", owner.namespace))
