"""Explanations as values: JSON over HTTP, text on the command line."""

import msgspec


class ExplanationPart(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A part of an explanation: JSON in camelCase, defaults left out."""


class RuleScore(ExplanationPart, frozen=True):
    """`raw` as the rule counts, null where it was not kept; `normalised` 0 to 100, and that times the weight."""

    rule: str
    weight: int
    raw: int | None
    normalised: float
    weighted: float


class NodeScores(ExplanationPart, frozen=True):
    """A feasible node: its total and what each rule gave it."""

    node: str
    total: float
    scores: tuple[RuleScore, ...] = ()


class NodeRefusal(ExplanationPart, frozen=True):
    """A refused node: the first rule that refused it, every reason of that rule, and Kubernetes' word for it."""

    node: str
    rule: str
    reasons: tuple[str, ...]
    code: str


class ReasonCount(ExplanationPart, frozen=True):
    """One reason and how many nodes it cost; evicting pods could not win back the `unresolvable` ones."""

    rule: str
    reason: str
    nodes: int
    unresolvable: int = 0
    examples: tuple[str, ...] = ()


class Difference(ExplanationPart, frozen=True):
    """What a rule gave the chosen node more than the runner-up; below zero, less."""

    rule: str
    points: float


class WeightChange(ExplanationPart, frozen=True):
    """The nearest weight of one rule with which another node would have been chosen, all else being equal."""

    rule: str
    weight: int
    instead: int
    node: str


class Room(ExplanationPart, frozen=True):
    """What is free of a resource, in thousandths of a cpu, bytes, or pieces, and what is requested."""

    resource: str
    requested: int
    free: int
    short: int = 0


class Choice(ExplanationPart, frozen=True):
    """Why this node: by score, or because it was cleared or reserved for the pod."""

    node: str
    by: str
    score: float
    runner_up: NodeScores | None = None
    # How far the runner-up is behind; at zero the pick decided.
    margin: float | None = None
    # Which of several that are level is taken: the first by name, or in turn, and then the how manieth turn it is.
    pick: str = "first"
    turn: int = 0
    decided_by: tuple[Difference, ...] = ()
    weight_changes: tuple[WeightChange, ...] = ()
    # With more than `free` of any of these the pod would not have fitted here.
    room: tuple[Room, ...] = ()


class NearMiss(ExplanationPart, frozen=True):
    """A node that only lacks resources: with that much less requested, or more free, the pod would fit."""

    node: str
    short: tuple[Room, ...]
    # Asking for no more than is free here would make it fit; not where the number of pods is what is short.
    by_asking_less: bool


class Victim(ExplanationPart, frozen=True):
    pod: str
    priority: int


class Clearing(ExplanationPart, frozen=True):
    """Whether evicting pods would help, where, and whom it would cost."""

    helps: bool
    node: str = ""
    victims: tuple[Victim, ...] = ()
    budgets_broken: int = 0
    message: str = ""


class WakeupEvent(ExplanationPart, frozen=True):
    """A change in the cluster after which the pod is tried again."""

    change: str
    sentence: str


class Blockage(ExplanationPart, frozen=True):
    """Why a pod has no node, how far the nearest one is, and what would help."""

    message: str
    misses: tuple[Room, ...] = ()
    nearest: tuple[NearMiss, ...] = ()
    wakeup_events: tuple[WakeupEvent, ...] = ()
    clearing: Clearing | None = None


class Explanation(ExplanationPart, frozen=True):
    pod: str
    profile: str
    nodes: int
    feasible: int
    choice: Choice | None = None
    blockage: Blockage | None = None
    # The best first; `refusals` counts everybody else.
    best: tuple[NodeScores, ...] = ()
    refusals: tuple[ReasonCount, ...] = ()
    refused: tuple[NodeRefusal, ...] = ()
    # Priorities with nothing to say about such pods.
    silent: tuple[str, ...] = ()
    scale: str = ""


class Waiting(ExplanationPart, frozen=True):
    """Where a pod waits: active, backoff or unschedulable, as kube-scheduler names its queues, and how long."""

    queue: str
    waited_s: float
    attempts: int
    errors: int = 0
    # Until it is tried again, if nothing happens before that; absent when it is in line now.
    next_try_in_s: float | None = None


class ReservationExplanation(ExplanationPart, frozen=True):
    """Why a node was reserved for the pod, as of when the request was planned."""

    request: str
    node: str
    reason: "PlaceReason"


class PlaceReason(ExplanationPart, frozen=True):
    """Why a place of a request is on its node: what `explain` tells of a pod, for a pod that was still to be made."""

    profile: str
    nodes: int
    feasible: int
    chosen: NodeScores
    scale: str
    runner_up: NodeScores | None = None
    margin: float | None = None
    decided_by: tuple[Difference, ...] = ()
    weight_changes: tuple[WeightChange, ...] = ()
    room: tuple[Room, ...] = ()
    refusals: tuple[ReasonCount, ...] = ()
    pick: str = "first"
    turn: int = 0


class PodExplanation(ExplanationPart, frozen=True):
    """Where a pod is and why. `of` is `decision` for the snapshot it was decided on, `now` for the cluster."""

    pod: str
    scheduler: str
    # Placed, Pending, Gated, Elsewhere (another scheduler's) or Gone.
    state: str
    of: str
    explanation: Explanation | None = None
    node: str = ""
    decision: str = ""
    at: str = ""
    waiting: Waiting | None = None
    reservation: ReservationExplanation | None = None
    notes: tuple[str, ...] = ()


class Sheet(ExplanationPart, frozen=True):
    """Every verdict and every score, as columns: what a replay compares."""

    feasible: tuple[str, ...]
    totals: tuple[int, ...]
    raw: dict[str, tuple[int, ...]]
    normalised: dict[str, tuple[int, ...]]
    silent: tuple[str, ...]
    refused: tuple[NodeRefusal, ...]
