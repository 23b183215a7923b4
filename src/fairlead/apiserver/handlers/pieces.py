"""Large answers, sent piece by piece: encrypting many megabytes at once would keep everybody else waiting."""

import contextlib
from typing import Final

from aiohttp import web

PIECE_BYTES: Final = 256 << 10


async def write(response: web.StreamResponse, data: bytes) -> None:
    """Others have their turn after each piece that the client is slow to take."""
    view = memoryview(data)
    for begin in range(0, len(data), PIECE_BYTES):
        await response.write(view[begin : begin + PIECE_BYTES])


async def send(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """The response itself, or, where it is large, one that has been sent already."""
    body = response.body if isinstance(response, web.Response) and not response.prepared else None
    # The answer to HEAD has the length and no body, which the response sees to by itself.
    if not isinstance(body, bytes) or len(body) <= PIECE_BYTES or request.method == "HEAD":
        return response
    stream = web.StreamResponse(status=response.status, headers=response.headers)
    stream.content_length = len(body)
    # A client that has gone shows as a reset, and wants no more of it.
    with contextlib.suppress(ConnectionError):
        await stream.prepare(request)
        await write(stream, body)
        await stream.write_eof()
    return stream
