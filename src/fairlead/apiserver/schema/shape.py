"""The shape of a kind as a tree, and reading a value against it the way Go's decoder does.

Built-in kinds get theirs from the facts (`for_kind`), custom kinds from their definition (`custom.py`). Patches and
applies walk the same tree. `decode` compiles each struct once into a closure: types are checked, null is absence,
unknown fields are dropped and reported, empty fields vanish or stay as `omitempty` says, quantities and times are
rewritten in their one canonical form; what comes out is what the server would store.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from heapq import nsmallest
from itertools import islice
from typing import Any, Final

from fairlead.apiserver.json_values import copied, json_type
from fairlead.apiserver.request.json_errors import complaint
from fairlead.apiserver.schema import facts, scalars
from fairlead.apiserver.validation.errors import below

Json = dict[str, Any]


class Notes(list[str]):
    """Collected while decoding: unknown fields, and whether something is empty that Go stores as null."""

    has_empty = False
    lenient = False
    """Wrong types are skipped: Go notes the first and decodes on, and an error of a type's own decoder wins."""


Read = Callable[[Any, Notes], Any]

# How many unknown and repeated fields are reported, as Go's decoder counts them.
MOST_STRICT: Final = 100
OMIT: Final = object()
_GO = {"string": "string", "bool": "bool", "int32": "int32", "int64": "int64", "double": "float64", "bytes": "[]uint8"}
_ZEROS: Json = {"string": "", "int32": 0, "int64": 0, "bool": False}
_BOUNDS = {"int32": 2**31, "int64": 2**63}
# Go structs, so that omitempty does not drop them.
_ALWAYS = {"object", "time", "microtime", "quantity", "intstr", "raw"}


class Struct:
    """An object's fields, made on first use (types may contain themselves)."""

    __slots__ = (
        "_fields", "_make", "atomic", "custom", "hollow", "kinds", "name", "open", "read", "status_apart",
    )  # fmt: skip

    def __init__(self, name: str, make: Callable[[], dict[str, "Schema"]]) -> None:
        self.name: str = name  # as Go names it, without its package
        self.atomic: bool = False
        self.open: bool = False  # unknown fields are kept (x-kubernetes-preserve-unknown-fields)
        self.hollow: bool = False  # unknown fields are kept, objects emptied (additionalProperties: true)
        self.custom: bool = False  # of a custom kind: no Go struct stands behind it
        self.status_apart: bool = False  # of a custom kind: /status is written on its own
        self.kinds: tuple[facts.GroupVersionKind, ...] = ()
        self._make = make
        self._fields: dict[str, Schema] | None = None
        self.read: Read = self._compile

    @property
    def fields(self) -> dict[str, "Schema"]:
        if self._fields is None:
            self._fields = self._make()
        return self._fields

    def _compile(self, value: Any, unknown: Notes) -> Any:
        self.read = _custom_reader(self) if self.custom else _struct_reader(self)
        return self.read(value, unknown)


@dataclass(slots=True, eq=False)
class Schema:
    """One place in the tree: what may stand there and how it is merged."""

    form: str  # object, list, map, any, raw, or a scalar: string, int32, quantity, …
    go: str = ""  # Go's name of the type, for error texts
    struct: Struct | None = None
    items: "Schema | None" = None
    flags: str = ""
    inlined: str = ""
    list_type: str | None = None
    keys: tuple[str, ...] = ()
    map_type: str | None = None
    merge_key: str | None = None
    strategies: tuple[str, ...] = ()
    default: Any = None
    source: Json = field(default_factory=dict)  # a custom kind's own schema of this place
    granular: str = field(init=False)  # `map` or `list` where the parts are owned one by one

    def __post_init__(self) -> None:
        whole = self.map_type == "atomic" or (
            self.struct is not None and self.struct.atomic and self.map_type != "granular"
        )
        if self.form == "list":
            self.granular = "list" if self.list_type in ("set", "map") else ""
        else:
            self.granular = "map" if self.form in ("object", "map") and not whole else ""

    @property
    def fields(self) -> dict[str, "Schema"]:
        return self.struct.fields if self.struct is not None else {}

    def child(self, name: str) -> "Schema | None":
        """The schema of a key: a field's, or a map's value's."""
        if self.form == "map":
            return self.items
        return self.fields.get(name)


# Anything at all: objects by their fields, lists and the rest as a whole.
DEDUCED: Final = Schema(form="any")


@dataclass(frozen=True, slots=True)
class Decoded:
    value: Any
    unknown: list[str]  # paths, in the order the document has them: spec.containers[0].foo
    has_empty: bool = False  # see `forget_empty`


class DecodeError(ValueError):
    """The value does not have the kind's shape: a 400 with this message. `why` is the message without the kind."""

    def __init__(self, label: str, why: str) -> None:
        super().__init__(f"{label}: {why}")
        self.why = why


class ParseError(ValueError):
    """The text is not JSON; the message is Go's."""


@dataclass(frozen=True, slots=True)
class Parsed:
    value: Any
    duplicates: list[str]  # paths of fields that are given more than once; the last one counts


# --- schemas of built-in kinds ----------------------------------------------------------------------------------


@cache
def for_kind(group: str, version: str, kind: str) -> Schema | None:
    name = facts.load().type_name(group, version, kind)
    return None if name is None else for_type(name)


@cache
def for_type(name: str) -> Schema:
    """The schema of a type by the facts' name, such as `core.v1.PodSpec`."""
    return Schema(form="object", go=".".join(name.split(".")[-2:]), struct=_struct(name))


@cache
def _struct(name: str) -> Struct:
    entry = facts.load().types[name]

    def fields() -> dict[str, Schema]:
        return {key: _from_facts(value["t"], value) for key, value in entry["fields"].items()}

    struct = Struct(name.split(".")[-1], fields)
    struct.atomic = entry.get("map") == "atomic"
    struct.kinds = tuple((group, version, kind) for group, version, kind in entry.get("kinds", ()))
    return struct


def _from_facts(form: str, entry: Json) -> Schema:
    common: Json = {
        "flags": entry.get("f", ""),
        "inlined": entry.get("i", ""),
        "list_type": entry.get("l"),
        "keys": tuple(entry.get("k", ())),
        "map_type": entry.get("m"),
        "merge_key": entry.get("mk"),
        "strategies": tuple(entry["ps"].split(",")) if "ps" in entry else (),
        "default": entry.get("d", None if entry.get("f") else _ZEROS.get(form)),
    }
    go = entry.get("g", "")
    if form.startswith("[]"):
        items = _from_facts(form[2:], {"g": go.removeprefix("[]")} if go.startswith("[]") else {})
        return Schema(form="list", go=go or f"[]{items.go}", items=items, **common)
    if form.startswith("{}"):
        items = _from_facts(form[2:], {"g": go.partition("]")[2]} if go.startswith("map[") else {})
        return Schema(form="map", go=go or f"map[string]{items.go}", items=items, **common)
    if form.startswith("@"):
        return Schema(form="object", go=".".join(form[1:].split(".")[-2:]), struct=_struct(form[1:]), **common)
    return Schema(form=form, go=go or _GO.get(form, form), **common)


# --- reading ----------------------------------------------------------------------------------------------------


class _Mismatch(Exception):
    """A value of the wrong type below; each struct on the way up adds its field to the path."""

    def __init__(self, seen: str, expected: str, *, final: bool = False) -> None:
        super().__init__()
        self.final = final  # reported by the type's own reader, at which Go stops
        self.seen = seen
        self.expected = expected
        self.struct = ""
        self.path: list[str] = []

    def __str__(self) -> str:
        where = f"struct field {self.struct}.{'.'.join(reversed(self.path))}" if self.struct else "value"
        return f"json: cannot unmarshal {self.seen} into Go {where} of type {self.expected}"


def kind_label(kind: str, version: str, expected: str | None = None) -> str:
    """How the server begins a complaint about a body: what it claims to be and what is served there."""
    return f'{kind} in version "{version}" cannot be handled as a {expected or kind}'


def decode(schema: Schema, value: Any, label: str, *, in_order: bool = False) -> Decoded:
    """The value as the server would store it, and the paths of fields it does not know. `label`: see kind_label.

    `in_order`: the value came out of a patch, where Go has its fields by name.
    """
    assert schema.struct is not None
    unknown = Notes()
    try:
        read = schema.struct.read(value, unknown)
    except _Mismatch as mismatch:
        raise DecodeError(label, _final_problem(schema.struct, value) or str(mismatch)) from None
    except scalars.ScalarError as problem:
        raise DecodeError(label, str(problem)) from None
    return Decoded(read, _some_unknown(schema, value, in_order) if unknown else [], unknown.has_empty)


def _some_unknown(schema: Schema, value: Any, in_order: bool) -> list[str]:
    paths = _unknown_paths(schema, _by_name(value) if in_order else value, "")
    if schema.struct is not None and schema.struct.custom:
        return nsmallest(MOST_STRICT, paths)
    return list(islice(paths, MOST_STRICT))


def _final_problem(struct: Struct, value: Any) -> str:
    """The error of a type's own decoder in a value that has a wrong type elsewhere; "" if none."""
    notes = Notes()
    notes.lenient = True
    try:
        struct.read(value, notes)
    except (_Mismatch, scalars.ScalarError) as problem:
        if isinstance(problem, scalars.ScalarError) or problem.final:
            return str(problem)
    return ""


def forget_empty(schema: Schema, value: Any) -> Any:
    """Drop empty lists and maps, which Go stores as null. Changes the value."""
    if schema.form == "object" and isinstance(value, dict) and schema.struct is not None and not schema.struct.custom:
        for key, inner in value.items():
            child = schema.fields.get(key)
            if child is not None and isinstance(inner, dict | list):
                kept = inner or child.form not in ("list", "map") or "p" in child.flags
                value[key] = forget_empty(child, inner) if kept else None
    elif schema.form == "map" and isinstance(value, dict) and schema.items is not None:
        for inner in value.values():
            forget_empty(schema.items, inner)
    elif schema.form == "list" and isinstance(value, list) and schema.items is not None:
        for inner in value:
            forget_empty(schema.items, inner)
    return value


def strict_problem(parsed_duplicates: Iterable[str], unknown: Iterable[str]) -> str:
    """What fieldValidation=Strict refuses an object for."""
    complaints = [f'duplicate field "{path}"' for path in parsed_duplicates]
    complaints += [f'unknown field "{path}"' for path in unknown]
    return f"strict decoding error: {', '.join(complaints)}"


def _by_name(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _by_name(value[key]) for key in sorted(value)}
    return [_by_name(each) for each in value] if isinstance(value, list) else value


def _unknown_paths(schema: Schema, value: Any, path: str) -> Iterator[str]:
    if schema.form == "object" and isinstance(value, dict):
        for key, inner in value.items():
            here = below(path, f".{key}" if path else key)
            child = schema.fields.get(key)
            if child is not None:
                yield from _unknown_paths(child, inner, here)
            elif schema.struct is None or not schema.struct.open:
                yield here
            elif schema.struct.hollow:
                yield from _hollow_paths(inner, here)
    elif schema.form == "map" and isinstance(value, dict):
        assert schema.items is not None
        for key, inner in value.items():
            yield from _unknown_paths(schema.items, inner, below(path, f".{key}"))
    elif schema.form == "list" and isinstance(value, list):
        assert schema.items is not None
        for index, inner in enumerate(value):
            yield from _unknown_paths(schema.items, inner, f"{path}[{index}]")


def _hollow_paths(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (below(path, f".{key}") for key in value)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _hollow_paths(inner, f"{path}[{index}]")


def _struct_reader(struct: Struct) -> Read:
    readers = {name: _reader(schema) for name, schema in struct.fields.items()}
    zeros = tuple((name, zero) for name, schema in struct.fields.items() if (zero := _zero(schema)) is not None)
    inlined = {name: schema.inlined for name, schema in struct.fields.items() if schema.inlined}
    name = struct.name

    def read(value: Any, unknown: Notes) -> Any:
        if type(value) is not dict:
            raise _Mismatch(json_type(value), f"v1.{name}" if name == "ObjectMeta" else name)
        out = {}
        for key, inner in value.items():
            reader = readers.get(key)
            if reader is None:
                unknown.append(key)
            elif inner is not None:
                try:
                    made = reader(inner, unknown)
                except _Mismatch as mismatch:
                    mismatch.struct = mismatch.struct or name
                    mismatch.path.append(key)
                    if key in inlined:
                        mismatch.path.append(inlined[key])
                    if unknown.lenient and not mismatch.final:
                        continue
                    raise
                if made is not OMIT:
                    out[key] = made
        for key, zero in zeros:
            if key not in out:
                out[key] = zero()
        return out

    return read


def _custom_reader(struct: Struct) -> Read:
    """Of a custom kind only metadata has a Go struct; elsewhere unknown fields are pruned and types not checked."""

    def read(value: Any, unknown: Notes) -> Any:
        if type(value) is not dict:
            return value
        out = {}
        for key, inner in value.items():
            schema = struct.fields.get(key)
            if schema is not None:
                out[key] = _custom_value(schema, inner, unknown)
            elif struct.open:
                out[key] = hollow(inner, unknown) if struct.hollow else copied(inner)
            else:
                unknown.append(key)
        return out

    return read


def hollow(value: Any, unknown: Notes) -> Any:
    """A value of unknown shape: an object is emptied."""
    if type(value) is dict:
        unknown.extend(value)
        return {}
    return [hollow(inner, unknown) for inner in value] if type(value) is list else value


def _custom_value(schema: Schema, value: Any, unknown: Notes) -> Any:
    if schema.form == "object" and schema.struct is not None:
        if value is None and not schema.struct.custom:
            return {}
        return schema.struct.read(value, unknown)
    if schema.form == "map" and type(value) is dict and schema.items is not None:
        return {key: _custom_value(schema.items, inner, unknown) for key, inner in value.items()}
    if schema.form == "list" and type(value) is list and schema.items is not None:
        return [_custom_value(schema.items, inner, unknown) for inner in value]
    return copied(value)


def _zero(schema: Schema) -> Callable[[], Any] | None:
    """The value of an unset field in Go's output; None where it is omitted."""
    if "p" in schema.flags:
        return None if "o" in schema.flags else _nothing
    if "z" in schema.flags or ("o" in schema.flags and schema.form not in _ALWAYS):
        return None
    return _zero_value(schema)


def _nothing() -> None:
    return None


def _zero_value(schema: Schema) -> Callable[[], Any]:
    if schema.form == "object":
        struct = schema.struct
        assert struct is not None
        return lambda: struct.read({}, Notes())
    constants: Json = {**_ZEROS, "double": 0, "quantity": "0", "intstr": 0}
    constant = constants.get(schema.form)
    return _nothing if constant is None else lambda: constant


def _reader(schema: Schema) -> Read:
    omit = "o" in schema.flags and "p" not in schema.flags
    match schema.form:
        case "object":
            return _object_reader(schema)
        case "list":
            return _list_reader(schema, omit)
        case "map":
            return _map_reader(schema, omit)
        case "string" | "bool":
            return _plain_reader(str if schema.form == "string" else bool, schema.go, omit)
        case "int32" | "int64":
            return _int_reader(schema.form, schema.go, omit)
        case "double":
            return _double_reader(schema.go, omit)
        case "quantity":
            return _read_quantity
        case "time":
            return _text_reader(scalars.canonical_time)
        case "microtime":
            return _text_reader(scalars.canonical_micro_time)
        case "bytes":
            return _bytes_reader(schema.go, omit)
        case "intstr":
            return _read_int_or_string
        case "schema_or_array" | "schema_or_bool" | "schema_or_strings":
            return _schema_or_reader(schema)
    return _read_anything


def _object_reader(schema: Schema) -> Read:
    struct = schema.struct
    assert struct is not None
    go = schema.go

    def read(value: Any, unknown: Notes) -> Any:
        if type(value) is not dict:
            raise _Mismatch(json_type(value), go)
        return struct.read(value, unknown)

    return read


def _list_reader(schema: Schema, omit: bool) -> Read:
    assert schema.items is not None
    item, zero, go = _reader(schema.items), _zero_value(schema.items), schema.go

    def read(value: Any, unknown: Notes) -> Any:
        if type(value) is not list:
            raise _Mismatch(json_type(value), go)
        if not value:
            unknown.has_empty = unknown.has_empty or not omit
            return OMIT if omit else []
        return [item(inner, unknown) if inner is not None else zero() for inner in value]

    def read_strings(value: Any, unknown: Notes) -> Any:
        if type(value) is not list or not value:
            return read(value, unknown)
        for inner in value:
            if type(inner) is not str:
                return read(value, unknown)
        return value[:]

    return read_strings if schema.items.form == "string" else read


def _map_reader(schema: Schema, omit: bool) -> Read:
    assert schema.items is not None
    item, go = _reader(schema.items), schema.go
    zero: Callable[[], Any] = str if schema.items.form == "bytes" else _zero_value(schema.items)

    def read(value: Any, unknown: Notes) -> Any:
        if type(value) is not dict:
            raise _Mismatch(json_type(value), go)
        if not value:
            unknown.has_empty = unknown.has_empty or not omit
            return OMIT if omit else {}
        return {key: item(inner, unknown) if inner is not None else zero() for key, inner in value.items()}

    return read


def _plain_reader(expected: type, go: str, omit: bool) -> Read:
    def read(value: Any, unknown: Notes) -> Any:
        if type(value) is not expected:
            raise _Mismatch(json_type(value), go)
        return value

    def read_or_omit(value: Any, unknown: Notes) -> Any:
        if type(value) is not expected:
            raise _Mismatch(json_type(value), go)
        return value or OMIT

    return read_or_omit if omit else read


def _int_reader(form: str, go: str, omit: bool) -> Read:
    bound = _BOUNDS[form]

    def read(value: Any, unknown: Notes) -> Any:
        if type(value) is not int:
            raise _Mismatch(f"number {value}" if type(value) is float else json_type(value), go)
        if not -bound <= value < bound:
            raise _Mismatch(f"number {value}", go)
        return OMIT if omit and not value else value

    return read


def _double_reader(go: str, omit: bool) -> Read:
    def read(value: Any, unknown: Notes) -> Any:
        if type(value) not in (int, float):
            raise _Mismatch(json_type(value), go)
        return OMIT if omit and not value else value

    return read


def _read_quantity(value: Any, unknown: Notes) -> Any:
    # A number is shown as JSON has it, but for the plus that only Python writes into 1e30.
    return scalars.canonical_quantity(value.strip() if type(value) is str else json.dumps(value).replace("e+", "e"))


def _text_reader(canonical: Callable[[str], str]) -> Read:
    def read(value: Any, unknown: Notes) -> Any:
        if type(value) is not str:
            raise _Mismatch(json_type(value), "string", final=True)
        return canonical(value)

    return read


def _bytes_reader(go: str, omit: bool) -> Read:
    def read(value: Any, unknown: Notes) -> Any:
        if type(value) is not str:
            raise _Mismatch(json_type(value), go)
        return scalars.check_base64(value) or (OMIT if omit else "")

    return read


def _read_int_or_string(value: Any, unknown: Notes) -> Any:
    if type(value) is str:
        return value
    if type(value) is not int or not -(2**31) <= value < 2**31:
        raise _Mismatch(f"number {value}" if type(value) in (int, float) else json_type(value), "int32", final=True)
    return value


def _read_anything(value: Any, unknown: Notes) -> Any:
    return value


def _schema_or_reader(schema: Schema) -> Read:
    props = for_type("apiextensions.v1.JSONSchemaProps").struct
    assert props is not None

    def read(value: Any, unknown: Notes) -> Any:
        if type(value) is dict:
            return props.read(value, unknown)
        if type(value) is bool and schema.form == "schema_or_bool":
            return value
        if type(value) is list and schema.form == "schema_or_array":
            return [props.read(inner, unknown) for inner in value]
        if type(value) is list and schema.form == "schema_or_strings":
            return value
        raise _Mismatch(json_type(value), schema.go)

    return read


# --- JSON -------------------------------------------------------------------------------------------------------

_TOO_LARGE: Final = "json: cannot unmarshal number into Go value of type float64"
_SURROGATE = re.compile("[\ud800-\udfff]")


def parse(body: bytes) -> Parsed:
    """Reads JSON as Go does: duplicate fields are reported, bad UTF-8 becomes U+FFFD, errors carry Go's texts."""
    text = body.decode("utf-8", "replace")
    repeated = False

    def pairs(found: list[tuple[str, Any]]) -> Json:
        nonlocal repeated
        made = dict(found)
        repeated = repeated or len(made) != len(found)
        return made

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=_no_constant, parse_float=_finite)
        duplicates: list[str] = []
        if repeated:
            duplicates = list(islice(_duplicates(json.loads(text, object_pairs_hook=tuple), ""), MOST_STRICT))
    except RecursionError:
        raise ParseError("exceeded max depth") from None
    except ValueError as problem:
        # Python reads no integer of more than 4,300 digits.
        why = _TOO_LARGE if str(problem).startswith("Exceeds the limit") else str(problem)
        raise ParseError(complaint(body) or why) from None
    return Parsed(_without_surrogates(value) if "\\ud" in text.lower() else value, duplicates)


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(_TOO_LARGE)
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")


def _duplicates(value: Any, path: str) -> Iterator[str]:
    """The paths of keys that occur twice in a tree of pairs."""
    if isinstance(value, tuple):
        seen: set[str] = set()
        for key, inner in value:
            here = below(path, f".{key}" if path else key)
            if key in seen:
                yield here
            seen.add(key)
            yield from _duplicates(inner, here)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _duplicates(inner, f"{path}[{index}]")


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_surrogates(inner) for inner in value]
    if isinstance(value, dict):
        return {_SURROGATE.sub("\ufffd", key): _without_surrogates(inner) for key, inner in value.items()}
    return value
