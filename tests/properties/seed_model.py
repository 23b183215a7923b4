"""The seed's text as plain arithmetic, step by step and without arrays: what tests hold the engine against.

Written from the design document alone (predicates in its order, w1 to w5, round robin), over plain documents. Ratios
are rounded to millionths, as the engine keeps them, so that ties are ties for both.
"""

from collections.abc import Mapping
from fractions import Fraction
from math import floor
from typing import Any

Doc = dict[str, Any]

MIB = 2**20
CONDITIONS = {
    "Ready": ("True", "node(s) were not ready", {"False": "not-ready", "Unknown": "unreachable"}),
    "OutOfDisk": ("False", "node(s) were out of disk space", {"True": "out-of-disk", "Unknown": "out-of-disk"}),
    "NetworkUnavailable": (
        "False",
        "node(s) had unavailable network",
        {"True": "network-unavailable", "Unknown": "network-unavailable"},
    ),
}


def millionths(ratio: Fraction | float) -> float:
    return float(round(Fraction(ratio), 6))


class Model:
    """A cluster: nodes and pods by name, services by their selectors, forecasts as shares of a machine."""

    def __init__(self, nodes: list[Doc], services: Mapping[str, str], forecast: Doc) -> None:
        self.nodes = {node["name"]: node for node in nodes}
        self.services = services
        self.forecast = forecast
        self.pods: dict[str, Doc] = {}
        self.counter = 0

    def on(self, node: str) -> list[Doc]:
        return [pod for pod in self.pods.values() if pod["node"] == node]

    # -- adding -------------------------------------------------------------------------------------------------

    def add(self, pod: Doc) -> tuple[str | None, dict[str, tuple[str, list[str]]], dict[str, list[float]]]:
        """The node taken, why each other was refused (rule and reasons), and w1 to w5 of each that was not."""
        refused = {name: why for name in sorted(self.nodes) if (why := self.refusal(pod, name)) is not None}
        feasible = [name for name in sorted(self.nodes) if name not in refused]
        scores = {name: self.scores(pod, name, feasible) for name in feasible}
        if not feasible:
            return None, refused, scores
        chosen = self.pick({name: round(sum(parts), 6) for name, parts in scores.items()})
        self.pods[pod["name"]] = {**pod, "node": chosen}
        return chosen, refused, scores

    def pick(self, totals: Mapping[str, float]) -> str:
        """In turn over the highest, by name."""
        highest = [name for name in sorted(totals) if totals[name] == max(totals.values())]
        chosen = highest[self.counter % len(highest)]
        self.counter += 1
        return chosen

    def refusal(self, pod: Doc, name: str) -> tuple[str, list[str]] | None:
        for rule, check in (
            ("CheckNodeCondition", self.node_condition),
            ("NodeResourcesFit", self.resources),
            ("NodePorts", self.host_ports),
            ("NodeAffinity", self.node_selector),
            ("TaintToleration", self.taints),
            ("CheckNodeMemoryPressure", self.memory_pressure),
            ("CheckNodePIDPressure", self.pressure("PIDPressure", "pid")),
            ("CheckNodeDiskPressure", self.pressure("DiskPressure", "disk")),
            ("InterPodAffinity", self.inter_pod),
        ):
            if reasons := check(pod, name):
                return rule, reasons
        return None

    def node_condition(self, pod: Doc, name: str) -> list[str]:
        node, reasons = self.nodes[name], []
        for kind, (wanted, reason, taints) in CONDITIONS.items():
            status = node["conditions"].get(kind, wanted)
            if status != wanted and taints.get(status) not in pod["tolerates"]:
                reasons.append(reason)
        if node["cordoned"] and "unschedulable" not in pod["tolerates"]:
            reasons.append("node(s) were unschedulable")
        return reasons

    def resources(self, pod: Doc, name: str) -> list[str]:
        node, there = self.nodes[name], self.on(name)
        reasons = ["Too many pods"] if len(there) + 1 > node["pods"] else []
        for resource in ("cpu", "memory"):
            used = sum(each[resource] or 0 for each in there)
            if pod[resource] and used + pod[resource] > node[resource]:
                reasons.append(f"Insufficient {resource}")
        return reasons

    def host_ports(self, pod: Doc, name: str) -> list[str]:
        taken = {each["port"] for each in self.on(name)} - {0}
        return ["node(s) didn't have free ports for the requested pod ports"] if pod["port"] in taken else []

    def node_selector(self, pod: Doc, name: str) -> list[str]:
        zone = pod["zone"]
        fits = not zone or self.nodes[name]["zone"] == zone
        return [] if fits else ["node(s) didn't match Pod's node affinity/selector"]

    def taints(self, pod: Doc, name: str) -> list[str]:
        hard = self.nodes[name]["taint"]
        return [] if not hard or hard in pod["tolerates"] else ["node(s) had untolerated taint(s)"]

    def memory_pressure(self, pod: Doc, name: str) -> list[str]:
        promises_nothing = not pod["cpu"] and not pod["memory"]
        return self.pressure("MemoryPressure", "memory")(pod, name) if promises_nothing else []

    def pressure(self, condition: str, word: str) -> Any:
        def check(pod: Doc, name: str) -> list[str]:
            is_under = self.nodes[name]["conditions"].get(condition) == "True"
            is_let_past = f"{word}-pressure" in pod["tolerates"]
            return [f"node(s) had {word} pressure"] if is_under and not is_let_past else []

        return check

    def inter_pod(self, pod: Doc, name: str) -> list[str]:
        """Pods that keep apart from their own app, on one node; of those already there, too."""
        reasons, there = [], self.on(name)
        if pod["apart"] and any(each["app"] == pod["app"] for each in there):
            reasons.append("node(s) didn't match pod anti-affinity rules")
        elif any(each["apart"] and each["app"] == pod["app"] for each in there):
            reasons.append("node(s) didn't satisfy existing pods anti-affinity rules")
        return reasons

    def scores(self, pod: Doc, name: str, feasible: list[str]) -> list[float]:
        shares = [
            share + Fraction(self.assumed(pod, resource), self.nodes[name][resource])
            for resource, share in self.used(name)
        ]
        shares = [min(share, Fraction(1)) for share in shares]
        free = 1 - sum(shares) / 2
        even = min(shares) / max(shares) if max(shares) else Fraction(1)
        return [
            millionths(free),
            millionths(even),
            millionths(self.spread(pod, name)),
            self.soft(pod, name, feasible),
            millionths(-self.rise(name)),
        ]

    def used(self, name: str) -> list[tuple[str, Fraction]]:
        node = self.nodes[name]
        return [
            (resource, Fraction(sum(self.assumed(each, resource) for each in self.on(name)), node[resource]))
            for resource in ("cpu", "memory")
        ]

    def assumed(self, pod: Doc, resource: str) -> int:
        """A pod that asks for nothing is taken to use a little."""
        wanted: int | None = pod[resource]
        return (100 if resource == "cpu" else 200 * MIB) if wanted is None else wanted

    def spread(self, pod: Doc, name: str) -> Fraction:
        service = [each for each in self.pods.values() if self.is_served(pod) and each["app"] == pod["app"]]
        here = sum(each["node"] == name for each in service)
        return 1 - Fraction(here, len(service)) if service else Fraction(1)

    def is_served(self, pod: Doc) -> bool:
        return pod["app"] in self.services.values()

    def soft(self, pod: Doc, name: str, feasible: list[str]) -> float:
        """The mean of the soft rules that have a word: a wished-for disk, if any, and taints to be avoided."""
        parts = []
        if pod["wishes"]:
            degrees = {each: 7 if self.nodes[each]["disk"] == pod["wishes"] else 0 for each in feasible}
            most = max(degrees.values())
            parts.append(100 * degrees[name] // most if most else 0)
        avoided = {each: int(bool(self.nodes[each]["soft_taint"])) for each in feasible}
        most = max(avoided.values())
        parts.append(100 - 100 * avoided[name] // most if most else 100)
        return floor(Fraction(sum(parts) * 10**6, 100 * len(parts))) / 10**6

    def rise(self, name: str) -> float:
        """The node's own forecast, else that of the services whose pods it runs."""
        own = self.forecast["nodes"].get(name)
        if own is None:
            own = sum(
                change * sum(pod["app"] == self.services[service] for pod in self.on(name))
                for service, change in self.forecast["services"].items()
            )
        return max(-1.0, min(1.0, float(own)))

    # -- removing -----------------------------------------------------------------------------------------------

    def remove(self, app: str) -> tuple[str, str, dict[str, list[float]]] | None:
        """The pod that goes, its node, and w1, w2, w3 and w5 of each node that has one; None when there is none."""
        nodes = sorted({pod["node"] for pod in self.pods.values() if pod["app"] == app})
        if not nodes:
            return None
        scores = {name: self.removal_scores(app, name) for name in nodes}
        chosen = self.pick({name: round(sum(parts), 6) for name, parts in scores.items()})
        # Of equally old and ready pods the newest goes; ages are told apart by their powers of two only.
        goes = min((pod for pod in self.on(chosen) if pod["app"] == app), key=lambda pod: (pod["age"], pod["name"]))
        del self.pods[goes["name"]]
        return goes["name"], chosen, scores

    def removal_scores(self, app: str, name: str) -> list[float]:
        service = [pod for pod in self.pods.values() if pod["app"] == app]
        here = [pod for pod in service if pod["node"] == name]
        shares = [
            min(share - Fraction(self.assumed(here[0], resource), self.nodes[name][resource]), Fraction(1))
            for resource, share in self.used(name)
        ]
        # Busy nodes come first, so nothing left is not as even as can be.
        even = min(shares) / max(shares) if max(shares) else Fraction(0)
        return [
            millionths(sum(shares) / 2),
            millionths(even),
            millionths(Fraction(len(here), len(service))),
            millionths(self.rise(name)),
        ]
