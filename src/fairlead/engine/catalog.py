"""The catalog: the objects that rules read besides nodes and pods.

Namespaces, services and their controllers, storage. The placement loop writes it from the mirror; rules read it and
remember the version they read, so that a change is noticed the next time they are asked.
"""

from collections.abc import Iterable, Mapping

from fairlead.engine.forecast import Forecast
from fairlead.engine.locality import CacheMap
from fairlead.model.selectors import EVERYTHING, Selector, SelectorError, equal_to, parse_label_selector
from fairlead.model.volumes import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from fairlead.model.workloads import (
    Namespace,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Selecting,
    Service,
    StatefulSet,
)

Stored = (
    PersistentVolume
    | PersistentVolumeClaim
    | StorageClass
    | CsiNode
    | CsiDriver
    | CsiStorageCapacity
    | VolumeAttachment
)
Known = Selecting | Stored | Namespace | PodDisruptionBudget


class Catalog:
    def __init__(self) -> None:
        self.namespaces: dict[str, dict[str, str]] = {}
        # Each part counts its changes, and `version` counts them all.
        self.version = 0
        self.namespaces_version = 0
        self.workloads_version = 0
        self.storage_version = 0
        self.forecast = Forecast()
        self.cache = CacheMap()
        self.budgets: dict[str, PodDisruptionBudget] = {}
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.csi_nodes: dict[str, CsiNode] = {}
        self.csi_drivers: dict[str, CsiDriver] = {}
        self.capacities: dict[str, CsiStorageCapacity] = {}
        self.attachments: dict[str, VolumeAttachment] = {}
        self._services: dict[str, dict[str, dict[str, str]]] = {}
        self._controllers: dict[tuple[str, str, str], Selector] = {}
        # By namespace and name of a Deployment, the names of its ReplicaSets.
        self._sets_of: dict[tuple[str, str], set[str]] = {}

    # Namespaces

    def set_namespace(self, namespace: Namespace) -> None:
        labels = namespace.metadata.labels
        if self.namespaces.get(namespace.metadata.name) != labels:
            self.namespaces[namespace.metadata.name] = labels
            self._namespaces_changed()

    # Services and controllers: only what they select matters, so a status change costs nothing

    def set_selecting(self, thing: Selecting) -> None:
        namespace, name = thing.metadata.namespace, thing.metadata.name
        if isinstance(thing, Service):
            selector = thing.spec.selector
            if selector is None:
                changed = self._drop_service(namespace, name)
            else:
                services = self._services.setdefault(namespace, {})
                changed = services.get(name) != selector
                services[name] = selector
        else:
            key = (type(thing).__name__, namespace, name)
            selects = _selector_of(thing)
            if (above := _deployment_of(thing)) is not None:
                self._sets_of.setdefault(above, set()).add(name)
            changed = self._controllers.get(key) != selects
            self._controllers[key] = selects
        if changed:
            self._workloads_changed()

    def drop_selecting(self, thing: Selecting) -> None:
        namespace, name = thing.metadata.namespace, thing.metadata.name
        if isinstance(thing, Service):
            gone = self._drop_service(namespace, name)
        else:
            gone = self._controllers.pop((type(thing).__name__, namespace, name), None) is not None
            if (above := _deployment_of(thing)) is not None and (sets := self._sets_of.get(above)) is not None:
                sets.discard(name)
                if not sets:
                    del self._sets_of[above]
        if gone:
            self._workloads_changed()

    def _drop_service(self, namespace: str, name: str) -> bool:
        services = self._services.get(namespace, {})
        known = services.pop(name, None) is not None
        if known and not services:
            del self._services[namespace]
        return known

    def services_selecting(self, namespace: str, labels: Mapping[str, str]) -> list[dict[str, str]]:
        return [
            selector
            for selector in self._services.get(namespace, {}).values()
            if all(labels.get(key) == value for key, value in selector.items())
        ]

    def service_named(self, namespace: str, labels: Mapping[str, str]) -> str | None:
        """The first by name of the services that select pods with these labels."""
        return next(iter(self.services_named(namespace, labels)), None)

    def services_named(self, namespace: str, labels: Mapping[str, str]) -> list[str]:
        """Names of the services that select pods with these labels."""
        return [
            name
            for name, selector in sorted(self._services.get(namespace, {}).items())
            if selector and all(labels.get(key) == value for key, value in selector.items())
        ]

    def selectors_of(self, namespace: str, name: str) -> list[Selector]:
        """What selects the pods of a service by its name: the Service's, else those of the workload of that name."""
        service = self.service_selector(namespace, name)
        if service:
            return [equal_to(service)]
        sets = [("ReplicaSet", each) for each in sorted(self._sets_of.get((namespace, name), ()))]
        keys = [*sets, *((kind, name) for kind in ("StatefulSet", "ReplicaSet", "ReplicationController"))]
        found = [self._controllers.get((kind, namespace, each)) for kind, each in keys]
        return [selector for selector in found if selector is not None and not selector.is_empty]

    def service_selector(self, namespace: str, name: str) -> dict[str, str] | None:
        return self._services.get(namespace, {}).get(name)

    def controller_selector(self, kind: str, namespace: str, name: str) -> Selector | None:
        return self._controllers.get((kind, namespace, name))

    def controllers_selecting(self, namespace: str, labels: Mapping[str, str]) -> list[Selector]:
        return [
            selector
            for (_, of, _), selector in self._controllers.items()
            if of == namespace and not selector.is_empty and selector.matches(labels)
        ]

    # Storage and budgets

    def set_forecast(self, forecast: Forecast) -> None:
        self.forecast = forecast
        self.version += 1

    def set_cache(self, cache: CacheMap) -> None:
        self.cache = cache
        self.version += 1

    def set_all(self, things: Iterable[Known]) -> None:
        for thing in things:
            if isinstance(thing, Namespace):
                self.set_namespace(thing)
            elif isinstance(thing, PodDisruptionBudget):
                self.budgets[thing.metadata.key] = thing
            elif isinstance(thing, Selecting):
                self.set_selecting(thing)
            else:
                self._by_key(thing)[thing.metadata.key] = thing
                self._storage_changed()

    def drop(self, thing: Known) -> None:
        if isinstance(thing, Namespace):
            if self.namespaces.pop(thing.metadata.name, None) is not None:
                self._namespaces_changed()
        elif isinstance(thing, PodDisruptionBudget):
            self.budgets.pop(thing.metadata.key, None)
        elif isinstance(thing, Selecting):
            self.drop_selecting(thing)
        else:
            self._by_key(thing).pop(thing.metadata.key, None)
            self._storage_changed()

    def _namespaces_changed(self) -> None:
        self.namespaces_version += 1
        self.version += 1

    def _workloads_changed(self) -> None:
        self.workloads_version += 1
        self.version += 1

    def _storage_changed(self) -> None:
        self.storage_version += 1
        self.version += 1

    def _by_key(self, thing: Stored) -> dict[str, Stored]:
        by_type: dict[type, object] = {
            PersistentVolumeClaim: self.claims,
            PersistentVolume: self.volumes,
            StorageClass: self.classes,
            CsiNode: self.csi_nodes,
            CsiDriver: self.csi_drivers,
            CsiStorageCapacity: self.capacities,
            VolumeAttachment: self.attachments,
        }
        objects = by_type[type(thing)]
        assert isinstance(objects, dict)
        return objects


def _deployment_of(thing: Selecting) -> tuple[str, str] | None:
    """Namespace and name of the Deployment that a ReplicaSet belongs to."""
    owner = thing.metadata.controller if isinstance(thing, ReplicaSet) else None
    return (thing.metadata.namespace, owner.name) if owner is not None and owner.kind == "Deployment" else None


def _selector_of(thing: ReplicationController | ReplicaSet | StatefulSet) -> Selector:
    """What the controller selects; a selector that cannot be parsed adds no condition, as in Kubernetes."""
    if isinstance(thing, ReplicationController):
        return equal_to(thing.spec.selector or {})
    try:
        return parse_label_selector(thing.spec.selector)
    except SelectorError:
        return EVERYTHING
