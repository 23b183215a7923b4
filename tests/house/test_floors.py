"""The floors hold: import-linter finds nothing in this checkout, and finds each offence it is there for."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
        pytest.param("cluster/__init__.py", "import fairlead.testing", "The testing kit", id="a room uses a fake"),
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
