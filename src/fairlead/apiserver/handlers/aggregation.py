"""Requests for a group version that another server serves, passed on to it as the front proxy.

The caller is authenticated and authorised here; the other server learns who it is by `X-Remote-…` headers, which it
believes because of our client certificate. Bodies go through in both directions as they come, so watches work.
"""

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import structlog
from aiohttp import web
from multidict import CIMultiDict

from fairlead.apiserver.failures import Failure
from fairlead.apiserver.registry.api_services import ApiServices, Backend, Unreachable
from fairlead.apiserver.request.info import User

log = structlog.get_logger("fairlead.apiserver")

# As long as a watch may last here, and a little more.
LONGEST_S: Final = 1860.0
CONNECT_S: Final = 10.0
_HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
     "upgrade", "host", "content-length"}
)  # fmt: skip


async def pass_on(services: ApiServices, backend: Backend, request: web.Request, user: User) -> web.StreamResponse:
    try:
        base, tls, name = services.backends.address(backend)
    except Unreachable as problem:
        log.info("APIService not reachable", service=backend.name, problem=str(problem))
        raise unavailable() from None
    assert services.session is not None
    timeout = aiohttp.ClientTimeout(total=LONGEST_S, sock_connect=CONNECT_S)
    try:
        async with services.session.request(
            request.method,
            base + request.raw_path,
            headers=forwarded(request.headers, user),
            data=request.content if request.can_read_body else None,
            ssl=tls,
            server_hostname=name,
            timeout=timeout,
            allow_redirects=False,
            auto_decompress=False,
        ) as answer:
            response = web.StreamResponse(status=answer.status, headers=_kept(answer.headers))
            await response.prepare(request)
            async for part in answer.content.iter_any():
                await response.write(part)
            await response.write_eof()
            return response
    except (aiohttp.ClientError, TimeoutError) as problem:
        log.info("APIService gave no answer", service=backend.name, problem=str(problem))
        raise unavailable() from None


def unavailable() -> Failure:
    return Failure(503, "ServiceUnavailable", "the server is currently unable to handle the request", {})


def forwarded(headers: "CIMultiDict[str] | Any", user: User) -> "CIMultiDict[str]":
    """The caller's headers without its credentials and without what only we may say."""
    kept = _kept(headers, drop=("authorization", "cookie"))
    for name in [name for name in kept if name.lower().startswith(("x-remote-", "impersonate-"))]:
        kept.popall(name, None)
    kept.add("X-Remote-User", user.name)
    if user.uid:
        kept.add("X-Remote-Uid", user.uid)
    for group in user.groups:
        kept.add("X-Remote-Group", group)
    for key, values in user.extra.items():
        for value in values:
            kept.add(f"X-Remote-Extra-{quote(key.lower(), safe='')}", value)
    return kept


def _kept(headers: Any, drop: Iterable[str] = ()) -> "CIMultiDict[str]":
    dropped = _HOP_BY_HOP | frozenset(drop)
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in dropped)
