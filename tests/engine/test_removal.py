"""Rows looked at again one by one stand as if all were looked at afresh."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairlead.engine.forecast import Forecast
from fairlead.engine.pick import FirstByName
from fairlead.engine.registry import REMOVAL_PREDICATES
from fairlead.engine.removal import RemovalRows, RemovalWeights, plan_removal
from fairlead.engine.statement import Statement
from fairlead.model.pod import SchedulerPod
from fairlead.testing.builders import a_node, a_pod, a_table


@given(seed=st.integers(0, 2**32), sign=st.sampled_from([1, -1]))
def test_rows_kept_up_stand_as_rows_made_afresh(seed: int, sign: int) -> None:
    rng = Random(seed)
    nodes = [a_node(f"n{number}", cpu=rng.choice(["4", "8"])) for number in range(rng.randint(1, 5))]
    pods = [
        a_pod(f"p{number}", node=rng.choice(nodes).metadata.name, cpu=rng.choice(["100m", "250m"]))
        for number in range(rng.randint(1, 12))
    ]
    table = a_table(nodes, pods)
    if rng.random() < 0.5:
        table.catalog.set_forecast(Forecast(nodes={node.metadata.name: rng.uniform(-1, 1) for node in nodes}))
    on_row: dict[int, list[SchedulerPod]] = {}
    for pod in pods:
        on_row.setdefault(table.occupants[pod.uid].row, []).append(pod)
    rules, weights = [rule() for rule in REMOVAL_PREDICATES.values()], RemovalWeights(forecast_sign=sign)
    statement, kept = Statement(table), RemovalRows(table, on_row, rules, weights)
    for _ in pods:
        fresh = RemovalRows(table, {row: there for row, there in on_row.items() if there}, rules, weights)
        is_open = np.isin(kept.rows, fresh.rows)
        assert kept.scores()[is_open].tolist() == fresh.scores().tolist()
        assert kept.choose(FirstByName()) == fresh.choose(FirstByName())
        chosen = kept.choose(FirstByName())
        assert chosen is not None
        row, _ = chosen
        pod = on_row[row].pop()
        statement.remove(table.occupants[pod.uid])
        kept.look_again(row)
    assert kept.choose(FirstByName()) is None


def test_pods_bound_to_nodes_that_are_gone_are_not_chosen_though_no_node_is_left() -> None:
    pod = a_pod("p", node="gone")
    plan = plan_removal(Statement(a_table([], [pod])), [pod], 1, now_s=0.0)
    assert (plan.removed, plan.shortfall) == ((), 1)
