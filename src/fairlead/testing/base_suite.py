"""What the arklet provider relies on, held against every kind of base: Java's, Python's, and the one that only acts.

    class TestMyBase(BaseSuite):
        @pytest.fixture
        async def case(self) -> AsyncIterator[BaseCase]: ...

A case names artefacts that behave: `plain` in two versions, `slow` to start, `failing` with "boom at start".
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import msgspec

from fairlead.cluster.clock import RealClock
from fairlead.modules import arklet, reports
from fairlead.modules.arklet import Answer, Outcome, identity_installed, outcome_of, sentence_of
from fairlead.modules.client import ArkletClient
from fairlead.modules.provider import ArkletProvider
from fairlead.modules.spec import Module
from fairlead.nodes.provider import Run, RunPhase, RunReport, Sandbox
from fairlead.nodes.spec import KubeletPod
from fairlead.testing.provider_suite import runs_of

WAIT_S = 60.0


@dataclass(slots=True)
class BaseCase:
    client: ArkletClient
    address: tuple[str, int]
    url: Callable[[str, str], str]
    """Of an artefact, by its module's name and version."""
    stack: str = "java"
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def module(self, name: str = "plain", version: str = "1.0.0", *, artefact_version: str = "") -> Module:
        return Module(name, version, self.url(name, artefact_version or version))

    async def states(self) -> dict[str, str]:
        found = await self.client.modules(self.address)
        assert found is not None, "the base does not say what it has"
        return {each.key: each.state.upper() for each in found}

    async def clear(self) -> None:
        """Nothing is left of a test for the next."""
        for state in await self.client.modules(self.address) or ():
            await self.client.uninstall(self.address, Module(state.name, state.version, ""))

    def provider(self) -> ArkletProvider:
        provider = ArkletProvider(self.client, RealClock())
        provider.serve("node", self.address, lambda: None)
        provider.listen(lambda uid: self.changed.set())
        return provider

    async def started(self, pod: KubeletPod) -> ArkletProvider:
        """A provider that was asked to run the pod."""
        provider = self.provider()
        await provider.create(Sandbox(pod))
        await provider.update(pod.uid, runs_of(pod))
        return provider

    async def until(self, provider: ArkletProvider, pod: KubeletPod, is_true: Callable[[RunReport], bool]) -> RunReport:
        """The run of the pod's first container, once it is as wanted."""
        name = pod.spec.containers[0].name
        async with asyncio.timeout(WAIT_S):
            while True:
                self.changed.clear()
                report = provider.status(pod.uid)
                run = report.runs.get(name) if report is not None else None
                if run is not None and is_true(run):
                    return run
                await self.changed.wait()


def pod_of(module: Module, name: str = "p", **container: Any) -> KubeletPod:
    described = {
        "name": module.name,
        "image": module.url,
        "env": [{"name": "BIZ_VERSION", "value": module.version}],
        **container,
    }
    body = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
        "spec": {"nodeName": "node", "containers": [described]},
    }
    return msgspec.convert(body, KubeletPod)


def ending(pod: KubeletPod) -> tuple[Run, ...]:
    kill_at = RealClock().now() + timedelta(seconds=30)
    return tuple(replace(run, kill_at=kill_at) for run in runs_of(pod))


class BaseSuite:
    async def test_a_module_is_installed_once_listed_and_removed(self, case: BaseCase) -> None:
        plain = case.module()
        answer = await case.client.install(case.address, plain)
        assert outcome_of(arklet.INSTALL, answer) is Outcome.DONE
        assert identity_installed(answer) == "plain:1.0.0"
        assert await case.states() == {"plain:1.0.0": "ACTIVATED"}
        again = await case.client.install(case.address, plain)
        assert outcome_of(arklet.INSTALL, again) is Outcome.ALREADY
        gone = await case.client.uninstall(case.address, plain)
        assert outcome_of(arklet.UNINSTALL, gone) is Outcome.DONE
        assert await case.states() == {}
        missing = await case.client.uninstall(case.address, plain)
        assert outcome_of(arklet.UNINSTALL, missing) is Outcome.ALREADY

    async def test_a_base_says_how_it_is(self, case: BaseCase) -> None:
        health = await case.client.health(case.address)
        assert health is not None
        assert health.state == "ACTIVATED"
        assert 0 < (health.used_bytes or 0) <= health.capacity_bytes or case.stack == "python"
        assert health.capacity_bytes > 0

    async def test_k17_a_failed_install_names_its_cause(self, case: BaseCase) -> None:
        failed = await case.client.install(case.address, case.module("failing"))
        assert outcome_of(arklet.INSTALL, failed) is Outcome.BROKEN
        assert "boom at start" in sentence_of(failed)
        bare = await case.client.install(case.address, Module("plain", "1.0.0", "plain-1.0.0.jar"))
        assert outcome_of(arklet.INSTALL, bare) is Outcome.REJECTED
        assert await case.states() == {}

    async def test_k28_an_asynchronous_install_is_followed_by_its_request_id(self, case: BaseCase) -> None:
        slow = case.module("slow")
        first = await case.client.install(case.address, slow, "r-slow")
        assert outcome_of(arklet.INSTALL, first) is Outcome.RUNNING
        used = await case.client.install(case.address, slow, "r-slow")
        assert outcome_of(arklet.INSTALL, used) is Outcome.BUSY
        answer = first
        async with asyncio.timeout(WAIT_S):
            while outcome_of(arklet.INSTALL, answer) is Outcome.RUNNING:
                await asyncio.sleep(0.2)
                answer = await case.client.call(case.address, arklet.QUERY_OPS, {"requestId": "r-slow"})
        assert outcome_of(arklet.INSTALL, answer) is Outcome.DONE
        assert await case.states() == {"slow:1.0.0": "ACTIVATED"}

    async def test_k27_a_second_command_on_a_module_at_work_is_for_later(self, case: BaseCase) -> None:
        slow = case.module("slow")
        first = await case.client.install(case.address, slow, "r-mutex")
        assert outcome_of(arklet.INSTALL, first) is Outcome.RUNNING
        second = await case.client.uninstall(case.address, slow)
        assert outcome_of(arklet.UNINSTALL, second) is Outcome.BUSY
        async with asyncio.timeout(WAIT_S):
            while await case.states() != {"slow:1.0.0": "ACTIVATED"}:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        assert outcome_of(arklet.UNINSTALL, await case.client.uninstall(case.address, slow)) is Outcome.DONE

    async def test_k31_of_two_versions_one_is_active_and_switching_changes_which(self, case: BaseCase) -> None:
        for version in ("1.0.0", "2.0.0"):
            answer = await case.client.install(case.address, case.module(version=version))
            assert outcome_of(arklet.INSTALL, answer) is Outcome.DONE
        states = await case.states()
        assert sorted(states.values()) == ["ACTIVATED", "DEACTIVATED"]
        waiting = next(key for key, state in states.items() if state == "DEACTIVATED")
        body = {"bizName": "plain", "bizVersion": waiting.partition(":")[2]}
        assert (await case.client.call(case.address, arklet.SWITCH, body)).code == arklet.SUCCESS
        assert (await case.states())[waiting] == "ACTIVATED"

    async def test_odd_commands_are_answered_as_arklet_does(self, case: BaseCase) -> None:
        unknown: Answer = await case.client.call(case.address, "nosuch", {})
        assert outcome_of("nosuch", unknown) is Outcome.UNSUPPORTED
        lost = await case.client.call(case.address, arklet.QUERY_OPS, {"requestId": "never"})
        assert lost.code == arklet.FAILED
        assert not lost.fields

    async def test_k14_k34_a_pod_runs_while_its_module_is_there_and_takes_it_along(self, case: BaseCase) -> None:
        pod = pod_of(case.module())
        provider = await case.started(pod)
        run = await case.until(provider, pod, lambda run: run.phase is RunPhase.RUNNING)
        assert run.id == f"arklet://{case.address[0]}:plain:1.0.0"
        await provider.poll("node", case.stack)
        assert provider.status(pod.uid) is not None
        await provider.update(pod.uid, ending(pod))
        await case.until(provider, pod, lambda run: run.phase is RunPhase.EXITED)
        assert await case.states() == {}
        await provider.delete(pod.uid)

    async def test_k17_a_pod_whose_module_fails_says_why(self, case: BaseCase) -> None:
        pod = pod_of(case.module("failing"))
        provider = await case.started(pod)
        run = await case.until(provider, pod, lambda run: run.reason == reports.BACK_OFF)
        assert "boom at start" in run.message
        await provider.delete(pod.uid)
        assert await case.states() == {}

    async def test_k19_an_artefact_of_another_version_is_not_kept(self, case: BaseCase) -> None:
        pod = pod_of(case.module(version="7.7.7", artefact_version="1.0.0"))
        provider = await case.started(pod)
        run = await case.until(provider, pod, lambda run: run.reason == reports.MISMATCH)
        assert "plain:1.0.0, not plain:7.7.7" in run.message
        assert await case.states() == {}
        await provider.delete(pod.uid)

    async def test_k23_k48_what_a_base_has_lost_is_installed_again_and_what_it_has_is_adopted(
        self, case: BaseCase
    ) -> None:
        pod = pod_of(case.module())
        provider = await case.started(pod)
        await case.until(provider, pod, lambda run: run.phase is RunPhase.RUNNING)
        await case.client.uninstall(case.address, case.module())
        await provider.poll("node", case.stack)
        await case.until(provider, pod, lambda run: run.phase is RunPhase.RUNNING)
        async with asyncio.timeout(WAIT_S):
            while await case.states() != {"plain:1.0.0": "ACTIVATED"}:  # noqa: ASYNC110
                await asyncio.sleep(0.1)

        successor = case.provider()
        status = {"containerStatuses": [{"name": "plain", "state": {"running": {}}}]}
        known = msgspec.convert({**msgspec.to_builtins(pod), "status": status}, KubeletPod)
        await successor.adopt(known)
        await successor.update(known.uid, runs_of(known))
        run = await case.until(successor, known, lambda run: run.phase is RunPhase.RUNNING)
        assert run.attempt == 0
        assert await case.states() == {"plain:1.0.0": "ACTIVATED"}
