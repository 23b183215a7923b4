"""Manifests and snapshots from files: read, validated as by the API server, and converted to the engine's structs.

A mistake names the file, the document in it and the field.
"""

import copy
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from fairlead.apiserver.schema.defaults import apply_defaults
from fairlead.apiserver.schema.shape import DecodeError, Schema, decode, for_kind, kind_label
from fairlead.apiserver.validation.registry import validate_create
from fairlead.engine.table import NodeTable
from fairlead.model.node import Node
from fairlead.model.pod import SchedulerPod
from fairlead.model.quantity import QuantityError
from fairlead.placement.spec import RELATED_KINDS

# A manifest that asks for more is more likely a slip.
MOST_PODS: Final = 100_000
_TEMPLATED = {"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController"}


class BadInput(Exception):
    """A file that cannot be used; the message says where and what."""


@dataclass(frozen=True, slots=True)
class Document:
    where: str
    body: dict[str, Any]


def documents(path: Path) -> Iterator[Document]:
    """Every object of a YAML or JSON file (`-`: standard input); lists are opened."""
    source = "standard input" if str(path) == "-" else str(path)
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
    except (OSError, UnicodeDecodeError) as problem:
        raise BadInput(f"{source}: cannot be read: {problem}") from None
    try:
        parts = [msgspec.json.decode(text)] if path.suffix == ".json" else list(yaml.safe_load_all(text))
    except (msgspec.DecodeError, yaml.YAMLError) as problem:
        raise BadInput(f"{source}: neither YAML nor JSON: {problem}") from None
    except RecursionError:
        raise BadInput(f"{source}: is nested too deeply") from None
    for number, part in enumerate(parts, 1):
        where = f"{source}, document {number}" if len(parts) > 1 else source
        if part is None:
            continue
        if not isinstance(part, dict):
            raise BadInput(f"{where}: must be an object with apiVersion and kind, not {type(part).__name__}")
        if str(part.get("kind")).endswith("List") and isinstance(part.get("items"), list):
            for at, item in enumerate(part["items"]):
                if not isinstance(item, dict):
                    raise BadInput(f"{where}, item {at + 1}: must be an object, not {type(item).__name__}")
                yield Document(f"{where}, item {at + 1}", item)
        else:
            yield Document(where, part)


def checked(document: Document, *, is_new: bool) -> dict[str, Any]:
    """The object as the API server would store it; BadInput with the server's message where it would refuse it."""
    body = document.body
    kind, api_version = body.get("kind"), body.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(api_version, str):
        raise BadInput(f"{document.where}: apiVersion and kind are required")
    group, _, version = api_version.rpartition("/")
    schema = for_kind(group, version, kind)
    if schema is None:
        raise BadInput(f"{document.where}: {api_version} {kind} is not a kind known here")
    try:
        found = decode(schema, body, kind_label(kind, version))
    except DecodeError as problem:
        field = _culprit(schema, body)
        raise BadInput(f"{document.where}: {field + ': ' if field else ''}{problem}") from None
    if is_new and found.unknown:
        raise BadInput(f"{document.where}: unknown field {', '.join(found.unknown)}")
    value: dict[str, Any] = found.value
    value["apiVersion"], value["kind"] = api_version, kind
    metadata = value.setdefault("metadata", {})
    if is_new:
        metadata.setdefault("namespace", "default")
        apply_defaults(group, version, kind, value)
        wrong = validate_create(group, version, kind, value)
        if wrong:
            mistakes = "; ".join(f"{each.field}: {each.message}" for each in wrong[:5])
            raise BadInput(f"{document.where}: {mistakes}")
    return value


def _culprit(schema: Schema, body: dict[str, Any]) -> str:
    """The field without which the object would decode: the server's own text does not always name it."""
    for path in _leaves(body):
        without = copy.deepcopy(body)
        holder: Any = without
        for step in path[:-1]:
            holder = holder[step]
        del holder[path[-1]]
        try:
            decode(schema, without, "")
        except DecodeError:
            continue
        return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    return ""


def _leaves(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths of everything below a value, the deepest first."""
    steps: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        steps = value.items()
    elif isinstance(value, list):
        steps = enumerate(value)
    for step, inner in steps:
        yield from _leaves(inner, (*at, step))
        yield (*at, step)


def pods_from(path: Path, nodes: Sequence[Node]) -> list[SchedulerPod]:
    """The pods a manifest asks for: as they are, as many as a workload's replicas, or one for each node that a
    DaemonSet runs on, in order.
    """
    pods: list[SchedulerPod] = []
    for document in documents(path):
        body = checked(document, is_new=True)
        kind, name = body["kind"], body["metadata"].get("name", "")
        if kind == "Pod":
            pods.append(_pod(document, body, name))
        elif kind in _TEMPLATED:
            pods += _from_template(document, body, nodes)
        else:
            known = ", ".join(sorted({"Pod", *_TEMPLATED}))
            raise BadInput(f"{document.where}: kind {kind} has no pods to place; use one of {known}")
    if not pods:
        raise BadInput(f"{path}: holds no pods")
    return pods


def _from_template(document: Document, body: dict[str, Any], nodes: Sequence[Node]) -> Iterator[SchedulerPod]:
    spec, name, kind = body["spec"], body["metadata"]["name"], body["kind"]
    owner = {"apiVersion": body["apiVersion"], "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    for number, pod_spec in enumerate(_pod_specs(document, kind, name, spec, nodes)):
        metadata = {
            **copy.deepcopy(spec["template"].get("metadata") or {}),
            "name": f"{name}-{number}",
            "namespace": body["metadata"]["namespace"],
            "ownerReferences": [owner],
        }
        yield _pod(document, {"metadata": metadata, "spec": copy.deepcopy(pod_spec)}, f"{name}-{number}")


def _pod_specs(
    document: Document, kind: str, name: str, spec: dict[str, Any], nodes: Sequence[Node]
) -> Iterable[dict[str, Any]]:
    """The spec of each pod that the workload's controller would create."""
    template = spec["template"]["spec"]
    if kind == "DaemonSet":
        # Here, because controllers bring the client of a cluster with them, which placing from files does not need.
        from fairlead.local.controllers.daemonsets import nodes_for, spec_for

        found = nodes_for(template, nodes)
        if not found:
            raise BadInput(f"{document.where}: DaemonSet {name} runs on none of the {len(nodes)} nodes of the snapshot")
        return (spec_for(node, template) for node in found)
    count = spec.get("parallelism", 1) if kind == "Job" else spec.get("replicas", 1)
    if count > MOST_PODS:
        raise BadInput(f"{document.where}: asks for {count} pods; at most {MOST_PODS} are placed at once")
    return repeat(template, count)


def _pod(document: Document, body: dict[str, Any], name: str) -> SchedulerPod:
    body["metadata"] = {**body["metadata"], "uid": f"{document.where}/{name}"}
    try:
        return msgspec.convert(body, SchedulerPod)
    except msgspec.ValidationError as problem:
        raise BadInput(f"{document.where}: {problem}") from None


def table_from(path: Path) -> NodeTable:
    """The cluster in a `kubectl get nodes,pods -A -o json` dump; other kinds that decisions depend on are read too."""
    table = NodeTable()
    structs: dict[str, type[Any]] = {kind.kind: kind.struct for kind in RELATED_KINDS}
    structs |= {"Node": Node, "Pod": SchedulerPod}
    found: dict[str, list[tuple[str, Any]]] = {}
    for document in documents(path):
        struct = structs.get(str(document.body.get("kind")))
        if struct is None:
            continue  # a dump may hold more than placement asks about
        try:
            read = msgspec.convert(document.body, struct)
        except msgspec.ValidationError as problem:
            raise BadInput(f"{document.where}: {problem}") from None
        found.setdefault(document.body["kind"], []).append((document.where, read))
    if not found.get("Node"):
        raise BadInput(f"{path}: holds no nodes; make one with: kubectl get nodes,pods -A -o json > {path.name}")
    nodes, pods = found.pop("Node"), found.pop("Pod", [])
    for objects in found.values():
        table.catalog.set_all(each for _, each in objects)
    for add, objects in ((table.add_node, nodes), (table.add_pod, pods)):
        for where, each in objects:
            try:
                add(each)
            except QuantityError as problem:
                raise BadInput(f"{where}: {problem}") from None
    return table
