"""Pods as a node runs them: the fields a kubelet reads and the status it writes.

The one pod watch of the virtual kubelet decodes into these; `model.pod` holds what placing needs instead. Only bound
pods of our own nodes are kept, so that the fuller struct costs nothing for anybody else's.
"""

from typing import Any

import msgspec

from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiObject, ApiStruct, Condition, ObjectMeta
from fairlead.model.pod import Affinity, ContainerPort, PodIP, ResourceRequirements
from fairlead.model.pod_state import PodState
from fairlead.model.quantity import Quantity
from fairlead.model.taints import Toleration
from fairlead.model.volumes import ClaimVolume, EphemeralVolume

# --- environment ------------------------------------------------------------------------------------------


class KeySelector(ApiStruct):
    name: str = ""
    key: str = ""
    optional: bool = False


class FieldSelector(ApiStruct):
    field_path: str = ""


class ResourceSelector(ApiStruct):
    resource: str = ""
    container_name: str = ""
    divisor: Quantity = "0"


class EnvSource(ApiStruct):
    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None
    field_ref: FieldSelector | None = None
    resource_field_ref: ResourceSelector | None = None


class EnvVar(ApiStruct):
    name: str = ""
    value: str | None = None
    value_from: EnvSource | None = None


class WholeSelector(ApiStruct):
    name: str = ""
    optional: bool = False


class EnvFrom(ApiStruct):
    prefix: str = ""
    config_map_ref: WholeSelector | None = None
    secret_ref: WholeSelector | None = None


# --- probes -----------------------------------------------------------------------------------------------


class HttpHeader(ApiStruct):
    name: str = ""
    value: str = ""


class HttpGet(ApiStruct):
    port: int | str = 0
    path: str = "/"
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[HttpHeader, ...] | None = None


class TcpSocket(ApiStruct):
    port: int | str = 0
    host: str = ""


class ExecAction(ApiStruct):
    command: tuple[str, ...] | None = None


class Probe(ApiStruct):
    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None
    exec: ExecAction | None = None
    grpc: dict[str, Any] | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 1
    period_seconds: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class Sleep(ApiStruct):
    seconds: int = 0


class Hook(ApiStruct):
    """What is done right after a container has started, or before it is asked to end."""

    exec: ExecAction | None = None
    http_get: HttpGet | None = None
    sleep: Sleep | None = None


class Lifecycle(ApiStruct):
    post_start: Hook | None = None
    pre_stop: Hook | None = None


# --- containers and volumes -------------------------------------------------------------------------------


class VolumeMount(ApiStruct):
    name: str = ""
    mount_path: str = ""
    sub_path: str = ""
    sub_path_expr: str = ""
    read_only: bool = False


class Container(ApiStruct):
    name: str = ""
    image: str = ""
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    working_dir: str = ""
    env: tuple[EnvVar, ...] | None = None
    env_from: tuple[EnvFrom, ...] | None = None
    ports: tuple[ContainerPort, ...] | None = None
    resources: ResourceRequirements = ResourceRequirements()
    volume_mounts: tuple[VolumeMount, ...] | None = None
    startup_probe: Probe | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    restart_policy: str | None = None
    lifecycle: Lifecycle | None = None
    termination_message_path: str = "/dev/termination-log"
    termination_message_policy: str = "File"
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False

    @property
    def is_sidecar(self) -> bool:
        """Of an init container: it keeps running beside the others."""
        return self.restart_policy == "Always"


class KeyToPath(ApiStruct):
    key: str = ""
    path: str = ""
    mode: int | None = None


class KeysVolume(ApiStruct):
    """A ConfigMap (`name`) or a Secret (`secretName`, or `name` inside a projection) as files."""

    name: str = ""
    secret_name: str = ""
    items: tuple[KeyToPath, ...] | None = None
    optional: bool = False
    default_mode: int | None = None


class DownwardFile(ApiStruct):
    path: str = ""
    field_ref: FieldSelector | None = None
    resource_field_ref: ResourceSelector | None = None
    mode: int | None = None


class DownwardVolume(ApiStruct):
    items: tuple[DownwardFile, ...] | None = None
    default_mode: int | None = None


class TokenProjection(ApiStruct):
    path: str = ""
    audience: str = ""
    expiration_seconds: int = 3600


class Projection(ApiStruct):
    config_map: KeysVolume | None = None
    secret: KeysVolume | None = None
    downward_api: DownwardVolume | None = msgspec.field(default=None, name="downwardAPI")
    service_account_token: TokenProjection | None = None


class ProjectedVolume(ApiStruct):
    sources: tuple[Projection, ...] | None = None
    default_mode: int | None = None


class EmptyDir(ApiStruct):
    medium: str = ""


class HostPath(ApiStruct):
    path: str = ""
    type: str = ""


class Volume(ApiStruct):
    name: str = ""
    empty_dir: EmptyDir | None = None
    config_map: KeysVolume | None = None
    secret: KeysVolume | None = None
    downward_api: DownwardVolume | None = msgspec.field(default=None, name="downwardAPI")
    projected: ProjectedVolume | None = None
    host_path: HostPath | None = None
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: EphemeralVolume | None = None


class ReadinessGate(ApiStruct):
    condition_type: str = ""


class HostAlias(ApiStruct):
    """Names that an address has in the pod's hosts file."""

    ip: str = ""
    hostnames: tuple[str, ...] | None = None


class OperatingSystem(ApiStruct):
    name: str = ""


class PodSpec(ApiStruct):
    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    restart_policy: str = "Always"
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    service_account_name: str = ""
    host_network: bool = False
    hostname: str = ""
    subdomain: str = ""
    readiness_gates: tuple[ReadinessGate, ...] | None = None
    enable_service_links: bool | None = None
    host_aliases: tuple[HostAlias, ...] | None = None
    os: OperatingSystem | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    overhead: dict[str, Quantity] | None = None
    resources: ResourceRequirements | None = None


# --- status -----------------------------------------------------------------------------------------------


class Waiting(ApiStruct):
    reason: str = ""
    message: str = ""


class Running(ApiStruct):
    started_at: str | None = None


class Terminated(ApiStruct):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    container_id: str = msgspec.field(default="", name="containerID")


class ContainerState(ApiStruct):
    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(ApiStruct):
    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    image: str = ""
    image_id: str = msgspec.field(default="", name="imageID")
    container_id: str = msgspec.field(default="", name="containerID")


class PodStatus(ApiStruct):
    phase: str = ""
    conditions: tuple[Condition, ...] | None = None
    message: str = ""
    reason: str = ""
    host_ip: str = msgspec.field(default="", name="hostIP")
    host_ips: tuple[PodIP, ...] | None = msgspec.field(default=None, name="hostIPs")
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[PodIP, ...] | None = msgspec.field(default=None, name="podIPs")
    start_time: str | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    qos_class: str = ""
    observed_generation: int = 0

    @property
    def all_container_statuses(self) -> tuple[ContainerStatus, ...]:
        return (self.init_container_statuses or ()) + (self.container_statuses or ())


class KubeletPod(PodState, ApiStruct):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        return self.metadata.key

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def inits(self) -> tuple[Container, ...]:
        return self.spec.init_containers or ()

    @property
    def all_containers(self) -> tuple[Container, ...]:
        return self.inits + self.spec.containers

    @property
    def lasting_containers(self) -> tuple[Container, ...]:
        """Those that run as long as the pod does: sidecars, and the containers proper."""
        return tuple(init for init in self.inits if init.is_sidecar) + self.spec.containers

    def container(self, name: str) -> Container | None:
        return next((container for container in self.all_containers if container.name == name), None)

    @property
    def grace_s(self) -> int:
        """What the pod itself asks for; Kubernetes' default where it says nothing."""
        grace_s = self.spec.termination_grace_period_seconds
        return 30 if grace_s is None else grace_s


class Secret(ApiObject, frozen=True):
    """Values are base64 as the API writes them."""

    data: dict[str, str] | None = None


class ConfigMap(ApiObject, frozen=True):
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


class ClaimSpec(ApiStruct):
    volume_name: str = ""


class Claim(ApiObject, frozen=True):
    spec: ClaimSpec = ClaimSpec()


class LocalPath(ApiStruct):
    path: str = ""


class PersistentVolumeSpec(ApiStruct):
    host_path: HostPath | None = None
    local: LocalPath | None = None


class PersistentVolume(ApiObject, frozen=True):
    spec: PersistentVolumeSpec = PersistentVolumeSpec()

    @property
    def path(self) -> str:
        """Where it is on its node; nothing for a volume that has to be fetched from somewhere."""
        found = self.spec.host_path or self.spec.local
        return found.path if found is not None else ""


PODS = Kind("", "v1", "pods", "Pod", KubeletPod)
CLAIMS = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", Claim)
VOLUMES = Kind("", "v1", "persistentvolumes", "PersistentVolume", PersistentVolume, namespaced=False)
SECRETS = Kind("", "v1", "secrets", "Secret", Secret)
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", ConfigMap)
