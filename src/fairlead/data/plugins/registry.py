"""The plugins by name: Fluid's names, as profiles carry them, and the names of the design they grew from."""

from typing import Final

from fairlead.data.plugin import PluginFactory
from fairlead.data.plugins.avoid_cache import AvoidCache
from fairlead.data.plugins.cache_affinity import CacheAffinity
from fairlead.data.plugins.dataset_usage import DatasetUsage
from fairlead.data.plugins.file_prefetcher import FilePrefetcher
from fairlead.data.plugins.fuse_nodes import FuseNodes
from fairlead.data.plugins.fuse_sidecar import FuseSidecar
from fairlead.data.plugins.mount_propagation import MountPropagation

PLUGINS: Final[dict[str, PluginFactory]] = {
    "PreferNodesWithoutCache": AvoidCache,
    "NodeAffinityWithCache": CacheAffinity,
    "RequireNodeWithFuse": FuseNodes,
    "MountPropagationInjector": MountPropagation,
    "DatasetUsageInjector": DatasetUsage,
    "FilePrefetcher": FilePrefetcher,
    "FuseSidecar": FuseSidecar,
}
ALIASES: Final = {"PreferNodesWithCache": "NodeAffinityWithCache", "RequireNodesWithFuse": "RequireNodeWithFuse"}
