"""Heavy work leaves the loop to others: it runs beside it, and no full collection stops everybody meanwhile."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.apiserver import heavy
from fairlead.apiserver.heavy import LIGHT_BYTES, Heavy

MANY = 300_000


@pytest.fixture
def full_collections() -> Iterator[list[str]]:
    seen: list[str] = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "start" and about["generation"] == 2:
            seen.append(threading.current_thread().name)

    # Other tests have left many objects here, or Fairlead's own thresholds: both make full collections rare.
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    gc.freeze()
    gc.collect()
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.fixture
def workers() -> Iterator[Heavy]:
    made = Heavy()
    yield made
    made.close()


def objects() -> list[Any]:
    return [[[]] for _ in range(MANY)]


def test_so_many_objects_are_worth_a_full_collection(full_collections: list[str]) -> None:
    assert objects()
    assert full_collections


async def test_no_full_collection_while_heavy_work_is_done(workers: Heavy, full_collections: list[str]) -> None:
    kept = [await workers.run(LIGHT_BYTES + 1, objects) for _ in range(3)]
    assert objects()  # what the loop makes between two steps of one request counts too
    assert len(kept) == 3
    assert full_collections == []


async def test_full_collections_come_back_once_nobody_asks_to_wait(full_collections: list[str]) -> None:
    usual = gc.get_threshold()
    first, second = Heavy(), Heavy()
    await first.run(LIGHT_BYTES + 1, objects)
    await second.run(LIGHT_BYTES + 1, objects)
    assert gc.get_threshold() != usual
    first.close()
    assert gc.get_threshold() != usual
    second.close()
    assert gc.get_threshold() == usual
    assert objects()
    assert full_collections


async def test_full_collections_come_back_a_while_after_the_last_work(
    workers: Heavy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heavy, "LINGER_S", 0.0)
    usual = gc.get_threshold()
    await workers.run(LIGHT_BYTES + 1, objects)
    assert gc.get_threshold() != usual
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(0.0, over.set)
    await over.wait()
    assert gc.get_threshold() == usual


async def test_full_collections_do_not_wait_for_ever(
    workers: Heavy, full_collections: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heavy, "MOST_WAIT_S", -1.0)
    await workers.run(LIGHT_BYTES + 1, objects)
    assert full_collections == []
    await workers.run(LIGHT_BYTES + 1, objects)
    assert len(full_collections) == 1


async def test_light_work_changes_nothing(workers: Heavy) -> None:
    usual = gc.get_threshold()
    assert await workers.run(LIGHT_BYTES, lambda: gc.get_threshold()) == usual
