"""Admission webhooks: really called, with their selectors, deadlines and failure policies.

Mutating ones run in the order of their names, one after another, and again where they ask for it once somebody
after them has changed the object; validating ones run together.
"""

import asyncio
import base64
import re
import ssl
import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import msgspec
import structlog

from fairlead.apiserver.cel import rules as expressions
from fairlead.apiserver.failures import Failure, internal
from fairlead.apiserver.fields import patches
from fairlead.apiserver.handlers.subresources import user_info
from fairlead.apiserver.registry.attributes import AdmissionAttributes, JsonObject
from fairlead.apiserver.registry.decoding import default
from fairlead.apiserver.registry.rest import Rest
from fairlead.apiserver.request.bodies import check_depth
from fairlead.apiserver.request.selectors import labels_match
from fairlead.apiserver.schema.shape import DecodeError, ParseError, decode, parse

log = structlog.get_logger("fairlead.webhooks")

GROUP = "admissionregistration.k8s.io"
MUTATING, VALIDATING = f"{GROUP}/mutatingwebhookconfigurations", f"{GROUP}/validatingwebhookconfigurations"
MAX_ANSWER_BYTES = 4 << 20


class CallFailed(Exception):
    """The webhook gave no usable answer."""


class Webhooks:
    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(headers={"User-Agent": "kube-apiserver-admission"})
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def mutate(self, attempt: AdmissionAttributes) -> JsonObject | None:
        hooks = self._interested(MUTATING, attempt)
        if not hooks:
            return attempt.thing
        thing = attempt.thing
        changed_after: dict[int, bool] = {}
        for number, hook in enumerate(hooks):
            before = msgspec.json.encode(thing)
            thing = await self._mutated(hook, attempt, thing)
            if msgspec.json.encode(thing) != before:
                changed_after = dict.fromkeys(range(number), True) | {number: False}
        for number, hook in enumerate(hooks):
            if changed_after.get(number) and hook.get("reinvocationPolicy") == "IfNeeded":
                thing = await self._mutated(hook, attempt, thing)
        return thing

    async def validate(self, attempt: AdmissionAttributes) -> JsonObject | None:
        hooks = self._interested(VALIDATING, attempt)
        if hooks:
            answers = await asyncio.gather(
                *(self._asked(hook, attempt, attempt.thing) for hook in hooks), return_exceptions=True
            )
            for answer in answers:
                if isinstance(answer, BaseException):
                    raise answer
        return attempt.thing

    async def _mutated(
        self, hook: JsonObject, attempt: AdmissionAttributes, thing: JsonObject | None
    ) -> JsonObject | None:
        response = await self._asked(hook, attempt, thing)
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
            told = f'admission webhook "{hook["name"]}" attempted to modify the object'
            raise internal(f"{told}, which is not supported for this operation")
        if response["patchType"] != "JSONPatch":
            return self._unusable(hook, f'unsupported patch type "{response["patchType"]}"', thing)
        return self._patched(attempt, thing, operations)

    def _patched(self, attempt: AdmissionAttributes, thing: JsonObject, operations: Any) -> JsonObject:
        """The object after a webhook's patch, read as if it had been sent."""
        try:
            changed = patches.json_patch(thing, operations)
            decoded = decode(attempt.resource.schema, changed, "").value
        except patches.PatchFailed as problem:
            raise internal(problem.why) from None
        except DecodeError as problem:
            raise internal(str(problem).removeprefix(": ")) from None
        made: JsonObject = {"kind": thing["kind"], "apiVersion": thing["apiVersion"], **decoded}
        default(attempt.resource, made)
        return made

    def _unusable(self, hook: JsonObject, why: str, thing: JsonObject | None) -> JsonObject | None:
        if hook.get("failurePolicy") == "Ignore":
            log.warning("webhook ignored", webhook=hook["name"], problem=why)
            return thing
        raise internal(f'failed calling webhook "{hook["name"]}": {why}')

    async def _asked(
        self, hook: JsonObject, attempt: AdmissionAttributes, thing: JsonObject | None
    ) -> JsonObject | None:
        """The response of a webhook that allows the attempt; a Failure when it does not, or cannot say."""
        if attempt.options.dry_run and hook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            text = f'admission webhook "{hook["name"]}" does not support dry run'
            raise Failure(400, "BadRequest", text)
        try:
            response = await self._call(hook, attempt, thing)
        except CallFailed as problem:
            if hook.get("failurePolicy") == "Ignore":
                log.warning("webhook ignored", webhook=hook["name"], problem=str(problem))
                return None
            raise internal(f'failed calling webhook "{hook["name"]}": {problem}') from None
        attempt.options.warnings.extend(str(each) for each in response.get("warnings") or ())
        if response.get("allowed"):
            return response
        status = response.get("status") or {}
        message = status.get("message") or status.get("reason") or "denied the request without explanation"
        told = f'admission webhook "{hook["name"]}" denied the request: {message}'
        if "message" not in status and "reason" not in status:
            told = f'admission webhook "{hook["name"]}" denied the request without explanation'
        code = int(status.get("code") or 400)
        raise Failure(code if 400 <= code < 600 else 400, status.get("reason", ""), told)

    async def _call(self, hook: JsonObject, attempt: AdmissionAttributes, thing: JsonObject | None) -> JsonObject:
        unique = str(uuid.uuid4())
        review = {
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "request": self._request(unique, attempt, thing),
        }
        timeout_s = float(hook.get("timeoutSeconds", 10))
        try:
            body = await self.post(hook["clientConfig"], msgspec.json.encode(review), timeout_s)
        except CallFailed as problem:
            raise CallFailed(f"failed to call webhook: {problem}") from None
        try:
            response = msgspec.json.decode(body)["response"]
            if response["uid"] != unique:
                raise CallFailed("expected response.uid to be that of the request")
        except (msgspec.DecodeError, KeyError, TypeError):
            raise CallFailed("the answer is not an AdmissionReview with a response") from None
        assert isinstance(response, dict)
        return response

    async def post(self, config: Mapping[str, Any], sent: bytes, timeout_s: float) -> bytes:
        """What a webhook answers to a review; CallFailed where it does not, in time and in bounds."""
        assert self._session is not None
        url, tls, name = self._target(config, timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                async with self._session.post(
                    url, data=sent, headers={"Content-Type": "application/json"}, ssl=tls, server_hostname=name
                ) as answer:
                    body = await _bounded(answer.content)
                    if answer.status != 200:
                        raise CallFailed(_refused(answer.status))
        except TimeoutError:
            raise CallFailed(f'Post "{_told(url, name)}": context deadline exceeded') from None
        except (aiohttp.ClientError, OSError) as problem:
            raise CallFailed(f'Post "{_told(url, name)}": {_why(problem)}') from None
        try:
            check_depth(body)
        except Failure as failure:
            raise CallFailed(failure.message) from None
        return body

    def _request(self, unique: str, attempt: AdmissionAttributes, thing: JsonObject | None) -> JsonObject:
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
            "object": thing,
            "oldObject": attempt.old,
            "dryRun": attempt.options.dry_run,
            "options": _told_options(attempt),
        }
        if attempt.name:
            request["name"] = attempt.name
        if resource.namespaced:
            request["namespace"] = attempt.namespace
        if attempt.subresource:
            request["subResource"] = request["requestSubResource"] = attempt.subresource
        return request

    def _target(self, config: Mapping[str, Any], timeout_s: float) -> tuple[str, ssl.SSLContext, str | None]:
        """The address to call, whom to trust, and the name its certificate must bear where that is another."""
        try:
            authority = base64.b64decode(config.get("caBundle") or "").decode()
            tls = ssl.create_default_context(cadata=authority or None)
        except (ValueError, ssl.SSLError) as problem:
            raise CallFailed(f"the caBundle is not PEM: {problem}") from None
        query = f"timeout={timeout_s:g}s"
        if config.get("url"):
            url = str(config["url"])
            return f"{url}{'&' if '?' in url else '?'}{query}", tls, None
        service = config.get("service") or {}
        found = self._rest.find("/services", f"{service.get('namespace')}/{service.get('name')}")
        name = f"{service['name']}.{service['namespace']}.svc"
        place = f":{service.get('port', 443)}/{(service.get('path') or '').lstrip('/')}?{query}"
        if found is None:
            raise CallFailed(f'Post "https://{name}{place}": service "{service.get("name")}" not found')
        return f"https://{found['spec'].get('clusterIP')}{place}", tls, name

    # -- which -----------------------------------------------------------------------------------------------

    def _interested(self, place: str, attempt: AdmissionAttributes) -> list[JsonObject]:
        if attempt.resource.group == GROUP or not self._rest.store.shelf(place).entries:
            return []  # configurations are not admitted by themselves
        return [
            hook
            for _, entry in self._rest.store.items(place)
            for hook in msgspec.json.decode(entry.body).get("webhooks") or ()
            if self._matches(hook, attempt)
        ]

    def _matches(self, hook: JsonObject, attempt: AdmissionAttributes) -> bool:
        if not any(_rule_matches(rule, attempt) for rule in hook.get("rules") or ()):
            return False
        thing = attempt.thing if attempt.thing is not None else attempt.old or {}
        selectors = [(hook.get("objectSelector"), (thing.get("metadata") or {}).get("labels") or {})]
        if attempt.resource.namespaced:
            selectors.append((hook.get("namespaceSelector"), self._namespace_labels(attempt.namespace)))
        elif attempt.resource.storage_key == "/namespaces":
            selectors.append((hook.get("namespaceSelector"), (thing.get("metadata") or {}).get("labels") or {}))
        if any(selector is not None and not labels_match(selector, labels) for selector, labels in selectors):
            return False
        return self._conditions_hold(hook, attempt, thing)

    def _conditions_hold(self, hook: JsonObject, attempt: AdmissionAttributes, thing: JsonObject) -> bool:
        variables = {"object": thing, "oldObject": attempt.old, "request": self._request("", attempt, thing)}
        for condition in hook.get("matchConditions") or ():
            held, problem = expressions.evaluate(condition["expression"], variables)
            if problem and hook.get("failurePolicy") == "Ignore":
                return False
            if problem:
                raise internal(f'failed evaluating matchConditions of "{hook["name"]}": {problem}')
            if held is not True:
                return False
        return True

    def _namespace_labels(self, namespace: str) -> Mapping[str, str]:
        found = self._rest.store.get("/namespaces", namespace)
        return {} if found is None else found.labels


def _told_options(attempt: AdmissionAttributes) -> JsonObject:
    kind = f"{attempt.operation.title()}Options"
    told: JsonObject = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if attempt.options.dry_run:
        told["dryRun"] = ["All"]
    if attempt.operation != "DELETE":
        told |= attempt.options.told
    return told


def _rule_matches(rule: JsonObject, attempt: AdmissionAttributes) -> bool:
    resource = attempt.resource
    if not {"*", attempt.operation} & set(rule.get("operations") or ()):
        return False
    if not {"*", resource.group} & set(rule.get("apiGroups") or ()):
        return False
    if not {"*", resource.version} & set(rule.get("apiVersions") or ()):
        return False
    scope = rule.get("scope", "*")
    if scope != "*" and (scope == "Namespaced") != resource.namespaced:
        return False
    called = f"{resource.plural}/{attempt.subresource}" if attempt.subresource else resource.plural
    for wanted in rule.get("resources") or ():
        pattern = re.escape(wanted).replace(r"\*", "[^/]+")
        if wanted == "*/*" or re.fullmatch(pattern, called):
            return True
    return False


async def _bounded(content: aiohttp.StreamReader) -> bytes:
    """A whole answer, however many pieces it comes in."""
    body = bytearray()
    async for piece in content.iter_any():
        body += piece
        if len(body) > MAX_ANSWER_BYTES:
            raise CallFailed(f"the answer is larger than {MAX_ANSWER_BYTES} bytes")
    return bytes(body)


def _refused(status: int) -> str:
    if status >= 500:
        return 'an error on the server ("unknown") has prevented the request from succeeding'
    return f"the server rejected our request for an unknown reason ({status})"


def _told(url: str, name: str | None) -> str:
    """The address as its owner wrote it: a Service by its name."""
    found = urlsplit(url)
    return url if name is None else urlunsplit(found._replace(netloc=f"{name}:{found.port}"))


def _why(problem: Exception) -> str:
    """Why a webhook was not reached, in the words clients know."""
    if isinstance(problem, aiohttp.ClientConnectorCertificateError):
        return f"tls: failed to verify certificate: {problem.certificate_error}"
    if isinstance(problem, aiohttp.ClientConnectorError):
        why = (problem.os_error.strerror or str(problem.os_error)).partition("(")[0].strip().lower()
        if isinstance(problem.os_error, ConnectionRefusedError):
            why = "connection refused"
        return f"dial tcp {problem.host}:{problem.port}: connect: {why}"
    return str(problem)
