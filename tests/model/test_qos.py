"""Which class a pod is of."""

import pytest

from fairlead.model.qos import Amounts, qos_class

BOTH = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param([], "BestEffort", id="no containers"),
        pytest.param([(None, None), ({}, {})], "BestEffort", id="nothing said"),
        pytest.param([({"cpu": "0", "memory": 0}, {"memory": "0Gi"})], "BestEffort", id="zeroes"),
        pytest.param([({"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 1})], "BestEffort", id="neither cpu nor memory"),
        pytest.param([({"cpu": "1m"}, None)], "Burstable", id="a request only"),
        pytest.param([(None, {"cpu": 1})], "Burstable", id="one limit only"),
        pytest.param([(None, BOTH)], "Guaranteed", id="limits are requests"),
        pytest.param([({"cpu": "1000m", "memory": "1024Mi"}, BOTH)], "Guaranteed", id="the same in other words"),
        pytest.param([({"cpu": "999m"}, BOTH)], "Burstable", id="less is requested"),
        pytest.param([({"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}, BOTH)], "Guaranteed", id="others"),
        pytest.param([(BOTH, BOTH), (None, None)], "Burstable", id="one of two says nothing"),
        pytest.param([(BOTH, BOTH), (BOTH, {**BOTH, "cpu": 2})], "Burstable", id="one of two may use more"),
        pytest.param([(BOTH, BOTH), (None, BOTH)], "Guaranteed", id="both"),
    ],
)
def test_the_class_follows_from_what_is_said(resources: list[tuple[Amounts, Amounts]], expected: str) -> None:
    assert qos_class(resources) == expected
