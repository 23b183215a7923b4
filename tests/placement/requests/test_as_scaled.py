"""Planned nodes are those that the loop gives the same pods when `kubectl scale` makes them.

On random clusters a request is planned on one loop; on another loop over the same cluster the workload is scaled, its
own controller makes the pods, admission adds to them, and the loop decides. Node for node, in order, both agree.
"""

import copy
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec
import pytest

from fairlead.engine.profile import Profile, kube_profile, seed_profile
from fairlead.local.controllers import spec as controllers
from fairlead.local.controllers.replicasets import ReplicaSetInput, plan_replica_set
from fairlead.local.controllers.statefulsets import StatefulSetInput, plan_stateful_set
from fairlead.model.intents import Create, PatchStatus
from fairlead.model.node import Node
from fairlead.model.pod import SchedulerPod
from fairlead.model.workloads import Namespace, ReplicaSet, Service, StatefulSet
from fairlead.placement.requests.model import next_maker, pod_body
from fairlead.placement.requests.plan import ItemInput, RoundOptions, plan_round
from fairlead.placement.requests.spec import Item, ItemStatus, Workload, WorkloadRef
from fairlead.testing.clock import settle
from tests.placement.requests.kit import ACCEPTED, NOW
from tests.placement.test_loop import Server, looping
from tests.properties import worlds

Doc = dict[str, Any]
HASH = "6d4cf56db6"


class Case:
    """A cluster, a workload in it, and how many more of its pods are wanted."""

    def __init__(self, rng: Random) -> None:
        self.world = worlds.a_world(rng, nodes=14, pods=16)
        for pod in self.world["pods"]:
            pod["metadata"].pop("deletionTimestamp", None)
        for node in self.world["nodes"]:
            node["status"]["allocatable"]["pods"] = "110"
        sample = worlds.a_pod(rng, "web", fancy=0.15)
        self.namespace = sample["metadata"]["namespace"]
        self.kind = rng.choice(("Deployment", "Deployment", "ReplicaSet", "StatefulSet"))
        labels = sample["metadata"]["labels"]
        if self.kind == "Deployment":
            labels = {**labels, "pod-template-hash": HASH}
            for constraint in sample["spec"].get("topologySpreadConstraints", ()):
                if rng.random() < 0.5:
                    constraint["matchLabelKeys"] = ["pod-template-hash"]
        self.template = {"metadata": {"labels": labels}, "spec": {**sample["spec"], "schedulerName": "fairlead"}}
        for container in self.template["spec"]["containers"]:
            container.pop("ports", None)
        self.selector = {"matchLabels": dict(labels)}
        self.replicas, self.more = rng.choice((0, 0, 2, 4)), rng.randint(1, 10)
        self.name = f"web-{HASH}" if self.kind == "Deployment" else "web"
        self.adds = rng.random() < 0.5
        self.profile: Profile = rng.choice((kube_profile(), seed_profile()))
        names = [node["metadata"]["name"] for node in self.world["nodes"]]
        self.placed_on = [rng.choice(names) for _ in range(self.replicas)]

    @property
    def owner_kind(self) -> str:
        return "ReplicaSet" if self.kind == "Deployment" else self.kind

    def owner(self, replicas: int, status: Doc | None = None) -> Doc:
        """The ReplicaSet or StatefulSet that makes the pods."""
        metadata: Doc = {"name": self.name, "namespace": self.namespace, "uid": "uid-of-owner"}
        if self.kind == "Deployment":
            above = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-of-web"}
            metadata["ownerReferences"] = [{**above, "controller": True}]
        spec = {"replicas": replicas, "selector": self.selector, "template": copy.deepcopy(self.template)}
        if self.kind == "StatefulSet":
            spec["podManagementPolicy"] = "Parallel"
        return {"metadata": metadata, "spec": spec, "status": status or {}}

    def workload(self) -> Workload:
        """What the request is about, as the server tells it."""
        if self.kind == "StatefulSet":
            return msgspec.convert(self.owner(self.replicas, {"updateRevision": self.revision()}), Workload)
        if self.kind == "ReplicaSet":
            return msgspec.convert(self.owner(self.replicas), Workload)
        template = copy.deepcopy(self.template)
        del template["metadata"]["labels"]["pod-template-hash"]
        metadata = {"name": "web", "namespace": self.namespace, "uid": "uid-of-web"}
        spec = {"replicas": self.replicas, "selector": {}, "template": template}
        return msgspec.convert({"metadata": metadata, "spec": spec}, Workload)

    def revision(self) -> str:
        patches = [each for each in self.controller_does(self.replicas) if isinstance(each, PatchStatus)]
        return str(patches[0].status["updateRevision"])

    def controller_does(self, replicas: int) -> list[Any]:
        now = datetime(2026, 1, 1, tzinfo=UTC)
        pods = tuple(msgspec.convert(pod, controllers.ControllerPod) for pod in self.placed_pods())
        if self.owner_kind == "StatefulSet":
            owner = msgspec.convert(self.owner(replicas), controllers.StatefulSet)
            selector = controllers.parse_selector(owner.spec.selector)
            assert selector is not None
            return plan_stateful_set(StatefulSetInput(owner, selector, pods, ()), now)
        owner_set = msgspec.convert(self.owner(replicas), controllers.ReplicaSet)
        selector = controllers.parse_selector(owner_set.spec.selector)
        assert selector is not None
        return plan_replica_set(ReplicaSetInput(controllers.REPLICA_SETS, owner_set, selector, pods), now)

    def admit(self, body: Doc) -> SchedulerPod:
        """What admission makes of a pod: more than its template says."""
        body = copy.deepcopy(body)
        body["metadata"] = {**body["metadata"], "namespace": self.namespace, "uid": f"uid-{body['metadata']['name']}"}
        if self.adds:
            body["metadata"]["labels"] = {**body["metadata"]["labels"], "tier": "added"}
            tolerations = body["spec"].get("tolerations") or []
            body["spec"]["tolerations"] = [*tolerations, {"key": "maint", "operator": "Exists"}]
            body["spec"]["priority"] = 7
            for container in body["spec"]["containers"]:
                container["resources"]["requests"].setdefault("cpu", "40m")
        return msgspec.convert(body, SchedulerPod)

    def made(self) -> list[SchedulerPod]:
        """The pods that scaling makes."""
        creates = [
            each.body
            for each in self.controller_does(self.replicas + self.more)
            if isinstance(each, Create) and each.body["kind"] == "Pod"
        ]
        assert len(creates) == self.more
        return [self.admit(body) for body in creates]

    def placed_pods(self) -> list[Doc]:
        """The pods there are, with the zone that the server writes on a pod when it is bound."""
        pods = []
        for number, node in enumerate(self.placed_on):
            zones = {
                each["metadata"]["name"]: each["metadata"]["labels"].get(worlds.ZONE) for each in self.world["nodes"]
            }
            labels = dict(self.template["metadata"]["labels"])
            if zone := zones[node]:
                labels[worlds.ZONE] = zone
            name = f"{self.name}-{number}"
            reference = {"apiVersion": "apps/v1", "kind": self.owner_kind, "name": self.name, "uid": "uid-of-owner"}
            metadata = {"name": name, "namespace": self.namespace, "uid": f"uid-old-{name}", "labels": labels}
            metadata["ownerReferences"] = [{**reference, "controller": True}]
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2025-12-31T00:00:00Z"}
            spec = {**copy.deepcopy(self.template["spec"]), "nodeName": node}
            status = {"phase": "Running", "conditions": [ready]}
            pods.append({"metadata": metadata, "spec": spec, "status": status})
        return pods

    def fill(self, server: Server) -> None:
        around: list[Any] = [msgspec.convert(each, Namespace) for each in self.world["namespaces"]]
        around += [msgspec.convert(each, Service) for each in self.world["services"]]
        struct = {"ReplicaSet": ReplicaSet, "StatefulSet": StatefulSet}[self.owner_kind]
        around.append(msgspec.convert(self.owner(self.replicas), struct))
        for thing in around:
            mirror = next(each for each in server.loop.related_mirrors if each.kind.struct is type(thing))
            mirror.apply([(True, thing)])
        server.put(*(msgspec.convert(each, Node) for each in self.world["nodes"]))
        pods = [*self.world["pods"], *self.placed_pods()]
        server.put(*(msgspec.convert(each, SchedulerPod) for each in pods))


async def planned(case: Case) -> list[str]:
    workload = case.workload()
    sets = [msgspec.convert(case.owner(case.replicas), Workload)] if case.kind == "Deployment" else []
    maker = next_maker(case.kind, workload, sets)
    assert maker is not None
    body = pod_body(maker)
    body["metadata"] = {**body["metadata"], "name": "tried"}
    reference = {"kind": case.kind, "name": "web", "uid": workload.metadata.uid}
    item = Item(
        operation="Add",
        namespace=case.namespace,
        service_name="web",
        number=case.more,
        workload=msgspec.convert(reference, WorkloadRef),
    )
    wanted = ItemInput("sr-1", 0, item, ItemStatus(), ACCEPTED, workload, maker=maker, admitted=case.admit(body))
    async with looping(nodes=0, profile=case.profile) as (server, _):
        case.fill(server)
        await settle()
        (status,) = await server.loop.run_on_table(
            lambda handle: plan_round(handle, [wanted], now=NOW, options=RoundOptions(), busy={})
        )
    assert status.phase == "Planned"
    return [place.node for place in status.places]


async def scaled(case: Case) -> list[str]:
    async with looping(nodes=0, profile=case.profile) as (server, _):
        case.fill(server)
        await settle()
        pods = case.made()
        server.put(*pods)
        await settle()
        return [server.writes.bindings.get(pod.metadata.name, "") for pod in pods]


@pytest.mark.parametrize("seed", range(50))
async def test_planned_nodes_are_those_of_pods_made_by_scaling(seed: int) -> None:
    case = Case(Random(seed))
    assert await planned(case) == await scaled(case)


async def test_the_random_clusters_are_not_trivial() -> None:
    cases = [Case(Random(seed)) for seed in range(50)]
    assert {case.kind for case in cases} == {"Deployment", "ReplicaSet", "StatefulSet"}
    assert sum(case.replicas == 0 for case in cases) > 5
    used = [len(set(nodes) - {""}) for case in cases if (nodes := await planned(case))]
    assert sum(count >= 3 for count in used) > 10
