"""The scaler: carries out what is planned for one item, once.

One PATCH per workload, with the request's name in it and the version it was decided on, so that a second one can only
be refused; before it the costs that name the pods to go, beside it the evictions of bare pods.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import structlog

from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ClusterError, NotLeader
from fairlead.cluster.writer import Outcome, Writer
from fairlead.engine.removal import DELETION_COST
from fairlead.model.intents import Intent, RecordEvent, Regarding
from fairlead.model.pod import SchedulerPod
from fairlead.placement.requests import actions, plan
from fairlead.placement.requests.cache import RequestCache
from fairlead.placement.requests.held_places import HeldPlaces
from fairlead.placement.requests.lookup import WorkloadLookup
from fairlead.placement.requests.plan import ItemInput, RoundOptions
from fairlead.placement.requests.spec import ANNOTATION, Item, ItemKey, ItemStatus, ScheduleRequest
from fairlead.placement.requests.writes import write, write_all

log = structlog.get_logger("fairlead.requests")

# How long we wait between two looks for something to show.
HEARING_S = 0.02
# A workload that changes under our hands so often is left for the next look.
MOST_CONFLICTS = 8


class Scaler:
    def __init__(
        self,
        cache: RequestCache,
        lookup: WorkloadLookup,
        places: HeldPlaces,
        *,
        writer: Writer,
        clock: Clock,
        find_pod: Callable[[str], SchedulerPod | None],
        options: RoundOptions,
        watch_checks: int,
    ) -> None:
        self._cache = cache
        self._lookup = lookup
        self._places = places
        self._writer = writer
        self._clock = clock
        self._find_pod = find_pod
        self._options = options
        self._watch_checks = watch_checks
        self._evicting: dict[ItemKey, asyncio.Task[None]] = {}

    async def carry_out(self, request: ScheduleRequest, index: int, status: ItemStatus) -> ItemStatus:
        """Change the workload as planned; the item as it is then, unchanged if that has to be tried again."""
        item = request.spec.items[index]
        item_input = ItemInput(request.name, index, item, status, request.spec.accepted_at, None)
        if item.workload.kind == "Service":
            return actions.acted(status, item, None, self._clock.now())  # the evictions follow, as often as need be
        costs = actions.plan_costs(item, status)
        await write_all(self._writer, costs)
        await self._wait_for_costs([f"{each.namespace}/{each.name}" for each in costs])
        trouble, is_known = "it keeps changing", True
        for _ in range(MOST_CONFLICTS):
            try:
                workload = await self._lookup.workload(item_input)
            except NotLeader:
                raise
            except ClusterError as problem:
                trouble, is_known = f"it cannot be read: {problem}", False
                break
            if workload is None:
                return await self._give_up(item_input, f"{item.workload.described()} is gone, or another one now")
            uid = request.metadata.uid
            scale = actions.plan_scale(request.name, uid, item, workload)
            if scale is None:
                was_sent = workload.was_changed_by(request.name, uid)
                return actions.acted(status, item, None if was_sent else workload, self._clock.now())
            result = await write(self._writer, scale)
            if result.outcome is Outcome.DONE:
                self._cache.memory(item_input.item_key).stuck_since_s = None
                done = actions.acted(status, item, workload, self._clock.now())
                await self._record(request, item, done)
                return done
            if result.outcome is Outcome.REFUSED and not result.may_have_happened:
                return await self._give_up(item_input, f"{item.workload.described()} was not changed: {result.error}")
            if result.outcome not in (Outcome.CONFLICT, Outcome.MISSING):
                trouble, is_known = str(result.error), not result.may_have_happened
                break
        log.warning("not scaled yet", request=request.name, item=index, problem=trouble)
        return await self._not_now(item_input, trouble, is_known=is_known)

    async def _not_now(self, item_input: ItemInput, trouble: str, *, is_known: bool) -> ItemStatus:
        memory = self._cache.memory(item_input.item_key)
        if not memory.is_stuck_for(self._options.settle_s, self._clock.elapsed_s()):
            return item_input.status
        why = f"{item_input.item.workload.described()} was not changed: {trouble}; no longer tried"
        doubt = f"; should it have been changed after all, its annotation {ANNOTATION} names this request"
        return await self._give_up(item_input, why if is_known else why + doubt)

    async def _wait_for_costs(self, pods: Sequence[str]) -> None:
        """Until our own watch shows their costs: by then the controller most likely sees them, too."""
        for _ in range(self._watch_checks):
            known = [pod for key in pods if (pod := self._find_pod(key)) is not None]
            if all(pod.metadata.annotations.get(DELETION_COST) == actions.LOWEST_COST for pod in known):
                return
            await self._clock.sleep(HEARING_S)

    async def _give_up(self, item_input: ItemInput, why: str) -> ItemStatus:
        self._cache.memory(item_input.item_key).stuck_since_s = None
        await self.restore_costs(item_input.item, item_input.status)
        await self._places.release([item_input.item_key])
        return plan.failed(item_input, why)

    async def restore_costs(self, item: Item, status: ItemStatus) -> None:
        """Pods that were named to go and stay get their own deletion costs back."""
        await write_all(self._writer, actions.plan_costs_back(item, status))

    async def _record(self, request: ScheduleRequest, item: Item, status: ItemStatus) -> None:
        replicas = status.replicas
        assert replicas is not None
        about = Regarding(
            kind=item.workload.kind,
            api_version="apps/v1",
            name=item.workload.name,
            namespace=item.namespace,
            uid=item.workload.uid,
        )
        note = f"Scaled from {replicas.before} to {replicas.after} by request {request.name} of {request.spec.user}"
        await self._writer.carry_out(
            RecordEvent(regarding=about, reason="ScaledByRequest", action="Scaling", note=note)
        )

    # -- evictions --------------------------------------------------------------------------------------------

    def evict(self, key: ItemKey, evictions: Sequence[Intent]) -> None:
        """Evict the pods, beside the rounds: a budget may delay that. Repeated until they are gone."""
        if evictions and key not in self._evicting:
            task = asyncio.create_task(self._ask_to_go(evictions), name=f"evict {key}")
            self._evicting[key] = task
            task.add_done_callback(lambda _: self._evicting.pop(key, None))

    def stop_evicting(self, keys: Iterable[ItemKey]) -> None:
        """Stop evicting pods that wait for a budget once their request is gone."""
        for key in keys:
            if (task := self._evicting.get(key)) is not None:
                task.cancel()

    def stop_evicting_except(self, requests: set[str]) -> None:
        self.stop_evicting([key for key in self._evicting if key.request not in requests])

    async def _ask_to_go(self, evictions: Sequence[Intent]) -> None:
        await self._writer.carry_out_all(evictions)

    async def close(self) -> None:
        tasks = list(self._evicting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
