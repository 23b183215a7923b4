"""The tasks capability: diagnosis tasks, their carriers, and the reports of their agents."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.runtime import Capability, Listener, Runtime
from fairlead.tasks.aggregated import KdoctorReports
from fairlead.tasks.api import TaskApi
from fairlead.tasks.controller import Families, TaskController, TaskMirrors
from fairlead.tasks.metrics import TaskMetrics
from fairlead.tasks.spec import definitions
from fairlead.tasks.templates import agent_access
from fairlead.tasks.webhook import TaskWebhooks
from fairlead.web.admission import WebhookConfiguration
from fairlead.web.routes import Route


class Tasks(Capability):
    name = "tasks"

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        metrics = TaskMetrics(runtime.metrics.registry)
        self._mirrors = TaskMirrors(runtime)
        families = Families(runtime)
        self._controller = TaskController(runtime, self._mirrors, families, metrics)
        self._webhooks = TaskWebhooks(runtime, self._mirrors, families)
        self._api = TaskApi(self._mirrors, runtime.reader, runtime.settings.namespace, metrics)
        self.reports = KdoctorReports(runtime, self._mirrors, self._api)

    @classmethod
    def definitions(cls) -> Sequence[Mapping[str, Any]]:
        return definitions()

    @classmethod
    def manifests(cls, namespace: str) -> Sequence[Mapping[str, Any]]:
        return [body for _, body in agent_access(namespace)]

    def servers(self) -> Sequence[Listener]:
        return (Listener("kdoctor reports", self.reports.serving()),)

    def routes(self) -> Sequence[Route]:
        return self._api.routes()

    def webhooks(self) -> Sequence[WebhookConfiguration]:
        return self._webhooks.configurations()

    async def lead(self) -> None:
        await self._controller.run()

    async def work(self, member: Runtime) -> None:
        # Reports are stored by whichever replica they reach.
        self._api.writer = member.writer
        try:
            await member.stop.wait()
        finally:
            self._api.writer = None

    def problem(self) -> str | None:
        behind = [mirror.kind.plural for mirror in self._mirrors.all() if not mirror.is_synced]
        return f"not read yet: {', '.join(behind)}" if behind else None
