"""Admission reviews served: one AdmissionReview in, one answer with its uid out, whatever goes wrong.

A capability gives Webhooks; this turns bytes into a Review, calls the webhook within the caller's deadline, and turns
its Verdict into bytes. It knows nothing of what is admitted and must never answer without the request's uid.
"""

import asyncio
import base64
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec
import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram

from fairlead.cluster.clock import Clock
from fairlead.web.bodies import whole_body
from fairlead.web.problems import Problem

log = structlog.get_logger("fairlead.admission")

VERSIONS: Final = ("admission.k8s.io/v1", "admission.k8s.io/v1beta1")
# An object is 1.5 MiB at the most in etcd; a review holds two of them, quoted.
MOST_BYTES: Final = 7 << 20
# A server allows a webhook 1 to 30 s, and 10 by default.
DEFAULT_S: Final = 10.0
LONGEST_S: Final = 30.0
# What is left of the deadline for the answer's way back.
USABLE_SHARE: Final = 0.9
MOST_WARNINGS: Final = 20
MOST_TEXT: Final = 4096
_DURATION = re.compile(r"(\d{1,6})(?:\.\d{1,9})?(ms|s|m)")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}


class GroupVersionKind(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class ReviewUser(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class Review(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An admission request: may this object be written, and should it be changed first?"""

    uid: str
    operation: str = ""
    kind: GroupVersionKind = GroupVersionKind()
    name: str = ""
    namespace: str = ""
    sub_resource: str = ""
    user_info: ReviewUser = ReviewUser()
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    dry_run: bool = False
    left_s: float = DEFAULT_S
    """Seconds until the answer must be ready; the server sets it, whatever the request says."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Allowed, perhaps changed by a JSON patch; or refused, with a sentence for the user and an HTTP code."""

    allowed: bool = True
    patch: Sequence[Mapping[str, Any]] = ()
    message: str = ""
    code: int = 403
    reason: str = ""
    warnings: Sequence[str] = ()


def refused(message: str, code: int = 403, reason: str = "") -> Verdict:
    return Verdict(allowed=False, message=message, code=code, reason=reason)


@dataclass(frozen=True, slots=True)
class Webhook:
    """One entry of a webhook configuration, and its handler.

    `entry` is what the configuration says of it beside its address: rules, selectors, failurePolicy and so on.
    `on_failure` is what we answer when our own code fails or is late.
    """

    name: str
    path: str
    review: Callable[[Review], Awaitable[Verdict]]
    entry: Mapping[str, Any]
    on_failure: Literal["allow", "refuse"] = "refuse"


@dataclass(frozen=True, slots=True)
class WebhookConfiguration:
    """A MutatingWebhookConfiguration or ValidatingWebhookConfiguration of ours."""

    name: str
    webhooks: Sequence[Webhook]
    mutating: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    turned_off: Mapping[str, str] = field(default_factory=dict)
    """Entries that a setting would add, by name: the setting."""


class _Envelope(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: Review


class AdmissionMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.reviews = Counter(
            "fairlead_admission_reviews_total",
            "Admission reviews by webhook and outcome (allowed, patched, refused, late, failed, malformed).",
            ["webhook", "outcome"],
            registry=registry,
        )
        self.seconds = Histogram(
            "fairlead_admission_review_seconds",
            "How long an admission review took.",
            ["webhook"],
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
            registry=registry,
        )


class AdmissionServer:
    """The webhooks of every capability as routes of one listener."""

    def __init__(
        self, webhooks: Sequence[Webhook], *, clock: Clock, metrics: AdmissionMetrics, most_bytes: int = MOST_BYTES
    ) -> None:
        self._webhooks = {webhook.path: webhook for webhook in webhooks}
        if len(self._webhooks) != len(webhooks):
            raise ValueError("two webhooks are served at one path")
        self._clock = clock
        self._metrics = metrics
        self._most_bytes = most_bytes

    def routes(self) -> list[web.RouteDef]:
        return [web.post(path, self._handle) for path in self._webhooks]

    async def _handle(self, request: web.Request) -> web.Response:
        webhook = self._webhooks[request.path]
        started_s = self._clock.elapsed_s()
        try:
            deadline_s = deadline(request.query.get("timeout", ""))
            if request.content_type != "application/json":
                raise Problem(400, "BadRequest", f"Content-Type must be application/json, not {request.content_type}")
            body = await whole_body(request, self._most_bytes, deadline_s)
            version, review = parse(body)
        except Problem as problem:
            self._metrics.reviews.labels(webhook.name, "malformed").inc()
            body = answer(VERSIONS[0], "", refused(str(problem), problem.status, problem.failure.reason))
            return web.Response(status=problem.status, body=body, content_type="application/json")
        left_s = deadline_s * USABLE_SHARE - (self._clock.elapsed_s() - started_s)
        verdict, outcome = await self._verdict(webhook, review, left_s)
        self._metrics.reviews.labels(webhook.name, outcome).inc()
        self._metrics.seconds.labels(webhook.name).observe(self._clock.elapsed_s() - started_s)
        return web.Response(body=answer(version, review.uid, verdict), content_type="application/json")

    async def _verdict(self, webhook: Webhook, review: Review, left_s: float) -> tuple[Verdict, str]:
        try:
            async with asyncio.timeout(max(0.0, left_s)):
                verdict = await webhook.review(msgspec.structs.replace(review, left_s=max(0.0, left_s)))
        except TimeoutError:
            log.warning("admission late", webhook=webhook.name, name=review.name, namespace=review.namespace)
            return _failed(webhook, "did not decide in time"), "late"
        except Exception:
            # Our bug: the trace is for our log, the caller gets an answer by the webhook's policy.
            log.exception("bug in a webhook", webhook=webhook.name, name=review.name, namespace=review.namespace)
            return _failed(webhook, "failed; the reason is in Fairlead's log"), "failed"
        if not verdict.allowed:
            return verdict, "refused"
        return verdict, "patched" if verdict.patch else "allowed"


def _failed(webhook: Webhook, why: str) -> Verdict:
    sentence = f"Fairlead's webhook {webhook.name} {why}"
    if webhook.on_failure == "allow":
        return Verdict(warnings=(f"{sentence}; the object was left as it is",))
    return refused(f"{sentence}; try again", 500, "InternalError")


def parse(body: bytes) -> tuple[str, Review]:
    """The version the caller uses, and its request; a Problem when that cannot be known."""
    try:
        envelope = msgspec.json.decode(body, type=_Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise Problem(400, "BadRequest", f"the body is not an AdmissionReview with a request: {problem}") from None
    if envelope.kind != "AdmissionReview" or envelope.api_version not in VERSIONS:
        found = f"{envelope.api_version[:100]} {envelope.kind[:100]}"
        raise Problem(400, "BadRequest", f"the body must be an AdmissionReview of {' or '.join(VERSIONS)}, not {found}")
    if not envelope.request.uid:
        raise Problem(400, "BadRequest", "request.uid is missing")
    return envelope.api_version, envelope.request


def answer(version: str, uid: str, verdict: Verdict) -> bytes:
    """The AdmissionReview that goes back."""
    response: dict[str, Any] = {"uid": uid, "allowed": verdict.allowed}
    if verdict.warnings:
        response["warnings"] = [warning[:MOST_TEXT] for warning in verdict.warnings[:MOST_WARNINGS]]
    if not verdict.allowed:
        response["status"] = {"message": verdict.message[:MOST_TEXT], "code": verdict.code}
        if verdict.reason:
            response["status"]["reason"] = verdict.reason
    elif verdict.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(list(verdict.patch))).decode()
    return msgspec.json.encode({"apiVersion": version, "kind": "AdmissionReview", "response": response})


def deadline(timeout: str) -> float:
    """Seconds that the caller waits, by its `?timeout=10s`; an invalid one counts as the default of ten."""
    found = _DURATION.fullmatch(timeout)
    if found is None:
        return DEFAULT_S
    seconds = float(timeout.removesuffix(found[2])) * _UNIT_S[found[2]]
    return min(seconds, LONGEST_S) if seconds > 0 else DEFAULT_S
