"""Why a job is pending: what its last decision says, as data and as a sentence. Pure."""

from fairlead.engine.unit import NeverFits, Shortage, UnitRefused
from fairlead.jobs.spec import Explain
from fairlead.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY

MOST_REASONS = 8
NO_SHORTAGE = Shortage("", 0, 0, "")


def explain_refusal(refused: UnitRefused) -> Explain:
    """In short, for the status: bounded however many nodes there are."""
    diagnosis = refused.diagnosis
    shortage = refused.shortages[0] if refused.shortages else NO_SHORTAGE
    refusals: dict[str, int] = {}
    for each in sorted(diagnosis.refusals, key=lambda each: -each.nodes)[:MOST_REASONS]:
        refusals[each.reason] = refusals.get(each.reason, 0) + each.nodes
    return Explain(
        message=sentence(refused),
        pod=refused.pod,
        resource=shortage.resource,
        needed=shortage.needed,
        free=shortage.free,
        node=shortage.node,
        fitting=refused.fitting,
        nodes=diagnosis.nodes,
        refusals=refusals,
    )


def sentence(refused: UnitRefused) -> str:
    if refused.never is not None:
        return f"can never fit on the nodes there are: {refused.never.sentence()}{_largest(refused.never)}"
    fitting = counted(refused.fitting, "pod")
    parts = [f"{fitting} would fit, {refused.pod.rpartition('/')[2]} does not: {_cause(refused)}"]
    if refused.evicting:
        parts.append(f"waits for the end of {counted(len(refused.evicting), 'pod')} of lower priority")
    if refused.reserved:
        parts.append(f"room is kept for it on {counted(len(refused.reserved), 'node')}")
    return "; ".join(parts)


def _largest(never: NeverFits) -> str:
    found = never.largest
    if found is None:
        return ""
    if not found.node:
        return "; no node has the labels that its nodeSelector or node affinity asks for"
    needed, has = amount(found.resource, found.needed), amount(found.resource, found.has)
    return f"; {found.resource} {needed} needed, the largest node {found.node} has {has}"


def counted(number: int, noun: str) -> str:
    """`1 pod`, `2 pods`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _cause(refused: UnitRefused) -> str:
    if not refused.shortages:
        return refused.diagnosis.message().rstrip(".")
    short = refused.shortages[0]
    needed, free = amount(short.resource, short.needed), amount(short.resource, short.free)
    return f"{short.resource} {needed} needed, best node {short.node} has {free}"


def amount(resource: str, value: int) -> str:
    """As a manifest would write it."""
    if resource == CPU:
        return f"{value}m" if value % 1000 else str(value // 1000)
    if resource in (MEMORY, EPHEMERAL_STORAGE) or resource.startswith("hugepages-"):
        for unit, size in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
            if value >= size:
                return f"{value / size:.4g}{unit}"
    return str(value)
