"""A job as a unit for the placement engine, and what it asks for. Pure."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from fairlead.engine.unit import Domains, Member, Unit
from fairlead.jobs.allocations import LEADER_PLACE, Place, Places
from fairlead.jobs.observed import JobInput
from fairlead.jobs.order import BELOW_QUORUM, SURPLUS, UNSCHEDULED, PendingJob
from fairlead.jobs.plan import may_be_planned
from fairlead.jobs.pods import is_exhausted, places_of, pod_name
from fairlead.jobs.spec import JOB_LABEL, LEADER, WORKER, JobPod, JobSpec, JobStatus, QueueSpec
from fairlead.model.meta import ObjectMeta
from fairlead.model.pod import SchedulerPod
from fairlead.model.resources import pod_requests
from fairlead.model.times import parse_time_or_none

Planned = Mapping[str, SchedulerPod]
"""The pod of the leader ("") and of each worker set, as the server would store it; their names do not count."""


def unit_of(seen: JobInput, places: Places, planned: Planned, now: datetime, queue: QueueSpec) -> Unit | None:
    """The job with the places it has and, if it may be planned, the members that need one."""
    spec, metadata, status = seen.spec, seen.metadata, seen.status
    is_planned = may_be_planned(seen, now)
    places = {place: node for place, node in places.items() if place not in seen.done}
    quorum = max(1, (status.quorum if places and status.quorum else spec.quorum) - len(seen.done))
    chosen = list(places)
    if is_planned:
        all_places = [
            place
            for place in places_of(spec)
            if place not in seen.done
            and not is_exhausted(spec, status, place)
            and (place in places or not _is_bound(seen.current.get(place)))
        ]
        # A quota counts every pod: first the quorum, then one worker after the other.
        chosen = all_places[:quorum] if queue.quota and not places else all_places
    if not chosen or (not places and len(chosen) < quorum):
        return None
    members = tuple(_member(metadata, spec, place, places, planned) for place in chosen)
    topology = spec.scheduler_policy.topology
    return Unit(
        key=metadata.key,
        members=members,
        minimum=quorum,
        priority=planned[""].priority,
        importance=spec.priority,
        domains=Domains(topology.key, topology.mode == "Required") if topology is not None else None,
        policies={"": spec.policy},
        job_label=JOB_LABEL,
        most=1 if queue.quota else None,
        hold_s=float(spec.start_timeout_seconds),
        run_s=float(spec.estimated_run_seconds) if spec.estimated_run_seconds else None,
        ends_at_s=_ends_at_s(spec, status),
    )


def _member(metadata: ObjectMeta, spec: JobSpec, place: Place, places: Places, planned: Planned) -> Member:
    pod = planned[place[0]]
    named = msgspec.structs.replace(pod.metadata, name=pod_name(metadata.name, spec, place), uid="")
    is_leader = place == LEADER_PLACE
    return Member(
        pod=msgspec.structs.replace(pod, metadata=named),
        role=LEADER if is_leader else WORKER,
        essential=is_leader,
        node=places.get(place, ""),
    )


def _is_bound(pod: JobPod | None) -> bool:
    """It lost its place and is not being deleted yet: with a new place it would be a pod outside its place."""
    return pod is not None and bool(pod.spec.node_name) and not pod.is_terminating and not pod.is_finished


def _ends_at_s(spec: JobSpec, status: JobStatus) -> float | None:
    """After its last start: a job whose pods were created anew begins again."""
    started = parse_time_or_none(status.stage_time) if status.stage == "Running" else None
    if started is None or not spec.estimated_run_seconds:
        return None
    return started.timestamp() + spec.estimated_run_seconds


def requests_of(unit: Unit, *, placed: bool | None = None, most: int | None = None) -> dict[str, int]:
    """The sum of its members' requests: of all, or of those with (or without) a node, the first `most` of them."""
    total: dict[str, int] = {}
    known: dict[int, dict[str, int]] = {}
    members = [each for each in unit.members if placed is None or bool(each.node) is placed]
    for member in members[:most]:
        # Pods of one set share their spec.
        amounts = known.get(id(member.pod.spec))
        if amounts is None:
            amounts = known[id(member.pod.spec)] = pod_requests(member.pod)
        for name, value in amounts.items():
            total[name] = total.get(name, 0) + value
    return total


def pending_job(seen: JobInput, unit: Unit, queue: QueueSpec) -> PendingJob:
    spec = seen.spec
    policy = spec.scheduler_policy
    if unit.has_minimum:
        turn, added = SURPLUS, unit.most
    else:
        turn = BELOW_QUORUM if seen.status.stage == "Rescheduling" else UNSCHEDULED
        added = unit.needed
    return PendingJob(
        key=unit.key,
        created=seen.metadata.creation_timestamp or "",
        pod_priority=unit.priority,
        priority=min(spec.priority, queue.max_priority),
        policy=policy.job_queue_policy,
        basis=policy.drf_basis,
        queue=spec.queue,
        turn=turn,
        requests=requests_of(unit),
        next_requests=requests_of(unit, placed=False, most=added),
    )
