"""Brings each container of a module pod to where it should be: its module installed, verified and running, or removed.

    wanted ─▶ verify (queryAllBiz) ─▶ install (asynchronous, by request id) ─▶ verify ─▶ running
                 │ there, and ours: adopted                │ failed: back-off, then again
    ended  ─▶ uninstall, if the module is ours ─▶ gone

Used by `modules.provider`. One task per container; every call is bounded in time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import structlog

from fairlead.cluster.clock import Clock
from fairlead.cluster.waits import first_of
from fairlead.modules import arklet, ledger, reports
from fairlead.modules.arklet import Answer, Outcome, outcome_of, sentence_of
from fairlead.modules.client import ArkletClient
from fairlead.modules.heartbeats import JAVA
from fairlead.modules.names import FAILURE_POLICY, INSTALL_STRATEGY
from fairlead.modules.operations import Operations
from fairlead.modules.spec import BROKEN, DEACTIVATED, VERSION_NAMES, Module, ModuleState, problem_with
from fairlead.modules.traces import module_span, traceparent
from fairlead.modules.work import PodWork, Served
from fairlead.nodes.provider import RunPhase, RunReport

log = structlog.get_logger("fairlead.modules")

FIRST_BACKOFF_S: Final = 5.0
MOST_BACKOFF_S: Final = 300.0
BUSY_S: Final = 1.0
GROUP_S: Final = 0.2
AWAY_S: Final = 2.0
LISTED_S: Final = 30.0
"""A list of the base's modules as old as this shows that one which was never begun is not there. Where it has come
since, the base says so instead of installing it again."""

WriteLedger = Callable[[str], Awaitable[bool]]
"""Makes the ledger of a node durable; whether that is done."""


async def _without_ledger(node: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class ModuleRun:
    """The module of one container on the base of its pod, and its run as it was last reported."""

    base: Served
    work: PodWork
    container: str
    module: Module
    run: RunReport


class Halted(Exception):
    """We may not send commands any more: another replica may lead."""


class Installer:
    def __init__(
        self,
        client: ArkletClient,
        clock: Clock,
        bases: Mapping[str, Served],
        pods: Mapping[str, PodWork],
        *,
        may_act: Callable[[], bool],
        notify: Callable[[str], None],
    ) -> None:
        """`bases` by node, `pods` by uid; `notify` is told the uid of a pod whose status has changed."""
        self._client = client
        self._clock = clock
        self._bases = bases
        self._pods = pods
        self._may_act = may_act
        self._notify = notify
        self.operations = Operations(client, clock)
        self.write_ledger: WriteLedger = _without_ledger

    async def list_modules(self, base: Served, within_s: float = 0.0) -> list[ModuleState] | None:
        """Every module on the base, asked for now or at most these seconds ago; None where it does not say.

        Who asks while an answer is waited for shares the next one.
        """
        now_s = self._clock.elapsed_s()
        async with base.query:
            if base.sent_s > now_s or (base.states is not None and base.sent_s > now_s - within_s):
                return base.states
            sent_s = self._clock.elapsed_s()
            states = await self._client.modules(base.address)
            # Both only now: whoever is cancelled while it asks must not leave an old list as a new one.
            base.states, base.sent_s = states, sent_s
            return states

    async def _list_before(self, base: Served, work: PodWork, module: Module) -> list[ModuleState] | None:
        """What the base has before an install. A module that was never begun, and was not there when the base was last
        polled, needs no further look."""
        is_known = module.key in base.ledger or module.key in base.begun
        is_recent = self._clock.elapsed_s() - base.sent_s < LISTED_S
        if is_known or not is_recent or base.states is None or INSTALL_STRATEGY in work.pod.metadata.annotations:
            return await self.list_modules(base)
        if any(each.key == module.key for each in base.states):
            return await self.list_modules(base)
        return base.states

    def set(self, work: PodWork, container: str, run: RunReport) -> None:
        if work.runs.get(container) != run:
            work.runs[container] = run
            self._notify(work.pod.uid)

    def converge(self, work: PodWork, container: str) -> None:
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
        if found is not None and (problem := problem_with(found, work.pod.metadata.annotations)) is not None:
            return self._fail(work, container, run, *problem)
        base = self._bases.get(work.pod.spec.node_name)
        states = await self._list_before(base, work, module) if base is not None else None
        if base is None or states is None:
            self.set(work, container, reports.waiting(run, reports.UNREACHABLE, "the base does not answer"))
            return AWAY_S
        if (conflict := self._conflict(base, work, module)) is not None:
            self.set(work, container, reports.waiting(run, reports.CONFLICT, conflict))
            return AWAY_S
        this = ModuleRun(base, work, container, module, run)
        state = next((each for each in states if each.key == module.key), None)
        strangers = await self._remove_strangers(base, module, states)
        if strangers and state is None:
            return self._mismatch(this, strangers)
        if state is not None and state.state.upper() == BROKEN:
            await self._command(base, arklet.UNINSTALL, module)
            state = None
        if state is not None:
            return self._report_present(this, states)
        namespace, others = work.pod.metadata.namespace, tuple(each.key for each in states if each.name == module.name)
        if not ledger.has_room(base.ledger, base.begun, module.key, namespace, others):
            del base.owners[module.key]
            full = "no more modules can be noted for this base"
            self.set(work, container, reports.waiting(run, reports.BACK_OFF, full))
            return FIRST_BACKOFF_S
        self.set(work, container, reports.waiting(run, reports.INSTALLING))
        base.ledger[module.key] = namespace
        base.begun.setdefault(module.key, others)
        # First that it is ours, then that it is there: a crash in between must not leave a module of nobody.
        if not await self.write_ledger(work.pod.spec.node_name):
            return AWAY_S
        before = frozenset(each.key for each in states)
        answer, states = await self._install_once(this)
        return await self._after_install(this, answer, before, states)

    def _conflict(self, base: Served, work: PodWork, module: Module) -> str | None:
        """Why the module must wait for another pod; where it need not, it is this pod's from here on."""
        works = {key: self._pods.get(owner) for key, owner in base.owners.items()}
        held = base.ledger | {key: each.pod.metadata.namespace for key, each in works.items() if each is not None}
        if holder := ledger.other_holder(held, module, work.pod.metadata.namespace):
            return f'module name "{module.name}" is taken on this base by namespace "{holder}"'
        owner = base.owners.setdefault(module.key, work.pod.uid)
        if owner == work.pod.uid:
            return None
        found = self._pods.get(owner)
        return f"{module.key} is on this base for pod {found.pod.key if found is not None else owner}"

    def _report_present(self, this: ModuleRun, states: Iterable[ModuleState]) -> float | None:
        """The base has the module: it is as the base says."""
        base, module = this.base, this.module
        state = next(each for each in states if each.key == module.key)
        report = reports.run_report(state, module, base.address[0], this.run.attempt, self._clock.now())
        self.set(this.work, this.container, report)
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

    async def _install_once(self, this: ModuleRun) -> tuple[Answer, list[ModuleState] | None]:
        """What the command came to; with every module of the base where its end was seen by them."""
        base, pod = this.base, this.work.pod
        self._check(base)
        stamp = int(self._clock.now().timestamp() * 1000)
        request_id = f"{pod.uid}/{this.container}/{this.run.attempt}/{stamp}"
        with base.command():
            answer = await self._client.install(base.address, _with_settings(this), request_id)
        if outcome_of(arklet.INSTALL, answer) is not Outcome.RUNNING:
            return answer, None
        return await self.operations.wait(pod.spec.node_name, lambda: base.address, this.module.key, request_id)

    async def _after_install(
        self, this: ModuleRun, answer: Answer, before: frozenset[str], states: list[ModuleState] | None
    ) -> float | None:
        """`before`: what the base had when it was asked; `states`: what it has now, where that is known."""
        base, module = this.base, this.module
        outcome = outcome_of(arklet.INSTALL, answer)
        if outcome is Outcome.BUSY:
            return BUSY_S
        if outcome is Outcome.UNKNOWN:
            return AWAY_S
        if outcome not in (Outcome.DONE, Outcome.ALREADY):
            reason = reports.MISMATCH if answer.inner_code == arklet.OTHER_BIZ else reports.BACK_OFF
            return self._fail(this.work, this.container, this.run, reason, sentence_of(answer))
        if states is None:
            states = await self.list_modules(base)
        if states is None:
            return None
        if any(each.key == module.key and each.state.upper() != BROKEN for each in states):
            return self._report_present(this, states)
        if any(each.key == module.key for each in states):
            return BUSY_S
        if outcome is Outcome.ALREADY:
            return self._fail(this.work, this.container, this.run, reports.BACK_OFF, sentence_of(answer))
        return self._mismatch(this, await self._remove_strangers(base, module, states, before))

    async def _remove_strangers(
        self, base: Served, module: Module, states: Iterable[ModuleState], before: frozenset[str] | None = None
    ) -> list[str]:
        """What an install that was begun, by us or before us, has brought instead of the module.

        `before`: everything that was there when it was begun; then an artefact of another name is found too, provided
        that nothing else has come meanwhile.
        """
        versions = base.begun.get(module.key)
        if versions is None:
            return []
        known = {module.key, *versions, *base.owners, *base.ledger}
        strangers = [each for each in states if each.name == module.name and each.key not in known]
        if not strangers and before is not None:
            came = [each for each in states if each.key not in known | before]
            strangers = came if len(came) == 1 else []
        for stranger in strangers:
            await self._command(base, arklet.UNINSTALL, Module(stranger.name, stranger.version, module.url))
        return [each.key for each in strangers]

    def _mismatch(self, this: ModuleRun, strangers: Iterable[str]) -> float:
        message = f"the artefact is {', '.join(strangers) or 'something else'}, not {this.module.key}"
        return self._fail(this.work, this.container, this.run, reports.MISMATCH, message)

    def _fail(self, work: PodWork, container: str, run: RunReport, reason: str, message: str) -> float:
        """By the pod's policy: tried again after a while, or at its end."""
        is_final = work.pod.spec.restart_policy == "Never"
        is_final = is_final or work.pod.metadata.annotations.get(FAILURE_POLICY) == "Fail"
        if is_final:
            now = self._clock.now()
            reason = reports.FAILED if reason == reports.BACK_OFF else reason
            ended = RunReport(run.attempt, RunPhase.EXITED, None, now, 1, reason=reason, message=message, id=run.id)
            self.set(work, container, replace(ended, fails_pod=True))
            base = self._bases.get(work.pod.spec.node_name)
            key = work.modules()[container].key
            if base is not None and base.owners.get(key) == work.pod.uid:
                del base.owners[key]  # another pod may try it
            return 0.0
        self.set(work, container, reports.waiting(run, reason, message))
        return FIRST_BACKOFF_S

    def take_back(self, work: PodWork) -> None:
        """A failed pod is deleted: modules that it left on the base, and nobody took up, are to be removed."""
        base = self._bases.get(work.pod.spec.node_name)
        for container, module in work.modules().items():
            run = work.runs.get(container)
            if base is None or run is None or run.reason != reports.KEPT:
                continue
            if base.owners.setdefault(module.key, work.pod.uid) == work.pod.uid:
                work.runs[container] = replace(run, phase=RunPhase.RUNNING, reason="")

    async def _uninstall(self, work: PodWork, container: str, run: RunReport) -> float | None:
        module = work.modules()[container]
        base = self._bases.get(work.pod.spec.node_name)
        now = self._clock.now()
        if base is None or base.owners.get(module.key) != work.pod.uid:
            # Never installed, or another pod's by now: not ours to remove.
            self.set(work, container, _ended(run, now))
            return None
        if work.has_failed and container in work.desired and run.phase is RunPhase.RUNNING:
            # The pod is at its end, and not deleted: whoever comes in its place finds the module there.
            del base.owners[module.key]
            ended = replace(
                _ended(run, now), reason=reports.KEPT, message=f"{module.key} stays until the pod is deleted"
            )
            self.set(work, container, ended)
            return None
        answer = await self._command(base, arklet.UNINSTALL, module)
        outcome = outcome_of(arklet.UNINSTALL, answer)
        if outcome is Outcome.BUSY:
            return BUSY_S
        if outcome not in (Outcome.DONE, Outcome.ALREADY):
            # Some arklets answer with an error though the module is gone.
            states = await self.list_modules(base)
            if states is None or any(each.key == module.key for each in states):
                desired = work.desired.get(container)
                if desired is None or desired.kill_at is None or desired.kill_at > now:
                    return BUSY_S
                log.warning("module not removed", pod=work.pod.key, module=module.key, problem=sentence_of(answer))
        base.owners.pop(module.key, None)
        if outcome in (Outcome.DONE, Outcome.ALREADY):
            base.ledger.pop(module.key, None)
            base.begun.pop(module.key, None)
        base.wake()
        self.set(work, container, _ended(run, self._clock.now()))
        return None

    async def reactivate(self, base: Served, works: Iterable[PodWork], states: Iterable[ModuleState]) -> None:
        """Where the active version of a module is gone and others are left, the one of the latest pod serves again."""
        pods = {work.pod.uid: work.pod for work in works}
        by_name: dict[str, list[ModuleState]] = {}
        for state in states:
            by_name.setdefault(state.name, []).append(state)
        for name, versions in by_name.items():
            owned = [
                (pod.metadata.creation_timestamp, each.version)
                for each in versions
                if (pod := pods.get(base.owners.get(each.key, ""))) is not None and not pod.is_terminating
            ]
            if not owned or any(each.state.upper() != DEACTIVATED for each in versions):
                continue
            if base.is_released or not self._may_act():
                return
            answer = await self._command(base, arklet.SWITCH, Module(name, max(owned)[1], ""))
            if outcome_of(arklet.SWITCH, answer) is Outcome.DONE:
                base.wake()

    async def _command(self, base: Served, command: str, module: Module) -> Answer:
        self._check(base)
        with base.command():
            send = self._client.uninstall if command == arklet.UNINSTALL else self._client.switch
            return await send(base.address, module)

    def _check(self, base: Served) -> None:
        if base.is_released or not self._may_act():
            raise Halted


def _ended(run: RunReport, now: datetime) -> RunReport:
    return RunReport(run.attempt, RunPhase.EXITED, run.started_at, now, 0, reason="Uninstalled", id=run.id)


def _with_settings(this: ModuleRun) -> Module:
    """The module with the arguments and variables of its container, and the number of its trace."""
    run = this.work.desired.get(this.container)
    if run is None:
        return this.module
    envs = {name: value for name, value in run.env.items() if name not in VERSION_NAMES}
    if trace := traceparent():
        envs.setdefault("TRACEPARENT", trace)
    strategy = this.work.pod.metadata.annotations.get(INSTALL_STRATEGY, "")
    strategy = strategy if strategy in arklet.STRATEGIES else ""
    return replace(this.module, args=run.args or (), envs=tuple(envs.items()), strategy=strategy)
