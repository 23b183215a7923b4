"""What is wrong with a field, in the words of `Status.details.causes`."""

import json
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, Self

from fairlead.apiserver.json_values import html_escaped

Json = dict[str, Any]
Check = Callable[[Any], list[str]]  # what is wrong with a value, in sentences


# Types that print themselves as JSON does, in the order of their fields.
_ORDERS = (
    ("matchLabels", "matchExpressions"),
    ("key", "operator", "values"),
    ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"),
)


# Cap on the total size of messages of an object: quoting a list for each item grows quadratically, and so does a long
# key in the path of everything below it.
MOST_SHOWN: Final = 1 << 20
# How long a path grows: below that, and at most one key of that length, it is shown as it is.
MOST_PATH: Final = 4096
SHORT: Final = 100
LONG: Final = 300
_left: ContextVar[int] = ContextVar("left", default=sys.maxsize)


@contextmanager
def bounded() -> Iterator[None]:
    """Truncate messages in this block once their total size exceeds MOST_SHOWN."""
    before = _left.set(MOST_SHOWN)
    try:
        yield
    finally:
        _left.reset(before)


class _FieldError(NamedTuple):
    type: str  # the cause's reason: FieldValueRequired, …
    field: str
    message: str


class FieldError(_FieldError):
    """Its message counts toward the size of the response, and is cut once that is used up."""

    __slots__ = ()

    def __new__(cls, reason: str, field: str, message: str) -> Self:
        left = _left.get()
        if left <= 0:
            field, message = _cut(field), _cut(message)
        else:
            _left.set(left - len(field) - len(message))
        return super().__new__(cls, reason, field, message)


Errors = list[FieldError]
Causes = Iterable[FieldError]  # one by one: what most validations yield


def _cut(text: str) -> str:
    return text if len(text) <= LONG else f"{text[:LONG]}..."


def within_bounds(text: str) -> str:
    """A text that messages may quote, while the response has room for it."""
    return text if len(text) <= SHORT or _left.get() > 0 else "..."


def some(texts: Iterable[str]) -> Iterator[str]:
    """Texts up to their total limit, and three dots for the rest."""
    left = MOST_SHOWN
    for text in texts:
        if left <= 0:
            yield "..."
            return
        left -= len(text)
        yield text


def below(path: str, step: str) -> str:
    """The path of the value at a key of a map: `.key` or `[key]`."""
    if len(path) > MOST_PATH:
        return path
    return path + (step if len(step) <= MOST_PATH else f"{step[:MOST_PATH]}...")


def shown(value: Any) -> str:
    """A value as the server quotes it: plain texts in quotes, the rest as Go writes JSON."""
    if _left.get() <= 0 and (isinstance(value, dict | list) or (isinstance(value, str) and len(value) > SHORT)):
        return "..."
    return within_bounds(_shown(value))


def _shown(value: Any) -> str:
    text = json.dumps(_in_go_order(value), ensure_ascii=False, separators=(",", ":"))
    return html_escaped(text) if isinstance(value, dict | list) else text


def _in_go_order(value: Any) -> Any:
    if isinstance(value, list):
        return [_in_go_order(each) for each in value]
    if not isinstance(value, dict) or any(key[:1].isupper() for key in value):
        return value  # a struct of the server's own comes in its order
    order = next((each for each in _ORDERS if value.keys() <= set(each)), sorted(value))
    return {key: _in_go_order(value[key]) for key in order if key in value}


def unique(seen: set[Any], path: str, value: Hashable) -> Errors:
    """Report a value that was seen before; else it is from now on."""
    if value in seen:
        return [duplicate(path, value)]
    seen.add(value)
    return []


def between(path: str, value: int, least: int, most: int) -> Errors:
    if least <= value <= most:
        return []
    return [invalid(path, value, f"must be between {least} and {most}, inclusive")]


def each(path: str, items: Iterable[Any] | None, check: Callable[[Any, str], Causes]) -> Causes:
    """What a check finds wrong with each item of a list, by the path of the item."""
    for index, item in enumerate(items or ()):
        yield from check(item, f"{path}[{index}]")


def repeated(values: Iterable[Hashable]) -> Iterator[bool]:
    """For each value whether it occurred before."""
    seen: set[Hashable] = set()
    for value in values:
        yield value in seen
        seen.add(value)


def required(path: str, detail: str = "") -> FieldError:
    return FieldError("FieldValueRequired", path, f"Required value: {detail}" if detail else "Required value")


def missing(path: str, given: Json, *keys: str) -> Errors:
    """What is required in an object at this path and absent or empty."""
    return [required(f"{path}.{key}") for key in keys if not given.get(key)]


def invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", path, f"Invalid value: {shown(value)}: {detail}")


def without_detail(path: str, value: Any) -> FieldError:
    return FieldError("FieldValueInvalid", path, f"Invalid value: {shown(value)}")


def not_supported(path: str, value: Any, allowed: Iterable[str]) -> FieldError:
    supported = ", ".join(f'"{name}"' for name in allowed)
    text = f"Unsupported value: {shown(value)}: supported values: {supported}"
    return FieldError("FieldValueNotSupported", path, text)


def forbidden(path: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", path, f"Forbidden: {detail}")


def duplicate(path: str, value: Any) -> FieldError:
    return FieldError("FieldValueDuplicate", path, f"Duplicate value: {shown(value)}")


def not_found(path: str, value: Any, detail: str = "") -> FieldError:
    suffix = f": {detail}" if detail else ""
    return FieldError("FieldValueNotFound", path, f"Not found: {shown(value)}{suffix}")


def too_long(path: str, most: int) -> FieldError:
    text = f"Too long: may not be more than {most} byte{'s' if most != 1 else ''}"
    return FieldError("FieldValueTooLong", path, text)


def too_many(path: str, count: int, most: int) -> FieldError:
    text = f"Too many: {count}: must have at most {most} item{'s' if most != 1 else ''}"
    return FieldError("FieldValueTooMany", path, text)


def immutable(path: str, new: Any, old: Any) -> Errors:
    return [] if new == old else [invalid(path, new, "field is immutable")]


def nonnegative(path: str, value: Any) -> Errors:
    if value is None or value >= 0:
        return []
    return [invalid(path, value, "must be greater than or equal to 0")]


def counts(status: Json, keys: Iterable[str]) -> Errors:
    """Numbers that a status counts."""
    return [each for key in keys for each in nonnegative(f"status.{key}", status.get(key, 0))]


def one_of(path: str, value: Any, allowed: Iterable[str], detail: str = "") -> Errors:
    """Required, and one of a few values."""
    return supported(path, value, allowed) if value else [required(path, detail)]


def supported(path: str, value: Any, allowed: Iterable[str]) -> Errors:
    return [] if value in allowed else [not_supported(path, value, allowed)]


def supported_if_set(path: str, value: Any, allowed: Iterable[str]) -> Errors:
    return [] if value is None else supported(path, value, allowed)


def malformed(path: str, value: Any, check: Check) -> Errors:
    """What a check of `names` finds wrong with a value."""
    return [invalid(path, value, text) for text in check(value)]


def malformed_if_set(path: str, value: Any, check: Check) -> Errors:
    return [] if value is None else malformed(path, value, check)


def optional(path: str, value: Any, check: Check) -> Errors:
    """Well-formed by a check of `names`, unless it is absent or empty."""
    return malformed(path, value, check) if value else []


def mandatory(path: str, value: Any, check: Check, detail: str = "") -> Errors:
    """Required, and well-formed by a check of `names`."""
    return malformed(path, value, check) if value else [required(path, detail)]
