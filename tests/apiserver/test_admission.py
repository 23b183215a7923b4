"""What is done to objects before they are judged, where it takes time."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fairlead.apiserver.admission import webhooks
from fairlead.apiserver.admission.webhooks import Hook
from fairlead.apiserver.embedded import OURSELVES, Embedded, embedded
from fairlead.apiserver.failures import Failure
from fairlead.apiserver.heavy import LIGHT_BYTES
from fairlead.apiserver.registry.attributes import AdmissionAttributes, Write
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.request.bodies import Sent
from fairlead.apiserver.request.options import Options
from fairlead.cluster.clock import RealClock


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with embedded(tmp_path, RealClock()) as started:
        yield started


def resource(cluster: Embedded, plural: str) -> Resource:
    found = cluster.server.rest.resources.find("", "v1", plural)
    assert found is not None
    return found


def write(resource: Resource) -> Write:
    return Write(resource, "default" if resource.namespaced else "", "", Options(OURSELVES))


async def create(cluster: Embedded, plural: str, name: str, **rest: object) -> dict[str, dict[str, object]]:
    body = {"metadata": {"name": name}, **rest}
    made = await cluster.server.rest.create(write(resource(cluster, plural)), Sent(body))
    found: dict[str, dict[str, object]] = msgspec.json.decode(made)
    return found


async def test_a_pod_that_comes_before_the_account_of_its_namespace_waits_for_it(cluster: Embedded) -> None:
    pod = asyncio.create_task(create(cluster, "pods", "early", spec={"containers": [{"name": "a", "image": "a"}]}))
    await asyncio.sleep(0)
    assert not pod.done()
    await create(cluster, "serviceaccounts", "default")
    assert (await pod)["spec"]["serviceAccountName"] == "default"


async def test_an_account_that_somebody_named_and_is_not_there_is_not_waited_for(cluster: Embedded) -> None:
    spec = {"serviceAccountName": "nobody", "containers": [{"name": "a", "image": "a"}]}
    with pytest.raises(Failure, match='serviceaccount "nobody" not found'):
        await create(cluster, "pods", "lost", spec=spec)


async def test_conditions_of_webhooks_are_evaluated_on_large_objects_beside_the_loop(
    cluster: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds, threads = webhooks._conditions_hold, []

    def noted(hook: Hook, attempt: AdmissionAttributes) -> bool:
        threads.append(threading.current_thread().name)
        return holds(hook, attempt)

    monkeypatch.setattr(webhooks, "_conditions_hold", noted)
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
    hook = {
        "name": "a.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": [rule],
        "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "matchConditions": [{"name": "never", "expression": "object.data.exists(key, key == 'none')"}],
    }  # fmt: skip
    rest = cluster.server.rest
    configurations = rest.resources.find("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations")
    assert configurations is not None
    await rest.create(write(configurations), Sent({"metadata": {"name": "w"}, "webhooks": [hook]}))
    await create(cluster, "configmaps", "small", data={"a": "b"})
    assert threads == [threading.current_thread().name]
    large = {"metadata": {"name": "large"}, "data": {"a": "x" * LIGHT_BYTES}}
    await rest.create(write(resource(cluster, "configmaps")), Sent(large, msgspec.json.encode(large)))
    assert threads[1].startswith("heavy")
