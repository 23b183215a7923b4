"""Bad input: every served path, verb and content type with whatever a client may get wrong. `scripts/soak bad_input`.

The short form is tests/contract/test_bad_input.py. An answer must be one that Kubernetes gives: never a 500 of our
own making, never a dead connection, a Status where there is an object to speak of; and memory stays where it was.
Nobody waits long for somebody else's request, however much work it asks for.
"""

import base64
import copy
import http.client
import json
import os
import random
import re
import ssl
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from bench.store import memory_mb
from fairlead.apiserver.schema.facts import load
from tests.contract.served import Served, served
from tests.hostile import heavy

MEMORY_MB = 500.0
# How long one request may make others wait.
LONGEST_WAIT_S = 0.5
# How much of a processor one request may take: in proportion to its size, and so much for any.
LONGEST_WORK_S, WORK_S_PER_MB = 2.0, 6.0
# What the real server answers with a 500 as well: each is met by a story of the contract, but for the last, for which a
# range must be used up (232 Services on a real server with a /24).
KNOWN_500_TEXTS = (
    r"resourceVersion should not be set on objects to be created",
    r"strconv\.ParseUint: parsing",
    r"failed to create typed patch object",
    r"failed to convert new object .* to proper version: unable to convert unstructured object",
    r"target\.(?:kind|name): ",
    r"list element types are not identical",
    r"expected a \[\]interface",
    r"but received a",
    r"unable to find api field",
    r"unknown patch type",
    r"does not contain declared merge key",
    r"This pod has more than one PodDisruptionBudget",
    r"failed calling webhook",
    r"Object 'apiVersion' is missing in",
    r"failed to allocate a (?:serviceIP for Service .*|nodePort): range is full",
)
KNOWN_500 = re.compile("|".join(KNOWN_500_TEXTS))
TYPES = (
    "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/json-patch+json",
    "application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml",
    "text/plain", "application/xml", "multipart/form-data; boundary=x", "", "application/json; charset=x", "a/b/c",
)  # fmt: skip
ACCEPTS = (
    "application/json", "*/*", "", "text/html", "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json;as=;v=;g=", ";;;,,,", "x" * 500,
    "application/vnd.kubernetes.protobuf", "application/json;q=2", "application/yaml",
)  # fmt: skip
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}},
    "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}],
                             "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
             "tolerations": [{"key": "k", "operator": "Exists"}], "volumes": [{"name": "v", "emptyDir": {}}]},
}  # fmt: skip
DEPLOYMENT = {
    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
    "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
             "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD["spec"]}},
}  # fmt: skip
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.example.com"},
    "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
             "versions": [{"name": "v1", "served": True, "storage": True,
                           "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                               "spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}}}}]},
}  # fmt: skip
SAMPLES: tuple[Any, ...] = (
    POD, DEPLOYMENT, DEFINITION,
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}},
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}},
    {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}},
    {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": POD["spec"]}}},
    {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": "1"}}},
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "space"}},
    {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}},
    {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}, "deleteOptions": {}},
    {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 2}},
    {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": {"uid": "x"}},
    {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"audiences": ["a"]}},
    {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}, "user": "u"}},
    {"spec": {"token": "x.y.z"}},
    {"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}], "metadata": {"name": "r"}},
    {"metadata": {"name": "w"}, "webhooks": [{"name": "a.b.c", "clientConfig": {"url": "https://127.0.0.1:1/"},
                                               "rules": [], "sideEffects": "None", "failurePolicy": "Ignore",
                                               "admissionReviewVersions": ["v1"]}]},
    [{"op": "add", "path": "/metadata/labels/x", "value": "y"}, {"op": "remove", "path": "/spec/containers/0"}],
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 1e308, 2**63, -(2**63) - 1, 10**40, "", "x", "\u0000", "x" * 5000, [], {}, [[]], [None],
    {"": ""}, {"$patch": "delete"}, {"a": {"b": None}}, "1Gi", "%", "-1", "🦖", "\ud800", ["a", "a"], "../..",
)  # fmt: skip
SELECTORS = (
    "a", "a=", "=a", "a in", "a in (", "a in (b,)", "(", ")", "!", "!!a", "a>b", "a>1", ",", ",,", "a==b==c", "%00",
    "a notin (b),c,!d", "x" * 2000, "a=" + "b" * 100, "é=1", "metadata.name=x", "a\\=b", "spec.nodeName=", "\\",
)  # fmt: skip
NUMBERS = ("0", "1", "-1", "abc", "99999999999999999999999", "1.5", "", " 1", "0x10", "１", "1e3")


@dataclass
class Judge:
    statuses: Counter[int] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def look(self, asked: str, method: str, status: int, body: bytes) -> None:
        self.statuses[status] += 1
        if 200 <= status < 500 and status != 404 and (status < 400 or method == "HEAD" or self._is_status(body)):
            return
        text = body.decode(errors="replace")
        if status == 404 and (method == "HEAD" or not text or text == "404 page not found\n" or self._is_status(body)):
            return
        if status == 501 and (method == "HEAD" or self._is_status(body)):
            return
        if status == 504 and "Too large resource version" in text:
            return
        if status == 500 and KNOWN_500.search(text) and "bug in Fairlead" not in text:
            return
        self.problems.append(f"{status} {asked}: {text[:300]}")

    @staticmethod
    def _is_status(body: bytes) -> bool:
        try:
            found = json.loads(body)
        except ValueError:
            return body.startswith(b"400")  # what no HTTP server reads any further
        return isinstance(found, dict) and found.get("kind") == "Status" and found.get("status") == "Failure"


class Fuzzer:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._paths = [
            (resource.path, resource.plural, resource.namespaced, [each.name for each in resource.subresources])
            for resource in load().resources
        ]
        self._bodies: list[Callable[[], bytes]] = [
            self._mutated, self._mutated, self._mutated, self._mutated, self._broken, self._noise, self._deep,
            self._yaml, self._protobuf, self._wide, lambda: b"", lambda: b"null", lambda: b"[]", lambda: b'"x"',
        ]  # fmt: skip

    def request(self, number: int) -> tuple[str, str, bytes, dict[str, str]]:
        return self._aimed() if self._rng.random() < 0.6 else self._blind(number)

    def _aimed(self) -> tuple[str, str, bytes, dict[str, str]]:
        """Nearly right: the right place, verb and type, and an object of the kind with something wrong about it."""
        rng = self._rng
        sample = rng.choice([each for each in SAMPLES if isinstance(each, dict)])
        path, name = self._place(sample), (sample.get("metadata") or {}).get("name", "x")
        match rng.randrange(6):
            case 0 | 1:
                return "POST", path + self._query(), self._mutated(sample), {"Content-Type": "application/json"}
            case 2:
                body = self._mutated(sample)
                return "PUT", f"{path}/{name}{self._query()}", body, {"Content-Type": "application/json"}
            case 3:
                kind = rng.choice(TYPES[4:7])
                query = self._query() or "?"
                more = "&fieldManager=f&force=true" if "apply" in kind else ""
                return "PATCH", f"{path}/{name}{query}{more}", self._mutated(sample), {"Content-Type": kind}
            case 4:
                pointers = ("", "/", "/metadata/labels/x", "/spec/containers/0/name", "/metadata/name", "/spec", "/a/b",
                            "/metadata/finalizers/-", "/kind", "/spec/containers/99", "/~0~1", "x")  # fmt: skip
                steps = [
                    {"op": rng.choice(("add", "remove", "replace", "move", "copy", "test", "x")),
                     "path": rng.choice(pointers), "from": rng.choice(pointers), "value": rng.choice(ODD)}
                    for _ in range(rng.randrange(1, 4))
                ]  # fmt: skip
                body = json.dumps(steps).encode()
                return "PATCH", f"{path}/{name}{self._query()}", body, {"Content-Type": "application/json-patch+json"}
            case _:
                accept = {"Accept": rng.choice(ACCEPTS)}
                return (
                    rng.choice(("GET", "DELETE")),
                    f"{path}{rng.choice(('', '/' + name))}{self._query()}",
                    b"",
                    accept,
                )

    def _place(self, sample: dict[str, Any]) -> str:
        kind = sample.get("kind", "")
        if kind in ("Binding", "Eviction"):
            return f"/api/v1/namespaces/default/pods/p/{kind.lower()}"
        if kind == "Scale":
            return "/apis/apps/v1/namespaces/default/deployments/d/scale"
        if kind == "TokenRequest":
            return "/api/v1/namespaces/default/serviceaccounts/default/token"
        group, _, version = sample.get("apiVersion", "").rpartition("/")
        resource = load().by_kind.get((group, version, kind))
        if resource is None:
            return self._path()
        return resource.path + ("/namespaces/default" if resource.namespaced else "") + f"/{resource.plural}"

    def _blind(self, number: int) -> tuple[str, str, bytes, dict[str, str]]:
        rng = self._rng
        method = rng.choice(METHODS)
        headers = {}
        if kind := rng.choice(TYPES):
            headers["Content-Type"] = kind
        if accept := rng.choice(ACCEPTS):
            headers["Accept"] = accept
        body = b"" if method in ("GET", "HEAD", "OPTIONS") else rng.choice(self._bodies)()
        if number % 500 == 499:
            method, body = "POST", b'{"data":{"a":"' + b"x" * (10 << 20) + b'"}}'
        return method, self._path() + self._query(), body, headers

    def _path(self) -> str:
        rng = self._rng
        root, plural, namespaced, subs = rng.choice(self._paths)
        space = f"/namespaces/{rng.choice(('default', 'default', 'none', 'UPPER', '%2e%2e', 'a' * 300))}"
        path = root + (space if namespaced and rng.random() < 0.8 else "") + f"/{plural}"
        if rng.random() < 0.6:
            path += "/" + rng.choice(
                ("p", "d", "c", "s", "n", "none", "a%2Fb", "..", ".", "%00", "x" * 300, "é", "%F0")
            )
            if rng.random() < 0.35:
                path += "/" + rng.choice([*subs, "status", "scale", "nope", "log", ""])
        trick = rng.random()
        if trick < 0.04:
            path = path.replace("/", "//", rng.randrange(1, 3))
        elif trick < 0.08:
            path += rng.choice(("/", "/../", "/%2e%2e/", "/./", "//", ";x=y", "%3Fwatch=true", "\\"))
        elif trick < 0.11:
            path = rng.choice(("/", "/api", "/apis", "/openapi/v3", "/version", "/healthz", "/apis/apps", "/openapi/v2",
                               "/metrics", "/apis/x/y/z", "/api/v1/watch", "/" + "a/" * 200))  # fmt: skip
        return path.encode().decode("latin-1") if path.isascii() else "".join(_quoted(c) for c in path)

    def _query(self) -> str:
        rng = self._rng
        parts = []
        for name, values in (
            ("labelSelector", SELECTORS), ("fieldSelector", SELECTORS), ("limit", NUMBERS),
            ("continue", ("x", "e30", "", "🦖", base64.urlsafe_b64encode(b'{"v":"meta.k8s.io/v1","rv":-1}').decode())),
            ("resourceVersion", NUMBERS), ("resourceVersionMatch", ("Exact", "NotOlderThan", "x")),
            ("dryRun", ("All", "x", "")), ("fieldValidation", ("Strict", "Warn", "Ignore", "x")),
            ("fieldManager", ("m", "", "x" * 200, "%07")), ("force", ("true", "x")), ("gracePeriodSeconds", NUMBERS),
            ("propagationPolicy", ("Orphan", "x")), ("timeoutSeconds", ("1",)), ("pretty", ("true",)),
            ("sendInitialEvents", ("true", "x")), ("includeObject", ("None", "x")), ("container", ("c", "x")),
            ("tailLines", NUMBERS),
        ):  # fmt: skip
            if rng.random() < 0.12:
                parts.append(f"{name}={''.join(_quoted(c) for c in rng.choice(values))}")
        if rng.random() < 0.02:
            parts += ["watch=true", "timeoutSeconds=1"]
        if rng.random() < 0.03:
            parts.append(rng.choice(("&&&", "=", "a=b=c", "%zz", "watch=false", ";")))
        return "?" + "&".join(parts) if parts else ""

    # -- bodies -----------------------------------------------------------------------------------------------

    def _mutated(self, sample: Any = None) -> bytes:
        thing = copy.deepcopy(sample if sample is not None else self._rng.choice(SAMPLES))
        for _ in range(self._rng.choice((0, 1, 1, 1, 2, 4))):
            self._mutate(thing)
        return json.dumps(thing).encode()

    def _mutate(self, thing: Any) -> None:
        rng = self._rng
        while True:
            keys = list(thing) if isinstance(thing, dict) else list(range(len(thing)))
            if not keys:
                return
            key = rng.choice(keys)
            inner = thing[key]
            if isinstance(inner, dict | list) and inner and rng.random() < 0.7:
                thing = inner
                continue
            match rng.randrange(4):
                case 0:
                    thing[key] = copy.deepcopy(rng.choice(ODD))
                case 1 if isinstance(thing, dict):
                    names = ("unknown", "metadata", "spec", "", "$patch", "$setElementOrder/x", "kind")
                    thing[rng.choice(names)] = copy.deepcopy(rng.choice(ODD))
                case 2:
                    del thing[key]
                case _:
                    thing[key] = [inner] if rng.random() < 0.5 else {"x": inner}
            return

    def _broken(self) -> bytes:
        whole = self._mutated()
        at = self._rng.randrange(len(whole) + 1)
        return self._rng.choice((whole[:at], whole[:at] + b"\xff" + whole[at:], whole + whole, whole[at:]))

    def _noise(self) -> bytes:
        return self._rng.randbytes(self._rng.randrange(200))

    def _deep(self) -> bytes:
        depth = self._rng.choice((50, 190, 210, 5000, 100_000))
        return self._rng.choice((b"[" * depth, b'{"a":' * depth, b'{"spec":' * depth + b"1" + b"}" * depth,
                                 b"[" * depth + b"]" * depth, b"- " * min(depth, 3000)))  # fmt: skip

    def _wide(self) -> bytes:
        return json.dumps({"metadata": {"name": "w", "labels": {f"k{n}": "v" for n in range(2000)}}}).encode()

    def _yaml(self) -> bytes:
        return self._rng.choice((b"a: &a [x]\nb: [*a, *a]", b"a: b: c", b"--- \n---\n", b"\t", b"!!python/object:os x",
                                 b"a: !!binary x", b"? {a: b}\n: c", b"x: .inf", b"2026-01-01: y", b"<<: {a: b}",
                                 b"kind: Pod\napiVersion: v1\nmetadata: {name: y}\n"))  # fmt: skip

    def _protobuf(self) -> bytes:
        inner = self._rng.randbytes(self._rng.randrange(60))
        about = b"\x0a\x02v1\x12\x03Pod"
        return b"k8s\x00" + self._rng.choice(
            (inner, b"\x0a" + bytes([len(about)]) + about + b"\x12" + bytes([len(inner)]) + inner)
        )


def _quoted(character: str) -> str:
    if character.isascii() and (character.isalnum() or character in "-._~%/$"):
        return character
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def furnish(host: str, port: int, tls: ssl.SSLContext, token: str) -> None:
    """What the aimed requests are aimed at."""
    connection = http.client.HTTPSConnection(host, port, context=tls, timeout=30)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    fuzzer = Fuzzer(random.Random(0))
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    for sample in (account, *SAMPLES):
        if isinstance(sample, dict) and "kind" in sample and "apiVersion" in sample:
            connection.request("POST", fuzzer._place(sample), json.dumps(sample), headers)
            connection.getresponse().read()
    connection.close()


def fuzz(server: Served, count: int, seed: int) -> Judge:
    judge, fuzzer = Judge(), Fuzzer(random.Random(seed))
    place = urlsplit(server.url)
    tls = ssl.create_default_context(cafile=str(server.authority))
    furnish(place.hostname or "", place.port or 0, tls, server.token)

    def connect() -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(place.hostname or "", place.port, context=tls, timeout=30)

    connection = connect()
    for number in range(count):
        method, path, body, headers = fuzzer.request(number)
        asked = f"{method} {path[:300]} {headers} {body[:300]!r}"
        try:
            headers["Authorization"] = f"Bearer {server.token}"
            connection.request(method, path, body or None, headers)
            response = connection.getresponse()
            judge.look(asked, method, response.status, response.read())
        except (http.client.InvalidURL, UnicodeEncodeError):
            connection.close()
            connection = connect()  # our own client would not send it
        except (OSError, http.client.HTTPException) as problem:
            if len(body) < 1 << 20:  # a server may hang up on a body it will not read
                judge.problems.append(f"{type(problem).__name__} {asked}")
            connection.close()
            connection = connect()
    connection.close()
    return judge


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What the kernel has given to threads, and how long it kept them waiting for a processor (schedstat)."""

    on_cpu_s: float
    in_queue_s: float

    @classmethod
    def of(cls, *threads: Path) -> "Scheduled":
        spent = [found for thread in threads if (found := _schedstat(thread)) is not None]
        return cls(sum(on_cpu for on_cpu, _ in spent) / 1e9, sum(waited for _, waited in spent) / 1e9)


def _schedstat(thread: Path) -> tuple[int, int] | None:
    try:
        on_cpu, waited, _ = (thread / "schedstat").read_text().split()
    except (OSError, ValueError):
        return None  # it has ended, or the kernel does not tell
    return int(on_cpu), int(waited)


def fair_wait_s(wall_s: float, server: Scheduled, client: Scheduled) -> float:
    """What others did to a request that took so long, on a machine that may have many other things to do.

    While a thread waits for a processor, the machine is busy with somebody else; that is taken off. What the server
    computed meanwhile is never taken off, and neither is any time in which nobody wanted a processor.
    """
    return max(wall_s - server.in_queue_s - client.in_queue_s, min(wall_s, server.on_cpu_s))


class Bystander:
    """A client with a small wish, again and again; the longest it had to wait is what others did to it."""

    def __init__(self, server: Served) -> None:
        self._server = server
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="bystander")
        self.longest_s = 0.0
        self.longest_wall_s = 0.0

    def __enter__(self) -> "Bystander":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _ask(self) -> None:
        place, tls = urlsplit(self._server.url), ssl.create_default_context(cafile=str(self._server.authority))
        connection = http.client.HTTPSConnection(place.hostname or "", place.port, context=tls, timeout=120)
        while not self._over.is_set():
            begun, server, client = time.monotonic(), self._of_server(), self._of_client()
            connection.request("GET", f"{heavy.MAPS}/c", headers={"Authorization": f"Bearer {self._server.token}"})
            connection.getresponse().read()
            wall_s = time.monotonic() - begun
            self.longest_wall_s = max(self.longest_wall_s, wall_s)
            if wall_s > self.longest_s:
                server, client = _since(server, self._of_server()), _since(client, self._of_client())
                self.longest_s = max(self.longest_s, fair_wait_s(wall_s, server, client))
            self._over.wait(0.005)
        connection.close()

    def _of_server(self) -> Scheduled:
        return Scheduled.of(*Path(f"/proc/{self._server.process.pid}/task").iterdir())

    @staticmethod
    def _of_client() -> Scheduled:
        return Scheduled.of(Path("/proc/thread-self"))


def _since(before: Scheduled, after: Scheduled) -> Scheduled:
    """Threads that ended meanwhile take what they had with them; that is nothing to take off."""
    return Scheduled(max(0.0, after.on_cpu_s - before.on_cpu_s), max(0.0, after.in_queue_s - before.in_queue_s))


def cpu_s(pid: int) -> float:
    """What the threads of a process have used of processors."""
    told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


def weigh(server: Served, size: int, longest_s: float, names: Collection[str] = ()) -> list[str]:
    """Heavy requests one by one, all or those named, while a bystander asks for something small; whoever made it wait
    too long."""
    place, tls = urlsplit(server.url), ssl.create_default_context(cafile=str(server.authority))
    furnish(place.hostname or "", place.port or 0, tls, server.token)
    problems = []
    connection = http.client.HTTPSConnection(place.hostname or "", place.port, context=tls, timeout=120)
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    connection.request("POST", path, json.dumps(heavy.definition()), headers)
    assert connection.getresponse().read()
    for asked in heavy.requests(size):
        if names and asked.name not in names:
            continue
        with Bystander(server) as bystander:
            begun_s = cpu_s(server.process.pid)
            connection.request(asked.method, asked.path, asked.body, {**headers, "Content-Type": asked.content})
            answer = connection.getresponse()
            said = answer.read()
            work_s = cpu_s(server.process.pid) - begun_s
        if answer.status >= 500 and not KNOWN_500.search(said[:300].decode(errors="replace")):
            problems.append(f"{answer.status} {asked.name}: {said[:300]!r}")
        if bystander.longest_s > longest_s:
            waited = f"{bystander.longest_s:.2f} s ({bystander.longest_wall_s:.2f} s on the wall)"
            problems.append(f"{asked.name}: {len(asked.body)} bytes made others wait {waited}")
        if work_s > LONGEST_WORK_S + WORK_S_PER_MB * len(asked.body) / 1e6:
            problems.append(f"{asked.name}: {len(asked.body)} bytes took {work_s:.1f} s of the processor")
    connection.close()
    return problems


@click.command()
@click.option("--heavy-bytes", default=1_000_000, help="size of the requests that ask for much work")
@click.option("--requests", default=10_000)
@click.option("--seed", default=1)
def main(requests: int, seed: int, heavy_bytes: int) -> None:
    with tempfile.TemporaryDirectory(prefix="fairlead-fuzz-") as folder, served(Path(folder)) as server:
        begun = time.monotonic()
        judge = fuzz(server, requests, seed)
        memory = memory_mb(server.process.pid)
        click.echo(f"{requests} requests in {time.monotonic() - begun:.0f} s; {memory} MB; {dict(judge.statuses)}")
        judge.problems += weigh(server, heavy_bytes, LONGEST_WAIT_S)
    if memory > MEMORY_MB:
        judge.problems.append(f"the server holds {memory} MB, more than {MEMORY_MB}")
    for problem in judge.problems[:50]:
        click.echo(problem)
    click.echo(f"{requests - len(judge.problems)} passed, {len(judge.problems)} failed")
    sys.exit(1 if judge.problems else 0)


if __name__ == "__main__":
    main()
