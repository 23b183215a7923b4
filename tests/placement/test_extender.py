"""The extender's answers: as kube-scheduler writes and reads them, and no node that was not asked about."""

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine.cycle import Cycle
from fairlead.engine.profile import Conditions, kube_profile
from fairlead.model.pod import SchedulerPod
from fairlead.placement.explain import explain
from fairlead.placement.extender import (
    UNKNOWN,
    BadQuestion,
    Clearance,
    cleared,
    filtered,
    is_as_sent,
    prioritised,
    read_clearance,
    read_question,
    with_sent,
)
from fairlead.placement.history import History
from fairlead.testing.builders import a_node, a_pod, a_table
from tests.properties import worlds
from tests.properties.test_state import state
from tests.properties.test_twins import build as table_from

POD = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": []}}


def asked(**fields: Any) -> bytes:
    return msgspec.json.encode(fields)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(asked(Pod=POD, Nodes=None, NodeNames=["a", "b"]), id="Go without tags"),
        pytest.param(asked(pod=POD, nodenames=["a", "b"]), id="1.13"),
        pytest.param(asked(POD=POD, nodeNames=["a", "b"], other=1), id="any case"),
    ],
)
def test_questions_are_read_in_every_spelling(body: bytes) -> None:
    question = read_question(body)
    assert (question.pod.key, question.names, question.sent) == ("default/p", ("a", "b"), None)


def test_nodes_that_were_sent_are_read_with_their_names() -> None:
    nodes = {"metadata": {}, "items": [{"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "2"}}}]}
    question = read_question(asked(Pod=POD, Nodes=nodes, NodeNames=None))
    assert (question.names, [node.name for node in question.nodes]) == (("a",), ["a"])


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        pytest.param(b"{", "not JSON", id="half"),
        pytest.param(b"[]", "must be an object", id="a list"),
        pytest.param(asked(NodeNames=[]), "Pod: is missing", id="no pod"),
        pytest.param(asked(Pod=POD), "either Nodes or NodeNames", id="no nodes"),
        pytest.param(asked(Pod=POD, NodeNames=[], Nodes={"items": []}), "either Nodes or NodeNames", id="both"),
        pytest.param(asked(Pod=POD, NodeNames=[1]), "list of names", id="numbers"),
        pytest.param(asked(Pod=POD, Nodes={"items": [{}]}), "each with its metadata.name", id="a node without a name"),
        pytest.param(asked(Pod={"spec": 1}, NodeNames=[]), "Pod: ", id="no pod at all"),
    ],
)
def test_what_is_no_question_is_told(body: bytes, complaint: str) -> None:
    with pytest.raises(BadQuestion, match=complaint):
        read_question(body)


def test_victims_are_read_with_and_without_the_cache() -> None:
    meta = asked(Pod=POD, NodeNameToMetaVictims={"a": {"Pods": [{"UID": "u1"}], "NumPDBViolations": 2}})
    whole = asked(pod=POD, nodeNameToVictims={"a": {"pods": [{"metadata": {"uid": "u1"}}], "numPDBViolations": 2}})
    for body in (meta, whole):
        found = read_clearance(body)
        assert (found.victims, found.violations) == ({"a": ("u1",)}, {"a": 2})
    with pytest.raises(BadQuestion, match="UID"):
        read_clearance(asked(Pod=POD, NodeNameToMetaVictims={"a": {"Pods": [{}]}}))


@given(st.integers(min_value=0, max_value=2**32))
@settings(max_examples=80, deadline=None)
def test_answers_are_the_engines_and_about_nobody_else(seed: int) -> None:
    rng = Random(seed)
    cycle = Cycle(table_from(worlds.a_world(rng)), kube_profile(conditions=Conditions.BOTH))
    pod = msgspec.convert(worlds.a_pod(rng, "incoming", fancy=0.4), SchedulerPod)
    every = [*sorted(cycle.table.row_of), "unheard-of"]
    names = rng.sample(every, rng.randint(0, len(every)))
    told = explain(cycle, pod, whole=True, preempting=False)
    before = state(cycle.table)
    result = filtered(cycle, pod, names)
    scores = prioritised(cycle, pod, names)
    assert state(cycle.table) == before
    assert sorted([*result.passed, *result.failed, *result.unresolvable]) == sorted(names)
    assert set(result.passed) == {each.node for each in told.best} & set(names)
    for each in told.refused:
        into = result.unresolvable if each.code.endswith("Unresolvable") else result.failed
        if each.node in names:
            assert into[each.node] == ", ".join(each.reasons)
    if "unheard-of" in names:
        assert result.unresolvable["unheard-of"] == UNKNOWN
    assert set(scores) == set(names)
    assert all(0 <= score <= 10 for score in scores.values())
    assert all(not scores[name] for name in names if name not in result.passed)
    if any(scores.values()):
        assert {0, 10} <= {scores[name] for name in result.passed}


def test_scores_are_stretched_over_the_nodes_asked_about() -> None:
    table = a_table([a_node("large", cpu="16"), a_node("middle", cpu="8"), a_node("small", cpu="4")])
    cycle = Cycle(table, kube_profile())
    assert prioritised(cycle, a_pod(cpu="2"), ["large", "middle", "small"])["large"] == 10
    assert prioritised(cycle, a_pod(cpu="2"), ["middle", "small"]) == {"middle": 10, "small": 0}
    assert prioritised(cycle, a_pod(cpu="2"), ["middle"]) == {"middle": 0}


def test_a_node_is_worth_clearing_only_if_our_rules_would_take_it_then() -> None:
    nodes = [a_node("ill", conditions={"Ready": "False"}), a_node("well"), a_node("fuller")]
    pods = [a_pod(f"v-{node.name}", cpu="8", node=node.name, priority=0) for node in nodes[:2]]
    pods += [a_pod(f"half-{i}", cpu="4", node="fuller", priority=0) for i in range(2)]
    cycle = Cycle(a_table(nodes, pods), kube_profile(conditions=Conditions.BOTH))
    victims = {
        "ill": ("uid-default-v-ill",),
        "well": ("uid-default-v-well", "nobody-we-know"),
        "fuller": ("uid-default-half-0",),
        "unheard-of": ("x",),
    }
    before = cycle.table.used_RN.copy()
    pod = a_pod("vip", cpu="8", priority=10)
    assert cleared(cycle, Clearance(pod, victims, dict.fromkeys(victims, 0))) == {"well": victims["well"]}
    assert (cycle.table.used_RN == before).all()


def test_nodes_that_were_sent_count_where_they_are_others() -> None:
    table = a_table([a_node("a", cpu="4"), a_node("b", cpu="4")], [a_pod("there", cpu="3", node="a")])
    history, profile, pod = History(table), kube_profile(), a_pod(cpu="2")
    assert is_as_sent(table, [a_node("a", cpu="4")])
    grown, new = a_node("a", cpu="8"), a_node("c", cpu="4")
    assert not is_as_sent(table, [grown])
    assert not is_as_sent(table, [new])
    names = ["a", "b", "c"]
    assert filtered(Cycle(table, profile), pod, names).passed == ("b",)
    cycle = with_sent(history.present([pod]), [grown, new], profile)
    assert filtered(cycle, pod, names).passed == ("a", "b", "c"), "with the pod that is on it"
    assert filtered(cycle, a_pod(cpu="6"), names).passed == ()
