"""Tasks with one agentSpec on one carrier: each is an owner, and it goes with the last."""

import itertools
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from fairlead.model.intents import Create, Delete, Intent, Patch, PatchStatus
from fairlead.tasks.admission import validate_update
from fairlead.tasks.carrier import Adaptation, CarrierObject, adapted, build_common, service_type
from fairlead.tasks.plan import CarrierPod, Observed, Plan, PlanOptions, plan_task, tracked
from fairlead.tasks.sharing import shared_carrier, sharers, task_reference, with_own_agents
from fairlead.tasks.spec import SHARE_CARRIER, AgentSpec, Task
from tests.tasks.kit import NOW, OPTIONS, make_task, pod, stored

SHARE = {SHARE_CARRIER: "true"}
AGENT = {"terminationGracePeriodMinutes": 1}
SCHEDULE = {"schedule": "0 60", "roundTimeoutMinute": 5, "roundNumber": 1}


class Cluster:
    """Tasks, their one carrier and a garbage collector; every plan is carried out at once, up to a crash."""

    def __init__(self, *tasks: tuple[str, Task]) -> None:
        self.tasks = {task.metadata.name: (kind, task) for kind, task in tasks}
        self.workload: CarrierObject | None = None
        self.parts: dict[tuple[str, str], CarrierObject] = {}
        self.pods: list[CarrierPod] = []
        self.reported: set[str] = set()
        self.now: datetime = NOW
        self.writes: list[Intent] = []
        self.crash_after = -1

    def observed(self, name: str) -> Observed:
        kind, task = self.tasks[name]
        common = shared_carrier(task)
        sharing = sharers(self.tasks.values(), common)
        specs = [each.spec for _, each in sharing] or [task.spec]
        built = build_common(common, specs, [task_reference(*each) for each in sharing], OPTIONS)
        carrier = adapted(built, specs, Adaptation())
        results = {each.metadata.uid: True for each in self.pods} if name in self.reported else {}
        return Observed(kind, task, carrier, self.workload, self.parts, self.pods, results, sharers=sharing)

    def look(self, name: str) -> Plan:
        return plan_task(self.observed(name), PlanOptions(), self.now)

    def settle(self) -> None:
        for _ in range(30):
            plans = [(name, self.look(name)) for name in list(self.tasks)]
            if not any(plan.intents for _, plan in plans):
                return
            for name in list(self.tasks):
                for intent in self.look(name).intents:
                    if self.crash_after == 0:
                        self.crash_after = -1
                        break  # and the next leader looks anew
                    self.carry_out(name, intent)
        raise AssertionError("the plans do not come to rest")

    def carry_out(self, name: str, intent: Intent) -> None:
        if not isinstance(intent, Create | Patch | Delete | PatchStatus):
            return
        self.writes.append(intent)
        self.crash_after -= self.crash_after > 0
        match intent:
            case Create():
                made = stored(intent.body, f"uid-{intent.kind.kind}-{len(self.writes)}")
                if intent.kind.kind == "DaemonSet":
                    self.workload = made
                else:
                    self.parts[intent.kind.kind, made.metadata.name] = made
            case Patch():
                assert self.workload is not None
                owners = intent.patch["metadata"]["ownerReferences"]
                self.set_owners([each["uid"] for each in owners])
            case Delete():
                self.workload, self.parts, self.pods = None, {}, []
            case PatchStatus():
                kind, task = self.tasks[name]
                merged = {**task.status.to_json(), **intent.status}
                clean = {key: _without_null(value) for key, value in merged.items() if value is not None}
                status = msgspec.convert(clean, type(task.status))
                self.tasks[name] = kind, msgspec.structs.replace(task, status=status)

    def set_owners(self, uids: list[str]) -> None:
        assert self.workload is not None
        by_uid = {task.metadata.uid: (kind, task) for kind, task in self.tasks.values()}
        owners = [task_reference(*by_uid[uid]) for uid in uids if uid in by_uid]
        raw = msgspec.to_builtins(self.workload)
        raw["metadata"]["ownerReferences"] = owners
        self.workload = msgspec.convert(raw, CarrierObject)

    def delete(self, name: str) -> None:
        """The task goes, and the garbage collector with it: a reference, or the carrier with the last one."""
        uid = self.tasks.pop(name)[1].metadata.uid
        if self.workload is None:
            return
        left = [each for each in self.owners if each != uid]
        if left:
            self.set_owners(left)
        else:
            self.workload, self.parts, self.pods = None, {}, []

    def make_ready(self, *nodes: str) -> None:
        self.settle()
        assert self.workload is not None
        self.pods = [pod(f"pod-{node}", node) for node in nodes]
        status = {"observedGeneration": 1, "desiredNumberScheduled": len(nodes), "numberReady": len(nodes)}
        self.workload = msgspec.structs.replace(self.workload, status=status)
        self.settle()

    @property
    def owners(self) -> list[str]:
        return [each.uid for each in self.workload.metadata.owner_references] if self.workload is not None else []

    def status(self, name: str) -> str:
        resource = self.tasks[name][1].status.resource
        return resource.runtime_status if resource is not None else ""


def _without_null(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: each for name, each in value.items() if each is not None}


def sharing_task(name: str, kind: str = "NetReach", **spec: Any) -> tuple[str, Task]:
    whole = {"agentSpec": AGENT, "schedule": SCHEDULE, **spec}
    return kind, make_task(kind, name, whole, annotations=SHARE)


def test_tasks_with_equal_agent_specs_share_a_carrier_and_each_is_an_owner() -> None:
    http = sharing_task("b", "AppHttpHealthy", target={"host": "http://h", "method": "GET"})
    cluster = Cluster(sharing_task("a"), http)
    cluster.settle()
    assert cluster.workload is not None
    assert cluster.owners == ["uid-a", "uid-b"]
    assert [each.controller for each in cluster.workload.metadata.owner_references] == [None, None]
    assert len([each for each in cluster.writes if isinstance(each, Create)]) == 2, "one workload, one Service"
    names = {task.status.resource.runtime_name for _, task in cluster.tasks.values() if task.status.resource}
    assert names == {cluster.workload.metadata.name}
    cluster.make_ready("n1", "n2")
    for _, task in cluster.tasks.values():
        assert [actor.node for actor in task.status.actors] == ["n1", "n2"]


@pytest.mark.parametrize(
    ("other", "is_shared"),
    [
        ({"agentSpec": AGENT}, True),
        ({"agentSpec": {**AGENT, "kind": "DaemonSet"}}, True),
        ({"agentSpec": {**AGENT, "hostNetwork": True}}, False),
        ({"agentSpec": {"terminationGracePeriodMinutes": 2}}, False),
        ({"agentSpec": AGENT, "target": {"nodePort": False}}, True),
    ],
)
def test_only_an_equal_agent_spec_is_shared(other: Any, is_shared: bool) -> None:
    first, second = sharing_task("a")[1], sharing_task("b", **other)[1]
    assert (shared_carrier(first) == shared_carrier(second)) is is_shared


def test_tasks_with_other_secrets_do_not_share_the_files_of_their_agents() -> None:
    def http(name: str, secret: str) -> Task:
        target = {"host": "https://h", "method": "GET", "tlsSecretName": secret, "tlsSecretNamespace": "default"}
        return sharing_task(name, "AppHttpHealthy", target=target)[1]

    assert shared_carrier(http("a", "s")) == shared_carrier(http("b", "s"))
    assert shared_carrier(http("a", "s")) != shared_carrier(http("b", "t"))
    assert shared_carrier(make_task()) == "", "a task that does not ask has a carrier of its own"
    assert AgentSpec() == AgentSpec(kind="DaemonSet")


def test_a_task_that_comes_later_joins_and_waits_for_nothing() -> None:
    cluster = Cluster(sharing_task("a"))
    cluster.make_ready("n1")
    cluster.tasks["late"] = sharing_task("late")
    cluster.settle()
    assert cluster.owners == ["uid-a", "uid-late"]
    assert cluster.status("late") == "created"
    assert len([each for each in cluster.writes if isinstance(each, Create)]) == 2


def test_the_carrier_stays_while_one_needs_it_and_goes_with_the_last() -> None:
    cluster = Cluster(sharing_task("a"), sharing_task("b"))
    cluster.make_ready("n1")
    cluster.reported = {"a"}
    cluster.settle()
    cluster.now += timedelta(minutes=2)
    cluster.settle()
    assert (cluster.status("a"), cluster.status("b")) == ("deleted", "created")
    assert cluster.owners == ["uid-b"], "a finished task keeps nothing alive"
    cluster.reported = {"a", "b"}
    cluster.settle()
    cluster.now += timedelta(minutes=2)
    cluster.settle()
    assert cluster.workload is None
    assert cluster.status("b") == "deleted"
    deletes = [each for each in cluster.writes if isinstance(each, Delete)]
    assert [bool(each.uid) for each in deletes] == [True]


def test_a_deleted_task_leaves_the_carrier_to_the_other() -> None:
    cluster = Cluster(sharing_task("a"), sharing_task("b"))
    cluster.make_ready("n1")
    cluster.delete("a")
    cluster.settle()
    assert cluster.owners == ["uid-b"]
    cluster.delete("b")
    assert cluster.workload is None


@pytest.mark.parametrize(("crash_after", "deleted"), list(itertools.product(range(12), ["", "a", "b"])))
def test_a_crash_after_any_write_leaves_one_carrier_and_none_in_the_end(crash_after: int, deleted: str) -> None:
    cluster = Cluster(sharing_task("a"), sharing_task("b"))
    cluster.crash_after = crash_after
    cluster.make_ready("n1")
    if deleted:
        cluster.delete(deleted)
        cluster.settle()
    left = {"a", "b"} - {deleted}
    assert cluster.owners == [f"uid-{name}" for name in sorted(left)]
    cluster.reported = left
    cluster.settle()
    cluster.now += timedelta(minutes=2)
    cluster.settle()
    assert cluster.workload is None
    assert {cluster.status(name) for name in left} == {"deleted"}
    workloads = [each for each in cluster.writes if isinstance(each, Create) and each.kind.kind == "DaemonSet"]
    assert len(workloads) == 1


def test_a_template_changes_only_while_none_of_the_tasks_runs() -> None:
    cluster = Cluster(sharing_task("a"), sharing_task("b"))
    cluster.make_ready("n1")
    assert cluster.workload is not None
    raw = msgspec.to_builtins(cluster.workload)
    raw["metadata"]["annotations"]["tasks.fairlead.io/template-hash"] = "old"
    cluster.workload = msgspec.convert(raw, CarrierObject)
    cluster.reported = {"a"}
    cluster.settle()
    assert not [each for each in cluster.look("a").intents if type(each).__name__ == "Apply"], "b is in a round"


def test_a_foreign_workload_of_that_name_is_not_adopted() -> None:
    cluster = Cluster(sharing_task("a"))
    name = shared_carrier(cluster.tasks["a"][1])
    body = {"metadata": {"name": name, "namespace": "fairlead-system"}, "spec": {}}
    cluster.workload = stored(body, "foreign")
    cluster.settle()
    conditions = {each.type: each.reason for each in cluster.tasks["a"][1].status.conditions}
    assert conditions["CarrierReady"] == "NameConflict"
    gone = {"apiVersion": "kdoctor.io/v1beta1", "kind": "NetReach", "name": "x", "uid": "gone"}
    cluster.workload = stored({**body, "metadata": {**body["metadata"], "ownerReferences": [gone]}}, "left")
    cluster.settle()
    conditions = {each.type: each.reason for each in cluster.tasks["a"][1].status.conditions}
    assert conditions["CarrierReady"] == "Waiting", "it goes with the tasks it belonged to"
    assert cluster.owners == ["gone"]


def test_services_have_what_any_of_the_tasks_tests() -> None:
    plain, balanced = sharing_task("a")[1].spec, sharing_task("b", target={"loadBalancer": True})[1].spec
    none = sharing_task("c", target={"nodePort": False})[1].spec
    assert [service_type([none]), service_type([none, plain]), service_type([plain, balanced])] == [
        "ClusterIP",
        "NodePort",
        "LoadBalancer",
    ]
    ingress = sharing_task("d", target={"ingress": True})[1].spec
    assert build_common("kdoctor-shared-x", [plain, ingress], [], OPTIONS).ingress is not None


def test_the_annotation_is_read_when_the_carrier_is_made() -> None:
    (cause,) = validate_update({}, {}, {}, SHARE)
    assert "is read when the carrier is made" in str(cause)
    assert validate_update({}, {}, SHARE, SHARE) == []
    own = make_task(annotations=SHARE, status={"resource": {"runtimeName": "kdoctor-netreach-a"}})
    assert shared_carrier(own) == "", "what a task has already, it keeps"


def test_the_index_says_when_a_carrier_of_several_tasks_goes() -> None:
    resource = {"runtimeName": "kdoctor-shared-x", "runtimeType": "DaemonSet", "runtimeStatus": "created"}
    first = make_task(name="a", spec={"agentSpec": AGENT}, status={"resource": resource})
    ended = {"resource": resource, "finish": True, "finishTime": "2026-01-01T00:00:00Z"}
    second = make_task(name="b", spec={"agentSpec": AGENT}, status=ended)
    (item,) = tracked([("NetReach", first), ("NetReach", second)]).values()
    assert (item.tasks, item.delete_at) == ({"a": "NetReach", "b": "NetReach"}, None)
    later = make_task(name="a", spec={"agentSpec": AGENT}, status={**ended, "finishTime": "2026-01-01T01:00:00Z"})
    (item,) = tracked([("NetReach", second), ("NetReach", later)]).values()
    assert item.delete_at is not None
    assert item.delete_at.hour == 1


@pytest.mark.parametrize(
    ("target", "has_own"),
    [
        ({}, False),
        ({"tlsSecretName": "s", "tlsSecretNamespace": "n"}, True),
        ({"bodyConfigmapName": "b", "bodyConfigmapNamespace": "n"}, True),
    ],
)
def test_a_task_that_needs_copies_does_not_run_on_the_shared_agent(target: Any, has_own: bool) -> None:
    whole = {"host": "http://h", "method": "GET", **target}
    agent = with_own_agents(make_task("AppHttpHealthy", spec={"target": whole})).spec.agent_spec
    assert (agent is not None) == has_own
    assert agent is None or agent.termination_grace_period_minutes == 0
    explicit = make_task("AppHttpHealthy", spec={"agentSpec": {"kind": "Deployment"}, "target": whole})
    assert with_own_agents(explicit) is explicit
