"""Requests drawn by lot: a chapter is some dozen of them about objects of one kind, told to both servers in step."""

import json
import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

from fairlead.apiserver.schema.facts import Resource, load
from tests.apiserver.objects import manifests
from tests.contract import growing, shapes
from tests.contract.stories import ACCEPTED, PATCHES

Json = dict[str, Any]

# A configuration that came into force would be asked about everything else that is written.
TRIED_ONLY: Final = frozenset({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})
# What people write most is drawn most.
WEIGHTS: Final = {
    "Pod": 10, "Deployment": 8, "Service": 6, "StatefulSet": 4, "DaemonSet": 3, "Job": 4, "CronJob": 3, "ConfigMap": 4,
    "Secret": 3, "Namespace": 2, "Node": 3, "ServiceAccount": 2, "PersistentVolumeClaim": 3, "PersistentVolume": 2,
    "ReplicaSet": 2, "Role": 2, "RoleBinding": 2, "HorizontalPodAutoscaler": 2, "PodDisruptionBudget": 2, "Ingress": 2,
    "ServiceCIDR": 0, "IPAddress": 0, "CustomResourceDefinition": 2,
}  # fmt: skip
SELECTORS: Final = (
    "a=b", "a!=b", "a in (b,c)", "a notin (b)", "a", "!a", "a==b,app", "a=b=c", "a in b", "(", "a>1", "a>x", "=b",
    "a,,b", "",
    "A_b=x y", "a in ()", "app notin (x,),!tier",
)  # fmt: skip
FIELDS: Final = (
    "metadata.name=a-1", "metadata.name!=a-1", "metadata.namespace=x", "status.phase=Pending", "spec.nodeName=",
    "type=Opaque",
    "spec.foo=1", "metadata.name", "metadata.labels.a=b", "reason=R", "spec.unschedulable=true", "a=b,c",
    "status.replicas=0",
    "status.successful=1", "involvedObject.kind=Pod", "spec.clusterIP=None", "spec.type=ClusterIP",
    "metadata.name=a-1,metadata.name=b",
)  # fmt: skip


def bases() -> dict[tuple[str, str], list[Json]]:
    """Good objects by API version and kind."""
    found: dict[tuple[str, str], list[Json]] = defaultdict(list)
    for manifest in manifests.GOOD.values():
        found[manifest["apiVersion"], manifest["kind"]].append(manifest)
    return dict(found)


BASES: Final = bases()


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as it goes to one server."""

    method: str
    path: str
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    about: str = ""
    """Which object its answer shows."""


def kinds(luck: random.Random, only: str = "") -> Resource:
    found = [each for each in load().resources if (each.api_version, each.kind) in BASES]
    if only:
        return luck.choice([each for each in found if only in (each.kind, each.plural)])
    return luck.choices(found, [WEIGHTS.get(each.kind, 1) for each in found])[0]


class Chapter:
    """What is asked of one server. The same seed and the same answers make the same requests."""

    def __init__(self, seed: str, resource: Resource, namespace: str) -> None:
        self._seed, self._resource, self._namespace = seed, resource, namespace
        self._type = load().type_name(resource.group, resource.version, resource.kind) or ""
        prefix = "a" if resource.namespaced else namespace
        self._names = [f"{prefix}-{number}" for number in (1, 2, 3)]
        self._held: dict[str, Json] = {}
        self._continue = ""
        self._version = ""
        self._step = 0

    @property
    def kind(self) -> str:
        return self._resource.kind

    def opening(self) -> Sent | None:
        """What must be there before the first request: a request, whose answer is compared like the others."""
        return None

    @property
    def collection(self) -> str:
        place = f"/namespaces/{self._namespace}" if self._resource.namespaced else ""
        return f"{self._resource.path}{place}/{self._resource.plural}"

    def next(self) -> Sent:
        self._step += 1
        luck = random.Random(f"{self._seed}/{self._step}")
        if self._step == 1 or not self._held:
            return self._create(luck, self._names[0], calm=self._step == 1)
        ways = {
            self._create_another: 20, self._update: 18, self._merge: 10, self._strategic: 9, self._json: 7,
            self._apply: 12, self._get: 2, self._list: 8, self._delete: 5, self._status: 10, self._scale: 4,
            self._delete_collection: 1,
        }  # fmt: skip
        return luck.choices(list(ways), list(ways.values()))[0](luck)

    def heard(self, sent: Sent, status: int, answer: Any) -> None:
        """Remember what the server says it holds."""
        if status == 404 and sent.about in self._held and not sent.path.endswith("/scale"):
            del self._held[sent.about]
        if not isinstance(answer, dict) or status not in (200, 201):
            return
        metadata = answer.get("metadata") or {}
        if answer.get("kind", "").endswith("List") and isinstance(metadata, dict):
            self._continue = metadata.get("continue") or ""
            self._version = metadata.get("resourceVersion") or ""
        if not sent.about or "dryRun" in sent.path:
            return
        if sent.method == "DELETE":
            self._held.pop(sent.about, None)
        elif answer.get("kind") == self._resource.kind:
            self._held[sent.about] = answer

    def left(self) -> list[str]:
        """Where that is what may still be there; what lives in a namespace weighs on nobody outside it."""
        return [] if self._resource.namespaced else self._all()

    def _all(self) -> list[str]:
        held = {str((each.get("metadata") or {}).get("name")) for each in self._held.values()}
        return [f"{self.collection}/{name}" for name in sorted(held | set(self._names))]

    # -- single requests ---------------------------------------------------------------------------------------

    def _create(self, luck: random.Random, name: str, *, calm: bool = False) -> Sent:
        thing = self._drawn(luck, name, calm=calm)
        if not calm and luck.random() < 0.05:
            thing["metadata"] = {"generateName": luck.choice(("gen-", "Gen_", "gen-" + "a" * 60))}
            name = ""
        return self._write(luck, "POST", self.collection, thing, name, calm=calm)

    def _drawn(self, luck: random.Random, name: str, *, calm: bool = False) -> Json:
        base = BASES[self._resource.api_version, self._resource.kind]
        text = json.dumps(base[0] if calm and luck.random() < 0.5 else luck.choice(base))
        thing: Json = json.loads(text.replace("NAMESPACE", self._namespace))
        if self._resource.kind == "CustomResourceDefinition":
            plural = f"{name.replace('-', '')}s"
            thing["spec"]["names"] = {"plural": plural, "kind": plural[:-1].capitalize()}
            name = f"{plural}.example.com"
        thing["metadata"] = {"name": name}
        if luck.random() < 0.5:
            growing.grow(luck, thing, self._type, times=luck.choice((1, 1, 2)), only="metadata")
        if calm and luck.random() < 0.7:
            return thing
        growing.grow(luck, thing, self._type, times=luck.choice((0, 1, 1, 2, 3)))
        if not calm and luck.random() < 0.4:
            growing.bend(luck, thing, times=luck.choice((1, 1, 2)))
        return thing

    def _create_another(self, luck: random.Random) -> Sent:
        return self._create(luck, luck.choice(self._names))

    def _changed(self, luck: random.Random, thing: Json, only: str = "") -> Json:
        changed: Json = json.loads(json.dumps(thing, sort_keys=True))
        growing.grow(luck, changed, self._type, times=luck.choice((0, 1, 1, 2)), only=only)
        if luck.random() < 0.4:
            growing.bend(luck, changed)
        return changed

    def _chosen(self, luck: random.Random) -> tuple[str, Json]:
        name = luck.choice(sorted(self._held))
        return name, self._held[name]

    def _path(self, name: str, sub: str = "") -> str:
        told = (self._held.get(name, {}).get("metadata") or {}).get("name", name)
        return f"{self.collection}/{quote(told, safe='')}" + (f"/{sub}" if sub else "")

    def _update(self, luck: random.Random) -> Sent:
        name, thing = self._chosen(luck)
        changed = self._changed(luck, thing)
        if isinstance(changed.get("metadata"), dict):
            if luck.random() < 0.2:
                changed["metadata"].pop("resourceVersion", None)
            if luck.random() < 0.03:
                changed["metadata"][luck.choice(("resourceVersion", "uid", "name", "namespace"))] = luck.choice(
                    ("1", "x")
                )
            if luck.random() < 0.1:
                changed["metadata"].pop("managedFields", None)
        return self._write(luck, "PUT", self._path(name), changed, name)

    def _merge(self, luck: random.Random, sub: str = "") -> Sent:
        name, thing = self._chosen(luck)
        patch = growing.merge_patch(luck, thing, self._changed(luck, thing, sub))
        return self._write(luck, "PATCH", self._path(name, sub), patch, name, kind="merge")

    def _strategic(self, luck: random.Random, sub: str = "") -> Sent:
        name, thing = self._chosen(luck)
        patch = growing.strategic_patch(luck, thing, self._changed(luck, thing, sub), self._type)
        return self._write(luck, "PATCH", self._path(name, sub), patch, name, kind="strategic")

    def _json(self, luck: random.Random, sub: str = "") -> Sent:
        name, thing = self._chosen(luck)
        patch = growing.json_patch(luck, thing, self._changed(luck, thing, sub))
        return self._write(luck, "PATCH", self._path(name, sub), patch, name, kind="json")

    def _apply(self, luck: random.Random, sub: str = "") -> Sent:
        name = luck.choice(self._names)
        thing = self._held.get(name) if luck.random() < 0.8 else None
        applied = self._changed(luck, thing, sub) if thing is not None else self._drawn(luck, name)
        applied = growing.part(luck, applied, luck.choice((0.3, 0.7, 0.9, 1.0)))
        applied |= {"apiVersion": self._resource.api_version, "kind": self._resource.kind}
        if isinstance(applied.get("metadata"), dict):
            for key in ("managedFields", "uid", "creationTimestamp", "generation"):
                applied["metadata"].pop(key, None)
            if luck.random() < 0.9:
                applied["metadata"].pop("resourceVersion", None)
        if luck.random() < 0.03:
            applied.pop(luck.choice(sorted(applied)))
        return self._write(luck, "PATCH", self._path(name, sub), applied, name, kind="apply")

    def _status(self, luck: random.Random) -> Sent:
        if self._resource.subresource("status") is None:
            return self._update(luck)
        way = luck.choice(("put", "put", "merge", "strategic", "apply", "json", "get"))
        name, thing = self._chosen(luck)
        if way == "get":
            return self._write(luck, "GET", self._path(name, "status"), None, name)
        if way == "put":
            return self._write(luck, "PUT", self._path(name, "status"), self._reported(luck, thing), name)
        return {"merge": self._merge, "strategic": self._strategic, "apply": self._apply, "json": self._json}[way](
            luck, "status"
        )

    def _reported(self, luck: random.Random, thing: Json) -> Json:
        changed: Json = json.loads(json.dumps(thing, sort_keys=True))
        changed.setdefault("status", {})
        growing.grow(luck, changed, self._type, times=luck.choice((1, 2, 3)), only="status")
        if luck.random() < 0.2:
            growing.bend(luck, changed)
        return changed

    def _scale(self, luck: random.Random) -> Sent:
        if self._resource.subresource("scale") is None:
            return self._merge(luck)
        name, _ = self._chosen(luck)
        path, about = self._path(name, "scale"), ""
        count = luck.choice((0, 1, 3, -1, "x", None, 2**31))
        match luck.randint(0, 3):
            case 0:
                return self._write(luck, "GET", path, None, about)
            case 1:
                scale = {"metadata": {"name": name, "namespace": self._namespace}, "spec": {"replicas": count}}
                return self._write(luck, "PUT", path, scale, about)
            case 2:
                return self._write(luck, "PATCH", path, {"spec": {"replicas": count}}, about, kind="merge")
        applied = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": count}}
        return self._write(luck, "PATCH", path, applied, about, kind="apply")

    def _get(self, luck: random.Random) -> Sent:
        name = luck.choice([*self._names, "none"])
        query = luck.choice(({}, {}, {"resourceVersion": "0"}, {"resourceVersion": "x"}, {"pretty": "true"}))
        return self._ask(luck, "GET", self._path(name), query, name)

    def _list(self, luck: random.Random) -> Sent:
        query: dict[str, str] = {}
        if luck.random() < 0.5:
            query["labelSelector"] = luck.choice(SELECTORS)
        if luck.random() < 0.4:
            query["fieldSelector"] = luck.choice(FIELDS)
        if luck.random() < 0.3:
            query["limit"] = luck.choice(("1", "2", "0", "-1", "x"))
        if self._continue and luck.random() < 0.7:
            query["continue"] = self._continue
        if luck.random() < 0.2:
            query["resourceVersion"] = luck.choice(("0", self._version or "0", "x", "1"))
        if luck.random() < 0.1:
            query["resourceVersionMatch"] = luck.choice(("Exact", "NotOlderThan", "Odd"))
        if luck.random() < 0.03:
            query["sendInitialEvents"] = "true"
        if not self._resource.namespaced and "labelSelector" not in query and "fieldSelector" not in query:
            query["labelSelector"] = "a=b"  # other objects of the server are no business of ours
        return self._ask(luck, "GET", self.collection, query, "")

    def _ask(self, luck: random.Random, method: str, path: str, query: dict[str, str], about: str) -> Sent:
        accept = luck.choice(("application/json", "application/json", "table", "partial", "partials", "*/*", ""))
        if accept in ("table", "partial", "partials"):
            about = ""
            if accept == "table" and luck.random() < 0.3:
                query["includeObject"] = luck.choice(("None", "Object", "Metadata", "Odd"))
        headers = {"Accept": ACCEPTED.get(accept, accept)} if accept else {}
        return Sent(method, f"{path}?{urlencode(query)}" if query else path, None, headers, about)

    def _delete_options(self, luck: random.Random, thing: Json) -> Json | None:
        if luck.random() < 0.4:
            return None
        metadata = thing.get("metadata") or {}
        options: Json = {}
        if luck.random() < 0.3:
            options["propagationPolicy"] = luck.choice(("Background", "Foreground", "Orphan", "Odd"))
        if luck.random() < 0.3:
            options["gracePeriodSeconds"] = luck.choice((0, 1, 30, -1, "x"))
        if luck.random() < 0.2:
            options["preconditions"] = luck.choice(
                ({"uid": metadata.get("uid")}, {"uid": "x"}, {"resourceVersion": "1"}, {})
            )
        if luck.random() < 0.1:
            options["dryRun"] = luck.choice((["All"], ["Odd"], "All"))
        if luck.random() < 0.05:
            options["orphanDependents"] = luck.choice((True, False))
        if luck.random() < 0.05:
            options["unknown"] = 1
        return options

    def _delete(self, luck: random.Random) -> Sent:
        name = luck.choice([*sorted(self._held), self._names[-1]])
        options = self._delete_options(luck, self._held.get(name, {}))
        return self._write(luck, "DELETE", self._path(name), options, name, plain=True)

    def _delete_collection(self, luck: random.Random) -> Sent:
        query = "labelSelector=" + quote(luck.choice(("a=b", "a", "app=web")))
        return self._write(luck, "DELETE", f"{self.collection}?{query}", None, "", plain=True)

    def _write(
        self, luck: random.Random, method: str, path: str, thing: Any, about: str,
        *, kind: str = "", calm: bool = False, plain: bool = False,
    ) -> Sent:  # fmt: skip
        query: dict[str, str] = {}
        if not plain and method != "GET":
            if luck.random() < 0.4 or kind == "apply":
                query["fieldManager"] = luck.choice(("one", "two", "three"))
            if not calm and luck.random() < 0.4:
                query["fieldValidation"] = luck.choice(("Strict", "Warn", "Ignore", "Strict", "Odd"))
            if not calm and (luck.random() < 0.08 or self._resource.kind in TRIED_ONLY):
                query["dryRun"] = "All"
            if kind == "apply" and luck.random() < 0.5:
                query["force"] = luck.choice(("true", "true", "false"))
        headers = {"Accept": "application/json"}
        if thing is not None:
            headers["Content-Type"] = PATCHES.get(kind, "application/json")
        if self._resource.kind in TRIED_ONLY and method in ("POST", "PATCH") and not calm:
            query["dryRun"] = "All"
        body = None if thing is None else json.dumps(thing, sort_keys=True).encode()
        mark = "&" if "?" in path else "?"
        return Sent(method, path + (mark + urlencode(query) if query else ""), body, headers, about)


class CustomChapter(Chapter):
    """About objects of a kind that is defined first."""

    def __init__(self, seed: str, namespace: str) -> None:
        luck = random.Random(f"{seed}/definition")
        self._definition, resource, self._schema = shapes.definition(luck, f"{namespace}.example.com")
        super().__init__(seed, resource, namespace)

    def opening(self) -> Sent | None:
        body = json.dumps(self._definition, sort_keys=True).encode()
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        return Sent("POST", path, body, {"Accept": "application/json", "Content-Type": "application/json"})

    def left(self) -> list[str]:
        definition = self._definition["metadata"]["name"]
        return [*self._all(), f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition}"]

    def _drawn(self, luck: random.Random, name: str, *, calm: bool = False) -> Json:
        thing: Json = {"apiVersion": self._resource.api_version, "kind": "Thing", "metadata": {"name": name}}
        thing["spec"] = shapes.drawn(luck, self._schema)
        if luck.random() < 0.3:
            growing.grow(luck, thing, "core.v1.ConfigMap", only="metadata")
        if not calm and luck.random() < 0.3:
            growing.bend(luck, thing)
        if luck.random() < 0.2:
            thing["status"] = {"n": 1, "selector": "a=b"}
        return thing

    def _changed(self, luck: random.Random, thing: Json, only: str = "") -> Json:
        changed: Json = json.loads(json.dumps(thing, sort_keys=True))
        if only == "status":
            changed["status"] = luck.choice(({"n": 2}, {"a": [1]}, {}, None, "x", {"selector": "x=y"}))
        else:
            fresh = shapes.drawn(luck, self._schema)
            if isinstance(changed.get("spec"), dict) and isinstance(fresh, dict):
                changed["spec"] = {**changed["spec"], **growing.part(luck, fresh, 0.5)}
            else:
                changed["spec"] = fresh
        if luck.random() < 0.3:
            growing.bend(luck, changed)
        return changed

    def _reported(self, luck: random.Random, thing: Json) -> Json:
        return self._changed(luck, thing, "status")

    def _strategic(self, luck: random.Random, sub: str = "") -> Sent:
        return self._merge(luck, sub)
