"""Data-aware admission on the real kube-apiserver: patches byte for byte, and failurePolicy when our side fails."""

import asyncio
import base64
import contextlib
import json
import random
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from fairlead import app
from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.errors import ApiError
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.data import entries
from fairlead.data.capability import Data
from fairlead.data.objects import CLAIMS, DATASETS, RUNTIMES
from fairlead.data.spec import CACHE_REPORTS, definitions
from fairlead.model.kinds import DEFINITIONS, NAMESPACES, POD_OBJECTS, Kind
from fairlead.model.meta import ApiObject
from fairlead.settings import load
from fairlead.testing.fluid import define
from fairlead.web.admission import Review, Verdict
from fairlead.web.probes import served
from fairlead.webhooks import MUTATING, manifest
from tests.data.objects import REGION, SERVERLESS, ZONE, claim, dataset, reader, runtime, term
from tests.house.rules import ROOT
from tests.journeys.test_toy_capability import eventually, free_port, running
from tests.kube.conftest import rig as rig
from tests.rigs.kube.certificates import Authority
from tests.rigs.kube.servers import DEPLOY, Rig

NAMESPACE = "fairlead-system"
SPACE = "data-admission"
SERVICES = Kind("", "v1", "services", "Service", ApiObject)
ACCOUNTS = Kind("", "v1", "serviceaccounts", "ServiceAccount", ApiObject)
ROLES = tuple(DEPLOY / "rbac" / f"{name}.yaml" for name in ("runtime", "webhooks", "data"))
OFF = {"key": f"data.fluid.io/storage-scalein-{SPACE}-hbase", "operator": "NotIn", "values": ["true"]}
ON = {"key": f"fluid.io/s-{SPACE}-hbase", "operator": "In", "values": ["true"]}


async def never(review: Review) -> Verdict:
    return Verdict()


def registered(port: int, bundle: bytes = b"") -> Any:
    """The configuration by URL, as an administrator would apply it."""
    configuration = entries.configuration(
        by_label=never, by_namespace=never, worker=never, scale=never, namespace=NAMESPACE, namespace_mode=False
    )
    encoded = base64.b64encode(bundle).decode()
    found = manifest(configuration, f"https://127.0.0.1:{port}", encoded)
    for each in found["webhooks"]:
        each["timeoutSeconds"] = 1
        # Pods of other tests are no business of ours.
        each["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": SPACE}}
    return found


async def admitted(client: Client, pod: Any) -> Any:
    body = await client.request("POST", POD_OBJECTS.collection_path(SPACE), body=pod, query={"dryRun": "All"})
    return json.loads(body)


@contextlib.asynccontextmanager
async def prepared(rig: Rig) -> AsyncIterator[Client]:
    clock = RealClock()
    async with Client(connect_by_kubeconfig([rig.kubeconfig()], clock), clock=clock) as client:
        for name in (NAMESPACE, SPACE):
            if await client.find(NAMESPACES, name) is None:
                await client.create(NAMESPACES, {"metadata": {"name": name}})
        if await client.find(ACCOUNTS, "default", SPACE) is None:
            await client.create(ACCOUNTS, {"metadata": {"name": "default"}}, SPACE)
        try:
            yield client
        finally:
            if await client.find(MUTATING, "fairlead-data") is not None:
                await client.request("DELETE", MUTATING.path("", "fairlead-data"))


async def test_s13_s14_s69_s76_s79_patches_on_the_real_server_are_exact(rig: Rig) -> None:
    clock, port, webhook_port = RealClock(), free_port(), free_port()
    flags = {
        "kubeconfig": str(rig.kubeconfig(rig.service_account_token(manifests=ROLES))),
        "listen": f"127.0.0.1:{port}",
        "webhooks.listen": f"127.0.0.1:{webhook_port}",
        "webhooks.drainS": "0.2",
        "capabilities": "data",
    }
    authority = Authority(Path(rig.kubeconfig()).parent / "data-pki")
    pair = authority.server()
    settings = load(
        environment={}, flags={**flags, "webhooks.certificate": str(pair.cert), "webhooks.key": str(pair.key)}
    )

    async def work(stop: asyncio.Event) -> None:
        await app.serve(settings, clock=clock, rng=random.random, stop=stop, known={"data": Data})

    async with prepared(rig) as client:
        for each in definitions():
            if await client.find(DEFINITIONS, each["metadata"]["name"]) is None:
                await client.create(DEFINITIONS, each)
        await define(client)
        declared = [term((ZONE, "In", ["zone-a"]), (REGION, "In", ["region-a"]))]
        held = runtime("hbase", SPACE, declared=declared, fuse={"select-node": "true"})
        await eventually(lambda: client.create(DATASETS, dataset("hbase", SPACE), SPACE))
        await eventually(lambda: client.create(RUNTIMES["alluxio"], held, SPACE))
        await client.create(CLAIMS, claim("hbase", SPACE), SPACE)
        async with running(work):
            await client.create(MUTATING, registered(webhook_port, Path(authority.ca_file).read_bytes()))

            async def patched() -> Any:
                pod = await admitted(client, reader("hbase"))
                return pod if "affinity" in pod["spec"] else None

            found = await eventually(patched)
            fuse = {"key": "select-node", "operator": "In", "values": ["true"]}
            assert found["spec"]["affinity"] == {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [fuse, OFF]}]
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 100, "preference": {"matchExpressions": [ON]}},
                        {"weight": 50, "preference": term((ZONE, "In", ["zone-a"]))},
                        {"weight": 20, "preference": term((REGION, "In", ["region-a"]))},
                    ],
                }
            }
            assert found["metadata"]["annotations"] == {"fluid.io/datasets-in-use": "hbase"}
            assert found["spec"]["containers"][0]["volumeMounts"][0]["mountPropagation"] == "HostToContainer"
            with pytest.raises(ApiError, match=f"claims of the pod do not exist in namespace {SPACE}: gone"):
                await admitted(client, reader("gone"))
            avoiding = await admitted(client, reader())
            assert "fluid.io/dataset-num" in json.dumps(avoiding["spec"]["affinity"])
            # The certificate comes from files: whoever issues it keeps the caBundle too.
            applied = await client.get(MUTATING, "fairlead-data")
            bundle = base64.b64encode(Path(authority.ca_file).read_bytes()).decode()
            assert {each.client_config.ca_bundle for each in applied.webhooks or ()} == {bundle}


def lying(kind: str) -> Any:
    """A server that answers, slowly or with nonsense."""

    async def answer(request: web.Request) -> web.Response:
        review = await request.json()
        if kind == "slow":
            await asyncio.sleep(5)
        uid = "another" if kind == "lying" else review["request"]["uid"]
        body = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": uid, "allowed": True},
        }
        return web.json_response(body)

    return answer


@pytest.mark.parametrize("kind", ["stopped", "slow", "lying"])
async def test_s78_a_failing_webhook_lets_affinity_pass_and_holds_sidecars(rig: Rig, kind: str, tmp_path: Path) -> None:
    pair = (authority := Authority(tmp_path / "pki")).server()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.cert, pair.key)
    port = free_port()
    routes = [web.post(f"/data/{name}", lying(kind)) for name in ("sidecar", "serverful")]
    async with prepared(rig) as client, contextlib.AsyncExitStack() as stack:
        if kind != "stopped":
            await stack.enter_async_context(served(routes, "127.0.0.1", port, tls))
        await client.create(MUTATING, registered(port, Path(authority.ca_file).read_bytes()))

        async def refused() -> str:
            """Once the server has read the configuration."""
            try:
                await admitted(client, reader(labels=SERVERLESS))
            except ApiError as problem:
                return str(problem)
            return ""

        assert "sidecar.data.fairlead.io" in await eventually(refused)
        passed = await admitted(client, reader())
        assert "affinity" not in passed["spec"]


KINDS = {
    "ServiceAccount": ("/api/v1", "serviceaccounts"),
    "ClusterRole": ("/apis/rbac.authorization.k8s.io/v1", "clusterroles"),
    "ClusterRoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings"),
    "ValidatingAdmissionPolicy": ("/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies"),
    "ValidatingAdmissionPolicyBinding": ("/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings"),
}


def path_of(body: Any) -> str:
    root, plural = KINDS[body["kind"]]
    namespace = body["metadata"].get("namespace")
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


async def reporter_token(client: Client, node: str) -> str:
    """What the kubelet gives a pod of the account on this node."""
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/fairlead-data-report/token"
    containers = [{"name": "c", "image": "i"}]
    spec = {"nodeName": node, "containers": containers, "serviceAccountName": "fairlead-data-report"}
    pod = {"metadata": {"name": f"reporter-{node}"}, "spec": spec}
    made = json.loads(await client.request("POST", POD_OBJECTS.collection_path(NAMESPACE), body=pod))
    bound = {"apiVersion": "v1", "kind": "Pod", "name": made["metadata"]["name"], "uid": made["metadata"]["uid"]}
    answer = await client.request("POST", account, body={"spec": {"boundObjectRef": bound}})
    return str(json.loads(answer)["status"]["token"])


async def test_a_reporter_writes_the_report_of_its_own_node_and_no_other(rig: Rig) -> None:
    clock = RealClock()
    async with prepared(rig) as client:
        for each in definitions():
            if await client.find(DEFINITIONS, each["metadata"]["name"]) is None:
                await client.create(DEFINITIONS, each)
        shipped = list(yaml.safe_load_all((Path(ROOT) / "deploy/reports/data.yaml").read_text()))
        for body in shipped:
            await client.request("POST", path_of(body), body=body)
        try:
            for name in ("report-1", "report-2"):
                await client.request("POST", "/api/v1/nodes", body={"metadata": {"name": name}})
            kubeconfig = rig.kubeconfig(await reporter_token(client, "report-1"))
            bare = json.loads(
                await client.request(
                    "POST",
                    f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/fairlead-data-report/token",
                    body={"spec": {}},
                )
            )["status"]["token"]

            async def report(node: str, config: Path = kubeconfig) -> str:
                folder = f"ml/hbase:SSD:{Path(__file__).parent}"
                command = [sys.executable, "-m", "fairlead", "data", "report", "--once", "--node", node,
                           "--folder", folder, "--kubeconfig", str(config)]  # fmt: skip
                done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
                return done.stdout + done.stderr

            async def is_limited() -> bool:
                """A policy holds a moment after it was created."""
                return "written from its own node" in await report("report-2")

            await eventually(is_limited)
            assert await report("report-1") == "reported 1 datasets of report-1\n"
            assert "and the token is of node report-1" in await report("report-2")
            assert "and the token is of no node" in await report("report-1", rig.kubeconfig(bare))
            async with Client(connect_by_kubeconfig([kubeconfig], clock), clock=clock) as reporter:
                found = await reporter.get(CACHE_REPORTS, "report-1")
                assert [each.name for each in found.spec.datasets] == ["hbase"]
        finally:
            for body in reversed(shipped):
                await client.request("DELETE", f"{path_of(body)}/{body['metadata']['name']}")
            for name in ("report-1", "report-2"):
                await client.request("DELETE", f"/api/v1/nodes/{name}")
