"""Reviews of Fluid's own objects: cache workers learn their nodes, and a direct scale-down is answered with a warning.

Fluid's specs stay as they are: a worker is a pod that Fluid's StatefulSet creates, and only the pod is changed.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

from fairlead.data.cache_map import name_of
from fairlead.data.draft import Draft, NotAPod, TooLarge, Unpatchable, check_pod, greater, in_
from fairlead.data.drains import DrainInput, lowers_to
from fairlead.data.locality_terms import HOST, LADDER
from fairlead.data.names import DATASET_LABEL, DatasetName, key_or_nothing
from fairlead.data.objects import RUNTIMES, Dataset
from fairlead.data.patch import diff
from fairlead.data.spec import DataGroup
from fairlead.web.admission import Review, Verdict, refused

PLANNED_WEIGHT: Final = 100


class FluidReviews:
    def __init__(
        self,
        groups: Iterable[DataGroup],
        datasets: Iterable[Dataset],
        drain_of: Callable[[str], DrainInput | None],
        direct_scale_in: Literal["warn", "deny"],
    ) -> None:
        self._groups = groups
        self._datasets = datasets
        self._drain_of = drain_of
        self._direct_scale_in = direct_scale_in

    async def worker(self, review: Review) -> Verdict:
        pod = review.object
        if review.operation != "CREATE" or pod is None:
            return Verdict()
        try:
            check_pod(pod)
        except (NotAPod, Unpatchable):
            return Verdict()
        labels = (pod.get("metadata") or {}).get("labels") or {}
        if not labels.get("role", "").endswith("-worker"):
            return Verdict()
        name = self._dataset(review.namespace, labels.get(DATASET_LABEL, ""))
        if name is None:
            return Verdict()
        try:
            return Verdict(patch=diff(pod, self._worker_draft(pod, name, review.name).pod))
        except TooLarge:
            return Verdict()

    def _dataset(self, namespace: str, label: str) -> DatasetName | None:
        """The dataset of a worker's label, which joins namespace and name, or has its UID where that is too long."""
        names = (name_of(each) for each in self._datasets if each.metadata.namespace == namespace)
        return next((name for name in names if name.dataset_id() == label), None)

    def _worker_draft(self, pod: Mapping[str, Any], name: DatasetName, pod_name: str) -> Draft:
        draft = Draft.of(pod)
        groups = [
            group
            for group in self._groups
            if group.metadata.namespace == name.namespace and name.name in group.spec.datasets
        ]
        pod_name = (pod.get("metadata") or {}).get("name") or pod_name
        own = {
            each.node for group in groups for each in group.status.workers if each.pod == f"{name.namespace}/{pod_name}"
        }
        planned = sorted(own or {node for group in groups for node in group.status.nodes})
        if planned:
            draft.prefer(PLANNED_WEIGHT, [in_(HOST, *planned)], "planned with the pods of a DataGroup")
        key = key_or_nothing(name.demand_key)
        for above, weight in LADDER if key else ():
            draft.prefer(weight, [greater(key, above)], f"readers of {name.key}")
        return draft

    async def scale(self, review: Review) -> Verdict:
        """A scale-down that did not go through a drain takes the data from under its readers."""
        before, after = (_replicas(tree, review.kind.kind) for tree in (review.old_object, review.object))
        if review.operation != "UPDATE" or after >= before or self._is_last_step(review, after):
            return Verdict()
        command = f"fairlead data scale {review.namespace}/{review.name} --replicas {after}"
        sentence = f"workers are removed under their readers; `{command}` drains them first"
        if self._direct_scale_in == "deny":
            return refused(f"spec.replicas: {sentence}")
        return Verdict(warnings=(sentence,))

    def _is_last_step(self, review: Review, after: int) -> bool:
        """Whether a drain would write the same now; its annotations alone could be anybody's."""
        seen = self._drain_of(f"{review.namespace}/{review.name}")
        return seen is not None and seen.kind.kind == review.kind.kind and lowers_to(seen) == after


def _replicas(tree: Mapping[str, Any] | None, kind: str) -> int:
    """0 where none are given, as Fluid reads it."""
    spec = (tree or {}).get("spec") or {}
    part = spec.get("worker") if kind == RUNTIMES["cache"].kind and isinstance(spec, dict) else spec
    found = part.get("replicas") if isinstance(part, dict) else None
    return int(found) if isinstance(found, int | float) else 0
