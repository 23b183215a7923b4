"""The short form of `scripts/soak admission`."""

from pathlib import Path

from tests.kube.conftest import rig as rig
from tests.rigs.kube.servers import Rig
from tests.soak import admission


async def test_s72_s77_renewed_certificates_and_ended_replicas_fail_no_review(rig: Rig, tmp_path: Path) -> None:
    found = await admission.run(rig.kubeconfig(), tmp_path, seconds=90, rate=20, renewals=1, kills=1)
    assert (found.failed, found.problems) == (0, [])
    assert found.reviews > 100
    assert (found.renewals >= 1, found.kills) == (True, 1)
    assert found.goes_by_policy, (
        f"killed, a replica fails what is in flight, by policy, and nothing else: {found.killed}"
    )
