"""Statuses: only what has changed is written, and conditions keep the time of their last change."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from fairlead.local.controllers.spec import Json, Workload
from fairlead.model.intents import Intent, patch_status
from fairlead.model.kinds import Kind
from fairlead.model.times import rfc3339


def plan_status(kind: Kind[Any], thing: Workload, desired: Mapping[str, Any]) -> list[Intent]:
    """The patch that makes the status so, if it is not; None removes a field, as Kubernetes leaves out zeroes."""
    changed = {name: value for name, value in desired.items() if thing.status.get(name) != value}
    return [patch_status(kind, thing.metadata, changed)] if changed else []


def condition_of(conditions: Iterable[Json], kind: str) -> Json | None:
    return next((found for found in conditions if found["type"] == kind), None)


def with_condition(
    conditions: Iterable[Json],
    kind: str,
    status: str,
    reason: str,
    message: str,
    now: datetime,
    *,
    updated: bool = False,
    more: Mapping[str, Any] | None = None,
) -> list[Json]:
    """Replaced if its status or reason is another; `updated` is for kinds that also say when they last looked."""
    conditions = list(conditions)
    held = condition_of(conditions, kind)
    if held is not None and held["status"] == status and held.get("reason", "") == reason:
        return conditions
    since = held["lastTransitionTime"] if held is not None and held["status"] == status else rfc3339(now)
    fresh: Json = {"type": kind, "status": status, "lastTransitionTime": since, **(more or {})}
    if updated:
        fresh["lastUpdateTime"] = rfc3339(now)
    fresh |= {name: value for name, value in (("reason", reason), ("message", message)) if value}
    return [*without_condition(conditions, kind), fresh]


def without_condition(conditions: Iterable[Json], kind: str) -> list[Json]:
    return [found for found in conditions if found["type"] != kind]
