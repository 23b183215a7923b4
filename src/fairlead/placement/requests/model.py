"""What places are sought with: a pod as its workload will make it, before it exists."""

from collections.abc import Sequence
from typing import Final

import msgspec

from fairlead.model.pod import Pod, PodStatus
from fairlead.placement.requests.spec import Workload

DEFAULT_SCHEDULER: Final = "default-scheduler"


def model_pod(workload: Workload, pods: Sequence[Pod]) -> Pod:
    """A pod as the workload will make it: like the youngest it made from the same template, else as the template says.

    A real pod also has what admission added: defaults, a priority, tolerations, side-cars.
    """
    template = workload.spec.template.pod()
    alike = [pod for pod in pods if _is_alike(pod, template)]
    if alike:
        youngest = max(alike, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))
        # Claims made for one pod of a StatefulSet are not the next one's.
        own = f"-{youngest.metadata.name}"
        volumes = tuple(
            volume
            for volume in youngest.spec.volumes or ()
            if not (volume.persistent_volume_claim and volume.persistent_volume_claim.claim_name.endswith(own))
        )
        labels = youngest.metadata.labels
        spec = msgspec.structs.replace(youngest.spec, node_name="", volumes=volumes or None)
    else:
        labels = template.metadata.labels
        scheduler = template.spec.scheduler_name or DEFAULT_SCHEDULER
        spec = msgspec.structs.replace(template.spec, scheduler_name=scheduler)
    metadata = msgspec.structs.replace(
        template.metadata, namespace=workload.metadata.namespace, labels=labels, owner_references=()
    )
    return Pod(metadata=metadata, spec=spec, status=PodStatus())


def numbered(model: Pod, maker: str, number: int) -> Pod:
    """Under a name that no real pod has and that makes it one of its own in the table."""
    metadata = msgspec.structs.replace(model.metadata, name=f"{maker.replace('/', '.')}.{number}")
    return msgspec.structs.replace(model, metadata=metadata)


def _is_alike(pod: Pod, template: Pod) -> bool:
    """Whether the pod was made from this template, as far as it matters where it goes."""
    labels = pod.metadata.labels
    if any(labels.get(key) != value for key, value in template.metadata.labels.items()):
        return False
    made = {container.name: container for container in pod.spec.containers or ()}
    for wanted in template.spec.containers or ():
        found = made.get(wanted.name)
        if found is None or found.image != wanted.image:
            return False
        asked = found.resources.requests or {}
        if any(asked.get(name) != quantity for name, quantity in (wanted.resources.requests or {}).items()):
            return False
    same = ("node_selector", "affinity", "topology_spread_constraints", "priority_class_name")
    return all(getattr(pod.spec, name) == getattr(template.spec, name) for name in same)
