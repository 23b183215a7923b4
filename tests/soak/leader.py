"""Leader fail-over: the leader is frozen and thawed, again and again, while it writes as fast as it may.

The short form is tests/kube/test_leader_failover.py. Judged from the server's audit log alone: no write of a
process may be accepted after another one's claim to the lease has reached the server.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from tests.rigs.kube.build import ensure_built
from tests.rigs.kube.servers import RUNTIME_RBAC, Rig, RigBroken, until
from tests.soak.leader_process import NAMESPACE, WRITERS

LEASE = "fairlead"
LEASE_NAMESPACE = "fairlead-system"
ROOT = Path(__file__).resolve().parents[2]

# Both processes run under the runtime's shipped role, each as an account of its own so that the audit log can
# tell them apart; patching the beats stands for what a capability's role would allow.
ROLES = f"""
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: beats, namespace: {NAMESPACE}}}
rules:
- {{apiGroups: [""], resources: [configmaps], verbs: [patch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: beats, namespace: {NAMESPACE}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: beats}}
subjects:
- {{kind: ServiceAccount, name: one, namespace: {LEASE_NAMESPACE}}}
- {{kind: ServiceAccount, name: two, namespace: {LEASE_NAMESPACE}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: leases, namespace: {LEASE_NAMESPACE}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: fairlead-runtime}}
subjects:
- {{kind: ServiceAccount, name: one, namespace: {LEASE_NAMESPACE}}}
- {{kind: ServiceAccount, name: two, namespace: {LEASE_NAMESPACE}}}
"""


@dataclass(frozen=True)
class Claim:
    """A process's name reaching the server in the lease, where another's had been before."""

    user: str
    at: datetime


def claims(events: Sequence[dict[str, Any]]) -> list[Claim]:
    found: list[Claim] = []
    for event in _accepted(events, "leases", LEASE):
        user = event["user"]["username"]
        if not event["requestObject"]["spec"].get("holderIdentity"):
            continue  # let go, not claimed
        if not found or found[-1].user != user:
            found.append(Claim(user, _moment(event["requestReceivedTimestamp"])))
    return found


def take_overs_s(events: Sequence[dict[str, Any]]) -> list[float]:
    """How long the lease went unrenewed before each claim but the first, by the server's clock."""
    waits: list[float] = []
    before: tuple[str, datetime] | None = None
    for event in _accepted(events, "leases", LEASE):
        user, at = event["user"]["username"], _moment(event["requestReceivedTimestamp"])
        if before and before[0] != user:
            waits.append((at - before[1]).total_seconds())
        before = (user, _moment(event["stageTimestamp"]))
    return waits


def late_writes(events: Sequence[dict[str, Any]]) -> list[str]:
    """Accepted writes that were completed after another process had claimed the lease."""
    terms = claims(events)
    wrong = []
    for event in _accepted(events, "configmaps", None):
        user, done_at = event["user"]["username"], _moment(event["stageTimestamp"])
        holder = next((term for term in reversed(terms) if term.at <= done_at), None)
        if user.startswith("system:serviceaccount:") and (holder is None or holder.user != user):
            claimed = f"{holder.user} claimed the lease at {holder.at}" if holder else "nobody held the lease"
            received = event["requestReceivedTimestamp"]
            wrong.append(f"{user} wrote {event['objectRef']['name']} at {done_at} (received {received}), but {claimed}")
    return wrong


def _accepted(events: Sequence[dict[str, Any]], resource: str, name: str | None) -> list[dict[str, Any]]:
    """Accepted writes of a resource, in the order they reached the server."""
    kept = [
        event
        for event in events
        if event.get("objectRef", {}).get("resource") == resource
        and (name is None or event["objectRef"].get("name", name) == name)
        and event["verb"] in ("create", "update", "patch")
        and event["responseStatus"]["code"] < 300
    ]
    return sorted(kept, key=lambda event: _moment(event["requestReceivedTimestamp"]))


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


@contextlib.contextmanager
def processes(rig: Rig, duration_s: int, *, unfenced: bool = False) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Two contenders, by the identity each writes into the lease."""
    rig.create_namespace(NAMESPACE)
    for number in range(WRITERS):
        rig.kubectl("create", "configmap", f"beat-{number}", "-n", NAMESPACE)
    rig.kubectl("apply", "--server-side", "-f", str(RUNTIME_RBAC))
    for name in ("one", "two"):
        rig.kubectl("create", "serviceaccount", name, "-n", LEASE_NAMESPACE)
    rig.kubectl("apply", "-f", "-", stdin=ROLES)
    started: dict[str, subprocess.Popen[bytes]] = {}
    with contextlib.ExitStack() as ended:
        for name in ("one", "two"):
            kubeconfig = rig.kubeconfig(rig.service_account_token(name, LEASE_NAMESPACE, manifests=()))
            log = ended.enter_context((rig.home / f"{name}.log").open("wb"))
            command = [sys.executable, "-m", "tests.soak.leader_process", f"--kubeconfig={kubeconfig}"]
            command += [f"--identity={name}", f"--duration={duration_s}", *(["--unfenced"] if unfenced else [])]
            started[name] = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
            ended.callback(_end, started[name])
        yield started


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    process.wait(60)


def holder(rig: Rig) -> str:
    answer = rig.request("GET", f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases/{LEASE}")
    found = answer.json().get("spec", {}).get("holderIdentity", "") if answer.status == 200 else ""
    assert isinstance(found, str)
    return found


def _is_taken(rig: Rig, frozen: str) -> bool:
    return holder(rig) not in ("", frozen)


def fail_over(
    rig: Rig, *, freezes: int, duration_s: int, seed: int, unfenced: bool = False, slack_s: float = 2.0
) -> list[str]:
    """Everything that was found wrong; empty when no write came late and a standby always came in time."""
    rng = random.Random(seed)
    wrong: list[str] = []
    with processes(rig, duration_s, unfenced=unfenced) as running:
        if not until(lambda: holder(rig) in running, timeout_s=60):
            raise RigBroken("nobody took the lease within a minute")
        for round_number in range(freezes):
            # At no particular moment: in the middle of a write, of a renewal, of nothing.
            time.sleep(0.5 + rng.random())
            frozen = holder(rig)
            running[frozen].send_signal(signal.SIGSTOP)
            since = time.monotonic()
            taken = until(partial(_is_taken, rig, frozen), timeout_s=duration_s * 2 + 5, every_s=0.02)
            took_s = time.monotonic() - since
            if not taken:
                wrong.append(f"freeze {round_number}: nobody took over in {took_s:.1f} s")
            time.sleep(rng.random() * duration_s / 3)
            print(
                f"freeze {round_number}: {frozen} frozen for {time.monotonic() - since:.2f} s until {_now()}",
                flush=True,
            )
            running[frozen].send_signal(signal.SIGCONT)
            time.sleep(0.5)
        for name, process in running.items():
            if process.poll() is not None:
                wrong.append(f"{name} ended with {process.returncode}")
    events = rig.audit()
    late = late_writes(events)
    take_overs = take_overs_s(events)
    slowest_s = max(take_overs, default=0.0)
    written = len(_accepted(events, "configmaps", None))
    print(
        f"{freezes} freezes, {len(claims(events))} terms, {written} writes, "
        f"take-overs {min(take_overs, default=0.0):.2f} to {slowest_s:.2f} s",
        flush=True,
    )
    # A standby is due one duration after it saw the last renewal; the rest is how long a busy machine takes to tell it.
    if slowest_s > duration_s + slack_s:
        wrong.append(f"a take-over took {slowest_s:.2f} s, longer than the lease's {duration_s} s")
    if len(claims(events)) < freezes:
        wrong.append(f"only {len(claims(events))} terms for {freezes} freezes")
    return wrong + late


@click.command()
@click.option("--freezes", default=20)
@click.option("--duration", default=15, help="The lease's duration in seconds; the other times follow.")
@click.option("--seed", default=1)
def main(freezes: int, duration: int, seed: int) -> None:
    with Rig(ensure_built()) as rig:
        rig.start()
        wrong = fail_over(rig, freezes=freezes, duration_s=duration, seed=seed)
    for line in wrong[:20]:
        print(f"  wrong: {line}")
    print(f"{freezes - min(freezes, len(wrong))} passed, {min(freezes, len(wrong))} failed")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
