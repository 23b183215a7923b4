"""Forecasts in a ConfigMap of the real server, and usage as metrics-server's API tells it, under the role we ship.

There is no metrics-server here: its two kinds are custom resources of the same group, names and shape.
"""

import json
import random
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.recorder import Recorder
from fairlead.cluster.writer import Writer
from fairlead.engine.forecast import Change
from fairlead.placement.forecasts.compose import forecaster, forecasts, sink_of
from fairlead.placement.forecasts.documents import Document
from fairlead.placement.forecasts.sources import SourceProblem
from fairlead.placement.forecasts.usage import MetricsServerUsage, Ring
from fairlead.settings import Settings, load
from tests.kube.clients import connection
from tests.kube.test_placement import MANIFESTS, make_node, make_pod, placed
from tests.kube.test_runtime import said, serving
from tests.rigs.kube.servers import DEPLOY, RUNTIME_RBAC, Rig, until

SETTINGS = {"forecast.source": "configmap", "forecast.deadlineS": 1, "forecast.forecaster.history": "metrics-server"}
CLOCK = RealClock()


@pytest.fixture(scope="module")
def rig(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A server of its own: roles and kinds of the whole cluster are made here."""
    with Rig(kube_programs, tmp_path_factory.mktemp("rig")) as own:
        yield own.start()


@pytest.fixture
def settings() -> Settings:
    return load(environment={}, flags=SETTINGS)


@pytest.fixture
def client(rig: Rig) -> Client:
    token = rig.service_account_token(manifests=(RUNTIME_RBAC, DEPLOY / "rbac" / "forecasts.yaml"))
    return Client(connection(rig, rig.kubeconfig(token)), clock=CLOCK)


def a_writer(client: Client) -> Writer:
    metrics = Metrics()
    recorder = Recorder(client, controller="fairlead", instance="test", clock=CLOCK, metrics=metrics)
    return Writer(client, recorder, clock=CLOCK, rng=random.random, metrics=metrics)


def of_node(name: str, value: float, now: datetime) -> Document:
    return Document("cpu", now, now + timedelta(seconds=900), value, 1.0, node=name)


async def test_what_is_written_to_the_config_map_is_read_from_it(client: Client, settings: Settings) -> None:
    async with client:
        reader = forecasts(settings, clock=CLOCK, registry=CollectorRegistry(), client=client)
        assert reader is not None
        await reader.refresh()
        assert "ConfigMap fairlead-system/fairlead-forecasts does not exist" in str(reader.problem())
        sink = sink_of(settings.forecast, settings.namespace, a_writer(client))
        now = datetime.now(UTC)
        for value in (2.0, 3.0):
            now = datetime.now(UTC)
            await sink.write([of_node("a", value, now), of_node("b", 1.0, now)])
            await reader.refresh()
            assert reader.problem() is None
            assert reader.current(now).nodes == {"a": Change((value - 1) * 1000), "b": Change(0.0)}
        with pytest.raises(SourceProblem, match="more than a ConfigMap holds"):
            await sink.write([of_node(f"node-{i}", 1.0, now) for i in range(10_000)])


def define(rig: Rig, plural: str, kind: str, scope: str) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    body = {
        "metadata": {
            "name": f"{plural}.metrics.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in for tests"},
        },
        "spec": {
            "group": "metrics.k8s.io",
            "scope": scope,
            "names": {"plural": plural, "kind": kind, "singular": kind.lower()},
            "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    made = rig.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
    assert made.status == 201, made.body
    path = f"/apis/metrics.k8s.io/v1beta1/{plural}"
    assert until(lambda: rig.request("GET", path).status == 200, 30)


async def test_usage_of_nodes_and_pods(rig: Rig, client: Client, settings: Settings) -> None:
    async with client:
        ring = Ring(60, 10)
        usage = MetricsServerUsage(client, ring, lambda namespace, pod: pod.rpartition("-")[0])
        with pytest.raises(SourceProblem, match=r"the cluster has no metrics\.k8s\.io: install metrics-server"):
            await usage.look(CLOCK.now())
        define(rig, "nodes", "NodeMetrics", "Cluster")
        define(rig, "pods", "PodMetrics", "Namespaced")
        used = {"cpu": "1500m", "memory": "2Gi"}
        node = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics", "metadata": {"name": "a"}, "usage": used}
        assert rig.request("POST", "/apis/metrics.k8s.io/v1beta1/nodes", node).status == 201
        containers = [{"name": "main", "usage": {"cpu": "250m", "memory": "1Gi"}}]
        for name in ("web-1", "web-2"):
            pod = {**node, "kind": "PodMetrics", "metadata": {"name": name}, "containers": containers}
            made = rig.request("POST", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods", pod)
            assert made.status == 201, json.dumps(pod)
        now = CLOCK.now()
        await usage.look(now)
        found = {key: line_T[-1] for key, line_T in ring.series(ring.step_at(now)).items()}
        assert found == {
            (("", "a"), "cpu"): 1.5,
            (("", "a"), "memory"): 2.0 * 2**30,
            (("default", "web"), "cpu"): 0.25,
            (("default", "web"), "memory"): 1.0 * 2**30,
        }
        made_of_settings = forecaster(
            settings, clock=CLOCK, registry=CollectorRegistry(), client=client, writer=a_writer(client)
        )
        assert made_of_settings is not None
        await made_of_settings.forecast()
        await made_of_settings.close()
        assert made_of_settings.problem() == (
            "2 of 2 series are not forecast: 1 steps of history are fewer than 2 seasons of 96"
        )


def test_a_scheduler_sends_pods_where_it_will_be_quieter(rig: Rig, namespace: str, tmp_path: Path) -> None:
    """As a process: a file of forecasts, the seed's scores, two nodes that differ in nothing but what is to come."""
    now = datetime.now(UTC)
    for name in ("busy", "quiet"):
        make_node(rig, f"{namespace}-{name}")
    rising = {"node": f"{namespace}-busy", "resource": "cpu", "value": 2.0, "baseline": 0.1}
    falling = {"node": f"{namespace}-quiet", "resource": "cpu", "value": 0.1, "baseline": 1.5}
    times = {"issued_at": now.isoformat(), "target_at": (now + timedelta(seconds=900)).isoformat()}
    documents = tmp_path / "forecasts.json"
    documents.write_text(json.dumps([{**rising, **times}, {**falling, **times}]))
    config = tmp_path / "fairlead.json"
    forecast = {"source": "file", "file": str(documents), "periodS": 1}
    head = {"apiVersion": "fairlead.io/v1alpha1", "kind": "Configuration"}
    told = {**head, "capabilities": ["placement"], "scores": "seed", "forecast": forecast}
    config.write_text(json.dumps(told))
    kubeconfig = rig.kubeconfig(rig.service_account_token(manifests=MANIFESTS))
    with serving(kubeconfig, f"--config={config}") as process:
        address = said(process, "listening")["address"]
        said(process, "leading")

        def is_read() -> bool:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
                return "fairlead_forecast_subjects 2.0" in answer.read().decode()

        assert until(is_read, 20)
        for number in range(3):
            make_pod(rig, namespace, f"p-{number}")
        assert until(lambda: len(placed(rig, namespace)) == 3, 20)
    assert set(placed(rig, namespace).values()) == {f"{namespace}-quiet"}
    for name in ("busy", "quiet"):
        rig.request("DELETE", f"/api/v1/nodes/{namespace}-{name}")
