"""The quality of service class of a pod, from what its containers request and may use."""

from collections.abc import Iterable, Mapping

from fairlead.model.quantity import Quantity, nanos

Amounts = Mapping[str, Quantity] | None


def qos_class(resources: Iterable[tuple[Amounts, Amounts]]) -> str:
    """Of the requests and limits of each container, or of the pod alone where it has resources of its own.

    Guaranteed when each limits cpu and memory at what it requests, BestEffort when none says anything.
    """
    is_any_set, is_guaranteed = False, True
    for requests, limits in resources:
        requested, most = _positive(requests), _positive(limits)
        is_any_set = is_any_set or bool(requested or most)
        is_guaranteed = is_guaranteed and len(most) == 2 and {**most, **requested} == most
    if not is_any_set:
        return "BestEffort"
    return "Guaranteed" if is_guaranteed else "Burstable"


def _positive(amounts: Amounts) -> dict[str, int]:
    counted = {name: nanos(amount) for name, amount in (amounts or {}).items() if name in ("cpu", "memory")}
    return {name: amount for name, amount in counted.items() if amount > 0}
