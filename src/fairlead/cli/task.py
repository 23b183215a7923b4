"""`fairlead task`: create, list, report, run-now, suspend, resume and delete diagnosis tasks.

Tasks are read and written on the cluster, with the rights of the kubeconfig; reports come from a running Fairlead.
"""

import urllib.parse
from collections.abc import Callable
from pathlib import Path

import click

from fairlead.cli.report import html, table_lines
from fairlead.cli.server import NoAnswer, mistake, print_json
from fairlead.cli.server import table_lines as columns
from fairlead.cli.snapshot import BadInput, documents
from fairlead.cli.target import Target, cluster_options, server_options
from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.model.times import rfc3339_micro
from fairlead.tasks.reports import Summary
from fairlead.tasks.spec import KINDS, RUN_NOW, SUSPEND, Task

SHORT = {"nr": "NetReach", "ahh": "AppHttpHealthy"}


@click.group()
def task() -> None:
    """Diagnosis tasks: NetReach, AppHttpHealthy and Netdns."""


@task.command()
@click.option("-f", "--file", "file", type=click.Path(path_type=Path), required=True, help="Manifests of tasks.")
@cluster_options
def create(file: Path, target: Target) -> None:
    """Create the tasks of a file."""
    try:
        found = list(documents(file))
    except BadInput as problem:
        mistake(str(problem))
    for document in found:
        if document.body.get("kind") not in KINDS:
            mistake(f"{document.where}: kind must be one of {', '.join(KINDS)}, not {document.body.get('kind')!r}")

    async def work(client: Client) -> None:
        for document in found:
            kind = KINDS[document.body["kind"]]
            made = await client.create(kind, document.body)
            click.echo(f"{kind.kind.lower()}/{made.metadata.name} created")

    target.run(work)


@task.command(name="list")
@cluster_options
def list_(target: Target) -> None:
    """List tasks with their progress."""

    async def work(client: Client) -> list[tuple[str, Task]]:
        return [(name, each) for name, kind in KINDS.items() for each in await client.list(kind)]

    rows = [("KIND/NAME", "CARRIER", "ROUNDS", "LAST", "NEXT", "FINISHED")]
    for kind, each in target.run(work):
        status = each.status
        expected = {None: "?", -1: "∞"}.get(status.expected_round, str(status.expected_round))
        waiting = next((record for record in status.history if record.status == "notstarted"), None)
        rows.append(
            (
                f"{kind.lower()}/{each.metadata.name}",
                status.resource.runtime_status if status.resource is not None else "",
                f"{status.done_round or 0}/{expected}",
                status.last_round_status or "",
                waiting.start_time_stamp if waiting is not None else "",
                "yes" if status.finish else "no",
            )
        )
    click.echo("\n".join(columns(rows, gap="  ")))


@task.command()
@click.argument("what", metavar="KIND/NAME")
@click.option("-o", "--output", type=click.Choice(["table", "json", "html"]), default="table", show_default=True)
@server_options
def report(what: str, output: str, target: Target) -> None:
    """Show the results of a task: rounds, which agent reached which target, and likely causes of failures."""
    kind, name = _parse(what)
    try:
        summary = target.ask(Summary, f"/tasks/{kind}/{urllib.parse.quote(name, safe='')}/report")
    except NoAnswer as problem:
        mistake(f"{problem}; name a running Fairlead with --server or --data")
    if output == "json":
        print_json(summary)
    elif output == "html":
        click.echo(html(summary))
    else:
        click.echo("\n".join(table_lines(summary)))


@task.command(name="run-now")
@click.argument("what", metavar="KIND/NAME")
@cluster_options
def run_now(what: str, target: Target) -> None:
    """Start the next round of a task now."""
    _annotate(what, {RUN_NOW: rfc3339_micro(RealClock().now())}, run_now_effect, target)


@task.command()
@click.argument("what", metavar="KIND/NAME")
@cluster_options
def suspend(what: str, target: Target) -> None:
    """Start no more rounds of a task; a running one ends as usual."""
    _annotate(what, {SUSPEND: "true"}, "suspended", target)


@task.command()
@click.argument("what", metavar="KIND/NAME")
@cluster_options
def resume(what: str, target: Target) -> None:
    """Start rounds of a suspended task again."""
    _annotate(what, {SUSPEND: None}, "resumed", target)


@task.command()
@click.argument("what", metavar="KIND/NAME")
@cluster_options
def delete(what: str, target: Target) -> None:
    """Delete a task; its carrier and its reports go with it."""
    kind, name = _parse(what)
    target.run(lambda client: client.delete(KINDS[kind], name))
    click.echo(f"{kind.lower()}/{name} deleted")


def run_now_effect(task: Task) -> str:
    if task.status.finish:
        return "is finished: no round is left to start"
    if task.metadata.annotations.get(SUSPEND) == "true":
        return "is suspended: its next round starts when it is resumed"
    return "starts its next round"


def _annotate(
    what: str, annotations: dict[str, str | None], effect: str | Callable[[Task], str], target: Target
) -> None:
    kind, name = _parse(what)
    patch = {"metadata": {"annotations": annotations}}
    changed: Task = target.run(lambda client: client.patch(KINDS[kind], name, patch))
    click.echo(f"{kind.lower()}/{name} {effect if isinstance(effect, str) else effect(changed)}")


def _parse(what: str) -> tuple[str, str]:
    written, _, name = what.partition("/")
    names = {**{each.plural: kind for kind, each in KINDS.items()}, **{kind.lower(): kind for kind in KINDS}, **SHORT}
    if not name or written.lower() not in names:
        mistake(f"name a task as KIND/NAME, with one of {', '.join(KINDS)}, not {what!r}")
    return names[written.lower()], name
