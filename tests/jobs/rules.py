"""The rules of the TYJob definition, each with the message that a server gives, on the embedded and on a real one."""

from typing import Any, Final

from fairlead.cluster.client import Client
from fairlead.cluster.errors import ApiError
from fairlead.jobs.definition import definitions
from fairlead.jobs.spec import JOB_QUEUES, NO_AMOUNT, NO_LABEL, NO_RESOURCE, TYJOBS
from fairlead.model.kinds import DEFINITIONS
from tests.jobs.kit import spec_json, template

Json = dict[str, Any]

LEADER: Final[Json] = {"name": "learner", "template": template()}


def leader(**pod: Any) -> Json:
    return {"name": "learner", "template": template(**pod)}


def policy(**fields: str) -> Json:
    return spec_json(schedulerPolicy=fields)


GREEDY = {"name": "m", "image": "x", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}}}
VOLUME = {"name": "v", "emptyDir": {}}
ALL_POLICIES = "must be one of Gang, BinPack, LeaderFirst, MinFragment, JobAffinity, JobAntiAffinity"

REJECTED: Final[dict[str, tuple[Json, str]]] = {
    "s09 priority 0": (
        spec_json(priority=0),
        "spec.priority: Invalid value: 0: spec.priority in body should be greater than or equal to 1",
    ),
    "s09 priority 11": (
        spec_json(priority=11),
        "spec.priority: Invalid value: 11: spec.priority in body should be less than or equal to 10",
    ),
    "s10 counts 0": (spec_json(0), "spec.workerSets[0].counts: Invalid value: 0"),
    "s11 basicPolicy": (policy(basicPolicy="MinFragmen"), f"{ALL_POLICIES}; did you mean MinFragment?"),
    "s11 basicPolicy, two are near": (
        policy(basicPolicy="Jobaffinity"),
        f"{ALL_POLICIES}; did you mean JobAffinity or JobAntiAffinity?",
    ),
    "s11 basicPolicy, none is near": (policy(basicPolicy="Best"), ALL_POLICIES),
    "s12 jobQueuePolicy": (policy(jobQueuePolicy="drf"), "must be one of Priority, DRF; did you mean DRF?"),
    "cleanPodPolicy": (
        spec_json(cleanPodPolicy="all"),
        'spec.cleanPodPolicy: Invalid value: "all": must be one of Running, All, None; did you mean All?',
    ),
    "addressMode": (spec_json(addressMode="dns"), "must be one of DNS, IP; did you mean DNS?"),
    "drfBasis": (policy(drfBasis="allocate"), "must be one of request, allocated; did you mean allocated?"),
    "s13 minWorkersNum": (
        spec_json(2, minWorkersNum=3),
        "must not be more than all workers, the sum of workerSets[].counts",
    ),
    "too many workers in all sets": (
        spec_json(workerSets=[{"name": f"s{n}", "counts": 9_000, "template": template()} for n in range(2)]),
        "must not have more than 10000 workers in all, the sum of workerSets[].counts",
    ),
    "minWorkersNum −1": (
        spec_json(minWorkersNum=-1),
        "spec.minWorkersNum in body should be greater than or equal to 0",
    ),
    "s14 duplicate sets": (
        spec_json(workerSets=[{"name": "a", "template": template()}] * 2),
        "spec.workerSets[1]: Duplicate value",
    ),
    "s14 a set called like the leader": (
        spec_json(leader={**LEADER, "name": "actors"}),
        "a worker set must not have the leader's name",
    ),
    "a leader called like a worker": (
        spec_json(leader={**LEADER, "name": "actors-0"}),
        "must not be a worker set's name with a number",
    ),
    "s15 no sets": (spec_json(workerSets=[]), "spec.workerSets"),
    "s16 no containers": (spec_json(leader=leader(containers=[])), "spec.leader.template.spec.containers"),
    "s18 restartLimit −1": (spec_json(restartLimit=-1), "spec.restartLimit"),
    "s19 nodeName": (
        spec_json(leader=leader(nodeName="n1")),
        'spec.leader.template.spec.nodeName: Invalid value: "n1": must not be set: the scheduler chooses nodes',
    ),
    "a name that is no label": (spec_json(leader={**LEADER, "name": "The_Leader"}), "spec.leader.name"),
    "a volume twice": (
        spec_json(volumes=[VOLUME], leader=leader(volumes=[VOLUME])),
        "must not have a volume of the same name as one of spec.volumes",
    ),
    "a worker's volume twice": (
        spec_json(volumes=[VOLUME], workerSets=[{"name": "a", "template": template(volumes=[VOLUME])}]),
        "a template must not have a volume of the same name as one of spec.volumes",
    ),
    "requests above limits": (
        spec_json(leader=leader(containers=[GREEDY])),
        "resources.requests must not be more than resources.limits",
    ),
    "placement without Gang": (policy(basicPolicy="BinPack", placement="BinPack"), "only with basicPolicy Gang"),
}

LONG_NAME: Final = "j" * 56
TOO_LONG: Final = "pod names, <job>-<leader> and <job>-<worker set>-<index>, must not be longer than 63 characters"

CHANGES: Final[dict[str, tuple[Json, str]]] = {
    "leader": ({"leader": leader(hostNetwork=True)}, "cannot be changed after the job has left Pending"),
    "template of a set": (
        {"workerSets": [{"name": "actors", "counts": 2, "template": template(hostNetwork=True)}]},
        "names and templates cannot be changed after the job has left Pending",
    ),
    "name of a set": (
        {"workerSets": [{"name": "others", "counts": 2, "template": template()}]},
        "names and templates cannot be changed after the job has left Pending",
    ),
    "volumes": ({"volumes": [VOLUME]}, "cannot be changed after the job has left Pending"),
    "basicPolicy": (
        {"schedulerPolicy": {"basicPolicy": "Gang"}},
        "basicPolicy cannot be changed after the job has left Pending",
    ),
    "s46 fewer workers than needed": (
        {"minWorkersNum": 3},
        "must not be more than all workers",
    ),
}
ALLOWED: Final[Json] = {
    "workerSets": [{"name": "actors", "counts": 5, "template": template()}],
    "minWorkersNum": 4,
    "priority": 7,
    "terminating": True,
    "cleanPodPolicy": "None",
    "restartLimit": 0,
    "suspend": True,
}


def body(name: str, spec: Json) -> Json:
    return {"apiVersion": TYJOBS.api_version, "kind": TYJOBS.kind, "metadata": {"name": name}, "spec": spec}


async def define(client: Client) -> None:
    for each in definitions():
        await client.apply(DEFINITIONS, each["metadata"]["name"], each)


async def refusal(client: Client, namespace: str, name: str, spec: Json) -> str:
    try:
        await client.create(TYJOBS, body(name, spec), namespace)
    except ApiError as problem:
        return problem.status.message
    return "accepted"


async def wrong_refusals(client: Client, namespace: str) -> list[str]:
    """Rules that do not answer as they should, with what they answered; none where all do."""
    found = []
    for rule, (spec, message) in REJECTED.items():
        told = await refusal(client, namespace, "bad", spec)
        if message not in told:
            found.append(f"{rule}: {told}")
    told = await refusal(client, namespace, LONG_NAME, spec_json(11))
    found += [] if TOO_LONG in told else [f"s17: {told}"]
    told = await refusal(client, namespace, "with.dots", spec_json(1))
    return [*found, *([] if f"metadata.name {NO_LABEL}" in told else [f"dots: {told}"])]


async def wrong_changes(client: Client, namespace: str) -> list[str]:
    """What may change while a job is Pending, and what may not afterwards."""
    await client.create(TYJOBS, body("job", spec_json(2, restartLimit=0)), namespace)
    patch = {"spec": {"leader": leader(terminationGracePeriodSeconds=1)}}
    pending = await client.patch(TYJOBS, "job", patch, namespace)
    found = [] if pending.spec["leader"]["template"]["spec"]["terminationGracePeriodSeconds"] == 1 else ["Pending"]
    await client.patch(TYJOBS, "job", {"spec": {"leader": LEADER}}, namespace)
    await client.patch(TYJOBS, "job", {"status": {"stage": "Starting"}}, namespace, subresource="status")
    for change, (spec, message) in CHANGES.items():
        try:
            await client.patch(TYJOBS, "job", {"spec": spec}, namespace)
            found.append(f"{change}: accepted")
        except ApiError as problem:
            if message not in problem.status.message:
                found.append(f"{change}: {problem.status.message}")
    await client.patch(TYJOBS, "job", {"spec": ALLOWED}, namespace)
    return found


async def defaults(client: Client, namespace: str) -> Json:
    """What a job without any choices reads as."""
    plain = spec_json(1)
    del plain["workerSets"][0]["counts"]
    made = await client.create(TYJOBS, body("plain", plain), namespace)
    return {name: value for name, value in made.spec.items() if name not in ("leader", "workerSets")} | {
        "counts": made.spec["workerSets"][0]["counts"]
    }


DEFAULTS: Final[Json] = {
    "addressMode": "DNS",
    "cleanPodPolicy": "All",
    "countInfraFailures": False,
    "counts": 1,
    "minWorkersNum": 1,
    "priority": 5,
    "queue": "default",
    "restartLimit": 3,
    "schedulerPolicy": {"basicPolicy": "BinPack", "drfBasis": "request", "jobQueuePolicy": "Priority"},
    "startTimeoutSeconds": 1800,
    "suspend": False,
    "terminating": False,
}


async def queue_defaults(client: Client) -> Json:
    given = {"apiVersion": JOB_QUEUES.api_version, "kind": JOB_QUEUES.kind, "metadata": {"name": "rules-q"}}
    made = await client.create(JOB_QUEUES, {**given, "spec": {"quota": {"cpu": 4}}})
    await client.delete(JOB_QUEUES, "rules-q")
    return dict(made.spec)


REJECTED_QUEUES: Final[dict[str, tuple[Json, str]]] = {
    "no number": ({"quota": {"cpu": "four"}}, NO_AMOUNT),
    "empty": ({"quota": {"memory": ""}}, NO_AMOUNT),
    "negative text": ({"quota": {"cpu": "-4"}}, NO_AMOUNT),
    "negative number": ({"quota": {"nvidia.com/gpu": -1}}, NO_AMOUNT),
    "a unit of nothing": ({"quota": {"memory": "16GB"}}, NO_AMOUNT),
    "what no pod requests": ({"quota": {"gpu": 4}}, NO_RESOURCE),
    "a list": ({"quota": ["cpu"]}, "spec.quota"),
    "weight": (
        {"weight": 0},
        "spec.weight: Invalid value: 0: spec.weight in body should be greater than or equal to 1",
    ),
    "maxPriority": ({"maxPriority": 11}, "spec.maxPriority: Invalid value: 11"),
}
"""What a queue may not be, and what the server says."""

QUOTAS: Final = (0, "0", 4, "500m", "1.5", "16Gi", "2e3", "64k", "+1", ".5")
"""What a quota may be."""


async def wrong_queues(client: Client) -> list[str]:
    """Queues that are not refused as they should be, or are refused and should not."""
    found = []
    for rule, (spec, message) in REJECTED_QUEUES.items():
        told = await _queue_refusal(client, spec)
        if message not in told:
            found.append(f"{rule}: {told}")
    for amount in QUOTAS:
        told = await _queue_refusal(client, {"quota": {"cpu": amount, "hugepages-2Mi": 1, "example.com/fpga": "2"}})
        if told != "accepted":
            found.append(f"{amount!r}: {told}")
    return found


async def _queue_refusal(client: Client, spec: Json) -> str:
    given = {"apiVersion": JOB_QUEUES.api_version, "kind": JOB_QUEUES.kind, "metadata": {"name": "rules-q"}}
    try:
        await client.create(JOB_QUEUES, {**given, "spec": spec}, dry_run=True)
    except ApiError as problem:
        return problem.status.message
    return "accepted"
