"""Every answer of 400 or more becomes the one error that says what it means."""

import json
from typing import Any

import pytest

from fairlead.cluster.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Cause,
    ClusterError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Refused,
    Status,
    Temporary,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Unsupported,
    error_from_answer,
    error_from_status,
    no_answer,
)
from fairlead.testing.scripted_server import status_object

ASKED = "GET /api/v1/pods"


def body(code: int, reason: str = "", message: str = "", **details: Any) -> bytes:
    return json.dumps(status_object(code, reason, message, **details)).encode()


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        pytest.param(400, "BadRequest", BadRequest, id="bad request"),
        pytest.param(401, "Unauthorized", Unauthorized, id="unauthorized"),
        pytest.param(403, "Forbidden", Forbidden, id="forbidden"),
        pytest.param(404, "NotFound", NotFound, id="not found"),
        pytest.param(405, "MethodNotAllowed", Unsupported, id="method not allowed"),
        pytest.param(406, "NotAcceptable", Unsupported, id="not acceptable"),
        pytest.param(409, "AlreadyExists", AlreadyExists, id="already exists"),
        pytest.param(409, "Conflict", Conflict, id="conflict"),
        pytest.param(410, "Gone", Gone, id="gone"),
        pytest.param(410, "Expired", Gone, id="expired"),
        pytest.param(413, "RequestEntityTooLarge", Unsupported, id="too large"),
        pytest.param(415, "UnsupportedMediaType", Unsupported, id="media type"),
        pytest.param(422, "Invalid", Invalid, id="invalid"),
        pytest.param(429, "TooManyRequests", TooManyRequests, id="too many"),
        pytest.param(500, "InternalError", Unavailable, id="internal"),
        pytest.param(503, "ServiceUnavailable", Unavailable, id="unavailable"),
        pytest.param(504, "Timeout", Unavailable, id="timeout"),
    ],
)
def test_an_answer_has_one_meaning(code: int, reason: str, expected: type[ApiError]) -> None:
    error = error_from_answer(ASKED, code, body(code, reason, "why not"), None)
    assert type(error) is expected
    assert isinstance(error, Temporary if code == 429 or code >= 500 else Refused)
    assert str(error) == f"{ASKED}: {code} {reason}: why not"


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"<html>Bad Gateway</html>", id="a proxy's page"),
        pytest.param(b'{"kind": "Status", "mess', id="half"),
        pytest.param(b"[]", id="another shape"),
        pytest.param(b'{"message": "\xff\xfe"}', id="not UTF-8 inside JSON"),
        pytest.param(b"\xff\xfe\x00", id="not text"),
        pytest.param(b'{"code": "many"}', id="a field of another type"),
        pytest.param(b"null", id="null"),
    ],
)
@pytest.mark.parametrize(("code", "expected"), [(403, Forbidden), (502, Unavailable), (429, TooManyRequests)])
def test_a_body_that_is_no_status_changes_only_the_words(raw: bytes, code: int, expected: type[ApiError]) -> None:
    error = error_from_answer(ASKED, code, raw, None)
    assert (type(error), error.status.code) == (expected, code)


def test_a_long_page_is_quoted_in_part() -> None:
    error = error_from_answer(ASKED, 502, b"<p>" * 100_000, None)
    assert len(str(error)) < 500


def test_the_code_of_the_answer_beats_the_code_in_the_body() -> None:
    error = error_from_answer(ASKED, 503, body(404, "NotFound"), None)
    assert (type(error), error.status.code) == (Unavailable, 503)


def test_invalid_names_each_field_and_its_fault() -> None:
    causes = [{"field": "spec.replicas", "reason": "FieldValueInvalid", "message": "must be at least 0"}]
    error = error_from_answer(ASKED, 422, body(422, "Invalid", causes=causes), None)
    assert error.causes == (Cause("spec.replicas", "must be at least 0", "FieldValueInvalid"),)


@pytest.mark.parametrize("details", [{}, {"causes": None}, {"name": "a"}], ids=["none", "null", "other details"])
def test_no_causes_is_an_empty_tuple(details: dict[str, Any]) -> None:
    assert error_from_answer(ASKED, 422, body(422, "Invalid", **details), None).causes == ()


@pytest.mark.parametrize(
    ("header", "details", "expected_s"),
    [
        pytest.param(None, {}, None, id="not said"),
        pytest.param("7", {}, 7.0, id="header"),
        pytest.param(None, {"retryAfterSeconds": 3}, 3.0, id="details"),
        pytest.param("7", {"retryAfterSeconds": 3}, 7.0, id="both: header"),
        pytest.param("Wed, 21 Oct 2026 07:28:00 GMT", {}, None, id="a date is not worth parsing"),
        pytest.param("Wed, 21 Oct 2026 07:28:00 GMT", {"retryAfterSeconds": 3}, 3.0, id="a date, and details"),
        pytest.param("-1", {}, None, id="negative"),
        pytest.param("²", {}, None, id="a digit that is no number"),
        pytest.param("soon", {}, None, id="words"),
    ],
)
@pytest.mark.parametrize("code", [429, 503])
def test_the_delay_the_server_asks_for(
    code: int, header: str | None, details: dict[str, Any], expected_s: float | None
) -> None:
    error = error_from_answer(ASKED, code, body(code, **details), header)
    assert isinstance(error, Temporary)
    assert error.retry_after_s == expected_s


def test_an_error_event_is_read_like_an_answer() -> None:
    assert isinstance(error_from_status(ASKED, Status(code=410, reason="Expired")), Gone)
    assert isinstance(error_from_status(ASKED, Status(message="something")), Unavailable)


def test_no_answer_says_whether_a_write_may_have_happened() -> None:
    error = no_answer("POST /x", "reset", may_have_happened=True)
    assert (error.may_have_happened, error.retry_after_s) == (True, None)
    assert str(error) == "POST /x: NoAnswer: reset"


def test_everything_raised_is_a_cluster_error() -> None:
    assert issubclass(ApiError, ClusterError)
