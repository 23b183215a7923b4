"""The store below the API server: revisions, history, durability, one owner."""

import asyncio
import sqlite3
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.apiserver.storage.store import Compacted, Locked, NamespaceFull, StaleWrite, Store, Unusable, Unwritable


def no_fields(kind: str, thing: Mapping[str, Any]) -> Mapping[str, str]:
    return {}


def thing(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": {"app": name}}, "spec": spec}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


async def test_every_write_gets_the_next_revision_and_carries_it(folder: Path) -> None:
    store = Store(folder, no_fields)
    first = store.put("/pods", "a/x", thing("x"), None)
    second = store.put("/nodes", "n", thing("n"), None)
    assert second.revision == first.revision + 1
    assert msgspec.json.decode(second.body)["metadata"]["resourceVersion"] == str(second.revision)
    await store.settled()
    store.close()


async def test_a_write_based_on_an_older_version_is_refused_and_changes_nothing(folder: Path) -> None:
    store = Store(folder, no_fields)
    first = store.put("/pods", "a/x", thing("x"), None)
    second = store.put("/pods", "a/x", thing("x", n=2), first.revision)
    for stale in (None, first.revision, second.revision + 1):
        with pytest.raises(StaleWrite):
            store.put("/pods", "a/x", thing("x", n=3), stale)
    with pytest.raises(StaleWrite):
        store.delete("/pods", "a/x", thing("x"), first.revision)
    assert store.get("/pods", "a/x") == second
    await store.settled()
    store.close()


async def test_nobody_is_told_of_a_change_before_it_is_on_disk(folder: Path) -> None:
    store = Store(folder, no_fields)
    waiting = asyncio.create_task(store.of_kind("/pods").changed())
    await asyncio.sleep(0)
    store.put("/pods", "a/x", thing("x"), None)
    assert store.of_kind("/pods").since(0) == []
    await store.settled()
    assert [change.type for change in store.of_kind("/pods").since(0)] == ["ADDED"]
    await asyncio.wait_for(waiting, 1)
    store.close()


async def test_what_watchers_may_be_marked_at_is_what_is_committed(folder: Path) -> None:
    store = Store(folder, no_fields)
    before = store.committed
    written = store.put("/pods", "a/x", thing("x"), None)
    assert (store.revision, store.committed) == (written.revision, before)
    await store.settled()
    assert store.committed == written.revision
    store.close()
    again = Store(folder, no_fields)
    assert again.committed == written.revision
    again.close()


async def test_what_was_written_is_there_after_a_restart_with_its_history(folder: Path) -> None:
    store = Store(folder, no_fields)
    kept = store.put("/pods", "a/kept", thing("kept"), None)
    gone = store.put("/pods", "a/gone", thing("gone"), None)
    await store.settled()
    store.delete("/pods", "a/gone", thing("gone"), gone.revision)
    await store.settled()
    revision = store.revision
    store.close()
    again = Store(folder, no_fields)
    assert again.revision == revision
    assert dict(again.items("/pods")) == {"a/kept": kept}
    assert [(change.type, change.key) for change in again.of_kind("/pods").since(kept.revision)] == [
        ("ADDED", "a/gone"),
        ("DELETED", "a/gone"),
    ]
    again.close()


async def test_an_earlier_version_of_the_whole_can_be_asked_for_until_it_is_compacted(folder: Path) -> None:
    store = Store(folder, no_fields)
    first = store.put("/pods", "a/x", thing("x", n=1), None)
    store.put("/pods", "a/x", thing("x", n=2), first.revision)
    store.put("/pods", "a/y", thing("y"), None)
    await store.settled()
    assert store.of_kind("/pods").at(first.revision) == {"a/x": first}
    store.compact("/pods")
    with pytest.raises(Compacted, match="too old resource version"):
        store.of_kind("/pods").at(first.revision)
    store.close()
    again = Store(folder, no_fields)
    with pytest.raises(Compacted):
        again.of_kind("/pods").since(first.revision)
    assert again.of_kind("/pods").since(again.revision) == []
    again.close()


async def test_history_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "KEPT_CHANGES", 100)
    store = Store(folder, no_fields)
    revision: int | None = None
    for number in range(1000):
        revision = store.put("/pods", "a/x", thing("x", n=number), revision).revision
        await store.settled()
    assert len(store.of_kind("/pods").changes) <= 100
    with pytest.raises(Compacted):
        store.of_kind("/pods").since(1)
    store.close()


async def test_history_of_large_objects_is_bounded_by_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "KEPT_BYTES", 10_000)
    store = Store(folder, no_fields)
    for number in range(100):
        store.put("/pods", f"default/{number}", thing(str(number), text="x" * 1000), None)
        await store.settled()
    kept = list(store.of_kind("/pods").changes)
    assert 5 <= len(kept) <= 10
    with pytest.raises(Compacted):
        store.of_kind("/pods").since(kept[0].revision - 2)
    assert store.of_kind("/pods").since(kept[0].revision) == kept[1:]
    store.close()
    again = Store(folder, no_fields)
    assert [change.revision for change in again.of_kind("/pods").changes] == [change.revision for change in kept]
    assert again.of_kind("/pods").change_bytes == sum(len(change.entry.body) for change in kept)
    again.close()


async def test_a_namespace_holds_a_bounded_number_of_objects_of_a_kind(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "MOST_OBJECTS", 2)
    store = Store(folder, no_fields)
    first = store.put("/pods", "a/x", thing("x"), None)
    store.put("/pods", "a/y", thing("y"), None)
    await store.settled()
    store.close()
    store = Store(folder, no_fields)  # what was there before counts
    with pytest.raises(NamespaceFull, match="namespace a has 2 of them"):
        store.put("/pods", "a/z", thing("z"), None)
    changed = store.put("/pods", "a/x", thing("x", n=2), first.revision)
    store.put("/pods", "b/z", thing("z"), None)
    store.put("/configmaps", "a/z", thing("z"), None)
    for name in "nmo":
        store.put("/nodes", name, thing(name), None)
    store.delete("/pods", "a/x", thing("x"), changed.revision)
    store.put("/pods", "a/z", thing("z"), None)
    await store.settled()
    store.close()


async def test_a_namespace_holds_a_bounded_number_of_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "MOST_BYTES", 1 << 20)
    store = Store(folder, no_fields)
    large = store.put("/configmaps", "a/x", thing("x", text="x" * 700_000), None)
    with pytest.raises(NamespaceFull, match="the objects of namespace a take 1 MiB"):
        store.put("/secrets", "a/y", thing("y", text="x" * 400_000), None)
    with pytest.raises(NamespaceFull):
        store.put("/configmaps", "a/x", thing("x", text="x" * 1_100_000), large.revision)
    store.put("/secrets", "b/y", thing("y", text="x" * 400_000), None)
    for name in "nm":
        store.put("/nodes", name, thing(name, text="x" * 700_000), None)
    store.put("/configmaps", "a/x", thing("x", text="x"), large.revision)
    store.put("/secrets", "a/y", thing("y", text="x" * 400_000), None)
    await store.settled()
    store.close()


async def test_items_come_in_the_order_of_their_keys_and_by_prefix(folder: Path) -> None:
    store = Store(folder, no_fields)
    for key in ("b/a", "a/z", "a-b/m", "a/b"):
        store.put("/pods", key, thing("x"), None)
    await store.settled()
    assert [key for key, _ in store.items("/pods")] == ["a-b/m", "a/b", "a/z", "b/a"]
    assert [key for key, _ in store.items("/pods", "a/")] == ["a/b", "a/z"]
    store.close()


async def test_a_data_folder_has_one_owner(folder: Path) -> None:
    store = Store(folder, no_fields)
    with pytest.raises(Locked, match="is in use by process"):
        Store(folder, no_fields)
    store.close()
    Store(folder, no_fields).close()


class FullDisk:
    """A database whose statements of one kind fail while the disk is full."""

    def __init__(self, database: sqlite3.Connection, verb: str) -> None:
        self._database, self._verb, self.is_full = database, verb, True

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if self.is_full and statement.startswith(self._verb):
            raise sqlite3.OperationalError("database or disk is full")
        return self._database.execute(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


@pytest.mark.parametrize("verb", ["INSERT INTO changes", "COMMIT", "BEGIN"])
async def test_a_full_disk_takes_nothing_loses_nothing_and_is_got_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    store = Store(folder, no_fields)
    kept = store.put("/pods", "a/x", thing("x"), None)
    await store.settled()
    disk = FullDisk(store._database, verb)
    monkeypatch.setattr(store, "_database", disk)

    async def written(write: Callable[..., Any], *arguments: Any) -> None:
        write("/pods", *arguments)
        await store.settled()

    for attempt in (
        written(store.put, "a/x", thing("x", n=2), kept.revision),
        written(store.put, "a/y", thing("y"), None),
        written(store.delete, "a/x", thing("x"), kept.revision),
    ):
        with pytest.raises(Unwritable, match="make room"):
            await attempt
        assert dict(store.items("/pods")) == {"a/x": kept}
        assert store.of_kind("/pods").since(kept.revision) == []
    disk.is_full = False
    new = store.put("/pods", "a/x", thing("x", n=3), kept.revision)
    await store.settled()
    assert store.of_kind("/pods").since(kept.revision)[-1].entry == new
    store.close()
    again = Store(folder, no_fields)
    assert again.get("/pods", "a/x") == new
    again.close()


def test_a_folder_that_cannot_be_used_says_why_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "objects.sqlite").write_text("not a database, " * 100)
    for folder, why in ((tmp_path / "file", "File exists"), (tmp_path / "data", "not a database")):
        with pytest.raises(Unusable, match=rf"{folder.name} .*{why}.*--data"):
            Store(folder, no_fields)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.glob("objects.sqlite*"))}


@pytest.mark.parametrize("was_there", [False, True])
async def test_the_database_is_for_its_owner_alone_also_where_it_was_there_before(
    folder: Path, was_there: bool
) -> None:
    if was_there:
        Store(folder, no_fields).close()
        for path in (folder, *folder.glob("objects.sqlite*")):
            path.chmod(0o755)
        for name in ("objects.sqlite-wal", "objects.sqlite-shm"):
            (folder / name).touch(mode=0o644)
    store = Store(folder, no_fields)
    store.put("/secrets", "a/x", thing("x"), None)
    await store.settled()
    assert modes(folder) == {
        "data": 0o700,
        "objects.sqlite": 0o600,
        "objects.sqlite-wal": 0o600,
        "objects.sqlite-shm": 0o600,
    }
    store.close()


def test_a_folder_that_is_everybodys_stays_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    Store(tmp_path, no_fields).close()
    assert modes(tmp_path) == {tmp_path.name: 0o1777, "objects.sqlite": 0o600}
