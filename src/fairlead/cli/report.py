"""A task's report as text and as one HTML page without scripts."""

from collections.abc import Iterator
from html import escape

from fairlead.tasks.reports import Matrix, Summary

MOST_COLUMNS = 12
"""Destinations that a terminal shows side by side; the page shows all."""


def table_lines(summary: Summary) -> Iterator[str]:
    share = f"{summary.successes}/{summary.requests} requests succeeded"
    yield f"{summary.kind} {summary.name}: {share}{', finished' if summary.finished else ''}"
    for record in summary.rounds:
        why = f" ({record.failure_reason})" if record.failure_reason else ""
        yield f"  round {record.round_number}: {record.status}{why}, started {record.start_time}"
        for agent in record.agents:
            reason = f": {agent.reason}" if agent.reason else ""
            yield f"    {agent.node or '?'}: {agent.result}, {agent.failed} of {agent.targets} targets failed{reason}"
        for node in record.silent_nodes:
            yield f"    {node}: did not report"
    if summary.matrix.sources:
        yield ""
        yield from _matrix_lines(summary.matrix)
    bad = [pair for pair in summary.worst if pair.successes < pair.requests or not pair.requests]
    if bad:
        yield ""
        yield "Worst pairs:"
    for pair in bad:
        yield f"  {pair.source} → {pair.destination}: {pair.successes}/{pair.requests}, mean {pair.mean_ms:g} ms"
    yield ""
    yield "To blame:" if summary.blame else "Nobody is to blame."
    for each in summary.blame:
        yield f"  {each.name} ({each.role}): {each.sentence}"


def _matrix_lines(matrix: Matrix) -> Iterator[str]:
    shown = matrix.destinations[:MOST_COLUMNS]
    width = max(len(name) for name in (*matrix.sources, "from \\ to"))
    yield "Share of requests that succeeded, from each row to each column:"
    yield "  " + "  ".join(["from \\ to".ljust(width), *shown])
    for source in matrix.sources:
        cells = [_percent(matrix.success_rate[source].get(name)).rjust(max(5, len(name))) for name in shown]
        yield "  " + "  ".join([source.ljust(width), *cells])
    if len(shown) < len(matrix.destinations):
        yield f"  … and {len(matrix.destinations) - len(shown)} more columns; -o html shows all"


def _percent(rate: float | None) -> str:
    return "·" if rate is None else f"{rate:.0%}"


STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem;color:#222}table{border-collapse:collapse;margin:1rem 0}"
    "th,td{border:1px solid #ccc;padding:.25rem .6rem;text-align:right}th:first-child{text-align:left}"
    ".bad{color:#b00020;font-weight:600}"
)


def html(summary: Summary) -> str:
    """One file: no scripts, nothing loaded from elsewhere, every name escaped."""
    title = escape(f"{summary.kind} {summary.name}")
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>",
        f"<h1>{title}</h1><p>{summary.successes} of {summary.requests} requests succeeded.</p>",
        _blame_html(summary),
        _matrix_html(summary.matrix),
        _rounds_html(summary),
        "</html>",
    ]
    return "\n".join(parts)


def _blame_html(summary: Summary) -> str:
    if not summary.blame:
        return "<p>Nobody is to blame.</p>"
    rows = "".join(f"<li class=bad>{escape(each.name)}: {escape(each.sentence)}</li>" for each in summary.blame)
    return f"<h2>To blame</h2><ul>{rows}</ul>"


def _matrix_html(matrix: Matrix) -> str:
    if not matrix.sources:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in matrix.destinations)
    rows = []
    for source in matrix.sources:
        cells = "".join(_cell(matrix, source, name) for name in matrix.destinations)
        rows.append(f"<tr><th>{escape(source)}</th>{cells}</tr>")
    return f"<h2>Who reached whom</h2><table><tr><th>from \\ to</th>{head}</tr>{''.join(rows)}</table>"


def _cell(matrix: Matrix, source: str, destination: str) -> str:
    rate = matrix.success_rate[source].get(destination)
    if rate is None:
        return "<td></td>"
    # Green to red by the share that failed.
    shade = f"hsl({round(rate * 120)} 70% 85%)"
    mean = matrix.mean_ms[source].get(destination, 0.0)
    return f'<td style="background:{shade}">{rate:.1%}<br><small>{mean:g} ms</small></td>'


def _rounds_html(summary: Summary) -> str:
    rows = []
    for record in summary.rounds:
        state = (
            f"<td class=bad>{escape(record.status)}</td>" if record.status == "fail" else f"<td>{record.status}</td>"
        )
        agents = "; ".join(
            escape(f"{agent.node} {agent.result}{f' ({agent.reason})' if agent.reason else ''}")
            for agent in record.agents
        )
        silent = f"; silent: {escape(', '.join(record.silent_nodes))}" if record.silent_nodes else ""
        rows.append(
            f"<tr><th>{record.round_number}</th>{state}<td>{escape(record.start_time)}</td><td>{agents}{silent}</td></tr>"
        )
    head = "<tr><th>round</th><th>status</th><th>start</th><th>agents</th></tr>"
    return f"<h2>Rounds</h2><table>{head}{''.join(rows)}</table>"
