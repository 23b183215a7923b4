"""OpenAPI v2 from the v3 documents, for clients that still read it."""

import re
from collections.abc import Iterable
from typing import Any

from fairlead.apiserver.request import media_types

Json = dict[str, Any]

_JSON = [media_types.JSON, media_types.YAML]
_ACTIONS = {"get": "get", "post": "post", "put": "put", "patch": "patch", "delete": "delete"}
# Of several types in v3; v2 allows one.
_NAMED: Json = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": "string", "format": "int-or-string"},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string"},
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": {"type": "object"},
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": {"type": "string", "format": "date-time"},
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": {"type": "string", "format": "date-time"},
}
_CONNECTED = ("/attach", "/exec", "/portforward", "/proxy")
_DEFINITIONS = "#/definitions/"


def document(version: str, documents: Iterable[Json]) -> Json:
    """One document of all that is served; `documents` are those of v3, by group and version."""
    paths: Json = {}
    definitions: Json = {}
    for each in documents:
        for name, schema in each["components"]["schemas"].items():
            definitions[name] = _NAMED.get(name) or _schema(schema)
        for path, item in each["paths"].items():
            paths[path] = _path(path, item)
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": version},
        "paths": dict(sorted(paths.items())),
        "definitions": dict(sorted(definitions.items())),
        "securityDefinitions": {"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}},
        "security": [{"BearerToken": []}],
    }


def _schema(schema: Json) -> Json:
    """Without defaults, and with references that stand alone."""
    references = schema.get("allOf")
    if references and len(references) == 1 and "$ref" in references[0]:
        # Beside a reference only what merging needs is kept.
        kept = {key: value for key, value in schema.items() if key.startswith("x-kubernetes-")}
        return {**kept, "$ref": _reference(references[0]["$ref"])}
    made: Json = {}
    for key, value in schema.items():
        match key:
            case "$ref":
                made[key] = _reference(value)
            case "properties":
                made[key] = {name: _schema(inner) for name, inner in value.items()}
            case "items" | "additionalProperties" | "not" if isinstance(value, dict):
                made[key] = _schema(value)
            case "allOf":
                made[key] = [_schema(each) for each in value]
            case "default" | "oneOf" | "anyOf" | "nullable":
                pass  # unknown to v2, or left out of it by Kubernetes
            case _:
                made[key] = value
    return made


def _reference(reference: str) -> str:
    return _DEFINITIONS + reference.rpartition("/")[2]


def _path(path: str, item: Json) -> Json:
    made: Json = {}
    if "parameters" in item:
        made["parameters"] = [_parameter(each) for each in item["parameters"]]
    for method, operation in item.items():
        if method in _ACTIONS:
            made[method] = _operation(path, method, operation)
    return made


def _parameter(parameter: Json) -> Json:
    return {**{key: value for key, value in parameter.items() if key != "schema"}, **_schema(parameter["schema"])}


def _operation(path: str, method: str, operation: Json) -> Json:
    is_collection = re.search(r"\{name\}", path) is None
    action = {"get": "list", "delete": "deletecollection"}.get(method) if is_collection else None
    action = "connect" if path.endswith(_CONNECTED) else action
    sent = operation.get("requestBody", {}).get("content", {})
    made: Json = {
        "consumes": [each for each in media_types.PATCHES if each in sent] if method == "patch" else ["*/*"],
        "produces": _JSON,
        "schemes": ["https"],
        "parameters": [_parameter(each) for each in operation.get("parameters", ())],
        "responses": {"200": {"description": "OK"}, "401": {"description": "Unauthorized"}},
        "x-kubernetes-action": action or _ACTIONS[method],
        "x-kubernetes-group-version-kind": operation["x-kubernetes-group-version-kind"],
    }
    answered = operation["responses"]["200"]["content"].get("application/json", {}).get("schema")
    if answered is not None:
        made["responses"]["200"]["schema"] = _schema(answered)
    if "requestBody" in operation:
        content = sent.get("application/json", {})
        body = {"name": "body", "in": "body", "required": True, "schema": _schema(content.get("schema", {}))}
        made["parameters"] = [body, *made["parameters"]]
    return made
