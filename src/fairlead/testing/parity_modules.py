"""Replays recordings of Koupleless's module controller against the module room (`parity --room modules DIR`).

A vector that carries a `defect` must come out as we want it, not as it was recorded, in that respect and in no other.
One vector may show several of the original's defects though it is marked with one, so they are told by what the input
is, not by the mark alone. What the two decide differently on purpose and unmarked is left out of the comparison:
the container's id, a node's addresses, hostname label and pod capacity, `async` and `requestId`, and the variable
MODULE_VERSION, which the original does not read and which is therefore taken out of the input.
"""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from fairlead.model.node import Node
from fairlead.model.quantity import nanos
from fairlead.modules import arklet, deployments, mqtt, plan, reports
from fairlead.modules.arklet import Answer, Outcome
from fairlead.modules.base_node import Liveness, NodeOptions, node_name, node_profile, remember
from fairlead.modules.heartbeats import Heartbeat, Unreadable, parse_heartbeat
from fairlead.modules.names import CLUSTER_NAME, ENV, PEER, REPLICAS_CONTROL, STRATEGY, koupleless_node_name, safe_label
from fairlead.modules.spec import BROKEN, DEACTIVATED, STOPPED, Module, ModuleState, module_of, modules_of
from fairlead.nodes.container_state import ContainerRecord
from fairlead.nodes.container_status import CREATING, main_status
from fairlead.nodes.node import node_body
from fairlead.nodes.spec import Container, ContainerState, ContainerStatus, KubeletPod, Waiting
from fairlead.nodes.status import Standing, pod_phase, pod_status
from fairlead.testing.parity import Vector, differ

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


def differences(vector: Vector, _folder: Path | None = None) -> Iterator[str]:
    """What the room says otherwise than the recording, and than what we want where the recording is wrong."""
    expected = vector["expect"]
    yield from CATEGORIES[vector["category"]](_without_second_name(vector["input"]), expected, vector.get("defect", ""))


def _without_second_name(value: Any) -> Any:
    if isinstance(value, list):
        return [
            _without_second_name(each)
            for each in value
            if not (isinstance(each, dict) and each.get("name") == "MODULE_VERSION" and set(each) <= {"name", "value"})
        ]
    if isinstance(value, dict):
        return {name: _without_second_name(each) for name, each in value.items()}
    return value


def _pod(document: Vector) -> KubeletPod:
    return msgspec.convert(document, KubeletPod)


def _has_jar(container: Container) -> bool:
    """Whether the original takes the container for a module at all."""
    return ".jar" in container.image


def _state(document: Vector) -> ModuleState:
    at = document.get("changeTime")
    at_ms = int(datetime.fromisoformat(at).timestamp() * 1000) if at else None
    name, _, version = document.get("key", "").partition(":")
    reason, message = document.get("reason", ""), document.get("message", "")
    return ModuleState(document.get("name", name), version, document["state"], reason, message, at_ms)


def _shown(state: ModuleState, node: str | None = None) -> Vector:
    shown: Vector = {
        "key": state.key,
        "name": state.name,
        "state": state.state.upper(),
        "reason": state.reason,
        "message": state.message,
        "changeTime": "NOW" if state.changed_ms is None else state.changed_ms,
    }
    return shown if node is None else {"node": node, **shown}


def _upper(reports_: list[Vector] | None) -> list[Vector] | None:
    """Recorded states are compared in one case."""
    if reports_ is None:
        return None
    return [
        {**each, "biz": _upper(each["biz"])} if "biz" in each else {**each, "state": each["state"].upper()}
        for each in reports_
    ]


# --- commands ---------------------------------------------------------------------------------------------


def check_command(given: Vector, expected: Vector, defect: str) -> Iterator[str]:
    operation: str = given["operation"]
    node = given["node"]
    command = {"start": arklet.INSTALL, "stop": arklet.UNINSTALL}.get(operation, operation)
    module: Module | None = None
    if "container" in given:
        module = module_of(msgspec.convert(given["container"], Container))
        yield from differ("biz_key", module.key, expected["biz_key"])
    if not given["node_known"]:
        # Nobody to call: the room has no client for a node it does not serve.
        yield from differ("request", None, expected.get("request"))
        return
    body = arklet.install_body(module) if module is not None else {}
    request = {"method": "POST", "path": f"/{command}", "body": body, "content_type": arklet.content_type(command)}
    yield from differ("request", request, expected["request"])
    answer = arklet.read_answer(given["answer"]["http"], given["answer"]["body"])
    if module is not None:
        yield from _check_module_command(command, module, answer, node, expected, defect)
    elif command == arklet.QUERY_ALL:
        states = arklet.states_of(answer.data) if not answer.problem else None
        is_unreadable = bool(answer.problem) or (answer.data is not None and states is None)
        yield from differ("is retried", is_unreadable, "error" in expected)
        reported = [{"node": node, "biz": [_shown(each) for each in states]}] if states is not None else None
        yield from differ(
            "all_biz", reported if answer.code == arklet.SUCCESS else None, _upper(expected.get("all_biz"))
        )
    else:
        yield from differ("is retried", bool(answer.problem), "error" in expected)
        yield from differ("node_status", _node_status(arklet.health_of(answer), node), _statuses(expected))


def _check_module_command(
    command: str, module: Module, answer: Answer, node: str, expected: Vector, defect: str
) -> Iterator[str]:
    state = arklet.state_after(command, module, answer)
    yield from differ("is retried", bool(answer.problem), "error" in expected)
    reported = [_shown(state, node)] if state is not None else None
    if answer.problem:
        # Recorded as broken without a word why.
        yield from differ("one_biz", reported, None)
    elif command == arklet.UNINSTALL and (answer.code == arklet.SUCCESS or answer.inner_code == arklet.MISSING_BIZ):
        yield from differ("state", state.state if state is not None else None, STOPPED)
        outcome = arklet.outcome_of(command, answer)
        yield from differ("outcome", outcome in (Outcome.DONE, Outcome.ALREADY), True)
    else:
        yield from differ("one_biz", reported, _upper(expected.get("one_biz")))


def _statuses(expected: Vector) -> list[Vector] | None:
    recorded: list[Vector] | None = expected.get("node_status")
    if recorded is None:
        return None
    return [
        {
            **each,
            "resources": {
                name: {which: nanos(size) for which, size in sizes.items()} for name, sizes in each["resources"].items()
            },
        }
        for each in recorded
    ]


def _node_status(health: arklet.Health | None, node: str) -> list[Vector] | None:
    if health is None:
        return None
    sizes = {"capacity": health.capacity_bytes, "allocatable": health.free_bytes}
    memory = {which: nanos(f"{size // 1024}Ki") for which, size in sizes.items()}
    return [{"node": node, "resources": {"memory": memory}, "state": health.state}]


# --- heartbeats -------------------------------------------------------------------------------------------


def check_heartbeat(given: Vector, expected: Vector, defect: str) -> Iterator[str]:
    if given["method"] != "POST":
        yield from differ("http", 405, expected["http"])
        return
    try:
        beat = parse_heartbeat(given["body"])
    except Unreadable:
        yield from differ("http", 400, expected["http"])
        return
    yield from differ("http", 200, expected["http"])
    options = NodeOptions(env=given["env"], by_koupleless_names=True)
    name = node_name(beat, options)
    recorded = expected["base_discovered"][0]["name"]
    is_safe = len(recorded) <= 63 and NAME.fullmatch(recorded) is not None
    if not is_safe:
        if NAME.fullmatch(name) is None or not name.startswith("vnode."):
            yield f"name: {name!r} is not safe"
        expected = msgspec.json.decode(msgspec.json.encode(expected).replace(_json(recorded), _json(name)))
    yield from differ("base_discovered", [_discovered(beat, name)], expected["base_discovered"])
    standing = Liveness.READY if beat.is_active else Liveness.STOPPED
    body = node_body(node_profile(name, beat, None, standing, options), NOW)
    restored = remember(msgspec.convert(body, Node))
    yield from differ("restored_from_node", _beat_shown(restored), expected["restored_from_node"])
    yield from _check_node(node_body(node_profile(name, beat, None, Liveness.READY, options), NOW), expected["node"])


def _json(text: str) -> bytes:
    return msgspec.json.encode(text)


def _discovered(beat: Heartbeat, name: str) -> Vector:
    labels = {"base.koupleless.io/tunnel-port": str(beat.port)} if beat.port else {}
    return {
        "baseName": beat.metadata.name,
        "clusterName": beat.metadata.cluster_name,
        "hostName": beat.host_name,
        "ip": beat.ip,
        "labels": labels,
        "name": name,
        "state": beat.state,
        "version": beat.metadata.version,
    }


def _beat_shown(beat: Heartbeat) -> Vector:
    metadata = beat.metadata
    return {
        "baseMetadata": {
            "clusterName": metadata.cluster_name,
            "identity": metadata.identity,
            "name": metadata.name,
            "version": metadata.version,
        },
        "localHostName": beat.host_name,
        "localIP": beat.ip,
        "port": beat.port,
        "state": beat.state,
    }


def _check_node(body: Vector, recorded: Vector) -> Iterator[str]:
    yield from differ("node.name", body["metadata"]["name"], recorded["metadata"]["name"])
    labels = body["metadata"]["labels"]
    for label, value in recorded["metadata"]["labels"].items():
        if label != "kubernetes.io/hostname":
            yield from differ(f"node.labels.{label}", labels.get(label), safe_label(value))
    yield from differ("node.taints", body["spec"]["taints"], recorded["spec"]["taints"])
    yield from differ("node.phase", body["status"]["phase"], recorded["status"]["phase"])
    conditions = {each["type"]: each["status"] for each in body["status"]["conditions"]}
    yield from differ(
        "node.conditions", conditions, {each["type"]: each["status"] for each in recorded["status"]["conditions"]}
    )


# --- MQTT -------------------------------------------------------------------------------------------------


def check_mqtt(given: Vector, expected: Vector, defect: str) -> Iterator[str]:
    message = mqtt.read_message(given["topic"], given["payload"], now_ms=given["now_ms"])
    found: Vector = {}
    if message is not None:
        node = koupleless_node_name(message.identity, given["env"])
        if message.heartbeat is not None:
            options = NodeOptions(env=given["env"], by_koupleless_names=True)
            found["base_discovered"] = [_discovered(message.heartbeat, node_name(message.heartbeat, options))]
        if message.health is not None:
            found["node_status"] = _node_status(message.health, node)
        if message.one is not None:
            found["one_biz"] = [_shown(message.one, node)]
        several = message.every if message.every is not None else message.several
        if several is not None:
            found["all_biz"] = [{"node": node, "biz": [_shown(each) for each in several]}]
    if defect == "empty_biz_infos_panics":
        expected = {}
    if defect == "uninstall_not_found_is_broken":
        (one,) = expected["one_biz"]
        reason = one["reason"].removesuffix("failed") + "succeed"
        expected = {"one_biz": [{**one, "state": STOPPED, "reason": reason}]}
    recorded = {name: _statuses(expected) if name == "node_status" else value for name, value in expected.items()}
    for name in ("one_biz", "all_biz"):
        if name in recorded:
            recorded[name] = _upper(recorded[name])
    yield from differ("reports", found, recorded)


# --- pods -------------------------------------------------------------------------------------------------


def check_pod_status(given: Vector, expected: Vector, defect: str) -> Iterator[str]:
    """Through the kubelet's own rules: the module's state is the report of a run, the status is the kubelet's."""
    pod, ip, state = _pod(given["pod"]), given["base_ip"], _state(given["biz"])
    before = {status.name: status for status in pod.status.container_statuses or ()}
    mains = [_container_status(each, pod, ip, state, before) for each in pod.spec.containers]
    # What a pod's status calls terminated while the pod lives is a module that is gone.
    gone = ContainerState(waiting=Waiting(reason=reports.LOST))
    judged = [msgspec.structs.replace(each, state=gone) if each.state.terminated else each for each in mains]
    standing = Standing(pod_ip=ip, node_ip=ip, started_at=NOW, is_initialized=True)
    status = pod_status(pod, (), mains, standing, NOW)
    phase = pod_phase(pod, (), judged, standing)
    recorded = expected["status"]
    yield from differ("podIP", status.pod_ip, recorded["podIP"])
    yield from differ("podIPs", [each.ip for each in status.pod_ips or ()], [each["ip"] for each in recorded["podIPs"]])
    entries = {each["name"]: each for each in recorded.get("containerStatuses", ())}
    for container, ours in zip(pod.spec.containers, mains, strict=True):
        entry = entries.get(container.name)
        if entry is None:
            # Invisible to the original, a module for us.
            yield from differ(f"{container.name}.is invisible", _has_jar(container), False)
            continue
        yield from _check_container(ours, entry, state)
    is_all_there = all(each.state.running is not None for each in mains)
    yield from differ("phase", phase, "Running" if is_all_there else "Pending")
    is_ready = all(each.ready for each in mains)
    ready = {each.type: each.status for each in status.conditions or () if each.type in ("Ready", "ContainersReady")}
    yield from differ("conditions", ready, dict.fromkeys(ready, "True" if is_ready else "False"))
    if not defect:
        yield from differ("phase", phase, recorded["phase"])
        yield from differ("conditions", ready, {each["type"]: each["status"] for each in recorded["conditions"]})


def _container_status(
    container: Container, pod: KubeletPod, ip: str, state: ModuleState, before: dict[str, ContainerStatus]
) -> ContainerStatus:
    if container.name != state.name and container.name in before and before[container.name].state != ContainerState():
        return before[container.name]
    module = modules_of(pod)[container.name]
    reported = state if container.name == state.name else ModuleState(module.name, module.version, "")
    run = reports.run_report(reported, module, ip, 0, NOW)
    life = ContainerRecord(is_ordered=True, image=container.image, started_at=run.started_at)
    return main_status(container, life, run, pod, False, CREATING)


def _check_container(ours: ContainerStatus, recorded: Vector, state: ModuleState) -> Iterator[str]:
    name, now = ours.name, recorded["state"]
    word = state.state.upper() if state.name == name else ""
    for field in ("image", "imageID", "restartCount"):
        value = {"image": ours.image, "imageID": ours.image_id, "restartCount": ours.restart_count}[field]
        yield from differ(f"{name}.{field}", value, recorded[field])
    shown: Vector = msgspec.to_builtins(ours.state)
    if word == DEACTIVATED:
        yield from differ(f"{name}.state", list(shown), ["running"])
        yield from differ(f"{name}.ready", ours.ready, False)
        return
    yield from differ(f"{name}.ready", ours.ready, recorded["ready"])
    yield from differ(f"{name}.started", bool(ours.started), recorded["started"])
    if word == BROKEN:
        message = {"message": state.message} if state.message else {}
        yield from differ(f"{name}.state", shown, {"waiting": {"reason": reports.BACK_OFF, **message}})
    elif word == STOPPED:
        yield from differ(f"{name}.state", shown.get("waiting", {}).get("reason"), reports.LOST)
    elif not now:
        yield from differ(f"{name}.state", list(shown), ["waiting"])
        yield from differ(f"{name}.has a reason", bool(shown.get("waiting", {}).get("reason")), True)
    elif "waiting" in now:
        # Ours always names a reason.
        reason = {} if now["waiting"].get("reason") else {"reason": shown.get("waiting", {}).get("reason") or "missing"}
        yield from differ(f"{name}.state", shown, {"waiting": {**now["waiting"], **reason}})
    else:
        yield from differ(f"{name}.state", shown, now)


def check_pod_ops(given: Vector, expected: Vector, defect: str) -> Iterator[str]:
    pod = _pod(given["pod"])
    match given["operation"]:
        case "create":
            commands = plan.plan_create(pod)
        case "delete":
            commands = plan.plan_delete(pod)
        case _:
            commands = plan.plan_update(pod, _pod(given["new_pod"]))
    calls = [_call(each) for each in commands]
    # A call that failed in transport is made again until it works; nothing else goes ahead of it.
    whole = [{**each, "bizUrl": each.get("bizUrl", "")} for each in expected["calls"]]
    recorded = [each for each in whole if not each.get("failed")]
    failed = [{name: value for name, value in each.items() if name != "failed"} for each in whole if "failed" in each]
    failures = given.get("first_calls_fail", 0) if recorded else 0
    yield from differ("repeated calls", failed, recorded[:1] * failures)
    if defect == "removed_container_not_uninstalled":
        kept = {each["name"] for each in given["new_pod"]["spec"]["containers"]}
        gone = [each.name for each in pod.spec.containers if each.name not in kept]
        removed = [each for each in calls if each["op"] == "uninstall" and each["bizName"] in gone]
        yield from differ("removed", sorted({each["bizName"] for each in removed}), sorted(gone))
        calls = [each for each in calls if each not in removed]
    if defect == "update_never_starts_new_module":
        yield from differ("calls", calls[: len(recorded)], recorded)
        installs = [each for each in calls if each["op"] == "install"]
        yield from differ("starts the new module", bool(installs) and calls[-len(installs) :] == installs, True)
        return
    yield from differ("calls", _in_any_order(calls), _in_any_order(recorded))
    operations = [each["op"] for each in calls]
    yield from differ("uninstalls first", operations, sorted(operations, reverse=True))


def _call(command: plan.Command) -> Vector:
    module = command.module
    operation = command.name.removesuffix("Biz")
    return {"op": operation, "bizName": module.name, "bizVersion": module.version, "bizUrl": module.url}


def _in_any_order(calls: list[Vector]) -> list[str]:
    return sorted(str(sorted(each.items())) for each in calls)


def check_need_sync(given: Vector, expected: Vector, defect: str) -> Iterator[str]:
    pod = _pod(given["pod"])
    state = _state(given["biz"])
    found = reports.is_newer(pod, state)
    container = pod.container(state.name)
    if defect == "compares_second_of_minute":
        yield from differ("need_sync", found, not expected["need_sync"])
    elif container is not None and not _has_jar(container):
        # Invisible to the original, which therefore always takes the word of the base.
        yield from differ("recorded need_sync", expected["need_sync"], True)
    else:
        yield from differ("need_sync", found, expected["need_sync"])


def check_dangling(given: Vector, expected: Vector, defect: str) -> Iterator[str]:
    pods = [_pod(each) for each in given["pods"]]
    states = [_state(each) for each in given["biz"]]
    owners = plan.owners_of(pods)
    # Modules without `.jar` in their image have no pod for the original.
    visible = plan.owners_of(_visible(pod) for pod in pods)
    matched = [{"key": each.key, "podKey": visible[each.key]} for each in states if each.key in visible]
    yield from differ("matched", matched, expected["matched"])
    for state in states:
        if state.key in visible and state.key not in owners:
            yield f"matched: {state.key} has lost its pod"
    ours = frozenset(each.key for each in states)
    first = plan.plan_sweep(states, owners, ours, {}, now_s=0.0)
    yield from differ("uninstalled at once", first.uninstall, ())
    second = plan.plan_sweep(states, owners, ours, first.strays, now_s=plan.SWEEP_AGE_S)
    due = {each["key"]: each["uninstall"] for each in expected["uninstalled"] if each["key"] not in owners}
    found = {each.key: {"bizName": each.name, "bizVersion": each.version} for each in second.uninstall}
    yield from differ("uninstalled in the end", found, due)
    foreign = plan.plan_sweep(states, owners, frozenset(), first.strays, now_s=plan.SWEEP_AGE_S)
    yield from differ("uninstalled though not ours", foreign.uninstall, ())


def _visible(pod: KubeletPod) -> KubeletPod:
    containers = tuple(each for each in pod.spec.containers if _has_jar(each))
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=containers))


# --- deployments ------------------------------------------------------------------------------------------


def _deployments(given: Vector) -> list[deployments.ModuleDeployment]:
    return [msgspec.convert(each, deployments.ModuleDeployment) for each in given["deployments"]]


def _names_by_not_in(known: list[deployments.ModuleDeployment]) -> set[str]:
    """Deployments that the original gives a cluster name which their affinity does not ask for."""
    found = set()
    for each in known:
        spec = each.spec.template.spec
        if CLUSTER_NAME in each.metadata.labels or CLUSTER_NAME in (spec.node_selector or {}):
            continue
        if deployments.cluster_name(each) != _first_cluster(each):
            found.add(each.metadata.name)
    return found


def _first_cluster(deployment: deployments.ModuleDeployment) -> str:
    """What the first expression about it names, whatever its operator."""
    affinity = deployment.spec.template.spec.affinity
    required = affinity.node_affinity.required if affinity is not None and affinity.node_affinity is not None else None
    for term in (required.node_selector_terms or ()) if required is not None else ():
        for expression in term.match_expressions or ():
            if expression.key == CLUSTER_NAME and expression.values:
                return expression.values[0]
    return ""


def check_baseline(given: Vector, expected: Vector, defect: str) -> Iterator[str]:
    known = _deployments(given)
    excluded = _names_by_not_in(known)
    for each in known:
        name = each.metadata.name
        recorded = "" if name in excluded else expected["cluster_names"][name]
        yield from differ(f"cluster_names.{name}", deployments.cluster_name(each), recorded)
    yield from differ("is marked", bool(excluded) <= bool(defect), True)
    cluster = given["query"].get("clusterName", "")
    found = deployments.baseline(known, cluster, given["env"])
    shown = [arklet.install_body(each) for each in found]
    recorded = list(expected["baseline"])
    for each in known:
        if each.metadata.name in excluded and expected["cluster_names"][each.metadata.name] == cluster and cluster:
            for container in each.spec.template.spec.containers:
                body = arklet.install_body(module_of(container))
                if body in recorded:
                    recorded.remove(body)
    times = [each.metadata.creation_timestamp for each in known]
    if len(set(times)) == len(times):
        yield from differ("baseline", shown, recorded)
    else:
        yield from differ("baseline", _in_any_order(shown), _in_any_order(recorded))


def check_replicas(given: Vector, expected: Vector, defect: str) -> Iterator[str]:
    known = _deployments(given)
    nodes = [msgspec.convert(each, Node) for each in given["nodes"]]
    changes = deployments.plan_replicas(known, nodes, given["env"]) if given["enabled"] else []
    found = {each.metadata.name: each.spec.replicas for each in known}
    found |= {each.deployment.metadata.name: each.replicas for each in changes}
    recorded = dict(expected["replicas"])
    for name in _names_by_not_in(known):
        recorded[name] = next(each.spec.replicas for each in known if each.metadata.name == name)
    others = [each for each in nodes if each.metadata.labels.get(ENV) != given["env"]]
    for each in known:
        # Nodes of other environments were counted too.
        labels, cluster = each.metadata.labels, deployments.cluster_name(each)
        is_peer = labels.get(STRATEGY) == PEER
        if given["enabled"] and is_peer and cluster and labels.get(REPLICAS_CONTROL) != "true":
            counted = [node for node in others if node.metadata.labels.get(CLUSTER_NAME) == cluster]
            recorded[each.metadata.name] -= sum(_counts(node) for node in counted)
    yield from differ("replicas", found, recorded)


def _counts(node: Node) -> bool:
    ready = any(each.type == "Ready" and each.status == "True" for each in node.status.conditions or ())
    return node.status.phase == "Running" and ready


CATEGORIES: Final[dict[str, Callable[[Vector, Vector, str], Iterator[str]]]] = {
    "command": check_command,
    "heartbeat": check_heartbeat,
    "mqtt": check_mqtt,
    "pod_status": check_pod_status,
    "pod_ops": check_pod_ops,
    "need_sync": check_need_sync,
    "dangling": check_dangling,
    "baseline": check_baseline,
    "replicas": check_replicas,
}
