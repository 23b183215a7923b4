"""Installs under way: looked at together, less often where many bases are at work, and never lost sight of."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead.modules import arklet
from fairlead.modules.arklet import Answer, Outcome, outcome_of
from fairlead.modules.client import ArkletClient
from fairlead.modules.operations import CALLS_PER_S, FIRST_WAIT_S, MOST_OPERATION_S, QUIET_S, Operations, look_wait_s
from fairlead.modules.spec import ModuleState
from fairlead.testing.clock import ManualClock

BASE = ("127.0.0.1", 1)


@dataclass(slots=True)
class Arklet:
    """Says of each request what it was told, and has the modules it was told."""

    states: dict[str, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    calls: Counter[str] = field(default_factory=Counter)

    async def modules(self, address: tuple[str, int]) -> list[ModuleState]:
        self.calls["queryAllBiz"] += 1
        split = ((*key.split(":"), state) for key, state in self.states.items())
        return [ModuleState(name, version, state) for name, version, state in split]

    async def call(self, address: tuple[str, int], command: str, body: dict[str, Any]) -> Answer:
        self.calls[command] += 1
        key = body["requestId"]
        status = "FAILED" if key in self.failed else "SUCCEEDED" if key in self.states else "EXECUTING"
        return Answer(code=arklet.SUCCESS, data={"status": status})


@dataclass(slots=True)
class Rig:
    arklet: Arklet = field(default_factory=Arklet)
    clock: ManualClock = field(default_factory=ManualClock)
    operations: Operations = field(init=False)

    def __post_init__(self) -> None:
        self.operations = Operations(cast("ArkletClient", self.arklet), self.clock)

    def begin(self, key: str, node: str = "node") -> "asyncio.Task[tuple[Answer, list[ModuleState] | None]]":
        return asyncio.create_task(self.operations.wait(node, lambda: BASE, key, key))


@pytest.mark.parametrize(("waited_s", "wait_s"), [(0.0, 0.2), (4.0, 0.2), (10.0, 0.5), (20.0, 1.0), (500.0, 1.0)])
def test_an_install_that_takes_long_is_asked_about_less_often(waited_s: float, wait_s: float) -> None:
    assert look_wait_s(waited_s, 1) == pytest.approx(wait_s)


async def test_one_look_at_a_base_serves_every_install_there() -> None:
    rig = Rig()
    waits = [rig.begin(f"m{number}:1") for number in range(10)]
    await rig.clock.advance(1.0)
    rig.arklet.states = {f"m{number}:1": "activated" for number in range(10)}
    before = rig.arklet.calls.total()
    await rig.clock.advance(2.0)
    assert all(wait.done() for wait in waits)
    assert [outcome_of(arklet.INSTALL, wait.result()[0]) for wait in waits] == [Outcome.DONE] * 10
    assert rig.arklet.calls.total() - before <= 11


async def test_a_failed_install_is_told_from_those_that_go_on() -> None:
    rig = Rig()
    good, bad, slow = rig.begin("good:1"), rig.begin("bad:1"), rig.begin("slow:1")
    rig.arklet.states, rig.arklet.failed = {"good:1": "activated"}, {"bad:1"}
    await rig.clock.advance(3.0)
    assert outcome_of(arklet.INSTALL, good.result()[0]) is Outcome.DONE
    assert outcome_of(arklet.INSTALL, bad.result()[0]) is Outcome.BROKEN
    assert not slow.done()
    await rig.clock.advance(MOST_OPERATION_S + 5.0)
    assert slow.result()[0].problem == "the install does not end"


async def test_while_others_end_one_after_the_other_nobody_is_asked_about_a_single_install() -> None:
    rig = Rig()
    waits = [rig.begin(f"m{number}:1") for number in range(20)]
    for number in range(19):
        rig.arklet.states[f"m{number}:1"] = "activated"
        await rig.clock.advance(FIRST_WAIT_S)
    assert sum(wait.done() for wait in waits) == 19
    assert rig.arklet.calls["queryBizOps"] < 3 < rig.arklet.calls["queryAllBiz"]
    waits[19].cancel()
    await asyncio.gather(*waits, return_exceptions=True)


async def test_an_install_that_fails_among_many_that_succeed_is_told_within_half_a_minute() -> None:
    rig = Rig()
    rig.arklet.failed = {"bad:1"}
    bad = rig.begin("bad:1")
    waits = [rig.begin(f"m{number}:1") for number in range(400)]
    for number in range(400):
        if bad.done():
            break
        rig.arklet.states[f"m{number}:1"] = "activated"
        await rig.clock.advance(0.1)
    assert rig.clock.elapsed_s() <= QUIET_S + 2.0
    assert outcome_of(arklet.INSTALL, bad.result()[0]) is Outcome.BROKEN
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)


async def test_whoever_looks_may_be_cancelled_and_another_goes_on() -> None:
    rig = Rig()
    first, second = rig.begin("a:1"), rig.begin("b:1")
    await rig.clock.advance(0.1)
    first.cancel()
    rig.arklet.states = {"b:1": "activated"}
    await rig.clock.advance(1.0)
    assert outcome_of(arklet.INSTALL, second.result()[0]) is Outcome.DONE
    await asyncio.gather(first, return_exceptions=True)


async def test_many_bases_at_work_are_asked_less_often_each() -> None:
    rig = Rig()
    waits = [rig.begin(f"m{module}:1", f"n{number}") for number in range(200) for module in range(2)]
    await rig.clock.advance(10.0)
    assert 0.5 * CALLS_PER_S < rig.arklet.calls.total() / 10 <= 1.2 * CALLS_PER_S
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)


async def test_k70_a_hundred_bases_with_twenty_installs_each_are_seen_to_end_within_two_seconds() -> None:
    """Each base installs one module after the other; how late their ends are seen is what our waits add."""
    rig, late_s = Rig(), list[float]()
    arklets = {f"n{number}": Arklet() for number in range(100)}

    async def modules(address: tuple[str, int]) -> list[ModuleState]:
        return await arklets[address[0]].modules(address)

    async def call(address: tuple[str, int], command: str, body: dict[str, Any]) -> Answer:
        return await arklets[address[0]].call(address, command, body)

    several = SimpleNamespace(modules=modules, call=call)
    rig.operations = Operations(cast("ArkletClient", several), rig.clock)
    ended_s: dict[tuple[str, str], float] = {}

    async def install(node: str, key: str) -> None:
        await rig.operations.wait(node, lambda: (node, 1), key, key)
        late_s.append(rig.clock.elapsed_s() - ended_s[node, key])

    waits = [asyncio.create_task(install(node, f"m{module}:1")) for module in range(20) for node in arklets]
    for module in range(20):
        for share in range(10):  # bases are not in step with one another
            await rig.clock.advance(0.3)
            for number in range(share, 100, 10):
                node, key = f"n{number}", f"m{module}:1"
                arklets[node].states[key] = "activated"
                ended_s[node, key] = rig.clock.elapsed_s()
    took_s = rig.clock.elapsed_s()
    await rig.clock.advance(3.0)
    assert all(wait.done() for wait in waits)
    assert sorted(late_s)[int(0.99 * len(late_s))] < 2.0
    assert sum(each.calls.total() for each in arklets.values()) / took_s <= 1.2 * CALLS_PER_S


async def test_what_a_poll_sees_needs_no_question_of_its_own() -> None:
    rig = Rig()
    wait = rig.begin("a:1")
    await rig.clock.advance(0.1)
    rig.operations.observe("node", [ModuleState("a", "1", "ACTIVATED")])
    answer, states = await asyncio.wait_for(wait, 5)
    assert outcome_of(arklet.INSTALL, answer) is Outcome.DONE
    assert states is not None
    assert rig.arklet.calls.total() == 0
