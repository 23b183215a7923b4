"""Reviews, which answer a question and store nothing: who may do what, whose a token is."""

from datetime import datetime
from typing import Any

from fairlead.apiserver.auth.rbac import Action, Rbac
from fairlead.apiserver.auth.tokens import ISSUER, BadToken, Tokens
from fairlead.apiserver.failures import bad_request, invalid, not_implemented
from fairlead.apiserver.handlers import subresources
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.registry.attributes import Write
from fairlead.apiserver.registry.ownership import record_review
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.registry.rest import Rest
from fairlead.apiserver.request.decoding import read_as
from fairlead.apiserver.request.info import RequestInfo, User, user_info
from fairlead.apiserver.request.options import Options
from fairlead.apiserver.schema.facts import load
from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation.errors import Errors
from fairlead.cluster.clock import rfc3339


async def review(
    rest: Rest, tokens: Tokens, rbac: Rbac, sent: Any, resource: Resource, info: RequestInfo, options: Options
) -> JsonObject:
    """Kinds that answer a question and store nothing."""
    type_name = load().type_name(resource.group, resource.version, resource.kind) or ""
    sent = read_as(type_name, resource.kind, resource.version, sent)
    spec: JsonObject = sent.get("spec") or {}
    user = options.user
    status: JsonObject
    match resource.kind:
        case "Binding":
            name = (sent.get("metadata") or {}).get("name", "")
            pods = rest.resources.built_in("", "v1", "pods")
            return await subresources.bind(rest, Write(pods, info.namespace, name, options), sent)
        case "TokenReview":
            if not spec.get("token"):
                raise bad_request("token is required for TokenReview in authentication")
            status = token_review(tokens, spec, rest.clock.now())
        case "SelfSubjectAccessReview":
            check_review(resource.kind, spec, "")
            status = access_review(rbac, user, spec)
        case "SubjectAccessReview" | "LocalSubjectAccessReview":
            check_review(resource.kind, spec, info.namespace)
            status = access_review(rbac, reviewed_user(spec), spec)
        case "SelfSubjectRulesReview":
            status = rules_review(rbac, user, spec.get("namespace", ""))
        case "SelfSubjectReview":
            status = {"userInfo": user_info(user)}
        case _:
            raise not_implemented(f"{resource.kind} is not answered by Fairlead's embedded cluster")
    metadata = {key: value for key, value in (sent.get("metadata") or {}).items() if key in ("name", "namespace")}
    head = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
    if resource.kind == "SelfSubjectReview":
        metadata["creationTimestamp"] = rfc3339(rest.clock.now())
        return {**head, "status": status}
    body = {**head, "spec": spec, "status": status}
    record_review(resource, body, options, rest.clock.now())
    return body


def token_review(tokens: Tokens, spec: JsonObject, now: datetime) -> JsonObject:
    try:
        user, audiences = tokens.review(spec["token"], now, spec.get("audiences") or [ISSUER])
    except BadToken as problem:
        message = f"[invalid bearer token, {problem}]" if str(problem) else "invalid bearer token"
        return {"user": {}, "error": message}
    return {"authenticated": True, "user": user_info(user), "audiences": audiences}


def access_review(rbac: Rbac, user: User, spec: JsonObject) -> JsonObject:
    attributes = spec.get("resourceAttributes")
    if attributes is not None:
        keys = ("verb", "group", "resource", "subresource", "name", "namespace")
        action = Action(*(attributes.get(key, "") for key in keys))
    else:
        plain = spec.get("nonResourceAttributes") or {}
        action = Action(plain.get("verb", ""), path=plain.get("path", ""))
    if user.is_master:
        return {"allowed": True}
    reason = rbac.why(user, action)
    return {"allowed": True, "reason": reason} if reason else {"allowed": False}


def check_review(kind: str, spec: JsonObject, namespace: str) -> None:
    attributes, plain = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    errors: Errors = []
    if attributes is None and plain is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        errors.append(field.invalid("spec.resourceAttributes", None, why))
    if attributes is not None and plain is not None:
        why = "cannot be specified in combination with resourceAttributes"
        errors.append(field.invalid("spec.nonResourceAttributes", plain, why))
    if kind != "SelfSubjectAccessReview" and not spec.get("user") and not spec.get("groups"):
        errors.append(field.invalid("spec.user", "", "at least one of user or group must be specified"))
    if kind == "LocalSubjectAccessReview" and attributes is not None:
        given = attributes.get("namespace", "")
        if given != namespace:
            errors.append(field.invalid("spec.resourceAttributes.namespace", given, "must match metadata.namespace"))
    if errors:
        raise invalid("authorization.k8s.io", "", "", *errors)


def reviewed_user(spec: JsonObject) -> User:
    return User(spec.get("user", ""), spec.get("uid", ""), tuple(spec.get("groups") or ()))


def rules_review(rbac: Rbac, user: User, namespace: str) -> JsonObject:
    resource_rules, plain_rules = [], []
    everything = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}] if user.is_master else []
    for rule in [*everything, *rbac.rules(user, namespace)]:
        if rule.get("nonResourceURLs"):
            plain_rules.append({"verbs": rule["verbs"], "nonResourceURLs": rule["nonResourceURLs"]})
        else:
            keys = ("verbs", "apiGroups", "resources", "resourceNames")
            resource_rules.append({key: rule[key] for key in keys if rule.get(key)})
    return {"resourceRules": resource_rules, "nonResourceRules": plain_rules, "incomplete": False}
