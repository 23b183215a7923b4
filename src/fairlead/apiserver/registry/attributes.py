"""A write: of which object, how and for whom; and on its way, as admission sees it."""

from dataclasses import dataclass
from typing import Literal, Protocol

from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.request.options import Options, Warn, no_warning

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


@dataclass(frozen=True, slots=True)
class AdmissionAttributes:
    """A write on its way, as admission sees it."""

    operation: Operation
    resource: Resource
    namespace: str
    name: str
    thing: JsonObject | None
    old: JsonObject | None
    subresource: str
    options: Options
    warn: Warn
    size: int = 0
    """Bytes of the body and of the object it changes: the cost of the work on it is in proportion."""


@dataclass(frozen=True, slots=True)
class Write:
    """Which object is written, how, and for whom. An object that is created may have no name yet."""

    resource: Resource
    namespace: str
    name: str
    options: Options
    subresource: str = ""
    warn: Warn = no_warning

    @property
    def key(self) -> str:
        return self.resource.key(self.namespace, self.name)

    def attempt(
        self, operation: Operation, thing: JsonObject | None, old: JsonObject | None, size: int
    ) -> AdmissionAttributes:
        return AdmissionAttributes(
            operation, self.resource, self.namespace, self.name, thing, old, self.subresource, self.options, self.warn,
            size,
        )  # fmt: skip


class Admission(Protocol):
    """The admission steps of every write; each raises a Failure to refuse it."""

    async def mutate(self, attempt: AdmissionAttributes) -> JsonObject:
        """The object to write, changed as admission wants it; {} for a delete."""

    async def validate(self, attempt: AdmissionAttributes) -> None: ...
