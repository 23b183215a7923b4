"""Kinds: what a resource is called in a path, in a manifest, and which struct holds it here.

Rooms name kinds by these values; only the cluster room turns them into paths.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from fairlead.model.meta import ApiObject
from fairlead.model.numbers import Int32

T = TypeVar("T")


class Kind(msgspec.Struct, Generic[T], frozen=True):
    """A resource of the API: `Kind("apps", "v1", "deployments", "Deployment", struct=ApiObject)`."""

    group: str
    version: str
    plural: str
    kind: str
    struct: type[T]
    namespaced: bool = True
    # What is left of an object, as plain JSON, that does not decode: given where others must reckon with it.
    rest: Callable[[Any], T | None] | None = None

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def name(self) -> str:
        """As `kubectl` spells it: `deployments.apps`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def collection_path(self, namespace: str = "") -> str:
        prefix = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return f"{prefix}/namespaces/{_part(namespace)}/{self.plural}" if namespace else f"{prefix}/{self.plural}"

    def path(self, namespace: str, name: str, subresource: str = "") -> str:
        if self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name!r} is namespaced and no namespace is given")
        collection = self.collection_path(namespace if self.namespaced else "")
        whole = f"{collection}/{_part(name)}"
        return f"{whole}/{subresource}" if subresource else whole


def _part(name: str) -> str:
    # Some names hold a colon; a name with a slash must not become another path.
    return quote(name, safe=":")


def split_key(key: str) -> tuple[str, str]:
    """`namespace/name` → (namespace, name); a bare name has no namespace."""
    namespace, _, name = key.rpartition("/")
    return namespace, name


class ConfigMap(ApiObject, frozen=True):
    data: dict[str, str] = {}


class LeaseSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: Int32 | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: Int32 | None = None


class Lease(ApiObject, frozen=True):
    spec: LeaseSpec = LeaseSpec()


class ServerVersion(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str


CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", ConfigMap)
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease", Lease)
NAMESPACES = Kind("", "v1", "namespaces", "Namespace", ApiObject, namespaced=False)
EVENTS = Kind("events.k8s.io", "v1", "events", "Event", ApiObject)
DEFINITIONS = Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", ApiObject, namespaced=False
)
POD_OBJECTS = Kind("", "v1", "pods", "Pod", ApiObject)
"""Pods for who only names them: a binding, an eviction."""
