"""Tests of a group run on one worker, the groups before everybody else (a plugin of pytest-xdist's `--dist loadgroup`).

pytest-xdist writes a test's group into its id. From pytest 9.2 on an id cannot be changed, and every test is a group
of its own without a word (pytest-dev/pytest-xdist#1386). Here each worker writes down the groups it collected, in a
folder that the controller gives it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

FOLDER: Final = pytest.StashKey[str]()


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types here
    def schedule(self) -> None:
        if self.collection is None:
            self._groups = _read(Path(self.config.stash[FOLDER]))
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._groups.get(nodeid, nodeid)


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
    marks = ((item.nodeid, item.get_closest_marker("xdist_group")) for item in items)
    groups = {nodeid: str(mark.args[0]) for nodeid, mark in marks if mark is not None}
    Path(workerinput["groups"]).write_text(json.dumps(groups))
