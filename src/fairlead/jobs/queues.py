"""The status of JobQueues: what their jobs use and how many wait. Written by the leader when it has changed."""

from collections.abc import Iterable

import msgspec

from fairlead.jobs.order import Cluster, PendingJob
from fairlead.jobs.spec import JOB_QUEUES, JobQueue, QueueStatus
from fairlead.model.intents import PatchStatus
from fairlead.model.quantity import NANO
from fairlead.model.resources import CPU


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
                resource: _text(resource, amount) for resource, amount in cluster.used.get(name, {}).items() if amount
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


def _text(resource: str, billionths: int) -> str:
    """As a manifest would write it: cpu in thousandths, everything else in whole units."""
    if resource == CPU:
        milli = -(-billionths // 10**6)
        return f"{milli}m" if milli % 1000 else str(milli // 1000)
    return str(-(-billionths // NANO))
