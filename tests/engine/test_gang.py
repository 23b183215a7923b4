"""Gangs: together or not at all."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fairlead.engine.cycle import Cycle
from fairlead.engine.gang import Gangs
from fairlead.engine.profile import kube_profile
from fairlead.engine.proof import never_fits
from fairlead.engine.statement import Statement
from fairlead.engine.table import NodeTable
from fairlead.engine.unit import Domains, LargestNode, Member, NeverFits, Unit, UnitOutcome, UnitPlaced, UnitRefused
from fairlead.model.node import Node
from fairlead.model.pod import SchedulerPod
from fairlead.testing.builders import a_node, a_pod, a_table

JOB = "example.com/job"


def worker(name: str, cpu: str = "1", **more: object) -> SchedulerPod:
    return a_pod(name, cpu=cpu, memory="1Mi", labels={JOB: "train"}, **more)  # type: ignore[arg-type]


def workers(count: int, cpu: str = "1") -> tuple[Member, ...]:
    return tuple(Member(worker(f"w{i}", cpu), "worker") for i in range(count))


def decide(table: NodeTable, unit: Unit) -> tuple[UnitOutcome, Statement]:
    statement = Statement(table)
    return Gangs(Cycle(table, kube_profile())).decide(unit, statement), statement


def nodes_of(outcome: UnitOutcome) -> list[str]:
    assert isinstance(outcome, UnitPlaced)
    return sorted(placed.node for placed in outcome.placed)


def test_all_members_find_a_place() -> None:
    outcome, statement = decide(a_table([a_node("a", cpu=2), a_node("b", cpu=2)]), Unit("job", workers(4)))
    assert nodes_of(outcome) == ["a", "a", "b", "b"]
    assert len(statement.placed) == 4


def test_gang_short_of_minimum_leaves_no_trace() -> None:
    table = a_table([a_node("a", cpu=2), a_node("b", cpu=2)], [worker("other", node="a")])
    outcome, statement = decide(table, Unit("job", workers(4)))
    assert isinstance(outcome, UnitRefused)
    assert (outcome.pod, outcome.fitting, outcome.never) == ("default/w3", 3, None)
    assert outcome.diagnosis.message() == "0/2 nodes are available: 2 Insufficient cpu."
    assert (len(statement.placed), len(table.occupants)) == (0, 1)


def test_beyond_the_minimum_members_may_wait() -> None:
    outcome, _ = decide(a_table([a_node("a", cpu=3)]), Unit("job", workers(5), minimum=2))
    assert nodes_of(outcome) == ["a", "a", "a"]
    assert isinstance(outcome, UnitPlaced)
    assert outcome.waiting == ("default/w3", "default/w4")


def test_an_essential_member_is_never_left_out() -> None:
    leader = Member(worker("leader", "4"), "leader", essential=True)
    outcome, _ = decide(a_table([a_node("a", cpu=3)]), Unit("job", (*workers(2), leader), minimum=2))
    assert isinstance(outcome, UnitRefused)
    assert outcome.never == NeverFits("default/leader", 1, 0, largest=LargestNode("a", "cpu", 4000, 3000))


def test_pods_that_no_node_is_labelled_for_can_never_fit() -> None:
    outcome, _ = decide(a_table([a_node("a", cpu=3)]), Unit("job", (Member(worker("w", nodeSelector={"disk": "x"})),)))
    assert isinstance(outcome, UnitRefused)
    assert outcome.never == NeverFits("default/w", 1, 0, largest=LargestNode())


def test_what_can_never_fit_is_proved_in_the_first_cycle() -> None:
    full = [worker("busy", node="a")]
    outcome, _ = decide(a_table([a_node("a", cpu=2), a_node("b", cpu=3)], full), Unit("job", workers(6)))
    assert isinstance(outcome, UnitRefused)
    assert outcome.never is not None
    assert outcome.never.sentence() == "6 pods like default/w0 are needed, but the cluster, empty, has room for 5"


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param([], id="no nodes, no proof"),
        pytest.param([a_node("a", cpu=8, unschedulable=True)], id="cordoned"),
        pytest.param(
            [a_node("a", cpu=8, taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}])],
            id="not ready",
        ),
    ],
)
def test_what_may_change_while_waiting_proves_nothing(nodes: list[Node]) -> None:
    outcome, _ = decide(a_table(nodes), Unit("job", workers(6)))
    assert isinstance(outcome, UnitRefused)
    assert outcome.never is None


def test_nodes_that_are_cordoned_count_with_what_they_have() -> None:
    nodes = [a_node("a", cpu=3, unschedulable=True), a_node("b", cpu=2)]
    outcome, _ = decide(a_table(nodes), Unit("job", workers(6)))
    assert isinstance(outcome, UnitRefused)
    assert outcome.never == NeverFits("default/w0", 6, 5)


def test_nodes_that_the_members_do_not_select_are_no_room() -> None:
    nodes = [a_node("a", cpu=8), a_node("b", cpu=2, labels={"disk": "fast"})]
    members = tuple(Member(worker(f"w{i}", nodeSelector={"disk": "fast"})) for i in range(3))
    outcome, _ = decide(a_table(nodes), Unit("job", members))
    assert isinstance(outcome, UnitRefused)
    assert outcome.never == NeverFits("default/w0", 3, 2)


def a_pair(one: str, of_one: int, other: str, of_other: int) -> tuple[Member, ...]:
    ones = [Member(worker(f"a{i}", one)) for i in range(of_one)]
    return (*ones, *(Member(worker(f"b{i}", other)) for i in range(of_other)))


@pytest.mark.parametrize(
    ("cpus", "members", "minimum", "room"),
    [
        pytest.param([4], a_pair("3", 1, "2", 1), None, 1, id="one node that has room for either"),
        pytest.param([4, 1, 1, 1], a_pair("3", 1, "2", 1), None, 1, id="and others that have room for neither"),
        pytest.param([4, 4], a_pair("3", 2, "2", 1), None, 2, id="enough in sum, but cut to the wrong size"),
        pytest.param([4, 4], a_pair("3", 1, "2", 2), None, None, id="which fit side by side"),
        pytest.param([4, 4], a_pair("3", 2, "2", 1), 2, None, id="or when one may stay out"),
        pytest.param([7] * 40, a_pair("3", 50, "2", 61), None, 110, id="on many nodes, one too many"),
        pytest.param([7] * 40, a_pair("3", 50, "2", 60), None, None, id="on many nodes, just enough"),
    ],
)
def test_two_shapes_that_never_fit_together(
    cpus: list[int], members: tuple[Member, ...], minimum: int | None, room: int | None
) -> None:
    table = a_table([a_node(f"n{i}", cpu=cpu) for i, cpu in enumerate(cpus)])
    never = never_fits(Cycle(table, kube_profile()), Unit("job", members, minimum=minimum))
    assert never == (None if room is None else NeverFits("default/a0", len(members), room, beside="default/b0"))
    if never is not None:
        assert never.sentence() == (
            f"{len(members)} pods like default/a0 and default/b0 are needed together, "
            f"but the cluster, empty, has room for {room}"
        )


def most_together(cpus: list[int], one: int, of_one: int, other: int, of_other: int) -> int:
    """By trying every way to share the ones out."""
    best = 0

    def go(left: list[int], ones: int, others: int) -> None:
        nonlocal best
        if not left:
            best = max(best, ones + others)
            return
        for count in range(min(of_one - ones, left[0] // one) + 1):
            beside = min(of_other - others, (left[0] - count * one) // other)
            go(left[1:], ones + count, others + beside)

    go(cpus, 0, 0)
    return best


@given(
    cpus=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    one=st.integers(1, 4),
    other=st.integers(1, 4),
    of_one=st.integers(1, 5),
    of_other=st.integers(1, 5),
)
def test_the_count_of_two_shapes_is_exact(cpus: list[int], one: int, other: int, of_one: int, of_other: int) -> None:
    assume(one != other)
    table = a_table([a_node(f"n{i}", cpu=cpu) for i, cpu in enumerate(cpus)])
    members = a_pair(str(one), of_one, str(other), of_other)
    most = most_together(cpus, one, of_one, other, of_other)
    never = never_fits(Cycle(table, kube_profile()), Unit("job", members))
    assert (never is None) == (most == len(members))
    if never is not None and never.beside:
        assert never.room == most


def test_members_that_differ_in_labels_only_are_of_one_shape() -> None:
    table = a_table([a_node(f"n{i}", cpu=32) for i in range(3)])
    leader = Member(worker("leader", "20"), essential=True)
    sets = [[a_pod(f"{name}{i}", cpu="13", labels={"set": name}) for i in range(2)] for name in "ab"]
    members = (leader, *(Member(pod) for pods in sets for pod in pods))
    assert never_fits(Cycle(table, kube_profile()), Unit("job", members)) is None
    members += (Member(a_pod("c0", cpu="13", labels={"set": "c"})),)
    never = never_fits(Cycle(table, kube_profile()), Unit("job", members))
    assert never == NeverFits("default/leader", 6, 5, beside="default/a0")
    elsewhere = Member(a_pod("c0", cpu="13", labels={"set": "c"}, nodeSelector={"disk": "fast"}))
    table = a_table([*(a_node(f"n{i}", cpu=32) for i in range(3)), a_node("f", cpu=13, labels={"disk": "fast"})])
    assert never_fits(Cycle(table, kube_profile()), Unit("job", (*members[:-1], elsewhere))) is None


def test_three_shapes_are_short_of_a_resource() -> None:
    table = a_table([a_node(f"n{i}", cpu=5) for i in range(2)])
    members = tuple(Member(worker(f"w{i}", cpu)) for i, cpu in enumerate(("3", "4", "5")))
    never = never_fits(Cycle(table, kube_profile()), Unit("job", members))
    assert never == NeverFits("default/w0", 12_000, 10_000, resource="cpu")
    assert never.sentence() == "the pods needed ask for 12000 of cpu, but the cluster, empty, has 10000"
    assert never_fits(Cycle(table, kube_profile()), Unit("job", members, minimum=2)) is None


def test_nobody_placed_is_no_placement() -> None:
    outcome, _ = decide(a_table([a_node("a", cpu=1)]), Unit("job", workers(2, "2"), minimum=0))
    assert isinstance(outcome, UnitRefused)
    outcome, _ = decide(a_table([a_node("a", cpu=2)]), Unit("job", workers(2, "2"), minimum=0))
    assert nodes_of(outcome) == ["a"]
    with pytest.raises(ValueError, match="unit 'job': must have at least one member"):
        Unit("job", ())


def test_more_than_there_are_can_never_be_placed() -> None:
    outcome, statement = decide(a_table([a_node("a")]), Unit("job", workers(2), minimum=3))
    assert isinstance(outcome, UnitRefused)
    assert outcome.never is not None
    assert outcome.diagnosis.message() == outcome.never.sentence() == "3 pods are needed, but the unit has 2"
    assert not statement.placed


def test_room_cleared_for_another_is_not_given_to_a_gang() -> None:
    table = a_table([a_node("a", cpu=4), a_node("b", cpu=2)])
    urgent = a_pod("urgent", cpu="3", priority=10, status={"nominatedNodeName": "a"})
    gangs = Gangs(Cycle(table, kube_profile()))
    refused = gangs.decide(Unit("job", workers(4)), Statement(table), [urgent])
    assert isinstance(refused, UnitRefused)
    assert nodes_of(gangs.decide(Unit("job", workers(3)), Statement(table), [urgent])) == ["a", "b", "b"]


def test_shapes_that_use_different_things_share_a_domain() -> None:
    table = a_table([a_node("r1", cpu="4200m", memory="4200Mi", labels={"rack": "1"})])
    by_cpu = tuple(Member(a_pod(f"c{i}", cpu="2", memory="100Mi")) for i in range(2))
    by_memory = (Member(a_pod("m", cpu="100m", memory="2000Mi")),)
    outcome, _ = decide(table, Unit("job", (*by_cpu, *by_memory), domains=Domains("rack")))
    assert nodes_of(outcome) == ["r1", "r1", "r1"]


def test_a_second_order_is_tried_before_giving_up() -> None:
    # The leader as given goes first and, spreading, takes the only node that the large worker fits.
    table = a_table([a_node("a", cpu=4), a_node("b", cpu=2)])
    leader = Member(worker("leader", "1"), "leader", essential=True)
    large = Member(worker("large", "4"), "worker")
    outcome, _ = decide(table, Unit("job", (leader, large)))
    assert isinstance(outcome, UnitPlaced)
    assert {placed.pod: placed.node for placed in outcome.placed} == {"default/large": "a", "default/leader": "b"}


def racks(sizes: dict[str, list[int]]) -> NodeTable:
    return a_table(
        [
            a_node(f"{rack}-{i}", cpu=cpu, labels={"rack": rack})
            for rack, cpus in sizes.items()
            for i, cpu in enumerate(cpus)
        ]
    )


def test_the_smallest_domain_with_room_is_taken() -> None:
    table = racks({"large": [8, 8], "small": [2, 2], "tiny": [1]})
    outcome, _ = decide(table, Unit("job", workers(4), domains=Domains("rack")))
    assert isinstance(outcome, UnitPlaced)
    assert (outcome.domain, nodes_of(outcome)) == ("small", ["small-0", "small-0", "small-1", "small-1"])


def test_no_domain_with_room_is_told_as_such() -> None:
    table = racks({"one": [2], "two": [2]})
    outcome, statement = decide(table, Unit("job", workers(3), domains=Domains("rack")))
    assert isinstance(outcome, UnitRefused)
    assert outcome.diagnosis.message() == "no single domain of rack has room for 3 of 3 pods"
    assert not statement.placed
    anywhere, _ = decide(table, Unit("job", workers(3), domains=Domains("rack", required=False)))
    assert nodes_of(anywhere) == ["one-0", "one-0", "two-0"]


def test_policies_are_by_role() -> None:
    gpus = [a_node("a", nvidia__com_gpu=8), a_node("b", nvidia__com_gpu=8)]
    table = a_table(gpus, [a_pod("busy", node="a", requests={"nvidia.com/gpu": "4"})])
    leader = Member(worker("leader"), "leader", essential=True)
    unit = Unit("job", (leader, *workers(2)), policies={"leader": "LeaderFirst", "worker": "BinPack"}, job_label=JOB)
    outcome, _ = decide(table, unit)
    assert isinstance(outcome, UnitPlaced)
    places = {placed.pod: placed.node for placed in outcome.placed}
    # The leader gets the quieter node; workers pack onto what is used most in what they ask for.
    assert places == {"default/leader": "b", "default/w0": "b", "default/w1": "b"}


@pytest.mark.parametrize(("caches", "beside"), [(1, {"a"}), (2, {"a", "b"})])
def test_a_cache_takes_room_beside_its_readers_before_these_fill_the_node(caches: int, beside: set[str]) -> None:
    """Readers first would fill node a, and leave the cache a node without any."""
    table = a_table([a_node("a", cpu=8), a_node("b", cpu=5)])
    first = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}]}
    liked = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": first}]}
    readers = tuple(Member(worker(f"r{i}", "4", affinity={"nodeAffinity": liked})) for i in range(2))
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"cache": "x"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
    cache = tuple(
        Member(a_pod(f"c{i}", cpu="1", labels={JOB: "train", "cache": "x"}, affinity=apart), "cache")
        for i in range(caches)
    )
    unit = Unit("job", (*readers, *cache), policies={"cache": "JobAffinity"}, beside="cache", job_label=JOB)
    outcome, statement = decide(table, unit)
    assert isinstance(outcome, UnitPlaced)
    places = {placed.pod: placed.node for placed in outcome.placed}
    assert {places[f"default/c{i}"] for i in range(caches)} == beside
    assert [places[f"default/r{i}"] in beside for i in range(2)].count(True) == caches
    assert len(statement.placed) == 2 + caches, "what was only tried is undone"


def test_a_held_place_is_taken_by_the_pod_when_it_comes() -> None:
    table = a_table([a_node("a", cpu=2)])
    planned = worker("w0")
    outcome, _ = decide(table, Unit("job", (Member(planned),)))
    assert nodes_of(outcome) == ["a"]
    used = table.used_RN.copy()
    table.add_pod(worker("w0", node="a"))
    assert (table.used_RN == used).all()
    assert len(table.occupants) == 1
