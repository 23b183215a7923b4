"""The scalar twin: kube-scheduler 1.36's rules written once more, node by node and pod by pod, over plain documents.

It shares no code with the engine, so that the two can be held against each other on worlds nobody thought of.
"""

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

Doc = dict[str, Any]
Labels = dict[str, str]

SUFFIXES = {"m": Fraction(1, 1000), "k": Fraction(1000), "Mi": Fraction(2**20), "Gi": Fraction(2**30)}


def number(text: Any) -> Fraction:
    text = str(text)
    for suffix, factor in SUFFIXES.items():
        if text.endswith(suffix):
            return Fraction(text.removesuffix(suffix)) * factor
    return Fraction(text)


def up(value: Fraction) -> int:
    return math.ceil(value)


def amount(name: str, value: Fraction) -> int:
    return up(value * 1000) if name == "cpu" else up(value)


def requests_of(pod: Doc, *, assume: bool = False) -> dict[str, Fraction]:
    def of(container: Doc) -> dict[str, Fraction]:
        found = {k: number(v) for k, v in container.get("resources", {}).get("requests", {}).items()}
        if assume:
            found.setdefault("cpu", Fraction(1, 10))
            found.setdefault("memory", Fraction(200 * 2**20))
        return found

    spec = pod["spec"]
    names = {name for c in (*spec["containers"], *spec.get("initContainers", ())) for name in of(c)}
    names |= set(spec.get("overhead", {}))
    total: dict[str, Fraction] = {}
    for name in names:
        running = sum((of(c).get(name, Fraction(0)) for c in spec["containers"]), Fraction(0))
        sidecars = peak = Fraction(0)
        for container in spec.get("initContainers", ()):
            own = of(container).get(name, Fraction(0))
            if container.get("restartPolicy") == "Always":
                running += own
                sidecars += own
                peak = max(peak, sidecars)
            else:
                peak = max(peak, own + sidecars)
        total[name] = max(running, peak) + number(spec.get("overhead", {}).get(name, 0))
    return total


def requirement_holds(labels: Labels, requirement: Doc) -> bool:
    value = labels.get(requirement["key"])
    values = requirement.get("values", [])
    match requirement["operator"]:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            try:
                left, right = int(value or "x"), int(values[0])
            except ValueError:
                return False
            return left > right if operator == "Gt" else left < right
    raise AssertionError(requirement)


def selects(selector: Doc | None, labels: Labels) -> bool:
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    return all(requirement_holds(labels, each) for each in selector.get("matchExpressions", ()))


def tolerates(pod: Doc, taint: Doc) -> bool:
    for toleration in pod["spec"].get("tolerations", ()):
        if toleration.get("effect") and toleration["effect"] != taint["effect"]:
            continue
        if toleration.get("key") and toleration["key"] != taint["key"]:
            continue
        operator = toleration.get("operator", "Equal")
        if operator == "Exists" or (operator == "Equal" and toleration.get("value", "") == taint.get("value", "")):
            return True
    return False


class Twin:
    def __init__(self, world: Doc, pod: Doc) -> None:
        self.nodes: list[Doc] = world["nodes"]
        self.pod = pod
        self.namespaces = {n["metadata"]["name"]: n["metadata"].get("labels", {}) for n in world["namespaces"]}
        self.services: list[Doc] = world.get("services", [])
        self.controllers: list[Doc] = world.get("controllers", [])
        self.on: dict[str, list[Doc]] = {node["metadata"]["name"]: [] for node in self.nodes}
        for placed in world["pods"]:
            name = placed["spec"].get("nodeName", "")
            if name in self.on and placed.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                self.on[name].append(placed)
        self.filters: dict[str, Callable[[Doc], set[str]]] = {
            "NodeUnschedulable": self.cordoned,
            "TaintToleration": self.tainted,
            "NodeAffinity": self.unwished,
            "NodePorts": self.port_taken,
            "NodeResourcesFit": self.full,
            "PodTopologySpread": self.skewed,
            "InterPodAffinity": self.company,
        }

    @staticmethod
    def labels(thing: Doc) -> Labels:
        labels: Labels = thing["metadata"].get("labels", {})
        return labels

    def everybody(self) -> Iterable[tuple[Doc, Doc]]:
        return ((node, pod) for node in self.nodes for pod in self.on[node["metadata"]["name"]])

    # Filters: the reasons against a node

    def cordoned(self, node: Doc) -> set[str]:
        cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        if node.get("spec", {}).get("unschedulable") and not tolerates(self.pod, cordon):
            return {"node(s) were unschedulable"}
        return set()

    def tainted(self, node: Doc) -> set[str]:
        hard = [t for t in node.get("spec", {}).get("taints", ()) if t["effect"] in ("NoSchedule", "NoExecute")]
        return set() if all(tolerates(self.pod, t) for t in hard) else {"node(s) had untolerated taint(s)"}

    def wished(self, node: Doc) -> bool:
        labels = self.labels(node)
        spec = self.pod["spec"]
        if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
            return False
        required = (
            spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
        )
        return required is None or any(self.term_holds(node, term) for term in required["nodeSelectorTerms"])

    def term_holds(self, node: Doc, term: Doc) -> bool:
        expressions, fields = term.get("matchExpressions", []), term.get("matchFields", [])
        if not expressions and not fields:
            return False
        named = {"metadata.name": node["metadata"]["name"]}
        return all(requirement_holds(self.labels(node), e) for e in expressions) and all(
            requirement_holds(named, f) for f in fields
        )

    def unwished(self, node: Doc) -> set[str]:
        return set() if self.wished(node) else {"node(s) didn't match Pod's node affinity/selector"}

    def port_taken(self, node: Doc) -> set[str]:
        def ports(pod: Doc) -> set[tuple[str, str, int]]:
            sidecars = [c for c in pod["spec"].get("initContainers", ()) if c.get("restartPolicy") == "Always"]
            return {
                (p.get("hostIP") or "0.0.0.0", p.get("protocol") or "TCP", p["hostPort"])
                for c in (*pod["spec"]["containers"], *sidecars)
                for p in c.get("ports", ())
                if p.get("hostPort", 0) > 0
            }

        for ip, protocol, port in ports(self.pod):
            for placed in self.on[node["metadata"]["name"]]:
                for other_ip, other_protocol, other_port in ports(placed):
                    same = (protocol, port) == (other_protocol, other_port)
                    if same and ("0.0.0.0" in (ip, other_ip) or ip == other_ip):
                        return {"node(s) didn't have free ports for the requested pod ports"}
        return set()

    def used(self, node: Doc, name: str, *, assume: bool = False) -> int:
        placed = self.on[node["metadata"]["name"]]
        return sum(amount(name, requests_of(pod, assume=assume).get(name, Fraction(0))) for pod in placed)

    @staticmethod
    def has(node: Doc, name: str) -> int:
        return amount(name, number(node["status"]["allocatable"].get(name, 0)))

    def full(self, node: Doc) -> set[str]:
        reasons = set()
        if len(self.on[node["metadata"]["name"]]) + 1 > self.has(node, "pods"):
            reasons.add("Too many pods")
        for name, value in requests_of(self.pod).items():
            wanted = amount(name, value)
            if wanted > 0 and wanted > self.has(node, name) - self.used(node, name):
                reasons.add(f"Insufficient {name}")
        return reasons

    def counts(self, pod: Doc, constraint: Doc) -> bool:
        """Whether a placed pod is counted by a spread constraint; {} selects nobody, as in Kubernetes."""
        selector = constraint.get("labelSelector")
        own = {k: self.labels(self.pod)[k] for k in constraint.get("matchLabelKeys", ()) if k in self.labels(self.pod)}
        empty = selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions")
        if (empty and not own) or pod["metadata"].get("deletionTimestamp"):
            return False
        if pod["metadata"]["namespace"] != self.pod["metadata"]["namespace"]:
            return False
        matches_own = all(self.labels(pod).get(k) == v for k, v in own.items())
        return matches_own and selects(selector, self.labels(pod))

    def matches_itself(self, constraint: Doc) -> bool:
        return selects(constraint.get("labelSelector"), self.labels(self.pod))

    def included(self, node: Doc, constraint: Doc) -> bool:
        if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not self.wished(node):
            return False
        return constraint.get("nodeTaintsPolicy", "Ignore") == "Ignore" or not self.tainted(node)

    def hard(self) -> list[Doc]:
        own = self.pod["spec"].get("topologySpreadConstraints", [])
        return [c for c in own if c["whenUnsatisfiable"] == "DoNotSchedule"]

    def skewed(self, node: Doc) -> set[str]:
        constraints = self.hard()
        for constraint in constraints:
            key = constraint["topologyKey"]
            if key not in self.labels(node):
                return {"node(s) didn't match pod topology spread constraints (missing required label)"}
            count: dict[str, int] = {}
            for other in self.nodes:
                if all(c["topologyKey"] in self.labels(other) for c in constraints) and self.included(
                    other, constraint
                ):
                    value = self.labels(other)[key]
                    here = self.on[other["metadata"]["name"]]
                    count[value] = count.get(value, 0) + sum(self.counts(pod, constraint) for pod in here)
            fewest = min(count.values(), default=2**31 - 1)
            if len(count) < constraint.get("minDomains", 1):
                fewest = 0
            after = count.get(self.labels(node)[key], 0) + self.matches_itself(constraint)
            if after - fewest > constraint["maxSkew"]:
                return {"node(s) didn't match pod topology spread constraints"}
        return set()

    def terms(self, pod: Doc, kind: str, how: str) -> list[Doc]:
        of_kind = pod["spec"].get("affinity", {}).get(kind, {})
        found: list[Doc] = of_kind.get(f"{how}DuringSchedulingIgnoredDuringExecution", [])
        return found

    def term_picks(self, owner: Doc, term: Doc, other: Doc) -> bool:
        """Whether a term of `owner` is about `other`; namespaces are those named and those selected by label."""
        namespace = other["metadata"]["namespace"]
        named = list(term.get("namespaces", []))
        if not named and "namespaceSelector" not in term:
            named = [owner["metadata"]["namespace"]]
        reached = namespace in named or selects(term.get("namespaceSelector"), self.namespaces.get(namespace, {}))
        return reached and selects(term.get("labelSelector"), self.labels(other))

    def company(self, node: Doc) -> set[str]:
        labels = self.labels(node)
        needed = self.terms(self.pod, "podAffinity", "required")

        def shares(term: Doc, other: Doc) -> bool:
            key = term["topologyKey"]
            return key in labels and self.labels(other).get(key) == labels[key]

        if needed:
            friends = [
                (n, p) for n, p in self.everybody() if all(self.term_picks(self.pod, term, p) for term in needed)
            ]
            if any(term["topologyKey"] not in labels for term in needed):
                return {"node(s) didn't match pod affinity rules"}
            if not all(any(shares(term, n) for n, _ in friends) for term in needed):
                lonely = not any(term["topologyKey"] in self.labels(n) for n, _ in friends for term in needed)
                if not (lonely and all(self.term_picks(self.pod, term, self.pod) for term in needed)):
                    return {"node(s) didn't match pod affinity rules"}
        for term in self.terms(self.pod, "podAntiAffinity", "required"):
            if any(shares(term, n) and self.term_picks(self.pod, term, p) for n, p in self.everybody()):
                return {"node(s) didn't match pod anti-affinity rules"}
        for other, placed in self.everybody():
            for term in self.terms(placed, "podAntiAffinity", "required"):
                if shares(term, other) and self.term_picks(placed, term, self.pod):
                    return {"node(s) didn't satisfy existing pods anti-affinity rules"}
        return set()

    def feasible(self) -> list[Doc]:
        return [node for node in self.nodes if not any(rule(node) for rule in self.filters.values())]

    # Scores: raw and normalised, over the feasible nodes; None where the rule keeps out of it

    def scores(self, among: list[Doc] | None = None) -> dict[str, dict[str, tuple[int, int]] | None]:
        nodes = self.feasible() if among is None else among
        raw = {
            "NodeResourcesFit": {self.name(n): self.least(n) for n in nodes},
            "MostAllocated": {self.name(n): self.most(n) for n in nodes},
            "ImageLocality": {self.name(n): self.images(n) for n in nodes},
        }
        found: dict[str, dict[str, tuple[int, int]] | None] = {
            rule: {name: (value, value) for name, value in of_nodes.items()} for rule, of_nodes in raw.items()
        }
        asks = requests_of(self.pod)
        balanced = {self.name(n): self.balanced(n) for n in nodes}
        wants_any = bool(asks.get("cpu") or asks.get("memory"))
        found["NodeResourcesBalancedAllocation"] = {n: (v, v) for n, v in balanced.items()} if wants_any else None
        found["TaintToleration"] = self.scaled({self.name(n): self.soft_taints(n) for n in nodes}, reverse=True)
        affinity = self.pod["spec"].get("affinity", {}).get("nodeAffinity", {})
        preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution")
        found["NodeAffinity"] = (
            None
            if preferred is None
            else self.scaled({self.name(n): self.preferred(n, preferred) for n in nodes}, reverse=False)
        )
        found["PodTopologySpread"] = self.spread(nodes)
        found["InterPodAffinity"] = self.attraction(nodes)
        return found

    @staticmethod
    def name(node: Doc) -> str:
        name: str = node["metadata"]["name"]
        return name

    @staticmethod
    def scaled(raw: dict[str, int], *, reverse: bool) -> dict[str, tuple[int, int]]:
        largest = max(raw.values(), default=0)

        def scale(value: int) -> int:
            if largest == 0:
                return 100 if reverse else 0
            return 100 - 100 * value // largest if reverse else 100 * value // largest

        return {name: (value, scale(value)) for name, value in raw.items()}

    def after(self, node: Doc, name: str) -> int:
        own = requests_of(self.pod, assume=True).get(name, Fraction(0))
        return self.used(node, name, assume=True) + amount(name, own)

    def least(self, node: Doc) -> int:
        parts = []
        for name in ("cpu", "memory"):
            has, used = self.has(node, name), self.after(node, name)
            if has:
                parts.append(0 if used > has else (has - used) * 100 // has)
        return sum(parts) // len(parts) if parts else 0

    def most(self, node: Doc) -> int:
        parts = []
        for name in ("cpu", "memory"):
            has, used = self.has(node, name), self.after(node, name)
            if has:
                parts.append(min(used, has) * 100 // has)
        return sum(parts) // len(parts) if parts else 0

    def balanced(self, node: Doc) -> int:
        asks = requests_of(self.pod)

        def balance(with_pod: bool) -> int:
            fractions = []
            for name in ("cpu", "memory"):
                has = self.has(node, name)
                if has:
                    used = self.used(node, name) + (amount(name, asks.get(name, Fraction(0))) if with_pod else 0)
                    fractions.append(min(used / has, 1.0))
            deviation = abs((fractions[0] - fractions[1]) / 2) if len(fractions) == 2 else 0.0
            return int((1 - deviation) * 100)

        return 50 + (50 + balance(True) - balance(False)) // 2

    def soft_taints(self, node: Doc) -> int:
        soft = [t for t in node.get("spec", {}).get("taints", ()) if t["effect"] == "PreferNoSchedule"]
        return sum(not tolerates(self.pod, t) for t in soft)

    def preferred(self, node: Doc, terms: list[Doc]) -> int:
        return sum(term["weight"] for term in terms if self.term_holds(node, term["preference"]))

    def images(self, node: Doc) -> int:
        def held(of: Doc) -> dict[str, int]:
            return {n: image["sizeBytes"] for image in of["status"].get("images", ()) for n in image["names"]}

        spec = self.pod["spec"]
        containers = (*spec.get("initContainers", ()), *spec["containers"])
        total = 0
        for container in containers:
            image = container["image"]
            if ":" not in image.rpartition("/")[2]:
                image += ":latest"
            if image in held(node):
                spread = sum(image in held(other) for other in self.nodes) / len(self.nodes)
                total += int(held(node)[image] * spread)
        least, most = 23 * 2**20, 1000 * 2**20 * len(containers)
        return 100 * (min(max(total, least), most) - least) // (most - least)

    def soft(self) -> tuple[list[Doc], bool]:
        """The soft constraints, and whether a node must carry every key to be scored."""
        own = self.pod["spec"].get("topologySpreadConstraints", [])
        if own:
            return [c for c in own if c["whenUnsatisfiable"] == "ScheduleAnyway"], True
        labels: Labels = {}
        for service in self.services:
            selector = service["spec"].get("selector")
            same = service["metadata"]["namespace"] == self.pod["metadata"]["namespace"]
            if same and selector and all(self.labels(self.pod).get(k) == v for k, v in selector.items()):
                labels |= selector
        expressions: list[Doc] = []
        for owner in self.pod["metadata"].get("ownerReferences", ()):
            for controller in self.controllers:
                of = controller["metadata"]
                same = of["namespace"] == self.pod["metadata"]["namespace"] and of["name"] == owner["name"]
                if not same or not owner["controller"] or controller["kind"] != owner["kind"]:
                    continue
                if controller["kind"] == "ReplicationController":
                    labels |= controller["spec"]["selector"]
                else:
                    wanted = controller["spec"]["selector"]["matchLabels"]
                    expressions += [{"key": k, "operator": "In", "values": [v]} for k, v in wanted.items()]
        if not labels and not expressions:
            return [], False
        selector = {"matchLabels": labels, "matchExpressions": expressions}
        return [
            {"topologyKey": key, "maxSkew": skew, "labelSelector": selector}
            for key, skew in (("kubernetes.io/hostname", 3), ("topology.kubernetes.io/zone", 5))
        ], False

    def spread(self, nodes: list[Doc]) -> dict[str, tuple[int, int]] | None:
        constraints, all_keys = self.soft()
        if not constraints:
            return None

        def carries(node: Doc) -> bool:
            return not all_keys or all(c["topologyKey"] in self.labels(node) for c in constraints)

        scored = [node for node in nodes if carries(node)]
        raw: dict[str, int] = {}
        for node in scored:
            score = 0.0
            for constraint in constraints:
                key = constraint["topologyKey"]
                if key not in self.labels(node):
                    continue
                if key == "kubernetes.io/hostname":
                    size = len(scored)
                    count = sum(self.counts(pod, constraint) for pod in self.on[self.name(node)])
                else:
                    size = len({self.labels(n).get(key, "") for n in scored})
                    count = sum(
                        self.counts(pod, constraint)
                        for other, pod in self.everybody()
                        if self.labels(other).get(key) == self.labels(node)[key]
                        and carries(other)
                        and self.included(other, constraint)
                    )
                score += count * math.log(size + 2) + (constraint["maxSkew"] - 1)
            raw[self.name(node)] = math.floor(score) + (score - math.floor(score) >= 0.5)
        largest, smallest = max(raw.values(), default=0), min(raw.values(), default=0)
        found = {}
        for node in nodes:
            name = self.name(node)
            if name not in raw:
                found[name] = (0, 0)
            else:
                normal = 100 if largest == 0 else 100 * (largest + smallest - raw[name]) // largest
                found[name] = (raw[name], normal)
        return found

    def attraction(self, nodes: list[Doc]) -> dict[str, tuple[int, int]] | None:
        pull: dict[tuple[str, str], int] = {}

        def add(owner: Doc, term: Doc, weight: int, about: Doc, where: Doc) -> None:
            key = term["topologyKey"]
            if key in self.labels(where) and self.term_picks(owner, term, about):
                pair = (key, self.labels(where)[key])
                pull[pair] = pull.get(pair, 0) + weight

        signs = (("podAffinity", 1), ("podAntiAffinity", -1))
        for node, placed in self.everybody():
            for kind, sign in signs:
                for term in self.terms(self.pod, kind, "preferred"):
                    add(self.pod, term["podAffinityTerm"], sign * term["weight"], placed, node)
                for term in self.terms(placed, kind, "preferred"):
                    add(placed, term["podAffinityTerm"], sign * term["weight"], self.pod, node)
            for term in self.terms(placed, "podAffinity", "required"):
                add(placed, term, 1, self.pod, node)
        if not pull:
            return None
        raw = {self.name(n): sum(pull.get(pair, 0) for pair in self.labels(n).items()) for n in nodes}
        largest, smallest = max(raw.values(), default=0), min(raw.values(), default=0)
        gap = largest - smallest
        return {name: (value, int(100.0 * ((value - smallest) / gap)) if gap > 0 else 0) for name, value in raw.items()}
