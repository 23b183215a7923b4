"""The scenarios that need placement in the same process, labels of levels, or drains that are given up.

They run after the others, in a process that was started again with these settings: what one of the others left under
way is there to be gone on with.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final

from fairlead.cluster.clock import RealClock
from fairlead.data.drains import MARKS, SCALE_IN_TO
from fairlead.data.groups import RELEASED
from fairlead.data.objects import CLAIMS
from fairlead.data.spec import CACHE_REPORTS, DATA_GROUPS, NODES
from fairlead.data.view import GROUP_LABEL
from fairlead.data.waits import LOCALITY
from fairlead.engine.locality_wait import LOCALITY_WAIT
from fairlead.jobs.spec import TYJOBS
from fairlead.model.kinds import POD_OBJECTS
from fairlead.model.times import parse_time, rfc3339
from tests.data.lab import ALLUXIO, MERGE, Lab, Scenario
from tests.data.objects import SERVERFUL, preferred_of, reader, required_of
from tests.data.scenarios import fuse_objects, key, off, preferred
from tests.data.scenarios_phases import GIB, UNDER_WAY, report
from tests.jobs.kit import spec_json

SETTINGS: Final = {
    "data.affinity": "levels",
    "data.labelEveryS": "1",
    "data.drainPolicy": "Abort",
    "data.drainDeadlineS": "1",
}
SCHEDULER: Final = "fairlead"
LAB: Final = "lab"


def placed(lab: Lab, *claims: str, cpu: str = "1", **more: Any) -> dict[str, Any]:
    """A reader that our scheduler places on a node of this lab."""
    pod = reader(*claims, schedulerName=SCHEDULER, nodeSelector={LAB: lab.namespace}, **more)
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return pod


async def bind(lab: Lab, name: str) -> None:
    """The claim of a dataset has its volume, as Fluid and Kubernetes' controllers would have it."""
    claim = await lab.get(CLAIMS, name)
    (volume,) = (each for each in fuse_objects(lab.namespace, name) if each["kind"] == "PersistentVolume")
    volume["spec"]["claimRef"] = {"namespace": lab.namespace, "name": name, "uid": claim["metadata"]["uid"]}
    await lab.create(volume)
    done = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}}
    await lab.patch(CLAIMS, name, done)
    status = f"{CLAIMS.path(lab.namespace, name)}/status"
    assert (await lab.api.call("PATCH", status, {"status": {"phase": "Bound"}}, MERGE)).status == 200


async def node_of(lab: Lab, name: str) -> str:
    return str((await lab.get(POD_OBJECTS, name))["spec"].get("nodeName") or "")


async def s33_s34_s35_s36_levels_follow_what_nodes_hold(lab: Lab) -> None:
    def level(name: str) -> str:
        return f"data.fairlead.io/cl-{lab.namespace}.{name}"

    floor = {key(lab.namespace, "hbase"): "true"}
    names = ("most", "less", "cold", "late", "half")
    most, less, cold, late, half = [
        await lab.node(name, 4, **{LAB: lab.namespace}, **(floor if name == "late" else {})) for name in names
    ]
    await lab.store("hbase", ufsTotal="10.00GiB")
    await lab.store("odd", ufsTotal="[Calculating]", cacheStates={"cacheCapacity": "20.00GiB"})
    await bind(lab, "hbase")
    old = report(late, lab.namespace, "hbase", 9 * GIB)
    old["spec"]["datasets"][0]["seenAt"] = rfc3339(RealClock().now() - timedelta(minutes=10))
    both = report(most, lab.namespace, "hbase", 8 * GIB)
    both["spec"]["datasets"] += report(most, lab.namespace, "odd", 5 * GIB)["spec"]["datasets"]
    await lab.create(both, report(less, lab.namespace, "hbase", 2 * GIB), old)

    async def levels() -> list[tuple[str | None, ...]]:
        labels = [await lab.labels(node) for node in (most, less, cold, late)]
        return [tuple(each.get(level(name)) for name in ("hbase", "odd")) for each in labels]

    async def are_written() -> bool:
        return await levels() == [("8", "3"), ("2", None), (None, None), ("1", None)]

    await lab.until(are_written, "every node has the level of what it holds")
    await lab.pod("reads", placed(lab, "hbase"))

    async def is_placed() -> Any:
        return await node_of(lab, "reads")

    assert await lab.until(is_placed, "a reader is placed") == most
    ladder = [("0", 10), ("2", 20), ("4", 20), ("6", 20), ("8", 30)]
    assert preferred_of(await lab.admitted(reader("hbase", schedulerName="another"))) == [
        preferred(weight, (level("hbase"), "Gt", [above])) for above, weight in ladder
    ]
    # A value that swings around a step.
    await lab.create(report(half, lab.namespace, "hbase", int(4.9 * GIB)))

    async def has(name: str, step: str) -> bool:
        return (await lab.labels(half)).get(level(name)) == step

    await lab.until(lambda: has("hbase", "5"), "the level of a half")
    held = report(half, lab.namespace, "hbase", int(5.1 * GIB))
    for number in range(30):
        held = report(half, lab.namespace, "hbase", int((5.1 - 0.2 * (number % 2)) * GIB))
        await lab.patch(CACHE_REPORTS, half, {"spec": held["spec"]})
        assert await has("hbase", "5")
    held["spec"]["datasets"] += report(half, lab.namespace, "odd", 20 * GIB)["spec"]["datasets"]
    await lab.patch(CACHE_REPORTS, half, {"spec": held["spec"]})
    await lab.until(lambda: has("odd", "10"), "the last report has been seen")
    assert await has("hbase", "5")


async def s39_s44_a_drain_that_another_process_began_is_given_up_at_its_deadline(lab: Lab) -> None:
    """Begun by the process before this one, which would have waited."""
    before = Lab(lab.api, UNDER_WAY, lab.profile)
    label = off(UNDER_WAY, "hbase")[0][0]
    node = f"{UNDER_WAY}-n1"

    async def is_given_up() -> bool:
        runtime = await before.get(ALLUXIO, "hbase")
        marks = set(MARKS) & set(runtime["metadata"].get("annotations") or {})
        return not marks and runtime["spec"]["replicas"] == 2 and label not in await before.labels(node)

    await lab.until(is_given_up, "label and marks are gone, the replicas as before")

    async def is_told() -> bool:
        note = f"scale-in to 1 given up: still read by {UNDER_WAY}/reads"
        return note in await before.events("ScaleInAborted")

    await lab.until(is_told, "an event says who reads there")
    await before.delete(POD_OBJECTS, "reads")
    await before.patch(ALLUXIO, "hbase", {"metadata": {"annotations": {SCALE_IN_TO: "1"}}})

    async def is_lowered() -> bool:
        return bool((await before.get(ALLUXIO, "hbase"))["spec"]["replicas"] == 1)

    await lab.until(is_lowered, "without a reader it comes to its end")


async def s45_placement_waits_for_room_on_a_warm_node_without_a_gate(lab: Lab) -> None:
    warm, cold = [await lab.node(name, cpus, **{LAB: lab.namespace}) for name, cpus in (("warm", 4), ("cold", 16))]
    await lab.pod("busy", placed(lab, cpu="3", nodeName=warm))
    await lab.store("hbase", ufsTotal="500.00GiB")
    await bind(lab, "hbase")
    await lab.create(report(warm, lab.namespace, "hbase", 400 * GIB))

    async def is_known() -> bool:
        return f"data.fairlead.io/cl-{lab.namespace}.hbase" in await lab.labels(warm)

    await lab.until(is_known, "what the node holds is known")
    created = [
        await lab.pod(name, placed(lab, "hbase", cpu=cpu, annotations={LOCALITY_WAIT: wait}))
        for name, cpu, wait in (("waits", "2", "node=50s"), ("misses", "4", "node=3s"))
    ]
    assert not any("schedulingGates" in pod["spec"] for pod in created)

    async def result(name: str) -> Any:
        pod = await lab.get(POD_OBJECTS, name)
        return pod["metadata"]["annotations"].get(LOCALITY) and pod

    missed = await lab.until(lambda: result("misses"), "it goes elsewhere when its time is over")
    assert (missed["spec"]["nodeName"], missed["metadata"]["annotations"][LOCALITY]) == (cold, "missed")
    bound = next(each for each in missed["status"]["conditions"] if each["type"] == "PodScheduled")
    times = [parse_time(each) for each in (missed["metadata"]["creationTimestamp"], bound["lastTransitionTime"])]
    assert times[1] - times[0] >= timedelta(seconds=2), "times are whole seconds"
    assert await node_of(lab, "waits") == ""
    await lab.delete(POD_OBJECTS, "busy")
    near = await lab.until(lambda: result("waits"), "it gets the room that is free now")
    assert (near["spec"]["nodeName"], near["metadata"]["annotations"][LOCALITY]) == (warm, "near")


async def grouped(lab: Lab, timeout_s: int) -> None:
    """A dataset with a worker to come and one pod, in a group."""
    await lab.store("hbase")
    await bind(lab, "hbase")
    await lab.patch(ALLUXIO, "hbase", {"spec": {"worker": {"nodeSelector": {LAB: lab.namespace}}}})
    spec = {
        "datasets": ["hbase"], "pods": 1, "workerReplicas": 1, "workerResources": {"cpu": "2"},
        "timeoutSeconds": timeout_s,
    }  # fmt: skip
    await lab.create({"kind": "DataGroup", "metadata": {"name": "g"}, "spec": spec})
    await lab.pod("reads", placed(lab, "hbase", cpu="2", labels={**SERVERFUL, GROUP_LABEL: "g"}))


async def s49_a_worker_and_its_reader_go_where_both_have_room(lab: Lab) -> None:
    first, second = [await lab.node(name, 4, **{LAB: lab.namespace}) for name in ("gpu1", "gpu2")]
    busy = placed(lab, cpu="3", nodeName=first)
    await lab.pod("busy", busy)
    await grouped(lab, 600)

    async def is_placed() -> Any:
        status = (await lab.get(DATA_GROUPS, "g")).get("status") or {}
        return status if status.get("phase") == "Placed" else None

    status = await lab.until(is_placed, "the group is placed")
    assert status["workers"] == [{"pod": f"{lab.namespace}/hbase-worker-0", "node": second}]

    async def is_bound(name: str) -> bool:
        return await node_of(lab, name) == second

    await lab.until(lambda: is_bound("reads"), "the reader is beside the room of the worker")
    labels = {"role": "alluxio-worker", "fluid.io/dataset": f"{lab.namespace}-hbase"}
    await lab.pod("hbase-worker-0", placed(lab, cpu="2", labels=labels))
    await lab.until(lambda: is_bound("hbase-worker-0"), "the worker gets its room")


async def s50_an_exclusive_dataset_on_the_only_node_is_explained_and_the_pods_are_let_go(lab: Lab) -> None:
    node = await lab.node("n0", 8, **{LAB: lab.namespace})
    await lab.worker("other", 0, node)
    await grouped(lab, 10)
    messages: list[str] = []

    async def is_released() -> bool:
        status = (await lab.get(DATA_GROUPS, "g")).get("status") or {}
        messages.append(status.get("message", ""))
        return bool(status.get("phase") == "Released")

    await lab.until(is_released, "its time is over")
    assert messages[-1].startswith("no room for all of them in time: 0/"), messages[-1]
    assert "anti-affinity" in messages[-1]

    async def is_bound() -> bool:
        return await node_of(lab, "reads") == node

    await lab.until(is_bound, "the pod is placed by itself")
    assert RELEASED in (await lab.get(POD_OBJECTS, "reads"))["metadata"]["annotations"]


async def s54_a_node_without_room_for_the_fuse_is_not_chosen(lab: Lab) -> None:
    node = await lab.node("n0", 4, **{LAB: lab.namespace})
    await lab.store("hbase")
    await bind(lab, "hbase")
    await lab.patch(ALLUXIO, "hbase", {"spec": {"fuse": {"resources": {"requests": {"cpu": "2"}}}}})

    async def is_counted() -> bool:
        """Once the webhook knows of the fuse's requests, so does the scheduler."""
        fuse = key(lab.namespace, "hbase", "f")
        found = preferred_of(await lab.admitted(reader("hbase", schedulerName="another")))
        return any(fuse in str(each) for each in found)

    await lab.until(is_counted, "the fuse's requests are known")
    await lab.pod("p", placed(lab, "hbase", cpu="3"))

    async def is_told() -> bool:
        conditions = (await lab.get(POD_OBJECTS, "p"))["status"].get("conditions") or []
        return any("Insufficient cpu for the fuse of its dataset" in each.get("message", "") for each in conditions)

    await lab.until(is_told, "the pod is told what its fuse lacks")
    await lab.patch(NODES, node, {"metadata": {"labels": {key(lab.namespace, "hbase", "f"): "true"}}})

    async def is_bound() -> bool:
        return await node_of(lab, "p") == node

    await lab.until(is_bound, "where the fuse runs already there is room")
    assert required_of(await lab.get(POD_OBJECTS, "p")) != []


async def s55_a_gang_goes_where_its_data_is_only_if_all_of_it_fits(lab: Lab) -> None:
    zone = f"zone-{lab.namespace}"
    warm, other = [
        await lab.node(name, cpus, **{LAB: lab.namespace, zone: name}) for name, cpus in (("a", 7), ("b", 5))
    ]
    await lab.store("hbase", ufsTotal="10.00GiB")
    await bind(lab, "hbase")
    await lab.create(report(warm, lab.namespace, "hbase", 10 * GIB))

    async def is_known() -> bool:
        return f"data.fairlead.io/cl-{lab.namespace}.hbase" in await lab.labels(warm)

    await lab.until(is_known, "what the node holds is known")
    spec = spec_json(3, schedulerPolicy={"basicPolicy": "Gang", "topology": {"key": zone}})
    for template in (spec["leader"]["template"], spec["workerSets"][0]["template"]):
        pod = placed(lab, "hbase")["spec"]
        template["spec"] = {name: pod[name] for name in ("containers", "volumes", "nodeSelector")}

    async def allocations(job: str) -> Any:
        return ((await lab.get(TYJOBS, job)).get("status") or {}).get("allocations")

    # The second would have room for three of its four pods where the data is.
    for job, node in (("first", warm), ("second", other)):
        await lab.create({"kind": TYJOBS.kind, "metadata": {"name": job}, "spec": spec})
        found = await lab.until(partial(allocations, job), "the gang has its places")
        assert (found["leader"], found["workers"]) == (node, {"actors": {node: "0-2"}})


PLACED: Final[Mapping[str, Scenario]] = {
    name: each for name, each in list(globals().items()) if re.match(r"s\d\d_", name)
}
