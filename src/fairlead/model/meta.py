"""Object metadata and the shape of every Kubernetes object we decode.

The mirror decodes straight into these; rooms read them. Only fields Fairlead uses are held, unknown ones
are ignored, and nothing here is ever mutated: a change arrives as a new object.
"""

from typing import Protocol, dataclass_transform

import msgspec

from fairlead.model.numbers import Int64


# Options of a struct are its children's too, except kw_only; the decorator tells mypy so.
@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class ApiStruct(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    # Decoded objects form trees, never cycles, so the collector need not walk hundreds of thousands of them.
    gc=False,
):
    """A frozen struct spelled in snake_case here and in camelCase on the wire."""


class OwnerReference(ApiStruct, kw_only=True):
    api_version: str = ""
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(ApiStruct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """`namespace/name`, or the bare name of what belongs to no namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def controller(self) -> OwnerReference | None:
        return next((owner for owner in self.owner_references if owner.controller), None)


class HasMetadata(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


class ApiObject(ApiStruct, frozen=True, kw_only=True):
    """An object of any kind: what a kind without a struct of its own is decoded into.

    It does not hold its apiVersion and kind: a watch sends them and a list does not, and the `Kind` it was
    read by has them.
    """

    metadata: ObjectMeta


class Condition(ApiStruct, kw_only=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    last_heartbeat_time: str | None = None
    observed_generation: int | None = None
