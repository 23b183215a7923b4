"""The table never drifts: undoing leaves no trace, and changes told one by one end where a rebuild does."""

from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine.counters import DomainTally
from fairlead.engine.cycle import Cycle
from fairlead.engine.gang import Gangs
from fairlead.engine.pick import ByChance
from fairlead.engine.profile import kube_profile
from fairlead.engine.statement import Statement
from fairlead.engine.table import NodeTable
from fairlead.engine.unit import Member, Unit
from fairlead.model.node import Node
from fairlead.model.outcome import Outcome
from fairlead.model.pod import SchedulerPod
from fairlead.model.workloads import Namespace, Service
from tests.properties import worlds
from tests.properties.test_twins import build

seeds = st.integers(min_value=0, max_value=2**32)


def state(table: NodeTable) -> dict[str, Any]:
    """Everything that counts pods, to the bit. Counts per domain follow from counts per row, and must."""
    for tally in (*table.classes.tallies.values(), *(carried.tally for carried in table.classes.carried)):
        for domain in tally.domains:
            if domain.version == table.version:
                assert domain.count_D.tolist() == recounted(domain)
    return {
        "used": table.used_RN.tobytes(),
        "alloc": table.alloc_RN.tobytes(),
        "occupants": {uid: (o.node, o.row, o.terminating) for uid, o in table.occupants.items()},
        "ports": {
            (key, ip): dict(rows) for key, holders in table.ports.items() for ip, rows in holders.items() if rows
        },
        "claims": dict(table.claim_users),
        "disks": set(table.disk_users),
        "waiting": {node: set(pods) for node, pods in table.waiting.items()},
        "tallies": {repr(key): (dict(t.rows), t.total) for key, t in table.classes.tallies.items()},
        "carried": {repr(c.term): (c.kind, c.weight, dict(c.tally.rows)) for c in table.classes.carried},
        "requests": {
            key: (r.pods, dict(r.rows), dict(r.terminating_rows)) for key, r in table.classes.requests.items()
        },
    }


def recounted(domain: DomainTally) -> list[int]:
    count = [0] * (domain.column.size + 1)
    for row, pods in domain.tally.rows.items():
        number = int(domain.column.ids_N[row])
        if number >= 0 and (domain.eligible_N is None or domain.eligible_N[row]):
            count[number] += pods
    return count


def pods_of(rng: Random, count: int, fancy: float = 0.4) -> list[SchedulerPod]:
    return [msgspec.convert(worlds.a_pod(rng, f"new{i}", fancy=fancy), SchedulerPod) for i in range(count)]


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_place_then_remove_restores_the_table_bit_for_bit(seed: int) -> None:
    rng = Random(seed)
    table = build(worlds.a_world(rng))
    cycle = Cycle(table, kube_profile())
    pods = pods_of(rng, 12)
    for pod in pods:
        # Known classes and their tallies are no trace: they count nothing yet.
        cycle.evaluation(pod).totals(cycle.evaluation(pod).feasible())
    before = state(table)
    placed = [pod for pod in pods if hasattr(cycle.decide(pod), "node")]
    rng.shuffle(placed)
    for pod in placed:
        table.remove_pod(pod.uid)
    assert state(table) == before


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_rollback_restores_the_table_bit_for_bit(seed: int) -> None:
    rng = Random(seed)
    table = build(worlds.a_world(rng))
    cycle = Cycle(table, kube_profile())
    pods = pods_of(rng, 12)
    for pod in pods:
        cycle.evaluation(pod).totals(cycle.evaluation(pod).feasible())
    statement = Statement(table)
    for pod in pods[:4]:
        cycle.decide(pod, statement)
    checkpoint, before = statement.checkpoint(), state(table)
    for pod in pods[4:]:
        cycle.decide(pod, statement)
        if rng.random() < 0.4 and table.occupants:
            victim = table.occupants[rng.choice(sorted(table.occupants))]
            if victim.row >= 0:
                statement.remove(victim)
    statement.rollback(checkpoint)
    assert state(table) == before


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_a_refused_gang_leaves_no_trace(seed: int) -> None:
    rng = Random(seed)
    table = build(worlds.a_world(rng, nodes=4, pods=4))
    gangs = Gangs(Cycle(table, kube_profile()))
    template = worlds.a_pod(rng, "member", fancy=0.2)
    members = []
    for i in range(40):
        template["metadata"].update(name=f"m{i}", uid=f"m{i}")
        members.append(Member(msgspec.convert(template, SchedulerPod)))
    unit = Unit("gang", tuple(members), minimum=rng.randint(1, 40))
    gangs.decide(unit, Statement(table))
    for member in members:
        table.remove_pod(member.pod.uid)
    before = state(table)
    statement = Statement(table)
    outcome = gangs.decide(unit, statement)
    statement.rollback()
    assert state(table) == before
    assert type(gangs.decide(unit, Statement(table))) is type(outcome)


class History:
    """A cluster that lives through random changes, told to a table one by one."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.table = NodeTable(capacity=4)
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, SchedulerPod] = {}
        world = worlds.a_world(rng)
        self.surroundings: list[Namespace | Service] = [
            *(msgspec.convert(each, Namespace) for each in world["namespaces"]),
            *(msgspec.convert(each, Service) for each in world["services"]),
        ]
        self.table.catalog.set_all(self.surroundings)
        self.cycle = Cycle(self.table, kube_profile())
        self.templates = [worlds.a_pod(rng, "template", fancy=0.35) for _ in range(12)]
        self.made = 0

    def step(self) -> None:
        action = self.rng.random()
        if action < 0.06 or not self.nodes:
            self.set_node(f"node-{self.rng.randint(0, 11)}")
        elif action < 0.09:
            name = self.rng.choice(sorted(self.nodes))
            del self.nodes[name]
            self.table.remove_node(name)
        elif action < 0.5 or not self.pods:
            self.add_pod()
        elif action < 0.6:
            self.decide()
        elif action < 0.68:
            self.change_pod(self.rng.choice(sorted(self.pods)))
        else:
            uid = self.rng.choice(sorted(self.pods))
            del self.pods[uid]
            self.table.remove_pod(uid)

    def new_pod(self) -> dict[str, Any]:
        self.made += 1
        document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self.rng.choice(self.templates)))
        document["metadata"].update(name=f"p{self.made}", uid=f"p{self.made}")
        return document

    def set_node(self, name: str) -> None:
        self.nodes[name] = msgspec.convert(worlds.a_node(self.rng, name), Node)
        self.table.add_node(self.nodes[name])

    def add_pod(self) -> None:
        document = self.new_pod()
        # Some arrive before their node does.
        document["spec"]["nodeName"] = f"node-{self.rng.randint(0, 12)}"
        pod = msgspec.convert(document, SchedulerPod)
        self.pods[pod.uid] = pod
        self.table.add_pod(pod)

    def decide(self) -> None:
        document = self.new_pod()
        outcome = self.cycle.decide(msgspec.convert(document, SchedulerPod))
        if hasattr(outcome, "node"):
            document["spec"]["nodeName"] = outcome.node
            pod = msgspec.convert(document, SchedulerPod)
            self.pods[pod.uid] = pod

    def change_pod(self, uid: str) -> None:
        document = msgspec.to_builtins(self.pods[uid])
        if self.rng.random() < 0.5:
            document["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
        elif self.rng.random() < 0.5:
            document["metadata"]["labels"]["app"] = self.rng.choice(worlds.APPS)
        else:
            document["status"] = {"phase": "Succeeded"}
        pod = msgspec.convert(document, SchedulerPod)
        if pod.holds_a_node:
            self.pods[uid] = pod
        else:
            del self.pods[uid]
        self.table.add_pod(pod)

    def rebuilt(self) -> NodeTable:
        table = NodeTable()
        table.catalog.set_all(self.surroundings)
        for name in sorted(self.nodes):
            table.add_node(self.nodes[name])
        for uid in sorted(self.pods):
            table.add_pod(self.pods[uid])
        return table


def told(table: NodeTable) -> dict[str, Any]:
    """The table by names, whatever rows it has given them."""
    of_node = {}
    for name, row in table.row_of.items():
        of_node[name] = {
            "alloc": {r: int(table.alloc_RN[i, row]) for r, i in table.axis.rows.items() if table.alloc_RN[i, row]},
            "used": {r: int(table.used_RN[i, row]) for r, i in table.axis.rows.items() if table.used_RN[i, row]},
            "assumed": table.used_RN[4:6, row].tolist(),
            "pods": sorted(table.on_row[row]),
            "cordoned": bool(table.cordoned_N[row]),
            "taints": table.taint_sets.values[table.taint_set_N[row]],
            "ports": sorted(
                (key, ip, rows[row])
                for key, holders in table.ports.items()
                for ip, rows in holders.items()
                if row in rows
            ),
            "images": sorted(name for name, image in table.images.items() if row in image.rows),
        }
    waiting = {node: sorted(pods) for node, pods in table.waiting.items()}
    return {"nodes": of_node, "waiting": waiting, "occupants": sorted(table.occupants)}


def answers(table: NodeTable, probes: list[SchedulerPod], cycle: Cycle | None = None) -> list[Any]:
    cycle = cycle or Cycle(table, kube_profile())
    found = []
    for probe in probes:
        evaluation = cycle.evaluation(probe)
        feasible_N = evaluation.feasible()
        totals_N = evaluation.totals(feasible_N)
        found.append({table.name(int(row)): int(totals_N[row]) for row in np.flatnonzero(feasible_N)})
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_ten_thousand_changes_end_where_a_rebuild_does(seed: int) -> None:
    rng = Random(seed)
    history = History(rng)
    probes = [msgspec.convert(template, SchedulerPod) for template in history.templates]
    for i in range(10_000):
        history.step()
        if i % 500 == 499:
            fresh = history.rebuilt()
            assert told(history.table) == told(fresh)
            # What the cycle has remembered through it all, and what it would find out now, both agree.
            assert answers(history.table, probes, history.cycle) == answers(fresh, probes)


def test_the_same_seed_decides_the_same() -> None:
    def run() -> list[Outcome]:
        rng = Random(11)
        world = worlds.a_world(rng, nodes=6, pods=10)
        cycle = Cycle(build(world), kube_profile(), ByChance(Random(5)))
        return cycle.decide_all(pods_of(rng, 60, fancy=0.2))

    assert run() == run()


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_sweeping_forgets_nothing_that_counts(seed: int) -> None:
    rng = Random(seed)
    table = build(worlds.a_world(rng))
    cycle = Cycle(table, kube_profile())
    probes = pods_of(rng, 10)
    before = answers(table, probes, cycle)
    table.classes.sweep(())
    assert answers(table, probes) == before
