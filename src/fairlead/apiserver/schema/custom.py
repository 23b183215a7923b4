"""A custom kind, by its CustomResourceDefinition: names, shape, defaults, rules, columns, subresources."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec

from fairlead.apiserver.cel import rules as expressions
from fairlead.apiserver.json_values import copied, go_text, go_type
from fairlead.apiserver.schema import facts, openapi
from fairlead.apiserver.schema.shape import DEDUCED, Schema, Struct, for_type
from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.errors import FieldError, Json, bounded, invalid

_UNCHECKED: Final = FieldError(
    "FieldValueInvalid",
    "<nil>",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation",
)
VERBS: Final = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
# How many bytes take as long to check as one rule takes to evaluate.
RULE_WEIGHT: Final = 32
_STEP = re.compile(r"\.?([^.\[\]]+)|\[['\"]([^'\"]+)['\"]\]|\[(\d+|\*)\]")


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    name: str
    type: str
    path: str
    priority: int


class CustomKind:
    """One definition, read once; made anew when the definition changes."""

    def __init__(self, definition: Json, since: int = 0) -> None:
        """`since`: the revision of its last change; objects written later fit it."""
        spec = definition["spec"]
        self.since = since
        given = spec["names"]
        self.definition = definition
        self.group: str = spec["group"]
        self.kind: str = given["kind"]
        self.plural: str = given["plural"]
        self.singular: str = given.get("singular") or self.kind.lower()
        self.list_kind: str = given.get("listKind") or f"{self.kind}List"
        self.short_names: tuple[str, ...] = tuple(given.get("shortNames") or ())
        self.categories: tuple[str, ...] = tuple(given.get("categories") or ())
        self.namespaced: bool = spec["scope"] == "Namespaced"
        self._versions: dict[str, Json] = {version["name"]: version for version in spec["versions"]}
        self.storage_version: str = next(v["name"] for v in spec["versions"] if v.get("storage"))
        conversion: Json = spec.get("conversion") or {}
        self.webhook: Json | None = conversion.get("webhook") if conversion.get("strategy") == "Webhook" else None
        """Who converts from version to version; None where only the name of the version changes."""
        self._schemas: dict[str, Schema] = {}
        self._weights: dict[str, int] = {}

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(self._versions)

    def served_versions(self) -> list[str]:
        return [name for name, version in self._versions.items() if version.get("served")]

    def has_status(self, version: str) -> bool:
        return "status" in (self._versions[version].get("subresources") or {})

    def scale(self, version: str) -> tuple[str, str, str] | None:
        """The paths of spec replicas, of status replicas, and of the selector as text (may be empty)."""
        found = (self._versions[version].get("subresources") or {}).get("scale")
        if found is None:
            return None
        return found["specReplicasPath"], found["statusReplicasPath"], found.get("labelSelectorPath", "")

    def selectable(self, version: str) -> tuple[str, ...]:
        """The selectable fields, as paths: `.spec.color`."""
        return tuple(field["jsonPath"] for field in self._versions[version].get("selectableFields") or ())

    def selected(self, version: str, obj: Json) -> dict[str, str]:
        """The selectable fields with their values."""
        return {path.lstrip("."): _text(read_path(obj, path)) for path in self.selectable(version)}

    def deprecation(self, version: str) -> str:
        """The deprecation warning of a version; empty where it is not deprecated."""
        spec = self._versions[version]
        if not spec.get("deprecated"):
            return ""
        if spec.get("deprecationWarning") is not None:
            return str(spec["deprecationWarning"])
        better = [
            name
            for name, other in self._versions.items()
            if other.get("served") and not other.get("deprecated") and version_rank(name) > version_rank(version)
        ]
        use = f"; use {self.group}/{max(better, key=version_rank)} {self.kind}" if better else ""
        return f"{self.group}/{version} {self.kind} is deprecated{use}"

    def printer_columns(self, version: str) -> tuple[PrinterColumn, ...]:
        columns = self._versions[version].get("additionalPrinterColumns")
        if not columns:
            return (PrinterColumn("Age", "date", ".metadata.creationTimestamp", 0),)
        return tuple(
            PrinterColumn(column["name"], column["type"], column["jsonPath"], column.get("priority", 0))
            for column in columns
        )

    # --- objects ------------------------------------------------------------------------------------------------

    def source(self, version: str) -> Json:
        """The version's own OpenAPI schema; an object of anything where it has none."""
        found: Json = (self._versions[version].get("schema") or {}).get("openAPIV3Schema") or {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
        }
        return found

    def weight(self, version: str) -> int:
        """How many bytes of an object take as long to check as the rules of this version do, whatever the object."""
        if version not in self._weights:
            self._weights[version] = RULE_WEIGHT * msgspec.json.encode(self.source(version)).count(b'"rule":')
        return self._weights[version]

    def schema(self, version: str) -> Schema:
        """For decoding (which prunes), patching and applying."""
        if version not in self._schemas:
            made = _schema(self.source(version), root=True)
            assert made.struct is not None
            made.struct.status_apart = self.has_status(version)
            self._schemas[version] = made
        return self._schemas[version]

    def default(self, version: str, obj: Json) -> None:
        """Fills in defaults in place; null where it is not allowed is replaced by the default, or removed."""
        _default(self.source(version), obj, root=True)

    def as_read(self, version: str, obj: Json) -> Json:
        """A stored object in the current schema of its version: unknown fields are pruned, defaults set."""
        made = self.as_known(version, obj)
        self.default(version, made)
        return made

    def as_known(self, version: str, obj: Json) -> Json:
        """Without the fields that a version does not know, and without null where it is not allowed."""
        source = self.source(version)
        made: Json = _pruned({**source, "x-kubernetes-embedded-resource": True}, obj)
        _drop_nulls(source, made, root=True)
        return made

    @bounded()
    def validate(self, version: str, obj: Json, old: Json | None = None, subresource: str = "") -> list[FieldError]:
        if mistaken := self._other_type(version, obj):
            return mistaken
        if old is None:
            found = list(metadata.on_create(obj["metadata"], self.namespaced, names.subdomain, core=False))
        else:
            found = metadata.common(obj["metadata"], old["metadata"], self.namespaced)
            found += metadata.on_update(obj["metadata"], old["metadata"], core=False)
        source = self.source(version)
        if subresource == "status" and old is not None:
            shape = self._status_shape(source, obj, old)
        else:
            before = openapi.NEW if old is None else _bare(old)
            shape = openapi.check(_without_metadata(source), _bare(obj), "", before)
        found += shape
        found += self._scaled(version, obj, subresource)
        if expressions.has_rules(source):
            if any(error.type in openapi.BLOCKING for error in shape):
                found.append(_UNCHECKED)
            else:
                found += expressions.check(source, obj, openapi.NEW if old is None else old)
        return found

    @staticmethod
    def _status_shape(source: Json, obj: Json, old: Json) -> list[FieldError]:
        """A status that is written on its own is judged on its own: its parts are named from there."""
        schema = (source.get("properties") or {}).get("status")
        if schema is None or "status" not in obj:
            return []
        before = old.get("status", openapi.NEW)
        return [
            FieldError(each.type, _under("status", each.field), each.message)
            for each in openapi.check(schema, obj["status"], "", before)
        ]

    def _scaled(self, version: str, obj: Json, subresource: str) -> list[FieldError]:
        """Replicas at the paths of the scale subresource must be counts."""
        paths = self.scale(version)
        found: list[FieldError] = []
        for path in (paths or ())[1 if subresource == "status" else 0 : 2]:
            value, problem = _accessor_problem(obj, path, int, "int64")
            if problem:
                found.append(invalid(path, 0, problem))
            elif value is not None and value < 0:
                found.append(invalid(path, value, "should be a non-negative integer"))
            elif value is not None and value > 2**31 - 1:
                found.append(invalid(path, value, "should be less than or equal to 2147483647"))
        if paths is not None and paths[2]:
            problem = _accessor_problem(obj, paths[2], str, "string")[1]
            if problem:
                found.append(invalid(paths[2], "", problem))
        return found

    def _other_type(self, version: str, obj: Json) -> list[FieldError]:
        expected = {"kind": self.kind, "apiVersion": f"{self.group}/{version}"}
        return [invalid(key, obj[key], f"must be {value}") for key, value in expected.items() if obj[key] != value]

    # --- OpenAPI ------------------------------------------------------------------------------------------------

    def openapi(self, version: str) -> Json:
        """The OpenAPI v3 document of this kind in this version, as kubectl reads it."""
        name = ".".join([*reversed(self.group.split(".")), version, self.kind])
        status = facts.Subresource("status", self.group, version, self.kind, ("get", "patch", "update"))
        resource = facts.Resource(
            self.group, version, self.plural, self.kind, self.singular, self.namespaced, VERBS,
            self.short_names, self.categories, (status,) if self.has_status(version) else (),
        )  # fmt: skip
        source = copied(self.source(version))
        properties = source.setdefault("properties", {})
        properties.setdefault("apiVersion", {"type": "string"})
        properties.setdefault("kind", {"type": "string"})
        reference = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
        properties["metadata"] = {"allOf": [{"$ref": reference}]}
        source["x-kubernetes-group-version-kind"] = [{"group": self.group, "kind": self.kind, "version": version}]
        return {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
            "paths": facts.resource_paths(resource, name, facts.PATCHES[:3]),  # there is no strategy in a custom schema
            "components": {"schemas": {name: source, **_meta_schemas()}},
        }


@cache
def _meta_schemas() -> Json:
    whole = facts.load().openapi_v3("", "v1")["components"]["schemas"]
    return {key: schema for key, schema in whole.items() if ".meta.v1." in key}


# --- shapes -----------------------------------------------------------------------------------------------------


def _schema(source: Json, root: bool = False) -> Schema:
    list_type = source.get("x-kubernetes-list-type")
    common: Json = {"map_type": source.get("x-kubernetes-map-type"), "default": source.get("default"), "source": source}
    if source.get("x-kubernetes-int-or-string"):
        return Schema(form="scalar", **common)
    match source.get("type"):
        case "object":
            rest = source.get("additionalProperties")
            if isinstance(rest, dict) and not source.get("properties"):
                return Schema(form="map", items=_schema(rest), **common)
            if not root and _keeps_unknown(source) and not source.get("properties") and not _is_embedded(source):
                return DEDUCED
            return Schema(form="object", struct=_struct(source, root), **common)
        case "array":
            items = source.get("items")
            return Schema(
                form="list",
                items=_schema(items) if isinstance(items, dict) else DEDUCED,
                list_type=list_type or "atomic",
                keys=tuple(source.get("x-kubernetes-list-map-keys") or ()),
                **common,
            )
        case None:
            return DEDUCED
    return Schema(form="scalar", **common)


def _keeps_unknown(source: Json) -> bool:
    return bool(source.get("x-kubernetes-preserve-unknown-fields"))


def _is_embedded(source: Json) -> bool:
    return bool(source.get("x-kubernetes-embedded-resource"))


def _struct(source: Json, root: bool) -> Struct:
    def fields() -> dict[str, Schema]:
        made = {name: _schema(inner) for name, inner in (source.get("properties") or {}).items()}
        if root or _is_embedded(source):
            made["apiVersion"] = made["kind"] = Schema(form="string", go="string")
            made["metadata"] = for_type("meta.v1.ObjectMeta")
        return made

    struct = Struct("", fields)
    struct.custom = True
    struct.hollow = isinstance(source.get("additionalProperties"), bool) and not _keeps_unknown(source)
    struct.open = struct.hollow or _keeps_unknown(source)
    struct.atomic = source.get("x-kubernetes-map-type") == "atomic"
    return struct


def _bare(obj: Json) -> Json:
    return {key: value for key, value in obj.items() if key != "metadata"}


def _under(parent: str, field: str) -> str:
    if field == "<nil>" or not field:
        return field or parent
    return f"{parent}{field}" if field[0] in ".[" else f"{parent}.{field}"


def _without_metadata(source: Json) -> Json:
    """Metadata has rules of its own and is always there; schemas do not apply to it."""
    properties = {key: value for key, value in (source.get("properties") or {}).items() if key != "metadata"}
    required = [name for name in source.get("required") or () if name != "metadata"]
    return {**source, "properties": properties, "required": required}


def _default(source: Json, value: Any, root: bool = False) -> None:
    if isinstance(value, dict):
        properties = source.get("properties") or {}
        for name, inner in properties.items():
            if root and name in _META:
                continue
            if name in value and value[name] is None and not inner.get("nullable"):
                del value[name]
            if name not in value and "default" in inner:
                value[name] = copied(inner["default"])
            if name in value:
                _default(inner, value[name])
        rest = source.get("additionalProperties")
        if isinstance(rest, dict):
            for name, inner in value.items():
                if name not in properties:
                    if inner is None and not rest.get("nullable") and "default" in rest:
                        value[name] = copied(rest["default"])
                    _default(rest, value[name])
    elif isinstance(value, list) and isinstance(source.get("items"), dict):
        items = source["items"]
        for index, inner in enumerate(value):
            if inner is None and not items.get("nullable") and "default" in items:
                value[index] = copied(items["default"])
            _default(items, value[index])


def _drop_nulls(source: Json, value: Any, root: bool = False) -> None:
    if isinstance(value, dict):
        properties, rest = source.get("properties") or {}, source.get("additionalProperties")
        for name in list(value):
            inner = properties.get(name, rest)
            if not isinstance(inner, dict) or (root and name in _META):
                continue
            if value[name] is None and not inner.get("nullable") and inner.get("default") is None:
                if name in properties:
                    del value[name]
            else:
                _drop_nulls(inner, value[name])
    elif isinstance(value, list) and isinstance(source.get("items"), dict):
        for inner in value:
            _drop_nulls(source["items"], inner)


_META: Final = frozenset({"apiVersion", "kind", "metadata"})


def _pruned(source: Json | None, value: Any) -> Any:
    """A value without unknown fields; an object without a schema is emptied."""
    if isinstance(value, dict):
        if source is None:
            return {}
        properties, rest = source.get("properties") or {}, source.get("additionalProperties")
        made: Json = {}
        for name, inner in value.items():
            if name in _META and _is_embedded(source):
                made[name] = inner
            elif name in properties:
                made[name] = _pruned(properties[name], inner)
            elif rest is not None:
                made[name] = _pruned(rest if isinstance(rest, dict) else None, inner)
            elif _keeps_unknown(source):
                made[name] = inner
        return made
    if isinstance(value, list):
        items = None if source is None else source.get("items")
        if source is not None and _keeps_unknown(source):
            if items is None:
                return value
            items = {**items, "x-kubernetes-preserve-unknown-fields": True}
        return [_pruned(items, inner) for inner in value]
    return value


_VERSION = re.compile(r"v([1-9]\d*)(?:(alpha|beta)([1-9]\d*))?")


def version_rank(version: str) -> tuple[int, int, int, tuple[int, ...]]:
    """v2 above v1 above v1beta1 above v1alpha1 above all other names, of which the first in the alphabet is highest."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return (0, 0, 0, (*(-ord(character) for character in version), 1))
    stage = {None: 3, "beta": 2, "alpha": 1}[found[2]]
    return (stage, int(found[1]), int(found[3] or 0), ())


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _accessor_problem(obj: Json, path: str, expected: type, word: str) -> tuple[Any, str]:
    """The value at a path, or why it is not of the type that is expected there."""
    here: Any = obj
    walked: list[str] = []
    for step in path.lstrip(".").split("."):
        if here is None:
            return None, ""
        if not isinstance(here, dict):
            message = f"{go_text(here)} is of the type {go_type(here)}, expected map[string]interface{{}}"
            return None, f".{'.'.join([*walked, step])} accessor error: {message}"
        walked.append(step)
        if step not in here:
            return None, ""
        here = here[step]
    if type(here) is expected:
        return here, ""
    return None, f"{path} accessor error: {go_text(here)} is of the type {go_type(here)}, expected {word}"


# --- JSONPath ---------------------------------------------------------------------------------------------------

_NAME = re.compile(r"\.((?:\\.|[^.\[\]\\])+)")
_FILTER = re.compile(r"\[\?\(@\.([\w./-]+)\s*==\s*['\"]([^'\"]*)['\"]\)\]")


def read_path(obj: Any, path: str) -> Any:
    """The first value that a simple JSONPath finds, or None: fields, indexes, `[*]`, and a filter by equality
    (`.spec.replicas`, `.status.conditions[0].type`, `[?(@.type=="Ready")]`)."""
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    found: list[Any] = [obj]
    at = 0
    while at < len(text):
        choice = _FILTER.match(text, at)
        if choice is not None:
            found = [
                item
                for each in found
                if isinstance(each, list)
                for item in each
                if isinstance(item, dict) and str(read_path(item, f".{choice[1]}")) == choice[2]
            ]
            at = choice.end()
            continue
        # A dot in a name is written \. in a path.
        step = _NAME.match(text, at) or _STEP.match(text, at)
        if step is None:
            return None
        name = (step[1] or (step[2] if step.re is _STEP else "") or "").replace("\\.", ".")
        index = step[3] if step.re is _STEP else None
        if index is not None:
            found = [item for each in found if isinstance(each, list) for item in _picked(each, index)]
        else:
            found = [each[name] for each in found if isinstance(each, dict) and name in each]
        at = step.end()
    return found[0] if found else None


def set_path(obj: Json, path: str, value: Any) -> None:
    """Sets the value at a path of plain fields; missing parents are created."""
    *parents, last = [step for step in path.split(".") if step]
    for step in parents:
        obj = obj.setdefault(step, {})
    obj[last] = value


def _picked(items: list[Any], index: str) -> list[Any]:
    if index == "*":
        return items
    return items[int(index) : int(index) + 1]
