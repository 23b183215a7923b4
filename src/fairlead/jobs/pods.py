"""The pods of a job: their names, bodies and environment, and the Service that gives the leader a name.

A pod's index and attempt are annotations and environment, never labels: pods of one set must look the same to the
placement engine.
"""

from collections.abc import Iterable
from typing import Any, Final

from fairlead.jobs.allocations import LEADER_PLACE, Place
from fairlead.jobs.spec import (
    ATTEMPT_ANNOTATION,
    INDEX_ANNOTATION,
    JOB_LABEL,
    LEADER,
    RESTARTS_ANNOTATION,
    ROLE_LABEL,
    SET_LABEL,
    TYJOBS,
    WORKER,
    JobPod,
    JobSpec,
    JobStatus,
)
from fairlead.model.meta import ObjectMeta
from fairlead.model.numbers import whole_number
from fairlead.model.owners import controller_reference

Json = dict[str, Any]

ADDRESS: Final = "TYJOB_LEADER_ADDRESS"


def places_of(spec: JobSpec) -> list[Place]:
    """Every place of the job, the leader's first."""
    return [LEADER_PLACE, *((each.name, index) for each in spec.worker_sets for index in range(each.counts))]


def pod_name(job: str, spec: JobSpec, place: Place) -> str:
    name, index = place
    return f"{job}-{name}-{index}" if name else f"{job}-{spec.leader.name}"


def template_of(spec: JobSpec, place: Place) -> Json:
    worker_set = spec.worker_set(place[0])
    return worker_set.template if worker_set is not None else spec.leader.template


def main_container(spec: JobSpec, place: Place) -> str:
    """The first of the template. A pod's own list may begin with another that admission added, and its statuses are in
    the order of names."""
    containers: list[Json] = (template_of(spec, place).get("spec") or {}).get("containers") or [{}]
    return str(containers[0].get("name", ""))


def place_of(pod: JobPod) -> Place | None:
    """The place a pod was created for; None for a pod that does not say so."""
    labels = pod.metadata.labels
    if labels.get(ROLE_LABEL) == LEADER:
        return LEADER_PLACE
    index = whole_number(pod.metadata.annotations.get(INDEX_ANNOTATION, ""), 0, 2**31)
    name = labels.get(SET_LABEL)
    return (name, index) if name and index is not None else None


def attempt_of(pod: JobPod) -> int:
    return whole_number(pod.metadata.annotations.get(ATTEMPT_ANNOTATION, ""), 0, 2**31) or 0


def restarts_before(pod: JobPod) -> int:
    return whole_number(pod.metadata.annotations.get(RESTARTS_ANNOTATION, ""), 0, 2**31) or 0


def restarts_of(status: JobStatus, place: Place) -> int:
    """Restarts counted so far of the pod at a place."""
    name, index = place
    return status.worker_restarts.get(name, {}).get(str(index), 0) if name else status.restarts


def is_exhausted(spec: JobSpec, status: JobStatus, place: Place) -> bool:
    """Whether the worker of a place has failed too often to be created again."""
    return place != LEADER_PLACE and restarts_of(status, place) > spec.restart_limit


def leader_address(metadata: ObjectMeta, spec: JobSpec, ip: str) -> str:
    if spec.address_mode == "IP":
        return ip
    return f"{pod_name(metadata.name, spec, LEADER_PLACE)}.{metadata.name}.{metadata.namespace}.svc"


def pod_body(metadata: ObjectMeta, spec: JobSpec, status: JobStatus, place: Place, scheduler: str) -> Json:
    """The pod of a place, as it is created now."""
    name, index = place
    template = template_of(spec, place)
    given = template.get("metadata") or {}
    pod_metadata: Json = {
        **{field: value for field, value in given.items() if field == "finalizers"},
        "name": pod_name(metadata.name, spec, place),
        "namespace": metadata.namespace,
        "labels": {
            **(given.get("labels") or {}),
            JOB_LABEL: metadata.name,
            ROLE_LABEL: WORKER if name else LEADER,
            **({SET_LABEL: name} if name else {}),
        },
        "annotations": {
            **(given.get("annotations") or {}),
            ATTEMPT_ANNOTATION: str(status.attempt),
            RESTARTS_ANNOTATION: str(restarts_of(status, place)),
            **({INDEX_ANNOTATION: str(index)} if name else {}),
        },
        "ownerReferences": [controller_reference(TYJOBS, metadata)],
    }
    pod: Json = dict(template.get("spec") or {})
    pod["schedulerName"] = scheduler
    if not name and pod.get("restartPolicy") in (None, "Always"):
        # A leader that always restarts would never end.
        pod["restartPolicy"] = "OnFailure"
    if spec.address_mode == "DNS":
        pod |= {"hostname": pod_metadata["name"], "subdomain": metadata.name}
    if spec.volumes:
        pod["volumes"] = [*(pod.get("volumes") or ()), *spec.volumes]
    env = list(_environment(metadata, spec, status, place))
    for field in ("initContainers", "containers"):
        if pod.get(field):
            pod[field] = [_with_env(each, env) for each in pod[field]]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": pod_metadata, "spec": pod}


def _environment(metadata: ObjectMeta, spec: JobSpec, status: JobStatus, place: Place) -> Iterable[tuple[str, str]]:
    name, index = place
    yield "TYJOB_NAME", metadata.name
    yield "TYJOB_ROLE", WORKER if name else LEADER
    yield "TYJOB_WORKERS", str(spec.total)
    yield "TYJOB_ATTEMPT", str(status.attempt)
    if name:
        yield ADDRESS, status.leader_address
        yield "TYJOB_WORKER_SET", name
        yield "TYJOB_WORKER_INDEX", str(index)


def _with_env(container: Json, env: list[tuple[str, str]]) -> Json:
    """Ours come first, so that others may refer to them; of two with one name the template's counts."""
    own = container.get("env") or []
    names = {each.get("name") for each in own if isinstance(each, dict)}
    return {**container, "env": [*({"name": name, "value": value} for name, value in env if name not in names), *own]}


def service_body(metadata: ObjectMeta) -> Json:
    """A headless Service: it gives pods names, before they are ready too."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "labels": {JOB_LABEL: metadata.name},
            "ownerReferences": [controller_reference(TYJOBS, metadata)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {JOB_LABEL: metadata.name},
        },
    }
