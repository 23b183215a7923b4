"""The entries of the webhook configuration `fairlead-data`: which objects the API server sends us.

Never our own pods, nor those of kube-system: a cluster must heal while we are down.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal

from fairlead.data import opt_in
from fairlead.data.names import DATASET_LABEL
from fairlead.data.objects import GROUP, RUNTIMES, VERSION
from fairlead.web.admission import Review, Verdict, Webhook, WebhookConfiguration

NAME: Final = "fairlead-data"
TIMEOUT_S: Final = 10
PODS: Final = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]
SCALES: Final = [
    {
        "apiGroups": [GROUP],
        "apiVersions": [VERSION],
        "resources": sorted(name for kind in RUNTIMES.values() for name in (kind.plural, f"{kind.plural}/scale")),
        "operations": ["UPDATE"],
    }
]

Handler = Callable[[Review], Awaitable[Verdict]]


def configuration(
    *,
    by_label: Handler,
    by_namespace: Handler,
    worker: Handler,
    scale: Handler,
    namespace: str,
    namespace_mode: bool,
) -> WebhookConfiguration:
    """Sidecars must not be missing, so their entry fails; affinity may, so the others let pods through."""
    elsewhere = _expression("kubernetes.io/metadata.name", "NotIn", "kube-system", namespace)
    entries = [
        _entry("sidecar", by_label, "Fail", PODS, [elsewhere], [_expression(opt_in.SERVERLESS, "In", "true")]),
        _entry("serverful", by_label, "Ignore", PODS, [elsewhere], [_expression(opt_in.SERVERFUL, "In", "true")]),
    ]
    opted_in = _expression(opt_in.NAMESPACE, "In", "enabled")
    by_itself = [
        *(_expression(key, "NotIn", value) for key, value in opt_in.OPT_OUTS.items()),
        _expression(opt_in.SERVERLESS, "NotIn", "true"),
        _expression(opt_in.SERVERFUL, "NotIn", "true"),
    ]
    by_namespaces = _entry("namespace", by_namespace, "Ignore", PODS, [elsewhere, opted_in], by_itself)
    if namespace_mode:
        entries.append(by_namespaces)
    worker_pods = [{"key": DATASET_LABEL, "operator": "Exists"}]
    entries.append(_entry("cache-worker", worker, "Ignore", PODS, [elsewhere], worker_pods))
    entries.append(_entry("scale-in", scale, "Ignore", SCALES, [], []))
    turned_off = {} if namespace_mode else {by_namespaces.name: "data.namespaceMode"}
    return WebhookConfiguration(NAME, entries, labels={"app.kubernetes.io/name": "fairlead"}, turned_off=turned_off)


def _entry(
    name: str,
    handler: Handler,
    policy: Literal["Fail", "Ignore"],
    rules: Sequence[Mapping[str, Any]],
    namespaces: Sequence[Mapping[str, Any]],
    objects: Sequence[Mapping[str, Any]],
) -> Webhook:
    entry: dict[str, Any] = {
        "rules": list(rules),
        "failurePolicy": policy,
        "timeoutSeconds": TIMEOUT_S,
        "reinvocationPolicy": "IfNeeded",
        "admissionReviewVersions": ["v1", "v1beta1"],
    }
    if namespaces:
        entry["namespaceSelector"] = {"matchExpressions": list(namespaces)}
    if objects:
        entry["objectSelector"] = {"matchExpressions": list(objects)}
    on_failure: Literal["allow", "refuse"] = "refuse" if policy == "Fail" else "allow"
    return Webhook(f"{name}.data.fairlead.io", f"/data/{name}", handler, entry, on_failure)


def _expression(key: str, operator: str, *values: str) -> Mapping[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}
