"""Fluid's webhook, described a second time (`fluid_model`), answers recorded and drawn reviews as ours does."""

import copy
from pathlib import Path
from typing import Any

import pytest

from fairlead.data.draft import REQUIRED
from fairlead.data.profile import BadProfile, parse
from fairlead.testing import parity, parity_data
from tests.data import fluid_model
from tests.data.drawn_reviews import Lot

VECTORS = Path(__file__).parents[1] / "parity" / "data"
DRAWN = 60


def recordings() -> list[dict[str, Any]]:
    """With a pod that can be read, and whose fields the original knows."""
    vectors = [vector for path in sorted(VECTORS.glob("*.jsonl.gz")) for vector in parity.read(path)]
    inputs = [vector["input"] for vector in vectors if vector["category"] != "label_names"]
    return [given for given in inputs if "pod" in given and "unknown_fields" not in given]


def differences(given: dict[str, Any]) -> str:
    """Where our answer is not the model's, or nothing."""
    wanted = fluid_model.answer(copy.deepcopy(given))
    try:
        profile = parse(given["profile"])
    except BadProfile as problem:
        return "" if "profile_error" in wanted else f"refused profile: {problem}"
    ours = parity_data.replay(given, profile)
    if "profile_error" in wanted or "code" in wanted:
        lacks = [name for name in wanted.get("names", ()) if name not in ours.message]
        return "" if ours.code == wanted.get("code") and not lacks else f"{ours.code} {ours.message}; wanted {wanted}"
    if _is_unbounded(wanted["pod"]):
        return ""
    if [each.plugin for each in ours.runs] != wanted["runs"]:
        return f"{ours.message} {ours.runs}; wanted {wanted['runs']}"
    if sorted("/".join(each) for each in ours.side_objects) != wanted["configmaps"]:
        return f"{ours.side_objects}; wanted {wanted['configmaps']}"
    differences = parity_data.pod_differences(_without_repetition(ours.pod), _without_repetition(wanted["pod"]))
    return next(iter([*differences, *parity_data.second_pass(given, profile, ours)]), "")


def _without_repetition(pod: Any) -> Any:
    """Without required terms that ask for all that another one does, and more: any node with these has that one too.

    Two claims of a dataset that is declared with alternatives bring them twice: we join a term with one of them, the
    model with each once more.
    """
    pod = copy.deepcopy(pod)
    required: Any = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED) or {}
    terms = (required or {}).get("nodeSelectorTerms") or []
    if len(terms) < 2:
        return pod
    conditions = [frozenset(f"{name}{each}" for name in term for each in term[name] or ()) for term in terms]
    required["nodeSelectorTerms"] = [
        term
        for i, term in enumerate(terms)
        if not any(other < conditions[i] or (other == conditions[i] and j < i) for j, other in enumerate(conditions))
    ]
    return pod


def _is_unbounded(pod: Any) -> bool:
    """Whether the model, which knows no bounds, says what the API server would refuse."""
    affinity = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = (affinity or {}).get("nodeSelectorTerms") or []
    return len(terms) > 64 or any(parity_data.illegal_keys(pod))


def test_recorded_reviews_are_answered_as_by_the_model() -> None:
    assert {str(given["pod"]): found for given in recordings() if (found := differences(given))} == {}


@pytest.mark.parametrize("seed", range(4))
def test_drawn_reviews_are_answered_as_by_the_model(seed: int) -> None:
    lot = Lot(recordings(), seed)
    for number in range(DRAWN):
        given = lot.draw()
        assert differences(given) == "", f"review {number}: {given}"


def test_another_answer_is_noticed() -> None:
    """The comparison can fail: a model that takes the review for another pod's gives another answer."""
    given = next(
        each for each in recordings() if (fluid_model.answer(each).get("runs") or [""])[-1] == "DatasetUsageInjector"
    )
    changed = copy.deepcopy(given)
    changed["pod"]["metadata"]["labels"] = {}
    assert fluid_model.answer(changed) != fluid_model.answer(given)
    assert parity_data.replay(changed, parse(given["profile"])).pod != fluid_model.answer(given)["pod"]
