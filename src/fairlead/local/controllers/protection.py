"""Storage in use is not taken away: a claim that is to go waits for its last pod, a volume for its claim.

API servers put the finalizers there; here they are dropped, for a claim only after the server itself was asked who
uses it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fairlead.cluster.controller import Controller
from fairlead.cluster.mirror import Delta
from fairlead.local.controllers.mirrors import ControllerContext
from fairlead.local.controllers.spec import CLAIMS, PODS, VOLUMES, ControllerPod, Workload
from fairlead.model.intents import Intent
from fairlead.model.meta import ApiObject
from fairlead.model.owners import drop_finalizer

CLAIM_FINALIZER: Final = "kubernetes.io/pvc-protection"
VOLUME_FINALIZER: Final = "kubernetes.io/pv-protection"


@dataclass(frozen=True, slots=True)
class ClaimInput:
    claim: ApiObject
    pods: tuple[ControllerPod, ...]  # of its namespace


def plan_claim(seen: ClaimInput, now: datetime) -> list[Intent]:
    metadata = seen.claim.metadata
    if metadata.deletion_timestamp is None or CLAIM_FINALIZER not in metadata.finalizers:
        return []
    if any(metadata.name in claims_of(pod) and not pod.is_finished for pod in seen.pods):
        return []
    return [drop_finalizer(CLAIMS, metadata, CLAIM_FINALIZER)]


def plan_volume(volume: Workload, now: datetime) -> list[Intent]:
    metadata = volume.metadata
    if metadata.deletion_timestamp is None or VOLUME_FINALIZER not in metadata.finalizers:
        return []
    return [] if volume.status.get("phase") == "Bound" else [drop_finalizer(VOLUMES, metadata, VOLUME_FINALIZER)]


def claims_of(pod: ControllerPod) -> set[str]:
    """The claims a pod names, and those that are made for it alone."""
    named = {volume["persistentVolumeClaim"]["claimName"] for volume in _volumes(pod, "persistentVolumeClaim")}
    return named | {f"{pod.metadata.name}-{volume['name']}" for volume in _volumes(pod, "ephemeral")}


def _volumes(pod: ControllerPod, kind: str) -> Iterable[dict[str, dict[str, str]]]:
    return (volume for volume in pod.spec.volumes or () if kind in volume)


def claim_controller(context: ControllerContext) -> Controller:
    claims, pods = context.mirrors.of(CLAIMS), context.mirrors.of(PODS)

    async def plan(key: str) -> list[Intent]:
        claim, now = claims.get(key), context.clock.now()
        if claim is None:
            return []
        namespace = claim.metadata.namespace
        if not plan_claim(ClaimInput(claim, tuple(pods.by("namespace", namespace))), now):
            return []
        living = await context.reader.list(PODS, namespace)
        return plan_claim(ClaimInput(claim, tuple(living)), now)

    def of_pod(delta: Delta[ControllerPod]) -> Iterable[str]:
        """The claims of a pod that has gone or ended."""
        if delta.old is None or (delta.new is not None and not delta.new.is_finished):
            return ()
        return [f"{delta.old.metadata.namespace}/{name}" for name in sorted(claims_of(delta.old))]

    return context.live_controller(CLAIMS, plan, name="claims").watches(claims).watches(pods, of_pod)


def volume_controller(context: ControllerContext) -> Controller:
    volumes = context.mirrors.of(VOLUMES)
    return context.controller(VOLUMES, volumes.get, plan_volume).watches(volumes)
