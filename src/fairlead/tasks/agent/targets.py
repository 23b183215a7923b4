"""What an agent probes: from a task's spec and the objects it points at to addresses. Pure.

A wanted address that is missing is a target with a problem: it fails, with a reason. Names are kdoctor's.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from fairlead.model.meta import ApiStruct, ObjectMeta
from fairlead.model.undecodable import UNDECODABLE
from fairlead.tasks.agent.dns_probe import DnsTarget
from fairlead.tasks.agent.http_probe import HttpTarget, parse_headers, with_scheme
from fairlead.tasks.spec import AppHttpHealthySpec, DnsRequest, HttpRequest, NetdnsSpec, NetReachSpec, NetReachTarget

MOST_MULTUS: Final = 256
FAMILIES: Final = (("V4", 4, "ipv4"), ("V6", 6, "ipv6"))


class PodIp(ApiStruct, frozen=True):
    ip: str = ""


class TargetPodStatus(ApiStruct, frozen=True):
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[PodIp, ...] | None = msgspec.field(default=None, name="podIPs")


class TargetPodSpec(ApiStruct, frozen=True):
    node_name: str = ""


class TargetPod(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: TargetPodSpec = TargetPodSpec()
    status: TargetPodStatus = TargetPodStatus()

    @property
    def addresses(self) -> list[str]:
        listed = [each.ip for each in self.status.pod_ips or ()]
        return listed or ([self.status.pod_ip] if self.status.pod_ip else [])


class TargetPort(ApiStruct, frozen=True):
    name: str = ""
    port: int = 0
    node_port: int = 0
    protocol: str = "TCP"


class TargetServiceSpec(ApiStruct, frozen=True):
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    cluster_ips: tuple[str, ...] | None = msgspec.field(default=None, name="clusterIPs")
    ports: tuple[TargetPort, ...] | None = None


class Balanced(ApiStruct, frozen=True):
    ip: str = ""
    hostname: str = ""
    ports: tuple[TargetPort, ...] | None = None

    @property
    def address(self) -> str:
        return self.ip or self.hostname


class LoadBalancer(ApiStruct, frozen=True):
    ingress: tuple[Balanced, ...] | None = None


class BalancedStatus(ApiStruct, frozen=True):
    load_balancer: LoadBalancer = LoadBalancer()

    @property
    def first(self) -> Balanced:
        return next((each for each in self.load_balancer.ingress or () if each.address), Balanced())

    @property
    def address(self) -> str:
        return self.first.address

    @property
    def port(self) -> int:
        """Where the load balancer says on which port it listens; 0 for the scheme's own."""
        return self.first.ports[0].port if self.first.ports else 0


class TargetService(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: TargetServiceSpec = TargetServiceSpec()
    status: BalancedStatus = BalancedStatus()

    @property
    def http(self) -> TargetPort | None:
        ports = self.spec.ports or ()
        return next((each for each in ports if each.name == "http"), ports[0] if ports else None)


class TargetIngress(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}
    status: BalancedStatus = BalancedStatus()

    @property
    def path(self) -> str:
        try:
            return str(self.spec["rules"][0]["http"]["paths"][0]["path"])
        except (KeyError, IndexError, TypeError):
            return "/"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an agent knows of its carrier when a round starts."""

    node_ip: str = ""
    http_port: int = 10080
    multus_annotation: str = ""
    pods: Iterable[TargetPod] = ()
    services: Mapping[str, TargetService | None] = field(default_factory=dict)
    """By family, `V4` or `V6`."""
    ingress: TargetIngress | None = None


def net_reach_targets(spec: NetReachSpec, near: Surroundings) -> list[HttpTarget]:
    target = spec.target or NetReachTarget()
    found: list[HttpTarget] = []
    for name, version, attribute in FAMILIES:
        if not getattr(target, attribute):
            continue
        if target.endpoint:
            found += _pod_targets(name, version, near)
        if target.multus_interface:
            found += _multus_targets(name, version, near)
        found += _service_targets(target, name, near.services.get(name), near)
    if target.ingress and target.ipv4:
        found.append(_ingress_target(near.ingress))
    return found


def _url(address: str, port: int, path: str = "") -> str:
    return f"http://{f'[{address}]' if ':' in address else address}:{port}{path}"


def _version(address: str) -> int:
    try:
        return ipaddress.ip_address(address).version
    except ValueError:
        return 0


def _pod_targets(name: str, version: int, near: Surroundings) -> list[HttpTarget]:
    found = []
    for pod in near.pods:
        node, of_pod = pod.spec.node_name, pod.metadata.name
        addresses = [each for each in pod.addresses if _version(each) == version]
        found += [
            HttpTarget(f"AgentPod{name}IP_{of_pod}_{each}", _url(each, near.http_port), node=node) for each in addresses
        ]
        if not addresses:
            why = f"pod {of_pod} has no IPv{version} address"
            found.append(HttpTarget(f"AgentPod{name}IP_{of_pod}_", "", node=node, problem=why))
    return found


def _multus_targets(name: str, version: int, near: Surroundings) -> list[HttpTarget]:
    found = []
    for pod in near.pods:
        of_pod = pod.metadata.name
        addresses = multus_addresses(pod.metadata.annotations.get(near.multus_annotation, ""))
        if len(addresses) > MOST_MULTUS:
            why = f"pod {of_pod} has {len(addresses)} additional addresses, of which {MOST_MULTUS} are tested"
            found.append(HttpTarget(f"AgentPod{name}IP_{of_pod}_more", "", node=pod.spec.node_name, problem=why))
        fitting = [each for each in addresses[:MOST_MULTUS] if _version(each) == version]
        for each in fitting:
            label = f"AgentPod{name}IP_{of_pod}_{each}"
            found.append(HttpTarget(label, _url(each, near.http_port), node=pod.spec.node_name))
        if not fitting:
            why = f"pod {of_pod} has no additional IPv{version} address in its annotation {near.multus_annotation}"
            label = f"AgentPod{name}IP_{of_pod}_multus"
            found.append(HttpTarget(label, "", node=pod.spec.node_name, problem=why))
    return found


def multus_addresses(text: str) -> list[str]:
    """The additional addresses that multus writes into a pod's annotation; none for what is not understood."""
    try:
        networks = msgspec.json.decode(text.encode() or b"[]")
    except UNDECODABLE:
        return []
    found = []
    for network in networks if isinstance(networks, list) else ():
        if isinstance(network, dict) and not network.get("default") and isinstance(network.get("ips"), list):
            found += [each for each in network["ips"] if isinstance(each, str) and _version(each)]
    return found


def _service_targets(
    target: NetReachTarget, name: str, service: TargetService | None, near: Surroundings
) -> list[HttpTarget]:
    port = service.http if service is not None else None
    of_service = service.metadata.name if service is not None else ""
    balanced = service.status.address if service is not None else ""
    cluster_ip = service.spec.cluster_ip if service is not None else ""
    candidates = (
        (target.cluster_ip, "Cluster", cluster_ip, port.port if port else 0, "no cluster address"),
        (target.node_port, "NodePort", near.node_ip, port.node_port if port else 0, "no node port"),
        (target.load_balancer, "Loadbalancer", balanced, port.port if port else 0, "no address of a load balancer"),
    )
    found = []
    for is_enabled, what, address, number, lack in candidates:
        if not is_enabled:
            continue
        label = f"Agent{what}{name}IP_{of_service}_{address}:{number}"
        is_there = bool(address) and address != "None" and bool(number)
        problem = "" if is_there else f"Service {of_service or '?'} has {lack}"
        found.append(HttpTarget(label, _url(address, number) if is_there else "", problem=problem))
    return found


def _ingress_target(ingress: TargetIngress | None) -> HttpTarget:
    address = ingress.status.address if ingress is not None else ""
    if ingress is None or not address:
        return HttpTarget("AgentIngress_v4_", "", problem="the Ingress has no address: is there an ingress controller?")
    scheme = "https" if ingress.spec.get("tls") else "http"
    port = ingress.status.port
    host = f"[{address}]" if ":" in address else address
    url = f"{scheme}://{host}{f':{port}' if port else ''}{ingress.path}"
    return HttpTarget(f"AgentIngress_v4_{url}", url)


def http_target(spec: AppHttpHealthySpec, body: bytes, tls_folder: Path | None) -> HttpTarget:
    target = spec.target
    if target is None:
        return HttpTarget("HttpAppHealthy target", "", problem="the task has no target")
    return HttpTarget(
        "HttpAppHealthy target",
        with_scheme(target.host),
        target.method,
        parse_headers(target.header),
        body,
        target.http2,
        spec.expect.status_code if spec.expect is not None else None,
        tls_folder,
    )


def dns_targets(spec: NetdnsSpec, services: Iterable[TargetService]) -> list[DnsTarget]:
    """One per server: the user's, or every address of the Services."""
    request = spec.request or DnsRequest()
    target = spec.target
    if target is not None and target.target_user is not None:
        user = target.target_user
        return [_dns_target(user.server or "", user.port, request)]
    dns = target.target_dns if target is not None else None
    versions = [version for version, on in ((4, dns is None or dns.test_ipv4), (6, bool(dns and dns.test_ipv6))) if on]
    return [
        _dns_target(address, dns_port(service, request.protocol), request)
        for service in services
        for address in service.spec.cluster_ips or (service.spec.cluster_ip,)
        if _version(address) in versions
    ]


def dns_port(service: TargetService, protocol: str) -> int:
    """The usual port of the protocol where the Service has it, else the likeliest of its ports."""
    transport, usual = ("UDP", 53) if protocol == "udp" else ("TCP", 853 if protocol == "tcp-tls" else 53)
    ports = [each for each in service.spec.ports or () if each.port]
    fitting = [each for each in ports if each.protocol == transport] or ports
    order = sorted(fitting, key=lambda each: (each.port != usual, each.port != 53, not each.name.startswith("dns")))
    return order[0].port if order else 53


def no_dns_target(spec: NetdnsSpec) -> DnsTarget:
    """What is said where no server was found."""
    dns = spec.target.target_dns if spec.target is not None else None
    if dns is not None and dns.service_name:
        where = f"Service {dns.service_namespace or 'kube-system'}/{dns.service_name}"
        problem = f"there is no {where}, or it has no cluster address of the families that are tested"
    else:
        problem = "the cluster's DNS was not found in kube-system: name it in targetDns.serviceName"
    return DnsTarget("DNS server", "", 0, (spec.request or DnsRequest()).domain, problem=problem)


def _dns_target(given: str, port: int, request: DnsRequest) -> DnsTarget:
    server = given.removeprefix("[").removesuffix("]")  # as an IPv6 address is written beside a port
    record: Literal["A", "AAAA"] = "AAAA" if _version(server) == 6 else "A"
    problem = "" if server else "the target names no server"
    return DnsTarget(
        f"type{record}_{server}_{request.domain}", server, port, request.domain, record, request.protocol, problem
    )


def request_of(spec: NetReachSpec | AppHttpHealthySpec | NetdnsSpec) -> HttpRequest | DnsRequest:
    """What is sent; where the task does not say, and no webhook has filled it in, the default."""
    if spec.request is not None:
        return spec.request
    return DnsRequest() if isinstance(spec, NetdnsSpec) else HttpRequest(qps=10, per_request_timeout_in_ms=500)


def load_qps(spec: NetReachSpec | AppHttpHealthySpec | NetdnsSpec) -> int:
    """The load of a task as reports add it up: pods do not multiply it."""
    qps = request_of(spec).qps
    if not isinstance(spec, NetReachSpec):
        return qps
    target = spec.target or NetReachTarget()
    families = int(target.ipv4) + int(target.ipv6)
    cases = sum((target.endpoint, target.multus_interface, target.cluster_ip, target.node_port, target.load_balancer))
    return qps * (families * cases + int(target.ingress and target.ipv4))
