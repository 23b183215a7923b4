"""Fairlead's API of tasks: agents post their reports, people read them.

A report is stored under a name that follows from task, round and pod, so that a repeat changes nothing. Who posts is
what the cluster says of the token: the pod it is bound to.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec
import structlog
from msgspec import Meta

from fairlead.cluster.client import Client
from fairlead.cluster.writer import Outcome, Writer
from fairlead.model.hashes import short_hash
from fairlead.model.intents import Create
from fairlead.model.meta import ApiStruct
from fairlead.model.undecodable import UNDECODABLE
from fairlead.tasks.carrier import UNIQUE_LABEL
from fairlead.tasks.controller import PODS, TaskMirrors
from fairlead.tasks.metrics import TaskMetrics
from fairlead.tasks.plan import CarrierPod
from fairlead.tasks.reports import Summary, summarize
from fairlead.tasks.spec import KINDS, TASK_REPORTS, Task, TaskReport
from fairlead.tasks.templates import ACCOUNT, AUDIENCE
from fairlead.web.guard import Action, User
from fairlead.web.problems import Problem
from fairlead.web.routes import Answer, Call, Route

log = structlog.get_logger("fairlead.tasks")

UID_LABEL: Final = "tasks.fairlead.io/task-uid"
ROUND_LABEL: Final = "tasks.fairlead.io/round"
MOST_BYTES: Final = 256 << 10
PAGE: Final = 100
"""Reports read at once where those of every task are read: some MiB, 25 at most."""
Word = Annotated[str, Meta(min_length=1, max_length=253)]
TaskName = Annotated[str, Meta(max_length=253, pattern="^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")]


class PostedReport(ApiStruct, frozen=True, kw_only=True):
    """What an agent found in one round."""

    task_kind: Word
    task_name: TaskName
    task_uid: Word = msgspec.field(name="taskUID")
    round_number: Annotated[int, Meta(ge=1, le=2**31)]
    report: dict[str, Any]


class Stored(ApiStruct, frozen=True, omit_defaults=False):
    """The name of the TaskReport; `created` is false for a repeat."""

    name: str
    created: bool


class TaskApi:
    def __init__(self, mirrors: TaskMirrors, reader: Client, namespace: str, metrics: TaskMetrics) -> None:
        self._mirrors = mirrors
        self._reader = reader
        self._namespace = namespace
        self._metrics = metrics
        self.writer: Writer | None = None
        """Set while this replica may write."""

    def routes(self) -> Sequence[Route]:
        return (
            Route(
                "POST",
                "/tasks/reports",
                self._post,
                "Post what an agent found in a round.",
                takes=PostedReport,
                gives={200: Stored, 201: Stored},
                changes=True,
                audiences=(AUDIENCE,),
            ),
            Route(
                "GET",
                "/tasks/{kind}/{name}/report",
                self._get,
                "The results of a task: rounds, matrix, worst pairs, and likely causes of failures.",
                parameters={"kind": "NetReach, AppHttpHealthy or Netdns.", "name": "The task."},
                gives={200: Summary},
            ),
        )

    async def _post(self, call: Call) -> Answer:
        if len(call.body) > MOST_BYTES:
            self._metrics.reports.labels("malformed").inc()
            raise Problem(413, "RequestEntityTooLarge", f"a report has at most {MOST_BYTES >> 10} KiB")
        try:
            posted = msgspec.json.decode(call.body, type=PostedReport)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            self._metrics.reports.labels("malformed").inc()
            raise Problem(400, "BadRequest", f"the body is not a report: {problem}") from None
        pod, uid = bound_pod(call.user, self._namespace)
        task, node = await self._actor(posted, pod, uid)
        body = report_object(posted, task, (pod, uid, node), self._namespace)
        if self.writer is None:
            raise Problem(503, "ServiceUnavailable", "this replica is starting; try again", retry_after_s=1.0)
        create = Create(kind=TASK_REPORTS, body=body, namespace=self._namespace)
        result = await self.writer.carry_out(create, is_wanted=self._is_there(posted))
        name = body["metadata"]["name"]
        if result.outcome is Outcome.UNWANTED:
            raise _other_task(posted)
        if result.outcome is Outcome.EXISTS:
            self._metrics.reports.labels("repeated").inc()
            return Answer(Stored(name=name, created=False))
        if not result.is_done:
            assert result.error is not None
            raise result.error
        self._metrics.reports.labels("stored").inc()
        return Answer(Stored(name=name, created=True), 201)

    async def _actor(self, posted: PostedReport, pod: str, uid: str) -> tuple[Task, str]:
        """The task, and the node of this pod, which has a part in the round; a Problem for another's.

        An agent does not repeat what is refused, and the watches of this replica may be behind: before it refuses, it
        asks the server.
        """
        kind = KINDS.get(posted.task_kind)
        if kind is None:
            raise _no_task(posted.task_kind, posted.task_name)
        shown: Task | None = self._mirrors.tasks[kind.kind].get(posted.task_name)
        if shown is not None and _has_round(shown, posted) and (node := self._node(shown, uid)) is not None:
            return shown, node
        task: Task | None = await self._reader.find(kind, posted.task_name)
        if task is None:
            raise _no_task(posted.task_kind, posted.task_name)
        if task.metadata.uid != posted.task_uid:
            raise _other_task(posted)
        found = await self._find_node(task, pod, uid) if _has_round(task, posted) else None
        if found is None:
            self._metrics.reports.labels("refused").inc()
            raise Problem(403, "Forbidden", f"pod {pod} has no part in round {posted.round_number} of this task")
        return task, found

    def _is_there(self, posted: PostedReport) -> Callable[[], bool]:
        """Whether the task has not been deleted since now, as far as this replica knows.

        A report that is sent again after that would be created again, to be collected as garbage once more.
        """
        mirror = self._mirrors.tasks[posted.task_kind]
        shown = mirror.get(posted.task_name)

        def is_there() -> bool:
            now = mirror.get(posted.task_name)
            return now is shown or (now is not None and now.metadata.uid == posted.task_uid)

        return is_there

    def _task(self, kind: str, name: str) -> Task:
        mirror = self._mirrors.tasks.get(kind)
        task: Task | None = mirror.get(name) if mirror is not None else None
        if task is None:
            raise _no_task(kind, name)
        return task

    def _node(self, task: Task, pod_uid: str) -> str | None:
        """The node of a pod that has a part in the task's rounds; None for another's."""
        for actor in task.status.actors:
            if actor.uid == pod_uid:
                return actor.node
        resource = task.status.resource
        carrier = resource.runtime_name if resource is not None else ""
        return next(
            (pod.spec.node_name for pod in self._mirrors.pods.by("carrier", carrier) if pod.metadata.uid == pod_uid),
            None,
        )

    async def _find_node(self, task: Task, pod: str, uid: str) -> str | None:
        """As `_node`, of a pod that this replica may not have seen yet."""
        if (node := self._node(task, uid)) is not None or task.status.resource is None:
            return node
        found: CarrierPod | None = await self._reader.find(PODS, pod, self._namespace)
        if found is None or found.metadata.uid != uid:
            return None
        carrier = found.metadata.labels.get(UNIQUE_LABEL)
        return found.spec.node_name if carrier == task.status.resource.runtime_name else None

    async def _get(self, call: Call) -> Answer:
        kind, name = parse_kind(call.parameters["kind"]), call.parameters["name"]
        assert call.guard is not None
        plural = KINDS[kind].plural
        await call.guard.require(call.user, Action("get", plural, group=KINDS[kind].group, name=name))
        task = self._task(kind, name)
        return Answer(summarize(kind, task, await self.reports(task.metadata.uid)))

    async def reports(self, task_uid: str) -> list[TaskReport]:
        query = {"labelSelector": f"{UID_LABEL}={task_uid}"}
        found: list[TaskReport] = await self._reader.list(TASK_REPORTS, self._namespace, query=query)
        return found

    async def newest_reports(self) -> dict[str, list[TaskReport]]:
        """By the UID of its task: the reports of the newest round that has any. Older ones are not held."""
        found: dict[str, list[TaskReport]] = {}
        async for page in self._reader.pages(TASK_REPORTS, self._namespace, limit=PAGE):
            for report in _readable(page.items or ()):
                kept = found.setdefault(report.metadata.labels.get(UID_LABEL, ""), [])
                if kept and kept[0].spec.round_number < report.spec.round_number:
                    kept.clear()
                if not kept or kept[0].spec.round_number == report.spec.round_number:
                    kept.append(report)
        return found


def _no_task(kind: str, name: str) -> Problem:
    return Problem(404, "NotFound", f"there is no {kind[:50]} {name[:253]!r}")


def _other_task(posted: PostedReport) -> Problem:
    return Problem(404, "NotFound", f"{posted.task_kind} {posted.task_name} is another task now")


def _has_round(task: Task, posted: PostedReport) -> bool:
    is_same = task.metadata.uid == posted.task_uid
    return is_same and any(each.round_number == posted.round_number for each in task.status.history)


def _readable(items: Iterable[msgspec.Raw]) -> Iterator[TaskReport]:
    """One that somebody wrote in another form is left out: it keeps nobody from the others."""
    for item in items:
        try:
            yield msgspec.json.decode(item, type=TaskReport)
        except UNDECODABLE as problem:
            log.warning("left out: not a TaskReport", problem=str(problem))


def parse_kind(text: str) -> str:
    """A kind as people write it: NetReach, netreach, netreaches, nr."""
    short = {"nr": "NetReach", "ahh": "AppHttpHealthy"}
    for kind, each in KINDS.items():
        if text.lower() in (kind.lower(), each.plural) or short.get(text.lower()) == kind:
            return kind
    raise Problem(404, "NotFound", f"{text[:100]!r} is no kind of task; there are {', '.join(KINDS)}")


def bound_pod(user: User, namespace: str) -> tuple[str, str]:
    """Name and UID of the pod that a token is bound to; a Problem for what is no agent's token."""
    extra = user.extra or {}
    name = next(iter(extra.get("authentication.kubernetes.io/pod-name", ())), "")
    uid = next(iter(extra.get("authentication.kubernetes.io/pod-uid", ())), "")
    if user.username != f"system:serviceaccount:{namespace}:{ACCOUNT}" or not name or not uid:
        raise Problem(403, "Forbidden", "only agents may post reports, with the token of their pod")
    return name, uid


def report_object(posted: PostedReport, task: Task, who: tuple[str, str, str], namespace: str) -> dict[str, Any]:
    pod, pod_uid, node = who
    kind = KINDS[posted.task_kind]
    uid = task.metadata.uid
    owner = {"apiVersion": kind.api_version, "kind": kind.kind, "name": task.metadata.name, "uid": uid}
    return {
        "apiVersion": TASK_REPORTS.api_version,
        "kind": TASK_REPORTS.kind,
        "metadata": {
            "name": f"report-{short_hash(uid, posted.round_number, pod_uid, length=20)}",
            "namespace": namespace,
            "labels": {UID_LABEL: uid, ROUND_LABEL: str(posted.round_number)},
            "ownerReferences": [owner],
        },
        "spec": {
            "taskKind": posted.task_kind,
            "taskName": task.metadata.name,
            "taskUID": uid,
            "roundNumber": posted.round_number,
            "podName": pod,
            "podUID": pod_uid,
            "nodeName": node,
            "report": {**posted.report, "podName": pod, "nodeName": node},
        },
    }
