"""From stored reports to what people read: rounds, a matrix of who reached whom, and likely causes. Pure.

A destination that many sources fail to reach is to blame itself; a source that fails to reach many destinations, too.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fairlead.model.meta import ApiStruct
from fairlead.tasks.spec import Task, TaskReport

Json = dict[str, Any]

BLOCKS: Final = ("taskNetReach", "taskAppHealthy", "taskNetDns")
SPEC_KEYS: Final = {"NetReach": "netReach", "AppHttpHealthy": "appHttpHealthy", "Netdns": "netDns"}
WORST: Final = 20
MOST_BLAMED: Final = 5
LEAST_FAILURE: Final = 0.02
"""Shares of failed requests below this blame nobody."""
DEAD: Final = 0.99
"""Of a Service that fails this often the agents behind it are not the cause, unless they do, too."""
MOST_ERRORS: Final = 3
"""Errors of an agent that are shown, the commonest."""
MOST_ERROR_TEXT: Final = 200
PATHS: Final = {
    "AgentCluster": "cluster IP",
    "AgentNodePort": "node port",
    "AgentLoadbalancer": "load balancer",
    "AgentIngress": "Ingress",
}
"""What a NetReach goes through to reach any of its agents, by how the names of such targets begin."""


class Pair(ApiStruct, frozen=True):
    """Requests from one node to a destination: another node, or a target outside."""

    source: str
    destination: str
    requests: int = 0
    successes: int = 0
    mean_ms: float = 0.0
    cause: str = ""
    """The commonest error; where nothing was sent, why."""

    @property
    def failure(self) -> float:
        return 1 - self.successes / self.requests if self.requests else 1.0


class Blamed(ApiStruct, frozen=True):
    """Who is to blame, as which side of the requests, and why."""

    name: str
    role: str
    failure_rate: float
    sentence: str


class AgentResult(ApiStruct, frozen=True):
    pod: str
    node: str
    result: str
    reason: str = ""
    targets: int = 0
    failed: int = 0
    errors: dict[str, int] = {}


class RoundSummary(ApiStruct, frozen=True):
    round_number: int
    status: str
    failure_reason: str = ""
    start_time: str = ""
    agents: list[AgentResult] = []
    silent_nodes: list[str] = []


class Matrix(ApiStruct, frozen=True):
    sources: list[str] = []
    destinations: list[str] = []
    success_rate: dict[str, dict[str, float]] = {}
    mean_ms: dict[str, dict[str, float]] = {}


class Summary(ApiStruct, frozen=True, omit_defaults=False):
    """A task's reports, summed up."""

    kind: str
    name: str
    finished: bool
    requests: int
    successes: int
    rounds: list[RoundSummary]
    matrix: Matrix
    services: Matrix
    """Of a NetReach: from each node through Services and the Ingress, which lead to any of the agents."""
    worst: list[Pair]
    blame: list[Blamed]


def summarize(kind: str, task: Task, reports: Iterable[TaskReport]) -> Summary:
    ordered = sorted(reports, key=lambda each: (-each.spec.round_number, each.spec.node_name, each.spec.pod_name))
    pairs, paths = list(_pairs(ordered, _destination)), list(_pairs(ordered, _path))
    totals = [detail for each in ordered for detail in details(each)]
    return Summary(
        kind=kind,
        name=task.metadata.name,
        finished=task.status.finish,
        requests=sum(_number(each.get("requestCounts")) for each in totals),
        successes=sum(_number(each.get("successCounts")) for each in totals),
        rounds=_rounds(task, ordered),
        matrix=_matrix(pairs),
        services=_matrix(paths),
        worst=sorted([*pairs, *paths], key=lambda each: (-each.failure, -each.mean_ms))[:WORST],
        blame=_causes(pairs, paths),
    )


def details(report: TaskReport) -> list[Json]:
    """The details of a report's targets; what is no list of objects counts as none."""
    for name in BLOCKS:
        found = report.spec.report.get(name)
        block = found if isinstance(found, dict) else {}
        listed = block.get("roundTaskDetail")
        if isinstance(listed, list):
            return [each for each in listed if isinstance(each, dict)] + _from_rows(block.get("otherTargets"))
    return []


def _from_rows(rows: Any) -> list[Json]:
    """Details of the targets of which a report holds no more than a row."""
    names = ("name", "targetNode", "requestCounts", "successCounts", "requestMeanDelay")
    found = []
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, list) and len(row) == len(names):
            detail = dict(zip(names, row, strict=True))
            is_whole = _number(detail["successCounts"]) == _number(detail["requestCounts"]) > 0
            found.append({**detail, "requestSucceed": is_whole})
    return found


def _number(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 53 else 0


def _float(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e15 else 0.0


def _text(value: Any) -> str:
    return value[:500] if isinstance(value, str) else ""


def _rounds(task: Task, reports: Sequence[TaskReport]) -> list[RoundSummary]:
    found = []
    for record in task.status.history:
        of_round = [each for each in reports if each.spec.round_number == record.round_number]
        found.append(
            RoundSummary(
                round_number=record.round_number,
                status=record.status,
                failure_reason=record.failure_reason if isinstance(record.failure_reason, str) else "",
                start_time=record.start_time_stamp,
                agents=[_agent(each) for each in of_round],
                silent_nodes=list(record.not_report_agent_node_list),
            )
        )
    return found


def _agent(report: TaskReport) -> AgentResult:
    listed = details(report)
    return AgentResult(
        pod=report.spec.pod_name,
        node=report.spec.node_name,
        result=_text(report.spec.report.get("roundResult")),
        reason=_text(report.spec.report.get("reasonsForFailure")),
        targets=len(listed),
        failed=sum(1 for each in listed if not each.get("requestSucceed")),
        errors=dict(sum((_errors(each) for each in listed), Counter()).most_common(MOST_ERRORS)),
    )


def _errors(detail: Json) -> Counter[str]:
    metrics = detail.get("requestTargetMetrics")
    found = metrics.get("errors") if isinstance(metrics, dict) else None
    errors: Counter[str] = Counter()
    for text, count in found.items() if isinstance(found, dict) else ():
        if _number(count):
            errors[text[:MOST_ERROR_TEXT]] += count
    return errors


@dataclass(slots=True)
class _Sums:
    requests: int = 0
    successes: int = 0
    delays_ms: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)
    reason: str = ""

    def add(self, detail: Json) -> None:
        successes = _number(detail.get("successCounts"))
        self.requests += _number(detail.get("requestCounts"))
        self.successes += successes
        self.delays_ms += _float(detail.get("requestMeanDelay")) * successes
        self.errors += _errors(detail)
        self.reason = self.reason or _text(detail.get("failureReason")) or _text(detail.get("reasonsForFailure"))

    def pair(self, source: str, destination: str) -> Pair:
        common = self.errors.most_common(1)
        return Pair(
            source=source,
            destination=destination,
            requests=self.requests,
            successes=self.successes,
            mean_ms=round(self.delays_ms / self.successes, 3) if self.successes else 0.0,
            cause=common[0][0] if common else "" if self.requests else self.reason,
        )


def _pairs(reports: Iterable[TaskReport], destination_of: Callable[[TaskReport, Json], str]) -> Iterable[Pair]:
    """Requests by source and destination."""
    found: dict[tuple[str, str], _Sums] = {}
    for report in reports:
        for detail in details(report):
            if destination := destination_of(report, detail):
                found.setdefault((report.spec.node_name, destination), _Sums()).add(detail)
    return (sums.pair(*names) for names, sums in sorted(found.items()))


def _destination(report: TaskReport, detail: Json) -> str:
    """A node; or the server of the other two kinds. What goes through a Service leads to no node in particular."""
    if node := _text(detail.get("targetNode")):
        return node
    if report.spec.task_kind == "NetReach":
        return ""
    return _text(detail.get("url")) or _text(detail.get("requestServer")) or _text(detail.get("name"))


def _path(report: TaskReport, detail: Json) -> str:
    if report.spec.task_kind != "NetReach" or detail.get("targetNode"):
        return ""
    name = _text(detail.get("name"))
    found = next((words for start, words in PATHS.items() if name.startswith(start)), "")
    return f"{found} over IPv6" if found and "V6IP_" in name.partition("_")[0] + "_" else found


def _matrix(pairs: Sequence[Pair]) -> Matrix:
    rates: dict[str, dict[str, float]] = {}
    means: dict[str, dict[str, float]] = {}
    for pair in pairs:
        rates.setdefault(pair.source, {})[pair.destination] = round(1 - pair.failure, 4)
        means.setdefault(pair.source, {})[pair.destination] = pair.mean_ms
    return Matrix(
        sources=sorted(rates),
        destinations=sorted({pair.destination for pair in pairs}),
        success_rate=rates,
        mean_ms=means,
    )


@dataclass(frozen=True, slots=True)
class _Line:
    """A row or a column of the matrix."""

    role: str
    name: str
    failure: float
    others: int
    cause: str = ""
    """The commonest of its pairs."""
    is_sent: bool = True
    """Whether there was any request."""


def _causes(pairs: Sequence[Pair], paths: Sequence[Pair]) -> list[Blamed]:
    """Requests through a Service fail where an agent behind it does: it is blamed only where that is no reason."""
    found = blame(pairs)
    if not found:
        return blame(paths)
    if any(each.failure_rate >= DEAD for each in found):
        return found
    return (found + blame([each for each in paths if each.failure >= DEAD]))[:MOST_BLAMED]


def blame(pairs: Sequence[Pair]) -> list[Blamed]:
    """The worst row or column first; then again without it, since others only noticed it."""
    left = list(pairs)
    found: list[Blamed] = []
    while left and len(found) < MOST_BLAMED:
        lines = [*_lines(left, "destination"), *_lines(left, "source")]
        # Between equals the one that more others agree on, and a destination before a source.
        worst = max(lines, key=lambda each: (round(each.failure, 3), each.others, each.role == "destination"))
        if worst.failure < LEAST_FAILURE:
            break
        found.append(_blamed(worst))
        left = [each for each in left if getattr(each, worst.role) != worst.name]
    return found


def _lines(pairs: Sequence[Pair], role: str) -> list[_Line]:
    of_name: dict[str, list[Pair]] = {}
    for pair in pairs:
        of_name.setdefault(getattr(pair, role), []).append(pair)
    found = []
    for name, line in of_name.items():
        # What a node says about itself proves nothing, where others say something.
        others = [each for each in line if each.source != each.destination] or line
        failure = sum(each.failure for each in others) / len(others)
        failed = [each for each in others if each.failure >= LEAST_FAILURE]
        causes = Counter(each.cause for each in failed if each.cause).most_common(1)
        is_sent = any(each.requests for each in others)
        found.append(_Line(role, name, failure, len(failed), causes[0][0] if causes else "", is_sent))
    return found


def _blamed(line: _Line) -> Blamed:
    share = f"{line.failure:.1%} of the requests"
    others = f"{line.others} {'source' if line.role == 'destination' else 'destination'}{'s' * (line.others != 1)}"
    why = f" ({line.cause})" if line.cause else ""
    if line.role == "destination" and not line.is_sent:
        sentence = f"nothing was sent to {line.name}, by {others}: {line.cause or 'the reports say no reason'}"
    elif line.role == "destination":
        sentence = f"{share} to {line.name} failed, from {others}{why}: look at {line.name}"
    else:
        sentence = f"{share} from {line.name} failed, to {others}{why}: look at {line.name}"
    return Blamed(name=line.name, role=line.role, failure_rate=round(line.failure, 4), sentence=sentence)


# -- kdoctor's own form --------------------------------------------------------------------------------------------


def report_name(kind: str, task: str) -> str:
    return f"{kind.lower()}-{task}"


def kdoctor_report(kind: str, task: Task, spec: Mapping[str, Any], reports: Sequence[TaskReport]) -> Json:
    """A KdoctorReport: the reports of the newest round that has any."""
    newest = max((each.spec.round_number for each in reports), default=0)
    latest = sorted((each for each in reports if each.spec.round_number == newest), key=lambda each: each.spec.pod_name)
    status = task.status
    return {
        "metadata": {
            "name": report_name(kind, task.metadata.name),
            "creationTimestamp": task.metadata.creation_timestamp,
            "uid": task.metadata.uid,
        },
        "report": {"latestRoundReport": [each.spec.report for each in latest] or None},
        "status": {
            "totalRoundNumber": status.expected_round or 0,
            "roundFinishedNumber": status.done_round or 0,
            "status": "Finished" if status.finish else "NotFinished",
            "roundNumber": newest,
        },
        "task": {"name": task.metadata.name, "kind": kind, "spec": {SPEC_KEYS[kind]: dict(spec)}},
    }
