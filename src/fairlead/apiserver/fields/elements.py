"""The elements of a path: `f:name` a field, `k:{"name":"x"}` an item of a keyed list, `v:"x"` an item of a set."""

import json
from functools import lru_cache
from typing import Any

from fairlead.apiserver.schema.shape import Schema

Json = dict[str, Any]
Path = tuple[str, ...]


class ApplyError(ValueError):
    """The applied configuration cannot be merged, such as a list item without its key: a 500 with this message."""


def element_of(schema: Schema, item: Any) -> str:
    if schema.list_type == "set":
        if isinstance(item, list):
            raise ApplyError("not supported: associative list with lists as elements")
        if isinstance(item, dict):
            raise ApplyError("associative list without keys has an element that's a map type")
        return f"v:{key_text(item)}"
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
        return single_key(*found[0])
    return "k:" + key_text(dict(sorted(found)))


@lru_cache(maxsize=16384)
def single_key(name: str, value: str) -> str:
    return "k:" + key_text({name: value})


def key_text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


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
    return "[" + ",".join(f"{key}={key_text(pairs[key])}" for key in sorted(pairs)) + "]"
