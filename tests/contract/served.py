"""The embedded API server as a process of its own, for those who end it without warning or measure it.

`python -m tests.contract.served FOLDER [PORT]` prints one line of JSON when it answers: url, token, authority.
"""

import asyncio
import contextlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from fairlead.apiserver.embedded import embedded
from fairlead.cluster.clock import RealClock


async def serve(folder: Path, port: int) -> None:
    async with embedded(folder, RealClock(), port=port) as cluster:
        told = {
            "url": cluster.url,
            "token": cluster.admin_token,
            "authority": str(cluster.certificates.authority_file),
            "kubeconfig": str(cluster.kubeconfig),
        }
        print(json.dumps(told), flush=True)
        await asyncio.Event().wait()


@dataclass(frozen=True, slots=True)
class Served:
    url: str
    token: str
    authority: Path
    process: subprocess.Popen[str]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def start(folder: Path, port: int = 0, prefix: Sequence[str] = (), module: str = "tests.contract.served") -> Served:
    """A server process that answers; `prefix` is put before its command, such as `taskset`."""
    command = [*prefix, sys.executable, "-m", module, str(folder), str(port), str(os.getpid())]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"the server ended with {process.wait()} before it answered")
    told = json.loads(line)
    return Served(told["url"], told["token"], Path(told["authority"]), process)


@contextlib.contextmanager
def served(folder: Path, prefix: Sequence[str] = (), module: str = "tests.contract.served") -> Iterator[Served]:
    found = start(folder, prefix=prefix, module=module)
    try:
        yield found
    finally:
        found.kill()


async def until_orphaned(parent: int) -> None:
    """Ends with whoever started us, however that ended."""
    while os.getppid() == parent:  # noqa: ASYNC110 - nobody tells an orphan
        await asyncio.sleep(0.5)


async def main(folder: Path, port: int, parent: int) -> None:
    done, _ = await asyncio.wait(
        [asyncio.create_task(serve(folder, port)), asyncio.create_task(until_orphaned(parent))],
        return_when=asyncio.FIRST_COMPLETED,
    )
    for task in done:
        task.result()


def run(arguments: Sequence[str]) -> None:
    structlog.configure(
        processors=[structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),  # nobody reads our output after the first line
    )
    asyncio.run(main(Path(arguments[0]), int(arguments[1]), int(arguments[2])))


if __name__ == "__main__":
    run(sys.argv[1:])
