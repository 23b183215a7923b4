"""A container's environment and command line, with everything they refer to filled in.

Pure: `nodes.contents` fetches what is referred to and hands it in. What is missing and not optional raises
`Missing` with the sentence the kubelet would say.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from fairlead.model.quantity import Quantity, nanos
from fairlead.nodes.spec import (
    ConfigMap,
    Container,
    EnvVar,
    KubeletPod,
    PersistentVolume,
    ResourceSelector,
    Secret,
    VolumeMount,
)

# Linux starts no process with more (a quarter of its usual stack).
MOST_BYTES: Final = 2 << 20
_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


class Missing(Exception):
    """Something that a container or volume refers to is not there; it may come."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What references are filled from. A name with None was looked for and not found."""

    config_maps: Mapping[str, ConfigMap | None] = field(default_factory=dict)
    secrets: Mapping[str, Secret | None] = field(default_factory=dict)
    tokens: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """Service-account tokens by audience and lifetime."""
    claims: Mapping[str, PersistentVolume | str] = field(default_factory=dict)
    """What each claim is bound to, or why it has nothing yet."""
    services: Mapping[str, str] = field(default_factory=dict)
    """Variables that tell the addresses of Services."""
    pod_ip: str = ""
    host_ip: str = ""
    allocatable: Mapping[str, Quantity] = field(default_factory=dict)


def container_env(pod: KubeletPod, container: Container, sources: Sources) -> dict[str, str]:
    env = dict(sources.services)
    size = 0
    for whole in container.env_from or ():
        if whole.config_map_ref is not None:
            found = config_map_keys(sources, whole.config_map_ref.name, optional=whole.config_map_ref.optional)
        elif whole.secret_ref is not None:
            found = secret_keys(sources, whole.secret_ref.name, optional=whole.secret_ref.optional)
        else:
            continue
        for key, content in (found or {}).items():
            if _NAME.fullmatch(whole.prefix + key):
                env[whole.prefix + key] = content.decode("utf-8", "replace")
                size = _bounded(size + len(content), "environment")
    for variable in container.env or ():
        value = _value(pod, container, variable, env, sources)
        if value is not None:
            env[variable.name] = value
            size = _bounded(size + len(value), "environment")
    return env


def _bounded(size: int, what: str) -> int:
    """Variables may double those before them: a small pod must not fill the memory of all."""
    if size > MOST_BYTES:
        raise Missing(f"the {what} is larger than {MOST_BYTES} bytes, with which no process can be started")
    return size


def _value(
    pod: KubeletPod, container: Container, variable: EnvVar, env: Mapping[str, str], sources: Sources
) -> str | None:
    source = variable.value_from
    if source is None:
        return expand(variable.value or "", env, what="environment")
    if source.field_ref is not None:
        return pod_field(pod, source.field_ref.field_path, sources)
    if source.resource_field_ref is not None:
        return resource_field(pod, container, source.resource_field_ref, sources)
    if (selector := source.config_map_key_ref) is not None:
        keys = config_map_keys(sources, selector.name, optional=selector.optional)
        what = f"key {selector.key} in ConfigMap {pod.metadata.namespace}/{selector.name}"
    elif (selector := source.secret_key_ref) is not None:
        keys = secret_keys(sources, selector.name, optional=selector.optional)
        what = f"key {selector.key} in Secret {pod.metadata.namespace}/{selector.name}"
    else:
        return None
    if keys is not None and selector.key in keys:
        return keys[selector.key].decode("utf-8", "replace")
    if selector.optional:
        return None
    raise Missing(f"couldn't find {what}")


def config_map_keys(sources: Sources, name: str, *, optional: bool) -> dict[str, bytes] | None:
    found = sources.config_maps.get(name)
    if found is None:
        if optional:
            return None
        raise Missing(f'configmap "{name}" not found')
    text = {key: value.encode() for key, value in (found.data or {}).items()}
    return text | {key: _decoded(value) for key, value in (found.binary_data or {}).items()}


def secret_keys(sources: Sources, name: str, *, optional: bool) -> dict[str, bytes] | None:
    found = sources.secrets.get(name)
    if found is None:
        if optional:
            return None
        raise Missing(f'secret "{name}" not found')
    return {key: _decoded(value) for key, value in (found.data or {}).items()}


def _decoded(value: str) -> bytes:
    try:
        return base64.b64decode(value)
    except (binascii.Error, ValueError):
        return value.encode()


def pod_field(pod: KubeletPod, path: str, sources: Sources) -> str:
    """A field of the pod by its path, as the downward API names them."""
    if (read := _FIELDS.get(path)) is not None:
        return read(pod, sources)
    if found := _SUBSCRIPT.fullmatch(path):
        values = pod.metadata.labels if found[1] == "labels" else pod.metadata.annotations
        return values.get(found[2], "")
    raise Missing(f"unsupported fieldPath: {path}")


def _listed(values: Mapping[str, str]) -> str:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'

    return "\n".join(f"{key}={quoted(values[key])}" for key in sorted(values))


_FIELDS: Final[Mapping[str, Callable[[KubeletPod, Sources], str]]] = {
    "metadata.name": lambda pod, _: pod.metadata.name,
    "metadata.namespace": lambda pod, _: pod.metadata.namespace,
    "metadata.uid": lambda pod, _: pod.metadata.uid,
    "metadata.labels": lambda pod, _: _listed(pod.metadata.labels),
    "metadata.annotations": lambda pod, _: _listed(pod.metadata.annotations),
    "spec.nodeName": lambda pod, _: pod.spec.node_name,
    "spec.serviceAccountName": lambda pod, _: pod.spec.service_account_name,
    "status.podIP": lambda _, sources: sources.pod_ip,
    "status.podIPs": lambda _, sources: sources.pod_ip,
    "status.hostIP": lambda _, sources: sources.host_ip,
    "status.hostIPs": lambda _, sources: sources.host_ip,
}


def resource_field(pod: KubeletPod, container: Container | None, selector: ResourceSelector, sources: Sources) -> str:
    """A request or limit, divided and rounded up; a limit that is not set is what the node has to give."""
    if selector.container_name:
        container = pod.container(selector.container_name)
    if container is None:
        raise Missing(f"resourceFieldRef: no container named {selector.container_name!r}")
    side, _, name = selector.resource.partition(".")
    given = (container.resources.limits if side == "limits" else container.resources.requests) or {}
    amount: Quantity | None = given.get(name)
    if amount is None:
        amount = sources.allocatable.get(name, "0") if side == "limits" else "0"
    divisor = nanos(selector.divisor) or 10**9
    return str(-(-nanos(amount) // divisor))


def sub_path(mount: VolumeMount, env: Mapping[str, str]) -> str:
    """The part of its volume that a mount shows, with variables filled in; the kubelet's sentence where it is bad."""
    path = mount.sub_path
    if mount.sub_path_expr:
        unset: set[str] = set()
        path = expand(mount.sub_path_expr, env, unset)
        if unset:
            raise Missing(f"missing value for {', '.join(sorted(unset))}")
    if path.startswith("/"):
        raise Missing(f"error SubPath `{path}` must not be an absolute path")
    if ".." in path.split("/"):
        raise Missing(f"unable to provision SubPath `{path}`: must not contain '..'")
    return path


def expand_all(words: tuple[str, ...] | None, env: Mapping[str, str]) -> tuple[str, ...] | None:
    """The words of a command line."""
    made, size = [], 0
    for word in words or ():
        made.append(expand(word, env))
        size = _bounded(size + len(made[-1]), "command line")
    return None if words is None else tuple(made)


def expand(text: str, env: Mapping[str, str], unset: set[str] | None = None, *, what: str = "command line") -> str:
    """`$(NAME)` becomes the variable's value; one that is unknown stays as it is; `$$` is a dollar.

    Names that have no value, or an empty one, are added to `unset`.
    """
    if "$" not in text:
        return text
    parts, at, size = [], 0, 0
    last = text.rfind(")")
    while at < len(text):
        dollar = text.find("$", at)
        if dollar < 0 or dollar + 1 == len(text):
            parts.append(text[at:])
            break
        parts.append(text[at:dollar])
        following = text[dollar + 1]
        if following == "$":
            parts.append("$")
            at = dollar + 2
            continue
        if following != "(" or last < dollar + 2:
            parts.append("$" + following)
            at = dollar + 2
            continue
        end = text.index(")", dollar + 2)
        name = text[dollar + 2 : end]
        if unset is not None and not env.get(name):
            unset.add(name)
        parts.append(env.get(name, f"$({name})"))
        size = _bounded(size + len(parts[-1]), what)
        at = end + 1
    return "".join(parts)
