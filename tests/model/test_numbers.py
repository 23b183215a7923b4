"""Numbers as text: read in bounds, by one function, in every room."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import process_time
from typing import Any

import msgspec
import pytest

import fairlead
from fairlead.data.drains import SCALE_IN_TO, target
from fairlead.data.explain import _holds
from fairlead.data.objects import RUNTIMES, FluidRuntime
from fairlead.jobs.allocations import indexes
from fairlead.local.controllers.replicasets import deletion_cost
from fairlead.local.controllers.spec import ControllerPod, parse_count
from fairlead.model.numbers import index_ranges, whole_number
from fairlead.nodes.probing import port_of
from fairlead.nodes.server import LogProblem, log_options
from fairlead.nodes.spec import Container

SOURCE = Path(fairlead.__file__).parent
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOSTILE = ("9" * 5000, "-" + "9" * 5000, "99999999999999999999999", "²", "٣", "1_0", " 1", "1e3", "NaN", "0x1", "", "-")
# These bound the text themselves, or read what only the kernel or Fairlead writes.
EXEMPT = {
    "apiserver/request/info.py",
    "apiserver/schema/scalars.py",
    "apiserver/validation/core/claims.py",
    "apiserver/validation/names.py",
    "cluster/errors.py",
    "local/providers/supervisor.py",
    "modules/base/artefact.py",
    "modules/base/memory.py",
    "nodes/streaming/portforward.py",
    "tasks/admission.py",
}


def test_no_room_reads_digits_by_itself() -> None:
    """int() raises for 5,000 digits, and isdigit() lets through what int() does not take."""
    looks = re.compile(r"\.(isdigit|isdecimal|isnumeric)\(\)")
    found = {str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py") if looks.search(file.read_text())}
    assert found - EXEMPT == set(), "use fairlead.model.numbers.whole_number"
    assert EXEMPT - found == set(), "an entry that is not needed any more"


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("", []),
        ("0,2-4", [(0, 0), (2, 4)]),
        ("2-4,0,1,4-6,9", [(0, 6), (9, 9)]),
        ("5-3,x,-1,1-2-3,,8", [(8, 8)]),
        ("0-2147483647", [(0, 99)]),
        ("100-200", []),
        *((text, []) for text in HOSTILE),
    ],
)
def test_indexes_are_read_as_ranges_within_bounds(text: str, ranges: list[tuple[int, int]]) -> None:
    assert index_ranges(text, 99) == ranges


def test_many_ranges_that_overlap_cost_no_more_than_their_text() -> None:
    started = process_time()
    assert indexes(",".join(["0-9998"] * 50_000), 10_000) == list(range(9999))
    assert process_time() - started < 2


def a_pod(**annotations: str) -> ControllerPod:
    return msgspec.convert({"metadata": {"annotations": annotations}}, ControllerPod)


def a_runtime(text: str) -> FluidRuntime:
    return msgspec.convert({"metadata": {"annotations": {SCALE_IN_TO: text}}, "spec": {"replicas": 5}}, FluidRuntime)


READERS: dict[str, Callable[[str], Any]] = {
    "a deletion cost": lambda text: deletion_cost(a_pod(**{"controller.kubernetes.io/pod-deletion-cost": text})),
    "a revision": parse_count,
    "workers to keep": lambda text: target(RUNTIMES["alluxio"], a_runtime(text)) or 0,
    "a label compared": lambda text: _holds({"key": "size", "operator": "Gt", "values": ["0"]}, text) or 0,
    "a bound of a label": lambda text: _holds({"key": "size", "operator": "Lt", "values": [text]}, "0") or 0,
    "a port": lambda text: port_of(Container(), text) or 0,
}


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("name", READERS)
def test_a_hostile_number_counts_as_none(name: str, text: str) -> None:
    assert READERS[name](text) == 0


def test_an_ordinary_number_counts() -> None:
    assert [READERS[name]("3") for name in READERS] == [3, 3, 3, True, True, 3]


@pytest.mark.parametrize("name", ["tailLines", "limitBytes", "sinceSeconds"])
@pytest.mark.parametrize("text", [each for each in HOSTILE if each])
def test_hostile_options_of_a_log_are_refused(name: str, text: str) -> None:
    with pytest.raises(LogProblem) as told:
        log_options({name: text}, NOW)
    assert len(str(told.value)) < 300


def test_a_log_of_long_ago_is_all_of_it() -> None:
    since = log_options({"sinceSeconds": str(2**63 - 1)}, NOW).since
    assert since is not None
    assert since.year < 1800
    assert whole_number("7", 0, 9) == 7
