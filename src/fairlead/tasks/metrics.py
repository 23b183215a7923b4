"""Metrics of tasks: by kind and task, and never by target or error, so that their number stays bounded."""

import contextlib
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from fairlead.model.times import parse_time_or_none
from fairlead.tasks.spec import Task

MOST_TASKS: Final = 1000
"""Tasks with series of their own; more are only counted."""


class TaskMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.writes = Counter(
            "fairlead_tasks_writes_total", "Writes of the tasks controller.", ["intent", "outcome"], registry=registry
        )

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(name, text, ["kind", "task"], registry=registry)

        self._rounds = gauge("fairlead_task_rounds_done", "Rounds done.")
        self._succeeded = gauge("fairlead_task_last_round_succeeded", "1 if the last round succeeded.")
        self._actors = gauge("fairlead_task_actors", "Agents in the running round.")
        self._created = gauge("fairlead_task_created_seconds", "When it was created.")
        self.reports = Counter(
            "fairlead_task_reports_total", "Reports posted by agents, by outcome.", ["outcome"], registry=registry
        )
        self._known: set[tuple[str, str]] = set()

    def observe(self, kind: str, task: Task) -> None:
        labels = kind, task.metadata.name
        if labels not in self._known and len(self._known) >= MOST_TASKS:
            return
        self._known.add(labels)
        self._rounds.labels(*labels).set(task.status.done_round or 0)
        self._actors.labels(*labels).set(len(task.status.actors))
        if task.status.last_round_status is not None:
            self._succeeded.labels(*labels).set(task.status.last_round_status == "succeed")
        else:
            with contextlib.suppress(KeyError):  # of a predecessor of this name
                self._succeeded.remove(*labels)
        if (created := parse_time_or_none(task.metadata.creation_timestamp)) is not None:
            self._created.labels(*labels).set(created.timestamp())

    def forget(self, kind: str, name: str) -> None:
        if (kind, name) not in self._known:
            return
        self._known.discard((kind, name))
        for gauge in (self._rounds, self._succeeded, self._actors, self._created):
            with contextlib.suppress(KeyError):  # not every gauge has had a value
                gauge.remove(kind, name)
