"""The workload of an item as it is now: read from the server, with who makes its pods and what admission adds."""

import dataclasses

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.placement.requests import plan
from fairlead.placement.requests.admission import Admission
from fairlead.placement.requests.model import next_maker, pod_body
from fairlead.placement.requests.plan import ItemInput, RoundOptions
from fairlead.placement.requests.progress import is_over
from fairlead.placement.requests.resolve import selecting
from fairlead.placement.requests.spec import WORKLOADS, ItemStatus, Workload
from fairlead.placement.spec import PODS, SERVICES

# How long a Deployment's ReplicaSet is waited for before its pods are planned without it.
MAKER_S = 30.0


class WorkloadLookup:
    def __init__(self, reader: Client, clock: Clock, options: RoundOptions) -> None:
        self._reader = reader
        self._clock = clock
        self._options = options
        self._admission = Admission(reader, clock)

    async def workload(self, item_input: ItemInput) -> Workload | None:
        """None if it is gone, or another one of its name now."""
        item = item_input.item
        found = await self._reader.find(WORKLOADS[item.workload.kind], item.workload.name, item.namespace)
        return found if found is not None and found.metadata.uid == item.workload.uid else None

    async def completed(self, item_input: ItemInput) -> ItemInput | ItemStatus:
        """The item with all that planning needs, or its status if that cannot be read."""
        item = item_input.item
        if item.workload.kind == "Service":
            return await self._bare_pods(item_input)
        workload = await self.workload(item_input)
        if workload is None:
            return plan.failed(item_input, f"{item.workload.described()} is gone, or another one now")
        if item.is_removal:
            return dataclasses.replace(item_input, workload=workload)
        return await self._with_maker(dataclasses.replace(item_input, workload=workload))

    async def _bare_pods(self, item_input: ItemInput) -> ItemInput | ItemStatus:
        item = item_input.item
        service = await self._reader.find(SERVICES, item.workload.name, item.namespace)
        if service is None or service.metadata.uid != item.workload.uid:
            return plan.failed(item_input, f"{item.workload.described()} is gone, or another one now")
        if not item.is_removal:
            return plan.failed(item_input, "bare pods, without a controller, can be removed, not added")
        if not service.spec.selector:
            # Selecting by nothing would select everything.
            return plan.failed(item_input, f"{item.workload.described()} selects no pods any more")
        pods = await self._reader.list(PODS, item.namespace, query=selecting(service.spec.selector))
        return dataclasses.replace(item_input, loose=tuple(pod for pod in pods if pod.metadata.controller is None))

    async def _with_maker(self, item_input: ItemInput) -> ItemInput | ItemStatus:
        """Who will make the new pods, and what admission will make of them."""
        item, workload = item_input.item, item_input.owner
        sets: list[Workload] = []
        if item.workload.kind == "Deployment":
            # Not all of its selector: their owner references say whose they are.
            labels = (workload.spec.selector.match_labels or {}) if workload.spec.selector is not None else {}
            sets = await self._reader.list(WORKLOADS["ReplicaSet"], item.namespace, query=selecting(labels))
        maker = next_maker(item.workload.kind, workload, sets)
        if maker is None:
            if not is_over(item_input.accepted_at, min(MAKER_S, self._options.settle_s), self._clock.now()):
                return plan.waiting(item_input, f"the ReplicaSet of {item.workload.described()} is not made yet")
            return item_input
        admitted = await self._admission.admitted(item.namespace, pod_body(maker))
        return dataclasses.replace(item_input, maker=maker, admitted=admitted)
