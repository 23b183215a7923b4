"""Label selectors, and whether a set of labels matches.

The engine turns node selectors into masks and asks pod selectors once per class of pods; nothing here knows arrays.
A requirement that Kubernetes could not parse is kept apart (`SelectorError`), since what it then matches depends on
its use: a node affinity term matches nothing, an incoming pod's inter-pod term rejects the pod.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from fairlead.model.meta import ApiStruct
from fairlead.model.numbers import whole_number

IN: Final = "In"
NOT_IN: Final = "NotIn"
EXISTS: Final = "Exists"
DOES_NOT_EXIST: Final = "DoesNotExist"
GT: Final = "Gt"
LT: Final = "Lt"

FEW: Final = 16
SHORT: Final = 2

_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")


class SelectorError(ValueError):
    """The selector cannot be parsed."""


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """One condition on labels, already checked."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    # Instead of `values` where there are many: a lookup and a hash cost the same however many there are.
    many: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return self.admits(labels.get(self.key))

    def admits(self, value: str | None) -> bool:
        """Whether a label with this value (None: no such label) matches the requirement."""
        if self.operator == IN:
            return value is not None and (value in self.values or value in self.many)
        if self.operator == NOT_IN:
            return value is None or (value not in self.values and value not in self.many)
        if self.operator == EXISTS:
            return value is not None
        if self.operator == DOES_NOT_EXIST:
            return value is None
        number = parse_int64(value) if value is not None else None
        bound = parse_int64(self.values[0])
        if number is None or bound is None:
            return False
        return number > bound if self.operator == GT else number < bound


class Selector(msgspec.Struct, frozen=True, gc=False):
    """All requirements hold; `nothing` is a missing selector, which matches no labels."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    @property
    def is_empty(self) -> bool:
        """Selects everything because it has no requirements."""
        return not self.nothing and not self.requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        return not self.nothing and all(requirement.matches(labels) for requirement in self.requirements)

    def with_labels(self, labels: Mapping[str, str]) -> "Selector":
        """Also demand these labels; a selector of nothing stays one."""
        if self.nothing:
            return self
        return Selector((*equal_to(labels).requirements, *self.requirements))


def matcher(selector: Selector) -> Callable[[Mapping[str, str]], bool]:
    """`selector.matches`; of a long selector, a form whose cost is that of the labels, not of the requirements."""
    if selector.nothing or len(selector.requirements) <= SHORT:
        return selector.matches
    required: dict[str, frozenset[str] | None] = {}
    excluded: dict[str, frozenset[str]] = {}
    absent: set[str] = set()
    compared: list[Requirement] = []
    for each in selector.requirements:
        values = each.many or frozenset(each.values)
        if each.operator == IN:
            before = required.get(each.key)
            required[each.key] = values if before is None else before & values
        elif each.operator == EXISTS:
            required.setdefault(each.key, None)
        elif each.operator == NOT_IN:
            excluded[each.key] = excluded.get(each.key, frozenset()) | values
        elif each.operator == DOES_NOT_EXIST:
            absent.add(each.key)
        else:
            compared.append(each)

    def matches(labels: Mapping[str, str]) -> bool:
        if len(required) > len(labels) or not absent.isdisjoint(labels):
            return False
        for key, values in required.items():
            value = labels.get(key)
            if value is None or (values is not None and value not in values):
                return False
        if excluded and any(value in excluded[key] for key, value in labels.items() if key in excluded):
            return False
        return not compared or all(each.matches(labels) for each in compared)

    return matches


NOTHING: Final = Selector(nothing=True)
EVERYTHING: Final = Selector()


class LabelSelectorRequirement(ApiStruct):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = ()


class LabelSelector(ApiStruct):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[LabelSelectorRequirement, ...] | None = None


class NodeSelectorTerm(ApiStruct):
    match_expressions: tuple[LabelSelectorRequirement, ...] | None = None
    match_fields: tuple[LabelSelectorRequirement, ...] | None = None

    @property
    def is_empty(self) -> bool:
        return not self.match_expressions and not self.match_fields


class NodeSelector(ApiStruct):
    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = None


def parse_int64(text: str) -> int | None:
    return whole_number(text, -(2**63), 2**63 - 1)


def equal_to(labels: Mapping[str, str]) -> Selector:
    """The selector of exactly these values; values are taken as they are, as Kubernetes does for nodeSelector."""
    return Selector(tuple(Requirement(key, IN, (labels[key],)) for key in sorted(labels)))


def parse_requirement(key: str, operator: str, values: tuple[str, ...]) -> Requirement:
    """The requirement, checked as Kubernetes checks it."""
    if not _is_qualified(key):
        raise SelectorError(f"{key!r} is not a label key")
    if operator in (IN, NOT_IN):
        if not values:
            raise SelectorError(f"{key}: {operator} needs at least one value")
    elif operator in (EXISTS, DOES_NOT_EXIST):
        if values:
            raise SelectorError(f"{key}: {operator} takes no values")
    elif operator in (GT, LT):
        if len(values) != 1 or parse_int64(values[0]) is None:
            raise SelectorError(f"{key}: {operator} needs exactly one integer")
    else:
        raise SelectorError(f"{operator!r} is not a selector operator")
    for value in values:
        if len(value) > 63 or (value and not _NAME.fullmatch(value)):
            raise SelectorError(f"{key}: {value!r} is not a label value")
    return (
        Requirement(key, operator, values) if len(values) <= FEW else Requirement(key, operator, many=frozenset(values))
    )


def parse_label_selector(selector: LabelSelector | None) -> Selector:
    if selector is None:
        return NOTHING
    requirements = [parse_requirement(key, IN, (value,)) for key, value in (selector.match_labels or {}).items()]
    for expression in selector.match_expressions or ():
        if expression.operator in (GT, LT):
            raise SelectorError(f"{expression.operator!r} is not a label selector operator")
        requirements.append(parse_requirement(expression.key, expression.operator, expression.values or ()))
    return Selector(tuple(requirements))


def _is_qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= 63 and _NAME.fullmatch(name) is not None
