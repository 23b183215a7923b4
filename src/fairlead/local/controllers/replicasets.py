"""ReplicaSets and ReplicationControllers: as many pods as asked for, made and removed in Kubernetes' order.

The two differ in how they write their selector and in nothing else. Pods that have ended are replaced, those that
are going are neither counted nor touched.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from fairlead.cluster.controller import Controller
from fairlead.cluster.shell import BURST, claimed_keys
from fairlead.local.controllers.mirrors import ControllerContext
from fairlead.local.controllers.pods import (
    available_in_s,
    create_pod,
    delete_pod,
    is_available,
    ready_at,
    wake_after,
)
from fairlead.local.controllers.spec import (
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    ControllerPod,
    ReplicaSet,
    ReplicationController,
    selector_of,
)
from fairlead.local.controllers.statuses import condition_of, plan_status, with_condition, without_condition
from fairlead.model.intents import Intent
from fairlead.model.kinds import Kind
from fairlead.model.numbers import whole_number
from fairlead.model.owners import claim, is_controlled_by
from fairlead.model.selectors import Selector, equal_to
from fairlead.model.templates import fresh_name, pod_body
from fairlead.model.times import parse_time, seconds_since

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
FAILURE: Final = "ReplicaFailure"
PACE_S: Final = 10.0
PACE_SPARE: Final = 10
_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


@dataclass(frozen=True, slots=True)
class ReplicaSetInput:
    kind: Kind[Any]
    owner: ReplicaSet | ReplicationController
    selector: Selector
    pods: tuple[ControllerPod, ...]  # its own, and those nobody controls
    neighbours: tuple[ControllerPod, ...] = ()  # ready pods of its controller's other sets, for the scale-down order
    problem: str = ""  # why the last create was refused


def plan_replica_set(seen: ReplicaSetInput, now: datetime) -> list[Intent]:
    owner, spec = seen.owner, seen.owner.spec
    mine, intents = claim(seen.kind, owner.metadata, seen.selector, PODS, seen.pods)
    active = [pod for pod in mine if pod.is_active]
    waits: list[float] = []
    if not owner.is_terminating:
        if len(active) < spec.replicas:
            count = spec.replicas - len(active)
            allowed, wait_s = _allowed(mine, spec.replicas, now)
            intents += _missing(seen, min(count, allowed), now)
            waits += [wait_s] if count > allowed else []
        elif len(active) > spec.replicas:
            intents += _surplus(seen, active, len(active) - spec.replicas, now)
    intents += _status(seen, mine, active, now)
    waits += [available_in_s(pod, spec.min_ready_seconds, now) for pod in active if pod.is_ready]
    return [*intents, *wake_after(waits)]


def _allowed(mine: list[ControllerPod], replicas: int, now: datetime) -> tuple[int, float]:
    """How many pods may be made now, and in how many seconds more.

    A node may reject every pod that we make, as fast as we make them: then they come no faster than the whole set and
    a few more in each pace.
    """
    ages = sorted(
        seconds_since(pod.metadata.creation_timestamp, now)
        for pod in mine
        if pod.status.phase == "Failed" and seconds_since(pod.metadata.creation_timestamp, now) < PACE_S
    )
    return max(0, replicas + PACE_SPARE - len(ages)), PACE_S - ages[-1] if ages else 0.0


def _missing(seen: ReplicaSetInput, count: int, now: datetime) -> Iterable[Intent]:
    owner = seen.owner.metadata
    for number in range(min(count, BURST)):
        body = pod_body(seen.kind, owner, seen.owner.spec.template, fresh_name(owner, now, number))
        yield from create_pod(seen.kind, owner, body)


def _surplus(seen: ReplicaSetInput, active: list[ControllerPod], count: int, now: datetime) -> Iterable[Intent]:
    together = Counter(pod.spec.node_name for pod in (*active, *seen.neighbours) if pod.is_ready and pod.spec.node_name)
    for pod in sorted(active, key=lambda pod: _worth(pod, together, now))[: min(count, BURST)]:
        yield from delete_pod(seen.kind, seen.owner.metadata, pod)


def _worth(pod: ControllerPod, together: Counter[str], now: datetime) -> tuple[Any, ...]:
    """The least comes first and goes first: Kubernetes' order, with ages compared by their powers of two."""
    created = parse_time(pod.metadata.creation_timestamp) if pod.metadata.creation_timestamp else now
    restarts = max((status.restart_count for status in pod.status.container_statuses or ()), default=0)
    return (
        bool(pod.spec.node_name),
        _PHASES.get(pod.status.phase, 0),
        pod.is_ready,
        deletion_cost(pod),
        -together[pod.spec.node_name],
        _age_rank(ready_at(pod), now) if pod.is_ready else 0,
        -restarts,
        _age_rank(created, now),
        pod.metadata.uid,
    )


def _age_rank(since: datetime, now: datetime) -> int:
    nanoseconds = int((now - since) / timedelta(microseconds=1)) * 1000
    return max(nanoseconds, 0).bit_length()


def deletion_cost(pod: ControllerPod) -> int:
    text = pod.metadata.annotations.get(DELETION_COST, "0")
    cost = whole_number(text, -(2**31), 2**31 - 1)
    # Kubernetes takes neither a plus sign nor leading zeroes, and then counts the pod as of no cost.
    return cost if cost is not None and str(cost) == text else 0


def _status(
    seen: ReplicaSetInput, mine: list[ControllerPod], active: list[ControllerPod], now: datetime
) -> list[Intent]:
    owner, spec = seen.owner, seen.owner.spec
    labelled = equal_to((spec.template.get("metadata") or {}).get("labels") or {})
    conditions = owner.conditions
    if seen.problem and condition_of(conditions, FAILURE) is None:
        conditions = with_condition(conditions, FAILURE, "True", "FailedCreate", seen.problem, now)
    elif not seen.problem:
        conditions = without_condition(conditions, FAILURE)
    desired: dict[str, Any] = {
        "replicas": len(active),
        "fullyLabeledReplicas": sum(labelled.matches(pod.metadata.labels) for pod in active) or None,
        "readyReplicas": sum(pod.is_ready for pod in active) or None,
        "availableReplicas": sum(is_available(pod, spec.min_ready_seconds, now) for pod in active) or None,
        "observedGeneration": owner.metadata.generation,
        "conditions": conditions or None,
    }
    if seen.kind is REPLICA_SETS:
        desired["terminatingReplicas"] = sum(pod.is_terminating and not pod.is_finished for pod in mine)
    return plan_status(seen.kind, owner, desired)


def replica_set_controller(context: ControllerContext) -> Controller:
    return _controller(context, REPLICA_SETS, selector_of)


def replication_controller_controller(context: ControllerContext) -> Controller:
    return _controller(context, REPLICATION_CONTROLLERS, lambda owner: equal_to(owner.spec.selector or {}))


def _controller(
    context: ControllerContext, kind: Kind[Any], selector_of: Callable[[Any], Selector | None]
) -> Controller:
    owners, pods = context.mirrors.of(kind), context.mirrors.of(PODS)

    def see(key: str) -> ReplicaSetInput | None:
        owner = owners.get(key)
        selector = selector_of(owner) if owner is not None else None
        if owner is None or selector is None or selector.is_empty:
            return None
        return ReplicaSetInput(
            kind,
            owner,
            selector,
            context.mirrors.claimable(PODS, owner.metadata),
            tuple(neighbours(owner)),
            context.problem(kind, key),
        )

    def neighbours(owner: Any) -> Iterable[ControllerPod]:
        controller = owner.metadata.controller
        siblings = owners.by("owner", controller.uid) if controller else ()
        for sibling in siblings:
            if sibling.metadata.uid != owner.metadata.uid:
                for pod in pods.by("owner", sibling.metadata.uid):
                    if pod.is_ready and pod.is_active and is_controlled_by(pod, sibling.metadata):
                        yield pod

    claimed = claimed_keys(owners, selector_of)
    return context.controller(kind, see, plan_replica_set).watches(owners).watches(pods, claimed)
