"""Which addresses and node ports Services have: each handed out once, kept over updates, given back."""

import copy
import ipaddress
from collections.abc import Mapping
from typing import Any

from fairlead.apiserver.failures import Failure, internal, invalid
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.validation.core import services
from fairlead.apiserver.validation.errors import Errors, bounded
from fairlead.apiserver.validation.errors import invalid as invalid_field


class Addresses:
    """Cluster addresses and node ports of Services: each handed out once."""

    def __init__(self, network: str, first_port: int, last_port: int) -> None:
        self._network = ipaddress.ip_network(network)
        self._ports = range(first_port, last_port + 1)
        self._taken: dict[str, str] = {}
        self._ports_taken: dict[tuple[str, int], str] = {}
        self._next = 10
        self._next_port = 0

    def learn(self, key: str, service: Mapping[str, Any]) -> None:
        """Take note of what a Service holds; of one that is gone with an empty mapping."""
        self._taken = {address: owner for address, owner in self._taken.items() if owner != key}
        self._ports_taken = {port: owner for port, owner in self._ports_taken.items() if owner != key}
        spec = service.get("spec") or {}
        for address in spec.get("clusterIPs") or ():
            if address != "None":
                self._taken[address] = key
        for port in spec.get("ports") or ():
            if port.get("nodePort"):
                self._ports_taken[port.get("protocol", "TCP"), port["nodePort"]] = key

    @bounded()
    def give(self, key: str, service: JsonObject, *, is_new: bool = True) -> None:
        """Complete a Service's spec with the addresses and ports it needs and does not name.

        A Service that had an address keeps it: whether it may name another is for validation to say.
        """
        spec = service["spec"]
        kind = spec.get("type", "ClusterIP")
        if kind == "ExternalName":
            return
        address = spec.get("clusterIP") or ""
        if address and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [address]
        if is_new:
            self._give_families(service, alone=address == "None" and not spec.get("selector"))
        if address == "None":
            spec["clusterIPs"] = ["None"]
        else:
            if not address:
                spec["clusterIP"] = address = self._free_address(service["metadata"]["name"])
            elif is_new and self._taken.get(address, key) != key:
                why = f"failed to allocate IP {address}: provided IP is already allocated"
                raise _service_invalid(service, "spec.clusterIPs", [address], why)
            elif is_new and not self._is_ours(address):
                why = f"failed to allocate IP {address}: the provided network does not match the current range"
                raise _service_invalid(service, "spec.clusterIPs", [address], why)
            spec["clusterIPs"] = [address]
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        if kind in ("NodePort", "LoadBalancer") and spec.get("allocateLoadBalancerNodePorts", True):
            for number, port in enumerate(spec.get("ports") or ()):
                protocol = port.get("protocol", "TCP")
                if not port.get("nodePort"):
                    port["nodePort"] = self._free_port(protocol)
                elif is_new and port["nodePort"] not in self._ports:
                    where, valid = f"spec.ports[{number}].nodePort", f"{self._ports[0]}-{self._ports[-1]}"
                    why = f"provided port is not in the valid range. The range of valid ports is {valid}"
                    raise _service_invalid(service, where, port["nodePort"], why)
                elif self._ports_taken.get((protocol, port["nodePort"]), key) != key:
                    where, why = f"spec.ports[{number}].nodePort", "provided port is already allocated"
                    raise _service_invalid(service, where, port["nodePort"], why)
        self.learn(key, service)

    @staticmethod
    def _give_families(service: JsonObject, *, alone: bool) -> None:
        """Which families a new Service is of; one without address or pods of its own may be of any."""
        spec = service["spec"]
        policy = spec.setdefault("ipFamilyPolicy", "RequireDualStack" if alone else "SingleStack")
        errors = list(services.cluster_ips(spec))
        _refuse(service, errors)
        given, families = spec.get("clusterIPs") or [], spec.get("ipFamilies") or []
        if policy == "SingleStack":
            for number, what in ((len(given), "cluster IPs"), (len(families), "IP families")):
                if number == 2:
                    why = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                    errors.append(invalid_field("spec.ipFamilyPolicy", policy, why))
        for index, address in enumerate(given):
            if index >= len(families) and ":" in address:
                errors.append(
                    invalid_field(f"spec.clusterIPs[{index}]", given, "IPv6 is not configured on this cluster")
                )
        _refuse(service, errors)
        families = families or ["IPv4"]
        if alone:
            if len(families) < 2 and policy != "SingleStack":
                families = [families[0], "IPv6" if families[0] == "IPv4" else "IPv4"]
        else:
            if policy == "RequireDualStack":
                errors.append(
                    invalid_field(
                        "spec.ipFamilyPolicy", policy, "this cluster is not configured for dual-stack services"
                    )
                )
            for index, family in enumerate(families):
                if family != "IPv4":
                    errors.append(invalid_field(f"spec.ipFamilies[{index}]", family, "not configured on this cluster"))
            _refuse(service, errors)
        spec["ipFamilies"] = families

    def _is_ours(self, address: str) -> bool:
        try:
            return ipaddress.ip_address(address) in self._network
        except ValueError:
            return True  # no address at all: validation says so better

    def _free_address(self, service: str) -> str:
        for _ in range(self._network.num_addresses):
            address = str(self._network[self._next])
            self._next = 10 + (self._next - 9) % (self._network.num_addresses - 20)
            if address not in self._taken:
                return address
        raise internal(f'failed to allocate a serviceIP for Service "{service}": range is full')

    def _free_port(self, protocol: str) -> int:
        for _ in self._ports:
            port = self._ports[self._next_port % len(self._ports)]
            self._next_port += 1
            if (protocol, port) not in self._ports_taken:
                return port
        raise internal("failed to allocate a nodePort: range is full")


def drop_what_the_type_has_not(new: JsonObject, old: JsonObject) -> None:
    """Remove what was allocated for the Service's former type, unless the request changed it."""
    spec, before = new["spec"], old["spec"]
    kinds = {"NodePort", "LoadBalancer"}

    def same(name: str) -> bool:
        return bool(spec.get(name) == before.get(name))

    if spec.get("type") == "ExternalName" != before.get("type"):
        if same("clusterIP") and same("clusterIPs"):
            spec.pop("clusterIP", None)
            spec.pop("clusterIPs", None)
        for name in ("ipFamilies", "ipFamilyPolicy"):
            if same(name):
                spec.pop(name, None)
    if before.get("type") in kinds and spec.get("type") not in kinds:
        if [each.get("nodePort") for each in spec.get("ports") or ()] == [
            each.get("nodePort") for each in before.get("ports") or ()
        ]:
            for port in spec.get("ports") or ():
                port.pop("nodePort", None)
        if same("externalTrafficPolicy"):
            spec.pop("externalTrafficPolicy", None)
    if before.get("type") == "LoadBalancer" != spec.get("type"):
        for name in ("allocateLoadBalancerNodePorts", "loadBalancerClass", "healthCheckNodePort"):
            if same(name):
                spec.pop(name, None)
    if spec.get("type") != "LoadBalancer" and "status" in new:
        new["status"]["loadBalancer"] = {}


def keep_what_was_given(new: JsonObject, old: JsonObject) -> None:
    """Addresses and node ports a writer left out stay as they were."""
    spec, before = new["spec"], old["spec"]
    if "ExternalName" not in (spec.get("type"), before.get("type")):
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if not spec.get(name) and before.get(name):
                spec[name] = copy.deepcopy(before[name])
    kinds = {"NodePort", "LoadBalancer"}
    if spec.get("type") in kinds and before.get("type") in kinds:
        given = {each.get("name", ""): each.get("nodePort") for each in before.get("ports") or ()}
        used = {each.get("nodePort") for each in spec.get("ports") or ()}
        for port in spec.get("ports") or ():
            known = given.get(port.get("name", ""))
            if not port.get("nodePort") and known and known not in used:
                port["nodePort"] = known


def _service_invalid(service: JsonObject, field: str, value: Any, why: str) -> Failure:
    return _failure(service, [invalid_field(field, value, why)])


def _refuse(service: JsonObject, errors: Errors) -> None:
    if errors:
        raise _failure(service, errors)


def _failure(service: JsonObject, errors: Errors) -> Failure:
    causes = [(each.type, each.message, each.field) for each in errors]
    return invalid("", "Service", service["metadata"]["name"], causes)
