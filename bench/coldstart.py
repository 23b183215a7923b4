"""From nothing to the first decision beside a large cluster: time and memory of a scheduler that has just started.

A real API server holds so many nodes and so many bound pods; one more pod waits. `fairlead serve` is started, as its
own process, and timed until the server shows the waiting pod bound; its peak memory is read from /proc. With
--kube-scheduler the real one does the same afterwards.
"""

import argparse
import contextlib
import json
import sys
import time
from typing import Any

from bench.e2e import NODES, PODS, Sender, fairlead, kube_scheduler, node, seeing, wait_for
from tests.rigs.kube.build import ensure_built
from tests.rigs.kube.servers import Rig

BAR_S = 30.0
BAR_MIB = 2048.0
KINDS = 40


def pod(number: int, nodes: int) -> dict[str, Any]:
    """A pod as workloads make them, already on its node: some 2.5 kB as the server tells it, in forty kinds."""
    kind = number % KINDS
    labels = {"app": f"app-{kind}", "tier": "backend", "pod-template-hash": f"{kind:010x}"}
    container = {
        "name": "main",
        "image": f"registry.example.com/team/service-{kind}:1.2.3",
        "command": ["/bin/service", "--listen=:8080"],
        "env": [{"name": f"SETTING_{n}", "value": f"value-{n}"} for n in range(4)],
        "ports": [{"containerPort": 8080, "name": "http"}],
        "resources": {"requests": {"cpu": f"{50 + kind}m", "memory": f"{64 + kind}Mi"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"held-{number:06}", "labels": labels},
        "spec": {"nodeName": f"node-{number % nodes:05}", "containers": [container]},
    }


def waiting(scheduler: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"waits-for-{scheduler}"},
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }


def peak_mib(pid: int) -> float:
    with open(f"/proc/{pid}/status") as told:
        (line,) = [line for line in told if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def measure(rig: Rig, scheduler: str, started: Any) -> dict[str, float]:
    Sender(rig).all(PODS, [waiting(scheduler)])
    name = f"waits-for-{scheduler}"
    with seeing(rig) as seen:
        time.sleep(1.0)
        begun = time.monotonic()
        process: contextlib.AbstractContextManager[int] = started(rig)
        with process as pid:
            wait_for(f"{scheduler}'s first decision", lambda: name in seen.bound_at, every_s=0.01)
            found = {"first_decision_s": round(seen.bound_at[name] - begun, 2), "peak_mib": round(peak_mib(pid))}
    print(f"{scheduler}: {json.dumps(found)}", flush=True)
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.coldstart", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--kube-scheduler", action="store_true", help="the real one too, afterwards")
    given = parser.parse_args(arguments)
    quiet = ["--audit-log-path=", "--audit-policy-file="]
    quiet += ["--disable-admission-plugins=TaintNodesByCondition,ServiceAccount"]
    with Rig(ensure_built()) as rig:
        rig.start(apiserver_flags=quiet)
        begun = time.monotonic()
        Sender(rig).all(NODES, [node(number) for number in range(given.nodes)])
        Sender(rig, lanes=32).all(PODS, [pod(number, given.nodes) for number in range(given.pods)])
        print(f"{given.nodes} nodes and {given.pods} bound pods made in {time.monotonic() - begun:.0f} s", flush=True)
        found: dict[str, Any] = {"nodes": given.nodes, "pods": given.pods}
        found["fairlead"] = measure(rig, "fairlead", fairlead)
        if given.kube_scheduler:
            found["kube_scheduler"] = measure(rig, "default-scheduler", kube_scheduler)
    ours = found["fairlead"]
    found["passed"] = ours["first_decision_s"] < BAR_S and ours["peak_mib"] < BAR_MIB
    print(f"bars: first decision under {BAR_S:.0f} s, peak under {BAR_MIB:.0f} MiB")
    print(json.dumps(found))
    return 0 if found["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
