"""Replays recorded verdicts of the real kube-scheduler against the engine and says where they differ.

    python -m fairlead.testing.parity [--room ROOM] DIR

With a room, recordings of that room's original are replayed by the room's own module (`ROOMS`).
Every *.jsonl.gz of the directory is read; the first differences are printed in full, then `N passed, M failed`.
The form of the vectors is described in tests/parity/vectors/README.md: single decisions, sequences, preemptions.
"""

import gzip
import importlib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fairlead.engine.catalog import Catalog
from fairlead.engine.cycle import Cycle
from fairlead.engine.diagnosis import codes, diagnose
from fairlead.engine.dialect import parse_profile
from fairlead.engine.evaluation import Evaluation
from fairlead.engine.plugin_config import parse_strategy
from fairlead.engine.preemption import Preemption
from fairlead.engine.priorities.node_resources_fit import NodeResourcesFit
from fairlead.engine.profile import Profile
from fairlead.engine.quirks import KUBE_1_36, Quirks
from fairlead.engine.table import NodeTable
from fairlead.model.node import Node
from fairlead.model.outcome import Code, Placed
from fairlead.model.pod import SchedulerPod
from fairlead.placement.columns import sheet
from fairlead.placement.spec import RELATED_KINDS

Vector = dict[str, Any]
Differences = Callable[[Vector, Path], Iterable[str]]

_SHORT = {"persistentvolumeclaims": "pvcs", "persistentvolumes": "pvs", "poddisruptionbudgets": "pdbs"}
SURROUNDINGS = {_SHORT.get(kind.plural, kind.plural): kind.struct for kind in RELATED_KINDS}
# Recorded with the default profile, but never adding to a score here (see engine/registry.py).
SILENT = frozenset({"DynamicResources", "VolumeBinding"})
SHOWN = 10
# Modules with a `differences` of their own, by the room they replay; loaded when asked for.
ROOMS = {
    "placement": "fairlead.testing.parity",
    "tasks": "fairlead.testing.parity_tasks",
    "data": "fairlead.testing.parity_data",
    "modules": "fairlead.testing.parity_modules",
}


class RecordedCluster:
    """A vector's cluster, built the way the placement loop builds it."""

    def __init__(self, vector: Vector, quirks: Quirks) -> None:
        catalog = Catalog()
        for key, kind in SURROUNDINGS.items():
            catalog.set_all(msgspec.convert(each, kind) for each in vector.get(key) or ())
        self.table = NodeTable(catalog)
        for node in vector.get("nodes") or ():
            self.table.add_node(msgspec.convert(node, Node))
        for pod in vector.get("pods") or ():
            self.table.add_pod(msgspec.convert(pod, SchedulerPod))
        self.profile: Profile = parse_profile(vector.get("config") or {}, quirks)

    def evaluation(self, pod: SchedulerPod) -> Evaluation:
        evaluation = Evaluation(self.table, self.profile, self.table.request(pod))
        evaluation.refresh()
        return evaluation


def differences(vector: Vector, _folder: Path | None = None) -> Iterator[str]:
    """What the engine says otherwise than the recording."""
    expectations = [("expect", KUBE_1_36)]
    if "expect_fixed" in vector:
        expectations.append(("expect_fixed", msgspec.structs.replace(KUBE_1_36, k136_ns_selector=False)))
    for key, quirks in expectations:
        cluster = RecordedCluster(vector, quirks)
        expected = vector[key]
        match vector["kind"]:
            case "single":
                found = check_single(cluster, vector, expected)
            case "sequence":
                found = check_sequence(cluster, vector, expected)
            case "preemption":
                found = check_preemption(cluster, vector, expected)
            case kind:
                raise ValueError(f"{vector['id']}: no such kind of vector: {kind}")
        for difference in found:
            yield f"{key}.{difference}"


def check_single(cluster: RecordedCluster, vector: Vector, expected: Vector) -> Iterator[str]:
    pod = msgspec.convert(vector["pod"], SchedulerPod)
    evaluation = cluster.evaluation(pod)
    yield from check_filters(cluster, evaluation, expected)
    table = cluster.table
    feasible_N = evaluation.feasible()
    feasible = sorted(table.name(int(row)) for row in np.flatnonzero(feasible_N))
    yield from differ("feasible", feasible, expected["feasible"])
    message = None if feasible else diagnose(evaluation).message()
    yield from differ("message", message, expected["message"])
    if not feasible:
        return

    cycle = Cycle(table, cluster.profile)
    shown = sheet(cycle, pod)
    skipped = set(expected.get("score_skipped") or ()) - SILENT
    yield from differ("score_skipped", sorted(shown.silent), sorted(skipped))
    scores = {
        rule: {
            name: [raw, normal] for name, raw, normal in zip(shown.feasible, raws, shown.normalised[rule], strict=True)
        }
        for rule, raws in shown.raw.items()
    }
    for rule, document in (vector.get("strategies") or {}).items():
        extra = NodeResourcesFit(parse_strategy(document), without_pod_level=True)
        raw_N = extra.raw(table.view(), evaluation.request, feasible_N)
        scores[f"NodeResourcesFit/{rule}"] = {name: [int(raw_N[table.row_of[name]])] * 2 for name in feasible}
    for rule, of_nodes in expected["scores"].items():
        if rule in SILENT:
            yield from differ(f"scores.{rule}", {name: [0, 0] for name in of_nodes}, of_nodes)
        else:
            yield from differ(f"scores.{rule}", scores.get(rule), of_nodes)
    yield from differ("scores", sorted(set(scores) - set(expected["scores"])), [])
    totals = dict(zip(shown.feasible, shown.totals, strict=True))
    yield from differ("total", totals, expected["total"])
    best = [name for name, total in totals.items() if total == max(shown.totals)]
    yield from differ("best", best, sorted(expected["best"]))

    # The decision itself comes from the incremental path; it must agree with the explanation.
    totals_N = evaluation.totals(feasible_N)
    incremental = {name: int(totals_N[table.row_of[name]]) for name in feasible}
    yield from differ("total of the decision", incremental, expected["total"])
    outcome = cycle.decide(pod)
    chosen = outcome.node if isinstance(outcome, Placed) else None
    yield from differ("decision", chosen, min(expected["best"]))


def check_filters(cluster: RecordedCluster, evaluation: Evaluation, expected: Vector) -> Iterator[str]:
    table, request = cluster.table, evaluation.request
    view = table.view()
    for rule in cluster.profile.predicates:
        reasons: dict[str, set[str]] = {name: set() for name in table.row_of}
        unresolvable: set[str] = set()
        rejection = rule.rejects(table, request) if rule.applies(table, request) else None
        if rejection is not None:
            reasons = {name: {rejection.reason} for name in reasons}
            unresolvable = set(reasons)
        elif rule.applies(table, request):
            for failed in rule.refusals(view, request):
                final_V = failed.rows & failed.unresolvable
                for row in np.flatnonzero(failed.rows & view.take(table.valid_N)):
                    reasons[table.name(int(row))].add(failed.reason)
                    if final_V[row]:
                        unresolvable.add(table.name(int(row)))
            passed_V = rule.mask(view, request)
            for name, of_node in table.row_of.items():
                if bool(passed_V[of_node]) != (not reasons[name]):
                    yield f"filter.{rule.name}.{name}: mask and reasons disagree"
        found = {name: sorted(why) or "ok" for name, why in reasons.items()}
        code = {
            name: (
                Code.SUCCESS if why == "ok" else Code.UNRESOLVABLE if name in unresolvable else Code.UNSCHEDULABLE
            ).word
            for name, why in found.items()
        }
        if rule.name in ("GpuDevices", "FuseHeadroom"):
            # Ours alone; in recorded worlds it has nothing to say.
            yield from differ(rule.name, [name for name, why in found.items() if why != "ok"], [])
            continue
        yield from differ(f"filter.{rule.name}", found, _sorted_reasons(expected["filter"][rule.name]))
        yield from differ(f"codes.{rule.name}", code, expected["codes"][rule.name])
    if "prefilter_nodes" in expected:
        narrowed = sorted(evaluation.narrowed or ())
        yield from differ("prefilter_nodes", narrowed, sorted(_names(expected["prefilter_nodes"])))


def check_sequence(cluster: RecordedCluster, vector: Vector, expected: list[Vector]) -> Iterator[str]:
    cycle = Cycle(cluster.table, cluster.profile)
    table = cluster.table
    for i, (document, verdict) in enumerate(zip(vector["queue"], expected, strict=True)):
        pod = msgspec.convert(document, SchedulerPod)
        evaluation = cycle.evaluation(pod)
        feasible_N = evaluation.feasible()
        yield from differ(f"[{i}].feasible_count", int(feasible_N.sum()), verdict["feasible_count"])
        if feasible_N.any():
            totals_N = evaluation.totals(feasible_N)
            highest = int(totals_N[feasible_N].max())
            best = sorted(table.name(int(row)) for row in np.flatnonzero(feasible_N & (totals_N == highest)))
            yield from differ(f"[{i}].best", best, sorted(verdict["best"] or ()))
            yield from differ(f"[{i}].total_of_best", highest, verdict["total_of_best"])
        outcome = cycle.decide(pod)
        if isinstance(outcome, Placed):
            yield from differ(f"[{i}].committed", outcome.node, verdict["committed"])
            if outcome.node != verdict["committed"]:
                return
        else:
            yield from differ(f"[{i}].committed", None, verdict["committed"])
            yield from differ(f"[{i}].message", outcome.diagnosis.message(), verdict["message"])


def check_preemption(cluster: RecordedCluster, vector: Vector, expected: Vector) -> Iterator[str]:
    pod = msgspec.convert(vector["pod"], SchedulerPod)
    evaluation = cluster.evaluation(pod)
    table = cluster.table
    yield from differ("message", diagnose(evaluation).message(), expected["message"])
    code_N = codes(evaluation)
    found = {table.name(row): Code(code_N[row]).word for row in table.order.tolist() if code_N[row] != Code.SUCCESS}
    if expected.get("node_codes") is not None:
        yield from differ("node_codes", found, expected["node_codes"])
    before = table.used_RN.copy()
    result = Preemption(table, cluster.profile).plan(pod)
    if not np.array_equal(before, table.used_RN):
        yield "table: the trial left traces"
    candidates = {
        candidate.node: {
            "victims": [victim.key for victim in candidate.victims],
            "pdb_violations": candidate.violations,
        }
        for candidate in result.candidates
    }
    yield from differ("candidates", candidates, expected["candidates"] or {})
    yield from differ("nominated", result.node, expected["nominated"])
    yield from differ("victims", sorted(victim.key for victim in result.victims), expected["victims"] or [])
    yield from differ("pdb_violations", result.violations, expected["pdb_violations"])
    yield from differ("postfilter_code", result.code.word, expected["postfilter_code"])
    yield from differ("postfilter_message", result.message, expected["postfilter_message"])


def differ(what: str, actual: object, expected: object) -> Iterator[str]:
    if actual == expected:
        return
    if isinstance(actual, dict) and isinstance(expected, dict):
        for key in sorted(set(actual) | set(expected)):
            yield from differ(f"{what}.{key}", actual.get(key), expected.get(key))
    else:
        yield f"{what}: found {actual!r}, recorded {expected!r}"


def _sorted_reasons(of_nodes: Vector) -> Vector:
    return {name: why if why == "ok" else sorted(set(why)) for name, why in of_nodes.items()}


def _names(nodes: object) -> list[str]:
    if isinstance(nodes, dict):
        return [name for names in nodes.values() for name in names]
    assert isinstance(nodes, list)
    return nodes


def read(path: Path) -> Iterator[Vector]:
    with gzip.open(path, "rb") as lines:
        for line in lines:
            yield msgspec.json.decode(line)


def _differences_or_error(vector: Vector, folder: Path, compare: Differences) -> list[str]:
    """What breaks on a vector fails that vector, not the whole run."""
    try:
        return list(compare(vector, folder))
    except Exception:
        return traceback.format_exc().splitlines()


def replay(folder: Path, *, room: str = "placement", shown: int = SHOWN) -> tuple[int, int]:
    """How many vectors of the folder pass and fail; the first failures are printed."""
    compare: Differences = importlib.import_module(ROOMS[room]).differences
    passed = failed = 0
    for path in sorted(folder.glob("*.jsonl.gz")):
        for vector in read(path):
            found = _differences_or_error(vector, folder, compare)
            if not found:
                passed += 1
                continue
            failed += 1
            if failed <= shown:
                print(f"{path.name} {vector['id']} {vector.get('note', '')}")
                for difference in found:
                    print(f"    {difference}")
    return passed, failed


def main(arguments: list[str]) -> int:
    is_named = len(arguments) == 3 and arguments[0] == "--room"
    room = arguments[1] if is_named else "placement"
    if len(arguments) != (3 if is_named else 1) or room not in ROOMS:
        print(f"usage: python -m fairlead.testing.parity [--room {'|'.join(ROOMS)}] DIR", file=sys.stderr)
        return 2
    folder = Path(arguments[-1])
    if not folder.is_dir():
        print(f"{folder}: no such directory", file=sys.stderr)
        return 2
    passed, failed = replay(folder, room=room)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
