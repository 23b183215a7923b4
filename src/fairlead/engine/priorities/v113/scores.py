"""v1.13 priorities that differ from today's only in scale, in what they count, or in how they are normalised."""

from collections.abc import Sequence

import msgspec
import numpy as np

from fairlead.engine.axes import Bools, Ints
from fairlead.engine.priorities.image_locality import LEAST, MOST_PER_CONTAINER
from fairlead.engine.priorities.inter_pod_affinity import InterPodAffinity
from fairlead.engine.priorities.node_affinity import NodeAffinity
from fairlead.engine.priorities.taint_toleration import TaintToleration
from fairlead.engine.request import Request, normalised_image
from fairlead.engine.rule import Priority, scaled_to_best
from fairlead.engine.view import View
from fairlead.model.node import AVOID_PODS
from fairlead.model.pod import PreferredSchedulingTerm
from fairlead.model.undecodable import UNDECODABLE


class TaintTolerationPriority(TaintToleration):
    name = "TaintTolerationPriority"
    best = 10

    def normalise(self, raw_V: Ints, feasible_V: Bools, view: View, request: Request) -> Ints:
        return scaled_to_best(raw_V, feasible_V, reverse=True, best=10)


class NodeAffinityPriority(NodeAffinity):
    """Labels alone: fields are not looked at, so a term of nothing else matches no node."""

    name = "NodeAffinityPriority"
    best = 10

    def normalise(self, raw_V: Ints, feasible_V: Bools, view: View, request: Request) -> Ints:
        return scaled_to_best(raw_V, feasible_V, best=10)

    def _wishes(self, request: Request) -> Sequence[PreferredSchedulingTerm] | None:
        wishes = super()._wishes(request)
        return None if wishes is None else [_without_fields(wish) for wish in wishes]


def _without_fields(wish: PreferredSchedulingTerm) -> PreferredSchedulingTerm:
    return msgspec.structs.replace(wish, preference=msgspec.structs.replace(wish.preference, match_fields=None))


class InterPodAffinityPriority(InterPodAffinity):
    """Smallest and largest both start at zero, so a node that nobody likes or shuns keeps its distance from both."""

    name = "InterPodAffinityPriority"
    best = 10

    def normalise(self, raw_V: Ints, feasible_V: Bools, view: View, request: Request) -> Ints:
        smallest = int(np.where(feasible_V, raw_V, 0).min(initial=0))
        largest = int(np.where(feasible_V, raw_V, 0).max(initial=0))
        if largest == smallest:
            return np.zeros(view.size, dtype=np.int64)
        return (10.0 * ((raw_V - smallest) / (largest - smallest))).astype(np.int64)


class ImageLocalityPriority(Priority):
    """Containers alone, and one ceiling however many there are."""

    name = "ImageLocalityPriority"
    best = 10

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        table = view.table
        held_V = np.zeros(view.size, dtype=np.int64)
        for container in request.pod.spec.containers or ():
            image = table.images.get(normalised_image(container.image))
            if image is not None:
                held_V += int(image.size * (len(image.rows) / table.node_count)) * view.among(image.rows)
        score_V: Ints = 10 * (np.clip(held_V, LEAST, MOST_PER_CONTAINER) - LEAST) // (MOST_PER_CONTAINER - LEAST)
        return score_V


class _Controller(msgspec.Struct, rename="camel", frozen=True):
    kind: str = ""
    uid: str = ""


class _Signature(msgspec.Struct, rename="camel", frozen=True):
    pod_controller: _Controller | None = None


class _Entry(msgspec.Struct, rename="camel", frozen=True):
    pod_signature: _Signature = _Signature()


class _Avoided(msgspec.Struct, rename="camel", frozen=True):
    prefer_avoid_pods: tuple[_Entry, ...] | None = None


class NodePreferAvoidPodsPriority(Priority):
    """Ten, or nothing where the node's annotation names the pod's controller. Meant to weigh more than all others."""

    name = "NodePreferAvoidPodsPriority"
    best = 10

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        owner = request.pod.metadata.controller
        avoiding: set[int] = set()
        if owner is not None and owner.kind in ("ReplicationController", "ReplicaSet"):
            for row in view.table.row_of.values():
                node = view.table.nodes[row]
                text = node.metadata.annotations.get(AVOID_PODS) if node is not None else None
                if text and (owner.kind, owner.uid) in _avoided(text):
                    avoiding.add(row)
        return np.where(view.among(avoiding), 0, 10)


def _avoided(text: str) -> set[tuple[str, str]]:
    """The controllers an annotation names; one that cannot be read names none, as in Kubernetes."""
    try:
        entries = msgspec.json.decode(text, type=_Avoided).prefer_avoid_pods
    except UNDECODABLE:
        return set()
    controllers = (entry.pod_signature.pod_controller for entry in entries or ())
    return {(controller.kind, controller.uid) for controller in controllers if controller is not None}
