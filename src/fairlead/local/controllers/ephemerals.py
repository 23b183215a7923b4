"""Claims that a pod brings along: made for it alone, named after it and the volume, and gone with it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from fairlead.cluster.controller import Controller
from fairlead.cluster.mirror import Delta
from fairlead.local.controllers.mirrors import ControllerContext
from fairlead.local.controllers.spec import CLAIMS, PODS, Claim, ControllerPod, Json
from fairlead.model.intents import Create, Intent, event
from fairlead.model.owners import controller_reference, is_controlled_by

REPORTER = "ephemeral-volume-controller"


@dataclass(frozen=True, slots=True)
class PodInput:
    pod: ControllerPod
    claims: dict[str, Claim | None]  # by the name each must have


def plan_ephemerals(seen: PodInput, now: datetime) -> list[Intent]:
    pod, intents = seen.pod, list[Intent]()
    if not pod.is_active:
        return []
    for volume in _ephemerals(pod):
        name = f"{pod.metadata.name}-{volume['name']}"
        found = seen.claims.get(name)
        if found is None:
            intents.append(Create(kind=CLAIMS, namespace=pod.metadata.namespace, body=_claim(pod, volume, name)))
        elif not is_controlled_by(found, pod.metadata):
            note = f"PVC {found.metadata.key} was not created for pod {pod.metadata.key} (pod is not owner)"
            conflict_event = event(
                PODS, pod.metadata, "ConflictingPersistentVolumeClaim", note, warning=True, reporter=REPORTER
            )
            intents.append(conflict_event)
    return intents


def _ephemerals(pod: ControllerPod) -> list[Json]:
    return [volume for volume in pod.spec.volumes or () if "ephemeral" in volume]


def _claim(pod: ControllerPod, volume: Json, name: str) -> Json:
    template = volume["ephemeral"].get("volumeClaimTemplate") or {}
    given = template.get("metadata") or {}
    metadata = {key: given[key] for key in ("labels", "annotations") if given.get(key)}
    metadata |= {"name": name, "ownerReferences": [controller_reference(PODS, pod.metadata)]}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": template["spec"]}


def ephemeral_controller(context: ControllerContext) -> Controller:
    pods, claims = context.mirrors.of(PODS), context.mirrors.of(CLAIMS)

    def see(key: str) -> PodInput | None:
        pod = pods.get(key)
        if pod is None:
            return None
        names = [f"{pod.metadata.name}-{volume['name']}" for volume in _ephemerals(pod)]
        return PodInput(pod, {name: claims.get(f"{pod.metadata.namespace}/{name}") for name in names})

    def with_ephemerals(delta: Delta[ControllerPod]) -> Iterable[str]:
        return (delta.key,) if delta.new is not None and _ephemerals(delta.new) else ()

    return context.controller(PODS, see, plan_ephemerals, name="ephemerals").watches(pods, with_ephemerals)
