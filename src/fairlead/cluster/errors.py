"""The errors of a call to the API server.

    ClusterError
    ├── Refused                     the server rejected the request; sending the same again is pointless
    │   ├── BadRequest    400       the request is not well-formed
    │   ├── Unauthorized  401       no valid credentials
    │   ├── Forbidden     403       not allowed
    │   ├── NotFound      404
    │   ├── AlreadyExists 409
    │   ├── Conflict      409       the object has changed, or its UID is another
    │   ├── Gone          410       the version asked for is compacted away: list again
    │   ├── Invalid       422       with the fields and what was wrong with each
    │   └── Unsupported   405 406 413 415
    ├── Temporary                   the same request may pass later
    │   ├── TooManyRequests 429     with the server's Retry-After
    │   └── Unavailable   5xx       or no whole answer at all: refused, reset, timed out, cut short
    ├── NotLeader                   our lease ran out before the bytes left; nothing was sent
    └── ConfigurationError          the kubeconfig or service account cannot be used

Raised by `cluster.client`, caught where something better than failing can be done. Messages name the call.
"""

import msgspec

from fairlead.model.undecodable import UNDECODABLE as UNDECODABLE


class ClusterError(Exception):
    """A call to the cluster failed."""


class ConfigurationError(ClusterError):
    """The kubeconfig or service account cannot be used; the message says what to change."""


class NotLeader(ClusterError):
    """The lease that allows writing has run out; nothing was sent."""


class Cause(msgspec.Struct, frozen=True):
    field: str = ""
    message: str = ""
    reason: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[Cause, ...] | None = None
    retry_after_seconds: int | None = None


class Status(msgspec.Struct, frozen=True):
    """The body of an error answer."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class ApiError(ClusterError):
    def __init__(self, call: str, status: Status) -> None:
        code = f"{status.code} " if status.code else ""
        super().__init__(f"{call}: {code}{status.reason or 'Unknown'}: {status.message}")
        self.call = call
        self.status = status

    @property
    def causes(self) -> tuple[Cause, ...]:
        return (self.status.details.causes or ()) if self.status.details else ()


class Refused(ApiError):
    """The server rejected the request."""


class BadRequest(Refused):
    pass


class Unauthorized(Refused):
    pass


class Forbidden(Refused):
    pass


class NotFound(Refused):
    pass


class AlreadyExists(Refused):
    pass


class Conflict(Refused):
    pass


class Gone(Refused):
    pass


class Invalid(Refused):
    pass


class Unsupported(Refused):
    pass


class Temporary(ApiError):
    """The same request may pass later, not before `retry_after_s` where the server sent one."""

    def __init__(self, call: str, status: Status, retry_after_s: float | None = None) -> None:
        super().__init__(call, status)
        self.retry_after_s = retry_after_s


class TooManyRequests(Temporary):
    pass


class Unavailable(Temporary):
    """No whole answer. `may_have_happened`: the server may still have carried the write out."""

    def __init__(
        self, call: str, status: Status, retry_after_s: float | None = None, *, may_have_happened: bool = True
    ) -> None:
        super().__init__(call, status, retry_after_s)
        self.may_have_happened = may_have_happened


_BY_CODE: dict[int, type[Refused]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
}

# Status bodies are small; more than this is quoted only in part so that a log line stays a line.
_QUOTED = 400


def error_from_answer(call: str, code: int, body: bytes, retry_after: str | None) -> ApiError:
    """The error an answer of 400 or more stands for, whatever its body looks like."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except UNDECODABLE:
        # Proxies and panics answer in plain text or HTML.
        status = Status(message=body[:_QUOTED].decode("utf-8", "replace").strip())
    if status.code != code:
        status = msgspec.structs.replace(status, code=code)
    delay_s = _delay_s(status, retry_after)
    if code == 429:
        return TooManyRequests(call, status, delay_s)
    if code >= 500:
        return Unavailable(call, status, delay_s)
    if code == 409 and status.reason == "AlreadyExists":
        return AlreadyExists(call, status)
    return _BY_CODE.get(code, Unsupported)(call, status)


def error_from_status(call: str, status: Status) -> ApiError:
    """The error inside a watch stream's ERROR event."""
    return error_from_answer(call, status.code or 500, msgspec.json.encode(status), None)


def no_answer(call: str, why: str, *, may_have_happened: bool) -> Unavailable:
    return Unavailable(call, Status(message=why, reason="NoAnswer"), may_have_happened=may_have_happened)


def _delay_s(status: Status, retry_after: str | None) -> float | None:
    if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
        return float(retry_after)
    if status.details and status.details.retry_after_seconds:
        return float(status.details.retry_after_seconds)
    return None
