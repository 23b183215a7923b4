"""A job whose status is as it should be writes nothing."""

import msgspec

from fairlead.model.intents import PatchStatus
from fairlead.testing.clock import ManualClock
from tests.jobs.cluster import FakeCluster, Json, Together, turn
from tests.jobs.kit import spec_json


class StoringCluster(FakeCluster):
    """Stores JSON, as a server does: lists and no tuples."""

    def put(self, plural: str, thing: Json, *, is_late: bool = False) -> Json:
        return super().put(plural, msgspec.json.decode(msgspec.json.encode(thing)), is_late=is_late)


async def test_a_job_that_runs_writes_its_conditions_once() -> None:
    cluster = StoringCluster(ManualClock())
    cluster.add_node("n1")
    async with Together(cluster).leading():
        key = cluster.submit("train", spec_json(1))
        await turn(cluster, 10)
        assert cluster.status(key)["stage"] == "Running"
        assert cluster.status(key)["conditions"]
        cluster.sent.clear()
        # Something about its pods changes that the status does not tell.
        for name in list(cluster.pods("train")):
            pod = cluster.objects["pods"][f"lab/{name}"]
            pod["metadata"].setdefault("annotations", {})["touched"] = "1"
            cluster.put("pods", pod)
        await turn(cluster, 10)
        assert [each for each in cluster.sent if isinstance(each, PatchStatus)] == []
