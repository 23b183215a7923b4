"""Preempting: carrying out what the engine planned. Victims get a condition, then are deleted; the node is nominated.

The pod itself goes back to sleep until a pod leaves: its node is tried first when it wakes.
"""

from collections.abc import Iterable

import msgspec
import structlog

from fairlead.cluster.clock import Clock
from fairlead.cluster.writer import Outcome, Writer
from fairlead.engine.occupant import Occupant
from fairlead.model.intents import Delete, Regarding
from fairlead.model.kinds import split_key
from fairlead.model.pod import SchedulerPod
from fairlead.placement import events_and_conditions
from fairlead.placement.spec import PODS

log = structlog.get_logger("fairlead.placement")


class Nominations:
    """Pods that a node is being cleared for. What we decided counts at once, before the server shows it."""

    def __init__(self) -> None:
        self._pods: dict[str, SchedulerPod] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def all(self) -> tuple[SchedulerPod, ...]:
        return tuple(self._pods.values())

    def node_of(self, uid: str) -> str:
        pod = self._pods.get(uid)
        return pod.status.nominated_node_name if pod else ""

    def observe(self, before: SchedulerPod | None, pod: SchedulerPod) -> None:
        """Take the nomination of a pending pod from the server where it changed; otherwise keep our own.

        What we set or cleared shows on the server a little later: until then it has the old one.
        """
        node = pod.status.nominated_node_name
        if before is None or before.status.nominated_node_name != node:
            if node:
                self._pods[pod.uid] = pod
            else:
                self.drop(pod.uid)
        elif pod.uid in self._pods:
            self.set(pod, self.node_of(pod.uid))

    def begin(self, waiting: Iterable[SchedulerPod]) -> None:
        """A new leader starts from the server's nominations alone: those of its earlier terms are out of date."""
        self._pods = {pod.uid: pod for pod in waiting if pod.status.nominated_node_name}

    def set(self, pod: SchedulerPod, node: str) -> None:
        status = msgspec.structs.replace(pod.status, nominated_node_name=node)
        self._pods[pod.uid] = msgspec.structs.replace(pod, status=status)

    def drop(self, uid: str) -> None:
        self._pods.pop(uid, None)

    def give_way(self, pod: SchedulerPod, node: str) -> list[SchedulerPod]:
        """Those of lower priority that wait for this node lose it."""
        losing = [
            other
            for other in self._pods.values()
            if other.status.nominated_node_name == node and other.priority < pod.priority and other.uid != pod.uid
        ]
        for other in losing:
            del self._pods[other.uid]
        return losing


class Preemptor:
    def __init__(self, *, writer: Writer, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock

    async def evict(self, pod: SchedulerPod, node: str, victims: Iterable[Occupant]) -> int:
        """Evict the victims for the pod; returns how many are on their way out."""
        gone = 0
        for victim in victims:
            gone += await self._evict(pod, node, victim)
        return gone

    async def _evict(self, pod: SchedulerPod, node: str, victim: Occupant) -> bool:
        if victim.terminating:
            return True  # it is being deleted already, and has the condition of whoever deleted it
        namespace, name = split_key(victim.key)
        whom = Regarding(kind="Pod", name=name, namespace=namespace, uid=victim.uid)
        noted = await self._writer.carry_out(
            events_and_conditions.disrupted(whom, pod.spec.scheduler_name, self._clock.now())
        )
        if noted.outcome in (Outcome.MISSING, Outcome.CONFLICT):
            return False  # gone already, or another pod of that name: nothing to evict
        # No grace period of ours: the victim's own holds.
        result = await self._writer.carry_out(Delete(kind=PODS, name=name, namespace=namespace, uid=victim.uid))
        if result.outcome is not Outcome.DONE:
            log.warning("victim not evicted", pod=victim.key, by=pod.key, problem=str(result.error))
            return False
        await self._writer.carry_out(events_and_conditions.preempted(whom, pod, victim.node))
        log.info("preempted", pod=victim.key, node=victim.node, by=pod.key)
        return True
