"""Which replica serves which base: the same answer on every replica that sees the same nodes and members.

Pure. Rendezvous hashing with a bound: a node is for the member with the highest hash that has room, so that a member
that comes or goes moves few nodes, and none has much more than its share.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from math import ceil

SLACK = 1.1
"""No member has more than this times the even share."""


def rank(node: str, members: Iterable[str]) -> list[str]:
    """The members in this node's own order, the first choice first."""
    return sorted(members, key=lambda member: (_hash(member, node), member), reverse=True)


def _hash(member: str, node: str) -> bytes:
    return hashlib.blake2b(f"{member}\0{node}".encode(), digest_size=8).digest()


def assign(nodes: Collection[str], members: Collection[str]) -> dict[str, str]:
    """Node → member; empty where there is no member."""
    if not members:
        return {}
    even = len(nodes) / len(members)
    room = dict.fromkeys(members, max(ceil(even), int(SLACK * even)))
    assigned = {}
    for node in sorted(nodes):
        member = next(each for each in rank(node, members) if room[each] > 0)
        room[member] -= 1
        assigned[node] = member
    return assigned


@dataclass(frozen=True, slots=True)
class Shares:
    take: tuple[str, ...]
    """Nodes that are ours to take, if their holders prove to be gone."""
    hand_over: tuple[str, ...]
    """Nodes that we serve and another should."""


def plan_shares(
    me: str,
    nodes: Collection[str],
    members: Collection[str],
    holders: Mapping[str, str],
    serving: Collection[str],
    is_alive: Callable[[str], bool],
) -> Shares:
    """`holders`: node → who its lease names, empty where nobody; a node without an entry has no lease.

    Nobody's node is taken by the one it is for. A dead member's too: until then it stays with it.
    """
    assigned = assign(nodes, members)
    take, hand_over = [], []
    for node in sorted(nodes):
        owner, holder = assigned.get(node, ""), holders.get(node, "")
        if node in serving:
            if owner != me and owner and is_alive(owner):
                hand_over.append(node)
        elif holder == me or (owner == me and not (holder and is_alive(holder))):
            take.append(node)
    return Shares(tuple(take), tuple(hand_over))
