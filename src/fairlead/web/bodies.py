"""Request bodies with limits on size and time; beyond them a Problem."""

import asyncio

from aiohttp import web

from fairlead.web.problems import Problem, too_large


async def whole_body(request: web.Request, most_bytes: int, within_s: float) -> bytes:
    if (request.content_length or 0) > most_bytes:
        raise too_large(most_bytes)
    parts, size = [], 0
    try:
        async with asyncio.timeout(within_s):
            async for part in request.content.iter_any():
                parts.append(part)
                size += len(part)
                if size > most_bytes:
                    raise too_large(most_bytes)
    except TimeoutError:
        raise Problem(408, "Timeout", f"the body did not arrive within {within_s:g} s") from None
    return b"".join(parts)
