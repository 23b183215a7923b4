"""Binding with volumes: what is written for a claim, and what becomes of a write that another one crossed."""

import asyncio
from typing import Any, cast

import msgspec

from fairlead.cluster.client import Client
from fairlead.cluster.errors import Conflict, Status
from fairlead.cluster.writer import Outcome, Result, Writer
from fairlead.engine.catalog import Catalog
from fairlead.model.intents import Bind, Intent, Patch
from fairlead.model.outcome import Placed, VolumeChoice
from fairlead.model.pod import SchedulerPod
from fairlead.model.volumes import BIND_COMPLETED_ANNOTATION, SELECTED_NODE_ANNOTATION, PersistentVolumeClaim
from fairlead.placement.binding import MOST_UNSEEN_S, Binder
from fairlead.testing.clock import ManualClock, settle

SELECTED = SELECTED_NODE_ANNOTATION


def claim(version: str, **annotations: str) -> PersistentVolumeClaim:
    metadata = {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": version, "annotations": annotations}
    bound = {"volumeName": "v"} if BIND_COMPLETED_ANNOTATION in annotations else {}
    return msgspec.convert({"metadata": metadata, "spec": bound}, PersistentVolumeClaim)


class Server:
    """Keeps one claim; what it shows is behind what it has until `show` is called."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.has = claim("1")
        self.bound: dict[str, str] = {}
        self.binder = Binder(
            self.catalog, writer=cast("Writer", self), reader=cast("Client", None), clock=(clock := ManualClock())
        )
        self.clock = clock
        self.show()

    def write(self, version: str, **annotations: str) -> None:
        self.has = claim(version, **annotations)

    def show(self) -> None:
        self.catalog.claims["ns/c"] = self.has
        self.binder.storage_changed()

    async def carry_out(self, intent: Intent, **_: Any) -> Result:
        await asyncio.sleep(0)
        if isinstance(intent, Patch):
            if intent.resource_version != self.has.metadata.resource_version:
                status = Status(message="the object has been modified", reason="Conflict", code=409)
                return Result(intent, Outcome.CONFLICT, Conflict("PATCH c", status))
            version = str(int(self.has.metadata.resource_version) + 1)
            self.write(version, **intent.patch["metadata"]["annotations"])
        elif isinstance(intent, Bind):
            self.bound[intent.name] = intent.node
        return Result(intent, Outcome.DONE)

    def bind(self, name: str, node: str) -> "asyncio.Task[str | None]":
        pod = msgspec.convert({"metadata": {"name": name, "namespace": "ns", "uid": name}}, SchedulerPod)
        placed = Placed(pod.key, node, volumes=(VolumeChoice("ns/c"),))
        return asyncio.create_task(self.binder.bind(pod, placed, volumes_timeout_s=600.0))


async def test_pods_that_share_a_claim_promise_it_once_and_are_both_bound() -> None:
    server = Server()
    both = [server.bind(name, "n1") for name in ("p", "q")]
    await settle()
    # The second was refused, and has not seen the first one's write yet.
    assert server.has.metadata.annotations == {SELECTED: "n1"}
    assert not any(task.done() for task in both)
    server.show()
    await settle()
    server.write("3", **{SELECTED: "n1", BIND_COMPLETED_ANNOTATION: "yes"})
    server.show()
    assert [await task for task in both] == [None, None]
    assert server.bound == {"p": "n1", "q": "n1"}


async def test_a_claim_that_is_made_for_another_node_is_not_taken_from_it() -> None:
    server = Server()
    server.write("2", **{SELECTED: "n2"})
    task = server.bind("p", "n1")
    await settle()
    server.show()
    assert "claim ns/c is to be made for n2" in (await task or "")
    assert (server.has.metadata.annotations, server.bound) == ({SELECTED: "n2"}, {})


async def test_a_conflict_that_is_never_seen_is_said_after_a_while() -> None:
    server = Server()
    server.write("2", **{SELECTED: "n1"})
    task = server.bind("p", "n1")
    await server.clock.advance(MOST_UNSEEN_S + 1)
    assert "the object has been modified" in (await task or "")
    assert server.bound == {}
