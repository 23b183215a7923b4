"""Carries out the healing of the bases that this replica serves: observe, plan, write the step, act.

Its state is on the nodes. Every write and command goes through the fence of the member lease, those to API server A
too. Called by `modules.bases` after each poll, and run beside it.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
import structlog

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ClusterError, Forbidden
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.recorder import Recorder
from fairlead.cluster.writer import Outcome, Writer
from fairlead.model.intents import Delete, Evict, Patch, event
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiObject, ApiStruct
from fairlead.model.node import Node
from fairlead.model.taints import Taint, Toleration
from fairlead.modules import healing
from fairlead.modules.arklet import Health
from fairlead.modules.base_pods import POD_KIND, BasePods, Sighting
from fairlead.modules.client import ArkletClient
from fairlead.modules.healing import (
    HealInput,
    HealPlan,
    HealPod,
    HealState,
    Limits,
    Pressure,
    needs_healing,
    plan_heal,
)
from fairlead.modules.heartbeats import Heartbeat
from fairlead.modules.spec import Module
from fairlead.nodes.node import NODES

log = structlog.get_logger("fairlead.modules")

TURN_S: Final = 2.0


class SecondsToleration(Toleration):
    toleration_seconds: int | None = None


class TenantSpec(ApiStruct):
    tolerations: tuple[SecondsToleration, ...] | None = None


class TenantStatus(ApiStruct):
    phase: str = ""


class Tenant(ApiObject, frozen=True):
    """A pod on a base's node, as far as its eviction goes."""

    spec: TenantSpec = TenantSpec()
    status: TenantStatus = TenantStatus()


TENANTS: Final = Kind("", "v1", "pods", "Pod", Tenant)


@dataclass(slots=True)
class Patient:
    """A base between two turns."""

    state: HealState | None
    address: tuple[str, int] | None = None
    """Where its arklet is called; None until it has been polled."""
    beat: Heartbeat = field(default_factory=Heartbeat)
    pressure: Pressure = field(default_factory=Pressure)
    level: float = 0.0
    message: str = ""
    is_exhausted: bool = False
    is_pod_leaving: bool = False
    is_released: bool = False
    task: asyncio.Task[None] | None = None


class Healer:
    def __init__(
        self,
        nodes: Mirror[Node],
        reader: Client,
        writer: Writer,
        recorder: Recorder,
        client: ArkletClient,
        pods: BasePods | None,
        limits: Limits,
        *,
        clock: Clock,
        fallback_bytes: int,
        changed: Callable[[str], None],
    ) -> None:
        """`fallback_bytes`: the memory of a base that names no limit; `changed` has a node described anew."""
        self._nodes = nodes
        self._reader = reader
        self._writer = writer
        self._recorder = recorder
        self._client = client
        self._pods = pods
        self._limits = limits
        self._clock = clock
        self._fallback_bytes = fallback_bytes
        self._changed = changed
        self._patients: dict[str, Patient] = {}

    # -- for the bases --------------------------------------------------------------------------------------

    def add(self, name: str, annotations: Mapping[str, str]) -> None:
        """A base that is served from now on, with what its node says of its healing."""
        self._patients[name] = Patient(healing.read_state(annotations.get(healing.STATE, "")))

    def observe(
        self,
        name: str,
        address: tuple[str, int],
        beat: Heartbeat,
        health: Health,
        *,
        is_exhausted: bool,
        is_pod_leaving: bool,
    ) -> None:
        """What a poll found."""
        patient = self._patients.get(name)
        if patient is None:
            return
        most = health.max_bytes or self._fallback_bytes
        patient.level = max(health.used_bytes or 0, health.committed_bytes or 0) / most if most else 0.0
        patient.pressure = patient.pressure.after(patient.level, self._limits)
        patient.address, patient.beat = address, beat
        patient.is_exhausted, patient.is_pod_leaving = is_exhausted, is_pod_leaving

    def taints(self, name: str) -> tuple[dict[str, str], ...]:
        patient = self._patients.get(name)
        return healing.taints(patient.state if patient is not None else None)

    def condition(self, name: str) -> dict[str, str]:
        patient = self._patients.get(name)
        return healing.condition(patient.state, patient.message) if patient else healing.condition(None, "")

    def annotations(self, name: str) -> dict[str, str]:
        patient = self._patients.get(name)
        return {healing.STATE: _text(patient.state)} if patient is not None and patient.state is not None else {}

    async def release(self, name: str) -> None:
        """No more of it; returns when nothing is in flight."""
        patient = self._patients.pop(name, None)
        if patient is not None:
            patient.is_released = True
            if patient.task is not None:
                await asyncio.gather(patient.task, return_exceptions=True)

    # -- turns ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._clock.sleep(TURN_S)
                for name, patient in list(self._patients.items()):
                    if self._is_due(patient):
                        patient.task = tasks.create_task(self._turn_safely(name, patient), name=f"heal {name}")

    def _is_due(self, patient: Patient) -> bool:
        """Whether there is anything to begin, to carry on or to take back: of a thousand bases hardly one."""
        is_under_way = patient.task is not None and not patient.task.done()
        if is_under_way or patient.address is None:
            return False
        is_at_rest = patient.state is None and not patient.message
        return not is_at_rest or needs_healing(patient.pressure, patient.is_exhausted, self._limits)

    async def _turn_safely(self, name: str, patient: Patient) -> None:
        try:
            await self.turn(name, patient)
        except ClusterError as problem:
            log.warning("healing waits", node=name, problem=str(problem))
        except Exception:
            log.exception("bug while healing a base", node=name)

    async def turn(self, name: str, patient: Patient) -> None:
        """One look at one base: its next step is written, or what the present one asks for is done."""
        plan = plan_heal(patient.state, await self._input(name, patient), self._limits, self._clock.now())
        if plan.state != patient.state:
            await self._write(name, patient, plan)
            return
        message = plan.message
        if not patient.is_released:
            message = await self._act(name, patient, plan) or message
        if message != patient.message:
            patient.message = message
            self._changed(name)

    async def _input(self, name: str, patient: Patient) -> HealInput:
        is_begun = patient.state is not None
        step = patient.state.step if patient.state is not None else None
        node = self._nodes.get(name) if is_begun else None
        modules: tuple[str, ...] | None = None
        if step is healing.Step.UNINSTALLING and patient.address is not None:
            states = await self._client.modules(patient.address)
            modules = tuple(state.key for state in states) if states is not None else None
        if step is healing.Step.DELETING:
            patient.is_pod_leaving = patient.is_pod_leaving or await self._is_pod_leaving(patient.beat)
        return HealInput(
            patient.pressure,
            patient.level,
            patient.is_exhausted,
            patient.beat.boot_id,
            patient.beat.pod_uid,
            healing.read_grant(node.metadata.annotations.get(healing.GRANT, "")) if node is not None else None,
            await self._tenants(name) if is_begun else (),
            modules,
            patient.is_pod_leaving,
        )

    async def _tenants(self, name: str) -> tuple[HealPod, ...]:
        pods = await self._reader.list(TENANTS, query={"fieldSelector": f"spec.nodeName={name}"})
        taint = Taint(key=healing.OVERLOAD_TAINT, value="True", effect="NoExecute")
        found = []
        for pod in pods:
            matching = [each for each in pod.spec.tolerations or () if each.tolerates(taint)]
            seconds = [each.toleration_seconds for each in matching]
            tolerates_s = None if None in seconds else float(max((each or 0 for each in seconds), default=0))
            if pod.status.phase not in ("Succeeded", "Failed"):
                metadata = pod.metadata
                is_leaving = metadata.deletion_timestamp is not None
                found.append(HealPod(metadata.namespace, metadata.name, metadata.uid, is_leaving, tolerates_s))
        return tuple(sorted(found, key=lambda each: (each.namespace, each.name)))

    async def _write(self, name: str, patient: Patient, plan: HealPlan) -> None:
        """The step is on the node, with its taint, before anything of it is done."""
        text = _text(plan.state) if plan.state is not None else None
        notes = {healing.STATE: text, **({healing.GRANT: None} if plan.state is None else {})}
        patch = Patch(kind=NODES, name=name, patch={"metadata": {"annotations": notes}})
        result = await self._writer.carry_out(patch, is_wanted=lambda: not patient.is_released)
        if not result.is_done:
            if result.error is not None:
                raise result.error
            return
        before, patient.state, patient.message = patient.state, plan.state, plan.message
        if plan.state is None:
            patient.pressure, patient.is_exhausted = Pressure(), False
        self._changed(name)
        shown = plan.state or before
        assert shown is not None
        what = f"Heal{shown.step.value}" if plan.state is not None else "HealEnded"
        log.info("healing", node=name, step=what, reason=plan.message or shown.reason)
        if isinstance(result.answer, Node):
            note = plan.message or shown.reason
            is_warning = plan.state is not None
            self._recorder.record(event(NODES, result.answer.metadata, what, note, warning=is_warning))

    async def _act(self, name: str, patient: Patient, plan: HealPlan) -> str:
        """What came of it, where that is worth telling."""
        if plan.evict is not None:
            pod = plan.evict
            # Sent once a turn: a budget that allows no disruption is waited for, and reported meanwhile.
            first = iter((True,))
            result = await self._writer.carry_out(
                Evict(namespace=pod.namespace, name=pod.name, uid=pod.uid),
                is_wanted=lambda: next(first, False) and not patient.is_released,
            )
            why = result.error or "its disruption budget allows none now"
            return "" if result.is_done else f"pod {pod.namespace}/{pod.name} is not evicted: {why}"
        for pod in plan.delete:
            await self._writer.carry_out(Delete(kind=TENANTS, name=pod.name, namespace=pod.namespace, uid=pod.uid))
        for key in plan.uninstall:
            module, _, version = key.rpartition(":")
            if patient.is_released or patient.address is None:
                return ""
            await self._client.uninstall(patient.address, Module(module, version, ""))
        return await self._delete_base(name, patient.beat) if plan.delete_base else ""

    async def _is_pod_leaving(self, beat: Heartbeat) -> bool:
        """As API server A has it now, so that no pod is deleted twice."""
        if self._pods is None or not beat.pod_uid:
            return False
        return self._pods.is_leaving(beat.pod_uid) or await self._pods.look_for(beat) is Sighting.MISSING

    async def _delete_base(self, name: str, beat: Heartbeat) -> str:
        if self._pods is None:
            return "the pods of bases are not known (modules.baseLabel): delete the base's pod"
        intent = Delete(kind=POD_KIND, name=beat.pod_name, namespace=beat.pod_namespace, uid=beat.pod_uid)
        result = await self._pods.writer.carry_out(intent)
        pod = f"{beat.pod_namespace}/{beat.pod_name}"
        if result.is_done or result.outcome is Outcome.CONFLICT:
            # Another UID: the pod was replaced, which is the aim.
            log.info("base pod deleted", node=name, pod=pod)
            patient = self._patients.get(name)
            if patient is not None:
                patient.is_pod_leaving = True
            return ""
        if isinstance(result.error, Forbidden):
            return f"DeleteForbidden: pod {pod} may not be deleted; give Fairlead the role fairlead-base-pods there"
        return f"DeletePending: pod {pod} is not deleted yet: {result.error}"


def _text(state: HealState | None) -> str:
    return msgspec.json.encode(state).decode()
