"""Failures of the embedded API server: Kubernetes' Status, with Kubernetes' messages.

Raised anywhere below the server, turned into an answer by it and nowhere else. The texts are wire format:
clients and people match on them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fairlead.apiserver.validation.errors import FieldError

# How many of an object's mistakes are reported: an answer must not be much larger than what was sent.
MOST_CAUSES: Final = 5000


class Failure(Exception):
    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details or {})
        self._has_details = details is not None
        self.retry_after_s = retry_after_s
        self.metadata: dict[str, str] = {}
        if retry_after_s is not None:
            self.details["retryAfterSeconds"] = retry_after_s

    def status(self) -> dict[str, Any]:
        body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": self.metadata}
        body |= {"status": "Failure", "message": self.message}
        if self.reason:
            body["reason"] = self.reason
        if self.details or self._has_details:
            body["details"] = self.details
        return body | {"code": self.code}


def success(group: str, plural: str, name: str, uid: str) -> dict[str, Any]:
    """The Status a delete answers with once the object is gone."""
    details = {"name": name, **({"group": group} if group else {}), "kind": plural, "uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _about(group: str, plural: str, name: str) -> dict[str, Any]:
    about = {"name": name, "group": group, "kind": plural}
    return {key: value for key, value in about.items() if value}


def _qualified(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural


def bad_request(message: str) -> Failure:
    return Failure(400, "BadRequest", message)


def not_found(group: str, plural: str, name: str) -> Failure:
    return Failure(404, "NotFound", f'{_qualified(group, plural)} "{name}" not found', _about(group, plural, name))


def no_such_path() -> Failure:
    return Failure(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(group: str, plural: str, name: str) -> Failure:
    text = f'{_qualified(group, plural)} "{name}" already exists'
    return Failure(409, "AlreadyExists", text, _about(group, plural, name))


CHANGED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(group: str, plural: str, name: str, why: str = CHANGED) -> Failure:
    text = f'Operation cannot be fulfilled on {_qualified(group, plural)} "{name}": {why}'
    return Failure(409, "Conflict", text, _about(group, plural, name))


def invalid(group: str, kind: str, name: str, *errors: FieldError) -> Failure:
    errors = errors[:MOST_CAUSES]
    # Each text once, though every cause is listed.
    texts = list(dict.fromkeys(f"{each.field}: {each.message}" for each in errors))
    # Kubernetes brackets several errors and not one.
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = _about(group, kind, name)
    details["causes"] = [{"reason": each.type, "message": each.message, "field": each.field} for each in errors]
    return Failure(422, "Invalid", f'{_qualified(group, kind)} "{name}" is invalid: {joined}', details)


def options_invalid(kind: str, *errors: FieldError) -> Failure:
    """Invalid options of a request: `kind` is CreateOptions, ListOptions and so on."""
    return invalid("meta.k8s.io", kind, "", *errors)


def gone(message: str) -> Failure:
    return Failure(410, "Expired", message)


def forbidden(group: str, plural: str, name: str, why: str) -> Failure:
    named = f' "{name}"' if name else ""
    text = f"{_qualified(group, plural)}{named} is forbidden: {why}"
    return Failure(403, "Forbidden", text, _about(group, plural, name))


def unauthorized() -> Failure:
    return Failure(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> Failure:
    return Failure(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def unsupported_media_type(accepted: Sequence[str]) -> Failure:
    text = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return Failure(415, "UnsupportedMediaType", text)


def unknown_patch_type() -> Failure:
    return Failure(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def too_large(limit_bytes: int) -> Failure:
    return Failure(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit_bytes}")


def too_many_requests(message: str, retry_after_s: int) -> Failure:
    return Failure(429, "TooManyRequests", message, retry_after_s=retry_after_s)


def not_implemented(what: str) -> Failure:
    return Failure(501, "NotImplemented", what)


def internal(message: str) -> Failure:
    return Failure(500, "InternalError", f"Internal error occurred: {message}", {"causes": [{"message": message}]})
