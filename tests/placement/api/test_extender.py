"""The extender on a socket: always 200 for filter, statuses for the others, names of certificates."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from fairlead.placement.api.extender import Extender, extending
from fairlead.settings import BadSettings, ExtenderSettings, TlsSettings, load
from fairlead.testing.builders import a_node
from fairlead.testing.clock import ManualClock, settle
from fairlead.web.probes import served
from tests.placement.test_loop import NAME, Server, looping

POD = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [{"name": "c"}]}}
Ask = Any


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with looping() as (server, _):
        yield server


@pytest.fixture
async def ask(server: Server) -> AsyncIterator[Ask]:
    registry = CollectorRegistry()
    extender = Extender(server.loop, clock=ManualClock(), registry=registry)
    async with served(extender.routes(), "127.0.0.1", 0) as (host, port), aiohttp.ClientSession() as http:

        async def asking(verb: str, body: Any, raw: bytes | None = None) -> tuple[int, Any]:
            sent = {"data": raw} if raw is not None else {"json": body}
            async with http.post(f"http://{host}:{port}/extender/{verb}", **sent) as answer:
                return answer.status, await answer.json()

        asking.registry = registry  # type: ignore[attr-defined]
        yield asking


async def test_filter_answers_in_gos_spelling(ask: Ask, server: Server) -> None:
    server.put(a_node("cordoned", unschedulable=True))
    await settle()
    status, told = await ask("filter", {"Pod": POD, "NodeNames": ["n1", "cordoned", "new"]})
    assert status == 200
    assert told == {
        "NodeNames": ["n1"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {
            "cordoned": "node(s) were unschedulable",
            "new": "node(s) not known to Fairlead yet",
        },
        "Error": "",
    }


async def test_nodes_that_were_sent_come_back_as_they_were(ask: Ask) -> None:
    new = {"metadata": {"name": "new", "labels": {"a": "b"}}, "status": {"allocatable": {"cpu": "4", "pods": "9"}}}
    tiny = {"metadata": {"name": "tiny"}, "status": {"allocatable": {"cpu": "4", "pods": "0"}}}
    status, told = await ask("filter", {"Pod": POD, "Nodes": {"items": [new, tiny]}})
    assert (status, told["Nodes"]["items"], told["Error"]) == (200, [new], "")
    assert told["FailedNodes"] == {"tiny": "Too many pods"}


async def test_what_is_wrong_is_an_error_in_the_verbs_own_way(ask: Ask) -> None:
    status, told = await ask("filter", {"Pod": POD})
    assert (status, told) == (200, {"Error": "set either Nodes or NodeNames"})
    assert (await ask("filter?profile=none", {"Pod": POD, "NodeNames": ["n1"]}))[1]["Error"].startswith("profile: ")
    assert (await ask(f"filter?profile={NAME}", {"Pod": POD, "NodeNames": ["n1"]}))[1]["NodeNames"] == ["n1"]
    for verb in ("prioritize", "preempt"):
        status, told = await ask(verb, None, raw=b"{")
        assert (status, told["isSucceed"]) == (400, False)
    value = ask.registry.get_sample_value
    assert value("fairlead_extender_requests_total", {"verb": "filter", "result": "error"}) == 2
    assert value("fairlead_extender_requests_total", {"verb": "preempt", "result": "error"}) == 1


LOTS = {**POD, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "lots"}}}]}}
BIG = {"metadata": {"name": "big"}, "status": {"allocatable": {"cpu": "x"}}}


@pytest.mark.parametrize(
    ("verb", "asked", "told"),
    [
        ("filter", {"Pod": LOTS, "NodeNames": ["n1"]}, "'lots' is not a quantity"),
        ("filter", {"Pod": POD, "Nodes": {"items": [BIG]}}, "'x' is not a quantity"),
        ("filter", {"Pod": POD, "Nodes": {"items": [{"metadata": {}}]}}, "each with its metadata.name"),
        ("filter", {"Pod": POD, "Nodes": {"items": 3}}, "each with its metadata.name"),
        ("prioritize", {"Pod": LOTS, "NodeNames": ["n1"]}, "'lots' is not a quantity"),
        ("preempt", {"Pod": POD, "NodeNameToMetaVictims": {"n1": {"Pods": 3}}}, "Pods must be a list"),
        ("preempt", {"Pod": POD, "NodeNameToMetaVictims": {"n1": {"NumPDBViolations": "x"}}}, "Pods must be a list"),
        ("preempt", {"Pod": POD, "NodeNameToVictims": {"n1": {"Pods": [{"metadata": "x"}]}}}, "its UID is missing"),
        ("preempt", {"Pod": POD, "NodeNameToVictims": {"n1": None}}, "victims on n1: must be an object"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_strange_questions_are_no_bugs_of_ours(ask: Ask, verb: str, asked: Any, told: str) -> None:
    status, answer = await ask(verb, asked)
    assert status == (200 if verb == "filter" else 400)
    assert told in (answer["Error"] if verb == "filter" else answer["message"])


async def test_a_body_without_a_bottom_is_no_json(ask: Ask) -> None:
    assert "not JSON" in (await ask("filter", None, b"[" * 100_000))[1]["Error"]


async def test_prioritize_and_preempt_answer(ask: Ask) -> None:
    status, told = await ask("prioritize", {"Pod": POD, "NodeNames": ["n1", "n2"]})
    assert (status, told) == (200, [{"Host": "n1", "Score": 0}, {"Host": "n2", "Score": 0}])
    victims = {"n1": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1}, "gone": {"Pods": [{"UID": "v"}]}}
    status, told = await ask("preempt", {"Pod": POD, "NodeNameToMetaVictims": victims})
    assert (status, told) == (200, {"NodeNameToMetaVictims": {"n1": victims["n1"]}})


async def test_without_an_address_nothing_listens(server: Server) -> None:
    settings, registry = ExtenderSettings(), CollectorRegistry()
    async with extending(server.loop, settings, TlsSettings(), clock=ManualClock(), registry=registry) as url:
        assert url == ""


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        pytest.param({"extender.listen": "0.0.0.0:8471"}, "extender.listen: must be a loopback", id="open to all"),
        pytest.param({"extender.listen": ":8471"}, "extender.listen: must be a loopback", id="every address"),
        pytest.param({"extender.listen": "127.0.0.1:99999"}, "extender.listen: must be host:port", id="no port"),
        pytest.param({"extender.clientCa": "ca.pem"}, "extender.clientCa: set tls.cert", id="no TLS"),
    ],
)
def test_an_extender_that_anybody_could_ask_is_refused(flags: dict[str, str], told: str) -> None:
    with pytest.raises(BadSettings, match=told):
        load(environment={}, flags=flags)


def test_loopback_needs_no_certificate_and_names_come_as_a_list() -> None:
    settings = load(environment={"FAIRLEAD_EXTENDER_CLIENT_NAMES": "a, b"}, flags={"extender.listen": "[::1]:0"})
    assert settings.extender.client_names == ("a", "b")
