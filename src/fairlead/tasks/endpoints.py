"""Whether the Services of a carrier know its pods: a round that began before would fail by no fault of the network.

Pure. What forwards Services (kube-proxy, our own proxy) follows the same EndpointSlices.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiStruct, ObjectMeta
from fairlead.tasks.spec import Actor, NetReachSpec, NetReachTarget, Task, TaskResource

SERVICE_LABEL: Final = "kubernetes.io/service-name"


class EndpointTarget(ApiStruct, frozen=True):
    uid: str = ""


class EndpointConditions(ApiStruct, frozen=True):
    ready: bool | None = None


class Endpoint(ApiStruct, frozen=True):
    conditions: EndpointConditions = EndpointConditions()
    target_ref: EndpointTarget | None = None


class CarrierEndpoints(ApiStruct, frozen=True):
    """An EndpointSlice of a carrier's Service."""

    metadata: ObjectMeta = ObjectMeta()
    endpoints: tuple[Endpoint, ...] | None = None

    @property
    def service(self) -> str:
        return self.metadata.labels.get(SERVICE_LABEL, "")

    @property
    def ready_uids(self) -> Iterable[str]:
        for each in self.endpoints or ():
            if each.target_ref is not None and each.conditions.ready is not False:
                yield each.target_ref.uid


ENDPOINT_SLICES = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", CarrierEndpoints)


def probed_services(task: Task) -> list[str]:
    """The carrier's Services that a round of this task sends requests through."""
    spec, resource = task.spec, task.status.resource or TaskResource()
    if not isinstance(spec, NetReachSpec):
        return []
    target = spec.target or NetReachTarget()
    if not (target.cluster_ip or target.node_port or target.load_balancer or target.ingress):
        return []
    by_family = ((target.ipv4, resource.service_name_v4), (target.ipv6, resource.service_name_v6))
    return [name for is_probed, name in by_family if is_probed and name]


def unlisted_pods(slices: Sequence[Iterable[CarrierEndpoints]], actors: Iterable[Actor]) -> list[str]:
    """Names of the actors that a Service does not list as ready; `slices` by Service."""
    listed = [{uid for each in of_service for uid in each.ready_uids} for of_service in slices]
    return sorted(actor.pod for actor in actors if any(actor.uid not in uids for uids in listed))
