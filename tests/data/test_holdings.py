"""What a node reports: by metrics of runtimes, by folders, by the page cache."""

import json
import re
import socket
import threading
from pathlib import Path

import msgspec
import pytest

from fairlead.cli.data import holdings, lines, readable, recorded_pods
from fairlead.data.capability import ADDITIONS
from fairlead.data.explain import dry_run, explain, matches
from fairlead.data.holdings import Holding, measure_folder, parse_metrics, report_body
from fairlead.data.mutate import MutateOptions
from fairlead.data.objects import DATASETS
from fairlead.data.plugin import LocalityOptions
from fairlead.data.profile import parse
from fairlead.data.spec import CacheNode, CacheReport
from fairlead.engine.locality import CacheMap, DatasetCache, NodeCache
from tests.data.objects import PROFILE, SERVERLESS, admit, node_affinity, reader, sources, term, whole
from tests.data.test_mutations import fuse_objects

RECORDED = Path(__file__).parent / "recorded"
ALLUXIO = (RECORDED / "alluxio-2.9.4.txt").read_text()
JUICEFS = (RECORDED / "juicefs-0.14.2.txt").read_text()


def test_a_recorded_alluxio_worker_says_what_it_holds_by_tier() -> None:
    # 15 blocks of a file of 70 MB, read through it; each tier with the megabyte that it was told to reserve.
    expected = Holding({"MEM": 61_611_392 + (1 << 20), "SSD": 1 << 20}, 320 << 20)
    assert parse_metrics(ALLUXIO) == expected
    assert parse_metrics("Worker_CapacityUsed 17\n") == Holding({"MEM": 17})


def test_a_recorded_alluxio_worker_without_blocks_holds_nothing() -> None:
    empty = (RECORDED / "alluxio-2.9.4-empty.txt").read_text()
    assert "Worker_CapacityUsed_127_0_0_1 2097152.0" in empty
    assert parse_metrics(empty) == Holding({}, 320 << 20)


def test_older_alluxio_workers_have_their_host_elsewhere_in_a_name() -> None:
    in_the_middle = re.sub(r"^Worker_(\w+?)_127_0_0_1", r"Worker_node_1_\1", ALLUXIO, flags=re.MULTILINE)
    without = re.sub(r"^Worker_(\w+?)_127_0_0_1", r"Worker_\1", ALLUXIO, flags=re.MULTILINE)
    assert [parse_metrics(each) for each in (in_the_middle, without)] == [parse_metrics(ALLUXIO)] * 2
    assert parse_metrics("Cluster_CapacityUsedTierMEM 5\nMaster_CapacityUsed 5\n") == Holding({})


def test_a_recorded_juicefs_mount_says_what_it_caches() -> None:
    assert parse_metrics(JUICEFS) == Holding({"SSD": 6_008_192})
    assert parse_metrics(JUICEFS, "MEM") == Holding({"MEM": 6_008_192})
    assert parse_metrics((RECORDED / "juicefs-1.3.1.txt").read_text()) == Holding({"SSD": 9_012_288})
    second = 'juicefs_blockcache_bytes{mp="/other",vol_name="imgs"}'
    assert parse_metrics(f"{JUICEFS}{second} 1e3\nnonsense\n") == Holding({"SSD": 6_009_192})
    assert parse_metrics(f"{second} NaN\n") == Holding({"SSD": 0})
    assert parse_metrics("") == Holding({})


def test_a_report_joins_folders_and_metrics_and_leaves_out_who_does_not_answer(tmp_path: Path) -> None:
    (tmp_path / "block").write_bytes(b"x" * 1000)
    mount, gone = (RECORDED / "juicefs-0.14.2.txt").as_uri(), (tmp_path / "gone").as_uri()
    folders = (f"ml/imgs:HDD:{tmp_path}", f"ml/nowhere:HDD:{tmp_path}/nowhere")
    held = holdings(folders, (f"ml/imgs:MEM={mount}", f"ml/logs={mount}", f"ml/other={gone}"))
    assert sorted(held) == ["ml/imgs", "ml/logs"]
    assert (held["ml/imgs"].tiers["MEM"], sum(held["ml/imgs"].tiers.values())) == (6_008_192, 6_009_192)
    assert held["ml/logs"].tiers == {"SSD": 6_008_192}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(b"garbage\r\n\r\n", "garbage", id="no HTTP"),
        pytest.param(b"", "Remote end closed connection", id="nothing"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\n\r\n<html>log in</html>", "no metrics of an Alluxio worker", id="another page"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\njuicefs_blockcache_bytes 62", "not whole", id="cut off"
        ),
        pytest.param(b"HTTP/1.1 503 Busy\r\n\r\njuicefs_blockcache_bytes 5\n", "503", id="an error"),
    ],
)
def test_metrics_that_are_none_are_said_and_not_reported(
    answer: bytes, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as caller:
                caller.recv(1 << 16)
                caller.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        assert holdings((), (f"ml/imgs=http://127.0.0.1:{server.getsockname()[1]}/metrics",)) == {}
        thread.join()
    assert problem in capsys.readouterr().err


def test_a_folder_is_measured_and_what_is_in_memory_counts_as_such(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a").write_bytes(b"x" * 100_000)
    (tmp_path / "b").write_bytes(b"y" * 50_000)
    (tmp_path / "link").symlink_to(tmp_path / "b")
    held = measure_folder(tmp_path, "SSD")
    assert sum(held.tiers.values()) == 150_000
    assert held.tiers["PageCache"] > 0, "just written"
    assert sum(measure_folder(tmp_path, "SSD", most_files=1).tiers.values()) in (100_000, 50_000)
    assert measure_folder(tmp_path / "none", "SSD").tiers == {"SSD": 0, "PageCache": 0}


def test_a_report_is_what_the_kind_takes() -> None:
    body = report_body("n1", {"ml/imgs": (Holding({"SSD": 5, "MEM": 0}, 9), "2026-05-01T00:00:00Z")})
    (held,) = msgspec.convert(body, CacheReport).spec.datasets
    assert (held.namespace, held.name, held.capacity_bytes) == ("ml", "imgs", 9)
    assert [(each.medium, each.bytes) for each in held.tiers] == [("SSD", 5)]


# --- explain ----------------------------------------------------------------------------------------------------------


def test_a_pod_with_sidecars_is_explained_by_what_is_still_known() -> None:
    pod = admit(reader("hbase", labels=SERVERLESS), fuse_objects()).pod
    cache = CacheMap({"default/hbase": DatasetCache(100.0, 0.0, {"n1": NodeCache(50.0, 50.0)})}, {})
    options = MutateOptions(locality=LocalityOptions(cache=cache))
    nodes = [msgspec.convert({"metadata": {"name": name}}, CacheNode) for name in ("n1", "n2")]
    found = explain(pod, "default", sources(fuse_objects()), PROFILE, options, nodes)
    assert (found.datasets, found.problem[:29]) == (("default/hbase",), "it brings the fuses of its da")
    assert [(each.node, each.local_share) for each in found.nodes] == [("n1", 0.5), ("n2", 0.0)]


def test_a_term_about_workers_is_found_in_the_pod_and_shown() -> None:
    text = "plugins: {serverful: {withoutDataset: [PreferNodesWithoutCache]}}\n"
    profile = parse(text + "pluginConfig: [{name: PreferNodesWithoutCache, args: {form: workers}}]")
    pod = admit(reader(), [], profile=profile).pod
    found = explain(pod, "default", sources([]), profile, MutateOptions(), [])
    assert [each.is_in_pod for each in found.terms] == [True]
    assert "100 against pods with role In alluxio-worker," in lines(found)[1]


CACHE = CacheMap(
    {"default/hbase": DatasetCache(100.0, 0.0, {"n1": NodeCache(80.0, 80.0), "n2": NodeCache(20.0, 20.0)})},
    {"default/hbase": "default/hbase"},
)


def node(name: str, **labels: str) -> CacheNode:
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, CacheNode)


def test_each_term_of_a_pod_is_explained_with_its_plugin_fact_and_effect() -> None:
    pod = dict(admit(reader("hbase"), whole("hbase"), whole_chain=True).pod)
    nodes = [node("n1", **{"fluid.io/s-default-hbase": "true"}), node("n2"),
             node("n3", **{"data.fluid.io/storage-scalein-default-hbase": "true"})]  # fmt: skip
    options = MutateOptions(locality=LocalityOptions(cache=CACHE))
    found = explain(pod, "default", sources(whole("hbase")), PROFILE, options, nodes)
    (liked,) = [each for each in found.terms if each.effect == "preferred"]
    assert (liked.plugin, liked.because, liked.is_in_pod) == (
        "NodeAffinityWithCache", "nodes with workers of default/hbase", True,
    )  # fmt: skip
    assert [(each.node, each.is_allowed, each.score, each.local_share) for each in found.nodes] == [
        ("n1", True, 100, 0.8), ("n2", True, 0, 0.2), ("n3", False, 0, 0.0),
    ]  # fmt: skip


def test_where_the_scheduler_scores_bytes_the_score_is_that_of_the_bytes() -> None:
    scoring = frozenset({"default-scheduler"})
    pod = dict(admit(reader("hbase"), whole("hbase"), whole_chain=True, scoring_schedulers=scoring).pod)
    options = MutateOptions(locality=LocalityOptions(cache=CACHE), additions=ADDITIONS)
    found = explain(
        pod, "default", sources(whole("hbase")), PROFILE, options, [node(name) for name in ("n1", "n2", "n3")]
    )
    assert found.scored_by == "DataLocality"
    assert [(each.node, each.score) for each in found.nodes] == [("n1", 100), ("n2", 25), ("n3", 0)]
    (line,) = [each for each in lines(found) if "preferred" in each]
    assert line.endswith("(not in the pod: its scheduler scores what nodes hold, LOCAL below)")


def test_a_pod_with_a_place_of_its_own_is_explained_by_that() -> None:
    own = {"weight": 7, "preference": term(("topology.kubernetes.io/zone", "In", ["z"]))}
    pod = dict(admit(reader("hbase", affinity=node_affinity(preferred=[own])), whole("hbase"), whole_chain=True).pod)
    options = MutateOptions(locality=LocalityOptions(cache=CACHE), additions=ADDITIONS)
    found = explain(pod, "default", sources(whole("hbase")), PROFILE, options, [node("n1"), node("n2")])
    affinity = [each for each in found.terms if each.plugin == "NodeAffinityWithCache"]
    assert [(each.effect, each.because) for each in affinity] == [
        ("nothing", "the pod has a rule of its own about topology.kubernetes.io/zone")
    ]
    assert (found.scored_by, [each.score for each in found.nodes]) == ("NodeAffinity", [0, 0])


def test_a_node_that_a_pod_names_by_a_field_is_allowed() -> None:
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}
    pod = dict(admit(reader("hbase", affinity=node_affinity([named])), whole("hbase"), whole_chain=True).pod)
    found = explain(pod, "default", sources(whole("hbase")), PROFILE, MutateOptions(), [node("n1"), node("n2")])
    assert [(each.node, each.is_allowed) for each in found.nodes] == [("n2", True), ("n1", False)]


def test_a_pod_that_could_not_be_created_now_says_why() -> None:
    found = explain(reader("hbase"), "default", sources([]), PROFILE, MutateOptions(), [])
    assert "claims of the pod do not exist" in found.problem


def test_a_dataset_that_cannot_be_read_hides_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    texts = ('{"metadata": {"name": "a"}}', '{"metadata": {"name": "b"}, "spec": {"mounts": 3}}', "[" * 100_000)
    found = readable(DATASETS, [msgspec.Raw(text.encode()) for text in texts])
    assert [each.metadata.name for each in found] == ["a"]
    assert "left out, not a Dataset: Expected `array | null`, got `int` - at `$.spec.mounts`" in capsys.readouterr().err


def test_pods_are_read_as_kubectl_and_the_webhook_write_them() -> None:
    pod = {"metadata": {"name": "p"}}
    texts = (json.dumps({"items": [pod]}), json.dumps(pod, indent=2), f"{json.dumps(pod)}\n", json.dumps([pod]))
    assert [recorded_pods(text) for text in texts] == [[pod]] * 4
    assert recorded_pods(f"{json.dumps(pod)}\n\n{json.dumps(pod)}\n") == [pod, pod]
    assert recorded_pods('{"items": null}') == []


def test_levels_are_compared_as_numbers() -> None:
    above = term(("level", "Gt", ["4"]))
    assert [matches(above, {"level": text}) for text in ("5", "4", "10", "x", "")] == [True, False, True, False, False]
    assert not matches(above, {})
    assert not matches({}, {"level": "5"})


def test_a_dry_run_says_what_was_local_and_what_could_be() -> None:
    def ran(name: str, on: str) -> dict[str, object]:
        pod = reader(name, nodeName=on)
        pod["metadata"]["namespace"] = "default"
        return pod

    found = dry_run([ran("hbase", "n1"), ran("hbase", "n2"), ran("plain", "n1")], CACHE)
    assert (found.pods, found.pods_with_datasets, found.local_share, found.best_local_share) == (3, 2, 0.5, 0.8)
    assert (found.by_dataset, found.best_by_dataset) == ({"default/hbase": 0.5}, {"default/hbase": 0.8})


def test_a_dry_run_of_pods_recorded_before_they_had_a_node_says_what_could_be_local() -> None:
    pod = reader("hbase")
    pod["metadata"]["namespace"] = "default"
    found = dry_run([pod], CACHE)
    assert (found.pods_with_nodes, found.local_share, found.best_local_share) == (0, None, 0.8)
    assert (found.by_dataset, found.best_by_dataset) == ({}, {"default/hbase": 0.8})
