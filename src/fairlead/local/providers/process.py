"""The process provider: containers are local processes, each pod with a loopback address of its own.

A keeper process (`keeper.py`) starts them, writes their logs and takes them all down when this process is gone,
however it went. Where mount namespaces are allowed a container sees its volumes at their mount paths and a hosts file
with the names of Services and pods; elsewhere volumes are offered by variables and by translated paths. Limits are
not enforced.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import structlog

from fairlead.cluster.clock import Clock
from fairlead.local.providers import usage
from fairlead.local.providers.addresses import DEFAULT_RANGE, Addresses
from fairlead.local.providers.hostports import HostPorts
from fairlead.local.providers.images import NoSuchImage, command_line
from fairlead.local.providers.keeper import MARK, marked
from fairlead.nodes.env import expand
from fairlead.nodes.logs import read_log
from fairlead.nodes.moments import Moments
from fairlead.nodes.probing import probe_address
from fairlead.nodes.provider import (
    Folder,
    LogOptions,
    Notify,
    PodReport,
    ProbeResult,
    ProviderError,
    Run,
    RunPhase,
    RunReport,
    Sandbox,
    Traits,
    Unsupported,
    Usage,
)
from fairlead.nodes.spec import Container, Hook, Pod, Probe

log = structlog.get_logger("fairlead.process")

KEEPER = Path(__file__).with_name("keeper.py")
SHIM = Path(__file__).with_name("shim")
# What still runs when we stop has this long before it is killed.
STOP_S = 3.0
READY_S = 10.0
MOST_EVENT_BYTES = 1 << 20
# As much of a container's last words, and of its log in their place, as a kubelet takes.
MOST_LAST_WORDS = 4096
MOST_LAST_LOG = 2048
MOST_LAST_LINES = 80
# As long as Linux takes; a kubelet cuts the pod's name as well.
MOST_HOSTNAME = 63

NamesWithin = Callable[[str], Mapping[str, tuple[str, ...]]]
"""Namespace → the names that mean something there, each with its addresses."""


@dataclass(slots=True)
class Job:
    """One run and what became of it."""

    run: Run
    report: RunReport
    id: str
    kill_at: datetime | None = None


@dataclass(slots=True)
class Box:
    """One pod here: its address, its folder, its runs."""

    pod: Pod
    ip: str
    folder: Path
    volumes: Mapping[str, Folder] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)

    @property
    def hostname(self) -> str:
        return (self.pod.spec.hostname or self.pod.metadata.name)[:MOST_HOSTNAME].rstrip("-.")

    @property
    def hosts(self) -> Path:
        return self.folder / "hosts"

    def log(self, container: str, attempt: int) -> Path:
        return self.folder / "logs" / container / f"{attempt}.log"

    def last_words(self, container: str) -> Path:
        """What the container finds at its terminationMessagePath."""
        return self.folder / "logs" / container / "last-words"

    def volume(self, name: str) -> str:
        """Where the volume is on this machine."""
        found = self.volumes.get(name)
        return found.host_path if found is not None and found.host_path else str(self.folder / "volumes" / name)


class ProcessProvider:
    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        pod_range: str = DEFAULT_RANGE,
        mounts: bool = True,
        low_ports: bool | None = None,
    ) -> None:
        """`folder` is the provider's own; with `mounts=False` pods get no mount namespaces even where allowed.

        `low_ports` tells whether pods may listen below 1024; left out, this process's own right counts.
        """
        self._folder = folder.absolute()
        self._clock = clock
        self._addresses = Addresses(pod_range)
        self._host_ports = HostPorts(clock)
        self._wants_mounts = mounts
        self._low_ports = may_listen_low() if low_ports is None else low_ports
        self._boxes: dict[str, Box] = {}
        self._jobs: dict[str, tuple[Box, Job]] = {}
        self._notify: Notify = lambda uid: None
        self._kills: Moments[str] = Moments(clock)
        self._keeper: Keeper | None = None
        self._starting = asyncio.Lock()
        self._tasks: asyncio.TaskGroup | None = None
        self._names: NamesWithin = lambda namespace: {}
        self._execs = 0
        self._found = frozenset(_folders(self._folder / "pods"))

    @property
    def traits(self) -> Traits:
        return Traits()

    def listen(self, notify: Notify) -> None:
        self._notify = notify

    # -- life -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Kills what has had its grace, until cancelled; then asks everything to end and lets the keeper finish it."""
        try:
            await self._kept()
            async with asyncio.TaskGroup() as self._tasks:
                await self._kills.run(self._kill)
        finally:
            self._tasks = None
            await self._end()

    async def mode(self) -> str:
        """How pods see their volumes and names here, as a sentence for people."""
        keeper = await self._kept()
        if keeper.has_mounts and self._wants_mounts:
            return "pods see their volumes at their mount paths and resolve Service names (mount namespaces)"
        why = keeper.why if self._wants_mounts else "switched off"
        return (
            f"no mount namespaces here ({why}): volumes are in FAIRLEAD_VOLUME_<NAME> and in translated paths, "
            "Services in <NAME>_SERVICE_HOST and <NAME>_SERVICE_PORT"
        )

    async def _kept(self) -> "Keeper":
        """The keeper, started if there is none (any more)."""
        async with self._starting:
            if self._keeper is None or self._keeper.is_gone:
                await asyncio.to_thread(self._sweep)
                self._keeper = await Keeper.started(self._folder, self._heard, self._lost)
                log.info("keeper ready", pid=self._keeper.pid, mounts=self._keeper.has_mounts, why=self._keeper.why)
            return self._keeper

    def _sweep(self) -> None:
        """End what an earlier keeper could not, because it was killed itself: known by the mark, never by a name."""
        (self._folder / "pods").mkdir(parents=True, exist_ok=True)
        for pid in marked(f"{self._folder}/"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    async def _end(self) -> None:
        self._addresses.release_all()
        await self._host_ports.release_all()
        keeper = self._keeper
        if keeper is None:
            return
        running = [job for _, job in self._jobs.values()]
        for job in running:
            keeper.signal(job.id, signal.SIGTERM)
        if running and not keeper.is_gone:
            waiting = asyncio.ensure_future(self._all_ended())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(waiting, STOP_S)
        await keeper.close()
        self._keeper = None

    async def _all_ended(self) -> None:
        while self._jobs:
            assert self._keeper is not None
            await self._keeper.heard.wait()
            self._keeper.heard.clear()

    # -- the port -------------------------------------------------------------------------------------------

    async def create(self, sandbox: Sandbox) -> None:
        pod = sandbox.pod
        await self._kept()
        box = self._boxes.get(pod.uid)
        if box is None:
            folder = self._folder / "pods" / pod.uid
            wish = pod.status.pod_ip
            ip = "127.0.0.1" if pod.spec.host_network else self._addresses.hold(pod.uid, wish)
            box = self._boxes[pod.uid] = Box(pod, ip, folder)
        box.pod, box.volumes = pod, sandbox.volumes
        try:
            await asyncio.to_thread(self._write, box)
        except OSError as problem:
            raise ProviderError(f"the pod's folder cannot be written: {problem}") from problem

    async def adopt(self, pod: Pod) -> None:
        """Processes end with the Fairlead that started them: there is nothing to be found again."""

    async def update(self, uid: str, runs: tuple[Run, ...]) -> None:
        box = self._boxes.get(uid)
        if box is None:
            return
        named = {run.container.name for run in runs}
        for name, job in box.jobs.items():
            if name not in named and job.report.phase is not RunPhase.EXITED:
                self._stop(box, job, self._clock.now())
        for run in runs:
            known = box.jobs.get(run.container.name)
            if known is not None and known.run.attempt >= run.attempt:
                if run.kill_at is not None:
                    self._stop(box, known, run.kill_at)
            elif run.kill_at is not None:
                box.jobs[run.container.name] = self._never_begun(run)
            else:
                await self._start(box, run)

    async def delete(self, uid: str, grace_s: float = 0.0) -> None:
        box = self._boxes.get(uid)
        if box is not None:
            kill_at = self._clock.now() + timedelta(seconds=grace_s)
            for job in box.jobs.values():
                self._stop(box, job, kill_at)
            while any(job.id in self._jobs for job in box.jobs.values()):
                if self._keeper is None or self._keeper.is_gone:
                    break
                await self._keeper.heard.wait()
                self._keeper.heard.clear()
            self._boxes.pop(uid, None)
            self._addresses.release(uid)
            await self._host_ports.release(uid)
        self._found -= {uid}
        if re.fullmatch(r"[\w-]+", uid):
            await asyncio.to_thread(shutil.rmtree, self._folder / "pods" / uid, ignore_errors=True)

    def status(self, uid: str) -> PodReport | None:
        box = self._boxes.get(uid)
        if box is None:
            return None
        return PodReport(box.ip, {name: job.report for name, job in box.jobs.items()})

    def known(self) -> frozenset[str]:
        return frozenset(self._boxes) | self._found

    async def probe(self, uid: str, container: str, probe: Probe) -> ProbeResult:
        box = self._boxes.get(uid)
        job = box.jobs.get(container) if box is not None else None
        if box is None or job is None:
            return ProbeResult(False, "the container is not there")
        result = await probe_address(box.ip, job.run.container, probe)
        if result is not None:
            return result
        if probe.exec is None or not probe.exec.command:
            return ProbeResult(False, "probes can be httpGet, tcpSocket or exec on a process node")
        return await self._exec(box, job, probe.exec.command, probe.timeout_seconds)

    def usage(self, uid: str) -> Mapping[str, Usage]:
        box = self._boxes.get(uid)
        if box is None:
            return {}
        pids = {name: int(job.report.id.rpartition("/")[2] or 0) for name, job in box.jobs.items() if job.report.id}
        return {name: usage.of_session(pid) for name, pid in pids.items()}

    def logs(self, uid: str, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        box = self._boxes.get(uid)
        attempt = self._logged_attempt(uid, container, options.previous)
        if attempt is None:
            which = "previous terminated " if options.previous else ""
            raise Unsupported(f"{which}container {container!r} in pod {uid} has not written a log")
        folder = box.folder if box is not None else self._folder / "pods" / uid
        path = folder / "logs" / container / f"{attempt}.log"

        def is_live() -> bool:
            job = box.jobs.get(container) if box is not None else None
            return job is not None and job.run.attempt == attempt and job.report.phase is not RunPhase.EXITED

        return read_log(path, options, clock=self._clock, is_live=is_live)

    def _logged_attempt(self, uid: str, container: str, previous: bool) -> int | None:
        if not re.fullmatch(r"[\w-]+", uid) or not re.fullmatch(r"[\w.-]+", container):
            return None
        try:
            names = os.listdir(self._folder / "pods" / uid / "logs" / container)
        except OSError:
            return None
        attempts = sorted(int(name.removesuffix(".log")) for name in names if re.fullmatch(r"\d+\.log", name))
        if previous:
            return attempts[-2] if len(attempts) > 1 else None
        return attempts[-1] if attempts else None

    # -- names ----------------------------------------------------------------------------------------------

    async def set_names(self, names: NamesWithin) -> None:
        """What names mean inside the pods of a namespace: `{"web": ("127.96.0.1",), "web.default.svc": …}`."""
        self._names = names
        boxes = list(self._boxes.values())
        await asyncio.to_thread(self._write_all_hosts, boxes)

    def _write_all_hosts(self, boxes: list[Box]) -> None:
        for box in boxes:
            self._write_hosts(box)

    def _write_hosts(self, box: Box) -> None:
        names = self._names(box.pod.metadata.namespace)
        by_address: dict[str, list[str]] = {}
        for name, addresses in names.items():
            for address in addresses:
                by_address.setdefault(address, []).append(name)
        lines = [
            "# Written by Fairlead for this pod.",
            "127.0.0.1 localhost",
            "::1 localhost",
            f"{box.ip} {box.hostname}",
        ]
        lines += [f"{address} {' '.join(sorted(found))}" for address, found in sorted(by_address.items())]
        text = ("\n".join(lines) + "\n").encode()
        # The same file all its life: the pod has it mounted, and another file under its name it would never see.
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(box.hosts, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                os.pwrite(handle, text, 0)
                os.ftruncate(handle, len(text))
            finally:
                os.close(handle)

    # -- folders --------------------------------------------------------------------------------------------

    def _write(self, box: Box) -> None:
        for part in ("volumes", "logs", "tmp", "root"):
            (box.folder / part).mkdir(parents=True, exist_ok=True)
        self._write_hosts(box)
        for name, volume in box.volumes.items():
            if volume.host_path:
                if not volume.is_host_file:
                    Path(volume.host_path).mkdir(parents=True, exist_ok=True)
                continue
            folder = box.folder / "volumes" / name
            folder.mkdir(exist_ok=True)
            if volume.files is not None:
                _write_files(folder, {path: (file.content, file.mode) for path, file in volume.files.items()})

    # -- runs -----------------------------------------------------------------------------------------------

    async def _start(self, box: Box, run: Run) -> None:
        name = run.container.name
        keeper = await self._kept()
        job = Job(run, RunReport(run.attempt, RunPhase.WAITING), f"{self._folder}/{box.pod.uid}/{name}/{run.attempt}/")
        box.jobs[name] = job
        if not self._low_ports and (closed := low_port(run.container)) is not None:
            job.report = replace(
                job.report,
                reason="PortNotPermitted",
                message=f"port {closed} is below {first_open_port()} and Fairlead may not listen there: use a higher "
                "containerPort, or run Fairlead with CAP_NET_BIND_SERVICE",
            )
            return
        if closed_why := await self._host_ports.hold(box.pod, box.ip):
            job.report = replace(job.report, reason="HostPortNotAvailable", message=closed_why)
            return
        try:
            argv = command_line(run.container, run.command, run.args)
        except NoSuchImage as problem:
            job.report = replace(job.report, reason="ErrImagePull", message=str(problem))
            return
        path = box.log(name, run.attempt)
        await asyncio.to_thread(_make_log_room, path, run.attempt)
        box.last_words(name).write_bytes(b"")
        order = self._order(box, run, keeper, argv) | {"op": "start", "id": job.id, "log": str(path)}
        self._jobs[job.id] = (box, job)
        await keeper.ask(order)

    def _order(self, box: Box, run: Run, keeper: "Keeper", argv: list[str]) -> dict[str, Any]:
        """What the keeper needs to become this container."""
        has_mounts = keeper.has_mounts and self._wants_mounts
        env = {**self._env(box), **run.env}
        # Ours goes first, so that a program's own path does not cost it its address.
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(SHIM), run.env.get("PYTHONPATH"))))
        mark = f"{self._folder}/{box.pod.uid}/{run.container.name}/{run.attempt}/"
        cwd = run.container.working_dir or str(box.folder / "tmp")
        mounts = self._mounts(box, run.container, run.env)
        order: dict[str, Any] = {"mounts": [], "root": ""}
        if has_mounts:
            order["mounts"] = sorted(mounts, key=lambda mount: mount[1].count("/"))
            order["mounts"].append((str(box.hosts), "/etc/hosts", False))
            order["root"] = str(box.folder / "root")
            order["hostname"] = "" if box.pod.spec.host_network else box.hostname
        else:
            argv = [translated(word, mounts) for word in argv]
            env = {name: translated(value, mounts) for name, value in env.items()}
            cwd = translated(cwd, mounts)
        is_free = not run.container.working_dir
        return {**order, "argv": argv, "env": {**env, MARK: mark}, "cwd": cwd, "any_cwd": is_free}

    def _env(self, box: Box) -> dict[str, str]:
        """What every container finds besides its own variables, which go before these."""
        meta = box.pod.metadata
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(box.folder / "tmp"),
            "TMPDIR": str(box.folder / "tmp"),
            "LANG": "C.UTF-8",
            "HOSTNAME": box.hostname,
            "POD_NAME": meta.name,
            "POD_NAMESPACE": meta.namespace,
            "POD_UID": meta.uid,
            "POD_IP": box.ip,
            "HOST_IP": "127.0.0.1",
            "NODE_NAME": box.pod.spec.node_name,
            "PYTHONUNBUFFERED": "1",
        }
        for name in box.volumes:
            env[f"FAIRLEAD_VOLUME_{re.sub(r'[^A-Z0-9]', '_', name.upper())}"] = box.volume(name)
        return env

    def _mounts(self, box: Box, container: Container, env: Mapping[str, str]) -> list[tuple[str, str, bool]]:
        found = []
        for mount in container.volume_mounts or ():
            if mount.name not in box.volumes:
                continue
            source = box.volume(mount.name)
            inside = mount.sub_path or expand(mount.sub_path_expr, env)
            if inside and ".." not in inside.split("/"):
                source = os.path.join(source, inside.lstrip("/"))
                if not os.path.exists(source):
                    os.makedirs(source, exist_ok=True)
            is_read_only = mount.read_only or box.volumes[mount.name].is_read_only
            found.append((source, "/" + mount.mount_path.strip("/"), is_read_only))
        words = box.last_words(container.name)
        if words.exists():
            found.append((str(words), "/" + container.termination_message_path.strip("/"), False))
        return found

    def _never_begun(self, run: Run) -> Job:
        now = self._clock.now()
        report = RunReport(run.attempt, RunPhase.EXITED, now, now, 137, reason="Error")
        return Job(run, report, "")

    def _stop(self, box: Box, job: Job, kill_at: datetime) -> None:
        """Ask it to end, once; and have it killed at the moment given, or at an earlier one given before."""
        if job.report.phase is RunPhase.EXITED or (job.kill_at is not None and job.kill_at <= kill_at):
            return
        is_first, job.kill_at = job.kill_at is None, kill_at
        if job.id not in self._jobs:
            now = self._clock.now()
            job.report = replace(job.report, phase=RunPhase.EXITED, finished_at=now, exit_code=137)
            self._notify(box.pod.uid)
            return
        assert self._keeper is not None, "what runs was started by a keeper"
        if kill_at <= self._clock.now():
            self._keeper.signal(job.id, signal.SIGKILL)
            return
        self._kills.add(kill_at, job.id)
        if not is_first:
            return
        hook = job.run.container.lifecycle.pre_stop if job.run.container.lifecycle else None
        if hook is not None and self._tasks is not None and job.report.phase is RunPhase.RUNNING:
            self._tasks.create_task(self._before_stop(box, job, hook, kill_at), name=f"preStop {job.id}")
        else:
            self._keeper.signal(job.id, signal.SIGTERM)

    async def _before_stop(self, box: Box, job: Job, hook: Hook, kill_at: datetime) -> None:
        """The hook first, within the grace; then the container is asked to end."""
        left_s = max(0.0, (kill_at - self._clock.now()).total_seconds())
        await self._hooked(box, job, hook, left_s)
        if job.id in self._jobs and self._keeper is not None:
            self._keeper.signal(job.id, signal.SIGTERM)

    async def _after_start(self, box: Box, job: Job, hook: Hook) -> None:
        """A container whose hook fails is ended."""
        result = await self._hooked(box, job, hook, float(box.pod.grace_s) or 30.0)
        if not result.ok:
            job.report = replace(job.report, message=f"postStart hook failed: {result.output}")
            self._stop(box, job, self._clock.now() + timedelta(seconds=box.pod.grace_s))

    async def _hooked(self, box: Box, job: Job, hook: Hook, within_s: float) -> ProbeResult:
        if hook.exec is not None and hook.exec.command:
            try:
                return await self._exec(box, job, hook.exec.command, within_s)
            except ProviderError as problem:
                return ProbeResult(False, str(problem))
        if hook.http_get is not None:
            asked = Probe(http_get=hook.http_get, timeout_seconds=max(1, int(within_s)))
            return await probe_address(box.ip, job.run.container, asked) or ProbeResult(True)
        if hook.sleep is not None:
            await self._clock.sleep(min(within_s, hook.sleep.seconds))
        return ProbeResult(True)

    async def _kill(self, at: datetime, identity: str) -> None:
        found = self._jobs.get(identity)
        if found is not None and found[1].kill_at is not None and found[1].kill_at <= at and self._keeper is not None:
            self._keeper.signal(identity, signal.SIGKILL)

    def _heard(self, event: dict[str, Any]) -> None:
        """The keeper says what became of a run."""
        box, job = self._jobs.get(event["id"], (None, None))
        if box is None or job is None:
            return
        now = self._clock.now()
        match event["event"]:
            case "started":
                identity = f"process://{event['pid']}"
                job.report = replace(job.report, phase=RunPhase.RUNNING, started_at=now, id=identity)
                if job.kill_at is not None and self._keeper is not None:
                    # It was to end while it was being started.
                    self._keeper.signal(job.id, signal.SIGTERM)
                hook = job.run.container.lifecycle.post_start if job.run.container.lifecycle else None
                if hook is not None and self._tasks is not None:
                    self._tasks.create_task(self._after_start(box, job, hook), name=f"postStart {job.id}")
                self._notify(box.pod.uid)
            case "failed":
                self._jobs.pop(job.id)
                message = f"failed to {event['stage']}: {event['problem']}"
                job.report = replace(job.report, reason="StartError", message=message)
                self._ended(box, job, 128, 0)
            case "exited":
                self._jobs.pop(job.id)
                self._ended(box, job, event["code"], event["signal"])

    def _lost(self) -> None:
        """The keeper is gone, and with it everything it kept."""
        for identity in list(self._jobs):
            box, job = self._jobs.pop(identity)
            self._ended(box, job, 137, signal.SIGKILL)

    def _ended(self, box: Box, job: Job, code: int, number: int) -> None:
        job.report = replace(
            job.report,
            phase=RunPhase.EXITED,
            finished_at=self._clock.now(),
            exit_code=code,
            signal=number,
            message=job.report.message or _said_last(box, job, code),
        )
        if self._tasks is not None and all(job.report.phase is RunPhase.EXITED for job in box.jobs.values()):
            # A pod that has ended may be there for long; its ports are others' to have.
            self._tasks.create_task(self._host_ports.release(box.pod.uid), name=f"host ports {box.pod.uid}")
        self._notify(box.pod.uid)

    async def _exec(self, box: Box, job: Job, command: tuple[str, ...], timeout_s: float) -> ProbeResult:
        """A command beside the container, with its environment and its view of the files; its words as they are."""
        keeper = await self._kept()
        self._execs += 1
        identity = f"exec-{self._execs}"
        order = self._order(box, job.run, keeper, list(command)) | {"op": "exec", "id": identity}
        try:
            async with asyncio.timeout(timeout_s):
                answer = await keeper.ask(order, until="output")
        except TimeoutError:
            keeper.signal(identity, signal.SIGKILL)
            return ProbeResult(False, f"command timed out after {timeout_s} s")
        if answer.get("event") != "output":
            return ProbeResult(False, str(answer.get("problem", "the keeper is gone")))
        return ProbeResult(answer["code"] == 0, answer["text"].strip() or f"exit code {answer['code']}")


class Keeper:
    """Our end of the line to the keeper process."""

    def __init__(self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._process = process
        self._reader = reader
        self._writer = writer
        self._asked: dict[str, tuple[str, asyncio.Future[dict[str, Any]]]] = {}
        self._listening: asyncio.Task[None] | None = None
        self._is_closing = False
        self.pid = process.pid
        self.is_gone = False
        self.has_mounts = False
        self.why = ""
        self.heard = asyncio.Event()
        """Set whenever something ended, or the keeper did."""

    @classmethod
    async def started(cls, folder: Path, heard: Any, lost: Any) -> "Keeper":
        process, ours = _spawned(folder)
        writer: asyncio.StreamWriter | None = None
        try:
            reader, writer = await asyncio.open_connection(sock=ours, limit=MOST_EVENT_BYTES)
            ready = await _first_word(reader)
        except BaseException:
            # It keeps nothing yet, so it may be ended without ceremony.
            ours.close() if writer is None else writer.close()
            process.kill()
            process.wait()
            raise
        keeper = cls(process, reader, writer)
        keeper.has_mounts, keeper.why = ready["mounts"], ready["why"]
        keeper._listening = asyncio.create_task(keeper._listen(heard, lost), name="keeper")
        return keeper

    async def ask(self, order: dict[str, Any], until: str = "started") -> dict[str, Any]:
        """The answer to an order; an empty one if the keeper is gone."""
        answered: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[order["id"]] = (until, answered)
        try:
            self._send(order)
            return await answered
        finally:
            self._asked.pop(order["id"], None)

    def signal(self, identity: str, number: int) -> None:
        self._send({"op": "signal", "id": identity, "signal": int(number)})

    async def close(self) -> None:
        """Hang up, which ends everything it keeps, and wait for its end."""
        self._is_closing = True
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        if self._listening is not None:
            self._listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listening
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, 15.0)

    def _send(self, order: dict[str, Any]) -> None:
        if self.is_gone:
            if (asked := self._asked.get(order["id"])) is not None and not asked[1].done():
                asked[1].set_result({})
            return
        self._writer.write(json.dumps(order).encode() + b"\n")

    async def _listen(self, heard: Any, lost: Any) -> None:
        try:
            while line := await self._reader.readline():
                event = json.loads(line)
                until, answered = self._asked.get(event["id"], ("", None))
                heard(event)
                self.heard.set()
                if event["event"] in (until, "failed") and answered is not None and not answered.done():
                    answered.set_result(event)
        except (OSError, ValueError) as problem:
            log.error("the keeper is not understood", problem=str(problem))
        self.is_gone = True
        if not self._is_closing:
            log.warning("the keeper is gone", pid=self.pid)
        for _, answered in self._asked.values():
            if answered is not None and not answered.done():
                answered.set_result({})
        lost()
        self.heard.set()
        self._writer.close()
        await asyncio.to_thread(self._process.wait)


def _spawned(folder: Path) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The keeper process and our end of the line; a matter of a millisecond, and never left half done."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-I", "-S", str(KEEPER), str(theirs.fileno()), str(folder)]
    with theirs:
        try:
            # Not to be interrupted by Ctrl-C, nor killed with our group: it must outlive us by a moment.
            process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as problem:
            ours.close()
            raise ProviderError(f"the keeper of processes cannot be started: {problem}") from problem
    return process, ours


async def _first_word(reader: asyncio.StreamReader) -> dict[str, Any]:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(READY_S):
            said = json.loads(await reader.readline() or b"{}")
            if isinstance(said, dict) and said.get("event") == "ready":
                return said
    raise ProviderError("the keeper of processes did not start; its reason is on standard error")


# --- what a machine allows and how paths are written ------------------------------------------------------


def first_open_port() -> int:
    """The lowest port anybody may listen on."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    except (OSError, ValueError):
        return 1024


def may_listen_low() -> bool:
    """Whether this process has CAP_NET_BIND_SERVICE."""
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return os.geteuid() == 0
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", text, re.MULTILINE)
    return bool(found and int(found[1], 16) & (1 << 10))


def low_port(container: Container) -> int | None:
    """A port of the container that takes a right to listen on."""
    low = [port.container_port for port in container.ports or () if 0 < port.container_port < first_open_port()]
    return low[0] if low else None


def _said_last(box: Box, job: Job, code: int) -> str:
    """What a container left behind as its last words; the end of its log, where it asked for that and failed."""
    container = job.run.container
    words = _end_of(box.last_words(container.name), MOST_LAST_WORDS)
    if not words and code and container.termination_message_policy == "FallbackToLogsOnError":
        logged = _end_of(box.log(container.name, job.run.attempt), 4 * MOST_LAST_LOG).split("\n")
        # Each line is logged with its time, its stream and whether it is whole.
        lines = [parts[3] for line in logged if len(parts := line.split(" ", 3)) == 4]
        words = "".join(f"{line}\n" for line in lines[-MOST_LAST_LINES:])[-MOST_LAST_LOG:]
    return words


def _end_of(path: Path, most: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most))
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def translated(text: str, mounts: list[tuple[str, str, bool]]) -> str:
    """The text with mount paths in it written as the folders they stand for, longest first."""
    for source, path, _ in sorted(mounts, key=lambda mount: -len(mount[1])):
        if path in text:
            text = re.sub(rf"(?<![\w./-]){re.escape(path)}(?=/|$|[^\w.-])", lambda _: source, text)  # noqa: B023
    return text


def _folders(path: Path) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _make_log_room(path: Path, attempt: int) -> None:
    """Logs of the last two attempts are kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in range(max(0, attempt - 20), attempt - 1):
        for name in (f"{old}.log", f"{old}.log.1"):
            path.with_name(name).unlink(missing_ok=True)


def _write_files(folder: Path, files: Mapping[str, tuple[bytes, int]]) -> None:
    """The folder holds exactly these files; one that is unchanged is not touched, one that changes does so at once."""
    for path, (content, mode) in files.items():
        target = folder / path
        if target.is_file() and target.read_bytes() == content:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.new")
        fresh.write_bytes(content)
        fresh.chmod(mode)
        fresh.replace(target)
    for target in sorted(folder.rglob("*"), reverse=True):
        name = target.relative_to(folder).as_posix()
        if target.is_dir():
            with contextlib.suppress(OSError):
                target.rmdir()
        elif name not in files:
            target.unlink()
