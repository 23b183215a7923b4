"""Admission webhooks: really called, with their selectors, deadlines and failure policies.

Mutating ones run one after another, in the order of their configurations, each matched against the object as those
before it have left it; some are called again (see `chain`). Validating ones run together.
"""

import asyncio
import base64
import re
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import structlog

from fairlead.apiserver.admission.client import CallFailed, WebhookClient
from fairlead.apiserver.cel import rules as expressions
from fairlead.apiserver.failures import Failure, bad_request, forbidden, internal
from fairlead.apiserver.fields import patches
from fairlead.apiserver.heavy import Heavy
from fairlead.apiserver.json_values import UNDECODABLE, JsonObject
from fairlead.apiserver.registry.attributes import AdmissionAttributes
from fairlead.apiserver.registry.decoding import default
from fairlead.apiserver.registry.reader import Reader
from fairlead.apiserver.request.bodies import check_depth
from fairlead.apiserver.request.info import user_info
from fairlead.apiserver.request.selectors import labels_match
from fairlead.apiserver.schema.shape import DecodeError, ParseError, decode, parse

log = structlog.get_logger("fairlead.webhooks")

GROUP = "admissionregistration.k8s.io"
MUTATING, VALIDATING = f"{GROUP}/mutatingwebhookconfigurations", f"{GROUP}/validatingwebhookconfigurations"


class Reinvocation:
    """Which webhooks are called a second time for one write: those that ask for it, once something after their call
    has changed the object. A webhook that the first pass left out is not called by the second either."""

    def __init__(self) -> None:
        self.is_needed = False
        self.is_second_pass = False
        self._called: set[str] = set()
        self._due: set[str] = set()
        self._output = b""

    def begin(self, thing: JsonObject | None) -> None:
        if self.is_second_pass and msgspec.json.encode(thing) != self._output:
            self._require()  # what is built in has changed it meanwhile

    def is_due(self, hook: "Hook") -> bool:
        return not self.is_second_pass or hook.key in self._due

    def note(self, hook: "Hook", *, changed: bool) -> None:
        """Take note of a call, and whether it changed the object."""
        if changed:
            self._require()
            self.is_needed = True
        if hook.spec.get("reinvocationPolicy") == "IfNeeded":
            self._called.add(hook.key)

    def end(self, thing: JsonObject | None) -> None:
        self._output = msgspec.json.encode(thing)

    def _require(self) -> None:
        self._due |= self._called
        self._called.clear()


class Hook(NamedTuple):
    key: str
    """Its configuration and its name: the same hook in both passes."""
    spec: JsonObject

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def is_ignored_on_failure(self) -> bool:
        return self.spec.get("failurePolicy") == "Ignore"


class Webhooks:
    def __init__(self, reader: Reader, client: WebhookClient, heavy: Heavy) -> None:
        self._reader = reader
        self._client = client
        self._heavy = heavy

    async def mutate(self, attempt: AdmissionAttributes, reinvocation: Reinvocation) -> JsonObject | None:
        """The object as the webhooks want it; each is matched against it as those before have changed it."""
        hooks = self._hooks(MUTATING, attempt)
        if not hooks:
            return attempt.thing
        reinvocation.begin(attempt.thing)
        for hook in hooks:
            if await self._matches(hook, attempt) and reinvocation.is_due(hook):
                thing = await self._mutate(hook, attempt)
                reinvocation.note(hook, changed=thing != attempt.thing)
                attempt = replace(attempt, thing=thing)
        reinvocation.end(attempt.thing)
        return attempt.thing

    async def validate(self, attempt: AdmissionAttributes) -> None:
        hooks = [hook for hook in self._hooks(VALIDATING, attempt) if await self._matches(hook, attempt)]
        answers = await asyncio.gather(*(self._review(hook, attempt) for hook in hooks), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    async def _mutate(self, hook: Hook, attempt: AdmissionAttributes) -> JsonObject | None:
        thing = attempt.thing
        response = await self._review(hook, attempt)
        patch = (response or {}).get("patch")
        if not patch or response is None:
            return thing
        if not response.get("patchType"):
            why = "received invalid webhook response: webhook returned response.patch but not response.patchType"
            return self._unusable(hook, why, thing)
        try:
            raw = base64.b64decode(patch)
            check_depth(raw)
            operations = parse(raw).value
        except (ValueError, ParseError, Failure) as problem:
            return self._unusable(hook, f"received undecodable patch in webhook response: {problem}", thing)
        if not operations:
            return thing
        if thing is None:
            text = f'admission webhook "{hook.name}" attempted to modify the object'
            raise internal(f"{text}, which is not supported for this operation")
        if response["patchType"] != "JSONPatch":
            return self._unusable(hook, f'unsupported patch type "{response["patchType"]}"', thing)
        return await self._heavy.run(max(attempt.size, len(raw)), self._patched, attempt, thing, operations)

    @staticmethod
    def _patched(attempt: AdmissionAttributes, thing: JsonObject, operations: Any) -> JsonObject:
        """The object after a webhook's patch, read as if it had been sent."""
        try:
            changed = patches.json_patch(thing, operations)
            decoded = decode(attempt.resource.schema, changed, "").value
        except (patches.PatchFailed, DecodeError) as problem:
            raise internal(problem.why) from None
        made: JsonObject = {"kind": thing["kind"], "apiVersion": thing["apiVersion"], **decoded}
        default(attempt.resource, made)
        return made

    def _unusable(self, hook: Hook, why: str, thing: JsonObject | None) -> JsonObject | None:
        if hook.is_ignored_on_failure:
            log.warning("webhook ignored", webhook=hook.name, problem=why)
            return thing
        raise internal(f'failed calling webhook "{hook.name}": {why}')

    async def _review(self, hook: Hook, attempt: AdmissionAttributes) -> JsonObject | None:
        """The response of a webhook that allows the attempt; a Failure when it does not, or cannot say."""
        if attempt.options.dry_run and hook.spec.get("sideEffects") not in ("None", "NoneOnDryRun"):
            raise bad_request(f'admission webhook "{hook.name}" does not support dry run')
        try:
            response = await self._call(hook, attempt)
        except CallFailed as problem:
            return self._unusable(hook, str(problem), None)
        for warning in response.get("warnings") or ():
            attempt.warn(str(warning))
        if response.get("allowed"):
            return response
        status = response.get("status") or {}
        message = status.get("message") or status.get("reason") or "denied the request without explanation"
        text = f'admission webhook "{hook.name}" denied the request: {message}'
        if "message" not in status and "reason" not in status:
            text = f'admission webhook "{hook.name}" denied the request without explanation'
        code = int(status.get("code") or 400)
        raise Failure(code if 400 <= code < 600 else 400, status.get("reason", ""), text)

    async def _call(self, hook: Hook, attempt: AdmissionAttributes) -> JsonObject:
        unique = str(uuid.uuid4())
        head = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
        review = {**head, "request": _request(unique, attempt)}
        timeout_s = float(hook.spec.get("timeoutSeconds", 10))
        try:
            body = await self._client.post(hook.spec["clientConfig"], msgspec.json.encode(review), timeout_s)
        except CallFailed as problem:
            raise CallFailed(f"failed to call webhook: {problem}") from None
        try:
            response = msgspec.json.decode(body)["response"]
            if response["uid"] != unique:
                raise CallFailed("expected response.uid to be that of the request")
        except (*UNDECODABLE, KeyError, TypeError):
            raise CallFailed("the answer is not an AdmissionReview with a response") from None
        assert isinstance(response, dict)
        return response

    # -- which -----------------------------------------------------------------------------------------------

    def _hooks(self, place: str, attempt: AdmissionAttributes) -> list[Hook]:
        """All whose rules name such a write, in the order of their configurations."""
        if attempt.resource.group == GROUP or not self._reader.store.of_kind(place).entries:
            return []  # configurations are not admitted by themselves
        return [
            Hook(f"{key}/{spec['name']}", spec)
            for key, entry in self._reader.store.items(place)
            for spec in msgspec.json.decode(entry.body).get("webhooks") or ()
            if any(_rule_matches(rule, attempt) for rule in spec.get("rules") or ())
        ]

    async def _matches(self, hook: Hook, attempt: AdmissionAttributes) -> bool:
        """Whether the selectors and conditions of a hook hold for the object as it is now."""
        within = self._namespace_labels(attempt)
        if within is not None and not labels_match(hook.spec.get("namespaceSelector") or {}, within):
            return False
        selector = hook.spec.get("objectSelector") or {}
        versions = [each for each in (attempt.thing, attempt.old) if each is not None]
        if selector and not any(labels_match(selector, _labels(each)) for each in versions):
            return False
        if not hook.spec.get("matchConditions"):
            return True
        return await self._heavy.run(attempt.size, _conditions_hold, hook, attempt)

    def _namespace_labels(self, attempt: AdmissionAttributes) -> Mapping[str, str] | None:
        """The labels of the namespace that a write is about; None where it is about none."""
        is_namespace = attempt.resource.storage_key == "/namespaces"
        if is_namespace and attempt.thing is not None and not attempt.subresource:
            return _labels(attempt.thing)
        if not is_namespace and not attempt.resource.namespaced:
            return None
        found = self._reader.store.get("/namespaces", attempt.name if is_namespace else attempt.namespace)
        return {} if found is None else found.labels


def _labels(thing: JsonObject) -> Mapping[str, str]:
    return (thing.get("metadata") or {}).get("labels") or {}


def _conditions_hold(hook: Hook, attempt: AdmissionAttributes) -> bool:
    """Whether all match conditions do; one that is false decides, whatever the others fail with."""
    conditions = hook.spec["matchConditions"]
    thing = attempt.thing if attempt.thing is not None else attempt.old or {}
    variables = {"object": thing, "oldObject": attempt.old, "request": _request("", attempt)}
    results = [expressions.evaluate(condition["expression"], variables) for condition in conditions]
    if any(held is False and not problem for held, problem in results):
        return False
    problems = [
        f"expression '{condition['expression']}' resulted in error: {problem}"
        for condition, (_, problem) in zip(conditions, results, strict=True)
        if problem
    ]
    if problems and not hook.is_ignored_on_failure:
        why = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise forbidden(attempt.resource.group, attempt.resource.plural, attempt.name, why)
    return not problems and all(held is True for held, _ in results)


def _request(unique: str, attempt: AdmissionAttributes) -> JsonObject:
    resource = attempt.resource
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    place = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    request: JsonObject = {
        "uid": unique,
        "kind": kind,
        "resource": place,
        "requestKind": kind,
        "requestResource": place,
        "operation": attempt.operation,
        "userInfo": user_info(attempt.options.user),
        "object": attempt.thing,
        "oldObject": attempt.old,
        "dryRun": attempt.options.dry_run,
        "options": _operation_options(attempt),
    }
    if attempt.name:
        request["name"] = attempt.name
    if resource.namespaced:
        request["namespace"] = attempt.namespace
    if attempt.subresource:
        request["subResource"] = request["requestSubResource"] = attempt.subresource
    return request


def _operation_options(attempt: AdmissionAttributes) -> JsonObject:
    kind = f"{attempt.operation.title()}Options"
    options: JsonObject = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if attempt.options.dry_run:
        options["dryRun"] = ["All"]
    if attempt.operation != "DELETE":
        options |= attempt.options.query
    return options


def _rule_matches(rule: JsonObject, attempt: AdmissionAttributes) -> bool:
    resource = attempt.resource
    named = {"operations": attempt.operation, "apiGroups": resource.group, "apiVersions": resource.version}
    if not all({"*", value} & set(rule.get(key) or ()) for key, value in named.items()):
        return False
    scope = rule.get("scope", "*")
    if scope != "*" and (scope == "Namespaced") != resource.namespaced:
        return False
    called = f"{resource.plural}/{attempt.subresource}" if attempt.subresource else resource.plural
    for name in rule.get("resources") or ():
        pattern = re.escape(name).replace(r"\*", "[^/]+")
        if name == "*/*" or re.fullmatch(pattern, called):
            return True
    return False
