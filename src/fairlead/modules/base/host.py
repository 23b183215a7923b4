"""The host of `inproc` modules: one worker that loads many, each under a private name; what they leak stays with it.

Started by `base.inproc` as a worker whose web interface is the base's own, `load` and `unload`, and that of its web
modules: ASGI applications on the host's event loop, WSGI ones in its threads. Unloading calls a module's hooks and
forgets it, but memory that it left in other places is not given back before the base restarts.
"""

import asyncio
import gc
import hashlib
import importlib.util
import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from fairlead.modules.base.worker import MODULE_HEADER, as_asgi, whole_body

NATIVE = (".so", ".pyd", ".dylib")
MOST_TRACE = 3000

HEADER = MODULE_HEADER.lower().encode()

_loaded: dict[str, ModuleType] = {}
_served: dict[str, Any] = {}
"""The applications of web modules, as ASGI."""


async def app(scope: dict[str, Any], receive: Callable[[], Awaitable[dict[str, Any]]], send: Any) -> None:
    """The base's commands and the requests of web modules, as an ASGI application."""
    key = next((value.decode() for name, value in scope["headers"] if name == HEADER), "")
    if key:
        # The front names the module of every request: none of them reaches the commands below.
        await _served.get(key, _missing)(scope, receive, send)
        return
    command = json.loads(await whole_body(receive))
    try:
        known = {"load": _load, "unload": _unload}[scope["path"].rpartition("/")[2]]
        await asyncio.to_thread(known, command)
        reply: dict[str, Any] = {"ok": True}
    except Exception:
        reply = {"ok": False, "trace": traceback.format_exc()[-MOST_TRACE:]}
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(reply).encode()})


async def _missing(scope: dict[str, Any], receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 404, "headers": []})
    await send({"type": "http.response.body", "body": b"no module serves this path"})


def _load(command: dict[str, Any]) -> None:
    folder = Path(command["folder"])
    if any(path.suffix in NATIVE for path in folder.rglob("*")):
        raise ImportError("an inproc module may not have native extensions: they cannot be unloaded")
    name, _, attribute = command["entry"].partition(":")
    path = folder.joinpath(*name.split(".")).with_suffix(".py")
    spec = importlib.util.spec_from_file_location(_private_name(command), path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ImportError(f"no module {name} in the artefact")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        entry: Any = module
        for part in attribute.split("."):
            entry = getattr(entry, part)
        context = {key: command[key] for key in ("name", "version", "args", "folder", "context_path")}
        is_web = bool(command["context_path"])
        begin = getattr(module, "start", None) if is_web else entry
        result = None if begin is None else begin(context) if _takes_context(begin) else begin()
        if asyncio.iscoroutine(result):
            asyncio.run(result)
    except BaseException:
        sys.modules.pop(spec.name, None)
        raise
    _loaded[_key(command)] = module
    if is_web:
        _served[_key(command)] = as_asgi(entry, command["interface"])


def _unload(command: dict[str, Any]) -> None:
    _served.pop(_key(command), None)
    module = _loaded.pop(_key(command), None)
    sys.modules.pop(_private_name(command), None)
    if module is None:
        return
    try:
        for hook, arguments in (("pre_stop", (float(command.get("drain_s", 0)),)), ("stop", ())):
            found = getattr(module, hook, None)
            if callable(found):
                found(*arguments) if arguments and _takes_context(found) else found()
    finally:
        del module
        gc.collect()


def _takes_context(entry: Any) -> bool:
    code = getattr(entry, "__code__", None)
    return code is None or code.co_argcount > 0


def _key(command: dict[str, Any]) -> str:
    return f"{command['name']}:{command['version']}"


def _private_name(command: dict[str, Any]) -> str:
    digest = hashlib.sha256(_key(command).encode()).hexdigest()[:12]
    return f"_ark_{''.join(c if c.isalnum() else '_' for c in command['name'])}_{digest}"
