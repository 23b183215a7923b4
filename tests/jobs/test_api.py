"""Answers about jobs: why one waits, to whom which names are told, and what is not a job at all."""

from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest

from fairlead.cluster.client import Client
from fairlead.jobs.api import HIDDEN, JobApi
from fairlead.jobs.spec import JOB_QUEUES, TYJOBS
from fairlead.jobs.trials import Trials
from fairlead.placement.trials import LoopTrials
from fairlead.testing.clock import ManualClock
from fairlead.web.guard import Action, Guard, User
from fairlead.web.problems import Problem
from fairlead.web.routes import Call
from tests.jobs.cluster import FakeCluster, Together, turn
from tests.jobs.kit import spec_json

GANG = {"basicPolicy": "Gang"}
MANY = {
    **spec_json(1),
    "workerSets": [
        {**each, "name": f"w{n}", "counts": 10_000} for n in range(2) for each in spec_json(1)["workerSets"]
    ],
}


class Allowing:
    """Stands for the guard: everything in these namespaces."""

    def __init__(self, *namespaces: str) -> None:
        self.namespaces = namespaces

    async def allows(self, user: User, action: Action) -> bool:
        return action.namespace in self.namespaces

    async def require(self, user: User, action: Action) -> None:
        if not await self.allows(user, action):
            raise Problem(403, "Forbidden", action.described())


class Setting:
    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.together = Together(cluster)
        source = self.together.controller.source
        templates = Trials(cast("Client", cluster), cluster.clock, "fairlead")
        trials = [LoopTrials(self.together.loop)]
        self.api = JobApi(cluster.mirror(TYJOBS), cluster.mirror(JOB_QUEUES), source, templates, trials, cluster.clock)

    async def ask(self, handler: Any, *namespaces: str, body: Any = None, **parameters: str) -> Any:
        guard = cast("Guard", Allowing(*namespaces))
        text = body if isinstance(body, bytes) else msgspec.json.encode(body)
        call = Call(User(username="ann"), guard, parameters, {}, {}, text)
        return msgspec.json.decode((await handler(call)).payload())


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    cluster = FakeCluster(ManualClock())
    for number in range(3):
        cluster.add_node(f"n{number}")
    made = Setting(cluster)
    async with made.together.leading():
        cluster.submit("busy", spec_json(8, schedulerPolicy=GANG), namespace="secret")
        await turn(cluster, 4)
        cluster.submit("ahead", spec_json(9, schedulerPolicy=GANG, priority=9), namespace="secret")
        cluster.submit("mine", spec_json(7, schedulerPolicy=GANG))
        cluster.put("jobqueues", {"metadata": {"name": "others"}, "spec": {}})
        cluster.submit("elsewhere", spec_json(8, schedulerPolicy=GANG, priority=10, queue="others"))
        await turn(cluster, 4)
        yield made
    assert cluster.complaints == []


async def test_s76_a_pending_job_says_what_is_short_who_holds_it_and_where_it_stands(setting: Setting) -> None:
    found = await setting.ask(setting.api.explain, "lab", "secret", namespace="lab", name="mine")
    assert (found["queuePosition"], found["ahead"]) == (2, ["secret/ahead"])
    assert found["message"].startswith("number 2 in queue default; 3 pods would fit, mine-actors-2 ")
    assert "does not: cpu 1 needed" in found["message"]
    explain = found["explain"]
    assert (explain["resource"], explain["needed"], explain["nodes"]) == ("cpu", 1000, 3)
    assert sum(explain["refusals"].values()) == 3
    assert "secret/busy" in {each["who"] for each in found["holders"]}
    other = await setting.ask(setting.api.explain, "lab", namespace="lab", name="elsewhere")
    assert (other["queue"], other["queuePosition"]) == ("others", 1)
    assert "ahead" not in other


async def test_what_is_short_is_told_with_its_holders_before_the_status_has_it(setting: Setting) -> None:
    job = setting.cluster.objects["tyjobs"]["lab/mine"]
    status = {name: value for name, value in job["status"].items() if name != "explain"}
    setting.cluster.put("tyjobs", {**job, "status": status})
    found = await setting.ask(setting.api.explain, "lab", namespace="lab", name="mine")
    assert found["holders"]
    assert found["explain"]["resource"] == "cpu"


async def test_names_of_jobs_that_the_caller_may_not_read_are_left_out(setting: Setting) -> None:
    found = await setting.ask(setting.api.explain, "lab", namespace="lab", name="mine")
    assert found["ahead"] == [HIDDEN]
    assert "secret" not in msgspec.json.encode(found).decode()
    manifest = {"metadata": {"name": "new", "namespace": "lab"}, "spec": spec_json(10, schedulerPolicy=GANG)}
    answer = await setting.ask(setting.api.what_if, "lab", body=manifest)
    assert answer["after"] == HIDDEN
    assert "secret" not in answer["message"]


@pytest.mark.parametrize(
    ("queue", "workers", "fits", "message"),
    [
        ("nobodys", 1, "Later", "there is no JobQueue 'nobodys'"),
        ("broken", 1, "Later", "JobQueue 'broken' is invalid, and its jobs wait until it is mended: spec.quota.cpu: "),
        ("small", 1, "Later", "queue small has a quota of 3 cpu, of which fewer than the 2 needed next are left"),
        ("small", 5, "Never", "queue small has a quota of 3 cpu, and the job needs 6 at once"),
        ("strict", 1, "Later", "queue strict is strict, and another job is ahead"),
    ],
)
async def test_what_if_minds_the_queue_as_a_submit_would(
    setting: Setting, queue: str, workers: int, fits: str, message: str
) -> None:
    setting.cluster.put("jobqueues", {"metadata": {"name": "small"}, "spec": {"quota": {"cpu": "3"}}})
    setting.cluster.put("jobqueues", {"metadata": {"name": "broken"}, "spec": {"quota": {"cpu": "-3"}}})
    setting.cluster.submit("held", spec_json(1, schedulerPolicy=GANG, queue="small"))
    setting.cluster.put("jobqueues", {"metadata": {"name": "strict"}, "spec": {"strictFIFO": True}})
    setting.cluster.submit("head", spec_json(8, schedulerPolicy=GANG, queue="strict"))
    await turn(setting.cluster, 3)
    spec = spec_json(workers, schedulerPolicy=GANG, queue=queue)
    manifest = {"metadata": {"name": "new", "namespace": "lab"}, "spec": spec}
    answer = await setting.ask(setting.api.what_if, "lab", body=manifest)
    assert answer["fits"] == fits
    assert answer["message"].startswith(message)


async def test_what_if_in_a_queue_with_a_quota_is_the_first_decision_of_a_submit(setting: Setting) -> None:
    setting.cluster.put("jobqueues", {"metadata": {"name": "small"}, "spec": {"quota": {"cpu": "3"}}})
    await turn(setting.cluster, 1)
    manifest = {"metadata": {"name": "new", "namespace": "lab"}, "spec": spec_json(3, queue="small")}
    answer = await setting.ask(setting.api.what_if, "lab", body=manifest)
    assert (answer["fits"], sum(answer["places"].values())) == ("Now", 2)
    assert answer["message"].endswith("; 2 workers more, one by one, as the queue's quota allows")
    compared = await setting.ask(setting.api.compare, "lab", body={"job": manifest, "policies": ["Gang", "BinPack"]})
    # Policies are compared over the whole job: three of its four pods have room.
    assert [each.get("pods", 0) for each in compared["comparisons"]] == [0, 3]
    key = setting.cluster.submit("new", manifest["spec"])
    await turn(setting.cluster, 6)
    assert len(setting.cluster.pods("new")) == 3, "the leader and what the quota allows"
    assert setting.cluster.status(key)["scheduleState"] == "ScheduledPartly"


async def test_who_may_not_create_jobs_gets_no_answer(setting: Setting) -> None:
    manifest = {"metadata": {"name": "new", "namespace": "lab"}, "spec": spec_json(1)}
    with pytest.raises(Problem) as refused:
        await setting.ask(setting.api.what_if, "other", body=manifest)
    assert refused.value.status == 403


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param({"kind": "Job", "spec": {}}, "kind: must be TYJob, not 'Job'", id="another kind"),
        pytest.param(
            {"metadata": {"namespace": "lab"}, "spec": spec_json(0)}, "spec.workerSets[0].counts", id="invalid"
        ),
        pytest.param(["job"], "the body is not what was expected", id="no object"),
        pytest.param(b'{"spec": "\xff"}', "the body is not what was expected", id="no UTF-8"),
        pytest.param(b'{"spec": ' + b'{"a":' * 40_000, "the body is not what was expected", id="too deep"),
        pytest.param(b'{"spec": ' + b"9" * 5000 + b"}", "the body is not what was expected", id="5,000 digits"),
        pytest.param(
            {"metadata": {"namespace": "lab"}, "spec": MANY}, "20000 workers in all; one job may have 10000", id="many"
        ),
    ],
)
async def test_what_is_no_job_is_refused_with_its_field(setting: Setting, body: Any, message: str) -> None:
    with pytest.raises(Problem, match=message.replace("$", r"\$").replace("[", r"\[")):
        await setting.ask(setting.api.what_if, "lab", "default", body=body)
    wrapped = b'{"job": ' + body + b"}" if isinstance(body, bytes) else {"job": body}
    with pytest.raises(Problem) as refused:
        await setting.ask(setting.api.compare, "lab", "default", body=wrapped)
    assert refused.value.status == 400


async def test_an_unknown_policy_is_refused_and_known_ones_are_compared(setting: Setting) -> None:
    manifest = {"metadata": {"name": "new", "namespace": "lab"}, "spec": spec_json(1)}
    with pytest.raises(Problem, match="policies: 'Best' is not one of Gang, BinPack"):
        await setting.ask(setting.api.compare, "lab", body={"job": manifest, "policies": ["Best"]})
    with pytest.raises(Problem) as refused:
        await setting.ask(setting.api.compare, "lab", body={"job": manifest, "policies": ["x" * 1000] * 200})
    assert len(str(refused.value)) < 500
    # However often: each is tried once.
    found = await setting.ask(setting.api.compare, "lab", body={"job": manifest, "policies": ["BinPack"] * 20_000})
    assert [(each["policy"], each["fits"], each["pods"]) for each in found["comparisons"]] == [("BinPack", True, 2)]
    # As a gang it needs room for all its pods, of which four are free.
    manifest["spec"] = spec_json(6, minWorkersNum=1)
    found = await setting.ask(setting.api.compare, "lab", body={"job": manifest, "policies": ["Gang", "BinPack"]})
    assert [(each["policy"], each["fits"], each.get("pods", 0)) for each in found["comparisons"]] == [
        ("Gang", False, 0),
        ("BinPack", True, 3),
    ]
