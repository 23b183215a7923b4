"""The document programs read and the page people read, both made from the routes."""

import json

import msgspec

from fairlead.web.openapi import document
from fairlead.web.page import page
from fairlead.web.routes import Answer, Call, Route, RouteTable
from tests.web.conftest import Api


class Wish(msgspec.Struct, rename="camel"):
    """What is wished for."""

    how_many: int
    of_what: str = ""


class Granted(msgspec.Struct):
    """It will be."""

    when: str


async def handle(_: Call) -> Answer:
    return Answer(Granted("soon"))


def a_table() -> RouteTable:
    table = RouteTable()
    table.add(
        Route(
            "POST",
            "/wishes/{kind}",
            handle,
            "Wish for <something>",
            description="Be `careful` & brief.",
            takes=Wish,
            gives={202: Granted},
            parameters={"kind": "what kind"},
            headers={"Idempotency-Key": "the same wish again"},
            query={"loud": "shout"},
            example={"howMany": 3},
            changes=True,
        ),
        Route("GET", "/open", handle, "Open to all", gives={200: Granted}, public=True),
    )
    return table


def test_a_route_is_told_with_what_it_takes_and_gives() -> None:
    told = document(a_table())
    wish = told["paths"]["/wishes/{kind}"]["post"]
    assert wish["operationId"] == "postWishesKind"
    assert wish["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Wish"}
    assert [(each["in"], each["name"], each["required"]) for each in wish["parameters"]] == [
        ("path", "kind", True),
        ("query", "loud", False),
        ("header", "Idempotency-Key", False),
    ]
    assert wish["responses"]["202"]["description"] == "It will be."
    assert wish["responses"]["422"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Failure"}
    assert set(told["components"]["schemas"]) == {"Wish", "Granted", "Failure", "FieldProblem"}
    assert set(told["components"]["schemas"]["Wish"]["properties"]) == {"howMany", "ofWhat"}
    assert told["security"] == [{"token": []}]
    assert told["paths"]["/open"]["get"]["security"] == []
    assert "401" not in told["paths"]["/open"]["get"]["responses"]


def test_the_audience_of_a_route_is_told() -> None:
    async def handle(_: Call) -> Answer:
        return Answer({})

    table = RouteTable()
    table.add(Route("GET", "/agents", handle, "For agents", description="Tells work.", audiences=("agents", "tools")))
    told = document(table)["paths"]["/agents"]["get"]["description"]
    assert told == "Tells work. The token must be issued for the audience `agents` or `tools`."


def test_every_reference_leads_somewhere() -> None:
    told = document(a_table())
    text = json.dumps(told)
    named = {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert named <= set(told["components"]["schemas"])


def test_the_page_shows_the_same_and_loads_nothing() -> None:
    text = page(a_table()).decode()
    assert "Wish for &lt;something&gt;" in text
    assert "Be <code>careful</code> &amp; brief." in text
    assert '<a href="#Granted">Granted</a>' in text
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")


async def test_both_are_served_to_anybody(api: Api) -> None:
    told = await api.ask("GET", "/openapi.json", None)
    assert (told.status, told.body["openapi"]) == (200, "3.1.0")
    told = await api.ask("GET", "/docs", None)
    assert (told.status, told.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in told.headers["Content-Security-Policy"]


async def test_the_address_alone_leads_to_the_page(api: Api) -> None:
    async with api.http.get(f"{api.url}/", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (302, "/docs")
    told = await api.ask("GET", "/", None)
    assert (told.status, told.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
