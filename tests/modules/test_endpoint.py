"""The capability as it is served: the kubelet endpoint of its nodes, and a base that is behind a broker only."""

import asyncio
import shutil
import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import msgspec
import pytest
import yaml

from fairlead.cluster.connector import connector
from fairlead.model.kinds import LEASES
from fairlead.modules.endpoint import certificate_of
from fairlead.modules.names import LEDGER
from fairlead.nodes.node import LEASE_NAMESPACE, NODES
from fairlead.settings import BadSettings, KubeletSettings, MqttSettings
from tests.modules.bases import hello, running_base
from tests.modules.replicas import POD_BODIES, Crew, crew
from tests.rigs.install import ensure_mosquitto
from tests.rigs.kube.certificates import Authority, KeyPair
from tests.rigs.servers import Mosquitto


async def answer(url: str, authority: Authority, token: str = "", pair: KeyPair | None = None) -> tuple[int, str]:
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession(connector=connector()) as session,
        session.get(url, ssl=context, headers=headers) as found,
    ):
        return found.status, await found.text()


def token_of(at: Crew) -> str:
    return str(yaml.safe_load(at.kubeconfig.read_text())["users"][0]["user"]["token"])


async def endpoint_of(at: Crew, node: str) -> str:
    """Where an API server would call for this node."""

    async def is_there() -> bool:
        return node in await at.nodes()

    await at.until(is_there)
    status = yaml.safe_load(await at.api.request("GET", f"/api/v1/nodes/{node}"))["status"]
    addresses = {each["type"]: each["address"] for each in status["addresses"]}
    assert "Hostname" not in addresses
    return f"https://{addresses['InternalDNS']}:{status['daemonEndpoints']['kubeletEndpoint']['Port']}"


async def test_k12_k68_logs_are_for_callers_the_cluster_knows_and_a_deleted_node_comes_back(
    tmp_path: Path,
) -> None:
    authority, stranger = Authority(tmp_path / "pki"), Authority(tmp_path / "other")
    pair = authority.server()
    caller = authority.client("kube-apiserver-kubelet-client")
    settings = KubeletSettings(
        listen="127.0.0.1:0", certificate=str(pair.cert), key=str(pair.key), client_ca=str(authority.ca_file)
    )
    async with crew(tmp_path, bases=2, kubelet=settings) as at:
        at.start("one")
        node, other = "virtual-node-blue-b0", "virtual-node-blue-b1"
        url, other_url = await endpoint_of(at, node), await endpoint_of(at, other)
        await at.install("b0")
        await at.install("b1")

        async def is_ready() -> bool:
            return await at.ready_pods() == {"shop-b0", "shop-b1"}

        await at.until(is_ready)
        logs = f"{url}/containerLogs/default/shop-b0/shop"
        assert (await answer(logs, authority))[0] == 401
        assert (await answer(logs, authority, "nobody"))[0] == 401
        status, text = await answer(logs, authority, token_of(at))
        assert (status, text[:44]) == (200, "a Java base has one log for all its modules,")
        assert (await answer(logs, authority, pair=caller))[0] == 200
        assert (await answer(f"{url}/exec/default/shop-b0/shop", authority, token_of(at)))[0] == 501
        with pytest.raises(aiohttp.ClientConnectorError):
            await answer(logs, stranger)
        # Nodes share an address, and each answers for itself.
        for where, name, pod in ((url, node, "shop-b0"), (other_url, other, "shop-b1")):
            _, text = await answer(f"{where}/stats/summary", authority, pair=caller)
            summary = msgspec.json.decode(text)
            assert summary["node"]["nodeName"] == name
            assert [each["podRef"]["name"] for each in summary["pods"]] == [pod]
            _, text = await answer(f"{where}/pods", authority, pair=caller)
            assert [each["metadata"]["name"] for each in msgspec.json.decode(text)["items"]] == [pod]
        await check_node_is_made_again(at, node)


async def check_node_is_made_again(at: Crew, node: str) -> None:
    """K12: a node that somebody deletes comes back with its labels, and its modules are not installed again."""
    before = await at.api.get(NODES, node)
    await at.api.delete(NODES, node)

    async def is_back() -> bool:
        found = await at.api.find(NODES, node)
        return found is not None and found.metadata.uid != before.metadata.uid

    await at.until(is_back)
    after = await at.api.get(NODES, node)
    assert after.metadata.labels == before.metadata.labels

    async def is_owned() -> bool:
        lease = await at.api.find(LEASES, node, LEASE_NAMESPACE)
        owners = [each.uid for each in lease.metadata.owner_references] if lease is not None else []
        return lease is not None and owners == [after.metadata.uid] and "shop:1" in lease.metadata.annotations[LEDGER]

    assert await at.until(is_owned) < 5, "not only when it is renewed the next time"
    assert at.bases["b0"].count("installBiz", "shop:1") == 1


def test_a_renewed_certificate_is_taken_up_while_running(tmp_path: Path) -> None:
    first, second = Authority(tmp_path / "a").server(), Authority(tmp_path / "b").server()
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    for source, target in ((first.cert, certificate), (first.key, key)):
        shutil.copy(source, target)
    settings = KubeletSettings(listen=":0", certificate=str(certificate), key=str(key))
    serving = certificate_of(settings)
    assert serving is not None
    seen = serving._seen
    for source, target in ((second.cert, certificate), (second.key, key)):
        target.write_bytes(source.read_bytes())
    serving.look_again()
    assert serving._seen != seen


def test_an_endpoint_without_a_certificate_is_refused(tmp_path: Path) -> None:
    assert certificate_of(KubeletSettings()) is None
    with pytest.raises(BadSettings, match=r"modules.kubelet: an endpoint needs a certificate"):
        certificate_of(KubeletSettings(listen=":10250"))
    pair = Authority(tmp_path / "a").server()
    bad = KubeletSettings(listen=":10250", certificate=str(pair.cert), key=str(pair.key), client_ca="/nosuch")
    with pytest.raises(BadSettings, match=r"modules.kubelet.clientCa"):
        certificate_of(bad)


async def test_a_base_behind_a_broker_becomes_a_node_and_takes_the_module_of_a_pod(tmp_path: Path) -> None:
    program, libraries = ensure_mosquitto()
    (tmp_path / "broker").mkdir()
    with Mosquitto(program, libraries, tmp_path / "broker") as broker:
        mqtt = MqttSettings(broker=f"127.0.0.1:{broker.port}")
        async with AsyncExitStack() as stack:
            # Before the base: it says who it is once it is there, and then not for ten seconds.
            at = await stack.enter_async_context(crew(tmp_path, bases=0, mqtt=mqtt))
            at.start("one")
            flags = ("--mqtt", f"127.0.0.1:{broker.port}", "--identity", "py-9")
            base = await stack.enter_async_context(running_base(tmp_path / "base", *flags))
            node = "virtual-node-default-py-9"

            async def is_there() -> bool:
                return (await at.nodes()).get(node) == "True"

            await at.until(is_there)
            found = await at.api.find(NODES, node)
            assert found is not None
            assert found.metadata.annotations["fairlead.io/mqtt-identity"] == "py-9"
            env = [{"name": "BIZ_VERSION", "value": "1.0.0"}]
            container = {"name": "hello", "image": hello(tmp_path), "env": env}
            spec = {"nodeName": node, "tolerations": [{"operator": "Exists"}], "containers": [container]}
            await at.api.create(POD_BODIES, {"metadata": {"name": "hello"}, "spec": spec}, "default")

            async def is_ready() -> bool:
                return await at.ready_pods() == {"hello"}

            await at.until(is_ready)
            assert (await base.get("/hello/"))[0] == 200
            await at.api.delete(POD_BODIES, "hello", "default")
            async with asyncio.timeout(60):
                while (await base.get("/hello/"))[0] != 404:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
