"""Where the forecaster's documents go when not to Elasticsearch: the ConfigMap or the file that they are read from."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from fairlead.cluster.writer import Outcome, Result
from fairlead.model.intents import Apply, Intent
from fairlead.model.kinds import CONFIG_MAPS
from fairlead.placement.forecasts.documents import PLAIN, Document, written
from fairlead.placement.forecasts.sources import SourceProblem
from fairlead.settings import ForecastFields

# Kubernetes takes 1 MiB for the whole object.
LARGEST_CONFIG_MAP: Final = 900 << 10
ENTRY: Final = "forecasts.json"


class Sink(Protocol):
    described_as: str

    async def write(self, documents: Sequence[Document]) -> None:
        """These documents instead of the last ones; SourceProblem where that cannot be."""

    async def close(self) -> None:
        """Nothing to close, unless a sink says otherwise."""
        return


class FileSink(Sink):
    def __init__(self, file: Path, fields: ForecastFields = PLAIN) -> None:
        self.described_as = f"file {file}"
        self._file = file
        self._fields = fields

    async def write(self, documents: Sequence[Document]) -> None:
        await asyncio.to_thread(self._write, lines(documents, self._fields))

    def _write(self, content: bytes) -> None:
        # Whoever reads meanwhile sees the old file or the new one, never half of it.
        aside = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        try:
            aside.write_bytes(content)
            aside.replace(self._file)
        except OSError as problem:
            raise SourceProblem(f"{self._file} cannot be written: {problem.strerror}") from None


class ConfigMapSink(Sink):
    """`carry_out` is the writer's, so that only a leader writes."""

    def __init__(
        self,
        carry_out: Callable[[Intent], Awaitable[Result]],
        name: str,
        namespace: str,
        fields: ForecastFields = PLAIN,
    ) -> None:
        self.described_as = f"ConfigMap {namespace}/{name}"
        self._carry_out = carry_out
        self._name = name
        self._namespace = namespace
        self._fields = fields

    async def write(self, documents: Sequence[Document]) -> None:
        content = lines(documents, self._fields)
        if len(content) > LARGEST_CONFIG_MAP:
            raise SourceProblem(
                f"{len(documents)} forecast documents are {len(content) >> 10} KiB, more than a ConfigMap holds "
                f"({LARGEST_CONFIG_MAP >> 10} KiB): keep them in Elasticsearch or a file, or lower forecast.horizonS"
            )
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "data": {ENTRY: content.decode()},
        }
        result = await self._carry_out(Apply(kind=CONFIG_MAPS, name=self._name, namespace=self._namespace, body=body))
        if result.outcome is not Outcome.DONE:
            raise SourceProblem(f"{self.described_as} was not written: {result.error or result.outcome}")


def lines(documents: Sequence[Document], fields: ForecastFields) -> bytes:
    """One JSON object a line."""
    return b"".join(msgspec.json.encode(written(each, fields)) + b"\n" for each in documents)
