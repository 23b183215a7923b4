"""Addresses of a network: whether one is of it, and where the search for a free one begins."""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network

from fairlead.model.hashes import hash_number


def is_in(address: str, network: IPv4Network) -> bool:
    try:
        return IPv4Address(address) in network
    except ValueError:
        return False


def addresses_for(uid: str, network: IPv4Network) -> Iterator[str]:
    """Every address that may be given out, from a place that is the same for a uid every time, and on from there."""
    first, usable = hash_number(uid), network.num_addresses - 2
    return (str(network[1 + (first + step) % usable]) for step in range(usable))
