"""Builds Volcano once into a cache outside the checkout, for `scripts/bench gang --peers`."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.rigs.kube.build import RigUnavailable, Say, run_build

HERE: Final = Path(__file__).resolve().parent
VERSION: Final = "1.14.1"
PROGRAMS: Final = ("scheduler", "controller-manager", "webhook-manager")
MODULE: Final = "volcano.sh/volcano"
FLAGS: Final = "-s -w"
CRDS: Final = "definitions"


def programs_dir() -> Path:
    recipe = hashlib.sha256()
    for part in (HERE / "go.mod", HERE / "go.sum"):
        recipe.update(part.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "fairlead" / f"volcano-{VERSION}-{recipe.hexdigest()[:12]}"


def ensure_built(say: Say = print) -> Path:
    """The folder that holds its programs and, in `definitions`, its kinds; built first where needed (8 minutes)."""
    home = programs_dir()
    if all((home / name).exists() for name in (*PROGRAMS, CRDS)):
        return home
    go = shutil.which("go")
    if go is None:
        raise RigUnavailable("building Volcano needs Go 1.26 or newer, which is not on the PATH")
    say(f"building Volcano {VERSION} once into {home} (some 8 minutes on 2 cores)")
    staging = home.with_name(f"{home.name}.building-{os.getpid()}")
    staging.mkdir(parents=True, exist_ok=True)
    try:
        run_build(go, staging, say, source=HERE, flags=FLAGS, name="Volcano")
        found = subprocess.run(
            [go, "list", "-m", "-f", "{{.Dir}}", MODULE], cwd=HERE, capture_output=True, text=True, check=True
        )
        (staging / CRDS).mkdir()
        for file in (Path(found.stdout.strip()) / "config" / "crd").glob("*/bases/*.yaml"):
            shutil.copyfile(file, staging / CRDS / file.name)
        shutil.rmtree(home, ignore_errors=True)
        staging.rename(home)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return home


if __name__ == "__main__":
    try:
        print(ensure_built(lambda text: print(text, file=sys.stderr, flush=True)))
    except RigUnavailable as problem:
        sys.exit(str(problem))
