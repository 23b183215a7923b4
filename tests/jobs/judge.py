"""What must never be, in any state of the cluster that somebody could read: used by tests and by the soak."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from fairlead.jobs.allocations import LEADER_PLACE, decode
from fairlead.jobs.pods import place_of
from fairlead.jobs.spec import FINISHED, JobPod, JobSpec, TYJob, parse_spec, parse_status

Json = dict[str, Any]


def judge(jobs: Iterable[Json], pods: Iterable[Json]) -> list[str]:
    """Complaints about one state: a gang with a part of its places, a pod outside its place, two leaders."""
    by_owner: dict[str, list[JobPod]] = {}
    for each in pods:
        pod = msgspec.convert(each, JobPod)
        if pod.metadata.controller is not None:
            by_owner.setdefault(pod.metadata.controller.uid, []).append(pod)
    return [complaint for each in jobs for complaint in _of_job(msgspec.convert(each, TYJob), by_owner)]


def _of_job(job: TYJob, by_owner: dict[str, list[JobPod]]) -> Iterator[str]:
    spec, (status, _) = parse_spec(job), parse_status(job)
    if not isinstance(spec, JobSpec) or status.stage in FINISHED:
        return
    key = job.metadata.key
    places = decode(status.allocations, spec)
    if places and (len(places) < min(status.quorum or spec.quorum, spec.quorum) or LEADER_PLACE not in places):
        yield f"{key}: {len(places)} places of a quorum of {status.quorum}"
    pods = [pod for pod in by_owner.get(job.metadata.uid, []) if not pod.is_terminating and not pod.is_finished]
    if sum(place_of(pod) == LEADER_PLACE for pod in pods) > 1:
        yield f"{key}: two leaders"
    for pod in pods:
        place, node = place_of(pod), pod.spec.node_name
        is_current = pod.metadata.annotations.get("fairlead.io/attempt") == str(status.attempt)
        if node and is_current and place is not None and place in places and places[place] != node:
            yield f"{key}: {pod.metadata.name} is on {node}, its place is on {places[place]}"
