"""The report of one round by one agent, in kdoctor's keys, within a bound. Pure.

The worst targets have their whole figures, the next ones short ones, and the rest one row each, as many as fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from fairlead.model.times import rfc3339
from fairlead.tasks.agent.dns_probe import DnsTarget
from fairlead.tasks.agent.http_probe import HttpTarget
from fairlead.tasks.rounds import go_duration
from fairlead.tasks.spec import Expectation
from fairlead.tasks.verdicts import Latencies, Tally, failure_reason, latencies

Json = dict[str, Any]
Row = tuple[str, str, int, int, float]

MOST_BYTES: Final = 200 << 10
"""Below what the API takes (256 KiB), with room for the envelope."""
MOST_WHOLE_BYTES: Final = 48 << 10
"""Of that, for whole figures."""
MOST_SHORT_BYTES: Final = 88 << 10
"""For whole and short ones; the rest is for rows."""
MOST_TEXT: Final = 2048
"""Of a name or an address that its author made longer."""
BLOCKS: Final = {"NetReach": "taskNetReach", "AppHttpHealthy": "taskAppHealthy", "Netdns": "taskNetDns"}
NO_TARGETS: Final = "no target was found"


@dataclass(frozen=True, slots=True)
class TargetResult:
    """What became of one target."""

    target: HttpTarget | DnsTarget
    tally: Tally
    unsent: int
    started_at: datetime
    ended_at: datetime
    reason: str = ""
    figures: Latencies = field(default_factory=Latencies)

    @property
    def rate(self) -> float:
        return self.tally.successes / self.tally.requests if self.tally.requests else 0.0


def judge(
    target: HttpTarget | DnsTarget,
    tally: Tally,
    unsent: int,
    times: tuple[datetime, datetime],
    expect: Expectation,
    *,
    whole: bool,
) -> TargetResult:
    figures = latencies(tally.delays_ms, whole=whole)
    reason = target.problem or failure_reason(
        tally,
        figures,
        success_rate=expect.success_rate,
        mean_delay_ms=expect.mean_access_delay_in_ms,
        unsent=bool(unsent),
    )
    return TargetResult(target, tally, unsent, *times, reason, figures)


@dataclass(frozen=True, slots=True)
class Reporter:
    """Who reports, and on which round."""

    kind: str
    round_number: int
    node: str
    pod: str
    started_at: datetime


def compose(
    who: Reporter,
    results: Sequence[TargetResult],
    *,
    ended_at: datetime,
    usage: Json,
    load: Json,
    problem: str = "",
) -> Json:
    """A report; `problem` says why the round did not run to its end."""
    failed = [each for each in results if each.reason]
    reason = problem or ("" if results else NO_TARGETS) or (failed[0].reason if failed else "")
    block: Json = {
        "targetType": who.kind,
        "targetNumber": len(results),
        "roundSucceed": not reason,
        "systemResource": usage,
        "runningLoadTotal": load,
    }
    block["roundTaskDetail"], rows = _details(who.kind, results)
    if rows:
        block["otherTargets"] = rows
    if omitted := len(results) - len(block["roundTaskDetail"]) - len(rows):
        block["omittedTargets"] = omitted
    report: Json = {
        "roundNumber": who.round_number,
        "roundResult": "fail" if reason else "succeed",
        "nodeName": who.node,
        "podName": who.pod,
        "roundStartTimeStamp": rfc3339(who.started_at),
        "roundEndTimeStamp": rfc3339(ended_at),
        "roundDuration": go_duration(ended_at - who.started_at),
        BLOCKS[who.kind]: block,
    }
    if reason:
        report["reasonsForFailure"] = block["reasonsForFailure"] = reason[:1000]
    return report


def _details(kind: str, results: Sequence[TargetResult]) -> tuple[list[Json], list[Row]]:
    """The worst first: with whole figures, with short ones, then as rows, while they fit."""
    ordered = sorted(results, key=lambda each: (not each.reason, each.rate, -each.figures.mean))
    found: list[Json] = []
    rows: list[Row] = []
    used = 0
    for each in ordered:
        if used < MOST_SHORT_BYTES:
            detail = _short(kind, each)
            if used < MOST_WHOLE_BYTES:
                detail["requestTargetMetrics"] = _metrics(each)
            used += len(msgspec.json.encode(detail)) + 1
            found.append(detail)
            continue
        row = _row(each)
        used += len(msgspec.json.encode(row)) + 1
        if used > MOST_BYTES:
            break
        rows.append(row)
    return found, rows


def _row(each: TargetResult) -> Row:
    """Name, node, requests, successes and mean delay in milliseconds."""
    node = each.target.node if isinstance(each.target, HttpTarget) else ""
    return each.target.name[:200], node, each.tally.requests, each.tally.successes, round(each.figures.mean, 1)


def _short(kind: str, each: TargetResult) -> Json:
    target = each.target
    found: Json = {"name": target.name[:MOST_TEXT]}
    if isinstance(target, HttpTarget):
        found |= {"url": target.url[:MOST_TEXT], "method": target.method}
    else:
        found |= {"requestServer": _server(target), "protocol": target.protocol}
    found |= {
        "requestSucceed": not each.reason,
        "requestMeanDelay": round(each.figures.mean, 3),
        "requestSucceedRate": each.rate,
        "requestCounts": each.tally.requests,
        "successCounts": each.tally.successes,
    }
    if isinstance(target, HttpTarget) and target.node:
        found["targetNode"] = target.node
    if each.reason:
        found["failureReason" if kind == "NetReach" else "reasonsForFailure"] = each.reason[:500]
    return found


def _server(target: DnsTarget) -> str:
    """Empty where none was found."""
    return f"{target.server[:MOST_TEXT]}:{target.port}" if target.server else ""


def _metrics(each: TargetResult) -> Json:
    span = each.ended_at - each.started_at
    percentiles = {f"p{percent}InMs": value for percent, value in each.figures.percentiles.items()}
    found: Json = {
        "requestStartTime": rfc3339(each.started_at),
        "requestEndTime": rfc3339(each.ended_at),
        "requestDuration": go_duration(span),
        "requestCounts": each.tally.requests,
        "successCounts": each.tally.successes,
        "tps": each.tally.requests / max(0.001, span.total_seconds()),
        "errors": dict(each.tally.errors),
        "latencies": {
            **percentiles,
            "maxInMs": each.figures.max,
            "minInMs": each.figures.min,
            "meanInMs": each.figures.mean,
        },
        "existsNotSendRequests": bool(each.unsent),
    }
    target = each.target
    if isinstance(target, HttpTarget):
        return {**found, "totalDataSize": f"{each.tally.bytes} byte", "statusCodes": dict(each.tally.codes)}
    return {
        **found,
        "domain": target.domain[:MOST_TEXT],
        "server": _server(target),
        "method": target.protocol,
        "failedCounts": each.tally.requests - each.tally.successes,
        "replyCode": dict(each.tally.codes),
    }
