"""The agent's own server, which other agents reach: an echo, with a delay and a counter where asked for.

Faults for tests come from the variable AGENT_FAULT alone: `drop:0.3@node-2`, `delay:200@node-2`, `status:500`.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from fairlead.model.numbers import whole_number

MOST_DELAY_S: Final = 300.0
MOST_COUNTERS: Final = 1000
_FAULT: Final = re.compile(r"(drop|delay|status):(\d+(?:\.\d+)?)(?:@(\S+))?")


@dataclass(frozen=True, slots=True)
class Fault:
    """A mistake that this server makes on purpose."""

    drop: float = 0.0
    delay_ms: float = 0.0
    status: int = 0


def parse_fault(text: str, node: str) -> Fault:
    """The fault of this node; none where the variable names another."""
    found = _FAULT.fullmatch(text)
    if found is None or (found[3] and found[3] != node):
        return Fault()
    number = float(found[2])
    match found[1]:
        case "drop":
            return Fault(drop=number)
        case "delay":
            return Fault(delay_ms=number)
        case _:
            return Fault(status=int(number))


class Echo:
    def __init__(self, pod: str, node: str, fault: Fault, random: Callable[[], float]) -> None:
        self._pod = pod
        self._node = node
        self._fault = fault
        self._random = random
        self._counts: Counter[str] = Counter()

    def routes(self) -> list[web.RouteDef]:
        return [web.route("*", path, self._answer) for path in ("/", "/kdoctoragent")]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self._fault.drop and self._random() < self._fault.drop:
            assert request.transport is not None
            request.transport.abort()  # no answer at all
            return web.Response(status=500)
        delay_s = self._fault.delay_ms / 1000
        delay_s += min(whole_number(request.query.get("delay", ""), 0, 10**9) or 0, MOST_DELAY_S)
        if delay_s:
            await asyncio.sleep(delay_s)
        if self._fault.status:
            return web.Response(status=self._fault.status)
        return web.json_response(
            {
                "clientIp": request.remote,
                "requestUrl": str(request.rel_url),
                "requestMethod": request.method,
                "serverName": self._pod,
                "nodeName": self._node,
                "requestCount": self._count(request),
            }
        )

    def _count(self, request: web.Request) -> int:
        name = request.query.get("task", "")[:253]
        if not name:
            return 0
        if request.method == "DELETE":
            self._counts.pop(name, None)
            return 0
        if name in self._counts or len(self._counts) < MOST_COUNTERS:
            self._counts[name] += 1
        return self._counts[name]
