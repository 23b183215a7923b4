"""The scenarios of the data specification, by number, through an API server that asks the webhook.

Each has a Lab of its own, all side by side. Those about caches, drains and pods that wait, and those that change
something for everybody, are in scenarios_phases.py; those that need placement or other settings in
scenarios_placed.py. Where an API server has no part in one, or another server is needed, it is elsewhere:

    29, 32 (10,000 pods)   data/test_mutations.py, data/test_reviews.py, `scripts/soak reviews`
    37                     data/test_mutations.py (a score, worked out)
    39 (Force)             data/test_drains.py
    44 (kill -9)           journeys/test_data.py, at each step
    56 to 59               web/test_admission.py, data/test_reviews.py (no API server sends that)
    61                     data/test_mutations.py (likewise)
    67, 68                 data/test_webhook.py, data/test_mutations.py, data/test_installed_plugin.py
    70                     data/test_webhook.py, `scripts/bench admission`, `scripts/soak admission`
    71, 75                 tests/test_webhooks.py (three processes; handshakes)
    72, 77                 kube/test_data_soak.py, `scripts/soak admission`
    76                     kube/test_data.py, journeys/test_data.py (certificates from files)
    81, 82                 data/test_capability.py, data/test_webhook.py
"""

import asyncio
import base64
import json
import random
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from aiohttp import web

from fairlead.data import entries
from fairlead.data.drains import SCALE_IN_TO
from fairlead.data.objects import CLAIMS, DATASETS
from fairlead.engine.locality_wait import LOCALITY_WAIT
from fairlead.model.kinds import POD_OBJECTS
from fairlead.web.admission import Review, Verdict
from fairlead.web.probes import served
from fairlead.webhooks import MUTATING, manifest
from tests.data.lab import ALLUXIO, Lab, Scenario
from tests.data.objects import (
    REGION,
    SERVERFUL,
    SERVERLESS,
    ZONE,
    claim,
    dataset,
    node_affinity,
    preferred_of,
    reader,
    required_of,
    runtime,
    term,
)
from tests.rigs.kube.certificates import Authority
from tests.rigs.kube.servers import free_ports


def key(namespace: str, name: str, kind: str = "s") -> str:
    return f"fluid.io/{kind}-{namespace}-{name}"


def off(namespace: str, *names: str) -> list[tuple[str, str, list[str]]]:
    return [(f"data.fluid.io/storage-scalein-{namespace}-{name}", "NotIn", ["true"]) for name in names]


def on(label: str) -> tuple[str, str, list[str]]:
    return label, "In", ["true"]


def preferred(weight: int, *expressions: tuple[str, str, list[str]]) -> dict[str, Any]:
    return {"weight": weight, "preference": term(*expressions)}


def required(*names: str) -> dict[str, str]:
    return {**SERVERFUL, **{f"fluid.io/dataset.{name}.sched": "required" for name in names}}


# --- opt-in and discovery ---------------------------------------------------------------------------------------------


async def s01_s03_pods_that_do_not_take_part(lab: Lab) -> None:
    await lab.store("hbase")
    for labels in (
        {},
        {**SERVERFUL, "fluid.io/enable-injection": "false"},
        {**SERVERFUL, "Fluid-Injection": "disabled"},
    ):
        pod = await lab.admitted(reader("hbase", labels=labels))
        assert "affinity" not in pod["spec"], labels
        assert "annotations" not in pod["metadata"], labels


async def s02_s80_a_namespace_opts_in_and_ours_and_the_clusters_never(lab: Lab) -> None:
    space = f"{lab.namespace}-in"
    await lab.space(space, **{"Fluid-Injection": "enabled"})
    await lab.store("hbase", namespace=space)
    assert preferred_of(await lab.admitted(reader("hbase", labels={}), space)) == [
        preferred(100, on(key(space, "hbase")))
    ]
    assert preferred_of(await lab.admitted(reader(labels={}), space)) == [
        preferred(100, ("fluid.io/dataset-num", "DoesNotExist", []))
    ]
    out = await lab.admitted(reader("hbase", labels={"Fluid-Injection": "disabled"}), space)
    assert "affinity" not in out["spec"]
    for theirs in ("kube-system", "fairlead-system"):
        await lab.space(theirs)
        assert "affinity" not in (await lab.admitted(reader(), theirs))["spec"], theirs


def fuse_objects(namespace: str, name: str) -> list[dict[str, Any]]:
    """What Fluid makes for a dataset besides: the DaemonSet of its fuse, and its volume."""
    labels, mount = {"role": "alluxio-fuse", "release": name}, f"/mnt/{name}"
    container = {
        "name": "alluxio-fuse",
        "image": "fuse:1",
        "volumeMounts": [{"name": "alluxio-fuse-mount", "mountPath": mount}],
    }
    spec = {"containers": [container], "volumes": [{"name": "alluxio-fuse-mount", "hostPath": {"path": mount}}]}
    attributes = {"fluid_path": f"{mount}/fuse", "mount_type": "fuse.alluxio-fuse"}
    return [
        {
            "kind": "DaemonSet",
            "metadata": {"name": f"{name}-fuse", "namespace": namespace},
            "spec": {
                "selector": {"matchLabels": labels},
                # Nowhere: the fuses of the pods' nodes are no part of this.
                "template": {"metadata": {"labels": labels}, "spec": {**spec, "nodeSelector": {"no": "where"}}},
            },
        },
        {
            "kind": "PersistentVolume",
            "metadata": {"name": f"{namespace}-{name}"},
            "spec": {
                "accessModes": ["ReadOnlyMany"],
                "capacity": {"storage": "100Pi"},
                "csi": {"driver": "fuse.csi.fluid.io", "volumeHandle": name, "volumeAttributes": attributes},
                "persistentVolumeReclaimPolicy": "Retain",
            },
        },
    ]


async def s04_s24_sidecars_once_and_before_those_that_need_them(lab: Lab) -> None:
    await lab.store("hbase")
    assert "there is no DaemonSet" in await lab.refused(reader("hbase", labels=SERVERLESS), 403)
    await lab.create(*fuse_objects(lab.namespace, "hbase"))
    pod = reader("hbase", labels={**SERVERLESS, **SERVERFUL})
    mounts = [{"name": "v0", "mountPath": "/i"}]
    pod["spec"]["initContainers"] = [{"name": "i", "image": "i:1", "volumeMounts": mounts}]

    async def is_injected() -> Any:
        answer = await lab.tried(pod)
        return answer.body if answer.status == 201 else None

    found = await lab.until(is_injected, "the sidecar is injected")
    assert [each["name"] for each in found["spec"]["containers"]] == ["fluid-fuse-0", "app"]
    assert [each["name"] for each in found["spec"]["initContainers"]] == ["init-fluid-fuse-0", "i"]
    assert found["spec"]["volumes"][0] == {"name": "v0", "hostPath": {"path": "/mnt/hbase/fuse", "type": ""}}
    labels = found["metadata"]["labels"]
    assert labels["done.sidecar.fluid.io/inject"] == "true"
    assert labels["dataset-name.sidecar.fluid.io/fluid-fuse-0"] == "hbase"
    assert found["metadata"]["annotations"] == {"fluid.io/datasets-in-use": "hbase"}
    # A second call, with its own output: nothing more.
    again = await lab.admitted({**pod, "metadata": {**found["metadata"], "name": "p"}, "spec": found["spec"]})
    assert again["spec"] == found["spec"]


async def s05_s06_s07_s19_claims_lead_to_datasets(lab: Lab) -> None:
    space = lab.namespace
    await lab.store("hbase", fuse={"b": "2", "a": "1"})
    await lab.store("logs", runtime="juicefs", fuse={"c": "3"})
    wrap = claim("wrap", labels={"fluid.io/managed-by": "hbase"})
    plain = claim("plain", labels={})
    for each in (wrap, plain):
        await lab.create({**each, "metadata": {**each["metadata"], "namespace": space}})
    found = await lab.admitted(reader("plain", "logs", "hbase"))
    assert found["metadata"]["annotations"] == {"fluid.io/datasets-in-use": "hbase,logs"}
    fuses = [("a", "In", ["1"]), ("b", "In", ["2"]), ("c", "In", ["3"])]
    assert required_of(found) == [term(*fuses, *off(space, "hbase", "logs"))]
    assert preferred_of(found) == [preferred(100, on(key(space, each))) for each in ("hbase", "logs")]
    for name in ("wrap", "hbase"):
        pod = await lab.admitted(reader("wrap", labels=required(name)))
        assert required_of(pod) == [term(*fuses[:2], on(key(space, "hbase")), *off(space, "hbase"))], name


async def s08_s12_across_namespaces_only_by_reference(lab: Lab) -> None:
    far = f"{lab.namespace}-far"
    await lab.space(far)
    await lab.store("done", namespace=far)
    mounts = [{"mountPoint": f"dataset://{far}/done"}]
    labels = {
        key(lab.namespace, "virtual"): "true",
        "fluid.io/dataset.referring-name": "done",
        "fluid.io/dataset.referring-namespace": far,
    }
    await lab.create(
        claim("virtual", lab.namespace, labels),
        dataset("virtual", lab.namespace, runtime="thin", mounts=mounts),
        runtime("virtual", lab.namespace, kind="thin"),
    )
    await lab.until_known("virtual")
    found = await lab.admitted(reader("virtual"))
    assert preferred_of(found) == [preferred(100, on(key(far, "done")))]
    assert required_of(found) == [term(*off(far, "done"))]
    assert f"do not exist in namespace {lab.namespace}: done" in await lab.refused(reader("done"))


async def s09_s10_s11_phases_of_a_dataset(lab: Lab) -> None:
    conditions = [{"type": "NotReady", "status": "True", "message": "the master is away"}]
    await lab.create(
        claim("late", lab.namespace),
        dataset("late", lab.namespace, phase="NotBound", conditions=conditions),
        runtime("late", lab.namespace),
    )

    async def is_told() -> bool:
        return "is not bound: the master is away" in (await lab.tried(reader("late"))).message

    await lab.until(is_told, "the pod is refused in the dataset's words")
    assert (await lab.tried(reader("late"))).status == 500
    skipping = reader("late", annotations={"sidecar.fluid.io/skip-precheck": "true"})

    async def is_skipped() -> bool:
        """Once the runtime is in the mirror."""
        return (await lab.tried(skipping)).status == 201

    await lab.until(is_skipped, "the precheck is skipped")
    await lab.store("moving", phase="DataMigrating")
    answer = await lab.tried(reader("moving"))
    assert answer.warnings == (f"dataset {lab.namespace}/moving is being migrated; reads may be slow",)
    assert preferred_of(answer.body) == [preferred(100, on(key(lab.namespace, "moving")))]


async def s62_s63_s79_what_is_missing_refuses_the_pod_whatever_the_failure_policy(lab: Lab) -> None:
    space = lab.namespace
    assert f"do not exist in namespace {space}: a, b" in await lab.refused(reader("a", "b"))
    for name, objects, sentence in (
        ("alone", [], "there is no Dataset"),
        ("unbacked", [dataset("unbacked", space)], "there is no AlluxioRuntime"),
        ("odd", [dataset("odd", space, runtime="goosefs")], "of the unknown type 'goosefs'"),
        ("early", [dataset("early", space, runtime="")], "is not known yet"),
    ):
        await lab.create(claim(name, space), *objects)
        assert sentence in await lab.refused(reader(name))


# --- what is added ----------------------------------------------------------------------------------------------------


async def s13_to_s18_terms_beside_the_pods_own(lab: Lab) -> None:
    space = lab.namespace
    declared = [term((ZONE, "In", ["zone-a"]), (REGION, "In", ["region-a"]))]
    await lab.store("hbase", declared=declared)
    await lab.store("logs")
    places = [preferred(50, (ZONE, "In", ["zone-a"])), preferred(20, (REGION, "In", ["region-a"]))]
    hbase, logs = key(space, "hbase"), key(space, "logs")
    assert preferred_of(await lab.admitted(reader("logs"))) == [preferred(100, on(logs))]
    assert preferred_of(await lab.admitted(reader("hbase"))) == [preferred(100, on(hbase)), *places]
    pod = await lab.admitted(reader("logs", labels=required("logs")))
    assert (required_of(pod), preferred_of(pod)) == ([term(on(logs), *off(space, "logs"))], [])
    pod = await lab.admitted(reader("logs", "hbase", labels=required("logs", "hbase")))
    assert required_of(pod) == [term(on(hbase), on(logs), *off(space, "hbase", "logs"))]
    own = [term(("x", "In", ["1"])), term(("y", "Exists", []), ("z", "Gt", ["3"]))]
    pod = await lab.admitted(reader("logs", labels=required("logs"), affinity=node_affinity(own)))
    added = term(on(logs), *off(space, "logs"))["matchExpressions"]
    assert required_of(pod) == [{"matchExpressions": each["matchExpressions"] + added} for each in own]
    zone = preferred(7, (ZONE, "In", ["zone-z"]))
    pod = await lab.admitted(reader("hbase", affinity=node_affinity(preferred=[zone])))
    assert (preferred_of(pod), required_of(pod)) == ([zone], [term(*off(space, "hbase"))])
    empty: tuple[Any, ...] = ({}, {"nodeAffinity": {}})
    for each in empty:
        assert preferred_of(await lab.admitted(reader("logs", affinity=each))) == [preferred(100, on(logs))]


async def s20_s21_s22_without_data_mounts_and_the_annotation(lab: Lab) -> None:
    await lab.store("b")
    await lab.store("a")
    avoiding = await lab.admitted(reader())
    once = [preferred(100, ("fluid.io/dataset-num", "DoesNotExist", []))]
    assert preferred_of(avoiding) == once
    again = await lab.admitted(reader(affinity=avoiding["spec"]["affinity"]))
    assert preferred_of(again) == once
    pod = reader("b", "a", annotations={"fluid.io/datasets-in-use": "z"})
    # Another value needs a privileged container, which not every server allows.
    pod["spec"]["containers"][0]["volumeMounts"][0]["mountPropagation"] = "None"
    pod["spec"]["initContainers"] = [
        {"name": "i", "image": "i:1", "volumeMounts": [{"name": "v0", "mountPath": "/i", "subPath": "x"}]}
    ]
    found = await lab.admitted(pod)
    mounts = [each["mountPropagation"] for each in found["spec"]["containers"][0]["volumeMounts"][:2]]
    assert mounts == ["None", "HostToContainer"]
    assert "mountPropagation" not in found["spec"]["initContainers"][0]["volumeMounts"][0]
    assert found["metadata"]["annotations"] == {"fluid.io/datasets-in-use": "a,b,z"}


async def s23_a_prefetcher_by_annotations(lab: Lab) -> None:
    prefix = "file-prefetcher.fluid.io/"
    await lab.store("hbase")
    wish = {f"{prefix}inject": "true"}
    assert f"{prefix}image" in await lab.refused(reader("hbase", annotations=wish), 403)
    wish[f"{prefix}image"] = "prefetch:1"
    maybe = {**wish, f"{prefix}async-prefetch": "maybe"}
    assert "must be true or false, not 'maybe'" in await lab.refused(reader("hbase", annotations=maybe), 403)
    listed = {**wish, f"{prefix}file-list": "pvc://hbase/a/*;pvc://other/b"}
    answer = await lab.tried(reader("hbase", annotations=listed))
    assert [each["name"] for each in answer.body["spec"]["containers"]] == ["fluid-file-prefetcher", "app"]
    assert answer.body["spec"]["containers"][0]["env"][0]["value"] == "/data/v0/a/*"
    assert answer.warnings == (
        f"annotation {prefix}file-list: 'pvc://other/b' is no file of a dataset of this pod; left out",
    )


async def s25_long_names_are_known_by_their_uid(lab: Lab) -> None:
    for length, is_readable in ((51, True), (52, False)):
        name = "d" * (length - len(lab.namespace) - 1)
        await lab.create(*long_dataset(lab.namespace, name))
        await lab.until_known(name)
        uid = (await lab.get(DATASETS, name))["metadata"]["uid"]
        found = await lab.admitted(reader(name))
        joined = f"{lab.namespace}-{name}"
        assert preferred_of(found) == [preferred(100, on(f"fluid.io/s-{joined if is_readable else uid}"))]
        # A label of ours has 63 characters after the slash, Fluid's 62 with it.
        assert required_of(found) == [term((f"data.fluid.io/storage-scalein-{uid}", "NotIn", ["true"]))]
    longest = "x" * 253
    await lab.create(*long_dataset(lab.namespace, longest))
    await lab.until_known(longest)
    uid = (await lab.get(DATASETS, longest))["metadata"]["uid"]
    node, path = await lab.node("n0"), ALLUXIO.path(lab.namespace, longest)
    labels = {"role": "alluxio-worker", "fluid.io/dataset": uid}
    spec = {"nodeName": node, "containers": [{"name": "w", "image": "w:1"}]}
    await lab.create({"kind": "Pod", "metadata": {"name": "w-worker-0", "labels": labels}, "spec": spec})
    await lab.patch(ALLUXIO, longest, {"metadata": {"annotations": {SCALE_IN_TO: "0"}}})

    async def is_lowered() -> bool:
        return bool((await lab.api.call("GET", path)).body["spec"]["replicas"] == 0)

    await lab.until(is_lowered, "a dataset with a name of 253 characters is scaled in")
    assert (await lab.labels(node)).get(f"data.fluid.io/storage-scalein-{uid}") == "true"
    await lab.delete(POD_OBJECTS, "w-worker-0")

    async def is_unlabelled() -> bool:
        return f"data.fluid.io/storage-scalein-{uid}" not in await lab.labels(node)

    await lab.until(is_unlabelled, "its label is gone")


def long_dataset(namespace: str, name: str) -> list[dict[str, Any]]:
    """A label has room for a short name alone."""
    return [
        claim(name, namespace, {"fluid.io/s-any": "true"}),
        dataset(name, namespace),
        runtime(name, namespace),
    ]


async def s29_s30_s32_random_pods_keep_what_they_have_and_a_second_call_adds_nothing(lab: Lab) -> None:
    await lab.store("hbase")
    await lab.store("logs", fuse={"ssd": "1"})
    rng = random.Random(29)
    # Nothing of ours has these fields.
    unknown = {
        "setHostnameAsFQDN": False, "os": {"name": "linux"}, "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["h"]}],
        "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]}, "readinessGates": [{"conditionType": "x.io/y"}],
    }  # fmt: skip

    def terms(most: int) -> list[dict[str, Any]]:
        return [term(*(expression(rng) for _ in range(rng.randint(1, 3)))) for _ in range(rng.randint(0, most))]

    for _ in range(20):
        names = rng.sample(["hbase", "logs"], rng.randint(0, 2))
        own, liked = terms(3), [{"weight": rng.randint(1, 100), "preference": each} for each in terms(2)]
        labels = required(*(name for name in names if rng.random() < 0.4))
        pod = reader(*names, labels=labels, affinity=node_affinity(own, liked), **unknown)
        found = await lab.admitted(pod)
        assert {name: found["spec"].get(name) for name in unknown} == unknown
        assert preferred_of(found)[: len(liked)] == liked
        joined = required_of(found)
        assert len(joined) == (len(own) or bool(names))
        for before, after in zip(own, joined, strict=False):
            count = len(before["matchExpressions"])
            assert after["matchExpressions"][:count] == before["matchExpressions"]
            assert after["matchExpressions"][count:] == joined[0]["matchExpressions"][len(own[0]["matchExpressions"]) :]
        again = await lab.admitted({**pod, "metadata": {**found["metadata"], "name": "p"}, "spec": found["spec"]})
        assert again["spec"] == found["spec"]
        assert again["metadata"].get("annotations") == found["metadata"].get("annotations")


def expression(rng: random.Random) -> tuple[str, str, list[str]]:
    operator = rng.choice(["In", "NotIn", "Exists", "DoesNotExist"])
    return rng.choice(["arch", "disk", "gpu"]), operator, rng.sample(["a", "b"], 1) if "In" in operator else []


async def s31_a_container_that_another_webhook_adds_later(lab: Lab) -> None:
    await lab.store("hbase")
    async with adding_containers(lab):

        async def is_added() -> Any:
            pod = await lab.admitted(reader("hbase"))
            return pod if len(pod["spec"]["containers"]) == 2 else None

        found = await lab.until(is_added, "the other webhook is asked")
        mounts = [each["volumeMounts"][0]["mountPropagation"] for each in found["spec"]["containers"]]
        assert mounts == ["HostToContainer", "HostToContainer"]
        assert preferred_of(found) == [preferred(100, on(key(lab.namespace, "hbase")))]
        assert required_of(found) == [term(*off(lab.namespace, "hbase"))]


@asynccontextmanager
async def adding_containers(lab: Lab) -> AsyncIterator[None]:
    """A webhook that is called after ours, and adds a container with the pod's first volume once."""

    async def answer(request: web.Request) -> web.Response:
        review = (await request.json())["request"]
        late = {"name": "late", "image": "l:1", "volumeMounts": [{"name": "v0", "mountPath": "/l"}]}
        patch = [{"op": "add", "path": "/spec/containers/-", "value": late}]
        is_there = any(each["name"] == "late" for each in review["object"]["spec"]["containers"])
        encoded = base64.b64encode(json.dumps(patch).encode()).decode()
        body = {"uid": review["uid"], "allowed": True}
        added = {} if is_there else {"patchType": "JSONPatch", "patch": encoded}
        return web.json_response(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": body | added}
        )

    async with reviewing(answer) as config:
        entry = {
            "name": "late.example.com",
            "clientConfig": config,
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": lab.namespace}},
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        async with registered(lab, {"webhooks": [entry]}):
            yield


@asynccontextmanager
async def reviewing(answer: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[dict[str, str]]:
    """How a server is reached that answers reviews so."""
    with TemporaryDirectory() as folder:
        pair = (authority := Authority(Path(folder) / "pki")).server()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pair.cert, pair.key)
        port = free_ports(1)[0]
        bundle = base64.b64encode(authority.ca_file.read_bytes()).decode()
        async with served([web.post("/review", answer)], "127.0.0.1", port, tls):
            yield {"url": f"https://127.0.0.1:{port}/review", "caBundle": bundle}


@asynccontextmanager
async def registered(lab: Lab, configuration: Any) -> AsyncIterator[None]:
    """Called after ours, as its name is behind ours."""
    name = f"zz-{lab.namespace}"
    body = {**configuration, "metadata": {"name": name}}
    answered = await lab.api.call("POST", MUTATING.collection_path(), body)
    assert answered.status == 201, answered
    try:
        yield
    finally:
        await lab.delete(MUTATING, name)


async def s60_what_is_no_creation_of_a_pod_passes(lab: Lab) -> None:
    await lab.store("hbase")
    template = {"metadata": {"labels": SERVERFUL}, "spec": reader("hbase")["spec"]}
    spec = {"replicas": 0, "selector": {"matchLabels": SERVERFUL}, "template": template}
    path = f"/apis/apps/v1/namespaces/{lab.namespace}/deployments"
    made = await lab.api.call("POST", path, {"metadata": {"name": "d", "labels": SERVERFUL}, "spec": spec})
    assert made.status == 201, made
    assert "affinity" not in made.body["spec"]["template"]["spec"]
    before = (await lab.pod("p", reader("hbase", nodeName="n")))["spec"]
    # A change and a deletion of a pod that took part, with its claim gone: neither is reviewed.
    await lab.delete(CLAIMS, "hbase")
    changed = await lab.patch(POD_OBJECTS, "p", {"metadata": {"labels": {"x": "y"}}})
    assert changed["spec"] == before
    answer = await lab.api.call("DELETE", f"{POD_OBJECTS.path(lab.namespace, 'p')}?gracePeriodSeconds=0")
    assert answer.status == 200, answer


async def s78_failing_webhooks_let_affinity_pass_and_hold_sidecars(lab: Lab) -> None:
    """Our entries once more, for this namespace alone, where nobody listens, or answers too late, or to another."""

    async def never(review: Review) -> Verdict:
        return Verdict()

    async def late(request: web.Request) -> web.Response:
        await asyncio.sleep(5)
        return await lying(request)

    async def lying(request: web.Request) -> web.Response:
        response = {"uid": "another", "allowed": True}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})

    configuration = entries.configuration(
        by_label=never, by_namespace=never, worker=never, scale=never, namespace="none", namespace_mode=True
    )

    async def hold(config: dict[str, str], timeout_s: int) -> None:
        body: Any = manifest(configuration, "https://none")
        for each in body["webhooks"]:
            each["timeoutSeconds"], each["clientConfig"] = timeout_s, config
            selector = each.setdefault("namespaceSelector", {"matchExpressions": []})
            selector["matchLabels"] = {"kubernetes.io/metadata.name": lab.namespace}
        async with registered(lab, body):

            async def is_refused() -> Any:
                answer = await lab.tried(reader(labels=SERVERLESS))
                return answer if answer.status >= 500 else None

            refused = await lab.until(is_refused, "a pod with sidecars is refused")
            assert 'failed calling webhook "sidecar.data.fairlead.io"' in refused.message
            passed = await lab.admitted(reader())
            assert preferred_of(passed) == [preferred(100, ("fluid.io/dataset-num", "DoesNotExist", []))]

        async def passes() -> bool:
            return (await lab.tried(reader(labels=SERVERLESS))).status == 201

        await lab.until(passes, "the entries are gone")

    await hold({"url": f"https://127.0.0.1:{free_ports(1)[0]}/review"}, 10)
    for answer, timeout_s in ((late, 1), (lying, 10)):
        async with reviewing(answer) as config:
            await hold(config, timeout_s)


async def s48_s65_s66_pinned_huge_and_malformed_pods(lab: Lab) -> None:
    await lab.store("hbase")
    pinned = await lab.admitted(reader("hbase", nodeName="n", annotations={LOCALITY_WAIT: "node=5s"}))
    assert (required_of(pinned), "schedulingGates" in pinned["spec"]) == ([], False)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    daemon = reader("hbase", annotations={LOCALITY_WAIT: "node=5s"})
    daemon["metadata"]["ownerReferences"] = [owner]
    found = await lab.admitted(daemon)
    assert (required_of(found), "schedulingGates" in found["spec"]) == ([], False)
    own = [term((f"k{i}", "In", ["1"])) for i in range(500)]
    large = reader("hbase", affinity=node_affinity(own))
    large["spec"]["volumes"] += [{"name": f"e{i}", "emptyDir": {}} for i in range(999)]
    terms = required_of(await lab.admitted(large))
    joined = term(*off(lab.namespace, "hbase"))["matchExpressions"]
    assert [each["matchExpressions"][1:] for each in terms] == [joined] * 500
    many = reader(*(f"c{i}" for i in range(1000)))
    assert f"do not exist in namespace {lab.namespace}: c0, c1" in await lab.refused(many)
    await lab.refused(reader("hbase", affinity={"nodeAffinity": []}), 400)


async def s69_a_trial_writes_nothing(lab: Lab) -> None:
    await lab.store("hbase")
    await lab.create(*fuse_objects(lab.namespace, "hbase"))

    async def is_injected() -> bool:
        return (await lab.tried(reader("hbase", labels=SERVERLESS))).status == 201

    await lab.until(is_injected, "the sidecar is injected")
    maps = f"/api/v1/namespaces/{lab.namespace}/configmaps"

    async def names() -> set[str]:
        found = (await lab.api.call("GET", maps)).body["items"]
        return {each["metadata"]["name"] for each in found} - {"kube-root-ca.crt"}

    assert await names() == set()
    await lab.pod("real", reader("hbase", labels=SERVERLESS))

    async def are_written() -> bool:
        found = await names()
        return "check-fluid-mount-ready" in found and any(each.endswith("-default-check-mount") for each in found)

    await lab.until(are_written, "the scripts of a pod that exists are written")


SCENARIOS: Final[Mapping[str, Scenario]] = {
    name: each for name, each in list(globals().items()) if re.match(r"s\d\d_", name)
}
