"""Watch torture: objects churned on a real server while the watch is cut, compacted and the server restarted.

The short form is tests/kube/test_watch_torture.py. Judged from a fresh list by another client, and from the
chain of deltas a subscriber was handed: each must start from exactly what the one before left.
"""

import asyncio
import random
import signal
import sys
from dataclasses import dataclass, field
from itertools import cycle

import click

from fairlead.cluster.client import Client
from fairlead.cluster.errors import AlreadyExists, Conflict, NotFound, Temporary
from fairlead.cluster.mirror import Mirror, Subscription
from fairlead.model.kinds import CONFIG_MAPS, ConfigMap
from fairlead.testing.cutter import Cutter
from tests.kube.clients import client, mirror, port_of
from tests.rigs.kube.build import ensure_built
from tests.rigs.kube.servers import Rig

NAMESPACE = "torture"


@dataclass
class Ledger:
    """What a subscriber was told, checked as it is told."""

    held: dict[str, ConfigMap] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    told: int = 0

    async def follow(self, subscription: Subscription[ConfigMap], rng: random.Random) -> None:
        while True:
            await subscription.wait()
            self.take(subscription)
            # Now quick, now slow: a reader's pace must not matter.
            await asyncio.sleep(rng.choice((0.0, 0.0, 0.01, 0.3)))

    def take(self, subscription: Subscription[ConfigMap]) -> None:
        for delta in subscription.drain():
            self.told += 1
            held = self.held.pop(delta.key, None)
            if held is not delta.old:
                self.wrong.append(f"{delta.key}: told a change from {_said(delta.old)}, but held {_said(held)}")
            if delta.old is not None and delta.new is not None and _version(delta.new) <= _version(delta.old):
                self.wrong.append(f"{delta.key}: went back from {_said(delta.old)} to {_said(delta.new)}")
            if delta.new is not None:
                self.held[delta.key] = delta.new


async def churn(api: Client, rng: random.Random, names: list[str], stop: asyncio.Event) -> int:
    """Create, change and delete at random until told to stop; a restarting server is waited for."""
    writes = 0
    while not stop.is_set():
        name = rng.choice(names)
        try:
            match rng.random():
                case draw if draw < 0.25:
                    await api.delete(CONFIG_MAPS, name, NAMESPACE)
                case draw if draw < 0.35:
                    body = {"metadata": {"name": name}, "data": {"n": str(writes)}}
                    await api.apply(CONFIG_MAPS, name, {**KIND, **body}, NAMESPACE)
                case _:
                    await api.patch(CONFIG_MAPS, name, {"data": {"n": str(writes)}}, NAMESPACE)
            writes += 1
        except NotFound:
            await create(api, name)
        except Conflict:
            continue
        except Temporary:
            await asyncio.sleep(0.2)
    return writes


KIND = {"apiVersion": "v1", "kind": "ConfigMap"}


async def create(api: Client, name: str) -> None:
    try:
        await api.create(CONFIG_MAPS, {**KIND, "metadata": {"name": name}, "data": {"n": "0"}}, NAMESPACE)
    except AlreadyExists:
        return  # another churner was quicker
    except Temporary:
        await asyncio.sleep(0.2)


async def torture(rig: Rig, *, objects: int, rounds: int, stream_lists: bool, seed: int) -> list[str]:
    """Everything that was found wrong; empty when the mirror held."""
    rng = random.Random(seed)
    names = [f"thing-{n:05}" for n in range(objects)]
    async with (
        Cutter("127.0.0.1", port_of(rig)) as cutter,
        client(rig, timeout_s=10) as writer,
        client(rig, through_port=cutter.port) as reader,
    ):
        await fill(writer, names)
        seen, metrics = mirror(reader, CONFIG_MAPS, NAMESPACE, stream_lists=stream_lists)
        ledger, stop = Ledger(), asyncio.Event()
        subscription = seen.subscribe()
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(seen.run())
            reading = tasks.create_task(ledger.follow(subscription, rng))
            await asyncio.wait_for(seen.wait_synced(), 60)
            churners = [tasks.create_task(churn(writer, random.Random(seed + n), names, stop)) for n in range(4)]
            for _, trouble in zip(range(rounds), cycle(("cut", "cut", "compact", "kill", "restart")), strict=False):
                await asyncio.sleep(rng.uniform(0.5, 2.0))
                await trouble_it(trouble, rig, cutter)
            await asyncio.sleep(2.0)
            stop.set()
            writes = sum([await churner for churner in churners])
            wrong = await settled(writer, seen)
            reading.cancel()
            following.cancel()
        ledger.take(subscription)
        wrong += ledger.wrong
        wrong += difference("the subscriber's view", ledger.held, {item.metadata.key: item for item in seen})
        lists = {
            way: int(metrics.mirror_lists.labels(CONFIG_MAPS.name, way)._value.get()) for way in ("stream", "pages")
        }
        print(f"{writes} writes, {ledger.told} deltas, {cutter.accepted} connections, lists {lists}", flush=True)
        if lists["stream" if stream_lists else "pages"] < 2:
            wrong.append(f"the compaction never forced a new list: {lists}")
        return wrong


async def fill(api: Client, names: list[str]) -> None:
    for start in range(0, len(names), 64):
        await asyncio.gather(*(create(api, name) for name in names[start : start + 64]))
    there = len(await api.list(CONFIG_MAPS, NAMESPACE))
    assert there >= len(names), f"only {there} of {len(names)} objects could be made"


async def trouble_it(trouble: str, rig: Rig, cutter: Cutter) -> None:
    print(f"  {trouble}", flush=True)
    if trouble == "cut":
        cutter.cut()
        return
    work = {
        # Cut as well, so that the watch must resume from a version the server no longer has.
        "compact": lambda: rig.compact(restart=True),
        "kill": lambda: rig.restart_apiserver(signal.SIGKILL),
        "restart": lambda: rig.restart_apiserver(signal.SIGTERM),
    }[trouble]
    await asyncio.to_thread(work)


async def settled(api: Client, seen: Mirror[ConfigMap], deadline_s: float = 60.0) -> list[str]:
    """Wait until the mirror equals a fresh list; what still differs at the deadline is wrong."""
    fresh = {item.metadata.key: item for item in await api.list(CONFIG_MAPS, NAMESPACE)}
    wrong: list[str] = []
    for _ in range(int(deadline_s / 0.25)):
        wrong = difference("the mirror", {item.metadata.key: item for item in seen}, fresh)
        if not wrong:
            return []
        await asyncio.sleep(0.25)
    return wrong


def difference(whose: str, held: dict[str, ConfigMap], real: dict[str, ConfigMap]) -> list[str]:
    return [
        f"{whose} of {key} is {_said(held.get(key))}, the server has {_said(real.get(key))}"
        for key in sorted(held.keys() | real.keys())
        if held.get(key) != real.get(key)
    ]


def _version(thing: ConfigMap) -> int:
    return int(thing.metadata.resource_version)


def _said(thing: ConfigMap | None) -> str:
    return "nothing" if thing is None else f"version {thing.metadata.resource_version}"


@click.command()
@click.option("--objects", default=5000)
@click.option("--rounds", default=60, help="Troubles per run.")
@click.option("--seed", default=1)
def main(objects: int, rounds: int, seed: int) -> None:
    failed = 0
    for stream_lists in (True, False):
        with Rig(ensure_built()) as rig:
            rig.start(watch_list=stream_lists)
            rig.create_namespace(NAMESPACE)
            print(f"streamed lists: {stream_lists}", flush=True)
            wrong = asyncio.run(torture(rig, objects=objects, rounds=rounds, stream_lists=stream_lists, seed=seed))
        for line in wrong[:20]:
            print(f"  wrong: {line}")
        failed += bool(wrong)
    print(f"{2 - failed} passed, {failed} failed")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
