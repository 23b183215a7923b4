"""Sets of fields: as trees, which `fieldsV1` writes, and as paths, for set operations."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from fairlead.apiserver.fields.elements import Json, Path

_INDEX: Final = re.compile(r"-?[0-9]{1,18}")
_NOTHING: Final = object()

Paths = set[Path]
Tree = dict[str, Any]  # fieldsV1: an empty one is a member; one with branches is a member if it has a dot


def nested(paths: Iterable[Path]) -> Json:
    """Nested by element; the key `.` marks a member."""
    tree: Json = {}
    for path in paths:
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}
    return tree


def tree_of(path: Path) -> Tree:
    return fields_of({path})


def is_tree(fields: Any) -> bool:
    """Whether this is a set of fields at all: clients may send whatever they like as one."""
    return type(fields) is dict and all(_is_element(element) and is_tree(inner) for element, inner in fields.items())


def _is_element(element: str) -> bool:
    match element[:2]:
        case "f:":
            return True
        case "k:":
            return isinstance(_json(element[2:]), dict)
        case "v:":
            return _json(element[2:]) is not _NOTHING
        case "i:":
            return _INDEX.fullmatch(element[2:]) is not None
    return element == "."


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _NOTHING


def paths_of(fields: Json) -> Paths:
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


def fields_of(paths: Paths) -> Tree:
    return _bare(nested(paths))


def _bare(tree: Tree) -> Tree:
    """The dot is left out where there is nothing beside it."""
    return {
        element: {} if element == "." or inner.keys() == {"."} else _bare(inner)
        for element, inner in sorted(tree.items())
    }


def union(left: Tree, right: Tree) -> Tree:
    out = dict(left)
    for element, inner in right.items():
        if element not in out:
            out[element] = inner
        elif element != ".":
            mine = out[element]
            if mine and inner:
                out[element] = union(mine, inner)
            elif mine or inner:
                out[element] = {".": {}, **(mine or inner)}
    return out


def difference(fields: Tree, gone: Tree) -> Tree:
    """`fields` without `gone`; the same object if nothing is removed."""
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
            left = difference(mine, theirs)
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


def in_order(paths: Paths) -> Iterator[Path]:
    """Members of a level first, then what lies below, each by name."""
    return _level(nested(paths), ())


def _level(tree: Json, path: Path) -> Iterator[Path]:
    elements = sorted(element for element in tree if element != ".")
    for element in elements:
        if "." in tree[element]:
            yield (*path, element)
    for element in elements:
        yield from _level(tree[element], (*path, element))
