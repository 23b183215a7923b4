"""A namespace of its own on a live cluster, whose API server asks the data webhook: for the scenarios by number."""

import asyncio
import json
import re
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
from yarl import URL

from fairlead.cluster.clock import RealClock
from fairlead.cluster.connector import connector
from fairlead.cluster.kubeconfig import Connection, connect_by_kubeconfig
from fairlead.data.objects import RUNTIMES
from fairlead.data.spec import CACHE_REPORTS, DATA_GROUPS, DATA_LOADS, NODES
from fairlead.jobs.spec import TYJOBS
from fairlead.model.kinds import NAMESPACES, POD_OBJECTS, Kind
from fairlead.webhooks import MUTATING
from tests.data.objects import KINDS, reader, whole

Look = Callable[[], Awaitable[Any]]
WITHIN_S: Final = 60.0
MERGE: Final = "application/merge-patch+json"
BY_KIND: Final[Mapping[str, Kind[Any]]] = {
    kind.kind: kind for kind in (*KINDS, NODES, NAMESPACES, CACHE_REPORTS, DATA_GROUPS, DATA_LOADS, POD_OBJECTS, TYJOBS)
}
ALLUXIO: Final = RUNTIMES["alluxio"]


class Answer(NamedTuple):
    status: int
    body: Any
    warnings: tuple[str, ...]

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))


class Api:
    """The server's answers with their warnings, whatever the status."""

    def __init__(self, http: aiohttp.ClientSession, connection: Connection) -> None:
        self._http = http
        self._connection = connection

    async def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Answer:
        headers = {**await self._connection.credentials.headers(), "Content-Type": content_type}
        data = json.dumps(body) if body is not None else None
        url, tls = f"{self._connection.server}{path}", self._connection.tls or True
        async with self._http.request(method, url, data=data, headers=headers, ssl=tls) as answer:
            found = json.loads(await answer.read())
            texts = [re.sub(r'^299 \S+ "(.*)"$', r"\1", each) for each in answer.headers.getall("Warning", [])]
            return Answer(answer.status, found, tuple(text.replace('\\"', '"') for text in texts))

    async def page(self, url: str) -> Answer:
        """A page of a server whose certificate is not checked, as text."""
        async with self._http.get(url, ssl=False) as answer:
            return Answer(answer.status, await answer.text(), ())


@asynccontextmanager
async def api_of(kubeconfig: Path) -> AsyncIterator[Api]:
    async with aiohttp.ClientSession(connector=connector()) as http:
        yield Api(http, connect_by_kubeconfig([kubeconfig], RealClock()))


class Lab:
    def __init__(self, api: Api, namespace: str, profile: Path) -> None:
        """`profile` is the webhook's profile, the default one."""
        self.api = api
        self.namespace = namespace
        self.profile = profile

    async def open(self) -> None:
        await self.space(self.namespace)

    async def space(self, name: str, **labels: str) -> None:
        """A namespace, once pods can be created in it."""
        answer = await self.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        assert answer.status in (201, 409), answer

        async def is_open() -> bool:
            return (await self.tried(reader(labels={}), name)).status == 201

        await self.until(is_open, f"namespace {name} takes pods")

    async def until(self, look: Look, what: str, within_s: float = WITHIN_S) -> Any:
        try:
            async with asyncio.timeout(within_s):
                while True:
                    if found := await look():
                        return found
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"not within {within_s:g} s: {what}") from None

    # -- objects ---------------------------------------------------------------------------------------------------

    async def create(self, *objects: Mapping[str, Any]) -> None:
        for each in objects:
            kind = BY_KIND[each["kind"]]
            path = kind.collection_path(each["metadata"].get("namespace", self.namespace) if kind.namespaced else "")
            body = {"apiVersion": kind.api_version, **each}
            answer = await self.api.call("POST", path, body)
            assert answer.status == 201, answer

    async def store(self, name: str, **more: Any) -> None:
        """A bound dataset with claim and runtime, once the webhook knows of it."""
        namespace = more.pop("namespace", self.namespace)
        await self.create(*whole(name, namespace, **more))
        await self.until_known(name, namespace)

    async def until_known(self, name: str, namespace: str = "") -> None:
        async def is_known() -> bool:
            return (await self.tried(reader(name), namespace)).status == 201

        await self.until(is_known, f"pods with the dataset {name} are admitted")

    async def patch(self, kind: Kind[Any], name: str, patch: Any, namespace: str = "") -> Any:
        path = kind.path(namespace or self.namespace, name) if kind.namespaced else kind.path("", name)
        answer = await self.api.call("PATCH", path, patch, MERGE)
        assert answer.status == 200, answer
        return answer.body

    async def get(self, kind: Kind[Any], name: str, namespace: str = "") -> Any:
        path = kind.path(namespace or self.namespace, name) if kind.namespaced else kind.path("", name)
        return (await self.api.call("GET", path)).body

    async def delete(self, kind: Kind[Any], name: str, namespace: str = "") -> None:
        path = kind.path(namespace or self.namespace, name) if kind.namespaced else kind.path("", name)
        await self.api.call("DELETE", f"{path}?gracePeriodSeconds=0")

    async def node(self, name: str, cpus: int = 4, **labels: str) -> str:
        """A node of this lab, by its whole name."""
        own = f"{self.namespace}-{name}"
        await self.create(
            {"kind": "Node", "metadata": {"name": own, "labels": {"kubernetes.io/hostname": own} | labels}}
        )
        amounts = {"cpu": str(cpus), "memory": "64Gi", "pods": "110"}
        status = {"status": {"capacity": amounts, "allocatable": amounts}}
        answer = await self.api.call("PATCH", f"{NODES.path('', own)}/status", status, MERGE)
        assert answer.status == 200, answer
        # A real API server taints a new node; the node lifecycle controller would take that away once it is ready.
        await self.patch(NODES, own, {"spec": {"taints": None}})
        return own

    async def labels(self, node: str) -> dict[str, str]:
        return (await self.get(NODES, node))["metadata"].get("labels") or {}

    async def events(self, reason: str) -> list[str]:
        found = await self.api.call("GET", f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return [each.get("note", "") for each in found.body["items"] if each["reason"] == reason]

    async def readiness(self) -> Answer:
        """What the webhook's own listener says of the capability."""
        path = MUTATING.path("", "fairlead-data")
        config = (await self.api.call("GET", path)).body["webhooks"][0]["clientConfig"]
        port = config["service"]["port"] if "service" in config else URL(config["url"]).port
        return await self.api.page(f"https://127.0.0.1:{port}/readyz/data")

    # -- pods ------------------------------------------------------------------------------------------------------

    async def tried(self, pod: Any, namespace: str = "") -> Answer:
        """What becomes of a pod that is created with dryRun."""
        return await self.api.call(
            "POST", f"{POD_OBJECTS.collection_path(namespace or self.namespace)}?dryRun=All", pod
        )

    async def admitted(self, pod: Any, namespace: str = "") -> Any:
        answer = await self.tried(pod, namespace)
        assert answer.status == 201, answer
        return answer.body

    async def refused(self, pod: Any, status: int = 500, namespace: str = "") -> str:
        answer = await self.tried(pod, namespace)
        assert answer.status == status, answer
        return answer.message

    async def pod(self, name: str, pod: Any) -> Any:
        """A pod that stays, under this name."""
        body = {**pod, "metadata": {**pod["metadata"], "name": name}}
        answer = await self.api.call("POST", POD_OBJECTS.collection_path(self.namespace), body)
        assert answer.status == 201, answer
        return answer.body

    async def worker(self, dataset: str, number: int, node: str, namespace: str = "") -> Any:
        """A cache worker as Fluid's StatefulSet creates it, on its node."""
        space = namespace or self.namespace
        labels = {"role": "alluxio-worker", "fluid.io/dataset": f"{space}-{dataset}"}
        spec = {"nodeName": node, "containers": [{"name": "w", "image": "w:1"}]}
        body = {"metadata": {"name": f"{dataset}-worker-{number}", "labels": labels}, "spec": spec}
        answer = await self.api.call("POST", POD_OBJECTS.collection_path(space), body)
        assert answer.status == 201, answer
        return answer.body


Scenario = Callable[[Lab], Awaitable[None]]


async def run_all(
    api: Api, profile: Path, scenarios: Mapping[str, Scenario], alone: Mapping[str, Scenario]
) -> dict[str, str]:
    """Side by side, and those that change something for everybody one after the other; nothing, or what went wrong."""

    async def run(name: str, scenario: Scenario) -> str:
        lab = Lab(api, re.sub(r"[^a-z0-9]+", "-", name)[:24].strip("-"), profile)
        try:
            await lab.open()
            await scenario(lab)
        except Exception:
            return traceback.format_exc(limit=-3)
        return ""

    first = Lab(api, "data-scenarios", profile)
    await first.open()

    async def is_active() -> bool:
        """The kinds are served and have been noticed, and the webhook is asked."""
        kinds: tuple[Kind[Any], ...] = (DATA_LOADS, *RUNTIMES.values())
        listed = [(await api.call("GET", kind.collection_path())).status for kind in kinds]
        return set(listed) == {200} and (await first.tried(reader("gone"))).status == 500

    await first.until(is_active, "the webhook refuses a pod whose claim is missing")
    found = await asyncio.gather(*(run(*each) for each in scenarios.items()))
    outcomes = dict(zip(scenarios, found, strict=True))
    for name, scenario in alone.items():
        outcomes[name] = await run(name, scenario)
    return outcomes
