"""The one pod watch of all virtual nodes: a mirror that keeps only the pods bound to nodes of ours.

`nodes.kubelet` feeds its controller from it. On a cluster with many other pods those are decoded and dropped, so that
memory follows our own.
"""

from collections.abc import Callable, Iterable, Mapping

from fairlead.cluster.backoff import Rng
from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.watch import Watch, selectors
from fairlead.nodes.spec import PODS, KubeletPod


class PodMirror(Mirror[KubeletPod]):
    def __init__(
        self, client: Client, is_ours: Callable[[str], bool], *, clock: Clock, rng: Rng, metrics: Metrics
    ) -> None:
        self._client = client
        self._is_ours = is_ours
        # Unbound pods are nobody's on a node; the server leaves them out.
        bound = selectors(field="spec.nodeName!=")
        watch = Watch(client, PODS, clock=clock, rng=rng, metrics=metrics, selectors=bound)
        super().__init__(watch, PODS, metrics, {"node": lambda pod: (pod.spec.node_name,)})

    def replace(self, objects: Mapping[str, KubeletPod]) -> None:
        super().replace({key: pod for key, pod in objects.items() if self._is_ours(pod.spec.node_name)})

    def apply(self, changes: Iterable[tuple[bool, KubeletPod]]) -> None:
        # A deletion is let through in any case: the node may have ceased to be ours while the pod was still here.
        super().apply((exists, pod) for exists, pod in changes if not exists or self._is_ours(pod.spec.node_name))

    def on(self, node: str) -> list[KubeletPod]:
        return self.by("node", node)

    async def adopt(self, node: str) -> None:
        """Take in what was bound to a node before it became ours; the watch has delivered it and we have dropped it."""
        for pod in await self._client.list(PODS, query=selectors(field=f"spec.nodeName={node}")):
            if self.get(pod.key) is None:
                self.apply([(True, pod)])

    def release(self, node: str) -> None:
        """Forget the pods of a node that is not ours any more: the watch ignores them from now on."""
        self.apply([(False, pod) for pod in self.on(node)])

    def forget(self, pod: KubeletPod) -> None:
        """It turned out to be gone; needed only for one that came by `adopt`, the watch delivers all others."""
        if self.get(pod.key) is pod:
            self.apply([(False, pod)])
