"""What starting costs: the CEL library brings a command line, which is not imported with it."""

import subprocess
import sys

PROGRAM = """
import sys
from fairlead.apiserver.cel import rules
print(sorted({"prompt_toolkit", "typer", "rich"} & set(sys.modules)), rules.cel.evaluate("1 + 1"))
import cel.cli
print(cel.cli.__name__, "prompt_toolkit" in sys.modules)
"""


def test_the_librarys_command_line_is_imported_only_by_who_asks_for_it() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, timeout=60)
    assert found.stdout.splitlines() == ["[] 2", "cel.cli True"]
