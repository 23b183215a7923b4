"""Why a pod is where it is, or is nowhere; and the decisions behind it, to be shown and repeated.

Read-only: every replica answers, the leader with the decisions it made itself. Former worlds are rebuilt in a thread,
one at a time, so that deciding goes on meanwhile.
"""

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from fairlead.cluster.clock import Clock
from fairlead.engine.cycle import Cycle
from fairlead.engine.pick import pick_named
from fairlead.engine.unit import UnitPlaced
from fairlead.model.numbers import whole_number
from fairlead.model.outcome import Placed, Refused
from fairlead.model.pod import SchedulerPod
from fairlead.model.times import rfc3339
from fairlead.placement.api.reading import read_table
from fairlead.placement.explain import explain, explain_again
from fairlead.placement.explanation import (
    Blockage,
    Explanation,
    PodExplanation,
    ReservationExplanation,
    Victim,
    Waiting,
)
from fairlead.placement.history import Decision, Former
from fairlead.placement.loop import Loop
from fairlead.placement.queue import FLUSH_AFTER_S
from fairlead.placement.replay import MOST_BYTES, document_of, encode
from fairlead.placement.requests.reasons import read_reason
from fairlead.placement.requests.spec import ScheduleRequest
from fairlead.placement.scale import on_scale
from fairlead.placement.snapshot import profile_document, profile_of, table_of
from fairlead.placement.table_handle import TableHandle
from fairlead.web.guard import Action, Guard
from fairlead.web.problems import Problem
from fairlead.web.routes import Answer, Call, Route

T = TypeVar("T")

MOST_LISTED: Final = 500
# Callers that wait while former worlds are rebuilt.
MOST_REBUILDING: Final = 8
# A decision's number is no larger.
MOST_NUMBER: Final = 10**18
HIDDEN: Final = "a pod in a namespace you may not read"


class DecisionSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A decision in one line; `node` is empty where no node fits, and `message` says why."""

    id: str
    at: str
    pods: tuple[str, ...]
    profile: str
    node: str = ""
    score: float = 0
    message: str = ""


class DecisionList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The newest first. `kept` is how many decisions are stored."""

    kept: int
    decisions: tuple[DecisionSummary, ...]


class Explain:
    def __init__(self, loop: Loop, clock: Clock, requests: Iterable[ScheduleRequest] = ()) -> None:
        """`requests`: those there are, whenever they are looked at; a mirror."""
        self._loop = loop
        self._clock = clock
        self._requests = requests
        # Numbers start anew with every process: this makes an id of another one unknown rather than wrong.
        self._prefix = f"{int(clock.now().timestamp()):x}"
        self._rebuilding = asyncio.Semaphore(1)
        self._waiting = 0

    def routes(self) -> list[Route]:
        pod = {"namespace": "The pod's namespace.", "name": "Its name."}
        return [
            Route(
                "GET",
                "/explain/pods/{namespace}/{name}",
                self.pod,
                "Why a pod is on its node, or what keeps it pending",
                "A placed pod is explained by the decision that placed it while that is kept, else by the cluster as "
                "it is now. Needs `get` on the pod.",
                gives={200: PodExplanation},
                parameters=pod,
                query={"all": "`true` lists every node, not only the best and examples."},
            ),
            Route(
                "GET",
                "/decisions",
                self.list,
                "The last decisions of this process",
                "Needs `get` on the pod that is named, else `list` on pods of the namespace, or of all.",
                gives={200: DecisionList},
                query={
                    "pod": "Only of this pod, as namespace/name.",
                    "namespace": "Only of pods of this namespace.",
                    "limit": f"At most so many, up to {MOST_LISTED}.",
                },
            ),
            Route(
                "GET",
                "/decisions/{id}",
                self.one,
                "A decision with the snapshot it saw, for `fairlead replay`",
                "Holds what rules can see of every node and pod, so it needs `list` on the pods of all namespaces and "
                "on nodes.",
                parameters={"id": "From the list, or from an explanation."},
            ),
        ]

    # -- one pod ------------------------------------------------------------------------------------------------

    async def pod(self, call: Call) -> Answer:
        namespace, name = call.parameters["namespace"], call.parameters["name"]
        guard = _guard(call)
        await guard.require(call.user, Action("get", "pods", namespace=namespace, name=name))
        whole = call.query.get("all", "") in ("true", "1")
        key = f"{namespace}/{name}"
        answer = await read_table(self._loop, lambda handle: self._explain(handle, key, whole))
        if not isinstance(answer, PodExplanation):
            answer = await self._rebuilt(answer)
        explanation = answer.explanation
        if answer.node and explanation is not None and (choice := explanation.choice) and choice.by == "reservation":
            answer = replace(answer, reservation=reservation_of(self._requests, namespace, name))
        if explanation is not None and explanation.blockage is not None:
            blockage = await self._reticent(call, namespace, explanation.blockage)
            answer = replace(answer, explanation=replace(explanation, blockage=blockage))
        return Answer(answer)

    def _explain(self, handle: TableHandle, key: str, whole: bool) -> "PodExplanation | Callable[[], PodExplanation]":
        """On the loop: the answer, or a function that computes it elsewhere from a former snapshot."""
        pod = self._loop.pods.get(key)
        decision = handle.history.find(key) if pod is None else handle.history.latest(pod.uid)
        if pod is None:
            if decision is None:
                message = (
                    f"there is no pod {key}, and no decision about one is kept; use a name that kubectl get pods prints"
                )
                raise Problem(404, "NotFound", message)
            return self._by_decision(handle, decision, "Gone", key, "", whole)
        node = pod.spec.node_name or (occupant.node if (occupant := handle.table.occupants.get(pod.uid)) else "")
        outcome = decision.outcome if decision is not None else None
        if decision is not None and isinstance(outcome, Placed) and outcome.node == node:
            return self._by_decision(handle, decision, "Placed", key, node, whole)
        return self._by_now(handle, pod, node, whole)

    def _by_now(self, handle: TableHandle, pod: SchedulerPod, node: str, whole: bool) -> PodExplanation:
        notes: list[str] = []
        scheduler = pod.spec.scheduler_name or "default-scheduler"
        cycle = handle.cycle(scheduler)
        state = "Placed" if node else "Pending"
        if cycle is None:
            name, cycle = next(iter(handle.cycles.items()))
            notes.append(f"{scheduler} places this pod, not Fairlead; this is what the profile of {name} would say")
            state = state if node else "Elsewhere"
        if node:
            notes.append(
                "no decision about it is kept here: too long ago, or not made by this process; "
                "this is where it would go now if it had no node"
            )
        elif pod.spec.scheduling_gates:
            state = "Gated"
            gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            notes.append(f"it waits for its scheduling gates: {gates}")
        if not self._loop.is_leading:
            notes.append("this process is a standby: it sees the same cluster, but not what the leader just decided")
        explanation = explain_again(cycle, pod, nominated=handle.nominated(), whole=whole)
        return PodExplanation(
            pod=pod.key,
            scheduler=scheduler,
            state=state,
            of="now",
            explanation=explanation,
            node=node,
            at=rfc3339(self._clock.now()),
            waiting=_waiting(handle, pod.uid),
            notes=tuple(notes),
        )

    def _by_decision(
        self, handle: TableHandle, decision: Decision, state: str, key: str, node: str, whole: bool
    ) -> Callable[[], PodExplanation]:
        former = handle.history.snapshot(decision)
        pod = next(pod for pod in decision.pods if pod.key == key)
        answer = PodExplanation(
            pod=key,
            scheduler=pod.spec.scheduler_name,
            state=state,
            of="decision",
            node=node,
            decision=self._id(decision),
            at=rfc3339(decision.at),
        )
        if decision.pod is None:
            return lambda: replace(answer, notes=("it was decided as one of a unit; the decision has all of them",))
        return lambda: replace(answer, explanation=explain_former(decision, former, whole=whole))

    async def _reticent(self, call: Call, own: str, blockage: Blockage) -> Blockage:
        """Names of victims only to who may read them."""
        clearing = blockage.clearing
        if clearing is None or not clearing.victims:
            return blockage
        guard = _guard(call)
        victims = []
        for victim in clearing.victims:
            namespace = victim.pod.partition("/")[0]
            action = Action("list", "pods", namespace=namespace)
            seen = namespace == own or await guard.allows(call.user, action)
            victims.append(victim if seen else Victim(HIDDEN, victim.priority))
        return replace(blockage, clearing=replace(clearing, victims=tuple(victims)))

    # -- decisions ----------------------------------------------------------------------------------------------

    async def list(self, call: Call) -> Answer:
        key, namespace = call.query.get("pod", ""), call.query.get("namespace", "")
        if key:
            namespace, slash, name = key.partition("/")
            if not (slash and namespace and name):
                raise Problem(400, "BadRequest", f"pod: must be namespace/name, not {key!r}")
            action = Action("get", "pods", namespace=namespace, name=name)
        else:
            action = Action("list", "pods", namespace=namespace)
        await _guard(call).require(call.user, action)
        limit = _limit(call.query.get("limit", ""))

        def summaries(handle: TableHandle) -> DecisionList:
            found = (each for each in handle.history if _is_about(each, key, namespace))
            listed = tuple(self._summary(each) for each in islice(found, limit))
            return DecisionList(kept=len(handle.history), decisions=listed)

        return Answer(await read_table(self._loop, summaries))

    async def one(self, call: Call) -> Answer:
        guard = _guard(call)
        await guard.require(call.user, Action("list", "pods"))
        await guard.require(call.user, Action("list", "nodes"))
        name = call.parameters["id"]
        is_ours, number = self._number(name)

        def lookup(handle: TableHandle) -> tuple[Decision, Former] | None:
            decision = handle.history.get(number) if number is not None else None
            return None if decision is None else (decision, handle.history.snapshot(decision))

        kept = await read_table(self._loop, lookup)
        if kept is None:
            why = (
                "another process, or this one before a restart, made it"
                if not is_ours
                else "it is not among the last ones any more"
                if number is not None
                else "the part after the dash is not a number"
            )
            message = (
                f"no decision {name[:80]} is kept here: {why}. Each process keeps its own last ones in memory, and "
                "GET /decisions lists them; to keep one, save its document"
            )
            raise Problem(404, "NotFound", message)
        text = await self._rebuilt(lambda: encode(document_of(*kept, name)))
        if len(text) > MOST_BYTES:
            raise Problem(413, "TooLarge", f"the document would have {len(text)} bytes, over {MOST_BYTES}")
        return Answer(text)

    def _number(self, name: str) -> tuple[bool, int | None]:
        """Whether a decision of that name would be this process's own, and its number."""
        prefix, _, number = name.partition("-")
        return prefix == self._prefix, whole_number(number, 0, MOST_NUMBER) if prefix == self._prefix else None

    def _id(self, decision: Decision) -> str:
        return f"{self._prefix}-{decision.number}"

    def _summary(self, decision: Decision) -> DecisionSummary:
        pods = tuple(pod.key for pod in decision.pods[:MOST_LISTED])
        profile, at = decision.profile.name, rfc3339(decision.at)
        outcome = decision.outcome
        if isinstance(outcome, Placed):
            score = on_scale(outcome.score, decision.profile.unit)
            return DecisionSummary(
                id=self._id(decision), at=at, pods=pods, profile=profile, node=outcome.node, score=score
            )
        message = outcome.diagnosis.message() if isinstance(outcome, Refused) else _unit_message(decision)
        return DecisionSummary(id=self._id(decision), at=at, pods=pods, profile=profile, message=message)

    # -- threads beside the table ---------------------------------------------------------------------------------

    async def _rebuilt(self, work: Callable[[], T]) -> T:
        if self._waiting >= MOST_REBUILDING:
            raise Problem(
                503,
                "Unavailable",
                f"{self._waiting} other calls wait for earlier snapshots; try again later",
                retry_after_s=2.0,
            )
        self._waiting += 1
        try:
            async with self._rebuilding:
                return await asyncio.to_thread(work)
        finally:
            self._waiting -= 1


def reservation_of(requests: Iterable[ScheduleRequest], namespace: str, name: str) -> ReservationExplanation | None:
    """Why a request reserved a node for this pod, if one did and its reasons were kept."""
    for request in requests:
        for item, status in zip(request.spec.items, request.item_statuses, strict=True):
            if item.namespace != namespace or item.is_removal:
                continue
            for place in status.places:
                if place.pod == name and place.node and (reason := read_reason(place, status)) is not None:
                    return ReservationExplanation(request.name, place.node, reason)
    return None


def explain_former(decision: Decision, former: Former, *, whole: bool = False) -> Explanation:
    """A kept decision about one pod, explained on its own snapshot, with rules of our own: the loop uses its own."""
    assert decision.pod is not None
    profile = profile_of(profile_document(decision.profile))
    cycle = Cycle(table_of(former.document()), profile, pick_named(profile.args.pick, decision.turn))
    return explain(cycle, decision.pod, nominated=decision.nominated, first=decision.first, whole=whole)


def _guard(call: Call) -> Guard:
    if call.guard is None:
        raise Problem(
            503, "Unavailable", "callers cannot be authenticated yet: the cluster is not reachable", retry_after_s=2.0
        )
    return call.guard


def _limit(text: str) -> int:
    if not text:
        return 100
    if (limit := whole_number(text, 1, MOST_LISTED)) is None:
        raise Problem(400, "BadRequest", f"limit: must be 1 to {MOST_LISTED}, not {text[:20]!r}")
    return limit


def _is_about(decision: Decision, key: str, namespace: str) -> bool:
    if key:
        return any(pod.key == key for pod in decision.pods)
    return not namespace or all(pod.metadata.namespace == namespace for pod in decision.pods)


def _unit_message(decision: Decision) -> str:
    outcome = decision.unit_outcome
    if outcome is None:
        return ""
    if isinstance(outcome, UnitPlaced):
        return f"{len(outcome.placed)} pods of {outcome.unit} placed"
    return outcome.diagnosis.message()


def _waiting(handle: TableHandle, uid: str) -> Waiting | None:
    waiting = handle.queue.get(uid)
    if waiting is None:
        return None
    queue, now_s = handle.queue.state(uid), handle.now_s
    next_s: float | None = None
    if queue == "backoff":
        next_s = max(0.0, waiting.backing_off_until_s - now_s)
    elif queue == "unschedulable":
        next_s = max(0.0, waiting.asleep_since_s + FLUSH_AFTER_S - now_s)
    return Waiting(
        queue=queue,
        waited_s=round(now_s - waiting.since_s, 3),
        attempts=waiting.attempts,
        errors=waiting.errors,
        next_try_in_s=None if next_s is None else round(next_s, 3),
    )
