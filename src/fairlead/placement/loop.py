"""The loop: drain what changed, decide pod after pod in memory, bind concurrently, settle by the watch.

A decided pod is assumed: it is in the table from the moment of the decision, long before its binding is
written. When the write fails it is forgotten again and queued with a back-off; when the watch shows it on its
node, nothing changes.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock, rfc3339
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.mirror import Delta as Change
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.writer import Outcome, Writer
from fairlead.engine.cycle import Cycle
from fairlead.engine.profile import Profile
from fairlead.model.deltas import Delta
from fairlead.model.intents import Bind, Patch, RecordEvent, Regarding
from fairlead.model.outcome import Diagnosis, Placed
from fairlead.model.pod import Pod
from fairlead.placement.queue import PodQueue
from fairlead.placement.spec import NODES, PODS, SURROUNDINGS
from fairlead.placement.state import State

log = structlog.get_logger("fairlead.placement")

# Decide so many, then let the writes and the watches have a turn.
BATCH = 128
# Bindings on their way; past this the loop waits for some to settle.
MOST_BINDING = 512

MakeMirror = Callable[[Any], Mirror[Any]]


class Loop:
    def __init__(
        self, profiles: Mapping[str, Profile], *, writer: Writer, clock: Clock, mirror: MakeMirror, reader: Client
    ) -> None:
        """`profiles` by the schedulerName they serve; all share one table."""
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._state = State()
        self._cycles = {name: Cycle(self._state.table, profile) for name, profile in profiles.items()}
        self._queue = PodQueue()
        self._assumed: dict[str, Pod] = {}
        self._binding: set[asyncio.Task[None]] = set()
        self.nodes: Mirror[Any] = mirror(NODES)
        self.pods: Mirror[Any] = mirror(PODS)
        self.surroundings = [mirror(kind) for kind in SURROUNDINGS]

    @property
    def mirrors(self) -> list[Mirror[Any]]:
        return [self.nodes, self.pods, *self.surroundings]

    def counts(self) -> dict[str, int]:
        return self._queue.counts()

    async def run(self, stop: asyncio.Event) -> None:
        """Schedule until told to stop; bindings under way are finished first. The mirrors run elsewhere."""
        for mirror in self.mirrors:
            await mirror.wait_synced()
        nodes, pods = self.nodes.subscribe(), self.pods.subscribe()
        around = [mirror.subscribe() for mirror in self.surroundings]
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                cures: set[Delta] = set()
                for subscription in around:
                    cures |= self._state.surroundings(subscription.drain())
                cures |= self._state.nodes(nodes.drain())
                cures |= self._take_pods(pods.drain())
                now_s = self._clock.elapsed_s()
                self._queue.changed(cures, now_s)
                self._queue.tick(now_s)
                if await self._decide_some():
                    await asyncio.sleep(0)
                    continue
                await self._rest([stopping, *(asyncio.ensure_future(each.wait()) for each in (nodes, pods, *around))])
        finally:
            stopping.cancel()
            for subscription in (nodes, pods, *around):
                subscription.close()
            if self._binding:
                await asyncio.wait(self._binding)

    async def _rest(self, awaited: list["asyncio.Future[Any]"]) -> None:
        """Until something changes or somebody's back-off is over."""
        next_s = self._queue.next_tick_s()
        pause = None
        if next_s is not None:
            pause = asyncio.ensure_future(self._clock.sleep(max(0.01, next_s - self._clock.elapsed_s())))
        try:
            await asyncio.wait([*awaited, *([pause] if pause else [])], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in awaited[1:]:
                future.cancel()
            if pause is not None:
                pause.cancel()

    # -- what changed -----------------------------------------------------------------------------------------

    def _take_pods(self, changes: list[Change[Pod]]) -> set[Delta]:
        now_s = self._clock.elapsed_s()
        seen: list[Change[Pod]] = []
        for change in changes:
            old, new = change.old, change.new
            if old is not None and (new is None or change.is_replaced):
                self._queue.drop(old.uid)
                assumed = self._assumed.pop(old.uid, None)
                if assumed is not None:
                    self._state.table.remove_pod(old.uid)
            if new is not None and self._wants_node(new):
                if new.uid not in self._assumed:
                    self._queue.put(new, now_s)
                    seen.append(change)
                # Assumed: the table knows better than a pod that does not show its node yet.
                continue
            if new is not None:
                self._queue.drop(new.uid)
                self._assumed.pop(new.uid, None)
            seen.append(change)
        return self._state.pods(seen)

    def _wants_node(self, pod: Pod) -> bool:
        return (
            not pod.spec.node_name
            and pod.spec.scheduler_name in self._cycles
            and not pod.is_terminating
            and not pod.spec.scheduling_gates
            and pod.status.phase in ("", "Pending")
        )

    # -- deciding ---------------------------------------------------------------------------------------------

    async def _decide_some(self) -> int:
        """Decide a batch; returns how many were looked at."""
        decided = 0
        while decided < BATCH and (pod := self._queue.take()) is not None:
            decided += 1
            outcome = self._cycles[pod.spec.scheduler_name].decide(pod)
            if isinstance(outcome, Placed):
                self._assume(pod, outcome)
            else:
                self._queue.refused(pod.uid, outcome.diagnosis.cures, self._clock.elapsed_s())
                await self._tell_refused(pod, outcome.diagnosis)
        while len(self._binding) >= MOST_BINDING:
            await asyncio.wait(self._binding, return_when=asyncio.FIRST_COMPLETED)
        return decided

    def _assume(self, pod: Pod, placed: Placed) -> None:
        self._assumed[pod.uid] = pod
        task = asyncio.create_task(self._bind(pod, placed), name=f"bind {placed.pod}")
        self._binding.add(task)
        task.add_done_callback(self._binding.discard)

    async def _bind(self, pod: Pod, placed: Placed) -> None:
        intent = Bind(namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.uid, node=placed.node)
        result = await self._writer.carry_out(intent)
        if result.outcome is Outcome.DONE:
            note = f"Successfully assigned {pod.metadata.namespace}/{pod.metadata.name} to {placed.node}"
            await self._event(pod, "Scheduled", "Binding", note)
            return
        if result.may_have_happened and await self._was_bound(pod, placed.node):
            return
        self._forget(pod)
        log.warning(
            "binding failed", pod=placed.pod, node=placed.node, outcome=result.outcome, problem=str(result.error)
        )

    async def _was_bound(self, pod: Pod, node: str) -> bool:
        """The write got no answer: its room stays taken until the server has told whether it was carried out."""
        while True:
            try:
                found = await self._reader.find(PODS, pod.metadata.name, pod.metadata.namespace)
            except ClusterError as problem:
                log.info("binding in doubt", pod=pod.key, problem=str(problem))
                await self._clock.sleep(1.0)
                continue
            return found is not None and found.uid == pod.uid and found.spec.node_name == node

    def _forget(self, pod: Pod) -> None:
        """The binding came to nothing: give the room back and try again, if the pod still wants a node."""
        if self._assumed.pop(pod.uid, None) is None:
            return  # the watch has told us more meanwhile
        self._state.table.remove_pod(pod.uid)
        self._queue.failed(pod.uid, self._clock.elapsed_s())
        self._queue.changed([Delta.POD_REMOVED], self._clock.elapsed_s())

    # -- telling ----------------------------------------------------------------------------------------------

    async def _tell_refused(self, pod: Pod, diagnosis: Diagnosis) -> None:
        message = diagnosis.message()
        await self._event(pod, "FailedScheduling", "Scheduling", message, warning=True)
        known = next((each for each in pod.status.conditions or () if each.type == "PodScheduled"), None)
        if known is not None and (known.status, known.reason, known.message) == ("False", "Unschedulable", message):
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": rfc3339(self._clock.now()),
        }
        intent = Patch(
            kind=PODS,
            name=pod.metadata.name,
            namespace=pod.metadata.namespace,
            subresource="status",
            patch={"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}},
            strategic=True,
        )
        task = asyncio.create_task(self._patch(intent), name=f"condition {pod.key}")
        self._binding.add(task)
        task.add_done_callback(self._binding.discard)

    async def _patch(self, intent: Patch) -> None:
        # A pod that is gone, or another one, needs no condition; anything else the writer has logged.
        await self._writer.carry_out(intent)

    async def _event(self, pod: Pod, reason: str, action: str, note: str, *, warning: bool = False) -> None:
        metadata = pod.metadata
        about = Regarding(kind="Pod", name=metadata.name, namespace=metadata.namespace, uid=metadata.uid)
        await self._writer.carry_out(
            RecordEvent(regarding=about, reason=reason, action=action, note=note, warning=warning)
        )
