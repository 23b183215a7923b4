"""The quality of service class of a pod, from what its containers request and may use."""

from collections.abc import Iterable, Mapping

from fairlead.model.quantity import Quantity, nanos

Amounts = Mapping[str, Quantity] | None


def qos_class(resources: Iterable[tuple[Amounts, Amounts]]) -> str:
    """Of the requests and limits of each container, or of the pod alone where it has resources of its own.

    Guaranteed when each limits cpu and memory at what it requests, BestEffort when none says anything.
    """
    says_anything, is_guaranteed = False, True
    for requests, limits in resources:
        asked, most = _positive(requests), _positive(limits)
        says_anything = says_anything or bool(asked or most)
        is_guaranteed = is_guaranteed and len(most) == 2 and {**most, **asked} == most
    if not says_anything:
        return "BestEffort"
    return "Guaranteed" if is_guaranteed else "Burstable"


def _positive(amounts: Amounts) -> dict[str, int]:
    counted = {name: nanos(amount) for name, amount in (amounts or {}).items() if name in ("cpu", "memory")}
    return {name: amount for name, amount in counted.items() if amount > 0}
