"""What the scheduler counts, under kube-scheduler's names, so that its dashboards and alerts work unchanged."""

from functools import partial

from prometheus_client import Counter, Gauge, Histogram

from fairlead.cluster.metrics import Metrics

_ALGORITHM_BUCKETS = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1)
_BOUND_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 30, 60, 300)


class PlacementMetrics:
    def __init__(self, metrics: Metrics) -> None:
        registry = metrics.registry
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self.attempts = counter(
            "scheduler_schedule_attempts_total",
            "Attempts to place a unit, by result: scheduled, unschedulable, error.",
            ["result", "profile"],
        )
        self.algorithm_seconds = histogram(
            "scheduler_scheduling_algorithm_duration_seconds", "Time to decide.", buckets=_ALGORITHM_BUCKETS
        )
        self.bound_seconds = histogram(
            "scheduler_pod_scheduling_sli_duration_seconds", "Time from first seen to bound.", buckets=_BOUND_BUCKETS
        )
        self.pending = gauge(
            "scheduler_pending_pods", "Units that wait, by queue: active, backoff, unschedulable.", ["queue"]
        )
        self.preemptions = counter("scheduler_preemption_attempts_total", "Attempts to preempt.")
        self.victims = histogram(
            "scheduler_preemption_victims", "Pods evicted for another.", buckets=(1, 2, 4, 8, 16, 32, 64)
        )
        self.unreadable = counter(
            "fairlead_unreadable_objects_total",
            "Times an object could not be read as it is, and was taken for what could be read of it.",
            ["kind"],
        )
        self.forecasts_unmatched = gauge(
            "fairlead_forecast_unmatched", "Forecasts of nodes, Services and workloads that are not there."
        )
        self.reservations = gauge("fairlead_reserved_places", "Places held for pods that do not exist yet.")
