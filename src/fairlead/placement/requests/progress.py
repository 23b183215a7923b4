"""How far a change is, by the pods there are: which came for which place, which went, and what differed. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from fairlead.model.pod import SchedulerPod
from fairlead.model.times import parse_time_or_none
from fairlead.placement.requests.spec import Item, ItemStatus, Place
from fairlead.placement.reservations import GIVEN_UP, GivenUp

GONE_AGAIN: Final = "the pod was created and is deleted by now"
AFTER_LEAVING: Final = "binds after the pods that leave "
LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


def new_pods(status: ItemStatus, item: Item, pods: Sequence[SchedulerPod]) -> list[SchedulerPod]:
    """Pods that were not there when the item was planned, oldest first."""
    known = set(names_when_planned(status, item.workload.name))
    fresh = [pod for pod in pods if pod.metadata.name not in known and not pod.is_terminating and not pod.is_finished]
    return sorted(fresh, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))


def match_places(places: Sequence[Place], new: Sequence[SchedulerPod]) -> list[Place]:
    """Each place with the pod that came for it: first those on the reserved node, then the others."""
    on_node: dict[str, list[SchedulerPod]] = {}
    for pod in new:
        on_node.setdefault(pod.spec.node_name, []).append(pod)
    kept = [on_node[place.node].pop(0) if place.node and on_node.get(place.node) else None for place in places]
    # Pods without a node come last: they may still find their way.
    left = sorted((pod for pods in on_node.values() for pod in pods), key=lambda pod: (not pod.spec.node_name, pod.key))
    others = iter(left)
    # Pods that came before and are gone again: they were made, so nobody need wait for them to be.
    there = {pod.metadata.name for pod in new}
    gone = iter([place for place in places if place.pod and place.pod not in there])
    matched: list[Place] = []
    for place, own in zip(places, kept, strict=True):
        if own is not None:
            matched.append(_kept(place, own))
        elif (other := next(others, None)) is not None:
            matched.append(_came(place, other))
        elif (former := next(gone, None)) is not None:
            matched.append(msgspec.structs.replace(place, pod=former.pod, bound_to=former.bound_to, note=GONE_AGAIN))
        else:
            note = _bound_later(place) if place.node else place.note
            matched.append(msgspec.structs.replace(place, pod="", bound_to="", note=note))
    return matched


def given_up(status: ItemStatus, lost: Iterable[GivenUp]) -> ItemStatus:
    """The status without the nodes whose places others got while nobody had come for them yet."""
    places = list(status.places)
    for each in lost:
        at = next((at for at, place in enumerate(places) if place.node == each.node and not place.pod), None)
        if at is not None:
            places[at] = msgspec.structs.replace(places[at], node="", note=each.why)
    return msgspec.structs.replace(status, places=tuple(places)) if tuple(places) != status.places else status


def _kept(place: Place, pod: SchedulerPod) -> Place:
    return msgspec.structs.replace(place, pod=pod.metadata.name, bound_to=pod.spec.node_name, note="")


def _came(place: Place, pod: SchedulerPod) -> Place:
    node = pod.spec.node_name
    if not node:
        scheduled = pod.condition("PodScheduled")
        why = scheduled.message if scheduled is not None else ""
        note = "; ".join(part for part in (_bound_later(place), why) if part) or "waits for a node"
        return msgspec.structs.replace(place, pod=pod.metadata.name, bound_to="", note=note)
    note = f"{place.node} had no room left for it when it was created" if place.node else ""
    return msgspec.structs.replace(place, pod=pod.metadata.name, bound_to=node, note=note)


def _bound_later(place: Place) -> str:
    """What a place on room that others still hold says, without what its pod has said since."""
    return place.note.partition("; ")[0] if place.note.startswith(AFTER_LEAVING) else ""


def are_all_created(item: Item, status: ItemStatus) -> bool:
    """Whether an addition only waits for nodes: its pods are there, so the next change of the workload may come."""
    return status.phase == "Scaled" and not item.is_removal and all(place.pod for place in status.places)


def follow(
    item: Item,
    status: ItemStatus,
    pods: Sequence[SchedulerPod],
    *,
    now: datetime,
    settle_s: float,
    removed: Set[str] = frozenset(),
) -> ItemStatus:
    """How far a Scaled item is, by the pods there are now; finished when all is done or nothing more is waited for.

    `removed`: names of the workload's pods that requests have removed.
    """
    is_late = is_over(status.acted_at, settle_s, now)
    return (
        _follow_removal(item, status, pods, is_late)
        if item.is_removal
        else _follow_addition(item, status, pods, is_late, removed)
    )


def _follow_addition(
    item: Item, status: ItemStatus, pods: Sequence[SchedulerPod], is_late: bool, removed: Set[str]
) -> ItemStatus:
    new = new_pods(status, item, pods)
    if not status.places:
        # Another scheduler's: its places are its own affair, so ours ends with the change.
        return msgspec.structs.replace(status, phase="Done", added=min(item.number, len(new)))
    places = tuple(match_places(status.places, new))
    # The next request for the workload may have taken a pod again before it had a node: it was added all the same.
    again = sum(1 for place in places if place.note == GONE_AGAIN and place.pod in removed)
    added = min(item.number, sum(1 for pod in new if pod.spec.node_name) + again)
    status = msgspec.structs.replace(status, places=places, added=added)
    where = by_node(place.bound_to for place in places if place.bound_to)
    by = f" and placed by scheduler {status.scheduler}" if status.scheduler else ""
    if added >= item.number:
        elsewhere = sum(1 for place in places if place.node and place.bound_to not in ("", place.node))
        message = f"{pods_of(added)} added{by}" + (f": on {where}" if where else "")
        message += f"; {elsewhere} not on the reserved node" if elsewhere else ""
        message += f"; {again} of them removed again since" if again else ""
        return msgspec.structs.replace(status, phase="Done", message=message)
    made = min(item.number, sum(1 for place in places if place.pod))
    message = f"{added} of {item.number} pods have a node" + (f": on {where}" if where else "")
    message += f"; scheduler {status.scheduler} places them" if status.scheduler else ""
    message += f"; {item.number - made} are not made yet" if made < item.number else ""
    lost = [place.note for place in places if not place.node and not place.pod and GIVEN_UP in place.note]
    message += f"; {lost[0]}" + (f", and {len(lost) - 1} more" if len(lost) > 1 else "") if lost else ""
    if not is_late:
        return msgspec.structs.replace(status, message=message)
    shortfall = item.number - added
    message += f"; {pods_of(shortfall)} short{_shortage(places, status.scheduler)}; no longer waited for"
    return msgspec.structs.replace(status, phase="Partial", shortfall=shortfall, message=message)


def _shortage(places: Sequence[Place], scheduler: str) -> str:
    """Why pods have no node, by the messages of their scheduler, the most frequent first."""
    notes = Counter(place.note for place in places if not place.bound_to and place.note)
    if not notes:
        return ""
    who = f" by scheduler {scheduler}" if scheduler else ""
    return f"{who}: " + "; ".join(note for note, _ in notes.most_common(2))


def ended(item: Item, status: ItemStatus) -> ItemStatus:
    """The workload is gone, so nothing more will come."""
    message = (
        f"{item.workload.described()} is gone, or another one now; {status.added} of {item.number} pods had a node"
    )
    return msgspec.structs.replace(status, phase="Partial" if status.added else "Failed", message=message)


def _follow_removal(item: Item, status: ItemStatus, pods: Sequence[SchedulerPod], is_late: bool) -> ItemStatus:
    seen = names_when_planned(status, item.workload.name)
    there = {pod.metadata.name: pod for pod in pods if not pod.is_finished}
    uids = {pod.metadata.uid for pod in there.values()}
    victims = tuple(msgspec.structs.replace(victim, gone=victim.uid not in uids) for victim in status.victims)
    gone = [name for name in seen if name not in there]
    if item.workload.kind == "Service":
        gone = [victim.pod for victim in victims if victim.gone]
        expected = len(victims)
    else:
        expected = max(0, len(seen) - (status.replicas.after if status.replicas else 0))
    is_going = any(not victim.gone and there[victim.pod].is_terminating for victim in victims if victim.pod in there)
    stayed = [victim for victim in victims if not victim.gone]
    named = {victim.pod for victim in victims}
    instead = tuple(name for name in gone if name not in named)[: len(stayed)]
    is_done = len(gone) >= expected and not is_going
    # In a roll-out more go than were asked for: those are its own.
    expected = min(expected, item.number)
    removed = min(expected, len(gone))
    status = msgspec.structs.replace(status, victims=victims, gone_instead=instead, removed=removed)
    short = f"; {status.shortfall} fewer than requested: there were no more" if status.shortfall else ""
    if is_done:
        note = "stayed; another went instead"
        noted = tuple(each if each.gone else msgspec.structs.replace(each, note=note) for each in victims)
        message = f"{pods_of(removed)} removed" + (f", {len(instead)} of them not as named" if instead else "") + short
        return msgspec.structs.replace(
            status, phase="Partial" if status.shortfall else "Done", message=message, victims=noted
        )
    message = f"{removed} of {expected} pods are gone{short}"
    if not is_late:
        return msgspec.structs.replace(status, message=message)
    return msgspec.structs.replace(status, phase="Partial", message=f"{message}; no longer waited for")


def names_when_planned(status: ItemStatus, workload: str) -> list[str]:
    """The pods there were when the item was planned."""
    return [end[1:] if end.startswith("=") else f"{workload}{end}" for end in status.seen.split()]


def ends_of_names(pods: Sequence[SchedulerPod], workload: str) -> str:
    """Names without the workload's, which most begin with; whole ones are marked. `names_when_planned` reads it."""
    names = [pod.metadata.name for pod in pods]
    return " ".join(name.removeprefix(workload) if name.startswith(f"{workload}-") else f"={name}" for name in names)


def by_node(names: Iterable[str]) -> str:
    """`a, b ×2`: nodes with how often each, the first few of them."""
    counted = Counter(names)
    parts = [f"{node} ×{count}" if count > 1 else node for node, count in sorted(counted.items())]
    return ", ".join(parts) if len(parts) <= 8 else f"{', '.join(parts[:8])} and {len(parts) - 8} more"


def pods_of(count: int) -> str:
    return f"{count} pod" if count == 1 else f"{count} pods"


def is_over(since: str, seconds: float, now: datetime) -> bool:
    return not since or now - moment(since) >= timedelta(seconds=seconds)


def moment(text: str) -> datetime:
    """A time as it was written down; what is none was long ago, so that nobody waits for it."""
    return parse_time_or_none(text) or LONG_AGO
