"""Custom kinds of several versions: objects are stored in one of them and read in the one a request names.

What is read is first brought to the schema its own version has now (unknown fields go, defaults are set), then to the
version of the request, by changing its apiVersion or by the kind's own webhook. `prepare` waits for a webhook and
remembers what it returned, so that `read` never waits.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import msgspec

from fairlead.apiserver.failures import Failure
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.schema.custom import CustomKind
from fairlead.apiserver.storage.store import Entry

Convert = Callable[[CustomKind, Sequence[JsonObject], str], Awaitable[list[JsonObject]]]
"""Objects of a kind, converted to an API version by its webhook; a Failure where it cannot."""

# Objects in one call of a webhook.
MOST_AT_ONCE: Final = 100
MOST_BYTES_AT_ONCE: Final = 1 << 20
SPARE: Final = 1000


class Versions:
    def __init__(self, convert: Convert) -> None:
        self.convert = convert
        self._unsaved = 0  # the revision of what is not stored, below all others
        self._converted: dict[CustomKind, dict[tuple[int, str], bytes]] = {}

    def is_as_kept(self, resource: Resource, entry: Entry) -> bool:
        """Whether the bytes in the store are the answer."""
        kind = resource.custom
        return kind is None or (len(kind.versions) == 1 and entry.revision > kind.since)

    def read(self, resource: Resource, entry: Entry) -> JsonObject:
        """An object of a custom kind in the version of the resource; see `prepare`."""
        kind = resource.custom
        assert kind is not None
        known = self._converted.get(kind, {}).get((entry.revision, resource.version))
        if known is not None:
            found: JsonObject = msgspec.json.decode(known)
            return found
        stored = _read(kind, entry)
        assert kind.webhook is None or stored["apiVersion"] == resource.api_version, "prepare() comes first"
        return kind.as_known(resource.version, {**stored, "apiVersion": resource.api_version})

    async def prepare(self, resource: Resource, entries: Iterable[Entry]) -> None:
        """Convert these, so that `read` does not wait."""
        kind = resource.custom
        if kind is None or kind.webhook is None:
            return
        known = self._converted.setdefault(kind, {})
        missing: list[tuple[int, JsonObject]] = []
        for entry in entries:
            if (entry.revision, resource.version) not in known:
                stored = _read(kind, entry)
                if stored["apiVersion"] != resource.api_version:
                    missing.append((entry.revision, stored))
        for part in _parts(missing):
            converted = await self.convert(kind, [stored for _, stored in part], resource.api_version)
            for (revision, _), thing in zip(part, converted, strict=True):
                made = kind.as_known(resource.version, thing)
                known[revision, resource.version] = msgspec.json.encode(made)

    def forget(self, kind: CustomKind, live: Iterable[int] = ()) -> None:
        """Drop what was converted of a kind, except for objects that still exist."""
        known = self._converted.get(kind)
        if known is None:
            return
        revisions = set(live)
        kept = {key: body for key, body in known.items() if key[0] in revisions}
        if kept:
            self._converted[kind] = kept
        else:
            del self._converted[kind]

    @staticmethod
    def can_be_owned(resource: Resource, owners: Iterable[JsonObject], *things: JsonObject | None) -> bool:
        """Whether managers of fields in other versions keep them: not if such a version lacks fields of the object."""
        kind = resource.custom
        assert kind is not None
        others = {each["apiVersion"].rpartition("/")[2] for each in owners} & set(kind.versions) - {resource.version}
        if kind.webhook is not None:
            return True
        return all(kind.as_known(other, thing) == thing for other in others for thing in things if thing is not None)

    async def read_unsaved(self, resource: Resource, body: bytes) -> JsonObject:
        """What `read` would return if these bytes were kept."""
        self._unsaved -= 1
        entry = Entry(self._unsaved, "", body, {}, {})
        await self.prepare(resource, [entry])
        thing = self.read(resource, entry)
        assert resource.custom is not None
        self._converted.get(resource.custom, {}).pop((entry.revision, resource.version), None)
        return thing

    def is_crowded(self, kind: CustomKind, live: int) -> bool:
        return len(self._converted.get(kind, ())) > live * len(kind.versions) + SPARE

    async def kept(self, resource: Resource, thing: JsonObject) -> JsonObject:
        """An object of a custom kind in its storage version."""
        kind = resource.custom
        assert kind is not None
        version = f"{kind.group}/{kind.storage_version}"
        if resource.version == kind.storage_version:
            return thing
        if kind.webhook is not None:
            (thing,) = await self.convert(kind, [thing], version)
        return kind.as_known(kind.storage_version, {**thing, "apiVersion": version})


def _read(kind: CustomKind, entry: Entry) -> JsonObject:
    stored: JsonObject = msgspec.json.decode(entry.body)
    api_version = stored["apiVersion"]
    version = api_version.rpartition("/")[2]
    if version not in kind.versions:
        raise Failure(500, "", f"request to convert CR from an invalid group/version: {api_version}")
    return stored if len(kind.versions) == 1 and entry.revision > kind.since else kind.as_read(version, stored)


def _parts(found: list[tuple[int, JsonObject]]) -> Iterable[list[tuple[int, JsonObject]]]:
    part: list[tuple[int, JsonObject]] = []
    size = 0
    for each in found:
        length = len(msgspec.json.encode(each[1]))
        if part and (len(part) == MOST_AT_ONCE or size + length > MOST_BYTES_AT_ONCE):
            yield part
            part, size = [], 0
        part.append(each)
        size += length
    if part:
        yield part
