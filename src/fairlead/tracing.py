"""OpenTelemetry: spans go nowhere and cost next to nothing until an endpoint is named."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace

from fairlead.settings import BadSettings


@contextmanager
def start_tracing(endpoint: str) -> Iterator[None]:
    """Send spans to an OTLP/HTTP endpoint while the block runs."""
    if not endpoint:
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise BadSettings("tracesTo: sending traces needs the extra: pip install 'fairlead[otel]'") from None
    provider = TracerProvider(resource=Resource.create({"service.name": "fairlead"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()
