"""The kind as it is shipped is the kind the code knows."""

from pathlib import Path

import yaml

from fairlead.placement.requests.__main__ import text
from fairlead.placement.requests.spec import definition
from tests.house.rules import ROOT

SHIPPED = Path(ROOT) / "deploy" / "crds" / "schedulerequests.yaml"


def test_the_shipped_definition_is_the_codes_own() -> None:
    assert SHIPPED.read_text() == text(), "python -m fairlead.placement.requests > deploy/crds/schedulerequests.yaml"


def test_it_shows_how_far_a_request_is() -> None:
    version = definition()["spec"]["versions"][0]
    names = [column["name"].upper() for column in version["additionalPrinterColumns"]]
    assert names == ["PHASE", "ITEMS", "ADDED", "REMOVED", "AGE"]
    assert version["subresources"] == {"status": {}}


def test_no_part_of_it_is_open_but_the_planned_pod() -> None:
    schema = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert list(open_parts(schema, "")) == [".status.items[].planned"]
    assert yaml.safe_load(SHIPPED.read_text())["kind"] == "CustomResourceDefinition"


def open_parts(schema: dict[str, object], path: str):  # type: ignore[no-untyped-def]
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        yield path
    properties, items = schema.get("properties"), schema.get("items")
    if isinstance(properties, dict):
        for name, each in properties.items():
            yield from open_parts(each, f"{path}.{name}")
    if isinstance(items, dict):
        yield from open_parts(items, f"{path}[]")
