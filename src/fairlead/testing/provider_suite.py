"""The laws of `nodes.provider` as tests that every provider passes.

A test module subclasses `ProviderSuite`, or `ContainerProviderSuite` where containers end by themselves, and gives it a
fixture `case`: the provider at work, pods it can run, and a clock. What the provider says of itself (`traits`) is held
to. Time here is real and short, because some providers start real things.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import msgspec

from fairlead.cluster.clock import Clock
from fairlead.nodes.provider import PodReport, Provider, Run, RunPhase, Sandbox
from fairlead.nodes.spec import KubeletPod


@dataclass(slots=True)
class ProviderCase:
    """A provider whose `run` is under way, and how its pods are described."""

    provider: Provider
    clock: Clock
    container: Callable[[int | None], dict[str, Any]]
    """A container (and annotations of its pod under `annotations`) that ends with this code, or runs until stopped."""
    is_alive: Callable[[], bool] | None = None
    """Whether anything that it started runs, seen from outside; None where there is nothing outside of it."""
    wait_s: float = 10.0
    notified: list[str] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _work: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.provider.listen(self._notified)
        self._work = asyncio.create_task(self.provider.run())

    async def stop(self) -> None:
        """As the end of our process does; may be called again."""
        if self._work is not None:
            self._work.cancel()
            with suppress(asyncio.CancelledError):
                await self._work

    def _notified(self, uid: str) -> None:
        self.notified.append(uid)
        self._changed.set()

    def pod(self, name: str = "p", exits: int | None = None, **spec: Any) -> KubeletPod:
        container = {"name": "main", **self.container(exits)}
        annotations = container.pop("annotations", {})
        metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": annotations}
        whole = {"nodeName": "node", "containers": [container], "terminationGracePeriodSeconds": 5, **spec}
        return msgspec.convert({"metadata": metadata, "spec": whole}, KubeletPod)

    async def started(self, pod: KubeletPod, attempt: int = 0) -> tuple[Run, ...]:
        await self.provider.create(Sandbox(pod))
        runs = runs_of(pod, attempt)
        await self.provider.update(pod.uid, runs)
        return runs

    async def until(self, uid: str, true: Callable[[PodReport], bool]) -> PodReport:
        """The report once it is so; woken by notifications alone, so that a provider that does not notify fails."""
        async with asyncio.timeout(self.wait_s):
            while True:
                self._changed.clear()
                report = self.provider.status(uid)
                if report is not None and true(report):
                    return report
                await self._changed.wait()


def runs_of(pod: KubeletPod, attempt: int = 0) -> tuple[Run, ...]:
    return tuple(Run(each, attempt, command=each.command, args=each.args) for each in pod.spec.containers)


def is_in(phase: RunPhase, attempt: int = 0) -> Callable[[PodReport], bool]:
    def check(report: PodReport) -> bool:
        run = report.runs.get("main")
        return run is not None and run.attempt == attempt and run.phase is phase

    return check


class ProviderSuite:
    async def test_an_unknown_pod_has_no_status(self, case: ProviderCase) -> None:
        assert case.provider.status("uid-nobody") is None

    async def test_a_pod_that_was_created_has_an_address_and_no_runs(self, case: ProviderCase) -> None:
        pod = case.pod()
        await case.provider.create(Sandbox(pod))
        report = case.provider.status(pod.uid)
        assert report is not None
        assert report.ip
        assert report.runs == {}
        assert pod.uid in case.provider.known()

    async def test_creating_again_changes_nothing(self, case: ProviderCase) -> None:
        pod = case.pod()
        await case.started(pod)
        before = await case.until(pod.uid, is_in(RunPhase.RUNNING))
        await case.provider.create(Sandbox(pod))
        assert case.provider.status(pod.uid) == before

    async def test_the_report_has_every_run_when_update_returns(self, case: ProviderCase) -> None:
        pod = case.pod()
        await case.started(pod)
        report = case.provider.status(pod.uid)
        assert report is not None
        assert report.runs["main"].attempt == 0

    async def test_the_same_attempt_is_not_run_twice(self, case: ProviderCase) -> None:
        pod = case.pod()
        runs = await case.started(pod)
        before = await case.until(pod.uid, is_in(RunPhase.RUNNING))
        await case.provider.update(pod.uid, runs)
        assert case.provider.status(pod.uid) == before

    async def test_what_is_to_end_ends_within_its_grace(self, case: ProviderCase) -> None:
        pod = case.pod()
        runs = await case.started(pod)
        await case.until(pod.uid, is_in(RunPhase.RUNNING))
        kill_at = case.clock.now() + timedelta(seconds=5)
        ending = tuple(replace(run, kill_at=kill_at) for run in runs)
        await case.provider.update(pod.uid, ending)
        await case.provider.update(pod.uid, ending)
        run = (await case.until(pod.uid, is_in(RunPhase.EXITED))).runs["main"]
        assert run.finished_at is not None
        assert run.finished_at <= kill_at + timedelta(seconds=2)

    async def test_what_is_not_named_any_more_ends(self, case: ProviderCase) -> None:
        pod = case.pod()
        await case.started(pod)
        await case.until(pod.uid, is_in(RunPhase.RUNNING))
        await case.provider.update(pod.uid, ())
        await case.until(pod.uid, is_in(RunPhase.EXITED))

    async def test_deleting_forgets_the_pod_and_may_come_twice(self, case: ProviderCase) -> None:
        pod = case.pod()
        await case.started(pod)
        await case.until(pod.uid, is_in(RunPhase.RUNNING))
        await case.provider.delete(pod.uid)
        await case.provider.delete(pod.uid)
        assert case.provider.status(pod.uid) is None
        assert pod.uid not in case.provider.known()

    async def test_deleting_what_is_unknown_is_done(self, case: ProviderCase) -> None:
        await case.provider.delete("uid-nobody")

    async def test_updating_what_is_unknown_does_nothing(self, case: ProviderCase) -> None:
        await case.provider.update("uid-nobody", runs_of(case.pod()))
        assert case.provider.status("uid-nobody") is None

    async def test_a_report_does_not_change_after_it_was_given(self, case: ProviderCase) -> None:
        pod = case.pod()
        runs = await case.started(pod)
        given = await case.until(pod.uid, is_in(RunPhase.RUNNING))
        copy = (given.ip, dict(given.runs))
        await case.provider.update(pod.uid, tuple(replace(run, kill_at=case.clock.now()) for run in runs))
        await case.until(pod.uid, is_in(RunPhase.EXITED))
        assert (given.ip, dict(given.runs)) == copy

    async def test_whether_pods_have_addresses_of_their_own(self, case: ProviderCase) -> None:
        for name in ("a", "b"):
            await case.provider.create(Sandbox(case.pod(name)))
        one, other = (case.provider.status(f"uid-{name}") for name in ("a", "b"))
        assert one is not None
        assert other is not None
        assert (one.ip != other.ip) is case.provider.traits.own_addresses

    async def test_whether_pods_outlive_their_provider(self, case: ProviderCase) -> None:
        pod = case.pod()
        await case.started(pod)
        await case.until(pod.uid, is_in(RunPhase.RUNNING))
        assert case.is_alive is None or case.is_alive()
        await case.stop()
        assert (case.is_alive is not None and case.is_alive()) is case.provider.traits.outlives_us

    async def test_whether_containers_end_by_themselves(self, case: ProviderCase) -> None:
        assert isinstance(self, ContainerProviderSuite) is case.provider.traits.ends_by_itself

    async def test_adopting_starts_nothing(self, case: ProviderCase) -> None:
        pod = case.pod()
        await case.provider.adopt(pod)
        report = case.provider.status(pod.uid)
        assert report is None or report.runs == {}


class ContainerProviderSuite(ProviderSuite):
    """More laws, for providers whose containers may end by themselves."""

    async def test_an_attempt_that_has_ended_is_not_run_again(self, case: ProviderCase) -> None:
        pod = case.pod(exits=0)
        runs = await case.started(pod)
        before = await case.until(pod.uid, is_in(RunPhase.EXITED))
        await case.provider.update(pod.uid, runs)
        assert case.provider.status(pod.uid) == before

    async def test_exit_codes_are_reported(self, case: ProviderCase) -> None:
        pod = case.pod(exits=3)
        await case.started(pod)
        run = (await case.until(pod.uid, is_in(RunPhase.EXITED))).runs["main"]
        assert run.exit_code == 3
        assert run.started_at is not None
        assert run.finished_at is not None
        assert run.started_at <= run.finished_at

    async def test_a_next_attempt_replaces_the_one_that_ended(self, case: ProviderCase) -> None:
        pod = case.pod(exits=1)
        await case.started(pod)
        await case.until(pod.uid, is_in(RunPhase.EXITED))
        await case.provider.update(pod.uid, runs_of(pod, 1))
        await case.until(pod.uid, is_in(RunPhase.EXITED, attempt=1))
