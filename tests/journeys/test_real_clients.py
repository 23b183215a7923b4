"""The real kube-scheduler, kube-controller-manager and the official Python client on the embedded API server.

Our own placement and controllers are off. The long form is `scripts/soak clients`.
"""

import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client.exceptions import ApiException

from tests.rigs.kube.servers import until
from tests.soak.clients import Cluster, client, cluster, complaints, deployment, dynamic, load, pod_spec, watch

PROCESSES, SIMULATED = 2, 3
APPLY = "application/apply-patch+yaml"


@pytest.fixture(scope="module")
def real(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("real-clients")
    with cluster(kube_programs, home, nodes=PROCESSES, simulated=SIMULATED) as running:
        yield running
        assert running.complaints() == []


@pytest.fixture(scope="module")
def api(real: Cluster) -> Iterator[Any]:
    with real.api() as official:
        yield official


@pytest.fixture
def namespace(real: Cluster, api: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    core = client.CoreV1Api(api)
    name = f"test-{zlib.crc32(request.node.name.encode())}"
    core.create_namespace({"metadata": {"name": name}})
    assert until(lambda: bool(core.list_namespaced_service_account(name).items), 30)
    yield name
    core.delete_namespace(name)


def manifest(kind: str, spec: dict[str, Any]) -> str:
    metadata = {"name": "app", "labels": {"app": "app"}}
    template = {"metadata": {"labels": {"app": "app"}}, "spec": spec}
    body = {"selector": {"matchLabels": {"app": "app"}}, "template": template}
    return yaml.safe_dump({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": body})


@pytest.mark.parametrize("provider", ["process", "simulated"])
def test_a_deployment_rolls_out_scales_restarts_and_goes(real: Cluster, namespace: str, provider: str) -> None:
    def kubectl(*arguments: str, stdin: str | None = None) -> str:
        return real.kubectl("-n", namespace, *arguments, stdin=stdin)

    def replicas(path: str = "{.items[*].metadata.name}") -> list[str]:
        return kubectl("get", "pods", "-o", f"jsonpath={path}").split()

    kubectl("apply", "-f", "-", stdin=manifest("Deployment", pod_spec(provider)))
    for count in (4, 1):
        kubectl("scale", "deployment/app", f"--replicas={count}")
        kubectl("rollout", "status", "deployment/app", "--timeout=120s")
        assert until(lambda: len(replicas()) == count, 30)  # noqa: B023
    before = replicas()
    kubectl("rollout", "restart", "deployment/app")
    kubectl("rollout", "status", "deployment/app", "--timeout=120s")
    assert until(lambda: len(replicas()) == 1 and replicas() != before, 30)
    prefix = {"process": "node-", "simulated": "sim-"}[provider]
    assert all(node.startswith(prefix) for node in replicas("{.items[*].spec.nodeName}"))
    kubectl("rollout", "undo", "deployment/app")
    kubectl("rollout", "status", "deployment/app", "--timeout=120s")
    kubectl("delete", "deployment/app")
    assert until(lambda: kubectl("get", "pods,replicasets", "-o", "name") == "", 30)


def test_a_daemon_set_runs_on_every_node_restarts_and_goes(real: Cluster, namespace: str) -> None:
    def kubectl(*arguments: str, stdin: str | None = None) -> str:
        return real.kubectl("-n", namespace, *arguments, stdin=stdin)

    def nodes() -> list[str]:
        return kubectl("get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}").split()

    everywhere = {key: value for key, value in pod_spec().items() if key != "nodeSelector"}
    kubectl("apply", "-f", "-", stdin=manifest("DaemonSet", everywhere))
    kubectl("rollout", "status", "daemonset/app", "--timeout=120s")
    assert len(nodes()) == len(set(nodes())) == PROCESSES + SIMULATED
    kubectl("rollout", "restart", "daemonset/app")
    kubectl("rollout", "status", "daemonset/app", "--timeout=120s")
    some = {"spec": {"template": {"spec": {"nodeSelector": {"fairlead.io/provider": "process"}}}}}
    kubectl("patch", "daemonset/app", "-p", json.dumps(some))
    assert until(lambda: sorted(nodes()) == ["node-1", "node-2"], 30)
    kubectl("delete", "daemonset/app", "--cascade=foreground")
    assert until(lambda: kubectl("get", "pods,controllerrevisions", "-o", "name") == "", 30)


def test_a_namespace_goes_with_everything_in_it(real: Cluster, api: Any) -> None:
    core = client.CoreV1Api(api)
    real.kubectl("create", "namespace", "full")
    assert until(lambda: bool(core.list_namespaced_service_account("full").items), 30)
    real.kubectl("-n", "full", "apply", "-f", "-", stdin=manifest("Deployment", pod_spec("process")))
    real.kubectl("-n", "full", "expose", "deployment/app", "--port=80")
    real.kubectl("-n", "full", "create", "configmap", "settings", "--from-literal=a=b")
    real.kubectl("-n", "full", "create", "job", "once", "--image=busybox", "--", "true")
    real.kubectl("-n", "full", "rollout", "status", "deployment/app", "--timeout=120s")
    real.kubectl("-n", "full", "wait", "--for=condition=Complete", "job/once", "--timeout=120s")
    slices = ("-n", "full", "get", "endpointslices", "-o", "jsonpath={.items[*].endpoints[*].addresses[0]}")
    assert until(lambda: len(real.kubectl(*slices).split()) == 1, 30)
    real.kubectl("delete", "namespace", "full", "--timeout=120s")
    assert "full" not in [each.metadata.name for each in core.list_namespace().items]
    with pytest.raises(ApiException, match="Not Found"):
        core.read_namespaced_config_map("settings", "full")


def test_everything_is_bound_and_then_gone_after_a_storm(real: Cluster) -> None:
    assert load(real, seconds=8, clients=3, seed=100) == []


# --- the official client ----------------------------------------------------------------------------------------


def test_objects_are_made_read_listed_in_pages_selected_replaced_and_deleted(api: Any, namespace: str) -> None:
    core = client.CoreV1Api(api)
    for number in range(7):
        labels = {"parity": "even" if number % 2 == 0 else "odd"}
        metadata = client.V1ObjectMeta(name=f"c{number}", labels=labels)
        core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=metadata, data={"n": str(number)}))
    even = core.list_namespaced_config_map(namespace, label_selector="parity in (even)").items
    assert [each.metadata.name for each in even] == ["c0", "c2", "c4", "c6"]
    named = core.list_namespaced_config_map(namespace, field_selector="metadata.name=c3").items
    assert [each.data for each in named] == [{"n": "3"}]
    first = core.list_namespaced_config_map(namespace, limit=3, label_selector="parity")
    rest = core.list_namespaced_config_map(
        namespace, limit=10, label_selector="parity", _continue=first.metadata._continue
    )
    assert [each.metadata.name for each in first.items + rest.items] == [f"c{n}" for n in range(7)]
    held = core.read_namespaced_config_map("c0", namespace)
    held.data["n"] = "10"
    assert core.replace_namespaced_config_map("c0", namespace, held).data == {"n": "10"}
    with pytest.raises(ApiException, match="Conflict"):
        core.replace_namespaced_config_map("c0", namespace, held)
    core.delete_collection_namespaced_config_map(namespace, label_selector="parity=odd")
    assert len(core.list_namespaced_config_map(namespace, label_selector="parity").items) == 4
    secret = client.V1Secret(metadata=client.V1ObjectMeta(generate_name="s-"), string_data={"key": "word"})
    made = core.create_namespaced_secret(namespace, secret)
    assert made.metadata.name.startswith("s-")
    assert made.data == {"key": "d29yZA=="}
    service = {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}
    assert core.create_namespaced_service(namespace, service).spec.cluster_ip
    with pytest.raises(ApiException, match="Unprocessable"):
        core.create_namespaced_service(namespace, {"metadata": {"name": "bad"}, "spec": {"ports": [{"port": 0}]}})


@pytest.mark.parametrize(
    ("kind", "body", "wanted"),
    [
        ("application/json-patch+json", [{"op": "replace", "path": "/data/a", "value": "2"}], {"a": "2", "b": "1"}),
        ("application/merge-patch+json", {"data": {"a": None}}, {"b": "1"}),
        ("application/strategic-merge-patch+json", {"data": {"c": "3"}}, {"a": "1", "b": "1", "c": "3"}),
    ],
)
def test_patches_of_every_type_are_taken(
    api: Any, namespace: str, kind: str, body: Any, wanted: dict[str, str]
) -> None:
    core = client.CoreV1Api(api)
    core.create_namespaced_config_map(namespace, {"metadata": {"name": "c"}, "data": {"a": "1", "b": "1"}})
    assert core.patch_namespaced_config_map("c", namespace, body, _content_type=kind).data == wanted


def test_server_side_apply_tells_a_conflict_and_can_be_forced(api: Any, namespace: str) -> None:
    core = client.CoreV1Api(api)

    def apply(manager: str, value: str, force: bool) -> Any:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": value}}
        return core.patch_namespaced_config_map(
            "c", namespace, body, field_manager=manager, force=force, _content_type=APPLY
        )

    assert apply("one", "1", force=False).data == {"a": "1"}
    with pytest.raises(ApiException, match='conflict with \\\\"one\\\\"'):
        apply("two", "2", force=False)
    taken = apply("two", "2", force=True)
    assert (taken.data, [each.manager for each in taken.metadata.managed_fields]) == ({"a": "2"}, ["two"])


def test_a_watch_tells_what_happens_from_where_the_list_ended(api: Any, namespace: str) -> None:
    core = client.CoreV1Api(api)
    since = core.list_namespaced_config_map(namespace).metadata.resource_version
    core.create_namespaced_config_map(namespace, {"metadata": {"name": "c", "labels": {"mine": ""}}})
    core.patch_namespaced_config_map("c", namespace, {"data": {"a": "1"}})
    core.delete_namespaced_config_map("c", namespace)
    stream = watch.Watch().stream(
        core.list_namespaced_config_map, namespace, resource_version=since, label_selector="mine", timeout_seconds=1
    )
    assert [(each["type"], each["object"].data) for each in stream] == [
        ("ADDED", None),
        ("MODIFIED", {"a": "1"}),
        ("DELETED", {"a": "1"}),
    ]


def test_a_deployment_is_scaled_its_pod_evicted_and_its_log_read(api: Any, namespace: str) -> None:
    core, apps, policy = client.CoreV1Api(api), client.AppsV1Api(api), client.PolicyV1Api(api)
    body = deployment("web", 1)
    spec = pod_spec("process")
    spec["containers"][0]["command"] = ["sh", "-c", "echo hello; sleep 1000"]
    body["spec"]["template"]["spec"] = spec
    apps.create_namespaced_deployment(namespace, body)
    apps.patch_namespaced_deployment_scale("web", namespace, {"spec": {"replicas": 2}})
    assert apps.read_namespaced_deployment_scale("web", namespace).spec.replicas == 2

    def available(count: int) -> Callable[[], bool]:
        return lambda: apps.read_namespaced_deployment_status("web", namespace).status.available_replicas == count

    assert until(available(2), 60)
    one, two = core.list_namespaced_pod(namespace, label_selector="app=web").items
    assert until(lambda: core.read_namespaced_pod_log(one.metadata.name, namespace) == "hello\n", 30)
    budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}}
    policy.create_namespaced_pod_disruption_budget(namespace, budget)

    def evict() -> Any:
        asked = {"metadata": {"name": two.metadata.name}}
        return core.create_namespaced_pod_eviction(two.metadata.name, namespace, asked)

    def observed() -> bool:
        status = policy.read_namespaced_pod_disruption_budget("web", namespace).status
        return bool(status and status.current_healthy == 2)

    assert until(observed, 30)
    with pytest.raises(ApiException, match="Too Many Requests"):
        evict()
    policy.delete_namespaced_pod_disruption_budget("web", namespace)
    evict()

    def replaced() -> bool:
        return two.metadata.name not in [each.metadata.name for each in core.list_namespaced_pod(namespace).items]

    assert until(replaced, 30)
    assert until(available(2), 60)


def test_a_custom_kind_is_defined_found_by_discovery_and_used(api: Any, namespace: str) -> None:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {"size": {"type": "integer", "default": 3}},
                "x-kubernetes-validations": [{"rule": "self.size < 10", "message": "too large"}],
            }
        },
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definition = {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [version],
        },
    }
    definitions, custom = client.ApiextensionsV1Api(api), client.CustomObjectsApi(api)
    definitions.create_custom_resource_definition(definition)

    def is_established() -> bool:
        status = definitions.read_custom_resource_definition("widgets.example.com").status
        return any(each.type == "Established" and each.status == "True" for each in status.conditions or ())

    assert until(is_established, 30)
    where = ("example.com", "v1", namespace, "widgets")
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}}
    assert custom.create_namespaced_custom_object(*where, body)["spec"] == {"size": 3}
    with pytest.raises(ApiException, match="too large"):
        custom.patch_namespaced_custom_object(*where, "w", {"spec": {"size": 11}})
    assert custom.patch_namespaced_custom_object(*where, "w", {"spec": {"size": 4}})["spec"] == {"size": 4}
    found = dynamic.DynamicClient(api)
    widgets = found.resources.get(api_version="example.com/v1", kind="Widget")
    assert [each.spec.size for each in widgets.get(namespace=namespace).items] == [4]
    pods = found.resources.get(api_version="v1", kind="Pod")
    assert (pods.name, pods.namespaced, "eviction" in pods.subresources) == ("pods", True, True)
    config_maps = found.resources.get(api_version="v1", kind="ConfigMap")
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
    made = config_maps.server_side_apply(applied, namespace=namespace, field_manager="me")
    assert made.data.a == "1"
    definitions.delete_custom_resource_definition("widgets.example.com")

    def is_gone() -> bool:
        try:
            custom.list_namespaced_custom_object(*where)
        except ApiException as problem:
            return bool(problem.status == 404)
        return False

    assert until(is_gone, 30)


def test_a_complaint_is_a_warning_or_an_error_that_nobody_expects(tmp_path: Path) -> None:
    log = tmp_path / "program.log"
    log.write_text(
        "I1115 23:20:16.1 1 a.go:1] fine\n"
        "E1115 23:20:16.1 1 options.go:205] The manifest file is empty, ignoring.\n"
        'E1115 23:20:16.1 1 reflector.go:227] "Failed to watch" err="unable to decode"\n'
        "panic: oh\n"
    )
    assert [line.split(": ", 1)[1][:6] for line in complaints(log)] == ["panic:", "E1115 "]
