"""The CEL library without its command line, which nothing here uses and which takes longer to import than the rest.

The package imports `cel.cli` with itself, and that prompt_toolkit, typer and rich: a fifth of what `fairlead up` needs
to start. An empty module takes its place meanwhile.
"""

import sys
from types import ModuleType

_stub = ModuleType("cel.cli")
sys.modules.setdefault("cel.cli", _stub)

import cel as cel  # noqa: E402 after its place is taken

if sys.modules["cel.cli"] is _stub:
    del sys.modules["cel.cli"]
