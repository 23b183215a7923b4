"""The committed facts are the real server's."""

import pytest

from fairlead.apiserver.schema import facts
from tests.rigs.kube.facts import FACTS, INTERNAL, from_rig, gather, internal_text, read_go_types, text
from tests.rigs.kube.servers import Rig


def test_the_file_says_what_the_real_server_says(rig: Rig) -> None:
    fresh = text(gather(from_rig(rig), read_go_types()))
    assert fresh == FACTS.read_text(), "Kubernetes changed: run `python -m tests.rigs.kube.facts`"


@pytest.mark.kube
def test_the_servers_own_pod_spec_is_known_as_it_is() -> None:
    fresh = internal_text(read_go_types("internal.go"))
    assert fresh == INTERNAL.read_text(), "Kubernetes changed: run `python -m tests.rigs.kube.facts`"


def test_our_openapi_lists_the_fields_and_the_kinds_of_the_real_server(rig: Rig) -> None:
    get = from_rig(rig)
    for group, version in sorted({(each.group, each.version) for each in facts.load().resources}):
        real = get(f"/openapi/v3/{f'apis/{group}/{version}' if group else f'api/{version}'}")["components"]["schemas"]
        ours = facts.load().openapi_v3(group, version)["components"]["schemas"]
        for name, schema in ours.items():
            if name not in real:
                continue  # DeleteOptions and Status, which we offer with every group
            assert set(schema["properties"]) == set(real[name].get("properties", {})), name
            assert schema.get("required") == real[name].get("required"), name
