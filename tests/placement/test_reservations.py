"""Promises: who holds which room, until when; the same as looking through all of them, and cheaper."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead.placement.reservations import MOST_VOID, Reservation, Reservations
from fairlead.testing.builders import a_node, a_pod, a_table


def a_promise(name: str, *, owner: str = "web", by: str = "sr-1/0", until_s: float = 10.0) -> Reservation:
    return Reservation(a_pod(name, uid=""), "n1", owner, by, until_s)


def reservations(*held: Reservation) -> Reservations:
    found = Reservations(a_table([a_node("n1")]))
    for reservation in held:
        found.hold(reservation)
    return found


def test_what_nobody_claims_runs_out_the_first_first() -> None:
    late, later, claimed = a_promise("b", until_s=5), a_promise("a", until_s=7), a_promise("c", until_s=1)
    all_ = reservations(later, late, claimed)
    all_.claim(claimed.key)
    assert all_.next_s() == 5
    assert all_.expire(4.9) == []
    assert [all_.expire(7), all_.next_s(), len(all_)] == [[late, later], None, 0]


def test_held_anew_it_runs_out_when_told_last() -> None:
    all_ = reservations(a_promise("a", until_s=1), a_promise("a", until_s=9, by="sr-2/0"))
    assert (len(all_), all_.expire(5), all_.next_s()) == (1, [], 9)
    assert (all_.of_maker("sr-1/0"), len(all_.of_maker("sr-2/0"))) == ([], 1)


def test_what_is_claimed_leaves_nothing_behind() -> None:
    all_ = reservations()
    for number in range(1000):
        reservation = a_promise(f"p{number}", until_s=1e6 + number)
        all_.hold(reservation)
        all_.claim(reservation.key)
    assert (all_._of_owner, all_._of_maker, all_.next_s()) == ({}, {}, None)
    assert len(all_._by_time) <= MOST_VOID + 1


names, makers = st.sampled_from("abcdef"), st.sampled_from(["m1", "m2"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), names, makers, st.integers(0, 9)),
        st.tuples(st.just("claim"), names, makers, st.just(0)),
        st.tuples(st.just("expire"), names, makers, st.integers(0, 9)),
    )
)


@given(steps)
def test_the_same_as_looking_through_all_of_them(done: list[tuple[str, str, str, int]]) -> None:
    all_, known = reservations(), dict[str, Reservation]()
    for what, name, maker, at_s in done:
        reservation = a_promise(name, by=maker, owner=f"of {maker}", until_s=at_s)
        if what == "hold":
            known.pop(reservation.key, None)
            known[reservation.key] = reservation
            all_.hold(reservation)
        elif what == "claim":
            assert all_.claim(reservation.key) == known.pop(reservation.key, None)
        else:
            late = {key for key, each in known.items() if each.until_s <= at_s}
            assert {each.key for each in all_.expire(at_s)} == late
            known = {key: each for key, each in known.items() if key not in late}
        assert all_.next_s() == min((each.until_s for each in known.values()), default=None)
        for each in ("m1", "m2"):
            mine = [reservation for reservation in known.values() if reservation.by == each]
            assert all_.of_maker(each) == mine
            assert all_.first_of(f"of {each}") == next(iter(mine), None)
