"""Failures of decoding, with Kubernetes' messages; and bodies of kinds that are not stored."""

from typing import Any

import msgspec

from fairlead.apiserver.failures import Failure
from fairlead.apiserver.json_values import JsonObject, json_type
from fairlead.apiserver.schema.shape import DecodeError, decode, for_type, kind_label


class Unrecognized(Failure):
    """A body that is no object; `why` says what is wrong."""

    def __init__(self, message: str, why: str) -> None:
        super().__init__(400, "BadRequest", message)
        self.why = why


class Undecodable(Failure):
    """An object that does not fit its kind; `why` says what is wrong."""

    def __init__(self, problem: DecodeError) -> None:
        super().__init__(400, "BadRequest", str(problem))
        self.why = problem.why


def read_as(type_name: str, kind: str, version: str, sent: Any) -> JsonObject:
    """A body of a kind that is not kept, read as strictly as one that is; `type_name` is the facts'."""
    if sent is None:
        sent = {}
    if not isinstance(sent, dict):
        raise unrecognized(kind, not_an_object(sent), sent)
    try:
        made: JsonObject = decode(for_type(type_name), sent, kind_label(kind, version)).value
    except DecodeError as problem:
        raise Undecodable(problem) from None
    return made


def unrecognized(kind: str, why: str, sent: Any) -> Failure:
    """A body that is no object at all."""
    raw = sent if isinstance(sent, bytes) else msgspec.json.encode(sent)
    text = f"the object provided is unrecognized (must be of type {kind}): {why} ({_summary(raw)})"
    return Unrecognized(text, why)


def not_an_object(sent: Any) -> str:
    return (
        f"couldn't get version/kind; json parse error: json: cannot unmarshal {json_type(sent)} into Go value "
        'of type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
        'Kind string "json:\\"kind,omitempty\\"" }'
    )


def _summary(raw: bytes) -> str:
    if not raw:
        return "<empty>"
    shown = raw[:30].decode(errors="replace") if raw[:1] == b"{" else raw[:30].hex()
    return f"{shown} ..." if len(raw) > 30 else shown


def unusable_patch(patched: Any, why: str) -> Failure:
    return refused_patch(msgspec.json.encode(msgspec.json.encode(patched).decode()).decode(), why)


def refused_patch(shown: str, why: str) -> Failure:
    message = f"Invalid value: {shown}: {why}"
    cause = {"reason": "FieldValueInvalid", "message": message, "field": "patch"}
    return Failure(422, "Invalid", f' "" is invalid: patch: {message}', {"causes": [cause]})
