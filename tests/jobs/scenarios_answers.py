"""Scenarios of the job specification about volumes, shares, ties, what-if and replay; beside those of scenarios.py."""

import asyncio
from typing import Any

import msgspec
import numpy as np

from bench import openb_engine
from bench.openb import arrivals, empty_cluster, play
from bench.openb_jobs import a_job
from bench.openb_policies import Node, asked_milli
from fairlead.placement.replay import encode, read, replay
from tests.engine.test_openb_small import SCARCE_PODS
from tests.jobs.lab import SCENARIO, Lab
from tests.jobs.scenarios import Scenario, policy

REPEATS, AT_ONCE = 100, 10


async def s08_a_claim_that_waits_for_its_consumer_binds_on_the_leaders_node(lab: Lab) -> None:
    storage_class = f"waits-{lab.namespace}"
    given = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    body: dict[str, Any] = {"metadata": {"name": storage_class}, **given}
    await lab.api.call("POST", "/apis/storage.k8s.io/v1/storageclasses", body)
    access = {"accessModes": ["ReadWriteOnce"], "storageClassName": storage_class}
    # The leader has room on one node only, which is not the first by name.
    for node, cpu in (("a", "1"), ("b", "8")):
        name = await lab.node(node, cpu)
        there = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]}
        volume = {"capacity": {"storage": "1Gi"}, "local": {"path": "/nowhere"}, **access}
        volume["nodeAffinity"] = {"required": {"nodeSelectorTerms": [there]}}
        await lab.api.call("POST", "/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": volume})
    claims = f"/api/v1/namespaces/{lab.namespace}/persistentvolumeclaims"
    claim = {**access, "resources": {"requests": {"storage": "1Gi"}}}
    await lab.api.call("POST", claims, {"metadata": {"name": "shared"}, "spec": claim})
    volumes = [{"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}]
    await lab.submit("train", lab.spec(1, "2", **policy("Gang"), volumes=volumes))
    await lab.until_running("train", "1/1")
    bound = await lab.api.call("GET", f"{claims}/shared")
    assert (bound["status"]["phase"], bound["spec"]["volumeName"]) == ("Bound", lab.node_name("b"))
    assert set((await lab.places("train")).values()) == {"b"}


async def s24_a_resource_that_the_cluster_has_none_of_is_left_out_of_the_share(lab: Lab) -> None:
    device = f"example.com/{lab.namespace}"
    # A cordoned node does not count, so that the cluster's total is 0; the job could fit one day.
    await lab.node("a", "8", cordoned=True, offers={device: "8"})
    spec = lab.spec(1, schedulerPolicy={"basicPolicy": "Gang", "jobQueuePolicy": "DRF"})
    amounts = {"cpu": "1", device: "4"}
    container = spec["workerSets"][0]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": amounts, "limits": amounts}
    await lab.submit("train", spec)
    status = await lab.until_waiting("train")
    assert 0 < status["share"] < 1
    await lab.cordon("a", False)
    await lab.until_running("train", "1/1")


async def s35_at_equal_packing_the_smaller_gap_of_cpu_and_memory_wins(lab: Lab) -> None:
    # Used with the pods: 60 % and 50 % on z, 80 % and 30 % on a; what breaks ties would take a.
    for name, cpu, memory in (("a", "7", "20Gi"), ("z", "5", "40Gi")):
        await lab.node(name, "10", offers={"memory": "100Gi"})
        await lab.foreign_pod(f"busy-{name}", name, cpu, memory)
    spec = lab.spec(1, **policy("MinFragment"), minWorkersNum=1)
    for template in (spec["leader"]["template"], spec["workerSets"][0]["template"]):
        template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "500m", "memory": "5Gi"}}
    await lab.submit("train", spec)
    await lab.until_running("train", "1/1")
    assert set((await lab.places("train")).values()) == {"z"}


async def s37_ties_are_broken_alike_every_time_and_under_other_names(lab: Lab) -> None:
    for group, names in (("one", "abc"), ("two", "zyx")):
        for name in names:
            await lab.node(name, "4", labels={"group": group})

    def of(group: str, workers: int = 5) -> dict[str, Any]:
        spec = lab.spec(workers, **policy("BinPack"), minWorkersNum=workers)
        for template in (spec["leader"]["template"], spec["workerSets"][0]["template"]):
            template["spec"]["nodeSelector"] = {SCENARIO: lab.namespace, "group": group}
        return lab.manifest(f"job-{group}", spec)

    async def is_known() -> bool:
        # Twelve pods need all three nodes of a group.
        return all([(await lab.ask("/jobs/what-if", of(group, 11)))["fits"] == "Now" for group in ("one", "two")])

    await lab.until(is_known, "Fairlead knows the nodes")
    first = (await lab.ask("/jobs/what-if", of("one")))["places"]
    assert sorted(first.values()) == [2, 4]
    for _ in range(REPEATS // AT_ONCE):
        answers = await asyncio.gather(*(lab.ask("/jobs/what-if", of("one")) for _ in range(AT_ONCE)))
        assert [each["places"] for each in answers] == [first] * AT_ONCE
    renamed = (await lab.ask("/jobs/what-if", of("two")))["places"]
    assert sorted(renamed.values()) == [2, 4]


async def s40_shares_of_gpus_at_130_percent_of_the_load(lab: Lab) -> None:
    """In small; the trace itself is `scripts/bench openb` and `openb_jobs`."""
    nodes, seed = [Node(f"node-{number}", 64_000, 400_000, 8, "") for number in range(2)], 48
    whole = empty_cluster(nodes).gpu_milli
    coming = arrivals(SCARCE_PODS, whole, np.random.default_rng(seed))
    for node in nodes:
        await lab.node(node.name, "64", offers={openb_engine.GPU: "8", "memory": f"{node.memory_mib}Mi"})
    # All wait for their queue, and are then decided in their order.
    for number, shape in enumerate(coming):
        spec = {**a_job(shape), "queue": lab.queue_name("trace"), "startTimeoutSeconds": 600}
        for template in (spec["leader"]["template"], spec["workerSets"][0]["template"]):
            template["spec"] |= {"nodeSelector": {SCENARIO: lab.namespace}, "terminationGracePeriodSeconds": 0}
            for container in template["spec"]["containers"]:
                amounts = (container.get("resources") or {}).get("requests") or {}
                container |= {"image": "i", "resources": {"requests": amounts, "limits": amounts}}
        await lab.submit(f"job-{number:03}", spec)
    await lab.until_condition(f"job-{len(coming) - 1:03}", "QueueNotFound", "there is no JobQueue")
    await lab.queue("trace")
    statuses: dict[str, Any] = {}

    async def are_decided() -> bool:
        for each in (await lab.api.call("GET", lab.jobs))["items"]:
            statuses[each["metadata"]["name"]] = each.get("status") or {}
        return all(each.get("explain") or each.get("scheduleState") == "ScheduledSucceed" for each in statuses.values())

    await lab.until(are_decided, "every job has places or says what is short")
    placed = [statuses[f"job-{number:03}"]["scheduleState"] == "ScheduledSucceed" for number in range(len(coming))]
    allocated = 100 * sum(asked_milli(shape) for shape, is_in in zip(coming, placed, strict=True) if is_in) / whole
    assert allocated >= 95.0, allocated
    for baseline in ("Random", "DotProd", "GpuPacking", "BestFit"):
        rng = np.random.default_rng(seed)
        other = play(baseline, nodes, empty_cluster(nodes), SCARCE_PODS, coming, rng)
        assert allocated > 100 * other.allocated_milli / whole, baseline


async def s77_s78_what_if_is_what_a_submit_gets_and_the_decision_replays(lab: Lab) -> None:
    for name in ("a", "b"):
        await lab.node(name, "4")
    await lab.foreign_pod("busy", "b", "1")
    manifest = lab.manifest("train", lab.spec(6, **policy("Gang")))
    answer: dict[str, Any] = {}

    async def fits() -> bool:
        answer.update(await lab.ask("/jobs/what-if", manifest))
        return bool(answer["fits"] == "Now")

    await lab.until(fits, "Fairlead knows the nodes")
    compared = await lab.ask("/jobs/compare", {"job": manifest, "policies": ["Gang", "JobAntiAffinity"]})
    assert [each["fits"] for each in compared["comparisons"]] == [True, True]
    # All the room there is: what a question had kept would be missing now.
    assert list(await lab.pods()) == ["busy"]
    assert (await lab.api.call("GET", lab.jobs))["items"] == []
    await lab.submit("train", manifest["spec"])
    await lab.until_running("train", "6/6")
    nodes = [lab.node_name(node) for node in (await lab.places("train")).values()]
    assert {node: nodes.count(node) for node in sorted(set(nodes))} == answer["places"]
    kept = (await lab.ask(f"/decisions?namespace={lab.namespace}"))["decisions"]
    gangs = [each["id"] for each in kept if len(each["pods"]) == 7]
    assert gangs
    texts = [msgspec.json.encode(await lab.ask(f"/decisions/{gangs[0]}")) for _ in range(2)]
    document = read(texts[0])
    assert replay(document) == []
    assert texts == [encode(document)] * 2, "the same bytes, asked and replayed"
    assert sorted(place.node for place in document.result.places) == sorted(nodes)


SCENARIOS: dict[str, Scenario] = {
    name.replace("_", " "): scenario
    for name, scenario in list(globals().items())
    if name.startswith("s") and callable(scenario) and getattr(scenario, "__module__", "") == __name__
}
