"""The serving side of an aggregated API: resources that an API server forwards to Fairlead as the front proxy.

Who calls is what the front proxy says, and only where its client certificate is signed by the authority and bears a
name that the cluster's ConfigMap `extension-apiserver-authentication` names. Read-only: get and list.
"""

import base64
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web

from fairlead.model.intents import Apply
from fairlead.model.kinds import ConfigMap, Kind
from fairlead.model.meta import ApiObject
from fairlead.model.undecodable import UNDECODABLE
from fairlead.web.authority import Material, unrenewed
from fairlead.web.tls import load_leaf, serving_context

log = structlog.get_logger("fairlead.aggregated")

AUTHENTICATION: Final = "extension-apiserver-authentication"
MOST_NAMES: Final = 100
API_SERVICES: Final = Kind("apiregistration.k8s.io", "v1", "apiservices", "APIService", ApiObject, namespaced=False)
SERVICES: Final = Kind("", "v1", "services", "Service", ApiObject)
_VERBS: Final = {"POST": "create", "PUT": "update"}


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """The front proxy that is trusted to name the caller."""

    authority: str = ""
    names: frozenset[str] = frozenset()
    user_header: str = "X-Remote-User"

    def context(self, material: Material) -> ssl.SSLContext:
        context = serving_context()
        context.load_verify_locations(cadata=self.authority)
        context.verify_mode = ssl.CERT_OPTIONAL  # a stranger gets a 401 in words, not a broken handshake
        load_leaf(context, material)
        return context

    def user(self, request: web.Request) -> str | None:
        """The user that the front proxy names; None when the caller is not the front proxy."""
        certificate = request.get_extra_info("peercert") or {}
        subject = {key: value for part in certificate.get("subject", ()) for key, value in part}
        name = subject.get("commonName", "")
        if not name or (self.names and name not in self.names):
            return None
        return request.headers.get(self.user_header) or None


def front_proxy(config_map: ConfigMap | None) -> FrontProxy | None:
    """What the cluster says about its front proxy; None when it has none."""
    data = config_map.data if config_map is not None else {}
    authority = data.get("requestheader-client-ca-file", "")
    if not authority:
        return None
    try:
        names = msgspec.json.decode(data.get("requestheader-allowed-names") or "[]", type=list[str])
        headers = msgspec.json.decode(data.get("requestheader-username-headers") or "[]", type=list[str])
    except UNDECODABLE as problem:
        log.warning("front-proxy configuration not readable", config_map=AUTHENTICATION, problem=str(problem))
        return None
    return FrontProxy(authority, frozenset(names[:MOST_NAMES]), headers[0] if headers else "X-Remote-User")


def certified(proxy: FrontProxy, service: str, namespace: str, now: datetime) -> tuple[ssl.SSLContext, str]:
    """TLS for the front proxy with a certificate of its own in the Service's name, and the caBundle to trust it by."""
    material = unrenewed(f"{service}.{namespace}.svc", now)
    return proxy.context(material), base64.b64encode(material.bundle).decode()


def loopback_registration(
    group: str, service: str, namespace: str, port: int, ca_bundle: str, *, priority: int
) -> list[Apply]:
    """An APIService of `v1beta1`, and the Service that leads it to a port of this machine."""
    reference = {"name": service, "namespace": namespace, "port": port}
    api_service = {
        "group": group,
        "version": "v1beta1",
        "service": reference,
        "caBundle": ca_bundle,
        "groupPriorityMinimum": priority,
        "versionPriority": 100,
    }
    by_name = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    return [
        _applied(SERVICES, service, namespace, by_name),
        _applied(API_SERVICES, f"v1beta1.{group}", "", api_service),
    ]


def _applied(kind: Kind[Any], name: str, namespace: str, spec: dict[str, Any]) -> Apply:
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec}
    return Apply(kind=kind, name=name, namespace=namespace, body=body)


class BadCall(Exception):
    """The caller's mistake, with a message."""


class NotServed(Exception):
    """The path names no resource of ours."""


@dataclass(frozen=True, slots=True)
class AggregatedCall:
    resource: str
    namespace: str = ""
    name: str = ""
    labels: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class AggregatedResource:
    """One resource: `list` gives every object the call is about; a call with a name is about at most one."""

    kind: Kind[Any]
    list: Callable[[AggregatedCall], Awaitable[Sequence[dict[str, Any]]]]


class AggregatedApi:
    """Group versions as an API server expects them: discovery, lists and objects."""

    def __init__(self, resources: Sequence[AggregatedResource], proxy: FrontProxy) -> None:
        self._resources = {(each.kind.group, each.kind.version, each.kind.plural): each for each in resources}
        self._proxy = proxy

    def routes(self) -> list[web.RouteDef]:
        base = "/apis/{group}/{version}"
        several = (f"{base}/namespaces/{{namespace}}/{{resource}}", f"{base}/{{resource}}")
        return [
            web.get("/apis/{group}", self._guarded(self._group)),
            web.get(base, self._guarded(self._discover)),
            *(web.get(path, self._guarded(self._list)) for path in several),
            *(web.get(f"{path}/{{name}}", self._guarded(self._get)) for path in several),
            *(web.route("*", path + rest, self._guarded(self._refuse)) for path in several for rest in ("", "/{name}")),
        ]

    def _guarded(
        self, handle: Callable[[web.Request, str], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            user = self._proxy.user(request)
            if user is None:
                message = "only the API server's front proxy may call; send the request to the API server"
                return _status(401, "Unauthorized", message)
            try:
                return await handle(request, user)
            except NotServed:
                return _status(404, "NotFound", "the server could not find the requested resource")
            except BadCall as problem:
                return _status(400, "BadRequest", str(problem))
            except Exception:
                log.exception("bug in an aggregated API", path=request.path)
                return _status(500, "InternalError", "internal error; the reason is in Fairlead's log")

        return answer

    async def _group(self, request: web.Request, user: str) -> web.Response:
        group = request.match_info["group"]
        versions = sorted({version for each, version, _ in self._resources if each == group})
        if not versions:
            raise NotServed
        listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
        versions_of = {"name": group, "versions": listed, "preferredVersion": listed[0]}
        return _json({"kind": "APIGroup", "apiVersion": "v1", **versions_of})

    async def _discover(self, request: web.Request, user: str) -> web.Response:
        group, version = request.match_info["group"], request.match_info["version"]
        found = [each for key, each in self._resources.items() if key[:2] == (group, version)]
        if not found:
            raise NotServed
        resources = [
            {
                "name": each.kind.plural,
                "singularName": "",
                "namespaced": each.kind.namespaced,
                "kind": each.kind.kind,
                "verbs": ["get", "list"],
            }
            for each in found
        ]
        listed = {"groupVersion": f"{group}/{version}", "resources": resources}
        return _json({"kind": "APIResourceList", "apiVersion": "v1", **listed})

    async def _list(self, request: web.Request, user: str) -> web.Response:
        resource = self._resource(request)
        if request.query.get("watch", "").lower() in ("1", "true"):
            return _unsupported("watch", resource.kind)
        items = await resource.list(self._call(request, user))
        kind = resource.kind
        return _json({"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": {}, "items": list(items)})

    async def _get(self, request: web.Request, user: str) -> web.Response:
        resource, name = self._resource(request), request.match_info["name"]
        items = await resource.list(self._call(request, user))
        found = next((each for each in items if each["metadata"]["name"] == name), None)
        if found is None:
            return _status(404, "NotFound", f'{resource.kind.name} "{name}" not found')
        return _json({"kind": resource.kind.kind, "apiVersion": resource.kind.api_version, **found})

    async def _refuse(self, request: web.Request, user: str) -> web.Response:
        resource = self._resource(request)
        verb = _VERBS.get(request.method, request.method.lower())
        is_collection = verb == "delete" and "name" not in request.match_info
        return _unsupported("deletecollection" if is_collection else verb, resource.kind)

    def _resource(self, request: web.Request) -> AggregatedResource:
        parts = request.match_info
        found = self._resources.get((parts["group"], parts["version"], parts["resource"]))
        if found is None or (parts.get("namespace") and not found.kind.namespaced):
            raise NotServed
        return found

    @staticmethod
    def _call(request: web.Request, user: str) -> AggregatedCall:
        parts = request.match_info
        labels = request.query.get("labelSelector", "")
        return AggregatedCall(parts["resource"], parts.get("namespace", ""), parts.get("name", ""), labels, user)


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


def _unsupported(verb: str, kind: Kind[Any]) -> web.Response:
    """As a kube-apiserver refuses a verb that a resource does not have."""
    message = f'{verb} is not supported on resources of kind "{kind.name}"'
    return _status(405, "MethodNotAllowed", message, details={"group": kind.group, "kind": kind.plural})


def _status(code: int, reason: str, message: str, **more: Any) -> web.Response:
    body = {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code, **more,
    }  # fmt: skip
    return _json(body, code)
