"""What admission makes of a job's pods: each template is created once with dryRun before the job is planned.

Priorities, defaults, tolerations and side-cars decide where a pod fits, and only the server knows them all.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ApiError, ClusterError
from fairlead.jobs.allocations import LEADER_PLACE
from fairlead.jobs.pods import pod_body
from fairlead.jobs.spec import LONGEST_NAME, JobSpec, JobStatus
from fairlead.jobs.units import Planned
from fairlead.model.kinds import Kind
from fairlead.model.meta import ObjectMeta
from fairlead.model.pod import SchedulerPod
from fairlead.model.quantity import QuantityError
from fairlead.model.resources import pod_requests

TRIAL_S: Final = 5.0
# What is refused now may soon be allowed: a quota, a PriorityClass that is created later.
REFUSED_S: Final = 10.0
_SUFFIX: Final = "-trial"

PODS: Final = Kind("", "v1", "pods", "Pod", SchedulerPod)


@dataclass(frozen=True, slots=True)
class Trial:
    """The pods by worker set ("" is the leader), or why the server refuses one of them."""

    uid: str
    templates: Any
    planned: Planned
    problem: str = ""
    until_s: float = 0.0


class Trials:
    def __init__(self, client: Client, clock: Clock, scheduler: str) -> None:
        self._client = client
        self._clock = clock
        self._scheduler = scheduler
        self._known: dict[str, Trial] = {}

    def known(self, metadata: ObjectMeta, spec: JobSpec) -> Trial | None:
        """The trial of the job with these very templates, while it holds."""
        trial = self._known.get(metadata.key)
        if trial is None or trial.uid != metadata.uid or trial.templates != _templates(spec):
            return None
        return None if trial.problem and trial.until_s <= self._clock.elapsed_s() else trial

    def planned(self, metadata: ObjectMeta, spec: JobSpec) -> Planned | None:
        """The pods as the server would store them; None where it refuses one of them, or was not asked."""
        trial = self.known(metadata, spec)
        return trial.planned if trial is not None and not trial.problem else None

    def untried(self, metadata: ObjectMeta, spec: JobSpec) -> Planned:
        """The pods as the templates say, without what admission adds."""
        return {name: msgspec.convert(body, SchedulerPod) for name, body in self._bodies(metadata, spec).items()}

    async def attempt(self, metadata: ObjectMeta, spec: JobSpec) -> Trial:
        planned: dict[str, SchedulerPod] = {}
        problem = ""
        for name, body in self._bodies(metadata, spec).items():
            body["metadata"]["name"] = body["metadata"]["name"][: LONGEST_NAME - len(_SUFFIX)] + _SUFFIX
            try:
                async with asyncio.timeout(TRIAL_S):
                    planned[name] = await self._client.create(PODS, body, metadata.namespace, dry_run=True)
                pod_requests(planned[name])
            except QuantityError as mistake:
                problem = str(mistake)
            except TimeoutError:
                problem = f"the server did not answer a trial (dryRun) of a pod within {TRIAL_S:g} s"
            except ApiError as refusal:
                problem = refusal.status.message or str(refusal)
            except ClusterError as trouble:
                problem = str(trouble)
            if problem:
                part = f"worker set {name}" if name else "leader"
                problem = f"{part}: {problem.replace(body['metadata']['name'], part)}"
                break
        trial = Trial(metadata.uid, _templates(spec), planned, problem, self._clock.elapsed_s() + REFUSED_S)
        self._known[metadata.key] = trial
        return trial

    def forget(self, key: str) -> None:
        self._known.pop(key, None)

    def _bodies(self, metadata: ObjectMeta, spec: JobSpec) -> dict[str, dict[str, Any]]:
        places = [LEADER_PLACE, *((each.name, 0) for each in spec.worker_sets)]
        # Without an index and an attempt: the pods of a set must look the same.
        bodies = {place[0]: pod_body(metadata, spec, JobStatus(), place, self._scheduler) for place in places}
        return {name: msgspec.json.decode(msgspec.json.encode(body)) for name, body in bodies.items()}


def _templates(spec: JobSpec) -> Any:
    return [spec.leader, spec.volumes, *((each.name, each.template) for each in spec.worker_sets)]
