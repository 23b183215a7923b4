"""The jobs capability: TYJobs from submit to success, as gangs for placement in the same process."""

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import yaml

from fairlead.jobs.api import JobApi
from fairlead.jobs.controller import JobController, JobMirrors
from fairlead.jobs.definition import definitions
from fairlead.jobs.plan import PlanOptions
from fairlead.jobs.spec import JOB_LABEL, JOB_NODES, JOB_PODS, JOB_QUEUES, SERVICES, TYJOBS, JobPod
from fairlead.jobs.trials import Trials as TemplateTrials
from fairlead.runtime import Capability, Runtime
from fairlead.settings import Settings
from fairlead.web.routes import Route

HINT = "TYJobs are not run until deploy/crds and deploy/rbac/jobs.yaml are applied"


class Jobs(Capability):
    """A leader and its workers are placed as one gang and run as one job."""

    name = "jobs"
    needs = ("placement",)
    # Gangs are decided by placement's loop, so both lead in the same process.
    leads_under = "placement"

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.mirrors = JobMirrors(
            jobs=runtime.mirror(TYJOBS, hint=HINT),
            queues=runtime.mirror(JOB_QUEUES, hint=HINT),
            pods=runtime.mirror(JOB_PODS, labels=JOB_LABEL, indexes={"job": _job_of}),
            services=runtime.mirror(SERVICES, labels=JOB_LABEL),
            nodes=runtime.mirror(JOB_NODES),
        )
        settings = runtime.settings
        self.controller = JobController(
            self.mirrors,
            reader=runtime.reader,
            writer=runtime.writer,
            clock=runtime.clock,
            metrics=runtime.metrics,
            period_s=settings.jobs.period_s,
            options=PlanOptions(scheduler_name(settings), settings.jobs.autoscaling),
        )
        runtime.offers.unit_sources.append(self.controller.source)
        self._api = JobApi(
            self.mirrors.jobs,
            self.mirrors.queues,
            self.controller.source,
            TemplateTrials(runtime.reader, runtime.clock, scheduler_name(settings)),
            runtime.offers.trials,
            runtime.clock,
        )

    @classmethod
    def definitions(cls) -> Sequence[Mapping[str, Any]]:
        return definitions()

    async def demo(self) -> Sequence[Mapping[str, Any]]:
        return tuple(yaml.safe_load_all(files("fairlead.jobs").joinpath("demo.yaml").read_text()))

    def routes(self) -> Sequence[Route]:
        return self._api.routes()

    async def lead(self) -> None:
        await self.controller.lead(self.runtime.stop)

    def problem(self) -> str | None:
        missing = [mirror.kind.plural for mirror in self.mirrors.all if not mirror.is_synced]
        return f"still reading {', '.join(missing)}" if missing else None


def _job_of(pod: JobPod) -> Iterable[str]:
    return (f"{pod.metadata.namespace}/{pod.metadata.labels.get(JOB_LABEL, '')}",)


def scheduler_name(settings: Settings) -> str:
    """Who places the pods of jobs."""
    known = settings.schedulers
    return settings.jobs.scheduler or ("fairlead" if "fairlead" in known or not known else known[0])
