"""What is done about a planned item, as intents; and what a request is as a whole. Pure."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from fairlead.engine.removal import DELETION_COST
from fairlead.model.intents import Evict, Patch, Scale
from fairlead.model.kinds import POD_OBJECTS
from fairlead.model.meta import Condition
from fairlead.model.times import rfc3339
from fairlead.placement.requests.progress import is_over
from fairlead.placement.requests.spec import (
    ANNOTATION,
    FINISHED,
    REMEMBERED,
    UID_ANNOTATION,
    WORKLOADS,
    Item,
    ItemStatus,
    Phase,
    Replicas,
    RequestStatus,
    ScheduleRequest,
    Victim,
    Workload,
)

MOST_SHORT: Final = 5
"""Items that are named in a request's own message when fewer pods were placed or removed than requested."""
LOWEST_COST: Final = "-2147483647"
"""Below any cost people give, so that Kubernetes takes this pod before its equals."""


def plan_scale(request: str, uid: str, item: Item, workload: Workload) -> Scale | None:
    """The one PATCH that carries the item out; None when it was sent before, or there is nothing to change.

    Its resourceVersion is that of the object whose annotation was looked at, so a second one can only be refused.
    """
    if workload.was_changed_by(request, uid):
        return None
    sign = -1 if item.is_removal else 1
    after = max(0, workload.replicas + sign * item.number)
    if after == workload.replicas:
        return None
    uids = [each for each in workload.metadata.annotations.get(UID_ANNOTATION, "").split(",") if each]
    # Where some are missing it would not be known whose they are.
    uids = uids if len(uids) == len(workload.changed_by) else []
    return Scale(
        kind=WORKLOADS[item.workload.kind],
        namespace=item.namespace,
        name=item.workload.name,
        replicas=after,
        resource_version=workload.metadata.resource_version,
        annotations={
            ANNOTATION: ",".join((request, *workload.changed_by)[:REMEMBERED]),
            UID_ANNOTATION: ",".join((uid, *uids)[:REMEMBERED]),
        },
    )


def plan_costs(item: Item, status: ItemStatus) -> list[Patch]:
    """What makes Kubernetes take the named pods: nothing is left to say about pods it takes first anyway."""
    if item.workload.kind not in ("Deployment", "ReplicaSet"):
        return []
    return [_cost(item, victim, LOWEST_COST) for victim in status.victims if victim.guaranteed]


def plan_costs_back(item: Item, status: ItemStatus) -> list[Patch]:
    """Named pods that stayed get their own cost back."""
    if item.workload.kind not in ("Deployment", "ReplicaSet"):
        return []
    return [_cost(item, victim, victim.cost) for victim in status.victims if victim.guaranteed and not victim.gone]


def _cost(item: Item, victim: Victim, cost: str | None) -> Patch:
    # With its UID: a pod made anew under the same name was never named.
    metadata = {"uid": victim.uid, "annotations": {DELETION_COST: cost}}
    return Patch(kind=POD_OBJECTS, name=victim.pod, namespace=item.namespace, patch={"metadata": metadata})


def plan_evictions(item: Item, status: ItemStatus) -> list[Evict]:
    """Evict bare pods one by one, so that disruption budgets hold."""
    if item.workload.kind != "Service":
        return []
    return [
        Evict(namespace=item.namespace, name=victim.pod, uid=victim.uid) for victim in status.victims if not victim.gone
    ]


def acted(status: ItemStatus, item: Item, workload: Workload | None, now: datetime) -> ItemStatus:
    """The change is made: with the replicas it was made from, where they are known."""
    if workload is not None:
        sign = -1 if item.is_removal else 1
        after = max(0, workload.replicas + sign * item.number)
        shortfall = item.number - abs(after - workload.replicas)
        replicas = Replicas(before=workload.replicas, after=after)
        status = msgspec.structs.replace(status, replicas=replicas, shortfall=shortfall)
    return msgspec.structs.replace(status, phase="Scaled", acted_at=rfc3339(now))


# --- the whole request ------------------------------------------------------------------------------------


def summed_up(
    request: ScheduleRequest,
    items: Sequence[ItemStatus],
    now: datetime,
    conditions: tuple[Condition, ...] | None = None,
) -> RequestStatus:
    """How far the request is as a whole; conditions stay as they are unless others are given."""
    phases = [item.phase for item in items]
    phase: Phase
    if all(each in FINISHED for each in phases):
        phase = "Done" if set(phases) == {"Done"} else "Failed" if set(phases) == {"Failed"} else "Partial"
    else:
        phase = next(each for each in ("Accepted", "Waiting", "Planned", "Scaled") if each in phases)
    messages = [item.message for item in items if item.message]
    if len(items) > 1:
        finished = sum(1 for each in phases if each in FINISHED)
        message = f"{finished} of {len(items)} items finished"
        short = [
            f"item {index} ({item.namespace}/{item.service_name}): {status.message}"
            for index, (item, status) in enumerate(zip(request.spec.items, items, strict=True))
            if status.phase in ("Partial", "Failed")
        ]
        if short:
            more = f" and {len(short) - MOST_SHORT} more" if len(short) > MOST_SHORT else ""
            message += f"; {'; '.join(short[:MOST_SHORT])}{more}"
    else:
        message = messages[0] if messages else ""
    return RequestStatus(
        phase=phase,
        message=message,
        added=sum(item.added for item in items),
        removed=sum(item.removed for item in items),
        finished_at=(request.status.finished_at or rfc3339(now)) if phase in FINISHED else "",
        items=tuple(items),
        conditions=request.status.conditions if conditions is None else conditions,
    )


def plan_tidying(
    requests: Iterable[ScheduleRequest], *, now: datetime, keep: int, keep_s: float
) -> list[ScheduleRequest]:
    """Finished requests to delete: too old, or too many; the oldest first."""
    finished = sorted((each for each in requests if each.is_finished), key=lambda each: each.status.finished_at)
    old = [each for each in finished if is_over(each.status.finished_at, keep_s, now)]
    many = finished[: max(0, len(finished) - keep)]
    return old if len(old) >= len(many) else many
