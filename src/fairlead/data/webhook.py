"""The webhook: reviews from the API server, answered from mirrors.

A shell around `mutate`: it reads what no mirror has, once; keeps the profile current; measures and counts; and writes
nothing to the cluster.
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import Unavailable
from fairlead.data.facts import Missing, Ref, Sources
from fairlead.data.mutate import MutateOptions, Mutation, PodReview, RunStep, mutate
from fairlead.data.profile import DEFAULT, BadProfile, PluginProfile, parse
from fairlead.data.running import PluginRunner, installed
from fairlead.web.admission import Review, Verdict, refused

log = structlog.get_logger("fairlead.data")

MOST_LIVE_READS: Final = 32
"""Of one review: a pod with more unknown claims than that is refused by the first."""
LOOK_EVERY_S: Final = 2.0
CHAIN_SHARE: Final = 0.9
"""Of the time until the answer: what plugins of other packages may take together."""


class DataMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.plugins = Counter(
            "fairlead_data_plugin_runs_total",
            "Runs of a plugin by outcome (ok, ignored, failed, late).",
            ["plugin", "outcome"],
            registry=registry,
        )
        self.plugin_seconds = Histogram(
            "fairlead_data_plugin_seconds",
            "How long a plugin took.",
            ["plugin"],
            buckets=(1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10),
            registry=registry,
        )
        self.skipped = Counter(
            "fairlead_data_pods_skipped_total", "Pods left alone, by reason.", ["reason"], registry=registry
        )
        self.live_reads = Counter(
            "fairlead_data_live_reads_total", "Objects read because no mirror had them.", ["kind"], registry=registry
        )
        self.profile_errors = Counter(
            "fairlead_data_profile_errors_total", "Profiles that could not be used.", registry=registry
        )
        self.local_share = Gauge(
            "fairlead_data_local_share",
            "How much of a dataset its readers find on their nodes, on average over the pods that run.",
            ["dataset"],
            registry=registry,
        )
        self.absent = Gauge("fairlead_data_fluid_absent", "1 while the cluster lacks Fluid's kinds.", registry=registry)
        # Looked up for every plugin of every review.
        self.run = functools.cache(self.plugins.labels)
        self.seconds_of = functools.cache(self.plugin_seconds.labels)


class ProfileFile:
    """The profile of a file, read again when it changes; one that cannot be used leaves the old in force."""

    def __init__(self, path: str, metrics: DataMetrics) -> None:
        self._path = Path(path) if path else None
        self._metrics = metrics
        text = self._path.read_text() if self._path is not None else DEFAULT
        self._text: str | None = text
        self.current: PluginProfile = parse(text, installed)
        self.problem = ""

    def look(self) -> None:
        if self._path is None:
            return
        try:
            text = self._path.read_text()
            if text == self._text:
                return
            self._text = text
            self.current = parse(text, installed)
        except (OSError, UnicodeDecodeError, BadProfile) as problem:
            if not isinstance(problem, BadProfile):
                self._text = None  # what is read next is new, even if it is what was there before
            if str(problem) != self.problem:
                self.problem = str(problem)
                self._metrics.profile_errors.inc()
                log.warning("profile not used; the old one stays", file=str(self._path), problem=self.problem)
            return
        self.problem = ""
        log.info("profile loaded", file=str(self._path))

    async def follow(self, clock: Clock) -> None:
        while True:
            await clock.sleep(LOOK_EVERY_S)
            await asyncio.to_thread(self.look)


class DataWebhook:
    def __init__(
        self,
        *,
        mirrored: Callable[[Ref], Any],
        read: Callable[[Ref], Any],
        is_absent: Callable[[], bool],
        profile: ProfileFile,
        options: Callable[[], MutateOptions],
        runner: PluginRunner,
        metrics: DataMetrics,
        now_s: Callable[[], float],
        record: Callable[[Review], None] = lambda review: None,
    ) -> None:
        self._mirrored = mirrored
        self._read = read
        self._is_absent = is_absent
        self._profile = profile
        self._options = options
        self._runner = runner
        self._metrics = metrics
        self._now_s = now_s
        self._record = record

    async def by_label(self, review: Review) -> Verdict:
        return await self._answer(review, by_namespace=False)

    async def by_namespace(self, review: Review) -> Verdict:
        return await self._answer(review, by_namespace=True)

    async def _answer(self, review: Review, *, by_namespace: bool) -> Verdict:
        kind = review.kind
        is_new_pod = review.operation == "CREATE" and (kind.group, kind.kind) == ("", "Pod") and not review.sub_resource
        if not is_new_pod or review.object is None or self._is_absent():
            return Verdict()
        answer = await self.mutation(PodReview(review.object, review.namespace, by_namespace), review.left_s)
        if answer.skipped:
            self._metrics.skipped.labels(answer.skipped).inc()
            log.debug("pod left alone", namespace=review.namespace, name=review.name, reason=answer.skipped)
        for run in answer.runs:
            self._metrics.run(run.plugin, run.outcome).inc()
        if not answer.allowed:
            return refused(answer.message, answer.code, "Forbidden" if answer.code == 403 else "")
        self._record(review)
        return Verdict(patch=answer.patch, warnings=answer.warnings)

    async def mutation(self, review: PodReview, left_s: float) -> Mutation:
        """What becomes of a pod, with the profile and the facts of this moment; within so many seconds."""
        run = self._timed(self._now_s() + left_s * CHAIN_SHARE)
        profile, options = self._profile.current, self._options()
        sources = Sources(self._mirrored)
        reads = 0
        while True:
            try:
                if profile.has_foreign:
                    return await asyncio.to_thread(mutate, review, sources, profile, options, run)
                return mutate(review, sources, profile, options, run)
            except Missing as problem:
                missing = problem.refs
            refs = missing[: MOST_LIVE_READS - reads]
            reads += len(refs)
            # At once: a pod may name many claims, and its caller waits.
            answers = await asyncio.gather(*map(self._read, refs), return_exceptions=True)
            for ref in missing[len(refs) :]:
                sources.add(ref, None)
            for ref, found in zip(refs, answers, strict=True):
                self._metrics.live_reads.labels(ref.kind.kind).inc()
                if isinstance(found, Unavailable) and isinstance(found.__cause__, msgspec.ValidationError):
                    # No failure of ours: somebody wrote it in another form.
                    sentence = f"{ref.kind.kind} {ref.key} cannot be read: {found.__cause__}"
                    return Mutation(allowed=False, code=500, message=sentence)
                if isinstance(found, BaseException):
                    raise found
                sources.add(ref, found)

    def _timed(self, until_s: float) -> RunStep:
        run, seconds_of, now_s = self._runner.run, self._metrics.seconds_of, self._now_s

        def timed(step: Any, draft: Any, context: Any) -> Any:
            started_s = now_s()
            try:
                return run(step, draft, context, until_s - started_s)
            finally:
                seconds_of(step.plugin.name).observe(now_s() - started_s)

        return timed


class PodRecorder:
    """Appends pods to a file, one line each, until it is full: for `fairlead data dry-run`."""

    def __init__(self, path: str, most: int) -> None:
        self._path = path
        self._file = open(path, "ab") if path else None  # noqa: SIM115 - open as long as the process
        is_kept = self._file is not None and Path(path).is_file()
        self._left = most - _lines(Path(path)) if is_kept else most

    def record(self, review: Review) -> None:
        if self._file is not None and self._left > 0 and not review.dry_run:
            self._left -= 1
            pod: Mapping[str, Any] = {**(review.object or {})}
            metadata = {**(pod.get("metadata") or {}), "namespace": review.namespace}
            try:
                self._file.write(msgspec.json.encode({**pod, "metadata": metadata}) + b"\n")
                self._file.flush()
            except OSError as problem:
                # A full disk costs the recording, not the pod.
                self._left = 0
                log.warning("no more pods are recorded", file=self._path, problem=str(problem))

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # what could not be written above
                self._file.close()


def _lines(path: Path) -> int:
    """How many an earlier process has written: the bound is that of the file."""
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
