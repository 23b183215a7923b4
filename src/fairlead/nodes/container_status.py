"""The container statuses of a pod, and the events of containers that have begun to wait."""

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
    record: ContainerRecord,
    run: RunReport | None,
    pod: KubeletPod,
    policy: str,
    is_stopping: bool,
    waiting: Waiting,
) -> tuple[ContainerState, ContainerState]:
    """The present state and the one before."""
    before = ContainerState(terminated=record.last) if record.last else ContainerState()
    if record.problem is not None and not record.is_ordered:
        return ContainerState(waiting=record.problem), before
    if record.ended is not None:
        if is_stopping or not restarts(record, policy):
            return ContainerState(terminated=record.ended), before
        wait_s = 0 if record.is_to_restart or is_forgotten(record) else round(record.backoff_s)
        note = (
            f"back-off {wait_s}s restarting failed container={container.name} "
            f"pod={pod.metadata.name}_{pod.metadata.namespace}({pod.uid})"
        )
        crashed = Waiting(reason="CrashLoopBackOff", message=note)
        return ContainerState(waiting=crashed), ContainerState(terminated=record.ended)
    if not record.is_ordered:
        return ContainerState(waiting=waiting), before
    if run is not None and run.attempt == record.attempt:
        if run.phase is RunPhase.RUNNING:
            started = Running(started_at=rfc3339(record.started_at) if record.started_at else None)
            return ContainerState(running=started), before
        if run.reason:
            return ContainerState(waiting=Waiting(reason=run.reason, message=run.message)), before
    return ContainerState(waiting=CREATING if waiting is INITIALIZING else waiting), before


def _status(
    container: Container,
    record: ContainerRecord,
    run: RunReport | None,
    state: ContainerState,
    before: ContainerState,
    ready: bool,
) -> ContainerStatus:
    run_id = run.id if run is not None and run.attempt == record.attempt else ""
    if not run_id and state.terminated is not None:
        run_id = state.terminated.container_id
    # While the old one runs, a new image in the spec is not here yet: whoever comes after us must know.
    image = record.image or container.image
    return ContainerStatus(
        name=container.name,
        state=state,
        last_state=before,
        ready=ready,
        started=state.running is not None and health.has_started(container, record.tallies),
        restart_count=record.attempt,
        image=image,
        image_id=image if run_id else "",
        container_id=run_id,
    )


def main_status(
    container: Container,
    record: ContainerRecord,
    run: RunReport | None,
    pod: KubeletPod,
    is_stopping: bool,
    waiting: Waiting,
) -> ContainerStatus:
    state, before = _state(container, record, run, pod, policy_of(pod, container), is_stopping, waiting)
    can_serve = run is None or run.is_ready
    ready = state.running is not None and can_serve and health.is_ready(container, record.tallies)
    return _status(container, record, run, state, before, ready)


def init_status(
    container: Container, record: ContainerRecord, run: RunReport | None, pod: KubeletPod, is_stopping: bool
) -> ContainerStatus:
    if container.is_sidecar:
        return main_status(container, record, run, pod, is_stopping, INITIALIZING)
    state, before = _state(container, record, run, pod, init_policy(pod, container), is_stopping, INITIALIZING)
    is_done = state.terminated is not None and state.terminated.exit_code == 0
    return _status(container, record, run, state, before, is_done)


def new_waits(pod: KubeletPod, statuses: Iterable[ContainerStatus]) -> list[PodEvent]:
    """A warning for every container that has begun to wait for something the user should know of."""
    known = {
        (status.name, status.state.waiting.reason)
        for status in pod.status.all_container_statuses
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
            note = f'Failed to pull image "{status.image}": {wait.message}'
            events.append(PodEvent("Failed", note, True, status.name))
            events.append(PodEvent("Failed", f"Error: {wait.reason}", True, status.name))
        else:
            events.append(PodEvent("Failed", f"Error: {wait.message}", True, status.name))
    return events
