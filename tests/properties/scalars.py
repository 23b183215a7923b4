"""Scalar twins of the rules that are not Kubernetes' own of today, and one table with a twin of every rule.

Written node by node over plain documents from the formulas of the placement notes; nothing here comes from the engine,
so that each rule of the registry can be held against somebody else's reading of it.
"""

import json
import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

from tests.properties import worlds
from tests.properties.twin import Doc, Twin, amount, number, requests_of, requirement_holds
from tests.properties.volume_twin import VolumeTwin

MIB = 2**20
GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915")
MILLIONTHS = 10**6
Shape = tuple[int, int, int, int, tuple[str, ...]]


class Case:
    """A world, a pod to be placed in it, and all that rules are told besides."""

    def __init__(self, world: Doc, storage: Doc, pod: Doc, *, shape: list[tuple[int, int]], leader: bool) -> None:
        self.world = world
        self.pod = pod
        self.nodes: list[Doc] = world["nodes"]
        self.forecast: Doc = world["forecast"]
        self.shape = shape
        self.leader = leader
        self.twin = Twin(world, pod)
        self.volumes = VolumeTwin(world, storage, pod)
        self.name = self.twin.name
        self.has = self.twin.has

    def on(self, node: Doc) -> list[Doc]:
        return self.twin.on[self.name(node)]

    def asks(self, name: str, pod: Doc | None = None) -> int:
        return amount(name, requests_of(self.pod if pod is None else pod).get(name, Fraction(0)))

    def real(self, node: Doc, name: str) -> int:
        """Requested after placing."""
        return self.twin.used(node, name) + self.asks(name)

    def assumed(self, node: Doc) -> list[tuple[int, int]]:
        """Assumed use after placing and what there is, of cpu and memory."""
        return [(self.twin.after(node, name), self.has(node, name)) for name in ("cpu", "memory")]

    # Who belongs together

    def selecting(self) -> list[Doc]:
        """Selectors of services and controllers that select the pod; an empty one of a controller selects nobody."""
        mine = self.pod["metadata"]
        found = [
            s["spec"]["selector"] for s in self.world["services"] if s["metadata"]["namespace"] == mine["namespace"]
        ]
        for controller in self.world["controllers"]:
            selector = controller["spec"]["selector"]
            labels = selector if controller["kind"] == "ReplicationController" else selector["matchLabels"]
            if controller["metadata"]["namespace"] == mine["namespace"] and labels:
                found.append(labels)
        return [labels for labels in found if carries(self.pod, labels)]

    def companions(self, node: Doc) -> int:
        """Pods on a node that any of them selects too."""
        selectors = self.selecting()
        return sum(self.stays(pod) and any(carries(pod, labels) for labels in selectors) for pod in self.on(node))

    def stays(self, pod: Doc) -> bool:
        same = pod["metadata"]["namespace"] == self.pod["metadata"]["namespace"]
        return same and not pod["metadata"].get("deletionTimestamp")

    def of_job(self, node: Doc) -> int:
        job = self.pod["metadata"]["labels"].get(worlds.JOB)
        mine = self.pod["metadata"]["namespace"]
        return sum(
            job is not None
            and pod["metadata"]["namespace"] == mine
            and pod["metadata"]["labels"].get(worlds.JOB) == job
            for pod in self.on(node)
        )

    def rise(self, node: Doc) -> float:
        """The forecast change of a node, -1..1."""
        x = 0.0
        for (namespace, app), of_pod in self.forecast["services"].items():
            known = [s["metadata"] for s in self.world["services"]]
            if any((of["namespace"], of["name"]) == (namespace, app) for of in known):
                x += self.share(node, of_pod) * sum(
                    pod["metadata"]["namespace"] == namespace
                    and not pod["metadata"].get("deletionTimestamp")
                    and carries(pod, {"app": app})
                    for pod in self.on(node)
                )
        if self.name(node) in self.forecast["nodes"]:
            x = self.share(node, self.forecast["nodes"][self.name(node)])
        return min(max(x, -1.0), 1.0)

    def share(self, node: Doc, change: Any) -> float:
        """A change as a share of a node: a share already, or the mean over the resources it speaks of."""
        if not isinstance(change, dict):
            return float(change)
        has = {"cpu_milli": Twin.has(node, "cpu"), "memory_bytes": Twin.has(node, "memory")}
        shares = [amount / has[of] if has[of] else 0.0 for of, amount in change.items() if amount is not None]
        return sum(shares) / len(shares) if shares else 0.0


def carries(pod: Doc, labels: Doc) -> bool:
    return all(pod["metadata"]["labels"].get(key) == value for key, value in labels.items())


# Predicates: whether a node is refused


def other_node(case: Case, node: Doc) -> bool:
    return case.pod["spec"].get("nodeName", "") not in ("", case.name(node))


def lacks_feature(case: Case, node: Doc) -> bool:
    spec, needs = case.pod["spec"], set()
    if "restartPolicyRules" in spec["containers"][0]:
        needs.add("RestartAllContainersOnContainerExits")
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        needs.add("UserNamespacesHostNetworkSupport")
    return not needs <= set(node["status"]["declaredFeatures"])


def has_claims(case: Case, node: Doc) -> bool:
    return "resourceClaims" in case.pod["spec"]


def reports(node: Doc, kind: str, *statuses: str) -> bool:
    return any(c["type"] == kind and c["status"] in statuses for c in node["status"]["conditions"])


def sick(case: Case, node: Doc) -> bool:
    return (
        reports(node, "Ready", "False", "Unknown")
        or reports(node, "OutOfDisk", "True", "Unknown")
        or reports(node, "NetworkUnavailable", "True", "Unknown")
        or bool(node["spec"].get("unschedulable"))
    )


def short_of_memory(case: Case, node: Doc) -> bool:
    """Only for pods none of whose containers asks for, or limits, any cpu or memory."""
    told = [c["resources"].get(how, {}) for c in case.pod["spec"]["containers"] for how in ("requests", "limits")]
    reservations = any(number(of[name]) > 0 for of in told for name in ("cpu", "memory") if name in of)
    return not reservations and reports(node, "MemoryPressure", "True")


class Wish:
    """What a pod wants of GPUs: so many devices with so much of each, by annotation or whole ones by resource name."""

    def __init__(self, pod: Doc) -> None:
        told = pod["metadata"]["annotations"]
        milli, memory = told.get("fairlead.io/gpu-milli"), told.get("fairlead.io/gpu-memory-mib")
        self.nonsense = (milli is not None and memory is not None) or milli in ("0", "1001", "some")
        self.by_annotation = not self.nonsense and (milli is not None or memory is not None)
        self.memory = int(memory) if memory and not self.nonsense else 0
        self.milli = int(milli) if milli and not self.nonsense else 1000
        if self.by_annotation:
            self.count = int(told.get("fairlead.io/gpu-count", "1"))
        else:
            whole = requests_of(pod)
            self.count = 0 if self.nonsense else sum(int(whole.get(name, 0)) for name in GPUS)
        self.models = set(told.get("fairlead.io/gpu-models", "").split("|")) - {""} if self.count else set()
        # Numbers of the devices somebody wrote down for it.
        given = told.get("fairlead.io/gpu-devices", "x").split(",")
        self.given = [int(each) for each in given] if all(each.isdecimal() for each in given) else []

    def on(self, node: Doc) -> int:
        """Thousandths of one of the node's devices; more than there are where the node does not tell its memory."""
        if not self.memory:
            return self.milli
        labels = node["metadata"]["labels"]
        sizes = [labels.get(key, "") for key in ("fairlead.io/gpu-memory-mib", "nvidia.com/gpu.memory")]
        size = next((int(text) for text in sizes if text.isdecimal()), 0)
        return math.ceil(Fraction(1000 * self.memory, size)) if size else 1001


def tightest(free: list[int], wanted: int, count: int) -> list[int]:
    fitting = sorted((left, device) for device, left in enumerate(free) if left >= wanted)
    return [device for _, device in fitting[:count]]


def devices(case: Case, node: Doc) -> tuple[list[int], bool]:
    """What is free on each device of a node, and whether anybody holds one that they did not ask for by name."""
    free = [1000] * sum(case.has(node, name) for name in GPUS)
    shared = False
    for pod in case.on(node):
        wish = Wish(pod)
        wanted = wish.on(node)
        for taken in (wish.given, tightest(free, wanted, wish.count)):
            if wish.count and len(set(taken)) == wish.count and all(d < len(free) and free[d] >= wanted for d in taken):
                shared = shared or wish.by_annotation
                for device in taken:
                    free[device] -= wanted
                break
    return free, shared


def model_of(node: Doc) -> str:
    labels = node["metadata"]["labels"]
    return str(labels.get("fairlead.io/gpu-model", labels.get("nvidia.com/gpu.product", "")))


def devices_fit(case: Case, node: Doc) -> bool:
    wish = Wish(case.pod)
    if wish.nonsense or not wish.count:
        return not wish.nonsense
    fits = len(tightest(devices(case, node)[0], wish.on(node), wish.count)) == wish.count
    return fits and (not wish.models or model_of(node) in wish.models)


def no_device(case: Case, node: Doc) -> bool:
    wish = Wish(case.pod)
    if not (wish.nonsense or wish.by_annotation or wish.models) and not any(devices(case, n)[1] for n in case.nodes):
        return False
    return not devices_fit(case, node)


# Removing


def removable(case: Case, pod: Doc) -> bool:
    """A pod of the incoming one's services and controllers that is there to stay."""
    return case.stays(pod) and any(carries(pod, labels) for labels in case.selecting())


def nobody_to_remove(case: Case, node: Doc) -> bool:
    return not any(removable(case, pod) for pod in case.on(node))


# Priorities: final scores of the nodes that are feasible; None where the rule keeps out of it

Scores = dict[str, int] | None
Scorer = Callable[[Case, list[Doc]], Scores]


def each(scalar: Callable[[Case, Doc], int]) -> Scorer:
    """A rule whose word on a node does not depend on other nodes."""
    return lambda case, nodes: {case.name(node): scalar(case, node) for node in nodes}


def kube(rule: str) -> Scorer:
    def scores(case: Case, nodes: list[Doc]) -> Scores:
        found = case.twin.scores(nodes)[rule]
        return None if found is None else {name: final for name, (_, final) in found.items()}

    return scores


def line(shape: list[tuple[int, int]], at: int) -> int:
    if at <= shape[0][0]:
        return shape[0][1]
    for (x0, y0), (x1, y1) in pairwise(shape):
        if at <= x1:
            return y0 + math.trunc(Fraction((y1 - y0) * (at - x0), x1 - x0))
    return shape[-1][1]


def ratio(case: Case, node: Doc) -> int:
    parts = [line(case.shape, 100 if used > has else used * 100 // has) for used, has in case.assumed(node) if has]
    parts = [part for part in parts if part > 0]
    mean = sum(parts) / len(parts) if parts else 0.0
    return math.floor(mean) + (mean - math.floor(mean) >= 0.5)


def old_least(case: Case, node: Doc) -> int:
    return sum((has - used) * 10 // has if 0 < has >= used else 0 for used, has in case.assumed(node)) // 2


def old_most(case: Case, node: Doc) -> int:
    return sum(used * 10 // has if 0 < has >= used else 0 for used, has in case.assumed(node)) // 2


def old_ratio(case: Case, node: Doc) -> int:
    degrees = [100 - (has - used) * 100 // has if 0 < has >= used else 100 for used, has in case.assumed(node)]
    return sum(line([(0, 10), (100, 0)], degree) for degree in degrees) // 2


def old_balance(case: Case, node: Doc) -> int:
    cpu, memory = (used / has if has else 1.0 for used, has in case.assumed(node))
    return 0 if cpu >= 1 or memory >= 1 else int((1 - abs(cpu - memory)) * 10)


def out_of_ten(raw: dict[str, int], *, reverse: bool = False) -> dict[str, int]:
    largest = max(raw.values(), default=0)
    if not largest:
        return dict.fromkeys(raw, 10 if reverse else 0)
    return {name: 10 - 10 * value // largest if reverse else 10 * value // largest for name, value in raw.items()}


def old_taints(case: Case, nodes: list[Doc]) -> Scores:
    return out_of_ten({case.name(node): case.twin.soft_taints(node) for node in nodes}, reverse=True)


def old_node_affinity(case: Case, nodes: list[Doc]) -> Scores:
    """Label conditions alone: 1.13 did not look at fields, and a term without labels matched nothing."""
    if "preferredDuringSchedulingIgnoredDuringExecution" not in case.pod["spec"].get("affinity", {}).get(
        "nodeAffinity", {}
    ):
        return None

    def raw(node: Doc) -> int:
        total = 0
        for term in worlds.preferred_terms(case.pod):
            wanted = term["preference"].get("matchExpressions", [])
            if wanted and all(requirement_holds(node["metadata"]["labels"], each) for each in wanted):
                total += term["weight"]
        return total

    return out_of_ten({case.name(node): raw(node) for node in nodes})


def old_company(case: Case, nodes: list[Doc]) -> Scores:
    """Smallest and largest both start at zero."""
    found = case.twin.attraction(nodes)
    if found is None:
        return None
    raw = {name: value for name, (value, _) in found.items()}
    smallest, largest = min(0, *raw.values()), max(0, *raw.values())
    gap = largest - smallest
    return {name: int(10.0 * ((value - smallest) / gap)) if gap else 0 for name, value in raw.items()}


def old_images(case: Case, node: Doc) -> int:
    total = 0
    for container in case.pod["spec"]["containers"]:
        image = container["image"] if ":" in container["image"] else container["image"] + ":latest"
        holders = [n for n in case.nodes if any(image in held["names"] for held in n["status"]["images"])]
        if node in holders:
            size = next(held["sizeBytes"] for held in node["status"]["images"] if image in held["names"])
            total += int(size * (len(holders) / len(case.nodes)))
    return 10 * (min(max(total, 23 * MIB), 1000 * MIB) - 23 * MIB) // (977 * MIB)


def avoided(case: Case, node: Doc) -> int:
    owner = next((o for o in case.pod["metadata"].get("ownerReferences", ()) if o["controller"]), None)
    if owner is None or owner["kind"] not in ("ReplicationController", "ReplicaSet"):
        return 10
    try:
        entries = json.loads(node["metadata"].get("annotations", {}).get(worlds.AVOID, "{}")).get("preferAvoidPods", [])
    except ValueError:
        return 10
    named = [entry["podSignature"].get("podController", {}) for entry in entries]
    return 0 if any((n.get("kind"), n.get("uid")) == (owner["kind"], owner["uid"]) for n in named) else 10


def old_spread(case: Case, nodes: list[Doc]) -> Scores:
    count = {case.name(node): case.companions(node) for node in nodes}
    zone: dict[str, tuple[str | None, str | None]] = {}
    in_zone: Counter[tuple[str | None, str | None]] = Counter()
    for node in nodes:
        labels = node["metadata"]["labels"]
        region, place = (
            labels.get(f"failure-domain.beta.kubernetes.io/{part}", labels.get(f"topology.kubernetes.io/{part}"))
            for part in ("region", "zone")
        )
        if region is not None or place is not None:
            zone[case.name(node)] = (region, place)
            in_zone[region, place] += count[case.name(node)]
    most, fullest = max(count.values(), default=0), max(in_zone.values(), default=0)
    scores = {}
    for name, here in count.items():
        score = 10.0 * ((most - here) / most) if most else 10.0
        if name in zone:
            of_zone = 10.0 * ((fullest - in_zone[zone[name]]) / fullest) if fullest else 10.0
            score = score * (1.0 - 2.0 / 3.0) + 2.0 / 3.0 * of_zone
        scores[name] = int(score)
    return scores


def load_forecast(case: Case, nodes: list[Doc]) -> Scores:
    if not case.forecast["nodes"] and not case.forecast["services"]:
        return None
    return {case.name(node): round(50 - 50 * case.rise(node)) for node in nodes}


def no_room_for_fuses(case: Case, node: Doc) -> bool:
    """Fuses that do not run there yet and the pod together request more than is left."""
    namespace, known = case.pod["metadata"]["namespace"], case.world["cache"]
    mounted = [volume.get("persistentVolumeClaim") for volume in case.pod["spec"].get("volumes", ())]
    names = dict.fromkeys(known["claims"].get(f"{namespace}/{each['claimName']}", "") for each in mounted if each)
    read = [known["datasets"][name] for name in names if name in known["datasets"]]
    new = [each for each in read if each["fuse_needs"] and case.name(node) not in each["fuse_nodes"]]
    if not new:
        return False
    if len(case.on(node)) + 1 + len(new) > case.has(node, "pods"):
        return True
    for name in {name for each in new for name in each["fuse_needs"]}:
        extra = sum(each["fuse_needs"].get(name, 0) for each in new)
        if extra and case.real(node, name) + extra > case.has(node, name):
            return True
    return False


def data_locality(case: Case, nodes: list[Doc]) -> Scores:
    """What share of the bytes that the pod reads each node has, the warmest being 100."""
    namespace, known = case.pod["metadata"]["namespace"], case.world["cache"]
    mounted = [volume.get("persistentVolumeClaim") for volume in case.pod["spec"].get("volumes", ())]
    claims = [each["claimName"] for each in mounted if each]
    names = dict.fromkeys(known["claims"].get(f"{namespace}/{claim}", "") for claim in claims)
    read = [known["datasets"][name] for name in names if name in known["datasets"]]
    if not read:
        return None
    sizes = [each["total_bytes"] for each in read]
    sized = [size for size in sizes if size]
    weights = [size or (sum(sized) / len(sized) if sized else 1.0) for size in sizes]
    raw = {}
    for node in nodes:
        name, local = case.name(node), 0.0
        for dataset, weight in zip(read, weights, strict=True):
            here = dataset["nodes"].get(name)
            if here is None:
                continue
            size = dataset["total_bytes"] or dataset["capacity_bytes"]
            cached = min(1.0, here["tier_bytes"] / size) if size else 0.0
            floor = 0.1 if here["is_labelled"] else 0.0
            fresh = here["freshness"]
            local += weight / sum(weights) * max(floor, fresh * cached + (1 - fresh) * min(floor, cached))
        raw[name] = round(10_000 * local)
    warmest = max(raw.values())
    return {name: 100 * each // warmest if warmest else 0 for name, each in raw.items()}


def shares(case: Case, node: Doc) -> list[float]:
    return [min(used / has, 1.0) if has else 1.0 for used, has in case.assumed(node)]


def w1(case: Case, node: Doc) -> int:
    return round((1 - sum(shares(case, node)) / 2) * MILLIONTHS)


def w2(case: Case, node: Doc) -> int:
    least, most = sorted(shares(case, node))
    return round((least / most if most else 1.0) * MILLIONTHS)


def w3(case: Case, node: Doc) -> int:
    everybody = sum(case.companions(other) for other in case.nodes)
    return round((1 - case.companions(node) / everybody) * MILLIONTHS) if everybody else MILLIONTHS


def w4(case: Case, nodes: list[Doc]) -> Scores:
    scores = case.twin.scores(nodes)
    heard = [of for rule in ("NodeAffinity", "InterPodAffinity", "TaintToleration") if (of := scores[rule]) is not None]
    names = [case.name(node) for node in nodes]
    return {name: sum(of[name][1] for of in heard) * MILLIONTHS // (100 * len(heard)) for name in names}


def w5(case: Case, node: Doc) -> int:
    return round(-case.rise(node) * MILLIONTHS)


# Job policies: hundred-thousandths of a score 0..100, and below it what breaks ties

FINE, TIES = 10**5, 1 << 26


def tie(case: Case, node: Doc) -> int:
    """More for fewer idle GPUs, then for less idle cpu, in steps of a tenth of a core."""
    gpus = sum(max(case.has(node, name) - case.twin.used(node, name), 0) for name in GPUS)
    tenths = (case.has(node, "cpu") - case.twin.used(node, "cpu")) // 100
    return (1023 - min(max(gpus, 0), 1023)) * 65536 + 65535 - min(max(tenths, 0), 65535)


def packing(case: Case, node: Doc, *, cpu: int = 1, gpu: int = 1, requested_only: bool = True) -> float:
    """0..100: the weighted use of a node after placing."""
    use = total = 0.0
    for name, weight in (("cpu", cpu), ("memory", 1), *((name, gpu) for name in GPUS)):
        if case.has(node, name) and (case.asks(name) or not requested_only):
            use += weight * case.real(node, name) / case.has(node, name)
            total += weight
    return min(100 * (use / total), 100.0) if total else 0.0


def bin_pack(case: Case, node: Doc) -> int:
    return round(packing(case, node) * FINE) * TIES + tie(case, node)


def leader_first(case: Case, node: Doc) -> int:
    if case.leader:
        score = 100 - packing(case, node, gpu=5, requested_only=False)
    else:
        score = packing(case, node, cpu=5, requested_only=False)
    return round(score * FINE) * TIES + tie(case, node)


def together(case: Case, node: Doc) -> float:
    everybody = sum(case.of_job(other) for other in case.nodes)
    return 100 * case.of_job(node) / everybody if everybody else 0.0


def job_affinity(case: Case, node: Doc) -> int:
    return round(together(case, node) * FINE) * TIES + round(packing(case, node) * (TIES - 1) / 100)


def job_anti_affinity(case: Case, node: Doc) -> int:
    emptier = 100 - packing(case, node)
    return round((100 - together(case, node)) * FINE) * TIES + round(emptier * (TIES - 1) / 100)


def shape_of(case: Case, pod: Doc, node: Doc | None = None) -> Shape:
    wish = Wish(pod)
    milli = 0 if not wish.count else wish.milli if node is None else wish.on(node)
    mib = math.ceil(Fraction(case.asks("memory", pod), MIB))
    return case.asks("cpu", pod), mib, wish.count, milli, tuple(sorted(wish.models))


def expected(case: Case) -> dict[Shape, int]:
    """The most frequent shapes among placed pods that make up 95 % of them, or else the pod's own."""
    placed = [pod for node in case.nodes for pod in case.on(node) if not Wish(pod).memory]
    counts = Counter(shape_of(case, pod) for pod in placed)
    if not counts and not Wish(case.pod).memory:
        counts[shape_of(case, case.pod)] = 1

    def size(shape: Shape) -> tuple[object, ...]:
        cpu, memory, count, milli, models = shape
        return counts[shape], cpu, milli, count, list(models), memory

    typical: dict[Shape, int] = {}
    for shape in sorted(counts, key=size, reverse=True):
        if sum(typical.values()) < 0.95 * sum(counts.values()):
            typical[shape] = counts[shape]
    return typical


def lost(free: list[int], cpu: int, memory: int, model: str, to: dict[Shape, int]) -> int:
    """Milli-GPU that the expected pods could not use: they do not fit, or would run out of cpu or memory first."""
    total = 0
    for (cpu_wanted, memory_wanted, count, milli, models), weight in to.items():
        serving = [left for left in free if left >= milli]
        fits = cpu >= cpu_wanted and memory >= memory_wanted and (not models or model in models)
        usable = sum(serving) if count and fits and len(serving) >= count else 0
        stranded = 0
        for left, wanted in ((max(cpu, 0), cpu_wanted), (max(memory, 0), memory_wanted)):
            if count and wanted:
                stranded = max(stranded, math.ceil(sum(free) - Fraction(left * count * milli, wanted)))
        total += weight * (sum(free) - usable + stranded)
    return total


def min_fragment(case: Case, node: Doc) -> int:
    to = expected(case)
    if any(shape[2] for shape in to) and any(devices(case, other)[0] for other in case.nodes):
        free, model = devices(case, node)[0], model_of(node)
        cpu = case.has(node, "cpu") - case.twin.used(node, "cpu")
        memory = (case.has(node, "memory") - case.twin.used(node, "memory")) // MIB
        cpu_wanted, memory_wanted, count, milli, _ = shape_of(case, case.pod, node)
        shared = count == 1 and milli < 1000
        choices = [[d] for d, left in enumerate(free) if left >= milli] if shared else [tightest(free, milli, count)]
        after = min(
            lost([left - milli * (d in on) for d, left in enumerate(free)], cpu - cpu_wanted, memory - memory_wanted,
                 model, to)
            for on in choices
        )  # fmt: skip
        score = 1000 * ((lost(free, cpu, memory, model, to) - after) / sum(to.values()))
    elif case.has(node, "cpu") and case.has(node, "memory"):
        cpu_use, memory_use = (case.real(node, name) / case.has(node, name) for name in ("cpu", "memory"))
        score = FINE * (100 * (1 - abs(cpu_use - memory_use)) * (cpu_use + memory_use) / 2)
    else:
        score = 0.0
    return round(score) * TIES + tie(case, node)


# Every name of the registry and its twin

PREDICATE_TWINS: dict[str, Callable[[Case, Doc], bool]] = {
    "NodeUnschedulable": lambda case, node: bool(case.twin.cordoned(node)),
    "NodeName": other_node,
    "TaintToleration": lambda case, node: bool(case.twin.tainted(node)),
    "NodeAffinity": lambda case, node: bool(case.twin.unwished(node)),
    "NodePorts": lambda case, node: bool(case.twin.port_taken(node)),
    "NodeResourcesFit": lambda case, node: bool(case.twin.full(node)),
    "VolumeRestrictions": lambda case, node: case.volumes.restricted(node),
    "NodeVolumeLimits": lambda case, node: case.volumes.too_many(node),
    "VolumeBinding": lambda case, node: case.volumes.unbindable(node),
    "VolumeZone": lambda case, node: case.volumes.out_of_zone(node),
    "PodTopologySpread": lambda case, node: bool(case.twin.skewed(node)),
    "InterPodAffinity": lambda case, node: bool(case.twin.company(node)),
    "DynamicResources": has_claims,
    "NodeDeclaredFeatures": lacks_feature,
    "GpuDevices": no_device,
    "FuseHeadroom": no_room_for_fuses,
    "CheckNodeCondition": sick,
    "CheckNodeMemoryPressure": short_of_memory,
    "CheckNodePIDPressure": lambda case, node: reports(node, "PIDPressure", "True"),
    "CheckNodeDiskPressure": lambda case, node: reports(node, "DiskPressure", "True"),
}

REMOVAL_TWINS: dict[str, Callable[[Case, Doc], bool]] = {"PodExistingOnNode": nobody_to_remove}

PRIORITY_TWINS: dict[str, Scorer] = {
    "TaintToleration": kube("TaintToleration"),
    "NodeAffinity": kube("NodeAffinity"),
    "NodeResourcesFit": kube("NodeResourcesFit"),
    "PodTopologySpread": kube("PodTopologySpread"),
    "InterPodAffinity": kube("InterPodAffinity"),
    "NodeResourcesBalancedAllocation": kube("NodeResourcesBalancedAllocation"),
    "ImageLocality": kube("ImageLocality"),
    "NodeLoadForecast": load_forecast,
    "DataLocality": data_locality,
    "LeastRequested": kube("NodeResourcesFit"),
    "MostRequested": kube("MostAllocated"),
    "RequestedToCapacityRatio": each(ratio),
    "LeastRequestedPriority": each(old_least),
    "MostRequestedPriority": each(old_most),
    "RequestedToCapacityRatioPriority": each(old_ratio),
    "BalancedResourceAllocationPriority": each(old_balance),
    "InterPodAffinityPriority": old_company,
    "SelectorSpreadPriority": old_spread,
    "NodeAffinityPriority": old_node_affinity,
    "NodePreferAvoidPodsPriority": each(avoided),
    "TaintTolerationPriority": old_taints,
    "ImageLocalityPriority": each(old_images),
    "SeedFreeRatio": each(w1),
    "SeedEvenness": each(w2),
    "SeedServiceSpread": each(w3),
    "SeedWishes": w4,
    "SeedForecast": each(w5),
    "BinPack": each(bin_pack),
    "LeaderFirst": each(leader_first),
    "MinFragment": each(min_fragment),
    "JobAffinity": each(job_affinity),
    "JobAntiAffinity": each(job_anti_affinity),
}
