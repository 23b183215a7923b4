"""What the objects of a cluster say of modules, state by state: scenarios of the specification, by number."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.modules import plan
from fairlead.nodes.node import NODES
from fairlead.nodes.spec import PODS, ContainerStatus
from fairlead.testing.mock_base import Fault, MockBase
from tests.modules.replicas import POD_BODIES, Crew, crew
from tests.modules.test_pods_and_others import EVENTS, PlainEvent

NODE = "virtual-node-blue-b0"
OTHER = "virtual-node-blue-b1"


async def make(at: Crew, name: str, image: str, *env: tuple[str, str], node: str = NODE) -> None:
    """A pod of one module, named as the artefact."""
    variables = [{"name": key, "value": value} for key, value in env]
    module = image.rpartition("/")[2].partition("-")[0] or "m"
    spec: dict[str, Any] = {"nodeName": node, "tolerations": [{"operator": "Exists"}]}
    spec["containers"] = [{"name": module, "image": image, "env": variables}]
    await at.api.create(POD_BODIES, {"metadata": {"name": name, "namespace": "default"}, "spec": spec}, "default")


async def container_of(at: Crew, name: str) -> ContainerStatus:
    pod = await at.api.get(PODS, name, "default")
    return next(iter(pod.status.container_statuses or ()), ContainerStatus())


async def conditions_of(at: Crew, name: str) -> dict[str, tuple[str, str]]:
    pod = await at.api.get(PODS, name, "default")
    found = pod.status.conditions or ()
    return {each.type.removeprefix("module.koupleless.io/"): (each.status, each.reason) for each in found}


async def until_waiting(at: Crew, name: str, reason: str) -> str:
    """The message of a container that waits for this reason."""

    async def does() -> bool:
        waiting = (await container_of(at, name)).state.waiting
        return waiting is not None and waiting.reason == reason

    await at.until(does)
    waiting = (await container_of(at, name)).state.waiting
    return waiting.message if waiting is not None else ""


async def until_ready(at: Crew, *names: str) -> None:
    async def are() -> bool:
        return set(names) <= await at.ready_pods()

    await at.until(are)


async def what_cannot_be(at: Crew, base: MockBase) -> None:
    """K16, K18: not even asked for; K17: with arklet's words; K19: what came instead is removed."""
    await make(at, "no-version", "http://h/cart-1.zip")
    assert "BIZ_VERSION" in await until_waiting(at, "no-version", "ModuleVersionMissing")
    await make(at, "no-protocol", "cart-1.zip", ("BIZ_VERSION", "1"))
    assert "http://" in await until_waiting(at, "no-protocol", "ModuleUrlInvalid")
    assert base.installs == []
    await make(at, "broken", "http://h/fails-1.zip", ("BIZ_VERSION", "1"))
    assert "boom at start" in await until_waiting(at, "broken", "ModuleInstallBackOff")
    assert (await conditions_of(at, "broken"))["installed"] == ("False", "InstallFailed")
    assert (await at.api.get(PODS, "broken", "default")).status.phase == "Pending"
    base.faults["installBiz"] = [Fault.OTHER]
    await make(at, "mismatch", "http://h/milk-1.zip", ("BIZ_VERSION", "1"))
    await until_waiting(at, "mismatch", "IdentityMismatch")
    assert "milk:1.other" in base.removed
    for name in ("no-version", "no-protocol", "broken", "mismatch"):
        await at.api.delete(POD_BODIES, name, "default", grace_s=1)


async def one_owner(at: Crew, base: MockBase) -> None:
    """K14; K21: the second waits, names the first, and follows it."""
    await make(at, "first", "http://h/shop-1.zip", ("MODULE_VERSION", "1"))
    await until_ready(at, "first")
    shown = await container_of(at, "first")
    assert shown.container_id == f"arklet://{at.ips['b0']}:shop:1"
    await make(at, "second", "http://h/shop-1.zip", ("BIZ_VERSION", "1"))
    assert "default/first" in await until_waiting(at, "second", "ModuleIdentityConflict")
    assert base.count("installBiz", "shop:1") == 1
    await at.api.delete(POD_BODIES, "first", "default")
    await until_ready(at, "second")
    assert (base.count("installBiz", "shop:1"), base.removed.count("shop:1")) == (2, 1)


async def lost_and_changed(at: Crew, base: MockBase) -> None:
    """K24: brought again; K32: replaced in place, the pod goes on; K31: superseded, and still there."""
    base.modules.clear()

    async def is_back() -> bool:
        return base.modules == {"shop:1": "activated"}

    await at.until(is_back)
    await until_ready(at, "second")
    restarts = (await container_of(at, "second")).restart_count
    change = {"spec": {"containers": [{"name": "shop", "image": "http://other/shop-1.zip"}]}}
    await at.api.patch(POD_BODIES, "second", change, "default", content_type="application/strategic-merge-patch+json")

    async def is_replaced() -> bool:
        pod = await at.api.get(PODS, "second", "default")
        assert pod.status.phase in ("Pending", "Running")
        return base.urls[-1] == "http://other/shop-1.zip" and "second" in await at.ready_pods()

    await at.until(is_replaced)
    assert (await container_of(at, "second")).restart_count == restarts + 1
    assert list(base.modules) == ["shop:1"]
    await make(at, "third", "http://h/shop-2.zip", ("BIZ_VERSION", "2"))
    await until_ready(at, "third")

    async def is_superseded() -> bool:
        return (await conditions_of(at, "second"))["ready"] == ("False", "Superseded")

    await at.until(is_superseded)
    conditions = await conditions_of(at, "second")
    assert (conditions["installed"][0], conditions["Ready"][0]) == ("True", "False")
    assert (await at.api.get(PODS, "second", "default")).status.phase == "Running"


async def forced(at: Crew, base: MockBase) -> None:
    """K37, K41: a pod deleted by force while its base is away and nobody looks; its module goes when both are back."""
    await at.kill("one")
    base.is_away = True
    await at.api.delete(POD_BODIES, "third", "default", grace_s=0)
    at.start("one")
    base.is_away = False

    async def is_reported() -> bool:
        events: list[PlainEvent] = list(await at.api.list(EVENTS, "default"))
        return any(each.reason == "DanglingModuleRemoved" and "shop:2" in each.note for each in events)

    await at.until(is_reported)
    assert base.removed.count("shop:2") == 1
    # The version that it had superseded serves again.
    await until_ready(at, "second")
    assert base.modules["shop:1"] == "activated"


async def moved(at: Crew, stack: AsyncExitStack) -> None:
    """K02: heartbeats that say the same write nothing. K07: an address follows, the node stays."""
    await at.install("b1", "tea")
    await until_ready(at, "tea-b1")
    await at.beat("b1", bootId="boot")

    async def is_told() -> bool:
        node = await at.api.get(NODES, OTHER)
        return node.metadata.annotations.get("base.koupleless.io/boot-id") == "boot"

    await at.until(is_told)
    before = await at.api.get(NODES, OTHER)
    for _ in range(10):
        assert await at.beat("b1", bootId="boot") == 200
    assert (await at.api.get(NODES, OTHER)).metadata.resource_version == before.metadata.resource_version
    there = await stack.enter_async_context(MockBase(modules=dict(at.bases["b1"].modules)).serving("127.0.78.77"))
    at.bases["b1"], at.ips["b1"] = there, "127.0.78.77"
    assert await at.beat("b1", bootId="boot") == 200

    async def has_moved() -> bool:
        pod = await at.api.get(PODS, "tea-b1", "default")
        return pod.status.pod_ip == "127.0.78.77" and "tea-b1" in await at.ready_pods()

    await at.until(has_moved)
    after = await at.api.get(NODES, OTHER)
    assert after.metadata.uid == before.metadata.uid
    assert after.metadata.annotations["base.koupleless.io/address"] == f"127.0.78.77:{there.port}"
    assert (there.installs, there.removed) == ([], [])


async def odd_names(at: Crew, stack: AsyncExitStack) -> None:
    """K04, K05: what is no name and no label is made one, and found again as it was."""
    base = await stack.enter_async_context(MockBase().serving("127.0.78.66"))
    metadata = {"identity": f"Größe/{'x' * 300}", "name": "a b/c", "version": "1.0+b1", "clusterName": "blue green"}
    body = {"baseMetadata": metadata, "localIP": "127.0.78.66", "port": base.port, "state": "activated"}
    own = aiohttp.TCPConnector(local_addr=("127.0.78.66", 0))
    async with (
        aiohttp.ClientSession(connector=own) as session,
        session.post(f"{at.replicas['one'].url}/heartbeat", json=body) as answer,
    ):
        assert answer.status == 200

    async def is_there() -> bool:
        return any(name.startswith("virtual-node-blue-green-gr-e-x") for name in await at.nodes())

    await at.until(is_there)
    (node,) = [each for each in await at.api.list(NODES) if each.name not in (NODE, OTHER)]
    assert node.metadata.labels["base.koupleless.io/version"].startswith("1.0-b1-")
    assert node.metadata.annotations["base.koupleless.io/raw-version"] == "1.0+b1"
    assert node.metadata.annotations["base.koupleless.io/identity"] == metadata["identity"]


async def show_states(at: Crew) -> None:
    """On two bases."""
    base = at.bases["b0"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "SWEEP_AGE_S", 2.0)
        async with AsyncExitStack() as stack:
            at.start("one")
            await at.until(lambda: at.api.find(NODES, NODE))
            await at.until(lambda: at.api.find(NODES, OTHER))
            await what_cannot_be(at, base)
            await one_owner(at, base)
            await lost_and_changed(at, base)
            await forced(at, base)
            await moved(at, stack)
            await odd_names(at, stack)
            await at.kill("one")


async def test_k02_k04_k05_k07_k14_k16_k17_k18_k19_k21_k24_k31_k32_k37_k41_each_state_is_what_the_objects_say(
    tmp_path: Path,
) -> None:
    async with crew(tmp_path, bases=2, own_addresses=True) as at:
        await show_states(at)
