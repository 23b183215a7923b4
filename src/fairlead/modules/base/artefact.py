"""Artefacts of modules: fetched within bounds, checked, unpacked into the cache, their manifest read.

An artefact is a zip (or wheel) from somewhere we do not trust: nothing of it is written outside its own folder, and
nothing of it is run here. Called by `base.manager`.
"""

import asyncio
import hashlib
import os
import re
import shutil
import stat
import zipfile
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import dataclass
from email import message_from_bytes
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

import aiohttp

CHUNK: Final = 1 << 16
NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
MOST_MANIFEST: Final = 65536


class BadArtefact(Exception):
    """The artefact, or its address, is at fault; the message says how."""


@dataclass(frozen=True, slots=True)
class Limits:
    download_bytes: int = 128 << 20
    unpacked_bytes: int = 512 << 20
    entries: int = 20_000
    fetch_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Manifest:
    name: str
    version: str
    entry: str
    """`package.module:object`."""
    context_path: str = ""
    """Where a web module is mounted; nothing for a module without a web interface."""
    interface: str = ""
    """`asgi` or `wsgi`, where it is not to be found out by looking."""
    priority: int = 100
    isolation: str = "process"
    """`process`, or `inproc`: in one process with others."""
    denied: tuple[str, ...] = ()
    """Packages of the base that the module does not see."""

    @property
    def key(self) -> str:
        return f"{self.name}:{self.version}"


async def fetch(url: str, target: Path, session: aiohttp.ClientSession, limits: Limits) -> None:
    """Download or copy; a fragment `#sha256=…` is checked."""
    try:
        parts = urlsplit(url)
    except ValueError as problem:
        raise BadArtefact(f"{url[:200]}: {problem}") from None
    match parts.scheme:
        case "file":
            await asyncio.to_thread(_copy, Path(unquote(parts.path)), target, limits)
        case "http" | "https":
            await _download(url, target, session, limits)
        case "":
            raise BadArtefact(f"no protocol: {url[:200]}")
        case other:
            raise BadArtefact(f"unknown protocol: {other[:20]}")
    expected = parts.fragment.removeprefix("sha256=") if parts.fragment.startswith("sha256=") else ""
    if expected and expected.lower() != await asyncio.to_thread(digest, target):
        raise BadArtefact("the artefact's sha256 is not the one its URL names")


def _copy(source: Path, target: Path, limits: Limits) -> None:
    try:
        if not source.is_file():
            raise BadArtefact(f"{source} (No such file or directory)")
        if source.stat().st_size > limits.download_bytes:
            raise BadArtefact(f"{source} is larger than {limits.download_bytes} bytes")
        shutil.copyfile(source, target)
    except OSError as problem:
        raise BadArtefact(f"{source}: {problem.strerror}") from None


async def _download(url: str, target: Path, session: aiohttp.ClientSession, limits: Limits) -> None:
    timeout = aiohttp.ClientTimeout(total=limits.fetch_s)
    try:
        async with session.get(url.partition("#")[0], timeout=timeout) as answer:
            if answer.status != 200:
                raise BadArtefact(f"{url[:200]}: HTTP status {answer.status}")
            size = 0
            with target.open("wb") as out:
                async for chunk in answer.content.iter_chunked(CHUNK):
                    size += len(chunk)
                    if size > limits.download_bytes:
                        raise BadArtefact(f"{url[:200]} is larger than {limits.download_bytes} bytes")
                    out.write(chunk)
    except (aiohttp.ClientError, TimeoutError, ValueError) as problem:
        raise BadArtefact(f"{url[:200]}: {problem or 'timed out'}") from None


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unpack(archive: Path, cache: Path, limits: Limits) -> tuple[Manifest, Path]:
    """Into `cache/name/version/sha256`, whole or not at all."""
    scratch = cache / f".unpack-{digest(archive)[:16]}-{os.urandom(4).hex()}"
    try:
        scratch.mkdir(parents=True)
        _extract(archive, scratch, limits)
        manifest = read_manifest(scratch)
        folder = cache / manifest.name / manifest.version / digest(archive)[:32]
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                scratch.rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
        return manifest, folder
    except OSError as problem:
        raise BadArtefact(f"the artefact cannot be unpacked: {problem.strerror or problem}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _extract(archive: Path, folder: Path, limits: Limits) -> None:
    left = limits.unpacked_bytes
    try:
        with zipfile.ZipFile(archive) as zipped:
            infos = zipped.infolist()
            if len(infos) > limits.entries:
                raise BadArtefact(f"the artefact has more than {limits.entries} entries")
            for info in infos:
                target = folder / _inside(info)
                if info.is_dir():
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                # Sizes in the archive may lie: what counts is what comes out.
                with zipped.open(info) as source, target.open("xb") as out:
                    while chunk := source.read(CHUNK):
                        left -= len(chunk)
                        if left < 0:
                            raise BadArtefact(f"the artefact unpacks to more than {limits.unpacked_bytes} bytes")
                        out.write(chunk)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as bad:
        raise BadArtefact(f"the artefact is not a readable zip: {bad}") from None
    except Exception as bad:
        # Decompressors raise errors of their own modules.
        if type(bad).__module__ in ("zlib", "lzma", "_lzma"):
            raise BadArtefact(f"the artefact is not a readable zip: {bad}") from None
        raise


def _inside(info: zipfile.ZipInfo) -> PurePosixPath:
    name = info.filename
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise BadArtefact(f"the artefact holds a link or a special file: {name[:200]!r}")
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or "\0" in name:
        raise BadArtefact(f"the artefact names a path outside its folder: {name[:200]!r}")
    return path


def read_manifest(folder: Path) -> Manifest:
    main = folder / "META-INF" / "MANIFEST.MF"
    if main.is_file():
        return _checked(_attributes(_bounded(main)))
    found = sorted(folder.glob("*.dist-info/METADATA"))
    if len(found) != 1:
        raise BadArtefact("Biz Name must not be empty! The artefact has neither META-INF/MANIFEST.MF nor a METADATA")
    metadata = message_from_bytes(_bounded(found[0]))
    attributes = {"Ark-Biz-Name": str(metadata.get("Name", "")), "Ark-Biz-Version": str(metadata.get("Version", ""))}
    points = found[0].parent / "entry_points.txt"
    if points.is_file():
        parser = ConfigParser()
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        try:
            parser.read_string(_bounded(points).decode())
        except (ConfigError, UnicodeDecodeError) as bad:
            raise BadArtefact(f"entry_points.txt cannot be read: {bad}") from None
        if parser.has_section("fairlead.module"):
            attributes |= dict(parser["fairlead.module"])
    return _checked(attributes)


def _bounded(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_MANIFEST)


def _attributes(text: bytes) -> dict[str, str]:
    lines: list[str] = []
    for line in text.decode("utf-8", "replace").splitlines():
        if line.startswith(" ") and lines:
            lines[-1] += line[1:]
        else:
            lines.append(line)
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def _checked(attributes: Mapping[str, str]) -> Manifest:
    name, version = attributes.get("Ark-Biz-Name", ""), attributes.get("Ark-Biz-Version", "")
    if not name:
        raise BadArtefact("Biz Name must not be empty!")
    if NAME.fullmatch(name) is None or NAME.fullmatch(version) is None:
        raise BadArtefact(f"no valid name and version: {name[:200]!r}, {version[:200]!r}")
    entry = attributes.get("Start-Class") or attributes.get("Main-Class") or ""
    module, colon, thing = entry.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *thing.split("."))):
        raise BadArtefact(f"Start-Class must be package.module:object, not {entry[:200]!r}")
    path = attributes.get("web-context-path", "").strip("/")
    if path and not all(NAME.fullmatch(part) for part in path.split("/")):
        raise BadArtefact(f"no valid web-context-path: {path[:200]!r}")
    priority = attributes.get("priority", "100")
    isolation = attributes.get("Isolation", "process").lower()
    if isolation not in ("process", "inproc"):
        raise BadArtefact(f"Isolation must be process or inproc, not {isolation[:200]!r}")
    denied = tuple(each.strip() for each in attributes.get("deny-import-packages", "").split(",") if each.strip())
    return Manifest(
        name,
        version,
        entry,
        f"/{path}" if path else "",
        attributes.get("Interface", "").lower(),
        int(priority) if priority.isdigit() and len(priority) < 7 else 100,
        isolation,
        denied,
    )
