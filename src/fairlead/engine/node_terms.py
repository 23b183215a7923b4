"""Node selectors compiled to masks: labels and names of nodes, asked of whole columns at once.

Used by node affinity, topology spread (which nodes count), volumes (where a volume can be reached) and profiles.
"""

from collections.abc import Iterable

import msgspec
import numpy as np

from fairlead.engine.axes import Bools
from fairlead.engine.request import Request
from fairlead.engine.view import View
from fairlead.model.pod import SchedulerPod
from fairlead.model.selectors import (
    EVERYTHING,
    IN,
    NOT_IN,
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    Selector,
    SelectorError,
    equal_to,
    parse_requirement,
)
from fairlead.model.taints import NO_EXECUTE, NO_SCHEDULE, is_tolerated

NAME_FIELD = "metadata.name"


class FieldRequirement(msgspec.Struct, frozen=True):
    """The node's name is, or is not, this one."""

    is_name: bool
    value: str
    equal: bool


class NodeTerm(msgspec.Struct, frozen=True):
    """All of it must hold."""

    labels: tuple[Requirement, ...]
    fields: tuple[FieldRequirement, ...]


class NodeRequirement(msgspec.Struct, frozen=True):
    """A pod's nodeSelector and required node affinity; `terms` None means no affinity was asked for."""

    selector: Selector = EVERYTHING
    terms: tuple[NodeTerm, ...] | None = None


def parse_term(term: NodeSelectorTerm) -> NodeTerm:
    return NodeTerm(
        labels=tuple(
            parse_requirement(expression.key, expression.operator, expression.values or ())
            for expression in term.match_expressions or ()
        ),
        fields=tuple(_parse_field(expression) for expression in term.match_fields or ()),
    )


def parse_terms(selector: NodeSelector | None) -> tuple[NodeTerm, ...]:
    """The terms that can match: empty ones and those that do not parse never do."""
    parsed: list[NodeTerm] = []
    for term in (selector and selector.node_selector_terms) or ():
        if not term.is_empty:
            try:
                parsed.append(parse_term(term))
            except SelectorError:
                continue
    return tuple(parsed)


def _parse_field(expression: LabelSelectorRequirement) -> FieldRequirement:
    if expression.operator not in (IN, NOT_IN):
        raise SelectorError(f"{expression.operator!r} is not an operator for fields")
    values = expression.values or ()
    if len(values) != 1:
        raise SelectorError(f"{expression.key}: a field takes exactly one value")
    return FieldRequirement(expression.key == NAME_FIELD, values[0], expression.operator == IN)


def required_affinity(pod: SchedulerPod) -> NodeSelector | None:
    affinity = pod.spec.affinity
    return affinity.node_affinity.required if affinity and affinity.node_affinity else None


def node_requirement(request: Request) -> NodeRequirement:
    requirement = request.memo.get(NodeRequirement)
    if requirement is None:
        required = required_affinity(request.pod)
        requirement = request.memo[NodeRequirement] = NodeRequirement(
            selector=equal_to(request.pod.spec.node_selector or {}),
            terms=parse_terms(required) if required else None,
        )
    assert isinstance(requirement, NodeRequirement)
    return requirement


def required_mask(view: View, request: Request) -> Bools:
    """Nodes the pod's own nodeSelector and required affinity allow."""
    requirement = node_requirement(request)
    passed_V = requirements_mask(view, requirement.selector.requirements)
    return passed_V if requirement.terms is None else passed_V & terms_mask(view, requirement.terms)


def requirements_mask(view: View, requirements: Iterable[Requirement]) -> Bools:
    passed_V = np.ones(view.size, dtype=np.bool_)
    for requirement in requirements:
        if requirement.key not in view.table.labels:
            if requirement.admits(None):
                continue
            return np.zeros(view.size, dtype=np.bool_)
        column, ids_V = view.label(requirement.key)
        passed_V &= column.admitted(requirement)[ids_V]
    return passed_V


def terms_mask(view: View, terms: Iterable[NodeTerm], *, with_fields: bool = True) -> Bools:
    """Nodes that any term allows; without fields (volumes know labels only) field conditions are passed over."""
    passed_V = np.zeros(view.size, dtype=np.bool_)
    for term in terms:
        passed_V |= term_mask(view, term, with_fields=with_fields)
    return passed_V


def term_mask(view: View, term: NodeTerm, *, with_fields: bool = True) -> Bools:
    passed_V = requirements_mask(view, term.labels)
    if with_fields:
        for field in term.fields:
            passed_V &= _field_mask(view, field)
    return passed_V


def _field_mask(view: View, field: FieldRequirement) -> Bools:
    if not field.is_name:
        # Nodes have no other field; one that is missing reads as empty.
        return np.full(view.size, (field.value == "") == field.equal, dtype=np.bool_)
    row = view.table.row_of.get(field.value)
    named_V = view.among(set() if row is None else {row})
    return named_V if field.equal else ~named_V


def tolerated_mask(view: View, request: Request) -> Bools:
    """Nodes without a taint that keeps the pod away."""
    table = view.table
    remembered = request.memo.get(tolerated_mask)
    if remembered is None or remembered[0] != table.taint_sets.version:
        remembered = request.memo[tolerated_mask] = (table.taint_sets.version, [])
    known: list[bool] = remembered[1]
    known.extend(
        all(is_tolerated(taint, request.tolerations) for taint in taints if taint.effect in (NO_SCHEDULE, NO_EXECUTE))
        for taints in table.taint_sets.values[len(known) :]
    )
    return np.array(known, dtype=np.bool_)[view.take(table.taint_set_N)]
