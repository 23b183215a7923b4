"""What a pod's status says of each container, and what is told of one that has begun to wait."""

from collections.abc import Iterable

from fairlead.model.times import rfc3339
from fairlead.nodes import health
from fairlead.nodes.container_state import ContainerRecord, PodEvent, init_policy, is_forgotten, policy_of, restarts
from fairlead.nodes.provider import RunPhase, RunReport
from fairlead.nodes.spec import Container, ContainerState, ContainerStatus, KubeletPod, Running, Waiting

CREATING = Waiting(reason="ContainerCreating")
INITIALIZING = Waiting(reason="PodInitializing")
ORDINARY_WAITS = frozenset({CREATING.reason, INITIALIZING.reason, ""})


def _state(
    container: Container,
    life: ContainerRecord,
    run: RunReport | None,
    pod: KubeletPod,
    policy: str,
    is_stopping: bool,
    waiting: Waiting,
) -> tuple[ContainerState, ContainerState]:
    """The present state and the one before."""
    before = ContainerState(terminated=life.last) if life.last else ContainerState()
    if life.problem is not None and not life.is_ordered:
        return ContainerState(waiting=life.problem), before
    if life.ended is not None:
        if is_stopping or not restarts(life, policy):
            return ContainerState(terminated=life.ended), before
        wait_s = 0 if life.is_to_restart or is_forgotten(life) else round(life.backoff_s)
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
            started = Running(started_at=rfc3339(life.started_at) if life.started_at else None)
            return ContainerState(running=started), before
        if run.reason:
            return ContainerState(waiting=Waiting(reason=run.reason, message=run.message)), before
    return ContainerState(waiting=CREATING if waiting is INITIALIZING else waiting), before


def _status(
    container: Container,
    life: ContainerRecord,
    run: RunReport | None,
    state: ContainerState,
    before: ContainerState,
    ready: bool,
) -> ContainerStatus:
    run_id = run.id if run is not None and run.attempt == life.attempt else ""
    if not run_id and state.terminated is not None:
        run_id = state.terminated.container_id
    # While the old one runs, a new image in the spec is not here yet: whoever comes after us must know.
    image = life.image or container.image
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


def main_status(
    container: Container,
    life: ContainerRecord,
    run: RunReport | None,
    pod: KubeletPod,
    is_stopping: bool,
    waiting: Waiting,
) -> ContainerStatus:
    state, before = _state(container, life, run, pod, policy_of(pod, container), is_stopping, waiting)
    can_serve = run is None or run.is_ready
    ready = state.running is not None and can_serve and health.is_ready(container, dict(life.tallies))
    return _status(container, life, run, state, before, ready)


def init_status(
    container: Container, life: ContainerRecord, run: RunReport | None, pod: KubeletPod, is_stopping: bool
) -> ContainerStatus:
    if container.is_sidecar:
        return main_status(container, life, run, pod, is_stopping, INITIALIZING)
    state, before = _state(container, life, run, pod, init_policy(pod, container), is_stopping, INITIALIZING)
    is_done = state.terminated is not None and state.terminated.exit_code == 0
    return _status(container, life, run, state, before, is_done)


def new_waits(pod: KubeletPod, statuses: Iterable[ContainerStatus]) -> list[PodEvent]:
    """A warning for every container that has begun to wait for something the user should know of."""
    known = {
        (status.name, status.state.waiting.reason)
        for status in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
        if status.state.waiting
    }
    events = []
    for status in statuses:
        wait = status.state.waiting
        if wait is None or wait.reason in ORDINARY_WAITS or (status.name, wait.reason) in known:
            continue
        if not wait.message:
            continue  # nothing is wrong, as far as anybody says
        if wait.reason == "CrashLoopBackOff":
            whose = f"{pod.metadata.name}_{pod.metadata.namespace}({pod.uid})"
            note = f"Back-off restarting failed container {status.name} in pod {whose}"
            events.append(PodEvent("BackOff", note, True, status.name))
        elif wait.reason == "ErrImagePull":
            events.append(
                PodEvent("Failed", f'Failed to pull image "{status.image}": {wait.message}', True, status.name)
            )
            events.append(PodEvent("Failed", f"Error: {wait.reason}", True, status.name))
        else:
            events.append(PodEvent("Failed", f"Error: {wait.message}", True, status.name))
    return events
