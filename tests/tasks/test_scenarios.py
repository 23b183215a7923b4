"""Scenarios of the task specification by number, as plans: carriers as they are built, and rounds seen from outside."""

import contextlib
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from fairlead.cluster.controller import TemporaryError
from fairlead.cluster.errors import no_answer
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.writer import Outcome, Result, Writer
from fairlead.model.intents import Create, PatchStatus
from fairlead.settings import Settings, TaskSettings
from fairlead.tasks.carrier import DAEMON_SETS, Adaptation, Carrier, CarrierOptions, adapted, build
from fairlead.tasks.controller import TaskController, _check
from fairlead.tasks.metrics import TaskMetrics
from fairlead.tasks.plan import PlanOptions, SharedAgent, next_runtime_status
from fairlead.tasks.report_address import shared_url, without_reserved
from fairlead.tasks.spec import KINDS, TaskResource
from fairlead.tasks.templates import built_in
from tests.cluster.kit import Hurried
from tests.tasks.kit import NAMESPACE, OPTIONS, SPEC, World, carrier_of, make_task, pod, stored


def carrier(kind: str = "NetReach", *, ipv4: bool = True, ipv6: bool = False, **spec: Any) -> Carrier:
    required = {"target": {"host": "http://h", "method": "GET"}} if kind == "AppHttpHealthy" else {}
    task = make_task(kind, spec={**SPEC, **required, **spec})
    options = CarrierOptions(NAMESPACE, built_in(TaskSettings()), ipv4, ipv6)
    return adapted(build(kind, task.metadata, task.spec, options), [task.spec], Adaptation())


def container(found: Carrier) -> Any:
    return found.workload["spec"]["template"]["spec"]["containers"][0]


def test_s4_without_ipv6_there_is_one_service_and_no_argument_about_another() -> None:
    only, both = carrier(), carrier(ipv6=True)
    assert [each["metadata"]["name"] for each in only.services] == ["kdoctor-netreach-a-ipv4"]
    assert (only.resource.service_name_v4, only.resource.service_name_v6) == ("kdoctor-netreach-a-ipv4", None)
    assert not [each for each in container(only)["args"] if each.startswith("--service-ipv6-name")]
    assert [each["spec"]["ipFamilies"] for each in both.services] == [["IPv4"], ["IPv6"]]
    assert "--service-ipv6-name=kdoctor-netreach-a-ipv6" in container(both)["args"]


def test_s5_only_a_net_reach_that_asks_for_it_gets_an_ingress() -> None:
    found = carrier(target={"ingress": True})
    assert found.ingress is not None
    assert found.ingress["metadata"]["name"] == "kdoctor-netreach-a-ipv4"
    owners = [each["metadata"]["ownerReferences"][0]["uid"] for each in found.parts("uid-of-workload")]
    assert owners == ["uid-of-workload", "uid-of-workload"]
    assert carrier().ingress is None
    assert carrier("AppHttpHealthy").ingress is None


def test_s6_an_agent_spec_is_laid_over_the_template() -> None:
    zone = {"key": "zone", "operator": "In", "values": ["z"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
    agent = {
        "annotation": {"example.org/a": "b"},
        "env": [{"name": "EXTRA", "value": "1"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        "resources": {"limits": {"cpu": "2"}},
        "hostNetwork": True,
    }
    found, plain = carrier(agentSpec=agent), carrier()
    template = found.workload["spec"]["template"]
    for metadata in (found.workload["metadata"], template["metadata"], found.services[0]["metadata"]):
        assert metadata["annotations"]["example.org/a"] == "b"
    names = [each["name"] for each in container(found)["env"]]
    assert [name for name in names if name != "EXTRA"] == [each["name"] for each in container(plain)["env"]]
    assert container(found)["resources"] == {"limits": {"cpu": "2"}}
    assert (template["spec"]["hostNetwork"], template["spec"]["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    required = template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"][0]["matchExpressions"][0] == zone


def test_s8_a_task_without_an_agent_spec_makes_nothing_and_names_the_shared_agent() -> None:
    world = World(make_task(spec={"schedule": SPEC["schedule"]}))
    world.settle()
    assert not world.writes("Create")
    assert world.task.status.resource == SharedAgent().resource
    assert world.task.status.resource.runtime_status == "created"


def test_s9_the_arguments_end_with_the_task_and_its_services() -> None:
    assert container(carrier(ipv6=True))["args"][-4:] == [
        "--task-kind=NetReach",
        "--task-name=a",
        "--service-ipv4-name=kdoctor-netreach-a-ipv4",
        "--service-ipv6-name=kdoctor-netreach-a-ipv6",
    ]


def test_s14_a_deployment_is_created_once_its_replicas_are_ready() -> None:
    task = make_task(spec={**SPEC, "agentSpec": {"kind": "Deployment", "deploymentReplicas": 2}})
    resource = TaskResource(runtime_name="d", runtime_type="Deployment", runtime_status="creating")
    for ready, expected in ((1, "creating"), (2, "created")):
        workload = stored(carrier_of(task).workload, "u", observedGeneration=1, readyReplicas=ready)
        assert next_runtime_status(resource, workload, is_due=False) == expected


def test_s17_s47_a_conflict_is_tried_again_and_makes_no_second_workload() -> None:
    world = World(make_task())
    plan = world.look()
    for intent in plan.intents:
        if not isinstance(intent, PatchStatus):
            world.carry_out(intent)
            continue
        with pytest.raises(TemporaryError):
            _check(Result(intent, Outcome.CONFLICT))
    world.settle()
    made = [each for each in world.writes("Create") if isinstance(each, Create) and each.kind.kind == "DaemonSet"]
    assert len(made) == 1
    assert world.task.status.resource is not None
    assert world.task.status.resource.runtime_status == "creating"


@pytest.mark.parametrize(("is_deleted", "sends"), [(True, 1), (False, 2)])
async def test_s43_a_create_without_an_answer_is_sent_again_only_while_its_task_is_there(
    is_deleted: bool, sends: int
) -> None:
    task, sent = make_task(), []
    shown = {"a": task}

    async def create(kind: Any, body: Any, namespace: str) -> Any:
        sent.append(body)
        if len(sent) == 1:
            shown["a"] = make_task(uid="uid-of-the-next") if is_deleted else make_task(resourceVersion="2")
            raise no_answer("POST daemonsets", "no answer in 5 s", may_have_happened=True)

    client: Any = SimpleNamespace(create=create)
    recorder: Any = SimpleNamespace(yield_to=lambda _: None)
    writer = Writer(client, recorder, clock=Hurried(), rng=lambda: 0.5, metrics=Metrics())
    controller: Any = object.__new__(TaskController)
    controller._runtime = SimpleNamespace(writer=writer)
    controller._mirrors = SimpleNamespace(tasks={"NetReach": shown})
    controller._metrics = TaskMetrics(CollectorRegistry())
    create_carrier = Create(kind=DAEMON_SETS, body=carrier_of(task).workload, namespace=NAMESPACE)
    with pytest.raises(TemporaryError, match="deleted") if is_deleted else contextlib.nullcontext():
        await controller._carry_out([create_carrier], task, "NetReach")
    assert len(sent) == sends


def test_s68_the_metrics_of_a_task_show_no_verdict_on_its_predecessor() -> None:
    registry = CollectorRegistry()
    metrics, labels = TaskMetrics(registry), {"kind": "NetReach", "task": "a"}
    for status, value in ({"lastRoundStatus": "succeed"}, 1.0), ({"lastRoundStatus": "fail"}, 0.0), ({}, None):
        metrics.observe("NetReach", make_task(status=status))
        assert registry.get_sample_value("fairlead_task_last_round_succeeded", labels) == value


def test_s18_a_round_has_its_whole_time_from_its_planned_start() -> None:
    late = {**SPEC, "schedule": {"schedule": "2 5", "roundTimeoutMinute": 3, "roundNumber": 1}}
    world = World(make_task(spec=late))
    world.make_ready("n1")
    plan = world.settle()
    (record,) = world.task.status.history
    assert (world.task.status.expected_round, world.task.status.done_round, record.round_number) == (1, 0, 1)
    assert (record.status, plan.wake_s) == ("notstarted", 120)
    world.now += timedelta(minutes=2)
    world.settle()
    (started,) = world.task.status.history
    assert started.status == "ongoing"
    assert (started.start_time_stamp, started.dead_line_time_stamp) == ("2026-01-01T12:02:00Z", "2026-01-01T12:05:00Z")


@pytest.mark.parametrize(
    ("listen", "is_loopback", "expected"),
    [
        pytest.param("127.0.0.1:8470", False, "", id="an address of its own"),
        pytest.param(":8470", False, "https://fairlead.fairlead-system.svc:8470", id="every address: the Service"),
        pytest.param("[::]:8470", False, "https://fairlead.fairlead-system.svc:8470", id="every address, IPv6"),
        pytest.param(":8470", True, "", id="a cluster of its own has no such Service"),
    ],
)
def test_s45_replicas_behind_a_service_name_it_to_their_agents(listen: str, is_loopback: bool, expected: str) -> None:
    assert shared_url(Settings(listen=listen), "https://own:8470", is_loopback) == expected
    named = Settings(listen=listen, tasks=TaskSettings(api_url="https://elsewhere"))
    assert shared_url(named, "https://own:8470", is_loopback) == "https://elsewhere"


def test_s70_an_author_cannot_lead_agents_elsewhere_by_variables() -> None:
    env = [{"name": name, "value": "x"} for name in ("AGENT_API_URL", "PYTHONPATH", "KUBERNETES_SERVICE_HOST", "MINE")]
    fault = {"name": "AGENT_FAULT", "value": "drop:0.3@node-2"}
    task = make_task(spec={"agentSpec": {"env": [*env, fault]}})
    built = build("NetReach", task.metadata, without_reserved(task.spec), OPTIONS)
    passed = container(built)["env"]
    assert passed[-2:] == [env[3], fault]
    assert not {"AGENT_API_URL", "PYTHONPATH", "KUBERNETES_SERVICE_HOST"} & {each["name"] for each in passed}


def test_s21_every_node_succeeded_and_nodes_are_counted() -> None:
    world = World(make_task())
    world.make_ready("n1", "n2")
    world.pods = [pod("pod-n1", "n1"), pod("pod-n2", "n2"), pod("twin-n2", "n2")]
    world.settle()
    world.results = {"uid-pod-n1": True, "uid-pod-n2": True, "uid-twin-n2": True}
    world.settle()
    record = world.task.status.history[1]
    assert (record.status, record.expected_actor_number) == ("succeed", 2)
    assert record.succeed_agent_node_list == ["n1", "n2"]
    assert world.task.status.last_round_status == "succeed"


def test_s30_a_node_removed_during_a_round_is_named_in_its_record() -> None:
    world = World(make_task())
    world.make_ready("n1", "n2")
    world.settle()
    world.pods = [pod("pod-n1", "n1")]
    world.results = {"uid-pod-n1": True}
    world.settle()
    assert world.task.status.history[0].status == "ongoing"
    world.now += timedelta(minutes=5)
    world.settle()
    record = world.task.status.history[1]
    assert (record.status, record.not_report_agent_node_list) == ("fail", ["n2"])


def test_s31_however_many_agents_report_at_once_one_write_ends_the_round() -> None:
    nodes = [f"n{number:03}" for number in range(200)]
    world = World(make_task())
    world.make_ready(*nodes)
    world.settle()
    world.log.clear()
    for number, node in enumerate(nodes[:-1]):
        world.results[f"uid-pod-{node}"] = True
        assert number % 40 or world.look().is_progress, "it can wait for more"
    world.results[f"uid-pod-{nodes[-1]}"] = True
    assert not world.look().is_progress
    world.settle()
    assert len(world.writes("PatchStatus")) == 1
    assert world.task.status.history[1].succeed_agent_node_list == nodes


def test_s39_a_controller_that_was_away_during_the_grace_deletes_the_carrier_when_it_is_back() -> None:
    world = World(make_task(spec={**SPEC, "schedule": {**SPEC["schedule"], "roundNumber": 1},
                                  "agentSpec": {"terminationGracePeriodMinutes": 1}}))  # fmt: skip
    world.make_ready("n1")
    world.settle()
    world.results = {"uid-pod-n1": True}
    world.settle()
    assert world.task.status.finish
    assert not world.writes("Delete")
    # What another process would know of it is in the status.
    again = World(msgspec.convert(msgspec.to_builtins(world.task), KINDS["NetReach"].struct))
    again.workload, again.parts, again.pods = world.workload, world.parts, world.pods
    again.now = world.now + timedelta(hours=3)
    again.settle()
    assert len(again.writes("Delete")) == 1
    assert again.task.status.resource is not None
    assert again.task.status.resource.runtime_status == "deleted"


def test_s40_another_controller_goes_on_with_the_running_round() -> None:
    world = World(make_task())
    world.make_ready("n1")
    world.settle()
    again = World(world.task)
    again.workload, again.parts, again.pods = world.workload, world.parts, world.pods
    again.options = PlanOptions()
    assert again.look().intents == []
    again.results = {"uid-pod-n1": True}
    again.settle()
    assert [(each.round_number, each.status) for each in again.task.status.history] == [
        (2, "notstarted"),
        (1, "succeed"),
    ]
