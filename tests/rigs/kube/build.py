"""Builds the real Kubernetes programs once into a cache outside the checkout.

Called by scripts/test and by the rig's fixtures; run by hand it prints the folder of the programs.
Must never download a toolchain or a prebuilt binary: everything comes through the Go module proxy.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
KUBERNETES: Final = "1.36.4"
PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
VERSION_PACKAGE: Final = "k8s.io/component-base/version"
Say = Callable[[str], object]


class RigUnavailable(Exception):
    """The programs cannot be built here; the message says what is missing and how to get it."""


def linker_flags() -> str:
    # Without these the server calls itself v0.0.0-master+$Format:%H$ and `kubectl version` cannot parse it.
    major, minor, _ = KUBERNETES.split(".")
    stamps = {
        "gitVersion": f"v{KUBERNETES}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitCommit": "unknown",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    return " ".join(["-s", "-w", *(f"-X {VERSION_PACKAGE}.{name}={value}" for name, value in stamps.items())])


def programs_dir() -> Path:
    """Where the programs for exactly these sources and flags live, built or not."""
    recipe = hashlib.sha256()
    for part in (HERE / "go.mod", HERE / "go.sum"):
        recipe.update(part.read_bytes())
    recipe.update(linker_flags().encode())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "fairlead" / f"kube-{KUBERNETES}-{recipe.hexdigest()[:12]}"


def ensure_built(say: Say = print) -> Path:
    """The folder that holds all five programs, building them first where needed (about 13 minutes, once)."""
    home = programs_dir()
    if all((home / name).exists() for name in PROGRAMS):
        return home
    go = shutil.which("go")
    if go is None:
        raise RigUnavailable(
            "the tests need a real kube-apiserver and building it needs Go 1.26 or newer: "
            "install it (for example from your system's packages) or pass --no-kube"
        )
    say(f"building Kubernetes {KUBERNETES} and etcd once into {home} (some 13 minutes on 2 cores)")
    staging = home.with_name(f"{home.name}.building-{os.getpid()}")
    staging.mkdir(parents=True, exist_ok=True)
    try:
        run_build(go, staging, say)
        (staging / "server").rename(staging / "etcd")
        # One rename makes the folder appear whole; a racing builder's identical result is as good as ours.
        try:
            staging.rename(home)
        except OSError:
            if not all((home / name).exists() for name in PROGRAMS):
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    say("Kubernetes is built; later runs start it in seconds")
    return home


def run_build(go: str, into: Path, say: Say, *, source: Path = HERE, flags: str = "", name: str = "Kubernetes") -> None:
    """Builds the tools of the Go module in `source`."""
    command = [go, "build", "-v", "-trimpath", "-ldflags", flags or linker_flags(), "-o", f"{into}/", "tool"]
    # An older go says so instead of fetching a newer one from a host that is no package registry.
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
    started_at, said_at, built = time.monotonic(), time.monotonic(), 0
    tail: list[str] = []
    with subprocess.Popen(
        command, cwd=source, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            built += 1
            tail = [*tail[-19:], line.rstrip()]
            if time.monotonic() - said_at > 20:
                said_at = time.monotonic()
                say(f"  {said_at - started_at:4.0f} s: {built} packages, now {tail[-1]}")
    if process.returncode != 0:
        raise RigUnavailable(f"building {name} failed; the last lines were:\n" + "\n".join(tail))


if __name__ == "__main__":
    try:
        print(ensure_built(lambda text: print(text, file=sys.stderr, flush=True)))
    except RigUnavailable as problem:
        sys.exit(str(problem))
