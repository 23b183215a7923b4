"""`scripts/soak task_input`: fuzzed reports and reviews over HTTP against `fairlead up`, never answered with a 5xx.

Reports are posted with the token of a pod that has a part in a round, so that whole ones are stored; reviews go to the
webhooks' own address, as the API server sends them. The short forms are tests/tasks/test_api.py and test_webhook.py.
"""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import click
import msgspec

from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.connector import connector
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.model.times import rfc3339
from fairlead.tasks.agent.http_probe import unverified
from tests.jobs.lab import Api, Json
from tests.rigs.kube.servers import until
from tests.soak.reviews import JUNK, _spoil
from tests.tasks.lab import CORE, HOME, AgentKubelet, TaskLab

AT_ONCE: Final = 8
WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/fairlead-tasks"
NOISE: Final = (b"[" * 50, b"{}", b'"', b"\\u0000", b"1e999", b"\xff", b"null", b"-1", b"[" * 5000, b"x" * 70_000)
TEXTS: Final = ("0 60", "* * * * *", "61 * * * *", "0 0 31 2 *", "http://10.0.0.1", "http://[::1", "9" * 400, "true")
SPECS: Final[dict[str, Json]] = {
    "NetReach": {"target": {"endpoint": True}, "agentSpec": {"env": [{"name": "A"}], "affinity": {}, "resources": {}}},
    "AppHttpHealthy": {"target": {"host": "http://10.0.0.1", "method": "GET", "header": ["A: b"],
                                  "tlsSecretName": "s", "tlsSecretNamespace": "default"}},
    "Netdns": {"target": {"targetUser": {"server": "10.0.0.1", "port": 53}}, "request": {"domain": "a.b"}},
}  # fmt: skip
COMMON: Final[Json] = {
    "schedule": {"schedule": "0 60", "roundTimeoutMinute": 60, "roundNumber": 1},
    "expect": {"successRate": 1, "meanAccessDelayInMs": 5, "statusCode": 200},
}


def mangled(rng: random.Random, whole: bytes) -> bytes:
    """The bytes, some of them changed, left out or added."""
    body = bytearray(whole)
    for _ in range(rng.randrange(0, 5)):
        at = rng.randrange(len(body) + 1)
        match rng.randrange(3):
            case 0:
                body[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del body[at : at + rng.randrange(1, 9)]
            case _:
                body[at:at] = rng.choice(NOISE)
    return bytes(body)


def spoilt_report(rng: random.Random, posted: Json) -> bytes:
    report: Json = {"roundResult": "succeed", "taskNetReach": {"roundTaskDetail": [{"name": "a", "url": "b"}]}}
    document = {**posted, "report": report}
    for _ in range(rng.randrange(0, 4)):
        _spoil(rng, document)
    return mangled(rng, msgspec.json.encode(document)) if rng.random() < 0.5 else msgspec.json.encode(document)


def spoilt_review(rng: random.Random, kind: str) -> bytes:
    annotations = {f"tasks.fairlead.io/{rng.choice(('suspend', 'time-zone', 'start-with'))}": rng.choice(TEXTS)}
    thing: Json = {
        "apiVersion": "kdoctor.io/v1beta1", "kind": kind, "metadata": {"name": "a", "annotations": annotations},
        "spec": msgspec.json.decode(msgspec.json.encode({**COMMON, **SPECS[kind]})),
    }  # fmt: skip
    for _ in range(rng.randrange(0, 4)):
        _spoil(rng, thing)
    if rng.random() < 0.3 and isinstance(thing.get("spec"), dict):
        thing["spec"]["schedule"] = {"schedule": rng.choice(TEXTS), "roundTimeoutMinute": rng.choice([1, 10**9, -1])}
    request = {
        "uid": "1", "operation": rng.choice(["CREATE", "UPDATE", "DELETE"]), "userInfo": {"username": "author"},
        "kind": {"group": "kdoctor.io", "version": "v1beta1", "kind": kind}, "object": thing, "oldObject": thing,
    }  # fmt: skip
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    if rng.random() < 0.2:
        request[rng.choice(list(request))] = rng.choice(JUNK)
    body = msgspec.json.encode(review)
    return mangled(rng, body) if rng.random() < 0.2 else body


class Sender:
    """Sends bodies, a few at a time, and counts the answers."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http
        self.answers: Counter[int] = Counter()
        self.problems: list[str] = []

    async def send_all(self, bodies: Iterator[tuple[str, bytes]], headers: Json) -> None:
        async def work() -> None:
            for url, body in bodies:
                async with self._http.post(url, data=body, headers=headers) as answer:
                    text = await answer.read()
                    self.answers[answer.status] += 1
                    # A review's answer has a code of its own.
                    if answer.status >= 500 or answer.status in (401, 429) or b'"code":500' in text:
                        self.problems.append(f"{answer.status} {text[:200]!r} for {body[:300]!r}")

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[tuple[Path, Path]]:
    """The kubeconfig and the log of `fairlead up`."""
    data, log = folder / "data", folder / "up.log"
    # Nothing runs there: neither pods nor Services.
    flags = [f"--data={data}", "--listen=127.0.0.1:0", "--without=controllers,nodes,placement,jobs,data,modules"]
    command = [sys.executable, "-m", "fairlead", "up", *flags]
    variables = {"FAIRLEAD_API_RATE_PER_S": "10000", "FAIRLEAD_API_BURST": "100000"}
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, env={**os.environ, **variables})
    try:
        assert until(lambda: "brings everything back" in log.read_text(), 120), log.read_text()
        yield data / "kubeconfig", log
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


async def part_in_a_round(api: Api, lab: TaskLab) -> tuple[Json, str]:
    """The head of a report that can be stored, and the token to post it with."""
    node = await lab.node("a", labels={"scenario": "none"})
    pod = {"serviceAccountName": "fairlead-agent", "nodeName": node, "containers": [{"name": "c", "image": "i"}]}
    made = await api.call("POST", f"{CORE}/pods", {"metadata": {"name": "agent"}, "spec": pod})
    actor = {"pod": "agent", "uid": made["metadata"]["uid"], "node": "n"}
    task = await lab.task()  # its carrier has no node: the controller starts no round
    now, later = RealClock().now(), "2099-01-01T00:00:00Z"
    record = {
        "status": "ongoing", "roundNumber": 1, "startTimeStamp": rfc3339(now), "deadLineTimeStamp": later,
        "failedAgentNodeList": [], "succeedAgentNodeList": [], "notReportAgentNodeList": [],
    }  # fmt: skip
    await lab.until_carrier("creating")
    status = {"finish": False, "expectedRound": 1, "doneRound": 0, "history": [record], "actors": [actor]}
    await api.call("PATCH", f"{lab.path('t')}/status", {"status": status})
    head = {"taskKind": "NetReach", "taskName": lab.full("t"), "taskUID": task["metadata"]["uid"], "roundNumber": 1}
    return head, await lab.agent_token(actor)


async def soak(kubeconfig: Path, count: int, seed: int) -> tuple[Sender, Sender]:
    rng, clock = random.Random(seed), RealClock()
    async with (
        Client(connect_by_kubeconfig([kubeconfig], clock), clock=clock) as client,
        aiohttp.ClientSession(connector=connector(ssl=unverified(), limit=AT_ONCE)) as http,
    ):
        api = Api(client)
        head, token = await part_in_a_round(api, TaskLab(api, AgentKubelet(api), "fuzz"))
        url = (await api.call("GET", f"{CORE}/configmaps/fairlead-agent"))["data"]["apiURL"]
        reports, reviews = Sender(http), Sender(http)
        json_type = {"Content-Type": "application/json"}
        bodies = ((f"{url}/tasks/reports", spoilt_report(rng, head)) for _ in range(count))
        await reports.send_all(bodies, {**json_type, "Authorization": f"Bearer {token}"})
        hooks = await _webhook_urls(api)
        drawn = (rng.choice(list(SPECS)) for _ in range(count))
        await reviews.send_all(((rng.choice(hooks[kind]), spoilt_review(rng, kind)) for kind in drawn), json_type)
        stored = (await api.call("GET", f"/apis/fairlead.io/v1alpha1/namespaces/{HOME}/taskreports"))["items"]
        if len(stored) != 1:
            reports.problems.append(f"{len(stored)} reports are stored of one pod on one round")
        return reports, reviews


async def _webhook_urls(api: Api) -> dict[str, list[str]]:
    """Where reviews of each kind go."""
    found: dict[str, list[str]] = {kind: [] for kind in SPECS}
    for path in (WEBHOOKS, WEBHOOKS.replace("validating", "mutating")):
        for entry in (await api.call("GET", path))["webhooks"]:
            config = entry["clientConfig"]
            where: str = config.get("url") or await _service_url(api, config["service"])
            kind = next(kind for kind in SPECS if where.endswith(kind.lower()))
            found[kind].append(where)
    return found


async def _service_url(api: Api, service: Json) -> str:
    found = await api.call("GET", f"/api/v1/namespaces/{service['namespace']}/services/{service['name']}")
    host: Any = found["spec"].get("externalName") or found["spec"]["clusterIP"]
    return f"https://{host}:{service.get('port', 443)}{service['path']}"


@click.command()
@click.option("--count", default=10_000, show_default=True, help="Reports, and as many reviews.")
@click.option("--seed", default=1, show_default=True)
def main(count: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as name, cluster(Path(name)) as (kubeconfig, log):
        reports, reviews = asyncio.run(soak(kubeconfig, count, seed))
        bugs = [line for line in log.read_text().splitlines() if "bug in" in line or "Traceback" in line]
    problems = [*reports.problems, *reviews.problems, *bugs]
    for line in problems[:20]:
        click.echo(f"  wrong: {line}")
    for what, sender in (("reports", reports), ("reviews", reviews)):
        codes = ", ".join(f"{number} times {code}" for code, number in sorted(sender.answers.items()))
        click.echo(f"  {sender.answers.total()} {what}: {codes}")
    passed = reports.answers.total() + reviews.answers.total() - len(problems)
    click.echo(f"{passed} passed, {len(problems)} failed")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
