"""`fairlead task`: create, list, report, run-now, suspend, resume and delete diagnosis tasks.

Tasks are read and written on the cluster, with the rights of the kubeconfig; reports come from a running Fairlead.
"""

import asyncio
import urllib.parse
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
import msgspec

from fairlead.cli.report import html, table_lines
from fairlead.cli.server import NoAnswer, address, ask_for, kubeconfig_token, mistake
from fairlead.cli.snapshot import BadInput, documents
from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.errors import ClusterError
from fairlead.model.times import rfc3339_micro
from fairlead.runtime import find_connection
from fairlead.settings import BadSettings, default_data_folder, load
from fairlead.tasks.reports import Summary
from fairlead.tasks.spec import KINDS, RUN_NOW, SUSPEND, Task

T = TypeVar("T")

SHORT = {"nr": "NetReach", "ahh": "AppHttpHealthy"}


def _where(command: Any) -> Any:
    for option in (
        click.option("--context", help="The kubeconfig's context to use."),
        click.option("--kubeconfig", metavar="FILE", help="The cluster.  [default: as kubectl]"),
        click.option("--data", type=click.Path(path_type=Path), help="The folder of `fairlead up`."),
    ):
        command = option(command)
    return command


@click.group()
def task() -> None:
    """Diagnosis tasks: NetReach, AppHttpHealthy and Netdns."""


@task.command()
@click.option("-f", "--file", "file", type=click.Path(path_type=Path), required=True, help="Manifests of tasks.")
@_where
def create(file: Path, data: Path | None, kubeconfig: str | None, context: str | None) -> None:
    """Create the tasks of a file."""
    try:
        found = list(documents(file))
    except BadInput as problem:
        mistake(str(problem))
    for document in found:
        if document.body.get("kind") not in KINDS:
            mistake(f"{document.where}: wanted one of {', '.join(KINDS)}, found {document.body.get('kind')!r}")

    async def work(client: Client) -> None:
        for document in found:
            kind = KINDS[document.body["kind"]]
            made = await client.create(kind, document.body)
            click.echo(f"{kind.kind.lower()}/{made.metadata.name} created")

    _on_cluster(work, data, kubeconfig, context)


@task.command(name="list")
@_where
def list_(data: Path | None, kubeconfig: str | None, context: str | None) -> None:
    """Every task, and how far it is."""

    async def work(client: Client) -> list[tuple[str, Task]]:
        return [(name, each) for name, kind in KINDS.items() for each in await client.list(kind)]

    rows = [("KIND/NAME", "CARRIER", "ROUNDS", "LAST", "NEXT", "FINISHED")]
    for kind, each in _on_cluster(work, data, kubeconfig, context):
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
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        click.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


@task.command()
@click.argument("what", metavar="KIND/NAME")
@click.option("-o", "--output", type=click.Choice(["table", "json", "html"]), default="table", show_default=True)
@click.option("--server", metavar="URL", help="A running Fairlead.")
@click.option("--token", help="A token the cluster knows.  [default: the kubeconfig's]")
@click.option("--token-file", type=click.Path(path_type=Path), help="A file that holds one.")
@click.option("--ca-file", type=click.Path(path_type=Path), help="The authority of the server's certificate (PEM).")
@_where
def report(
    what: str,
    output: str,
    server: str | None,
    token: str | None,
    token_file: Path | None,
    ca_file: Path | None,
    data: Path | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """What the agents of a task found: rounds, who reached whom, and who is to blame."""
    kind, name = _parse(what)
    try:
        url, given = address(data, server, token, token_file)
        if server and not given:
            given = asyncio.run(kubeconfig_token(kubeconfig, context))
        path = f"/tasks/{kind}/{urllib.parse.quote(name, safe='')}/report"
        summary = ask_for(Summary, url, path, given, ca_file)
    except NoAnswer as problem:
        mistake(f"{problem}; name a running Fairlead with --server or --data")
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(summary), indent=2).decode())
    elif output == "html":
        click.echo(html(summary))
    else:
        click.echo("\n".join(table_lines(summary)))


@task.command(name="run-now")
@click.argument("what", metavar="KIND/NAME")
@_where
def run_now(what: str, data: Path | None, kubeconfig: str | None, context: str | None) -> None:
    """Start the next round of a task now."""
    _annotate(what, {RUN_NOW: rfc3339_micro(RealClock().now())}, "starts its next round", data, kubeconfig, context)


@task.command()
@click.argument("what", metavar="KIND/NAME")
@_where
def suspend(what: str, data: Path | None, kubeconfig: str | None, context: str | None) -> None:
    """Start no more rounds of a task; a running one ends as usual."""
    _annotate(what, {SUSPEND: "true"}, "suspended", data, kubeconfig, context)


@task.command()
@click.argument("what", metavar="KIND/NAME")
@_where
def resume(what: str, data: Path | None, kubeconfig: str | None, context: str | None) -> None:
    """Start rounds of a suspended task again."""
    _annotate(what, {SUSPEND: None}, "resumed", data, kubeconfig, context)


@task.command()
@click.argument("what", metavar="KIND/NAME")
@_where
def delete(what: str, data: Path | None, kubeconfig: str | None, context: str | None) -> None:
    """Delete a task; its carrier and its reports go with it."""
    kind, name = _parse(what)
    _on_cluster(lambda client: client.delete(KINDS[kind], name), data, kubeconfig, context)
    click.echo(f"{kind.lower()}/{name} deleted")


def _annotate(
    what: str,
    annotations: dict[str, str | None],
    effect: str,
    data: Path | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    kind, name = _parse(what)
    patch = {"metadata": {"annotations": annotations}}
    _on_cluster(lambda client: client.patch(KINDS[kind], name, patch), data, kubeconfig, context)
    click.echo(f"{kind.lower()}/{name} {effect}")


def _parse(what: str) -> tuple[str, str]:
    written, _, name = what.partition("/")
    names = {**{each.plural: kind for kind, each in KINDS.items()}, **{kind.lower(): kind for kind in KINDS}, **SHORT}
    if not name or written.lower() not in names:
        mistake(f"wanted KIND/NAME with one of {', '.join(KINDS)}, got {what!r}")
    return names[written.lower()], name


def _on_cluster(
    work: Callable[[Client], Awaitable[T]], data: Path | None, kubeconfig: str | None, context: str | None
) -> T:
    """The work on the cluster named, or else on that of `fairlead up` where one runs."""
    clock = RealClock()

    async def run() -> T:
        settings = load(flags={"kubeconfig": kubeconfig or _kubeconfig(data), "context": context})
        async with Client(find_connection(settings, clock), clock=clock) as client:
            return await work(client)

    try:
        return asyncio.run(run())
    except (BadSettings, ClusterError) as problem:
        mistake(str(problem))


def _kubeconfig(data: Path | None) -> str | None:
    if data is None:
        return None
    found = (data or default_data_folder()).expanduser() / "kubeconfig"
    return str(found) if found.exists() else _no_cluster(found)


def _no_cluster(path: Path) -> NoReturn:
    mistake(f"--data: there is no {path}: is `fairlead up` running with that folder?")
