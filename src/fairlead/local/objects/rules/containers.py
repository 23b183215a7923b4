"""What is asked of containers."""

from fairlead.local.objects.rules import names, security
from fairlead.local.objects.rules.downward import field_ref, resource_ref
from fairlead.local.objects.rules.errors import (
    Errors,
    Json,
    duplicate,
    forbidden,
    invalid,
    nonnegative,
    not_found,
    not_supported,
    one_of,
    required,
)
from fairlead.local.objects.rules.quantities import requirements
from fairlead.local.objects.rules.volumes import mounts

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_PULL = ("Always", "IfNotPresent", "Never")
_MESSAGES = ("File", "FallbackToLogsOnError")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")


def containers(given: list[Json], volumes: set[str], path: str, init: bool = False) -> Errors:
    if not given and not init:
        return [required(path)]
    found: Errors = []
    seen: set[str] = set()
    for index, container in enumerate(given):
        here = f"{path}[{index}]"
        found += _container(container, volumes, here)
        name = container.get("name", "")
        if name in seen:
            found.append(duplicate(f"{here}.name", name))
        elif name:
            seen.add(name)
        policy = container.get("restartPolicy")
        if policy is not None and policy not in ("Always", "Never", "OnFailure"):
            found.append(not_supported(f"{here}.restartPolicy", policy, ("Always", "Never", "OnFailure")))
        sidecar = policy == "Always"
        for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
            if kind in container:
                if init and not sidecar:
                    found.append(
                        forbidden(f"{here}.{kind}", "may not be set for init containers without restartPolicy=Always")
                    )
                else:
                    found += _probe(container[kind], kind, f"{here}.{kind}")
        if "lifecycle" in container:
            if init and not sidecar:
                found.append(
                    forbidden(f"{here}.lifecycle", "may not be set for init containers without restartPolicy=Always")
                )
            else:
                for kind in ("postStart", "preStop"):
                    if kind in container["lifecycle"]:
                        found += _handler(container["lifecycle"][kind], f"{here}.lifecycle.{kind}")
    return found


def _container(container: Json, volumes: set[str], path: str) -> Errors:
    found: Errors = []
    name = container.get("name", "")
    if not name:
        found.append(required(f"{path}.name"))
    else:
        problems = names.label(name)
        if problems:
            found += [invalid(f"{path}.name", name, text) for text in problems]
    if not container.get("image"):
        found.append(required(f"{path}.image"))
    if container.get("terminationMessagePolicy") not in _MESSAGES:
        found += one_of(f"{path}.terminationMessagePolicy", container.get("terminationMessagePolicy"), _MESSAGES)
    if "ports" in container:
        found += _ports(container["ports"], f"{path}.ports")
    if "env" in container:
        found += _env(container["env"], f"{path}.env")
    for index, source in enumerate(container.get("envFrom") or ()):
        found += _env_from(source, index, f"{path}.envFrom")
    if "volumeMounts" in container:
        found += mounts(container, volumes, path)
    if container.get("imagePullPolicy") not in _PULL:
        found += one_of(f"{path}.imagePullPolicy", container.get("imagePullPolicy"), _PULL)
    found += requirements(container["resources"], f"{path}.resources")
    if "securityContext" in container:
        found += security.of_container(container, path)
    for index, device in enumerate(container.get("volumeDevices") or ()):
        if device.get("name", "") not in volumes:
            found.append(not_found(f"{path}.volumeDevices[{index}].name", device.get("name", "")))
    for policy in container.get("resizePolicy") or ():
        for key, allowed in (
            ("resourceName", ("cpu", "memory")),
            ("restartPolicy", ("NotRequired", "RestartContainer")),
        ):
            if policy.get(key) not in allowed:
                found.append(not_supported(f"{path}.resizePolicy", policy.get(key, ""), allowed))
    return found


def _ports(ports: list[Json], path: str) -> Errors:
    found: Errors = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        name, number, host = port.get("name"), port.get("containerPort", 0), port.get("hostPort", 0)
        if name:
            problems = names.port_name(name)
            if problems:
                found += [invalid(f"{path}[{index}].name", name, text) for text in problems]
            elif name in seen:
                found.append(duplicate(f"{path}[{index}].name", name))
            seen.add(name)
        if number == 0:
            found.append(required(f"{path}[{index}].containerPort"))
        elif not 0 < number < 65536:
            found += [invalid(f"{path}[{index}].containerPort", number, text) for text in names.port_number(number)]
        if host and not 0 < host < 65536:
            found += [invalid(f"{path}[{index}].hostPort", host, text) for text in names.port_number(host)]
        if port.get("protocol") not in _PROTOCOLS:
            found += one_of(f"{path}[{index}].protocol", port.get("protocol"), _PROTOCOLS)
    return found


def host_ports(given: list[Json], path: str) -> Errors:
    """No two containers may want the same port of the host."""
    found: Errors = []
    seen: set[tuple[str, str, int]] = set()
    for index, container in enumerate(given):
        for at, port in enumerate(container.get("ports") or ()):
            if port.get("hostPort"):
                key = (port.get("protocol", ""), port.get("hostIP", ""), port["hostPort"])
                if key in seen:
                    text = f"{key[0]}/{key[1]}/{key[2]}"
                    found.append(duplicate(f"{path}[{index}].ports[{at}].hostPort", text))
                seen.add(key)
    return found


def _env(variables: list[Json], path: str) -> Errors:
    found: Errors = []
    for index, variable in enumerate(variables):
        name = variable.get("name")
        if not name:
            found.append(required(f"{path}[{index}].name"))
        else:
            found += [invalid(f"{path}[{index}].name", name, text) for text in names.env_name(name)]
        if "valueFrom" in variable:
            found += _value_from(variable, f"{path}[{index}].valueFrom")
    return found


def _value_from(variable: Json, path: str) -> Errors:
    found: Errors = []
    source = variable["valueFrom"]
    if "fieldRef" in source:
        found += field_ref(source["fieldRef"], f"{path}.fieldRef")
    if "resourceFieldRef" in source:
        found += resource_ref(source["resourceFieldRef"], f"{path}.resourceFieldRef")
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if kind in source:
            name = source[kind].get("name", "")
            found += [invalid(f"{path}.{kind}.name", name, text) for text in names.subdomain(name)]
            key = source[kind].get("key")
            if not key:
                found.append(required(f"{path}.{kind}.key"))
            else:
                found += [invalid(f"{path}.{kind}.key", key, text) for text in names.config_key(key)]
    count = len(source)
    if count == 0:
        found.append(
            invalid(
                path,
                "",
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, "
                "`secretKeyRef` or `fileKeyRef`",
            )
        )
    elif variable.get("value"):
        found.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif count > 1:
        found.append(invalid(path, "", "may not have more than one field specified at a time"))
    return found


def _env_from(source: Json, index: int, whole: str) -> Errors:
    found: Errors = []
    path = f"{whole}[{index}]"
    prefix = source.get("prefix")
    if prefix:
        found += [invalid(f"{path}.prefix", prefix, text) for text in names.env_name(prefix)]
    kinds = [kind for kind in ("configMapRef", "secretRef") if kind in source]
    for kind in kinds:
        if not source[kind].get("name"):
            found.append(required(f"{path}.{kind}.name"))
    if not kinds:
        found.append(invalid(whole, "", "must specify one of: `configMapRef` or `secretRef`"))
    elif len(kinds) > 1:
        found.append(invalid(whole, "", "may not have more than one field specified at a time"))
    return found


def _probe(probe: Json, kind: str, path: str) -> Errors:
    found = _handler(probe, path)
    for key in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        found += nonnegative(f"{path}.{key}", probe.get(key, 0))
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and grace <= 0:
        found.append(invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0"))
    if kind == "readinessProbe":
        if grace is not None:
            found.append(invalid(f"{path}.terminationGracePeriodSeconds", grace, "must not be set for readinessProbes"))
    elif probe.get("successThreshold") != 1:
        found.append(invalid(f"{path}.successThreshold", probe.get("successThreshold"), "must be 1"))
    return found


def _handler(handler: Json, path: str) -> Errors:
    kinds = [kind for kind in _HANDLERS if handler.get(kind) is not None]
    if not kinds:
        return [required(path, "must specify a handler type")]
    found: Errors = [forbidden(f"{path}.{kind}", "may not specify more than 1 handler type") for kind in kinds[1:]]
    kind = kinds[0]
    action = handler[kind]
    match kind:
        case "exec":
            if not action.get("command"):
                found.append(required(f"{path}.exec.command"))
        case "httpGet":
            found += port_or_name(action.get("port"), f"{path}.httpGet.port")
            if action.get("scheme") not in ("HTTP", "HTTPS"):
                found.append(not_supported(f"{path}.httpGet.scheme", action.get("scheme"), ("HTTP", "HTTPS")))
            for header in action.get("httpHeaders") or ():
                name = header.get("name", "")
                found += [invalid(f"{path}.httpGet.httpHeaders", name, text) for text in names.http_header(name)]
        case "tcpSocket" | "grpc":
            found += port_or_name(action.get("port"), f"{path}.{kind}.port")
    return found


def port_or_name(port: int | str | None, path: str) -> Errors:
    problems = names.port_name(port) if isinstance(port, str) else names.port_number(port or 0)
    return [invalid(path, port or 0 if not isinstance(port, str) else port, text) for text in problems]
