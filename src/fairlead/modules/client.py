"""Calls to an arklet, bounded in time and size. One call, one answer; nothing is retried here.

Used by `modules.provider` and `modules.bases`. Arklet sends no Content-Length and closes after each answer, so every
answer is read to its end. A base that is heard through a broker only is called through it.
"""

import asyncio
import ssl
from typing import Any, Final
from weakref import WeakValueDictionary

import aiohttp
import msgspec

from fairlead.cluster.connector import connector
from fairlead.cluster.fence import Fence, fenced_sockets
from fairlead.modules import arklet
from fairlead.modules.arklet import Answer, Health
from fairlead.modules.left_out import LeftOut, ignore
from fairlead.modules.spec import Module, ModuleState
from fairlead.modules.traces import traceparent
from fairlead.modules.tunnel import MqttTunnel, is_sent_by_tunnel

CONNECT_S: Final = 2.0
COMMAND_S: Final = 60.0
QUERY_S: Final = 5.0
AT_ONCE: Final = 200
AT_ONCE_PER_BASE: Final = 4
MOST_ANSWER: Final = 4 << 20
KEPT_S: Final = 15.0
"""How long a connection is kept for the next call, where the base does not close it as arklet does: until the next
poll."""


class TunnelAddress(tuple[str, int]):
    """A base's address that is not called: it is reached through the broker, by its identity there."""

    identity: str

    def __new__(cls, host: str, identity: str) -> "TunnelAddress":
        made = super().__new__(cls, (host, 0))
        made.identity = identity
        return made


class TlsAddress(tuple[str, int]):
    """The address of a base whose arklet speaks TLS."""

    def __new__(cls, host: str, port: int) -> "TlsAddress":
        return super().__new__(cls, (host, port))


class ArkletClient:
    def __init__(
        self,
        session: aiohttp.ClientSession,
        token: str = "",
        sender: str = "",
        tunnel: MqttTunnel | None = None,
        tls: ssl.SSLContext | None = None,
        left_out: LeftOut = ignore,
    ) -> None:
        """`sender`: the replica, for whoever reads what a base was asked; `tls`: for bases that speak it; `left_out` is
        told of lists that are too long."""
        self._left_out = left_out
        self._session = session
        self._tls = tls
        self._token = token
        self._tunnel = tunnel
        self._sender = sender
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._slots_of: WeakValueDictionary[tuple[str, int], asyncio.Semaphore] = WeakValueDictionary()

    async def call(
        self, address: tuple[str, int], command: str, body: dict[str, Any], timeout_s: float = QUERY_S
    ) -> Answer:
        """The answer; whatever goes wrong on the way is an answer that says so."""
        if isinstance(address, TunnelAddress):
            return await self._through_broker(address.identity, command, body, timeout_s)
        slots = self._slots_of.setdefault((address[0], address[1]), asyncio.Semaphore(AT_ONCE_PER_BASE))
        # Waiting for our own turn is no time of the base's: a crowd of calls must not look like bases that are away.
        async with slots, self._slots:
            return await self._post(address, command, body, timeout_s)

    async def _post(self, address: tuple[str, int], command: str, body: dict[str, Any], timeout_s: float) -> Answer:
        host, port = address
        is_tls = isinstance(address, TlsAddress)
        if is_tls and self._tls is None:
            return Answer(problem="the base speaks TLS: name its authority (modules.arklet.caFile)")
        url = f"http{'s' if is_tls else ''}://{f'[{host}]' if ':' in host else host}:{port}/{command}"
        headers = {"Content-Type": arklet.content_type(command)}
        if trace := traceparent():
            headers["traceparent"] = trace
        if self._sender:
            headers["Fairlead-Member"] = self._sender
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        try:
            async with self._session.post(
                url,
                data=msgspec.json.encode(body),
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                ssl=self._tls or True,
            ) as answer:
                text = await answer.content.read(MOST_ANSWER + 1)
                while len(text) <= MOST_ANSWER and (more := await answer.content.read(MOST_ANSWER)):
                    text += more
                if len(text) > MOST_ANSWER:
                    return Answer(problem=f"the answer is longer than {MOST_ANSWER} bytes")
                return arklet.read_answer(answer.status, text)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as problem:
            return Answer(problem=str(problem) or f"no answer within {timeout_s:g} s")

    async def _through_broker(self, identity: str, command: str, body: dict[str, Any], timeout_s: float) -> Answer:
        if self._tunnel is None:
            return Answer(problem="the base is behind a broker, and none is set")
        if not is_sent_by_tunnel(command):
            return Answer(code=arklet.UNKNOWN_COMMAND, message=f"{command} is not sent through a broker")
        return await self._tunnel.call(identity, command, body, timeout_s)

    async def modules(self, address: tuple[str, int]) -> list[ModuleState] | None:
        """Every module on the base; None where it did not say."""
        answer = await self.call(address, arklet.QUERY_ALL, {})
        if answer.problem or answer.code != arklet.SUCCESS:
            return None
        return arklet.states_of(self._bounded("modules", address, answer.data))

    async def stats(self, address: tuple[str, int]) -> list[arklet.Fields]:
        """What the modules of the base use, as far as it says."""
        answer = await self.call(address, arklet.STATS, {})
        listed = self._bounded("stats", address, answer.data)
        return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []

    def _bounded(self, what: str, address: tuple[str, int], data: Any) -> Any:
        if not isinstance(data, list) or len(data) <= arklet.MOST_MODULES:
            return data
        self._left_out(what, f"{address[0]}:{address[1]}", len(data) - arklet.MOST_MODULES)
        return data[: arklet.MOST_MODULES]

    async def health(self, address: tuple[str, int]) -> Health | None:
        return arklet.health_of(await self.call(address, arklet.HEALTH, {}))

    async def install(self, address: tuple[str, int], module: Module, request_id: str = "") -> Answer:
        return await self.call(address, arklet.INSTALL, arklet.install_body(module, request_id=request_id), COMMAND_S)

    async def uninstall(self, address: tuple[str, int], module: Module) -> Answer:
        return await self.call(address, arklet.UNINSTALL, arklet.install_body(module), COMMAND_S)

    async def switch(self, address: tuple[str, int], module: Module) -> Answer:
        return await self.call(address, arklet.SWITCH, arklet.install_body(module), COMMAND_S)


def connections(fence: Fence | None = None) -> aiohttp.ClientSession:
    """For many bases. Nothing is sent while the fence is closed."""
    limited = connector(
        limit=0,  # ArkletClient counts
        keepalive_timeout=KEPT_S,
        socket_factory=None if fence is None else fenced_sockets(fence),
    )
    # Looking for cookies costs on every call; so does what could be saved on answers of a few hundred bytes.
    return aiohttp.ClientSession(
        connector=limited,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Accept-Encoding": "identity"},
        auto_decompress=False,
    )
