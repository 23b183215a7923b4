"""The scenario of `bench/locality.py` with every decision made by a real kube-scheduler, on a real API server.

Nodes, claims and pods are real objects; time is the scenario's. A pod that is refused is deleted and comes again with
the next event, as in the simulation.
"""

import http.client
import json
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.rigs.kube.build import ensure_built
from tests.rigs.kube.servers import Rig

PODS: Final = "/api/v1/namespaces/default/pods"
CLAIMS: Final = "/api/v1/namespaces/default/persistentvolumeclaims"
SEEN_S: Final = 0.05
"""After a change of a node: kube-scheduler's watch has it by then."""
PATIENCE_S: Final = 60.0


class KubeScheduling:
    """A cluster whose pods a kube-scheduler places."""

    def __init__(self, rig: Rig) -> None:
        tls = ssl.create_default_context(cafile=str(rig.ca_file))
        self._connection = http.client.HTTPSConnection("127.0.0.1", int(rig.url.rpartition(":")[2]), context=tls)
        self._headers = {"Authorization": f"Bearer {rig.admin_token}"}
        self._nodes: set[str] = set()

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        text = json.dumps(body) if body is not None else None
        self._connection.request(method, path, text, {**self._headers, "Content-Type": kind})
        answer = self._connection.getresponse()
        found = json.loads(answer.read())
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {found.get('message')}")
        return found

    def set_node(self, name: str, labels: Mapping[str, str], cpus: int) -> None:
        if name in self._nodes:
            replaced = [{"op": "replace", "path": "/metadata/labels", "value": dict(labels)}]
            self.call("PATCH", f"/api/v1/nodes/{name}", replaced, "application/json-patch+json")
            time.sleep(SEEN_S)
            return
        self._nodes.add(name)
        capacity = {"cpu": str(cpus), "memory": "256Gi", "pods": "110"}
        self.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": dict(labels)}})
        status = {"capacity": capacity, "allocatable": capacity, "conditions": [{"type": "Ready", "status": "True"}]}
        self.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, "application/merge-patch+json")
        # Nobody watches over nodes here: the taint of a new one is taken away by hand.
        self.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, "application/merge-patch+json")

    def set_dataset(self, name: str) -> None:
        """A claim that is bound to a volume."""
        mode = {"accessModes": ["ReadOnlyMany"]}
        bound = {"pv.kubernetes.io/bind-completed": "yes"}
        claim = {
            "metadata": {"name": name, "annotations": bound},
            "spec": {**mode, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}},
        }
        made = self.call("POST", CLAIMS, claim)
        owner = {"namespace": "default", "name": name, "uid": made["metadata"]["uid"]}
        spec = {**mode, "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/data"}, "claimRef": owner}
        self.call("POST", "/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": spec})
        status = {"status": {"phase": "Bound"}}
        self.call("PATCH", f"{CLAIMS}/{name}/status", status, "application/merge-patch+json")

    def decide(self, pod: Mapping[str, Any]) -> str | None:
        """The node that kube-scheduler binds the pod to; None if it finds none, and the pod is gone again."""
        name = pod["metadata"]["name"]
        containers = [{**each, "image": "pause"} for each in pod["spec"]["containers"]]
        self.call("POST", PODS, {**pod, "spec": {**pod["spec"], "containers": containers}})
        give_up_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up_s:
            found = self.call("GET", f"{PODS}/{name}")
            if node := found["spec"].get("nodeName"):
                return str(node)
            conditions = (found.get("status") or {}).get("conditions") or ()
            if any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions):
                self.remove(name)
                return None
            time.sleep(0.001)
        raise SystemExit(f"kube-scheduler did not decide on {name} within {PATIENCE_S:.0f} s")

    def remove(self, name: str) -> None:
        self.call("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")


@contextmanager
def kube_scheduling(folder: Path) -> Iterator[KubeScheduling]:
    with Rig(ensure_built(print), folder) as rig:
        rig.start(scheduler=True)
        yield KubeScheduling(rig)


VARIANTS: Final[Sequence[str]] = ("none", "fluid", "ours2")
"""Without data, with Fluid's terms, and with terms by level (`data.affinity: levels`)."""
