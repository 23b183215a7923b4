"""The crash matrix: the leader dies, or loses an answer, at any write; every workload is changed exactly once.

The server is real (the embedded one), and so are the writer and the rounds. What ReplicaSets and kubelets do is done by
hand between two looks, so that every step is in the test's own hands.
"""

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest

from fairlead.apiserver.embedded import embedded
from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.errors import Forbidden, Status, Unavailable, no_answer
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.recorder import Recorder
from fairlead.cluster.writer import Outcome, Result, Writer
from fairlead.engine.forecast import Forecast
from fairlead.engine.removal import DELETION_COST, RemovalWeights
from fairlead.model.intents import Apply, Evict, Intent, RecordEvent, Scale
from fairlead.model.kinds import NAMESPACES, Kind
from fairlead.model.meta import ApiObject
from fairlead.model.pod import SchedulerPod
from fairlead.placement.requests import controller
from fairlead.placement.requests.admission import Admission
from fairlead.placement.requests.controller import RequestController
from fairlead.placement.requests.plan import RoundOptions
from fairlead.placement.requests.spec import (
    SCHEDULE_REQUESTS,
    WORKLOADS,
    ItemKey,
    ScheduleRequest,
    Workload,
    definition,
)
from fairlead.placement.spec import PODS
from fairlead.placement.table_handle import TableHandle
from tests.placement.requests.kit import AtTable

T = TypeVar("T")

DEFINITIONS = Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", ApiObject, namespaced=False
)
ACCOUNTS = Kind("", "v1", "serviceaccounts", "ServiceAccount", ApiObject)
HOME = "fairlead-system"
SETS = WORKLOADS["ReplicaSet"]
Fate = Literal["dies before", "dies after", "hears nothing", "hears a conflict"]
FATES: tuple[Fate, ...] = ("dies before", "dies after", "hears nothing", "hears a conflict")
# More than any run below has; a test makes sure.
MOST_WRITES = 8


class Killed(BaseException):
    """The process is gone: nothing of ours catches this."""


class Mortal(Writer):
    """A writer that meets its fate at one write."""

    def __init__(self, *given: Any, at: int = 0, fate: Fate = "dies before", **more: Any) -> None:
        super().__init__(*given, **more)
        self.at = at
        self.fate = fate
        self.sent: list[Intent] = []

    async def carry_out_all(self, intents: Iterable[Intent]) -> list[Result]:
        return [await self.carry_out(intent) for intent in intents]

    async def carry_out(self, intent: Intent, *, is_wanted: Callable[[], bool] = lambda: True) -> Result:
        if isinstance(intent, RecordEvent):
            return await super().carry_out(intent)
        self.sent.append(intent)
        is_now = len(self.sent) == self.at
        if is_now and self.fate == "dies before":
            raise Killed
        result = await super().carry_out(intent)
        if is_now and self.fate == "dies after":
            raise Killed
        if is_now and self.fate == "hears nothing":
            trouble = no_answer("PATCH", "no answer", may_have_happened=True)
            return Result(intent, Outcome.FAILED, trouble, may_have_happened=True)
        if is_now and self.fate == "hears a conflict":
            return Result(intent, Outcome.CONFLICT, may_have_happened=True)
        return result


class Seen:
    """What a replica has heard of the requests: everything, until told to stop listening."""

    kind = SCHEDULE_REQUESTS
    is_synced = True

    def __init__(self) -> None:
        self.objects: dict[str, ScheduleRequest] = {}

    def __iter__(self) -> Iterator[ScheduleRequest]:
        return iter(self.objects.values())


class World:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def make_set(self, name: str, replicas: int) -> None:
        container = {"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}
        template = {
            "metadata": {"labels": {"app": name}},
            "spec": {"schedulerName": "fairlead", "containers": [container]},
        }
        body = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
        }
        await self.client.create(SETS, body, "default")

    async def set_of(self, name: str) -> Workload:
        return await self.client.get(SETS, name, "default")

    async def pods(self) -> list[SchedulerPod]:
        return await self.client.list(PODS, "default")

    async def tend(self, node_of: Callable[[str], str]) -> None:
        """What the ReplicaSet controller and the kubelets would do now."""
        for owner in await self.client.list(SETS, "default"):
            mine = [pod for pod in await self.pods() if pod.metadata.labels.get("app") == owner.metadata.name]
            cost = {pod.uid: int(pod.metadata.annotations.get(DELETION_COST, "0")) for pod in mine}
            for pod in sorted(mine, key=lambda pod: (cost[pod.uid], pod.key))[: max(0, len(mine) - owner.replicas)]:
                await self.client.delete(PODS, pod.metadata.name, "default", grace_s=0)
            for _ in range(owner.replicas - len(mine)):
                await self._make(owner, node_of(owner.metadata.uid))

    async def _make(self, owner: Workload, node: str) -> None:
        name = owner.metadata.name
        reference = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": name,
            "uid": owner.metadata.uid,
            "controller": True,
        }
        body = {
            "metadata": {"generateName": f"{name}-", "labels": {"app": name}, "ownerReferences": [reference]},
            "spec": {**owner.spec.template.spec, "nodeName": node},
        }
        made = await self.client.create(PODS, body, "default")
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        status = {"phase": "Running", "conditions": [ready]}
        await self.client.patch(PODS, made.metadata.name, {"status": status}, "default", subresource="status")

    async def ask(self, name: str, *items: tuple[str, str, int]) -> None:
        asked = []
        for operation, of, number in items:
            uid = (await self.set_of(of)).metadata.uid
            workload = {"kind": "ReplicaSet", "name": of, "uid": uid}
            asked.append(
                {
                    "operation": operation,
                    "namespace": "default",
                    "serviceName": of,
                    "number": number,
                    "workload": workload,
                }
            )
        body = {
            "apiVersion": "fairlead.io/v1alpha1",
            "kind": "ScheduleRequest",
            "metadata": {"name": name},
            "spec": {"user": "ann", "acceptedAt": "2099-01-01T00:00:00.000000Z", "items": asked},
        }
        await self.client.create(SCHEDULE_REQUESTS, body, HOME)

    async def request(self, name: str) -> ScheduleRequest:
        return await self.client.get(SCHEDULE_REQUESTS, name, HOME)


@dataclass
class Leader:
    """One process that leads: its books, its table, its writer."""

    world: World
    writer: Mortal
    seen: Seen
    at: AtTable
    rounds: RequestController

    @classmethod
    def made(cls, world: World, at: int = 0, fate: Fate = "dies before", nodes: int = 3, cpu: str = "16") -> "Leader":
        clock, metrics = RealClock(), Metrics()
        recorder = Recorder(world.client, controller="test", instance="t", clock=clock, metrics=metrics)
        rng = random.Random(1).random
        writer = Mortal(world.client, recorder, clock=clock, rng=rng, metrics=metrics, at=at, fate=fate)
        seen, table = Seen(), AtTable(nodes=nodes, cpu=cpu)

        async def run_on_table(work: Callable[[TableHandle], T]) -> T:
            await leader.look_at_pods()
            return work(table.handle)

        rounds = RequestController(
            seen,  # type: ignore[arg-type]
            namespace=HOME,
            reader=world.client,
            writer=writer,
            clock=clock,
            run_on_table=run_on_table,
            find_pod=lambda key: table.pods.get(key),
            options=RoundOptions(settle_s=3600.0),
            # Nothing is shown here but by hand.
            watch_checks=0,
        )
        leader = cls(world, writer, seen, table, rounds)
        return leader

    def read_with(self, reader: Any) -> None:
        """All that is read of the server comes from here."""
        self.rounds._cache._reader = self.rounds._lookup._reader = reader

    def set_options(self, **changes: Any) -> None:
        options = dataclasses.replace(self.rounds._options, **changes)
        for part in (self.rounds, self.rounds._lookup, self.rounds._places, self.rounds._scaler):
            part._options = options

    async def look_at_pods(self) -> None:
        table, pods = self.at, {pod.key: pod for pod in await self.world.pods()}
        for key in [key for key in table.pods if key not in pods]:
            table.table.remove_pod(table.pods[key].uid)
        for pod in pods.values():
            table.table.add_pod(pod)
        table.pods.clear()
        table.pods.update(pods)

    async def hear(self) -> None:
        for request in await self.world.client.list(SCHEDULE_REQUESTS, HOME):
            self.seen.objects[request.name] = request

    def node_of(self, owner: str) -> str:
        """As the loop does it: a new pod takes the oldest promise of its workload."""
        reservation = self.at.reservations.first_of(owner)
        if reservation is None:
            return "n1"
        self.at.reservations.release(reservation.key)
        return reservation.node

    async def lead(self, *, deaf: bool = False, looks: int = 12) -> None:
        """Take over, and hold rounds until there is nothing left to do. Deaf: the mirror shows no more than it did."""
        if not deaf:
            await self.hear()
        await self.look_at_pods()
        self.rounds.prepare(self.at.handle)
        for _ in range(looks):
            await self.rounds.once()
            await self.world.tend(self.node_of)
            if not deaf:
                await self.hear()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with (
        embedded(tmp_path, RealClock()) as cluster,
        Client(connect_by_kubeconfig([cluster.kubeconfig], RealClock()), clock=RealClock()) as client,
    ):
        await client.create(NAMESPACES, {"metadata": {"name": HOME}})
        await client.create(ACCOUNTS, {"metadata": {"name": "default"}}, "default")
        wanted = definition()
        apply = Apply(kind=DEFINITIONS, name=wanted["metadata"]["name"], body=wanted)
        await client.apply(apply.kind, apply.name, apply.body)
        yield World(client)


async def a_small_world(world: World) -> None:
    await world.make_set("web", 2)
    await world.make_set("api", 4)
    await world.tend(lambda _: "n1")
    await world.ask("sr-1", ("Add", "web", 2), ("Remove", "api", 1))


async def outcome(world: World) -> dict[str, Any]:
    """What counts in the end, told by the server alone. A generation counts the changes of a spec."""
    sets = {name: await world.set_of(name) for name in ("web", "api")}
    request = await world.request("sr-1")
    return {
        "replicas": {name: found.replicas for name, found in sets.items()},
        "changes": {name: found.metadata.generation - 1 for name, found in sets.items()},
        "pods": sorted(pod.metadata.labels["app"] for pod in await world.pods()),
        "phases": [item.phase for item in request.status.items],
        "told": (request.status.phase, request.status.added, request.status.removed),
        "costs": [pod.key for pod in await world.pods() if DELETION_COST in pod.metadata.annotations],
    }


WANTED = {
    "replicas": {"web": 4, "api": 3},
    "changes": {"web": 1, "api": 1},
    "pods": ["api"] * 3 + ["web"] * 4,
    "phases": ["Done", "Done"],
    "told": ("Done", 2, 1),
    "costs": [],
}


async def test_nothing_goes_wrong(world: World) -> None:
    await a_small_world(world)
    leader = Leader.made(world)
    await leader.lead()
    assert await outcome(world) == WANTED
    kinds = [type(intent).__name__ for intent in leader.writer.sent]
    assert kinds == ["PatchStatus", "Scale", "Patch", "Scale", "PatchStatus", "PatchStatus"], "none is wasted"
    assert len(kinds) < MOST_WRITES
    assert len(leader.at.reservations) == 0
    status = await world.request("sr-1")
    (places, victims) = (status.status.items[0].places, status.status.items[1].victims)
    assert [place.node == place.bound_to for place in places] == [True, True]
    assert [victim.gone for victim in victims] == [True]


@pytest.mark.parametrize("deaf", [False, True], ids=["fresh mirror", "stale mirror"])
@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("at", range(1, MOST_WRITES))
async def test_whatever_happens_at_any_write_all_is_done_once(world: World, at: int, fate: Fate, deaf: bool) -> None:
    await a_small_world(world)
    second = Leader.made(world)
    await second.hear()
    first = Leader.made(world, at=at, fate=fate)
    with contextlib.suppress(Killed):
        await first.lead()
    # Deaf: the mirror of the one who takes over shows nothing of what the first one wrote.
    await second.lead(deaf=deaf)
    assert await outcome(world) == WANTED
    assert len(second.at.reservations) == 0


async def test_requests_on_one_workload_follow_one_another(world: World) -> None:
    await a_small_world(world)
    await world.ask("sr-2", ("Remove", "web", 1))
    await world.ask("sr-3", ("Add", "web", 3))
    leader = Leader.made(world)
    await leader.lead(looks=20)
    web = await world.set_of("web")
    assert (web.replicas, web.metadata.generation - 1) == (2 + 2 - 1 + 3, 3)
    assert web.changed_by == ("sr-3", "sr-2", "sr-1")
    told = [(await world.request(name)).status for name in ("sr-1", "sr-2", "sr-3")]
    assert [(status.phase, status.added, status.removed) for status in told] == [
        ("Done", 2, 1),
        ("Done", 0, 1),
        ("Done", 3, 0),
    ]


async def test_room_is_used_only_when_it_is_really_free(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.make_set("web", 0)
    await world.make_set("api", 4)
    await world.tend(lambda _: "n1")
    await world.ask("sr-1", ("Add", "web", 2), ("Remove", "api", 3))
    leader = Leader.made(world, nodes=1, cpu="4")
    await leader.hear()
    await leader.rounds.once()
    await leader.rounds.once()
    adding, removing = (await world.request("sr-1")).status.items
    assert (adding.phase, removing.phase) == ("Waiting", "Scaled")
    assert "when the pods that are on their way out are gone" in adding.message
    assert (await world.set_of("web")).replicas == 0
    await world.ask("sr-2", ("Add", "web", 1))
    await leader.hear()
    await leader.rounds.once()
    next_one = (await world.request("sr-2")).status.items[0]
    assert next_one.message == "request sr-1 is changing ReplicaSet web; this is next", "nobody overtakes it"
    monkeypatch.setattr(controller, "AGAIN_S", 0.0)
    await leader.lead()
    assert (await world.set_of("web")).replicas == 3
    status = (await world.request("sr-1")).status
    assert (status.phase, status.added, status.removed) == ("Done", 2, 3)
    assert [place.bound_to for place in status.items[0].places] == ["n1", "n1"]


async def test_many_requests_are_dealt_with_in_a_few_rounds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "MOST_IN_ROUND", 10)
    names = [f"app-{number}" for number in range(8)]
    for name in names:
        await world.make_set(name, 1)
    await world.tend(lambda _: "n1")
    for number, name in enumerate(names):
        await world.ask(f"sr-{number}", ("Add", name, 4))
    leader = Leader.made(world, nodes=6)
    await leader.hear()
    await leader.rounds.once()
    begun = [each for number in range(8) if (each := await world.request(f"sr-{number}")).status.phase != "Accepted"]
    assert len(begun) == 2, "no more than a round may hold"
    await leader.lead()
    assert [(await world.set_of(name)).replicas for name in names] == [5] * 8
    assert {(await world.request(f"sr-{number}")).status.phase for number in range(8)} == {"Done"}
    assert len(leader.at.reservations) == 0


async def test_somebody_else_changing_the_workload_meanwhile_is_reckoned_with(world: World) -> None:
    await a_small_world(world)
    leader = Leader.made(world)

    class Meddling(Mortal):
        async def carry_out(self, intent: Intent, *, is_wanted: Callable[[], bool] = lambda: True) -> Result:
            if type(intent).__name__ == "Scale" and not self.at:
                self.at = -1
                await world.client.patch(SETS, "web", {"spec": {"replicas": 7}}, "default")
                await world.client.patch(SETS, "api", {"spec": {"replicas": 6}}, "default")
            return await super().carry_out(intent)

    leader.writer.__class__ = Meddling
    await leader.lead()
    assert [(await world.set_of(name)).replicas for name in ("web", "api")] == [9, 5]


@pytest.mark.parametrize("gone", [["web"], ["web", "api"]], ids=["one of them", "both"])
async def test_a_workload_that_is_gone_or_another_fails_its_item_alone(world: World, gone: Sequence[str]) -> None:
    await a_small_world(world)
    for name in gone:
        await world.client.delete(SETS, name, "default")
    await world.make_set("web", 1)
    leader = Leader.made(world)
    await leader.lead()
    status = (await world.request("sr-1")).status
    assert status.phase == ("Partial" if len(gone) == 1 else "Failed")
    assert status.items[0].message == "ReplicaSet web is gone, or another one now"
    assert (await world.set_of("web")).replicas == 1
    assert len(leader.at.reservations) == 0


async def test_a_workload_that_goes_once_it_is_scaled_holds_no_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "AGAIN_S", 0.0)
    await a_small_world(world)
    leader = Leader.made(world)
    await leader.hear()
    await leader.rounds.once()
    assert len(leader.at.reservations) == 2
    await world.client.delete(SETS, "web", "default")
    await leader.hear()
    await leader.rounds.once()
    item = (await world.request("sr-1")).status.items[0]
    assert (item.phase, len(leader.at.reservations)) == ("Failed", 0)
    assert item.message == "ReplicaSet web is gone, or another one now; 0 of 2 pods had a node"


class Blind:
    """A reader whose role does not let it see workloads."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def find(self, kind: Kind[Any], name: str, namespace: str) -> Any:
        if kind in WORKLOADS.values():
            raise Forbidden(f"GET {kind.plural}/{name}", Status(message="no", reason="Forbidden", code=403))
        return await self._client.find(kind, name, namespace)


async def test_a_workload_that_we_may_not_read_is_waited_for_for_a_while_only(world: World) -> None:
    await a_small_world(world)
    leader = Leader.made(world)
    leader.read_with(Blind(world.client))
    await leader.lead(looks=3)
    waits = (await world.request("sr-1")).status
    assert (waits.phase, waits.items[0].phase) == ("Waiting", "Waiting")
    assert waits.items[0].message == "ReplicaSet web cannot be read: GET replicasets/web: 403 Forbidden: no"
    leader.set_options(settle_s=0.0)
    await leader.rounds.once()
    over = (await world.request("sr-1")).status
    assert (over.phase, [item.phase for item in over.items]) == ("Failed", ["Failed", "Failed"])
    assert over.items[0].message == f"{waits.items[0].message}; no longer waited for"


class NoTrials:
    """A reader whose role does not let it create pods, not even on trial."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(self, kind: Kind[Any], body: Any, namespace: str, *, dry_run: bool) -> Any:
        message = f'pods is forbidden: User "x" cannot create resource "pods" in the namespace "{namespace}"'
        raise Forbidden("POST pods", Status(message=message, reason="Forbidden", code=403))


async def test_without_the_right_to_try_pods_are_planned_all_the_same_and_that_is_said(world: World) -> None:
    await a_small_world(world)
    leader = Leader.made(world)
    leader.rounds._lookup._admission = Admission(NoTrials(world.client), RealClock())  # type: ignore[arg-type]
    await leader.lead()
    assert await outcome(world) == WANTED
    (told,) = (await world.request("sr-1")).status.conditions
    assert (told.type, told.status, told.reason) == ("AdmissionKnown", "False", "Forbidden")
    assert "apply deploy/rbac/requests.yaml" in told.message


async def test_forecasts_that_no_profile_counts_are_not_called_fresh(world: World) -> None:
    await a_small_world(world)
    leader = Leader.made(world)
    weights = RemovalWeights(forecast=0)
    leader.set_options(forecasts_problem=lambda: None, weights=weights)
    leader.at.table.catalog.set_forecast(Forecast(nodes={"n1": 0.5, "gone": 0.5}))
    await leader.lead()
    told = {each.type: each for each in (await world.request("sr-1")).status.conditions}
    assert (told["ForecastsFresh"].status, told["ForecastsFresh"].reason) == ("False", "NotCounted")
    assert "the profile of fairlead leaves NodeLoadForecast and SeedForecast out" in told["ForecastsFresh"].message
    assert "(weights.remove.w5, forecast.removeSign)" in told["ForecastsFresh"].message
    assert "node gone" in told["ForecastsMatched"].message
    assert told["AdmissionKnown"].status == "True"


async def test_a_deployment_whose_replica_set_is_still_to_be_made_is_waited_for(world: World) -> None:
    labels = {"app": "new"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"schedulerName": "fairlead", "containers": [{"name": "main", "image": "app:1"}]},
    }
    kind = WORKLOADS["Deployment"]
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    made = await world.client.create(kind, {"metadata": {"name": "new"}, "spec": spec}, "default")
    reference = {"kind": "Deployment", "name": "new", "uid": made.metadata.uid}
    item = {"operation": "Add", "namespace": "default", "serviceName": "new", "number": 2, "workload": reference}
    body = {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "ScheduleRequest",
        "metadata": {"name": "sr-1"},
        "spec": {"user": "ann", "acceptedAt": "2099-01-01T00:00:00.000000Z", "items": [item]},
    }
    await world.client.create(SCHEDULE_REQUESTS, body, HOME)
    leader = Leader.made(world)
    await leader.hear()
    await leader.rounds.once()
    (status,) = (await world.request("sr-1")).status.items
    assert (status.phase, status.message) == ("Waiting", "the ReplicaSet of Deployment new is not made yet")
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "new", "uid": made.metadata.uid, "controller": True}
    hashed = {**labels, "pod-template-hash": "abc"}
    found = await world.client.get(kind, "new", "default")
    stored = {"metadata": {"labels": hashed}, "spec": found.spec.template.spec}
    a_set = {
        "metadata": {"name": "new-abc", "labels": hashed, "ownerReferences": [owner]},
        "spec": {"replicas": 0, "selector": {"matchLabels": hashed}, "template": stored},
    }
    await world.client.create(SETS, a_set, "default")
    await leader.rounds.once()
    (status,) = (await world.request("sr-1")).status.items
    assert status.phase in ("Planned", "Scaled")
    assert status.planned is not None
    assert status.planned["metadata"]["labels"] == hashed
    assert status.planned["metadata"]["ownerReferences"][0]["name"] == "new-abc"


async def test_a_role_that_is_given_late_is_not_too_late(world: World) -> None:
    await a_small_world(world)
    leader = Leader.made(world)
    leader.read_with(Blind(world.client))
    await leader.lead(looks=2)
    leader.read_with(world.client)
    for _ in range(4):
        await leader.rounds.once()
        await world.tend(leader.node_of)
        await leader.hear()
    assert await outcome(world) == WANTED
    assert all(memory.stuck_since_s is None for memory in leader.rounds._cache._items.values())


async def test_a_plan_whose_workload_we_may_no_longer_read_ends_and_says_what_is_not_known(world: World) -> None:
    await a_small_world(world)
    first = Leader.made(world, at=2)
    with contextlib.suppress(Killed):
        await first.lead()
    leader = Leader.made(world)
    leader.read_with(Blind(world.client))
    await leader.lead(looks=3)
    assert (await world.request("sr-1")).status.items[0].phase == "Planned"
    assert len(leader.at.reservations) == 2
    leader.set_options(settle_s=0.0)
    await leader.rounds.once()
    status = (await world.request("sr-1")).status
    assert (status.phase, len(leader.at.reservations)) == ("Failed", 0)
    assert status.items[0].message == (
        "ReplicaSet web was not changed: it cannot be read: GET replicasets/web: 403 Forbidden: no; no longer tried; "
        "should it have been changed after all, its annotation fairlead.io/schedule-request names this request"
    )
    assert (await outcome(world))["costs"] == [], "who was named to go is not named any more"


async def test_a_workload_that_cannot_be_changed_is_not_tried_for_ever(world: World) -> None:
    """As where a webhook in front of it never answers."""
    await a_small_world(world)
    leader = Leader.made(world)
    leader.writer.__class__ = Broken
    leader.set_options(settle_s=0.0)
    await leader.lead(looks=3)
    status = (await world.request("sr-1")).status
    assert status.phase == "Failed"
    assert status.items[1].message == (
        "ReplicaSet api was not changed: PATCH: 500 InternalError: failed calling webhook; no longer tried"
    )


class Broken(Mortal):
    async def carry_out(self, intent: Intent, *, is_wanted: Callable[[], bool] = lambda: True) -> Result:
        if isinstance(intent, Scale):
            status = Status(message="failed calling webhook", reason="InternalError", code=500)
            return Result(intent, Outcome.FAILED, Unavailable("PATCH", status))
        return await super().carry_out(intent)


async def test_a_service_that_selects_nothing_any_more_removes_nobody(world: World) -> None:
    """Asked by no labels at all, the server would tell of every pod there is."""
    await a_small_world(world)
    services = Kind("", "v1", "services", "Service", ApiObject)
    spec = {"selector": {"app": "loose"}, "ports": [{"port": 80}]}
    service = await world.client.create(services, {"metadata": {"name": "loose"}, "spec": spec}, "default")
    for name in ("bare-1", "bare-2"):
        spec = {"nodeName": "n1", "containers": [{"name": "main", "image": "a"}]}
        await world.client.create(PODS, {"metadata": {"name": name}, "spec": spec}, "default")
    item = {
        "operation": "Remove",
        "namespace": "default",
        "serviceName": "loose",
        "number": 2,
        "workload": {"kind": "Service", "name": "loose", "uid": service.metadata.uid},
    }
    body = {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "ScheduleRequest",
        "metadata": {"name": "sr-2"},
        "spec": {"user": "ann", "acceptedAt": "2099-01-01T00:00:00.000000Z", "items": [item]},
    }
    await world.client.create(SCHEDULE_REQUESTS, body, HOME)
    await world.client.patch(services, "loose", {"spec": {"selector": None}}, "default")
    await Leader.made(world).lead()
    assert (await world.request("sr-2")).status.items[0].message == "Service loose selects no pods any more"
    assert {"bare-1", "bare-2"} < {pod.metadata.name for pod in await world.pods()}


async def test_a_workload_named_twice_is_changed_once(world: World) -> None:
    await a_small_world(world)
    await world.ask("sr-2", ("Add", "web", 1), ("Add", "web", 1))
    await Leader.made(world).lead(looks=20)
    status = (await world.request("sr-2")).status
    assert (await world.set_of("web")).replicas == 5
    assert [item.phase for item in status.items] == ["Done", "Failed"]
    assert status.items[1].message == "ReplicaSet web is in this request twice"


async def test_a_request_deleted_under_way_lets_its_promises_go(world: World) -> None:
    await a_small_world(world)
    leader = Leader.made(world)
    await leader.hear()
    await leader.rounds.once()
    assert len(leader.at.reservations) == 2
    await world.client.delete(SCHEDULE_REQUESTS, "sr-1", HOME)
    assert [pod for pod in await world.pods() if DELETION_COST in pod.metadata.annotations] != []
    leader.seen.objects.clear()
    await leader.rounds.once()
    assert len(leader.at.reservations) == 0
    assert [pod for pod in await world.pods() if DELETION_COST in pod.metadata.annotations] == []


async def test_a_name_that_comes_again_is_another_request(world: World) -> None:
    """As with an idempotency key whose request was tidied away, or deleted a moment ago."""
    await a_small_world(world)
    leader = Leader.made(world)
    await leader.lead()
    assert await outcome(world) == WANTED
    await world.client.delete(SCHEDULE_REQUESTS, "sr-1", HOME)
    await world.ask("sr-1", ("Add", "web", 2), ("Remove", "api", 1))
    await leader.hear()
    for _ in range(4):
        await leader.rounds.once()
        await world.tend(leader.node_of)
        await leader.hear()
    again = await outcome(world)
    assert (again["replicas"], again["changes"]) == ({"web": 6, "api": 2}, {"web": 2, "api": 2})
    assert again["told"] == ("Done", 2, 1)


async def test_promises_of_a_request_are_let_go_of_when_another_has_its_name(world: World) -> None:
    await a_small_world(world)
    leader = Leader.made(world)
    await leader.hear()
    await leader.rounds.once()
    assert len(leader.at.reservations) == 2
    await world.client.delete(SCHEDULE_REQUESTS, "sr-1", HOME)
    await world.ask("sr-1", ("Remove", "api", 1))
    await leader.hear()
    await leader.rounds.once()
    assert len(leader.at.reservations) == 0


async def test_nobody_is_evicted_for_a_request_that_was_deleted(world: World) -> None:
    await a_small_world(world)
    leader = Leader.made(world)
    await leader.hear()
    asking: asyncio.Event = asyncio.Event()
    scaler = leader.rounds._scaler
    scaler._ask_to_go = lambda evictions: asking.wait()  # type: ignore[assignment, method-assign, return-value]
    evictions = [Evict(namespace="default", name="bare", uid="uid")]
    scaler.evict(ItemKey("sr-1", 0), evictions)
    await leader.rounds.once()
    (task,) = scaler._evicting.values()
    assert not task.done()
    await world.client.delete(SCHEDULE_REQUESTS, "sr-1", HOME)
    leader.seen.objects.clear()
    await leader.rounds.once()
    await asyncio.wait([task], timeout=5)
    assert (task.cancelled(), scaler._evicting) == (True, {})


async def test_finished_requests_are_deleted_in_the_end(world: World) -> None:
    await a_small_world(world)
    leader = Leader.made(world)
    leader.rounds._keep = 0
    await leader.lead()
    leader.rounds._tidied_at_s = 0.0
    await leader.rounds.once()
    assert await world.client.list(SCHEDULE_REQUESTS, HOME) == []
