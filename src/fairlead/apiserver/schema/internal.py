"""Some types in the real server's internal form, which its messages print for a refused value or change.

`internal.json` is written by tests/rigs/kube/facts.py: of each type its fields in order, as Go's name, JSON's name and
form (`*` a pointer, `[]` a list, `{}` a map, `@` a struct, `inline` metadata that stands among the other fields).
"""

import difflib
import json
from functools import cache
from importlib.resources import files
from typing import Any, Final

from fairlead.apiserver.json_values import html_escaped

Json = dict[str, Any]

_ZERO: Final[Json] = {"string": "", "int": 0, "bool": False, "quantity": "0", "intstr": 0, "json": {}}
# In the internal form part of the security context, in the API part of the spec.
_MOVED: Final = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")


@cache
def _types() -> dict[str, list[tuple[str, str, str]]]:
    loaded = json.loads(files("fairlead.apiserver.schema").joinpath("internal.json").read_bytes())
    return {name: [(go, tag, form) for go, tag, form in fields] for name, fields in loaded.items()}


def diff(name: str, old: Json, new: Json) -> str:
    """What changed between two values of a type, as the server draws it."""
    lines = difflib.unified_diff(_lines(name, old), _lines(name, new), n=3, lineterm="")
    return "".join(f"{line}\n" for line in list(lines)[2:])


def _lines(name: str, value: Json) -> list[str]:
    return html_escaped(json.dumps(inside(name, value), indent=1, ensure_ascii=False)).split("\n")


def inside(name: str, value: Json) -> Json:
    """The value with the names and empty fields of the internal form."""
    if name == "PodSpec":
        moved = {key: value[key] for key in _MOVED if key in value}
        value = {**value, "securityContext": {**(value.get("securityContext") or {}), **moved}}
    made: Json = {}
    for go, tag, form in _types()[name]:
        if form == "inline":
            made |= value.get(tag) or {}
        else:
            made[go] = _value(form, value.get(tag))
    return made


def _value(form: str, value: Any) -> Any:
    if form.startswith("*"):
        return None if value is None else _value(form[1:], value)
    if form.startswith("[]"):
        return None if value is None else [_value(form[2:], each) for each in value]
    if form.startswith("{}"):
        return None if value is None else {key: _value(form[2:], value[key]) for key in sorted(value)}
    if form.startswith("@"):
        return inside(form[1:], value or {})
    return _ZERO[form] if value is None else value
