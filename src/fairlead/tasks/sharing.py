"""Carriers that tasks share: those with `share-carrier: "true"`, an equal agentSpec and equal Secret and ConfigMap.

Each task is an owner and none is the controller, so that the garbage collector removes the carrier with its last task.
A finished task leaves by itself. Which tasks share follows from the tasks alone. Pure.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from fairlead.model.hashes import short_hash
from fairlead.model.intents import Delete, Intent
from fairlead.model.kinds import Kind
from fairlead.model.meta import ObjectMeta
from fairlead.model.owners import as_json, owner_reference, patch_metadata, release
from fairlead.tasks.spec import GROUP, KINDS, SHARE_CARRIER, VERSION, AgentSpec, AppHttpHealthySpec, Task

PREFIX: Final = "kdoctor-shared-"
Sharer = tuple[str, Task]
"""A task on a shared carrier, with its kind."""


def shared_carrier(task: Task) -> str:
    """The name of the carrier that the task shares; empty for one of its own. What it has already, it keeps."""
    agent, resource = task.spec.agent_spec, task.status.resource
    if agent is None:
        return ""
    if resource is not None and resource.runtime_name:
        return resource.runtime_name if resource.runtime_name.startswith(PREFIX) else ""
    if task.metadata.annotations.get(SHARE_CARRIER) != "true":
        return ""
    encoded = msgspec.json.encode(agent, order="sorted").decode()
    return f"{PREFIX}{short_hash(encoded, *_copied(task.spec), length=10)}"


def with_own_agents(task: Task) -> Task:
    """The task as it is carried out: the shared agent has no copies, so one that needs some gets a carrier, too."""
    if task.spec.agent_spec is not None or not any(_copied(task.spec)):
        return task
    spec = msgspec.structs.replace(task.spec, agent_spec=AgentSpec(termination_grace_period_minutes=0))
    return msgspec.structs.replace(task, spec=spec)


def _copied(spec: Any) -> list[str]:
    """What the agents get copies of: one set of files a carrier."""
    target = spec.target if isinstance(spec, AppHttpHealthySpec) else None
    if target is None:
        return ["", "", "", ""]
    names = target.tls_secret_namespace, target.tls_secret_name
    return [each or "" for each in (*names, target.body_configmap_namespace, target.body_configmap_name)]


def sharers(tasks: Iterable[Sharer], carrier: str) -> list[Sharer]:
    """The tasks that need the carrier, in an order that is the same for each of them."""
    found = [(kind, task) for kind, task in tasks if needs_carrier(task) and shared_carrier(task) == carrier]
    return sorted(found, key=lambda each: (each[1].metadata.creation_timestamp or "", each[1].metadata.uid))


def needs_carrier(task: Task) -> bool:
    resource = task.status.resource
    is_left = resource is not None and resource.runtime_status == "deleted"
    return task.metadata.deletion_timestamp is None and not is_left


def task_reference(kind: str, task: Task) -> dict[str, Any]:
    return {**owner_reference(KINDS[kind], task.metadata.name, task.metadata.uid), "blockOwnerDeletion": True}


def is_owner(workload: ObjectMeta, task: Task) -> bool:
    return any(owner.uid == task.metadata.uid for owner in workload.owner_references)


def join(kind: Kind[Any], workload: ObjectMeta, task_kind: str, task: Task) -> list[Intent]:
    """The task becomes an owner, unless it is one."""
    if is_owner(workload, task):
        return []
    owners = [*as_json(workload.owner_references), task_reference(task_kind, task)]
    return [patch_metadata(kind, workload, {"ownerReferences": owners})]


def leave(kind: Kind[Any], workload: ObjectMeta, task: Task, sharing: Sequence[Sharer]) -> list[Intent]:
    """The task is no owner any more; the last one takes the carrier with it.

    Either is refused if the carrier has changed since. Only owners count as others: who has left already would leave it
    to nobody, and who has not joined yet makes a new one.
    """
    if workload.deletion_timestamp is not None or not is_owner(workload, task):
        return []
    others = [other for _, other in sharing if other.metadata.uid != task.metadata.uid]
    if any(is_owner(workload, other) for other in others):
        return [release(kind, workload, task.metadata.uid)]
    return [
        Delete(
            kind=kind,
            name=workload.name,
            namespace=workload.namespace,
            uid=workload.uid,
            resource_version=workload.resource_version,
        )
    ]


def belongs_to(workload: ObjectMeta, sharing: Sequence[Sharer]) -> bool:
    known = {task.metadata.uid for _, task in sharing}
    return workload.controller is None and any(owner.uid in known for owner in workload.owner_references)


def is_left_over(workload: ObjectMeta) -> bool:
    """Whether it belongs to tasks that are gone, and is about to go with them."""
    ours = f"{GROUP}/{VERSION}"
    owners = workload.owner_references
    return bool(owners) and workload.controller is None and all(owner.api_version == ours for owner in owners)
