"""A capability is one file and one line: the toy on the embedded cluster, and on the real server."""

import asyncio
import base64
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead import app
from fairlead.apiserver.embedded import embedded
from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.errors import ClusterError, Invalid
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.model.kinds import CONFIG_MAPS, DEFINITIONS, LEASES, NAMESPACES, Kind
from fairlead.model.meta import ApiObject
from fairlead.settings import load
from fairlead.up import UpOptions, up
from fairlead.webhooks import MUTATING, SECRET, SECRETS, SERVICE, manifest
from tests.journeys.toy import TOYS, Toy
from tests.kube.conftest import rig as rig
from tests.rigs.kube.certificates import Authority
from tests.rigs.kube.servers import Rig

SERVICES = Kind("", "v1", "services", "Service", ApiObject)
NAMESPACE = "fairlead-system"


async def eventually(look: Callable[[], Any], within_s: float = 60.0) -> Any:
    async with asyncio.timeout(within_s):
        while True:
            try:
                if found := await look():
                    return found
            except (ClusterError, aiohttp.ClientError):
                pass
            await asyncio.sleep(0.05)


@asynccontextmanager
async def running(work: Callable[[asyncio.Event], Any]) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(work(stop))
    try:
        yield
        stop.set()
        await asyncio.wait_for(task, 60)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def plays(client: Client, url: str) -> None:
    """The toy's kind, webhook, controller and route, used one after another."""
    toy = {"apiVersion": TOYS.api_version, "kind": TOYS.kind}

    async def is_trusted() -> bool:
        found = await client.find(MUTATING, "fairlead-toy")
        return bool(found and found.webhooks and found.webhooks[0].client_config.ca_bundle)

    await eventually(is_trusted)
    # A moment later, perhaps: the real server reads its configurations from a cache, and replicas their certificate.
    ball = await eventually(lambda: client.create(TOYS, {**toy, "metadata": {"name": "ball"}, "spec": {}}, "default"))
    assert ball.spec.colour == "red", "the webhook filled it in"
    with pytest.raises(Invalid, match=r"a toy must be seen; name another colour"):
        await client.create(TOYS, {**toy, "metadata": {"name": "ghost"}, "spec": {"colour": "invisible"}}, "default")
    copied = await eventually(lambda: client.find(CONFIG_MAPS, "toy-ball", "default"))
    assert copied.data == {"colour": "red"}
    async with aiohttp.ClientSession() as http, http.get(f"{url}/toys") as answer:
        assert (answer.status, await answer.json()) == (200, {"toys": 1})
    async with aiohttp.ClientSession() as http, http.get(f"{url}/readyz?verbose") as answer:
        told = await answer.text()
    assert ("[+]toy ok" in told, "[+]toy door ok" in told, "[+]webhooks ok" in told) == (True, True, True)


async def test_a_toy_capability_works_on_the_embedded_cluster(tmp_path: Path) -> None:
    data, clock = tmp_path / "data", RealClock()
    # A certificate of the administrator's is for `serve`: here nobody could say which authority to trust.
    pair = Authority(tmp_path / "pki").server()
    flags = {"listen": "127.0.0.1:0", "webhooks.certificate": str(pair.cert), "webhooks.key": str(pair.key)}
    settings = load(environment={}, flags=flags)
    options = UpOptions(data, nodes=0, without=("placement", "nodes"))

    async def work(stop: asyncio.Event) -> None:
        known = {**app.CAPABILITIES, "toy": Toy}
        await up(settings, options, clock=clock, rng=random.random, stop=stop, echo=lambda _: None, known=known)

    async with running(work):

        async def is_up() -> bool:
            return (data / "api.url").exists()

        await eventually(is_up)
        async with Client(connect_by_kubeconfig([data / "kubeconfig"], clock), clock=clock) as client:
            await plays(client, (data / "api.url").read_text())


async def test_a_certificate_from_files_is_served_and_nothing_is_written(tmp_path: Path) -> None:
    """As with cert-manager: the administrator names the certificate, and its authority in the configuration."""
    clock, authority, port = RealClock(), Authority(tmp_path / "pki"), free_port()
    pair = authority.server()
    bundle = base64.b64encode(authority.ca_file.read_bytes()).decode()
    async with embedded(tmp_path / "data", clock) as cluster:
        flags = {
            "kubeconfig": str(cluster.kubeconfig),
            "listen": "127.0.0.1:0",
            "webhooks.listen": f"127.0.0.1:{port}",
            "webhooks.drainS": "0",
            "webhooks.certificate": str(pair.cert),
            "webhooks.key": str(pair.key),
            "capabilities": "toy",
        }

        async def work(stop: asyncio.Event) -> None:
            settings = load(environment={}, flags=flags)
            await app.serve(settings, clock=clock, rng=random.random, stop=stop, known={"toy": Toy})

        async with Client(connect_by_kubeconfig([cluster.kubeconfig], clock), clock=clock) as client:
            await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
            await client.create(DEFINITIONS, Toy.definitions()[0])
            (configuration,) = Toy.webhooks(Toy.__new__(Toy))
            await client.create(MUTATING, manifest(configuration, f"https://127.0.0.1:{port}", bundle))
            toy = {"apiVersion": TOYS.api_version, "kind": TOYS.kind, "metadata": {"name": "ball"}, "spec": {}}
            async with running(work):
                ball = await eventually(lambda: client.create(TOYS, toy, "default"))
                assert ball.spec.colour == "red", "the webhook filled it in"
                # The leader of webhooks, which would write both, is at work.
                assert await eventually(lambda: client.find(LEASES, "fairlead-webhooks-toy", NAMESPACE))
                assert await client.find(SECRETS, SECRET, NAMESPACE) is None
                found = await client.find(MUTATING, configuration.name)
                assert found is not None
                assert [each.client_config.ca_bundle for each in found.webhooks or ()] == [bundle]


async def test_a_toy_capability_works_on_the_real_server(rig: Rig, tmp_path: Path) -> None:
    """The administrator's part is done here: the kind, the Service and the webhook's configuration are applied."""
    clock, port, webhook_port = RealClock(), free_port(), free_port()
    kubeconfig = rig.kubeconfig()
    flags = {
        "kubeconfig": str(kubeconfig),
        "listen": f"127.0.0.1:{port}",
        "webhooks.listen": f"127.0.0.1:{webhook_port}",
        "webhooks.drainS": "0.2",
        "capabilities": "toy",
    }
    settings = load(environment={}, flags=flags)

    async def work(stop: asyncio.Event) -> None:
        await app.serve(settings, clock=clock, rng=random.random, stop=stop, known={"toy": Toy})

    async with Client(connect_by_kubeconfig([kubeconfig], clock), clock=clock) as client:
        (definition,) = Toy.definitions()
        service = {
            "metadata": {"name": SERVICE},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": webhook_port}]},
        }
        if await client.find(NAMESPACES, NAMESPACE) is None:
            await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await client.create(DEFINITIONS, definition)
        await client.create(SERVICES, service, NAMESPACE)
        try:
            async with running(work):
                (configuration,) = Toy.webhooks(Toy.__new__(Toy))
                applied = manifest(configuration, namespace=NAMESPACE)
                applied["webhooks"][0]["clientConfig"]["service"]["port"] = webhook_port
                await client.create(MUTATING, applied)

                await plays(client, f"http://127.0.0.1:{port}")
        finally:
            for kind, name, namespace in (
                (MUTATING, "fairlead-toy", ""),
                (DEFINITIONS, definition["metadata"]["name"], ""),
                (SERVICES, SERVICE, NAMESPACE),
            ):
                await client.request("DELETE", kind.path(namespace, name))
