"""The lifecycle of every pod on our nodes: see, plan, hand over to the provider and the writer.

One controller serves all nodes and all providers. What it remembers of a pod can be lost at any moment: the next
process recalls it from the pod's status.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import msgspec
import structlog

from fairlead.cluster.clock import Clock
from fairlead.cluster.controller import Controller, TemporaryError
from fairlead.cluster.errors import ClusterError, Forbidden, NotFound
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Delta
from fairlead.cluster.recorder import Recorder
from fairlead.cluster.writer import Outcome, Result, Writer
from fairlead.model.intents import RecordEvent, Regarding, WakeAfter, delete, patch_status
from fairlead.model.node import Node
from fairlead.model.times import rfc3339
from fairlead.nodes.admission import Occupancy, Rejection, admit, has_begun, rejected_status
from fairlead.nodes.container_state import PodEvent
from fairlead.nodes.contents import Contents
from fairlead.nodes.env import Missing, Sources, container_env, expand_all, sub_path
from fairlead.nodes.node import Profile, node_body
from fairlead.nodes.plan import DueProbe, Memory, Order, Plan, after_probe, plan_pod, recall, with_problems
from fairlead.nodes.pods import PodMirror
from fairlead.nodes.provider import NotNow, ProbeResult, Provider, ProviderError, Run, Sandbox
from fairlead.nodes.spec import PODS, Container, KubeletPod, PodStatus, Waiting
from fairlead.nodes.status import is_same
from fairlead.nodes.volumes import Needs, env_needs, pod_volumes, volume_needs

log = structlog.get_logger("fairlead.nodes")

# Contents of volumes follow their objects within this, and tokens are renewed in time.
REFRESH_S = 60.0
MOST_PROBES_AT_ONCE = 64
WORKERS = 32
# How long telling that a container is down may hold up its restart.
DOWN_REPORT_S = 2.0
FORBIDDEN_RETRY_S = 2.0
# Environments and command lines, which are kept while their containers run.
MOST_BYTES_OF_A_POD = 4 << 20


@dataclass(slots=True)
class PodRecord:
    """A pod of ours between two looks at it."""

    uid: str
    profile: Profile
    provider: Provider
    memory: Memory
    is_created: bool = False
    refresh_at_s: float | None = None
    orders: tuple[Order, ...] = ()
    runs: dict[tuple[str, int], Run] = field(default_factory=dict)
    results: list[tuple[DueProbe, ProbeResult]] = field(default_factory=list)
    probing: set[tuple[str, str]] = field(default_factory=set)
    based_on: str = ""
    answer: KubeletPod | None = None
    reported_generation: int = 0
    reported_problem: str = ""

    def latest(self, seen: KubeletPod) -> KubeletPod:
        """The pod as our own last write left it, until the watch shows something newer than what we wrote over."""
        if self.answer is not None and seen.metadata.resource_version == self.based_on:
            return self.answer
        self.answer = None
        return seen


class PodController:
    def __init__(
        self,
        pods: PodMirror,
        nodes: Mapping[str, tuple[Profile, Provider]],
        writer: Writer,
        recorder: Recorder,
        contents: Contents,
        *,
        seen_node: Callable[[str], Node | None],
        find_node: Callable[[str], Awaitable[Node | None]],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """`seen_node` gives a node as it was last seen, `find_node` asks the server for it."""
        self._pods = pods
        self._nodes = nodes
        self._seen_node = seen_node
        self._find_node = find_node
        self._occupied: dict[str, Occupancy] = {}
        self._writer = writer
        self._recorder = recorder
        self._contents = contents
        self._clock = clock
        self._held: dict[str, PodRecord] = {}
        self._held_on: dict[str, dict[str, PodRecord]] = {}
        self._keys: dict[str, str] = {}
        self._slots = asyncio.Semaphore(MOST_PROBES_AT_ONCE)
        self._tasks: asyncio.TaskGroup | None = None
        self._controller = Controller("pods-on-nodes", self.reconcile, clock=clock, metrics=metrics, workers=WORKERS)
        self._controller.watches(pods, self._changed_by_others)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            await self._controller.run()

    def stop(self) -> None:
        self._controller.stop()

    def _changed_by_others(self, delta: Delta[KubeletPod]) -> Iterable[str]:
        """Its key; none where the watch shows what our own last write has left, and the pod goes on."""
        held, new = self._held.get(delta.key), delta.new
        answer = held.answer if held is not None else None
        if held is None or answer is None or new is None or new.is_finished or new.is_terminating:
            return (delta.key,)
        if (new.uid, new.metadata.resource_version) != (answer.uid, answer.metadata.resource_version):
            return (delta.key,)
        held.answer = new  # the same: one of them is enough
        return ()

    def notified(self, uid: str) -> None:
        """A provider says that a pod's status has changed."""
        if (key := self._keys.get(uid)) is not None:
            self._controller.queue.add(key)

    async def clear(self, provider: Provider) -> None:
        """Take away what the provider has of pods that are no more; called once the pods are known."""
        alive = {pod.uid for pod in self._pods}
        for uid in sorted(provider.known() - alive):
            await provider.delete(uid)

    def change(self, profile: Profile) -> None:
        """A node is described otherwise from now on; its pods' statuses name its address."""
        for key, held in self._held_on.get(profile.name, {}).items():
            if held.profile.ip != profile.ip:
                self._controller.queue.add(key)
            held.profile = profile

    async def release(self, node: str) -> None:
        """Leave the pods of a node to another: once what is in hand is over, nothing of them is written any more."""
        keys = {*self._held_on.get(node, {}), *(pod.key for pod in self._pods.on(node))}
        for key in keys & self._held.keys():
            self._release(key, self._held[key])
        self._pods.release(node)
        await self._controller.queue.wait_idle(keys.__contains__)
        # Pods that were being taken up meanwhile.
        for key, held in list(self._held_on.get(node, {}).items()):
            self._release(key, held)
        self._occupied.pop(node, None)

    def count_begun(self, node: str = "") -> None:
        """Reckon with what runs already, on one node or on all, before anything new is admitted."""
        for pod in self._pods.on(node) if node else self._pods:
            if has_begun(pod) and not pod.is_finished:
                self._occupancy(pod.spec.node_name).add(pod)

    def pod(self, namespace: str, name: str) -> KubeletPod | None:
        return self._pods.get(f"{namespace}/{name}")

    def pods(self, node: str = "") -> list[KubeletPod]:
        """Those of one node, or all."""
        return self._pods.on(node) if node else list(self._pods)

    def provider_of(self, pod: KubeletPod) -> Provider | None:
        entry = self._nodes.get(pod.spec.node_name)
        return entry[1] if entry is not None else None

    # -- one pod --------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> WakeAfter | None:
        seen, held = self._pods.get(key), self._held.get(key)
        try:
            if held is not None and (seen is None or seen.uid != held.uid):
                await held.provider.delete(held.uid)
                self._release(key, held)
                held = None
            if seen is None:
                return None
            if held is None:
                held = await self._take_up(seen)
                if held is None:
                    return None
            pod = held.latest(seen)
            occupancy = self._occupancy(held.profile.name)
            occupancy.remove(pod.uid) if pod.is_finished else occupancy.add(pod)
            return await self._look_at(pod, seen, held)
        except ProviderError as problem:
            if seen is not None and not isinstance(problem, NotNow):
                self._record_event(seen, PodEvent("FailedCreatePodSandBox", str(problem), warning=True))
            raise TemporaryError(str(problem), delay_s=1.0) from problem

    async def _take_up(self, pod: KubeletPod) -> PodRecord | None:
        entry = self._nodes.get(pod.spec.node_name)
        if entry is None:
            return None
        profile, provider = entry
        rejection = None if has_begun(pod) else await self._rejection(pod, profile)
        held = PodRecord(pod.uid, profile, provider, recall(pod, self._clock.now()))
        if rejection is not None:
            await self._patch(pod, pod, held, rejected_status(pod, rejection, rfc3339(self._clock.now())))
            if held.answer is None:
                return None  # it is gone
            self._record_event(pod, PodEvent(rejection.reason, rejection.message, warning=True))
        elif held.memory.records and not pod.is_finished:
            await provider.adopt(pod)
        self._held[pod.key] = held
        self._held_on.setdefault(held.profile.name, {})[pod.key] = held
        self._keys[pod.uid] = pod.key
        return held

    async def _rejection(self, pod: KubeletPod, profile: Profile) -> Rejection | None:
        """Why the node does not admit the pod; one that it admits is reckoned with from here on.

        A rejection is final, so it is given only on grounds of the node as the server has it now, and without pods
        that are known to be gone: the watches of nodes and pods run beside each other.
        """
        occupancy = self._occupancy(profile.name)
        occupancy.remove(pod.uid)
        node = self._seen_node(profile.name) or msgspec.convert(node_body(profile, self._clock.now()), Node)
        rejection = admit(pod, node, occupancy, profile.operating_system)
        if rejection is not None:
            node = await self._find_node(profile.name) or node
            for uid, charge in list(occupancy.charges.items()):
                other = self._pods.get(charge.key)
                if other is None or other.uid != uid or other.is_finished:
                    occupancy.remove(uid)
            rejection = admit(pod, node, occupancy, profile.operating_system)
        if rejection is None:
            occupancy.add(pod)
        return rejection

    def _occupancy(self, node: str) -> Occupancy:
        return self._occupied.setdefault(node, Occupancy())

    def _release(self, key: str, held: PodRecord) -> None:
        self._occupancy(held.profile.name).remove(held.uid)
        self._held.pop(key, None)
        if (held_on := self._held_on.get(held.profile.name)) is not None:
            held_on.pop(key, None)
            if not held_on:
                del self._held_on[held.profile.name]
        self._keys.pop(held.uid, None)

    async def _look_at(self, pod: KubeletPod, seen: KubeletPod, held: PodRecord) -> WakeAfter | None:
        now = self._clock.now()
        while held.results:
            due, result = held.results.pop(0)
            held.memory, events = after_probe(pod, held.memory, due, result.ok, result.output, now)
            for event in events:
                self._record_event(pod, event)

        missing = await self._make_ready(pod, held)
        plan = await self._carry_out(seen, held) if missing is None else self._plan(pod, held)
        pod = held.latest(seen)
        await self._patch(pod, seen, held, plan.status)
        for due in plan.due:
            self._probe(pod.key, held, due)
        if plan.is_over:
            await held.provider.delete(pod.uid)
            self._contents.forget(pod)
            await self._let_go(pod)
            return None
        return self._wake(plan, held, missing)

    async def _make_ready(self, pod: KubeletPod, held: PodRecord) -> str | None:
        """The sandbox, made once and again when its contents may have changed; or what is missing for it."""
        if pod.is_finished or (pod.is_terminating and not held.is_created):
            return None
        now_s = self._clock.elapsed_s()
        if held.is_created and (held.refresh_at_s is None or now_s < held.refresh_at_s):
            return None
        volumes = {}
        try:
            if held.provider.traits.environment and held.provider.traits.volumes:
                needs = volume_needs(pod)
                if needs.any or pod.spec.volumes:
                    volumes = pod_volumes(pod, await self._sources(pod, held, needs))
                held.refresh_at_s = now_s + REFRESH_S if needs.any else None
        except (Missing, NotFound) as problem:
            if held.reported_problem != str(problem):
                held.reported_problem = str(problem)
                self._record_event(pod, PodEvent("FailedMount", f"MountVolume.SetUp failed: {problem}", warning=True))
            if held.is_created:
                held.refresh_at_s = now_s + REFRESH_S
                return None
            return str(problem)
        await held.provider.create(Sandbox(pod, volumes))
        held.is_created = True
        return None

    async def _carry_out(self, seen: KubeletPod, held: PodRecord) -> Plan:
        """Plan, and hand the orders over, until the provider has what the plan wants."""
        while True:
            pod = held.latest(seen)
            plan = self._plan(pod, held)
            if plan.orders != held.orders:
                runs, problems = await self._runs(pod, held, plan)
                if problems:
                    held.memory = with_problems(held.memory, problems, self._clock.now())
                    continue
                if any(order.attempt > 0 and _is_new(order, held.orders) for order in plan.orders):
                    # First that it is down, so that nobody is sent there meanwhile; then up again. An API server
                    # that does not answer must not keep containers from coming back.
                    with contextlib.suppress(ClusterError, TemporaryError, TimeoutError):
                        async with asyncio.timeout(DOWN_REPORT_S):
                            await self._patch(pod, seen, held, plan.status)
                await held.provider.update(pod.uid, runs)
                held.runs = {(run.container.name, run.attempt): run for run in runs}
            is_settled, held.orders = plan.orders == held.orders, plan.orders
            # Only now: an order that the provider did not get must not be remembered as sent.
            held.memory = plan.memory
            for event in plan.events:
                self._record_event(pod, event)
            if is_settled:
                return plan

    def _plan(self, pod: KubeletPod, held: PodRecord) -> Plan:
        return plan_pod(
            pod,
            held.provider.status(pod.uid),
            held.memory,
            now=self._clock.now(),
            node_ip=held.profile.ip,
            traits=held.provider.traits,
        )

    async def _runs(self, pod: KubeletPod, held: PodRecord, plan: Plan) -> tuple[tuple[Run, ...], dict[str, Waiting]]:
        """The plan's orders with all that is needed to run them; a container that lacks something, with what."""
        runs: list[Run] = []
        problems: dict[str, Waiting] = {}
        sources: Sources | None = None
        size = 0
        for order in plan.orders:
            container = pod.container(order.name)
            assert container is not None, "the plan orders containers of the pod"
            run = held.runs.get((order.name, order.attempt))
            if run is None and (order.kill_at is not None or not held.provider.traits.environment):
                run = Run(container, order.attempt)
            if run is None:
                try:
                    if sources is None:
                        sources = await self._sources(pod, held, env_needs(pod))
                    run = _resolved(pod, container, order.attempt, sources)
                    if size + _size(run) > MOST_BYTES_OF_A_POD:
                        raise Missing(
                            "the environments and command lines of the pod's containers are together larger than "
                            f"{MOST_BYTES_OF_A_POD} bytes"
                        )
                except (Missing, NotFound) as problem:
                    problems[order.name] = Waiting(reason="CreateContainerConfigError", message=str(problem))
                    continue
            if run.kill_at != order.kill_at:
                run = replace(run, kill_at=order.kill_at)
            size += _size(run)
            runs.append(run)
        return tuple(runs), problems

    async def _sources(self, pod: KubeletPod, held: PodRecord, needs: Needs) -> Sources:
        report = held.provider.status(pod.uid)
        profile = held.profile
        return await self._contents.sources(
            pod,
            needs,
            pod_ip=report.ip if report is not None else "",
            host_ip=profile.ip,
            allocatable=profile.capacity if profile.allocatable is None else profile.allocatable,
        )

    # -- writing --------------------------------------------------------------------------------------------

    async def _patch(self, pod: KubeletPod, seen: KubeletPod, held: PodRecord, status: PodStatus) -> None:
        is_reported = held.reported_generation >= pod.metadata.generation or (
            pod.status.observed_generation >= pod.metadata.generation
        )
        if is_reported and is_same(status, pod.status):
            return
        if is_same(status, pod.status) and pod.is_finished:
            return
        changes = changed_fields(pod.status, status)
        result = await self._writer.carry_out(patch_status(PODS, pod.metadata, changes))
        match result.outcome:
            case Outcome.DONE:
                held.answer, held.based_on = result.answer, seen.metadata.resource_version
                held.reported_generation = pod.metadata.generation
            case Outcome.CONFLICT:
                held.answer = None
                raise TemporaryError("the pod has changed meanwhile", delay_s=0.01)
            case Outcome.MISSING:
                held.answer = None
                self._pods.forget(seen)
            case _:
                held.answer = None
                raise to_retry(result)

    async def _let_go(self, pod: KubeletPod) -> None:
        """The pod has ended: away with it, if it still is the one we mean."""
        result = await self._writer.carry_out(delete(PODS, pod.metadata, grace_s=0))
        if result.outcome not in (Outcome.DONE, Outcome.CONFLICT):
            raise to_retry(result)

    def _record_event(self, pod: KubeletPod, pod_event: PodEvent) -> None:
        part = ""
        if pod_event.container:
            is_init = any(each.name == pod_event.container for each in pod.inits)
            part = f"spec.{'initContainers' if is_init else 'containers'}{{{pod_event.container}}}"
        metadata = pod.metadata
        regarding = Regarding(
            kind="Pod", name=metadata.name, namespace=metadata.namespace, uid=pod.uid, field_path=part
        )
        event = RecordEvent(
            regarding=regarding,
            reason=pod_event.reason,
            action=pod_event.reason,
            note=pod_event.note,
            warning=pod_event.warning,
        )
        self._recorder.record(event)

    # -- probes ---------------------------------------------------------------------------------------------

    def _probe(self, key: str, held: PodRecord, due: DueProbe) -> None:
        """Start one unless it is under way; its result is read at the next look, which it brings about."""
        name = (due.container, due.check.value)
        if name in held.probing or self._tasks is None:
            return
        held.probing.add(name)
        self._tasks.create_task(self._probed(key, held, due), name=f"probe {key} {due.check}")

    async def _probed(self, key: str, held: PodRecord, due: DueProbe) -> None:
        try:
            async with self._slots:
                async with asyncio.timeout(due.probe.timeout_seconds + 1.0):
                    result = await held.provider.probe(held.uid, due.container, due.probe)
        except (TimeoutError, ProviderError, OSError) as problem:
            result = ProbeResult(False, str(problem) or "timed out")
        except Exception as bug:
            log.exception("bug in a probe", pod=key, container=due.container)
            result = ProbeResult(False, f"the probe itself failed: {bug}")
        held.probing.discard((due.container, due.check.value))
        held.results.append((due, result))
        self._controller.queue.add(key)

    def _wake(self, plan: Plan, held: PodRecord, missing: str | None) -> WakeAfter | None:
        now = self._clock.now()
        wakes = [plan.wake_at] if plan.wake_at is not None else []
        if missing is not None:
            wakes.append(now + timedelta(seconds=2.0))
        if held.refresh_at_s is not None:
            wakes.append(now + timedelta(seconds=held.refresh_at_s - self._clock.elapsed_s()))
        if not wakes:
            return None
        # Never at once: a moment that has just passed would otherwise spin.
        return WakeAfter(seconds=max(0.01, (min(wakes) - now).total_seconds()))


def to_retry(result: Result) -> Exception:
    """What to raise for a write that failed, so that it is tried again in good time.

    An API server that has just started forbids everything until it has read its roles: a matter of seconds, not of
    the half minute that refusals are otherwise given.
    """
    assert result.error is not None
    if isinstance(result.error, Forbidden):
        return TemporaryError(str(result.error), delay_s=FORBIDDEN_RETRY_S)
    return result.error


def _is_new(order: Order, known: tuple[Order, ...]) -> bool:
    return not any((order.name, order.attempt) == (other.name, other.attempt) for other in known)


def _resolved(pod: KubeletPod, container: Container, attempt: int, sources: Sources) -> Run:
    env = container_env(pod, container, sources)
    for mount in container.volume_mounts or ():
        sub_path(mount, env)  # a bad one fails the container before it is started
    return Run(
        container=container,
        attempt=attempt,
        command=expand_all(container.command, env),
        args=expand_all(container.args, env),
        env=env,
    )


def _size(run: Run) -> int:
    return sum(map(len, run.env.values())) + sum(map(len, (*(run.command or ()), *(run.args or ()))))


def changed_fields(before: PodStatus, after: PodStatus) -> dict[str, Any]:
    """A merge patch of the status: the top-level fields that differ, each whole; null for what is no more."""
    old, new = _wire(before), _wire(after)
    return {name: new.get(name) for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)}


def _wire(status: PodStatus) -> dict[str, Any]:
    """As the kubelet writes it: what the schema requires is spelled out even where it is zero."""
    plain: dict[str, Any] = msgspec.to_builtins(status)
    for container in (*plain.get("initContainerStatuses", ()), *plain.get("containerStatuses", ())):
        for name, zero in (("ready", False), ("restartCount", 0), ("image", ""), ("imageID", "")):
            container.setdefault(name, zero)
        for state in (container.setdefault("state", {}), container.setdefault("lastState", {})):
            if "terminated" in state:
                state["terminated"].setdefault("exitCode", 0)
    return plain
