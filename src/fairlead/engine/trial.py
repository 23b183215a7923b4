"""A trial: one node with some of its pods taken away and given back, to see whether a pod would fit.

Used by preemption. Leaving the trial puts everything back as it was.
"""

import numpy as np

from fairlead.engine.evaluation import Evaluation
from fairlead.engine.occupant import Occupant
from fairlead.engine.predicates.pod_topology_spread import PodTopologySpread
from fairlead.engine.predicates.volume_restrictions import VolumeRestrictions
from fairlead.engine.rule import Scope
from fairlead.engine.spread import Counted
from fairlead.engine.statement import Statement

PortKey = tuple[tuple[str, int], str]


class Trial:
    def __init__(self, evaluation: Evaluation, row: int) -> None:
        table = evaluation.table
        self._table = table
        self._request = evaluation.request
        self._row = row
        self._rows = np.array([row], dtype=np.int64)
        self._quirks = evaluation.profile.args.quirks
        self._statement = Statement(table)
        self._rules = [rule for rule in evaluation.profile.predicates if rule.applies(table, self._request)]
        self._spread = self._counted()
        self._lowered: list[tuple[Counted, int]] = []
        self._ports: dict[PortKey, int] = {}
        self._has_run = False
        # Claims for one pod only, and references to them, counted as Kubernetes counts them in a trial.
        self._claims: set[str] = set()
        self._claim_references = 0
        if self._quirks.preemption_counts_claims_by_name:
            for rule in self._rules:
                if isinstance(rule, VolumeRestrictions):
                    self._claims = rule.claims_for_one(table, self._request)
                    self._claim_references = len(rule.claims_in_use(table, self._request))

    def _counted(self) -> list[Counted]:
        """Spread counts that Kubernetes would lower by pods that were never in them."""
        if not self._quirks.preemption_uncounts_terminating:
            return []
        return [
            counted
            for rule in self._rules
            if isinstance(rule, PodTopologySpread)
            for counted in rule.counted(self._table, self._request)
        ]

    def __enter__(self) -> "Trial":
        if self._quirks.preemption_frees_shared_ports:
            self._ports = self._ports_on_row()
        return self

    def __exit__(self, *error: object) -> None:
        self._statement.rollback()
        for counted, domain in self._lowered:
            counted.domains.count_D[domain] += 1
        if self._quirks.preemption_frees_shared_ports:
            for (key, ip), count in self._ports.items():
                self._table.ports.setdefault(key, {}).setdefault(ip, {})[self._row] = count

    def remove(self, occupant: Occupant) -> None:
        self._statement.remove(occupant)
        self._shift(occupant, -1)
        if self._quirks.preemption_frees_shared_ports:
            for ip, protocol, port in occupant.request.ports:
                self._table.ports.get((protocol, port), {}).get(ip, {}).pop(self._row, None)

    def place(self, occupant: Occupant) -> None:
        occupant.node = self._table.name(self._row)
        self._statement.place(occupant)
        self._shift(occupant, 1)

    def reasons(self) -> list[str]:
        """Why the pod does not fit now; empty when it does. Only the first rule that refuses is named."""
        view = self._table.view(self._rows)
        for rule in self._rules:
            # What depends on the node alone cannot change in a trial, so it is asked once.
            if (self._has_run and rule.scope is Scope.NODE) or not rule.applies(self._table, self._request):
                continue
            found = [failed.reason for failed in rule.refusals(view, self._request) if failed.rows[0]]
            if isinstance(rule, VolumeRestrictions) and self._claims:
                found = [reason for reason in found if reason != rule.claim_reason]
                if not found and self._claim_references > 0:
                    found = [rule.claim_reason]
            if found:
                return found
        self._has_run = True
        return []

    def _shift(self, occupant: Occupant, sign: int) -> None:
        if self._claims:
            self._claim_references += sign * sum(name in self._claims for name in occupant.request.claims_for_pod)
        for counted in self._spread:
            request, constraint = occupant.request, counted.constraint
            if request.namespace != self._request.namespace or not constraint.selector.matches(request.labels):
                continue
            uncounted = occupant.terminating or not (
                counted.tally.picks is None or counted.tally.picks(request.namespace, request.labels)
            )
            eligible_N = counted.domains.eligible_N
            if uncounted and (eligible_N is None or eligible_N[self._row]):
                domain = int(counted.column.ids_N[self._row])
                counted.domains.count_D[domain] += sign
                if sign < 0:
                    self._lowered.append((counted, domain))
                else:
                    self._lowered.remove((counted, domain))

    def _ports_on_row(self) -> dict[PortKey, int]:
        return {
            (key, ip): taken[self._row]
            for key, holders in self._table.ports.items()
            for ip, taken in holders.items()
            if self._row in taken
        }
