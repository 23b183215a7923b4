"""The client's verbs against the real API server: what it sends is what Kubernetes understands."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    TooManyRequests,
    Unauthorized,
)
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.model.kinds import CONFIG_MAPS, LEASES, NAMESPACES, Kind
from fairlead.model.meta import ApiObject
from tests.kube.clients import client
from tests.rigs.kube.servers import Rig

PODS = Kind("", "v1", "pods", "Pod", dict[str, Any])
NODES = Kind("", "v1", "nodes", "Node", dict[str, Any], namespaced=False)
DEPLOYMENTS = Kind("apps", "v1", "deployments", "Deployment", dict[str, Any])
BUDGETS = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", ApiObject)


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def pod(name: str, **labels: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": "none"}], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


async def test_objects_are_created_read_patched_replaced_and_deleted(rig: Rig, namespace: str) -> None:
    async with client(rig) as api:
        created = await api.create(CONFIG_MAPS, config_map("a", n="1"), namespace)
        assert (await api.get(CONFIG_MAPS, "a", namespace)) == created
        with pytest.raises(AlreadyExists):
            await api.create(CONFIG_MAPS, config_map("a"), namespace)
        patched = await api.patch(CONFIG_MAPS, "a", {"data": {"n": "2"}}, namespace)
        assert patched.data == {"n": "2"}
        json_patch = [{"op": "replace", "path": "/data/n", "value": "3"}]
        assert (
            await api.patch(CONFIG_MAPS, "a", json_patch, namespace, content_type="application/json-patch+json")
        ).data == {"n": "3"}
        stale = config_map("a", n="4") | {
            "metadata": {"name": "a", "resourceVersion": created.metadata.resource_version}
        }
        with pytest.raises(Conflict):
            await api.replace(CONFIG_MAPS, "a", stale, namespace)
        with pytest.raises(Conflict):
            await api.delete(CONFIG_MAPS, "a", namespace, uid="00000000-0000-0000-0000-000000000000")
        await api.delete(CONFIG_MAPS, "a", namespace, uid=created.metadata.uid)
        assert await api.find(CONFIG_MAPS, "a", namespace) is None
        with pytest.raises(NotFound):
            await api.get(CONFIG_MAPS, "a", namespace)


async def test_server_side_apply_takes_our_fields_and_leaves_those_of_others(rig: Rig, namespace: str) -> None:
    async with client(rig) as api:
        await api.apply(CONFIG_MAPS, "a", config_map("a", ours="1"), namespace)
        rig.write("PATCH", f"/api/v1/namespaces/{namespace}/configmaps/a", {"data": {"theirs": "1", "ours": "2"}})
        with pytest.raises(Conflict) as refused:
            await api.apply(CONFIG_MAPS, "a", config_map("a", ours="3"), namespace, force=False)
        assert [cause.field for cause in refused.value.causes] == [".data.ours"]
        assert (await api.apply(CONFIG_MAPS, "a", config_map("a", ours="3"), namespace)).data == {
            "ours": "3",
            "theirs": "1",
        }


async def test_a_refused_object_says_which_fields_were_wrong(rig: Rig, namespace: str) -> None:
    async with client(rig) as api:
        with pytest.raises(Invalid) as refused:
            await api.create(PODS, pod("Not_A_Name") | {"spec": {"containers": []}}, namespace)
        assert {cause.field for cause in refused.value.causes} == {"metadata.name", "spec.containers"}


async def test_a_dry_run_leaves_nothing_behind(rig: Rig, namespace: str) -> None:
    async with client(rig) as api:
        await api.create(CONFIG_MAPS, config_map("a"), namespace, dry_run=True)
        assert await api.find(CONFIG_MAPS, "a", namespace) is None


async def test_a_list_of_many_pages_is_one_version(rig: Rig, namespace: str) -> None:
    async with client(rig) as api:
        for number in range(7):
            await api.create(CONFIG_MAPS, config_map(f"c-{number}"), namespace)
        pages = [page async for page in api.pages(CONFIG_MAPS, namespace, limit=3)]
        assert [len(page.items or ()) for page in pages] == [3, 3, 1]
        assert len({page.metadata.resource_version for page in pages}) == 1
        assert len(await api.list(CONFIG_MAPS, namespace)) == 7


async def test_a_pod_is_bound_once_and_only_under_its_own_uid(rig: Rig, namespace: str) -> None:
    async with client(rig) as api:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{namespace}"}}
        await api.create(NODES, node)
        uid = (await api.create(PODS, pod("p"), namespace))["metadata"]["uid"]
        with pytest.raises(Conflict):
            await api.bind(namespace, "p", "00000000-0000-0000-0000-000000000000", f"node-{namespace}")
        await api.bind(namespace, "p", uid, f"node-{namespace}", {"example.com/device": "1"})
        bound = await api.get(PODS, "p", namespace)
        assert bound["spec"]["nodeName"] == f"node-{namespace}"
        assert bound["metadata"]["annotations"] == {"example.com/device": "1"}
        with pytest.raises(Conflict):
            await api.bind(namespace, "p", uid, "another")
        await api.delete(NODES, f"node-{namespace}")


async def test_an_eviction_asks_the_disruption_budget_first(rig: Rig, namespace: str) -> None:
    async with client(rig) as api:
        uid = (await api.create(PODS, pod("p", app="x"), namespace))["metadata"]["uid"]
        budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
        body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": budget}
        await api.create(BUDGETS, body, namespace)
        # Nobody keeps the budget's status up to date here, so say that the pod runs and none may go.
        await api.patch(PODS, "p", {"status": {"phase": "Running"}}, namespace, subresource="status")
        with pytest.raises(TooManyRequests):
            await api.evict(namespace, "p", uid=uid)
        await api.delete(BUDGETS, "b", namespace)
        with pytest.raises(Conflict):
            await api.evict(namespace, "p", uid="00000000-0000-0000-0000-000000000000")
        await api.evict(namespace, "p", uid=uid)
        assert await api.find(PODS, "p", namespace) is None


async def test_a_workload_is_scaled_and_its_status_written_apart(rig: Rig, namespace: str) -> None:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": pod("p")["spec"] | {"terminationGracePeriodSeconds": 1}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "x"}}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
    async with client(rig) as api:
        made = await api.create(DEPLOYMENTS, body, namespace)
        scale = {"spec": {"replicas": 4}, "metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}}
        await api.patch(DEPLOYMENTS, "d", scale, namespace, subresource="scale")
        with pytest.raises(Conflict):
            await api.patch(DEPLOYMENTS, "d", scale, namespace, subresource="scale")
        status = {"status": {"replicas": 3}, "spec": {"replicas": 9}}
        after = await api.patch(DEPLOYMENTS, "d", status, namespace, subresource="status")
        assert (after["spec"]["replicas"], after["status"]["replicas"]) == (4, 3)


async def test_our_own_account_may_hold_leases_and_no_more(bare_rig: Rig) -> None:
    async with client(bare_rig, bare_rig.kubeconfig(bare_rig.service_account_token())) as api:
        await api.list(LEASES, "fairlead-system")
        with pytest.raises(Forbidden):
            await api.list(LEASES, "default")
        with pytest.raises(Forbidden):
            await api.list(PODS)


async def test_a_client_certificate_is_a_user(rig: Rig) -> None:
    certificate = rig.client_certificate("somebody", ["system:masters"])
    async with client(rig, rig.kubeconfig(certificate=certificate)) as api:
        assert await api.list(NAMESPACES)


async def test_a_wrong_token_is_unauthorized(rig: Rig) -> None:
    async with client(rig, rig.kubeconfig("not-a-token")) as api:
        with pytest.raises(Unauthorized):
            await api.list(NAMESPACES)


async def test_a_server_with_another_authority_is_not_trusted(rig: Rig, tmp_path: Path) -> None:
    config = yaml.safe_load(rig.kubeconfig().read_text())
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    async with Client(connect_by_kubeconfig([path], RealClock()), clock=RealClock()) as api:
        with pytest.raises(Exception, match="certificate verify failed"):
            await api.version()


async def test_an_exec_plugin_is_asked_once_and_again_when_its_token_is_refused(rig: Rig, tmp_path: Path) -> None:
    """The plugin hands out a wrong token first, as an expired one would be."""
    plugin, calls = tmp_path / "plugin", tmp_path / "calls"
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    wrong, right = (json.dumps({**credential, "status": {"token": token}}) for token in ("wrong", rig.admin_token))
    plugin.write_text(
        f"#!/bin/sh\necho call >> '{calls}'\n"
        f"if [ $(wc -l < '{calls}') -gt 1 ]; then echo '{right}'; else echo '{wrong}'; fi\n"
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    config = yaml.safe_load(rig.kubeconfig().read_text())
    config["users"][0]["user"] = {"exec": {"command": "./plugin", "apiVersion": credential["apiVersion"]}}
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    async with client(rig, path) as api:
        assert await api.list(NAMESPACES)
        assert await api.list(NAMESPACES)
    assert calls.read_text() == "call\n" * 2
