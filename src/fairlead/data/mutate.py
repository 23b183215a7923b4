"""A review in, a verdict out: pure. The webhook, the replay of recordings, `explain` and the benchmarks call it.

Missing leaves it where an object is in no mirror: the caller reads that one and calls again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from fairlead.data import opt_in
from fairlead.data.draft import MOST_POD_BYTES, Draft, NotAPod, Note, PluginError, TooLarge, Unpatchable, check_pod
from fairlead.data.facts import DatasetFacts, Missing, Sources, Unready, collect
from fairlead.data.names import NoSuchKey
from fairlead.data.patch import diff
from fairlead.data.plugin import LocalityOptions, PluginContext
from fairlead.data.plugins.fuse_sidecar import FuseSidecar
from fairlead.data.profile import PluginProfile, Step

MOST_DATASETS: Final = 64
"""Of one pod: each may add terms to all of the pod's own, and a container."""
TOO_LARGE: Final = "the pod would become larger than the API server stores; it is left as it is"


@dataclass(frozen=True, slots=True)
class PodReview:
    """What a review says of a pod that is being created."""

    pod: Mapping[str, Any]
    namespace: str = ""
    by_namespace: bool = False
    """Whether only the label of its namespace brought it here."""


@dataclass(frozen=True, slots=True)
class MutateOptions:
    injects: bool = True
    prefetcher_image: str = ""
    native_sidecars: bool = False
    scoring_schedulers: frozenset[str] = frozenset()
    """Schedulers that score cached bytes themselves: their pods get required terms, and no preferred ones."""
    waiting_schedulers: frozenset[str] = frozenset()
    """Schedulers that wait for room near a pod's data by themselves: their pods get no gate for that."""
    locality: LocalityOptions = field(default_factory=LocalityOptions)
    now: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    releases_gates: bool = False
    additions: tuple[Step, ...] = ()
    """What runs after the profile's chain for every pod with a dataset, whatever the profile says."""


Outcome = str
"""What became of a plugin's run: ok, ignored, failed or late."""
RunStep = Callable[[Step, Draft, PluginContext], tuple[Draft, bool]]


@dataclass(frozen=True, slots=True)
class PluginRun:
    plugin: str
    outcome: Outcome = "ok"
    stops: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Mutation:
    """What is answered, and how it came about."""

    allowed: bool = True
    code: int = 200
    message: str = ""
    pod: Mapping[str, Any] = field(default_factory=dict)
    patch: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()
    runs: Sequence[PluginRun] = ()
    notes: Sequence[Note] = ()
    datasets: Sequence[DatasetFacts] = ()
    side_objects: Mapping[tuple[str, str], str] = field(default_factory=dict)
    skipped: str = ""
    """Why the pod was left alone."""


class LatePlugin(PluginError):
    """A plugin did not end within its budget."""


def mutate(
    review: PodReview, sources: Sources, profile: PluginProfile, options: MutateOptions, run: RunStep | None = None
) -> Mutation:
    pod = review.pod
    if not options.injects:
        return Mutation(pod=pod, skipped="injection is turned off")
    try:
        check_pod(pod)
    except NotAPod as problem:
        return Mutation(allowed=False, code=400, message=f"the pod cannot be read: {problem}")
    except Unpatchable as problem:
        return Mutation(pod=pod, warnings=(f"the pod is left as it is: {problem}",), skipped="unreadable affinity")
    metadata = pod.get("metadata") or {}
    own = metadata.get("namespace") or ""
    if own and own != review.namespace:
        sentence = f"metadata.namespace: the pod says {own!r}, the request {review.namespace!r}; they must be the same"
        return Mutation(allowed=False, code=403, message=sentence)
    if not review.namespace:
        return Mutation(allowed=False, code=500, message="neither the pod nor the request names a namespace")
    labels = metadata.get("labels") or {}
    if why := opt_in.why_not(labels):
        return Mutation(pod=pod, skipped=why)
    try:
        datasets = collect(pod.get("spec") or {}, metadata.get("annotations") or {}, review.namespace, sources)
        if len(datasets) > MOST_DATASETS:
            sentence = f"the pod mounts {len(datasets)} claims of datasets; at most {MOST_DATASETS} are possible"
            return Mutation(allowed=False, code=403, message=sentence)
        return _run_chain(review, datasets, sources, profile, options, run or run_here)
    except Unready as problem:
        return Mutation(allowed=False, code=500, message=str(problem))
    except TooLarge:
        return Mutation(pod=pod, patch=[], warnings=[TOO_LARGE], skipped="too large")


def run_here(step: Step, draft: Draft, context: PluginContext) -> tuple[Draft, bool]:
    return draft, step.plugin.mutate(draft, context)


def _run_chain(
    review: PodReview,
    datasets: tuple[DatasetFacts, ...],
    sources: Sources,
    profile: PluginProfile,
    options: MutateOptions,
    run: RunStep,
) -> Mutation:
    pod = review.pod
    draft = Draft.of(pod)
    mode = opt_in.mode(draft.labels, by_namespace=review.by_namespace)
    spec = pod.get("spec") or {}
    steps = profile.chain(mode, bool(datasets))
    scheduler = spec.get("schedulerName", "default-scheduler")
    # Such a scheduler knows datasets by the pod's claims: pods without any, and those whose claims a sidecar replaces,
    # keep their preferences.
    brings_fuse = mode == "serverless" and any(step.plugin.name == FuseSidecar.name for step in steps)
    shows_claims = bool(datasets) and not brings_fuse
    draft.preferences = not (shows_claims and scheduler in options.scoring_schedulers)
    context = PluginContext(
        datasets,
        sources,
        review.namespace,
        options.prefetcher_image,
        options.native_sidecars,
        options.locality,
        options.now,
        options.releases_gates,
        shows_claims and scheduler in options.waiting_schedulers,
    )
    runs: list[PluginRun] = []
    additions = options.additions if mode and datasets else ()
    for group in (steps, additions):
        for step in group:
            draft, one = _run_step(step, draft, context, run)
            runs.append(one)
            if one.outcome == "failed":
                message = f"{step.plugin.name}: {one.problem}"
                return Mutation(allowed=False, code=403, message=message, runs=runs, datasets=datasets)
            if one.stops:
                break
    for each in datasets:
        if each.phase == "DataMigrating":
            draft.warn(f"dataset {each.dataset.key} is being migrated; reads may be slow")
    return _answer(pod, draft, runs, datasets)


def _run_step(step: Step, draft: Draft, context: PluginContext, run: RunStep) -> tuple[Draft, PluginRun]:
    """The draft after one plugin: as it was before if it failed."""
    draft.plugin = name = step.plugin.name
    before = draft.checkpoint()
    try:
        after, stops = run(step, draft, context)
    except (Missing, Unready, TooLarge):
        raise
    except Exception as problem:
        draft.rollback(before)
        late = isinstance(problem, LatePlugin)
        is_expected = isinstance(problem, PluginError | NoSuchKey)
        sentence = str(problem) if is_expected else f"failed: {type(problem).__name__}: {problem}"
        if step.policy == "fail":
            return draft, PluginRun(name, "failed", problem=sentence)
        draft.warn(f"plugin {name} was left out: {sentence}")
        return draft, PluginRun(name, "late" if late else "ignored", problem=sentence)
    return after, PluginRun(name, stops=stops)


def _answer(
    pod: Mapping[str, Any], draft: Draft, runs: list[PluginRun], datasets: tuple[DatasetFacts, ...]
) -> Mutation:
    if len(msgspec.json.encode(draft.pod)) > MOST_POD_BYTES:
        raise TooLarge
    patch = diff(pod, draft.pod)
    return Mutation(
        pod=draft.pod,
        patch=patch,
        warnings=draft.warnings,
        runs=runs,
        notes=draft.notes,
        datasets=datasets,
        side_objects=draft.side_objects if patch else {},
    )
