"""Text that users write and we decode, nested without end: it counts as text that cannot be read, wherever it is."""

from collections.abc import Callable

import msgspec
import pytest

from fairlead.engine.priorities.v113 import scores
from fairlead.model.undecodable import UNDECODABLE
from fairlead.modules import healing, ledger, surge
from fairlead.modules.deployments import ModuleDeployment
from fairlead.placement import replay
from fairlead.placement.requests import reasons
from fairlead.placement.requests.spec import ItemStatus, Place
from fairlead.tasks.agent import targets

DEEP = "[" * 100_000 + "]" * 100_000
ENDLESS = f'{{"unknown":{DEEP}}}'


def read_surge(text: str) -> object:
    document = {"metadata": {"name": "d", "annotations": {surge.NOTE: text}}}
    return surge.read_surge(msgspec.convert(document, ModuleDeployment))


def read_reason(text: str) -> object:
    return reasons.read_reason(Place(node="n", reason=text), ItemStatus(rules=text))


READERS: dict[str, Callable[[str], object]] = {
    "pods that a node avoids": scores._avoided,
    "a surge": read_surge,
    "the state of healing": healing.read_state,
    "a grant to heal": healing.read_grant,
    "a ledger": ledger.read_installed,
    "installs that were begun": ledger.read_begun,
    "additional addresses": targets.multus_addresses,
    "the reason of a place": read_reason,
}


TEXTS = {
    "a deep field": ENDLESS,
    "deep": DEEP,
    "half": "{",
    "number": "7",
    "text": '"x"',
    "list": "[7]",
    "map": '{"a":7}',
}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("reader", READERS)
def test_an_annotation_that_cannot_be_read_says_nothing(reader: str, text: str) -> None:
    assert not READERS[reader](TEXTS[text])


def test_a_decision_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(replay.NotADecision):
        replay.read(ENDLESS.encode())


def test_a_field_that_is_skipped_may_be_nested_too_deeply() -> None:
    with pytest.raises(UNDECODABLE):
        msgspec.json.decode(ENDLESS, type=healing.Grant)
