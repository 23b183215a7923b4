"""The lifecycle of a pod on a node as a pure plan: what is seen, what the provider reports, what we remember, and now.

Called by `nodes.controller` for one pod at a time. The answer says which runs the provider shall have, what the
status is, which probes are due and when to look again. Knows no network, no clock and no provider. The life of a
single container is in `nodes.container_state`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from msgspec.structs import replace as changed

from fairlead.model.times import parse_time_or_none
from fairlead.nodes import health
from fairlead.nodes.container_state import (
    ContainerRecord,
    PodEvent,
    advance,
    init_policy,
    is_done,
    is_running,
    observe,
    policy_of,
)
from fairlead.nodes.container_status import CREATING, INITIALIZING, init_status, main_status, new_waits
from fairlead.nodes.health import Check
from fairlead.nodes.provider import PodReport, RunReport, Traits
from fairlead.nodes.spec import Container, KubeletPod, PodStatus, Probe, Waiting
from fairlead.nodes.status import Standing, pod_status

# How long a container whose configuration is incomplete waits before it is tried again.
PROBLEM_RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class Memory:
    """What we remember of one pod. All of it that must outlive us is in the pod's status."""

    started_at: datetime
    records: Mapping[str, ContainerRecord] = field(default_factory=dict)
    kill_at: datetime | None = None
    failure: Waiting | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """A run that the provider shall have."""

    name: str
    attempt: int
    kill_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DueProbe:
    container: str
    attempt: int
    check: Check
    probe: Probe


@dataclass(frozen=True, slots=True)
class Plan:
    memory: Memory
    orders: tuple[Order, ...]
    status: PodStatus
    is_over: bool
    due: tuple[DueProbe, ...] = ()
    events: tuple[PodEvent, ...] = ()
    wake_at: datetime | None = None


# --- remembering ------------------------------------------------------------------------------------------


def recall(pod: KubeletPod, now: datetime) -> Memory:
    """What the pod's status says about its time before this process: attempts, ends, and what was running."""
    records = {}
    images = {container.name: container.image for container in pod.all_containers}
    for status in pod.status.all_container_statuses:
        ended = status.state.terminated
        has_begun = ended is not None or status.state.running is not None
        before = status.last_state.terminated
        is_between = status.state.waiting is not None and before is not None
        if is_between:
            # It was waiting to be started again, or just being started: the attempt counted is not running.
            ended = before
        records[status.name] = ContainerRecord(
            attempt=status.restart_count,
            is_ordered=has_begun or is_between,
            image=status.image if has_begun and status.image else images.get(status.name, ""),
            started_at=parse_time_or_none(status.state.running.started_at) if status.state.running else None,
            ended=ended,
            ended_at=(parse_time_or_none(ended.finished_at) or now) if ended else None,
            last=None if is_between else before,
        )
    return Memory(started_at=parse_time_or_none(pod.status.start_time) or now, records=records)


def with_problems(memory: Memory, problems: Mapping[str, Waiting], now: datetime) -> Memory:
    """These containers could not be started for want of something; they are tried again in a while."""
    retry_at = now + timedelta(seconds=PROBLEM_RETRY_S)
    records = dict(memory.records)
    for name, problem in problems.items():
        records[name] = replace(
            records.get(name, ContainerRecord()), is_ordered=False, problem=problem, retry_at=retry_at
        )
    return replace(memory, records=records)


def after_probe(
    pod: KubeletPod, memory: Memory, due: DueProbe, ok: bool, output: str, now: datetime
) -> tuple[Memory, tuple[PodEvent, ...]]:
    """The memory once a probe's result is in; a result about an attempt that is over changes nothing."""
    record, container = memory.records.get(due.container), pod.container(due.container)
    if record is None or container is None or record.attempt != due.attempt or record.ended is not None:
        return memory, ()
    tally = record.tallies.get(due.check)
    if tally is None:
        return memory, ()
    tally = health.counted(tally, due.probe, ok, now)
    record = replace(record, tallies={**record.tallies, due.check: tally})
    events = []
    if not ok:
        events.append(PodEvent("Unhealthy", f"{due.check} probe failed: {output}", True, due.container))
    is_fatal = tally.verdict is False and due.check is not Check.READINESS
    if is_fatal and record.kill_at is None:
        grace_s = due.probe.termination_grace_period_seconds
        grace_s = pod.grace_s if grace_s is None else grace_s
        record = replace(record, kill_at=now + timedelta(seconds=grace_s), is_to_restart=False)
        note = f"Container {due.container} failed {due.check.lower()} probe, will be restarted"
        events.append(PodEvent("Killing", note, container=due.container))
    return replace(memory, records={**memory.records, due.container: record}), tuple(events)


# --- the plan ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Draft:
    """A plan in the making: each phase below advances the records and adds its events."""

    pod: KubeletPod
    report: PodReport | None
    traits: Traits
    now: datetime
    records: dict[str, ContainerRecord] = field(default_factory=dict)
    events: list[PodEvent] = field(default_factory=list)
    wakes: list[datetime] = field(default_factory=list)

    def run_of(self, name: str) -> RunReport | None:
        return self.report.runs.get(name) if self.report is not None else None

    def is_running(self, name: str) -> bool:
        return is_running(self.records[name], self.run_of(name))

    def advance(self, container: Container, policy: str) -> ContainerRecord:
        record = self.records[container.name] = advance(
            container, self.records[container.name], policy, self.now, self.wakes
        )
        return record


def plan_pod(
    pod: KubeletPod,
    report: PodReport | None,
    memory: Memory,
    *,
    now: datetime,
    node_ip: str,
    traits: Traits | None = None,
) -> Plan:
    traits = traits or Traits()
    draft = _Draft(pod if traits.probes else _without_probes(pod), report, traits, now)
    pod = draft.pod
    _observe(draft, memory)
    memory = _with_end(pod, memory, now, draft.wakes)
    is_failing = any(record.fails_pod for record in draft.records.values())
    is_stopping = memory.kill_at is not None or pod.is_finished or is_failing
    has_begun = any(draft.records[main.name].is_ordered for main in pod.spec.containers)
    are_done = has_begun and all(
        is_done(draft.records[main.name], policy_of(pod, main)) for main in pod.spec.containers
    )
    is_initialized, has_failed = has_begun or not pod.inits, False
    if not is_stopping and not are_done:
        is_initialized, has_failed = _advance_inits(draft, has_begun)
    if not is_stopping and is_initialized:
        for main in pod.spec.containers:
            draft.advance(main, policy_of(pod, main))
    is_ending = is_stopping or has_failed or are_done
    if is_ending:
        _stop(draft, memory.kill_at)
    orders = _orders(draft)
    due = _due_probes(draft, is_stopping)
    memory = replace(memory, records=draft.records)
    is_over = is_ending and not orders
    standing = Standing(
        pod_ip=report.ip if report is not None else pod.status.pod_ip,
        node_ip=node_ip,
        started_at=memory.started_at,
        is_initialized=is_initialized,
        is_over=is_over,
        reason=memory.failure.reason if memory.failure else "",
        message=memory.failure.message if memory.failure else "",
        conditions=report.conditions if report is not None else (),
    )
    status = _status(draft, standing, is_ending)  # adds events
    return Plan(
        memory=memory,
        orders=orders,
        status=status,
        is_over=is_over and pod.is_terminating,
        due=due,
        events=tuple(draft.events),
        wake_at=min(draft.wakes, default=None),
    )


def _observe(draft: _Draft, memory: Memory) -> None:
    """What became of each container since the last look."""
    for container in draft.pod.all_containers:
        known = memory.records.get(container.name, ContainerRecord())
        run = draft.run_of(container.name)
        draft.records[container.name] = observe(known, run, container, draft.pod, draft.traits, draft.now, draft.events)


def _advance_inits(draft: _Draft, has_begun: bool) -> tuple[bool, bool]:
    """Init containers, one after the other; sidecars among them stay. Whether all have passed, and whether one failed.

    Once the containers proper have begun, a sidecar that is down for a while does not make the pod uninitialized again.
    """
    has_failed = False
    for container in draft.pod.inits:
        policy = init_policy(draft.pod, container)
        record = draft.advance(container, policy)
        if container.is_sidecar:
            passed = draft.is_running(container.name) and health.has_started(container, record.tallies)
        else:
            passed = record.ended is not None and record.ended.exit_code == 0
            has_failed = has_failed or (policy == "Never" and record.ended is not None and not passed)
        if not passed and not has_begun:
            return False, has_failed
    return True, has_failed


def _stop(draft: _Draft, kill_at: datetime | None) -> None:
    """What has to end now: everything of a pod that ends, sidecars last and in reverse."""
    before, draft.records = draft.records, _stopped(draft.pod, draft.records, kill_at, draft.now)
    if not draft.traits.records_events:
        return
    for name, record in draft.records.items():
        # What never ran, and waits for its image perhaps, is not killed either.
        if record.kill_at and not before[name].kill_at and draft.is_running(name):
            draft.events.append(PodEvent("Killing", f"Stopping container {name}", container=name))


def _orders(draft: _Draft) -> tuple[Order, ...]:
    running = {name: record for name, record in draft.records.items() if record.is_live}
    draft.wakes += [
        record.kill_at for record in running.values() if record.kill_at is not None and record.kill_at > draft.now
    ]
    return tuple(Order(name, record.attempt, record.kill_at) for name, record in running.items())


def _due_probes(draft: _Draft, is_stopping: bool) -> tuple[DueProbe, ...]:
    due: list[DueProbe] = []
    for container in draft.pod.lasting_containers:
        if not draft.is_running(container.name):
            continue
        record = draft.records[container.name]
        is_ending = is_stopping or record.kill_at is not None
        draft.records[container.name], found = _probed(container, record, is_ending, draft.now)
        due += [probe for probe, at in found if at <= draft.now]
        draft.wakes += [at for _, at in found if at > draft.now]
    return tuple(due)


def _status(draft: _Draft, standing: Standing, is_ending: bool) -> PodStatus:
    pod, records = draft.pod, draft.records
    inits = [init_status(each, records[each.name], draft.run_of(each.name), pod, is_ending) for each in pod.inits]
    waiting = CREATING if standing.is_initialized or not pod.inits else INITIALIZING
    mains = [
        main_status(each, records[each.name], draft.run_of(each.name), pod, is_ending, waiting)
        for each in pod.spec.containers
    ]
    draft.events += new_waits(pod, (*inits, *mains))
    if pod.is_finished and standing.is_over:
        return pod.status  # the status of a finished pod stays, whoever wrote it
    return pod_status(pod, inits, mains, standing, draft.now)


def _with_end(pod: KubeletPod, memory: Memory, now: datetime, wakes: list[datetime]) -> Memory:
    if pod.is_terminating:
        grace_s = pod.metadata.deletion_grace_period_seconds
        kill_at = now + timedelta(seconds=pod.grace_s if grace_s is None else grace_s)
        # A second deletion may shorten the grace, never lengthen it.
        return replace(memory, kill_at=min(memory.kill_at or kill_at, kill_at))
    deadline_s = pod.spec.active_deadline_seconds
    if deadline_s is not None and memory.kill_at is None and not pod.is_finished:
        at = memory.started_at + timedelta(seconds=deadline_s)
        if now >= at:
            message = "Pod was active on the node longer than the specified deadline"
            failure = Waiting(reason="DeadlineExceeded", message=message)
            return replace(memory, kill_at=now + timedelta(seconds=pod.grace_s), failure=failure)
        wakes.append(at)
    return memory


def _stopped(
    pod: KubeletPod, records: Mapping[str, ContainerRecord], kill_at: datetime | None, now: datetime
) -> dict[str, ContainerRecord]:
    deadline = kill_at or now + timedelta(seconds=pod.grace_s)
    stopped = dict(records)

    def stop(container: Container) -> None:
        record = stopped[container.name]
        if record.is_live and (record.kill_at is None or record.kill_at > deadline):
            stopped[container.name] = replace(record, kill_at=deadline)

    sidecars = [container for container in pod.inits if container.is_sidecar]
    others = [container for container in pod.all_containers if container not in sidecars]
    for container in others:
        stop(container)
    for container in reversed(sidecars):
        if now < deadline and any(stopped[other.name].is_live for other in others):
            break
        stop(container)
        others.append(container)
    return stopped


def _probed(
    container: Container, record: ContainerRecord, is_stopping: bool, now: datetime
) -> tuple[ContainerRecord, list[tuple[DueProbe, datetime]]]:
    tallies = dict(record.tallies)
    found = []
    for check, probe in health.in_force(container, tallies, is_stopping=is_stopping):
        tally = tallies.get(check)
        if tally is None:
            first_at = (record.started_at or now) + timedelta(seconds=probe.initial_delay_seconds)
            tally = tallies[check] = health.Tally(next_at=max(now, first_at))
        found.append((DueProbe(container.name, record.attempt, check, probe), tally.next_at))
    return (replace(record, tallies=tallies) if tallies != record.tallies else record), found


def _without_probes(pod: KubeletPod) -> KubeletPod:
    if not any(c.startup_probe or c.liveness_probe or c.readiness_probe for c in pod.all_containers):
        return pod

    def bare(container: Container) -> Container:
        return changed(container, startup_probe=None, liveness_probe=None, readiness_probe=None)

    inits = tuple(map(bare, pod.inits)) or None
    spec = changed(pod.spec, containers=tuple(map(bare, pod.spec.containers)), init_containers=inits)
    return changed(pod, spec=spec)
