"""Structured logs: a line of JSON for machines, coloured text for a terminal. Set up once, by the composition root."""

import logging
import sys
from typing import Any, TextIO

import msgspec
import structlog
from aiohttp.http_exceptions import HttpProcessingError

from fairlead.settings import LogSettings


def start_logs(settings: LogSettings, stream: TextIO | None = None) -> None:
    stream = stream or sys.stderr
    as_text = settings.form == "text" or (settings.form == "auto" and stream.isatty())
    level = getattr(logging, settings.level.upper())
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if as_text:
        processors.append(_console(stream.isatty()))
    else:
        processors += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_json)]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    # What libraries say goes the same way, from warnings on.
    logging.basicConfig(stream=stream, level=max(level, logging.WARNING), format="%(levelname)s %(name)s %(message)s")
    logging.getLogger("aiohttp.server").addFilter(_is_ours)


def _is_ours(record: logging.LogRecord) -> bool:
    """A request that is no HTTP is its sender's mistake, and answered; the library would quote it, tokens and all."""
    problem = record.exc_info[1] if record.exc_info else None
    return not isinstance(problem, HttpProcessingError)


def _console(colors: bool) -> structlog.dev.ConsoleRenderer:
    """Text for people. Tracebacks are plain: those with the values of variables would show tokens."""
    return structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)


def _json(event: dict[str, Any], **_: Any) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()
