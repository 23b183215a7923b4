"""Arguments of the rules, as read from a profile's pluginConfig."""

import msgspec

from fairlead.engine.load_basis import REQUESTS
from fairlead.engine.node_terms import NodeTerm
from fairlead.engine.pick import FIRST
from fairlead.engine.priorities.inter_pod_affinity import AffinityArgs
from fairlead.engine.priorities.jobs.fragment import ExpectedPods
from fairlead.engine.priorities.node_affinity import WeightedNodeTerm
from fairlead.engine.priorities.node_resources_fit import CPU_AND_MEMORY, Strategy, Weights
from fairlead.engine.quirks import NONE, Quirks
from fairlead.engine.spread import SpreadArgs


class PreemptionArgs(msgspec.Struct, frozen=True):
    least_percentage: int = 10
    least_absolute: int = 100
    is_on: bool = True
    # Whether DynamicResources is asked before, whether it could give up a claim: its answer is part of the sentence.
    after_claims: bool = True


class PluginArgs(msgspec.Struct, frozen=True):
    quirks: Quirks = NONE
    ignored_resources: frozenset[str] = frozenset()
    ignored_groups: frozenset[str] = frozenset()
    strategy: Strategy = Strategy()
    balanced: Weights = CPU_AND_MEMORY
    added_required: tuple[NodeTerm, ...] | None = None
    added_preferred: tuple[WeightedNodeTerm, ...] | None = None
    affinity: AffinityArgs = AffinityArgs()
    spread: SpreadArgs = SpreadArgs()
    preemption: PreemptionArgs = PreemptionArgs()
    # Of MinFragment: the pods to come. None given: those that are placed.
    expected: tuple[ExpectedPods, ...] = ()
    # How long volumes of a decided pod may take.
    bind_timeout_s: float = 600.0
    # Whether a pod that tolerates a condition's taint is let past the condition itself.
    conditions_tolerated: bool = False
    # What counts as load in the seed's w1 and w2: requests, usage or max.
    load_basis: str = REQUESTS
    # Which of the best is taken: first (by name) or round-robin.
    pick: str = FIRST
    # Of job-level rules: the label that pods of one job share, and whether a leader is being placed.
    job_label: str = ""
    is_leader: bool = False
