"""Carries out http and tcp probes the way the kubelet does.

Used by providers whose pods have addresses; exec probes are the provider's own.
"""

import asyncio

import aiohttp

from fairlead.cluster.connector import connector
from fairlead.model.numbers import whole_number
from fairlead.nodes.provider import ProbeResult
from fairlead.nodes.spec import Container, HttpGet, Probe


def port_of(container: Container, port: int | str) -> int | None:
    """The number of a port given by number or by name."""
    if isinstance(port, int):
        return port
    if (number := whole_number(port, 1, 65535)) is not None:
        return number
    return next((p.container_port for p in container.ports or () if p.name == port), None)


async def probe_address(ip: str, container: Container, probe: Probe) -> ProbeResult | None:
    """The result of an http or tcp probe against the pod's address; None if it is another kind of probe."""
    action = probe.http_get or probe.tcp_socket
    if action is None:
        return None
    port = port_of(container, action.port)
    if port is None:
        return ProbeResult(False, f"no port named {action.port!r} in container {container.name}")
    try:
        async with asyncio.timeout(probe.timeout_seconds):
            if probe.http_get is not None:
                return await _http(probe.http_get.host or ip, port, probe.http_get)
            return await _tcp(action.host or ip, port)
    except TimeoutError:
        return ProbeResult(False, f"no answer in {probe.timeout_seconds} s")
    except (OSError, aiohttp.ClientError) as problem:
        return ProbeResult(False, _why(problem, action.host or ip, port))


def _why(problem: Exception, host: str, port: int) -> str:
    """In the words people know from a kubelet, where it is only that nobody listens."""
    cause = problem.os_error if isinstance(problem, aiohttp.ClientConnectorError) else problem
    if isinstance(cause, ConnectionRefusedError):
        return f"dial tcp {host}:{port}: connect: connection refused"
    return str(problem) or type(problem).__name__


async def _tcp(host: str, port: int) -> ProbeResult:
    _, writer = await asyncio.open_connection(host, port)
    writer.close()
    return ProbeResult(True)


async def _http(host: str, port: int, action: HttpGet) -> ProbeResult:
    scheme = action.scheme.lower() or "http"
    path = action.path if action.path.startswith("/") else f"/{action.path}"
    headers = {header.name: header.value for header in action.http_headers or ()}
    headers.setdefault("User-Agent", "kube-probe/fairlead")
    headers.setdefault("Accept", "*/*")
    # A probe asks whether it answers, not who it is: certificates are not looked at, as on Kubernetes.
    async with (
        aiohttp.ClientSession(connector=connector(ssl=False, force_close=True)) as session,
        session.get(f"{scheme}://{host}:{port}{path}", headers=headers, allow_redirects=False) as answer,
    ):
        if 200 <= answer.status < 400:
            return ProbeResult(True)
        return ProbeResult(False, f"HTTP probe failed with statuscode: {answer.status}")
