"""What can be watched of requests from outside."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class RequestMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.unfinished = Gauge(
            "fairlead_schedule_requests_unfinished",
            "Requests that are not finished, by phase.",
            ["phase"],
            registry=registry,
        )
        self.broken = Counter(
            "fairlead_schedule_requests_broken_total",
            "Times a request could not be dealt with; the others went on.",
            registry=registry,
        )
        self.reached = Counter(
            "fairlead_schedule_requests_total", "How often a request reached a phase.", ["phase"], registry=registry
        )
