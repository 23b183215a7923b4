"""The life of a pod on a node as a pure plan: what is seen, what the provider reports, what we remember, and now.

Called by `nodes.controller` for one pod at a time. The answer says which runs the provider shall have, what the
status is, which probes are due and when to look again. Knows no network, no clock and no provider.

    wanted ──order──▶ ordered ──report: running──▶ running ──report: exited──▶ ended
      ▲                                                                           │
      └────────────── restart policy, after back-off: attempt + 1 ◀───────────────┘
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from msgspec.structs import replace as changed

from fairlead.nodes import health
from fairlead.nodes.health import Check, Tally
from fairlead.nodes.provider import PodReport, RunPhase, RunReport, Traits
from fairlead.nodes.spec import (
    Container,
    ContainerState,
    ContainerStatus,
    Pod,
    PodStatus,
    Probe,
    Running,
    Terminated,
    Waiting,
)
from fairlead.nodes.status import Standing, pod_status
from fairlead.nodes.times import moment, stamp

# A container that ends is started again at once; from the second time on it waits, longer each time.
BACKOFF_FIRST_S = 10.0
BACKOFF_MOST_S = 300.0
# After this long without a restart the waiting starts from the beginning.
BACKOFF_FORGOTTEN_S = 600.0
# How long a container whose configuration is incomplete waits before it is tried again.
PROBLEM_RETRY_S = 5.0

CREATING = Waiting(reason="ContainerCreating")
INITIALIZING = Waiting(reason="PodInitializing")
KILLED = 137


@dataclass(frozen=True, slots=True)
class Life:
    """What we remember of one container; a new attempt keeps its name, its back-off and how it last ended."""

    attempt: int = 0
    is_ordered: bool = False
    image: str = ""
    started_at: datetime | None = None
    ended: Terminated | None = None
    ended_at: datetime | None = None
    last: Terminated | None = None
    backoff_s: float = 0.0
    backed_off_at: datetime | None = None
    tallies: Mapping[Check, Tally] = field(default_factory=dict)
    kill_at: datetime | None = None
    is_to_restart: bool = False
    """It was us who ended it: it comes back whatever the policy says of its exit code."""
    problem: Waiting | None = None
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What we remember of one pod. All of it that must outlive us is in the pod's status."""

    started_at: datetime
    lives: Mapping[str, Life] = field(default_factory=dict)
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
class Said:
    """An event about the pod."""

    reason: str
    note: str
    warning: bool = False
    container: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    memory: Memory
    orders: tuple[Order, ...]
    status: PodStatus
    is_over: bool
    due: tuple[DueProbe, ...] = ()
    said: tuple[Said, ...] = ()
    wake_at: datetime | None = None


# --- remembering ------------------------------------------------------------------------------------------


def recall(pod: Pod, now: datetime) -> Memory:
    """What the pod's status tells of its life before this process: attempts, ends, and what was running."""
    lives = {}
    images = {container.name: container.image for container in pod.all_containers}
    for status in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())):
        ended = status.state.terminated
        has_begun = ended is not None or status.state.running is not None
        before = status.last_state.terminated
        is_between = status.state.waiting is not None and before is not None
        if is_between:
            # It was waiting to be started again, or just being started: the attempt counted is not running.
            ended = before
        lives[status.name] = Life(
            attempt=status.restart_count,
            is_ordered=has_begun or is_between,
            image=status.image if has_begun and status.image else images.get(status.name, ""),
            started_at=moment(status.state.running.started_at) if status.state.running else None,
            ended=ended,
            ended_at=(moment(ended.finished_at) or now) if ended else None,
            last=None if is_between else before,
        )
    return Memory(started_at=moment(pod.status.start_time) or now, lives=lives)


def with_problems(memory: Memory, problems: Mapping[str, Waiting], now: datetime) -> Memory:
    """These containers could not be started for want of something; they are tried again in a while."""
    retry_at = now + timedelta(seconds=PROBLEM_RETRY_S)
    lives = dict(memory.lives)
    for name, problem in problems.items():
        lives[name] = replace(lives.get(name, Life()), is_ordered=False, problem=problem, retry_at=retry_at)
    return replace(memory, lives=lives)


def after_probe(
    pod: Pod, memory: Memory, due: DueProbe, ok: bool, output: str, now: datetime
) -> tuple[Memory, tuple[Said, ...]]:
    """The memory once a probe's result is in; a result about an attempt that is over changes nothing."""
    life, container = memory.lives.get(due.container), pod.container(due.container)
    if life is None or container is None or life.attempt != due.attempt or life.ended is not None:
        return memory, ()
    tally = life.tallies.get(due.check)
    if tally is None:
        return memory, ()
    tally = health.counted(tally, due.probe, ok, now)
    life = replace(life, tallies={**life.tallies, due.check: tally})
    said = []
    if not ok:
        said.append(Said("Unhealthy", f"{due.check} probe failed: {output}", True, due.container))
    is_fatal = tally.verdict is False and due.check is not Check.READINESS
    if is_fatal and life.kill_at is None:
        grace_s = due.probe.termination_grace_period_seconds
        grace_s = pod.grace_s if grace_s is None else grace_s
        life = replace(life, kill_at=now + timedelta(seconds=grace_s), is_to_restart=False)
        note = f"Container {due.container} failed {due.check.lower()} probe, will be restarted"
        said.append(Said("Killing", note, container=due.container))
    return replace(memory, lives={**memory.lives, due.container: life}), tuple(said)


# --- the plan ---------------------------------------------------------------------------------------------


def plan_pod(
    pod: Pod, report: PodReport | None, memory: Memory, *, now: datetime, node_ip: str, traits: Traits | None = None
) -> Plan:
    traits = traits or Traits()
    if not traits.probes:
        pod = _without_probes(pod)
    said: list[Said] = []
    wakes: list[datetime] = []
    runs = report.runs if report is not None else {}
    lives = {
        container.name: _witnessed(
            memory.lives.get(container.name, Life()), runs.get(container.name), container, pod, traits, now, said
        )
        for container in pod.all_containers
    }

    # 1. Is the pod to end as a whole?
    memory = _with_end(pod, memory, now, wakes)
    is_stopping = memory.kill_at is not None or pod.is_finished

    # 2. Init containers, one after the other; sidecars among them stay. Once the containers proper have begun, a
    # sidecar that is down for a while does not make the pod uninitialized again.
    has_begun = any(lives[container.name].is_ordered for container in pod.spec.containers)
    is_done = has_begun and all(_is_done(lives[main.name], _policy(pod, main)) for main in pod.spec.containers)
    is_initialized, has_failed = has_begun or not pod.inits, False
    for container in pod.inits:
        if is_stopping or is_done:
            break
        policy = _init_policy(pod, container)
        life = lives[container.name] = _moved_on(container, lives[container.name], policy, now, wakes)
        if container.is_sidecar:
            passed = _is_running(life, runs.get(container.name)) and health.has_started(container, dict(life.tallies))
        else:
            passed = life.ended is not None and life.ended.exit_code == 0
            has_failed = has_failed or (policy == "Never" and life.ended is not None and not passed)
        if not passed and not has_begun:
            break
    else:
        is_initialized = is_initialized or not is_stopping

    # 3. The containers proper, all at once.
    if is_initialized and not is_stopping:
        for container in pod.spec.containers:
            policy = _policy(pod, container)
            lives[container.name] = _moved_on(container, lives[container.name], policy, now, wakes)
    mains_done = is_stopping or has_failed or is_done

    # 4. What has to end now: everything of a pod that ends, sidecars last and in reverse.
    if mains_done:
        before, lives = lives, _stopped(pod, lives, memory.kill_at, now)
        if traits.tells_starts:
            # What never ran, and waits for its image perhaps, is not killed either.
            begun = [name for name, life in lives.items() if life.kill_at and not before[name].kill_at]
            said += [
                Said("Killing", f"Stopping container {name}", container=name)
                for name in begun
                if _is_running(lives[name], runs.get(name))
            ]
    orders = tuple(
        Order(name, life.attempt, life.kill_at) for name, life in lives.items() if life.is_ordered and not life.ended
    )
    wakes += [order.kill_at for order in orders if order.kill_at is not None and order.kill_at > now]
    is_over = mains_done and not orders

    # 5. Probes of what runs.
    due: list[DueProbe] = []
    for container in (*(init for init in pod.inits if init.is_sidecar), *pod.spec.containers):
        life = lives[container.name]
        if _is_running(life, runs.get(container.name)):
            lives[container.name], found = _probed(container, life, is_stopping or life.kill_at is not None, now)
            due += [probe for probe, at in found if at <= now]
            wakes += [at for _, at in found if at > now]

    # 6. What the status says.
    memory = replace(memory, lives=lives)
    inits = [
        _init_status(container, lives[container.name], runs.get(container.name), pod, mains_done)
        for container in pod.inits
    ]
    waiting = CREATING if is_initialized or not pod.inits else INITIALIZING
    mains = [
        _main_status(container, lives[container.name], runs.get(container.name), pod, mains_done, waiting)
        for container in pod.spec.containers
    ]
    standing = Standing(
        pod_ip=report.ip if report is not None else pod.status.pod_ip,
        node_ip=node_ip,
        started_at=memory.started_at,
        is_initialized=is_initialized,
        is_over=is_over,
        reason=memory.failure.reason if memory.failure else "",
        message=memory.failure.message if memory.failure else "",
    )
    if pod.is_finished and not orders:
        status = pod.status  # what was said of a finished pod, by us or by who evicted it, stands
    else:
        status = pod_status(pod, inits, mains, standing, now)
    said += _new_waits(pod, (*inits, *mains))
    return Plan(
        memory=memory,
        orders=orders,
        status=status,
        is_over=is_over and pod.is_terminating,
        due=tuple(due),
        said=tuple(said),
        wake_at=min(wakes, default=None),
    )


def _witnessed(
    life: Life, run: RunReport | None, container: Container, pod: Pod, traits: Traits, now: datetime, said: list[Said]
) -> Life:
    """The life after a look at what the provider reports."""
    if not life.is_ordered or life.ended is not None:
        return life
    if run is None or run.attempt != life.attempt:
        # Told to run it and knows nothing of it: what ran was lost, with our last process or with the provider's.
        ended = Terminated(
            exit_code=KILLED,
            reason="ContainerStatusUnknown",
            message="The container could not be located when its node came back",
            started_at=stamp(life.started_at) if life.started_at else None,
            finished_at=stamp(now),
        )
        return replace(life, ended=ended, ended_at=now)
    if run.phase is RunPhase.WAITING:
        if life.image and container.image != life.image and life.kill_at is None:
            # It waits for something the old image lacked, perhaps: another attempt, with the new one.
            return replace(life, attempt=life.attempt + 1, image=container.image)
        return life
    if life.started_at is None and run.started_at is None and run.reason == "StartError":
        said.append(Said("Failed", f"Error: {run.message}", True, container.name))
    elif traits.tells_starts and life.started_at is None and run.started_at is not None:
        said.append(Said("Started", "Container started", container=container.name))
    life = replace(life, started_at=run.started_at or life.started_at or now)
    if run.phase is RunPhase.RUNNING:
        if life.image and container.image != life.image and life.kill_at is None:
            note = f"Container {container.name} definition changed, will be restarted"
            said.append(Said("Killing", note, container=container.name))
            return replace(life, kill_at=now + timedelta(seconds=pod.grace_s), is_to_restart=True)
        return life
    ended_at = run.finished_at or now
    ended = Terminated(
        exit_code=run.exit_code,
        signal=run.signal,
        reason=run.reason or ("Completed" if run.exit_code == 0 else "Error"),
        message=run.message,
        started_at=stamp(run.started_at) if run.started_at else None,
        finished_at=stamp(ended_at),
        container_id=run.id,
    )
    return replace(life, ended=ended, ended_at=ended_at)


def _with_end(pod: Pod, memory: Memory, now: datetime, wakes: list[datetime]) -> Memory:
    if pod.is_terminating:
        grace_s = pod.metadata.deletion_grace_period_seconds
        kill_at = now + timedelta(seconds=pod.grace_s if grace_s is None else grace_s)
        # A second deletion may shorten the grace, never lengthen it.
        return replace(memory, kill_at=min(memory.kill_at or kill_at, kill_at))
    deadline_s = pod.spec.active_deadline_seconds
    if deadline_s is not None and memory.kill_at is None and not pod.is_finished:
        at = memory.started_at + timedelta(seconds=deadline_s)
        if now >= at:
            failure = Waiting(
                reason="DeadlineExceeded",
                message="Pod was active on the node longer than the specified deadline",
            )
            return replace(memory, kill_at=now + timedelta(seconds=pod.grace_s), failure=failure)
        wakes.append(at)
    return memory


def _init_policy(pod: Pod, container: Container) -> str:
    if container.is_sidecar:
        return "Always"
    return "Never" if pod.spec.restart_policy == "Never" else "OnFailure"


def _policy(pod: Pod, container: Container) -> str:
    return container.restart_policy or pod.spec.restart_policy


def _is_done(life: Life, policy: str) -> bool:
    return life.ended is not None and not _restarts(life, policy)


def _restarts(life: Life, policy: str) -> bool:
    if life.ended is None or life.is_to_restart:
        return life.ended is not None
    return policy == "Always" or (policy == "OnFailure" and life.ended.exit_code != 0)


def _moved_on(container: Container, life: Life, policy: str, now: datetime, wakes: list[datetime]) -> Life:
    """The life of a container that is wanted: begun, begun again, or waiting for that."""
    if life.problem is not None and life.retry_at is not None and life.retry_at > now:
        wakes.append(life.retry_at)
        return life
    if life.ended is not None:
        if not _restarts(life, policy):
            return life
        due_at = _restart_at(life)
        if due_at > now:
            wakes.append(due_at)
            return life
        return _again(life, container, now)
    if life.is_ordered:
        return life
    return replace(life, is_ordered=True, image=container.image, problem=None, retry_at=None)


def _restart_at(life: Life) -> datetime:
    assert life.ended_at is not None
    if life.is_to_restart or _is_forgotten(life):
        return life.ended_at
    return life.ended_at + timedelta(seconds=life.backoff_s)


def _is_forgotten(life: Life) -> bool:
    if life.backed_off_at is None or life.ended_at is None:
        return True
    return (life.ended_at - life.backed_off_at).total_seconds() > BACKOFF_FORGOTTEN_S


def _again(life: Life, container: Container, now: datetime) -> Life:
    backoff_s = BACKOFF_FIRST_S if _is_forgotten(life) else min(BACKOFF_MOST_S, life.backoff_s * 2)
    return Life(
        attempt=life.attempt + 1,
        is_ordered=True,
        image=container.image,
        last=life.ended,
        backoff_s=backoff_s,
        backed_off_at=now,
    )


def _stopped(pod: Pod, lives: Mapping[str, Life], kill_at: datetime | None, now: datetime) -> dict[str, Life]:
    deadline = kill_at or now + timedelta(seconds=pod.grace_s)
    stopped = dict(lives)

    def stop(container: Container) -> None:
        life = stopped[container.name]
        if life.is_ordered and life.ended is None and (life.kill_at is None or life.kill_at > deadline):
            stopped[container.name] = replace(life, kill_at=deadline)

    sidecars = [container for container in pod.inits if container.is_sidecar]
    others = [container for container in pod.all_containers if container not in sidecars]
    for container in others:
        stop(container)
    for container in reversed(sidecars):
        if now < deadline and _still_run(stopped, others):
            break
        stop(container)
        others.append(container)
    return stopped


def _still_run(lives: Mapping[str, Life], containers: Iterable[Container]) -> bool:
    return any(lives[container.name].is_ordered and lives[container.name].ended is None for container in containers)


def _probed(
    container: Container, life: Life, is_stopping: bool, now: datetime
) -> tuple[Life, list[tuple[DueProbe, datetime]]]:
    tallies = dict(life.tallies)
    found = []
    for check, probe in health.in_force(container, tallies, is_stopping=is_stopping):
        tally = tallies.get(check)
        if tally is None:
            tally = tallies[check] = health.first_tally(probe, life.started_at or now, now)
        found.append((DueProbe(container.name, life.attempt, check, probe), tally.next_at))
    return (replace(life, tallies=tallies) if tallies != life.tallies else life), found


def _is_running(life: Life, run: RunReport | None) -> bool:
    is_ours = run is not None and run.attempt == life.attempt and run.phase is RunPhase.RUNNING
    return is_ours and life.is_ordered and life.ended is None


# --- container statuses -----------------------------------------------------------------------------------


def _state(
    container: Container, life: Life, run: RunReport | None, pod: Pod, policy: str, is_stopping: bool, waiting: Waiting
) -> tuple[ContainerState, ContainerState]:
    """The present state and the one before."""
    before = ContainerState(terminated=life.last) if life.last else ContainerState()
    if life.problem is not None and not life.is_ordered:
        return ContainerState(waiting=life.problem), before
    if life.ended is not None:
        if is_stopping or not _restarts(life, policy):
            return ContainerState(terminated=life.ended), before
        wait_s = 0 if life.is_to_restart or _is_forgotten(life) else round(life.backoff_s)
        note = (
            f"back-off {wait_s}s restarting failed container={container.name} "
            f"pod={pod.metadata.name}_{pod.metadata.namespace}({pod.uid})"
        )
        crashed = Waiting(reason="CrashLoopBackOff", message=note)
        return ContainerState(waiting=crashed), ContainerState(terminated=life.ended)
    if not life.is_ordered:
        return ContainerState(waiting=waiting), before
    if run is not None and run.attempt == life.attempt:
        if run.phase is RunPhase.RUNNING:
            started = Running(started_at=stamp(life.started_at) if life.started_at else None)
            return ContainerState(running=started), before
        if run.reason:
            return ContainerState(waiting=Waiting(reason=run.reason, message=run.message)), before
    return ContainerState(waiting=CREATING if waiting is INITIALIZING else waiting), before


def _status(
    container: Container, life: Life, run: RunReport | None, state: ContainerState, before: ContainerState, ready: bool
) -> ContainerStatus:
    run_id = run.id if run is not None and run.attempt == life.attempt else ""
    if not run_id and state.terminated is not None:
        run_id = state.terminated.container_id
    image = container.image
    return ContainerStatus(
        name=container.name,
        state=state,
        last_state=before,
        ready=ready,
        started=state.running is not None and health.has_started(container, dict(life.tallies)),
        restart_count=life.attempt,
        image=image,
        image_id=image if run_id else "",
        container_id=run_id,
    )


def _main_status(
    container: Container,
    life: Life,
    run: RunReport | None,
    pod: Pod,
    is_stopping: bool,
    waiting: Waiting,
) -> ContainerStatus:
    state, before = _state(container, life, run, pod, _policy(pod, container), is_stopping, waiting)
    ready = state.running is not None and health.is_ready(container, dict(life.tallies))
    return _status(container, life, run, state, before, ready)


def _init_status(
    container: Container, life: Life, run: RunReport | None, pod: Pod, is_stopping: bool
) -> ContainerStatus:
    if container.is_sidecar:
        return _main_status(container, life, run, pod, is_stopping, INITIALIZING)
    state, before = _state(container, life, run, pod, _init_policy(pod, container), is_stopping, INITIALIZING)
    is_done = state.terminated is not None and state.terminated.exit_code == 0
    return _status(container, life, run, state, before, is_done)


def _without_probes(pod: Pod) -> Pod:
    if not any(c.startup_probe or c.liveness_probe or c.readiness_probe for c in pod.all_containers):
        return pod

    def bare(container: Container) -> Container:
        return changed(container, startup_probe=None, liveness_probe=None, readiness_probe=None)

    inits = tuple(map(bare, pod.inits)) or None
    spec = changed(pod.spec, containers=tuple(map(bare, pod.spec.containers)), init_containers=inits)
    return changed(pod, spec=spec)


ORDINARY_WAITS = frozenset({"ContainerCreating", "PodInitializing", ""})


def _new_waits(pod: Pod, statuses: Iterable[ContainerStatus]) -> list[Said]:
    """A warning for every container that has begun to wait for something the user should know of."""
    told = {
        (status.name, status.state.waiting.reason)
        for status in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
        if status.state.waiting
    }
    said = []
    for status in statuses:
        wait = status.state.waiting
        if wait is None or wait.reason in ORDINARY_WAITS or (status.name, wait.reason) in told:
            continue
        if wait.reason == "CrashLoopBackOff":
            whose = f"{pod.metadata.name}_{pod.metadata.namespace}({pod.uid})"
            note = f"Back-off restarting failed container {status.name} in pod {whose}"
            said.append(Said("BackOff", note, True, status.name))
        elif wait.reason == "ErrImagePull":
            said.append(Said("Failed", f'Failed to pull image "{status.image}": {wait.message}', True, status.name))
            said.append(Said("Failed", f"Error: {wait.reason}", True, status.name))
        else:
            said.append(Said("Failed", f"Error: {wait.message}", True, status.name))
    return said
