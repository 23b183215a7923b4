"""The command: mistakes are one sentence and exit 2, signals end it in time, and the lease is given back."""

import asyncio
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from fairlead import __version__
from fairlead.cli import main
from fairlead.cli.main import Commands, cli
from fairlead.testing.scripted_server import ScriptedServer, failure, silence
from tests.test_app import LEASE, LEASES, QUICKLY_S, Cluster

COMMAND = Path(sys.executable).with_name("fairlead")


@pytest.fixture
async def cluster(no_task_left: None, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with ScriptedServer() as server:
        yield Cluster(server, tmp_path)


async def start(
    folder: Path, *arguments: str, variables: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    """The real command, with nothing of this machine's own configuration."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("FAIRLEAD_", "KUBE"))}
    return await asyncio.create_subprocess_exec(
        COMMAND,
        *arguments,
        env={**kept, "HOME": str(folder), **(variables or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def end_of(process: asyncio.subprocess.Process, timeout_s: float = 60.0) -> tuple[int | None, str]:
    """Its exit code and what it said to stderr; it is ended if it does not end."""
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    assert out == b""
    return process.returncode, err.decode()


# --- help -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["serve", "-h"], ["up", "--help"]], ids=" ".join)
def test_help_is_there(arguments: list[str]) -> None:
    told = CliRunner().invoke(cli, arguments)
    assert (told.exit_code, told.output[:6]) == (0, "Usage:")


def test_help_lists_every_command_in_a_line_and_imports_none() -> None:
    program = (
        "import sys; from click.testing import CliRunner; from fairlead.cli.main import cli; "
        "print(CliRunner().invoke(cli, ['--help']).output, sorted({'numpy', 'aiohttp'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.endswith("[]\n")
    rows = dict(line.split(maxsplit=1) for line in ended.stdout.partition("Commands:\n")[2].splitlines()[:10])
    assert set(rows) == {"agent", "base", "data", "explain", "job", "place", "replay", "serve", "task", "up"}
    assert all(summary.endswith(".") and not summary.endswith("...") for summary in rows.values())


@pytest.mark.parametrize("name", Commands.LATE)
def test_late_commands_are_found(name: str) -> None:
    assert CliRunner().invoke(cli, [name, "--help"]).output.startswith(f"Usage: cli {name}")


def test_the_version_is_told() -> None:
    assert CliRunner().invoke(cli, ["--version"]).output == f"fairlead, version {__version__}\n"


# --- mistakes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--listen", "here"], "fairlead: --listen: listen: expected `str` matching", id="flag"),
        pytest.param(["--listen", ":99999"], "fairlead: listen: must be host:port with a port up to", id="port"),
        pytest.param(["--config", "/nowhere.yaml"], "fairlead: /nowhere.yaml cannot be read: No such file", id="file"),
    ],
)
@pytest.mark.parametrize("command", ["serve", "up"])
def test_a_wrong_setting_is_one_sentence(command: str, arguments: list[str], said: str) -> None:
    told = CliRunner().invoke(cli, [command, *arguments])
    assert told.exit_code == 2
    assert told.stderr.startswith(said)
    assert told.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--capabilities", "magic"], "fairlead: capabilities: magic is not in this version; there is: "),
        (["up", "--without", "magic"], "fairlead: --without: magic is not part of `up`; there are controllers, "),
    ],
)
def test_a_word_that_means_nothing_is_one_sentence(arguments: list[str], said: str) -> None:
    told = CliRunner().invoke(cli, arguments)
    assert told.exit_code == 2
    assert told.stderr.startswith(said)


def test_a_wrong_variable_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_LEASE_DURATION_S", "soon")
    told = CliRunner().invoke(cli, ["serve"])
    assert told.stderr == "fairlead: FAIRLEAD_LEASE_DURATION_S: lease.durationS: expected `int`, got `str`\n"
    assert told.exit_code == 2


def test_a_flag_that_is_not_there_is_exit_2() -> None:
    assert CliRunner().invoke(cli, ["serve", "--nonsense"]).exit_code == 2


async def mistake(folder: Path, *arguments: str, variables: Mapping[str, str] | None = None) -> str:
    code, said = await end_of(await start(folder, "serve", *arguments, variables=variables))
    assert "Traceback" not in said
    assert code == 2, said
    return said.splitlines()[-1]


async def test_without_a_cluster(tmp_path: Path) -> None:
    assert await mistake(tmp_path) == (
        f"fairlead: no cluster to run against: no kubeconfig at {tmp_path}/.kube/config and not running in a pod; "
        "name one with --kubeconfig or the KUBECONFIG variable"
    )


async def test_a_kubeconfig_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "k").write_text("clusters: 3")
    assert (await mistake(tmp_path, "--kubeconfig", f"{tmp_path}/k")).startswith(
        f"fairlead: {tmp_path}/k is not a kubeconfig: "
    )


async def test_an_address_that_is_taken(cluster: Cluster, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = await mistake(tmp_path, "--kubeconfig", cluster.settings().kubeconfig, "--listen", f"127.0.0.1:{port}")
    assert said.startswith(f"fairlead: listen: cannot listen on 127.0.0.1:{port}: ")


async def test_a_cluster_that_refuses_us(cluster: Cluster, tmp_path: Path) -> None:
    cluster.server.always("GET /version", failure(403, message="who are you"))
    kubeconfig = cluster.settings().kubeconfig
    variables = {"FAIRLEAD_OPENING_REFUSED_S": "0.1"}
    said = await mistake(tmp_path, "--kubeconfig", kubeconfig, "--listen", "127.0.0.1:0", variables=variables)
    assert said.startswith(f"fairlead: {cluster.server.url} (")
    assert said.endswith(" refused us for 0 s: GET /version: 403 Forbidden: who are you")


# --- signals ----------------------------------------------------------------------------------------------


async def serve(cluster: Cluster, folder: Path, **variables: str) -> asyncio.subprocess.Process:
    arguments = ("serve", "--kubeconfig", cluster.settings().kubeconfig, "--listen", "127.0.0.1:0")
    return await start(folder, *arguments, variables={"FAIRLEAD_IDENTITY": "me", **variables})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
async def test_a_signal_ends_the_leader_which_gives_the_lease_back(
    cluster: Cluster, tmp_path: Path, number: signal.Signals
) -> None:
    process = await serve(cluster, tmp_path, FAIRLEAD_LEASE_RETRY_S="0.1")
    await cluster.server.wait_for(lambda: bool(cluster.server.requests_for(f"PUT {LEASE}")), 20)  # it leads, and renews
    asked = time.monotonic()
    process.send_signal(number)
    code, said = await end_of(process)
    assert (code, cluster.holder) == (0, ""), said
    assert time.monotonic() - asked < QUICKLY_S
    logged = [json.loads(line) for line in said.splitlines()]
    assert [line["event"] for line in logged] == ["listening", "connected", "leading", "stopping", "stopped"]
    assert all(line["level"] == "info" and line["timestamp"].endswith("Z") for line in logged)


@pytest.mark.parametrize("where", ["standby", "no answer yet", "traces go nowhere"])
async def test_a_signal_ends_it_wherever_it_is(cluster: Cluster, tmp_path: Path, where: str) -> None:
    variables = {}
    if where == "standby":
        cluster.hold("other")
    elif where == "no answer yet":
        cluster.server.always("GET /version", silence())
    else:
        variables["FAIRLEAD_TRACES_TO"] = "http://127.0.0.1:1/v1/traces"
    process = await serve(cluster, tmp_path, **variables)
    await cluster.server.wait_for_requests(1 if where == "no answer yet" else 2, 20)
    asked = time.monotonic()
    process.send_signal(signal.SIGTERM)
    code, said = await end_of(process)
    assert code == 0, said
    assert time.monotonic() - asked < QUICKLY_S
    assert "Traceback" not in said


async def test_a_second_signal_ends_it_without_a_word_of_python(cluster: Cluster, tmp_path: Path) -> None:
    process = await serve(cluster, tmp_path)
    await cluster.server.wait_for(lambda: cluster.holder == "me", 20)
    await cluster.server.wait_for(lambda: bool(cluster.server.requests_for(f"WATCH {LEASES}")), 20)
    cluster.server.always(f"PUT {LEASE}", silence())
    process.send_signal(signal.SIGTERM)
    await cluster.server.wait_for(lambda: bool(cluster.server.requests_for(f"PUT {LEASE}")), 20)
    process.send_signal(signal.SIGTERM)
    code, said = await end_of(process, 5)
    assert code == 1, said
    assert said.splitlines()[-1] == "fairlead: stopped at once, before the work in hand was finished"
    assert "Traceback" not in said


def test_what_is_there_after_the_start_is_left_out_of_full_collections() -> None:
    assert gc.get_freeze_count() == 0
    full_collections = gc.get_stats()[2]["collections"]
    main._leave_out_of_collections()
    try:
        assert gc.get_freeze_count() > 1000
        assert gc.get_stats()[2]["collections"] == full_collections, "one would stop everybody"
    finally:
        gc.unfreeze()


def test_cycles_are_looked_for_less_often_than_python_does_by_itself() -> None:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    main._collect_less_often()
    try:
        assert gc.get_threshold() == (main.YOUNG_OBJECTS, 10, 10)
    finally:
        gc.set_threshold(*before)
