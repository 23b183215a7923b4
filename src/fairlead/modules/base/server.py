"""The base's HTTP: arklet's commands on one port, the modules' web interfaces on another."""

import gc
import hmac
import os
import platform
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp import web

from fairlead.cluster.clock import Clock
from fairlead.modules import arklet
from fairlead.modules.arklet import FAILED, SUCCESS, UNKNOWN_COMMAND
from fairlead.modules.base import memory
from fairlead.modules.base.manager import Manager, Reply, internal_error
from fairlead.modules.base.worker import CONTEXT_HEADER, CONTROL, MODULE_HEADER

MOST_BODY: Final = 1 << 20
TAIL_BYTES: Final = 64 << 10
HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
HEALTH_TYPES: Final = {
    "system": ("cpu", "jvm", "python", "masterBizInfo"),
    "biz": ("masterBizInfo", "bizListInfo"),
    "plugin": ("pluginListInfo",),
}
"""What `health` is asked for by type; everything where none is named."""
OWN_HEADERS: Final = frozenset({CONTEXT_HEADER.lower(), MODULE_HEADER.lower()})
COMMANDS: Final = {
    "help": "list all supported commands",
    "installBiz": "install one ark biz",
    "batchInstallBiz": "install one ark biz",
    "uninstallBiz": "uninstall one ark biz",
    "switchBiz": "switch one ark biz",
    "queryAllBiz": "query all ark biz(including master biz)",
    "queryBizOps": "query ark biz ops",
    "health": "get all health info",
    "queryBizLog": "the last lines of a module's log",
    "bizStats": "memory and cpu of every module",
    "validateBiz": "what an install would bring, without one",
    "drainBase": "take no more modules and say so; with drain=false again",
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the base says it is."""

    identity: str
    name: str
    version: str
    cluster_name: str
    boot_id: str


class ArkletServer:
    """Answers every command with 200 and a verdict in the body, as arklet does."""

    def __init__(self, manager: Manager, identity: Identity, clock: Clock, token: str = "") -> None:
        self._manager = manager
        self._identity = identity
        self._clock = clock
        self._token = token
        self._started_s = clock.elapsed_s()
        self._session: aiohttp.ClientSession | None = None

    def application(self) -> web.Application:
        application = web.Application(client_max_size=MOST_BODY)
        application.router.add_route("*", "/{command:.*}", self._answer)
        return application

    async def _answer(self, request: web.Request) -> web.Response:
        if request.method != "POST":
            return web.Response(status=500, text="POST http request only supported by arklet")
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        # Bytes that are no UTF-8 arrive as lone surrogates.
        if self._token and not hmac.compare_digest(given.encode(errors="surrogateescape"), self._token.encode()):
            return web.Response(status=401, text="the base asks for its token")
        text = await request.read()
        try:
            body = msgspec.json.decode(text) if text.strip() else {}
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
            return self._reply(internal_error(f"the body is not JSON: {problem}"))
        if not isinstance(body, dict):
            return self._reply(internal_error("the body is not a JSON object"))
        reply = await self.carry_out(request.match_info["command"], body)
        return self._reply(reply)

    def _reply(self, reply: Reply) -> web.Response:
        if reply["code"] in (SUCCESS, FAILED):
            reply = {"baseIdentity": self._identity.identity, **reply}
        return web.Response(body=msgspec.json.encode(reply, order="sorted"), content_type="application/json")

    async def carry_out(self, command: str, body: dict[str, Any]) -> Reply:
        manager = self._manager
        if command in (arklet.INSTALL, arklet.UNINSTALL) and body.get("async") is True:
            return manager.begin(command, body)
        known: dict[str, Callable[[], Awaitable[Reply]]] = {
            arklet.INSTALL: lambda: manager.install(body),
            arklet.UNINSTALL: lambda: manager.uninstall(body),
            arklet.SWITCH: lambda: manager.switch(body),
            arklet.BATCH_INSTALL: lambda: manager.batch(_requests(body)),
            "validateBiz": lambda: manager.validate(body),
        }
        if command in known:
            return await known[command]()
        match command:
            case "help":
                return _success([{"desc": text, "id": name} for name, text in COMMANDS.items()])
            case arklet.QUERY_ALL:
                return _success([module.brief() for module in manager.modules.values()])
            case arklet.QUERY_OPS:
                operation = manager.operations.get(str(body.get("requestId") or ""))
                if operation is None:
                    return {"code": FAILED, "message": "Not found the corresponding ops record."}
                return _success(operation.shown())
            case arklet.HEALTH:
                return await self._health(body)
            case "queryBizLog":
                return self._log(body)
            case "bizStats":
                return _success(self._stats())
            case "drainBase":
                manager.is_draining = body.get("drain") is not False
                return _success({"draining": manager.is_draining})
            case _:
                return {"code": UNKNOWN_COMMAND, "message": "please follow the doc"}

    async def _health(self, body: dict[str, Any]) -> Reply:
        if body.get("bizName"):
            key = f"{body['bizName']}:{body.get('bizVersion') or ''}"
            module = self._manager.modules.get(key)
            if module is None:
                return {"code": FAILED, "message": "can not find biz"}
            info = {name: value for name, value in module.brief().items() if name != "bizStateRecords"}
            return _success({"healthData": {"bizInfo": {**info, **await self._module_health(key)}}})
        master = {
            "bizName": self._identity.name,
            "bizState": "deactivated" if self._manager.is_draining else "activated",
            "bizVersion": self._identity.version,
            "webContextPath": "/",
        }
        kind = str(body.get("type") or "")
        if kind and kind not in HEALTH_TYPES:
            return internal_error(f"type: {kind[:200]} can not be found")
        modules = [
            {name: value for name, value in module.brief().items() if name in master}
            for module in self._manager.modules.values()
        ]
        found = {**self._system_health(), "masterBizInfo": master, "bizListInfo": [master, *modules]}
        found["pluginListInfo"] = []
        shown = HEALTH_TYPES.get(kind, tuple(found))
        return _success({"healthData": {name: found[name] for name in shown}})

    def _system_health(self) -> dict[str, Any]:
        used = self._manager.used_bytes()
        budget = self._manager.options.budget_bytes
        jvm = {
            "java used metaspace": used,
            "java committed metaspace": used,
            "java max metaspace": budget,
            "run time(s)": round(self._clock.elapsed_s() - self._started_s, 3),
            "java version": "",
        }
        python = {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "budget": budget,
            "pss": used,
            "rss": self._manager.resident_bytes(),
            "leaked": self._manager.leaked_bytes,
            "modules": len(self._manager.modules),
            "gc": list(gc.get_count()),
        }
        cpu = {"count": len(os.sched_getaffinity(0)), "type": platform.machine()}
        return {"cpu": cpu, "jvm": jvm, "python": python}

    async def _module_health(self, key: str) -> dict[str, Any]:
        """The module's own word, from its hook."""
        module = self._manager.modules.get(key)
        if module is None or module.worker is None or not module.worker.is_ready:
            return {"health": "DOWN"}
        connector = aiohttp.UnixConnector(module.worker.socket)
        timeout = aiohttp.ClientTimeout(total=3.0)
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
                session.get(f"http://module{CONTROL}/health") as answer,
            ):
                found: dict[str, Any] = await answer.json()
                return found
        except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as problem:
            return {"health": "DOWN", "details": str(problem) or "timed out"}

    def _log(self, body: dict[str, Any]) -> Reply:
        module = self._manager.modules.get(f"{body.get('bizName') or ''}:{body.get('bizVersion') or ''}")
        if module is None:
            return {"code": FAILED, "message": "can not find biz"}
        offset = body.get("offset")
        try:
            with self._manager.log_path(module.manifest).open("rb") as file:
                size = file.seek(0, 2)
                start = offset if isinstance(offset, int) and 0 <= offset <= size else max(0, size - TAIL_BYTES)
                file.seek(start)
                text = file.read(TAIL_BYTES)
        except OSError:
            start, text = 0, b""
        return _success({"log": text.decode("utf-8", "replace"), "offset": start + len(text)})

    def _stats(self) -> list[dict[str, Any]]:
        return [
            {
                "bizName": module.manifest.name,
                "bizVersion": module.manifest.version,
                "memory": memory.used_bytes(module.worker.pid),
                "cpu": memory.cpu_s(module.worker.pid),
                "restarts": module.restarts,
            }
            for module in self._manager.modules.values()
            if module.worker is not None
        ]


def _requests(body: dict[str, Any]) -> list[dict[str, Any]]:
    listed = body.get("bizList")
    return [each for each in listed if isinstance(each, dict)][:1000] if isinstance(listed, list) else []


def _success(data: Any) -> Reply:
    return {"code": SUCCESS, "data": data}


class Front:
    """Forwards requests to the module whose context path they begin with."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    def application(self) -> web.Application:
        application = web.Application(client_max_size=1 << 30)
        application.router.add_route("*", "/{path:.*}", self._forward)
        application.on_cleanup.append(self._close)
        return application

    async def _close(self, _: web.Application) -> None:
        for session in self._sessions.values():
            await session.close()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        module = self._manager.route(request.path)
        if module is None or module.worker is None:
            return web.Response(status=404, text="no module serves this path")
        context, worker = module.manifest.context_path, module.worker
        path = request.raw_path.removeprefix(context)
        path = path if path.startswith("/") else f"/{path}"
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP]
        headers = [pair for pair in headers if pair[0].lower() not in OWN_HEADERS]
        headers += [(CONTEXT_HEADER, context), (MODULE_HEADER, module.key)]
        session = await self._session(worker.socket)
        module.in_flight += 1
        try:
            async with session.request(
                request.method,
                f"http://module{path}",
                headers=headers,
                data=request.content if request.body_exists else None,
                allow_redirects=False,
            ) as answer:
                response = web.StreamResponse(status=answer.status, reason=answer.reason)
                for name, value in answer.headers.items():
                    if name.lower() not in HOP_BY_HOP:
                        response.headers.add(name, value)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response
        except (aiohttp.ClientConnectionError, OSError) as problem:
            return web.Response(status=502, text=f"the module does not answer: {problem}")
        finally:
            module.in_flight -= 1

    async def _session(self, socket: str) -> aiohttp.ClientSession:
        live = {each.worker.socket for each in self._manager.modules.values() if each.worker is not None}
        for gone in [known for known in self._sessions if known not in live and known != socket]:
            await self._sessions.pop(gone).close()
        if socket not in self._sessions:
            self._sessions[socket] = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(socket, limit=200), auto_decompress=False
            )
        return self._sessions[socket]
