"""kill -9 in a storm of writes: `scripts/soak store`. The short form is tests/contract/test_durability.py.

Each round starts the server on the same folder, writes as fast as it takes them, ends it without warning at a moment
drawn by lot, starts it again and asks: is every write there that was acknowledged, and does the watch that was cut
go on where it stopped (or say 410, and a new list agrees)?
"""

import asyncio
import json
import random
import ssl
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import click

from bench.store import Wire
from tests.contract.served import Served, start

NAMESPACE = "default"
MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
BROKEN = (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.LimitOverrunError)


@dataclass
class Ledger:
    """What the server has acknowledged, and what was under way when it was ended."""

    held: dict[str, int | None] = field(default_factory=dict)
    under_way: dict[str, int | None] = field(default_factory=dict)
    acknowledged: int = 0

    def wrong(self, found: dict[str, int]) -> list[str]:
        problems = []
        for key in self.held.keys() | self.under_way.keys():
            allowed = [self.held.get(key)]
            if key in self.under_way:
                allowed.append(self.under_way[key])
            if found.get(key) not in allowed:
                problems.append(f"{key}: found {found.get(key)}, acknowledged {allowed[0]}, under way {allowed[1:]}")
        problems += [f"{key}: nobody wrote it" for key in found.keys() - self.held.keys() - self.under_way.keys()]
        return problems

    def settle(self, found: dict[str, int]) -> None:
        """What was under way has happened or not; from now on it is known."""
        for key in self.under_way:
            self.held[key] = found.get(key)
        self.under_way.clear()


@dataclass
class Follower:
    """A watch that keeps a copy, and the version it has seen last."""

    version: str = "0"
    held: dict[str, int] = field(default_factory=dict)
    expired: int = 0

    async def follow(self, server: Served) -> None:
        async with Wire(server) as wire:
            wire.send("GET", f"{MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={self.version}")
            try:
                status, _ = await wire.head()
                assert status == 200, status
                while line := await wire.line():
                    self.take(json.loads(line))
            except BROKEN:
                return
            except json.JSONDecodeError:
                return  # cut inside an event, which therefore has not been told

    def take(self, event: dict[str, dict[str, dict[str, str]]]) -> None:
        thing = event["object"]
        kind: object = event["type"]
        if kind == "ERROR":
            self.expired += 1
            raise ConnectionResetError(str(thing))
        self.version = thing["metadata"]["resourceVersion"]
        name = thing["metadata"]["name"]
        if kind == "DELETED":
            self.held.pop(name, None)
        elif kind != "BOOKMARK":
            self.held[name] = int(thing["data"]["n"])


async def write(server: Served, ledger: Ledger, writer: int, rng: random.Random, left: list[int]) -> None:
    async with Wire(server) as wire:
        try:
            while left[0] > 0:
                left[0] -= 1
                await _change(wire, ledger, f"w{writer}-{rng.randrange(20)}", rng)
        except BROKEN:
            return


async def _change(wire: Wire, ledger: Ledger, key: str, rng: random.Random) -> None:
    now = ledger.held.get(key)
    body = json.dumps({"metadata": {"name": key}, "data": {"n": str((now or 0) + 1)}}).encode()
    if now is not None and rng.random() < 0.2:
        ledger.under_way[key] = None
        status, _ = await wire.ask("DELETE", f"{MAPS}/{key}")
    elif now is None:
        ledger.under_way[key] = 1
        status, _ = await wire.ask("POST", MAPS, body)
    else:
        ledger.under_way[key] = now + 1
        status, _ = await wire.ask("PUT", f"{MAPS}/{key}", body)
    assert status in (200, 201), status
    ledger.held[key] = ledger.under_way.pop(key)
    ledger.acknowledged += 1


async def content(server: Served) -> tuple[dict[str, int], str]:
    async with Wire(server) as wire:
        status, body = await wire.ask("GET", MAPS)
    assert status == 200
    listed = json.loads(body)
    found = {each["metadata"]["name"]: int(each["data"]["n"]) for each in listed["items"] if "n" in each["data"]}
    return found, listed["metadata"]["resourceVersion"]


async def storm(
    folder: Path,
    rounds: int,
    writes: int,
    rng: random.Random,
    writers: int = 16,
    module: str = "tests.contract.served",
) -> list[str]:
    """What went wrong in so many rounds; nothing, if all is well. `module` is the server that is ended."""
    problems: list[str] = []
    ledger, follower = Ledger(), Follower()
    for number in range(1, rounds + 1):
        server = start(folder, module=module)
        left = [writes]
        before = ledger.acknowledged
        following = asyncio.create_task(follower.follow(server))
        tasks = [asyncio.create_task(write(server, ledger, each, rng, left)) for each in range(writers)]
        kill_after = rng.randrange(writes // 10, writes)
        while ledger.acknowledged - before < kill_after and left[0] > 0:  # noqa: ASYNC110 - the moment is drawn by lot
            await asyncio.sleep(0.005)
        server.kill()
        await asyncio.gather(*tasks, following)
        server = start(folder)
        found, version = await content(server)
        problems += [f"round {number}: {each}" for each in ledger.wrong(found)]
        ledger.settle(found)
        problems += await _resumed(server, follower, found, version, number)
        server.kill()
        click.echo(f"round {number}: {ledger.acknowledged - before} acknowledged, {len(problems)} problems so far")
    return problems


async def _resumed(server: Served, follower: Follower, found: dict[str, int], version: str, number: int) -> list[str]:
    """The watch that was cut goes on to the same content, or is told 410 and lists again."""
    expired = follower.expired
    task = asyncio.create_task(follower.follow(server))
    try:
        async with asyncio.timeout(120):
            while follower.held != found and follower.expired == expired and not task.done():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        return [f"round {number}: the watch resumed at {follower.version} and holds something else than the list"]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    if follower.held != found:
        follower.held, follower.version = dict(found), version
    return []


@click.command()
@click.option("--rounds", default=20)
@click.option("--writes", default=5000)
@click.option("--seed", default=1)
def main(rounds: int, writes: int, seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="fairlead-soak-") as folder:
        problems = asyncio.run(storm(Path(folder), rounds, writes, random.Random(seed)))
    for problem in problems:
        click.echo(problem)
    failed = len({problem.partition(":")[0] for problem in problems})
    click.echo(f"{rounds - failed} passed, {failed} failed")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
