"""Tests of a group run on one worker, the groups before everybody else (a plugin of pytest-xdist's `--dist loadgroup`).

The tests of groups have real servers and wait for them much of their time. A third worker and any further one, at a
lower priority, uses the processors meanwhile: it takes tests of no group only, so that it starts no servers.

pytest-xdist writes a test's group into its id. From pytest 9.2 on an id cannot be changed, and every test is a group
of its own without a word (pytest-dev/pytest-xdist#1386). Here each worker writes down the groups it collected, in a
folder that the controller gives it.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

FOLDER: Final = pytest.StashKey[str]()
GROUP_WORKERS: Final = 2
NICENESS: Final = 10


def _takes_groups(worker: str) -> bool:
    """By the name that pytest-xdist gives: gw0, gw1, and so on; what replaces a crashed worker has a new one."""
    return int(worker.removeprefix("gw")) < GROUP_WORKERS


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types here
    def schedule(self) -> None:
        if self.collection is None:
            self._groups = _read(Path(self.config.stash[FOLDER]))
            # Those with the most tests first; the small ones and the tests of no group fill what is left.
            self._order = [group for group, _ in Counter(self._groups.values()).most_common()]
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._groups.get(nodeid, nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        if (scope := self._next(node)) is not None:
            self.workqueue.move_to_end(scope, last=False)  # from where xdist takes it
            super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        if self.workqueue and self._next(node) is None:
            node.shutdown()
        else:
            super()._reschedule(node)

    def _next(self, node: Any) -> str | None:
        if self._takes_groups(node):
            waiting = (group for group in self._order if group in self.workqueue)
            return next(waiting, None) or next(iter(self.workqueue))
        return next((scope for scope in reversed(self.workqueue) if scope not in self._order), None)

    def _takes_groups(self, node: Any) -> bool:
        # Where crashed workers were replaced by others of new names, somebody must be left for the groups.
        return _takes_groups(node.gateway.id) or not any(_takes_groups(each.gateway.id) for each in self.nodes)


def _read(folder: Path) -> Mapping[str, str]:
    """Workers collect the same tests; xdist has checked it."""
    return json.loads(next(folder.iterdir()).read_text()) if any(folder.iterdir()) else {}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling | None:
    return GroupScheduling(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    config: pytest.Config = node.config
    if FOLDER not in config.stash:
        folder = TemporaryDirectory(prefix="groups")
        config.add_cleanup(folder.cleanup)
        config.stash[FOLDER] = folder.name
    node.workerinput["groups"] = str(Path(config.stash[FOLDER]) / node.gateway.id)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
    if workerinput is None or "groups" not in workerinput:
        return
    if not _takes_groups(workerinput["workerid"]):
        os.nice(NICENESS)
    marks = ((item.nodeid, item.get_closest_marker("xdist_group")) for item in items)
    groups = {nodeid: str(mark.args[0]) for nodeid, mark in marks if mark is not None}
    Path(workerinput["groups"]).write_text(json.dumps(groups))
