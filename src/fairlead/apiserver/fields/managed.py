"""Who owns which field: managedFields, recorded on every write, and server-side apply built on them.

`record_update` compares before and after: what a write changed or added becomes the writer's, what it removed is
nobody's. `apply` merges a configuration into the live object, refuses to change what others own unless forced, and
removes what the same manager applied earlier and no longer asks for, unless somebody else asks for it too.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from fairlead.apiserver.fields import sets
from fairlead.apiserver.fields.elements import Json, Path, path_text
from fairlead.apiserver.fields.sets import Paths, Tree, difference, nested, paths_of
from fairlead.apiserver.fields.walking import all_paths, compare, field_set, merge, removed_from, with_named
from fairlead.apiserver.json_values import copied
from fairlead.apiserver.schema import facts
from fairlead.apiserver.schema.shape import Notes, Schema
from fairlead.apiserver.validation.errors import MOST_SHOWN

MOST_UPDATERS: Final = 10
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

# Never owned by anybody.
_STRIPPED_METADATA: Final = tuple(
    f"f:{name}"
    for name in (
        ".", "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation",
        "managedFields", "resourceVersion",
    )
)  # fmt: skip


class Conflict(NamedTuple):
    manager: str  # as the server prints it: `"kubectl" using v1`
    field: str  # .spec.replicas
    message: str


class ApplyConflict(Exception):
    """Fields that other managers own would change: a 409 with a cause for each."""

    def __init__(self, conflicts: list[Conflict]) -> None:
        self.conflicts = conflicts
        if len(conflicts) == 1:
            text = f"Apply failed with 1 conflict: conflict with {conflicts[0].manager}: {conflicts[0].field}"
        else:
            lines: list[str] = []
            for manager in dict.fromkeys(conflict.manager for conflict in conflicts):
                lines.append(f"conflicts with {manager}:")
                lines += [f"- {conflict.field}" for conflict in conflicts if conflict.manager == manager]
            text = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
        super().__init__(text)


class _Manager(NamedTuple):
    """An entry's manager; Apply entries match across versions."""

    name: str
    operation: str
    version: str
    subresource: str

    def __str__(self) -> str:
        text = json.dumps(self.name)
        if self.subresource:
            text += f" with subresource {json.dumps(self.subresource)}"
        return f"{text} using {self.version}" if self.operation == "Update" else text


@dataclass(slots=True)
class _Entry:
    fields: Tree
    version: str
    time: str | None


_Managers = dict[_Manager, _Entry]


# --- the two ways to write --------------------------------------------------------------------------------------


def record_update(
    schema: Schema, old: Json | None, new: Json, *, manager: str, api_version: str, time: str, subresource: str = ""
) -> list[Json]:
    """The managedFields of `new` after a write that was no apply. `old` is None when the object is created.

    Called before admission changes the object, as the real server does: what admission adds is nobody's.
    """
    before = (old or {}).get("metadata", {}).get("managedFields")
    given = new.get("metadata", {}).get("managedFields")
    if not subresource and given in ([], [{}]):  # the client resets them
        managers: _Managers = {}
    else:
        managers = _decoded(before if subresource or not given else given, before)
    if old is not None and not managers:
        return []
    self = _Manager(manager or "unknown", "Update", api_version, subresource)
    _record(schema, _empty(schema) if old is None else old, new, managers, self, time, subresource)
    return _encoded(_capped(managers))


def apply(
    schema: Schema,
    live: Json | None,
    applied: Json,
    *,
    manager: str,
    api_version: str,
    time: str,
    subresource: str = "",
    force: bool = False,
) -> Json:
    """The object after a server-side apply, its managedFields included; not defaulted yet. `applied` has the types of
    the schema: `registry/apply.py` has checked that."""
    current = _empty(schema) if live is None else live
    managers = _decoded(current.get("metadata", {}).get("managedFields"), None)
    current = _without_managed_fields(current)
    if live is not None and not managers:
        before = _Manager("before-first-apply", "Update", api_version, subresource)
        _record(schema, _empty(schema), current, managers, before, time, subresource)
    self = _Manager(manager, "Apply", "", subresource)
    last = paths_of(managers[self].fields) if self in managers else set()
    paths: Paths = set()
    field_set(schema, applied, (), paths)
    owned = _stripped(_without_reset(schema, sets.fields_of(paths), subresource))
    managers[self] = _Entry(owned, api_version, managers[self].time if self in managers else None)
    merged = merge(schema, copied(current), applied)
    result = _pruned(schema, merged, last, managers, paths) if last else merged
    changed, removed = _changes(schema, current, result, subresource)
    conflicts = _conflicts(managers, self, changed)
    if conflicts and not force and not _all_allowed(schema, current, manager, conflicts):
        raise ApplyConflict(_by_field(conflicts))
    _take(managers, self, changed, removed)
    if result != current:
        managers[self].time = time
    if not owned:
        del managers[self]
    if manager == "kubectl" and LAST_APPLIED in _annotations(current):
        _annotations(result)[LAST_APPLIED] = _last_applied_text(applied)
    metadata = result["metadata"] = result.get("metadata") or {}
    metadata["managedFields"] = _encoded(managers)
    if not metadata["managedFields"]:
        del metadata["managedFields"]
    return result


def _record(
    schema: Schema, old: Json, new: Json, managers: _Managers, self: _Manager, time: str, subresource: str
) -> None:
    changed, removed = _changes(schema, old, new, subresource)
    _take(managers, None, changed, removed)
    taken = _stripped(changed)
    if taken:
        fields = sets.union(managers[self].fields, taken) if self in managers else taken
        managers[self] = _Entry(fields, self.version, time)


def _take(managers: _Managers, self: _Manager | None, *gone: Tree) -> None:
    """Remove changed and deleted fields from every other manager."""
    for manager in list(managers):
        if manager != self:
            entry = managers[manager]
            for each in gone:
                if each:
                    entry.fields = difference(entry.fields, each)
            if not entry.fields:
                del managers[manager]


def _conflicts(managers: _Managers, self: _Manager, changed: Tree) -> dict[_Manager, Paths]:
    paths = paths_of(changed)
    found = {manager: paths_of(entry.fields) & paths for manager, entry in managers.items() if manager != self}
    return {manager: shared for manager, shared in found.items() if shared}


def _by_field(conflicts: dict[_Manager, Paths]) -> list[Conflict]:
    listed: list[Conflict] = []
    left = MOST_SHOWN
    for manager in sorted(conflicts, key=lambda each: (each.name, each.operation, each.version, each.subresource)):
        for path in sets.in_order(conflicts[manager]):
            text = path_text(path) if left > 0 else "..."
            left -= len(text)
            listed.append(Conflict(str(manager), text, f"conflict with {manager}"))
    return listed


def _all_allowed(schema: Schema, live: Json, manager: str, conflicts: dict[_Manager, Paths]) -> bool:
    """kubectl may take over fields that its client-side apply set, by last-applied-configuration."""
    text = _annotations(live).get(LAST_APPLIED)
    if manager != "kubectl" or text is None:
        return False
    allowed: Paths = set()
    try:
        remembered = json.loads(text)
        if not isinstance(remembered, dict):
            return False
        field_set(schema, remembered, (), allowed)
        changed, removed = _changes(schema, remembered, live, None)
    except (ValueError, RecursionError):
        return False  # not a usable last-applied-configuration
    allowed -= paths_of(changed) | paths_of(removed)
    return all(paths <= allowed for paths in conflicts.values())


def _annotations(obj: Json) -> Json:
    return (obj.get("metadata") or {}).get("annotations") or {}


def _last_applied_text(applied: Json) -> str:
    kept = copied(applied)
    annotations = _annotations(kept)
    annotations.pop(LAST_APPLIED, None)
    return json.dumps(kept, separators=(",", ":"), ensure_ascii=False) + "\n"


def _without_managed_fields(obj: Json) -> Json:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def _empty(schema: Schema) -> Json:
    """An empty object of this kind: Go's structs have their fields from the start."""
    if schema.struct is None or schema.struct.custom:
        return {}
    made: Json = schema.struct.read({}, Notes())
    return made


def _without_reset(schema: Schema, fields: Tree, subresource: str | None) -> Tree:
    """Without what this way of writing cannot change: the status, or the spec."""
    if subresource is None or not has_status(schema):
        return fields
    reset = {"": "f:status", "status": "f:spec"}.get(subresource)
    return {element: inner for element, inner in fields.items() if element != reset}


def _stripped(fields: Tree) -> Tree:
    """Without what is never owned."""
    kept = {element: inner for element, inner in fields.items() if element not in ("f:apiVersion", "f:kind")}
    metadata = kept.pop("f:metadata", None)
    if metadata:
        left = {key: inner for key, inner in metadata.items() if key not in _STRIPPED_METADATA and key != "."}
        if left:
            kept["f:metadata"] = left
    return kept


def has_status(schema: Schema) -> bool:
    struct = schema.struct
    if struct is None:
        return False
    if struct.custom:
        return struct.status_apart
    return _status_apart(struct.kinds[0]) if struct.kinds else False


@lru_cache(maxsize=256)
def _status_apart(kind: facts.GroupVersionKind) -> bool:
    resource = facts.load().by_kind.get(kind)
    return resource is not None and resource.subresource("status") is not None


def _changes(schema: Schema, left: Json, right: Json, subresource: str | None) -> tuple[Tree, Tree]:
    """What the right one adds or changes, and what it no longer has."""
    changed, removed = compare(schema, left, right)
    return (
        _without_reset(schema, changed or {}, subresource),
        _without_reset(schema, removed or {}, subresource),
    )


# --- removing what is no longer applied -------------------------------------------------------------------------


def _pruned(schema: Schema, merged: Json, last: Paths, managers: _Managers, applied: Paths) -> Json:
    """Without what this manager applied before and no manager owns now."""
    last = with_named(schema, last)
    everybody: Paths = set(applied)  # includes metadata.name etc., which managedFields never records
    for entry in managers.values():
        everybody |= paths_of(entry.fields)
    everybody = with_named(schema, everybody)
    whole = with_named(schema, all_paths(schema, merged))
    first = removed_from(schema, merged, nested(last))
    kept = with_named(schema, all_paths(schema, first)) | everybody
    second = removed_from(schema, merged, nested(whole - kept))
    left = with_named(schema, all_paths(schema, second))
    result = removed_from(schema, merged, nested((whole - left) & last))
    return result if isinstance(result, dict) else {}


# --- managedFields as they are written --------------------------------------------------------------------------


def _decoded(entries: Any, otherwise: Any) -> _Managers:
    managers: _Managers = {}
    for entry in entries or ():
        is_known = entry.get("operation") in ("Apply", "Update") and entry.get("fieldsType") == "FieldsV1"
        if not is_known or not entry.get("apiVersion") or not sets.is_tree(entry.get("fieldsV1") or {}):
            return _decoded(otherwise, None) if otherwise else {}
        version = entry["apiVersion"] if entry["operation"] == "Update" else ""
        self = _Manager(entry.get("manager", ""), entry["operation"], version, entry.get("subresource", ""))
        managers[self] = _Entry(entry.get("fieldsV1") or {}, entry["apiVersion"], entry.get("time"))
    return managers


def owns(entry: Json, path: Path) -> bool:
    """Whether an entry of managedFields has this path."""
    return path in paths_of(entry.get("fieldsV1") or {})


def without(entry: Json, path: Path) -> Json:
    return {**entry, "fieldsV1": difference(entry.get("fieldsV1") or {}, sets.tree_of(path))}


def _encoded(managers: _Managers) -> list[Json]:
    def order(item: tuple[_Manager, _Entry]) -> tuple[str, str, str, str, str]:
        manager, entry = item
        return manager.operation, entry.time or "", manager.name, entry.version, manager.subresource

    return [
        {
            **({"manager": manager.name} if manager.name else {}),
            "operation": manager.operation,
            "apiVersion": entry.version,
            **({"time": entry.time} if entry.time is not None else {}),
            "fieldsType": "FieldsV1",
            "fieldsV1": entry.fields,
            **({"subresource": manager.subresource} if manager.subresource else {}),
        }
        for manager, entry in sorted(managers.items(), key=order)
    ]


def _capped(managers: _Managers) -> _Managers:
    """Merge the oldest Update entries of a version once there are more than MOST_UPDATERS."""
    updaters = [manager for manager in managers if manager.operation == "Update"]
    excess = len(updaters) - MOST_UPDATERS
    if excess <= 0:
        return managers
    updaters.sort(key=lambda manager: (managers[manager].time or "", manager))
    first: dict[str, _Manager] = {}
    for manager in updaters:
        if excess <= 0:
            break
        entry = managers[manager]
        bucket = _Manager("ancient-changes", "Update", entry.version, "")
        if manager == bucket:
            continue
        if bucket not in managers and entry.version not in first:
            first[entry.version] = manager
            continue
        if bucket not in managers:
            managers[bucket] = managers.pop(first[entry.version])
        managers[bucket] = _Entry(sets.union(managers[bucket].fields, entry.fields), entry.version, entry.time)
        del managers[manager]
        excess -= 1
    return managers
