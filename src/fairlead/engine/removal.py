"""Removal: the reverse of placing. Choose the node to take a pod from, then the pod on it.

The node by the seed's scores for removing: the fullest after the removal, the most even, the one with the largest part
of the service, the one whose load will rise. The pod by the order in which Kubernetes scales down.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from fairlead.engine.axes import ABSENT, Ints
from fairlead.engine.forecast import change
from fairlead.engine.load_basis import REQUESTS, Load
from fairlead.engine.pick import FirstByName, Pick
from fairlead.engine.priorities.seed import ONE, SeedWishes, evenness, millionths, utilisation
from fairlead.engine.registry import REMOVAL_PREDICATES
from fairlead.engine.request import Request
from fairlead.engine.rule import RemovalPredicate
from fairlead.engine.statement import Statement
from fairlead.engine.table import NodeTable
from fairlead.model.cluster_events import ClusterEvent
from fairlead.model.numbers import whole_number
from fairlead.model.outcome import Diagnosis, Refusal
from fairlead.model.pod import SchedulerPod

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")

_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


class RemovalWeights(msgspec.Struct, frozen=True):
    """Of w1 to w5. The seed has no w4 for removing: with a weight, nodes that answer the pods' soft rules less well
    come first.
    """

    used: int = 1
    even: int = 1
    service: int = 1
    wishes: int = 0
    forecast: int = 1
    # Kubernetes-like caution says take from where load will rise; −1 applies the seed's sentence to the letter.
    forecast_sign: int = 1


class RemovalScores(msgspec.Struct, frozen=True):
    """A node's w1 to w5 for taking one pod from it, in millionths; None for a rule that did not count."""

    used: int
    even: int
    service: int
    wishes: int | None = None
    forecast: int | None = None


class Removed(msgspec.Struct, frozen=True):
    pod: str
    uid: str
    # Empty for a pod that had no node yet.
    node: str
    # In millionths, as are its parts.
    score: int = 0
    scores: RemovalScores | None = None
    # Why this pod of that node.
    why: str = ""


class RemovalPlan(msgspec.Struct, frozen=True):
    removed: tuple[Removed, ...]
    # So many fewer than asked for, because there were no more; and that in the words of the rule that says so.
    shortfall: int
    diagnosis: Diagnosis | None = None


def plan_removal(
    statement: Statement,
    pods: Sequence[SchedulerPod],
    count: int,
    *,
    now_s: float,
    weights: RemovalWeights = RemovalWeights(),  # noqa: B008 - frozen
    pick: Pick | None = None,
    basis: str = REQUESTS,
) -> RemovalPlan:
    """Take `count` of a service's pods off the table, one after another; pods on their way out do not count."""
    table, pick = statement.table, pick or FirstByName()
    left = {pod.uid: pod for pod in pods if not pod.is_terminating and not pod.is_finished}
    removed: list[Removed] = []
    homeless = sorted(
        (pod for pod in left.values() if pod.uid not in table.occupants),
        key=lambda pod: scale_down_order(pod, 0, now_s),
    )
    for pod in homeless[:count]:
        removed.append(Removed(pod.key, pod.uid, "", why="it has no node yet"))
        del left[pod.uid]
    on_row = _by_row(table, left.values())
    rules = [rule() for rule in REMOVAL_PREDICATES.values()]
    rows = RemovalRows(table, on_row, rules, weights, basis)
    while len(removed) < count:
        chosen = rows.choose(pick)
        if chosen is None:
            return RemovalPlan(tuple(removed), count - len(removed), _diagnosis(table, rules, left.keys()))
        row, score = chosen
        pod, why = first_to_go(on_row[row], now_s)
        occupant = table.occupants[pod.uid]
        removed.append(Removed(pod.key, pod.uid, occupant.node, score, rows.scores_of(row), why))
        statement.remove(occupant)
        on_row[row].remove(pod)
        del left[pod.uid]
        rows.look_again(row)
    return RemovalPlan(tuple(removed), 0)


def node_scores(
    table: NodeTable, pods: Sequence[SchedulerPod], weights: RemovalWeights, basis: str = REQUESTS
) -> dict[str, tuple[int, RemovalScores]]:
    """How the nodes of these pods stand, by the pods' uids: for pods that something other than scores takes."""
    on_row = _by_row(table, pods)
    rows = RemovalRows(table, on_row, [rule() for rule in REMOVAL_PREDICATES.values()], weights, basis)
    totals = rows.scores()
    return {pod.uid: (int(totals[i]), rows.scores_of(row)) for i, row in enumerate(rows.rows) for pod in on_row[row]}


def _by_row(table: NodeTable, pods: Iterable[SchedulerPod]) -> dict[int, list[SchedulerPod]]:
    """Pods that have a node here and are not on their way out."""
    on_row: dict[int, list[SchedulerPod]] = {}
    for pod in pods:
        occupant = table.occupants.get(pod.uid)
        if occupant is not None and occupant.row != ABSENT and not occupant.terminating:
            on_row.setdefault(occupant.row, []).append(pod)
    return on_row


def _diagnosis(table: NodeTable, rules: Sequence[RemovalPredicate], removable: Collection[str]) -> Diagnosis:
    """Why no node was left: each counts under the first rule that refuses it."""
    view = table.view()
    open_N = view.take(table.valid_N).copy()
    refusals: list[Refusal] = []
    wakeup_events: set[ClusterEvent] = set()
    for rule in rules:
        passed_N = rule.mask(view, removable)
        nodes = int((open_N & ~passed_N).sum())
        if nodes:
            refusals.append(Refusal(rule.name, rule.reason, nodes, nodes))
        wakeup_events |= rule.wakeup_events
        open_N &= passed_N
    return Diagnosis(table.node_count, tuple(refusals), wakeup_events=frozenset(wakeup_events))


class RemovalRows:
    """How the rows with pods of a service stand; taking a pod changes one row, and the shares of the service."""

    def __init__(
        self,
        table: NodeTable,
        on_row: Mapping[int, Sequence[SchedulerPod]],
        rules: Sequence[RemovalPredicate],
        weights: RemovalWeights,
        basis: str = REQUESTS,
    ) -> None:
        self._table = table
        self._on_row = on_row
        self._rules = rules
        self._weights = weights
        # In the order of their nodes' names.
        self.rows = sorted(on_row, key=lambda row: int(table.rank[row]))
        self._at = {row: i for i, row in enumerate(self.rows)}
        self._counts = np.array([len(on_row[row]) for row in self.rows], dtype=np.int64)
        self._open = np.zeros(len(self.rows), dtype=np.bool_)
        # w1, w2 and w5 of each row; w3 and w4 look beyond it.
        self._own_3V: Ints = np.zeros((3, len(self.rows)), dtype=np.int64)
        self._load = Load(basis)
        self._wishes = SeedWishes()
        self._look_at(list(range(len(self.rows))))

    def choose(self, pick: Pick) -> tuple[int, int] | None:
        """The row to take the next pod from, and its score in millionths; None when no row is open."""
        if not self._open.any():
            return None
        scores = self.scores()
        highest = scores[self._open].max()
        best = np.flatnonzero(self._open & (scores == highest))
        return pick.choose([self.rows[i] for i in best]), int(highest)

    def scores(self) -> Ints:
        """The weighted score of each row; meaningful for open ones."""
        weights = self._weights
        of_own = np.array([weights.used, weights.even, weights.forecast * weights.forecast_sign], dtype=np.int64)
        scores: Ints = of_own @ self._own_3V + weights.service * self._service()
        if weights.wishes:
            scores += weights.wishes * self._unmet()
        return scores

    def scores_of(self, row: int) -> RemovalScores:
        """The parts of one row's score, before weights."""
        i, weights = self._at[row], self._weights
        used, even, rise = (int(part) for part in self._own_3V[:, i])
        is_forecast = not self._table.catalog.forecast.is_empty and bool(weights.forecast * weights.forecast_sign)
        return RemovalScores(
            used,
            even,
            int(self._service()[i]),
            int(self._unmet()[i]) if weights.wishes else None,
            weights.forecast_sign * rise if is_forecast else None,
        )

    def _service(self) -> Ints:
        return millionths(self._counts / max(1, self._counts[self._open].sum()))

    def _unmet(self) -> Ints:
        """How little each row answers the soft rules of its first pod, beside all rows with pods of the service."""
        view = self._table.view()
        among_N = view.among({row for row, is_open in zip(self.rows, self._open, strict=True) if is_open})
        unmet = np.zeros(len(self.rows), dtype=np.int64)
        known: dict[int, Ints] = {}
        for i, row in enumerate(self.rows):
            if self._open[i]:
                request = self._request(i)
                if request.number not in known:
                    known[request.number] = self._wishes.raw(view, request, among_N)
                unmet[i] = ONE - int(known[request.number][row])
        return unmet

    def look_again(self, row: int) -> None:
        """A pod of the service has left this row."""
        i = self._at[row]
        self._counts[i] = len(self._on_row[row])
        self._look_at([i])

    def _look_at(self, positions: list[int]) -> None:
        """Which of these are open, and what they score by themselves."""
        rows = [self.rows[i] for i in positions]
        view = self._table.view(np.array(rows, dtype=np.int64))
        uids = [pod.uid for row in rows for pod in self._on_row[row]]
        for_each = [rule.mask(view, uids) for rule in self._rules]
        self._open[positions] = np.logical_and.reduce(for_each)
        # Replicas of one service usually share a request; the first stands for them all on its row.
        alike: dict[int, list[int]] = {}
        for i in positions:
            if self._open[i]:
                alike.setdefault(self._request(i).number, []).append(i)
        for same in alike.values():
            self._own_3V[:, same] = self._score(
                np.array([self.rows[i] for i in same], dtype=np.int64), self._request(same[0])
            )

    def _request(self, i: int) -> Request:
        return self._table.occupants[self._on_row[self.rows[i]][0].uid].request

    def _score(self, rows: Ints, request: Request) -> Ints:
        view, forecast = self._table.view(rows), self._table.catalog.forecast
        share_2V = utilisation(view, request, self._load, sign=-1)
        # A node that the removal empties must not win over a busy one for being evenly idle.
        parts = [millionths(share_2V.mean(axis=0)), millionths(evenness(share_2V, idle=0.0))]
        rise_V = np.zeros(len(rows)) if forecast.is_empty else change(forecast, view, request)
        return np.stack([*parts, millionths(rise_V)])


_WHY: Final = (
    "it has no node yet",
    "pods that do not run yet go first",
    "it is not ready, and such pods go first",
    "its pod-deletion-cost is the lowest",
    "more replicas are beside it",
    "it became ready last",
    "it restarted most often",
    "it is the newest",
    "it is level with others, and the first by UID",
)


def first_to_go(pods: Sequence[SchedulerPod], now_s: float) -> tuple[SchedulerPod, str]:
    """The pod of one node that goes first, and what tells it from the next."""
    beside = len(pods)
    ordered = sorted(pods, key=lambda pod: scale_down_order(pod, beside, now_s))
    if len(ordered) == 1:
        return ordered[0], "it is the only one there"
    first, second = (scale_down_order(pod, beside, now_s) for pod in ordered[:2])
    return ordered[0], next(why for why, one, other in zip(_WHY, first, second, strict=True) if one != other)


def scale_down_order(pod: SchedulerPod, neighbours: int, now_s: float) -> tuple[object, ...]:
    """Sort key of Kubernetes' scale-down order: not running, not ready, cheap, crowded, young pods first."""
    ready_at = _ready_at(pod)
    return (
        bool(pod.spec.node_name),
        _PHASES.get(pod.status.phase, 2),
        ready_at is not None,
        _deletion_cost(pod),
        -neighbours,
        _age_bucket(ready_at, now_s),
        -max((status.restart_count for status in pod.status.container_statuses or ()), default=0),
        _age_bucket(pod.metadata.creation_timestamp, now_s),
        pod.uid,
    )


def _ready_at(pod: SchedulerPod) -> str | None:
    """Since when the pod is ready; None while it is not."""
    ready = pod.condition("Ready")
    return None if ready is None or ready.status != "True" else ready.last_transition_time or ""


def _deletion_cost(pod: SchedulerPod) -> int:
    cost = whole_number(pod.metadata.annotations.get(DELETION_COST, ""), -(2**31), 2**31 - 1)
    return 0 if cost is None else cost


def _age_bucket(moment: str | None, now_s: float) -> int:
    """The age as a power of two, so that replicas of about the same age are told apart by what comes after."""
    if not moment or _MOMENT.match(moment) is None:
        return -1
    age_s = now_s - epoch_s(moment)
    return -1 if age_s <= 0 else math.floor(math.log2(age_s * 10**9))


def epoch_s(moment: str) -> int:
    """Seconds since 1970 of a moment as the API writes it, such as 2026-03-01T20:15:41Z."""
    year, month, day = (int(part) for part in moment[:10].split("-"))
    hour, minute, second = (int(part) for part in moment[11:19].split(":"))
    # Days by the civil calendar, years counted from March so that a leap day is the last of its year.
    year -= month <= 2
    since_march = (153 * ((month - 3) % 12) + 2) // 5 + day - 1
    days = 365 * year + year // 4 - year // 100 + year // 400 + since_march - 719468
    return ((days * 24 + hour) * 60 + minute) * 60 + second
