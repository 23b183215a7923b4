"""What a rule reads of its variables: the library copies all it is given, so it is given no more than that.

A condition over a pod's labels must not cost a copy of its thousands of containers, and of those in `request` again.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from fairlead.apiserver.cel.syntax import Node, SyntaxMistake, parse

Path = tuple[str, ...]


def narrowed(text: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """All functions, and each variable of the rule, reduced to the fields that the rule names, if it names any."""
    paths = _mentioned(text)
    if paths is None:
        return dict(variables)
    return {
        name: value if callable(value) else _narrow(value, paths[name])
        for name, value in variables.items()
        if callable(value) or name in paths
    }


@lru_cache(maxsize=4096)
def _mentioned(text: str) -> dict[str, tuple[Path, ...]] | None:
    """By name of a variable the paths below it, shorter ones first; None for a rule that cannot be read."""
    found: dict[str, set[Path]] = {}
    try:
        _collect(parse(text), found)
    except SyntaxMistake:
        return None  # reported when it is compiled
    return {name: tuple(sorted(paths, key=lambda path: (len(path), path))) for name, paths in found.items()}


def _collect(node: Node, found: dict[str, set[Path]]) -> None:
    path, below = [], node
    while below.op == "select" and not below.maybe:
        path.append(below.word)
        below = below.parts[0]
    if below.op == "name":
        found.setdefault(below.word, set()).add(tuple(reversed(path)))
        return
    for part in below.parts:
        _collect(part, found)


def _narrow(value: Any, paths: tuple[Path, ...]) -> Any:
    if type(value) is not dict or () in paths:
        return value
    kept: dict[str, Any] = {}
    for path in paths:
        _keep(kept, value, path)
    return kept


def _keep(kept: dict[str, Any], value: dict[str, Any], path: Path) -> None:
    """Copy the value at a path, with its parent maps even if the value is missing."""
    first, rest = path[0], path[1:]
    if first not in value or kept.get(first) is value[first]:
        return
    inner = value[first]
    if not rest or type(inner) is not dict:
        kept[first] = inner
        return
    _keep(kept.setdefault(first, {}), inner, rest)
