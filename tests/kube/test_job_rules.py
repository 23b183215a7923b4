"""The rules of the TYJob definition on a real kube-apiserver, which also estimates what each rule costs."""

from fairlead.jobs.definition import definitions
from tests.jobs import rules
from tests.kube.clients import client
from tests.rigs.kube.servers import Rig, until


async def test_each_rule_of_the_definition_holds_on_a_real_server(rig: Rig, namespace: str) -> None:
    async with client(rig) as api:
        await rules.define(api)
        names = [each["metadata"]["name"] for each in definitions()]
        assert until(lambda: all(_is_established(rig, name) for name in names), 30)
        assert await rules.wrong_refusals(api, namespace) == []
        assert await rules.wrong_queues(api) == []
        assert await rules.wrong_changes(api, namespace) == []
        assert await rules.defaults(api, namespace) == rules.DEFAULTS


def _is_established(rig: Rig, name: str) -> bool:
    return "True" in rig.kubectl(
        "get", "crd", name, "-o", 'jsonpath={.status.conditions[?(@.type=="Established")].status}'
    )
