"""Validation of containers: regular, init and ephemeral ones."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import names
from fairlead.apiserver.validation.core import security
from fairlead.apiserver.validation.core.downward import field_ref, resource_ref
from fairlead.apiserver.validation.core.volumes import devices, mounts
from fairlead.apiserver.validation.errors import Causes, Errors, Json
from fairlead.apiserver.validation.paths import no_backsteps
from fairlead.apiserver.validation.quantities import requirements

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_PULL = ("Always", "IfNotPresent", "Never")
_MESSAGES = ("File", "FallbackToLogsOnError")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_RESTART = ("Always", "Never", "OnFailure")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_LOOKING = frozenset(
    {"name", "image", "command", "args", "workingDir", "envFrom", "env", "volumeMounts", "volumeDevices",
     "terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "securityContext", "stdin", "stdinOnce",
     "tty", "targetContainerName"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Around:
    """What the rules of a container need to know of its pod."""

    volumes: Mapping[str, Json]
    claims: Collection[str]
    restart: str
    grace_s: int | None
    host_users: bool
    has_os: bool


def containers(given: list[Json], around: Around, path: str) -> Causes:
    if not given:
        yield field.required(path)
        return
    seen: set[str] = set()
    for index, container in enumerate(given):
        here = f"{path}[{index}]"
        yield from _container(container, around, here)
        name = container.get("name", "")
        yield from field.unique(seen, f"{here}.name", name)
        if "lifecycle" in container:
            yield from _lifecycle(container["lifecycle"], around, f"{here}.lifecycle")
        for kind in _PROBES:
            if kind in container:
                yield from _probe(container[kind], kind, around, f"{here}.{kind}")
        if "restartPolicy" in container or "restartPolicyRules" in container:
            yield from _restarting(container, here)
    if any("ports" in container for container in given):
        yield from _host_ports(given, path)


def init_containers(given: list[Json], others: list[Json], around: Around, path: str) -> Causes:
    seen = {container.get("name", "") for container in others}
    for index, container in enumerate(given):
        here = f"{path}[{index}]"
        yield from _container(container, around, here)
        if "restartPolicy" in container or "restartPolicyRules" in container:
            yield from _restarting(container, here)
        name = container.get("name", "")
        if name in seen:
            yield field.duplicate(f"{here}.name", name)
        elif name:
            seen.add(name)
        yield from _host_ports([container], path)
        sidecar = container.get("restartPolicy") == "Always"
        for kind in ("lifecycle", *_PROBES):
            if kind not in container:
                continue
            if not sidecar:
                detail = "may not be set for init containers without restartPolicy=Always"
                yield field.forbidden(f"{here}.{kind}", detail)
            elif kind == "lifecycle":
                yield from _lifecycle(container[kind], around, f"{here}.{kind}")
            else:
                yield from _probe(container[kind], kind, around, f"{here}.{kind}")
        for at, policy in enumerate(container.get("resizePolicy") or ()):
            if not sidecar and policy.get("restartPolicy") == "RestartContainer":
                detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                yield field.invalid(f"{here}.resizePolicy[{at}].restartPolicy", "RestartContainer", detail)


def ephemeral_containers(given: list[Json], spec: Json, around: Around, path: str) -> Causes:
    others = {each.get("name", "") for kind in ("containers", "initContainers") for each in spec.get(kind) or ()}
    seen = set(others)
    for index, container in enumerate(given):
        here = f"{path}[{index}]"
        yield from _container({"resources": {}, **container}, around, here)
        yield from untidy_image(container, here)
        name = container.get("name", "")
        yield from field.unique(seen, f"{here}.name", name)
        target = container.get("targetContainerName", "")
        if target and target not in others:
            yield field.not_found(f"{here}.targetContainerName", target)
        detail = "cannot be set for an Ephemeral Container"
        for key, value in container.items():
            if value and key not in _LOOKING:
                yield field.forbidden(f"{here}.{key}", detail)
        for at, mount in enumerate(container.get("volumeMounts") or ()):
            for key in ("subPath", "subPathExpr"):
                if mount.get(key):
                    yield field.forbidden(f"{here}.volumeMounts[{at}].{key}", detail)


def untidy_image(container: Json, path: str) -> Errors:
    image = container.get("image", "")
    if image == image.strip():
        return []
    return [field.invalid(f"{path}.image", image, "must not have leading or trailing whitespace")]


def _container(container: Json, around: Around, path: str) -> Causes:
    yield from field.mandatory(f"{path}.name", container.get("name"), names.label)
    yield from field.missing(path, container, "image")
    yield from field.one_of(f"{path}.terminationMessagePolicy", container.get("terminationMessagePolicy"), _MESSAGES)
    if "ports" in container:
        yield from _ports(container["ports"], f"{path}.ports")
    if "env" in container:
        yield from _env(container["env"], f"{path}.env")
    for index, source in enumerate(container.get("envFrom") or ()):
        yield from _env_from(source, index, f"{path}.envFrom")
    if "volumeMounts" in container:
        yield from mounts(container, around.volumes, path)
    if "volumeDevices" in container:
        yield from devices(container, around.volumes, path)
    yield from field.one_of(f"{path}.imagePullPolicy", container.get("imagePullPolicy"), _PULL)
    yield from requirements(container["resources"], f"{path}.resources", around.claims)
    if "resizePolicy" in container:
        yield from _resizing(container["resizePolicy"], around.restart, f"{path}.resizePolicy")
    if "securityContext" in container:
        yield from security.of_container(container, path, around.host_users)


def _restarting(container: Json, path: str) -> Causes:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or ()
    if policy is None:
        if rules:
            yield field.required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used")
    elif policy not in _RESTART:
        yield field.not_supported(f"{path}.restartPolicy", policy, _RESTART)
    if len(rules) > 20:
        yield field.too_many(f"{path}.restartPolicyRules", len(rules), 20)
    for index, rule in enumerate(rules):
        here = f"{path}.restartPolicyRules[{index}]"
        yield from field.supported(f"{here}.action", rule.get("action", ""), ("Restart", "RestartAllContainers"))
        codes = rule.get("exitCodes")
        if codes is None:
            yield field.required(f"{here}.exitCodes", "must be specified")
            continue
        yield from field.supported(f"{here}.exitCodes.operator", codes.get("operator", ""), ("In", "NotIn"))
        if len(codes.get("values") or ()) > 255:
            yield field.too_many(f"{here}.exitCodes.values", len(codes["values"]), 255)


def _resizing(policies: list[Json], restart: str, path: str) -> Causes:
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        resource, policy_name = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        yield from field.unique(seen, f"{path}[{index}]", resource)
        yield from field.one_of(path, resource, ("cpu", "memory"))
        yield from field.one_of(path, policy_name, ("NotRequired", "RestartContainer"))
        if restart == "Never" and policy_name != "NotRequired":
            yield field.invalid(path, policy_name, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")


def _ports(ports: list[Json], path: str) -> Causes:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        name, number, host = port.get("name"), port.get("containerPort", 0), port.get("hostPort", 0)
        here = f"{path}[{index}]"
        problems = field.optional(f"{here}.name", name, names.port_name)
        yield from problems
        if name and not problems:
            yield from field.unique(seen, f"{here}.name", name)
        yield from field.mandatory(f"{here}.containerPort", number, names.port_number)
        yield from field.optional(f"{here}.hostPort", host, names.port_number)
        yield from field.one_of(f"{here}.protocol", port.get("protocol"), _PROTOCOLS)


def _host_ports(given: list[Json], path: str) -> Causes:
    """No two containers may have the same host port."""
    seen: set[str] = set()
    for index, container in enumerate(given):
        for at, port in enumerate(container.get("ports") or ()):
            if port.get("hostPort"):
                key = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{port['hostPort']}"
                yield from field.unique(seen, f"{path}[{index}].ports[{at}].hostPort", key)


def _env(variables: list[Json], path: str) -> Causes:
    for index, variable in enumerate(variables):
        yield from field.mandatory(f"{path}[{index}].name", variable.get("name"), names.env_name)
        if "valueFrom" in variable:
            yield from _value_from(variable, f"{path}[{index}].valueFrom")


def _value_from(variable: Json, path: str) -> Causes:
    source = variable["valueFrom"]
    if "fieldRef" in source:
        yield from field_ref(source["fieldRef"], f"{path}.fieldRef")
    if "resourceFieldRef" in source:
        yield from resource_ref(source["resourceFieldRef"], f"{path}.resourceFieldRef")
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if kind in source:
            yield from field.malformed(f"{path}.{kind}.name", source[kind].get("name", ""), names.subdomain)
            yield from field.mandatory(f"{path}.{kind}.key", source[kind].get("key"), names.config_key)
    if "fileKeyRef" in source:
        yield from _file_key(source["fileKeyRef"], f"{path}.fileKeyRef")
    if not source:
        known = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        yield field.invalid(path, "", f"must specify one of: {known}")
    elif variable.get("value"):
        yield field.invalid(path, "", "may not be specified when `value` is not empty")
    elif len(source) > 1:
        yield field.invalid(path, "", "may not have more than one field specified at a time")


def _file_key(reference: Json, path: str) -> Causes:
    for key, check in (("key", names.env_name), ("volumeName", names.label)):
        yield from field.mandatory(f"{path}.{key}", reference.get(key, ""), check)
    if not reference.get("path"):
        yield field.required(f"{path}.path")
        return
    yield from no_backsteps(reference["path"], f"{path}.path")


def file_keys(spec: Json, path: str) -> Causes:
    """A variable read from a file is read from an empty directory that the pod fills."""
    if not any("env" in each for kind in ("initContainers", "containers") for each in spec.get(kind) or ()):
        return
    sources = {volume.get("name", ""): volume for volume in spec.get("volumes") or ()}
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or ()):
            for at, variable in enumerate(container.get("env") or ()):
                reference = (variable.get("valueFrom") or {}).get("fileKeyRef")
                if reference is None:
                    continue
                here = f"{path}.{kind}[{index}].env[{at}].valueFrom.fileKeyRef.volumeName"
                name = reference.get("volumeName", "")
                if name not in sources:
                    yield field.not_found(here, name)
                elif "emptyDir" not in sources[name]:
                    yield field.invalid(here, name, "referenced volume must be of type emptyDir")


def _env_from(source: Json, index: int, whole: str) -> Causes:
    path = f"{whole}[{index}]"
    yield from field.optional(f"{path}.prefix", source.get("prefix"), names.env_name)
    kinds = [kind for kind in ("configMapRef", "secretRef") if kind in source]
    for kind in kinds:
        name = source[kind].get("name", "")
        yield from field.mandatory(f"{path}.{kind}.name", name, lambda name: names.subdomain(names.beginning(name)))
    if not kinds:
        yield field.invalid(whole, "", "must specify one of: `configMapRef` or `secretRef`")
    elif len(kinds) > 1:
        yield field.invalid(whole, "", "may not have more than one field specified at a time")


def _lifecycle(lifecycle: Json, around: Around, path: str) -> Causes:
    for kind in ("postStart", "preStop"):
        if kind in lifecycle:
            yield from _handler(lifecycle[kind], around, f"{path}.{kind}")
    if "stopSignal" in lifecycle and not around.has_os:
        yield field.forbidden(f"{path}.stopSignal", "may not be set for containers with empty `spec.os.name`")


def _probe(probe: Json, kind: str, around: Around, path: str) -> Causes:
    yield from _handler(probe, around, path)
    for key in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        yield from field.nonnegative(f"{path}.{key}", probe.get(key, 0))
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and grace <= 0:
        yield field.invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0")
    if kind == "readinessProbe":
        if grace is not None:
            yield field.invalid(f"{path}.terminationGracePeriodSeconds", grace, "must not be set for readinessProbes")
    elif probe.get("successThreshold") != 1:
        yield field.invalid(f"{path}.successThreshold", probe.get("successThreshold"), "must be 1")


def _handler(handler: Json, around: Around, path: str) -> Causes:
    kinds = [kind for kind in _HANDLERS if handler.get(kind) is not None]
    if not kinds:
        yield field.required(path, "must specify a handler type")
        return
    kind = kinds[0]
    action = handler[kind]
    match kind:
        case "exec":
            if not action.get("command"):
                yield field.required(f"{path}.exec.command")
        case "httpGet":
            yield from port_or_name(action.get("port"), f"{path}.httpGet.port")
            yield from field.supported(f"{path}.httpGet.scheme", action.get("scheme"), ("HTTP", "HTTPS"))
            for header in action.get("httpHeaders") or ():
                yield from field.malformed(f"{path}.httpGet.httpHeaders", header.get("name", ""), names.http_header)
        case "tcpSocket" | "grpc":
            yield from port_or_name(action.get("port"), f"{path}.{kind}.port")
        case "sleep":
            seconds = action.get("seconds", 0)
            if around.grace_s is not None and not 0 <= seconds <= around.grace_s:
                detail = f"must be non-negative and less than terminationGracePeriodSeconds ({around.grace_s})"
                yield field.invalid(f"{path}.sleep", seconds, detail)
    yield from (field.forbidden(f"{path}.{each}", "may not specify more than 1 handler type") for each in kinds[1:])


def port_or_name(port: int | str | None, path: str) -> Errors:
    problems = names.port_name(port) if isinstance(port, str) else names.port_number(port or 0)
    return [field.invalid(path, port or 0 if not isinstance(port, str) else port, text) for text in problems]
