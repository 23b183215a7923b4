"""Every rule of the registry has a scalar twin and says what it says, on random worlds full of everything."""

import re
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine.args import PluginArgs
from fairlead.engine.forecast import Forecast
from fairlead.engine.locality import CacheMap
from fairlead.engine.priorities.node_resources_fit import REQUESTED_TO_CAPACITY_RATIO, Strategy
from fairlead.engine.profile import kube_profile
from fairlead.engine.quirks import KUBE_1_36
from fairlead.engine.registry import PREDICATES, PRIORITIES, REMOVAL_PREDICATES
from fairlead.engine.removal import plan_removal
from fairlead.engine.rule import Predicate
from fairlead.engine.statement import Statement
from fairlead.engine.table import NodeTable
from fairlead.model.pod import SchedulerPod
from fairlead.model.volumes import CsiNode, PersistentVolume, PersistentVolumeClaim, StorageClass
from fairlead.model.workloads import ReplicaSet, ReplicationController, StatefulSet
from tests.properties import worlds
from tests.properties.scalars import (
    PREDICATE_TWINS,
    PRIORITY_TWINS,
    REMOVAL_TWINS,
    Case,
    carries,
    devices_fit,
    removable,
)
from tests.properties.test_twins import build
from tests.properties.volume_twin import a_storage, mount

KINDS = {"ReplicaSet": ReplicaSet, "StatefulSet": StatefulSet, "ReplicationController": ReplicationController}
TWINS = ("twin.py", "volume_twin.py", "scalars.py", "worlds.py")
seeds = st.integers(min_value=0, max_value=2**32)


def a_case(rng: Random) -> tuple[Case, NodeTable, PluginArgs]:
    world = worlds.a_world(rng)
    pod = worlds.a_pod(rng, "incoming", fancy=0.4)
    storage = a_storage(rng, world)
    for node in world["nodes"]:
        worlds.equip(rng, node)
    for placed in world["pods"]:
        worlds.dress(rng, placed, placed=True)
        mount(rng, placed, 0.2)
    worlds.dress(rng, pod, placed=False)
    mount(rng, pod, 0.5)
    world["controllers"] = worlds.controllers(rng)
    world["forecast"] = worlds.forecast(rng, world)
    world["cache"] = worlds.cache(rng, world)

    table = build(world)
    table.catalog.set_all(msgspec.convert(each, KINDS[each["kind"]]) for each in world["controllers"])
    table.catalog.set_all(msgspec.convert(each, StorageClass) for each in storage["classes"])
    table.catalog.set_all(msgspec.convert(each, PersistentVolume) for each in storage["volumes"])
    table.catalog.set_all(msgspec.convert(each, PersistentVolumeClaim) for each in storage["claims"])
    table.catalog.set_all(msgspec.convert(each, CsiNode) for each in storage["csi_nodes"])
    table.catalog.set_forecast(msgspec.convert(world["forecast"], Forecast))
    table.catalog.set_cache(msgspec.convert(world["cache"], CacheMap))

    at = sorted(rng.sample(range(101), rng.randint(1, 3)))
    shape = [(x, 10 * rng.randint(0, 10)) for x in at]
    case = Case(world, storage, pod, shape=shape, leader=worlds.some(rng, 0.5))
    args = msgspec.structs.replace(kube_profile(KUBE_1_36).args, job_label=worlds.JOB, is_leader=case.leader)
    return case, table, args


def refused(rule: Predicate, table: NodeTable, pod: SchedulerPod) -> set[str]:
    request = table.request(pod)
    if not rule.applies(table, request):
        return set()
    if rule.rejects(table, request) is not None:
        return set(table.row_of)
    mask = rule.mask(table.view(), request)
    return {name for name, row in table.row_of.items() if not mask[row]}


@given(seeds)
@settings(max_examples=120, deadline=None)
def test_every_predicate_is_its_twin(seed: int) -> None:
    case, table, args = a_case(Random(seed))
    pod = msgspec.convert(case.pod, SchedulerPod)
    for name, factory in PREDICATES.items():
        expected = {case.name(node) for node in case.nodes if PREDICATE_TWINS[name](case, node)}
        assert refused(factory(args), table, pod) == expected, name


@given(seeds)
@settings(max_examples=120, deadline=None)
def test_every_priority_is_its_twin(seed: int) -> None:
    """Over some of the nodes, as if the others were refused: what normalises must look at those alone."""
    rng = Random(seed)
    case, table, args = a_case(rng)
    # Policies for GPUs are asked only about nodes that have the devices.
    nodes = [node for node in case.nodes if worlds.some(rng, 0.8) and devices_fit(case, node)]
    if not nodes:
        return
    # A request may bring a resource the table has not heard of; views are taken after that, as the cycle does.
    request = table.request(msgspec.convert(case.pod, SchedulerPod))
    view = table.view()
    feasible_V = view.among({table.row_of[case.name(node)] for node in nodes})
    for name, factory in PRIORITIES.items():
        of_rule = args
        if name == "RequestedToCapacityRatio":
            of_rule = msgspec.structs.replace(
                args, strategy=Strategy(REQUESTED_TO_CAPACITY_RATIO, shape=tuple(case.shape))
            )
        rule = factory(of_rule)
        expected = PRIORITY_TWINS[name](case, nodes)
        assert rule.applies(table, request) == (expected is not None), name
        if expected is None:
            continue
        final_V = rule.normalise(rule.raw(view, request, feasible_V), feasible_V, view, request)
        assert {n: int(final_V[table.row_of[n]]) for n in expected} == expected, name
        assert max(expected.values(), default=0) <= rule.best, name


@given(seeds)
@settings(max_examples=60, deadline=None)
def test_every_removal_predicate_is_its_twin(seed: int) -> None:
    """And a removal takes from the nodes that are left, until there are none."""
    rng = Random(seed)
    case, table, _ = a_case(rng)
    chosen = {pod["metadata"]["uid"] for pod in case.world["pods"] if any(carries(pod, s) for s in case.selecting())}
    mine = {uid for uid in chosen if uid.startswith(case.pod["metadata"]["namespace"])}
    for name, factory in REMOVAL_PREDICATES.items():
        mask = factory().mask(table.view(), mine)
        found = {name for name, row in table.row_of.items() if not mask[row]}
        assert found == {case.name(node) for node in case.nodes if REMOVAL_TWINS[name](case, node)}, name
    pods = [msgspec.convert(pod, SchedulerPod) for pod in case.world["pods"] if pod["metadata"]["uid"] in mine]
    there = sum(removable(case, pod) for node in case.nodes for pod in case.on(node))
    wanted = rng.randint(1, 6)
    plan = plan_removal(Statement(table), pods, wanted, now_s=0.0)
    assert (len(plan.removed), plan.shortfall) == (min(there, wanted), max(wanted - there, 0))
    assert (plan.diagnosis is None) == (plan.shortfall == 0)


def test_every_rule_has_a_twin() -> None:
    assert list(PREDICATE_TWINS) == list(PREDICATES)
    assert list(REMOVAL_TWINS) == list(REMOVAL_PREDICATES)
    assert list(PRIORITY_TWINS) == list(PRIORITIES)


@pytest.mark.parametrize("file", TWINS)
def test_twins_share_no_code_with_the_engine(file: str) -> None:
    text = (Path(__file__).parent / file).read_text()
    assert not re.search(r"^\s*(from|import)\s+(fairlead|numpy)\b", text, re.MULTILINE)
