"""Jobs and placement together, in memory: from submit to success, through losses, conflicts and fail-overs."""

import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from fairlead.model.quantity import nanos
from fairlead.model.resources import pod_requests
from fairlead.testing.clock import ManualClock, settle
from tests.jobs.cluster import FakeCluster, Together, turn
from tests.jobs.kit import spec_json, template

GANG = {"basicPolicy": "Gang"}


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    made = FakeCluster(ManualClock())
    for number in range(3):
        made.add_node(f"n{number}")
    yield made
    assert made.complaints == []


async def test_a_job_runs_from_submit_to_success(cluster: FakeCluster) -> None:
    async with Together(cluster).leading():
        key = cluster.submit("train", spec_json(3))
        await turn(cluster)
        status = cluster.status(key)
        assert (status["stage"], status["ready"], status["scheduleState"]) == ("Running", "3/3", "ScheduledSucceed")
        assert len(cluster.pods()) == 4
        cluster.end("train-learner")
        await turn(cluster)
        assert cluster.status(key)["stage"] == "Succeeded"
        assert cluster.pods() == {}
        assert [each.reason for each in cluster.events if each.regarding.kind == "TYJob"] == [
            "Scheduled",
            "QuorumReady",
            "LeaderSucceeded",
        ]


async def test_s28_of_two_gangs_that_do_not_fit_together_one_runs_and_the_other_holds_nothing(
    cluster: FakeCluster,
) -> None:
    async with Together(cluster).leading():
        first = cluster.submit("first", spec_json(6, schedulerPolicy=GANG))
        second = cluster.submit("second", spec_json(6, schedulerPolicy=GANG))
        await turn(cluster)
        assert cluster.status(first)["stage"] == "Running"
        assert cluster.status(second)["stage"] == "Pending"
        assert "allocations" not in cluster.status(second)
        assert cluster.pods("second") == {}
        assert "cpu" in cluster.status(second)["explain"]["message"]
        cluster.end("first-learner")
        await turn(cluster)
        assert cluster.status(second)["stage"] == "Running"


async def test_s22_of_pending_jobs_the_one_of_highest_priority_starts(cluster: FakeCluster) -> None:
    async with Together(cluster).leading():
        keys = {
            priority: cluster.submit(f"job{priority}", spec_json(8, schedulerPolicy=GANG, priority=priority))
            for priority in (3, 9, 5)
        }
        await turn(cluster)
        assert {priority: cluster.status(key)["stage"] for priority, key in keys.items()} == {
            3: "Pending",
            9: "Running",
            5: "Pending",
        }
        assert cluster.status(keys[5])["queuePosition"] == 1
        assert cluster.status(keys[3])["queuePosition"] == 2


async def test_workers_that_end_well_free_their_room_and_are_not_created_again(cluster: FakeCluster) -> None:
    async with Together(cluster).leading():
        key = cluster.submit("train", spec_json(11, schedulerPolicy=GANG, startTimeoutSeconds=60))
        await turn(cluster)
        for name in ("train-actors-3", "train-actors-4", "train-actors-5"):
            cluster.end(name)
        other = cluster.submit("other", spec_json(2, schedulerPolicy=GANG))
        await turn(cluster)
        assert cluster.status(other)["stage"] == "Running"
        await turn(cluster, 70)
        assert (cluster.status(key)["stage"], cluster.status(key)["ready"]) == ("Running", "11/11")
        assert cluster.pods()["train-actors-3"]["status"]["phase"] == "Succeeded"


async def test_s26_a_queue_with_both_policies_is_told_of(cluster: FakeCluster) -> None:
    async with Together(cluster).leading():
        cluster.submit("one", spec_json(30, schedulerPolicy={"basicPolicy": "Gang", "jobQueuePolicy": "DRF"}))
        cluster.submit("two", spec_json(11, schedulerPolicy=GANG))
        three = cluster.submit("three", spec_json(10, schedulerPolicy={"basicPolicy": "Gang", "jobQueuePolicy": "DRF"}))
        await turn(cluster, 3)
        assert "MixedPolicies" in {each.reason for each in cluster.events}
        assert cluster.status(three)["share"] == pytest.approx(11 / 12, abs=1e-3)


async def test_s30_a_job_submitted_just_after_a_cycle_waits_for_the_next_only(cluster: FakeCluster) -> None:
    async with Together(cluster).leading():
        cluster.submit("early", spec_json(1))
        await cluster.clock.advance(1.01)
        key = cluster.submit("late", spec_json(1))
        await turn(cluster, 2)
        assert cluster.status(key)["stage"] == "Running"


async def test_s43_a_gang_that_can_never_fit_fails_within_three_cycles(cluster: FakeCluster) -> None:
    async with Together(cluster).leading():
        key = cluster.submit("huge", spec_json(30, schedulerPolicy=GANG))
        await turn(cluster, 6)
        status = cluster.status(key)
        assert (status["stage"], status["reason"], status["scheduleState"]) == (
            "Failed",
            "NeverFits",
            "ScheduledFailed",
        )
        assert "can never fit" in status["message"]


async def test_s42_workers_beyond_the_minimum_join_when_there_is_room(cluster: FakeCluster) -> None:
    async with Together(cluster).leading():
        key = cluster.submit("train", spec_json(13, minWorkersNum=2))
        await turn(cluster)
        assert (cluster.status(key)["stage"], cluster.status(key)["ready"]) == ("Running", "11/13")
        assert cluster.status(key)["scheduleState"] == "ScheduledPartly"
        cluster.add_node("n9")
        await turn(cluster)
        assert (cluster.status(key)["ready"], cluster.status(key)["restarts"]) == ("13/13", 0)


async def test_s44_s45_counts_are_raised_and_lowered_while_running(cluster: FakeCluster) -> None:
    async with Together(cluster).leading():
        key = cluster.submit("train", spec_json(4))
        await turn(cluster)
        leader = cluster.pods()["train-learner"]["metadata"]["uid"]
        cluster.edit(key, workerSets=[{**spec_json()["workerSets"][0], "counts": 6}])
        await turn(cluster)
        assert cluster.status(key)["ready"] == "6/6"
        cluster.edit(key, workerSets=[{**spec_json()["workerSets"][0], "counts": 2}])
        await turn(cluster)
        assert (cluster.status(key)["ready"], len(cluster.pods())) == ("2/2", 3)
        assert cluster.pods()["train-learner"]["metadata"]["uid"] == leader


async def test_s49_a_leader_deleted_by_hand_comes_back_on_its_node(cluster: FakeCluster) -> None:
    async with Together(cluster).leading():
        key = cluster.submit("train", spec_json(2))
        await turn(cluster)
        before = cluster.pods()["train-learner"]
        cluster.remove("pods", "lab/train-learner")
        await turn(cluster)
        after = cluster.pods()["train-learner"]
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        assert after["spec"]["nodeName"] == before["spec"]["nodeName"]
        assert (cluster.status(key)["stage"], cluster.status(key)["restarts"]) == ("Running", 1)


async def test_s53_s54_a_lost_node_costs_no_restart(cluster: FakeCluster) -> None:
    async with Together(cluster).leading():
        key = cluster.submit("train", spec_json(5, schedulerPolicy={"basicPolicy": "JobAntiAffinity"}))
        await turn(cluster)
        node = cluster.pods()["train-learner"]["spec"]["nodeName"]
        for name, pod in cluster.pods().items():
            if pod["spec"]["nodeName"] == node:
                cluster.remove("pods", f"lab/{name}")
        cluster.remove("nodes", node)
        await turn(cluster, 20)
        assert (cluster.status(key)["stage"], cluster.status(key)["restarts"]) == ("Running", 0)
        assert node not in {pod["spec"]["nodeName"] for pod in cluster.pods().values()}


async def test_a_conflict_gives_the_places_back_and_the_job_is_planned_again(cluster: FakeCluster) -> None:
    async with Together(cluster).leading():
        await turn(cluster, 1)
        cluster.conflicts = 3
        key = cluster.submit("train", spec_json(11, schedulerPolicy=GANG))
        await turn(cluster, 30)
        assert cluster.status(key)["stage"] == "Running"


async def test_s58_s61_another_leader_takes_over_at_any_moment(cluster: FakeCluster) -> None:
    key = cluster.submit("train", spec_json(5, schedulerPolicy=GANG))
    other = cluster.submit("other", spec_json(7, schedulerPolicy=GANG))
    for turns in range(1, 60, 3):
        async with Together(cluster).leading():
            await settle(turns)
            cluster.kubelet()
            await cluster.clock.advance(1)
    async with Together(cluster).leading():
        await turn(cluster)
        stages = {cluster.status(each)["stage"] for each in (key, other)}
        assert stages == {"Running", "Pending"}
        assert len(cluster.pods()) in (6, 8)


async def test_a_new_leader_holds_places_with_what_admission_adds_to_their_pods(cluster: FakeCluster) -> None:
    def limit_range(pod: dict[str, Any]) -> None:
        for container in pod["spec"]["containers"]:
            container.setdefault("resources", {"requests": {"cpu": "4"}})

    cluster.admit = limit_range
    spec = spec_json(2, schedulerPolicy=GANG)
    for part in (spec["leader"], spec["workerSets"][0]):
        del part["template"]["spec"]["containers"][0]["resources"]
    cluster.on_allocated = lambda node: cluster.refuse.update({"train-learner": "the old leader is gone"})
    async with Together(cluster).leading():
        key = cluster.submit("train", spec)
        for _ in range(30):
            if cluster.status(key).get("allocations", {}).get("leader"):
                break
            await cluster.clock.advance(1)
            await settle(5)
    assert cluster.status(key)["allocations"]["leader"]
    assert cluster.pods() == {}
    cluster.refuse.clear()
    taking_over = Together(cluster)
    async with taking_over.leading():
        held = taking_over.loop.reservations.of_maker(key)
        assert {pod_requests(each.pod)["cpu"] for each in held} == {nanos("4")}
        await turn(cluster)
        assert cluster.status(key)["stage"] == "Running"


async def test_suspend_releases_the_places_for_another_job(cluster: FakeCluster) -> None:
    async with Together(cluster).leading():
        first = cluster.submit("first", spec_json(9, schedulerPolicy=GANG))
        await turn(cluster)
        second = cluster.submit("second", spec_json(9, schedulerPolicy=GANG))
        cluster.edit(first, suspend=True)
        await turn(cluster)
        assert (cluster.status(first)["stage"], cluster.status(second)["stage"]) == ("Pending", "Running")
        cluster.edit(first, suspend=False)
        cluster.edit(second, terminating=True)
        await turn(cluster)
        assert (cluster.status(first)["stage"], cluster.status(second)["stage"]) == ("Running", "Succeeded")
        assert cluster.status(first)["restarts"] == 0


async def test_s20_s21_jobs_that_make_no_sense_spoil_no_other(cluster: FakeCluster) -> None:
    bad_quantity = copy.deepcopy(spec_json(1))
    bad_quantity["leader"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "much"}}
    async with Together(cluster).leading():
        keys = [
            cluster.submit("bad-priority", spec_json(1, priority=99)),
            cluster.submit("bad-quantity", bad_quantity),
        ]
        good = cluster.submit("good", spec_json(1))
        await turn(cluster)
        assert cluster.status(good)["stage"] == "Running"
        assert cluster.status(keys[0])["stage"] == "Failed"
        assert cluster.status(keys[1])["stage"] == "Pending"
        (refused,) = cluster.status(keys[1])["conditions"]
        assert (refused["type"], refused["message"]) == (
            "TemplateRefused",
            "leader: 'much' is not a quantity such as 500m, 2, 1.5 or 4Gi",
        )
        assert cluster.pods("bad-priority") == cluster.pods("bad-quantity") == {}


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"deeper": found}
    return found


SETS = [{"name": f"s{number}", "template": template()} for number in range(20_000)]
HOSTILE: dict[str, Any] = {
    "counts": spec_json(10_000),
    "counts-beyond": spec_json(2**62),
    "sets": spec_json(workerSets=SETS),
    "fractions": spec_json(restartLimit=1e308, priority=0.5),
    "forever": spec_json(1, estimatedRunSeconds=2**31 - 1, startTimeoutSeconds=2**31 - 1, ttlSecondsAfterFinished=0),
    "deep": spec_json(1, leader={"name": "learner", "template": template(affinity=nested(400))}),
    "amounts": spec_json(
        1, leader={"name": "learner", "template": template(overhead={"cpu": "1" * 500, "memory": "1e999999999"})}
    ),
    "containers": spec_json(1, leader={"name": "learner", "template": {"spec": {"containers": ["main", 7, None]}}}),
    "labels": spec_json(
        1, leader={"name": "learner", "template": {"metadata": {"labels": 3}, "spec": {"containers": [{}]}}}
    ),
    "env": spec_json(1, leader={"name": "learner", "template": {"spec": {"containers": [{"env": "none"}]}}}),
    "volumes": spec_json(1, volumes=["no volume"]),
    "queue": spec_json(1, queue="q" * 63),
    "nothing": None,
    "list": [1, 2, 3],
}
NONSENSE: list[Any] = [
    {"stage": "Flying"},
    {"stage": "Running", "attempt": 2**63, "allocations": {"leader": 7}},
    {"stage": "Running", "quorum": -5, "allocations": {"leader": "n0", "workers": {"actors": {"n1": "0-999999999"}}}},
    {"stage": "Starting", "stageTime": "yesterday", "retryAfter": "9999-12-31T23:59:59Z", "restarts": -1},
    {"stage": "Pending", "workerRestarts": {"actors": {"0": 2**40, "x": 1}}, "neverFitsCycles": -7},
]


async def test_hostile_jobs_stop_no_other(cluster: FakeCluster) -> None:
    """As they come where validation is bypassed; what a server lets in is bounded more tightly."""
    with capture_logs() as logs:
        async with Together(cluster).leading():
            for name, spec in HOSTILE.items():
                cluster.submit(f"bad-{name}", spec)
            for number, status in enumerate(NONSENSE):
                key = cluster.submit(f"odd-{number}", spec_json(1))
                held = copy.deepcopy(cluster.objects["tyjobs"][key])
                cluster.put("tyjobs", {**held, "status": status})
            good = cluster.submit("good", spec_json(1, priority=10))
            await turn(cluster, 5)
            assert cluster.status(good)["stage"] == "Running"
    bugs = {(each.get("key") or each.get("job") or each.get("unit")) for each in logs if each["log_level"] == "error"}
    assert bugs == set()


async def test_a_template_that_is_refused_is_said_in_the_servers_words_and_tried_again(cluster: FakeCluster) -> None:
    cluster.refuse["train-learner"] = "no PriorityClass with name x was found"
    async with Together(cluster).leading():
        key = cluster.submit("train", spec_json(1))
        await turn(cluster, 3)
        (condition,) = cluster.status(key)["conditions"]
        assert condition["type"] == "TemplateRefused"
        assert condition["message"] == "leader: no PriorityClass with name x was found"
        cluster.refuse.clear()
        await turn(cluster, 15)
        assert cluster.status(key)["stage"] == "Running"


async def test_a_pod_refused_below_the_quorum_releases_the_gang(cluster: FakeCluster) -> None:
    async with Together(cluster).leading():
        await turn(cluster, 1)
        key = cluster.submit("train", spec_json(3, schedulerPolicy=GANG))
        cluster.refuse["train-actors-2"] = "exceeded quota: pods"
        await turn(cluster, 3)
        assert cluster.status(key)["stage"] == "Rescheduling"
        assert "exceeded quota: pods" in cluster.status(key)["message"]
        assert cluster.pods() == {}
        cluster.refuse.clear()
        await turn(cluster, 20)
        assert cluster.status(key)["stage"] == "Running"


async def test_an_unknown_queue_keeps_the_job_pending_until_it_exists(cluster: FakeCluster) -> None:
    async with Together(cluster).leading():
        key = cluster.submit("train", spec_json(1, queue="research"))
        await turn(cluster, 3)
        assert [each["type"] for each in cluster.status(key)["conditions"]] == ["QueueNotFound"]
        cluster.put("jobqueues", {"metadata": {"name": "research"}, "spec": {}})
        await turn(cluster)
        assert cluster.status(key)["stage"] == "Running"


async def test_jobs_of_a_queue_that_makes_no_sense_wait_and_say_so_and_others_go_on(cluster: FakeCluster) -> None:
    cluster.put("jobqueues", {"metadata": {"name": "broken"}, "spec": {"quota": {"memory": "much"}}})
    async with Together(cluster).leading():
        key = cluster.submit("train", spec_json(1, queue="broken"))
        other = cluster.submit("other", spec_json(1))
        await turn(cluster, 5)
        (condition,) = cluster.status(key)["conditions"]
        assert condition["type"] == "QueueInvalid"
        assert "JobQueue 'broken' is invalid" in condition["message"]
        assert "spec.quota.memory: must be a quantity" in condition["message"]
        assert (cluster.status(key)["stage"], cluster.status(other)["stage"]) == ("Pending", "Running")
        cluster.put("jobqueues", {"metadata": {"name": "broken"}, "spec": {"quota": {"cpu": "4"}}})
        await turn(cluster)
        assert cluster.status(key)["stage"] == "Running"
        # One that runs keeps its places, and gets no more.
        cluster.put("jobqueues", {"metadata": {"name": "broken"}, "spec": {"weight": 0}})
        cluster.edit(key, workerSets=spec_json(2)["workerSets"])
        await turn(cluster)
        assert (cluster.status(key)["stage"], cluster.status(key)["ready"]) == ("Running", "1/2")
        cluster.put("jobqueues", {"metadata": {"name": "broken"}, "spec": {}})
        await turn(cluster)
        assert cluster.status(key)["ready"] == "2/2"


async def test_a_job_counts_with_no_more_than_its_queues_highest_priority(cluster: FakeCluster) -> None:
    cluster.put("jobqueues", {"metadata": {"name": "modest"}, "spec": {"maxPriority": 3}})
    async with Together(cluster).leading():
        cluster.submit("busy", spec_json(11, schedulerPolicy=GANG))
        await turn(cluster)
        loud = cluster.submit("a-loud", spec_json(8, schedulerPolicy=GANG, queue="modest", priority=10))
        plain = cluster.submit("b-plain", spec_json(8, schedulerPolicy=GANG, priority=4))
        await turn(cluster, 3)
        cluster.edit("lab/busy", terminating=True)
        await turn(cluster)
        assert [cluster.status(each)["stage"] for each in (loud, plain)] == ["Pending", "Running"]
        # Allowed more, it goes first the next time.
        cluster.put("jobqueues", {"metadata": {"name": "modest"}, "spec": {"maxPriority": 5}})
        late = cluster.submit("a-late", spec_json(8, schedulerPolicy=GANG, priority=4))
        await turn(cluster, 3)
        cluster.edit(plain, terminating=True)
        await turn(cluster)
        assert [cluster.status(each)["stage"] for each in (loud, late)] == ["Running", "Pending"]


async def test_a_quota_holds_jobs_back_and_limits_workers_beyond_the_minimum(cluster: FakeCluster) -> None:
    cluster.put("jobqueues", {"metadata": {"name": "small"}, "spec": {"quota": {"cpu": "4"}}})
    async with Together(cluster).leading():
        first = cluster.submit("first", spec_json(5, queue="small"))
        await turn(cluster)
        assert (cluster.status(first)["stage"], cluster.status(first)["ready"]) == ("Running", "3/5")
        second = cluster.submit("second", spec_json(1, queue="small"))
        await turn(cluster)
        queue = cluster.objects["jobqueues"]["small"]["status"]
        assert queue == {"used": {"cpu": "4"}, "share": 0.3333, "pending": 1, "running": 1}
        assert cluster.status(second)["stage"] == "Pending"
        cluster.edit(first, terminating=True)
        await turn(cluster)
        assert cluster.status(second)["stage"] == "Running"


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"weight": "heavy", "quota": {"cpu": "4"}}, "spec.weight: must be a whole number, got 'heavy'"),
        ({"quota": {"cpu": "many"}}, "spec.quota.cpu: must be a quantity that is not negative"),
        (["no", "rules"], "spec: must be an object"),
    ],
)
async def test_a_queue_that_cannot_be_read_is_reported_once(cluster: FakeCluster, spec: Any, problem: str) -> None:
    cluster.put("jobqueues", {"metadata": {"name": "odd"}, "spec": spec})
    cluster.put("jobqueues", {"metadata": {"name": "sound"}, "spec": {"quota": {"cpu": "4"}}})
    async with Together(cluster).leading():
        await turn(cluster, 60.0)
        reported = [each for each in cluster.events if each.reason == "Unreadable"]
        (event,) = reported
        assert (event.regarding.kind, event.regarding.name, event.warning) == ("JobQueue", "odd", True)
        assert problem in event.note
    async with Together(cluster).leading():
        await turn(cluster, 60.0)
    assert [each for each in cluster.events if each.reason == "Unreadable"] == [event, event]


@pytest.mark.parametrize("strict", [False, True])
async def test_s29_behind_a_gang_that_does_not_fit_a_strict_queue_waits(cluster: FakeCluster, strict: bool) -> None:
    cluster.put("jobqueues", {"metadata": {"name": "q"}, "spec": {"strictFIFO": strict}})
    async with Together(cluster).leading():
        cluster.submit("busy", spec_json(5, schedulerPolicy=GANG))
        await turn(cluster)
        cluster.submit("large", spec_json(10, schedulerPolicy=GANG, queue="q", priority=9))
        small = cluster.submit("small", spec_json(1, queue="q"))
        await turn(cluster)
        assert cluster.status(small)["stage"] == ("Pending" if strict else "Running")


@pytest.mark.parametrize("uid", ["uid-train", "another"], ids=["edited", "created again"])
async def test_places_decided_for_other_pods_are_given_back(cluster: FakeCluster, uid: str) -> None:
    together = Together(cluster)
    async with together.leading():
        key = cluster.submit("train", spec_json(3, schedulerPolicy=GANG))
        source, decided = together.controller.source, together.controller.source.decided

        def change_and_decide(outcome: Any) -> None:
            """The mirror shows the change before the controller hears of the decision."""
            source.decided = decided  # type: ignore[method-assign]
            changed = copy.deepcopy(cluster.objects["tyjobs"][key])
            changed["metadata"]["uid"] = uid
            for part in changed["spec"]["workerSets"]:
                part["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "3"}}
            cluster.put("tyjobs", changed)
            decided(outcome)

        source.decided = change_and_decide  # type: ignore[method-assign]
        with capture_logs() as logs:
            await turn(cluster)
        assert [each for each in logs if each["event"] == "place lost"] == []
        assert (cluster.status(key)["stage"], cluster.status(key)["ready"]) == ("Running", "3/3")


async def test_a_job_that_is_gone_when_its_places_are_written_holds_none(cluster: FakeCluster) -> None:
    together = Together(cluster)
    async with together.leading():
        key = cluster.submit("train", spec_json(3, schedulerPolicy=GANG))
        source, decided = together.controller.source, together.controller.source.decided

        def delete_and_decide(outcome: Any) -> None:
            """The mirror does not show it yet."""
            cluster.objects["tyjobs"].pop(key, None)
            decided(outcome)

        source.decided = delete_and_decide  # type: ignore[method-assign]
        await turn(cluster, 3)
        assert (cluster.events, source.placed()) == ([], [])


async def test_a_place_on_a_cordoned_node_that_is_tolerated_stays_while_the_template_is_refused() -> None:
    cluster = FakeCluster(ManualClock())
    cluster.add_node("n0")
    cluster.objects["nodes"]["n0"]["spec"]["unschedulable"] = True
    tolerant = template(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
    sets = [{"name": "actors", "counts": 2, "template": tolerant}]
    async with Together(cluster).leading():
        key = cluster.submit("train", spec_json(leader={"name": "learner", "template": tolerant}, workerSets=sets))
        await turn(cluster)
    places = cluster.status(key)["allocations"]
    cluster.refuse["train-actors"] = "exceeded quota"
    cluster.remove("pods", "lab/train-actors-1")
    async with Together(cluster).leading():
        await turn(cluster, 3)
        assert "TemplateRefused" in {each["type"] for each in cluster.status(key)["conditions"]}
        assert cluster.status(key)["allocations"] == places
