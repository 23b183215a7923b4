"""What is logged, and what must never be."""

import io

import pytest
import structlog

from fairlead.logs import start_logs
from fairlead.settings import LogSettings


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_shows_no_variables(form: str) -> None:
    stream = io.StringIO()
    kept = structlog.get_config()
    start_logs(LogSettings(form=form), stream)  # type: ignore[arg-type]
    try:
        _fail("".join(["a-token-", "that-is-secret"]))
    finally:
        structlog.configure(**kept)
    written = stream.getvalue()
    assert "ZeroDivisionError" in written
    assert "test_logs.py" in written
    assert "a-token-that-is-secret" not in written


def _fail(token: str) -> None:
    try:
        assert token
        _ = 1 / 0
    except ZeroDivisionError:
        structlog.get_logger().exception("a bug")
