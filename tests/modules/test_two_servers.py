"""Base pods on an API server of their own (A), and what goes on while it, or that of the nodes (B), is away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.apiserver.embedded import embedded
from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.model.kinds import NAMESPACES
from fairlead.modules import bases as bases_module
from fairlead.modules import healer as healer_module
from fairlead.nodes.node import NODES
from fairlead.testing.cutter import Cutter
from fairlead.testing.mock_base import MockBase
from tests.modules.replicas import ACCOUNTS, POD_BODIES, Crew, crew

NODE = "virtual-node-java-shop-base-0"
LIAR = "virtual-node-blue-id-0"


@asynccontextmanager
async def server_a(folder: Path) -> AsyncIterator[tuple[Client, Path]]:
    clock = RealClock()
    async with embedded(folder, clock) as cluster:
        connection = connect_by_kubeconfig([cluster.kubeconfig], clock)
        async with Client(connection, clock=clock) as api:
            await api.create(NAMESPACES, {"metadata": {"name": "shop"}})
            await api.create(ACCOUNTS, {"metadata": {"name": "default"}}, "shop")
            yield api, cluster.kubeconfig


async def base_pod(api: Client, name: str, ip: str, port: int) -> str:
    labels = {"base.koupleless.io/name": "shop", "base.koupleless.io/tunnel-port": str(port)}
    body = {
        "metadata": {"name": name, "namespace": "shop", "labels": labels},
        "spec": {"nodeName": "n", "containers": [{"name": "base", "image": "b"}]},
    }
    created = await api.create(POD_BODIES, body, "shop")
    status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}
    await api.patch(POD_BODIES, name, {"status": status}, "shop", subresource="status")
    return str(created.metadata.uid)


async def beat_from(at: Crew, ip: str, base: MockBase, **other: Any) -> int:
    metadata = {"identity": "id-0", "name": "shop", "version": "1", "clusterName": "blue"}
    body = {"baseMetadata": metadata, "localIP": ip, "port": base.port, "state": "activated", **other}
    url = f"{at.replicas['one'].url}/heartbeat"
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(local_addr=(ip, 0))) as session,
        session.post(url, json=body) as answer,
    ):
        return answer.status


async def ready_of(at: Crew, name: str) -> tuple[str, str]:
    node = await at.api.find(NODES, name)
    if node is None:
        return "", ""
    return next((each.status, each.reason) for each in node.status.conditions or () if each.type == "Ready")


async def test_k10_k53_base_pods_of_another_server_are_believed_found_and_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bases_module, "DISCOVER_S", 1.0)
    async with AsyncExitStack() as stack:
        on_a, kubeconfig = await stack.enter_async_context(server_a(tmp_path / "a"))
        first, second = [await stack.enter_async_context(MockBase().serving(f"127.0.77.{n}")) for n in (1, 2)]
        uid = await base_pod(on_a, "base-0", "127.0.77.1", first.port)
        at = await stack.enter_async_context(
            crew(tmp_path, bases=0, bases_kubeconfig=str(kubeconfig), trusted_networks=())
        )
        at.start("one")

        async def is_met() -> bool:
            url = at.replicas["one"].url
            return bool(url) and await beat_from(at, "127.0.77.1", first) == 200

        await at.until(is_met)
        await at.until(lambda: at.api.find(NODES, NODE))
        # A pod of A is believed by its address, and named by what A says; others are not.
        node = await at.api.find(NODES, NODE)
        assert node is not None
        assert node.metadata.annotations["base.koupleless.io/pod-uid"] == uid
        assert await beat_from(at, "127.0.77.9", second) == 401
        # Heard in another way, which names no port, it is the same node.
        assert await beat_from(at, "127.0.77.1", first, port=0) == 200
        assert set(await at.nodes()) == {NODE}

        # A base pod that does not announce itself is asked.
        await base_pod(on_a, "quiet", "127.0.77.2", second.port)

        async def has_quiet() -> bool:
            return (await at.nodes()).get("virtual-node-java-shop-quiet") == "True"

        await at.until(has_quiet)

        # Deleted on A: not Ready before any silence; while it answers its node stays, then goes.
        await on_a.delete(POD_BODIES, "base-0", "shop", grace_s=0)

        async def is_noticed() -> bool:
            return await ready_of(at, NODE) == ("False", "BasePodDeleted")

        assert await at.until(is_noticed) < 20
        first.is_away = True

        async def is_gone() -> bool:
            return NODE not in await at.nodes()

        await at.until(is_gone)
        assert first.count("uninstallBiz", "") == 0

    # A is gone with the block above; another cluster without it works on.


async def test_a_base_that_names_a_pod_of_another_cluster_is_judged_by_its_heartbeats(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        on_a, kubeconfig = await stack.enter_async_context(server_a(tmp_path / "a"))
        base = await stack.enter_async_context(MockBase().serving("127.0.77.4"))
        at = await stack.enter_async_context(
            crew(tmp_path, bases=0, bases_kubeconfig=str(kubeconfig), trusted_networks=("127.0.77.0/24",))
        )
        at.start("one")
        pod = {"podNamespace": "shop", "podName": "base-0", "podUid": "of-another-cluster"}

        async def is_ready() -> bool:
            if not at.replicas["one"].url or await beat_from(at, "127.0.77.4", base, **pod) != 200:
                return False
            return await ready_of(at, NODE) == ("True", "KubeletReady")

        await at.until(is_ready)
        # Looked for on A at each poll: it has a pod of that name at times, and never that one.
        looks = base.count("health", ":")
        await base_pod(on_a, "base-0", "127.0.77.99", base.port)

        async def is_polled_on() -> bool:
            await beat_from(at, "127.0.77.4", base, **pod)
            assert (await ready_of(at, NODE))[1] != "BasePodDeleted"
            return base.count("health", ":") >= looks + 3

        await at.until(is_polled_on)


async def pressure_of(at: Crew, name: str) -> str:
    node = await at.api.find(NODES, name)
    found = node.status.conditions if node is not None else None
    return next((each.message for each in found or () if each.type == "MetaspacePressure"), "")


async def test_a_base_that_names_a_pod_at_another_address_does_not_have_it_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(healer_module, "TURN_S", 0.2)
    async with AsyncExitStack() as stack:
        on_a, kubeconfig = await stack.enter_async_context(server_a(tmp_path / "a"))
        liar, other = [await stack.enter_async_context(MockBase().serving(f"127.0.77.{n}")) for n in (5, 6)]
        uid = await base_pod(on_a, "base-0", "127.0.77.98", 9)
        at = await stack.enter_async_context(
            crew(tmp_path, bases=0, bases_kubeconfig=str(kubeconfig), trusted_networks=("127.0.77.0/24",))
        )
        at.start("one")
        claim = {"podNamespace": "shop", "podName": "base-0", "podUid": uid}
        second = {"identity": "id-1", "name": "shop", "version": "1", "clusterName": "blue"}

        async def hear() -> bool:
            if not at.replicas["one"].url:
                return False
            answers = [
                await beat_from(at, "127.0.77.5", liar, **claim),
                await beat_from(at, "127.0.77.6", other, baseMetadata=second),
            ]
            return answers == [200, 200]

        await at.until(hear)
        assert await at.api.find(NODES, NODE) is None, "the name is the pod's own"
        liar.used_bytes = int(0.95 * (1 << 28))

        async def is_told() -> bool:
            await hear()
            return "the base is no pod that can be deleted" in await pressure_of(at, LIAR)

        await at.until(is_told)
        assert (await on_a.get(POD_BODIES, "base-0", "shop")).metadata.deletion_timestamp is None
        liar.used_bytes = 1

        async def is_over() -> bool:
            return await pressure_of(at, LIAR) == "" and (await ready_of(at, LIAR))[0] == "True"

        await at.until(is_over)


async def test_k53_while_a_is_away_nodes_stay_and_modules_are_installed(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        base = await stack.enter_async_context(MockBase().serving("127.0.77.3"))
        async with AsyncExitStack() as briefly:
            on_a, kubeconfig = await briefly.enter_async_context(server_a(tmp_path / "a"))
            await base_pod(on_a, "base-0", "127.0.77.3", base.port)
            at = await stack.enter_async_context(
                crew(tmp_path, bases=0, bases_kubeconfig=str(kubeconfig), trusted_networks=())
            )
            at.start("one")

            async def is_met() -> bool:
                return bool(at.replicas["one"].url) and await beat_from(at, "127.0.77.3", base) == 200

            await at.until(is_met)
            await at.until(lambda: at.api.find(NODES, NODE))
        container = {"name": "m", "image": "http://h/m-1.zip", "env": [{"name": "BIZ_VERSION", "value": "1"}]}
        spec = {"nodeName": NODE, "tolerations": [{"operator": "Exists"}], "containers": [container]}
        await at.api.create(POD_BODIES, {"metadata": {"name": "m"}, "spec": spec}, "default")

        async def is_installed() -> bool:
            return await at.ready_pods() == {"m"}

        await at.until(is_installed)
        assert (await ready_of(at, NODE))[0] == "True"


async def test_k47_after_b_was_away_the_same_replica_serves_on_and_installs_nothing_again(tmp_path: Path) -> None:
    async with crew(tmp_path, bases=2) as at:
        port = int(at.kubeconfig.read_text().partition("https://127.0.0.1:")[2].split()[0].strip('"'))
        cutter = Cutter("127.0.0.1", port)
        async with cutter:
            own = tmp_path / "through.kubeconfig"
            own.write_text(at.kubeconfig.read_text().replace(f"127.0.0.1:{port}", f"127.0.0.1:{cutter.port}"))
            at.kubeconfig = own
            at.start("one")

            async def are_ready() -> bool:
                return list((await at.nodes()).values()) == ["True", "True"]

            await at.until(are_ready)
            for base in at.bases:
                await at.install(base)

            async def run() -> bool:
                return len(await at.ready_pods()) == 2

            await at.until(run)
            before = {each.metadata.uid for each in await at.api.list(POD_BODIES, "default")}
            # B away for three times the lease: nothing is written, nothing is installed.
            cutter._target = ("127.0.0.1", 1)
            for _ in range(30):
                cutter.cut()
                await asyncio.sleep(0.3)
            at.bases["b0"].modules.clear()  # meanwhile one base has lost its module
            cutter._target = ("127.0.0.1", port)

            async def is_mended() -> bool:
                return at.bases["b0"].modules == {"shop:1": "activated"} and len(await at.ready_pods()) == 2

            await at.until(is_mended)
            assert set((await at.holders()).values()) == {"one"}
            assert {each.metadata.uid for each in await at.api.list(POD_BODIES, "default")} == before
            assert at.bases["b0"].count("installBiz", "shop:1") == 2
            assert at.bases["b1"].count("installBiz", "shop:1") == 1
            await at.kill("one")
