"""Two objects walked together along their schema: compared, merged, and pruned."""

from collections.abc import Iterator
from typing import Any, Final

from fairlead.apiserver.fields.elements import Json, Path, element_of
from fairlead.apiserver.fields.sets import Paths, Tree
from fairlead.apiserver.json_values import copied
from fairlead.apiserver.schema.shape import DEDUCED, Schema

_MISSING: Final = object()


def compare(schema: Schema, left: Any, right: Any) -> tuple[Tree | None, Tree | None]:
    """(changed, removed) field sets; None: no difference, {}: the field itself."""
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
        # Emptying a granular map or list removes its members; anything else is one change of the whole value.
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
        yield f"f:{key}", compare(inner, lefts.get(key, _MISSING), value)
    for key, value in lefts.items():
        if key not in rights:
            inner = anything if declared is None else declared.get(key, DEDUCED)
            yield f"f:{key}", compare(inner, value, _MISSING)


def _compare_lists(schema: Schema, left: Any, right: Any) -> Iterator[tuple[str, tuple[Tree | None, Tree | None]]]:
    lefts, rights = _items(schema, left), _items(schema, right)
    items = schema.items or DEDUCED
    for key in {**lefts, **rights}:
        ours, theirs = lefts.get(key, []), rights.get(key, [])
        if len(ours) <= 1 and len(theirs) <= 1:
            yield key, compare(items, ours[0] if ours else _MISSING, theirs[0] if theirs else _MISSING)
        elif len(ours) >= 2 and len(theirs) >= 2:
            yield key, (None if ours == theirs else {}, None)
        elif len(ours) >= 2:
            yield key, (_added(items, theirs[0]) if theirs else None, {})
        else:
            yield key, ({}, compare(items, ours[0], _MISSING)[1] if ours else None)


def _items(schema: Schema, value: Any) -> dict[str, list[Any]]:
    """A list's items by their path element; more than one where they share it."""
    found: dict[str, list[Any]] = {}
    if isinstance(value, list):
        for item in value:
            found.setdefault(element_of(schema, item), []).append(item)
    return found


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


def field_set(schema: Schema, value: Any, path: Path, out: Paths) -> None:
    """The paths of an applied configuration."""
    match _granular(schema, value):
        case "map" if isinstance(value, dict):
            for key, inner in value.items():
                here = (*path, f"f:{key}")
                field_set(_field(schema, key), inner, here, out)
                if inner is None or inner == {} or not _is_declared(schema, key):
                    out.add(here)
        case "list" if isinstance(value, list):
            for element, items in _items(schema, value).items():
                here = (*path, element)
                if len(items) == 1:
                    field_set(schema.items or DEDUCED, items[0], here, out)
                out.add(here)
        case "map" | "list":
            pass
        case _:
            out.add(path)


def merge(schema: Schema, live: Any, applied: Any) -> Any:
    granular = _granular(schema, applied)
    if granular == "map" and isinstance(live, dict) and isinstance(applied, dict):
        for key, value in applied.items():
            live[key] = merge(_field(schema, key), live[key], value) if key in live else copied(value)
        return live
    if granular == "list" and isinstance(live, list) and isinstance(applied, list):
        return _merged_list(schema, live, applied)
    return copied(applied)


def _merged_list(schema: Schema, live: list[Any], applied: list[Any]) -> list[Any]:
    """Applied order; live-only items keep their place."""
    items = schema.items or DEDUCED
    left = [element_of(schema, item) for item in live]
    right = [element_of(schema, item) for item in applied]
    lives, by_key = dict(zip(left, live, strict=True)), dict(zip(right, applied, strict=True))

    def joined(element: str) -> Any:
        return merge(items, lives[element], by_key[element]) if element in lives else copied(by_key[element])

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
            if left[at] in by_key and next_shared is not None and next_shared != left[at]:
                at += 1
                continue
        if at < len(left):
            if left[at] not in by_key:
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


def all_paths(schema: Schema, value: Any) -> Paths:
    paths: Paths = set()
    field_set(schema, value, (), paths)
    return paths


def with_named(schema: Schema, paths: Paths) -> Paths:
    """Add every declared parent field of each path."""
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


def removed_from(schema: Schema, value: Any, tree: Json) -> Any:
    granular = _granular(schema, value)
    if granular == "map" and isinstance(value, dict):
        fields: Json = {}
        for key, inner in value.items():
            node = tree.get(f"f:{key}", {})
            if "." not in node:
                fields[key] = removed_from(_field(schema, key), inner, node) if node else inner
        return fields or None
    if granular == "list" and isinstance(value, list):
        items: list[Any] = []
        for item in value:
            node = tree.get(element_of(schema, item), {})
            if "." not in node:
                items.append(removed_from(schema.items or DEDUCED, item, node) if node else item)
        return items or None
    return value if granular == "" and not isinstance(value, dict | list) else None
