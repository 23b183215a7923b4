"""The Provider port: what runs the pods of a virtual node.

The virtual kubelet decides *what* should run (order of containers, restarts, back-off, probes, grace: `nodes.plan`); a
provider decides *how*. One provider may serve many nodes. `fairlead.testing.provider_suite` holds every provider to
the laws:

1. Every call may come again with the same arguments, after a crash too; the second time changes nothing. A run is
   named by its container and its attempt: the same attempt is never run twice.
2. `create` makes ready what the pod's containers share (an address, folders). It is called before any run and again
   whenever the contents of volumes have changed.
3. `update` says which runs there shall be. When it returns, `status` speaks of every run that it named. A run with
   `kill_at` shall end: it is asked to at once and made to at that moment. A run that is not named and still runs is
   ended without delay.
4. `delete` ends everything and forgets the pod; a pod that is unknown is already deleted. When it returns, nothing of
   the pod is left but what others own.
5. `adopt` comes first after a restart of ours, for pods that had begun before. What the provider still has or finds
   again it shows in `status`; what it has lost it leaves out. It starts nothing. Where it cannot look now, it raises
   `ProviderError`: the pod stays as it is, and is adopted later.
6. `status` never blocks and never fails: it returns what is known now, or None for a pod that is unknown. What it
   returns is immutable.
7. Whenever `status` would answer otherwise than before, the provider calls `notify(uid)`, which never blocks. A
   notification too many is harmless.
8. What a pod's author did wrong (an image that is unknown, a port that is taken) is no exception: the run
   waits, with a reason and a sentence that says what to do. `ProviderError` is for what may pass by itself.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Protocol, runtime_checkable

from fairlead.nodes.spec import Container, KubeletPod, Probe

Notify = Callable[[str], None]
"""Called with the uid of a pod whose status has changed."""


class ProviderError(Exception):
    """The provider could not do it now; the same call may pass later."""


class NotNow(ProviderError):
    """What a pod runs on cannot be reached for a while: nothing is lost, and nothing is reported."""


class Unsupported(Exception):
    """This provider cannot do that at all; the message says so to the user."""


class NotRunning(Exception):
    """There is no such container, or it does not run, so that nothing can be done in it."""


class NotStarted(Exception):
    """The command could not be started; the message says why."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a provider makes use of; the kubelet leaves the rest undone."""

    environment: bool = True
    """Runs need their variables resolved."""
    volumes: bool = True
    """Where variables are resolved: volumes too."""
    probes: bool = True
    """Probes are carried out; without, whatever runs is ready."""
    records_events: bool = True
    """Ordinary events (Started, Killing) are recorded; at thousands of pods they would drown the rest."""
    own_addresses: bool = True
    """Every pod has an address of its own; without, pods of a node may share one."""
    ends_by_itself: bool = True
    """Containers may end by themselves, with an exit code; without, they run until they are stopped."""
    outlives_us: bool = False
    """What runs goes on when `run` is cancelled, and is found again by `adopt`."""


@dataclass(frozen=True, slots=True)
class File:
    content: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Folder:
    """What a volume holds: files we write (by relative path), a host folder, or nothing yet."""

    files: Mapping[str, File] | None = None
    host_path: str = ""
    host_type: str = ""
    """What must be at the host path or is to be made there, as a hostPath volume says it; nothing: a folder is made."""
    is_read_only: bool = False
    is_claim: bool = False
    """The host path is that of a volume bound to a claim, not one that the pod names itself."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What the containers of a pod share."""

    pod: KubeletPod
    volumes: Mapping[str, Folder] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt to run one container. `command`, `args` and `env` are resolved where the traits ask for that."""

    container: Container
    attempt: int
    kill_at: datetime | None = None
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    env: Mapping[str, str] = field(default_factory=dict)


class RunPhase(Enum):
    WAITING = "waiting"  # not begun, for `reason`
    RUNNING = "running"
    EXITED = "exited"


@dataclass(frozen=True, slots=True)
class RunReport:
    attempt: int
    phase: RunPhase
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    id: str = ""
    is_ready: bool = True
    """Of what runs: whether it can serve, as far as the provider knows; probes are asked besides."""
    has_failed_hook: bool = False
    """It is ended because what was to be done right after its start failed; `message` says how."""
    fails_pod: bool = False
    """Of what has exited: it is not to be tried again, whatever the restart policy; the pod fails as a whole."""


@dataclass(frozen=True, slots=True)
class PodCondition:
    """A condition that a provider has to say of a pod; readiness gates that name it are judged by it."""

    type: str
    is_true: bool
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class PodReport:
    ip: str
    runs: Mapping[str, RunReport] = field(default_factory=dict)
    conditions: tuple[PodCondition, ...] = ()


@dataclass(frozen=True, slots=True)
class ProbeResult:
    ok: bool
    output: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a container uses now; `cpu_s` is the total since its start."""

    cpu_s: float = 0.0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LogOptions:
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: datetime | None = None


class Provider(Protocol):
    @property
    def traits(self) -> Traits: ...

    def listen(self, notify: Notify) -> None:
        """Whom to tell of changes; called once, before anything else."""

    async def run(self) -> None:
        """The provider's own work, for as long as its nodes are served; on being cancelled it ends what it runs,
        unless that outlives us (`traits`)."""

    async def create(self, sandbox: Sandbox) -> None: ...

    async def adopt(self, pod: KubeletPod) -> None: ...

    async def update(self, uid: str, runs: tuple[Run, ...]) -> None: ...

    async def delete(self, uid: str, grace_s: float = 0.0) -> None: ...

    def status(self, uid: str) -> PodReport | None: ...

    def known(self) -> frozenset[str]:
        """The uids of every pod it would answer `status` for, those found at start included."""

    async def probe(self, uid: str, container: str, probe: Probe) -> ProbeResult: ...

    def usage(self, uid: str) -> Mapping[str, Usage]: ...

    def logs(self, uid: str, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        """The container's output; `Unsupported` where there is none."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Which streams of a command or a container a client wants."""

    stdin: bool = False
    stdout: bool = True
    stderr: bool = True
    tty: bool = False


class Session(Protocol):
    """A command in a container, or the container itself, with its streams. To be closed by whoever opened it."""

    async def read(self, stream: int) -> bytes:
        """What it has written to its output (1) or its error output (2); nothing at the end."""

    async def write(self, data: bytes) -> None:
        """To its input; waits while it takes no more, and drops what it will never take."""

    def close_stdin(self) -> None: ...

    def resize(self, width: int, height: int) -> None: ...

    async def wait(self) -> int:
        """Its exit code, once it has ended."""

    async def close(self) -> None:
        """The client is gone: a command ends, a container goes on."""


@runtime_checkable
class Interactive(Protocol):
    """A provider into whose pods one can reach. `NotRunning` where the container does not run."""

    def check_stream(self, uid: str, container: str, *, needs_stdin: bool) -> None:
        """`NotRunning`, or `Unsupported` where the container itself `needs_stdin` and has none."""

    async def exec(self, uid: str, container: str, command: tuple[str, ...], options: StreamOptions) -> Session:
        """Start a command; `NotStarted` with a sentence where that fails."""

    async def attach(self, uid: str, container: str, options: StreamOptions) -> Session: ...

    async def dial(self, uid: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a port of the pod; OSError with a sentence where there is none."""
