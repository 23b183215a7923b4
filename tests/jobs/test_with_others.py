"""Jobs beside others, with placement, in memory: preemption, topology, cordons, foreign pods, deletion, repeats."""

import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.testing.clock import ManualClock, settle
from tests.jobs.cluster import FakeCluster, Together, turn
from tests.jobs.kit import spec_json, template

GANG = {"basicPolicy": "Gang"}


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    made = FakeCluster(ManualClock())
    for number in range(4):
        made.add_node(f"n{number}", rack=f"r{number // 2}")
    yield made
    assert made.complaints == []


def with_pods(spec: dict[str, Any], **pod: Any) -> dict[str, Any]:
    """The same with more in each pod's spec."""
    found = copy.deepcopy(spec)
    for each in (found["leader"], found["workerSets"][0]):
        each["template"]["spec"].update(pod)
    return found


def nodes_of(cluster: FakeCluster, job: str) -> set[str]:
    return {pod["spec"].get("nodeName", "") for pod in cluster.pods(job).values()}


async def test_a_gang_of_higher_pod_priority_evicts_a_whole_gang_which_pays_no_restart(cluster: FakeCluster) -> None:
    async with Together(cluster).leading():
        low = cluster.submit("low", spec_json(11, schedulerPolicy=GANG))
        await turn(cluster)
        high = cluster.submit("high", with_pods(spec_json(9, schedulerPolicy=GANG), priority=1000))
        await turn(cluster, 20)
        assert cluster.status(high)["stage"] == "Running"
        assert (cluster.status(low)["stage"], cluster.status(low).get("restarts")) == ("Rescheduling", 0)
        assert cluster.pods("low") == {}
        cluster.edit(high, terminating=True)
        await turn(cluster, 20)
        assert cluster.status(low)["stage"] == "Running"


async def test_the_last_of_refusals_that_follow_each_other_is_what_the_status_says(cluster: FakeCluster) -> None:
    together = Together(cluster, period_s=0.0)
    async with together.leading():
        for number in range(3):
            foreign = {"nodeName": "n0", "schedulerName": "theirs", "containers": template()["spec"]["containers"]}
            cluster.put("pods", {"metadata": {"name": f"foreign-{number}", "namespace": "other"}, "spec": foreign})
        key = cluster.submit("train", spec_json(15, schedulerPolicy=GANG))
        await turn(cluster, 0.5)
        assert cluster.status(key)["explain"]["fitting"] == 13
        for number in range(2):
            cluster.remove("pods", f"other/foreign-{number}")
            await settle(80)
        refused = together.controller.source.refusal(key)
        assert refused is not None
        assert refused.fitting == 15
        await turn(cluster, 3)
        assert cluster.status(key)["explain"]["fitting"] == 15


async def test_a_gang_with_a_topology_stays_within_one_domain_and_later_workers_too(cluster: FakeCluster) -> None:
    policy = {"basicPolicy": "BinPack", "topology": {"key": "rack", "mode": "Required"}}
    async with Together(cluster).leading():
        key = cluster.submit("train", spec_json(5, schedulerPolicy=policy, minWorkersNum=5))
        await turn(cluster)
        domain = cluster.status(key)["allocations"]["domain"]
        within = {"r0": {"n0", "n1"}, "r1": {"n2", "n3"}}[domain]
        assert nodes_of(cluster, "train") <= within
        cluster.edit(key, workerSets=[{**spec_json()["workerSets"][0], "counts": 12}])
        await turn(cluster)
        assert cluster.status(key)["ready"] == "7/12"
        assert nodes_of(cluster, "train") == within


async def test_s31_s33_policies_pack_and_spread(cluster: FakeCluster) -> None:
    async with Together(cluster).leading():
        cluster.submit("together", spec_json(3, schedulerPolicy={"basicPolicy": "JobAffinity"}))
        await turn(cluster, 4)
        cluster.submit("apart", spec_json(2, schedulerPolicy={"basicPolicy": "JobAntiAffinity"}))
        await turn(cluster, 4)
        assert len(nodes_of(cluster, "together")) == 1
        assert len(nodes_of(cluster, "apart")) == 3


async def test_s35_of_two_nodes_as_full_the_one_whose_cpu_and_memory_are_nearer_is_taken() -> None:
    made = FakeCluster(ManualClock())
    for number, memory in enumerate(("4Gi", "28Gi")):
        made.add_node(f"n{number}", cpu="10")
        container = {"name": "m", "resources": {"requests": {"cpu": "5", "memory": memory}}}
        foreign = {"nodeName": f"n{number}", "schedulerName": "theirs", "containers": [container]}
        made.put("pods", {"metadata": {"name": f"foreign-{number}", "namespace": "other"}, "spec": foreign})
    async with Together(made).leading():
        made.submit("train", spec_json(1, schedulerPolicy={"basicPolicy": "MinFragment"}))
        await turn(made, 3)
        assert nodes_of(made, "train") == {"n1"}


async def test_s39_a_node_cordoned_before_its_pods_are_bound_is_left(cluster: FakeCluster) -> None:
    left = []

    def cordon(node: str) -> None:
        held = copy.deepcopy(cluster.objects["nodes"][node])
        held["spec"]["unschedulable"] = True
        cluster.put("nodes", held)
        left.append(node)

    cluster.on_allocated = cordon
    async with Together(cluster).leading():
        key = cluster.submit("train", spec_json(2, schedulerPolicy=GANG))
        await turn(cluster, 20)
        assert cluster.status(key)["stage"] == "Running"
        assert nodes_of(cluster, "train").isdisjoint(left)
        assert len(left) == 1


async def test_pods_that_tolerate_a_cordon_keep_their_places_on_cordoned_nodes(cluster: FakeCluster) -> None:
    def cordon(node: str) -> None:
        held = copy.deepcopy(cluster.objects["nodes"][node])
        held["spec"]["unschedulable"] = True
        cluster.put("nodes", held)

    tolerant = with_pods(spec_json(2, schedulerPolicy=GANG), tolerations=[{"operator": "Exists"}])
    cluster.on_allocated = cordon
    async with Together(cluster).leading():
        first = cluster.submit("first", tolerant)
        await turn(cluster, 20)
        for node in list(cluster.objects["nodes"]):
            cordon(node)
        second = cluster.submit("second", tolerant)
        await turn(cluster, 20)
        for key in (first, second):
            status = cluster.status(key)
            assert (status["stage"], status.get("attempt", 0)) == ("Running", 0)
        # One that is deleted comes back to the place it has.
        cluster.remove("pods", "lab/second-actors-0")
        await turn(cluster, 20)
        assert (cluster.status(second)["ready"], cluster.status(second).get("attempt", 0)) == ("2/2", 0)


@pytest.mark.parametrize("tainted", [True, False], ids=["tainted", "not tainted yet"])
async def test_pods_that_may_go_to_a_node_that_is_not_ready_keep_their_places_there(
    cluster: FakeCluster, tainted: bool
) -> None:
    for node in list(cluster.objects["nodes"]):
        held = copy.deepcopy(cluster.objects["nodes"][node])
        held["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
        keys = [("node.kubernetes.io/unreachable", effect) for effect in ("NoSchedule", "NoExecute")]
        held["spec"]["taints"] = [{"key": key, "effect": effect} for key, effect in keys] if tainted else []
        cluster.put("nodes", held)
    spec = spec_json(2, schedulerPolicy=GANG)
    async with Together(cluster).leading():
        key = cluster.submit("train", with_pods(spec, tolerations=[{"operator": "Exists"}]) if tainted else spec)
        await turn(cluster, 20)
        status = cluster.status(key)
        assert (status["stage"], status["ready"], status.get("attempt", 0)) == ("Running", "2/2", 0)
        strict = cluster.submit("strict", spec_json(1))
        await turn(cluster, 5)
        assert cluster.status(strict)["stage"] == ("Pending" if tainted else "Running")


async def test_a_place_on_a_node_that_is_not_ready_any_more_is_left(cluster: FakeCluster) -> None:
    left = []

    def go_silent(node: str) -> None:
        held = copy.deepcopy(cluster.objects["nodes"][node])
        held["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
        held["spec"]["taints"] = [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]
        cluster.put("nodes", held)
        left.append(node)

    cluster.on_allocated = go_silent
    async with Together(cluster).leading():
        key = cluster.submit("train", spec_json(2, schedulerPolicy=GANG))
        await turn(cluster, 20)
        assert cluster.status(key)["stage"] == "Running"
        assert nodes_of(cluster, "train").isdisjoint(left)


async def test_after_a_write_that_only_seemed_to_fail_no_pod_is_bound_by_the_status_before_it(
    cluster: FakeCluster,
) -> None:
    def cordon(node: str, cordoned: bool = True) -> None:
        held = copy.deepcopy(cluster.objects["nodes"][node])
        held["spec"]["unschedulable"] = cordoned
        cluster.put("nodes", held)

    cluster.on_allocated = cordon
    cluster.is_release_lost = True
    async with Together(cluster).leading():
        key = cluster.submit("train", spec_json(2, schedulerPolicy=GANG))
        while not cluster.late:
            await turn(cluster, 0.5)
        assert cluster.status(key)["stage"] == "Rescheduling"
        for node in list(cluster.objects["nodes"]):
            cordon(node, False)
        await turn(cluster, 5)
        assert not any(pod["spec"].get("nodeName") for pod in cluster.pods("train").values())
        cluster.show_late()
        await turn(cluster, 10)
        assert cluster.status(key)["stage"] == "Running"


async def test_s62_a_place_that_another_scheduler_takes_is_planned_again(cluster: FakeCluster) -> None:
    taken = []

    def take(node: str) -> None:
        container = {"name": "m", "resources": {"requests": {"cpu": "3"}}}
        foreign = {"nodeName": node, "schedulerName": "theirs", "containers": [container]}
        cluster.put("pods", {"metadata": {"name": "foreign", "namespace": "other"}, "spec": foreign})
        taken.append(node)

    cluster.on_allocated = take
    async with Together(cluster).leading():
        key = cluster.submit("train", spec_json(3, schedulerPolicy=GANG))
        await turn(cluster, 30)
        status = cluster.status(key)
        assert (status["stage"], status["restarts"]) == ("Running", 0)
        (node,) = taken
        assert sum(each["spec"].get("nodeName") == node for each in cluster.pods("train").values()) <= 1


async def test_s73_s74_a_deleted_job_frees_its_places_and_one_of_the_same_name_waits_for_its_pods(
    cluster: FakeCluster,
) -> None:
    async with Together(cluster).leading():
        spec = spec_json(9, schedulerPolicy=GANG)
        key = cluster.submit("train", spec)
        await turn(cluster)
        old = dict(cluster.pods())
        cluster.remove("tyjobs", key)
        cluster.put(
            "tyjobs",
            {"metadata": {"name": "train", "namespace": "lab", "generation": 1, "uid": "second"}, "spec": spec},
        )
        await turn(cluster, 3)
        assert cluster.status(key)["stage"] == "Pending"
        assert [each["type"] for each in cluster.status(key)["conditions"]] == ["NamesTaken"]
        for name in old:
            cluster.remove("pods", f"lab/{name}")  # what garbage collection does
        await turn(cluster)
        assert cluster.status(key)["stage"] == "Running"
        uids = {pod["metadata"]["ownerReferences"][0]["uid"] for pod in cluster.pods().values()}
        assert uids == {"second"}


async def test_s37_the_same_world_gives_the_same_places_every_time() -> None:
    found = []
    for _ in range(5):
        made = FakeCluster(ManualClock())
        for number in range(4):
            made.add_node(f"n{number}")
        async with Together(made).leading():
            keys = [made.submit(f"job{n}", spec_json(n + 1)) for n in range(3)]
            await turn(made, 4)
            found.append([made.status(key)["allocations"]["workers"] for key in keys])
    assert found == [found[0]] * 5


async def test_s68_two_worker_sets_and_a_leader_that_succeeds_before_the_quorum(cluster: FakeCluster) -> None:
    sets = [{"name": name, "counts": 2, "template": template()} for name in ("fast", "slow")]
    async with Together(cluster).leading():
        key = cluster.submit("train", spec_json(workerSets=sets, cleanPodPolicy="Running"))
        for _ in range(8):
            await cluster.clock.advance(0.5)
            await settle(80)
            if "train-learner" in cluster.pods():
                break
        cluster.end("train-learner")
        await turn(cluster, 3)
        assert (cluster.status(key)["stage"], list(cluster.pods())) == ("Succeeded", ["train-learner"])
