"""DaemonSets: one pod on every eligible node, replaced node by node when the template changes.

A pod is made for its node by an affinity to the node's name, and placed there by the scheduler. Which nodes count
is asked of each node: selector, affinity and taints, nothing that depends on what else runs there.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from fairlead.cluster.controller import Controller
from fairlead.cluster.mirror import Delta
from fairlead.cluster.shell import BURST, claimed_keys
from fairlead.local.controllers.mirrors import ControllerContext
from fairlead.local.controllers.pods import available_in_s, create_pod, delete_pod, is_available, wake_after
from fairlead.local.controllers.revisions import HASH, Revision, plan_history, plan_revision
from fairlead.local.controllers.spec import (
    DAEMON_SETS,
    NODES,
    PODS,
    REVISIONS,
    ControllerPod,
    ControllerRevision,
    DaemonSet,
    Json,
    Node,
    Toleration,
    selector_of,
    share_of,
)
from fairlead.local.controllers.statuses import plan_status
from fairlead.model.intents import Intent, event
from fairlead.model.meta import ApiStruct
from fairlead.model.node import Node as SchedulerNode
from fairlead.model.owners import claim
from fairlead.model.pod import Affinity
from fairlead.model.selectors import Selector
from fairlead.model.taints import CORDON, NO_EXECUTE, NO_SCHEDULE, is_tolerated
from fairlead.model.templates import fresh_name, pod_body
from fairlead.model.times import seconds_since
from fairlead.nodes.admission import matches_node

GENERATION_LABEL: Final = "pod-template-generation"
GENERATION: Final = "deprecated.daemonset.template.generation"
# What every daemon bears, so that it is there when nothing else can be.
BORNE: Final = (
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/unschedulable", NO_SCHEDULE),
)
NETWORK: Final = ("node.kubernetes.io/network-unavailable", NO_SCHEDULE)
# A pod that ends at once is not made again at once.
REST_S: Final = 5.0


class Placing(ApiStruct):
    """What of a template decides which nodes its daemon runs on."""

    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    host_network: bool = False


@dataclass(frozen=True, slots=True)
class DaemonSetInput:
    daemons: DaemonSet
    selector: Selector
    nodes: tuple[Node, ...]
    pods: tuple[ControllerPod, ...]  # its own, and those nobody controls
    revisions: tuple[ControllerRevision, ...]
    names_taken: frozenset[str] = frozenset()  # revisions of the namespace


@dataclass(slots=True)
class Site:
    """One node: whether a daemon may come, may stay, and which are there."""

    node: str
    may_come: bool
    may_stay: bool
    pods: list[ControllerPod] = field(default_factory=list)


def plan_daemon_set(seen: DaemonSetInput, now: datetime) -> list[Intent]:
    daemons, metadata = seen.daemons, seen.daemons.metadata
    mine, intents = claim(DAEMON_SETS, metadata, seen.selector, PODS, seen.pods)
    history, adopted = claim(DAEMON_SETS, metadata, seen.selector, REVISIONS, seen.revisions)
    revision = plan_revision(DAEMON_SETS, daemons, history, seen.names_taken)
    intents += adopted
    sites = _sites(seen, mine)
    plan = Daemons(seen, revision, sites, now)
    if not daemons.is_terminating:
        intents += revision.intents
        if not revision.is_collision:
            plan.keep_one_each()
            if not plan.changes and daemons.spec.update_strategy.type == "RollingUpdate":
                plan.update()
            intents += plan.changes
        hashes = {pod.metadata.labels.get(HASH, "") for pod in mine} | {revision.hash}
        live = {found.metadata.name for found in history if found.metadata.labels.get(HASH, "") in hashes}
        intents += plan_history(history, live | {revision.name}, daemons.spec.revision_history_limit)
    intents += plan_status(DAEMON_SETS, daemons, plan.status())
    waits = [available_in_s(pod, daemons.spec.min_ready_seconds, now) for pod in mine if pod.is_ready]
    return [*intents, *wake_after([*plan.waits, *waits])]


def _sites(seen: DaemonSetInput, mine: Iterable[ControllerPod]) -> list[Site]:
    placing = msgspec.convert(seen.daemons.spec.template.get("spec") or {}, Placing)
    on_node: dict[str, list[ControllerPod]] = defaultdict(list)
    for pod in mine:
        on_node[target_node(pod)].append(pod)
    sites = []
    for node in sorted(seen.nodes, key=lambda node: node.metadata.name):
        name = node.metadata.name
        pods = on_node.pop(name, [])
        sites.append(Site(name, *fits(placing, node), sorted(pods, key=_age)))
    # Bound to nodes that are no more: whoever looks after lost pods takes those; unbound ones go with their site.
    sites += [Site(name, False, False, pods) for name, pods in sorted(on_node.items())]
    return sites


def _age(pod: ControllerPod) -> tuple[bool, str, str]:
    return not pod.spec.node_name, pod.metadata.creation_timestamp or "", pod.metadata.name


def target_node(pod: ControllerPod) -> str:
    """The node a daemon is on, or was made for."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = (pod.spec.affinity or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for expression in term.get("matchFields") or ():
            is_name = expression["key"] == "metadata.name" and expression["operator"] == "In"
            if is_name and len(expression["values"]) == 1:
                return str(expression["values"][0])
    return ""


def fits(placing: Placing, node: Node | SchedulerNode) -> tuple[bool, bool]:
    """Whether a daemon may come to the node, and whether one that is there may stay."""
    if placing.node_name and placing.node_name != node.metadata.name:
        return False, False
    if not matches_node(placing.node_selector, placing.affinity, node.metadata):
        return False, False
    tolerations = [*(placing.tolerations or ()), *_borne(placing.host_network)]
    taints = [taint for taint in node.spec.taints or () if not is_tolerated(taint, tolerations)]
    may_stay = not any(taint.effect == NO_EXECUTE for taint in taints)
    may_come = may_stay and not any(taint.effect == NO_SCHEDULE for taint in taints)
    if node.spec.unschedulable and not is_tolerated(CORDON, tolerations):
        may_come = False
    return may_come, may_stay


def nodes_for(spec: Mapping[str, Any], nodes: Iterable[Node | SchedulerNode]) -> list[str]:
    """The nodes that get a daemon with this spec of a pod, by name."""
    placing = msgspec.convert(spec, Placing)
    return sorted(node.metadata.name for node in nodes if fits(placing, node)[0])


def spec_for(node: str, spec: Mapping[str, Any]) -> Json:
    """The spec of the daemon for one node: held to it, and tolerating what daemons tolerate."""
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = dict(spec.get("affinity") or {})
    affinity["nodeAffinity"] = {
        **(affinity.get("nodeAffinity") or {}),
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]},
    }
    held = list(spec.get("tolerations") or ())
    borne = [msgspec.to_builtins(found) for found in _borne(bool(spec.get("hostNetwork")))]
    tolerations = [*held, *(found for found in borne if found not in held)]
    return {**spec, "affinity": affinity, "tolerations": tolerations}


def _borne(host_network: bool) -> list[Toleration]:
    every = (*BORNE, NETWORK) if host_network else BORNE
    return [Toleration(key=key, operator="Exists", effect=effect) for key, effect in every]


class Daemons:
    def __init__(self, seen: DaemonSetInput, revision: Revision, sites: list[Site], now: datetime) -> None:
        self._seen = seen
        self._owner = seen.daemons.metadata
        self._spec = seen.daemons.spec
        self._revision = revision
        self._sites = sites
        self._now = now
        self._made = 0
        self.changes: list[Intent] = []
        self.waits: list[float] = []

    # -- what must be there ---------------------------------------------------------------------------------

    def keep_one_each(self) -> None:
        for site in self._sites:
            going = [pod for pod in site.pods if pod.is_terminating]
            staying = [pod for pod in site.pods if not pod.is_terminating]
            if not site.may_stay:
                for pod in staying:
                    self._delete(pod)
                continue
            ended = [pod for pod in staying if pod.is_finished]
            living = [pod for pod in staying if not pod.is_finished]
            for pod in ended:
                self._replace_ended(pod)
            for pod in self._surplus(living):
                self._delete(pod)
            if site.may_come and not staying and not going:
                self._create(site.node)

    def _replace_ended(self, pod: ControllerPod) -> None:
        rest_s = REST_S - seconds_since(pod.metadata.creation_timestamp, self._now)
        if rest_s > 0:
            self.waits.append(rest_s)
            return
        self._delete(pod)
        note = f"Found {pod.status.phase.lower()} daemon pod {pod.metadata.key} on node {pod.spec.node_name}"
        reason = f"{pod.status.phase}DaemonPod"
        self.changes.append(event(DAEMON_SETS, self._owner, reason, f"{note}, will try to kill it"))

    def _surplus(self, living: list[ControllerPod]) -> list[ControllerPod]:
        """All but the oldest; while surging an old pod stays until its successor is available."""
        if not self._surge:
            return living[1:]
        old = [pod for pod in living if not self._is_new(pod)]
        new = [pod for pod in living if self._is_new(pod)]
        is_relieved = bool(new) and self._is_available(new[0])
        return [*(old if is_relieved else old[1:]), *new[1:]]

    # -- moving to a new template ---------------------------------------------------------------------------

    def update(self) -> None:
        desired = [site for site in self._sites if site.may_come]
        if self._surge:
            self._update_by_surge(desired)
            return
        budget = self._unavailable
        bad: list[ControllerPod] = []
        good: list[ControllerPod] = []
        for site in desired:
            old, new = self._old_and_new(site)
            if new is not None:
                budget -= not self._is_available(new)
            elif old is None:
                budget -= 1
            elif self._is_available(old):
                good.append(old)
            else:
                bad.append(old)
                budget -= 1
        for pod in [*bad, *good[: max(0, budget)]]:
            self._delete(pod)

    def _update_by_surge(self, desired: list[Site]) -> None:
        budget = self._surge
        bad: list[Site] = []
        good: list[Site] = []
        for site in desired:
            old, new = self._old_and_new(site)
            if old is None:
                continue
            if new is not None:
                budget -= 1
            elif self._is_available(old):
                good.append(site)
            else:
                bad.append(site)
        for site in [*bad, *good[: max(0, budget)]]:
            self._create(site.node)

    def _old_and_new(self, site: Site) -> tuple[ControllerPod | None, ControllerPod | None]:
        """The site's daemons of an earlier template and of this one."""
        living = [pod for pod in site.pods if pod.is_active]
        old = next((pod for pod in living if not self._is_new(pod)), None)
        return old, next((pod for pod in living if self._is_new(pod)), None)

    @property
    def _surge(self) -> int:
        rolling = self._spec.update_strategy.rolling_update
        if self._spec.update_strategy.type != "RollingUpdate" or rolling is None:
            return 0
        return share_of(rolling.max_surge, self._desired, up=True)

    @property
    def _unavailable(self) -> int:
        rolling = self._spec.update_strategy.rolling_update
        value = rolling.max_unavailable if rolling is not None else None
        return max(1, share_of(1 if value is None else value, self._desired, up=True))

    @property
    def _desired(self) -> int:
        return sum(site.may_come for site in self._sites)

    def _is_new(self, pod: ControllerPod) -> bool:
        return pod.metadata.labels.get(HASH) == self._revision.hash

    def _is_available(self, pod: ControllerPod) -> bool:
        return is_available(pod, self._spec.min_ready_seconds, self._now)

    # -- as intents -----------------------------------------------------------------------------------------

    def _delete(self, pod: ControllerPod) -> None:
        self.changes += delete_pod(DAEMON_SETS, self._owner, pod)

    def _create(self, node: str) -> None:
        if self._made >= BURST:
            return
        name = fresh_name(self._owner, self._now, self._made)
        self._made += 1
        self.changes += create_pod(DAEMON_SETS, self._owner, self._body(name, node))

    def _body(self, name: str, node: str) -> Json:
        body = pod_body(DAEMON_SETS, self._owner, self._spec.template, name)
        body["metadata"]["labels"][HASH] = self._revision.hash
        if generation := self._owner.annotations.get(GENERATION):
            body["metadata"]["labels"][GENERATION_LABEL] = generation
        body["spec"] = spec_for(node, body["spec"])
        return body

    def status(self) -> Json:
        desired = [site for site in self._sites if site.may_come]
        kept = [[pod for pod in site.pods if not pod.is_terminating] for site in desired]
        ready = [pods for pods in kept if any(pod.is_ready for pod in pods)]
        available = sum(any(self._is_available(pod) for pod in pods) for pods in kept)
        collisions = self._seen.daemons.count("collisionCount") + self._revision.is_collision
        return {
            "desiredNumberScheduled": len(desired),
            "currentNumberScheduled": sum(bool(pods) for pods in kept),
            "numberMisscheduled": sum(not site.may_come and bool(site.pods) for site in self._sites),
            "numberReady": len(ready),
            "updatedNumberScheduled": sum(any(self._is_new(pod) for pod in pods) for pods in kept) or None,
            "numberAvailable": available or None,
            "numberUnavailable": len(desired) - available or None,
            "observedGeneration": self._owner.generation,
            "collisionCount": collisions or None,
        }


def daemon_set_controller(context: ControllerContext) -> Controller:
    sets, pods = context.mirrors.of(DAEMON_SETS), context.mirrors.of(PODS)
    nodes, revisions = context.mirrors.of(NODES), context.mirrors.of(REVISIONS)

    def see(key: str) -> DaemonSetInput | None:
        daemons = sets.get(key)
        selector = selector_of(daemons) if daemons is not None else None
        if daemons is None or selector is None:
            return None
        metadata = daemons.metadata
        return DaemonSetInput(
            daemons,
            selector,
            tuple(nodes),
            context.mirrors.claimable(PODS, metadata),
            context.mirrors.claimable(REVISIONS, metadata),
            frozenset(found.metadata.name for found in revisions.by("namespace", metadata.namespace)),
        )

    def of_node(delta: Delta[Node]) -> Iterable[str]:
        """Every DaemonSet looks at a node that came, went, or changed in what decides; heartbeats decide nothing."""
        if delta.old is not None and delta.new is not None:
            before, after = delta.old, delta.new
            is_same = (before.metadata.labels, before.spec) == (after.metadata.labels, after.spec)
            if is_same and before.metadata.uid == after.metadata.uid:
                return ()
        return list(sets.keys())

    claimed = claimed_keys(sets, selector_of)
    return (
        context.controller(DAEMON_SETS, see, plan_daemon_set)
        .watches(sets)
        .watches(pods, claimed)
        .watches(revisions, claimed)
        .watches(nodes, of_node)
    )
