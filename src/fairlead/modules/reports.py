"""A module's state as the kubelet understands it: the run that a provider reports, and the pod's own conditions.

Pure; used by `modules.provider`. The table is that of docs/modules.md.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from fairlead.model.times import parse_time_or_none
from fairlead.modules.names import INSTALLED, READY
from fairlead.modules.spec import ACTIVATED, BROKEN, DEACTIVATED, RESOLVED, STOPPED, Module, ModuleState
from fairlead.nodes.provider import PodCondition, RunPhase, RunReport
from fairlead.nodes.spec import ContainerStatus, KubeletPod

CREATING = "ModuleCreating"
INSTALLING = "ModuleInstalling"
BACK_OFF = "ModuleInstallBackOff"
FAILED = "InstallFailed"
"""Of a pod that is not tried again."""
KEPT = "ModuleKept"
"""Of a pod that has failed by its policy: its other modules stay on the base until it is deleted."""
LOST = "ModuleLost"
CONFLICT = "ModuleIdentityConflict"
MISMATCH = "IdentityMismatch"
UNREACHABLE = "BaseUnreachable"
STOPPING = "BaseStopping"
SUPERSEDED = "Deactivated"
UNHEALTHY = "ProbeFailed"


def run_id(ip: str, module: Module) -> str:
    return f"arklet://{ip}:{module.key}"


def run_report(state: ModuleState, module: Module, ip: str, attempt: int, now: datetime) -> RunReport:
    """What a base's word on the module means for its container."""
    at = changed_at(state) or now
    reported = RunReport(attempt, RunPhase.WAITING, reason=CREATING, id=run_id(ip, module))
    match state.state.upper():
        case word if word in (ACTIVATED, DEACTIVATED):
            is_active = word == ACTIVATED
            return RunReport(
                attempt,
                RunPhase.RUNNING,
                started_at=at,
                reason="" if is_active else SUPERSEDED,
                id=reported.id,
                is_ready=is_active,
            )
        case word if word == RESOLVED:
            return waiting(reported, state.reason or INSTALLING, state.message)
        case word if word == BROKEN:
            return waiting(reported, BACK_OFF, state.message)
        case word if word == STOPPED:
            return waiting(reported, LOST, state.message or "the module is not on its base any more")
        case _:
            return reported


def waiting(run: RunReport, reason: str, message: str = "") -> RunReport:
    return RunReport(run.attempt, RunPhase.WAITING, reason=reason, message=message, id=run.id)


def is_out_of_memory(run: RunReport) -> bool:
    """A JVM without metaspace, or a Python base without memory for modules."""
    is_failed = run.reason == BACK_OFF
    return is_failed and ("OutOfMemoryError: Metaspace" in run.message or "MemoryError" in run.message)


def changed_at(state: ModuleState) -> datetime | None:
    """None where the base did not say, or says a time no calendar has."""
    try:
        return datetime.fromtimestamp(state.changed_ms / 1000, UTC) if state.changed_ms else None
    except (OverflowError, ValueError, OSError):
        return None


def is_newer(pod: KubeletPod, state: ModuleState) -> bool:
    """Whether the base's word is later than what the pod's status says of that container."""
    statuses = {status.name: status for status in pod.status.container_statuses or ()}
    shown_at = _status_time(pod, statuses.get(state.name))
    at = changed_at(state)
    return shown_at is None or at is None or at > shown_at


def _status_time(pod: KubeletPod, status: ContainerStatus | None) -> datetime | None:
    if status is None:
        return None
    if status.state.running is not None:
        return parse_time_or_none(status.state.running.started_at)
    if status.state.terminated is not None:
        return parse_time_or_none(status.state.terminated.finished_at)
    if status.state.waiting is None:
        return None
    ready = next((each for each in pod.status.conditions or () if each.type == "Ready"), None)
    return parse_time_or_none(ready.last_transition_time) if ready is not None else None


_REASONS = {
    CREATING: "Scheduled",
    INSTALLING: "Installing",
    LOST: "Lost",
}


def _is_there(run: RunReport) -> bool:
    return run.phase is RunPhase.RUNNING or run.reason == KEPT


def pod_conditions(runs: Mapping[str, RunReport], containers: Iterable[str]) -> tuple[PodCondition, ...]:
    """Whether every module is installed, and whether every one serves."""
    names = list(containers)
    absent = [name for name in names if name not in runs or not _is_there(runs[name])]
    if absent:
        first = runs.get(absent[0])
        if first is not None and first.phase is RunPhase.EXITED:
            reason = "Uninstalled" if first.exit_code == 0 else "InstallFailed"
        else:
            reason = _REASONS.get(first.reason if first is not None else CREATING, "InstallFailed")
        message = f"not installed: {', '.join(absent)}"
        installed = PodCondition(INSTALLED, False, reason, message)
        return installed, PodCondition(READY, False, "NotInstalled", message)
    unready = [name for name in names if not runs[name].is_ready]
    installed = PodCondition(INSTALLED, True, "Installed")
    if not unready:
        return installed, PodCondition(READY, True, "Ready")
    reason = {SUPERSEDED: "Superseded", STOPPING: STOPPING}.get(runs[unready[0]].reason, UNHEALTHY)
    return installed, PodCondition(READY, False, reason, f"not ready: {', '.join(unready)}")
