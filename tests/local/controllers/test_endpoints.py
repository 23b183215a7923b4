"""Which addresses a Service's slices hold, and how they are packed."""

from typing import Any

import pytest

from fairlead.local.controllers.endpoints import MOST, ServiceInput, plan_endpoints
from fairlead.local.controllers.spec import ControllerPod, EndpointSlice, Service
from fairlead.model.intents import Intent
from tests.local.controllers.builders import APP, NOW, bodies, decoded, metadata, patches, pod, said


def service(ports: list[dict[str, Any]] | None = None, labels: dict[str, str] | None = None, **spec: Any) -> Service:
    ports = ports if ports is not None else [{"port": 80, "protocol": "TCP"}]
    body = {"selector": APP, "clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "ports": ports, **spec}
    return decoded(Service, {"metadata": metadata("web", labels=labels or {}), "spec": body})


def backend(number: int, **more: Any) -> ControllerPod:
    status = {"podIP": f"10.1.{number >> 8}.{number & 255}"}
    return pod(f"p{number:04}", status={**status, **more.pop("addresses", {})}, **more)


def seen(owner: Service, pods: list[ControllerPod], slices: list[dict[str, Any]] | None = None) -> ServiceInput:
    held = (decoded(EndpointSlice, {**body, "metadata": {**body["metadata"], "uid": "u"}}) for body in slices or ())
    return ServiceInput(owner, tuple(pods), tuple(held), {"n1": "z1"})


def made(owner: Service, pods: list[ControllerPod]) -> list[dict[str, Any]]:
    return bodies(plan_endpoints(seen(owner, pods), NOW))


def conditions(intents_or_bodies: list[dict[str, Any]]) -> list[dict[str, bool]]:
    return [endpoint["conditions"] for body in intents_or_bodies for endpoint in body["endpoints"]]


@pytest.mark.parametrize(
    ("how", "publish", "wanted"),
    [
        pytest.param({}, False, (True, True, False), id="ready"),
        pytest.param({"ready": False}, False, (False, False, False), id="not ready"),
        pytest.param({"ready": False}, True, (True, False, False), id="not ready but published"),
        pytest.param({"going": True}, False, (False, True, True), id="going but still serving"),
    ],
)
def test_what_may_be_sent_to_a_pod(how: dict[str, Any], publish: bool, wanted: tuple[bool, bool, bool]) -> None:
    owner = service(publishNotReadyAddresses=publish)
    names = ("ready", "serving", "terminating")
    assert conditions(made(owner, [backend(1, **how)])) == [dict(zip(names, wanted, strict=True))]


def test_pods_without_an_address_and_ended_ones_are_left_out() -> None:
    (body,) = made(service(), [backend(1, phase="Succeeded"), pod("unborn")])
    assert (body["endpoints"], body["ports"]) == ([], [])


def test_a_slice_is_told_whose_it_is() -> None:
    (body,) = made(service(labels={"team": "a"}), [backend(1)])
    assert body["metadata"]["labels"] == {
        "team": "a",
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    (endpoint,) = body["endpoints"]
    assert (endpoint["nodeName"], endpoint["zone"], endpoint["targetRef"]["name"]) == ("n1", "z1", "p0001")


def test_a_headless_service_names_its_pods() -> None:
    spec = {"hostname": "db-0", "subdomain": "web"}
    (body,) = made(service(clusterIP="None"), [backend(1, spec=spec)])
    assert body["metadata"]["labels"]["service.kubernetes.io/headless"] == ""
    assert body["endpoints"][0]["hostname"] == "db-0"


def test_a_named_port_is_what_each_pod_says_it_is() -> None:
    owner = service([{"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"}])
    ports = [{"name": "web", "containerPort": number, "protocol": "TCP"} for number in (8080, 9090)]
    pods = [backend(number, spec={"containers": [{"name": "c", "ports": [port]}]}) for number, port in enumerate(ports)]
    held = sorted((body["ports"][0]["port"], len(body["endpoints"])) for body in made(owner, pods))
    assert held == [(8080, 1), (9090, 1)]


def test_addresses_of_both_families_are_kept_apart() -> None:
    both = {"podIPs": [{"ip": "10.1.0.1"}, {"ip": "fd00::1"}]}
    held = made(service(ipFamilies=["IPv4", "IPv6"]), [backend(1, addresses=both)])
    assert [(body["addressType"], body["endpoints"][0]["addresses"]) for body in held] == [
        ("IPv4", ["10.1.0.1"]),
        ("IPv6", ["fd00::1"]),
    ]


def test_no_slice_holds_more_than_a_hundred_and_all_are_held() -> None:
    held = made(service(), [backend(number) for number in range(250)])
    assert [len(body["endpoints"]) for body in held] == [MOST, MOST, 50]
    assert len({body["metadata"]["name"] for body in held}) == 3


def test_what_has_not_changed_is_not_written() -> None:
    pods = [backend(number) for number in range(150)]
    held = made(service(), pods)
    assert plan_endpoints(seen(service(), pods, held), NOW) == []


def test_a_change_touches_only_the_slice_it_is_in_and_room_is_filled() -> None:
    pods = [backend(number) for number in range(150)]
    held = made(service(), pods)
    changed: list[Intent] = plan_endpoints(seen(service(), [*pods[1:], backend(500)], held), NOW)
    assert list(patches(changed)) == [held[0]["metadata"]["name"]]
    assert said(changed) == [f"patch {held[0]['metadata']['name']}"]


def test_a_service_without_pods_keeps_one_empty_slice() -> None:
    (empty,) = made(service(), [])
    assert plan_endpoints(seen(service(), [], [empty]), NOW) == []


def test_a_slice_that_is_no_longer_wanted_becomes_one_that_is() -> None:
    (empty,), (full,) = made(service(), []), made(service(), [backend(1)])
    name = full["metadata"]["name"]
    emptied: list[Intent] = plan_endpoints(seen(service(), [], [full]), NOW)
    assert patches(emptied)[name] == {"endpoints": [], "ports": []}
    filled: list[Intent] = plan_endpoints(seen(service(), [backend(1)], [empty]), NOW)
    patch = patches(filled)[empty["metadata"]["name"]]
    assert (patch["endpoints"], patch["ports"]) == (full["endpoints"], full["ports"])
    assert len(emptied) == len(filled) == 1


def test_a_service_without_a_selector_is_somebody_elses() -> None:
    assert plan_endpoints(seen(service(selector=None), [backend(1)]), NOW) == []
