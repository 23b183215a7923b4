"""StatefulSets: pods with a number, a name and claims of their own, made, updated and removed in order.

OrderedReady takes one step at a time and waits for what it did to be ready; Parallel makes and removes all at once.
Updates go from the highest number down, one at a time, in both.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fairlead.cluster.controller import Controller
from fairlead.cluster.mirror import Delta
from fairlead.cluster.shell import claimed_keys
from fairlead.local.controllers.mirrors import ControllerContext
from fairlead.local.controllers.pods import available_in_s, is_available, wake_after
from fairlead.local.controllers.revisions import HASH, Revision, plan_history, plan_revision, template_of
from fairlead.local.controllers.spec import (
    CLAIMS,
    PODS,
    REVISIONS,
    STATEFUL_SETS,
    ControllerPod,
    ControllerRevision,
    Json,
    StatefulSet,
    selector_of,
)
from fairlead.local.controllers.statuses import plan_status
from fairlead.model.intents import Create, Intent, delete, event
from fairlead.model.meta import ApiObject
from fairlead.model.owners import claim, controller_reference
from fairlead.model.selectors import Selector
from fairlead.model.templates import pod_body

REVISION_HASH: Final = "controller.kubernetes.io/hash"
POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"


@dataclass(frozen=True, slots=True)
class StatefulSetInput:
    owner: StatefulSet
    selector: Selector
    pods: tuple[ControllerPod, ...]  # its own, and those nobody controls
    revisions: tuple[ControllerRevision, ...]
    claims: tuple[ApiObject, ...] = ()  # of the namespace
    names_taken: frozenset[str] = frozenset()  # revisions of the namespace


def plan_stateful_set(seen: StatefulSetInput, now: datetime) -> list[Intent]:
    owner, metadata = seen.owner, seen.owner.metadata
    named = [pod for pod in seen.pods if ordinal_of(metadata.name, pod.metadata.name) is not None]
    mine, intents = claim(STATEFUL_SETS, metadata, seen.selector, PODS, named)
    history, adopted = claim(STATEFUL_SETS, metadata, seen.selector, REVISIONS, seen.revisions)
    intents += adopted
    update = plan_revision(STATEFUL_SETS, owner, history, seen.names_taken, label=REVISION_HASH)
    ordinals = Ordinals(seen, mine, history, update, now)
    if not owner.is_terminating:
        intents += update.intents
        if not update.is_collision:
            ordinals.step()
        intents += ordinals.changes
        live = {update.name, ordinals.current_name} | {pod.metadata.labels.get(HASH, "") for pod in mine}
        intents += plan_history(history, live, owner.spec.revision_history_limit)
    intents += plan_status(STATEFUL_SETS, owner, ordinals.status())
    waits = [available_in_s(pod, owner.spec.min_ready_seconds, now) for pod in mine if pod.is_ready]
    return [*intents, *wake_after(waits)]


def ordinal_of(owner: str, pod: str) -> int | None:
    found = re.fullmatch(re.escape(owner) + r"-(0|[1-9]\d{0,8})", pod)
    return int(found[1]) if found else None


class Ordinals:
    """The numbered places of a StatefulSet and who holds them."""

    def __init__(
        self,
        seen: StatefulSetInput,
        mine: Iterable[ControllerPod],
        history: Iterable[ControllerRevision],
        update: Revision,
        now: datetime,
    ) -> None:
        self._seen = seen
        self._owner = seen.owner
        self._spec = seen.owner.spec
        self._update = update
        self._now = now
        self._history = {found.metadata.name: found for found in history}
        held = str(seen.owner.status.get("currentRevision") or update.name)
        # A revision that somebody deleted cannot be gone back to.
        self.current_name = held if held in self._history else update.name
        self._start = self._spec.ordinals.start if self._spec.ordinals else 0
        self._ordinals = range(self._start, self._start + self._spec.replicas)
        numbered = {ordinal_of(self._owner.metadata.name, pod.metadata.name): pod for pod in mine}
        self._pods = dict(sorted(numbered.items(), key=lambda entry: entry[0] or 0))
        self.changes: list[Intent] = []

    # -- one step -------------------------------------------------------------------------------------------

    def step(self) -> None:
        is_ordered = self._spec.pod_management_policy != "Parallel"
        for number in self._ordinals:
            if not self._tend(number) and is_ordered:
                return
        if self._remove_surplus(is_ordered) and is_ordered:
            return
        if self._spec.update_strategy.type == "RollingUpdate":
            self._roll()
        self._drop_claims()

    def _tend(self, number: int) -> bool:
        """Whether the place is well held; what it lacks is done."""
        pod = self._pods.get(number)
        if pod is None:
            self._create(number)
            return False
        if pod.is_terminating:
            return False
        if pod.is_finished:
            self._delete(pod)
            return False
        missing = list(self._missing_claims(number))
        self.changes += missing
        return not missing and self._is_well(pod)

    def _remove_surplus(self, is_ordered: bool) -> bool:
        """Whether there was any; the highest goes first, and only when those below it are well."""
        surplus = [pod for number, pod in self._pods.items() if number not in self._ordinals]
        for pod in reversed(surplus):
            if pod.is_terminating:
                if is_ordered:
                    return True
                continue
            others = [other for other in self._pods.values() if other is not pod]
            is_blocked = is_ordered and not all(self._is_well(other) for other in others) and self._is_well(pod)
            if not is_blocked:
                self._delete(pod)
            if is_ordered:
                return True
        return bool(surplus)

    def _roll(self) -> None:
        rolling = self._spec.update_strategy.rolling_update
        lowest = self._start + (rolling.partition if rolling is not None else 0)
        for number in reversed(self._ordinals):
            pod = self._pods.get(number)
            if number < lowest or pod is None:
                return
            if pod.metadata.labels.get(HASH) != self._update.name and not pod.is_terminating:
                self._delete(pod)
                return
            if not self._is_well(pod):
                return

    def _is_well(self, pod: ControllerPod) -> bool:
        return pod.is_active and is_available(pod, self._spec.min_ready_seconds, self._now)

    def _drop_claims(self) -> None:
        """Claims of numbers that are no longer wanted, where the owner asked for that."""
        policy = self._spec.persistent_volume_claim_retention_policy
        if policy is None or policy.when_scaled != "Delete":
            return
        for template in self._spec.volume_claim_templates or ():
            prefix = f"{template['metadata']['name']}-{self._owner.metadata.name}"
            for found in self._seen.claims:
                number = ordinal_of(prefix, found.metadata.name)
                is_needed = number is None or number in self._ordinals or number in self._pods
                if not is_needed and found.metadata.deletion_timestamp is None:
                    self.changes.append(delete(CLAIMS, found.metadata))

    # -- as intents -----------------------------------------------------------------------------------------

    def _revision_for(self, number: int) -> str:
        """A place that an update has not reached yet is filled again as it was."""
        rolling = self._spec.update_strategy.rolling_update
        if self._spec.update_strategy.type != "RollingUpdate" or self.current_name == self._update.name:
            return self._update.name
        if rolling is not None and rolling.partition:
            is_old = number < self._start + rolling.partition
        else:
            is_old = number < self._start + self._owner.count("currentReplicas")
        return self.current_name if is_old else self._update.name

    def _create(self, number: int) -> None:
        metadata = self._owner.metadata
        name = f"{metadata.name}-{number}"
        revision = self._revision_for(number)
        old = self._history.get(revision)
        template = self._spec.template if revision == self._update.name or old is None else template_of(old)
        body = pod_body(STATEFUL_SETS, metadata, template, name)
        body["metadata"]["labels"] |= {HASH: revision, POD_NAME: name, POD_INDEX: str(number)}
        spec = body["spec"]
        spec["hostname"] = name
        if self._spec.service_name:
            spec["subdomain"] = self._spec.service_name
        claimed = {
            found["metadata"]["name"]: {
                "name": found["metadata"]["name"],
                "persistentVolumeClaim": {"claimName": f"{found['metadata']['name']}-{name}"},
            }
            for found in self._spec.volume_claim_templates or ()
        }
        volumes = [volume for volume in spec.get("volumes") or () if volume["name"] not in claimed]
        if claimed:
            spec["volumes"] = [*claimed.values(), *volumes]
        note = f"Create Pod {name} in StatefulSet {metadata.name} successful"
        self.changes += [
            *self._missing_claims(number),
            Create(kind=PODS, namespace=metadata.namespace, body=body),
            event(STATEFUL_SETS, metadata, "SuccessfulCreate", note),
        ]

    def _missing_claims(self, number: int) -> Iterable[Intent]:
        metadata = self._owner.metadata
        there = {found.metadata.name for found in self._seen.claims}
        policy = self._spec.persistent_volume_claim_retention_policy
        for template in self._spec.volume_claim_templates or ():
            name = f"{template['metadata']['name']}-{metadata.name}-{number}"
            if name in there:
                continue
            labels = (template["metadata"].get("labels") or {}) | (
                (self._spec.selector and self._spec.selector.match_labels) or {}
            )
            made: Json = {"name": name, "namespace": metadata.namespace, "labels": labels}
            if annotations := template["metadata"].get("annotations"):
                made["annotations"] = annotations
            if policy is not None and policy.when_deleted == "Delete":
                made["ownerReferences"] = [controller_reference(STATEFUL_SETS, metadata)]
            body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": made, "spec": template["spec"]}
            yield Create(kind=CLAIMS, namespace=metadata.namespace, body=body)

    def _delete(self, pod: ControllerPod) -> None:
        metadata, owner = pod.metadata, self._owner.metadata
        note = f"Delete Pod {metadata.name} in StatefulSet {owner.name} successful"
        self.changes += [delete(PODS, metadata), event(STATEFUL_SETS, owner, "SuccessfulDelete", note)]

    def status(self) -> Json:
        pods = [pod for pod in self._pods.values() if not pod.is_finished]
        running = [pod for pod in pods if pod.is_ready]
        staying = [pod for pod in pods if not pod.is_terminating]
        update, current = self._update.name, self.current_name
        updated = sum(pod.metadata.labels.get(HASH) == update for pod in staying)
        at_current = sum(pod.metadata.labels.get(HASH) == current for pod in staying)
        is_rolling = self._spec.update_strategy.type == "RollingUpdate"
        if is_rolling and updated == len(pods) == len(running) == self._spec.replicas:
            current, at_current = update, updated
        collisions = self._owner.count("collisionCount") + self._update.is_collision
        available = sum(is_available(pod, self._spec.min_ready_seconds, self._now) for pod in running)
        return {
            "replicas": len(pods),
            "readyReplicas": len(running) or None,
            "availableReplicas": available,
            "currentReplicas": at_current or None,
            "updatedReplicas": updated or None,
            "currentRevision": current,
            "updateRevision": update,
            "observedGeneration": self._owner.metadata.generation,
            "collisionCount": collisions,
        }


def stateful_set_controller(context: ControllerContext) -> Controller:
    sets, pods = context.mirrors.of(STATEFUL_SETS), context.mirrors.of(PODS)
    claims, revisions = context.mirrors.of(CLAIMS), context.mirrors.of(REVISIONS)

    def see(key: str) -> StatefulSetInput | None:
        owner = sets.get(key)
        selector = selector_of(owner) if owner is not None else None
        if owner is None or selector is None:
            return None
        metadata = owner.metadata
        return StatefulSetInput(
            owner,
            selector,
            context.mirrors.claimable(PODS, metadata),
            context.mirrors.claimable(REVISIONS, metadata),
            tuple(claims.by("namespace", metadata.namespace)) if owner.spec.volume_claim_templates else (),
            frozenset(found.metadata.name for found in revisions.by("namespace", metadata.namespace)),
        )

    def of_claim(delta: Delta[ApiObject]) -> Iterable[str]:
        """A claim that went is made again; the name says whose it was."""
        if delta.new is not None or delta.old is None:
            return ()
        namespace, name = delta.old.metadata.namespace, delta.old.metadata.name
        return [
            owner.metadata.key
            for owner in sets.by("namespace", namespace)
            if owner.spec.volume_claim_templates and f"-{owner.metadata.name}-" in name
        ]

    claimed = claimed_keys(sets, selector_of)
    return (
        context.controller(STATEFUL_SETS, see, plan_stateful_set)
        .watches(sets)
        .watches(pods, claimed)
        .watches(revisions, claimed)
        .watches(claims, of_claim)
    )
