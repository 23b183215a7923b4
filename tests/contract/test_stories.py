"""The contract: the embedded server answers every story as the real one does."""

import secrets
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.contract.servers import Contestant
from tests.contract.stories import Story, differences, run, told

STORIES = list(told())


@pytest.mark.parametrize("story", STORIES, ids=lambda story: f"{story.topic}: {story.title}")
def test_both_servers_answer_alike(
    story: Story, the_real: Contestant, the_embedded: Contestant, hook: dict[str, str]
) -> None:
    namespace = f"story-{secrets.token_hex(4)}"
    with ThreadPoolExecutor(2) as pool:
        theirs, mine = (
            pool.submit(run, story, server, namespace, {"hook": hook}) for server in (the_real, the_embedded)
        )
        found = differences(theirs.result(), mine.result())
    assert not found, f"{story.topic}: {story.title}\n{found}"


def test_the_suite_is_several_hundred_requests() -> None:
    assert sum(story.compared for story in STORIES) >= 500
