"""An incoming pod's own inter-pod terms, resolved to counters of placed pods.

Shared by the InterPodAffinity predicate and priority. Resolved anew when namespaces change, since terms may reach
namespaces by their labels.
"""

import msgspec

from fairlead.engine.counters import Picks, Tally
from fairlead.engine.request import Request
from fairlead.engine.table import NodeTable
from fairlead.engine.terms import Term, own_terms


class OwnAffinity(msgspec.Struct):
    # Placed pods that answer all required affinity terms at once; None when there are no such terms.
    company: Tally | None
    affinity_keys: tuple[str, ...]
    answers_itself: bool
    anti: list[tuple[str, Tally]]
    preferred: list[tuple[str, Tally, int]]


def own_affinity(table: NodeTable, request: Request, *, unlabelled_reach: bool) -> OwnAffinity:
    memo_key = (OwnAffinity, unlabelled_reach)
    known = request.memo.get(memo_key)
    version = table.catalog.namespaces_version
    if known is not None and known[0] == version:
        resolved: OwnAffinity = known[1]
        return resolved

    def tally_of(*terms: Term) -> tuple[Picks, Tally]:
        own = own_terms(terms, table.catalog.namespaces, unlabelled_reach=unlabelled_reach)
        reach: set[str] | None = set()
        for names in own.reach:
            reach = None if names is None or reach is None else reach | names
        picks = own.picks()
        return picks, table.classes.tally(request, own, picks, reach)

    terms = request.terms
    company, answers_itself = None, False
    if terms.affinity:
        picks, company = tally_of(*terms.affinity)
        answers_itself = picks(request.namespace, request.labels)
    resolved = OwnAffinity(
        company=company,
        affinity_keys=tuple(dict.fromkeys(term.topology_key for term in terms.affinity)),
        answers_itself=answers_itself,
        anti=[(term.topology_key, tally_of(term)[1]) for term in terms.anti_affinity],
        preferred=[(w.term.topology_key, tally_of(w.term)[1], w.weight) for w in terms.preferred],
    )
    request.memo[memo_key] = (version, resolved)
    return resolved
