"""From submit to the end, by the tables of plan.py; numbers are the scenarios of the job specification."""

from datetime import timedelta

import msgspec
import pytest

from fairlead.engine.unit import Loss
from fairlead.jobs.observed import Refusal
from fairlead.jobs.plan import PlanOptions
from fairlead.jobs.pods import ADDRESS
from fairlead.jobs.spec import JobStatus, TYJob, parse_spec, parse_status
from fairlead.model.intents import RecordEvent
from fairlead.model.meta import Condition
from tests.jobs.kit import META, World, placed, refused, spec, spec_json, template

ADDRESS_OF_LEADER = "train-learner.train.lab.svc"


def condition(world: World, kind: str) -> Condition | None:
    return next((each for each in world.status.conditions if each.type == kind), None)


# --- basics -----------------------------------------------------------------------------------------------


def test_s01_a_job_with_room_goes_from_pending_over_starting_to_running() -> None:
    world = World(spec(2)).begin()
    assert world.stages == ["Pending", "Starting", "Running"]
    assert (world.status.ready_workers, world.status.total_workers, world.status.ready) == (2, 2, "2/2")
    assert world.status.schedule_state == "ScheduledSucceed"
    assert world.status.start_time


def test_s03_the_job_succeeds_with_its_leader_and_its_pods_are_deleted() -> None:
    world = World(spec(2)).begin()
    world.fail("train-learner", exit_code=0).settle()
    assert (world.status.stage, world.status.reason) == ("Succeeded", "LeaderSucceeded")
    assert world.status.completion_time
    assert world.pods == {}
    assert world.places == {}


def test_s04_no_worker_exists_before_the_leader_has_an_address() -> None:
    world = World(spec(2)).settle(outcome=placed(spec(2)))
    assert list(world.pods) == ["train-learner"]


def test_a_leader_with_a_readiness_probe_must_be_ready_before_workers_are_created() -> None:
    probed = template()
    probed["spec"]["containers"][0]["readinessProbe"] = {"tcpSocket": {"port": 80}}
    job_spec = spec(1, leader={"name": "learner", "template": probed})
    world = World(job_spec).settle(outcome=placed(job_spec))
    world.set("train-learner", phase="Running", pod_ip="10.0.0.1").settle()
    assert list(world.pods) == ["train-learner"]
    world.run("train-learner").settle()
    assert sorted(world.pods) == ["train-actors-0", "train-learner"]


def test_s05_workers_get_the_address_their_set_and_their_index() -> None:
    world = World(spec(2)).begin()
    env = {each["name"]: each["value"] for each in world.bodies["train-actors-1"]["spec"]["containers"][0]["env"]}
    assert env == {
        "TYJOB_NAME": "train",
        "TYJOB_ROLE": "worker",
        "TYJOB_WORKERS": "2",
        "TYJOB_ATTEMPT": "0",
        ADDRESS: ADDRESS_OF_LEADER,
        "TYJOB_WORKER_SET": "actors",
        "TYJOB_WORKER_INDEX": "1",
    }
    assert world.status.leader_address == ADDRESS_OF_LEADER


def test_address_mode_ip_gives_workers_the_leaders_ip_and_needs_no_service() -> None:
    world = World(spec(1, addressMode="IP")).begin()
    assert world.status.leader_address == "10.0.0.1"
    assert world.services == 0


def test_s06_every_pod_lists_a_shared_volume_once() -> None:
    world = World(spec(2, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}])).begin()
    assert [[each["name"] for each in body["spec"]["volumes"]] for body in world.bodies.values()] == [
        ["data"],
        ["data"],
        ["data"],
    ]


def test_s07_pods_of_a_set_have_its_name_and_label() -> None:
    sets = [
        {"name": "fast", "counts": 1, "template": template()},
        {"name": "slow", "counts": 2, "template": template()},
    ]
    world = World(spec(workerSets=sets, minWorkersNum=3)).begin()
    labels = {name: pod.metadata.labels.get("fairlead.io/worker-set") for name, pod in world.pods.items()}
    assert labels == {"train-learner": None, "train-fast-0": "fast", "train-slow-0": "slow", "train-slow-1": "slow"}


def test_a_leader_that_always_restarts_restarts_on_failure_only() -> None:
    world = World(spec(1)).begin()
    assert world.bodies["train-learner"]["spec"]["restartPolicy"] == "OnFailure"
    assert "restartPolicy" not in world.bodies["train-actors-0"]["spec"]


# --- gang and elastic -------------------------------------------------------------------------------------


def test_s41_a_gang_that_does_not_fit_creates_nothing_and_says_why() -> None:
    world = World(spec(4, schedulerPolicy={"basicPolicy": "Gang"})).settle(outcome=refused())
    assert (world.status.stage, world.status.schedule_state) == ("Pending", "Unscheduled")
    assert world.pods == {}
    assert world.status.explain is not None
    assert "train-actors-0 does not" in world.status.explain.message


def test_s42_part_of_the_workers_is_enough_and_the_rest_joins_later() -> None:
    job_spec = spec(4, minWorkersNum=2)
    world = World(job_spec).settle(outcome=placed(job_spec, 4))
    world.run("train-learner").settle().run().settle()
    assert (world.status.stage, world.status.ready, world.status.schedule_state) == (
        "Running",
        "3/4",
        "ScheduledPartly",
    )
    world.settle(outcome=placed(job_spec, start=4)).run().settle()
    assert (world.status.ready, world.status.schedule_state, world.status.attempt) == ("4/4", "ScheduledSucceed", 0)


def test_s43_a_job_that_can_never_fit_fails_with_the_proof_after_three_cycles() -> None:
    world = World(spec(2))
    for cycle in (1, 2):
        world.settle(outcome=refused(never=True))
        assert (world.status.stage, world.status.never_fits_cycles) == ("Pending", cycle)
        assert condition(world, "NeverFits") is not None
    world.settle(outcome=refused(never=True))
    assert (world.status.stage, world.status.reason) == ("Failed", "NeverFits")
    assert world.status.schedule_state == "ScheduledFailed"
    assert "3 pods like lab/train-actors-0 are needed" in world.status.message


def test_s43_with_autoscaling_it_stays_pending() -> None:
    world = World(spec(2), options=PlanOptions(autoscaling=True))
    for _ in range(5):
        world.settle(outcome=refused(never=True))
    assert (world.status.stage, world.status.schedule_state) == ("Pending", "Unscheduled")
    assert condition(world, "NeverFits") is not None


def test_s44_more_workers_are_added_without_a_restart() -> None:
    world = World(spec(4, schedulerPolicy={"basicPolicy": "Gang"})).begin()
    world.spec = spec(6, schedulerPolicy={"basicPolicy": "Gang"})
    world.settle()
    assert (world.status.stage, world.status.schedule_state, world.status.ready) == (
        "Running",
        "ScheduledPartly",
        "4/6",
    )
    world.settle(outcome=placed(world.spec, start=5)).run().settle()
    assert (world.status.ready, world.status.restarts, world.status.attempt) == ("6/6", 0, 0)
    assert world.stages == ["Pending", "Starting", "Running"]


def test_s45_fewer_workers_remove_the_highest_indexes() -> None:
    world = World(spec(6)).begin()
    before = world.pods["train-learner"].metadata.uid
    world.spec = spec(4)
    world.settle()
    assert sorted(world.pods) == [*(f"train-actors-{n}" for n in range(4)), "train-learner"]
    assert world.pods["train-learner"].metadata.uid == before
    assert (world.status.stage, world.status.schedule_state, world.status.ready) == (
        "Running",
        "ScheduledSucceed",
        "4/4",
    )


def test_s47_without_needed_workers_the_leader_alone_makes_it_running() -> None:
    job_spec = spec(2, minWorkersNum=0)
    world = World(job_spec).settle(outcome=placed(job_spec, 1)).run("train-learner").settle()
    assert world.status.stage == "Running"


def test_s48_workers_that_are_created_but_not_ready_do_not_count() -> None:
    world = World(spec(2, minWorkersNum=2)).settle(outcome=placed(spec(2))).run("train-learner").settle()
    world.run("train-actors-0").settle()
    assert sorted(world.pods) == ["train-actors-0", "train-actors-1", "train-learner"]
    assert (world.status.stage, world.status.ready) == ("Starting", "1/2")


def test_a_decision_below_the_quorum_is_no_decision() -> None:
    job_spec = spec(4, minWorkersNum=3)
    world = World(job_spec).settle(outcome=placed(job_spec, 3))
    assert (world.status.stage, world.places) == ("Pending", {})


def test_workers_without_the_leader_are_no_decision() -> None:
    job_spec = spec(4)
    world = World(job_spec).settle(outcome=placed(job_spec, start=1))
    assert (world.status.stage, world.places) == ("Pending", {})


# --- faults -----------------------------------------------------------------------------------------------


def test_s49_a_leader_deleted_by_hand_costs_a_restart_and_workers_are_created_anew() -> None:
    world = World(spec(2)).begin()
    before = {pod.metadata.uid for pod in world.pods.values()}
    del world.pods["train-learner"]
    assert world.plan().status.message == "the leader's pod was deleted"
    world.settle()
    assert world.stages[-2:] == ["Rescheduling", "Starting"]
    assert list(world.pods) == ["train-learner"]
    world.run("train-learner").settle().run().settle()
    assert (world.status.stage, world.status.restarts, world.status.attempt) == ("Running", 1, 1)
    assert before.isdisjoint(pod.metadata.uid for pod in world.pods.values())


def test_s50_the_fourth_crash_exceeds_a_limit_of_three() -> None:
    world = World(spec(1)).begin()
    for restarts in range(3):
        world.state("train-learner", restarts=restarts, waiting={"reason": "CrashLoopBackOff"}).settle()
        assert (world.status.stage, world.status.restarts) == ("Running", restarts + 1)
    world.state("train-learner", restarts=3, terminated={"exitCode": 1}).settle()
    assert (world.status.stage, world.status.reason, world.status.restarts) == ("Failed", "RestartLimitExceeded", 4)
    assert world.pods == {}


def test_s50_with_restart_policy_never_each_crash_is_a_new_pod() -> None:
    never = {"name": "learner", "template": template(restartPolicy="Never")}
    world = World(spec(1, leader=never)).begin()
    for count in (1, 2, 3):
        world.fail("train-learner").settle()
        assert (world.status.stage, world.status.restarts) == ("Starting", count)
        world.run("train-learner").settle().run().settle()
        assert world.status.stage == "Running"
    world.fail("train-learner").settle()
    assert (world.status.stage, world.status.restarts) == ("Failed", 4)


def test_s50_crashes_of_the_templates_first_container_count_wherever_its_status_is() -> None:
    two = template(containers=[{"name": "trainer", "image": "i"}, {"name": "agent", "image": "i"}])
    world = World(spec(1, leader={"name": "learner", "template": two})).begin()
    world.containers("train-learner", ("agent", 0, {}), ("trainer", 4, {})).settle()
    assert (world.status.stage, world.status.reason) == ("Failed", "RestartLimitExceeded")


def test_crashes_of_another_container_are_no_restarts_of_the_leader() -> None:
    two = template(containers=[{"name": "trainer", "image": "i"}, {"name": "agent", "image": "i"}])
    world = World(spec(1, leader={"name": "learner", "template": two})).begin()
    world.containers("train-learner", ("agent", 4, {}), ("trainer", 1, {})).settle()
    assert (world.status.stage, world.status.restarts) == ("Running", 1)


def test_s51_a_limit_of_zero_fails_at_the_first_crash() -> None:
    world = World(spec(1, restartLimit=0)).begin()
    world.state("train-learner", waiting={"reason": "CrashLoopBackOff"}).settle()
    assert (world.status.stage, world.status.restarts) == ("Failed", 1)


def test_s52_an_image_name_that_is_none_fails_at_once() -> None:
    world = World(spec(1)).settle(outcome=placed(spec(1)))
    world.state("train-learner", waiting={"reason": "InvalidImageName", "message": "bad"}).settle()
    assert (world.status.stage, world.status.reason) == ("Failed", "LeaderImageError")
    assert world.status.message == "InvalidImageName: bad"


def test_s52_the_image_of_any_container_counts() -> None:
    world = World(spec(1)).settle(outcome=placed(spec(1)))
    waiting, invalid = {"waiting": {"reason": "ContainerCreating"}}, {"waiting": {"reason": "InvalidImageName"}}
    world.containers("train-learner", ("main", 0, waiting), ("other", 0, invalid)).settle()
    assert (world.status.stage, world.status.message) == ("Failed", "InvalidImageName")


def test_a_leader_that_has_succeeded_is_not_run_again_because_its_place_was_lost_meanwhile() -> None:
    world = World(spec(1)).begin()
    world.fail("train-learner", exit_code=0).settle(lost={("", 0): Loss.PREEMPTED})
    assert (world.status.stage, world.status.reason) == ("Succeeded", "LeaderSucceeded")


def test_s52_an_image_that_cannot_be_pulled_fails_only_after_five_minutes() -> None:
    world = World(spec(1)).settle(outcome=placed(spec(1)))
    world.state("train-learner", waiting={"reason": "ImagePullBackOff"}).advance(299).settle()
    assert world.status.stage == "Starting"
    assert world.plan().wake_s == pytest.approx(1)
    recovered = World(spec(1), msgspec.structs.replace(world.status), dict(world.pods), now=world.now)
    recovered.state("train-learner").run("train-learner").settle().run().settle()
    assert recovered.status.stage == "Running"
    world.advance(1).settle()
    assert (world.status.stage, world.status.reason) == ("Failed", "LeaderImageError")


def test_s53_the_loss_of_some_workers_keeps_the_job_running() -> None:
    job_spec = spec(8, minWorkersNum=4)
    world = World(job_spec).begin()
    del world.pods["train-actors-6"], world.pods["train-actors-7"]
    world.settle(lost={("actors", 6): Loss.NODE_GONE, ("actors", 7): Loss.NODE_GONE})
    assert (world.status.stage, world.status.ready, world.status.schedule_state) == (
        "Running",
        "6/8",
        "ScheduledPartly",
    )
    world.settle(outcome=placed(job_spec, start=7, node="new{}")).run().settle()
    assert (world.status.ready, world.status.restarts) == ("8/8", 0)


def test_s54_the_loss_of_the_leaders_node_costs_no_restart() -> None:
    world = World(spec(2)).begin()
    lost_leader = {("", 0): Loss.NODE_GONE}
    world.settle(lost=lost_leader)
    assert (world.status.stage, world.status.restarts, world.places) == ("Rescheduling", 0, {})
    assert world.status.message == "the leader lost its place on node n0: the node is gone"
    assert world.pods == {}
    world.settle(outcome=placed(world.spec, node="new{}")).run("train-learner").settle().run().settle()
    assert world.status.stage == "Running"


def test_s54_it_costs_one_where_infrastructure_failures_count() -> None:
    world = World(spec(2, countInfraFailures=True)).begin()
    world.settle(lost={("", 0): Loss.NODE_GONE})
    assert world.status.restarts == 1


def test_s55_without_nodes_nothing_is_created() -> None:
    world = World(spec(2)).begin()
    world.pods.clear()
    lost = {("", 0): Loss.NODE_GONE, ("actors", 0): Loss.NODE_GONE, ("actors", 1): Loss.NODE_GONE}
    world.settle(lost=lost)
    for _ in range(3):
        world.settle(outcome=refused()).advance(60)
    assert (world.status.stage, world.status.schedule_state, world.pods) == ("Rescheduling", "Unscheduled", {})


def test_a_gang_that_lost_one_place_says_which() -> None:
    gang = spec(2, schedulerPolicy={"basicPolicy": "Gang"})
    world = World(gang).settle(outcome=placed(gang))
    world.settle(lost={("actors", 1): Loss.TAKEN})
    assert (world.status.stage, world.status.reason) == ("Rescheduling", "PlacesLost")
    assert world.status.message == "too few pods have a place (node n2: pods of another scheduler took the room)"


def test_s56_a_worker_that_fails_too_often_is_not_created_again() -> None:
    world = World(spec(3, minWorkersNum=1, restartLimit=1)).begin()
    for _ in range(2):
        world.fail("train-actors-2").settle()
        if "train-actors-2" in world.pods:
            world.run("train-actors-2").settle()
    assert "train-actors-2" not in world.pods
    degraded = condition(world, "Degraded")
    assert degraded is not None
    assert "actors-2" in degraded.message
    assert (world.status.stage, world.status.failed_workers) == ("Running", 1)


def test_workers_that_fail_too_often_for_the_quorum_fail_the_job() -> None:
    world = World(spec(1, restartLimit=0)).begin()
    world.fail("train-actors-0").settle()
    assert (world.status.stage, world.status.reason) == ("Failed", "WorkerRestartLimitExceeded")


def test_workers_whose_work_is_done_count_and_are_not_created_again() -> None:
    world = World(spec(2, minWorkersNum=2)).begin()
    world.fail("train-actors-1", exit_code=0).settle(lost={("actors", 1): Loss.EXPIRED})
    world.unusable = frozenset({"n2"})
    world.advance(120).settle()
    assert (world.status.stage, world.status.ready) == ("Running", "2/2")
    assert world.pods["train-actors-1"].status.phase == "Succeeded"
    # Looked up once per worker: of 10,000 workers it must not be worked out 10,000 times.
    seen = world.look()
    assert seen.done is seen.done != frozenset()


def test_s57_a_quorum_that_stays_lost_for_a_minute_is_rescheduled() -> None:
    world = World(spec(2, minWorkersNum=2)).begin()
    world.set("train-actors-0", conditions=(Condition(type="Ready", status="False"),)).settle()
    world.advance(59).settle()
    assert (world.status.stage, world.status.ready) == ("Running", "1/2")
    world.advance(1).settle()
    assert world.stages[-2:] == ["Rescheduling", "Starting"]
    assert world.status.restarts == 0


def test_s58_a_leader_created_before_a_crash_is_not_created_twice() -> None:
    world = World(spec(2)).settle(outcome=placed(spec(2)))
    assert world.plan().intents == ()
    after_crash = World(world.spec, world.status, dict(world.pods), services=1)
    after_crash.settle()
    assert list(after_crash.pods) == ["train-learner"]


def test_s59_only_missing_workers_are_created_after_a_crash() -> None:
    world = World(spec(4)).settle(outcome=placed(spec(4))).run("train-learner").settle()
    for name in ("train-actors-1", "train-actors-3"):
        del world.pods[name]
    kept = world.pods["train-actors-0"].metadata.uid
    world.settle()
    assert len(world.pods) == 5
    assert world.pods["train-actors-0"].metadata.uid == kept


def test_s62_a_pod_that_its_node_rejects_loses_its_place_without_a_restart() -> None:
    job_spec = spec(3, minWorkersNum=1)
    world = World(job_spec).begin()
    world.set("train-actors-2", phase="Failed", reason="OutOfcpu", conditions=()).settle()
    assert ("actors", 2) not in world.places
    assert "train-actors-2" not in world.pods
    assert (world.status.stage, world.status.worker_restarts) == ("Running", {})


def test_a_pod_that_the_server_refuses_below_the_quorum_releases_the_gang() -> None:
    gang = spec(2, schedulerPolicy={"basicPolicy": "Gang"})
    world = World(gang).settle(outcome=placed(gang)).run("train-learner").settle()
    del world.pods["train-actors-1"]
    world.settle(refusal=Refusal("train-actors-1", "exceeded quota"))
    assert (world.status.stage, world.places, world.pods) == ("Rescheduling", {}, {})
    assert "exceeded quota" in world.status.message
    assert world.plan().wake_s == pytest.approx(5)
    world.settle(outcome=placed(world.spec))
    assert world.places == {}, "planned again before its time"
    world.advance(5).settle(outcome=placed(world.spec))
    assert world.status.stage == "Starting"


def test_a_worker_beyond_the_quorum_that_the_server_refuses_does_not_stop_the_others() -> None:
    world = World(spec(2)).settle(outcome=placed(spec(2))).run("train-learner").settle()
    del world.pods["train-actors-1"]
    plan = world.plan(refusal=Refusal("train-actors-1", "exceeded quota"))
    assert (plan.status.stage, plan.status.allocations) == ("Starting", world.status.allocations)
    world.run().settle()
    assert (world.status.stage, world.status.ready) == ("Running", "1/2")


def test_s67_a_clock_that_is_set_back_holds_nobody_up() -> None:
    world = World(spec(2, startTimeoutSeconds=100)).settle(outcome=placed(spec(2)))
    late = world.advance(100).settle().status.stage
    assert late == "Rescheduling"
    world.advance(-3600).settle(outcome=placed(world.spec))
    assert world.status.stage == "Starting"


def test_a_start_that_takes_too_long_releases_the_gang() -> None:
    world = World(spec(2, startTimeoutSeconds=100)).settle(outcome=placed(spec(2)))
    world.advance(100).settle()
    assert (world.status.stage, world.status.reason, world.places) == ("Rescheduling", "StartTimeout", {})
    assert world.pods == {}


def test_a_bound_pod_outside_its_place_is_deleted() -> None:
    world = World(spec(2)).begin()
    pod = world.pods["train-actors-1"]
    uid = pod.metadata.uid
    world.pods["train-actors-1"] = msgspec.structs.replace(
        pod, spec=msgspec.structs.replace(pod.spec, node_name="elsewhere")
    )
    world.settle()
    assert world.pods["train-actors-1"].metadata.uid != uid


# --- end of life ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        pytest.param("Running", ["train-learner"], id="s68: the finished leader stays"),
        pytest.param("All", [], id="s69: nothing stays"),
        pytest.param("None", ["train-actors-0", "train-actors-1", "train-learner"], id="s70: all stay"),
    ],
)
def test_pods_after_the_end(policy: str, left: list[str]) -> None:
    world = World(spec(2, cleanPodPolicy=policy)).begin()
    world.fail("train-learner", exit_code=0).settle()
    assert sorted(world.pods) == left


@pytest.mark.parametrize("stage", ["Pending", "Starting", "Running"])
def test_s71_terminating_ends_the_job_in_every_stage(stage: str) -> None:
    world = World(spec(2))
    world = {
        "Pending": lambda: world.settle(),
        "Starting": lambda: world.settle(outcome=placed(world.spec)),
        "Running": lambda: world.begin(),
    }[stage]()
    assert world.status.stage == stage
    world.spec = spec(2, terminating=True)
    world.settle()
    assert (world.status.stage, world.pods, world.places) == ("Succeeded", {}, {})
    assert condition(world, "Terminated") is not None


def test_s72_terminating_after_the_end_changes_nothing() -> None:
    world = World(spec(1, restartLimit=0)).begin()
    world.state("train-learner", waiting={"reason": "CrashLoopBackOff"}).settle()
    before = world.status
    world.spec = spec(1, restartLimit=0, terminating=True)
    world.settle()
    assert world.status == before


def test_s74_pods_of_an_earlier_job_of_the_name_are_waited_for() -> None:
    world = World(spec(2)).settle(outcome=placed(spec(2)), strangers=("train-learner",))
    assert (world.status.stage, world.places) == ("Pending", {})
    assert condition(world, "NamesTaken") is not None


def test_s75_the_job_is_deleted_when_its_time_is_over_and_its_pods_are_gone() -> None:
    world = World(spec(1, ttlSecondsAfterFinished=60, cleanPodPolicy="Running")).begin()
    world.fail("train-learner", exit_code=0).settle()
    world.advance(59).settle()
    assert not world.deleted
    world.advance(1)
    world.carry_out(world.plan())
    assert world.deleted


def test_suspending_a_running_job_deletes_its_pods_and_resuming_starts_it_again() -> None:
    world = World(spec(2)).begin()
    world.spec = spec(2, suspend=True)
    world.settle()
    assert (world.status.stage, world.pods, world.places, world.status.restarts) == ("Pending", {}, {}, 0)
    assert condition(world, "Suspended") is not None
    world.settle(outcome=placed(world.spec))
    assert world.places == {}
    world.spec = spec(2)
    world.begin()
    assert (world.status.stage, world.status.restarts) == ("Running", 0)


def test_warnings_are_events_of_the_first_look_and_conditions() -> None:
    world = World(spec(2))
    first = world.plan(warnings=("mind the gap",))
    assert [each.note for each in first.events if isinstance(each, RecordEvent)] == ["mind the gap"]
    world.settle(warnings=("mind the gap",))
    assert condition(world, "SpecWarning") is not None
    assert world.plan(warnings=("mind the gap",)).events == ()


# --- bad input --------------------------------------------------------------------------------------------


def test_s20_an_invalid_job_that_got_past_the_server_fails_without_pods() -> None:
    bad = parse_spec(TYJob(metadata=META, spec=spec_json(2, priority=11)))
    assert isinstance(bad, str)
    world = World(spec(2)).settle(spec_problem=bad)
    assert (world.status.stage, world.status.reason, world.pods) == ("Failed", "InvalidSpec", {})
    assert condition(world, "InvalidSpec") is not None


def test_a_template_that_the_server_refuses_keeps_the_job_pending() -> None:
    world = World(spec(2)).settle(outcome=placed(spec(2)), template_problem="leader: no PriorityClass x")
    assert (world.status.stage, world.places) == ("Pending", {})
    refusal = condition(world, "TemplateRefused")
    assert refusal is not None
    assert refusal.message == "leader: no PriorityClass x"


@pytest.mark.parametrize(
    "nonsense",
    [
        pytest.param({"stage": "Running"}, id="running without anything"),
        pytest.param({"stage": "Running", "quorum": 1000, "attempt": 7}, id="a quorum of nobody"),
        pytest.param({"stage": "Starting", "allocations": {"workers": {"actors": {"n1": "0-9"}}}}, id="no leader"),
        pytest.param({"stage": "Starting", "allocations": {"leader": "n1"}}, id="below the quorum"),
        pytest.param({"stage": "Rescheduling", "retryAfter": "soon"}, id="a time that is none"),
        pytest.param({"stage": "Running", "attempt": -5}, id="a negative attempt"),
        pytest.param({"stage": "Running", "attempt": 2**31 - 1, "backoffs": 2**31 - 1}, id="the largest attempt"),
        pytest.param({"stage": "Running", "attempt": 2**70}, id="an attempt beyond 64 bits"),
        pytest.param({"stage": "Running", "quorum": -1, "restarts": -3}, id="negative counts"),
        pytest.param({"workerRestarts": {"actors": {"0": -1}}}, id="negative restarts of a worker"),
        pytest.param({"stage": "Starting", "stageTime": "9999-12-31T23:59:59Z"}, id="a stage of the year 9999"),
        pytest.param({"stage": "Running", "leaderAddress": "elsewhere.example"}, id="an address of nobody"),
    ],
)
def test_a_status_edited_into_nonsense_is_repaired(nonsense: dict[str, object]) -> None:
    stored, _ = parse_status(TYJob(metadata=META, status=nonsense))
    world = World(spec(2), stored).settle()
    world.now += timedelta(seconds=61)
    world.settle(outcome=placed(world.spec))
    for _ in range(3):
        world.run().settle()
    assert (world.status.stage, world.status.ready) == ("Running", "2/2")


@pytest.mark.parametrize("address", ["", "elsewhere.example"])
def test_an_address_that_was_edited_is_set_right_and_workers_get_it(address: str) -> None:
    world = World(spec(2)).begin()
    world.status = msgspec.structs.replace(world.status, leader_address=address)
    del world.pods["train-actors-1"]
    world.settle()
    for _ in range(2):
        world.run().settle()
    assert (world.status.stage, world.status.ready, world.status.restarts) == ("Running", "2/2", 0)
    assert world.status.leader_address == ADDRESS_OF_LEADER


@pytest.mark.parametrize("stamp", ["", "soon", "9999-12-31T23:59:59Z"])
def test_an_end_at_no_time_counts_from_now(stamp: str) -> None:
    status = JobStatus(stage="Succeeded", completion_time=stamp)
    world = World(spec(2, ttlSecondsAfterFinished=60), status).settle()
    assert not world.deleted
    world.now += timedelta(seconds=61)
    world.carry_out(world.plan())
    assert world.deleted


def test_restarts_that_a_pod_claims_are_bounded_as_the_status_is() -> None:
    world = World(spec(2)).begin()
    leader = world.pods["train-learner"]
    notes = {**leader.metadata.annotations, "fairlead.io/restarts": str(2**31)}
    metadata = msgspec.structs.replace(leader.metadata, annotations=notes)
    world.pods["train-learner"] = msgspec.structs.replace(leader, metadata=metadata)
    world.settle()
    assert (world.status.stage, world.status.reason) == ("Failed", "RestartLimitExceeded")
    assert world.status.restarts == 2**31 - 1
