"""What a service is like: hungry for cpu or for memory, what its pods use now and what they ask for.

The current load is the baseline of its forecast documents, where there are any; requests are always at hand. Asked
synchronously while a round is sorted, so nothing here waits.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from fairlead.engine.presort import Kind
from fairlead.model.pod import SchedulerPod
from fairlead.model.resources import CPU, MEMORY, counted, pod_requests
from fairlead.placement.forecasts.documents import Subject

# A service is hungry for what it takes so many times the share of, beside the other.
HUNGRY: Final = 2.0
# What a core comes with where nobody knows the cluster.
BYTES_PER_MILLI: Final = 4 * 2**30 / 1000


class ServiceProfile(msgspec.Struct, frozen=True):
    """Per pod; a load of 0 is one nobody knows. Fills an `engine.presort.Ask`."""

    kind: Kind = Kind.BALANCED
    load_cpu_milli: int = 0
    load_memory_bytes: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0


class Profiles:
    def __init__(self, loads: Mapping[Subject, Mapping[str, float]], allocatable: tuple[int, int]) -> None:
        """`loads` is the forecast reader's; `allocatable` is what all nodes have together, in milli and bytes."""
        self._loads = loads
        self._allocatable = allocatable

    def of(self, namespace: str, names: Sequence[str], pod: SchedulerPod) -> ServiceProfile:
        """The profile of a service by one of its pods, or a pod as its template would make it, and by what it is
        called: by the caller, as a workload, as a Service; the first name with a known load counts.
        """
        load = next((found for name in names if (found := self._loads.get((namespace, name)))), {})
        requested = dict(counted(pod_requests(pod)))
        return profile(
            round(load.get(CPU, 0.0) * 1000),
            round(load.get(MEMORY, 0.0)),
            requested.get(CPU, 0),
            requested.get(MEMORY, 0),
            self._allocatable,
        )


def profile(
    load_cpu_milli: int, load_memory_bytes: int, cpu_milli: int, memory_bytes: int, allocatable: tuple[int, int]
) -> ServiceProfile:
    # What is really used says more about a service than its requests do.
    used = (load_cpu_milli, load_memory_bytes) if load_cpu_milli and load_memory_bytes else (cpu_milli, memory_bytes)
    return ServiceProfile(kind_of(*used, *allocatable), load_cpu_milli, load_memory_bytes, cpu_milli, memory_bytes)


def kind_of(cpu_milli: int, memory_bytes: int, all_cpu_milli: int, all_memory_bytes: int) -> Kind:
    """Which share of the cluster is at least twice the other; of no more than one known amount nothing is said."""
    if cpu_milli <= 0 or memory_bytes <= 0:
        return Kind.BALANCED
    per_milli = all_memory_bytes / all_cpu_milli if all_cpu_milli > 0 and all_memory_bytes > 0 else BYTES_PER_MILLI
    ratio = cpu_milli * per_milli / memory_bytes
    if ratio >= HUNGRY:
        return Kind.CPU
    return Kind.MEMORY if ratio <= 1 / HUNGRY else Kind.BALANCED
