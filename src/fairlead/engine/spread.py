"""Topology spread constraints compiled: what is counted, where, and which nodes count.

Shared by the PodTopologySpread predicate (hard constraints) and priority (soft ones). A pod without constraints gets
the profile's defaults, selecting what its services and its controller select.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from fairlead.engine.axes import Bools, Ids, LabelColumn
from fairlead.engine.counters import DomainTally, Tally
from fairlead.engine.node_terms import required_mask, tolerated_mask
from fairlead.engine.request import Request
from fairlead.engine.view import View
from fairlead.model.pod import TopologySpreadConstraint
from fairlead.model.selectors import Requirement, Selector, SelectorError, equal_to, matcher, parse_label_selector

if TYPE_CHECKING:
    from fairlead.engine.table import NodeTable

HARD: Final = "DoNotSchedule"
SOFT: Final = "ScheduleAnyway"
HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"

# Each constraint is counted over all nodes and all classes of pods, each requirement asked of all classes: a pod that
# has more would keep every other pod waiting, so it is refused.
MOST_CONSTRAINTS: Final = 128
MOST_REQUIREMENTS: Final = 2048

SYSTEM_DEFAULTS: Final = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SOFT),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable=SOFT),
)

_CONTROLLERS: Final = {
    ("v1", "ReplicationController"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
}


class SpreadArgs(msgspec.Struct, frozen=True):
    defaults: tuple[TopologySpreadConstraint, ...] = SYSTEM_DEFAULTS
    # With the system's own defaults a node need not carry every key.
    system: bool = True
    # Kubernetes counts no pods for the selector {}, though the selector matches the incoming one.
    empty_counts_nobody: bool = False


class Constraint(msgspec.Struct, frozen=True):
    max_skew: int
    key: str
    selector: Selector
    min_domains: int
    honours_affinity: bool
    honours_taints: bool


class Counted(msgspec.Struct):
    """One constraint and the count of pods it is about."""

    constraint: Constraint
    column: LabelColumn
    tally: Tally
    # Counting only nodes that take part in the constraint.
    domains: DomainTally
    # Domains that any such node is in, by number.
    present: Ids
    self_match: int
    # No node lacks the key.
    everywhere: bool

    @property
    def domain_count(self) -> int:
        return len(self.present)


def unparsable(request: Request) -> str:
    """Why the pod's own constraints are invalid; empty where they are valid."""
    own = request.pod.spec.topology_spread_constraints or ()
    if len(own) > MOST_CONSTRAINTS:
        return f"{len(own)} topology spread constraints, more than {MOST_CONSTRAINTS}"
    requirements = 0
    try:
        for constraint in own:
            requirements += len(parse_label_selector(constraint.label_selector).requirements)
            requirements += len(constraint.match_label_keys or ())
    except SelectorError as error:
        return str(error)
    if requirements > MOST_REQUIREMENTS:
        return f"{requirements} requirements in topology spread constraints, more than {MOST_REQUIREMENTS}"
    return ""


def constraints_of(table: "NodeTable", request: Request, args: SpreadArgs, action: str) -> tuple[Constraint, ...]:
    own = request.pod.spec.topology_spread_constraints
    if own and unparsable(request):
        return ()
    if own:
        return _compile(own, request.labels, action)
    defaults = _compile(args.defaults, request.labels, action)
    if not defaults:
        return ()
    selector = default_selector(table, request)
    if selector.is_empty:
        return ()
    return tuple(msgspec.structs.replace(constraint, selector=selector) for constraint in defaults)


class SpreadMemo:
    """The constraints of one action (HARD or SOFT), and their counts, remembered with each request."""

    def __init__(self, args: SpreadArgs, action: str) -> None:
        self._args = args
        self._action = action

    def forget(self, request: Request) -> None:
        known = request.memo.pop(self, None)
        if known is not None:
            release(known[1])

    def constraints(self, table: "NodeTable", request: Request) -> tuple[Constraint, ...]:
        known = request.memo.get((self, self._action))
        version = table.catalog.workloads_version
        if known is None or known[0] != version:
            found = constraints_of(table, request, self._args, self._action)
            known = request.memo[self, self._action] = (version, found)
        constraints: tuple[Constraint, ...] = known[1]
        return constraints

    def counted(self, table: "NodeTable", request: Request, *, all_keys: bool) -> list[Counted]:
        version = (table.version, table.catalog.workloads_version)
        known = request.memo.get(self)
        if known is None or known[0] != version:
            if known is not None:
                release(known[1])
            counted = count(table, request, self.constraints(table, request), args=self._args, all_keys=all_keys)
            known = request.memo[self] = (version, counted)
        fresh: list[Counted] = known[1]
        return fresh


def requires_all_keys(request: Request, args: SpreadArgs) -> bool:
    return bool(request.pod.spec.topology_spread_constraints) or not args.system


def count(
    table: "NodeTable", request: Request, constraints: Sequence[Constraint], *, args: SpreadArgs, all_keys: bool
) -> list[Counted]:
    view = table.view()
    keyed_N = view.take(table.valid_N).copy()
    if all_keys:
        for constraint in constraints:
            keyed_N &= view.label(constraint.key)[1] >= 0
    return [_count(view, request, constraint, keyed_N, args) for constraint in constraints]


def default_selector(table: "NodeTable", request: Request) -> Selector:
    """Everything that the pod's services and its controller select together."""
    catalog = table.catalog
    labels: dict[str, str] = {}
    for service in catalog.services_selecting(request.namespace, request.labels):
        labels.update(service)
    extra: tuple[Requirement, ...] = ()
    owner = request.pod.metadata.controller
    if owner is not None and (owner.api_version, owner.kind) in _CONTROLLERS:
        selector = catalog.controller_selector(owner.kind, request.namespace, owner.name)
        if selector is not None and owner.kind == "ReplicationController":
            labels.update((requirement.key, requirement.values[0]) for requirement in selector.requirements)
        elif selector is not None:
            extra = selector.requirements
    return Selector((*equal_to(labels).requirements, *extra))


def _compile(
    constraints: Sequence[TopologySpreadConstraint], labels: Mapping[str, str], action: str
) -> tuple[Constraint, ...]:
    return tuple(
        Constraint(
            max_skew=constraint.max_skew,
            key=constraint.topology_key,
            selector=parse_label_selector(constraint.label_selector).with_labels(
                {key: labels[key] for key in constraint.match_label_keys or () if key in labels}
            ),
            min_domains=1 if constraint.min_domains is None else constraint.min_domains,
            honours_affinity=(constraint.node_affinity_policy or "Honor") == "Honor",
            honours_taints=(constraint.node_taints_policy or "Ignore") == "Honor",
        )
        for constraint in constraints
        if constraint.when_unsatisfiable == action
    )


def _count(view: View, request: Request, constraint: Constraint, keyed_N: Bools, args: SpreadArgs) -> Counted:
    table = view.table
    eligible_N = keyed_N
    if constraint.honours_affinity:
        eligible_N = eligible_N & required_mask(view, request)
    if constraint.honours_taints:
        eligible_N = eligible_N & tolerated_mask(view, request)
    column = table.label(constraint.key)
    tally = spread_tally(table, request, request.namespace, constraint.selector, args)
    present = np.unique(view.take(column.ids_N)[eligible_N])
    return Counted(
        constraint=constraint,
        column=column,
        tally=tally,
        domains=tally.by_eligible_domain(column, eligible_N, table.version),
        present=present[present >= 0],
        self_match=int(constraint.selector.matches(request.labels)),
        everywhere=bool((view.take(column.ids_N) >= 0).all()),
    )


def spread_tally(table: "NodeTable", user: Request, namespace: str, selector: Selector, args: SpreadArgs) -> Tally:
    """Pods of the namespace that the selector picks and that are not on their way out."""
    counts_nobody = args.empty_counts_nobody and selector.is_empty
    matches = matcher(selector)

    def picks(of: str, labels: Mapping[str, str]) -> bool:
        return of == namespace and not counts_nobody and matches(labels)

    key = ("spread", namespace, selector, counts_nobody)
    return table.classes.tally(user, key, picks, (namespace,), terminating_too=False)


def release(counted: Sequence[Counted]) -> None:
    for each in counted:
        each.domains.release()
