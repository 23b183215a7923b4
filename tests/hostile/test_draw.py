"""What is drawn: the same for the same seed, of every kind that is mirrored, small enough to be sent, and odd."""

import asyncio
import json
import random
from collections import Counter
from typing import Any

import pytest

from fairlead import app
from fairlead.cluster.clock import RealClock
from fairlead.cluster.credentials import Fixed
from fairlead.cluster.kubeconfig import Connection
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirrors import Mirrors
from fairlead.model.kinds import Kind
from fairlead.runtime import lease_name, open_runtime
from fairlead.settings import Settings
from fairlead.web.routes import RouteTable
from tests.hostile.bases import BASES
from tests.hostile.draw import MOST_BYTES, Draw
from tests.hostile.kinds import LEFT_OUT, known_kinds, own_names


async def mirrored(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Every kind that a capability of `fairlead serve` asks a mirror of."""
    found: set[str] = set()
    mirror = Mirrors.get

    def noted(self: Mirrors, kind: Kind[Any], namespace: str = "", **more: Any) -> Any:
        found.add(kind.name)
        return mirror(self, kind, namespace, **more)

    monkeypatch.setattr(Mirrors, "get", noted)
    connection = Connection(server="http://127.0.0.1:1", credentials=Fixed({}), tls=None)
    async with open_runtime(
        Settings(),
        connection,
        clock=RealClock(),
        rng=random.random,
        metrics=Metrics(),
        stop=asyncio.Event(),
        routes=RouteTable(),
    ) as opener:
        for capability in app.CAPABILITIES.values():
            capability(await opener.under(lease_name(capability, Settings())))
    return found


async def test_every_kind_that_is_mirrored_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = await mirrored(monkeypatch)
    assert {"pods", "nodes", "schedulerequests.fairlead.io"} <= wanted
    assert wanted - known_kinds(of_placement=True).keys() - LEFT_OUT.keys() == set()


def test_every_kind_has_a_base_that_is_bent() -> None:
    assert known_kinds().keys() - BASES.keys() == set()


def test_our_own_names_are_found_in_the_code() -> None:
    assert {"fairlead.io/gpu-milli", "fairlead.io/gpu-devices", "fairlead.io/schedule-request"} <= set(own_names())


def drawn(seed: int, count: int) -> list[tuple[str, str]]:
    draw, kinds = Draw(random.Random(seed), own_names()), known_kinds()
    names = [draw.rng.choice(list(kinds)) for _ in range(count)]
    return [(name, json.dumps(draw.bent(BASES[name], draw.rng.choice(kinds[name]).struct))) for name in names]


def test_the_same_seed_draws_the_same() -> None:
    assert drawn(7, 20) == drawn(7, 20) != drawn(8, 20)


def test_what_is_drawn_can_be_sent_and_is_odd() -> None:
    found = drawn(3, 800)
    assert max(len(text) for _, text in found) <= MOST_BYTES
    assert max(len(text) for _, text in found) > 200_000, "some of it is huge"
    same = Counter(json.loads(text) == BASES[name] for name, text in found)
    assert same[False] > same[True]
    every = " ".join(text for _, text in found)
    for wanted in (
        "9" * 5000,
        "1e30",
        "NaN",
        "9223372036854775808",
        "fairlead.io/gpu-devices",
        "\\ud83e",
    ):
        assert wanted in every, f"{wanted[:20]} is never drawn"


def test_a_body_of_our_own_api_is_bent_too() -> None:
    draw = Draw(random.Random(1), own_names())
    base = {"podList": [{"operation": 1, "number": "1"}]}
    bent = [draw.odd(base) for _ in range(20)]
    assert base == {"podList": [{"operation": 1, "number": "1"}]}, "what it is bent from stays"
    assert sum(each != base for each in bent) > 10
