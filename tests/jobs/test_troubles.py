"""Jobs through troubles drawn by lot, in memory: fail-overs, answers lost, rooms taken, nodes gone, pods deleted.

The judge is the cluster: no part of a gang, never two leaders, no pod bound but to the place that the stored status
names. On a real server with kills: tests/kube/test_jobs_soak.py.
"""

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.cluster.errors import Conflict, Status
from fairlead.cluster.writer import Outcome, Result
from fairlead.jobs.spec import TYJOBS
from fairlead.model.intents import Bind, Create, Intent, PatchStatus
from fairlead.testing.clock import ManualClock, settle
from tests.jobs.cluster import FakeCluster, Together
from tests.jobs.kit import spec_json

NODES = ("n0", "n1", "n2", "n3")
POLICIES = ("Gang", "BinPack", "JobAntiAffinity")
SHARE = 0.08


class Troubled(FakeCluster):
    """Some status writes fail, some only seem to; between two writes others take room and leave it."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(ManualClock())
        self.rng = rng
        self.foreign = 0
        self.jobs = 0

    async def carry_out(self, intent: Intent, *, is_wanted: Callable[[], bool] = lambda: True) -> Result:
        await settle(self.rng.randrange(4))
        failed = Result(intent, Outcome.CONFLICT, Conflict("PATCH", Status(code=409)))
        is_status = isinstance(intent, PatchStatus) and intent.kind is TYJOBS
        if is_status and self.rng.random() < SHARE:
            return failed
        result = await super().carry_out(intent, is_wanted=is_wanted)
        if isinstance(intent, PatchStatus | Create) and self.rng.random() < 2 * SHARE:
            self.rng.choice((self.take_room, self.leave_room))()
        return failed if is_status and self.rng.random() < SHARE else result

    def take_room(self) -> None:
        self.foreign += 1
        container = {"name": "m", "resources": {"requests": {"cpu": "2"}}}
        spec = {"nodeName": self.rng.choice(NODES), "schedulerName": "theirs", "containers": [container]}
        self.put("pods", {"metadata": {"name": f"foreign-{self.foreign}", "namespace": "other"}, "spec": spec})

    def leave_room(self) -> None:
        for key in [key for key in self.objects.get("pods", {}) if key.startswith("other/")]:
            self.remove("pods", key)

    def submit_one(self) -> None:
        self.jobs += 1
        fields: dict[str, Any] = {"schedulerPolicy": {"basicPolicy": self.rng.choice(POLICIES)}}
        self.submit(f"job{self.jobs}", spec_json(self.rng.randint(1, 5), priority=self.rng.randint(1, 10), **fields))

    def cordon_or_not(self) -> None:
        node = copy.deepcopy(self.objects["nodes"][self.rng.choice(NODES)])
        node["spec"]["unschedulable"] = not node["spec"].get("unschedulable", False)
        self.put("nodes", node)

    def lose_node(self) -> None:
        """It comes back empty."""
        name = self.rng.choice(NODES)
        self.remove("nodes", name)
        for key, pod in list(self.objects.get("pods", {}).items()):
            if pod["spec"].get("nodeName") == name:
                self.remove("pods", key)
        self.add_node(name, cpu="5")

    def delete_pod(self) -> None:
        names = sorted(self.pods())
        if names:
            self.remove("pods", f"lab/{self.rng.choice(names)}")


@pytest.mark.parametrize("seed", range(6))
async def test_s60_s65_whatever_happens_pods_are_bound_to_the_places_of_the_stored_status(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Troubled(rng)
    for name in NODES:
        cluster.add_node(name, cpu=str(rng.randint(2, 5)))
    troubles = [cluster.submit_one, cluster.submit_one, cluster.cordon_or_not, cluster.lose_node, cluster.delete_pod]
    for _ in range(6):
        # Each term ends in the middle of whatever is under way.
        async with Together(cluster, period_s=rng.choice((0.0, 0.2, 1.0))).leading():
            for _ in range(rng.randint(2, 6)):
                rng.choice(troubles)()
                for _ in range(rng.randrange(4)):
                    await cluster.clock.advance(rng.choice((0.1, 0.5, 1.0)))
                    await settle(rng.randrange(60))
                    if rng.random() < 0.7:
                        cluster.kubelet()
    assert cluster.complaints == []
    assert any(isinstance(each, Bind) for each in cluster.sent)
