"""The life of a pod: what is seen, what the provider reports and the time → orders and status."""

from typing import Any

import msgspec
import pytest

from fairlead.nodes.plan import DueProbe, after_probe, plan_pod, recall, with_problems
from fairlead.nodes.provider import PodCondition, PodReport, RunPhase, RunReport, Traits
from fairlead.nodes.spec import Waiting
from tests.nodes.kit import T0, Stage, at, conditions, container, ordered, pod, status, stopping


def test_a_new_pod_is_ordered_and_pending() -> None:
    plan = Stage(pod()).look()
    assert ordered(plan) == [("main", 0)]
    assert plan.status.phase == "Pending"
    assert status(plan).state.waiting == Waiting(reason="ContainerCreating")
    assert conditions(plan) == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "ContainersReady": "False",
        "Ready": "False",
    }


def test_a_running_pod_is_ready() -> None:
    plan = Stage(pod()).started()
    assert plan.status.phase == "Running"
    assert conditions(plan)["Ready"] == "True"
    assert (plan.status.pod_ip, plan.status.host_ip, plan.status.qos_class) == ("10.0.0.1", "10.1", "BestEffort")
    assert (status(plan).started, status(plan).ready, status(plan).container_id) == (True, True, "main-0")


def test_the_same_look_twice_says_the_same() -> None:
    stage = Stage(pod())
    first = stage.started()
    second = stage.look(30)
    assert (second.status, second.orders, second.events) == (first.status, first.orders, ())


def test_conditions_of_others_stay() -> None:
    gate = {"type": "example.com/gate", "status": "True"}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"}
    plan = Stage(pod(status={"conditions": [scheduled, gate]})).look()
    assert [condition.type for condition in plan.status.conditions or ()][-2:] == ["PodScheduled", "example.com/gate"]


def test_a_closed_readiness_gate_keeps_the_pod_unready() -> None:
    plan = Stage(pod(readinessGates=[{"conditionType": "example.com/gate"}])).started()
    assert (conditions(plan)["ContainersReady"], conditions(plan)["Ready"]) == ("True", "False")


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [("Never", 0, "Succeeded"), ("Never", 3, "Failed"), ("OnFailure", 0, "Succeeded")],
)
def test_what_must_not_restart_ends(policy: str, code: int, phase: str) -> None:
    stage = Stage(pod(restartPolicy=policy))
    stage.started()
    stage.exits(code=code, second=5)
    plan = stage.look(5)
    assert (plan.status.phase, plan.orders) == (phase, ())
    ended = status(plan).state.terminated
    assert ended is not None
    assert (ended.exit_code, ended.reason) == (code, "Completed" if code == 0 else "Error")
    assert conditions(plan)["Ready"] == "False"


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
def test_a_run_that_fails_its_pod_ends_the_others_and_is_not_tried_again(policy: str) -> None:
    stage = Stage(pod(containers=[container("main"), container("other")], restartPolicy=policy))
    stage.started("main", "other")
    failed = RunReport(0, RunPhase.EXITED, None, at(5), 1, reason="NoGood", message="no such thing", fails_pod=True)
    stage.reports["main"] = failed
    plan = stage.look(5)
    assert (ordered(plan), stopping(plan), plan.status.phase) == ([("other", 0)], ["other"], "Running")
    stage.exits("other", code=0, second=6)
    plan = stage.look(6)
    assert (plan.status.phase, plan.orders) == ("Failed", ())
    ended = status(plan).state.terminated
    assert ended is not None
    assert (ended.exit_code, ended.reason, ended.message) == (1, "NoGood", "no such thing")


@pytest.mark.parametrize(("policy", "code"), [("Always", 0), ("Always", 1), ("OnFailure", 1)])
def test_the_first_restart_comes_at_once(policy: str, code: int) -> None:
    stage = Stage(pod(restartPolicy=policy))
    stage.started()
    stage.exits(code=code, second=5)
    plan = stage.look(5)
    assert ordered(plan) == [("main", 1)]
    assert status(plan).restart_count == 1
    assert status(plan).last_state.terminated is not None
    assert plan.status.phase == "Running"


def test_further_restarts_back_off_doubling_to_five_minutes() -> None:
    stage = Stage(pod())
    stage.started()
    waits, second = [], 0.0
    for _ in range(8):
        stage.exits(code=1, second=second)
        plan = stage.look(second)
        if (waiting := status(plan).state.waiting) is not None and waiting.reason == "CrashLoopBackOff":
            assert plan.wake_at is not None
            waits.append((plan.wake_at - at(second)).total_seconds())
            second = (plan.wake_at - T0).total_seconds()
            plan = stage.look(second)
        else:
            waits.append(0.0)
        stage.runs(second=second)
        stage.look(second)
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300]


def test_the_back_off_is_forgotten_after_ten_good_minutes() -> None:
    stage = Stage(pod())
    stage.started()
    stage.exits(code=1, second=1)
    stage.look(1)
    stage.runs(second=1)
    stage.look(1)
    stage.exits(code=1, second=602)
    assert ordered(stage.look(602)) == [("main", 2)]


def test_a_crash_loop_says_so_once() -> None:
    stage = Stage(pod())
    stage.started()
    stage.exits(code=1, second=1)
    stage.look(1)
    stage.runs(second=1)
    stage.exits(code=1, second=2)
    first, again = stage.look(2), stage.look(3)
    assert [said.reason for said in first.events if said.warning] == ["BackOff"]
    assert again.events == ()
    assert first.status.phase == "Running"


# --- init containers and sidecars -------------------------------------------------------------------------


def with_inits(**spec: Any) -> Stage:
    sidecar = container("proxy", restartPolicy="Always")
    return Stage(pod(initContainers=[container("first"), sidecar, container("second")], **spec))


def test_init_containers_run_in_order_and_sidecars_stay() -> None:
    stage = with_inits()
    plan = stage.look()
    assert ordered(plan) == [("first", 0)]
    assert (plan.status.phase, conditions(plan)["Initialized"]) == ("Pending", "False")
    assert status(plan).state.waiting == Waiting(reason="PodInitializing")
    stage.runs("first")
    stage.exits("first")
    assert ordered(stage.look()) == [("proxy", 0)]
    stage.runs("proxy")
    assert ordered(stage.look()) == [("proxy", 0), ("second", 0)]
    stage.runs("second")
    stage.exits("second")
    plan = stage.look()
    assert ordered(plan) == [("proxy", 0), ("main", 0)]
    assert conditions(plan)["Initialized"] == "True"


def test_a_sidecar_with_a_startup_probe_holds_the_others_until_it_passed() -> None:
    sidecar = container("proxy", restartPolicy="Always", startupProbe={"tcpSocket": {"port": 1}})
    stage = Stage(pod(initContainers=[sidecar]))
    plan = stage.started("proxy")
    assert ordered(plan) == [("proxy", 0)]
    (due,) = plan.due
    stage.memory, _ = after_probe(stage.pod, stage.memory, due, True, "", at(1))
    assert ordered(stage.look(1)) == [("proxy", 0), ("main", 0)]


def test_a_failed_init_container_fails_a_pod_that_must_not_restart() -> None:
    stage = Stage(pod(initContainers=[container("first")], restartPolicy="Never"))
    stage.started("first")
    stage.exits("first", code=1)
    plan = stage.look()
    assert (plan.status.phase, plan.orders) == ("Failed", ())


def test_a_failed_init_container_is_tried_again_otherwise() -> None:
    stage = Stage(pod(initContainers=[container("first")], restartPolicy="Always"))
    stage.started("first")
    stage.exits("first", code=1)
    plan = stage.look()
    assert (plan.status.phase, ordered(plan)) == ("Pending", [("first", 1)])


def test_sidecars_end_when_the_containers_have() -> None:
    stage = Stage(pod(initContainers=[container("proxy", restartPolicy="Always")], restartPolicy="Never"))
    stage.started("proxy")
    stage.started("proxy", "main")
    stage.exits("main", second=5)
    plan = stage.look(5)
    assert (stopping(plan), plan.status.phase) == (["proxy"], "Running")
    stage.exits("proxy", code=143, second=6)
    assert stage.look(6).status.phase == "Succeeded"


# --- ending -----------------------------------------------------------------------------------------------


def test_a_deleted_pod_is_stopped_with_its_grace_and_then_over() -> None:
    stage = Stage(pod())
    stage.started()
    stage.is_deleted(grace_s=7)
    plan = stage.look(1)
    assert [(order.name, order.kill_at) for order in plan.orders] == [("main", at(8))]
    assert not plan.is_over
    assert stage.look(3).orders == plan.orders, "looking again does not lengthen the grace"
    stage.is_deleted(grace_s=1)
    assert stage.look(4).orders[0].kill_at == at(5), "a second deletion may shorten it"
    stage.exits(code=143, second=5)
    plan = stage.look(5)
    assert (plan.is_over, plan.status.phase) == (True, "Failed")


def test_a_pod_deleted_before_it_began_is_over_at_once() -> None:
    stage = Stage(pod())
    stage.is_deleted()
    plan = stage.look()
    assert (plan.is_over, plan.orders) == (True, ())


def test_sidecars_are_stopped_last_and_in_reverse() -> None:
    sidecars = [container(name, restartPolicy="Always") for name in ("one", "two")]
    stage = Stage(pod(initContainers=sidecars))
    stage.started("one")
    stage.started("one", "two")
    stage.started("one", "two", "main")
    stage.is_deleted()
    seen = []
    for name in ("main", "two", "one"):
        seen.append(stopping(stage.look(1)))
        stage.exits(name, second=1)
    assert seen == [["main"], ["two"], ["one"]]
    assert stage.look(1).is_over


def test_at_the_end_of_the_grace_sidecars_go_with_the_rest() -> None:
    stage = Stage(pod(initContainers=[container("proxy", restartPolicy="Always")]))
    stage.started("proxy")
    stage.started("proxy", "main")
    stage.is_deleted(grace_s=2)
    stage.look(0)
    assert sorted(stopping(stage.look(2))) == ["main", "proxy"]


def test_a_pod_past_its_deadline_fails() -> None:
    stage = Stage(pod(activeDeadlineSeconds=10))
    assert stage.started().wake_at == at(10)
    assert stopping(stage.look(10)) == ["main"]
    stage.exits(code=143, second=11)
    plan = stage.look(11)
    assert (plan.status.phase, plan.status.reason) == ("Failed", "DeadlineExceeded")


def test_a_pod_that_others_declared_failed_is_stopped_and_left_as_they_said() -> None:
    stage = Stage(pod())
    stage.started()
    failed = msgspec.structs.replace(stage.pod.status, phase="Failed", reason="Evicted")
    stage.pod = msgspec.structs.replace(stage.pod, status=failed)
    assert stopping(stage.look(1)) == ["main"]
    stage.exits(code=143, second=2)
    plan = stage.look(2)
    assert (plan.status.phase, plan.orders) == ("Failed", ())


# --- probes -----------------------------------------------------------------------------------------------


def probed(**probes: Any) -> Stage:
    return Stage(pod(containers=[container(**probes)]))


def test_readiness_comes_with_the_probe_and_goes_after_its_threshold() -> None:
    stage = probed(readinessProbe={"tcpSocket": {"port": 1}, "initialDelaySeconds": 2, "failureThreshold": 2})
    plan = stage.started()
    assert (status(plan).ready, plan.due, plan.wake_at) == (False, (), at(2))
    (due,) = stage.look(2).due
    seen = []
    for ok in (True, False, False, True):
        stage.memory, _ = after_probe(stage.pod, stage.memory, due, ok, "no", at(3))
        seen.append(status(stage.look(3)).ready)
    assert seen == [True, True, False, True]


def test_a_failing_liveness_probe_restarts_the_container() -> None:
    stage = probed(livenessProbe={"tcpSocket": {"port": 1}, "failureThreshold": 2, "periodSeconds": 5})
    (due,) = stage.started().due
    stage.memory, first = after_probe(stage.pod, stage.memory, due, False, "refused", at(0))
    stage.memory, second = after_probe(stage.pod, stage.memory, due, False, "refused", at(5))
    assert [event.reason for event in (*first, *second)] == ["Unhealthy", "Unhealthy", "Killing"]
    plan = stage.look(5)
    assert [(order.name, order.kill_at) for order in plan.orders] == [("main", at(35))]
    stage.exits(code=143, second=6)
    assert ordered(stage.look(6)) == [("main", 1)]


def test_liveness_waits_for_startup() -> None:
    probe = {"tcpSocket": {"port": 1}}
    stage = probed(startupProbe=probe, livenessProbe=probe, readinessProbe=probe)
    (due,) = stage.started().due
    assert due.check == "Startup"
    stage.memory, _ = after_probe(stage.pod, stage.memory, due, True, "", at(1))
    assert [due.check for due in stage.look(1).due] == ["Liveness", "Readiness"]


def test_a_late_result_about_an_older_attempt_changes_nothing() -> None:
    stage = probed(livenessProbe={"tcpSocket": {"port": 1}, "failureThreshold": 1})
    (due,) = stage.started().due
    stage.exits(code=1, second=1)
    stage.look(1)
    assert after_probe(stage.pod, stage.memory, due, False, "late", at(2)) == (stage.memory, ())
    assert isinstance(due, DueProbe)


def test_a_provider_without_probes_has_only_ready_containers() -> None:
    played = pod(containers=[container(readinessProbe={"tcpSocket": {"port": 1}})])
    stage = Stage(played)
    stage.started()
    report = PodReport("10.0.0.1", dict(stage.reports))
    plan = plan_pod(played, report, stage.memory, now=T0, node_ip="", traits=Traits(probes=False))
    assert (status(plan).ready, plan.due) == (True, ())


# --- what goes wrong --------------------------------------------------------------------------------------


def test_a_run_that_waits_says_why_and_is_told_once() -> None:
    stage = Stage(pod())
    stage.look()
    stage.waits("main", "ErrImagePull", "no such image")
    first, again = stage.look(), stage.look(1)
    assert status(first).state.waiting == Waiting(reason="ErrImagePull", message="no such image")
    assert [(said.reason, said.note) for said in first.events] == [
        ("Failed", 'Failed to pull image "python:3": no such image'),
        ("Failed", "Error: ErrImagePull"),
    ]
    assert again.events == ()


def test_what_never_ran_is_neither_started_nor_killed() -> None:
    stage = Stage(pod())
    stage.look()
    stage.waits("main", "ErrImagePull", "no such image")
    stage.look()
    stage.is_deleted()
    told = stage.look()
    stage.reports["main"] = RunReport(0, RunPhase.EXITED, finished_at=T0, exit_code=137)
    ended = stage.look(1)
    assert (told.events, ended.events, ended.is_over) == ((), (), True)


def test_a_start_that_failed_is_told_as_that() -> None:
    stage = Stage(pod())
    stage.look()
    problem = "failed to start: no such file"
    stage.reports["main"] = RunReport(
        0, RunPhase.EXITED, finished_at=T0, exit_code=128, reason="StartError", message=problem
    )
    assert ("Failed", f"Error: {problem}") in [(said.reason, said.note) for said in stage.look().events]


def test_a_hook_that_failed_is_told_once_the_container_has_ended() -> None:
    stage = Stage(pod())
    stage.look()
    stage.runs()
    stage.look()
    failed = RunReport(0, RunPhase.EXITED, T0, T0, 143, message="postStart hook failed: oops", has_failed_hook=True)
    stage.reports["main"] = failed
    stage.look()
    stage.look()
    told = [(said.reason, said.note, said.warning) for said in stage.events if said.reason == "FailedPostStartHook"]
    assert told == [("FailedPostStartHook", "postStart hook failed: oops", True)]


def test_a_container_without_its_configuration_waits_and_is_tried_again() -> None:
    stage = Stage(pod())
    problem = Waiting(reason="CreateContainerConfigError", message='configmap "c" not found')
    stage.memory = with_problems(stage.look().memory, {"main": problem}, T0)
    stage.reports.clear()
    plan = stage.look(1)
    assert (plan.orders, status(plan).state.waiting, plan.wake_at) == ((), problem, at(5))
    assert ordered(stage.look(5)) == [("main", 0)]


def test_a_new_image_restarts_the_container_whatever_the_policy() -> None:
    stage = Stage(pod(restartPolicy="Never"))
    stage.started()
    changed = msgspec.structs.replace(stage.pod.spec.containers[0], image="python:4")
    spec = msgspec.structs.replace(stage.pod.spec, containers=(changed,))
    stage.pod = msgspec.structs.replace(stage.pod, spec=spec)
    plan = stage.look(1)
    assert stopping(plan) == ["main"]
    # The old one still runs, and whoever comes after us must know that.
    assert status(plan).image == "python:3"
    stage.exits(code=143, second=2)
    plan = stage.look(2)
    assert ordered(plan) == [("main", 1)]
    assert status(plan).image == "python:4"


# --- coming back ------------------------------------------------------------------------------------------


def come_back(stage: Stage) -> Stage:
    """The same pod in a new process whose provider has lost everything."""
    back = Stage(stage.pod)
    back.memory = recall(stage.pod, at(60))
    return back


def test_what_ran_before_us_is_started_again_with_one_more_restart() -> None:
    stage = Stage(pod())
    stage.started()
    plan = come_back(stage).look(60)
    assert ordered(plan) == [("main", 1)]
    last = status(plan).last_state.terminated
    assert last is not None
    assert (last.exit_code, last.reason) == (137, "ContainerStatusUnknown")


def test_what_ran_before_us_and_must_not_restart_fails() -> None:
    stage = Stage(pod(restartPolicy="Never"))
    stage.started()
    plan = come_back(stage).look(60)
    assert (plan.status.phase, plan.orders) == ("Failed", ())


def test_what_was_done_before_us_stays_done() -> None:
    stage = Stage(pod(initContainers=[container("first")]))
    stage.started("first")
    stage.exits("first")
    stage.started("main")
    assert ordered(come_back(stage).look(60)) == [("main", 1)]


def test_a_back_off_under_way_is_not_counted_twice() -> None:
    stage = Stage(pod())
    stage.started()
    stage.exits(code=1, second=1)
    stage.look(1)
    stage.runs(second=1)
    stage.exits(code=1, second=2)
    assert status(stage.look(2)).restart_count == 1
    assert ordered(come_back(stage).look(60)) == [("main", 2)]


def test_a_finished_pod_is_left_alone() -> None:
    stage = Stage(pod(restartPolicy="Never"))
    stage.started()
    stage.exits(code=0, second=1)
    stage.look(1)
    plan = come_back(stage).look(60)
    assert (plan.orders, plan.status) == ((), stage.pod.status)


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param({}, "BestEffort", id="nothing said"),
        pytest.param({"requests": {"cpu": "1"}}, "Burstable", id="requests only"),
        pytest.param(
            {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
            "Guaranteed",
            id="limits are requests",
        ),
        pytest.param({"limits": {"cpu": "1"}}, "Burstable", id="half the limits"),
    ],
)
def test_quality_of_service(resources: dict[str, Any], expected: str) -> None:
    assert Stage(pod(containers=[container(resources=resources)])).look().status.qos_class == expected
    # Resources of the pod as a whole count instead of its containers'.
    whole = pod(containers=[container(resources={"requests": {"cpu": "2"}})], resources=resources)
    assert Stage(whole).look().status.qos_class == expected


@pytest.mark.parametrize(
    ("is_ready", "is_open", "expected"),
    [(True, True, "True"), (False, True, "False"), (True, False, "False")],
    ids=["serves", "cannot serve", "gate closed"],
)
def test_a_provider_says_whether_a_container_serves_and_what_gates_are_judged_by(
    is_ready: bool, is_open: bool, expected: str
) -> None:
    waiting = pod(readinessGates=[{"conditionType": "module"}])
    first = plan_pod(waiting, PodReport("10.0.0.1"), recall(waiting, T0), now=T0, node_ip="10.1")
    run = RunReport(0, RunPhase.RUNNING, T0, id="x", is_ready=is_ready)
    report = PodReport("10.0.0.1", {"main": run}, (PodCondition("module", is_open, "Because"),))
    status = plan_pod(waiting, report, first.memory, now=T0, node_ip="10.1").status
    conditions = {each.type: each for each in status.conditions or ()}
    assert conditions["Ready"].status == expected
    assert (conditions["module"].status, conditions["module"].reason) == ("True" if is_open else "False", "Because")
