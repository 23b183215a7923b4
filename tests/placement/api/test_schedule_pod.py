"""POST /schedulePod and its read side, on real sockets before an API server that knows callers and roles."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.apiserver.embedded import Embedded
from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.errors import no_answer
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.watch import Watch
from fairlead.model.kinds import DEFINITIONS, NAMESPACES, Kind
from fairlead.model.meta import ApiObject
from fairlead.placement.api.schedule_pod import SchedulePod
from fairlead.placement.requests.spec import SCHEDULE_REQUESTS, ScheduleRequest, definition
from fairlead.web.guard import Guard
from fairlead.web.routes import RouteTable
from tests.web.conftest import Api, Told, serving

HOME = "fairlead-system"
DEPLOYMENTS = Kind("apps", "v1", "deployments", "Deployment", ApiObject)
REPLICA_SETS = Kind("apps", "v1", "replicasets", "ReplicaSet", ApiObject)
STATEFUL_SETS = Kind("apps", "v1", "statefulsets", "StatefulSet", ApiObject)
SERVICES = Kind("", "v1", "services", "Service", ApiObject)
PODS = Kind("", "v1", "pods", "Pod", ApiObject)
SCALERS = Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", ApiObject)
ACCOUNTS = Kind("", "v1", "serviceaccounts", "ServiceAccount", ApiObject)
ROLES = Kind("rbac.authorization.k8s.io", "v1", "roles", "Role", ApiObject)
BINDINGS = Kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", ApiObject)


class Shop:
    """A namespace with workloads, and a caller (ann) who may scale them."""

    def __init__(self, client: Client, api: Api, mirror: Mirror[ScheduleRequest]) -> None:
        self.client = client
        self.api = api
        self.mirror = mirror

    async def workload(
        self, name: str, kind: Kind[ApiObject] = DEPLOYMENTS, app: str = "", **metadata: Any
    ) -> ApiObject:
        labels = {"app": app or name}
        spec: dict[str, Any] = {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "a"}]}},
        }
        if kind is STATEFUL_SETS:
            spec["serviceName"] = name
        body = {"apiVersion": "apps/v1", "kind": kind.kind, "metadata": {"name": name, **metadata}, "spec": spec}
        return await self.client.create(kind, body, "shop")

    async def service(self, name: str, **selector: str) -> None:
        body = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "selector": selector or None}}
        await self.client.create(SERVICES, body, "shop")

    async def pod(self, name: str, app: str, owner: dict[str, Any] | None = None) -> None:
        metadata: dict[str, Any] = {"name": name, "labels": {"app": app}}
        if owner:
            metadata["ownerReferences"] = [{"controller": True, **owner}]
        body = {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "a"}]}}
        await self.client.create(PODS, body, "shop")

    async def post(self, *items: Any, token: str | None = "token-of-ann", key: str = "", **more: Any) -> Told:
        headers = {"Idempotency-Key": key} if key else {}
        body = {"podList": list(items), **more}
        told = await self.api.ask("POST", "/schedulePod", token, body=body, headers=headers)
        assert told.body["isSucceed"] is (told.status == 202), "every answer carries it"
        return told

    async def stored(self) -> list[ScheduleRequest]:
        return await self.client.list(SCHEDULE_REQUESTS, HOME)

    async def heard_of(self, count: int, phase: str = "Accepted") -> None:
        """Until the mirror shows so many in that phase."""
        subscription = self.mirror.subscribe()
        async with asyncio.timeout(10):
            while sum(1 for request in self.mirror if request.status.phase == phase) < count:
                await subscription.wait()
                subscription.drain()
        subscription.close()


def item(operation: Any = 1, service: Any = "web", number: Any = "3", **more: Any) -> dict[str, Any]:
    return {"operation": operation, "namespace": "shop", "serviceName": service, "number": number, **more}


@pytest.fixture
async def shop(cluster: Embedded, client: Client) -> AsyncIterator[Shop]:
    for name in (HOME, "shop"):
        await client.create(NAMESPACES, {"metadata": {"name": name}})
    await client.create(ACCOUNTS, {"metadata": {"name": "default"}}, "shop")
    await client.create(DEFINITIONS, definition())
    rules = [
        {"apiGroups": ["apps"], "resources": ["*"], "verbs": ["get", "patch"]},
        {"apiGroups": [""], "resources": ["services"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    ]
    await client.create(ROLES, {"metadata": {"name": "scaler"}, "rules": rules}, "shop")
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": "scaler"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "scaler"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "ann"}],
    }
    await client.create(BINDINGS, binding, "shop")
    async with following(client) as mirror:
        await mirror.wait_synced()
        async with serving(accepting(client, mirror)) as api:
            yield Shop(client, api, mirror)


class following:  # noqa: N801 - used as `async with following(client)`
    def __init__(self, client: Client) -> None:
        metrics = Metrics()
        watch = Watch(
            client,
            SCHEDULE_REQUESTS,
            clock=RealClock(),
            rng=random.Random(3).random,
            metrics=metrics,
            namespace=HOME,
        )
        self.mirror: Mirror[ScheduleRequest] = Mirror(watch, SCHEDULE_REQUESTS, metrics)

    async def __aenter__(self) -> Mirror[ScheduleRequest]:
        self._running = asyncio.create_task(self.mirror.run())
        return self.mirror

    async def __aexit__(self, *_: object) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)


def accepting(client: Client, mirror: Mirror[ScheduleRequest], **bounds: int) -> RouteTable:
    names = (f"test-{number}" for number in range(1000))
    handlers = SchedulePod(
        mirror, client=client, namespace=HOME, clock=RealClock(), new_id=lambda: next(names), **bounds
    )
    table = RouteTable()
    table.guard = Guard(client, RealClock())
    table.add(*handlers.routes())
    return table


# --- the seed's contract ----------------------------------------------------------------------------------


async def test_the_seeds_request_is_accepted_and_durable(shop: Shop) -> None:
    await shop.workload("web")
    await shop.workload("batch")
    told = await shop.post(item(1, "web", "3"), item(2, "batch", "2"))
    assert (told.status, told.body) == (202, {"isSucceed": True, "requestId": "sr-test-0", "replayed": False})
    assert told.headers["Location"] == "/schedulePod/sr-test-0"
    (stored,) = await shop.stored()
    assert stored.spec.user == "ann"
    assert stored.spec.summary == "+3 shop/web, -2 shop/batch"
    assert [(each.operation, each.number, each.workload.described()) for each in stored.spec.items] == [
        ("Add", 3, "Deployment web"),
        ("Remove", 2, "Deployment batch"),
    ]


@pytest.mark.parametrize("number", ["3", 3, " 3", "03"])
async def test_a_number_may_be_text_or_a_number(shop: Shop, number: Any) -> None:
    await shop.workload("web")
    assert (await shop.post(item(number=number))).status == 202
    assert (await shop.stored())[0].spec.items[0].number == 3


@pytest.mark.parametrize(
    ("wrong", "field", "message"),
    [
        (item(operation=3), "operation", "must be 1 (add) or 2 (remove), not 3"),
        (item(operation="1"), "operation", 'must be 1 (add) or 2 (remove), not "1"'),
        (item(operation=True), "operation", "must be 1 (add) or 2 (remove), not true"),
        (item(operation=1.0), "operation", "must be 1 (add) or 2 (remove), not 1.0"),
        (item(operation=[1]), "operation", "must be 1 (add) or 2 (remove), not [1]"),
        (item(operation={}), "operation", "must be 1 (add) or 2 (remove), not {}"),
        (item(number=0), "number", "must be a whole number from 1 to 1000, not 0"),
        (item(number="-1"), "number", 'must be a whole number from 1 to 1000, not "-1"'),
        (item(number="many"), "number", 'must be a whole number from 1 to 1000, not "many"'),
        (item(number=1.5), "number", "must be a whole number from 1 to 1000, not 1.5"),
        (item(number=1001), "number", "must be a whole number from 1 to 1000, not 1001"),
        (item(number=10**30), "number", f"must be a whole number from 1 to 1000, not {10**30}"),
        (item(number=True), "number", "must be a whole number from 1 to 1000, not true"),
        (item(number=None), "number", "must be a whole number from 1 to 1000, not null"),
        (item(service="Web Server"), "serviceName", "must be a Kubernetes name"),
        (item(service="../../secrets"), "serviceName", "must be a Kubernetes name"),
        (item(service=7), "serviceName", "must be a Kubernetes name"),
        (item(force="yes"), "force", 'must be true or false, not "yes"'),
        (item(numbers=3), "numbers", "there is no such field"),
        ({"operation": 1, "serviceName": "web", "number": "1"}, "namespace", "not nothing"),
        ("web", "", 'must be an object, not "web"'),
    ],
    ids=lambda value: None if not isinstance(value, str) else value[:40],
)
async def test_what_is_wrong_is_told_by_item_and_field(shop: Shop, wrong: Any, field: str, message: str) -> None:
    await shop.workload("web")
    told = await shop.post(item(), wrong)
    assert told.status == 422
    (error,) = told.body["errors"]
    assert (error["index"], error.get("field", "")) == (1, field)
    assert message in error["message"]
    assert await shop.stored() == [], "all or nothing"


async def test_every_mistake_of_every_item_is_told_at_once(shop: Shop) -> None:
    told = await shop.api.ask("POST", "/schedulePod", body={"podList": [7]})
    assert "podList[0]: must be an object, not 7" in told.body["message"]
    await shop.workload("web")
    told = await shop.post(item(operation=7, number=0), item(number="x"))
    assert [(each["index"], each["field"]) for each in told.body["errors"]] == [
        (0, "operation"),
        (0, "number"),
        (1, "number"),
    ]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff", 400),
        (b"[" * 100_000, 400),
        (b"[]", 422),
        (b"{}", 422),
        (b'{"podList": []}', 422),
        (b'{"podList": {}}', 422),
        (b'{"podList": [' + b"1," * 200 + b"1]}", 422),
        (b'{"podList": "' + b"x" * 300_000 + b'"}', 413),
    ],
    ids=["empty", "half", "no text", "deep", "a list", "an object", "none", "no list", "too many", "too large"],
)
async def test_bodies_that_are_none(shop: Shop, body: bytes, status: int) -> None:
    told = await shop.api.ask("POST", "/schedulePod", data=body)
    assert (told.status, told.body["isSucceed"]) == (status, False)


async def test_an_answer_does_not_outgrow_the_body_it_is_about(shop: Shop) -> None:
    await shop.workload("web")
    many = {f"x{number:05}": 1 for number in range(15_000)}
    body = {"podList": [item() | many, item(service="Web", number="0")], "y": 1}
    told = await shop.api.ask("POST", "/schedulePod", body=body)
    assert told.status == 422
    of_first = [each for each in told.body["errors"] if each.get("index") == 0]
    assert [each["field"] for each in of_first[:20]] == sorted(many)[:20]
    assert of_first[20:] == [{"index": 0, "message": "14980 more fields that are not known"}]
    assert [each["field"] for each in told.body["errors"] if each.get("index") != 0] == ["y", "serviceName", "number"]
    deep = await shop.api.ask("POST", "/schedulePod", data=b"[" * 100_000)
    assert deep.body["message"] == "the body is nested too deeply"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([1], "the body must be an object with podList, not [1]"),
        ({}, "podList: must be a list of 1 to 100 items, not nothing"),
        ({"podList": None}, "podList: must be a list of 1 to 100 items, not null"),
        ({"podList": [item()], "podlist": 1}, "podlist: there is no such field; there is podList"),
    ],
    ids=["a list", "nothing", "null", "misspelt"],
)
async def test_bodies_of_another_shape_are_told_what_was_seen(shop: Shop, body: Any, message: str) -> None:
    told = await shop.api.ask("POST", "/schedulePod", body=body)
    assert (told.status, told.body["message"]) == (422, message)


# --- which workload is meant ------------------------------------------------------------------------------


async def test_a_service_means_the_workload_behind_it(shop: Shop) -> None:
    await shop.workload("store-v2", app="store")
    await shop.service("store", app="store")
    assert (await shop.post(item(service="store"))).status == 202
    assert (await shop.stored())[0].spec.items[0].workload.described() == "Deployment store-v2"


@pytest.mark.parametrize("kind", [DEPLOYMENTS, STATEFUL_SETS, REPLICA_SETS], ids=lambda kind: str(kind.kind))
async def test_workloads_of_every_kind_are_found_by_name(shop: Shop, kind: Kind[ApiObject]) -> None:
    await shop.workload("web", kind)
    assert (await shop.post(item())).status == 202
    assert (await shop.stored())[0].spec.items[0].workload.kind == kind.kind


async def refused(shop: Shop, *items: dict[str, Any]) -> str:
    told = await shop.post(*items)
    assert told.status == 422, told.body
    assert await shop.stored() == []
    return str(told.body["errors"][-1]["message"])


async def test_nothing_of_that_name(shop: Shop) -> None:
    said = "there is no Deployment, StatefulSet, ReplicaSet or Service web in namespace shop: check the two names"
    assert await refused(shop, item()) == said


async def test_several_of_that_name_are_named(shop: Shop) -> None:
    await shop.workload("web")
    await shop.workload("web", STATEFUL_SETS)
    said = await refused(shop, item())
    assert said == "web in namespace shop is several: Deployment web, StatefulSet web; rename or use their Services"


async def test_several_behind_a_service_are_named(shop: Shop) -> None:
    await shop.workload("blue", app="store")
    await shop.workload("green", app="store")
    await shop.service("store", app="store")
    said = "behind Service store in namespace shop are several: Deployment blue, Deployment green; "
    assert (await refused(shop, item(service="store"))).startswith(said)


async def test_a_service_without_a_selector_or_without_pods(shop: Shop) -> None:
    await shop.service("plain")
    assert "selects no pods by labels" in await refused(shop, item(service="plain"))
    await shop.service("empty", app="nobody")
    assert "behind Service empty in namespace shop is nothing" in await refused(shop, item(service="empty"))


async def test_an_autoscaler_is_not_overruled_unless_by_force(shop: Shop) -> None:
    await shop.workload("web")
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    scaler = {"metadata": {"name": "web-hpa"}, "spec": {"scaleTargetRef": target, "maxReplicas": 5}}
    await shop.client.create(SCALERS, scaler, "shop")
    said = await refused(shop, item())
    assert said == (
        "Deployment web is scaled by HorizontalPodAutoscaler web-hpa, which would undo this: change its bounds, or "
        "send force: true"
    )
    assert (await shop.post(item(force=True))).status == 202


async def test_what_belongs_to_another_is_changed_there(shop: Shop) -> None:
    top = await shop.workload("web")
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": top.metadata.uid, "controller": True}
    await shop.workload("web-1", REPLICA_SETS, ownerReferences=[owner])
    said = "ReplicaSet web-1 belongs to Deployment web, which sets its size: name that one"
    assert await refused(shop, item(service="web-1", force=True)) == said
    operator = {"apiVersion": "example.com/v1", "kind": "Shop", "name": "s", "uid": "u-1", "controller": True}
    await shop.workload("db", ownerReferences=[operator])
    assert "Deployment db belongs to Shop s, which may undo this" in await refused(shop, item(service="db"))
    assert (await shop.post(item(service="db", force=True))).status == 202


async def test_pods_that_nothing_makes_can_go_and_not_come(shop: Shop) -> None:
    await shop.service("loose", app="loose")
    await shop.pod("a", "loose")
    await shop.pod("b", "loose")
    assert "they can be removed, not added" in await refused(shop, item(1, "loose"))
    assert (await shop.post(item(2, "loose", 1))).status == 202
    assert (await shop.stored())[0].spec.items[0].workload.kind == "Service"


async def test_pods_of_a_daemon_set_cannot_be_scaled(shop: Shop) -> None:
    await shop.service("agents", app="agents")
    await shop.pod("a", "agents", {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u-2"})
    said = "behind Service agents in namespace shop is DaemonSet agent, which cannot be scaled"
    assert said in await refused(shop, item(service="agents"))


async def test_two_items_about_one_workload_belong_together(shop: Shop) -> None:
    await shop.workload("web")
    await shop.service("front", app="web")
    said = "podList[0] adds 3 pods of Deployment web and this {}; a workload is changed once by a request: ask for {}"
    less = said.format("removes 1", "one item that adds 2")
    assert await refused(shop, item(), item(2, "front", 1)) == less
    assert await refused(shop, item(), item(2, "front", 5)) == said.format("removes 5", "one item that removes 2")
    assert await refused(shop, item(), item(1, "front", 4)) == said.format("adds 4", "one item that adds 7")
    assert await refused(shop, item(), item(2, "front")) == said.format("removes 3", "neither: they undo each other")
    told = await shop.post(item(1, "web", 2), item(2, "front", 5), item(1, "web", 1))
    first, second = (each["message"] for each in told.body["errors"])
    assert first.startswith("podList[0] adds 2 and podList[2] adds 1 pods of Deployment web and this removes 5;")
    assert first.endswith("ask for one item that removes 2")
    assert second.endswith("ask for one item that removes 2"), "the same whichever is read"


async def test_an_item_with_a_mistake_is_looked_up_all_the_same(shop: Shop) -> None:
    await shop.workload("web")
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    scaler = {"metadata": {"name": "web-hpa"}, "spec": {"scaleTargetRef": target, "maxReplicas": 5}}
    await shop.client.create(SCALERS, scaler, "shop")
    told = await shop.post(item(3, "missing", "x"), item(1, "web", 0, force="yes"), item(2, "web", "many"))
    found = [(each["index"], each["field"]) for each in told.body["errors"]]
    assert (told.status, sorted(found)) == (
        422,
        [(0, "number"), (0, "operation"), (0, "serviceName"), (1, "force"), (1, "number"), (2, "force"), (2, "number")],
    )
    assert await shop.stored() == []


async def test_everything_wrong_with_every_item_is_told_at_once(shop: Shop) -> None:
    await shop.workload("web")
    told = await shop.post(item(3), item(), item(1, "missing"), item(number="many", namespace=7), wrong=1)
    assert told.status == 422
    found = [(each.get("index"), each["field"]) for each in told.body["errors"]]
    assert found == [(None, "wrong"), (0, "operation"), (2, "serviceName"), (3, "namespace"), (3, "number")]
    assert await shop.stored() == []


async def test_what_is_wrong_is_told_beside_what_is_forbidden(shop: Shop) -> None:
    await shop.workload("web")
    elsewhere = {**item(), "namespace": "default"}
    told = await shop.post(elsewhere, item(3), item(1, "missing"))
    assert told.status == 403
    assert [each["index"] for each in told.body["errors"]] == [0, 1, 2]


async def test_a_daemon_set_is_there_and_cannot_be_scaled(shop: Shop) -> None:
    labels = {"app": "agent"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "a"}]}},
    }
    kind = Kind("apps", "v1", "daemonsets", "DaemonSet", ApiObject)
    await shop.client.create(kind, {"metadata": {"name": "agent"}, "spec": spec}, "shop")
    said = await refused(shop, item(service="agent"))
    assert said.startswith("DaemonSet agent in namespace shop cannot be scaled: it runs one pod on every node")
    # Not told to who may not look at it.
    jobs = {**spec["template"]["spec"], "restartPolicy": "Never"}  # type: ignore[index]
    body = {"metadata": {"name": "once"}, "spec": {"template": {"spec": jobs}}}
    await shop.client.create(Kind("batch", "v1", "jobs", "Job", ApiObject), body, "shop")
    assert (await shop.post(item(service="once"))).status == 403


async def test_a_service_that_leads_elsewhere_is_warned_of(shop: Shop) -> None:
    await shop.workload("web")
    await shop.workload("web-next", app="next")
    await shop.service("web", app="next")
    told = await shop.post(item())
    assert told.status == 202
    (warning,) = told.body["warnings"]
    assert warning == (
        "Deployment web is changed, but Service web of the same name selects other pods: behind it is Deployment "
        "web-next"
    )
    read = await shop.api.ask("GET", f"/schedulePod/{told.body['requestId']}", "token-of-ann")
    assert read.body["warnings"] == [warning]
    await shop.workload("api")
    await shop.service("api", app="api")
    assert "warnings" not in (await shop.post(item(service="api"))).body


# --- who may ----------------------------------------------------------------------------------------------


async def test_strangers_are_turned_away(shop: Shop) -> None:
    assert (await shop.post(item(), token=None)).status == 401
    assert (await shop.post(item(), token="nobodys")).status == 401


async def test_who_may_not_patch_the_workload_may_not_ask_and_learns_nothing(shop: Shop) -> None:
    await shop.workload("web")
    told = [await shop.post(item(service=name), token="token-of-bob") for name in ("web", "nothing")]
    assert [each.status for each in told] == [403, 403]
    said = "bob may not change the pods of service {} in namespace shop: patch on its workload is needed"
    assert [each.body["errors"][0]["message"] for each in told] == [said.format("web"), said.format("nothing")]
    assert await shop.stored() == []


async def test_one_forbidden_item_stops_all(shop: Shop) -> None:
    await shop.workload("web")
    told = await shop.post(item(), {**item(), "namespace": "kube-system"})
    assert (told.status, told.body["errors"][0]["index"]) == (403, 1)
    assert await shop.stored() == []


# --- once only --------------------------------------------------------------------------------------------


async def test_the_same_key_is_the_same_request(shop: Shop) -> None:
    await shop.workload("web")
    first = await shop.post(item(number="3"), key="deploy-17")
    again = await shop.post(item(number=3), key="deploy-17")
    assert (first.status, again.status) == (202, 202)
    assert first.body["requestId"] == again.body["requestId"]
    assert (first.body["replayed"], again.body["replayed"]) == (False, True)
    assert len(await shop.stored()) == 1


async def test_the_same_key_for_something_else_is_refused(shop: Shop) -> None:
    await shop.workload("web")
    first = await shop.post(item(), key="deploy-17")
    told = await shop.post(item(number=4), key="deploy-17")
    assert (told.status, told.body["reason"]) == (422, "KeyReused")
    assert told.body["requestId"] == first.body["requestId"]


async def test_keys_are_each_callers_own(shop: Shop, cluster: Embedded) -> None:
    await shop.workload("web")
    first = await shop.post(item(), key="k")
    other = await shop.post(item(), key="k", token=cluster.admin_token)
    assert first.body["requestId"] != other.body["requestId"]


async def test_a_key_raced_for_makes_one_request(shop: Shop) -> None:
    await shop.workload("web")
    told = await asyncio.gather(*(shop.post(item(), key="race") for _ in range(12)))
    assert {each.status for each in told} == {202}
    assert len({each.body["requestId"] for each in told}) == 1
    assert len(await shop.stored()) == 1


async def test_a_key_still_counts_after_the_workload_is_gone(shop: Shop) -> None:
    await shop.workload("web")
    first = await shop.post(item(), key="k")
    await shop.client.delete(DEPLOYMENTS, "web", "shop")
    assert (await shop.post(item(), key="k")).body["requestId"] == first.body["requestId"]


async def test_a_key_has_a_bound(shop: Shop) -> None:
    assert (await shop.post(item(), key="x" * 201)).status == 422


class Forgetful(Client):
    """A client whose creates of requests are carried out, or not, and never answered."""

    carried_out = True

    async def create(self, kind: Any, body: Any, namespace: str = "", *, dry_run: bool = False) -> Any:
        if kind is SCHEDULE_REQUESTS:
            if self.carried_out:
                await super().create(kind, body, namespace)
            raise no_answer("POST", "the connection broke", may_have_happened=True)
        return await super().create(kind, body, namespace, dry_run=dry_run)


@pytest.mark.parametrize("carried_out", [True, False])
async def test_a_lost_answer_is_looked_up(shop: Shop, cluster: Embedded, carried_out: bool) -> None:
    await shop.workload("web")
    connection = connect_by_kubeconfig([cluster.kubeconfig], RealClock())
    async with Forgetful(connection, clock=RealClock()) as client:
        client.carried_out = carried_out
        async with serving(accepting(client, shop.mirror)) as api:
            told = await api.ask("POST", "/schedulePod", body={"podList": [item()]})
    if carried_out:
        assert (told.status, told.body["requestId"]) == (202, "sr-test-0")
    else:
        assert (told.status, told.body["requestId"], told.headers["Retry-After"]) == (503, "sr-test-0", "1")
        assert "it is not known yet whether this was accepted; ask for sr-test-0" in told.body["message"]


async def test_a_full_queue_says_when_to_come_back(shop: Shop) -> None:
    await shop.workload("web")
    async with serving(accepting(shop.client, shop.mirror, most_waiting=2)) as api:
        full = Shop(shop.client, api, shop.mirror)
        for number in (1, 2):
            assert (await full.post(item())).status == 202
            await shop.heard_of(number)
        told = await full.post(item())
        assert (told.status, told.body["reason"], told.headers["Retry-After"]) == (503, "QueueFull", "10")
        (first, _) = await shop.stored()
        done = {"status": {"phase": "Done"}}
        await shop.client.patch(SCHEDULE_REQUESTS, first.name, done, HOME, subresource="status")
        await shop.heard_of(1, "Done")
        assert (await full.post(item())).status == 202


# --- the read side ----------------------------------------------------------------------------------------


async def test_a_request_can_be_asked_for_at_once(shop: Shop) -> None:
    await shop.workload("web")
    name = (await shop.post(item())).body["requestId"]
    told = await shop.api.ask("GET", f"/schedulePod/{name}")
    assert told.status == 200
    assert told.body["items"] == [
        {
            "operation": 1,
            "namespace": "shop",
            "serviceName": "web",
            "number": 3,
            "workload": "Deployment/web",
            "phase": "Accepted",
        }
    ]
    assert (told.body["isSucceed"], told.body["phase"], told.body["user"]) == (True, "Accepted", "ann")


async def test_what_was_decided_is_told(shop: Shop) -> None:
    await shop.workload("web")
    name = (await shop.post(item(number=1))).body["requestId"]
    decided = {
        "phase": "Scaled",
        "message": "on its way",
        "replicas": {"before": 2, "after": 3},
        "places": [{"node": "n1", "score": 7, "pod": "web-x", "boundTo": "n1"}],
    }
    status = {"status": {"phase": "Scaled", "items": [decided]}}
    await shop.client.patch(SCHEDULE_REQUESTS, name, status, HOME, subresource="status")
    (told,) = (await shop.api.ask("GET", f"/schedulePod/{name}")).body["items"]
    assert told["places"] == [{"reservedNode": "n1", "score": 7, "pod": "web-x", "node": "n1"}]
    assert (told["phase"], told["replicas"]) == ("Scaled", {"before": 2, "after": 3})
    asked = {given: await shop.api.ask("GET", f"/schedulePod/{name}?explain={given}") for given in ("true", "0", "yes")}
    assert [told.status for told in asked.values()] == [200, 200, 422]
    assert asked["yes"].body["message"] == "explain: must be true or false, not 'yes'"


async def test_other_peoples_requests_are_not_there(shop: Shop, cluster: Embedded) -> None:
    await shop.workload("web")
    name = (await shop.post(item())).body["requestId"]
    await shop.heard_of(1)
    told = await shop.api.ask("GET", f"/schedulePod/{name}", "token-of-bob")
    assert (told.status, told.body["isSucceed"]) == (404, False)
    assert (await shop.api.ask("GET", f"/schedulePod/{name}", cluster.admin_token)).status == 200
    lists = [
        (await shop.api.ask("GET", "/schedulePod", token)).body["total"]
        for token in ("token-of-ann", "token-of-bob", cluster.admin_token)
    ]
    assert lists == [1, 0, 1]


async def test_the_list_is_newest_first_and_bounded(shop: Shop) -> None:
    await shop.workload("web")
    names = [(await shop.post(item())).body["requestId"] for _ in range(3)]
    await shop.heard_of(3)
    told = (await shop.api.ask("GET", "/schedulePod?limit=2")).body
    assert (told["isSucceed"], told["total"]) == (True, 3)
    assert [each["requestId"] for each in told["requests"]] == names[:0:-1]
    assert (await shop.api.ask("GET", "/schedulePod?phase=Done")).body["requests"] == []
    for wrong in ("0", "-1", "9" * 5000, "%C2%B2", "NaN"):
        assert (await shop.api.ask("GET", f"/schedulePod?limit={wrong}")).status == 422
    told = await shop.api.ask("GET", "/schedulePod?phase=done")
    assert (told.status, "Accepted, Waiting, Planned" in told.body["message"]) == (422, True)


@pytest.mark.parametrize("name", ["sr-nothing", "..", "a%2Fb", "%F0%9F%92%A9", "x" * 300])
async def test_names_of_nothing(shop: Shop, name: str) -> None:
    told = await shop.api.ask("GET", f"/schedulePod/{name}")
    assert told.status in (404, 405)


async def test_a_cluster_without_the_kind_says_what_to_apply(client: Client) -> None:
    async with following(client) as mirror, serving(accepting(client, mirror)) as api:
        told = await api.ask("POST", "/schedulePod", body={"podList": [item()]})
        assert (told.status, told.body["isSucceed"]) == (503, False)
        assert "deploy/crds and deploy/rbac/requests.yaml" in told.body["message"]
        told = await api.ask("POST", "/schedulePod", body={"podList": [item()]}, headers={"Idempotency-Key": "k"})
        assert told.status == 503
        assert (await api.ask("GET", "/schedulePod")).status == 503
