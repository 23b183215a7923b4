"""Names that anybody may send become valid ones; module pods get what they lack, or a sentence."""

import contextlib
import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairlead.modules.arklet import Answer, Outcome, outcome_of, read_answer, seconds_of, sentence_of, states_of
from fairlead.modules.base_node import Liveness, NodeOptions, liveness, node_name, node_profile
from fairlead.modules.bases import Trust, parse_networks
from fairlead.modules.heartbeats import BaseMetadata, Heartbeat, Unreadable, parse_heartbeat
from fairlead.modules.mqtt import read_message
from fairlead.modules.names import koupleless_node_name, safe_label, safe_name
from fairlead.modules.spec import module_of
from fairlead.modules.webhook import review_pod
from fairlead.nodes.spec import Container, EnvVar

SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?")


@given(st.text(max_size=400))
def test_k04_any_identity_makes_a_valid_node_name(identity: str) -> None:
    name = koupleless_node_name(identity, "dev")
    assert SUBDOMAIN.fullmatch(name)
    assert len(name) <= 63
    label = safe_label(identity)
    assert LABEL.fullmatch(label)
    assert len(label) <= 63


def test_names_that_had_to_change_stay_apart() -> None:
    assert safe_name("a_b") != safe_name("a/b") != safe_name("A-b")
    assert safe_name("x" * 300) != safe_name("x" * 301)


def test_k05_a_version_that_is_no_label_is_kept_whole_in_an_annotation() -> None:
    beat = Heartbeat(BaseMetadata("i", "base", "1.0+b1"), ip="10.0.0.1")
    profile = node_profile("n", beat, None, Liveness.READY, NodeOptions())
    assert profile.labels["base.koupleless.io/version"].startswith("1.0-b1-")
    assert profile.annotations["base.koupleless.io/raw-version"] == "1.0+b1"


def test_k11_a_base_without_a_limit_gets_the_memory_of_the_settings() -> None:
    profile = node_profile("n", Heartbeat(ip="10.0.0.1"), None, Liveness.READY, NodeOptions(memory_bytes=1 << 30))
    assert profile.capacity["memory"] == "1048576Ki"
    assert profile.capacity["fairlead.io/module-memory"] == str(1 << 30)


@pytest.mark.parametrize(
    ("silent_s", "is_active", "status"),
    [(0, True, "True"), (24.9, True, "True"), (25, True, "Unknown"), (60, True, "False"), (0, False, "False")],
)
def test_k09_silence_is_judged_rung_by_rung(silent_s: float, is_active: bool, status: str) -> None:
    assert liveness(silent_s, is_active).value[0] == status


def test_a_base_in_a_pod_is_named_by_its_pod_and_others_by_their_identity() -> None:
    metadata = BaseMetadata("10.1.2.3", cluster_name="blue", stack="python")
    pod = Heartbeat(metadata, pod_namespace="shop", pod_name="base-0")
    assert node_name(pod, NodeOptions()) == "virtual-node-python-shop-base-0"
    assert node_name(Heartbeat(metadata), NodeOptions()) == "virtual-node-blue-10.1.2.3"


@pytest.mark.parametrize(
    ("peer", "token", "problem"),
    [
        ("10.1.2.3", "", None),
        ("10.1.2.4", "", "the heartbeat names 10.1.2.3 and comes from 10.1.2.4"),
        ("10.1.2.4", "secret", "the heartbeat names 10.1.2.3 and comes from 10.1.2.4"),
    ],
)
def test_a_heartbeat_is_believed_only_from_the_address_it_names(peer: str, token: str, problem: str | None) -> None:
    trust = Trust(parse_networks(["10.0.0.0/8"]), "secret")
    assert trust.problem(Heartbeat(ip="10.1.2.3"), peer, token) == problem


def test_k69_a_base_outside_the_trusted_networks_needs_the_token() -> None:
    trust = Trust(parse_networks(["10.0.0.0/8"]), "secret")
    beat = Heartbeat(ip="192.168.0.9")
    assert trust.problem(beat, "192.168.0.9", "wrong") == "192.168.0.9 is in no trusted network and bears no token"
    assert trust.problem(beat, "192.168.0.9", "secret") is None
    assert Trust().problem(beat, "192.168.0.9", "") is not None
    assert trust.problem(beat, "192.168.0.9", "\udcff") is not None, "bytes that are no UTF-8"
    assert trust.problem(beat, "192.168.0.9", "é") is not None


@pytest.mark.parametrize(
    "part",
    [
        {"port": "1238"},
        {"port": 1.5},
        {"port": True},
        {"localIP": 5},
        {"baseMetadata": []},
        {"baseMetadata": {"identity": 7}},
    ],
)
def test_a_heartbeat_with_a_field_of_another_type_is_none(part: dict[str, object]) -> None:
    with pytest.raises(Unreadable):
        parse_heartbeat(json.dumps(part))
    envelope = json.dumps({"publishTimestamp": 0, "data": part})
    assert read_message("koupleless_dev/x/base/heart", envelope, now_ms=0) is None


def test_a_null_in_a_heartbeat_counts_as_absent() -> None:
    body = '{"port":null,"localIP":null,"baseMetadata":{"identity":null},"state":null}'
    assert parse_heartbeat(body) == parse_heartbeat("{}")


@given(st.binary(max_size=300))
def test_no_bytes_break_the_readers(body: bytes) -> None:
    with contextlib.suppress(Unreadable):
        assert parse_heartbeat(body).port >= 0
    read_message("koupleless_dev/x/base/heart", body, now_ms=0)
    answer = read_answer(200, body)
    assert outcome_of("installBiz", answer) in Outcome
    assert sentence_of(answer)


WORDS = ["code", "data", "bizInfos", "bizName", "bizState", "bizStateRecords", "changeTime", "response", "command"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=5), inner),
    max_leaves=20,
)


@given(JSON, st.sampled_from(["heart", "health", "biz", "simpleBiz", "bizOperation", "batchInstallBizResponse", "x"]))
def test_no_json_breaks_the_readers(value: Any, what: str) -> None:
    text = json.dumps({"publishTimestamp": 5, "data": value})
    said = read_message(f"koupleless_dev/x/base/{what}", text, now_ms=5)
    assert said is None or said.identity == "x"
    assert states_of(value) is None or isinstance(value, list)
    answer = read_answer(200, json.dumps(value))
    assert outcome_of("uninstallBiz", answer) in Outcome


def test_the_cause_of_a_stack_trace_is_dug_out() -> None:
    trace = "a.B: x\n\tat c\nCaused by: d.E: y\n\tat f\nCaused by: java.lang.IllegalStateException: boom at start\n"
    answer = Answer("CMD_PROCESS_INTERNAL_ERROR", "Internal Error: InvocationTargetException", trace=trace)
    assert sentence_of(answer) == "java.lang.IllegalStateException: boom at start"


def container(**env: str) -> dict[str, Any]:
    variables = [{"name": name, "value": value} for name, value in env.items()]
    return {"name": "cart", "image": "https://h/cart.jar", "env": variables}


def pod(*containers: dict[str, Any], labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    labels = {"virtual-kubelet.koupleless.io/component": "module"} if labels is None else labels
    return {"metadata": {"labels": labels}, "spec": {"containers": list(containers), **spec}}


def test_k16_either_variable_names_the_version_and_biz_version_wins() -> None:
    def version(*pairs: tuple[str, str]) -> str:
        env = tuple(EnvVar(name=name, value=value) for name, value in pairs)
        return module_of(Container(name="cart", env=env)).version

    assert version(("MODULE_VERSION", "1")) == "1"
    assert version(("MODULE_VERSION", "1"), ("BIZ_VERSION", "2")) == "2"
    assert version() == ""
    verdict = review_pod(pod(container(BIZ_VERSION="2", MODULE_VERSION="1")), "dev")
    assert verdict.warnings == [
        'container "cart" names two module versions (BIZ_VERSION "2", MODULE_VERSION "1"): BIZ_VERSION counts'
    ]


@pytest.mark.parametrize(
    ("one", "reason", "words"),
    [
        (container(), "ModuleVersionMissing", "set the variable BIZ_VERSION"),
        ({**container(BIZ_VERSION="1"), "image": "cart.jar"}, "ModuleUrlInvalid", "write it with its protocol"),
    ],
    ids=["k16 no version", "k18 no protocol"],
)
def test_a_pod_that_no_base_could_run_is_refused(one: dict[str, Any], reason: str, words: str) -> None:
    verdict = review_pod(pod(one), "dev")
    assert not verdict.allowed
    assert verdict.reason == reason
    assert words in verdict.message


@given(st.text(max_size=60))
@example("[x/a.zip")
@example("℀x/a.zip")
def test_no_image_breaks_the_review(rest: str) -> None:
    for image in (rest, f"http://{rest}", f"file:/{rest}"):
        one = {**container(BIZ_VERSION="1"), "image": image}
        assert review_pod(pod(one), "dev").allowed is image.lower().startswith(("http://", "https://", "file:/"))


def test_what_a_module_pod_lacks_is_added_and_a_second_time_changes_nothing() -> None:
    key = "schedule.koupleless.io/virtual-node"
    given = pod(container(BIZ_VERSION="1.0"), labels={}, tolerations=[{"key": key, "value": "true"}])
    verdict = review_pod(given, "dev")
    assert verdict.warnings == [
        f'the toleration of {key} says "true", which does not match "True"; the right one was added'
    ]
    for operation in verdict.patch:
        part, name = operation["path"].strip("/").split("/")
        given[part][name] = operation["value"]
    assert given["metadata"]["labels"] == {
        "virtual-kubelet.koupleless.io/component": "module",
        "module.koupleless.io/cart": "1.0",
    }
    assert [each["value"] for each in given["spec"]["tolerations"]] == ["true", "True", "dev"]
    assert given["spec"]["nodeSelector"] == {"virtual-kubelet.koupleless.io/component": "vnode"}
    (term,) = given["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    # Of every namespace: a base has one module of an identity, whoever asks for it.
    assert (term["topologyKey"], term["namespaceSelector"]) == ("kubernetes.io/hostname", {})
    assert review_pod(given, "dev").patch == []


def test_k13_a_pod_that_tolerates_everything_is_no_module() -> None:
    assert review_pod(pod(container(), labels={}, tolerations=[{"operator": "Exists"}]), "dev").patch == ()


@pytest.mark.parametrize("value", ["1", "x", [], {}, None, True, -1, 10**400, 1e300, float("nan"), float("inf")])
def test_a_base_that_measures_nonsense_measures_nothing(value: Any) -> None:
    assert seconds_of({"cpu": value}, "cpu") == 0
    assert seconds_of({"cpu": 0.25}, "cpu") == 0.25


def test_a_module_that_has_used_a_core_for_a_month_has_used_it() -> None:
    assert seconds_of({"cpu": 30 * 86_400}, "cpu") == 2_592_000
