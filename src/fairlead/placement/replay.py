"""Replaying: a decision as a document that stands for itself, and the same decision made again from it.

The document holds the snapshot just before the decision, so whoever has the file needs no cluster. Replaying makes the
table from it, decides, and compares node, score, volumes, devices, diagnosis, every verdict and every score.
"""

from datetime import datetime
from typing import Any, Final

import msgspec

from fairlead import __version__
from fairlead.engine.cycle import Cycle
from fairlead.engine.gang import Gangs
from fairlead.engine.gang_preemption import decide_unit
from fairlead.engine.pick import pick_named
from fairlead.engine.preemption import Preemption, PreemptionPlan
from fairlead.engine.standing import Standing, StandingUnit
from fairlead.engine.statement import Statement
from fairlead.engine.unit import Unit, UnitOutcome, UnitPlaced
from fairlead.model.outcome import Diagnosis, Outcome, Placed, VolumeChoice
from fairlead.model.pod import SchedulerPod
from fairlead.model.undecodable import UNDECODABLE
from fairlead.placement.columns import sheet
from fairlead.placement.explanation import Sheet
from fairlead.placement.history import Decision, Former
from fairlead.placement.snapshot import ProfileDocument, Snapshot, bare_pod, profile_document, profile_of, table_of

API_VERSION: Final = "fairlead.io/v1alpha1"
KIND: Final = "Decision"
# A document is no larger than this.
MOST_BYTES: Final = 256 << 20


class Part(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A part of the document."""


class Place(Part, frozen=True):
    pod: str
    node: str
    score: int = 0
    volumes: tuple[VolumeChoice, ...] = ()
    devices: tuple[int, ...] = ()


class Evicting(Part, frozen=True):
    node: str | None = None
    victims: tuple[str, ...] = ()
    violations: int = 0
    message: str = ""


class Result(Part, frozen=True):
    """What was decided: places, or why there are none."""

    places: tuple[Place, ...] = ()
    diagnosis: Diagnosis | None = None
    evicting: Evicting | None = None
    # Of a unit: which member failed, how many fitted, whom the minimum left out, in which domain.
    failed: str = ""
    fitting: int = 0
    waiting: tuple[str, ...] = ()
    domain: str = ""


class DecisionDocument(Part, frozen=True):
    id: str
    at: datetime
    profile: ProfileDocument
    result: Result
    snapshot: Snapshot
    api_version: str = API_VERSION
    kind: str = KIND
    version: str = __version__
    pod: SchedulerPod | None = None
    nominated: tuple[SchedulerPod, ...] = ()
    # The node that is taken before all others if it will do: cleared or reserved for the pod.
    first: str = ""
    # GPUs that were held for it there.
    devices: tuple[int, ...] = ()
    unit: Unit | None = None
    # Where the round robin stood, for profiles that go round.
    turn: int = 0
    # Units that had places, where preemption was tried.
    standing: tuple[StandingUnit, ...] = ()
    # Of a single pod: every verdict and every score, computed from this snapshot.
    sheet: Sheet | None = None


class NotADecision(ValueError):
    """The file is not a decision that can be made again; the text says why."""


def document_of(decision: Decision, former: Former, name: str) -> DecisionDocument:
    """The document of a decision that was kept; heavy for large clusters, so not to be called on the loop."""
    document = DecisionDocument(
        id=name,
        at=decision.at,
        profile=profile_document(decision.profile),
        result=_result(decision),
        snapshot=former.document(),
        pod=None if decision.pod is None else bare_pod(decision.pod),
        nominated=tuple(bare_pod(pod) for pod in decision.nominated),
        first=decision.first,
        devices=decision.devices,
        unit=decision.unit,
        turn=decision.turn,
        standing=decision.standing,
    )
    if document.pod is None:
        return document
    cycle = cycle_of(document)
    return msgspec.structs.replace(document, sheet=sheet(cycle, document.pod, document.nominated))


def cycle_of(document: DecisionDocument) -> Cycle:
    """The table and the profile of a decision."""
    profile = profile_of(document.profile)
    return Cycle(table_of(document.snapshot), profile, pick_named(profile.args.pick, document.turn))


_in_order = msgspec.json.Encoder(order="sorted")


def encode(document: DecisionDocument) -> bytes:
    """The document as it is written: the same bytes from every process, and again after it was read."""
    return _in_order.encode(document)


def read(text: bytes) -> DecisionDocument:
    if len(text) > MOST_BYTES:
        raise NotADecision(f"{len(text)} bytes are more than a decision has ({MOST_BYTES})")
    try:
        document = msgspec.json.decode(text, type=DecisionDocument)
    except UNDECODABLE as problem:
        raise NotADecision(f"not the JSON of GET /decisions/ID: {problem}") from None
    if (document.api_version, document.kind) != (API_VERSION, KIND):
        raise NotADecision(f"must be {API_VERSION} {KIND}, not {document.api_version} {document.kind}")
    if (document.pod is None) == (document.unit is None):
        raise NotADecision("the document names neither a pod nor a unit")
    return document


def replay(document: DecisionDocument) -> list[str]:
    """Decide again; what came out differently, as sentences. Nothing: the results are identical."""
    try:
        cycle = cycle_of(document)
    except (ValueError, msgspec.ValidationError) as problem:
        raise NotADecision(f"its snapshot cannot be made again: {problem}") from None
    differences: list[str] = []
    standing = Standing(cycle.table)
    standing.restore(document.standing)
    if document.pod is not None:
        if document.sheet is not None:
            differences += _compare("sheet", document.sheet, sheet(cycle, document.pod, document.nominated))
        outcome = cycle.decide(
            document.pod, nominated=document.nominated, first=document.first, devices=document.devices
        )
        plan = None
        if document.result.evicting is not None:
            plan = Preemption(cycle.table, cycle.profile, standing).plan(document.pod, document.nominated)
        again = _result_of_pod(outcome, plan)
    else:
        assert document.unit is not None
        gangs, statement = Gangs(cycle, standing), Statement(cycle.table)
        if document.result.evicting is None:
            unit_outcome = gangs.decide(document.unit, statement, document.nominated)
        else:
            unit_outcome, _ = decide_unit(gangs, document.unit, statement, document.nominated)
        again = _result_of_unit(unit_outcome)
    return [*_compare("result", document.result, again), *differences]


def _result(decision: Decision) -> Result:
    if decision.unit_outcome is not None:
        return _result_of_unit(decision.unit_outcome)
    assert decision.outcome is not None
    return _result_of_pod(decision.outcome, decision.plan)


def _result_of_pod(outcome: Outcome, plan: PreemptionPlan | None) -> Result:
    if isinstance(outcome, Placed):
        return Result(places=(_place(outcome),))
    evicting = None
    if plan is not None:
        victims = tuple(victim.key for victim in plan.victims)
        evicting = Evicting(plan.node, victims, plan.violations, plan.message)
    return Result(diagnosis=outcome.diagnosis, evicting=evicting)


def _result_of_unit(outcome: UnitOutcome) -> Result:
    if isinstance(outcome, UnitPlaced):
        places = tuple(_place(each) for each in outcome.placed)
        return Result(places=places, waiting=outcome.waiting, domain=outcome.domain)
    evicting = Evicting(victims=outcome.evicting) if outcome.evicting else None
    return Result(diagnosis=outcome.diagnosis, evicting=evicting, failed=outcome.pod, fitting=outcome.fitting)


def _place(placed: Placed) -> Place:
    return Place(placed.pod, placed.node, placed.score, placed.volumes, placed.devices)


def _compare(at: str, was: Any, now: Any) -> list[str]:
    """Where two values differ, field by field, down to the first element of a list that does."""
    if was == now:
        return []
    if isinstance(was, msgspec.Struct) and type(was) is type(now):
        names = [field.name for field in msgspec.structs.fields(was)]
        return [
            difference
            for name in names
            for difference in _compare(f"{at}.{name}", getattr(was, name), getattr(now, name))
        ]
    if isinstance(was, dict) and isinstance(now, dict):
        keys = sorted({*was, *now}, key=str)
        return [difference for key in keys for difference in _compare(f"{at}.{key}", was.get(key), now.get(key))]
    if isinstance(was, tuple) and isinstance(now, tuple) and len(was) == len(now):
        pairs = enumerate(zip(was, now, strict=True))
        return next((difference for i, (one, other) in pairs if (difference := _compare(f"{at}[{i}]", one, other))), [])
    return [f"{at}: was {_short(was)}, now {_short(now)}"]


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else f"{text[:200]}…"
