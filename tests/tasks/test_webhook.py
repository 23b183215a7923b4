"""The webhooks of tasks: facts looked up as the author of the task, and an answer to whatever is reviewed."""

import random
from typing import Any

import msgspec
import pytest

from fairlead.settings import Settings
from fairlead.tasks.spec import KINDS
from fairlead.tasks.webhook import SecretData, TaskWebhooks
from fairlead.testing.clock import ManualClock
from fairlead.web.admission import Review, answer, parse

TARGET = {"host": "https://a.example.org", "method": "GET", "tlsSecretName": "s", "tlsSecretNamespace": "n"}
SPEC = {"target": TARGET, "schedule": {"schedule": "0 60", "roundTimeoutMinute": 60}, "expect": {"successRate": 1}}


class Guard:
    def __init__(self, allowed: bool) -> None:
        self.allowed = allowed
        self.questions: list[Any] = []

    async def allows(self, user: Any, action: Any) -> bool:
        self.questions.append((user.username, action.resource, action.namespace, action.name))
        return self.allowed


class Reader:
    async def find(self, kind: Any, name: str, namespace: str) -> Any:
        return SecretData(data={"ca.crt": "eA=="})


class Families:
    async def enabled(self) -> tuple[bool, bool, list[str]]:
        return True, False, []


class Empty:
    services: dict[str, Any] = {}
    ingresses: dict[str, Any] = {}


def webhooks(guard: Guard) -> TaskWebhooks:
    class Runtime:
        settings = Settings()
        clock = ManualClock()
        reader = Reader()

        class routes:  # noqa: N801
            pass

    runtime: Any = Runtime()
    runtime.routes.guard = guard
    mirrors: Any = Empty()
    families: Any = Families()
    return TaskWebhooks(runtime, mirrors, families)


def review(spec: Any, kind: str = "AppHttpHealthy", operation: str = "CREATE") -> Review:
    body = {
        "uid": "1",
        "operation": operation,
        "kind": {"group": "kdoctor.io", "version": "v1beta1", "kind": kind},
        "userInfo": {"username": "author", "groups": ["g"], "extra": {"k": ["v"]}},
        "object": {"metadata": {"name": "a"}, "spec": spec},
        "oldObject": {"metadata": {"name": "a"}, "spec": {}},
    }
    return msgspec.convert(body, Review)


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_secret_is_for_authors_who_may_read_it(allowed: bool) -> None:
    guard = Guard(allowed)
    verdict = await webhooks(guard)._validate(review(SPEC))
    assert guard.questions == [("author", "secrets", "n", "s")]
    assert verdict.allowed == allowed
    assert allowed or "you may not read Secret n/s" in verdict.message


async def test_omitted_blocks_are_filled_in_by_a_patch() -> None:
    verdict = await webhooks(Guard(True))._mutate(review({"agentSpec": {}}, "NetReach"))
    (patch,) = verdict.patch
    assert patch["value"]["agentSpec"]["terminationGracePeriodMinutes"] == 60
    assert patch["value"]["target"]["ipv6"] is False


@pytest.mark.parametrize(("duration", "words"), [(54, ""), (55, "write at most 54"), (60, "write at most 54")])
async def test_requests_for_as_long_as_the_round_are_allowed_with_a_warning(duration: int, words: str) -> None:
    schedule = {"schedule": "0 1", "roundTimeoutMinute": 1}
    spec = {**SPEC, "schedule": schedule, "request": {"durationInSecond": duration}}
    verdict = await webhooks(Guard(True))._validate(review(spec))
    assert verdict.allowed
    assert len(verdict.warnings) == bool(words)
    assert all(words in each for each in verdict.warnings)


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("http://ftp://x.org", "nothing can be asked there"),
        ("http://HTTP://example.org", "nothing can be asked there"),
        ("http://", "nothing can be asked there"),
        ("http://example.org:99999", "99999 is no port"),
        ("http://example.org:0", "0 is no port"),
        ("http://example.org:65535/a:b", ""),
        ("https://[fd00::1]:80", ""),
        ("httpbin.org", ""),
        ("localhost:8080", ""),
    ],
)
async def test_a_host_that_kdoctor_takes_and_nobody_can_ask_is_allowed_with_a_warning(host: str, words: str) -> None:
    spec = {**SPEC, "target": {"host": host, "method": "GET"}}
    verdict = await webhooks(Guard(True))._validate(review(spec))
    assert verdict.allowed
    assert len(verdict.warnings) == bool(words)
    assert all(each.startswith("spec.target.host: ") and words in each for each in verdict.warnings)


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
async def test_an_annotation_of_ours_that_does_not_exist_is_allowed_with_a_warning(operation: str) -> None:
    annotations = {"tasks.fairlead.io/suspended": "true", "tasks.fairlead.io/suspend": "false", "other/suspended": ""}
    body = {"metadata": {"name": "a", "annotations": annotations}, "spec": SPEC}
    asked = msgspec.structs.replace(review(SPEC, operation=operation), object=body, old_object={"spec": SPEC})
    verdict = await webhooks(Guard(True))._validate(asked)
    (warning,) = verdict.warnings
    assert verdict.allowed
    assert warning.startswith("metadata.annotations[tasks.fairlead.io/suspended]: ")
    assert "tasks.fairlead.io/suspend," in warning


async def test_an_update_of_the_spec_is_refused() -> None:
    verdict = await webhooks(Guard(True))._validate(review({"x": 1}, "NetReach", "UPDATE"))
    assert (verdict.allowed, verdict.code) == (False, 422)


@pytest.mark.parametrize("kind", ["", "Pod", "x" * 1000])
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
async def test_a_review_of_another_kind_is_refused_with_words(kind: str, operation: str) -> None:
    made = webhooks(Guard(True))
    for handle in (made._mutate, made._validate):
        verdict = await handle(review({}, kind, operation))
        assert (verdict.allowed, verdict.code, verdict.reason) == (False, 400, "BadRequest")
        assert verdict.message.startswith("request.kind: ")
        assert "NetReach, AppHttpHealthy or Netdns" in verdict.message
        assert len(verdict.message) < 300


async def test_ten_thousand_reviews_of_any_shape_get_an_answer() -> None:
    drawn = random.Random(14)
    made = webhooks(Guard(True))
    words = ["schedule", "target", "request", "expect", "agentSpec", "host", "header", "qps", "targetUser", "targetDns",
             "roundTimeoutMinute", "roundNumber", "kind", "tlsSecretName", "domain", "0 60", "* * * * *"]  # fmt: skip

    def anything(depth: int = 0) -> Any:
        choice = drawn.randrange(10 if depth < 4 else 6)
        if choice < 6:
            return [None, True, drawn.randrange(-9, 1 << 40), drawn.random(), drawn.choice(words), ""][choice]
        if choice < 9:
            return {drawn.choice(words): anything(depth + 1) for _ in range(drawn.randrange(5))}
        return [anything(depth + 1) for _ in range(3)]

    def metadata() -> Any:
        names = ["suspend", "share-carrier", "start-with", "time-zone", "run-now", "missed"]
        annotations = {f"tasks.fairlead.io/{drawn.choice(names)}": anything(3) for _ in range(drawn.randrange(3))}
        return drawn.choice([{"name": "a", "annotations": annotations}, {"annotations": anything()}, anything()])

    answers = set()
    for _ in range(10_000):
        body = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "1",
                "operation": drawn.choice(["CREATE", "UPDATE", "DELETE"]),
                "kind": {"group": "kdoctor.io", "version": "v1beta1", "kind": drawn.choice(list(KINDS))},
                "userInfo": {"username": "author"},
                "object": {"metadata": metadata(), "spec": anything()},
                "oldObject": {"metadata": metadata(), "spec": anything()},
            },
        }
        _, asked = parse(msgspec.json.encode(body))
        for handle in (made._mutate, made._validate):
            verdict = await handle(asked)
            answers.add(verdict.code if not verdict.allowed else 200)
            assert answer("admission.k8s.io/v1", "1", verdict)
    assert answers <= {200, 422}
    assert 422 in answers
