"""What holds for every test: which ones need the real Kubernetes, who shares a worker, and how to leave them out.

A test is a `kube` test when it asks, directly or through another fixture, for `kube_programs`, or carries the
marker. Nothing here may skip a test silently.
"""

import asyncio.selector_events
import socket
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from tests.rigs.kube.build import PROGRAMS, programs_dir

pytest_plugins = ["tests.grouping"]
# Real servers, and leases of seconds that are renewed in time: not for the worker of a lower priority.
TIMED: Final = ("modules", "forecasts")
LEFT_OUT: Final = pytest.StashKey[int]()
# Building Kubernetes happens inside the first test's set-up where scripts/test has not done it before.
BUILD_S: Final = 3600

# How long an example takes is the machine's affair: on a loaded one it fails no test.
settings.register_profile("any-machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")


def _close_what_no_server_took() -> None:
    """A connection that asyncio accepts just before its server is closed is nobody's, and asyncio never closes it
    (python/cpython#109564). A later test would fail by the warning about it."""
    loops: Any = asyncio.selector_events.BaseSelectorEventLoop
    take = loops._accept_connection2

    async def take_or_close(
        self: Any, factory: Any, connection: socket.socket, extra: Any, tls: Any = None, server: Any = None, *more: Any
    ) -> None:
        if server is not None and not server.sockets:
            connection.close()
        else:
            await take(self, factory, connection, extra, tls, server, *more)

    loops._accept_connection2 = take_or_close


_close_what_no_server_took()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-kube",
        action="store_true",
        help="leave out the tests that need the real kube-apiserver (marker `kube`)",
    )


@pytest.hookimpl(tryfirst=True)  # tests/grouping.py reads the groups in the same hook, after us
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    is_built = all((programs_dir() / name).exists() for name in PROGRAMS)
    kube = [item for item in items if "kube_programs" in getattr(item, "fixturenames", ())]
    for item in kube:
        item.add_marker(pytest.mark.kube)
    kube = [item for item in items if item.get_closest_marker("kube")]
    if config.getoption("no_kube"):
        items[:] = [item for item in items if item not in set(kube)]
        config.hook.pytest_deselected(items=kube)
        config.stash[LEFT_OUT] = len(kube)
        kube = []
    for item in items:
        group = _group(item)
        if group and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(group))
    if not is_built:
        for item in kube:
            item.add_marker(pytest.mark.timeout(BUILD_S))


def _group(item: pytest.Item) -> str:
    """Who must share a worker: tests of a file with servers of its own. Everybody else runs anywhere.

    A rig of the whole run is started once by each worker, so that both have real servers to test against.
    """
    if item.path.parent.name == "journeys":
        return "journeys"  # two clusters of `fairlead up` would give out the same Service addresses of this machine
    if "contract_rig" in getattr(item, "fixturenames", ()):
        return "contract"  # several files about the same two servers
    if item.path.parent.name in TIMED:
        return f"{item.path.parent.name}/{item.path.stem}"
    # pytest has no public way to ask for the scope of a test's fixtures.
    definitions: dict[str, Sequence[Any]] = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009
    is_by_file = any(each[-1].scope == "module" and each[-1].baseid for each in definitions.values())
    return f"{item.path.parent.name}/{item.path.stem}" if is_by_file or item.get_closest_marker("kube") else ""


def pytest_sessionfinish(session: pytest.Session) -> None:
    # A worker tells the controller, which collects nothing itself.
    workeroutput: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if workeroutput is not None:
        workeroutput["kube_left_out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    left_out = getattr(node, "workeroutput", {}).get("kube_left_out", 0)
    node.config.stash[LEFT_OUT] = max(left_out, node.config.stash.get(LEFT_OUT, 0))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("no_kube"):
        count = config.stash.get(LEFT_OUT, 0)
        terminalreporter.write_line(
            f"--no-kube: {count} tests against the real kube-apiserver were left out", yellow=True
        )
