"""The mirror and its subscribers: whatever happens between two looks, a delta starts from what was last told."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fairlead.cluster.errors import Gone, Status
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Delta, Mirror, Subscription
from fairlead.cluster.watch import Watch
from fairlead.model.kinds import CONFIG_MAPS, ConfigMap
from fairlead.testing.scripted_server import ScriptedServer, Then, bookmark, event, expired, stream
from tests.cluster.kit import CONFIG_MAPS_PATH, Hurried, client_of, config_map, count, held, keyed, mirror_of

A1, A2, B1 = held("a", "1"), held("a", "2"), held("b", "1")


# --- reading ----------------------------------------------------------------------------------------------


def test_what_a_mirror_holds_can_be_read() -> None:
    mirror = mirror_of(A1, B1)
    assert (mirror.get("ns/a"), mirror.get("ns/z"), len(mirror)) == (A1, None, 2)
    assert (list(mirror), list(mirror.keys())) == ([A1, B1], ["ns/a", "ns/b"])


async def test_it_is_synced_after_the_first_whole_list() -> None:
    mirror = mirror_of()
    waiting = asyncio.create_task(mirror.wait_synced())
    mirror.apply([(True, A1)])
    await asyncio.sleep(0)
    assert (mirror.is_synced, waiting.done()) == (False, False)
    mirror.replace({})
    await waiting
    assert (mirror.is_synced, len(mirror)) == (True, 0)


def test_what_keeps_it_from_following_can_be_asked() -> None:
    mirror, problem = mirror_of(), Gone("WATCH x", Status())
    mirror.trouble(problem)
    assert mirror.problem is problem
    mirror.trouble(None)
    assert mirror.problem is None


def test_a_kind_that_the_server_does_not_have_is_whole_and_empty() -> None:
    mirror = mirror_of(A1)
    mirror.absent()
    assert (mirror.is_absent, mirror.is_synced, len(mirror)) == (True, True, 0)
    mirror.replace(keyed(A1))
    mirror.trouble(None)
    assert (mirror.is_absent, len(mirror)) == (False, 1)


def test_the_number_of_objects_is_a_metric(metrics: Metrics) -> None:
    mirror = mirror_of(A1, B1, metrics=metrics)
    mirror.apply([(False, A1)])
    assert count(metrics, "fairlead_mirror_objects", kind="configmaps") == 1


# --- indexes ----------------------------------------------------------------------------------------------


def by_data(thing: ConfigMap) -> list[str]:
    return list(thing.data.values())


def test_an_index_follows_every_change() -> None:
    mirror = mirror_of(held("a", x="red", y="blue"), held("b", x="red"), indexes={"colour": by_data})

    def names(colour: str) -> list[str]:
        return [thing.metadata.name for thing in mirror.by("colour", colour)]

    assert (names("red"), names("blue"), names("green")) == (["a", "b"], ["a"], [])
    mirror.apply([(True, held("a", "2", x="green")), (False, held("b"))])
    assert (names("red"), names("blue"), names("green")) == ([], [], ["a"])
    mirror.replace(keyed(held("c", x="red")))
    assert (names("red"), names("green")) == (["c"], [])


def test_an_index_added_later_knows_what_is_there() -> None:
    mirror = mirror_of(held("a", x="red"))
    mirror.add_index("colour", by_data)
    mirror.add_index("colour", by_data)
    assert [thing.metadata.name for thing in mirror.by("colour", "red")] == ["a"]
    with pytest.raises(ValueError, match="has an index 'colour' by another function"):
        mirror.add_index("colour", lambda thing: ())


def test_an_index_that_cannot_make_sense_of_one_object_finds_the_others() -> None:
    def picky(thing: ConfigMap) -> list[str]:
        return [thing.data["colour"]]

    mirror = mirror_of(held("a", colour="red"), held("odd"), held("b", colour="red"), indexes={"colour": picky})
    assert [thing.metadata.name for thing in mirror.by("colour", "red")] == ["a", "b"]
    mirror.apply([(True, held("odd", "2", colour="red")), (True, held("a", "2"))])
    assert [thing.metadata.name for thing in mirror.by("colour", "red")] == ["b", "odd"]
    mirror.apply([(False, held("a")), (False, held("odd"))])
    assert [thing.metadata.name for thing in mirror.by("colour", "red")] == ["b"]


def test_an_unknown_index_is_a_bug() -> None:
    with pytest.raises(KeyError):
        mirror_of().by("colour", "red")


# --- deltas -----------------------------------------------------------------------------------------------


def test_a_subscriber_starts_from_nothing() -> None:
    mirror = mirror_of(A1)
    subscription = mirror.subscribe()
    assert subscription.drain() == [Delta("ns/a", None, A1)]
    assert subscription.drain() == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param([(True, A2)], [Delta("ns/a", A1, A2)], id="modified"),
        pytest.param([(False, A1)], [Delta("ns/a", A1, None)], id="deleted"),
        pytest.param([(True, B1)], [Delta("ns/b", None, B1)], id="added"),
        pytest.param([(True, A1)], [], id="told again"),
        pytest.param([(False, B1)], [], id="deleted, never there"),
        pytest.param([(True, B1), (False, B1)], [], id="came and went"),
        pytest.param([(True, A2), (True, held("a", "3"))], [Delta("ns/a", A1, held("a", "3"))], id="many are one"),
        pytest.param(
            [(True, A2), (True, B1), (True, held("a", "3"))],
            [Delta("ns/a", A1, held("a", "3")), Delta("ns/b", None, B1)],
            id="oldest first",
        ),
    ],
)
def test_the_net_change_of_each_key(changes: list[tuple[bool, ConfigMap]], expected: list[Delta[ConfigMap]]) -> None:
    mirror = mirror_of(A1)
    subscription = mirror.subscribe()
    subscription.drain()
    mirror.apply(changes)
    assert subscription.drain() == expected


def test_deleted_and_made_anew_is_one_delta_that_says_so() -> None:
    mirror = mirror_of(A1)
    subscription = mirror.subscribe()
    subscription.drain()
    anew = held("a", "3", uid="another")
    mirror.apply([(False, A2), (True, anew)])
    (delta,) = subscription.drain()
    assert (delta, delta.is_replaced) == (Delta("ns/a", A1, anew), True)
    assert not Delta("ns/a", A1, A2).is_replaced
    assert not Delta("ns/a", None, A2).is_replaced
    assert not Delta("ns/a", A1, None).is_replaced


def test_a_new_list_is_told_as_net_changes() -> None:
    mirror = mirror_of(A1, B1, held("c", "1"))
    subscription = mirror.subscribe()
    subscription.drain()
    mirror.replace(keyed(held("c", "1"), A2, held("d", "4")))
    assert {delta.key: (delta.old, delta.new) for delta in subscription.drain()} == {
        "ns/b": (B1, None),
        "ns/a": (A1, A2),
        "ns/d": (None, held("d", "4")),
    }


def test_what_is_told_twice_keeps_its_identity() -> None:
    mirror = mirror_of(A1)
    mirror.replace(keyed(held("a", "1")))
    assert mirror.get("ns/a") is A1


def test_keys_are_drained_in_the_order_of_their_changes_and_once() -> None:
    mirror = mirror_of(A1, B1)
    subscription = mirror.subscribe()
    assert [delta.key for delta in subscription.drain()] == ["ns/a", "ns/b"]
    assert subscription.drain() == []
    mirror.apply([(True, held("c")), (True, A2), (False, held("c"))])
    assert [delta.key for delta in subscription.drain()] == ["ns/a"]


async def test_waiting_ends_when_there_is_something_and_only_then() -> None:
    mirror = mirror_of()
    subscription = mirror.subscribe()
    waiting = asyncio.create_task(subscription.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    mirror.apply([(True, A1), (True, B1)])
    await waiting
    await asyncio.wait_for(subscription.wait(), 1)
    subscription.drain()
    waiting = asyncio.create_task(subscription.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


def test_a_closed_subscription_costs_nothing_more() -> None:
    mirror = mirror_of()
    subscription = mirror.subscribe()
    subscription.close()
    mirror.apply([(True, A1)])
    assert subscription.drain() == []


# --- any sequence -----------------------------------------------------------------------------------------

NAMES = st.sampled_from("abcde")
COLOURS = st.sampled_from(["red", "green", ""])


class AnySequence(RuleBasedStateMachine):
    """Lists and changes in any order, subscribers that read at any pace: each one's view is always explained."""

    @initialize()
    def begin(self) -> None:
        self.mirror = mirror_of(indexes={"colour": by_data})
        self.real: dict[str, ConfigMap] = {}
        self.version = 0
        self.readers: list[tuple[Subscription[ConfigMap], dict[str, ConfigMap]]] = []

    def make(self, name: str, colour: str, anew: bool) -> ConfigMap:
        self.version += 1
        old = self.real.get(f"ns/{name}")
        uid = old.metadata.uid if old is not None and not anew else f"uid-{self.version}"
        data: dict[str, Any] = {"x": colour} if colour else {}
        return held(name, str(self.version), uid=uid, **data)

    @rule(changes=st.lists(st.tuples(st.sampled_from("+-*"), NAMES, COLOURS), max_size=6))
    def apply(self, changes: list[tuple[str, str, str]]) -> None:
        told: list[tuple[bool, ConfigMap]] = []
        for what, name, colour in changes:
            thing = self.make(name, colour, anew=what == "*")
            if what == "-":
                self.real.pop(thing.metadata.key, None)
                told.append((False, thing))
                continue
            if what == "*":
                told.append((False, thing))
            self.real[thing.metadata.key] = thing
            told.append((True, thing))
        self.mirror.apply(told)

    @rule(changes=st.dictionaries(NAMES, st.tuples(st.sampled_from("+-*="), COLOURS)))
    def replace(self, changes: dict[str, tuple[str, str]]) -> None:
        for name, (what, colour) in changes.items():
            key = f"ns/{name}"
            if what == "-":
                self.real.pop(key, None)
            elif what != "=":
                self.real[key] = self.make(name, colour, anew=what == "*")
        # As a list brings them: the same objects decoded once more.
        again = {
            key: held(thing.metadata.name, thing.metadata.resource_version, uid=thing.metadata.uid, **thing.data)
            for key, thing in self.real.items()
        }
        self.mirror.replace(again)

    @rule()
    def subscribe(self) -> None:
        if len(self.readers) < 4:
            self.readers.append((self.mirror.subscribe(), {}))

    @rule(which=st.integers(0, 3))
    def drain(self, which: int) -> None:
        if which < len(self.readers):
            self.read(*self.readers[which])

    @rule(which=st.integers(0, 3))
    def leave(self, which: int) -> None:
        if which < len(self.readers):
            self.readers.pop(which)[0].close()

    @staticmethod
    def read(subscription: Subscription[ConfigMap], view: dict[str, ConfigMap]) -> None:
        for delta in subscription.drain():
            assert view.pop(delta.key, None) is delta.old
            assert (delta.old, delta.new) != (None, None)
            if delta.new is not None:
                view[delta.key] = delta.new

    @invariant()
    def the_mirror_is_what_the_server_has(self) -> None:
        assert {key: self.mirror.get(key) for key in list(self.mirror.keys())} == self.real
        for colour in ("red", "green"):
            expected = {key for key, thing in self.real.items() if colour in thing.data.values()}
            assert {thing.metadata.key for thing in self.mirror.by("colour", colour)} == expected

    def teardown(self) -> None:
        for subscription, view in getattr(self, "readers", []):
            self.read(subscription, view)
            assert view == self.real


AnySequence.TestCase.settings = hypothesis_settings(max_examples=150, stateful_step_count=25, deadline=None)
TestAnySequence = AnySequence.TestCase


# --- with its watch ---------------------------------------------------------------------------------------


async def test_a_mirror_follows_a_server_through_breaks_and_forgotten_versions(server: ScriptedServer) -> None:
    ends = bookmark("10", kind="ConfigMap", ends_initial=True)
    server.on(
        f"WATCH {CONFIG_MAPS_PATH}",
        stream(event("ADDED", config_map("a", "1")), event("ADDED", config_map("b", "2")), ends, then=Then.RESET),
        stream(event("MODIFIED", config_map("a", "11")), event("DELETED", config_map("b", "12")), expired()),
        stream(
            event("ADDED", config_map("a", "20", uid="another")),
            event("ADDED", config_map("c", "21")),
            bookmark("22", kind="ConfigMap", ends_initial=True),
            event("MODIFIED", config_map("c", "23")),
            then=Then.HANG,
        ),
    )
    async with client_of(server) as api:
        mirror = mirror_of(client=api, clock=Hurried())
        slow, quick = mirror.subscribe(), mirror.subscribe()
        following = asyncio.create_task(mirror.run())
        view: dict[str, ConfigMap] = {}
        async with asyncio.timeout(5):
            await mirror.wait_synced()
            while view.get("ns/c", A1).metadata.resource_version != "23":
                await quick.wait()
                AnySequence.read(quick, view)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    final = keyed(held("a", "20", uid="another"), held("c", "23"))
    assert view == final
    assert {delta.key: (delta.old, delta.new) for delta in slow.drain()} == {
        key: (None, thing) for key, thing in final.items()
    }


def test_two_subscribers_read_at_their_own_pace() -> None:
    mirror = mirror_of(A1)
    quick, slow = mirror.subscribe(), mirror.subscribe()
    assert quick.drain() == [Delta("ns/a", None, A1)]
    mirror.apply([(True, A2)])
    assert quick.drain() == [Delta("ns/a", A1, A2)]
    assert slow.drain() == [Delta("ns/a", None, A2)]


@pytest.mark.parametrize(
    ("listed_at_s", "open_since_s", "is_current"),
    [
        pytest.param(None, None, False, id="nothing yet"),
        pytest.param(5.0, None, False, id="broken since"),
        pytest.param(5.0, 6.0, True, id="open for long"),
        pytest.param(5.0, 19.5, False, id="open again just now"),
        pytest.param(10.0, None, True, id="all of it read since then"),
    ],
)
def test_who_has_heard_of_what_was_written_before_a_moment(
    listed_at_s: float | None, open_since_s: float | None, is_current: bool
) -> None:
    watch = SimpleNamespace(listed_at_s=listed_at_s, open_since_s=open_since_s)
    mirror = Mirror(cast("Watch[ConfigMap]", watch), CONFIG_MAPS, Metrics())
    assert mirror.is_current(since_s=10.0, now_s=20.0) is is_current
