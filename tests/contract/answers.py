"""The real server's answers to the stories, kept in answers/, so that either server can be judged without the other.

One file for each topic, one line for each story: its title, a digest of its steps, and the answers in the form in
which they are compared, without what is volatile. `python -m tests.contract.record` writes them.
"""

import gzip
import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.contract.stories import COMPARED, Story, differences

FOLDER: Final = Path(__file__).parent / "answers"
SUFFIX: Final = ".jsonl.gz"
COMMAND: Final = "python -m tests.contract.record"


@dataclass(frozen=True, slots=True)
class Record:
    title: str
    steps: str
    """A digest of what the story asks."""
    answers: list[dict[str, Any]]


def record_of(story: Story, answers: Iterable[dict[str, Any]]) -> Record:
    digest = hashlib.sha256(_json(story.steps).encode()).hexdigest()[:16]
    return Record(story.title, digest, [{key: each[key] for key in COMPARED} for each in answers])


def write(topic: str, records: Iterable[Record], folder: Path = FOLDER) -> None:
    """The same records make the same bytes."""
    text = "".join(_json(asdict(each)) + "\n" for each in records)
    (folder / f"{topic}{SUFFIX}").write_bytes(gzip.compress(text.encode(), mtime=0))


@cache
def read(topic: str, folder: Path = FOLDER) -> dict[str, Record]:
    """The records of a topic by title; none where there is no such file."""
    file = folder / f"{topic}{SUFFIX}"
    if not file.exists():
        return {}
    records = [Record(**json.loads(line)) for line in gzip.decompress(file.read_bytes()).decode().split("\n") if line]
    return {each.title: each for each in records}


def topics(folder: Path = FOLDER) -> set[str]:
    return {file.name.removesuffix(SUFFIX) for file in folder.glob(f"*{SUFFIX}")}


def problem(story: Story, answers: list[dict[str, Any]], server: str, folder: Path = FOLDER) -> str:
    """How a server's answers differ from what is recorded, and what to do; "" where they do not."""
    record = read(story.topic, folder).get(story.title)
    if record is None:
        return f"no answers are recorded for this story: run {COMMAND} {story.topic}"
    if record.steps != record_of(story, ()).steps:
        return f"the story has changed since its answers were recorded: run {COMMAND} {story.topic}"
    return differences(record.answers, answers, server)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
