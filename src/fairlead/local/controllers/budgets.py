"""Disruption budgets: how many pods may be evicted right now.

The API server takes each eviction off the number and notes the pod; here the number is computed anew from the
mirrors. Where it cannot be computed, no pod may be evicted.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from fairlead.cluster.controller import Controller
from fairlead.cluster.mirror import Delta
from fairlead.cluster.shell import selecting_keys
from fairlead.local.controllers.mirrors import ControllerContext
from fairlead.local.controllers.pods import wake_after
from fairlead.local.controllers.spec import (
    BUDGETS,
    DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    ControllerPod,
    DisruptionBudget,
    Json,
    share_of,
)
from fairlead.local.controllers.statuses import plan_status, with_condition
from fairlead.model.intents import Intent, event
from fairlead.model.selectors import Selector, SelectorError, parse_label_selector
from fairlead.model.times import seconds_since

ALLOWED: Final = "DisruptionAllowed"
# An eviction that was granted and not seen to happen by then did not happen.
GRANTED_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class BudgetInput:
    budget: DisruptionBudget
    pods: tuple[ControllerPod, ...]  # that its selector matches
    expected: int | None  # pods their controllers want; None where one of them cannot say
    problem: str = ""


def plan_budget(seen: BudgetInput, now: datetime) -> list[Intent]:
    budget, spec = seen.budget, seen.budget.spec
    generation = budget.metadata.generation
    if budget.is_terminating:
        return []
    is_by_share = spec.max_unavailable is not None or isinstance(spec.min_available, str)

    def conditions(status: str, reason: str, message: str = "") -> list[Json]:
        more = {"observedGeneration": generation}
        return with_condition(budget.conditions, ALLOWED, status, reason, message, now, more=more)

    if is_by_share and seen.expected is None:
        failed = conditions("False", "SyncFailed", seen.problem)
        status = {"disruptionsAllowed": 0, "observedGeneration": generation, "conditions": failed}
        warning_event = event(BUDGETS, budget.metadata, "CalculateExpectedPodCountFailed", seen.problem, warning=True)
        changed = plan_status(BUDGETS, budget, status)
        return [*changed, warning_event] if changed else []
    expected = (seen.expected or 0) if is_by_share else len(seen.pods)
    if spec.max_unavailable is not None:
        desired = max(0, expected - share_of(spec.max_unavailable, expected, up=True))
    else:
        desired = share_of(spec.min_available, expected, up=True)
    granted = _granted(seen, now)
    healthy = sum(pod.is_ready and not pod.is_terminating and pod.metadata.name not in granted for pod in seen.pods)
    allowed = max(0, healthy - desired) if expected > 0 else 0
    held = budget.status.get("disruptedPods") or {}
    new_status: Json = {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": allowed,
        "observedGeneration": generation,
        "conditions": conditions("True", "SufficientPods") if allowed else conditions("False", "InsufficientPods"),
    }
    if gone := {name: None for name in held if name not in granted}:
        new_status["disruptedPods"] = gone  # a merge patch removes what it names
    waits = [GRANTED_S - seconds_since(at, now) + 0.1 for at in granted.values()]
    return [*plan_status(BUDGETS, budget, new_status), *wake_after(waits)]


def _granted(seen: BudgetInput, now: datetime) -> dict[str, str]:
    """Evictions that were granted and are still to be seen."""
    staying = {pod.metadata.name for pod in seen.pods if not pod.is_terminating}
    held = seen.budget.status.get("disruptedPods") or {}
    return {name: at for name, at in held.items() if name in staying and seconds_since(at, now) < GRANTED_S}


def selector_of(budget: DisruptionBudget) -> Selector | None:
    """Here an empty selector does select everything in the namespace."""
    try:
        return parse_label_selector(budget.spec.selector)
    except SelectorError:
        return None


def budget_controller(context: ControllerContext) -> Controller:
    mirrors = context.mirrors
    budgets, pods = mirrors.of(BUDGETS), mirrors.of(PODS)
    scaled = {
        kind.kind: mirrors.of(kind) for kind in (REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS, DEPLOYMENTS)
    }

    def see(key: str) -> BudgetInput | None:
        budget = budgets.get(key)
        selector = selector_of(budget) if budget is not None else None
        if budget is None or selector is None:
            return None
        matching = pods.by("namespace", budget.metadata.namespace)
        chosen = tuple(pod for pod in matching if selector.matches(pod.metadata.labels) and not pod.is_finished)
        return BudgetInput(budget, chosen, *expected(chosen))

    def expected(chosen: tuple[ControllerPod, ...]) -> tuple[int | None, str]:
        sizes: dict[str, int] = {}
        for pod in chosen:
            controller = pod.metadata.controller
            if controller is None:
                continue  # counted by nobody: such a pod neither adds nor takes
            mirror: Any = scaled.get(controller.kind)
            owner = mirror.get(f"{pod.metadata.namespace}/{controller.name}") if mirror is not None else None
            if owner is None or owner.metadata.uid != controller.uid:
                return None, f"{controller.kind} {controller.name} of pod {pod.metadata.name} has no known size"
            above = owner.metadata.controller
            deployment = scaled[DEPLOYMENTS.kind].get(f"{pod.metadata.namespace}/{above.name}") if above else None
            if deployment is not None and above is not None and deployment.metadata.uid == above.uid:
                owner = deployment
            sizes[owner.metadata.uid] = owner.spec.replicas
        return sum(sizes.values()), ""

    def of_owner(delta: Delta[Any]) -> Iterable[str]:
        """A new size changes what is expected of the pods; which budgets that concerns is theirs to find out."""
        sizes = {owner.spec.replicas for owner in (delta.old, delta.new) if owner is not None}
        if len(sizes) == 1 and delta.old is not None and delta.new is not None:
            return ()
        return [budget.metadata.key for budget in budgets.by("namespace", delta.key.rpartition("/")[0])]

    controller = context.controller(BUDGETS, see, plan_budget).watches(budgets)
    controller.watches(pods, selecting_keys(budgets, selector_of))
    for mirror in scaled.values():
        controller.watches(mirror, of_owner)
    return controller
