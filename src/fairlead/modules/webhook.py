"""Admission of module pods: what they lack is added, what could never work is refused with a sentence.

Pure. A pod is a module pod by its label, or by a toleration that names the taint of virtual nodes; tolerating
everything does not make one.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from fairlead.modules.names import (
    COMPONENT,
    MODULE,
    MODULE_LABEL_PREFIX,
    MOST_NAME,
    NODE_ENV_TAINT,
    VIRTUAL_NODE_TAINT,
    VNODE,
    safe_label,
)
from fairlead.modules.spec import VERSION_NAMES, module_of, problems_with
from fairlead.nodes.spec import Container
from fairlead.web.admission import Review, Verdict, Webhook, WebhookConfiguration, refused

_LABEL_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
HOSTNAME: Final = "kubernetes.io/hostname"
IS_FOR_MODULES: Final = (
    f"(has(object.metadata.labels) && '{COMPONENT}' in object.metadata.labels && "
    f"object.metadata.labels['{COMPONENT}'] == '{MODULE}') || (has(object.spec.tolerations) && "
    f"object.spec.tolerations.exists(t, has(t.key) && t.key == '{VIRTUAL_NODE_TAINT}'))"
)


def is_for_modules(pod: Mapping[str, Any]) -> bool:
    metadata, spec = _part(pod, "metadata"), _part(pod, "spec")
    if _part(metadata, "labels").get(COMPONENT) == MODULE:
        return True
    return any(_part_of(each).get("key") == VIRTUAL_NODE_TAINT for each in _items(spec, "tolerations"))


def review_pod(pod: Mapping[str, Any], env: str) -> Verdict:
    if not is_for_modules(pod):
        return Verdict()
    spec = _part(pod, "spec")
    try:
        containers = [msgspec.convert(each, Container) for each in _items(spec, "containers")]
    except msgspec.ValidationError:
        return Verdict()  # the API server says what is wrong with it
    annotations = _part(_part(pod, "metadata"), "annotations")
    if problems := problems_with(containers, annotations):
        return refused("; ".join(sentence for _, sentence in problems), 422, problems[0][0])
    modules = [module_of(each, annotations) for each in containers]
    labels = {
        f"{MODULE_LABEL_PREFIX}{each.name}": safe_label(each.version)
        for each in modules
        if len(each.name) <= MOST_NAME and _LABEL_NAME.fullmatch(each.name)
    }
    patch: list[dict[str, Any]] = []
    _patch_labels(pod, {COMPONENT: MODULE, **labels}, patch)
    warnings = _patch_tolerations(spec, env, patch) + _version_warnings(containers)
    _patch_anti_affinity(spec, labels, patch)
    selector = _part(spec, "nodeSelector")
    if COMPONENT not in selector:
        # No other node could run it, and a scheduler would not know.
        patch.append({"op": "add", "path": "/spec/nodeSelector", "value": {**selector, COMPONENT: VNODE}})
    return Verdict(patch=patch, warnings=warnings)


def _version_warnings(containers: list[Container]) -> list[str]:
    """Two variables that name two versions."""
    warnings = []
    for each in containers:
        versions = {one.name: one.value for one in each.env or () if one.name in VERSION_NAMES and one.value}
        if len(set(versions.values())) > 1:
            shown = ", ".join(f'{name} "{value}"' for name, value in sorted(versions.items()))
            warnings.append(f'container "{each.name}" names two module versions ({shown}): BIZ_VERSION counts')
    return warnings


def _patch_labels(pod: Mapping[str, Any], desired: Mapping[str, str], patch: list[dict[str, Any]]) -> None:
    there = _part(_part(pod, "metadata"), "labels")
    added = {name: value for name, value in desired.items() if name not in there}
    if added:
        patch.append({"op": "add", "path": "/metadata/labels", "value": {**there, **added}})


def _patch_tolerations(spec: Mapping[str, Any], env: str, patch: list[dict[str, Any]]) -> list[str]:
    there = [dict(_part_of(each)) for each in _items(spec, "tolerations")]
    warnings = []
    for each in there:
        value = str(each.get("value", ""))
        if each.get("key") == VIRTUAL_NODE_TAINT and value != "True" and value.lower() == "true":
            warnings.append(
                f'the toleration of {VIRTUAL_NODE_TAINT} says "{value}", which does not match "True"; '
                "the right one was added"
            )
    desired = [
        {"key": VIRTUAL_NODE_TAINT, "operator": "Equal", "value": "True", "effect": "NoExecute"},
        {"key": NODE_ENV_TAINT, "operator": "Equal", "value": env, "effect": "NoExecute"},
    ]
    added = [each for each in desired if not any(_tolerates(one, each) for one in there)]
    if added:
        patch.append({"op": "add", "path": "/spec/tolerations", "value": there + added})
    return warnings


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, str]) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]) or toleration.get("tolerationSeconds") is not None:
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return toleration.get("key") == taint["key"] and toleration.get("value", "") == taint["value"]


def _patch_anti_affinity(spec: Mapping[str, Any], labels: Mapping[str, str], patch: list[dict[str, Any]]) -> None:
    """One of each identity on a base, whatever its namespace: any scheduler then keeps to it."""
    affinity = dict(_part(spec, "affinity"))
    anti = dict(_part(affinity, "podAntiAffinity"))
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = [dict(_part_of(each)) for each in _items(anti, key)]
    desired = [
        {"labelSelector": {"matchLabels": {name: value}}, "namespaceSelector": {}, "topologyKey": HOSTNAME}
        for name, value in labels.items()
    ]
    added = [term for term in desired if term not in terms]
    if added:
        affinity["podAntiAffinity"] = {**anti, key: terms + added}
        patch.append({"op": "add", "path": "/spec/affinity", "value": affinity})


def _part(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return _part_of(value.get(name))


def _part_of(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: Mapping[str, Any], name: str) -> list[Any]:
    found = value.get(name)
    return found if isinstance(found, list) else []


def configuration(env: str) -> WebhookConfiguration:
    """Ignored where Fairlead is away: a pod that lacks something is refused a second time, by its base's node."""

    async def review(request: Review) -> Verdict:
        return review_pod(request.object or {}, env)

    entry = {
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        # The same rule as `is_for_modules`: other pods do not wait for us.
        "matchConditions": [{"name": "module-pods", "expression": IS_FOR_MODULES}],
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
    }
    hook = Webhook("modules.fairlead.io", "/module-pods", review, entry, on_failure="allow")
    return WebhookConfiguration("fairlead-modules", (hook,))
