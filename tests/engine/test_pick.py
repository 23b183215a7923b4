"""Which of the best is taken."""

from random import Random

from fairlead.engine.cycle import Cycle
from fairlead.engine.pick import ByChance, FirstByName, Pick, RoundRobin
from fairlead.engine.profile import kube_profile
from fairlead.model.outcome import Placed
from fairlead.testing.builders import a_node, a_pod, a_table


def run(pick: Pick, count: int) -> list[str]:
    """Pods that ask for nothing on equal nodes: nothing but the pick tells nodes apart."""
    table = a_table([a_node(name) for name in ("c", "a", "b")])
    cycle = Cycle(table, kube_profile(), pick)
    found = []
    for i in range(count):
        outcome = cycle.decide(a_pod(f"p{i}", requests={"cpu": "0", "memory": "0"}, cpu=None, memory=None))
        assert isinstance(outcome, Placed)
        found.append(outcome.node)
    return found


def test_the_smallest_name() -> None:
    assert run(FirstByName(), 3) == ["a", "a", "a"]


def test_round_robin_over_the_best() -> None:
    assert run(RoundRobin(), 4) == ["a", "b", "c", "a"]
    assert run(RoundRobin(counter=2), 2) == ["c", "a"]


def test_chance_is_the_callers() -> None:
    assert run(ByChance(Random(3)), 20) == run(ByChance(Random(3)), 20)
    assert set(run(ByChance(Random(3)), 40)) == {"a", "b", "c"}
