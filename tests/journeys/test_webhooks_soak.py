"""Webhooks under load on the embedded API server: the short form of `scripts/soak webhooks`, and proof of its judge."""

from pathlib import Path

from fairlead.apiserver.embedded import embedded
from fairlead.cluster.clock import RealClock
from tests.soak.webhooks import Report, judged, soak


async def test_no_review_fails_while_certificates_are_renewed_a_replica_stops_and_the_bundle_is_reset(
    tmp_path: Path,
) -> None:
    async with embedded(tmp_path / "data", RealClock()) as cluster:
        report = await soak(cluster.kubeconfig, tmp_path, seconds=1.0, certificate_life_s=18.0)
    assert judged(report, least_certificates=2) == []
    assert (report.restarts, report.resets) == (1, 1)


def test_the_judge_asks_for_load_and_for_renewals() -> None:
    idle = Report(reviews=99, certificates={"a"})
    assert judged(idle, least_certificates=2) == [
        "only 99 writes were reviewed",
        "only 1 certificates were in use, wanted 2",
    ]
    assert judged(Report(reviews=100, certificates={"a", "b"}, wrong=["x"]), least_certificates=2) == ["x"]
