"""From settings to objects: the reader, the forecaster and the profiles that a configuration asks for."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from prometheus_client import CollectorRegistry

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.writer import Writer
from fairlead.model.kinds import CONFIG_MAPS, ConfigMap
from fairlead.placement.forecasts.access import Access
from fairlead.placement.forecasts.elastic import Elastic, ElasticsearchSink, ElasticsearchSource
from fairlead.placement.forecasts.forecaster import Forecaster
from fairlead.placement.forecasts.prometheus import Prometheus, PrometheusSource
from fairlead.placement.forecasts.reader import ForecastReader
from fairlead.placement.forecasts.sinks import ConfigMapSink, FileSink, Sink
from fairlead.placement.forecasts.sources import ConfigMapSource, FileSource, Source
from fairlead.placement.forecasts.usage import MetricsServerUsage, PrometheusUsage, Ring, Usage
from fairlead.settings import BadSettings, ForecastSettings, Settings

# Nobody waits for the forecaster, so its reads of history and its writes may take their time.
PATIENT_S = 30.0


def forecasts(
    settings: Settings, *, clock: Clock, registry: CollectorRegistry, client: Client
) -> ForecastReader | None:
    """What the loop asks for forecasts, to be run beside it; None where nobody forecasts."""
    source = source_of(settings.forecast, settings.namespace, client)
    if source is None:
        return None
    return ForecastReader(
        source,
        clock=clock,
        registry=registry,
        period_s=settings.forecast.period_s,
        ttl_s=settings.forecast.ttl_s,
        horizon_s=settings.forecast.horizon_s,
        deadline_s=settings.forecast.deadline_s,
    )


def source_of(forecast: ForecastSettings, namespace: str, client: Client) -> Source | None:
    match forecast.source:
        case "elasticsearch":
            return ElasticsearchSource(
                Elastic(access(forecast), timeout_s=forecast.deadline_s),
                (forecast.node_index, forecast.service_index),
                forecast.fields,
                ttl_s=forecast.ttl_s,
                horizon_s=forecast.horizon_s,
            )
        case "prometheus":
            prometheus = Prometheus(access(forecast), timeout_s=forecast.deadline_s)
            return PrometheusSource(prometheus, forecast.queries, horizon_s=forecast.horizon_s)
        case "configmap":

            async def find() -> ConfigMap | None:
                return await client.find(CONFIG_MAPS, forecast.config_map, namespace)

            return ConfigMapSource(find, f"{namespace}/{forecast.config_map}", forecast.fields)
        case "file":
            return FileSource(Path(forecast.file), forecast.fields)
        case "none":
            return None


def access(forecast: ForecastSettings) -> Access:
    return Access(forecast.url, forecast.username, forecast.password_file, forecast.token_file, forecast.ca_file)


def forecaster(
    settings: Settings,
    *,
    clock: Clock,
    registry: CollectorRegistry,
    client: Client,
    writer: Writer,
    service_of: Callable[[str, str], str | None] | None = None,
) -> Forecaster | None:
    """The built-in forecaster, or None where it is off. Only the leader runs it, beside the loop.

    `service_of(namespace, pod)` lets samples of metrics-server count for services too.
    """
    forecast, options = settings.forecast, settings.forecast.forecaster
    if options.history == "none":
        return None
    if find_spec("statsmodels") is None:
        raise BadSettings(
            "forecast.forecaster.history: the forecaster's library is not installed: pip install 'fairlead[forecast]'"
        )
    season = options.season_s // options.step_s
    ring = Ring(options.step_s, season * options.seasons)
    usage: Usage
    if options.history == "prometheus":
        prometheus = Prometheus(Access(options.prometheus_url), timeout_s=PATIENT_S)
        usage = PrometheusUsage(prometheus, (options.node_usage, options.service_usage), ring)
    else:
        usage = MetricsServerUsage(client, ring, service_of)
    return Forecaster(
        usage,
        sink_of(forecast, settings.namespace, writer),
        clock=clock,
        registry=registry,
        season=season,
        horizon_s=forecast.horizon_s,
        every_s=options.every_s,
    )


def sink_of(forecast: ForecastSettings, namespace: str, writer: Writer) -> Sink:
    match forecast.source:
        case "elasticsearch":
            elastic = Elastic(access(forecast), timeout_s=PATIENT_S)
            return ElasticsearchSink(elastic, forecast.node_index, forecast.service_index, forecast.fields)
        case "configmap":
            return ConfigMapSink(writer.carry_out, forecast.config_map, namespace, forecast.fields)
        case "file":
            return FileSink(Path(forecast.file), forecast.fields)
        case other:
            raise BadSettings(f"forecast.source: the forecaster cannot write to {other}")
