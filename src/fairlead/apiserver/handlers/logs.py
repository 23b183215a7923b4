"""Logs of pods, from the provider that runs them."""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

from aiohttp import web

from fairlead.apiserver.failures import (
    bad_request,
    invalid,
    not_implemented,
)
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.registry.rest import Rest
from fairlead.apiserver.request.info import (
    RequestInfo,
    whole_number,
)

Logs = Callable[[JsonObject, Mapping[str, str]], AsyncIterator[bytes]]
"""A pod and the query of a log request → its lines, from whoever runs the pod."""


async def log(
    rest: Rest, logs: Logs | None, request: web.Request, resource: Resource, info: RequestInfo
) -> web.StreamResponse:
    pod = rest.thing(resource, rest.entry(resource, info.namespace, info.name))
    query = dict(request.query)
    names = [each["name"] for key in ("containers", "initContainers") for each in pod["spec"].get(key) or ()]
    container = query.get("container") or (
        pod["spec"]["containers"][0]["name"] if len(pod["spec"]["containers"]) == 1 else ""
    )
    if not container:
        listed = " ".join(each["name"] for each in pod["spec"]["containers"])
        raise bad_request(f"a container name must be specified for pod {info.name}, choose one of: [{listed}]")
    if container not in names:
        raise bad_request(f"container {container} is not valid for pod {info.name}")
    query["container"] = container
    for number in ("tailLines", "limitBytes", "sinceSeconds"):
        value = whole_number(query, number)
        if value is not None and value < (1 if number != "tailLines" else 0):
            least = "greater than or equal to 0" if number == "tailLines" else "greater than 0"
            cause = ("FieldValueInvalid", f"Invalid value: {value}: must be {least}", number)
            raise invalid("", "PodLogOptions", info.name, [cause])
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
    if not started:
        return web.Response(text="")
    return response
