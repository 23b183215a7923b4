"""One OpenTelemetry trace per pod generation: what is done for it, here and on its base, whoever does it.

The trace's number comes from the pod's UID and generation, so that another replica, or this one after a crash, goes on
with the same trace. `traceparent` (W3C) goes to the base with every call inside a span.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from fairlead.nodes.spec import KubeletPod

_tracer = trace.get_tracer("fairlead.modules")


def parent_of(pod: KubeletPod) -> SpanContext:
    """The root of the trace of this generation of the pod."""
    digest = hashlib.sha256(f"{pod.uid}/{pod.metadata.generation}".encode()).digest()
    return SpanContext(
        trace_id=int.from_bytes(digest[:16], "big") or 1,
        span_id=int.from_bytes(digest[16:24], "big") or 1,
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )


@contextmanager
def module_span(name: str, pod: KubeletPod, module: str) -> Iterator[None]:
    """A span of the pod's trace; calls to the base inside it bear its number."""
    context = trace.set_span_in_context(NonRecordingSpan(parent_of(pod)))
    attributes = {"k8s.pod.uid": pod.uid, "k8s.pod.name": pod.metadata.name, "module": module}
    with _tracer.start_as_current_span(name, context=context, attributes=attributes):
        yield


def traceparent() -> str:
    """Of the span that is current; nothing where there is none."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
