"""Pods of modules beside what others do: foreign pods on a base's node, pods made anew, writes that race."""

from pathlib import Path
from typing import Any

from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiObject
from fairlead.modules.names import LEDGER
from fairlead.nodes.node import NODES
from fairlead.testing.mock_base import Fault
from tests.modules.replicas import POD_BODIES, Crew, crew

NODE = "virtual-node-blue-b0"


class PlainEvent(ApiObject, frozen=True):
    reason: str = ""
    note: str = ""
    regarding: dict[str, Any] = {}


EVENTS = Kind("events.k8s.io", "v1", "events", "Event", PlainEvent)


async def events_of(at: Crew, pod: str) -> list[str]:
    found: list[PlainEvent] = list(await at.api.list(EVENTS, "default"))
    return [f"{each.reason}: {each.note}" for each in found if each.regarding.get("name") == pod]


async def test_k13_k34_k38_k39_k40_k42_what_others_do_beside_modules_loses_and_removes_nothing(tmp_path: Path) -> None:
    async with crew(tmp_path, bases=1) as at:
        base = at.bases["b0"]
        base.modules["theirs:1"] = "activated"
        at.start("one")
        await at.until(lambda: at.api.find(NODES, NODE))

        # K13: a pod that tolerates everything, as of a DaemonSet, is told that it is no module.
        spec = {"nodeName": NODE, "tolerations": [{"operator": "Exists"}]}
        proxy = {"name": "proxy", "image": "registry.k8s.io/kube-proxy:v1.36.4"}
        body = {"metadata": {"name": "proxy", "namespace": "default"}, "spec": {**spec, "containers": [proxy]}}
        await at.api.create(POD_BODIES, body, "default")

        async def is_told() -> bool:
            return any("Failed" in event and "BIZ_VERSION" in event for event in await events_of(at, "proxy"))

        await at.until(is_told)

        # K40: others write to the pod while its status is written.
        await at.install("b0")
        for number in range(10):
            await at.api.patch(POD_BODIES, "shop-b0", {"metadata": {"labels": {"n": str(number)}}}, "default")

        async def runs() -> bool:
            return await at.ready_pods() == {"shop-b0"}

        await at.until(runs)

        # K38, K39: while nobody looks, the pod is made anew under its name.
        first = await at.api.get(POD_BODIES, "shop-b0", "default")
        await at.kill("one")
        await at.api.delete(POD_BODIES, "shop-b0", "default", grace_s=0)
        await at.install("b0")
        at.start("one")
        await at.until(runs)
        second = await at.api.get(POD_BODIES, "shop-b0", "default")
        assert second.metadata.uid != first.metadata.uid
        assert (base.count("installBiz", "shop:1"), base.count("uninstallBiz", "shop:1")) == (1, 0)

        # K42: what somebody else installed is on no ledger, and stays.
        node = await at.api.get(NODES, NODE)
        assert node.metadata.annotations[LEDGER] == '["shop:1"]'
        assert sorted(base.modules) == ["shop:1", "theirs:1"]
        assert [call for call in base.calls if call[0].endswith("stallBiz")] == [("installBiz", "shop:1")]

        # K34: a pod that is deleted stays until its module is gone, which its grace allows for.
        base.faults["uninstallBiz"] = [Fault.BUSY]
        await at.api.delete(POD_BODIES, "shop-b0", "default")

        async def is_gone() -> bool:
            is_there = await at.api.find(POD_BODIES, "shop-b0", "default") is not None
            assert is_there or base.removed == ["shop:1"]
            return not is_there

        assert await at.until(is_gone) < 35
        assert base.count("uninstallBiz", "shop:1") == 2
