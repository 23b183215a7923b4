"""`fairlead serve` with a bug on purpose, which the judge of tests/soak/tasks.py must catch.

`python -m tests.soak.tasks_process BUG serve ...`.
"""

import sys
import uuid
from typing import Any

from fairlead.cli.main import main
from fairlead.cluster.writer import Result, Writer
from fairlead.model.intents import Delete, Intent, PatchStatus
from fairlead.tasks import api, controller, plan
from fairlead.tasks.carrier import WORKLOADS, Carrier


def _put(where: Any, name: str, value: Any) -> None:
    setattr(where, name, value)


def unowned() -> None:
    """Services are made without an owner, and stay."""
    owned = Carrier.parts

    def parts(self: Carrier, workload_uid: str) -> list[dict[str, Any]]:
        return [{**each, "metadata": {**each["metadata"], "ownerReferences": []}} for each in owned(self, workload_uid)]

    _put(Carrier, "parts", parts)
    _put(plan, "is_controlled_by", lambda *_: True)


def blind() -> None:
    """A status is written whatever the task has become: one of the same name inherits the rounds of another."""

    def write(**intent: Any) -> PatchStatus:
        return PatchStatus(**{**intent, "resource_version": ""})

    _put(plan, "PatchStatus", write)


def renamed() -> None:
    """A report gets another name each time, so that a repeat is stored twice."""
    compose = api.report_object

    def report_object(*given: Any) -> dict[str, Any]:
        body = compose(*given)
        return {**body, "metadata": {**body["metadata"], "name": f"report-{uuid.uuid4().hex}"}}

    _put(api, "report_object", report_object)


def hasty() -> None:
    """The carrier is deleted before it is written that the task is finished."""
    plan_task = plan.plan_task

    def hurried(seen: Any, options: Any, now: Any) -> Any:
        planned = plan_task(seen, options, now)
        ends = any(isinstance(each, PatchStatus) and each.status.get("finish") for each in planned.intents)
        if ends and not seen.task.status.finish and seen.workload is not None:
            kind = WORKLOADS[seen.task.status.resource.runtime_type]
            name = seen.workload.metadata.name
            planned.intents.insert(0, Delete(kind=kind, name=name, namespace=options.namespace))
        return planned

    _put(controller, "plan_task", hurried)


def stubborn() -> None:
    """What had no answer is sent again, whether its task is still there or not."""
    settle = Writer.carry_out

    async def carry_out(self: Writer, intent: Intent, **_: Any) -> Result:
        return await settle(self, intent)

    _put(Writer, "carry_out", carry_out)


BUGS = {each.__name__: each for each in (unowned, blind, renamed, hasty, stubborn)}


if __name__ == "__main__":
    BUGS[sys.argv.pop(1)]()
    main()
