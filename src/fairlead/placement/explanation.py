"""What an explanation says, as values: told as JSON over HTTP, and as text by the command line."""

import msgspec


class Told(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Something told to people and programs."""


class RuleScore(Told, frozen=True):
    """`raw` as the rule counts; `normalised` 0 to 100, and that times the weight."""

    rule: str
    weight: int
    raw: int
    normalised: float
    weighted: float


class NodeScores(Told, frozen=True):
    """A feasible node: its total and what each rule gave it."""

    node: str
    total: float
    scores: tuple[RuleScore, ...] = ()


class NodeRefusal(Told, frozen=True):
    """A refused node: the first rule that refused it, every reason of that rule, and Kubernetes' word for it."""

    node: str
    rule: str
    reasons: tuple[str, ...]
    code: str


class ReasonCount(Told, frozen=True):
    """One reason and how many nodes it cost; evicting pods could not win back the `unresolvable` ones."""

    rule: str
    reason: str
    nodes: int
    unresolvable: int = 0
    examples: tuple[str, ...] = ()


class Difference(Told, frozen=True):
    """What a rule gave the chosen node more than the runner-up; below zero, less."""

    rule: str
    points: float


class WeightChange(Told, frozen=True):
    """The nearest weight of one rule with which another node would have been chosen, all else being equal."""

    rule: str
    weight: int
    instead: int
    node: str


class Room(Told, frozen=True):
    """What is free of a resource, in thousandths of a cpu, bytes, or pieces, and what is wanted."""

    resource: str
    wanted: int
    free: int
    short: int = 0


class Choice(Told, frozen=True):
    """Why this node: by score, or because it was cleared for the pod or promised to it."""

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


class NearMiss(Told, frozen=True):
    """A node that only lacks resources: with so much less asked for, or so much more there, it would do."""

    node: str
    short: tuple[Room, ...]
    # Asking for no more than is free here would make it fit; not where the number of pods is what is short.
    by_asking_less: bool


class Victim(Told, frozen=True):
    pod: str
    priority: int


class Clearing(Told, frozen=True):
    """Whether evicting pods would help, where, and whom it would cost."""

    helps: bool
    node: str = ""
    victims: tuple[Victim, ...] = ()
    budgets_broken: int = 0
    message: str = ""


class Cure(Told, frozen=True):
    """A change in the cluster after which the pod is looked at again."""

    change: str
    sentence: str


class Blockage(Told, frozen=True):
    """Why a pod has no node, how far the nearest one is, and what would help."""

    message: str
    misses: tuple[Room, ...] = ()
    nearest: tuple[NearMiss, ...] = ()
    wakeup_events: tuple[Cure, ...] = ()
    clearing: Clearing | None = None


class Explanation(Told, frozen=True):
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


class Waiting(Told, frozen=True):
    """Where a pod waits: active, backoff or unschedulable, as kube-scheduler names its queues, and how long."""

    queue: str
    waited_s: float
    attempts: int
    errors: int = 0
    # Until it is looked at again, if nothing happens before that; absent when it is in line now.
    next_try_in_s: float | None = None


class PromiseExplanation(Told, frozen=True):
    """Why a pod's node was promised to it, as it was when the request was planned."""

    request: str
    node: str
    reason: "PlaceReason"


class PlaceReason(Told, frozen=True):
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


class PodExplanation(Told, frozen=True):
    """What became of a pod and why. `of` is `decision` for the world it was decided in, `now` for the present one."""

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
    reservation: PromiseExplanation | None = None
    notes: tuple[str, ...] = ()


class Sheet(Told, frozen=True):
    """Every verdict and every score, as columns: what a replay compares."""

    feasible: tuple[str, ...]
    totals: tuple[int, ...]
    raw: dict[str, tuple[int, ...]]
    normalised: dict[str, tuple[int, ...]]
    silent: tuple[str, ...]
    refused: tuple[NodeRefusal, ...]
