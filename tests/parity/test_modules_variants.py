"""Recordings nobody made: inputs of the same shapes, drawn by lot, judged by a model that the recordings agree with."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from fairlead.modules.names import ENV
from fairlead.testing import parity, parity_modules
from tests.parity import modules_model as model

VECTORS = Path(__file__).parent / "modules"
Json = dict[str, Any]
NAMES = ("cart", "order", "biz-9", "a", "x" * 40)
VERSIONS = ("", "1.0.0", "2.0.1-SNAPSHOT", "0.0.1+b7", "v3")
CLUSTERS = ("blue", "green", "red-2", "")
ENVS = ("dev", "prod", "gray")
STATES = ("activated", "ACTIVATED", "DEACTIVATED", "broken", "RESOLVED", "stopped", "", "weird")
TIMES = tuple(f"2024-0{month}-1{day}T0{hour}:5{day}:0{month}Z" for month in (1, 2) for day in (1, 2) for hour in (3, 4))


def recorded(kind: str) -> list[Json]:
    return list(parity.read(VECTORS / f"{kind}.jsonl.gz"))


def test_the_model_says_what_was_recorded() -> None:
    for each in recorded("replicas"):
        assert model.replicas(each["input"]) == each["expect"], each["id"]
    for each in recorded("need_sync"):
        if not each.get("defect"):
            assert model.need_sync(each["input"]) == each["expect"], each["id"]
    for each in recorded("mqtt"):
        if (expected := model.mqtt(each["input"])) is not None:
            assert expected == each["expect"], each["id"]
    for each in recorded("heartbeat"):
        if "base_discovered" in each["expect"]:
            body = json.loads(each["input"]["body"])
            assert [model.heard(body, each["input"]["env"])] == each["expect"]["base_discovered"], each["id"]

    for each in recorded("baseline"):
        assert model.baseline(each["input"]) == each["expect"], each["id"]
    for each in recorded("pod_ops"):
        found = model.pod_ops(each["input"])
        assert in_any_order(found["calls"]) == in_any_order(each["expect"]["calls"]), each["id"]
        assert model.pod_ops_defect(each["input"]) == each.get("defect", ""), each["id"]
    for each in recorded("pod_status"):
        assert model.pod_status(each["input"]) == each["expect"], each["id"]
        assert model.pod_status_defect(each["input"]) == each.get("defect", ""), each["id"]
    for each in recorded("dangling"):
        found = model.dangling(each["input"])
        assert found["matched"] == each["expect"]["matched"], each["id"]
        assert in_any_order(found["uninstalled"]) == in_any_order(each["expect"]["uninstalled"]), each["id"]


def in_any_order(listed: list[Json]) -> list[str]:
    return sorted(json.dumps(each, sort_keys=True) for each in listed)


def some(rng: random.Random, fields: Json) -> Json:
    """Most of the fields; any may be missing."""
    return {name: value for name, value in fields.items() if rng.random() < 0.85}


def deployment(rng: random.Random, name: str) -> Json:
    prefix = "virtual-kubelet.koupleless.io"
    labels = {
        f"{prefix}/component": "module-deployment",
        f"{prefix}/env": rng.choice(ENVS),
        f"{prefix}/strategy": rng.choice(("peer", "peer", "other")),
        **({f"{prefix}/replicas-control": rng.choice(("true", "false"))} if rng.random() < 0.3 else {}),
        **({model.CLUSTER: rng.choice(CLUSTERS)} if rng.random() < 0.5 else {}),
    }
    env = [{"name": rng.choice(("BIZ_VERSION", "OTHER")), "value": rng.choice(VERSIONS)}]
    names = rng.sample(NAMES, rng.randint(1, 3))
    spec: Json = {"containers": [{"name": each, "image": f"http://h/{each}.jar", "env": env} for each in names]}
    if rng.random() < 0.4:
        spec["nodeSelector"] = {model.CLUSTER: rng.choice(CLUSTERS)}
    if rng.random() < 0.4:
        expression = {"key": model.CLUSTER, "operator": "In", "values": rng.sample(CLUSTERS[:3], 2)}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": labels, "creationTimestamp": TIMES[0]},
        "spec": {"replicas": rng.randint(0, 4), "template": {"spec": spec}},
    }


def replicas(rng: random.Random) -> tuple[Json, Json]:
    # Of one environment: those of others were counted by mistake, which is a defect of its own.
    nodes = [
        {
            "metadata": {
                "name": f"n{number}",
                "labels": {model.CLUSTER: rng.choice(CLUSTERS), ENV: "dev"},
            },
            "status": some(
                rng,
                {
                    "phase": rng.choice(("Running", "Running", "Pending")),
                    "conditions": [{"type": "Ready", "status": rng.choice(("True", "True", "False", "Unknown"))}],
                },
            ),
        }
        for number in range(rng.randint(0, 6))
    ]
    known = [deployment(rng, f"d{number}") for number in range(rng.randint(1, 4))]
    given = {"deployments": known, "nodes": nodes, "env": "dev", "enabled": rng.random() < 0.9}
    return given, model.replicas(given)


def need_sync(rng: random.Random) -> tuple[Json, Json]:
    states: list[Json] = [
        {"running": {"startedAt": rng.choice(TIMES)}},
        {"terminated": {"finishedAt": rng.choice(TIMES), "exitCode": 1}},
        {"waiting": {"reason": "r"}},
        {},
    ]
    names = rng.sample(NAMES, 2)
    status = some(
        rng,
        {
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": rng.choice(TIMES)}],
            "containerStatuses": [{"name": each, "state": rng.choice(states)} for each in names],
        },
    )
    containers = [{"name": each, "image": f"http://h/{each}.jar"} for each in names]
    pod = {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"containers": containers}, "status": status}
    biz = {"name": names[0], "state": rng.choice(STATES), "changeTime": rng.choice(TIMES)}
    given = {"pod": pod, "biz": biz}
    return given, model.need_sync(given)


def mqtt(rng: random.Random) -> tuple[Json, Json]:
    now_ms = 1_794_815_350_000
    at_ms = now_ms - rng.choice((0, 1, 5_000, 9_999, 10_001, 60_000))
    identity = rng.choice(("10.9.8.7", "base-77", "a.b"))
    if rng.random() < 0.5:
        metadata = some(rng, {"name": "n", "version": rng.choice(VERSIONS), "clusterName": rng.choice(CLUSTERS)})
        body = {"localIP": "10.9.8.7", "localHostName": "h-1", "port": rng.choice((0, 1238, 5)), "state": ""}
        data: Any = {
            **some(rng, {**body, "state": rng.choice(STATES)}),
            "baseMetadata": {**metadata, "identity": identity},
        }
        topic = "heart"
    else:
        record = {
            "changeTime": 1_700_000_000_000 + rng.randint(0, 9),
            "reason": "Started",
            "message": "m",
            "state": "X",
        }
        listed = [
            {
                "name": rng.choice(NAMES),
                "version": rng.choice(VERSIONS),
                "state": rng.choice(STATES),
                **({"latestStateRecord": record} if rng.random() < 0.5 else {}),
            }
            for _ in range(rng.randint(0, 4))
        ]
        data, topic = listed, "simpleBiz"
    env = rng.choice(ENVS)
    payload = json.dumps({"publishTimestamp": at_ms, "data": data})
    path = f"koupleless_{env}/{identity}/base/{topic}"
    given = {"env": env, "now_ms": now_ms, "topic": path, "payload": payload}
    expected = model.mqtt(given)
    assert expected is not None
    return given, expected


IMAGES = ("http://h/a.jar", "https://h/x.zip", "file:///home/b.jar", "a.jar.gz", "registry/app:1", "")


def containers(rng: random.Random, most: int = 3) -> list[Json]:
    found = []
    for name in rng.sample(NAMES, rng.randint(1, most)):
        env = [{"name": rng.choice(("BIZ_VERSION", "OTHER")), "value": rng.choice(VERSIONS)} for _ in range(2)]
        found.append({"name": name, "image": rng.choice(IMAGES), **({"env": env} if rng.random() < 0.8 else {})})
    return found


def pod(name: str, spec: list[Json], **rest: Any) -> Json:
    return {"metadata": {"name": name, "namespace": "ns1"}, "spec": {"containers": spec}, **rest}


def baseline(rng: random.Random) -> tuple[Json, Json]:
    known = [deployment(rng, f"d{number}") for number in range(rng.randint(1, 5))]
    for number, each in enumerate(rng.sample(known, len(known))):
        each["metadata"]["creationTimestamp"] = f"2024-01-01T00:00:0{number}Z"
    given = {"deployments": known, "env": "dev", "query": some(rng, {"clusterName": rng.choice(CLUSTERS)})}
    return given, model.baseline(given)


def pod_ops(rng: random.Random) -> tuple[Json, Json]:
    old = containers(rng)
    given: Json = {"operation": rng.choice(("create", "delete", "update", "update")), "pod": pod("p", old)}
    if given["operation"] == "update":
        new = [dict(each) for each in old]
        match rng.choice(("image", "env", "add", "remove", "nothing")):
            case "image":
                new[0]["image"] = "https://h/other.jar"
            case "env":
                new[-1]["env"] = [{"name": "BIZ_VERSION", "value": "7.7.7"}]
            case "add":
                new.append({"name": "added", "image": "https://h/added.jar"})
            case "remove":
                new.pop()
        given |= {"new_pod": pod("p", new), "old_containers_terminated": rng.random() < 0.7}
    if rng.random() < 0.3:
        given["first_calls_fail"] = rng.randint(1, 3)
    return given, model.pod_ops(given)


def pod_status(rng: random.Random) -> tuple[Json, Json]:
    spec = containers(rng)
    at = rng.choice(TIMES)
    states: list[tuple[bool, Json]] = [
        (True, {"running": {"startedAt": at}}),
        (False, {"waiting": {"message": "m0", "reason": "r0"}}),
        (False, {"terminated": {"exitCode": 1, "finishedAt": at, "startedAt": at}}),
        (False, {}),
    ]
    statuses = []
    for each in spec:
        is_ready, state = rng.choice(states)
        names = {"containerID": each["name"], "image": each["image"], "imageID": each["image"], "name": each["name"]}
        statuses.append({**names, "ready": is_ready, "restartCount": 0, "started": is_ready, "state": state})
    before = {"status": {"phase": "Pending", "containerStatuses": statuses}} if rng.random() < 0.7 else {}
    biz = {
        "name": rng.choice([*(each["name"] for each in spec), "someone-else"]),
        "state": rng.choice((*STATES, "UNRESOLVED", "deactivated", "Broken")),
        "changeTime": rng.choice(TIMES),
        "reason": rng.choice(("", "Started", "Install Failed")),
        "message": rng.choice(("", "m")),
    }
    given = {"pod": pod("p1", spec, **before), "base_ip": rng.choice(("10.1.2.3", "10.9.9.9")), "biz": biz}
    return given, model.pod_status(given)


def dangling(rng: random.Random) -> tuple[Json, Json]:
    pods = [pod(f"p{number}", containers(rng)) for number in range(rng.randint(0, 3))]
    keys = [f"{rng.choice(NAMES)}:{rng.choice(VERSIONS)}" for _ in range(rng.randint(0, 4))]
    biz = [{"key": key, "name": key.partition(":")[0], "state": rng.choice(STATES)} for key in keys]
    given = {"pods": pods, "biz": biz}
    return given, model.dangling(given)


MARKS = {"pod_ops": model.pod_ops_defect, "pod_status": model.pod_status_defect}


@pytest.mark.parametrize(
    "draw",
    [replicas, need_sync, mqtt, baseline, pod_ops, pod_status, dangling],
    ids=lambda draw: draw.__name__,
)
def test_inputs_that_nobody_recorded_are_answered_as_the_model_says(draw: Any) -> None:
    rng = random.Random(16)
    wrong = []
    for number in range(400):
        given, expected = draw(rng)
        mark = MARKS.get(draw.__name__, lambda _: "")(given)
        vector = {"id": str(number), "category": draw.__name__, "input": given, "expect": expected, "defect": mark}
        wrong += [(given, found) for found in parity_modules.differences(vector)]
    assert wrong[:3] == []


@pytest.mark.parametrize(("name", "version"), [("zeta-9", "4.5.6-rc1"), ("a", "0"), ("x" * 63, "1.0.0+b7")])
def test_answers_to_commands_are_read_alike_for_other_modules(name: str, version: str) -> None:
    wrong = []
    for each in recorded("command"):
        if "container" not in each["input"]:
            continue
        container, expected = each["input"]["container"], each["expect"]
        old, key = expected["biz_key"], f"{name}:{version}"
        named = {**container, "name": name, "env": [{"name": "BIZ_VERSION", "value": version}]}
        body = each["input"]["answer"]["body"].replace(f'"bizName":"{container["name"]}"', f'"bizName":"{name}"')
        given = {**each["input"], "container": named, "answer": {**each["input"]["answer"], "body": body}}
        expected = {**expected, "biz_key": key}
        if "request" in expected:
            sent = {**expected["request"]["body"], "bizName": name, "bizVersion": version}
            expected["request"] = {**expected["request"], "body": sent}
        if "one_biz" in expected:
            (one,) = expected["one_biz"]
            expected["one_biz"] = [{**one, "key": key, "name": name, "reason": one["reason"].replace(old, key)}]
        vector = {**each, "input": given, "expect": expected}
        wrong += [(each["id"], found) for found in parity_modules.differences(vector)]
    assert wrong == []
