"""Subresources: scale, binding, eviction, tokens, finalizing a namespace."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from fairlead.apiserver.admission.builtin import label_with_place
from fairlead.apiserver.auth.tokens import BINDABLE, ISSUER, Tokens
from fairlead.apiserver.failures import Failure, bad_request, conflict, invalid, not_found
from fairlead.apiserver.fields import managed
from fairlead.apiserver.fields.sets import tree_of
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.registry import apply as applying
from fairlead.apiserver.registry.attributes import Write
from fairlead.apiserver.registry.deletion import check_preconditions, is_over, storage_precondition
from fairlead.apiserver.registry.ownership import merged as merged_with
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.registry.rest import Rest, check_name, check_namespace
from fairlead.apiserver.request.bodies import Sent
from fairlead.apiserver.request.decoding import Undecodable, read_as, unusable_patch
from fairlead.apiserver.request.options import Options, parse_delete_options
from fairlead.apiserver.request.selectors import expression_text, labels_match
from fairlead.apiserver.schema.custom import CustomKind, read_path, set_path
from fairlead.apiserver.schema.shape import DecodeError, decode, for_type, kind_label
from fairlead.apiserver.validation import errors as field
from fairlead.cluster.clock import rfc3339

SUCCESS: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


# -- scale ----------------------------------------------------------------------------------------------------


def scale_of(resource: Resource, thing: JsonObject) -> JsonObject:
    metadata = {
        name: thing["metadata"][name]
        for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if name in thing["metadata"]
    }
    if resource.custom is not None:
        paths = _scale_paths(resource.custom, resource.version)
        replicas, current, selector = (read_path(thing, path) if path else None for path in paths)
        text = selector or ""
    else:
        replicas = thing["spec"].get("replicas", 0)
        current = (thing.get("status") or {}).get("replicas", 0)
        text = selector_text(thing["spec"].get("selector"), is_map=resource.strategy.selector_is_map)
    spec = {"replicas": replicas} if replicas else {}
    status: JsonObject = {"replicas": current or 0}
    if text:
        status["selector"] = text
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}


def _scale_paths(kind: CustomKind, version: str) -> tuple[str, str, str]:
    paths = kind.scale(version)
    assert paths is not None, "its scale is not served"
    return paths


def with_scale(resource: Resource, thing: JsonObject, sent: Any, *, patched: bool) -> JsonObject:
    """The object with the replicas a Scale asks for."""
    name = thing["metadata"]["name"]
    label = kind_label("Scale", "v1")
    try:
        scale: JsonObject = decode(for_type("autoscaling.v1.Scale"), sent, label).value
    except DecodeError as problem:
        if patched:
            raise unusable_patch(sent, problem.why) from None
        raise Undecodable(problem) from None
    check_name(scale.get("metadata") or {}, name)
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if replicas < 0:
        raise invalid("autoscaling", "Scale", name, *field.nonnegative("spec.replicas", replicas))
    changed = copy.deepcopy(thing)
    if resource.custom is not None:
        set_path(changed, _scale_paths(resource.custom, resource.version)[0], replicas)
    else:
        changed["spec"]["replicas"] = replicas
    version = (scale.get("metadata") or {}).get("resourceVersion")
    if version:
        changed["metadata"]["resourceVersion"] = version
    return changed


async def apply_scale(rest: Rest, write: Write, applied: Any) -> JsonObject:
    """Server-side apply of a Scale: who owns the replicas of the object owns them of its scale."""
    resource, options = write.resource, write.options
    current = await rest.current(write)
    applying.check_as(for_type("autoscaling.v1.Scale"), "autoscaling/v1", "Scale", applied)
    thing = rest.thing(resource, current)
    path = _replicas_path(resource)
    entries = thing["metadata"].get("managedFields") or []
    owned = [
        {**each, "apiVersion": "autoscaling/v1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
        for each in entries
        if managed.owns(each, path)
    ]
    live = scale_of(resource, thing)
    live["metadata"]["managedFields"] = owned
    merged = merged_with(
        for_type("autoscaling.v1.Scale"), live, applied, options,
        api_version="autoscaling/v1", now=rest.clock.now(), subresource="scale",
    )  # fmt: skip
    changed = with_scale(resource, thing, merged, patched=True)
    kept = set(map(_manager, merged["metadata"].get("managedFields") or ()))
    fields = []
    for each in entries:
        if managed.owns(each, path) and _manager(each) not in kept:
            each = managed.without(each, path)
        if each["fieldsV1"]:
            fields.append(each)
        kept.discard(_manager(each))
    if (options.manager, "Apply", "scale") in kept:
        fields.append(
            {
                "manager": options.manager,
                "operation": "Apply",
                "apiVersion": resource.api_version,
                "fieldsType": "FieldsV1",
                "fieldsV1": tree_of(path),
                "subresource": "scale",
            }
        )
    fields.sort(key=lambda each: (each["operation"], each.get("time") or "", each.get("manager", "")))
    changed["metadata"]["managedFields"] = fields
    body = await rest.replaced(write, current, changed)
    return scale_of(resource, msgspec.json.decode(body))


def _manager(entry: JsonObject) -> tuple[str | None, str, str | None]:
    """Whose an entry of managedFields is."""
    return entry.get("manager"), entry["operation"], entry.get("subresource")


def _replicas_path(resource: Resource) -> tuple[str, ...]:
    path = ".spec.replicas"
    if resource.custom is not None:
        path = _scale_paths(resource.custom, resource.version)[0] or path
    return tuple(f"f:{part}" for part in path.lstrip(".").split("."))


def selector_text(selector: Mapping[str, Any] | None, *, is_map: bool) -> str:
    """A selector as `kubectl -l` takes it."""
    if not selector:
        return ""
    pairs = selector if is_map else selector.get("matchLabels") or {}
    parts = [f"{key}={value}" for key, value in pairs.items()]
    expressions = () if is_map else selector.get("matchExpressions") or ()
    parts += [expression_text({**each, "values": sorted(each.get("values") or ())}) for each in expressions]
    return ",".join(sorted(parts))


# -- binding --------------------------------------------------------------------------------------------------


async def bind(rest: Rest, write: Write, sent: Any) -> JsonObject:
    pods, name = write.resource, write.name
    binding = _about(write, "core.v1.Binding", "Binding", sent)
    metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
    node = target.get("name", "")
    wrong = []
    if target.get("kind") not in (None, "", "Node"):
        wrong.append(f'target.kind: Unsupported value: "{target.get("kind")}": supported values: "Node", "<empty>"')
    if not node:
        wrong.append("target.name: Required value")
    if wrong:
        raise Failure(500, "", wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]")
    entry = await rest.current(write)
    pod = rest.thing(pods, entry)
    for what, expected, found in (
        ("UID", metadata.get("uid"), pod["metadata"]["uid"]),
        ("ResourceVersion", metadata.get("resourceVersion"), pod["metadata"]["resourceVersion"]),
    ):
        if expected and expected != found:
            raise conflict("", "pods", name, storage_precondition(pods, pod["metadata"], what, expected, found))
    if pod["metadata"].get("deletionTimestamp"):
        raise conflict("", "pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if pod["spec"].get("nodeName"):
        raise conflict("", "pods/binding", name, f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"')
    if pod["spec"].get("schedulingGates"):
        raise conflict("", "pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")
    now = rfc3339(rest.clock.now())
    pod["spec"]["nodeName"] = node
    for words in ("annotations", "labels"):
        if metadata.get(words):
            pod["metadata"].setdefault(words, {}).update(metadata[words])
    label_with_place(rest, pod)
    status = pod.setdefault("status", {})
    status.pop("nominatedNodeName", None)
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    conditions = [each for each in status.get("conditions") or () if each["type"] != "PodScheduled"]
    status["conditions"] = [*conditions, scheduled]
    if not write.options.dry_run:
        await rest.put(write, pod, entry.revision)
    return dict(SUCCESS)


def _about(write: Write, type_name: str, kind: str, sent: Any) -> JsonObject:
    """A body that must name the object of the request."""
    read = read_as(type_name, kind, "v1", sent)
    metadata = read.get("metadata") or {}
    check_namespace(metadata, write.namespace)
    if metadata.get("name") != write.name:
        raise bad_request(f"name in URL does not match name in {kind} object")
    return read


# -- eviction -------------------------------------------------------------------------------------------------


async def evict(rest: Rest, write: Write, sent: Any) -> JsonObject:
    """Delete a pod if the budgets that cover it allow one more disruption, and count it against them."""
    pods, options = write.resource, write.options
    eviction = _about(write, "policy.v1.Eviction", "Eviction", sent)
    deletion = parse_delete_options(eviction.get("deleteOptions"), {})
    pod = rest.thing(pods, await rest.current(write))
    phase = (pod.get("status") or {}).get("phase")
    if phase not in ("Succeeded", "Failed", "Pending") and not pod["metadata"].get("deletionTimestamp"):
        await _spend_budget(rest, write.namespace, pod, options)
    deletion = replace(deletion, dry_run=options.dry_run or deletion.dry_run)
    if not deletion.dry_run:
        entry = await rest.current(write)
        pod = rest.thing(pods, entry)
        check_preconditions(pods, pod, deletion)
        _set_condition(pod, rest.clock.now())
        await rest.put(write, pod, entry.revision)
        if deletion.resource_version:
            deletion = replace(deletion, resource_version=pod["metadata"]["resourceVersion"])
    await rest.delete(replace(write, subresource=""), deletion)
    return dict(SUCCESS)


def _set_condition(pod: JsonObject, now: datetime) -> None:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": rfc3339(now),
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    conditions = pod.setdefault("status", {}).setdefault("conditions", [])
    for number, each in enumerate(conditions):
        if each["type"] == condition["type"]:
            if each["status"] == "True":
                condition["lastTransitionTime"] = each.get("lastTransitionTime")
            conditions[number] = condition
            return
    conditions.append(condition)


async def _spend_budget(rest: Rest, namespace: str, pod: JsonObject, options: Options) -> None:
    budgets = rest.resources.built_in("policy", "v1", "poddisruptionbudgets")
    labels = pod["metadata"].get("labels") or {}
    stored = (msgspec.json.decode(entry.body) for _, entry in rest.store.items(budgets.storage_key, f"{namespace}/"))
    covering = [budget for budget in stored if labels_match(budget["spec"].get("selector"), labels)]
    if not covering:
        return
    if len(covering) > 1:
        text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise Failure(500, "", text)
    budget = covering[0]
    ready = any(
        each["type"] == "Ready" and each["status"] == "True"
        for each in (pod.get("status") or {}).get("conditions") or ()
    )
    status = budget.get("status") or {}
    enough = status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0
    policy = budget["spec"].get("unhealthyPodEvictionPolicy", "IfHealthyBudget")
    if not ready and (policy == "AlwaysAllow" or enough):
        return
    name = budget["metadata"]["name"]
    observed = status.get("observedGeneration", 0)
    if observed < budget["metadata"].get("generation", 0):
        raise _over_budget(f"The disruption budget {name} is still being processed by the server.", 10)
    if status.get("disruptionsAllowed", 0) <= 0:
        needed, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        if has <= needed:
            raise _over_budget(f"The disruption budget {name} needs {needed} healthy pods and has {has} currently")
        raise _over_budget(f"The disruption budget {name} does not allow evicting pods currently")
    if options.dry_run:
        return
    now = rest.clock.now()
    budget["status"] = status
    status["disruptionsAllowed"] -= 1
    if status["disruptionsAllowed"] == 0:
        _no_more_disruptions(budget, now)
    status.setdefault("disruptedPods", {})[pod["metadata"]["name"]] = rfc3339(now)
    as_server = Options(options.user, manager="kube-apiserver")
    await rest.update(Write(budgets, namespace, name, as_server, "status"), Sent(budget))


def _over_budget(why: str, retry_after_s: int | None = None) -> Failure:
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    causes = [{"reason": "DisruptionBudget", "message": why}]
    return Failure(429, "TooManyRequests", text, {"causes": causes}, retry_after_s)


def _no_more_disruptions(budget: JsonObject, now: datetime) -> None:
    details = {
        "type": "DisruptionAllowed",
        "status": "False",
        "observedGeneration": budget["status"].get("observedGeneration", 0),
        "lastTransitionTime": rfc3339(now),
        "reason": "InsufficientPods",
        "message": "",
    }
    conditions = [each for each in budget["status"].get("conditions") or () if each["type"] != details["type"]]
    budget["status"]["conditions"] = [*conditions, details]


# -- namespaces/finalize --------------------------------------------------------------------------------------


async def finalize(rest: Rest, write: Write, sent: Any) -> bytes:
    entry = await rest.current(write)
    thing = rest.thing(write.resource, entry)
    namespace = read_as("core.v1.Namespace", "Namespace", "v1", sent)
    version = (namespace.get("metadata") or {}).get("resourceVersion")
    if version and version != thing["metadata"]["resourceVersion"]:
        raise conflict("", "namespaces", write.name)
    finalizers = (namespace.get("spec") or {}).get("finalizers") or []
    thing["spec"] = {"finalizers": finalizers} if finalizers else {}
    if is_over(write.resource, thing):
        body = msgspec.json.encode(thing)
        await rest.remove(write, thing, entry)
        return body
    return await rest.put(write, thing, entry.revision)


# -- tokens ---------------------------------------------------------------------------------------------------


def token_request(rest: Rest, tokens: Tokens, write: Write, sent: Any) -> JsonObject:
    namespace, name = write.namespace, write.name
    given = read_as("authentication.v1.TokenRequest", "TokenRequest", "v1", sent)
    spec, metadata = given.get("spec") or {}, given.get("metadata") or {}
    check_namespace(metadata, namespace)
    if (other := metadata.get("name", "")) not in ("", name):
        error = field.invalid("metadata.name", other, "must match the service account name if specified")
        raise invalid("authentication.k8s.io", "TokenRequest", name, error)
    account = rest.find("/serviceaccounts", f"{namespace}/{name}")
    if account is None:
        raise not_found("", "serviceaccounts", name)
    seconds = spec.get("expirationSeconds")
    seconds = 3600 if seconds is None else seconds
    if not 600 <= seconds <= 1 << 32:
        bound_s = "less than 10 minutes" if seconds < 600 else "larger than 2^32 seconds"
        error = field.invalid("spec.expirationSeconds", seconds, f"may not specify a duration {bound_s}")
        raise invalid("authentication.k8s.io", "TokenRequest", "", error)
    bound, audiences = spec.get("boundObjectRef"), spec.get("audiences") or []
    now, life = rest.clock.now(), timedelta(seconds=seconds)
    refs = _bound_refs(rest, namespace, name, bound) if bound else {}
    uid = account["metadata"]["uid"]
    token = tokens.issue(namespace, name, uid, now=now, life=life, audiences=tuple(audiences), bound=refs)
    head: JsonObject = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"}
    issued = {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound}
    requested = {key: value for key, value in issued.items() if value}
    fields = managed.record_update(
        for_type("authentication.v1.TokenRequest"), None, {**head, "metadata": {}, "spec": requested},
        manager=write.options.manager, api_version=head["apiVersion"], time=rfc3339(now), subresource="token",
    )  # fmt: skip
    about: JsonObject = {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": rfc3339(now)}
    return {
        **head,
        "metadata": about | ({"managedFields": fields} if fields else {}),
        "spec": {**issued, "audiences": audiences or [ISSUER]},
        "status": {"token": token, "expirationTimestamp": rfc3339(now + life)},
    }


def _bound_refs(rest: Rest, namespace: str, account: str, bound: JsonObject) -> dict[str, dict[str, str]]:
    """What a token is bound to, as its claims say it; what does not fit the reference is refused."""
    kind, name = bound.get("kind", ""), bound.get("name", "")
    group, _, version = bound.get("apiVersion", "").rpartition("/")
    claim = kind.lower()
    if group or kind not in ("Pod", "Secret", "Node"):
        raise bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    found = rest.find(BINDABLE[claim], name if kind == "Node" else f"{namespace}/{name}")
    if found is None:
        raise not_found("", f"{claim}s", name)
    if kind == "Pod" and found["spec"].get("serviceAccountName") != account:
        why = f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
        raise bad_request(why)
    uid = found["metadata"]["uid"]
    if bound.get("uid") and bound["uid"] != uid:
        why = (
            f"the UID in the bound object reference ({bound['uid']}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise conflict("", kind, name, why)
    refs = {claim: {"name": name, "uid": uid}}
    if kind == "Pod" and (node_name := found["spec"].get("nodeName")):
        node = rest.find("/nodes", node_name)
        refs["node"] = {"name": node_name} | ({} if node is None else {"uid": node["metadata"]["uid"]})
    return refs
