"""The placement capability: the scheduling loop, requests for more or fewer pods, forecasts and explanations."""

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from fairlead import settings as configuration
from fairlead.cluster.backoff import Backoff
from fairlead.cluster.errors import Refused, Temporary
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.mirrors import caught_up
from fairlead.engine.args import PluginArgs
from fairlead.engine.dialect import parse_backoff, parse_configuration
from fairlead.engine.forecast import Forecast
from fairlead.engine.pick import FIRST, ROUND_ROBIN
from fairlead.engine.presort import Presort
from fairlead.engine.profile import Conditions, Profile, ProfileError, kube_profile, seed_profile
from fairlead.engine.removal import RemovalWeights
from fairlead.placement.api.explain import Explain
from fairlead.placement.api.extender import extending
from fairlead.placement.api.schedule_pod import SchedulePod
from fairlead.placement.forecasts import compose
from fairlead.placement.forecasts.documents import Subject
from fairlead.placement.loop import Loop
from fairlead.placement.pod_groups import PodGroups
from fairlead.placement.queue import BackoffTimes
from fairlead.placement.requests.controller import RequestController
from fairlead.placement.requests.metrics import RequestMetrics
from fairlead.placement.requests.plan import RoundOptions
from fairlead.placement.requests.spec import SCHEDULE_REQUESTS
from fairlead.placement.requests.spec import definition as schedule_request_definition
from fairlead.placement.trials import LoopTrials
from fairlead.runtime import Capability, Listener, Runtime
from fairlead.settings import BadSettings, Settings
from fairlead.web.routes import Route

NO_FORECAST = Forecast()


class Placement(Capability):
    """Pods with one of our scheduler names get nodes."""

    name = "placement"

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        caches = runtime.offers.caches
        served_profiles, backoff = profiles(runtime.settings, locality=bool(caches))
        runtime.offers.locality_schedulers.update(
            name
            for name, each in served_profiles.items()
            if any(rule.name == "DataLocality" for rule, _ in each.priorities)
        )
        # The loop is asked later, by a forecaster that runs beside it.
        self.forecasts = Forecasts(runtime, lambda namespace, pod: self.loop.service_of(namespace, pod))
        self.loop = Loop(
            served_profiles,
            forecast=self.forecasts.current,
            backoff=backoff,
            writer=runtime.writer,
            clock=runtime.clock,
            metrics=runtime.metrics,
            mirror=runtime.mirror,
            reader=runtime.reader,
            sources=runtime.offers.unit_sources,
            cache=caches[0] if caches else None,
        )
        self.requests = Requests(runtime, self.loop, self.forecasts)
        self.pod_groups = PodGroups(
            self.loop.pods,
            # Most servers do not have the kind, and nobody misses it.
            mirror=partial(runtime.mirror, optional=True),
            reader=runtime.reader,
            writer=runtime.writer,
            clock=runtime.clock,
            rng=runtime.rng,
            schedulers=served_profiles,
            release=self.loop.place_held,
        )
        runtime.offers.unit_sources.append(self.pod_groups)
        runtime.offers.trials.append(LoopTrials(self.loop))
        runtime.offers.unit_writers.append(runtime.writer)
        self._explain = Explain(self.loop, runtime.clock, self.requests.mirror)

    @classmethod
    def definitions(cls) -> Sequence[Mapping[str, Any]]:
        return (schedule_request_definition(),)

    def routes(self) -> Sequence[Route]:
        return (*self._explain.routes(), *self.requests.api.routes())

    def servers(self) -> Sequence[Listener]:
        """kube-scheduler may ask, where an address for that is configured; standbys answer as well."""
        runtime = self.runtime
        settings, registry = runtime.settings, runtime.metrics.registry
        serving = extending(self.loop, settings.extender, settings.tls, clock=runtime.clock, registry=registry)
        return (Listener("extender", serving),)

    async def follow(self) -> None:
        # Placing does not wait for requests where there can be none.
        if await self.requests.can_be_read():
            self.loop.extra_mirrors.append(self.requests.mirror)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.loop.follow(), name="placement")
            tasks.create_task(self.pod_groups.follow(), name="placement: pod groups")
            if self.forecasts.reader is not None:
                tasks.create_task(self.forecasts.reader.run(self.runtime.stop), name="placement: forecasts")

    async def lead(self) -> None:
        await caught_up([self.loop.nodes, self.loop.pods], self.runtime.clock, self.runtime.stop)
        async with asyncio.TaskGroup() as tasks:
            if self.forecasts.forecaster is not None:
                tasks.create_task(self.forecasts.forecaster.run(self.runtime.stop), name="placement: forecaster")
            tasks.create_task(self.loop.lead(self.runtime.stop), name="placement: loop")
            tasks.create_task(self.pod_groups.write(self.runtime.stop), name="placement: pod group conditions")
            tasks.create_task(self.requests.rounds.run(self.runtime.stop), name="placement: requests")

    def problem(self) -> str | None:
        return self.loop.problem()


class Forecasts:
    """How busy nodes and services are about to be: read by every replica, made by the leader where asked for."""

    def __init__(self, runtime: Runtime, service_of: Callable[[str, str], str | None]) -> None:
        self._clock = runtime.clock
        clock, registry, client = runtime.clock, runtime.metrics.registry, runtime.reader
        self.reader = compose.forecasts(runtime.settings, clock=clock, registry=registry, client=client)
        self.forecaster = compose.forecaster(
            runtime.settings,
            clock=clock,
            registry=registry,
            client=client,
            writer=runtime.writer,
            service_of=service_of,
        )

    def current(self) -> Forecast:
        return self.reader.current(self._clock.now()) if self.reader is not None else NO_FORECAST

    def loads(self, now: datetime) -> Mapping[Subject, Mapping[str, float]]:
        """What pods of services use now, where it is known."""
        return self.reader.loads(now) if self.reader is not None else {}


class Requests:
    """More or fewer pods of a service: accepted by every replica, carried out by the leader."""

    def __init__(self, runtime: Runtime, loop: Loop, forecasts: "Forecasts") -> None:
        settings = runtime.settings
        self._runtime = runtime
        hint = "POST /schedulePod answers 503 until deploy/crds and deploy/rbac/requests.yaml are applied"
        self.mirror: Mirror[Any] = runtime.mirror(SCHEDULE_REQUESTS, settings.namespace, hint=hint)
        self.rounds = RequestController(
            self.mirror,
            namespace=settings.namespace,
            reader=runtime.reader,
            writer=runtime.writer,
            clock=runtime.clock,
            run_on_table=loop.run_on_table,
            find_pod=loop.pods.get,
            options=RoundOptions(
                settle_s=settings.requests.settle_s,
                presort=Presort(settings.requests.presort),
                weights=RemovalWeights(
                    used=settings.weights.remove.w1,
                    even=settings.weights.remove.w2,
                    service=settings.weights.remove.w3,
                    wishes=settings.weights.remove.w4,
                    forecast=settings.weights.remove.w5,
                    forecast_sign=settings.forecast.remove_sign,
                ),
                load_basis=settings.load_basis,
                reuse_terminating=settings.requests.reuse_terminating_capacity,
                loads=forecasts.loads,
                forecasts_problem=forecasts.reader.problem if forecasts.reader is not None else None,
                are_forecasts_fresh=forecasts.reader.is_fresh if forecasts.reader is not None else lambda: False,
            ),
            metrics=RequestMetrics(runtime.metrics.registry),
            keep=settings.requests.keep,
            keep_s=settings.requests.keep_s,
        )
        loop.on_lead_start.append(self.rounds.prepare)
        self.api = SchedulePod(
            self.mirror,
            client=runtime.reader,
            namespace=settings.namespace,
            clock=runtime.clock,
            new_id=lambda: uuid.uuid4().hex[:24],
            most_waiting=settings.requests.most_waiting,
            most_number=settings.requests.most_pods,
        )

    async def can_be_read(self) -> bool:
        """Whether the cluster knows the kind and lets us read it."""
        backoff = Backoff(self._runtime.rng)
        path = SCHEDULE_REQUESTS.collection_path(self._runtime.settings.namespace)
        while True:
            try:
                await self._runtime.reader.request("GET", path, query={"limit": "1"})
                return True
            except Refused:
                return False  # the mirror says why
            except Temporary as problem:
                await self._runtime.clock.sleep(backoff.next_s(problem.retry_after_s))


def profiles(settings: Settings, *, locality: bool = False) -> tuple[dict[str, Profile], BackoffTimes]:
    """By scheduler name: those of the file named, else the chosen scores under each name of ours."""
    conditions, forecasts = Conditions(settings.node_conditions), settings.forecast.source != "none"
    weights = settings.weights.add
    pick = "" if settings.pick == "default" else settings.pick
    if not settings.scheduler_config:
        profile = (
            kube_profile(conditions=conditions, pick=pick or FIRST, forecasts=forecasts, locality=locality)
            if settings.scores == "kube"
            else seed_profile(
                [weights.w1, weights.w2, weights.w3, weights.w4, weights.w5],
                conditions=conditions,
                pick=pick or ROUND_ROBIN,
                load_basis=settings.load_basis,
            )
        )
        # Each under its own name, so that explanations name the one that was asked for.
        return {name: msgspec.structs.replace(profile, name=name) for name in settings.schedulers}, BackoffTimes()
    document = configuration.read_yaml(Path(settings.scheduler_config))
    try:
        base = PluginArgs(pick=pick or FIRST, load_basis=settings.load_basis)
        parsed = parse_configuration(document, conditions=conditions, base=base, forecasts=forecasts, locality=locality)
        return parsed, BackoffTimes(*parse_backoff(document))
    except ProfileError as problem:
        raise BadSettings(f"schedulerConfig: {settings.scheduler_config}: {problem}") from None
