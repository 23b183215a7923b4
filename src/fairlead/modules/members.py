"""The replicas that serve bases, by their member leases, judged by our own clock only.

A replica writes and commands while its member lease is fresh, and stops 5 s before anybody may think that it is over
(`cluster.lease`). Here is the other side: whether another's has run out. `modules.ownership` asks before it takes a
node.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from fairlead.cluster.clock import Clock
from fairlead.cluster.mirror import Mirror
from fairlead.model.kinds import Lease
from fairlead.runtime import member_lease

URL: Final = "fairlead.io/modules-url"
"""On a member lease: where the replica hears heartbeats. A replica without it serves no bases."""
KEY: Final = "fairlead.io/modules-key"
"""On a member lease: the public key of what the replica passes on."""

DURATION_S: Final = 15


@dataclass(frozen=True, slots=True)
class Sighting:
    """A version of a lease, and when we first saw it."""

    uid: str
    version: str
    seen_s: float


class Members:
    def __init__(
        self,
        leases: Mirror[Lease],
        find: Callable[[str], Awaitable[Lease | None]],
        *,
        namespace: str,
        lease: str,
        me: str,
        clock: Clock,
        is_alone: bool = False,
        duration_s: int = DURATION_S,
    ) -> None:
        """`find` reads a lease by its name from the server; `is_alone`: there are no other replicas, ever."""
        self._leases = leases
        self._find = find
        self._namespace = namespace
        self._lease = lease
        self._clock = clock
        self._is_alone = is_alone
        self._duration_s = duration_s
        self._sightings: dict[str, Sighting] = {}
        self._missing: dict[str, float] = {}
        self.me = me

    def look(self) -> None:
        """Note which leases have been renewed; seen late, they only count as fresh for longer."""
        prefix = f"{self._lease}-member-"
        names = set()
        for lease in self._leases:
            if lease.metadata.name.startswith(prefix):
                names.add(lease.metadata.name)
                self._missing.pop(lease.metadata.name, None)
                self._see(lease)
        for name in self._sightings.keys() - names:
            del self._sightings[name]

    def alive(self) -> list[str]:
        """Ourselves, and every replica that serves bases and whose lease is fresh."""
        found = {self.me}
        if not self._is_alone:
            for lease in self._leases:
                holder = lease.spec.holder_identity or ""
                if URL in lease.metadata.annotations and self.is_alive(holder):
                    found.add(holder)
        return sorted(found)

    def is_alive(self, identity: str) -> bool:
        """As far as the watch tells; to take what is another's, `is_over` is asked."""
        if identity == self.me:
            return True
        name = member_lease(self._lease, identity)
        sighting = self._sightings.get(name)
        lease = self._lease_of(name)
        if self._is_alone or sighting is None or lease is None or lease.spec.holder_identity != identity:
            return False
        return self._clock.elapsed_s() < sighting.seen_s + self._duration_of(lease)

    async def is_over(self, identity: str) -> bool:
        """Whether a replica's time has run out for certain: read from the server, and unchanged for its duration.

        A lease that is not there, such as one that somebody deleted, may be made again by a holder that lives.
        """
        if self._is_alone:
            return True
        name = member_lease(self._lease, identity)
        found = await self._find(name)
        now_s = self._clock.elapsed_s()
        if found is None:
            return now_s - self._missing.setdefault(name, now_s) >= self._duration_s
        self._missing.pop(name, None)
        if found.spec.holder_identity != identity:
            return True  # given back
        return now_s - self._see(found).seen_s >= self._duration_of(found)

    def annotation(self, identity: str, key: str) -> str:
        lease = self._lease_of(member_lease(self._lease, identity))
        return lease.metadata.annotations.get(key, "") if lease is not None else ""

    def _lease_of(self, name: str) -> Lease | None:
        return self._leases.get(f"{self._namespace}/{name}")

    def _duration_of(self, lease: Lease) -> int:
        return lease.spec.lease_duration_seconds or self._duration_s

    def _see(self, lease: Lease) -> Sighting:
        metadata = lease.metadata
        known = self._sightings.get(metadata.name)
        if known is None or (known.uid, known.version) != (metadata.uid, metadata.resource_version):
            known = Sighting(metadata.uid, metadata.resource_version, self._clock.elapsed_s())
            self._sightings[metadata.name] = known
        return known
