"""Who owns which field: managedFields, recorded on every write, and server-side apply built on them.

A set of fields is a tree as `fieldsV1` writes it, or, where sets are reckoned with, a set of paths. A path is a tuple
of elements: `f:name` a field, `k:{"name":"x"}` an item of a keyed list, `v:"x"` an item of a set.
`record_update` compares before and after: what a write changed or added becomes the writer's, what it removed is
nobody's. `apply` merges a configuration into the live object, refuses to change what others own unless forced, and
removes what the same manager applied earlier and no longer asks for, unless somebody else asks for it too.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from fairlead.apiserver.json_values import copied, go_text
from fairlead.apiserver.schema import facts
from fairlead.apiserver.schema.shape import DEDUCED, Notes, Schema
from fairlead.apiserver.validation.errors import MOST_SHOWN, below

Json = dict[str, Any]
Path = tuple[str, ...]
Paths = set[Path]
Tree = dict[str, Any]  # fieldsV1: an empty one is a member; one with branches is a member if it has a dot

MOST_UPDATERS: Final = 10
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

_MISSING: Final = object()
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


class ApplyError(ValueError):
    """The applied configuration cannot be merged, such as a list item without its key: a 500 with this message."""


class _Manager(NamedTuple):
    """Who an entry belongs to; an applier is the same one in every version."""

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
    if not subresource and given is not None and _is_reset(given):
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
    """The object after a server-side apply, its managedFields included; not defaulted yet."""
    _check_types(schema, applied)
    current = _empty(schema) if live is None else live
    managers = _decoded(current.get("metadata", {}).get("managedFields"), None)
    current = _without_managed_fields(current)
    if live is not None and not managers:
        before = _Manager("before-first-apply", "Update", api_version, subresource)
        _record(schema, _empty(schema), current, managers, before, time, subresource)
    self = _Manager(manager, "Apply", "", subresource)
    last = _paths_of(managers[self].fields) if self in managers else set()
    paths: Paths = set()
    _field_set(schema, applied, (), paths)
    owned = _stripped(_without_reset(schema, _fields_of(paths), subresource))
    managers[self] = _Entry(owned, api_version, managers[self].time if self in managers else None)
    merged = _merged(schema, copied(current), applied)
    result = _pruned(schema, merged, last, managers, paths) if last else merged
    changed, removed = _changes(schema, current, result, subresource)
    conflicts = _conflicts(managers, self, changed)
    if conflicts and not force and not _all_allowed(schema, current, manager, conflicts):
        raise ApplyConflict(_told(conflicts))
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


def _check_types(schema: Schema, applied: Json) -> None:
    try:
        _check_type(schema, applied, "")
    except ApplyError as problem:
        metadata = applied.get("metadata")
        name, space = "", ""
        if isinstance(metadata, dict):
            name, space = metadata.get("name", ""), metadata.get("namespace", "")
        group, _, version = str(applied.get("apiVersion", "")).rpartition("/")
        what = f"{space}/{name}; {group}/{version}, Kind={applied.get('kind', '')}"
        raise ApplyError(f"failed to create typed patch object ({what}): {problem}") from None


_EXPECTED = {"string": str, "bytes": str, "time": str, "microtime": str, "bool": bool}


def _check_type(schema: Schema, value: Any, path: str) -> None:
    """Refuses what has another type than declared, or is not declared at all."""
    if value is None or schema is DEDUCED:
        return
    form = schema.form
    if form == "scalar":
        form = {"boolean": "bool", "integer": "int64", "number": "double"}.get(schema.source.get("type", ""), "any")
        form = "string" if schema.source.get("type") == "string" else form
    if form in ("object", "map"):
        if not isinstance(value, dict):
            raise ApplyError(f"{path}: expected map, got &{{{go_text(value)}}}")
        for key in sorted(value):
            inner = schema.child(key)
            if inner is not None:
                _check_type(inner, value[key], below(path, f".{key}"))
            elif form == "object" and not (schema.struct is not None and schema.struct.open):
                raise ApplyError(f"{path}.{key}: field not declared in schema")
    elif form == "list":
        if not isinstance(value, list):
            raise ApplyError(f"{path}: expected list, got &{{{go_text(value)}}}")
        _check_items(schema, value, path)
    elif form == "bool" and not isinstance(value, bool):
        raise ApplyError(f"{path}: expected boolean, got &{{{go_text(value)}}}")
    elif form in ("int32", "int64", "double") and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ApplyError(f"{path}: expected numeric (int or float), got {_go_kind(value)}")
    elif form in _EXPECTED and not isinstance(value, _EXPECTED[form]):
        raise ApplyError(f"{path}: expected string, got &value.valueUnstructured{{Value:{go_text(value)}}}")


def _go_kind(value: Any) -> str:
    return {str: "string", bool: "boolean", dict: "map", list: "list"}.get(type(value), "null")


def _check_items(schema: Schema, value: list[Any], path: str) -> None:
    seen: set[str] = set()
    for index, item in enumerate(value):
        here = f"{path}[{index}]"
        if schema.granular:
            try:
                element = element_of(schema, item)
            except ApplyError as problem:
                raise ApplyError(f"{path}: element {index}: {problem}") from None
            if element in seen:
                raise ApplyError(f"{path}: duplicate entries for key {element_text(element)}")
            seen.add(element)
            here = below(path, element_text(element))
        _check_type(schema.items or DEDUCED, item, here)


def _record(
    schema: Schema, old: Json, new: Json, managers: _Managers, self: _Manager, time: str, subresource: str
) -> None:
    changed, removed = _changes(schema, old, new, subresource)
    _take(managers, None, changed, removed)
    taken = _stripped(changed)
    if taken:
        fields = _union(managers[self].fields, taken) if self in managers else taken
        managers[self] = _Entry(fields, self.version, time)


def _take(managers: _Managers, self: _Manager | None, *gone: Tree) -> None:
    """Takes from everybody but one what changed or is gone."""
    for manager in list(managers):
        if manager != self:
            entry = managers[manager]
            for each in gone:
                if each:
                    entry.fields = _difference(entry.fields, each)
            if not entry.fields:
                del managers[manager]


def _conflicts(managers: _Managers, self: _Manager, changed: Tree) -> dict[_Manager, Paths]:
    paths = _paths_of(changed)
    found = {manager: _paths_of(entry.fields) & paths for manager, entry in managers.items() if manager != self}
    return {manager: shared for manager, shared in found.items() if shared}


def _told(conflicts: dict[_Manager, Paths]) -> list[Conflict]:
    told: list[Conflict] = []
    left = MOST_SHOWN
    for manager in sorted(conflicts, key=lambda each: (each.name, each.operation, each.version, each.subresource)):
        for path in _in_order(conflicts[manager]):
            text = path_text(path) if left > 0 else "..."
            left -= len(text)
            told.append(Conflict(str(manager), text, f"conflict with {manager}"))
    return told


def _all_allowed(schema: Schema, live: Json, manager: str, conflicts: dict[_Manager, Paths]) -> bool:
    """kubectl may take what its own client-side apply had set, by the annotation that remembers it."""
    text = _annotations(live).get(LAST_APPLIED)
    if manager != "kubectl" or text is None:
        return False
    try:
        remembered = json.loads(text)
    except ValueError:
        return False
    if not isinstance(remembered, dict):
        return False
    allowed: Paths = set()
    _field_set(schema, remembered, (), allowed)
    changed, removed = _changes(schema, remembered, live, None)
    allowed -= _paths_of(changed) | _paths_of(removed)
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
    """What an object of this kind is before anybody wrote it; Go's structs are there from the beginning."""
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


# --- walking objects --------------------------------------------------------------------------------------------


def _changes(schema: Schema, left: Json, right: Json, subresource: str | None) -> tuple[Tree, Tree]:
    """What the right one adds or changes, and what it no longer has."""
    changed, removed = _compare(schema, left, right)
    return (
        _without_reset(schema, changed or {}, subresource),
        _without_reset(schema, removed or {}, subresource),
    )


def _compare(schema: Schema, left: Any, right: Any) -> tuple[Tree | None, Tree | None]:
    """Two trees; None where there is nothing, an empty tree where the place itself is meant."""
    if left is _MISSING:
        return _added(schema, right), None
    if left is right or (right is not _MISSING and left == right):
        return None, None
    present = left if right is _MISSING or right is None else right
    changed: Tree | None = None
    removed: Tree | None = None
    granular = _granular(schema, present)
    if present and granular and isinstance(present, dict if granular == "map" else list) and _fits(left, present):
        parts = _compare_maps(schema, left, right) if granular == "map" else _compare_lists(schema, left, right)
        for element, (more, less) in parts:
            if more is not None:
                changed = changed or {}
                changed[element] = more
            if less is not None:
                removed = removed or {}
                removed[element] = less
    elif right is not _MISSING:
        # An empty one and a missing one differ as a whole; a filled one that is emptied loses its parts.
        if granular and left and not right and type(left) is type(right):
            return None, _all_parts(schema, left)
        return {}, None
    if right is _MISSING:
        removed = {".": {}, **removed} if removed else {}
    return changed, removed


def _added(schema: Schema, value: Any) -> Tree:
    """The tree of a value that was not there before."""
    kind = type(value)
    if not value or (kind is not dict and kind is not list):
        return {}
    granular = schema.granular if schema is not DEDUCED else "map"
    if granular == "map" and kind is dict:
        out: Tree = {".": {}}
        if schema.form == "object":
            fields = schema.fields
            for key, inner in value.items():
                out["f:" + key] = _added(fields.get(key, DEDUCED), inner)
        else:
            items = schema.items or DEDUCED
            for key, inner in value.items():
                out["f:" + key] = _added(items, inner)
        return out
    if granular == "list" and kind is list:
        out = {".": {}}
        items = schema.items or DEDUCED
        for inner in value:
            element = element_of(schema, inner)
            out[element] = {} if element in out else _added(items, inner)
        return out
    return {}


def _fits(left: Any, present: Any) -> bool:
    return left is None or type(left) is type(present)


def _all_parts(schema: Schema, value: Any) -> Tree | None:
    parts = _added(schema, value)
    return {element: inner for element, inner in parts.items() if element != "."} or None


def _compare_maps(schema: Schema, left: Any, right: Any) -> Iterator[tuple[str, tuple[Tree | None, Tree | None]]]:
    lefts: Json = left if isinstance(left, dict) else {}
    rights: Json = right if isinstance(right, dict) else {}
    declared = None if schema is DEDUCED or schema.form == "map" else schema.fields
    anything = schema.items or DEDUCED if schema.form == "map" else DEDUCED
    for key, value in rights.items():
        inner = anything if declared is None else declared.get(key, DEDUCED)
        yield f"f:{key}", _compare(inner, lefts.get(key, _MISSING), value)
    for key, value in lefts.items():
        if key not in rights:
            inner = anything if declared is None else declared.get(key, DEDUCED)
            yield f"f:{key}", _compare(inner, value, _MISSING)


def _compare_lists(schema: Schema, left: Any, right: Any) -> Iterator[tuple[str, tuple[Tree | None, Tree | None]]]:
    lefts, rights = _items(schema, left), _items(schema, right)
    items = schema.items or DEDUCED
    for key in {**lefts, **rights}:
        ours, theirs = lefts.get(key, []), rights.get(key, [])
        if len(ours) <= 1 and len(theirs) <= 1:
            yield key, _compare(items, ours[0] if ours else _MISSING, theirs[0] if theirs else _MISSING)
        elif len(ours) >= 2 and len(theirs) >= 2:
            yield key, (None if ours == theirs else {}, None)
        elif len(ours) >= 2:
            yield key, (_added(items, theirs[0]) if theirs else None, {})
        else:
            yield key, ({}, _compare(items, ours[0], _MISSING)[1] if ours else None)


def _items(schema: Schema, value: Any) -> dict[str, list[Any]]:
    """A list's items by their path element; more than one where they share it."""
    found: dict[str, list[Any]] = {}
    if isinstance(value, list):
        for item in value:
            found.setdefault(element_of(schema, item), []).append(item)
    return found


def element_of(schema: Schema, item: Any) -> str:
    if schema.list_type == "set":
        if isinstance(item, list):
            raise ApplyError("not supported: associative list with lists as elements")
        if isinstance(item, dict):
            raise ApplyError("associative list without keys has an element that's a map type")
        return f"v:{_key_text(item)}"
    if not isinstance(item, dict):
        wrong = "a null element" if item is None else "non-map elements"
        raise ApplyError(f"associative list with keys may not have {wrong}")
    fields = schema.items.fields if schema.items is not None else {}
    found: list[tuple[str, Any]] = []
    for key in schema.keys:
        value = item.get(key)
        if value is None and key in fields:
            value = fields[key].default
        if value is not None:
            found.append((key, value))
    if not found:
        names = " ".join(f'"{key}"' for key in schema.keys)
        raise ApplyError(
            f"associative list with keys has an element that omits all key fields [{names}] "
            "(and doesn't have default values for any key fields)"
        )
    if len(found) == 1 and type(found[0][1]) is str:
        return _single_key(*found[0])
    return "k:" + _key_text(dict(sorted(found)))


@lru_cache(maxsize=16384)
def _single_key(name: str, value: str) -> str:
    return "k:" + _key_text({name: value})


def _key_text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _granular(schema: Schema, value: Any) -> str:
    """`map` or `list` where parts are owned one by one, else nothing."""
    if schema is DEDUCED:
        return "map" if isinstance(value, dict) else ""
    return schema.granular


def _field(schema: Schema, name: str) -> Schema:
    if schema is DEDUCED:
        return DEDUCED
    return schema.child(name) or DEDUCED


def _is_declared(schema: Schema, name: str) -> bool:
    return schema.form == "object" and name in schema.fields


def _field_set(schema: Schema, value: Any, path: Path, out: Paths) -> None:
    """The paths an applied configuration speaks of."""
    match _granular(schema, value):
        case "map" if isinstance(value, dict):
            for key, inner in value.items():
                here = (*path, f"f:{key}")
                _field_set(_field(schema, key), inner, here, out)
                if inner is None or inner == {} or not _is_declared(schema, key):
                    out.add(here)
        case "list" if isinstance(value, list):
            for element, items in _items(schema, value).items():
                here = (*path, element)
                if len(items) == 1:
                    _field_set(schema.items or DEDUCED, items[0], here, out)
                out.add(here)
        case "map" | "list":
            pass
        case _:
            out.add(path)


def _merged(schema: Schema, live: Any, applied: Any) -> Any:
    granular = _granular(schema, applied)
    if granular == "map" and isinstance(live, dict) and isinstance(applied, dict):
        for key, value in applied.items():
            live[key] = _merged(_field(schema, key), live[key], value) if key in live else copied(value)
        return live
    if granular == "list" and isinstance(live, list) and isinstance(applied, list):
        return _merged_list(schema, live, applied)
    return copied(applied)


def _merged_list(schema: Schema, live: list[Any], applied: list[Any]) -> list[Any]:
    """In the applied order, what only the live list has in between where it was."""
    items = schema.items or DEDUCED
    left = [element_of(schema, item) for item in live]
    right = [element_of(schema, item) for item in applied]
    lives, wanted = dict(zip(left, live, strict=True)), dict(zip(right, applied, strict=True))

    def joined(element: str) -> Any:
        return _merged(items, lives[element], wanted[element]) if element in lives else copied(wanted[element])

    shared = [element for element in right if element in lives]
    out: list[Any] = []
    done: set[str] = set()
    at = to = first = 0
    while at < len(left) or to < len(right):
        while first < len(shared) and shared[first] in done:
            first += 1
        next_shared = shared[first] if first < len(shared) else None
        if at < len(left) and to < len(right):
            if left[at] == right[to]:
                out.append(joined(left[at]))
                done.add(left[at])
                at, to = at + 1, to + 1
                continue
            if left[at] in wanted and next_shared is not None and next_shared != left[at]:
                at += 1
                continue
        if at < len(left):
            if left[at] not in wanted:
                out.append(live[at])
                at += 1
                continue
            if left[at] in done:
                at += 1
                continue
        if to < len(right):
            if right[to] not in done:
                out.append(joined(right[to]))
                done.add(right[to])
            to += 1
    return out


# --- removing what is no longer applied -------------------------------------------------------------------------


def _pruned(schema: Schema, merged: Json, last: Paths, managers: _Managers, applied: Paths) -> Json:
    """Without what this manager applied before and nobody applies or set now."""
    last = _with_named(schema, last)
    everybody: Paths = set(applied)  # with the name and the like, which nobody is recorded to own
    for entry in managers.values():
        everybody |= _paths_of(entry.fields)
    everybody = _with_named(schema, everybody)
    whole = _with_named(schema, _all_paths(schema, merged))
    first = _removed(schema, merged, _tree(last))
    kept = _with_named(schema, _all_paths(schema, first)) | everybody
    second = _removed(schema, merged, _tree(whole - kept))
    left = _with_named(schema, _all_paths(schema, second))
    result = _removed(schema, merged, _tree((whole - left) & last))
    return result if isinstance(result, dict) else {}


def _all_paths(schema: Schema, value: Any) -> Paths:
    paths: Paths = set()
    _field_set(schema, value, (), paths)
    return paths


def _with_named(schema: Schema, paths: Paths) -> Paths:
    """The set with every declared field on the way to a member made one as well."""
    out = set(paths)
    for path in paths:
        here: Schema = schema
        for depth, element in enumerate(path[:-1], 1):
            name = element[2:]
            declared = element.startswith("f:") and here is not DEDUCED and _is_declared(here, name)
            here = _field(here, name) if element.startswith("f:") else (here.items or DEDUCED)
            if declared:
                out.add(path[:depth])
    return out


def _tree(paths: Iterable[Path]) -> Json:
    """Nested by element; the key `.` marks a member."""
    tree: Json = {}
    for path in paths:
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}
    return tree


def _removed(schema: Schema, value: Any, tree: Json) -> Any:
    granular = _granular(schema, value)
    if granular == "map" and isinstance(value, dict):
        fields: Json = {}
        for key, inner in value.items():
            node = tree.get(f"f:{key}", {})
            if "." not in node:
                fields[key] = _removed(_field(schema, key), inner, node) if node else inner
        return fields or None
    if granular == "list" and isinstance(value, list):
        items: list[Any] = []
        for item in value:
            node = tree.get(element_of(schema, item), {})
            if "." not in node:
                items.append(_removed(schema.items or DEDUCED, item, node) if node else item)
        return items or None
    return value if granular == "" and not isinstance(value, dict | list) else None


# --- managedFields as they are written --------------------------------------------------------------------------


def _is_reset(given: Any) -> bool:
    return isinstance(given, list) and (not given or given == [{}])


def _decoded(entries: Any, otherwise: Any) -> _Managers:
    managers: _Managers = {}
    for entry in entries or ():
        if entry.get("operation") not in ("Apply", "Update") or not entry.get("apiVersion") or not _is_readable(entry):
            return _decoded(otherwise, None) if otherwise else {}
        version = entry["apiVersion"] if entry["operation"] == "Update" else ""
        self = _Manager(entry.get("manager", ""), entry["operation"], version, entry.get("subresource", ""))
        managers[self] = _Entry(entry.get("fieldsV1") or {}, entry["apiVersion"], entry.get("time"))
    return managers


def _is_readable(entry: Json) -> bool:
    fields = entry.get("fieldsV1") or {}
    return entry.get("fieldsType") == "FieldsV1" and all(
        key == "." or key[:2] in ("f:", "k:", "v:", "i:") for key in fields
    )


def owns(entry: Json, path: Path) -> bool:
    """Whether an entry of managedFields speaks of this very path."""
    return path in _paths_of(entry.get("fieldsV1") or {})


def without(entry: Json, path: Path) -> Json:
    return {**entry, "fieldsV1": _difference(entry.get("fieldsV1") or {}, tree_of(path))}


def tree_of(path: Path) -> Tree:
    return _fields_of({path})


def _paths_of(fields: Json) -> Paths:
    paths: Paths = set()
    _walk_fields(fields, (), paths)
    return paths


def _walk_fields(fields: Json, path: Path, out: Paths) -> None:
    for element, inner in fields.items():
        if element == ".":
            out.add(path)
        elif inner:
            _walk_fields(inner, (*path, element), out)
        else:
            out.add((*path, element))


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


def _fields_of(paths: Paths) -> Tree:
    tree: Tree = {}
    for path in paths:
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}
    return _bare(tree)


def _bare(tree: Tree) -> Tree:
    """The dot is left out where there is nothing beside it."""
    return {
        element: {} if element == "." or inner.keys() == {"."} else _bare(inner)
        for element, inner in sorted(tree.items())
    }


def _union(left: Tree, right: Tree) -> Tree:
    out = dict(left)
    for element, inner in right.items():
        if element not in out:
            out[element] = inner
        elif element != ".":
            mine = out[element]
            if mine and inner:
                out[element] = _union(mine, inner)
            elif mine or inner:
                out[element] = {".": {}, **(mine or inner)}
    return out


def _difference(fields: Tree, gone: Tree) -> Tree:
    """The members of the one that are not members of the other; the very same tree where nothing goes."""
    out: Tree | None = None
    for element, theirs in gone.items():
        if element not in fields:
            continue
        mine = fields[element]
        left: Tree | None
        if element == ".":
            left = None
        elif not mine:
            left = None if not theirs or "." in theirs else mine
        elif not theirs:
            left = {key: inner for key, inner in mine.items() if key != "."} or None
        else:
            left = _difference(mine, theirs)
            if left is mine:
                continue
            if not left:
                left = None
            elif left.keys() == {"."}:
                left = {}
        if left is mine:
            continue
        out = dict(fields) if out is None else out
        if left is None:
            del out[element]
        else:
            out[element] = left
    return fields if out is None else out


def _capped(managers: _Managers) -> _Managers:
    """Too many who updated: the oldest of one version become one."""
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
        managers[bucket] = _Entry(_union(managers[bucket].fields, entry.fields), entry.version, entry.time)
        del managers[manager]
        excess -= 1
    return managers


# --- paths as text ----------------------------------------------------------------------------------------------


def path_text(path: Path) -> str:
    """`.spec.containers[name="c"].image`, as the server names a field in a conflict."""
    return "".join(map(element_text, path))


def element_text(element: str) -> str:
    kind, _, rest = element.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "v":
        return f"[={rest}]"
    if kind == "i":
        return f"[{rest}]"
    pairs = json.loads(rest)
    return "[" + ",".join(f"{key}={_key_text(pairs[key])}" for key in sorted(pairs)) + "]"


def _in_order(paths: Paths) -> Iterator[Path]:
    """Members of a level first, then what lies below, each by name."""
    yield from _level(_tree(paths), ())


def _level(tree: Json, path: Path) -> Iterator[Path]:
    elements = sorted(element for element in tree if element != ".")
    for element in elements:
        if "." in tree[element]:
            yield (*path, element)
    for element in elements:
        yield from _level(tree[element], (*path, element))
