"""The status of JobQueues: what their jobs use and how many wait. Written by the leader when it has changed."""

from collections.abc import Iterable

import msgspec
import structlog
from prometheus_client import Counter

from fairlead.jobs.order import Cluster, PendingJob, amount_text
from fairlead.jobs.spec import JOB_QUEUES, JobQueue, QueueSpec, QueueStatus, read_queue
from fairlead.jobs.status_patches import merge_patch
from fairlead.model.intents import PatchStatus, RecordEvent, event

log = structlog.get_logger("fairlead.jobs")


def plan_queues(
    queues: Iterable[JobQueue], cluster: Cluster, pending: Iterable[PendingJob], running: Iterable[PendingJob]
) -> list[PatchStatus]:
    """The statuses that are to be written."""
    waiting, holding = [each.queue for each in pending], [each.queue for each in running]
    intents = []
    for queue in queues:
        name = queue.metadata.name
        status = QueueStatus(
            used={
                resource: amount_text(resource, amount)
                for resource, amount in cluster.used.get(name, {}).items()
                if amount
            },
            share=round(cluster.queue_share(name), 4),
            pending=waiting.count(name),
            running=holding.count(name),
        )
        written = {"used": {}, "share": 0, "pending": 0, "running": 0, **msgspec.to_builtins(status)}
        if patch := merge_patch(queue.status, written):
            intents.append(PatchStatus(kind=JOB_QUEUES, name=name, status=patch))
    return intents


class UnreadableQueues:
    """Queues with rules that cannot be read: each problem is logged, counted and reported on the queue once."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._known: dict[str, RecordEvent] = {}

    def report(self, queues: Iterable[JobQueue]) -> list[RecordEvent]:
        """The events that are to be recorded."""
        found = {queue.metadata.key: each for queue in queues if (each := _problem_event(queue)) is not None}
        new = [each for key, each in found.items() if self._known.get(key) != each]
        for each in new:
            self._counter.labels(JOB_QUEUES.name).inc()
            log.warning("queue cannot be read", queue=each.regarding.name, problem=each.note)
        self._known = found
        return new


def _problem_event(queue: JobQueue) -> RecordEvent | None:
    problem = read_queue(queue)
    if isinstance(problem, QueueSpec):
        return None
    # Its version changes whenever its status does, which is no new problem.
    about = msgspec.structs.replace(queue.metadata, resource_version="")
    note = f"JobQueue cannot be read as it is: {problem}"
    return event(JOB_QUEUES, about, "Unreadable", note, action="Reading", warning=True)
