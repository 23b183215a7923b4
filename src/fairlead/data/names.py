"""The label keys and object names that belong to a dataset, by Fluid's rules and by ours.

A key of Fluid's holds `namespace-name` while the whole key has fewer than 63 characters, and the dataset's UID beyond
that. Kubernetes allows 63 characters after the slash: a key that would be longer, and whose UID is not known, does not
exist.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

LONGEST_FLUID_KEY: Final = 62
LONGEST_NAME: Final = 63

DATASET_LABEL: Final = "fluid.io/dataset"
"""Of the pods of a dataset's runtime."""
DATASET_NUM: Final = "fluid.io/dataset-num"
EXCLUSIVE_KEYS: Final = ("fluid_exclusive", "fluid-exclusive")
"""Fluid's label of a node that one dataset has for itself, and the spelling of the design it grew from."""
DOMAIN: Final = "data.fairlead.io/"
SCALE_IN: Final = "data.fluid.io/storage-scalein-"


class NoSuchKey(Exception):
    """The key would not be legal."""


@dataclass(frozen=True, slots=True, order=True)
class DatasetName:
    namespace: str
    name: str
    uid: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    # -- Fluid's labels of nodes -----------------------------------------------------------------------------------

    def common_key(self) -> str:
        """Set on nodes with a worker of the dataset."""
        return self._fluid_key("fluid.io/s-")

    def fuse_key(self) -> str:
        """Set on nodes whose pods have the dataset mounted."""
        return self._fluid_key("fluid.io/f-")

    def runtime_key(self, runtime: str) -> str:
        return self._fluid_key(f"fluid.io/s-{runtime}-")

    def quota_key(self, runtime: str, medium: str) -> str:
        """How much a worker may hold: medium `m` (memory), `d` (disk) or `t` (total)."""
        return self._fluid_key(f"fluid.io/s-h-{runtime}-{medium}-")

    def exclusive_value(self) -> str:
        return self._fluid_value(f"{self.namespace}_{self.name}")

    def exclusive_values(self) -> dict[str, str]:
        """What either label of an exclusive node says where the node is this dataset's."""
        return dict(zip(EXCLUSIVE_KEYS, (self.exclusive_value(), self._joined), strict=True))

    def dataset_id(self) -> str:
        """The value of the label `fluid.io/dataset-id`."""
        return self._fluid_value(self._joined)

    def _fluid_value(self, readable: str) -> str:
        return self.uid if len(readable) > LONGEST_FLUID_KEY and self.uid else readable

    def _fluid_key(self, prefix: str) -> str:
        key = prefix + self._joined
        if len(key) > LONGEST_FLUID_KEY and self.uid:
            key = prefix + self.uid
        return _legal(key, self.key)

    # -- our own -------------------------------------------------------------------------------------------------------

    def scale_in_key(self) -> str:
        """Set on a node whose worker is about to go. Datasets whose names join to the same text share it: both keep
        away, which costs a preference and never a reader."""
        return self._own_key(SCALE_IN, self._joined)

    def level_key(self) -> str:
        """How much of the dataset a node holds, 1 to 10. A namespace has no dot, so names do not collide."""
        return self._own_key(f"{DOMAIN}cl-", f"{self.namespace}.{self.name}")

    def demand_key(self) -> str:
        """How many readers a node has, 1 to 10."""
        return self._own_key(f"{DOMAIN}dm-", f"{self.namespace}.{self.name}")

    def _own_key(self, prefix: str, readable: str) -> str:
        short = len((prefix + readable).rpartition("/")[2]) <= LONGEST_NAME
        return _legal(prefix + (readable if short or not self.uid else self.uid), self.key)

    # -- objects ---------------------------------------------------------------------------------------------------

    def volume(self) -> str:
        """Its PersistentVolume."""
        return self._joined

    def worker_set(self, runtime: str) -> str:
        """The StatefulSet of its workers."""
        return f"{self.name}-jindofs-worker" if runtime == "jindo" else f"{self.name}-worker"

    @property
    def _joined(self) -> str:
        return f"{self.namespace}-{self.name}"


def key_or_nothing(make_key: Callable[[], str]) -> str:
    """The key, or nothing where it would not be legal."""
    try:
        return make_key()
    except NoSuchKey:
        return ""


def _legal(key: str, dataset: str) -> str:
    if len(key.rpartition("/")[2]) > LONGEST_NAME:
        raise NoSuchKey(
            f"dataset {dataset}: the label {key!r} is longer than Kubernetes allows, and the dataset's UID is not known"
        )
    return key
