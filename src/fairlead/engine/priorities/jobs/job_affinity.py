"""JobAffinity and JobAntiAffinity: the pods of one job together, or apart. Soft: a preference, not a rule.

Pods of a job are those of the namespace with the same value of the job's label. Ties go to the fuller node when
together is wanted, to the emptier one when apart is.
"""

from collections.abc import Mapping

import numpy as np

from fairlead.engine.axes import Bools, Floats, Ints
from fairlead.engine.counters import Tally
from fairlead.engine.priorities.jobs.packing import BEST, EVEN, FINE, STEP, packed
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, Scope
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View


class JobAffinity(Priority):
    name = "JobAffinity"
    scope = Scope.CLUSTER
    best = BEST

    def __init__(self, label: str) -> None:
        self._label = label

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        return _ranked(self._together(view, request), packed(view, request, EVEN, requested_only=True))

    def _together(self, view: View, request: Request) -> Floats:
        """100 where all placed pods of the job are, 0 where none is."""
        tally = self._job(view.table, request)
        if tally is None or not tally.total:
            return np.zeros(view.size, dtype=np.float64)
        here_V = view.take(tally.by_domain(view.table.each_row, view.table.version).count_D)
        share_V: Floats = 100 * here_V / tally.total
        return share_V

    def _job(self, table: NodeTable, request: Request) -> Tally | None:
        label, namespace = self._label, request.namespace
        value = request.labels.get(label)
        if value is None:
            return None

        def picks(of: str, labels: Mapping[str, str]) -> bool:
            return of == namespace and labels.get(label) == value

        return table.classes.tally(request, (JobAffinity, namespace, label, value), picks, (namespace,))


class JobAntiAffinity(JobAffinity):
    name = "JobAntiAffinity"

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        emptier_V = 100 - packed(view, request, EVEN, requested_only=True)
        return _ranked(100 - self._together(view, request), emptier_V)


def _ranked(score_V: Floats, then_V: Floats) -> Ints:
    """One score above another."""
    first_V = np.rint(score_V * FINE).astype(np.int64) * STEP
    return first_V + np.rint(then_V * (STEP - 1) / 100).astype(np.int64)
