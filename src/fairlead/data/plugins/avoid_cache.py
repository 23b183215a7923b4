"""PreferNodesWithoutCache: a pod without a dataset leaves the nodes with caches to others.

By the label that Fluid sets on nodes with workers; with `form: workers` by the workers themselves, as an
anti-affinity to their roles.
"""

from typing import Any, Final

from fairlead.data.draft import Draft
from fairlead.data.names import DATASET_NUM
from fairlead.data.plugin import BadArguments, PluginContext, Policy

WEIGHT: Final = 100
ROLES: Final = (
    "alluxio-worker", "jindofs-worker", "juicefs-worker", "thin-worker", "efc-worker", "vineyard-worker",
)  # fmt: skip


class AvoidCache:
    name = "PreferNodesWithoutCache"
    policy: Policy = "ignore"

    def __init__(self, arguments: Any = None) -> None:
        form = (arguments or {}).get("form", "nodes") if isinstance(arguments, dict | None) else None
        if form not in ("nodes", "workers"):
            raise BadArguments(f"form: must be nodes or workers, not {form!r}")
        self._by_workers = form == "workers"

    def mutate(self, draft: Draft, context: PluginContext) -> bool:
        """Ends the chain, whether it does anything or not."""
        if not context.datasets:
            because = "the pod mounts no dataset"
            if self._by_workers:
                self._avoid_workers(draft, because)
            else:
                draft.prefer(WEIGHT, [{"key": DATASET_NUM, "operator": "DoesNotExist"}], because)
        return True

    def _avoid_workers(self, draft: Draft, because: str) -> None:
        selector = {"matchExpressions": [{"key": "role", "operator": "In", "values": list(ROLES)}]}
        # Workers run in the namespaces of their datasets: look in all of them.
        term = {"labelSelector": selector, "namespaceSelector": {}, "topologyKey": "kubernetes.io/hostname"}
        draft.prefer_pods_apart(WEIGHT, term, because)
