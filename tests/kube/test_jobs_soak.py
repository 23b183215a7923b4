"""TYJobs under trouble on a real server: the short form of `scripts/soak jobs`, and proof of its judge."""

from collections.abc import Callable

import pytest

from tests.rigs.kube.servers import Rig
from tests.soak.jobs import soak
from tests.soak.scheduler import start


# Each fail-over is as long as a lease, and a busy machine takes its time; two hundred are in the long form.
@pytest.mark.timeout(900)
def test_s60_whatever_happens_gangs_are_whole_pods_are_in_their_places_and_jobs_go_on(
    new_rig: Callable[[], Rig],
) -> None:
    assert soak(start(new_rig()), nodes=6, kills=20, freezes=1, losses=2, jobs=1, seed=11, give_up_leases=True) == []


@pytest.mark.parametrize(
    ("bug", "said"),
    [
        pytest.param("part", "places of a quorum", id="part of a gang"),
        pytest.param("twins", "had two leaders", id="two leaders"),
        pytest.param("stray", "which is not its place", id="a pod elsewhere"),
    ],
)
def test_the_judge_catches_a_planted_bug(new_rig: Callable[[], Rig], bug: str, said: str) -> None:
    wrong = soak(
        start(new_rig()), nodes=6, kills=0, freezes=0, losses=0, jobs=6, seed=2, bug=bug, share=0.0, patience_s=5.0
    )
    assert any(said in line for line in wrong), wrong
