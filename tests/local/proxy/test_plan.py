"""Services and endpoint slices → addresses, names, variables."""

from ipaddress import IPv4Network
from typing import Any

import msgspec
import pytest

from fairlead.local.proxy.plan import Route, plan_balancers, plan_names, plan_routes, service_env
from fairlead.local.proxy.spec import EndpointSlice, Service

NETWORK = IPv4Network("127.96.0.0/12")


def service(name: str = "web", ip: str = "127.96.0.5", namespace: str = "ns", **spec: Any) -> Service:
    ports = spec.pop("ports", [{"port": 80}])
    body = {"metadata": {"name": name, "namespace": namespace}, "spec": {"clusterIP": ip, "ports": ports, **spec}}
    return msgspec.convert(body, Service)


def endpoints(*addresses: str, service: str = "web", port: int = 8080, **rest: Any) -> EndpointSlice:
    return msgspec.convert(
        {
            "metadata": {
                "name": f"{service}-1",
                "namespace": "ns",
                "labels": {"kubernetes.io/service-name": service},
            },
            "addressType": "IPv4",
            "ports": rest.pop("ports", [{"name": "", "port": port}]),
            "endpoints": rest.pop("endpoints", [{"addresses": [address]} for address in addresses]),
        },
        EndpointSlice,
    )


def routes(*services: Service, slices: tuple[EndpointSlice, ...] = ()) -> dict[tuple[str, int], Route]:
    return plan_routes(services, slices, network=NETWORK, node_addresses=("127.0.0.1", "127.1.0.1"))


def test_a_cluster_address_leads_to_ready_endpoints() -> None:
    ready = [
        {"addresses": ["127.64.0.1"], "conditions": {"ready": True}},
        {"addresses": ["127.64.0.2"], "conditions": {"ready": False}},
        {"addresses": ["127.64.0.3"]},
    ]
    found = routes(service(), slices=(endpoints(endpoints=ready),))
    assert found == {("127.96.0.5", 80): Route("ns/web", (("127.64.0.1", 8080), ("127.64.0.3", 8080)))}


def test_node_ports_are_served_too() -> None:
    found = routes(service(ports=[{"port": 80, "nodePort": 30080}]), slices=(endpoints("127.64.0.1"),))
    assert found["127.0.0.1", 30080] == found["127.96.0.5", 80]


def test_ports_are_matched_by_name() -> None:
    ports = [{"name": "http", "port": 80}, {"name": "admin", "port": 81}]
    slices = (endpoints("127.64.0.1", ports=[{"name": "admin", "port": 9}, {"name": "http", "port": 8}]),)
    found = routes(service(ports=ports), slices=slices)
    assert {address[1]: route.backends[0][1] for address, route in found.items()} == {80: 8, 81: 9}


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(service(ip="None"), id="headless"),
        pytest.param(service(ip="10.0.0.1"), id="an address that is not ours"),
        pytest.param(service(type="ExternalName", ip=""), id="external name"),
        pytest.param(service(ports=[{"port": 53, "protocol": "SCTP"}]), id="SCTP"),
    ],
)
def test_what_cannot_be_served_is_left_out(odd: Service) -> None:
    assert routes(odd, slices=(endpoints("127.64.0.1"),)) == {}


def test_a_service_without_endpoints_has_no_backends() -> None:
    assert routes(service()) == {("127.96.0.5", 80): Route("ns/web")}


def test_names_of_services_and_of_pods_behind_headless_ones() -> None:
    ready = [{"addresses": ["127.64.0.1"], "hostname": "db-0"}, {"addresses": ["127.64.0.2"], "hostname": "db-1"}]
    slices = (endpoints(service="db", endpoints=ready),)
    names = plan_names([service(), service("db", ip="None")], slices)
    inside, outside = names.within("ns"), names.within("elsewhere")
    assert inside["web"] == inside["web.ns"] == inside["web.ns.svc"] == ("127.96.0.5",)
    assert inside["web.ns.svc.cluster.local"] == ("127.96.0.5",)
    assert inside["db"] == ("127.64.0.1", "127.64.0.2")
    assert inside["db-1.db.ns.svc"] == inside["db-1.db"] == ("127.64.0.2",)
    assert "web" not in outside
    assert outside["web.ns"] == ("127.96.0.5",)


def test_an_external_name_is_another_name_for_one_of_ours() -> None:
    alias = service("also", ip="", type="ExternalName", externalName="web.ns.svc.cluster.local")
    far = service("far", ip="", type="ExternalName", externalName="example.com")
    inside = plan_names([alias, far, service()], ()).within("ns")
    assert inside["also"] == inside["also.ns.svc"] == ("127.96.0.5",)
    assert "far" not in inside


def test_variables_tell_addresses_as_kubernetes_does() -> None:
    kubernetes = service("kubernetes", ip="127.96.0.1", namespace="default", ports=[{"name": "https", "port": 443}])
    env = service_env([service("my-web"), service("other", namespace="x"), kubernetes], "ns", ("127.0.0.1", 6443))
    assert env["MY_WEB_SERVICE_HOST"] == "127.96.0.5"
    assert env["MY_WEB_SERVICE_PORT"] == "80"
    assert env["MY_WEB_PORT_80_TCP"] == "tcp://127.96.0.5:80"
    assert (env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"]) == ("127.0.0.1", "6443")
    assert "OTHER_SERVICE_HOST" not in env


def test_udp_and_tcp_of_one_port_are_routes_of_their_own() -> None:
    dns = service(ports=[{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53}])
    ports = [{"name": "dns", "port": 5353, "protocol": "UDP"}, {"name": "dns-tcp", "port": 5354, "protocol": "TCP"}]
    slices = (endpoints("127.64.0.1", ports=ports),)
    over = {
        protocol: plan_routes([dns], slices, network=NETWORK, node_addresses=(), protocol=protocol)
        for protocol in ("TCP", "UDP")
    }
    assert over["UDP"]["127.96.0.5", 53].backends == (("127.64.0.1", 5353),)
    assert over["TCP"]["127.96.0.5", 53].backends == (("127.64.0.1", 5354),)


def test_a_load_balancer_keeps_its_address_and_no_two_have_the_same() -> None:
    network = IPv4Network("127.112.0.0/29")
    many = [
        msgspec.structs.replace(each, metadata=msgspec.structs.replace(each.metadata, uid=f"u{number}"))
        for number, each in enumerate(service(f"lb-{number}", type="LoadBalancer") for number in range(6))
    ]
    found = plan_balancers(many, network)
    assert len(set(found.values())) == 6
    kept = msgspec.convert({"loadBalancer": {"ingress": [{"ip": found["ns/lb-3"]}]}}, type(many[0].status))
    again = [msgspec.structs.replace(many[3], status=kept), service("later", type="LoadBalancer")]
    assert plan_balancers(again, network)["ns/lb-3"] == found["ns/lb-3"]


def test_a_load_balancer_of_another_class_is_not_ours() -> None:
    assert plan_balancers([service(type="LoadBalancer", loadBalancerClass="x.io/lb"), service()], NETWORK) == {}
