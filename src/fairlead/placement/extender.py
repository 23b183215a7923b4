"""Answers to kube-scheduler, which calls an extender for pods that it places itself.

Pure: a cycle over the table, a pod and names of nodes in; names, reasons and scores out. Nodes that were not asked
about are never in an answer, and nothing here changes the table.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from fairlead.engine.cycle import Cycle
from fairlead.engine.profile import Profile
from fairlead.engine.table import NodeTable
from fairlead.engine.trial import Trial
from fairlead.model.node import Node
from fairlead.model.outcome import Code
from fairlead.model.pod import SchedulerPod
from fairlead.placement.columns import Columns
from fairlead.placement.history import Former
from fairlead.placement.snapshot import bare_node, profile_document, profile_of, table_of

BEST: Final = 10
UNKNOWN: Final = "node(s) not known to Fairlead yet"


class BadQuestion(ValueError):
    """Not a request of kube-scheduler; the text says what was expected."""


class Question(msgspec.Struct, frozen=True):
    """About one pod: nodes by name (`nodeCacheCapable: true`), or the nodes themselves as they were sent."""

    pod: SchedulerPod
    names: tuple[str, ...]
    sent: Mapping[str, Any] | None = None
    nodes: tuple[Node, ...] = ()


class Clearance(msgspec.Struct, frozen=True):
    """About a pod that fits nowhere: by node whom kube-scheduler would evict, by UID, and how many budgets break."""

    pod: SchedulerPod
    victims: Mapping[str, tuple[str, ...]]
    violations: Mapping[str, int]


class Filtered(msgspec.Struct, frozen=True):
    passed: tuple[str, ...]
    failed: Mapping[str, str]
    unresolvable: Mapping[str, str]


# Reading. Go writes these without tags and reads them in any case, so every spelling is taken.


def read_question(body: bytes) -> Question:
    found = _lowered(body)
    pod = _pod(found)
    nodes, names = found.get("nodes"), found.get("nodenames")
    if (nodes is None) == (names is None):
        raise BadQuestion("set either Nodes or NodeNames")
    if names is not None:
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise BadQuestion("NodeNames: must be a list of names")
        return Question(pod, tuple(names))
    items = _lower(nodes, "Nodes").get("items") or []
    try:
        names = tuple(each["metadata"]["name"] for each in items)
        sent = {str(name): each for name, each in zip(names, items, strict=True)}
        return Question(pod, names, sent, tuple(msgspec.convert(each, Node) for each in sent.values()))
    except (TypeError, KeyError):
        raise BadQuestion("Nodes.items: must be nodes, each with its metadata.name") from None
    except msgspec.ValidationError as problem:
        raise BadQuestion(f"Nodes.items: {problem}") from None


def read_clearance(body: bytes) -> Clearance:
    found = _lowered(body)
    pod = _pod(found)
    by_node = found.get("nodenametometavictims") or found.get("nodenametovictims") or {}
    if not isinstance(by_node, dict):
        raise BadQuestion("NodeNameToMetaVictims: must be victims by the names of nodes")
    victims: dict[str, tuple[str, ...]] = {}
    violations: dict[str, int] = {}
    for name, of_node in by_node.items():
        fields = _lower(of_node, f"victims on {name}")
        pods, broken = fields.get("pods") or [], fields.get("numpdbviolations") or 0
        if not isinstance(pods, list) or not isinstance(broken, int):
            raise BadQuestion(f"victims on {name}: Pods must be a list and NumPDBViolations a number")
        victims[name] = tuple(_uid(each) for each in pods)
        violations[name] = broken
    return Clearance(pod, victims, violations)


def _lowered(body: bytes) -> dict[str, Any]:
    try:
        return _lower(msgspec.json.decode(body), "the body")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise BadQuestion(f"the body is not JSON: {problem}") from None


def _lower(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadQuestion(f"{what}: must be an object, not {type(value).__name__}")
    return {str(key).lower(): each for key, each in value.items()}


def _pod(found: Mapping[str, Any]) -> SchedulerPod:
    if found.get("pod") is None:
        raise BadQuestion("Pod: is missing")
    try:
        return msgspec.convert(found["pod"], SchedulerPod)
    except msgspec.ValidationError as problem:
        raise BadQuestion(f"Pod: {problem}") from None


def _uid(victim: Any) -> str:
    fields = _lower(victim, "a victim")
    if isinstance(fields.get("uid"), str):
        return str(fields["uid"])
    # A whole pod, as sent without the cache.
    metadata = fields.get("metadata")
    uid = metadata.get("uid") if isinstance(metadata, dict) else None
    if not isinstance(uid, str):
        raise BadQuestion("a victim: its UID is missing")
    return uid


# Answering


def filtered(cycle: Cycle, pod: SchedulerPod, names: Sequence[str]) -> Filtered:
    table = cycle.table
    evaluation = cycle.evaluation(pod)
    feasible_N = evaluation.feasible()
    passed = [name for name in names if (row := table.row_of.get(name)) is not None and feasible_N[row]]
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    if len(passed) < len(names):
        taken = set(passed)
        refused = {each.node: each for each in Columns(evaluation, scoring=False).refused()}
        for name in names:
            if name in taken:
                continue
            why = refused.get(name)
            if why is None:
                # Its rules were not evaluated; kube-scheduler calls again when the node changes.
                unresolvable[name] = UNKNOWN
            else:
                into = unresolvable if why.code == Code.UNRESOLVABLE.word else failed
                into[name] = ", ".join(why.reasons)
    return Filtered(tuple(passed), failed, unresolvable)


def prioritised(cycle: Cycle, pod: SchedulerPod, names: Sequence[str]) -> dict[str, int]:
    """0..10 by name: our totals scaled over the nodes of the call; all 0 when they are equal."""
    table = cycle.table
    evaluation = cycle.evaluation(pod)
    named_N = np.zeros(table.size, dtype=np.bool_)
    named_N[[table.row_of[name] for name in names if name in table.row_of]] = True
    feasible_N = evaluation.feasible() & named_N
    scores = dict.fromkeys(names, 0)
    if not feasible_N.any():
        return scores
    total_N = evaluation.totals(feasible_N)
    lowest, highest = int(total_N[feasible_N].min()), int(total_N[feasible_N].max())
    if lowest == highest:
        return scores
    for name in names:
        row = table.row_of.get(name)
        if row is not None and feasible_N[row]:
            scores[name] = (int(total_N[row]) - lowest) * BEST // (highest - lowest)
    return scores


def cleared(cycle: Cycle, clearance: Clearance) -> dict[str, tuple[str, ...]]:
    """Of the nodes that kube-scheduler would clear, those that our rules would take as well once these pods are gone.

    Whom it would evict stays as it is: it counted them by its own rules, which need not be ours.
    """
    table = cycle.table
    evaluation = cycle.evaluation(clearance.pod)
    if evaluation.rejection is not None:
        return {}
    kept: dict[str, tuple[str, ...]] = {}
    for name, victims in clearance.victims.items():
        row = table.row_of.get(name)
        if row is None or (evaluation.narrowed is not None and name not in evaluation.narrowed):
            continue
        with Trial(evaluation, row) as trial:
            for uid in victims:
                occupant = table.occupants.get(uid)
                if occupant is not None and occupant.row == row:
                    trial.remove(occupant)
            if not trial.reasons():
                kept[name] = victims
    return kept


# Nodes that were sent


def is_as_sent(table: NodeTable, nodes: Iterable[Node]) -> bool:
    """Whether the table holds these nodes as they were sent, to the eyes of rules."""
    for node in nodes:
        row = table.row_of.get(node.name)
        known = table.nodes[row] if row is not None else None
        if known is None:
            return False
        if known.metadata.resource_version == node.metadata.resource_version != "":
            continue
        images = frozenset(name for image in node.status.images or () for name in image.names or ())
        if bare_node(known, images) != bare_node(node, images):
            return False
    return True


def with_sent(former: Former, nodes: Iterable[Node], profile: Profile) -> Cycle:
    """The present state with these nodes as they were sent. Heavy: the whole table is rebuilt."""
    snapshot = former.document()
    by_name = {node.name: node for node in snapshot.nodes} | {node.name: node for node in nodes}
    return Cycle(
        table_of(msgspec.structs.replace(snapshot, nodes=tuple(by_name.values()))),
        profile_of(profile_document(profile)),
    )
