"""What was sent, or came out of a patch, as an object of its kind with its defaults."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from fairlead.apiserver.failures import bad_request, internal
from fairlead.apiserver.fields.patches import strategic_problem
from fairlead.apiserver.json_values import JsonObject, go_text
from fairlead.apiserver.registry.attributes import Write
from fairlead.apiserver.registry.resources import Resource, Resources
from fairlead.apiserver.request.bodies import Sent
from fairlead.apiserver.request.decoding import Undecodable, not_an_object, refused_patch, unrecognized, unusable_patch
from fairlead.apiserver.request.json_errors import quoted
from fairlead.apiserver.schema import defaults
from fairlead.apiserver.schema.shape import DecodeError, decode, kind_label, strict_problem


@dataclass(frozen=True, slots=True)
class Draft:
    """An object on its way to the store."""

    thing: JsonObject
    size: int = 0
    """Bytes of the body and of the object it changes: the cost of the work on it is in proportion."""
    has_empty: bool = False
    """Whether it has an empty list or map that Go stores as null: its manager owns it, and then it is dropped."""


def decoded(
    resources: Resources, write: Write, body: Sent, *,
    size: int = 0, patched: bool = False, strategic: Callable[[], Any] | None = None,
) -> Draft:  # fmt: skip
    """What was sent, or came out of a patch, as an object of the kind with its defaults.

    `strategic`: the patch as a complaint about its result quotes it.
    """
    resource, validation = write.resource, write.options.validation
    sent = {} if body.value is None else body.value
    if not isinstance(sent, dict):
        raise unrecognized(resource.kind, not_an_object(sent), sent)
    if resource.custom is not None:
        _check_type(resource, sent, body.raw, patched)
    label = kind_label(resource.kind, resource.version)
    try:
        if resource.custom is None:
            _check_kind(resources, resource, sent)
        read = decode(resource.schema, sent, label, in_order=patched)
        if (read.unknown or body.duplicates) and validation == "Strict":
            raise DecodeError(label, strict_problem(body.duplicates, read.unknown))
    except DecodeError as problem:
        if patched:
            why = problem.why
            if strategic is not None:
                why = strategic_problem(resource.schema, sent) or why
                raise refused_patch(quoted(go_text(strategic())), why) from None
            raise unusable_patch(sent, why) from None
        raise Undecodable(problem) from None
    if validation == "Warn":
        for path in body.duplicates:
            write.warn(f'duplicate field "{path}"')
        for path in read.unknown:
            write.warn(f'unknown field "{path}"')
    thing: JsonObject = {"kind": resource.kind, "apiVersion": resource.api_version, **without_type(read.value)}
    if resource.custom is not None:
        thing |= {"kind": sent["kind"], "apiVersion": sent["apiVersion"]}
    if not isinstance(thing.get("metadata"), dict):
        thing["metadata"] = {}
    default(resource, thing)
    return Draft(thing, max(size, len(body.raw)), read.has_empty)


def _check_type(resource: Resource, sent: JsonObject, raw: bytes, patched: bool) -> None:
    """Objects of custom kinds must say what they are; what they say is for validation to judge."""
    if not sent.get("kind"):
        if patched:
            whole = msgspec.json.encode(sent, order="deterministic").decode()
            raise unusable_patch(sent, f"Object 'Kind' is missing in '{whole}'")
        why = f"Object 'Kind' is missing in '{raw.decode(errors='replace')}'"
        raise unrecognized(resource.kind, why, raw)
    version = sent.get("apiVersion") or ""
    if patched and not version:
        raise internal("Object 'apiVersion' is missing in 'object has no apiVersion field'")
    if not patched and version != resource.api_version:
        expected = resource.api_version
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({expected})"
        )


def _check_kind(resources: Resources, resource: Resource, sent: JsonObject) -> None:
    """An object that names its kind must be of this one."""
    kind, version = sent.get("kind") or resource.kind, sent.get("apiVersion") or resource.api_version
    if (kind, version) == (resource.kind, resource.api_version):
        return
    if not isinstance(kind, str) or not isinstance(version, str):
        return  # decoding says it better
    short = version.rpartition("/")[2]
    label = kind_label(kind, short, resource.kind)
    if resources.by_api_version(version, kind) is None:
        scheme = 'in scheme "pkg/runtime/scheme.go:111"'
        raise DecodeError(label, f'no kind "{kind}" is registered for version "{version}" {scheme}')
    package = resource.group.partition(".")[0] or "core"
    raise DecodeError(label, f"converting ({short}.{kind}) to ({package}.{resource.kind}): unknown conversion")


def default(resource: Resource, thing: JsonObject) -> None:
    if resource.custom is not None:
        resource.custom.default(resource.version, thing)
    else:
        resource.strategy.convert(thing)
        defaults.apply_defaults(resource.group, resource.version, resource.kind, thing)


def without_type(thing: JsonObject) -> JsonObject:
    return {name: value for name, value in thing.items() if name not in ("kind", "apiVersion")}
