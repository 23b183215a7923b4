"""Objects drawn by lot from the facts: grown by optional fields, bent out of shape, and patches of them.

Everything takes its luck as an argument, and walks objects in the order of their keys: two servers that hold the
same object are sent the same request.
"""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from fairlead.apiserver.schema.facts import load

Json = dict[str, Any]
Path = tuple[Any, ...]

NAMES: Final = ("a", "b", "web", "web-1", "example.com", "x.y", "A", "a_b", "-a", "", "a" * 64, "kube-system", "a b")
KEYS: Final = ("app", "tier", "example.com/a", "a/b/c", "", "A_b", "-x", "kubernetes.io/hostname", "k")
QUANTITIES: Final = (
    "1",
    "100m",
    "1Gi",
    "1.5",
    "0",
    "-1",
    "1e3",
    "0.5Gi",
    "abc",
    "",
    1,
    2.5,
    "1Ki",
    "2",
    "1000m",
    "10Mi",
)
VERSIONS: Final = ("v1", "apps/v1", "", "example.com/v1", "a/b/c")
ODD: Final[tuple[Any, ...]] = (
    None, "", {}, [], 0, -1, "x", "..", True, 1.5, [None], {"a": None}, [{}], "A_b/c/d", 2**40, [""], {"": ""}, 70000,
)  # fmt: skip

# What a field of this name may hold, where its type says no more than that it is a string.
WORDS: Final[dict[str, tuple[Any, ...]]] = {
    "name": ("a", "b", "web", "a.b", "A", "", "a" * 64, "x-1"),
    "namespace": ("default", "kube-system", "", "A", "x.y"),
    "key": KEYS,
    "operator": ("In", "NotIn", "Exists", "DoesNotExist", "Equal", "Gt", "Lt", "Odd", ""),
    "effect": ("NoSchedule", "NoExecute", "PreferNoSchedule", "", "Odd"),
    "path": ("/a", "a", "../a", "a/../b", "", "/a:b", "x/y"),
    "mountPath": ("/a", "/b", "a", "", "/a:b"),
    "subPath": ("a", "/a", "../a", ""),
    "subPathExpr": ("$(A)", "a", "/a"),
    "image": ("x", "nginx:1.27", "", " x", "x:latest"),
    "kind": ("Pod", "Deployment", "Node", "", "Secret", "User", "Group", "ServiceAccount", "ClusterRole"),
    "apiVersion": VERSIONS,
    "apiGroup": ("", "apps", "rbac.authorization.k8s.io", "example.com", "snapshot.storage.k8s.io"),
    "topologyKey": ("kubernetes.io/hostname", "zone", "", "a b"),
    "fieldPath": ("metadata.name", "metadata.labels['a']", "spec.nodeName", "status.podIP", "spec.foo", "",
        "metadata.labels"),
    "resource": ("limits.cpu", "requests.memory", "limits.foo", "cpu", "", "pods"),
    "host": ("x", "example.com", "", "*.example.com", "1.2.3.4", "a_b"),
    "ip": ("10.1.2.3", "fe80::1", "x", "", "127.0.0.1", "0.0.0.0", "010.1.2.3"),
    "hostname": ("a", "a.b", "A", ""),
    "protocol": ("TCP", "UDP", "SCTP", "ICMP", "", "tcp"),
    "type": ("Opaque", "RollingUpdate", "Recreate", "OnDelete", "ClusterIP", "NodePort", "Container", "Pod", "Ready",
        "Odd", "", "Localhost", "RuntimeDefault"),
    "status": ("True", "False", "Unknown", "", "maybe"),
    "reason": ("A", "some reason", "", "a:b"),
    "schedule": ("* * * * *", "@hourly", "x", "", "TZ=UTC * * * * *", "61 * * * *"),
    "timeZone": ("Etc/UTC", "Local", "", "Odd/Zone", "Europe/Berlin"),
    "storageClassName": ("a", "", "A_b"),
    "volumeName": ("a", "", "A_b"),
    "claimName": ("a", "", "A_b"),
    "secretName": ("a", "", "A_b"),
    "serviceName": ("a", "", "A_b", "x.y"),
    "serviceAccountName": ("default", "other", "A_b"),
    "driver": ("d.example.com", "D_x", "", "a" * 64),
    "accessModes": ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod", "Odd"),
    "verbs": ("get", "list", "*", "", "create"),
    "apiGroups": ("", "apps", "*"),
    "resources": ("pods", "pods/log", "*", "", "*/*", "pods/*"),
    "apiVersions": ("v1", "*", "V1"),
    "operations": ("CREATE", "UPDATE", "*", "DELETE", "odd"),
    "nonResourceURLs": ("/healthz", "*", "/a/*", "x"),
    "finalizers": ("example.com/a", "orphan", "a", "kubernetes", "foregroundDeletion"),
    "uid": ("u", "", "12345678-1234-1234-1234-123456789012"),
    "externalName": ("x.example.com", "", "A_b", "1.2.3.4"),
    "clusterIP": ("None", "", "x", "10.0.0.77777"),
    "externalIPs": ("1.2.3.4", "x", "127.0.0.1"),
    "loadBalancerIP": ("1.2.3.4", "x"),
    "cidr": ("10.0.0.0/8", "10.0.0.1/8", "x", "fe80::/10"),
    "completionMode": ("Indexed", "NonIndexed", "Odd"),
    "restartPolicy": ("Always", "Never", "OnFailure", "Odd", ""),
    "preemptionPolicy": ("Never", "PreemptLowerPriority", "Odd"),
    "priorityClassName": ("", "system-node-critical", "none"),
    "supplementalGroupsPolicy": ("Merge", "Strict", "Odd"),
    "procMount": ("Default", "Unmasked", "Odd"),
    "add": ("NET_ADMIN", "ALL", "x"),
    "sysctls": ("a.b", "A", "net.core.somaxconn"),
    "defaultMode": (420, 511, 0, 1000, -1),
    "expression": ("true", "1 +", "device.driver == 'x'", "", "self"),
    "url": ("https://x", "http://x", "x", "https://x?y", "https://u@x/", ""),
    "handler": ("h", "H", ""),
    "addressType": ("IPv4", "IPv6", "FQDN", "Odd"),
    "addresses": ("10.1.2.3", "fe80::1", "x", "10.1.2.4"),
    "labelSelector": ("a=b",),
    "provisioner": ("p.example.com", "P_x", "", "a/b"),
    "value": ("x", "", "a b", "v"),
    "values": ("x", "a b", "y", "1", "zz"),
    "nodeName": ("n", "A_b", ""),
    "schedulerName": ("default-scheduler", "", "A b", "fairlead"),
    "policyTypes": ("Ingress", "Egress", "Odd"),
    "pathType": ("Prefix", "Exact", "ImplementationSpecific", "Odd"),
    "sessionAffinity": ("None", "ClientIP", "Odd"),
    "containerName": ("c", "other", ""),
    "podManagementPolicy": ("OrderedReady", "Parallel", "Odd"),
    "concurrencyPolicy": ("Allow", "Forbid", "Replace", "Odd"),
    "scheme": ("HTTP", "HTTPS", "odd"),
    "signal": ("SIGTERM", "SIGODD"),
    "dnsPolicy": ("ClusterFirst", "Default", "None", "ClusterFirstWithHostNet", "Odd"),
    "medium": ("", "Memory", "HugePages", "HugePages-2Mi", "Odd"),
    "whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway", "Odd"),
    "phase": ("Active", "Terminating", "Pending", "Running", "Bound", "Odd", "Succeeded"),
    "serviceAccount": ("default", "other"),
    "holderIdentity": ("me", ""),
    "strategy": ("OldestEmulationVersion", "odd"),
}  # fmt: skip
NUMBERS: Final = (0, 1, 2, 3, 5, 10, 80, 443, -1, 65536, 2**31, 100, 600)
SKIPPED: Final = frozenset({"managedFields", "resourceVersion", "selfLink", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds"})  # fmt: skip


def odd(luck: random.Random) -> Any:
    """A copy, for it may be changed further."""
    return copy.deepcopy(luck.choice(ODD))


def value(luck: random.Random, form: str, name: str, fact: Json, depth: int) -> Any:
    """Something a field of this form could hold, good or bad."""
    if luck.random() < 0.02:
        return odd(luck)
    if form.startswith("[]"):
        count = luck.choice((1, 1, 1, 2, 2, 3)) if luck.random() < 0.96 else 0
        return [value(luck, form[2:], name, fact, depth - 1) for _ in range(count)]
    if form.startswith("{}"):
        quantity = form == "{}quantity"
        keys = ("cpu", "memory", "storage", "example.com/x", "pods", "hugepages-2Mi", "odd") if quantity else KEYS
        return {
            luck.choice(keys): value(luck, form[2:], "value", {}, depth - 1)
            for _ in range(luck.choice((1, 1, 2)) if luck.random() < 0.96 else 0)
        }
    if form.startswith("@"):
        return struct(luck, form[1:], depth - 1)
    if fact.get("e") and luck.random() < 0.9:
        return luck.choice(fact["e"])
    match form:
        case "string":
            return luck.choice(WORDS.get(name, ("x", "a-b", "example.com/a", "", "A_b")))
        case "bool":
            return luck.random() < 0.5
        case "int32" | "int64":
            return luck.choice([n for n in WORDS.get(name, NUMBERS) if isinstance(n, int)] or NUMBERS)
        case "double":
            return luck.choice((0, 1.5, -1, 100))
        case "bytes":
            return luck.choice(("eA==", "", "?", "eHg="))
        case "time" | "microtime":
            return luck.choice(
                ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000001Z", None, "x", "2026-01-02T05:04:05+02:00")
            )
        case "duration":
            return luck.choice(("5s", "1m0s", "x", "90s"))
        case "quantity":
            return luck.choice(QUANTITIES)
        case "intstr":
            return luck.choice((1, 80, "25%", "http", "http-alt", 0, -1, "A_b", "101%", 70000))
        case "raw" | "any":
            return luck.choice(({"a": 1}, {}, {"kind": "X"}))
    return odd(luck)


def struct(luck: random.Random, type_name: str, depth: int) -> Json:
    """A struct with what is required, mostly, and some of the rest."""
    entry = load().types[type_name]
    needed = set(entry.get("required", ()))
    made: Json = {}
    optional = [name for name in sorted(entry["fields"]) if name not in needed and name not in SKIPPED]
    wanted = set(luck.sample(optional, min(len(optional), luck.choice((0, 1, 1, 2, 3))))) if depth > 0 else set()
    if luck.random() < 0.95:
        wanted |= needed
    for name in sorted(wanted):
        fact = entry["fields"].get(name)
        if fact is not None and (depth > -3 or not fact["t"].lstrip("[]{}").startswith("@")):
            made[name] = value(luck, fact["t"], name, fact, depth)
    return made


def structs(thing: Any, type_name: str, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Every place in an object that holds a struct, and its type."""
    if not isinstance(thing, dict):
        return
    yield path, type_name
    for name in sorted(thing):
        fact = load().types[type_name]["fields"].get(name)
        if fact is not None:
            yield from _structs(thing[name], fact["t"], (*path, name))


def _structs(thing: Any, form: str, path: Path) -> Iterator[tuple[Path, str]]:
    if form.startswith("@"):
        yield from structs(thing, form[1:], path)
    elif form.startswith("[]") and isinstance(thing, list):
        for index, each in enumerate(thing):
            yield from _structs(each, form[2:], (*path, index))
    elif form.startswith("{}") and isinstance(thing, dict):
        for key in sorted(thing):
            yield from _structs(thing[key], form[2:], (*path, key))


def at(thing: Any, path: Path) -> Any:
    for step in path:
        thing = thing[step]
    return thing


def grow(luck: random.Random, thing: Json, type_name: str, *, times: int = 1, only: str = "") -> None:
    """Set a field, mostly an unset one, somewhere in the object; `only` keeps to one branch of it."""
    for _ in range(times):
        found = [
            (path, name)
            for path, name in structs(thing, type_name)
            if not only or (path and path[0] == only)
        ]  # fmt: skip
        if not found:
            return
        path, name = luck.choice(found)
        fields = load().types[name]["fields"]
        here = at(thing, path)
        top = () if path else ("kind", "apiVersion", "metadata")
        names = [each for each in sorted(fields) if each not in top and each not in SKIPPED]
        unset = [each for each in names if each not in here]
        if names:
            chosen = luck.choice(unset if unset and luck.random() < 0.8 else names)
            here[chosen] = value(luck, fields[chosen]["t"], chosen, fields[chosen], 2)


# What requests need to arrive at all.
_KEPT: Final[dict[Path, tuple[str, ...]]] = {
    (): ("apiVersion", "kind"),
    ("metadata",): ("name", "namespace", "managedFields", "uid"),
}


def places(thing: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    if isinstance(thing, dict):
        for key in sorted(thing):
            if key not in _KEPT.get(path, ()):
                yield from places(thing[key], (*path, key))
    elif isinstance(thing, list):
        for index, each in enumerate(thing):
            yield from places(each, (*path, index))


def bend(luck: random.Random, thing: Json, *, times: int = 1) -> None:
    """Take something away, double it, put something odd in its place, or add what nobody knows."""
    for _ in range(times):
        found = [path for path in places(thing) if path != ("metadata",)]
        if not found:
            return
        *parents, last = luck.choice(found)
        here = at(thing, tuple(parents))
        match luck.randint(0, 5):
            case 0 | 1:
                del here[last]
            case 2 if isinstance(here, list):
                here.append(json.loads(json.dumps(here[last])))
            case 3 if isinstance(here, dict):
                here[luck.choice(("unknown", "Name", "extra"))] = odd(luck)
            case 4 if isinstance(here, dict) and isinstance(here[last], str):
                here[last] = luck.choice(WORDS.get(str(last), NAMES))
            case _:
                here[last] = odd(luck)


# -- patches -----------------------------------------------------------------------------------------------------


def merge_patch(luck: random.Random, thing: Json, changed: Json) -> Any:
    """What leads from one to the other, sometimes with something odd besides."""
    patch = _difference(thing, changed)
    if luck.random() < 0.1:
        patch[luck.choice(("metadata", "spec", "status", "odd"))] = odd(luck)
    if luck.random() < 0.02:
        return odd(luck)
    return patch


def _difference(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    patch = {key: None for key in old if key not in new}
    for key, each in new.items():
        if key not in old:
            patch[key] = each
        elif old[key] != each:
            patch[key] = _difference(old[key], each)
    return dict(sorted(patch.items()))


def strategic_patch(luck: random.Random, thing: Json, changed: Json, type_name: str) -> Any:
    patch = _strategic(luck, thing, changed, f"@{type_name}", {})
    return odd(luck) if luck.random() < 0.02 else patch


def _strategic(luck: random.Random, old: Any, new: Any, form: str, fact: Json) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        fields = load().types[form[1:]]["fields"] if form.startswith("@") else {}
        patch: Json = {key: None for key in sorted(old) if key not in new}
        for key in sorted(new):
            if old.get(key) != new[key] or key not in old:
                inner = fields.get(key, {})
                patch[key] = _strategic(luck, old.get(key), new[key], inner.get("t", ""), inner)
        if luck.random() < 0.03:
            patch["$patch"] = luck.choice(("replace", "delete", "merge", "odd"))
        if luck.random() < 0.03:
            patch["$retainKeys"] = luck.choice((sorted(new), ["type"], [], "x"))
        return patch
    key = fact.get("mk")
    if isinstance(old, list) and isinstance(new, list) and key and fact.get("ps"):
        return _strategic_list(luck, old, new, form, key)
    return new


def _strategic_list(luck: random.Random, old: list[Any], new: list[Any], form: str, key: str) -> Any:
    known = {json.dumps(each.get(key)): each for each in old if isinstance(each, dict)}
    made: list[Any] = []
    for each in new:
        if not isinstance(each, dict):
            made.append(each)
            continue
        before = known.pop(json.dumps(each.get(key)), None)
        if before == each and luck.random() < 0.7:
            continue
        inner = each if before is None else _strategic(luck, before, each, form[2:], {})
        made.append({**inner, **({key: each[key]} if key in each and luck.random() < 0.95 else {})})
    made += [{"$patch": "delete", key: each.get(key)} for each in known.values()]
    if luck.random() < 0.05:
        made.append({"$patch": luck.choice(("replace", "delete", "odd"))})
    return made


def json_patch(luck: random.Random, thing: Json, changed: Json) -> Any:
    if luck.random() < 0.03:
        return odd(luck)
    found = list(places(changed)) or [("metadata",)]
    made = []
    for _ in range(luck.choice((1, 1, 2, 3))):
        path = luck.choice(found)
        pointer = _pointer(path)
        if luck.random() < 0.1:
            pointer += luck.choice(("/none", "/-", "/0", "/~2", ""))
        step: Json = {"op": luck.choice(("add", "replace", "remove", "test", "copy", "move", "add", "replace"))}
        step["path"] = pointer
        if step["op"] in ("copy", "move"):
            step["from"] = _pointer(luck.choice(found))
        if step["op"] in ("add", "replace", "test"):
            step["value"] = at(changed, path) if luck.random() < 0.6 else odd(luck)
        if luck.random() < 0.03:
            step.pop(luck.choice(sorted(step)))
        if luck.random() < 0.01:
            step["op"] = "twist"
        made.append(step)
    return made


def _pointer(path: Path) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def part(luck: random.Random, thing: Any, keep: float, keys: frozenset[str] = frozenset({"name", "kind",
    "apiVersion"})) -> Any:  # fmt: skip
    """Some of an object, as somebody who cares for some of its fields would apply it."""
    if isinstance(thing, dict):
        return {
            key: part(luck, each, keep, keys)
            for key, each in sorted(thing.items())
            if key in keys or luck.random() < keep
        }
    if isinstance(thing, list):
        return [part(luck, each, keep, keys) for each in thing if luck.random() < (1 + keep) / 2]
    return thing


Patch = Callable[[random.Random, Json, Json], Any]
