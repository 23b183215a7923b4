"""How much of environments and command lines a pod's containers may have together."""

from types import SimpleNamespace
from typing import Any

from fairlead.nodes.controller import MOST_BYTES_OF_A_POD, PodController
from fairlead.nodes.env import Sources
from fairlead.nodes.plan import Order
from fairlead.nodes.provider import Traits
from tests.nodes.kit import container, pod

SHARE = MOST_BYTES_OF_A_POD // 4


async def test_containers_share_a_bound_and_a_restart_does_not_count_twice() -> None:
    async def sources(*_: Any) -> Sources:
        return Sources()

    controller: Any = SimpleNamespace(_sources=sources)
    spec = [container(name, env=[{"name": "A", "value": "x" * SHARE}]) for name in "abcde"]
    held: Any = SimpleNamespace(runs={}, provider=SimpleNamespace(traits=Traits(environment=True)))
    plan: Any = SimpleNamespace(orders=tuple(Order(name, 0) for name in "abcde"))
    runs, problems = await PodController._runs(controller, pod(containers=spec), held, plan)
    assert ([run.container.name for run in runs], list(problems)) == (list("abcd"), ["e"])
    assert problems["e"].reason == "CreateContainerConfigError"
    assert "together larger than 4194304 bytes" in problems["e"].message
    held.runs = {(run.container.name, run.attempt): run for run in runs}
    plan.orders = (Order("a", 1), *(Order(name, 0) for name in "bcd"))
    runs, problems = await PodController._runs(controller, pod(containers=spec), held, plan)
    assert ([(run.container.name, run.attempt) for run in runs], problems) == (
        [("a", 1), ("b", 0), ("c", 0), ("d", 0)],
        {},
    )
