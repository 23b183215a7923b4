"""Replicas of modules under fault on a real Kubernetes: one killed, one frozen and thawed, while modules are installed.

Run by `scripts/soak modules`, which then kills replicas at every call (tests/soak/module_kills.py); with `--mode
servers` one API server of two is killed after the other (tests/soak/module_servers.py), with `--mode scale` there are
20 modules on each of 100 bases (tests/soak/module_scale.py). The short form is tests/kube/test_modules_soak.py.
Judged by the server's audit log and by what the bases were asked: no write and no command of a replica about a node
after another was named in its lease, no second install, no node that lost Ready, and even shares.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import click
import yaml

from fairlead.testing.mock_base import MockBase
from tests.rigs.kube.build import ensure_built
from tests.rigs.kube.servers import DEPLOY, RUNTIME_RBAC, Rig

ROOT = Path(__file__).resolve().parents[2]
ROLES = (RUNTIME_RBAC, *(DEPLOY / "rbac" / f"{role}.yaml" for role in ("nodes", "webhooks", "modules")))
REPLICAS = ("one", "two", "three")
ACCOUNT = "system:serviceaccount:fairlead-system:"
PREFIX = "virtual-node-soak-"
NAMESPACE = "soak"
MODES = ("freeze", "kill", "servers", "scale")


@dataclass(frozen=True, slots=True)
class Act:
    """A write or a command about a node: by whom, when it was over."""

    who: str
    node: str
    at: datetime
    what: str


@dataclass(frozen=True, slots=True)
class Title:
    """A replica named in a node's lease, from when the claim reached the server."""

    who: str
    at: datetime


def titles(events: Sequence[dict[str, Any]], prefix: str = PREFIX) -> dict[str, list[Title]]:
    found: dict[str, list[Title]] = {}
    for event in _accepted(events, "leases"):
        name = event["objectRef"].get("name") or event["requestObject"]["metadata"]["name"]
        holder = event.get("requestObject", {}).get("spec", {}).get("holderIdentity", "")
        if name.startswith(prefix) and holder:
            held = found.setdefault(name, [])
            if not held or held[-1].who != holder:
                held.append(Title(holder, datetime.fromisoformat(event["requestReceivedTimestamp"])))
    return found


def acts(events: Sequence[dict[str, Any]]) -> list[Act]:
    """Accepted writes of replicas about nodes of bases and the pods on them."""
    found = []
    for resource in ("nodes", "pods", "leases"):
        for event in _accepted(events, resource):
            user, name = event["user"]["username"], event["objectRef"].get("name", "")
            node = f"{PREFIX}{name.removeprefix('shop-')}" if resource == "pods" else name
            if user.startswith(ACCOUNT) and node.startswith(PREFIX):
                at = datetime.fromisoformat(event["stageTimestamp"])
                found.append(Act(user.removeprefix(ACCOUNT), node, at, f"{event['verb']} {resource}"))
    return found


def late(found: Sequence[Act], held: dict[str, list[Title]]) -> list[str]:
    """Acts of a replica that was not the one named in the node's lease when they were over."""
    wrong = []
    for act in found:
        title = next((each for each in reversed(held.get(act.node, [])) if each.at <= act.at), None)
        if title is None or title.who != act.who:
            named = f"{title.who} since {title.at.time()}" if title else "nobody"
            wrong.append(f"{act.who}: {act.what} of {act.node} at {act.at.time()}, but its lease named {named}")
    return wrong


def unready(events: Sequence[dict[str, Any]]) -> list[str]:
    """Nodes of bases that were written not Ready, though every base was well."""
    wrong = []
    for event in _accepted(events, "nodes"):
        conditions = event.get("requestObject", {}).get("status", {}).get("conditions", ())
        wrong += [
            f"{event['objectRef']['name']} was {each['status']}: {each.get('reason')}"
            for each in conditions
            if each["type"] == "Ready" and each["status"] != "True"
        ]
    return wrong


def _accepted(events: Sequence[dict[str, Any]], resource: str) -> list[dict[str, Any]]:
    kept = [
        event
        for event in events
        if event.get("objectRef", {}).get("resource") == resource
        and event["verb"] in ("create", "update", "patch", "delete")
        and event["responseStatus"]["code"] < 300
    ]
    return sorted(kept, key=lambda event: str(event["requestReceivedTimestamp"]))


class Process(Protocol):
    """A replica, as `subprocess.Popen` has it."""

    @property
    def pid(self) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...


@dataclass(slots=True)
class Field:
    """The replicas as processes, the bases in this one."""

    rig: Rig
    folder: Path
    duration_s: int
    bug: str
    poll_s: float = 2.0
    beat_s: float = 2.0
    processes: dict[str, "Process"] = field(default_factory=dict)
    bases: dict[str, MockBase] = field(default_factory=dict)
    session: aiohttp.ClientSession | None = None

    def kubeconfig(self, name: str) -> Path:
        return self.rig.kubeconfig(self.rig.service_account_token(name, "fairlead-system", manifests=()))

    def variables(self, name: str) -> dict[str, str]:
        """More of the environment of a replica."""
        return {}

    def start(self, name: str, listen: str = "127.0.0.1:0") -> None:
        (self.folder / f"{name}.url").unlink(missing_ok=True)
        if name in self.processes:
            self.processes[name].wait(60)
        arguments = ["serve", f"--kubeconfig={self.kubeconfig(name)}", f"--listen={listen}", "--capabilities=modules"]
        env = {
            "FAIRLEAD_IDENTITY": name,
            "FAIRLEAD_LEASE_DURATION_S": str(self.duration_s),
            "FAIRLEAD_LEASE_RENEW_DEADLINE_S": str(self.duration_s * 2 / 3),
            "FAIRLEAD_LEASE_RETRY_S": str(self.duration_s * 2 / 15),
            "FAIRLEAD_MODULES_LISTEN": "127.0.0.1:0",
            "FAIRLEAD_MODULES_URL_FILE": str(self.folder / f"{name}.url"),
            "FAIRLEAD_MODULES_TRUSTED_NETWORKS": "127.0.0.0/8",
            "FAIRLEAD_MODULES_POLL_S": str(self.poll_s),
            "FAIRLEAD_WEBHOOKS_LISTEN": "127.0.0.1:0",
            **self.variables(name),
        }
        self.processes[name] = self.launch(arguments, env, self.folder / f"{name}.log")

    def launch(self, arguments: Sequence[str], env: Mapping[str, str], log: Path) -> "Process":
        bug = [f"--bug={self.bug}"] if self.bug else []
        command = [sys.executable, "-m", "tests.soak.modules_process", *bug, *arguments]
        with log.open("ab") as sink:
            return subprocess.Popen(command, cwd=ROOT, stdout=sink, stderr=sink, env={**os.environ, **env})

    def signal(self, name: str, number: int) -> None:
        self.processes[name].send_signal(number)

    def end(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait(60)

    async def beat(self, base: str) -> None:
        """To any replica that answers; a frozen one does not, and the next beat goes elsewhere."""
        assert self.session is not None
        files = [self.folder / f"{name}.url" for name in self.processes]
        urls = [file.read_text() for file in files if file.exists()]
        if not urls:
            return
        metadata = {"identity": base, "name": "base", "version": "1", "clusterName": "soak"}
        body = {"baseMetadata": metadata, "localIP": "127.0.0.1", "port": self.bases[base].port, "state": "activated"}
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with self.session.post(f"{random.choice(urls)}/heartbeat", json=body):
                pass

    async def beat_on(self) -> None:
        while True:
            await asyncio.gather(*(self.beat(base) for base in self.bases))
            await asyncio.sleep(self.beat_s)

    async def get(self, path: str) -> Any:
        answer = await asyncio.to_thread(self.rig.request, "GET", path)
        return answer.json()

    async def holders(self) -> dict[str, str]:
        found = await self.get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
        return {
            each["metadata"]["name"]: each["spec"].get("holderIdentity") or ""
            for each in found["items"]
            if each["metadata"]["name"].startswith(PREFIX)
        }

    async def is_even(self, among: Sequence[str]) -> bool:
        held = list((await self.holders()).values())
        even = len(self.bases) / len(among)
        is_whole = len(held) == len(self.bases) and set(held) <= set(among)
        return is_whole and all(abs(held.count(name) - even) <= max(1, 0.2 * even) for name in among)

    async def ready_pods(self) -> int:
        found = await self.get(f"/api/v1/namespaces/{NAMESPACE}/pods")
        return sum(
            any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ()))
            for pod in found["items"]
        )

    async def install(self, base: str) -> None:
        container = {"name": "shop", "image": "http://h/shop-1.zip", "env": [{"name": "BIZ_VERSION", "value": "1"}]}
        spec = {"nodeName": f"{PREFIX}{base}", "tolerations": [{"operator": "Exists"}], "containers": [container]}
        body = {"metadata": {"name": f"shop-{base}"}, "spec": spec}
        answer = await asyncio.to_thread(self.rig.request, "POST", f"/api/v1/namespaces/{NAMESPACE}/pods", body)
        assert answer.status == 201, answer.body[:300]

    async def until(self, what: str, condition: Callable[[], Any], seconds: float) -> float:
        started_s = time.monotonic()
        while not await condition():
            if time.monotonic() - started_s > seconds:
                raise TimeoutError(f"{what}: not within {seconds:.0f} s; {await self.holders()}")
            await asyncio.sleep(0.3)
        return time.monotonic() - started_s


def _accounts(rig: Rig) -> Iterator[str]:
    """The shipped roles, bound to an account of each replica: the audit log tells them apart."""
    for manifest in ROLES:
        for document in yaml.safe_load_all(manifest.read_text()):
            if document and document["kind"].endswith("RoleBinding"):
                document["subjects"] = [
                    {"kind": "ServiceAccount", "name": name, "namespace": "fairlead-system"} for name in REPLICAS
                ]
            if document and document["kind"] != "MutatingWebhookConfiguration":
                yield json.dumps(document)


def apply_roles(rig: Rig, on_a: str = "") -> None:
    """Accounts for the replicas; `on_a`: one more that may do what the role for the base pods' server allows."""
    rig.kubectl("apply", "--server-side", "-f", "-", stdin="\n---\n".join(_accounts(rig)))
    for name in (*REPLICAS, *([on_a] if on_a else [])):
        rig.kubectl("create", "serviceaccount", name, "-n", "fairlead-system")
    if on_a:
        role = "--clusterrole=fairlead-base-pods"
        rig.kubectl("create", "clusterrolebinding", on_a, role, f"--serviceaccount=fairlead-system:{on_a}")
    rig.create_namespace(NAMESPACE)


@asynccontextmanager
async def prepared(made: Field, mocks: Sequence[MockBase]) -> AsyncIterator[Field]:
    """Accounts for the replicas, and the bases, which beat; no replica yet."""
    apply_roles(made.rig)
    async with AsyncExitStack() as stack:
        timeout = aiohttp.ClientTimeout(total=2.0)
        made.session = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        for number, mock in enumerate(mocks):
            made.bases[f"b{number}"] = await stack.enter_async_context(mock.serving())
        stack.callback(made.end)
        beating = asyncio.create_task(made.beat_on())
        try:
            yield made
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)


@asynccontextmanager
async def playing(rig: Rig, folder: Path, bases: int, duration_s: int, bug: str) -> AsyncIterator[Field]:
    mocks = [MockBase(install_s=0.2) for _ in range(bases)]
    async with prepared(Field(rig, folder, duration_s, bug), mocks) as made:
        for name in REPLICAS:
            made.start(name)
        yield made


async def under_fault(
    rig: Rig, folder: Path, *, bases: int, duration_s: int, freeze_s: float, bug: str = ""
) -> list[str]:
    """Everything that was found wrong."""
    async with playing(rig, folder, bases, duration_s, bug) as at:
        names = list(at.bases)
        await at.until("even shares", lambda: at.is_even(REPLICAS), 180)

        async def count_ready(count: int) -> bool:
            return await at.ready_pods() == count

        half = len(names) // 2
        await asyncio.gather(*(at.install(base) for base in names[:half]))
        await at.until("half of the modules", lambda: count_ready(half), 120)
        # Killed while the other half is being installed; then another is frozen for longer than its lease.
        await asyncio.gather(*(at.install(base) for base in names[half:]))
        at.signal("one", signal.SIGKILL)
        taken_s = await at.until("take-over", lambda: at.is_even(REPLICAS[1:]), 120)
        await at.until("all modules", lambda: count_ready(len(names)), 120)
        at.signal("two", signal.SIGSTOP)
        await asyncio.sleep(freeze_s)
        at.signal("two", signal.SIGCONT)
        at.start("one")
        await at.until("even shares again", lambda: at.is_even(REPLICAS), 180)
        await at.until("all modules still", lambda: count_ready(len(names)), 60)
        await asyncio.sleep(3.0)
        events = await asyncio.to_thread(rig.audit)
        held = titles(events)
        commands = [
            Act(sender, f"{PREFIX}{base}", at_, what)
            for base, mock in at.bases.items()
            for at_, sender, what in mock.senders
        ]
        wrong = late([*acts(events), *commands], held) + unready(events)
        for base, mock in at.bases.items():
            if mock.count("installBiz", "shop:1") != 1 or mock.count("uninstallBiz", "shop:1"):
                wrong.append(f"{base} was asked: {[call for call in mock.calls if call[0].endswith('stallBiz')]}")
        changes = sum(len(each) for each in held.values())
        print(
            f"{bases} bases, {changes} titles, {len(acts(events))} writes, {len(commands)} commands, "
            f"take-over {taken_s:.1f} s",
            flush=True,
        )
        return wrong


def run_replicas(bases: int, duration_s: int, freeze_s: float) -> tuple[int, int]:
    with Rig(ensure_built()) as rig:
        rig.start()
        wrong = asyncio.run(under_fault(rig, rig.home, bases=bases, duration_s=duration_s, freeze_s=freeze_s))
    for line in wrong[:20]:
        print(f"  wrong: {line}")
    return bases - min(bases, len(wrong)), min(bases, len(wrong))


def run_kills(phases: Sequence[str]) -> tuple[int, int]:
    from tests.soak import module_kills

    with Rig(ensure_built()) as rig:
        rig.start()
        folder = rig.home / "kills"
        folder.mkdir()
        return asyncio.run(module_kills.soak(rig, folder, phases or tuple(module_kills.STORIES)))


def run_servers() -> tuple[int, int]:
    from tests.soak import module_servers

    programs = ensure_built()
    with Rig(programs) as a, Rig(programs) as b:
        folder = b.home / "servers"
        folder.mkdir()
        return asyncio.run(module_servers.soak(a, b, folder))


def run_scale(bases: int, per_base: int, rate_per_s: float) -> tuple[int, int]:
    from tests.soak import module_scale

    with Rig(ensure_built()) as rig:
        rig.start()
        folder = rig.home / "scale"
        folder.mkdir()
        wrong = asyncio.run(module_scale.at_scale(rig, folder, bases=bases, per_base=per_base, rate_per_s=rate_per_s))
    for line in wrong[:20]:
        print(f"  wrong: {line}")
    return int(not wrong), int(bool(wrong))


@click.command()
@click.option("--bases", default=30)
@click.option("--duration", default=15, help="A member lease's duration in seconds; the other times follow.")
@click.option("--freeze", default=60.0, help="Seconds that a replica is frozen.")
@click.option("--mode", "modes", multiple=True, type=click.Choice(MODES), default=MODES[:2], show_default=True)
@click.option("--phase", "phases", multiple=True, help="Of mode kill: modules, heal or share; all by default.")
@click.option("--scale", nargs=3, type=(int, int, float), default=(100, 20, 8.0), show_default=True)
def main(
    bases: int,
    duration: int,
    freeze: float,
    modes: tuple[str, ...],
    phases: tuple[str, ...],
    scale: tuple[int, int, float],
) -> None:
    """`--scale`: bases, modules on each, modules a second."""
    found = [run_replicas(bases, duration, freeze)] if "freeze" in modes else []
    found += [run_kills(phases)] if "kill" in modes else []
    found += [run_servers()] if "servers" in modes else []
    found += [run_scale(*scale)] if "scale" in modes else []
    passed, failed = (sum(each) for each in zip(*found, strict=True))
    print(f"{passed} passed, {failed} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
