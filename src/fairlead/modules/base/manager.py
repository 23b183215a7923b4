"""The base's modules: install, switch, uninstall, restart. The state machine of SOFAArk, one process per module.

    RESOLVED ──started──▶ ACTIVATED ◀──switch──▶ DEACTIVATED ──▶ STOPPED
        └──failed──▶ BROKEN (and gone)         crashed: BROKEN, started again with back-off

Called by `base.server` for each command. Commands on one module are serial; others go on beside it.
"""

import asyncio
import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import structlog

from fairlead.cluster.clock import Clock
from fairlead.modules import arklet
from fairlead.modules.arklet import FAILED, INTERNAL_ERROR, MISSING_BIZ, REPEAT_BIZ, SUCCESS
from fairlead.modules.base.artefact import BadArtefact, Limits, Manifest, fetch, unpack
from fairlead.modules.base.inproc import Inproc
from fairlead.modules.base.memory import resident_bytes, total_bytes
from fairlead.modules.base.records import Installed, Journal, Operation, Operations, epoch_ms
from fairlead.modules.base.workers import StartFailed, Worker, Workers
from fairlead.modules.spec import ACTIVATED, BROKEN, DEACTIVATED, STOPPED

log = structlog.get_logger("fairlead.base")

Reply = dict[str, Any]
RESTARTS: Final = 5
MOST_BACKOFF_S: Final = 60.0
MOST_LOG_BYTES: Final = 10 << 20


class Busy(Exception):
    """Another command works on the same module."""


@dataclass(frozen=True, slots=True)
class Options:
    folder: Path
    budget_bytes: int
    start_s: float = 60.0
    drain_s: float = 30.0
    activates_new: bool = True
    """A new version takes over from the one that is active; otherwise it waits, deactivated, as in SOFAArk."""
    limits: Limits = field(default_factory=Limits)


class Manager:
    def __init__(self, options: Options, clock: Clock) -> None:
        self.options = options
        self._clock = clock
        self.modules: dict[str, Installed] = {}
        self.operations = Operations()
        self._busy: dict[str, str] = {}
        self._unpacking = asyncio.Lock()
        self._journal = Journal(options.folder / "journal.json")
        self._cache = options.folder / "cache"
        self._run = options.folder / "run"
        self._sockets = Path(tempfile.mkdtemp(prefix="base-"))
        # A Unix socket's path has at most 107 bytes, and a pod's folder for temporary files more: we go by descriptor.
        self._socket_folder = os.open(self._sockets, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.logs = options.folder / "logs"
        self._numbers = itertools.count(1)
        self._workers = Workers(self._exited)
        self._inproc = Inproc(self._start_host)
        self._tasks: asyncio.TaskGroup | None = None
        self._session: aiohttp.ClientSession | None = None
        self._is_restoring = False
        self.is_draining = False
        self.on_installed: Callable[[bool, float], None] = lambda is_done, seconds: None
        """Told of each install that was tried: whether it succeeded, and how long it took."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Manager"]:
        """At work for the block; at its end every module has been drained and ended."""
        for folder in (self._cache, self._run, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        async with aiohttp.ClientSession() as self._session, asyncio.TaskGroup() as self._tasks:
            working = self._tasks.create_task(self._workers.run(), name="zygote")
            await self._restore()
            try:
                yield self
            finally:
                self.is_draining = True
                leaving = [self._end(each) for each in self.modules.values()]
                await asyncio.gather(*leaving)
                os.close(self._socket_folder)
                shutil.rmtree(self._sockets, ignore_errors=True)
                working.cancel()

    async def _restore(self) -> None:
        """What the journal says was here; one that does not start again is left to the controller."""
        assert self._tasks is not None
        entries = self._journal.read()
        # The active version comes last where a new one takes over, and first where it does not.
        entries.sort(key=lambda each: bool(each.get("active")) is self.options.activates_new)
        self._is_restoring = True
        for entry in entries:
            reply = await self.install({name: value for name, value in entry.items() if name != "active"})
            if reply["code"] != SUCCESS:
                log.warning("not restored", module=entry.get("bizName"), problem=reply.get("message"))
        self._is_restoring = False
        self._write_journal()

    def _write_journal(self) -> None:
        if not self._is_restoring:  # what is still to be brought back must not be lost
            self._journal.write(self.modules.values())

    # -- commands -------------------------------------------------------------------------------------------

    async def install(self, request: dict[str, Any]) -> Reply:
        name, version, url = (str(request.get(key) or "") for key in ("bizName", "bizVersion", "bizUrl"))
        if not url:
            return internal_error("bizUrl should not be blank")
        if bool(name) != bool(version):
            return internal_error("bizName and bizVersion should be both blank or both not blank.")
        if self.is_draining:
            return {"code": FAILED, "message": "the base is stopping"}
        try:
            with self._alone(f"{name}:{version}", arklet.INSTALL):
                if name and f"{name}:{version}" in self.modules:
                    return _repeated(f"{name}:{version}")
                begun_s = self._clock.elapsed_s()
                reply = await self._install(request, f"{name}:{version}" if name else "", url)
                self.on_installed(reply["code"] == SUCCESS, self._clock.elapsed_s() - begun_s)
                return reply
        except Busy as busy:
            return {"code": FAILED, "message": str(busy)}

    async def _install(self, request: dict[str, Any], key: str, url: str) -> Reply:
        assert self._session is not None
        started = self._clock.elapsed_s()
        before = total_bytes(self._pids())
        archive = self._run / f"fetch-{next(self._numbers)}"
        try:
            await fetch(url, archive, self._session, self.options.limits)
            module = await self._take_in(archive, request, key, url)
        except BadArtefact as problem:
            return internal_error(str(problem))
        finally:
            archive.unlink(missing_ok=True)
        if not isinstance(module, Installed):
            return module
        if request.get("installStrategy") == arklet.UNINSTALL_THEN_INSTALL:
            for other in [each.manifest for each in self._versions(module) if each is not module]:
                await self.uninstall({"bizName": other.name, "bizVersion": other.version})
        timeout_s = request.get("timeoutSeconds")
        limit_s = float(timeout_s) if isinstance(timeout_s, int | float) and timeout_s > 0 else self.options.start_s
        try:
            await self._start(module, limit_s)
        except StartFailed as problem:
            # As SOFAArk: what does not start is not kept.
            module.become(BROKEN, "Install Failed", self._clock.now(), str(problem))
            await self._forget(module)
            return {**internal_error("java.lang.reflect.InvocationTargetException"), "errorStackTrace": _trace(problem)}
        except asyncio.CancelledError:
            await self._forget(module)
            raise
        await self._activate(module)
        self._write_journal()
        cost_ms = round((self._clock.elapsed_s() - started) * 1000)
        data = {
            "bizInfos": [module.full()],
            "code": SUCCESS,
            "elapsedSpace": total_bytes(self._pids()) - before,
            "message": f"Install Biz: {module.key} success, cost: {cost_ms} ms",
        }
        return {"code": SUCCESS, "data": data}

    async def _take_in(self, archive: Path, request: dict[str, Any], key: str, url: str) -> Installed | Reply:
        """The module that an artefact is, known from here on; or why it is none. BadArtefact where nothing can be read.

        One at a time: what one command drops another may have just found unpacked.
        """
        async with self._unpacking:
            manifest, folder = await asyncio.to_thread(unpack, archive, self._cache, self.options.limits)
            if key and manifest.key != key:
                await self._drop(folder)
                message = f"the artefact is {manifest.key}, not {key}"
                return failure("install biz not success!", arklet.OTHER_BIZ, message)
            if manifest.key in self.modules:
                await self._drop(folder)
                return _repeated(manifest.key)
            module = Installed(manifest, url, folder, request)
            module.become("RESOLVED", "Created", self._clock.now())
            self.modules[module.key] = module
            return module

    async def uninstall(self, request: dict[str, Any]) -> Reply:
        name, version = str(request.get("bizName") or ""), str(request.get("bizVersion") or "")
        for field_name, value in (("bizName", name), ("bizVersion", version)):
            if not value:
                return internal_error(f"{field_name} should not be blank")
        key = f"{name}:{version}"
        try:
            with self._alone(key, arklet.UNINSTALL):
                module = self.modules.get(key)
                if module is None:
                    return failure("uninstall biz not success!", MISSING_BIZ, f"Uninstall biz: {key} not found.")
                await self._end(module)
                module.become(STOPPED, "Stopped", self._clock.now())
                await self._forget(module)
                if not module.is_inproc:
                    # Its lines are nothing for whoever has the same module here next.
                    await asyncio.to_thread(self.log_path(module.manifest).unlink, missing_ok=True)
                self._write_journal()
        except Busy as busy:
            return {"code": FAILED, "message": str(busy)}
        return {"code": SUCCESS, "data": {"code": SUCCESS, "message": f"Uninstall biz: {key} success."}}

    async def switch(self, request: dict[str, Any]) -> Reply:
        key = f"{request.get('bizName') or ''}:{request.get('bizVersion') or ''}"
        module = self.modules.get(key)
        if module is None:
            return failure("switch biz not success!", MISSING_BIZ, f"Switch biz: {key} not found.")
        if module.state not in (ACTIVATED, DEACTIVATED):
            message = f"Switch biz: {key} is {module.state.lower()}."
            return failure("switch biz not success!", "ILLEGAL_STATE_BIZ", message)
        self._take_over(module)
        self._write_journal()
        return {"code": SUCCESS, "data": {"code": SUCCESS, "message": f"Switch biz: {key} is activated."}}

    async def validate(self, request: dict[str, Any]) -> Reply:
        """What an install would bring, without one."""
        url, name, version = (str(request.get(key) or "") for key in ("bizUrl", "bizName", "bizVersion"))
        try:
            manifest = await self._inspect(url)
        except BadArtefact as problem:
            return internal_error(str(problem))
        if name and manifest.key != f"{name}:{version}":
            message = f"the artefact is {manifest.key}, not {name}:{version}"
            return failure("validate biz not success!", arklet.OTHER_BIZ, message)
        if manifest.key in self.modules:
            return _repeated(manifest.key)
        info: dict[str, Any] = {"bizName": manifest.name, "bizVersion": manifest.version, "mainClass": manifest.entry}
        info |= {"webContextPath": manifest.context_path or "/", "priority": manifest.priority}
        data = {"code": SUCCESS, "message": f"Validate Biz: {manifest.key} success.", "bizInfos": [info]}
        return {"code": SUCCESS, "data": data}

    async def _inspect(self, url: str) -> Manifest:
        """The manifest of an artefact, of which nothing is kept; BadArtefact where it cannot be had."""
        assert self._session is not None
        scratch = self._run / f"inspect-{next(self._numbers)}"
        archive = scratch.with_suffix(".archive")
        try:
            await fetch(url, archive, self._session, self.options.limits)
            manifest, _ = await asyncio.to_thread(unpack, archive, scratch, self.options.limits)
        finally:
            archive.unlink(missing_ok=True)
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
        return manifest

    async def batch(self, requests: list[dict[str, Any]]) -> Reply:
        """As arklet: every manifest first, so that an artefact that cannot be had stops all; then by priority."""
        groups: dict[int, list[dict[str, Any]]] = {}
        for request in requests:
            try:
                manifest = await self._inspect(str(request.get("bizUrl") or ""))
            except BadArtefact as problem:
                return internal_error(str(problem))
            groups.setdefault(manifest.priority, []).append(request)
        answers: dict[str, Any] = {}
        for _, group in sorted(groups.items()):
            replies = await asyncio.gather(*(self.install({**request, "async": False}) for request in group))
            for request, reply in zip(group, replies, strict=True):
                data = reply.get("data", {})
                message = data.get("message") or reply.get("message", "")
                own = {"code": data.get("code", FAILED), "bizInfos": data.get("bizInfos") or [], "message": message}
                answers[str(request.get("bizUrl"))] = own
        is_done = all(each["code"] == SUCCESS for each in answers.values())
        word = "success" if is_done else "failed"
        data = {
            "bizUrlToResponse": answers,
            "code": SUCCESS if is_done else FAILED,
            "elapsedSpace": 0,
            "message": f"batch install {word}",
        }
        return {"code": data["code"], "data": data}

    def begin(self, command: str, request: dict[str, Any]) -> Reply:
        """An asynchronous install or uninstall: answered at once, its outcome by `queryBizOps`."""
        assert self._tasks is not None
        request_id = str(request.get("requestId") or "")
        if not request_id:
            return internal_error("requestId should not be blank when async is true")
        if request_id in self.operations:
            return {
                "code": FAILED,
                "message": f"The request corresponding to the requestId({request_id}) has been executed.",
            }
        operation = Operation(request_id, request, epoch_ms(self._clock.now()))
        self.operations.add(operation)
        self._tasks.create_task(self._operate(command, request, operation), name=f"{command} {request_id}")
        return {"code": SUCCESS, "data": operation.shown()}

    async def _operate(self, command: str, request: dict[str, Any], operation: Operation) -> None:
        plain = {name: value for name, value in request.items() if name not in ("async", "requestId")}
        try:
            reply = await (self.install(plain) if command == arklet.INSTALL else self.uninstall(plain))
        except Exception as bug:
            log.exception("bug in a command", command=command)
            reply = internal_error(repr(bug))
        operation.status = "SUCCEEDED" if reply["code"] == SUCCESS else "FAILED"
        answer = arklet.read_answer(200, msgspec.json.encode(reply))
        if reply["code"] != SUCCESS:
            operation.message, operation.code = arklet.sentence_of(answer), answer.inner_code
        operation.ended_ms = epoch_ms(self._clock.now())

    # -- modules --------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _alone(self, key: str, command: str) -> Any:
        if key in self._busy and key != ":":
            raise Busy(f"FAILED:{key} {command} conflict, exist unfinished command({self._busy[key]}) for this biz")
        self._busy[key] = command
        try:
            yield
        finally:
            self._busy.pop(key, None)

    async def _start(self, module: Installed, timeout_s: float) -> None:
        if module.is_inproc:
            module.worker = await self._inproc.load(module.key, self._module_command(module), timeout_s)
        else:
            log_path = self.log_path(module.manifest)
            with contextlib.suppress(OSError):
                if log_path.stat().st_size > MOST_LOG_BYTES:
                    log_path.unlink()
            module.worker = await self._start_worker(module.key, self._module_command(module), timeout_s)
        if module.is_leaving:
            # Whoever removed it found nothing that ran yet.
            await self._end(module)
            raise StartFailed("the module was removed while it started")

    def _module_command(self, module: Installed) -> dict[str, Any]:
        manifest, request = module.manifest, module.request
        return {
            "name": manifest.name,
            "version": manifest.version,
            "entry": manifest.entry,
            "interface": manifest.interface,
            "context_path": manifest.context_path,
            "folder": str(module.folder.resolve()),
            "denied": manifest.denied,
            "args": [str(each) for each in request["args"]] if isinstance(request.get("args"), list) else [],
            "envs": request["envs"] if isinstance(request.get("envs"), dict) else {},
            "log": str(self.log_path(manifest).resolve()),
            "socket_folder": str(self._sockets),
            "drain_s": self.options.drain_s,
        }

    async def _start_host(self) -> Worker:
        """A worker whose module is our own, which loads the others."""
        host = Manifest("host", "", "fairlead.modules.base.host:app", "/", "asgi", isolation="inproc")
        command = self._module_command(Installed(host, "", self._run, {}))
        return await self._start_worker("host", command, self.options.start_s)

    async def _start_worker(self, key: str, command: dict[str, Any], timeout_s: float) -> Worker:
        number = next(self._numbers)
        command = {**command, "socket": f"{number}.sock"}
        reached_at = f"/proc/self/fd/{self._socket_folder}/{number}.sock"
        return await self._workers.start(f"{key}#{number}", reached_at, command, timeout_s)

    def log_path(self, manifest: Manifest) -> Path:
        if manifest.isolation == "inproc":
            return self.logs / "inproc.log"
        return self.logs / f"{manifest.name}-{manifest.version}.log"

    async def _activate(self, module: Installed) -> None:
        others = [each for each in self._versions(module) if each.state == ACTIVATED]
        if others and not self.options.activates_new:
            module.become(DEACTIVATED, "Started", self._clock.now())
            return
        self._take_over(module, "Started")

    def _take_over(self, module: Installed, reason: str = "Switched") -> None:
        """From one request to the next: whoever is being served by the old version is served to the end."""
        for other in self._versions(module):
            if other is not module and other.state == ACTIVATED:
                other.become(DEACTIVATED, "Switched", self._clock.now())
        if module.state != ACTIVATED:
            module.become(ACTIVATED, reason, self._clock.now())

    def _versions(self, module: Installed) -> list[Installed]:
        return [each for each in self.modules.values() if each.manifest.name == module.manifest.name]

    async def _end(self, module: Installed) -> None:
        """Out of the routing first; then the worker, once its requests are answered."""
        module.is_leaving = True
        if module.is_inproc:
            with contextlib.suppress(StartFailed):
                await self._inproc.unload(module.key, self._module_command(module), self.options.drain_s)
        elif module.worker is not None:
            await self._workers.end(module.worker, self.options.drain_s)

    async def _forget(self, module: Installed) -> None:
        module.is_leaving = True
        if self.modules.get(module.key) is module:
            del self.modules[module.key]
        if module.worker is not None and not module.is_inproc:
            await self._workers.end(module.worker, 0.0)
            await asyncio.to_thread((self._sockets / Path(module.worker.socket).name).unlink, missing_ok=True)
        await self._drop(module.folder)

    async def _drop(self, folder: Path) -> None:
        """What an artefact was unpacked to, unless a module runs from there."""
        if not any(each.folder == folder for each in self.modules.values()):
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _exited(self, worker: Worker) -> None:
        for module in [each for each in self.modules.values() if each.worker is worker]:
            self._lost(module, worker)

    def _lost(self, module: Installed, worker: Worker) -> None:
        if module.is_leaving or self._tasks is None or self.is_draining:
            return
        was_active = module.state == ACTIVATED
        module.become(BROKEN, "Undefine", self._clock.now(), f"the worker ended with code {worker.code}")
        if module.restarts < RESTARTS:
            self._tasks.create_task(self._restart(module, was_active), name=f"restart {module.key}")

    async def _restart(self, module: Installed, was_active: bool) -> None:
        while module.restarts < RESTARTS and not module.is_leaving:
            delay_s = min(MOST_BACKOFF_S, 2.0**module.restarts)
            module.restarts += 1
            await self._clock.sleep(delay_s)
            if module.is_leaving or self.is_draining:
                return
            try:
                await self._start(module, self.options.start_s)
            except StartFailed as problem:
                module.become(BROKEN, "Install Failed", self._clock.now(), str(problem))
                continue
            is_replaced = any(each.state == ACTIVATED for each in self._versions(module))
            state = ACTIVATED if was_active and not is_replaced else DEACTIVATED
            module.become(state, "Started", self._clock.now())
            return

    # -- looking --------------------------------------------------------------------------------------------

    def route(self, path: str) -> Installed | None:
        """The module that serves this path: the longest context path, its active version."""
        found: Installed | None = None
        for module in self.modules.values():
            context = module.manifest.context_path
            if module.state != ACTIVATED or module.is_leaving or not context or module.worker is None:
                continue
            if path != context and not path.startswith(f"{context}/"):
                continue
            if found is None or len(context) > len(found.manifest.context_path):
                found = module
        return found

    def _pids(self) -> list[int]:
        workers = [each.worker for each in self.modules.values() if each.worker is not None]
        if self._inproc.host is not None and self._inproc.host.is_ready:
            workers.append(self._inproc.host)
        return sorted({worker.pid for worker in workers})

    @property
    def leaked_bytes(self) -> int:
        """What inproc modules left behind; it is part of what is used until the base restarts."""
        return self._inproc.leaked_bytes

    def used_bytes(self) -> int:
        return total_bytes(self._pids())

    def resident_bytes(self) -> int:
        return sum(resident_bytes(pid) for pid in self._pids())


def internal_error(message: str) -> Reply:
    return {"code": INTERNAL_ERROR, "message": f"Internal Error: {message}"}


def failure(outer: str, code: str, message: str) -> Reply:
    return {"code": FAILED, "data": {"code": code, "message": message}, "message": outer}


def _repeated(key: str) -> Reply:
    message = f"Biz: {key} has been installed or registered."
    return failure("install biz not success!", REPEAT_BIZ, message)


def _trace(problem: StartFailed) -> str:
    """In the form that reads like arklet's: the cause is the last line of what Python says."""
    text = str(problem).strip()
    return f"{text}\nCaused by: {text.splitlines()[-1] if text else 'unknown'}"
