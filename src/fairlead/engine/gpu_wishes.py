"""What a pod wants of GPUs and what a node has of them, read from objects as they are.

Whole devices are asked for by their resource name, as ever. A share of one device is asked for by annotation, since no
device plugin knows of shares: so much of a device (`gpu-milli`, thousandths) or so much of its memory.
"""

from typing import Final

from fairlead.engine.gpus import NO_GPU, WHOLE_MILLI, GpuRequest
from fairlead.model.node import Node
from fairlead.model.pod import Pod
from fairlead.model.quantity import nanos
from fairlead.model.resources import amount, pod_requests

GPU_NAMES: Final = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915")

# Devices of one node that are told apart. The table has a cell for each device of the largest node on every row; what
# a node has beyond these is counted by its resource name alone, and never shared.
MOST_DEVICES: Final = 256

MILLI: Final = "fairlead.io/gpu-milli"
MEMORY_MIB: Final = "fairlead.io/gpu-memory-mib"
COUNT: Final = "fairlead.io/gpu-count"
MODELS: Final = "fairlead.io/gpu-models"
# Written when a pod is bound: the devices it was given, as "0" or "0,3".
DEVICES: Final = "fairlead.io/gpu-devices"
ANNOTATIONS: Final = (MILLI, MEMORY_MIB, COUNT, MODELS)

MODEL_LABELS: Final = ("fairlead.io/gpu-model", "nvidia.com/gpu.product")
MEMORY_LABELS: Final = ("fairlead.io/gpu-memory-mib", "nvidia.com/gpu.memory")


class GpuWishError(ValueError):
    """The annotations cannot be understood; the text names the one that says so."""


def gpu_request(pod: Pod) -> GpuRequest:
    annotations = pod.metadata.annotations
    models = frozenset(annotations.get(MODELS, "").replace("|", " ").split())
    milli, memory = _number(annotations, MILLI), _number(annotations, MEMORY_MIB)
    if milli is None and memory is None:
        needs = pod_requests(pod)
        whole = sum(amount(name, needs[name]) for name in GPU_NAMES if name in needs)
        return GpuRequest(count=whole, models=models) if whole else NO_GPU
    count = _number(annotations, COUNT)
    if milli is not None and memory is not None:
        raise GpuWishError(f"{MILLI} and {MEMORY_MIB}: want one or the other")
    if milli is not None and milli > WHOLE_MILLI:
        raise GpuWishError(f"{MILLI}: want 1 to {WHOLE_MILLI}, not {milli}")
    return GpuRequest(
        count=1 if count is None else count, milli=milli or WHOLE_MILLI, memory_mib=memory or 0, models=models
    )


def is_by_annotation(pod: Pod) -> bool:
    """Whether devices are asked for by annotation; such are not among the resources that a node has counted."""
    return MILLI in pod.metadata.annotations or MEMORY_MIB in pod.metadata.annotations


def _number(annotations: dict[str, str], key: str) -> int | None:
    text = annotations.get(key)
    if text is None:
        return None
    if not text.isdecimal() or int(text) == 0:
        raise GpuWishError(f"{key}: want a whole number above zero, not {text!r}")
    return int(text)


def given_devices(pod: Pod) -> tuple[int, ...]:
    """The devices a bound pod was given; none if nobody wrote them down."""
    parts = pod.metadata.annotations.get(DEVICES, "").split(",")
    return tuple(int(part) for part in parts) if all(part.strip().isdecimal() for part in parts) else ()


def gpus_of(node: Node) -> tuple[int, str, int]:
    """How many devices a node has, of which model, with how much memory each."""
    allocatable = node.allocatable
    counted = sum(amount(name, nanos(allocatable[name])) for name in GPU_NAMES if name in allocatable)
    devices = min(max(counted, 0), MOST_DEVICES)
    labels = node.metadata.labels
    model = next((labels[key] for key in MODEL_LABELS if key in labels), "")
    memory = next((labels[key] for key in MEMORY_LABELS if labels.get(key, "").isdecimal()), "0")
    return devices, model, int(memory)
