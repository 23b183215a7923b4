"""What `fairlead task` prints."""

from typing import Any

import pytest

from fairlead.cli.task import run_now_effect
from fairlead.tasks.spec import SUSPEND
from tests.tasks.kit import make_task


@pytest.mark.parametrize(
    ("annotations", "status", "words"),
    [
        ({}, {}, "starts its next round"),
        ({SUSPEND: "false"}, {}, "starts its next round"),
        ({SUSPEND: "true"}, {}, "is suspended: its next round starts when it is resumed"),
        ({}, {"finish": True}, "is finished: no round is left to start"),
    ],
)
def test_run_now_says_whether_a_round_starts(annotations: Any, status: Any, words: str) -> None:
    assert run_now_effect(make_task(status=status, annotations=annotations)) == words
