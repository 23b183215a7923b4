"""Custom resource definitions at work: a definition that is written is served from the same moment on."""

import msgspec

from fairlead.apiserver.fields import managed
from fairlead.apiserver.registry.attributes import AdmissionAttributes, JsonObject
from fairlead.apiserver.registry.resources import Resource, custom
from fairlead.apiserver.registry.rest import Rest
from fairlead.apiserver.registry.strategies import established
from fairlead.apiserver.request.options import DeleteOptions
from fairlead.apiserver.schema.custom import CustomKind
from fairlead.cluster.clock import rfc3339

PLACE = "apiextensions.k8s.io/customresourcedefinitions"


class Definitions:
    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._served: dict[str, CustomKind] = {}

    def load(self) -> None:
        """Serve what was defined before we were started."""
        store = self._rest.store
        for _, entry in store.items(PLACE):
            self._serve(msgspec.json.decode(entry.body))

    def learn(self, resource: Resource, thing: JsonObject, exists: bool) -> None:
        if resource.storage_key != PLACE:
            return
        if exists and not thing["metadata"].get("deletionTimestamp"):
            self._serve(thing)
            self._accept(resource, thing)
        elif not exists:
            self._forget(thing)

    def _accept(self, resource: Resource, thing: JsonObject) -> None:
        """Say that its names are accepted and that it is served, as the controllers of a real server do."""
        rest = self._rest
        if (thing.get("status") or {}).get("acceptedNames") == thing["spec"].get("names"):
            return
        now = rfc3339(rest.clock.now())
        for status in established(thing, now):
            current = rest.entry(resource, "", thing["metadata"]["name"])
            new = {**rest.thing(resource, current), "status": status}
            fields = managed.record_update(
                resource.schema, rest.thing(resource, current), new,
                manager="kube-apiserver", api_version=resource.api_version, time=now, subresource="status",
            )  # fmt: skip
            new["metadata"] = {**new["metadata"], "managedFields": fields}
            rest.store.put(PLACE, thing["metadata"]["name"], new, current.revision)

    async def empty(self, attempt: AdmissionAttributes) -> JsonObject | None:
        """Admission: with its definition, every object of a custom kind goes."""
        is_delete = attempt.operation == "DELETE" and attempt.resource.storage_key == PLACE
        if is_delete and attempt.old is not None and not attempt.options.dry_run:
            spec = attempt.old["spec"]
            place = f"{spec['group']}/{spec['names']['plural']}"
            rest = self._rest
            served = self._served.get(place)
            assert served is not None
            for key, entry in list(rest.store.items(place)):
                stored = msgspec.json.decode(entry.body)
                version = stored["apiVersion"].rpartition("/")[2]
                if version not in served.versions:
                    rest.store.delete(place, key, stored, entry.revision)  # nobody can read it any more
                    continue
                # In the version it is kept in, which nobody needs to convert.
                resource = custom(served, version)
                where, name = stored["metadata"].get("namespace", ""), stored["metadata"]["name"]
                await rest.delete(resource, where, name, DeleteOptions(), attempt.options)
        return attempt.thing

    def _serve(self, thing: JsonObject) -> None:
        spec = thing["spec"]
        place = f"{spec['group']}/{spec['names']['plural']}"
        known = self._served.get(place)
        if known is not None and known.definition["spec"] == spec:
            return  # only its status has changed
        if known is not None:
            self._rest.versions.forget(known)
        kind = CustomKind(thing, since=int(thing["metadata"]["resourceVersion"]))
        self._served[place] = kind
        self._rest.resources.define(kind, spec["group"], spec["names"]["plural"])

    def _forget(self, thing: JsonObject) -> None:
        spec = thing["spec"]
        place = f"{spec['group']}/{spec['names']['plural']}"
        known = self._served.pop(place, None)
        if known is not None:
            self._rest.versions.forget(known)
        self._rest.resources.define(None, spec["group"], spec["names"]["plural"])
