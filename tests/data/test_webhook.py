"""The shell around the webhook: live reads, absent kinds, plugins of others, reviews that are no pods, recordings."""

import asyncio
import copy
import json
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from prometheus_client import CollectorRegistry

from fairlead.cluster.errors import Forbidden, Status, Unavailable, no_answer
from fairlead.data.draft import Draft
from fairlead.data.drains import SCALE_IN_TO
from fairlead.data.facts import Ref
from fairlead.data.fluid_reviews import FluidReviews
from fairlead.data.mutate import MutateOptions
from fairlead.data.objects import DATASETS, Dataset
from fairlead.data.plugin import Plugin, PluginContext, Policy
from fairlead.data.profile import PluginProfile, Step, parse
from fairlead.data.running import OPEN_AFTER, OPEN_S, THREADS, PluginRunner
from fairlead.data.spec import DataGroup
from fairlead.data.webhook import DataMetrics, DataWebhook, PodRecorder, ProfileFile
from fairlead.web.admission import GroupVersionKind, Review
from tests.data.objects import KINDS, SERVERFUL, SERVERLESS, dataset, reader, whole
from tests.data.test_drains import World


class Shell:
    """A webhook on objects that are mirrored, or only on the server."""

    def __init__(self, mirrored: list[Any], on_server: list[Any], **options: Any) -> None:
        self.registry = CollectorRegistry()
        metrics = DataMetrics(self.registry)
        self.reads: list[str] = []
        self.server = _objects(on_server)
        self.failure: Exception | None = None
        self.now_s = 0.0
        self.profile = ProfileFile("", metrics)
        self.runner = PluginRunner(options.pop("budget_s", 2.0), lambda: self.now_s)
        absent = options.pop("absent", False)
        self.webhook = DataWebhook(
            mirrored=_objects(mirrored).get,
            read=self._read,
            is_absent=lambda: absent,
            profile=self.profile,
            options=lambda: MutateOptions(**options),
            runner=self.runner,
            metrics=metrics,
            now_s=lambda: self.now_s,
        )

    async def _read(self, ref: Ref) -> Any:
        self.reads.append(f"{ref.kind.kind} {ref.key}")
        if self.failure is not None:
            raise self.failure
        return self.server.get(ref)


def _objects(found: list[Any]) -> dict[Ref, Any]:
    kinds = {kind.kind: kind for kind in KINDS}
    return {
        Ref(kinds[each["kind"]], each["metadata"].get("namespace", ""), each["metadata"]["name"]): msgspec.convert(
            each, kinds[each["kind"]].struct
        )
        for each in found
    }


def review(pod: Any, **more: Any) -> Review:
    values = {"uid": "u", "operation": "CREATE", "kind": GroupVersionKind("", "v1", "Pod"), "namespace": "default"}
    return Review(**{**values, "object": pod, **more})


async def test_s11_what_no_mirror_has_is_read_once() -> None:
    claim, dataset, runtime = whole("hbase")
    shell = Shell([runtime], [claim, dataset])
    verdict = await shell.webhook.by_label(review(reader("hbase")))
    assert (verdict.allowed, bool(verdict.patch)) == (True, True)
    assert shell.reads == ["PersistentVolumeClaim default/hbase", "Dataset default/hbase"]
    counted = shell.registry.get_sample_value("fairlead_data_live_reads_total", {"kind": "Dataset"})
    assert counted == 1


async def test_s70_with_warm_mirrors_nothing_is_read() -> None:
    """How fast that is, and in how much memory, `scripts/bench admission` measures."""
    shell = Shell(whole("hbase"), [])
    verdicts = [await shell.webhook.by_label(review(reader("hbase"))) for _ in range(100)]
    assert (all(each.patch for each in verdicts), shell.reads) == (True, [])


async def test_s62_what_the_server_does_not_have_either_refuses_the_pod() -> None:
    verdict = await Shell([], []).webhook.by_label(review(reader("gone")))
    assert (verdict.allowed, verdict.code) == (False, 500)


async def test_s82_a_read_that_is_forbidden_is_our_failure_and_no_verdict() -> None:
    shell = Shell([], [])
    shell.failure = Forbidden("GET", Status(code=403, message="no"))
    with pytest.raises(Forbidden):
        await shell.webhook.by_label(review(reader("hbase")))


async def test_s63_a_dataset_that_nobody_can_read_refuses_the_pod_with_its_field() -> None:
    claim, _, runtime = whole("hbase")
    shell = Shell([claim, runtime], [])
    shell.failure = no_answer("GET datasets", "not a Dataset", may_have_happened=False)
    shell.failure.__cause__ = msgspec.ValidationError("Expected `str`, got `int` - at `$.status.ufsTotal`")
    verdict = await shell.webhook.by_label(review(reader("hbase")))
    sentence = "Dataset default/hbase cannot be read: Expected `str`, got `int` - at `$.status.ufsTotal`"
    assert (verdict.allowed, verdict.code, verdict.message) == (False, 500, sentence)
    shell.failure.__cause__ = None
    with pytest.raises(Unavailable):
        await shell.webhook.by_label(review(reader("hbase")))


async def test_s64_without_fluids_kinds_nothing_is_changed() -> None:
    shell = Shell([], [], absent=True)
    verdict = await shell.webhook.by_label(review(reader("hbase")))
    assert (verdict.allowed, verdict.patch, shell.reads) == (True, (), [])


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"operation": "DELETE"}, id="a deletion"),
        pytest.param({"object": None}, id="no object"),
        pytest.param({"kind": GroupVersionKind("apps", "v1", "Deployment")}, id="a Deployment"),
        pytest.param({"sub_resource": "binding"}, id="a subresource"),
    ],
)
async def test_s60_what_is_no_creation_of_a_pod_passes(more: Any) -> None:
    verdict = await Shell(whole("hbase"), []).webhook.by_label(review(reader("hbase"), **more))
    assert (verdict.allowed, verdict.patch) == (True, ())


class Foreign:
    name = "Foreign"
    policy: Policy = "ignore"

    def __init__(self, wait: threading.Event | None = None, problem: str = "") -> None:
        self.wait, self.problem, self.calls = wait, problem, 0

    def mutate(self, draft: Draft, context: PluginContext) -> bool:
        self.calls += 1
        draft.annotate("foreign", "was here")
        if self.problem:
            raise ValueError(self.problem)
        if self.wait is not None:
            self.wait.wait(20)
        return False


def with_plugin(shell: Shell, plugin: Plugin) -> None:
    own = shell.profile.current.chain("serverful", True)
    step = Step(plugin, "ignore", is_foreign=True)
    shell.profile.current = PluginProfile({("serverful", True): (step, *own)})


async def test_s67_a_plugin_that_is_late_is_cut_off_and_the_others_count() -> None:
    held, shell = threading.Event(), Shell(whole("hbase"), [], budget_s=0.05)
    with_plugin(shell, Foreign(held))
    verdict = await shell.webhook.by_label(review(reader("hbase")))
    held.set()
    assert verdict.warnings == ["plugin Foreign was left out: did not end within 0.05 s"]
    assert "fluid.io/datasets-in-use" in json.dumps(verdict.patch)
    assert "foreign" not in json.dumps(verdict.patch)
    labels = {"plugin": "Foreign", "outcome": "late"}
    assert shell.registry.get_sample_value("fairlead_data_plugin_runs_total", labels) == 1


async def test_s67_a_plugin_gets_what_is_left_of_the_callers_time() -> None:
    held, shell = threading.Event(), Shell(whole("hbase"), [], budget_s=30.0)
    with_plugin(shell, Foreign(held))
    verdict = await shell.webhook.by_label(review(reader("hbase"), left_s=0.1))
    held.set()
    assert verdict.warnings == ["plugin Foreign was left out: did not end within 0.09 s"]
    assert "fluid.io/datasets-in-use" in json.dumps(verdict.patch)


async def test_a_plugin_that_hangs_takes_no_thread_of_another_and_does_not_keep_the_process() -> None:
    held, shell = threading.Event(), Shell(whole("hbase"), [], budget_s=0.01)
    hanging, other = Foreign(held), Foreign()
    other.name = "Other"
    with_plugin(shell, hanging)
    for turn in range(3 * THREADS):
        shell.now_s = turn * (OPEN_S + 1)
        await shell.webhook.by_label(review(reader("hbase")))
    assert hanging.calls == THREADS
    with_plugin(shell, other)
    assert "foreign" in json.dumps((await shell.webhook.by_label(review(reader("hbase")))).patch)
    assert all(each.daemon for each in threading.enumerate() if each.name == "fairlead-data-Foreign")
    held.set()


async def test_a_plugin_that_keeps_failing_is_not_called_for_a_while() -> None:
    plugin, shell = Foreign(problem="no"), Shell(whole("hbase"), [])
    with_plugin(shell, plugin)
    for _ in range(OPEN_AFTER + 3):
        await shell.webhook.by_label(review(reader("hbase")))
    assert plugin.calls == OPEN_AFTER
    shell.now_s = OPEN_S + 1
    await shell.webhook.by_label(review(reader("hbase")))
    assert plugin.calls == OPEN_AFTER + 1


async def test_a_plugin_of_another_profile_is_called_whatever_the_old_one_did() -> None:
    shell = Shell(whole("hbase"), [])
    with_plugin(shell, Foreign(problem="no"))
    for _ in range(OPEN_AFTER):
        await shell.webhook.by_label(review(reader("hbase")))
    with_plugin(shell, Foreign())
    assert "foreign" in json.dumps((await shell.webhook.by_label(review(reader("hbase")))).patch)


def test_pods_are_recorded_up_to_a_bound_and_dry_runs_are_not(tmp_path: Path) -> None:
    recorder = PodRecorder(str(tmp_path / "pods"), 2)
    for dry_run in (True, False, False, False):
        recorder.record(review(reader("hbase"), dry_run=dry_run))
    recorder.close()
    lines = [json.loads(line) for line in (tmp_path / "pods").read_text().splitlines()]
    assert [each["metadata"]["namespace"] for each in lines] == ["default", "default"]
    again = PodRecorder(str(tmp_path / "pods"), 3)
    for _ in range(3):
        again.record(review(reader("hbase")))
    again.close()
    assert len((tmp_path / "pods").read_text().splitlines()) == 3, "the bound is that of the file"


def test_a_full_disk_costs_the_recording_and_not_the_pod() -> None:
    recorder = PodRecorder("/dev/full", 9)
    with structlog.testing.capture_logs() as logged:
        for _ in range(2):
            recorder.record(review(reader("hbase")))
        recorder.close()
    assert [each["event"] for each in logged] == ["no more pods are recorded"]


async def test_a_pod_that_is_refused_is_not_recorded() -> None:
    recorded: list[Any] = []
    shell = Shell(whole("hbase"), [])
    shell.webhook._record = recorded.append
    assert not (await shell.webhook.by_label(review(reader("nothing")))).allowed
    assert (await shell.webhook.by_label(review(reader("hbase")))).allowed
    assert [each.object["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] for each in recorded] == ["hbase"]


# --- Fluid's own objects ----------------------------------------------------------------------------------------------


def group(**status: Any) -> DataGroup:
    body = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"datasets": ["hbase"]}, "status": status}
    return msgspec.convert(body, DataGroup)


def known(*names: str) -> list[Dataset]:
    return [msgspec.convert(dataset(name, uid=f"{i:036d}"), Dataset) for i, name in enumerate(names)]


async def test_s51_a_worker_prefers_its_groups_nodes_and_where_it_is_read() -> None:
    labels = {"fluid.io/dataset": "default-hbase", "role": "alluxio-worker"}
    groups = [group(phase="Placed", nodes=["n3"])]
    fluid = FluidReviews(groups, known("imgs", "hbase"), no_drain, "warn")
    verdict = await fluid.worker(review(reader(labels=labels)))
    (patch,) = verdict.patch
    terms = patch["value"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert terms[0]["preference"]["matchExpressions"][0]["values"] == ["n3"]
    assert [each["weight"] for each in terms] == [100, 10, 20, 20, 20, 30]
    fuse = await fluid.worker(review(reader(labels={**labels, "role": "alluxio-fuse"})))
    assert fuse.patch == ()


async def test_s51_a_worker_of_a_dataset_with_a_long_name_is_known_by_its_uid() -> None:
    fluid = FluidReviews([], known("imgs", "h" * 60), no_drain, "warn")
    labels = {"fluid.io/dataset": f"{1:036d}", "role": "alluxio-worker"}
    (patch,) = (await fluid.worker(review(reader(labels=labels)))).patch
    terms = patch["value"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert {each["preference"]["matchExpressions"][0]["key"] for each in terms} == {f"data.fairlead.io/dm-{1:036d}"}


def scaled(before: Any, after: Any, kind: str = "AlluxioRuntime", annotation: str = "") -> Review:
    """A runtime's replicas change from one to the other; None stands for a spec without them."""

    def held(replicas: Any) -> dict[str, Any]:
        part = {} if replicas is None else {"replicas": replicas}
        annotations = {SCALE_IN_TO: annotation} if annotation else {}
        return {"metadata": {"annotations": annotations}, "spec": {"worker": part} if kind == "CacheRuntime" else part}

    of_kind = GroupVersionKind("data.fluid.io", "v1alpha1", kind)
    return review(held(after), old_object=held(before), operation="UPDATE", name="hbase", kind=of_kind)


@pytest.mark.parametrize("kind", ["AlluxioRuntime", "CacheRuntime", "Scale"])
@pytest.mark.parametrize(
    ("before", "after", "warns"),
    [
        (3, 2, True),
        (3, 3, False),
        (2, 3, False),
        pytest.param(3, None, True, id="no replicas are 0"),
        pytest.param(None, 1, False, id="from none"),
        pytest.param(3.0, 2.0, True, id="written as fractions"),
    ],
)
async def test_a_direct_scale_down_is_answered_with_the_command(
    before: Any, after: Any, warns: bool, kind: str
) -> None:
    asked = scaled(before, after, kind)
    verdict = await FluidReviews([], [], no_drain, "warn").scale(asked)
    assert (verdict.allowed, bool(verdict.warnings)) == (True, warns)
    if warns:
        assert f"fairlead data scale default/hbase --replicas {int(after or 0)}" in verdict.warnings[0]
    assert (await FluidReviews([], [], no_drain, "deny").scale(asked)).allowed == (not warns)


async def test_s38_only_a_drain_that_is_over_may_lower_replicas() -> None:
    """The annotation of a wish is anybody's to write: what counts is that its readers have left."""
    world = World(replicas=3, wish="2")
    fluid = FluidReviews([], [], lambda key: world.seen() if key == "default/hbase" else None, "deny")

    async def allows(after: int, kind: str = "AlluxioRuntime") -> bool:
        return (await fluid.scale(scaled(3, after, kind, annotation="2"))).allowed

    assert not await allows(2), "no node is labelled"
    world.step()
    assert not await allows(2), "a pod may be on its way to the node"
    world.now += timedelta(seconds=6)
    world.readers = {"n2": ("default/p",)}
    assert not await allows(2), "a reader holds the node"
    world.readers = {}
    assert await allows(2)
    assert not await allows(1), "nobody drained the node of worker 1"
    assert not await allows(2, "JindoRuntime"), "another runtime of the same name"


def no_drain(key: str) -> None:
    return None


class Careless:
    """Does to a draft, or to the process, what no plugin should."""

    name = "Careless"
    policy: Policy = "ignore"

    def __init__(self, act: Callable[[Draft], Any]) -> None:
        self._act = act

    def mutate(self, draft: Draft, context: PluginContext) -> bool:
        draft.annotate("careless", "was here")
        return bool(self._act(draft))


def leave(draft: Draft) -> None:
    raise SystemExit(3)


def cancel(draft: Draft) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("act", "problem"),
    [
        pytest.param(leave, "SystemExit: 3", id="ends the process"),
        pytest.param(cancel, "CancelledError", id="cancels"),
        pytest.param(lambda draft: draft.pod.update(odd=object()), "TypeError", id="no JSON"),
        pytest.param(lambda draft: draft.spec.update(volumes=7), "spec.volumes: must be a list", id="no pod"),
        pytest.param(lambda draft: draft.spec.update(affinity=[]), "spec.affinity: must be an object", id="affinity"),
        pytest.param(lambda draft: setattr(draft, "pod", None), "must be a v1 Pod", id="nothing"),
        pytest.param(lambda draft: draft.warnings.append(5), "warnings", id="a warning that is no text"),
        pytest.param(lambda draft: setattr(draft, "warnings", None), "warnings", id="no warnings at all"),
    ],
)
async def test_what_a_careless_plugin_leaves_behind_is_dropped(act: Any, problem: str) -> None:
    shell = Shell(whole("hbase"), [])
    with_plugin(shell, Careless(act))
    verdict = await shell.webhook.by_label(review(reader("hbase")))
    assert verdict.allowed
    assert "careless" not in json.dumps(verdict.patch)
    assert "fluid.io/datasets-in-use" in json.dumps(verdict.patch)
    (warning,) = verdict.warnings
    assert warning.startswith("plugin Careless was left out: ")
    assert problem in warning


async def test_a_plugin_that_keeps_its_draft_changes_nothing_later() -> None:
    kept: list[Draft] = []
    shell = Shell(whole("hbase"), [])
    with_plugin(shell, Careless(kept.append))
    own = shell.profile.current.chain("serverful", True)

    class Meddler:
        name = "Meddler"
        policy: Policy = "ignore"

        def mutate(self, draft: Draft, context: PluginContext) -> bool:
            kept[0].annotate("late", "too late")
            return False

    shell.profile.current = PluginProfile({("serverful", True): (*own, Step(Meddler(), "ignore"))})
    verdict = await shell.webhook.by_label(review(reader("hbase")))
    assert "careless" in json.dumps(verdict.patch)
    assert "too late" not in json.dumps(verdict.patch)


async def test_a_plugin_in_two_lists_has_one_breaker() -> None:
    plugin, shell = Foreign(problem="no"), Shell(whole("hbase"), [])
    lists = "{withDataset: [Foreign, DatasetUsageInjector]}"
    shell.profile.current = parse(
        f"plugins: {{serverful: {lists}, serverless: {lists}}}", lambda name: lambda arguments: copy.copy(plugin)
    )
    warnings: list[str] = []
    for turn in range(2 * OPEN_AFTER):
        labels = SERVERFUL if turn % 2 else SERVERLESS
        verdict = await shell.webhook.by_label(review(reader("hbase", labels=labels)))
        warnings += verdict.warnings
    refusal = "plugin Foreign was left out: it failed too often and is not called for a while"
    assert warnings.count(refusal) == OPEN_AFTER


async def test_a_plugin_that_asks_for_what_is_only_on_the_server_has_not_failed() -> None:
    class Asks:
        name = "Asks"
        policy: Policy = "ignore"

        def mutate(self, draft: Draft, context: PluginContext) -> bool:
            found = context.sources.get(Ref(DATASETS, "default", "far"))
            draft.annotate("far", found.metadata.name)
            return False

    shell = Shell(whole("hbase"), [dataset("far")])
    with_plugin(shell, Asks())
    for _ in range(2 * OPEN_AFTER):
        verdict = await shell.webhook.by_label(review(reader("hbase")))
        assert '"far": "far"' in json.dumps(verdict.patch)
        assert not verdict.warnings
