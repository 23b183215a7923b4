"""Scenarios of the job specification in which Fairlead, its clock or its network fails; one after the other."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from tests.jobs.faults import Exchange, Faults, Replica
from tests.jobs.lab import Lab
from tests.jobs.scenarios import policy
from tests.soak.faults_process import made_up

FaultScenario = Callable[[Faults, Lab], Awaitable[None]]

KILLS: Final = 3
JOBS, WORKERS = 5, 10


def killed_when(replica: Replica, holds: Callable[[Exchange], bool]) -> asyncio.Event:
    """It is killed when the server has carried out such a write, and before it hears of that."""
    killed = asyncio.Event()

    def look(exchange: Exchange) -> None:
        if not killed.is_set() and holds(exchange):
            replica.process.kill()
            killed.set()

    replica.gate.listeners.append(look)
    return killed


async def s58_killed_when_the_leaders_pod_is_created(faults: Faults, lab: Lab) -> None:
    await lab.node("a")
    first = await faults.leader()
    killed = killed_when(first, lambda each: each.created_pod == "train-learner")
    await lab.submit("train", lab.spec(2, **policy("Gang")))
    async with asyncio.timeout(60):
        await killed.wait()
    uid = (await lab.pod("train-learner"))["metadata"]["uid"]
    await faults.replace(first)
    status = await lab.until_running("train", "2/2")
    assert (status["restarts"], status.get("attempt", 0)) == (0, 0)
    assert (await lab.pod("train-learner"))["metadata"]["uid"] == uid
    assert "train-learner" not in faults.created(lab.namespace)


async def s59_killed_when_half_of_the_workers_are_created(faults: Faults, lab: Lab) -> None:
    await lab.node("a", "8")
    first = await faults.leader()
    workers: list[str] = []

    def is_third(exchange: Exchange) -> bool:
        workers.extend([exchange.created_pod] if "actors" in exchange.created_pod else [])
        return len(workers) == 3

    killed = killed_when(first, is_third)
    await lab.submit("train", lab.spec(6, **policy("Gang")))
    async with asyncio.timeout(60):
        await killed.wait()
    await asyncio.to_thread(first.process.wait, 60)
    before = {name: pod["metadata"]["uid"] for name, pod in (await lab.pods()).items()}
    await faults.replace(first)
    status = await lab.until_running("train", "6/6")
    after = {name: pod["metadata"]["uid"] for name, pod in (await lab.pods()).items()}
    assert (status["restarts"], status.get("attempt", 0), len(after)) == (0, 0, 7)
    assert {name: after[name] for name in before} == before
    assert sorted(faults.created(lab.namespace)) == sorted(set(after) - set(before))


async def s60_killed_at_writes_by_lot(faults: Faults, lab: Lab) -> None:
    """An observer judges every revision; two hundred kills are in `scripts/soak jobs`."""
    rng = random.Random(60)
    for name in ("a", "b", "c"):
        await lab.node(name, "10")
    for number in range(KILLS):
        leader = await faults.leader()
        left = itertools.count(rng.randint(1, 12), -1)
        killed = killed_when(leader, lambda each, left=left: next(left) <= 1)  # type: ignore[misc]
        for part in range(2):
            await lab.submit(f"job-{number}-{part}", lab.spec(2, **policy("Gang")))
        async with asyncio.timeout(60):
            await killed.wait()
        await faults.replace(leader)
    for number in range(KILLS):
        for part in range(2):
            await lab.until_running(f"job-{number}-{part}", "2/2")
    assert len(await lab.pods()) == KILLS * 2 * 3


async def s61_a_plan_that_comes_too_late_is_a_conflict(faults: Faults, lab: Lab) -> None:
    await lab.node("a", "8")
    first = await faults.leader()
    (second,) = [each for each in faults.replicas if each is not first]
    is_held, let_go = asyncio.Event(), asyncio.Event()

    async def hold(exchange: Exchange) -> web.Response | None:
        if exchange.path.endswith("/tyjobs/train/status") and b'"leader"' in exchange.body and not is_held.is_set():
            is_held.set()
            await let_go.wait()
        return None

    first.gate.rules.append(hold)
    await lab.submit("before", lab.spec(1))
    await lab.until_running("before")
    # Only the holder of the lease has written anything.
    assert second.gate.done == []
    await lab.submit("train", lab.spec(2, **policy("Gang")))
    async with asyncio.timeout(60):
        await is_held.wait()

    def times_stepped_back() -> int:
        return (faults.folder / f"{first.name}.log").read_text().count("no longer leading")

    so_far = times_stepped_back()
    with faults.frozen(first):
        await faults.give_up(first)
        await lab.until_running("train", "2/2")
        survivor = (await lab.status("train"))["allocations"]
        let_go.set()

        async def has_failed() -> bool:
            late = [each for each in first.gate.done if each.path.endswith("/tyjobs/train/status")]
            return bool(late) and late[-1].code == 409

        await lab.until(has_failed, "the plan of the first replica is refused")

    async def has_stepped_back() -> bool:
        return times_stepped_back() > so_far

    # Its lease was taken by force, well within its time: it learns of that by its watch, and may write until then.
    await lab.until(has_stepped_back, "the first replica no longer leads")
    assert (await lab.status("train"))["allocations"] == survivor
    await lab.submit("after", lab.spec(1))
    await lab.until_running("after")
    assert (await faults.leader()) is second
    # Nothing that came after its lease was lost has a write of it.
    of_first, of_second = (
        [each for each in replica.gate.done if lab.namespace in each.path] for replica in (first, second)
    )
    assert [each.path for each in of_first if b'"after' in each.body or "/after" in each.path] == []
    assert [each.path for each in of_second if each.path.endswith("/tyjobs/after/status")] != []
    first.gate.rules.remove(hold)


async def s65_writes_fail_in_bursts(faults: Faults, lab: Lab) -> None:
    for name in ("a", "b"):
        await lab.node(name, "8")
    leader = await faults.leader()
    answers = itertools.cycle([409, 0, 429, 500, 0, 500])
    failed: list[int] = []

    async def fail(exchange: Exchange) -> web.Response | None:
        code = next(answers) if exchange.is_write and len(failed) < 40 else 0
        failed.extend([code] if code else [])
        return made_up(code) if code else None

    leader.gate.rules.append(fail)
    names = [f"job-{number}" for number in range(3)]
    for name in names:
        await lab.submit(name, lab.spec(4, **policy("Gang")))
    for name in names:
        status = await lab.until_running(name, "4/4")
        assert status["restarts"] == 0
    leader.gate.rules.remove(fail)
    assert len(failed) > 10
    pods = sorted(await lab.pods())
    assert len(pods) == 15
    if await faults.leader() is leader:
        assert sorted(faults.created(lab.namespace)) == pods


async def s66_a_watch_that_missed_changes_lists_again(faults: Faults, lab: Lab) -> None:
    await lab.node("a", "3")
    await lab.node("b", "3")
    for name in ("gone", "kept"):
        await lab.submit(name, lab.spec(2, **policy("Gang")))
    for name in ("gone", "kept"):
        await lab.until_running(name, "2/2")
    await lab.submit("next", lab.spec(2, **policy("Gang")))
    await lab.until_waiting("next")
    leader = await faults.leader()
    is_away = True
    expired: list[str] = []

    async def lose(exchange: Exchange) -> web.Response | None:
        if not exchange.is_watch:
            return None
        if is_away:
            return made_up(500)
        # What was missed is not there any more, once for each kind.
        if "sendInitialEvents" not in exchange.query and exchange.path not in expired:
            expired.append(exchange.path)
            gone: dict[str, Any] = {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410}
            return web.Response(body=msgspec.json.encode({"type": "ERROR", "object": gone}) + b"\n")
        return None

    leader.gate.rules.append(lose)
    assert leader.gate.cut() > 3
    worker = (await lab.pod("kept-actors-1"))["metadata"]["uid"]
    await lab.api.call("DELETE", f"{lab.jobs}/gone", {"propagationPolicy": "Background"})
    await lab.delete_pod("kept-actors-1")
    is_away = False

    async def is_replaced() -> bool:
        found = (await lab.pods()).get("kept-actors-1")
        return found is not None and found["metadata"]["uid"] != worker

    await lab.until(is_replaced, "the worker that was deleted unseen is created again")
    await lab.until_running("kept", "2/2")
    await lab.until_running("next", "2/2")
    leader.gate.rules.remove(lose)
    assert any("/tyjobs" in path for path in expired)
    assert any("/pods" in path for path in expired)


async def s67_the_clock_is_set_back_by_an_hour(faults: Faults, lab: Lab) -> None:
    await lab.node("a", "3")
    await lab.submit("first", lab.spec(2, **policy("Gang")))
    await lab.until_running("first", "2/2")
    await lab.submit("second", lab.spec(2, **policy("Gang")))
    await lab.until_waiting("second")
    leader = await faults.leader()
    leader.skew.write_text("-3600")
    await lab.submit("third", lab.spec(2, **policy("Gang")))
    await lab.until_waiting("third")
    await lab.edit("first", terminating=True)
    status = await lab.until_running("second", "2/2")
    await lab.edit("second", terminating=True)
    await lab.until_running("third", "2/2")
    leader.skew.write_text("0")
    assert (await faults.leader()) is leader
    # It was at work with the other clock.
    created = (await lab.api.call("GET", f"{lab.jobs}/second"))["metadata"]["creationTimestamp"]
    assert status["startTime"] < created


async def s79_many_jobs_and_exactly_as_many_pods(faults: Faults, lab: Lab) -> None:
    """As many as suit a test; 500 jobs of 20 pods on 1,000 nodes: `scripts/bench gang`."""
    for number in range(JOBS):
        await lab.node(f"n{number}", str(WORKERS + 1))
    await asyncio.gather(*(lab.submit(f"job-{number}", lab.spec(WORKERS, **policy("Gang"))) for number in range(JOBS)))
    for number in range(JOBS):
        await lab.until_running(f"job-{number}", f"{WORKERS}/{WORKERS}")
    created = faults.created(lab.namespace)
    assert len(created) == len(set(created)) == JOBS * (1 + WORKERS)


FAULT_SCENARIOS: Final[dict[str, FaultScenario]] = {
    name.replace("_", " "): scenario
    for name, scenario in list(globals().items())
    if name.startswith("s") and callable(scenario) and getattr(scenario, "__module__", "") == __name__
}
