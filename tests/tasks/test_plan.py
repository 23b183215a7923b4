"""Carriers and rounds as plans: what exists and the time → what is written. Numbers are those of the specification."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from fairlead.model.intents import Apply, Create, Delete, PatchStatus, RecordEvent
from fairlead.tasks.carrier import CarrierObject, missing_part, with_required_term
from fairlead.tasks.endpoints import CarrierEndpoints, probed_services, unlisted_pods
from fairlead.tasks.plan import (
    ENDPOINTS_S,
    ROLLOUT_S,
    CarrierPod,
    Observed,
    PlanOptions,
    plan_refusal,
    plan_task,
)
from fairlead.tasks.spec import KINDS, MISSED, OVERLAP, RUN_NOW, START_WITH, SUSPEND, Actor
from tests.tasks.kit import NAMESPACE, NOW, SPEC, World, carrier_of, make_task, pod, stored


def conditions(world: World) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in world.task.status.conditions}


def events(world: World) -> list[str]:
    return [each.reason for each in world.log if isinstance(each, RecordEvent)]


def test_s1_a_task_gets_a_daemon_set_that_it_owns() -> None:
    world = World(make_task())
    world.settle()
    assert world.workload is not None
    owner = world.workload.metadata.controller
    assert owner is not None
    assert (world.workload.metadata.name, owner.uid) == ("kdoctor-netreach-a", "uid-a")
    assert world.task.status.resource is not None
    assert world.task.status.resource.runtime_status == "creating"
    assert list(world.parts) == [("Service", "kdoctor-netreach-a-ipv4")]
    assert (
        world.parts["Service", "kdoctor-netreach-a-ipv4"].metadata.owner_references[0].uid
        == world.workload.metadata.uid
    )


def test_s2_a_deployment_of_as_many_pods_as_asked_for_on_our_scheduler() -> None:
    task = make_task(spec={**SPEC, "agentSpec": {"kind": "Deployment", "deploymentReplicas": 2}})
    workload = carrier_of(task).workload
    assert (workload["kind"], workload["spec"]["replicas"]) == ("Deployment", 2)
    assert workload["spec"]["template"]["spec"]["schedulerName"] == "fairlead"


def test_s15_a_deployment_without_replicas_has_one() -> None:
    task = make_task(spec={**SPEC, "agentSpec": {"kind": "Deployment"}})
    assert carrier_of(task).workload["spec"]["replicas"] == 1


def test_agents_never_run_on_simulated_nodes_whatever_the_affinity_says() -> None:
    zone = {"key": "zone", "operator": "In", "values": ["z"]}
    other = {"key": "arch", "operator": "Exists"}
    required = {"nodeSelectorTerms": [{"matchExpressions": [zone]}, {"matchExpressions": [other]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    task = make_task(spec={**SPEC, "agentSpec": {"affinity": affinity}})
    found = carrier_of(task).workload["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    terms = found["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    never = {"key": "fairlead.io/provider", "operator": "NotIn", "values": ["simulated", "arklet"]}
    assert [term["matchExpressions"] for term in terms] == [[zone, never], [other, never]]
    assert with_required_term({}, never)["nodeAffinity"]


@pytest.mark.parametrize(
    "affinity",
    [
        {"nodeAffinity": "x"},
        {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [1]}},
        {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": "x"}}},
        {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [1]}}},
        {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": 7}]}}},
        {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}},
    ],
)  # fmt: skip
def test_what_is_no_affinity_or_matches_no_node_is_left_for_the_api_server(affinity: Any) -> None:
    task = make_task(spec={**SPEC, "agentSpec": {"affinity": affinity}})
    assert carrier_of(task).workload["spec"]["template"]["spec"]["affinity"] == affinity


def test_a_carrier_that_the_api_server_refuses_is_told_once() -> None:
    world = World(make_task())
    seen = Observed("NetReach", world.task, carrier_of(world.task))
    plan = plan_refusal(seen, 'DaemonSet.apps "a" is invalid: spec', world.options, world.now)
    for intent in plan.intents:
        world.carry_out(intent)
    assert conditions(world)["CarrierReady"] == ("False", "CarrierRefused")
    assert events(world) == ["CarrierRefused"]
    seen = Observed("NetReach", world.task, carrier_of(world.task))
    later = world.now + timedelta(seconds=60)
    assert plan_refusal(seen, 'DaemonSet.apps "a" is invalid: spec', world.options, later).intents == []
    world.make_ready("n1")
    world.settle()
    assert conditions(world)["CarrierReady"] == ("True", "Ready")


def test_a_task_that_does_not_decode_gets_an_event_with_the_reason() -> None:
    document = {"metadata": {"name": "a", "uid": "u"}, "spec": {"agentSpec": {}, "request": {"qps": 10**9}}}
    rest = KINDS["NetReach"].rest
    assert rest is not None
    task = rest(document)
    assert task is not None
    plan = plan_task(Observed("NetReach", task), World(make_task()).options, NOW)
    (event,) = plan.intents
    assert isinstance(event, RecordEvent)
    assert (event.reason, "spec.request.qps" in event.note) == ("Unreadable", True)
    assert plan.wake_s is None


def test_s12_an_empty_status_is_not_ready() -> None:
    world = World(make_task())
    world.settle()
    assert world.workload is not None
    world.workload = msgspec.structs.replace(
        world.workload, status={"observedGeneration": 0, "desiredNumberScheduled": 1, "numberReady": 1}
    )
    world.settle()
    assert conditions(world)["CarrierReady"] == ("False", "Creating")


def test_s13_created_once_every_agent_is_ready_and_the_round_begins() -> None:
    world = World(make_task())
    world.make_ready("n1", "n2", "n3")
    plan = world.settle()
    status = world.task.status
    assert status.resource is not None
    assert status.resource.runtime_status == "created"
    assert (status.expected_round, status.done_round, status.history[0].status) == (2, 0, "ongoing")
    assert [actor.node for actor in status.actors] == ["n1", "n2", "n3"]
    assert conditions(world)["RoundRunning"] == ("True", "Running")
    assert plan.wake_s is not None
    assert events(world)[:2] == ["CarrierCreated", "CarrierReady"]


def test_s16_a_share_of_ready_agents_is_enough_and_the_rest_is_named() -> None:
    world = World(make_task(annotations={START_WITH: "50%"}))
    world.make_ready("n1", "n2")
    assert world.workload is not None
    world.pods = [pod("p1", "n1"), pod("p2", "n2", ready=False)]
    world.workload = msgspec.structs.replace(
        world.workload, status={"observedGeneration": 1, "desiredNumberScheduled": 2, "numberReady": 1}
    )
    world.settle()
    assert [actor.node for actor in world.task.status.actors] == ["n1"]
    ready = next(each for each in world.task.status.conditions if each.type == "CarrierReady")
    assert (ready.status, ready.message) == ("True", "not ready on: n2")


def test_s16_a_carrier_that_is_not_ready_in_time_is_reported_with_its_nodes() -> None:
    world = World(make_task())
    world.make_ready("n1", "n2")
    assert world.workload is not None
    world.workload = msgspec.structs.replace(world.workload, status={})
    world.pods = [pod("p1", "n1"), pod("p2", "n2", ready=False)]
    plan = world.settle()
    assert plan.wake_s == 601, "nothing else may happen"
    world.now += timedelta(seconds=plan.wake_s)
    world.settle()
    condition = next(each for each in world.task.status.conditions if each.type == "CarrierReady")
    assert condition.reason == "CreationDeadlineExceeded"
    assert "n2" in condition.message
    assert events(world)[-1] == "CreationDeadlineExceeded"


def run_to_finish(world: World, *nodes: str, passed: bool = True) -> None:
    world.make_ready(*nodes)
    for _ in range(2):
        world.settle()
        world.results = {f"uid-pod-{node}": passed for node in nodes}
        world.settle()
        world.results = {}
        if not world.task.status.finish:
            world.now += timedelta(minutes=60)


def test_s24_rounds_are_newest_first_and_the_last_one_finishes_the_task() -> None:
    world = World(make_task())
    run_to_finish(world, "n1", "n2")
    status = world.task.status
    assert (status.finish, status.done_round, status.last_round_status) == (True, 2, "succeed")
    assert [record.round_number for record in status.history] == [2, 1]
    assert conditions(world)["Finished"] == ("True", "Finished")


def test_s22_one_failed_node_fails_the_round_at_once() -> None:
    world = World(make_task())
    world.make_ready("n1", "n2")
    world.settle()
    world.results = {"uid-pod-n1": True, "uid-pod-n2": False}
    world.settle()
    record = next(each for each in world.task.status.history if each.status == "fail")
    assert (record.failure_reason, record.failed_agent_node_list) == ("some agents failed", ["n2"])
    assert record.expected_actor_number == 2
    assert "RoundFailed" in events(world)


def test_s23_a_silent_node_fails_the_round_at_its_deadline() -> None:
    world = World(make_task())
    world.make_ready("n1", "n2")
    world.settle()
    world.results = {"uid-pod-n1": True}
    world.settle()
    world.now += timedelta(minutes=5)
    world.settle()
    record = next(each for each in world.task.status.history if each.status == "fail")
    assert (record.failure_reason, record.not_report_agent_node_list) == ("some agents did not report", ["n2"])


def test_s26_after_a_long_absence_the_missed_round_is_marked_and_the_next_is_in_the_future() -> None:
    spec = {**SPEC, "schedule": {"schedule": "1 60", "roundTimeoutMinute": 5, "roundNumber": -1}}
    world = World(make_task(spec=spec))
    world.make_ready("n1")
    world.settle()
    world.now += timedelta(hours=10)
    world.settle()
    waiting, missed = world.task.status.history[:2]
    assert (missed.status, "missed" in str(missed.failure_reason)) == ("fail", True)
    assert waiting.status == "notstarted"
    assert waiting.start_time_stamp == "2026-01-01T22:01:00Z"


def test_a_missed_round_is_run_once_where_the_annotation_says_so() -> None:
    spec = {**SPEC, "schedule": {"schedule": "1 60", "roundTimeoutMinute": 5, "roundNumber": -1}}
    world = World(make_task(spec=spec, annotations={MISSED: "run"}))
    world.make_ready("n1")
    world.settle()
    world.now += timedelta(hours=10)
    world.settle()
    assert world.task.status.history[0].status == "ongoing"


def test_a_missed_round_waits_for_its_agents_as_others_do() -> None:
    spec = {**SPEC, "schedule": {"schedule": "1 60", "roundTimeoutMinute": 5, "roundNumber": -1}}
    world = World(make_task(spec=spec, annotations={MISSED: "run"}))
    world.options = PlanOptions(settle_s=3.0)
    world.make_ready("n1", "n2")
    world.settle()
    world.now += timedelta(hours=10)
    # Everything was away, this controller too: what it reads first of the pods may be from before.
    world.since = world.now
    assert (world.settle().wake_s, world.task.status.history[0].status) == (3, "notstarted")
    assert conditions(world)["RoundRunning"] == ("False", "WaitingForAgents")
    world.now += timedelta(seconds=1)
    world.pods = [pod(f"pod-{node}", node, ready=False, since=world.now) for node in ("n1", "n2")]
    assert (world.settle().wake_s, world.task.status.history[0].status) == (14, "notstarted")
    world.now += timedelta(seconds=4)
    world.pods = [pod("pod-n1", "n1", since=world.now), *world.pods[1:]]
    world.settle()
    assert conditions(world)["RoundRunning"] == ("False", "WaitingForAgents")
    world.now += timedelta(seconds=1)
    world.pods = [*world.pods[:1], pod("pod-n2", "n2", since=world.now)]
    world.now += timedelta(seconds=3)
    world.settle()
    assert world.task.status.history[0].status == "ongoing"
    assert world.task.status.history[0].start_time_stamp == "2026-01-01T22:00:00Z"
    assert [actor.node for actor in world.task.status.actors] == ["n1", "n2"]


@pytest.mark.parametrize(
    ("since_s", "annotations", "wait_s"),
    [
        pytest.param(0, {}, ENDPOINTS_S, id="it is starting again"),
        pytest.param(-5, {}, ENDPOINTS_S - 5, id="it has been for a while"),
        pytest.param(-60, {}, None, id="it does not come back"),
        pytest.param(0, {START_WITH: "50%"}, None, id="enough are ready"),
    ],
)
def test_a_round_waits_a_while_for_an_agent_that_starts_again(
    since_s: float, annotations: dict[str, str], wait_s: float | None
) -> None:
    world = World(make_task(annotations=annotations))
    world.make_ready("n1", "n2")
    world.pods = [pod("p1", "n1"), pod("p2", "n2", ready=False, since=NOW + timedelta(seconds=since_s))]
    plan = world.settle()
    if wait_s is not None:
        assert (plan.wake_s, world.task.status.history[0].status) == (wait_s, "notstarted")
        assert conditions(world)["RoundRunning"] == ("False", "WaitingForAgents")
        world.now += timedelta(seconds=wait_s)
        world.settle()
    assert world.task.status.history[0].status == "ongoing"


@pytest.mark.parametrize(("duration_s", "wait_s"), [(30, ENDPOINTS_S), (48, 6), (54, None), (60, None)])
def test_a_round_that_waits_keeps_the_time_it_needs(duration_s: int, wait_s: float | None) -> None:
    schedule = {"schedule": "0 60", "roundTimeoutMinute": 1, "roundNumber": 1}
    world = World(make_task(spec={**SPEC, "schedule": schedule, "request": {"durationInSecond": duration_s}}))
    world.make_ready("n1", "n2")
    world.unlisted = ["pod-n2"]
    plan = world.settle()
    if wait_s is not None:
        assert (plan.wake_s, world.task.status.history[0].status) == (wait_s, "notstarted")
        world.now += timedelta(seconds=wait_s)
        world.settle()
    assert world.task.status.history[0].status == "ongoing"


def test_the_next_start_ends_a_round_that_still_runs_where_the_annotation_says_so() -> None:
    spec = {**SPEC, "schedule": {"schedule": "*/10 * * * *", "roundTimeoutMinute": 60, "roundNumber": -1}}
    world = World(make_task(spec=spec, annotations={OVERLAP: "Replace"}))
    world.make_ready("n1")
    world.settle()
    world.now += timedelta(minutes=10)
    world.settle()
    assert world.task.status.history[0].status == "ongoing"
    world.now += timedelta(minutes=10)
    world.settle()
    assert [each.status for each in world.task.status.history[:2]] == ["ongoing", "fail"]


def test_s27_without_a_pod_the_round_fails_with_a_reason() -> None:
    world = World(make_task())
    world.make_ready("n1")
    world.pods = ()
    world.settle()
    world.now += timedelta(minutes=5)
    world.settle()
    record = next(each for each in world.task.status.history if each.status == "fail")
    assert record.failure_reason == "no agent pods"


def test_s28_a_pending_pod_is_no_actor() -> None:
    world = World(make_task())
    world.make_ready("n1")
    world.pods = [pod("p1", "n1"), pod("p2", "")]
    world.settle()
    assert [actor.node for actor in world.task.status.actors] == ["n1"]


def test_s29_a_node_added_during_a_round_takes_part_in_the_next() -> None:
    world = World(make_task())
    world.make_ready("n1")
    world.settle()
    world.pods = [pod("pod-n1", "n1"), pod("pod-n2", "n2")]
    world.results = {"uid-pod-n1": True}
    world.settle()
    assert world.task.status.done_round == 1
    world.results = {}
    world.now += timedelta(minutes=60)
    world.settle()
    assert [actor.node for actor in world.task.status.actors] == ["n1", "n2"]


def test_s32_two_pods_of_a_node_are_judged_both() -> None:
    world = World(make_task())
    world.make_ready("n1")
    world.pods = [pod("a", "n1"), pod("b", "n1")]
    world.settle()
    world.results = {"uid-a": True}
    world.settle()
    assert world.task.status.done_round == 0, "the other pod of the node has not reported yet"
    world.results = {"uid-a": True, "uid-b": False}
    world.settle()
    assert world.task.status.last_round_status == "fail"


def test_s33_the_carrier_goes_a_grace_after_the_end_and_not_before() -> None:
    world = World(make_task(spec={**SPEC, "agentSpec": {"terminationGracePeriodMinutes": 1}}))
    run_to_finish(world, "n1")
    assert world.settle().wake_s == 60
    assert not world.writes("Delete")
    world.now += timedelta(seconds=60)
    world.settle()
    (delete,) = world.writes("Delete")
    assert isinstance(delete, Delete)
    assert delete.uid
    assert world.task.status.resource is not None
    assert world.task.status.resource.runtime_status == "deleted"
    assert world.settle().intents == []


def test_s36_without_grace_late_reports_are_waited_for() -> None:
    world = World(make_task(spec={**SPEC, "agentSpec": {"terminationGracePeriodMinutes": 0}}))
    world.make_ready("n1")
    for _ in range(2):
        world.settle()
        world.now += timedelta(minutes=5)
        world.settle()
        world.now += timedelta(minutes=55) if not world.task.status.finish else timedelta()
    assert world.task.status.finish
    assert not world.writes("Delete")
    world.now += timedelta(seconds=15)
    world.settle()
    assert len(world.writes("Delete")) == 1


def test_s37_the_shared_agent_is_never_deleted() -> None:
    spec = {name: value for name, value in SPEC.items() if name != "agentSpec"}
    world = World(make_task(spec=spec))
    ready = {"observedGeneration": 1, "desiredNumberScheduled": 1, "numberReady": 1}
    world.workload = stored({"metadata": {"name": "fairlead-agent", "namespace": NAMESPACE}, "spec": {}}, "u", **ready)
    world.pods = [pod("pod-n1", "n1")]
    for _ in range(2):
        world.settle()
        world.results = {"uid-pod-n1": True}
        world.settle()
        world.results = {}
        world.now += timedelta(minutes=60)
    assert world.task.status.finish
    world.now += timedelta(days=1)
    world.settle()
    assert not world.writes("Delete")
    assert world.task.status.resource is not None
    assert world.task.status.resource.runtime_status == "created"


def test_s41_a_carrier_deleted_by_hand_is_made_again() -> None:
    world = World(make_task())
    world.make_ready("n1")
    world.settle()
    world.lose()
    world.settle()
    assert world.workload is not None
    assert world.task.status.resource is not None
    assert world.task.status.resource.runtime_status == "creating"
    assert "CarrierLost" in events(world)


def test_s41_a_carrier_that_was_ready_for_long_is_lost_and_not_late() -> None:
    world = World(make_task())
    world.make_ready("n1")
    world.settle()
    world.now += timedelta(hours=1)
    world.lose()
    plan = world.settle()
    assert plan.wake_s == 601, "it has as long as the first one"
    assert events(world)[-2:] == ["CarrierCreated", "CarrierLost"]
    assert conditions(world)["CarrierReady"] == ("False", "Creating")


def test_a_round_on_the_shared_agent_ends_in_time_though_an_agent_is_lost() -> None:
    world = World(make_task(spec={key: value for key, value in SPEC.items() if key != "agentSpec"}))
    body = {"metadata": {"name": "fairlead-agent", "namespace": NAMESPACE}, "spec": {}}
    ready = {"observedGeneration": 1, "desiredNumberScheduled": 2, "numberReady": 2}
    world.workload, world.pods = stored(body, "u", **ready), [pod("p1", "n1"), pod("p2", "n2")]
    world.settle()
    assert world.task.status.history[0].status == "ongoing"
    world.workload = stored(body, "u", **{**ready, "numberReady": 1})
    world.pods, world.results = [pod("p1", "n1"), pod("p2", "n2", ready=False)], {"uid-p1": True}
    world.now += timedelta(minutes=5)
    plan = world.settle()
    waiting, judged = world.task.status.history
    assert (judged.status, judged.succeed_agent_node_list, judged.not_report_agent_node_list) == (
        "fail",
        ["n1"],
        ["n2"],
    )
    world.now += timedelta(minutes=56)
    plan = world.settle()
    assert world.task.status.history[0] == waiting, "the next one waits for the agent"
    assert plan.wake_s == world.options.poll_s


def test_the_carrier_of_a_finished_task_goes_whatever_its_status_says_of_the_kind() -> None:
    world = World(make_task(spec={**SPEC, "agentSpec": {"terminationGracePeriodMinutes": 10}}))
    run_to_finish(world, "n1")
    assert world.task.status.resource is not None
    resource = msgspec.structs.replace(world.task.status.resource, runtime_type="")
    world.task = msgspec.structs.replace(
        world.task, status=msgspec.structs.replace(world.task.status, resource=resource)
    )
    world.now += timedelta(minutes=11)
    world.settle()
    assert world.workload is None


def test_s42_a_service_deleted_by_hand_is_made_again() -> None:
    world = World(make_task())
    world.make_ready("n1")
    world.settle()
    world.parts = {}
    world.settle()
    assert list(world.parts) == [("Service", "kdoctor-netreach-a-ipv4")]


def foreign(**metadata: Any) -> CarrierObject:
    body = {"metadata": {"name": "kdoctor-netreach-a", "namespace": NAMESPACE, **metadata}, "spec": {}}
    return stored(body, "foreign")


def test_s44_a_foreign_workload_is_not_adopted() -> None:
    world = World(make_task())
    world.workload = foreign()
    world.settle()
    assert conditions(world)["CarrierReady"] == ("False", "NameConflict")
    assert not world.writes("Create")
    assert not world.writes("Delete")
    assert events(world) == ["NameConflict"]


def test_s43_the_carrier_of_a_task_of_the_same_name_is_waited_for() -> None:
    owner = {"kind": "NetReach", "name": "a", "uid": "the one before", "controller": True}
    world = World(make_task())
    world.workload = foreign(ownerReferences=[owner])
    plan = world.settle()
    assert conditions(world)["CarrierReady"] == ("False", "Waiting")
    assert plan.wake_s is not None
    world.lose()
    world.settle()
    assert world.workload is not None
    assert world.workload.metadata.controller is not None
    assert world.workload.metadata.controller.uid == "uid-a"


def test_drift_is_repaired_between_rounds_only() -> None:
    world = World(make_task())
    world.make_ready("n1")
    world.settle()
    assert world.workload is not None
    drifted = msgspec.structs.replace(world.workload, spec={**world.workload.spec, "template": {}})
    world.workload = drifted
    assert not [each for each in world.look().intents if isinstance(each, Apply)]
    world.results = {"uid-pod-n1": True}
    world.settle_status()
    assert [type(each).__name__ for each in world.look().intents if isinstance(each, Apply)] == ["Apply"]


def test_s11_a_family_that_the_cluster_lacks_is_a_condition() -> None:
    world = World(make_task())
    world.skipped = ["IPv6"]
    world.settle()
    assert conditions(world)["FamiliesAvailable"] == ("False", "FamilySkipped")


def test_a_suspended_task_starts_no_round_and_goes_on_when_it_is_resumed() -> None:
    world = World(make_task(annotations={SUSPEND: "true"}))
    world.make_ready("n1")
    world.settle()
    assert world.task.status.history == []
    assert conditions(world)["RoundRunning"] == ("False", "Suspended")
    world.task = msgspec.structs.replace(
        world.task, metadata=msgspec.structs.replace(world.task.metadata, annotations={})
    )
    world.settle()
    assert world.task.status.history[0].status == "ongoing"


@pytest.mark.parametrize(
    ("schedule", "zone", "words"), [("x 1", "", "two whole numbers"), ("0 9 * * *", "Nowhere/Here", "no time zone")]
)
def test_a_schedule_that_came_past_the_webhook_is_said_to_be_wrong(schedule: str, zone: str, words: str) -> None:
    spec = {**SPEC, "schedule": {"schedule": schedule}}
    world = World(make_task(spec=spec, annotations={"tasks.fairlead.io/time-zone": zone}))
    world.make_ready("node-1")
    world.settle()
    (found,) = [each for each in world.task.status.conditions if each.type == "RoundRunning"]
    assert (found.status, found.reason) == ("False", "BadSchedule")
    assert words in found.message


def test_run_now_of_a_suspended_task_holds_until_it_is_resumed() -> None:
    spec = {**SPEC, "schedule": {"schedule": "30 60", "roundTimeoutMinute": 5, "roundNumber": -1}}
    world = World(make_task(spec=spec))
    world.make_ready("n1")
    world.settle()
    for annotations, status in (({SUSPEND: "true", RUN_NOW: "1"}, "notstarted"), ({RUN_NOW: "1"}, "ongoing")):
        metadata = msgspec.structs.replace(world.task.metadata, annotations=annotations)
        world.task = msgspec.structs.replace(world.task, metadata=metadata)
        world.settle()
        assert [each.status for each in world.task.status.history] == [status]
        world.now += timedelta(hours=2)


def test_run_now_starts_the_waiting_round_once_per_nonce() -> None:
    spec = {**SPEC, "schedule": {"schedule": "30 60", "roundTimeoutMinute": 5, "roundNumber": -1}}
    world = World(make_task(spec=spec))
    world.make_ready("n1")
    world.settle()
    assert world.task.status.history[0].status == "notstarted"
    metadata = msgspec.structs.replace(world.task.metadata, annotations={RUN_NOW: "1"})
    world.task = msgspec.structs.replace(world.task, metadata=metadata)
    world.settle()
    assert world.task.status.history[0].status == "ongoing"
    world.results = {"uid-pod-n1": True}
    world.settle()
    assert [each.status for each in world.task.status.history] == ["notstarted", "succeed"], "not a second time"


@pytest.mark.parametrize("schedule", ["0 60", "30 60"])
def test_run_now_before_the_first_round_was_planned_starts_that_one_and_no_other(schedule: str) -> None:
    spec = {**SPEC, "schedule": {"schedule": schedule, "roundTimeoutMinute": 5, "roundNumber": 2}}
    world = World(make_task(spec=spec, annotations={SUSPEND: "true", RUN_NOW: "1"}))
    world.make_ready("n1")
    world.settle()
    assert world.task.status.history == []
    metadata = msgspec.structs.replace(world.task.metadata, annotations={RUN_NOW: "1"})
    world.task = msgspec.structs.replace(world.task, metadata=metadata)
    world.settle()
    assert [each.status for each in world.task.status.history] == ["ongoing"]
    world.results = {"uid-pod-n1": True}
    world.settle()
    assert [each.status for each in world.task.status.history] == ["notstarted", "succeed"]


def test_a_deleted_task_is_left_to_the_garbage_collector() -> None:
    world = World(make_task(deletionTimestamp="2026-01-01T00:00:00Z"))
    assert world.look().intents == []


def test_a_status_is_written_at_the_version_it_was_decided_on() -> None:
    world = World(make_task())
    (patch,) = [each for each in world.look().intents if isinstance(each, PatchStatus)]
    assert patch.resource_version == "1"


@pytest.mark.parametrize("stop_after", range(12))
def test_s38_to_40_a_crash_after_any_write_leaves_one_carrier_and_no_round_twice(stop_after: int) -> None:
    """The writes until a moment are carried out, then everything in memory is forgotten and planned anew."""
    world = World(make_task(spec={**SPEC, "agentSpec": {"terminationGracePeriodMinutes": 0}}))
    left = stop_after

    def look_and_perhaps_crash() -> None:
        nonlocal left
        for intent in world.look().intents:
            if left == 0:
                left = -1
                return  # the rest of the plan is lost
            world.carry_out(intent)
            left -= 1

    for _ in range(40):
        look_and_perhaps_crash()
        if world.workload is not None and not world.pods and not world.task.status.finish:
            world.pods = [pod("pod-n1", "n1")]
            world.workload = msgspec.structs.replace(
                world.workload, status={"observedGeneration": 1, "desiredNumberScheduled": 1, "numberReady": 1}
            )
        history = world.task.status.history
        is_ongoing = bool(history) and history[0].status == "ongoing"
        world.results = {"uid-pod-n1": True} if is_ongoing else {}
        if not is_ongoing:
            world.now += timedelta(minutes=60)
    assert world.task.status.finish
    assert [record.round_number for record in world.task.status.history] == [2, 1]
    assert (
        len([each for each in world.writes("Create") if isinstance(each, Create) and each.kind.kind == "DaemonSet"])
        == 1
    )
    assert len(world.writes("Delete")) == 1
    assert world.task.status.resource is not None
    assert world.task.status.resource.runtime_status == "deleted"


def test_a_round_waits_until_services_list_its_pods_and_no_longer_than_a_bound() -> None:
    world = World(make_task())
    world.make_ready("n1", "n2")
    world.unlisted = ["pod-n2"]
    plan = world.settle()
    assert [each.status for each in world.task.status.history] == ["notstarted"]
    assert plan.wake_s == ENDPOINTS_S
    assert conditions(world)["RoundRunning"] == ("False", "WaitingForEndpoints")
    assert [each.message for each in world.task.status.conditions if "pod-n2" in each.message] == [
        "Services do not list yet: pod-n2"
    ]
    world.now += timedelta(seconds=ENDPOINTS_S)
    world.settle()
    assert world.task.status.history[0].status == "ongoing", "what is sent then fails, and says so"
    assert conditions(world)["EndpointsListed"] == ("False", "NotListed")
    world.unlisted = []
    world.settle()
    assert "EndpointsListed" not in conditions(world)


@pytest.mark.parametrize(
    ("target", "ready_s", "wait_s"),
    [
        pytest.param({}, -1, 2, id="what forwards Services learns of a pod later"),
        pytest.param({}, -3, None, id="it has had its time"),
        pytest.param({}, 3600, ENDPOINTS_S, id="a node's clock is ahead"),
        pytest.param({"clusterIP": False, "nodePort": False}, -1, None, id="no Service is probed"),
    ],
)
def test_a_round_through_services_waits_a_moment_after_the_newest_pod_became_ready(
    target: Any, ready_s: float, wait_s: float | None
) -> None:
    world = World(make_task(spec={**SPEC, "target": target}))
    world.options = PlanOptions(settle_s=3.0)
    world.make_ready("n1", "n2")
    old, new = NOW - timedelta(days=1), NOW + timedelta(seconds=ready_s)
    world.pods = [pod("p1", "n1", since=old), pod("p2", "n2", since=new), pod("p3", "n3", ready=False, since=old)]
    plan = world.settle()
    if wait_s is not None:
        assert (plan.wake_s, world.task.status.history[0].status) == (wait_s, "notstarted")
        assert conditions(world)["RoundRunning"] == ("False", "WaitingForEndpoints")
        world.now += timedelta(seconds=wait_s)
        world.settle()
    assert [each.status for each in world.task.status.history] == ["ongoing"]
    assert [actor.pod for actor in world.task.status.actors] == ["p1", "p2"]


@pytest.mark.parametrize(
    ("target", "services"),
    [
        ({}, ["four"]),
        ({"ipv6": True}, ["four", "six"]),
        ({"clusterIP": False, "nodePort": False}, []),
        ({"clusterIP": False, "nodePort": False, "ingress": True}, ["four"]),
    ],
)
def test_only_services_that_are_probed_must_list_the_pods(target: Any, services: list[str]) -> None:
    resource = {"serviceNameV4": "four", "serviceNameV6": "six"}
    task = make_task(spec={"target": target}, status={"resource": resource})
    assert probed_services(task) == services


def test_a_pod_is_listed_once_every_service_has_it_ready() -> None:
    def endpoints(**ready: bool) -> list[CarrierEndpoints]:
        listed = [{"conditions": {"ready": is_ready}, "targetRef": {"uid": uid}} for uid, is_ready in ready.items()]
        return [msgspec.convert({"endpoints": listed}, CarrierEndpoints)]

    actors = [Actor(pod="one", uid="a"), Actor(pod="two", uid="b")]
    assert unlisted_pods([endpoints(a=True, b=True)], actors) == []
    assert unlisted_pods([endpoints(a=True, b=False)], actors) == ["two"]
    assert unlisted_pods([endpoints(a=True, b=True), endpoints(b=True)], actors) == ["one"]
    assert unlisted_pods([[]], actors) == ["one", "two"]
    assert unlisted_pods([], actors) == []


def test_reports_of_a_part_of_the_agents_are_progress_and_the_last_one_is_more() -> None:
    world = World(make_task())
    world.make_ready("n1", "n2")
    world.settle()
    world.results = {"uid-pod-n1": True}
    assert world.look().is_progress, "nothing but a list of nodes is written"
    world.results = {"uid-pod-n1": True, "uid-pod-n2": True}
    assert not world.look().is_progress
    assert world.look().intents


@pytest.mark.parametrize("at", ["", "yesterday", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "9" * 5000])
@pytest.mark.parametrize("stage", ["finished", "notstarted", "ongoing", "succeed"])
def test_a_status_with_times_of_no_calendar_is_planned_all_the_same(stage: str, at: str) -> None:
    record = {"status": stage, "roundNumber": 1, "startTimeStamp": at, "deadLineTimeStamp": at}
    status: dict[str, Any] = {"expectedRound": 5, "doneRound": 0, "history": [record]}
    if stage == "finished":
        record = {**record, "status": "succeed", "notReportAgentNodeList": ["n1"]}
        resource = {"runtimeName": "c", "runtimeType": "DaemonSet", "runtimeStatus": "created"}
        status = {"finish": True, "finishTime": at, "history": [record], "resource": resource}
    spec = {**SPEC, "agentSpec": {"terminationGracePeriodMinutes": 5_256_000}}
    plan = plan_task(Observed("NetReach", make_task(spec=spec, status=status)), PlanOptions(), NOW)
    assert plan.wake_s is None or plan.wake_s >= 0


def test_a_round_waits_until_pods_of_an_older_template_are_replaced_and_no_longer_than_a_bound() -> None:
    world = World(make_task())
    world.make_ready("n1")
    current = carrier_of(world.task).workload["metadata"]["annotations"]["tasks.fairlead.io/template-hash"]

    def with_hash(text: str) -> None:
        raw = msgspec.to_builtins(pod("pod-n1", "n1"))
        raw["metadata"]["annotations"] = {"tasks.fairlead.io/template-hash": text}
        world.pods = [msgspec.convert(raw, CarrierPod)]

    with_hash("older")
    assert world.settle().wake_s == ROLLOUT_S
    assert conditions(world)["RoundRunning"] == ("False", "WaitingForRollout")
    with_hash(current)
    world.settle()
    assert [each.status for each in world.task.status.history] == ["ongoing"]


def test_a_change_of_the_template_and_a_round_do_not_start_together() -> None:
    world = World(make_task())
    world.make_ready("n1")
    assert world.workload is not None
    annotations = {**world.workload.metadata.annotations, "tasks.fairlead.io/template-hash": "older"}
    metadata = msgspec.structs.replace(world.workload.metadata, annotations=annotations)
    world.workload = msgspec.structs.replace(world.workload, metadata=metadata)
    plan = world.step()
    assert [type(each).__name__ for each in plan.intents if isinstance(each, Apply)] == ["Apply"]
    assert "ongoing" not in [each.status for each in world.task.status.history]
    world.now += timedelta(seconds=ROLLOUT_S + 1)
    world.step()
    world.step()
    assert [each.status for each in world.task.status.history] == ["ongoing"], "a drift that stays stops no round"


@pytest.mark.parametrize(
    ("stored_as", "is_missing"),
    [
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, False),
        ({"limits": {"cpu": "1", "memory": "1Gi", "more": "1"}, "requests": {"cpu": "1"}}, False),
        ({"limits": {"cpu": "2", "memory": "1Gi"}}, True),
        ({"limits": {"cpu": "1"}}, True),
        ({}, True),
    ],
)
def test_quantities_are_compared_by_value(stored_as: Any, is_missing: bool) -> None:
    desired = {"resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}}}
    assert missing_part(desired, {"resources": stored_as}) is is_missing
    assert missing_part({"limits": {"cpu": "nonsense"}}, {"limits": {"cpu": "1"}})
    assert not missing_part({"metadata": {}}, {})
