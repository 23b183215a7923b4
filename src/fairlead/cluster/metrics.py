"""The runtime's metrics, under the names Kubernetes components use where the meaning is the same.

One Metrics per process, made by the composition root and handed down; nothing here is global, so that tests
may have as many as they like.
"""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)
_QUEUE_BUCKETS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10)


class Metrics:
    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        # client-go's
        self.requests = counter(
            "rest_client_requests_total",
            "HTTP requests by status code, method and host; code <error> where no answer came.",
            ["code", "method", "host"],
        )
        self.request_seconds = histogram(
            "rest_client_request_duration_seconds",
            "Time from asking to the whole answer, by verb and host.",
            ["verb", "host"],
            buckets=_REQUEST_BUCKETS,
        )
        # the workqueue's
        self.queue_depth = gauge("workqueue_depth", "Keys waiting.", ["name"])
        self.queue_adds = counter("workqueue_adds_total", "Keys added.", ["name"])
        self.queue_retries = counter("workqueue_retries_total", "Keys added again later.", ["name"])
        self.queue_seconds = histogram(
            "workqueue_queue_duration_seconds", "Time a key waited.", ["name"], buckets=_QUEUE_BUCKETS
        )
        self.work_seconds = histogram(
            "workqueue_work_duration_seconds", "Time a key was worked on.", ["name"], buckets=_QUEUE_BUCKETS
        )
        # leader election's
        self.leader = gauge("leader_election_master_status", "1 while this process holds the lease.", ["name"])
        # our own
        self.reconciles = counter(
            "fairlead_reconcile_total",
            "Reconciliations by outcome: done, wake, temporary, refused, permanent, bug.",
            ["controller", "outcome"],
        )
        self.mirror_objects = gauge("fairlead_mirror_objects", "Objects held.", ["kind"])
        self.mirror_lists = counter(
            "fairlead_mirror_lists_total", "Full lists, by way: stream or pages.", ["kind", "way"]
        )
        self.mirror_breaks = counter("fairlead_mirror_breaks_total", "Watches that broke, by cause.", ["kind", "cause"])
        self.mirror_refused = gauge(
            "fairlead_mirror_refused",
            "1 while the server does not let us follow a kind: a role is missing, or the kind.",
            ["kind"],
        )
        self.undecodable = counter("fairlead_mirror_undecodable_total", "Objects left out for not decoding.", ["kind"])
        self.writes = counter("fairlead_writes_total", "Intents by kind and outcome.", ["intent", "outcome"])
        self.write_retries = counter("fairlead_write_retries_total", "Sends repeated.", ["intent"])
        self.events_dropped = counter(
            "fairlead_events_dropped_total", "Events given up: too many waited, or the server would not take them."
        )
