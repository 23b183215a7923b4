"""Tokens, token files rotated under us, and programs that print credentials."""

import asyncio
import json
import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fairlead.cluster.credentials import ExecPlugin, Fixed, TokenFile, basic, bearer
from fairlead.cluster.errors import ConfigurationError
from fairlead.model.kinds import CONFIG_MAPS
from fairlead.testing.clock import ManualClock
from fairlead.testing.scripted_server import Answer, RecordedRequest, ScriptedServer, failure, reply
from tests.cluster.kit import client_of, config_map, held

V1 = "client.authentication.k8s.io/v1"


def token_of(headers: Mapping[str, str]) -> str:
    return headers["Authorization"].removeprefix("Bearer ")


def only(token: str) -> Callable[[RecordedRequest], Answer]:
    def judge(seen: RecordedRequest) -> Answer:
        return reply(config_map()) if seen.headers.get("authorization") == f"Bearer {token}" else failure(401)

    return judge


# --- what never changes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("credentials", "expected"),
    [
        pytest.param(Fixed({}), {}, id="nobody"),
        pytest.param(bearer("t"), {"Authorization": "Bearer t"}, id="token"),
        pytest.param(basic("ann", "p:w"), {"Authorization": "Basic YW5uOnA6dw=="}, id="user and password"),
    ],
)
async def test_fixed_credentials_have_nothing_new_to_offer(credentials: Fixed, expected: dict[str, str]) -> None:
    assert await credentials.headers() == expected
    assert not await credentials.renew(expected)


# --- a token file -----------------------------------------------------------------------------------------


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    write_token(path, "one")
    return path


def write_token(path: Path, token: str) -> None:
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(f"{token}\n")
    os.utime(path, ns=(before + 1_000_000, before + 1_000_000))  # surely another time, however coarse the disk's


async def test_a_rotated_token_is_noticed_within_ten_seconds(token_file: Path, clock: ManualClock) -> None:
    credentials = TokenFile(token_file, clock)
    seen = [token_of(await credentials.headers())]
    write_token(token_file, "two")
    for seconds in (9.9, 0.2):
        await clock.advance(seconds)
        seen.append(token_of(await credentials.headers()))
    assert seen == ["one", "one", "two"]


async def test_a_refused_token_is_looked_for_at_once(token_file: Path, clock: ManualClock) -> None:
    credentials = TokenFile(token_file, clock)
    refused = await credentials.headers()
    assert not await credentials.renew(refused), "the file has not changed"
    write_token(token_file, "two")
    assert await credentials.renew(refused)
    assert await credentials.renew(refused), "somebody else has renewed it since: worth asking again"
    assert token_of(await credentials.headers()) == "two"


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe"], ids=["gone", "empty", "blank", "not text"])
async def test_a_file_in_the_middle_of_being_replaced_changes_nothing(
    token_file: Path, clock: ManualClock, content: bytes | None
) -> None:
    credentials = TokenFile(token_file, clock)
    refused = await credentials.headers()
    times = token_file.stat().st_mtime_ns + 1_000_000
    if content is None:
        token_file.unlink()
    else:
        token_file.write_bytes(content)
        os.utime(token_file, ns=(times, times))
    assert not await credentials.renew(refused)
    assert await credentials.headers() == refused
    token_file.write_text("two")
    os.utime(token_file, ns=(times, times))  # a disk that tells time in ticks: written in the same one
    assert await credentials.renew(refused)
    assert token_of(await credentials.headers()) == "two"


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"], ids=["missing", "empty", "not text"])
async def test_without_a_first_token_the_file_is_named(
    tmp_path: Path, clock: ManualClock, content: bytes | None
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"the token file {path} "):
        await TokenFile(path, clock).headers()


async def test_the_client_gets_through_a_rotation(server: ScriptedServer, token_file: Path, clock: ManualClock) -> None:
    server.always("*", only("two"))
    async with client_of(server, credentials=TokenFile(token_file, clock)) as api:

        def rotate_then_judge(seen: RecordedRequest) -> Answer:
            write_token(token_file, "two")
            return failure(401)

        server.on("*", *[rotate_then_judge] * 5)
        got = await asyncio.gather(*(api.get(CONFIG_MAPS, "a", "ns") for _ in range(5)))
    assert got == [held()] * 5


# --- a program that prints credentials --------------------------------------------------------------------


class Program:
    """A shell script that counts its runs and prints what `answers` says for each."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "plugin"
        self._runs = folder / "runs"
        self._folder = folder
        self.certificates: list[tuple[str, str]] = []

    def prints(self, *statuses: Mapping[str, Any], api_version: str = V1) -> None:
        for number, status in enumerate(statuses, 1):
            answer = {"apiVersion": api_version, "kind": "ExecCredential", "status": status}
            (self._folder / f"answer-{number}").write_text(json.dumps(answer))
        last = len(statuses)
        self.does(f'n=$(wc -l < {self._runs}); [ "$n" -gt {last} ] && n={last}; cat "{self._folder}/answer-$n"')

    def does(self, script: str) -> None:
        self.path.write_text(f"#!/bin/sh\necho run >> {self._runs}\n{script}\n")
        self.path.chmod(self.path.stat().st_mode | stat.S_IEXEC)

    @property
    def runs(self) -> int:
        return len(self._runs.read_text().splitlines()) if self._runs.exists() else 0

    def plugin(self, clock: ManualClock, **changes: Any) -> ExecPlugin:
        given: dict[str, Any] = {
            "environment": {},
            "api_version": V1,
            "cluster": None,
            "install_hint": "",
            "use_certificate": lambda certificate, key: self.certificates.append((certificate, key)),
        }
        return ExecPlugin([str(self.path)], clock=clock, **(given | changes))


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


async def test_a_credential_without_an_end_is_asked_for_once(program: Program, clock: ManualClock) -> None:
    program.prints({"token": "one"})
    plugin = program.plugin(clock)
    for _ in range(3):
        assert token_of(await plugin.headers()) == "one"
        await clock.advance(10_000)
    assert program.runs == 1


async def test_an_expired_credential_is_asked_for_anew_shortly_before(program: Program, clock: ManualClock) -> None:
    program.prints({"token": "one", "expirationTimestamp": "2026-01-01T00:10:00Z"}, {"token": "two"})
    plugin = program.plugin(clock)
    seen = []
    for seconds in (0, 569, 2):
        await clock.advance(seconds)
        seen.append(token_of(await plugin.headers()))
    assert seen == ["one", "one", "two"]


async def test_those_who_wait_for_the_same_credential_share_one_run(program: Program, clock: ManualClock) -> None:
    program.prints({"token": "one"}, {"token": "two"})
    plugin = program.plugin(clock)
    got = await asyncio.gather(*(plugin.headers() for _ in range(10)))
    assert ({token_of(headers) for headers in got}, program.runs) == ({"one"}, 1)
    assert all(await asyncio.gather(*(plugin.renew(got[0]) for _ in range(10))))
    assert await plugin.renew(got[0]), "refused with what was replaced long ago"
    assert (token_of(await plugin.headers()), program.runs) == ("two", 2)


async def test_the_client_runs_it_again_after_a_401(
    server: ScriptedServer, program: Program, clock: ManualClock
) -> None:
    program.prints({"token": "one"}, {"token": "two"})
    server.always("*", only("two"))
    async with client_of(server, credentials=program.plugin(clock)) as api:
        assert await api.get(CONFIG_MAPS, "a", "ns") == held()
    assert (len(server.requests), program.runs) == (2, 2)


async def test_what_the_program_is_told(program: Program, clock: ManualClock, tmp_path: Path) -> None:
    told = tmp_path / "told"
    answer = json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "t"}})
    program.does(f'echo "$KUBERNETES_EXEC_INFO" > {told}; echo "$REGION" >> {told}; echo \'{answer}\'')
    plugin = program.plugin(clock, environment={"REGION": "north"}, cluster={"server": "https://s"})
    await plugin.headers()
    information, region = told.read_text().splitlines()
    assert json.loads(information) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": "https://s"}},
    }
    assert region == "north"


async def test_a_certificate_is_put_to_use(program: Program, clock: ManualClock) -> None:
    program.prints({"clientCertificateData": "CERT", "clientKeyData": "KEY"})
    assert await program.plugin(clock).headers() == {}
    assert program.certificates == [("CERT", "KEY")]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param("echo out of luck >&2; exit 3", "failed with 3: out of luck", id="fails"),
        pytest.param("echo hello", "printed no ExecCredential", id="prints something else"),
        pytest.param("printf '\"\\377\"'", "printed no ExecCredential", id="prints no text"),
        pytest.param("true", "printed no ExecCredential", id="prints nothing"),
        pytest.param('echo \'{"apiVersion":"v2"}\'', f"answered in 'v2', not in '{V1}'", id="another version"),
        pytest.param(
            f'echo \'{{"apiVersion":"{V1}","status":{{}}}}\'', "neither a token nor a certificate", id="gives nothing"
        ),
        pytest.param(
            f'echo \'{{"apiVersion":"{V1}","status":{{"token":"t","expirationTimestamp":"tomorrow"}}}}\'',
            "invalid expirationTimestamp: 'tomorrow'",
            id="no time",
        ),
    ],
)
async def test_a_program_that_fails_is_quoted(program: Program, clock: ManualClock, script: str, said: str) -> None:
    program.does(script)
    with pytest.raises(ConfigurationError) as caught:
        await program.plugin(clock).headers()
    assert str(program.path) in str(caught.value)
    assert said in str(caught.value)


async def test_a_program_that_is_not_there_comes_with_its_hint(program: Program, clock: ManualClock) -> None:
    plugin = program.plugin(clock, install_hint="Get it from the shop.")
    with pytest.raises(ConfigurationError, match=r"cannot be run: No such file or directory\. Get it from the shop\."):
        await plugin.headers()


class Hasty(ExecPlugin):
    DEADLINE_S = 0.2


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("exec sleep 20", id="itself"),
        # The child holds the pipe open when its parent has been ended.
        pytest.param("sleep 20; echo done", id="with a child"),
    ],
)
async def test_a_program_that_hangs_is_ended(program: Program, clock: ManualClock, script: str) -> None:
    program.does(script)
    plugin = Hasty(
        [str(program.path)],
        environment={},
        api_version=V1,
        cluster=None,
        install_hint="",
        use_certificate=lambda certificate, key: None,
        clock=clock,
    )
    started = time.monotonic()
    with pytest.raises(ConfigurationError, match=r"gave no answer in 0\.2 s"):
        await plugin.headers()
    assert time.monotonic() - started < 5.0


@pytest.mark.parametrize("script", ["exec sleep 20", "sleep 20; echo done"], ids=["itself", "with a child"])
async def test_cancelling_ends_the_program_at_once(program: Program, clock: ManualClock, script: str) -> None:
    program.does(script)
    asking = asyncio.create_task(program.plugin(clock).headers())
    while not program.runs:  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.01)
    asking.cancel()
    started = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert time.monotonic() - started < 5.0


@pytest.mark.parametrize("turns", range(6))
async def test_cancelling_while_the_program_is_being_started_ends_it_too(
    program: Program, clock: ManualClock, turns: int
) -> None:
    program.does("sleep 20; echo done")
    asking = asyncio.create_task(program.plugin(clock).headers())
    for _ in range(turns):
        await asyncio.sleep(0)
    asking.cancel()
    started = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert time.monotonic() - started < 5.0
