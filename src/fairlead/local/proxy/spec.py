"""Services and endpoint slices, as far as leading connections to pods needs."""

import msgspec

from fairlead.model.kinds import Kind
from fairlead.model.meta import Noun, ObjectMeta

SERVICE_NAME_LABEL = "kubernetes.io/service-name"


class ServicePort(Noun):
    name: str = ""
    port: int = 0
    protocol: str = "TCP"
    node_port: int = 0


class ServiceSpec(Noun):
    type: str = "ClusterIP"
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    ports: tuple[ServicePort, ...] | None = None
    external_name: str = ""
    publish_not_ready_addresses: bool = False

    @property
    def has_address(self) -> bool:
        return self.cluster_ip not in ("", "None") and self.type != "ExternalName"

    @property
    def is_headless(self) -> bool:
        return self.cluster_ip == "None"


class Service(Noun):
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class EndpointConditions(Noun):
    ready: bool | None = None


class TargetRef(Noun):
    kind: str = ""
    name: str = ""


class Endpoint(Noun):
    addresses: tuple[str, ...] | None = None
    conditions: EndpointConditions = EndpointConditions()
    hostname: str | None = None
    target_ref: TargetRef | None = None

    @property
    def is_ready(self) -> bool:
        """What says nothing counts as ready, as the API has it."""
        return self.conditions.ready is not False


class EndpointPort(Noun):
    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class EndpointSlice(Noun):
    metadata: ObjectMeta = ObjectMeta()
    address_type: str = "IPv4"
    endpoints: tuple[Endpoint, ...] | None = None
    ports: tuple[EndpointPort, ...] | None = None

    @property
    def service_key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.labels.get(SERVICE_NAME_LABEL, '')}"


SERVICES = Kind("", "v1", "services", "Service", Service)
ENDPOINT_SLICES = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", EndpointSlice)
