"""Warnings about valid objects: fields that are ignored, deprecated, ambiguous or most likely a mistake.

Called after validation, when an object is created or changed. Each warning becomes a `Warning` header that
kubectl prints.
"""

import ipaddress
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from fairlead.apiserver.validation import names
from fairlead.model.quantity import NANO, nanos

Json = dict[str, Any]
# Pairs of ports compared per pod, and of paths per volume (about 400 each); only 20 warnings are sent.
MOST_COMPARED: Final = 80_000
Warnings = Callable[[Json, Json | None], Iterable[str]]

_LABELS: Final = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
_ANNOTATIONS: Final = {
    "scheduler.alpha.kubernetes.io/critical-pod": (
        'non-functional in v1.16+; use the "priorityClassName" field instead'
    ),
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_SECCOMP: Final = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER: Final = "container.seccomp.security.alpha.kubernetes.io/"
_APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
# Volume types that are not supported any more: field, name, and since when.
_VOLUMES: Final = {
    "photonPersistentDisk": ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    "gitRepo": ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    "scaleIO": ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    "flocker": ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    "storageos": ("storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    "quobyte": ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    "glusterfs": ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    "cephfs": ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    "rbd": ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
}
_PERSISTENT: Final = ("cephfs", "photonPersistentDisk", "scaleIO", "storageos", "glusterfs", "rbd")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_NO_SELECTOR: Final = "a null labelSelector results in matching no pod"
_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")


def on_write(group: str, kind: str, new: Json, old: Json | None, subresource: str = "") -> list[str]:
    if subresource:
        found = _STATUS.get((group, kind)) if subresource == "status" else None
    else:
        found = _KINDS.get((group, kind))
    return [] if found is None else list(dict.fromkeys(found(new, old)))


def of_finalizers(new: Json, old: Json | None) -> list[str]:
    """For an object of a custom kind, whose finalizers may have any name."""
    finalizers = new["metadata"].get("finalizers") or ()
    if not finalizers or finalizers == ((old or {}).get("metadata") or {}).get("finalizers"):
        return []
    found: list[str] = []
    for name in finalizers:
        detail = f'metadata.finalizers: "{name}":'
        found += [f"{detail} {text}" for text in names.qualified(name)]
        if "/" not in name and name not in ("orphan", "foregroundDeletion", "kubernetes"):
            dotted = " including a path (/)" if "." in name else ""
            why = f"prefer a domain-qualified finalizer name{dotted} to avoid accidental conflicts with other"
            found.append(f"{detail} {why} finalizer writers")
    return list(dict.fromkeys(found))


# -- pods --------------------------------------------------------------------------------------------------------


def _pod(new: Json, old: Json | None) -> Iterator[str]:
    if old is None:  # pods are changed often, and seldom by people
        yield from _name(new, "the Pod's hostname")
        yield from _pod_spec(new["spec"], new["metadata"].get("annotations") or {}, "")


def _pod_status(new: Json, old: Json | None) -> Iterator[str]:
    for key in ("podIPs", "hostIPs"):
        yield from _ips_of((new.get("status") or {}).get(key), f"status.{key}")


def _name(thing: Json, of: str) -> Iterator[str]:
    problems = names.label(thing["metadata"].get("name", ""))
    if problems:
        detail = f"metadata.name: this is used in {of}, which can result in surprising behavior"
        yield f"{detail}; a DNS label is recommended: [{' '.join(problems)}]"


def _template(given: Json | None, path: str) -> Iterator[str]:
    if given is not None:
        noted = (given.get("metadata") or {}).get("annotations") or {}
        yield from _pod_spec(given.get("spec") or {}, noted, path)


def _pod_spec(spec: Json, noted: Json, path: str) -> Iterator[str]:
    """`path` leads to a template; a pod itself has none."""
    lead = f"{path}." if path else ""
    here = f"{lead}spec"
    if "nodeSelector" in spec:
        for key in spec["nodeSelector"]:
            if key in _LABELS:
                yield f"{here}.nodeSelector[{key}]: {_LABELS[key]}"
    if "affinity" in spec:
        yield from _node_affinity(spec["affinity"].get("nodeAffinity") or {}, f"{here}.affinity.nodeAffinity")
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        place, key = f"{here}.topologySpreadConstraints[{index}]", constraint.get("topologyKey")
        if key in _LABELS:
            yield f"{place}.topologyKey: {key} is {_LABELS[key]}"
        if "labelSelector" not in constraint:
            yield f"{place}.labelSelector: {_NO_SELECTOR}"
    for key in [] if _ANNOTATIONS.keys().isdisjoint(noted) else [key for key in _ANNOTATIONS if key in noted]:
        yield f"{lead}metadata.annotations[{key}]: {_ANNOTATIONS[key]}"
    if "volumes" in spec:
        yield from _volumes(spec["volumes"], f"{here}.volumes")
    yield from _twice(spec, here)
    for name in ("memory", "ephemeral-storage"):
        yield from _fraction((spec.get("overhead") or {}).get(name), f"{here}.overhead[{name}]")
    if _SECCOMP in noted and "seccompProfile" not in (spec.get("securityContext") or {}):
        detail = 'non-functional in v1.27+; use the "seccompProfile" field instead'
        yield f"{lead}metadata.annotations[{_SECCOMP}]: {detail}"
    for place, container in _containers(spec, here):
        yield from _container(container, spec, noted, place, path)
    yield from _ports(spec, here)
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        detail = "must be >= 0; negative values are invalid and will be treated as 1"
        yield f"{here}.terminationGracePeriodSeconds: {detail}"
    if "affinity" in spec:
        yield from _pod_affinity(spec["affinity"], f"{here}.affinity")
    yield from _each(_ip, (spec.get("dnsConfig") or {}).get("nameservers"), f"{here}.dnsConfig.nameservers")
    yield from _ips_of(spec.get("hostAliases"), f"{here}.hostAliases")


def _containers(spec: Json, path: str) -> Iterator[tuple[str, Json]]:
    for kind in _CONTAINERS:
        for index, container in enumerate(spec.get(kind) or ()):
            yield f"{path}.{kind}[{index}]", container


def _node_affinity(given: Json, path: str) -> Iterator[str]:
    for index, term in enumerate((given.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()):
        yield from _node_term(term, f"{path}.{_REQUIRED}.nodeSelectorTerms[{index}]", values=False)
    for index, term in enumerate(given.get(_PREFERRED) or ()):
        yield from _node_term(term.get("preference") or {}, f"{path}.{_PREFERRED}[{index}].preference", values=True)


def _node_term(term: Json, path: str, *, values: bool) -> Iterator[str]:
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        here, key = f"{path}.matchExpressions[{index}]", expression.get("key", "")
        if key in _LABELS:
            yield f"{here}.key: {key} is {_LABELS[key]}"
        for at, value in enumerate(expression.get("values") or () if values else ()):
            for problem in names.label_value(value):
                yield f"{here}.values[{at}]: {value} is invalid, {problem}"


def _pod_affinity(given: Json, path: str) -> Iterator[str]:
    for side in ("podAffinity", "podAntiAffinity"):
        rules, here = given.get(side) or {}, f"{path}.{side}"
        for index, term in enumerate(rules.get(_REQUIRED) or ()):
            if "labelSelector" not in term:
                yield f"{here}.{_REQUIRED}[{index}].labelSelector: {_NO_SELECTOR}"
        for index, term in enumerate(rules.get(_PREFERRED) or ()):
            if "labelSelector" not in (term.get("podAffinityTerm") or {}):
                yield f"{here}.{_PREFERRED}[{index}].podAffinityTerm.labelSelector: {_NO_SELECTOR}"


def _twice(spec: Json, path: str) -> Iterator[str]:
    for key, field in (("hostAliases", "ip"), ("imagePullSecrets", "name")):
        seen: set[str] = set()
        for index, item in enumerate(spec.get(key) or ()):
            value = item.get(field, "")
            if value in seen:
                yield f'{path}.{key}[{index}].{field}: duplicate {field} "{value}"'
            seen.add(value)
    for index, item in enumerate(spec.get("imagePullSecrets") or ()):
        if not item.get("name"):
            yield f'{path}.imagePullSecrets[{index}].name: invalid empty name ""'


def _container(container: Json, spec: Json, noted: Json, path: str, template: str) -> Iterator[str]:
    context, name = container.get("securityContext") or {}, container.get("name", "")
    lead = f"{template}." if template else ""
    key = f"{_SECCOMP_CONTAINER}{name}"
    if key in noted and "seccompProfile" not in context:
        yield f'{lead}metadata.annotations[{key}]: non-functional in v1.27+; use the "seccompProfile" field instead'
    key = f"{_APP_ARMOR}{name}"
    if template and key in noted and "appArmorProfile" not in {**context, **(spec.get("securityContext") or {})}:
        yield f'{lead}metadata.annotations[{key}]: deprecated since v1.30; use the "appArmorProfile" field instead'
    resources = container.get("resources") or {}
    for resource in ("memory", "ephemeral-storage"):
        for kind in ("limits", "requests"):
            yield from _fraction((resources.get(kind) or {}).get(resource), f"{path}.resources.{kind}[{resource}]")
    seen: set[str] = set()
    for index, variable in enumerate(container.get("env") or ()):
        name, value = variable.get("name", ""), variable.get("value", "")
        reference = f"$({name})"
        if name in seen and ("valueFrom" in variable or value == reference or reference not in value):
            detail = f'hides previous definition of "{name}", which may be dropped when using apply'
            yield f"{path}.env[{index}]: {detail}"
        seen.add(name)


def _fraction(quantity: str | None, path: str) -> Iterator[str]:
    if quantity is not None and -(-nanos(quantity) // 1_000_000) % (NANO // 1_000_000):
        yield f'{path}: fractional byte value "{quantity}" is invalid, must be an integer'


def _ports(spec: Json, path: str) -> Iterator[str]:
    seen: dict[tuple[int, str], list[tuple[str, Json]]] = {}
    compared = 0
    listed = [
        (f"{place}.ports[{index}]", port)
        for place, container in _containers(spec, path)
        for index, port in enumerate(container.get("ports") or ())
    ]
    for place, port in listed:
        if port.get("hostIP") and not port.get("hostPort"):
            shown = (
                f"{{Name:{port.get('name', '')} HostPort:0 ContainerPort:{port.get('containerPort', 0)} "
                f"Protocol:{port.get('protocol', '')} HostIP:{port['hostIP']}}}"
            )
            yield f"{place}: hostIP set without hostPort: {shown}"
        others = seen.setdefault((port.get("containerPort", 0), port.get("protocol", "")), [])
        compared += len(others)
        if compared <= MOST_COMPARED:
            for other, there in others:
                yield from _both(place, port, other, there)
            others.append((place, port))
    named: dict[str, str] = {}
    for place, port in listed:
        name = port.get("name", "")
        if name and name in named:
            first = named[name]
            detail = f"services and probes that select ports by name will use {first}"
            yield f'{place}: duplicate port name "{name}" with {first}, {detail}'
        elif name:
            named[name] = place


def _both(place: str, port: Json, other: str, there: Json) -> Iterator[str]:
    mine, theirs = (each.get("hostIP", "") for each in (port, there))
    host, taken = (each.get("hostPort", 0) for each in (port, there))
    if (mine, host) == (theirs, taken):
        yield f"{place}: duplicate port definition with {other}"
    elif not host or not taken:
        yield f"{place}: overlapping port definition with {other}"
    elif host == taken and bool(mine) != bool(theirs):
        yield f"{place}: dangerously ambiguous port definition with {other}"


def _volumes(given: list[Json], path: str) -> Iterator[str]:
    for index, volume in enumerate(given):
        if not _VOLUMES.keys().isdisjoint(volume):
            for kind, (shown, detail) in _VOLUMES.items():
                if kind in volume:
                    yield f"{path}[{index}].{shown}: {detail}"
        claim = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        if claim is not None:
            yield from _claim_spec(claim.get("spec") or {}, f"{path}[{index}].ephemeral.volumeClaimTemplate.spec")
    for volume in given:
        yield from _overlaps(volume)


def _overlaps(volume: Json) -> Iterator[str]:
    name = volume.get("name", "")
    for kind, word, key in (
        ("configMap", "ConfigMap", "name"),
        ("secret", "Secret", "secretName"),
        ("downwardAPI", "", ""),
    ):
        source = volume.get(kind)
        if source is not None:
            about = f'{word} "{source.get(key, "")}"' if word else "DownwardAPI"
            paths = [(item.get("path", ""), "") for item in source.get("items") or ()]
            for overlap in _overlapping(paths):
                yield f'volume "{name}" ({about}): overlapping paths: {overlap}'
    taken: list[tuple[str, str]] = []
    for source in (volume.get("projected") or {}).get("sources") or ():
        if not source:
            yield f'volume "{name}" (Projected) has no sources provided'
        taken += _projected_paths(source)
    for overlap in _overlapping(taken):
        yield f'volume "{name}" (Projected): overlapping paths: {overlap}'


def _projected_paths(source: Json) -> list[tuple[str, str]]:
    for kind, word in (("configMap", "ConfigMap"), ("secret", "Secret"), ("downwardAPI", "")):
        part = source.get(kind) or {}
        if part.get("items"):
            about = f'{word} "{part.get("name", "")}"' if word else "DownwardAPI"
            return [(item.get("path", ""), about) for item in part["items"]]
    if "serviceAccountToken" in source:
        return [(source["serviceAccountToken"].get("path", ""), "ServiceAccountToken")]
    return []


def _overlapping(paths: list[tuple[str, str]]) -> Iterator[str]:
    seen: list[tuple[str, str]] = []
    compared = 0
    for path, about in paths:
        compared += len(seen)
        if compared > MOST_COMPARED:
            return
        path = path.rstrip("/")
        for other, owner in seen:
            if path and other and (f"{other}/".startswith(f"{path}/") or f"{path}/".startswith(f"{other}/")):
                yield f"{_quoted(path, about)} with {_quoted(other, owner)}"
        seen.append((path, about))


def _quoted(path: str, about: str) -> str:
    return f'"{path}" ({about})' if about else f'"{path}"'


# -- workloads ---------------------------------------------------------------------------------------------------


def _changed(new: Json, old: Json | None) -> bool:
    """Whether the spec changed: otherwise the warning was given before."""
    return old is None or new["metadata"].get("generation") != old["metadata"].get("generation")


def _workload(*, names_pods: bool) -> Warnings:
    def warnings(new: Json, old: Json | None) -> Iterator[str]:
        if old is None and names_pods:
            yield from _name(new, "Pod names and hostnames")
        if _changed(new, old):
            yield from _template((new.get("spec") or {}).get("template"), "spec.template")

    return warnings


def _stateful_set(new: Json, old: Json | None) -> Iterator[str]:
    spec = new.get("spec") or {}
    if _changed(new, old):
        yield from _template(spec.get("template"), "spec.template")
    for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        path = f"spec.volumeClaimTemplates[{index}]" + ("" if old is None else ".Spec")
        yield from _claim_spec(claim.get("spec") or {}, path)
    if (spec.get("revisionHistoryLimit") or 0) < 0:
        detail = "a negative value retains all historical revisions; a value >= 0 is recommended"
        yield f"spec.revisionHistoryLimit: {detail}"


def _job(new: Json, old: Json | None) -> Iterator[str]:
    if old is None:
        yield from _name(new, "Pod names and hostnames")
    if _changed(new, old):
        yield from _job_spec(new.get("spec") or {}, "spec")


def _cron_job(new: Json, old: Json | None) -> Iterator[str]:
    spec = new.get("spec") or {}
    if old is None:
        yield from _name(new, "Pod names and hostnames")
    if _changed(new, old):
        yield from _job_spec((spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec")
    if old is not None and "TZ" in spec.get("schedule", ""):
        yield (
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "
            "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
        )


def _job_spec(spec: Json, path: str) -> Iterator[str]:
    many = spec.get("completions", 0) > 100_000 and spec.get("parallelism", 0) > 10_000
    if spec.get("completionMode") == "Indexed" and many:
        yield (
            f"{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than "
            "10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        )
    yield from _template(spec.get("template"), f"{path}.template")


def _pod_template(new: Json, old: Json | None) -> Iterator[str]:
    if _changed(new, old):
        yield from _template(new.get("template"), "template")


# -- volumes -----------------------------------------------------------------------------------------------------


def _claim(new: Json, old: Json | None) -> Iterator[str]:
    key = "volume.beta.kubernetes.io/storage-class"
    if key in (new["metadata"].get("annotations") or {}):
        yield f'metadata.annotations[{key}]: deprecated since v1.8; use "storageClassName" attribute instead'
    yield from _claim_spec(new["spec"], "spec")


def _claim_spec(spec: Json, path: str) -> Iterator[str]:
    for kind in ("requests", "limits"):
        quantity = ((spec.get("resources") or {}).get(kind) or {}).get("storage")
        yield from _fraction(quantity, f"{path}.resources.{kind}[storage]")


def _volume(new: Json, old: Json | None) -> Iterator[str]:
    noted, spec = new["metadata"].get("annotations") or {}, new["spec"]
    for key, since, field in (
        ("storage-class", "v1.8", "storageClassName"),
        ("mount-options", "v1.31", "mountOptions"),
    ):
        if f"volume.beta.kubernetes.io/{key}" in noted:
            detail = f'deprecated since {since}; use "{field}" attribute instead'
            yield f"metadata.annotations[volume.beta.kubernetes.io/{key}]: {detail}"
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        yield (
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended "
            "approach is to use dynamic provisioning."
        )
    terms = ((spec.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
    for index, term in enumerate(terms):
        yield from _node_term(term, f"spec.nodeAffinity.required.nodeSelectorTerms[{index}]", values=False)
    for kind in _PERSISTENT:
        if kind in spec:
            shown, detail = _VOLUMES[kind]
            yield f"spec.{shown}: {detail}"


def _storage_class(new: Json, old: Json | None) -> Iterator[str]:
    for index, topology in enumerate(new.get("allowedTopologies") or ()):
        for at, expression in enumerate(topology.get("matchLabelExpressions") or ()):
            key = expression.get("key", "")
            if key in _LABELS:
                yield f"allowedTopologies[{index}].matchLabelExpressions[{at}].key: {_LABELS[key]}"


def _driver(new: Json, old: Json | None) -> Iterator[str]:
    spec, before = new["spec"], (old or {}).get("spec") or {}
    requests = spec.get("tokenRequests")
    if requests and requests != before.get("tokenRequests") and "serviceAccountTokenInSecrets" not in spec:
        yield (
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent "
            "possible logging of tokens in volume attributes"
        )


# -- addresses ---------------------------------------------------------------------------------------------------


def _service(new: Json, old: Json | None) -> Iterator[str]:
    spec = new["spec"]
    key = "service.kubernetes.io/topology-aware-hints"
    if key in (new["metadata"].get("annotations") or {}):
        yield f"annotation {key} is deprecated, please use service.kubernetes.io/topology-mode instead"
    kind = spec.get("type")
    headless = kind == "ClusterIP" and spec.get("clusterIP") == "None"
    if kind != "ExternalName" and not headless:
        yield from _each(_ip, spec.get("clusterIPs"), "spec.clusterIPs")
    outside = spec.get("externalIPs") or ()
    if headless:
        if spec.get("loadBalancerIP"):
            yield "spec.loadBalancerIP is ignored for headless services"
        if outside:
            yield "spec.externalIPs is ignored for headless services"
        if spec.get("sessionAffinity") != "None":
            yield "spec.SessionAffinity is ignored for headless services"
    yield from _each(_ip, outside, "spec.externalIPs")
    if outside and not headless and kind != "ExternalName":
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if spec.get("loadBalancerIP"):
        yield from _ip(spec["loadBalancerIP"], "spec.loadBalancerIP")
    yield from _each(_cidr, spec.get("loadBalancerSourceRanges"), "spec.loadBalancerSourceRanges")
    if kind == "ExternalName" and outside:
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if kind != "ExternalName" and spec.get("externalName"):
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


def _balancers(new: Json, old: Json | None) -> Iterator[str]:
    balancer = (new.get("status") or {}).get("loadBalancer") or {}
    for index, each in enumerate(balancer.get("ingress") or ()):
        if each.get("ip"):
            yield from _ip(each["ip"], f"status.loadBalancer.ingress[{index}]")


def _endpoints(new: Json, old: Json | None) -> Iterator[str]:
    for index, subset in enumerate(new.get("subsets") or ()):
        for key in ("addresses", "notReadyAddresses"):
            yield from _ips_of(subset.get(key), f"subsets[{index}].{key}")


def _slice(new: Json, old: Json | None) -> Iterator[str]:
    if old is None and new.get("addressType") == "FQDN":
        yield "spec.addressType: FQDN endpoints are deprecated"
    labels = new["metadata"].get("labels") or {}
    if str(labels.get("endpointslice.kubernetes.io/managed-by", "")).startswith("endpointslice"):
        return
    for index, endpoint in enumerate(new.get("endpoints") or ()):
        yield from _each(_ip, endpoint.get("addresses"), f"endpoints[{index}].addresses")


def _policy(new: Json, old: Json | None) -> Iterator[str]:
    for side, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(new["spec"].get(side) or ()):
            for at, peer in enumerate(rule.get(peers) or ()):
                block, path = peer.get("ipBlock"), f"spec.{side}[{index}].{peers}[{at}].ipBlock"
                if block is not None:
                    yield from _cidr(block.get("cidr", ""), f"{path}.cidr")
                    yield from _each(_cidr, block.get("except"), f"{path}.except")


def _node(new: Json, old: Json | None) -> Iterator[str]:
    spec = new.get("spec") or {}
    if spec.get("configSource") is not None:
        yield "spec.configSource: the feature is removed"
    if spec.get("externalID"):
        yield "spec.externalID: this field is deprecated, and is unused by Kubernetes"
    yield from _each(_cidr, spec.get("podCIDRs"), "spec.podCIDRs")


def _each(check: Callable[[str, str], Iterator[str]], texts: Iterable[str] | None, path: str) -> Iterator[str]:
    for index, text in enumerate(texts or ()):
        yield from check(text, f"{path}[{index}]")


def _ips_of(items: Iterable[Json] | None, path: str) -> Iterator[str]:
    """Of the addresses that each item has as `ip`."""
    for index, item in enumerate(items or ()):
        yield from _ip(item.get("ip", ""), f"{path}[{index}].ip")


def _ip(address: str, path: str) -> Iterator[str]:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            yield f'{path}: non-standard IP address "{address}" is invalid: use "{found.ipv4_mapped}"'
        elif str(found) != address:
            yield f'{path}: IPv6 address "{address}" should be in RFC 5952 canonical format ("{found}")'


def _cidr(block: str, path: str) -> Iterator[str]:
    try:
        found = ipaddress.ip_interface(block)
    except ValueError:
        return
    if found.ip != found.network.network_address:
        one = f"{found.ip}/{found.max_prefixlen}"
        detail = f'CIDR value "{block}" is ambiguous in this context (should be "{found.network}" or "{one}"?)'
        yield f"{path}: {detail}"
    elif found.version == 6 and str(found) != block:
        yield f'{path}: IPv6 CIDR value "{block}" should be in RFC 5952 canonical format ("{found}")'


# -- the rest ----------------------------------------------------------------------------------------------------


def _ingress(new: Json, old: Json | None) -> Iterator[str]:
    key = "kubernetes.io/ingress.class"
    if old is None and key in (new["metadata"].get("annotations") or {}) and "ingressClassName" not in new["spec"]:
        yield f"annotation \"{key}\" is deprecated, please use 'spec.ingressClassName' instead"


def _account(new: Json, old: Json | None) -> Iterator[str]:
    key = "kubernetes.io/enforce-mountable-secrets"
    had = key in (((old or {}).get("metadata") or {}).get("annotations") or {})
    if not had and key in (new["metadata"].get("annotations") or {}):
        detail = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
        yield f"metadata.annotations[{key}]: {detail}"


def _runtime_class(new: Json, old: Json | None) -> Iterator[str]:
    for key in (new.get("scheduling") or {}).get("nodeSelector") or ():
        if key in _LABELS:
            yield f"scheduling.nodeSelector: {_LABELS[key]}"


_FORMATS: Final = frozenset(
    {"bsonobjectid", "uri", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uuid", "uuid3", "uuid4", "uuid5",
     "isbn", "isbn10", "isbn13", "creditcard", "ssn", "hexcolor", "rgbcolor", "byte", "password", "date", "duration",
     "datetime", "date-time", "int32", "int64", "float", "double", "k8s-short-name", "k8s-long-name"}
)  # fmt: skip


def _definition(new: Json, old: Json | None) -> Iterator[str]:
    """Unknown formats are not checked."""
    for version in new["spec"].get("versions") or ():
        found = _unknown_formats((version.get("schema") or {}).get("openAPIV3Schema") or {})
        for name in sorted(set(found)):
            yield f'unrecognized format "{name}"'


def _unknown_formats(schema: Json) -> Iterator[str]:
    if schema.get("format") and schema["format"] not in _FORMATS:
        yield schema["format"]
    inner = [*(schema.get("properties") or {}).values(), schema.get("items"), schema.get("additionalProperties")]
    for key in ("allOf", "anyOf", "oneOf"):
        inner += schema.get(key) or []
    for each in [*inner, schema.get("not")]:
        if isinstance(each, dict):
            yield from _unknown_formats(each)


_KINDS: Final[dict[tuple[str, str], Warnings]] = {
    ("", "Endpoints"): _endpoints,
    ("", "Node"): _node,
    ("", "PersistentVolume"): _volume,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Pod"): _pod,
    ("", "PodTemplate"): _pod_template,
    ("", "ReplicationController"): _workload(names_pods=True),
    ("", "Service"): _service,
    ("", "ServiceAccount"): _account,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("apps", "DaemonSet"): _workload(names_pods=False),
    ("apps", "Deployment"): _workload(names_pods=True),
    ("apps", "ReplicaSet"): _workload(names_pods=True),
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "CronJob"): _cron_job,
    ("batch", "Job"): _job,
    ("discovery.k8s.io", "EndpointSlice"): _slice,
    ("networking.k8s.io", "Ingress"): _ingress,
    ("networking.k8s.io", "NetworkPolicy"): _policy,
    ("node.k8s.io", "RuntimeClass"): _runtime_class,
    ("storage.k8s.io", "CSIDriver"): _driver,
    ("storage.k8s.io", "StorageClass"): _storage_class,
}
_STATUS: Final[dict[tuple[str, str], Warnings]] = {
    ("", "Pod"): _pod_status,
    ("", "Service"): _balancers,
    ("networking.k8s.io", "Ingress"): _balancers,
}
