"""What Koupleless's module controller answers, by its rules and not by our code: a model for inputs nobody recorded.

Checked against every recording of the same kind first (tests/parity/test_modules_variants.py).
"""

import json
from datetime import datetime
from typing import Any

Json = dict[str, Any]

CLUSTER = "base.koupleless.io/cluster-name"
AGED_MS = 10_000


def cluster_of(deployment: Json) -> str:
    """By label, selector, then the first expression on the key, whatever its operator."""
    spec = deployment["spec"]["template"]["spec"]
    labels = deployment["metadata"].get("labels") or {}
    for given in (labels, spec.get("nodeSelector") or {}):
        if CLUSTER in given:
            return str(given[CLUSTER])
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for expression in term.get("matchExpressions") or ():
            if expression["key"] == CLUSTER and expression.get("values"):
                return str(expression["values"][0])
    return ""


def version_of(container: Json) -> str:
    return next((each.get("value", "") for each in container.get("env") or () if each["name"] == "BIZ_VERSION"), "")


def baseline(given: Json) -> Json:
    """Every container of the cluster's Deployments in this environment, the oldest Deployment first."""
    env, cluster = "virtual-kubelet.koupleless.io/env", given["query"].get("clusterName", "")
    chosen = [
        each
        for each in given["deployments"]
        if cluster and cluster_of(each) == cluster and (each["metadata"].get("labels") or {}).get(env) == given["env"]
    ]
    chosen.sort(key=lambda each: each["metadata"].get("creationTimestamp") or "")
    containers = [each for found in chosen for each in found["spec"]["template"]["spec"]["containers"]]
    shown = [
        {"bizName": each["name"], "bizVersion": version_of(each), "bizUrl": each.get("image", "")}
        for each in containers
    ]
    return {
        "baseline": [{name: value for name, value in each.items() if value} for each in shown],
        "cluster_names": {each["metadata"]["name"]: cluster_of(each) for each in given["deployments"]},
    }


def pod_ops(given: Json) -> Json:
    """Calls for a pod that is created, changed or deleted; one that fails in transport is made again."""

    def call(operation: str, container: Json) -> Json:
        found = {"op": operation, "bizName": container["name"], "bizVersion": version_of(container)}
        return {**found, "bizUrl": container["image"]} if container.get("image") else found

    containers = given["pod"]["spec"]["containers"]
    if given["operation"] == "update":
        before = {each["name"]: each for each in containers}
        after = {each["name"]: each for each in given["new_pod"]["spec"]["containers"]}
        changed = [name for name in after if name in before and after[name] != before[name]]
        calls = [call("uninstall", before[name]) for name in changed]
        if not changed or given["old_containers_terminated"]:
            calls += [call("install", after[name]) for name in after if name in changed or name not in before]
    else:
        calls = [call("install" if given["operation"] == "create" else "uninstall", each) for each in containers]
    failures = given.get("first_calls_fail", 0) if calls else 0
    return {"calls": [*({**each, "failed": True} for each in calls[:1] * failures), *calls], "notified": 1}


def pod_ops_defect(given: Json) -> str:
    if given["operation"] != "update":
        return ""
    before = {each["name"]: each for each in given["pod"]["spec"]["containers"]}
    after = {each["name"]: each for each in given["new_pod"]["spec"]["containers"]}
    if set(before) - set(after):
        return "removed_container_not_uninstalled"
    is_changed = any(name in before and after[name] != before[name] for name in after)
    return "update_never_starts_new_module" if is_changed and not given["old_containers_terminated"] else ""


def pod_status(given: Json) -> Json:
    """Modules by `.jar` alone; a state concerns its container, the others keep what they had."""
    biz = given["biz"]
    before = {each["name"]: each for each in given["pod"].get("status", {}).get("containerStatuses") or ()}
    found = []
    for container in given["pod"]["spec"]["containers"]:
        name, image = container["name"], container.get("image", "")
        if ".jar" not in image:
            continue
        first = {"containerID": name, "image": image, "imageID": image, "name": name, "restartCount": 0}
        status = before.get(name) or {**first, "ready": False, "started": False, "state": {}}
        if name == biz["name"]:
            is_active = biz["state"].upper() == "ACTIVATED"
            status = {**status, **first, "ready": is_active, "started": is_active, "state": _container_state(biz)}
        found.append(status)
    states = [each["state"] for each in found]
    phase = "Pending"
    if all("terminated" in each for each in states):
        phase = "Succeeded"
    elif any(each["ready"] or "waiting" in each["state"] for each in found):
        phase = "Running"
    is_ready = phase == "Running" and all(each["ready"] for each in found)
    conditions = [{"status": "True" if is_ready else "False", "type": each} for each in ("Ready", "ContainersReady")]
    ip = given["base_ip"]
    status = {"conditions": conditions, "phase": phase, "podIP": ip, "podIPs": [{"ip": ip}]}
    return {"status": {**status, "containerStatuses": found} if found else status}


def _container_state(biz: Json) -> Json:
    at = biz["changeTime"]
    said = {name: biz[name] for name in ("message", "reason") if biz.get(name)}
    match biz["state"].upper():
        case "ACTIVATED":
            return {"running": {"startedAt": at}}
        case "RESOLVED" | "BROKEN" | "DEACTIVATED":
            return {"waiting": said}
        case "STOPPED":
            return {"terminated": {"exitCode": 1, "finishedAt": at, "startedAt": at, **said}}
    return {}


def pod_status_defect(given: Json) -> str:
    """By what is marked in the recordings: the first that applies."""
    containers = given["pod"]["spec"]["containers"]
    jars = [".jar" in each.get("image", "") for each in containers]
    if not all(jars):
        return "no_jar_container_invisible" if any(jars) else "no_jar_pod_succeeds"
    marks = {
        "BROKEN": "broken_module_pod_running",
        "DEACTIVATED": "deactivated_module_waiting",
        "STOPPED": "stopped_module_ends_pod",
    }
    is_here = any(each["name"] == given["biz"]["name"] for each in containers)
    if is_here and (mark := marks.get(given["biz"]["state"].upper())):
        return mark
    status = pod_status(given)["status"]
    if status["phase"] == "Succeeded":
        return "stopped_module_ends_pod"
    is_unready = status["phase"] == "Running" and status["conditions"][0]["status"] != "True"
    return "pod_running_while_module_waits" if is_unready else ""


def dangling(given: Json) -> Json:
    """Whatever no pod's container with `.jar` names is uninstalled; of two pods with one key the later has it."""
    owners = {
        f"{container['name']}:{version_of(container)}": f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in given["pods"]
        for container in pod["spec"]["containers"]
        if ".jar" in container.get("image", "")
    }
    matched = [{"key": each["key"], "podKey": owners[each["key"]]} for each in given["biz"] if each["key"] in owners]
    others = [each["key"] for each in given["biz"] if each["key"] not in owners]
    sent = [dict(zip(("bizName", "bizVersion"), key.split(":"), strict=True)) for key in others]
    uninstalled = [{"key": key, "uninstall": body} for key, body in zip(others, sent, strict=True)]
    return {"matched": matched, "uninstalled": uninstalled}


def replicas(given: Json) -> Json:
    found = {}
    for each in given["deployments"]:
        name, labels = each["metadata"]["name"], each["metadata"].get("labels") or {}
        found[name] = each["spec"]["replicas"]
        is_peer = labels.get("virtual-kubelet.koupleless.io/strategy") == "peer"
        is_free = labels.get("virtual-kubelet.koupleless.io/replicas-control") != "true"
        if given["enabled"] and is_peer and is_free and (cluster := cluster_of(each)):
            found[name] = sum(_counts(node, cluster) for node in given["nodes"])
    return {"replicas": found}


def _counts(node: Json, cluster: str) -> bool:
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions") or ()}
    is_running = node["status"].get("phase") == "Running" and conditions.get("Ready") == "True"
    return is_running and (node["metadata"].get("labels") or {}).get(CLUSTER) == cluster


def need_sync(given: Json) -> Json:
    """By whole times, as we want them; True where the status says nothing of the module, or it is none."""
    images = {each["name"]: each.get("image", "") for each in given["pod"]["spec"]["containers"]}
    if ".jar" not in images.get(given["biz"]["name"], ""):
        return {"need_sync": True}
    statuses = {each["name"]: each for each in given["pod"].get("status", {}).get("containerStatuses") or ()}
    state = statuses.get(given["biz"]["name"], {}).get("state") or {}
    shown = (state.get("running") or {}).get("startedAt") or (state.get("terminated") or {}).get("finishedAt")
    if "waiting" in state:
        conditions = {each["type"]: each for each in given["pod"]["status"].get("conditions") or ()}
        shown = conditions.get("Ready", {}).get("lastTransitionTime")
    changed = given["biz"].get("changeTime")
    if not shown or not changed:
        return {"need_sync": True}
    return {"need_sync": datetime.fromisoformat(changed) > datetime.fromisoformat(shown)}


def heard(body: Json, env: str) -> Json:
    """A heartbeat as a node's description."""
    metadata, port = body.get("baseMetadata") or {}, body.get("port") or 0
    return {
        "baseName": metadata.get("name", ""),
        "clusterName": metadata.get("clusterName", ""),
        "hostName": body.get("localHostName", ""),
        "ip": body.get("localIP", ""),
        "labels": {"base.koupleless.io/tunnel-port": str(port)} if port else {},
        "name": f"vnode.{metadata.get('identity', '')}.{env}",
        "state": "ACTIVATED" if str(body.get("state", "")).upper() == "ACTIVATED" else "DEACTIVATED",
        "version": metadata.get("version", ""),
    }


def mqtt(given: Json) -> Json | None:
    """Heartbeats and short lists; None for other topics."""
    _, identity, _, kind = given["topic"].split("/")
    envelope = json.loads(given["payload"])
    if kind not in ("heart", "simpleBiz"):
        return None
    at_ms, data = envelope.get("publishTimestamp", 0), envelope["data"]
    if given["now_ms"] - at_ms > AGED_MS:
        return {}
    if kind == "heart":
        return {"base_discovered": [heard(data, given["env"])]}
    biz = [
        {
            "changeTime": (each.get("latestStateRecord") or {}).get("changeTime") or at_ms,
            "key": f"{each.get('name', '')}:{each.get('version', '')}",
            "message": (each.get("latestStateRecord") or {}).get("message", ""),
            "name": each.get("name", ""),
            "reason": (each.get("latestStateRecord") or {}).get("reason", ""),
            "state": each.get("state", ""),
        }
        for each in data
    ]
    return {"all_biz": [{"biz": biz, "node": f"vnode.{identity}.{given['env']}"}]}
