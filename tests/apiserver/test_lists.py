"""Lists: items without their type, and with everything else."""

import pytest

from fairlead.apiserver.handlers.lists import bare

FRONT = b'{"kind":"ConfigMap","apiVersion":"v1",'


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (FRONT + b'"metadata":{"name":"c"},"data":{"a":"1"}}', b'{"metadata":{"name":"c"},"data":{"a":"1"}}'),
        # The official Python client writes fields in the order of the alphabet.
        (FRONT + b'"data":{"a":"1"},"metadata":{"name":"c"}}', b'{"data":{"a":"1"},"metadata":{"name":"c"}}'),
        (b'{"apiVersion":"v1","data":{"a":"1"},"kind":"ConfigMap"}', b'{"data":{"a":"1"}}'),
    ],
)
def test_an_item_of_a_list_loses_its_type_and_nothing_else(body: bytes, wanted: bytes) -> None:
    assert bare(body, FRONT) == wanted
