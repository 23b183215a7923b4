"""Tables: the rows `kubectl get` prints, computed by the server as Kubernetes does.

A kind's columns are a list of (name, type, priority) and a function from an object to its cells; kinds without
one print name and age. Also the partial forms: metadata alone.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from fairlead.apiserver.failures import Failure, bad_request
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.printers.kinds import CREATED, PRINTERS
from fairlead.apiserver.printers.texts import UNKNOWN, Cells, Column, age
from fairlead.apiserver.registry import autoscalers
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.request import media_types
from fairlead.apiserver.schema.custom import read_path
from fairlead.apiserver.schema.scalars import ScalarError, canonical_time

FORMS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")


class TableForm:
    """The form that `as=` of the Accept header names."""

    def __init__(self, form: str, resource: Resource, now: Callable[[], datetime]) -> None:
        self._form = form
        self._resource = resource
        self._now = now

    @staticmethod
    def negotiate(accept: str, resource: Resource, now: Callable[[], datetime]) -> "TableForm | None":
        """The first form in the header that we serve; None for plain JSON; a Failure where nothing is acceptable."""
        if not accept:
            return None
        known = False
        for part in accept.split(","):
            kind, *parameters = (piece.strip() for piece in part.split(";"))
            named = dict(piece.split("=", 1) for piece in parameters if "=" in piece)
            form = named.get("as")
            if kind not in ("*/*", *media_types.OBJECTS):
                continue
            known = True
            is_meta = (named.get("g"), named.get("v")) == ("meta.k8s.io", "v1")
            if form in FORMS and is_meta and kind != media_types.PROTOBUF:
                return TableForm(form, resource, now)
            if form is None and kind in (media_types.JSON, "*/*"):
                return None
            if form is None and accept.count(",") == 0:
                return None  # an Accept of protobuf or YAML alone is answered in JSON
        listed = ", ".join(media_types.OBJECTS)
        if known:
            raise Failure(406, "NotAcceptable", f"only the following media types are accepted: {listed}")
        text = f"406: Not Acceptable\n\nAvailable representations: {listed}"
        raise Failure(406, "NotAcceptable", text, {})

    def mark(self, thing: JsonObject) -> JsonObject:
        """A bookmark in this form: it has a version, and its cells are blank."""
        if self._form != "Table":
            return _partial(thing)
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": thing["metadata"]["resourceVersion"]},
            "columnDefinitions": None,
            "rows": [{"cells": self._bare_cells(), "object": _partial(thing)}],
        }

    def _bare_cells(self) -> list[Any]:
        columns, cells = columns_of(self._resource)
        try:
            return cells({"metadata": {"name": ""}, "spec": {}, "status": {}}, self._now())
        except (KeyError, IndexError, TypeError):
            return ["" for _ in columns]

    def one(self, thing: JsonObject, query: Mapping[str, str], with_columns: bool) -> JsonObject:
        if self._form == "PartialObjectMetadataList":
            raise self._not_acceptable(is_list=False)
        if self._form != "Table":
            return _partial(thing)
        table = self._table([thing], {"resourceVersion": thing["metadata"].get("resourceVersion", "")}, query)
        if not with_columns:
            table["columnDefinitions"] = None
        return table

    def many(self, things: list[JsonObject], metadata: JsonObject, query: Mapping[str, str]) -> JsonObject:
        if self._form == "PartialObjectMetadata":
            raise self._not_acceptable(is_list=True)
        if self._form == "Table":
            return self._table(things, metadata, query)
        items = [_partial(thing) for thing in things] or None
        return {"kind": self._form, "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items}

    def _not_acceptable(self, *, is_list: bool) -> Failure:
        package = self._resource.group.partition(".")[0] or "core"
        kind = f"{package}.{self._resource.kind}" if self._resource.custom is None else "unstructured.Unstructured"
        about = f"is a list (*{kind}List)" if is_list else f"is not a list (*{kind})"
        return Failure(406, "NotAcceptable", f"you requested {self._form}, but the requested object {about}")

    def _table(self, things: list[JsonObject], metadata: JsonObject, query: Mapping[str, str]) -> JsonObject:
        columns, cells = columns_of(self._resource)
        now = self._now()
        include = query.get("includeObject") or "Metadata"
        if include not in ("Metadata", "Object", "None"):
            why = f"Invalid value: \"{include}\": must be 'Metadata', 'Object', 'None', or empty"
            raise bad_request(f"Unable to convert to Table as requested: includeObject: {why}")
        rows = []
        for thing in things:
            row: JsonObject = {"cells": cells(thing, now)}
            if include == "Object":
                row["object"] = thing
            else:
                row["object"] = _partial(thing) if include != "None" else None
            rows.append(row)
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": [
                {
                    "name": name,
                    "type": kind,
                    "format": "name" if name in ("Name", "Attacher") and self._resource.kind != "Scale" else "",
                    "description": "",
                    "priority": priority,
                }
                for name, kind, priority in columns
            ],
            "rows": rows if rows or self._resource.custom or self._resource.storage_key in PRINTERS else None,
        }


# Annotations that carry other versions' fields; left out of PartialObjectMetadata.
_CARRIED = {"deprecated.daemonset.template.generation", *autoscalers.NOTES}


def _partial(thing: JsonObject) -> JsonObject:
    metadata = thing["metadata"]
    if not _CARRIED.isdisjoint(metadata.get("annotations") or ()):
        noted = {key: value for key, value in metadata["annotations"].items() if key not in _CARRIED}
        metadata = {key: value for key, value in metadata.items() if key != "annotations"}
        metadata |= {"annotations": noted} if noted else {}
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}


def columns_of(resource: Resource) -> tuple[list[Column], Cells]:
    if resource.custom is not None:
        return _custom(resource)
    return PRINTERS.get(resource.storage_key, CREATED)


def _date(text: str, now: datetime) -> str:
    """Age of a date column; the schema may not have validated it."""
    try:
        return age(canonical_time(text), now) if text else UNKNOWN
    except ScalarError:
        return "<invalid>"


def _custom(resource: Resource) -> tuple[list[Column], Cells]:
    assert resource.custom is not None
    printed = resource.custom.printer_columns(resource.version)
    columns: list[Column] = [("Name", "string", 0)]
    columns += [(each.name, each.type, each.priority) for each in printed]

    def cells(thing: JsonObject, now: datetime) -> list[Any]:
        row: list[Any] = [thing["metadata"]["name"]]
        for each in printed:
            value = read_path(thing, each.path)
            if each.type == "date":
                value = _date(value, now) if isinstance(value, str) else UNKNOWN if value is None else value
            elif isinstance(value, dict | list):
                value = str(value)
            elif each.type == "string" and isinstance(value, bool):
                value = "true" if value else "false"
            elif each.type == "string" and value is not None:
                value = str(value)
            row.append(value)
        return row

    return columns, cells
