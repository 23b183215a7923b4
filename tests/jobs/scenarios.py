"""The scenarios of the job specification, by number, on a live cluster; each in a Lab of its own, all side by side.

Others are in scenarios_answers.py and, where Fairlead or its network has to fail, in scenarios_faults.py; 2 and 9 to 19
need only the definition (rules.py).
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from fairlead.cluster.errors import NotFound, Refused
from tests.jobs.lab import Lab, stay

Scenario = Callable[[Lab], Awaitable[None]]

GANG: Final = {"basicPolicy": "Gang"}
GPU: Final = "example.com/gpu"


def policy(name: str) -> dict[str, Any]:
    return {"schedulerPolicy": {"basicPolicy": name}}


async def s01_s03_s05_s69_from_submit_to_success(lab: Lab) -> None:
    await lab.node("a")
    await lab.submit("train", lab.spec(2))
    status = await lab.until_running("train", "2/2")
    assert (status["scheduleState"], status["totalWorkers"]) == ("ScheduledSucceed", 2)
    for name, pod in (await lab.pods()).items():
        env = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
        if "actors" in name:
            assert env["TYJOB_LEADER_ADDRESS"] == status["leaderAddress"] == f"train-learner.train.{lab.namespace}.svc"
            assert (env["TYJOB_WORKER_SET"], env["TYJOB_WORKER_INDEX"]) == ("actors", name[-1])
    await lab.report("train-learner", "Succeeded")
    status = await lab.until_status("train", stage="Succeeded")
    assert status["completionTime"]
    await lab.until_no_pods()


async def s04_no_worker_before_the_leader_has_an_address(lab: Lab) -> None:
    await lab.node("a")
    lab.idle("train-learner")
    await lab.submit("train", lab.spec(1))
    await lab.until_status("train", stage="Starting")
    await lab.until_bound("train-learner")
    await stay(1.5)
    assert list(await lab.pods()) == ["train-learner"]
    lab.idle()
    await lab.until_running("train", "1/1")


async def s06_s07_shared_volumes_and_two_sets(lab: Lab) -> None:
    await lab.node("a")
    spec = lab.spec(2, volumes=[{"name": "shared", "emptyDir": {}}])
    other = {**spec["workerSets"][0], "name": "critics", "counts": 1}
    other["template"] = {"spec": {**other["template"]["spec"]}}
    other["template"]["spec"]["containers"] = [{**other["template"]["spec"]["containers"][0], "image": "other"}]
    await lab.submit("train", {**spec, "workerSets": [spec["workerSets"][0], other]})
    await lab.until_running("train", "3/3")
    pods = await lab.pods()
    assert sorted(pods) == ["train-actors-0", "train-actors-1", "train-critics-0", "train-learner"]
    assert pods["train-critics-0"]["metadata"]["labels"]["fairlead.io/worker-set"] == "critics"
    assert pods["train-critics-0"]["spec"]["containers"][0]["image"] == "other"
    for pod in pods.values():
        assert [each["name"] for each in pod["spec"]["volumes"]].count("shared") == 1


async def s20_s21_jobs_that_make_no_sense_spoil_no_other(lab: Lab) -> None:
    await lab.node("a")
    spec = lab.spec(1)
    spec["workerSets"][0]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "much"}}
    await lab.submit("unparsable", spec)
    await lab.submit("good", lab.spec(1))
    await lab.until_running("good")
    status = await lab.until_condition("unparsable", "TemplateRefused", "quantit")
    assert status["stage"] == "Pending"


async def s22_s71_higher_priority_first_then_older(lab: Lab) -> None:
    await lab.node("a", "2", cordoned=True)
    for name, priority in (("third", 3), ("first", 9), ("second", 5)):
        await lab.submit(name, lab.spec(1, **policy("Gang"), priority=priority))
        await lab.until_waiting(name)
    await lab.cordon("a", False)
    order: list[str] = []
    for _ in range(3):
        stages = {name: (await lab.status(name)).get("stage") for name in ("first", "second", "third")}

        async def one_runs(known: dict[str, Any] = stages) -> bool:
            for name in known:
                known[name] = (await lab.status(name)).get("stage")
            return "Running" in known.values()

        await lab.until(one_runs, f"a job runs, {order} have run")
        (running,) = [name for name, stage in stages.items() if stage == "Running"]
        order.append(running)
        await lab.edit(running, terminating=True)
        status = await lab.until_status(running, stage="Succeeded")
        assert "Terminated" in [each["type"] for each in status["conditions"]]
    assert order == ["first", "second", "third"]
    await lab.until_no_pods()


async def s23_the_smaller_dominant_share_goes_first(lab: Lab) -> None:
    await lab.node("a", "6", cordoned=True)
    drf: dict[str, Any] = {"schedulerPolicy": {"basicPolicy": "Gang", "jobQueuePolicy": "DRF"}}
    await lab.queue("fair")
    for name, workers in (("large", 4), ("small", 2)):
        await lab.submit(name, lab.spec(workers, queue=lab.queue_name("fair"), **drf))
    assert (await lab.until_waiting("small"))["queuePosition"] == 1
    await lab.cordon("a", False)
    await lab.until_running("small", "2/2")
    assert (await lab.status("large"))["stage"] == "Pending"


async def s25_the_queue_that_holds_less_goes_first(lab: Lab) -> None:
    await lab.node("a", "3")
    await lab.node("b", "5", cordoned=True)
    drf: dict[str, Any] = {"schedulerPolicy": {"basicPolicy": "Gang", "jobQueuePolicy": "DRF", "drfBasis": "allocated"}}
    for name in ("rich", "poor"):
        await lab.queue(name)
    await lab.submit("held", lab.spec(2, queue=lab.queue_name("rich"), **drf))
    await lab.until_running("held", "2/2")
    await lab.submit("more", lab.spec(1, queue=lab.queue_name("rich"), **drf))
    await lab.submit("first", lab.spec(3, queue=lab.queue_name("poor"), **drf))
    for name in ("more", "first"):
        await lab.until_waiting(name)
    await lab.cordon("b", False)
    await lab.until_running("first", "3/3")
    assert (await lab.status("more"))["stage"] == "Pending"


async def s26_a_queue_with_both_policies_is_announced(lab: Lab) -> None:
    await lab.node("a", cordoned=True)
    queue = await lab.queue("mixed")
    await lab.submit("one", lab.spec(1, queue=queue))
    await lab.submit("two", lab.spec(1, queue=queue, schedulerPolicy={"jobQueuePolicy": "DRF"}))
    await lab.until_event("(one|two)", "MixedPolicies", ".*")
    await lab.cordon("a", False)
    await lab.until_running("one")
    await lab.until_running("two")


async def s27_a_job_that_lost_its_quorum_goes_before_a_new_one(lab: Lab) -> None:
    await lab.node("a", "3")
    await lab.submit("hurt", lab.spec(2, **policy("Gang")))
    await lab.until_running("hurt", "2/2")
    await lab.submit("new", lab.spec(2, priority=9, **policy("Gang")))
    await lab.until_waiting("new")
    await lab.node("b", "3", cordoned=True)
    await lab.lose_node("a")
    await lab.until_status("hurt", stage="Rescheduling")
    await lab.cordon("b", False)
    status = await lab.until_running("hurt", "2/2")
    assert (status["restarts"], (await lab.status("new"))["stage"]) == (0, "Pending")
    await lab.edit("hurt", terminating=True)
    await lab.until_running("new", "2/2")


async def s28_of_two_gangs_one_runs_and_the_other_holds_nothing(lab: Lab) -> None:
    for name in ("a", "b"):
        await lab.node(name, "5")
    for name in ("one", "two"):
        await lab.submit(name, lab.spec(5, **policy("Gang")))
    await lab.until_running("one")
    status = await lab.until_waiting("two")
    assert status["scheduleState"] == "Unscheduled"
    assert not status.get("allocations")
    assert await lab.pods("two") == {}
    await lab.edit("one", terminating=True)
    await lab.until_running("two", "5/5")


async def s29_behind_a_gang_that_does_not_fit(lab: Lab) -> None:
    await lab.node("a", "4")
    queue = await lab.queue("strict", strictFIFO=True)
    await lab.foreign_pod("busy", "a", "2")
    await lab.submit("large", lab.spec(3, **policy("Gang"), queue=queue))
    await lab.until_waiting("large")
    await lab.submit("small", lab.spec(1, **policy("Gang"), queue=queue))
    await lab.submit("other", lab.spec(1, **policy("Gang"), priority=1))
    await lab.until_running("other")
    await lab.until_condition("small", "HeldBack", f"queue {queue} is strict, and another job is ahead")


async def s30_a_job_submitted_just_after_a_cycle(lab: Lab) -> None:
    await lab.node("a")
    await lab.submit("one", lab.spec(1))
    await lab.until_status("one", scheduleState="ScheduledSucceed")
    await lab.submit("two", lab.spec(1))
    await lab.until_running("two")


async def s31_binpack_takes_the_fuller_node(lab: Lab) -> None:
    await lab.node("a", "10")
    await lab.node("b", "10")
    await lab.foreign_pod("half", "b", "6")
    await lab.foreign_pod("little", "a", "1")
    await lab.submit("train", lab.spec(1, **policy("BinPack")))
    await lab.until_running("train")
    assert set((await lab.places("train")).values()) == {"b"}


async def s32_job_affinity_takes_one_node(lab: Lab) -> None:
    for name in ("a", "b", "c"):
        await lab.node(name)
    await lab.submit("train", lab.spec(3, **policy("JobAffinity")))
    await lab.until_running("train", "3/3")
    assert len(set((await lab.places("train")).values())) == 1


async def s33_job_anti_affinity_spreads_and_still_places_the_rest(lab: Lab) -> None:
    for name in ("a", "b", "c"):
        await lab.node(name)
    await lab.submit("train", lab.spec(4, **policy("JobAntiAffinity")))
    await lab.until_running("train", "4/4")
    places = await lab.places("train")
    assert sorted(list(places.values()).count(node) for node in ("a", "b", "c")) == [1, 2, 2]


async def s34_leader_first(lab: Lab) -> None:
    for name in ("empty", "full"):
        await lab.node(name, "10")
    await lab.foreign_pod("busy", "full", "6")
    await lab.submit("train", lab.spec(2, **policy("LeaderFirst")))
    await lab.until_running("train", "2/2")
    assert await lab.places("train") == {"learner": "empty", "actors-0": "full", "actors-1": "full"}


async def s36_cpu_pods_leave_gpu_nodes_alone(lab: Lab) -> None:
    await lab.node("gpu", "10", offers={"nvidia.com/gpu": "8"})
    await lab.node("plain", "10")
    await lab.submit("train", lab.spec(2, **policy("MinFragment")))
    await lab.until_running("train", "2/2")
    assert set((await lab.places("train")).values()) == {"plain"}


async def s38_s64_taints_count_for_new_places_only(lab: Lab) -> None:
    tainted = await lab.node("a", "10")
    await lab.submit("before", lab.spec(1))
    await lab.until_running("before", "1/1")
    taints = [{"key": "example.com/reserved", "effect": "NoSchedule"}]
    await lab.api.call("PATCH", f"/api/v1/nodes/{tainted}", {"spec": {"taints": taints}})
    await lab.node("b", "10")
    await lab.submit("after", lab.spec(1))
    await lab.until_running("after", "1/1")
    assert set((await lab.places("after")).values()) == {"b"}
    assert set((await lab.places("before")).values()) == {"a"}
    assert (await lab.status("before"))["stage"] == "Running"


async def s39_cordoned_before_its_pods_are_bound(lab: Lab) -> None:
    await lab.node("a", "10")
    await lab.submit("train", lab.spec(2, **policy("Gang")))
    lab.idle("train-learner")
    await lab.until_status("train", stage="Starting")
    await lab.cordon("a")
    await lab.node("b", "10")
    lab.idle()
    status = await lab.until_running("train", "2/2")
    places = await lab.places("train")
    assert {places["actors-0"], places["actors-1"]} == {"b"}
    assert status["restarts"] == 0


async def s41_s76_a_gang_that_is_one_worker_short_says_so(lab: Lab) -> None:
    await lab.node("a", "64", offers={GPU: "8"})
    await lab.node("b", "64", offers={GPU: "6"})
    spec = lab.spec(2, **policy("Gang"))
    spec["workerSets"][0]["template"]["spec"]["containers"][0]["resources"] = {
        "requests": {GPU: "8"},
        "limits": {GPU: "8"},
    }
    # So that it can fit one day, and only does not now.
    await lab.node("c", "64", cordoned=True, offers={GPU: "8"})
    await lab.submit("train", spec)

    async def is_explained() -> bool:
        message = ((await lab.status("train")).get("explain") or {}).get("message", "")
        return f"{GPU} 8 needed, best node {lab.node_name('b')} has 6" in message

    await lab.until(is_explained, "what is short is explained")
    status = await lab.status("train")
    assert (status["stage"], await lab.pods()) == ("Pending", {})
    # Every node of the cluster is accounted for.
    assert sum(status["explain"]["refusals"].values()) == status["explain"]["nodes"]
    assert status["explain"]["fitting"] == 2
    told = await lab.ask(f"/jobs/{lab.namespace}/train/explain")
    short = {name: told["explain"][name] for name in ("resource", "node", "needed", "free")}
    assert short == {"resource": GPU, "node": lab.node_name("b"), "needed": 8, "free": 6}
    assert told["queuePosition"] >= 1
    assert sum(told["explain"]["refusals"].values()) == told["explain"]["nodes"]


async def s42_part_of_the_workers_and_the_rest_later(lab: Lab) -> None:
    await lab.node("a", "4")
    await lab.submit("train", lab.spec(4, **policy("BinPack"), minWorkersNum=2))
    status = await lab.until_running("train", "3/4")
    assert status["scheduleState"] == "ScheduledPartly"
    await lab.node("b", "4")
    status = await lab.until_running("train", "4/4")
    assert (status["scheduleState"], status["restarts"], status.get("attempt", 0)) == ("ScheduledSucceed", 0, 0)


async def s43_a_gang_that_can_never_fit(lab: Lab) -> None:
    await lab.node("a", "8")
    await lab.submit("train", lab.spec(2, "9", **policy("Gang")))
    status = await lab.until_status("train", stage="Failed", scheduleState="ScheduledFailed")
    assert status["reason"] == "NeverFits"
    message = status["message"]
    assert message.startswith("can never fit on the nodes there are: "), message
    assert f"like {lab.namespace}/train-learner " in message, message
    assert message.endswith(
        f"the cluster, empty, has room for 0; cpu 9 needed, the largest node {lab.node_name('a')} has 8"
    ), message
    assert await lab.pods() == {}


async def s44_s45_s46_counts_change_while_running(lab: Lab) -> None:
    await lab.node("a", "16")
    await lab.submit("train", lab.spec(4, **policy("BinPack"), minWorkersNum=2))
    await lab.until_running("train", "4/4")
    leader = (await lab.pod("train-learner"))["metadata"]["uid"]
    await lab.counts("train", 6)
    status = await lab.until_running("train", "6/6")
    assert (status["restarts"], status.get("attempt", 0)) == (0, 0)
    await lab.counts("train", 4)
    await lab.until_running("train", "4/4")

    async def are_gone() -> bool:
        return sorted(await lab.pods()) == [*(f"train-actors-{n}" for n in range(4)), "train-learner"]

    await lab.until(are_gone, "workers 4 and 5 are gone")
    assert (await lab.pod("train-learner"))["metadata"]["uid"] == leader
    with pytest.raises(Refused, match=r"spec\.minWorkersNum"):
        await lab.counts("train", 1)


async def s47_s48_ready_pods_count(lab: Lab) -> None:
    await lab.node("a", "8")
    lab.idle("alone-actors-0", "train-actors-0")
    await lab.submit("alone", lab.spec(1, minWorkersNum=0))
    await lab.submit("train", lab.spec(1))
    await lab.until_running("alone", "0/1")

    async def is_created() -> bool:
        return "train-actors-0" in await lab.pods()

    await lab.until(is_created, "the worker is created")
    await stay(1.5)
    assert (await lab.status("train"))["stage"] == "Starting"
    lab.idle()
    await lab.until_running("train", "1/1")


async def s49_a_leader_deleted_by_hand(lab: Lab) -> None:
    await lab.node("a", "8")
    await lab.submit("train", lab.spec(2))
    await lab.until_running("train", "2/2")
    before = {pod["metadata"]["uid"] for pod in (await lab.pods()).values()}
    await lab.delete_pod("train-learner")
    await lab.until_status("train", stage="Running", restarts=1, ready="2/2")
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in (await lab.pods()).values())
    await lab.until_event("train", "LeaderLost", r"Running → Rescheduling: the leader's pod was deleted")


async def s50_s51_s72_crashes_and_the_restart_limit(lab: Lab) -> None:
    await lab.node("a", "8")
    await lab.submit("train", lab.spec(1))
    await lab.submit("zero", lab.spec(1, restartLimit=0))
    crashed = {"terminated": {"exitCode": 1, "reason": "Error"}}
    await lab.until_running("zero")
    await lab.report("zero-learner", state=crashed)
    status = await lab.until_status("zero", stage="Failed")
    assert (status["restarts"], status["reason"]) == (1, "RestartLimitExceeded")
    await lab.until_running("train")
    for restarts in range(3):
        await lab.report("train-learner", restarts=restarts, state=crashed)
        await lab.until_status("train", stage="Running", restarts=restarts + 1)
    await lab.report("train-learner", restarts=3, state=crashed)
    status = await lab.until_status("train", stage="Failed", restarts=4)
    assert status["message"] == "the leader failed 4 times; restartLimit is 3"
    await lab.edit("train", terminating=True)
    await stay(1)
    assert (await lab.status("train"))["stage"] == "Failed"


async def s52_an_image_name_that_is_none_and_one_that_cannot_be_pulled(lab: Lab) -> None:
    await lab.node("a", "8")
    lab.idle("wrong-learner", "late-learner", "never-learner")
    for name in ("wrong", "late", "never"):
        await lab.submit(name, lab.spec(1))
    for name in ("wrong", "late", "never"):
        await lab.until_bound(f"{name}-learner")
    await lab.report("wrong-learner", state={"waiting": {"reason": "InvalidImageName", "message": "no such image"}})
    for name in ("late", "never"):
        await lab.report(f"{name}-learner", state={"waiting": {"reason": "ErrImagePull", "message": "registry down"}})
    status = await lab.until_status("wrong", stage="Failed", reason="LeaderImageError")
    assert status["message"] == "InvalidImageName: no such image"
    # Within the grace of 300 s they go on waiting, and one recovers.
    for name in ("late", "never"):
        await lab.age(name, "stageTime", 200)
    await stay(2)
    for name in ("late", "never"):
        assert (await lab.status(name))["stage"] == "Starting"
    lab.idle("never-learner")
    await lab.until_running("late", "1/1")
    await lab.age("never", "stageTime", 101)
    status = await lab.until_status("never", stage="Failed", reason="LeaderImageError")
    assert status["message"] == "ErrImagePull: registry down"


async def s57_too_few_ready_workers_for_longer_than_the_grace(lab: Lab) -> None:
    await lab.node("a", "8")
    await lab.submit("train", lab.spec(2, **policy("Gang")))
    await lab.until_running("train", "2/2")
    leader = (await lab.pod("train-learner"))["metadata"]["uid"]
    unready = {"conditions": [{"type": "Ready", "status": "False"}]}
    await lab.api.call("PATCH", f"{lab.pods_path}/train-actors-1/status", {"status": unready})

    async def is_noticed() -> bool:
        return bool((await lab.status("train")).get("belowQuorumSince"))

    await lab.until(is_noticed, "it is noticed that a worker is not ready")
    await lab.age("train", "belowQuorumSince", 40)
    await stay(2)
    assert (await lab.status("train"))["stage"] == "Running"
    await lab.age("train", "belowQuorumSince", 21)
    await lab.until_status("train", stage="Running", attempt=1, ready="2/2")
    assert (await lab.pod("train-learner"))["metadata"]["uid"] != leader
    await lab.until_event("train", "QuorumLost", r"Running → Rescheduling: only 1 of 2 workers were ready for 60 s")


async def s53_s54_lost_nodes(lab: Lab) -> None:
    for name in ("a", "b", "c"):
        await lab.node(name, "3")
    await lab.submit("train", lab.spec(6, **policy("JobAntiAffinity"), minWorkersNum=3))
    await lab.until_running("train", "6/6")
    places = await lab.places("train")
    other = next(node for node in ("a", "b", "c") if node != places["learner"])
    await lab.node("d", "6")
    await lab.lose_node(other)
    status = await lab.until_running("train", "6/6")

    async def are_replaced() -> bool:
        held = await lab.places("train")
        return len(held) == 7 and other not in held.values()

    await lab.until(are_replaced, "lost workers have new places")
    status = await lab.until_running("train", "6/6")
    assert (status["restarts"], status.get("attempt", 0)) == (0, 0)
    await lab.lose_node(places["learner"])
    await lab.until_status("train", stage="Running", attempt=1, restarts=0)
    await lab.until_event("train", "LeaderLost", r".*(of the leader|the leader lost).*")


async def s55_all_nodes_lost(lab: Lab) -> None:
    await lab.node("a", "8")
    await lab.node("b", "8", cordoned=True)
    await lab.submit("train", lab.spec(2))
    await lab.until_running("train", "2/2")
    await lab.lose_node("a")
    await lab.until_status("train", stage="Rescheduling", scheduleState="Unscheduled")
    await lab.until_no_pods()
    await lab.cordon("b", False)
    status = await lab.until_running("train", "2/2")
    assert status["restarts"] == 0


async def s56_a_worker_that_fails_too_often(lab: Lab) -> None:
    await lab.node("a", "8")
    await lab.submit("train", lab.spec(2, minWorkersNum=1, restartLimit=0))
    await lab.until_running("train", "2/2")
    await lab.report("train-actors-1", "Failed", state={"terminated": {"exitCode": 1, "reason": "Error"}})

    async def is_left_out() -> bool:
        kinds = [each["type"] for each in (await lab.status("train")).get("conditions", [])]
        return "Degraded" in kinds and "train-actors-1" not in await lab.pods()

    await lab.until(is_left_out, "the worker is left out")
    await stay(1.5)
    assert sorted(await lab.pods()) == ["train-actors-0", "train-learner"]
    assert (await lab.status("train"))["stage"] == "Running"


async def s62_s63_a_node_that_has_no_room_after_all(lab: Lab) -> None:
    await lab.node("a", "8")
    await lab.submit("train", lab.spec(3, minWorkersNum=1))
    await lab.until_running("train", "3/3")
    await lab.node("b", "8")
    # The node shrinks under running pods, and its kubelet rejects one.
    shrunk = {"cpu": "1", "memory": "64Gi", "pods": "110"}
    lab.kubelet.nodes[lab.node_name("a")] = {"capacity": shrunk, "allocatable": shrunk}
    await lab.api.call("PATCH", f"/api/v1/nodes/{lab.node_name('a')}/status", {"status": {"allocatable": shrunk}})
    await lab.report("train-actors-2", "Failed", reason="OutOfcpu", message="Node didn't have enough resource: cpu")

    async def is_elsewhere() -> bool:
        return (await lab.places("train")).get("actors-2") == "b"

    await lab.until(is_elsewhere, "the rejected worker has another place")
    status = await lab.until_running("train", "3/3")
    assert (status["restarts"], status.get("workerRestarts", {})) == (0, {})
    assert (await lab.places("train"))["actors-0"] == "a"


async def s68_s70_pods_after_the_end(lab: Lab) -> None:
    await lab.node("a", "8")
    await lab.submit("some", lab.spec(1, cleanPodPolicy="Running"))
    await lab.submit("none", lab.spec(1, cleanPodPolicy="None"))
    for name in ("some", "none"):
        await lab.until_running(name, "1/1")
        await lab.report(f"{name}-learner", "Succeeded")
        await lab.until_status(name, stage="Succeeded")

    async def is_cleaned() -> bool:
        return sorted(await lab.pods()) == ["none-actors-0", "none-learner", "some-learner"]

    await lab.until(is_cleaned, "what still runs is deleted, unless the policy is None")
    # The worker that still runs is counted: 7 of 8 CPUs are left.
    await lab.submit("large", lab.spec(1, "4", **policy("Gang")))
    status = await lab.until_waiting("large")
    assert not status.get("allocations")
    await lab.report("none-actors-0", "Succeeded")
    await lab.until_running("large")


async def s71_terminating_while_pending_and_starting(lab: Lab) -> None:
    await lab.node("a", cordoned=True)
    await lab.submit("pending", lab.spec(1))
    await lab.until_waiting("pending")
    await lab.edit("pending", terminating=True)
    await lab.until_status("pending", stage="Succeeded", reason="Terminated")
    await lab.cordon("a", False)
    lab.idle("starting-learner")
    await lab.submit("starting", lab.spec(1))
    await lab.until_status("starting", stage="Starting")
    await lab.edit("starting", terminating=True)
    await lab.until_status("starting", stage="Succeeded", reason="Terminated")
    await lab.until_no_pods()


async def s73_s74_deleted_and_created_again(lab: Lab) -> None:
    await lab.node("a", "3")
    await lab.submit("train", lab.spec(2, **policy("Gang")))
    await lab.until_running("train", "2/2")
    before = {pod["metadata"]["uid"] for pod in (await lab.pods()).values()}
    await lab.api.call("DELETE", f"{lab.jobs}/train")
    await lab.submit("train", lab.spec(2, **policy("Gang")))
    await lab.until_running("train", "2/2")
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in (await lab.pods()).values())


async def s75_the_job_is_deleted_when_its_time_is_over(lab: Lab) -> None:
    await lab.node("a")
    await lab.submit("train", lab.spec(1, ttlSecondsAfterFinished=2))
    await lab.until_running("train")
    await lab.report("train-learner", "Succeeded")

    async def is_gone() -> bool:
        try:
            await lab.status("train")
        except NotFound:
            return True
        return False

    await lab.until(is_gone, "the job is deleted")
    assert await lab.pods() == {}


async def s80_many_workers_in_a_small_status(lab: Lab) -> None:
    """As many as suits a test; 5,000 in memory: test_allocations.py."""
    for number in range(4):
        await lab.node(f"n{number}", "16")
    await lab.submit("train", lab.spec(60, **policy("Gang")))
    status = await lab.until_running("train", "60/60")
    assert len(str(status["allocations"])) < 60 * 20


async def suspend_and_resume(lab: Lab) -> None:
    await lab.node("a")
    await lab.submit("train", lab.spec(2, **policy("Gang")))
    await lab.until_running("train", "2/2")
    await lab.edit("train", suspend=True)
    status = await lab.until_status("train", stage="Pending")
    assert "Suspended" in [each["type"] for each in status["conditions"]]
    await lab.until_no_pods()
    await lab.edit("train", suspend=False)
    status = await lab.until_running("train", "2/2")
    assert status["restarts"] == 0


async def topology_keeps_a_gang_in_the_smallest_domain(lab: Lab) -> None:
    rack = f"rack-{lab.namespace}"
    for name, domain in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("b2", "b")):
        await lab.node(name, "2", labels={rack: domain})
    topology = {"basicPolicy": "Gang", "placement": "JobAntiAffinity", "topology": {"key": rack}}
    await lab.submit("train", lab.spec(3, schedulerPolicy=topology))
    status = await lab.until_running("train", "3/3")
    assert {node[0] for node in (await lab.places("train")).values()} == {"b"}
    assert status["allocations"]["domain"] == "b"


async def an_unknown_queue_and_its_quota(lab: Lab) -> None:
    await lab.node("a", "16")
    queue = lab.queue_name("team")
    await lab.submit("train", lab.spec(1, queue=queue))
    await lab.until_condition("train", "QueueNotFound", f"there is no JobQueue '{queue}'")
    await lab.queue("team", quota={"cpu": "3"})
    await lab.until_running("train")
    await lab.submit("second", lab.spec(1, queue=queue))
    await lab.until_condition("second", "HeldBack", f"queue {queue} has a quota of 3 cpu, of which fewer than the 2 ")
    path = f"/apis/fairlead.io/v1alpha1/jobqueues/{queue}"

    async def is_reported() -> bool:
        status = (await lab.api.call("GET", path)).get("status") or {}
        return (status.get("used", {}).get("cpu"), status.get("pending"), status.get("running")) == ("2", 1, 1)

    await lab.until(is_reported, "the queue's use is reported")
    await lab.edit("train", terminating=True)
    await lab.until_running("second")


async def a_status_edited_into_nonsense_is_repaired(lab: Lab) -> None:
    await lab.node("a", "8")
    await lab.submit("train", lab.spec(2))
    await lab.until_running("train", "2/2")
    nonsense = {"allocations": {"leader": "nowhere", "workers": {"actors": {"no-node": "0-99999999,x,-1"}}}}
    patch = {
        "status": {**nonsense, "quorum": 2_000_000_000, "attempt": 7, "restarts": 0, "workerRestarts": {"x": {"y": 1}}}
    }
    await lab.api.call("PATCH", f"{lab.jobs}/train/status", patch)

    async def is_repaired() -> bool:
        return list((await lab.places("train")).values()) == ["a"] * 3

    await lab.until(is_repaired, "places are on the node that exists")
    await lab.until_running("train", "2/2")


SCENARIOS: Final[dict[str, Scenario]] = {
    name.replace("_", " "): scenario
    for name, scenario in globals().items()
    if callable(scenario) and getattr(scenario, "__module__", "") == __name__ and name != "policy"
}
