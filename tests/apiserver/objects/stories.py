"""Who wrote what, in order: stories that are told to the real server and to us, step by step."""

from typing import Any, NamedTuple

from tests.apiserver.objects import manifests

Json = dict[str, Any]


class Step(NamedTuple):
    how: str  # create, apply, force, merge, status
    who: str
    body: Json


def config(**data: Any) -> Json:
    return manifests.thing("ConfigMap", data=data)


def deployment(**spec: Any) -> Json:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}


def containers(*items: Json) -> Json:
    return {"spec": {"containers": list(items)}}


_SELECTOR = {"matchLabels": {"a": "b"}}
_LABELS = {"labels": {"a": "b"}}

STORIES: dict[str, list[Step]] = {
    "applying twice changes nothing": [
        Step("apply", "me", config(a="1")),
        Step("apply", "me", config(a="1")),
    ],
    "what is no longer applied goes": [
        Step("apply", "me", config(a="1", b="2")),
        Step("apply", "me", config(b="2")),
        Step("apply", "me", manifests.thing("ConfigMap")),
    ],
    "two who agree own together, and one may leave": [
        Step("apply", "me", config(a="1", b="2")),
        Step("apply", "you", config(a="1")),
        Step("apply", "me", config(b="2")),
    ],
    "two who differ conflict, force takes": [
        Step("create", "me", config(ours="1", also="x")),
        Step("apply", "you", config(ours="2")),
        Step("apply", "you", config(ours="2", also="y")),
        Step("force", "you", config(ours="2", also="y")),
        Step("apply", "they", config(ours="3")),
    ],
    "an update takes what it changes from appliers": [
        Step("apply", "me", config(a="1", b="2")),
        Step("merge", "you", {"data": {"a": "9"}}),
        Step("apply", "me", config(a="1", b="2")),
        Step("force", "me", config(a="1", b="2")),
        Step("merge", "you", {"data": {"a": None, "c": "3"}}),
    ],
    "labels and finalizers": [
        Step("apply", "me", {**config(), "metadata": {"name": "a", "labels": {"x": "1"}, "finalizers": ["a/b"]}}),
        Step("apply", "you", {**config(), "metadata": {"name": "a", "labels": {"y": "1"}, "finalizers": ["c/d"]}}),
        Step("apply", "me", {**config(), "metadata": {"name": "a", "labels": {"x": "2"}}}),
        Step("merge", "they", {"metadata": {"labels": {"x": None}, "finalizers": None}}),
    ],
    "lists by key": [
        Step(
            "apply",
            "me",
            deployment(
                selector=_SELECTOR,
                template={
                    "metadata": _LABELS,
                    **containers(
                        {
                            "name": "one",
                            "image": "x",
                            "ports": [{"containerPort": 80}],
                            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                        },
                        {"name": "two", "image": "y"},
                    ),
                },
            ),
        ),
        Step("apply", "you", deployment(template=containers({"name": "one", "image": "z"}))),
        Step(
            "apply",
            "you",
            deployment(
                template=containers(
                    {
                        "name": "one",
                        "env": [{"name": "C", "value": "3"}],
                        "ports": [{"containerPort": 80, "protocol": "UDP"}],
                    }
                )
            ),
        ),
        Step("apply", "you", deployment(template=containers({"name": "three", "image": "q"}, {"name": "one"}))),
        Step(
            "apply",
            "me",
            deployment(
                selector=_SELECTOR,
                template={
                    "metadata": _LABELS,
                    **containers({"name": "two", "image": "y"}, {"name": "one", "image": "x"}),
                },
            ),
        ),
        Step("apply", "you", deployment()),
    ],
    "a replica count changes hands": [
        Step(
            "apply",
            "me",
            deployment(
                replicas=3,
                selector=_SELECTOR,
                template={"metadata": _LABELS, **containers({"name": "one", "image": "x"})},
            ),
        ),
        Step("merge", "scaler", {"spec": {"replicas": 5}}),
        Step(
            "apply",
            "me",
            deployment(selector=_SELECTOR, template={"metadata": _LABELS, **containers({"name": "one", "image": "x"})}),
        ),
    ],
    "status is a matter of its own": [
        Step("create", "me", manifests.workload("Deployment")),
        Step("status", "controller", {"status": {"replicas": 1, "observedGeneration": 1}}),
        Step(
            "status",
            "controller",
            {"status": {"replicas": 2, "conditions": [{"type": "Available", "status": "True"}]}},
        ),
        Step("merge", "me", {"spec": {"paused": True}}),
    ],
    "atomic lists are taken whole": [
        Step("create", "me", manifests.container(args=["1"])),
        Step(
            "apply",
            "you",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "a"},
                "spec": {"containers": [{"name": "c", "args": ["2"]}]},
            },
        ),
    ],
    "kubectl may take over from its own client-side apply": [
        Step(
            "create",
            "kubectl-client-side-apply",
            {
                **config(a="1"),
                "metadata": {
                    "name": "a",
                    "annotations": {
                        "kubectl.kubernetes.io/last-applied-configuration": (
                            '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"1"}}'
                        )
                    },
                },
            },
        ),
        Step("apply", "other", config(a="2")),
        Step("apply", "kubectl", config(a="2")),
    ],
    "a service's ports": [
        Step("create", "me", manifests.service(clusterIP="None", selector={"a": "b"})),
        Step("apply", "you", manifests.thing("Service", spec={"ports": [{"port": 80, "name": "x"}]})),
        Step("force", "you", manifests.thing("Service", spec={"ports": [{"port": 80, "name": "x"}]})),
    ],
}
