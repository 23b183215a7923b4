"""What workload controllers share about their pods: when one is available, and how one is created and deleted."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fairlead.local.controllers.spec import PODS, ControllerPod
from fairlead.model.intents import Create, Intent, WakeAfter, delete, event
from fairlead.model.kinds import Kind
from fairlead.model.meta import ObjectMeta
from fairlead.model.times import parse_time

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


def available_in_s(pod: ControllerPod, min_ready_s: int, now: datetime) -> float:
    """Seconds until a ready pod has been ready for long enough; nothing or less if it has."""
    return (ready_at(pod) + timedelta(seconds=min_ready_s) - now).total_seconds() if min_ready_s else 0.0


def is_available(pod: ControllerPod, min_ready_s: int, now: datetime) -> bool:
    return pod.is_ready and available_in_s(pod, min_ready_s, now) <= 0


def ready_at(pod: ControllerPod) -> datetime:
    ready = pod.condition("Ready")
    return parse_time(ready.last_transition_time) if ready and ready.last_transition_time else _LONG_AGO


def create_pod(kind: Kind[Any], owner: ObjectMeta, body: dict[str, Any]) -> list[Intent]:
    return [
        Create(kind=PODS, namespace=owner.namespace, body=body),
        event(kind, owner, "SuccessfulCreate", f"Created pod: {body['metadata']['name']}"),
    ]


def delete_pod(kind: Kind[Any], owner: ObjectMeta, pod: ControllerPod) -> list[Intent]:
    return [delete(PODS, pod.metadata), event(kind, owner, "SuccessfulDelete", f"Deleted pod: {pod.metadata.name}")]


def wake_after(waits: Iterable[float]) -> list[Intent]:
    """Another look when the first of these waits is over; none where there is nothing to wait for."""
    later = [wait for wait in waits if wait > 0]
    return [WakeAfter(seconds=min(later))] if later else []
