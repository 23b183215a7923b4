"""The GPUs that a pod requests and that a node has, read from their objects.

Whole devices are asked for by their resource name, as ever. A share of one device is asked for by annotation, since no
device plugin knows of shares: so much of a device (`gpu-milli`, thousandths) or so much of its memory.
"""

from typing import Final

from fairlead.engine.gpus import NO_GPU, WHOLE_MILLI, GpuRequest
from fairlead.model.node import Node
from fairlead.model.numbers import whole_number
from fairlead.model.pod import SchedulerPod
from fairlead.model.quantity import nanos
from fairlead.model.resources import pod_requests, room

GPU_NAMES: Final = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915")

# Individual devices of one node. The table has a cell for each device of the largest node on every row; what
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

# Memory of one device. More is a slip, or worse.
MOST_MEMORY_MIB: Final = 2**30
_UNBOUNDED: Final = 10**40


class GpuRequestError(ValueError):
    """The annotations cannot be parsed; the message names the one that is wrong."""


def gpu_request(pod: SchedulerPod) -> GpuRequest:
    annotations = pod.metadata.annotations
    models = frozenset(annotations.get(MODELS, "").replace("|", " ").split())
    milli = _number(annotations, MILLI, WHOLE_MILLI)
    memory = _number(annotations, MEMORY_MIB, MOST_MEMORY_MIB)
    if milli is None and memory is None:
        needs = pod_requests(pod)
        whole = sum(room(name, needs[name]) for name in GPU_NAMES if name in needs)
        # One more than any node has is as many as any number above.
        return GpuRequest(count=min(whole, MOST_DEVICES + 1), models=models) if whole else NO_GPU
    count = _number(annotations, COUNT, MOST_DEVICES)
    if milli is not None and memory is not None:
        raise GpuRequestError(f"{MILLI} and {MEMORY_MIB}: set one or the other")
    return GpuRequest(
        count=1 if count is None else count, milli=milli or WHOLE_MILLI, memory_mib=memory or 0, models=models
    )


def is_by_annotation(pod: SchedulerPod) -> bool:
    """Whether devices are asked for by annotation; such are not among the resources that a node has counted."""
    return MILLI in pod.metadata.annotations or MEMORY_MIB in pod.metadata.annotations


def _number(annotations: dict[str, str], key: str, most: int) -> int | None:
    text = annotations.get(key)
    if text is None:
        return None
    number = whole_number(text, 1, _UNBOUNDED)
    if number is None:
        shown = text if len(text) <= 40 else f"{text[:37]}..."
        raise GpuRequestError(f"{key}: must be a whole number above zero, not {shown!r}")
    if number > most:
        raise GpuRequestError(f"{key}: must be 1 to {most}, not {number}")
    return number


def given_devices(pod: SchedulerPod) -> tuple[int, ...]:
    """The devices that a bound pod has, by its annotation; none without one."""
    parts = pod.metadata.annotations.get(DEVICES, "").split(",")
    numbers = [whole_number(part.strip(), 0, MOST_DEVICES - 1) for part in parts[: MOST_DEVICES + 1]]
    given = tuple(number for number in numbers if number is not None)
    return given if len(given) == len(parts) else ()


def device_count(node: Node) -> int:
    """All that the node offers, whether they are counted one by one or not."""
    allocatable = node.allocatable
    return sum(room(name, nanos(allocatable[name])) for name in GPU_NAMES if name in allocatable)


def gpus_of(node: Node) -> tuple[int, str, int]:
    """How many devices a node has, of which model, with how much memory each."""
    labels = node.metadata.labels
    model = next((labels[key] for key in MODEL_LABELS if key in labels), "")
    labelled = (whole_number(labels.get(key, ""), 0, MOST_MEMORY_MIB) for key in MEMORY_LABELS)
    memory = next((number for number in labelled if number is not None), 0)
    return min(device_count(node), MOST_DEVICES), model, memory
