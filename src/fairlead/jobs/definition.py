"""The CustomResourceDefinitions of TYJob and JobQueue: schema, rules in CEL, printer columns.

Every rule has a message in the words of the manifest. What rules read of a pod template is declared; the rest of it is
kept as it is and validated by the server when a pod is tried (dryRun) before the first planning.
"""

from collections.abc import Sequence
from typing import Any, Final, get_args

from fairlead.jobs.spec import (
    BASIC_POLICIES,
    HUGEPAGES,
    JOB_QUEUES,
    LONGEST_NAME,
    LONGEST_QUANTITY,
    MOST_QUOTAS,
    MOST_WORKERS,
    NO_AMOUNT,
    NO_LABEL,
    NO_RESOURCE,
    PLACEMENT_POLICIES,
    PLAIN_RESOURCES,
    QUEUE_POLICIES,
    TYJOBS,
    CleanPodPolicy,
    JobQueue,
    JobSpec,
    JobStatus,
    QueueSpec,
    QueueStatus,
    TYJob,
)
from fairlead.model.structural import custom_resource_definition, structural_schema

Json = dict[str, Any]

# Bounds that let the server estimate what a rule costs.
MOST_CONTAINERS: Final = 32
MOST_VOLUMES: Final = 64
MOST_RESOURCES: Final = 16
LONGEST_CHOICE: Final = 32

_PENDING = "!has(oldSelf.status) || !has(oldSelf.status.stage) || oldSelf.status.stage == 'Pending'"


def definitions() -> tuple[Json, ...]:
    """As deploy/crds holds them."""
    return (tyjob_definition(), jobqueue_definition())


def tyjob_definition() -> Json:
    spec = structural_schema(JobSpec, defaults=True)
    fields = spec["properties"]
    fields["leader"]["properties"]["template"] |= _template()
    sets = fields["workerSets"]
    sets |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    sets["items"]["properties"]["template"] |= _template()
    fields["volumes"]["items"] = _named("A Volume of core/v1.")
    fields["volumes"] |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    fields["volumes"].pop("default", None)
    policy = fields["schedulerPolicy"]["properties"]
    policy["placement"].pop("default")
    _choose(policy, "jobQueuePolicy", QUEUE_POLICIES)
    _choose(policy, "basicPolicy", BASIC_POLICIES)
    _choose(policy, "placement", PLACEMENT_POLICIES)
    _choose(policy, "drfBasis", ("request", "allocated"))
    _choose(policy["topology"]["properties"], "mode", ("Required", "Preferred"))
    _choose(fields, "cleanPodPolicy", get_args(CleanPodPolicy))
    _choose(fields, "addressMode", ("DNS", "IP"))
    spec["x-kubernetes-validations"] = _spec_rules()
    status = structural_schema(JobStatus)
    status["properties"]["allocations"]["x-kubernetes-map-type"] = "atomic"
    columns = [
        ("Stage", "string", ".status.stage", "How far it is."),
        ("Schedule", "string", ".status.scheduleState", "Whether its pods have places."),
        ("Ready", "string", ".status.ready", "Ready workers of all workers."),
        ("Restarts", "integer", ".status.restarts", "Restarts of the leader."),
        ("Priority", "integer", ".spec.priority", "Higher first."),
        ("Age", "date", ".metadata.creationTimestamp", ""),
    ]
    return custom_resource_definition(
        TYJOBS,
        {"spec": spec, "status": status},
        columns,
        description=TYJob.__doc__,
        rules=_object_rules(),
        short_names=("tyj",),
        categories=("fairlead",),
    )


def jobqueue_definition() -> Json:
    spec = structural_schema(QueueSpec, defaults=True)
    quota = spec["properties"]["quota"]
    quota.pop("default", None)
    amount = "isQuantity(string(self)) && !quantity(string(self)).isLessThan(quantity('0'))"
    quota["additionalProperties"] |= {
        "maxLength": LONGEST_QUANTITY,
        "x-kubernetes-validations": [{"rule": amount, "message": NO_AMOUNT}],
    }
    plain = ", ".join(f"'{each}'" for each in PLAIN_RESOURCES)
    named = f"self.all(name, name in [{plain}] || name.startsWith('{HUGEPAGES}') || name.contains('/'))"
    quota |= {"maxProperties": MOST_QUOTAS, "x-kubernetes-validations": [{"rule": named, "message": NO_RESOURCE}]}
    columns = [
        ("Weight", "integer", ".spec.weight", "Its weight among queues."),
        ("Share", "number", ".status.share", "Dominant share divided by the weight."),
        ("Pending", "integer", ".status.pending", "Jobs that wait for places."),
        ("Running", "integer", ".status.running", "Jobs that have places."),
        ("Age", "date", ".metadata.creationTimestamp", ""),
    ]
    return custom_resource_definition(
        JOB_QUEUES,
        {"spec": spec, "status": structural_schema(QueueStatus)},
        columns,
        description=JobQueue.__doc__,
        short_names=("jq",),
        categories=("fairlead",),
    )


# --- rules ------------------------------------------------------------------------------------------------


def _spec_rules() -> list[Json]:
    total = "self.workerSets.map(s, s.counts).sum()"
    rules = [
        (
            f"self.minWorkersNum <= {total}",
            ".minWorkersNum",
            "must not be more than all workers, the sum of workerSets[].counts",
        ),
        (
            f"{total} <= {MOST_WORKERS}",
            ".workerSets",
            f"must not have more than {MOST_WORKERS} workers in all, the sum of workerSets[].counts",
        ),
        (
            "self.workerSets.all(s, s.name != self.leader.name)",
            ".workerSets",
            "a worker set must not have the leader's name",
        ),
        (
            "self.workerSets.all(s, !self.leader.name.matches('^' + s.name + '-[0-9]+$'))",
            ".leader.name",
            "must not be a worker set's name with a number, which is a worker's name",
        ),
        (
            "!has(self.schedulerPolicy.placement) || self.schedulerPolicy.basicPolicy == 'Gang'",
            ".schedulerPolicy.placement",
            "only with basicPolicy Gang; without it basicPolicy itself names the placement",
        ),
        (
            f"!has(self.volumes) || {_no_clash('self.leader.template.spec')}",
            ".leader.template.spec.volumes",
            "must not have a volume of the same name as one of spec.volumes, which every pod gets",
        ),
        (
            f"!has(self.volumes) || self.workerSets.all(s, {_no_clash('s.template.spec')})",
            ".workerSets",
            "a template must not have a volume of the same name as one of spec.volumes, which every pod gets",
        ),
    ]
    return [
        {"rule": rule, "message": message, "fieldPath": path, "reason": "FieldValueInvalid"}
        for rule, path, message in rules
    ]


def _no_clash(pod: str) -> str:
    return f"!has({pod}.volumes) || {pod}.volumes.all(w, !self.volumes.exists(v, v.name == w.name))"


def _object_rules() -> list[Json]:
    """Rules about the name of the job, and what may not change once it has left Pending."""
    name = "size(self.metadata.name)"
    counted = "size(s.name) + size(string(s.counts - 1))"
    long = (
        f"pod names, <job>-<leader> and <job>-<worker set>-<index>, must not be longer than {LONGEST_NAME} characters"
    )
    rules: list[Json] = [
        {
            "rule": f"{name} + 1 + size(self.spec.leader.name) <= {LONGEST_NAME} && "
            f"self.spec.workerSets.all(s, {name} + 2 + {counted} <= {LONGEST_NAME})",
            "message": long,
        },
        {"rule": "!self.metadata.name.contains('.')", "message": f"metadata.name {NO_LABEL}"},
    ]
    fixed = [
        ("leader", "self.spec.leader == oldSelf.spec.leader"),
        (
            "workerSets",
            "self.spec.workerSets.map(s, s.name) == oldSelf.spec.workerSets.map(s, s.name) && "
            "self.spec.workerSets.map(s, s.template) == oldSelf.spec.workerSets.map(s, s.template)",
        ),
        (
            "volumes",
            "has(self.spec.volumes) == has(oldSelf.spec.volumes) && "
            "(!has(self.spec.volumes) || self.spec.volumes == oldSelf.spec.volumes)",
        ),
        ("schedulerPolicy", "self.spec.schedulerPolicy.basicPolicy == oldSelf.spec.schedulerPolicy.basicPolicy"),
    ]
    may_change = {"workerSets": "names and templates", "schedulerPolicy": "basicPolicy"}
    for field, same in fixed:
        part = f"{may_change[field]} " if field in may_change else ""
        rules.append(
            {
                "rule": f"{_PENDING} || ({same})",
                "message": f"{part}cannot be changed after the job has left Pending; create another job",
                "fieldPath": f".spec.{field}",
                "reason": "FieldValueForbidden",
            }
        )
    return rules


def _choose(fields: Json, name: str, values: Sequence[str]) -> None:
    """One of some values; the message lists them and names those that begin alike."""
    field = fields[name]
    field.pop("enum", None)
    listed = ", ".join(f"'{each}'" for each in values)
    must = f"must be one of {', '.join(values)}"
    near: dict[str, list[str]] = {}
    for each in values:
        near.setdefault(each[:3].lower(), []).append(each)
    # Conditions over constants: the server estimates what a message may cost, and a search in a list is too dear.
    hints = "".join(
        f"self.matches('^(?i){start}') ? '{must}; did you mean {' or '.join(found)}?' : "
        for start, found in near.items()
    )
    field |= {
        "maxLength": LONGEST_CHOICE,
        "x-kubernetes-validations": [
            {"rule": f"self in [{listed}]", "messageExpression": f"{hints}'{must}'", "message": must}
        ],
    }
    field["description"] = f"{field.get('description', '')} One of {', '.join(values)}.".strip()


# --- schemas ----------------------------------------------------------------------------------------------


def _template() -> Json:
    """A PodTemplateSpec: declared as far as rules read it."""
    amounts = {
        "type": "object",
        "maxProperties": MOST_RESOURCES,
        "additionalProperties": {"x-kubernetes-int-or-string": True, "maxLength": 64},
    }
    requests = "self.resources.requests"
    within = (
        "!has(self.resources) || !has(self.resources.requests) || !has(self.resources.limits) || "
        f"{requests}.all(r, !(r in self.resources.limits) || !isQuantity(string({requests}[r])) || "
        "!isQuantity(string(self.resources.limits[r])) || "
        f"quantity(string({requests}[r])).compareTo(quantity(string(self.resources.limits[r]))) <= 0)"
    )
    container = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {
            "name": {"type": "string"},
            "resources": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "properties": {"requests": amounts, "limits": amounts},
            },
        },
        "x-kubernetes-validations": [
            {"rule": within, "message": "resources.requests must not be more than resources.limits"}
        ],
    }
    pod = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "required": ["containers"],
        "properties": {
            "containers": {"type": "array", "minItems": 1, "maxItems": MOST_CONTAINERS, "items": container},
            "nodeName": {
                "type": "string",
                "maxLength": 253,
                "x-kubernetes-validations": [
                    {"rule": "self == ''", "message": "must not be set: the scheduler chooses nodes; use nodeSelector"}
                ],
            },
            "volumes": {"type": "array", "maxItems": MOST_VOLUMES, "items": _named("")},
        },
    }
    return {
        "type": "object",
        "required": ["spec"],
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {
            "metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "spec": pod,
        },
    }


def _named(description: str) -> Json:
    found: Json = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "required": ["name"],
        "properties": {"name": {"type": "string", "maxLength": LONGEST_NAME}},
    }
    return {**found, "description": description} if description else found
