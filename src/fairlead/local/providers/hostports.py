"""Host ports: connections to a port of this machine are forwarded to the pod that has it."""

import asyncio
import contextlib

from fairlead.cluster.clock import Clock
from fairlead.local.providers.addresses import HOST
from fairlead.local.proxy.plan import Address, Route
from fairlead.local.proxy.server import MOST_CONNECTIONS, MOST_PORTS, Listener, most_listeners
from fairlead.nodes.spec import KubeletPod


class HostPorts:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._most = most_listeners()
        self._slots = asyncio.Semaphore(MOST_CONNECTIONS)
        self._held: dict[str, dict[Address, Listener]] = {}

    async def hold(self, pod: KubeletPod, ip: str, node_ip: str) -> str:
        """Lead every host port of the pod to it; a sentence about the first that cannot be had."""
        ports = host_ports(pod, node_ip)
        if len(ports) > MOST_PORTS:
            return f"the pod has {len(ports)} host ports, and at most {MOST_PORTS} of a pod are served"
        held = self._held.setdefault(pod.uid, {})
        for address, port in ports:
            if address in held:
                continue
            if sum(map(len, self._held.values())) >= self._most:
                return f"{self._most} host ports are in use, and no more are served"
            listener = Listener(address, self._slots, self._clock, Route(pod.key, ((ip, port),)))
            try:
                await listener.listen()
            except OSError as problem:
                return f"host port {address[1]} cannot be listened on ({problem.strerror}): use another, or free it"
            held[address] = listener
            if address[0] == node_ip != HOST and (HOST, address[1]) not in held:
                await self._also(held, listener.route, address[1])
        return ""

    async def _also(self, held: dict[Address, Listener], route: Route, port: int) -> None:
        """For people on this machine: the first pod of any node to ask for a port has it on 127.0.0.1 too."""
        listener = Listener((HOST, port), self._slots, self._clock, route)
        with contextlib.suppress(OSError):
            await listener.listen()
            held[HOST, port] = listener

    async def release(self, uid: str) -> None:
        await asyncio.gather(*(listener.close() for listener in self._held.pop(uid, {}).values()))

    async def release_all(self) -> None:
        for uid in list(self._held):
            await self.release(uid)


def host_ports(pod: KubeletPod, node_ip: str) -> list[tuple[Address, int]]:
    """Where the pod wants to be reached on its node, and the port behind it; a pod of the host is there itself."""
    if pod.spec.host_network:
        return []
    return [
        ((port.host_ip if port.host_ip not in ("", "0.0.0.0") else node_ip, port.host_port), port.container_port)
        for container in pod.all_containers
        for port in container.ports or ()
        if port.host_port and (port.protocol or "TCP") == "TCP"
    ]
