"""The simulated provider: pods that only act, by stage rules, for trying policies at scale.

A run waits for its latency, runs, and ends after its time or never. Rules come from `Stages`; annotations on a pod
overrule them for its containers. All chance comes from the given source, all time from the given clock, and one heap
of moments drives any number of pods.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from fairlead.cluster.backoff import Rng
from fairlead.cluster.clock import Clock
from fairlead.model.times import parse_time_or_none
from fairlead.nodes.provider import (
    LogOptions,
    Notify,
    PodReport,
    ProbeResult,
    Run,
    RunPhase,
    RunReport,
    Sandbox,
    Traits,
    Unsupported,
    Usage,
)
from fairlead.nodes.spec import KubeletPod, Probe
from fairlead.nodes.timer_queue import TimerQueue

# Annotations that steer a pod. Seconds may be a number or `from-to`, drawn evenly.
START_AFTER = "simulate.fairlead.io/start-after"
EXIT_AFTER = "simulate.fairlead.io/exit-after"
EXIT_CODE = "simulate.fairlead.io/exit-code"
FAILURE_RATE = "simulate.fairlead.io/failure-rate"


@dataclass(frozen=True, slots=True)
class Span:
    """Seconds, drawn evenly between two bounds."""

    from_s: float
    to_s: float

    def draw(self, rng: Rng) -> float:
        return self.from_s + (self.to_s - self.from_s) * rng()


@dataclass(frozen=True, slots=True)
class Stages:
    """What becomes of a run: Running after `start_after`, over after `exit_after` more, failed at `failure_rate`.

    Without `exit_after` a container runs until it is stopped; an init container always ends, at once by default.
    """

    start_after: Span = Span(0.0, 0.0)
    exit_after: Span | None = None
    exit_code: int = 0
    failure_rate: float = 0.0
    # A container that is stopped ends after this long, unless its grace is shorter.
    stop_after: Span = Span(0.0, 0.0)


@dataclass(slots=True)
class Actor:
    """A pod in play."""

    ip: str
    stages: Stages
    runs: dict[str, RunReport] = field(default_factory=dict)
    is_init: frozenset[str] = frozenset()
    ends: dict[str, tuple[int, datetime]] = field(default_factory=dict)


class SimulatedProvider:
    def __init__(self, *, clock: Clock, rng: Rng, stages: Stages | None = None) -> None:
        self._clock = clock
        self._rng = rng
        self._stages = stages or Stages()
        self._actors: dict[str, Actor] = {}
        self._moments: TimerQueue[tuple[str, str, int]] = TimerQueue(clock)
        self._ips = 0
        self._notify: Notify = lambda uid: None

    @property
    def traits(self) -> Traits:
        return Traits(environment=False, probes=False, records_events=False)

    def listen(self, notify: Notify) -> None:
        self._notify = notify

    async def run(self) -> None:
        """Moves every pod to its next stage when that is due."""

        async def due(at: datetime, what: tuple[str, str, int]) -> None:
            self._advance(*what, at)

        await self._moments.run(due)

    async def create(self, sandbox: Sandbox) -> None:
        self._actor(sandbox.pod)

    async def adopt(self, pod: KubeletPod) -> None:
        """Whatever its status says is running goes on as if nothing had happened."""
        actor = self._actor(pod, pod.status.pod_ip)
        for status in pod.status.all_container_statuses:
            if status.state.running is None or status.name in actor.runs:
                continue
            started_at = parse_time_or_none(status.state.running.started_at) or self._clock.now()
            run = RunReport(status.restart_count, RunPhase.RUNNING, started_at, id=status.container_id)
            actor.runs[status.name] = run
            self._plan_end(pod.uid, actor, status.name, run, started_at)

    async def update(self, uid: str, runs: tuple[Run, ...]) -> None:
        actor = self._actors.get(uid)
        if actor is None:
            return
        now = self._clock.now()
        for run in runs:
            name = run.container.name
            known = actor.runs.get(name)
            if known is None or known.attempt < run.attempt:
                identity = f"simulated://{uid}-{name}-{run.attempt}"
                actor.runs[name] = RunReport(run.attempt, RunPhase.WAITING, id=identity)
                self._at(now + timedelta(seconds=actor.stages.start_after.draw(self._rng)), uid, name, run.attempt)
            elif run.kill_at is not None and known.phase is not RunPhase.EXITED:
                drawn_at = now + timedelta(seconds=actor.stages.stop_after.draw(self._rng))
                attempt, ends_at = actor.ends.get(name, (run.attempt, run.kill_at))
                ends_at = min(run.kill_at, drawn_at, ends_at if attempt == run.attempt else run.kill_at)
                actor.ends[name] = (run.attempt, ends_at)
                self._at(ends_at, uid, name, run.attempt)
        named = {run.container.name for run in runs}
        for name, left in list(actor.runs.items()):
            if name not in named and left.phase is not RunPhase.EXITED:
                actor.runs[name] = _exited(left, now, 137)
                self._notify(uid)

    async def delete(self, uid: str, grace_s: float = 0.0) -> None:
        self._actors.pop(uid, None)

    def status(self, uid: str) -> PodReport | None:
        actor = self._actors.get(uid)
        return None if actor is None else PodReport(actor.ip, dict(actor.runs))

    def known(self) -> frozenset[str]:
        return frozenset(self._actors)

    async def probe(self, uid: str, container: str, probe: Probe) -> ProbeResult:
        return ProbeResult(True)

    def usage(self, uid: str) -> Mapping[str, Usage]:
        actor = self._actors.get(uid)
        return {} if actor is None else {name: Usage() for name in actor.runs}

    def logs(self, uid: str, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        raise Unsupported("a simulated pod writes no log")

    # -- acting ---------------------------------------------------------------------------------------------

    def _actor(self, pod: KubeletPod, ip: str = "") -> Actor:
        actor = self._actors.get(pod.uid)
        if actor is None:
            self._ips += 1
            is_init = frozenset(c.name for c in pod.inits if not c.is_sidecar)
            actor = Actor(ip or simulated_ip(self._ips), stages_of(pod, self._stages), is_init=is_init)
            self._actors[pod.uid] = actor
        return actor

    def _at(self, at: datetime, uid: str, name: str, attempt: int) -> None:
        if at <= self._clock.now():
            self._advance(uid, name, attempt, at)
            return
        self._moments.add(at, (uid, name, attempt))

    def _advance(self, uid: str, name: str, attempt: int, at: datetime) -> None:
        """The next stage of a run, if it is still the one that the moment was meant for."""
        actor = self._actors.get(uid)
        run = actor.runs.get(name) if actor is not None else None
        if actor is None or run is None or run.attempt != attempt or run.phase is RunPhase.EXITED:
            return
        end = actor.ends.get(name)
        if end is not None and end[0] == attempt and at >= end[1]:
            actor.runs[name] = _exited(run, at, self._exit_code(actor, name, run))
        elif run.phase is RunPhase.WAITING:
            actor.runs[name] = running = replace(run, phase=RunPhase.RUNNING, started_at=at)
            self._plan_end(uid, actor, name, running, at)
        self._notify(uid)

    def _plan_end(self, uid: str, actor: Actor, name: str, run: RunReport, started_at: datetime) -> None:
        span = actor.stages.exit_after
        if name in actor.is_init:
            span = span or Span(0.0, 0.0)
        if span is None:
            return
        ends_at = started_at + timedelta(seconds=span.draw(self._rng))
        actor.ends[name] = (run.attempt, ends_at)
        self._at(ends_at, uid, name, run.attempt)

    def _exit_code(self, actor: Actor, name: str, run: RunReport) -> int:
        if run.phase is RunPhase.WAITING:
            return 137
        if actor.stages.failure_rate and self._rng() < actor.stages.failure_rate:
            return 1
        return 0 if name in actor.is_init else actor.stages.exit_code


def _exited(run: RunReport, at: datetime, code: int) -> RunReport:
    return replace(run, phase=RunPhase.EXITED, started_at=run.started_at or at, finished_at=at, exit_code=code)


def simulated_ip(number: int) -> str:
    """Of 10.64.0.0/10: four million addresses that nobody listens on."""
    number %= 1 << 22
    return f"10.{64 + (number >> 16)}.{(number >> 8) & 255}.{number & 255}"


def stages_of(pod: KubeletPod, stages: Stages) -> Stages:
    """The rules for one pod: the given ones, overruled by what its annotations say well enough to be understood."""
    notes = pod.metadata.annotations
    if (start := _span(notes.get(START_AFTER))) is not None:
        stages = replace(stages, start_after=start)
    if (end := _span(notes.get(EXIT_AFTER))) is not None:
        stages = replace(stages, exit_after=end)
    if (rate := _number(notes.get(FAILURE_RATE))) is not None:
        stages = replace(stages, failure_rate=rate)
    if (code := _number(notes.get(EXIT_CODE))) is not None:
        stages = replace(stages, exit_code=int(code))
    return stages


def _span(text: str | None) -> Span | None:
    low, dash, high = (text or "").partition("-")
    first = _number(low)
    last = _number(high) if dash else first
    return None if first is None or last is None else Span(first, max(first, last))


def _number(text: str | None) -> float | None:
    try:
        return max(0.0, float((text or "").strip().removesuffix("s")))
    except ValueError:
        return None
