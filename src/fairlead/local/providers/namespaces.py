"""A container's own view of the machine: its mounts and host name, and nothing of what is hidden from it.

Used by the supervisor between fork and exec, in a process with one thread; standard library only. A container has a
mount namespace whose root is a tmpfs with the machine's files bound into it. What is hidden (the data folder, with its
tokens, certificates, secrets and every other pod's files) is covered wherever a mount shows it, hostPath volumes
included. The old root is gone after `pivot_root`, so there is nothing to climb back to.

Covering is worth only as much as the ways around it. There are two:

- `user`: a user namespace for each container. The kernel then refuses `/proc/PID/root`, `environ`, `mem` and `fd` of
  every process outside of it, whoever owns them.
- `pid`: for root only, where there are no user namespaces or a container must listen below 1024, which a user
  namespace forbids: a PID namespace with a `/proc` of its own, so that nobody else's processes are to be seen.

In both, root keeps only the capabilities that containers usually have, so that no cover can be taken off.
"""

import contextlib
import ctypes
import os
import stat
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x04000000, 0x10000000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_NOATIME, MS_NODIRATIME, MS_BIND = 32, 1024, 2048, 4096
MS_REC, MS_UNBINDABLE, MS_PRIVATE, MS_RELATIME = 16384, 1 << 17, 1 << 18, 1 << 21
KINDS = {"user": CLONE_NEWUSER, "mnt": CLONE_NEWNS, "uts": CLONE_NEWUTS, "pid": CLONE_NEWPID}
MNT_DETACH = 2
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
OPENAT2 = 437
NO_MAGICLINKS, NO_SYMLINKS, BENEATH, IN_ROOT = 0x02, 0x04, 0x08, 0x10

FLAGS = {
    "ro": MS_RDONLY,
    "nosuid": MS_NOSUID,
    "nodev": MS_NODEV,
    "noexec": MS_NOEXEC,
    "noatime": MS_NOATIME,
    "nodiratime": MS_NODIRATIME,
    "relatime": MS_RELATIME,
}
# chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw, sys_chroot,
# audit_write, setfcap: what container runtimes leave to root, without making device nodes.
KEPT_CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 29, 31})
# Others would let root read the disk below the files.
DEVICES = frozenset({"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "mqueue", "dri", "kfd"})
# Root could change the machine itself through these.
READ_ONLY = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi")

try:
    libc: Any = ctypes.CDLL(None, use_errno=True)
    libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
    libc.syscall.restype = ctypes.c_long
except (OSError, AttributeError):
    libc = None


class OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class Bind(NamedTuple):
    """A path of the machine to be shown at another."""

    source: str
    inside: str
    """The part of the source that is shown; it may never lead out of it."""
    path: str
    read_only: bool
    own: bool
    """Made for the pod, so that it may lie in what is hidden; its path has no links."""


class Mount(NamedTuple):
    device: str
    root: str
    point: str
    flags: int


def checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    action = f"mount {source} on {target}"
    encoded = (source.encode(), target.encode(), kind.encode() or None, flags, data.encode() or None)
    checked(libc.mount(*encoded), action)


def open_path(path: str, at: int = -100, resolve: int = 0, flags: int = os.O_PATH) -> int:
    """As openat2(2): the kernel itself sees to it that links do not lead astray, however they change meanwhile."""
    how = OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    encoded = os.fsencode(path)
    return checked(libc.syscall(OPENAT2, at, encoded, ctypes.byref(how), ctypes.sizeof(how)), f"open {path}")


@contextlib.contextmanager
def closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def by_number(fd: int) -> str:
    return f"/proc/self/fd/{fd}"


def mounts() -> list[Mount]:
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields = line.split(" ")
            flags = sum(FLAGS.get(name, 0) for name in fields[5].split(","))
            found.append(Mount(fields[2], _plain(fields[3]), _plain(fields[4]), flags))
    return found


def _plain(path: str) -> str:
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, sign)
    return path


def is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


# --- namespaces -------------------------------------------------------------------------------------------


def enter(way: str) -> None:
    """Into namespaces of our own; into the PID namespace only a child gets."""
    if way == "user":
        _enter_user_namespace()
    else:
        checked(libc.unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWPID), "unshare")
    mount("none", "/", flags=MS_REC | MS_PRIVATE)


def join(pid: int) -> None:
    """Into the view of a process that runs, with no more rights than it has; into a PID namespace only a child gets.

    All at once, so that the rights we come with count for each; the root is then that of its mount namespace.
    """
    known = os.listdir("/proc/self/ns")
    theirs = {kind: os.readlink(f"/proc/{pid}/ns/{kind}") for kind in KINDS if kind in known}
    others = [kind for kind, found in theirs.items() if found != os.readlink(f"/proc/self/ns/{kind}")]
    # We still hold the supervisor's memory and files, and a namespace made inside could give the right to look at them.
    checked(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl")
    checked(libc.setns(os.pidfd_open(pid), sum(KINDS[kind] for kind in others)), "setns")
    if os.getuid() == 0:
        drop_capabilities()


def _enter_user_namespace() -> None:
    """Everybody is mapped to themselves: all who can be, for root; else us alone."""
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS
    if uid != 0:
        checked(libc.unshare(flags), "unshare")
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
        return
    # Only who stays outside may map more than itself.
    read, write = os.pipe()
    helper = os.fork()
    if helper == 0:
        os.close(write)
        done = 1
        with contextlib.suppress(OSError):
            if os.read(read, 1):
                for name in ("uid_map", "gid_map"):
                    _write(f"/proc/{os.getppid()}/{name}", _same_ids(f"/proc/self/{name}"))
                done = 0
        os._exit(done)
    os.close(read)
    with open(write, "wb", buffering=0) as line:
        checked(libc.unshare(flags), "unshare")
        line.write(b"x")
    if os.waitpid(helper, 0)[1] != 0:
        raise OSError(1, "the users of this machine cannot be mapped")


def _same_ids(path: str) -> str:
    with open(path) as file:
        ranges = [line.split() for line in file]
    return "".join(f"{first} {first} {count}\n" for first, _, count in ranges)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def drop_capabilities() -> None:
    for number in range(64):
        if number not in KEPT_CAPABILITIES and libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) != 0:
            return  # the kernel has no more of them, or we have none to drop


# --- the view ---------------------------------------------------------------------------------------------


class Root:
    """The machine's files with some paths of our own among them: a tmpfs into which everything else is bound.

    A folder is taken apart (a tmpfs with each of its entries bound back) only where a path must be added to it.
    """

    def __init__(self, folder: str, hidden: list[str], way: str) -> None:
        self.folder = folder
        self._hidden = [os.path.realpath(path) for path in hidden]
        self._apart: set[str] = set()
        self._bound: list[str] = []
        self._own: set[str] = set()
        self._covered: set[str] = set()
        os.makedirs(folder, exist_ok=True)
        mount("tmpfs", folder, "tmpfs", data="mode=755")
        mount("none", folder, flags=MS_UNBINDABLE)  # lest it be bound into itself
        self._fd = open_path(folder)
        self._fill("/")
        if way == "pid":
            mount("proc", folder + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        self._guard_the_machine()
        self.hide()

    def bind(self, mount: Bind) -> None:
        """Make a path of the machine appear at another."""
        with closing(self._open_source(mount)) as source:
            path = os.path.realpath(os.path.normpath(mount.path))
            mode = os.stat(by_number(source)).st_mode
            self._mount_at(path, source, stat.S_ISDIR(mode))
            self._bound.append(path)
            if mount.own:
                self._own.add(self.folder + path)
            flags = MS_NOSUID if stat.S_ISCHR(mode) else MS_NOSUID | MS_NODEV
            self._remount(path, flags | (MS_RDONLY if mount.read_only else 0))

    def _open_source(self, mount: Bind) -> int:
        base = open_path(mount.source, resolve=NO_SYMLINKS if mount.own else 0)
        found = base
        if mount.inside:
            _make_inside(base, mount.inside)
            found = open_path(mount.inside, base, BENEATH | NO_MAGICLINKS)
            os.close(base)
        real = os.readlink(by_number(found))
        if not mount.own and any(is_within(real, hidden) for hidden in self._hidden):
            raise OSError(13, f"{mount.source} lies in Fairlead's own folder, which pods do not see")
        if stat.S_ISBLK(os.stat(by_number(found)).st_mode):
            raise OSError(13, f"{mount.source} is a block device, which pods do not get")
        return found

    def hide(self) -> None:
        """Cover what is hidden, wherever a mount below our root shows it or a part of it."""
        table = mounts()
        for hidden in self._hidden:
            outside = [found for found in table if not is_within(found.point, self.folder)]
            # The innermost, and of those on one point the last.
            reaching = (found for found in reversed(outside) if is_within(hidden, found.point))
            at = max(reaching, key=lambda found: len(found.point))
            inner = os.path.normpath(os.path.join(at.root, os.path.relpath(hidden, at.point)))
            for found in table:
                if found.device != at.device or not is_within(found.point, self.folder):
                    continue
                if is_within(inner, found.root):
                    shown = os.path.normpath(os.path.join(found.point, os.path.relpath(inner, found.root)))
                    self._cover(shown, hidden)
                elif is_within(found.root, inner) and found.point not in self._own | self._covered:
                    self._covered.add(found.point)
                    self._cover(found.point, "")

    def enter(self) -> None:
        """From here on there is nothing but the view."""
        os.fchdir(open_path(self.folder, flags=os.O_RDONLY | os.O_DIRECTORY))
        checked(libc.pivot_root(b".", b"."), "pivot_root")
        checked(libc.umount2(b".", MNT_DETACH), "umount the old root")
        os.close(self._fd)
        os.chdir("/")

    # -- parts ----------------------------------------------------------------------------------------------

    def _cover(self, shown: str, hidden: str) -> None:
        try:
            fd = self._at(shown[len(self.folder) :] or "/")
        except FileNotFoundError:
            return  # something else lies over it
        with closing(fd):
            if hidden and not os.path.samestat(os.stat(by_number(fd)), os.stat(hidden)):
                return
            if stat.S_ISDIR(os.stat(by_number(fd)).st_mode):
                mount("tmpfs", by_number(fd), "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64k")
            else:
                mount("/dev/null", by_number(fd), flags=MS_BIND)

    def _at(self, path: str) -> int:
        return open_path(path.lstrip("/") or ".", self._fd, IN_ROOT | NO_MAGICLINKS)

    def _mount_at(self, path: str, source: int, is_folder: bool) -> None:
        with closing(self._make_room(path, is_folder)) as target:
            mount(by_number(source), by_number(target), flags=MS_BIND | MS_REC)

    def _remount(self, path: str, flags: int, held: int | None = None) -> None:
        """With these flags beside those that it has, which may not be taken away."""
        if held is None:
            point = self.folder + path
            held = next((found.flags for found in reversed(mounts()) if found.point == point), 0)
        with closing(self._at(path)) as fd:
            mount("none", by_number(fd), flags=MS_BIND | MS_REMOUNT | held | flags)

    def _make_room(self, path: str, is_folder: bool) -> int:
        with contextlib.suppress(FileNotFoundError):
            fd = self._at(path)
            if stat.S_ISDIR(os.stat(by_number(fd)).st_mode) == is_folder:
                return fd
            os.close(fd)
            raise OSError(20, f"mount on {path}: a folder can only lie over a folder, a file over a file")
        parent = os.path.dirname(path)
        try:
            os.close(self._at(parent))
        except FileNotFoundError:
            os.close(self._make_room(parent, is_folder=True))
        else:
            if parent not in self._apart and not self._is_ours(parent):
                self._take_apart(parent)
        with closing(self._at(parent)) as at:
            name = os.path.basename(path)
            if is_folder:
                os.mkdir(name, dir_fd=at)
            else:
                os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=at))
        return self._at(path)

    def _is_ours(self, path: str) -> bool:
        """Made by us inside a folder that was taken apart, or inside a volume: a folder can be made there."""
        is_hidden = any(is_within(path, hidden) for hidden in self._hidden)
        return is_hidden or not os.path.isdir(path) or any(is_within(path, at) for at in self._bound)

    def _take_apart(self, path: str) -> None:
        with closing(self._at(path)) as at:
            mount("tmpfs", by_number(at), "tmpfs", data="mode=755")
        self._fill(path)
        self.hide()

    def _fill(self, path: str) -> None:
        self._apart.add(path)
        target = (self.folder + path).rstrip("/")
        with os.scandir(path) as entries:
            for entry in entries:
                new = os.path.join(target, entry.name)
                if path == "/" and entry.name == "dev" and not entry.is_symlink():
                    os.mkdir(new)
                    mount("tmpfs", new, "tmpfs", MS_NOSUID, "mode=755")
                    self._fill("/dev")
                elif entry.is_symlink():
                    os.symlink(os.readlink(entry.path), new)
                elif path != "/dev" or entry.name in DEVICES or entry.name.startswith("nvidia"):
                    self._show(entry, new)

    def _show(self, entry: "os.DirEntry[str]", new: str) -> None:
        # A file or a folder that we may not see is left out, as it would be of no use to the pod either.
        with contextlib.suppress(OSError):
            if stat.S_ISBLK(entry.stat(follow_symlinks=False).st_mode):
                return
            if entry.is_dir():
                os.mkdir(new)
            else:
                with open(new, "w"):
                    pass
            mount(entry.path, new, flags=MS_BIND | MS_REC)

    def _guard_the_machine(self) -> None:
        table = mounts()
        held = next((found.flags for found in reversed(table) if found.point == self.folder + "/proc"), 0)
        for path in READ_ONLY:
            if os.path.exists(self.folder + path):
                target = self.folder + path
                mount(target, target, flags=MS_BIND | MS_REC)
                self._remount(path, MS_RDONLY, held)
        for found in table:
            if is_within(found.point, self.folder + "/sys") and not found.flags & MS_RDONLY:
                with contextlib.suppress(FileNotFoundError):  # something else lies over it
                    self._remount(found.point[len(self.folder) :], MS_RDONLY, found.flags)


def _make_inside(base: int, inside: str) -> None:
    """The folders on the way that are missing, without ever leaving the base."""
    parts = [part for part in inside.split("/") if part and part != "."]
    for number, name in enumerate(parts):
        try:
            os.close(open_path("/".join(parts[: number + 1]), base, BENEATH | NO_MAGICLINKS))
        except FileNotFoundError:
            with closing(open_path("/".join(parts[:number]) or ".", base, BENEATH | NO_MAGICLINKS)) as parent:
                os.mkdir(name, dir_fd=parent)


def live_in(order: dict[str, Any], way: str) -> None:
    """Build the view that the order asks for, and live in it."""
    if order.get("hostname"):
        name = order["hostname"].encode()
        checked(libc.sethostname(name, len(name)), "sethostname")
    root = Root(order["root"], order["hidden"], way)
    for mount_ in order["mounts"]:
        root.bind(Bind(*mount_))
    root.hide()
    root.enter()
    if os.getuid() == 0:
        drop_capabilities()


def ways(folder: str) -> tuple[list[str], str]:
    """Which ways there are here to keep pods to their own view, the better first; or why there is none."""
    if libc is None or sys.platform != "linux":
        return [], "only Linux has mount namespaces"
    found, why = [], ""
    for way in ("user", "pid") if os.getuid() == 0 else ("user",):
        problem = _problem_with(way, folder)
        if problem:
            why = why or problem
        else:
            found.append(way)
    return found, "" if found else why


def _problem_with(way: str, folder: str) -> str:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            enter(way)
            if way == "pid" and (inside := os.fork()):
                os.waitpid(inside, 0)
                os._exit(0)
            parent, own = os.path.dirname(folder), f"{folder}-own"
            os.makedirs(f"{own}/there", exist_ok=True)
            order = {"root": folder, "hidden": [parent], "mounts": [(own, "", "/fairlead-try/deep", False, True)]}
            live_in(order, way)
            if os.listdir("/fairlead-try/deep") != ["there"] or os.listdir(parent):
                raise OSError(1, "the data folder can still be read")
        except BaseException as problem:
            os.write(write, (str(problem) or repr(problem)).encode()[:1000])
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        output = pipe.read().decode("utf-8", "replace")
    os.waitpid(pid, 0)
    return output
