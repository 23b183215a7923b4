"""A base that only acts, on arklet's wire: it keeps a log of its calls, and misbehaves as it is told.

    async with MockBase().serving() as base:
        base.faults["installBiz"] = [Fault.NO_REPLY]

For tests of the arklet provider: thousands of them run in one process. The artefact's URL says what is installed:
`http://h/NAME-VERSION.zip`; a NAME of `fails` does not start.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import msgspec
from aiohttp import web


class Fault(Enum):
    """What happens to one call. The command is carried out where the name says so."""

    HANG = "accepts the call and never answers"
    NO_REPLY = "carries it out and closes without an answer"
    HALF_REPLY = "carries it out and sends half of the answer"
    ANSWER_500 = "does nothing and answers 500"
    NO_JSON = "carries it out and answers nonsense"
    TWICE = "carries it out and sends the answer twice"
    OTHER = "installs another version than it was asked for, and says that it is done"
    BUSY = "another command is at work on the module"


@dataclass(slots=True)
class MockBase:
    modules: dict[str, str] = field(default_factory=dict)
    """State by `name:version`."""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Every command that reached it, with the module."""
    senders: list[tuple[datetime, str, str]] = field(default_factory=list)
    """Every command that changes something: when it came, from which replica, what it was."""
    urls: list[str] = field(default_factory=list)
    """The artefacts that were installed, in order."""
    removed: list[str] = field(default_factory=list)
    """The modules that were there and removed, in order."""
    installs: list[dict[str, Any]] = field(default_factory=list)
    """The bodies of install commands."""
    traces: set[str] = field(default_factory=set)
    """The `traceparent` of calls that had one."""
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What is answered to a command, which then does nothing."""
    operations: dict[str, dict[str, Any]] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    """Modules whose own health is bad."""
    at_work: set[str] = field(default_factory=set)
    """Modules on which an asynchronous command is at work: others are refused meanwhile."""
    install_s: float = 0.0
    is_serial: bool = False
    """Installs are carried out one after the other, as on a machine that each of them keeps busy."""
    busy_until_s: float = 0.0
    times: dict[str, tuple[float, float]] = field(default_factory=dict)
    """When the install of a module was first asked for, and when it was done; by the loop's clock."""
    keeps_active: bool = False
    is_away: bool = False
    used_bytes: int = 1 << 20
    """Of the 256 MiB that it has for modules."""
    port: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """It serves no more: calls that it left without an answer are over too."""

    @asynccontextmanager
    async def serving(self, host: str = "127.0.0.1") -> AsyncIterator["MockBase"]:
        self.ended.clear()
        application = web.Application()
        application.router.add_post("/{command}", self._answer)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, host, 0).start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            self.ended.set()
            await runner.cleanup()

    def count(self, command: str, key: str) -> int:
        return self.calls.count((command, key))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        command = request.match_info["command"]
        body: dict[str, Any] = msgspec.json.decode(await request.read() or b"{}")
        self.calls.append((command, _key(body)))
        if "traceparent" in request.headers:
            self.traces.add(request.headers["traceparent"])
        if command == "installBiz":
            self.installs.append(body)
        if command in ("installBiz", "uninstallBiz", "switchBiz", "batchInstallBiz"):
            sender = request.headers.get("Fairlead-Member", "")
            self.senders.append((datetime.now(UTC), sender, " ".join(self.calls[-1])))
        faults = self.faults.get(command)
        fault = faults.pop(0) if faults else None
        if self.is_away or fault is Fault.HANG:
            await self.ended.wait()
            return web.Response(status=503)
        if fault is Fault.ANSWER_500:
            return web.Response(status=500, text="oops")
        if command in self.answers:
            return _json(self.answers[command])
        key = _key(body)
        is_busy = key in self.at_work and command in ("installBiz", "uninstallBiz", "switchBiz")
        if fault is Fault.BUSY or is_busy:
            return _json({"code": "FAILED", "message": "conflict, exist unfinished command(installBiz) for this biz"})
        if fault is Fault.OTHER and "bizUrl" in body:
            body = {**body, "bizUrl": body["bizUrl"].removesuffix(".zip") + ".other.zip"}
        reply = await self._carry_out(command, body)
        match fault:
            case Fault.NO_REPLY:
                assert request.transport is not None
                request.transport.abort()
            case Fault.HALF_REPLY:
                text = msgspec.json.encode(reply)
                return web.Response(body=text[: len(text) // 2])
            case Fault.NO_JSON:
                return web.Response(text="<html>")
            case Fault.TWICE:
                return web.Response(body=msgspec.json.encode(reply) * 2)
        return _json(reply)

    async def _carry_out(self, command: str, body: dict[str, Any]) -> dict[str, Any]:
        known: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "uninstallBiz": self._uninstall,
            "queryAllBiz": lambda _: self._list(),
            "queryBizOps": self._operation,
            "switchBiz": self._switch,
            "health": self._health,
        }
        if command == "installBiz":
            return await self._begin(body)
        found = known.get(command)
        return found(body) if found is not None else {"code": "CMD_NOT_FOUND", "message": "please follow the doc"}

    async def _begin(self, body: dict[str, Any]) -> dict[str, Any]:
        if not body.get("async"):
            return self._install(body)
        request_id = body["requestId"]
        if request_id in self.operations:
            return {"code": "FAILED", "message": f"The request ({request_id}) has been executed."}
        key = _key(body)
        self.at_work.add(key)
        self.operations[request_id] = {"requestId": request_id, "status": "EXECUTING"}
        loop = asyncio.get_running_loop()
        begin_s = max(loop.time(), self.busy_until_s) if self.is_serial else loop.time()
        self.busy_until_s = begin_s + self.install_s
        self.times[key] = (loop.time(), self.busy_until_s)
        loop.call_at(self.busy_until_s, self._finish, request_id, body)
        return _success(self.operations[request_id])

    def _finish(self, request_id: str, body: dict[str, Any]) -> None:
        self.at_work.discard(_key(body))
        reply = self._install(body)
        is_done = reply["code"] == "SUCCESS"
        message = reply.get("data", {}).get("message") or reply.get("message", "")
        self.operations[request_id] |= {"status": "SUCCEEDED" if is_done else "FAILED", "message": message}

    def _install(self, body: dict[str, Any]) -> dict[str, Any]:
        name, _, version = body["bizUrl"].rpartition("/")[2].removesuffix(".zip").rpartition("-")
        key = f"{name}:{version}"
        if key in self.modules:
            return _failure("REPEAT_BIZ", f"Biz: {key} has been installed or registered.")
        if "://" not in body["bizUrl"]:
            return {"code": "CMD_PROCESS_INTERNAL_ERROR", "message": "Internal Error: no protocol"}
        if name in ("fails", "failing"):
            return {"code": "CMD_PROCESS_INTERNAL_ERROR", "message": "Internal Error: boom at start"}
        others = [other for other in self.modules if other.rpartition(":")[0] == name]
        if self.keeps_active and others:
            self.modules[key] = "deactivated"
        else:
            self.modules |= dict.fromkeys(others, "deactivated") | {key: "activated"}
        self.urls.append(body["bizUrl"])
        info = {"bizName": name, "bizVersion": version, "bizState": self.modules[key]}
        return _success({"code": "SUCCESS", "message": "done", "bizInfos": [info]})

    def _uninstall(self, body: dict[str, Any]) -> dict[str, Any]:
        key = _key(body)
        if self.modules.pop(key, None) is None:
            return _failure("NOT_FOUND_BIZ", f"Uninstall biz: {key} not found.")
        self.removed.append(key)
        return _success({"code": "SUCCESS", "message": f"Uninstall biz: {key} success."})

    def _operation(self, body: dict[str, Any]) -> dict[str, Any]:
        found = self.operations.get(body.get("requestId", ""))
        if found is None:
            return {"code": "FAILED", "message": "Not found the corresponding ops record."}
        return _success(found)

    def _switch(self, body: dict[str, Any]) -> dict[str, Any]:
        name, key = body.get("bizName"), _key(body)
        if key not in self.modules:
            return _failure("NOT_FOUND_BIZ", f"Switch biz: {key} not found.")
        others = [other for other in self.modules if other.rpartition(":")[0] == name]
        self.modules |= dict.fromkeys(others, "deactivated") | {key: "activated"}
        return _success({"code": "SUCCESS", "message": f"Switch biz: {key} is activated."})

    def _list(self) -> dict[str, Any]:
        split = ((*key.rpartition(":")[::2], state) for key, state in self.modules.items())
        return _success(
            [
                {"bizName": name, "bizVersion": version, "bizState": state, "bizStateRecords": [{}]}
                for name, version, state in split
            ]
        )

    def _health(self, body: dict[str, Any]) -> dict[str, Any]:
        key = _key(body)
        if key in self.modules:
            info = {"bizName": body["bizName"], "bizVersion": body["bizVersion"]}
            return _success({"healthData": {"bizInfo": {**info, "health": "DOWN" if key in self.down else "UP"}}})
        jvm = {"java max metaspace": 1 << 28, "java committed metaspace": self.used_bytes}
        jvm |= {"java used metaspace": self.used_bytes}
        master = {"bizName": "base", "bizVersion": "1", "bizState": "activated"}
        return _success({"healthData": {"jvm": jvm, "masterBizInfo": master}})


def _key(body: dict[str, Any]) -> str:
    """The module of a command, as it is listed."""
    return f"{body.get('bizName', '')}:{body.get('bizVersion', '')}"


def _json(reply: dict[str, Any]) -> web.Response:
    return web.Response(body=msgspec.json.encode(reply))


def _success(data: Any) -> dict[str, Any]:
    return {"code": "SUCCESS", "data": data}


def _failure(code: str, message: str) -> dict[str, Any]:
    return {"code": "FAILED", "data": {"code": code, "message": message}, "message": "not success!"}
