"""From settings to objects: the reader, the forecaster and the profiles that a configuration asks for."""

from pathlib import Path

from prometheus_client import CollectorRegistry

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.model.kinds import CONFIG_MAPS, ConfigMap
from fairlead.placement.forecasts.access import Access
from fairlead.placement.forecasts.elastic import Elastic, ElasticsearchSource
from fairlead.placement.forecasts.prometheus import Prometheus, PrometheusSource
from fairlead.placement.forecasts.reader import ForecastReader
from fairlead.placement.forecasts.sources import ConfigMapSource, FileSource, Source
from fairlead.settings import ForecastSettings, Settings


def forecasts(
    settings: Settings, *, clock: Clock, registry: CollectorRegistry, client: Client
) -> ForecastReader | None:
    """What the loop asks for forecasts, or None where nobody forecasts. Run it beside the loop, ask it each round:

        reader = forecasts(settings, clock=clock, registry=metrics.registry, client=runtime.reader)
        if reader is not None:
            tasks.create_task(reader.run(stop), name="forecasts")
        …
        forecast = reader.current(clock.now())              # each round: never waits, does not read
        if forecast is not table.catalog.forecast:          # the same object while nothing changed
            table.catalog.set_forecast(forecast)

    `reader.problem()` is a sentence for a condition, a probe or a log line; None while all is well. The removal of
    pods takes `RemovalWeights(forecast_sign=settings.forecast.remove_sign)`.
    """
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
