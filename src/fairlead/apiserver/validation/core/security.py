"""Validation of security contexts, a pod's and a container's."""

import re

from fairlead.apiserver.schema.internal import inside
from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation.errors import Causes, Errors, Json
from fairlead.apiserver.validation.paths import descending

_MOST = 2**31 - 1
_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_SYSCTL = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"


def _ids(context: Json, keys: tuple[str, ...], path: str) -> Errors:
    given = [key for key in keys if context.get(key) is not None]
    return [each for key in given for each in field.between(f"{path}.{key}", context[key], 0, _MOST)]


def _seccomp(context: Json, path: str) -> Causes:
    profile = context.get("seccompProfile")
    if profile is None:
        return
    here, kind, file = f"{path}.seccompProfile", profile.get("type", ""), profile.get("localhostProfile")
    yield from field.one_of(f"{here}.type", kind, _PROFILES, "type is required when seccompProfile is set")
    if kind == "Localhost":
        if file is None:
            yield field.required(f"{here}.localhostProfile", "must be set when seccomp type is Localhost")
        else:
            yield from descending(file, f"{here}.localhostProfile")
    elif file is not None:
        shown = inside("SeccompProfile", profile)
        yield field.invalid(f"{here}.localhostProfile", shown, "can only be set when seccomp type is Localhost")


def _app_armor(context: Json, path: str) -> Errors:
    profile = context.get("appArmorProfile")
    if profile is None:
        return []
    here, kind, file = f"{path}.appArmorProfile", profile.get("type", ""), profile.get("localhostProfile")
    if wrong := field.one_of(f"{here}.type", kind, _PROFILES, "type is required when appArmorProfile is set"):
        return wrong
    if kind != "Localhost":
        detail = "can only be set when AppArmor type is Localhost"
        return [] if file is None else [field.invalid(f"{here}.localhostProfile", file, detail)]
    found: Errors = []
    if file is not None and file != file.strip():
        found.append(field.invalid(f"{here}.localhostProfile", file, "must not be padded with whitespace"))
    elif not file:
        found.append(field.required(f"{here}.localhostProfile", "must be set when AppArmor type is Localhost"))
    if len(file or "") > 4095:
        found.append(field.too_long(f"{here}.localhostProfile", 4095))
    return found


def of_pod(spec: Json, path: str) -> Causes:
    context, here = spec.get("securityContext") or {}, f"{path}.securityContext"
    if not context and not spec.get("hostPID"):
        return
    yield from _ids(context, ("fsGroup", "runAsUser", "runAsGroup"), here)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        yield from field.between(f"{here}.supplementalGroups[{index}]", group, 0, _MOST)
    if spec.get("hostPID") and spec.get("shareProcessNamespace"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield field.invalid(f"{here}.shareProcessNamespace", True, text)
    yield from _sysctls(spec, context.get("sysctls") or [], f"{here}.sysctls")
    policy = context.get("fsGroupChangePolicy")
    yield from field.supported_if_set(f"{here}.fsGroupChangePolicy", policy, ("Always", "OnRootMismatch"))
    yield from _seccomp(context, here)
    yield from _app_armor(context, here)
    policy = context.get("supplementalGroupsPolicy")
    yield from field.supported_if_set(f"{here}.supplementalGroupsPolicy", policy, ("Merge", "Strict"))
    policy = context.get("seLinuxChangePolicy")
    yield from field.supported_if_set(f"{here}.seLinuxChangePolicy", policy, ("Recursive",))


def _sysctls(spec: Json, given: list[Json], path: str) -> Causes:
    seen: set[str] = set()
    for index, setting in enumerate(given):
        name, here = setting.get("name", ""), f"{path}[{index}].name"
        if not name:
            yield field.required(here)
        elif len(name) > 253 or not re.fullmatch(_SYSCTL[1:-1], name):
            yield field.invalid(here, name, f"must have at most 253 characters and match regex {_SYSCTL}")
        elif name in seen:
            yield field.duplicate(here, name)
        seen.add(name)
        if spec.get("hostNetwork") and name.replace("/", ".").startswith("net."):
            yield field.invalid(here, name, "may not be specified when 'hostNetwork' is true")
        if spec.get("hostIPC") and _is_of_ipc(name.replace("/", ".")):
            yield field.invalid(here, name, "may not be specified when 'hostIPC' is true")


def _is_of_ipc(name: str) -> bool:
    return name == "kernel.sem" or name.startswith(("kernel.shm", "kernel.msg", "fs.mqueue."))


def of_container(container: Json, path: str, host_users: bool = True) -> Causes:
    context, here = container["securityContext"], f"{path}.securityContext"
    yield from _ids(context, ("runAsUser", "runAsGroup"), here)
    mount = context.get("procMount")
    yield from field.supported_if_set(f"{here}.procMount", mount, ("Default", "Unmasked"))
    if mount == "Unmasked" and host_users:
        yield field.invalid(f"{here}.procMount", mount, "`hostUsers` must be false to use `Unmasked`")
    yield from _seccomp(context, here)
    if context.get("allowPrivilegeEscalation") is False:
        shown = inside("SecurityContext", context)
        detail = "cannot set `allowPrivilegeEscalation` to false and "
        if context.get("privileged"):
            yield field.invalid(here, shown, f"{detail}`privileged` to true")
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            yield field.invalid(here, shown, f"{detail}`capabilities.Add` CAP_SYS_ADMIN")
    yield from _app_armor(context, here)


def windows_options(spec: Json, path: str) -> Causes:
    """What a pod with `os.name: linux` must not have."""
    detail = "windows options cannot be set for a linux pod"
    if "windowsOptions" in (spec.get("securityContext") or {}):
        yield field.forbidden(f"{path}.securityContext.windowsOptions", detail)
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or ()):
            if "windowsOptions" in (container.get("securityContext") or {}):
                yield field.forbidden(f"{path}.{kind}[{index}].securityContext.windowsOptions", detail)
