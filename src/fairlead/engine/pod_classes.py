"""Classes of pods: what scheduling cannot tell apart is compiled once, and counted together.

The table asks for the class of each pod; rules ask who counts its pods (tallies) and which placed pods' terms concern
it (carried). Classes without pods are forgotten when there are many.
"""

from collections.abc import Container, Iterable
from typing import Final

from fairlead.engine.axes import ResourceAxis
from fairlead.engine.catalog import Catalog
from fairlead.engine.counters import Picks, Tally
from fairlead.engine.request import Request, class_key
from fairlead.engine.terms import Term
from fairlead.model.pod import SchedulerPod

# Classes without pods are swept when there are so many, a large one counting for several, or more than twice what the
# last sweep left.
FIRST_SWEEP: Final = 4096
KEY_BYTES: Final = 8192

CARRIED_ANTI: Final = 0
CARRIED_AFFINITY: Final = 1
CARRIED_PREFERRED: Final = 2


class Carried:
    """A term that placed pods carry, and where they are."""

    __slots__ = ("asks_for", "kind", "tally", "term", "weight")

    def __init__(self, kind: int, term: Term, weight: int) -> None:
        self.kind = kind
        self.term = term
        self.asks_for = term.asks_for()
        self.weight = weight
        self.tally = Tally(None)


class PodClasses:
    def __init__(self, catalog: Catalog, axis: ResourceAxis) -> None:
        self._catalog = catalog
        self._axis = axis
        self.requests: dict[bytes, Request] = {}
        self._numbered = 0
        self._key_bytes = 0
        self._sweep_at = FIRST_SWEEP
        self.tallies: dict[object, Tally] = {}
        self._tallies_everywhere: list[Tally] = []
        self._tallies_in: dict[str, list[Tally]] = {}
        self.carried: list[Carried] = []
        self._carried_ids: dict[tuple[int, Term, int], Carried] = {}
        self._namespaces_seen = catalog.namespaces_version

    def request(self, pod: SchedulerPod, *, incoming: bool = True) -> Request:
        """The class of a pod, compiled once. An incoming pod's `nodeName` is a wish, a placed one's a fact."""
        key = class_key(pod, incoming=incoming)
        request = self.requests.get(key)
        return request if request is not None else self._compile(key, pod, incoming=incoming)

    def _compile(self, key: bytes, pod: SchedulerPod, *, incoming: bool) -> Request:
        self._numbered += 1
        request = Request(key, self._numbered, pod, self._axis, incoming=incoming)
        self.adopt(request)
        return request

    def adopt(self, request: Request) -> None:
        """Make the class known to whoever counts its pods, and its own terms known to all."""
        self.requests[request.key] = request
        self._key_bytes += len(request.key)
        request.tallies = []
        for tally in (*self._tallies_everywhere, *self._tallies_in.get(request.namespace, ())):
            assert tally.picks is not None
            if tally.picks(request.namespace, request.labels):
                request.tallies.append(tally)
        terms = request.terms
        if not terms.is_empty:
            carried = [
                *(self._carry(CARRIED_ANTI, term, 0) for term in terms.anti_affinity),
                *(self._carry(CARRIED_AFFINITY, term, 0) for term in terms.affinity),
                *(self._carry(CARRIED_PREFERRED, weighted.term, weighted.weight) for weighted in terms.preferred),
            ]
            request.carried = [term.tally for term in carried]

    def _carry(self, kind: int, term: Term, weight: int) -> Carried:
        key = (kind, term, weight)
        carried = self._carried_ids.get(key)
        if carried is None:
            carried = self._carried_ids[key] = Carried(kind, term, weight)
            self.carried.append(carried)
        return carried

    def carried_for(self, request: Request) -> list[Carried]:
        """Terms of placed pods (now or once) that ask for pods of this class."""
        if self._namespaces_seen != self._catalog.namespaces_version:
            self._namespaces_seen = self._catalog.namespaces_version
            for known in self.requests.values():
                known.matching, known.matching_seen = [], 0
        if request.matching_seen < len(self.carried):
            labels = self._catalog.namespaces.get(request.namespace, {})
            request.matching.extend(
                carried
                for carried in self.carried[request.matching_seen :]
                if carried.asks_for(request.namespace, labels, request.labels)
            )
            request.matching_seen = len(self.carried)
        matching: list[Carried] = request.matching
        return matching

    def shunning(self, request: Request) -> list[Carried]:
        """Required anti-affinity of placed pods that asks for pods of this class."""
        return [carried for carried in self.carried_for(request) if carried.kind == CARRIED_ANTI]

    def tally(
        self,
        user: Request,
        key: object,
        picks: Picks,
        namespaces: Iterable[str] | None,
        *,
        terminating_too: bool = True,
    ) -> Tally:
        """The count of placed pods that `picks` picks; from other `namespaces` (None: all) it would pick none.

        It is kept for as long as its users are.
        """
        user.uses.add(key)
        tally = self.tallies.get(key)
        if tally is not None:
            return tally
        names = None if namespaces is None else frozenset(namespaces)
        tally = self.tallies[key] = Tally(picks, terminating_too=terminating_too, namespaces=names)
        self._index(tally)
        for request in self.requests.values():
            if (names is None or request.namespace in names) and picks(request.namespace, request.labels):
                request.tallies.append(tally)
                for row, count in request.rows.items():
                    counted = count if terminating_too else count - request.terminating_rows.get(row, 0)
                    if counted:
                        tally.add(row, counted)
        return tally

    def _index(self, tally: Tally) -> None:
        if tally.namespaces is None:
            self._tallies_everywhere.append(tally)
        else:
            for name in tally.namespaces:
                self._tallies_in.setdefault(name, []).append(tally)

    def make_room(self, keep: Container[int] = ()) -> None:
        """Sweep if it is time to. Not to be called amid a decision, which may be about a class without pods."""
        if self._weight > self._sweep_at:
            self.sweep(keep)
            self._sweep_at = max(FIRST_SWEEP, 2 * self._weight)

    @property
    def _weight(self) -> int:
        """How much is remembered about classes, in classes of the usual size."""
        return len(self.requests) + self._key_bytes // KEY_BYTES + len(self.tallies) + len(self.carried)

    def sweep(self, keep: Container[int]) -> None:
        """Forget classes without pods, except those whose number is to be kept, and what only they had counted."""
        for request in [r for r in self.requests.values() if not r.pods and r.number not in keep]:
            del self.requests[request.key]
            self._key_bytes -= len(request.key)
        used = {key for request in self.requests.values() for key in request.uses}
        self.tallies = {key: tally for key, tally in self.tallies.items() if key in used}
        kept = set(map(id, self.tallies.values()))
        self._tallies_everywhere.clear()
        self._tallies_in.clear()
        for tally in self.tallies.values():
            self._index(tally)
        for request in self.requests.values():
            request.tallies = [tally for tally in request.tallies if id(tally) in kept]
        carried = {id(tally) for request in self.requests.values() for tally in request.carried}
        self.carried = [term for term in self.carried if id(term.tally) in carried]
        self._carried_ids = {(term.kind, term.term, term.weight): term for term in self.carried}
        for request in self.requests.values():
            request.matching, request.matching_seen = [], 0
