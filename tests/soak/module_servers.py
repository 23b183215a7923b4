"""Base pods on one real API server (A), their nodes and modules on another (B); either is killed for a while.

Run by `scripts/soak modules --mode servers`: K53, K55 and K47 with two clusters, a Python base that is a pod of A and
one that acts as Java's. `fairlead serve` on B may do on A what the account of its kubeconfig may.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.connector import connector
from fairlead.local.providers.process import ProcessProvider
from fairlead.modules.client import ArkletClient, connections
from fairlead.testing.mock_base import MockBase
from tests.kube.clients import client
from tests.kube.test_modules import MANIFESTS
from tests.kube.test_nodes import kubelet_on, placed, serving_tls, until
from tests.modules.bases import hello
from tests.rigs.kube.servers import DEPLOY, Rig, RigBroken
from tests.rigs.kube.servers import until as until_true

Json = dict[str, Any]
SHOP = "shop"
PYTHON, JAVA = "virtual-node-python-shop-snake", "virtual-node-java-shop-bean"
FULL = int(0.95 * (1 << 28))
TOLERATED = ("schedule.koupleless.io/virtual-node", "schedule.koupleless.io/node-env")
READ_ONLY = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
]


def started(rig: Rig) -> Rig:
    """A server that may call kubelets."""
    pair = rig.client_certificate("kube-apiserver-kubelet-client", ["system:masters"])
    return rig.start(apiserver_flags=[f"--kubelet-client-certificate={pair.cert}", f"--kubelet-client-key={pair.key}"])


def base_pods_kubeconfig(rig: Rig) -> Path:
    """Of an account on A that may read the pods of bases and no more, until it is given the shipped role."""
    rig.create_namespace("fairlead-system")
    rig.kubectl("create", "serviceaccount", "bases", "-n", "fairlead-system")
    for document in yaml.safe_load_all((DEPLOY / "rbac" / "modules.yaml").read_text()):
        if document["metadata"]["name"] == "fairlead-base-pods":
            rig.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(document))
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "read-only"}}
    rig.kubectl("apply", "-f", "-", stdin=yaml.safe_dump({**role, "rules": READ_ONLY}))
    bind(rig, "read-only")
    return rig.kubeconfig(rig.service_account_token("bases", manifests=()))


def bind(rig: Rig, role: str) -> None:
    account = "--serviceaccount=fairlead-system:bases"
    rig.kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", account)


@contextmanager
def controller(b: Rig, bases: Path, folder: Path) -> Iterator[None]:
    """`fairlead serve` on B; what it says is in a file, as nobody reads it meanwhile."""
    variables = {
        "FAIRLEAD_LEASE_DURATION_S": "6",
        "FAIRLEAD_LEASE_RENEW_DEADLINE_S": "4",
        "FAIRLEAD_LEASE_RETRY_S": "1",
        "FAIRLEAD_MODULES_LISTEN": "127.0.0.1:0",
        "FAIRLEAD_MODULES_URL_FILE": str(folder / "url"),
        "FAIRLEAD_MODULES_BASES_KUBECONFIG": str(bases),
        "FAIRLEAD_MODULES_POLL_S": "1",
        "FAIRLEAD_WEBHOOKS_LISTEN": "127.0.0.1:0",
        "FAIRLEAD_MODULES_KUBELET_LISTEN": "127.0.0.1:0",
        "FAIRLEAD_MODULES_KUBELET_CERTIFICATE": str(b.serving_certificate.cert),
        "FAIRLEAD_MODULES_KUBELET_KEY": str(b.serving_certificate.key),
        "FAIRLEAD_MODULES_KUBELET_CLIENT_CA": str(b.ca_file),
    }
    kubeconfig = b.kubeconfig(b.service_account_token(manifests=MANIFESTS))
    command = [sys.executable, "-m", "fairlead", "serve", f"--kubeconfig={kubeconfig}", "--listen=127.0.0.1:0"]
    command += ["--capabilities=placement,modules"]
    with (folder / "log").open("wb") as sink:
        process = subprocess.Popen(command, stderr=sink, env={**os.environ, **variables})
    try:
        yield
    finally:
        process.kill()
        process.wait(60)


@dataclass(frozen=True, slots=True)
class Two:
    a: Rig
    b: Rig
    on_a: Client
    on_b: Client
    folder: Path

    @property
    def url(self) -> str:
        return (self.folder / "url").read_text()

    async def base_pod(self, name: str, container: Json) -> str:
        """A pod on A that really runs; its address."""
        metadata = {"name": name, "labels": {"base.koupleless.io/name": "base"}}
        body = {"metadata": metadata, "spec": {"containers": [{"name": "base", **container}]}}
        await placed(self.on_a, SHOP, "worker", body)
        seen = await until(self.a, f"/api/v1/namespaces/{SHOP}/pods/{name}", lambda pod: pod["status"].get("podIP"))
        return str(seen["status"]["podIP"])

    async def module(self, name: str, node: str) -> None:
        url = hello(self.folder, name=name)
        container = {"name": name, "image": url, "env": [{"name": "BIZ_VERSION", "value": "1.0.0"}]}
        tolerations = [{"key": key, "operator": "Exists"} for key in TOLERATED]
        metadata = {"name": name, "labels": {"virtual-kubelet.koupleless.io/component": "module"}}
        spec = {"containers": [container], "tolerations": tolerations, "terminationGracePeriodSeconds": 5}
        await placed(self.on_b, "default", node, {"metadata": metadata, "spec": spec})
        await until(self.b, f"/api/v1/namespaces/default/pods/{name}", is_ready)

    async def node(self, name: str, true: Callable[[Json], Any]) -> Json:
        return await until(self.b, f"/api/v1/nodes/{name}", true)

    async def logs(self, pod: str) -> str:
        try:
            return await asyncio.to_thread(self.b.kubectl, "logs", pod)
        except RigBroken as problem:
            return str(problem)


def conditions_of(seen: Json) -> list[Json]:
    """Of an object; none of one that is not there."""
    return list(seen["status"].get("conditions", ())) if seen["kind"] != "Status" else []


def is_ready(seen: Json) -> bool:
    conditions = conditions_of(seen)
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def pressure(seen: Json) -> str:
    conditions = conditions_of(seen)
    return next((each.get("message", "") for each in conditions if each["type"] == "MetaspacePressure"), "")


@asynccontextmanager
async def beating(two: Two, ip: str, base: MockBase) -> AsyncIterator[None]:
    """A base of Java, as far as anybody can tell: heard from the address of its pod on A."""
    metadata = {"identity": ip, "name": "base", "version": "1", "clusterName": "blue"}
    body = {"baseMetadata": metadata, "localIP": ip, "port": base.port, "state": "activated"}

    async def beat() -> None:
        own = connector(local_addr=(ip, 0), force_close=True)
        async with aiohttp.ClientSession(connector=own, timeout=aiohttp.ClientTimeout(total=5)) as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                    async with session.post(f"{two.url}/heartbeat", json=body):
                        pass
                await asyncio.sleep(1.0)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def two_servers(a: Rig, b: Rig, folder: Path) -> AsyncIterator[Two]:
    for rig in (a, b):
        await asyncio.to_thread(started, rig)
    bases = await asyncio.to_thread(base_pods_kubeconfig, a)
    await asyncio.to_thread(a.create_namespace, SHOP)
    async with AsyncExitStack() as stack:
        stack.enter_context(controller(b, bases, folder))
        assert await asyncio.to_thread(until_true, (folder / "url").exists, 60)
        provider = ProcessProvider(folder / "run", clock=RealClock())
        tls = serving_tls(a, folder)
        worker = kubelet_on(a, {"worker": provider}, provider="process", tls=tls)
        _, on_a = await stack.enter_async_context(worker)
        yield Two(a, b, on_a, await stack.enter_async_context(client(b)), folder)


async def records(address: tuple[str, int]) -> Sequence[Any]:
    """What a base says of its modules, with the times of their starts."""
    async with connections() as session:
        answer = await ArkletClient(session).call(address, "queryAllBiz", {})
    assert isinstance(answer.data, list)
    return answer.data


@dataclass(frozen=True, slots=True)
class Found:
    snake_ip: str
    bean: MockBase


async def find_bases(two: Two, stack: AsyncExitStack) -> Found:
    """No network is trusted and there is no token: they are pods of A, and named by it."""
    snake_args = ["--host=$(POD_IP)", "--cluster-name=blue", f"--data={two.folder}/snake", f"--heartbeat={two.url}"]
    ip = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    snake_ip = await two.base_pod("snake", {"image": "fairlead/base", "args": snake_args, "env": [ip]})
    bean_command = ["sh", "-c", "echo the bean speaks; sleep 1200"]
    bean_ip = await two.base_pod("bean", {"image": "busybox", "command": bean_command})
    bean = await stack.enter_async_context(MockBase().serving(bean_ip))
    await stack.enter_async_context(beating(two, bean_ip, bean))
    for name in (PYTHON, JAVA):
        await two.node(name, is_ready)
    await two.module("hello", PYTHON)
    await two.module("coffee", JAVA)
    assert "hello 1.0.0 starts" in await two.logs("hello")
    assert await two.logs("coffee") == (
        "a Java base has one log for all its modules; this is that of its pod shop/bean:\nthe bean speaks\n"
    )
    return Found(snake_ip, bean)


async def without_a(two: Two, found: Found) -> None:
    """K53: installs go on, nodes stay, logs that only A has are not there now, healing waits."""
    await asyncio.to_thread(two.a.stop_apiserver, signal.SIGKILL)
    await two.module("tea", PYTHON)
    assert "ServiceUnavailable" in await two.logs("coffee")
    assert "hello 1.0.0 starts" in await two.logs("hello")
    found.bean.used_bytes = FULL
    await two.node(JAVA, lambda seen: "DeletePending" in pressure(seen))
    assert is_ready(await two.node(PYTHON, is_ready))
    assert found.bean.modules == {}


async def with_too_few_rights(two: Two, found: Found) -> None:
    """K55: A is back, and does not allow it: told, and waited for; then it does."""
    await asyncio.to_thread(two.a.start_apiserver)
    told = await two.node(JAVA, lambda seen: "DeleteForbidden" in pressure(seen))
    assert "give Fairlead the role fairlead-base-pods" in pressure(told)
    assert is_ready(told)
    await asyncio.to_thread(bind, two.a, "fairlead-base-pods")
    await until(two.a, f"/api/v1/namespaces/{SHOP}/pods/bean", lambda seen: seen.get("code") == 404)
    found.bean.is_away = True
    await two.node(JAVA, lambda seen: seen.get("code") == 404)


async def without_b(two: Two, found: Found) -> None:
    """K47: for longer than the leases last; nothing is installed again, and the same node is Ready."""
    address = (found.snake_ip, 1238)
    before, started_at = await two.node(PYTHON, is_ready), await records(address)
    await asyncio.to_thread(two.b.stop_apiserver, signal.SIGKILL)
    await asyncio.sleep(9.0)
    await asyncio.to_thread(two.b.start_apiserver)
    await two.module("milk", PYTHON)
    after = await two.node(PYTHON, is_ready)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert [each for each in await records(address) if each["bizName"] != "milk"] == started_at


STEPS = (without_a, with_too_few_rights, without_b)


async def soak(a: Rig, b: Rig, folder: Path) -> tuple[int, int]:
    """How many steps passed and failed; after one that failed there is no next."""
    passed = 0
    try:
        async with two_servers(a, b, folder) as two, AsyncExitStack() as stack:
            found = await find_bases(two, stack)
            for step in STEPS:
                began_s = time.perf_counter()
                await step(two, found)
                passed += 1
                print(f"{step.__name__}: {time.perf_counter() - began_s:.1f} s", flush=True)
    except (AssertionError, TimeoutError, RigBroken, pytest.fail.Exception):
        traceback.print_exc()
    return passed, len(STEPS) - passed
