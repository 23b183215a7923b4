"""The first words with an API server that is coming up, and with one that never does."""

from collections.abc import AsyncIterator

import pytest

from fairlead.cluster.errors import ClusterError
from fairlead.cluster.opening import Patience, first_contact
from fairlead.testing.clock import ManualClock
from fairlead.testing.scripted_server import Answer, ScriptedServer, closed, failure, reply, reset
from tests.cluster.kit import client_of

VERSION = reply({"gitVersion": "v1.36.4"})


class HurriedClock(ManualClock):
    """Whoever sleeps wakes at once, and so much later."""

    async def sleep(self, seconds: float) -> None:
        self._move_to(self.elapsed_s() + seconds)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as scripted:
        scripted.always("GET /version", VERSION)
        scripted.always("GET /readyz", reply(b"ok"))
        yield scripted


async def contact(server: ScriptedServer, patience: Patience | None = None) -> tuple[str, float]:
    """The version found, and after how many seconds."""
    clock = HurriedClock()
    async with client_of(server, clock=clock) as client:
        found = await first_contact(client, clock=clock, rng=lambda: 0.5, patience=patience or Patience())
    return found.git_version, clock.elapsed_s()


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(failure(401), id="its tokens are not read yet"),
        pytest.param(failure(403), id="its roles are not read yet"),
        pytest.param(failure(404), id="its paths are not there yet"),
        pytest.param(failure(429, retry_after_s=1), id="it is busy with those who waited"),
        pytest.param(failure(500), id="its storage is not there yet"),
        pytest.param(failure(503), id="it is not ready"),
        pytest.param(reply(b"<html>"), id="a proxy is there before it"),
        pytest.param(reset(), id="reset"),
        pytest.param(closed(), id="closed"),
    ],
)
async def test_what_a_server_says_while_it_starts_is_waited_for(server: ScriptedServer, answer: Answer) -> None:
    server.on("GET /version", answer, answer, answer)
    version, waited_s = await contact(server)
    assert version == "v1.36.4"
    assert 0 < waited_s < 30
    assert len(server.requests_for("GET /version")) == 4


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (failure(401), "refused us for 60 s: GET /version: 401 Unauthorized"),
        (failure(403), "refused us for 60 s: GET /version: 403 Forbidden"),
        (failure(503), "gave no answer for 600 s: GET /version: 503 ServiceUnavailable"),
        (reset(), "gave no answer for 600 s: GET /version: NoAnswer"),
    ],
    ids=["401", "403", "503", "reset"],
)
async def test_what_it_says_for_too_long_is_one_sentence(server: ScriptedServer, answer: Answer, said: str) -> None:
    server.always("GET /version", answer)
    with pytest.raises(ClusterError, match=said) as told:
        await contact(server)
    assert "\n" not in str(told.value)
    assert str(told.value).startswith(server.url)


async def test_a_server_that_listens_nowhere_is_given_up_after_a_while() -> None:
    clock = HurriedClock()
    async with client_of("http://127.0.0.1:1", clock=clock) as client:
        with pytest.raises(ClusterError, match="gave no answer for 600 s: GET /version: NoAnswer: no connection"):
            await first_contact(client, clock=clock, rng=lambda: 0.5)
    assert clock.elapsed_s() == 600


async def test_a_port_that_does_not_speak_tls_yet_is_no_answer(server: ScriptedServer) -> None:
    clock = HurriedClock()
    async with client_of(server.url.replace("http:", "https:"), clock=clock, timeout_s=0.2) as client:
        with pytest.raises(ClusterError, match="gave no answer for 2 s: GET /version: NoAnswer"):
            await first_contact(client, clock=clock, rng=lambda: 0.5, patience=Patience(silent_s=2.0))


async def test_refusals_count_from_the_first_and_not_from_the_silence_before(server: ScriptedServer) -> None:
    silent, refused = [failure(503)] * 30, [failure(403)] * 4
    server.on("GET /version", *silent, *refused)
    version, waited_s = await contact(server)
    assert (version, waited_s > 200) == ("v1.36.4", True)


async def test_a_delay_that_the_server_asks_for_is_bounded_too(server: ScriptedServer) -> None:
    server.always("GET /version", failure(429, retry_after_s=99999))
    with pytest.raises(ClusterError, match="gave no answer for 600 s"):
        await contact(server)
    assert len(server.requests_for("GET /version")) == 2


async def test_a_server_that_is_not_ready_is_waited_for(server: ScriptedServer) -> None:
    server.on("GET /readyz", failure(500, message="[-]poststarthook/rbac/bootstrap-roles failed"), failure(503))
    version, waited_s = await contact(server)
    assert (version, len(server.requests_for("GET /readyz"))) == ("v1.36.4", 3)
    assert waited_s > 0


@pytest.mark.parametrize(
    ("answer", "wanted_s"), [(failure(500), 60.0), (failure(403), 0.0), (failure(404), 0.0)], ids=["500", "403", "404"]
)
async def test_a_server_that_never_says_it_is_ready_is_used_all_the_same(
    server: ScriptedServer, answer: Answer, wanted_s: float
) -> None:
    server.always("GET /readyz", answer)
    assert await contact(server) == ("v1.36.4", wanted_s)


async def test_waiting_can_be_switched_off(server: ScriptedServer) -> None:
    server.on("GET /version", failure(403))
    with pytest.raises(ClusterError, match="refused us for 0 s"):
        await contact(server, Patience(refused_s=0))
