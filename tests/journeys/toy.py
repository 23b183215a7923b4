"""The smallest capability that has everything: a kind, a route, a listener, a controller and a webhook.

A Toy wants a ConfigMap with its colour. Whoever writes a new capability can start from a copy of this file.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from fairlead.cluster.controller import Controller
from fairlead.model.intents import Apply
from fairlead.model.kinds import CONFIG_MAPS, Kind, split_key
from fairlead.model.meta import ApiStruct, ObjectMeta
from fairlead.model.structural import structural_schema
from fairlead.runtime import Capability, Listener, Runtime
from fairlead.web.admission import Review, Verdict, Webhook, WebhookConfiguration, refused
from fairlead.web.probes import served
from fairlead.web.routes import Answer, Call, Route


class ToySpec(ApiStruct, frozen=True):
    colour: str = ""


class ToyObject(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ToySpec = ToySpec()


TOYS = Kind("toys.fairlead.io", "v1", "toys", "Toy", ToyObject)


class Toy(Capability):
    name = "toy"

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._toys = runtime.mirror(TOYS)
        self.address = ""

    @classmethod
    def definitions(cls) -> Sequence[Mapping[str, Any]]:
        schema = {"type": "object", "properties": {"spec": structural_schema(ToySpec)}}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"plural": "toys", "singular": "toy", "kind": "Toy", "listKind": "ToyList"}
        return (
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": "toys.toys.fairlead.io"},
                "spec": {"group": TOYS.group, "scope": "Namespaced", "names": names, "versions": [version]},
            },
        )

    def routes(self) -> Sequence[Route]:
        return (Route("GET", "/toys", self._count, "How many toys there are.", public=True, gives={200: dict}),)

    def servers(self) -> Sequence[Listener]:
        return (Listener("toy door", self._door()),)

    def webhooks(self) -> Sequence[WebhookConfiguration]:
        entry = {
            "rules": [
                {"apiGroups": [TOYS.group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["toys"]}
            ],
            "failurePolicy": "Fail",
        }
        return (WebhookConfiguration("fairlead-toy", (Webhook("toy.fairlead.io", "/toy", self._admit, entry),)),)

    async def lead(self) -> None:
        controller = Controller("toy", self._reconcile, clock=self.runtime.clock, metrics=self.runtime.metrics)
        controller.watches(self._toys)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(controller.run(), name="toy")
            await self.runtime.stop.wait()
            controller.stop()

    def problem(self) -> str | None:
        return None if self._toys.is_synced else "toys have not been read yet"

    async def _reconcile(self, key: str) -> None:
        toy: ToyObject | None = self._toys.get(key)
        if toy is None:
            return
        namespace, name = split_key(key)
        owner = {"apiVersion": TOYS.api_version, "kind": TOYS.kind, "name": name, "uid": toy.metadata.uid}
        body = {
            "apiVersion": CONFIG_MAPS.api_version,
            "kind": CONFIG_MAPS.kind,
            "metadata": {"name": f"toy-{name}", "ownerReferences": [owner]},
            "data": {"colour": toy.spec.colour},
        }
        await self.runtime.writer.carry_out(Apply(kind=CONFIG_MAPS, namespace=namespace, name=f"toy-{name}", body=body))

    async def _count(self, call: Call) -> Answer:
        return Answer({"toys": len(self._toys)})

    async def _admit(self, review: Review) -> Verdict:
        spec = (review.object or {}).get("spec")
        if not isinstance(spec, dict):
            return refused("spec.colour: is missing")
        if spec.get("colour") == "invisible":
            return refused("spec.colour: a toy must be seen; name another colour", 422)
        return (
            Verdict() if spec.get("colour") else Verdict(patch=[{"op": "add", "path": "/spec/colour", "value": "red"}])
        )

    @asynccontextmanager
    async def _door(self) -> AsyncIterator[None]:
        async def knock(_: web.Request) -> web.Response:
            return web.Response(text="who is there?")

        async with served([web.get("/", knock)], "127.0.0.1", 0) as (host, port):
            self.address = f"http://{host}:{port}"
            yield
