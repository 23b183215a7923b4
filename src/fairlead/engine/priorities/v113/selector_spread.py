"""SelectorSpreadPriority: spread the pods that the same services and controllers select, over nodes and zones."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from fairlead.engine.axes import Bools, Ints
from fairlead.engine.counters import Tally
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, Scope
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View
from fairlead.model.selectors import Selector, equal_to

ZONE_WEIGHT: Final = 2.0 / 3.0
REGION_KEYS: Final = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")
ZONE_KEYS: Final = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")


class SelectorSpreadPriority(Priority):
    name = "SelectorSpreadPriority"
    best = 10
    scope = Scope.CLUSTER
    normalises = True

    def tally(self, table: NodeTable, request: Request) -> Tally:
        """Pods of the namespace, not on their way out, that any selector which selects this pod selects too."""
        version = table.catalog.workloads_version
        known = request.memo.get(SelectorSpreadPriority)
        if known is None or known[0] != version:
            catalog = table.catalog
            services = (equal_to(s) for s in catalog.services_selecting(request.namespace, request.labels))
            controllers = catalog.controllers_selecting(request.namespace, request.labels)
            selectors: tuple[Selector, ...] = (*services, *controllers)
            namespace = request.namespace

            def picks(of: str, labels: Mapping[str, str]) -> bool:
                return of == namespace and any(selector.matches(labels) for selector in selectors)

            key = (SelectorSpreadPriority, namespace, selectors)
            tally = table.classes.tally(request, key, picks, (namespace,), terminating_too=False)
            known = request.memo[SelectorSpreadPriority] = (version, tally)
        found: Tally = known[1]
        return found

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        rows = self.tally(view.table, request).by_domain(view.table.each_row, view.table.version)
        return view.take(rows.count_D).copy()

    def normalise(self, raw_V: Ints, feasible_V: Bools, view: View, request: Request) -> Ints:
        most = int(np.where(feasible_V, raw_V, 0).max(initial=0))
        score_V = 10.0 * ((most - raw_V) / most) if most else np.full(view.size, 10.0)
        zone_V = zones(view)
        zoned_V = (zone_V >= 0) & feasible_V
        if zoned_V.any():
            count_Z = np.zeros(int(zone_V.max()) + 2, dtype=np.int64)
            np.add.at(count_Z, zone_V[zoned_V], raw_V[zoned_V])
            fullest = int(count_Z.max())
            zone_score_V = 10.0 * ((fullest - count_Z[zone_V]) / fullest) if fullest else np.full(view.size, 10.0)
            weighed_V = score_V * (1.0 - ZONE_WEIGHT) + ZONE_WEIGHT * zone_score_V
            score_V = np.where(zone_V >= 0, weighed_V, score_V)
        return score_V.astype(np.int64)


def zones(view: View) -> Ints:
    """Each node's zone as a number, region and zone taken together; negative where it has neither."""
    region_V, zone_V = _first(view, REGION_KEYS), _first(view, ZONE_KEYS)
    span = int(zone_V.max(initial=-1)) + 2
    return np.where((region_V < 0) & (zone_V < 0), -1, (region_V + 1) * span + zone_V + 1)


def _first(view: View, keys: tuple[str, str]) -> Ints:
    """The old key's value where a node has it, else the new one's, as a number that both keys share."""
    old, old_V = view.label(keys[0])
    new, new_V = view.label(keys[1])
    shared = [old.numbers.get(value, old.size + number) for number, value in enumerate(new.values)]
    return np.where(old_V >= 0, old_V, np.array([*shared, -1], dtype=np.int64)[new_V])
