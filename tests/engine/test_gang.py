"""Gangs: together or not at all."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

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
    table = racks({"one": [3], "two": [2]})
    table.add_pod(worker("busy", node="one-0"))
    outcome, statement = decide(table, Unit("job", workers(3), domains=Domains("rack")))
    assert isinstance(outcome, UnitRefused)
    assert outcome.diagnosis.message() == "no single domain of rack has room for 3 of 3 pods"
    assert not statement.placed
    anywhere, _ = decide(table, Unit("job", workers(3), domains=Domains("rack", required=False)))
    assert nodes_of(anywhere) == ["one-0", "one-0", "two-0"]


@pytest.mark.parametrize(
    ("sizes", "members", "minimum", "never", "sentence"),
    [
        pytest.param(
            {"one": [2], "two": [1, 2], "three": [1]},
            workers(4),
            None,
            NeverFits("default/w0", 4, 3, key="rack", domain="two"),
            "4 pods like default/w0 must be within one domain of rack, but two, which comes closest, "
            "has room for 3 when it is empty",
            id="too many pods for each",
        ),
        pytest.param({"one": [2], "two": [1, 2]}, workers(4), 3, None, "", id="of which one may stay out"),
        pytest.param(
            {"one": [2, 2], "two": [4]},
            a_pair("3", 1, "2", 1),
            None,
            NeverFits("default/a0", 2, 1, beside="default/b0", key="rack", domain="two"),
            "2 pods like default/a0 and default/b0 must be within one domain of rack, but two, which comes closest, "
            "has room for 1 when it is empty",
            id="room for either, not for both",
        ),
        pytest.param(
            {"one": [2, 2], "two": [4]}, a_pair("2", 1, "1", 2), None, None, "", id="room for both in either domain"
        ),
        pytest.param(
            {"one": [5, 5], "two": [5, 5]},
            tuple(Member(worker(f"w{i}", cpu)) for i, cpu in enumerate(("3", "4", "5"))),
            None,
            NeverFits("default/w0", 12_000, 10_000, resource="cpu", key="rack", domain="one"),
            "the pods needed ask for 12000 of cpu within one domain of rack, but one, which comes closest, "
            "has 10000 when it is empty",
            id="short of a resource",
        ),
    ],
)
def test_what_each_domain_is_too_small_for_can_never_fit(
    sizes: dict[str, list[int]],
    members: tuple[Member, ...],
    minimum: int | None,
    never: NeverFits | None,
    sentence: str,
) -> None:
    unit = Unit("job", members, minimum=minimum, domains=Domains("rack"))
    found = never_fits(Cycle(racks(sizes), kube_profile()), unit)
    assert (found, found.sentence() if found is not None else "") == (never, sentence)
    # Where a domain is only preferred, the rest of the cluster counts too.
    assert (
        never_fits(Cycle(racks(sizes), kube_profile()), replace(unit, domains=Domains("rack", required=False))) is None
    )


def test_without_any_node_of_the_label_no_domain_will_do() -> None:
    table = a_table([a_node("a", cpu=8)])
    outcome, _ = decide(table, Unit("job", workers(2), domains=Domains("rack")))
    assert isinstance(outcome, UnitRefused)
    assert outcome.never == NeverFits("", 2, 0, key="rack")
    assert outcome.diagnosis.message() == "its pods must be within one domain of rack, but no node has that label"


@pytest.mark.parametrize("spare", [[a_node("c", cpu=4, labels={"rack": "two"}, unschedulable=True)], []])
def test_a_cordoned_node_counts_in_its_domain(spare: list[Node]) -> None:
    nodes = [a_node("a", cpu=2, labels={"rack": "one"}), a_node("b", cpu=9), *spare]
    outcome, _ = decide(a_table(nodes), Unit("job", workers(4), domains=Domains("rack")))
    assert isinstance(outcome, UnitRefused)
    assert outcome.never == (None if spare else NeverFits("default/w0", 4, 2, key="rack", domain="one"))


@given(
    sizes=st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 7), min_size=1, max_size=3), min_size=1),
    unlabelled=st.lists(st.integers(0, 20), max_size=2),
    one=st.integers(1, 4),
    other=st.integers(1, 4),
    of_one=st.integers(1, 4),
    of_other=st.integers(1, 4),
)
def test_the_proof_by_domains_is_exact_for_two_shapes(
    sizes: dict[str, list[int]], unlabelled: list[int], one: int, other: int, of_one: int, of_other: int
) -> None:
    assume(one != other)
    table = racks(sizes)
    for i, cpu in enumerate(unlabelled):
        table.add_node(a_node(f"x{i}", cpu=cpu))
    unit = Unit("job", a_pair(str(one), of_one, str(other), of_other), domains=Domains("rack"))
    most = max(most_together(cpus, one, of_one, other, of_other) for cpus in sizes.values())
    never = never_fits(Cycle(table, kube_profile()), unit)
    assert (never is None) == (most == len(unit.members))
    if never is not None and never.key:
        assert never.domain in sizes


def fits_in_some_way(nodes: list[tuple[int, int]], asks: list[tuple[int, int]], needed: int) -> bool:
    """Whether the first, and so many with it, fit on these nodes: by trying every way."""

    def go(at: int, left: list[tuple[int, int]], placed: int) -> bool:
        if placed >= needed and at > 0:
            return True
        if at == len(asks):
            return False
        cpu, memory = asks[at]
        for i, (free_cpu, free_memory) in enumerate(left):
            if cpu <= free_cpu and memory <= free_memory:
                rest = [*left[:i], (free_cpu - cpu, free_memory - memory), *left[i + 1 :]]
                if go(at + 1, rest, placed + 1):
                    return True
        return at > 0 and go(at + 1, left, placed)

    return go(0, nodes, 0)


AMOUNTS = st.tuples(st.integers(1, 5), st.integers(1, 5))


@given(
    sizes=st.dictionaries(st.sampled_from("abc"), st.lists(AMOUNTS, min_size=1, max_size=2), min_size=1),
    asks=st.lists(st.sampled_from([(1, 1), (2, 1), (1, 3), (3, 2)]), min_size=1, max_size=5),
    missable=st.integers(0, 2),
)
def test_what_is_proven_never_to_fit_a_domain_fits_in_no_way(
    sizes: dict[str, list[tuple[int, int]]], asks: list[tuple[int, int]], missable: int
) -> None:
    nodes = [
        a_node(f"{rack}{i}", cpu=cpu, memory=f"{memory}Gi", labels={"rack": rack})
        for rack, amounts in sizes.items()
        for i, (cpu, memory) in enumerate(amounts)
    ]
    members = tuple(
        Member(a_pod(f"w{i}", cpu=str(cpu), memory=f"{memory}Gi"), essential=i == 0)
        for i, (cpu, memory) in enumerate(asks)
    )
    needed = max(1, len(asks) - missable)
    table = a_table(nodes)
    never = never_fits(Cycle(table, kube_profile()), Unit("job", members, minimum=needed, domains=Domains("rack")))
    fits = any(fits_in_some_way(amounts, asks, needed) for amounts in sizes.values())
    assert never is None or not fits
    if len(set(asks)) == 1:
        assert (never is None) == fits


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
