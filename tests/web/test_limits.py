"""Buckets: a burst, then a steady rate, and no memory without end."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead.web.limits import Limits


def test_a_burst_and_then_the_rate() -> None:
    limits = Limits(per_s=2.0, burst=3)
    assert [limits.take("ann", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert limits.take("ann", 0.5) == 0.0
    assert limits.take("ann", 0.5) > 0.0
    assert limits.take("bob", 0.5) == 0.0


def test_what_is_given_back_does_not_count() -> None:
    limits = Limits(per_s=1.0, burst=1)
    for _ in range(3):
        assert limits.take("ann", 0.0) == 0.0
        limits.give_back("ann")
    limits.give_back("nobody")
    assert [limits.take("ann", 0.0) > 0 for _ in range(2)] == [False, True]


def test_a_long_silence_saves_up_no_more_than_the_burst() -> None:
    limits = Limits(per_s=1.0, burst=2)
    limits.take("ann", 0.0)
    assert [limits.take("ann", 1e6) > 0 for _ in range(3)] == [False, False, True]


def test_the_longest_unheard_of_is_forgotten() -> None:
    limits = Limits(per_s=0.001, burst=1, most_callers=2)
    for caller in ("ann", "bob", "cyd"):
        assert limits.take(caller, 0.0) == 0.0
    assert limits.take("cyd", 0.0) > 0.0
    assert limits.take("ann", 0.0) == 0.0


@given(gaps=st.lists(st.floats(0.0, 10.0), max_size=60), per_s=st.floats(0.1, 10.0), burst=st.integers(1, 10))
def test_never_more_than_the_burst_and_what_time_brought(gaps: list[float], per_s: float, burst: int) -> None:
    limits, now_s, passed = Limits(per_s, burst), 0.0, 0
    for gap in gaps:
        now_s += gap
        passed += limits.take("ann", now_s) == 0.0
    assert passed <= burst + now_s * per_s + 1e-6
