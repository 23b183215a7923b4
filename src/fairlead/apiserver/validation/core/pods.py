"""Validation of pods and of pod templates."""

import json
import re
from typing import Any

from fairlead.apiserver.json_values import copied, put
from fairlead.apiserver.schema.internal import diff, inside
from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.core import scheduling as placing
from fairlead.apiserver.validation.core import security
from fairlead.apiserver.validation.core.containers import (
    Around,
    containers,
    ephemeral_containers,
    file_keys,
    init_containers,
    untidy_image,
)
from fairlead.apiserver.validation.core.volumes import volumes
from fairlead.apiserver.validation.errors import Causes, Errors, Json
from fairlead.apiserver.validation.paths import descending
from fairlead.apiserver.validation.quantities import amounts, claim_names, is_huge, requirements, resource_name
from fairlead.model.quantity import nanos

_RESTART = ("Always", "OnFailure", "Never")
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_INT32 = 2**31 - 1
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_MIRROR = "kubernetes.io/config.mirror"
_SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_MUTABLE = (
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
)


def pod(new: Json, old: Json | None) -> Causes:
    return _on_create(new) if old is None else _on_update(new, old)


def _on_create(pod: Json) -> Causes:
    spec = pod["spec"]
    yield from annotations(pod["metadata"].get("annotations") or {}, spec, "metadata.annotations")
    yield from pod_spec(spec, "spec", pod["metadata"].get("name", ""))
    yield from _only_for_pods(spec)
    if spec.get("ephemeralContainers"):
        yield field.forbidden("spec.ephemeralContainers", "cannot be set on create")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        yield field.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")


def _only_for_pods(spec: Json) -> Causes:
    if not spec.get("serviceAccountName"):
        for index, volume in enumerate(spec.get("volumes") or ()):
            for at, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
                if "serviceAccountToken" in source:
                    path = f"spec.volumes[{index}].projected.sources[{at}].serviceAccountToken"
                    yield field.forbidden(path, "must not be specified when serviceAccountName is not set")
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            yield from untidy_image(container, f"spec.{kind}[{index}]")


def template(given: Json, path: str) -> Causes:
    """A pod template, whoever owns it."""
    meta, spec = given.get("metadata") or {}, given.get("spec") or {}
    yield from metadata.labels(meta.get("labels") or {}, f"{path}.labels")
    noted = meta.get("annotations") or {}
    yield from metadata.annotations(noted, f"{path}.annotations")
    yield from annotations(noted, spec, f"{path}.annotations")
    yield from pod_spec(spec, f"{path}.spec")
    if spec.get("ephemeralContainers"):
        yield field.forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template")


def annotations(given: Json, spec: Json, path: str) -> Causes:
    """Annotations that the server reads."""
    if not given:
        return
    if _MIRROR in given and not spec.get("nodeName"):
        detail = "must set spec.nodeName if mirror pod annotation is set"
        yield field.invalid(f"{path}[{_MIRROR}]", given[_MIRROR], detail)
    if _DELETION_COST in given and not _is_int32(given[_DELETION_COST]):
        yield field.invalid(f"{path}[{_DELETION_COST}]", given[_DELETION_COST], "must be a 32bit integer")
    for key, value in given.items():
        if key == _SECCOMP or key.startswith(_SECCOMP_CONTAINER):
            yield from _old_seccomp(value, f"{path}.{key}")
    for key, value in given.items():
        if key.startswith(_APP_ARMOR):
            name = key.removeprefix(_APP_ARMOR)
            if not any(each.get("name") == name for kind in _CONTAINERS for each in spec.get(kind) or ()):
                yield field.invalid(f"{path}[{key}]", name, "container not found")
            if value not in ("", "runtime/default", "unconfined") and not value.startswith("localhost/"):
                yield field.invalid(f"{path}[{key}]", value, f"invalid AppArmor profile name: {json.dumps(value)}")


_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")


def _is_int32(text: str) -> bool:
    """A number as Go prints it: no plus sign, no leading zeros."""
    if re.fullmatch(r"0|-?[1-9][0-9]{0,9}", text) is None:
        return False
    return -(2**31) <= int(text) < 2**31


def _old_seccomp(profile: str, path: str) -> Causes:
    if profile in ("runtime/default", "docker/default", "unconfined"):
        return []
    if profile.startswith("localhost/"):
        return descending(profile.removeprefix("localhost/"), path)
    return [field.invalid(path, profile, "must be a valid seccomp profile")]


def pod_spec(spec: Json, path: str, pod_name: str = "") -> Causes:
    """`pod_name`: of an existing pod, whose ephemeral volumes get claims named after it."""
    known: dict[str, Json] = {}
    if "volumes" in spec:
        known, problems = volumes(spec["volumes"], f"{path}.volumes", pod_name)
        yield from problems
    claims: set[str] = set()
    if "resourceClaims" in spec:
        claims = {each["name"] for each in spec["resourceClaims"] if each.get("name")}
        yield from _claims(spec["resourceClaims"], f"{path}.resourceClaims")
    given = spec.get("containers") or []
    around = Around(
        known,
        claims,
        spec.get("restartPolicy", ""),
        spec.get("terminationGracePeriodSeconds"),
        spec.get("hostUsers") is not False,
        bool((spec.get("os") or {}).get("name")),
    )
    yield from containers(given, around, f"{path}.containers")
    if "initContainers" in spec:
        yield from init_containers(spec["initContainers"], given, around, f"{path}.initContainers")
    if "ephemeralContainers" in spec:
        yield from ephemeral_containers(spec["ephemeralContainers"], spec, around, f"{path}.ephemeralContainers")
    if "resources" in spec:
        yield from _resources(spec, claims, path)
    yield from _host_network(spec, path, is_pod=bool(pod_name))
    yield from field.one_of(f"{path}.restartPolicy", spec.get("restartPolicy"), _RESTART)
    yield from field.one_of(f"{path}.dnsPolicy", spec.get("dnsPolicy"), _DNS)
    if "nodeSelector" in spec:
        yield from metadata.labels(spec["nodeSelector"], f"{path}.nodeSelector")
    if spec.get("securityContext") or spec.get("hostPID"):
        yield from security.of_pod(spec, path)
    if "affinity" in spec:
        yield from placing.affinity(spec["affinity"], f"{path}.affinity")
    if "dnsConfig" in spec or spec.get("dnsPolicy") == "None":
        yield from _dns(spec, path)
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        here = f"{path}.readinessGates[{index}].conditionType"
        yield from field.malformed(here, gate.get("conditionType", ""), names.qualified)
    yield from _gates(spec.get("schedulingGates") or [], f"{path}.schedulingGates")
    if "topologySpreadConstraints" in spec:
        yield from placing.spread(spec["topologySpreadConstraints"], f"{path}.topologySpreadConstraints")
    if spec.get("hostUsers") is False:
        yield from _own_users(spec, path)
    if "hostnameOverride" in spec:
        yield from _host_name(spec, path)
    for key in ("serviceAccountName", "nodeName"):
        yield from field.malformed_if_set(f"{path}.{key}", spec.get(key), names.subdomain)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None:
        yield from field.between(f"{path}.activeDeadlineSeconds", deadline, 1, _INT32)
    for key in ("hostname", "subdomain"):
        yield from field.optional(f"{path}.{key}", spec.get(key), names.label)
    if "tolerations" in spec:
        yield from placing.tolerations(spec["tolerations"], f"{path}.tolerations")
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        here, address = f"{path}.hostAliases[{index}]", alias.get("ip", "")
        yield from field.malformed(f"{here}.ip", address, names.ip)
        for at, name in enumerate(alias.get("hostnames") or ()):
            yield from field.malformed(f"{here}.hostnames[{at}]", name, names.subdomain)
    for key in ("priorityClassName", "runtimeClassName"):
        if key in spec and (spec[key] or key == "runtimeClassName"):
            yield from field.malformed(f"{path}.{key}", spec[key], names.subdomain)
    if "preemptionPolicy" in spec:
        yield from field.one_of(f"{path}.preemptionPolicy", spec["preemptionPolicy"], ("PreemptLowerPriority", "Never"))
    if "overhead" in spec:
        yield from requirements({"limits": spec["overhead"]}, f"{path}.overhead")
    if "os" in spec:
        yield from _system(spec, path)
    yield from file_keys(spec, path)


def _claims(given: list[Json], path: str) -> Causes:
    seen: set[str] = set()
    for index, claim in enumerate(given):
        here, name = f"{path}[{index}]", claim.get("name", "")
        if not name:
            yield field.required(f"{here}.name")
        elif name in seen:
            yield field.duplicate(f"{here}.name", name)
        else:
            yield from field.malformed(f"{here}.name", name, names.label)
            seen.add(name)
        keys = [key for key in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(key) is not None]
        shown = inside("PodResourceClaim", claim)
        if len(keys) == 2:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            yield field.invalid(here, shown, detail)
        if not keys:
            yield field.invalid(here, shown, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
        for key in keys:
            yield from field.malformed(f"{here}.{key}", claim[key], names.subdomain)


def _resources(spec: Json, claims: set[str], path: str) -> Causes:
    """Resources of the whole pod, which its containers may not exceed."""
    resources, here = spec["resources"], f"{path}.resources"
    if resources.get("claims"):
        yield field.forbidden(f"{here}.claims", "claims may not be set for Resources at pod-level")
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    yield from amounts(limits, requests, here, _pod_resource)
    yield from claim_names(resources.get("claims") or (), claims, f"{here}.claims")
    requested = [(each.get("resources") or {}).get("requests") or {} for each in spec.get("containers") or ()]
    for name, quantity in requests.items():
        given = [each[name] for each in requested if name in each]
        total = sum(map(nanos, given))
        if total > nanos(quantity):
            shown = given[0] if len(given) == 1 else _plain(total)
            detail = f"must be greater than or equal to aggregate container requests of {shown}"
            yield field.invalid(f"{here}.requests[{name}]", quantity, detail)
    for index, container in enumerate(spec.get("containers") or ()):
        for name, quantity in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and nanos(quantity) > nanos(limits[name]):
                detail = f"must be less than or equal to pod limits of {limits[name]}"
                yield field.invalid(f"{here}.containers[{index}][{name}].limits", quantity, detail)


def _plain(amount: int) -> str:
    milli = amount // 1_000_000
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def _pod_resource(name: str, path: str) -> Errors:
    found = resource_name(name, path)
    if found or name in ("cpu", "memory") or is_huge(name):
        return found
    return [field.not_supported(path, name, ("cpu", "hugepages-", "memory"))]


def _own_users(spec: Json, path: str) -> Causes:
    detail = "when `hostUsers` is false"
    for key, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
        if spec.get(key):
            yield field.forbidden(f"{path}.{shown}", detail)
    for kind in _CONTAINERS:
        for index, container in enumerate(spec.get(kind) or ()):
            if container.get("volumeDevices"):
                yield field.forbidden(f"{path}.{kind}[{index}].volumeDevices", detail)


def _host_name(spec: Json, path: str) -> Causes:
    here, name = f"{path}.hostnameOverride", spec["hostnameOverride"]
    if spec.get("setHostnameAsFQDN"):
        yield field.forbidden(here, "may not be specified when setHostnameAsFQDN is true")
    if spec.get("hostNetwork"):
        yield field.forbidden(here, "may not be specified when hostNetwork is true")
    if len(name) > 64:
        yield field.too_long(here, 64)
    yield from field.malformed(here, name, names.subdomain)


def _system(spec: Json, path: str) -> Causes:
    name = (spec["os"] or {}).get("name", "")
    if not name:
        return [field.required(f"{path}.os.name")]
    if name not in ("linux", "windows"):
        return [field.not_supported(f"{path}.os", name, ("linux", "windows"))]
    return security.windows_options(spec, path) if name == "linux" else []


def _host_network(spec: Json, path: str, is_pod: bool) -> Causes:
    if spec.get("hostNetwork"):
        for index, container in enumerate(spec.get("containers") or ()):
            for at, port in enumerate(container.get("ports") or ()):
                # A template's ports have no host port yet; a pod's were filled in.
                host = port.get("hostPort", 0)
                if (is_pod or host) and host != port.get("containerPort", 0):
                    here = f"{path}.containers[{index}].ports[{at}].hostPort"
                    yield field.invalid(here, host, "must match `containerPort` when `hostNetwork` is true")


def _dns(spec: Json, path: str) -> Causes:
    config = spec.get("dnsConfig")
    if spec.get("dnsPolicy") == "None":
        if config is None:
            yield field.required(f"{path}.dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not config.get("nameservers"):
            detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            yield field.required(f"{path}.dnsConfig.nameservers", detail)
            return
    config = config or {}
    servers, searches = config.get("nameservers") or (), config.get("searches") or ()
    if len(servers) > 3:
        yield field.invalid(f"{path}.dnsConfig.nameservers", servers, "must not have more than 3 nameservers")
    for index, server in enumerate(servers):
        yield from field.malformed(f"{path}.dnsConfig.nameservers[{index}]", server, names.ip)
    if len(searches) > 32:
        yield field.invalid(f"{path}.dnsConfig.searches", searches, "must not have more than 32 search paths")
    if len(" ".join(searches)) > 2048:
        detail = "must not have more than 2048 characters (including spaces) in the search list"
        yield field.invalid(f"{path}.dnsConfig.searches", searches, detail)
    for index, search in enumerate(searches):
        if search != ".":
            text, here = search.removesuffix("."), f"{path}.dnsConfig.searches[{index}]"
            yield from field.malformed(here, text, names.subdomain_with_underscores)
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            yield field.required(f"{path}.dnsConfig.options[{index}]", "must not be empty")


def _gates(gates: list[Json], path: str) -> Causes:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        yield from field.malformed(f"{path}[{index}]", name, names.qualified)
        yield from field.unique(seen, f"{path}[{index}]", name)


# --- changing a pod ---------------------------------------------------------------------------------------------


def _on_update(new: Json, old: Json) -> Causes:
    spec, before = new["spec"], old["spec"]
    noted, were = new["metadata"].get("annotations") or {}, old["metadata"].get("annotations") or {}
    if spec == before and noted == were:
        return
    yield from annotations(noted, spec, "metadata.annotations")
    yield from pod_spec(spec, "spec", new["metadata"].get("name", ""))
    yield from _only_for_pods(spec)
    yield from _changed_annotations(noted, were)
    yield from annotations(noted, spec, "metadata.annotations")
    if spec == before:
        return
    for kind in ("containers", "initContainers"):
        if len(spec.get(kind) or ()) != len(before.get(kind) or ()):
            yield field.forbidden(f"spec.{kind}", "pod updates may not add or remove containers")
            return
        for index, container in enumerate(spec.get(kind) or ()):
            if not container.get("image"):
                yield field.required(f"spec.{kind}[{index}].image")
            yield from untidy_image(container, f"spec.{kind}[{index}]")
    problems = _deadline(spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds"))
    yield from problems
    if problems and spec.get("activeDeadlineSeconds") is not None:
        return
    tolerated = spec.get("tolerations") or []
    if _tolerates_the_same(tolerated, before.get("tolerations") or []):
        yield from placing.tolerations(tolerated, "spec.tolerations")
    else:
        detail = "existing toleration can not be modified except its tolerationSeconds"
        yield field.forbidden("spec.tolerations", detail)
    yield from _new_gates(spec.get("schedulingGates") or [], before.get("schedulingGates") or [])
    changed = copied(spec)
    for kind in ("containers", "initContainers"):
        for container, previous in zip(changed.get(kind) or (), before.get(kind) or (), strict=True):
            put(container, "image", previous)
    put(changed, "activeDeadlineSeconds", before)
    put(changed, "schedulingGates", before)
    if before.get("terminationGracePeriodSeconds", 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        put(changed, "terminationGracePeriodSeconds", before)
    put(changed, "tolerations", before)
    if before.get("schedulingGates"):
        yield from _gated(changed, spec, before)
    if changed != before:
        detail = f"pod updates may not change fields other than {','.join(_MUTABLE)}"
        yield field.forbidden("spec", f"{detail}\n{diff('PodSpec', before, changed)}")


def _changed_annotations(new: Json, old: Json) -> Causes:
    for key, value in {**old, **new}.items():
        if new.get(key) == old.get(key):
            continue
        done = "remove or update" if key in old else "add"
        if key.startswith(_APP_ARMOR):
            yield field.forbidden(f"metadata.annotations[{key}]", f"may not {done} AppArmor annotations")
        if key == _MIRROR:
            assert value is not None
            yield field.forbidden(f"metadata.annotations[{key}]", f"may not {done} mirror pod annotation")


def _deadline(new: int | None, old: int | None) -> Errors:
    path = "spec.activeDeadlineSeconds"
    if new is None:
        if old is None:
            return []
        return [field.invalid(path, None, "must not update from a positive integer to nil value")]
    if 0 <= new <= _INT32 and old is not None and old < new:
        return [field.invalid(path, new, "must be less than or equal to previous value")]
    return field.between(path, new, 0, _INT32)


def _new_gates(new: list[Json], old: list[Json]) -> Errors:
    known = {gate["name"] for gate in old}
    return [
        field.forbidden(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'",
        )
        for index, gate in enumerate(new)
        if gate.get("name") not in known
    ]


def _tolerates_the_same(new: list[Json], old: list[Json]) -> bool:
    def timeless(toleration: Json) -> Json:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}

    kept = [timeless(toleration) for toleration in new]
    return all(timeless(toleration) in kept for toleration in old)


def _gated(changed: Json, spec: Json, before: Json) -> Causes:
    """A pod with scheduling gates may still get more node labels and a stricter node affinity."""
    selector, had = spec.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    if selector != had:
        if any(selector.get(key) != value for key, value in had.items()):
            detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
            yield field.invalid("spec.nodeSelector", selector, detail)
        put(changed, "nodeSelector", before)
    affinity: Any = (spec.get("affinity") or {}).get("nodeAffinity")
    previous: Any = (before.get("affinity") or {}).get("nodeAffinity")
    if affinity == previous:
        return
    yield from _narrowed(affinity or {}, previous or {})
    rest = {key: value for key, value in (spec.get("affinity") or {}).items() if key != "nodeAffinity"}
    if previous is not None:
        changed["affinity"] = {**rest, "nodeAffinity": previous}
    elif rest or "affinity" in before:
        changed["affinity"] = rest
    else:
        changed.pop("affinity", None)


def _narrowed(new: Json, old: Json) -> Errors:
    """Terms that were there may only get further conditions."""
    required_ = "requiredDuringSchedulingIgnoredDuringExecution"
    path = f"spec.affinity.nodeAffinity.{required_}.nodeSelectorTerms"
    terms, had = ((each.get(required_) or {}).get("nodeSelectorTerms") or [] for each in (new, old))
    if had and len(had) != len(terms):
        shown = [inside("NodeSelectorTerm", each) for each in terms] or None
        return [field.invalid(path, shown, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")]
    detail = "only additions are allowed (no mutations or deletions)"
    return [
        field.invalid(f"{path}[{index}]", inside("NodeSelectorTerm", term), detail)
        for index, (term, previous) in enumerate(zip(terms, had, strict=False))
        if not _only_adds(term, previous)
    ]


def _only_adds(new: Json, old: Json) -> bool:
    parts = [(new.get(key) or [], old.get(key) or []) for key in ("matchExpressions", "matchFields")]
    if not any(had for _, had in parts):
        return not any(has for has, _ in parts)
    return all(has[: len(had)] == had for has, had in parts)


def pod_template(new: Json, old: Json | None) -> Causes:
    return template(new.get("template") or {}, "template")
