"""Environments and volumes with everything they refer to filled in."""

import base64
import time
from typing import Any

import msgspec
import pytest

from fairlead.nodes.env import Missing, Sources, container_env, expand, expand_all, sub_path
from fairlead.nodes.provider import File, Folder
from fairlead.nodes.spec import ConfigMap, PersistentVolume, Secret, VolumeMount
from fairlead.nodes.volumes import env_needs, pod_volumes, volume_needs
from tests.nodes.kit import container, pod


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)", "x1y2"),
        ("$(NO)", "$(NO)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A", "$A"),
        ("$(A", "$(A"),
        ("cost: 5$", "cost: 5$"),
        ("$$", "$"),
    ],
)
def test_expansion(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expected


def config_map(**data: str) -> ConfigMap:
    return msgspec.convert({"metadata": {"name": "c"}, "data": data}, ConfigMap)


def secret(**data: str) -> Secret:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return msgspec.convert({"metadata": {"name": "s"}, "data": encoded}, Secret)


def persistent_volume(**spec: Any) -> PersistentVolume:
    return msgspec.convert({"metadata": {"name": "v"}, "spec": spec}, PersistentVolume)


SOURCES = Sources(
    config_maps={"c": config_map(key="mapped", more="more"), "large": config_map(key="x" * 600_000), "no": None},
    secrets={"s": secret(key="hidden"), "no": None},
    services={"WEB_SERVICE_HOST": "127.96.0.1"},
    tokens={("", 3600): "token", ("vault", 600): "other"},
    claims={
        "c": persistent_volume(hostPath={"path": "/srv/c"}),
        "p-v": persistent_volume(local={"path": "/srv/brought"}),
        "far": persistent_volume(nfs={"server": "x"}),
        "early": "not bound",
    },
    pod_ip="127.64.0.9",
    host_ip="127.0.0.1",
    allocatable={"cpu": "4", "memory": "8Gi"},
)


def env(*variables: dict[str, Any], **rest: Any) -> dict[str, str]:
    played = pod(
        containers=[container(env=list(variables), **rest)],
        metadata={"labels": {"app": "web"}, "annotations": {"note": 'a "b"'}},
        serviceAccountName="robot",
    )
    return container_env(played, played.spec.containers[0], SOURCES)


def field(path: str) -> dict[str, Any]:
    return {"name": "V", "valueFrom": {"fieldRef": {"fieldPath": path}}}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "uid-p"),
        ("metadata.labels['app']", "web"),
        ("metadata.annotations['note']", 'a "b"'),
        ("spec.nodeName", "node"),
        ("spec.serviceAccountName", "robot"),
        ("status.podIP", "127.64.0.9"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_fields_of_the_pod(path: str, expected: str) -> None:
    assert env(field(path))["V"] == expected


@pytest.mark.parametrize(
    ("resource", "divisor", "expected"),
    [
        ("requests.cpu", "1m", "250"),
        ("requests.cpu", "0", "1"),
        ("limits.memory", "1Mi", "64"),
        ("limits.cpu", "1", "4"),
        ("requests.memory", "1", "0"),
    ],
)
def test_resources_of_the_container(resource: str, divisor: str, expected: str) -> None:
    wanted = {"name": "V", "valueFrom": {"resourceFieldRef": {"resource": resource, "divisor": divisor}}}
    resources = {"requests": {"cpu": "250m"}, "limits": {"memory": "64Mi"}}
    assert env(wanted, resources=resources)["V"] == expected


def test_variables_may_use_those_before_them_and_services() -> None:
    found = env({"name": "A", "value": "1"}, {"name": "B", "value": "$(A)-$(WEB_SERVICE_HOST)-$(C)"}, {"name": "C"})
    assert (found["B"], found["C"]) == ("1-127.96.0.1-$(C)", "")


DOUBLING = [{"name": "A0", "value": "x" * 100}] + [
    {"name": f"A{number}", "value": f"$(A{number - 1})" * 2} for number in range(1, 40)
]


def test_variables_of_variables_of_variables_do_not_fill_the_memory() -> None:
    with pytest.raises(Missing, match="the environment is larger than 2097152 bytes"):
        env(*DOUBLING)
    with pytest.raises(Missing, match="the command line is larger than 2097152 bytes"):
        expand_all(("$(A)",) * 1000, {"A": "x" * 100_000})
    with pytest.raises(Missing, match="the environment is larger"):
        env(envFrom=[{"prefix": f"P{number}_", "configMapRef": {"name": "large"}} for number in range(4)])


def test_references_that_nobody_closes_are_read_once() -> None:
    began = time.process_time()
    assert expand("$(" * 400_000, {}) == "$(" * 400_000
    assert time.process_time() - began < 2.0


def test_keys_and_whole_maps() -> None:
    keyed = {"name": "V", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}}
    found = env(keyed, envFrom=[{"configMapRef": {"name": "c"}}, {"prefix": "S_", "secretRef": {"name": "s"}}])
    assert (found["V"], found["key"], found["more"], found["S_key"]) == ("hidden", "mapped", "more", "hidden")


def test_what_is_optional_may_be_missing() -> None:
    optional = {"name": "V", "valueFrom": {"configMapKeyRef": {"name": "no", "key": "k", "optional": True}}}
    assert "V" not in env(optional, envFrom=[{"secretRef": {"name": "no", "optional": True}}])


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"configMapKeyRef": {"name": "no", "key": "k"}}, 'configmap "no" not found'),
        ({"configMapKeyRef": {"name": "c", "key": "k"}}, "couldn't find key k in ConfigMap ns/c"),
        ({"secretKeyRef": {"name": "no", "key": "k"}}, 'secret "no" not found'),
        ({"fieldRef": {"fieldPath": "spec.color"}}, "unsupported fieldPath"),
    ],
)
def test_what_is_missing_is_named(source: dict[str, Any], said: str) -> None:
    with pytest.raises(Missing, match=said):
        env({"name": "V", "valueFrom": source})


def volume(**source: Any) -> Folder:
    played = pod(volumes=[{"name": "v", **source}], metadata={"labels": {"app": "web", "tier": "1"}})
    return pod_volumes(played, SOURCES)["v"]


def test_maps_and_secrets_become_files() -> None:
    assert volume(configMap={"name": "c"}).files == {"key": File(b"mapped"), "more": File(b"more")}
    items = [{"key": "key", "path": "deep/file", "mode": 0o400}]
    assert volume(secret={"secretName": "s", "items": items}).files == {"deep/file": File(b"hidden", 0o400)}
    assert volume(configMap={"name": "no", "optional": True}).files == {}


@pytest.mark.parametrize(("mode", "kept"), [(0o644, 0o600), (0o444, 0o400), (0o755, 0o700), (None, 0o600)])
def test_secrets_and_tokens_are_for_their_owner_alone(mode: int | None, kept: int) -> None:
    assert volume(secret={"secretName": "s", "defaultMode": mode}).files == {"key": File(b"hidden", kept)}
    sources = [{"secret": {"name": "s"}}, {"serviceAccountToken": {"path": "token"}}]
    files = volume(projected={"sources": sources, "defaultMode": mode}).files
    assert files is not None
    assert {file.mode for file in files.values()} == {kept}


def test_the_downward_api_becomes_files() -> None:
    items = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
    assert volume(downwardAPI={"items": items}).files == {"labels": File(b'app="web"\ntier="1"')}


def test_projections_lie_in_one_folder() -> None:
    sources = [
        {"serviceAccountToken": {"path": "token"}},
        {"serviceAccountToken": {"path": "vault", "audience": "vault", "expirationSeconds": 600}},
        {"configMap": {"name": "c", "items": [{"key": "key", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    assert volume(projected={"sources": sources, "defaultMode": 0o600}).files == {
        "token": File(b"token", 0o600),
        "vault": File(b"other", 0o600),
        "ca.crt": File(b"mapped", 0o600),
        "namespace": File(b"ns", 0o600),
    }


def test_empty_and_host_folders() -> None:
    assert volume(emptyDir={}) == Folder()
    assert volume(hostPath={"path": "/srv"}) == Folder(host_path="/srv")


def test_claimed_folders() -> None:
    claimed = {"claimName": "c", "readOnly": True}
    assert volume(persistentVolumeClaim=claimed) == Folder(host_path="/srv/c", is_read_only=True, is_claim=True)
    assert volume(ephemeral={"volumeClaimTemplate": {}}) == Folder(host_path="/srv/brought", is_claim=True)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"persistentVolumeClaim": {"claimName": "no"}}, 'persistentvolumeclaim "no" not found'),
        ({"persistentVolumeClaim": {"claimName": "early"}}, "not bound"),
        ({"persistentVolumeClaim": {"claimName": "far"}}, "virtual nodes have those of hostPath and local"),
        ({"configMap": {"name": "no"}}, 'configmap "no" not found'),
        ({"secret": {"secretName": "s", "items": [{"key": "k", "path": "k"}]}}, "non-existent key: k"),
        ({"secret": {"secretName": "s", "items": [{"key": "key", "path": "../k"}]}}, "leads out of its volume"),
        ({"nfs": {"server": "x"}}, "virtual nodes do not have"),
    ],
)
def test_volumes_that_cannot_be_had_say_why(source: dict[str, Any], said: str) -> None:
    with pytest.raises(Missing, match=said):
        volume(**source)


def test_only_what_is_named_is_fetched() -> None:
    played = pod(
        containers=[container(envFrom=[{"configMapRef": {"name": "a"}}])],
        initContainers=[container("i", env=[{"name": "X", "valueFrom": {"secretKeyRef": {"name": "b", "key": "k"}}}])],
        volumes=[{"name": "v", "secret": {"secretName": "s"}}, {"name": "e", "emptyDir": {}}],
    )
    assert (env_needs(played).config_maps, env_needs(played).secrets) == ({"a"}, {"b"})
    assert volume_needs(played).secrets == {"s"}
    claimed = pod(
        volumes=[{"name": "c", "persistentVolumeClaim": {"claimName": "mine"}}, {"name": "e", "ephemeral": {}}]
    )
    assert volume_needs(claimed).claims == {"mine", "p-e"}


@pytest.mark.parametrize(
    ("mount", "found"),
    [
        ({"subPath": "a/b"}, "a/b"),
        ({"subPath": "$(NAME)"}, "$(NAME)"),
        ({"subPathExpr": "logs/$(NAME)"}, "logs/web"),
        ({"subPathExpr": "$$(NAME)"}, "$(NAME)"),
        ({}, ""),
    ],
)
def test_a_sub_path_may_use_variables(mount: dict[str, str], found: str) -> None:
    assert sub_path(msgspec.convert(mount, VolumeMount), {"NAME": "web"}) == found


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("$(UP)", "unable to provision SubPath `..`: must not contain '..'"),
        ("a/$(UP)/b", "unable to provision SubPath `a/../b`: must not contain '..'"),
        ("$(ROOT)", "error SubPath `/tmp` must not be an absolute path"),
        ("$(B)/$(A)", "missing value for A, B"),
        ("$(EMPTY)", "missing value for EMPTY"),
    ],
)
def test_a_bad_sub_path_is_told_in_the_kubelets_words(expression: str, said: str) -> None:
    mount = VolumeMount(sub_path_expr=expression)
    with pytest.raises(Missing) as problem:
        sub_path(mount, {"UP": "..", "ROOT": "/tmp", "EMPTY": ""})
    assert str(problem.value) == said
