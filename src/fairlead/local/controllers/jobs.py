"""Jobs: pods that are to end well a number of times, counted once each whatever happens in between.

A pod keeps a finalizer until its end is counted, in three steps that each rest on what is seen of the one before:

    the pod has ended        → its UID is listed in the status as not counted yet
    the UID is listed        → the pod's finalizer is dropped
    the finalizer is gone    → the UID leaves the list and the counter grows

A Job first says that it will end (SuccessCriteriaMet, FailureTarget) and ends when nothing of it runs.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import Final

from fairlead.cluster.controller import Controller
from fairlead.cluster.mirror import Delta
from fairlead.cluster.shell import BURST, claimed_keys
from fairlead.local.controllers.mirrors import ControllerContext
from fairlead.local.controllers.pods import create_pod, delete_pod, wake_after
from fairlead.local.controllers.spec import JOBS, PODS, ControllerPod, Job, Json, selector_of
from fairlead.local.controllers.statuses import condition_of, plan_status, with_condition
from fairlead.model.intents import Intent, WakeAfter, delete, event
from fairlead.model.numbers import index_ranges, whole_number
from fairlead.model.owners import claim, drop_finalizer
from fairlead.model.selectors import Selector
from fairlead.model.templates import fresh_name, pod_body
from fairlead.model.times import parse_time, rfc3339, seconds_since

TRACKING: Final = "batch.kubernetes.io/job-tracking"
INDEX: Final = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
CONTROLLER: Final = "kubernetes.io/job-controller"
# After a failure the next pod waits, twice as long each time.
BACKOFF_S: Final = 10.0
LONGEST_BACKOFF_S: Final = 600.0
MOST_INDEX: Final = 2**31 - 1
# Of a status: far more than pods that anybody has run.
MOST_READ_INDEXES: Final = 200_000


Ending = tuple[str, str, str]  # condition, reason, message


@dataclass(frozen=True, slots=True)
class JobInput:
    job: Job
    selector: Selector
    pods: tuple[ControllerPod, ...]  # its own, and those nobody controls


def plan_job(seen: JobInput, now: datetime) -> list[Intent]:
    job = seen.job
    if job.spec.managed_by not in (None, CONTROLLER):
        return []
    if job.is_finished:
        return _plan_finished(job, now)
    mine, intents = claim(JOBS, job.metadata, seen.selector, PODS, seen.pods, finalizers=(TRACKING,))
    count = Count(job, mine, now)
    intents += count.finalizer_drops()
    ending = _ending(job, count, now)
    crew = Crew(job, count, now)
    if ending is not None:
        crew.dismiss()
    elif not job.is_terminating:
        crew.man()
        if not crew.changes and _is_complete(job, count):
            ending = ("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods")
    intents += crew.changes
    intents += _plan_status(job, count, ending, now)
    if ending is None and job.spec.active_deadline_seconds is not None and not job.spec.suspend:
        left_s = job.spec.active_deadline_seconds - seconds_since(job.status.get("startTime") or rfc3339(now), now)
        crew.waits.append(max(left_s, 0.0) + 0.1)
    return [*intents, *wake_after(crew.waits)]


def _plan_finished(job: Job, now: datetime) -> list[Intent]:
    ttl = job.spec.ttl_seconds_after_finished
    if ttl is None or job.is_terminating:
        return []
    failed = condition_of(job.conditions, "Failed")
    ended = job.status.get("completionTime") or (failed["lastTransitionTime"] if failed else rfc3339(now))
    left_s = ttl - seconds_since(ended, now)
    if left_s > 0:
        return [WakeAfter(seconds=left_s)]
    return [delete(JOBS, job.metadata, propagation="Foreground")]


# --- counting ---------------------------------------------------------------------------------------------


class Count:
    """Who runs, who has ended, and who of those is counted."""

    def __init__(self, job: Job, pods: list[ControllerPod], now: datetime) -> None:
        self.job = job
        self.pods = pods
        self.is_indexed = job.spec.completion_mode == "Indexed"
        self.active = [pod for pod in pods if pod.is_active]
        self.terminating = [pod for pod in pods if pod.is_terminating and not pod.is_finished]
        listed = job.status.get("uncountedTerminatedPods") or {}
        self._listed = {name: list(listed.get(name) or ()) for name in ("succeeded", "failed")}
        known = {uid for uids in self._listed.values() for uid in uids}
        tracked = {pod.metadata.uid for pod in pods if TRACKING in pod.metadata.finalizers}
        self.uncounted = {name: [uid for uid in uids if uid in tracked] for name, uids in self._listed.items()}
        settled = {name: len(uids) - len(self.uncounted[name]) for name, uids in self._listed.items()}
        self._completed = parse_indexes(job.status.get("completedIndexes") or "")
        self.ignored: list[ControllerPod] = []  # failures that do not count
        room = BURST - len(known)
        for pod in pods:
            uid = pod.metadata.uid
            if uid in known or uid not in tracked or room <= 0:
                continue
            how = self._how_ended(pod)
            if how == "failed" and self._is_no_failure(pod):
                self.ignored.append(pod)
            elif how:
                self.uncounted[how].append(uid)
                room -= 1
                if how == "succeeded" and self.is_indexed:
                    self._completed |= {index_of(pod)} - {-1}
        total = job.spec.completions or 0
        self.completed = {index for index in self._completed if index < total}
        self.failed_indexes = self._failed_indexes()
        self.counted = {name: job.count(name) + settled[name] for name in settled}

    def _how_ended(self, pod: ControllerPod) -> str:
        if pod.status.phase == "Succeeded":
            return "succeeded"
        if pod.status.phase == "Failed":
            return "failed"
        is_replaced_late = self.job.spec.pod_replacement_policy == "Failed" or bool(self.job.spec.pod_failure_policy)
        return "failed" if pod.is_terminating and not is_replaced_late else ""

    def _is_no_failure(self, pod: ControllerPod) -> bool:
        """By a rule of the policy; or the Job has what it wanted and sent the pod home itself."""
        return matching_rule(self.job, pod).action == "Ignore" or self.job.has("SuccessCriteriaMet")

    def _failed_indexes(self) -> set[int]:
        """Places that are given up: failed too often, or by a rule."""
        limit = self.job.spec.backoff_limit_per_index
        if limit is None:
            return set()
        found = parse_indexes(self.job.status.get("failedIndexes") or "")
        for pod in self.pods:
            if pod.status.phase == "Failed" and index_of(pod) >= 0:
                action = matching_rule(self.job, pod).action
                if action == "FailIndex" or (failures_of(pod) >= limit and action != "Ignore"):
                    found.add(index_of(pod))
        return found - self._completed

    @property
    def succeeded(self) -> int:
        return len(self.completed) if self.is_indexed else self.counted["succeeded"] + len(self.uncounted["succeeded"])

    @property
    def failed(self) -> int:
        return self.counted["failed"] + len(self.uncounted["failed"])

    @property
    def is_settled(self) -> bool:
        """Nothing runs, nothing is about to end, and every end is counted."""
        return not (self.active or self.terminating or self.ignored or any(self.uncounted.values()))

    def finalizer_drops(self) -> Iterable[Intent]:
        """Of pods that the status already lists, and of those that need not be listed."""
        listed = {uid for uids in self._listed.values() for uid in uids}
        listed |= {pod.metadata.uid for pod in self.ignored}
        for pod in self.pods:
            if pod.metadata.uid in listed and TRACKING in pod.metadata.finalizers:
                yield drop_finalizer(PODS, pod.metadata, TRACKING)


def index_of(pod: ControllerPod) -> int:
    number = whole_number(pod.metadata.annotations.get(INDEX, ""), 0, MOST_INDEX)
    return -1 if number is None else number


def failures_of(pod: ControllerPod) -> int:
    """How often the pod's index had failed before it."""
    return whole_number(pod.metadata.annotations.get(INDEX_FAILURES, ""), 0, MOST_INDEX) or 0


def parse_indexes(text: str) -> set[int]:
    """`0,2-4` → 0, 2, 3, 4; the lowest of more than anybody has run."""
    ranges = chain.from_iterable(range(first, last + 1) for first, last in index_ranges(text))
    return set(islice(ranges, MOST_READ_INDEXES))


def _within(indexes: Iterable[int], ranges: list[tuple[int, int]]) -> int:
    """How many of the indexes are in the ranges."""
    starts = [first for first, _ in ranges]
    return sum(1 for index in indexes if (at := bisect_right(starts, index)) and index <= ranges[at - 1][1])


def written_indexes(indexes: Iterable[int]) -> str:
    """As Kubernetes writes them: a dash stands for three or more."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(
        f"{first}-{last}" if last > first + 1 else ",".join(map(str, sorted({first, last}))) for first, last in runs
    )


# --- rules about failures ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    action: str = ""
    because: str = ""


def matching_rule(job: Job, pod: ControllerPod) -> Rule:
    """The first rule of the Job's failure policy that matches this pod; one without an action where none does."""
    for number, rule in enumerate((job.spec.pod_failure_policy or {}).get("rules") or ()):
        because = _because(rule, pod)
        if because:
            return Rule(rule["action"], f"{because} matching {rule['action']} rule at index {number}")
    return Rule()


def _because(rule: Json, pod: ControllerPod) -> str:
    codes = rule.get("onExitCodes")
    if codes:
        for status in pod.status.all_container_statuses:
            code = status.state.terminated.exit_code if status.state.terminated else 0
            if not code or codes.get("containerName") not in (None, status.name):
                continue
            if (code in codes["values"]) == (codes["operator"] == "In"):
                return f"Container {status.name} for pod {pod.metadata.key} failed with exit code {code}"
    for pattern in rule.get("onPodConditions") or ():
        held = pod.condition(pattern["type"])
        if held is not None and held.status == pattern.get("status", "True"):
            return f"Pod {pod.metadata.key} has condition {held.type}"
    return ""


def _fulfilled(job: Job, count: Count) -> Ending | None:
    """Whether a rule of the success policy calls what is done enough."""
    if not count.is_indexed:
        return None
    for number, rule in enumerate((job.spec.success_policy or {}).get("rules") or ()):
        # By ranges: a Job may name two thousand million indexes in twelve characters.
        indexes = index_ranges(rule["succeededIndexes"]) if rule.get("succeededIndexes") else None
        done = _within(count.completed, indexes) if indexes is not None else len(count.completed)
        enough = rule.get("succeededCount", sum(last - first + 1 for first, last in indexes or ()))
        if done >= enough > 0:
            return "SuccessCriteriaMet", "SuccessPolicy", f"Matched rules at index {number}"
    return None


# --- ending -----------------------------------------------------------------------------------------------


def _ending(job: Job, count: Count, now: datetime) -> Ending | None:
    """How the Job is going to end, if that is decided; an earlier decision stands."""
    for kind in ("SuccessCriteriaMet", "FailureTarget"):
        condition = condition_of(job.conditions, kind)
        if condition is not None and condition["status"] == "True":
            return kind, condition.get("reason", ""), condition.get("message", "")
    for pod in count.pods:
        if pod.status.phase == "Failed" and (rule := matching_rule(job, pod)).action == "FailJob":
            return "FailureTarget", "PodFailurePolicy", rule.because
    if count.failed > job.spec.backoff_limit or _has_restarted_too_often(job, count):
        return "FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    deadline = job.spec.active_deadline_seconds
    started = job.status.get("startTime")
    if deadline is not None and started and not job.spec.suspend and seconds_since(started, now) >= deadline:
        return "FailureTarget", "DeadlineExceeded", "Job was active longer than specified deadline"
    failed, most = len(count.failed_indexes), job.spec.max_failed_indexes
    if most is not None and failed > most:
        message = "Job has exceeded the specified maximal number of failed indexes"
        return "FailureTarget", "MaxFailedIndexesExceeded", message
    if failed and failed + len(count.completed) >= (job.spec.completions or 0):
        return "FailureTarget", "FailedIndexes", "Job has failed indexes"
    return _fulfilled(job, count)


def _has_restarted_too_often(job: Job, count: Count) -> bool:
    if (job.spec.template.get("spec") or {}).get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(status.restart_count for pod in count.active for status in pod.status.all_container_statuses)
    return restarts > 0 if job.spec.backoff_limit == 0 else restarts >= job.spec.backoff_limit


def _is_complete(job: Job, count: Count) -> bool:
    if count.active:
        return False
    if job.spec.completions is None:
        return count.succeeded > 0
    return count.succeeded >= job.spec.completions


def _plan_status(job: Job, count: Count, ending: Ending | None, now: datetime) -> list[Intent]:
    conditions, events = job.conditions, list[Intent]()
    started = job.status.get("startTime") or (None if job.spec.suspend else rfc3339(now))
    if ending is not None:
        kind, reason, message = ending
        conditions = _with_condition(conditions, kind, reason, message, now)
        if count.is_settled:
            conditions = _with_condition(
                conditions, "Complete" if kind == "SuccessCriteriaMet" else "Failed", reason, message, now
            )
            if kind == "SuccessCriteriaMet":
                events.append(event(JOBS, job.metadata, "Completed", "Job completed"))
            else:
                events.append(event(JOBS, job.metadata, reason, message, warning=True))
    elif job.spec.suspend:
        if not job.has("Suspended"):
            conditions = _with_condition(conditions, "Suspended", "JobSuspended", "Job suspended", now)
            events.append(event(JOBS, job.metadata, "Suspended", "Job suspended"))
            started = None
    elif job.has("Suspended"):
        conditions = _with_condition(conditions, "Suspended", "JobResumed", "Job resumed", now, status="False")
        events.append(event(JOBS, job.metadata, "Resumed", "Job resumed"))
        started = rfc3339(now)
    desired: Json = {
        "active": len(count.active) or None,
        "ready": sum(pod.is_ready for pod in count.active),
        "terminating": len(count.terminating),
        "succeeded": (count.succeeded if count.is_indexed else count.counted["succeeded"]) or None,
        "failed": count.counted["failed"] or None,
        "startTime": started,
        "conditions": conditions or None,
    }
    if count.is_indexed:
        desired["completedIndexes"] = written_indexes(count.completed) or None
        if job.spec.backoff_limit_per_index is not None:
            desired["failedIndexes"] = written_indexes(count.failed_indexes)
    if any(found["type"] == "Complete" for found in conditions):
        desired["completionTime"] = rfc3339(now)
    listed = {name: uids for name, uids in count.uncounted.items() if uids}
    if job.status.get("uncountedTerminatedPods") != listed:
        # A merge patch removes only what it names.
        desired["uncountedTerminatedPods"] = {name: listed.get(name) for name in ("succeeded", "failed")}
    return [*plan_status(JOBS, job, desired), *events]


def _with_condition(
    conditions: list[Json], kind: str, reason: str, message: str, now: datetime, *, status: str = "True"
) -> list[Json]:
    return with_condition(conditions, kind, status, reason, message, now, more={"lastProbeTime": rfc3339(now)})


# --- pods -------------------------------------------------------------------------------------------------


class Crew:
    """Pods to be made and dismissed."""

    def __init__(self, job: Job, count: Count, now: datetime) -> None:
        self._job = job
        self._count = count
        self._now = now
        self.changes: list[Intent] = []
        self.waits: list[float] = []

    def dismiss(self) -> None:
        """The Job ends: what still runs is stopped, and counted as it ends."""
        for pod in self._count.active:
            self._delete(pod)

    def man(self) -> None:
        spec, count = self._job.spec, self._count
        if spec.suspend:
            self._let_off(count.active)
            return
        working = [*count.active, *(count.terminating if spec.pod_replacement_policy == "Failed" else ())]
        if spec.completions is None:
            desired = len(count.active) if count.succeeded else spec.parallelism
        else:
            desired = min(spec.parallelism, max(0, spec.completions - count.succeeded - len(count.failed_indexes)))
        surplus = [pod for pod in count.active if count.is_indexed and not self._is_index_needed(pod)]
        surplus += self._twins(surplus)
        if len(count.active) - len(surplus) > desired:
            rest = [pod for pod in count.active if pod not in surplus]
            surplus += sorted(rest, key=_eagerness)[: len(rest) - desired]
        if surplus:
            self._let_off(surplus)
        elif len(working) < desired:
            self._take_on(desired - len(working), working)

    def _is_index_needed(self, pod: ControllerPod) -> bool:
        return 0 <= index_of(pod) < (self._job.spec.completions or 0) and index_of(pod) not in self._count.completed

    def _twins(self, surplus: list[ControllerPod]) -> list[ControllerPod]:
        """All but the first of each index."""
        if not self._count.is_indexed:
            return []
        seen: set[int] = set()
        twins = []
        for pod in self._count.active:
            if pod in surplus:
                continue
            if index_of(pod) in seen:
                twins.append(pod)
            seen.add(index_of(pod))
        return twins

    def _take_on(self, missing: int, working: list[ControllerPod]) -> None:
        metadata = self._job.metadata
        for number, index in enumerate(islice(self._places(working), min(missing, BURST))):
            place = f"-{index}" if self._count.is_indexed else ""
            name = fresh_name(metadata, self._now, number, place)
            self.changes += create_pod(JOBS, metadata, self._body(name, index))

    def _places(self, working: list[ControllerPod]) -> Iterable[int]:
        """What the next pods are to do, those that must wait after a failure left out."""
        if self._job.spec.backoff_limit_per_index is None and self._must_wait(self._count.pods):
            return
        if not self._count.is_indexed:
            yield from range(BURST)
            return
        taken = self._count.completed | self._count.failed_indexes | {index_of(pod) for pod in working}
        for index in range(self._job.spec.completions or 0):
            if index not in taken and not self._must_wait(self._failed_at(index)):
                yield index

    def _failed_at(self, index: int) -> list[ControllerPod]:
        """Pods that failed at the index, where each index has a limit of its own."""
        if self._job.spec.backoff_limit_per_index is None:
            return []
        return [pod for pod in self._count.pods if index_of(pod) == index and pod.status.phase == "Failed"]

    def _must_wait(self, pods: Iterable[ControllerPod]) -> bool:
        wait_s = self._backoff_s(pods)
        if wait_s > 0:
            self.waits.append(wait_s)
        return wait_s > 0

    def _body(self, name: str, index: int) -> Json:
        metadata = self._job.metadata
        body = pod_body(JOBS, metadata, self._job.spec.template, name)
        body["metadata"]["finalizers"] = [*body["metadata"]["finalizers"], TRACKING]
        if not self._count.is_indexed:
            return body
        body["metadata"]["annotations"][INDEX] = str(index)
        body["metadata"]["labels"][INDEX] = str(index)
        if self._job.spec.backoff_limit_per_index is not None:
            failed = self._failed_at(index)
            failures = [failures_of(pod) + (matching_rule(self._job, pod).action != "Ignore") for pod in failed]
            body["metadata"]["annotations"][INDEX_FAILURES] = str(max(failures, default=0))
        spec = body["spec"]
        spec["hostname"] = f"{metadata.name}-{index}"[:63]
        variable = {
            "name": "JOB_COMPLETION_INDEX",
            "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}},
        }
        for field in ("initContainers", "containers"):
            if spec.get(field):
                spec[field] = [
                    {**container, "env": [*(container.get("env") or ()), variable]}
                    if not any(found["name"] == variable["name"] for found in container.get("env") or ())
                    else container
                    for container in spec[field]
                ]
        return body

    def _backoff_s(self, pods: Iterable[ControllerPod]) -> float:
        """How long to wait yet: ends in a row without a success, the wait doubling with each."""
        ends = sorted((_ended_at(pod), pod.status.phase) for pod in pods if pod.is_finished)
        failures = 0
        for _, phase in reversed(ends):
            if phase == "Succeeded":
                break
            failures += 1
        if not failures:
            return 0.0
        delay_s = min(LONGEST_BACKOFF_S, BACKOFF_S * 2.0 ** (failures - 1))
        return (ends[-1][0] + timedelta(seconds=delay_s) - self._now).total_seconds()

    def _let_off(self, pods: Iterable[ControllerPod]) -> None:
        """Not wanted for now, and no failure: the finalizer goes first, so that the end is not counted."""
        for pod in pods:
            if TRACKING in pod.metadata.finalizers:
                self.changes.append(drop_finalizer(PODS, pod.metadata, TRACKING))
            else:
                self._delete(pod)

    def _delete(self, pod: ControllerPod) -> None:
        self.changes += delete_pod(JOBS, self._job.metadata, pod)


def _eagerness(pod: ControllerPod) -> tuple[bool, bool, bool, str]:
    """Who is let off first: one already half way out, one not placed, one not ready, the youngest."""
    return TRACKING in pod.metadata.finalizers, bool(pod.spec.node_name), pod.is_ready, pod.metadata.name


def _ended_at(pod: ControllerPod) -> datetime:
    ends = [
        status.state.terminated.finished_at
        for status in pod.status.container_statuses or ()
        if status.state.terminated and status.state.terminated.finished_at
    ]
    ready = pod.condition("Ready")
    spare = (ready.last_transition_time if ready else None) or pod.metadata.creation_timestamp
    return parse_time(max(ends, default=spare) or "1970-01-01T00:00:00Z")


def job_controller(context: ControllerContext) -> Controller:
    jobs, pods = context.mirrors.of(JOBS), context.mirrors.of(PODS)

    def see(key: str) -> JobInput | None:
        job = jobs.get(key)
        selector = selector_of(job) if job is not None else None
        if job is None or selector is None:
            return None
        return JobInput(job, selector, context.mirrors.claimable(PODS, job.metadata))

    return context.controller(JOBS, see, plan_job).watches(jobs).watches(pods, claimed_keys(jobs, selector_of))


def job_orphan_controller(context: ControllerContext) -> Controller:
    """Pods with the finalizer of a Job that is gone or has ended: remove it."""
    jobs, pods = context.mirrors.of(JOBS), context.mirrors.of(PODS)

    async def plan(key: str) -> list[Intent]:
        pod = pods.get(key)
        if pod is None or TRACKING not in pod.metadata.finalizers or await is_awaited(pod):
            return []
        return [drop_finalizer(PODS, pod.metadata, TRACKING)]

    async def is_awaited(pod: ControllerPod) -> bool:
        controller = pod.metadata.controller
        if controller is None:
            return False
        if controller.kind != JOBS.kind:
            return True
        job = jobs.get(f"{pod.metadata.namespace}/{controller.name}")
        if job is None or job.metadata.uid != controller.uid:
            job = await context.reader.find(JOBS, controller.name, pod.metadata.namespace)
        return job is not None and job.metadata.uid == controller.uid and not job.is_finished

    def of_pod(delta: Delta[ControllerPod]) -> Iterable[str]:
        pod = delta.new
        if pod is None or TRACKING not in pod.metadata.finalizers:
            return ()
        controller = pod.metadata.controller
        job = jobs.get(f"{pod.metadata.namespace}/{controller.name}") if controller is not None else None
        return (delta.key,) if job is None or job.is_finished else ()

    def of_job(delta: Delta[Job]) -> Iterable[str]:
        if delta.old is None or (delta.new is not None and not delta.new.is_finished):
            return ()
        return [pod.metadata.key for pod in pods.by("owner", delta.old.metadata.uid)]

    return context.live_controller(PODS, plan, name="joborphans").watches(pods, of_pod).watches(jobs, of_job)
