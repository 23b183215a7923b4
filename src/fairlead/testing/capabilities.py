"""Capabilities for tests: the least that has one side of a capability."""

from collections.abc import Awaitable, Callable

from fairlead.runtime import Capability, Runtime


def while_leading(lead: Callable[[Runtime], Awaitable[None]], name: str = "placement") -> type[Capability]:
    """A capability that only leads."""

    class Leads(Capability):
        async def lead(self) -> None:
            await lead(self.runtime)

    Leads.name = name
    return Leads
