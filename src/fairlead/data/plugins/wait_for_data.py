"""WaitForData: a pod that asks for it is held by a scheduling gate until its data is near, or until its time is over.

`data.fairlead.io/locality-wait: node=5s,zone=10s` waits for room on a warm node, where that gains more than it costs;
`data.fairlead.io/prefetch: {"paths": ["/a"], "until": "80%", "timeout": "10m"}` waits until the data is loaded. A pod
that nobody would release is not held.
"""

from datetime import timedelta

from fairlead.data.draft import Draft, PluginError
from fairlead.data.locality_terms import readings
from fairlead.data.plugin import PlainPlugin, PluginContext, Policy
from fairlead.data.plugins.avoid_draining import is_pinned
from fairlead.data.waits import (
    LOCALITY_DEADLINE,
    LOCALITY_GATE,
    PREFETCH,
    PREFETCH_DEADLINE,
    PREFETCH_GATE,
    parse_prefetch,
)
from fairlead.engine.locality_wait import LOCALITY_WAIT, BadWait, gain_s, parse_wait
from fairlead.model.times import rfc3339


class WaitForData(PlainPlugin):
    name = "WaitForData"
    policy: Policy = "ignore"

    def mutate(self, draft: Draft, context: PluginContext) -> bool:
        annotations = draft.annotations
        if not {LOCALITY_WAIT, PREFETCH} & annotations.keys() or is_pinned(draft):
            return False
        needs_gate = PREFETCH in annotations or not context.waits_unheld
        if needs_gate and not context.releases_gates:
            draft.warn("the pod does not wait for its data: nobody would release it at the moment")
            return False
        try:
            if LOCALITY_WAIT in annotations:
                wait = parse_wait(annotations[LOCALITY_WAIT])
                gain = gain_s(context.locality.cache, readings(draft, context))
                if context.waits_unheld:
                    draft.note("nothing", f"the scheduler itself waits up to {wait.longest_s:g} s for a warm node")
                elif gain > wait.longest_s:
                    self._gate(draft, context, LOCALITY_GATE, LOCALITY_DEADLINE, wait.longest_s)
                    draft.note("gate", f"waits up to {wait.longest_s:g} s for room on a warm node: saves {gain:.0f} s")
                else:
                    draft.note("nothing", f"waiting up to {wait.longest_s:g} s would save only {gain:.1f} s")
            if PREFETCH in annotations:
                prefetch = parse_prefetch(annotations[PREFETCH])
                self._gate(draft, context, PREFETCH_GATE, PREFETCH_DEADLINE, prefetch.timeout_s)
                draft.note("gate", f"waits until {prefetch.until:.0%} of {', '.join(prefetch.paths)} is cached")
        except BadWait as problem:
            raise PluginError(str(problem)) from None
        return False

    def _gate(self, draft: Draft, context: PluginContext, gate: str, deadline: str, seconds: float) -> None:
        gates = draft.spec.get("schedulingGates") or []
        # A deadline without its gate: it was released, and is not held again.
        if deadline in draft.annotations:
            return
        if all(each.get("name") != gate for each in gates):
            draft.spec["schedulingGates"] = [*gates, {"name": gate}]
        draft.annotate(deadline, rfc3339(context.now + timedelta(seconds=seconds)))
