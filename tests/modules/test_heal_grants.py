"""The leader's word on a healing: asked of a copy of placement's table, by sums where there is none."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import pytest

from fairlead.cluster.writer import Outcome, Result
from fairlead.engine.unit import NoTrial, Unit, UnitPlaced
from fairlead.model.outcome import Placed
from fairlead.model.pod import SchedulerPod
from fairlead.model.taints import Taint
from fairlead.modules.heal_grants import GrantWriter
from fairlead.modules.healing import GRANT, OVERLOAD_TAINT, Grant, Step, read_grant
from fairlead.placement.trials import LoopTrials
from fairlead.testing.clock import ManualClock, settle
from tests.jobs.cluster import FakeCluster, Together
from tests.modules.test_healing import at, module_pod, node


@dataclass(slots=True)
class Cluster:
    """Nodes as a mirror, pods as a reader, and what is written."""

    nodes: list[Any]
    pods: list[SchedulerPod]
    written: list[Any] = field(default_factory=list)

    def __iter__(self) -> Any:
        return iter(self.nodes)

    async def list(self, kind: Any, namespace: str = "", **_: Any) -> Sequence[SchedulerPod]:
        return self.pods

    async def carry_out(self, intent: Any, **_: Any) -> Result:
        self.written.append(intent)
        return Result(intent, Outcome.DONE)

    @property
    def grant(self) -> Grant:
        (intent,) = self.written
        found = read_grant(intent.patch["metadata"]["annotations"][GRANT])
        assert found is not None
        assert intent.resource_version == "7", "over the version that was judged"
        return found


@dataclass(slots=True)
class Table:
    """Answers as placement's copy would."""

    answer: Callable[[Unit], Any]
    asked: list[Unit] = field(default_factory=list)

    async def on_copy(self, pods: Sequence[SchedulerPod], work: Callable[[Any], Any]) -> Any:
        return work(self)

    def decide(self, unit: Unit) -> Any:
        self.asked.append(unit)
        return self.answer(unit)


def cluster() -> Cluster:
    sick = node("sick", state=at(Step.CORDONED))
    sick = msgspec.structs.replace(sick, metadata=msgspec.structs.replace(sick.metadata, resource_version="7"))
    return Cluster([sick, node("well")], [module_pod("a", "shop", "sick"), module_pod("b", "cart", "well")])


def grants(found: Cluster, *trials: Any) -> GrantWriter:
    as_any = cast("Any", found)
    return GrantWriter(as_any, as_any, as_any, trials, clock=ManualClock(), windows=(), most=1)


async def test_the_table_is_asked_for_a_place_of_every_module_that_nobody_else_serves() -> None:
    found = cluster()
    table = Table(lambda unit: UnitPlaced(unit.key, (Placed("ns/a-again", "well"),)))
    await grants(found, table).turn()
    assert found.grant.is_granted
    (unit,) = table.asked
    assert [member.pod.metadata.name for member in unit.members] == ["a-again"]
    assert [member.pod.spec.node_name for member in unit.members] == [""]


async def test_a_refusal_of_the_table_is_a_sentence_though_sums_would_do() -> None:
    found = cluster()
    await grants(found, Table(lambda unit: None)).turn()
    assert not found.grant.is_granted
    assert found.grant.reason == "the other bases have no place for ns/a"


@pytest.mark.parametrize("problem", [NoTrial("does not lead"), ValueError("another scheduler's")])
async def test_where_no_table_answers_free_room_is_added_up(problem: Exception) -> None:
    def refuse(unit: Unit) -> Any:
        raise problem

    found = cluster()
    await grants(found, Table(refuse)).turn()
    assert found.grant.is_granted
    full = cluster()
    full.pods.append(module_pod("c", "pay", "well", memory="50Mi"))
    await grants(full).turn()
    assert full.grant.reason == "the other bases have no room for ns/a"


async def test_the_same_word_is_not_written_again() -> None:
    found = cluster()
    await grants(found).turn()
    (intent,) = found.written
    metadata = found.nodes[0].metadata
    notes = {**metadata.annotations, **intent.patch["metadata"]["annotations"]}
    told = msgspec.structs.replace(metadata, annotations=notes)
    found.nodes[0] = msgspec.structs.replace(found.nodes[0], metadata=told)
    found.written.clear()
    await grants(found).turn()
    assert found.written == []


def with_taint(found: Any, key: str) -> Any:
    spec = msgspec.structs.replace(found.spec, taints=(Taint(key=key, value="True", effect="NoSchedule"),))
    return msgspec.structs.replace(found, spec=spec)


@pytest.mark.parametrize(
    ("taint", "reason"),
    [("", ""), ("dedicated", "the other bases have no place for ns/a")],
)
async def test_placement_s_own_table_knows_what_sums_do_not(taint: str, reason: str) -> None:
    """The real loop in one process: by sums the other base has room, by its taint it is closed to the module."""
    found = cluster()
    found.nodes[0] = with_taint(found.nodes[0], OVERLOAD_TAINT)
    found.nodes[1] = with_taint(found.nodes[1], taint) if taint else found.nodes[1]
    scheduled = {"schedulerName": "fairlead"}
    bodies = [msgspec.to_builtins(pod) for pod in found.pods]
    found.pods = [msgspec.convert({**each, "spec": {**each["spec"], **scheduled}}, SchedulerPod) for each in bodies]
    board = FakeCluster(ManualClock())
    for each in found.nodes:
        board.put("nodes", msgspec.to_builtins(each))
    for pod in found.pods:
        board.put("pods", msgspec.to_builtins(pod))
    together = Together(board)
    async with together.leading():
        await settle()
        await grants(found, LoopTrials(together.loop)).turn()
    assert (found.grant.is_granted, found.grant.reason) == (not reason, reason)
    sums = cluster()
    await grants(sums).turn()
    assert sums.grant.is_granted
