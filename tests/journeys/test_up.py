"""`fairlead up` as a newcomer meets it: one process, kubectl, pods that really run."""

import contextlib
import json
import os
import shlex
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from fairlead.app import CAPABILITIES
from tests.rigs.kube.servers import until


class Cluster:
    def __init__(self, kubectl: Path, data: Path) -> None:
        self.data = data
        self._kubectl = kubectl
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *flags: str) -> None:
        command = [sys.executable, "-m", "fairlead", "up", f"--data={self.data}", "--listen=127.0.0.1:0", *flags]
        with (self.data.parent / "up.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        ready = until(lambda: self.log().rstrip().endswith("the same folder brings everything back."), 60)
        assert ready, self.log()

    def log(self) -> str:
        return (self.data.parent / "up.log").read_text()

    def end(self, how: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        code = self.process.wait(60)
        (self.data.parent / "up.log").unlink()
        return code

    def kubectl(self, *arguments: str) -> str:
        command = [str(self._kubectl), f"--kubeconfig={self.data / 'kubeconfig'}"]
        command += [f"--cache-dir={self.data.parent / 'kubectl-cache'}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    @property
    def server(self) -> list[str]:
        """A pod's command that nobody else on this machine runs: its folder is ours."""
        return ["python3", "-m", "http.server", "8080", "--directory", str(self.data.parent)]

    def servers(self) -> set[int]:
        """The processes that run it, whoever their parent is."""
        found = set()
        for process in psutil.process_iter(["cmdline"]):
            with contextlib.suppress(psutil.NoSuchProcess):
                if (process.info["cmdline"] or [])[-5:] == self.server[-5:]:
                    found.add(process.pid)
        return found

    def pods(self, path: str = "{.items[*].metadata.name}") -> list[str]:
        return self.kubectl("get", "pods", "-o", f"jsonpath={path}").split()


@pytest.fixture
def new_cluster(kube_programs: Path, tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    started: list[Cluster] = []

    def make(*flags: str) -> Cluster:
        cluster = Cluster(kube_programs / "kubectl", tmp_path / "data")
        started.append(cluster)
        cluster.start(*flags)
        return cluster

    yield make
    for cluster in started:
        if cluster.process is not None and cluster.process.poll() is None:
            cluster.process.kill()
            cluster.process.wait(60)


def page(address: str) -> int:
    with urllib.request.urlopen(f"http://{address}/", timeout=30) as answer:
        return int(answer.status)


def is_refused(address: str) -> bool:
    try:
        page(address)
    except OSError as problem:
        return isinstance(getattr(problem, "reason", problem), ConnectionRefusedError)
    return False


def test_a_deployment_of_real_servers_is_reached_healed_scaled_away_and_leaves_nothing(
    new_cluster: Callable[..., Cluster],
) -> None:
    cluster = new_cluster("--nodes=2")
    cluster.kubectl("create", "deployment", "web", "--image=python:3", "--replicas=3", "--", *cluster.server)
    cluster.kubectl("expose", "deployment", "web", "--port=8088", "--target-port=8080")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
    assert len(cluster.servers()) == 3
    address = cluster.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
    slices = ("get", "endpointslices", "-l", "kubernetes.io/service-name=web", "-o")
    endpoints = (*slices, "jsonpath={.items[*].endpoints[*].addresses[0]}")
    assert until(lambda: len(cluster.kubectl(*endpoints).split()) == 3, 120)
    assert until(lambda: all(page(f"{address}:8088") == 200 for _ in range(6)), 120)
    assert "Serving HTTP" in cluster.kubectl("logs", "deployment/web")

    os.kill(next(iter(cluster.servers())), signal.SIGKILL)
    restarts = "{.items[*].status.containerStatuses[0].restartCount}"
    assert until(lambda: sorted(cluster.pods(restarts)) == ["0", "0", "1"], 120)
    cluster.kubectl("wait", "--for=condition=Available", "deployment/web", "--timeout=120s")
    assert page(f"{address}:8088") == 200

    cluster.kubectl("scale", "deployment", "web", "--replicas=0")
    assert until(lambda: cluster.pods() == [] and cluster.servers() == set(), 45)
    assert until(lambda: is_refused(f"{address}:8088"), 120)
    assert cluster.end(signal.SIGTERM) == 0


def host_pod(node: str) -> dict[str, object]:
    server = {"name": "server", "image": "python:3", "command": ["python3", "-m", "http.server", "18123"]}
    spec = {"nodeName": node, "hostNetwork": True, "containers": [server]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": node, "labels": {"app": "host"}}, "spec": spec}


def test_every_node_has_an_address_of_its_own(new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = new_cluster("--nodes=2")
    internal = "{.items[*].status.addresses[?(@.type=='InternalIP')].address}"
    addresses = cluster.kubectl("get", "nodes", "-o", f"jsonpath={internal}").split()
    assert len(set(addresses)) == 2
    assert "127.0.0.1" not in addresses
    manifest = tmp_path / "pods.json"
    manifest.write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [host_pod("node-1"), host_pod("node-2")]})
    )
    cluster.kubectl("apply", "-f", str(manifest))
    cluster.kubectl("wait", "pod", "--all", "--for=condition=Ready", "--timeout=120s")
    assert cluster.pods("{.items[*].status.podIP}") == cluster.pods("{.items[*].status.hostIP}") == addresses
    assert until(lambda: all(not is_refused(f"{address}:18123") for address in addresses), 60)
    assert [page(f"{address}:18123") for address in addresses] == [200, 200]

    cluster.kubectl("create", "service", "nodeport", "host", "--tcp=80:18123")
    node_port = cluster.kubectl("get", "service", "host", "-o", "jsonpath={.spec.ports[0].nodePort}")
    everywhere = ["127.0.0.1", *addresses]
    assert until(lambda: all(not is_refused(f"{address}:{node_port}") for address in everywhere), 60)
    assert [page(f"{address}:{node_port}") for address in everywhere] == [200, 200, 200]

    port = cluster.kubectl("get", "node", "node-2", "-o", "jsonpath={.status.daemonEndpoints.kubeletEndpoint.Port}")
    trusted = ssl.create_default_context(cafile=str(cluster.data / "pki" / "ca.crt"))
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"https://{addresses[1]}:{port}/pods", context=trusted, timeout=30)
    assert cluster.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "killed"])
def test_the_same_folder_brings_everything_back(new_cluster: Callable[..., Cluster], how: signal.Signals) -> None:
    cluster = new_cluster()
    cluster.kubectl("create", "deployment", "web", "--image=python:3", "--", *cluster.server)
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
    names, uids = cluster.pods(), cluster.pods("{.items[*].metadata.uid}")
    cluster.end(how)
    assert until(lambda: cluster.servers() == set(), 120), "a process outlived us"
    cluster.start()
    assert (cluster.pods(), cluster.pods("{.items[*].metadata.uid}")) == (names, uids)
    here = cluster.kubectl("config", "view", "-o=jsonpath={.clusters[0].cluster.server}").rpartition(":")[2]
    assert cluster.kubectl("get", "endpointslice", "kubernetes", "-o=jsonpath={.ports[0].port}") == here
    assert until(lambda: cluster.pods("{.items[*].status.containerStatuses[0].restartCount}") == ["1"], 120)
    cluster.kubectl("wait", "--for=condition=Available", "deployment/web", "--timeout=120s")
    assert len(cluster.servers()) == 1
    assert cluster.end(signal.SIGTERM) == 0
    assert until(lambda: cluster.servers() == set(), 120)


def test_nodes_of_an_earlier_start_that_are_no_more_are_not_waited_for(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster("--nodes=2", "--simulate=3")
    cluster.kubectl("cordon", "node-1")
    cluster.kubectl("create", "deployment", "web", "--image=pause")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
    cluster.kubectl("uncordon", "node-1")
    cluster.end(signal.SIGTERM)
    cluster.start("--simulate=1")
    assert until(lambda: cluster.kubectl("get", "nodes", "-o=name").split() == ["node/node-1", "node/sim-1"], 120)
    assert until(lambda: cluster.pods("{.items[*].spec.nodeName}") == ["node-1"], 180), "the pod was not given up"
    cluster.end(signal.SIGTERM)
    cluster.start("--without=nodes")
    assert "nodes: none" in cluster.log()
    assert len(cluster.kubectl("get", "nodes", "-o=name").split()) == 2, "they may be somebody else's now"


STATEFUL_SET = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  volumeClaimTemplates:
  - {metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: c
        image: busybox
        command: [sh, -c, "echo again >> $FAIRLEAD_VOLUME_DATA/lines; cat $FAIRLEAD_VOLUME_DATA/lines; sleep 1000"]
        volumeMounts: [{name: data, mountPath: /data}]
"""


def test_a_claim_gets_a_folder_that_outlives_its_pods_and_goes_with_it(
    new_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = new_cluster()
    manifest = tmp_path / "db.yaml"
    manifest.write_text(STATEFUL_SET)
    cluster.kubectl("apply", "-f", str(manifest))

    def lines(count: int) -> bool:
        cluster.kubectl("rollout", "status", "statefulset/db", "--timeout=120s")
        return until(lambda: cluster.kubectl("logs", "db-0").count("again") == count, 120)

    assert lines(1)
    cluster.kubectl("delete", "pod", "db-0")
    assert lines(2)
    cluster.end(signal.SIGKILL)
    cluster.start()
    assert lines(3)
    (folder,) = (cluster.data / "volumes").iterdir()
    assert cluster.kubectl("get", "pvc", "data-db-0", "-o=jsonpath={.spec.volumeName}") == folder.name
    cluster.kubectl("delete", "statefulset", "db")
    cluster.kubectl("delete", "pvc", "data-db-0")
    cluster.kubectl("wait", "--for=delete", f"pv/{folder.name}", "--timeout=120s")
    assert not folder.exists()


def test_simulated_nodes_take_a_crowd(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster("--nodes=0", "--simulate=50")
    cluster.kubectl("create", "deployment", "crowd", "--image=none", "--replicas=300")
    cluster.kubectl("rollout", "status", "deployment/crowd", "--timeout=120s")
    nodes = cluster.pods("{.items[*].spec.nodeName}")
    assert (len(nodes), len(set(nodes))) == (300, 50)
    assert cluster.end(signal.SIGTERM) == 0


def test_a_second_up_on_the_folder_says_so_and_stops(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster("--empty")
    assert f"{cluster.data} is in use by process" in refused(f"--data={cluster.data}")


def test_a_folder_or_a_port_that_cannot_be_used_ends_in_one_sentence(
    new_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    assert "Not a directory; mend that, or name another folder" in refused(f"--data={tmp_path / 'file' / 'data'}")
    port = new_cluster("--empty").kubectl("config", "view", "-o=jsonpath={.clusters[0].cluster.server}").split(":")[-1]
    said = refused(f"--data={tmp_path / 'other'}", f"--port={port}")
    assert f"cannot serve the API on 127.0.0.1:{port}" in said
    assert "name another port" in said


def refused(*flags: str) -> str:
    """The one sentence a mistake ends in."""
    command = [sys.executable, "-m", "fairlead", "up", "--listen=127.0.0.1:0", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    return done.stderr


def test_the_demo_shows_what_runs_what_ends_and_what_cannot_be_placed(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster("--demo", "--nodes=3")
    cluster.kubectl("-n", "demo", "wait", "--for=condition=Available", "deployment/web", "--timeout=120s")
    cluster.kubectl("-n", "demo", "wait", "--for=condition=Complete", "job/greet", "--timeout=120s")
    cluster.kubectl("-n", "demo", "wait", "--for=condition=Available", "deployment/readers", "--timeout=120s")
    # By this label it stays warm when the demo's report has grown old.
    is_labelled = r"--for=jsonpath={.metadata.labels.fluid\.io/s-demo-images}=true"
    cluster.kubectl("wait", "node/node-1", is_labelled, "--timeout=120s")
    readers = ("-n", "demo", "get", "pods", "-l", "app=readers", "-o")
    early = set(cluster.kubectl(*readers, "jsonpath={.items[*].metadata.name}").split())
    cluster.kubectl("-n", "demo", "scale", "deployment/readers", "--replicas=4")
    cluster.kubectl("-n", "demo", "rollout", "status", "deployment/readers", "--timeout=120s")
    lines = cluster.kubectl(*readers, "jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName}{'\\n'}{end}")
    nodes = {name: node for name, node in (line.split() for line in lines.splitlines()) if name not in early}
    assert list(nodes.values()) == ["node-1", "node-1"], "where the dataset is cached"
    assert cluster.kubectl("-n", "demo", "logs", "job/greet") == "hello from a pod\n"
    cluster.kubectl("-n", "demo", "wait", "--for=condition=Complete", "tyj/relay", "--timeout=120s")
    greetings = cluster.kubectl("-n", "demo", "logs", "relay-leader").splitlines()
    assert sorted(greetings) == [f"hello from worker {index}" for index in range(3)]
    events = ("-n", "demo", "get", "events", "--field-selector=reason=FailedScheduling", "-o")
    assert "3 Insufficient cpu" in cluster.kubectl(*events, "jsonpath={.items[*].message}")
    assert cluster.end(signal.SIGTERM) == 0


def test_it_tells_what_it_does_where_it_is_and_how_pods_see_the_world(new_cluster: Callable[..., Cluster]) -> None:
    ours = new_cluster()
    told = ours.log()
    parts = ", ".join(("controllers", *CAPABILITIES, "nodes"))
    first, then = told.index("starting the API server"), told.index(f"starting {parts}")
    assert first < then < told.index("Fairlead is up: https://127.0.0.1:")
    assert f"export KUBECONFIG={ours.data / 'kubeconfig'}" in told
    (line,) = [line for line in told.splitlines() if line.endswith(f"explain pod/NAME --data {ours.data}")]
    typed = shlex.split(line.strip().removesuffix(f"explain pod/NAME --data {ours.data}"))
    assert subprocess.run([*typed, "--version"], capture_output=True, timeout=120, check=False).returncode == 0
    # Which of the two depends on the machine.
    assert "On this machine: pods see their volumes" in told or "On this machine: no mount namespaces" in told


def serving_pod(node: str) -> str:
    """Fairlead itself as a pod, under its shipped roles."""
    command = [sys.executable, "-m", "fairlead", "serve", "--capabilities=placement", "--listen=127.0.0.1:0"]
    container = {
        "name": "serve",
        "image": "fairlead",
        "command": command,
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
    spec = {
        "nodeName": node,
        "serviceAccountName": "fairlead",
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "containers": [container],
    }
    metadata = {"name": "fairlead", "namespace": "fairlead-system"}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def test_fairlead_runs_in_a_pod_of_its_own_cluster(new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    """With the variables that process pods have, none of which is a setting, and as its service account."""
    cluster = new_cluster("--without=placement")
    roles = Path(__file__).parents[2] / "deploy" / "rbac"
    cluster.kubectl("apply", "--server-side", "-f", str(roles / "runtime.yaml"), "-f", str(roles / "placement.yaml"))
    node = cluster.kubectl("get", "nodes", "-o=jsonpath={.items[0].metadata.name}")
    pod = tmp_path / "pod.json"
    pod.write_text(serving_pod(node))
    cluster.kubectl("apply", "-f", str(pod))
    held = "jsonpath={.spec.holderIdentity}"
    holder = ("get", "lease", "fairlead", "-n=fairlead-system", "--ignore-not-found", "-o", held)
    led = until(lambda: bool(cluster.kubectl(*holder)), 120)
    assert led, cluster.kubectl("logs", "-n=fairlead-system", "fairlead")
    overrides = json.dumps({"spec": {"schedulerName": "fairlead"}})
    cluster.kubectl("run", "web", "--image=busybox", f"--overrides={overrides}", "--command", "--", "sleep", "1000")
    cluster.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=120s")
    assert "the pod's service account" in cluster.kubectl("logs", "-n=fairlead-system", "fairlead")
    cluster.kubectl("delete", "pod", "-n=fairlead-system", "fairlead")
    assert cluster.kubectl(*holder) == "", "the lease was released"
