"""APIServices: group versions that another server serves, reached over TLS as the front proxy.

Keeps which there are, looks at each from time to time, and writes its condition Available. Group versions of our own
have an APIService without a service, as on a real server. Requests are passed on by `handlers/aggregation`.
"""

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

import aiohttp
import msgspec
import structlog

from fairlead.apiserver.failures import Failure
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.registry.attributes import Write
from fairlead.apiserver.registry.reader import Reader
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.registry.rest import Rest
from fairlead.apiserver.request.bodies import Sent
from fairlead.apiserver.request.info import User
from fairlead.apiserver.request.options import DeleteOptions, Options
from fairlead.cluster.clock import rfc3339
from fairlead.cluster.connector import connector

log = structlog.get_logger("fairlead.apiserver")

PLACE: Final = "apiregistration.k8s.io/apiservices"
AUTOMANAGED: Final = "kube-aggregator.kubernetes.io/automanaged"
LOOK_EVERY_S: Final = 10.0
LOOK_S: Final = 5.0
MOST_DISCOVERY_BYTES: Final = 1 << 20
AGGREGATOR: Final = User("system:aggregator", groups=("system:masters",))
AS_AGGREGATOR: Final = {"X-Remote-User": AGGREGATOR.name, "X-Remote-Group": AGGREGATOR.groups[0]}


@dataclass(frozen=True, slots=True)
class Backend:
    """Where a group version is served."""

    name: str
    namespace: str
    service: str
    port: int
    authority: str
    insecure: bool


class Unreachable(Exception):
    """The backend cannot be reached; with the reason and the message of the condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Backends:
    """Which group versions other servers serve, as the APIServices say, and how each server is reached."""

    def __init__(self, reader: Reader, client_context: Callable[[str, bool], ssl.SSLContext]) -> None:
        """`client_context(authority, insecure)` is TLS as the front proxy."""
        self._reader = reader
        self._client_context = client_context
        self._contexts: dict[tuple[str, bool], ssl.SSLContext] = {}
        self._backends: dict[tuple[str, str], Backend] = {}
        # What each backend served at the last look, as an APIResourceList.
        self.served: dict[tuple[str, str], list[JsonObject]] = {}
        self.changed = asyncio.Event()
        for _, entry in reader.store.items(PLACE):
            self._learn(msgspec.json.decode(entry.body), exists=True)

    def learn(self, resource: Resource, thing: JsonObject, exists: bool) -> None:
        if resource.storage_key == PLACE:
            self._learn(thing, exists)
        if resource.storage_key in (PLACE, "/services", "apiextensions.k8s.io/customresourcedefinitions"):
            self.changed.set()

    def _learn(self, thing: JsonObject, exists: bool) -> None:
        spec = thing["spec"]
        key = (spec.get("group", ""), spec.get("version", ""))
        service = spec.get("service")
        if not exists or not service:
            self._backends.pop(key, None)
            self.served.pop(key, None)
            return
        authority = base64.b64decode(spec.get("caBundle") or "").decode("ascii", "replace")
        self._backends[key] = Backend(
            thing["metadata"]["name"],
            service.get("namespace", ""),
            service.get("name", ""),
            int(service.get("port") or 443),
            authority,
            bool(spec.get("insecureSkipTLSVerify")),
        )

    def find(self, group: str, version: str) -> Backend | None:
        return self._backends.get((group, version))

    def items(self) -> list[tuple[tuple[str, str], Backend]]:
        return list(self._backends.items())

    def address(self, backend: Backend) -> tuple[str, ssl.SSLContext, str]:
        """The base URL, whom to trust, and the name its certificate must bear."""
        found = self._reader.find("/services", f"{backend.namespace}/{backend.service}")
        if found is None:
            raise Unreachable("ServiceNotFound", f'service/{backend.service} in "{backend.namespace}" is not present')
        spec = found["spec"]
        host = spec.get("externalName") if spec.get("type") == "ExternalName" else spec.get("clusterIP")
        if not host or host == "None":
            raise Unreachable("ServiceAccessError", f"service/{backend.service} has no clusterIP")
        key = (backend.authority, backend.insecure)
        if key not in self._contexts:
            try:
                self._contexts[key] = self._client_context(*key)
            except (ValueError, ssl.SSLError):
                raise Unreachable("InvalidCABundle", "spec.caBundle has no valid certificate") from None
        return f"https://{host}:{backend.port}", self._contexts[key], f"{backend.service}.{backend.namespace}.svc"


class ApiServices:
    """Looks at every backend from time to time, and writes what it sees into the APIServices."""

    def __init__(self, rest: Rest, backends: Backends) -> None:
        self._rest = rest
        self.backends = backends
        self.session: aiohttp.ClientSession | None = None
        self._looking: asyncio.Task[None] | None = None

    # -- whether they answer ------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self.session = aiohttp.ClientSession(connector=connector(), headers={"User-Agent": "kube-apiserver"})
        self._looking = asyncio.create_task(self._look_on(), name="APIServices")
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        if self.session is not None:
            await self.session.close()

    async def _look_on(self) -> None:
        """Look at every APIService now and then, and whenever one is written."""
        while True:
            self.backends.changed.clear()
            try:
                await self._reconcile()
            except Exception:
                log.exception("bug in looking at APIServices")
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self.backends.changed.wait()

    async def _reconcile(self) -> None:
        await self._keep_local()
        await asyncio.gather(*(self._look(key, backend) for key, backend in self.backends.items()))

    async def _look(self, key: tuple[str, str], backend: Backend) -> None:
        try:
            self.backends.served[key] = await self._discover(key, backend)
            condition = _available("True", "Passed", "all checks passed")
        except Unreachable as problem:
            self.backends.served.pop(key, None)
            condition = _available("False", problem.reason, str(problem))
        await self._write_condition(backend.name, condition)

    async def _discover(self, key: tuple[str, str], backend: Backend) -> list[JsonObject]:
        base, tls, name = self.backends.address(backend)
        url = f"{base}/apis/{key[0]}/{key[1]}"
        assert self.session is not None
        try:
            async with (
                asyncio.timeout(LOOK_S),
                self.session.get(url, ssl=tls, server_hostname=name, headers=AS_AGGREGATOR) as answer,
            ):
                body = await answer.content.read(MOST_DISCOVERY_BYTES)
                if answer.status != 200:
                    raise Unreachable(
                        "FailedDiscoveryCheck",
                        f"failing or missing response from {url}: bad status from {url}: {answer.status}",
                    )
            found = msgspec.json.decode(body, type=dict[str, Any])["resources"]
            return [each for each in found if isinstance(each, dict) and isinstance(each.get("name"), str)]
        except (aiohttp.ClientError, OSError, TimeoutError) as problem:
            why = str(problem) or "no answer in time"
            raise Unreachable("FailedDiscoveryCheck", f"failing or missing response from {url}: {why}") from None
        except (msgspec.DecodeError, KeyError, TypeError, RecursionError):
            raise Unreachable("FailedDiscoveryCheck", f"{url} did not answer with an APIResourceList") from None

    async def _write_condition(self, name: str, condition: JsonObject) -> None:
        def change(found: JsonObject) -> JsonObject:
            conditions = (found.get("status") or {}).get("conditions") or []
            old: JsonObject = next((each for each in conditions if each.get("type") == "Available"), {})
            if {key: old.get(key) for key in condition} == condition:
                return found
            moved = old.get("lastTransitionTime") if old.get("status") == condition["status"] else None
            new = {"lastTransitionTime": moved or rfc3339(self._rest.clock.now()), **condition}
            others = [each for each in conditions if each.get("type") != "Available"]
            return {**found, "status": {"conditions": [*others, new]}}

        await self._attempt(partial(self._rest.change, self._write(name, "status"), change))

    # -- those of our own ---------------------------------------------------------------------------------------

    async def _keep_local(self) -> None:
        """One APIService for every group version that is served here, and none for those that are not any more."""
        here = {(each.group, each.version) for each in self._rest.resources}
        found: dict[tuple[str, str], JsonObject] = {}
        for _, entry in list(self._rest.store.items(PLACE)):
            thing = msgspec.json.decode(entry.body)
            if not thing["spec"].get("service"):
                found[thing["spec"].get("group", ""), thing["spec"].get("version", "")] = thing
        for group, version in sorted(here - found.keys() - dict(self.backends.items()).keys()):
            body = _local(group, version)
            await self._attempt(partial(self._rest.create, self._write(""), Sent(body)))
            await self._write_condition(body["metadata"]["name"], LOCAL)
        for key in found.keys() - here:
            metadata = found[key]["metadata"]
            if AUTOMANAGED in (metadata.get("labels") or {}):
                await self._attempt(partial(self._rest.delete, self._write(metadata["name"]), DeleteOptions()))

    def _write(self, name: str, subresource: str = "") -> Write:
        resource = self._rest.resources.built_in("apiregistration.k8s.io", "v1", "apiservices")
        return Write(resource, "", name, Options(AGGREGATOR, manager="kube-apiserver"), subresource)

    @staticmethod
    async def _attempt(write: Callable[[], Awaitable[Any]]) -> None:
        try:
            await write()
        except Failure as failure:
            # Changed or gone meanwhile: the next look sees what it is now.
            log.debug("APIService not written", problem=failure.message)


def _available(status: str, reason: str, message: str) -> JsonObject:
    return {"type": "Available", "status": status, "reason": reason, "message": message}


LOCAL: Final = _available("True", "Local", "Local APIServices are always available")


def _local(group: str, version: str) -> JsonObject:
    managed = "true" if group and not group.endswith((".k8s.io",)) and "." in group else "onstart"
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{version}.{group}", "labels": {AUTOMANAGED: managed}},
        "spec": {
            **({"group": group} if group else {}),
            "version": version,
            "groupPriorityMinimum": 18000 if not group else 17000 if managed == "onstart" else 1000,
            "versionPriority": 1 if not group else 15 if managed == "onstart" else 100,
        },
    }
