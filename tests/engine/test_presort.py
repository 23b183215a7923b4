"""The order of a round."""

from fractions import Fraction

from fairlead.engine.presort import Ask, Kind, Operation, Presort, presort, shares

MI = 2**20


def add(key: str, cpu: int = 0, memory: int = 0, kind: Kind = Kind.BALANCED, **more: int) -> Ask:
    return Ask(Operation.ADD, key, kind, cpu, memory, **more)


def keys(asks: list[Ask]) -> list[str]:
    return [ask.key for ask in asks]


def test_removals_come_first() -> None:
    asks = [add("big", 9000), Ask(Operation.REMOVE, "gone", cpu_milli=1)]
    assert keys(presort(asks)) == ["gone", "big"]


def test_a_share_is_among_pods_of_the_same_kind_and_operation() -> None:
    asks = [
        add("a", 100, kind=Kind.CPU),
        add("b", 300, kind=Kind.CPU),
        add("m", memory=64 * MI, kind=Kind.MEMORY),
        Ask(Operation.REMOVE, "r", Kind.CPU, 500),
    ]
    assert shares(asks) == [Fraction(1, 4), Fraction(3, 4), Fraction(1), Fraction(1)]
    assert keys(presort(asks)) == ["r", "m", "b", "a"]


def test_pods_without_a_favourite_take_the_larger_of_both_shares() -> None:
    asks = [add("cpu", 300, 100 * MI), add("memory", 100, 900 * MI)]
    assert shares(asks) == [Fraction(3, 4), Fraction(9, 10)]


def test_what_is_not_requested_is_the_load_or_else_assumed() -> None:
    asks = [add("load", load_cpu_milli=300, kind=Kind.CPU), add("silent", kind=Kind.CPU)]
    assert shares(asks) == [Fraction(3, 4), Fraction(1, 4)]


def test_equals_keep_their_order() -> None:
    assert keys(presort([add("z", 5), add("a", 5), add("m", 5)])) == ["z", "a", "m"]


def test_drf_measures_against_the_cluster() -> None:
    cluster = {"cpu": 10_000, "memory": 1000 * MI}
    asks = [add("cpu", 2000, 10 * MI), add("memory", 100, 300 * MI)]
    assert keys(presort(asks, Presort.DRF, cluster)) == ["memory", "cpu"]


def test_priority_alone() -> None:
    assert keys(presort([add("low", 9), add("high", 1, priority=5)], Presort.PRIORITY)) == ["high", "low"]
