"""KdoctorReport of `system.kdoctor.io/v1beta1`: kdoctor's reports as an aggregated API, composed on reading.

Every replica composes the same. A loopback cluster registers it by itself; elsewhere `tasks.reportsListen` says
where it listens, and an administrator applies the APIService and its Service (deploy/tasks/apiservice.yaml).
"""

import base64
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from fairlead.cluster.errors import ClusterError
from fairlead.model.intents import Apply
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
    front_proxy,
)
from fairlead.web.authority import unrenewed
from fairlead.web.probes import served

log = structlog.get_logger("fairlead.tasks")

GROUP: Final = "system.kdoctor.io"
KDOCTOR_REPORTS: Final = Kind(GROUP, "v1beta1", "kdoctorreports", "KdoctorReport", ApiObject)
SERVICE: Final = "fairlead-reports"
SERVICES = Kind("", "v1", "services", "Service", ApiObject)
API_SERVICES = Kind("apiregistration.k8s.io", "v1", "apiservices", "APIService", ApiObject, namespaced=False)


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
        material = unrenewed(f"{SERVICE}.{settings.namespace}.svc", runtime.clock.now())
        with tempfile.TemporaryDirectory(prefix="fairlead-") as folder:
            pair = Path(folder) / "pair.pem"
            pair.touch(0o600)
            pair.write_bytes(material.leaf_key + material.leaf)
            context = proxy.context(str(pair))
        api = AggregatedApi([AggregatedResource(KDOCTOR_REPORTS, self.list)], proxy)
        host, _, port = listen.rpartition(":")
        where = host.strip("[]"), int(port)
        async with served(api.routes(), *where, context, setting="tasks.reportsListen") as (_, self.port):
            if runtime.is_loopback:
                await self._register(base64.b64encode(material.bundle).decode())
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

    async def _register(self, authority: str) -> None:
        for kind, where, body in registration(self._runtime.settings.namespace, self.port, authority):
            name = body["metadata"]["name"]
            await self._runtime.writer.carry_out(Apply(kind=kind, name=name, namespace=where, body=body))


def registration(namespace: str, port: int, authority: str) -> list[tuple[Kind[Any], str, dict[str, Any]]]:
    """The APIService, and a Service that leads to this machine."""
    service = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    spec = {
        "group": GROUP,
        "version": "v1beta1",
        "service": {"name": SERVICE, "namespace": namespace, "port": port},
        "caBundle": authority,
        "groupPriorityMinimum": 1000,
        "versionPriority": 100,
    }
    return [
        (SERVICES, namespace, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE}, "spec": service}),
        (
            API_SERVICES,
            "",
            {
                "apiVersion": API_SERVICES.api_version,
                "kind": "APIService",
                "metadata": {"name": f"v1beta1.{GROUP}"},
                "spec": spec,
            },
        ),
    ]
