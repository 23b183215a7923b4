"""Healing: when it begins, what each step does, who may begin, and a whole one on an API server."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from fairlead.cluster.errors import ClusterError, Forbidden, Status, Unavailable
from fairlead.cluster.writer import Outcome, Result
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiObject
from fairlead.model.node import Node
from fairlead.model.pod import SchedulerPod
from fairlead.modules.arklet import Health
from fairlead.modules.client import TlsAddress, TunnelAddress
from fairlead.modules.deployments import DEPLOYMENTS
from fairlead.modules.heal_grants import candidates, fits_by_sums, homeless, parse_window
from fairlead.modules.healer import Healer
from fairlead.modules.healing import (
    GRANT,
    STATE,
    Grant,
    HealInput,
    HealPod,
    HealState,
    Limits,
    Pressure,
    Step,
    plan_heal,
    taints,
)
from fairlead.modules.heartbeats import Heartbeat
from fairlead.modules.spec import ModuleState
from fairlead.nodes.node import NODES
from fairlead.testing.clock import ManualClock
from tests.modules.replicas import POD_BODIES, Crew, crew

WORKLOADS: Kind[Any] = Kind("apps", "v1", "deployments", "Deployment", ApiObject)
REPLICA_SETS: Kind[Any] = Kind("apps", "v1", "replicasets", "ReplicaSet", ApiObject)
BUDGETS: Kind[Any] = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", ApiObject)
NOW = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)  # a Tuesday
SINCE = "2026-11-17T12:00:00Z"
GRANTED = Grant(SINCE, True)


def seen(**other: Any) -> HealInput:
    return HealInput(**{"pressure": Pressure(), "level": 0.9, "pod_uid": "u", "boot_id": "b", **other})


def at(step: Step) -> HealState:
    return HealState(step, SINCE, SINCE, "b", "u", "modules use 90% of the base's memory")


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_k57_pressure_counts_after_three_polls_in_a_row_and_a_swing_about_the_limit_does_not() -> None:
    limits, pressure = Limits(), Pressure()
    for level in (0.84, 0.86, 0.84, 0.86, 0.84, 0.86):
        pressure = pressure.after(level, limits)
        assert plan_heal(None, seen(pressure=pressure), limits, NOW).state is None
    for level in (0.86, 0.9):
        pressure = pressure.after(level, limits)
    found = plan_heal(None, seen(pressure=pressure), limits, NOW).state
    assert found is not None
    assert found.step is Step.CORDONED


def test_an_install_that_fails_for_want_of_memory_begins_at_once() -> None:
    found = plan_heal(None, seen(is_exhausted=True), Limits(), NOW).state
    assert found is not None
    assert "want of it" in found.reason
    # Whatever a module says as it fails, a base with room is left alone.
    roomy = seen(is_exhausted=True, pressure=Pressure(low=Limits().polls))
    assert plan_heal(None, roomy, Limits(), NOW).state is None


def test_steps_follow_each_other_and_each_is_written_before_it_is_acted_on() -> None:
    pod = HealPod("ns", "p", "u-p")
    granted = plan_heal(at(Step.CORDONED), seen(grant=GRANTED, pods=(pod,)), Limits(), NOW)
    assert granted.state is not None
    assert (granted.state.step, granted.evict) == (Step.EVICTING, None)
    assert plan_heal(at(Step.EVICTING), seen(pods=(pod,)), Limits(), NOW).evict == pod
    drained = plan_heal(at(Step.EVICTING), seen(), Limits(), NOW).state
    assert drained is not None
    assert drained.step is Step.UNINSTALLING
    assert plan_heal(at(Step.UNINSTALLING), seen(modules=("m:1",)), Limits(), NOW).uninstall == ("m:1",)
    emptied = plan_heal(at(Step.UNINSTALLING), seen(modules=()), Limits(), NOW).state
    assert emptied is not None
    assert emptied.step is Step.DELETING
    assert plan_heal(at(Step.DELETING), seen(), Limits(), NOW).delete_base
    ended = plan_heal(at(Step.DELETING), seen(is_pod_leaving=True), Limits(), NOW)
    assert ended.state is not None
    assert (ended.state.step, ended.delete_base) == (Step.CONFIRMING, False)


def test_a_base_that_does_not_answer_is_deleted_all_the_same() -> None:
    silent = plan_heal(at(Step.UNINSTALLING), seen(modules=None), Limits(), NOW).state
    stubborn = plan_heal(at(Step.UNINSTALLING), seen(modules=("m:1",)), Limits(), later(61)).state
    assert silent is not None
    assert stubborn is not None
    assert silent.step is stubborn.step is Step.DELETING


@pytest.mark.parametrize("other", [{"boot_id": "b2"}, {"pod_uid": "u2"}], ids=["restarted in place", "another pod"])
@pytest.mark.parametrize("step", list(Step))
def test_k62_a_base_that_is_another_by_now_is_left_alone(step: Step, other: dict[str, Any]) -> None:
    plan = plan_heal(at(step), seen(**other), Limits(), NOW)
    assert (plan.state, plan.delete_base, plan.evict, plan.uninstall) == (None, False, None, ())


def test_a_cordoned_base_whose_pressure_goes_is_free_again_and_a_granted_one_goes_on() -> None:
    low = seen(pressure=Pressure(low=3))
    assert plan_heal(at(Step.CORDONED), low, Limits(), NOW).state is None
    assert plan_heal(at(Step.EVICTING), low, Limits(), NOW).state is not None


def test_k61_a_pod_that_tolerates_the_taint_keeps_the_base_until_the_time_is_up() -> None:
    pod, patient = HealPod("ns", "p", "u-p", tolerates_s=None), HealPod("ns", "q", "u-q", tolerates_s=60.0)
    kept = plan_heal(at(Step.EVICTING), seen(pods=(pod,)), Limits(drain_s=600), later(601))
    assert (kept.evict, kept.delete) == (None, ())
    assert "ns/p tolerates the taint" in kept.message
    forced = plan_heal(at(Step.EVICTING), seen(pods=(pod,)), Limits(drain_s=600, is_forced=True), later(601))
    assert forced.delete == (pod,)
    assert plan_heal(at(Step.EVICTING), seen(pods=(patient,)), Limits(), later(59)).evict is None
    assert plan_heal(at(Step.EVICTING), seen(pods=(patient,)), Limits(), later(60)).evict == patient


def test_pods_are_evicted_one_after_the_other_and_the_taint_becomes_no_execute_when_they_are_gone() -> None:
    pods = (HealPod("ns", "a", "1", is_leaving=True), HealPod("ns", "b", "2"))
    assert plan_heal(at(Step.EVICTING), seen(pods=pods), Limits(), NOW).evict is None
    assert [taint["effect"] for taint in taints(at(Step.EVICTING))] == ["NoSchedule"]
    assert [taint["effect"] for taint in taints(at(Step.DELETING))] == ["NoExecute"]
    assert taints(None) == ()


def test_a_dry_run_says_what_it_would_do_and_a_base_that_is_no_pod_is_not_deleted() -> None:
    dry = plan_heal(at(Step.CORDONED), seen(grant=GRANTED), Limits(is_dry=True), NOW)
    assert dry.state == at(Step.CORDONED)
    assert dry.message.startswith("dry run: would evict 0 pods")
    machine = plan_heal(at(Step.DELETING), seen(pod_uid=""), Limits(), NOW)
    assert (machine.delete_base, machine.message[:18]) == (False, "the base is no pod")


# -- who may begin ------------------------------------------------------------------------------------------


def node(name: str, *, state: HealState | None = None, grant: Grant | None = None, ready: str = "True") -> Node:
    notes = {STATE: msgspec.json.encode(state).decode()} if state is not None else {}
    notes |= {GRANT: msgspec.json.encode(grant).decode()} if grant is not None else {}
    metadata = {"name": name, "labels": {"base.koupleless.io/cluster-name": "blue"}, "annotations": notes}
    status = {"conditions": [{"type": "Ready", "status": ready}], "allocatable": {"memory": "100Mi", "pods": "2"}}
    return msgspec.convert({"metadata": metadata, "status": status}, Node)


def verdicts(nodes: list[Node], *windows: str, most: int = 1) -> dict[str, str]:
    found = candidates(nodes, NOW, [parse_window(text) for text in windows], most)
    return {candidate.node.name: why for candidate, why in found}


def test_k58_the_only_base_is_not_drained_and_k59_only_one_at_a_time() -> None:
    sick = at(Step.CORDONED)
    assert "no other Ready base" in verdicts([node("one", state=sick)])["one"]
    assert "no other Ready base" in verdicts([node("one", state=sick), node("two", ready="False")])["one"]
    assert verdicts([node("one", state=sick), node("two")]) == {"one": ""}
    five = [node(f"n{number}", state=sick) for number in range(5)]
    found = verdicts([*five, node("well")])
    assert [name for name, why in found.items() if not why] == ["n0"]
    assert "1 of at most 1" in found["n4"]
    for step in (Step.EVICTING, Step.DELETING, Step.CONFIRMING):
        assert verdicts([node("busy", state=at(step)), node("one", state=sick), node("well")])["one"]
    assert verdicts([node("busy", state=sick, grant=GRANTED), node("one", state=sick), node("well")])["one"]


@pytest.mark.parametrize(
    ("window", "is_open"),
    [
        ("11:00-13:00", True),
        ("Mon-Fri 09:00-17:00", True),
        ("Sat-Tue 12:00-12:01", True),
        ("Wed 00:00-24:00", False),
        ("Mon 22:00-13:00", True),
        ("22:00-06:00", False),
    ],
)
def test_a_freeze_window_holds_healing_off(window: str, is_open: bool) -> None:
    found = verdicts([node("one", state=at(Step.CORDONED)), node("two")], window)
    assert bool(found["one"]) is is_open


@pytest.mark.parametrize("text", ["", "25:00-26:00", "Xyz 10:00-11:00", "10-11", "Mon Tue 10:00-11:00"])
def test_a_window_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        parse_window(text)


def module_pod(name: str, module: str, on: str, *, ready: str = "True", memory: str = "40Mi") -> SchedulerPod:
    metadata = {"name": name, "namespace": "ns", "labels": {f"module.koupleless.io/{module}": "1"}}
    container = {"name": module, "image": "x", "resources": {"requests": {"memory": memory}}}
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    body = {"metadata": metadata, "spec": {"nodeName": on, "containers": [container]}, "status": status}
    return msgspec.convert(body, SchedulerPod)


def test_modules_that_others_serve_need_no_place_and_the_rest_must_fit() -> None:
    leaving = [module_pod("a", "shop", "one"), module_pod("b", "cart", "one"), module_pod("c", "pay", "one")]
    elsewhere = [module_pod("d", "shop", "two"), module_pod("e", "pay", "two", ready="False")]
    assert [pod.metadata.name for pod in homeless(leaving, elsewhere)] == ["b", "c"]
    others = [node("two")]
    placed = {"two": [module_pod("d", "shop", "two")]}
    assert fits_by_sums(leaving[:1], others, placed)
    assert not fits_by_sums([*leaving[1:], *leaving[:1]], others, placed), "three pods on one more place"
    assert not fits_by_sums([module_pod("f", "f", "", memory="61Mi")], others, placed)


# -- a whole one --------------------------------------------------------------------------------------------


async def as_base_pod(crew_: Crew, base: str) -> None:
    """The mock base is a pod of the cluster: its kubelet is played by `end_base_pod`."""
    labels = {"base.koupleless.io/name": "base"}
    body = {
        "metadata": {"name": base, "labels": labels},
        "spec": {"nodeName": "somewhere", "containers": [{"name": "base", "image": "b"}]},
    }
    await crew_.api.create(POD_BODIES, body, "default")
    status = {"phase": "Running", "podIP": crew_.ips[base], "podIPs": [{"ip": crew_.ips[base]}]}
    await crew_.api.patch(POD_BODIES, base, {"status": status}, "default", subresource="status")


async def end_base_pods(at_: Crew, after_s: float = 0.0) -> None:
    """The kubelet of the bases: a pod that is deleted ends, and its base with it."""
    while True:
        for pod in await at_.api.list(POD_BODIES, "default"):
            name = pod.metadata.name
            if name in at_.bases and pod.metadata.deletion_timestamp is not None:
                await asyncio.sleep(after_s)
                at_.bases[name].is_away = True
                await at_.api.delete(POD_BODIES, name, "default", grace_s=0)
        await asyncio.sleep(0.2)


@dataclass(slots=True)
class Refuses:
    """A writer that may not, or cannot."""

    error: ClusterError
    sent: list[Any] = field(default_factory=list)

    async def carry_out(self, intent: Any, **_: Any) -> Result:
        self.sent.append(intent)
        return Result(intent, Outcome.REFUSED, self.error)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            Forbidden("DELETE pod", Status(code=403, message="pods is forbidden")),
            "DeleteForbidden: pod ns/base-0 may not be deleted",
        ),
        (Unavailable("DELETE pod", Status(message="no answer")), "DeletePending: pod ns/base-0 is not deleted yet"),
    ],
)
async def test_k53_k55_a_base_pod_that_cannot_be_deleted_is_waited_for_and_told(
    error: ClusterError, message: str
) -> None:
    writer = Refuses(error)
    nobody, pods = cast("Any", None), cast("Any", SimpleNamespace(writer=writer))
    healer = Healer(
        nobody, nobody, nobody, nobody, nobody, pods, Limits(),
        clock=ManualClock(), fallback_bytes=0, changed=lambda name: None,
    )  # fmt: skip
    beat = Heartbeat(pod_namespace="ns", pod_name="base-0", pod_uid="u-7")
    assert (await healer._delete_base("node", beat)).startswith(message)
    (intent,) = writer.sent
    assert (intent.name, intent.uid) == ("base-0", "u-7")


@pytest.mark.parametrize("address", [TlsAddress("10.0.0.1", 1238), TunnelAddress("10.0.0.1", "b1")])
async def test_a_base_that_is_healed_is_called_the_way_it_is_reached(address: tuple[str, int]) -> None:
    called: list[tuple[str, int]] = []

    async def modules(at_: tuple[str, int]) -> list[ModuleState]:
        called.append(at_)
        return []

    async def no_pods(*_: Any, **__: Any) -> list[Any]:
        return []

    nobody, nodes = cast("Any", None), cast("Any", {})
    client, reader = cast("Any", SimpleNamespace(modules=modules)), cast("Any", SimpleNamespace(list=no_pods))
    healer = Healer(
        nodes, reader, nobody, nobody, client, None, Limits(),
        clock=ManualClock(), fallback_bytes=0, changed=lambda name: None,
    )  # fmt: skip
    healer.add("node", {STATE: msgspec.json.encode(at(Step.UNINSTALLING)).decode()})
    patient = healer._patients["node"]
    assert not healer._is_due(patient), "it has not been polled yet"
    health = Health("ACTIVATED", 1 << 28, 0, 0)
    healer.observe("node", address, Heartbeat(ip="10.0.0.1"), health, is_exhausted=False, is_pod_leaving=False)
    assert healer._is_due(patient)
    await healer._input("node", patient)
    assert called == [address]
    assert type(called[0]) is type(address)


async def heal_in_order(at_: Crew) -> None:
    """Two bases that are pods, with addresses of their own."""
    for base in at_.bases:
        await as_base_pod(at_, base)
    playing = asyncio.create_task(end_base_pods(at_))
    at_.start("one")
    sick = "virtual-node-java-default-b0"

    async def are_there() -> bool:
        return set(await at_.nodes()) == {sick, "virtual-node-java-default-b1"}

    await at_.until(are_there)
    await at_.install("b0", node=sick)
    at_.bases["b0"].modules["left:1"] = "activated"  # somebody else's

    async def runs() -> bool:
        return await at_.ready_pods() == {"shop-b0"}

    await at_.until(runs)
    states: list[str] = []
    budget = {"metadata": {"name": "none"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"m": "shop"}}}}
    await at_.api.create(BUDGETS, budget, "default")
    at_.bases["b0"].used_bytes = int(0.9 * (1 << 28))

    async def is_waiting() -> bool:
        found = await at_.api.find(NODES, sick)
        conditions = {each.type: each for each in (found.status.conditions if found else None) or ()}
        return "pod default/shop-b0 is not evicted" in conditions["MetaspacePressure"].message

    # K60: a budget that allows no disruption is waited for, and the node says so.
    await at_.until(is_waiting)
    assert await at_.ready_pods() == {"shop-b0"}
    await at_.api.delete(BUDGETS, "none", "default")

    async def is_healed() -> bool:
        found = await at_.api.find(NODES, sick)
        if found is not None and STATE in found.metadata.annotations:
            effects = "/".join(t.effect for t in found.spec.taints or () if "overload" in t.key)
            conditions = {each.type: each for each in found.status.conditions or ()}
            text = f"{effects} {conditions['MetaspacePressure'].reason}"
            states.extend([text] if text not in states else [])
        return found is None

    await at_.until(is_healed)
    assert "NoSchedule HealEvicting" in states, states
    calls = [call for call in at_.bases["b0"].calls if call[0] in ("installBiz", "uninstallBiz")]
    assert calls == [("installBiz", "shop:1"), ("uninstallBiz", "shop:1"), ("uninstallBiz", "left:1")]
    assert await at_.api.find(POD_BODIES, "b0", "default") is None
    assert await at_.api.find(POD_BODIES, "b1", "default") is not None
    playing.cancel()


async def test_k54_k56_k60_a_base_without_memory_is_tainted_drained_emptied_and_deleted_in_that_order(
    tmp_path: Path,
) -> None:
    async with crew(tmp_path, bases=2, own_addresses=True) as at_:
        await heal_in_order(at_)
        assert set(await at_.nodes()) == {"virtual-node-java-default-b1"}


async def workload(at_: Crew) -> dict[str, Any]:
    """A Deployment and its ReplicaSet; their controllers are played by the test. The owner of its pods."""
    template = {"metadata": {"labels": {"m": "shop"}}, "spec": {"containers": [{"name": "shop", "image": "x"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"m": "shop"}}, "template": template}
    made = await at_.api.create(WORKLOADS, {"metadata": {"name": "shop"}, "spec": spec}, "default")
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop", "uid": made.metadata.uid}
    body = {"metadata": {"name": "shop-1", "ownerReferences": [{**owner, "controller": True}]}, "spec": spec}
    made = await at_.api.create(REPLICA_SETS, body, "default")
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop-1", "uid": made.metadata.uid}


async def surge_first(at_: Crew) -> None:
    """The same."""
    for base in at_.bases:
        await as_base_pod(at_, base)
    playing = asyncio.create_task(end_base_pods(at_))
    at_.start("one")
    sick, well = "virtual-node-java-default-b0", "virtual-node-java-default-b1"

    async def are_there() -> bool:
        return set(await at_.nodes()) == {sick, well}

    await at_.until(are_there)
    owner = await workload(at_)
    note: dict[str, Any] = {"labels": {"m": "shop", "module.koupleless.io/shop": "1"}}
    note |= {"ownerReferences": [{**owner, "controller": True}]}
    await at_.install("b0", node=sick, **note)

    async def runs_on_b0() -> bool:
        return await at_.ready_pods() == {"shop-b0"}

    await at_.until(runs_on_b0)
    at_.bases["b0"].used_bytes = int(0.9 * (1 << 28))

    async def replicas() -> int:
        found = await at_.api.find(DEPLOYMENTS, "shop", "default")
        assert found is not None
        return found.spec.replicas

    async def is_raised() -> bool:
        return await replicas() == 2

    await at_.until(is_raised)
    assert await at_.ready_pods() == {"shop-b0"}, "nothing is evicted before"
    await at_.install("b1", node=well, **note)

    async def is_healed() -> bool:
        return await at_.api.find(NODES, sick) is None and await replicas() == 1

    await at_.until(is_healed)
    assert await at_.ready_pods() == {"shop-b1"}
    playing.cancel()


async def test_a_module_that_one_base_alone_serves_has_its_next_pod_first_and_replicas_come_back(
    tmp_path: Path,
) -> None:
    async with crew(tmp_path, bases=2, own_addresses=True) as at_:
        await surge_first(at_)
        assert set(await at_.nodes()) == {"virtual-node-java-default-b1"}
