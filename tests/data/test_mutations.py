"""What the webhook adds to a pod, by the numbered scenarios of opting in, discovery, plugins and limits."""

import copy
import itertools
import json
import random
import time
from typing import Any

import pytest

from fairlead.data.draft import MOST_WARNINGS, PluginError
from fairlead.data.facts import MOST_REFERENCES
from fairlead.data.mutate import MOST_DATASETS, TOO_LARGE
from fairlead.data.plugin import LocalityOptions, PluginContext
from fairlead.data.profile import DEFAULT, PluginProfile, Step, parse
from fairlead.engine.locality import CacheMap, DatasetCache
from fairlead.testing.parity_data import applied
from tests.data.objects import (
    REGION,
    SERVERFUL,
    SERVERLESS,
    ZONE,
    admit,
    claim,
    dataset,
    node_affinity,
    preferred_of,
    reader,
    required_of,
    runtime,
    term,
    whole,
)

HBASE = "fluid.io/s-default-hbase"


def on(key: str) -> tuple[str, str, list[str]]:
    return (key, "In", ["true"])


def off(name: str) -> tuple[str, str, list[str]]:
    return (f"data.fluid.io/storage-scalein-default-{name}", "NotIn", ["true"])


def preferred(weight: int, *expressions: tuple[str, str, list[str]]) -> dict[str, Any]:
    return {"weight": weight, "preference": term(*expressions)}


# --- opting in and discovery ------------------------------------------------------------------------------------------


def test_s01_a_pod_that_does_not_take_part_is_unchanged() -> None:
    assert admit(reader("hbase", labels={}), whole("hbase")).patch == []


def test_s02_a_namespace_opts_in_and_a_pod_out() -> None:
    taken = admit(reader("hbase", labels={}), whole("hbase"), by_namespace=True)
    assert preferred_of(taken.pod) == [preferred(100, on(HBASE))]
    left = admit(reader("hbase", labels={"Fluid-Injection": "disabled"}), whole("hbase"), by_namespace=True)
    assert (left.allowed, left.patch) == (True, ())


def test_s03_an_opt_out_label_wins_and_says_why() -> None:
    found = admit(reader("hbase", labels={**SERVERFUL, "fluid.io/enable-injection": "false"}), whole("hbase"))
    assert (found.allowed, found.patch, found.skipped) == (True, (), "label fluid.io/enable-injection: false")


def test_s05_a_claim_leads_to_its_dataset_and_runtime() -> None:
    (found,) = admit(reader("hbase"), whole("hbase", runtime="jindo")).datasets
    assert (found.dataset.key, found.runtime, found.fuse_set) == ("default/hbase", "jindo", "hbase-jindofs-fuse")


@pytest.mark.parametrize("name", ["wrap", "hbase"])
def test_s06_a_wrapped_claim_is_named_by_either_name(name: str) -> None:
    objects = [
        claim("wrap", labels={"fluid.io/managed-by": "hbase"}), dataset("hbase"), runtime("hbase"),
    ]  # fmt: skip
    found = admit(reader("wrap", labels={**SERVERFUL, f"fluid.io/dataset.{name}.sched": "required"}), objects)
    assert required_of(found.pod) == [term(on(HBASE))]


def test_s07_only_claims_of_datasets_count_and_they_are_sorted() -> None:
    objects = [*whole("b"), *whole("a"), claim("plain", labels={"x": "y"})]
    assert [each.claim for each in admit(reader("b", "plain", "a"), objects).datasets] == ["a", "b"]


def test_s08_a_reference_goes_where_the_data_is() -> None:
    labels = {
        "fluid.io/s-ref-link": "true",
        "fluid.io/dataset.referring-namespace": "big-data",
        "fluid.io/dataset.referring-name": "done",
    }
    objects = [
        claim("link", "ref", labels),
        dataset("link", "ref", runtime="thin", mounts=[{"mountPoint": "dataset://big-data/done"}]),
        runtime("link", "ref", kind="thin"),
    ]
    assert preferred_of(admit(reader("link"), objects, namespace="ref").pod) == [
        preferred(100, on("fluid.io/s-big-data-done"))
    ]


def reference(name: str, namespace: str, to: str) -> list[Any]:
    """A dataset that only refers to another, with its claim, which names the first step."""
    target, _, of = to.partition("/")
    labels = {
        f"fluid.io/s-{namespace}-{name}": "true",
        "fluid.io/dataset.referring-namespace": target,
        "fluid.io/dataset.referring-name": of,
    }
    mounts = [{"mountPoint": f"dataset://{to}/sub"}]
    return [
        claim(name, namespace, labels),
        dataset(name, namespace, runtime="thin", mounts=mounts),
        runtime(name, namespace, kind="thin"),
    ]


def test_s08_references_are_followed_to_the_end() -> None:
    objects = [*reference("a", "default", "two/b"), *reference("b", "two", "three/c"), *whole("c", namespace="three")]
    (found,) = admit(reader("a"), objects).datasets
    assert (found.dataset.key, found.physical.key) == ("default/a", "three/c")


@pytest.mark.parametrize("length", [2, MOST_REFERENCES + 5])
def test_references_that_lead_in_a_circle_or_too_far_end(length: int) -> None:
    ring = [each for i in range(length) for each in reference(f"d{i}", "default", f"default/d{(i + 1) % length}")]
    (found,) = admit(reader("d0"), ring).datasets
    assert found.physical.key in {f"default/d{i}" for i in range(length)}


def test_s09_a_dataset_that_is_not_bound_refuses_the_pod_in_its_own_words() -> None:
    conditions = [{"type": "NotReady", "message": "master is not ready"}]
    found = admit(reader("hbase"), whole("hbase", phase="NotBound", conditions=conditions))
    assert (found.allowed, found.code) == (False, 500)
    assert found.message == "claim hbase: Dataset default/hbase is not bound: master is not ready"


def test_s10_the_precheck_can_be_skipped() -> None:
    pod = reader("hbase", annotations={"sidecar.fluid.io/skip-precheck": "true"})
    assert preferred_of(admit(pod, whole("hbase", phase="NotBound")).pod)


def test_s11_a_migrating_dataset_is_used_with_a_warning() -> None:
    found = admit(reader("hbase"), whole("hbase", phase="DataMigrating"))
    assert found.allowed
    assert found.warnings == ["dataset default/hbase is being migrated; reads may be slow"]


def test_s12_a_claim_of_another_namespace_is_no_claim() -> None:
    found = admit(reader("hbase"), whole("hbase", "a"), namespace="b")
    assert (found.code, found.message) == (
        500, "claims of the pod do not exist in namespace b: hbase; create them first",
    )  # fmt: skip


# --- phase 1 ----------------------------------------------------------------------------------------------------------


def test_s13_one_preferred_term_where_nothing_is_declared() -> None:
    assert preferred_of(admit(reader("hbase"), whole("hbase")).pod) == [preferred(100, on(HBASE))]


def test_s14_declared_zone_and_region_follow_in_their_order() -> None:
    declared = [term((ZONE, "In", ["zone-a"]), (REGION, "In", ["region-a"]))]
    assert preferred_of(admit(reader("hbase"), whole("hbase", declared=declared)).pod) == [
        preferred(100, on(HBASE)),
        preferred(50, (ZONE, "In", ["zone-a"])),
        preferred(20, (REGION, "In", ["region-a"])),
    ]


def test_s15_a_required_dataset_is_required_and_not_preferred() -> None:
    pod = reader("hbase", labels={**SERVERFUL, "fluid.io/dataset.hbase.sched": "required"})
    found = admit(pod, whole("hbase")).pod
    assert (required_of(found), preferred_of(found)) == ([term(on(HBASE))], [])


def test_s16_two_required_datasets_are_both_required() -> None:
    labels = {f"fluid.io/dataset.{name}.sched": "required" for name in ("a", "b")}
    found = admit(reader("a", "b", labels={**SERVERFUL, **labels}), [*whole("a"), *whole("b")])
    assert required_of(found.pod) == [term(on("fluid.io/s-default-a"), on("fluid.io/s-default-b"))]


def test_s17_required_conditions_join_each_of_the_pods_terms_after_its_own() -> None:
    own = [term(("x", "Exists", [])), term(("y", "In", ["1", "2"]))]
    labels = {**SERVERFUL, "fluid.io/dataset.hbase.sched": "required"}
    found = admit(reader("hbase", labels=labels, affinity=node_affinity(own)), whole("hbase"))
    assert required_of(found.pod) == [term(("x", "Exists", []), on(HBASE)), term(("y", "In", ["1", "2"]), on(HBASE))]


def test_s18_a_pod_with_a_place_of_its_own_only_avoids_drains() -> None:
    own = [preferred(1, (ZONE, "In", ["z"]))]
    pod = reader("hbase", affinity=node_affinity(preferred=own))
    found = admit(pod, whole("hbase"), whole_chain=True).pod
    assert (preferred_of(found), required_of(found)) == (own, [term(off("hbase"))])


def test_s19_fuse_selectors_of_all_datasets_hold_together() -> None:
    objects = [*whole("a", fuse={"b": "2", "a": "1"}), *whole("c", fuse={"ssd": "1"})]
    found = admit(reader("a", "c"), objects).pod
    assert required_of(found) == [term(("a", "In", ["1"]), ("b", "In", ["2"]), ("ssd", "In", ["1"]))]


def test_s20_a_pod_without_data_leaves_cache_nodes_once() -> None:
    first = admit(reader())
    assert preferred_of(first.pod) == [preferred(100, ("fluid.io/dataset-num", "DoesNotExist", []))]
    assert admit(first.pod).patch == []


def test_s20_by_workers_it_keeps_away_from_their_pods() -> None:
    text = "plugins: {serverful: {withoutDataset: [PreferNodesWithoutCache]}}\n"
    text += "pluginConfig: [{name: PreferNodesWithoutCache, args: {form: workers}}]"
    found = admit(reader(), profile=parse(text)).pod
    (away,) = found["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert away["podAffinityTerm"]["labelSelector"]["matchExpressions"][0]["values"][:2] == [
        "alluxio-worker", "jindofs-worker",
    ]  # fmt: skip
    assert admit(found, profile=parse(text)).patch == []


def test_s21_a_mount_that_says_how_it_propagates_keeps_that() -> None:
    pod = reader("hbase")
    pod["spec"]["containers"].append(
        {"name": "b", "volumeMounts": [{"name": "v0", "mountPath": "/b", "mountPropagation": "Bidirectional"}]}
    )
    pod["spec"]["initContainers"] = [{"name": "i", "volumeMounts": [{"name": "v0", "mountPath": "/i"}]}]
    found = admit(pod, whole("hbase")).pod["spec"]
    kept = [each["volumeMounts"][0].get("mountPropagation") for each in found["containers"] + found["initContainers"]]
    assert kept == ["HostToContainer", "Bidirectional", None]
    text = "plugins: {serverful: {withDataset: [MountPropagationInjector]}}\n"
    text += "pluginConfig: [{name: MountPropagationInjector, args: {initContainers: true}}]"
    init = admit(pod, whole("hbase"), profile=parse(text)).pod["spec"]["initContainers"]
    assert init[0]["volumeMounts"][0]["mountPropagation"] == "HostToContainer"


def test_s22_datasets_in_use_are_joined_with_what_is_there() -> None:
    pod = reader("b", "a", annotations={"fluid.io/datasets-in-use": "z"})
    found = admit(pod, [*whole("a"), *whole("b")]).pod
    assert found["metadata"]["annotations"] == {"fluid.io/datasets-in-use": "a,b,z"}


@pytest.mark.parametrize(
    ("annotations", "sentence"),
    [
        pytest.param({}, "file-prefetcher.fluid.io/image", id="no image"),
        pytest.param({"image": "i", "async-prefetch": "maybe"}, "async-prefetch: must be true or false", id="no bool"),
        pytest.param({"image": "i", "prefetch-timeout-seconds": "1e3"}, "a whole number", id="no number"),
        pytest.param({"image": "i", "extra-envs": "A"}, "must be KEY=VALUE", id="no environment"),
    ],
)
def test_s23_a_prefetch_that_cannot_be_is_refused_by_name(annotations: dict[str, str], sentence: str) -> None:
    named = {f"file-prefetcher.fluid.io/{name}": value for name, value in {"inject": "true", **annotations}.items()}
    found = admit(reader("hbase", annotations=named), whole("hbase"))
    assert (found.allowed, found.code, found.patch) == (False, 403, ())
    assert sentence in found.message


def test_s23_files_of_other_claims_are_left_out_with_a_warning() -> None:
    prefix = "file-prefetcher.fluid.io/"
    named = {f"{prefix}inject": "true", f"{prefix}image": "i", f"{prefix}file-list": "pvc://other/x;pvc://hbase/a"}
    found = admit(reader("hbase", annotations=named), whole("hbase"))
    environment = found.pod["spec"]["containers"][0]["env"]
    assert environment[0] == {"name": "FILE_PREFETCHER_FILE_LIST", "value": "/data/v0/a"}
    assert found.warnings == [
        f"annotation {prefix}file-list: 'pvc://other/x' is no file of a dataset of this pod; left out"
    ]


def fuse_objects() -> list[dict[str, Any]]:
    fuse = {
        "name": "alluxio-fuse",
        "image": "fuse:1",
        "volumeMounts": [{"name": "alluxio-fuse-mount", "mountPath": "/mnt/hbase"}],
    }
    volumes = [{"name": "alluxio-fuse-mount", "hostPath": {"path": "/mnt/hbase"}}]
    attributes = {"fluid_path": "/mnt/hbase/fuse", "mount_type": "fuse.alluxio-fuse"}
    return [
        *whole("hbase"),
        {
            "kind": "DaemonSet",
            "metadata": {"name": "hbase-fuse", "namespace": "default"},
            "spec": {"template": {"spec": {"containers": [fuse], "volumes": volumes}}},
        },
        {
            "kind": "PersistentVolume",
            "metadata": {"name": "default-hbase"},
            "spec": {"csi": {"driver": "fuse.csi.fluid.io", "volumeAttributes": attributes}},
        },
    ]


def test_s24_a_sidecar_comes_before_the_containers_that_need_it() -> None:
    pod = reader("hbase", labels=SERVERLESS)
    pod["spec"]["initContainers"] = [{"name": "i", "volumeMounts": [{"name": "v0", "mountPath": "/i"}]}]
    found = admit(pod, fuse_objects())
    spec = found.pod["spec"]
    assert [each["name"] for each in spec["containers"]] == ["fluid-fuse-0", "app"]
    assert [each["name"] for each in spec["initContainers"]] == ["init-fluid-fuse-0", "i"]
    assert found.pod["metadata"]["labels"]["done.sidecar.fluid.io/inject"] == "true"
    assert admit(found.pod, fuse_objects()).patch == ()
    assert applied(pod, found.patch) == found.pod


def test_s04_both_labels_mean_a_sidecar_and_a_second_call_nothing() -> None:
    found = admit(reader("hbase", labels={**SERVERLESS, **SERVERFUL}), fuse_objects())
    assert [run.plugin for run in found.runs] == ["FilePrefetcher", "FuseSidecar", "DatasetUsageInjector"]
    assert admit(found.pod, fuse_objects()).patch == ()


def test_a_label_leaves_the_script_of_the_fuse_out() -> None:
    with_script = admit(reader("hbase", labels=SERVERLESS), fuse_objects())
    labels = {**SERVERLESS, "fuse.sidecar.poststart.fluid.io/inject": "false"}
    without = admit(reader("hbase", labels=labels), fuse_objects())
    assert "postStart" in with_script.pod["spec"]["containers"][0]["lifecycle"]
    assert "lifecycle" not in without.pod["spec"]["containers"][0]
    assert [name for _, name in without.side_objects] == ["check-fluid-mount-ready"]


def test_a_pod_that_brings_its_fuse_keeps_its_preferences_whoever_places_it() -> None:
    """A scheduler that scores cached bytes knows datasets by claims, and the sidecar has replaced those."""
    text = DEFAULT.replace("FuseSidecar, DatasetUsageInjector]", "FuseSidecar, NodeAffinityWithCache]")
    options: dict[str, Any] = {"scoring_schedulers": frozenset({"ours"}), "waiting_schedulers": frozenset({"ours"})}
    placed: dict[str, Any] = {"schedulerName": "ours"}
    found = admit(reader("hbase", labels=SERVERLESS, **placed), fuse_objects(), profile=parse(text), **options)
    assert preferred_of(found.pod) == [preferred(100, on(HBASE))]
    assert preferred_of(admit(reader("hbase", **placed), fuse_objects(), profile=parse(text), **options).pod) == []
    cache = CacheMap({"default/hbase": DatasetCache(fuse_needs={"cpu": 1})}, {})
    options |= {"locality": LocalityOptions(cache=cache), "whole_chain": True}
    found = admit(reader("hbase", labels=SERVERLESS, **placed), fuse_objects(), profile=parse(text), **options)
    assert preferred_of(found.pod) == [preferred(100, on(HBASE))], "no node's fuse is of use to it"


def test_a_sidecar_of_a_dataset_whose_name_no_label_takes_is_refused_in_words() -> None:
    name = "l" * 64
    objects = json.loads(json.dumps(fuse_objects()).replace("hbase", name))
    found = admit(reader(name, labels=SERVERLESS), objects)
    assert (found.allowed, found.code) == (False, 403)
    assert found.message.endswith("longer than the 63 characters of a label, by which sidecars name their dataset")


def test_a_sidecar_that_cannot_be_injected_refuses_the_pod() -> None:
    found = admit(reader("hbase", labels=SERVERLESS), whole("hbase"))
    assert (found.allowed, found.message) == (
        False, "FuseSidecar: dataset default/hbase: there is no DaemonSet default/hbase-fuse",
    )  # fmt: skip
    *objects, fuse, _ = fuse_objects()
    fuse["spec"]["template"]["spec"]["containers"] = []
    found = admit(reader("hbase", labels=SERVERLESS), [*objects, fuse])
    # As the original: the fuse is looked at before the volume, which is missing too.
    assert found.message == "FuseSidecar: dataset default/hbase: DaemonSet hbase-fuse has no container"


def test_s28_the_profiles_order_is_the_order_of_the_plugins() -> None:
    text = "plugins: {serverful: {withDataset: [DatasetUsageInjector, RequireNodesWithFuse, PreferNodesWithCache]}}"
    runs = admit(reader("hbase"), whole("hbase"), profile=parse(text)).runs
    assert [run.plugin for run in runs] == ["DatasetUsageInjector", "RequireNodeWithFuse", "NodeAffinityWithCache"]


def test_s30_fields_we_do_not_know_survive() -> None:
    pod = reader("hbase", futureField={"x": [1]})
    pod["spec"]["containers"][0]["newField"] = True
    found = admit(pod, whole("hbase")).pod
    assert (found["spec"]["futureField"], found["spec"]["containers"][0]["newField"]) == ({"x": [1]}, True)


def test_s31_a_container_that_came_later_gets_its_mount_and_nothing_else_changes() -> None:
    first = admit(reader("hbase"), whole("hbase"), whole_chain=True).pod
    later = copy.deepcopy(first)
    later["spec"]["containers"].append({"name": "late", "volumeMounts": [{"name": "v0", "mountPath": "/l"}]})
    assert admit(later, whole("hbase"), whole_chain=True).patch == [
        {"op": "add", "path": "/spec/containers/1/volumeMounts/0/mountPropagation", "value": "HostToContainer"}
    ]


# --- random pods ------------------------------------------------------------------------------------------------------

KEYS = ("arch", "disk", ZONE, "gpu", HBASE)


def random_expression(rng: random.Random) -> tuple[str, str, list[str]]:
    operator = rng.choice(["In", "NotIn", "Exists", "DoesNotExist"])
    return (rng.choice(KEYS), operator, rng.sample(["a", "b", "true"], rng.randint(1, 2)) if "In" in operator else [])


def random_term(rng: random.Random) -> dict[str, Any]:
    return term(*(random_expression(rng) for _ in range(rng.randint(0, 3)))) if rng.random() < 0.9 else {}


def random_pod(rng: random.Random) -> dict[str, Any]:
    names = rng.sample(["hbase", "logs", "imgs"], rng.randint(0, 3))
    labels = {**SERVERFUL, **{f"fluid.io/dataset.{name}.sched": "required" for name in names if rng.random() < 0.4}}
    pod = reader(*names, labels=labels)
    if rng.random() < 0.7:
        required = [random_term(rng) for _ in range(rng.randint(0, 3))]
        liked = [{"weight": rng.randint(1, 100), "preference": random_term(rng)} for _ in range(rng.randint(0, 2))]
        pod["spec"]["affinity"] = node_affinity(required, liked)
    return pod


def matches(terms: list[dict[str, Any]], labels: dict[str, str]) -> bool:
    """Whether a node with these labels satisfies one of the terms, by Kubernetes' rules."""

    def holds(each: dict[str, Any]) -> bool:
        present, values = labels.get(each["key"]), each.get("values", [])
        return {
            "In": present in values,
            "NotIn": present not in values,
            "Exists": present is not None,
            "DoesNotExist": present is None,
        }[each["operator"]]

    alive = [each for each in terms if each.get("matchExpressions")]
    return not terms or any(all(holds(part) for part in each["matchExpressions"]) for each in alive)


def test_s29_and_s32_on_random_pods_the_patch_applies_once_and_means_the_users_terms_and_ours() -> None:
    rng = random.Random(7)
    objects = [*whole("hbase"), *whole("logs", fuse={"gpu": "a"}), *whole("imgs", declared=[term((ZONE, "In", ["a"]))])]
    nodes = [
        {key: value for key, value in zip(KEYS, values, strict=True) if value}
        for values in itertools.product(("", "a", "true"), repeat=len(KEYS))
    ]
    for _ in range(400):
        pod = random_pod(rng)
        before = json.dumps(pod)
        found = admit(pod, objects, whole_chain=True)
        assert json.dumps(pod) == before
        assert applied(pod, found.patch) == found.pod
        assert admit(found.pod, objects, whole_chain=True).patch == []
        own, result = required_of(pod), required_of(found.pod)
        assert len(result) in (len([each for each in own if each.get("matchExpressions")]) or 1, len(own))
        required = [note.term for note in found.notes if note.effect == "required" and note.term is not None]
        for node in rng.sample(nodes, 20):
            ours = all(matches([dict(each)], node) for each in required)
            assert matches(result, node) == (matches(own, node) and ours)


# --- bad input and limits ---------------------------------------------------------------------------------------------


def test_s61_a_namespace_that_is_not_the_requests_is_refused() -> None:
    pod = reader("hbase")
    pod["metadata"]["namespace"] = "other"
    assert admit(pod, whole("hbase")).code == 403
    assert admit(reader("hbase"), whole("hbase"), namespace="").code == 500


@pytest.mark.parametrize(
    ("objects", "sentence"),
    [
        pytest.param([], "claims of the pod do not exist", id="s62 no claim"),
        pytest.param([claim("hbase")], "there is no Dataset default/hbase", id="s63 no dataset"),
        pytest.param([claim("hbase"), dataset("hbase")], "there is no AlluxioRuntime", id="s63 no runtime"),
        pytest.param([claim("hbase"), dataset("hbase", runtime="x")], "of the unknown type 'x'", id="s63 unknown type"),
        pytest.param([claim("hbase"), dataset("hbase", runtime="")], "is not known yet", id="s63 no type"),
    ],
)
def test_what_is_missing_refuses_the_pod_whatever_the_policies(objects: list[Any], sentence: str) -> None:
    found = admit(reader("hbase"), objects)
    assert (found.allowed, found.code, found.patch) == (False, 500, ())
    assert sentence in found.message


def test_s65_a_large_pod_keeps_its_terms() -> None:
    own = [term((f"k{i}", "Exists", [])) for i in range(500)]
    volumes = [{"name": f"e{i}", "emptyDir": {}} for i in range(1000)]
    labels = {**SERVERFUL, "fluid.io/dataset.hbase.sched": "required"}
    pod = reader("hbase", labels=labels, affinity=node_affinity(own))
    pod["spec"]["volumes"] += volumes
    found = admit(pod, whole("hbase"), whole_chain=True)
    assert [each["matchExpressions"][0]["key"] for each in required_of(found.pod)] == [f"k{i}" for i in range(500)]


def test_s65_a_pod_that_would_become_too_large_is_left_as_it_is() -> None:
    pod = reader("hbase", annotations={"x": "y" * ((3 << 19) - 700)})
    found = admit(pod, whole("hbase"), whole_chain=True)
    assert (found.allowed, found.patch) == (True, [])
    assert (
        found.warnings == [TOO_LARGE] == ["the pod would become larger than the API server stores; it is left as it is"]
    )


def many_claims(number: int) -> list[dict[str, Any]]:
    return [claim(f"c{i}", labels={"fluid.io/managed-by": "hbase"}) for i in range(number)]


def test_a_pod_with_more_datasets_than_anybody_reads_is_refused() -> None:
    """Each is joined with all of the pod's terms, and brings a container: a thousand took half a minute."""
    for number, allowed in ((MOST_DATASETS, True), (MOST_DATASETS + 1, False)):
        objects, names = [*fuse_objects(), *many_claims(number)], [f"c{i}" for i in range(number)]
        for labels in (SERVERFUL, SERVERLESS):
            found = admit(reader(*names, labels=labels), objects, whole_chain=True)
            assert found.allowed == allowed
            assert allowed or (found.code, found.message) == (
                403, f"the pod mounts {number} claims of datasets; at most {MOST_DATASETS} are possible",
            )  # fmt: skip


def test_files_are_counted_in_all_volumes_together() -> None:
    """Twenty thousand entries of three hundred volumes are six million paths; a server takes such an annotation."""
    prefix, pod = "file-prefetcher.fluid.io/", reader(*["hbase"] * 300)
    pod["metadata"]["annotations"] = {f"{prefix}inject": "true", f"{prefix}image": "p:1"}
    for number, allowed in ((13, True), (14, False), (20_000, False)):
        pod["metadata"]["annotations"][f"{prefix}file-list"] = ";".join(["pvc://hbase"] * number)
        found = admit(pod, whole("hbase"))
        assert found.allowed == allowed
        assert allowed or "file-list: must name at most 4096 files, in all volumes together" in found.message
    pod["metadata"]["annotations"][f"{prefix}file-list"] = ";".join(f"s3://{i}" for i in range(4000))
    assert len(admit(pod, whole("hbase")).warnings) == MOST_WARNINGS


def test_s65_a_fuse_that_makes_a_pod_too_large_is_not_built_for_every_dataset() -> None:
    *objects, fuse, volume = fuse_objects()
    environment = [{"name": f"E{i}", "value": "v"} for i in range(30_000)]
    fuse["spec"]["template"]["spec"]["containers"][0]["env"] = environment
    names = [f"c{i}" for i in range(MOST_DATASETS)]
    began_s = time.process_time()
    found = admit(reader(*names, labels=SERVERLESS), [*objects, fuse, volume, *many_claims(MOST_DATASETS)])
    assert (found.patch, found.warnings) == ([], [TOO_LARGE])
    assert time.process_time() - began_s < 2, "in proportion to what is stored"


@pytest.mark.parametrize("affinity", [[], "x", {"nodeAffinity": []}, {"nodeAffinity": {
    "preferredDuringSchedulingIgnoredDuringExecution": {}}}])  # fmt: skip
def test_s66_an_affinity_of_the_wrong_form_is_left_to_the_server(affinity: Any) -> None:
    found = admit(reader("hbase", affinity=affinity), whole("hbase"))
    assert (found.allowed, found.patch) == (True, ())
    assert found.warnings[0].startswith("the pod is left as it is: spec.affinity")


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        ((), 5, "the object must be a v1 Pod"),
        (("metadata", "name"), 5, "metadata.name: must be text, got 5"),
        (("metadata", "ownerReferences"), {}, "metadata.ownerReferences: must be a list, got {}"),
        (("spec", "nodeName"), False, "spec.nodeName: must be text, got false"),
        (("spec", "containers", 0, "image"), 0, "spec.containers[0].image: must be text, got 0"),
        (
            ("spec", "containers", 0, "volumeMounts", 0, "mountPath"),
            [],
            "volumeMounts[0].mountPath: must be text, got []",
        ),
        (
            ("spec", "volumes", 0, "persistentVolumeClaim"),
            "hbase",
            "Claim: must be an object, got 'hbase'",
        ),
        (
            ("spec", "volumes", 0, "persistentVolumeClaim", "claimName"),
            ["hbase"],
            'claimName: must be text, got ["hbase"]',
        ),
    ],
)
def test_s56_a_pod_that_nobody_could_decode_is_a_bad_request(place: Any, value: Any, problem: str) -> None:
    pod: Any = reader("hbase")
    if place:
        *parents, last = place
        tree = pod
        for each in parents:
            tree = tree[each]
        tree[last] = value
    else:
        pod = value
    found = admit(pod, whole("hbase"))
    assert (found.allowed, found.code) == (False, 400)
    assert found.message.startswith("the pod cannot be read: ")
    assert found.message.endswith(problem)


class Breaking:
    name = "Breaking"
    policy = "ignore"

    def mutate(self, draft: Any, context: PluginContext) -> bool:
        draft.annotate("half", "done")
        raise PluginError("no")


@pytest.mark.parametrize(("policy", "allowed"), [("ignore", True), ("fail", False)])
def test_s68_a_plugin_that_fails_leaves_no_trace(policy: Any, allowed: bool) -> None:
    ours = parse("plugins: {serverful: {withDataset: [DatasetUsageInjector]}}").chain("serverful", True)
    chain = (Step(Breaking(), policy), *ours)  # type: ignore[arg-type]
    found = admit(reader("hbase"), whole("hbase"), profile=PluginProfile({("serverful", True): chain}))
    assert found.allowed == allowed
    if allowed:
        assert found.pod["metadata"]["annotations"] == {"fluid.io/datasets-in-use": "hbase"}
        assert found.warnings == ["plugin Breaking was left out: no"]
    else:
        assert (found.message, found.patch) == ("Breaking: no", ())


def test_pods_of_a_scheduler_that_scores_bytes_get_no_preferences() -> None:
    pod = reader("hbase", schedulerName="fairlead")
    found = admit(pod, whole("hbase"), whole_chain=True, scoring_schedulers=frozenset({"fairlead"})).pod
    assert (preferred_of(found), required_of(found)) == ([], [term(off("hbase"))])


def test_the_scale_in_term_is_in_every_pod_with_a_dataset_but_not_in_pinned_ones() -> None:
    assert required_of(admit(reader("hbase"), whole("hbase"), whole_chain=True).pod) == [term(off("hbase"))]
    assert required_of(admit(reader("hbase", nodeName="n"), whole("hbase"), whole_chain=True).pod) == []


def test_s37_the_strength_term_matches_every_node() -> None:
    found = admit(reader("hbase"), whole("hbase"), locality=LocalityOptions(strength=80)).pod
    assert preferred_of(found) == [preferred(100, on(HBASE)), preferred(80, ("kubernetes.io/os", "Exists", []))]


def test_levels_take_the_place_of_the_plain_label() -> None:
    found = admit(reader("hbase"), whole("hbase"), locality=LocalityOptions(form="levels")).pod
    key = "data.fairlead.io/cl-default.hbase"
    assert preferred_of(found) == [
        preferred(weight, (key, "Gt", [above])) for above, weight in
        (("0", 10), ("2", 20), ("4", 20), ("6", 20), ("8", 30))
    ]  # fmt: skip


def test_nodes_with_a_fuse_that_requests_something_are_preferred() -> None:
    fused = DatasetCache(fuse_needs={"cpu": 500})
    locality = LocalityOptions(cache=CacheMap({"default/hbase": fused, "default/logs": DatasetCache()}))
    found = admit(reader("hbase", "logs"), [*whole("hbase"), *whole("logs")], whole_chain=True, locality=locality).pod
    assert preferred(20, on("fluid.io/f-default-hbase")) in preferred_of(found)
    assert "fluid.io/f-default-logs" not in json.dumps(found)
