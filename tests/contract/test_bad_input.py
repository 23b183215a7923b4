"""Bad input gets Kubernetes' answers; the long form is `scripts/soak bad_input`."""

import re
from pathlib import Path

import pytest

from bench.store import memory_mb
from tests.contract import answers
from tests.contract.served import served
from tests.soak.bad_input import KNOWN_500_TEXTS, LONGEST_WAIT_S, MEMORY_MB, fuzz, weigh


@pytest.mark.parametrize("seed", [1, 2])
def test_bad_input_is_the_clients_mistake_and_never_ours(tmp_path: Path, seed: int) -> None:
    with served(tmp_path) as server:
        judge = fuzz(server, 1100, seed)
        assert judge.problems == []
        assert memory_mb(server.process.pid) < MEMORY_MB


def test_nobody_waits_long_for_the_requests_of_others(tmp_path: Path) -> None:
    # On a machine that has other things to do, too; what is out of proportion takes minutes.
    with served(tmp_path) as server:
        assert weigh(server, 30_000, 10 * LONGEST_WAIT_S) == []


def test_what_may_be_answered_with_a_500_the_real_server_answers_so() -> None:
    said = [
        answer["body"].get("message", "")
        for topic in answers.topics()
        for record in answers.read(topic).values()
        for answer in record.answers
        if answer["status"] == 500 and isinstance(answer["body"], dict)
    ]
    *met, never = KNOWN_500_TEXTS
    assert "range is full" in never
    assert [text for text in met if not any(re.search(text, each) for each in said)] == []
