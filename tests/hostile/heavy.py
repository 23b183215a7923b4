"""Requests below the body limit that ask for as much work as they can: long lists, large numbers, patterns, copies."""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
THINGS = "/apis/heavy.example.com/v1/namespaces/default/things"
JSON, YAML = "application/json", "application/yaml"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
OPERATIONS, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
Json = dict[str, Any]


class Asked(NamedTuple):
    name: str
    method: str
    path: str
    content: str
    body: bytes


def definition() -> Json:
    """A kind whose rules a backtracking engine, or one that counts nothing, would not survive."""
    schema = {"type": "object", "properties": {
        "text": {"type": "string", "pattern": "^(a+)+$"},
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
    }}  # fmt: skip
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.heavy.example.com"},
        "spec": {"group": "heavy.example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                 "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]},
    }  # fmt: skip


def requests(size: int) -> Iterator[Asked]:
    """One of each, with bodies of about `size` bytes where size is what makes it heavy; none is kept."""
    for name, path, make in _LISTS:
        yield Asked(name, "POST", f"{path}?dryRun=All", JSON, _grown(make, size))
    for name, content, make in _PATCHES:
        query = "dryRun=All&fieldManager=m" + ("&force=true" if content == APPLY else "")
        yield Asked(name, "PATCH", f"{MAPS}/c?{query}", content, _grown(make, size))
    steps = [{"op": "add", "path": "/data/x", "value": "y" * 100}]
    steps += [{"op": "copy", "from": "/data", "path": f"/data/k{number}"} for number in range(30)]
    yield Asked("copies of copies", "PATCH", f"{MAPS}/c?dryRun=All", OPERATIONS, json.dumps(steps).encode())
    for quantity in ("1e3000000", "1e999999999", "1e-999999999", "9" * 5000):
        yield Asked(f"quantity {quantity[:12]}", "POST", f"{PODS}?dryRun=All", JSON,
                    json.dumps(_pod(resources={"requests": {"cpu": quantity}})).encode())  # fmt: skip
    head = {"apiVersion": "heavy.example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}
    yield Asked("a pattern", "POST", f"{THINGS}?dryRun=All", JSON,
                json.dumps({**head, "text": "a" * (size // 2) + "!"}).encode())  # fmt: skip
    many = [f"i{number}" for number in range(size // 12)]
    yield Asked("a set", "POST", f"{THINGS}?dryRun=All", JSON, json.dumps({**head, "set": many}).encode())
    # YAML takes its time, but nobody else's.
    lines = "".join(f"  k{number}: v\n" for number in range(min(size, 100_000) // 11))
    yield Asked("YAML", "POST", f"{MAPS}?dryRun=All", YAML, f"metadata:\n  name: y\ndata:\n{lines}".encode())
    yield Asked("a number", "POST", MAPS, JSON, b'{"metadata":{"name":"n","generation":' + b"9" * size + b"}}")
    version = {"metadata": {"name": "c", "resourceVersion": "9" * size}}
    yield Asked("a version", "PUT", f"{MAPS}/c", JSON, json.dumps(version).encode())


def _grown(make: Callable[[int], Any], size: int) -> bytes:
    each = len(json.dumps(make(200))) / 200
    return json.dumps(make(max(1, int(size / each * 0.95)))).encode()


def _pod(**container: Any) -> Json:
    return {"metadata": {"name": "heavy"}, "spec": {"containers": [{"name": "c", "image": "i", **container}]}}


def _map(count: int, name: str = "n", **metadata: Any) -> Json:
    return {"metadata": {"name": name, **metadata}}


_LISTS: tuple[tuple[str, str, Callable[[int], Any]], ...] = (
    ("env", PODS, lambda n: _pod(env=[{"name": f"E{i}", "value": "x"} for i in range(n)])),
    ("ports", PODS, lambda n: _pod(ports=[{"containerPort": 1, "hostPort": i % 65535 + 1} for i in range(n)])),
    ("claims", PODS, lambda n: _pod(resources={"claims": [{"name": f"c{i}"} for i in range(n)]})),
    ("requests", PODS, lambda n: _pod(resources={"requests": {f"e.com/r{i}": "1" for i in range(n)}})),
    ("containers", PODS, lambda n: {"metadata": {"name": "heavy"}, "spec": {
        "containers": [{"name": f"c{i}", "image": "i"} for i in range(n)]}}),
    ("volumes", PODS, lambda n: {"metadata": {"name": "heavy"}, "spec": {**_pod()["spec"],
        "volumes": [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": f"c{i}"}} for i in range(n)]}}),
    ("finalizers", MAPS, lambda n: _map(n, finalizers=[f"a.b/f{i}" for i in range(n)])),
    ("owners", MAPS, lambda n: _map(n, ownerReferences=[
        {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": f"{i}"} for i in range(n)])),
    ("labels", MAPS, lambda n: _map(n, labels={f"k{i}": "v" for i in range(n)})),
    ("data", MAPS, lambda n: {**_map(n), "data": {f"k{i}": "v" for i in range(n)}}),
    ("unknown fields", MAPS, lambda n: {**_map(n), **{f"u{i}": 1 for i in range(n)}}),
    ("scopes", "/api/v1/namespaces/default/resourcequotas",
     lambda n: {**_map(n), "spec": {"scopes": [f"S{i}" for i in range(n)]}}),
    ("tolerations", PODS, lambda n: {"metadata": {"name": "heavy"}, "spec": {**_pod()["spec"],
        "tolerations": [{"key": f"k{i}", "operator": "Exists"} for i in range(n)]}}),
    ("device requests", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
     lambda n: {**_map(n), "spec": {"devices": {"config": [{"requests": [f"r{i}" for i in range(n)]}]}}}),
    ("rules", "/apis/rbac.authorization.k8s.io/v1/clusterroles", lambda n: {**_map(n), "rules": [
        {"verbs": ["get"], "apiGroups": [f"g{i}"], "resources": ["pods"]} for i in range(n)]}),
    ("limits", "/api/v1/namespaces/default/limitranges", lambda n: {**_map(n), "spec": {
        "limits": [{"type": "Container", "max": {f"e.com/r{i}": "1" for i in range(n)}}]}}),
    ("spread constraints", PODS, lambda n: {"metadata": {"name": "heavy"}, "spec": {**_pod()["spec"],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": f"k{i}", "whenUnsatisfiable": "DoNotSchedule"} for i in range(n)]}}),
    ("a long name", MAPS, lambda n: _map(n, name="x" * n)),
)  # fmt: skip
_PATCHES: tuple[tuple[str, str, Callable[[int], Any]], ...] = (
    ("finalizers merged", MERGE, lambda n: {"metadata": {"finalizers": [f"a.b/f{i}" for i in range(n)]}}),
    ("finalizers patched", STRATEGIC, lambda n: {"metadata": {"finalizers": [f"a.b/f{i}" for i in range(n)]}}),
    ("an order", STRATEGIC, lambda n: {"metadata": {
        "finalizers": [f"a.b/f{i}" for i in range(n)],
        "$setElementOrder/finalizers": [f"a.b/f{i}" for i in range(n)]}}),
    ("owners applied", APPLY, lambda n: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "c", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": f"{i}"}
                                         for i in range(n)]}}),
    ("applied", APPLY, lambda n: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"},
                                  "data": {f"k{i}": "v" for i in range(n)}}),
)  # fmt: skip
