"""Pods out of templates: their hash, their names, their bodies.

Everything is a function of its arguments: the same template always has the same hash, and a name is made of who
asks, when, and which one it is.
"""

from datetime import datetime
from typing import Any, Final

from fairlead.model.hashes import short_hash
from fairlead.model.kinds import Kind
from fairlead.model.meta import ObjectMeta
from fairlead.model.owners import controller_reference

Json = dict[str, Any]

HASH_LABEL: Final = "pod-template-hash"
# A name made from another is cut so that the suffix still fits a label.
LONGEST_PREFIX: Final = 58


def template_hash(template: Json, collisions: int = 0) -> str:
    return short_hash(without_hash(template), *([collisions] if collisions else []))


def without_hash(template: Json) -> Json:
    """The template as its author wrote it: without the label that controllers add."""
    metadata = template.get("metadata") or {}
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name != HASH_LABEL}
    kept = {name: value for name, value in metadata.items() if value and name not in ("labels", "creationTimestamp")}
    return {"metadata": {**kept, "labels": labels}, "spec": template.get("spec") or {}}


def is_same_template(one: Json, other: Json) -> bool:
    return without_hash(one) == without_hash(other)


def fresh_name(owner: ObjectMeta, now: datetime, number: int, place: str = "") -> str:
    suffix = short_hash(owner.uid, now.isoformat(), number, length=5)
    return f"{owner.name}{place}-"[:LONGEST_PREFIX] + suffix


def pod_body(kind: Kind[Any], owner: ObjectMeta, template: Json, name: str) -> Json:
    """A pod as the template says, controlled by its owner; with the prefix of its name."""
    metadata = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **{field: dict(metadata.get(field) or {}) for field in ("labels", "annotations")},
            "finalizers": list(metadata.get("finalizers") or ()),
            "name": name,
            "generateName": f"{name.rpartition('-')[0]}-",
            "namespace": owner.namespace,
            "ownerReferences": [controller_reference(kind, owner)],
        },
        "spec": dict(template.get("spec") or {}),
    }
