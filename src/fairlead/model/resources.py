"""A pod's requests, summed as Kubernetes sums them.

Amounts stay exact billionths (see quantity.py) until `Amounts` are taken for a table: cpu in thousandths, everything
else in whole units, each rounded up once per pod.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from fairlead.model.pod import Container, ContainerStatus, SchedulerPod
from fairlead.model.quantity import LARGEST, NANO, Quantity, milli, nanos, whole

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"

# The requests for scoring of a container that has none.
ASSUMED_CPU = 100 * 10**6
ASSUMED_MEMORY = 200 * 2**20 * NANO
ASSUMED: Mapping[str, int] = {CPU: ASSUMED_CPU, MEMORY: ASSUMED_MEMORY}

# No node has more, and whoever asks for more fits nowhere; a hundred times as much, as in scores, is within 64 bits.
MOST_AMOUNT = LARGEST // 100

Nanos = dict[str, int]


@lru_cache(maxsize=4096)
def is_extended(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


@lru_cache(maxsize=4096)
def is_scalar(name: str) -> bool:
    """A name the scheduler counts besides cpu, memory and ephemeral storage; other names are ignored."""
    return is_extended(name) or name.startswith(("hugepages-", "attachable-volumes-")) or "kubernetes.io/" in name


def is_counted(name: str) -> bool:
    return name in (CPU, MEMORY, EPHEMERAL_STORAGE) or is_scalar(name)


def is_pod_level(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith("hugepages-")


def amount(name: str, billionths: int) -> int:
    """In the scheduler's unit, at most MOST_AMOUNT."""
    return min(milli(billionths) if name == CPU else whole(billionths), MOST_AMOUNT)


def room(name: str, billionths: int) -> int:
    """What a node offers: below the largest request, and never negative."""
    return max(0, min(amount(name, billionths), MOST_AMOUNT - 1))


def read(quantities: Mapping[str, Quantity] | None) -> Nanos:
    # A negative request frees no room.
    return {name: max(0, nanos(quantity)) for name, quantity in (quantities or {}).items()}


def pod_requests(
    pod: SchedulerPod, *, assumed: Mapping[str, int] | None = None, pod_level: bool = True, placed: bool = False
) -> Nanos:
    """Everything the pod needs at once.

    `assumed` stands in for what a container does not mention, `pod_level` honours requests of the whole pod, `placed`
    counts a resize in progress (the larger of what is requested, granted and in force).
    """
    needs = _container_requests(pod, assumed or {}, placed)
    whole_pod = pod.spec.resources
    if pod_level and whole_pod is not None and whole_pod.requests:
        requested = read(whole_pod.requests)
        if placed and pod.status.resources is not None:
            granted = _largest(
                pod, requested, read(pod.status.resources.requests), read(pod.status.allocated_resources)
            )
            requested = {name: granted.get(name, 0) for name in requested}
        needs.update((name, value) for name, value in requested.items() if is_pod_level(name))
    _add(needs, read(pod.spec.overhead))
    return needs


def scoring_requests(pod: SchedulerPod, *, pod_level: bool, placed: bool = False) -> Nanos:
    """The pod's requests for scoring: containers without requests count with assumed amounts.

    With requests for the whole pod only a resource missing at both levels is assumed.
    """
    whole_pod = pod.spec.resources
    if not (pod_level and whole_pod is not None and any(is_pod_level(name) for name in whole_pod.requests or ())):
        return pod_requests(pod, assumed=ASSUMED, pod_level=pod_level, placed=placed)
    needs = pod_requests(pod, placed=placed)
    missing = {name: value for name, value in ASSUMED.items() if name not in needs}
    return pod_requests(pod, assumed=missing, placed=placed) if missing else needs


def is_best_effort(pod: SchedulerPod) -> bool:
    """No container asks for or limits cpu or memory (the v1.13 meaning)."""
    for container in pod.spec.containers or ():
        for quantities in (container.resources.requests, container.resources.limits):
            if any(name in (CPU, MEMORY) and nanos(value) > 0 for name, value in (quantities or {}).items()):
                return False
    return True


def _container_requests(pod: SchedulerPod, assumed: Mapping[str, int], placed: bool) -> Nanos:
    statuses: dict[str, ContainerStatus] = {}
    if placed:
        for status in (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ())):
            statuses[status.name] = status

    def needs_of(container: Container, resizable: bool) -> Nanos:
        needs = read(container.resources.requests)
        status = statuses.get(container.name) if resizable else None
        if status is not None and status.resources is not None:
            needs = _largest(pod, needs, read(status.resources.requests), read(status.allocated_resources))
        for name, value in assumed.items():
            needs.setdefault(name, value)
        return needs

    total: Nanos = {}
    for container in pod.spec.containers or ():
        _add(total, needs_of(container, resizable=True))
    sidecars: Nanos = {}
    peak: Nanos = {}
    for container in pod.spec.init_containers or ():
        needs = needs_of(container, resizable=container.is_sidecar)
        if container.is_sidecar:
            _add(total, needs)
            _add(sidecars, needs)
            needs = sidecars
        else:
            _add(needs, sidecars)
        _raise_to(peak, needs)
    _raise_to(total, peak)
    return total


def _largest(pod: SchedulerPod, desired: Nanos, in_force: Nanos, granted: Nanos) -> Nanos:
    pending = pod.condition("PodResizePending")
    is_infeasible = pending is not None and pending.reason == "Infeasible"
    largest: Nanos = {} if is_infeasible else dict(desired)
    _raise_to(largest, in_force)
    _raise_to(largest, granted)
    return largest


def _add(total: Nanos, more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise_to(total: Nanos, other: Mapping[str, int]) -> None:
    for name, value in other.items():
        if name not in total or value > total[name]:
            total[name] = value


def counted(needs: Mapping[str, int]) -> Iterable[tuple[str, int]]:
    """The resources that the scheduler counts, in its units."""
    return ((name, amount(name, value)) for name, value in needs.items() if is_counted(name))
