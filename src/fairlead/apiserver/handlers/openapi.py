"""The pages that describe what is served: OpenAPI by group and version, and all of it in the older form."""

import msgspec

from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.registry.rest import Rest
from fairlead.apiserver.schema import openapi2
from fairlead.apiserver.schema.facts import load


class Schemas:
    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._kept: dict[tuple[str, str], bytes] = {}

    def _versions(self) -> list[tuple[str, str]]:
        return sorted({(each.group, each.version) for each in self._rest.resources})

    def index(self) -> JsonObject:
        paths = {}
        for group, version in self._versions():
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={self._rest.store.revision:X}"}
        return {"paths": paths}

    def document(self, group: str, version: str) -> bytes:
        known = self._kept.get((group, version))
        if known is None:
            known = msgspec.json.encode(self._of(group, version))
            if not any(each.custom for each in self._rest.resources if (each.group, each.version) == (group, version)):
                self._kept[group, version] = known
        return known

    def _of(self, group: str, version: str) -> JsonObject:
        custom = [
            each.custom.openapi(version)
            for each in self._rest.resources
            if each.custom is not None and (each.group, each.version) == (group, version)
        ]
        if not custom:
            return explainable(load().openapi_v3(group, version))
        paths: JsonObject = {}
        schemas: JsonObject = {}
        for document in custom:
            paths |= document["paths"]
            schemas |= document["components"]["schemas"]
        about = {"title": "Kubernetes", "version": version}
        return {"openapi": "3.0.0", "info": about, "paths": paths, "components": {"schemas": schemas}}

    def older(self) -> bytes:
        """All that is served, in OpenAPI v2."""
        major, minor, *_ = load().kubernetes.split(".")
        made = openapi2.document(f"{major}.{minor}", (self._of(*each) for each in self._versions()))
        return msgspec.json.encode(made)


_NAMED: dict[str, JsonObject] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {
        "format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": {"type": "object"},
}  # fmt: skip


def explainable(document: JsonObject) -> JsonObject:
    """With names for the types that are more than one, as `kubectl explain` shows them."""
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        for name, place in (schema.get("properties") or {}).items():
            schema["properties"][name] = _named(place)
            for inner in ("items", "additionalProperties"):
                if isinstance(place.get(inner), dict):
                    place[inner] = _named(place[inner])
    schemas |= _NAMED
    return document


def _named(place: JsonObject) -> JsonObject:
    schema = {key: value for key, value in place.items() if key in ("format", "oneOf")}
    for name, schema_part in _NAMED.items():
        if schema == schema_part if place else "FieldsV1" in name:
            rest = {key: value for key, value in place.items() if key not in schema}
            return {"allOf": [{"$ref": f"#/components/schemas/{name}"}], **rest}
    return place
