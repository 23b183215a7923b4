"""A bad network to an API server: passes everything on, except that some writes fail, or succeed and seem to fail.

Started by tests/soak/scheduler.py. Writes are answered 409, 429 or 500 without being passed on, or are passed on and
answered 500 although they were carried out. Reads and watches go through unharmed.
"""

import asyncio
import random
import ssl
from pathlib import Path

import aiohttp
import click
from aiohttp import web

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
PASSED_ON = ("Authorization", "Content-Type", "Accept", "User-Agent")
ANSWERS = {
    409: ("Conflict", "the object has been modified; somebody made this up"),
    429: ("TooManyRequests", "too many requests; somebody made this up"),
    500: ("InternalError", "something broke; somebody made this up"),
}


def made_up(code: int) -> web.Response:
    reason, message = ANSWERS[code]
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
    headers = {"Retry-After": "1"} if code == 429 else {}
    return web.json_response({**status, "message": message}, status=code, headers=headers)


class Faults:
    def __init__(
        self, upstream: str, session: aiohttp.ClientSession, share: float, seed: int, off: Path, lose: str
    ) -> None:
        self._upstream = upstream
        self._session = session
        self._share = share
        self._rng = random.Random(seed)
        self._off = off
        self._lose = lose
        self._losable = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        kind = ""
        if request.method in WRITES and not self._off.exists():
            if self._rng.random() < self._share:
                kind = self._rng.choice(("409", "429", "500", "lost"))
            elif self._lose and self._lose in request.path:
                # Not by lot: the first is lost, whatever comes.
                self._losable += 1
                kind = "lost" if self._losable % 2 else ""
        if kind and kind != "lost":
            return made_up(int(kind))
        body = await request.read() if request.can_read_body else None
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        try:
            async with self._session.request(
                request.method, self._upstream + request.raw_path, data=body, headers=headers
            ) as answer:
                if kind == "lost":
                    await answer.read()
                    return made_up(500)
                passed = web.StreamResponse(status=answer.status)
                for name in ("Content-Type", "Retry-After"):
                    if name in answer.headers:
                        passed.headers[name] = answer.headers[name]
                if answer.content_length is not None:
                    passed.content_length = answer.content_length
                await passed.prepare(request)
                async for part in answer.content.iter_any():
                    await passed.write(part)
                await passed.write_eof()
                return passed
        except (aiohttp.ClientError, OSError) as problem:
            if request.transport is not None:
                request.transport.abort()
            raise web.HTTPBadGateway(text=f"no answer: {problem}") from None


@click.command()
@click.option("--upstream", required=True)
@click.option("--ca-file", required=True)
@click.option("--cert", required=True)
@click.option("--key", required=True)
@click.option("--port", type=int, required=True)
@click.option("--share", type=float, default=0.05)
@click.option("--seed", type=int, default=1)
@click.option("--lose", default="", help="Every other answer to writes on paths with this in them is lost as well.")
@click.option("--off", type=click.Path(path_type=Path), required=True, help="No faults while this file exists.")
def main(
    upstream: str, ca_file: str, cert: str, key: str, port: int, share: float, seed: int, off: Path, lose: str
) -> None:
    async def run() -> None:
        trusted = ssl.create_default_context(cafile=ca_file)
        own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        own.load_cert_chain(cert, key)
        connector = aiohttp.TCPConnector(limit=0, ssl=trusted)
        async with aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False
        ) as session:
            application = web.Application(client_max_size=16 << 20)
            application.router.add_route("*", "/{path:.*}", Faults(upstream, session, share, seed, off, lose).handle)
            runner = web.AppRunner(application, access_log=None, handler_cancellation=True)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port, ssl_context=own).start()
            await asyncio.Event().wait()

    asyncio.run(run())


if __name__ == "__main__":
    main()
