"""Pods of modules beside what others do: foreign pods on a base's node, pods made anew, writes that race."""

from pathlib import Path
from typing import Any

from fairlead.model.kinds import LEASES, Kind
from fairlead.model.meta import ApiObject
from fairlead.modules.deployments import DEPLOYMENTS
from fairlead.modules.names import LEDGER
from fairlead.nodes.node import LEASE_NAMESPACE, NODES
from fairlead.nodes.spec import PODS
from fairlead.testing.mock_base import Fault
from tests.modules.replicas import POD_BODIES, Crew, crew

NODE = "virtual-node-blue-b0"


class PlainEvent(ApiObject, frozen=True):
    reason: str = ""
    note: str = ""
    regarding: dict[str, Any] = {}


PEERS: Kind[Any] = Kind("apps", "v1", "deployments", "Deployment", ApiObject)
EVENTS = Kind("events.k8s.io", "v1", "events", "Event", PlainEvent)


async def events_of(at: Crew, pod: str) -> list[str]:
    found: list[PlainEvent] = list(await at.api.list(EVENTS, "default"))
    return [f"{each.reason}: {each.note}" for each in found if each.regarding.get("name") == pod]


async def live_beside_others(at: Crew) -> None:
    """On one base."""
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
    lease = await at.api.get(LEASES, NODE, LEASE_NAMESPACE)
    assert lease.metadata.annotations[LEDGER] == '{"default":["shop:1"]}'
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


async def test_k13_k34_k38_k39_k40_k42_what_others_do_beside_modules_loses_and_removes_nothing(tmp_path: Path) -> None:
    async with crew(tmp_path, bases=1) as at:
        await live_beside_others(at)
        assert await at.ready_pods() == set()


async def test_k15_a_group_that_fails_by_policy_is_failed_and_its_first_module_stays_until_it_is_deleted(
    tmp_path: Path,
) -> None:
    async with crew(tmp_path, bases=1) as at:
        base = at.bases["b0"]
        at.start("one")
        await at.until(lambda: at.api.find(NODES, NODE))
        env = [{"name": "BIZ_VERSION", "value": "1"}]
        containers = [{"name": each, "image": f"http://h/{each}-1.zip", "env": env} for each in ("cart", "fails")]
        metadata = {"name": "group", "annotations": {"module.koupleless.io/failure-policy": "Fail"}}
        spec = {"nodeName": NODE, "tolerations": [{"operator": "Exists"}], "containers": containers}
        await at.api.create(PODS, {"metadata": metadata, "spec": spec}, "default")

        async def has_failed() -> bool:
            return (await at.api.get(PODS, "group", "default")).status.phase == "Failed"

        await at.until(has_failed)
        status = (await at.api.get(PODS, "group", "default")).status
        conditions = {each.type: each for each in status.conditions or ()}
        installed = conditions["module.koupleless.io/installed"]
        assert (installed.status, installed.message) == ("False", "not installed: fails")
        ends = {each.name: each.state.terminated for each in status.container_statuses or ()}
        assert {name: ended and (ended.exit_code, ended.reason) for name, ended in ends.items()} == {
            "cart": (0, "ModuleKept"),
            "fails": (1, "InstallFailed"),
        }
        assert (list(base.modules), base.removed) == (["cart:1"], [])
        await at.api.delete(PODS, "group", "default")

        # A pod that has ended is gone at once, and its module then.
        async def is_removed() -> bool:
            return base.removed == ["cart:1"]

        assert await at.until(is_removed) < 20
        assert base.count("installBiz", "cart:1") == 1


async def follow_bases(at: Crew) -> None:
    """On three bases."""
    prefix = "virtual-kubelet.koupleless.io"
    labels = {f"{prefix}/component": "module-deployment", f"{prefix}/env": "dev", f"{prefix}/strategy": "peer"}
    container = {"name": "cart", "image": "http://h/cart-1.zip", "env": [{"name": "BIZ_VERSION", "value": "1"}]}
    template = {"metadata": {"labels": {"m": "cart"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"m": "cart"}}, "template": template}
    labels["base.koupleless.io/cluster-name"] = "blue"
    await at.api.create(PEERS, {"metadata": {"name": "cart", "labels": labels}, "spec": spec}, "default")
    labels[f"{prefix}/replicas-control"] = "true"
    await at.api.create(PEERS, {"metadata": {"name": "free", "labels": labels}, "spec": spec}, "default")

    async def replicas(name: str = "cart") -> int:
        return (await at.api.get(DEPLOYMENTS, name, "default")).spec.replicas

    at.start("one")

    async def are_three() -> bool:
        return await replicas() == 3

    await at.until(are_three)

    # K12: somebody deletes the node of a base that lives.
    await at.install("b0")

    async def runs() -> bool:
        return await at.ready_pods() == {"shop-b0"}

    await at.until(runs)
    first = await at.api.get(NODES, NODE)
    await at.api.delete(NODES, NODE)

    async def is_back() -> bool:
        found = await at.api.find(NODES, NODE)
        return found is not None and found.metadata.uid != first.metadata.uid

    await at.until(is_back)
    second = await at.api.get(NODES, NODE)
    assert second.metadata.labels == first.metadata.labels
    await at.until(runs)
    assert at.bases["b0"].count("installBiz", "shop:1") == 1

    # K64: a base that says goodbye counts no more.
    at.bases["b2"].is_away = True
    assert await at.beat("b2", state="deactivated") == 200

    async def are_two() -> bool:
        return await replicas() == 2

    await at.until(are_two)
    assert await replicas("free") == 0


async def test_k12_k64_peers_follow_their_bases_and_a_deleted_node_comes_back(tmp_path: Path) -> None:
    async with crew(tmp_path, bases=3) as at:
        await follow_bases(at)
        assert await at.ready_pods() == {"shop-b0"}
