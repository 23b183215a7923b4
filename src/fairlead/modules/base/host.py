"""The host of `inproc` modules: one worker that loads many, each under a private name; what they leak stays with it.

Started by `base.inproc` as a worker whose web interface is the base's own: `load` and `unload`. Unloading calls a
module's hooks and forgets it, but memory that it left in other places is not given back before the base restarts.
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

NATIVE = (".so", ".pyd", ".dylib")
MOST_TRACE = 3000

_loaded: dict[str, ModuleType] = {}


async def app(scope: dict[str, Any], receive: Callable[[], Awaitable[dict[str, Any]]], send: Any) -> None:
    """The base's commands, as an ASGI application."""
    body = b""
    while True:
        event = await receive()
        body += event.get("body", b"")
        if not event.get("more_body"):
            break
    command = json.loads(body)
    try:
        known = {"load": _load, "unload": _unload}[scope["path"].rpartition("/")[2]]
        await asyncio.to_thread(known, command)
        reply: dict[str, Any] = {"ok": True}
    except Exception:
        reply = {"ok": False, "trace": traceback.format_exc()[-MOST_TRACE:]}
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(reply).encode()})


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
        context = {key: command[key] for key in ("name", "version", "args", "folder")}
        entry(context) if _takes_context(entry) else entry()
    except BaseException:
        sys.modules.pop(spec.name, None)
        raise
    _loaded[_key(command)] = module


def _unload(command: dict[str, Any]) -> None:
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
