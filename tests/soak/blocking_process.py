"""The embedded API server with a fault: large requests hold its loop up, computing or doing nothing (`FAULT`).

Started by tests/contract/test_bad_input.py, to prove that the judge of `scripts/soak bad_input` sees both.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from fairlead.apiserver.heavy import LIGHT_BYTES, Heavy
from tests.contract import served

BLOCKED_S = 1.5


def compute() -> None:
    until_s = time.thread_time() + BLOCKED_S
    while time.thread_time() < until_s:
        pass


FAULTS: dict[str, Callable[[], None]] = {"computing": compute, "idle": lambda: time.sleep(BLOCKED_S)}


class Blocking(Heavy):
    async def run(self, size: int, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if size > LIGHT_BYTES:
            FAULTS[os.environ["FAULT"]]()
        return work(*args, **kwargs)


if __name__ == "__main__":
    Heavy.run = Blocking.run  # type: ignore[method-assign, assignment]
    served.run(sys.argv[1:])
