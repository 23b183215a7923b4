"""The EXTERNAL-IP column of Services: what kubectl shows of load balancers."""

from datetime import UTC, datetime
from typing import Any

import pytest

from fairlead.apiserver.printers.kinds import _service

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("spec", "ingress", "shown"),
    [
        ({}, [], "<none>"),
        ({"type": "LoadBalancer"}, [], "<pending>"),
        ({"type": "LoadBalancer"}, [{"ip": "10.0.0.2"}, {"hostname": "a.example"}], "10.0.0.2,a.example"),
        ({"type": "LoadBalancer", "externalIPs": ["1.2.3.4"]}, [{"ip": "10.0.0.2"}], "10.0.0.2,1.2.3.4"),
    ],
)
def test_a_load_balancer_is_shown_by_its_addresses(spec: Any, ingress: Any, shown: str) -> None:
    metadata = {"name": "s", "creationTimestamp": "2026-01-01T00:00:00Z"}
    thing = {"metadata": metadata, "spec": spec, "status": {"loadBalancer": {"ingress": ingress}}}
    assert _service(thing, NOW)[3] == shown
