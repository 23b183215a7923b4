"""The nodes of the embedded cluster: so many that run processes, so many that act, with their Services and logs.

The composition root builds one `Fleet` and runs it. On a real API server it works the same, but for Services, whose
cluster addresses are then not ours to serve.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from fairlead.cluster.backoff import Rng
from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Mirror
from fairlead.cluster.recorder import Recorder
from fairlead.cluster.watch import Watch
from fairlead.cluster.writer import Writer
from fairlead.local.providers.addresses import HOST, node_address
from fairlead.local.providers.pod_sandbox import Private
from fairlead.local.providers.process import ProcessProvider
from fairlead.local.providers.simulated import SimulatedProvider
from fairlead.local.proxy.server import ServiceProxy
from fairlead.local.proxy.spec import ENDPOINT_SLICES, SERVICES, Service
from fairlead.model.intents import PatchStatus
from fairlead.nodes.kubelet import VirtualKubelet
from fairlead.nodes.node import Profile
from fairlead.nodes.server import Access, KubeletServer

log = structlog.get_logger("fairlead.nodes")

PODS_PER_NODE = 110
MANY_NODES = 100
SIMULATED_CAPACITY = {"cpu": "32", "memory": "128Gi", "pods": str(PODS_PER_NODE)}
# Simulated nodes are spread over this many values of topology.kubernetes.io/zone.
ZONES = 3
NOT_ENFORCED = {
    "type": "LimitsEnforced",
    "status": "False",
    "reason": "ProcessProvider",
    "message": "containers are plain processes here: requests count for scheduling, limits are not enforced",
}
SIMULATED_TAINT = {"key": "fairlead.io/simulated", "value": "true", "effect": "PreferNoSchedule"}


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """Which nodes there shall be."""

    processes: int = 1
    simulated: int = 0
    process_prefix: str = "node"
    simulated_prefix: str = "sim"
    capacity: Mapping[str, str] = field(default_factory=dict)
    """Of one process node, over what the machine gives when it is divided by the nodes."""
    proxy: bool = True


class Fleet:
    def __init__(
        self,
        client: Client,
        liveness: Client,
        writer: Writer,
        recorder: Recorder,
        folder: Path,
        plan: FleetPlan,
        *,
        clock: Clock,
        rng: Rng,
        metrics: Metrics,
        access: Access | None = None,
        api: tuple[str, int] | None = None,
        private: Private | None = None,
    ) -> None:
        """`access` opens the kubelet's HTTP API; `api` is where pods reach the API server; `folder` is ours alone.

        `private` is what pods do not see, where that is more than the folder.
        """
        self._plan = plan
        self._writer = writer
        addresses = {profile.name: profile.ip for profile in process_profiles(plan)}
        self._addresses = list(dict.fromkeys((HOST, *addresses.values())))
        self.processes = ProcessProvider(folder, clock=clock, private=private, node_addresses=addresses)
        self.simulated = SimulatedProvider(clock=clock, rng=rng)
        services = Watch(client, SERVICES, clock=clock, rng=rng, metrics=metrics)
        slices = Watch(client, ENDPOINT_SLICES, clock=clock, rng=rng, metrics=metrics)
        self.proxy = ServiceProxy(
            Mirror(services, SERVICES, metrics),
            Mirror(slices, ENDPOINT_SLICES, metrics),
            recorder,
            clock=clock,
            api=api,
            node_addresses=self._addresses,
            on_names=lambda names: self.processes.set_names(names.within),
            publish=self._balanced,
        )
        self.kubelet = VirtualKubelet(
            client,
            writer,
            recorder,
            clock=clock,
            rng=rng,
            metrics=metrics,
            liveness=liveness,
            service_env=self.proxy.service_env,
            # A node is given up only after forty seconds.
            lease_period_s=10.0 if plan.processes + plan.simulated <= MANY_NODES else 20.0,
        )
        self._server = KubeletServer(self.kubelet, access, clock=clock) if access is not None else None

    async def _balanced(self, service: Service, address: str) -> None:
        """A load balancer's address, into the Service's status."""
        status = {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]}}
        metadata = service.metadata
        await self._writer.carry_out(
            PatchStatus(kind=SERVICES, name=metadata.name, namespace=metadata.namespace, status=status)
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Fleet"]:
        """Everything at work for as long as the block runs.

        Entered once the process nodes are registered; simulated ones, which may be thousands, follow.
        """
        async with AsyncExitStack() as stack:
            port = 0
            if self._server is not None:
                port = await stack.enter_async_context(self._server.served(self._addresses))
            real = process_profiles(self._plan, port)
            for profile in real:
                self.kubelet.add(profile, self.processes)
            for profile in simulated_profiles(self._plan, port):
                self.kubelet.add(profile, self.simulated)
            async with asyncio.TaskGroup() as tasks:
                working = [tasks.create_task(self.kubelet.run(), name="kubelet")]
                if self._plan.proxy:
                    working.append(tasks.create_task(self.proxy.run(), name="service proxy"))
                try:
                    await self.kubelet.wait_registered(profile.name for profile in real)
                    if self._plan.processes:
                        log.info("process nodes", count=self._plan.processes, mode=await self.processes.mode())
                    yield self
                finally:
                    for task in working:
                        task.cancel()


def node_names(plan: FleetPlan) -> set[str]:
    return {profile.name for profile in (*process_profiles(plan), *simulated_profiles(plan))}


def process_profiles(plan: FleetPlan, kubelet_port: int = 0) -> list[Profile]:
    given = {**machine_capacity(max(1, plan.processes)), **plan.capacity}
    return [
        Profile(
            name=f"{plan.process_prefix}-{number}",
            provider="process",
            ip=node_address(number),
            capacity=given,
            kubelet_port=kubelet_port,
            architecture=architecture(),
            kernel_version=os.uname().release,
            labels={"topology.kubernetes.io/zone": "local"},
            conditions=(NOT_ENFORCED,),
        )
        for number in range(1, plan.processes + 1)
    ]


def simulated_profiles(plan: FleetPlan, kubelet_port: int = 0) -> list[Profile]:
    return [
        Profile(
            name=f"{plan.simulated_prefix}-{number}",
            provider="simulated",
            capacity=SIMULATED_CAPACITY,
            kubelet_port=kubelet_port,
            labels={"topology.kubernetes.io/zone": f"zone-{number % ZONES}"},
            # Beside nodes that really run pods, actors are the second choice.
            taints=(SIMULATED_TAINT,) if plan.processes else (),
        )
        for number in range(1, plan.simulated + 1)
    ]


def machine_capacity(nodes: int) -> dict[str, str]:
    """The machine's cpu and memory, divided evenly."""
    cpus = os.cpu_count() or 1
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        memory = 4 << 30
    return {
        "cpu": f"{cpus * 1000 // nodes}m",
        "memory": f"{memory // nodes // 1024}Ki",
        "pods": str(PODS_PER_NODE),
        "ephemeral-storage": "10Gi",
    }


def architecture() -> str:
    machine = os.uname().machine
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
