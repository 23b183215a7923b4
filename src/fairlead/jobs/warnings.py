"""What may not be what the author of a job meant: told by a condition, never refused. Pure."""

from collections.abc import Iterable

from fairlead.jobs.spec import JobSpec


def warnings_of(spec: JobSpec) -> Iterable[str]:
    leader = spec.leader.template.get("spec") or {}
    containers = [each for each in leader.get("containers") or () if isinstance(each, dict)]
    if not any((each.get("resources") or {}).get("requests") for each in containers):
        yield "the leader requests no resources, so placement cannot reckon with what it uses"
    if leader.get("restartPolicy") == "Never" and spec.restart_limit > 0:
        yield (
            f"the leader has restartPolicy Never and restartLimit is {spec.restart_limit}: "
            "each restart is a new pod, and all workers are created anew"
        )
    if spec.is_gang and spec.min_workers_num > 1:
        yield "minWorkersNum has no effect with basicPolicy Gang, which needs all workers"
    if spec.clean_pod_policy == "None":
        yield "with cleanPodPolicy None, workers that still run when the job has ended keep their resources"
