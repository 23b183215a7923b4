"""The openb trace decided by the engine itself: nodes and pods as the API has them, a profile as a user writes it.

Called by `bench.openb` for the policies that are ours. Nothing here chooses a node or a device: `Cycle.decide` does.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from bench.openb_policies import Node, Outcome, asked_milli
from fairlead.engine.cycle import Cycle
from fairlead.engine.dialect import parse_profile
from fairlead.engine.fragmentation import Shape
from fairlead.engine.gpus import WHOLE_MILLI
from fairlead.engine.profile import Profile
from fairlead.engine.table import NodeTable
from fairlead.model.node import Node as NodeObject
from fairlead.model.outcome import Placed
from fairlead.model.pod import SchedulerPod

GPU: Final = "nvidia.com/gpu"
# The published runs know no such limit.
PODS_PER_NODE: Final = "100000"

# Whether the list's shapes are told to the profile; where not, it learns from what it places.
TOLD: Final = {"MinFragment": True, "MinFragmentLearned": False}


def profile_for(policy: str, pods: Sequence[Shape]) -> Profile:
    """A profile of `schedulerConfig`: the usual filters, one score."""
    document: dict[str, Any] = {
        "schedulerName": "openb",
        "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "MinFragment"}]}},
    }
    if TOLD[policy]:
        expected = [expected_pods(shape, count) for shape, count in Counter(pods).items()]
        document["pluginConfig"] = [{"name": "MinFragment", "args": {"expected": expected}}]
    return parse_profile(document)


def expected_pods(shape: Shape, count: int) -> dict[str, Any]:
    gpu = shape.gpu
    found: dict[str, Any] = {"pods": count, "cpu": f"{shape.cpu_milli}m", "memory": f"{shape.memory_mib}Mi"}
    if gpu.count:
        found |= {"gpus": gpu.count, "gpuMilli": gpu.milli, "gpuModels": sorted(gpu.models)}
    return found


def a_table(nodes: Sequence[Node]) -> NodeTable:
    """The nodes, named in the order given."""
    table = NodeTable(capacity=max(1, len(nodes)))
    for place, node in enumerate(nodes):
        allocatable = {"cpu": f"{node.cpu_milli}m", "memory": f"{node.memory_mib}Mi", "pods": PODS_PER_NODE}
        if node.devices:
            allocatable[GPU] = str(node.devices)
        document = {
            "metadata": {"name": f"node-{place:05}", "labels": {"fairlead.io/gpu-model": node.model}},
            "status": {"allocatable": allocatable},
        }
        table.add_node(msgspec.convert(document, NodeObject))
    return table


def a_pod(number: int, shape: Shape) -> SchedulerPod:
    """Whole devices by resource name, shares by annotation."""
    gpu = shape.gpu
    requests = {"cpu": f"{shape.cpu_milli}m", "memory": f"{shape.memory_mib}Mi"}
    annotations: dict[str, str] = {}
    if gpu.count and gpu.milli == WHOLE_MILLI:
        requests[GPU] = str(gpu.count)
    elif gpu.count:
        annotations |= {"fairlead.io/gpu-milli": str(gpu.milli), "fairlead.io/gpu-count": str(gpu.count)}
    if gpu.models:
        annotations["fairlead.io/gpu-models"] = "|".join(sorted(gpu.models))
    document = {
        "metadata": {"name": f"pod-{number}", "namespace": "openb", "uid": str(number), "annotations": annotations},
        "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]},
    }
    return msgspec.convert(document, SchedulerPod)


def run(cycle: Cycle, pods: Iterable[Shape]) -> Outcome:
    """Decide the pods one after the other; one that fits nowhere is gone."""
    allocated = placed = refused = 0
    for number, shape in enumerate(pods):
        if isinstance(cycle.decide(a_pod(number, shape)), Placed):
            placed += 1
            allocated += asked_milli(shape)
        else:
            refused += 1
    return Outcome(allocated, placed, refused)
