"""The image table: which program an image name stands for where there are no images.

Used by the process provider; docs/images.md is for users. A container's `command` and `args` mean what they mean on
Kubernetes: they replace the image's entry point and its arguments.
"""

import importlib.util
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fairlead.nodes.spec import Container


@dataclass(frozen=True, slots=True)
class Image:
    """What an image would bring along: its entry point, its default arguments, and how its programs are found."""

    entrypoint: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    module: str = ""
    """A module of ours that the entry point runs; it may be missing from this version."""


class NoSuchImage(Exception):
    """There is nothing to run; the message says what to do."""


def _ours(module: str) -> Image:
    return Image(entrypoint=(sys.executable, "-m", module), module=module)


_SHELLS: Final = Image(arguments=("sh",))

IMAGES: Final[dict[str, Image]] = {
    "fairlead/agent": _ours("fairlead.tasks.agent"),
    "fairlead/base": _ours("fairlead.modules.base"),
    "python": Image(arguments=("python3",)),
    "pause": Image(entrypoint=("sleep", "infinity")),
    "busybox": _SHELLS,
    "alpine": _SHELLS,
    "debian": _SHELLS,
    "ubuntu": _SHELLS,
    "bash": Image(arguments=("bash",)),
}
"""By the last part of the name, or the last two where that says more; registry, tag and digest do not matter."""

_PYTHON: Final = re.compile(r"python(3(\.\d+)?)?")


def find_image(name: str) -> Image | None:
    bare = name.partition("@")[0]
    path, colon, tag = bare.rpartition(":")
    if colon and "/" not in tag:
        bare = path
    parts = bare.split("/")
    return IMAGES.get("/".join(parts[-2:])) or IMAGES.get(parts[-1])


def command_line(
    container: Container,
    command: tuple[str, ...] | None,
    args: tuple[str, ...] | None,
    *,
    which: Callable[[str], str | None] = shutil.which,
) -> list[str]:
    """What to execute for a container whose references have been filled in."""
    image = find_image(container.image)
    if command:
        words = [*command, *(args or ())]
    elif image is None:
        raise NoSuchImage(
            f"image {container.image!r} is not in the image table and the container has no `command`: on a process "
            "node containers are local programs, so give it a `command`, or use one of " + ", ".join(sorted(IMAGES))
        )
    else:
        if image.module and not _is_there(image.module):
            raise NoSuchImage(
                f"image {container.image!r} runs `python -m {image.module}`, which this version of Fairlead does not "
                "have yet; give the container a `command`, or use a version that has it"
            )
        words = [*image.entrypoint, *(args or image.arguments)]
    if not words:
        raise NoSuchImage(f"image {container.image!r} has no command of its own; give the container a `command`")
    return _program(words, image, which)


def _program(words: list[str], image: Image | None, which: Callable[[str], str | None]) -> list[str]:
    """The first word as a program of this machine."""
    program = words[0]
    name = program.rpartition("/")[2]
    if _PYTHON.fullmatch(name) and (image is IMAGES["python"] or which(program) is None):
        return [sys.executable, *words[1:]]
    if image is _SHELLS and which(program) is None:
        # The image has it at another place, or as a part of busybox.
        if (elsewhere := which(name)) is not None:
            return [elsewhere, *words[1:]]
        if (busybox := which("busybox")) is not None:
            return [busybox, name, *words[1:]]
    return words


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
