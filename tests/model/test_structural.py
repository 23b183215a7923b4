"""Structural schemas out of structs: what a definition may hold, and nothing else."""

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from fairlead.model.meta import ApiStruct
from fairlead.model.structural import structural_schema

Port = Annotated[int | str, Meta(description="a number or a name")]
Set = Annotated[tuple[str, ...], Meta(extra_json_schema={"x-kubernetes-list-type": "set"})]


class Inner(ApiStruct, frozen=True):
    """Inside."""

    default: int = 3


class Outer(ApiStruct, frozen=True):
    """Outside."""

    name: str
    port: Port = 80
    maybe: int | str | None = None
    names: Set = ()
    mode: Literal["a", "b"] = "a"
    inner: Inner = Inner()
    inners: tuple[Inner, ...] = ()
    count: Annotated[int, Meta(ge=1, le=9)] = 2


def test_defaults_are_written_where_wanted() -> None:
    found = structural_schema(Outer, defaults=True)["properties"]
    assert {name: each.get("default") for name, each in found.items()} == {
        "name": None, "port": 80, "maybe": None, "names": [], "mode": "a", "inner": {}, "inners": [], "count": 2,
    }  # fmt: skip
    assert found["inner"]["properties"]["default"] == {"type": "integer", "format": "int64", "default": 3}


def test_without_defaults_a_field_called_default_stays() -> None:
    found = structural_schema(Outer)["properties"]
    assert not any("default" in each for each in found.values())
    assert found["inners"]["items"]["properties"] == {"default": {"type": "integer", "format": "int64"}}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("port", {"description": "a number or a name", "x-kubernetes-int-or-string": True}),
        ("maybe", {"x-kubernetes-int-or-string": True, "nullable": True}),
        ("names", {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
        ("mode", {"enum": ["a", "b"], "type": "string"}),
        ("count", {"type": "integer", "format": "int64", "minimum": 1, "maximum": 9}),
    ],
)
def test_what_a_field_becomes(name: str, wanted: dict[str, Any]) -> None:
    assert structural_schema(Outer)["properties"][name] == wanted


def test_another_union_is_a_mistake_in_the_struct() -> None:
    class Odd(msgspec.Struct):
        value: int | dict[str, int]

    with pytest.raises(ValueError, match="too many values"):
        structural_schema(Odd)
