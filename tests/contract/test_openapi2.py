"""OpenAPI v2, which older clients ask for: the same kinds, fields, types and operations as on the real server."""

from typing import Any

import pytest

from tests.contract.servers import Contestant

Json = dict[str, Any]
# Told by the real server and by nobody needed: which words a text in a list may be, and which fields exclude others.
UNTOLD = ("description", "enum", "x-kubernetes-unions")
# Types the facts hold as what they are, not as a reference to a name for it.
SCALARS = ("v1.Time", "v1.MicroTime", "Quantity", "IntOrString", "FieldsV1", "RawExtension", "v1.JSON", "Duration")


def document(server: Contestant) -> Json:
    headers = {"Authorization": f"Bearer {server.tokens['admin']}", "Accept": "application/json"}
    answer = server.ask("GET", "/openapi/v2", headers=headers)
    server.hang_up()
    assert answer.status == 200
    made: Json = answer.json()
    return made


@pytest.fixture(scope="module")
def documents(the_real: Contestant, the_embedded: Contestant) -> tuple[Json, Json]:
    return document(the_real), document(the_embedded)


def shape(schema: Any, definitions: Json) -> Any:
    if isinstance(schema, list):
        return [shape(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref", "").rpartition("/")[2]
    if reference.endswith(SCALARS) or "JSONSchemaPropsOr" in reference:
        return "scalar"
    if schema.get("format") in ("date-time", "int-or-string") or schema in ({}, {"type": "object"}):
        return "scalar"
    return {key: shape(value, definitions) for key, value in schema.items() if key not in UNTOLD}


def test_every_kind_has_the_same_fields_of_the_same_types(documents: tuple[Json, Json]) -> None:
    real, ours = (each["definitions"] for each in documents)
    assert len(ours) > 400
    found: list[Any] = []
    for name, mine in ours.items():
        theirs = real[name]
        found += [
            (name, key, theirs.get(key), mine.get(key))
            for key in ("type", "required")
            if theirs.get(key) != mine.get(key)
        ]
        # Kinds that are part of every group stand in groups there that are not served here.
        known = theirs.get("x-kubernetes-group-version-kind") or []
        found += [
            (name, kind, "unknown") for kind in mine.get("x-kubernetes-group-version-kind") or () if kind not in known
        ]
        fields, told = theirs.get("properties") or {}, mine.get("properties") or {}
        if "JSONSchemaProps" in name:
            assert fields.keys() == told.keys()
            continue
        for field in fields.keys() | told.keys():
            pair = [shape(each.get(field), all_) for each, all_ in ((fields, real), (told, ours))]
            if pair[0] != pair[1]:
                found.append((name, field, *pair))
    assert found == []


def test_every_path_has_the_same_operations(documents: tuple[Json, Json]) -> None:
    real, ours = (each["paths"] for each in documents)
    assert len(ours) > 140
    found: list[Any] = []
    for path, mine in ours.items():
        for method in (mine.keys() | real[path].keys()) - {"parameters", "head", "options"}:
            told = [
                {
                    key: each.get(method, {}).get(key)
                    for key in ("x-kubernetes-action", "x-kubernetes-group-version-kind")
                }
                for each in (real[path], mine)
            ]
            if told[0] != told[1]:
                found.append((path, method, *told))
    assert found == []
