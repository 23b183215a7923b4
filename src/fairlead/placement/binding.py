"""Binding: the slow half of a placement. Volumes first, then the pod; it ends when the server's answer is known.

A binding whose answer got lost is in doubt: its room stays taken until the server shows the result.
"""

import asyncio
from collections.abc import Callable, Mapping

import structlog

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.waits import first_of
from fairlead.cluster.writer import Outcome, Writer
from fairlead.engine.catalog import Catalog
from fairlead.engine.gpu_requests import DEVICES
from fairlead.model.intents import Bind, Patch
from fairlead.model.outcome import Placed, VolumeChoice
from fairlead.model.pod import SchedulerPod
from fairlead.model.volumes import SELECTED_NODE_ANNOTATION, PersistentVolume, PersistentVolumeClaim
from fairlead.placement import events_and_conditions
from fairlead.placement.spec import CLAIMS, PODS, VOLUMES

log = structlog.get_logger("fairlead.placement")

LOOK_AGAIN_S = 1.0
# So long a binding may be in doubt. After that the watch has the last word: it shows the pod on its node, or not.
MOST_IN_DOUBT_S = 60.0
# How long a conflict waits for the watch to show the other write, and how often one is tried again.
MOST_UNSEEN_S = 10.0
MOST_RESERVE_TRIES = 5


class Binder:
    def __init__(self, catalog: Catalog, *, writer: Writer, reader: Client, clock: Clock) -> None:
        self._catalog = catalog
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._news = asyncio.Event()

    def storage_changed(self) -> None:
        """Claims or volumes have changed: wake those who wait for one."""
        self._news.set()
        self._news = asyncio.Event()

    async def bind(
        self, pod: SchedulerPod, placed: Placed, volumes_timeout_s: float, is_wanted: Callable[[], bool] = lambda: True
    ) -> str | None:
        """None when the pod is bound there; else it came to nothing, and there may be a sentence about it to tell.

        There is none where the pod is gone, another scheduler was first, or its place was lost.
        """
        if placed.volumes and (problem := await self._bind_volumes(placed, volumes_timeout_s)):
            log.warning("volumes not bound", pod=placed.pod, node=placed.node, problem=problem)
            return f'running PreBind plugin "VolumeBinding": binding volumes: {problem}'
        metadata = pod.metadata
        given = {DEVICES: ",".join(map(str, placed.devices))} if placed.devices else {}
        intent = Bind(
            namespace=metadata.namespace, name=metadata.name, uid=pod.uid, node=placed.node, annotations=given
        )
        result = await self._writer.carry_out(intent, is_wanted=is_wanted)
        if result.outcome is not Outcome.DONE and not (
            result.may_have_happened and await self._was_bound(pod, placed.node)
        ):
            log.warning(
                "binding failed", pod=placed.pod, node=placed.node, outcome=result.outcome, problem=str(result.error)
            )
            return f"binding to {placed.node}: {result.error}" if result.outcome is Outcome.REFUSED else ""
        await self._writer.carry_out(events_and_conditions.scheduled(pod, placed.node))
        return None

    async def _was_bound(self, pod: SchedulerPod, node: str) -> bool:
        """The write got no answer: its room stays taken until a read shows whether it was carried out.

        A server that refuses the read, or never answers, is waited for only so long.
        """
        give_up_at_s = self._clock.elapsed_s() + MOST_IN_DOUBT_S
        while True:
            try:
                found = await self._reader.find(PODS, pod.metadata.name, pod.metadata.namespace)
            except ClusterError as problem:
                if self._clock.elapsed_s() >= give_up_at_s:
                    log.warning("binding still in doubt, left to the watch", pod=pod.key, problem=str(problem))
                    return False
                log.info("binding in doubt", pod=pod.key, problem=str(problem))
                await self._clock.sleep(LOOK_AGAIN_S)
                continue
            return found is not None and found.uid == pod.uid and found.spec.node_name == node

    # -- volumes ----------------------------------------------------------------------------------------------

    async def _bind_volumes(self, placed: Placed, timeout_s: float) -> str:
        """Reserve a volume for each claim, or ask for one to be provisioned, and wait; a sentence if that fails."""
        give_up_at_s = self._clock.elapsed_s() + timeout_s
        for choice in placed.volumes:
            if problem := await self._reserve_volume(choice, placed.node, give_up_at_s):
                return problem
        waiting = {choice.claim: not choice.volume for choice in placed.volumes}
        requested: set[str] = set()
        while True:
            for key in sorted(waiting):
                claim = self._catalog.claims.get(key)
                if claim is None:
                    return f"claim {key} is gone"
                selected = claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION)
                if claim.is_bound:
                    del waiting[key]
                elif waiting[key] and selected == placed.node:
                    requested.add(key)
                elif waiting[key] and (selected is not None or key in requested):
                    # A provisioner that cannot make the volume for the node takes the node off the claim again.
                    return f"claim {key} is no longer to be made for {placed.node}, but for {selected or 'no node'}"
            if not waiting:
                return ""
            left_s = give_up_at_s - self._clock.elapsed_s()
            if left_s <= 0:
                return f"claims {', '.join(sorted(waiting))} not bound after {timeout_s:g} s"
            await self._until_news(min(left_s, 10 * LOOK_AGAIN_S))

    async def _reserve_volume(self, choice: VolumeChoice, node: str, give_up_at_s: float) -> str:
        """Write for which volume or node a claim is; a sentence if that fails.

        Pods that share a claim are decided one after another and reserve the same: the write of the first is a conflict
        to the others, who look again at what it wrote.
        """
        problem = ""
        for _ in range(MOST_RESERVE_TRIES):
            claim = self._catalog.claims.get(choice.claim)
            if claim is None:
                return f"claim {choice.claim} is gone"
            intent = self._reservation_of(claim, choice.volume, node)
            if not isinstance(intent, Patch):
                return intent
            result = await self._writer.carry_out(intent)
            if result.outcome is Outcome.DONE:
                return ""
            problem = f"claim {choice.claim}: {result.error}"
            if result.outcome is not Outcome.CONFLICT or not await self._changes(intent, give_up_at_s):
                return problem
        return problem

    def _reservation_of(self, claim: PersistentVolumeClaim, volume_name: str, node: str) -> Patch | str:
        """What is to be written; else why it cannot be, or nothing where it is written."""
        if claim.is_bound:
            return ""
        if not volume_name:
            selected = claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION)
            if selected is not None:
                return "" if selected == node else f"claim {claim.metadata.key} is to be made for {selected}"
            return Patch(
                kind=CLAIMS,
                name=claim.metadata.name,
                namespace=claim.metadata.namespace,
                patch={"metadata": {"annotations": {SELECTED_NODE_ANNOTATION: node}}},
                resource_version=claim.metadata.resource_version,
            )
        volume = self._catalog.volumes.get(volume_name)
        if volume is None:
            return f"volume {volume_name} is gone"
        reserved_for = volume.spec.claim_ref
        if reserved_for is not None and reserved_for.uid == claim.metadata.uid:
            return ""
        if reserved_for is not None and not volume.is_for(claim):
            return f"volume {volume_name} is for another claim"
        return Patch(
            kind=VOLUMES,
            name=volume_name,
            patch={
                "metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
                "spec": {
                    "claimRef": {
                        "apiVersion": "v1",
                        "kind": "PersistentVolumeClaim",
                        "namespace": claim.metadata.namespace,
                        "name": claim.metadata.name,
                        "uid": claim.metadata.uid,
                    }
                },
            },
            resource_version=volume.metadata.resource_version,
        )

    async def _changes(self, intent: Patch, give_up_at_s: float) -> bool:
        """Whether the watch shows the other write of a conflict in time."""
        give_up_at_s = min(give_up_at_s, self._clock.elapsed_s() + MOST_UNSEEN_S)
        objects: Mapping[str, PersistentVolume | PersistentVolumeClaim]
        objects = self._catalog.volumes if intent.kind is VOLUMES else self._catalog.claims
        key = f"{intent.namespace}/{intent.name}" if intent.namespace else intent.name
        while (found := objects.get(key)) is not None and found.metadata.resource_version == intent.resource_version:
            left_s = give_up_at_s - self._clock.elapsed_s()
            if left_s <= 0:
                return False
            await self._until_news(left_s)
        return True

    async def _until_news(self, at_most_s: float) -> None:
        await first_of(self._news.wait(), self._clock.sleep(at_most_s))
