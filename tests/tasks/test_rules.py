"""Admission: every rule with its field, defaults of omitted blocks, and the shipped manifests. Numbers as specified."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from fairlead.apiserver.schema.custom import CustomKind
from fairlead.tasks.__main__ import agent, crds
from fairlead.tasks.admission import AdmissionOptions, Facts, mutate, start_with, validate, validate_update
from fairlead.tasks.names import carrier_names
from fairlead.tasks.spec import KINDS, START_WITH, VERSION, definitions
from fairlead.tasks.templates import agent_access
from fairlead.tasks.webhook import configurations
from fairlead.web.admission import Review, Verdict
from fairlead.webhooks import manifest
from tests.house.rules import ROOT
from tests.tasks.kit import NOW

DEPLOY = Path(ROOT) / "deploy"
CUSTOM = {each["spec"]["names"]["kind"]: CustomKind(each) for each in definitions()}
GRACE = "terminationGracePeriodMinutes"
HTTP = {"host": "http://example.org", "method": "GET"}
TARGETS: dict[str, Any] = {
    "NetReach": {},
    "AppHttpHealthy": HTTP,
    "Netdns": {"targetUser": {"server": "127.0.0.1"}},
}


def admit(
    kind: str = "NetReach", options: AdmissionOptions | None = None, facts: Facts | None = None, **spec: Any
) -> list[str]:
    """The fields for which an object is refused, as an API server with our webhooks would."""
    options, facts = options or AdmissionOptions(ipv6=False), facts or Facts()
    body = {"apiVersion": f"kdoctor.io/{VERSION}", "kind": kind, "metadata": {"name": "a"}}
    given = {"target": TARGETS[kind], **spec}
    known = CUSTOM[kind].as_read(VERSION, {**body, "spec": {k: v for k, v in given.items() if v is not None}})
    whole = CUSTOM[kind].as_read(VERSION, {**known, "spec": mutate(kind, known["spec"], options, facts)})
    errors = [error.field for error in CUSTOM[kind].validate(VERSION, whole) if error.field.startswith("spec")]
    return errors or [cause.path for cause in validate(kind, whole["spec"], {}, options, facts, NOW)]


@pytest.mark.parametrize(("kind", "most"), [("NetReach", 20), ("AppHttpHealthy", 100), ("Netdns", 100)])
def test_s49_the_maximum_is_allowed_and_one_more_is_not(kind: str, most: int) -> None:
    assert admit(kind, request={"qps": most}) == []
    assert admit(kind, request={"qps": most + 1}) == ["spec.request.qps"]


def test_s50_another_kind_of_carrier_is_refused() -> None:
    assert admit(agentSpec={"kind": "StatefulSet"}) == ["spec.agentSpec.kind"]


@pytest.mark.parametrize(
    "text", ["x 1", "0 0", "-1 1", "0  1", "1 2 3", "61 * * * *", "@every 1m", "", "0 0 31 2 *", "9999999999 1"]
)
def test_s51_a_schedule_that_is_none_is_refused(text: str) -> None:
    assert admit(schedule={"schedule": text, "roundTimeoutMinute": 1}) == ["spec.schedule.schedule"]


def test_s52_a_timeout_longer_than_the_interval_is_refused() -> None:
    schedule = {"schedule": "0 1", "roundTimeoutMinute": 2}
    assert admit(schedule=schedule) == ["spec.schedule.roundTimeoutMinute"]


@pytest.mark.parametrize(("name", "value"), [("durationInSecond", 61), ("perRequestTimeoutInMS", 60001)])
def test_s53_requests_longer_than_a_round_are_refused(name: str, value: int) -> None:
    schedule = {"schedule": "0 1", "roundTimeoutMinute": 1}
    assert admit(schedule=schedule, request={name: value}) == [f"spec.request.{name}"]
    assert admit(schedule=schedule, request={name: value - 1}) == []


@pytest.mark.parametrize(
    ("name", "value"), [("successRate", 1.5), ("successRate", -0.1), ("statusCode", 99), ("meanAccessDelayInMs", 0)]
)
def test_s54_an_expectation_out_of_bounds_is_refused(name: str, value: float) -> None:
    assert admit(expect={name: value}) == [f"spec.expect.{name}"]


def test_s55_two_targets_of_a_netdns_are_refused() -> None:
    assert admit("Netdns", target={"targetUser": {"server": "1.1.1.1"}, "targetDns": {}}) == ["spec.target"]


def test_s56_a_family_that_is_off_is_refused() -> None:
    assert admit(target={"ipv6": True}) == ["spec.target.ipv6"]
    assert admit("NetReach", AdmissionOptions(ipv6=True), target={"ipv6": True}) == []


def test_s57_the_spec_is_immutable_and_labels_are_not() -> None:
    spec = {"schedule": {"schedule": "0 60", "roundTimeoutMinute": 60, "roundNumber": 1}}
    metadata = {"name": "a", "uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    old = {"apiVersion": f"kdoctor.io/{VERSION}", "kind": "NetReach", "metadata": metadata, "spec": spec}
    labelled = {**old, "metadata": {**metadata, "labels": {"a": "b"}}}
    changed = {**old, "spec": {"schedule": {**spec["schedule"], "roundNumber": 2}}}
    assert CUSTOM["NetReach"].validate(VERSION, labelled, old) == []
    assert [error.field for error in CUSTOM["NetReach"].validate(VERSION, changed, old)] == ["spec"]
    assert [cause.path for cause in validate_update(spec, changed["spec"], {})] == ["spec"]


TLS = {"host": "https://a.example.org", "method": "GET", "tlsSecretName": "s", "tlsSecretNamespace": "n"}


@pytest.mark.parametrize(
    ("facts", "broken"),
    [
        (Facts(tls_secret={"ca.crt": "x"}), []),
        (Facts(), ["spec.target.tlsSecretName"]),
        (Facts(tls_secret={"other": "x"}), ["spec.target.tlsSecretName"]),
        (Facts(tls_secret={"tls.crt": ""}), ["spec.target.tlsSecretName"]),
        (Facts(tls_secret={"ca.crt": "x"}, may_read_tls_secret=False), ["spec.target.tlsSecretName"]),
    ],
)
def test_s58_a_secret_must_exist_be_readable_and_hold_only_what_is_used(facts: Facts, broken: list[str]) -> None:
    assert admit("AppHttpHealthy", facts=facts, target=TLS) == broken


@pytest.mark.parametrize(
    "host",
    [
        "http://fd00::1:80",
        "http://300.1.1.1",
        "http://[fd00::zz]:1",
        "http://a b",
        "http://u:p@a:b",
        "http://a:²",
        "x" * (1 << 20),
    ],
    ids=lambda host: host[:20],
)
def test_s59_a_host_that_is_none_is_refused(host: str) -> None:
    assert admit("AppHttpHealthy", target={"host": host, "method": "GET"}) == ["spec.target.host"]


@pytest.mark.parametrize(
    "host",
    ["http://10.0.0.1", "10.0.0.1:80", "localhost", "https://[fd00::1]:8443/x", "httpbin.org", "http://a.b.svc",
     "http://user:secret@10.0.0.1:80/x"],
)  # fmt: skip
def test_s59_hosts_as_users_write_them_are_accepted(host: str) -> None:
    assert admit("AppHttpHealthy", target={"host": host, "method": "GET"}) == []


@pytest.mark.parametrize(
    ("kind", "spec", "path"),
    [
        ("NetReach", {"schedule": {"schedule": "0 60", "roundNumber": 0}}, "spec.schedule.roundNumber"),
        ("NetReach", {"agentSpec": {"deploymentReplicas": -1}}, "spec.agentSpec.deploymentReplicas"),
        ("NetReach", {"agentSpec": {GRACE: -1}}, f"spec.agentSpec.{GRACE}"),
        ("NetReach", {"agentSpec": {"env": [{"name": "A"}, {"name": "AGENT_API_URL"}]}}, "spec.agentSpec.env[1].name"),
        ("AppHttpHealthy", {"target": {**HTTP, "header": ["no"]}}, "spec.target.header[0]"),
        ("AppHttpHealthy", {"target": {**HTTP, "bodyConfigmapName": "b"}}, "spec.target.bodyConfigmapNamespace"),
        ("AppHttpHealthy", {"target": {**HTTP, "tlsSecretName": "b"}}, "spec.target.tlsSecretNamespace"),
        ("AppHttpHealthy", {"target": None}, "spec.target"),
        ("Netdns", {"target": {"targetUser": {}}}, "spec.target.targetUser.server"),
        ("Netdns", {"target": {"targetDns": {"serviceName": "x"}}}, "spec.target.targetDns.serviceNamespace"),
        ("Netdns", {"target": {}}, "spec.target.targetUser"),
        ("Netdns", {"request": {"domain": "a..b"}}, "spec.request.domain"),
        ("Netdns", {"target": {"targetUser": {"server": "a\0b"}}}, "spec.target.targetUser.server"),
        ("Netdns", {"target": {"targetUser": {"server": "x" * 254}}}, "spec.target.targetUser.server"),
        ("AppHttpHealthy", {"target": {**HTTP, "host": "http://a\n.example.org"}}, "spec.target.host"),
    ],
)  # fmt: skip
def test_s60_what_the_original_lets_through_is_refused_with_its_field(kind: str, spec: Any, path: str) -> None:
    assert admit(kind, **spec) == [path]


@pytest.mark.parametrize("value", ["", 0, False, [], {}], ids=repr)
@pytest.mark.parametrize(
    ("kind", "block", "field", "own"),
    [("NetReach", "agentSpec", "kind", str), *((kind, "request", "qps", int) for kind in TARGETS),
     ("Netdns", "request", "domain", str), ("Netdns", "request", "protocol", str)],
)  # fmt: skip
def test_only_what_is_empty_and_of_its_own_type_is_taken_for_absent(
    kind: str, block: str, field: str, own: type, value: Any
) -> None:
    spec: Any = {block: {field: value}}
    assert set(admit(kind, **spec)) == (set() if type(value) is own else {f"spec.{block}.{field}"})


@pytest.mark.parametrize("kind", KINDS)
def test_s61_omitted_blocks_are_accepted_with_defaults_that_fit(kind: str) -> None:
    target = TARGETS[kind] if kind == "AppHttpHealthy" else None
    assert admit(kind, target=target) == []
    made = mutate(kind, {"target": target} if target else {}, AdmissionOptions(ipv6=False), Facts())
    assert made["request"]["perRequestTimeoutInMS"] == 500
    assert made["schedule"]["roundTimeoutMinute"] <= int(made["schedule"]["schedule"].split()[1])


def test_s10_long_and_dotted_names_are_hashed_to_valid_ones() -> None:
    for name in ("n" * 60, "a.b", "n" * 253, "a" * 48):
        names = carrier_names("Netdns", name)
        for each in (names.workload, names.service_v4, names.service_v6):
            assert len(each) <= 63
            assert "." not in each
    assert carrier_names("Netdns", "n" * 60) != carrier_names("Netdns", "n" * 61)


def test_s7_the_same_name_in_two_kinds_gives_two_carriers() -> None:
    assert len({carrier_names(kind, "a").workload for kind in KINDS}) == 3


@pytest.mark.parametrize(
    ("text", "share"), [("0.5", 0.5), ("90%", 0.9), ("1", 1), ("0", None), ("x", None), ("1.1", None)]
)
def test_the_share_of_ready_agents(text: str, share: float | None) -> None:
    assert start_with({START_WITH: text}) == share


@pytest.mark.parametrize("spec", [3, "x", [1], {"schedule": 3}, {"target": []}, {"request": "x"}, {"agentSpec": [1]}])
@pytest.mark.parametrize("kind", KINDS)
def test_a_spec_of_the_wrong_shape_breaks_nothing(kind: str, spec: Any) -> None:
    made = mutate(kind, spec, AdmissionOptions(), Facts())
    assert made == spec if not isinstance(spec, dict) else made | spec, "left for the schema to refuse"


def test_the_shipped_manifests_are_the_codes_own() -> None:
    assert (DEPLOY / "crds" / "tasks.yaml").read_text() == crds(), "python -m fairlead.tasks crds"
    assert (DEPLOY / "tasks" / "agent.yaml").read_text() == agent(), "python -m fairlead.tasks agent"


def test_agents_may_write_nothing() -> None:
    verbs = {verb for _, body in agent_access("ns") for rule in body.get("rules", ()) for verb in rule["verbs"]}
    assert verbs == {"get", "list", "watch"}
    rules = [rule for _, body in agent_access("ns") for rule in body.get("rules", ())]
    kinds = {kind for rule in rules if "resourceNames" not in rule for kind in rule["resources"]}
    assert not kinds & {"secrets", "configmaps", "*"}
    named = [rule for rule in rules if "resourceNames" in rule]
    assert [(rule["resources"], rule["resourceNames"], rule["verbs"]) for rule in named] == [
        (["configmaps"], ["fairlead-agent"], ["get"])
    ]


def test_webhooks_keep_kdoctors_paths_and_the_names_of_the_role() -> None:
    async def nothing(review: Review) -> Verdict:
        return Verdict()

    found = configurations(nothing, nothing)
    assert {each.path for one in found for each in one.webhooks} == {
        f"/{verb}-kdoctor-io-v1beta1-{kind.lower()}" for verb in ("mutate", "validate") for kind in KINDS
    }
    shipped = list(yaml.safe_load_all((DEPLOY / "tasks" / "webhooks.yaml").read_text()))
    assert shipped == [msgspec.to_builtins(manifest(one, namespace="fairlead-system")) for one in found]
