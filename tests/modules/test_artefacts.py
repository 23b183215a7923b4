"""Artefacts from anybody: nothing is written outside the cache, and nothing of them is run."""

import contextlib
import io
import os
import stat
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.modules.base.artefact import BadArtefact, Limits, unpack

MANIFEST = "Ark-Biz-Name: m\nArk-Biz-Version: 1\nStart-Class: m:main\n"


def archive(path: Path, *entries: tuple[str | zipfile.ZipInfo, str | bytes], manifest: str = MANIFEST) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("META-INF/MANIFEST.MF", manifest)
        for name, content in entries:
            zipped.writestr(name, content)
    return path


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (("../out.py", ""), "outside its folder"),
        (("/etc/out.py", ""), "outside its folder"),
        (("a/../../out.py", ""), "outside its folder"),
        (("a\\..\\out.py", ""), "outside its folder"),
        ((link("lib"), "/etc"), "a link or a special file"),
        (("bomb", b"\0" * 3_000_000), "more than 1000000 bytes"),
    ],
    ids=["up", "absolute", "up again", "backslash", "link", "bomb"],
)
def test_k72_hostile_archives_are_refused_and_leave_nothing(
    tmp_path: Path, entry: tuple[str | zipfile.ZipInfo, str | bytes], words: str
) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(BadArtefact, match=words):
        unpack(archive(tmp_path / "a.zip", entry), cache, Limits(unpacked_bytes=1_000_000))
    assert everything(cache) == set()
    assert everything(tmp_path) == {"a.zip", "cache"}


def test_too_many_entries_are_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.zip", *((f"f{n}", "") for n in range(20)))
    with pytest.raises(BadArtefact, match="more than 10 entries"):
        unpack(path, tmp_path / "cache", Limits(entries=10))


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ("Start-Class: m:main\n", "Biz Name must not be empty"),
        ("Ark-Biz-Name: ../m\nArk-Biz-Version: 1\nStart-Class: m:main\n", "no valid name and version"),
        ("Ark-Biz-Name: m\nArk-Biz-Version: 1\nStart-Class: m;x:main\n", "Start-Class must be"),
        (f"{MANIFEST}web-context-path: /a/../b\n", "web-context-path"),
    ],
)
def test_manifests_that_make_no_sense_are_refused(tmp_path: Path, manifest: str, words: str) -> None:
    with pytest.raises(BadArtefact, match=words):
        unpack(archive(tmp_path / "a.zip", manifest=manifest), tmp_path / "cache", Limits())


def test_a_wheel_is_a_module_by_its_entry_points(tmp_path: Path) -> None:
    path = tmp_path / "shop-2.1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as zipped:
        zipped.writestr("shop-2.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: shop\nVersion: 2.1\n")
        points = "[fairlead.module]\nStart-Class = shop:app\nweb-context-path = /shop\n"
        zipped.writestr("shop-2.1.dist-info/entry_points.txt", points)
        zipped.writestr("shop.py", "app = None\n")
    manifest, folder = unpack(path, tmp_path / "cache", Limits())
    assert (manifest.key, manifest.entry, manifest.context_path) == ("shop:2.1", "shop:app", "/shop")
    assert (folder / "shop.py").is_file()
    assert unpack(path, tmp_path / "cache", Limits()) == (manifest, folder)


def whole() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("META-INF/MANIFEST.MF", MANIFEST)
        zipped.writestr("m.py", "def main(context): pass\n" * 50)
    return buffer.getvalue()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(whole()) - 1), st.integers(0, 255)), max_size=8), st.integers(0, 400))
def test_damaged_archives_are_refused_or_read_and_stay_in_the_cache(
    tmp_path: Path, damage: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(whole())
    for at, value in damage:
        data[at] = value
    path, cache = tmp_path / "a.zip", tmp_path / "cache"
    path.write_bytes(bytes(data[: len(data) - cut]) if cut < 100 else bytes(data))
    with contextlib.suppress(BadArtefact):
        _, folder = unpack(path, cache, Limits(unpacked_bytes=1_000_000))
        assert folder.is_relative_to(cache)
    assert sorted(os.listdir(tmp_path)) == ["a.zip", *(["cache"] if cache.exists() else [])]
