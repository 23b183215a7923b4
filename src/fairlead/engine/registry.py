"""The registry: every predicate and priority by its name in Kubernetes 1.36, and by the names it had before."""

from collections.abc import Callable
from typing import Final

from fairlead.engine.args import PluginArgs
from fairlead.engine.predicates.dynamic_resources import DynamicResources
from fairlead.engine.predicates.inter_pod_affinity import InterPodAffinity as KeepsCompany
from fairlead.engine.predicates.node_affinity import NodeAffinity as MatchesAffinity
from fairlead.engine.predicates.node_declared_features import NodeDeclaredFeatures
from fairlead.engine.predicates.node_name import NodeName
from fairlead.engine.predicates.node_ports import NodePorts
from fairlead.engine.predicates.node_resources_fit import NodeResourcesFit as Fits
from fairlead.engine.predicates.node_unschedulable import NodeUnschedulable
from fairlead.engine.predicates.node_volume_limits import NodeVolumeLimits
from fairlead.engine.predicates.pod_topology_spread import PodTopologySpread as KeepsSpread
from fairlead.engine.predicates.taint_toleration import TaintToleration as ToleratesTaints
from fairlead.engine.predicates.volume_binding import VolumeBinding
from fairlead.engine.predicates.volume_restrictions import VolumeRestrictions
from fairlead.engine.predicates.volume_zone import VolumeZone
from fairlead.engine.priorities.balanced_allocation import NodeResourcesBalancedAllocation
from fairlead.engine.priorities.image_locality import ImageLocality
from fairlead.engine.priorities.inter_pod_affinity import InterPodAffinity
from fairlead.engine.priorities.node_affinity import NodeAffinity
from fairlead.engine.priorities.node_resources_fit import NodeResourcesFit
from fairlead.engine.priorities.pod_topology_spread import PodTopologySpread
from fairlead.engine.priorities.taint_toleration import TaintToleration
from fairlead.engine.rule import Predicate, Priority

# In the order Kubernetes runs them: the first that refuses a node gives the reason.
PREDICATES: Final[dict[str, Callable[[PluginArgs], Predicate]]] = {
    "NodeUnschedulable": lambda args: NodeUnschedulable(),
    "NodeName": lambda args: NodeName(),
    "TaintToleration": lambda args: ToleratesTaints(),
    "NodeAffinity": lambda args: MatchesAffinity(args.added_required),
    "NodePorts": lambda args: NodePorts(),
    "NodeResourcesFit": lambda args: Fits(args.ignored_resources, args.ignored_groups),
    "VolumeRestrictions": lambda args: VolumeRestrictions(),
    "NodeVolumeLimits": lambda args: NodeVolumeLimits(),
    "VolumeBinding": lambda args: VolumeBinding(),
    "VolumeZone": lambda args: VolumeZone(),
    "PodTopologySpread": lambda args: KeepsSpread(args.spread),
    "InterPodAffinity": lambda args: KeepsCompany(unlabelled_reach=args.quirks.k136_ns_selector),
    "DynamicResources": lambda args: DynamicResources(),
    "NodeDeclaredFeatures": lambda args: NodeDeclaredFeatures(),
}

PRIORITIES: Final[dict[str, Callable[[PluginArgs], Priority]]] = {
    "TaintToleration": lambda args: TaintToleration(),
    "NodeAffinity": lambda args: NodeAffinity(args.added_preferred),
    "NodeResourcesFit": lambda args: NodeResourcesFit(args.strategy, whole_pod_unseen=args.quirks.pod_level_fit_score),
    "PodTopologySpread": lambda args: PodTopologySpread(args.spread),
    "InterPodAffinity": lambda args: InterPodAffinity(args.affinity),
    "NodeResourcesBalancedAllocation": lambda args: NodeResourcesBalancedAllocation(args.balanced),
    "ImageLocality": lambda args: ImageLocality(),
}

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

# Plugins of the default profile that neither filter nor score here: accepted in a configuration, not rules.
OTHER_PLUGINS: Final = frozenset(
    {"SchedulingGates", "PrioritySort", "DefaultPreemption", "DefaultBinder", "GangScheduling", "PodGroupPodsCount"}
)
