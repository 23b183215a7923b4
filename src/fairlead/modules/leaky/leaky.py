"""A module that leaks on purpose, to see a base healed: each install leaves 192 MiB behind that no uninstall frees.

Packed by `fairlead up --demo` as an inproc module (`artefacts/leaky-1.0.0.zip`), and installed by nobody.
"""

import sys
from typing import Any

LEAKED_BYTES = 192 << 20


def main(context: dict[str, Any]) -> None:
    """Keep memory where nothing of the module is looked for."""
    kept: list[bytearray] = sys.__dict__.setdefault("_kept_by_leaky", [])
    kept.append(bytearray(b"x") * LEAKED_BYTES)
    print(f"{context['name']} {context['version']} keeps {LEAKED_BYTES >> 20} MiB")
