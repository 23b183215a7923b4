"""NodeAffinity: prefer nodes by the weights of the preferred terms they match, the profile's own included."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from fairlead.engine.axes import Bools, Ints
from fairlead.engine.node_terms import NodeTerm, parse_term, term_mask
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority, scaled_to_best
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View
from fairlead.model.pod import PreferredSchedulingTerm
from fairlead.model.selectors import SelectorError

WeightedNodeTerm = tuple[NodeTerm, int]
# Each is looked up on all nodes, so of a pod that prefers more only the first count.
MOST_PREFERRED: Final = 4096


def parse_preferred(terms: Sequence[PreferredSchedulingTerm] | None) -> tuple[WeightedNodeTerm, ...]:
    """Terms that count: neither empty nor weightless nor unparsable."""
    parsed: list[WeightedNodeTerm] = []
    for term in (terms or ())[:MOST_PREFERRED]:
        if term.weight and not term.preference.is_empty:
            try:
                parsed.append((parse_term(term.preference), term.weight))
            except SelectorError:
                continue
    return tuple(parsed)


class NodeAffinity(Priority):
    name = "NodeAffinity"
    normalises = True

    def __init__(self, added: tuple[WeightedNodeTerm, ...] | None = None) -> None:
        self._added = added

    def applies(self, table: NodeTable, request: Request) -> bool:
        return self._added is not None or self._wishes(request) is not None

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        own: tuple[WeightedNodeTerm, ...] | None = request.memo.get(type(self))
        if own is None:
            own = request.memo[type(self)] = parse_preferred(self._wishes(request))
        raw_V = np.zeros(view.size, dtype=np.int64)
        for term, weight in (*(self._added or ()), *own):
            raw_V += weight * term_mask(view, term)
        return raw_V

    def normalise(self, raw_V: Ints, feasible_V: Bools, view: View, request: Request) -> Ints:
        return scaled_to_best(raw_V, feasible_V)

    def _wishes(self, request: Request) -> Sequence[PreferredSchedulingTerm] | None:
        affinity = request.pod.spec.affinity
        return affinity.node_affinity.preferred if affinity and affinity.node_affinity else None
