"""Cells of HorizontalPodAutoscalers, Ingresses, APIServices and more, as kube-apiserver prints them.

Only those between an object's name and its age.
"""

from typing import Any

from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.printers.texts import NONE, UNKNOWN, few
from fairlead.apiserver.registry.autoscalers import METRICS, kept_metrics


def autoscaler(thing: JsonObject) -> list[Any]:
    spec, status = thing["spec"], thing.get("status") or {}
    target = spec["scaleTargetRef"]
    least = spec.get("minReplicas")
    return [
        f"{target['kind']}/{target['name']}",
        _targets(_metrics(thing), status.get("currentMetrics") or []),
        "<unset>" if least is None else str(least),
        spec["maxReplicas"],
        status.get("currentReplicas", 0),
    ]


def _metrics(thing: JsonObject) -> list[JsonObject]:
    """As autoscaling/v2 has them; v1 has one in a field and the others in an annotation."""
    spec = thing["spec"]
    if "metrics" in spec:
        return list(spec["metrics"] or ())
    found: list[JsonObject] = []
    if (percent := spec.get("targetCPUUtilizationPercentage")) is not None:
        target = {"type": "Utilization", "averageUtilization": percent}
        found.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    return found + kept_metrics((thing["metadata"].get("annotations") or {}).get(METRICS, ""))


def _targets(metrics: list[JsonObject], seen: list[JsonObject]) -> str:
    if not metrics:
        return NONE
    shown = [_target(metric, seen[number] if number < len(seen) else {}) for number, metric in enumerate(metrics)]
    return few(shown, 2, ", ")


def _target(metric: JsonObject, seen: JsonObject) -> str:
    kind = metric.get("type") or ""
    key = kind[:1].lower() + kind[1:]
    source, now = metric.get(key) or {}, (seen.get(key) or {}).get("current") or {}
    target = source.get("target") or {}
    is_resource = key in ("resource", "containerResource")
    name = f"{source.get('name', '')}: " if is_resource else ""
    if "averageValue" in target:
        average = "" if is_resource or key == "pods" else " (avg)"
        return f"{name}{now.get('averageValue', UNKNOWN)}/{target['averageValue']}{average}"
    if is_resource:
        percent = now.get("averageUtilization")
        utilization = target.get("averageUtilization")
        seen_text = UNKNOWN if percent is None else f"{percent}%"
        return f"{name}{seen_text}/{'<auto>' if utilization is None else f'{utilization}%'}"
    return f"{now.get('value', UNKNOWN)}/{target.get('value', '')}"


def scale(thing: JsonObject) -> list[Any]:
    return [(thing.get("spec") or {}).get("replicas", 0), (thing.get("status") or {}).get("replicas", 0)]


def balanced(thing: JsonObject) -> list[str]:
    """The addresses of a load balancer."""
    found = ((thing.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return [place.get("ip") or place.get("hostname") or "" for place in found]


def ingress(thing: JsonObject) -> list[Any]:
    spec = thing["spec"]
    hosts = [rule["host"] for rule in spec.get("rules") or () if rule.get("host")]
    ports = "80, 443" if spec.get("tls") else "80"
    return [spec.get("ingressClassName") or NONE, few(hosts) or "*", ",".join(balanced(thing)), ports]


def api_service(thing: JsonObject) -> list[Any]:
    service = (thing.get("spec") or {}).get("service")
    served_by = f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"
    conditions = (thing.get("status") or {}).get("conditions") or []
    found: JsonObject = next((each for each in conditions if each.get("type") == "Available"), {})
    available = str(found.get("status", "Unknown"))
    return [served_by, available if available == "True" or not found else f"{available} ({found.get('reason', '')})"]


def ingress_class(thing: JsonObject) -> list[Any]:
    spec = thing.get("spec") or {}
    found = spec.get("parameters")
    if not found:
        return [spec.get("controller", ""), NONE]
    group = f".{found['apiGroup']}" if found.get("apiGroup") else ""
    return [spec.get("controller", ""), f"{found['kind']}{group}/{found['name']}"]


def parent(thing: JsonObject) -> list[Any]:
    """What an IPAddress belongs to."""
    found = (thing.get("spec") or {}).get("parentRef") or {}
    group = f".{found['group']}" if found.get("group") else ""
    places = [f"{found.get('resource', '')}{group}", found.get("namespace"), found.get("name")]
    return ["/".join(place for place in places if place)]
