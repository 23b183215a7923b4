"""The facts about Kubernetes' own kinds: which resources exist, which fields their types have.

`facts.json` is written by tests/rigs/kube/facts.py from the real server. Its keys, per field: `t` type (`string`,
`@core.v1.Pod` a struct, `[]…` a list, `{}…` a map), `g` Go's name of it where `t` does not tell, `f` flags (p pointer,
o omitempty, z omitzero), `b` protobuf's numbers (more than one where a struct is inlined), `i` the inlined struct
it comes from, `e` enum, `d` default
where `t` does not tell, `l` list type, `k` list map keys, `m` map type, `mk` patch merge key, `ps` patch strategy.
"""

import json
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

Json = dict[str, Any]
GroupVersionKind = tuple[str, str, str]

_SCALAR_SCHEMAS: dict[str, Json] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "double": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "duration": {"type": "string"},
    "quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "intstr": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    "raw": {"type": "object"},
    "any": {},
    "schema_or_array": {},
    "schema_or_bool": {},
    "schema_or_strings": {},
}
_ZERO: Json = {"string": "", "int32": 0, "int64": 0, "bool": False, "double": 0.0}
_LONG_NAMES = {
    "meta.": "io.k8s.apimachinery.pkg.apis.",
    "apiextensions.": "io.k8s.apiextensions-apiserver.pkg.apis.",
    "apiregistration.": "io.k8s.kube-aggregator.pkg.apis.",
}
_REF = "#/components/schemas/"


@dataclass(frozen=True, slots=True)
class Subresource:
    name: str
    group: str
    version: str
    kind: str
    verbs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Resource:
    """A served resource. A subresource's group and version are its resource's own unless its kind lives elsewhere."""

    group: str
    version: str
    plural: str
    kind: str
    singular: str
    namespaced: bool
    verbs: tuple[str, ...]
    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    subresources: tuple[Subresource, ...]

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """`/api/v1` or `/apis/<group>/<version>`."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def subresource(self, name: str) -> Subresource | None:
        return next((sub for sub in self.subresources if sub.name == name), None)


class Facts:
    """The parsed file."""

    def __init__(self, document: Json) -> None:
        self.kubernetes: str = document["kubernetes"]
        self.types: dict[str, Json] = document["types"]
        self.resources: tuple[Resource, ...] = tuple(_resource(entry) for entry in document["resources"])
        self._names: dict[GroupVersionKind, str] = {
            tuple(kind): name for name, entry in self.types.items() for kind in entry.get("kinds", ())
        }

    @cached_property
    def by_kind(self) -> dict[GroupVersionKind, Resource]:
        """Resources by their kind; where two share a kind, the first wins."""
        found: dict[GroupVersionKind, Resource] = {}
        for resource in self.resources:
            found.setdefault((resource.group, resource.version, resource.kind), resource)
        return found

    def type_name(self, group: str, version: str, kind: str) -> str | None:
        """`core.v1.Pod` for a pod; None where no such type is known."""
        return self._names.get((group, version, kind))

    def openapi_v3(self, group: str, version: str) -> Json:
        """An OpenAPI v3 document of one group version, without descriptions: enough for kubectl."""
        resources = [r for r in self.resources if (r.group, r.version) == (group, version)]
        paths: Json = {}
        names: list[str] = []
        for resource in resources:
            names += self._kind_names(resource)
            kind = self._names.get((group, version, resource.kind))
            paths.update(resource_paths(resource, None if kind is None else long_name(kind)))
        schemas: Json = {}
        while names:
            name = names.pop()
            if long_name(name) not in schemas:
                schemas[long_name(name)] = self._schema(name)
                names += _references(self.types[name])
        return {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": f"v{self.kubernetes}"},
            "paths": dict(sorted(paths.items())),
            "components": {"schemas": dict(sorted(schemas.items()))},
        }

    def _kind_names(self, resource: Resource) -> list[str]:
        kinds = [(resource.group, resource.version, resource.kind), ("", "v1", "DeleteOptions"), ("", "v1", "Status")]
        kinds.append((resource.group, resource.version, f"{resource.kind}List"))
        kinds += [(sub.group, sub.version, sub.kind) for sub in resource.subresources]
        return [name for kind in kinds if (name := self._names.get(kind)) is not None]

    def _schema(self, name: str) -> Json:
        entry = self.types[name]
        kinds = [{"group": g, "kind": k, "version": v} for g, v, k in entry.get("kinds", ())]
        return {
            "type": "object",
            **({"required": entry["required"]} if "required" in entry else {}),
            "properties": {field: _property(facts) for field, facts in entry["fields"].items()},
            **({"x-kubernetes-map-type": entry["map"]} if "map" in entry else {}),
            **({"x-kubernetes-group-version-kind": kinds} if kinds else {}),
        }


@cache
def load() -> Facts:
    return Facts(json.loads(files("fairlead.apiserver.schema").joinpath("facts.json").read_bytes()))


def long_name(name: str) -> str:
    """`core.v1.Pod` as OpenAPI calls it: `io.k8s.api.core.v1.Pod`."""
    for prefix, long in _LONG_NAMES.items():
        if name.startswith(prefix):
            return long + name
    return f"io.k8s.api.{name}"


PATCHES = ("apply-patch+yaml", "json-patch+json", "merge-patch+json", "strategic-merge-patch+json")


def resource_paths(resource: Resource, schema: str | None, patches: tuple[str, ...] = PATCHES) -> Json:
    """The OpenAPI paths of a resource and its subresources; `schema` names the component of its kind.

    Clients choose how to patch by the `patches` that are listed here.
    """
    parent = f"{resource.path}/namespaces/{{namespace}}" if resource.namespaced else resource.path
    collection = f"{parent}/{resource.plural}"
    kind = (resource.group, resource.version, resource.kind)
    paths: Json = {}
    verbs = {"list": "get", "create": "post", "deletecollection": "delete"}
    _add_path(paths, collection, [m for v, m in verbs.items() if v in resource.verbs], kind, schema, patches)
    verbs = {"get": "get", "update": "put", "delete": "delete", "patch": "patch"}
    one = f"{collection}/{{name}}"
    _add_path(paths, one, [m for v, m in verbs.items() if v in resource.verbs], kind, schema, patches)
    for sub in resource.subresources:
        methods = [m for v, m in {**verbs, "create": "post"}.items() if v in sub.verbs]
        _add_path(paths, f"{one}/{sub.name}", methods, (sub.group, sub.version, sub.kind), None, patches)
    return paths


def _add_path(
    paths: Json, path: str, methods: list[str], kind: GroupVersionKind, schema: str | None, patches: tuple[str, ...]
) -> None:
    if not methods:
        return
    group, version, name = kind
    parameters = [
        {"name": part, "in": "path", "required": True, "schema": {"type": "string", "uniqueItems": True}}
        for part in ("name", "namespace")
        if f"{{{part}}}" in path
    ]
    content = {"application/json": {"schema": {"$ref": f"{_REF}{schema}"}}} if schema else {"application/json": {}}
    entry: Json = {"parameters": parameters} if parameters else {}
    for method in methods:
        operation: Json = {
            "responses": {"200": {"description": "OK", "content": content}},
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": name},
        }
        if method in ("post", "put", "patch"):
            operation["parameters"] = [
                {"name": query, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
                for query in ("dryRun", "fieldManager", "fieldValidation")
            ]
            body = {f"application/{form}": {} for form in patches} if method == "patch" else content
            operation["requestBody"] = {"content": body, "required": True}
        entry[method] = operation
    paths[path] = entry


def _resource(entry: Json) -> Resource:
    return Resource(
        group=entry["group"],
        version=entry["version"],
        plural=entry["plural"],
        kind=entry["kind"],
        singular=entry["singular"],
        namespaced=entry["scope"] == "Namespaced",
        verbs=tuple(entry["verbs"]),
        short_names=tuple(entry.get("short", ())),
        categories=tuple(entry.get("categories", ())),
        subresources=tuple(
            Subresource(
                name=sub["name"],
                group=sub.get("group", "" if "version" in sub else entry["group"]),
                version=sub.get("version", entry["version"]),
                kind=sub["kind"],
                verbs=tuple(sub["verbs"]),
            )
            for sub in entry.get("subresources", ())
        ),
    )


def _references(entry: Json) -> list[str]:
    forms = (facts["t"] for facts in entry["fields"].values())
    return [form.split("@")[1] for form in forms if "@" in form]


def _property(facts: Json) -> Json:
    schema = _form_schema(facts["t"])
    flags = facts.get("f", "")
    form: str = facts["t"]
    default: Any = facts.get("d")
    if default is None and "p" not in flags:
        if form.startswith("@"):
            default = {}
        elif "o" not in flags:
            default = _ZERO.get(form)
    extras = {
        "default": default,
        "enum": facts.get("e"),
        "x-kubernetes-list-type": facts.get("l"),
        "x-kubernetes-list-map-keys": facts.get("k"),
        "x-kubernetes-map-type": facts.get("m"),
        "x-kubernetes-patch-merge-key": facts.get("mk"),
        "x-kubernetes-patch-strategy": facts.get("ps"),
    }
    return {**schema, **{key: value for key, value in extras.items() if value is not None}}


def _form_schema(form: str) -> Json:
    if form.startswith("[]"):
        return {"type": "array", "items": _form_schema(form[2:])}
    if form.startswith("{}"):
        return {"type": "object", "additionalProperties": _form_schema(form[2:])}
    if form.startswith("@"):
        return {"allOf": [{"$ref": f"{_REF}{long_name(form[1:])}"}]}
    return dict(_SCALAR_SCHEMAS[form])
