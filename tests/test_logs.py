"""What is logged, and what must never be."""

import asyncio
import io
import logging

import pytest
import structlog

from fairlead.logs import start_logs
from fairlead.settings import LogSettings
from fairlead.web.probes import served


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


@pytest.mark.parametrize(
    "request_text",
    [
        "GET / HTTP/1.1\r\nHost: x\r\nAuthorization : Bearer a-token\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a-token\0\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {'a-token' * 6000}\r\n\r\n",
        "GET /?t=a-token HTTP/9.9\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\na-token\r\n",
    ],
    ids=["space", "nul", "long", "version", "chunk"],
)
async def test_a_request_that_is_no_http_is_not_quoted(request_text: str, caplog: pytest.LogCaptureFixture) -> None:
    kept = structlog.get_config()
    start_logs(LogSettings(), io.StringIO())
    structlog.configure(**kept)
    async with served([], "127.0.0.1", 0) as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(request_text.encode())
        assert b" 400 " in await asyncio.wait_for(reader.readline(), 20)
        writer.close()
    assert "a-token" not in caplog.text
    logging.getLogger("aiohttp.server").error("a bug of ours", exc_info=ValueError("told"))
    assert "told" in caplog.text
