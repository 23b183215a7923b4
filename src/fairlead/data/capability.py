"""The data capability: pods go where their data is cached.

Every replica answers the webhook and knows what is cached where; the leader writes what pods and nodes need besides.
"""

import asyncio
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
import yaml

from fairlead.cluster.controller import Controller
from fairlead.cluster.errors import Refused
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.waits import first_of
from fairlead.data import entries
from fairlead.data.controllers import Advice, Drains, Levels, Waits, nudge
from fairlead.data.fluid_reviews import FluidReviews
from fairlead.data.groups import PLACED_PODS, Groups, GroupSource, PlacedGroups
from fairlead.data.mutate import MutateOptions
from fairlead.data.names import DatasetName
from fairlead.data.objects import DATASETS
from fairlead.data.plugin import LocalityOptions
from fairlead.data.plugins.avoid_draining import AvoidDraining
from fairlead.data.plugins.prefer_fuse import PreferFuse
from fairlead.data.plugins.wait_for_data import WaitForData
from fairlead.data.profile import BadProfile, Step
from fairlead.data.running import PluginRunner
from fairlead.data.side_objects import SideObjects
from fairlead.data.spec import NODES, definitions
from fairlead.data.view import ClusterView
from fairlead.data.webhook import DataMetrics, DataWebhook, PodRecorder, ProfileFile
from fairlead.model.intents import Patch
from fairlead.model.kinds import LEASES
from fairlead.model.times import parse_time_or_none, rfc3339
from fairlead.runtime import Capability, Runtime, lease_name
from fairlead.settings import BadSettings, Settings
from fairlead.web.admission import WebhookConfiguration

log = structlog.get_logger("fairlead.data")

REFUSED_S: Final = 60.0
"""How long a kind that we may not read is forgiven before we are not ready."""
ADDITIONS: Final = tuple(Step(plugin, plugin.policy) for plugin in (AvoidDraining(), PreferFuse(), WaitForData()))
"""What every pod with a dataset gets, whatever the profile says."""
AUTO: Final = "auto"
MEASURE_EVERY_S: Final = 15.0
DEMO_NODE: Final = "node-1"
"""The first of `fairlead up`, which has the demo's dataset cached."""


class Data(Capability):
    name = "data"

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        settings = runtime.settings.data
        self._metrics = DataMetrics(runtime.metrics.registry)
        try:
            self._profile = ProfileFile(settings.profile, self._metrics)
        except (OSError, UnicodeDecodeError, BadProfile) as problem:
            raise BadSettings(f"data.profile: {settings.profile}: {problem}") from None
        self.view = ClusterView(runtime)
        self._lease = runtime.mirror(
            LEASES, runtime.settings.namespace, fields=f"metadata.name={lease_name(type(self), runtime.settings)}"
        )
        self._leads = False
        self._changed = asyncio.Event()
        self._demo = asyncio.Event()
        self._refused_since: dict[str, float] = {}
        self._runner = PluginRunner(settings.plugin_budget_s, runtime.clock.elapsed_s)
        try:
            self._recorder = PodRecorder(settings.record_to, settings.record_most)
        except OSError as problem:
            raise BadSettings(f"data.recordTo: {problem}") from None
        self.webhook = DataWebhook(
            mirrored=self.view.mirrored,
            read=lambda ref: runtime.reader.find(ref.kind, ref.name, ref.namespace),
            is_absent=self.is_absent,
            profile=self._profile,
            options=self._options,
            runner=self._runner,
            metrics=self._metrics,
            now_s=runtime.clock.elapsed_s,
            record=self._recorder.record,
        )
        drains = Drains(runtime, self.view)
        self._fluid = FluidReviews(
            self.view.groups,
            self.view.objects[DATASETS.name],
            drains.drain_input,
            settings.direct_scale_in,
        )
        self._source = GroupSource(self.view, lambda: runtime.mirror(PLACED_PODS), runtime.clock.now)
        self._placed = PlacedGroups(runtime, self.view, self._source)
        runtime.offers.unit_sources.append(self._source)
        runtime.offers.caches.append(lambda: self.view.cache)
        self._levels = Levels(runtime, self.view)
        self._advice = Advice(runtime, self.view)
        self._others = (
            SideObjects(runtime), drains, Waits(runtime, self.view), Groups(runtime, self.view),
        )  # fmt: skip

    @classmethod
    def definitions(cls) -> Sequence[Mapping[str, Any]]:
        return definitions()

    @classmethod
    def local_settings(cls, settings: Settings, folder: Path) -> Settings:
        """A laptop's namespaces may take part by a label."""
        return msgspec.structs.replace(settings, data=msgspec.structs.replace(settings.data, namespace_mode=True))

    @classmethod
    def demo_definitions(cls) -> Sequence[Mapping[str, Any]]:
        return tuple(yaml.safe_load_all(files("fairlead.data").joinpath("demo_kinds.yaml").read_text()))

    async def demo(self) -> Sequence[Mapping[str, Any]]:
        self._demo.set()
        text = files("fairlead.data").joinpath("demo.yaml").read_text()
        return tuple(yaml.safe_load_all(text.replace("$NOW", rfc3339(self.runtime.clock.now()))))

    # -- every replica ---------------------------------------------------------------------------------------------

    def webhooks(self) -> Sequence[WebhookConfiguration]:
        settings = self.runtime.settings
        return (
            entries.configuration(
                by_label=self.webhook.by_label,
                by_namespace=self.webhook.by_namespace,
                worker=self._fluid.worker,
                scale=self._fluid.scale,
                namespace=settings.namespace,
                namespace_mode=settings.data.namespace_mode,
            ),
        )

    async def follow(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._profile.follow(self.runtime.clock), name="data: profile")
                tasks.create_task(self.view.follow(self._changed), name="data: caches")
                tasks.create_task(self._measure(), name="data: metrics")
                tasks.create_task(self._label_demo(), name="data: demo")
                for writer in self.runtime.offers.unit_writers:
                    tasks.create_task(self._source.follow(), name="data: groups")
                    tasks.create_task(self._placed.controller(writer).run(), name="data: placed groups")
        finally:
            self._recorder.close()

    async def _measure(self) -> None:
        while True:
            await self.runtime.clock.sleep(MEASURE_EVERY_S)
            shares = self.view.local_shares()
            self._metrics.local_share.clear()
            for dataset, share in shares.items():
                self._metrics.local_share.labels(dataset).set(share)

    async def _label_demo(self) -> None:
        """Fluid would label the node of the demo's worker: it stays warm when the demo's only report has grown old."""
        await self._demo.wait()
        while self.view.nodes.get(DEMO_NODE) is None:
            await self.runtime.clock.sleep(1.0)
        labels = {DatasetName("demo", "images").common_key(): "true"}
        result = await self.runtime.writer.carry_out(
            Patch(kind=NODES, name=DEMO_NODE, patch={"metadata": {"labels": labels}})
        )
        if not result.is_done:
            log.warning("not in the demo", kind="Node", name=DEMO_NODE, problem=str(result.error))

    def problem(self) -> str | None:
        unread = [mirror.kind.plural for mirror in self.view.mirrors if not mirror.is_synced]
        if unread:
            return f"still reading {', '.join(unread)}"
        now_s = self.runtime.clock.elapsed_s()
        for mirror in self.view.mirrors:
            name = mirror.kind.name
            if not isinstance(mirror.problem, Refused):
                self._refused_since.pop(name, None)
            elif now_s - self._refused_since.setdefault(name, now_s) > REFUSED_S:
                return f"{name} cannot be read: {mirror.problem}"
        return None

    def condition(self) -> str | None:
        if self._profile.problem:
            return f"data.profile: the old profile is in force: {self._profile.problem}"
        if not self.is_absent():
            return None
        return "Fluid's kinds are not defined on this cluster: no pod is changed until they are"

    def is_absent(self) -> bool:
        """Whether the cluster does not have Fluid's kinds: then nothing is a dataset."""
        absent = self.view.objects[DATASETS.name].is_absent
        self._metrics.absent.set(absent)
        return absent

    def _options(self) -> MutateOptions:
        settings = self.runtime.settings.data
        named = settings.schedulers
        scoring = self.runtime.offers.locality_schedulers if AUTO in named else ()
        return MutateOptions(
            injects=settings.injection,
            prefetcher_image=settings.prefetcher_image,
            native_sidecars=settings.sidecars == "native-sidecar",
            scoring_schedulers=frozenset({*scoring, *named} - {AUTO}),
            waiting_schedulers=frozenset(self.runtime.offers.locality_schedulers),
            locality=LocalityOptions(settings.affinity, settings.strength, self.view.cache),
            now=self.runtime.clock.now(),
            releases_gates=self._leads or self._has_leader(),
            additions=ADDITIONS,
        )

    def _has_leader(self) -> bool:
        """Whether some replica renews the lease: it releases the pods that are held."""
        for lease in self._lease:
            renewed = parse_time_or_none(lease.spec.renew_time)
            if renewed is not None and lease.spec.holder_identity:
                age_s = (self.runtime.clock.now() - renewed).total_seconds()
                return age_s < self.runtime.settings.lease.duration_s
        return False

    # -- the leader ------------------------------------------------------------------------------------------------

    async def lead(self) -> None:
        stop = self.runtime.stop
        controllers = [each.controller() for each in self._others]
        nudged: list[tuple[Controller, Mirror[Any]]] = [
            (self._levels.controller(), self.view.nodes),
            (self._advice.controller(), self.view.objects[DATASETS.name]),
        ]
        controllers += [each for each, _ in nudged]
        self._leads = True
        try:
            async with asyncio.TaskGroup() as tasks:
                for each in controllers:
                    tasks.create_task(each.run(), name=each.name)
                await first_of(nudge(nudged, self._changed), stop.wait())
                for each in controllers:
                    each.stop()
        finally:
            self._leads = False
