"""The mirror against a real server that is cut off, compacted and restarted: the short form of `scripts/soak watch`."""

from collections.abc import Callable

import pytest

from tests.rigs.kube.servers import Rig
from tests.soak.watch import NAMESPACE, torture


@pytest.mark.parametrize("stream_lists", [pytest.param(True, id="streamed list"), pytest.param(False, id="paged list")])
async def test_mirror_ends_equal_to_a_fresh_list_whatever_happens_to_its_watch(
    new_rig: Callable[[], Rig], stream_lists: bool
) -> None:
    rig = new_rig().start(watch_list=stream_lists)
    rig.create_namespace(NAMESPACE)
    assert await torture(rig, objects=5000, rounds=5, stream_lists=stream_lists, seed=7) == []
