"""A write on its way, as admission sees it."""

from dataclasses import dataclass
from typing import Literal, Protocol

from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.request.options import Options, Warn


@dataclass(frozen=True, slots=True)
class AdmissionAttributes:
    """A write on its way, as admission sees it."""

    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
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


class Admission(Protocol):
    """The admission steps of every write; each raises a Failure to refuse it."""

    async def mutate(self, attempt: AdmissionAttributes) -> JsonObject:
        """The object to write, changed as admission wants it; {} for a delete."""

    async def validate(self, attempt: AdmissionAttributes) -> None: ...
