"""The arklet provider: the laws of every provider, and what bases that misbehave are spared."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from fairlead.cluster.clock import RealClock
from fairlead.modules import client as calls
from fairlead.modules import ledger, plan, provider, reports
from fairlead.modules.client import ArkletClient, connections
from fairlead.modules.heartbeats import JAVA
from fairlead.modules.names import BIZ_NAME_PREFIX
from fairlead.modules.provider import ArkletProvider
from fairlead.modules.spec import ModuleState
from fairlead.modules.sweep import Sweeper
from fairlead.modules.traces import parent_of
from fairlead.nodes.provider import LogOptions, NotNow, RunPhase, RunReport, Sandbox, Unsupported, Usage
from fairlead.nodes.spec import KubeletPod
from fairlead.testing.clock import ManualClock
from fairlead.testing.mock_base import Fault, MockBase
from fairlead.testing.provider_suite import ProviderCase, ProviderSuite, runs_of
from tests.cluster.kit import until


class QuickClock(RealClock):
    """Waits fifty times shorter, so that back-off of minutes takes seconds."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 50)


@asynccontextmanager
async def providing(base: MockBase) -> AsyncIterator[ArkletProvider]:
    async with connections() as session:
        provider = ArkletProvider(ArkletClient(session), QuickClock())
        provider.serve("node", ("127.0.0.1", base.port), lambda: None)
        running = asyncio.create_task(provider.run())
        yield provider
        running.cancel()


class TestArkletProvider(ProviderSuite):
    @pytest.fixture
    async def case(self) -> AsyncIterator[ProviderCase]:
        async with MockBase().serving() as base, connections() as session:
            provider = ArkletProvider(ArkletClient(session), QuickClock())
            provider.serve("node", ("127.0.0.1", base.port), lambda: None)
            numbers = iter(range(1, 100))

            def container(exits: int | None) -> dict[str, Any]:
                version = str(next(numbers))
                image = f"http://h/main-{version}.zip"
                return {"image": image, "env": [{"name": "BIZ_VERSION", "value": version}]}

            case = ProviderCase(provider, QuickClock(), container, is_alive=lambda: bool(base.modules))
            case.start()
            yield case
            await case.stop()


@dataclass(slots=True)
class Rig:
    base: MockBase
    provider: ArkletProvider
    changed: asyncio.Event

    async def start(self, pod: KubeletPod) -> None:
        await self.provider.create(Sandbox(pod))
        await self.provider.update(pod.uid, runs_of(pod))

    async def until(
        self, pod: KubeletPod, reason: str = "", phase: RunPhase = RunPhase.RUNNING, container: str = "cart"
    ) -> RunReport:
        async with asyncio.timeout(20):
            while True:
                self.changed.clear()
                report = self.provider.status(pod.uid)
                run = report.runs.get(container) if report is not None else None
                if run is not None and run.phase is phase and (not reason or run.reason == reason):
                    return run
                await self.changed.wait()

    async def end(self, pod: KubeletPod) -> None:
        kill_at = QuickClock().now() + timedelta(seconds=5)
        await self.provider.update(pod.uid, tuple(replace(run, kill_at=kill_at) for run in runs_of(pod)))
        await self.until(pod, phase=RunPhase.EXITED)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with MockBase().serving() as base, providing(base) as provider:
        changed = asyncio.Event()
        provider.listen(lambda uid: changed.set())
        yield Rig(base, provider, changed)


def cart(
    name: str = "p", version: str = "1", *, url: str = "", namespace: str = "ns", biz: str = "", **spec: Any
) -> KubeletPod:
    notes = {f"{BIZ_NAME_PREFIX}cart": biz} if biz else {}
    container = {
        "name": "cart",
        "image": url or f"http://h/cart-{version}.zip",
        "env": [{"name": "BIZ_VERSION", "value": version}],
    }
    body = {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "annotations": notes},
        "spec": {"nodeName": "node", "containers": [container], **spec},
    }
    return msgspec.convert(body, KubeletPod)


async def test_k14_an_installed_module_runs_and_is_named_by_base_module_and_version(rig: Rig) -> None:
    await rig.start(cart())
    run = await rig.until(cart())
    assert run.id == "arklet://127.0.0.1:cart:1"
    report = rig.provider.status("uid-p")
    assert report is not None
    assert [(each.type, each.is_true) for each in report.conditions] == [
        ("module.koupleless.io/installed", True),
        ("module.koupleless.io/ready", True),
    ]


@pytest.mark.parametrize("fault", [Fault.NO_REPLY, Fault.HALF_REPLY, Fault.NO_JSON, Fault.ANSWER_500, Fault.BUSY])
async def test_k20_k25_k27_whatever_happens_to_the_answer_a_module_is_installed_once(rig: Rig, fault: Fault) -> None:
    rig.base.faults["installBiz"] = [fault]
    await rig.start(cart())
    await rig.until(cart())
    done_at_once = fault not in (Fault.ANSWER_500, Fault.BUSY)
    assert rig.base.modules == {"cart:1": "activated"}
    assert rig.base.count("installBiz", "cart:1") == (1 if done_at_once else 2)


async def test_k22_a_call_that_is_never_answered_is_given_up_and_others_go_on(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "COMMAND_S", 0.3)
    rig.base.faults["installBiz"] = [Fault.HANG]
    await rig.start(cart())
    await rig.start(cart("q", "2"))
    await rig.until(cart("q", "2"))
    await rig.until(cart())
    assert set(rig.base.modules) == {"cart:1", "cart:2"}


async def test_k17_a_failed_install_waits_with_the_cause_and_is_tried_again(rig: Rig) -> None:
    pod = cart(url="http://h/fails-1.zip")
    await rig.start(pod)
    run = await rig.until(pod, reports.BACK_OFF, RunPhase.WAITING)
    assert "boom at start" in run.message
    async with asyncio.timeout(20):
        while rig.base.count("installBiz", "cart:1") < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_k15_k26_a_group_is_installed_in_order_and_one_that_fails_leaves_the_others(rig: Rig) -> None:
    def container(name: str) -> dict[str, Any]:
        env = [{"name": "BIZ_VERSION", "value": "1"}]
        return {"name": name, "image": f"http://h/{name}-1.zip", "env": env}

    metadata = {"name": "g", "namespace": "ns", "uid": "uid-g"}
    spec = {"nodeName": "node", "containers": [container(name) for name in ("zebra", "fails", "cart")]}
    pod = msgspec.convert({"metadata": metadata, "spec": spec}, KubeletPod)
    rig.base.install_s = 0.05
    await rig.start(pod)
    await rig.until(pod)
    # The one that fails may be tried again before the last one has its turn.
    installs = dict.fromkeys(key for command, key in rig.base.calls if command == "installBiz")
    assert list(installs) == ["zebra:1", "fails:1", "cart:1"]
    await rig.until(pod, reports.BACK_OFF, RunPhase.WAITING, "fails")
    report = rig.provider.status("uid-g")
    assert report is not None
    installed = report.conditions[0]
    assert (installed.is_true, installed.reason, installed.message) == (False, "InstallFailed", "not installed: fails")
    assert set(rig.base.modules) == {"zebra:1", "cart:1"}


@pytest.mark.parametrize("is_taken_up", [True, False])
async def test_k15_a_group_that_fails_by_policy_leaves_its_other_modules_until_it_is_deleted(
    rig: Rig, is_taken_up: bool
) -> None:
    def group(name: str, **metadata: Any) -> KubeletPod:
        env = [{"name": "BIZ_VERSION", "value": "1"}]
        containers = [{"name": each, "image": f"http://h/{each}-1.zip", "env": env} for each in ("cart", "fails")]
        metadata |= {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
        return msgspec.convert(
            {"metadata": metadata, "spec": {"nodeName": "node", "containers": containers}}, KubeletPod
        )

    failed = group("g", annotations={"module.koupleless.io/failure-policy": "Fail"})
    await rig.start(failed)
    await rig.until(failed)
    await rig.until(failed, phase=RunPhase.EXITED, container="fails")
    # What the kubelet does then: everything else of the pod is to end.
    await rig.end(failed)
    report = rig.provider.status("uid-g")
    assert report is not None
    assert (report.runs["cart"].reason, report.runs["cart"].exit_code) == (reports.KEPT, 0)
    installed = report.conditions[0]
    assert (installed.is_true, installed.reason, installed.message) == (False, "InstallFailed", "not installed: fails")
    assert (set(rig.base.modules), rig.base.count("uninstallBiz", "cart:1")) == ({"cart:1"}, 0)
    # The pod in its place takes the module up, and keeps it when the failed one is deleted.
    if is_taken_up:
        await rig.start(cart("after"))
        await rig.until(cart("after"))
    await rig.provider.delete("uid-g", 5.0)
    assert set(rig.base.modules) == ({"cart:1"} if is_taken_up else set())
    assert rig.base.count("installBiz", "cart:1") == 1


async def test_a_pod_that_is_not_restarted_fails_with_its_module(rig: Rig) -> None:
    pod = cart(url="http://h/fails-1.zip", restartPolicy="Never")
    await rig.start(pod)
    run = await rig.until(pod, phase=RunPhase.EXITED)
    assert (run.exit_code, run.reason, run.fails_pod) == (1, reports.FAILED, True)
    assert run.started_at is None, "nothing was started, so no event says so"
    # Its identity is free for the pod that comes in its place.
    other = cart("q")
    await rig.start(other)
    await rig.until(other)


async def test_a_key_that_failed_for_good_leaves_the_ledger_once_no_install_can_bring_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, running = cart(url="http://h/fails-1.zip", restartPolicy="Never"), cart("q", "2")
    for pod, phase in ((failing, RunPhase.EXITED), (running, RunPhase.RUNNING)):
        await rig.start(pod)
        await rig.until(pod, phase=phase)
    waiting = cart("w", "3", url="http://h/fails-3.zip")
    await rig.start(waiting)
    await rig.until(waiting, reports.BACK_OFF, RunPhase.WAITING)
    await rig.provider.poll("node", "java")
    assert set(rig.provider.ledger("node")) == {"cart:1", "cart:2", "cart:3"}
    monkeypatch.setattr(plan, "FORGET_AGE_S", 0.0)
    await rig.provider.poll("node", "java")
    # Neither what is there nor what is still tried is forgotten.
    assert set(rig.provider.ledger("node")) == {"cart:2", "cart:3"}
    assert set(rig.provider.begun("node")) == {"cart:3"}


async def test_k16_k18_what_no_base_could_install_is_not_even_asked_for(rig: Rig) -> None:
    pod = cart(url="cart.zip")
    await rig.start(pod)
    await rig.until(pod, "ModuleUrlInvalid", RunPhase.WAITING)
    assert rig.base.calls == []


async def test_k19_an_artefact_that_is_another_module_is_removed_again(rig: Rig) -> None:
    pod = cart(url="http://h/cart-7.zip")
    await rig.start(pod)
    run = await rig.until(pod, reports.MISMATCH, RunPhase.WAITING)
    assert run.message == "the artefact is cart:7, not cart:1"
    assert rig.base.modules == {}


async def test_k19_an_artefact_of_another_name_is_removed_again(rig: Rig) -> None:
    rig.base.modules = {"till:1": "activated"}
    pod = cart(url="http://h/pay-7.zip")
    await rig.start(pod)
    run = await rig.until(pod, reports.MISMATCH, RunPhase.WAITING)
    assert run.message == "the artefact is pay:7, not cart:1"
    assert rig.base.modules == {"till:1": "activated"}


async def test_a_base_that_says_it_has_what_it_does_not_list_is_not_asked_without_end(rig: Rig) -> None:
    rig.base.modules = {"pay:7": "activated"}
    rig.base.answers["installBiz"] = {
        "code": "FAILED",
        "data": {"code": "REPEAT_BIZ", "message": "Biz: pay:7 is there"},
    }
    pod = cart(url="http://h/pay-7.zip")
    await rig.start(pod)
    run = await rig.until(pod, reports.BACK_OFF, RunPhase.WAITING)
    assert run.message == "Biz: pay:7 is there"
    assert rig.base.count("installBiz", "cart:1") == 1
    assert rig.base.modules == {"pay:7": "activated"}


async def test_k21_a_second_pod_of_one_identity_waits_until_the_first_is_gone(rig: Rig) -> None:
    first, second = cart("a"), cart("b")
    await rig.start(first)
    await rig.until(first)
    await rig.start(second)
    run = await rig.until(second, reports.CONFLICT, RunPhase.WAITING)
    assert "pod ns/a" in run.message
    await rig.end(first)
    await rig.until(second)
    assert rig.base.modules == {"cart:1": "activated"}


async def test_a_module_name_belongs_to_the_namespace_that_took_up_what_was_there(rig: Rig) -> None:
    rig.base.modules = {"cart:1": "activated"}
    await rig.start(cart("a"))
    await rig.until(cart("a"))
    assert rig.provider.ledger("node") == {}, "somebody else has brought it"
    other = cart("b", "2", namespace="other")
    await rig.start(other)
    await rig.until(other, reports.CONFLICT, RunPhase.WAITING)


async def test_a_module_name_belongs_to_the_namespace_that_had_it_first_on_a_base(rig: Rig) -> None:
    first, newer = cart("a"), cart("c", "3")
    other = cart("b", "2", namespace="other")
    await rig.start(first)
    await rig.until(first)
    await rig.start(other)
    run = await rig.until(other, reports.CONFLICT, RunPhase.WAITING)
    assert run.message == 'module name "cart" is taken on this base by namespace "ns"'
    # A newer version of the same tenant, and another name, go ahead.
    another = cart("d", namespace="other", biz="till", url="http://h/till-1.zip")
    for pod in (newer, another):
        await rig.start(pod)
        await rig.until(pod)
    assert not any("cart:2" in key for _, key in rig.base.calls)
    for pod in (first, newer):
        await rig.end(pod)
    await rig.until(other)
    assert rig.base.modules == {"cart:2": "activated", "till:1": "activated"}


@pytest.mark.parametrize("namespace", ["ns", "other"])
async def test_a_pod_that_waits_for_another_s_module_sees_neither_its_log_nor_its_usage(
    rig: Rig, namespace: str
) -> None:
    first, second = cart("a"), cart("b", namespace=namespace)
    await rig.start(first)
    await rig.until(first)
    await rig.start(second)
    await rig.until(second, reports.CONFLICT, RunPhase.WAITING)
    rig.base.answers["bizStats"] = {
        "code": "SUCCESS",
        "data": [{"bizName": "cart", "bizVersion": "1", "cpu": 0.5, "memory": 7}],
    }
    rig.base.answers["queryBizLog"] = {"code": "SUCCESS", "data": {"log": "a secret"}}
    await rig.provider.poll("node", "python")
    assert rig.provider.usage("uid-a") == {"cart": Usage(0.5, 7)}
    assert [part async for part in rig.provider.logs("uid-a", "cart", LogOptions())] == [b"a secret"]
    assert rig.provider.usage("uid-b") == {}
    with pytest.raises(Unsupported, match="not installed for this pod"):
        rig.provider.logs("uid-b", "cart", LogOptions())


async def test_after_a_restart_a_module_name_belongs_to_the_namespace_that_the_ledger_names(rig: Rig) -> None:
    rig.base.modules = {"cart:1": "activated"}
    rig.provider.leave("node")
    rig.provider.serve("node", ("127.0.0.1", rig.base.port), lambda: None, ledger={"cart:1": "other"})
    await rig.start(cart())
    await rig.until(cart(), reports.CONFLICT, RunPhase.WAITING)
    assert rig.base.modules == {"cart:1": "activated"}
    assert rig.provider.ledger("node") == {"cart:1": "other"}


async def test_what_a_node_cannot_note_is_not_installed_and_keeps_nobody_else_waiting(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = cart("long", "9" * 250)
    monkeypatch.setattr(ledger, "MOST_BYTES", 200)
    await rig.start(long)
    run = await rig.until(long, reports.BACK_OFF, RunPhase.WAITING)
    assert run.message == "no more modules can be noted for this base"
    await rig.start(cart())
    await rig.until(cart())
    assert rig.base.modules == {"cart:1": "activated"}


@pytest.mark.parametrize(
    ("biz", "version", "reason"),
    [
        ("pay:1", "0", "ModuleNameInvalid"),
        ("x" * 254, "1", "ModuleNameInvalid"),
        ("pay", "1" * 254, "ModuleVersionInvalid"),
    ],
)
async def test_an_identity_that_no_ledger_can_hold_is_refused(rig: Rig, biz: str, version: str, reason: str) -> None:
    pod = cart("p", version, biz=biz)
    await rig.start(pod)
    await rig.until(pod, reason, RunPhase.WAITING)
    assert rig.base.calls == []


async def test_k32_a_changed_image_replaces_the_module(rig: Rig) -> None:
    await rig.start(cart())
    await rig.until(cart())
    await rig.end(cart())
    changed = cart(url="http://other/cart-1.zip")
    await rig.provider.update(changed.uid, runs_of(changed, 1))
    run = await rig.until(changed)
    assert run.attempt == 1
    assert rig.base.urls == ["http://h/cart-1.zip", "http://other/cart-1.zip"]


@pytest.mark.parametrize(("asked", "sent"), [("uninstallThenInstall", "uninstallThenInstall"), ("anything", None)])
async def test_the_install_strategy_of_a_pod_reaches_its_base(rig: Rig, asked: str, sent: str | None) -> None:
    pod = cart()
    metadata = msgspec.structs.replace(pod.metadata, annotations={"module.koupleless.io/install-strategy": asked})
    pod = msgspec.structs.replace(pod, metadata=metadata)
    await rig.start(pod)
    await rig.until(pod)
    assert [body.get("installStrategy") for body in rig.base.installs] == [sent]


async def test_k35_removing_a_module_that_is_not_there_is_done_with_one_call(rig: Rig) -> None:
    await rig.start(cart())
    await rig.until(cart())
    rig.base.modules.clear()
    await rig.end(cart())
    assert rig.base.count("uninstallBiz", "cart:1") == 1


async def test_k38_a_late_removal_of_the_old_pod_never_touches_the_new_one(rig: Rig) -> None:
    old, new = cart("old"), cart("new")
    await rig.start(old)
    await rig.until(old)
    await rig.end(old)
    await rig.start(new)
    await rig.until(new)
    await rig.provider.delete(old.uid)
    assert rig.base.modules == {"cart:1": "activated"}


async def test_k23_k24_a_base_that_comes_back_empty_gets_its_module_once_more(rig: Rig) -> None:
    await rig.start(cart())
    await rig.until(cart())
    rig.base.modules.clear()
    await rig.provider.poll("node", "java")
    await rig.until(cart())
    assert rig.base.count("installBiz", "cart:1") == 2
    assert rig.base.modules == {"cart:1": "activated"}


async def test_k31_a_superseded_version_runs_and_is_not_ready(rig: Rig) -> None:
    one, two = cart("a", "1"), cart("b", "2")
    for pod in (one, two):
        await rig.start(pod)
        await rig.until(pod)
    await rig.provider.poll("node", "java")
    run = await rig.until(one, reports.SUPERSEDED)
    assert not run.is_ready
    report = rig.provider.status(one.uid)
    assert report is not None
    assert report.conditions[1].reason == "Superseded"


async def test_a_superseded_version_serves_again_when_the_newer_one_is_gone(rig: Rig) -> None:
    old, new = cart("a"), cart("b", "2")
    for pod in (old, new):
        await rig.start(pod)
        await rig.until(pod)
    await rig.provider.poll("node", "java")
    await rig.until(old, reports.SUPERSEDED)
    assert rig.base.count("switchBiz", "cart:1") == 0
    await rig.end(new)
    await rig.provider.poll("node", "java")
    assert rig.base.modules == {"cart:1": "activated"}
    await rig.provider.poll("node", "java")
    assert (await rig.until(old)).is_ready
    assert rig.base.count("switchBiz", "cart:1") == 1


def running(pod: KubeletPod, restarts: int = 0) -> KubeletPod:
    status = {"containerStatuses": [{"name": "cart", "restartCount": restarts, "state": {"running": {}}}]}
    return msgspec.convert({**msgspec.to_builtins(pod), "status": status}, KubeletPod)


async def test_k48_adopting_finds_what_runs_and_installs_nothing(rig: Rig) -> None:
    rig.base.modules["cart:1"] = "activated"
    pod = running(cart(), restarts=2)
    await rig.provider.adopt(pod)
    await rig.provider.update(pod.uid, runs_of(pod, 2))
    run = await rig.until(pod)
    assert run.attempt == 2
    assert rig.base.count("installBiz", "cart:1") == 0


async def test_after_a_poll_a_module_that_was_not_there_is_installed_without_another_look(rig: Rig) -> None:
    await rig.provider.poll("node", JAVA)
    rig.base.calls.clear()
    await rig.start(cart())
    await rig.until(cart())
    assert rig.base.calls[0][0] == "installBiz"


async def test_a_module_that_somebody_else_installed_since_the_last_poll_is_taken_up(rig: Rig) -> None:
    await rig.provider.poll("node", JAVA)
    rig.base.modules["cart:1"] = "activated"
    await rig.start(cart())
    assert (await rig.until(cart())).is_ready
    assert rig.base.urls == []


async def test_a_module_that_went_since_the_last_poll_is_installed(rig: Rig) -> None:
    rig.base.modules["cart:1"] = "activated"
    await rig.provider.poll("node", JAVA)
    rig.base.modules.clear()
    await rig.start(cart())
    assert (await rig.until(cart())).is_ready
    assert rig.base.urls == ["http://h/cart-1.zip"]


async def test_one_look_at_a_base_serves_all_its_pods_that_are_adopted(rig: Rig) -> None:
    rig.base.modules |= {f"cart:{number}": "activated" for number in range(10)}
    pods = [running(cart(f"p{number}", str(number))) for number in range(10)]
    await asyncio.gather(*(rig.provider.adopt(pod) for pod in pods))
    found = [rig.provider.status(pod.uid) for pod in pods]
    assert all(report is not None and report.runs["cart"].phase is RunPhase.RUNNING for report in found)
    assert rig.base.count("queryAllBiz", ":") == 1


async def test_who_is_cancelled_while_it_asks_a_base_leaves_no_old_list_behind(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "ADOPT_S", 0.0)
    pod = running(cart())
    rig.base.modules["cart:1"] = "activated"
    await rig.provider.poll("node", JAVA)
    rig.base.modules.clear()
    rig.base.faults["queryAllBiz"] = [Fault.HANG, Fault.HANG]
    asking = [asyncio.create_task(rig.provider.poll("node", JAVA)) for _ in range(2)]
    adopting = asyncio.create_task(rig.provider.adopt(pod))
    await until(lambda: rig.base.count("queryAllBiz", ":") == 2)
    asking[0].cancel()
    await until(lambda: rig.base.count("queryAllBiz", ":") == 3)
    asking[1].cancel()
    await adopting
    report = rig.provider.status(pod.uid)
    assert report is not None
    assert report.runs["cart"].reason == reports.LOST


async def test_a_base_that_is_away_is_not_now_instead_of_lost(rig: Rig) -> None:
    rig.base.faults["queryAllBiz"] = [Fault.ANSWER_500]
    with pytest.raises(NotNow):
        await rig.provider.adopt(cart())
    assert rig.provider.known() == frozenset()


async def test_the_modules_of_a_base_that_says_goodbye_are_not_ready(rig: Rig) -> None:
    await rig.start(cart())
    await rig.until(cart())
    rig.provider.stand("node", is_active=False)
    report = rig.provider.status("uid-p")
    assert report is not None
    assert not report.runs["cart"].is_ready
    assert report.conditions[1].reason == reports.STOPPING


async def test_k37_k41_k42_a_stray_of_ours_is_removed_and_a_foreign_module_is_not(rig: Rig) -> None:
    now = list[KubeletPod]()

    async def list_pods(node: str) -> list[KubeletPod]:
        return now

    clock = ManualClock()
    rig.provider._sweeper = Sweeper(rig.provider._client, list_pods, clock)
    await rig.start(cart())
    await rig.until(cart())
    rig.base.modules["foreign:1"] = "activated"
    # Its pod is deleted by force while the base does not answer.
    rig.base.faults["uninstallBiz"] = [Fault.ANSWER_500] * 5000
    await rig.provider.delete("uid-p")
    assert "cart:1" in rig.provider.ledger("node")
    await rig.provider._client.modules(("127.0.0.1", rig.base.port))  # what was under way has arrived
    rig.base.faults.clear()
    rig.base.calls.clear()
    now.append(cart())  # the API server still has such a pod: spared
    for seconds in (0, 61):
        await clock.advance(seconds)
        await rig.provider.poll("node", "java")
    assert rig.base.count("uninstallBiz", "cart:1") == 0
    now.clear()
    await rig.provider.poll("node", "java")
    assert rig.base.modules == {"foreign:1": "activated"}
    assert rig.provider.ledger("node") == {}


async def test_nothing_is_sent_once_the_lease_is_gone(rig: Rig) -> None:
    rig.provider._may_act = lambda: False
    await rig.start(cart())
    await asyncio.gather(*rig.provider._pods["uid-p"].tasks.values())
    assert rig.base.count("installBiz", "cart:1") == 0


async def test_arguments_variables_and_the_trace_of_a_container_reach_its_module(rig: Rig) -> None:
    pod = cart()
    await rig.provider.create(Sandbox(pod))
    runs = tuple(replace(run, args=("--fast",), env={"BIZ_VERSION": "1", "COLOUR": "blue"}) for run in runs_of(pod))
    await rig.provider.update(pod.uid, runs)
    await rig.until(pod)
    (body,) = rig.base.installs
    assert (body["args"], body["envs"]["COLOUR"]) == (["--fast"], "blue")
    assert "BIZ_VERSION" not in body["envs"]
    # One trace for all that is done for this generation of the pod.
    await rig.end(pod)
    assert body["envs"]["TRACEPARENT"] in rig.base.traces
    assert {trace.split("-")[1] for trace in rig.base.traces} == {f"{parent_of(pod).trace_id:032x}"}


async def test_nothing_is_installed_before_the_ledger_is_written(rig: Rig) -> None:
    written: list[dict[str, str]] = []

    async def write(node: str) -> bool:
        written.append(dict(rig.provider.ledger(node)))
        assert rig.base.modules == {}
        return len(written) > 1

    rig.provider.keep_ledger(write)
    await rig.start(cart())
    await rig.until(cart())
    assert written == [{"cart:1": "ns"}] * 2
    assert rig.base.count("installBiz", "cart:1") == 1


@pytest.mark.parametrize("is_dry", [True, False], ids=["dry-run", "on"])
async def test_k41_k44_k45_each_stray_is_an_event_and_a_flood_is_reported(rig: Rig, is_dry: bool) -> None:
    events: list[tuple[str, str]] = []
    clock = ManualClock()

    async def no_pods(node: str) -> list[KubeletPod]:
        return []

    sweeper = Sweeper(
        rig.provider._client,
        no_pods,
        clock,
        is_dry=is_dry,
        report=lambda node, reason, note: events.append((reason, note)),
    )
    rig.base.modules |= {f"m{number}:1": "activated" for number in range(500)}
    states = await rig.provider._client.modules(("127.0.0.1", rig.base.port))
    assert states is not None
    ours = frozenset(each.key for each in states)
    gone: frozenset[str] = frozenset()
    for seconds in (0, 61):
        await clock.advance(seconds)
        gone = await sweeper.sweep("node", ("127.0.0.1", rig.base.port), states, [], ours)
    reasons = [reason for reason, _ in events]
    if is_dry:
        assert (len(gone), len(rig.base.modules)) == (0, 500)
        assert reasons.count("DanglingModuleFound") == 10
    else:
        assert (len(gone), len(rig.base.modules)) == (10, 490)
        assert reasons.count("DanglingModuleRemoved") == 10
    assert ("DanglingModulesMany", "no pod asks for 500 modules; 10 a minute are removed") in events


async def test_k43_where_pods_cannot_be_listed_nothing_is_removed(rig: Rig) -> None:
    clock = ManualClock()

    async def fails(node: str) -> list[KubeletPod]:
        raise ConnectionError("the API server is away")

    sweeper = Sweeper(rig.provider._client, fails, clock)
    states = [ModuleState("m", "1", "activated")]
    rig.base.modules["m:1"] = "activated"
    await sweeper.sweep("node", ("127.0.0.1", rig.base.port), states, [], frozenset({"m:1"}))
    await clock.advance(61)
    with pytest.raises(ConnectionError):
        await sweeper.sweep("node", ("127.0.0.1", rig.base.port), states, [], frozenset({"m:1"}))
    assert rig.base.modules == {"m:1": "activated"}


async def test_k29_a_module_that_says_it_is_down_is_installed_and_not_ready(rig: Rig) -> None:
    await rig.start(cart())
    await rig.until(cart())
    rig.base.down.add("cart:1")
    await rig.provider.poll("node", "python")
    run = await rig.until(cart(), reports.UNHEALTHY)
    assert not run.is_ready
    report = rig.provider.status("uid-p")
    assert report is not None
    assert [(each.is_true, each.reason) for each in report.conditions] == [(True, "Installed"), (False, "ProbeFailed")]
    rig.base.down.clear()
    await rig.provider.poll("node", "python")
    report = rig.provider.status("uid-p")
    assert report is not None
    assert report.runs["cart"].is_ready


async def test_k33_while_a_deployment_rolls_on_one_base_a_version_is_always_active(rig: Rig) -> None:
    old, new = cart("old", "1"), cart("new", "2")
    await rig.start(old)
    await rig.until(old)
    await rig.start(new)
    await rig.until(new)
    await rig.provider.poll("node", "java")
    assert rig.base.modules == {"cart:1": "deactivated", "cart:2": "activated"}
    await rig.end(old)
    assert rig.base.modules == {"cart:2": "activated"}


async def test_k36_a_removal_that_fails_is_given_up_at_the_deadline_and_left_to_the_sweep(rig: Rig) -> None:
    await rig.start(cart())
    await rig.until(cart())
    rig.base.faults["uninstallBiz"] = [Fault.ANSWER_500] * 5000
    kill_at = QuickClock().now() + timedelta(seconds=1)
    await rig.provider.update("uid-p", tuple(replace(run, kill_at=kill_at) for run in runs_of(cart())))
    await rig.until(cart(), phase=RunPhase.EXITED)
    assert rig.base.count("uninstallBiz", "cart:1") >= 3
    assert rig.base.modules == {"cart:1": "activated"}
    assert "cart:1" in rig.provider.ledger("node")


async def test_k19_what_an_install_before_us_brought_instead_goes_and_what_was_there_before_stays(rig: Rig) -> None:
    rig.base.modules = {"cart:0": "activated", "cart:1.other": "activated"}
    begun = {"cart:1": ("cart:0",)}
    rig.provider.leave("node")
    rig.provider.serve("node", ("127.0.0.1", rig.base.port), lambda: None, ledger={"cart:1": "ns"}, begun=begun)
    await rig.start(cart())
    await rig.until(cart())
    assert sorted(rig.base.modules) == ["cart:0", "cart:1"]
    assert rig.base.removed == ["cart:1.other"]
    # Seen to its end: what somebody else brings later is theirs.
    rig.base.modules = {"cart:0": "activated", "cart:3": "activated"}
    await rig.provider.poll("node", "python")
    await rig.until(cart())
    assert sorted(rig.base.modules) == ["cart:0", "cart:1", "cart:3"]
