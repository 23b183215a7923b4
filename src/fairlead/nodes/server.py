"""The kubelet's HTTP API for virtual nodes: logs, pods, statistics; TLS and authentication on every path.

The API server calls it for `kubectl logs`, a metrics server for usage. One server serves every node of the process;
nodes with addresses of their own are distinguished by the address that was called, others by a port each. exec, attach
and port-forward answer 501 with a sentence. It never changes anything.
"""

import asyncio
import contextlib
import hmac
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
import structlog
from aiohttp import web

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.waits import started
from fairlead.model.kinds import Kind
from fairlead.model.numbers import whole_number
from fairlead.model.times import parse_time_or_none, rfc3339
from fairlead.nodes.controller import PodController
from fairlead.nodes.kubelet import VirtualKubelet
from fairlead.nodes.provider import LogOptions, NotNow, Unsupported, Usage
from fairlead.nodes.spec import KubeletPod

log = structlog.get_logger("fairlead.nodes.server")

TokenCheck = Callable[[str], Awaitable[bool]]
"""Whether the bearer of a token may read what this server serves."""

# The name in the certificate with which API servers call kubelets, as kubeadm and its kin write it.
MOST_LOG_NUMBER = 2**63 - 1
# Longer ago than any log, and still a time that a calendar has.
LONG_AGO_S = 10**10
API_SERVER_NAMES = frozenset({"kube-apiserver-kubelet-client", "kube-apiserver"})


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask. A caller needs the token, or one the check accepts, or a verified certificate of these names."""

    tls: ssl.SSLContext
    token: str = ""
    check: TokenCheck | None = None
    names: frozenset[str] = API_SERVER_NAMES


class LogProblem(Exception):
    """The log cannot be read; with the HTTP status to answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def open_log(
    pods: PodController, namespace: str, name: str, container: str, options: LogOptions
) -> AsyncIterator[bytes]:
    """The log of a container of ours, for this server and for an API server in the same process."""
    pod = pods.pod(namespace, name)
    provider = pods.provider_of(pod) if pod is not None else None
    if pod is None or provider is None:
        raise LogProblem(404, f'pod "{name}" not found on this node')
    if pod.container(container) is None:
        raise LogProblem(400, f"container {container} is not valid for pod {name}")
    try:
        return provider.logs(pod.uid, container, options)
    except Unsupported as problem:
        waiting = _waiting(pod, container)
        if waiting and not options.previous:
            message = f'container "{container}" in pod "{name}" is waiting to start: {waiting}'
            raise LogProblem(400, message) from problem
        raise LogProblem(400, str(problem)) from problem


def _waiting(pod: KubeletPod, container: str) -> str:
    for status in pod.status.all_container_statuses:
        if status.name == container and status.state.waiting is not None:
            return status.state.waiting.reason
    return ""


def log_options(query: Mapping[str, str], now: datetime) -> LogOptions:
    """The options of a log request; LogProblem where they make no sense."""

    def number(name: str) -> int | None:
        text = query.get(name)
        if text is None or text == "":
            return None
        found = whole_number(text, 0, MOST_LOG_NUMBER)
        if found is None:
            raise LogProblem(422, f"{name}: must be a whole number from 0 to {MOST_LOG_NUMBER}, got {text[:50]!r}")
        return found

    def is_true(name: str) -> bool:
        return query.get(name, "").lower() in ("true", "1")

    since = parse_time_or_none(query.get("sinceTime"))
    if (ago_s := number("sinceSeconds")) is not None:
        since = now - timedelta(seconds=min(ago_s, LONG_AGO_S))
    return LogOptions(
        follow=is_true("follow"),
        previous=is_true("previous"),
        timestamps=is_true("timestamps"),
        tail_lines=number("tailLines"),
        limit_bytes=number("limitBytes"),
        since=since,
    )


class NodePorts:
    """A port for each node that shares its address with others: by it a caller says which node is meant."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._sockets: dict[str, socket.socket] = {}
        self._nodes: dict[int, str] = {}
        self.changed = asyncio.Event()
        self.shared = 0
        """The port for all of them, where a node cannot have one of its own."""

    def port_of(self, node: str) -> int:
        """The node's port, from now on; callers are kept waiting until it is served."""
        if node not in self._sockets:
            family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
            try:
                bound = self._sockets[node] = socket.create_server((self._host, 0), family=family)
            except OSError as problem:
                log.warning("no port for a node's kubelet", node=node, problem=str(problem))
                return self.shared
            self._nodes[bound.getsockname()[1]] = node
            self.changed.set()
        port: int = self._sockets[node].getsockname()[1]
        return port

    def close(self, node: str) -> None:
        bound = self._sockets.pop(node, None)
        if bound is not None:
            self._nodes.pop(bound.getsockname()[1], None)
            bound.close()
            self.changed.set()

    def close_all(self) -> None:
        for node in list(self._sockets):
            self.close(node)

    def node_at(self, port: int) -> str:
        return self._nodes.get(port, "")

    @property
    def sockets(self) -> Mapping[str, socket.socket]:
        return self._sockets


class KubeletServer:
    def __init__(
        self, kubelet: VirtualKubelet, access: Access, *, clock: Clock, ports: NodePorts | None = None
    ) -> None:
        if not access.token and access.check is None and access.tls.verify_mode == ssl.CERT_NONE:
            raise ValueError("the kubelet's API needs a token, a token check or a CA for client certificates")
        self._kubelet = kubelet
        self._pods = kubelet.pods
        self._access = access
        self._clock = clock
        self._ports = ports

    @asynccontextmanager
    async def served(self, hosts: Sequence[str] = ("127.0.0.1",), port: int = 0) -> AsyncIterator[int]:
        """Serve on the same port of every address for as long as the block runs; yields the port really bound."""
        application = web.Application(middlewares=[self._guard], client_max_size=1 << 20)
        application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        application.router.add_get("/pods", self._list)
        application.router.add_get("/runningpods/", self._list)
        application.router.add_get("/stats/summary", self._summary)
        application.router.add_get("/metrics/resource", self._resources)
        application.router.add_get("/healthz", self._healthy)
        for verb in ("exec", "attach", "portForward", "run"):
            application.router.add_route("*", f"/{verb}/{{rest:.*}}", self._not_there)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, hosts[0], port, ssl_context=self._access.tls).start()
            bound: int = runner.addresses[0][1]
            for host in hosts[1:]:
                await web.TCPSite(runner, host, bound, ssl_context=self._access.tls).start()
            log.info("kubelet api", port=bound, addresses=list(hosts))
            async with started(*((self._follow_ports(runner, self._ports),) if self._ports is not None else ())):
                yield bound
        finally:
            if self._ports is not None:
                self._ports.close_all()
            await runner.cleanup()

    async def _follow_ports(self, runner: web.AppRunner, ports: NodePorts) -> None:
        sites: dict[str, tuple[socket.socket, web.SockSite]] = {}
        while True:
            ports.changed.clear()
            for node, (bound, site) in list(sites.items()):
                if ports.sockets.get(node) is not bound:
                    del sites[node]
                    await site.stop()
            for node, bound in list(ports.sockets.items()):
                if node not in sites:
                    site = web.SockSite(runner, bound, ssl_context=self._access.tls)
                    sites[node] = (bound, site)
                    await site.start()
            await ports.changed.wait()

    # -- who asks -------------------------------------------------------------------------------------------

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not await self._may(request):
            return web.Response(status=401, text="Unauthorized\n", headers={"WWW-Authenticate": "Bearer"})
        return await handler(request)

    async def _may(self, request: web.Request) -> bool:
        certificate = request.get_extra_info("peercert")
        if certificate:
            subject = {key: value for part in certificate.get("subject", ()) for key, value in part}
            if subject.get("commonName") in self._access.names:
                return True
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token or not token.isascii():
            return False
        if self._access.token and hmac.compare_digest(token.encode(), self._access.token.encode()):
            return True
        return self._access.check is not None and await self._access.check(token)

    # -- answers --------------------------------------------------------------------------------------------

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        names = request.match_info
        try:
            options = log_options(request.query, self._clock.now())
            text = open_log(self._pods, names["namespace"], names["pod"], names["container"], options)
            # Before anything is answered: whoever keeps the log may be out of reach.
            first = await anext(text, b"") if not options.follow else b""
        except LogProblem as problem:
            return web.Response(status=problem.status, text=f"{problem}\n")
        except NotNow as problem:
            return web.Response(status=503, text=f"{problem}\n")
        answer = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await answer.prepare(request)
        with contextlib.suppress(ConnectionError, NotNow):  # whoever followed has gone, or the log has
            await answer.write(first)
            async for part in text:
                await answer.write(part)
            await answer.write_eof()
        return answer

    async def _list(self, request: web.Request) -> web.Response:
        body = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": self._called(request)[1]}
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    async def _summary(self, request: web.Request) -> web.Response:
        node, pods = self._called(request)
        now = rfc3339(self._clock.now())
        body = {"node": {"nodeName": node}, "pods": [self._pod_summary(pod, now) for pod in pods]}
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    def _pod_summary(self, pod: KubeletPod, now: str) -> dict[str, object]:
        used = self._used(pod)
        containers = [{"name": name, **_summed([usage], now)} for name, usage in sorted(used.items())]
        reference = {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.uid}
        return {
            "podRef": reference,
            "startTime": pod.status.start_time,
            "containers": containers,
            **_summed(list(used.values()), now),
        }

    async def _resources(self, request: web.Request) -> web.Response:
        _, pods = self._called(request)
        at_ms = int(self._clock.now().timestamp() * 1000)
        cpu = ["# TYPE container_cpu_usage_seconds_total counter"]
        memory = ["# TYPE container_memory_working_set_bytes gauge"]
        total = Usage()
        for pod in pods:
            for name, usage in sorted(self._used(pod).items()):
                labels = f'container="{name}",namespace="{pod.metadata.namespace}",pod="{pod.metadata.name}"'
                cpu.append(f"container_cpu_usage_seconds_total{{{labels}}} {usage.cpu_s:.6f} {at_ms}")
                memory.append(f"container_memory_working_set_bytes{{{labels}}} {usage.memory_bytes} {at_ms}")
                total = Usage(total.cpu_s + usage.cpu_s, total.memory_bytes + usage.memory_bytes)
        node = [
            "# TYPE node_cpu_usage_seconds_total counter",
            f"node_cpu_usage_seconds_total {total.cpu_s:.6f} {at_ms}",
            "# TYPE node_memory_working_set_bytes gauge",
            f"node_memory_working_set_bytes {total.memory_bytes} {at_ms}",
            "# TYPE resource_scrape_error gauge",
            "resource_scrape_error 0",
        ]
        return web.Response(text="\n".join((*cpu, *memory, *node)) + "\n")

    async def _healthy(self, request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _not_there(self, request: web.Request) -> web.Response:
        verb = request.path.split("/")[1]
        message = f"{verb} is not served by Fairlead's virtual nodes; logs are: kubectl logs POD [-c CONTAINER] [-f]\n"
        return web.Response(status=501, text=message)

    def _called(self, request: web.Request) -> tuple[str, list[KubeletPod]]:
        """The node whose port or address was called and its pods; all of them where nodes share both."""
        address, port = (request.get_extra_info("sockname") or ("", 0))[:2]
        nodes = self._kubelet.addresses
        called = self._ports.node_at(port) if self._ports is not None else ""
        names = [called] if called else sorted(name for name, ip in nodes.items() if ip == address) or sorted(nodes)
        pods = [pod for pod in self._pods.pods() if pod.spec.node_name in set(names)]
        return names[0] if names else "", pods

    def _used(self, pod: KubeletPod) -> Mapping[str, Usage]:
        provider = self._pods.provider_of(pod)
        return provider.usage(pod.uid) if provider is not None else {}


def _summed(usages: list[Usage], now: str) -> dict[str, object]:
    memory = sum(usage.memory_bytes for usage in usages)
    return {
        "cpu": {"time": now, "usageCoreNanoSeconds": int(sum(usage.cpu_s for usage in usages) * 1e9)},
        "memory": {"time": now, "workingSetBytes": memory, "usageBytes": memory, "rssBytes": memory},
    }


# --- tokens of a real cluster -----------------------------------------------------------------------------


class ReviewStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    allowed: bool = False
    user: dict[str, object] = {}


class Review(msgspec.Struct, frozen=True):
    status: ReviewStatus = ReviewStatus()


TOKEN_REVIEWS = Kind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", Review, namespaced=False)
ACCESS_REVIEWS = Kind(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", Review, namespaced=False
)


def reviewed(client: Client) -> TokenCheck:
    """Asks the API server who bears a token, and whether they may read `nodes/proxy`, as a kubelet does."""

    async def check(token: str) -> bool:
        try:
            status = (await client.create(TOKEN_REVIEWS, {"spec": {"token": token}})).status
            if not status.authenticated:
                return False
            spec = {
                "user": status.user.get("username", ""),
                "groups": status.user.get("groups", []),
                "resourceAttributes": {"verb": "get", "resource": "nodes", "subresource": "proxy"},
            }
            return (await client.create(ACCESS_REVIEWS, {"spec": spec})).status.allowed
        except ClusterError as problem:
            log.warning("token not reviewed", problem=str(problem))
            return False

    return check
