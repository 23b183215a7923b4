"""Where forecast documents come from: one small Protocol, and the sources that need no library of their own.

A source reads once when asked and says in a sentence why it could not; it does not retry, keep or time anything:
that is the reader's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import yaml

from fairlead.cluster.errors import ClusterError
from fairlead.model.kinds import ConfigMap
from fairlead.placement.forecasts.documents import PLAIN, Read, read_all
from fairlead.settings import ForecastFields

# A ConfigMap cannot hold more than 1 MiB; a file of 100,000 documents is some 20.
LARGEST_FILE: Final = 64 << 20
# Documents lie three deep, their fields a few more where names have dots.
DEEPEST: Final = 32


class SourceProblem(Exception):
    """The source could not be read; the message says what was asked, what came back and what to do."""


class Source(Protocol):
    described_as: str

    async def read(self, now: datetime) -> Read:
        """All documents that may count at `now`; SourceProblem where they cannot be read."""

    async def close(self) -> None:
        """Nothing to close, unless a source says otherwise."""
        return


class FileSource:
    """A file of documents, YAML or JSON, read anew each time."""

    def __init__(self, file: Path, fields: ForecastFields = PLAIN) -> None:
        self.described_as = f"file {file}"
        self._file = file
        self._fields = fields
        self._reading: asyncio.Task[Read] | None = None

    async def read(self, now: datetime) -> Read:
        # A disk may hang, and YAML is slow: neither is the event loop's to bear. A thread that hangs cannot be
        # ended, so there is never more than one.
        if self._reading is None:
            self._reading = asyncio.create_task(asyncio.to_thread(self._read))
        reading = self._reading
        try:
            return await asyncio.shield(reading)
        finally:
            if reading.done():
                self._reading = None

    def _read(self) -> Read:
        try:
            with self._file.open("rb") as opened:
                content = opened.read(LARGEST_FILE + 1)
        except OSError as problem:
            raise SourceProblem(f"{self._file} cannot be read: {problem.strerror}") from None
        if len(content) > LARGEST_FILE:
            raise SourceProblem(f"{self._file} holds more than {LARGEST_FILE >> 20} MiB")
        return read_all(parse(content, str(self._file)), self._fields)

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])


class ConfigMapSource(Source):
    """A ConfigMap, each of whose entries holds documents as YAML or JSON.

    `find` gets it: from a mirror, or from the server by `client.find(CONFIG_MAPS, name, namespace)`.
    """

    def __init__(
        self, find: Callable[[], Awaitable[ConfigMap | None]], named: str, fields: ForecastFields = PLAIN
    ) -> None:
        self.described_as = f"ConfigMap {named}"
        self._find = find
        self._fields = fields

    async def read(self, now: datetime) -> Read:
        try:
            found = await self._find()
        except ClusterError as problem:
            raise SourceProblem(f"{self.described_as} cannot be read: {problem}") from problem
        if found is None:
            raise SourceProblem(f"{self.described_as} does not exist")
        return await asyncio.to_thread(self._parse, found.data)

    def _parse(self, data: dict[str, str]) -> Read:
        found = (
            document
            for entry, text in sorted((data or {}).items())
            for document in parse(text.encode(), f"{self.described_as}, entry {entry}")
        )
        return read_all(found, self._fields)


def parse(content: bytes, where: str) -> Iterator[Any]:
    """The documents in a text: a list, an object with `documents`, or one JSON object a line."""
    if not content.strip():
        return iter(())
    try:
        try:
            found = msgspec.json.decode(content)
        except msgspec.DecodeError:
            found = _lines(content)
        if found is None:
            found = _yaml(content)
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise SourceProblem(f"{where} is neither JSON nor YAML: {str(problem).splitlines()[0]}") from None
    except RecursionError:
        raise SourceProblem(f"{where}: the documents are nested too deeply") from None
    if isinstance(found, dict) and "documents" in found:
        found = found["documents"]
    if not isinstance(found, list):
        raise SourceProblem(f"{where}: must be a list of documents, not {type(found).__name__}")
    return iter(found)


def _yaml(content: bytes) -> Any:
    """What the text says. What lies too deep is refused before it is built: libyaml builds by recursion in C, where
    too deep is the end of the process."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    for event in yaml.parse(content, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise RecursionError
    return yaml.load(content, Loader=loader)


def _lines(content: bytes) -> list[Any] | None:
    content = content.strip()
    try:
        return msgspec.json.decode(b"[%b]" % b",".join(content.split(b"\n")), type=list[Any])
    except msgspec.DecodeError:
        return None
