"""The definition's rules on the embedded API server; tests/kube/test_job_rules.py has them on a real one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.apiserver.embedded import embedded
from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from tests.jobs import rules


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    clock = RealClock()
    async with (
        embedded(tmp_path, clock) as cluster,
        Client(connect_by_kubeconfig([cluster.kubeconfig], clock), clock=clock) as made,
    ):
        await rules.define(made)
        yield made


async def test_each_rule_rejects_with_its_message(client: Client) -> None:
    assert await rules.wrong_refusals(client, "default") == []


async def test_what_may_not_change_after_pending(client: Client) -> None:
    assert await rules.wrong_changes(client, "default") == []


async def test_queues_that_make_no_sense_are_rejected(client: Client) -> None:
    assert await rules.wrong_queues(client) == []


async def test_s02_defaults_are_visible(client: Client) -> None:
    assert await rules.defaults(client, "default") == rules.DEFAULTS
    assert await rules.queue_defaults(client) == {
        "weight": 1,
        "quota": {"cpu": 4},
        "maxPriority": 10,
        "strictFIFO": False,
    }
