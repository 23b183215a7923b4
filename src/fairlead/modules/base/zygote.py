"""The zygote: a child of the base that has the libraries imported and forks one worker per module.

    python -m fairlead.modules.base.zygote       (started by `base.workers`, never by hand)

Reads commands as lines of JSON from its input, writes events to its output. One thread and no event loop, so that a
fork copies nothing in motion. When its input ends, the base is gone: it ends its workers and itself.
"""

import ctypes
import json
import os
import select
import signal
import sys
from typing import Any

from fairlead.modules.base import worker

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    events = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not be taken for an event
    wake_in, wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a signal to the group: the base ends us when it has drained
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    children: dict[int, str] = {}
    emit(events, {"event": "ready"})
    rest = b""
    while True:
        readable, _, _ = select.select([0, wake_in], [], [])
        if wake_in in readable:
            os.read(wake_in, 4096)
        for pid, code in reap(children):
            emit(events, {"event": "exited", "id": children.pop(pid), "code": code})
        if 0 not in readable:
            continue
        data = os.read(0, 65536)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            command = json.loads(line)
            if command["do"] == "start":
                pid = start(command, events, (wake_in, wake_out))
                children[pid] = command["id"]
                emit(events, {"event": "started", "id": command["id"], "pid": pid})
            else:
                for pid in [pid for pid, name in children.items() if name == command["id"]]:
                    os.kill(pid, command["signal"])
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def reap(children: dict[int, str]) -> list[tuple[int, int]]:
    found = []
    for pid in list(children):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            found.append((pid, os.waitstatus_to_exitcode(status)))
    return found


def emit(events: int, event: dict[str, Any]) -> None:
    os.write(events, json.dumps(event).encode() + b"\n")


def start(command: dict[str, Any], events: int, wakeup: tuple[int, int]) -> int:
    """Fork a worker. The child never returns."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in wakeup:
            os.close(descriptor)
        nothing = os.open(os.devnull, os.O_RDONLY)
        log = os.open(command["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        code = worker.run(command, lambda event: emit(events, {**event, "id": command["id"]}))
    except BaseException as problem:
        print(f"worker: {problem!r}", file=sys.stderr)
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
