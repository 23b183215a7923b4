"""Objects as controllers see them, valid by themselves: a test names only what it is about."""

from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from fairlead.local.controllers.spec import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    REPLICA_SETS,
    STATEFUL_SETS,
    ControllerPod,
    CronJob,
    DaemonSet,
    Deployment,
    Job,
    Node,
    ReplicaSet,
    StatefulSet,
)
from fairlead.model.intents import (
    Create,
    Delete,
    Intent,
    Patch,
    PatchStatus,
    RecordEvent,
    Replace,
    WakeAfter,
)
from fairlead.model.kinds import Kind
from fairlead.model.owners import controller_reference
from fairlead.model.selectors import Selector, equal_to
from fairlead.model.times import rfc3339

T = TypeVar("T")
Json = dict[str, Any]

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
APP = {"app": "web"}
SELECTOR: Selector = equal_to(APP)


def ago(seconds: float) -> str:
    return rfc3339(NOW - timedelta(seconds=seconds))


def decoded(struct: type[T], body: Json) -> T:
    return msgspec.convert(body, struct)


def metadata(name: str, **more: Any) -> Json:
    return {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": ago(3600),
        **more,
    }


def template(image: str = "one", labels: dict[str, str] | None = None, **spec: Any) -> Json:
    return {"metadata": {"labels": labels or APP}, "spec": {"containers": [{"name": "c", "image": image}], **spec}}


def pod(
    name: str,
    owner: Any = None,
    *,
    phase: str = "Running",
    ready: bool = True,
    ready_s: float = 1800,
    node: str = "n1",
    labels: dict[str, str] | None = None,
    going: bool = False,
    restarts: int = 0,
    status: Json | None = None,
    spec: Json | None = None,
    **meta: Any,
) -> ControllerPod:
    if owner is not None:
        meta.setdefault("ownerReferences", [controller_reference(kind_of(owner), owner.metadata)])
    if going:
        meta.setdefault("deletionTimestamp", ago(1))
    is_ready = ready and phase == "Running"
    body = {
        "metadata": metadata(name, labels=APP if labels is None else labels, **meta),
        "spec": {"nodeName": node, **(spec or {})},
        "status": {
            "phase": phase,
            "conditions": [
                {"type": "Ready", "status": "True" if is_ready else "False", "lastTransitionTime": ago(ready_s)}
            ],
            "containerStatuses": [{"name": "c", "restartCount": restarts}],
            **(status or {}),
        },
    }
    return decoded(ControllerPod, body)


def node(name: str, *, ready: str | None = "True", taints: list[Json] | None = None, **spec: Any) -> Node:
    labels = spec.pop("labels", {})
    conditions = [] if ready is None else [{"type": "Ready", "status": ready, "lastHeartbeatTime": ago(5)}]
    meta = metadata(name, labels=labels)
    del meta["namespace"]
    return decoded(
        Node, {"metadata": meta, "spec": {"taints": taints or [], **spec}, "status": {"conditions": conditions}}
    )


def kind_of(thing: Any) -> Kind[Any]:
    kinds: dict[type, Kind[Any]] = {
        ReplicaSet: REPLICA_SETS,
        Deployment: DEPLOYMENTS,
        DaemonSet: DAEMON_SETS,
        StatefulSet: STATEFUL_SETS,
        Job: JOBS,
        CronJob: CRON_JOBS,
    }
    return kinds[type(thing)]


def workload(
    struct: type[T], name: str = "web", *, status: Json | None = None, meta: Json | None = None, **spec: Any
) -> T:
    body = {
        "metadata": metadata(name, **(meta or {})),
        "spec": {"selector": {"matchLabels": APP}, "template": template(), **spec},
        "status": status or {},
    }
    return decoded(struct, body)


def said(intents: list[Intent], *, events: bool = False) -> list[str]:
    """Intents as short sentences, in their order: what a reader of a failing test wants to see."""
    return [text for intent in intents if (text := _said(intent)) and (events or not text.startswith("event"))]


def _said(intent: Intent) -> str:
    match intent:
        case Create():
            return f"create {intent.kind.kind}"
        case Delete():
            grace = f" grace={intent.grace_s}" if intent.grace_s is not None else ""
            policy = f" {intent.propagation}" if intent.propagation != "Background" else ""
            return f"delete {intent.name}{grace}{policy}"
        case Patch():
            return f"patch {intent.name}"
        case PatchStatus():
            return f"status {intent.name}"
        case Replace():
            return f"replace {intent.name}/{intent.subresource}"
        case WakeAfter():
            return f"wake {intent.seconds:g}"
        case RecordEvent():
            return f"event {intent.reason}"
    raise AssertionError(f"{intent} has no short form")


def status_of(intents: list[Intent]) -> Json:
    """The one status that is written; empty where none is."""
    found = [intent.status for intent in intents if isinstance(intent, PatchStatus)]
    assert len(found) <= 1
    return dict(found[0]) if found else {}


def bodies(intents: list[Intent]) -> list[Json]:
    return [intent.body for intent in intents if isinstance(intent, Create)]


def patches(intents: list[Intent]) -> dict[str, Json]:
    return {intent.name: intent.patch for intent in intents if isinstance(intent, Patch)}
