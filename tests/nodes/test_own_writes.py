"""Which changes of a pod are looked at: all that others made, and of our own only those that end it."""

from typing import Any, cast

import msgspec
import pytest

from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Delta
from fairlead.nodes.controller import PodController, PodRecord
from fairlead.nodes.node import Profile
from fairlead.nodes.plan import recall
from fairlead.nodes.spec import KubeletPod
from fairlead.testing.clock import ManualClock
from tests.nodes.kit import T0, pod

NOTHING = cast("Any", None)


def version(number: str, **rest: Any) -> KubeletPod:
    metadata = {"resourceVersion": number, **rest.pop("metadata", {})}
    return pod(metadata=metadata, **rest)


def after_writing(answer: KubeletPod) -> tuple[PodController, PodRecord]:
    """A controller whose last write to the pod was answered so."""
    controller = PodController(
        NOTHING,
        {},
        NOTHING,
        NOTHING,
        NOTHING,
        seen_node=NOTHING,
        find_node=NOTHING,
        clock=ManualClock(),
        metrics=Metrics(),
    )
    held = PodRecord(answer.uid, Profile("node", "simulated"), NOTHING, recall(answer, T0), answer=answer)
    controller._held[answer.key] = held
    return controller, held


def test_what_our_own_write_left_is_not_looked_at_again_and_kept_once() -> None:
    controller, held = after_writing(version("2"))
    shown = version("2")
    assert controller._changed_by_others(Delta("ns/p", version("1"), shown)) == ()
    assert held.answer is shown


@pytest.mark.parametrize(
    "shown",
    [
        version("3"),
        version("2", metadata={"uid": "another pod of the name"}),
        version("2", status={"phase": "Succeeded"}),
        version("2", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ],
    ids=["another's write", "made anew", "finished", "being deleted"],
)
def test_any_other_change_is_looked_at(shown: KubeletPod) -> None:
    controller, _ = after_writing(version("2"))
    assert controller._changed_by_others(Delta("ns/p", version("1"), shown)) == ("ns/p",)


def test_a_pod_that_is_gone_or_that_we_wrote_nothing_to_is_looked_at() -> None:
    controller, held = after_writing(version("2"))
    assert controller._changed_by_others(Delta("ns/p", version("2"), None)) == ("ns/p",)
    held.answer = None
    assert controller._changed_by_others(Delta("ns/p", version("1"), version("2"))) == ("ns/p",)
    assert controller._changed_by_others(Delta("ns/q", None, msgspec.structs.replace(version("2")))) == ("ns/q",)
