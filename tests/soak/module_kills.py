"""The modules controller killed (-9) before and after every write and every call to a base, on a real server.

Part of `scripts/soak modules`; tests/modules/test_crashes.py does the same in one process. Replicas are processes.
Their requests pass a gate of this process, and the bases are in this process, so that either can kill the sender at a
call that was not met before: once before it is carried out, once after. Meanwhile bases answer by half, twice, late or
as something else. Pods of bases are read and deleted by a kubeconfig of their own, with the role `fairlead-base-pods`
and no other. What the bases did and the server's audit log are the judge.
"""

import asyncio
import contextlib
import json
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import click
from aiohttp import web

from fairlead.modules.healing import GRANT, STATE, read_state
from fairlead.modules.names import LEDGER
from fairlead.testing.mock_base import Fault, MockBase
from tests.rigs.kube.gate import Gate
from tests.rigs.kube.servers import Rig
from tests.soak.forking import Forking
from tests.soak.modules import ACCOUNT, NAMESPACE, Act, Field, Process, apply_roles, late, titles

Json = dict[str, Any]

HOME: Final = "fairlead-system"
ON_A: Final = "base-pods"
"""The account for API server A."""
OTHERS: Final = ("/secrets", "reviews", "admissionregistration", "/token")
OLD, NEW, OTHER = "http://h/shop-1.zip", "http://other/shop-1.zip", "http://h/shop-1.other.zip"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
FULL: Final = int(0.95 * (1 << 28))


def is_of_phase(phase: str) -> Callable[[str], bool]:
    """Which calls a replica is killed at: leases of nodes are what hand-overs are about, and bear ledgers; those of
    replicas are no part."""
    leases = {"share": " leases virtual-node-", "modules": 'ledger={"'}.get(phase)

    def is_point(call: str) -> bool:
        return " leases " not in call or (leases is not None and leases in call)

    return is_point


def described(method: str, path: str, body: Any) -> str:
    """A write without what differs each time, such as moments."""
    if method not in ("POST", "PUT", "PATCH", "DELETE") or any(each in path for each in OTHERS):
        return ""
    given: Json = body if isinstance(body, dict) else {}
    parts = path.partition("?")[0].strip("/").split("/")
    kind = next((each for each in ("leases", "events", "nodes", "pods", "deployments") if each in parts), parts[-1])
    metadata = given.get("metadata") or {}
    name = "/".join(parts[parts.index(kind) + 1 :]) or metadata.get("name", "")
    details = []
    if kind == "events":
        regarding = given.get("regarding") or given.get("involvedObject") or {}
        name, details = f"{regarding.get('kind', '')} {regarding.get('name', '')}", [str(given.get("reason", ""))]
    if kind == "leases":
        details = [f"holder={(given.get('spec') or {}).get('holderIdentity', '')}"]
    notes = metadata.get("annotations") or {}
    if STATE in notes:
        state = read_state(notes[STATE] or "")
        details.append(state.step.value if state is not None else "ended")
    details += ["grant"] if notes.get(GRANT) else []
    details += [f"ledger={notes[LEDGER]}"] if LEDGER in notes else []
    details += ["taints"] if "taints" in (given.get("spec") or {}) else []
    status = given.get("status") or {}
    if kind == "pods" and status:
        states = [each.get("state") or {} for each in status.get("containerStatuses") or ()]
        details += [f"{key}:{value.get('reason', '')}" for each in states for key, value in each.items() if value]
        details.insert(0, str(status.get("phase", "")))
    return " ".join([method, kind, name, *details])


@dataclass(slots=True)
class KillingBase(MockBase):
    """Kills whoever calls, where it is told to."""

    name: str = ""
    at: Callable[[str], str] = lambda call: "pass"
    kill: Callable[[str], None] = lambda who: None

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        command, body = request.match_info["command"], json.loads(await request.read() or b"{}")
        who = request.headers.get("Fairlead-Member", "")
        module = f"{body.get('bizName', '')}:{body.get('bizVersion', '')}"
        what = self.at(f"{command} {module} at {self.name}")
        assert request.transport is not None
        if what == "before":
            self.kill(who)
            request.transport.abort()
            return web.Response(status=500)
        answer = await MockBase._answer(self, request)
        if what == "after":
            self.kill(who)
            if request.transport is not None:
                request.transport.abort()
        return answer


@dataclass(slots=True)
class KilledField(Field):
    """Replicas that are killed at their calls, and started again under their names."""

    phase: str = ""
    points: Callable[[str], bool] = lambda call: True
    armed: bool = False
    kills: Counter[str] = field(default_factory=Counter)
    """How often at which call: before it, then after."""
    ports: dict[int, str] = field(default_factory=dict)
    ways: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The ports of a replica at the gate: for its own cluster, and for that of the base pods."""
    dead: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    gate: Gate | None = None
    sessions: dict[str, aiohttp.ClientSession] = field(default_factory=dict)
    ips: dict[str, str] = field(default_factory=dict)
    configs: dict[str, str] = field(default_factory=dict)
    forking: Forking | None = None
    """One comes while another is started again: each is to get its own process's number."""

    def at(self, call: str) -> str:
        if not self.armed or not self.points(call):
            return "pass"
        times = self.kills[call]
        self.kills[call] += times < 2
        return ("before", "after", "pass")[times]

    def kill(self, who: str) -> None:
        process = self.processes.get(who)
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait(60)
            self.dead.put_nowait(who)

    async def come(self, name: str) -> None:
        """A replica that is started for the first time."""
        assert self.gate is not None
        self.ways[name] = (await self.gate.listen(), await self.gate.listen())
        self.ports |= dict.fromkeys(self.ways[name], name)
        await asyncio.to_thread(self.start, name)

    async def revive(self) -> None:
        while True:
            name = await self.dead.get()
            await asyncio.to_thread(self.start, name)

    def _through_gate(self, account: str, port: int) -> Path:
        if account not in self.configs:
            token = self.rig.service_account_token(account, HOME, manifests=())
            self.configs[account] = self.rig.kubeconfig(token).read_text()
        file = self.folder / f"{self.phase}-{account}-{port}.yaml"
        file.write_text(self.configs[account].replace(self.rig.url, f"https://127.0.0.1:{port}"))
        return file

    def kubeconfig(self, name: str) -> Path:
        return self._through_gate(name, self.ways[name][0])

    def variables(self, name: str) -> dict[str, str]:
        return {"FAIRLEAD_MODULES_BASES_KUBECONFIG": str(self._through_gate(ON_A, self.ways[name][1]))}

    def launch(self, arguments: Sequence[str], env: Mapping[str, str], log: Path) -> Process:
        """Forked from a process that has everything imported: a life is short."""
        if self.forking is None:
            bug = [f"--bug={self.bug}"] if self.bug else []
            self.forking = Forking("tests.soak.modules_process", "--brisk", *bug)
        return self.forking.start(arguments, log, env)

    def end(self) -> None:
        Field.end(self)
        if self.forking is not None:
            self.forking.close()

    async def beat(self, base: str) -> None:
        files = [self.folder / f"{name}.url" for name in self.processes]
        urls = [file.read_text() for file in files if file.exists()]
        if self.bases[base].is_away:
            return
        metadata = {"identity": f"{self.phase}-{base}", "name": "base", "version": "1", "clusterName": self.phase}
        ip = self.ips[base]
        body = {"baseMetadata": metadata, "localIP": ip, "port": self.bases[base].port, "state": "activated"}
        for url in urls:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with self.sessions[base].post(f"{url}/heartbeat", json=body):
                    return

    # -- what the server has

    def node(self, base: str) -> str:
        return f"virtual-node-java-{NAMESPACE}-{self.phase}-{base}" if self.phase == "heal" else self._heard(base)

    def _heard(self, base: str) -> str:
        return f"virtual-node-{self.phase}-{self.phase}-{base}"

    async def ask(self, method: str, path: str, body: Json | None = None) -> Any:
        return await asyncio.to_thread(self.rig.request, method, path, body)

    async def has_node(self, base: str) -> bool:
        answer = await self.ask("GET", f"/api/v1/nodes/{self.node(base)}")
        return bool(answer.status == 200)

    async def put_module(self, base: str) -> None:
        container = {"name": "shop", "image": OLD, "env": [{"name": "BIZ_VERSION", "value": "1"}]}
        keys = ("schedule.koupleless.io/virtual-node", "schedule.koupleless.io/node-env")
        tolerations = [{"key": key, "operator": "Exists"} for key in keys]
        spec = {"nodeName": self.node(base), "tolerations": tolerations, "containers": [container]}
        answer = await self.ask("POST", PODS, {"metadata": {"name": self.pod(base)}, "spec": spec})
        assert answer.status == 201, answer.body[:300]

    def pod(self, base: str) -> str:
        return f"shop-{self.phase}-{base}"

    async def ready(self) -> set[str]:
        found = (await self.ask("GET", PODS)).json()["items"]
        return {
            pod["metadata"]["name"]
            for pod in found
            if any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ()))
        }

    async def reach(self, what: str, condition: Callable[[], Awaitable[bool]], seconds: float) -> None:
        """Within so long since the last kill."""
        started_s, killed = time.monotonic(), self.kills.total()
        while not await condition():
            if self.kills.total() != killed:
                started_s, killed = time.monotonic(), self.kills.total()
            if time.monotonic() - started_s > seconds:
                log = "".join(file.read_text()[-3000:] for file in sorted(self.folder.glob("*.log")))
                raise TimeoutError(f"{self.phase}: {what}: not within {seconds:.0f} s; {log}")
            await asyncio.sleep(0.2)


@asynccontextmanager
async def killed_field(
    rig: Rig, folder: Path, phase: str, bases: int, points: Callable[[str], bool], bug: str
) -> AsyncIterator[KilledField]:
    """Accounts, a gate, and bases that beat; no replica yet. At the end nothing of them is left on the server."""
    folder = folder / f"{phase}-{bug}"
    folder.mkdir()
    made = KilledField(rig, folder, 3, bug, poll_s=0.4, beat_s=0.5, phase=phase, points=points)
    gate = made.gate = Gate(rig, described, made.at, lambda port: made.kill(made.ports[port]))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(gate.open())
        for number in range(bases):
            name = f"b{number}"
            base = KillingBase(name=name, at=made.at, kill=made.kill)
            made.ips[name] = f"127.0.79.{number + 1}"
            made.bases[name] = await stack.enter_async_context(base.serving(made.ips[name]))
            connector = aiohttp.TCPConnector(local_addr=(made.ips[name], 0), force_close=True)
            timeout = aiohttp.ClientTimeout(total=2.0)
            session = aiohttp.ClientSession(connector=connector, timeout=timeout)
            made.sessions[name] = await stack.enter_async_context(session)
        tasks = [asyncio.create_task(each) for each in (made.beat_on(), made.revive())]
        try:
            yield made
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            made.end()
            await asyncio.to_thread(_clean, rig)


def _clean(rig: Rig) -> None:
    for pod in rig.request("GET", PODS).json()["items"]:
        rig.request("DELETE", f"{PODS}/{pod['metadata']['name']}?gracePeriodSeconds=0")
    leases = "/apis/coordination.k8s.io/v1/namespaces"
    for path in ("/api/v1/nodes", f"{leases}/kube-node-lease/leases", f"{leases}/{HOME}/leases"):
        for each in rig.request("GET", path).json()["items"]:
            rig.request("DELETE", f"{path}/{each['metadata']['name']}")


# -- install, update, delete


async def modules(at: KilledField) -> list[str]:
    """Two modules installed; one of them updated in place and removed. Each is there as it should be, once."""
    await at.come("one")
    first, second = at.bases["b0"], at.bases["b1"]

    async def are_there() -> bool:
        return await at.has_node("b0") and await at.has_node("b1")

    await at.reach("nodes", are_there, 60)
    first.faults = {
        "installBiz": [Fault.HALF_REPLY, Fault.TWICE],
        "uninstallBiz": [Fault.NO_REPLY, Fault.TWICE],
        "queryAllBiz": [Fault.HALF_REPLY, Fault.NO_JSON],
    }
    second.faults = {"installBiz": [Fault.OTHER, Fault.HANG], "queryBizOps": [Fault.HALF_REPLY]}
    first.install_s = second.install_s = 0.1
    at.armed = True
    for base in at.bases:
        await at.put_module(base)
    both = {at.pod("b0"), at.pod("b1")}

    async def are_ready() -> bool:
        return await at.ready() == both

    await at.reach("modules", are_ready, 90)
    image = {"spec": {"containers": [{"name": "shop", "image": NEW}]}}
    path = f"{PODS}/{at.pod('b0')}"
    await asyncio.to_thread(
        at.rig.kubectl, "patch", "pod", at.pod("b0"), "-n", NAMESPACE, "-p", json.dumps(image), "--type=strategic"
    )

    async def is_updated() -> bool:
        return first.urls[-1:] == [NEW] and await at.ready() == both

    await at.reach("the update", is_updated, 90)
    await at.ask("DELETE", path)

    async def is_gone() -> bool:
        return bool((await at.ask("GET", path)).status == 404)

    await at.reach("the removal", is_gone, 90)
    at.armed = False
    wrong = []
    for name, expected in (
        ("b0", ([], [OLD, NEW], ["shop:1", "shop:1"])),
        ("b1", (["shop:1"], [OTHER, OLD], ["shop:1.other"])),
    ):
        mock = at.bases[name]
        found = (sorted(mock.modules), mock.urls, mock.removed)
        if found != expected:
            wrong.append(f"{name}: {found}, not {expected}; it was asked {[what for _, _, what in mock.senders]}")
    return wrong


# -- healing


async def base_pod(at: KilledField, base: str) -> None:
    labels = {"base.koupleless.io/name": "base"}
    body = {
        "metadata": {"name": f"heal-{base}", "labels": labels},
        "spec": {"nodeName": "somewhere", "containers": [{"name": "base", "image": "b"}]},
    }
    assert (await at.ask("POST", PODS, body)).status == 201
    status = {"phase": "Running", "podIP": at.ips[base], "podIPs": [{"ip": at.ips[base]}]}
    answer = await at.ask("PATCH", f"{PODS}/heal-{base}/status", {"status": status})
    assert answer.status == 200, answer.body[:300]


async def end_base_pods(at: KilledField, after_s: float) -> None:
    """The kubelet of the bases: a pod that is deleted ends, and its base with it."""
    while True:
        for pod in (await at.ask("GET", PODS)).json()["items"]:
            base = pod["metadata"]["name"].removeprefix("heal-")
            if base in at.bases and pod["metadata"].get("deletionTimestamp"):
                await asyncio.sleep(after_s)
                at.bases[base].is_away = True
                await at.ask("DELETE", f"{PODS}/heal-{base}?gracePeriodSeconds=0")
        await asyncio.sleep(0.3)


async def heal(at: KilledField) -> list[str]:
    """A base without memory is tainted, drained, emptied and deleted, in this order and once."""
    for base in at.bases:
        await base_pod(at, base)
    playing = asyncio.create_task(end_base_pods(at, 4.0 if at.bug else 1.0))
    try:
        await at.come("one")

        async def are_there() -> bool:
            return await at.has_node("b0") and await at.has_node("b1")

        await at.reach("nodes", are_there, 60)
        await at.put_module("b0")

        async def is_ready() -> bool:
            return await at.ready() == {at.pod("b0")}

        await at.reach("the module", is_ready, 60)
        # The same module on a base that is well stays.
        at.bases["b1"].modules["shop:1"] = "activated"
        at.armed = True
        at.bases["b0"].used_bytes = FULL

        async def is_healed() -> bool:
            return not await at.has_node("b0")

        await at.reach("the healing", is_healed, 120)
        at.armed = False
    finally:
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
    return judge_healing(await asyncio.to_thread(at.rig.audit), at.bases["b0"], at.bases["b1"])


def judge_healing(events: Sequence[Json], sick: MockBase, well: MockBase) -> list[str]:
    wrong: list[str] = []
    removed: Counter[str] = Counter()
    marks: dict[str, str] = {}
    for event in sorted(events, key=lambda each: str(each["requestReceivedTimestamp"])):
        about, user = event.get("objectRef") or {}, event["user"]["username"]
        if not user.startswith(ACCOUNT) or event["responseStatus"]["code"] >= 300:
            continue
        name, at, body = about.get("name", ""), event["requestReceivedTimestamp"], event.get("requestObject") or {}
        if event["verb"] == "delete" and about.get("resource") == "pods" and name.startswith("heal-"):
            removed[name] += 1
            marks.setdefault("delete", at)
            if user != f"{ACCOUNT}{ON_A}":
                wrong.append(f"{name} was deleted by {user}, not by the account of the base pods' cluster")
        if about.get("subresource") == "eviction" and name.startswith("shop-heal-"):
            marks.setdefault("evict", at)
        taints = json.dumps((body.get("spec") or {}).get("taints") or "")
        if about.get("resource") == "nodes" and "metaspace-overload" in taints:
            marks.setdefault("taint", at)
    wrong += [f"{name} was deleted {count} times" for name, count in removed.items() if count > 1]
    if set(removed) != {"heal-b0"}:
        wrong.append(f"base pods that were deleted: {sorted(removed)}")
    commands = [(at, what) for at, _, what in sick.senders]
    uninstalls = [at for at, what in commands if what.startswith("uninstallBiz")]
    order = [datetime.fromisoformat(marks[each]) for each in ("taint", "evict") if each in marks]
    order += uninstalls[:1] + [datetime.fromisoformat(marks[each]) for each in ("delete",) if each in marks]
    if len(order) != 4 or order != sorted(order):
        wrong.append(f"out of order: {marks}, uninstalls {uninstalls}")
    if sick.count("installBiz", "shop:1") != 1 or sick.modules:
        wrong.append(f"the base has {sorted(sick.modules)} and was asked {[what for _, what in commands]}")
    if well.count("uninstallBiz", "shop:1") or list(well.modules) != ["shop:1"]:
        wrong.append("a module of another base was removed")
    return wrong


# -- hand-over


async def hand_over(at: KilledField) -> list[str]:
    """Four bases of one replica; another comes and gets its share, however often either is killed."""
    await at.come("one")
    names = list(at.bases)

    async def are_there() -> bool:
        return all([await at.has_node(base) for base in names])

    await at.reach("nodes", are_there, 60)
    for base in names:
        await at.put_module(base)

    async def all_run() -> bool:
        return await at.ready() == {at.pod(base) for base in names}

    await at.reach("modules", all_run, 60)
    at.armed = True
    await at.come("two")

    async def is_shared() -> bool:
        held = Counter((await held_by(at)).values())
        return dict(held) == {"one": 2, "two": 2} and at.dead.empty()

    async def is_wrong() -> bool:
        return bool(at.bug) and bool(await judged())

    async def judged() -> list[str]:
        events = await asyncio.to_thread(at.rig.audit)
        commands = [
            Act(who, at.node(base), when, what) for base, mock in at.bases.items() for when, who, what in mock.senders
        ]
        return late([*node_acts(events, at), *commands], titles(events, at.node("")))

    if at.bug:
        at.armed = False
        await at.reach("what the bug does", is_wrong, 60)
        return await judged()
    await at.reach("even shares", is_shared, 120)
    await at.reach("modules still", all_run, 60)
    at.armed = False
    wrong = await judged()
    for base, mock in at.bases.items():
        if mock.count("installBiz", "shop:1") != 1 or mock.count("uninstallBiz", "shop:1"):
            wrong.append(f"{base} was asked {[what for _, _, what in mock.senders]}")
    return wrong


async def held_by(at: KilledField) -> dict[str, str]:
    found = (await at.ask("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")).json()["items"]
    return {
        each["metadata"]["name"]: each["spec"].get("holderIdentity") or ""
        for each in found
        if each["metadata"]["name"].startswith(at.node(""))
    }


def node_acts(events: Sequence[Json], at: KilledField) -> list[Act]:
    """Accepted writes of replicas to nodes, and to the pods on them."""
    found = []
    for event in events:
        about, user = event.get("objectRef") or {}, event["user"]["username"]
        is_write = event["verb"] in ("create", "update", "patch", "delete") and event["responseStatus"]["code"] < 300
        if not is_write or not user.startswith(ACCOUNT) or about.get("resource") not in ("nodes", "pods"):
            continue
        name = about.get("name", "")
        is_pod = about["resource"] == "pods"
        node = at.node(name.removeprefix(at.pod(""))) if is_pod else name
        if name.startswith(at.pod("") if is_pod else at.node("")):
            when = datetime.fromisoformat(event["stageTimestamp"])
            found.append(Act(user.removeprefix(ACCOUNT), node, when, f"{event['verb']} {about['resource']}"))
    return found


STORIES: Final[dict[str, tuple[int, Callable[[KilledField], Awaitable[list[str]]], str, str]]] = {
    "modules": (2, modules, "blind", "shop:1.other"),
    "heal": (2, heal, "hasty", "times"),
    "share": (4, hand_over, "greedy", "but its lease named"),
}
"""What happens on how many bases; a bug that its judge must notice, and the words it is noticed by."""


async def kill_everywhere(
    rig: Rig,
    folder: Path,
    phase: str,
    points: Callable[[str], bool] | None = None,
    bug: str = "",
) -> tuple[Counter[str], list[str]]:
    """Where replicas were killed, and what is wrong. With a bug nobody is killed."""
    bases, story, _, _ = STORIES[phase]
    is_point: Callable[[str], bool] = (lambda call: False) if bug else points or is_of_phase(phase)
    async with killed_field(rig, folder, phase, bases, is_point, bug) as at:
        try:
            wrong = await story(at)
        except TimeoutError as problem:
            wrong = [str(problem)]
        return at.kills, [f"{phase}: {each}" for each in wrong]


async def soak(rig: Rig, folder: Path, phases: Sequence[str]) -> tuple[int, int]:
    """Prints what was done; how much passed, and how much is wrong."""
    apply_roles(rig, ON_A)
    failed = passed = 0
    for phase in phases:
        started_s = time.monotonic()
        kills, wrong = await kill_everywhere(rig, folder, phase)
        click.echo(f"{phase}: {kills.total()} kills at {len(kills)} calls, {time.monotonic() - started_s:.0f} s")
        for call, times in kills.items():
            click.echo(f"    {times} at {call}")
        name, words = STORIES[phase][2:]
        _, noticed = await kill_everywhere(rig, folder, phase, bug=name)
        click.echo(f"  bug {name}: {[each[:150] for each in noticed[:3]]}")
        if not any(words in each for each in noticed):
            wrong.append(f"{phase}: the judge does not notice the bug {name}: {noticed}")
        for line in wrong:
            click.echo(f"  wrong: {line}")
        failed += len(wrong)
        passed += kills.total() if not wrong else 0
    return passed, failed
