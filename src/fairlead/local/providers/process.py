"""The process provider: containers are local processes, each pod with a loopback address of its own.

A supervisor process (`supervisor.py`) starts them, writes their logs and takes them all down when this process is gone,
however it went. Where mount namespaces are allowed a container sees its volumes at their mount paths and a hosts file
with the names of Services and pods; elsewhere volumes are offered by variables and by translated paths. Limits are
not enforced.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from fairlead.cluster.clock import Clock
from fairlead.local.providers import usage
from fairlead.local.providers.addresses import HOST, Addresses
from fairlead.local.providers.hostports import HostPorts
from fairlead.local.providers.images import NoSuchImage, command_line
from fairlead.local.providers.lowports import first_open_port, low_port, may_listen_low
from fairlead.local.providers.pod_sandbox import (
    ContainerProcess,
    PodSandbox,
    Private,
    logged_attempt,
    make_log_room,
    order_of,
    termination_message,
    write_folders,
    write_hosts,
)
from fairlead.local.providers.sessions import CommandSession, ContainerSession, Files
from fairlead.local.providers.supervisor import kill, marked
from fairlead.local.providers.supervisor_client import SupervisorClient
from fairlead.nodes.logs import read_log
from fairlead.nodes.probing import probe_address
from fairlead.nodes.provider import (
    LogOptions,
    Notify,
    NotRunning,
    NotStarted,
    PodReport,
    ProbeResult,
    ProviderError,
    Run,
    RunPhase,
    RunReport,
    Sandbox,
    Session,
    StreamOptions,
    Traits,
    Unsupported,
    Usage,
)
from fairlead.nodes.spec import Hook, KubeletPod, Probe
from fairlead.nodes.timer_queue import TimerQueue

log = structlog.get_logger("fairlead.process")

# What still runs when we stop has this long before it is killed.
STOP_S = 3.0
# A pod on this machine answers at once, or not at all.
DIAL_S = 10.0

NamesWithin = Callable[[str], Mapping[str, tuple[str, ...]]]
"""Namespace → the names that mean something there, each with its addresses."""


class ProcessProvider:
    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        mounts: bool = True,
        low_ports: bool | None = None,
        private: Private | None = None,
        node_addresses: Mapping[str, str] | None = None,
    ) -> None:
        """`folder` is the provider's own; with `mounts=False` pods get no mount namespaces even where allowed.

        `low_ports`: whether pods may listen below 1024; left out, this process's own right counts. `private` is
        what pods do not see, where that is more than the provider's folder. `node_addresses` are those of the nodes
        whose pods it runs; one that is left out has the machine's.
        """
        self._folder = folder.resolve()
        self._private = private or Private(self._folder)
        self._node_addresses = node_addresses or {}
        self._clock = clock
        self._addresses = Addresses()
        self._host_ports = HostPorts(clock)
        self._wants_mounts = mounts
        self._low_ports = may_listen_low() if low_ports is None else low_ports
        self._boxes: dict[str, PodSandbox] = {}
        self._jobs: dict[str, tuple[PodSandbox, ContainerProcess]] = {}
        self._notify: Notify = lambda uid: None
        self._kills: TimerQueue[str] = TimerQueue(clock)
        self._supervisor: SupervisorClient | None = None
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
        """Kill what has had its grace, until cancelled; then ask everything to end and let the supervisor finish it."""
        try:
            await self._kept()
            async with asyncio.TaskGroup() as self._tasks:
                await self._kills.run(self._kill)
        finally:
            self._tasks = None
            await self._end()

    async def mode(self) -> str:
        """How pods see their volumes and names here, as a sentence for people."""
        supervisor = await self._kept()
        if supervisor.ways and self._wants_mounts:
            return (
                "pods see their volumes at their mount paths, resolve Service names and do not see "
                f"{self._private.hidden} (mount namespaces)"
            )
        why = supervisor.why if self._wants_mounts else "switched off"
        return (
            f"no mount namespaces here ({why}): volumes are in FAIRLEAD_VOLUME_<NAME> and in translated paths, "
            "Services in <NAME>_SERVICE_HOST and <NAME>_SERVICE_PORT. WARNING: every pod can read "
            f"{self._private.hidden}, with the administrator's token and all Secrets: run no pods that you do not trust"
        )

    async def _kept(self) -> SupervisorClient:
        """The supervisor, started if there is none (any more)."""
        async with self._starting:
            if self._supervisor is None or self._supervisor.is_gone:
                await asyncio.to_thread(self._sweep)
                self._supervisor = await SupervisorClient.started(self._folder, self._handle_event, self._lost)
                log.info(
                    "supervisor ready", pid=self._supervisor.pid, ways=self._supervisor.ways, why=self._supervisor.why
                )
            return self._supervisor

    def _sweep(self) -> None:
        """End what an earlier supervisor, killed itself, could not: known by the mark, never by a name."""
        for folder in (self._folder, self._folder / "pods"):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)  # it may be there from before
        for pid in marked(f"{self._folder}/"):
            kill(os.kill, pid)

    async def _end(self) -> None:
        self._addresses.release_all()
        await self._host_ports.release_all()
        supervisor = self._supervisor
        if supervisor is None:
            return
        running = [job for _, job in self._jobs.values()]
        for job in running:
            supervisor.signal(job.id, signal.SIGTERM)
        if running and not supervisor.is_gone:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_ended(supervisor), STOP_S)
        await supervisor.close()
        self._supervisor = None

    async def _all_ended(self, supervisor: SupervisorClient) -> None:
        while self._jobs:
            await supervisor.next_activity()

    # -- the port -------------------------------------------------------------------------------------------

    async def create(self, sandbox: Sandbox) -> None:
        pod = sandbox.pod
        await self._kept()
        box = self._boxes.get(pod.uid)
        if box is None:
            folder = self._folder / "pods" / pod.uid
            wish = pod.status.pod_ip
            node_ip = self._node_addresses.get(pod.spec.node_name, HOST)
            ip = node_ip if pod.spec.host_network else self._addresses.hold(pod.uid, wish)
            box = self._boxes[pod.uid] = PodSandbox(pod, ip, folder, self._private, node_ip)
        box.pod, box.volumes = pod, sandbox.volumes
        try:
            await asyncio.to_thread(self._write, box)
        except OSError as problem:
            raise ProviderError(f"the pod's folder cannot be written: {problem}") from problem

    async def adopt(self, pod: KubeletPod) -> None:
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
                if self._supervisor is None or self._supervisor.is_gone:
                    break
                await self._supervisor.next_activity()
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
        attempt = logged_attempt(self._folder / "pods", uid, container, options.previous)
        if attempt is None:
            which = "previous terminated " if options.previous else ""
            raise Unsupported(f"{which}container {container!r} in pod {uid} has not written a log")
        folder = box.folder if box is not None else self._folder / "pods" / uid
        path = folder / "logs" / container / f"{attempt}.log"

        def is_live() -> bool:
            job = box.jobs.get(container) if box is not None else None
            return job is not None and job.run.attempt == attempt and job.report.phase is not RunPhase.EXITED

        return read_log(path, options, clock=self._clock, is_live=is_live)

    # -- streams --------------------------------------------------------------------------------------------

    def check_stream(self, uid: str, container: str, *, needs_stdin: bool) -> None:
        _, job = self._running(uid, container)
        if needs_stdin and not job.run.container.stdin:
            raise Unsupported(f"container {container} has no stdin: its spec needs stdin: true")

    async def exec(self, uid: str, container: str, command: tuple[str, ...], options: StreamOptions) -> Session:
        box, job = self._running(uid, container)
        supervisor = await self._kept()
        identity = self._next_id("exec")
        order = self._order(box, job.run, supervisor, list(command), tty=options.tty)
        try:
            files = Files.of_command(options)
        except OSError as problem:
            raise ProviderError(f"no terminal or pipes for the command: {problem}") from problem
        session = CommandSession(files, supervisor.end_of(identity), partial(supervisor.signal, identity))
        try:
            order |= {"op": "exec", "id": identity, "join": job.id}
            answer = await supervisor.ask(order, files=files.theirs)
            files.close_theirs()
            if answer.get("event") == "started":
                return session
            why = f"failed to {answer['stage']}: {answer['problem']}" if answer else "the supervisor process is gone"
            raise NotStarted(why)
        except BaseException:
            await session.close()
            raise

    async def attach(self, uid: str, container: str, options: StreamOptions) -> Session:
        self.check_stream(uid, container, needs_stdin=options.stdin)
        _, job = self._running(uid, container)
        supervisor = await self._kept()
        output = Files.of_output()
        try:
            order = {"op": "attach", "id": self._next_id("attach"), "run": job.id}
            answer = await supervisor.ask(order, until="attached", files=output.theirs)
            if answer.get("event") != "attached":
                raise NotRunning(f'container not found ("{container}")')
        except BaseException:
            output.close()
            raise
        output.close_theirs()
        once = options.stdin and job.run.container.stdin_once
        return ContainerSession(output, job.files, job.ended, once=once)

    async def dial(self, uid: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        box = self._boxes.get(uid)
        if box is None:
            raise ConnectionRefusedError("the pod is gone")
        try:
            async with asyncio.timeout(DIAL_S):
                return await asyncio.open_connection(box.ip, port)
        except TimeoutError:
            raise ConnectionRefusedError(f"no answer from {box.ip}:{port} within {DIAL_S:.0f} s") from None
        except OSError as problem:
            why = os.strerror(problem.errno) if problem.errno else str(problem)
            raise ConnectionRefusedError(f"failed to connect to {box.ip}:{port} of the pod: {why}") from None

    def _running(self, uid: str, container: str) -> tuple[PodSandbox, ContainerProcess]:
        box = self._boxes.get(uid)
        job = box.jobs.get(container) if box is not None else None
        if box is None or job is None or job.report.phase is not RunPhase.RUNNING:
            raise NotRunning(f'container not found ("{container}")')
        return box, job

    # -- names ----------------------------------------------------------------------------------------------

    async def set_names(self, names: NamesWithin) -> None:
        """What names mean inside the pods of a namespace: `{"web": ("127.96.0.1",), "web.default.svc": …}`."""
        self._names = names
        await asyncio.to_thread(self._write_hosts, *self._boxes.values())

    def _write_hosts(self, *boxes: PodSandbox) -> None:
        for box in boxes:
            write_hosts(box, self._names(box.pod.metadata.namespace))

    def _write(self, box: PodSandbox) -> None:
        write_folders(box)
        self._write_hosts(box)

    def _next_id(self, kind: str) -> str:
        self._execs += 1
        return f"{kind}-{self._execs}"

    def _order(
        self, box: PodSandbox, run: Run, supervisor: SupervisorClient, argv: list[str], *, tty: bool = False
    ) -> dict[str, Any]:
        """What the supervisor needs to become this container."""
        order = order_of(box, run, argv, self._mark(box, run), way=self._way(run, supervisor))
        if tty:
            order["tty"] = True
            order["env"].setdefault("TERM", "xterm")
        return order

    def _way(self, run: Run, supervisor: SupervisorClient) -> str:
        """How the container is kept to its own view; a user namespace would cost it its low port."""
        if not self._wants_mounts or not supervisor.ways:
            return ""
        return "pid" if low_port(run.container) is not None and "pid" in supervisor.ways else supervisor.ways[0]

    def _mark(self, box: PodSandbox, run: Run) -> str:
        """The mark in the environment of every process of the run, whatever its parent."""
        return f"{self._folder}/{box.pod.uid}/{run.container.name}/{run.attempt}/"

    # -- runs -----------------------------------------------------------------------------------------------

    async def _start(self, box: PodSandbox, run: Run) -> None:
        name = run.container.name
        supervisor = await self._kept()
        job = ContainerProcess(run, RunReport(run.attempt, RunPhase.WAITING), self._mark(box, run))
        box.jobs[name] = job
        may_listen_low = self._low_ports and self._way(run, supervisor) != "user"
        if (closed := low_port(run.container)) is not None and not may_listen_low:
            job.report = replace(
                job.report,
                reason="PortNotPermitted",
                message=f"port {closed} is below {first_open_port()} and Fairlead may not listen there: use a higher "
                "containerPort, or run Fairlead with CAP_NET_BIND_SERVICE",
            )
            return
        if closed_why := await self._host_ports.hold(box.pod, box.ip, box.node_ip):
            job.report = replace(job.report, reason="HostPortNotAvailable", message=closed_why)
            return
        try:
            argv = command_line(run.container, run.command, run.args)
        except NoSuchImage as problem:
            job.report = replace(job.report, reason="ErrImagePull", message=str(problem))
            return
        path = box.log(name, run.attempt)
        await asyncio.to_thread(make_log_room, path, run.attempt)
        box.termination_file(name).write_bytes(b"")
        container = run.container
        order = self._order(box, run, supervisor, argv, tty=container.tty)
        order |= {"op": "start", "id": job.id, "log": str(path)}
        try:
            job.files = Files.of_container(stdin=container.stdin, tty=container.tty)
            self._jobs[job.id] = (box, job)
            await supervisor.ask(order, files=job.files.theirs)
        except OSError as problem:
            raise ProviderError(f"no terminal or pipe for the container: {problem}") from problem
        finally:
            job.files.close_theirs()

    def _never_begun(self, run: Run) -> ContainerProcess:
        now = self._clock.now()
        report = RunReport(run.attempt, RunPhase.EXITED, now, now, 137, reason="Error")
        return ContainerProcess(run, report, "")

    def _stop(self, box: PodSandbox, job: ContainerProcess, kill_at: datetime) -> None:
        """Ask it to end, once; and have it killed at the moment given, or at an earlier one given before."""
        if job.report.phase is RunPhase.EXITED or (job.kill_at is not None and job.kill_at <= kill_at):
            return
        is_first, job.kill_at = job.kill_at is None, kill_at
        if job.id not in self._jobs:
            now = self._clock.now()
            job.report = replace(job.report, phase=RunPhase.EXITED, finished_at=now, exit_code=137)
            self._notify(box.pod.uid)
            return
        assert self._supervisor is not None, "what runs was started by a supervisor"
        if kill_at <= self._clock.now():
            self._supervisor.signal(job.id, signal.SIGKILL)
            return
        self._kills.add(kill_at, job.id)
        if not is_first:
            return
        hook = job.run.container.lifecycle.pre_stop if job.run.container.lifecycle else None
        if hook is not None and self._tasks is not None and job.report.phase is RunPhase.RUNNING:
            self._tasks.create_task(self._before_stop(box, job, hook, kill_at), name=f"preStop {job.id}")
        else:
            self._supervisor.signal(job.id, signal.SIGTERM)

    async def _before_stop(self, box: PodSandbox, job: ContainerProcess, hook: Hook, kill_at: datetime) -> None:
        """The hook first, within the grace; then the container is asked to end."""
        left_s = max(0.0, (kill_at - self._clock.now()).total_seconds())
        await self._hooked(box, job, hook, left_s)
        if job.id in self._jobs and self._supervisor is not None:
            self._supervisor.signal(job.id, signal.SIGTERM)

    async def _after_start(self, box: PodSandbox, job: ContainerProcess, hook: Hook) -> None:
        """A container whose hook fails is ended."""
        result = await self._hooked(box, job, hook, float(box.pod.grace_s) or 30.0)
        if not result.ok:
            why = f"postStart hook failed: {result.output}"
            job.report = replace(job.report, message=why, has_failed_hook=True)
            self._stop(box, job, self._clock.now() + timedelta(seconds=box.pod.grace_s))

    async def _hooked(self, box: PodSandbox, job: ContainerProcess, hook: Hook, within_s: float) -> ProbeResult:
        if hook.exec is not None and hook.exec.command:
            try:
                return await self._exec(box, job, hook.exec.command, within_s)
            except ProviderError as problem:
                return ProbeResult(False, str(problem))
        if hook.http_get is not None:
            probe = Probe(http_get=hook.http_get, timeout_seconds=max(1, int(within_s)))
            return await probe_address(box.ip, job.run.container, probe) or ProbeResult(True)
        if hook.sleep is not None:
            await self._clock.sleep(min(within_s, hook.sleep.seconds))
        return ProbeResult(True)

    async def _kill(self, at: datetime, identity: str) -> None:
        _, job = self._jobs.get(identity, (None, None))
        if job is not None and job.kill_at is not None and job.kill_at <= at and self._supervisor is not None:
            self._supervisor.signal(identity, signal.SIGKILL)

    def _handle_event(self, event: dict[str, Any]) -> None:
        """A report of the supervisor about a run."""
        box, job = self._jobs.get(event["id"], (None, None))
        if box is None or job is None:
            return
        now = self._clock.now()
        match event["event"]:
            case "started":
                identity = f"process://{event['pid']}"
                job.report = replace(job.report, phase=RunPhase.RUNNING, started_at=now, id=identity)
                if job.kill_at is not None and self._supervisor is not None:
                    # It was to end while it was being started.
                    self._supervisor.signal(job.id, signal.SIGTERM)
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
        """The supervisor is gone, and with it everything it kept."""
        for identity in list(self._jobs):
            box, job = self._jobs.pop(identity)
            self._ended(box, job, 137, signal.SIGKILL)

    def _ended(self, box: PodSandbox, job: ContainerProcess, code: int, number: int) -> None:
        job.files.close()
        job.ended.set()
        job.report = replace(
            job.report,
            phase=RunPhase.EXITED,
            finished_at=self._clock.now(),
            exit_code=code,
            signal=number,
            message=job.report.message or termination_message(box, job, code),
        )
        if self._tasks is not None and all(job.report.phase is RunPhase.EXITED for job in box.jobs.values()):
            # A pod that has ended may be there for long; its ports are others' to have.
            self._tasks.create_task(self._host_ports.release(box.pod.uid), name=f"host ports {box.pod.uid}")
        self._notify(box.pod.uid)

    async def _exec(
        self, box: PodSandbox, job: ContainerProcess, command: tuple[str, ...], timeout_s: float
    ) -> ProbeResult:
        """A command beside the container, with its environment and its view of the files; its words as they are."""
        supervisor = await self._kept()
        identity = self._next_id("exec")
        order = self._order(box, job.run, supervisor, list(command)) | {"op": "exec", "id": identity, "join": job.id}
        try:
            async with asyncio.timeout(timeout_s):
                answer = await supervisor.ask(order, until="output")
        except TimeoutError:
            supervisor.signal(identity, signal.SIGKILL)
            return ProbeResult(False, f"command timed out after {timeout_s} s")
        if answer.get("event") != "output":
            return ProbeResult(False, str(answer.get("problem", "the supervisor is gone")))
        return ProbeResult(answer["code"] == 0, answer["text"].strip() or f"exit code {answer['code']}")


def _folders(path: Path) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []
