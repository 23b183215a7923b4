"""Explanations and decisions over HTTP, to whom the cluster's roles let see them; and the commands that ask."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from fairlead.apiserver.embedded import Embedded
from fairlead.apiserver.request.info import User
from fairlead.cli.explain import explain as explain_command
from fairlead.cli.explain import lines
from fairlead.cli.replay import replay as replay_command
from fairlead.cluster.client import Client
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiObject
from fairlead.model.pod import SchedulerPod
from fairlead.placement.api.explain import HIDDEN, Explain
from fairlead.placement.explanation import PodExplanation
from fairlead.testing.builders import a_pod
from fairlead.testing.clock import settle
from tests.placement.test_loop import NAME, Server, looping
from tests.web.conftest import Api

ROLES = Kind("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", ApiObject, namespaced=False)
BINDINGS = Kind(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", ApiObject, namespaced=False
)
OWN = Kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", ApiObject)


@pytest.fixture
async def server(api: Api, cluster: Embedded, client: Client) -> AsyncIterator[Server]:
    """ann may read pods and nodes everywhere, bob pods of the namespace default; carol nothing."""
    cluster.tokens.know("token-of-carol", User("carol"))
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list"]}]
    await client.create(ROLES, {"metadata": {"name": "reader"}, "rules": rules})
    role = {"apiGroup": group, "kind": "ClusterRole", "name": "reader"}

    def to(name: str) -> dict[str, Any]:
        return {"metadata": {"name": name}, "roleRef": role, "subjects": [{"kind": "User", "name": name}]}

    await client.create(BINDINGS, to("ann"))
    await client.create(OWN, to("bob"), "default")
    async with looping() as (server, clock):
        api.table.add(*Explain(server.loop, clock).routes())
        yield server


def pod(name: str, cpu: str = "1", **more: Any) -> SchedulerPod:
    return a_pod(name, cpu=cpu, schedulerName=NAME, **more)


async def explained(api: Api, name: str, query: str = "", token: str = "token-of-ann") -> PodExplanation:
    told = await api.ask("GET", f"/explain/pods/default/{name}{query}", token)
    assert told.status == 200, told.body
    return msgspec.convert(told.body, PodExplanation)


async def test_a_placed_pod_is_explained_by_the_decision_that_placed_it(api: Api, server: Server) -> None:
    web = pod("web")
    server.put(web)
    await settle()
    server.bound(web, server.writes.bindings["web"])
    server.put(pod("later", cpu="3"))
    await settle()
    told = await explained(api, "web", "?all=true")
    assert (told.state, told.of, told.node) == ("Placed", "decision", "n1")
    assert told.explanation is not None
    assert told.explanation.choice is not None
    assert told.explanation.choice.node == "n1"
    # As it was then: nothing on either node.
    assert [(each.node, each.total) for each in told.explanation.best] == [
        ("n1", told.explanation.choice.score),
        ("n2", told.explanation.choice.score),
    ]
    assert "chosen: n1" in "\n".join(lines(told))


async def test_a_pending_pod_is_explained_as_things_are_now(api: Api, server: Server) -> None:
    server.put(pod("big", cpu="9"))
    await settle()
    told = await explained(api, "big")
    assert (told.state, told.of) == ("Pending", "now")
    assert told.waiting is not None
    assert (told.waiting.queue, told.waiting.attempts) == ("unschedulable", 1)
    assert told.explanation is not None
    assert told.explanation.blockage is not None
    assert told.explanation.blockage.message == "0/2 nodes are available: 2 Insufficient cpu."
    assert "nearest: n1" in "\n".join(lines(told))


async def test_pods_of_others_gated_ones_and_forgotten_decisions_are_told_as_such(api: Api, server: Server) -> None:
    server.put(
        a_pod("theirs", schedulerName="another"),
        pod("gated", schedulingGates=[{"name": "wait"}]),
        a_pod("old", schedulerName=NAME, node="n2"),
    )
    await settle()
    assert (await explained(api, "theirs")).state == "Elsewhere"
    assert (await explained(api, "gated")).state == "Gated"
    old = await explained(api, "old")
    assert (old.state, old.of, old.node) == ("Placed", "now", "n2")
    assert "no decision about it is kept here" in old.notes[0]
    assert (await api.ask("GET", "/explain/pods/default/nobody")).status == 404


async def test_a_pod_that_is_gone_is_explained_while_its_decision_is_kept(api: Api, server: Server) -> None:
    gone = pod("gone")
    server.put(gone)
    await settle()
    server.delete(gone)
    await settle()
    told = await explained(api, "gone")
    assert (told.state, told.of) == ("Gone", "decision")


async def test_who_may_not_read_the_pod_hears_nothing_and_victims_are_named_to_who_may_read_them(
    api: Api, server: Server
) -> None:
    server.put(*(a_pod(f"v{i}", cpu="3", node=f"n{i}", namespace="secret", priority=0) for i in (1, 2)))
    server.put(pod("vip", cpu="4", priority=100, preemptionPolicy="PreemptLowerPriority"))
    await settle()
    assert (await api.ask("GET", "/explain/pods/default/vip", "token-of-carol")).status == 403
    for token, name in (("token-of-ann", "secret/v1"), ("token-of-bob", HIDDEN)):
        told = await explained(api, "vip", token=token)
        assert told.explanation is not None
        blockage = told.explanation.blockage
        assert blockage is not None
        assert blockage.clearing is not None
        assert [victim.pod for victim in blockage.clearing.victims] == [name]


async def test_decisions_are_listed_and_made_again_from_their_documents(
    api: Api, server: Server, tmp_path: Path
) -> None:
    server.put(pod("a"), pod("b"), pod("big", cpu="9"))
    await settle()
    whole = (await api.ask("GET", "/decisions")).body
    assert whole["kept"] == 3
    assert [each["pods"] for each in whole["decisions"]] == [["default/big"], ["default/b"], ["default/a"]]
    one = (await api.ask("GET", "/decisions?pod=default/a", "token-of-bob")).body["decisions"]
    assert [each["node"] for each in one] == ["n1"]
    assert (await api.ask("GET", "/decisions", "token-of-bob")).status == 403
    assert len((await api.ask("GET", "/decisions?namespace=default", "token-of-bob")).body["decisions"]) == 3
    for each in whole["decisions"]:
        told = await api.ask("GET", f"/decisions/{each['id']}")
        assert told.status == 200
        file = tmp_path / "decision.json"
        file.write_bytes(msgspec.json.encode(told.body))
        result = CliRunner().invoke(replay_command, [str(file)])
        assert (result.exit_code, "the same result" in result.output) == (0, True), result.output
    assert (await api.ask("GET", f"/decisions/{whole['decisions'][0]['id']}", "token-of-bob")).status == 403
    process = whole["decisions"][0]["id"].partition("-")[0]
    for wrong, why in (
        ("1-1", "another process, or this one before a restart, made it"),
        ("x", "another process"),
        (f"{process}-9999", "it is not among the last ones any more"),
        (f"{process}-{'9' * 5000}", "the part after the dash is not a number"),
        (f"{process}-x", "the part after the dash is not a number"),
    ):
        told = await api.ask("GET", f"/decisions/{wrong}")
        assert (told.status, why in told.body["message"]) == (404, True), told.body
    for wrong in ("limit=0", "limit=x", "limit=%C2%B2", f"limit={'9' * 5000}", "pod=a"):
        assert (await api.ask("GET", f"/decisions?{wrong}")).status == 400


async def test_a_standby_explains_as_well(api: Api, client: Client, cluster: Embedded) -> None:
    async with looping(leads=False) as (server, clock):
        api.table.add(*Explain(server.loop, clock).routes())
        server.put(pod("waiting"))
        await settle()
        told = await api.ask("GET", "/explain/pods/default/waiting", cluster.admin_token)
        assert told.status == 200, told.body
        assert told.body["explanation"]["choice"]["node"] == "n1"
        assert "standby" in told.body["notes"][0]


def test_a_replay_that_differs_ends_with_one_and_what_is_no_decision_with_two(tmp_path: Path) -> None:
    from tests.placement.test_history import a_decision

    document = a_decision()
    (place,) = document.result.places
    wrong = msgspec.structs.replace(document.result, places=(msgspec.structs.replace(place, score=1),))
    file = tmp_path / "decision.json"
    file.write_bytes(msgspec.json.encode(msgspec.structs.replace(document, result=wrong)))
    result = CliRunner().invoke(replay_command, [str(file), "-o", "json"])
    assert result.exit_code == 1
    assert msgspec.json.decode(result.output)["differences"][0].startswith("result.places[0].score: was 1")
    file.write_text("{}")
    assert CliRunner().invoke(replay_command, [str(file)]).exit_code == 2
    assert CliRunner().invoke(replay_command, [str(tmp_path / "none.json")]).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(["node/x"], "name a pod as pod/NAME", id="another kind"),
        pytest.param(["pod/x", "--server", "ftp://x"], "http:// or https://", id="no address"),
        pytest.param(["pod/x", "--data", "/nowhere"], "api.url cannot be read", id="no folder"),
    ],
)
def test_mistakes_are_told(arguments: list[str], told: str) -> None:
    result = CliRunner().invoke(explain_command, arguments)
    assert result.exit_code == 2
    assert told in result.output
