"""Streams into pods (exec, attach, port-forward): what is checked before the provider of the pod takes over."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from fairlead.apiserver.failures import bad_request
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.request.info import RequestInfo

KINDS = ("exec", "attach", "portforward")
Streams = Callable[[web.Request, str, JsonObject, str], Awaitable[web.StreamResponse]]
"""An upgrade request, its kind, the pod and the container → the stream, once it has ended."""


def check(request: web.Request, info: RequestInfo, pod: JsonObject) -> str:
    """The container that is meant."""
    container = "" if info.subresource == "portforward" else container_of(pod, request.query.get("container", ""))
    if not pod["spec"].get("nodeName"):
        raise bad_request(f"pod {info.name} does not have a host assigned")
    if "upgrade" not in request.headers.get("Connection", "").lower():
        raise bad_request("Upgrade request required")
    return container


def container_of(pod: JsonObject, container: str) -> str:
    """The named container, or the only one."""
    name = pod["metadata"]["name"]
    names = [each["name"] for key in ("containers", "initContainers") for each in pod["spec"].get(key) or ()]
    alone = pod["spec"]["containers"][0]["name"] if len(pod["spec"]["containers"]) == 1 else ""
    if not container and not alone:
        listed = " ".join(each["name"] for each in pod["spec"]["containers"])
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{listed}]")
    if container and container not in names:
        raise bad_request(f"container {container} is not valid for pod {name}")
    return container or alone
