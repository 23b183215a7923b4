"""managedFields: recorded with every write, and merged by server-side apply."""

from datetime import datetime

from fairlead.apiserver.failures import Failure
from fairlead.apiserver.fields import managed
from fairlead.apiserver.fields.elements import ApplyError
from fairlead.apiserver.fields.sets import tree_of
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.registry.attributes import Write
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.registry.versions import Versions
from fairlead.apiserver.request.options import Options
from fairlead.apiserver.schema.shape import Schema
from fairlead.cluster.clock import rfc3339


def merged(
    schema: Schema,
    live: JsonObject | None,
    applied: JsonObject,
    options: Options,
    *,
    api_version: str,
    now: datetime,
    subresource: str = "",
) -> JsonObject:
    """The current object with the applied one merged into it, as the managers of its fields allow."""
    try:
        return managed.apply(
            schema, live, applied,
            manager=options.manager, api_version=api_version, time=rfc3339(now),
            subresource=subresource, force=options.force,
        )  # fmt: skip
    except managed.ApplyConflict as problem:
        causes = [
            {"reason": "FieldManagerConflict", "message": each.message, "field": each.field}
            for each in problem.conflicts
        ]
        raise Failure(409, "Conflict", str(problem), {"causes": causes}) from None
    except ApplyError as problem:
        raise Failure(500, "", str(problem)) from None


def record(versions: Versions, write: Write, old: JsonObject | None, thing: JsonObject, now: datetime) -> None:
    resource = write.resource
    try:
        fields = managed.record_update(
            resource.schema, old, thing, manager=write.options.manager,
            api_version=resource.api_version, time=rfc3339(now), subresource=write.subresource,
        )  # fmt: skip
    except ApplyError:
        return  # a value of the wrong shape has no owner: validation refuses it
    if resource.custom is not None and not versions.can_be_owned(resource, fields, old, thing):
        fields = []
    if resource.strategy.owners_per_version:
        fields = [each for each in fields if each["apiVersion"] == resource.api_version]
    if write.subresource == "scale":
        fields = _split_scale(fields, old, thing, resource.api_version)
        if not (thing.get("spec") or {}).get("replicas"):
            fields = [each for each in fields if each.get("subresource") != "scale"]
        for entry in fields:
            if entry.get("subresource") == "scale":
                entry.pop("time", None)  # Kubernetes does not say when a scale was set
        fields.sort(key=lambda each: (each["operation"], each.get("time") or "", each["manager"]))
    if fields:
        thing["metadata"]["managedFields"] = fields
    else:
        thing["metadata"].pop("managedFields", None)


def record_review(resource: Resource, thing: JsonObject, options: Options, now: datetime) -> None:
    """Reviews have managedFields too, though they are not stored."""
    request = {name: value for name, value in thing.items() if name != "status"}
    fields = managed.record_update(
        resource.schema, None, request,
        manager=options.manager, api_version=thing["apiVersion"], time=rfc3339(now),
    )  # fmt: skip
    if fields:
        thing["metadata"]["managedFields"] = fields


def _split_scale(
    fields: list[JsonObject], old: JsonObject | None, thing: JsonObject, api_version: str
) -> list[JsonObject]:
    """A scale that changes nothing still gives replicas a managedFields entry of their own, without a time."""
    path = ("f:spec", "f:replicas")
    if old is None or (old.get("spec") or {}).get("replicas") != (thing.get("spec") or {}).get("replicas"):
        return fields
    made: list[JsonObject] = []
    for entry in fields:
        if managed.owns(entry, path) and entry.get("subresource") != "scale":
            rest = managed.without(entry, path)
            alone = {key: value for key, value in entry.items() if key != "time"}
            made += [{**alone, "apiVersion": api_version, "fieldsV1": tree_of(path)}]
            made += [rest] if rest["fieldsV1"] else []
        else:
            made.append(entry)
    return made
