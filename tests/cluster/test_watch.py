"""One kind, followed through everything that can break a watch: what is told is never wrong, never twice."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog

from fairlead.cluster.client import Client
from fairlead.cluster.errors import ClusterError, Forbidden, Gone, Unavailable
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.watch import Watch, selectors
from fairlead.model.kinds import CONFIG_MAPS, ConfigMap
from fairlead.testing.scripted_server import (
    Answer,
    ScriptedServer,
    Then,
    bookmark,
    event,
    expired,
    failure,
    half,
    reply,
    silence,
    status_object,
    stream,
)
from tests.cluster.kit import CONFIG_MAPS_PATH, Hurried, client_of, config_map, count, until

LIST = f"GET {CONFIG_MAPS_PATH}"
WATCH = f"WATCH {CONFIG_MAPS_PATH}"
IDLE = stream(then=Then.HANG)
KIND = "configmaps"


class Told:
    """A sink that writes down what it is told, and what a mirror would hold by then."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.view: dict[str, str] = {}
        self.problems: list[ClusterError | None] = []

    def replace(self, objects: Mapping[str, ConfigMap]) -> None:
        self.view = {key: thing.metadata.resource_version for key, thing in objects.items()}
        self.log.append(f"all: {' '.join(f'{key}@{version}' for key, version in self.view.items())}".strip())

    def apply(self, changes: Iterable[tuple[bool, ConfigMap]]) -> None:
        for exists, thing in changes:
            key, version = thing.metadata.key, thing.metadata.resource_version
            self.log.append(f"{'+' if exists else '-'}{key}@{version}")
            if exists:
                self.view[key] = version
            else:
                self.view.pop(key, None)

    def trouble(self, problem: ClusterError | None) -> None:
        self.problems.append(problem)

    def absent(self) -> None:
        self.view = {}
        self.log.append("absent")


def page(*items: dict[str, Any], version: str = "10", rest: str = "") -> Answer:
    return reply({"metadata": {"resourceVersion": version, "continue": rest}, "items": list(items)})


def ends_initial(version: str) -> Any:
    return bookmark(version, kind="ConfigMap", ends_initial=True)


@pytest.fixture
def clock() -> Hurried:
    return Hurried()


@pytest.fixture
def told() -> Told:
    return Told()


def watch_of(client: Client, clock: Hurried, metrics: Metrics, *, rng: float = 0.0, **changes: Any) -> Watch[ConfigMap]:
    given: dict[str, Any] = {"namespace": "ns", "stream_lists": False, **changes}
    return Watch(client, CONFIG_MAPS, clock=clock, rng=lambda: rng, metrics=metrics, **given)


@asynccontextmanager
async def running(watch: Watch[ConfigMap], told: Told) -> AsyncIterator[None]:
    task = asyncio.create_task(watch.run(told))
    try:
        yield
    finally:
        task.cancel()
        (end,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(end, asyncio.CancelledError), end


class Following:
    """A watch of the scripted server, run until the server has seen a number of requests and answered the last."""

    def __init__(self, server: ScriptedServer, client: Client, clock: Hurried, metrics: Metrics, told: Told) -> None:
        self.server, self.client, self.clock, self.metrics, self.told = server, client, clock, metrics, told

    async def until(self, watches: int, told: int | None = None, *, rng: float = 0.0, **changes: Any) -> None:
        watch = watch_of(self.client, self.clock, self.metrics, rng=rng, **changes)
        async with running(watch, self.told):
            await self.server.wait_for(lambda: len(self.server.requests_for(WATCH)) >= watches)
            if told is not None:
                async with asyncio.timeout(5):
                    while len(self.told.log) < told:  # noqa: ASYNC110 - bytes of a socket
                        await asyncio.sleep(0.001)


@pytest.fixture
def following(server: ScriptedServer, client: Client, clock: Hurried, metrics: Metrics, told: Told) -> Following:
    return Following(server, client, clock, metrics, told)


# --- a kind that the server does not have -----------------------------------------------------------------


@pytest.mark.parametrize("stream_lists", [False, True])
async def test_a_kind_that_the_server_does_not_have_counts_as_empty_until_it_comes(
    server: ScriptedServer, client: Client, clock: Hurried, metrics: Metrics, told: Told, stream_lists: bool
) -> None:
    if stream_lists:
        server.on(WATCH, failure(404), stream(event("ADDED", config_map("a", "7")), ends_initial("8"), then=Then.HANG))
    else:
        server.on(LIST, failure(404), page(config_map("a", "7")))
        server.on(WATCH, stream(then=Then.HANG))
    async with running(watch_of(client, clock, metrics, stream_lists=stream_lists), told), asyncio.timeout(5):
        while len(told.log) < 2:  # noqa: ASYNC110 - bytes of a socket
            await asyncio.sleep(0.001)
    assert told.log == ["absent", "all: ns/a@7"]
    assert Watch.ABSENT_S in clock.slept


# --- starting ---------------------------------------------------------------------------------------------


async def test_a_list_is_followed_from_its_version(server: ScriptedServer, following: Following, told: Told) -> None:
    server.on(LIST, page(config_map("a", "7"), rest="x"), page(config_map("b", "8"), version="10"))
    server.on(WATCH, stream(event("ADDED", config_map("c", "11")), then=Then.HANG))
    await following.until(watches=1, told=2)
    assert told.log == ["all: ns/a@7 ns/b@8", "+ns/c@11"]
    (watched,) = server.requests_for(WATCH)
    assert watched.query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "300",
        "resourceVersion": "10",
    }


async def test_a_list_may_come_over_the_watch(
    server: ScriptedServer, following: Following, told: Told, metrics: Metrics
) -> None:
    first = event("ADDED", config_map("a", "7")), event("ADDED", config_map("b", "8"))
    server.on(
        WATCH,
        stream(*first, ends_initial("9"), event("MODIFIED", config_map("a", "10")), then=Then.HANG),
    )
    await following.until(watches=1, told=2, stream_lists=True)
    assert told.log == ["all: ns/a@7 ns/b@8", "+ns/a@10"]
    assert server.requests[0].query["sendInitialEvents"] == "true"
    assert server.requests[0].query["resourceVersionMatch"] == "NotOlderThan"
    assert count(metrics, "fairlead_mirror_lists_total", kind=KIND, way="stream") == 1


async def test_changes_during_a_streamed_list_are_part_of_it(
    server: ScriptedServer, following: Following, told: Told
) -> None:
    server.on(
        WATCH,
        stream(
            event("ADDED", config_map("a", "7")),
            event("ADDED", config_map("b", "8")),
            event("DELETED", config_map("a", "9")),
            event("MODIFIED", config_map("b", "10")),
            ends_initial("10"),
            then=Then.HANG,
        ),
    )
    await following.until(watches=1, told=1, stream_lists=True)
    assert told.log == ["all: ns/b@10"]


@pytest.mark.parametrize("code", [422, 400])
async def test_where_no_streamed_list_is_offered_pages_are_read(
    server: ScriptedServer, following: Following, told: Told, metrics: Metrics, clock: Hurried, code: int
) -> None:
    server.on(WATCH, failure(code), IDLE)
    server.on(LIST, page(config_map("a", "7")))
    await following.until(watches=2, told=1, stream_lists=True)
    assert (told.log, clock.slept) == (["all: ns/a@7"], [])
    assert count(metrics, "fairlead_mirror_lists_total", kind=KIND, way="pages") == 1


async def test_a_streamed_list_that_breaks_is_told_only_when_whole(
    server: ScriptedServer, following: Following, told: Told
) -> None:
    server.on(
        WATCH,
        stream(event("ADDED", config_map("a", "7")), then=Then.RESET),
        stream(event("ADDED", config_map("b", "8")), ends_initial("9"), then=Then.HANG),
    )
    await following.until(watches=2, told=1, stream_lists=True)
    assert told.log == ["all: ns/b@8"]


async def test_pages_that_expire_half_way_are_read_from_the_start(
    server: ScriptedServer, following: Following, told: Told
) -> None:
    server.on(LIST, page(config_map("a", "7"), rest="x"), failure(410, "Expired"), page(config_map("b", "20")))
    server.on(WATCH, IDLE)
    await following.until(watches=1)
    assert told.log == ["all: ns/b@20"]
    assert [seen.query.get("continue") for seen in server.requests_for(LIST)] == [None, "x", None]


async def test_a_selector_narrows_the_list_and_the_watch(server: ScriptedServer, following: Following) -> None:
    server.on(LIST, page())
    server.on(WATCH, IDLE)
    await following.until(watches=1, selectors=selectors(label="a=b", field="metadata.name=x"))
    assert [(seen.query["labelSelector"], seen.query["fieldSelector"]) for seen in server.requests] == [
        ("a=b", "metadata.name=x")
    ] * 2
    assert selectors() == {}


# --- breaking and resuming --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "breaks",
    [
        pytest.param(stream(event("ADDED", config_map("a", "11"))), id="ended by the server"),
        pytest.param(stream(event("ADDED", config_map("a", "11")), then=Then.RESET), id="reset"),
        pytest.param(stream(event("ADDED", config_map("a", "11")), then=Then.CLOSE), id="closed"),
        pytest.param(
            stream(event("ADDED", config_map("a", "11")), half(event("ADDED", config_map("b", "12")))),
            id="ended inside an object",
        ),
        pytest.param(
            stream(event("ADDED", config_map("a", "11")), half(event("ADDED", config_map("b", "12"))), then=Then.RESET),
            id="reset inside an object",
        ),
        pytest.param(stream(event("ADDED", config_map("a", "11")), b"garbage\n", then=Then.HANG), id="garbage"),
        pytest.param(stream(event("ADDED", config_map("a", "11")), b'"\xff"\n', then=Then.HANG), id="no text"),
        pytest.param(stream(event("ADDED", config_map("a", "11")), b"{}\n", then=Then.HANG), id="an event of nothing"),
        pytest.param(
            stream(event("ADDED", config_map("a", "11")), event("BOOKMARK", 3), then=Then.HANG), id="a strange bookmark"
        ),
        pytest.param(
            stream(event("ADDED", config_map("a", "11")), event("ERROR", status_object(500)), then=Then.HANG),
            id="an error event",
        ),
        pytest.param(
            stream(event("ADDED", config_map("a", "11")), event("ERROR", "odd"), then=Then.HANG),
            id="a strange error event",
        ),
    ],
)
async def test_a_broken_watch_resumes_after_the_last_change_it_told(
    server: ScriptedServer, following: Following, told: Told, breaks: Answer
) -> None:
    server.on(LIST, page())
    server.on(WATCH, breaks, stream(event("ADDED", config_map("b", "12")), then=Then.HANG))
    await following.until(watches=2, told=3)
    assert told.log == ["all:", "+ns/a@11", "+ns/b@12"]
    assert [seen.query["resourceVersion"] for seen in server.requests_for(WATCH)] == ["10", "11"]
    assert told.problems[-1] is None, "it is over"


async def test_what_came_in_the_same_breath_as_garbage_is_told_once(
    server: ScriptedServer, following: Following, told: Told
) -> None:
    breath = stream(
        b"".join(
            (
                b'{"type":"ADDED","object":{"metadata":{"name":"a","namespace":"ns","resourceVersion":"11"}}}\n',
                b"garbage\n",
                b'{"type":"ADDED","object":{"metadata":{"name":"b","namespace":"ns","resourceVersion":"12"}}}\n',
            )
        ),
        then=Then.HANG,
    )
    server.on(LIST, page())
    server.on(WATCH, breath, stream(event("ADDED", config_map("b", "12")), then=Then.HANG))
    await following.until(watches=2, told=3)
    assert told.log == ["all:", "+ns/a@11", "+ns/b@12"]


async def test_a_bookmark_moves_the_place_to_resume_from(
    server: ScriptedServer, following: Following, told: Told
) -> None:
    server.on(LIST, page())
    server.on(WATCH, stream(bookmark("50", kind="ConfigMap"), then=Then.RESET), IDLE)
    await following.until(watches=2)
    assert [seen.query["resourceVersion"] for seen in server.requests_for(WATCH)] == ["10", "50"]
    assert told.log == ["all:"]


async def test_an_object_split_over_many_chunks_is_one_object(
    server: ScriptedServer, following: Following, told: Told
) -> None:
    server.on(LIST, page())
    lines = stream(event("ADDED", config_map("a", "11", text="é\\n" * 50)), event("DELETED", config_map("a", "12")))
    server.on(WATCH, lines.drip(7, 0.0), IDLE)
    await following.until(watches=2)
    assert told.log == ["all:", "+ns/a@11", "-ns/a@12"]


async def test_a_line_without_an_end_is_not_swallowed_whole(
    server: ScriptedServer, client: Client, clock: Hurried, metrics: Metrics, told: Told
) -> None:
    class Modest(Watch[ConfigMap]):
        MAX_LINE_BYTES = 1000

    server.on(LIST, page())
    server.on(WATCH, stream(*([b"x" * 400] * 10), then=Then.HANG), IDLE)
    watch = Modest(
        client, CONFIG_MAPS, clock=clock, rng=lambda: 0.0, metrics=metrics, namespace="ns", stream_lists=False
    )
    async with running(watch, told):
        await server.wait_for(lambda: len(server.requests_for(WATCH)) == 2)
    assert [str(problem) for problem in told.problems if problem] == [
        f"WATCH {CONFIG_MAPS_PATH}: NoAnswer: a line without an end"
    ]


async def test_silence_is_a_break(
    server: ScriptedServer, client: Client, clock: Hurried, metrics: Metrics, told: Told
) -> None:
    class Impatient(Watch[ConfigMap]):
        SILENCE_S = 0.1

    server.on(LIST, page())
    server.on(WATCH, stream(bookmark("11"), then=Then.HANG), silence(), IDLE)
    watch = Impatient(
        client, CONFIG_MAPS, clock=clock, rng=lambda: 0.0, metrics=metrics, namespace="ns", stream_lists=False
    )
    async with running(watch, told):
        await server.wait_for(lambda: len(server.requests_for(WATCH)) == 3)
    assert [seen.query["resourceVersion"] for seen in server.requests_for(WATCH)] == ["10", "11", "11"]
    assert count(metrics, "fairlead_mirror_breaks_total", kind=KIND, cause="Unavailable") == 2


# --- a version the server has forgotten -------------------------------------------------------------------


@pytest.mark.parametrize(
    "forgotten",
    [
        pytest.param(failure(410, "Expired"), id="as the answer"),
        pytest.param(stream(expired(), then=Then.HANG), id="as an event"),
        pytest.param(stream(event("ERROR", status_object(410, "Gone")), then=Then.HANG), id="as an event, by code"),
    ],
)
async def test_a_forgotten_version_means_a_new_list(
    server: ScriptedServer, following: Following, told: Told, metrics: Metrics, forgotten: Answer
) -> None:
    server.on(LIST, page(config_map("a", "7"), config_map("b", "8")), page(config_map("b", "99"), version="100"))
    server.on(WATCH, forgotten, IDLE)
    await following.until(watches=2)
    assert told.log == ["all: ns/a@7 ns/b@8", "all: ns/b@99"]
    assert server.requests_for(WATCH)[1].query["resourceVersion"] == "100"
    assert count(metrics, "fairlead_mirror_breaks_total", kind=KIND, cause="Gone") == 1
    assert [type(problem) for problem in told.problems if problem] == [Gone]


async def test_events_before_the_news_that_the_version_is_gone_are_told(
    server: ScriptedServer, following: Following, told: Told
) -> None:
    server.on(LIST, page(), page(config_map("a", "11"), version="100"))
    server.on(WATCH, stream(event("ADDED", config_map("a", "11")), expired(), then=Then.HANG), IDLE)
    await following.until(watches=2)
    assert told.log == ["all:", "+ns/a@11", "all: ns/a@11"]


# --- objects that do not decode ---------------------------------------------------------------------------

ODD = {"metadata": {"name": "odd", "namespace": "ns", "resourceVersion": "12"}, "data": ["not a map"]}


async def test_an_object_that_does_not_decode_is_left_out_and_counted(
    server: ScriptedServer, following: Following, told: Told, metrics: Metrics
) -> None:
    server.on(LIST, page(config_map("a", "7"), ODD))
    server.on(
        WATCH,
        stream(event("ADDED", ODD), event("ADDED", config_map("b", "13")), event("ADDED", {}), then=Then.CLOSE),
        IDLE,
    )
    await following.until(watches=2)
    assert told.log == ["all: ns/a@7", "+ns/b@13"]
    assert count(metrics, "fairlead_mirror_undecodable_total", kind=KIND) == 3
    assert server.requests_for(WATCH)[1].query["resourceVersion"] == "13"


async def test_what_does_not_decode_is_known_until_it_does_or_is_gone(
    server: ScriptedServer, client: Client, clock: Hurried, told: Told, metrics: Metrics
) -> None:
    def named(name: str, version: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": "ns", "uid": f"u-{name}", "resourceVersion": version}
        return {"metadata": metadata, "data": ["not a map"]}

    watch = watch_of(client, clock, metrics)
    server.on(LIST, page(named("a", "7"), named("b", "8"), named("c", "9")), page(named("c", "9"), named("d", "20")))
    changes = [event("MODIFIED", config_map("a", "13")), event("DELETED", named("b", "14"))]
    server.on(WATCH, stream(*changes, then=Then.HANG), IDLE)
    async with running(watch, told):
        await until(lambda: len(told.log) == 3)
        assert list(watch.undecoded.events) == ["ns/c"]
        assert watch.undecoded.events["ns/c"].regarding.uid == "u-c"
    watch._version = ""
    async with running(watch, told):
        await until(lambda: len(told.log) == 4)
        assert list(watch.undecoded.events) == ["ns/c", "ns/d"]


async def test_an_object_of_parts_within_parts_without_end_blinds_us_to_nothing(
    server: ScriptedServer, following: Following, told: Told, metrics: Metrics
) -> None:
    endless = b'{"type":"ADDED","object":{"metadata":{"name":"deep"},"more":%b}}\n' % (b"[" * 50_000 + b"]" * 50_000)
    server.on(LIST, page(config_map("a", "7")))
    server.on(WATCH, stream(endless, event("ADDED", config_map("b", "13")), then=Then.CLOSE), IDLE)
    await following.until(watches=2)
    assert told.log == ["all: ns/a@7", "+ns/b@13"]
    assert count(metrics, "fairlead_mirror_undecodable_total", kind=KIND) == 1
    assert server.requests_for(WATCH)[1].query["resourceVersion"] == "13"


def nested(name: str, version: str = "12") -> bytes:
    """An object of parts within parts, as a kind that keeps unknown fields may hold it."""
    metadata = {"name": name, "namespace": "ns", "resourceVersion": version, "labels": {"a": ']}"'}}
    deep = b'[{"a":' * 25_000 + json.dumps('"}').encode() + b"}]" * 25_000
    return b'{"more":%b,"metadata":%b}' % (deep, json.dumps(metadata).encode())


async def test_a_nested_object_in_a_list_is_left_out_alone(
    server: ScriptedServer, following: Following, told: Told, metrics: Metrics
) -> None:
    items = [json.dumps(config_map("a", "7")).encode(), nested("deep"), json.dumps(config_map("b", "8")).encode()]
    body = b'{"kind":"ConfigMapList","items":[%b],"metadata":{"resourceVersion":"10"}}' % b", ".join(items)
    server.on(LIST, reply(body))
    server.on(WATCH, IDLE)
    await following.until(watches=1)
    assert told.log == ["all: ns/a@7 ns/b@8"]
    assert count(metrics, "fairlead_mirror_undecodable_total", kind=KIND) == 1
    assert server.requests_for(WATCH)[0].query["resourceVersion"] == "10"


async def test_a_nested_object_in_a_stream_counts_by_its_version_and_goes_when_it_is_deleted(
    server: ScriptedServer, following: Following, told: Told
) -> None:
    server.on(LIST, page(config_map("deep", "7")))
    changed = b'{"type":"MODIFIED","object":%b}\n' % nested("deep", "12")
    gone = b'{"object":%b, "type" : "DELETED"}\n' % nested("deep", "13")
    server.on(WATCH, stream(changed, then=Then.CLOSE), stream(gone, then=Then.CLOSE), IDLE)
    await following.until(watches=3)
    assert [seen.query["resourceVersion"] for seen in server.requests_for(WATCH)] == ["10", "12", "13"]
    assert told.view == {}


async def test_the_version_of_an_odd_object_counts(server: ScriptedServer, following: Following) -> None:
    server.on(LIST, page())
    server.on(WATCH, stream(event("ADDED", ODD), then=Then.RESET), IDLE)
    await following.until(watches=2)
    assert server.requests_for(WATCH)[1].query["resourceVersion"] == "12"


@pytest.mark.parametrize("stream_lists", [True, False], ids=["in a streamed list", "after a list"])
async def test_an_object_that_is_deleted_goes_even_if_its_end_does_not_decode(
    server: ScriptedServer, following: Following, told: Told, stream_lists: bool
) -> None:
    first, gone = event("ADDED", config_map("odd", "11")), event("DELETED", ODD)
    server.on(LIST, page(config_map("odd", "11")))
    if stream_lists:
        server.on(WATCH, stream(first, gone, ends_initial("13"), then=Then.HANG), IDLE)
    else:
        server.on(WATCH, stream(gone, then=Then.HANG))
    await following.until(watches=1, told=1 if stream_lists else 2, stream_lists=stream_lists)
    assert told.view == {}


# --- waiting ----------------------------------------------------------------------------------------------


async def test_waits_grow_while_nothing_works_and_start_anew_once_it_did(
    server: ScriptedServer, following: Following, clock: Hurried
) -> None:
    server.on(LIST, failure(500), failure(500), failure(500), failure(500), page())
    server.on(WATCH, failure(500), failure(500), stream(bookmark("11"), then=Then.RESET), IDLE)
    await following.until(watches=4, rng=1.0)
    grown = [2.4, 7.2, 21.6, 30.0]
    assert clock.slept == pytest.approx([*grown, 2.4, 7.2, 2.4])


async def test_waits_grow_when_every_list_is_forgotten_at_once(
    server: ScriptedServer, following: Following, clock: Hurried
) -> None:
    server.always(LIST, page())
    server.on(WATCH, *[failure(410, "Expired")] * 4, IDLE)
    await following.until(watches=5, rng=1.0)
    assert clock.slept == pytest.approx([2.4, 7.2, 21.6, 30.0])


async def test_a_watch_that_was_quiet_and_well_for_long_starts_anew(
    server: ScriptedServer, following: Following, clock: Hurried
) -> None:
    def quiet(_: object) -> Answer:
        clock.pass_s(60)
        return stream(then=Then.RESET)

    server.on(LIST, failure(500), failure(500), page())
    server.on(WATCH, quiet, quiet, IDLE)
    await following.until(watches=3, rng=1.0)
    assert clock.slept == pytest.approx([2.4, 7.2, 2.4, 2.4])


async def test_a_watch_the_server_ends_in_good_time_is_resumed_at_once(
    server: ScriptedServer, following: Following, clock: Hurried, metrics: Metrics
) -> None:
    def in_good_time(_: object) -> Answer:
        clock.pass_s(300)
        return stream()

    server.on(LIST, page())
    server.on(WATCH, in_good_time, stream(), IDLE)
    await following.until(watches=3)
    assert clock.slept == [0.8], "only the one that ended at once is waited after"
    assert count(metrics, "fairlead_mirror_breaks_total", kind=KIND, cause="Ended") == 1


@pytest.mark.parametrize("code", [429, 503])
async def test_the_servers_own_wish_is_the_least_it_waits(
    server: ScriptedServer, following: Following, clock: Hurried, code: int
) -> None:
    server.on(LIST, failure(code, retry_after_s=17), page())
    server.on(WATCH, failure(code, retryAfterSeconds=9), IDLE)
    await following.until(watches=2)
    assert clock.slept == [17.0, 9.0]


async def test_a_refusal_is_tried_again_and_shown(
    server: ScriptedServer, following: Following, told: Told, clock: Hurried
) -> None:
    server.on(LIST, failure(403), page())
    server.on(WATCH, IDLE)
    await following.until(watches=1)
    assert [type(problem) for problem in told.problems] == [Forbidden, type(None)]


@pytest.mark.parametrize(
    "forgotten",
    [
        pytest.param(failure(410, "Expired"), id="as the answer"),
        pytest.param(stream(expired(), then=Then.HANG), id="as an event"),
    ],
)
async def test_a_right_that_comes_back_means_no_more_long_waits(
    server: ScriptedServer, following: Following, clock: Hurried, forgotten: Answer
) -> None:
    server.always(LIST, page())
    server.on(WATCH, *[failure(403)] * 4, forgotten, IDLE)
    await following.until(watches=6, rng=1.0)
    assert clock.slept == pytest.approx([2.4, 7.2, 21.6, 30.0, 2.4])


async def test_a_refusal_that_lasts_is_said_once_and_shown_by_a_metric(
    server: ScriptedServer, following: Following, clock: Hurried, metrics: Metrics
) -> None:
    shown: list[float] = []

    def granted(_: object) -> Answer:
        shown.append(count(metrics, "fairlead_mirror_refused", kind=KIND))
        return page()

    server.on(LIST, failure(403), failure(403), failure(403), failure(404), failure(404), granted)
    server.on(WATCH, IDLE)
    with structlog.testing.capture_logs() as said:
        await following.until(watches=1)
    told = [(each["event"], each["log_level"]) for each in said]
    assert told == [
        ("not followed, retrying without further logs", "warning"),
        ("not followed, retrying without further logs", "warning"),
        ("watching again", "info"),
    ], "once for a role that is missing, once for a kind that is"
    assert "deploy/rbac" in said[0]["hint"]
    assert "not defined" in said[1]["hint"], "no role helps where the kind is missing"
    assert [*shown, count(metrics, "fairlead_mirror_refused", kind=KIND)] == [1, 0]


async def test_the_servers_stay_is_spread(server: ScriptedServer, following: Following) -> None:
    server.on(LIST, page())
    server.on(WATCH, IDLE)
    await following.until(watches=1, rng=0.5)
    assert server.requests_for(WATCH)[0].query["timeoutSeconds"] == "450"


async def test_cancelling_lets_go_of_the_connection(
    server: ScriptedServer, clock: Hurried, metrics: Metrics, told: Told
) -> None:
    server.on(LIST, page())
    server.on(WATCH, IDLE)
    async with client_of(server) as api:
        async with running(watch_of(api, clock, metrics), told):
            await server.wait_for(lambda: len(server.requests_for(WATCH)) == 1)
            assert server.open_connections == 2, "one for calls, one for the watch"
        await server.wait_for(lambda: server.open_connections <= 1, 1.0)


async def test_nobody_there_is_waited_for(metrics: Metrics, clock: Hurried, told: Told) -> None:
    async with client_of("http://127.0.0.1:1") as api, running(watch_of(api, clock, metrics), told):
        async with asyncio.timeout(5):
            while len(told.problems) < 5:  # noqa: ASYNC110 - sockets
                await asyncio.sleep(0.001)
    assert all(isinstance(problem, Unavailable) for problem in told.problems)


# --- up to date or not ------------------------------------------------------------------------------------


async def test_an_open_stream_is_told_from_one_that_is_not(
    server: ScriptedServer, client: Client, clock: Hurried, metrics: Metrics, told: Told
) -> None:
    server.on(LIST, page())
    server.on(WATCH, IDLE)
    watch = watch_of(client, clock, metrics)
    assert (watch.open_since_s, watch.listed_at_s) == (None, None)
    async with running(watch, told):
        async with asyncio.timeout(60):
            while watch.open_since_s is None:  # noqa: ASYNC110 - bytes of a socket
                await asyncio.sleep(0.001)
        assert watch.listed_at_s is not None
    assert watch.open_since_s is None


async def test_a_stream_that_breaks_is_not_open(
    server: ScriptedServer, client: Client, clock: Hurried, metrics: Metrics, told: Told
) -> None:
    server.on(LIST, page())
    server.always(WATCH, failure(500))
    watch = watch_of(client, clock, metrics)
    async with running(watch, told):
        await server.wait_for(lambda: len(server.requests_for(WATCH)) >= 3, timeout_s=60)
        assert watch.listed_at_s is not None
        assert watch.open_since_s is None
