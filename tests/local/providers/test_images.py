"""The image table: what an image name runs where there are no images."""

import sys
from collections.abc import Callable

import msgspec
import pytest

from fairlead.local.providers.images import IMAGES, NoSuchImage, command_line, find_image
from fairlead.nodes.spec import Container
from tests.house.rules import ROOT


def has(*programs: str) -> Callable[[str], str | None]:
    found = {program.rpartition("/")[2]: program for program in programs}
    return lambda name: name if name in programs else (found.get(name) if "/" not in name else None)


HOST = has("/bin/sh", "/bin/sleep", "/usr/bin/python3")


def line(
    image: str, *command: str, args: tuple[str, ...] | None = None, which: Callable[[str], str | None] = HOST
) -> list[str]:
    container = msgspec.convert({"name": "c", "image": image}, Container)
    return command_line(container, command or None, args, which=which)


@pytest.mark.parametrize(
    "name",
    ["python", "python:3.12-slim", "docker.io/library/python:3", "localhost:5000/python", "python@sha256:00"],
)
def test_registry_tag_and_digest_do_not_matter(name: str) -> None:
    assert find_image(name) is IMAGES["python"]


def test_python_images_are_this_interpreter() -> None:
    assert line("python:3.12", "python", "-m", "http.server") == [sys.executable, "-m", "http.server"]
    assert line("python:3.12", args=("python3", "x.py")) == [sys.executable, "x.py"]
    assert line("python:3.12") == [sys.executable]


def test_a_command_is_run_as_it_is_whatever_the_image() -> None:
    assert line("example.com/shop", "/bin/sleep", "1", args=("2",)) == ["/bin/sleep", "1", "2"]


def test_busybox_commands_are_the_hosts_or_busyboxs() -> None:
    assert line("busybox", "sleep", "5") == ["sleep", "5"]
    assert line("busybox", "/usr/bin/sleep", "5") == ["/bin/sleep", "5"]
    assert line("busybox", "nc", "-l", which=has("/bin/busybox")) == ["/bin/busybox", "nc", "-l"]
    assert line("busybox", args=("sh", "-c", "true")) == ["sh", "-c", "true"]


def test_an_unknown_image_without_a_command_says_what_to_do() -> None:
    with pytest.raises(NoSuchImage, match="give it a `command`"):
        line("nginx:1.29", args=("-g", "daemon off;"))


def test_modules_that_are_to_come_are_said_to_be_missing() -> None:
    container = msgspec.convert({"name": "c", "image": "example.com/fairlead/agent:1"}, Container)
    IMAGES["test/to-come"] = IMAGES["fairlead/agent"].__class__(entrypoint=("x",), module="fairlead.no_such.module")
    try:
        with pytest.raises(NoSuchImage, match="does not have yet"):
            line("test/to-come")
    finally:
        del IMAGES["test/to-come"]
    assert find_image(container.image) is IMAGES["fairlead/agent"]


def test_every_image_is_documented() -> None:
    page = (ROOT / "docs" / "images.md").read_text()
    assert [name for name in IMAGES if f"`{name}`" not in page] == []
