"""Other people's programs at work on the embedded API server: kube-scheduler, kube-controller-manager, their client.

Our own placement and controllers are off; what happens here is theirs, and only the API server and the nodes
are ours. The short form is tests/journeys/test_real_clients.py. Judged by the end state, read by the official
client (everything bound and running, then everything gone), and by the logs of the two programs.
"""

import contextlib
import http.client
import random
import re
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click
import kubernetes.dynamic
import yaml
from kubernetes.client.exceptions import ApiException

from tests.rigs.kube.build import ensure_built
from tests.rigs.kube.servers import RigBroken, Server, free_ports, until

# Its stubs do not know that a dict will do for every model, and call every field of an answer optional.
_official: Final[Any] = kubernetes
client, config, dynamic, watch = _official.client, _official.config, _official.dynamic, _official.watch

CONTROLLERS_OFF: Final = {
    "certificatesigningrequest-approving-controller": "certificates.k8s.io is not served",
    "certificatesigningrequest-cleaner-controller": "certificates.k8s.io is not served",
    "certificatesigningrequest-signing-controller": "certificates.k8s.io is not served",
    "validatingadmissionpolicy-status-controller": "ValidatingAdmissionPolicy is not served",
}
"""Controllers of kinds that the embedded server does not serve, each with its reason. All others run."""

EXPECTED: Final = {
    r"No authentication-kubeconfig provided|No authorization-kubeconfig provided": "we start them without one",
    r"The manifest file is empty, ignoring": "said at every start, whatever the server",
    r"read version: \d+ is not as new as written version: \d+": (
        "a controller looked before its own write had come back by the watch; the real server gets this as well"
    ),
    r"failed with replicasets\.apps .* not found": "deleted while its status was written; so on the real server",
    r"failed with Operation cannot be fulfilled on replicasets\.apps": (
        "the Deployment's controller was quicker; so on the real server"
    ),
    r"deployment_controller\.go:\d+\] .*Operation cannot be fulfilled on (deployments|replicasets)\.apps": (
        "the storm changed a Deployment or its ReplicaSet between each look and each write of its controller, fifteen "
        "times running"
    ),
    r"pod \S+ is being deleted, cannot be assigned to a host": (
        "a pod deleted between the scheduler's decision and its binding; the real server says so too"
    ),
    r'"(Plugin Failed|Error scheduling pod; retrying|Error updating pod)" err=".*pods .* not found"': (
        "the same, and the pod is gone already; the real server says so too"
    ),
    r'garbagecollector\.go:\d+\] "Unhandled Error" err="error syncing item .* not found"': (
        "deleted in the foreground, then again in the background while the collector worked; so on the real server"
    ),
}
"""Warnings and errors in the logs that are not the server's fault, each with its reason.

Each was seen on the real kube-apiserver; the Deployment's conflict with six writers that changed one Deployment some
170 times a second for four minutes. A `not found` here does not say that the object was rightly gone: the end state
must.
"""

COMPLAINT: Final = re.compile(r"^[EWF]\d{4} ")
TEMPLATE: Final = {"name": "main", "image": "busybox", "command": ["sleep", "1000"]}


def complaints(log: Path) -> list[str]:
    """Every warning, error and fatal line that nobody expects."""
    lines = log.read_text(errors="replace").splitlines()
    known = re.compile("|".join(EXPECTED))
    panics = [f"{log.name}: {line}" for line in lines if line.startswith(("panic:", "goroutine "))]
    return panics + [f"{log.name}: {line}" for line in lines if COMPLAINT.match(line) and not known.search(line)]


class Cluster:
    """The embedded API server and nodes, run by `fairlead up`, with the real scheduler and controllers beside it."""

    def __init__(self, programs: Path, home: Path) -> None:
        self.home: Final = home
        self.kubeconfig: Final = home / "data" / "kubeconfig"
        self._programs = programs
        self._servers: list[Server] = []

    def start(self, *, nodes: int, simulated: int) -> None:
        command = [sys.executable, "-m", "fairlead", "up", f"--data={self.home / 'data'}", "--listen=127.0.0.1:0"]
        command += ["--without=controllers,placement", f"--nodes={nodes}", f"--simulate={simulated}"]
        up = Server("kube-apiserver", command, self.home / "up.log")
        self._servers.append(up)
        if not until(lambda: not up.running or "brings everything back" in up.log_tail(), 60) or not up.running:
            raise RigBroken(f"fairlead up was not ready:\n{up.log_tail()}")
        ports = free_ports(2)
        authority = self.home / "data" / "pki" / "ca.crt"
        account_key = self.home / "data" / "service-accounts.key"
        flexvolume = self.home / "flexvolume"
        flexvolume.mkdir()
        side = ["--bind-address=127.0.0.1", f"--cert-dir={self.home / 'side'}"]
        self._servers.append(
            Server(
                "kube-controller-manager",
                [
                    str(self._programs / "kube-controller-manager"),
                    *side,
                    f"--secure-port={ports[0]}",
                    f"--kubeconfig={self.kubeconfig}",
                    "--kube-api-content-type=application/json",
                    "--kube-api-qps=500",
                    "--kube-api-burst=1000",
                    "--leader-elect=false",
                    "--use-service-account-credentials=false",
                    # It warns where this folder is missing, and makes it.
                    f"--flex-volume-plugin-dir={flexvolume}",
                    f"--service-account-private-key-file={account_key}",
                    f"--root-ca-file={authority}",
                    f"--controllers=*,{','.join(f'-{name}' for name in CONTROLLERS_OFF)}",
                ],
                self.home / "kube-controller-manager.log",
            )
        )
        scheduler = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {
                "kubeconfig": str(self.kubeconfig),
                "contentType": "application/json",
                "qps": 5000,
                "burst": 10000,
            },
        }
        file = self.home / "scheduler.yaml"
        file.write_text(yaml.safe_dump(scheduler))
        self._servers.append(
            Server(
                "kube-scheduler",
                [str(self._programs / "kube-scheduler"), *side, f"--secure-port={ports[1]}", f"--config={file}"],
                self.home / "kube-scheduler.log",
            )
        )
        for server, port, path in zip(self._servers[1:], ports, ("/healthz", "/readyz"), strict=True):
            if not until(lambda: not server.running or _answers(port, path), 90) or not server.running:  # noqa: B023
                raise RigBroken(f"{server.name} was not ready:\n{server.log_tail()}")

    def stop(self) -> None:
        while self._servers:
            self._servers.pop().stop()

    def ended(self) -> list[str]:
        """Programs that are no longer there though nobody ended them."""
        return [f"{server.name} ended: {server.log_tail(3)}" for server in self._servers if not server.running]

    def complaints(self) -> list[str]:
        logs = ("kube-controller-manager.log", "kube-scheduler.log")
        return self.ended() + [line for log in logs for line in complaints(self.home / log)] + self._ours()

    def _ours(self) -> list[str]:
        lines = (self.home / "up.log").read_text(errors="replace").splitlines()
        return [f"up.log: {line}" for line in lines if '"level":"error"' in line or line.startswith("Traceback")]

    @contextlib.contextmanager
    def api(self) -> Iterator[Any]:
        """The official client."""
        api: Any = config.new_client_from_config(str(self.kubeconfig))
        try:
            yield api
        finally:
            api.close()
            api.rest_client.pool_manager.clear()

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        command = [str(self._programs / "kubectl"), f"--kubeconfig={self.kubeconfig}"]
        command += [f"--cache-dir={self.home / 'kubectl-cache'}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=90, check=False)
        if done.returncode != 0:
            raise RigBroken(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}\n{done.stdout}")
        return done.stdout


@contextlib.contextmanager
def cluster(programs: Path, home: Path, *, nodes: int, simulated: int) -> Iterator[Cluster]:
    made = Cluster(programs, home)
    try:
        made.start(nodes=nodes, simulated=simulated)
        yield made
    finally:
        made.stop()


def _answers(port: int, path: str) -> bool:
    # Its certificate is one it made for itself a moment ago.
    trusting = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=trusting)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


# --- load ---------------------------------------------------------------------------------------------------------


def deployment(name: str, replicas: int) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod_spec()},
        },
    }


def pod_spec(provider: str = "simulated") -> dict[str, Any]:
    return {
        "terminationGracePeriodSeconds": 10,
        "nodeSelector": {"fairlead.io/provider": provider},
        "containers": [{**TEMPLATE, "resources": {"requests": {"cpu": "10m"}}}],
    }


class Churner:
    """One client with a namespace of its own, doing what users do, at random."""

    def __init__(self, api: Any, seed: int) -> None:
        self.namespace = f"load-{seed}"
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._core, self._apps = client.CoreV1Api(api), client.AppsV1Api(api)
        self._rng = random.Random(seed)
        self._made = 0

    def prepare(self) -> None:
        self._core.create_namespace({"metadata": {"name": self.namespace}})
        # The ServiceAccount plugin refuses pods until the controller manager has made the account.
        if not until(lambda: bool(self._core.list_namespaced_service_account(self.namespace).items), 30):
            self.wrong.append(f"no ServiceAccount in {self.namespace} after 30 s")

    def run(self, until_s: float) -> None:
        acts: list[tuple[Callable[[], None], int]] = [
            (self._create, 4), (self._scale, 6), (self._restart, 3), (self._delete, 3), (self._pod, 3),
            (self._evict, 3), (self._delete_pod, 3), (self._list, 3), (self._watch, 1), (self._apply, 2),
        ]  # fmt: skip
        while time.monotonic() < until_s:
            (act,) = self._rng.choices([act for act, _ in acts], [weight for _, weight in acts])
            try:
                act()
            except ApiException as problem:
                # Gone between a look and a word, or changed by a controller: so it is on any cluster.
                if problem.status not in (404, 409):
                    self.wrong.append(f"{self.namespace}: {act.__name__}: {problem.status} {problem.body}")
            except Exception as problem:
                self.wrong.append(f"{self.namespace}: {act.__name__}: {problem!r}")
            self.done[act.__name__.strip("_")] += 1

    def _create(self) -> None:
        if len(self._deployments()) < 6:
            self._made += 1
            body = deployment(f"web-{self._made}", self._rng.randint(0, 8))
            self._apps.create_namespaced_deployment(self.namespace, body)

    def _scale(self) -> None:
        if name := self._some(self._deployments()):
            body = {"spec": {"replicas": self._rng.randint(0, 10)}}
            self._apps.patch_namespaced_deployment_scale(name, self.namespace, body)

    def _restart(self) -> None:
        if name := self._some(self._deployments()):
            again = {"kubectl.kubernetes.io/restartedAt": str(time.monotonic())}
            body = {"spec": {"template": {"metadata": {"annotations": again}}}}
            self._apps.patch_namespaced_deployment(name, self.namespace, body)

    def _delete(self) -> None:
        if name := self._some(self._deployments()):
            how = self._rng.choice(("Background", "Foreground"))
            self._apps.delete_namespaced_deployment(name, self.namespace, propagation_policy=how)

    def _pod(self) -> None:
        self._made += 1
        body = {"metadata": {"name": f"bare-{self._made}", "labels": {"app": "bare"}}, "spec": pod_spec()}
        self._core.create_namespaced_pod(self.namespace, body)

    def _evict(self) -> None:
        if name := self._some(self._pods()):
            self._core.create_namespaced_pod_eviction(name, self.namespace, {"metadata": {"name": name}})

    def _delete_pod(self) -> None:
        if name := self._some(self._pods("app=bare")):
            self._core.delete_namespaced_pod(name, self.namespace)

    def _list(self) -> None:
        more, seen = None, []
        while more != "":
            page = self._core.list_namespaced_pod(self.namespace, limit=5, _continue=more)
            seen += [pod.metadata.name for pod in page.items]
            more = page.metadata._continue or ""
        if len(set(seen)) != len(seen):
            self.wrong.append(f"{self.namespace}: pages of one list name a pod twice: {sorted(seen)}")

    def _watch(self) -> None:
        now = self._core.list_namespaced_pod(self.namespace)
        held = {pod.metadata.name for pod in now.items}
        stream = watch.Watch().stream(
            self._core.list_namespaced_pod,
            self.namespace,
            resource_version=now.metadata.resource_version,
            timeout_seconds=1,
        )
        for event in stream:
            name, told = event["object"].metadata.name, event["type"]
            if told == "ERROR" or (told == "ADDED") == (name in held):
                self.wrong.append(f"{self.namespace}: a watch told {told} of {name}, held before: {name in held}")
            if told == "DELETED":
                held.discard(name)
            else:
                held.add(name)

    def _apply(self) -> None:
        name = f"config-{self._rng.randint(1, 5)}"
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name},
            "data": {"n": str(self._rng.random())},
        }
        self._core.patch_namespaced_config_map(
            name,
            self.namespace,
            body,
            field_manager="churner",
            force=True,
            _content_type="application/apply-patch+yaml",
        )

    def _deployments(self) -> list[str]:
        return [each.metadata.name for each in self._apps.list_namespaced_deployment(self.namespace).items]

    def _pods(self, selector: str = "") -> list[str]:
        found = self._core.list_namespaced_pod(self.namespace, label_selector=selector)
        return [each.metadata.name for each in found.items]

    def _some(self, names: list[str]) -> str | None:
        return self._rng.choice(names) if names else None


def load(cluster: Cluster, *, seconds: float, clients: int, seed: int) -> list[str]:
    """Churn for a while, then let it settle; everything that was found wrong."""
    with contextlib.ExitStack() as stack:
        churners = [Churner(stack.enter_context(cluster.api()), seed + n) for n in range(clients)]
        for churner in churners:
            churner.prepare()
        ends = time.monotonic() + seconds
        threads = [threading.Thread(target=churner.run, args=(ends,)) for churner in churners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        done = sum((churner.done for churner in churners), Counter[str]())
        print(f"{done.total()} acts: {dict(done)}", flush=True)
        wrong = [line for churner in churners for line in churner.wrong]
        wrong += settled(stack.enter_context(cluster.api()), [churner.namespace for churner in churners])
        return wrong + cluster.complaints()


def settled(api: Any, namespaces: list[str], within_s: float = 120) -> list[str]:
    """What still lacks when all should be bound and running, and what is left when all should be gone."""
    core, apps = client.CoreV1Api(api), client.AppsV1Api(api)
    lacking: list[str] = []

    def all_run() -> bool:
        lacking[:] = [line for namespace in namespaces for line in _lacking(core, apps, namespace)]
        return not lacking

    if not until(all_run, within_s, every_s=0.5):
        return lacking
    for namespace in namespaces:
        core.delete_namespace(namespace)
    left: list[str] = []

    def all_gone() -> bool:
        there = {each.metadata.name for each in core.list_namespace().items}
        left[:] = [f"namespace {name} is still there" for name in namespaces if name in there]
        for pods in (core.list_pod_for_all_namespaces(), apps.list_replica_set_for_all_namespaces()):
            left.extend(
                f"{each.metadata.namespace}/{each.metadata.name} is left"
                for each in pods.items
                if each.metadata.namespace in namespaces
            )
        return not left

    until(all_gone, within_s, every_s=0.5)
    return left


def _lacking(core: Any, apps: Any, namespace: str) -> Iterator[str]:
    """Deployments that are not as wanted, pods that are not bound or not running, owners that are gone."""
    wanted: dict[str, int] = {}
    for each in apps.list_namespaced_deployment(namespace).items:
        now = each.status
        wanted[each.metadata.name] = each.spec.replicas
        if each.metadata.deletion_timestamp is not None:
            yield f"{namespace}/{each.metadata.name} should be gone"
        elif not (
            now.observed_generation == each.metadata.generation
            and (now.replicas or 0)
            == (now.updated_replicas or 0)
            == (now.available_replicas or 0)
            == each.spec.replicas
        ):
            yield f"{namespace}/{each.metadata.name}: wanted {each.spec.replicas}, is {now.to_dict()}"
    counted: Counter[str] = Counter()
    for pod in core.list_namespaced_pod(namespace).items:
        counted[pod.metadata.labels["app"]] += 1
        if not (pod.spec.node_name and pod.status.phase == "Running"):
            yield f"{namespace}/{pod.metadata.name} is {pod.status.phase} on {pod.spec.node_name}"
    del counted["bare"]
    if counted != Counter(wanted):
        yield f"{namespace}: pods {dict(counted)}, deployments want {wanted}"


@click.command()
@click.option("--minutes", default=5.0)
@click.option("--clients", default=4)
@click.option("--seed", default=1)
def main(minutes: float, clients: int, seed: int) -> None:
    programs = ensure_built()
    with (
        tempfile.TemporaryDirectory(prefix="fairlead-clients-") as home,
        cluster(programs, Path(home), nodes=1, simulated=20) as running,
    ):
        wrong = load(running, seconds=minutes * 60, clients=clients, seed=seed)
    for line in wrong[:50]:
        print(f"  wrong: {line}")
    print(f"{int(not wrong)} passed, {int(bool(wrong))} failed")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
