"""Twins of the rules that are not in Kubernetes' default scores, and of the smaller filters."""

import math
from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine.predicates.node_declared_features import NodeDeclaredFeatures
from fairlead.engine.predicates.node_name import NodeName
from fairlead.engine.predicates.v113.node_condition import CheckNodeCondition
from fairlead.engine.predicates.v113.pressure import CheckNodeDiskPressure, CheckNodeMemoryPressure
from fairlead.engine.priorities.jobs.packing import EVEN, packed
from fairlead.engine.priorities.node_resources_fit import (
    REQUESTED_TO_CAPACITY_RATIO,
    NodeResourcesFit,
    Strategy,
)
from fairlead.engine.priorities.seed.utilisation import SeedEvenness, SeedFreeRatio
from fairlead.engine.priorities.v113.resources import (
    BalancedResourceAllocation,
    LeastRequestedPriority,
    MostRequestedPriority,
    RequestedToCapacityRatioPriority,
)
from fairlead.engine.priorities.v113.selector_spread import SelectorSpreadPriority
from fairlead.engine.rule import Predicate, Priority
from fairlead.engine.table import NodeTable
from fairlead.model.pod import Pod
from tests.properties import worlds
from tests.properties.test_twins import build
from tests.properties.twin import Doc, Twin, amount, requests_of

seeds = st.integers(min_value=0, max_value=2**32)


def scored(priority: Priority, table: NodeTable, pod: Pod) -> dict[str, int]:
    view, request = table.view(), table.request(pod)
    everywhere = np.ones(view.size, dtype=np.bool_)
    final_N = priority.normalise(priority.raw(view, request, everywhere), everywhere, view, request)
    return {name: int(final_N[row]) for name, row in table.row_of.items()}


def passed(rule: Predicate, table: NodeTable, pod: Pod) -> set[str]:
    request = table.request(pod)
    if not rule.applies(table, request):
        return set(table.row_of)
    mask = rule.mask(table.view(), request)
    return {name for name, row in table.row_of.items() if mask[row]}


def both(twin: Twin, node: Doc) -> list[tuple[int, int]]:
    """Assumed use after placing and what there is, of cpu and memory."""
    return [(twin.after(node, name), twin.has(node, name)) for name in ("cpu", "memory")]


def toward_zero(value: Fraction) -> int:
    return math.trunc(value)


def line(shape: list[tuple[int, int]], at: int) -> int:
    if at <= shape[0][0]:
        return shape[0][1]
    for (x0, y0), (x1, y1) in pairwise(shape):
        if at <= x1:
            return y0 + toward_zero(Fraction((y1 - y0) * (at - x0), x1 - x0))
    return shape[-1][1]


@given(seeds)
@settings(max_examples=60, deadline=None)
def test_resource_priorities(seed: int) -> None:
    rng = Random(seed)
    world = worlds.a_world(rng)
    document = worlds.a_pod(rng, "incoming", fancy=0.2)
    table, twin, pod = build(world), Twin(world, document), msgspec.convert(document, Pod)
    shape = sorted({(rng.randint(0, 100), 10 * rng.randint(0, 10)) for _ in range(3)})
    shape = [point for i, point in enumerate(shape) if i == 0 or point[0] != shape[i - 1][0]]

    def least(node: Doc) -> int:
        return sum(0 if used > has else (has - used) * 10 // has for used, has in both(twin, node)) // 2

    def most(node: Doc) -> int:
        return sum(0 if used > has else used * 10 // has for used, has in both(twin, node)) // 2

    def old_ratio(node: Doc) -> int:
        used = [100 if u > has else 100 - (has - u) * 100 // has for u, has in both(twin, node)]
        return sum(line([(0, 10), (100, 0)], each) for each in used) // 2

    def old_balance(node: Doc) -> int:
        cpu, memory = (used / has for used, has in both(twin, node))
        return 0 if cpu >= 1 or memory >= 1 else int((1 - abs(cpu - memory)) * 10)

    def ratio(node: Doc) -> int:
        parts = [line(shape, 100 if used > has else used * 100 // has) for used, has in both(twin, node)]
        parts = [part for part in parts if part > 0]
        mean = sum(parts) / len(parts) if parts else 0.0
        return math.floor(mean) + (mean - math.floor(mean) >= 0.5)

    def free_ratio(node: Doc) -> int:
        shares = [min(used / has, 1.0) for used, has in both(twin, node)]
        return round((1 - sum(shares) / 2) * 10**6)

    def evenness(node: Doc) -> int:
        shares = [min(used / has, 1.0) for used, has in both(twin, node)]
        return round((min(shares) / max(shares) if max(shares) else 1.0) * 10**6)

    strategy = Strategy(REQUESTED_TO_CAPACITY_RATIO, shape=tuple(shape))
    pairs: list[tuple[Priority, Any]] = [
        (LeastRequestedPriority(), least),
        (MostRequestedPriority(), most),
        (RequestedToCapacityRatioPriority(), old_ratio),
        (BalancedResourceAllocation(), old_balance),
        (NodeResourcesFit(strategy), ratio),
        (SeedFreeRatio(), free_ratio),
        (SeedEvenness(), evenness),
    ]
    for priority, scalar in pairs:
        expected = {twin.name(node): scalar(node) for node in world["nodes"]}
        assert scored(priority, table, pod) == expected, priority.name


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_packing(seed: int) -> None:
    rng = Random(seed)
    world = worlds.a_world(rng)
    document = worlds.a_pod(rng, "incoming", fancy=0.2)
    table, twin = build(world), Twin(world, document)
    request = table.request(msgspec.convert(document, Pod))
    found = packed(table.view(), request, EVEN, asked_only=True)
    asks = {name: amount(name, value) for name, value in requests_of(document).items()}
    for node in world["nodes"]:
        asked = [name for name in EVEN if asks.get(name) and twin.has(node, name)]
        uses = [(twin.used(node, name) + asks[name]) / twin.has(node, name) for name in asked]
        expected = min(100 * sum(uses) / len(uses), 100.0) if uses else 0.0
        assert math.isclose(found[table.row_of[twin.name(node)]], expected, rel_tol=1e-12, abs_tol=1e-9)


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_selector_spread(seed: int) -> None:
    rng = Random(seed)
    world = worlds.a_world(rng)
    document = worlds.a_pod(rng, "incoming", fancy=0.2)
    table, twin = build(world), Twin(world, document)
    namespace = document["metadata"]["namespace"]
    selectors = [
        service["spec"]["selector"]
        for service in world["services"]
        if service["metadata"]["namespace"] == namespace
        and all(twin.labels(document).get(k) == v for k, v in service["spec"]["selector"].items())
    ]

    def counted(pod: Doc) -> bool:
        mine = pod["metadata"]["namespace"] == namespace and not pod["metadata"].get("deletionTimestamp")
        return mine and any(all(twin.labels(pod).get(k) == v for k, v in s.items()) for s in selectors)

    count = {twin.name(node): sum(map(counted, twin.on[twin.name(node)])) for node in world["nodes"]}
    zone = {twin.name(node): twin.labels(node).get(worlds.ZONE) for node in world["nodes"]}
    in_zone: dict[str, int] = {}
    for name, value in zone.items():
        if value is not None:
            in_zone[value] = in_zone.get(value, 0) + count[name]
    most, fullest = max(count.values()), max(in_zone.values(), default=0)
    expected = {}
    for name, value in zone.items():
        score = 10.0 * ((most - count[name]) / most) if most else 10.0
        if value is not None:
            of_zone = 10.0 * ((fullest - in_zone[value]) / fullest) if fullest else 10.0
            score = score * (1.0 - 2.0 / 3.0) + 2.0 / 3.0 * of_zone
        expected[name] = int(score)
    assert scored(SelectorSpreadPriority(), table, msgspec.convert(document, Pod)) == expected


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_small_filters(seed: int) -> None:
    rng = Random(seed)
    world = worlds.a_world(rng)
    features = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport", "Other")
    for node in world["nodes"]:
        node["status"]["declaredFeatures"] = [feature for feature in features if worlds.some(rng, 0.5)]
        node["status"]["conditions"] = [
            {"type": kind, "status": rng.choice(("True", "False", "Unknown"))}
            for kind in ("Ready", "OutOfDisk", "NetworkUnavailable", "MemoryPressure", "DiskPressure")
            if worlds.some(rng, 0.4)
        ]
    document = worlds.a_pod(rng, "incoming", fancy=0.2)
    document["spec"]["nodeName"] = rng.choice(("", "node-0", "node-1", "gone"))
    needs = set()
    if worlds.some(rng, 0.5):
        document["spec"]["containers"][0]["restartPolicyRules"] = [{"action": "RestartAllContainers"}]
        needs.add(features[0])
    if worlds.some(rng, 0.5):
        document["spec"].update(hostNetwork=True, hostUsers=False)
        needs.add(features[1])
    table, pod = build(world), msgspec.convert(document, Pod)
    asks = [c.get("resources", {}).get("requests", {}) for c in document["spec"]["containers"]]
    best_effort = not any(
        amount(name, requests_of({"spec": {"containers": [{"resources": {"requests": {name: a[name]}}}]}})[name])
        for a in asks
        for name in ("cpu", "memory")
        if name in a
    )

    def is_(node: Doc, kind: str, *statuses: str) -> bool:
        return any(c["type"] == kind and c["status"] in statuses for c in node["status"]["conditions"])

    wanted = document["spec"]["nodeName"]
    for node in world["nodes"]:
        name = node["metadata"]["name"]
        assert (name in passed(NodeName(), table, pod)) == (wanted in ("", name))
        assert (name in passed(NodeDeclaredFeatures(), table, pod)) == (
            needs <= set(node["status"]["declaredFeatures"])
        )
        sick = (
            is_(node, "Ready", "False", "Unknown")
            or is_(node, "OutOfDisk", "True", "Unknown")
            or is_(node, "NetworkUnavailable", "True", "Unknown")
            or node["spec"].get("unschedulable", False)
        )
        assert (name in passed(CheckNodeCondition(), table, pod)) == (not sick)
        assert (name in passed(CheckNodeDiskPressure(), table, pod)) == (not is_(node, "DiskPressure", "True"))
        pressed = best_effort and is_(node, "MemoryPressure", "True")
        assert (name in passed(CheckNodeMemoryPressure(), table, pod)) == (not pressed)
