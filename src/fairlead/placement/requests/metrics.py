"""What can be watched of requests from outside."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge


class RequestMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.unfinished = gauge(
            "fairlead_schedule_requests_unfinished", "Requests that are not finished, by phase.", ["phase"]
        )
        self.broken = counter(
            "fairlead_schedule_requests_broken_total", "Times a request could not be dealt with; the others went on."
        )
        self.reached = counter("fairlead_schedule_requests_total", "How often a request reached a phase.", ["phase"])
