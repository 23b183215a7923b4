"""Inter-pod affinity and anti-affinity terms, compiled once per class of pods.

A term is read in two ways. Carried by a placed pod it is asked about an incoming one (`asks_for`); owned by an
incoming pod it picks placed ones (`OwnTerms`), with its namespaces looked up beforehand.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from fairlead.model.pod import PodAffinity, PodAffinityTerm, SchedulerPod
from fairlead.model.selectors import Selector, SelectorError, matcher, parse_label_selector

# Each term is counted over all classes of pods and all nodes, and each requirement asked of all classes: a pod that has
# more would keep every other pod waiting, so it is refused.
MOST_TERMS: Final = 256
MOST_REQUIREMENTS: Final = 2048


AsksFor = Callable[[str, Mapping[str, str], Mapping[str, str]], bool]


class Term(msgspec.Struct, frozen=True):
    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector

    def asks_for(self) -> AsksFor:
        """Whether the term asks for a pod, by its namespace, the labels of that, and its own labels; made once."""
        namespaces, of_namespace, of_pod = self.namespaces, matcher(self.namespace_selector), matcher(self.selector)

        def asks_for(namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
            return (namespace in namespaces or of_namespace(namespace_labels)) and of_pod(labels)

        return asks_for


class WeightedTerm(msgspec.Struct, frozen=True):
    term: Term
    weight: int


class PodTerms(msgspec.Struct, frozen=True):
    """All terms of a pod; a kind that does not parse counts as none, and `error` says why."""

    affinity: tuple[Term, ...] = ()
    anti_affinity: tuple[Term, ...] = ()
    preferred: tuple[WeightedTerm, ...] = ()
    error: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.affinity or self.anti_affinity or self.preferred or self.error)


NO_TERMS = PodTerms()


class OwnTerms(msgspec.Struct, frozen=True):
    """Picks the placed pods that answer all of these terms of an incoming pod."""

    terms: tuple[Term, ...]
    # Per term the namespaces it reaches; None is all of them.
    reach: tuple[frozenset[str] | None, ...]

    def picks(self) -> Callable[[str, Mapping[str, str]], bool]:
        """Whether a placed pod answers, by its namespace and labels; made once for many pods."""
        each = [(names, matcher(term.selector)) for term, names in zip(self.terms, self.reach, strict=True)]
        if len(each) == 1:
            ((only_in, only),) = each
            return lambda namespace, labels: (only_in is None or namespace in only_in) and only(labels)

        def pick(namespace: str, labels: Mapping[str, str]) -> bool:
            return all((names is None or namespace in names) and matches(labels) for names, matches in each)

        return pick


def own_terms(
    terms: Iterable[Term], namespaces: Mapping[str, Mapping[str, str]], *, unlabelled_reach: bool
) -> OwnTerms:
    """`unlabelled_reach` is the bug of 1.34 to 1.36: a namespace selector that no labels at all would satisfy reaches
    every namespace."""
    terms = tuple(terms)
    reach: list[frozenset[str] | None] = []
    for term in terms:
        selector = term.namespace_selector
        if selector.is_empty or (unlabelled_reach and selector.matches({})):
            reach.append(None)
        else:
            matches = matcher(selector)
            found = (name for name, labels in namespaces.items() if matches(labels))
            reach.append(frozenset((*term.namespaces, *found)))
    return OwnTerms(terms, tuple(reach))


def parse_terms(pod: SchedulerPod) -> PodTerms:
    affinity = pod.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NO_TERMS
    namespace = pod.metadata.namespace
    near, far = affinity.pod_affinity or PodAffinity(), affinity.pod_anti_affinity or PodAffinity()
    errors: list[str] = []
    if excess := _excess(near, far):
        return PodTerms(error=excess)

    def parse(name: str, terms: Iterable[PodAffinityTerm]) -> tuple[Term, ...]:
        try:
            return tuple(_parse(term, namespace) for term in terms)
        except SelectorError as error:
            errors.append(f"{name}: {error}")
            return ()

    def weigh(name: str, kind: PodAffinity, sign: int) -> tuple[WeightedTerm, ...]:
        preferred = kind.preferred or ()
        parsed = parse(name, (weighted.pod_affinity_term for weighted in preferred))
        return tuple(
            WeightedTerm(term, sign * weighted.weight) for term, weighted in zip(parsed, preferred, strict=bool(parsed))
        )

    return PodTerms(
        affinity=parse("requiredAffinityTerms", near.required or ()),
        anti_affinity=parse("requiredAntiAffinityTerms", far.required or ()),
        preferred=(*weigh("preferredAffinityTerms", near, 1), *weigh("preferredAntiAffinityTerms", far, -1)),
        error=errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]" if errors else "",
    )


def _excess(*kinds: PodAffinity) -> str:
    """What there is too much of, in words."""
    terms = [
        *(term for kind in kinds for term in kind.required or ()),
        *(weighted.pod_affinity_term for kind in kinds for weighted in kind.preferred or ()),
    ]
    if len(terms) > MOST_TERMS:
        return f"{len(terms)} pod affinity and anti-affinity terms, more than {MOST_TERMS}"
    selectors = [each for term in terms for each in (term.label_selector, term.namespace_selector) if each is not None]
    requirements = sum(len(each.match_labels or ()) + len(each.match_expressions or ()) for each in selectors)
    if requirements > MOST_REQUIREMENTS:
        return f"{requirements} requirements in pod affinity terms, more than {MOST_REQUIREMENTS}"
    return ""


def _parse(term: PodAffinityTerm, own_namespace: str) -> Term:
    if not term.namespaces and term.namespace_selector is None:
        namespaces = frozenset((own_namespace,))
    else:
        namespaces = frozenset(term.namespaces or ())
    return Term(
        topology_key=term.topology_key,
        namespaces=namespaces,
        namespace_selector=parse_label_selector(term.namespace_selector),
        selector=parse_label_selector(term.label_selector),
    )
