"""DataGroups: pods and the workers of their datasets as one unit of placement."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec

from fairlead.data.groups import GROUP_LABEL, RELEASED, GroupSource, plan, unit_of_group
from fairlead.data.spec import DataGroup, ReaderPod
from fairlead.engine.cycle import Cycle
from fairlead.engine.gang import Gangs
from fairlead.engine.profile import kube_profile
from fairlead.engine.statement import Statement
from fairlead.engine.table import NodeTable
from fairlead.engine.unit import UnitPlaced, UnitRefused
from fairlead.model.intents import Patch, PatchStatus
from fairlead.model.node import Node
from fairlead.model.pod import Pod
from fairlead.model.times import rfc3339

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def group(**spec: Any) -> DataGroup:
    body = {"datasets": ["hbase"], "pods": 2, "workerReplicas": 1, "workerResources": {"cpu": "2"}, **spec}
    metadata = {"name": "g", "namespace": "default", "creationTimestamp": rfc3339(NOW)}
    return msgspec.convert({"metadata": metadata, "spec": body}, DataGroup)


def pod(name: str, gpus: int = 1, node: str = "") -> Pod:
    requests = {"cpu": "1", "nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": {GROUP_LABEL: "g"}}
    spec = {"containers": [{"name": "c", "resources": {"requests": requests}}], "nodeName": node}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def cluster() -> NodeTable:
    table = NodeTable()
    for name in ("gpu1", "gpu2"):
        status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "2"}}
        table.add_node(msgspec.convert({"metadata": {"name": name}, "status": status}, Node))
    table.add_pod(pod("busy", gpus=2, node="gpu1"))
    return table


def decided(table: NodeTable, one: DataGroup, pods: list[Pod]) -> Any:
    gangs = Gangs(Cycle(table, kube_profile()))
    return gangs.decide(unit_of_group(one, pods), Statement(table))


def test_s49_workers_and_pods_are_placed_where_both_have_room() -> None:
    outcome = decided(cluster(), group(), [pod("a"), pod("b")])
    assert isinstance(outcome, UnitPlaced)
    places = {each.pod: each.node for each in outcome.placed}
    assert (places["default/a"], places["default/b"]) == ("gpu2", "gpu2")
    (status,) = plan(group(), outcome, [], True, NOW)
    assert isinstance(status, PatchStatus)
    assert status.status["phase"] == "Placed"
    assert status.status["nodes"] == [places["default/hbase-worker-0"]]


def test_s50_a_group_without_room_says_why_and_lets_its_pods_go_in_time() -> None:
    outcome = decided(cluster(), group(), [pod("a", gpus=2), pod("b", gpus=2)])
    assert isinstance(outcome, UnitRefused)
    waiting = msgspec.convert({"metadata": {"name": "a", "namespace": "default"}}, ReaderPod)
    assert plan(group(), outcome, [waiting], True, NOW) == []
    status, released = plan(group(), outcome, [waiting], True, NOW + timedelta(seconds=601))
    assert isinstance(status, PatchStatus)
    assert isinstance(released, Patch)
    assert status.status["phase"] == "Released"
    assert "no room for all of them in time: 0/2 nodes are available" in status.status["message"]
    assert released.patch == {"metadata": {"annotations": {RELEASED: "true"}}}


def test_without_placement_the_group_says_so() -> None:
    (status,) = plan(group(), None, [], False, NOW)
    assert isinstance(status, PatchStatus)
    assert status.status["message"] == "no placement in this process; the pods are placed one by one"


def test_a_group_is_offered_once_all_its_pods_are_there() -> None:
    held = {
        f"default/{name}": msgspec.convert({"metadata": {"name": name, "namespace": "default", "uid": name}}, ReaderPod)
        for name in ("a", "b")
    }
    view: Any = SimpleNamespace(groups={"default/g": group()}, pods=held)
    source = GroupSource(view)
    assert source.unit_of(pod("a")) == "datagroup/default/g"
    assert list(source.changed()) == []
    source.unit_of(pod("b"))
    ((key, unit),) = source.changed()
    assert unit is not None
    assert (key, [each.pod.key for each in unit.members]) == (
        "datagroup/default/g", ["default/hbase-worker-0", "default/a", "default/b"],
    )  # fmt: skip
    assert list(source.changed()) == [], "once"
    view.groups.clear()
    assert list(source.changed()) == [("datagroup/default/g", None)]
