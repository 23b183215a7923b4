"""Reading logs as container runtimes write them."""

from pathlib import Path

import pytest

from fairlead.nodes.logs import read_log
from fairlead.nodes.provider import LogOptions
from fairlead.testing.clock import ManualClock
from tests.nodes.kit import at


def line(text: str, second: int = 0, tag: str = "F") -> str:
    return f"2026-01-01T00:00:{second:02}.000000000Z stdout {tag} {text}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "0.log"


async def read(path: Path, **options: object) -> str:
    asked = LogOptions(**options)  # type: ignore[arg-type]
    return b"".join([part async for part in read_log(path, asked, clock=ManualClock(), is_live=lambda: False)]).decode()


async def test_parts_are_joined(path: Path) -> None:
    path.write_text(line("one ", tag="P") + line("line") + line("two"))
    assert await read(path) == "one line\ntwo\n"


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, ""), (1, "e\n"), (2, "d\ne\n"), (3, "c\nd\ne\n"), (5, "a\nb\nc\nd\ne\n"), (9, "a\nb\nc\nd\ne\n")],
)
async def test_the_tail_reaches_into_the_older_part(path: Path, count: int, expected: str) -> None:
    path.with_name("0.log.1").write_text(line("a") + line("b") + line("c"))
    path.write_text(line("d") + line("e"))
    assert await read(path, tail_lines=count) == expected


async def test_the_tail_of_a_long_log_is_found_from_its_end(path: Path) -> None:
    path.write_text("".join(line(f"{number} {'x' * 100}") for number in range(5000)))
    assert [text.split()[0] for text in (await read(path, tail_lines=3)).splitlines()] == ["4997", "4998", "4999"]


async def test_since_leaves_out_what_came_before(path: Path) -> None:
    path.write_text(line("old", 1) + line("new", 9))
    assert await read(path, since=at(5)) == "new\n"


async def test_a_log_that_is_not_there_is_empty(path: Path) -> None:
    assert await read(path) == ""
    assert await read(path, tail_lines=5) == ""


async def test_the_limit_counts_bytes(path: Path) -> None:
    path.write_text(line("abc") + line("def"))
    assert await read(path, limit_bytes=5) == "abc\nd"
