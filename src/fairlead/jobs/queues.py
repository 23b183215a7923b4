"""The status of JobQueues: what their jobs use and how many wait. Written by the leader when it has changed."""

from collections.abc import Iterable

import msgspec

from fairlead.jobs.order import Cluster, PendingJob, amount_text
from fairlead.jobs.spec import JOB_QUEUES, JobQueue, QueueStatus
from fairlead.model.intents import PatchStatus


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
        held = queue.status if isinstance(queue.status, dict) else {}
        if held != written:
            gone = {each: None for each in held.get("used") or {} if each not in written["used"]}
            patch = {**written, "used": {**written["used"], **gone}}
            intents.append(PatchStatus(kind=JOB_QUEUES, name=name, status=patch))
    return intents
