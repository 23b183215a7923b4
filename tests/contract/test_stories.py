"""The contract: either server answers every story as recorded, so the embedded server answers as the real one does."""

from pathlib import Path

import pytest

from tests.contract import answers
from tests.contract.record import record
from tests.contract.servers import Contestant
from tests.contract.stories import Story, run, told

STORIES = list(told())
every_story = pytest.mark.parametrize("story", STORIES, ids=lambda story: f"{story.topic}: {story.title}")


@every_story
@pytest.mark.xdist_group("stories")  # one server for all of them
def test_the_embedded_server_answers_as_recorded(story: Story, the_embedded: Contestant, hook: dict[str, str]) -> None:
    problem = answers.problem(story, run(story, the_embedded, story.namespace, {"hook": hook}), "embedded")
    assert not problem, f"{story.topic}: {story.title}\n{problem}"


@every_story
def test_the_real_server_answers_as_recorded(story: Story, the_real: Contestant, hook: dict[str, str]) -> None:
    problem = answers.problem(story, run(story, the_real, story.namespace, {"hook": hook}), "real")
    refresh = f"if the recorded answers are out of date, refresh them: {answers.COMMAND} {story.topic}"
    assert not problem, f"{story.topic}: {story.title}\n{problem}\n{refresh}"


def test_every_story_is_recorded_and_nothing_else() -> None:
    recorded = {(topic, title) for topic in answers.topics() for title in answers.read(topic)}
    assert recorded == {(story.topic, story.title) for story in STORIES}


def test_recording_again_writes_what_is_recorded(the_real: Contestant, hook: dict[str, str], tmp_path: Path) -> None:
    count = record(the_real, hook, {"discovery"}, tmp_path)
    assert answers.topics(tmp_path) == {"discovery"}
    assert answers.read("discovery", tmp_path) == answers.read("discovery")
    assert count == sum(story.compared for story in STORIES if story.topic == "discovery")


def test_the_suite_is_several_hundred_requests() -> None:
    assert sum(story.compared for story in STORIES) >= 500
