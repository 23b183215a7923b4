"""Services and endpoint slices, as far as leading connections to pods needs."""

import msgspec

from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiStruct, ObjectMeta

SERVICE_NAME_LABEL = "kubernetes.io/service-name"


class ServicePort(ApiStruct):
    name: str = ""
    port: int = 0
    protocol: str = "TCP"
    node_port: int = 0


class ClientIp(ApiStruct):
    timeout_seconds: int = 10_800


class AffinityConfig(ApiStruct):
    client_ip: ClientIp = msgspec.field(default=ClientIp(), name="clientIP")


class ServiceSpec(ApiStruct):
    type: str = "ClusterIP"
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    ports: tuple[ServicePort, ...] | None = None
    external_name: str = ""
    load_balancer_class: str | None = None
    publish_not_ready_addresses: bool = False
    session_affinity: str = "None"
    session_affinity_config: AffinityConfig = AffinityConfig()

    @property
    def sticks_s(self) -> int:
        """For how long a client comes back to the same pod; 0 where it takes turns."""
        is_sticky = self.session_affinity == "ClientIP"
        return self.session_affinity_config.client_ip.timeout_seconds if is_sticky else 0

    @property
    def has_address(self) -> bool:
        return self.cluster_ip not in ("", "None") and self.type != "ExternalName"

    @property
    def is_balanced_here(self) -> bool:
        """Whether a load balancer's address is ours to give: a class names another's."""
        return self.type == "LoadBalancer" and not self.load_balancer_class and self.has_address

    @property
    def is_headless(self) -> bool:
        return self.cluster_ip == "None"


class BalancedAddress(ApiStruct):
    ip: str = ""


class LoadBalancerStatus(ApiStruct):
    ingress: tuple[BalancedAddress, ...] | None = None


class ServiceStatus(ApiStruct):
    load_balancer: LoadBalancerStatus = LoadBalancerStatus()


class Service(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()

    @property
    def balanced_ips(self) -> tuple[str, ...]:
        return tuple(each.ip for each in self.status.load_balancer.ingress or () if each.ip)


class EndpointConditions(ApiStruct):
    ready: bool | None = None


class TargetRef(ApiStruct):
    kind: str = ""
    name: str = ""


class Endpoint(ApiStruct):
    addresses: tuple[str, ...] | None = None
    conditions: EndpointConditions = EndpointConditions()
    hostname: str | None = None
    target_ref: TargetRef | None = None

    @property
    def is_ready(self) -> bool:
        """What says nothing counts as ready, as the API has it."""
        return self.conditions.ready is not False


class EndpointPort(ApiStruct):
    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class EndpointSlice(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()
    address_type: str = "IPv4"
    endpoints: tuple[Endpoint, ...] | None = None
    ports: tuple[EndpointPort, ...] | None = None

    @property
    def service_key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.labels.get(SERVICE_NAME_LABEL, '')}"


SERVICES = Kind("", "v1", "services", "Service", Service)
ENDPOINT_SLICES = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", EndpointSlice)
