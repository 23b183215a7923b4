"""Large answers, sent piece by piece: encrypting many megabytes at once would keep everybody else waiting.

Each is in memory until its client has taken it, so there are never many, and no client takes for ever.
"""

import asyncio
from typing import Final

from aiohttp import web

from fairlead.apiserver.failures import too_many_requests

PIECE_BYTES: Final = 256 << 10
# A kube-apiserver gives a request a minute, too.
SEND_S = 60.0
MAX_UNSENT_BYTES = 512 << 20


async def write(response: web.StreamResponse, data: bytes) -> None:
    """Others have their turn after each piece, also where the client takes it at once."""
    view = memoryview(data)
    for begin in range(0, len(data), PIECE_BYTES):
        await response.write(view[begin : begin + PIECE_BYTES])
        if begin + PIECE_BYTES < len(data):
            await asyncio.sleep(0)


class LargeAnswers:
    def __init__(self) -> None:
        self._unsent_bytes = 0

    async def send(self, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        """The response itself, or, where it is large, one that has been sent already."""
        body = response.body if isinstance(response, web.Response) and not response.prepared else None
        # The answer to HEAD has the length and no body, which the response sees to by itself.
        if not isinstance(body, bytes) or len(body) <= PIECE_BYTES or request.method == "HEAD":
            return response
        if self._unsent_bytes and self._unsent_bytes + len(body) > MAX_UNSENT_BYTES:
            message = "too many large answers are being sent; list in pages (limit=500), or try again"
            raise too_many_requests(message, retry_after_s=1)
        stream = web.StreamResponse(status=response.status, headers=response.headers)
        stream.content_length = len(body)
        self._unsent_bytes += len(body)
        try:
            async with asyncio.timeout(SEND_S):
                await stream.prepare(request)
                await write(stream, body)
                await stream.write_eof()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            pass  # a client that has gone wants no more of it
        finally:
            self._unsent_bytes -= len(body)
        return stream
