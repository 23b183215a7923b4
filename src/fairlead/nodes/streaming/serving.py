"""Upgrade requests about pods, answered with streams: for an API server in the same process.

Who asks and may ask, whether the pod exists and has the container is the API server's to check; here is whether the
container runs, which protocol is spoken, and how many sessions there may be at once.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from aiohttp import WSMsgType, web
from multidict import MultiMapping

from fairlead.cluster.clock import Clock
from fairlead.cluster.waits import first_of
from fairlead.nodes.kubelet import VirtualKubelet
from fairlead.nodes.provider import Interactive, NotRunning, NotStarted, ProviderError, StreamOptions, Unsupported
from fairlead.nodes.spec import KubeletPod
from fairlead.nodes.streaming import channels
from fairlead.nodes.streaming.portforward import PortForward

TUNNEL = "SPDY/3.1+portforward.k8s.io"
MAX_SESSIONS = 256
MAX_MESSAGE_BYTES = 4 << 20
PING_S = 5.0
IDLE_S = 4 * 3600.0  # without a sign of life; kubectl sends one every few seconds


class StreamProblem(Exception):
    """There will be no stream; with the HTTP status that says so best."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Streams:
    def __init__(self, kubelets: Sequence[VirtualKubelet], *, clock: Clock) -> None:
        self._kubelets = kubelets
        self._clock = clock
        self._count = 0

    async def answer(
        self, request: web.Request, kind: str, namespace: str, name: str, container: str
    ) -> web.StreamResponse:
        """`kind` is exec, attach or portforward. Returns when the stream has ended."""
        if self._count >= MAX_SESSIONS:
            return _plain(429, f"there are {MAX_SESSIONS} streams into pods already: end one of them")
        self._count += 1
        try:
            pod, provider = self._find(namespace, name)
            if kind == "portforward":
                return await self._forward(request, pod.uid, provider)
            return await self._run(request, kind, pod, provider, container)
        except StreamProblem as problem:
            return _plain(problem.status, str(problem))
        finally:
            self._count -= 1

    def _find(self, namespace: str, name: str) -> tuple[KubeletPod, Interactive]:
        for kubelet in self._kubelets:
            pod = kubelet.pods.pod(namespace, name)
            provider = kubelet.pods.provider_of(pod) if pod is not None else None
            if pod is None or provider is None:
                continue
            if not isinstance(provider, Interactive):
                node = pod.spec.node_name
                if provider.traits.ends_by_itself:
                    raise StreamProblem(501, f"pod {name} does not really run: node {node} is simulated")
                raise StreamProblem(501, f"pod {name} has no process of its own: it runs inside what node {node} is")
            return pod, provider
        raise StreamProblem(404, f'pod "{name}" is on no node of this process')

    async def _run(
        self, request: web.Request, kind: str, pod: KubeletPod, provider: Interactive, container: str
    ) -> web.StreamResponse:
        options = stream_options(request.query)
        command = tuple(request.query.getall("command", ()))
        if kind == "exec" and not command:
            raise StreamProblem(400, "you must specify at least one command for the container")
        try:
            provider.check_stream(pod.uid, container, needs_stdin=kind == "attach" and options.stdin)
        except NotRunning as problem:
            raise StreamProblem(500, str(problem)) from None
        except Unsupported as problem:
            raise StreamProblem(400, str(problem)) from None
        open_socket = _negotiated(request, channels.PROTOCOLS)
        why = ""
        try:
            if kind == "exec":
                session = await provider.exec(pod.uid, container, command, options)
            else:
                spec = pod.container(container)
                # A container has a terminal or has none, whatever a client would like.
                options = replace(options, tty=spec is not None and spec.tty)
                session = await provider.attach(pod.uid, container, options)
        except (NotRunning, NotStarted, ProviderError) as problem:
            session, why = None, str(problem)
        try:
            socket = await open_socket()
            if session is None:
                await channels.refuse(socket, options, why)
            else:
                await self._while_there(socket, channels.serve(socket, session, options, f"[{' '.join(command)}]"))
            await _close(socket)
            return socket
        finally:
            if session is not None:
                await session.close()

    async def _forward(self, request: web.Request, uid: str, provider: Interactive) -> web.StreamResponse:
        socket = await _negotiated(request, (TUNNEL,))()

        async def send(data: bytes) -> None:
            # A client that is gone shows where its messages are read, which ends the session.
            with contextlib.suppress(ConnectionError):
                await socket.send_bytes(data)

        forward = PortForward(send, partial(provider.dial, uid), clock=self._clock)
        await self._while_there(socket, forward.run(_received(socket)))
        await _close(socket)
        return socket

    async def _while_there(self, socket: web.WebSocketResponse, work: Coroutine[Any, Any, None]) -> None:
        """Work for a client, at most until it is gone: one from whom nothing can be read now shows that by a ping."""
        await first_of(work, self._until_gone(socket))

    async def _until_gone(self, socket: web.WebSocketResponse) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                await self._clock.sleep(PING_S)
                await socket.ping()


def stream_options(query: MultiMapping[str]) -> StreamOptions:
    def is_true(name: str, default: bool) -> bool:
        return query[name].lower() in ("true", "1") if name in query else default

    options = StreamOptions(
        is_true("stdin", False), is_true("stdout", True), is_true("stderr", True), is_true("tty", False)
    )
    if not (options.stdin or options.stdout or options.stderr):
        raise StreamProblem(400, "you must specify at least 1 of stdin, stdout, stderr")
    return options


def _negotiated(request: web.Request, protocols: tuple[str, ...]) -> Callable[[], Awaitable[web.WebSocketResponse]]:
    """What opens the WebSocket, once it is known that it can be opened.

    Asked last: a client whose WebSocket was refused tries SPDY next and shows only the answer to that.
    """
    upgrade = request.headers.get("Upgrade", "")
    if upgrade.lower() != "websocket":
        raise StreamProblem(400, f"streams are served over WebSocket, not over {upgrade}: use kubectl 1.31 or later")
    offered = [each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    protocol = next((each for each in protocols if each in offered), None)
    if protocol is None:
        raise StreamProblem(400, f"requested protocol(s) are not supported: {offered}; supports {list(protocols)}")
    socket = web.WebSocketResponse(
        protocols=(protocol,), max_msg_size=MAX_MESSAGE_BYTES, compress=False, receive_timeout=IDLE_S, autoping=False
    )
    if not socket.can_prepare(request):
        raise StreamProblem(400, "this is no WebSocket request of version 13")

    async def opened() -> web.WebSocketResponse:
        await socket.prepare(request)
        return socket

    return opened


async def _received(socket: web.WebSocketResponse) -> AsyncIterator[bytes]:
    with contextlib.suppress(TimeoutError):
        async for message in channels.messages(socket):
            if message.type is not WSMsgType.BINARY:
                return
            yield message.data


async def _close(socket: web.WebSocketResponse) -> None:
    with contextlib.suppress(ConnectionError):
        await socket.close()


def _plain(status: int, message: str) -> web.Response:
    return web.Response(status=status, text=f"{message}\n")
