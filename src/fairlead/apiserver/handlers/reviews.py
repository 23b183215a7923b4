"""Kinds that answer a question and store nothing: who may do what, whose a token is."""

from typing import Any

from fairlead.apiserver.auth.rbac import Rbac
from fairlead.apiserver.auth.tokens import Tokens
from fairlead.apiserver.failures import (
    bad_request,
    not_implemented,
)
from fairlead.apiserver.handlers import subresources
from fairlead.apiserver.registry.attributes import JsonObject
from fairlead.apiserver.registry.ownership import record_review
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.registry.rest import Rest
from fairlead.apiserver.request.decoding import read_as
from fairlead.apiserver.request.info import (
    RequestInfo,
)
from fairlead.apiserver.request.options import (
    Options,
)
from fairlead.apiserver.schema.facts import load
from fairlead.cluster.clock import rfc3339


async def review(
    rest: Rest, tokens: Tokens, rbac: Rbac, sent: Any, resource: Resource, asking: RequestInfo, options: Options
) -> JsonObject:
    """Kinds that answer a question and store nothing."""
    type_name = load().type_name(resource.group, resource.version, resource.kind) or ""
    sent = read_as(type_name, resource.kind, resource.version, sent)
    spec: JsonObject = sent.get("spec") or {}
    user = options.user
    status: JsonObject
    match resource.kind:
        case "Binding":
            name = ((sent.get("metadata") or {}) if isinstance(sent, dict) else {}).get("name", "")
            pods = rest.resources.find("", "v1", "pods")
            assert pods is not None
            return await subresources.bind(rest, pods, asking.namespace, name, sent, options)
        case "TokenReview":
            if not spec.get("token"):
                raise bad_request("token is required for TokenReview in authentication")
            status = subresources.token_review(tokens, sent, rest.clock.now())
        case "SelfSubjectAccessReview":
            subresources.check_review(resource.kind, spec, "")
            status = subresources.access_review(rbac, user, spec)
        case "SubjectAccessReview" | "LocalSubjectAccessReview":
            subresources.check_review(resource.kind, spec, asking.namespace)
            status = subresources.access_review(rbac, subresources.reviewed_user(spec), spec)
        case "SelfSubjectRulesReview":
            status = subresources.rules_review(rbac, user, spec.get("namespace", ""))
        case "SelfSubjectReview":
            status = {"userInfo": subresources.user_info(user)}
        case _:
            raise not_implemented(f"{resource.kind} is not answered by Fairlead's embedded cluster")
    metadata: JsonObject = {}
    if isinstance(sent, dict) and sent.get("metadata"):
        metadata = {key: value for key, value in sent["metadata"].items() if key in ("name", "namespace")}
    body = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }
    if resource.kind == "SelfSubjectReview":
        metadata["creationTimestamp"] = rfc3339(rest.clock.now())
    else:
        record_review(resource, body, options, rest.clock.now())
    if resource.kind == "SelfSubjectReview":
        del body["spec"]
    return body
