"""Modules on the real server, under the roles that are shipped: a base becomes a node, a pod a module on it."""

import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead.modules import webhook
from fairlead.webhooks import manifest
from tests.kube.test_runtime import said, serving
from tests.modules.bases import hello
from tests.modules.replicas import Crew, crew
from tests.modules.samples import NAMESPACE, manifests, pack_modules
from tests.modules.test_healing import heal_in_order, surge_first
from tests.modules.test_pods_and_others import follow_bases, live_beside_others
from tests.modules.test_states import show_states
from tests.rigs.kube.servers import DEPLOY, RUNTIME_RBAC, Rig, free_ports, in_base64, until

ROLES = ("placement", "nodes", "webhooks", "modules")
MANIFESTS = (RUNTIME_RBAC, *(DEPLOY / "rbac" / f"{role}.yaml" for role in ROLES))
NODE = "virtual-node-python-shop-base-0"


@pytest.fixture(scope="module")
def rig(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A server of its own: the roles given here must not show in tests about what the runtime alone may do."""
    with Rig(kube_programs, tmp_path_factory.mktemp("rig")) as own:
        yield started(own)


def started(own: Rig, *, is_whole: bool = False) -> Rig:
    """A server that may call kubelets; a whole one has kube-scheduler and the controllers beside it."""
    pair = own.client_certificate("kube-apiserver-kubelet-client", ["system:masters"])
    flags = [f"--kubelet-client-certificate={pair.cert}", f"--kubelet-client-key={pair.key}"]
    flags.append(f"--kubelet-certificate-authority={own.ca_file}")
    return own.start(is_whole, is_whole, apiserver_flags=flags)


@contextmanager
def running_base(data: Path, url: str, name: str = "base-0", *flags: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "fairlead.modules.base", "--port=0", "--web-port=0", f"--data={data}"]
    env = {"POD_NAME": name, "POD_NAMESPACE": "shop", "POD_UID": f"u-{name}", "MODULE_MEMORY_LIMIT": str(1 << 30)}
    process = subprocess.Popen(
        [*command, f"--heartbeat={url}", "--linger-seconds=0", *flags],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


def module_pod(url: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "hello", "labels": {"virtual-kubelet.koupleless.io/component": "module"}},
        "spec": {
            "schedulerName": "fairlead",
            "tolerations": [{"operator": "Exists", "effect": "NoExecute"}, {"operator": "Exists"}],
            "nodeSelector": {"basement.koupleless.io/stack": "python"},
            "readinessGates": [{"conditionType": "module.koupleless.io/ready"}],
            "containers": [{"name": "hello", "image": url, "env": [{"name": "BIZ_VERSION", "value": "1.0.0"}]}],
        },
    }


def check_kubectl(rig: Rig, namespace: str) -> None:
    """K68: the module's own lines, from another namespace than the base's, by the API server's own call."""
    assert "hello 1.0.0 starts" in rig.kubectl("logs", "-n", namespace, "hello")
    described = rig.kubectl("describe", "pod", "-n", namespace, "hello")
    assert "module.koupleless.io/installed" in described
    assert "arklet://127.0.0.1:hello:1.0.0" in described
    node = rig.request("GET", f"/api/v1/nodes/{NODE}").json()
    types = [each["type"] for each in node["status"]["addresses"]]
    assert types == ["InternalDNS", "InternalIP"]
    # API servers proxy to no loopback address; asked as they ask, the node answers for itself.
    pair = rig.client_certificate("kube-apiserver-kubelet-client", ["system:masters"])
    context = ssl.create_default_context(cafile=str(rig.ca_file))
    context.load_cert_chain(pair.cert, pair.key)
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    with urllib.request.urlopen(f"https://127.0.0.1:{port}/stats/summary", context=context, timeout=20) as answer:
        summary = json.load(answer)
    assert summary["node"]["nodeName"] == NODE
    assert [each["podRef"]["name"] for each in summary["pods"]] == ["hello"]


def variables_for(rig: Rig, folder: Path) -> dict[str, str]:
    return {
        "FAIRLEAD_MODULES_LISTEN": "127.0.0.1:0",
        "FAIRLEAD_MODULES_URL_FILE": str(folder / "url"),
        "FAIRLEAD_MODULES_TRUSTED_NETWORKS": "127.0.0.0/8",
        "FAIRLEAD_WEBHOOKS_LISTEN": "127.0.0.1:0",
        "FAIRLEAD_MODULES_KUBELET_LISTEN": "127.0.0.1:0",
        "FAIRLEAD_MODULES_KUBELET_CERTIFICATE": str(rig.serving_certificate.cert),
        "FAIRLEAD_MODULES_KUBELET_KEY": str(rig.serving_certificate.key),
        "FAIRLEAD_MODULES_KUBELET_CLIENT_CA": str(rig.ca_file),
    }


def test_a_base_is_a_node_and_a_pod_its_module_and_both_go_when_they_should(
    rig: Rig, namespace: str, tmp_path: Path
) -> None:
    variables = variables_for(rig, tmp_path)
    kubeconfig = rig.kubeconfig(rig.service_account_token(manifests=MANIFESTS))
    flags = ("--capabilities=placement,modules", "--log-level=info")
    path = f"/api/v1/namespaces/{namespace}/pods/hello"

    def pod() -> dict[str, Any]:
        found: dict[str, Any] = rig.request("GET", path).json()
        return found

    def is_ready() -> bool:
        conditions = {each["type"]: each["status"] for each in pod()["status"].get("conditions", ())}
        return conditions.get("Ready") == conditions.get("module.koupleless.io/installed") == "True"

    with serving(kubeconfig, *flags, variables=variables) as process:
        said(process, "leading")
        assert until((tmp_path / "url").exists, 30)
        with running_base(tmp_path / "data", (tmp_path / "url").read_text()) as base:
            assert said(process, "base found")["node"] == NODE
            assert until(lambda: rig.request("GET", f"/api/v1/nodes/{NODE}").status == 200, 30)
            body = module_pod(hello(tmp_path))
            assert rig.request("POST", f"/api/v1/namespaces/{namespace}/pods", body).status == 201
            assert until(is_ready, 60), pod()
            status = pod()["status"]
            assert status["phase"] == "Running"
            assert status["containerStatuses"][0]["containerID"] == "arklet://127.0.0.1:hello:1.0.0"
            check_kubectl(rig, namespace)

            assert rig.request("DELETE", path).status == 200
            assert until(lambda: rig.request("GET", path).status == 404, 60)
            base.send_signal(signal.SIGTERM)
            assert until(lambda: rig.request("GET", f"/api/v1/nodes/{NODE}").status == 404, 60)


def clean(rig: Rig) -> None:
    """Of a scenario nothing is left for the next."""
    leases = "/apis/coordination.k8s.io/v1/namespaces"
    pods = "/api/v1/namespaces/default/pods"
    for path in (pods, "/api/v1/nodes", f"{leases}/kube-node-lease/leases", f"{leases}/fairlead-system/leases"):
        for each in rig.request("GET", path).json()["items"]:
            rig.request("DELETE", f"{path}/{each['metadata']['name']}?gracePeriodSeconds=0")


@pytest.mark.parametrize(
    ("scenario", "bases", "left"),
    [
        (live_beside_others, 1, set()),
        (follow_bases, 3, {"shop-b0"}),
        (heal_in_order, 2, set()),
        (surge_first, 2, {"shop-b1"}),
        (show_states, 2, {"second", "tea-b1"}),
    ],
    ids=[
        "k13 k34 k38 k39 k40 k42",
        "k12 k64",
        "k54 k56 k60",
        "surge",
        "k02 k04 k05 k07 k14 k16-k19 k21 k24 k31 k32 k37 k41",
    ],
)
async def test_scenarios_on_the_real_server_under_the_shipped_roles(
    rig: Rig, tmp_path: Path, scenario: Callable[[Crew], Awaitable[None]], bases: int, left: set[str]
) -> None:
    clean(rig)
    roles = rig.kubeconfig(rig.service_account_token(manifests=MANIFESTS))
    server = (rig.kubeconfig(), roles)
    async with crew(tmp_path, bases=bases, own_addresses=bases == 2, server=server) as at:
        await scenario(at)
        assert await at.ready_pods() == left


def test_manifests_of_koupleless_s_pages_run_by_kube_scheduler_and_the_real_controllers(
    kube_programs: Path, tmp_path: Path
) -> None:
    """Completed by our webhook, as the real API server calls it; what is too large says so (K30)."""
    (port,) = free_ports(1)
    artefacts = tmp_path / "artefacts"
    pack_modules(tmp_path / "source", artefacts)
    file = tmp_path / "samples.yaml"
    file.write_text(manifests(f"file://{artefacts}"))
    with ExitStack() as stack:
        rig = stack.enter_context(Rig(kube_programs, tmp_path / "rig"))
        started(rig, is_whole=True)
        pair, bundle = rig.serving_certificate, in_base64(rig.ca_file)
        variables = variables_for(rig, tmp_path) | {
            "FAIRLEAD_WEBHOOKS_LISTEN": f"127.0.0.1:{port}",
            "FAIRLEAD_WEBHOOKS_CERTIFICATE": str(pair.cert),
            "FAIRLEAD_WEBHOOKS_KEY": str(pair.key),
        }
        kubeconfig = rig.kubeconfig(rig.service_account_token(manifests=MANIFESTS))
        process = stack.enter_context(serving(kubeconfig, "--capabilities=modules", variables=variables))
        said(process, "leading")
        assert until((tmp_path / "url").exists, 30)
        hook = manifest(webhook.configuration("dev"), f"https://127.0.0.1:{port}", bundle)
        rig.kubectl("replace", "-f", "-", stdin=json.dumps(hook))
        rig.kubectl("create", "namespace", NAMESPACE)
        for number in range(3):
            flags = (f"--host=127.0.79.{number + 1}", "--cluster-name=demo")
            data, url = tmp_path / f"base-{number}", (tmp_path / "url").read_text()
            stack.enter_context(running_base(data, url, f"base-{number}", *flags))
        in_demo = ("-n", NAMESPACE)
        selector = "virtual-kubelet.koupleless.io/component=vnode"
        assert until(lambda: rig.kubectl("get", "nodes", "-l", selector, "-o", "name").count("node/") == 3, 60)
        rig.kubectl("apply", "-f", str(file))
        pods = ("pod/single", "pod/group", "pod/custome-module-group-as-pod")
        rig.kubectl(*in_demo, "wait", "--for=condition=Ready", *pods, "--timeout=90s")
        for name in ("biz4", "biz6"):
            rig.kubectl(*in_demo, "rollout", "status", f"deployment/{name}", "--timeout=90s")
        replicas = (*in_demo, "get", "deployment", "biz5", "-o", "jsonpath={.status.readyReplicas}")
        assert until(lambda: rig.kubectl(*replicas) == "3", 90)
        node = rig.kubectl(*in_demo, "get", "pod", "single", "-o", "jsonpath={.spec.nodeName}")
        assert rig.kubectl(*in_demo, "logs", "single") == f"biz ['--greeting', 'hej'] {node}\n"
        assert "Insufficient memory" in rig.kubectl(*in_demo, "describe", "pod", "large")
        rig.kubectl("delete", "-f", str(file), "--timeout=60s")
