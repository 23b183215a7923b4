"""ConfigMaps of pods with sidecars: written once while such pods are there, and again where their namespace was."""

import asyncio
from types import SimpleNamespace
from typing import Any

from fairlead.cluster.metrics import Metrics
from fairlead.cluster.writer import Outcome, Result
from fairlead.data.side_objects import SideObjects
from fairlead.testing.clock import ManualClock, settle
from tests.jobs.cluster import FakeCluster


class Writing:
    def __init__(self) -> None:
        self.written: list[str] = []

    async def carry_out(self, intent: Any) -> Result:
        self.written.append(f"{intent.namespace}/{intent.name}")
        return Result(intent, Outcome.DONE)


def pod(name: str) -> dict[str, Any]:
    volumes = [{"name": "v", "configMap": {"name": "check-fluid-mount-ready"}}]
    return {"metadata": {"name": name, "namespace": "lab"}, "spec": {"volumes": volumes}}


async def test_a_namespace_created_again_gets_its_scripts_again() -> None:
    cluster, writer = FakeCluster(ManualClock()), Writing()

    def mirror(kind: Any, indexes: Any = None, **_: Any) -> Any:
        return cluster.mirror(kind, **(indexes or {}))

    runtime: Any = SimpleNamespace(mirror=mirror, writer=writer, clock=cluster.clock, metrics=Metrics())
    controller = SideObjects(runtime).controller()
    running = asyncio.create_task(controller.run())
    for name in ("a", "b"):
        cluster.put("pods", pod(name))
    await settle(50)
    assert writer.written == ["lab/check-fluid-mount-ready"]
    for name in ("a", "b"):
        cluster.remove("pods", f"lab/{name}")
    await settle(50)
    cluster.put("pods", pod("c"))
    await settle(50)
    running.cancel()
    assert writer.written == ["lab/check-fluid-mount-ready"] * 2
