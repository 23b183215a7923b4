"""Diagnosis tasks on `fairlead up --nodes 3`: agents that really reach each other, blame, and a carrier that goes."""

import asyncio
import base64
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import dns.asyncquery
import dns.exception
import dns.message
import pytest
import yaml
from aiohttp import web

from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.errors import Invalid, NotFound
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.model.kinds import NAMESPACES
from fairlead.tasks.carrier import CONFIG_MAPS, DAEMON_SETS, DEPLOYMENTS, INGRESSES, SECRETS, SERVICES
from fairlead.tasks.endpoints import ENDPOINT_SLICES
from fairlead.tasks.spec import KINDS, TASK_REPORTS, Task
from tests.rigs.kube.servers import until
from tests.tasks.agent_servers import certificates, server_tls, serving, unbound

NAMESPACE = "fairlead-system"
DOCUMENTED = Path(__file__).parents[1] / "tasks" / "kdoctor.yaml"
REQUEST = {"qps": 10, "durationInSecond": 2, "perRequestTimeoutInMS": 10_000}
SCHEDULE = {"schedule": "0 2", "roundTimeoutMinute": 2, "roundNumber": 1}
__all__ = ["certificates", "unbound"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("tasks")
    data, log = folder / "data", folder / "up.log"
    with log.open("wb") as sink:
        flags = [f"--data={data}", "--nodes=3", "--simulate=1", "--listen=127.0.0.1:0"]
        process = subprocess.Popen([sys.executable, "-m", "fairlead", "up", *flags], stdout=sink, stderr=sink)
    try:
        assert until(lambda: "brings everything back" in log.read_text(), 120), log.read_text()
        yield data
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@pytest.fixture
async def client(cluster: Path) -> AsyncIterator[Client]:
    async with Client(connect_by_kubeconfig([cluster / "kubeconfig"], RealClock()), clock=RealClock()) as made:
        yield made


async def eventually(look: Callable[[], Any], within_s: float = 150.0) -> Any:
    async with asyncio.timeout(within_s):
        while True:
            if found := await look():
                return found
            await asyncio.sleep(0.1)


async def finished(client: Client, kind: str, name: str) -> Task:
    async def look() -> Task | None:
        task: Task = await client.get(KINDS[kind], name)
        return task if task.status.finish else None

    found: Task = await eventually(look)
    return found


async def create(client: Client, kind: str, name: str, **spec: Any) -> None:
    body = {"apiVersion": "kdoctor.io/v1beta1", "kind": kind, "metadata": {"name": name}}
    whole = {"schedule": SCHEDULE, "request": REQUEST, **spec}
    given = {key: value for key, value in whole.items() if value is not None}
    await client.create(KINDS[kind], {**body, "spec": given})


def report(data: Path, what: str) -> Any:
    command = [sys.executable, "-m", "fairlead", "task", "report", what, "-o", "json", f"--data={data}"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)


async def test_agents_reach_each_other_every_way_and_the_carrier_goes_after_its_grace(
    client: Client, cluster: Path
) -> None:
    await create(
        client,
        "NetReach",
        "mesh",
        agentSpec={"terminationGracePeriodMinutes": 0},
        target={"loadBalancer": True},
        expect={"successRate": 1, "meanAccessDelayInMs": 10_000},
    )
    task = await finished(client, "NetReach", "mesh")
    assert task.status.last_round_status == "succeed", json.dumps(report(cluster, "netreach/mesh"))[:6000]
    found = report(cluster, "netreach/mesh")
    nodes = ["node-1", "node-2", "node-3"]
    assert found["matrix"]["successRate"] == {node: dict.fromkeys(nodes, 1.0) for node in nodes}
    assert found["blame"] == []
    assert [agent["targets"] for agent in found["rounds"][0]["agents"]] == [6, 6, 6], "every way"

    path = "/apis/system.kdoctor.io/v1beta1/namespaces/default/kdoctorreports"
    composed = json.loads(await client.request("GET", f"{path}/netreach-mesh"))
    assert composed["status"]["status"] == "Finished"
    assert sorted(each["nodeName"] for each in composed["report"]["latestRoundReport"]) == nodes
    assert [each["metadata"]["name"] for each in json.loads(await client.request("GET", path))["items"]]
    with pytest.raises(NotFound):
        await client.request("GET", f"{path}/netreach-nobody")

    async def is_gone() -> bool:
        things = [*await client.list(DAEMON_SETS, NAMESPACE), *await client.list(SERVICES, NAMESPACE)]
        return not [each for each in things if each.metadata.name.startswith("kdoctor-netreach-mesh")]

    await eventually(is_gone)
    again: Task = await client.get(KINDS["NetReach"], "mesh")
    assert again.status.resource is not None
    assert again.status.resource.runtime_status == "deleted"
    await client.delete(KINDS["NetReach"], "mesh")

    async def are_reports_gone() -> bool:
        return not [each for each in await client.list(TASK_REPORTS, NAMESPACE) if each.spec.task_name == "mesh"]

    await eventually(are_reports_gone)


async def test_an_agent_that_drops_is_blamed(client: Client, cluster: Path) -> None:
    agent = {"env": [{"name": "AGENT_FAULT", "value": "drop:0.3@node-2"}]}
    target = {"clusterIP": False, "nodePort": False}
    await create(client, "NetReach", "dropping", agentSpec=agent, target=target, request={**REQUEST, "qps": 20})
    task = await finished(client, "NetReach", "dropping")
    assert task.status.last_round_status == "fail"
    found = report(cluster, "netreach/dropping")
    assert [(each["name"], each["role"]) for each in found["blame"]] == [("node-2", "destination")]
    await client.delete(KINDS["NetReach"], "dropping")

    async def is_gone() -> bool:
        return not [each for each in await client.list(DAEMON_SETS, NAMESPACE) if "dropping" in each.metadata.name]

    await eventually(is_gone)


async def test_tasks_share_a_carrier_that_goes_with_the_last(client: Client, cluster: Path) -> None:
    body = {"apiVersion": "kdoctor.io/v1beta1", "kind": "NetReach"}
    annotations = {"tasks.fairlead.io/share-carrier": "true"}
    spec = {"agentSpec": {"terminationGracePeriodMinutes": 0}, "schedule": SCHEDULE, "request": REQUEST}
    late = {**spec, "schedule": {**SCHEDULE, "schedule": "60 60"}}
    for name, each in (("first", spec), ("second", late)):
        whole = {**body, "metadata": {"name": name, "annotations": annotations}, "spec": each}
        await client.create(KINDS["NetReach"], whole)

    async def carriers() -> list[Any]:
        return [e for e in await client.list(DAEMON_SETS, NAMESPACE) if e.metadata.name.startswith("kdoctor-shared-")]

    async def owners() -> list[str]:
        return [owner.name for each in await carriers() for owner in each.metadata.owner_references]

    async def is_shared() -> bool:
        return await owners() == ["first", "second"]

    await eventually(is_shared)
    task = await finished(client, "NetReach", "first")
    assert task.status.last_round_status == "succeed", json.dumps(report(cluster, "netreach/first"))[:6000]
    assert report(cluster, "netreach/first")["matrix"]["sources"] == ["node-1", "node-2", "node-3"]

    async def has_left() -> bool:
        return await owners() == ["second"]

    await eventually(has_left)
    with pytest.raises(Invalid, match="is read when the carrier is made"):
        await client.patch(KINDS["NetReach"], "second", {"metadata": {"annotations": None}})
    await client.delete(KINDS["NetReach"], "second")

    async def is_gone() -> bool:
        services = [e for e in await client.list(SERVICES, NAMESPACE) if "shared-" in e.metadata.name]
        return not await carriers() and not services

    await eventually(is_gone)


async def test_a_deployment_and_the_shared_agent_probe_a_server(client: Client, cluster: Path) -> None:
    async def failing(request: web.Request) -> web.Response:
        return web.Response(status=503)

    async with serving(failing) as url:
        target = {"host": url, "method": "GET"}
        agent = {"kind": "Deployment", "deploymentReplicas": 2, "terminationGracePeriodMinutes": 0}
        await create(client, "AppHttpHealthy", "own", agentSpec=agent, target=target)
        await create(client, "AppHttpHealthy", "shared", target=target, expect={"successRate": 1, "statusCode": 503})
        own = await finished(client, "AppHttpHealthy", "own")
        shared = await finished(client, "AppHttpHealthy", "shared")
    assert own.status.last_round_status == "fail", "a 5xx is a failure"
    assert shared.status.last_round_status == "succeed", "unless it is expected"
    assert shared.status.resource is not None
    assert shared.status.resource.runtime_name == "fairlead-agent"
    assert [each for each in report(cluster, "ahh/own")["rounds"][0]["agents"] if each["result"] == "fail"]

    async def is_gone() -> bool:
        return not await client.list(DEPLOYMENTS, NAMESPACE)

    await eventually(is_gone)


async def test_dns_of_a_real_resolver(client: Client, unbound: tuple[int, int]) -> None:
    target = {"targetUser": {"server": "127.0.0.1", "port": unbound[0]}}
    for name, domain, verdict in (("known", "known.test", "succeed"), ("unknown", "unknown.test", "fail")):
        await create(client, "Netdns", name, target=target, request={**REQUEST, "domain": domain})
        task = await finished(client, "Netdns", name)
        assert task.status.last_round_status == verdict


async def test_a_secret_and_a_body_reach_the_agents_as_copies(
    client: Client, cluster: Path, certificates: Path
) -> None:
    bodies: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        bodies.append((request.headers.get("X-Test"), await request.json()))
        return web.Response()

    authority = base64.b64encode((certificates / "ca.crt").read_bytes()).decode()
    await client.create(SECRETS, {"metadata": {"name": "authority"}, "data": {"ca.crt": authority}}, "default")
    await client.create(CONFIG_MAPS, {"metadata": {"name": "body"}, "data": {"hello": "world"}}, "default")
    async with serving(answer, server_tls(certificates)) as url:
        target = {
            "host": url.replace("127.0.0.1", "localhost"), "method": "POST", "header": ["X-Test: yes"],
            "tlsSecretName": "authority", "tlsSecretNamespace": "default",
            "bodyConfigmapName": "body", "bodyConfigmapNamespace": "default",
        }  # fmt: skip
        await create(client, "AppHttpHealthy", "tls", target=target)
        task = await finished(client, "AppHttpHealthy", "tls")
    assert task.status.last_round_status == "succeed", report(cluster, "ahh/tls")
    assert bodies[0] == ("yes", {"hello": "world"})
    assert task.status.resource is not None
    assert task.status.resource.runtime_name == "kdoctor-apphttphealthy-tls", "the shared agent has no copies"
    await client.delete(KINDS["AppHttpHealthy"], "tls")

    async def is_gone() -> bool:
        names = [each.metadata.name for kind in (SECRETS, CONFIG_MAPS) for each in await client.list(kind, NAMESPACE)]
        return not [name for name in names if name.startswith("kdoctor-apphttphealthy-tls")]

    await eventually(is_gone)


async def test_real_dns_behind_a_udp_service_is_probed_by_its_name(
    client: Client, cluster: Path, unbound: tuple[int, int]
) -> None:
    ports = [{"name": "dns", "port": 10053, "protocol": "UDP"}]
    await client.create(SERVICES, {"metadata": {"name": "resolver"}, "spec": {"ports": ports}}, "default")
    metadata = {"name": "resolver-1", "labels": {"kubernetes.io/service-name": "resolver"}}
    behind = {
        "metadata": metadata, "addressType": "IPv4", "endpoints": [{"addresses": ["127.0.0.1"]}],
        "ports": [{"name": "dns", "port": unbound[0], "protocol": "UDP"}],
    }  # fmt: skip
    await client.create(ENDPOINT_SLICES, behind, "default")
    service = json.loads(await client.request("GET", SERVICES.path("default", "resolver")))

    async def is_forwarded() -> bool:
        query = dns.message.make_query("known.test", "A")
        try:
            await dns.asyncquery.udp(query, service["spec"]["clusterIP"], timeout=1, port=10053)
        except (OSError, dns.exception.DNSException):
            return False
        return True

    await eventually(is_forwarded)
    target = {"targetDns": {"serviceName": "resolver", "serviceNamespace": "default"}}
    for name, domain, verdict in (("service", "known.test", "succeed"), ("nobody", "unknown.test", "fail")):
        await create(client, "Netdns", name, target=target, request={**REQUEST, "domain": domain})
        task = await finished(client, "Netdns", name)
        assert task.status.last_round_status == verdict, report(cluster, f"netdns/{name}")


async def test_an_ingress_is_probed_at_the_address_of_its_status(client: Client, cluster: Path) -> None:
    paths: list[str] = []

    async def controller(request: web.Request) -> web.Response:
        paths.append(request.path)
        return web.Response()

    only = {"endpoint": False, "clusterIP": False, "nodePort": False, "ingress": True}
    spec = {"agentSpec": {"terminationGracePeriodMinutes": 0}, "schedule": SCHEDULE, "request": REQUEST, "target": only}
    metadata = {"name": "through", "annotations": {"tasks.fairlead.io/suspend": "true"}}
    await client.create(KINDS["NetReach"], {"apiVersion": "kdoctor.io/v1beta1", "kind": "NetReach",
                                            "metadata": metadata, "spec": spec})  # fmt: skip
    name = "kdoctor-netreach-through-ipv4"

    async def is_there() -> bool:
        return await client.find(INGRESSES, name, NAMESPACE) is not None

    await eventually(is_there)
    async with serving(controller) as url:
        entry = {"ip": "127.0.0.1", "ports": [{"port": int(url.rpartition(":")[2]), "protocol": "TCP"}]}
        status = {"status": {"loadBalancer": {"ingress": [entry]}}}
        await client.patch(INGRESSES, name, status, NAMESPACE, subresource="status")
        await client.patch(KINDS["NetReach"], "through", {"metadata": {"annotations": None}})
        task = await finished(client, "NetReach", "through")
    assert task.status.last_round_status == "succeed", report(cluster, "netreach/through")
    assert set(paths) == {"/kdoctoragent"}
    assert [agent["targets"] for agent in report(cluster, "netreach/through")["rounds"][0]["agents"]] == [1, 1, 1]


async def test_manifests_of_kdoctors_documentation_are_accepted(client: Client) -> None:
    await client.create(CONFIG_MAPS, {"metadata": {"name": "doc-body"}, "data": {"a": "b"}}, "default")
    await client.create(SECRETS, {"metadata": {"name": "doc-certificate"}, "data": {"ca.crt": "eA=="}}, "default")
    for body in yaml.safe_load_all(DOCUMENTED.read_text()):
        made: Task = await client.create(KINDS[body["kind"]], body)
        assert not made.status.finish, "a status that comes with a manifest is none"
    for body in yaml.safe_load_all(DOCUMENTED.read_text()):
        await client.delete(KINDS[body["kind"]], body["metadata"]["name"])


async def test_what_is_wrong_is_refused_with_its_field(client: Client) -> None:
    with pytest.raises(Invalid, match=r"spec.target.ipv6: IPv6 is turned off"):
        await create(client, "NetReach", "six", target={"ipv6": True})
    with pytest.raises(Invalid, match=r"spec.request.qps: 21 is more than this installation's maximum"):
        await create(client, "NetReach", "fast", request={"qps": 21})
    await create(client, "NetReach", "plain", schedule=None, request=None)
    made: Task = await client.get(KINDS["NetReach"], "plain")
    assert made.spec.schedule is not None
    assert made.spec.schedule.schedule == "0 60"
    with pytest.raises(Invalid, match="immutable"):
        await client.patch(KINDS["NetReach"], "plain", {"spec": {"request": {"qps": 3}}})
    await client.delete(KINDS["NetReach"], "plain")


async def test_the_same_name_again_at_once_gets_a_carrier_of_its_own(client: Client) -> None:
    spec = {"agentSpec": {}, "schedule": {"schedule": "60 60", "roundTimeoutMinute": 1, "roundNumber": 1}}
    await create(client, "NetReach", "twice", **spec)

    async def carrier() -> Any:
        return next((e for e in await client.list(DAEMON_SETS, NAMESPACE) if e.metadata.name.endswith("twice")), None)

    first = await eventually(carrier)
    await client.delete(KINDS["NetReach"], "twice")
    await create(client, "NetReach", "twice", **spec)
    task: Task = await client.get(KINDS["NetReach"], "twice")

    async def is_ours_and_ready() -> bool:
        found = await carrier()
        now: Task = await client.get(KINDS["NetReach"], "twice")
        is_ready = now.status.resource is not None and now.status.resource.runtime_status == "created"
        return bool(found and found.metadata.controller.uid == task.metadata.uid and is_ready)

    await eventually(is_ours_and_ready)
    assert (await carrier()).metadata.uid != first.metadata.uid
    await client.delete(KINDS["NetReach"], "twice")
    assert await client.find(NAMESPACES, NAMESPACE) is not None
