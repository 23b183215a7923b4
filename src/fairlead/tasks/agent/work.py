"""One round of one task: find the targets, send the load, judge, and post the report, whatever happens."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import structlog

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.connector import connector
from fairlead.cluster.errors import ClusterError
from fairlead.model.kinds import Kind
from fairlead.model.times import bounded_time
from fairlead.tasks.agent.dns_probe import DnsProbe, DnsTarget
from fairlead.tasks.agent.http_probe import BadSecret, HttpProbe, HttpTarget, cannot_probe
from fairlead.tasks.agent.pacing import pace
from fairlead.tasks.agent.report import Reporter, TargetResult, compose, judge
from fairlead.tasks.agent.targets import (
    Surroundings,
    TargetIngress,
    TargetPod,
    TargetService,
    dns_targets,
    http_target,
    load_qps,
    net_reach_targets,
    no_dns_target,
    request_of,
)
from fairlead.tasks.agent.usage import Usage
from fairlead.tasks.report_address import ADDRESS_MAPS, KEY, is_private
from fairlead.tasks.spec import (
    AppHttpHealthySpec,
    DnsRequest,
    Expectation,
    HttpRequest,
    NetdnsSpec,
    NetReachSpec,
    Task,
)
from fairlead.tasks.templates import REPORT_ADDRESS
from fairlead.tasks.verdicts import Tally

log = structlog.get_logger("fairlead.agent")

PODS = Kind("", "v1", "pods", "Pod", TargetPod)
SERVICES = Kind("", "v1", "services", "Service", TargetService)
INGRESSES = Kind("networking.k8s.io", "v1", "ingresses", "Ingress", TargetIngress)
# Labels by which a cluster's own DNS is known.
DNS_LABELS: Final = ("k8s-app=kube-dns", "kubernetes.io/name=CoreDNS", "app.kubernetes.io/name=coredns")
# A report must arrive before the round is over.
MARGIN_S: Final = 5.0
# What the figures of requests that were cut off take.
FIGURES_S: Final = 1.0
LATE: Final = "the round did not end before its deadline"
POST_S: Final = 10.0
LONGEST_WAIT_S: Final = 30.0
_LOADS: Final = {"NetReach": "netReachQPS", "AppHttpHealthy": "appHttpHealthyQPS", "Netdns": "netDnsQPS"}


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Who this agent is, and where things are."""

    pod: str
    pod_uid: str
    node: str
    namespace: str
    node_ip: str = ""
    task_kind: str = ""
    task_name: str = ""
    http_port: int = 10080
    https_port: int = 10443
    health_port: int = 5710
    api_url: str = ""
    api_ca: str = ""
    api_plaintext: bool = False
    token_file: Path = Path("/var/run/secrets/tasks.fairlead.io/token")
    tls_folder: Path = Path("/etc/fairlead-agent/tls")
    body_folder: Path = Path("/etc/fairlead-agent/body")
    multus_annotation: str = "k8s.v1.cni.cncf.io/networks-status"
    fault: str = ""


class Worker:
    """Runs rounds; several at once on the shared agent."""

    def __init__(self, client: Client, options: AgentOptions, clock: Clock) -> None:
        self._client = client
        self._options = options
        self._clock = clock
        self._loads: dict[str, tuple[str, int]] = {}
        self._api_url = ""

    async def run_round(self, kind: str, task: Task) -> None:
        """A report is posted in any case: with the reason, and the figures until then, where a round is cut off."""
        record = task.status.history[0]
        started_at = self._clock.now()
        who = Reporter(kind, record.round_number, self._options.node, self._options.pod, started_at)
        deadline = bounded_time(record.dead_line_time_stamp, started_at)
        left_s = (deadline - started_at).total_seconds() - MARGIN_S
        usage, results, problem = Usage(self._clock), [], ""
        self._loads[task.metadata.uid] = kind, load_qps(task.spec)
        sampling = asyncio.create_task(usage.sample())
        time = asyncio.get_running_loop().time
        ends_s = time() + max(1.0, left_s)
        try:
            async with asyncio.timeout_at(ends_s + FIGURES_S):
                results = await self._probe(task, ends_s)
            problem = LATE if time() >= ends_s else ""
        except TimeoutError:
            problem = LATE
        except Exception as failure:
            log.exception("round failed", kind=kind, task=task.metadata.name)
            problem = f"the agent failed: {type(failure).__name__}: {failure}"[:500]
        finally:
            sampling.cancel()
            load = self._load()
            self._loads.pop(task.metadata.uid, None)
        report = compose(who, results, ended_at=self._clock.now(), usage=usage.to_json(), load=load, problem=problem)
        await self.post(kind, task, report, deadline)

    def _load(self) -> dict[str, int]:
        found = dict.fromkeys(_LOADS.values(), 0)
        for kind, qps in self._loads.values():
            found[_LOADS[kind]] += qps
        return found

    async def _probe(self, task: Task, ends_s: float) -> list[TargetResult]:
        spec = task.spec
        targets: Sequence[HttpTarget | DnsTarget]
        match spec:
            case NetReachSpec():
                targets = net_reach_targets(spec, await self._surroundings(task))
            case AppHttpHealthySpec():
                targets = [self._http_target(spec)]
            case NetdnsSpec():
                targets = dns_targets(spec, await self._dns_services(spec)) or [no_dns_target(spec)]
        request, expect = request_of(spec), spec.expect or Expectation()
        whole = spec.target is not None and spec.target.enable_latency_metric
        run = [self._target(target, request, expect, ends_s, whole=whole) for target in targets]
        return await asyncio.gather(*run)

    async def _target(
        self,
        target: HttpTarget | DnsTarget,
        request: HttpRequest | DnsRequest,
        expect: Expectation,
        ends_s: float,
        *,
        whole: bool,
    ) -> TargetResult:
        """`ends_s`, by the loop's clock, is when requests that are not answered yet are given up."""
        started_at = self._clock.now()
        if target.problem:
            return judge(target, Tally(), 0, (started_at, started_at), expect, whole=whole)
        timeout_s = request.per_request_timeout_in_ms / 1000
        probe: HttpProbe | DnsProbe
        try:
            if isinstance(target, HttpTarget):
                probe = HttpProbe(target, timeout_s, self._clock)
            else:
                probe = DnsProbe(target, timeout_s, self._clock)
            async with probe:
                try:
                    async with asyncio.timeout_at(ends_s):
                        unsent = await pace(request.qps, request.duration_in_second, probe.fire, self._clock)
                        await probe.drained()
                except TimeoutError:
                    unsent = request.qps * request.duration_in_second - probe.tally.requests
        except Exception as failure:
            # One target that cannot be probed must not cost the results of the others.
            is_a_bug = not isinstance(failure, OSError | BadSecret)
            log.warning("target failed", target=target.name[:200], problem=str(failure)[:500], exc_info=is_a_bug)
            failed = replace(target, problem=cannot_probe(failure))
            return judge(failed, Tally(), 0, (started_at, self._clock.now()), expect, whole=whole)
        return judge(target, probe.tally, unsent, (started_at, self._clock.now()), expect, whole=whole)

    def _http_target(self, spec: AppHttpHealthySpec) -> HttpTarget:
        """With the copies that its carrier mounts; the shared agent has none."""
        target = spec.target
        body, folder, lacking = b"", None, ""
        if target is not None and target.body_configmap_name:
            body = _body(self._options.body_folder)
            lacking = "" if self._options.body_folder.is_dir() else "the body's ConfigMap"
        if target is not None and target.tls_secret_name:
            folder = self._options.tls_folder
            lacking = lacking if folder.is_dir() else "the TLS Secret"
        found = http_target(spec, body, folder)
        if not lacking:
            return found
        return HttpTarget(found.name, found.url, problem=f"this agent has no copy of {lacking}: add an agentSpec")

    async def _surroundings(self, task: Task) -> Surroundings:
        options, namespace = self._options, self._options.namespace
        resource = task.status.resource
        carrier = resource.runtime_name if resource is not None else ""
        query = {"labelSelector": f"app.kubernetes.io/name={carrier}"}
        actors = {actor.uid for actor in task.status.actors}
        pods = [pod for pod in await self._client.list(PODS, namespace, query=query) if pod.metadata.uid in actors]
        names = {"V4": resource.service_name_v4, "V6": resource.service_name_v6} if resource is not None else {}
        services: dict[str, TargetService | None] = {}
        for family, name in names.items():
            if name:
                service = await self._client.find(SERVICES, name, namespace)
                services[family] = service
        ingress = None
        if isinstance(task.spec, NetReachSpec) and task.spec.target is not None and task.spec.target.ingress:
            found = await self._client.list(INGRESSES, namespace)
            ingress = next((each for each in found if each.metadata.name == names.get("V4")), None)
        return Surroundings(options.node_ip, options.http_port, options.multus_annotation, pods, services, ingress)

    async def _dns_services(self, spec: NetdnsSpec) -> list[TargetService]:
        """The Service that the task names, or the cluster's own DNS."""
        dns = spec.target.target_dns if spec.target is not None else None
        if spec.target is not None and spec.target.target_user is not None:
            return []
        if dns is not None and dns.service_name:
            found = await self._client.find(SERVICES, dns.service_name, dns.service_namespace or "kube-system")
            return [found] if found is not None else []
        for label in DNS_LABELS:
            if labelled := await self._client.list(SERVICES, "kube-system", query={"labelSelector": label}):
                return labelled
        return []

    async def post(self, kind: str, task: Task, report: dict[str, Any], deadline: datetime) -> None:
        """Until it is stored, or refused for good, or nobody waits for it any more."""
        body = msgspec.json.encode(
            {
                "taskKind": kind,
                "taskName": task.metadata.name,
                "taskUID": task.metadata.uid,
                "roundNumber": report["roundNumber"],
                "report": report,
            }
        )
        wait_s, url = 0.2, self._options.api_url or self._api_url or await self._find_api_url()
        async with _api_session(self._options) as session:
            while True:
                try:
                    status = await self._send(session, url, body) if self._may_send(url) else 0
                except (aiohttp.ClientError, OSError, TimeoutError) as problem:
                    log.info("report not sent", problem=type(problem).__name__, url=url, task=task.metadata.name)
                    status = 0
                if status and status < 500 and status not in (401, 408, 429):
                    log.info("report posted", status=status, task=task.metadata.name, round=report["roundNumber"])
                    return
                if self._clock.now() > deadline:
                    log.warning("report given up", task=task.metadata.name, round=report["roundNumber"])
                    return
                await self._clock.sleep(wait_s)
                wait_s = min(wait_s * 2, LONGEST_WAIT_S)
                url = self._options.api_url or await self._find_api_url()

    async def _find_api_url(self) -> str:
        """Where the leader of now takes reports; what it was where that cannot be read."""
        try:
            found = await self._client.find(ADDRESS_MAPS, REPORT_ADDRESS, self._options.namespace)
        except ClusterError as problem:
            log.info("address for reports not read", problem=str(problem))
            return self._api_url
        self._api_url = found.data.get(KEY, "").rstrip("/") if found is not None else ""
        if not self._may_send(self._api_url):
            log.warning("no address for reports", url=self._api_url, wanted="https, or http on this machine")
        return self._api_url

    def _may_send(self, url: str) -> bool:
        return is_private(url) or (bool(url) and self._options.api_plaintext)

    async def _send(self, session: aiohttp.ClientSession, url: str, body: bytes) -> int:
        token = await asyncio.to_thread(self._options.token_file.read_text)
        headers = {"Authorization": f"Bearer {token.strip()}", "Content-Type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=POST_S)
        async with session.post(
            f"{url}/tasks/reports", data=body, headers=headers, timeout=timeout, allow_redirects=False
        ) as answer:
            await answer.read()
            return answer.status


@contextlib.asynccontextmanager
async def _api_session(options: AgentOptions) -> AsyncIterator[aiohttp.ClientSession]:
    context = ssl.create_default_context(cadata=options.api_ca) if options.api_ca else None
    async with aiohttp.ClientSession(connector=connector(ssl=context if context is not None else True)) as session:
        yield session


def _body(folder: Path) -> bytes:
    """The data of the ConfigMap as one JSON object."""
    if not folder.is_dir():
        return b""
    data = {each.name: each.read_text() for each in sorted(folder.iterdir()) if each.is_file() and each.name[0] != "."}
    return msgspec.json.encode(data)


def is_due(task: Task, options: AgentOptions) -> bool:
    """Whether this pod has a part in the running round."""
    history = task.status.history
    if task.metadata.deletion_timestamp is not None or not history or history[0].status != "ongoing":
        return False
    return any(actor.uid == options.pod_uid for actor in task.status.actors)
