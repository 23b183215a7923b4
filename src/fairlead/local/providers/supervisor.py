"""The supervisor: a small process that starts containers, writes their logs, and ends them all when we are gone.

`process.py` starts it as `python -I -S supervisor.py FD FILES FOLDER` and speaks lines of JSON with it over the socket
FD. It has one thread, so a child may be prepared between fork and exec, and the kernel's parent-death signal means
this process and not a thread of it. When the socket closes, for whatever reason (SIGKILL of Fairlead included), it
kills every descendant and ends. Standard library only: it starts before anything is installed, in some ten
milliseconds.

    → {"op": "start", "id", "argv", "env", "cwd", "log", VIEW}    ← {"event": "started", …}
    → {"op": "signal", "id", "signal"}                            ← {"event": "exited", …}
    → {"op": "exec", "id", "argv", "env", "cwd", VIEW, "join"}    ← {"event": "output", …}
    → {"op": "attach", "id", "run", "files"}                      ← {"event": "attached", …}

VIEW is "root", "way", "hidden", "mounts" and "hostname", which `namespaces.py` makes a view of the machine of; or an
empty "root". An exec makes none: `join` names the run whose view it enters. What could not be started is answered with
{"event": "failed", …}. An order may bring open files ("files": how many), which come over the socket FILES in the
order of the orders: of an exec its three streams, or its terminal alone; of a start the input, or the terminal's two
ends; of an attach where the container's output is written as well from now on.
"""

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import socket
import sys
import termios
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn

if __package__:
    from fairlead.local.providers import namespaces
else:
    # Run as a program that knows of nothing installed.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    namespaces = import_module("namespaces")

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

MARK = "FAIRLEAD_SANDBOX"
LINE_BYTES = 16 << 10  # a longer line is cut into parts, as container runtimes do
LOG_BYTES = 10 << 20  # a log is turned over at this size; one older part is kept
OUTPUT_BYTES = 10 << 10  # of an exec probe
UNREAD_BYTES = 1 << 20  # of a container's output that somebody who is attached has not read; beyond it they are cut off


# --- in the child, between fork and exec ------------------------------------------------------------------


def move_inside(report: int) -> None:
    """Go on as the first process of the new PID namespace, once the supervisor is its parent."""
    is_gone, holds = os.pipe()
    if inside := os.fork():
        os.write(report, b"%d\n" % inside)
        os._exit(0)
    os.close(holds)
    os.read(is_gone, 1)
    os.close(is_gone)


def become(order: dict[str, Any], streams: list[int], failure: int) -> NoReturn:
    """Turn the forked child into the container's program; a failure is written to the pipe, with where it was."""
    stage = "start"
    try:
        is_joining = bool(order.get("join"))
        if order.get("root"):
            stage = "enter the container" if is_joining else "mount"
            if is_joining:
                namespaces.join(order["join"])
            else:
                namespaces.enter(order["way"])
            if order["way"] == "pid":
                move_inside(failure)
        os.setsid()
        if order.get("root") and not is_joining:
            namespaces.live_in(order, order["way"])
        stage = "start"
        if namespaces.libc is not None and sys.platform == "linux":
            # After the namespaces: a change of credentials clears it.
            supervisor = order["supervisor"]
            namespaces.libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != supervisor and os.getppid() != 0:
                os._exit(137)
        for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        if order.get("tty"):
            fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
        for target, stream in enumerate(streams):
            os.dup2(stream, target)
        stage = f"enter the working directory {order['cwd']!r}"
        try:
            os.chdir(order["cwd"])
        except FileNotFoundError:
            # A volume lies over it; where the container did not ask for a place, any will do.
            if not order.get("any_cwd"):
                raise
            os.chdir("/")
        stage = f"run {order['argv'][0]!r}"
        os.execvpe(order["argv"][0], order["argv"], order["env"])
    except OSError as problem:
        is_program = stage.startswith("run ")
        why = problem.strerror if is_program or stage.startswith("enter") else str(problem)
        if is_program and problem.errno == errno.ENOENT and "/" not in order["argv"][0]:
            why = "there is no such program on the PATH"
        failure_report = {"stage": stage, "errno": problem.errno, "problem": why}
    except BaseException as bug:
        failure_report = {"stage": stage, "errno": 0, "problem": repr(bug)}
    os.write(failure, json.dumps(failure_report).encode()[:4000])
    os._exit(128)


def start(order: dict[str, Any], files: list[int]) -> tuple[int, int]:
    """(pid, the reading end of its output, or -1 where others read it); StartFailed if it could not be started.

    The files are the child's: closed here, whatever becomes of it.
    """
    ours: list[int] = []
    try:
        streams, output = _streams(order, files, ours)
        pid = _forked(order, streams)
    except BaseException:
        if ours:
            os.close(ours[0])
        raise
    finally:
        for file in {*files, *ours[1:]} - set(ours[:1]):
            os.close(file)
    if output >= 0:
        os.set_blocking(output, False)
    return pid, output


def _streams(order: dict[str, Any], files: list[int], ours: list[int]) -> tuple[list[int], int]:
    """The three streams of the child and the end we read; `ours` gets that end first, then what was opened here."""
    if order["op"] == "exec" and files:
        return files * 3 if order.get("tty") else files, -1
    if order.get("tty"):
        inner, outer = files
        ours.append(outer)
        return [inner] * 3, outer
    output, inner = os.pipe()
    ours += [output, inner]
    if not files:
        files = [os.open(os.devnull, os.O_RDONLY)]
        ours += files
    return [files[0], inner, inner], output


def _forked(order: dict[str, Any], streams: list[int]) -> int:
    failed_read, failed_write = os.pipe()
    order["supervisor"] = os.getpid()
    pid = os.fork()
    if pid == 0:
        become(order, streams, failed_write)
    os.close(failed_write)
    with open(failed_read, "rb") as pipe:
        failure = pipe.read()  # ends at exec, which closes the other end
    inside, newline, rest = failure.partition(b"\n")
    if newline and inside.isdigit():
        os.waitpid(pid, 0)
        pid, failure = int(inside), rest
    if failure:
        os.waitpid(pid, 0)
        failure_report = json.loads(failure)
        raise StartFailed(failure_report["stage"], failure_report["errno"], failure_report["problem"])
    return pid


class StartFailed(Exception):
    def __init__(self, stage: str, number: int, problem: str) -> None:
        super().__init__(problem)
        self.stage, self.errno, self.problem = stage, number, problem


# --- logs -------------------------------------------------------------------------------------------------


class Log:
    """A container's output as container runtimes write it: time, stream, F (a full line) or P (a part), text."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        self._size = self._file.tell()
        self._part = b""

    def write(self, data: bytes) -> None:
        lines = (self._part + data).split(b"\n")
        self._part = lines.pop()
        text = [self._log_line(line, b"F") for line in lines]
        while len(self._part) >= LINE_BYTES:
            text.append(self._log_line(self._part[:LINE_BYTES], b"P"))
            self._part = self._part[LINE_BYTES:]
        if text:
            self._append(b"".join(text))

    def close(self) -> None:
        if self._part:
            self._append(self._log_line(self._part, b"F"))
        self._file.close()

    def _log_line(self, line: bytes, tag: bytes) -> bytes:
        seconds, nanos = divmod(time.time_ns(), 10**9)
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        return b"%s.%09dZ stdout %s %s\n" % (at.encode(), nanos, tag, line)

    def _append(self, text: bytes) -> None:
        # A full disk must not stop the containers; what cannot be written is lost.
        with contextlib.suppress(OSError):
            if self._size > LOG_BYTES:
                self._file.close()
                os.replace(self._path, self._path + ".1")
                self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115
                self._size = 0
            self._size += self._file.write(text) or 0


# --- the loop ---------------------------------------------------------------------------------------------


class Attachment:
    """Where a container's output goes besides its log: never waited for, so that nobody can hold the container up."""

    def __init__(self, file: int) -> None:
        self.file = file
        self.unread = b""
        os.set_blocking(file, False)

    def write(self, data: bytes) -> bool:
        """False once nobody reads any more, or far too slowly."""
        self.unread += data
        try:
            while self.unread:
                self.unread = self.unread[os.write(self.file, self.unread) :]
        except BlockingIOError:
            return len(self.unread) <= UNREAD_BYTES
        except OSError:
            return False
        return True


class Run:
    def __init__(self, name: str, pid: int, output: int, log: Log | None, mark: str) -> None:
        self.name, self.pid, self.output, self.log, self.mark = name, pid, output, log, mark
        self.text = b""
        self.attached: list[Attachment] = []

    @property
    def is_probe(self) -> bool:
        return self.log is None and self.output >= 0

    def read(self) -> bool:
        """Take what it has written; False once nothing more will come."""
        try:
            data = os.read(self.output, 1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if self.log is not None:
            self.log.write(data)
        elif len(self.text) < OUTPUT_BYTES:
            self.text += data
        for attachment in list(self.attached):
            if not attachment.write(data):
                self.detach(attachment)
        return bool(data)

    def detach(self, attachment: "Attachment") -> None:
        self.attached.remove(attachment)
        os.close(attachment.file)


class Supervisor:
    def __init__(self, channel: socket.socket, files: socket.socket, folder: str) -> None:
        self._channel = channel
        self._files = files
        self._folder = folder
        self._runs: dict[str, Run] = {}
        self._outputs: dict[int, Run] = {}
        self._unread = b""
        self._unsent = b""
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)
        self._wake_read, wake_write = os.pipe()
        for end in (self._wake_read, wake_write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._poll.register(self._wake_read, select.POLLIN)

    def work(self) -> None:
        """Until the other end is gone."""
        ways, why = namespaces.ways(os.path.join(self._folder, "try"))
        self._send_event({"event": "ready", "ways": ways, "why": why})
        while True:
            is_behind = any(each.unread for run in self._runs.values() for each in run.attached)
            for number, _ in self._poll.poll(20 if is_behind else 1000):
                if number == self._channel.fileno():
                    if not self._obey():
                        return
                elif number == self._wake_read:
                    with contextlib.suppress(OSError):
                        os.read(self._wake_read, 4096)
                elif (run := self._outputs.get(number)) is not None and not run.read():
                    self._close_output(run)
            self._reap()
            self._send()
            for run in self._runs.values():
                for attachment in [each for each in run.attached if each.unread]:
                    if not attachment.write(b""):
                        run.detach(attachment)

    def _obey(self) -> bool:
        try:
            data = self._channel.recv(1 << 20)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if order["op"] == "signal":
                self._signal(order["id"], order["signal"])
                continue
            files = receive_files(self._files, order.get("files", 0))
            if order["op"] == "attach":
                self._attach(order, files)
            else:
                self._start(order, files)
        return True

    def _start(self, order: dict[str, Any], files: list[int]) -> None:
        name = order["id"]
        try:
            log = Log(order["log"]) if order["op"] == "start" else None
            if order.get("join"):
                joined = self._runs.get(order["join"])
                if joined is None:
                    raise StartFailed("enter the container", errno.ESRCH, "it does not run any more")
                order["join"] = joined.pid
            pid, output = start(order, files)
        except StartFailed as failed:
            self._send_failure(name, failed.stage, failed.errno, failed.problem)
            return
        except OSError as problem:
            self._send_failure(name, "start", problem.errno, str(problem))
            return
        run = Run(name, pid, output, log, order["env"].get(MARK, ""))
        self._runs[name] = run
        if output >= 0:
            self._outputs[output] = run
            self._poll.register(output, select.POLLIN)
        self._send_event({"event": "started", "id": name, "pid": pid})

    def _attach(self, order: dict[str, Any], files: list[int]) -> None:
        run = self._runs.get(order["run"])
        if run is None or not files:
            for file in files:
                os.close(file)
            self._send_failure(order["id"], "attach", 0, "it has ended")
            return
        run.attached.append(Attachment(files[0]))
        self._send_event({"event": "attached", "id": order["id"]})

    def _signal(self, name: str, number: int) -> None:
        run = self._runs.get(name)
        if run is None:
            return
        # A stopped process would keep the signal pending for ever.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, number)
            os.killpg(run.pid, signal.SIGCONT)

    def _reap(self) -> None:
        by_pid = {run.pid: run for run in self._runs.values()}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            run = by_pid.get(pid)
            if run is None:
                continue  # an orphan of a container, which came to us as the nearest reaper
            self._sweep(run)
            while run.output in self._outputs and run.read():
                if not select.select([run.output], [], [], 0)[0]:
                    break
            self._close_output(run)
            for attachment in list(run.attached):
                run.detach(attachment)
            del self._runs[run.name]
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            code = 128 + number if number else os.WEXITSTATUS(status)
            kind, text = "output", run.text.decode("utf-8", "replace")
            if run.log is not None:
                kind, text = "exited", ""
                run.log.close()
            self._send_event({"event": kind, "id": run.name, "code": code, "signal": number, "text": text})

    def _sweep(self, run: Run) -> None:
        """With its first process a container ends as a whole, and so does a command in it.

        Those that have left its group are found by their session; of a container, whose commands end with it, also
        those that have left that, by their mark.
        """
        kill(os.killpg, run.pid)
        rest = [] if run.is_probe else in_session(run.pid)
        if run.log is not None and run.mark:
            rest += marked(run.mark)
            rest += [other.pid for other in self._runs.values() if other.log is None and other.mark == run.mark]
        for pid in rest:
            kill(os.kill, pid)

    def _close_output(self, run: Run) -> None:
        if self._outputs.pop(run.output, None) is not None:
            self._poll.unregister(run.output)
            os.close(run.output)

    def _send_failure(self, name: str, stage: str, number: int | None, problem: str) -> None:
        self._send_event({"event": "failed", "id": name, "stage": stage, "errno": number, "problem": problem})

    def _send_event(self, event: dict[str, Any]) -> None:
        self._unsent += json.dumps(event).encode() + b"\n"
        self._send()

    def _send(self) -> None:
        while self._unsent:
            try:
                sent = self._channel.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:
                self._unsent = b""
                return
            self._unsent = self._unsent[sent:]

    def end(self) -> None:
        """Kill every descendant: our own children first, then what comes to us as they go."""
        for run in list(self._runs.values()):
            kill(os.killpg, run.pid)
        deadline = time.monotonic() + 10.0
        while time.monotonic() < deadline:
            for pid in children():
                kill(os.kill, pid)
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.005)
            except ChildProcessError:
                return


def kill(send: Callable[[int, int], None], number: int) -> None:
    """A process (`os.kill`) or a group of them (`os.killpg`), where it is there and ours."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        send(number, signal.SIGKILL)


def children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def marked(mark: str) -> list[int]:
    """Processes that carry the mark in the environment they were started with, and that we may look at."""
    mark_variable = f"{MARK}={mark}".encode()
    found = []
    for pid in processes():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if pid != os.getpid() and any(each.startswith(mark_variable) for each in file.read().split(b"\0")):
                found.append(pid)
    return found


def in_session(leader: int) -> list[int]:
    """Processes of the session that a process began, whatever their group."""
    found = []
    for pid in processes():
        with contextlib.suppress(OSError):
            if os.getsid(pid) == leader:
                found.append(pid)
    return found


def processes() -> list[int]:
    try:
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    except OSError:
        return []


def receive_files(files: socket.socket, count: int) -> list[int]:
    """The files of one order, which were sent before it."""
    if not count:
        return []
    _, received, _, _ = socket.recv_fds(files, 1, count)
    for file in received:
        os.set_inheritable(file, False)
    return received


def main(number: int, files_number: int, folder: str) -> None:
    channel, files = socket.socket(fileno=number), socket.socket(fileno=files_number)
    channel.setblocking(False)
    for each in (number, files_number):
        os.set_inheritable(each, False)
    if namespaces.libc is not None and sys.platform == "linux":
        namespaces.libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)  # we end when the socket does, in whatever order signals arrive
    supervisor = Supervisor(channel, files, folder)
    try:
        supervisor.work()
    finally:
        supervisor.end()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
