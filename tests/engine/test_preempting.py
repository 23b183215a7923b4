"""Preemption beside others' nominations, and a node that is tried before all others."""

import msgspec
import pytest

from fairlead.engine.cycle import Cycle
from fairlead.engine.occupant import occupant_of
from fairlead.engine.preemption import NO_VICTIMS, Preemption
from fairlead.engine.profile import kube_profile
from fairlead.engine.table import NodeTable
from fairlead.model.outcome import Placed, Refused
from fairlead.model.pod import SchedulerPod
from fairlead.model.workloads import PodDisruptionBudget
from fairlead.testing.builders import a_node, a_pod, a_table


def crowded(*nodes: str) -> NodeTable:
    """Nodes of two CPUs, each full of two pods that matter little."""
    pods = [a_pod(f"low-{node}-{n}", cpu="1", node=node, priority=0) for node in nodes for n in range(2)]
    return a_table([a_node(node, cpu="2") for node in nodes], pods)


def urgent(name: str, node: str = "", priority: int = 10) -> SchedulerPod:
    return a_pod(name, cpu="2", priority=priority, status={"nominatedNodeName": node} if node else None)


def test_a_node_cleared_for_an_equal_is_not_cleared_again() -> None:
    preemption = Preemption(crowded("n1", "n2"), kube_profile())
    first = preemption.plan(urgent("first"))
    assert (first.node, len(first.victims)) == ("n1", 2)
    second = preemption.plan(urgent("second"), nominated=[urgent("first", "n1")])
    assert (second.node, len(second.victims)) == ("n2", 2)
    third = preemption.plan(urgent("third"), nominated=[urgent("first", "n1"), urgent("second", "n2")])
    assert (third.node, third.victims) == (None, ())


def test_whoever_matters_more_takes_what_was_cleared_for_another() -> None:
    preemption = Preemption(crowded("n1"), kube_profile())
    plan = preemption.plan(urgent("boss", priority=100), nominated=[urgent("first", "n1")])
    assert plan.node == "n1"


def test_nobody_is_tried_when_nobody_matters_less() -> None:
    preemption = Preemption(crowded("n1"), kube_profile())
    plan = preemption.plan(urgent("equal", priority=0))
    assert plan.node is None
    assert plan.message.endswith(f"0/1 nodes are available: 1 {NO_VICTIMS}.")


def test_the_node_to_try_first_is_taken_if_it_will_do() -> None:
    table = a_table([a_node("n1", cpu="8"), a_node("n2", cpu="2")])
    cycle = Cycle(table, kube_profile())
    placed = cycle.decide(a_pod("a", cpu="1"), first="n2")
    assert isinstance(placed, Placed)
    assert placed.node == "n2"
    full = cycle.decide(a_pod("b", cpu="2"), first="n2")
    assert isinstance(full, Placed)
    assert full.node == "n1"
    unknown = cycle.decide(a_pod("c", cpu="1"), first="gone")
    assert isinstance(unknown, Placed)
    assert isinstance(cycle.decide(a_pod("d", cpu="64"), first="n1"), Refused)


def hold(table: NodeTable, name: str, node: str, priority: int) -> None:
    """A place for a pod that does not exist yet, and so has no UID."""
    planned = a_pod(name, cpu="1", priority=priority, labels={"app": "web"})
    planned = msgspec.structs.replace(planned, metadata=msgspec.structs.replace(planned.metadata, uid=""))
    table.place(occupant_of(planned, table.request(planned), node))


@pytest.mark.parametrize("held_priority", [0, 5])
def test_a_held_place_uses_up_no_disruption_budget(held_priority: int) -> None:
    table = a_table([a_node("n1", cpu="2")], [a_pod("web", cpu="1", node="n1", priority=0, labels={"app": "web"})])
    hold(table, "held", "n1", held_priority)
    budget = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 1},
    }
    table.catalog.budgets["default/web"] = msgspec.convert(budget, PodDisruptionBudget)
    plan = Preemption(table, kube_profile()).plan(urgent("urgent"))
    assert (plan.node, len(plan.victims), plan.violations) == ("n1", 2, 0)


def test_giving_up_held_places_breaks_no_disruption_budget() -> None:
    table = a_table([a_node("n1", cpu="2")])
    hold(table, "held-1", "n1", 0)
    hold(table, "held-2", "n1", 0)
    budget = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0},
    }
    table.catalog.budgets["default/web"] = msgspec.convert(budget, PodDisruptionBudget)
    plan = Preemption(table, kube_profile()).plan(urgent("urgent"))
    assert (plan.node, len(plan.victims), plan.violations) == ("n1", 2, 0)
