"""The Python base: how long an install and a switch take, what the way through it costs, what 200 cycles leave behind.

Run by `scripts/bench base`. Through the base and straight to the module's own socket is measured in turns, in one run.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

import aiohttp
import psutil

from fairlead.modules import arklet
from fairlead.modules.spec import Module
from tests.modules.bases import BaseProcess, hello, running_base

ROUND_S = 1.0


async def install_ms(base: BaseProcess, module: Module) -> float:
    started_s = time.perf_counter()
    answer = await base.client.install(base.address, module)
    assert answer.code == arklet.SUCCESS, answer
    return 1000 * (time.perf_counter() - started_s)


async def switch_ms(base: BaseProcess, module: Module) -> float:
    started_s = time.perf_counter()
    body = {"bizName": module.name, "bizVersion": module.version}
    assert (await base.client.call(base.address, arklet.SWITCH, body)).code == arklet.SUCCESS
    return 1000 * (time.perf_counter() - started_s)


async def requests_per_s(session: aiohttp.ClientSession, url: str, seconds: float) -> float:
    count, end_s = 0, time.perf_counter() + seconds

    async def ask() -> None:
        nonlocal count
        while time.perf_counter() < end_s:
            async with session.get(url) as answer:
                assert answer.status == 200
                await answer.read()
            count += 1

    await asyncio.gather(*(ask() for _ in range(8)))
    return count / seconds


def rss(base: BaseProcess) -> int:
    process = psutil.Process(base.process.pid)
    return sum(int(each.memory_info().rss) for each in (process, *process.children(recursive=True)))


def socket_of(base: BaseProcess) -> str:
    """The module's own socket, by the base's descriptor of its folder."""
    folder = next(Path(f"/proc/{base.process.pid}/fd").glob("*/1.sock"), None)
    found = folder or next(Path(f"/proc/{base.process.pid}/fd").glob("*/*.sock"))
    return str(found)


async def measure(cycles: int, rounds: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one, two = (Module("hello", version, hello(folder, version)) for version in ("1.0.0", "2.0.0"))
        async with running_base(folder / "data") as base:
            await install_ms(base, one)
            await base.client.uninstall(base.address, one)
            before, times = rss(base), []
            for _ in range(cycles):
                times.append(await install_ms(base, one))
                await base.client.uninstall(base.address, one)
            grown = 100 * (rss(base) - before) / before
            await install_ms(base, one)
            await install_ms(base, two)
            switches = [await switch_ms(base, each) for _ in range(10) for each in (one, two)]
            await base.client.uninstall(base.address, one)
            through, direct = [], []
            connector = aiohttp.UnixConnector(socket_of(base))
            async with aiohttp.ClientSession() as front, aiohttp.ClientSession(connector=connector) as straight:
                for _ in range(rounds):
                    url = f"http://{base.host}:{base.web_port}/hello/"
                    through.append(await requests_per_s(front, url, ROUND_S))
                    direct.append(await requests_per_s(straight, "http://module/", ROUND_S))
    return {
        "install_ms": round(statistics.median(times), 1),
        "switch_ms": round(statistics.median(switches), 2),
        "rps_through_base": round(statistics.median(through)),
        "rps_direct": round(statistics.median(direct)),
        "rss_after_200_cycles_pct": round(grown, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench base")
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    found = asyncio.run(measure(given.cycles, given.rounds))
    print(f"{given.cycles} installs and uninstalls; {given.rounds} rounds of requests, 8 at a time")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
