"""The manifests of Koupleless's pages and of its design, with artefacts that a Python base can run."""

from pathlib import Path

from fairlead.modules.base.pack import pack

FOLDER = Path(__file__).parents[1] / "journeys" / "koupleless"
BIZ = """
import os, sys
def main(context):
    print("biz", context["args"], os.environ.get("WHERE", ""))
"""
MODULES = (*((f"biz{number}", "0.0.1") for number in range(1, 7)), ("module0", "0.1.0"), ("module1", "0.1.0"))
NAMESPACE = "demo"


def pack_modules(source: Path, artefacts: Path) -> None:
    source.mkdir()
    artefacts.mkdir(exist_ok=True)
    (source / "biz.py").write_text(BIZ)
    for name, version in MODULES:
        pack(source, artefacts / f"{name}-{version}.zip", name=name, version=version, entry="biz:main")


def manifests(url: str) -> str:
    """`url`: where the artefacts are."""
    seed = (FOLDER / "seed.yaml").read_text().replace("STACK", "python")
    # The bases of the demo are small.
    seed = seed.replace("MEMORY", "16Mi").replace("800m", "400m")
    seed = seed.replace("metadata:\n", f"metadata:\n  namespace: {NAMESPACE}\n", 1)
    return f"{(FOLDER / 'modules.yaml').read_text()}---\n{seed}".replace("ARTEFACTS", url)
