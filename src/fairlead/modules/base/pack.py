"""Packs a folder of Python files into a module: `python -m fairlead.modules.base.pack FOLDER -o hello-1.0.zip …`."""

import argparse
import sys
import zipfile
from pathlib import Path


def pack(
    folder: Path, target: Path, *, name: str, version: str, entry: str, context_path: str = "", isolation: str = ""
) -> Path:
    """A zip of the folder with a manifest; bytes depend on nothing but the files and the arguments."""
    manifest = f"Ark-Biz-Name: {name}\nArk-Biz-Version: {version}\nStart-Class: {entry}\n"
    if context_path:
        manifest += f"web-context-path: {context_path}\n"
    if isolation:
        manifest += f"Isolation: {isolation}\n"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF"), manifest)
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                zipped.writestr(zipfile.ZipInfo(path.relative_to(folder).as_posix()), path.read_bytes())
    return target


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m fairlead.modules.base.pack", description="Pack a Python module.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--entry", required=True, help="package.module:object")
    parser.add_argument("--context-path", default="", help="where a web module is mounted, such as /hello")
    parser.add_argument("--isolation", default="", choices=["", "process", "inproc"], help="process by default")
    given = parser.parse_args(arguments)
    path = pack(
        given.folder,
        given.output,
        name=given.name,
        version=given.version,
        entry=given.entry,
        context_path=given.context_path,
        isolation=given.isolation,
    )
    print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
