"""A Replace intent on the real server: what `finalize` takes, and what happens when it comes twice."""

import random

from fairlead.cluster.clock import RealClock
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.recorder import Recorder
from fairlead.cluster.writer import Outcome, Writer
from fairlead.model.intents import Replace
from fairlead.model.kinds import CONFIG_MAPS, NAMESPACES
from tests.kube.clients import client
from tests.rigs.kube.servers import Rig


async def test_a_replace_at_its_version_happens_once(rig: Rig, namespace: str) -> None:
    async with client(rig) as api:
        clock, metrics = RealClock(), Metrics()
        recorder = Recorder(api, controller="fairlead.io/test", instance="t", clock=clock, metrics=metrics)
        writer = Writer(api, recorder, clock=clock, rng=random.random, metrics=metrics)
        made = await api.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"a": "1"}}, namespace)
        body = {
            "metadata": {"name": "c", "namespace": namespace, "resourceVersion": made.metadata.resource_version},
            "data": {"b": "2"},
        }
        intent = Replace(kind=CONFIG_MAPS, name="c", namespace=namespace, body=body)
        first, second = await writer.carry_out(intent), await writer.carry_out(intent)
        assert (first.outcome, second.outcome) == (Outcome.DONE, Outcome.CONFLICT)
        assert (await api.get(CONFIG_MAPS, "c", namespace)).data == {"b": "2"}


async def test_a_namespace_without_finalizers_goes(rig: Rig) -> None:
    rig.write("POST", "/api/v1/namespaces", {"metadata": {"name": "to-finalize"}})
    rig.write("DELETE", "/api/v1/namespaces/to-finalize")
    async with client(rig) as api:
        clock, metrics = RealClock(), Metrics()
        recorder = Recorder(api, controller="fairlead.io/test", instance="t", clock=clock, metrics=metrics)
        writer = Writer(api, recorder, clock=clock, rng=random.random, metrics=metrics)
        body = {"metadata": {"name": "to-finalize"}, "spec": {"finalizers": []}}
        done = await writer.carry_out(Replace(kind=NAMESPACES, name="to-finalize", body=body, subresource="finalize"))
        assert done.outcome is Outcome.DONE
        assert await api.find(NAMESPACES, "to-finalize") is None
