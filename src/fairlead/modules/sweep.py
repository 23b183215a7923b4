"""Strays: modules that we installed and that no pod asks for any more. Removed late, seldom, and never by mistake.

Called after each poll of a base. What we installed is in a ledger (`modules.ledger`), so that a successor knows it;
modules that somebody else brought are left alone.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import structlog

from fairlead.cluster.clock import Clock
from fairlead.modules.arklet import UNINSTALL, Outcome, outcome_of, sentence_of
from fairlead.modules.client import ArkletClient
from fairlead.modules.plan import SWEEP_PER_MINUTE, Stray, owners_of, plan_sweep
from fairlead.modules.spec import Module, ModuleState
from fairlead.nodes.spec import KubeletPod

log = structlog.get_logger("fairlead.modules")

ListPods = Callable[[str], Awaitable[Sequence[KubeletPod]]]
"""The pods of a node as the API server has them now."""

Report = Callable[[str, str, str], None]
"""Of a node, with a reason and a sentence."""

MINUTE_S: Final = 60.0


class Sweeper:
    def __init__(
        self,
        client: ArkletClient,
        list_pods: ListPods,
        clock: Clock,
        *,
        is_dry: bool = False,
        report: Report = lambda node, reason, note: None,
    ) -> None:
        """`report` records an event about a node."""
        self._report = report
        self._client = client
        self._list_pods = list_pods
        self._clock = clock
        self._is_dry = is_dry
        self._strays: dict[str, Mapping[str, Stray]] = {}
        self._removals: dict[str, list[float]] = {}

    async def sweep(
        self,
        node: str,
        address: tuple[str, int],
        states: Sequence[ModuleState],
        pods: Sequence[KubeletPod],
        ledger: frozenset[str],
    ) -> frozenset[str]:
        """Remove what is due; the keys that are gone. `pods` may be out of date: it only ever spares too much."""
        now_s = self._clock.elapsed_s()
        recent = [at for at in self._removals.get(node, ()) if now_s - at < MINUTE_S]
        budget = SWEEP_PER_MINUTE - len(recent)
        before = self._strays.get(node, {})
        planned = plan_sweep(states, owners_of(pods), ledger, before, now_s=now_s, budget=budget)
        self._strays[node] = planned.strays
        if not planned.uninstall:
            return frozenset()
        owners = owners_of(await self._list_pods(node))
        gone = set()
        for state in planned.uninstall:
            if state.key in owners:
                continue
            log.warning("stray module", node=node, module=state.key, is_removed=not self._is_dry)
            if self._is_dry:
                self._report(node, "DanglingModuleFound", f"no pod asks for module {state.key}; it would be removed")
                continue
            recent.append(now_s)
            answer = await self._client.uninstall(address, Module(state.name, state.version, ""))
            if outcome_of(UNINSTALL, answer) in (Outcome.DONE, Outcome.ALREADY):
                gone.add(state.key)
                self._report(
                    node, "DanglingModuleRemoved", f"module {state.key} was removed: no pod asks for it any more"
                )
            else:
                note = f"no pod asks for module {state.key}, and it cannot be removed: {sentence_of(answer)}"
                self._report(node, "DanglingModuleNotRemoved", note)
        if planned.due > budget:
            note = f"no pod asks for {planned.due} modules; {SWEEP_PER_MINUTE} a minute are removed"
            self._report(node, "DanglingModulesMany", note)
        self._removals[node] = recent
        return frozenset(gone)

    def forget(self, node: str) -> None:
        self._strays.pop(node, None)
        self._removals.pop(node, None)
