"""Logs of containers, as container runtimes write them and `kubectl logs` reads them.

    2026-01-01T00:00:00.000000000Z stdout F a whole line
    2026-01-01T00:00:00.000000000Z stdout P the first part of a long

A file that was turned over has its older part beside it as `<file>.1`. Reading goes on while the file is written, and
keeps no more than a block of it in memory.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO

from fairlead.cluster.clock import Clock
from fairlead.model.times import rfc3339_micro
from fairlead.nodes.provider import LogOptions

BLOCK_BYTES = 1 << 16
# How often a log that is followed is looked at.
FOLLOW_EVERY_S = 0.2


async def read_log(
    path: Path, options: LogOptions, *, clock: Clock, is_live: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """The text that was asked for; with `follow`, what is written until the container has ended."""
    left = options.limit_bytes
    async for line in _lines(path, options, clock, is_live):
        text = _shown(line, options)
        if text is None:
            continue
        if left is not None:
            text = text[:left]
            left -= len(text)
        if text:
            yield text
        if left == 0:
            return


async def _lines(path: Path, options: LogOptions, clock: Clock, is_live: Callable[[], bool]) -> AsyncIterator[bytes]:
    older = path.with_name(path.name + ".1")
    at: int = 0
    from_older: int | None = 0
    if options.tail_lines is not None:
        at, from_older = await asyncio.to_thread(_tail, path, older, options.tail_lines)
    if from_older is not None:
        async for line in _whole_lines(older, from_older):
            yield line
    rest = b""
    # Held open: a log that is followed to its end is read to its end, though its pod be deleted meanwhile.
    file = await asyncio.to_thread(_opened, path, at)
    try:
        while True:
            was_live = is_live()
            block = await asyncio.to_thread(file.read, BLOCK_BYTES) if file is not None else b""
            if block:
                *lines, rest = (rest + block).split(b"\n")
                for line in lines:
                    yield line + b"\n"
                continue
            if not options.follow or not was_live:
                return
            if await asyncio.to_thread(_is_turned_over, file, path):
                fresh = await asyncio.to_thread(_opened, path, 0)
                if file is not None:
                    file.close()
                file = fresh
                continue
            await clock.sleep(FOLLOW_EVERY_S)
    finally:
        if file is not None:
            file.close()


async def _whole_lines(path: Path, at: int) -> AsyncIterator[bytes]:
    file = await asyncio.to_thread(_opened, path, at)
    if file is None:
        return
    rest = b""
    with file:
        while block := await asyncio.to_thread(file.read, BLOCK_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                yield line + b"\n"


def _opened(path: Path, at: int) -> BinaryIO | None:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    file.seek(at)
    return file


def _is_turned_over(file: BinaryIO | None, path: Path) -> bool:
    """Whether there is another file under the name now."""
    try:
        now = path.stat().st_ino
    except FileNotFoundError:
        return False
    return file is None or os.fstat(file.fileno()).st_ino != now


def _tail(path: Path, older: Path, count: int) -> tuple[int, int | None]:
    """Where in the file, and where in its older part (None: not at all), the last `count` lines begin."""
    at, found = _back(path, count)
    if found >= count:
        return at, None
    return 0, _back(older, count - found)[0]


def _back(path: Path, count: int) -> tuple[int, int]:
    """(offset of the last `count` full lines, how many there are)."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return 0, 0
    if count <= 0:
        return size, 0
    found, end = 0, size
    with path.open("rb") as file:
        while end > 0:
            start = max(0, end - BLOCK_BYTES)
            file.seek(start)
            block = file.read(end - start)
            at = len(block)
            while (newline := block.rfind(b"\n", 0, at)) >= 0:
                at = newline
                # The newline that ends the file ends the last line; every other one precedes a line.
                if start + newline == size - 1:
                    continue
                # A part belongs to the line that it begins.
                if _is_part_end(block, newline):
                    continue
                found += 1
                if found == count:
                    return start + newline + 1, found
            end = start
    return 0, found + 1 if size else 0


def _is_part_end(block: bytes, newline: int) -> bool:
    begin = block.rfind(b"\n", 0, newline) + 1
    head = block[begin:newline].split(b" ", 3)
    return len(head) >= 3 and head[2] == b"P"


def _shown(line: bytes, options: LogOptions) -> bytes | None:
    parts = line.split(b" ", 3)
    if len(parts) < 4:
        return line
    at, _, tag, text = parts
    # Times of one width and zone compare as text.
    if options.since is not None and at[:26] < rfc3339_micro(options.since).encode()[:26]:
        return None
    if tag == b"P":
        text = text.rstrip(b"\n")
    return at + b" " + text if options.timestamps else text
