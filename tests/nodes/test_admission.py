"""Which bound pods a node rejects, and in which words: those of a kubelet 1.36."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.node import Node
from fairlead.nodes.admission import Occupancy, Rejection, admit, has_begun, rejected_status
from fairlead.nodes.spec import KubeletPod
from tests.nodes.kit import container, pod

AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"
NO_AFFINITY = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
NO_PORTS = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
NOT_TOLERATED = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"


def node(labels: dict[str, str] | None = None, taints: list[Any] | None = None, **allocatable: str) -> Node:
    offered = {"cpu": "2", "memory": "1Gi", "pods": "3", "example.com/gpu": "2", **allocatable}
    body = {
        "metadata": {"name": "node", "labels": labels or {"zone": "a", "kubernetes.io/os": "linux"}},
        "spec": {"taints": taints or []},
        "status": {"allocatable": offered},
    }
    return msgspec.convert(body, Node)


def asking(name: str = "p", ports: Any = None, spec: Any = None, **requests: Any) -> KubeletPod:
    resources = {"requests": {key.replace("_", "-"): value for key, value in requests.items()}}
    return pod(name, containers=[container(resources=resources, ports=ports or [])], **(spec or {}))


def held(*pods: KubeletPod) -> Occupancy:
    occupancy = Occupancy()
    for each in pods:
        occupancy.add(each)
    return occupancy


def enough(name: str, requested: int, used: int, capacity: int) -> str:
    return f"Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"


@pytest.mark.parametrize(
    ("wanted", "others", "reason", "message"),
    [
        (asking(cpu="2001m"), (), "OutOfcpu", enough("cpu", 2001, 0, 2000)),
        (asking(cpu="1"), (asking("a", cpu="1500m"),), "OutOfcpu", enough("cpu", 1000, 1500, 2000)),
        (asking(memory="2Gi"), (), "OutOfmemory", enough("memory", 2 << 30, 0, 1 << 30)),
        (
            asking(ephemeral_storage="1"),
            (),
            "OutOfephemeral-storage",
            enough("ephemeral-storage", 1, 0, 0),
        ),
        (asking(), (asking("a"), asking("b"), asking("c")), "OutOfpods", enough("pods", 1, 3, 3)),
        (asking(**{"example.com/gpu": "3"}), (), "OutOfexample.com/gpu", enough("example.com/gpu", 3, 0, 2)),
        (asking(**{"hugepages-2Mi": "2Mi"}), (), "OutOfhugepages-2Mi", enough("hugepages-2Mi", 2 << 20, 0, 0)),
        # Resources come before everything else, as the first of several reasons.
        (asking(cpu="3", spec={"nodeSelector": {"zone": "b"}}), (), "OutOfcpu", enough("cpu", 3000, 0, 2000)),
        (asking(spec={"nodeSelector": {"zone": "b"}}), (), "NodeAffinity", NO_AFFINITY),
        (asking(spec={"overhead": {"cpu": "3"}}), (), "OutOfcpu", enough("cpu", 3000, 0, 2000)),
        (asking(cpu="1", spec={"resources": {"requests": {"cpu": "3"}}}), (), "OutOfcpu", enough("cpu", 3000, 0, 2000)),
        (
            pod(initContainers=[container("init", resources={"requests": {"cpu": "3"}})]),
            (),
            "OutOfcpu",
            enough("cpu", 3000, 0, 2000),
        ),
        (asking(spec={"os": {"name": "windows"}}), (), "PodOSNotSupported", None),
        (
            asking(spec={"metadata": {"labels": {"kubernetes.io/os": "windows"}}}),
            (),
            "PodOSSelectorNodeLabelDoesNotMatch",
            None,
        ),
    ],
)
def test_what_is_too_much_or_in_the_wrong_place(
    wanted: KubeletPod, others: tuple[KubeletPod, ...], reason: str, message: str | None
) -> None:
    rejection = admit(wanted, node(), held(*others))
    assert rejection is not None
    assert rejection.reason == reason
    assert message is None or rejection.message == message


def test_what_fits_exactly_is_admitted() -> None:
    exact = asking(cpu="500m", memory="1Gi", **{"example.com/gpu": "2"})
    assert admit(exact, node(), held(asking("a", cpu="1500m"), asking("b"))) is None


def test_an_extended_resource_that_the_node_does_not_know_is_not_counted() -> None:
    assert admit(asking(**{"example.com/elsewhere": "5"}), node(), Occupancy()) is None


@pytest.mark.parametrize(
    ("terms", "is_admitted"),
    [
        ([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "c"]}]}], True),
        ([{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}], False),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node"]}]}], True),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]}], False),
        ([{}], False),
        ([{}, {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}], True),
        ([{"matchExpressions": [{"key": "zone", "operator": "Gt", "values": ["x"]}]}], False),
    ],
)
def test_required_node_affinity(terms: list[Any], is_admitted: bool) -> None:
    wanted = pod(affinity={"nodeAffinity": {AFFINITY: {"nodeSelectorTerms": terms}}})
    assert admit(wanted, node(), Occupancy()) == (None if is_admitted else Rejection("NodeAffinity", NO_AFFINITY))


@pytest.mark.parametrize(
    ("ours", "theirs", "is_admitted"),
    [
        ({}, {}, False),
        ({"hostIP": "127.0.0.1"}, {}, False),
        ({}, {"hostIP": "10.0.0.1"}, False),
        ({"hostIP": "127.0.0.1"}, {"hostIP": "127.0.0.2"}, True),
        ({"protocol": "UDP"}, {}, True),
        ({"hostPort": 8081}, {}, True),
        ({"hostPort": 0}, {}, True),
    ],
)
def test_a_host_port_is_one_pods(ours: dict[str, Any], theirs: dict[str, Any], is_admitted: bool) -> None:
    usual = {"containerPort": 80, "hostPort": 8080}
    rejection = admit(asking(ports=[usual | ours]), node(), held(asking("a", [usual | theirs])))
    assert rejection == (None if is_admitted else Rejection("NodePorts", NO_PORTS))


@pytest.mark.parametrize(
    ("effect", "tolerations", "is_admitted"),
    [
        ("NoExecute", [], False),
        ("NoSchedule", [], True),
        ("NoExecute", [{"key": "k", "operator": "Exists"}], True),
        ("NoExecute", [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}], False),
    ],
)
def test_only_untolerated_no_execute_taints_reject(effect: str, tolerations: list[Any], is_admitted: bool) -> None:
    tainted = node(taints=[{"key": "k", "effect": effect}])
    rejection = admit(pod(tolerations=tolerations), tainted, Occupancy())
    assert rejection == (None if is_admitted else Rejection("TaintToleration", NOT_TOLERATED))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.booleans())))
def test_what_is_used_is_the_sum_over_the_pods_that_are_there(steps: list[tuple[str, int, bool]]) -> None:
    occupancy, there = Occupancy(), dict[str, int]()
    for generation, (name, cpus, stays) in enumerate(steps):
        if stays:
            occupancy.add(asking(name, cpu=str(cpus), spec={"metadata": {"generation": generation}}))
            there[name] = cpus * 1000
        else:
            occupancy.remove(f"uid-{name}")
            there.pop(name, None)
    assert occupancy.used.get("cpu", 0) == sum(there.values())
    assert len(occupancy.charges) == len(there)


def test_a_pod_that_has_begun_is_not_asked_again() -> None:
    assert not has_begun(pod())
    assert has_begun(pod(status={"startTime": "2026-01-01T00:00:00Z"}))
    assert has_begun(pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}))


def test_a_rejected_pod_has_failed_and_keeps_only_the_conditions_of_others() -> None:
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "example.com/mine", "status": "True"}]
    status = rejected_status(
        pod(status={"conditions": conditions}), Rejection("OutOfcpu", "why"), "2026-01-01T00:00:00Z"
    )
    assert (status.phase, status.reason, status.message) == ("Failed", "OutOfcpu", "Pod was rejected: why")
    assert [condition.type for condition in status.conditions or ()] == ["example.com/mine"]
    assert (status.start_time, status.qos_class, status.container_statuses) == (
        "2026-01-01T00:00:00Z",
        "BestEffort",
        None,
    )
