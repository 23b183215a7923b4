"""Conversion webhooks: objects of a custom kind sent out in one version, and taken back in another.

Only what a conversion may touch is taken over: an answer that names other objects, other kinds or another version
is refused, and of the metadata labels and annotations alone may differ.
"""

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from fairlead.apiserver.admission.client import CallFailed
from fairlead.apiserver.failures import Failure
from fairlead.apiserver.json_values import JsonObject, go_type
from fairlead.apiserver.schema.custom import CustomKind
from fairlead.apiserver.schema.shape import ParseError, parse
from fairlead.apiserver.validation import metadata as rules

Post = Callable[[Mapping[str, Any], bytes, float], Awaitable[bytes]]
"""The clientConfig, the body to send and the timeout in seconds → the answer; raises CallFailed."""

TIMEOUT_S: Final = 30.0
_GROUP: Final = "apiextensions.k8s.io"
_REVIEWS: Final = ("v1", "v1beta1")


class Conversion:
    def __init__(self, post: Post) -> None:
        self._post = post

    async def convert(self, kind: CustomKind, things: Sequence[JsonObject], api_version: str) -> list[JsonObject]:
        """The objects in another version, in the same order."""
        assert kind.webhook is not None
        whom = f"{things[0]['apiVersion']}, Kind={kind.kind}"
        review = next(each for each in kind.webhook["conversionReviewVersions"] if each in _REVIEWS)
        unique = str(uuid.uuid4())
        sent = {
            "kind": "ConversionReview",
            "apiVersion": f"{_GROUP}/{review}",
            "request": {"uid": unique, "desiredAPIVersion": api_version, "objects": things},
        }
        try:
            body = await self._post(kind.webhook["clientConfig"], msgspec.json.encode(sent), TIMEOUT_S)
            converted = _converted(body, unique, review)
        except CallFailed as problem:
            raise Failure(500, "", f"conversion webhook for {whom} failed: {problem}") from None
        if len(converted) != len(things):
            message = f"returned {len(converted)} objects, expected {len(things)}"
            raise Failure(500, "", f"conversion webhook for {whom} {message}")
        return [
            _taken(thing, made, api_version, index, f"conversion webhook for {whom} returned invalid")
            for index, (thing, made) in enumerate(zip(things, converted, strict=True))
        ]


def _converted(body: bytes, unique: str, review: str) -> list[Any]:
    try:
        answer = parse(body).value
    except ParseError as problem:
        raise CallFailed(f"couldn't get version/kind; json parse error: {problem}") from None
    answer = answer if isinstance(answer, dict) else {}
    version, called = answer.get("apiVersion") or "", answer.get("kind") or ""
    if (version, called) not in [(f"{_GROUP}/{each}", "ConversionReview") for each in _REVIEWS]:
        scheme = 'in scheme "pkg/runtime/scheme.go:111"'
        raise CallFailed(f'no kind "{called}" is registered for version "{version}" {scheme}')
    kind_text = f"{version}, Kind={called}"
    if kind_text != f"{_GROUP}/{review}, Kind=ConversionReview":
        raise CallFailed(f"expected webhook response of {_GROUP}/{review}, Kind=ConversionReview, got {kind_text}")
    response = answer.get("response")
    if not isinstance(response, dict):
        raise CallFailed("no response provided")
    if review == "v1" and response.get("uid") != unique:
        raise CallFailed(f'expected response.uid="{unique}", got "{response.get("uid") or ""}"')
    result = response.get("result")
    result = result if isinstance(result, dict) else {}
    if result.get("status") != "Success":
        status = result.get("status") or ""
        raise CallFailed(str(result.get("message") or f"response.result.status was '{status}', not 'Success'"))
    converted = response.get("convertedObjects") or []
    return converted if isinstance(converted, list) else []


def _taken(thing: JsonObject, made: Any, api_version: str, index: int, refused: str) -> JsonObject:
    """An object as it came back, with what a conversion may not touch as it was."""
    made = made if isinstance(made, dict) else {}
    for field, expected, called in (("apiVersion", api_version, "groupVersion"), ("kind", thing["kind"], "kind")):
        if made.get(field) != expected:
            message = f"(expected {expected}, received {made.get(field) or ''})"
            raise Failure(500, "", f"{refused} object at index {index}: invalid {called} {message}")
    given, was = made.get("metadata"), thing["metadata"]
    given = given if isinstance(given, dict) else {}
    for field, called in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        before, after = was.get(field) or "", given.get(field) or ""
        if before != after:
            raise Failure(500, "", f"{refused} object: must have the same {called}: {before} != {after}")
    if not isinstance(made.get("metadata"), dict):
        raise Failure(500, "", f"{refused} metadata: missing metadata in converted object")
    return {**made, "metadata": _metadata(was, given, refused)}


def _metadata(was: JsonObject, given: JsonObject, refused: str) -> JsonObject:
    metadata = dict(was)
    for field in ("labels", "annotations"):
        values = given.get(field)
        metadata.pop(field, None)
        if values is None:
            continue
        if not isinstance(values, dict):
            message = f"invalid metadata.{field} of type {go_type(values)} in converted object"
            raise Failure(500, "", f"{refused} metadata: {message}")
        for key, value in values.items():
            if not isinstance(value, str):
                message = f"metadata.{field}[{key}] must be a string, but is {go_type(value)} in converted object"
                raise Failure(500, "", f"{refused} metadata: {message}")
        check = rules.labels if field == "labels" else rules.annotations
        path = "metadata.labels" if field == "labels" else "metadata.annotation"
        if values != was.get(field) and (problems := list(check(values, path))):
            message = "; ".join(f"{each.field}: {each.message}" for each in problems)
            raise Failure(500, "", f"{refused} metadata: {message}")
        metadata[field] = values
    return metadata
