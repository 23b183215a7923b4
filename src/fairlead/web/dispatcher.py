"""From an HTTP request to a handler's answer: authentication, rate and size limits, and one body for all errors.

The only place that reads requests and writes answers of the route table. It must never let an exception's text out
that is not written for callers.
"""

import ipaddress
import re

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter

from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ClusterError
from fairlead.web.bodies import whole_body
from fairlead.web.guard import User
from fairlead.web.limits import Limits
from fairlead.web.problems import Problem, from_cluster
from fairlead.web.routes import Answer, Call, Route, RouteTable

log = structlog.get_logger("fairlead.api")

ANYBODY = User()
# A whole body must be here within this; a slow caller must not hold the server.
BODY_S = 10.0
_SURROGATE = re.compile("[\ud800-\udfff]")
SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    # Pages carry their own style and load nothing at all.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}


class Dispatcher:
    def __init__(
        self,
        table: RouteTable,
        *,
        clock: Clock,
        registry: CollectorRegistry,
        limits: Limits,
        allow_plaintext: bool = False,
    ) -> None:
        self._table = table
        self._clock = clock
        self._limits = limits
        self._allow_plaintext = allow_plaintext
        self._answered = Counter(
            "fairlead_http_requests_total",
            "Requests to Fairlead's own API by route, method and status code.",
            ["route", "method", "code"],
            registry=registry,
        )

    def routes(self) -> list[web.RouteDef]:
        """For the web server: every path that has no handler of its own."""
        return [web.route("*", "/{path:.*}", self.dispatch)]

    async def dispatch(self, request: web.Request) -> web.Response:
        known = self._table.find(request.method, request.path)
        route = known[0].path if known else "unknown"
        try:
            if known is None:
                raise self._not_served(request)
            answer = await self._answer(request, *known)
        except Problem as problem:
            answer = _answer(problem)
        except ClusterError as trouble:
            log.warning("request failed: the cluster did not answer", route=route, problem=str(trouble))
            answer = _answer(from_cluster(trouble))
        except Exception:
            # Our bug: the trace is for our log, the caller gets the error body.
            log.exception("bug in a handler", route=route, method=request.method)
            answer = _answer(Problem(500, "InternalError", "internal error; the reason is in Fairlead's log"))
        self._answered.labels(route, request.method if known else "-", str(answer.status)).inc()
        return web.Response(
            body=answer.payload(),
            status=answer.status,
            headers={**SECURITY, **answer.headers, "Content-Type": answer.content_type},
        )

    async def _answer(self, request: web.Request, route: Route, parameters: dict[str, str]) -> Answer:
        address = request.remote or ""
        user = ANYBODY if route.public else await self._caller(request, address, route.audiences)
        if wait_s := self._limits.take(_limited_as(user) or f"address {address}", self._clock.elapsed_s()):
            message = f"too many requests from {user.username or address}: slow down"
            raise Problem(429, "TooManyRequests", message, retry_after_s=wait_s)
        _check_text(request)
        body = await whole_body(request, route.most_bytes, BODY_S)
        return await route.handle(Call(user, self._table.guard, parameters, dict(request.query), request.headers, body))

    async def _caller(self, request: web.Request, address: str, audiences: tuple[str, ...]) -> User:
        if not (request.secure or self._allow_plaintext or _is_here(address)):
            message = (
                "tokens from other machines are accepted only over TLS: serve it (tls.certificate, tls.key), "
                "or set api.allowPlaintext if a proxy in front of Fairlead terminates it"
            )
            raise Problem(403, "InsecureTransport", message)
        if self._table.guard is None:
            raise Problem(
                503,
                "Unavailable",
                "callers cannot be authenticated yet: the cluster is not reachable",
                retry_after_s=2.0,
            )
        authorization = request.headers.get("Authorization", "")
        return await self._table.guard.user(authorization, address, audiences)

    def _not_served(self, request: web.Request) -> Problem:
        methods = self._table.methods(request.path)
        if methods:
            allowed = ", ".join(methods)
            message = f"{request.method} is not allowed here; allowed: {allowed}"
            return Problem(405, "MethodNotAllowed", message, headers={"Allow": allowed})
        return Problem(404, "NotFound", "no such path; /docs lists the API")


def _limited_as(user: User) -> str:
    """Whose limit counts: the user's, and for a pod's token the pod's own, so that its siblings do not slow it down."""
    pod = (user.extra or {}).get("authentication.kubernetes.io/pod-uid", ())
    return " ".join((user.username, *pod))


def _check_text(request: web.Request) -> None:
    """Bytes that are no UTF-8 arrive as lone surrogates, which cannot be encoded again."""
    parts = [request.path, *request.headers.values()]
    for name, value in request.query.items():
        parts += (name, value)
    if any(not part.isascii() and _SURROGATE.search(part) for part in parts):
        raise Problem(400, "BadRequest", "the path, the query and the headers of a request must be UTF-8")


def _answer(problem: Problem) -> Answer:
    return Answer(problem.failure, problem.status, headers=problem.headers)


def _is_here(address: str) -> bool:
    """Whether the caller is on this machine."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
