"""Values judged by an OpenAPI v3 schema, in the words of the real server: what custom resources are validated with."""

import ipaddress
import re
from collections.abc import Callable
from typing import Any, Final

from fairlead.apiserver.json_values import same, token
from fairlead.apiserver.request.json_errors import quoted
from fairlead.apiserver.schema.patterns import BadPattern, compiled
from fairlead.apiserver.schema.scalars import ScalarError, canonical_time, check_base64
from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation.errors import Causes, Errors, FieldError, Json, below
from fairlead.apiserver.validation.names import subdomain

_NOWHERE = "<nil>"
_UUID = re.compile(r"[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_DURATION = re.compile(r"-?(\d+(\.\d*)?(ns|us|µs|ms|s|m|h|d|w))+|0")
_BOUNDS = {"int32": 2**31, "int64": 2**63}
# Errors after which the server does not trust the object enough to evaluate rules on it.
BLOCKING = frozenset(
    {"FieldValueRequired", "FieldValueTypeInvalid", "FieldValueTooLong", "FieldValueTooMany", "FieldValueNotSupported"}
)


NEW: Final = object()
"""Instead of the old value: there was none, or none that can be matched to the new one."""


def check(schema: Json, value: Any, path: str, old: Any = NEW) -> Errors:
    """The errors of a value; `path` is empty at the root. An unchanged value that was invalid before may stay."""
    found = _check(schema, value, path, old)
    return [] if found and old is not NEW and same(value, old) else found


def _check(schema: Json, value: Any, path: str, old: Any) -> Errors:
    if value is None:
        if schema.get("nullable"):
            return []
        return [_wrong_type(path, "null", _types(schema))] if _types(schema) else []
    found = _check_type(schema, value, path)
    found += _check_combined(schema, value, path)
    if isinstance(value, list):
        found += _check_list(schema, value, path, old)
    elif isinstance(value, str):
        found += _check_text(schema, value, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found += _check_number(schema, value, path)
    found += _check_enum(schema, value, path)
    return [*found, *_check_object(schema, value, path, old)] if isinstance(value, dict) else found


def _types(schema: Json) -> list[str]:
    if schema.get("x-kubernetes-int-or-string"):
        return ["integer", "string"]
    return [schema["type"]] if schema.get("type") else []


def _type_of(value: Any) -> str:
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return {bool: "boolean", str: "string", int: "integer", dict: "object", list: "array"}.get(type(value), "null")


def _wrong_type(path: str, seen: str, expected: list[str]) -> FieldError:
    text = f'Invalid value: "{seen}": {path} in body must be of type {",".join(expected)}: "{seen}"'
    return FieldError("FieldValueTypeInvalid", path, text)


def _check_type(schema: Json, value: Any, path: str) -> Errors:
    expected = _types(schema)
    seen = _type_of(value)
    if not expected or seen in expected or (seen == "integer" and "number" in expected):
        return []
    form = schema.get("format")
    if form and not isinstance(value, str | list):
        return [_wrong_type(path, {bool: "", dict: "", int: "int64"}.get(type(value), "double"), [form])]
    if form and not {"number", "integer"} & set(expected):
        return []  # a text or a list is judged by its format alone
    return [_wrong_type(path, seen, expected)]


def _check_enum(schema: Json, value: Any, path: str) -> Errors:
    allowed = schema.get("enum")
    if not allowed or any(same(value, each) for each in allowed):
        return []
    texts = [each if isinstance(each, str) else field.shown(each) for each in allowed]
    supported = ", ".join(
        f'"{each}"' if isinstance(was, str) else quoted(each) for each, was in zip(texts, allowed, strict=True)
    )
    message = f"Unsupported value: {field.shown(value)}: supported values: {field.within_bounds(supported)}"
    return [FieldError("FieldValueNotSupported", path, message)]


def _below(path: str, name: str) -> str:
    return below(path, f".{name}" if path else name)


def _check_object(schema: Json, value: Json, path: str, old: Any) -> Errors:
    found: Errors = []
    least, most = schema.get("minProperties"), schema.get("maxProperties")
    if least is not None and len(value) < least:
        found.append(field.invalid(path, len(value), f"{path} in body should have at least {least} properties"))
    if most is not None and len(value) > most:
        found.append(field.too_many(path, len(value), most))
    properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    before = old if isinstance(old, dict) else {}
    if isinstance(rest, dict):
        for name, inner in value.items():
            if name not in properties:
                found += check(rest, inner, below(path, f".{name}"), before.get(name, NEW))
    if rest is False:
        message = "in body is a forbidden property"
        found += [
            field.invalid(path, name, field.within_bounds(f"{path}.{name} {message}"))
            for name in value
            if name not in properties
        ]
    for name, inner in value.items():
        if name in properties:
            found += check(properties[name], inner, _below(path, name), before.get(name, NEW))
    if schema.get("x-kubernetes-embedded-resource"):
        found += [field.required(_below(path, name)) for name in ("apiVersion", "kind") if not value.get(name)]
    return found + [field.required(_below(path, name)) for name in schema.get("required") or () if name not in value]


def _check_list(schema: Json, value: list[Any], path: str, old: Any) -> Errors:
    found: Errors = []
    items = schema.get("items")
    if isinstance(items, dict):
        before = old_items(schema, old)
        for index, inner in enumerate(value):
            found += check(items, inner, f"{path}[{index}]", before(inner))
    least, most = schema.get("minItems"), schema.get("maxItems")
    if least is not None and len(value) < least:
        found.append(field.invalid(path, len(value), f"{path} in body should have at least {least} items"))
    if most is not None and len(value) > most:
        found.append(field.too_many(path, len(value), most))
    return [*found, *_check_unique(schema, value, path)]


def old_items(schema: Json, old: Any) -> Callable[[Any], Any]:
    """The old value of each item, or NEW: only items of a keyed list can be matched over time."""
    keys = schema.get("x-kubernetes-list-map-keys") or ()

    def identity(item: Json) -> tuple[Any, ...]:
        return tuple(token(item.get(key)) for key in keys)

    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return lambda item: NEW
    known: dict[tuple[Any, ...], Any] = {}
    for each in old:
        if isinstance(each, dict):
            known.setdefault(identity(each), each)
    return lambda item: known.get(identity(item), NEW) if isinstance(item, dict) else NEW


def _check_unique(schema: Json, value: list[Any], path: str) -> Causes:
    kind = schema.get("x-kubernetes-list-type")
    if kind not in ("set", "map"):
        return
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    seen: set[Any] = set()
    for index, item in enumerate(value):
        if kind == "map":
            if not isinstance(item, dict):
                yield field.invalid(f"{path}[{index}]", item, "must be an object for an array of list-type map")
                continue
            identity: Any = {key: item[key] for key in keys if key in item}
        else:
            identity = item
        if token(identity) in seen:
            yield field.duplicate(f"{path}[{index}]", identity)
        seen.add(token(identity))


def _matches(pattern: str, value: str) -> bool:
    """Whether a text has the pattern in it; an invalid one, stored before patterns were checked, matches everything."""
    try:
        return compiled(pattern).search(value) is not None
    except BadPattern:
        return True


def _check_text(schema: Json, value: str, path: str) -> Errors:
    found: Errors = []
    most, least = schema.get("maxLength"), schema.get("minLength")
    if most is not None and len(value) > most:
        found.append(field.too_long(path, most))
    if least is not None and len(value) < least:
        found.append(field.invalid(path, value, f"{path} in body should be at least {least} chars long"))
    if schema.get("pattern") and not found and not _matches(schema["pattern"], value):
        found.append(field.invalid(path, value, f"{path} in body should match '{schema['pattern']}'"))
    form = schema.get("format")
    if form and not _has_format(form, value):
        text = f'Invalid value: "{value}": {path} in body must be of type {form}: "{value}"'
        found.append(FieldError("FieldValueTypeInvalid", path, text))
    return found


def _has_format(form: str, value: str) -> bool:
    try:
        match form:
            case "date-time" | "datetime":
                canonical_time(value)
            case "byte":
                check_base64(value)
            case "ipv4" | "ipv6":
                return ipaddress.ip_address(value).version == (4 if form == "ipv4" else 6)
            case "cidr":
                ipaddress.ip_network(value, strict=False)
            case "date":
                return _DATE.fullmatch(value) is not None
            case "uuid" | "uuid3" | "uuid4" | "uuid5":
                return _UUID.fullmatch(value) is not None
            case "email":
                return _EMAIL.fullmatch(value) is not None
            case "duration":
                return _DURATION.fullmatch(value.replace(" ", "")) is not None
            case "hostname":
                return not subdomain(value.lower())
    except (ValueError, ScalarError):
        return False
    return True


def _check_number(schema: Json, value: int | float, path: str) -> Causes:
    step, most, least = schema.get("multipleOf"), schema.get("maximum"), schema.get("minimum")
    if step is None and most is None and least is None:
        yield from _check_range(schema, value, path)
        return
    if isinstance(value, float) and not value.is_integer() and schema.get("type") == "integer":
        text = f"Checked value must be of type integer (default format) in {path}"
        yield FieldError("FieldValueInvalid", _NOWHERE, f'Invalid value: "": {text}')
    yield from _check_range(schema, value, path)
    if isinstance(value, int):
        # The server compares an integer with integers.
        step, most, least = (None if each is None else int(each) for each in (step, most, least))
    if step is not None:
        if step <= 0:
            yield field.invalid(path, step, f"factor MultipleOf declared for {path} must be positive: {step}")
        elif abs(value / step - round(value / step)) > 1e-9:
            yield field.invalid(path, value, f"{path} in body should be a multiple of {step}")
    if most is not None:
        if schema.get("exclusiveMaximum") and value >= most:
            yield field.invalid(path, value, f"{path} in body should be less than {most}")
        elif value > most:
            yield field.invalid(path, value, f"{path} in body should be less than or equal to {most}")
    if least is not None:
        if schema.get("exclusiveMinimum") and value <= least:
            yield field.invalid(path, value, f"{path} in body should be greater than {least}")
        elif value < least:
            yield field.invalid(path, value, f"{path} in body should be greater than or equal to {least}")


def _check_range(schema: Json, value: int | float, path: str) -> Errors:
    bound = _BOUNDS.get(schema.get("format", ""))
    if bound is None or schema.get("type") != "integer" or -bound <= value < bound:
        return []
    text = f"Checked value must be of type integer with format {schema['format']} in {path}"
    return [FieldError("FieldValueInvalid", _NOWHERE, f'Invalid value: "": {text}')]


def _check_combined(schema: Json, value: Any, path: str) -> Errors:
    found: Errors = []

    def add(text: str) -> None:
        found.append(FieldError("FieldValueInvalid", _NOWHERE, f'Invalid value: "": "{path}" {text}'))

    if "not" in schema and not check(schema["not"], value, path):
        add("must not validate the schema (not)")
    attempts = [check(each, value, path) for each in schema.get("allOf") or ()]
    if any(attempts):
        add(f"must validate all the schemas (allOf){'. None validated' if all(attempts) else ''}")
        found += [problem for problems in attempts for problem in problems]
    if schema.get("anyOf"):
        attempts = [check(each, value, path) for each in schema["anyOf"]]
        if all(attempts):
            add("must validate at least one schema (anyOf)")
            found += _least(attempts)
    if schema.get("oneOf"):
        attempts = [check(each, value, path) for each in schema["oneOf"]]
        good = sum(not problems for problems in attempts)
        if good == 0:
            add("must validate one and only one schema (oneOf). Found none valid")
            found += _least(attempts)
        elif good > 1:
            add(f"must validate one and only one schema (oneOf). Found {good} valid alternatives")
    return found


def _least(attempts: list[Errors]) -> Errors:
    """The errors of the alternative that matched best."""
    return min(attempts, key=len)
