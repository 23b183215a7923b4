"""Intents: all that Fairlead may do to a cluster, as values.

A plan returns them; `cluster.writer` carries them out with the preconditions they name. An intent never
holds a connection, a clock or an opinion about retrying.
"""

from typing import Any

import msgspec

from fairlead.model.kinds import Kind
from fairlead.model.meta import ObjectMeta


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """One write to one object."""


class Bind(Intent, frozen=True):
    """Bind a pod to a node. The UID is a precondition: a pod recreated under the same name is another pod.

    The server copies the binding's annotations to the pod, in the same write.
    """

    namespace: str
    name: str
    uid: str
    node: str
    annotations: dict[str, str] = {}


class Create(Intent, frozen=True):
    kind: Kind[Any]
    body: Any
    namespace: str = ""


class Apply(Intent, frozen=True):
    """Server-side apply: our fields become what the body says, other writers' fields stay theirs."""

    kind: Kind[Any]
    name: str
    body: Any
    namespace: str = ""
    subresource: str = ""
    force: bool = True


class Patch(Intent, frozen=True):
    """A merge patch; with a resource version it is refused if anything else has changed the object since.

    Strategic: lists are merged by their keys, so that one condition of a built-in kind can be set alone.
    """

    kind: Kind[Any]
    name: str
    patch: dict[str, Any]
    namespace: str = ""
    subresource: str = ""
    resource_version: str = ""
    strategic: bool = False


class PatchStatus(Intent, frozen=True):
    kind: Kind[Any]
    name: str
    status: Any
    namespace: str = ""
    resource_version: str = ""


class Replace(Intent, frozen=True):
    """The whole object, for subresources that take no patch (a namespace's `finalize`)."""

    kind: Kind[Any]
    name: str
    body: Any
    namespace: str = ""
    subresource: str = ""


class Delete(Intent, frozen=True):
    kind: Kind[Any]
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    grace_s: int | None = None
    propagation: str = "Background"


def delete(kind: Kind[Any], about: ObjectMeta, **more: Any) -> Delete:
    """Of this very object: another one of its name stays."""
    return Delete(kind=kind, namespace=about.namespace, name=about.name, uid=about.uid, **more)


def patch(kind: Kind[Any], about: ObjectMeta, body: dict[str, Any], **more: Any) -> Patch:
    """Of this object as it was read: refused if anything has changed it since."""
    version = about.resource_version
    return Patch(kind=kind, namespace=about.namespace, name=about.name, patch=body, resource_version=version, **more)


def patch_status(kind: Kind[Any], about: ObjectMeta, status: Any) -> PatchStatus:
    """Of this object as it was read: refused if anything has changed it since."""
    version = about.resource_version
    return PatchStatus(kind=kind, namespace=about.namespace, name=about.name, status=status, resource_version=version)


class Evict(Intent, frozen=True):
    """Delete a pod through the eviction API, so that disruption budgets are respected."""

    namespace: str
    name: str
    uid: str = ""
    grace_s: int | None = None


class Scale(Intent, frozen=True):
    """One PATCH of a workload's replicas, with the annotations and the version that make it happen once only."""

    kind: Kind[Any]
    namespace: str
    name: str
    replicas: int
    resource_version: str = ""
    annotations: dict[str, str] = {}


class Regarding(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The object an event is about."""

    kind: str
    name: str
    api_version: str = "v1"
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""
    """The part it is about: `spec.containers{main}`."""


def regarding(kind: Kind[Any], about: ObjectMeta) -> Regarding:
    return Regarding(
        kind=kind.kind, api_version=kind.api_version, name=about.name, namespace=about.namespace, uid=about.uid
    )


class RecordEvent(Intent, frozen=True):
    regarding: Regarding
    reason: str
    action: str
    note: str
    warning: bool = False
    related: Regarding | None = None
    reporter: str = ""
    """Who says so, where it is not the process as a whole."""


def unreadable(kind: Kind[Any], about: ObjectMeta, note: str) -> RecordEvent:
    """The warning that an object cannot be read, or not as it is."""
    return RecordEvent(regarding=regarding(kind, about), reason="Unreadable", action="Reading", note=note, warning=True)


class WakeAfter(Intent, frozen=True):
    """Reconcile this key again after a delay, whatever happens meanwhile."""

    seconds: float


def event(
    kind: Kind[Any],
    about: ObjectMeta,
    reason: str,
    note: str,
    *,
    action: str = "",
    warning: bool = False,
    reporter: str = "",
) -> RecordEvent:
    """An event that names the controller of its kind, as Kubernetes calls it, unless another one tells it."""
    return RecordEvent(
        regarding=msgspec.structs.replace(regarding(kind, about), resource_version=about.resource_version),
        reason=reason,
        action=action or reason,
        note=note,
        warning=warning,
        reporter=reporter or f"{kind.kind.lower().removesuffix('controller')}-controller",
    )
