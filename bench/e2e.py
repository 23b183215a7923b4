"""Pods per second from backlog to bound on a real API server: Fairlead, kube-scheduler and a client without a thought.

One rig, the same nodes, the same pods for each in turn; three rounds, in which the two schedulers take turns at going
first, and the median of each figure. Each runs as itself: Fairlead as its service account with the roles of
deploy/rbac, kube-scheduler as system:kube-scheduler; only the bare client is an administrator, whom flow control
passes over. A backlog waits; the contestant starts and drains it. Timed is from the first to the last binding, as a
watch on the server shows them (pods_per_s), and until the last Scheduled event is written (events_done_per_s;
with_events_per_s, from the moment the first binding was noticed): whoever puts events off binds sooner, and is told
apart by that. Then pods arrive one by one at a steady pace, timed from the moment each is sent to the server until
the watch shows it bound. CPU is read from /proc, over the whole of bindings and events. `--beside DIR` runs the
Fairlead of another checkout (with an environment of its own, by its scripts/setup) in every round too, with the same
roles.
"""

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import re
import signal
import ssl
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from tests.rigs.kube.build import ensure_built
from tests.rigs.kube.servers import DEPLOY, RUNTIME_RBAC, Rig

MANIFESTS = (
    DEPLOY / "crds" / "schedulerequests.yaml",
    RUNTIME_RBAC,
    DEPLOY / "rbac" / "placement.yaml",
    DEPLOY / "rbac" / "requests.yaml",
)
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
NAME = re.compile(rb'"metadata":\{"name":"([^"]+)"')
PATIENCE_S = 900.0
FEW_LEFT = 50


def node(number: int) -> dict[str, Any]:
    """The node of scheduler_perf's templates, in one of three zones."""
    name = f"node-{number:05}"
    capacity = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Here"}],
        },
    }


def pod(name: str, scheduler: str) -> dict[str, Any]:
    """The default pod of scheduler_perf's templates."""
    container = {"name": "pause", "image": "pause", "resources": {"requests": {"cpu": "100m", "memory": "500Mi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "bench"}},
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }


@dataclass
class Seen:
    """Who was bound when, by a watch that is read but never decoded."""

    rig: Rig
    bound_at: dict[str, float] = field(default_factory=dict)
    _stop: bool = False

    def follow(self, since: str) -> None:
        connection = http.client.HTTPSConnection(
            "127.0.0.1",
            int(self.rig.url.rpartition(":")[2]),
            context=ssl.create_default_context(cafile=str(self.rig.ca_file)),
        )
        path = f"{PODS}?watch=1&resourceVersion={since}&timeoutSeconds=7200"
        connection.request("GET", path, headers={"Authorization": f"Bearer {self.rig.admin_token}"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        while not self._stop:
            line = answer.readline()
            if not line:
                break
            if b'"nodeName":"' in line and (found := NAME.search(line)):
                self.bound_at.setdefault(found[1].decode(), time.monotonic())
        connection.close()

    def stop(self) -> None:
        self._stop = True


@contextlib.contextmanager
def seeing(rig: Rig) -> Iterator[Seen]:
    seen = Seen(rig)
    since = rig.request("GET", f"{PODS}?limit=1").json()["metadata"]["resourceVersion"]
    thread = threading.Thread(target=seen.follow, args=(since,), daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        seen.stop()


class Sender:
    """Posts objects over connections that stay open."""

    def __init__(self, rig: Rig, lanes: int = 16) -> None:
        self._rig = rig
        self._lanes = lanes

    async def _session(self) -> aiohttp.ClientSession:
        tls = ssl.create_default_context(cafile=str(self._rig.ca_file))
        headers = {"Authorization": f"Bearer {self._rig.admin_token}", "Content-Type": "application/json"}
        return aiohttp.ClientSession(
            self._rig.url, connector=aiohttp.TCPConnector(limit=self._lanes, ssl=tls), headers=headers
        )

    def all(self, path: str, things: Sequence[dict[str, Any]]) -> None:
        async def run() -> None:
            left = iter(things)
            async with await self._session() as session:

                async def work() -> None:
                    for thing in left:
                        async with session.post(path, data=json.dumps(thing)) as answer:
                            assert answer.status == 201, await answer.text()

                await asyncio.gather(*(work() for _ in range(self._lanes)))

        asyncio.run(run())

    def at_pace(self, path: str, things: Sequence[dict[str, Any]], per_s: float) -> dict[str, float]:
        """When each was sent, one every 1/per_s seconds whatever the answers do."""
        sent_at: dict[str, float] = {}

        async def run() -> None:
            async with await self._session() as session, asyncio.TaskGroup() as tasks:

                async def post(thing: dict[str, Any]) -> None:
                    sent_at[thing["metadata"]["name"]] = time.monotonic()
                    async with session.post(path, data=json.dumps(thing)) as answer:
                        assert answer.status == 201, await answer.text()

                started = time.monotonic()
                for number, thing in enumerate(things):
                    await asyncio.sleep(max(0.0, started + number / per_s - time.monotonic()))
                    tasks.create_task(post(thing))

        asyncio.run(run())
        return sent_at


@dataclass(frozen=True)
class Spent:
    """CPU seconds of one contestant and of the servers under it."""

    scheduler: float
    apiserver: float
    etcd: float

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(self.scheduler - other.scheduler, self.apiserver - other.apiserver, self.etcd - other.etcd)

    def per(self, pods: int) -> dict[str, float]:
        return {name: round(1000 * getattr(self, name) / pods, 3) for name in ("apiserver", "etcd")}


def spent(rig: Rig, pid: int) -> Spent:
    def seconds(pid: int) -> float:
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)

    pids = rig.pids()
    return Spent(seconds(pid), seconds(pids["kube-apiserver"]), seconds(pids["etcd"]))


def wait_for(what: str, true: Callable[[], bool], every_s: float = 0.02) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > give_up_at:
            raise SystemExit(f"gave up after {PATIENCE_S:.0f} s waiting for {what}")
        time.sleep(every_s)


def last_event(rig: Rig, wanted: int) -> float:
    """When the last event was written. Counting them costs the server, so it is asked twice a second, and the moment
    between two looks is reckoned from the pace before."""
    looks = [(time.monotonic(), events(rig))]
    give_up_at = time.monotonic() + PATIENCE_S
    while looks[-1][1] < wanted:
        if time.monotonic() > give_up_at:
            raise SystemExit(f"gave up after {PATIENCE_S:.0f} s waiting for the last event")
        time.sleep(0.05 if wanted - looks[-1][1] < FEW_LEFT else 0.5)
        looks.append((time.monotonic(), events(rig)))
    (at, count), (seen_at, _) = looks[-2:] if len(looks) > 1 else (looks[0], looks[0])
    if len(looks) < 3 or count <= looks[-3][1]:
        return seen_at
    pace = (count - looks[-3][1]) / (at - looks[-3][0])
    return min(seen_at, at + (wanted - count) / pace)


def drained(rig: Rig, seen: Seen, names: Sequence[str], pid: int) -> dict[str, Any]:
    """Rates and CPU per pod, from the first binding seen to the last binding and to the last event."""
    wanted = set(names)
    wait_for("a first binding", lambda: bool(wanted & seen.bound_at.keys()), every_s=0.002)
    before, started = spent(rig, pid), time.monotonic()
    already = len(wanted & seen.bound_at.keys())
    wait_for("the last binding", lambda: len(seen.bound_at) >= len(wanted) and wanted <= seen.bound_at.keys())
    behind = len(names) - events(rig)
    ended = last_event(rig, len(names))
    after = spent(rig, pid)
    counted = len(names) - already
    first, last = min(seen.bound_at.values()), max(seen.bound_at.values())
    return {
        "pods_per_s": round((len(names) - 1) / (last - first), 1),
        "with_events_per_s": round(counted / (ended - started), 1),
        "events_done_per_s": round((len(names) - 1) / (max(ended, last) - first), 1),
        "events_behind_at_last_binding": behind,
        "cpu_ms_per_pod": round(1000 * (after.scheduler - before.scheduler) / counted, 3),
        "cpu_ms_per_pod_of_servers": (after - before).per(counted),
    }


def arriving(rig: Rig, seen: Seen, scheduler: str, per_s: float, seconds: float) -> dict[str, float]:
    things = [pod(f"{scheduler}-late-{number:05}", scheduler) for number in range(int(per_s * seconds))]
    sent_at = Sender(rig).at_pace(PODS, things, per_s)
    wait_for("the last arrival", lambda: sent_at.keys() <= seen.bound_at.keys())
    took = sorted(1000 * (seen.bound_at[name] - at) for name, at in sent_at.items())
    return {"p50_ms": round(took[len(took) // 2], 1), "p99_ms": round(took[int(len(took) * 0.99)], 1)}


def events(rig: Rig) -> int:
    """How many there are: the last binding may be long before the last event."""
    page = rig.request("GET", f"{EVENTS}?limit=1").json()
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))


def clear(rig: Rig) -> None:
    """Away with pods and events, and let the server come to rest."""
    for path in (PODS, EVENTS):
        wait_for(f"{path} to go", partial(_is_emptied, rig, path), every_s=0.5)
    rig.compact(restart=False)
    time.sleep(3.0)


def _is_emptied(rig: Rig, path: str) -> bool:
    try:
        answer = rig.request("DELETE", f"{path}?gracePeriodSeconds=0")
        assert answer.status == 200, answer.body
    except TimeoutError:
        print(f"deleting {path} goes on", file=sys.stderr)  # thousands of objects are a minute's work for the server
    return not rig.request("GET", f"{path}?limit=1").json()["items"]


@contextlib.contextmanager
def fairlead(rig: Rig, python: Path = Path(sys.executable)) -> Iterator[int]:
    """`fairlead serve` as its own process under the roles it ships with; its log stays with the rig."""
    kubeconfig = rig.kubeconfig(rig.service_account_token(manifests=MANIFESTS))
    # -P: the folder of this checkout is not on the path of another one's Fairlead.
    command = [str(python), "-P", "-m", "fairlead", "serve", f"--kubeconfig={kubeconfig}"]
    command += ["--capabilities=placement", "--listen=127.0.0.1:0", "--log-level=warning"]
    with (rig.home / "fairlead.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "FAIRLEAD_LOGS_FORM": "json"})
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@contextlib.contextmanager
def kube_scheduler(rig: Rig) -> Iterator[int]:
    rig.start_scheduler()
    try:
        yield rig.pids()["kube-scheduler"]
    finally:
        rig.stop_scheduler()


def in_turn(chosen: Sequence[str], number: int) -> list[str]:
    """Who runs in which order in a round: whoever goes last finds a server that has worked longer; they take turns."""
    schedulers = [name for name in ("fairlead", "beside", "kube_scheduler") if name in chosen]
    return [*(["bare"] if "bare" in chosen else []), *(schedulers if number % 2 == 0 else reversed(schedulers))]


def median(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of each figure by itself."""
    return {
        name: median([run[name] for run in runs])
        if isinstance(value, dict)
        else round(statistics.median(run[name] for run in runs), 3)
        for name, value in runs[0].items()
    }


def run_scheduler(
    rig: Rig, name: str, started: Callable[[Rig], contextlib.AbstractContextManager[int]], given: argparse.Namespace
) -> dict[str, Any]:
    scheduler = "default-scheduler" if name == "kube_scheduler" else "fairlead"
    names = [f"{scheduler}-{number:06}" for number in range(given.pods)]
    Sender(rig).all(PODS, [pod(each, scheduler) for each in names])
    with seeing(rig) as seen:
        time.sleep(1.0)
        with started(rig) as pid:
            found = drained(rig, seen, names, pid)
            found |= arriving(rig, seen, scheduler, given.pace, given.seconds)
    print(f"{name}: {json.dumps(found)}", flush=True)
    clear(rig)
    return found


def run_bare(rig: Rig, given: argparse.Namespace) -> dict[str, Any]:
    names = [f"bare-{number:06}" for number in range(given.pods)]
    Sender(rig).all(PODS, [pod(each, "nobody") for each in names])
    uids: dict[str, str] = {}
    more = ""
    while True:
        page = rig.request("GET", f"{PODS}?limit=5000&continue={more}").json()
        uids |= {each["metadata"]["name"]: each["metadata"]["uid"] for each in page["items"]}
        more = page["metadata"].get("continue", "")
        if not more:
            break
    lines = [f"{name} {uids[name]} node-{number % given.nodes:05}" for number, name in enumerate(names)]
    command = [sys.executable, "-m", "bench.e2e_process", f"--server={rig.url}", f"--ca-file={rig.ca_file}"]
    with seeing(rig) as seen:
        time.sleep(1.0)
        process = subprocess.Popen([*command, f"--in-flight={given.in_flight}"], stdin=subprocess.PIPE, text=True)
        assert process.stdin is not None
        process.stdin.write("\n".join([rig.admin_token, *lines]))
        process.stdin.close()
        found = drained(rig, seen, names, process.pid)
        assert process.wait(60) == 0
    print(f"bare: {json.dumps(found)}", flush=True)
    clear(rig)
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.e2e", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=5000, help="the backlog of each contestant")
    parser.add_argument("--pace", type=float, default=100.0, help="pods arriving a second, afterwards")
    parser.add_argument("--seconds", type=float, default=10.0, help="for so long")
    parser.add_argument("--in-flight", type=int, default=64, help="writes at a time of the bare client")
    parser.add_argument("--rounds", type=int, default=3, help="the median of so many is reported")
    parser.add_argument("--only", choices=["bare", "fairlead", "beside", "kube_scheduler"], action="append")
    parser.add_argument("--beside", type=Path, help="another checkout, whose Fairlead runs too")
    given = parser.parse_args(arguments)
    schedulers = {"fairlead": fairlead, "kube_scheduler": kube_scheduler}
    if given.beside is not None:
        schedulers["beside"] = partial(fairlead, python=given.beside.absolute() / ".venv/bin/python")
    chosen = given.only or ["bare", *schedulers]
    quiet = [
        "--audit-log-path=",
        "--audit-policy-file=",
        "--disable-admission-plugins=TaintNodesByCondition,ServiceAccount",
    ]
    every: dict[str, list[dict[str, Any]]] = {}
    with Rig(ensure_built()) as rig:
        rig.start(apiserver_flags=quiet)
        Sender(rig).all(NODES, [node(number) for number in range(given.nodes)])
        print(f"{given.nodes} nodes, {given.pods} pods each", flush=True)
        for number in range(given.rounds):
            print(f"round {number + 1} of {given.rounds}", flush=True)
            for name in in_turn(chosen, number):
                run = run_bare(rig, given) if name == "bare" else run_scheduler(rig, name, schedulers[name], given)
                every.setdefault(name, []).append(run)
    found = {name: median(runs) for name, runs in every.items()}
    rates = {name: each["pods_per_s"] for name, each in found.items()}
    if rates.keys() >= {"bare", "fairlead", "kube_scheduler"}:
        whole = {name: each["with_events_per_s"] for name, each in found.items()}
        print(
            f"fairlead {rates['fairlead'] / rates['kube_scheduler']:.2f} times kube-scheduler and "
            f"{100 * rates['fairlead'] / rates['bare']:.0f} % of the bare limit by bindings, "
            f"{whole['fairlead'] / whole['kube_scheduler']:.2f} times and "
            f"{100 * whole['fairlead'] / whole['bare']:.0f} % until the last event is written"
        )
    # A pod is a pair of writes, a binding and an event; raw_writes_per_s counts the pairs, so that it compares.
    told = {name: found[name] for name in ("fairlead", "beside", "kube_scheduler") if name in found}
    print(json.dumps({**told, "raw_writes_per_s": rates.get("bare"), "rounds": given.rounds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
