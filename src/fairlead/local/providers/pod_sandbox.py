"""A pod's place on this machine: its folder, what it finds there, and what a container of it is started with."""

import asyncio
import contextlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from fairlead.cluster.kubeconfig import SERVICE_ACCOUNT
from fairlead.local.providers.addresses import HOST
from fairlead.local.providers.namespaces import Bind, is_within
from fairlead.local.providers.sessions import Files
from fairlead.local.providers.supervisor import MARK
from fairlead.nodes.env import sub_path
from fairlead.nodes.provider import File, Folder, ProviderError, Run, RunReport
from fairlead.nodes.spec import Container, KubeletPod

SHIM = Path(__file__).with_name("shim")
# As much of a container's last words, and of its log in their place, as a kubelet takes.
MOST_LAST_WORDS = 4096
MOST_LAST_LOG = 2048
MOST_LAST_LINES = 80
# As long as Linux takes; a kubelet cuts the pod's name as well.
MOST_HOSTNAME = 63


@dataclass(slots=True)
class ContainerProcess:
    """One run and what became of it."""

    run: Run
    report: RunReport
    id: str
    kill_at: datetime | None = None
    files: Files = field(default_factory=Files)
    """Our ends of its input or its terminal, where it has one."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Private:
    """What pods do not see of this machine; paths without links."""

    hidden: Path
    """With everything in it, but for what is made for the pod itself."""
    claims: Path | None = None
    """Where in it the volumes of claims are."""

    def hides(self, path: str) -> bool:
        return is_within(os.path.realpath(path), str(self.hidden))

    def is_claim(self, volume: Folder) -> bool:
        """A volume of ours, straight in its folder: further in, pods may have made links."""
        real = Path(os.path.realpath(volume.host_path))
        return volume.is_claim and self.claims is not None and real.parent == self.claims


@dataclass(slots=True)
class PodSandbox:
    """One pod here: its address, its folder, its runs."""

    pod: KubeletPod
    ip: str
    folder: Path
    private: Private
    node_ip: str = HOST
    volumes: Mapping[str, Folder] = field(default_factory=dict)
    jobs: dict[str, ContainerProcess] = field(default_factory=dict)

    @property
    def hostname(self) -> str:
        return (self.pod.spec.hostname or self.pod.metadata.name)[:MOST_HOSTNAME].rstrip("-.")

    @property
    def hosts(self) -> Path:
        return self.folder / "hosts"

    def log(self, container: str, attempt: int) -> Path:
        return self.folder / "logs" / container / f"{attempt}.log"

    def termination_file(self, container: str) -> Path:
        """What the container finds at its terminationMessagePath."""
        return self.folder / "logs" / container / "last-words"

    def volume(self, name: str) -> str:
        """Where the volume is on this machine."""
        found = self.volumes.get(name)
        return found.host_path if found is not None and found.host_path else str(self.folder / "volumes" / name)


# --- on disk ----------------------------------------------------------------------------------------------


def write_folders(box: PodSandbox) -> None:
    """Everything the pod finds on disk, but for its hosts file."""
    box.folder.mkdir(parents=True, exist_ok=True)
    box.folder.chmod(0o700)  # it may be there from before
    for part in ("volumes", "logs", "tmp", "root"):
        (box.folder / part).mkdir(exist_ok=True)
    for name, volume in box.volumes.items():
        if volume.host_path:
            if box.private.hides(volume.host_path) and not box.private.is_claim(volume):
                raise ProviderError(f'volume "{name}": {volume.host_path} lies in Fairlead\'s own folder: name another')
            make_host_path(name, Path(volume.host_path), volume.host_type)
            continue
        folder = box.folder / "volumes" / name
        folder.mkdir(exist_ok=True)
        if volume.files is not None:
            _write_files(folder, volume.files)


IS_THERE: dict[str, tuple[str, Callable[[Path], bool]]] = {
    "Directory": ("a directory", Path.is_dir),
    "DirectoryOrCreate": ("a directory", Path.is_dir),
    "": ("there", Path.exists),
    "File": ("a file", Path.is_file),
    "FileOrCreate": ("a file", Path.is_file),
    "Socket": ("a socket", Path.is_socket),
    "CharDevice": ("a character device", Path.is_char_device),
    "BlockDevice": ("a block device", Path.is_block_device),
}


def make_host_path(name: str, path: Path, kind: str) -> None:
    """Make what is to be made; what must be there already and is not is worth waiting for."""
    if not path.exists():
        if kind in ("", "DirectoryOrCreate"):
            path.mkdir(parents=True)
        elif kind == "FileOrCreate":
            path.touch()
    expected, is_there = IS_THERE.get(kind, IS_THERE[""])
    if not is_there(path):
        raise ProviderError(f'volume "{name}": hostPath type check failed: {path} is not {expected}')


def write_hosts(box: PodSandbox, names: Mapping[str, tuple[str, ...]]) -> None:
    """What names mean inside the pod, as its hosts file."""
    by_address: dict[str, list[str]] = {}
    for name, addresses in names.items():
        for address in addresses:
            by_address.setdefault(address, []).append(name)
    lines = [
        "# Written by Fairlead for this pod.",
        "127.0.0.1 localhost",
        "::1 localhost",
        f"{box.ip} {box.hostname}",
    ]
    if aliases := box.pod.spec.host_aliases:
        lines += ["", "# Entries added by HostAliases."]
        lines += ["\t".join((alias.ip, *(alias.hostnames or ()))) for alias in aliases]
    lines += [f"{address} {' '.join(sorted(found))}" for address, found in sorted(by_address.items())]
    text = ("\n".join(lines) + "\n").encode()
    # The same file all its life: the pod has it mounted, and another file under its name it would never see.
    with contextlib.suppress(FileNotFoundError):
        handle = os.open(box.hosts, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.pwrite(handle, text, 0)
            os.ftruncate(handle, len(text))
        finally:
            os.close(handle)


def _write_files(folder: Path, files: Mapping[str, File]) -> None:
    """The folder holds exactly these files; one that is unchanged is not touched, one that changes does so at once."""
    for path, entry in files.items():
        target = folder / path
        if target.is_file() and target.read_bytes() == entry.content:
            target.chmod(entry.mode)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.new")
        fresh.unlink(missing_ok=True)
        handle = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with open(handle, "wb") as file:
            file.write(entry.content)
            os.fchmod(handle, entry.mode)
        fresh.replace(target)
    for target in sorted(folder.rglob("*"), reverse=True):
        name = target.relative_to(folder).as_posix()
        if target.is_dir():
            with contextlib.suppress(OSError):
                target.rmdir()
        elif name not in files:
            target.unlink()


# --- starting ---------------------------------------------------------------------------------------------


def order_of(box: PodSandbox, run: Run, argv: list[str], mark: str, *, way: str) -> dict[str, Any]:
    """What the supervisor needs to become this container; `way` is how it is kept to its own view, if at all."""
    env = {**_env(box), **run.env}
    # Ours goes first, so that a program's own path does not cost it its address.
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(SHIM), run.env.get("PYTHONPATH"))))
    cwd = run.container.working_dir or str(box.folder / "tmp")
    mounts = _mounts(box, run.container, run.env)
    order: dict[str, Any] = {"mounts": [], "root": ""}
    if way:
        order["mounts"] = [*_own(box), *sorted(mounts, key=lambda mount: mount.path.count("/"))]
        if not any(mount.path == "/etc/hosts" for mount in mounts):
            order["mounts"].append(Bind(str(box.hosts), "", "/etc/hosts", False, True))
        order["root"] = str(box.folder / "root")
        order["way"] = way
        order["hidden"] = [str(box.private.hidden)]
        order["hostname"] = "" if box.pod.spec.host_network else box.hostname
    else:
        plain = [(os.path.join(mount.source, mount.inside).rstrip("/"), mount.path) for mount in mounts]
        for (folder, _), mount in zip(plain, mounts, strict=True):
            if mount.inside:
                os.makedirs(folder, exist_ok=True)
        argv = [translated(word, plain) for word in argv]
        env = {name: translated(value, plain) for name, value in env.items()}
        cwd = translated(cwd, plain)
        # Last: a container's own variable of that name would lead Fairlead's programs to another account.
        for source in (source for source, path in plain if path == str(SERVICE_ACCOUNT)):
            env["FAIRLEAD_SERVICE_ACCOUNT"] = source
    is_free = not run.container.working_dir
    return {**order, "argv": argv, "env": {**env, MARK: mark}, "cwd": cwd, "any_cwd": is_free}


def _env(box: PodSandbox) -> dict[str, str]:
    """What every container finds besides its own variables, which go before these."""
    meta = box.pod.metadata
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(box.folder / "tmp"),
        "TMPDIR": str(box.folder / "tmp"),
        "LANG": "C.UTF-8",
        "HOSTNAME": box.hostname,
        "POD_NAME": meta.name,
        "POD_NAMESPACE": meta.namespace,
        "POD_UID": meta.uid,
        "POD_IP": box.ip,
        "HOST_IP": box.node_ip,
        "NODE_NAME": box.pod.spec.node_name,
        "PYTHONUNBUFFERED": "1",
    }
    for name in box.volumes:
        env[f"FAIRLEAD_VOLUME_{re.sub(r'[^A-Z0-9]', '_', name.upper())}"] = box.volume(name)
    return env


def _own(box: PodSandbox) -> list[Bind]:
    """What of the hidden folder is the pod's own, at its place: the variables of every container tell of it."""
    found = [Bind(str(box.folder / "tmp"), "", str(box.folder / "tmp"), False, True)]
    for name, volume in box.volumes.items():
        if not volume.host_path or box.private.is_claim(volume):
            source = os.path.realpath(box.volume(name))
            found.append(Bind(source, "", source, _is_read_only(volume), True))
    return found


def _is_read_only(volume: Folder) -> bool:
    """What we write ourselves is never the pod's to write: it could lead us elsewhere."""
    return volume.is_read_only or volume.files is not None


def _mounts(box: PodSandbox, container: Container, env: Mapping[str, str]) -> list[Bind]:
    found = []
    for mount in container.volume_mounts or ():
        volume = box.volumes.get(mount.name)
        if volume is None:
            continue
        is_own = not volume.host_path or box.private.is_claim(volume)
        source = os.path.realpath(box.volume(mount.name)) if is_own else box.volume(mount.name)
        is_read_only = mount.read_only or _is_read_only(volume)
        path = "/" + mount.mount_path.strip("/")
        found.append(Bind(source, sub_path(mount, env), path, is_read_only, is_own))
    words = box.termination_file(container.name)
    if words.exists():
        path = "/" + container.termination_message_path.strip("/")
        found.append(Bind(str(words), "", path, False, True))
    return found


def translated(text: str, mounts: list[tuple[str, str]]) -> str:
    """The text with mount paths in it written as the folders they stand for, longest first."""
    for source, path in sorted(mounts, key=lambda mount: -len(mount[1])):
        if path in text:
            text = re.sub(rf"(?<![\w./-]){re.escape(path)}(?=/|$|[^\w.-])", lambda _: source, text)  # noqa: B023
    return text


# --- logs and last words ----------------------------------------------------------------------------------


def make_log_room(path: Path, attempt: int) -> None:
    """Logs of the last two attempts are kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in range(max(0, attempt - 20), attempt - 1):
        for name in (f"{old}.log", f"{old}.log.1"):
            path.with_name(name).unlink(missing_ok=True)


def logged_attempt(pods: Path, uid: str, container: str, previous: bool) -> int | None:
    """The last attempt of a container that has a log, or the one before."""
    if not re.fullmatch(r"[\w-]+", uid) or not re.fullmatch(r"[\w.-]+", container):
        return None
    try:
        names = os.listdir(pods / uid / "logs" / container)
    except OSError:
        return None
    attempts = sorted(int(name.removesuffix(".log")) for name in names if re.fullmatch(r"\d+\.log", name))
    if previous:
        return attempts[-2] if len(attempts) > 1 else None
    return attempts[-1] if attempts else None


def termination_message(box: PodSandbox, job: ContainerProcess, code: int) -> str:
    """The termination message of a container; the end of its log, by FallbackToLogsOnError."""
    container = job.run.container
    words = _end_of(box.termination_file(container.name), MOST_LAST_WORDS)
    if not words and code and container.termination_message_policy == "FallbackToLogsOnError":
        logged = _end_of(box.log(container.name, job.run.attempt), 4 * MOST_LAST_LOG).split("\n")
        # Each line is logged with its time, its stream and whether it is whole.
        lines = [parts[3] for line in logged if len(parts := line.split(" ", 3)) == 4]
        words = "".join(f"{line}\n" for line in lines[-MOST_LAST_LINES:])[-MOST_LAST_LOG:]
    return words


def _end_of(path: Path, most: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most))
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""
