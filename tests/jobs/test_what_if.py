"""What-if and compare on a copy of the table: the answers of a submit, and nothing left behind."""

import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from fairlead.engine.unit import Unit
from fairlead.jobs.observed import JobInput
from fairlead.jobs.spec import JobStatus, QueueSpec, TYJob, parse_spec
from fairlead.jobs.trials import Trials
from fairlead.jobs.units import unit_of
from fairlead.jobs.what_if import compare, what_if
from fairlead.model.meta import ObjectMeta
from fairlead.placement.trials import LoopTrials
from fairlead.testing.clock import ManualClock
from tests.jobs.cluster import FakeCluster, Together, turn
from tests.jobs.kit import spec_json
from tests.jobs.test_api import Setting

GANG = {"basicPolicy": "Gang"}


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    made = FakeCluster(ManualClock())
    for number in range(3):
        made.add_node(f"n{number}")
    yield made
    assert made.complaints == []


def unit(cluster: FakeCluster, name: str, spec: dict[str, Any]) -> Unit:
    metadata = ObjectMeta(name=name, namespace="lab", uid=f"uid-{name}")
    parsed = parse_spec(TYJob(metadata=metadata, spec=spec))
    assert not isinstance(parsed, str)
    planned = Trials(None, cluster.clock, "fairlead").untried(metadata, parsed)  # type: ignore[arg-type]
    seen = JobInput(metadata, parsed, JobStatus())
    found = unit_of(seen, {}, planned, datetime(2026, 1, 1, tzinfo=UTC), QueueSpec())
    assert found is not None
    return found


async def ask(together: Together, given: Unit) -> Any:
    pods = [each.pod for each in given.members]
    return await LoopTrials(together.loop).on_copy(pods, lambda table: what_if(table, given))


async def test_it_fits_now_with_fewer_workers_after_a_job_or_never(cluster: FakeCluster) -> None:
    together = Together(cluster)
    async with together.leading():
        first = await ask(together, unit(cluster, "new", spec_json(11, schedulerPolicy=GANG)))
        assert (first.fits, sum(first.places.values())) == ("Now", 12)
        never = await ask(together, unit(cluster, "new", spec_json(12, schedulerPolicy=GANG)))
        assert never.fits == "Never"
        assert "13" in never.message
        cluster.submit("busy", spec_json(7, schedulerPolicy=GANG))
        await turn(cluster, 5)
        fewer = await ask(together, unit(cluster, "new", spec_json(9, schedulerPolicy=GANG)))
        assert (fewer.fits, fewer.workers, fewer.after) == ("Fewer", 3, "lab/busy")
        cluster.submit("more", spec_json(3, schedulerPolicy=GANG))
        await turn(cluster, 5)
        after = await ask(together, unit(cluster, "new", spec_json(7, schedulerPolicy=GANG)))
        assert (after.fits, after.after) == ("After", "lab/busy")
        assert "fits when job lab/busy has ended" in after.message


async def test_compare_shows_where_each_policy_would_put_it(cluster: FakeCluster) -> None:
    together = Together(cluster)
    async with together.leading():
        given = unit(cluster, "new", spec_json(2))
        pods = [each.pod for each in given.members]
        packed, spread = await LoopTrials(together.loop).on_copy(
            pods, lambda table: compare(table, given, ["JobAffinity", "JobAntiAffinity"])
        )
        assert (packed.nodes, spread.nodes, packed.pods, spread.pods) == (1, 3, 3, 3)


POLICIES = ("Gang", "BinPack", "LeaderFirst", "MinFragment", "JobAffinity", "JobAntiAffinity")
QUEUES = ("default", "default", "small", "strict")


def drawn(rng: random.Random, most: int) -> dict[str, Any]:
    """A job of any policy, with or without a topology, an expected run time and a second worker set."""
    policy: dict[str, Any] = {"basicPolicy": rng.choice(POLICIES)}
    if rng.random() < 0.3:
        policy["topology"] = {"key": "rack", "mode": rng.choice(("Required", "Preferred"))}
    workers = rng.randint(1, most)
    fields = {"minWorkersNum": rng.randint(0, workers), "priority": rng.randint(1, 10), "queue": rng.choice(QUEUES)}
    if rng.random() < 0.4:
        fields["estimatedRunSeconds"] = rng.choice((30, 300))
    spec = spec_json(workers, schedulerPolicy=policy, **fields)
    if rng.random() < 0.3:
        spec["workerSets"].append({**spec["workerSets"][0], "name": "more", "counts": rng.randint(1, 3)})
    return spec


@pytest.mark.parametrize("block", range(4))
async def test_s77_what_if_equals_the_decision_of_a_submit(block: int) -> None:
    """Five random worlds each; tests/properties has 200 of the engine alone."""
    rng = random.Random(block)
    for _ in range(5):
        made = FakeCluster(ManualClock())
        for number in range(rng.randint(1, 4)):
            made.add_node(f"n{number}", cpu=str(rng.randint(1, 6)), rack=f"r{number % 2}")
        made.put("jobqueues", {"metadata": {"name": "small"}, "spec": {"quota": {"cpu": str(rng.randint(2, 8))}}})
        made.put("jobqueues", {"metadata": {"name": "strict"}, "spec": {"strictFIFO": True}})
        setting = Setting(made)
        async with setting.together.leading():
            for number in range(rng.randint(1, 3)):
                made.submit(f"busy-{number}", drawn(rng, 6))
            await turn(made, 3)
            spec = drawn(rng, 8)
            before = dict(made.objects["tyjobs"])
            manifest = {"metadata": {"name": "new", "namespace": "lab"}, "spec": spec}
            answer = await setting.ask(setting.api.what_if, "lab", body=manifest)
            assert made.objects["tyjobs"] == before, "something was stored"
            key = made.submit("new", spec)
            held: dict[str, Any] = {}
            for _ in range(5):
                await turn(made, 0.5)
                held = held or made.status(key).get("allocations", {})
            assert placed_counts(held) == answer.get("places", {}), (spec, answer)
            assert (answer["fits"] == "Now") is bool(held)
        assert made.complaints == []


def placed_counts(allocations: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    if allocations.get("leader"):
        found[allocations["leader"]] = 1
    for nodes in allocations.get("workers", {}).values():
        for node, text in nodes.items():
            for part in text.split(","):
                first, _, last = part.partition("-")
                found[node] = found.get(node, 0) + int(last or first) - int(first) + 1
    return dict(sorted(found.items()))
