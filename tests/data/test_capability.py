"""The capability as a process runs it: when it is ready, and what limits it although it is."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead.cluster.client import Client
from fairlead.cluster.errors import Forbidden, Status
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.watch import Watch
from fairlead.data.capability import REFUSED_S, Data
from fairlead.data.objects import DATASETS
from fairlead.runtime import Offers
from fairlead.settings import BadSettings, load
from fairlead.testing.clock import ManualClock


def capability(**flags: Any) -> tuple[Data, dict[str, Mirror[Any]], ManualClock]:
    clock, metrics, mirrors = ManualClock(), Metrics(), dict[str, Mirror[Any]]()

    def mirror(kind: Any, *_: Any, indexes: Any = None, **more: Any) -> Mirror[Any]:
        watch = Watch(cast("Client", None), kind, clock=clock, rng=random.random, metrics=metrics)
        found = mirrors.setdefault(f"{kind.name} {kind.struct.__name__}", Mirror(watch, kind, metrics))
        for name, index in (indexes or {}).items():
            found.add_index(name, index)
        return found

    settings = load(environment={}, flags=flags)
    runtime: Any = SimpleNamespace(settings=settings, clock=clock, metrics=metrics, mirror=mirror, offers=Offers())
    return Data(runtime), mirrors, clock


def test_s81_it_is_not_ready_until_every_mirror_is_whole() -> None:
    data, mirrors, _ = capability()
    assert "still reading" in (data.problem() or "")
    for each in mirrors.values():
        each.replace({})
    assert (data.problem(), data.condition()) == (None, None)


def test_s64_without_fluids_kinds_it_is_ready_with_a_condition() -> None:
    data, mirrors, _ = capability()
    for each in mirrors.values():
        each.replace({})
    next(each for each in mirrors.values() if each.kind is DATASETS).absent()
    assert data.problem() is None
    assert data.condition() == "Fluid's kinds are not defined on this cluster: no pod is changed until they are"


async def test_s82_what_it_may_not_read_makes_it_not_ready_after_a_while() -> None:
    data, mirrors, clock = capability()
    for each in mirrors.values():
        each.replace({})
    refusal = Forbidden("GET", Status(code=403, message="no rights"))
    next(each for each in mirrors.values() if each.kind is DATASETS).trouble(refusal)
    assert data.problem() is None
    await clock.advance(REFUSED_S + 1)
    assert data.problem() == f"datasets.data.fluid.io cannot be read: {refusal}"


def test_s27_a_profile_that_cannot_be_used_is_refused_at_the_start_and_kept_out_later(tmp_path: Path) -> None:
    file = tmp_path / "profile.yaml"
    file.write_text("plugins: {serverful: {withDataset: [Nobody]}}")
    with pytest.raises(BadSettings, match="there is no plugin 'Nobody'"):
        capability(**{"data.profile": str(file)})
    file.write_text("plugins: {serverful: {withDataset: [DatasetUsageInjector]}}")
    data, mirrors, _ = capability(**{"data.profile": str(file)})
    for each in mirrors.values():
        each.replace({})
    file.write_text("plugins: [")
    data._profile.look()
    assert data.problem() is None
    assert (data.condition() or "").startswith("data.profile: the old profile is in force: not YAML")
