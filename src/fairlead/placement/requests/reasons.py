"""Why each place is on its node, written small: a request may have thousands of places, and its status is one object.

The names and weights of the rules stand once with the item; each place has one line of numbers and names. `reason_of`
writes it, `read_reason` turns it into the explanation.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from fairlead.engine.cycle import Cycle
from fairlead.model.pod import SchedulerPod
from fairlead.model.undecodable import UNDECODABLE
from fairlead.placement.explain import explain
from fairlead.placement.explanation import (
    Difference,
    Explanation,
    NodeScores,
    PlaceReason,
    ReasonCount,
    Room,
    RuleScore,
    WeightChange,
)
from fairlead.placement.requests.spec import ItemStatus, Place
from fairlead.placement.scale import SCALE

# Weights that would change a choice, and reasons of refusal, kept with each place.
MOST_CHANGES: Final = 3
MOST_REFUSALS: Final = 5
# Reasons of one item take no more than this; places past it are without.
MOST_BYTES: Final = 400_000
# Places, and nodes times places, that are explained in one round: explaining costs more than deciding, and the table is
# the round's alone meanwhile.
MOST_PLACES: Final = 2000
MOST_CELLS: Final = 2_000_000


class RuleWeight(msgspec.Struct, frozen=True, array_like=True):
    rule: str
    weight: int


class _Line(msgspec.Struct, frozen=True, array_like=True):
    """What differs from place to place; scores are in the order of the item's rules, None where one is silent."""

    nodes: int
    feasible: int
    total: float
    scores: tuple[float | None, ...]
    runner_up: str = ""
    runner_up_total: float = 0
    runner_up_scores: tuple[float | None, ...] = ()
    changes: tuple[tuple[int, int, str], ...] = ()
    room: tuple[tuple[str, int, int], ...] = ()
    refusals: tuple[tuple[str, str, int], ...] = ()
    turn: int = 0


class Rules(msgspec.Struct, frozen=True):
    """What the places of an item have in common."""

    profile: str
    pick: str
    rules: tuple[RuleWeight, ...]


class Reasons:
    """Reasons of the places of one round, as far as there is room and time for them."""

    def __init__(self, nodes: int) -> None:
        self._nodes = max(1, nodes)
        self._cells = MOST_CELLS
        self._places = MOST_PLACES
        self._bytes: dict[str, int] = {}
        # By the key of the item: what its reasons have in common, and one line for each place.
        self.rules: dict[str, str] = {}
        self.lines: dict[str, list[str]] = {}

    def explain(self, key: str, cycle: Cycle, pod: SchedulerPod, nominated: Sequence[SchedulerPod]) -> None:
        """To be called just before the pod is decided on: the table is as the decision will see it."""
        left = self._bytes.get(key, MOST_BYTES)
        if self._cells < self._nodes or not self._places or left <= 0:
            return
        self._cells -= self._nodes
        self._places -= 1
        explanation = explain(cycle, pod, nominated=nominated, preempting=False)
        if explanation.choice is None:
            return
        weights = tuple(RuleWeight(rule.name, weight) for rule, weight in cycle.profile.priorities)
        rules = Rules(cycle.profile.name, cycle.profile.args.pick, weights)
        self.rules.setdefault(key, msgspec.json.encode(rules).decode())
        line = reason_of(explanation, rules)
        self._bytes[key] = left - len(line)
        self.lines.setdefault(key, []).append(line)


def reason_of(explanation: Explanation, rules: Rules) -> str:
    """One line about why the chosen node was chosen."""
    choice = explanation.choice
    assert choice is not None
    order = [each.rule for each in rules.rules]
    chosen = next(each for each in explanation.best if each.node == choice.node)
    runner_up = choice.runner_up
    line = _Line(
        nodes=explanation.nodes,
        feasible=explanation.feasible,
        total=chosen.total,
        scores=_in_order(chosen, order),
        runner_up=runner_up.node if runner_up is not None else "",
        runner_up_total=runner_up.total if runner_up is not None else 0,
        runner_up_scores=_in_order(runner_up, order) if runner_up is not None else (),
        changes=tuple(
            (order.index(each.rule), each.instead, each.node) for each in choice.weight_changes[:MOST_CHANGES]
        ),
        room=tuple((each.resource, each.requested, each.free) for each in choice.room),
        refusals=tuple((each.rule, each.reason, each.nodes) for each in explanation.refusals[:MOST_REFUSALS]),
        turn=choice.turn,
    )
    return msgspec.json.encode(line).decode()


def _in_order(scores: NodeScores, order: Sequence[str]) -> tuple[float | None, ...]:
    by_rule: Mapping[str, float] = {each.rule: each.normalised for each in scores.scores}
    return tuple(by_rule.get(rule) for rule in order)


def read_reason(place: Place, status: ItemStatus) -> PlaceReason | None:
    """Why a place is on its node; None where that was not kept, or cannot be read by this version."""
    if not place.reason or not status.rules:
        return None
    try:
        rules = msgspec.json.decode(status.rules, type=Rules)
        line = msgspec.json.decode(place.reason, type=_Line)
    except UNDECODABLE:
        return None
    chosen = _scores(place.node, line.total, line.scores, rules.rules)
    if chosen is None or any(not 0 <= rule < len(rules.rules) for rule, _, _ in line.changes):
        return None
    runner_up = (
        _scores(line.runner_up, line.runner_up_total, line.runner_up_scores, rules.rules) if line.runner_up else None
    )
    return PlaceReason(
        profile=rules.profile,
        nodes=line.nodes,
        feasible=line.feasible,
        chosen=chosen,
        scale=SCALE,
        runner_up=runner_up,
        margin=None if runner_up is None else round(chosen.total - runner_up.total, 4),
        decided_by=() if runner_up is None else _differences(chosen, runner_up),
        weight_changes=tuple(
            WeightChange(rules.rules[rule].rule, rules.rules[rule].weight, instead, node)
            for rule, instead, node in line.changes
        ),
        room=tuple(Room(resource, requested, free) for resource, requested, free in line.room),
        refusals=tuple(ReasonCount(rule, reason, nodes) for rule, reason, nodes in line.refusals),
        pick=rules.pick,
        turn=line.turn,
    )


def _scores(node: str, total: float, scores: Sequence[float | None], rules: Sequence[RuleWeight]) -> NodeScores | None:
    if len(scores) != len(rules):
        return None
    by_rule = tuple(
        RuleScore(rule.rule, rule.weight, None, score, round(rule.weight * score, 4))
        for rule, score in zip(rules, scores, strict=True)
        if score is not None
    )
    return NodeScores(node, total, by_rule)


def _differences(chosen: NodeScores, other: NodeScores) -> tuple[Difference, ...]:
    theirs = {each.rule: each.weighted for each in other.scores}
    found = [Difference(each.rule, round(each.weighted - theirs.get(each.rule, 0), 4)) for each in chosen.scores]
    return tuple(sorted((each for each in found if each.points), key=lambda each: -abs(each.points)))
