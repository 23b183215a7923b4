"""Spans around writes and reconciliations; without an exporter they cost nothing."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from opentelemetry import trace

_tracer = trace.get_tracer("fairlead")
_NONE: AbstractContextManager[Any] = nullcontext()


def span(name: str, **attributes: str) -> AbstractContextManager[Any]:
    # Until somebody sets a provider, the library's own stand-in makes and drops a span object every time.
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return _NONE
    return _tracer.start_as_current_span(name, attributes=attributes)
