"""The v1.13 forms, worked by hand."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from fairlead.engine.catalog import Catalog
from fairlead.engine.cycle import Cycle
from fairlead.engine.dialect import parse_profile
from fairlead.engine.predicates.v113 import (
    CheckNodeCondition,
    CheckNodeDiskPressure,
    CheckNodeMemoryPressure,
    CheckNodePIDPressure,
)
from fairlead.engine.priorities.v113.resources import (
    BalancedResourceAllocation,
    LeastRequestedPriority,
    MostRequestedPriority,
    RequestedToCapacityRatioPriority,
)
from fairlead.engine.priorities.v113.scores import (
    ImageLocalityPriority,
    InterPodAffinityPriority,
    NodeAffinityPriority,
    NodePreferAvoidPodsPriority,
    TaintTolerationPriority,
)
from fairlead.engine.priorities.v113.selector_spread import SelectorSpreadPriority
from fairlead.engine.profile import Conditions, kube_profile, seed_profile
from fairlead.engine.rule import Predicate, Priority
from fairlead.engine.table import NodeTable
from fairlead.model.pod import SchedulerPod
from fairlead.model.workloads import Service
from fairlead.placement.columns import sheet
from fairlead.testing.builders import a_node, a_pod, a_table

MB = 2**20


def scores(
    priority: Priority, table: NodeTable, pod: SchedulerPod, feasible: Sequence[str] | None = None
) -> dict[str, int]:
    view, request = table.view(), table.request(pod)
    feasible_N = view.take(table.valid_N).copy()
    if feasible is not None:
        feasible_N &= np.array([table.name(row) in feasible for row in range(table.size)])
    final_N = priority.normalise(priority.raw(view, request, feasible_N), feasible_N, view, request)
    return {name: int(final_N[row]) for name, row in table.row_of.items() if feasible_N[row]}


def refused(rule: Predicate, table: NodeTable, pod: SchedulerPod) -> dict[str, list[str]]:
    view, request = table.view(), table.request(pod)
    if not rule.applies(table, request):
        return {}
    found: dict[str, list[str]] = {}
    for failed in rule.refusals(view, request):
        for row in np.flatnonzero(failed.rows):
            found.setdefault(table.name(int(row)), []).append(failed.reason)
    return found


TWO_NODES = [a_node("a", cpu="4", memory="10000Mi"), a_node("b", cpu="6", memory="10000Mi")]


@pytest.mark.parametrize(
    ("priority", "expected"),
    [
        # a: (4000-3000)*10//4000=2, (10000-5000)*10//10000=5, mean 3; b: (6000-3000)*10//6000=5, 5, mean 5
        (LeastRequestedPriority(), {"a": 3, "b": 5}),
        # a: 7, 5, mean 6; b: 5, 5
        (MostRequestedPriority(), {"a": 6, "b": 5}),
        # Line 0→10, 100→0. a: used 75 % and 50 %: 100-25=75 → 2 (10-7.5 towards zero from 10: 10+(-10*75)/100=3),
        # 50 → 5, mean 4; b: 50 → 5, 5, mean 5
        (RequestedToCapacityRatioPriority(), {"a": 4, "b": 5}),
        # a: |0.75-0.5|=0.25 → 7; b: |0.5-0.5|=0 → 10
        (BalancedResourceAllocation(), {"a": 7, "b": 10}),
    ],
    ids=lambda value: value.name if isinstance(value, Priority) else "",
)
def test_resources(priority: Priority, expected: dict[str, int]) -> None:
    table = a_table(TWO_NODES)
    assert scores(priority, table, a_pod(cpu="3", memory="5000Mi")) == expected


def test_a_node_asked_for_more_than_it_has_scores_nothing() -> None:
    table = a_table([a_node("a", cpu="1", memory="1000Mi")])
    pod = a_pod(cpu="2", memory="500Mi")
    # cpu 0, memory 5: mean 2; and evenness is nothing as soon as one resource is full.
    assert scores(LeastRequestedPriority(), table, pod) == {"a": 2}
    assert scores(MostRequestedPriority(), table, pod) == {"a": 2}
    assert scores(BalancedResourceAllocation(), table, pod) == {"a": 0}


def test_silence_is_assumed_to_use_something() -> None:
    table = a_table([a_node("a", cpu="1", memory="1000Mi")])
    # 100m of 1000m: 9; 200Mi of 1000Mi: 8; mean 8
    assert scores(LeastRequestedPriority(), table, a_pod(cpu=None, memory=None)) == {"a": 8}


BOTH = Conditions.BOTH


def test_conditions_are_read_directly() -> None:
    table = a_table(
        [
            a_node("fine", conditions={"Ready": "True", "NetworkUnavailable": "False"}),
            a_node("silent"),
            a_node("down", conditions={"Ready": "False"}),
            a_node("lost", conditions={"Ready": "Unknown", "NetworkUnavailable": "Unknown", "OutOfDisk": "True"}),
            a_node("cordoned", unschedulable=True),
        ]
    )
    tolerant = a_pod(tolerations=[{"operator": "Exists"}])
    assert refused(CheckNodeCondition(), table, tolerant) == {
        "down": ["node(s) were not ready"],
        "lost": ["node(s) were not ready", "node(s) were out of disk space", "node(s) had unavailable network"],
        "cordoned": ["node(s) were unschedulable"],
    }


def test_beside_taints_a_toleration_lets_past_the_condition_too() -> None:
    nodes = [
        a_node("cordoned", unschedulable=True),
        a_node("full", conditions={"DiskPressure": "True"}),
        a_node("busy", conditions={"PIDPressure": "True"}),
        a_node("down", conditions={"Ready": "False"}),
        a_node("lost", conditions={"Ready": "Unknown"}),
        a_node("cut off", conditions={"NetworkUnavailable": "True"}),
    ]
    # What the DaemonSet controller gives its pods.
    keys = ("unschedulable", "disk-pressure", "memory-pressure", "pid-pressure")
    tolerations = [
        *({"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoSchedule"} for key in keys),
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
    ]
    agent = a_pod("agent", tolerations=tolerations)
    for profile in (kube_profile(conditions=Conditions.BOTH), seed_profile(), parse_profile({}, conditions=BOTH)):
        cycle = Cycle(a_table(nodes), profile)
        assert sheet(cycle, agent).feasible == ("busy", "cordoned", "full"), profile.name
        assert not sheet(cycle, a_pod()).feasible
        everything = a_pod("all", tolerations=[{"operator": "Exists"}])
        assert len(sheet(cycle, everything).feasible) == len(nodes)
    strict = kube_profile(conditions=Conditions.CONDITIONS)
    assert not sheet(Cycle(a_table(nodes), strict), agent).feasible


def test_memory_pressure_keeps_away_only_those_who_promise_nothing() -> None:
    table = a_table(
        [a_node("a", conditions={"MemoryPressure": "True"}), a_node("b", conditions={"MemoryPressure": "Unknown"})]
    )
    rule = CheckNodeMemoryPressure()
    assert refused(rule, table, a_pod(cpu=None, memory=None)) == {"a": ["node(s) had memory pressure"]}
    assert refused(rule, table, a_pod(cpu="1m", memory=None)) == {}


def test_disk_and_pid_pressure_keep_everybody_away() -> None:
    table = a_table([a_node("a", conditions={"DiskPressure": "True"}), a_node("b", conditions={"PIDPressure": "True"})])
    assert refused(CheckNodeDiskPressure(), table, a_pod()) == {"a": ["node(s) had disk pressure"]}
    assert refused(CheckNodePIDPressure(), table, a_pod()) == {"b": ["node(s) had pid pressure"]}


def served() -> Catalog:
    catalog = Catalog()
    service = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}
    catalog.set_selecting(msgspec.convert(service, Service))
    return catalog


def web(name: str, node: str, **more: object) -> SchedulerPod:
    return a_pod(name, node=node, labels={"app": "web"}, **more)  # type: ignore[arg-type]


def test_selector_spread_without_zones() -> None:
    pods = [web("1", "a"), web("2", "a"), web("3", "b"), web("4", "c", deleted=True), web("5", "c", namespace="other")]
    table = a_table([a_node("a"), a_node("b"), a_node("c")], pods, served())
    # Most on one node 2: (2-2)*10/2, (2-1)*10/2, (2-0)*10/2
    assert scores(SelectorSpreadPriority(), table, web("new", "")) == {"a": 0, "b": 5, "c": 10}


def test_selector_spread_gives_zones_two_thirds() -> None:
    zone = {"failure-domain.beta.kubernetes.io/zone": "z1"}
    nodes = [
        a_node("a", labels=zone),
        a_node("b", labels={"topology.kubernetes.io/zone": "z1"}),
        a_node("c", labels={"topology.kubernetes.io/zone": "z2"}),
        a_node("d"),
    ]
    table = a_table(nodes, [web("1", "a"), web("2", "a"), web("3", "c")], served())
    # Zones z1: 2, z2: 1. a: 0/3 + 0; b: 10/3 + 0 = 3; c: 5/3 + 2/3*5 = 5; d has no zone: 10
    assert scores(SelectorSpreadPriority(), table, web("new", "")) == {"a": 0, "b": 3, "c": 5, "d": 10}


def test_nobody_selected_is_ten_everywhere() -> None:
    table = a_table([a_node("a"), a_node("b")], [web("1", "a")])
    assert scores(SelectorSpreadPriority(), table, web("new", "")) == {"a": 10, "b": 10}


def test_avoided_controllers_score_nothing() -> None:
    annotation = (
        '{"preferAvoidPods":[{"podSignature":{"podController":{"apiVersion":"v1","kind":"ReplicaSet","uid":"u1"}}}]}'
    )
    key = "scheduler.alpha.kubernetes.io/preferAvoidPods"
    table = a_table([a_node("a", annotations={key: annotation}), a_node("b"), a_node("c", annotations={key: "{"})])
    owned = a_pod(owner={"kind": "ReplicaSet", "name": "rs", "uid": "u1"})
    other = a_pod("other", owner={"kind": "StatefulSet", "name": "rs", "uid": "u1"})
    assert scores(NodePreferAvoidPodsPriority(), table, owned) == {"a": 0, "b": 10, "c": 10}
    assert scores(NodePreferAvoidPodsPriority(), table, other) == {"a": 10, "b": 10, "c": 10}


def test_taints_and_node_affinity_go_up_to_ten() -> None:
    soft = [{"key": f"k{i}", "effect": "PreferNoSchedule"} for i in range(3)]
    table = a_table([a_node("a", taints=soft), a_node("b", taints=soft[:1]), a_node("c")])
    assert scores(TaintTolerationPriority(), table, a_pod()) == {"a": 0, "b": 7, "c": 10}
    preferred = [
        {
            "weight": w,
            "preference": {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [n]}]},
        }
        for w, n in ((30, "a"), (20, "b"))
    ]
    pod = a_pod(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}})
    assert scores(NodeAffinityPriority(), table, pod) == {"a": 10, "b": 6, "c": 0}


def test_inter_pod_affinity_counts_from_zero() -> None:
    term = {
        "weight": 4,
        "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}},
    }
    pod = a_pod("new", affinity={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}})
    table = a_table([a_node("a"), a_node("b")], [web("1", "a"), web("2", "a"), web("3", "b")])
    # 8 and 4; smallest starts at 0, so b is half of a, and stays so when b alone is feasible.
    assert scores(InterPodAffinityPriority(), table, pod) == {"a": 10, "b": 5}
    assert scores(InterPodAffinityPriority(), table, pod, ["b"]) == {"b": 10}


def test_image_locality_has_one_ceiling() -> None:
    table = a_table([a_node("a", images={"app:1": 523 * MB}), a_node("b")])
    # Half the nodes hold it: 261.5 MB counts; (261.5-23)*10/977 = 2
    assert scores(ImageLocalityPriority(), table, a_pod(image="app:1")) == {"a": 2, "b": 0}
