"""What a pod with an agent's tokens may do: each is tried on every route of Fairlead's API and of the API server."""

import asyncio
import base64
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import yaml

from fairlead.cluster.connector import connector
from tests.jobs.lab import Api, Json

AT_ONCE: Final = 8
METHODS: Final = {"get": "GET", "list": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
REFUSED: Final = (401, 403)


@dataclass(frozen=True, slots=True)
class Attempt:
    method: str
    url: str
    what: str
    body: Any = None


@contextlib.asynccontextmanager
async def session(kubeconfig: Path) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """A client without credentials, and the address of the API server."""
    cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
    if "certificate-authority-data" in cluster:
        context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    else:
        context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    async with aiohttp.ClientSession(connector=connector(ssl=context)) as http:
        yield http, cluster["server"]


async def results(http: aiohttp.ClientSession, attempts: list[Attempt], token: str) -> dict[str, int]:
    """Status codes, by what was tried."""
    few = asyncio.Semaphore(AT_ONCE)
    headers = {"Authorization": f"Bearer {token}"}

    async def one(attempt: Attempt) -> int:
        kind = "application/merge-patch+json" if attempt.method == "PATCH" else "application/json"
        body = None if attempt.body is None else msgspec.json.encode(attempt.body)
        while True:
            async with (
                few,
                http.request(
                    attempt.method,
                    attempt.url,
                    data=body,
                    headers={**headers, "Content-Type": kind},
                    allow_redirects=False,
                ) as answer,
            ):
                await answer.read()
                if answer.status != 429:
                    return answer.status
            await asyncio.sleep(0.3)  # unknown tokens are answered at a pace

    codes = await asyncio.gather(*map(one, attempts))
    return {attempt.what: code for attempt, code in zip(attempts, codes, strict=True)}


async def of_the_api_server(api: Api, server: str, namespace: str) -> list[Attempt]:
    """Every verb that it offers on every resource, subresources too."""
    versions = ["/api/v1"]
    for group in (await api.call("GET", "/apis"))["groups"]:
        versions += [f"/apis/{each['groupVersion']}" for each in group["versions"]]
    found: list[Attempt] = []
    for version in versions:
        for resource in (await api.call("GET", version))["resources"]:
            found += _attempts(server, version, resource, namespace)
    return found


def _attempts(server: str, version: str, resource: Json, namespace: str) -> Iterator[Attempt]:
    plural, _, subresource = resource["name"].partition("/")
    where = f"{version}/namespaces/{namespace}" if resource["namespaced"] else version
    for verb in METHODS.keys() & set(resource["verbs"]):
        path = f"{where}/{plural}"
        if subresource or verb not in ("list", "create"):
            path += "/nothing"
        path += f"/{subresource}" if subresource else ""
        body: Json | None = {} if verb in ("create", "update", "patch") else None
        yield Attempt(METHODS[verb], server + path, f"{verb} {version} {resource['name']}", body)


def of_fairlead(document: Json, url: str) -> list[Attempt]:
    """Every route of its API that is not open to everybody, with the body that its documentation shows."""
    found = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if operation.get("security") != []:
                filled = re.sub(r"\{\w+\}", "nothing", path)
                found.append(Attempt(method.upper(), url + filled, f"{method} {path}", _example(operation)))
    return found


def _example(operation: Mapping[str, Any]) -> Any:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    return None if content is None else content.get("example", {})


def allowed(codes: Mapping[str, int]) -> dict[str, int]:
    return {what: code for what, code in codes.items() if code not in REFUSED}
