"""The floors hold: import-linter finds nothing in this checkout, and finds each offence it is there for."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.app import CAPABILITIES
from tests.house.rules import ROOT

LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINT_IMPORTS, "--no-cache", "--no-logo"],
        cwd=folder,
        env={**os.environ, "COLUMNS": "500"},  # it breaks lines at the edge of the terminal
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )


def imported(file: Path) -> set[str]:
    """The modules of Fairlead that a file imports."""
    found = set()
    for each in ast.walk(ast.parse(file.read_text())):
        if isinstance(each, ast.ImportFrom):
            found.add(each.module or "")
        elif isinstance(each, ast.Import):
            found |= {alias.name for alias in each.names}
    return {name for name in found if name.partition(".")[0] == "fairlead"}


def test_the_api_server_imports_a_clock_quantities_and_the_version_alone(tmp_path: Path) -> None:
    # Import-linter has a list of what is forbidden, which a new module is not on; this is the list of what is not.
    files = (ROOT / "src" / "fairlead" / "apiserver").rglob("*.py")
    others = {name for file in files for name in imported(file) if not name.startswith("fairlead.apiserver")}
    assert others == {
        "fairlead",
        "fairlead.cluster.clock",
        "fairlead.cluster.connector",
        "fairlead.model.qos",
        "fairlead.model.quantity",
    }
    (tmp_path / "a.py").write_text("import os, fairlead.app\nfrom fairlead.model import pod\n")
    assert imported(tmp_path / "a.py") == {"fairlead.app", "fairlead.model"}


IMPURE = {
    "asyncio",
    "aiohttp",
    "httpx",
    "socket",
    "threading",
    "subprocess",
    "time",
    "random",
    "fairlead.cluster.client",
}


def impure(file: Path) -> list[str]:
    """What a plan imports that waits, sends, or reads a clock; of our own, what `cluster` has but its plain values."""
    tree = ast.walk(ast.parse(file.read_text()))
    names = {
        name
        for each in tree
        if isinstance(each, ast.Import | ast.ImportFrom)
        for name in ([each.module or ""] if isinstance(each, ast.ImportFrom) else [alias.name for alias in each.names])
    }
    return sorted(name for name in names if name in IMPURE or name.startswith("fairlead.cluster."))


def test_plans_neither_wait_nor_send_nor_read_a_clock(tmp_path: Path) -> None:
    plans = sorted((ROOT / "src" / "fairlead").rglob("plan.py"))
    assert len(plans) >= 6
    assert {file: problems for file in plans if (problems := impure(file))} == {}
    (tmp_path / "plan.py").write_text("import time, math\nfrom fairlead.cluster.client import Client\n")
    assert impure(tmp_path / "plan.py") == ["fairlead.cluster.client", "time"]


def test_only_the_registry_knows_the_capabilities_by_name() -> None:
    source = ROOT / "src" / "fairlead"
    rooms = {f"fairlead.{folder.parent.name}" for folder in source.glob("*/capability.py")}
    assert len(rooms) == len(CAPABILITIES)
    for file in ("up.py", "lifecycle.py", "serving.py", "webhooks.py", "runtime.py"):
        assert not [name for name in imported(source / file) if ".".join(name.split(".")[:2]) in rooms], file
    assert {name for name in imported(source / "app.py") if ".".join(name.split(".")[:2]) in rooms} == {
        f"{room}.capability" for room in rooms
    }


def test_the_floors_hold() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "offence", "contract"),
    [
        pytest.param("model/meta.py", "import fairlead.cluster", "Floors", id="model knows the runtime"),
        pytest.param("engine/__init__.py", "import fairlead.cluster", "Floors", id="siblings know each other"),
        pytest.param("cluster/__init__.py", "import fairlead.app", "Floors", id="a room knows the composition root"),
        pytest.param("engine/__init__.py", "import asyncio", "The engine is arithmetic", id="the engine waits"),
        pytest.param("engine/__init__.py", "import time", "The engine is arithmetic", id="the engine reads a clock"),
        pytest.param("engine/__init__.py", "import random", "The engine is arithmetic", id="the engine rolls dice"),
        pytest.param("model/meta.py", "import numpy", "The model is nouns", id="model holds arrays"),
        pytest.param("cli/__init__.py", "import aiohttp", "Only the runtime speaks HTTP", id="the CLI speaks HTTP"),
        pytest.param("tasks/__init__.py", "import fairlead.testing", "The testing kit", id="a room uses a fake"),
    ],
)
def test_an_offence_is_found(tmp_path: Path, module: str, offence: str, contract: str) -> None:
    shutil.copytree(ROOT / "src" / "fairlead", tmp_path / "fairlead", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "fairlead" / module).open("a") as file:
        file.write(f"\n{offence}\n")
    done = lint_imports(tmp_path)
    broken = [line for line in done.stdout.splitlines() if line.endswith("BROKEN")]
    assert done.returncode == 1, done.stdout + done.stderr
    assert [line for line in broken if line.startswith(contract)], broken
