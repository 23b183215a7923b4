"""Loopback addresses: the same for a pod, never the same for two."""

import os
from collections.abc import Callable, Iterator

import pytest

from fairlead.local.providers.addresses import Addresses
from fairlead.nodes.provider import ProviderError

# A range of this run's own: addresses are held against every process on the machine, other runs' included.
PREFIX = f"127.{40 + os.getpid() // 256 % 16}.{os.getpid() % 256}"
RANGE = f"{PREFIX}.0/28"


@pytest.fixture
def addresses() -> Iterator[Callable[[], Addresses]]:
    made: list[Addresses] = []

    def new() -> Addresses:
        made.append(Addresses(RANGE))
        return made[-1]

    yield new
    for held in made:
        held.release_all()


def test_an_address_is_found_from_the_pods_uid(addresses: Callable[[], Addresses]) -> None:
    one = addresses()
    first = one.hold("uid-1")
    assert one.hold("uid-1") == first
    one.release("uid-1")
    assert addresses().hold("uid-1") == first


def test_no_two_pods_share_one_be_they_of_two_fairleads(addresses: Callable[[], Addresses]) -> None:
    one, other = addresses(), addresses()
    held = [one.hold(f"uid-{n}") for n in range(7)] + [other.hold(f"uid-{n}") for n in range(7)]
    assert len(set(held)) == 14
    with pytest.raises(ProviderError, match="no free address"):
        one.hold("uid-one-too-many")


def test_a_pod_that_had_an_address_gets_it_again(addresses: Callable[[], Addresses]) -> None:
    assert addresses().hold("uid-x", wish=f"{PREFIX}.9") == f"{PREFIX}.9"
    assert addresses().hold("uid-y", wish="10.0.0.1").startswith(f"{PREFIX}.")


def test_only_loopback_will_do() -> None:
    with pytest.raises(ValueError, match="loopback"):
        Addresses("10.0.0.0/8")
