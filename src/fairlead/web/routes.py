"""The route table: what is served, by which handler, and what each route takes and returns.

Rooms' handlers are added here when their objects exist, before or after the server listens; the dispatcher looks routes
up, the OpenAPI document is made from them. A route that changes anything always needs a token.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from fairlead.web.guard import Guard, User

MOST_BYTES: Final = 256 << 10
_PARAMETER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Call:
    """One request, its caller known and its body whole. `guard` answers what the caller may do."""

    user: User
    guard: Guard | None
    parameters: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """A struct becomes JSON; bytes go out as they are, with the content type given."""

    body: Any
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    def payload(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else msgspec.json.encode(self.body)


Handler = Callable[[Call], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Route:
    """`path` may hold `{names}`. `gives` has the struct of each status; errors need no entry."""

    method: str
    path: str
    handle: Handler
    summary: str
    description: str = ""
    takes: type | None = None
    gives: Mapping[int, type] = field(default_factory=dict)
    # What a query parameter, a header or a part of the path means.
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    # An example of the body, for people.
    example: Any = None
    # Open to callers without a token; only for what changes nothing and shows no secret.
    public: bool = False
    changes: bool = False
    # One of these a caller's token must be issued for; none: the cluster's API server.
    audiences: tuple[str, ...] = ()
    most_bytes: int = MOST_BYTES
    # Kept out of the document: the document itself.
    hidden: bool = False

    def __post_init__(self) -> None:
        if self.public and self.changes:
            raise ValueError(f"{self.method} {self.path} changes something and must not be public")
        if self.public and self.audiences:
            raise ValueError(f"{self.method} {self.path} is public and asks for an audience: it sees no token")

    def pattern(self) -> re.Pattern[str]:
        return re.compile(_PARAMETER.sub(r"(?P<\1>[^/]+)", self.path))


class RouteTable:
    def __init__(self) -> None:
        self._routes: list[tuple[re.Pattern[str], Route]] = []
        # Set once there is a cluster to ask; until then only public routes are answered.
        self.guard: Guard | None = None
        # Where they are served, as reached from this machine.
        self.url = ""

    def __iter__(self) -> Iterator[Route]:
        return (route for _, route in self._routes)

    def add(self, *routes: Route) -> None:
        for route in routes:
            if any(known.method == route.method and known.path == route.path for known in self):
                raise ValueError(f"{route.method} {route.path} is served already")
            self._routes.append((route.pattern(), route))

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
        for pattern, route in self._routes:
            if route.method == method and (found := pattern.fullmatch(path)):
                return route, found.groupdict()
        return None

    def methods(self, path: str) -> list[str]:
        """What can be done with a path; nothing when it is not served."""
        return sorted({route.method for pattern, route in self._routes if pattern.fullmatch(path)})
