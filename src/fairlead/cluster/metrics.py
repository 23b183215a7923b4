"""The runtime's metrics, under the names Kubernetes components use where the meaning is the same.

One Metrics per process, made by the composition root and handed down; nothing here is global, so that tests
may have as many as they like.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)
_QUEUE_BUCKETS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10)


class Metrics:
    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        # client-go's
        self.requests = Counter(
            "rest_client_requests_total",
            "HTTP requests by status code, method and host; code <error> where no answer came.",
            ["code", "method", "host"],
            registry=registry,
        )
        self.request_seconds = Histogram(
            "rest_client_request_duration_seconds",
            "Time from asking to the whole answer, by verb and host.",
            ["verb", "host"],
            buckets=_REQUEST_BUCKETS,
            registry=registry,
        )
        # the workqueue's
        self.queue_depth = Gauge("workqueue_depth", "Keys waiting.", ["name"], registry=registry)
        self.queue_adds = Counter("workqueue_adds_total", "Keys added.", ["name"], registry=registry)
        self.queue_retries = Counter("workqueue_retries_total", "Keys added again later.", ["name"], registry=registry)
        self.queue_seconds = Histogram(
            "workqueue_queue_duration_seconds",
            "Time a key waited.",
            ["name"],
            buckets=_QUEUE_BUCKETS,
            registry=registry,
        )
        self.work_seconds = Histogram(
            "workqueue_work_duration_seconds",
            "Time a key was worked on.",
            ["name"],
            buckets=_QUEUE_BUCKETS,
            registry=registry,
        )
        # leader election's
        self.leader = Gauge(
            "leader_election_master_status", "1 while this process holds the lease.", ["name"], registry=registry
        )
        # our own
        self.reconciles = Counter(
            "fairlead_reconcile_total",
            "Reconciliations by outcome: done, wake, temporary, refused, permanent, bug.",
            ["controller", "outcome"],
            registry=registry,
        )
        self.mirror_objects = Gauge("fairlead_mirror_objects", "Objects held.", ["kind"], registry=registry)
        self.mirror_lists = Counter(
            "fairlead_mirror_lists_total", "Full lists, by way: stream or pages.", ["kind", "way"], registry=registry
        )
        self.mirror_breaks = Counter(
            "fairlead_mirror_breaks_total", "Watches that broke, by cause.", ["kind", "cause"], registry=registry
        )
        self.mirror_refused = Gauge(
            "fairlead_mirror_refused",
            "1 while the server does not let us follow a kind: a role is missing, or the kind.",
            ["kind"],
            registry=registry,
        )
        self.undecodable = Counter(
            "fairlead_mirror_undecodable_total", "Objects left out for not decoding.", ["kind"], registry=registry
        )
        self.writes = Counter(
            "fairlead_writes_total", "Intents by kind and outcome.", ["intent", "outcome"], registry=registry
        )
        self.write_retries = Counter("fairlead_write_retries_total", "Sends repeated.", ["intent"], registry=registry)
        self.events_dropped = Counter(
            "fairlead_events_dropped_total",
            "Events given up: too many waited, or the server would not take them.",
            registry=registry,
        )
