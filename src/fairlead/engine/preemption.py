"""Preemption: which pods to evict, and on which node, for a pod that fits nowhere; as DefaultPreemption does.

Every node that evictions could help is tried inside a statement that is rolled back: take away all pods of lower
priority, and if the pod then fits, give back as many as still leave it room, budgets and importance first. Nothing is
evicted here; the plan says whom.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from fairlead.engine.axes import Ints
from fairlead.engine.diagnosis import codes
from fairlead.engine.evaluation import Evaluation
from fairlead.engine.nominated import guests_by_row, held_rows
from fairlead.engine.occupant import Occupant
from fairlead.engine.profile import Profile
from fairlead.engine.standing import Standing
from fairlead.engine.table import NodeTable
from fairlead.engine.trial import Trial
from fairlead.model.outcome import Code
from fairlead.model.pod import SchedulerPod
from fairlead.model.selectors import Selector, SelectorError, parse_label_selector
from fairlead.model.workloads import PodDisruptionBudget

NO_VICTIMS: Final = "No preemption victims found for incoming pod"
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
# What a pod that has not started counts as having started at: now, which is after everything else.
NOT_YET: Final = "9999"


class Candidate(msgspec.Struct, frozen=True):
    """A node on which the pod would fit, and its victims, most important first."""

    node: str
    victims: tuple[Occupant, ...]
    violations: int


class PreemptionPlan(msgspec.Struct, frozen=True):
    code: Code
    message: str = ""
    node: str | None = None
    victims: tuple[Occupant, ...] = ()
    violations: int = 0
    candidates: tuple[Candidate, ...] = ()
    # Nothing was tried: the pod may not preempt, or waits for victims it already has.
    waits: bool = False


class Preemption:
    def __init__(self, table: NodeTable, profile: Profile, standing: Standing | None = None) -> None:
        self._table = table
        self._profile = profile
        self._standing = standing if standing is not None else Standing(table)

    def plan(self, pod: SchedulerPod, nominated: Sequence[SchedulerPod] = ()) -> PreemptionPlan:
        """The node to clear and the pods to evict; or why evicting does not help.

        `nominated` are pods that nodes were cleared for and that are not on them yet: one that matters as much as
        this pod keeps its room.
        """
        table = self._table
        if not self._profile.args.preemption.is_on:
            return PreemptionPlan(Code.UNSCHEDULABLE, self._message(""))
        evaluation = Evaluation(table, self._profile, table.request(pod))
        evaluation.refresh()
        code_N = codes(evaluation)
        for held in held_rows(evaluation, pod, nominated) if nominated else ():
            # Refused because of whom it was cleared for, which evicting others may mend.
            if code_N[held.row] == Code.SUCCESS:
                code_N[held.row] = Code.UNSCHEDULABLE
        why_not = self._ineligible(pod, code_N)
        if why_not:
            return PreemptionPlan(Code.UNSCHEDULABLE, self._message(why_not), waits=True)

        rows: list[int] = table.order[code_N[table.order] == Code.UNSCHEDULABLE].tolist()
        if pod.priority <= table.lowest_priority():
            return self._hopeless(Counter({NO_VICTIMS: len(rows)}) if rows else Counter(), len(rows))
        guests = guests_by_row(table, pod, nominated)
        limits = self._profile.args.preemption
        enough = min(max(len(rows) * limits.least_percentage // 100, limits.least_absolute), len(rows))
        budgets = Budget.all_of(table.catalog.budgets.values())
        candidates: list[Candidate] = []
        refused: Counter[str] = Counter()
        harmless = 0
        for row in rows:
            tried = self._try(evaluation, row, budgets, guests.get(row, ()))
            if isinstance(tried, Candidate):
                candidates.append(tried)
                harmless += not tried.violations
                # Enough to choose from, and at least one that breaks no budget.
                if harmless and len(candidates) >= enough:
                    break
            else:
                refused.update(tried)
        if not candidates:
            return self._hopeless(refused, len(rows))
        best = min(candidates, key=self._cost)
        return PreemptionPlan(Code.SUCCESS, "", best.node, best.victims, best.violations, tuple(candidates))

    def _hopeless(self, refused: Counter[str], tried: int) -> PreemptionPlan:
        nodes = self._table.node_count
        if nodes > tried:
            refused[NOT_HELPFUL] += nodes - tried
        parts = sorted(f"{count} {reason}" for reason, count in refused.items())
        return PreemptionPlan(Code.UNSCHEDULABLE, self._message(f"0/{nodes} nodes are available: {', '.join(parts)}."))

    def _message(self, why: str) -> str:
        """In Kubernetes' words; claims are checked first there, so their message comes first."""
        tried = ["no new claims to deallocate"] if self._profile.args.preemption.after_claims else []
        return ", ".join([*tried, f"preemption: {why}"] if why else tried)

    def _ineligible(self, pod: SchedulerPod, code_N: Ints) -> str:
        if pod.spec.preemption_policy == "Never":
            return "not eligible due to preemptionPolicy=Never."
        row = self._table.row_of.get(pod.status.nominated_node_name)
        if row is not None and code_N[row] != Code.UNRESOLVABLE:
            on_the_way_out = any(
                occupant.preempted and occupant.request.priority < pod.priority
                for occupant in self._table.on_row[row].values()
            )
            if on_the_way_out:
                return "not eligible due to a terminating pod on the nominated node."
        return ""

    def _try(
        self, evaluation: Evaluation, row: int, budgets: "list[Budget]", guests: Iterable[Occupant]
    ) -> Candidate | list[str]:
        """The victims on this node, or why evicting them does not help."""
        table, request, standing = self._table, evaluation.request, self._standing
        weaker = [o for o in table.on_row[row].values() if standing.priority_of(o) < request.priority]
        if not weaker:
            return [NO_VICTIMS]
        weaker.sort(key=self._keep_first)
        with Trial(evaluation, row) as trial:
            for occupant in weaker:
                trial.remove(occupant)
            for guest in guests:
                trial.place(guest)
            reasons = trial.reasons()
            if reasons:
                return reasons
            protected, others = by_budget(weaker, budgets)
            victims: list[Occupant] = []
            violations = 0
            for occupant in (*protected, *others):
                trial.place(occupant)
                if trial.reasons():
                    trial.remove(occupant)
                    victims.append(occupant)
                    violations += occupant in protected
        if not victims:
            return [f'expected at least one victim pod on node "{table.name(row)}"']
        victims.sort(key=importance)
        together = standing.whole(victims)
        if len(together) > len(victims):
            # A gang goes as a whole, and so costs as much.
            if any(standing.priority_of(occupant) >= request.priority for occupant in together):
                return [NO_VICTIMS]
            victims, violations = together, len(by_budget(together, budgets)[0])
        return Candidate(table.name(row), tuple(victims), violations)

    def _cost(self, candidate: Candidate) -> tuple[object, ...]:
        """Sorts the cheapest first; the last key makes ties certain rather than chance."""
        priorities = [victim.request.priority for victim in candidate.victims]
        highest = max(priorities)
        started = (victim.started_at or NOT_YET for victim in candidate.victims if victim.request.priority == highest)
        return (
            candidate.violations,
            highest,
            sum(priority + 2**31 for priority in priorities),
            len(priorities),
            max(map(self._standing.importance_of, candidate.victims)),
            later_first(min(started)),
            candidate.node,
        )

    def _keep_first(self, occupant: Occupant) -> tuple[object, ...]:
        priority, started, key = importance(occupant)
        return priority, *self._standing.eviction_order(occupant), started, key


class Budget:
    """A disruption budget and what is left of it while victims are looked at."""

    def __init__(self, budget: PodDisruptionBudget, selector: Selector) -> None:
        self.namespace = budget.metadata.namespace
        self.selector = selector
        self.allowed = budget.status.disruptions_allowed
        self.already = frozenset(budget.status.disrupted_pods or ())

    @classmethod
    def all_of(cls, budgets: Iterable[PodDisruptionBudget]) -> "list[Budget]":
        usable: list[Budget] = []
        for budget in budgets:
            try:
                selector = parse_label_selector(budget.spec.selector)
            except SelectorError:
                continue
            # A budget without a selector, or with one that asks for nothing, protects nobody.
            if not selector.nothing and not selector.is_empty:
                usable.append(cls(budget, selector))
        return usable

    def protects(self, occupant: Occupant) -> bool:
        request = occupant.request
        return (
            not occupant.is_held
            and self.namespace == request.namespace
            and bool(request.labels)
            and self.selector.matches(request.labels)
            and occupant.key.rpartition("/")[2] not in self.already
        )


def by_budget(occupants: Sequence[Occupant], budgets: Sequence[Budget]) -> tuple[list[Occupant], list[Occupant]]:
    """Those whose eviction would break a budget, and the others, each in the order given."""
    left = [budget.allowed for budget in budgets]
    protected: list[Occupant] = []
    others: list[Occupant] = []
    for occupant in occupants:
        breaks = False
        for i, budget in enumerate(budgets):
            if budget.protects(occupant):
                left[i] -= 1
                breaks = breaks or left[i] < 0
        (protected if breaks else others).append(occupant)
    return protected, others


def importance(occupant: Occupant) -> tuple[int, str, str]:
    """Sorts the most important first: higher priority, then longer running."""
    return -occupant.request.priority, occupant.started_at or NOT_YET, occupant.key


def later_first(moment: str) -> tuple[int, ...]:
    """Sorts later moments first."""
    return tuple(-ord(character) for character in moment)
