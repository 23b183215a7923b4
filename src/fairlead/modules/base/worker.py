"""A worker: one module in a process of its own. Imports it, starts it, serves its web interface on a Unix socket.

Called by `base.zygote` in a fresh fork. The module's entry is an ASGI or WSGI application, or a callable that is
called once with its context; functions `start`, `health`, `pre_stop` and `stop` of its Python module are its hooks.
"""

import asyncio
import importlib
import inspect
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

from aiohttp import web

Emit = Callable[[dict[str, Any]], None]
MOST_TRACE = 3000
CONTROL = "/.base"
"""Requests of the base itself. Those that the front forwards bear a context path, and are the module's own."""
CONTEXT_HEADER = "X-Base-Context-Path"
MODULE_HEADER = "X-Base-Module"
"""Whose request it is, where several modules share a process; the front sets it, whatever the caller sent."""
END = signal.SIGUSR2
"""The base's word to end. Not SIGTERM, which may reach the whole process group: then the base drains first."""


def run(command: dict[str, Any], emit: Emit) -> int:
    """Until asked to end; the exit code."""
    folder = command["folder"]
    sys.path[:0] = [folder, *(str(path) for path in sorted(Path(folder, "lib").glob("*.whl")))]
    if Path(folder, "lib").is_dir():
        sys.path.insert(1, str(Path(folder, "lib")))
    if denied := tuple(command.get("denied") or ()):
        deny(denied, [path for path in sys.path if path.startswith(folder)])
    os.chdir(folder)
    os.environ.update({str(name): str(value) for name, value in (command.get("envs") or {}).items()})
    try:
        return asyncio.run(_serve(command, emit))
    except Exception:
        emit({"event": "failed", "trace": traceback.format_exc()[-MOST_TRACE:]})
        traceback.print_exc()
        return 1


class Denied(MetaPathFinder):
    """Hides packages of the base, but for what the module brings itself."""

    def __init__(self, packages: tuple[str, ...], own_path: list[str]) -> None:
        self._packages = packages
        self._own_path = own_path

    def has(self, name: str) -> bool:
        return any(name == package or name.startswith(f"{package}.") for package in self._packages)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not self.has(name):
            return None
        found = PathFinder.find_spec(name, self._own_path if path is None else path)
        if found is None:
            raise ModuleNotFoundError(f"No module named {name!r}: the module's deny-import-packages has it", name=name)
        return found


def deny(packages: tuple[str, ...], own_path: list[str]) -> None:
    """Also what was imported before the fork."""
    finder = Denied(packages, own_path)
    for name in [each for each in sys.modules if finder.has(each)]:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)


async def _serve(command: dict[str, Any], emit: Emit) -> int:
    module_name, _, attribute = command["entry"].partition(":")
    module = importlib.import_module(module_name)
    entry: Any = module
    for part in attribute.split("."):
        entry = getattr(entry, part)
    context = {name: command[name] for name in ("name", "version", "args", "folder", "context_path")}
    is_web = bool(command["context_path"])
    if is_web:
        await _call(_hook(module, "start"), context)
    else:
        await _call(entry, context)
    application = web.Application(client_max_size=1 << 30)
    serve = _asgi(as_asgi(entry, command["interface"])) if is_web else None

    async def answer(request: web.Request) -> web.StreamResponse:
        if serve is not None and (CONTEXT_HEADER in request.headers or request.path != f"{CONTROL}/health"):
            return await serve(request)
        return await _health(module)

    application.router.add_route("*", "/{path:.*}", answer)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(END, ended.set)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=float(command["drain_s"]))
    await runner.setup()
    folder = os.open(command["socket_folder"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    await web.UnixSite(runner, f"/proc/self/fd/{folder}/{command['socket']}").start()
    emit({"event": "ready"})
    await ended.wait()
    await _call(_hook(module, "pre_stop"), float(command["drain_s"]))
    await runner.cleanup()
    await _call(_hook(module, "stop"))
    return 0


def _hook(module: ModuleType, name: str) -> Any:
    return getattr(module, name, None)


async def _call(hook: Any, *arguments: Any) -> Any:
    """A hook may be a coroutine function, and may take fewer arguments."""
    if not callable(hook):
        return None
    try:
        most = len(inspect.signature(hook).parameters)
    except (TypeError, ValueError):
        most = len(arguments)
    result = hook(*arguments[:most])
    return await result if inspect.isawaitable(result) else result


async def _health(module: ModuleType) -> web.Response:
    try:
        verdict = await _call(_hook(module, "health"))
    except Exception as problem:
        verdict = ("DOWN", str(problem))
    word, details = verdict if isinstance(verdict, tuple) else (verdict, "")
    return web.json_response({"health": str(word or "UNKNOWN").upper(), "details": str(details)[:1000]})


def is_asgi(entry: Any, interface: str) -> bool:
    if interface:
        return interface == "asgi"
    return inspect.iscoroutinefunction(entry) or inspect.iscoroutinefunction(getattr(entry, "__call__", None))  # noqa: B004


def _asgi(application: Any) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        root = request.headers.get(CONTEXT_HEADER, "")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": root + request.path,
            "raw_path": request.raw_path.partition("?")[0].encode(),
            "root_path": root,
            "query_string": request.query_string.encode(),
            "headers": [(name.lower(), value) for name, value in request.raw_headers],
            "client": None,
            "server": None,
        }
        response: web.StreamResponse | None = None

        async def receive() -> dict[str, Any]:
            chunk = await request.content.readany()
            return {"type": "http.request", "body": chunk, "more_body": not request.content.at_eof()}

        async def send(event: MutableMapping[str, Any]) -> None:
            nonlocal response
            if event["type"] == "http.response.start":
                response = web.StreamResponse(status=event["status"])
                for name, value in event.get("headers", ()):
                    response.headers.add(bytes(name).decode("latin-1"), bytes(value).decode("latin-1"))
                await response.prepare(request)
            elif event["type"] == "http.response.body":
                assert response is not None, "the body came before the start of the response"
                await response.write(event.get("body", b""))

        await application(scope, receive, send)
        if response is None:
            raise web.HTTPInternalServerError(text="the module sent no response")
        await response.write_eof()
        return response

    return handle


def as_asgi(entry: Any, interface: str) -> Any:
    """The application of a web module as an ASGI one."""
    return entry if is_asgi(entry, interface) else _from_wsgi(entry)


def _from_wsgi(application: Any) -> Any:
    """Called in a thread of its own for each request; its answer is sent whole."""

    def call(environ: dict[str, Any]) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        start: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[..., None]:
            start[:] = [int(status.split()[0]), headers]
            return written.append

        written: list[bytes] = []
        parts: Iterable[bytes] = application(environ, start_response)
        try:
            body = b"".join(parts)
        finally:
            close = getattr(parts, "close", None)
            if close is not None:
                close()
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in start[1]]
        return start[0], headers, b"".join(written) + body

    async def app(scope: dict[str, Any], receive: Callable[[], Awaitable[dict[str, Any]]], send: Any) -> None:
        status, headers, body = await asyncio.to_thread(call, _environ(scope, await whole_body(receive)))
        if not any(name.lower() == b"content-length" for name, _ in headers):
            headers.append((b"Content-Length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


async def whole_body(receive: Callable[[], Awaitable[dict[str, Any]]]) -> bytes:
    parts = []
    while True:
        event = await receive()
        parts.append(event.get("body", b""))
        if not event.get("more_body"):
            return b"".join(parts)


def _environ(scope: dict[str, Any], body: bytes) -> dict[str, Any]:
    """Text is bytes as Latin-1, as PEP 3333 has it; a header that comes twice is one, joined."""
    fields: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        fields.setdefault(name.decode("latin-1").upper().replace("-", "_"), []).append(value.decode("latin-1"))
    root, path = (text.encode().decode("latin-1") for text in (scope["root_path"], scope["path"]))
    return {
        **{f"HTTP_{name}": ("; " if name == "COOKIE" else ",").join(values) for name, values in fields.items()},
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": root,
        "PATH_INFO": path.removeprefix(root),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": "module",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": fields.get("CONTENT_TYPE", [""])[0],
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.input": BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
