"""The arklet provider: runs of containers are modules on bases, installed, verified and removed through arklet.

    wanted ─▶ verify (queryAllBiz) ─▶ install (asynchronous, by request id) ─▶ verify ─▶ running
                 │ there, and ours: adopted                │ failed: back-off, then again
    ended  ─▶ uninstall, if the module is ours ─▶ gone

What runs outlives us: nothing is uninstalled because we stop. One task per pod; every call is bounded in time.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Final

import structlog

from fairlead.cluster.clock import Clock
from fairlead.cluster.waits import first_of
from fairlead.modules import arklet, reports
from fairlead.modules.arklet import Answer, Outcome, outcome_of, sentence_of
from fairlead.modules.client import ArkletClient
from fairlead.modules.heartbeats import JAVA
from fairlead.modules.names import FAILURE_POLICY, INSTALL_STRATEGY
from fairlead.modules.operations import Operations
from fairlead.modules.spec import BROKEN, VERSION_NAMES, Module, ModuleState, module_of, modules_of, problem_with
from fairlead.modules.sweep import Sweeper
from fairlead.modules.traces import module_span, traceparent
from fairlead.nodes.probing import probe_address
from fairlead.nodes.provider import (
    LogOptions,
    Notify,
    NotNow,
    PodReport,
    ProbeResult,
    Run,
    RunPhase,
    RunReport,
    Sandbox,
    Traits,
    Unsupported,
    Usage,
)
from fairlead.nodes.spec import Container, KubeletPod, Probe

log = structlog.get_logger("fairlead.modules")

FIRST_BACKOFF_S: Final = 5.0
MOST_MEASURED: Final = 10_000
MOST_BACKOFF_S: Final = 300.0
BUSY_S: Final = 1.0
GROUP_S: Final = 0.2
AWAY_S: Final = 2.0


WriteLedger = Callable[[str], Awaitable[bool]]
"""Makes the ledger of a node durable; whether that is done."""


async def _without_ledger(node: str) -> bool:
    return True


ReadLog = Callable[[str, LogOptions], AsyncIterator[bytes]]


class Halted(Exception):
    """We may not send commands any more: another replica may lead."""


@dataclass(slots=True)
class Served:
    """A base as the provider knows it."""

    address: tuple[str, int]
    wake: Callable[[], None]
    owners: dict[str, str] = field(default_factory=dict)
    """Which pod a module is for, by `name:version`."""
    usage: dict[str, Usage] = field(default_factory=dict)
    ledger: set[str] = field(default_factory=set)
    """What was installed through us, whether or not its pod still is."""
    begun: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Installs that were not seen to their end, with the other versions that were there before."""
    begun_on_node: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The same as the node tells it: with ends it has not heard of, which would be a write each."""
    is_stopping: bool = False
    """The base said goodbye: what still runs there serves nobody new."""
    stack: str = ""
    is_released: bool = False
    """Another replica is to serve it: no command is begun any more."""
    in_flight: int = 0
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    @contextmanager
    def command(self) -> Iterator[None]:
        """A command to the base is under way in this block."""
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
            self.settled.set()


@dataclass(slots=True)
class PodWork:
    pod: KubeletPod
    runs: dict[str, RunReport] = field(default_factory=dict)
    desired: dict[str, Run] = field(default_factory=dict)
    events: dict[str, asyncio.Event] = field(default_factory=dict)
    """Each container's own, so that none takes another's wakeup."""
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    containers: dict[str, Container] = field(default_factory=dict)
    """As the present attempt of each was ordered: the image of a pod may change while an old one is still here."""

    def modules(self) -> dict[str, Module]:
        found = {each.name: self.containers.get(each.name, each) for each in self.pod.spec.containers}
        return {name: module_of(each, self.pod.metadata.annotations) for name, each in found.items()}

    def event(self, container: str) -> asyncio.Event:
        return self.events.setdefault(container, asyncio.Event())

    def wake(self) -> None:
        for event in self.events.values():
            event.set()


class ArkletProvider:
    def __init__(
        self,
        client: ArkletClient,
        clock: Clock,
        may_act: Callable[[], bool] = lambda: True,
        sweeper: Sweeper | None = None,
    ) -> None:
        """`may_act`: whether our lease still allows commands to bases; `sweeper` removes strays."""
        self._sweeper = sweeper
        self._client = client
        self._operations = Operations(client, clock)
        self._clock = clock
        self._may_act = may_act
        self._notify: Notify = lambda uid: None
        self._pods: dict[str, PodWork] = {}
        self._on_nodes: dict[str, dict[str, PodWork]] = {}
        self._bases: dict[str, Served] = {}
        self._write_ledger: WriteLedger = _without_ledger
        self._read_base_log: ReadLog | None = None

    def read_base_logs(self, read: ReadLog) -> None:
        """How the log of a node's base is read: Java's modules have none of their own."""
        self._read_base_log = read

    def keep_ledger(self, write: WriteLedger) -> None:
        """How the ledger of a node is made durable; awaited before each install."""
        self._write_ledger = write

    @property
    def traits(self) -> Traits:
        return Traits(volumes=False, own_addresses=False, ends_by_itself=False, outlives_us=True)

    def listen(self, notify: Notify) -> None:
        self._notify = notify

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for work in self._pods.values():
                for task in work.tasks.values():
                    task.cancel()

    # -- bases ----------------------------------------------------------------------------------------------

    def serve(
        self,
        node: str,
        address: tuple[str, int],
        wake: Callable[[], None],
        ledger: Iterable[str] = (),
        begun: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    ) -> None:
        """The node's base is at this address; `wake` asks for a poll soon; `ledger`: what was installed before us,
        `begun`: what was begun."""
        known = self._bases.get(node)
        if known is None:
            made = Served(address, wake, ledger=set(ledger), begun=dict(begun), begun_on_node=dict(begun))
            self._bases[node] = made
        elif known.address != address:
            known.address = address
            for uid in self._on(node):
                self._notify(uid)

    def leave(self, node: str) -> None:
        self._bases.pop(node, None)
        if self._sweeper is not None:
            self._sweeper.forget(node)

    async def release(self, node: str) -> None:
        """Leave the base and its pods to another replica, once no command is under way; nothing of them is ended."""
        base = self._bases.get(node)
        if base is None:
            return
        base.is_released = True
        while base.in_flight:
            base.settled.clear()
            await base.settled.wait()
        works = self._on_nodes.pop(node, {})
        for uid in works:
            del self._pods[uid]
        tasks = [task for work in works.values() for task in work.tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.leave(node)

    def ledger(self, node: str) -> frozenset[str]:
        base = self._bases.get(node)
        return frozenset(base.ledger) if base is not None else frozenset()

    def begun(self, node: str) -> Mapping[str, tuple[str, ...]]:
        """Installs whose end the ledger does not know: with the other versions that the base had before."""
        base = self._bases.get(node)
        return base.begun_on_node if base is not None else {}

    def is_exhausted(self, node: str) -> bool:
        """Whether an install on the base fails for want of memory."""
        runs = (run for work in self._on(node).values() for run in work.runs.values())
        return any(run.phase is RunPhase.WAITING and reports.is_out_of_memory(run) for run in runs)

    def stand(self, node: str, is_active: bool) -> None:
        """Whether the base goes on or has said goodbye; its modules are ready accordingly."""
        base = self._bases.get(node)
        if base is None or base.is_stopping is not is_active:
            return
        base.is_stopping = not is_active
        for uid in self._on(node):
            self._notify(uid)

    async def poll(self, node: str, stack: str) -> None:
        """Compare what the base has with what its pods show."""
        base = self._bases.get(node)
        if base is None:
            return
        base.stack = stack
        works = list(self._on(node).values())
        states = await self._client.modules(base.address)
        if states is None:
            return
        self._operations.observe(node, states)
        by_key = {state.key: state for state in states}
        for work in works:
            for container, module in work.modules().items():
                await self._compare(base, work, container, module, by_key.get(module.key), stack)
        if stack != JAVA and works:
            await self._measure(base)
        if self._sweeper is not None and self._may_act() and not base.is_released:
            pods = [work.pod for work in works]
            base.ledger -= await self._sweeper.sweep(node, base.address, states, pods, frozenset(base.ledger))

    async def _compare(
        self, base: Served, work: PodWork, container: str, module: Module, state: ModuleState | None, stack: str
    ) -> None:
        run = work.runs.get(container)
        if run is None or run.phase is not RunPhase.RUNNING or base.owners.get(module.key) != work.pod.uid:
            return
        if state is None or state.state.upper() == BROKEN:
            lost = reports.waiting(run, reports.LOST, "the base does not have the module any more")
            self._set(work, container, lost)
            base.owners.pop(module.key, None)
            work.wake()
            self._converge(work, container)
            return
        found = reports.run_report(state, module, base.address[0], run.attempt, self._clock.now())
        if found.phase is not RunPhase.RUNNING:
            return
        if found.is_ready and stack != JAVA:
            found = replace(found, is_ready=await self._is_healthy(base, module))
            found = found if found.is_ready else replace(found, reason=reports.UNHEALTHY)
        self._set(work, container, replace(found, started_at=run.started_at))

    async def _is_healthy(self, base: Served, module: Module) -> bool:
        body = {"bizName": module.name, "bizVersion": module.version}
        answer = await self._client.call(base.address, arklet.HEALTH, body)
        info = arklet.fields_of(arklet.fields_of(answer.fields, "healthData"), "bizInfo")
        return arklet.text_of(info, "health").upper() != "DOWN"

    async def _measure(self, base: Served) -> None:
        answer = await self._client.call(base.address, "bizStats", {})
        listed = answer.data if isinstance(answer.data, list) else []
        base.usage = {
            f"{arklet.text_of(each, 'bizName')}:{arklet.text_of(each, 'bizVersion')}": Usage(
                arklet.share_of(each, "cpu"), arklet.number_of(each, "memory")
            )
            for each in listed[:MOST_MEASURED]
            if isinstance(each, dict)
        }

    # -- pods -----------------------------------------------------------------------------------------------

    async def create(self, sandbox: Sandbox) -> None:
        pod = sandbox.pod
        if pod.spec.node_name not in self._bases:
            raise NotNow(f"no base is node {pod.spec.node_name}")
        self._work_of(pod).pod = pod

    def _work_of(self, pod: KubeletPod) -> PodWork:
        work = self._pods.setdefault(pod.uid, PodWork(pod))
        self._on_nodes.setdefault(pod.spec.node_name, {})[pod.uid] = work
        return work

    def _on(self, node: str) -> Mapping[str, PodWork]:
        """The pods of a node, by uid."""
        return self._on_nodes.get(node, {})

    async def adopt(self, pod: KubeletPod) -> None:
        """What the base has of the pod's modules is running; what it lacks is to be installed again."""
        base = self._bases.get(pod.spec.node_name)
        states = await self._client.modules(base.address) if base is not None else None
        if base is None or states is None:
            raise NotNow(f"the base of node {pod.spec.node_name} does not answer")
        by_key = {state.key: state for state in states}
        work = self._work_of(pod)
        attempts = {each.name: each.restart_count for each in pod.status.container_statuses or ()}
        begun = {each.name for each in pod.status.container_statuses or () if each.state.running is not None}
        for container, module in modules_of(pod).items():
            attempt = attempts.get(container, 0)
            state = by_key.get(module.key)
            ip = base.address[0]
            if state is not None and container in begun and base.owners.setdefault(module.key, pod.uid) == pod.uid:
                work.runs[container] = reports.run_report(state, module, ip, attempt, self._clock.now())
                base.begun.pop(module.key, None)
            elif container in begun:
                missing = RunReport(attempt, RunPhase.WAITING, id=reports.run_id(ip, module))
                work.runs[container] = reports.waiting(missing, reports.LOST, "the base does not have the module")

    async def update(self, uid: str, runs: tuple[Run, ...]) -> None:
        work = self._pods.get(uid)
        if work is None:
            return
        work.desired = {run.container.name: run for run in runs}
        for run in runs:
            name = run.container.name
            known = work.runs.get(name)
            if known is None or known.attempt < run.attempt:
                work.containers[name] = run.container
                ip = self._ip(work)
                # Its install is begun before anybody reads this: one status less to write.
                first = RunReport(run.attempt, RunPhase.WAITING, reason=reports.INSTALLING)
                work.runs[name] = replace(first, id=reports.run_id(ip, work.modules()[name]))
        work.wake()
        for name in {*work.desired, *work.runs}:
            self._converge(work, name)

    async def delete(self, uid: str, grace_s: float = 0.0) -> None:
        work = self._pods.get(uid)
        if work is None:
            return
        work.desired = {}
        for name in list(work.runs):
            self._converge(work, name)
        work.wake()
        tasks = [task for task in work.tasks.values() if not task.done()]
        if tasks:
            await asyncio.wait(tasks, timeout=max(grace_s, AWAY_S))
        for task in tasks:
            task.cancel()
        base = self._bases.get(work.pod.spec.node_name)
        if base is not None:
            base.owners = {key: owner for key, owner in base.owners.items() if owner != uid}
        self._pods.pop(uid, None)
        node = work.pod.spec.node_name
        if (works := self._on_nodes.get(node)) is not None:
            works.pop(uid, None)
            if not works:
                del self._on_nodes[node]

    def status(self, uid: str) -> PodReport | None:
        work = self._pods.get(uid)
        if work is None:
            return None
        names = [container.name for container in work.pod.spec.containers]
        base = self._bases.get(work.pod.spec.node_name)
        runs = work.runs
        if base is None or base.is_stopping:
            runs = {
                name: replace(run, is_ready=False, reason=run.reason or reports.STOPPING) for name, run in runs.items()
            }
        return PodReport(self._ip(work), dict(runs), reports.pod_conditions(runs, names))

    def known(self) -> frozenset[str]:
        return frozenset(self._pods)

    def _ip(self, work: PodWork) -> str:
        base = self._bases.get(work.pod.spec.node_name)
        return base.address[0] if base is not None else work.pod.status.pod_ip

    async def probe(self, uid: str, container: str, probe: Probe) -> ProbeResult:
        work = self._pods.get(uid)
        found = work.pod.container(container) if work is not None else None
        if work is None or found is None:
            return ProbeResult(False, "the module is not here")
        result = await probe_address(self._ip(work), found, probe)
        return result or ProbeResult(False, "a module can be probed by httpGet and tcpSocket only")

    def usage(self, uid: str) -> Mapping[str, Usage]:
        work = self._pods.get(uid)
        base = self._bases.get(work.pod.spec.node_name) if work is not None else None
        if work is None or base is None:
            return {}
        return {name: base.usage[module.key] for name, module in work.modules().items() if module.key in base.usage}

    def logs(self, uid: str, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        work = self._pods.get(uid)
        base = self._bases.get(work.pod.spec.node_name) if work is not None else None
        if work is None or base is None or container not in work.modules():
            raise Unsupported("the module is on no base that is served here")
        if options.previous:
            raise Unsupported("logs of a module's earlier runs are not kept")
        if base.stack == JAVA and self._read_base_log is not None:
            return self._read_base_log(work.pod.spec.node_name, options)
        return self._log_lines(base, work.modules()[container], options)

    async def _log_lines(self, base: Served, module: Module, options: LogOptions) -> AsyncIterator[bytes]:
        body: dict[str, object] = {"bizName": module.name, "bizVersion": module.version}
        answer = await self._client.call(base.address, "queryBizLog", body)
        if answer.code != arklet.SUCCESS:
            yield f"the base keeps no log of {module.key} by itself: {sentence_of(answer)}\n".encode()
            return
        text = arklet.text_of(answer.fields, "log", most=1 << 20)
        if options.tail_lines is not None:
            lines = text.splitlines(keepends=True)
            text = "".join(lines[len(lines) - min(len(lines), options.tail_lines) :])
        yield text.encode()[: options.limit_bytes]
        while options.follow:
            offset = arklet.number_of(answer.fields, "offset")
            await self._clock.sleep(1.0)
            answer = await self._client.call(base.address, "queryBizLog", {**body, "offset": offset})
            if answer.code != arklet.SUCCESS:
                return
            yield arklet.text_of(answer.fields, "log", most=1 << 20).encode()

    # -- convergence ----------------------------------------------------------------------------------------

    def _set(self, work: PodWork, container: str, run: RunReport) -> None:
        if work.runs.get(container) != run:
            work.runs[container] = run
            self._notify(work.pod.uid)

    def _converge(self, work: PodWork, container: str) -> None:
        """See to it that somebody works on this container, if there is anything to do."""
        task = work.tasks.get(container)
        if task is not None and not task.done():
            return
        name = f"module {work.pod.key}/{container}"
        work.tasks[container] = asyncio.create_task(self._work(work, container), name=name)

    async def _work(self, work: PodWork, container: str) -> None:
        backoff_s = FIRST_BACKOFF_S
        while True:
            work.event(container).clear()
            run = work.runs.get(container)
            desired = work.desired.get(container)
            if run is None or run.phase is RunPhase.EXITED:
                return
            is_desired = desired is not None and desired.kill_at is None
            if is_desired and run.phase is RunPhase.RUNNING:
                return
            try:
                step = self._install if is_desired else self._uninstall
                with module_span("install module" if is_desired else "remove module", work.pod, container):
                    wait_s = await step(work, container, run)
            except Halted:
                return
            except Exception:
                log.exception("bug while installing a module", pod=work.pod.key, container=container)
                wait_s = backoff_s
            if wait_s is None:
                continue
            if wait_s == FIRST_BACKOFF_S:
                wait_s, backoff_s = backoff_s, min(MOST_BACKOFF_S, backoff_s * 2)
            await self._pause(work.event(container), wait_s)

    async def _pause(self, event: asyncio.Event, seconds: float) -> None:
        """Wait, or less where something about the pod changes."""
        await first_of(event.wait(), self._clock.sleep(seconds))

    async def _install(self, work: PodWork, container: str, run: RunReport) -> float | None:
        """One step towards the module being there; seconds to wait before the next, None for at once."""
        if self._waits_for_another(work, container):
            return GROUP_S
        module = work.modules()[container]
        found = work.containers.get(container)
        if found is not None and (problem := problem_with(found)) is not None:
            return self._fail(work, container, run, *problem)
        base = self._bases.get(work.pod.spec.node_name)
        states = await self._client.modules(base.address) if base is not None else None
        if base is None or states is None:
            self._set(work, container, reports.waiting(run, reports.UNREACHABLE, "the base does not answer"))
            return AWAY_S
        owner = base.owners.setdefault(module.key, work.pod.uid)
        if owner != work.pod.uid:
            holder = self._pods.get(owner)
            message = f"{module.key} is on this base for pod {holder.pod.key if holder is not None else owner}"
            self._set(work, container, reports.waiting(run, reports.CONFLICT, message))
            return AWAY_S
        state = next((each for each in states if each.key == module.key), None)
        strangers = await self._remove_strangers(base, module, states)
        if strangers and state is None:
            return self._mismatch(work, container, run, module, strangers)
        if state is not None and state.state.upper() == BROKEN:
            await self._command(base, arklet.UNINSTALL, module)
            state = None
        if state is not None:
            return self._report_present(base, work, container, module, run, states)
        self._set(work, container, reports.waiting(run, reports.INSTALLING))
        base.ledger.add(module.key)
        base.begun.setdefault(module.key, tuple(each.key for each in states if each.name == module.name))
        base.begun_on_node = dict(base.begun)
        # First that it is ours, then that it is there: a crash in between must not leave a module of nobody.
        if not await self._write_ledger(work.pod.spec.node_name):
            return AWAY_S
        answer, states = await self._install_once(base, work, container, module, run)
        return await self._after_install(base, work, container, module, run, answer, states)

    def _report_present(
        self,
        base: Served,
        work: PodWork,
        container: str,
        module: Module,
        run: RunReport,
        states: Iterable[ModuleState],
    ) -> float | None:
        """The base has the module: it is as the base says."""
        state = next(each for each in states if each.key == module.key)
        report = reports.run_report(state, module, base.address[0], run.attempt, self._clock.now())
        self._set(work, container, report)
        base.begun.pop(module.key, None)
        has_others = any(each.name == module.name and each.key != module.key for each in states)
        if has_others or base.stack != JAVA:
            base.wake()  # other versions may have stepped back, and health is asked for module by module
        return None if report.phase is RunPhase.RUNNING else BUSY_S

    def _waits_for_another(self, work: PodWork, container: str) -> bool:
        """A group is installed in the pod's order; one that fails does not hold up those after it."""
        for earlier in work.pod.spec.containers:
            if earlier.name == container:
                return False
            run = work.runs.get(earlier.name)
            is_desired = run is not None and earlier.name in work.desired and run.phase is RunPhase.WAITING
            if is_desired and run is not None and run.reason == reports.INSTALLING:
                return True
        return False

    async def _install_once(
        self, base: Served, work: PodWork, container: str, module: Module, run: RunReport
    ) -> tuple[Answer, list[ModuleState] | None]:
        """What the command came to; with every module of the base where its end was seen by them."""
        self._check(base)
        module = self._with_settings(work, container, module)
        stamp = int(self._clock.now().timestamp() * 1000)
        request_id = f"{work.pod.uid}/{container}/{run.attempt}/{stamp}"
        with base.command():
            answer = await self._client.install(base.address, module, request_id)
        if outcome_of(arklet.INSTALL, answer) is not Outcome.RUNNING:
            return answer, None
        return await self._operations.wait(work.pod.spec.node_name, lambda: base.address, module.key, request_id)

    def _with_settings(self, work: PodWork, container: str, module: Module) -> Module:
        """With the arguments and variables of its container, and the number of its trace."""
        run = work.desired.get(container)
        if run is None:
            return module
        envs = {name: value for name, value in run.env.items() if name not in VERSION_NAMES}
        if trace := traceparent():
            envs.setdefault("TRACEPARENT", trace)
        strategy = work.pod.metadata.annotations.get(INSTALL_STRATEGY, "")
        strategy = strategy if strategy in arklet.STRATEGIES else ""
        return replace(module, args=run.args or (), envs=tuple(envs.items()), strategy=strategy)

    async def _after_install(
        self,
        base: Served,
        work: PodWork,
        container: str,
        module: Module,
        run: RunReport,
        answer: Answer,
        states: list[ModuleState] | None,
    ) -> float | None:
        outcome = outcome_of(arklet.INSTALL, answer)
        if outcome is Outcome.BUSY:
            return BUSY_S
        if outcome in (Outcome.ALREADY, Outcome.UNKNOWN):
            return None if outcome is Outcome.ALREADY else AWAY_S
        if outcome is not Outcome.DONE:
            reason = reports.MISMATCH if answer.inner_code == arklet.OTHER_BIZ else reports.BACK_OFF
            return self._fail(work, container, run, reason, sentence_of(answer))
        if states is None:
            states = await self._client.modules(base.address)
        if states is None:
            return None
        if any(each.key == module.key and each.state.upper() != BROKEN for each in states):
            return self._report_present(base, work, container, module, run, states)
        if any(each.key == module.key for each in states):
            return None
        strangers = await self._remove_strangers(base, module, states)
        return self._mismatch(work, container, run, module, strangers)

    async def _remove_strangers(self, base: Served, module: Module, states: Iterable[ModuleState]) -> list[str]:
        """What an install that was begun, by us or before us, has brought instead of the module."""
        before = base.begun.get(module.key)
        if before is None:
            return []
        known = {module.key, *before, *base.owners, *base.ledger}
        strangers = [each for each in states if each.name == module.name and each.key not in known]
        for stranger in strangers:
            await self._command(base, arklet.UNINSTALL, Module(stranger.name, stranger.version, module.url))
        return [each.key for each in strangers]

    def _mismatch(
        self, work: PodWork, container: str, run: RunReport, module: Module, strangers: Iterable[str]
    ) -> float:
        names = ", ".join(strangers) or "something else"
        return self._fail(work, container, run, reports.MISMATCH, f"the artefact is {names}, not {module.key}")

    def _fail(self, work: PodWork, container: str, run: RunReport, reason: str, message: str) -> float:
        """By the pod's policy: tried again after a while, or at its end."""
        is_final = work.pod.spec.restart_policy == "Never"
        is_final = is_final or work.pod.metadata.annotations.get(FAILURE_POLICY) == "Fail"
        if is_final:
            now = self._clock.now()
            ended = RunReport(run.attempt, RunPhase.EXITED, None, now, 1, reason=reason, message=message, id=run.id)
            self._set(work, container, ended)
            return 0.0
        self._set(work, container, reports.waiting(run, reason, message))
        return FIRST_BACKOFF_S

    async def _uninstall(self, work: PodWork, container: str, run: RunReport) -> float | None:
        module = work.modules()[container]
        base = self._bases.get(work.pod.spec.node_name)
        now = self._clock.now()
        if base is None or base.owners.get(module.key) != work.pod.uid:
            # Never installed, or another pod's by now: not ours to remove.
            self._set(work, container, _ended(run, now))
            return None
        answer = await self._command(base, arklet.UNINSTALL, module)
        outcome = outcome_of(arklet.UNINSTALL, answer)
        if outcome is Outcome.BUSY:
            return BUSY_S
        if outcome not in (Outcome.DONE, Outcome.ALREADY):
            # Some arklets answer with an error though the module is gone.
            states = await self._client.modules(base.address)
            if states is None or any(each.key == module.key for each in states):
                desired = work.desired.get(container)
                if desired is None or desired.kill_at is None or desired.kill_at > now:
                    return BUSY_S
                log.warning("module not removed", pod=work.pod.key, module=module.key, problem=sentence_of(answer))
        base.owners.pop(module.key, None)
        if outcome in (Outcome.DONE, Outcome.ALREADY):
            base.ledger.discard(module.key)
            base.begun.pop(module.key, None)
            base.begun_on_node = dict(base.begun)
        base.wake()
        self._set(work, container, _ended(run, self._clock.now()))
        return None

    async def _command(self, base: Served, command: str, module: Module) -> Answer:
        self._check(base)
        with base.command():
            return await (
                self._client.uninstall(base.address, module)
                if command == arklet.UNINSTALL
                else self._client.install(base.address, module)
            )

    def _check(self, base: Served) -> None:
        if base.is_released or not self._may_act():
            raise Halted


def _ended(run: RunReport, now: datetime) -> RunReport:
    return RunReport(run.attempt, RunPhase.EXITED, run.started_at, now, 0, reason="Uninstalled", id=run.id)
