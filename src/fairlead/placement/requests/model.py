"""What places are sought with: a pod as its workload will make it, before it exists.

The workload's own controller decides which ReplicaSet makes the next pods, what labels they carry and who owns them;
admission decides the rest. `next_maker` answers the first, `pod_body` is what the controller would send, and
`model_pod` is that with what admission adds.
"""

from collections.abc import Container, Sequence
from typing import Any, Final

import msgspec

from fairlead.model.meta import ObjectMeta, OwnerReference
from fairlead.model.numbers import whole_number
from fairlead.model.pod import PodStatus, SchedulerPod
from fairlead.model.volumes import Volume
from fairlead.placement.requests.spec import WORKLOADS, PodTemplate, Workload

DEFAULT_SCHEDULER: Final = "default-scheduler"
TEMPLATE_HASH: Final = "pod-template-hash"
REVISION_HASH: Final = "controller-revision-hash"
POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"


class Maker(msgspec.Struct, frozen=True):
    """Whose controller makes the pods: a ReplicaSet or a StatefulSet."""

    kind: str
    workload: Workload


def next_maker(kind: str, workload: Workload, sets: Sequence[Workload]) -> Maker | None:
    """Who makes the workload's next pods; None for a Deployment whose ReplicaSet is still to be made.

    The deployment controller scales the only ReplicaSet that has pods, else the one with the Deployment's template.
    While a roll-out has several at work it divides the change among them; then the new one stands for all.
    """
    if kind != "Deployment":
        return Maker(kind, workload)
    uid = workload.metadata.uid
    own = [
        each
        for each in sets
        if each.metadata.deletion_timestamp is None
        and (owner := each.metadata.controller) is not None
        and owner.uid == uid
    ]
    own.sort(key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name))
    active = [each for each in own if each.replicas > 0]
    if len(active) == 1:
        return Maker("ReplicaSet", active[0])
    template = _without_hash(workload.spec.template)
    new = next((each for each in own if _without_hash(each.spec.template) == template), None)
    if new is None and own and (active or workload.spec.paused):
        new = own[-1]
    return Maker("ReplicaSet", new) if new is not None else None


def _without_hash(template: PodTemplate) -> tuple[dict[str, str], dict[str, str], Any]:
    labels = {key: value for key, value in template.metadata.labels.items() if key != TEMPLATE_HASH}
    return labels, template.metadata.annotations, template.spec


def pod_body(maker: Maker) -> dict[str, Any]:
    """The next pod as its controller would send it to the server, under a name that is free."""
    workload = maker.workload
    template, name = workload.spec.template, workload.metadata.name
    labels, spec = dict(template.metadata.labels), dict(template.spec)
    if maker.kind == "StatefulSet":
        ordinal = workload.first_ordinal + workload.replicas
        labels[POD_NAME], labels[POD_INDEX] = f"{name}-{ordinal}", str(ordinal)
        if revision := _revision(workload, ordinal):
            labels[REVISION_HASH] = revision
        spec["hostname"] = f"{name}-{ordinal}"
        claims = [each.metadata.name for each in workload.spec.volume_claim_templates or ()]
        others = [each for each in spec.get("volumes") or () if each.get("name") not in claims]
        own = [{"name": each, "persistentVolumeClaim": {"claimName": f"{each}-{name}-{ordinal}"}} for each in claims]
        if others or own:
            spec["volumes"] = [*others, *own]
    owner = {
        "apiVersion": WORKLOADS[maker.kind].api_version,
        "kind": maker.kind,
        "name": name,
        "uid": workload.metadata.uid,
        "controller": True,
    }
    metadata = {
        "generateName": f"{name}-",
        "labels": labels,
        "annotations": dict(template.metadata.annotations),
        "ownerReferences": [owner],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _revision(workload: Workload, ordinal: int) -> str:
    """Pods below the partition of a roll-out are still made as they were before it."""
    strategy = workload.spec.update_strategy
    partition = strategy.rolling_update.partition if strategy is not None and strategy.rolling_update else None
    is_old = partition is not None and ordinal < workload.first_ordinal + partition
    return workload.status.current_revision if is_old else workload.status.update_revision


def model_pod(
    workload: Workload, pods: Sequence[SchedulerPod], maker: Maker | None = None, admitted: SchedulerPod | None = None
) -> SchedulerPod:
    """A pod as the workload will make it: as admission left it on trial; where that is not known, with the fields of
    the youngest pod that was made from the same template, else as the template says.
    """
    if maker is None:
        template = workload.spec.template.pod()
        bare = msgspec.structs.replace(template, metadata=ObjectMeta(labels=template.metadata.labels))
    else:
        bare = msgspec.convert(pod_body(maker), SchedulerPod)
    if admitted is not None:
        metadata, spec = admitted.metadata, msgspec.structs.replace(admitted.spec, node_name="")
    else:
        metadata, spec = bare.metadata, _spec_like(pods, bare)
    metadata = ObjectMeta(
        namespace=workload.metadata.namespace,
        labels=metadata.labels,
        annotations=metadata.annotations,
        owner_references=bare.metadata.owner_references,
    )
    if not spec.scheduler_name:
        spec = msgspec.structs.replace(spec, scheduler_name=DEFAULT_SCHEDULER)
    return SchedulerPod(metadata=metadata, spec=spec, status=PodStatus())


def _spec_like(pods: Sequence[SchedulerPod], bare: SchedulerPod) -> Any:
    """Of a real pod: it has what admission added, such as defaults, a priority, tolerations and side-cars."""
    alike = [pod for pod in pods if _is_alike(pod, bare)]
    if not alike:
        return bare.spec
    youngest = max(alike, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))
    # Claims made for one pod of a StatefulSet are not the next one's; those of the next one are in its body.
    own = f"-{youngest.metadata.name}"
    kept = [volume for volume in youngest.spec.volumes or () if not _claim(volume).endswith(own)]
    names = {volume.name for volume in kept}
    kept += [volume for volume in bare.spec.volumes or () if _claim(volume) and volume.name not in names]
    return msgspec.structs.replace(youngest.spec, node_name="", volumes=tuple(kept) or None)


def numbered(model: SchedulerPod, maker: str, number: int, claims: Container[str]) -> SchedulerPod:
    """The pod of this number among those to come, under a name that no real pod has and that makes it one of its own
    in the table.

    Pods of a StatefulSet count on from the model's ordinal. `claims` are those that are there already, by namespace
    and name: a pod finds its old volume where it was, and one whose claim is still to be made goes anywhere.
    """
    owner = model.metadata.controller
    labels, spec = model.metadata.labels, model.spec
    first = whole_number(labels.get(POD_INDEX, ""), 0, 2**31 - 1)
    if owner is not None and owner.kind == "StatefulSet" and first is not None:
        ordinal = first + number
        labels = {**labels, POD_NAME: f"{owner.name}-{ordinal}", POD_INDEX: str(ordinal)}
        volumes = _claims_of(model, owner, first, ordinal, claims)
        spec = msgspec.structs.replace(spec, volumes=volumes or None)
    metadata = msgspec.structs.replace(model.metadata, name=f"{maker.replace('/', '.')}.{number}", labels=labels)
    return msgspec.structs.replace(model, metadata=metadata, spec=spec)


def _claims_of(
    model: SchedulerPod, owner: OwnerReference, first: int, ordinal: int, claims: Container[str]
) -> tuple[Volume, ...]:
    was, now = f"-{owner.name}-{first}", f"-{owner.name}-{ordinal}"
    volumes: list[Volume] = []
    for volume in model.spec.volumes or ():
        claim = volume.persistent_volume_claim
        if claim is None or not claim.claim_name.endswith(was):
            volumes.append(volume)
            continue
        name = f"{claim.claim_name.removesuffix(was)}{now}"
        if f"{model.metadata.namespace}/{name}" in claims:
            changed = msgspec.structs.replace(claim, claim_name=name)
            volumes.append(msgspec.structs.replace(volume, persistent_volume_claim=changed))
    return tuple(volumes)


def _claim(volume: Volume) -> str:
    return volume.persistent_volume_claim.claim_name if volume.persistent_volume_claim else ""


def _is_alike(pod: SchedulerPod, template: SchedulerPod) -> bool:
    """Whether the pod was made from this template, as far as it matters where it goes."""
    labels = pod.metadata.labels
    own = (POD_NAME, POD_INDEX)
    if any(labels.get(key) != value for key, value in template.metadata.labels.items() if key not in own):
        return False
    made = {container.name: container for container in pod.spec.containers or ()}
    for expected in template.spec.containers or ():
        found = made.get(expected.name)
        if found is None or found.image != expected.image:
            return False
        requests = found.resources.requests or {}
        if any(requests.get(name) != quantity for name, quantity in (expected.resources.requests or {}).items()):
            return False
    same = ("node_selector", "affinity", "topology_spread_constraints", "priority_class_name")
    return all(getattr(pod.spec, name) == getattr(template.spec, name) for name in same)
