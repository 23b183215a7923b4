"""The cost of a rule for the actual values, computed before it is evaluated.

The library that evaluates rules holds the interpreter while it does, so a loop within a loop over a long list would
stop everybody. The real server counts while it evaluates and gives up; here an upper bound is computed from the lengths
of the actual lists. A unit is about a third of a microsecond.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from fairlead.apiserver.cel.syntax import Node, SyntaxMistake, parse

MOST: Final = 1_000_000
"""What one evaluation may cost: less than half a second."""

_LOOPS: Final = frozenset(
    {"all", "exists", "exists_one", "existsOne", "filter", "map", "transformList", "transformMap", "transformMapEntry"}
)
_COPYING: Final = _LOOPS - {"all", "exists", "exists_one", "existsOne"}
# What reading costs, measured: a list is copied at each mention, some two items a unit.
_ITEMS_A_UNIT: Final = 2
_CHARACTERS_A_UNIT: Final = 1_000
_UNKNOWN: Final = object()


@dataclass(frozen=True, slots=True)
class _Value:
    """A known value, or upper bounds of the lengths of its lists and strings."""

    actual: Any
    items: int
    text: int

    def reading(self) -> float:
        if self.actual is _UNKNOWN:
            return 1 + self.items / _ITEMS_A_UNIT + self.text / _CHARACTERS_A_UNIT
        if isinstance(self.actual, dict | list):
            return 1 + len(self.actual) / _ITEMS_A_UNIT
        return 1 + (len(self.actual) if isinstance(self.actual, str) else 0) / _CHARACTERS_A_UNIT

    def length(self) -> int:
        return len(self.actual) if isinstance(self.actual, dict | list) else max(self.items, self.text)

    def any_element(self) -> "_Value":
        if not isinstance(self.actual, dict | list):
            return _Value(_UNKNOWN, self.items, self.text)
        within = [*self.actual, *self.actual.values()] if isinstance(self.actual, dict) else self.actual
        longest = [_longest(each) for each in within]
        return _Value(_UNKNOWN, max((i for i, _ in longest), default=0), max((t for _, t in longest), default=0))


_SCALAR: Final = _Value(None, 0, 0)


@lru_cache(maxsize=4096)
def _tree(text: str) -> Node | None:
    """The parsed rule, if it has a loop; without one its cost is in proportion to the value."""
    try:
        node = parse(text)
    except SyntaxMistake:
        return None  # reported when it is compiled
    return node if _has_loop(node) else None


def _has_loop(node: Node) -> bool:
    return (node.op == "call" and node.word in _LOOPS) or any(_has_loop(part) for part in node.parts)


def is_too_dear(text: str, variables: Mapping[str, Any]) -> bool:
    """Whether a rule costs more than one evaluation may."""
    node = _tree(text)
    if node is None:
        return False
    return _Reckoning({name: _known(value) for name, value in variables.items() if not callable(value)}).is_over(node)


class _Over(Exception):
    """The limit is exceeded: stop counting."""


class _Reckoning:
    def __init__(self, variables: dict[str, _Value]) -> None:
        self._variables = variables

    def is_over(self, node: Node) -> bool:
        try:
            self._cost(node)
        except _Over:
            return True
        return False

    def _cost(self, node: Node) -> tuple[float, _Value]:
        cost, value = self._of(node)
        if cost > MOST:
            raise _Over
        return cost, value

    def _of(self, node: Node) -> tuple[float, _Value]:
        match node.op:
            case "name":
                value = self._variables.get(node.word, _SCALAR)
                return value.reading(), value
            case "select":
                cost, whole = self._path(node.parts[0])
                part = _part(whole, node.word)
                return cost + part.reading(), part
            case "call" if node.word in _LOOPS and node.on and len(node.parts) > 2:
                return self._loop(node)
        parts = [self._cost(part) for part in node.parts]
        costs, values = 1 + sum(cost for cost, _ in parts), [value for _, value in parts]
        # A part of any of them, or all of them in a row; a text may be split into a list.
        items, text = sum(value.items for value in values), sum(value.text for value in values)
        if node.op in ("call", "list", "map"):
            items = max(items, text, len(node.parts))
        return costs, _Value(_UNKNOWN, items, text)

    def _path(self, node: Node) -> tuple[float, _Value]:
        """Cost of following a field path, without copying: only the final value is copied."""
        if node.op == "name":
            return 1, self._variables.get(node.word, _SCALAR)
        if node.op == "select":
            cost, whole = self._path(node.parts[0])
            return cost + 1, _part(whole, node.word)
        return self._cost(node)

    def _loop(self, node: Node) -> tuple[float, _Value]:
        cost, over = self._cost(node.parts[0])
        times = over.length()
        before = dict(self._variables)
        for name in node.parts[1:-1]:
            self._variables[name.word] = over.any_element()
        inner, value = self._cost(node.parts[-1])
        self._variables = before
        copied = times * times / _ITEMS_A_UNIT if node.word in _COPYING else 0
        items = max(times, over.items, value.items)
        return cost + times * (1 + inner) + copied, _Value(_UNKNOWN, items, max(over.text, value.text))


def _part(whole: _Value, name: str) -> _Value:
    if isinstance(whole.actual, dict):
        return _known(whole.actual[name]) if name in whole.actual else _SCALAR
    return _Value(_UNKNOWN, whole.items, whole.text)


def _known(value: Any) -> _Value:
    items, text = _longest(value)
    return _Value(value, items, text)


def _longest(value: Any) -> tuple[int, int]:
    """The longest list or mapping and the longest text in a value."""
    items = text = 0
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            text = max(text, len(each))
        elif isinstance(each, dict | list):
            items = max(items, len(each))
            left.extend(each.values() if isinstance(each, dict) else each)
            if isinstance(each, dict):
                text = max(text, max(map(len, each), default=0))
    return items, text
