"""The table: nodes and pods come and go."""

import msgspec

from fairlead.engine.cycle import Cycle
from fairlead.engine.profile import kube_profile
from fairlead.model.node import Node
from fairlead.model.outcome import Placed, Refused
from fairlead.testing.builders import a_node, a_pod, a_table


def test_a_pod_may_be_heard_of_before_its_node() -> None:
    table = a_table([], [a_pod("early", node="late", cpu="3")])
    assert list(table.waiting) == ["late"]
    table.add_node(a_node("late", cpu="4"))
    assert (table.waiting, int(table.used_RN[0, 0])) == ({}, 3000)


def test_pods_of_a_node_that_left_count_again_when_it_returns() -> None:
    table = a_table([a_node("a")], [a_pod("p", node="a", cpu="3")])
    table.remove_node("a")
    assert (table.node_count, len(table.occupants)) == (0, 1)
    table.add_node(a_node("a"))
    assert int(table.used_RN[0, table.row_of["a"]]) == 3000
    table.remove_node("a")
    table.remove_pod("uid-default-p")
    table.add_node(a_node("a"))
    assert int(table.used_RN[0, table.row_of["a"]]) == 0


def test_rows_of_nodes_that_left_are_taken_again() -> None:
    table = a_table([a_node("a"), a_node("b"), a_node("c")])
    table.remove_node("a")
    table.remove_node("b")
    table.add_node(a_node("d"))
    assert (table.row_of, table.size) == ({"c": 2, "d": 0}, 3)
    assert [table.name(int(row)) for row in table.order] == ["c", "d"]


def test_heartbeats_change_nothing() -> None:
    table = a_table([a_node("a", conditions={"Ready": "True"})])
    version = table.version
    beat = msgspec.to_builtins(a_node("a", conditions={"Ready": "True"}))
    beat["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T00:00:00Z"
    assert table.update_node(msgspec.convert(beat, Node)) is False
    assert table.version == version
    assert table.update_node(a_node("a", conditions={"Ready": "False"})) is True


def test_changes_of_a_node_reach_the_next_decision() -> None:
    table = a_table([a_node("a")])
    cycle = Cycle(table, kube_profile())
    assert isinstance(cycle.decide(a_pod("1")), Placed)
    for change in (
        a_node("a", unschedulable=True),
        a_node("a", cpu="100m"),
        a_node("a", taints=[{"key": "x", "effect": "NoExecute"}]),
    ):
        table.update_node(change)
        assert isinstance(cycle.decide(a_pod("2")), Refused)
        table.update_node(a_node("a"))
        assert isinstance(cycle.decide(a_pod("2")), Placed)
        table.remove_pod("uid-default-2")


def test_labels_that_change_move_pods_between_domains() -> None:
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    table = a_table(
        [a_node("a", labels={"zone": "1"}), a_node("b", labels={"zone": "2"})],
        [a_pod("old", node="a", labels={"app": "web"})],
    )
    cycle = Cycle(table, kube_profile())
    pod = a_pod("new", labels={"app": "web"}, topologySpreadConstraints=[spread])
    assert [int(row) for row in cycle.evaluation(pod).feasible()] == [0, 1]
    table.update_node(a_node("a", labels={"zone": "2"}))
    table.update_node(a_node("b", labels={"zone": "1"}))
    assert [int(row) for row in cycle.evaluation(pod).feasible()] == [0, 1]
    table.update_node(a_node("b", labels={"zone": "2"}))
    # One zone left: its own count is the smallest, so both will do.
    assert [int(row) for row in cycle.evaluation(pod).feasible()] == [1, 1]


def test_a_resource_heard_of_late_gets_a_row() -> None:
    table = a_table([a_node("a")], [a_pod("p", node="a")])
    cycle = Cycle(table, kube_profile())
    wants = a_pod("gpu", requests={"nvidia.com/gpu": "1"})
    assert isinstance(cycle.decide(wants), Refused)
    table.add_node(a_node("b", nvidia__com_gpu=1))
    assert isinstance(cycle.decide(wants), Placed)
    table.remove_pod("uid-default-p")
    assert int(table.used_RN.sum(axis=0)[table.row_of["a"]]) == 0


def test_an_assumed_pod_is_confirmed_without_being_counted_twice() -> None:
    table = a_table([a_node("a")])
    outcome = Cycle(table, kube_profile()).decide(a_pod("p"))
    assert isinstance(outcome, Placed)
    journal = table.journal_end
    table.add_pod(a_pod("p", node=outcome.node, status={"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}))
    assert (table.journal_end, int(table.used_RN[2, 0])) == (journal, 1)
    assert table.occupants["uid-default-p"].started_at == "2026-01-01T00:00:00Z"


def test_finished_pods_hold_nothing() -> None:
    table = a_table([a_node("a")], [a_pod("p", node="a")])
    table.add_pod(a_pod("p", node="a", status={"phase": "Succeeded"}))
    assert not table.occupants
    assert int(table.used_RN.sum()) == 0


def test_secrets_and_scratch_space_do_not_make_classes() -> None:
    table = a_table()
    volumes = [[{"name": f"kube-api-access-{i}", "projected": {}}] for i in range(3)]
    requests = {table.request(a_pod(f"p{i}", volumes=volumes[i])) for i in range(3)}
    assert len(requests) == 1
