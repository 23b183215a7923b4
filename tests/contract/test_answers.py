"""What is recorded of a server: the same bytes each time, and a judge that finds what differs."""

from pathlib import Path
from typing import Any

from tests.contract import answers
from tests.contract.stories import Story

STORY = Story("crud", "a config map is read", ({"do": "GET $core/configmaps/one"},))


def answer(body: Any, status: int = 200) -> dict[str, Any]:
    return {"request": "GET /one", "sent": "", "status": status, "headers": {}, "body": body}


def test_the_same_records_make_the_same_bytes_and_are_read_as_written(tmp_path: Path) -> None:
    written = []
    for name, body in (("one", {"a": "ä\u2028", "b": None}), ("two", {"b": None, "a": "ä\u2028"})):
        folder = tmp_path / name
        folder.mkdir()
        answers.write("crud", [answers.record_of(STORY, [answer(body)])], folder)
        written.append((folder / "crud.jsonl.gz").read_bytes())
        assert answers.read("crud", folder) == {STORY.title: answers.record_of(STORY, [answer(body)])}
    assert written[0] == written[1]


def test_what_differs_from_the_record_is_shown(tmp_path: Path) -> None:
    answers.write("crud", [answers.record_of(STORY, [answer({"data": "1"})])], tmp_path)
    assert answers.problem(STORY, [answer({"data": "1"})], "embedded", tmp_path) == ""
    problem = answers.problem(STORY, [answer({"data": "2"}, 404)], "embedded", tmp_path)
    assert problem.startswith("1. GET /one\n")
    assert '-  "data": "1"\n+  "data": "2"' in problem
    assert "+++ embedded" in problem


def test_a_story_without_a_record_names_the_command_that_makes_one(tmp_path: Path) -> None:
    problem = answers.problem(STORY, [answer({})], "embedded", tmp_path)
    assert problem == "no answers are recorded for this story: run python -m tests.contract.record crud"


def test_a_record_of_other_steps_does_not_count(tmp_path: Path) -> None:
    answers.write("crud", [answers.record_of(STORY, [answer({})])], tmp_path)
    changed = Story(STORY.topic, STORY.title, ({"do": "GET $core/configmaps/two"},))
    problem = answers.problem(changed, [answer({})], "embedded", tmp_path)
    assert problem.startswith("the story has changed since its answers were recorded: ")
