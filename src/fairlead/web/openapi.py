"""The OpenAPI 3.1 document, generated from the route table and the structs of its routes."""

import re
from typing import Any

import msgspec

from fairlead import __version__
from fairlead.web.problems import Failure
from fairlead.web.routes import Answer, Call, Route, RouteTable

REFERENCE = "#/components/schemas/{name}"
FAILURES = {
    "400": "The body is not JSON.",
    "401": "No token, or one that the cluster does not accept.",
    "403": "The cluster's roles do not allow it.",
    "404": "Not found, or the caller may not read it.",
    "413": "The body is too large.",
    "422": "Invalid; `errors` has the fields and the reasons.",
    "429": "Too many requests; wait for `Retry-After`.",
    "503": "Temporarily unavailable; wait for `Retry-After`.",
}


def document(table: RouteTable) -> dict[str, Any]:
    shown = [route for route in table if not route.hidden]
    structs = [Failure, *(route.takes for route in shown if route.takes)]
    structs += [struct for route in shown for struct in route.gives.values()]
    _, schemas = msgspec.json.schema_components(structs, ref_template=REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for route in shown:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Fairlead",
            "version": __version__,
            "description": "A scheduling control plane for Kubernetes. The cluster authenticates callers, and its "
            "roles authorize them.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token that the Kubernetes cluster accepts.",
                }
            },
        },
    }


def document_route(table: RouteTable) -> Route:
    async def handle(_: Call) -> Answer:
        return Answer(document(table))

    return Route("GET", "/openapi.json", handle, "This API, for programs", public=True, hidden=True)


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {"operationId": _operation_id(route), "summary": route.summary}
    description = " ".join(part for part in (route.description, _audience(route)) if part)
    if description:
        operation["description"] = description
    if route.public:
        operation["security"] = []
    names = re.findall(r"\{(\w+)\}", route.path)
    parameters = [_parameter("path", name, route.parameters.get(name, ""), required=True) for name in names]
    parameters += [_parameter("query", name, meaning) for name, meaning in route.query.items()]
    parameters += [_parameter("header", name, meaning) for name, meaning in route.headers.items()]
    if parameters:
        operation["parameters"] = parameters
    if route.takes is not None:
        content: dict[str, Any] = {"schema": _reference(route.takes)}
        if route.example is not None:
            content["example"] = route.example
        operation["requestBody"] = {"required": True, "content": {"application/json": content}}
    failure = {"application/json": {"schema": _reference(Failure)}}
    answers: dict[str, Any] = {
        str(status): {
            "description": _first_line(struct),
            "content": {"application/json": {"schema": _reference(struct)}},
        }
        for status, struct in route.gives.items()
    }
    strangers = ("401", "403") if route.public else ()
    bodiless = () if route.takes is not None else ("400", "413")
    expected = [code for code in FAILURES if code not in strangers and code not in bodiless]
    answers |= {code: {"description": FAILURES[code], "content": failure} for code in expected if code not in answers}
    operation["responses"] = answers
    return operation


def _audience(route: Route) -> str:
    names = " or ".join(f"`{each}`" for each in route.audiences)
    return f"The token must be issued for the audience {names}." if names else ""


def _operation_id(route: Route) -> str:
    words = re.findall(r"\w+", route.path)
    return route.method.lower() + "".join(word[:1].upper() + word[1:] for word in words)


def _parameter(where: str, name: str, meaning: str, *, required: bool = False) -> dict[str, Any]:
    parameter: dict[str, Any] = {"name": name, "in": where, "required": required, "schema": {"type": "string"}}
    return {**parameter, "description": meaning} if meaning else parameter


def _reference(struct: type) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([struct], ref_template=REFERENCE)
    return dict(schema)


def _first_line(struct: type) -> str:
    return (struct.__doc__ or struct.__name__).strip().partition("\n")[0]
