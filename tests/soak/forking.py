"""Replicas forked from a process that has their program imported: a life is short, and imports would be most of it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.house.rules import ROOT

FORKING = "--forking"


def run(main: Callable[[], object]) -> None:
    """What such a program does when it is started: itself, or whatever it is asked to fork."""
    fork_on(main) if FORKING in sys.argv else main()


def fork_on(main: Callable[[], object]) -> None:
    """Reads what to start, one JSON object a line, and writes the number of each process."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        order = json.loads(line)
        if (number := os.fork()) == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((nothing, 0), (log, 1), (log, 2)):
                os.dup2(source, target)
            os.environ.update(order["env"])
            sys.argv = ["fairlead", *order["arguments"]]
            try:
                main()
            finally:
                os._exit(1)
        print(number, flush=True)


@dataclass(frozen=True, slots=True)
class Forked:
    """A process of another's making."""

    pid: int

    def send_signal(self, sig: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return -9
        return None

    def wait(self, timeout: float | None = None) -> int:
        until_s = time.monotonic() + (timeout or 60.0)
        while self.poll() is None:
            if time.monotonic() > until_s:
                raise TimeoutError(f"process {self.pid} does not end")
            time.sleep(0.005)
        return -9


class Forking:
    """Forks a program that ends with `run(main)`; it is started with the first one, and imported while that waits."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._command = [sys.executable, "-m", module, FORKING, *arguments]
        self._process: subprocess.Popen[str] | None = None
        self._turn = threading.Lock()

    def start(self, arguments: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> Forked:
        order = {"arguments": list(arguments), "env": dict(env or {}), "log": str(log)}
        with self._turn:
            if self._process is None:
                pipe = subprocess.PIPE
                self._process = subprocess.Popen(self._command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            return Forked(int(self._process.stdout.readline()))

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
