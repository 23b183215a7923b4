"""`fairlead` for tests/soak/hostile.py: its arguments are the command's; `--bug NAME` before them plants a fault.

Each is one that the judge must find out; none depends on what guards the code itself has.
"""

import sys
from typing import Any

from fairlead.cli.main import cli
from fairlead.engine.gpu_requests import COUNT, MEMORY_MIB, MILLI
from fairlead.model.pod import SchedulerPod
from fairlead.placement.api.schedule_pod import SchedulePod
from fairlead.placement.loop import Loop
from fairlead.tasks.controller import TaskController


def brittle() -> None:
    """A number in an annotation is read with nothing around it, where the loop takes in what has changed."""
    drain = Loop._drain

    def drained(self: Loop, *subscriptions: Any) -> None:
        for pod in self.pods:
            for name in (MILLI, MEMORY_MIB, COUNT):
                int(pod.metadata.annotations.get(name, "0"))
        drain(self, *subscriptions)

    Loop._drain = drained  # type: ignore[method-assign,assignment]


def deaf() -> None:
    """Some ordinary pods are never seen to want a node."""
    wants = Loop._wants_node

    def wanting(self: Loop, pod: SchedulerPod) -> bool:
        return wants(self, pod) and not pod.metadata.name.startswith("ordinary-2")

    Loop._wants_node = wanting  # type: ignore[method-assign]


def rude() -> None:
    """A body that is not what was wanted is our own mistake."""

    async def post(self: SchedulePod, call: Any) -> Any:
        raise KeyError("podList")

    SchedulePod.post = post  # type: ignore[method-assign]


def careless() -> None:
    """A task is looked at as if its times could always be read; somebody is there to catch it."""
    reconcile = TaskController._reconcile

    async def reconciled(self: TaskController, key: str) -> Any:
        if "/hostile-" in key:
            raise ValueError("Invalid isoformat string: ''")
        return await reconcile(self, key)

    TaskController._reconcile = reconciled  # type: ignore[method-assign]


BUGS = {"brittle": brittle, "deaf": deaf, "rude": rude, "careless": careless}


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--bug"]:
        BUGS[arguments[1]]()
        arguments = arguments[2:]
    cli(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
