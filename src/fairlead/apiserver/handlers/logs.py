"""Logs of pods, from the provider that runs them."""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

from aiohttp import web

from fairlead.apiserver.failures import invalid, not_implemented
from fairlead.apiserver.handlers.streams import container_of
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.registry.rest import Rest
from fairlead.apiserver.request.info import RequestInfo, whole_number
from fairlead.apiserver.validation import errors as field

Logs = Callable[[JsonObject, Mapping[str, str]], AsyncIterator[bytes]]
"""A pod and the query of a log request → its lines, from whoever runs the pod."""


async def log(
    rest: Rest, logs: Logs | None, request: web.Request, resource: Resource, info: RequestInfo
) -> web.StreamResponse:
    pod = rest.thing(resource, rest.entry(resource, info.namespace, info.name))
    query = dict(request.query)
    query["container"] = container_of(pod, query.get("container", ""))
    for key, least, why in (
        ("tailLines", 0, "must be greater than or equal to 0"),
        ("limitBytes", 1, "must be greater than 0"),
        ("sinceSeconds", 1, "must be greater than 0"),
    ):
        value = whole_number(query, key)
        if value is not None and value < least:
            raise invalid("", "PodLogOptions", info.name, field.invalid(key, value, why))
    if not pod["spec"].get("nodeName"):
        return web.Response(status=204)
    if logs is None:
        raise not_implemented("no node provider is connected to this API server: there are no logs")
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    started = False
    with contextlib.suppress(ConnectionError):
        async for chunk in logs(pod, query):
            if not started:
                await response.prepare(request)
                started = True
            await response.write(chunk)
    return response if started else web.Response(text="")
