"""Python bases as real processes, and modules to install on them."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from fairlead.modules.base.pack import pack
from fairlead.modules.client import ArkletClient, connections
from tests.rigs.kube.servers import free_ports
from tests.rigs.servers import Server

EXAMPLE = Path(__file__).parents[2] / "src" / "fairlead" / "modules" / "example"


@dataclass(slots=True)
class BaseProcess:
    process: asyncio.subprocess.Process
    host: str
    port: int
    web_port: int
    client: ArkletClient
    session: aiohttp.ClientSession

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(f"http://{self.host}:{self.web_port}{path}") as answer:
            return answer.status, await answer.text()

    async def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), 30)


@asynccontextmanager
async def running_base(data: Path, *arguments: str, host: str = "127.0.0.1", **env: str) -> AsyncIterator[BaseProcess]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "fairlead.modules.base",
        *("--host", host, "--port", "0", "--web-port", "0", "--data", str(data), "--drain-seconds", "5"),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **env},
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            line = (await process.stdout.readline()).decode()
        ports = re.fullmatch(r"base: arklet on \S+:(\d+), modules on \S+:(\d+)\n", line)
        assert ports is not None, line
        async with connections() as calls, aiohttp.ClientSession() as session:
            yield BaseProcess(process, host, int(ports[1]), int(ports[2]), ArkletClient(calls), session)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def hello(folder: Path, version: str = "1.0.0", *, name: str = "hello") -> str:
    """The example, packed; its URL."""
    target = pack(
        EXAMPLE,
        folder / f"{name}-{version}.zip",
        name=name,
        version=version,
        entry="hello:app",
        context_path=f"/{name}",
    )
    return f"file://{target}"


def module(folder: Path, name: str, source: str, *, version: str = "1.0.0", entry: str = "", context: str = "") -> str:
    """A module of one file; its URL."""
    home = folder / f"{name}-{version}"
    home.mkdir()
    (home / f"{name}.py").write_text(source)
    target = pack(
        home,
        folder / f"{name}-{version}.zip",
        name=name,
        version=version,
        entry=entry or f"{name}:main",
        context_path=context,
    )
    return f"file://{target}"


class PythonBase(Server):
    """A Python base for a whole file of tests."""

    name = "python base"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port, self.web_port = free_ports(2)
        self.address = ("127.0.0.1", self.port)
        self.url = f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        ports = [f"--port={self.port}", f"--web-port={self.web_port}"]
        return [
            sys.executable,
            "-m",
            "fairlead.modules.base",
            *ports,
            f"--data={self.folder}/data",
            "--drain-seconds=5",
        ]

    def is_ready(self) -> bool:
        return "base: arklet on" in self.log.read_text(errors="replace")
