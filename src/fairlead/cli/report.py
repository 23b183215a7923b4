"""A task's report as text and as one HTML page without scripts."""

from collections.abc import Iterator
from html import escape

from fairlead.tasks.reports import AgentResult, Matrix, Summary
from fairlead.tasks.rounds import MISSED_ROUND

MOST_COLUMNS = 12
"""Destinations that a terminal shows side by side; the page shows all."""


def table_lines(summary: Summary) -> Iterator[str]:
    share = f"{summary.successes}/{summary.requests} requests succeeded"
    yield f"{summary.kind} {summary.name}: {share}{', finished' if summary.finished else ''}"
    for record in summary.rounds:
        why = f" ({record.failure_reason})" if record.failure_reason else ""
        verb = "starts" if record.status == "notstarted" else "started"
        verb = "was due" if record.failure_reason == MISSED_ROUND else verb
        yield f"  round {record.round_number}: {record.status}{why}, {verb} {record.start_time}"
        for agent in record.agents:
            yield f"    {agent.node or '?'}: {agent.result}, {_agent_words(agent)}"
        for node in record.silent_nodes:
            yield f"    {node}: did not report"
    if summary.matrix.sources:
        yield ""
        yield from _matrix_lines(summary.matrix, "from each row to each column")
    if summary.services.sources:
        yield ""
        yield from _matrix_lines(summary.services, "from each row through Services and the Ingress")
    bad = [pair for pair in summary.worst if pair.successes < pair.requests or not pair.requests]
    if bad:
        yield ""
        yield "Worst pairs:"
    for pair in bad:
        mean = f", mean {pair.mean_ms:g} ms" if pair.successes else ""
        why = f": {pair.cause}" if pair.cause else ""
        yield f"  {pair.source} → {pair.destination}: {pair.successes}/{pair.requests}{mean}{why}"
    yield ""
    yield "Likely causes:" if summary.blame else _without_causes(summary)
    for each in summary.blame:
        yield f"  {each.name} ({each.role}): {each.sentence}"


def _agent_words(agent: AgentResult) -> str:
    errors = ", ".join(f"{count} × {text}" for text, count in agent.errors.items())
    words = f"{agent.failed} of {agent.targets} targets failed"
    return words + (f": {agent.reason}" if agent.reason else "") + (f" ({errors})" if errors else "")


def _without_causes(summary: Summary) -> str:
    if not summary.requests:
        return "No agent has reported a request yet."
    if summary.successes == summary.requests:
        return "No request failed."
    return "The failures have no cause in common."


def _matrix_lines(matrix: Matrix, which: str) -> Iterator[str]:
    shown = matrix.destinations[:MOST_COLUMNS]
    width = max(len(name) for name in (*matrix.sources, "from \\ to"))
    yield f"Share of requests that succeeded, {which}:"
    yield "  " + "  ".join(["from \\ to".ljust(width), *shown])
    for source in matrix.sources:
        cells = [_percent(matrix.success_rate[source].get(name)).rjust(max(5, len(name))) for name in shown]
        yield "  " + "  ".join([source.ljust(width), *cells])
    if len(shown) < len(matrix.destinations):
        yield f"  … and {len(matrix.destinations) - len(shown)} more columns; -o html shows all"


def _percent(rate: float | None) -> str:
    return "·" if rate is None else f"{rate:.0%}"


STYLE = (
    ":root{color-scheme:light}body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;"
    "color:#1c1e21;background:#fff}h1{margin:0 0 .25rem;font-size:1.6rem}h2{margin:2rem 0 .5rem;font-size:1.15rem}"
    ".wide{overflow-x:auto}table{border-collapse:collapse}th,td{border:1px solid #d5d9de;padding:.3rem .7rem;"
    "text-align:left;vertical-align:top}th{background:#f4f5f7;font-weight:600;white-space:nowrap}"
    "td.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}small{color:#555}"
    ".good{color:#1b6e33}.bad{color:#b00020;font-weight:600}.blame{border-left:4px solid #b00020;padding:.5rem 1rem;"
    "background:#fdf3f4}.blame p{margin:.25rem 0}"
)


def html(summary: Summary) -> str:
    """One file: no scripts, nothing loaded from elsewhere, every name escaped."""
    title = escape(f"{summary.kind} {summary.name}")
    share = f"{summary.successes} of {summary.requests} requests succeeded"
    state = "finished" if summary.finished else "not finished"
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{title}</title><style>{STYLE}</style>",
        f"<h1>{title}</h1><p>{share}; the task is {state}.</p>",
        _blame_html(summary),
        _matrix_html(summary.matrix, "Which agent reached which target"),
        _matrix_html(summary.services, "Through Services and the Ingress"),
        _worst_html(summary),
        _rounds_html(summary),
        "</html>",
    ]
    return "\n".join(parts)


def _worst_html(summary: Summary) -> str:
    bad = [pair for pair in summary.worst if pair.successes < pair.requests or not pair.requests]
    if not bad:
        return ""
    head = "<tr><th>from</th><th>to</th><th>succeeded</th><th>mean of successes</th><th>commonest error</th></tr>"
    rows = "".join(
        f"<tr><td>{escape(pair.source)}</td><td>{escape(pair.destination)}</td>"
        f"<td class=n>{pair.successes} of {pair.requests}</td><td class=n>{_mean(pair.mean_ms, pair.successes)}</td>"
        f"<td>{escape(pair.cause)}</td></tr>"
        for pair in bad
    )
    return f"<h2>Worst pairs</h2><div class=wide><table>{head}{rows}</table></div>"


def _blame_html(summary: Summary) -> str:
    if not summary.blame:
        word = " class=good" if summary.requests and summary.successes == summary.requests else ""
        return f"<p{word}>{_without_causes(summary)}</p>"
    rows = "".join(
        f"<p><b>{escape(each.name)}</b> as {escape(each.role)}: {escape(each.sentence)}</p>" for each in summary.blame
    )
    return f"<h2>Likely causes</h2><div class=blame>{rows}</div>"


def _matrix_html(matrix: Matrix, title: str) -> str:
    if not matrix.sources:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in matrix.destinations)
    rows = []
    for source in matrix.sources:
        cells = "".join(_cell(matrix, source, name) for name in matrix.destinations)
        rows.append(f"<tr><th>{escape(source)}</th>{cells}</tr>")
    table = f"<table><tr><th>from \\ to</th>{head}</tr>{''.join(rows)}</table>"
    return f"<h2>{title}</h2><div class=wide>{table}</div>"


def _cell(matrix: Matrix, source: str, destination: str) -> str:
    rate = matrix.success_rate[source].get(destination)
    if rate is None:
        return "<td></td>"
    # Green to red: a tenth that failed is yellow, three tenths are red.
    shade = f"hsl({max(0, round(120 - (1 - rate) * 400))} 70% 85%)"
    mean = _mean(matrix.mean_ms[source].get(destination, 0.0), rate)
    return f'<td class=n style="background:{shade}">{rate:.1%}<br><small>{mean}</small></td>'


def _mean(mean_ms: float, successes: float) -> str:
    return f"{mean_ms:g} ms" if successes else "–"


def _rounds_html(summary: Summary) -> str:
    rows = []
    for record in summary.rounds:
        word = {"fail": "bad", "succeed": "good"}.get(record.status, "")
        why = f"<br><small>{escape(record.failure_reason)}</small>" if record.failure_reason else ""
        agents = [
            f"<span class={'bad' if agent.result == 'fail' else 'good'}>{escape(agent.node or '?')}</span> "
            f"{escape(_agent_words(agent))}"
            for agent in record.agents
        ]
        agents += [f"<span class=bad>{escape(node)}</span> did not report" for node in record.silent_nodes]
        rows.append(
            f"<tr><td class=n>{record.round_number}</td><td class={word or 'n'}>{escape(record.status)}{why}</td>"
            f"<td class=n>{escape(record.start_time)}</td><td>{'<br>'.join(agents)}</td></tr>"
        )
    head = "<tr><th>round</th><th>status</th><th>start</th><th>agents</th></tr>"
    return f"<h2>Rounds</h2><div class=wide><table>{head}{''.join(rows)}</table></div>"
