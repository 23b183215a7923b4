"""Why a pod carries the terms it does, and what they mean on every node: worked out again by the webhook's functions.

No annotation keeps it: the facts are those of now, so a term whose fact has changed is shown as such.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from fairlead.data.draft import PREFERRED, REQUIRED, Note
from fairlead.data.facts import Missing, Sources, claim_names
from fairlead.data.mutate import MutateOptions, Mutation, PodReview, mutate
from fairlead.data.opt_in import DONE
from fairlead.data.profile import PluginProfile
from fairlead.data.spec import SIDECAR_DATASET, CacheNode
from fairlead.engine.locality import Reading, local_values, readings_of
from fairlead.model.selectors import Requirement

MOST_ROUNDS: Final = 64
SIDECARS: Final = (
    "it brings the fuses of its datasets, whose claims are none of its volumes any more: terms are unknown"
)


class TermExplanation(msgspec.Struct, frozen=True, rename="camel"):
    """A term that the webhook adds, by which plugin, because of what; and whether the pod has it."""

    plugin: str
    effect: str
    because: str
    term: Mapping[str, Any] | None
    is_in_pod: bool


class NodeExplanation(msgspec.Struct, frozen=True, rename="camel"):
    """What the terms come to on a node."""

    node: str
    is_allowed: bool
    """Whether it satisfies what is required."""
    weight: int
    """The sum of the preferred weights that match."""
    score: int
    """0 to 100 beside the best node: that sum as kube-scheduler scores it, or the bytes as DataLocality does."""
    local_share: float
    """How much of the pod's data the node has."""


class DataExplanation(msgspec.Struct, frozen=True, rename="camel"):
    pod: str
    datasets: tuple[str, ...]
    problem: str
    scored_by: str
    """`NodeAffinity`, or `DataLocality` where the pod's scheduler scores cached bytes and needs no preferred terms."""
    terms: tuple[TermExplanation, ...]
    nodes: tuple[NodeExplanation, ...]


def answered(review: PodReview, sources: Sources, profile: PluginProfile, options: MutateOptions) -> Mutation:
    """The webhook's answer where nothing more can be read."""
    for _ in range(MOST_ROUNDS):
        try:
            return mutate(review, sources, profile, options)
        except Missing as missing:
            for ref in missing.refs:
                sources.add(ref, None)
    raise AssertionError("a pod names more objects than it can")


def explain(
    pod: Mapping[str, Any],
    namespace: str,
    sources: Sources,
    profile: PluginProfile,
    options: MutateOptions,
    nodes: Iterable[CacheNode],
    *,
    by_namespace: bool = False,
) -> DataExplanation:
    answer = answered(PodReview(_as_created(pod), namespace, by_namespace), sources, profile, options)
    terms = tuple(_term(note, pod) for note in answer.notes)
    if not any(each.is_in_pod for each in terms if each.effect == "preferred") and (own := _own_rules(pod, terms)):
        # Perhaps because of rules of its own, which the webhook respects.
        answer = answered(PodReview(_as_created(pod, own), namespace, by_namespace), sources, profile, options)
        terms = tuple(_term(note, pod) for note in answer.notes)
    cache = options.locality.cache
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    readings = readings_of(cache, namespace, [each.claim for each in answer.datasets], annotations)
    labels = (pod.get("metadata") or {}).get("labels") or {}
    brought = tuple(f"{namespace}/{name}" for key, name in labels.items() if key.startswith(SIDECAR_DATASET))
    readings += [Reading(each) for each in dict.fromkeys(brought) if each in cache.datasets]
    local = local_values(cache, readings)
    affinity = ((pod.get("spec") or {}).get("affinity") or {}).get("nodeAffinity") or {}
    weights = {node.metadata.name: _weight(affinity, node) for node in nodes}
    by_bytes = _is_scored_by_bytes(terms)
    # As the engine counts them: in ten thousandths.
    scores = {name: round(10_000 * local.get(name, 0.0)) for name in weights} if by_bytes else weights
    best = max(scores.values(), default=0)
    required = (affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or []
    found = [
        NodeExplanation(
            node=name,
            is_allowed=not required or any(matches(term, node.metadata.labels, name) for term in required),
            weight=weights[name],
            score=100 * scores[name] // best if best else 0,
            local_share=round(local.get(name, 0.0), 3),
        )
        for node in nodes
        if (name := node.metadata.name)
    ]
    return DataExplanation(
        pod=f"{namespace}/{(pod.get('metadata') or {}).get('name', '')}",
        datasets=tuple(dict.fromkeys((*(each.physical.key for each in answer.datasets), *brought))),
        problem=answer.message or answer.skipped or (SIDECARS if brought else ""),
        scored_by="DataLocality" if by_bytes else "NodeAffinity",
        terms=terms,
        nodes=tuple(sorted(found, key=lambda each: (not each.is_allowed, -each.score, -each.local_share, each.node))),
    )


def _is_scored_by_bytes(terms: Sequence[TermExplanation]) -> bool:
    """The pod went through the webhook, which left out what it prefers: for its scheduler alone that is done."""
    preferred, required = (
        [each.is_in_pod for each in terms if each.effect == kind] for kind in ("preferred", "required")
    )
    return bool(preferred) and not any(preferred) and bool(required) and all(required)


def _as_created(pod: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The pod before the webhook, as far as that can be known: without rules about nodes, but for those of its own,
    and without our marks."""
    found = copy.deepcopy(dict(pod))
    metadata, spec = found.get("metadata") or {}, found.get("spec") or {}
    metadata.pop("namespace", None)
    (metadata.get("labels") or {}).pop(DONE, None)
    (spec.get("affinity") or {}).pop("nodeAffinity", None)
    if own:
        spec["affinity"] = {**(spec.get("affinity") or {}), "nodeAffinity": dict(own)}
    spec.pop("nodeName", None)
    return found


def _own_rules(pod: Mapping[str, Any], terms: Sequence[TermExplanation]) -> dict[str, Any]:
    """The pod's rules about nodes without those that the webhook adds."""
    affinity = ((pod.get("spec") or {}).get("affinity") or {}).get("nodeAffinity") or {}
    ours = [each.term for each in terms if each.term is not None]
    added = [each for term in ours for each in term.get("matchExpressions") or ()]
    preferred = [each for each in affinity.get(PREFERRED) or () if each not in ours]
    joined = (affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or ()
    left = [
        {**term, "matchExpressions": [each for each in term.get("matchExpressions") or () if each not in added]}
        for term in joined
    ]
    required = [each for each in left if each["matchExpressions"] or each.get("matchFields")]
    return {
        **({PREFERRED: preferred} if preferred else {}),
        **({REQUIRED: {"nodeSelectorTerms": required}} if required else {}),
    }


def _term(note: Note, pod: Mapping[str, Any]) -> TermExplanation:
    return TermExplanation(note.plugin, note.effect, note.because, note.term, _is_in(note, pod))


def _is_in(note: Note, pod: Mapping[str, Any]) -> bool:
    if note.term is None:
        return True
    own = (pod.get("spec") or {}).get("affinity") or {}
    affinity = own.get("podAntiAffinity" if "podAffinityTerm" in note.term else "nodeAffinity") or {}
    if note.effect == "preferred":
        return note.term in (affinity.get(PREFERRED) or [])
    terms = (affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or []
    expressions = note.term.get("matchExpressions") or []
    return any(all(each in (term.get("matchExpressions") or []) for each in expressions) for term in terms)


def _weight(affinity: Mapping[str, Any], node: CacheNode) -> int:
    terms: Sequence[Any] = affinity.get(PREFERRED) or []
    name, labels = node.metadata.name, node.metadata.labels
    return sum(each["weight"] for each in terms if matches(each.get("preference") or {}, labels, name))


def matches(term: Mapping[str, Any], labels: Mapping[str, str], name: str = "") -> bool:
    """Whether a node satisfies a nodeSelectorTerm; one without conditions matches nothing."""
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    return bool(expressions or fields) and (
        all(_holds(each, labels.get(each["key"])) for each in expressions)
        and all(_holds(each, name) for each in fields)
    )


def _holds(expression: Mapping[str, Any], label: str | None) -> bool:
    values = tuple(expression.get("values") or ("",))  # one at least, as a number is compared with
    return Requirement(expression["key"], expression["operator"], values).admits(label)


# -- dry run -----------------------------------------------------------------------------------------------------------


class DryRun(msgspec.Struct, frozen=True):
    """Shares of the bytes that recorded pods read which are local: where they ran, and where they could best run.

    A pod that is recorded at its admission has no node: it counts for the best alone.
    """

    pods: int
    pods_with_datasets: int
    pods_with_nodes: int
    """Of those with datasets."""
    local_share: float | None
    """None where no pod has a node."""
    best_local_share: float
    by_dataset: Mapping[str, float]
    best_by_dataset: Mapping[str, float]


def dry_run(pods: Iterable[Mapping[str, Any]], cache: Any) -> DryRun:
    count = with_datasets = with_nodes = 0
    total = placed = local = best = 0.0
    by_dataset: dict[str, list[float]] = {}
    best_by_dataset: dict[str, list[float]] = {}
    for pod in pods:
        count += 1
        metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
        namespace, annotations = metadata.get("namespace", "default"), metadata.get("annotations") or {}
        readings = readings_of(cache, namespace, claim_names(spec), annotations)
        if not readings:
            continue
        with_datasets += 1
        size = sum(each.read_bytes or cache.datasets[each.dataset].total_bytes or 1.0 for each in readings)
        values = local_values(cache, readings)
        most = max(values.values(), default=0.0)
        total, best = total + size, best + size * most
        for each in readings:
            best_by_dataset.setdefault(each.dataset, []).append(most)
        if node := spec.get("nodeName"):
            here = values.get(node, 0.0)
            with_nodes, placed, local = with_nodes + 1, placed + size, local + size * here
            for each in readings:
                by_dataset.setdefault(each.dataset, []).append(here)
    return DryRun(
        pods=count,
        pods_with_datasets=with_datasets,
        pods_with_nodes=with_nodes,
        local_share=round(local / placed, 4) if placed else None,
        best_local_share=round(best / total, 4) if total else 0.0,
        by_dataset=_means(by_dataset),
        best_by_dataset=_means(best_by_dataset),
    )


def _means(shares: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: round(sum(each) / len(each), 4) for name, each in sorted(shares.items())}
