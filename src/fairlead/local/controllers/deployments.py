"""Deployments: one ReplicaSet for each template, and pods moved from the old to the new within the bounds.

A rollback is a template that is already known: its ReplicaSet becomes the new one under a higher revision. Every
look writes an object at most once, and only on grounds of what is seen.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fairlead.cluster.controller import Controller
from fairlead.cluster.mirror import Delta
from fairlead.cluster.shell import claimed_keys
from fairlead.local.controllers.mirrors import ControllerContext
from fairlead.local.controllers.replicasets import FAILURE
from fairlead.local.controllers.spec import (
    DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
    REVISION,
    ControllerPod,
    Deployment,
    Json,
    ReplicaSet,
    selector_of,
    share_of,
)
from fairlead.local.controllers.statuses import condition_of, plan_status, with_condition, without_condition
from fairlead.model.intents import Create, Intent, PatchStatus, WakeAfter, delete, event, patch
from fairlead.model.numbers import whole_number
from fairlead.model.owners import claim, controller_reference
from fairlead.model.selectors import Selector
from fairlead.model.templates import HASH_LABEL, is_same_template, template_hash
from fairlead.model.times import rfc3339, seconds_since

DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
MOST: Final = "deployment.kubernetes.io/max-replicas"
HISTORY: Final = "deployment.kubernetes.io/revision-history"
NOT_COPIED: Final = frozenset(
    {
        REVISION,
        HISTORY,
        DESIRED,
        MOST,
        "kubectl.kubernetes.io/last-applied-configuration",
        "deprecated.deployment.rollback.to",
    }
)
# As the API server defaults it: the largest number stands for no deadline at all.
NO_DEADLINE: Final = 2**31 - 1

PROGRESSING: Final = "Progressing"
AVAILABLE: Final = "Available"


@dataclass(frozen=True, slots=True)
class DeploymentInput:
    deployment: Deployment
    selector: Selector
    replica_sets: tuple[ReplicaSet, ...]  # its own, and those nobody controls
    pods: tuple[ControllerPod, ...] = ()  # of its ReplicaSets; asked for by Recreate only
    names_taken: frozenset[str] = frozenset()  # ReplicaSets of the namespace
    problem: str = ""  # why the last create was refused


def plan_deployment(seen: DeploymentInput, now: datetime) -> list[Intent]:
    deployment = seen.deployment
    mine, intents = claim(DEPLOYMENTS, deployment.metadata, seen.selector, REPLICA_SETS, seen.replica_sets)
    rollout = Rollout(seen, mine)
    if not deployment.is_terminating:
        rollout.plan()
        intents += rollout.intents()
    status = _status(seen, rollout, now)
    intents += _stamped(deployment, rollout, plan_status(DEPLOYMENTS, deployment, status))
    wake_s = _next_check_s(deployment, status, now)
    return [*intents, WakeAfter(seconds=wake_s)] if wake_s is not None else intents


class Rollout:
    """What becomes of the ReplicaSets: sizes and annotations are gathered here and written once each."""

    def __init__(self, seen: DeploymentInput, mine: Sequence[ReplicaSet]) -> None:
        self.seen = seen
        self.deployment = seen.deployment
        self.all = sorted(mine, key=lambda found: (found.metadata.creation_timestamp or "", found.metadata.name))
        template = self.deployment.spec.template
        self.new = next((found for found in self.all if is_same_template(found.spec.template, template)), None)
        self.old = [found for found in self.all if found is not self.new]
        self.sizes = {found.metadata.name: found.spec.replicas for found in self.all}
        self.revision = max((found.revision for found in self.old), default=0) + 1
        self.creates: Create | None = None
        self.collided = False
        self._annotations: dict[str, dict[str, str]] = {}
        self._deletes: list[ReplicaSet] = []

    # -- the bounds -----------------------------------------------------------------------------------------

    @property
    def replicas(self) -> int:
        return self.deployment.spec.replicas

    @property
    def is_rolling(self) -> bool:
        return self.deployment.spec.strategy.type == "RollingUpdate"

    @property
    def surge(self) -> int:
        rolling = self.deployment.spec.strategy.rolling_update
        return share_of(rolling.max_surge, self.replicas, up=True) if self.is_rolling and rolling else 0

    @property
    def unavailable(self) -> int:
        rolling = self.deployment.spec.strategy.rolling_update
        if not self.is_rolling or rolling is None or self.replicas == 0:
            return 0
        allowed = share_of(rolling.max_unavailable, self.replicas, up=False)
        # Neither would let nothing ever move.
        return min(allowed if allowed or self.surge else 1, self.replicas)

    # -- the plan -------------------------------------------------------------------------------------------

    def plan(self) -> None:
        self._annotate_new()
        if self.deployment.spec.paused:
            self._scale()
            self._clean_up()
        elif self._is_resized():
            self._scale()
        elif self.is_rolling:
            self._roll()
        else:
            self._recreate()

    def _roll(self) -> None:
        if self.new is None:
            self._create_new(self._room_for_new(0))
            return
        name = self.new.metadata.name
        size = self.sizes[name]
        desired = self.replicas if size > self.replicas else self._room_for_new(size)
        if desired != size:
            self.sizes[name] = desired
            return
        before = dict(self.sizes)
        self._shrink_old(self.new)
        if self.sizes == before and is_complete(self.deployment, self.deployment.status):
            self._clean_up()

    def _room_for_new(self, size: int) -> int:
        room = self.replicas + self.surge - sum(self.sizes.values())
        return size + max(0, min(room, self.replicas - size))

    def _shrink_old(self, new: ReplicaSet) -> None:
        """Remove unavailable pods first, then as many available ones as the new ReplicaSet covers.

        A status older than the last change of size counts pods that are being deleted: wait for the next one.
        """
        if not all(is_observed(found) for found in self.all):
            return
        least = self.replicas - self.unavailable
        not_yet = self.sizes[new.metadata.name] - surely_available(new)
        budget = sum(self.sizes.values()) - least - not_yet
        for found in self.old:
            bad = self.sizes[found.metadata.name] - found.count("availableReplicas")
            budget -= self._shrink(found, min(budget, bad))
        budget = sum(surely_available(found) for found in self.all) - least
        for found in self.old:
            budget -= self._shrink(found, min(budget, self.sizes[found.metadata.name]))

    def _shrink(self, found: ReplicaSet, by: int) -> int:
        by = max(0, by)
        self.sizes[found.metadata.name] -= by
        return by

    def _recreate(self) -> None:
        if any(found.spec.replicas for found in self.old):
            for found in self.old:
                self.sizes[found.metadata.name] = 0
            return
        new_uid = self.new.metadata.uid if self.new else ""
        is_running = any(
            not pod.is_finished and pod.metadata.controller and pod.metadata.controller.uid != new_uid
            for pod in self.seen.pods
        )
        # Pods of a size that its ReplicaSet has not read yet may be on their way.
        if is_running or any(found.count("replicas") or not is_observed(found) for found in self.old):
            return
        if self.new is None:
            self._create_new(self.replicas)
            return
        self.sizes[self.new.metadata.name] = self.replicas
        if is_complete(self.deployment, self.deployment.status):
            self._clean_up()

    def _is_resized(self) -> bool:
        """Whether the Deployment's size has changed since its ReplicaSets were last annotated."""
        return any(
            self.sizes[found.metadata.name] > 0
            and found.metadata.annotations.get(DESIRED, str(self.replicas)) != str(self.replicas)
            for found in self.all
        )

    def _scale(self) -> None:
        """To a new size without hastening or undoing the rollout: each ReplicaSet by its share."""
        active = [found for found in self.all if found.spec.replicas > 0]
        single = active[0] if len(active) == 1 else (self.new or next(reversed(self.old), None))
        if len(active) <= 1:
            if single is not None:
                self._resize(single, self.replicas)
        elif self.new is not None and self._is_saturated(self.new):
            for found in self.old:
                if found.spec.replicas:
                    self._resize(found, 0)
        elif self.is_rolling:
            self._scale_by_share(active)

    def _is_saturated(self, new: ReplicaSet) -> bool:
        annotated = new.metadata.annotations.get(DESIRED, "")
        full = {new.spec.replicas, surely_available(new), self.replicas}
        return annotated == str(self.replicas) and len(full) == 1 and is_observed(new)

    def _scale_by_share(self, active: list[ReplicaSet]) -> None:
        allowed = self.replicas + self.surge if self.replicas else 0
        change = allowed - sum(found.spec.replicas for found in active)
        # The largest first; of two of a size the newer is grown first, the older shrunk first.
        ordered = sorted(active, key=lambda found: found.metadata.creation_timestamp or "", reverse=change > 0)
        ordered.sort(key=lambda found: found.spec.replicas, reverse=True)
        given = 0
        sizes = {}
        for found in ordered:
            share = self._share(found, change, given) if change else 0
            sizes[found.metadata.name] = found.spec.replicas + share
            given += share
        first = ordered[0].metadata.name
        sizes[first] = max(0, sizes[first] + change - given)
        for found in ordered:
            self._resize(found, sizes[found.metadata.name])

    def _share(self, found: ReplicaSet, change: int, given: int) -> int:
        size = found.spec.replicas
        if size == 0 or change == given:
            return 0
        if self.replicas == 0:
            share = -size
        else:
            annotated = found.metadata.annotations.get(MOST, "")
            total = whole_number(annotated, 1, 2**31 - 1) or self.deployment.count("replicas") or 1
            exact = size * (self.replicas + self.surge) / total
            share = int(exact + 0.5) - size
        left = change - given
        return min(share, left) if change > 0 else max(share, left)

    def _resize(self, found: ReplicaSet, size: int) -> None:
        self.sizes[found.metadata.name] = size
        self._annotations.setdefault(found.metadata.name, {}).update(self._replica_annotations())

    def _replica_annotations(self) -> dict[str, str]:
        return {DESIRED: str(self.replicas), MOST: str(self.replicas + self.surge)}

    def _annotate_new(self) -> None:
        """The Deployment's own annotations and the revision; what it stood for before is kept as history."""
        if self.new is None:
            return
        held = self.new.metadata.annotations
        desired = self._copied()
        if self.new.revision < self.revision:
            desired[REVISION] = str(self.revision)
            if self.new.revision:
                history = [entry for entry in held.get(HISTORY, "").split(",") if entry]
                desired[HISTORY] = ",".join([*history, str(self.new.revision)][-100:])
        changed = {name: value for name, value in desired.items() if held.get(name) != value}
        if changed:
            self._annotations.setdefault(self.new.metadata.name, {}).update(changed)

    def _copied(self) -> dict[str, str]:
        annotations = self.deployment.metadata.annotations
        return {name: value for name, value in annotations.items() if name not in NOT_COPIED}

    def _create_new(self, size: int) -> None:
        metadata, spec = self.deployment.metadata, self.deployment.spec
        hashed = template_hash(spec.template, self.deployment.count("collisionCount"))
        name = f"{metadata.name[: 253 - 1 - len(hashed)]}-{hashed}"
        if name in self.seen.names_taken:
            self.collided = True
            return
        template = spec.template
        labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH_LABEL: hashed}
        selector = {
            "matchLabels": {**((spec.selector and spec.selector.match_labels) or {}), HASH_LABEL: hashed},
            "matchExpressions": list((spec.selector and spec.selector.match_expressions) or ()),
        }
        body = {
            "apiVersion": REPLICA_SETS.api_version,
            "kind": REPLICA_SETS.kind,
            "metadata": {
                "name": name,
                "namespace": metadata.namespace,
                "labels": labels,
                "annotations": {**self._copied(), **self._replica_annotations(), REVISION: str(self.revision)},
                "ownerReferences": [controller_reference(DEPLOYMENTS, metadata)],
            },
            "spec": {
                "replicas": size,
                "minReadySeconds": spec.min_ready_seconds,
                "selector": {field: value for field, value in selector.items() if value},
                "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
            },
        }
        self.creates = Create(kind=REPLICA_SETS, namespace=metadata.namespace, body=body)

    def _clean_up(self) -> None:
        limit = self.deployment.spec.revision_history_limit
        if limit is None:
            return
        living = sorted((found for found in self.old if not found.is_terminating), key=lambda found: found.revision)
        for found in living[: max(0, len(living) - limit)]:
            if is_observed(found) and not found.spec.replicas and not found.count("replicas"):
                self._deletes.append(found)

    # -- as intents -----------------------------------------------------------------------------------------

    def intents(self) -> Iterable[Intent]:
        for found in self.all:
            yield from self._written(found)
        for found in self._deletes:
            yield delete(REPLICA_SETS, found.metadata)
        if self.creates is not None:
            yield self.creates
            name, size = self.creates.body["metadata"]["name"], self.creates.body["spec"]["replicas"]
            if size:
                yield self._scaled(f"Scaled up replica set {name} from 0 to {size}")

    def _written(self, found: ReplicaSet) -> Iterable[Intent]:
        metadata, size = found.metadata, self.sizes[found.metadata.name]
        annotations = dict(self._annotations.get(metadata.name, {}))
        spec: Json = {}
        if size != found.spec.replicas:
            spec["replicas"] = size
            annotations |= self._replica_annotations()
        if found is self.new and found.spec.min_ready_seconds != self.deployment.spec.min_ready_seconds:
            spec["minReadySeconds"] = self.deployment.spec.min_ready_seconds
        annotations = {name: value for name, value in annotations.items() if metadata.annotations.get(name) != value}
        if not spec and not annotations:
            return
        changes: Json = {"spec": spec} if spec else {}
        if annotations:
            changes["metadata"] = {"annotations": annotations}
        yield patch(REPLICA_SETS, metadata, changes)
        if size != found.spec.replicas:
            way = "up" if size > found.spec.replicas else "down"
            yield self._scaled(f"Scaled {way} replica set {metadata.name} from {found.spec.replicas} to {size}")

    def _scaled(self, note: str) -> Intent:
        return event(DEPLOYMENTS, self.deployment.metadata, "ScalingReplicaSet", note)


def _stamped(deployment: Deployment, rollout: Rollout, status: list[Intent]) -> list[Intent]:
    """With the revision of the new ReplicaSet, in the same write: beside a status it makes no new generation."""
    metadata = deployment.metadata
    if rollout.new is None or deployment.is_terminating:
        return status
    revision = str(max(rollout.new.revision, rollout.revision))
    if metadata.annotations.get(REVISION) == revision:
        return status
    changes: Json = {"metadata": {"annotations": {REVISION: revision}}}
    for intent in status:
        assert isinstance(intent, PatchStatus)
        changes["status"] = intent.status
    return [patch(DEPLOYMENTS, metadata, changes, subresource="status")]


def is_observed(found: ReplicaSet) -> bool:
    """Whether its controller has read the size it is to have."""
    return found.count("observedGeneration") >= found.metadata.generation


def surely_available(found: ReplicaSet) -> int:
    """Available pods that stay: those beyond the size are being deleted, whichever they are."""
    surplus = max(0, found.count("replicas") - found.spec.replicas)
    return max(0, found.count("availableReplicas") - surplus)


def is_complete(deployment: Deployment, status: Json) -> bool:
    """All of the size, of this template, and available; and the controller has read the spec."""
    desired = deployment.spec.replicas
    counts = {status.get(name) or 0 for name in ("updatedReplicas", "replicas", "availableReplicas")}
    return counts == {desired} and (status.get("observedGeneration") or 0) >= deployment.metadata.generation


def _status(seen: DeploymentInput, rollout: Rollout, now: datetime) -> Json:
    deployment, every = seen.deployment, rollout.all
    available = sum(found.count("availableReplicas") for found in every)
    conditions = deployment.conditions
    if available >= deployment.spec.replicas - rollout.unavailable:
        enough = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    else:
        enough = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    conditions = with_condition(conditions, AVAILABLE, *enough, now, updated=True)
    status: Json = {
        "observedGeneration": deployment.metadata.generation,
        "replicas": sum(found.count("replicas") for found in every) or None,
        "updatedReplicas": (rollout.new.count("replicas") if rollout.new else 0) or None,
        "readyReplicas": sum(found.count("readyReplicas") for found in every) or None,
        "availableReplicas": available or None,
        "unavailableReplicas": max(0, sum(found.spec.replicas for found in every) - available) or None,
        "terminatingReplicas": sum(found.count("terminatingReplicas") for found in every),
        "collisionCount": (deployment.count("collisionCount") + rollout.collided) or None,
    }
    conditions = _progress(seen, rollout, status, conditions, now)
    owners = [owner for owner in (rollout.new, *every) if owner]
    failures = [found for owner in owners for found in owner.conditions if found["type"] == FAILURE]
    if failures:
        first = failures[0]
        conditions = with_condition(
            conditions, FAILURE, first["status"], first.get("reason", ""), first.get("message", ""), now, updated=True
        )
    else:
        conditions = without_condition(conditions, FAILURE)
    return {**status, "conditions": conditions}


def has_deadline(deployment: Deployment) -> bool:
    deadline = deployment.spec.progress_deadline_seconds
    return deadline is not None and deadline != NO_DEADLINE


def _progress(
    seen: DeploymentInput, rollout: Rollout, status: Json, conditions: list[Json], now: datetime
) -> list[Json]:
    deployment = seen.deployment
    if not has_deadline(deployment):
        return without_condition(conditions, PROGRESSING)
    held = condition_of(conditions, PROGRESSING)
    reason = held.get("reason") if held else None
    subject = f'ReplicaSet "{rollout.new.metadata.name}"' if rollout.new else f'Deployment "{deployment.metadata.name}"'

    def progressing(status: str, reason: str, message: str) -> list[Json]:
        return with_condition(conditions, PROGRESSING, status, reason, message, now, updated=True)

    if deployment.spec.paused:
        if reason == "ProgressDeadlineExceeded":
            return conditions
        return progressing("Unknown", "DeploymentPaused", "Deployment is paused")
    if reason == "DeploymentPaused":
        return progressing("Unknown", "DeploymentResumed", "Deployment is resumed")
    if rollout.creates is not None:
        name = rollout.creates.body["metadata"]["name"]
        if seen.problem:
            message = f'Failed to create new replica set "{name}": {seen.problem}'
            return progressing("False", "ReplicaSetCreateError", message)
        return progressing("True", "NewReplicaSetCreated", f'Created new replica set "{name}"')
    if held is None and rollout.new is not None:
        return progressing("True", "FoundNewReplicaSet", f'Found new replica set "{rollout.new.metadata.name}"')
    if reason == "NewReplicaSetAvailable" and status["replicas"] == status["updatedReplicas"]:
        return conditions  # complete before: what has changed since was no rollout
    if is_complete(deployment, status):
        return progressing("True", "NewReplicaSetAvailable", f"{subject} has successfully progressed.")
    if _has_progressed(deployment.status, status):
        # Said again even under the same reason: the time of the last update is what the deadline counts from.
        since = held["lastTransitionTime"] if held and held["status"] == "True" else rfc3339(now)
        fresh = {
            "type": PROGRESSING,
            "status": "True",
            "reason": "ReplicaSetUpdated",
            "message": f"{subject} is progressing.",
            "lastUpdateTime": rfc3339(now),
            "lastTransitionTime": since,
        }
        return [*without_condition(conditions, PROGRESSING), fresh]
    if _is_late(deployment, held, now):
        return progressing("False", "ProgressDeadlineExceeded", f"{subject} has timed out progressing.")
    return conditions


def _has_progressed(before: Json, after: Json) -> bool:
    def count(status: Json, name: str) -> int:
        return status.get(name) or 0

    old_before = count(before, "replicas") - count(before, "updatedReplicas")
    old_after = count(after, "replicas") - count(after, "updatedReplicas")
    grown = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return old_after < old_before or any(count(after, name) > count(before, name) for name in grown)


def _is_late(deployment: Deployment, held: Json | None, now: datetime) -> bool:
    if held is None or held.get("reason") in ("NewReplicaSetAvailable", "ProgressDeadlineExceeded"):
        return False
    return seconds_since(held.get("lastUpdateTime"), now) > (deployment.spec.progress_deadline_seconds or 0)


def _next_check_s(deployment: Deployment, status: Json, now: datetime) -> float | None:
    """When to look whether the deadline has passed, should nothing move before."""
    held = condition_of(status["conditions"], PROGRESSING)
    if held is None or deployment.spec.paused or is_complete(deployment, status):
        return None
    if held.get("reason") in ("NewReplicaSetAvailable", "ProgressDeadlineExceeded"):
        return None
    left = (deployment.spec.progress_deadline_seconds or 0) - seconds_since(held.get("lastUpdateTime"), now)
    return max(0.0, left) + 1.0


def deployment_controller(context: ControllerContext) -> Controller:
    deployments, sets = context.mirrors.of(DEPLOYMENTS), context.mirrors.of(REPLICA_SETS)
    pods = context.mirrors.of(PODS)

    def see(key: str) -> DeploymentInput | None:
        deployment = deployments.get(key)
        selector = selector_of(deployment) if deployment is not None else None
        if deployment is None or selector is None:
            return None
        found = context.mirrors.claimable(REPLICA_SETS, deployment.metadata)
        is_recreate = deployment.spec.strategy.type == "Recreate"
        return DeploymentInput(
            deployment,
            selector,
            found,
            tuple(pod for owner in found for pod in pods.by("owner", owner.metadata.uid)) if is_recreate else (),
            frozenset(taken.metadata.name for taken in sets.by("namespace", deployment.metadata.namespace)),
            context.problem(DEPLOYMENTS, key),
        )

    def of_gone_pods(delta: Delta[ControllerPod]) -> Iterable[str]:
        """Recreate waits for the last old pod to go; nothing else here depends on pods."""
        controller = delta.old.metadata.controller if delta.new is None and delta.old is not None else None
        if controller is None or controller.kind != REPLICA_SETS.kind or delta.old is None:
            return ()
        owner = sets.get(f"{delta.old.metadata.namespace}/{controller.name}")
        parent = owner.metadata.controller if owner is not None else None
        return (f"{delta.old.metadata.namespace}/{parent.name}",) if parent is not None else ()

    return (
        context.controller(DEPLOYMENTS, see, plan_deployment)
        .watches(deployments)
        .watches(sets, claimed_keys(deployments, selector_of))
        .watches(pods, of_gone_pods)
    )
