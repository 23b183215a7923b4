"""A write on its way, as admission sees it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.request.options import Options

JsonObject = dict[str, Any]


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


Admit = Callable[[AdmissionAttributes], Awaitable[JsonObject | None]]
"""May change what is being written, or raise a Failure."""


def with_object(attempt: AdmissionAttributes, thing: JsonObject | None) -> AdmissionAttributes:
    return attempt if thing is attempt.thing else AdmissionAttributes(
        attempt.operation, attempt.resource, attempt.namespace, attempt.name, thing, attempt.old,
        attempt.subresource, attempt.options,
    )  # fmt: skip
