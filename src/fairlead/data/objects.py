"""Fluid's objects and what else the webhook reads of a cluster, with only the fields used.

Fluid's kinds may be missing from a cluster; a mirror of a missing kind is empty.
"""

from collections.abc import Iterable
from typing import Any, Final

from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiStruct, ObjectMeta
from fairlead.model.numbers import Int32
from fairlead.model.quantity import QuantityError, nanos

GROUP: Final = "data.fluid.io"
VERSION: Final = "v1alpha1"


class Claim(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class Mount(ApiStruct, frozen=True):
    mount_point: str = ""


class DatasetSpec(ApiStruct, frozen=True):
    mounts: tuple[Mount, ...] | None = None
    placement: str = ""
    tolerations: tuple[dict[str, Any], ...] | None = None


class BoundRuntime(ApiStruct, frozen=True):
    type: str = ""


class DatasetCondition(ApiStruct, frozen=True):
    type: str = ""
    message: str = ""


class DatasetStatus(ApiStruct, frozen=True):
    phase: str = ""
    runtimes: tuple[BoundRuntime, ...] | None = None
    conditions: tuple[DatasetCondition, ...] | None = None
    ufs_total: str = ""
    cache_states: dict[str, str] | None = None
    operation_ref: dict[str, str] | None = None


class Dataset(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DatasetSpec = DatasetSpec()
    status: DatasetStatus = DatasetStatus()

    @property
    def runtime_type(self) -> str:
        """The key of its runtime's kind in RUNTIMES, or nothing while it is not known."""
        return next((each.type for each in self.status.runtimes or ()), "")


class Metrics(ApiStruct, frozen=True):
    scrape_target: str = ""


class Component(ApiStruct, frozen=True):
    """The workers or the fuse of a runtime."""

    metrics: Metrics | None = None
    node_selector: dict[str, str] | None = None
    resources: dict[str, Any] | None = None
    replicas: Int32 | None = None


class RuntimeSpec(ApiStruct, frozen=True):
    replicas: Int32 | None = None
    fuse: Component | None = None
    client: Component | None = None
    worker: Component | None = None


class RequiredTerms(ApiStruct, frozen=True):
    node_selector_terms: tuple[dict[str, Any], ...] | None = None


class CacheAffinity(ApiStruct, frozen=True):
    required_during_scheduling_ignored_during_execution: RequiredTerms | None = None


class RuntimeStatus(ApiStruct, frozen=True):
    cache_affinity: CacheAffinity | None = None


class FluidRuntime(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: RuntimeSpec = RuntimeSpec()
    status: RuntimeStatus = RuntimeStatus()


class PodTemplate(ApiStruct, frozen=True):
    spec: dict[str, Any] = {}


class DaemonSetSpec(ApiStruct, frozen=True):
    template: PodTemplate = PodTemplate()


class DaemonSet(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DaemonSetSpec = DaemonSetSpec()


class Csi(ApiStruct, frozen=True):
    driver: str = ""
    volume_attributes: dict[str, str] | None = None


class ClaimRef(ApiStruct, frozen=True):
    namespace: str = ""


class VolumeSpec(ApiStruct, frozen=True):
    csi: Csi | None = None
    claim_ref: ClaimRef | None = None


class Volume(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeSpec = VolumeSpec()


def _runtime(kind: str) -> Kind[FluidRuntime]:
    return Kind(GROUP, VERSION, f"{kind.lower()}s", kind, FluidRuntime)


CLAIMS = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", Claim)
VOLUMES = Kind("", "v1", "persistentvolumes", "PersistentVolume", Volume, namespaced=False)
DAEMON_SETS = Kind("apps", "v1", "daemonsets", "DaemonSet", DaemonSet)
DATASETS = Kind(GROUP, VERSION, "datasets", "Dataset", Dataset)
RUNTIMES: Final[dict[str, Kind[FluidRuntime]]] = {
    "alluxio": _runtime("AlluxioRuntime"),
    "jindo": _runtime("JindoRuntime"),
    "juicefs": _runtime("JuiceFSRuntime"),
    "thin": _runtime("ThinRuntime"),
    "efc": _runtime("EFCRuntime"),
    "vineyard": _runtime("VineyardRuntime"),
    "cache": _runtime("CacheRuntime"),
}
"""By the `runtime_type` of a Dataset."""


def requests_sum(parts: Iterable[Any]) -> dict[str, int]:
    """What `resources` of several containers request together, in billionths; what cannot be read is left out."""
    totals: dict[str, int] = {}
    for part in parts:
        requests = part.get("requests") if isinstance(part, dict) else None
        for name, amount in (requests if isinstance(requests, dict) else {}).items():
            try:
                totals[name] = totals.get(name, 0) + nanos(str(amount))
            except QuantityError:
                continue
    return totals


def worker_replicas(kind: Kind[FluidRuntime], runtime: FluidRuntime) -> int:
    if kind is RUNTIMES["cache"]:
        return (runtime.spec.worker.replicas if runtime.spec.worker is not None else None) or 0
    return runtime.spec.replicas or 0


def replicas_patch(kind: Kind[FluidRuntime], replicas: int) -> dict[str, Any]:
    """The part of a runtime's spec that says how many workers it has."""
    return {"worker": {"replicas": replicas}} if kind is RUNTIMES["cache"] else {"replicas": replicas}
