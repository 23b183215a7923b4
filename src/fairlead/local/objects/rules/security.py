"""What is asked of security contexts, a pod's and a container's."""

import re

from fairlead.local.objects.rules.errors import Errors, Json, invalid, not_supported

_MOST = 2**31 - 1
_RANGE = "must be between 0 and 2147483647, inclusive"
_SECCOMP = ("Localhost", "RuntimeDefault", "Unconfined")
_SYSCTL = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"


def _ids(context: Json, keys: tuple[str, ...], path: str) -> Errors:
    return [
        invalid(f"{path}.{key}", context[key], _RANGE)
        for key in keys
        if context.get(key) is not None and not 0 <= context[key] <= _MOST
    ]


def _seccomp(context: Json, path: str) -> Errors:
    profile = context.get("seccompProfile")
    if profile is None or profile.get("type") in _SECCOMP:
        return []
    return [not_supported(f"{path}.seccompProfile.type", profile.get("type", ""), _SECCOMP)]


def of_pod(spec: Json, path: str) -> Errors:
    context, here = spec.get("securityContext") or {}, f"{path}.securityContext"
    found: Errors = []
    if spec.get("hostPID") and spec.get("shareProcessNamespace"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        found.append(invalid(f"{here}.shareProcessNamespace", True, text))
    if not context:
        return found
    found += _ids(context, ("fsGroup", "runAsUser", "runAsGroup"), here)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        if not 0 <= group <= _MOST:
            found.append(invalid(f"{here}.supplementalGroups[{index}]", group, _RANGE))
    for index, setting in enumerate(context.get("sysctls") or ()):
        name = setting.get("name", "")
        if len(name) > 253 or not re.fullmatch(_SYSCTL[1:-1], name):
            text = f"must have at most 253 characters and match regex {_SYSCTL}"
            found.append(invalid(f"{here}.sysctls[{index}].name", name, text))
    policy = context.get("fsGroupChangePolicy")
    if policy is not None and policy not in ("Always", "OnRootMismatch"):
        found.append(not_supported(f"{here}.fsGroupChangePolicy", policy, ("Always", "OnRootMismatch")))
    return [*found, *_seccomp(context, here)]


def of_container(container: Json, path: str) -> Errors:
    context, here = container["securityContext"], f"{path}.securityContext"
    found = _ids(context, ("runAsUser", "runAsGroup"), here)
    mount = context.get("procMount")
    if mount is not None and mount not in ("Default", "Unmasked"):
        found.append(not_supported(f"{here}.procMount", mount, ("Default", "Unmasked")))
    return [*found, *_seccomp(context, here)]
