"""The `fairlead` command. Heavy packages are imported inside the commands that need them, so that help is quick."""

import asyncio
import gc
import importlib
import random
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn

import click

from fairlead import __version__
from fairlead.settings import BadSettings, Settings, default_data_folder, load

EXIT_MISTAKE = 2
"""Something the user can correct: a flag, a file, a kubeconfig."""
EXIT_UNFINISHED = 1
"""Ended by a second signal, before the work in hand was finished."""
STARTED_S = 15.0
"""After so long what a process needs throughout is there."""
YOUNG_OBJECTS = 20_000
"""So many more objects than before are a reason to look for cycles among the new ones."""


class Late(NamedTuple):
    """A command in a module of its own, which has a function of its name."""

    module: str
    summary: str


class Commands(click.Group):
    """Commands whose modules are imported when they are called; the list of commands needs none of them."""

    LATE: ClassVar = {
        "data": Late("fairlead.cli.data", "Drain workers of datasets, report caches, try the webhook."),
        "explain": Late("fairlead.cli.explain", "Explain why a pod is on its node, or pending."),
        "job": Late("fairlead.cli.job", "Submit TYJobs, follow them, and ask why they wait."),
        "place": Late("fairlead.cli.place", "Show which nodes pods would get on a snapshot of a cluster."),
        "replay": Late("fairlead.cli.replay", "Repeat a recorded decision and compare."),
        "task": Late("fairlead.cli.task", "Create diagnosis tasks and show their reports."),
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *self.LATE])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.LATE:
            found = getattr(importlib.import_module(self.LATE[cmd_name].module), cmd_name)
            assert isinstance(found, click.Command)
            return found
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        summaries = {name: command.short_help or "" for name, command in self.commands.items()}
        summaries |= {name: late.summary for name, late in self.LATE.items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted(summaries.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fairlead")
def cli() -> None:
    """Fairlead: a scheduling control plane for Kubernetes."""


LOG_LEVELS = ["debug", "info", "warning", "error"]
COMMON_OPTIONS = [
    click.option("--config", type=click.Path(path_type=Path), help="A configuration file (kind: Configuration)."),
    click.option("--listen", metavar="HOST:PORT", help="Health, metrics and the API.  [default: 127.0.0.1:8470]"),
    click.option("--log-level", type=click.Choice(LOG_LEVELS), help="[default: info; of `up`: warning]"),
]
SERVE_OPTIONS = [
    click.option("--kubeconfig", metavar="FILE", help="The cluster to run against.  [default: as kubectl]"),
    click.option("--context", help="The kubeconfig's context to use.  [default: its current one]"),
    click.option("--namespace", help="The namespace of Fairlead's own objects.  [default: fairlead-system]"),
    click.option("--capabilities", metavar="A,B", help="Some of placement, jobs, tasks, data, modules."),
]
UP_OPTIONS = [
    click.option(
        "--data", type=click.Path(path_type=Path), help="The cluster's folder.  [default: in your user data folder]"
    ),
    click.option(
        "--port", type=click.IntRange(0, 65535), default=0, help="The API server's port.  [default: any free one]"
    ),
    click.option(
        "--nodes", type=click.IntRange(0, 100), default=1, show_default=True, help="Nodes that run pods as processes."
    ),
    click.option(
        "--simulate", type=click.IntRange(0, 20_000), default=0, metavar="N", help="Nodes that only simulate pods."
    ),
    click.option("--demo", is_flag=True, help="Create example workloads in the namespace demo."),
    click.option("--empty", is_flag=True, help="Start without nodes."),
    click.option("--without", default="", metavar="A,B", help="Leave out some of controllers, nodes, or capabilities."),
]


def with_options(*options: Any) -> Callable[[Any], Any]:
    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@cli.command(short_help="Run beside the control plane of a Kubernetes cluster.")
@with_options(*SERVE_OPTIONS, *COMMON_OPTIONS)
def serve(config: Path | None, **flags: Any) -> None:
    """Run beside the control plane of a Kubernetes cluster (1.30 or newer)."""
    _serve(_settings(config, flags))


@cli.command(short_help="Start a small cluster with Fairlead on this machine.")
@with_options(*UP_OPTIONS, *COMMON_OPTIONS)
def up(
    config: Path | None,
    data: Path | None,
    port: int,
    nodes: int,
    simulate: int,
    demo: bool,
    empty: bool,
    without: str,
    **flags: Any,
) -> None:
    """Start a small cluster of its own: API server, controllers, nodes that run pods, and all capabilities."""
    from fairlead import up as up_module

    parts = tuple(part.strip() for part in without.split(",") if part.strip())
    if unknown := [part for part in parts if part not in up_module.PARTS]:
        _mistake(f"--without: {', '.join(unknown)} is not part of `up`; there are {', '.join(up_module.PARTS)}")
    flags["log_level"] = flags["log_level"] or "warning"
    # Here Fairlead is the scheduler, for pods that name none as well.
    flags["schedulers"] = "default-scheduler,fairlead"
    settings = _settings(config, flags)
    folder = (data or default_data_folder()).expanduser().absolute()
    options = up_module.UpOptions(folder, 0 if empty else nodes, 0 if empty else simulate, port, parts, demo, program())

    async def run(stop: asyncio.Event) -> None:
        from fairlead.cluster.clock import RealClock

        await up_module.up(settings, options, clock=RealClock(), rng=random.random, stop=stop, echo=click.echo)

    _run(settings, run)


@cli.command(
    short_help="Carry out the rounds of diagnosis tasks, in their pods.",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def agent(arguments: tuple[str, ...]) -> None:
    """Carry out the rounds of diagnosis tasks, in a pod of their carrier."""
    from fairlead.tasks.agent.program import main as run_agent

    sys.exit(run_agent(arguments))


@cli.command(
    short_help="Run a base for Python modules.",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def base(arguments: tuple[str, ...]) -> None:
    """Run a base for Python modules; `fairlead base --help` lists its options."""
    from fairlead.modules.base.__main__ import main as run_base

    run_base(list(arguments))


def program() -> str:
    """The command a user types to run Fairlead: the plain name only where it is on the PATH."""
    if shutil.which("fairlead"):
        return "fairlead"
    started = Path(sys.argv[0])
    return f"{sys.executable} -m fairlead" if started.name == "__main__.py" else str(started)


def _settings(config: Path | None, flags: dict[str, Any]) -> Settings:
    flags["logs.level"] = flags.pop("log_level")
    try:
        return load(file=config, flags=flags)
    except BadSettings as problem:
        _mistake(str(problem))


def _serve(settings: Settings) -> None:
    from fairlead import app
    from fairlead.cluster.clock import RealClock

    async def run(stop: asyncio.Event) -> None:
        await app.serve(settings, clock=RealClock(), rng=random.random, stop=stop)

    _run(settings, run)


def _run(settings: Settings, work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Work until a signal; what the user can correct ends the program with one sentence."""
    from fairlead.apiserver.storage.store import Locked, Unusable, WrongSchema
    from fairlead.cluster.clock import RealClock
    from fairlead.cluster.errors import ClusterError
    from fairlead.lifecycle import raise_file_limit, report_full, stopped_by_signals
    from fairlead.logs import start_logs
    from fairlead.tracing import start_tracing

    async def run() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().set_exception_handler(report_full(RealClock()))
        asyncio.get_running_loop().call_later(STARTED_S, _leave_out_of_collections)
        with stopped_by_signals(stop):
            await work(stop)

    start_logs(settings.logs)
    raise_file_limit()
    _collect_less_often()
    try:
        with start_tracing(settings.traces_to):
            asyncio.run(run())
    except (BadSettings, ClusterError, Locked, Unusable, WrongSchema) as problem:
        _mistake(str(problem))
    except asyncio.CancelledError:
        click.echo("fairlead: stopped at once, before the work in hand was finished", err=True)
        sys.exit(EXIT_UNFINISHED)


def _collect_less_often() -> None:
    """Nearly everything goes when nothing refers to it any more; looking for what goes in circles after every 700
    objects, as Python does by itself, takes a sixth of the time of a busy process."""
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


def _leave_out_of_collections() -> None:
    """What is there once it has started stays: no full collection, which stops everybody, looks at it again.

    Nor does one look at it now: on a large cluster that takes as long as all the ones it saves.
    """
    gc.freeze()


def _mistake(sentence: str) -> NoReturn:
    click.echo(f"fairlead: {sentence}", err=True)
    sys.exit(EXIT_MISTAKE)


def main() -> None:
    cli()
