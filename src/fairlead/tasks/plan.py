"""What to do for one task, given what exists and the time: its carrier made, repaired and removed, its rounds run.

Pure and level-based: every step follows from the objects alone, so that a crash between any two writes is survived.
`tracked` is the seed's cacheDB: an index of carriers over the tasks' statuses, and no source of truth.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import msgspec

from fairlead.model.conditions import transition_time
from fairlead.model.cron import BadSchedule
from fairlead.model.intents import Apply, Create, Delete, Intent, PatchStatus, event
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiStruct, Condition, ObjectMeta
from fairlead.model.owners import is_controlled_by
from fairlead.model.times import EARLIEST, bounded_time
from fairlead.tasks import rounds, sharing, spec
from fairlead.tasks.admission import REPORTING_S, start_with
from fairlead.tasks.carrier import HASH_ANNOTATION, PARTS, WORKLOADS, Carrier, CarrierObject, is_ready, missing_part
from fairlead.tasks.endpoints import probed_services
from fairlead.tasks.schedule import Schedule, parse_schedule, parse_zone
from fairlead.tasks.spec import KINDS, Actor, SchedulePlan, Task, TaskResource, TaskStatus

RuntimeStatus = Literal["creating", "created", "deleted"]

CARRIER_READY: Final = "CarrierReady"
ROUND_RUNNING: Final = "RoundRunning"
FINISHED: Final = "Finished"
FAMILIES: Final = "FamiliesAvailable"
ENDPOINTS: Final = "EndpointsListed"
REFUSED: Final = "CarrierRefused"
ENDPOINTS_S: Final = 15.0
"""How long a round waits until its pods are ready again and the Services that it goes through list them."""
LATE_REPORTS_S: Final = 15.0
"""How long after the end reports of silent agents are waited for before their carrier goes."""
ROLLOUT_S: Final = 30.0
"""How long a round waits until the pods of an older template are replaced."""


class CarrierPodSpec(ApiStruct, frozen=True):
    node_name: str = ""


class CarrierPodStatus(ApiStruct, frozen=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class CarrierPod(ApiStruct, frozen=True):
    """A pod of a carrier."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CarrierPodSpec = CarrierPodSpec()
    status: CarrierPodStatus = CarrierPodStatus()

    @property
    def is_ready(self) -> bool:
        is_live = self.metadata.deletion_timestamp is None
        return is_live and any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)

    @property
    def ready_at(self) -> datetime:
        """When its condition Ready last changed; a long time ago for a pod that does not say."""
        since = next((each.last_transition_time for each in self.status.conditions if each.type == "Ready"), None)
        return bounded_time(since, EARLIEST)


@dataclass(frozen=True, slots=True)
class SharedAgent:
    """The DaemonSet that carries tasks without an agentSpec."""

    name: str = "fairlead-agent"
    kind: str = "DaemonSet"
    service_v4: str = "fairlead-agent-ipv4"
    service_v6: str = ""

    @property
    def resource(self) -> TaskResource:
        return TaskResource(
            runtime_name=self.name,
            runtime_type=self.kind,
            service_name_v4=self.service_v4 or None,
            service_name_v6=self.service_v6 or None,
            runtime_status="created",
        )


@dataclass(frozen=True, slots=True)
class Observed:
    """One task and everything of it that exists. `carrier` is what should be; None on the shared agent."""

    kind: str
    task: Task
    carrier: Carrier | None = None
    workload: CarrierObject | None = None
    parts: Mapping[tuple[str, str], CarrierObject] = field(default_factory=dict)
    pods: Sequence[CarrierPod] = ()
    results: Mapping[str, bool] = field(default_factory=dict)
    """UIDs of the pods that reported on the running round, and whether they succeeded."""
    skipped_families: Sequence[str] = ()
    unlisted: Sequence[str] = ()
    """Ready pods that a Service of the carrier does not list yet, where the task goes through Services."""
    sharers: Sequence[sharing.Sharer] = ()
    """On a carrier that tasks share: all that need it, this one included."""
    since: datetime = EARLIEST
    """When this controller began to look: what it read then may be from before an outage."""


@dataclass(frozen=True, slots=True)
class PlanOptions:
    shared: SharedAgent = SharedAgent()
    most_history: int = 10
    poll_s: float = 5.0
    creation_deadline_s: float = 600.0
    settle_s: float = 0.0
    """How long after the newest agent became ready a round through Services starts."""
    namespace: str = "fairlead-system"


@dataclass(frozen=True, slots=True)
class Plan:
    """Intents in the order in which they are carried out; a failure ends the list. Then the time of the next look."""

    intents: list[Intent] = field(default_factory=list)
    wake_s: float | None = None
    is_progress: bool = False
    """Whether nothing is written but which agents of the running round have reported: that can wait for more."""


# -- the seed's cacheDB and tracker -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tracked:
    kind: str
    name: str
    status: str
    tasks: Mapping[str, str]
    """Names of its tasks, and their kinds."""
    delete_at: datetime | None = None


def tracked(tasks: Iterable[tuple[str, Task]]) -> dict[tuple[str, str], Tracked]:
    """Carriers by kind and name, with their tasks."""
    found: dict[tuple[str, str], Tracked] = {}
    for kind, task in tasks:
        resource = task.status.resource
        if resource is None:
            continue
        key = resource.runtime_type, resource.runtime_name
        due, others = delete_at(task), found.get(key)
        if others is not None:
            due = max(due, others.delete_at) if due and others.delete_at else None  # it goes with the last
        of_all = {**(others.tasks if others else {}), task.metadata.name: kind}
        found[key] = Tracked(*key, resource.runtime_status, of_all, due)
    return found


def delete_at(task: Task) -> datetime | None:
    """When the carrier of a finished task goes; None for the shared agent and for a task that is not finished."""
    agent = task.spec.agent_spec
    if agent is None or task.status.finish_time is None:
        return None
    grace = min(max(0, agent.termination_grace_period_minutes or 0), spec.MOST_MINUTES)
    return bounded_time(task.status.finish_time, EARLIEST) + timedelta(minutes=grace)


def next_runtime_status(
    resource: TaskResource, workload: CarrierObject | None, *, is_due: bool, share: float = 1.0
) -> RuntimeStatus:
    if is_due:
        return "deleted"
    if resource.runtime_status == "creating" and is_ready(resource.runtime_type, workload, share):
        return "created"
    return resource.runtime_status


# -- one task ----------------------------------------------------------------------------------------------------


def plan_task(seen: Observed, options: PlanOptions, now: datetime) -> Plan:
    task = seen.task
    if task.metadata.deletion_timestamp is not None:
        return Plan()  # its objects go with it, by their owner references
    if task.unreadable:
        return Plan([event(KINDS[seen.kind], task.metadata, "Unreadable", task.unreadable, warning=True)])
    if task.status.finish:
        return _plan_finished(seen, options, now)
    intents, status, problem = _ensure_carrier(seen, options)
    if status.resource is not None and status.resource.runtime_status == "created":
        # Whatever is in the way of the next round, one that runs is judged in time.
        status, wake_s = _run_rounds(seen, status, options, now, is_held=bool(problem) or _is_suspended(task))
    else:
        wake_s = _late_in_s(status, options, now)
    status = _with_conditions(seen, status, problem, options, now)
    return _written(seen, intents, status, options.poll_s if problem else wake_s, now)


def plan_refusal(seen: Observed, problem: str, options: PlanOptions, now: datetime) -> Plan:
    """What is told of a carrier that the API server refuses; it is tried again later."""
    status = _with_conditions(seen, seen.task.status, f"{REFUSED}: {problem}", options, now)
    return _written(seen, [], status, None, now)


def _written(seen: Observed, intents: list[Intent], status: TaskStatus, wake_s: float | None, now: datetime) -> Plan:
    before = seen.task.status
    if status == before:
        return Plan(intents, wake_s)
    metadata = seen.task.metadata
    patch = _status_patch(before, status)
    write = PatchStatus(
        kind=KINDS[seen.kind], name=metadata.name, status=patch, resource_version=metadata.resource_version
    )
    is_progress = not intents and _without_lists(status) == _without_lists(before)
    return Plan([*intents, write, *_events(seen, status)], wake_s, is_progress)


def _without_lists(status: TaskStatus) -> TaskStatus:
    """Without the nodes that have reported in the running round."""
    if not _is_ongoing(status):
        return status
    record = msgspec.structs.replace(status.history[0], succeed_agent_node_list=[], failed_agent_node_list=[])
    return msgspec.structs.replace(status, history=[record, *status.history[1:]])


def _status_patch(before: TaskStatus, after: TaskStatus) -> dict[str, Any]:
    """A merge patch: what is gone becomes null."""
    new, old = after.to_json(), before.to_json()
    patch = {name: value for name, value in new.items() if old.get(name) != value}
    if "resource" in patch:
        patch["resource"] = {**dict.fromkeys(old.get("resource") or ()), **patch["resource"]}
    return {**{name: None for name in old if name not in new}, **patch, "finish": after.finish}


def _ensure_carrier(seen: Observed, options: PlanOptions) -> tuple[list[Intent], TaskStatus, str]:
    """Intents that make the carrier what it should be, the status with it, and what is in the way."""
    status = seen.task.status
    share = start_with(seen.task.metadata.annotations) or 1.0
    if seen.carrier is None:
        resource = status.resource or options.shared.resource
        problem = "" if is_ready(options.shared.kind, seen.workload, share) else "the shared agent is not ready"
        if seen.workload is None:
            problem = f"there is no DaemonSet {options.shared.name}: apply deploy/tasks/agent.yaml"
        return [], msgspec.structs.replace(status, resource=resource), problem
    intents, problem = plan_objects(seen, status)
    planned = seen.carrier.resource
    current = status.resource or planned
    resource = msgspec.structs.replace(planned, runtime_status=current.runtime_status)
    # What is repaired is there; a difference that another writer keeps up must not hold the task back.
    is_there = seen.workload is not None and not problem and not any(isinstance(each, Create) for each in intents)
    if seen.workload is None and current.runtime_status == "created":
        resource = msgspec.structs.replace(resource, runtime_status="creating")
    elif is_there:
        resource = msgspec.structs.replace(
            resource, runtime_status=next_runtime_status(resource, seen.workload, is_due=False, share=share)
        )
    return intents, msgspec.structs.replace(status, resource=resource), problem


def plan_objects(seen: Observed, status: TaskStatus) -> tuple[list[Intent], str]:
    """Creates and repairs of the carrier's objects; the second value says what is in the way of it."""
    assert seen.carrier is not None
    desired, workload = seen.carrier.workload, seen.workload
    kind = WORKLOADS[desired["kind"]]
    namespace = desired["metadata"]["namespace"]
    if workload is None:
        create = Create(kind=kind, body=desired, namespace=namespace)
        note = f"Created {kind.kind} {desired['metadata']['name']}"
        return [create, event(KINDS[seen.kind], seen.task.metadata, "CarrierCreated", note)], ""
    if problem := ownership_problem(kind, workload.metadata, seen):
        return [], problem
    intents: list[Intent] = []
    if seen.sharers:
        intents += sharing.join(kind, workload.metadata, seen.kind, seen.task)
    is_running = _is_ongoing(status) or any(_is_ongoing(other.status) for _, other in seen.sharers)
    if has_drifted(seen.carrier, workload) and not is_running:
        intents.append(Apply(kind=kind, name=workload.metadata.name, namespace=namespace, body=desired))
    for body in seen.carrier.parts(workload.metadata.uid):
        part_kind, name = PARTS[body["kind"]], body["metadata"]["name"]
        found = seen.parts.get((part_kind.kind, name))
        if found is None:
            intents.append(Create(kind=part_kind, body=body, namespace=namespace))
        elif not is_controlled_by(found, workload.metadata):
            return intents, conflict(part_kind, found.metadata)
        elif missing_part(body.get("spec", {}), found.spec) or missing_part(body.get("data", {}), found.data):
            intents.append(Apply(kind=part_kind, name=name, namespace=namespace, body=body))
    return intents, ""


def has_drifted(carrier: Carrier, workload: CarrierObject) -> bool:
    """Whether the workload is not what it should be: changed by hand, or made from another template."""
    desired = carrier.workload
    is_other = template_hash(workload.metadata) != desired["metadata"].get("annotations", {}).get(HASH_ANNOTATION, "")
    return is_other or missing_part(desired["spec"], workload.spec)


def template_hash(metadata: ObjectMeta) -> str:
    return metadata.annotations.get(HASH_ANNOTATION, "")


def is_rolling(seen: Observed) -> bool:
    """Whether pods of the carrier are about to be replaced: they are no actors to rely on."""
    if seen.carrier is None or seen.workload is None:
        return False
    current = seen.carrier.workload["metadata"].get("annotations", {}).get(HASH_ANNOTATION, "")
    pods = (pod.metadata for pod in seen.pods if pod.metadata.deletion_timestamp is None)
    return has_drifted(seen.carrier, seen.workload) or any(template_hash(pod) not in ("", current) for pod in pods)


def ownership_problem(kind: Kind[Any], metadata: ObjectMeta, seen: Observed) -> str:
    if metadata.deletion_timestamp is not None:
        return f"waiting until the previous {kind.kind} {metadata.name} is gone"
    if seen.sharers:
        if sharing.belongs_to(metadata, seen.sharers):
            return ""
        if sharing.is_left_over(metadata):
            return f"waiting until {kind.kind} {metadata.name} of previous tasks is gone"
        return conflict(kind, metadata)
    owner = metadata.controller
    if owner is not None and owner.uid == seen.task.metadata.uid:
        return ""
    if owner is not None and owner.kind == seen.kind and owner.name == seen.task.metadata.name:
        return f"waiting until {kind.kind} {metadata.name} of the previous task of this name is gone"
    return conflict(kind, metadata)


def conflict(kind: Kind[Any], metadata: ObjectMeta) -> str:
    return f"NameConflict: {kind.kind} {metadata.namespace}/{metadata.name} belongs to something else: delete it"


def _run_rounds(
    seen: Observed, status: TaskStatus, options: PlanOptions, now: datetime, *, is_held: bool
) -> tuple[TaskStatus, float | None]:
    """All transitions that are due at once, so that one write does for all of them. `is_held`: none may start."""
    task = seen.task
    try:
        schedule, round_options = round_plan(task, options)
    except BadSchedule:
        return status, None  # the condition says so
    status = rounds.with_reports(status, seen.results.items())
    actors = ready_actors(seen.pods)
    if _is_ongoing(status) and not status.actors:
        # The round began before any pod was ready: those that are now are its actors.
        status = msgspec.structs.replace(status, actors=[each for each in actors if each.node])
    if is_held and not _is_ongoing(status):
        return status, None
    while True:
        status = _with_run_now(task, status, round_options, now)
        if (wait_s := _start_wait_s(seen, status, options, now)) is not None:
            return status, wait_s
        step = rounds.step(status, schedule, round_options, actors, now)
        if step.status is None:
            return status, step.wake_s
        status = step.status
        if status.finish or _is_ongoing(status) or is_held:
            return status, step.wake_s


def ready_actors(pods: Iterable[CarrierPod]) -> list[Actor]:
    return [Actor(pod=p.metadata.name, uid=p.metadata.uid, node=p.spec.node_name) for p in pods if p.is_ready]


def _start_wait_s(seen: Observed, status: TaskStatus, options: PlanOptions, now: datetime) -> float | None:
    """How long a round that is due waits until its pods are there and its Services lead to them; None: no longer."""
    if not status.history or status.history[0].status != "notstarted":
        return None
    start = bounded_time(status.history[0].start_time_stamp, now)
    deadline = bounded_time(status.history[0].dead_line_time_stamp, now)
    latest = start + timedelta(seconds=ENDPOINTS_S)
    until = [start, min(latest, agents_at(seen, options))]
    if is_rolling(seen):
        until.append(start + timedelta(seconds=ROLLOUT_S))
    if probed_services(seen.task):
        ready_at = max((pod.ready_at for pod in seen.pods if pod.is_ready), default=EARLIEST)
        until.append(latest if seen.unlisted else min(latest, ready_at + timedelta(seconds=options.settle_s)))
    request = seen.task.spec.request
    needed_s = (request.duration_in_second if request is not None else 0) + REPORTING_S
    left_s = (min(max(until), deadline - timedelta(seconds=needed_s)) - now).total_seconds()
    return left_s if now >= start and left_s > 0 else None


def agents_at(seen: Observed, options: PlanOptions) -> datetime:
    """Until when it is worth waiting for agents: for what they say now, and for those that have just stopped."""
    known_at = seen.since + timedelta(seconds=options.settle_s)
    pods = [pod for pod in seen.pods if pod.metadata.deletion_timestamp is None]
    stopped = [pod.ready_at for pod in pods if not pod.is_ready]
    share = start_with(seen.task.metadata.annotations) or 1.0
    if len(pods) - len(stopped) >= share * len(pods):
        return known_at
    return max(known_at, max(stopped) + timedelta(seconds=ENDPOINTS_S))


def _is_ongoing(status: TaskStatus) -> bool:
    return bool(status.history) and status.history[0].status == "ongoing"


def _is_suspended(task: Task) -> bool:
    return task.metadata.annotations.get(spec.SUSPEND) == "true"


def _with_run_now(task: Task, status: TaskStatus, options: rounds.RoundOptions, now: datetime) -> TaskStatus:
    nonce = task.metadata.annotations.get(spec.RUN_NOW, "")[:253]
    if not nonce or nonce == status.run_now or not status.history or status.history[0].status != "notstarted":
        return status
    return msgspec.structs.replace(rounds.run_now(status, options, now), run_now=nonce)


def round_plan(task: Task, options: PlanOptions) -> tuple[Schedule, rounds.RoundOptions]:
    """The task's schedule; an omitted block runs once, at once."""
    block = task.spec.schedule or SchedulePlan(schedule="0 60")
    annotations = task.metadata.annotations
    schedule = parse_schedule(block.schedule or "0 60", parse_zone(annotations.get(spec.TIME_ZONE, "")))
    return schedule, rounds.RoundOptions(
        timeout=timedelta(minutes=block.round_timeout_minute),
        number=block.round_number,
        poll_s=options.poll_s,
        most_history=options.most_history,
        missed="run" if annotations.get(spec.MISSED) == "run" else "skip",
        replaces=annotations.get(spec.OVERLAP) == "Replace",
    )


def _plan_finished(seen: Observed, options: PlanOptions, now: datetime) -> Plan:
    task, status = seen.task, seen.task.status
    due, resource = delete_at(task), status.resource
    if due is None or resource is None or resource.runtime_status == "deleted":
        return _written(seen, [], _with_conditions(seen, status, "", options, now), None, now)
    if status.history and status.history[0].not_report_agent_node_list:
        assert status.finish_time is not None
        due = max(due, bounded_time(status.finish_time, now) + timedelta(seconds=LATE_REPORTS_S))
    if now < due:
        status = _with_conditions(seen, status, "", options, now)
        return _written(seen, [], status, (due - now).total_seconds(), now)
    intents: list[Intent] = []
    assert task.spec.agent_spec is not None
    workload, kind = seen.workload, WORKLOADS[task.spec.agent_spec.kind]
    if workload is not None and seen.sharers:
        intents += sharing.leave(kind, workload.metadata, task, seen.sharers)
    elif (
        workload is not None and is_controlled_by(workload, task.metadata) and not workload.metadata.deletion_timestamp
    ):
        name = workload.metadata.name
        intents.append(Delete(kind=kind, name=name, namespace=options.namespace, uid=workload.metadata.uid))
    gone = msgspec.structs.replace(resource, runtime_status="deleted")
    status = msgspec.structs.replace(status, resource=gone)
    return _written(seen, intents, _with_conditions(seen, status, "", options, now), None, now)


# -- conditions and events ---------------------------------------------------------------------------------------


def _with_conditions(
    seen: Observed, status: TaskStatus, problem: str, options: PlanOptions, now: datetime
) -> TaskStatus:
    found = [
        _carrier_condition(seen, status, problem, options, now),
        _round_condition(seen, status, options, now),
        Condition(type=FINISHED, status=_word(status.finish), reason="Finished" if status.finish else "RoundsLeft"),
    ]
    if seen.skipped_families:
        names = ", ".join(seen.skipped_families)
        message = f"the cluster has no {names}: nothing is tested over it"
        found.append(Condition(type=FAMILIES, status="False", reason="FamilySkipped", message=message))
    if seen.unlisted and (_is_ongoing(status) or _start_wait_s(seen, status, options, now) is not None):
        message = f"Services do not list yet: {', '.join(seen.unlisted[:20])}"
        found.append(Condition(type=ENDPOINTS, status="False", reason="NotListed", message=message))
    before = {each.type: each for each in status.conditions}
    merged = []
    for condition in found:
        old = before.get(condition.type)
        since = transition_time(old, condition.status, now)
        merged.append(msgspec.structs.replace(condition, last_transition_time=since))
    return msgspec.structs.replace(status, conditions=merged)


def _word(is_true: bool) -> str:
    return "True" if is_true else "False"


def _late_in_s(status: TaskStatus, options: PlanOptions, now: datetime) -> float | None:
    """How long until a carrier that is being created is late; None when it is, or is not created."""
    if status.resource is None or status.resource.runtime_status != "creating":
        return None
    left_s = options.creation_deadline_s - _unready_s(status, now)
    return left_s + 1 if left_s >= 0 else None


def _unready_s(status: TaskStatus, now: datetime) -> float:
    """For how long the carrier has not been ready; 0 for one that was when the status was written."""
    known = _condition(status, CARRIER_READY)
    since = known.last_transition_time if known is not None and known.status == "False" else None
    return (now - bounded_time(since, now)).total_seconds()


def _carrier_condition(
    seen: Observed, status: TaskStatus, problem: str, options: PlanOptions, now: datetime
) -> Condition:
    runtime = status.resource.runtime_status if status.resource is not None else "creating"
    if problem:
        reason = next((each for each in ("NameConflict", REFUSED) if problem.startswith(each)), "Waiting")
        return Condition(type=CARRIER_READY, status="False", reason=reason, message=problem[:1000])
    if runtime == "deleted":
        return Condition(type=CARRIER_READY, status="False", reason="Removed", message="the task is finished")
    waiting = sorted(pod.spec.node_name or "no node yet" for pod in seen.pods if not pod.is_ready)
    rest = f"not ready on: {', '.join(waiting[:20])}" if waiting else ""
    if runtime == "created":
        return Condition(type=CARRIER_READY, status="True", reason="Ready", message=rest)
    is_late = _unready_s(status, now) > options.creation_deadline_s
    message = rest or "no pod yet: does any node match agentSpec.affinity?"
    if is_late:
        message += f"; write the annotation {spec.START_WITH} to start with fewer"
    reason = "CreationDeadlineExceeded" if is_late else "Creating"
    return Condition(type=CARRIER_READY, status="False", reason=reason, message=message)


def _round_condition(seen: Observed, status: TaskStatus, options: PlanOptions, now: datetime) -> Condition:
    if _is_ongoing(status):
        number = status.history[0].round_number
        message = f"round {number} with {len(status.actors)} agents"
        return Condition(type=ROUND_RUNNING, status="True", reason="Running", message=message)
    if _is_suspended(seen.task) and not status.finish:
        return Condition(type=ROUND_RUNNING, status="False", reason="Suspended", message=f"{spec.SUSPEND} is true")
    if _start_wait_s(seen, status, options, now) is not None:
        waits = (is_rolling(seen), "WaitingForRollout"), (now < agents_at(seen, options), "WaitingForAgents")
        reason = next((name for is_so, name in waits if is_so), "WaitingForEndpoints")
        return Condition(type=ROUND_RUNNING, status="False", reason=reason)
    try:
        round_plan(seen.task, options)
    except BadSchedule as problem:
        return Condition(type=ROUND_RUNNING, status="False", reason="BadSchedule", message=str(problem)[:1000])
    return Condition(type=ROUND_RUNNING, status="False", reason="Waiting")


def _events(seen: Observed, status: TaskStatus) -> list[Intent]:
    """Events for what this write changes."""
    kind, about, before = KINDS[seen.kind], seen.task.metadata, seen.task.status
    found: list[Intent] = []
    was, is_now = _condition(before, CARRIER_READY), _condition(status, CARRIER_READY)
    if is_now is not None and (was is None or was.reason != is_now.reason):
        if is_now.reason in ("NameConflict", "CreationDeadlineExceeded", REFUSED):
            found.append(event(kind, about, is_now.reason, is_now.message, warning=True))
        elif is_now.reason == "Ready":
            found.append(event(kind, about, "CarrierReady", is_now.message or "every agent is ready"))
        elif was is not None and was.status == "True" and is_now.reason == "Creating":
            found.append(event(kind, about, "CarrierLost", "the carrier was deleted and is made again", warning=True))
    if status.done_round and status.done_round != before.done_round:
        record = next((each for each in status.history if each.status in ("succeed", "fail")), None)
        if record is not None and record.status == "fail":
            why = record.failure_reason if isinstance(record.failure_reason, str) else ""
            found.append(event(kind, about, "RoundFailed", f"round {record.round_number}: {why}", warning=True))
        elif record is not None:
            found.append(event(kind, about, "RoundSucceeded", f"round {record.round_number}"))
    if status.finish and not before.finish:
        found.append(event(kind, about, "Finished", f"{status.done_round} rounds done"))
    return found


def _condition(status: TaskStatus, name: str) -> Condition | None:
    return next((each for each in status.conditions if each.type == name), None)
