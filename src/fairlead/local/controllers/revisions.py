"""Revisions: the templates a DaemonSet or StatefulSet has had, kept so that one can be rolled back to."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fairlead.local.controllers.spec import REVISIONS, ControllerRevision, DaemonSet, Json, StatefulSet
from fairlead.model.hashes import short_hash
from fairlead.model.intents import Create, Intent, delete, patch
from fairlead.model.kinds import Kind
from fairlead.model.owners import controller_reference

HASH: Final = "controller-revision-hash"


@dataclass(frozen=True, slots=True)
class Revision:
    """The revision of the present template: its name, its hash, and what must be written so that it is there."""

    name: str
    hash: str
    intents: tuple[Intent, ...] = ()
    is_collision: bool = False


def revision_data(template: Json) -> Json:
    """A patch that puts the template back, as kubectl applies it.

    Its fields are in order: kubectl compares the bytes to see whether a revision exists already.
    """
    found: Json = _in_order({"spec": {"template": {**template, "$patch": "replace"}}})
    return found


def _in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _in_order(value[key]) for key in sorted(value)}
    return [_in_order(each) for each in value] if isinstance(value, list) else value


def template_of(revision: ControllerRevision) -> Json:
    template = (revision.data.get("spec") or {}).get("template") or {}
    return {name: value for name, value in template.items() if name != "$patch"}


def plan_revision(
    kind: Kind[Any],
    owner: DaemonSet | StatefulSet,
    held: Sequence[ControllerRevision],
    taken: Collection[str],
    *,
    label: str = HASH,
) -> Revision:
    """The newest revision is the present template's: found, brought forward, or made under a name that is not taken."""
    metadata, template = owner.metadata, owner.spec.template
    data = revision_data(template)
    newest = max((found.revision for found in held), default=0)
    same = max((found for found in held if found.data == data), key=lambda found: found.revision, default=None)
    if same is not None:
        forward = (patch(REVISIONS, same.metadata, {"revision": newest + 1}),) if same.revision < newest else ()
        return Revision(same.metadata.name, same.metadata.labels.get(label, ""), forward)
    hashed = short_hash(data, owner.count("collisionCount"))
    name = f"{metadata.name[:223]}-{hashed}"
    if name in taken:
        return Revision(name, hashed, (), is_collision=True)
    body = {
        "apiVersion": REVISIONS.api_version,
        "kind": REVISIONS.kind,
        "metadata": {
            "name": name,
            "namespace": metadata.namespace,
            "labels": {**((template.get("metadata") or {}).get("labels") or {}), label: hashed},
            "annotations": dict(metadata.annotations),  # the change cause is there
            "ownerReferences": [controller_reference(kind, metadata)],
        },
        "data": data,
        "revision": newest + 1,
    }
    return Revision(name, hashed, (Create(kind=REVISIONS, namespace=metadata.namespace, body=body),))


def plan_history(held: Iterable[ControllerRevision], live: Collection[str], limit: int | None) -> Iterable[Intent]:
    """Revisions that nothing runs any more, oldest first, beyond the limit."""
    idle = sorted((found for found in held if found.metadata.name not in live), key=lambda found: found.revision)
    for found in idle[: max(0, len(idle) - (10 if limit is None else limit))]:
        yield delete(REVISIONS, found.metadata)
