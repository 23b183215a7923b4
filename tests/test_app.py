"""The composition root against a scripted server: connects, leads, stands by, and stops in time."""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from fairlead import app
from fairlead.app import Registry
from fairlead.cluster.clock import RealClock
from fairlead.cluster.errors import ClusterError, ConfigurationError
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.mirrors import CATCH_UP_S, caught_up
from fairlead.cluster.watch import Watch
from fairlead.lifecycle import stopped_by_signals, until_stopped
from fairlead.model.intents import Bind, RecordEvent, Regarding
from fairlead.model.kinds import POD_OBJECTS
from fairlead.model.meta import ApiObject
from fairlead.placement.capability import profiles
from fairlead.runtime import Capability, Runtime, find_connection, lease_name, member_lease
from fairlead.settings import (
    BadSettings,
    LeaseSettings,
    ModuleSettings,
    OpeningSettings,
    Settings,
    WebhookSettings,
    load,
)
from fairlead.testing.capabilities import while_leading
from fairlead.testing.clock import ManualClock, settle
from fairlead.testing.scripted_server import (
    Answer,
    RecordedRequest,
    ScriptedServer,
    Then,
    bookmark,
    event,
    failure,
    reply,
    silence,
    stream,
)
from tests.no_task_left import no_task_left as no_task_left

# A second or so, on a machine that is busy with other tests; what must not be is a wait for a grace of ten.
QUICKLY_S = 9.0
LEASES = "/apis/coordination.k8s.io/v1/namespaces/fairlead-system/leases"
LEASE = f"{LEASES}/fairlead"


def held_by(holder: str, name: str = "fairlead", version: int = 1) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "fairlead-system", "uid": "u", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15}}


class Cluster:
    """As much of an API server as a process without capabilities needs: a version and one lease."""

    def __init__(self, server: ScriptedServer, folder: Path) -> None:
        self.server = server
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self._folder = folder
        server.always("GET /version", reply({"gitVersion": "v1.36.2"}))
        server.always("GET /readyz", reply(b"ok"))
        server.always(f"WATCH {LEASES}", self._watch)
        server.always(f"GET {LEASE}", lambda _: reply(self.lease) if self.lease else failure(404))
        server.always(f"POST {LEASES}", self._store)
        server.always(f"PUT {LEASE}", self._store)

    def hold(self, holder: str) -> None:
        self.version += 1
        self.lease = held_by(holder, version=self.version)

    def _store(self, seen: RecordedRequest) -> Answer:
        self.version += 1
        body = seen.json()
        self.lease = {**body, "metadata": {**body["metadata"], "uid": "u", "resourceVersion": str(self.version)}}
        return reply(self.lease)

    def _watch(self, seen: RecordedRequest) -> Answer:
        first = [event("ADDED", self.lease)] if self.lease else []
        ends = bookmark(str(self.version or 1), kind="Lease", ends_initial=True)
        return stream(*first, ends, then=Then.HANG)

    @property
    def holder(self) -> str:
        return str(self.lease["spec"].get("holderIdentity", "")) if self.lease else ""

    def settings(self, **changes: Any) -> Settings:
        path = self._folder / "kubeconfig"
        content = {
            "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": self.server.url}}],
            "contexts": [{"name": "c", "context": {"cluster": "k"}}],
        }
        path.write_text(json.dumps(content))
        return Settings(**({"kubeconfig": str(path), "listen": "127.0.0.1:0", "identity": "me"} | changes))


@pytest.fixture
async def cluster(no_task_left: None, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with ScriptedServer() as server:
        yield Cluster(server, tmp_path)


@asynccontextmanager
async def serving(
    settings: Settings, known: Registry | None = None
) -> AsyncIterator[tuple[asyncio.Task[None], asyncio.Event]]:
    stop = asyncio.Event()
    task = asyncio.create_task(app.serve(settings, clock=RealClock(), rng=lambda: 0.0, stop=stop, known=known or {}))
    try:
        yield task, stop
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# --- serving ----------------------------------------------------------------------------------------------


async def test_it_leads_until_stopped_and_gives_the_lease_back(cluster: Cluster) -> None:
    async with serving(cluster.settings()) as (task, stop):
        await cluster.server.wait_for(lambda: cluster.holder == "me")
        stop.set()
        await asyncio.wait_for(task, QUICKLY_S)
    assert cluster.holder == ""
    await cluster.server.wait_until_left(QUICKLY_S)


async def test_a_standby_stops_at_once(cluster: Cluster) -> None:
    cluster.hold("other")
    async with serving(cluster.settings()) as (task, stop):
        await cluster.server.wait_for(lambda: bool(cluster.server.requests_for(f"GET {LEASE}")))
        stop.set()
        await asyncio.wait_for(task, QUICKLY_S)
    assert cluster.holder == "other"


async def test_cancelling_ends_everything_within_a_second_and_lets_the_lease_run_out(cluster: Cluster) -> None:
    begun = asyncio.Event()

    async def work(runtime: Runtime) -> None:
        begun.set()
        await runtime.stop.wait()

    capabilities = {"placement": while_leading(work)}
    async with serving(cluster.settings(capabilities=("placement",)), capabilities) as (task, _):
        await asyncio.wait_for(begun.wait(), QUICKLY_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, QUICKLY_S)
    assert cluster.holder == "me", "a write may be on its way: nobody else may start before it is over"
    await cluster.server.wait_until_left(QUICKLY_S)


@pytest.mark.parametrize("answer", [silence(), failure(503), reply(b"<html>")], ids=["hangs", "busy", "a proxy's page"])
async def test_stopping_does_not_wait_for_a_cluster_that_does_not_answer(cluster: Cluster, answer: Answer) -> None:
    cluster.server.always("GET /version", answer)
    async with serving(cluster.settings()) as (task, stop):
        await cluster.server.wait_for_requests(1)
        stop.set()
        await asyncio.wait_for(task, QUICKLY_S)
    assert cluster.server.requests_for(f"GET {LEASE}") == []


async def test_a_cluster_that_comes_late_is_waited_for(cluster: Cluster) -> None:
    cluster.server.on("GET /version", failure(503), reply(b"not yet"))
    async with serving(cluster.settings()) as (task, stop):
        await cluster.server.wait_for(lambda: cluster.holder == "me", 10)
        stop.set()
        await asyncio.wait_for(task, QUICKLY_S)
    assert (len(cluster.server.requests_for("GET /version")), cluster.holder) == (3, "")


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        pytest.param(failure(403), ClusterError, r"refused us for \d+ s: GET /version: 403", id="refused"),
        pytest.param(failure(503), ClusterError, r"gave no answer for \d+ s: GET /version: 503", id="silent"),
        pytest.param(
            reply({"gitVersion": "v1.29.14"}),
            ConfigurationError,
            r"the server is Kubernetes v1\.29\.14; Fairlead needs 1\.30 or newer",
            id="too old",
        ),
    ],
)
async def test_a_cluster_that_will_not_do_ends_the_run(
    cluster: Cluster, answer: Answer, error: type[Exception], said: str
) -> None:
    cluster.server.always("GET /version", answer)
    async with serving(cluster.settings(opening=OpeningSettings(refused_s=0.1, silent_s=0.1))) as (task, _):
        with pytest.raises(error, match=said):
            await asyncio.wait_for(task, QUICKLY_S)


@pytest.mark.parametrize("version", ["v1.30.0-eks-1", "1.31+", "v2.0.0", "something"])
async def test_versions_it_runs_on(cluster: Cluster, version: str) -> None:
    cluster.server.always("GET /version", reply({"gitVersion": version}))
    async with serving(cluster.settings()) as (task, stop):
        await cluster.server.wait_for(lambda: cluster.holder == "me")
        stop.set()
        await asyncio.wait_for(task, QUICKLY_S)
    assert (len(cluster.server.requests_for("GET /version")), cluster.holder) == (1, "")


# --- capabilities -----------------------------------------------------------------------------------------


async def test_a_capability_runs_while_leading_and_is_told_to_stop(cluster: Cluster) -> None:
    told: list[str] = []

    async def work(runtime: Runtime) -> None:
        told.append("begun")
        await runtime.stop.wait()
        told.append("told to stop")
        bound = await runtime.writer.carry_out(Bind(namespace="ns", name="p", uid="u", node="n"))
        told.append(bound.outcome)

    cluster.server.always("POST /api/v1/namespaces/ns/pods/p/binding", reply({}))
    async with serving(cluster.settings(capabilities=("placement",)), {"placement": while_leading(work)}) as (
        task,
        stop,
    ):
        await cluster.server.wait_for(lambda: cluster.holder == "me")
        await settle()
        stop.set()
        await asyncio.wait_for(task, QUICKLY_S)
    assert told == ["begun", "told to stop", "done"]
    assert cluster.holder == "", "given back after the last write"
    assert cluster.server.requests[-1].method == "PUT"


@pytest.mark.parametrize("status", [403, 404], ids=["nothing may be read", "no kind is there"])
@pytest.mark.parametrize("names", [("placement", "jobs"), ("data",), ("tasks",), ("modules",)], ids=",".join)
async def test_a_leader_without_work_stops_at_once(cluster: Cluster, names: tuple[str, ...], status: int) -> None:
    leases: dict[str, dict[str, Any]] = {}

    def others(seen: RecordedRequest) -> Answer:
        folder, _, name = seen.path.rpartition("/")
        if seen.method == "POST" and seen.path == LEASES:
            name, folder = seen.json()["metadata"]["name"], LEASES
        if folder != LEASES or (seen.method == "GET" and name not in leases):
            return failure(404 if folder == LEASES else status)
        if seen.method in ("POST", "PUT"):
            metadata = {**seen.json()["metadata"], "uid": "u", "resourceVersion": str(len(cluster.server.requests))}
            leases[name] = {**seen.json(), "metadata": metadata}
        return reply(leases.pop(name) if seen.method == "DELETE" else leases[name])

    for key in (f"GET {LEASE}", f"POST {LEASES}", f"PUT {LEASE}", "*"):
        cluster.server.always(key, others)
    anywhere = "127.0.0.1:0"
    settings = cluster.settings(
        capabilities=names,
        webhooks=WebhookSettings(listen=anywhere, drain_s=0.0),
        modules=ModuleSettings(listen=anywhere),
    )
    lease = "fairlead" if "placement" in names else f"fairlead-{names[0]}"

    def holder() -> str:
        return str(leases[lease]["spec"]["holderIdentity"]) if lease in leases else "nobody"

    with capture_logs() as logs:
        async with serving(settings, app.CAPABILITIES) as (task, stop):
            await cluster.server.wait_for(lambda: holder() == "me", 60)
            await settle()
            stop.set()
            await asyncio.wait_for(task, 60)
    assert [each for each in logs if each["event"] == "not finished within the grace period, cancelled"] == []
    assert holder() == ""


async def test_what_a_capability_says_is_recorded(cluster: Cluster) -> None:
    async def work(runtime: Runtime) -> None:
        regarding = Regarding(kind="Pod", name="p", namespace="ns")
        runtime.recorder.record(RecordEvent(regarding=regarding, reason="R", action="A", note="n"))

    events = "POST /apis/events.k8s.io/v1/namespaces/ns/events"
    cluster.server.always(events, reply({"metadata": {"name": "e"}}))
    async with serving(cluster.settings(capabilities=("placement",)), {"placement": while_leading(work)}) as (
        task,
        stop,
    ):
        await cluster.server.wait_for(lambda: bool(cluster.server.requests_for(events)))
        stop.set()
        await asyncio.wait_for(task, QUICKLY_S)
    (seen,) = cluster.server.requests_for(events)
    assert (seen.json()["reportingController"], seen.json()["reportingInstance"]) == ("fairlead", "me")


async def test_a_standby_does_no_work(cluster: Cluster) -> None:
    begun = asyncio.Event()

    async def work(runtime: Runtime) -> None:
        begun.set()

    cluster.hold("other")
    async with serving(cluster.settings(capabilities=("placement",)), {"placement": while_leading(work)}) as (
        task,
        stop,
    ):
        await cluster.server.wait_for(lambda: bool(cluster.server.requests_for(f"GET {LEASE}")))
        await settle()
        assert not begun.is_set()
        stop.set()
        await asyncio.wait_for(task, QUICKLY_S)


async def test_a_capability_that_fails_ends_the_run_and_gives_the_lease_back(cluster: Cluster) -> None:
    async def work(runtime: Runtime) -> None:
        raise RuntimeError("oops")

    async with serving(cluster.settings(capabilities=("placement",)), {"placement": while_leading(work)}) as (
        task,
        _,
    ):
        with pytest.raises(ExceptionGroup) as caught:
            await asyncio.wait_for(task, QUICKLY_S)
    assert caught.group_contains(RuntimeError, match="oops")
    assert cluster.holder == ""


async def test_a_capability_that_is_not_in_this_version_is_a_mistake(cluster: Cluster) -> None:
    with pytest.raises(BadSettings, match=r"capabilities: nosuch is not in this version; there is: "):
        await app.serve(
            cluster.settings(capabilities=("nosuch",)), clock=ManualClock(), rng=lambda: 0.0, stop=asyncio.Event()
        )


async def test_a_capability_that_needs_another_says_so(cluster: Cluster) -> None:
    class Jobs(Capability):
        name = "jobs"
        needs = ("placement",)
        leads_under = "placement"

    known = {"jobs": Jobs}
    with pytest.raises(BadSettings, match=r"jobs needs placement in the same process; use --capabilities placement,"):
        await app.serve(
            cluster.settings(capabilities=("jobs",)),
            clock=ManualClock(),
            rng=lambda: 0.0,
            stop=asyncio.Event(),
            known=known,
        )


def test_every_capability_has_a_lease_of_its_own_but_those_that_lead_under_another() -> None:
    class Under(Capability):
        name = "jobs"
        leads_under = "placement"

    class Data(Capability):
        name = "data"

    names = [lease_name(each, Settings()) for each in (app.CAPABILITIES["placement"], Under, Data)]
    assert names == ["fairlead", "fairlead", "fairlead-data"]


async def test_every_replica_works_under_a_lease_of_its_own(cluster: Cluster) -> None:
    class Works(Capability):
        name = "modules"

        async def work(self, member: Runtime) -> None:
            await member.writer.carry_out(Bind(namespace="ns", name="p", uid="u", node="n"))
            await member.stop.wait()

    binding = "POST /api/v1/namespaces/ns/pods/p/binding"
    cluster.server.always(binding, reply({}))
    mine = member_lease("fairlead", "me")
    cluster.server.always(f"GET {LEASES}/{mine}", failure(404))
    cluster.server.always(f"PUT {LEASES}/{mine}", lambda seen: reply(seen.json()))
    cluster.server.always(f"DELETE {LEASES}/{mine}", reply({}))
    cluster.server.always(f"GET {LEASES}/fairlead-modules", reply(held_by("other", "fairlead-modules")))
    async with serving(cluster.settings(capabilities=("modules",)), {"modules": Works}) as (task, stop):
        await cluster.server.wait_for(lambda: bool(cluster.server.requests_for(binding)))
        stop.set()
        await asyncio.wait_for(task, QUICKLY_S)
    taken = [seen.json()["metadata"]["name"] for seen in cluster.server.requests_for(f"POST {LEASES}")]
    assert taken == [mine], "the standby took its member lease and no other"
    assert len(cluster.server.requests_for(f"DELETE {LEASES}/{mine}")) == 1, "a replica that ends takes its lease along"


@pytest.mark.parametrize("identity", ["host_1a2b", "A" * 300, "..", "ü/x"])
def test_the_name_of_a_member_lease_is_valid(identity: str) -> None:
    name = member_lease("fairlead", identity)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)
    assert len(name) <= 63


async def test_lease_times_are_the_settings(cluster: Cluster) -> None:
    lease = LeaseSettings(duration_s=20, renew_deadline_s=12.0, retry_s=3.0, name="other")
    cluster.server.always(f"GET {LEASES}/other", failure(404))
    async with serving(cluster.settings(lease=lease)) as (task, stop):
        await cluster.server.wait_for(lambda: cluster.lease is not None)
        stop.set()
        cluster.server.always(f"PUT {LEASES}/other", reply({"metadata": {}}))
        await asyncio.wait_for(task, QUICKLY_S)
    made = cluster.server.requests_for(f"POST {LEASES}")[0].json()
    assert (made["metadata"]["name"], made["spec"]["leaseDurationSeconds"]) == ("other", 20)


# --- which cluster ----------------------------------------------------------------------------------------


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return monkeypatch


def test_no_cluster_at_all_is_a_sentence(nowhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        find_connection(Settings(), ManualClock())
    assert str(caught.value) == (
        f"no cluster to run against: no kubeconfig at {tmp_path}/.kube/config and not running in a pod; "
        "name one with --kubeconfig or the KUBECONFIG variable"
    )


def test_in_a_pod_the_account_is_used(nowhere: pytest.MonkeyPatch) -> None:
    nowhere.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    nowhere.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(ConfigurationError, match=r"running in a pod, but .*token is missing"):
        find_connection(Settings(), ManualClock())


async def test_a_kubeconfig_beats_the_account(nowhere: pytest.MonkeyPatch, cluster: Cluster) -> None:
    nowhere.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    nowhere.setenv("KUBERNETES_SERVICE_PORT", "443")
    nowhere.setenv("KUBECONFIG", cluster.settings().kubeconfig)
    assert find_connection(Settings(), ManualClock()).server == cluster.server.url


@pytest.mark.parametrize("path", ["/nowhere/at/all", "x" * 5000], ids=["missing", "too long to exist"])
def test_a_kubeconfig_that_is_named_must_be_there(nowhere: pytest.MonkeyPatch, path: str) -> None:
    with pytest.raises(ConfigurationError, match=r"no kubeconfig at .*: name one with --kubeconfig"):
        find_connection(Settings(kubeconfig=path), ManualClock())


# --- stopping ---------------------------------------------------------------------------------------------


async def test_work_that_ends_first_is_answered() -> None:
    async def work() -> int:
        return 7

    assert await until_stopped(work(), asyncio.Event()) == 7


async def test_work_that_does_not_end_is_cancelled_after_its_grace() -> None:
    stop, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    stop.set()
    await asyncio.wait_for(until_stopped(work(), stop, lambda: 0.01), 60)
    assert ended.is_set()


async def test_work_may_use_its_grace() -> None:
    stop = asyncio.Event()

    async def work() -> str:
        await stop.wait()
        await asyncio.sleep(0.01)
        return "finished"

    stop.set()
    assert await until_stopped(work(), stop, lambda: 5.0) == "finished"


async def test_work_that_fails_is_told() -> None:
    async def work() -> None:
        raise ValueError("oops")

    with pytest.raises(ValueError, match="oops"):
        await until_stopped(work(), asyncio.Event())


async def test_the_first_signal_asks_and_the_second_insists() -> None:
    stop = asyncio.Event()

    async def main() -> None:
        with stopped_by_signals(stop):
            signal.raise_signal(signal.SIGTERM)
            await asyncio.wait_for(stop.wait(), 60)
            signal.raise_signal(signal.SIGINT)
            await asyncio.Event().wait()

    running = asyncio.create_task(main())
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 60)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_every_scheduler_name_has_a_profile_of_that_name() -> None:
    served, _ = profiles(load(environment={}, flags={"schedulers": ["mine", "yours"]}))
    assert {name: profile.name for name, profile in served.items()} == {"mine": "mine", "yours": "yours"}


@pytest.mark.parametrize(
    ("condition_source", "reads_conditions"), [("both", True), ("taints", False), ("conditions", True)]
)
@pytest.mark.parametrize("scores", ["kube", "seed"])
def test_whether_node_conditions_count_can_be_set(condition_source: str, reads_conditions: bool, scores: str) -> None:
    settings = load(environment={}, flags={"nodeConditions": condition_source, "scores": scores})
    served, _ = profiles(settings)
    names = {rule.name for rule in served["fairlead"].predicates}
    assert ("CheckNodeCondition" in names) is reads_conditions
    assert ("NodeUnschedulable" in names) is (condition_source != "conditions")


def test_scores_weights_pick_and_load_can_be_set() -> None:
    flags = {"scores": "seed", "weights.add.w1": "3", "weights.add.w4": "0", "loadBasis": "max"}
    served, _ = profiles(load(environment={}, flags=flags))
    profile = served["fairlead"]
    assert {rule.name: weight for rule, weight in profile.priorities} == {
        "SeedFreeRatio": 3,
        "SeedEvenness": 1,
        "SeedServiceSpread": 1,
        "SeedForecast": 1,
    }
    assert (profile.args.pick, profile.args.load_basis) == ("round-robin", "max")
    for scores in ("kube", "seed"):
        for pick in ("first", "round-robin"):
            served, _ = profiles(load(environment={}, flags={"scores": scores, "pick": pick}))
            assert served["fairlead"].args.pick == pick


def test_forecasts_count_wherever_they_are_read(tmp_path: Path) -> None:
    def counted(**flags: str) -> dict[str, set[str]]:
        served, _ = profiles(load(environment={}, flags=flags))
        return {name: {rule.name for rule, _ in profile.priorities} for name, profile in served.items()}

    assert "NodeLoadForecast" not in counted()["fairlead"]
    read = {"forecast.source": "configmap"}
    assert "NodeLoadForecast" in counted(**read)["fairlead"]
    assert "SeedForecast" in counted(**read, scores="seed")["fairlead"]
    config = tmp_path / "scheduler.yaml"
    config.write_text(
        "profiles: [{schedulerName: mine}, {schedulerName: without, "
        "plugins: {score: {disabled: [{name: NodeLoadForecastPriority}]}}}]"
    )
    found = counted(**read, schedulerConfig=str(config))
    assert ("NodeLoadForecast" in found["mine"], "NodeLoadForecast" in found["without"]) == (True, False)


# --- taking over ------------------------------------------------------------------------------------------


async def test_a_new_leader_waits_for_a_watch_that_was_broken_when_it_took_over() -> None:
    """Else it would decide on what it saw before, and sell room that the leader before it has sold."""
    clock, watch = ManualClock(), SimpleNamespace(listed_at_s=0.0, open_since_s=None)
    mirror = Mirror(cast("Watch[ApiObject]", watch), POD_OBJECTS, Metrics())
    await clock.advance(100.0)
    waiting = asyncio.create_task(caught_up([mirror], clock, asyncio.Event()))
    await clock.advance(30.0)
    assert not waiting.done()
    watch.open_since_s = clock.elapsed_s()
    await clock.advance(0.5)
    assert not waiting.done(), "what it missed is on its way"
    await clock.advance(1.0)
    await asyncio.wait_for(waiting, 60)


async def test_a_warm_standby_waits_for_nothing_and_one_that_is_stopped_no_longer() -> None:
    clock, stop = ManualClock(), asyncio.Event()
    warm = SimpleNamespace(listed_at_s=0.0, open_since_s=0.0)
    cold = SimpleNamespace(listed_at_s=0.0, open_since_s=None)
    await clock.advance(100.0)
    mirrors = [Mirror(cast("Watch[ApiObject]", watch), POD_OBJECTS, Metrics()) for watch in (warm, cold)]
    await asyncio.wait_for(caught_up(mirrors[:1], clock, stop), 60)
    waiting = asyncio.create_task(caught_up(mirrors, clock, stop))
    await clock.advance(10.0)
    assert not waiting.done(), "the cold one is waited for"
    stop.set()
    await clock.advance(CATCH_UP_S)
    await asyncio.wait_for(waiting, 60)
    assert clock.elapsed_s() == pytest.approx(110.0 + CATCH_UP_S), "the warm one was not"
