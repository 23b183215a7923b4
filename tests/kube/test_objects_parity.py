"""Our reading, filling in and judging of objects, compared with the real server's on tables of manifests.

What the server does beyond defaults (admission, addresses, UIDs) is taken off its answers by name below and shown in
the contract suite instead.
"""

import http.client
import json
import re
import ssl
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlparse

import pytest

from fairlead.apiserver.failures import Failure
from fairlead.apiserver.fields import managed, patches
from fairlead.apiserver.json_values import go_text
from fairlead.apiserver.registry.apply import check_as
from fairlead.apiserver.schema import defaults, facts
from fairlead.apiserver.schema import shape as schema
from fairlead.apiserver.schema.custom import CustomKind
from fairlead.apiserver.validation import registry as validate
from tests.apiserver.objects import customs, manifests, mistakes, stories
from tests.rigs.kube.servers import Rig, until

Json = dict[str, Any]
NAMESPACE = "objects-parity"


class Real:
    """The real server over one connection: a few hundred small requests, each a dry run."""

    def __init__(self, rig: Rig) -> None:
        place = urlparse(rig.url)
        assert place.hostname is not None
        context = ssl.create_default_context(cafile=str(rig.ca_file))
        self._connection = http.client.HTTPSConnection(place.hostname, place.port, context=context, timeout=30)
        self._token = rig.admin_token

    def ask(self, method: str, path: str, body: Any = None, content: str = "application/json") -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content}
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = self._connection.getresponse()
        text = response.read()
        # A path that is not served (yet) is answered in plain text.
        is_json = response.headers["Content-Type"].startswith("application/json")
        return response.status, json.loads(text) if is_json else {"message": text.decode()}

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def real(rig: Rig) -> Iterator[Real]:
    rig.create_namespace(NAMESPACE)
    connected = Real(rig)
    yield connected
    connected.close()
    rig.delete_namespace(NAMESPACE)


def place(manifest: Json) -> tuple[facts.Resource, str]:
    group, _, version = manifest["apiVersion"].rpartition("/")
    resource = facts.load().by_kind[group, version, manifest["kind"]]
    parent = f"{resource.path}/namespaces/{NAMESPACE}" if resource.namespaced else resource.path
    return resource, f"{parent}/{resource.plural}"


def read(resource: facts.Resource, manifest: Json) -> Json:
    shape = schema.for_kind(resource.group, resource.version, resource.kind)
    assert shape is not None
    found = schema.decode(shape, manifest, schema.kind_label(resource.kind, resource.version))
    assert found.unknown == []
    value: Json = found.value
    defaults.apply_defaults(resource.group, resource.version, resource.kind, value)
    return value


def without_the_servers_own(kind: str, obj: Json) -> Json:
    """Without what strategies and admission add: not the business of `fairlead.apiserver.schema`."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    for key in ("uid", "creationTimestamp", "managedFields", "generation", "namespace", "resourceVersion"):
        metadata.pop(key, None)
    match kind:
        case "Pod":
            for key in ("priority", "preemptionPolicy"):
                spec.pop(key)
            spec["tolerations"] = [t for t in spec.get("tolerations", ()) if t.get("tolerationSeconds") != 300]
            if not spec["tolerations"]:
                del spec["tolerations"]
            obj["status"] = {}
        case "Job":
            del spec["selector"]
            for labels in (metadata["labels"], spec["template"]["metadata"]["labels"]):
                for key in [key for key in labels if "job-name" in key or "controller-uid" in key]:
                    del labels[key]
        case "Service":
            for key in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
                spec.pop(key, None)
        case "Namespace":
            obj["spec"] = {}
        case "Node":
            spec["taints"] = [t for t in spec["taints"] if t["key"] != "node.kubernetes.io/not-ready"]
            if not spec["taints"]:
                del spec["taints"]
        case "PersistentVolumeClaim" | "PersistentVolume":
            del metadata["finalizers"]
            obj["status"].pop("lastPhaseTransitionTime", None)
    return obj


@pytest.mark.parametrize("name", manifests.GOOD)
def test_an_object_is_read_and_filled_in_as_the_real_server_does(real: Real, name: str) -> None:
    manifest = json.loads(json.dumps(manifests.GOOD[name]).replace("NAMESPACE", NAMESPACE))
    resource, path = place(manifest)
    status, answer = real.ask("POST", f"{path}?dryRun=All", manifest)
    assert status == 201, answer.get("message")
    shape = schema.for_kind(resource.group, resource.version, resource.kind)
    assert shape is not None
    ours = schema.forget_empty(shape, read(resource, manifest))
    assert ours == without_the_servers_own(resource.kind, answer)


MALFORMED = [
    manifests.pod(restartPolicy=1),
    manifests.pod(containers="x"),
    manifests.pod(containers=[1]),
    manifests.pod(nodeSelector={"a": 1}),
    manifests.pod(nodeSelector=[]),
    manifests.pod(terminationGracePeriodSeconds=1.5),
    manifests.pod(terminationGracePeriodSeconds=True),
    manifests.pod(priority=3000000000),
    manifests.pod(securityContext={"runAsUser": "x"}),
    manifests.pod(tolerations={"a": 1}),
    manifests.pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}),
    manifests.pod(hostNetwork="true"),
    manifests.pod(volumes=[{"name": "v", "secret": {"secretName": 5}}]),
    manifests.pod(volumes=[{"name": 5}]),
    manifests.pod(volumes=[{"name": "v", "hostPath": "x"}]),
    manifests.container(env={"a": "b"}),
    manifests.container(env=[{"name": "A", "value": 5}]),
    manifests.container(command="ls"),
    manifests.container(command=["a", 5]),
    manifests.container(ports=[{"containerPort": "a"}]),
    manifests.container(resources={"requests": {"cpu": "abc"}}),
    manifests.container(resources={"requests": {"cpu": True}}),
    manifests.container(resources={"requests": {"cpu": "1.2.3"}}),
    manifests.container(resources={"requests": {"cpu": "1Kib"}}),
    manifests.container(livenessProbe={"httpGet": {"port": 1.5}}),
    manifests.container(livenessProbe={"httpGet": {"port": {}}}),
    manifests.container(foo=1, bar={"x": 1}),
    {**manifests.pod(zz={"a": 1}), "yy": 1},
    {**manifests.pod(), "spec": "x"},
    {**manifests.pod(), "metadata": []},
    {**manifests.pod(), "metadata": {"name": "a", "labels": {"a": 1}}},
    {**manifests.pod(), "metadata": {"name": "a", "creationTimestamp": "x"}},
    {**manifests.pod(), "metadata": {"name": "a", "creationTimestamp": 5}},
    {**manifests.pod(), "metadata": {"name": "a", "creationTimestamp": "2020-01-01"}},
    {**manifests.pod(), "metadata": {"name": "a", "creationTimestamp": "2020-13-01T00:00:00Z"}},
    {**manifests.pod(), "metadata": {"name": "a", "creationTimestamp": "2020-01-01T00:00:00Zx"}},
    manifests.thing("Secret", data={"a": "x"}),
    manifests.thing("Secret", data={"a": "eHh4!"}),
    manifests.thing("Secret", data={"a": 5}),
    manifests.workload("Deployment", replicas="3"),
    manifests.workload("Deployment", strategy={"rollingUpdate": {"maxSurge": []}}),
    manifests.thing("Lease", "coordination.k8s.io/v1", spec={"renewTime": "2026-01-01T00:00:00Z"}),
    manifests.role("Role", {"verbs": "get"}),
]


@pytest.mark.parametrize("manifest", MALFORMED, ids=lambda manifest: json.dumps(manifest)[-60:])
def test_a_malformed_object_gets_the_real_servers_words(real: Real, manifest: Json) -> None:
    resource, path = place(manifest)
    status, answer = real.ask("POST", f"{path}?dryRun=All&fieldValidation=Strict", manifest)
    assert status == 400
    shape = schema.for_kind(resource.group, resource.version, resource.kind)
    assert shape is not None
    label = schema.kind_label(resource.kind, resource.version)
    try:
        ours = f"{label}: {schema.strict_problem([], schema.decode(shape, manifest, label).unknown)}"
    except schema.DecodeError as problem:
        ours = str(problem)
    assert ours == answer["message"]


def template(**spec: Any) -> Json:
    return {"spec": {"template": {"spec": spec}}}


STRATEGIC = [
    {"metadata": {"labels": {"a": None, "c": "3"}}},
    {"metadata": {"labels": {"$patch": "replace", "z": "1"}}},
    {"metadata": {"labels": {"$patch": "delete"}}},
    {"metadata": {"annotations": {"z": "z"}}},
    {"spec": {"$patch": "bad"}},
    {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
    {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate", "rollingUpdate": {"maxSurge": 1}}}},
    {"spec": {"template": {"metadata": {"labels": {"q": None, "r": "1"}}}}},
    template(containers=[{"name": "c1", "image": "z"}]),
    template(containers=[{"name": "c3", "image": "z"}]),
    template(containers=[{"$patch": "delete", "name": "c1"}]),
    template(containers=[{"$patch": "replace"}, {"name": "n", "image": "q"}]),
    template(containers=[{"image": "q"}]),
    template(containers=[5]),
    template(containers=[{"name": "c1", "$patch": "bad"}]),
    template(containers=[{"name": "c1", "$patch": "merge", "image": "r"}]),
    template(containers=[{"name": "c1", "args": ["2"]}]),
    template(containers=[{"name": "c1", "env": None}]),
    template(containers=[{"name": "c1", "env": [{"name": "A", "$patch": "delete"}, {"name": "C", "value": "3"}]}]),
    template(containers=[{"name": "c1", "ports": [{"containerPort": 81}, {"containerPort": 80, "name": "http"}]}]),
    template(tolerations=[{"key": "q", "operator": "Exists"}]),
    template(volumes=[{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]),
    template(volumes=[{"name": "v2", "$retainKeys": ["name", "emptyDir"], "emptyDir": {"medium": None}}]),
    template(volumes=[{"name": "v2", "emptyDir": {}, "$patch": "delete"}]),
    template(volumes=None),
    template(nodeSelector={"a": "b", "c": None}),
    template(securityContext={"$patch": "replace", "runAsUser": 5}),
    template(**{"$setElementOrder/containers": [{"name": "c2"}, {"name": "c1"}]}),
    template(**{"$setElementOrder/containers": "x"}),
    template(
        **{
            "$setElementOrder/containers": [{"name": "c2"}, {"name": "new"}],
            "containers": [{"name": "new", "image": "q"}],
        }
    ),
    template(**{"$setElementOrder/containers": [{"name": "c2"}], "containers": [{"name": "new", "image": "q"}]}),
]


@pytest.fixture(scope="module")
def deployment(real: Real) -> Iterator[Json]:
    pod = {
        "containers": [
            {
                "name": "c1",
                "image": "x",
                "args": ["1"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"containerPort": 80}],
            },
            {"name": "c2", "image": "y"},
        ],
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    }
    manifest = manifests.workload("Deployment", template={"metadata": {"labels": {"a": "b"}}, "spec": pod})
    manifest["metadata"] = {"name": "patched", "labels": {"a": "1", "b": "2"}}
    _, path = place(manifest)
    status, made = real.ask("POST", path, manifest)
    assert status == 201, made
    yield made
    real.ask("DELETE", f"{path}/patched")


@pytest.mark.parametrize("patch", STRATEGIC, ids=lambda patch: json.dumps(patch)[-60:])
def test_a_strategic_merge_gives_what_the_real_server_gives(real: Real, deployment: Json, patch: Json) -> None:
    resource, path = place(deployment)
    status, answer = real.ask("PATCH", f"{path}/patched?dryRun=All", patch, "application/strategic-merge-patch+json")
    shape = schema.for_kind("apps", "v1", "Deployment")
    assert shape is not None
    ours: Json = {}
    try:
        ours = read(resource, patches.strategic_merge(shape, deployment, patch))
    except patches.PatchFailed as problem:
        refused = (problem.code, str(problem))
    else:
        refused = (200, "")
    assert refused == (status, answer.get("message", ""))
    if status != 200:
        return
    for obj in (ours, answer):
        without_the_servers_own("Deployment", obj)
    assert ours == answer


JSON_PATCHES: list[Any] = [
    [{"op": "test", "path": "/data/a", "value": "2"}],
    [{"op": "test", "path": "/data/zz", "value": None}],
    [{"op": "remove", "path": "/data/zz"}],
    [{"op": "remove", "path": ""}],
    [{"op": "add", "path": "", "value": {}}],
    [{"op": "test", "path": "", "value": {}}],
    [{"op": "copy", "from": "", "path": "/data/q"}],
    [{"op": "add", "path": "x/data/b", "value": "2"}],
    [{"op": "remove", "path": "/metadata/managedFields/--1"}],
    [{"op": "remove", "path": "/metadata/managedFields/+0"}],
    [{"op": "replace", "path": "/data/zz", "value": "x"}],
    [{"op": "add", "path": "/x/y", "value": 1}],
    [{"op": "add", "path": "data", "value": 1}],
    [{"op": "add", "path": "/data/b"}],
    [
        {"op": "add", "path": "/metadata/finalizers", "value": ["a/b"]},
        {"op": "add", "path": "/metadata/finalizers/-1", "value": "a/c"},
    ],
    [{"op": "add", "path": "/metadata/finalizers/5", "value": "x"}],
    [{"op": "copy", "from": "/data/a", "path": "/data/q"}],
    [{"op": "copy", "from": "/zz", "path": "/data/q"}],
    [{"op": "move", "from": "/data/a", "path": "/data/q"}],
    [{"op": "move", "from": "/zz", "path": "/data/q"}],
    [{"op": "foo", "path": "/data"}],
    [{"path": "/data"}],
    {"a": 1},
    [5],
    [],
]


@pytest.mark.parametrize("patch", JSON_PATCHES, ids=json.dumps)
def test_a_json_patch_gives_what_the_real_server_gives(real: Real, patch: Any) -> None:
    manifest = manifests.thing("ConfigMap", name="patched", data={"a": "1"})
    resource, path = place(manifest)
    real.ask("POST", path, manifest)
    live = real.ask("GET", f"{path}/patched")[1]
    status, answer = real.ask("PATCH", f"{path}/patched?dryRun=All", patch, "application/json-patch+json")
    ours: Json = {}
    try:
        ours = read(resource, patches.json_patch(live, patch))
    except patches.PatchFailed as problem:
        refused = (problem.code, problem.reason, str(problem))
    else:
        refused = (200, "", "")
    assert refused == (status, answer.get("reason", ""), answer.get("message", ""))
    if status != 200:
        return
    for obj in (ours, answer):
        obj["metadata"].pop("managedFields", None)
    assert ours == answer


def managers(obj: Json) -> list[Json]:
    """Without the times, and in an order that does not depend on them."""
    entries = obj["metadata"].get("managedFields", ())
    timeless = [{key: value for key, value in entry.items() if key != "time"} for entry in entries]
    return sorted(timeless, key=lambda entry: (entry["operation"], entry["manager"], entry.get("subresource", "")))


def is_about(obj: Json) -> Json:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status", "apiVersion", "kind")}


@pytest.mark.parametrize("name", stories.STORIES)
def test_owners_are_recorded_as_the_real_server_does(real: Real, name: str) -> None:
    steps = stories.STORIES[name]
    resource, path = place(steps[0].body)
    shape = schema.for_kind(resource.group, resource.version, resource.kind)
    assert shape is not None
    mine: Json = {"api_version": resource.api_version, "time": "2026-01-02T03:04:05Z"}
    live: Json | None = None
    try:
        for how, who, body in steps:
            query = f"fieldManager={who}"
            match how:
                case "create":
                    status, answer = real.ask("POST", f"{path}?{query}", body)
                case "apply" | "force":
                    force = "true" if how == "force" else "false"
                    apply = "application/apply-patch+yaml"
                    status, answer = real.ask("PATCH", f"{path}/a?{query}&force={force}", body, apply)
                case "merge":
                    status, answer = real.ask("PATCH", f"{path}/a?{query}", body, "application/merge-patch+json")
                case _:
                    status, answer = real.ask("PATCH", f"{path}/a/status?{query}", body, "application/merge-patch+json")
            before = live
            try:
                if how in ("apply", "force"):
                    made = managed.apply(shape, before, body, manager=who, force=how == "force", **mine)
                    ours = read(resource, made)
                else:
                    ours = read(resource, body if before is None else patches.merge_patch(before, body))
                    subresource = "status" if how == "status" else ""
                    ours["metadata"]["managedFields"] = managed.record_update(
                        shape, before, ours, manager=who, subresource=subresource, **mine
                    )
            except managed.ApplyConflict as conflict:
                told = [("FieldManagerConflict", each.message, each.field) for each in conflict.conflicts]
                causes = [(each["reason"], each["message"], each["field"]) for each in answer["details"]["causes"]]
                refused = (409, str(conflict), told)
                assert refused == (status, answer["message"], causes)
                continue
            assert status in (200, 201), answer["message"]
            assert managers(ours) == managers(answer)
            assert is_about(ours) == is_about(without_the_servers_own(resource.kind, {**answer, "metadata": {}}))
            # Goes on with what the server stored, so that its own additions are no difference.
            live = answer
    finally:
        real.ask("PATCH", f"{path}/a", {"metadata": {"finalizers": None}}, "application/merge-patch+json")
        real.ask("DELETE", f"{path}/a?gracePeriodSeconds=0")


@pytest.mark.parametrize("name", manifests.GOOD)
def test_a_creator_owns_what_the_real_server_says(real: Real, name: str) -> None:
    manifest = json.loads(json.dumps(manifests.GOOD[name]).replace("NAMESPACE", NAMESPACE))
    resource, path = place(manifest)
    shape = schema.for_kind(resource.group, resource.version, resource.kind)
    assert shape is not None
    mine: Json = {"manager": "me", "api_version": resource.api_version, "time": "2026-01-02T03:04:05Z"}
    status, created = real.ask("POST", f"{path}?dryRun=All&fieldManager=me", manifest)
    assert status == 201
    # An empty list and none at all are the same to us; the server says the writer owns the former.
    if name not in ("empty slice", "role of nothing"):
        ours = read(resource, manifest)
        ours["metadata"]["managedFields"] = managed.record_update(shape, None, ours, **mine)
        assert managers(ours) == managers(created)
    target = f"{path}/{manifest['metadata']['name']}?dryRun=All&fieldManager=me"
    status, applied = real.ask("PATCH", target, manifest, "application/apply-patch+yaml")
    assert status == 201
    assert managers(managed.apply(shape, None, manifest, **mine)) == managers(applied)


def causes(answer: Json) -> set[tuple[str, str, str]]:
    found = (answer.get("details") or {}).get("causes") or ()
    return {(each["reason"], each["field"], first_line(each["message"])) for each in found}


def first_line(text: str) -> str:
    """Some refusals end in Go's own picture of the difference, or quote a whole internal struct: not ours to draw."""
    line = text.split("\n")[0]
    return re.sub(r'Invalid value: \{("metadata"|"labels").*\}: ', "Invalid value: …: ", line)


@pytest.mark.parametrize("name", mistakes.MISTAKES)
def test_a_mistake_gets_the_real_servers_causes(real: Real, name: str) -> None:
    manifest = mistakes.MISTAKES[name]
    resource, path = place(manifest)
    status, answer = real.ask("POST", f"{path}?dryRun=All", manifest)
    ours = read(resource, manifest)
    if resource.namespaced:
        ours["metadata"]["namespace"] = NAMESPACE
    found = validate.validate_create(resource.group, resource.version, resource.kind, ours)
    assert {tuple(each) for each in found} == causes(answer)
    assert status == (422 if found else 201), answer.get("message")


@pytest.mark.parametrize("name", manifests.GOOD)
def test_a_good_object_is_good(name: str) -> None:
    manifest = json.loads(json.dumps(manifests.GOOD[name]).replace("NAMESPACE", NAMESPACE))
    resource, _ = place(manifest)
    ours = read(resource, manifest)
    if resource.namespaced:
        ours["metadata"]["namespace"] = NAMESPACE
    assert validate.validate_create(resource.group, resource.version, resource.kind, ours) == []


@pytest.mark.parametrize("name", mistakes.CHANGES)
def test_a_change_gets_the_real_servers_causes(real: Real, name: str) -> None:
    manifest, patch = mistakes.CHANGES[name]
    resource, path = place(manifest)
    status, live = real.ask("POST", path, manifest)
    assert status == 201, live["message"]
    target = f"{path}/{manifest['metadata']['name']}"
    try:
        status, answer = real.ask("PATCH", f"{target}?dryRun=All", patch, "application/merge-patch+json")
    finally:
        real.ask("PATCH", target, {"metadata": {"finalizers": None}}, "application/merge-patch+json")
        real.ask("DELETE", f"{target}?gracePeriodSeconds=0&propagationPolicy=Background")
    before = read(resource, live)
    after = read(resource, patches.merge_patch(live, patch))
    found = validate.validate_update(resource.group, resource.version, resource.kind, after, before)
    assert {(each.type, each.field, first_line(each.message)) for each in found} == causes(answer)
    assert status == (422 if found else 200), answer.get("message")


@pytest.fixture(scope="module")
def probes(real: Real) -> Iterator[str]:
    """The path of the table's custom kind, served by the real server."""
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    status, answer = real.ask("POST", definitions, customs.DEFINITION)
    assert status == 201, answer["message"]
    path = f"/apis/example.com/v1/namespaces/{NAMESPACE}/probes"
    until(
        lambda: real.ask("GET", path)[0] == 200 and real.ask("POST", f"{path}?dryRun=All", customs.probe())[0] == 201,
        30,
    )
    yield path
    real.ask("DELETE", f"{definitions}/{customs.DEFINITION['metadata']['name']}")


KIND = CustomKind(customs.DEFINITION)


def read_probe(manifest: Json) -> tuple[Json, list[str]]:
    found = schema.decode(KIND.schema("v1"), manifest, schema.kind_label("Probe", "v1"))
    value: Json = found.value
    KIND.default("v1", value)
    value["metadata"]["namespace"] = NAMESPACE
    return value, found.unknown


@pytest.mark.parametrize("spec", customs.SPECS, ids=json.dumps)
def test_a_custom_object_is_judged_as_the_real_server_does(real: Real, probes: str, spec: Json) -> None:
    manifest = customs.probe(**spec)
    status, answer = real.ask("POST", f"{probes}?dryRun=All", manifest)
    ours, _ = read_probe(manifest)
    found = KIND.validate("v1", ours)
    assert {tuple(each) for each in found} == causes(answer)
    assert status == (422 if found else 201)
    if status == 201:
        assert ours["spec"] == answer["spec"]
        fields = managed.record_update(
            KIND.schema("v1"), None, ours, manager="me", api_version="example.com/v1", time="x"
        )
        created = real.ask("POST", f"{probes}?dryRun=All&fieldManager=me", manifest)[1]
        assert managers({"metadata": {"managedFields": fields}}) == managers(created)


def test_unknown_fields_of_a_custom_object_are_told_in_the_same_words(real: Real, probes: str) -> None:
    manifest = customs.probe(unknown=1, kv={"a": 1}, map=[{"name": "a", "zz": 1}])
    status, answer = real.ask("POST", f"{probes}?dryRun=All&fieldValidation=Strict", manifest)
    assert status == 400
    unknown = read_probe(manifest)[1]
    label = schema.kind_label("Probe", "v1")
    assert f"{label}: {schema.strict_problem([], unknown)}" == answer["message"]


@pytest.mark.parametrize("patch", customs.CHANGES, ids=json.dumps)
def test_a_changed_custom_object_is_judged_as_the_real_server_does(real: Real, probes: str, patch: Json) -> None:
    status, live = real.ask("POST", probes, customs.STORED)
    assert status == 201, live["message"]
    try:
        status, answer = real.ask("PATCH", f"{probes}/a?dryRun=All", patch, "application/merge-patch+json")
    finally:
        real.ask("DELETE", f"{probes}/a")
    ours, _ = read_probe(patches.merge_patch(live, patch))
    found = KIND.validate("v1", ours, live)
    assert {tuple(each) for each in found} == causes(answer)
    assert status == (422 if found else 200)


@pytest.mark.parametrize("name", customs.BAD_DEFINITIONS)
def test_a_bad_definition_gets_the_real_servers_causes(real: Real, name: str) -> None:
    manifest = customs.BAD_DEFINITIONS[name]
    resource, path = place(manifest)
    status, answer = real.ask("POST", f"{path}?dryRun=All", manifest)
    found = validate.validate_create(resource.group, resource.version, resource.kind, read(resource, manifest))
    assert {(each.type, each.field, first_line(each.message)) for each in found} == causes(answer)
    assert status == 422


UNTYPED = [
    manifests.pod(foo=1),
    manifests.pod(containers="x"),
    manifests.pod(containers=[5]),
    manifests.pod(containers=[manifests.CONTAINER, manifests.CONTAINER]),
    manifests.pod(hostNetwork="x"),
    manifests.pod(priority="x"),
    manifests.pod(nodeSelector={"a": 1}),
    manifests.pod(tolerations=[{"key": 5}]),
    {**manifests.pod(), "metadata": {"name": "a", "labels": "x"}},
    {**manifests.pod(), "metadata": {"name": "a", "finalizers": ["a/b", "a/b"]}},
    {**manifests.pod(), "spec": 5},
]


@pytest.mark.parametrize("manifest", UNTYPED, ids=lambda manifest: json.dumps(manifest)[-50:])
def test_an_apply_of_the_wrong_types_is_refused_in_the_real_servers_words(real: Real, manifest: Json) -> None:
    resource, path = place(manifest)
    shape = schema.for_kind(resource.group, resource.version, resource.kind)
    assert shape is not None
    target = f"{path}/a?dryRun=All&fieldManager=me"
    status, answer = real.ask("PATCH", target, manifest, "application/apply-patch+yaml")
    with pytest.raises(Failure) as caught:
        check_as(shape, manifest["apiVersion"], resource.kind, manifest)
    assert (status, caught.value.code, caught.value.message) == (500, 500, answer["message"])


SHAPELESS: list[Json] = [
    {"spec": 5},
    {"spec": {"template": []}},
    {"spec": {"paused": "x"}},
    {"spec": {"replicas": "x"}},
    {"spec": {"replicas": 1.5}},
    {"spec": {"replicas": {}}},
    template(restartPolicy=5),
    template(restartPolicy=True),
    template(containers="x"),
    template(containers={"a": 1}),
    template(nodeSelector={"a": 1}),
    template(nodeSelector=5),
    template(tolerations=[5]),
    template(tolerations=[{"key": {}}]),
    template(containers=[{"name": "c1", "command": [5]}]),
    template(containers=[{"name": "c1", "resources": {"requests": {"cpu": "zz"}}}]),
    {"metadata": {"labels": []}},
    {"metadata": {"creationTimestamp": "x"}},
]


@pytest.mark.parametrize("patch", SHAPELESS, ids=json.dumps)
def test_a_patch_that_breaks_the_shape_is_told_in_the_real_servers_words(
    real: Real, deployment: Json, patch: Json
) -> None:
    _, path = place(deployment)
    status, answer = real.ask("PATCH", f"{path}/patched?dryRun=All", patch, "application/strategic-merge-patch+json")
    shape = schema.for_kind("apps", "v1", "Deployment")
    assert shape is not None
    problem = patches.strategic_problem(shape, patches.strategic_merge(shape, deployment, patch))
    assert status == 422
    assert f'Invalid value: "{go_text(patch)}": {problem}' == answer["details"]["causes"][0]["message"]
