"""Custom resource definitions at work: a definition that is written is served from the same moment on."""

import msgspec

from fairlead.apiserver.fields import managed
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.registry.reader import Reader
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.registry.strategies import established, refused_names
from fairlead.apiserver.schema.custom import CustomKind
from fairlead.cluster.clock import Clock, rfc3339

PLACE = "apiextensions.k8s.io/customresourcedefinitions"


class Definitions:
    def __init__(self, reader: Reader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._served: dict[tuple[str, str], CustomKind] = {}
        for _, entry in reader.store.items(PLACE):
            self._serve(msgspec.json.decode(entry.body))

    def learn(self, resource: Resource, thing: JsonObject, exists: bool) -> None:
        if resource.storage_key != PLACE:
            return
        if exists and not thing["metadata"].get("deletionTimestamp"):
            self._serve(thing)
            self._accept(resource, thing)
        elif not exists and not self._is_taken(thing):
            self._forget(thing)

    def _is_taken(self, thing: JsonObject) -> bool:
        """Whether the definition names objects that the server has itself: it is stored, and never served."""
        return self._reader.resources.is_built_in(*_place(thing))

    def _accept(self, resource: Resource, thing: JsonObject) -> None:
        """Say that its names are accepted and that it is served, as the controllers of a real server do."""
        reader = self._reader
        if (thing.get("status") or {}).get("acceptedNames") == thing["spec"].get("names"):
            return
        now = rfc3339(self._clock.now())
        for status in [refused_names(thing, now)] if self._is_taken(thing) else established(thing, now):
            current = reader.entry(resource, "", thing["metadata"]["name"])
            new = {**reader.thing(resource, current), "status": status}
            fields = managed.record_update(
                resource.schema, reader.thing(resource, current), new,
                manager="kube-apiserver", api_version=resource.api_version, time=now, subresource="status",
            )  # fmt: skip
            new["metadata"] = {**new["metadata"], "managedFields": fields}
            reader.store.put(PLACE, thing["metadata"]["name"], new, current.revision)

    def _serve(self, thing: JsonObject) -> None:
        if self._is_taken(thing):
            return
        place = _place(thing)
        known = self._served.get(place)
        if known is not None and known.definition["spec"] == thing["spec"]:
            return  # only its status has changed
        self._forget(thing)
        kind = self._served[place] = CustomKind(thing, since=int(thing["metadata"]["resourceVersion"]))
        self._reader.resources.define(kind, *place)

    def _forget(self, thing: JsonObject) -> None:
        place = _place(thing)
        known = self._served.pop(place, None)
        if known is not None:
            self._reader.versions.forget(known)
        self._reader.resources.define(None, *place)


def _place(thing: JsonObject) -> tuple[str, str]:
    """The group and the plural of what a definition defines."""
    return thing["spec"]["group"], thing["spec"]["names"]["plural"]
