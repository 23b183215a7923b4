"""The `fairlead` command. Heavy rooms are imported inside the commands that need them, so that help is quick."""

import asyncio
import random
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from fairlead import __version__
from fairlead.settings import BadSettings, Settings, load

EXIT_MISTAKE = 2
"""Something the user can mend: a flag, a file, a kubeconfig."""
EXIT_UNFINISHED = 1
"""Told to stop a second time."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fairlead")
def cli() -> None:
    """Fairlead: a scheduling control plane for Kubernetes."""


LOG_LEVELS = ["debug", "info", "warning", "error"]
RUNTIME_OPTIONS = [
    click.option("--config", type=click.Path(path_type=Path), help="A configuration file (kind: Configuration)."),
    click.option("--kubeconfig", metavar="FILE", help="The cluster to run against.  [default: as kubectl]"),
    click.option("--context", help="The kubeconfig's context to use.  [default: its current one]"),
    click.option("--namespace", help="Where leases live.  [default: fairlead-system]"),
    click.option("--capabilities", metavar="A,B", help="Some of placement, jobs, tasks, data, modules."),
    click.option("--listen", metavar="HOST:PORT", help="Health and metrics.  [default: 127.0.0.1:8470]"),
    click.option("--log-level", type=click.Choice(LOG_LEVELS), help="[default: info]"),
]


def runtime_options(command: Any) -> Any:
    for option in reversed(RUNTIME_OPTIONS):
        command = option(command)
    return command


@cli.command()
@runtime_options
def serve(config: Path | None, **flags: Any) -> None:
    """Run beside the control plane of a Kubernetes cluster (1.30 or newer)."""
    _serve(_settings(config, flags))


@cli.command()
@runtime_options
def up(config: Path | None, **flags: Any) -> None:
    """Start Fairlead. It has no cluster of its own yet: it runs against the one a kubeconfig names."""
    _serve(_settings(config, flags))


def _settings(config: Path | None, flags: dict[str, Any]) -> Settings:
    flags["logs.level"] = flags.pop("log_level")
    try:
        return load(file=config, flags=flags)
    except BadSettings as problem:
        _mistake(str(problem))


def _serve(settings: Settings) -> None:
    from fairlead import app
    from fairlead.cluster.clock import RealClock
    from fairlead.cluster.errors import ClusterError
    from fairlead.logs import start_logs
    from fairlead.tracing import start_tracing

    async def run() -> None:
        stop = asyncio.Event()
        with app.stopped_by_signals(stop):
            await app.serve(settings, clock=RealClock(), rng=random.random, stop=stop)

    start_logs(settings.logs)
    try:
        with start_tracing(settings.traces_to):
            asyncio.run(run())
    except (BadSettings, ClusterError) as problem:
        _mistake(str(problem))
    except asyncio.CancelledError:
        click.echo("fairlead: ended at once, before everything in hand was finished", err=True)
        sys.exit(EXIT_UNFINISHED)


def _mistake(sentence: str) -> NoReturn:
    click.echo(f"fairlead: {sentence}", err=True)
    sys.exit(EXIT_MISTAKE)


def main() -> None:
    cli()
