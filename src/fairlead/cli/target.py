"""Which cluster, and which running Fairlead, a command is about: the options for both, and how each is reached."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from fairlead.cli.server import NoAnswer, ask_for, mistake
from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.kubeconfig import Connection
from fairlead.runtime import find_connection
from fairlead.settings import BadSettings, Settings, default_data_folder, load

T = TypeVar("T")
Command = Callable[..., None]

_CLUSTER: Final = (
    click.option("--data", type=click.Path(path_type=Path), help="The folder of `fairlead up`."),
    click.option("--kubeconfig", metavar="FILE", help="The cluster.  [default: as kubectl, else `fairlead up`'s]"),
    click.option("--context", help="The kubeconfig's context to use."),
)
_SERVER: Final = (
    click.option("--server", metavar="URL", help="A running Fairlead.  [default: that of --data]"),
    click.option("--token", help="A bearer token that the cluster accepts.  [default: the kubeconfig's]"),
    click.option("--token-file", type=click.Path(path_type=Path), help="A file with the token."),
    click.option("--ca-file", type=click.Path(path_type=Path), help="The CA certificate of the server (PEM)."),
)


@dataclass(frozen=True, slots=True)
class Target:
    data: Path | None = None
    kubeconfig: str | None = None
    context: str | None = None
    server: str | None = None
    token: str | None = None
    token_file: Path | None = None
    ca_file: Path | None = None

    def run(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """The work on the cluster; what the user can correct ends the command with a sentence."""

        async def run() -> T:
            clock = RealClock()
            async with Client(self._connection(clock), clock=clock) as client:
                return await work(client)

        try:
            return asyncio.run(run())
        except (BadSettings, ClusterError) as problem:
            mistake(getattr(getattr(problem, "status", None), "message", "") or str(problem))

    def ask(self, struct: type[T], path: str, body: object = None) -> T:
        """What the running Fairlead answers; NoAnswer where there is none."""
        url, token = self._fairlead()
        return ask_for(struct, url, path, token, self.ca_file, None if body is None else msgspec.json.encode(body))

    def namespace(self, named: str | None) -> str:
        """The one that is named, else the context's, as kubectl does."""
        if named:
            return named
        if self.data is not None and not self.kubeconfig and not (self.data.expanduser() / "kubeconfig").exists():
            return "default"  # whoever needs the cluster says that it is not there
        try:
            return self._connection(RealClock()).namespace
        except (BadSettings, ClusterError):
            return "default"

    def settings(self) -> Settings:
        named = self.kubeconfig or self._kubeconfig_of_data()
        try:
            return load(flags={"kubeconfig": named, "context": self.context})
        except BadSettings as problem:
            mistake(str(problem))

    def _connection(self, clock: RealClock) -> Connection:
        try:
            return find_connection(self.settings(), clock)
        except ClusterError:
            local = default_data_folder() / "kubeconfig"
            if self.kubeconfig or self.data or not local.exists():
                raise
            return find_connection(load(flags={"kubeconfig": str(local)}), clock)

    def _kubeconfig_of_data(self) -> str | None:
        if self.data is None:
            return None
        found = self.data.expanduser() / "kubeconfig"
        if not found.exists():
            mistake(f"--data: there is no {found}: is `fairlead up` running with that folder?")
        return str(found)

    def _fairlead(self) -> tuple[str, str]:
        """Where it is and the token for it: what is named, else what `fairlead up` wrote into its folder."""
        folder = (self.data or default_data_folder()).expanduser()
        try:
            if self.server:
                url, token = self.server, ""
            else:
                url, token = (folder / "api.url").read_text().strip(), (folder / "api.token").read_text().strip()
            if self.token_file is not None:
                token = self.token_file.read_text().strip()
        except OSError as problem:
            raise NoAnswer(f"{problem.filename} cannot be read: {problem.strerror}") from None
        if not url.startswith(("http://", "https://")):
            mistake(f"--server: must be an http:// or https:// address, not {url!r}")
        return url.rstrip("/"), self.token or token or asyncio.run(self._token())

    async def _token(self) -> str:
        """The kubeconfig's, where it has one."""
        try:
            headers = await self._connection(RealClock()).credentials.headers()
        except (BadSettings, ClusterError):
            return ""
        scheme, _, token = dict(headers).get("Authorization", "").partition(" ")
        return token if scheme == "Bearer" else ""


def cluster_options(command: Command) -> Command:
    """The options for a cluster, given to the command as `target`."""
    return _with_target(command, _CLUSTER)


def server_options(command: Command) -> Command:
    """The options for a cluster and for a running Fairlead, given to the command as `target`."""
    return _with_target(command, (*_CLUSTER, *_SERVER))


def _with_target(command: Command, options: tuple[Callable[[Command], Command], ...]) -> Command:
    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        given = {field.name: arguments.pop(field.name) for field in fields(Target) if field.name in arguments}
        command(**arguments, target=Target(**given))

    whole: Command = run
    for option in reversed(options):
        whole = option(whole)
    return whole
