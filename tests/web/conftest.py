"""A cluster that answers reviews, callers of several kinds, and our routes on a real socket before it."""

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from fairlead.apiserver.embedded import Embedded, embedded
from fairlead.apiserver.request.info import User
from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.web.dispatcher import Dispatcher
from fairlead.web.guard import Guard
from fairlead.web.limits import Limits
from fairlead.web.openapi import document_route
from fairlead.web.page import page_route, root_route
from fairlead.web.probes import served
from fairlead.web.routes import RouteTable
from tests.no_task_left import no_task_left as no_task_left

RNG = random.Random(7).random


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with embedded(tmp_path / "cluster", RealClock()) as running:
        running.tokens.know("token-of-ann", User("ann", groups=("devs",)))
        running.tokens.know("token-of-bob", User("bob"))
        yield running


@pytest.fixture
async def client(cluster: Embedded) -> AsyncIterator[Client]:
    async with Client(connect_by_kubeconfig([cluster.kubeconfig], RealClock()), clock=RealClock()) as made:
        yield made


@dataclass
class Told:
    status: int
    body: Any
    headers: Mapping[str, str]


@dataclass
class Api:
    """Our API as a caller meets it."""

    url: str
    http: aiohttp.ClientSession
    table: RouteTable
    registry: CollectorRegistry

    async def ask(
        self,
        method: str,
        path: str,
        token: str | None = "token-of-ann",
        *,
        body: Any = None,
        data: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Told:
        sent = {**({"Authorization": f"Bearer {token}"} if token else {}), **(headers or {})}
        async with self.http.request(method, self.url + path, json=body, data=data, headers=sent) as answer:
            is_json = answer.content_type == "application/json"
            return Told(answer.status, await (answer.json() if is_json else answer.text()), answer.headers)


@asynccontextmanager
async def serving(table: RouteTable, *, limits: Limits | None = None, **more: Any) -> AsyncIterator[Api]:
    registry = CollectorRegistry()
    dispatcher = Dispatcher(table, clock=RealClock(), registry=registry, limits=limits or Limits(1000.0, 1000), **more)
    async with served(dispatcher.routes(), "127.0.0.1", 0) as (host, port), aiohttp.ClientSession() as http:
        yield Api(f"http://{host}:{port}", http, table, registry)


@pytest.fixture
async def api(client: Client) -> AsyncIterator[Api]:
    table = RouteTable()
    table.guard = Guard(client, RealClock())
    table.add(document_route(table), page_route(table), root_route())
    async with serving(table) as made:
        yield made
