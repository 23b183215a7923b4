"""What a process does about its limits of open files."""

import asyncio
import errno
import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from fairlead.lifecycle import FULL_EVERY_S, report_full
from fairlead.testing.clock import ManualClock

RAISES = """
import resource
from fairlead.lifecycle import raise_file_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 3000))
raise_file_limit()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_a_process_takes_as_many_open_files_as_it_may_have() -> None:
    ran = subprocess.run([sys.executable, "-c", RAISES], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["3000", "3000"]


async def test_connections_that_find_no_file_are_reported_once_in_a_while() -> None:
    clock = ManualClock()
    handle = report_full(clock)
    loop = asyncio.get_running_loop()
    full = {"message": "socket.accept() out of system resource", "exception": OSError(errno.EMFILE, "too many")}
    with capture_logs() as logs:
        for _ in range(100):
            handle(loop, full)
        await clock.advance(FULL_EVERY_S)
        handle(loop, full)
    assert ["too many open files" in line["event"] for line in logs] == [True, True]


async def test_other_errors_of_the_loop_are_reported_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[dict[str, object]] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "default_exception_handler", reported.append)
    report_full(ManualClock())(loop, {"message": "a task was lost", "exception": ValueError()})
    assert [each["message"] for each in reported] == ["a task was lost"]
