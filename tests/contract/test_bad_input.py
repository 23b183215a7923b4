"""Bad input gets Kubernetes' answers; the long form is `scripts/soak bad_input`."""

import re
from pathlib import Path

import pytest

from bench.store import memory_mb
from tests.contract import answers
from tests.contract.served import served
from tests.soak.bad_input import KNOWN_500_TEXTS, LONGEST_WAIT_S, MEMORY_MB, Scheduled, fair_wait_s, fuzz, weigh


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


@pytest.mark.parametrize("fault", ["computing", "idle"])
def test_the_judge_sees_a_request_that_holds_everybody_up(tmp_path: Path, fault: str) -> None:
    with served(tmp_path, prefix=("env", f"FAULT={fault}"), module="tests.soak.blocking_process") as server:
        problems = weigh(server, 30_000, LONGEST_WAIT_S, ["labels"])
    assert any(re.match(r"labels: \d+ bytes made others wait [\d.]+ s", each) for each in problems), problems


def test_waiting_for_a_busy_machine_is_nobodys_fault_and_a_computing_server_is() -> None:
    nobody, queued = Scheduled(0.0, 0.0), Scheduled(0.0, 0.8)
    assert fair_wait_s(1.0, nobody, nobody) == 1.0
    assert fair_wait_s(1.0, queued, nobody) == pytest.approx(0.2)
    assert fair_wait_s(1.0, nobody, queued) == pytest.approx(0.2)
    assert fair_wait_s(1.0, Scheduled(0.7, 2.5), queued) == 0.7
    assert fair_wait_s(1.0, Scheduled(1.7, 0.0), nobody) == 1.0


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
