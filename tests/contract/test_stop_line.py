"""What is compared of an answer: texts only for kinds that something here acts on."""

from typing import Any

import pytest

from fairlead.apiserver.schema.facts import load
from tests.contract.stop_line import KEPT_ONLY, compared
from tests.house.rules import ROOT

SOURCE = ROOT / "src" / "fairlead"


def refusal(
    status: int = 422, reason: str = "FieldValueInvalid", field: str = "spec.a", text: str = "must be b"
) -> dict[str, Any]:
    causes = [{"reason": reason, "field": field, "message": text}]
    body = {"kind": "Status", "reason": "Invalid", "message": f"x is invalid: {text}", "details": {"causes": causes}}
    return {"status": status, "headers": {}, "body": body}


def test_texts_count_only_for_kinds_that_something_acts_on() -> None:
    one, other = refusal(text="must be b"), refusal(text="should be b")
    assert compared("Ingress", one) == compared("Ingress", other)
    assert compared("Pod", one) != compared("Pod", other)


@pytest.mark.parametrize("other", [refusal(status=400), refusal(reason="FieldValueRequired"), refusal(field="spec.b")])
def test_status_reason_and_field_count_everywhere(other: dict[str, Any]) -> None:
    assert compared("Ingress", refusal()) != compared("Ingress", other)


def test_a_warning_counts_everywhere_and_its_text_does_not() -> None:
    def created(*warnings: str) -> dict[str, Any]:
        return {"status": 201, "headers": {"Warning": list(warnings)}, "body": {"kind": "Ingress"}}

    assert compared("Ingress", created('299 - "a"')) == compared("Ingress", created('299 - "b"'))
    assert compared("Ingress", created('299 - "a"')) != compared("Ingress", created())


def test_objects_are_compared_whole_everywhere() -> None:
    one, other = ({"status": 200, "headers": {}, "body": {"kind": "Ingress", "spec": spec}} for spec in ({}, {"a": 1}))
    assert compared("Ingress", one) != compared("Ingress", other)


def test_nothing_acts_on_the_kinds_that_are_only_kept() -> None:
    assert {each.kind for each in load().resources} >= KEPT_ONLY
    texts = {file: file.read_text() for file in SOURCE.rglob("*.py") if not file.is_relative_to(SOURCE / "apiserver")}
    named = [(kind, file) for kind in KEPT_ONLY for file, text in texts.items() if f'"{kind}"' in text]
    # Diagnosis tasks write Ingresses for somebody else's controller, and read the address that it gives them.
    assert [each for each in named if (each[0], each[1].relative_to(SOURCE).parts[0]) != ("Ingress", "tasks")] == []
