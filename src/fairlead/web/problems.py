"""The body of every error answer.

A handler raises a Problem; the dispatcher turns it, and whatever the cluster or a bug threw, into this shape. It must
never hold what the caller may not know.
"""

import math
from collections.abc import Mapping, Sequence

import msgspec

from fairlead.cluster.errors import ClusterError, Forbidden, NotFound, Temporary, Unauthorized

RETRY_S = 1.0


class FieldProblem(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What is wrong with one field; `index` counts the items of a list from 0."""

    index: int | None = None
    field: str = ""
    message: str


class Failure(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An error answer: the reason in one word, the message in a sentence."""

    is_succeed: bool
    reason: str
    message: str
    errors: tuple[FieldProblem, ...] = ()
    # Where the caller can ask later, when it is not known whether the request came through.
    request_id: str = ""


class Problem(Exception):
    """Answered with its status; `retry_after_s` becomes a Retry-After."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        errors: Sequence[FieldProblem] = (),
        retry_after_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        request_id: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.failure = Failure(
            is_succeed=False, reason=reason, message=message, errors=tuple(errors), request_id=request_id
        )
        self.headers = dict(headers or {})
        if retry_after_s is not None:
            self.headers["Retry-After"] = str(max(1, math.ceil(retry_after_s)))


def unauthorized(message: str) -> Problem:
    return Problem(401, "Unauthorized", message, headers={"WWW-Authenticate": 'Bearer realm="fairlead"'})


def too_large(most_bytes: int) -> Problem:
    return Problem(413, "TooLarge", f"the body is over {most_bytes} bytes: send it in several requests")


def from_cluster(problem: ClusterError) -> Problem:
    """The answer for our own errors with the cluster: never the caller's mistake, sometimes with a Retry-After."""
    if isinstance(problem, Temporary):
        message = f"the cluster gave an unexpected answer: {problem}"
        return Problem(503, "Unavailable", message, retry_after_s=problem.retry_after_s or RETRY_S)
    if isinstance(problem, Unauthorized | Forbidden):
        message = f"the cluster's roles do not allow Fairlead to do this; apply deploy/rbac: {problem}"
        return Problem(503, "Misconfigured", message, retry_after_s=30.0)
    if isinstance(problem, NotFound):
        message = f"a kind that Fairlead needs is not defined on the cluster; apply deploy/crds: {problem}"
        return Problem(503, "Misconfigured", message, retry_after_s=30.0)
    return Problem(502, "ClusterRefused", f"the cluster refused: {problem}")
