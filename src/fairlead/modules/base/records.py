"""The base's memory of its modules and operations: states with their history, request ids, the journal on disk."""

import json
import os
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from fairlead.modules.base.artefact import Manifest
from fairlead.modules.base.workers import Worker
from fairlead.modules.spec import ACTIVATED, RESOLVED

MOST_OPERATIONS: Final = 10_000
OPERATION_MS: Final = 3_600_000
"""How long the outcome of an operation is kept."""
MOST_RECORDS: Final = 50


def epoch_ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


@dataclass(slots=True)
class Installed:
    """One module version on the base."""

    manifest: Manifest
    url: str
    folder: Path
    request: dict[str, Any]
    state: str = RESOLVED
    records: list[dict[str, Any]] = field(default_factory=list)
    worker: Worker | None = None
    restarts: int = 0
    is_leaving: bool = False
    in_flight: int = 0

    @property
    def key(self) -> str:
        return self.manifest.key

    @property
    def is_inproc(self) -> bool:
        return self.manifest.isolation == "inproc"

    def become(self, state: str, reason: str, at: datetime, message: str = "") -> None:
        self.state = state
        record = {"changeTime": epoch_ms(at), "state": state, "reason": reason, "message": message[:2000]}
        self.records = [*self.records, record][-MOST_RECORDS:]

    def brief(self) -> dict[str, Any]:
        """As `queryAllBiz` lists it."""
        return {
            "bizName": self.manifest.name,
            "bizState": self.state.lower(),
            "bizStateRecords": self.records,
            "bizVersion": self.manifest.version,
            "mainClass": self.manifest.entry,
            "webContextPath": self.manifest.context_path or "/",
        }

    def full(self) -> dict[str, Any]:
        """As an install answers."""
        return {**self.brief(), "identity": self.key, "priority": self.manifest.priority, "bizUrl": self.url}


@dataclass(slots=True)
class Operation:
    """An asynchronous command, by its request id."""

    request_id: str
    request: dict[str, Any]
    started_ms: int
    ended_ms: int = 0
    status: str = "EXECUTING"
    message: str = ""
    code: str = ""
    """Of a failure, where it has one of its own."""

    def shown(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "arkBizMeta": self.request,
            "elapsedTime": max(0, self.ended_ms - self.started_ms) if self.ended_ms else 0,
            "endTimestamp": self.ended_ms,
            "requestId": self.request_id,
            "startTime": self.started_ms,
            "startTimestamp": self.started_ms,
            "status": self.status,
            "threadName": "base",
        }
        if self.ended_ms:
            shown["endTime"] = self.ended_ms
        failure = {"message": self.message, "code": self.code}
        return shown | {name: value for name, value in failure.items() if value}


class Operations:
    """The last operations, the oldest forgotten first."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Operation] = OrderedDict()

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._known

    def get(self, request_id: str) -> Operation | None:
        return self._known.get(request_id)

    def add(self, operation: Operation) -> None:
        self._known[operation.request_id] = operation
        while (oldest := next(iter(self._known.values()))) is not operation and (
            len(self._known) > MOST_OPERATIONS
            or (oldest.ended_ms and operation.started_ms - oldest.ended_ms > OPERATION_MS)
        ):
            self._known.popitem(last=False)


class Journal:
    """Which modules there should be, so that a base that starts again has them again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, modules: Iterable[Installed]) -> None:
        entries = [{**each.request, "active": each.state == ACTIVATED} for each in modules if not each.is_leaving]
        scratch = self._path.with_suffix(".new")
        with scratch.open("w") as file:
            json.dump(entries, file)
            file.flush()
            os.fsync(file.fileno())
        scratch.rename(self._path)

    def read(self) -> list[dict[str, Any]]:
        """A journal that cannot be read is as good as none: the controller installs what is missing."""
        try:
            entries = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return []
        return [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
