"""Objects read from the store, in the group and version that a request names."""

from collections.abc import Mapping

import msgspec

from fairlead.apiserver.failures import not_found
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.registry.resources import Resource, Resources
from fairlead.apiserver.registry.versions import Versions
from fairlead.apiserver.storage.store import Entry, Store


class Reader:
    def __init__(self, store: Store, resources: Resources, versions: Versions) -> None:
        self.store = store
        self.resources = resources
        self.versions = versions

    def entry(self, resource: Resource, namespace: str, name: str) -> Entry:
        found = self.store.get(resource.storage_key, resource.key(namespace, name))
        if found is None:
            raise not_found(resource.group, resource.plural, name)
        return found

    async def ready(self, resource: Resource, *entries: Entry) -> None:
        """Wait until these are converted to the version of the resource; call it before `thing` and `body`."""
        kind = resource.custom
        if kind is None or kind.webhook is None:
            return
        kind_store = self.store.of_kind(resource.storage_key)
        if self.versions.is_crowded(kind, len(kind_store.entries)):
            self.versions.forget(kind, (entry.revision for entry in kind_store.entries.values()))
        await self.versions.prepare(resource, entries)

    def thing(self, resource: Resource, entry: Entry) -> JsonObject:
        """The object in the version of the resource."""
        if resource.custom is not None:
            return self.versions.read(resource, entry)
        stored: JsonObject = msgspec.json.decode(entry.body)
        stored = resource.strategy.from_stored(stored, resource.group, resource.version)
        if stored.get("apiVersion") != resource.api_version:
            stored["apiVersion"] = resource.api_version
        return stored

    def fields(self, resource: Resource, entry: Entry) -> Mapping[str, str]:
        """What field selectors may name; of a custom kind in the version of the request."""
        kind = resource.custom
        if kind is None or not kind.selectable(resource.version):
            return entry.fields
        return {**entry.fields, **kind.selected(resource.version, self.thing(resource, entry))}

    def body(self, resource: Resource, entry: Entry) -> bytes:
        """The bytes to answer with; those of the store where the versions agree."""
        if resource.custom is not None:
            is_stored_form = self.versions.is_as_kept(resource, entry)
        else:
            is_stored_form = resource.strategy.is_stored_form(resource.group)
        if is_stored_form:
            return resource.strategy.to_wire(entry.body)
        return msgspec.json.encode(self.thing(resource, entry))

    def find(self, storage_key: str, key: str) -> JsonObject | None:
        entry = self.store.get(storage_key, key)
        return None if entry is None else msgspec.json.decode(entry.body)
