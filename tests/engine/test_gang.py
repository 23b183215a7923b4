"""Gangs: together or not at all."""

from fairlead.engine.cycle import Cycle
from fairlead.engine.gang import Gangs
from fairlead.engine.profile import kube_profile
from fairlead.engine.statement import Statement
from fairlead.engine.table import NodeTable
from fairlead.engine.unit import Domains, Member, NeverFits, Unit, UnitOutcome, UnitPlaced, UnitRefused
from fairlead.model.pod import Pod
from fairlead.testing.builders import a_node, a_pod, a_table

JOB = "example.com/job"


def worker(name: str, cpu: str = "1", **more: object) -> Pod:
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
    assert outcome.never == NeverFits("default/leader", 1, 0)


def test_what_can_never_fit_is_proved_in_the_first_cycle() -> None:
    full = [worker("busy", node="a")]
    outcome, _ = decide(a_table([a_node("a", cpu=2), a_node("b", cpu=3)], full), Unit("job", workers(6)))
    assert isinstance(outcome, UnitRefused)
    assert outcome.never is not None
    assert outcome.never.sentence() == "6 pods like default/w0 are needed, but the cluster, empty, has room for 5"


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


def test_a_held_place_is_taken_by_the_pod_when_it_comes() -> None:
    table = a_table([a_node("a", cpu=2)])
    planned = worker("w0")
    outcome, _ = decide(table, Unit("job", (Member(planned),)))
    assert nodes_of(outcome) == ["a"]
    used = table.used_RN.copy()
    table.add_pod(worker("w0", node="a"))
    assert (table.used_RN == used).all()
    assert len(table.occupants) == 1
