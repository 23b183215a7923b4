"""When a condition last changed its status."""

from datetime import UTC, datetime

import pytest

from fairlead.model.conditions import transition_time
from fairlead.model.meta import Condition

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)
EARLIER = "2026-11-17T11:00:00Z"


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        pytest.param(None, "2026-11-17T12:00:00Z", id="new"),
        pytest.param(Condition(type="Ready", status="True", last_transition_time=EARLIER), EARLIER, id="unchanged"),
        pytest.param(Condition(type="Ready", status="True"), "2026-11-17T12:00:00Z", id="unchanged, without a time"),
        pytest.param(
            Condition(type="Ready", status="False", last_transition_time=EARLIER), "2026-11-17T12:00:00Z", id="changed"
        ),
    ],
)
def test_the_time_of_the_last_transition_is_kept_while_the_status_stays(
    before: Condition | None, expected: str
) -> None:
    assert transition_time(before, "True", NOW) == expected
