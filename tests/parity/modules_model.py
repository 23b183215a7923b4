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
