"""How a Job counts, waits, ends and is cleared away."""

from time import process_time
from typing import Any

import pytest

from fairlead.local.controllers.jobs import (
    INDEX,
    INDEX_FAILURES,
    JobInput,
    failures_of,
    index_of,
    parse_indexes,
    plan_job,
    written_indexes,
)
from fairlead.local.controllers.spec import ControllerPod, Job
from fairlead.model.intents import Intent
from tests.local.controllers.builders import (
    NOW,
    SELECTOR,
    ago,
    bodies,
    patches,
    pod,
    said,
    status_of,
    template,
    workload,
)

TRACKING = "batch.kubernetes.io/job-tracking"


def job(status: dict[str, Any] | None = None, **spec: Any) -> Job:
    held = {"startTime": ago(60), "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}, **(status or {})}
    made = {"template": template(restartPolicy="Never"), "completions": 1, "parallelism": 1, **spec}
    return workload(Job, "sum", status=held, **made)


def worker(name: str, owner: Job, *, tracked: bool = True, index: int | None = None, **more: Any) -> ControllerPod:
    annotations = {} if index is None else {INDEX: str(index)}
    return pod(name, owner, finalizers=[TRACKING] if tracked else [], annotations=annotations, **more)


def plan(owner: Job, *pods: ControllerPod) -> list[Intent]:
    return plan_job(JobInput(owner, SELECTOR, pods), NOW)


def condition(kind: str, reason: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": ago(10), **more}


def test_a_new_job_takes_on_pods_that_are_tracked() -> None:
    intents = plan(workload(Job, "sum", completions=5, parallelism=2))
    assert said(intents) == ["create Pod", "create Pod", "status sum"]
    assert [body["metadata"]["finalizers"] for body in bodies(intents)] == [[TRACKING], [TRACKING]]
    assert status_of(intents)["startTime"] == ago(0)


def test_an_end_is_counted_in_three_steps() -> None:
    owner = job(completions=2)
    intents = plan(owner, worker("a", owner, phase="Succeeded"))
    assert said(intents) == ["create Pod", "status sum"]
    assert status_of(intents) == {"uncountedTerminatedPods": {"succeeded": ["uid-a"], "failed": None}}

    owner = job({"uncountedTerminatedPods": {"succeeded": ["uid-a"]}}, completions=2)
    intents = plan(owner, worker("a", owner, phase="Succeeded"), worker("b", owner, ready=False))
    assert said(intents) == ["patch a", "status sum"]
    assert patches(intents)["a"]["metadata"]["finalizers"] is None
    assert "succeeded" not in status_of(intents)

    intents = plan(owner, worker("a", owner, tracked=False, phase="Succeeded"), worker("b", owner, ready=False))
    assert status_of(intents) == {
        "active": 1,
        "succeeded": 1,
        "uncountedTerminatedPods": {"succeeded": None, "failed": None},
    }


def test_an_end_that_was_counted_is_not_counted_again() -> None:
    owner = job({"succeeded": 1, "active": 1}, completions=2)
    assert plan(owner, worker("a", owner, tracked=False, phase="Succeeded"), worker("b", owner, ready=False)) == []


def test_a_pod_that_vanished_after_it_was_listed_is_counted() -> None:
    owner = job({"uncountedTerminatedPods": {"failed": ["uid-gone"]}})
    assert status_of(plan(owner))["failed"] == 1


def test_a_job_says_that_it_will_complete_and_completes_when_all_is_counted() -> None:
    owner = job({"uncountedTerminatedPods": {"succeeded": ["uid-a"]}})
    intents = plan(owner, worker("a", owner, phase="Succeeded"))
    assert [found["type"] for found in status_of(intents)["conditions"]] == ["SuccessCriteriaMet"]
    intents = plan(owner, worker("a", owner, tracked=False, phase="Succeeded"))
    status = status_of(intents)
    assert [found["type"] for found in status["conditions"]] == ["SuccessCriteriaMet", "Complete"]
    assert (status["completionTime"], status["succeeded"]) == (ago(0), 1)
    assert said(intents, events=True)[-1] == "event Completed"


def test_without_completions_one_success_is_enough_once_the_others_have_ended() -> None:
    owner = job(completions=None, parallelism=3)
    assert "conditions" not in status_of(plan(owner, worker("a", owner, phase="Succeeded"), worker("b", owner)))
    assert "conditions" in status_of(plan(owner, worker("a", owner, phase="Succeeded")))


def test_a_job_that_failed_too_often_stops_the_rest_first() -> None:
    owner = job({"failed": 1}, backoffLimit=1, parallelism=2, completions=4)
    intents = plan(owner, worker("a", owner, phase="Failed"), worker("b", owner))
    assert said(intents) == ["delete b", "status sum"]
    (told,) = status_of(intents)["conditions"]
    assert (told["type"], told["reason"]) == ("FailureTarget", "BackoffLimitExceeded")

    owner = job({"failed": 2, "conditions": [condition("FailureTarget", "BackoffLimitExceeded")]}, backoffLimit=1)
    assert "conditions" not in status_of(plan(owner, worker("b", owner, going=True, tracked=False)))
    done = status_of(plan(owner))
    assert [found["type"] for found in done["conditions"]] == ["FailureTarget", "Failed"]
    assert "completionTime" not in done


def test_restarts_count_where_pods_restart() -> None:
    owner = job(template=template(restartPolicy="OnFailure"), backoffLimit=3)
    assert "delete a" in said(plan(owner, worker("a", owner, restarts=3)))
    assert "delete a" not in said(plan(owner, worker("a", owner, restarts=2)))


def test_a_deadline_ends_a_job_and_is_waited_for() -> None:
    owner = job(activeDeadlineSeconds=60)
    assert "delete a" in said(plan(owner, worker("a", owner)))
    owner = job(activeDeadlineSeconds=90)
    assert said(plan(owner, worker("a", owner)))[-1] == "wake 30.1"


@pytest.mark.parametrize(
    ("failures", "since_s", "wait"),
    [(1, 0, "wake 10"), (1, 11, ""), (2, 0, "wake 20"), (3, 5, "wake 35"), (9, 0, "wake 600")],
)
def test_after_failures_the_next_pod_waits(failures: int, since_s: float, wait: str) -> None:
    owner = job({"failed": failures}, backoffLimit=20)
    ended = [worker(f"f{number}", owner, tracked=False, phase="Failed", ready_s=since_s) for number in range(failures)]
    planned = said(plan(owner, *ended))
    assert planned == ([wait] if wait else ["create Pod"])


def test_a_job_that_rests_lets_its_pods_off_without_counting_them() -> None:
    owner = job(suspend=True)
    intents = plan(owner, worker("a", owner))
    assert said(intents) == ["patch a", "status sum"]
    told = status_of(intents)
    assert (told["conditions"][0]["reason"], told["startTime"]) == ("JobSuspended", None)
    assert "delete a" in said(plan(owner, worker("a", owner, tracked=False)))
    resumed = job({"conditions": [condition("Suspended", "JobSuspended")]})
    told = status_of(plan(resumed))
    assert (told["conditions"][0]["status"], told["startTime"]) == ("False", ago(0))


def test_fewer_at_a_time_lets_off_who_is_least_along() -> None:
    owner = job(parallelism=1, completions=5)
    planned = said(plan(owner, worker("a", owner), worker("b", owner, node="", phase="Pending")))
    assert planned == ["patch b", "status sum"]


def test_an_indexed_job_fills_the_lowest_free_places() -> None:
    owner = job({"completedIndexes": "0,2", "succeeded": 2}, completionMode="Indexed", completions=6, parallelism=4)
    intents = plan(owner, worker("b", owner, index=1))
    made = bodies(intents)
    assert [body["metadata"]["annotations"][INDEX] for body in made] == ["3", "4", "5"]
    assert made[0]["spec"]["hostname"] == "sum-3"
    assert made[0]["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"


def test_an_index_is_done_once_however_many_pods_did_it() -> None:
    owner = job(completionMode="Indexed", completions=3, parallelism=3)
    pods = [worker(name, owner, index=1, phase="Succeeded") for name in ("a", "b")]
    told = status_of(plan(owner, *pods))
    assert (told["completedIndexes"], told["succeeded"]) == ("1", 1)


def test_of_two_at_one_index_one_is_let_off() -> None:
    owner = job(completionMode="Indexed", completions=2, parallelism=2)
    assert said(plan(owner, worker("a", owner, index=0), worker("b", owner, index=0)))[0] == "patch b"


@pytest.mark.parametrize("text", ["", "0", "0,1", "0-2", "1,3-5,7,8"])
def test_indexes_read_as_they_are_written(text: str) -> None:
    assert written_indexes(parse_indexes(text)) == text


ALL = "0-2147483647"


@pytest.mark.parametrize("text", ["9" * 5000, "3-", "5-3", "-1", "0-" + "9" * 5000, "٣", "²", "x", "1-2-3", ",,"])
def test_indexes_that_are_none_are_left_out(text: str) -> None:
    assert parse_indexes(f"1,{text},7") in ({1, 7}, {1, 3, 7})
    odd = pod("a", indexed(), annotations={INDEX: text, INDEX_FAILURES: text})
    assert (index_of(odd), failures_of(odd)) == (-1, 0)


def test_any_number_of_indexes_is_planned_at_once() -> None:
    rules = [{"succeededIndexes": ALL, "succeededCount": 2}]
    owner = job(completionMode="Indexed", completions=2**31 - 1, parallelism=2, successPolicy={"rules": rules})
    done = [worker(f"w{index}", owner, index=index, phase="Succeeded") for index in (0, 7)]
    started = process_time()
    assert status_of(plan(owner, *done[:1])).get("conditions") is None
    assert status_of(plan(owner, *done))["conditions"][0]["reason"] == "SuccessPolicy"
    plan(indexed({"completedIndexes": ALL, "failedIndexes": ",".join([ALL] * 1000)}, completions=2**31 - 1))
    assert process_time() - started < 2


@pytest.mark.parametrize(
    ("ttl", "wanted"),
    [(None, []), (100, ["wake 90"]), (10, ["delete sum Foreground"])],
)
def test_a_finished_job_is_cleared_away_in_time(ttl: int | None, wanted: list[str]) -> None:
    status = {"conditions": [condition("Complete")], "completionTime": ago(10)}
    assert said(plan(job(status, ttlSecondsAfterFinished=ttl))) == wanted


def test_a_job_managed_elsewhere_is_left_alone() -> None:
    assert plan(job(managedBy="example.com/kueue")) == []


# --- rules ------------------------------------------------------------------------------------------------


def ended_with(code: int) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": code}}}]}


def rule(action: str, **on: Any) -> dict[str, Any]:
    return {"rules": [{"action": action, **on}]}


CODE_42 = {"onExitCodes": {"operator": "In", "values": [42]}}
DISRUPTED = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


@pytest.mark.parametrize(
    ("policy", "code", "wanted"),
    [
        pytest.param(rule("FailJob", **CODE_42), 42, ["status sum"], id="the Job fails at once"),
        pytest.param(rule("FailJob", **CODE_42), 1, ["status sum", "wake 10"], id="another code: counted"),
        pytest.param(rule("Ignore", **CODE_42), 42, ["patch a", "wake 10"], id="not counted: let go at once"),
        pytest.param(rule("Count", **CODE_42), 42, ["status sum", "wake 10"], id="counted"),
        pytest.param(
            rule("FailJob", onExitCodes={"operator": "NotIn", "values": [0, 1]}), 42, ["status sum"], id="by exclusion"
        ),
    ],
)
def test_a_policy_about_failures(policy: dict[str, Any], code: int, wanted: list[str]) -> None:
    owner = job(podFailurePolicy=policy)
    intents = plan(owner, worker("a", owner, phase="Failed", ready_s=0, status=ended_with(code)))
    assert said(intents) == wanted
    if policy["rules"][0]["action"] == "FailJob" and code == 42:
        (told,) = status_of(intents)["conditions"]
        assert told["message"] == "Container c for pod ns/a failed with exit code 42 matching FailJob rule at index 0"


def test_a_pod_that_was_disturbed_is_told_by_its_condition() -> None:
    owner = job(podFailurePolicy=rule("Ignore", **DISRUPTED))
    disturbed = {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert said(plan(owner, worker("a", owner, phase="Failed", status=disturbed))) == ["patch a", "create Pod"]


def indexed(status: dict[str, Any] | None = None, **spec: Any) -> Job:
    return job(status, completionMode="Indexed", backoffLimit=1000, **{"completions": 2, "parallelism": 2, **spec})


def test_each_index_may_fail_so_often() -> None:
    owner = indexed(backoffLimitPerIndex=1)
    failed = worker("a", owner, index=0, phase="Failed")
    (again,) = bodies(plan(owner, failed, worker("b", owner, index=1)))
    assert again["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] == "1"
    failed = pod(
        "a",
        owner,
        phase="Failed",
        finalizers=[TRACKING],
        annotations={INDEX: "0", "batch.kubernetes.io/job-index-failure-count": "1"},
    )
    intents = plan(owner, failed, worker("b", owner, index=1))
    assert bodies(intents) == []
    assert status_of(intents)["failedIndexes"] == "0"
    (told,) = status_of(plan(owner, failed, worker("b", owner, index=1, phase="Succeeded")))["conditions"]
    assert (told["type"], told["reason"]) == ("FailureTarget", "FailedIndexes")


def test_too_many_failed_indexes_end_a_job() -> None:
    owner = indexed({"failedIndexes": "0,3"}, backoffLimitPerIndex=0, maxFailedIndexes=1, completions=9)
    (told,) = status_of(plan(owner, worker("b", owner, index=1)))["conditions"]
    assert told["reason"] == "MaxFailedIndexesExceeded"


@pytest.mark.parametrize(
    ("rule", "is_enough"),
    [
        ({"succeededIndexes": "0-1"}, True),
        ({"succeededIndexes": "0-2"}, False),
        ({"succeededIndexes": "0-3", "succeededCount": 2}, True),
        ({"succeededCount": 3}, False),
    ],
)
def test_what_is_enough_may_be_less_than_all(rule: dict[str, Any], is_enough: bool) -> None:
    owner = indexed({"completedIndexes": "0-1", "succeeded": 2}, completions=5, successPolicy={"rules": [rule]})
    intents = plan(owner, worker("c", owner, index=2), worker("d", owner, index=3))
    assert ("delete c" in said(intents)) is is_enough
    if is_enough:
        assert status_of(intents)["conditions"][0]["reason"] == "SuccessPolicy"


def test_whom_a_job_that_has_enough_sends_home_did_not_fail() -> None:
    said_so = [condition("SuccessCriteriaMet", "SuccessPolicy")]
    owner = indexed({"completedIndexes": "0", "succeeded": 1, "conditions": said_so}, completions=3)
    intents = plan(owner, worker("b", owner, index=1, going=True), worker("c", owner, index=2, phase="Failed"))
    assert said(intents) == ["patch b", "patch c", "status sum"]
    assert "failed" not in status_of(intents)
    assert not (status_of(intents).get("uncountedTerminatedPods") or {}).get("failed")
