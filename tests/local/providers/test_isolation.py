"""A hostile pod on a process node finds nothing of the data folder and nothing of other pods.

The attacks run inside a real pod, as a program that tries every way it knows and prints what it found.
"""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.cluster.clock import RealClock
from fairlead.local.providers import namespaces
from fairlead.local.providers.lowports import may_listen_low
from fairlead.local.providers.pod_sandbox import Private
from fairlead.local.providers.process import ProcessProvider
from fairlead.nodes.provider import File, Folder, ProviderError, Run, RunPhase, Sandbox, StreamOptions
from tests.local.providers.test_process import Machine, at_work, pod, until

CANARY = "canary-5f2c"
PR_SET_DUMPABLE = 4

# Every attack prints what it finds; nothing may be printed but the last line.
ATTACK = """
import ctypes, glob, os, re, stat, subprocess, sys

data, needle, is_gentle = sys.argv[1], sys.argv[2].encode(), sys.argv[3] == "gentle"
libc = ctypes.CDLL(None, use_errno=True)
scratch = os.environ["TMPDIR"]
if not is_gentle and os.readlink("/proc/self/ns/mnt") == sys.argv[3]:
    sys.exit("this is the machine's own mount namespace: attacks would do harm")

def look(path, where):
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if needle in (file.read(1 << 20) or b""):
                print("found by", where, path)
    except OSError:
        pass

def walk(top, where):
    for folder, _, files in os.walk(top):
        for name in files:
            look(os.path.join(folder, name), where)

def by_proc():
    me = os.getpid()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == me:
            continue
        base = f"/proc/{entry}"
        look(base + "/environ", "environ")
        walk(f"{base}/root{data}", "root")
        if is_gentle:
            continue
        walk(f"{base}/cwd", "cwd")
        for fd in glob.glob(base + "/fd/*") + glob.glob(base + "/map_files/*"):
            look(fd, "fd")
        subprocess.run(["nsenter", "-t", entry, "-m", "ls", data], capture_output=True)
        done = subprocess.run(["nsenter", "-t", entry, "-m", "grep", "-rl", needle.decode(), data], capture_output=True)
        if done.stdout:
            print("found by nsenter", done.stdout)

def by_chroot():
    if os.fork() == 0:
        try:
            os.makedirs(scratch + "/jail", exist_ok=True)
            os.chroot(scratch + "/jail")
            for _ in range(40):
                os.chdir("..")
            os.chroot(".")
            walk(data, "chroot")
        except OSError:
            pass
        os._exit(0)
    os.wait()

def by_mounts():
    if os.fork() == 0:
        for flags in (0, 0x10020000):  # as we are, and in user and mount namespaces of our own
            if flags and libc.unshare(flags) != 0:
                break
            for _ in range(3):
                libc.umount2(data.encode(), 2)
            libc.mount(b"none", b"/", None, 16384 | (1 << 18), None)
            os.makedirs(scratch + "/bind", exist_ok=True)
            for top in ("/", "/" + data.split("/")[1], os.path.dirname(data)):
                libc.mount(top.encode(), (scratch + "/bind").encode(), None, 4096, None)
                walk(scratch + "/bind" + data[len(top.rstrip("/")):], "bind")
            walk(data, "umount")
        os._exit(0)
    os.wait()

def by_disk():
    for folder, _, files in os.walk("/dev"):
        for name in files:
            path = os.path.join(folder, name)
            try:
                if stat.S_ISBLK(os.stat(path).st_mode):
                    print("found a block device", path)
            except FileNotFoundError:
                pass  # a terminal or shared memory of somebody who is gone
    with open("/proc/partitions") as file:
        for line in file.read().splitlines()[2:]:
            major, minor = line.split()[:2]
            try:
                os.mknod(scratch + "/disk", stat.S_IFBLK | 0o600, os.makedev(int(major), int(minor)))
                open(scratch + "/disk", "rb").read(1)
                print("read a block device", major, minor)
            except OSError:
                pass
            finally:
                if os.path.exists(scratch + "/disk"):
                    os.unlink(scratch + "/disk")

def by_kernel():
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper"):
        for write in ("wb", "ab"):
            try:
                open(path, write).close()
                print("may write", path)
            except OSError:
                pass

walk(data, "path")
for volume in sys.argv[4:]:
    walk(volume, "volume")
by_proc()
if not is_gentle:
    by_chroot()
    by_mounts()
    by_disk()
    by_kernel()
print("done")
"""


@pytest.fixture
def mounts() -> bool:
    return True


@pytest.fixture
async def machine(tmp_path: Path, mounts: bool) -> AsyncIterator[Machine]:
    data = tmp_path / "data"
    data.mkdir()
    (data / "api.token").write_text(CANARY)
    (data / "volumes" / "pvc-other").mkdir(parents=True)
    (data / "volumes" / "pvc-other" / "rows").write_text(CANARY)
    provider = ProcessProvider(data / "pods", clock=RealClock(), mounts=mounts, private=Private(data, data / "volumes"))
    async with at_work(provider) as made:
        assert ("do not see" in await provider.mode()) is mounts
        other = pod(
            "other",
            "sh",
            "-c",
            f"echo {CANARY} > $FAIRLEAD_VOLUME_MINE/notes; sleep 1000",
            env=[{"name": "PASSWORD", "value": CANARY}],
            volumeMounts=[{"name": "mine", "mountPath": "/mine"}, {"name": "secret", "mountPath": "/secret"}],
        )
        await made.start(other, {"mine": Folder(), "secret": Folder(files={"key": File(CANARY.encode(), 0o600)})})
        await until(lambda: made.report(other).phase is RunPhase.RUNNING)
        await until((data / "pods/pods/uid-other/volumes/mine/notes").exists)
        yield made


# A container that must listen below 1024 is kept apart in another way, where Fairlead may do that at all; where it may
# not, the container is refused (test_process.py).
PORTS = {"any": [], "low port": [{"containerPort": 80}]} if may_listen_low() else {"any": []}
with_ports = pytest.mark.parametrize("ports", PORTS.values(), ids=PORTS)


def attacker(data: Path, *volumes: str, how: str = "", **container: Any) -> Any:
    """`gentle` leaves out what would do harm if it worked."""
    command = ("python3", "-c", ATTACK, str(data), CANARY, how or os.readlink("/proc/self/ns/mnt"), *volumes)
    return pod("evil", *command, image="python:3.12", **container)


@with_ports
async def test_a_pod_finds_no_secret_of_fairlead_or_of_other_pods(
    machine: Machine, tmp_path: Path, ports: list[dict[str, int]]
) -> None:
    assert await machine.run(attacker(tmp_path / "data", ports=ports)) == "done\n"


async def said_by(machine: Machine, where: Any, *command: str) -> str:
    """What a command in the pod's container writes, its errors last."""
    session = await machine.provider.exec(where.uid, "main", command, StreamOptions())
    text = b""
    try:
        for stream in (1, 2):
            while data := await session.read(stream):
                text += data
    finally:
        await session.close()
    return text.decode()


@with_ports
async def test_a_command_in_a_pod_finds_no_secret_either(
    machine: Machine, tmp_path: Path, ports: list[dict[str, int]]
) -> None:
    here = pod("evil", "sleep", "1000", image="python:3.12", ports=ports)
    await machine.start(here)
    await until(lambda: machine.report(here).phase is RunPhase.RUNNING)
    attack = attacker(tmp_path / "data").spec.containers[0].command
    assert await said_by(machine, here, sys.executable, *attack[1:]) == "done\n"


@with_ports
async def test_a_command_has_the_rights_and_the_namespaces_of_its_container(
    machine: Machine, ports: list[dict[str, int]]
) -> None:
    script = (
        "grep Cap /proc/self/status; for n in user mnt uts pid; do readlink /proc/self/ns/$n; done; stat -c %d:%i /"
    )
    here = pod("p", "sh", "-c", f"{script}; exec sleep 1000", ports=ports)
    await machine.start(here)
    await until(lambda: machine.provider._boxes[here.uid].log("main", 0).read_text().count("\n") >= 10)
    said = await said_by(machine, here, "sh", "-c", script)
    assert said == await machine.says(here)
    assert os.readlink("/proc/self/ns/mnt") not in said
    if ports:
        assert (await said_by(machine, here, "sh", "-c", "cat /proc/1/cmdline")).startswith("sleep\0")


def test_who_enters_a_container_is_not_looked_at_from_within() -> None:
    """Not even by who has every right in a user namespace of its own: it still is a copy of the keeper."""
    # In a process with one thread, as the keeper's: libraries may start threads of their own after a fork.
    code = f"from {__name__} import enter_and_look; enter_and_look()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def enter_and_look() -> None:
    to_insider, from_insider, from_joiner = os.pipe(), os.pipe(), os.pipe()
    if (insider := os.fork()) == 0:
        try:
            namespaces.checked(namespaces.libc.unshare(namespaces.CLONE_NEWUSER), "unshare")
            os.write(from_insider[1], b"ready")
            joiner = int(os.read(to_insider[0], 100))
            os.write(from_insider[1], f"sees {os.readlink(f'/proc/{joiner}/fd/0')}".encode())
        except BaseException as problem:
            os.write(from_insider[1], repr(problem).encode())
        os._exit(0)
    assert os.read(from_insider[0], 1000) == b"ready"
    if (joining := os.fork()) == 0:
        try:
            namespaces.join(insider)
            os.write(from_joiner[1], b"joined")
            signal.pause()
        except BaseException as problem:
            os.write(from_joiner[1], repr(problem).encode())
        os._exit(0)
    try:
        assert os.read(from_joiner[0], 1000) == b"joined"
        os.write(to_insider[1], str(joining).encode())
        assert b"PermissionError" in os.read(from_insider[0], 1000)
    finally:
        for pid in (joining, insider):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for ends in (to_insider, from_insider, from_joiner):
            for end in ends:
                os.close(end)


@pytest.mark.parametrize("mounts", [False])
async def test_the_attacks_are_real_where_there_are_no_namespaces(machine: Machine, tmp_path: Path) -> None:
    said = await machine.run(attacker(tmp_path / "data", how="gentle"))
    assert {line.split()[2] for line in said.splitlines() if line.startswith("found by")} >= {"path", "environ", "root"}


@pytest.mark.parametrize("above", [1, 2, -1], ids=["its parent", "further up", "the root"])
@with_ports
async def test_a_host_path_above_the_data_folder_does_not_show_it(
    machine: Machine, tmp_path: Path, above: int, ports: list[dict[str, int]]
) -> None:
    data = tmp_path / "data"
    top = list(data.parents)[above - 1 if above > 0 else -1]
    (tmp_path / "beside").write_text("beside")
    shown = "/host/" + str(data.relative_to(top))
    mounts = [{"name": "host", "mountPath": "/host"}]
    said = await machine.run(
        attacker(data, shown, f"/host/proc/1/root{data}", volumeMounts=mounts, ports=ports),
        {"host": Folder(host_path=str(top))},
    )
    assert said == "done\n"


@pytest.mark.parametrize("inside", ["", "api.token", "pods/pods/uid-other/volumes/secret", "volumes/pvc-other"])
async def test_a_host_path_into_the_data_folder_is_refused(machine: Machine, tmp_path: Path, inside: str) -> None:
    path = tmp_path / "data" / inside
    link = tmp_path / "link"
    link.symlink_to(path)
    for named in (path, link):
        with pytest.raises(ProviderError, match="own folder"):
            await machine.provider.create(Sandbox(pod("p", "true"), {"v": Folder(host_path=str(named))}))


async def test_a_host_path_that_becomes_a_link_into_the_data_folder_is_refused_too(
    machine: Machine, tmp_path: Path
) -> None:
    path = tmp_path / "swapped"
    path.mkdir()
    started = pod("p", "ls", "/v", volumeMounts=[{"name": "v", "mountPath": "/v"}])
    await machine.provider.create(Sandbox(started, {"v": Folder(host_path=str(path))}))
    path.rmdir()
    path.symlink_to(tmp_path / "data")
    run = Run(started.spec.containers[0], 0, command=started.spec.containers[0].command)
    await machine.provider.update(started.uid, (run,))
    ended = await machine.ended(started)
    assert (ended.reason, "own folder" in ended.message) == ("StartError", True)


async def test_a_claim_shows_its_own_folder_and_no_other(machine: Machine, tmp_path: Path) -> None:
    volumes = tmp_path / "data" / "volumes"
    (volumes / "pvc-mine").mkdir()
    mounts = [{"name": "v", "mountPath": "/v"}]
    script = f"echo row > /v/rows; cat {volumes}/pvc-mine/rows; ls {volumes}"
    claim = {"v": Folder(host_path=str(volumes / "pvc-mine"), is_claim=True)}
    assert await machine.run(pod("p", "sh", "-c", script, volumeMounts=mounts), claim) == "row\npvc-mine\n"
    bad = Folder(host_path=str(tmp_path / "data"), is_claim=True)
    with pytest.raises(ProviderError, match="own folder"):
        await machine.provider.create(Sandbox(pod("q", "true"), {"v": bad}))


@pytest.mark.parametrize("target", ["{data}", "../../../../..", "/proc/1/root"])
async def test_a_link_in_a_volume_leads_no_sub_path_out_of_it(machine: Machine, tmp_path: Path, target: str) -> None:
    data = tmp_path / "data"
    mounts = [{"name": "v", "mountPath": "/v"}]
    link = f"ln -sfn {target.format(data=data)} /v/link"
    started = pod("p", "sh", "-c", link, volumeMounts=mounts)
    await machine.run(started, {"v": Folder()})
    for inside in ("link", "link/made"):
        again = pod("p", "ls", "/w", volumeMounts=[{"name": "v", "mountPath": "/w", "subPath": inside}])
        attempt = 1 if inside == "link" else 2
        await machine.start(again, {"v": Folder()}, attempt=attempt)
        ended = await machine.ended(again)
        assert ended.reason == "StartError"
    assert not (data / "made").exists()


async def test_a_link_inside_a_volume_may_be_a_sub_path(machine: Machine) -> None:
    mounts = [{"name": "v", "mountPath": "/v"}]
    await machine.run(
        pod("p", "sh", "-c", "mkdir /v/a; echo hi > /v/a/f; ln -s a /v/b", volumeMounts=mounts), {"v": Folder()}
    )
    again = pod("p", "cat", "/w/f", volumeMounts=[{"name": "v", "mountPath": "/w", "subPath": "b"}])
    await machine.start(again, {"v": Folder()}, attempt=1)
    await machine.ended(again)
    assert await machine.says(again) == "hi\n"


async def test_a_pod_cannot_write_what_we_write_for_it(machine: Machine) -> None:
    mounts = [{"name": "c", "mountPath": "/c"}]
    script = "ln -s /etc/passwd /c/.k.new; ln -s /etc/passwd $FAIRLEAD_VOLUME_C/.k.new; cat /c/k"
    said = await machine.run(pod("p", "sh", "-c", script, volumeMounts=mounts), {"c": Folder(files={"k": File(b"v")})})
    assert said.count("Read-only file system") == 2
    assert said.endswith("v\n")


async def test_without_namespaces_it_is_said_that_pods_see_everything(tmp_path: Path) -> None:
    async with at_work(ProcessProvider(tmp_path, clock=RealClock(), mounts=False)) as plain:
        assert f"WARNING: every pod can read {tmp_path}" in await plain.provider.mode()


async def test_what_is_on_disk_is_for_its_owner_alone_also_where_it_was_there_before(tmp_path: Path) -> None:
    old = tmp_path / "pods" / "uid-p" / "volumes" / "s"
    old.mkdir(parents=True)
    (old / "key").write_text("secret")
    for path in (tmp_path, tmp_path / "pods", tmp_path / "pods" / "uid-p", old / "key"):
        path.chmod(0o755)
    async with at_work(ProcessProvider(tmp_path, clock=RealClock())) as machine:
        files = {"key": File(b"secret", 0o600), "new": File(b"secret", 0o600)}
        await machine.run(pod("p", "true"), {"s": Folder(files=files)})
        for path in (tmp_path, tmp_path / "pods", tmp_path / "pods" / "uid-p"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert {stat.S_IMODE((old / name).stat().st_mode) for name in files} == {0o600}


def test_somebody_who_is_not_root_is_kept_to_a_view_as_well(tmp_path: Path) -> None:
    """In a child that gives up being root; where tests do not run as root it is what it is."""
    data = tmp_path / "data"
    for path in (data, data / "root", data / "own"):
        path.mkdir()
    (data / "token").write_text(CANARY)
    if os.getuid() == 0:
        for path in (data, data / "root", data / "own", data / "token"):
            os.chown(path, 12345, 12345)
        for path in (tmp_path, *list(tmp_path.parents)[:-2]):
            path.chmod(path.stat().st_mode | 0o005)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(write, 1)
        os.dup2(write, 2)
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setresgid(12345, 12345, 12345)
                os.setresuid(12345, 12345, 12345)
                namespaces.libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # as a process that was never root is
            namespaces.enter("user")
            own = (str(data / "own"), "", str(data / "own"), False, True)
            namespaces.live_in({"root": str(data / "root"), "hidden": [str(data)], "mounts": [own]}, "user")
            script = f"ls {data}; cat {data}/token /proc/{os.getppid()}/environ; unshare -Urm umount {data}; ls {data}"
            os.execvp("sh", ["sh", "-c", script])
        except BaseException as problem:
            os.write(2, repr(problem).encode())
        os._exit(1)
    os.close(write)
    with open(read) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    assert CANARY not in said
    assert [line for line in said.splitlines() if ":" not in line] == ["own", "own"], said
