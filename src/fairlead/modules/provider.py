"""The arklet provider: runs of containers are modules on bases, which `modules.installer` installs and removes.

Here is what a base has, compared with what its pods show, and the pods as the kubelet knows them. What runs outlives
us: nothing is uninstalled because we stop.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from fairlead.cluster.clock import Clock
from fairlead.modules import arklet, installer, reports
from fairlead.modules.arklet import sentence_of
from fairlead.modules.client import ArkletClient
from fairlead.modules.heartbeats import JAVA
from fairlead.modules.installer import Installer, WriteLedger
from fairlead.modules.plan import plan_forget
from fairlead.modules.spec import BROKEN, Module, ModuleState, modules_of
from fairlead.modules.sweep import Sweeper
from fairlead.modules.work import PodWork, Served
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
from fairlead.nodes.spec import KubeletPod, Probe

ADOPT_S: Final = 1.0
"""One look at a base serves all its pods that are adopted within this."""

ReadLog = Callable[[str, LogOptions], AsyncIterator[bytes]]


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
        self._clock = clock
        self._may_act = may_act
        self._notify: Notify = lambda uid: None
        self._pods: dict[str, PodWork] = {}
        self._on_nodes: dict[str, dict[str, PodWork]] = {}
        self._bases: dict[str, Served] = {}
        self._read_base_log: ReadLog | None = None
        self._installer = Installer(
            client,
            clock,
            self._bases,
            self._pods,
            may_act=lambda: self._may_act(),
            notify=lambda uid: self._notify(uid),
        )

    def read_base_logs(self, read: ReadLog) -> None:
        """How the log of a node's base is read: Java's modules have none of their own."""
        self._read_base_log = read

    def keep_ledger(self, write: WriteLedger) -> None:
        """How the ledger of a node is made durable; awaited before each install."""
        self._installer.write_ledger = write

    @property
    def traits(self) -> Traits:
        return Traits(volumes=False, own_addresses=False, ends_by_itself=False, outlives_us=True)

    def listen(self, notify: Notify) -> None:
        self._notify = notify

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await _cancel(self._pods.values())

    # -- bases ----------------------------------------------------------------------------------------------

    def serve(
        self,
        node: str,
        address: tuple[str, int],
        wake: Callable[[], None],
        ledger: Mapping[str, str] = MappingProxyType({}),
        begun: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    ) -> None:
        """The node's base is at this address; `wake` asks for a poll soon; `ledger`: what was installed before us, as
        its namespace by key, `begun`: what was begun."""
        known = self._bases.get(node)
        if known is None:
            self._bases[node] = Served(address, wake, ledger=dict(ledger), begun=dict(begun))
        elif known.address != address:
            known.address, known.sent_s = address, -math.inf
            for uid in self._on(node):
                self._notify(uid)

    def leave(self, node: str) -> None:
        self._bases.pop(node, None)
        if self._sweeper is not None:
            self._sweeper.forget(node)

    async def release(self, node: str) -> None:
        """Leave the pods of the base to another replica, once no command is under way; nothing of them is ended."""
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
        await _cancel(works.values())

    def serves(self, node: str) -> bool:
        return node in self._bases

    def ledger(self, node: str) -> Mapping[str, str]:
        """What was installed through us: the namespace of its pod by key."""
        base = self._bases.get(node)
        return base.ledger if base is not None else {}

    def begun(self, node: str) -> Mapping[str, tuple[str, ...]]:
        """Installs whose end the ledger does not know: with the other versions that the base had before."""
        base = self._bases.get(node)
        return base.begun if base is not None else {}

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
        states = await self._installer.list_modules(base)
        if states is None:
            return
        self._installer.operations.observe(node, states)
        by_key = {state.key: state for state in states}
        for work in works:
            for container, module in work.modules().items():
                await self._compare(base, work, container, module, by_key.get(module.key), stack)
        await self._installer.reactivate(base, works, states)
        if stack != JAVA and works:
            await self._measure(base)
        if self._sweeper is not None and self._may_act() and not base.is_released:
            pods = [work.pod for work in works]
            for key in await self._sweeper.sweep(node, base.address, states, pods, frozenset(base.ledger)):
                base.ledger.pop(key, None)
        self._forget(base, works, by_key)

    def _forget(self, base: Served, works: Iterable[PodWork], reported: Iterable[str]) -> None:
        """Keys of installs that failed for good leave the ledger."""
        desired = {
            module.key
            for work in works
            for container, module in work.modules().items()
            if (run := work.runs.get(container)) is None or run.phase is not RunPhase.EXITED
        }
        keys = {*base.ledger, *base.begun}
        base.absent_s, gone = plan_forget(keys, {*reported, *desired}, base.absent_s, now_s=self._clock.elapsed_s())
        if gone:
            base.ledger = {key: namespace for key, namespace in base.ledger.items() if key not in gone}
            base.begun = {key: others for key, others in base.begun.items() if key not in gone}

    async def _compare(
        self, base: Served, work: PodWork, container: str, module: Module, state: ModuleState | None, stack: str
    ) -> None:
        run = work.runs.get(container)
        if run is None or run.phase is not RunPhase.RUNNING or base.owners.get(module.key) != work.pod.uid:
            return
        if state is None or state.state.upper() == BROKEN:
            lost = reports.waiting(run, reports.LOST, "the base does not have the module any more")
            self._installer.set(work, container, lost)
            base.owners.pop(module.key, None)
            work.wake()
            self._installer.converge(work, container)
            return
        found = reports.run_report(state, module, base.address[0], run.attempt, self._clock.now())
        if found.phase is not RunPhase.RUNNING:
            return
        if found.is_ready and stack != JAVA:
            found = replace(found, is_ready=await self._is_healthy(base, module))
            found = found if found.is_ready else replace(found, reason=reports.UNHEALTHY)
        self._installer.set(work, container, replace(found, started_at=run.started_at))

    async def _is_healthy(self, base: Served, module: Module) -> bool:
        body = {"bizName": module.name, "bizVersion": module.version}
        answer = await self._client.call(base.address, arklet.HEALTH, body)
        info = arklet.fields_of(arklet.fields_of(answer.fields, "healthData"), "bizInfo")
        return arklet.text_of(info, "health").upper() != "DOWN"

    async def _measure(self, base: Served) -> None:
        base.usage = {
            f"{arklet.text_of(each, 'bizName')}:{arklet.text_of(each, 'bizVersion')}": Usage(
                arklet.seconds_of(each, "cpu"), arklet.number_of(each, "memory")
            )
            for each in await self._client.stats(base.address)
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
        states = await self._installer.list_modules(base, ADOPT_S) if base is not None else None
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
                work.begin(run.container)
                ip = self._ip(work)
                # Its install is begun before anybody reads this: one status less to write.
                first = RunReport(run.attempt, RunPhase.WAITING, reason=reports.INSTALLING)
                work.runs[name] = replace(first, id=reports.run_id(ip, work.modules()[name]))
        work.wake()
        for name in {*work.desired, *work.runs}:
            self._installer.converge(work, name)

    async def delete(self, uid: str, grace_s: float = 0.0) -> None:
        work = self._pods.get(uid)
        if work is None:
            return
        work.desired = {}
        self._installer.take_back(work)
        for name in list(work.runs):
            self._installer.converge(work, name)
        work.wake()
        tasks = [task for task in work.tasks.values() if not task.done()]
        if tasks:
            await asyncio.wait(tasks, timeout=max(grace_s, installer.AWAY_S))
        for task in tasks:
            task.cancel()
        node = work.pod.spec.node_name
        if (base := self._bases.get(node)) is not None:
            base.owners = {key: owner for key, owner in base.owners.items() if owner != uid}
        self._pods.pop(uid, None)
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
        own = {name: module.key for name, module in work.modules().items() if self._is_own(base, work, name)}
        return {name: base.usage[key] for name, key in own.items() if key in base.usage}

    def _is_own(self, base: Served, work: PodWork, container: str) -> bool:
        """Whether the module is there for this pod: another pod, of another tenant perhaps, may have the same."""
        run = work.runs.get(container)
        is_kept = run is not None and run.reason == reports.KEPT
        return is_kept or base.owners.get(work.modules()[container].key) == work.pod.uid

    def logs(self, uid: str, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        work = self._pods.get(uid)
        base = self._bases.get(work.pod.spec.node_name) if work is not None else None
        if work is None or base is None or container not in work.modules():
            raise Unsupported("the module is on no base that is served here")
        if not self._is_own(base, work, container):
            raise Unsupported("the module is not installed for this pod")
        if options.previous:
            raise Unsupported("logs of a module's earlier runs are not kept")
        if base.stack == JAVA and self._read_base_log is not None:
            return self._read_base_log(work.pod.spec.node_name, options)
        return self._log_lines(base, work.modules()[container], options)

    async def _log_lines(self, base: Served, module: Module, options: LogOptions) -> AsyncIterator[bytes]:
        body: dict[str, object] = {"bizName": module.name, "bizVersion": module.version}
        answer = await self._client.call(base.address, arklet.QUERY_LOG, body)
        if answer.code != arklet.SUCCESS:
            yield f"the base keeps no log of {module.key} by itself: {sentence_of(answer)}\n".encode()
            return
        text = arklet.text_of(answer.fields, "log", most=1 << 20)
        if options.tail_lines is not None:
            lines = text.splitlines(keepends=True)
            text = "".join(lines[max(0, len(lines) - options.tail_lines) :])
        yield text.encode()[: options.limit_bytes]
        while options.follow:
            offset = arklet.number_of(answer.fields, "offset")
            await self._clock.sleep(1.0)
            answer = await self._client.call(base.address, arklet.QUERY_LOG, {**body, "offset": offset})
            if answer.code != arklet.SUCCESS:
                return
            yield arklet.text_of(answer.fields, "log", most=1 << 20).encode()


async def _cancel(works: Iterable[PodWork]) -> None:
    tasks = [task for work in works for task in work.tasks.values()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
