"""Ports of rigs that start side by side. Needs no Kubernetes."""

from tests.rigs.kube.servers import free_ports, reserved


def test_a_port_is_given_to_one_rig_only() -> None:
    first, second = set(free_ports(50)), set(free_ports(50))
    assert not first & second
    # As another rig would ask for it, before anybody listens.
    assert not any(reserved(port) for port in first)
