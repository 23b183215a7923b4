"""What is asked of pods and of pod templates."""

from typing import Any

from fairlead.local.objects.internal import spec_diff
from fairlead.local.objects.plain import copied
from fairlead.local.objects.rules import metadata, names, placing, security
from fairlead.local.objects.rules.containers import containers, host_ports
from fairlead.local.objects.rules.errors import (
    Errors,
    Json,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    one_of,
    required,
)
from fairlead.local.objects.rules.volumes import volumes

_RESTART = ("Always", "OnFailure", "Never")
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_INT32 = 2**31 - 1
_MUTABLE = (
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
)


def on_create(pod: Json) -> Errors:
    found = metadata.on_create(pod["metadata"], True, names.subdomain)
    spec = pod["spec"]
    found += pod_spec(spec, "spec")
    found += _only_for_pods(spec)
    if spec.get("ephemeralContainers"):
        found.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        found.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return found


def _only_for_pods(spec: Json) -> Errors:
    found: Errors = []
    if not spec.get("serviceAccountName"):
        for index, volume in enumerate(spec.get("volumes") or ()):
            for at, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
                if "serviceAccountToken" in source:
                    path = f"spec.volumes[{index}].projected.sources[{at}].serviceAccountToken"
                    found.append(forbidden(path, "must not be specified when serviceAccountName is not set"))
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            image = container.get("image", "")
            if image != image.strip():
                found.append(
                    invalid(f"spec.{kind}[{index}].image", image, "must not have leading or trailing whitespace")
                )
    return found


def template(given: Json, path: str) -> Errors:
    """A pod template, whoever owns it."""
    meta = given.get("metadata") or {}
    found = metadata.labels(meta.get("labels") or {}, f"{path}.labels")
    found += metadata.annotations(meta.get("annotations") or {}, f"{path}.annotations")
    found += pod_spec(given.get("spec") or {}, f"{path}.spec")
    if (given.get("spec") or {}).get("ephemeralContainers"):
        found.append(forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template"))
    return found


def pod_spec(spec: Json, path: str) -> Errors:
    found: Errors = []
    known: set[str] = set()
    if "volumes" in spec:
        known, found = volumes(spec["volumes"], f"{path}.volumes")
    given = spec.get("containers") or []
    found += containers(given, known, f"{path}.containers")
    if "initContainers" in spec:
        found += containers(spec["initContainers"], known, f"{path}.initContainers", init=True)
        found += _no_shared_names(spec, path)
    if any("ports" in container for container in given):
        found += host_ports(given, f"{path}.containers")
    if spec.get("restartPolicy") not in _RESTART:
        found += one_of(f"{path}.restartPolicy", spec.get("restartPolicy"), _RESTART)
    if spec.get("dnsPolicy") not in _DNS:
        found += one_of(f"{path}.dnsPolicy", spec.get("dnsPolicy"), _DNS)
    if "nodeSelector" in spec:
        found += metadata.labels(spec["nodeSelector"], f"{path}.nodeSelector")
    found += _host_network(spec, path)
    if "affinity" in spec:
        found += placing.affinity(spec["affinity"], f"{path}.affinity")
    if "dnsConfig" in spec or spec.get("dnsPolicy") == "None":
        found += _dns(spec, path)
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        kind = gate.get("conditionType", "")
        here = f"{path}.readinessGates[{index}].conditionType"
        found += [invalid(here, kind, text) for text in names.qualified(kind)]
    found += _gates(spec.get("schedulingGates") or [], f"{path}.schedulingGates")
    if "topologySpreadConstraints" in spec:
        found += placing.spread(spec["topologySpreadConstraints"], f"{path}.topologySpreadConstraints")
    for key in ("serviceAccountName", "nodeName"):
        if key in spec:
            found += [invalid(f"{path}.{key}", spec[key], text) for text in names.subdomain(spec[key])]
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _INT32:
        found.append(invalid(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive"))
    for key in ("hostname", "subdomain"):
        if spec.get(key):
            found += [invalid(f"{path}.{key}", spec[key], text) for text in names.label(spec[key])]
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        here, address = f"{path}.hostAliases[{index}]", alias.get("ip", "")
        found += [invalid(f"{here}.ip", address, text) for text in names.ip(address)]
        for at, name in enumerate(alias.get("hostnames") or ()):
            found += [invalid(f"{here}.hostnames[{at}]", name, text) for text in names.subdomain(name)]
    if spec.get("os") and spec["os"].get("name") not in ("linux", "windows"):
        found.append(not_supported(f"{path}.os", spec["os"].get("name", ""), ("linux", "windows")))
    if spec.get("securityContext") or spec.get("hostPID"):
        found += security.of_pod(spec, path)
    if "tolerations" in spec:
        found += placing.tolerations(spec["tolerations"], f"{path}.tolerations")
    if spec.get("priorityClassName"):
        name = spec["priorityClassName"]
        found += [invalid(f"{path}.priorityClassName", name, text) for text in names.subdomain(name)]
    if "preemptionPolicy" in spec:
        found += one_of(f"{path}.preemptionPolicy", spec["preemptionPolicy"], ("PreemptLowerPriority", "Never"))
    return found


def _no_shared_names(spec: Json, path: str) -> Errors:
    taken = {container.get("name") for container in spec.get("containers") or ()}
    return [
        duplicate(f"{path}.initContainers[{index}].name", container["name"])
        for index, container in enumerate(spec["initContainers"])
        if container.get("name") in taken
    ]


def _host_network(spec: Json, path: str) -> Errors:
    found: Errors = []
    if spec.get("hostNetwork"):
        for index, container in enumerate(spec.get("containers") or ()):
            for at, port in enumerate(container.get("ports") or ()):
                # A template's ports have no host port yet; a pod's were filled in.
                if port.get("hostPort", port.get("containerPort")) != port.get("containerPort"):
                    here = f"{path}.containers[{index}].ports[{at}].hostPort"
                    text = "must match `containerPort` when `hostNetwork` is true"
                    found.append(invalid(here, port["hostPort"], text))
    return found


def _dns(spec: Json, path: str) -> Errors:
    config = spec.get("dnsConfig")
    found: Errors = []
    if spec.get("dnsPolicy") == "None":
        if config is None:
            return [required(f"{path}.dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not config.get("nameservers"):
            found.append(
                required(
                    f"{path}.dnsConfig.nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None"
                )
            )
    config = config or {}
    servers, searches = config.get("nameservers") or (), config.get("searches") or ()
    if len(servers) > 3:
        found.append(invalid(f"{path}.dnsConfig.nameservers", servers, "must not have more than 3 nameservers"))
    for index, server in enumerate(servers):
        found += [invalid(f"{path}.dnsConfig.nameservers[{index}]", server, text) for text in names.ip(server)]
    for index, search in enumerate(searches):
        text = search.removesuffix(".")
        if text:
            found += [
                invalid(f"{path}.dnsConfig.searches[{index}]", search, problem) for problem in names.subdomain(text)
            ]
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            found.append(required(f"{path}.dnsConfig.options[{index}]", "must not be empty"))
    return found


def _gates(gates: list[Json], path: str) -> Errors:
    found: Errors = []
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        found += [invalid(f"{path}[{index}]", name, text) for text in names.qualified(name)]
        if name in seen:
            found.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)
    return found


# --- changing a pod ---------------------------------------------------------------------------------------------


def on_update(new: Json, old: Json) -> Errors:
    found = metadata.anew(new["metadata"], old["metadata"], True, names.subdomain)
    spec, before = new["spec"], old["spec"]
    if spec == before:
        return found
    found += pod_spec(spec, "spec")
    found += _only_for_pods(spec)
    for kind in ("containers", "initContainers"):
        if len(spec.get(kind) or ()) != len(before.get(kind) or ()):
            return [*found, forbidden(f"spec.{kind}", "pod updates may not add or remove containers")]
    found += _deadline(spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds"))
    found += _new_gates(spec.get("schedulingGates") or [], before.get("schedulingGates") or [])
    changed = copied(spec)
    for kind in ("containers", "initContainers"):
        for container, previous in zip(changed.get(kind) or (), before.get(kind) or (), strict=True):
            _put(container, "image", previous)
    _put(changed, "activeDeadlineSeconds", before)
    _put(changed, "schedulingGates", before)
    if before.get("terminationGracePeriodSeconds", 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        _put(changed, "terminationGracePeriodSeconds", before)
    if _tolerates_the_same(spec.get("tolerations") or [], before.get("tolerations") or []):
        _put(changed, "tolerations", before)
    else:
        found.append(
            forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
        )
        _put(changed, "tolerations", before)
    if before.get("schedulingGates"):
        found += _gated(changed, spec, before)
    if changed != before:
        told = f"pod updates may not change fields other than {','.join(_MUTABLE)}\n{spec_diff(before, changed)}"
        found.append(forbidden("spec", told))
    return found


def _put(target: Json, key: str, source: Json) -> None:
    if key in source:
        target[key] = source[key]
    else:
        target.pop(key, None)


def _deadline(new: int | None, old: int | None) -> Errors:
    path = "spec.activeDeadlineSeconds"
    if new is None:
        if old is None:
            return []
        return [invalid(path, None, "must not update from a positive integer to nil value")]
    if not 0 <= new <= _INT32:
        return [invalid(path, new, "must be between 0 and 2147483647, inclusive")]
    if old is not None and old < new:
        return [invalid(path, new, "must be less than or equal to previous value")]
    return []


def _new_gates(new: list[Json], old: list[Json]) -> Errors:
    known = {gate["name"] for gate in old}
    return [
        forbidden(
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


def _gated(changed: Json, spec: Json, before: Json) -> Errors:
    """A pod that is held back may still be narrowed: more node labels, a stricter node affinity."""
    found: Errors = []
    wanted, had = spec.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    if wanted != had:
        if any(wanted.get(key) != value for key, value in had.items()):
            found.append(
                invalid(
                    "spec.nodeSelector",
                    wanted,
                    "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
                )
            )
        _put(changed, "nodeSelector", before)
    affinity: Any = (spec.get("affinity") or {}).get("nodeAffinity")
    previous: Any = (before.get("affinity") or {}).get("nodeAffinity")
    if affinity != previous and previous is None:
        _put(changed, "affinity", before)
    return found
