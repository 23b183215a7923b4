"""The patch that turns the status of a job or a queue, as it is stored, into another. Pure."""

from typing import Any

import msgspec

from fairlead.jobs.spec import JobStatus


def to_json(status: JobStatus) -> dict[str, Any]:
    # By way of JSON: lists, as they come back, and no tuples, which would never be equal to them.
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(status))
    # What a column or a reader needs is there from the start, also while it is as by default.
    return {
        "stage": status.stage,
        "scheduleState": status.schedule_state,
        "restarts": status.restarts,
        "readyWorkers": status.ready_workers,
        **found,
    }


def merge_patch(before: Any, after: dict[str, Any]) -> dict[str, Any]:
    """What to send as a merge patch so that what is stored becomes `after`."""
    if not isinstance(before, dict):
        return after
    patch: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        held = before.get(name)
        if isinstance(value, dict) and isinstance(held, dict):
            if part := merge_patch(held, value):
                patch[name] = part
        elif held != value or name not in before:
            patch[name] = value
    return patch
