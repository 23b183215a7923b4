"""A rolling update keeps its promise whatever the controllers see late.

Deployment and ReplicaSet controllers take turns at random, each on a view that may lag behind the server by any
number of versions but never behind its own last write. Some images never become available.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.local.controllers.deployments import DeploymentInput, plan_deployment
from fairlead.local.controllers.spec import DEPLOYMENTS, REVISION, Deployment, ReplicaSet, share_of
from fairlead.model.intents import Create, Patch
from fairlead.model.owners import controller_reference
from fairlead.model.templates import HASH_LABEL
from tests.local.controllers.builders import APP, NOW, SELECTOR, template, workload

DESIRED = "deployment.kubernetes.io/desired-replicas"


@dataclass(slots=True)
class Versions:
    """One ReplicaSet on the server: every version of it, and what its pods are really like."""

    image: str
    history: list[dict[str, Any]]
    pods: list[bool] = field(default_factory=list)  # whether each is available
    deployment_at: int = 0  # the oldest versions that either controller may still see
    own_at: int = 0

    @property
    def latest(self) -> dict[str, Any]:
        return self.history[-1]

    def write(self, **changes: Any) -> None:
        self.history.append({**self.latest, **changes})


class Cluster:
    def __init__(self, replicas: int, surge: int | str, unavailable: int | str, luck: Random) -> None:
        self.replicas, self.luck = replicas, luck
        self.rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
        allowed = share_of(unavailable, replicas, up=False)
        self.least = replicas - (allowed if allowed or share_of(surge, replicas, up=True) else 1)
        self.most = replicas + share_of(surge, replicas, up=True)
        self.image = "good0"
        first = {"size": replicas, "generation": 1, "revision": 1, "R": replicas, "A": replicas, "observed": 1}
        self.sets = [Versions("good0", [first], [True] * replicas)]

    @property
    def available(self) -> int:
        return sum(sum(found.pods) for found in self.sets)

    # -- the two controllers -----------------------------------------------------------------------------

    def deployment_step(self, *, late: bool = True) -> None:
        owner = self._deployment()
        views = {found.image: self._seen(found, "deployment_at", late) for found in self.sets}
        shown = [_decoded(owner, found, views[found.image]) for found in self.sets]
        seen = DeploymentInput(owner, SELECTOR, tuple(shown))
        for intent in plan_deployment(seen, NOW):
            if isinstance(intent, Create):
                size, revision = intent.body["spec"]["replicas"], int(intent.body["metadata"]["annotations"][REVISION])
                made = {"size": size, "generation": 1, "revision": revision, "R": 0, "A": 0, "observed": 0}
                self.sets.append(Versions(self.image, [made]))
            elif isinstance(intent, Patch) and intent.kind.kind == "ReplicaSet":
                self._patch(next(found for found in self.sets if f"web-{found.image}" == intent.name), intent, views)

    def _patch(self, found: Versions, intent: Patch, views: dict[str, int]) -> None:
        if views[found.image] != len(found.history) - 1:
            return  # somebody else has written it meanwhile: a conflict, and another look
        spec = intent.patch.get("spec", {})
        notes = intent.patch.get("metadata", {}).get("annotations", {})
        changes: dict[str, Any] = {"revision": int(notes.get(REVISION, found.latest["revision"]))}
        if "replicas" in spec:
            changes |= {"size": spec["replicas"], "generation": found.latest["generation"] + 1}
        found.write(**changes)
        found.deployment_at = len(found.history) - 1

    def replica_set_step(self, found: Versions, *, late: bool = True) -> None:
        """Status as it was before this look's own deletes and creates, as ReplicaSet controllers write it."""
        at = self._seen(found, "own_at", late)
        view = found.history[at]
        counts = {"R": len(found.pods), "A": sum(found.pods), "observed": view["generation"]}
        # The unavailable ones go first.
        found.pods.sort(reverse=True)
        del found.pods[view["size"] :]
        found.pods += [False] * (view["size"] - len(found.pods))
        if at == len(found.history) - 1 and any(view[name] != value for name, value in counts.items()):
            found.write(**counts)
            found.own_at = len(found.history) - 1

    def pod_step(self) -> None:
        waiting = [found for found in self.sets if found.image.startswith("good") and not all(found.pods)]
        if waiting:
            pods = self.luck.choice(waiting).pods
            pods[pods.index(False)] = True

    def _seen(self, found: Versions, who: str, late: bool) -> int:
        newest = len(found.history) - 1
        at = self.luck.randint(getattr(found, who), newest) if late else newest
        setattr(found, who, at)
        return at

    def _deployment(self) -> Deployment:
        strategy = {"type": "RollingUpdate", "rollingUpdate": self.rolling}
        labelled = template(self.image)
        return workload(Deployment, replicas=self.replicas, strategy=strategy, template=labelled)


def _decoded(owner: Deployment, found: Versions, at: int) -> ReplicaSet:
    view = found.history[at]
    meta = {
        "labels": {**APP, HASH_LABEL: found.image},
        "annotations": {REVISION: str(view["revision"]), DESIRED: str(owner.spec.replicas)},
        "ownerReferences": [controller_reference(DEPLOYMENTS, owner.metadata)],
        "generation": view["generation"],
        "resourceVersion": str(at),
    }
    counts = {"replicas": view["R"], "readyReplicas": view["A"], "availableReplicas": view["A"]}
    return workload(
        ReplicaSet,
        f"web-{found.image}",
        meta=meta,
        replicas=view["size"],
        template=template(found.image, labels={**APP, HASH_LABEL: found.image}),
        status={**counts, "observedGeneration": view["observed"]},
    )


@settings(deadline=None, max_examples=150)  # the machine may be busy
@given(
    replicas=st.integers(1, 12),
    surge=st.sampled_from([0, 1, 3, "25%", "100%"]),
    unavailable=st.sampled_from([0, 1, 2, "25%", "50%"]),
    seed=st.integers(0, 2**32),
)
def test_availability_is_kept_whatever_is_seen_late(
    replicas: int, surge: int | str, unavailable: int | str, seed: int
) -> None:
    luck = Random(seed)
    cluster = Cluster(replicas, surge, unavailable, luck)
    for step in range(80):
        match luck.choices(("deployment", "replica set", "pod", "template"), (5, 5, 4, 1))[0]:
            case "deployment":
                cluster.deployment_step()
            case "replica set":
                cluster.replica_set_step(luck.choice(cluster.sets))
            case "pod":
                cluster.pod_step()
            case "template":
                cluster.image = luck.choice([f"bad{step % 3}", f"good{step % 3}"])
        assert cluster.available >= cluster.least, (step, [found.latest for found in cluster.sets])
        assert sum(found.latest["size"] for found in cluster.sets) <= cluster.most
    cluster.image = "good0"
    for _ in range(40 * replicas):
        cluster.deployment_step(late=False)
        for found in cluster.sets:
            cluster.replica_set_step(found, late=False)
        cluster.pod_step()
        assert cluster.available >= cluster.least
    assert {found.image: found.latest["size"] for found in cluster.sets if found.latest["size"]} == {"good0": replicas}
