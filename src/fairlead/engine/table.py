"""The table: the cluster as columns, one row per node.

The placement loop owns it and drains the cluster's changes into it; rules read it through views. `place` and `remove`
are the only writers of pod state and undo each other exactly; nothing here decides anything.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from fairlead.engine import axes
from fairlead.engine.axes import Bools, Ids, Interned, Ints, LabelColumn, ResourceAxis, RowColumn
from fairlead.engine.catalog import Catalog
from fairlead.engine.forecast import Rises
from fairlead.engine.gpu_requests import gpus_of
from fairlead.engine.gpus import NO_MODEL, GpuHold, GpuRequest, GpuTable
from fairlead.engine.huge_amounts import HugeAmounts
from fairlead.engine.labels import NO_LABELS, Labels
from fairlead.engine.occupant import Occupant, is_preempted, occupant_of
from fairlead.engine.pod_classes import PodClasses
from fairlead.engine.request import Request
from fairlead.engine.view import View
from fairlead.model import resources
from fairlead.model.node import AVOID_PODS, Node
from fairlead.model.outcome import VolumeChoice
from fairlead.model.pod import SchedulerPod
from fairlead.model.quantity import nanos
from fairlead.model.taints import Taint

# A journal entry is a row and the number of the request that was placed there, packed into one int so that the
# collector need not look at it; zero stands for anything else that changed the row.
ROW_SHIFT: Final = 32
OTHERWISE: Final = 0
# A journal longer than this is cut; whoever has read less than what remains starts afresh.
JOURNAL_LIMIT: Final = 1 << 16
# So many scalar resources at most have a column. A node that offers yet others offers nothing of them.
MOST_SCALARS: Final = 512
# Resources with a row of their own whoever offers them.
_GIVEN: Final = frozenset({resources.CPU, resources.MEMORY, resources.EPHEMERAL_STORAGE, resources.PODS})


class Image:
    """Which nodes have an image. The first size reported counts for every node."""

    __slots__ = ("rows", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows: set[int] = set()


class NodeTable:
    def __init__(self, catalog: Catalog | None = None, capacity: int = 64) -> None:
        self.catalog = catalog if catalog is not None else Catalog()
        self.axis = ResourceAxis()
        # Rows in use lie below size; freed ones are taken again, smallest first, so that rows depend on history alone.
        self.size = 0
        self.version = 0
        # What is written of each row: a node that cannot be read may have been written in part.
        self._offers_of: dict[int, Mapping[str, int]] = {}
        self._labels_of: dict[int, Mapping[str, str]] = {}
        self.row_of: dict[str, int] = {}
        self.nodes: list[Node | None] = []
        self._free: list[int] = []

        self.valid_N: Bools = np.zeros(capacity, dtype=np.bool_)
        self.cordoned_N: Bools = np.zeros(capacity, dtype=np.bool_)
        self.taint_set_N: Ids = np.zeros(capacity, dtype=np.int32)
        self.feature_set_N: Ids = np.zeros(capacity, dtype=np.int32)
        self.condition_set_N: Ids = np.zeros(capacity, dtype=np.int32)
        self.gpus = GpuTable.empty(capacity)
        # Pods that hold devices, or a part of one, which counting by resource name does not see.
        self.gpu_shares = 0
        self.alloc_RN: Ints = np.zeros((self.axis.size, capacity), dtype=np.int64)
        self.used_RN: Ints = np.zeros((self.axis.size, capacity), dtype=np.int64)
        self._huge = HugeAmounts()
        # What rules worked out about rows, by rule.
        self.memo: WeakKeyDictionary[object, dict[Any, Any]] = WeakKeyDictionary()

        # Scalars by the number of nodes that offer any, whether they have a column or came when there were too many.
        self.offered: Counter[str] = Counter()

        self.taint_sets: Interned[tuple[Taint, ...]] = Interned(())
        self.feature_sets: Interned[frozenset[str]] = Interned(frozenset())
        self.condition_sets: Interned[tuple[tuple[str, str], ...]] = Interned(())
        self.labels = Labels(capacity)
        self.each_row = RowColumn(capacity)
        self.images: dict[str, Image] = {}
        self._order: Ints | None = None
        self._rank: Ints | None = None
        self._in_order: bool | None = None
        self._everywhere: dict[tuple[int, ...], tuple[int, bool]] = {}

        self.classes = PodClasses(self.catalog, self.axis)
        self.occupants: dict[str, Occupant] = {}
        self.on_row: list[dict[str, Occupant]] = []
        self.waiting: dict[str, dict[str, Occupant]] = {}
        self.ports: dict[tuple[str, int], dict[str, dict[int, int]]] = {}
        self.claim_users: dict[str, int] = {}
        self.disk_users: dict[str, Occupant] = {}
        # By volume the claim it is reserved for; by claim the node it is reserved on, and how many pods need it.
        self.reserved_volumes: dict[str, str] = {}
        self.assumed_claims: dict[str, tuple[str, int]] = {}

        self.journal: list[int] = []
        self.journal_start = 0
        # What the catalog's forecast comes to on each row, kept by `forecast.change`.
        self.rises: Rises | None = None

    # Reading

    @property
    def capacity(self) -> int:
        return len(self.valid_N)

    @property
    def node_count(self) -> int:
        return len(self.row_of)

    def view(self, rows: Ints | None = None) -> View:
        return View(self, rows)

    def name(self, row: int) -> str:
        node = self.nodes[row]
        assert node is not None
        return node.metadata.name

    @property
    def order(self) -> Ints:
        """Rows sorted by node name."""
        if self._order is None:
            self._order = np.array([self.row_of[name] for name in sorted(self.row_of)], dtype=np.int64)
        return self._order

    @property
    def rank(self) -> Ints:
        """Each row's place in `order`."""
        if self._rank is None or len(self._rank) < self.size:
            self._rank = np.full(self.size, axes.ABSENT, dtype=np.int64)
            self._rank[self.order] = np.arange(len(self.order))
        return self._rank

    @property
    def is_in_order(self) -> bool:
        """Whether rows happen to follow the nodes' names, so that the first of several rows is the first by name."""
        if self._in_order is None:
            self._in_order = len(self.order) == self.size and bool((self.order == np.arange(self.size)).all())
        return self._in_order

    def lowest_priority(self) -> int:
        """Of all pods that hold a place; nobody of this priority or lower could evict anyone."""
        return min((request.priority for request in self.classes.requests.values() if request.pods), default=2**31)

    def oversold(self, row: int) -> Bools:
        """The resources of which pods on this row request more than it has; what scores assume is no request."""
        over_R: Bools = self.used_RN[:, row] > self.alloc_RN[:, row]
        over_R[[axes.ASSUMED_CPU, axes.ASSUMED_MEMORY]] = False
        return over_R

    def takes_oversold(self, uid: str) -> bool:
        """Whether this occupant requests a resource of which its node has too little."""
        occupant = self.occupants[uid]
        over_R = self.oversold(occupant.row)
        # By name: a request that was compiled before a column came or went has other rows.
        over = {name for name, at in self.axis.rows.items() if over_R[at]}
        return resources.PODS in over or any(occupant.request.takes.get(name, 0) > 0 for name in over)

    def has_everywhere(self, rows: tuple[int, ...]) -> bool:
        """Whether every node has some of each of these resources, so that nobody need ask node by node."""
        known = self._everywhere.get(rows)
        if known is None or known[0] != self.version:
            here_N = self.valid_N[: self.size]
            known = (self.version, bool((self.alloc_RN[list(rows), : self.size][:, here_N] > 0).all()))
            self._everywhere[rows] = known
        return known[1]

    def label(self, key: str) -> LabelColumn:
        """The column of a label key; of a key that no node has, one that is empty."""
        column = self.labels.columns.get(key)
        if column is None:
            column = self.labels.column(key)
            if self.labels.dropped:
                self._forget_dropped()
        return column

    def _forget_dropped(self) -> None:
        """Nobody counts by a column that is no longer kept up to date."""
        gone = set(map(id, self.labels.dropped))
        self.labels.dropped.clear()
        for tally in (*self.classes.tallies.values(), *(carried.tally for carried in self.classes.carried)):
            if tally.domains:
                tally.domains = [
                    domain for domain in tally.domains if domain.eligible_N is not None or id(domain.column) not in gone
                ]

    # Nodes

    def add_node(self, node: Node) -> int:
        """Add the node, or take over its changes if it is known."""
        row = self.row_of.get(node.name)
        if row is not None:
            self.update_node(node)
            return row
        if self._free:
            row = self._free.pop(0)
        else:
            row = self.size
            if row == self.capacity:
                self._grow(2 * self.capacity)
            self.size += 1
            self.nodes.append(None)
            self.on_row.append({})
        self.row_of[node.name] = row
        self.nodes[row] = node
        self.valid_N[row] = True
        self._write(row, node)
        self._order = self._rank = self._in_order = None
        for occupant in self.waiting.pop(node.name, {}).values():
            self.place(occupant)
        return row

    def update_node(self, node: Node) -> bool:
        """Take over the node's changes; False if nothing a rule could see has changed."""
        row = self.row_of[node.name]
        old = self.nodes[row]
        assert old is not None
        self.nodes[row] = node
        if _visible(old) == _visible(node):
            return False
        self._forget_images(row, old)
        self._write(row, node)
        return True

    def remove_node(self, name: str) -> None:
        """Drop the node; its pods wait in case it returns, as they stay bound to its name."""
        row = self.row_of[name]
        node = self.nodes[row]
        assert node is not None
        stranded = list(self.on_row[row].values())
        for occupant in stranded:
            self.remove(occupant)
        self._forget_images(row, node)
        del self.row_of[name]
        for occupant in stranded:
            self.place(occupant)
        self.nodes[row] = None
        self.valid_N[row] = False
        self.gpus.clear_node(row)
        self.cordoned_N[row] = False
        self._offer(row, {})
        self.taint_set_N[row] = self.feature_set_N[row] = self.condition_set_N[row] = 0
        self._write_labels(row, NO_LABELS)
        self._free.append(row)
        self._free.sort()
        self._order = self._rank = self._in_order = None
        self._changed(row)

    def _write(self, row: int, node: Node) -> None:
        self._offer(row, allocatable(node))
        self._write_gpus(row, node)
        self.cordoned_N[row] = node.spec.unschedulable
        self.taint_sets.set(self.taint_set_N, row, tuple(node.spec.taints or ()))
        self.feature_sets.set(self.feature_set_N, row, frozenset(node.status.declared_features or ()))
        self.condition_sets.set(self.condition_set_N, row, _conditions(node))
        self._write_labels(row, node.metadata.labels)
        for image in node.status.images or ():
            for name in image.names or ():
                known = self.images.get(name)
                if known is None:
                    known = self.images[name] = Image(image.size)
                known.rows.add(row)
        self._changed(row)

    def _write_labels(self, row: int, now: Mapping[str, str]) -> None:
        self.labels.write(row, self._labels_of.get(row, NO_LABELS), now)
        self._labels_of[row] = now
        if self.labels.dropped:
            self._forget_dropped()

    def _offer(self, row: int, now: Mapping[str, int]) -> None:
        """What the node of this row has to give; scalars that nobody offers any more lose their column."""
        before, self._offers_of[row] = self._offers_of.get(row, {}), now
        scalars = {name for name in now if name not in _GIVEN}
        self.offered.update(scalars)
        gone = []
        for name in before:
            if name not in _GIVEN:
                self.offered[name] -= 1
                if not self.offered[name]:
                    del self.offered[name]
                    gone.append(name)
        if gone:
            self._drop_columns(gone)
        new = [name for name in scalars if self.axis.known(name) is None]
        if new and len(self.offered) > MOST_SCALARS:
            self._choose_columns()
        elif new:
            self._add_columns(new)
        self.alloc_RN[:, row] = 0
        for name, amount in now.items():
            at = self.axis.known(name)
            if at is not None:
                self.alloc_RN[at, row] = amount

    def uncounted(self, name: str) -> int:
        """How many resources of this node have no column, for want of room."""
        offers = self._offers_of.get(self.row_of[name], {})
        return sum(self.axis.known(each) is None for each in offers) if len(self.offered) > MOST_SCALARS else 0

    def _add_columns(self, names: Iterable[str]) -> None:
        """Columns for scalars that a node offers; what placed pods already take of them is counted."""
        room = MOST_SCALARS - (self.axis.size - axes.FIRST_SCALAR)
        chosen = self._ranked(names)[: max(0, room)]
        if not chosen:
            return
        self.axis.add(chosen)
        more = np.zeros((len(chosen), self.capacity), dtype=np.int64)
        self.alloc_RN = np.concatenate([self.alloc_RN, more])
        self.used_RN = np.concatenate([self.used_RN, more])
        self._everywhere.clear()
        new = frozenset(chosen)
        for request in self.classes.requests.values():
            for name in new.intersection(request.takes) if request.pods else ():
                at, amount = self.axis.rows[name], request.takes[name]
                for row, count in request.rows.items():
                    self.used_RN[at, row] += self._huge.change(row, name, count * amount, of=amount)

    def _ranked(self, names: Iterable[str]) -> list[str]:
        """Who gets a column first: what a node with few scalars offers, so that a node with many takes none from the
        others; then what many nodes offer."""
        least: dict[str, int] = {}
        if len(self.offered) > MOST_SCALARS:
            for offers in self._offers_of.values():
                for name in offers:
                    least[name] = min(len(offers), least.get(name, len(offers)))
        return sorted(names, key=lambda name: (least.get(name, 0), -self.offered[name], name))

    def _choose_columns(self) -> None:
        """There are more scalars than columns: those that rank first have one."""
        chosen = frozenset(self._ranked(self.offered)[:MOST_SCALARS])
        given = [name for name, at in self.axis.rows.items() if at >= axes.FIRST_SCALAR]
        if lost := [name for name in given if name not in chosen]:
            self._drop_columns(lost)
        else:
            self._add_columns(chosen.difference(given))
            self._write_offers()

    def _write_offers(self) -> None:
        for row in self.row_of.values():
            for name, amount in self._offers_of.get(row, {}).items():
                if (at := self.axis.known(name)) is not None:
                    self.alloc_RN[at, row] = amount

    def _drop_columns(self, names: Collection[str]) -> None:
        if not any(self.axis.known(name) is not None for name in names):
            return
        kept = self.axis.drop(frozenset(names))
        self._huge.drop(names)
        self.alloc_RN, self.used_RN = self.alloc_RN[kept], self.used_RN[kept]
        self._everywhere.clear()
        waiting = [name for name in self.offered if self.axis.known(name) is None]
        if waiting:
            self._add_columns(waiting)
            self._write_offers()

    def _write_gpus(self, row: int, node: Node) -> None:
        devices, model, memory_mib = gpus_of(node)
        gpus = self.gpus
        known = (int(gpus.device_count_N[row]), int(gpus.model_N[row]), int(gpus.memory_mib_N[row]))
        if known == (devices, gpus.model_id(model) if model else NO_MODEL, memory_mib):
            return
        holders = [occupant for occupant in self.on_row[row].values() if occupant.request.gpu.count]
        for occupant in holders:
            self._count_gpus(occupant, row, -1)
        gpus.set_node(row, devices, model, memory_mib)
        for occupant in holders:
            self._count_gpus(occupant, row, 1)

    def _forget_images(self, row: int, node: Node) -> None:
        for image in node.status.images or ():
            for name in image.names or ():
                known = self.images.get(name)
                if known is not None:
                    known.rows.discard(row)
                    if not known.rows:
                        del self.images[name]

    def _changed(self, row: int) -> None:
        self.version += 1
        self._note(row, OTHERWISE)

    def _grow(self, capacity: int) -> None:
        def longer(column_N: np.ndarray) -> np.ndarray:
            grown = np.zeros((*column_N.shape[:-1], capacity), dtype=column_N.dtype)
            grown[..., : column_N.shape[-1]] = column_N
            return grown

        self.valid_N, self.cordoned_N = longer(self.valid_N), longer(self.cordoned_N)
        self.taint_set_N, self.feature_set_N = longer(self.taint_set_N), longer(self.feature_set_N)
        self.condition_set_N = longer(self.condition_set_N)
        self.alloc_RN, self.used_RN = longer(self.alloc_RN), longer(self.used_RN)
        self.labels.grow(capacity)
        self.each_row.grow(capacity)
        self.gpus.grow(capacity)
        self.version += 1

    # Pods

    def request(self, pod: SchedulerPod, *, incoming: bool = True) -> Request:
        """The class of a pod. An incoming pod's `nodeName` is a wish, a placed one's a fact."""
        return self.classes.request(pod, incoming=incoming)

    def add_pod(self, pod: SchedulerPod) -> None:
        """Take over what the cluster says about a pod: placed, changed, or no longer there."""
        known = self.occupants.get(pod.uid)
        if not pod.holds_a_node:
            if known is not None:
                self.forget(known)
            return
        self.classes.make_room()
        request = self.request(pod, incoming=False)
        if known is not None:
            if known.request is request and known.node == pod.spec.node_name:
                known.started_at = pod.status.start_time or ""
                known.preempted = is_preempted(pod)
                if known.terminating != pod.is_terminating:
                    self._set_terminating(known, pod.is_terminating)
                return
            self.forget(known)
        self.place(occupant_of(pod, request, pod.spec.node_name))

    def remove_pod(self, uid: str) -> None:
        occupant = self.occupants.get(uid)
        if occupant is not None:
            self.forget(occupant)

    def forget(self, occupant: Occupant) -> None:
        """Remove the pod, whether its node is here or awaited."""
        if occupant.row == axes.ABSENT:
            del self.occupants[occupant.uid]
            waiting = self.waiting[occupant.node]
            del waiting[occupant.uid]
            if not waiting:
                del self.waiting[occupant.node]
        else:
            self.remove(occupant)

    def place(self, occupant: Occupant) -> None:
        """Put the pod on its node; on an unknown node it waits for the node to appear."""
        request = occupant.request
        if not request.pods and (known := self.classes.requests.get(request.key)) is not request:
            # Its class was swept while it had no pods.
            if known is None:
                self.classes.adopt(request)
            else:
                occupant.request = known
        row = self.row_of.get(occupant.node, axes.ABSENT)
        self.occupants[occupant.uid] = occupant
        occupant.row = row
        if row == axes.ABSENT:
            self.waiting.setdefault(occupant.node, {})[occupant.uid] = occupant
            return
        self.on_row[row][occupant.uid] = occupant
        self._count(occupant, row, 1)

    def remove(self, occupant: Occupant) -> None:
        """Take the pod off its node: exactly what `place` did, undone."""
        row = occupant.row
        del self.occupants[occupant.uid]
        del self.on_row[row][occupant.uid]
        self._count(occupant, row, -1)
        occupant.row = axes.ABSENT

    def _count(self, occupant: Occupant, row: int, sign: int) -> None:
        request = occupant.request
        if request.axis_version != self.axis.version:
            request.fit(self.axis)
        if request.huge:
            self.used_RN[:, row] += self._huge.changes(request, row, sign)
        elif sign > 0:
            self.used_RN[:, row] += request.delta_R
        else:
            self.used_RN[:, row] -= request.delta_R
        request.pods += sign
        _bump(request.rows, row, sign)
        if occupant.terminating:
            _bump(request.terminating_rows, row, sign)
            for tally in request.tallies:
                if tally.terminating_too:
                    tally.add(row, sign)
        else:
            for tally in request.tallies:
                tally.add(row, sign)
        for tally in request.carried:
            tally.add(row, sign)
        if not request.is_plain:
            self._count_shared(occupant, row, sign)
        if request.gpu.count:
            self._count_gpus(occupant, row, sign)
        self._note(row, request.number if sign > 0 else OTHERWISE)

    def _count_shared(self, occupant: Occupant, row: int, sign: int) -> None:
        """Ports, claims and disks: what two pods cannot both have."""
        request = occupant.request
        for ip, protocol, port in request.ports:
            holders = self.ports.setdefault((protocol, port), {})
            taken = holders.setdefault(ip, {})
            _bump(taken, row, sign)
            if not taken:
                del holders[ip]
                if not holders:
                    del self.ports[protocol, port]
        for claim in request.claims_for_pod:
            key = f"{request.namespace}/{claim}"
            users = self.claim_users.get(key, 0) + sign
            if users:
                self.claim_users[key] = users
            else:
                del self.claim_users[key]
        for choice in occupant.volumes:
            self._reserve_volume(choice, occupant.node, sign)
        if request.disks:
            if sign > 0:
                self.disk_users[occupant.uid] = occupant
            else:
                del self.disk_users[occupant.uid]

    def _count_gpus(self, occupant: Occupant, row: int, sign: int) -> None:
        """Give the pod its devices or take them back. A pod placed by others where none are free holds none."""
        if sign > 0:
            before = occupant.gpus
            occupant.gpus = self._allocate(row, occupant.request.gpu, before.devices if before else ())
        elif occupant.gpus is not None:
            self.gpus.release(row, occupant.gpus)
        if occupant.gpus is not None and occupant.request.gpu_uncounted:
            self.gpu_shares += sign

    def _allocate(self, row: int, request: GpuRequest, devices: tuple[int, ...]) -> GpuHold | None:
        """On the given devices; on others where those are taken, as when a user wrote the annotation by hand."""
        try:
            return self.gpus.allocate(row, request, devices)
        except ValueError:
            # A device below zero stands for none at all.
            if not devices or min(devices) < 0:
                return None
        return self._allocate(row, request, ())

    def _reserve_volume(self, choice: VolumeChoice, node: str, sign: int) -> None:
        """Several pods may share a claim; the reservation stands while any of them is placed."""
        _, users = self.assumed_claims.get(choice.claim, (node, 0))
        if users + sign:
            self.assumed_claims[choice.claim] = (node, users + sign)
            if choice.volume:
                self.reserved_volumes[choice.volume] = choice.claim
        else:
            del self.assumed_claims[choice.claim]
            self.reserved_volumes.pop(choice.volume, None)

    def _set_terminating(self, occupant: Occupant, terminating: bool) -> None:
        row, request = occupant.row, occupant.request
        occupant.terminating = terminating
        if row == axes.ABSENT:
            return
        _bump(request.terminating_rows, row, 1 if terminating else -1)
        for tally in request.tallies:
            if not tally.terminating_too:
                tally.add(row, -1 if terminating else 1)
        self._note(row, OTHERWISE)

    # The journal: which rows changed, so that others can repair what they remember

    def _note(self, row: int, what: int) -> None:
        self.journal.append(row << ROW_SHIFT | what)
        if len(self.journal) >= JOURNAL_LIMIT:
            cut = JOURNAL_LIMIT // 2
            del self.journal[:cut]
            self.journal_start += cut

    def rows_changed_since(self, position: int) -> set[int]:
        """Rows noted from a former `journal_end` on; not to be asked for what has been cut."""
        assert position >= self.journal_start
        return {entry >> ROW_SHIFT for entry in self.journal[position - self.journal_start :]}

    @property
    def journal_end(self) -> int:
        return self.journal_start + len(self.journal)


def allocatable(node: Node) -> dict[str, int]:
    """What the node has to give; a scalar of which it has nothing is not offered."""
    amounts: dict[str, int] = {}
    for name, quantity in node.allocatable.items():
        if name in _GIVEN or resources.is_scalar(name):
            amount = resources.room(name, nanos(quantity))
            if amount or name in _GIVEN:
                amounts[name] = amount
    return amounts


def _conditions(node: Node) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((condition.type, condition.status) for condition in node.status.conditions or ()))


def _visible(node: Node) -> tuple[object, ...]:
    """The fields of a node that rules read; heartbeats and messages are not among them."""
    status = node.status
    return (
        node.metadata.labels,
        node.metadata.annotations.get(AVOID_PODS),
        node.spec,
        node.allocatable,
        status.images,
        status.declared_features,
        _conditions(node),
    )


def _bump(counts: dict[int, int], key: int, change: int) -> None:
    count = counts.get(key, 0) + change
    if count:
        counts[key] = count
    else:
        del counts[key]
