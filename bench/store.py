"""The embedded API server under load: creates, a long list, many watchers. Run by `scripts/bench store`.

Server and clients are processes of their own, each on a core of its own where there are two. The bar is for what
one core of server does, so creates are counted per second of the server's own processor time: on a machine that
others use as well, the clock on the wall says something about them. Clients speak HTTPS over kept connections.
"""

import argparse
import asyncio
import json
import os
import ssl
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlsplit

from tests.contract.served import Served, served

CREATES_BAR: Final = 1000.0
LIST_BAR_S: Final = 1.0
NAMESPACE: Final = "bench"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
MAPS: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


def pod(number: int) -> bytes:
    """1.5 kB of JSON, as a controller sends it."""
    made: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{number:06d}",
            "labels": {"app": f"app-{number % 100}", "tier": "backend", "team": f"team-{number % 20}"},
            "annotations": {"example.com/checksum": f"{number:064x}"},
        },
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example.com/team/service:1.2.3",
                    "command": ["/bin/service", "--listen=:8080", "--log-format=json"],
                    "env": [{"name": f"SETTING_{n}", "value": f"value-{n}"} for n in range(6)],
                    "ports": [{"containerPort": 8080, "name": "http"}, {"containerPort": 9090, "name": "metrics"}],
                    "resources": {
                        "requests": {"cpu": "250m", "memory": "256Mi"},
                        "limits": {"cpu": "1", "memory": "512Mi"},
                    },
                    "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5},
                }
            ],
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "terminationGracePeriodSeconds": 30,
        },
    }
    body = json.dumps(made, separators=(",", ":")).encode()
    made["metadata"]["annotations"]["example.com/filler"] = "x" * max(0, 1500 - len(body) - 24)
    return json.dumps(made, separators=(",", ":")).encode()


class Wire:
    """One kept connection, and as little HTTP as will do."""

    def __init__(self, server: Served) -> None:
        place = urlsplit(server.url)
        self._host, self._port = place.hostname, place.port
        self._tls = ssl.create_default_context(cafile=str(server.authority))
        self._head = f"Host: {place.netloc}\r\nAuthorization: Bearer {server.token}\r\nUser-Agent: bench/1\r\n"

    async def open(self) -> "Wire":
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=1 << 26)
        return self

    async def __aenter__(self) -> "Wire":
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        await asyncio.sleep(0)  # the socket is closed in the loop's next turn

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        self.send(method, path, body)
        status, headers = await self.head()
        length = int(headers.get("content-length", "0"))
        return status, await self._reader.readexactly(length)

    def send(self, method: str, path: str, body: bytes = b"") -> None:
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        self._writer.write(f"{method} {path} HTTP/1.1\r\n{self._head}{kind}\r\n".encode() + body)

    async def head(self) -> tuple[int, dict[str, str]]:
        text = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        first, *rest = text.split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in rest if line)
        return int(first.split()[1]), headers

    async def line(self) -> bytes:
        """The next line of a chunked answer; chunks and lines end together here."""
        while True:
            got = await self._reader.readline()
            if not got or got.startswith(b"{"):
                return got

    def close(self) -> None:
        # Without waiting for a farewell: the server may have been killed, and would never answer.
        if not self._writer.is_closing():
            self._writer.transport.abort()


async def creates(server: Served, clients: int, count: int) -> dict[str, float]:
    bodies = [pod(number) for number in range(count)]
    wires = [await Wire(server).open() for _ in range(clients)]
    took: list[float] = []
    numbers = iter(range(count))

    async def work(wire: Wire) -> None:
        for number in numbers:
            begun = time.perf_counter()
            status, answer = await wire.ask("POST", PODS, bodies[number])
            took.append(time.perf_counter() - begun)
            assert status == 201, answer[:300]

    begun, spent = time.perf_counter(), cpu_s(server)
    await asyncio.gather(*(work(wire) for wire in wires))
    lasted, spent = time.perf_counter() - begun, cpu_s(server) - spent
    for wire in wires:
        wire.close()
    return {
        "creates_per_s": round(count / lasted, 1),
        "creates_per_cpu_s": round(count / spent, 1),
        "create_p50_ms": round(statistics.median(took) * 1000, 2),
        "create_p99_ms": round(statistics.quantiles(took, n=100)[98] * 1000, 2),
        "bytes_per_pod": len(bodies[0]),
    }


async def lists(server: Served, count: int) -> dict[str, float]:
    wire = await Wire(server).open()
    whole: list[float] = []
    body = b""
    for _ in range(5):
        begun = time.perf_counter()
        status, body = await wire.ask("GET", PODS)
        whole.append(time.perf_counter() - begun)
        assert status == 200
    assert len(json.loads(body)["items"]) == count
    selected: list[float] = []
    for _ in range(3):
        begun = time.perf_counter()
        await wire.ask("GET", f"{PODS}?labelSelector=app%3Dapp-7")
        selected.append(time.perf_counter() - begun)
    wire.close()
    return {
        "list_s": round(statistics.median(whole), 3),
        "list_mb": round(len(body) / 1e6, 1),
        "list_by_label_s": round(statistics.median(selected), 3),
    }


async def watchers(server: Served, count: int, writes: int) -> dict[str, float]:
    begun = time.perf_counter()
    wires = []
    for number in range(0, count, 50):
        wires += await asyncio.gather(*(Wire(server).open() for _ in range(min(50, count - number))))
    for wire in wires:
        wire.send("GET", f"{MAPS}?watch=true&timeoutSeconds=600&resourceVersion=0")
    for wire in wires:
        status, _ = await wire.head()
        assert status == 200
    opened_s = time.perf_counter() - begun
    writer = await Wire(server).open()

    async def follow(wire: Wire) -> None:
        for _ in range(writes):
            assert b'"ADDED"' in await wire.line()

    followers = [asyncio.create_task(follow(wire)) for wire in wires]
    begun = time.perf_counter()
    for number in range(writes):
        body = json.dumps({"metadata": {"name": f"map-{number}"}, "data": {"a": "b"}}).encode()
        status, answer = await writer.ask("POST", MAPS, body)
        assert status == 201, answer
    await asyncio.gather(*followers)
    lasted = time.perf_counter() - begun
    for wire in [*wires, writer]:
        wire.close()
    return {
        "watchers": count,
        "watchers_opened_s": round(opened_s, 2),
        "events_per_s": round(count * writes / lasted, 0),
        "write_to_all_told_ms": round(lasted / writes * 1000, 1),
    }


async def measure(server: Served, arguments: argparse.Namespace) -> dict[str, float]:
    wire = await Wire(server).open()
    await wire.ask("POST", "/api/v1/namespaces", json.dumps({"metadata": {"name": NAMESPACE}}).encode())
    account = json.dumps({"metadata": {"name": "default"}}).encode()
    await wire.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
    wire.close()
    found = await creates(server, arguments.clients, arguments.pods)
    found |= await lists(server, arguments.pods)
    found |= await watchers(server, arguments.watchers, arguments.writes)
    return found


def cpu_s(server: Served) -> float:
    """Processor time the server has taken so far."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--watchers", type=int, default=1000)
    parser.add_argument("--writes", type=int, default=50)
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    with (
        tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder,
        served(Path(folder), ["taskset", "-c", str(cores[0])]) as server,
    ):
        if len(cores) > 1:
            os.sched_setaffinity(0, {cores[1]})
        found = asyncio.run(measure(server, arguments))
        found["server_mb"] = memory_mb(server.process.pid)
    print(f"creates   {found['creates_per_cpu_s']:.0f} a second of one core (bar: {CREATES_BAR:.0f})")
    print(f"          of {found['bytes_per_pod']} bytes each from {arguments.clients} clients over HTTPS")
    print(f"          {found['creates_per_s']:.0f}/s here and now, p50 {found['create_p50_ms']} ms,", end=" ")
    print(f"p99 {found['create_p99_ms']} ms")
    print(f"list      {arguments.pods} pods, {found['list_mb']} MB in {found['list_s']} s (bar: {LIST_BAR_S} s)")
    print(f"          by label in {found['list_by_label_s']} s")
    print(f"watchers  {found['watchers']:.0f}: {found['events_per_s']:.0f} events/s, all told of a write", end=" ")
    print(f"after {found['write_to_all_told_ms']} ms; the server holds {found['server_mb']} MB")
    passed = found["creates_per_cpu_s"] >= CREATES_BAR and found["list_s"] < LIST_BAR_S
    print(json.dumps({"bench": "store", "passed": passed, **found}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
