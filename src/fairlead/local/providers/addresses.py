"""Loopback addresses for pods: each pod its own 127.x.y.z, the same one whenever that is possible.

Used by the process provider. An address is held by a socket in the kernel's abstract namespace, so that two Fairleads
on one machine never give out the same one, and a killed one holds none.
"""

import socket
from ipaddress import IPv4Network
from itertools import chain, islice

from fairlead.local.networks import addresses_for, is_in
from fairlead.nodes.provider import ProviderError

# Half of what is left of 127/8 below the Services' 127.96.0.0/12; 127.0.0.1 and its neighbours stay the host's.
DEFAULT_RANGE = "127.64.0.0/11"
# Below the pods' own; 127.0.1.1 is the machine's name on some systems.
NODE_RANGE = "127.1.0.0/16"
HOST = "127.0.0.1"
MOST_TRIES = 1000


class Addresses:
    def __init__(self, network: str = DEFAULT_RANGE) -> None:
        self._network = IPv4Network(network)
        if not self._network.is_loopback or self._network.num_addresses < 4:
            raise ValueError(f"pods need a range of loopback addresses such as {DEFAULT_RANGE}, got {network}")
        self._held: dict[str, tuple[str, socket.socket]] = {}

    def hold(self, uid: str, wish: str = "") -> str:
        """The pod's address: what it has, else the wish, else a place found from its uid, and on from there."""
        if uid in self._held:
            return self._held[uid][0]
        wishes = [wish] if is_in(wish, self._network) else []
        for address in chain(wishes, islice(addresses_for(uid, self._network), MOST_TRIES)):
            if (lock := _locked(address)) is not None:
                self._held[uid] = (address, lock)
                return address
        raise ProviderError(f"no free address among {MOST_TRIES} of {self._network}")

    def release(self, uid: str) -> None:
        held = self._held.pop(uid, None)
        if held is not None:
            held[1].close()

    def release_all(self) -> None:
        for uid in list(self._held):
            self.release(uid)


def _locked(address: str) -> socket.socket | None:
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        lock.bind(f"\0fairlead-pod-{address}")
    except OSError:
        lock.close()
        return None
    return lock


def node_address(number: int) -> str:
    """A node's own address, where the machine has more than one on its loopback; everybody's otherwise."""
    address = str(IPv4Network(NODE_RANGE)[number])
    try:
        socket.create_server((address, 0)).close()
    except OSError:
        return HOST
    return address
