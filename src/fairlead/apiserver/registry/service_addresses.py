"""Which addresses and node ports Services have: each handed out once, kept over updates, given back."""

import copy
import ipaddress
from collections.abc import Mapping
from typing import Any

from fairlead.apiserver.failures import internal, invalid
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation.core import services
from fairlead.apiserver.validation.errors import Errors, FieldError, bounded

_WITH_NODE_PORTS = ("NodePort", "LoadBalancer")


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
    def give(self, key: str, service: JsonObject, *, is_new: bool) -> None:
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
                _refuse(service, field.invalid("spec.clusterIPs", [address], why))
            elif is_new and not self._is_ours(address):
                why = f"failed to allocate IP {address}: the provided network does not match the current range"
                _refuse(service, field.invalid("spec.clusterIPs", [address], why))
            spec["clusterIPs"] = [address]
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        if kind in _WITH_NODE_PORTS and spec.get("allocateLoadBalancerNodePorts", True):
            for number, port in enumerate(spec.get("ports") or ()):
                protocol, path = port.get("protocol", "TCP"), f"spec.ports[{number}].nodePort"
                if not port.get("nodePort"):
                    port["nodePort"] = self._free_port(protocol)
                elif is_new and port["nodePort"] not in self._ports:
                    valid = f"{self._ports[0]}-{self._ports[-1]}"
                    why = f"provided port is not in the valid range. The range of valid ports is {valid}"
                    _refuse(service, field.invalid(path, port["nodePort"], why))
                elif self._ports_taken.get((protocol, port["nodePort"]), key) != key:
                    _refuse(service, field.invalid(path, port["nodePort"], "provided port is already allocated"))
        self.learn(key, service)

    @staticmethod
    def _give_families(service: JsonObject, *, alone: bool) -> None:
        """Which families a new Service is of; one without address or pods of its own may be of any."""
        spec = service["spec"]
        policy = spec.setdefault("ipFamilyPolicy", "RequireDualStack" if alone else "SingleStack")
        _refuse(service, *services.cluster_ips(spec))
        errors: Errors = []
        given, families = spec.get("clusterIPs") or [], spec.get("ipFamilies") or []
        if policy == "SingleStack":
            for number, what in ((len(given), "cluster IPs"), (len(families), "IP families")):
                if number == 2:
                    why = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                    errors.append(field.invalid("spec.ipFamilyPolicy", policy, why))
        for index, address in enumerate(given):
            if index >= len(families) and ":" in address:
                why = "IPv6 is not configured on this cluster"
                errors.append(field.invalid(f"spec.clusterIPs[{index}]", given, why))
        _refuse(service, *errors)
        families = families or ["IPv4"]
        if alone:
            if len(families) < 2 and policy != "SingleStack":
                families = [families[0], "IPv6" if families[0] == "IPv4" else "IPv4"]
        else:
            if policy == "RequireDualStack":
                why = "this cluster is not configured for dual-stack services"
                errors.append(field.invalid("spec.ipFamilyPolicy", policy, why))
            for index, family in enumerate(families):
                if family != "IPv4":
                    errors.append(field.invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster"))
            _refuse(service, *errors)
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
    had, has = (each.get("type") in _WITH_NODE_PORTS for each in (before, spec))

    def drop(*names: str) -> None:
        if all(spec.get(name) == before.get(name) for name in names):
            for name in names:
                spec.pop(name, None)

    if spec.get("type") == "ExternalName" != before.get("type"):
        drop("clusterIP", "clusterIPs")
        drop("ipFamilies")
        drop("ipFamilyPolicy")
    if had and not has:
        ports, were = ([port.get("nodePort") for port in each.get("ports") or ()] for each in (spec, before))
        if ports == were:
            for port in spec.get("ports") or ():
                port.pop("nodePort", None)
        drop("externalTrafficPolicy")
    if before.get("type") == "LoadBalancer" != spec.get("type"):
        for name in ("allocateLoadBalancerNodePorts", "loadBalancerClass", "healthCheckNodePort"):
            drop(name)
    if spec.get("type") != "LoadBalancer" and "status" in new:
        new["status"]["loadBalancer"] = {}


def keep_what_was_given(new: JsonObject, old: JsonObject) -> None:
    """Addresses and node ports a writer left out stay as they were."""
    spec, before = new["spec"], old["spec"]
    if "ExternalName" not in (spec.get("type"), before.get("type")):
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if not spec.get(name) and before.get(name):
                spec[name] = copy.deepcopy(before[name])
    if spec.get("type") in _WITH_NODE_PORTS and before.get("type") in _WITH_NODE_PORTS:
        given = {each.get("name", ""): each.get("nodePort") for each in before.get("ports") or ()}
        used = {each.get("nodePort") for each in spec.get("ports") or ()}
        for port in spec.get("ports") or ():
            known = given.get(port.get("name", ""))
            if not port.get("nodePort") and known and known not in used:
                port["nodePort"] = known


def _refuse(service: JsonObject, *errors: FieldError) -> None:
    if errors:
        raise invalid("", "Service", service["metadata"]["name"], *errors)
