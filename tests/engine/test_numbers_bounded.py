"""Numbers as anybody may write them into an object: each is bounded where it is read, and costs no time."""

from datetime import UTC, datetime
from time import process_time
from typing import Any

import msgspec
import numpy as np
import pytest

from fairlead.engine.cycle import Cycle
from fairlead.engine.gpu_requests import COUNT, DEVICES, MEMORY_LABELS, MEMORY_MIB, MILLI, MOST_DEVICES, given_devices
from fairlead.engine.profile import kube_profile
from fairlead.engine.removal import DELETION_COST, scale_down_order
from fairlead.engine.table import allocatable
from fairlead.model import resources
from fairlead.model.node import Node
from fairlead.model.numbers import whole_number
from fairlead.model.outcome import Placed, Refused
from fairlead.model.pod import SchedulerPod
from fairlead.model.quantity import MOST, QuantityError, nanos
from fairlead.model.selectors import SelectorError, parse_requirement
from fairlead.model.volumes import CsiNode
from fairlead.placement.requests.progress import is_over
from fairlead.testing.builders import a_node, a_pod, a_table

HOSTILE = (
    "99999999999999999999",
    "9" * 5000,
    "-1",
    "0",
    str(10**30),
    "NaN",
    "inf",
    "1e9",
    "1_000",
    " 7 ",
    "\u0661\u0662",
    "\u00b2",
    "0x10",
    "",
)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("key", [MILLI, MEMORY_MIB, COUNT, DEVICES])
def test_a_hostile_annotation_is_its_own_pods_trouble(key: str, text: str) -> None:
    annotations = {MILLI: "500", key: text} if key != MEMORY_MIB else {key: text}
    hostile = a_pod("hostile", cpu="1", node="n1", annotations=annotations, requests={"nvidia.com/gpu": "1"})
    table = a_table([a_node("n1", cpu="4", nvidia__com_gpu=2), a_node("n2", cpu="4", nvidia__com_gpu=2)], [hostile])
    row = table.row_of["n1"]
    assert table.used_RN[0, row] == 1000
    cycle = Cycle(table, kube_profile())
    assert isinstance(cycle.decide(a_pod("other", cpu="2", annotations={MILLI: "100"})), Placed)
    table.remove_pod(hostile.uid)
    assert table.used_RN[0, row] in (0, 2000)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("label", MEMORY_LABELS)
def test_a_hostile_label_of_a_node_is_as_none(label: str, text: str) -> None:
    table = a_table([a_node("n1", labels={label: text}, nvidia__com_gpu=2)])
    assert table.gpus.memory_mib_N[0] in (0, whole_number(text, 0, 2**30) or 0)


@pytest.mark.parametrize("text", ["1e3000000", "1e999999999", "9" * 5000, "1e" + "9" * 5000, 10**400, 1e300])
def test_a_quantity_beyond_all_bounds_is_read_at_once_and_counts_as_very_large(text: Any) -> None:
    started = process_time()
    assert nanos(text) == MOST
    assert nanos(f"-{text}" if isinstance(text, str) else -text) == -MOST
    assert process_time() - started < 0.1


@pytest.mark.parametrize("text", ["1e-999999999", "0." + "0" * 5000 + "1", "1e-" + "9" * 5000])
def test_a_quantity_finer_than_a_billionth_is_one(text: str) -> None:
    started = process_time()
    assert nanos(text) == 1
    assert process_time() - started < 0.1


@pytest.mark.parametrize(
    "text", ["nan", "inf", "\u0661\u0662", "1_0", "\u00b2", float("nan"), float("inf"), "x" * 9000]
)
def test_what_looks_like_a_number_to_python_alone_is_none(text: Any) -> None:
    with pytest.raises(QuantityError) as told:
        nanos(text)
    assert len(str(told.value)) < 200


@pytest.mark.parametrize("name", ["cpu", "memory", "ephemeral-storage", "example.com/thing", "nvidia.com/gpu"])
@pytest.mark.parametrize("amount", ["9E", "1e30", "1e3000000", "9" * 5000])
def test_a_pod_that_asks_for_more_than_there_can_be_fits_nowhere(name: str, amount: str) -> None:
    offered: dict[str, Any] = {name.replace(".", "__").replace("/", "_"): amount}
    table = a_table([a_node("n1", **offered)])
    assert isinstance(Cycle(table, kube_profile()).decide(a_pod("p", requests={name: amount})), Refused)


def test_pods_that_ask_for_more_than_there_can_be_leave_no_room_behind_them() -> None:
    """Their sum must not wrap around and look like room."""
    huge = [a_pod(f"huge{i}", cpu="9E", memory="9E", node="n1") for i in range(50)]
    table = a_table([a_node("n1")], huge)
    assert isinstance(Cycle(table, kube_profile()).decide(a_pod("p")), Refused)
    for pod in huge:
        table.remove_pod(pod.uid)
    assert not table.used_RN.any()
    assert isinstance(Cycle(table, kube_profile()).decide(a_pod("p")), Placed)


def test_asking_for_less_than_nothing_gives_no_room() -> None:
    pod = msgspec.convert(
        {
            "metadata": {"name": "p"},
            "spec": {
                "containers": [
                    {"name": "a", "resources": {"requests": {"cpu": "2", "memory": "-1Gi"}}},
                    {"name": "b", "resources": {"requests": {"cpu": "-2"}}},
                ],
                "overhead": {"cpu": "-5"},
            },
        },
        SchedulerPod,
    )
    assert dict(resources.counted(resources.pod_requests(pod))) == {"cpu": 2000, "memory": 0}


@pytest.mark.parametrize("amount", ["-5", "9E", "1e999999999"])
def test_what_a_node_offers_is_bounded(amount: str) -> None:
    node = a_node(cpu=amount, memory=amount, pods=amount, nvidia__com_gpu=amount)
    assert all(0 <= each < resources.MOST_AMOUNT for each in allocatable(node).values())
    table = a_table([node])
    assert table.gpus.free_milli_NG.shape[1] <= MOST_DEVICES


def test_an_image_of_any_size_spoils_no_score() -> None:
    images = {f"app:{i}": size for i, size in enumerate((2**63 - 1, -(2**63), 2**62))}
    pod = a_pod("p", image="app:0", initContainers=[{"name": f"i{n}", "image": f"app:{n}"} for n in range(3)])
    with np.errstate(over="raise"):
        assert isinstance(Cycle(a_table([a_node(images=images)]), kube_profile()).decide(pod), Placed)


@pytest.mark.parametrize("operator", ["Gt", "Lt"])
@pytest.mark.parametrize("text", ["9" * 5000, "\u0661", "1_0", " 1", "1e3", str(2**63)])
def test_a_bound_that_is_no_number_of_64_bits_is_refused_by_name(operator: str, text: str) -> None:
    with pytest.raises(SelectorError):
        parse_requirement("key", operator, (text,))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_deletion_cost_is_a_number_of_32_bits_or_none(text: str) -> None:
    order = scale_down_order(a_pod(annotations={DELETION_COST: text}), 0, 0.0)
    assert order[3] == (whole_number(text, -(2**31), 2**31 - 1) or 0)


@pytest.mark.parametrize("moment", ["", "yesterday", "9" * 5000, "2026-01-02", "\u0662026-01-02T03:04:05Z", "--T::"])
def test_a_moment_that_is_none_is_no_age(moment: str) -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": moment}]}
    pods = [a_pod("p", created_at=moment, status=ready), a_pod("q", created_at="2026-01-02T03:04:05Z", status=ready)]
    assert len(sorted(pods, key=lambda pod: scale_down_order(pod, 0, 1e9))) == 2


@pytest.mark.parametrize("since", ["", "yesterday", "9" * 5000, "0001-01-01T00:00:00+14:00", "2026-01-02T03:04:05"])
def test_what_began_at_no_moment_is_over(since: str) -> None:
    assert is_over(since, 300.0, datetime(2026, 3, 1, tzinfo=UTC))


def test_devices_given_are_numbers_of_devices() -> None:
    def given(text: str) -> tuple[int, ...]:
        return given_devices(a_pod(annotations={DEVICES: text}))

    assert given("0, 3") == (0, 3)
    for text in ("", "0,", "-1", "512", "9" * 5000, "\u0661", ",".join(map(str, range(1000))), "0,x"):
        assert given(text) == ()


@pytest.mark.parametrize(
    ("struct", "document"),
    [
        (SchedulerPod, {"spec": {"priority": 10**30}}),
        (SchedulerPod, {"spec": {"containers": [{"ports": [{"hostPort": 2**31}]}]}}),
        (SchedulerPod, {"spec": {"topologySpreadConstraints": [{"maxSkew": 10**30}]}}),
        (SchedulerPod, {"metadata": {"generation": 10**30}}),
        (Node, {"status": {"images": [{"sizeBytes": 10**30}]}}),
        (CsiNode, {"spec": {"drivers": [{"allocatable": {"count": 10**30}}]}}),
    ],
)
def test_a_whole_number_that_no_api_server_serves_does_not_decode(struct: type, document: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        msgspec.json.decode(msgspec.json.encode(document), type=struct)


def a_huge_pod(name: str, resource: str) -> SchedulerPod:
    return a_pod(name, cpu=None, memory=None, node="n1", requests={resource: "9E"})


@pytest.mark.parametrize("resource", ["cpu", "memory", "ephemeral-storage", "example.com/thing"])
@pytest.mark.parametrize("count", [64, 127, 300])
def test_any_number_of_huge_pods_on_a_node_leaves_no_room_and_no_trace(resource: str, count: int) -> None:
    offered: dict[str, Any] = {"example__com_thing": 4, "ephemeral-storage": "10Gi"}
    table = a_table([a_node("n1", **offered)], [a_pod("before", cpu="1", node="n1")])
    cycle = Cycle(table, kube_profile())
    before = table.used_RN.copy()
    one = a_pod("p", cpu="100m", requests={resource: "1"})
    for i in range(count):
        table.add_pod(a_huge_pod(f"huge{i}", resource))
        assert (table.used_RN >= before).all()
    assert isinstance(cycle.decide(one), Refused)
    table.add_pod(a_pod("between", memory="3Ti", node="n1"))
    for i in range(count):
        assert isinstance(cycle.decide(one), Refused)
        table.remove_pod(a_huge_pod(f"huge{i}", resource).uid)
    table.remove_pod(a_pod("between", node="n1").uid)
    assert np.array_equal(table.used_RN, before)
    assert isinstance(cycle.decide(one), Placed)


def test_huge_pods_of_a_resource_that_is_offered_late_or_no_longer_are_counted_the_same() -> None:
    resource = "example.com/thing"
    huge = [a_huge_pod(f"huge{i}", resource) for i in range(200)]
    table = a_table([a_node("n1")], huge)
    for _ in range(2):
        table.add_node(a_node("n1", example__com_thing=4))
        assert isinstance(Cycle(table, kube_profile()).decide(a_pod("p", requests={resource: "1"})), Refused)
        table.add_node(a_node("n1"))
    table.add_node(a_node("n1", example__com_thing=4))
    for pod in huge:
        table.remove_pod(pod.uid)
    assert not table.used_RN.any()
    assert isinstance(Cycle(table, kube_profile()).decide(a_pod("p", requests={resource: "1"})), Placed)


@pytest.mark.parametrize("offered", ["9E", "1e30"])
def test_a_node_that_offers_more_than_there_can_be_scores_within_bounds(offered: str) -> None:
    node = a_node("n1", cpu=offered, memory=offered)
    cycle = Cycle(a_table([node]), kube_profile())
    view = cycle.table.view()
    request = cycle.table.request(a_pod("p", cpu="1"))
    for rule, _ in cycle.profile.priorities:
        if rule.name == "NodeResourcesFit":
            assert rule.raw(view, request, np.ones(1, dtype=np.bool_)).tolist() == [99]


@pytest.mark.parametrize("asked", [1, 2**30])
@pytest.mark.parametrize("told", ["1", str(2**30), str(2**30 + 1), str(2**31), str(2**63 - 1), str(2**63), "9" * 30])
@pytest.mark.parametrize("label", MEMORY_LABELS)
def test_gpu_memory_at_its_bounds_overflows_nowhere(label: str, told: str, asked: int) -> None:
    memory_mib = int(told) if int(told) <= 2**30 else 0
    with np.errstate(all="raise"):
        table = a_table([a_node("n1", labels={label: told}, nvidia__com_gpu=2)])
        decision = Cycle(table, kube_profile()).decide(a_pod("p", annotations={MEMORY_MIB: str(asked)}))
        table.add_pod(a_pod("q", node="n1", annotations={MEMORY_MIB: str(asked)}))
    assert isinstance(decision, Placed) == (memory_mib >= asked)
    assert table.gpus.free_milli_NG.min() >= 0
    for name in ("p", "q"):
        table.remove_pod(a_pod(name).uid)
    assert table.gpus.free_milli_NG[0, :2].tolist() == [1000, 1000]
