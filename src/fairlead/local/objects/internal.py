"""A pod's spec as the real server has it inside: what it shows when it refuses a change.

`internal.json` is written by tests/kube/rig/facts.py: of each type its fields in order, as Go's name, JSON's name and
form (`*` a pointer, `[]` a list, `{}` a map, `@` a struct).
"""

import difflib
import json
from functools import cache
from importlib.resources import files
from typing import Any, Final

Json = dict[str, Any]

_ZERO: Final[Json] = {"string": "", "int": 0, "bool": False, "quantity": "0", "intstr": 0, "json": {}}
# Kept in the security context inside, in the spec outside.
_MOVED: Final = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")


@cache
def _types() -> dict[str, list[tuple[str, str, str]]]:
    loaded = json.loads(files("fairlead.local").joinpath("internal.json").read_bytes())
    return {name: [(go, tag, form) for go, tag, form in fields] for name, fields in loaded.items()}


def spec_diff(old: Json, new: Json) -> str:
    """What changed between two pod specs, as the server draws it."""
    lines = difflib.unified_diff(_lines(old), _lines(new), n=3, lineterm="")
    return "".join(f"{line}\n" for line in list(lines)[2:])


def _lines(spec: Json) -> list[str]:
    moved = {key: spec[key] for key in _MOVED if key in spec}
    whole = {**spec, "securityContext": {**(spec.get("securityContext") or {}), **moved}}
    text = json.dumps(_struct("PodSpec", whole), indent=1, ensure_ascii=False)
    for character, code in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(character, code)
    return text.split("\n")


def _struct(name: str, value: Json) -> Json:
    return {go: _value(form, value.get(tag)) for go, tag, form in _types()[name]}


def _value(form: str, value: Any) -> Any:
    if form.startswith("*"):
        return None if value is None else _value(form[1:], value)
    if form.startswith("[]"):
        return None if value is None else [_value(form[2:], each) for each in value]
    if form.startswith("{}"):
        return None if value is None else {key: _value(form[2:], value[key]) for key in sorted(value)}
    if form.startswith("@"):
        return _struct(form[1:], value or {})
    return _ZERO[form] if value is None else value
