"""Under profile `seed` twenty additions and twenty removals follow the seed's text, step by step."""

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine.catalog import Catalog
from fairlead.engine.cycle import Cycle
from fairlead.engine.forecast import Forecast
from fairlead.engine.pick import RoundRobin
from fairlead.engine.profile import Conditions, seed_profile
from fairlead.engine.removal import epoch_s, plan_removal
from fairlead.engine.statement import Statement
from fairlead.model.outcome import Placed
from fairlead.model.pod import SchedulerPod
from fairlead.model.workloads import Service
from fairlead.placement.columns import Columns
from fairlead.testing.builders import a_node, a_pod, a_table
from tests.properties.seed_model import MIB, Doc, Model

NOW = float(epoch_s("2026-03-01T12:00:00Z"))
APPS = ("web", "db", "batch")
# Of each app all pods ask for the same, as replicas do.
SIZES = {"web": (250, 300 * MIB), "db": (1000, 900 * MIB), "batch": (None, None)}
AGES = ("2026-03-01T11:59:58Z", "2026-03-01T11:50:00Z", "2026-02-01T00:00:00Z")
TAINT_PREFIX = "node.kubernetes.io/"
SEED_ORDER = [
    "CheckNodeCondition",
    "NodeResourcesFit",
    "NodePorts",
    "NodeAffinity",
    "TaintToleration",
    "CheckNodeMemoryPressure",
    "CheckNodePIDPressure",
    "CheckNodeDiskPressure",
    "InterPodAffinity",
]


def some_node(rng: Random, name: str) -> Doc:
    def one_of(*choices: Any, chance: float = 0.25) -> Any:
        return rng.choice(choices) if rng.random() < chance else ""

    odd = {
        "Ready": one_of("False", "Unknown", chance=0.1),
        "NetworkUnavailable": one_of("True", chance=0.1),
        "MemoryPressure": one_of("True"),
        "PIDPressure": one_of("True", "Unknown", chance=0.15),
        "DiskPressure": one_of("True", chance=0.15),
    }
    return {
        "name": name,
        # Sizes that make no ratio end in half a millionth, which sums of floats cannot round alike.
        "cpu": rng.choice((2100, 4300, 7900)),
        "memory": rng.choice((2111, 4099, 8111)) * MIB,
        "pods": rng.choice((4, 110, 110)),
        "zone": rng.choice(("z1", "z2")),
        "disk": rng.choice(("ssd", "hdd")),
        "conditions": {"Ready": "True", **{kind: status for kind, status in odd.items() if status}},
        "cordoned": rng.random() < 0.15,
        "taint": one_of("gpu", chance=0.2),
        "soft_taint": one_of("slow", chance=0.3),
    }


def some_pod(rng: Random, name: str) -> Doc:
    app = rng.choice(APPS)
    cpu, memory = SIZES[app]
    tolerable = ("gpu", "unschedulable", "disk-pressure", "pid-pressure", "memory-pressure", "not-ready")
    return {
        "name": name,
        "app": app,
        "cpu": cpu,
        "memory": memory,
        "port": rng.choice((0, 0, 0, 8080)),
        "zone": rng.choice(("", "", "", "z1", "z2")),
        "tolerates": [each for each in tolerable if rng.random() < 0.15],
        "wishes": rng.choice(("", "ssd")),
        "apart": rng.random() < 0.1,
        "age": rng.randrange(len(AGES)),
    }


def node_of(doc: Doc) -> Any:
    taints = [{"key": doc["taint"], "effect": "NoSchedule"}] if doc["taint"] else []
    if doc["soft_taint"]:
        taints.append({"key": doc["soft_taint"], "effect": "PreferNoSchedule"})
    return a_node(
        doc["name"],
        cpu=f"{doc['cpu']}m",
        memory=doc["memory"],
        pods=doc["pods"],
        labels={"zone": doc["zone"], "disk": doc["disk"]},
        taints=taints,
        unschedulable=doc["cordoned"],
        conditions=doc["conditions"],
    )


def pod_of(doc: Doc) -> SchedulerPod:
    spec: Doc = {}
    if doc["zone"]:
        spec["nodeSelector"] = {"zone": doc["zone"]}
    keys = [key if key == "gpu" else f"{TAINT_PREFIX}{key}" for key in doc["tolerates"]]
    if keys:
        spec["tolerations"] = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]
    affinity: Doc = {}
    if doc["wishes"]:
        wish = {"matchExpressions": [{"key": "disk", "operator": "In", "values": [doc["wishes"]]}]}
        affinity["nodeAffinity"] = {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": wish}]
        }
    if doc["apart"]:
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": doc["app"]}}}
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    if affinity:
        spec["affinity"] = affinity
    ports = [{"containerPort": doc["port"], "hostPort": doc["port"]}] if doc["port"] else []
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": AGES[doc["age"]]}
    return a_pod(
        doc["name"],
        cpu=f"{doc['cpu']}m" if doc["cpu"] else None,
        memory=doc["memory"],
        labels={"app": doc["app"]},
        created_at=AGES[doc["age"]],
        status={"phase": "Running", "conditions": [ready]},
        ports=ports,
        **spec,
    )


def on_node(pod: SchedulerPod, node: str) -> SchedulerPod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))


class Run:
    """The engine and the model side by side."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        nodes = [some_node(rng, f"n{number}") for number in range(1, 7)]
        services = {"front": "web", "store": "db"}
        forecast: Doc = {
            "nodes": {node["name"]: rng.uniform(-0.6, 0.6) for node in nodes if rng.random() < 0.3},
            "services": {name: rng.uniform(-0.1, 0.1) for name in services if rng.random() < 0.6},
        }
        self.model = Model(nodes, services, forecast)
        catalog = Catalog()
        for name, app in services.items():
            document = {"metadata": {"name": name, "namespace": "default"}, "spec": {"selector": {"app": app}}}
            catalog.set_selecting(msgspec.convert(document, Service))
        of_services = {("default", name): change for name, change in forecast["services"].items()}
        catalog.set_forecast(Forecast(forecast["nodes"], of_services))
        self.table = a_table([node_of(node) for node in nodes], [], catalog)
        self.turns = RoundRobin()
        self.cycle = Cycle(self.table, seed_profile(), self.turns)
        self.pods: dict[str, SchedulerPod] = {}

    def add(self, number: int) -> str | None:
        doc = some_pod(self.rng, f"p{number:02}")
        pod = pod_of(doc)
        columns = Columns(self.cycle.evaluation(pod))
        outcome = self.cycle.decide(pod)
        chosen, refused, scores = self.model.add(doc)
        assert {each.node: (each.rule, list(each.reasons)) for each in columns.refused()} == refused
        for name, parts in scores.items():
            row = self.table.row_of[name]
            found = [int(column.normal_N[row]) / 10**6 for column in columns.scores]
            assert found == pytest.approx(parts, abs=1e-6), name
        assert (outcome.node if isinstance(outcome, Placed) else None) == chosen
        assert self.turns.counter == self.model.counter
        if chosen is not None:
            self.pods[doc["name"]] = on_node(pod, chosen)
        return chosen

    def remove(self) -> str | None:
        app = self.rng.choice(APPS)
        mine = [pod for pod in self.pods.values() if pod.metadata.labels["app"] == app]
        statement = Statement(self.table)
        plan = plan_removal(statement, mine, 1, now_s=NOW, pick=self.turns)
        statement.commit()
        expected = self.model.remove(app)
        if expected is None:
            assert plan.shortfall == 1
            assert plan.diagnosis is not None
            assert [refusal.rule for refusal in plan.diagnosis.refusals] == ["PodExistingOnNode"]
            return None
        goes, node, scores = expected
        (removed,) = plan.removed
        assert removed.scores is not None
        parts = [removed.scores.used, removed.scores.even, removed.scores.service, removed.scores.forecast or 0]
        assert [part / 10**6 for part in parts] == pytest.approx(scores[node], abs=1e-6)
        assert (removed.pod, removed.node) == (f"default/{goes}", node)
        assert self.turns.counter == self.model.counter
        del self.pods[goes]
        return goes


@given(st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_twenty_additions_and_twenty_removals_follow_the_text(seed: int) -> None:
    run = Run(Random(seed))
    nodes = [run.add(number) for number in range(20)]  # each compares the engine with the model
    gone = [pod for pod in (run.remove() for _ in range(20)) if pod is not None]
    assert len(set(gone)) == len(gone) <= 20 + sum(node is not None for node in nodes)


def test_the_runs_above_place_refuse_and_remove() -> None:
    runs = [Run(Random(seed)) for seed in range(10)]
    placed = [[run.add(number) for number in range(20)] for run in runs]
    removed = [[run.remove() for _ in range(20)] for run in runs]
    assert sum(node is not None for nodes in placed for node in nodes) > 60
    assert sum(node is None for nodes in placed for node in nodes) > 5
    assert sum(pod is not None for pods in removed for pod in pods) > 50


def test_the_predicates_come_in_the_seeds_order_and_the_rest_after() -> None:
    names = [rule.name for rule in seed_profile(conditions=Conditions.BOTH).predicates]
    assert [name for name in names if name in SEED_ORDER] == SEED_ORDER
    assert names[: names.index("InterPodAffinity") + 1] == [*SEED_ORDER[:5], "VolumeBinding", *SEED_ORDER[5:]]
    by_taints = [rule.name for rule in seed_profile(conditions=Conditions.TAINTS).predicates]
    assert by_taints[:2] == ["NodeUnschedulable", "NodeResourcesFit"]
    assert not [name for name in by_taints if name.startswith("CheckNode")]
