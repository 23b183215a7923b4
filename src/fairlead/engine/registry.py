"""The registry: every predicate and priority by its name in Kubernetes 1.36, and by the names it had before."""

from collections.abc import Callable
from typing import Final

from fairlead.engine.args import PluginArgs
from fairlead.engine.predicates.dynamic_resources import DynamicResources
from fairlead.engine.predicates.fuse_headroom import FuseHeadroom
from fairlead.engine.predicates.gpu_devices import GpuDevices
from fairlead.engine.predicates.inter_pod_affinity import InterPodAffinity as InterPodAffinityFilter
from fairlead.engine.predicates.node_affinity import NodeAffinity as MatchesAffinity
from fairlead.engine.predicates.node_declared_features import NodeDeclaredFeatures
from fairlead.engine.predicates.node_name import NodeName
from fairlead.engine.predicates.node_ports import NodePorts
from fairlead.engine.predicates.node_resources_fit import NodeResourcesFit as NodeResourcesFitFilter
from fairlead.engine.predicates.node_unschedulable import NodeUnschedulable
from fairlead.engine.predicates.node_volume_limits import NodeVolumeLimits
from fairlead.engine.predicates.pod_existing_on_node import PodExistingOnNode
from fairlead.engine.predicates.pod_topology_spread import PodTopologySpread as KeepsSpread
from fairlead.engine.predicates.taint_toleration import TaintToleration as ToleratesTaints
from fairlead.engine.predicates.v113 import (
    CheckNodeCondition,
    CheckNodeDiskPressure,
    CheckNodeMemoryPressure,
    CheckNodePIDPressure,
)
from fairlead.engine.predicates.volume_binding import VolumeBinding
from fairlead.engine.predicates.volume_restrictions import VolumeRestrictions
from fairlead.engine.predicates.volume_zone import VolumeZone
from fairlead.engine.priorities.balanced_allocation import NodeResourcesBalancedAllocation
from fairlead.engine.priorities.data_locality import DataLocality
from fairlead.engine.priorities.image_locality import ImageLocality
from fairlead.engine.priorities.inter_pod_affinity import InterPodAffinity
from fairlead.engine.priorities.jobs.fragment import MinFragmentPolicy
from fairlead.engine.priorities.jobs.job_affinity import JobAffinity, JobAntiAffinity
from fairlead.engine.priorities.jobs.packing import BinPack, LeaderFirst
from fairlead.engine.priorities.node_affinity import NodeAffinity
from fairlead.engine.priorities.node_load_forecast import NodeLoadForecast
from fairlead.engine.priorities.node_resources_fit import (
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    REQUESTED_TO_CAPACITY_RATIO,
    NodeResourcesFit,
    Strategy,
)
from fairlead.engine.priorities.pod_topology_spread import PodTopologySpread
from fairlead.engine.priorities.seed import SeedEvenness, SeedForecast, SeedFreeRatio, SeedServiceSpread, SeedWishes
from fairlead.engine.priorities.taint_toleration import TaintToleration
from fairlead.engine.priorities.v113.resources import (
    BalancedResourceAllocation,
    LeastRequestedPriority,
    MostRequestedPriority,
    RequestedToCapacityRatioPriority,
)
from fairlead.engine.priorities.v113.scores import (
    ImageLocalityPriority,
    InterPodAffinityPriority,
    NodeAffinityPriority,
    NodePreferAvoidPodsPriority,
    TaintTolerationPriority,
)
from fairlead.engine.priorities.v113.selector_spread import SelectorSpreadPriority
from fairlead.engine.rule import Predicate, Priority, RemovalPredicate

# In the order Kubernetes runs them: the first that refuses a node gives the reason.
PREDICATES: Final[dict[str, Callable[[PluginArgs], Predicate]]] = {
    "NodeUnschedulable": lambda args: NodeUnschedulable(),
    "NodeName": lambda args: NodeName(),
    "TaintToleration": lambda args: ToleratesTaints(),
    "NodeAffinity": lambda args: MatchesAffinity(args.added_required),
    "NodePorts": lambda args: NodePorts(),
    "NodeResourcesFit": lambda args: NodeResourcesFitFilter(args.ignored_resources, args.ignored_groups),
    "VolumeRestrictions": lambda args: VolumeRestrictions(),
    "NodeVolumeLimits": lambda args: NodeVolumeLimits(),
    "VolumeBinding": lambda args: VolumeBinding(),
    "VolumeZone": lambda args: VolumeZone(),
    "PodTopologySpread": lambda args: KeepsSpread(args.spread),
    "InterPodAffinity": lambda args: InterPodAffinityFilter(unlabelled_reach=args.quirks.k136_ns_selector),
    "DynamicResources": lambda args: DynamicResources(),
    "NodeDeclaredFeatures": lambda args: NodeDeclaredFeatures(),
    # Ours: shares of a device, which Kubernetes does not know. Silent where nobody asks for any.
    "GpuDevices": lambda args: GpuDevices(),
    # Ours: room for what mounts a dataset. Only where it is known what nodes cache.
    "FuseHeadroom": lambda args: FuseHeadroom(),
    # Node conditions read directly, as in Kubernetes 1.13 and the seed; not in Kubernetes' own profile.
    "CheckNodeCondition": lambda args: CheckNodeCondition(tolerated=args.conditions_tolerated),
    "CheckNodeMemoryPressure": lambda args: CheckNodeMemoryPressure(tolerated=args.conditions_tolerated),
    "CheckNodePIDPressure": lambda args: CheckNodePIDPressure(tolerated=args.conditions_tolerated),
    "CheckNodeDiskPressure": lambda args: CheckNodeDiskPressure(tolerated=args.conditions_tolerated),
}
CONDITION_PREDICATES: Final = (
    "CheckNodeCondition",
    "CheckNodeMemoryPressure",
    "CheckNodePIDPressure",
    "CheckNodeDiskPressure",
)
# In the seed's order; today's names. What the seed does not name comes after, so that no demand of a pod is ignored.
SEED_PREDICATES: Final = (
    "CheckNodeCondition",
    "NodeResourcesFit",
    "NodePorts",
    "NodeAffinity",
    "TaintToleration",
    "VolumeBinding",
    "CheckNodeMemoryPressure",
    "CheckNodePIDPressure",
    "CheckNodeDiskPressure",
    "InterPodAffinity",
)
# In force as well wherever it is known what nodes cache.
LOCALITY_PREDICATES: Final = ("FuseHeadroom",)
KUBE_PREDICATES: Final = tuple(
    name for name in PREDICATES if name not in CONDITION_PREDICATES and name not in LOCALITY_PREDICATES
)

# Of the removal path, which asks nothing else of a node.
REMOVAL_PREDICATES: Final[dict[str, type[RemovalPredicate]]] = {"PodExistingOnNode": PodExistingOnNode}

# What the rules were called in Kubernetes 1.13 and before, where the seed takes its names from.
PREDICATE_ALIASES: Final = {
    "CheckNodeUnschedulable": "NodeUnschedulable",
    "PodFitsHost": "NodeName",
    "HostName": "NodeName",
    "PodToleratesNodeTaints": "TaintToleration",
    "PodMatchNodeSelector": "NodeAffinity",
    "MatchNodeSelector": "NodeAffinity",
    "PodSelectorMatches": "NodeAffinity",
    "PodFitsHostPorts": "NodePorts",
    "PodFitsResources": "NodeResourcesFit",
    "NoDiskConflict": "VolumeRestrictions",
    "MaxCSIVolumeCountPred": "NodeVolumeLimits",
    "CheckVolumeBinding": "VolumeBinding",
    "NoVolumeZoneConflict": "VolumeZone",
    "MatchInterPodAffinity": "InterPodAffinity",
}

PRIORITIES: Final[dict[str, Callable[[PluginArgs], Priority]]] = {
    "TaintToleration": lambda args: TaintToleration(),
    "NodeAffinity": lambda args: NodeAffinity(args.added_preferred),
    "NodeResourcesFit": lambda args: NodeResourcesFit(args.strategy, without_pod_level=args.quirks.pod_level_fit_score),
    "PodTopologySpread": lambda args: PodTopologySpread(args.spread),
    "InterPodAffinity": lambda args: InterPodAffinity(args.affinity),
    "NodeResourcesBalancedAllocation": lambda args: NodeResourcesBalancedAllocation(args.balanced),
    "ImageLocality": lambda args: ImageLocality(),
    "NodeLoadForecast": lambda args: NodeLoadForecast(),
    "DataLocality": lambda args: DataLocality(),
    # One strategy of NodeResourcesFit each, by the names they had as rules of their own.
    "LeastRequested": lambda args: _strategy("LeastRequested", args, LEAST_ALLOCATED),
    "MostRequested": lambda args: _strategy("MostRequested", args, MOST_ALLOCATED),
    "RequestedToCapacityRatio": lambda args: _strategy("RequestedToCapacityRatio", args, REQUESTED_TO_CAPACITY_RATIO),
    # Kubernetes 1.13: scores 0..10.
    "LeastRequestedPriority": lambda args: LeastRequestedPriority(),
    "MostRequestedPriority": lambda args: MostRequestedPriority(),
    "RequestedToCapacityRatioPriority": lambda args: RequestedToCapacityRatioPriority(),
    "BalancedResourceAllocationPriority": lambda args: BalancedResourceAllocation(),
    "InterPodAffinityPriority": lambda args: InterPodAffinityPriority(args.affinity),
    "SelectorSpreadPriority": lambda args: SelectorSpreadPriority(),
    "NodeAffinityPriority": lambda args: NodeAffinityPriority(args.added_preferred),
    "NodePreferAvoidPodsPriority": lambda args: NodePreferAvoidPodsPriority(),
    "TaintTolerationPriority": lambda args: TaintTolerationPriority(),
    "ImageLocalityPriority": lambda args: ImageLocalityPriority(),
    # The seed's own w1 to w5.
    "SeedFreeRatio": lambda args: SeedFreeRatio(args.load_basis),
    "SeedEvenness": lambda args: SeedEvenness(args.load_basis),
    "SeedServiceSpread": lambda args: SeedServiceSpread(),
    "SeedWishes": lambda args: SeedWishes(),
    "SeedForecast": lambda args: SeedForecast(),
    # Job-level.
    "BinPack": lambda args: BinPack(),
    "LeaderFirst": lambda args: LeaderFirst(leader=args.is_leader),
    "MinFragment": lambda args: MinFragmentPolicy(args.expected),
    "JobAffinity": lambda args: JobAffinity(args.job_label),
    "JobAntiAffinity": lambda args: JobAntiAffinity(args.job_label),
}

PRIORITY_ALIASES: Final = {
    "RequestedPriority": "NodeResourcesFit",
    "BalancedResourceAllocation": "NodeResourcesBalancedAllocation",
    "SelectorSpread": "SelectorSpreadPriority",
    "NodePreferAvoidPods": "NodePreferAvoidPodsPriority",
    "NodeLoadForecastPriority": "NodeLoadForecast",
}


def _strategy(name: str, args: PluginArgs, kind: str) -> NodeResourcesFit:
    shape = args.strategy.shape or ((0, 0), (100, 100))
    strategy = Strategy(kind, args.strategy.resources, shape if kind == REQUESTED_TO_CAPACITY_RATIO else ())
    return NodeResourcesFit(strategy, name=name)


# Weights of the default profile. Those of VolumeBinding and DynamicResources never come to bear here: the one scores
# only with a shape that is behind a closed gate, the other only pods with claims, which are refused.
DEFAULT_WEIGHTS: Final = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}

# In force as well wherever load forecasts are read.
FORECAST_WEIGHTS: Final = {"NodeLoadForecast": 1}

# In force as well wherever it is known what nodes cache: enough to win over balance, not over topology and taints.
LOCALITY_WEIGHTS: Final = {"DataLocality": 3}

# Plugins of the default profile that neither filter nor score here: accepted in a configuration, not rules.
OTHER_PLUGINS: Final = frozenset(
    {"SchedulingGates", "PrioritySort", "DefaultPreemption", "DefaultBinder", "GangScheduling", "PodGroupPodsCount"}
)
