"""The admission webhooks of tasks: look the facts up, then ask the rules of `admission.py`."""

import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ClusterError, Forbidden, NotFound
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiStruct, ObjectMeta
from fairlead.runtime import Runtime
from fairlead.tasks import admission
from fairlead.tasks.admission import AdmissionOptions, Cause, Facts
from fairlead.tasks.controller import Families, TaskMirrors
from fairlead.tasks.plan import SharedAgent
from fairlead.tasks.spec import GROUP, KINDS, VERSION
from fairlead.web.admission import Review, Verdict, Webhook, WebhookConfiguration, refused
from fairlead.web.guard import Action, User

Json = dict[str, Any]
Handler = Callable[[Review], Awaitable[Verdict]]


class SecretData(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


SECRETS = Kind("", "v1", "secrets", "Secret", SecretData)
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", SecretData)
MUTATE: Final = "/mutate-kdoctor-io-v1beta1-"
VALIDATE: Final = "/validate-kdoctor-io-v1beta1-"


class TaskWebhooks:
    def __init__(self, runtime: Runtime, mirrors: TaskMirrors, families: Families) -> None:
        self._runtime = runtime
        self._mirrors = mirrors
        self._families = families
        self._clock: Clock = runtime.clock

    def configurations(self) -> tuple[WebhookConfiguration, ...]:
        return configurations(self._mutate, self._validate)

    async def _options(self) -> AdmissionOptions:
        settings = self._runtime.settings.tasks
        ipv4, ipv6, _ = await self._families.enabled()
        return AdmissionOptions(
            grace_minutes=settings.grace_minutes,
            qps=settings.qps,
            duration_s=settings.duration_s,
            timeout_ms=settings.timeout_ms,
            most_qps={
                "NetReach": settings.net_reach_most_qps,
                "AppHttpHealthy": settings.app_http_healthy_most_qps,
                "Netdns": settings.netdns_most_qps,
            },
            ipv4=ipv4 or settings.ipv4 == "on",
            ipv6=ipv6 or settings.ipv6 == "on",
        )

    async def _mutate(self, review: Review) -> Verdict:
        kind, thing = review.kind.kind, review.object or {}
        if kind not in KINDS:
            return _no_task(kind)
        if review.operation != "CREATE" or _metadata(thing).get("deletionTimestamp"):
            return Verdict()
        spec = thing.get("spec")
        mutated = admission.mutate(kind, spec, await self._options(), self._balanced())
        if mutated == spec:
            return Verdict()
        return Verdict(patch=[{"op": "add", "path": "/spec", "value": mutated}])

    def _balanced(self) -> Facts:
        """Whether the shared agent is behind a load balancer and an ingress."""
        shared, namespace = SharedAgent(), self._runtime.settings.namespace
        service = self._mirrors.services.get(f"{namespace}/{shared.service_v4}")
        ingress = self._mirrors.ingresses.get(f"{namespace}/{shared.service_v4}")
        return Facts(
            load_balancer=service is not None and bool((service.status.get("loadBalancer") or {}).get("ingress")),
            ingress=ingress is not None and bool((ingress.status.get("loadBalancer") or {}).get("ingress")),
        )

    async def _validate(self, review: Review) -> Verdict:
        kind, thing = review.kind.kind, review.object or {}
        if kind not in KINDS:
            return _no_task(kind)
        annotations = _annotations(thing)
        if review.operation == "UPDATE":
            old = review.old_object or {}
            causes = admission.validate_update(old.get("spec"), thing.get("spec"), annotations, _annotations(old))
            return _verdict(causes) if causes else Verdict(warnings=admission.annotation_warnings(annotations))
        if review.operation != "CREATE":
            return Verdict()
        spec = thing.get("spec") or {}
        if not isinstance(spec, dict):
            return _verdict([Cause("spec", "must be an object")])
        facts = await self._facts(review, spec)
        try:
            causes = admission.validate(kind, spec, annotations, await self._options(), facts, self._clock.now())
            return _verdict(causes) if causes else Verdict(warnings=admission.warnings(spec, annotations))
        except (TypeError, AttributeError, ValueError) as problem:
            # The schema comes first on every server; whoever leaves it out gets the plain answer.
            return _verdict([Cause("spec", f"is not what the schema of {kind} asks for: {problem}")])

    async def _facts(self, review: Review, spec: Json) -> Facts:
        target = spec.get("target") if isinstance(spec.get("target"), dict) else {}
        assert isinstance(target, dict)
        secret, may_read_secret = await self._look(review, SECRETS, target, "tlsSecret")
        body, may_read_body = await self._look(review, CONFIG_MAPS, target, "bodyConfigmap")
        return Facts(
            tls_secret={key: _decoded(value) for key, value in (secret.data or {}).items()} if secret else None,
            may_read_tls_secret=may_read_secret,
            has_body=body is not None,
            may_read_body=may_read_body,
        )

    async def _look(self, review: Review, kind: Kind[Any], target: Json, prefix: str) -> tuple[SecretData | None, bool]:
        """What the target refers to, and whether the author of the task may read it themselves."""
        name, namespace = target.get(f"{prefix}Name"), target.get(f"{prefix}Namespace")
        if not (isinstance(name, str) and isinstance(namespace, str) and name and namespace):
            return None, True
        guard = self._runtime.routes.guard
        user = msgspec.convert(review.user_info, User, from_attributes=True)
        if guard is not None:
            action = Action("get", kind.plural, namespace=namespace, name=name)
            if not await guard.allows(user, action):
                return None, False
        try:
            return await self._runtime.reader.find(kind, name, namespace), True
        except (Forbidden, NotFound) as problem:
            raise ClusterError(f"Fairlead may not read {kind.kind} {namespace}/{name}: {problem}") from None


def configurations(mutate: Handler, validate: Handler) -> tuple[WebhookConfiguration, ...]:
    """One mutating and one validating configuration of the same name, with an entry per kind, at kdoctor's paths."""
    found = []
    for verb, path, handle in (("mutate", MUTATE, mutate), ("validate", VALIDATE, validate)):
        entries = tuple(
            Webhook(f"{verb}-{kind.lower()}.tasks.fairlead.io", path + kind.lower(), handle, _entry(kind))
            for kind in KINDS
        )
        found.append(WebhookConfiguration("fairlead-tasks", entries, mutating=verb == "mutate"))
    return tuple(found)


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return ""


def _metadata(thing: Json) -> Json:
    found = thing.get("metadata")
    return found if isinstance(found, dict) else {}


def _annotations(thing: Json) -> dict[str, str]:
    """Texts by name; what a server would not have let through is left out."""
    found = _metadata(thing).get("annotations")
    return {name: text for name, text in found.items() if isinstance(text, str)} if isinstance(found, dict) else {}


def _no_task(kind: str) -> Verdict:
    """An API server sends what our rules name; this came from elsewhere."""
    *others, last = KINDS
    return refused(f"request.kind: must be {', '.join(others)} or {last}, not {kind[:100]!r}", 400, "BadRequest")


def _entry(kind: str) -> Json:
    rule = {
        "apiGroups": [GROUP],
        "apiVersions": [VERSION],
        "operations": ["CREATE", "UPDATE"],
        "resources": [KINDS[kind].plural],
    }
    return {"rules": [rule], "failurePolicy": "Fail", "sideEffects": "None"}


def _verdict(causes: list[Cause]) -> Verdict:
    return refused("; ".join(map(str, causes)), 422, "Invalid") if causes else Verdict()
