"""Streams of processes: pipes and terminals, read and written without blocking, and the sessions made of them.

The provider opens both ends here and hands the process's ends to the supervisor; the bytes never pass through that.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import Callable
from typing import Any, Self

from fairlead.cluster.waits import started
from fairlead.nodes.provider import ProviderError, StreamOptions

READ_BYTES = 64 << 10
END_OF_INPUT = b"\x04"  # what a terminal takes for it
HANGUP_S = 2.0  # for a command whose client is gone, before it is killed
LINGER_S = 0.5  # for what others have written after a command's end


class Files:
    """Both ends of a process's streams. Ours are read and written here; theirs are for the supervisor."""

    def __init__(
        self,
        stdin: int = -1,
        stdout: int = -1,
        stderr: int = -1,
        theirs: tuple[int, ...] = (),
        *,
        is_terminal: bool = False,
    ) -> None:
        self.stdin, self.stdout, self.stderr, self.theirs = stdin, stdout, stderr, theirs
        self.is_terminal = is_terminal
        self._writing = 0
        self._is_closing = False
        for file in self._ours:
            os.set_blocking(file, False)

    @classmethod
    def of_command(cls, options: StreamOptions) -> Self:
        """For a command: its three streams, or a terminal."""
        if options.tty:
            outer, inner = pty.openpty()
            return cls(outer, outer, theirs=(inner,), is_terminal=True)
        with contextlib.ExitStack() as opened:
            their_input, stdin = _opened(opened, os.O_RDONLY, is_open=options.stdin)
            their_output, stdout = _opened(opened, os.O_WRONLY, is_open=options.stdout)
            their_errors, stderr = _opened(opened, os.O_WRONLY, is_open=options.stderr)
            opened.pop_all()
        return cls(stdin, stdout, stderr, theirs=(their_input, their_output, their_errors))

    @classmethod
    def of_container(cls, *, stdin: bool, tty: bool) -> Self:
        """For a container: its input, or a terminal of which the supervisor gets the outer end too, for the log."""
        if tty:
            outer, inner = pty.openpty()
            return cls(outer, theirs=(inner, os.dup(outer)), is_terminal=True)
        if not stdin:
            return cls()
        theirs, ours = os.pipe()
        return cls(ours, theirs=(theirs,))

    @classmethod
    def of_output(cls) -> Self:
        """For an attached client: what a container writes from now on."""
        ours, theirs = os.pipe()
        return cls(stdout=ours, theirs=(theirs,))

    def close_theirs(self) -> None:
        for file in self.theirs:
            os.close(file)
        self.theirs = ()

    async def write(self, data: bytes) -> None:
        """To the process's input; what it will never read is dropped."""
        if self.stdin < 0 or self._is_closing:
            return
        self._writing += 1
        try:
            is_read = await write_file(self.stdin, data)
        finally:
            self._writing -= 1
            self._settle()
        if not is_read:
            self.close_stdin()

    def close_stdin(self) -> None:
        """Once nobody writes to it any more: a file must not be closed under somebody who waits for it."""
        self._is_closing = True
        self._settle()

    def _settle(self) -> None:
        if self._is_closing and self.stdin >= 0 and not self._writing:
            if self.stdin != self.stdout:
                os.close(self.stdin)
            self.stdin = -1

    def close(self) -> None:
        """No reader is left: release the writers first."""
        self.close_theirs()
        self.close_stdin()
        for file in {self.stdout, self.stderr} - {-1, self.stdin}:
            os.close(file)
        self.stdout = self.stderr = -1

    @property
    def _ours(self) -> set[int]:
        return {self.stdin, self.stdout, self.stderr} - {-1}


def _opened(opened: contextlib.ExitStack, their_mode: int, *, is_open: bool) -> tuple[int, int]:
    """Their end and ours of one stream; nothing is at the other end of one that nobody wants."""
    if not is_open:
        theirs, ours = os.open(os.devnull, their_mode), -1
    else:
        theirs, ours = os.pipe() if their_mode == os.O_RDONLY else os.pipe()[::-1]
        opened.callback(os.close, ours)
    opened.callback(os.close, theirs)
    return theirs, ours


async def read_file(file: int, is_over: Callable[[], bool]) -> bytes:
    """What can be read, once something can; nothing at the end. Once it `is_over`, no more is waited for than a bit."""
    while True:
        try:
            return os.read(file, READ_BYTES)
        except BlockingIOError:
            try:
                async with asyncio.timeout(LINGER_S if is_over() else None):
                    await _ready(file, "reader")
            except TimeoutError:
                return b""
        except OSError as problem:
            if problem.errno == errno.EIO:  # a terminal that no process has open any more
                return b""
            raise


async def write_file(file: int, data: bytes) -> bool:
    """False if no reader is left."""
    while data:
        try:
            data = data[os.write(file, data) :]
        except BlockingIOError:
            await _ready(file, "writer")
        except OSError:
            return False
    return True


def set_size(terminal: int, width: int, height: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


async def _ready(file: int, way: str) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    add, remove = (loop.add_reader, loop.remove_reader) if way == "reader" else (loop.add_writer, loop.remove_writer)
    add(file, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        remove(file)


class CommandSession:
    """A command in a container."""

    def __init__(self, files: Files, ended: asyncio.Future[dict[str, Any]], send_signal: Callable[[int], None]) -> None:
        """`ended` has its result from the supervisor; `send_signal` reaches all of its group."""
        self._files = files
        self._ended = ended
        self._send_signal = send_signal

    async def read(self, stream: int) -> bytes:
        file = self._files.stdout if stream == 1 else self._files.stderr
        if file < 0:
            return b""
        # Cancelled at the end in any case: the loop must let go of the file before its number is another's.
        async with started(read_file(file, self._ended.done)) as (reading,):
            await asyncio.wait((reading, self._ended), return_when=asyncio.FIRST_COMPLETED)
        # A read that began before the end is begun again after it, with its bound.
        return await read_file(file, lambda: True) if reading.cancelled() else reading.result()

    async def write(self, data: bytes) -> None:
        await self._files.write(data)

    def close_stdin(self) -> None:
        if self._files.is_terminal and self._files.stdin >= 0:
            with contextlib.suppress(OSError):
                os.write(self._files.stdin, END_OF_INPUT)
            return
        self._files.close_stdin()

    def resize(self, width: int, height: int) -> None:
        set_size(self._files.stdout, width, height)

    async def wait(self) -> int:
        ended = await asyncio.shield(self._ended)
        if ended.get("event") != "output":
            raise ProviderError("the supervisor process is gone, and the command with it")
        code: int = ended["code"]
        return code

    async def close(self) -> None:
        self._files.close()
        if not self._ended.done():
            self._send_signal(signal.SIGHUP)
            await asyncio.wait((self._ended,), timeout=HANGUP_S)
        if not self._ended.done():
            self._send_signal(signal.SIGKILL)
            await asyncio.wait((self._ended,))


class ContainerSession:
    """A container itself: what it writes from now on, and its input where it has one."""

    def __init__(self, output: Files, container: Files, ended: asyncio.Event, *, once: bool) -> None:
        """`container` are its own files; `once`: its input ends with the first who had it."""
        self._output = output
        self._container = container
        self._ended = ended
        self._once = once
        self._is_cut = asyncio.Event()

    async def read(self, stream: int) -> bytes:
        data = await read_file(self._output.stdout, lambda: False) if stream == 1 else b""
        if not data and stream == 1:
            self._is_cut.set()
        return data

    async def write(self, data: bytes) -> None:
        await self._container.write(data)

    def close_stdin(self) -> None:
        if self._once and not self._container.is_terminal:
            self._container.close_stdin()

    def resize(self, width: int, height: int) -> None:
        set_size(self._container.stdin, width, height)

    async def wait(self) -> int:
        """The exit code is in the pod's status, not here."""
        async with started(self._ended.wait(), self._is_cut.wait()) as waits:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            # Its output ends a moment before its end is reported.
            await asyncio.wait(waits[:1], timeout=LINGER_S)
        if not self._ended.is_set():
            raise ProviderError("the container writes faster than this client reads; it goes on: attach again")
        return 0

    async def close(self) -> None:
        self._output.close()
        self.close_stdin()
