"""Explanations: what is said follows exactly; a change that is named really changes the choice."""

from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine.cycle import Cycle
from fairlead.engine.profile import Profile, build, kube_profile
from fairlead.model.outcome import Placed
from fairlead.model.pod import SchedulerPod
from fairlead.placement.columns import Columns
from fairlead.placement.explain import explain, weight_changes
from fairlead.placement.explanation import Explanation
from fairlead.testing.builders import a_node, a_pod, a_table
from tests.properties import worlds
from tests.properties.test_state import state
from tests.properties.test_twins import build as table_from

seeds = st.integers(min_value=0, max_value=2**32)


def explained(cycle: Cycle, pod: SchedulerPod, **more: object) -> Explanation:
    return explain(cycle, pod, **more)  # type: ignore[arg-type]


@given(seeds)
@settings(max_examples=120, deadline=None)
def test_the_explanation_says_what_is_decided_and_leaves_the_table_alone(seed: int) -> None:
    rng = Random(seed)
    cycle = Cycle(table_from(worlds.a_world(rng)), kube_profile())
    pod = msgspec.convert(worlds.a_pod(rng, "incoming", fancy=0.4), SchedulerPod)
    explained(cycle, pod)  # counts are made when first asked for
    before = state(cycle.table)
    told = explained(cycle, pod, whole=True)
    assert state(cycle.table) == before
    assert told.feasible == len(told.best)
    assert told.feasible + len(told.refused) == told.nodes
    for node in told.best:
        assert node.total == sum(score.weighted for score in node.scores)
    outcome = cycle.decide(pod)
    if isinstance(outcome, Placed):
        assert told.choice is not None
        assert (told.choice.node, told.choice.score) == (outcome.node, outcome.score)
        assert told.blockage is None
        if told.choice.margin is not None:
            assert told.choice.margin == sum(each.points for each in told.choice.decided_by)
    else:
        assert told.blockage is not None
        assert told.blockage.message == outcome.diagnosis.message()
        assert {cure.change for cure in told.blockage.wakeup_events} == {
            cure.value for cure in outcome.diagnosis.wakeup_events
        }


def with_weight(profile: Profile, rule: str, weight: int) -> Profile:
    return msgspec.structs.replace(
        profile,
        priorities=tuple((each, weight if each.name == rule else w) for each, w in profile.priorities),
    )


@given(seeds)
@settings(max_examples=80, deadline=None)
def test_the_nearest_weight_that_flips_the_choice_does_and_none_nearer_does(seed: int) -> None:
    rng = Random(seed)
    world = worlds.a_world(rng, nodes=8)
    pod = msgspec.convert(worlds.a_pod(rng, "incoming", fancy=0.2), SchedulerPod)
    profile = kube_profile()

    def chosen(with_profile: Profile) -> str:
        cycle = Cycle(table_from(world), with_profile)
        found = cycle.choose(cycle.evaluation(pod))
        return "" if found is None else cycle.table.name(found[0])

    node = chosen(profile)
    if not node:
        return
    cycle = Cycle(table_from(world), profile)
    columns = Columns(cycle.evaluation(pod))
    changes = {each.rule: each for each in weight_changes(columns, cycle.table.row_of[node])}
    for rule, weight in profile.priorities:
        flips = [w for w in range(12) if chosen(with_weight(profile, rule.name, w)) != node]
        told = changes.get(rule.name)
        if told is None:
            assert flips == []
            continue
        assert chosen(with_weight(profile, rule.name, told.instead)) == told.node != node
        distance = abs(told.instead - weight)
        assert all(abs(w - weight) >= distance for w in flips)


def test_the_runner_up_and_what_decided_between_them() -> None:
    cycle = Cycle(a_table([a_node("large", cpu="16"), a_node("small", cpu="4")]), kube_profile())
    told = explained(cycle, a_pod(cpu="1"))
    assert told.choice is not None
    assert told.choice.runner_up is not None
    assert (told.choice.node, told.choice.runner_up.node, told.choice.by) == ("large", "small", "score")
    assert told.choice.decided_by[0].rule == "NodeResourcesFit"
    assert next((room.resource, room.requested, room.free) for room in told.choice.room) == ("cpu", 1000, 16000)


def test_a_reserved_node_is_taken_whatever_the_scores() -> None:
    cycle = Cycle(a_table([a_node("large", cpu="16"), a_node("small", cpu="4")]), kube_profile())
    told = explained(cycle, a_pod(cpu="1"), first="small")
    assert told.choice is not None
    assert (told.choice.node, told.choice.by, told.choice.weight_changes) == ("small", "reservation", ())


def test_a_pending_pod_hears_what_blocks_how_far_the_nearest_is_and_what_would_help() -> None:
    nodes = [
        a_node("full", cpu="4"),
        a_node("tainted", cpu="64", taints=[{"key": "gpu", "effect": "NoSchedule"}]),
        a_node("tiny", cpu="1"),
    ]
    cheap = a_pod("cheap", cpu="3", node="full", priority=0)
    cycle = Cycle(a_table(nodes, [cheap]), kube_profile())
    told = explained(cycle, a_pod("big", cpu="2", priority=10))
    assert told.choice is None
    assert told.blockage is not None
    assert {(each.reason, each.nodes, each.examples) for each in told.refusals} == {
        ("Insufficient cpu", 2, ("full", "tiny")),
        ("node(s) had untolerated taint(s)", 1, ("tainted",)),
    }
    (near, far) = told.blockage.nearest
    assert (near.node, near.short[0].short, near.by_asking_less) == ("full", 1000, True)
    assert far.node == "tiny"
    clearing = told.blockage.clearing
    assert clearing is not None
    assert (clearing.helps, clearing.node, [each.pod for each in clearing.victims]) == (True, "full", ["default/cheap"])
    assert "a pod leaves its node" in [cure.sentence for cure in told.blockage.wakeup_events]
    smaller = explained(cycle, a_pod("smaller", cpu=f"{near.short[0].free}m", priority=10))
    assert smaller.choice is not None
    assert smaller.choice.node == "full"


def test_a_node_full_of_pods_is_not_helped_by_asking_less() -> None:
    cycle = Cycle(a_table([a_node("n1", pods=0)]), kube_profile())
    told = explained(cycle, a_pod())
    assert told.blockage is not None
    assert [(near.node, near.by_asking_less) for near in told.blockage.nearest] == [("n1", False)]


def test_thousands_of_nodes_make_a_short_answer() -> None:
    nodes = [a_node(f"n{i:04}", cpu="1" if i % 2 else "8") for i in range(2000)]
    cycle = Cycle(a_table(nodes), kube_profile())
    told = explained(cycle, a_pod(cpu="2"))
    assert (told.nodes, told.feasible, len(told.best), told.refused) == (2000, 1000, 5, ())
    assert [(each.nodes, len(each.examples)) for each in told.refusals] == [(1000, 3)]
    assert len(msgspec.json.encode(told)) < 16_000
    whole = explained(cycle, a_pod(cpu="2"), whole=True)
    assert (len(whole.best), len(whole.refused)) == (1000, 1000)


def test_a_profile_without_scores_chooses_by_name() -> None:
    profile = build("bare", ["NodeResourcesFit"], {}, kube_profile().args)
    told = explained(Cycle(a_table([a_node("b"), a_node("a")]), profile), a_pod())
    assert told.choice is not None
    assert (told.choice.node, told.choice.margin, told.choice.weight_changes) == ("a", 0, ())
