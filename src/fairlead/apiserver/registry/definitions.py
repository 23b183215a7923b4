"""Custom resource definitions at work: a definition that is written is served from the same moment on."""

from collections.abc import Mapping
from typing import Any

import msgspec

from fairlead.apiserver.fields import managed
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.registry.rest import Attempt, Rest, Thing
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
        """Serve what was defined before we were started, and index its objects."""
        store = self._rest.store
        for _, entry in store.items(PLACE):
            self._serve(msgspec.json.decode(entry.body))

    def selectable(self, kind: str, thing: Mapping[str, Any]) -> dict[str, str]:
        served = self._served.get(kind)
        if served is None:
            return {}
        version = str(thing.get("apiVersion", "")).rpartition("/")[2]
        values = {path: served.at(thing, path) for path in served.selectable(version)}
        return {path.lstrip("."): _text(value) for path, value in values.items()}

    def learn(self, resource: Resource, thing: Thing, exists: bool) -> None:
        if resource.stored_as != PLACE:
            return
        if exists and not thing["metadata"].get("deletionTimestamp"):
            self._serve(thing)
            self._accept(resource, thing)
        elif not exists:
            self._forget(thing)

    def _accept(self, resource: Resource, thing: Thing) -> None:
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

    async def empty(self, attempt: Attempt) -> Thing | None:
        """Admission: with its definition, every object of a custom kind goes."""
        is_delete = attempt.operation == "DELETE" and attempt.resource.stored_as == PLACE
        if is_delete and attempt.old is not None and not attempt.options.dry_run:
            spec = attempt.old["spec"]
            place = f"{spec['group']}/{spec['names']['plural']}"
            rest = self._rest
            for resource in [each for each in rest.resources if each.custom and each.stored_as == place]:
                for _, entry in list(rest.store.items(resource.stored_as)):
                    metadata = msgspec.json.decode(entry.body)["metadata"]
                    await rest.delete(
                        resource, metadata.get("namespace", ""), metadata["name"], DeleteOptions(), attempt.options
                    )
        return attempt.thing

    def _serve(self, thing: Thing) -> None:
        spec = thing["spec"]
        kind = CustomKind(thing)
        self._served[f"{spec['group']}/{spec['names']['plural']}"] = kind
        self._rest.resources.define(kind, spec["group"], spec["names"]["plural"])

    def _forget(self, thing: Thing) -> None:
        spec = thing["spec"]
        place = f"{spec['group']}/{spec['names']['plural']}"
        self._served.pop(place, None)
        self._rest.resources.define(None, spec["group"], spec["names"]["plural"])


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
