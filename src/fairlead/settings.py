"""Settings: one typed configuration from a file, the environment and flags; later ones win.

The only reader of environment variables and configuration files. A wrong value is refused with the name of
the key, where it came from, what was found and what was expected. `FAIRLEAD_LEASE_DURATION_S=30` sets
`lease.durationS`.
"""

import ipaddress
import os
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import msgspec
import yaml

API_VERSION = "fairlead.io/v1alpha1"
KIND = "Configuration"
PREFIX = "FAIRLEAD_"

# What the process provider puts into every pod.
_OF_PODS = re.compile(r"FAIRLEAD_(SANDBOX|SERVICE_ACCOUNT|VOLUME_\w*)")
# What Kubernetes puts into every pod beside a Service called fairlead or fairlead-something.
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$")

CapabilityName = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9-]{0,62}$")]


class Section(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A part of the configuration; an unknown key is an error."""


class LeaseSettings(Section, frozen=True):
    """Times of leader election. The holder stops writing `durationS − renewDeadlineS` before others start."""

    name: str = "fairlead"
    duration_s: Annotated[int, msgspec.Meta(ge=1, le=3600)] = 15
    renew_deadline_s: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    retry_s: Annotated[float, msgspec.Meta(gt=0)] = 2.0


class OpeningSettings(Section, frozen=True):
    """How long a cluster that does not answer, or answers 401 or 403, is retried at the start."""

    refused_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 60.0
    silent_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 600.0


class LogSettings(Section, frozen=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    form: Literal["auto", "json", "text"] = "auto"


class TlsSettings(Section, frozen=True):
    """The certificate of our own API; without one it is plain HTTP, and tokens are accepted from this machine only."""

    certificate: str = ""
    key: str = ""


class WebhookSettings(Section, frozen=True):
    """Where admission webhooks are served, and with which certificate: from files, or issued into a Secret."""

    listen: Annotated[str, msgspec.Meta(pattern=r"^\S*:\d{1,5}$")] = ":9443"
    certificate: str = ""
    key: str = ""
    certificate_life_s: Annotated[float, msgspec.Meta(ge=3, le=315_360_000)] = 7_776_000.0
    authority_life_s: Annotated[float, msgspec.Meta(ge=3, le=315_360_000)] = 315_360_000.0
    overlap_s: Annotated[float, msgspec.Meta(ge=0.1, le=86_400)] = 300.0
    drain_s: Annotated[float, msgspec.Meta(ge=0, le=300)] = 5.0


class ExtenderSettings(Section, frozen=True):
    """Where kube-scheduler calls the extender, and how it is authenticated."""

    listen: Annotated[str, msgspec.Meta(pattern=r"^(\S*:\d{1,5})?$")] = ""
    client_ca: str = ""
    client_names: tuple[str, ...] = ("system:kube-scheduler",)
    profile: str = ""


class ApiSettings(Section, frozen=True):
    """Rate limits per caller, and whether tokens are accepted over plain HTTP."""

    rate_per_s: Annotated[float, msgspec.Meta(gt=0, le=10_000)] = 20.0
    burst: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 40
    allow_plaintext: bool = False


class RequestSettings(Section, frozen=True):
    """Requests for more or fewer pods: how many, how large, how long to wait for pods, how long requests are kept."""

    most_waiting: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000
    most_pods: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000
    settle_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 300.0
    presort: Literal["seed", "drf", "priority"] = "seed"
    reuse_terminating_capacity: bool = False
    keep: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 500
    keep_s: Annotated[float, msgspec.Meta(ge=0, le=31_536_000)] = 86_400.0


class JobSettings(Section, frozen=True):
    """How often jobs are planned, and whether nodes may be added for a job that can never fit."""

    period_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 1.0
    autoscaling: bool = False
    scheduler: str = ""


class MqttSettings(Section, frozen=True):
    """The broker through which bases are heard and called; none where no address is named."""

    broker: str = ""
    username: str = ""
    password_file: str = ""
    client_prefix: str = "fairlead"
    ca_file: str = ""
    certificate: str = ""
    key: str = ""


class ArkletSettings(Section, frozen=True):
    """Calls to bases whose arklet uses TLS, as a Python base can: the authority we trust, and our certificate."""

    ca_file: str = ""
    certificate: str = ""
    key: str = ""


class KubeletSettings(Section, frozen=True):
    """The kubelet endpoint of module nodes; none is served where no address is named."""

    listen: Annotated[str, msgspec.Meta(pattern=r"^(\S*:\d{1,5})?$")] = ""
    host: str = ""
    certificate: str = ""
    key: str = ""
    client_ca: str = ""


class HealingSettings(Section, frozen=True):
    """Bases that run out of memory for modules: when, how many at a time, and when not."""

    mode: Literal["on", "dry-run", "off"] = "on"
    enter_percent: Annotated[float, msgspec.Meta(gt=0, le=100)] = 85.0
    leave_percent: Annotated[float, msgspec.Meta(gt=0, le=100)] = 75.0
    polls: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 3
    most: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    drain_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 600.0
    force: bool = False
    freeze: tuple[str, ...] = ()


class ModuleSettings(Section, frozen=True):
    """Bases of modules: where they announce themselves, which are believed, what their nodes are like."""

    listen: Annotated[str, msgspec.Meta(pattern=r"^\S*:\d{1,5}$")] = ":7777"
    url_file: str = ""
    advertise: str = ""
    bases_kubeconfig: str = ""
    base_label: str = "base.koupleless.io/name"
    trusted_networks: tuple[str, ...] = ()
    token_file: str = ""
    env: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$")] = "dev"
    naming: Literal["seed", "koupleless"] = "seed"
    pods_per_base: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 110
    cpu_per_base: str = ""
    memory_per_base: Annotated[int, msgspec.Meta(ge=0, le=2**50)] = 512 << 20
    poll_s: Annotated[float, msgspec.Meta(ge=0.1, le=600)] = 5.0
    remove_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 300.0
    sweep: Literal["on", "dry-run", "off"] = "on"
    artefacts: str = ""
    mqtt: MqttSettings = MqttSettings()
    kubelet: KubeletSettings = KubeletSettings()
    arklet: ArkletSettings = ArkletSettings()
    healing: HealingSettings = HealingSettings()


Weight = Annotated[int, msgspec.Meta(ge=0, le=1000)]


class AddingWeights(Section, frozen=True):
    """Of the seed's scores for adding: what stays free, evenness, spread of the service, soft rules, forecast."""

    w1: Weight = 1
    w2: Weight = 1
    w3: Weight = 1
    w4: Weight = 1
    w5: Weight = 1


class RemovingWeights(Section, frozen=True):
    """Of the seed's scores for removing: what stays used, evenness, share of the service, soft rules, forecast."""

    w1: Weight = 1
    w2: Weight = 1
    w3: Weight = 1
    w4: Weight = 0
    w5: Weight = 1


class WeightSettings(Section, frozen=True):
    """Weights of the seed's scores w1 to w5."""

    add: AddingWeights = AddingWeights()
    remove: RemovingWeights = RemovingWeights()


class ForecastFields(Section, frozen=True):
    """What the fields of a forecast document are called."""

    node: str = "node"
    namespace: str = "namespace"
    service: str = "service"
    resource: str = "resource"
    issued_at: str = "issued_at"
    target_at: str = "target_at"
    horizon_s: str = "horizon_s"
    value: str = "value"
    baseline: str = "baseline"
    pods: str = "pods"


class ForecastQueries(Section, frozen=True):
    """PromQL: what is expected, and what is now. Series carry node or namespace and service, and resource."""

    node_value: str = "fairlead_forecast_node_value"
    node_baseline: str = "fairlead_forecast_node_baseline"
    service_value: str = ""
    service_baseline: str = ""


class ForecasterSettings(Section, frozen=True):
    """The built-in forecaster: from what history, how often, by which season."""

    history: Literal["none", "prometheus", "metrics-server"] = "none"
    prometheus_url: str = ""
    node_usage: str = ""
    service_usage: str = ""
    every_s: Annotated[float, msgspec.Meta(ge=10, le=86400)] = 300.0
    step_s: Annotated[int, msgspec.Meta(ge=60, le=3600)] = 900
    season_s: Annotated[int, msgspec.Meta(ge=3600, le=604800)] = 86400
    seasons: Annotated[int, msgspec.Meta(ge=2, le=60)] = 14


class ForecastSettings(Section, frozen=True):
    """Where load forecasts are read from, and how long one counts."""

    source: Literal["none", "elasticsearch", "prometheus", "configmap", "file"] = "none"
    url: str = ""
    username: str = ""
    password_file: str = ""
    token_file: str = ""
    ca_file: str = ""
    file: str = ""
    config_map: str = "fairlead-forecasts"
    node_index: str = "node-load-forecast-*"
    service_index: str = "service-load-forecast-*"
    fields: ForecastFields = ForecastFields()
    queries: ForecastQueries = ForecastQueries()
    horizon_s: Annotated[float, msgspec.Meta(gt=0, le=604800)] = 3600.0
    ttl_s: Annotated[float, msgspec.Meta(gt=0, le=604800)] = 900.0
    period_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 30.0
    deadline_s: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    remove_sign: Annotated[int, msgspec.Meta(ge=-1, le=1)] = 1
    forecaster: ForecasterSettings = ForecasterSettings()


Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Qps = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Family = Literal["auto", "on", "off"]


class AgentPorts(Section, frozen=True):
    """Where agents listen; their Services have the first two."""

    http: Port = 10080
    https: Port = 10443
    health: Port = 5710


class TaskSettings(Section, frozen=True):
    """Diagnosis tasks: defaults and bounds of their load, and how their agents are run and reached."""

    ipv4: Family = "auto"
    ipv6: Family = "auto"
    grace_minutes: Annotated[int, msgspec.Meta(ge=0, le=5_256_000)] = 60
    qps: Qps = 10
    duration_s: Annotated[int, msgspec.Meta(ge=1, le=86_400)] = 2
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=86_400_000)] = 500
    net_reach_most_qps: Qps = 20
    app_http_healthy_most_qps: Qps = 100
    netdns_most_qps: Qps = 100
    most_history: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10
    poll_s: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 5.0
    creation_deadline_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 600.0
    settle_s: Annotated[float, msgspec.Meta(ge=0, le=10)] = 3.0
    image: str = "fairlead/agent"
    templates: str = ""
    ports: AgentPorts = AgentPorts()
    api_url: str = ""
    api_ca: str = ""
    reports_listen: Annotated[str, msgspec.Meta(pattern=r"^(\S*:\d{1,5})?$")] = ""
    multus_annotation: str = "k8s.v1.cni.cncf.io/networks-status"


class DataSettings(Section, frozen=True):
    """Data-aware admission: plugins, opt-in, cache levels, drains and waits."""

    profile: str = ""
    injection: bool = True
    namespace_mode: bool = False
    prefetcher_image: str = ""
    sidecars: Literal["default", "legacy", "native-sidecar"] = "default"
    schedulers: tuple[str, ...] = ("auto",)
    plugin_budget_s: Annotated[float, msgspec.Meta(gt=0, le=30)] = 2.0
    affinity: Literal["labels", "levels", "hostnames"] = "labels"
    strength: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    report_ttl_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 60.0
    label_every_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 30.0
    direct_scale_in: Literal["warn", "deny"] = "warn"
    drain_policy: Literal["Wait", "Force", "Abort"] = "Wait"
    drain_deadline_s: Annotated[float, msgspec.Meta(ge=1, le=604_800)] = 600.0
    local_bytes_per_s: Annotated[float, msgspec.Meta(gt=0, le=1e15)] = 2e9
    remote_bytes_per_s: Annotated[float, msgspec.Meta(gt=0, le=1e15)] = 2e8
    record_to: str = ""
    record_most: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 100_000


class Settings(Section, frozen=True):
    kubeconfig: str = ""
    context: str = ""
    namespace: str = "fairlead-system"
    capabilities: tuple[CapabilityName, ...] = ()
    schedulers: tuple[str, ...] = ("fairlead",)
    scheduler_config: str = ""
    scores: Literal["kube", "seed"] = "kube"
    weights: WeightSettings = WeightSettings()
    pick: Literal["default", "first", "round-robin"] = "default"
    load_basis: Literal["requests", "usage", "max"] = "requests"
    node_conditions: Literal["both", "taints", "conditions"] = "both"
    identity: str = ""
    listen: Annotated[str, msgspec.Meta(pattern=r"^\S*:\d{1,5}$")] = "127.0.0.1:8470"
    traces_to: str = ""
    in_flight: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 64
    opening: OpeningSettings = OpeningSettings()
    lease: LeaseSettings = LeaseSettings()
    logs: LogSettings = LogSettings()
    tls: TlsSettings = TlsSettings()
    extender: ExtenderSettings = ExtenderSettings()
    webhooks: WebhookSettings = WebhookSettings()
    api: ApiSettings = ApiSettings()
    requests: RequestSettings = RequestSettings()
    jobs: JobSettings = JobSettings()
    forecast: ForecastSettings = ForecastSettings()
    tasks: TaskSettings = TaskSettings()
    data: DataSettings = DataSettings()
    modules: ModuleSettings = ModuleSettings()


class BadSettings(Exception):
    """The configuration cannot be used; the message names the key."""


def load(
    *, file: Path | None = None, environment: Mapping[str, str] = os.environ, flags: Mapping[str, Any] | None = None
) -> Settings:
    """Defaults, then the file, then the environment, then flags (dotted names; None means not given)."""
    merged: dict[str, Any] = {}
    if file is not None:
        _merge(merged, _from_file(file))
        _check(merged, f"{file}: ")
    for key, value in _from_environment(environment):
        _put(merged, key, value)
        _check(merged, f"{PREFIX}{_variable(key)}: ")
    for key, value in (flags or {}).items():
        if value is not None:
            _put(merged, key, value)
            _check(merged, f"--{_words(key, '-')}: ")
    settings = _check(merged, "")
    _check_together(settings)
    return settings


def kubeconfig_paths(settings: Settings, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Where to look for a kubeconfig: the one named, else KUBECONFIG's list, else the usual place."""
    if settings.kubeconfig:
        try:
            return [Path(settings.kubeconfig).expanduser()]
        except RuntimeError:
            raise BadSettings(f"kubeconfig: there is no home folder for {settings.kubeconfig!r}") from None
    listed = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    return listed or [Path.home() / ".kube" / "config"]


def default_data_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where `fairlead up` keeps its cluster without `--data`."""
    return Path(environment.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "fairlead"


def in_cluster_address(environment: Mapping[str, str] = os.environ) -> tuple[str, str] | None:
    """Host and port of the API server for a process that runs in a pod."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    return (host, port) if host and port else None


def service_account_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Where a process pod without mounts of its own finds its service account; elsewhere it is in the usual place."""
    folder = environment.get("FAIRLEAD_SERVICE_ACCOUNT")
    return Path(folder) if folder else None


def agent_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What a task's agent is configured with by variables: those that begin with AGENT_, without it."""
    return {name.removeprefix("AGENT_"): value for name, value in environment.items() if name.startswith("AGENT_")}


def identity(settings: Settings, unique: str) -> str:
    """The holder identity of this process: readable, and unique to the process."""
    return settings.identity or f"{socket.gethostname()}_{unique}"


def read_yaml(file: Path) -> Any:
    try:
        return yaml.safe_load(file.read_text())
    except OSError as problem:
        raise BadSettings(f"{file} cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise BadSettings(f"{file} is not YAML: it is not text") from None
    except yaml.YAMLError as problem:
        raise BadSettings(f"{file} is not YAML: {problem}") from None


def _from_file(file: Path) -> dict[str, Any]:
    found = read_yaml(file)
    if not isinstance(found, dict):
        raise BadSettings(f"{file}: must be a mapping with apiVersion {API_VERSION} and kind {KIND}")
    header = (found.pop("apiVersion", None), found.pop("kind", None))
    if header != (API_VERSION, KIND):
        raise BadSettings(
            f"{file}: apiVersion and kind are {header[0]!r} and {header[1]!r}; they must be {API_VERSION} and {KIND}"
        )
    return found


def _from_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    known = {_variable(key): key for key in keys()}
    for name, value in sorted(environment.items()):
        if not name.startswith(PREFIX) or _SERVICE_LINK.search(name) or _OF_PODS.fullmatch(name):
            continue
        key = known.get(name.removeprefix(PREFIX))
        if key is None:
            raise BadSettings(
                f"{name}: no such setting; there are {', '.join(PREFIX + name for name in sorted(known))}"
            )
        yield key, value


def keys(section: type[msgspec.Struct] = Settings, prefix: str = "") -> Iterator[str]:
    """Every setting by its dotted name, as a file spells it."""
    for field in msgspec.structs.fields(section):
        name = f"{prefix}{field.encode_name}"
        if isinstance(field.type, type) and issubclass(field.type, Section):
            yield from keys(field.type, f"{name}.")
        else:
            yield name


def _check(merged: dict[str, Any], source: str) -> Settings:
    try:
        # Variables and flags are text; lax conversion turns "15" into 15 and still refuses "abc".
        return msgspec.convert(merged, Settings, strict=False)
    except msgspec.ValidationError as problem:
        what, _, where = str(problem).partition(" - at ")
        key = where.strip("`").removeprefix("$.").removeprefix("$")
        if "` in `" in where:
            raise BadSettings(f"{source}every key must be text") from None
        message = f"{what[:1].lower()}{what[1:]}{_choices(key) if 'enum' in what else ''}"
        found = _value_at(merged, key)
        if "got" not in what and "enum" not in what and found is not None and not isinstance(found, dict):
            message += f", got {found!r}"
        raise BadSettings(f"{source}{key + ': ' if key else ''}{message}") from None


def _choices(key: str) -> str:
    """The allowed values of a key that is an enum."""
    type_: Any = Settings
    for part in re.sub(r"\[\d+\]", "", key).split("."):
        type_ = next(field.type for field in msgspec.structs.fields(type_) if field.encode_name == part)
    if get_origin(type_) is tuple:
        type_ = get_args(type_)[0]
    return f"; it must be one of {', '.join(get_args(type_))}"


def _value_at(merged: Any, key: str) -> Any:
    for part in key.split("."):
        merged = merged.get(part) if isinstance(merged, dict) else None
    return merged


def _check_together(settings: Settings) -> None:
    """Rules about several keys, and those that a pattern cannot express."""
    lease = settings.lease
    if not lease.duration_s > lease.renew_deadline_s > lease.retry_s:
        raise BadSettings(
            "lease: durationS must be larger than renewDeadlineS, and that larger than retryS; "
            f"they are {lease.duration_s}, {lease.renew_deadline_s:g} and {lease.retry_s:g}"
        )
    _check_forecast(settings.forecast)
    for name, pair in (("tls", settings.tls), ("webhooks", settings.webhooks)):
        if bool(pair.certificate) != bool(pair.key):
            raise BadSettings(f"{name}: set both certificate and key, or neither")
    listens = {
        "webhooks.listen": settings.webhooks.listen,
        "listen": settings.listen,
        "extender.listen": settings.extender.listen,
    }
    for name, listen in listens.items():
        if int(listen.rpartition(":")[2] or 0) > 65535:
            raise BadSettings(f"{name}: must be host:port with a port up to 65535, not {listen!r}")
    _check_extender(settings)


def _check_extender(settings: Settings) -> None:
    extender = settings.extender
    if extender.client_ca and not settings.tls.certificate:
        raise BadSettings("extender.clientCa: set tls.certificate and tls.key as well: client certificates need TLS")
    if extender.client_ca and not extender.client_names:
        raise BadSettings("extender.clientNames: list the names of the client certificates that are accepted")
    if extender.listen and not extender.client_ca and not _is_loopback(extender.listen.rpartition(":")[0]):
        raise BadSettings(
            f"extender.listen: must be a loopback address, not {extender.listen!r}; "
            "or set extender.clientCa to authenticate callers by their certificates"
        )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _check_forecast(forecast: ForecastSettings) -> None:
    forecaster = forecast.forecaster
    if forecast.source in ("elasticsearch", "prometheus") and not forecast.url.startswith(("http://", "https://")):
        raise BadSettings(
            f"forecast.url: must be the http:// or https:// address of {forecast.source}, not {forecast.url!r}"
        )
    if forecast.source == "file" and not forecast.file:
        raise BadSettings("forecast.file: must be the path of a file, because forecast.source is file")
    if forecast.username and not forecast.password_file:
        raise BadSettings("forecast.passwordFile: must be a file that holds the password of forecast.username")
    if forecast.username and forecast.token_file:
        raise BadSettings("forecast: set username and passwordFile, or tokenFile, not both")
    if forecaster.history == "none":
        return
    if forecast.source not in ("elasticsearch", "configmap", "file"):
        raise BadSettings(
            f"forecast.source: must be elasticsearch, configmap or file, not {forecast.source}, while "
            "forecaster.history is set: the built-in forecaster writes where forecasts are read"
        )
    if forecaster.history == "prometheus":
        if not forecaster.prometheus_url.startswith(("http://", "https://")):
            raise BadSettings(
                "forecast.forecaster.prometheusUrl: must be the http:// or https:// address of a Prometheus, "
                f"not {forecaster.prometheus_url!r}"
            )
        if not (forecaster.node_usage or forecaster.service_usage):
            raise BadSettings("forecast.forecaster: set nodeUsage or serviceUsage, a PromQL query")
    if forecaster.season_s % forecaster.step_s:
        raise BadSettings(
            "forecast.forecaster: seasonS must be a multiple of stepS; "
            f"they are {forecaster.season_s} and {forecaster.step_s}"
        )


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


LISTS: Final = ("capabilities", "schedulers", "extender.clientNames", "data.schedulers", "modules.trustedNetworks")


def _put(into: dict[str, Any], key: str, value: Any) -> None:
    *sections, last = key.split(".")
    for section in sections:
        into = into.setdefault(section, {})
    # Lists come as comma-separated text from where there is only text.
    if key in LISTS and isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    into[last] = value


def _variable(key: str) -> str:
    return _words(key, "_").upper()


def _words(key: str, joint: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", joint, key.replace(".", joint)).lower()
