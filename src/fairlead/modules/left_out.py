"""What is longer than its bound, and therefore cut: counted each time, and logged at a pace."""

from collections.abc import Callable

import structlog
from prometheus_client import CollectorRegistry, Counter

from fairlead.cluster.clock import Clock
from fairlead.web.limits import Limits

log = structlog.get_logger("fairlead.modules")

# One line in so many seconds for each base.
AGAIN_S = 600.0

LeftOut = Callable[[str, str, int], None]
"""Of what, of which base, and how many entries were left out."""


def count_left_out(registry: CollectorRegistry, clock: Clock) -> LeftOut:
    counter = Counter(
        "fairlead_module_entries_left_out_total",
        "Lists of a base that were cut at their bound, by list (modules, stats).",
        ["list"],
        registry=registry,
    )
    lines = Limits(1 / AGAIN_S, 1)

    def left_out(what: str, of: str, count: int) -> None:
        counter.labels(what).inc()
        if not lines.take(f"{what} {of}", clock.elapsed_s()):
            log.warning("list cut at its bound", list=what, of=of, left_out=count)

    return left_out


def ignore(what: str, of: str, count: int) -> None:
    """Counts and logs nothing."""
