"""A tasks controller killed, and tasks deleted, at their writes: the short form of `scripts/soak tasks`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rigs.kube.servers import Rig
from tests.soak.tasks import DUAL_STACK, MANIFESTS, soak


# Killed twice at each write of two phases; a busy machine takes its time.
@pytest.mark.timeout(600)
async def test_s38_to_s47_whatever_happens_at_a_write_there_is_one_carrier_and_in_the_end_none(
    new_rig: Callable[[], Rig], tmp_path: Path
) -> None:
    rig = new_rig().start(controller_manager=True, apiserver_flags=[DUAL_STACK], manifests=MANIFESTS)
    story, wrong = await soak(rig, tmp_path, phases=("finish", "removal"), outage_s=8)
    assert wrong == []
    assert sum(story.kills.values()) >= 6, story.kills
    assert len(story.recreated) >= 3, story.recreated
    assert len(story.conflicts) >= 2, story.conflicts
    assert set(story.outages) == {"finish", "removal"}
