"""KdoctorReport of `system.kdoctor.io/v1beta1`: kdoctor's reports as an aggregated API, composed on reading.

Every replica composes the same. A loopback cluster registers it by itself; elsewhere `tasks.reportsListen` says
where it listens, and an administrator applies the APIService and its Service (deploy/tasks/apiservice.yaml).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import structlog

from fairlead.cluster.errors import ClusterError
from fairlead.model.kinds import CONFIG_MAPS, Kind
from fairlead.model.meta import ApiObject
from fairlead.runtime import Runtime
from fairlead.tasks.api import TaskApi
from fairlead.tasks.controller import TaskMirrors
from fairlead.tasks.reports import kdoctor_report, report_name
from fairlead.web.aggregated import (
    AUTHENTICATION,
    AggregatedApi,
    AggregatedCall,
    AggregatedResource,
    FrontProxy,
    certified,
    front_proxy,
    loopback_registration,
)
from fairlead.web.probes import served

log = structlog.get_logger("fairlead.tasks")

GROUP: Final = "system.kdoctor.io"
KDOCTOR_REPORTS: Final = Kind(GROUP, "v1beta1", "kdoctorreports", "KdoctorReport", ApiObject)
SERVICE: Final = "fairlead-reports"


class KdoctorReports:
    def __init__(self, runtime: Runtime, mirrors: TaskMirrors, api: TaskApi) -> None:
        self._runtime = runtime
        self._mirrors = mirrors
        self._api = api
        self.port = 0
        """Where it listens, once it does."""

    async def list(self, call: AggregatedCall) -> list[dict[str, Any]]:
        """Of every task, or of the one that is named; the namespace does not matter."""
        tasks = [
            (kind, task)
            for kind, mirror in self._mirrors.tasks.items()
            for task in mirror
            if not call.name or report_name(kind, task.metadata.name) == call.name
        ]
        # One call, however many tasks there are; and of a single task not everybody's reports.
        if call.name:
            of_task = {task.metadata.uid: await self._api.reports(task.metadata.uid) for _, task in tasks}
        else:
            of_task = await self._api.newest_reports()
        return [
            kdoctor_report(kind, task, msgspec.to_builtins(task.spec), of_task.get(task.metadata.uid, ()))
            for kind, task in tasks
        ]

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        settings, runtime = self._runtime.settings, self._runtime
        listen = settings.tasks.reports_listen or ("127.0.0.1:0" if runtime.is_loopback else "")
        proxy = await self._front_proxy() if listen else None
        if proxy is None:
            yield
            return
        context, ca_bundle = certified(proxy, SERVICE, settings.namespace, runtime.clock.now())
        api = AggregatedApi([AggregatedResource(KDOCTOR_REPORTS, self.list)], proxy)
        host, _, port = listen.rpartition(":")
        where = host.strip("[]"), int(port)
        async with served(api.routes(), *where, context, setting="tasks.reportsListen") as (_, self.port):
            if runtime.is_loopback:
                await self._register(ca_bundle)
            yield

    async def _front_proxy(self) -> FrontProxy | None:
        """Who the API server's front proxy is; None where it does not say, or we may not read it."""
        try:
            config_map = await self._runtime.reader.find(CONFIG_MAPS, AUTHENTICATION, "kube-system")
        except ClusterError as problem:
            log.warning("no KdoctorReports", problem=str(problem))
            return None
        found = front_proxy(config_map)
        if found is None:
            log.warning("no KdoctorReports: the API server does not publish its front-proxy certificate")
        return found

    async def _register(self, ca_bundle: str) -> None:
        namespace = self._runtime.settings.namespace
        for intent in loopback_registration(GROUP, SERVICE, namespace, self.port, ca_bundle, priority=1000):
            await self._runtime.writer.carry_out(intent)
