"""What a Python base counts, for Prometheus on a port of its own (`--metrics-port`)."""

from collections.abc import Iterator

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.modules.base.manager import Manager
from fairlead.modules.base.memory import resident_bytes

TEXT = "text/plain; version=0.0.4; charset=utf-8"


class ModuleCollector(Collector):
    """Read when it is asked for."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def collect(self) -> Iterator[Metric]:
        labels = ["name", "version"]
        state = GaugeMetricFamily("fairlead_base_biz_state", "Modules by state.", labels=[*labels, "state"])
        resident = GaugeMetricFamily("fairlead_base_module_rss_bytes", "Resident memory of modules.", labels=labels)
        for module in self._manager.modules.values():
            key = [module.manifest.name, module.manifest.version]
            state.add_metric([*key, module.state.lower()], 1)
            if module.worker is not None:
                resident.add_metric(key, resident_bytes(module.worker.pid))
        yield state
        yield resident


class BaseMetrics:
    def __init__(self, manager: Manager) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(ModuleCollector(manager))
        self._installs = Counter(
            "fairlead_base_installs", "Installs by result (success, failed).", ["result"], registry=self.registry
        )
        self._seconds = Histogram("fairlead_base_install_seconds", "How long installs took.", registry=self.registry)
        self.heartbeat_failures = Counter(
            "fairlead_base_heartbeat_failures", "Heartbeats that nobody took.", registry=self.registry
        )
        manager.on_installed = self._installed

    def _installed(self, is_done: bool, seconds: float) -> None:
        self._installs.labels("success" if is_done else "failed").inc()
        self._seconds.observe(seconds)

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/metrics", self._answer)
        return application

    async def _answer(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self.registry), headers={"Content-Type": TEXT})
