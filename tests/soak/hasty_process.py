"""A server with a bug on purpose: it acknowledges writes before they are committed. The judge must find it out.

`python -m tests.soak.hasty_process FOLDER PORT PARENT`, like `tests.contract.served`.
"""

import asyncio
import sys

from fairlead.apiserver.storage.store import Store
from tests.contract.served import run

LATE_S = 0.3


def hurry() -> None:
    """Whoever waits for a commit is told at once that it is done; it is done a while later."""
    finish = Store._finish_commit

    def finish_commit(self: Store) -> None:
        commit = self._commit
        if commit is not None and not commit.done():
            commit.set_result(None)
        asyncio.get_running_loop().call_later(LATE_S, finish, self)

    Store._finish_commit = finish_commit  # type: ignore[method-assign]


if __name__ == "__main__":
    hurry()
    run(sys.argv[1:])
