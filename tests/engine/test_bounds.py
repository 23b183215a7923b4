"""What tenants and nodes write does not pile up: columns only for what nodes offer, and nothing outlives its users."""

import msgspec

from fairlead.engine.axes import FEW, FIRST_SCALAR, LabelColumn
from fairlead.engine.catalog import Catalog
from fairlead.engine.cycle import LEAST_REMEMBERED, Cycle
from fairlead.engine.gang import MOST_POLICIES, Gangs
from fairlead.engine.gpu_requests import MOST_DEVICES
from fairlead.engine.gpus import FEW_MODELS
from fairlead.engine.labels import FEW_NODES, MAX_COLUMNS
from fairlead.engine.pod_classes import FIRST_SWEEP
from fairlead.engine.profile import kube_profile
from fairlead.engine.spread import MOST_CONSTRAINTS
from fairlead.engine.statement import Statement
from fairlead.engine.table import MOST_SCALARS, NodeTable
from fairlead.engine.terms import MOST_TERMS
from fairlead.engine.unit import Member, Unit
from fairlead.model.node import Node
from fairlead.model.outcome import Placed, Refused
from fairlead.model.pod import SchedulerPod
from fairlead.model.workloads import Service
from fairlead.testing.builders import a_node, a_pod, a_table

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def many_names(count: int) -> dict[str, str]:
    return {f"example.com/r{i}": "1" for i in range(count)}


def scalars(table: NodeTable) -> int:
    assert len(table.alloc_RN) == len(table.used_RN) == table.axis.size
    return table.axis.size - FIRST_SCALAR


# -- resources ------------------------------------------------------------------------------------------------


def test_a_resource_that_nobody_offers_is_refused_without_a_column() -> None:
    table = a_table([a_node("a"), a_node("b")])
    cycle = Cycle(table, kube_profile())
    refused = cycle.decide(a_pod(requests=many_names(20_000)))
    assert isinstance(refused, Refused)
    assert len(refused.diagnosis.refusals) == 20_000
    assert {each.reason for each in refused.diagnosis.refusals} == {
        f"Insufficient {name}" for name in many_names(20_000)
    }
    assert {(each.nodes, each.unresolvable) for each in refused.diagnosis.refusals} == {(2, 2)}
    assert scalars(table) == 0
    # Nor does one that a pod holds which somebody else has placed.
    table.add_pod(a_pod("placed", node="a", requests=many_names(20_000)))
    assert scalars(table) == 0


def test_what_placed_pods_take_counts_from_the_moment_that_a_node_offers_it() -> None:
    placed = [a_pod(f"p{i}", node="a", requests={"example.com/r": "2"}) for i in range(3)]
    table = a_table([a_node("a")], placed)
    cycle = Cycle(table, kube_profile())
    wants = a_pod("wants", requests={"example.com/r": "2"})
    assert isinstance(cycle.decide(wants), Refused)
    table.update_node(a_node("a", example__com_r=7))
    row = table.axis.known("example.com/r")
    assert row is not None
    assert int(table.used_RN[row, table.row_of["a"]]) == 6
    assert isinstance(cycle.decide(wants), Refused)
    table.remove_pod("uid-default-p0")
    assert isinstance(cycle.decide(wants), Placed)


def test_a_column_goes_with_the_last_node_that_offers_it() -> None:
    table = a_table([a_node("a", example__com_x=1, example__com_y=5), a_node("b", example__com_y=2)])
    cycle = Cycle(table, kube_profile())
    assert scalars(table) == 2
    y = a_pod("y", requests={"example.com/y": "2"})
    assert isinstance(cycle.decide(y), Placed)
    table.update_node(a_node("a", example__com_y=5))
    assert scalars(table) == 1
    # The rows were numbered anew; what was remembered by row is not.
    assert [cycle.decide(a_pod(f"y{i}", requests={"example.com/y": "2"})).__class__ for i in range(3)] == [
        Placed,
        Placed,
        Refused,
    ]
    table.remove_node("a")
    table.remove_node("b")
    assert scalars(table) == 0
    table.add_node(a_node("b", example__com_y=2))
    table.add_node(a_node("a", example__com_y=5))
    assert sum(table.used_RN[FIRST_SCALAR].tolist()) == 6


def test_a_resource_of_which_a_node_has_none_is_not_offered() -> None:
    table = a_table([a_node("a", example__com_x=0)])
    assert scalars(table) == 0


def test_a_node_with_thousands_of_resources_takes_no_more_than_its_share() -> None:
    table = a_table([a_node("a")], [a_pod("early", node="b", requests={"z.example.com/late": "1"})])
    document = msgspec.to_builtins(a_node("h"))
    document["status"]["allocatable"] |= many_names(10_000)
    table.add_node(msgspec.convert(document, Node))
    assert scalars(table) == MOST_SCALARS
    table.add_node(a_node("b", z__example__com_late=2))
    # A node that offers few gets its columns from the one that offers many, and what is in use of them is counted.
    assert scalars(table) == MOST_SCALARS
    assert (table.uncounted("b"), table.uncounted("h")) == (0, 10_000 - MOST_SCALARS + 1)
    cycle = Cycle(table, kube_profile())
    late = a_pod("late", requests={"z.example.com/late": "1"})
    assert isinstance(cycle.decide(late), Placed)
    assert isinstance(cycle.decide(a_pod("later", requests={"z.example.com/late": "1"})), Refused)
    table.remove_node("h")
    assert scalars(table) == 1
    assert isinstance(cycle.decide(a_pod("last", requests={"z.example.com/late": "1"})), Refused)


def test_columns_are_given_alike_whatever_the_order_of_nodes() -> None:
    document = msgspec.to_builtins(a_node("h"))
    document["status"]["allocatable"] |= many_names(2 * MOST_SCALARS)
    hostile = msgspec.convert(document, Node)
    nodes = [hostile, *(a_node(f"n{number}", nvidia__com_gpu=8, example__com_x=number + 1) for number in range(3))]
    found = []
    for order in (nodes, nodes[::-1], [*nodes[1:], hostile], [nodes[1], hostile, *nodes[2:]]):
        table = a_table(order)
        assert scalars(table) == MOST_SCALARS
        rows = {name: at for name, at in table.axis.rows.items() if at >= FIRST_SCALAR}
        found.append({name: sorted(table.alloc_RN[at].tolist())[-4:] for name, at in rows.items()})
    assert found[0] == found[1] == found[2] == found[3]
    assert found[0]["nvidia.com/gpu"] == [0, 8, 8, 8]
    assert found[0]["example.com/x"] == [0, 1, 2, 3]


def test_a_column_that_another_node_takes_over_counts_again_when_there_is_room() -> None:
    document = msgspec.to_builtins(a_node("h"))
    names = many_names(MOST_SCALARS)
    document["status"]["allocatable"] |= names
    last = max(names)
    table = a_table([msgspec.convert(document, Node)], [a_pod("user", node="h", requests={last: "1"})])
    cycle = Cycle(table, kube_profile())
    table.add_node(a_node("b", example__com_x=1))
    # Nothing is given of what is not counted.
    assert table.axis.known(last) is None
    assert isinstance(cycle.decide(a_pod("one", requests={last: "1"})), Refused)
    table.remove_node("b")
    assert table.used_RN[table.axis.rows[last]].sum() == 1


def test_devices_told_apart_have_a_limit() -> None:
    table = a_table([a_node("a", nvidia__com_gpu=10**9), a_node("b", nvidia__com_gpu=2)])
    assert table.gpus.free_milli_NG.shape[1] == MOST_DEVICES
    outcome = Cycle(table, kube_profile()).decide(a_pod("p", requests={"nvidia.com/gpu": "1000"}))
    assert isinstance(outcome, Placed)


# -- labels ---------------------------------------------------------------------------------------------------


def selecting(*keys: str, name: str = "p") -> SchedulerPod:
    return a_pod(name, nodeSelector=dict.fromkeys(keys, "1"))


def test_a_label_that_no_node_has_makes_no_column() -> None:
    table = a_table([a_node("a", labels={"zone": "1"})])
    cycle = Cycle(table, kube_profile())
    before = len(table.labels.columns)
    keys = [f"key-{i}" for i in range(20_000)]
    refused = cycle.decide(selecting(*keys))
    assert isinstance(refused, Refused)
    assert (
        refused.diagnosis.message() == "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    )
    terms = [{"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]} for key in keys]
    assert isinstance(
        cycle.decide(a_pod("q", affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}})), Placed
    )
    anti = [{"topologyKey": key, "labelSelector": {"matchLabels": {"a": "b"}}} for key in keys[:MOST_TERMS]]
    assert isinstance(cycle.decide(a_pod("r", affinity={"podAntiAffinity": {REQUIRED: anti}})), Placed)
    spread = [
        {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway"} for key in keys[:MOST_CONSTRAINTS]
    ]
    assert isinstance(cycle.decide(a_pod("s", topologySpreadConstraints=spread)), Placed)
    assert len(table.labels.columns) == before


def test_a_node_with_thousands_of_labels_costs_few_columns() -> None:
    keys = [f"key-{i}" for i in range(10_000)]
    table = a_table([a_node("a"), a_node("b", labels=dict.fromkeys(keys, "1"))])
    cycle = Cycle(table, kube_profile())
    assert len(table.labels) == 10_001
    assert isinstance(placed := cycle.decide(selecting(*keys)), Placed)
    assert placed.node == "b"
    assert len(table.labels.columns) <= MAX_COLUMNS
    assert isinstance(cycle.decide(selecting(*keys, "another")), Refused)
    table.update_node(a_node("b"))
    assert (len(table.labels), len(table.labels.columns)) == (1, len(table.labels.columns))
    assert set(table.labels.columns) <= {"kubernetes.io/hostname"}
    assert isinstance(cycle.decide(selecting("key-5", name="late")), Refused)


def test_values_are_forgotten_with_their_last_node() -> None:
    table = a_table([a_node("stays", labels={"build": "0"})])
    column = table.label("build")
    for i in range(1, 1000):
        table.add_node(a_node("comes", labels={"build": str(i)}))
        table.remove_node("comes")
        table.update_node(a_node("stays", labels={"build": f"v{i}"}))
    assert column is table.label("build")
    assert (column.numbers, column.size <= 2) == ({"v999": column.ids_N[table.row_of["stays"]]}, True)
    table.remove_node("stays")
    assert len(table.labels) == 0
    assert table.labels.columns == {}


def test_a_column_of_many_nodes_goes_with_the_last_of_them() -> None:
    count = FEW_NODES + 5
    table = a_table([a_node(f"n{i}", labels={"zone": str(i % 3)}) for i in range(count)])
    assert set(table.labels.columns) == {"zone", "kubernetes.io/hostname"}
    zone = table.label("zone")
    assert [int((zone.ids_N == number).sum()) for number in zone.numbers.values()] == [23, 23, 23]
    for i in range(count):
        table.update_node(a_node(f"n{i}"))
    assert set(table.labels.columns) == {"kubernetes.io/hostname"}


def test_counts_by_a_column_that_was_dropped_are_right_when_it_returns() -> None:
    anti = {"podAntiAffinity": {REQUIRED: [{"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "a"}}}]}}

    def alone(name: str) -> SchedulerPod:
        return a_pod(name, labels={"app": "a"}, affinity=anti)

    table = a_table([a_node("n1", labels={"rack": "1"}), a_node("n2", labels={"rack": "2"})])
    cycle = Cycle(table, kube_profile())
    assert [getattr(cycle.decide(alone(f"p{i}")), "node", "") for i in range(3)] == ["n1", "n2", ""]
    # So many other keys are asked for meanwhile that this one's column goes, and the table outgrows its rows.
    others = {f"key-{i}": "1" for i in range(2 * MAX_COLUMNS)}
    table.add_node(a_node("n3", labels={"rack": "3", **others}))
    for key in others:
        table.label(key)
    for i in range(200):
        table.add_node(a_node(f"n3-{i}", labels={"rack": "3"}))
    assert [getattr(cycle.decide(alone(f"q{i}")), "node", "") for i in range(2)] == ["n3", ""]
    table.remove_pod("uid-default-p0")
    assert [getattr(cycle.decide(alone(f"r{i}")), "node", "") for i in range(2)] == ["n1", ""]


def test_numbers_of_values_are_given_again() -> None:
    column = LabelColumn("key", 8)
    for row, value in enumerate(("a", "b", "c")):
        column.set(row, value)
    column.set(1, None)
    column.set(4, "d")
    assert (column.numbers, column.ids_N.tolist()) == ({"a": 0, "c": 2, "d": 1}, [0, -1, 2, -1, 1, -1, -1, -1])


# -- what nodes share -----------------------------------------------------------------------------------------


def test_taints_conditions_features_and_models_are_forgotten_with_their_nodes() -> None:
    table = a_table([a_node("a", taints=[{"key": "stays", "effect": "NoSchedule"}])])
    cycle = Cycle(table, kube_profile())
    tolerant = a_pod("p", tolerations=[{"key": "stays", "operator": "Exists"}])
    assert isinstance(cycle.decide(tolerant), Placed)
    for i in range(1000):
        node = a_node(
            "b",
            taints=[{"key": f"key-{i}", "effect": "NoSchedule"}],
            conditions={f"Condition{i}": "True"},
            labels={"nvidia.com/gpu.product": f"model-{i}"},
            nvidia__com_gpu=1,
        )
        table.add_node(node)
        if i % 100 == 0:
            assert isinstance(
                cycle.decide(a_pod(f"q{i}", tolerations=[{"key": "stays", "operator": "Exists"}])), Placed
            )
            assert isinstance(
                cycle.decide(a_pod(f"r{i}", tolerations=[{"key": "none", "operator": "Exists"}])), Refused
            )
    assert len(table.taint_sets.values) <= FEW + 1
    assert len(table.condition_sets.values) <= FEW + 1
    assert len(table.gpus.model_ids) <= 2 * FEW_MODELS
    assert table.taint_sets.values[table.taint_set_N[table.row_of["a"]]][0].key == "stays"
    wants = a_pod(
        "m",
        requests={"nvidia.com/gpu": "1"},
        annotations={"fairlead.io/gpu-models": "model-999"},
        tolerations=[{"operator": "Exists"}],
    )
    assert isinstance(cycle.decide(wants), Placed)


# -- classes of pods ------------------------------------------------------------------------------------------


def test_a_standby_forgets_classes_that_have_no_pods() -> None:
    table = a_table([a_node("a", pods=10**6)])
    for i in range(3 * FIRST_SWEEP):
        pod = a_pod("p", node="a", labels={"build": str(i)})
        table.add_pod(pod)
        table.remove_pod(pod.uid)
    assert len(table.classes.requests) <= FIRST_SWEEP + 1


def test_large_classes_are_forgotten_sooner() -> None:
    table = a_table([a_node("a")])
    cycle = Cycle(table, kube_profile())
    for i in range(200):
        cycle.decide(a_pod("p", cpu="100", labels={"text": "x" * 300_000, "build": str(i)}))
    assert len(table.classes.requests) < 150
    assert len(table.classes.requests) >= LEAST_REMEMBERED


def test_terms_are_forgotten_with_the_pods_that_carry_them() -> None:
    table = a_table([a_node("a", pods=10**6)])
    cycle = Cycle(table, kube_profile())
    for i in range(3):
        terms = [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": f"{i}-{j}"}}} for j in range(MOST_TERMS)
        ]
        pod = a_pod(f"p{i}", affinity={"podAntiAffinity": {REQUIRED: terms}})
        assert isinstance(cycle.decide(pod), Placed)
        table.remove_pod(pod.uid)
    table.classes.sweep(())
    assert (table.classes.carried, table.classes.tallies) == ([], {})
    for i in range(40):
        terms = [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"b": f"{i}-{j}"}}} for j in range(MOST_TERMS)
        ]
        pod = a_pod(f"q{i}", node="a", affinity={"podAntiAffinity": {REQUIRED: terms}})
        table.add_pod(pod)
        table.remove_pod(pod.uid)
    assert len(table.classes.carried) < 2 * FIRST_SWEEP


def test_ports_and_services_leave_nothing_behind() -> None:
    table = a_table([a_node("a")])
    for i in range(1, 100):
        pod = a_pod("p", node="a", ports=[{"hostPort": i, "containerPort": 1}])
        table.add_pod(pod)
        table.remove_pod(pod.uid)
    assert table.ports == {}
    catalog = Catalog()
    service = Service(metadata=a_pod(namespace="tenant").metadata)
    catalog.set_selecting(service)
    catalog.drop_selecting(service)
    assert catalog._services == {}


def test_policies_of_units_have_a_limit() -> None:
    table = a_table([a_node("a", pods=10**6)])
    gangs = Gangs(Cycle(table, kube_profile()))
    for i in range(3 * MOST_POLICIES):
        unit = Unit(f"u{i}", (Member(a_pod(f"p{i}")),), policies={"": "BinPack"}, job_label=f"example.com/job-{i}")
        gangs.decide(unit, Statement(table))
    assert len(gangs._policies) == MOST_POLICIES
