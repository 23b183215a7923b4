"""Fluid's controllers, played: its kinds defined minimally, datasets bound, claims, workers and labels of nodes kept.

Only what a scheduler can see of Fluid: the phase and runtime of a Dataset, the claim, a StatefulSet of workers, and
labels of the nodes where workers run. No data is cached anywhere.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

import msgspec

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import UNDECODABLE, AlreadyExists, ClusterError
from fairlead.data.names import DATASET_NUM, DatasetName
from fairlead.data.objects import CLAIMS, DATASETS, GROUP, RUNTIMES, VERSION, Dataset, FluidRuntime
from fairlead.data.spec import DATA_LOADS, NODES, PODS
from fairlead.model.kinds import DEFINITIONS, Kind
from fairlead.model.meta import ApiObject

LOOK_S: Final = 0.2
STATEFUL_SETS: Final = Kind("apps", "v1", "statefulsets", "StatefulSet", ApiObject)


def definitions() -> list[dict[str, Any]]:
    """Fluid's kinds, open: what is in them is not checked."""
    kinds: tuple[Kind[Any], ...] = (DATASETS, *RUNTIMES.values(), DATA_LOADS)
    opened = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    found = []
    for kind in kinds:
        version: dict[str, Any] = {
            "name": VERSION,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": opened, "status": opened}}},
        }
        if kind in RUNTIMES.values():
            paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.currentWorkerNumberScheduled"}
            version["subresources"] = {"scale": paths}
        names = {
            "plural": kind.plural,
            "singular": kind.kind.lower(),
            "kind": kind.kind,
            "listKind": f"{kind.kind}List",
        }
        found.append(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": kind.name},
                "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
            }
        )
    return found


async def define(client: Client) -> None:
    for each in definitions():
        try:
            await client.create(DEFINITIONS, each)
        except AlreadyExists:
            continue


class FluidActor:
    """Brings datasets to what Fluid's controllers would, again and again, until cancelled."""

    def __init__(self, client: Client, clock: Clock, worker: dict[str, Any]) -> None:
        """`worker` is the container that workers run."""
        self._client = client
        self._clock = clock
        self._worker = worker

    async def run(self) -> None:
        while True:
            with suppress(ClusterError):  # another look comes soon
                async for dataset in self._datasets():
                    with suppress(ClusterError):
                        await self.reconcile(dataset)
            await self._clock.sleep(LOOK_S)

    async def _datasets(self) -> AsyncIterator[Dataset]:
        """All that can be read: one that somebody wrote in another form stops nothing."""
        async for page in self._client.pages(DATASETS):
            for item in page.items or ():
                with suppress(*UNDECODABLE):
                    yield msgspec.json.decode(item, type=Dataset)

    async def reconcile(self, dataset: Dataset) -> None:
        name = DatasetName(dataset.metadata.namespace, dataset.metadata.name, dataset.metadata.uid)
        for word, kind in RUNTIMES.items():
            runtime = await self._client.find(kind, name.name, name.namespace)
            if runtime is not None:
                await self._bind(name, dataset, word)
                await self._workers(name, word, runtime)
                await self._label_nodes(name)
                return

    async def _bind(self, name: DatasetName, dataset: Dataset, word: str) -> None:
        if dataset.status.phase != "Bound":
            status = {"phase": "Bound", "runtimes": [{"name": name.name, "namespace": name.namespace, "type": word}]}
            await self._client.patch(DATASETS, name.name, {"status": status}, name.namespace)
        if await self._client.find(CLAIMS, name.name, name.namespace) is None:
            labels = {name.common_key(): "true", "fluid.io/dataset-id": name.dataset_id()}
            claim = {
                "metadata": {"name": name.name, "labels": labels},
                "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
            }
            await self._client.create(CLAIMS, claim, name.namespace)

    async def _workers(self, name: DatasetName, word: str, runtime: FluidRuntime) -> None:
        labels = {"role": f"{word}-worker", "fluid.io/dataset": name.dataset_id()}
        body = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": name.worker_set(word)},
            "spec": {
                "replicas": runtime.spec.replicas or 0,
                "serviceName": name.name,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "containers": [self._worker],
                        "terminationGracePeriodSeconds": 1,
                        "affinity": {
                            "podAntiAffinity": {
                                "requiredDuringSchedulingIgnoredDuringExecution": [
                                    {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
                                ]
                            }
                        },
                    },
                },
            },
        }
        await self._client.apply(STATEFUL_SETS, name.worker_set(word), body, name.namespace)

    async def _label_nodes(self, name: DatasetName) -> None:
        label = f"fluid.io/dataset={name.dataset_id()}"
        workers = await self._client.list(PODS, name.namespace, query={"labelSelector": label})
        here = {pod.spec.node_name for pod in workers if pod.spec.node_name}
        for node in await self._client.list(NODES):
            is_labelled = node.metadata.labels.get(name.common_key()) == "true"
            if is_labelled == (node.metadata.name in here):
                continue
            value = None if is_labelled else "true"
            labels = {name.common_key(): value, DATASET_NUM: None if is_labelled else "1"}
            await self._client.patch(NODES, node.metadata.name, {"metadata": {"labels": labels}})
