"""A slow watch, a refusal, an owner that goes: what the shell does between the plan and the server."""

import random
from typing import Any

import pytest

from fairlead.cluster.client import Client
from fairlead.cluster.controller import TemporaryError
from fairlead.cluster.errors import AlreadyExists, Conflict, Forbidden, Refused, Status
from fairlead.cluster.expectations import OVERDUE_S
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.shell import Shell
from fairlead.cluster.writer import Outcome, Result
from fairlead.local.controllers import KINDS
from fairlead.local.controllers.mirrors import ControllerContext, Mirrors
from fairlead.local.controllers.replicasets import ReplicaSetInput, plan_replica_set
from fairlead.local.controllers.spec import NAMESPACES, PODS, REPLICA_SETS, ControllerPod, Namespace, ReplicaSet
from fairlead.model.intents import Create, Delete, Intent, RecordEvent, WakeAfter
from fairlead.model.kinds import Kind
from fairlead.testing.clock import ManualClock
from tests.local.controllers.builders import NOW, SELECTOR, decoded, metadata, pod, workload


class FakeServer:
    """Takes writes and keeps what they made, and answers reads of it; the mirrors are shown it when a test says so."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}
        self.sent: list[Intent] = []
        self.told: list[str] = []
        self.refuses: type[Refused] | None = None

    async def carry_out(self, intent: Intent) -> Result:
        if isinstance(intent, RecordEvent):
            self.told.append(intent.reason)
            return Result(intent, Outcome.DONE)
        self.sent.append(intent)
        if self.refuses is not None:
            error = self.refuses("POST /pods", Status(message="exceeded quota", code=403))
            outcomes: dict[type[Refused], Outcome] = {Conflict: Outcome.CONFLICT, AlreadyExists: Outcome.EXISTS}
            return Result(intent, outcomes.get(self.refuses, Outcome.REFUSED), error)
        if isinstance(intent, Create):
            name = intent.body["metadata"]["name"]
            self.held[f"ns/{name}"] = made = pod(name, OWNER)
            return Result(intent, Outcome.DONE, answer=made)
        return Result(intent, Outcome.DONE)

    async def carry_out_all(self, intents: list[Intent]) -> list[Result]:
        return [await self.carry_out(intent) for intent in intents]

    async def find(self, kind: Kind[Any], name: str, namespace: str = "") -> Any:
        return self.held.get(f"{namespace}/{name}")


OWNER = workload(ReplicaSet, replicas=3)


class Bench:
    def __init__(self) -> None:
        self.server, self.clock = FakeServer(), ManualClock(NOW)
        reader: Client = self.server  # type: ignore[assignment]
        self.mirrors = Mirrors(reader, clock=self.clock, rng=random.random, metrics=Metrics())
        for kind in KINDS:
            self.mirrors.add(kind)
        self.mirrors.of(REPLICA_SETS).replace({OWNER.metadata.key: OWNER})
        self.problems: dict[str, str] = {}
        writer: Any = self.server
        context = ControllerContext(self.mirrors, reader, writer, self.clock, Metrics(), self.problems)
        self.shell = Shell(context, "replicasets", REPLICA_SETS)

    async def look(self) -> WakeAfter | None:
        """As the controller does, whenever something wakes it."""
        key = OWNER.metadata.key
        if not await self.shell.expectations.is_settled(key):
            return WakeAfter(seconds=1)
        pods = self.mirrors.claimable(PODS, OWNER.metadata)
        seen = ReplicaSetInput(REPLICA_SETS, OWNER, SELECTOR, pods)
        wanted = [intent for intent in plan_replica_set(seen, self.clock.now()) if not _is_status(intent)]
        return await self.shell.hand_over(key, wanted)

    def show(self, *pods: ControllerPod) -> None:
        self.mirrors.of(PODS).apply([(True, found) for found in pods])


def _is_status(intent: Intent) -> bool:
    return type(intent).__name__ == "PatchStatus"


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_a_slow_watch_makes_no_pod_twice(bench: Bench) -> None:
    await bench.look()
    assert len(bench.server.held) == 3
    for shown in list(bench.server.held.values()):
        await bench.look()
        await bench.clock.advance(0.5)
        bench.show(shown)
    await bench.look()
    assert len(bench.server.held) == 3
    assert bench.server.told == ["SuccessfulCreate"] * 3


async def test_a_pod_that_came_and_went_unseen_is_asked_for_and_then_replaced(bench: Bench) -> None:
    await bench.look()
    first, *others = bench.server.held.values()
    bench.show(*others)
    await bench.look()
    assert len(bench.server.sent) == 3
    await bench.clock.advance(OVERDUE_S)
    await bench.look()
    assert len(bench.server.sent) == 3, "the server still holds it: the watch is only late"
    del bench.server.held[first.metadata.key]
    await bench.look()
    assert len(bench.server.sent) == 4


async def test_a_delete_is_awaited_too(bench: Bench) -> None:
    surplus = [pod(f"p{number}", OWNER) for number in range(5)]
    bench.show(*surplus)
    await bench.look()
    await bench.look()
    deleted = [intent.name for intent in bench.server.sent if isinstance(intent, Delete)]
    assert len(deleted) == 2
    bench.show(*(pod(name, OWNER, going=True, resourceVersion="2") for name in deleted))
    await bench.look()
    assert len(bench.server.sent) == 2


async def test_a_refusal_is_met_once_told_and_remembered(bench: Bench) -> None:
    bench.server.refuses = Forbidden
    with pytest.raises(TemporaryError):
        await bench.look()
    assert len(bench.server.sent) == 1
    assert bench.server.told == ["FailedCreate"]
    assert bench.problems == {"replicasets ns/web": "exceeded quota"}
    bench.server.refuses = None
    await bench.look()
    assert bench.problems == {}


@pytest.mark.parametrize("error", [Conflict, AlreadyExists])
async def test_what_came_in_between_is_looked_at_again(bench: Bench, error: type[Refused]) -> None:
    bench.server.refuses = error
    with pytest.raises(TemporaryError):
        await bench.look()
    assert bench.server.told == []


async def test_an_owner_that_is_going_adopts_nothing_although_its_mirror_does_not_know(bench: Bench) -> None:
    bench.show(*(pod(f"stray{number}") for number in range(3)))
    bench.server.held["ns/web"] = workload(ReplicaSet, meta={"deletionTimestamp": "2026-03-01T12:00:00Z"})
    with pytest.raises(TemporaryError):
        await bench.look()
    assert bench.server.sent == []
    bench.server.held["ns/web"] = OWNER
    await bench.look()
    assert len(bench.server.sent) == 3


async def test_nothing_is_made_in_a_namespace_that_is_going(bench: Bench) -> None:
    body = {"metadata": {**metadata("ns"), "namespace": "", "deletionTimestamp": "2026-03-01T12:00:00Z"}}
    bench.mirrors.of(NAMESPACES).replace({"ns": decoded(Namespace, body)})
    await bench.look()
    assert bench.server.sent == []
