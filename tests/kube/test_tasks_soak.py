"""A tasks controller killed, and tasks deleted, at their writes: the short form of `scripts/soak tasks`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rigs.kube.servers import Rig
from tests.soak.tasks import soak, start


# Killed twice at each write of a phase; a busy machine takes its time.
@pytest.mark.timeout(600)
async def test_s38_to_s47_killed_deleted_or_cut_off_at_a_write_leaves_one_carrier_and_in_the_end_none(
    new_rig: Callable[[], Rig], tmp_path: Path
) -> None:
    story, wrong = await soak(
        start(new_rig()), tmp_path, ("removal",), modes=("kill", "recreate", "outage"), outage_s=5.0
    )
    assert wrong == []
    assert sum(story.kills.values()) == 4, story.kills
    assert len(story.recreated) >= 2, story.recreated
    assert len(story.conflicts) >= 6, "every first status of the whole life"
    assert list(story.outages) == ["removal"]
