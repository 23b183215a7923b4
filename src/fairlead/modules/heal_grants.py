"""Which bases may be healed now: the leader's word, written on the node of each that waits for it.

Pure but for `GrantWriter`, which `modules.capability` runs where it leads. Never more at a time than the budget, never
in a freeze window, never where the others could not take over; a refusal is a sentence on the node.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec
import structlog

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.writer import Writer
from fairlead.engine.unit import Member, NoTrial, Trials, Unit, UnitPlaced
from fairlead.model.intents import Patch
from fairlead.model.kinds import Kind
from fairlead.model.meta import ObjectMeta
from fairlead.model.node import Node
from fairlead.model.numbers import whole_number
from fairlead.model.pod import SchedulerPod
from fairlead.model.quantity import nanos
from fairlead.modules.deployments import is_ready
from fairlead.modules.healing import GRANT, STATE, Grant, HealState, Step, read_grant, read_state
from fairlead.modules.names import CLUSTER_NAME, MODULE_LABEL_PREFIX
from fairlead.modules.surge import Surges
from fairlead.nodes.node import NODES

log = structlog.get_logger("fairlead.modules")

TURN_S: Final = 2.0
PLACED_PODS: Final = Kind("", "v1", "pods", "Pod", SchedulerPod)
DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True, slots=True)
class Window:
    """A time of the week, in UTC, in which nothing is healed."""

    days: frozenset[int]
    start_min: int
    end_min: int

    def has(self, now: datetime) -> bool:
        minute = now.hour * 60 + now.minute
        if self.start_min <= self.end_min:
            return now.weekday() in self.days and self.start_min <= minute < self.end_min
        # Over midnight: the morning after belongs to the day before.
        is_evening = now.weekday() in self.days and minute >= self.start_min
        return is_evening or ((now.weekday() - 1) % 7 in self.days and minute < self.end_min)


def parse_window(text: str) -> Window:
    """`HH:MM-HH:MM`, or with days before it: `Mon-Fri 09:00-17:00`, `Sat 00:00-24:00`; ValueError otherwise."""
    *day_words, times = text.split()
    start, _, end = times.partition("-")
    first, _, last = (day_words[0].lower() if day_words else "mon-sun").partition("-")
    if len(day_words) > 1 or first not in DAYS or (last or first) not in DAYS:
        raise ValueError(f"freeze window {text!r}: must be days such as Mon-Fri, then HH:MM-HH:MM in UTC")
    begin, span = DAYS.index(first), (DAYS.index(last or first) - DAYS.index(first)) % 7
    days = frozenset((begin + offset) % 7 for offset in range(span + 1))
    return Window(days, _minutes(start, text), _minutes(end, text))


def _minutes(text: str, whole: str) -> int:
    first, _, second = text.partition(":")
    hours, minutes = whole_number(first, 0, 24), whole_number(second, 0, 59)
    if hours is None or minutes is None or hours * 60 + minutes > 24 * 60:
        raise ValueError(f"freeze window {whole!r}: {text!r} is no time of day")
    return hours * 60 + minutes


@dataclass(frozen=True, slots=True)
class Candidate:
    node: Node
    state: HealState


def candidates(
    nodes: Sequence[Node], now: datetime, windows: Sequence[Window], most: int
) -> list[tuple[Candidate, str]]:
    """Nodes that wait for a grant, oldest first, each with why it cannot have one, or an empty text if it may."""
    states = {node.name: read_state(node.metadata.annotations.get(STATE, "")) for node in nodes}
    busy: dict[str, int] = {}
    waiting = []
    for node in nodes:
        state = states[node.name]
        if state is None:
            continue
        grant = read_grant(node.metadata.annotations.get(GRANT, ""))
        is_granted = grant is not None and grant.since == state.since and grant.is_granted
        if state.step is not Step.CORDONED or is_granted:
            busy[_cluster(node)] = busy.get(_cluster(node), 0) + 1
        else:
            waiting.append(Candidate(node, state))
    found = []
    for candidate in sorted(waiting, key=lambda each: (each.state.since, each.node.name)):
        cluster = _cluster(candidate.node)
        others = [node for node in nodes if _cluster(node) == cluster and states[node.name] is None and is_ready(node)]
        why = ""
        if any(window.has(now) for window in windows):
            why = "a freeze window is open"
        elif busy.get(cluster, 0) >= most:
            why = f"{busy[cluster]} of at most {most} bases of cluster {cluster!r} are being healed"
        elif not others:
            why = f"there is no other Ready base in cluster {cluster!r} to take its modules"
        else:
            busy[cluster] = busy.get(cluster, 0) + 1
        found.append((candidate, why))
    return found


def _cluster(node: Node) -> str:
    return node.metadata.labels.get(CLUSTER_NAME, "")


def homeless(leaving: Sequence[SchedulerPod], elsewhere: Sequence[SchedulerPod]) -> list[SchedulerPod]:
    """Pods whose modules no other Ready pod has: they need a place before their base goes.

    A module that every base has, one each, has nowhere else to go; its other instances serve meanwhile.
    """
    served: set[tuple[str, str, str]] = set()
    for pod in elsewhere:
        if is_ready(pod):
            served |= _modules(pod)
    return [pod for pod in leaving if not (_modules(pod) and _modules(pod) <= served)]


def _modules(pod: SchedulerPod) -> set[tuple[str, str, str]]:
    labels = pod.metadata.labels
    return {
        (pod.metadata.namespace, key, value) for key, value in labels.items() if key.startswith(MODULE_LABEL_PREFIX)
    }


def fits_by_sums(
    pods: Sequence[SchedulerPod], others: Sequence[Node], placed: Mapping[str, Sequence[SchedulerPod]]
) -> bool:
    """Whether the free room of the others, added up, is enough; for want of a scheduler that could be asked."""
    needed = _requests(pods)
    for name, amount in needed.items():
        free = sum(
            max(0, nanos(node.allocatable.get(name, "0")) - _requests(placed.get(node.name, ())).get(name, 0))
            for node in others
        )
        if amount > free:
            return False
    return True


def _requests(pods: Sequence[SchedulerPod]) -> dict[str, int]:
    total: dict[str, int] = {"pods": len(pods) * 1_000_000_000}
    for pod in pods:
        for container in pod.spec.containers or ():
            requests = container.resources.requests if container.resources is not None else None
            for name, amount in (requests or {}).items():
                total[name] = total.get(name, 0) + nanos(amount)
    return total


class GrantWriter:
    def __init__(
        self,
        nodes: Mirror[Node],
        reader: Client,
        writer: Writer,
        trials: Sequence[Trials],
        *,
        clock: Clock,
        windows: Sequence[Window],
        most: int,
        surges: Surges | None = None,
    ) -> None:
        """`trials`: whoever decides on a copy of the table; none where placement is not in this process."""
        self._nodes = nodes
        self._reader = reader
        self._writer = writer
        self._trials = trials
        self._clock = clock
        self._windows = windows
        self._most = most
        self._surges = surges

    async def run(self) -> None:
        """Until cancelled."""
        await self._nodes.wait_synced()
        while True:
            try:
                await self.turn()
            except ClusterError as problem:
                log.warning("healing is not looked at", problem=str(problem))
            await self._clock.sleep(TURN_S)

    async def turn(self) -> None:
        nodes = list(self._nodes)
        if self._surges is not None:
            await self._surges.end({node.name for node in nodes if STATE in node.metadata.annotations})
        for candidate, refusal in candidates(nodes, self._clock.now(), self._windows, self._most):
            why = refusal or await self._hindrance(candidate.node, nodes)
            node, state = candidate.node, candidate.state
            grant = Grant(state.since, not why, why)
            text = msgspec.json.encode(grant).decode()
            if node.metadata.annotations.get(GRANT) == text:
                continue
            log.info("healing granted" if not why else "healing refused", node=node.name, reason=why)
            patch = {"metadata": {"annotations": {GRANT: text}}}
            await self._writer.carry_out(
                Patch(kind=NODES, name=node.name, patch=patch, resource_version=node.metadata.resource_version)
            )

    async def _hindrance(self, node: Node, nodes: Sequence[Node]) -> str:
        """Why its modules cannot leave yet; empty if they can. One that only this base serves gets a pod more first."""
        names = {each.name for each in nodes}
        pods = [
            pod for pod in await self._reader.list(PLACED_PODS) if pod.spec.node_name in names and not pod.is_finished
        ]
        leaving = [pod for pod in pods if pod.spec.node_name == node.name and not pod.is_terminating]
        needing = homeless(leaving, [pod for pod in pods if pod.spec.node_name != node.name])
        if not needing:
            return ""
        if why := await self._no_room(node, nodes, needing, pods):
            return why
        waiting = await self._surges.begin(node.name, needing) if self._surges is not None else []
        return f"waits for the next pods of {', '.join(sorted(waiting))} on other bases" if waiting else ""

    async def _no_room(
        self, node: Node, nodes: Sequence[Node], needing: Sequence[SchedulerPod], pods: Sequence[SchedulerPod]
    ) -> str:
        """Why the others cannot take these; empty if they can."""
        unit = Unit(f"heal/{node.name}", tuple(Member(_planned(pod)) for pod in needing))
        if self._trials:
            try:
                outcome = await self._trials[0].on_copy(
                    [member.pod for member in unit.members], lambda table: table.decide(unit)
                )
            except (NoTrial, ValueError):
                pass  # not the leader of placement, or pods of another scheduler: by sums then
            else:
                return "" if isinstance(outcome, UnitPlaced) else f"the other bases have no place for {needing[0].key}"
        others = [
            each
            for each in nodes
            if each.name != node.name and _cluster(each) == _cluster(node) and is_ready(each)
            if read_state(each.metadata.annotations.get(STATE, "")) is None
        ]
        placed: dict[str, list[SchedulerPod]] = {}
        for pod in pods:
            placed.setdefault(pod.spec.node_name, []).append(pod)
        return "" if fits_by_sums(needing, others, placed) else f"the other bases have no room for {needing[0].key}"


def _planned(pod: SchedulerPod) -> SchedulerPod:
    """The pod that would replace it: it has no node yet."""
    metadata = ObjectMeta(
        name=f"{pod.metadata.name}-again", namespace=pod.metadata.namespace, labels=pod.metadata.labels
    )
    spec = msgspec.structs.replace(pod.spec, node_name="")
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec, status=type(pod.status)())
