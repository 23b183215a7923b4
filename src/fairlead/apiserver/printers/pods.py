"""A pod's row: its status by its containers, and their restarts."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.printers.texts import NONE, age, born


@dataclass(slots=True)
class _Containers:
    """The containers of a pod, summed up."""

    reason: str
    total: int
    ready: int = 0
    restarts: int = 0
    restarted_at: str = ""

    def restarted(self, status: JsonObject) -> None:
        self.restarts += status.get("restartCount", 0)
        ended = (status.get("lastState") or {}).get("terminated") or {}
        self.restarted_at = max(self.restarted_at, ended.get("finishedAt") or "")


def pod(thing: JsonObject, now: datetime) -> list[Any]:
    spec, status, metadata = thing["spec"], thing.get("status") or {}, thing["metadata"]
    containers = _Containers(_reason(status), len(spec.get("containers") or ()))
    sidecars = _Containers("", 0)
    is_initializing = _begin(containers, sidecars, spec, status)
    if not is_initializing or _is_true(status, "Initialized"):
        # Restarts of completed init containers no longer count.
        containers.restarts, containers.restarted_at = sidecars.restarts, sidecars.restarted_at
        _run(containers, status)
    if metadata.get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            containers.reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            containers.reason = "Terminating"
    restarts = str(containers.restarts)
    if containers.restarts and containers.restarted_at:
        restarts = f"{containers.restarts} ({age(containers.restarted_at, now)} ago)"
    gates = [each["conditionType"] for each in spec.get("readinessGates") or ()]
    open_gates = f"{sum(_is_true(status, gate) for gate in gates)}/{len(gates)}" if gates else NONE
    return [
        metadata["name"], f"{containers.ready}/{containers.total}", containers.reason, restarts, born(thing, now),
        status.get("podIP") or NONE, spec.get("nodeName") or NONE, status.get("nominatedNodeName") or NONE, open_gates,
    ]  # fmt: skip


def _is_true(status: JsonObject, condition: str) -> bool:
    return any(each["type"] == condition and each["status"] == "True" for each in status.get("conditions") or ())


def _reason(status: JsonObject) -> str:
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            return "SchedulingGated"
    return str(status.get("reason") or status.get("phase", ""))


def _begin(containers: _Containers, sidecars: _Containers, spec: JsonObject, status: JsonObject) -> bool:
    """Count init containers; true while one is unfinished or failed."""
    always = {each["name"] for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"}
    for number, each in enumerate(status.get("initContainerStatuses") or ()):
        containers.restarted(each)
        state = each.get("state") or {}
        if each["name"] in always:
            containers.total += 1
            sidecars.restarted(each)
            if each.get("started"):
                containers.ready += bool(each.get("ready"))
                continue
        if "terminated" in state and state["terminated"].get("exitCode", 0) == 0:
            continue
        if "terminated" in state:
            ended = state["terminated"]
            containers.reason = f"Init:{ended.get('reason') or 'ExitCode:' + str(ended['exitCode'])}"
        elif state.get("waiting", {}).get("reason") and state["waiting"]["reason"] != "PodInitializing":
            containers.reason = f"Init:{state['waiting']['reason']}"
        else:
            containers.reason = f"Init:{number}/{len(spec.get('initContainers') or ())}"
        return True
    return False


def _run(containers: _Containers, status: JsonObject) -> None:
    """Count regular containers; the first one waiting or terminated gives the reason."""
    is_running = False
    for each in reversed(status.get("containerStatuses") or ()):
        containers.restarted(each)
        state = each.get("state") or {}
        if state.get("waiting", {}).get("reason"):
            containers.reason = state["waiting"]["reason"]
        elif state.get("terminated"):
            ended = state["terminated"]
            signal = ended.get("signal")
            containers.reason = ended.get("reason") or (
                f"Signal:{signal}" if signal else f"ExitCode:{ended.get('exitCode', 0)}"
            )
        elif each.get("ready") and "running" in state:
            is_running = True
            containers.ready += 1
    if containers.reason == "Completed" and is_running:
        containers.reason = "Running" if _is_true(status, "Ready") else "NotReady"
