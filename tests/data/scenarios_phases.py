"""The scenarios about cached bytes, drains and pods that wait; and, ALONE, those that change something for all."""

import base64
import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from fairlead.cluster.clock import RealClock
from fairlead.data.drains import MARKS, SCALE_IN_TO
from fairlead.data.groups import RELEASED
from fairlead.data.objects import CLAIMS, DATASETS
from fairlead.data.profile import DEFAULT
from fairlead.data.spec import CACHE_REPORTS, DATA_GROUPS, DATA_LOADS
from fairlead.data.view import GROUP_LABEL
from fairlead.data.waits import LOCALITY, LOCALITY_DEADLINE, LOCALITY_GATE, PREFETCH, PREFETCH_GATE
from fairlead.engine.locality_wait import LOCALITY_WAIT
from fairlead.model.kinds import DEFINITIONS, POD_OBJECTS
from fairlead.model.times import rfc3339
from fairlead.testing.fluid import definitions
from fairlead.webhooks import MUTATING, SECRET, SECRETS
from tests.data.lab import ALLUXIO, MERGE, Lab, Scenario
from tests.data.objects import SERVERFUL, claim, dataset, preferred_of, reader, required_of, runtime, term
from tests.data.scenarios import key, off, on, preferred, required
from tests.house.rules import ROOT

GIB: Final = 1 << 30
UNDER_WAY: Final = "s44-a-drain-under-way"


async def s38_s40_s41_s43_drains_end_when_they_are_withdrawn_raised_or_gone(lab: Lab) -> None:
    label = off(lab.namespace, "hbase")[0][0]
    await lab.store("hbase", replicas=2)
    nodes = [await lab.node(f"n{i}") for i in range(2)]
    for number, node in enumerate(nodes):
        await lab.worker("hbase", number, node)
    await lab.pod("reads", reader("hbase", nodeName=nodes[1]))

    async def labelled(*wanted: str) -> bool:
        return [node for node in nodes if label in await lab.labels(node)] == list(wanted)

    async def scale_in(wish: str | None) -> None:
        await lab.patch(ALLUXIO, "hbase", {"metadata": {"annotations": {SCALE_IN_TO: wish}}})

    await scale_in("1")
    await lab.until(lambda: labelled(nodes[1]), "the node of the highest ordinal is labelled")
    assert (await lab.get(ALLUXIO, "hbase"))["spec"]["replicas"] == 2
    await scale_in(None)
    await lab.until(lambda: labelled(), "the wish is withdrawn")
    await scale_in("1")
    await lab.until(lambda: labelled(nodes[1]), "it is labelled again")
    await lab.patch(ALLUXIO, "hbase", {"spec": {"replicas": 3}, "metadata": {"annotations": {SCALE_IN_TO: "3"}}})
    await lab.until(lambda: labelled(), "replicas are raised")

    async def is_forgotten() -> bool:
        return not set(MARKS) & set((await lab.get(ALLUXIO, "hbase"))["metadata"].get("annotations") or {})

    await lab.until(is_forgotten, "no mark of the drain is left")
    await lab.patch(ALLUXIO, "hbase", {"spec": {"replicas": 2}})
    await scale_in("1")
    await lab.until(lambda: labelled(nodes[1]), "it is labelled once more")
    await lab.delete(DATASETS, "hbase")
    await lab.until(lambda: labelled(), "the label of a dataset that is gone is removed")


async def s26_names_that_join_alike_both_keep_away(lab: Lab) -> None:
    """`<ns>-b`/`c` and `<ns>`/`b-c` have one scale-in label; the nodes of one are labelled while either drains."""
    other = f"{lab.namespace}-b"
    await lab.space(other)
    await lab.store("b-c")
    await lab.store("c", namespace=other)
    label = off(lab.namespace, "b-c")[0][0]
    node = await lab.node("n0")
    await lab.worker("b-c", 0, node)
    await lab.worker("c", 0, node, other)
    for name, space in (("b-c", ""), ("c", other)):
        assert required_of(await lab.admitted(reader(name), space)) == [term((label, "NotIn", ["true"]))]
        await lab.patch(ALLUXIO, name, {"metadata": {"annotations": {SCALE_IN_TO: "0"}}}, space)

    async def are_lowered() -> bool:
        found = [(await lab.get(ALLUXIO, *each))["spec"]["replicas"] for each in (("b-c",), ("c", other))]
        return found == [0, 0]

    await lab.until(are_lowered, "both are scaled in")
    await lab.delete(POD_OBJECTS, "b-c-worker-0")
    await lab.patch(DATASETS, "b-c", {"metadata": {"annotations": {"look": "again"}}})
    assert (await lab.labels(node)).get(label) == "true", "the other one's worker is still there"
    await lab.delete(POD_OBJECTS, "c-worker-0", other)

    async def is_unlabelled() -> bool:
        return label not in await lab.labels(node)

    await lab.until(is_unlabelled, "the last one removes the label")


async def s42_a_pod_that_fits_only_on_draining_nodes_is_told(lab: Lab) -> None:
    await lab.store("hbase", replicas=2)
    node = await lab.node("n0", 40_000)
    await lab.worker("hbase", 1, node)
    await lab.pod("reads", reader("hbase", nodeName=node))
    await lab.patch(ALLUXIO, "hbase", {"metadata": {"annotations": {SCALE_IN_TO: "1"}}})
    label = off(lab.namespace, "hbase")[0][0]

    async def is_labelled() -> bool:
        return label in await lab.labels(node)

    await lab.until(is_labelled, "the node is labelled")
    large = reader("hbase")
    large["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "30000"}}
    await lab.pod("large", large)

    async def is_told() -> bool:
        return any(label in each for each in await lab.events("NodesDraining"))

    await lab.until(is_told, "an event names the label")


def report(node: str, namespace: str, name: str, size: int) -> dict[str, Any]:
    held = {"namespace": namespace, "name": name, "tiers": [{"medium": "MEM", "bytes": size}]}
    seen = {**held, "seenAt": rfc3339(RealClock().now())}
    return {"kind": "CacheReport", "metadata": {"name": node}, "spec": {"datasets": [seen]}}


async def s45_s47_a_pod_waits_for_a_warm_node_if_that_pays(lab: Lab) -> None:
    await lab.store("large", ufsTotal="500.00GiB")
    await lab.store("small", ufsTotal="1.00GiB")
    node = await lab.node("warm", 4000)
    await lab.create(report(node, lab.namespace, "large", 400 * GIB))
    wish = {LOCALITY_WAIT: "node=5s,zone=10s"}

    async def gates(pod: Any) -> list[str]:
        return [each["name"] for each in (await lab.admitted(pod))["spec"].get("schedulingGates", [])]

    async def is_gated() -> bool:
        return await gates(reader("large", annotations=wish)) == [LOCALITY_GATE]

    await lab.until(is_gated, "a pod that gains by waiting is held")
    assert await gates(reader("small", annotations=wish)) == []

    def asking(cpus: str) -> Any:
        pod = reader("large", annotations=wish)
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpus}}
        return pod

    await lab.pod("near", asking("3000"))
    await lab.pod("missed", asking("9000"))

    async def released(name: str) -> Any:
        pod = await lab.get(POD_OBJECTS, name)
        return pod if not pod["spec"].get("schedulingGates") else None

    near = await lab.until(lambda: released("near"), "it is let go where its data is")
    assert near["metadata"]["annotations"][LOCALITY] == "near"
    assert preferred_of(near)[-1] == preferred(100, ("kubernetes.io/hostname", "In", [node]))
    missed = await lab.until(lambda: released("missed"), "without room it is let go at its deadline")
    assert missed["metadata"]["annotations"][LOCALITY] == "missed"
    await lab.delete(CACHE_REPORTS, node)


async def s46_a_gate_that_nobody_has_to_keep_is_removed(lab: Lab) -> None:
    """Without a deadline, or beyond it: whoever added it, and whatever became of who should have removed it."""
    await lab.store("hbase")
    past = {LOCALITY_DEADLINE: "2020-01-01T00:00:00Z"}
    gates = [{"name": LOCALITY_GATE}]
    await lab.pod("bare", reader("hbase", schedulingGates=gates))
    await lab.pod("late", reader("hbase", schedulingGates=gates, annotations=past))

    async def are_released() -> bool:
        pods = [await lab.get(POD_OBJECTS, name) for name in ("bare", "late")]
        return not any(pod["spec"].get("schedulingGates") for pod in pods)

    await lab.until(are_released, "both are let go")
    assert (await lab.get(POD_OBJECTS, "late"))["metadata"]["annotations"][LOCALITY] == "missed"


async def s50_a_group_that_nobody_here_places_says_so_and_its_pods_are_let_go(lab: Lab) -> None:
    """The group of the documentation, as it stands there."""
    (text,) = re.findall(r"```yaml\n([^`]*kind: DataGroup[^`]*)```", (ROOT / "docs/data.md").read_text())
    group = yaml.safe_load(text)
    name, (of,) = group["metadata"]["name"], group["spec"]["datasets"]
    await lab.store(of)
    await lab.create(group)
    await lab.pod("p", reader(of, labels={**SERVERFUL, GROUP_LABEL: name}))

    async def is_told() -> bool:
        status = (await lab.get(DATA_GROUPS, name)).get("status") or {}
        said = "no placement in this process; the pods are placed one by one"
        return (status.get("phase"), status.get("message")) == ("Released", said)

    await lab.until(is_told, "the group says that nobody here places it")

    async def is_released() -> bool:
        return RELEASED in ((await lab.get(POD_OBJECTS, "p"))["metadata"].get("annotations") or {})

    await lab.until(is_released, "its pod is let go")


async def s51_workers_prefer_the_nodes_of_their_readers(lab: Lab) -> None:
    await lab.store("hbase")
    labels = {"role": "alluxio-worker", "fluid.io/dataset": f"{lab.namespace}-hbase"}
    worker = {"metadata": {"name": "w", "labels": labels}, "spec": {"containers": [{"name": "w", "image": "w:1"}]}}
    label = f"data.fairlead.io/dm-{lab.namespace}.hbase"
    weights = [("0", 10), ("2", 20), ("4", 20), ("6", 20), ("8", 30)]
    terms = [preferred(weight, (label, "Gt", [above])) for above, weight in weights]

    async def prefers_readers() -> bool:
        return bool(preferred_of(await lab.admitted(worker)) == terms)

    await lab.until(prefers_readers, "a worker prefers the nodes of its readers")
    fuse = {**worker, "metadata": {"name": "f", "labels": {**labels, "role": "alluxio-fuse"}}}
    assert "affinity" not in (await lab.admitted(fuse))["spec"]
    node = await lab.node("n0")
    await lab.pod("reads", reader("hbase", nodeName=node))

    async def is_counted() -> bool:
        return (await lab.labels(node)).get(label) == "10"

    await lab.until(is_counted, "the node of the reader has a label")


async def s52_one_load_for_two_pods(lab: Lab) -> None:
    await lab.store("hbase")
    wish = {PREFETCH: '{"paths": ["/a"], "until": "80%", "timeout": "10m"}'}

    async def is_gated() -> bool:
        pod = await lab.admitted(reader("hbase", annotations=wish))
        return {"name": PREFETCH_GATE} in pod["spec"].get("schedulingGates", [])

    await lab.until(is_gated, "a leader is there that would release it")
    for name in ("p", "q"):
        await lab.pod(name, reader("hbase", annotations=wish))

    async def loads() -> Any:
        return (await lab.api.call("GET", DATA_LOADS.collection_path(lab.namespace))).body["items"]

    (load,) = await lab.until(loads, "a DataLoad is created")
    assert load["spec"]["dataset"] == {"name": "hbase", "namespace": lab.namespace}
    assert load["spec"]["target"] == [{"path": "/a"}]
    await lab.patch(DATASETS, "hbase", {"status": {"cacheStates": {"cachedPercentage": "85.0%"}}})

    async def are_released() -> bool:
        return not any([(await lab.get(POD_OBJECTS, name))["spec"].get("schedulingGates") for name in ("p", "q")])

    await lab.until(are_released, "both are let go")
    assert len(await loads()) == 1


async def s53_a_load_that_fails_lets_the_pod_go_in_time(lab: Lab) -> None:
    await lab.store("hbase")
    wish = {PREFETCH: '{"paths": ["/a"], "timeout": "15s"}'}

    async def is_held() -> bool:
        pod = await lab.admitted(reader("hbase", annotations=wish))
        return "schedulingGates" in pod["spec"]

    await lab.until(is_held, "a leader is there that would release it")
    await lab.pod("p", reader("hbase", annotations=wish))

    async def loads() -> Any:
        return (await lab.api.call("GET", DATA_LOADS.collection_path(lab.namespace))).body["items"]

    (load,) = await lab.until(loads, "a DataLoad is created")
    await lab.patch(DATA_LOADS, load["metadata"]["name"], {"status": {"phase": "Failed"}})

    async def is_released() -> bool:
        return not (await lab.get(POD_OBJECTS, "p"))["spec"].get("schedulingGates")

    await lab.until(is_released, "it is let go")

    async def is_told() -> bool:
        return any("the pod starts cold" in each for each in await lab.events("PrefetchMissed"))

    await lab.until(is_told, "an event says so")


# --- for everybody ----------------------------------------------------------------------------------------------------


async def s27_s28_another_profile_is_in_force_and_a_bad_one_is_not(lab: Lab) -> None:
    await lab.store("hbase", fuse={"ssd": "1"})
    joined = [("ssd", "In", ["1"]), on(key(lab.namespace, "hbase")), *off(lab.namespace, "hbase")]
    pod = reader("hbase", labels=required("hbase"))
    assert required_of(await lab.admitted(pod)) == [term(*joined)]
    order = ("RequireNodeWithFuse, NodeAffinityWithCache", "NodeAffinityWithCache, RequireNodeWithFuse")
    lab.profile.write_text(DEFAULT.replace(*order))

    async def is_turned() -> bool:
        return bool(required_of(await lab.admitted(pod)) == [term(joined[1], joined[0], joined[2])])

    await lab.until(is_turned, "the plugins run in the new order")
    lab.profile.write_text(DEFAULT.replace("RequireNodeWithFuse", "NoSuchPlugin"))

    async def is_told() -> bool:
        return "the old profile is in force" in (await lab.readiness()).body

    await lab.until(is_told, "the readiness says that the profile is not used")
    found = await lab.readiness()
    assert (found.status, "NoSuchPlugin" in found.body) == (200, True)
    assert await is_turned(), "the one before is in force"
    lab.profile.write_text(DEFAULT)

    async def is_back() -> bool:
        return bool(required_of(await lab.admitted(pod)) == [term(*joined)])

    await lab.until(is_back, "the first profile is in force again")
    assert (await lab.readiness()).body == "ok"


async def s73_a_damaged_secret_is_replaced_and_said(lab: Lab) -> None:
    path = SECRETS.path("fairlead-system", SECRET)
    before = (await lab.api.call("GET", path)).body["data"]
    damage = {"data": {"tls.key": base64.b64encode(b"nonsense").decode()}}
    assert (await lab.api.call("PATCH", path, damage, MERGE)).status == 200

    async def is_replaced() -> Any:
        data = (await lab.api.call("GET", path)).body["data"]
        return data if data["ca.crt"] != before["ca.crt"] and data["tls.key"] != damage["data"]["tls.key"] else None

    data = await lab.until(is_replaced, "another authority is in the Secret")

    async def is_trusted() -> bool:
        found = (await lab.api.call("GET", MUTATING.path("", "fairlead-data"))).body["webhooks"]
        return {each["clientConfig"].get("caBundle") for each in found} == {data["ca.crt"]}

    await lab.until(is_trusted, "the server trusts it")

    async def is_said() -> bool:
        found = await lab.api.call("GET", "/apis/events.k8s.io/v1/namespaces/fairlead-system/events")
        return any(each["reason"] == "CertificateReplaced" for each in found.body["items"])

    await lab.until(is_said, "an event says so")
    await lab.store("hbase")


async def s74_a_bundle_that_was_reset_is_repaired(lab: Lab) -> None:
    path = MUTATING.path("", "fairlead-data")

    async def bundles() -> set[str]:
        found = (await lab.api.call("GET", path)).body["webhooks"]
        return {each["clientConfig"].get("caBundle", "") for each in found}

    (before,) = await bundles()
    for odd in ("Cg==", base64.b64encode(b"of another").decode()):
        patch = [{"op": "replace", "path": f"/webhooks/{i}/clientConfig/caBundle", "value": odd} for i in (0, 1)]
        answer = await lab.api.call("PATCH", path, patch, "application/json-patch+json")
        assert answer.status in (200, 422), answer

        async def is_repaired() -> bool:
            return await bundles() == {before}

        await lab.until(is_repaired, "the bundle is repaired")
    await lab.store("hbase")


async def s64_fluids_kinds_go_and_come(lab: Lab) -> None:
    await lab.store("hbase")
    kinds = definitions()
    for each in kinds:
        await lab.delete(DEFINITIONS, each["metadata"]["name"])

    async def passes() -> bool:
        answer = await lab.tried(reader("hbase"))
        return answer.status == 201 and "affinity" not in answer.body["spec"]

    await lab.until(passes, "without the kinds nothing is a dataset")
    found = await lab.readiness()
    assert (found.status, found.body.startswith("ok: Fluid's kinds are not defined")) == (200, True), found
    for each in kinds:

        async def is_defined(body: Any = each) -> bool:
            return (await lab.api.call("POST", DEFINITIONS.collection_path(), body)).status == 201

        await lab.until(is_defined, "the kind is defined again")
    await lab.delete(CLAIMS, "hbase")

    async def is_served() -> bool:
        path = DATASETS.collection_path(lab.namespace)
        return (await lab.api.call("POST", path, dataset("again", lab.namespace))).status == 201

    await lab.until(is_served, "datasets can be created again")

    async def has_runtime() -> bool:
        path = ALLUXIO.collection_path(lab.namespace)
        return (await lab.api.call("POST", path, runtime("again", lab.namespace))).status == 201

    await lab.until(has_runtime, "runtimes can be created again")
    await lab.create(claim("again", lab.namespace))

    async def is_patched() -> bool:
        answer = await lab.tried(reader("again"))
        return answer.status == 201 and "affinity" in answer.body["spec"]

    await lab.until(is_patched, "the kinds are picked up", 90)


async def s44_a_drain_under_way(lab: Lab) -> None:
    """A reader holds the node; the next process goes on from here (scenarios_placed.py). The last one: another deletes
    every dataset."""
    assert lab.namespace == UNDER_WAY
    await lab.store("hbase", replicas=2)
    nodes = [await lab.node(f"n{i}") for i in range(2)]
    for number, node in enumerate(nodes):
        await lab.worker("hbase", number, node)
    await lab.pod("reads", reader("hbase", nodeName=nodes[1]))
    await lab.patch(ALLUXIO, "hbase", {"metadata": {"annotations": {SCALE_IN_TO: "1"}}})

    async def is_begun() -> bool:
        annotations = (await lab.get(ALLUXIO, "hbase"))["metadata"]["annotations"]
        return set(MARKS) <= set(annotations) and off(UNDER_WAY, "hbase")[0][0] in await lab.labels(nodes[1])

    await lab.until(is_begun, "the drain is under way")


_EVERYBODY: Final = ("s27_", "s73_", "s74_", "s64_", "s44_")
_ALL: Final[Mapping[str, Scenario]] = {
    name: each for name, each in list(globals().items()) if re.match(r"s\d\d_", name)
}
PHASES: Final = {name: each for name, each in _ALL.items() if not name.startswith(_EVERYBODY)}
ALONE: Final = {name: each for name, each in _ALL.items() if name.startswith(_EVERYBODY)}
