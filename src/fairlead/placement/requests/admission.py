"""What admission adds to a pod, learnt by a create that the server only tries (dryRun=All).

Defaults, priorities, tolerations, side-cars and labels decide where a pod can go, and only the server knows them all.
A trial is bounded in time and remembered by what was sent; where it is refused the plan goes on without it and the
request says so.
"""

import asyncio
import hashlib
from typing import Any, Final

import msgspec

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ClusterError, Forbidden
from fairlead.model.pod import SchedulerPod
from fairlead.placement.spec import PODS

TRIAL_S: Final = 3.0
# Admission may be changed any time, and what is refused now may soon be allowed.
REMEMBERED_S: Final = 60.0
REFUSED_S: Final = 10.0
MOST_REMEMBERED: Final = 256


class Unadmitted(msgspec.Struct, frozen=True):
    """Why it is not known what admission adds: `reason` for a condition, and a sentence."""

    reason: str
    sentence: str


class Admission:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        # By what was sent: until when it holds, and what was answered.
        self._known: dict[str, tuple[float, SchedulerPod | Unadmitted]] = {}

    async def admitted(self, namespace: str, body: dict[str, Any]) -> SchedulerPod | Unadmitted:
        """The pod as the server would store it."""
        sent = hashlib.sha256(namespace.encode() + b"\0" + msgspec.json.encode(body)).hexdigest()
        now_s = self._clock.elapsed_s()
        known = self._known.get(sent)
        if known is not None and known[0] > now_s:
            return known[1]
        answer = await self._try(namespace, body)
        if len(self._known) >= MOST_REMEMBERED:
            self._known = {key: each for key, each in self._known.items() if each[0] > now_s}
            while len(self._known) >= MOST_REMEMBERED:
                del self._known[next(iter(self._known))]
        self._known[sent] = (now_s + (REMEMBERED_S if isinstance(answer, SchedulerPod) else REFUSED_S), answer)
        return answer

    async def _try(self, namespace: str, body: dict[str, Any]) -> SchedulerPod | Unadmitted:
        try:
            async with asyncio.timeout(TRIAL_S):
                return await self._client.create(PODS, body, namespace, dry_run=True)
        except TimeoutError:
            return Unadmitted("Timeout", f"the server did not answer a trial (dryRun) within {TRIAL_S:g} s")
        except Forbidden as problem:
            return _refused(problem, namespace)
        except ClusterError as problem:
            return Unadmitted("TrialRefused", f"the server refused a trial (dryRun) of the pod: {problem}")


def _refused(problem: Forbidden, namespace: str) -> Unadmitted:
    """Whether we may not try, or the pod itself would be refused: by a quota, a security standard, a webhook."""
    if "cannot create resource" in str(problem):
        return Unadmitted(
            "Forbidden",
            f"Fairlead may not create pods in namespace {namespace}, not even on trial (dryRun): apply "
            "deploy/rbac/requests.yaml",
        )
    return Unadmitted("PodRefused", f"the server would refuse such a pod: {problem}")
