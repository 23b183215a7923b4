"""Kills a replica before and after every write and every command of a scenario, once each.

In one process a crash is a call that never returns: from then on nothing that the replica sends leaves, and the test
cancels it and starts it again under its name. What must be true in the end is judged by what the bases and the API
server were asked.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from fairlead.cluster.writer import Writer
from fairlead.model.intents import Create, Delete, Evict, Patch, PatchStatus, Replace
from fairlead.model.kinds import LEASES
from fairlead.modules.client import ArkletClient
from fairlead.modules.healing import GRANT, STATE, read_state
from fairlead.modules.names import LEDGER
from fairlead.nodes.spec import PODS

COMMANDS = ("installBiz", "uninstallBiz")
CALLS = (*COMMANDS, "queryAllBiz", "queryBizOps")


@dataclass(slots=True)
class Crashes:
    is_armed: bool = False
    dead: str = ""
    """The replica that was killed last, until it is started again."""
    points: set[tuple[str, str]] = field(default_factory=set)
    """Where a replica was killed: the call, and whether before or after it was sent."""
    sent: list[tuple[str, str]] = field(default_factory=list)
    """Every write and command that left, in order: the replica, and the call."""
    crashed: asyncio.Event = field(default_factory=asyncio.Event)
    is_point: Callable[[str], bool] = lambda call: True
    """Which calls are crash points."""

    def restart(self) -> None:
        self.dead = ""
        self.crashed.clear()

    async def pass_through(self, who: str, call: str, send: Any) -> Any:
        await self._point(who, call, "before")
        answer = await send()
        self.sent.append((who, call))
        await self._point(who, call, "after")
        return answer

    async def _point(self, who: str, call: str, when: str) -> None:
        if self.is_armed and not self.dead and (call, when) not in self.points and self.is_point(call):
            self.points.add((call, when))
            self.dead = who
            self.crashed.set()
        if self.dead == who:
            await asyncio.Event().wait()


def name_of(intent: Any) -> str:
    """The call without what differs each time, such as moments."""
    kind = getattr(intent, "kind", None)
    what = f"{type(intent).__name__} {kind.plural if kind is not None else 'pods'}"
    name = getattr(intent, "name", "") or (getattr(intent, "body", None) or {}).get("metadata", {}).get("name", "")
    detail = getattr(intent, "subresource", "")
    if isinstance(intent, Patch):
        notes = intent.patch.get("metadata", {}).get("annotations", {})
        state = read_state(notes.get(STATE) or "")
        detail += f" {state.step.value}" if state is not None else ""
        detail += " ended" if STATE in notes and state is None else ""
        detail += " grant" if notes.get(GRANT) else ""
        detail += " taints" if "spec" in intent.patch else ""
    if isinstance(intent, PatchStatus) and kind is PODS:
        detail += f" {intent.status.get('phase', '')} {_states(intent.status)}"
    if isinstance(intent, Delete | Evict):
        detail += f" {intent.uid[:8]}"
    if isinstance(intent, Replace | Create) and kind is LEASES:
        detail += f" holder={intent.body['spec']['holderIdentity']}"
        notes = intent.body["metadata"].get("annotations") or {}
        detail += f" ledger={notes[LEDGER]}" if LEDGER in notes else ""
    return " ".join(f"{what} {name} {detail}".split())


def _states(status: Any) -> str:
    """What a pod's status says of its containers, without moments."""
    states = [each.get("state", {}) for each in status.get("containerStatuses") or ()]
    return " ".join(f"{name}:{state.get('reason', '')}" for each in states for name, state in each.items())


@contextmanager
def crashing(commands: Collection[str] = COMMANDS) -> Iterator[Crashes]:
    """Every replica's writes and commands pass through, while the block runs."""
    crashes = Crashes()
    send, call = Writer._send, ArkletClient.call

    async def send_or_crash(self: Writer, intent: Any) -> Any:
        return await crashes.pass_through(self._recorder._instance, name_of(intent), lambda: send(self, intent))

    async def call_or_crash(self: ArkletClient, address: Any, command: str, body: Any, timeout_s: float = 5.0) -> Any:
        if command not in commands:
            return await call(self, address, command, body, timeout_s)
        name = f"{command} {body.get('bizName')}:{body.get('bizVersion')} at {address[1]}"
        return await crashes.pass_through(self._sender, name, lambda: call(self, address, command, body, timeout_s))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "_send", send_or_crash)
        patch.setattr(ArkletClient, "call", call_or_crash)
        yield crashes
