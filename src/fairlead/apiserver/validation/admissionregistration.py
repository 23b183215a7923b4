"""Validation of webhook configurations."""

import base64
from urllib.parse import urlsplit

from cryptography import x509

from fairlead.apiserver.cel import rules as expressions
from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import metadata, names
from fairlead.apiserver.validation.errors import Causes, Errors, Json

_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
MOST_CONDITIONS = 64
_REVIEWS = ("v1", "v1beta1")
_FORM = "desired format: https://host[/path]"


def webhooks(new: Json, old: Json | None) -> Causes:
    return _webhooks(new, with_conditions=old is None or _conditions(new) != _conditions(old))


def _conditions(obj: Json) -> list[list[Json]]:
    return [webhook.get("matchConditions") or [] for webhook in obj.get("webhooks") or ()]


def _webhooks(obj: Json, *, with_conditions: bool) -> Causes:
    seen: set[str] = set()
    for index, webhook in enumerate(obj.get("webhooks") or ()):
        path = f"webhooks[{index}]"
        yield from _webhook(webhook, path)
        if with_conditions:
            yield from match_conditions(webhook.get("matchConditions") or [], f"{path}.matchConditions")
        versions, hint = webhook.get("admissionReviewVersions") or [], f"must specify one of {', '.join(_REVIEWS)}"
        yield from review_versions(versions, f"{path}.admissionReviewVersions", hint)
        name = webhook.get("name", "")
        if name:
            yield from field.unique(seen, f"{path}.name", name)


def _webhook(webhook: Json, path: str) -> Causes:
    yield from _name(webhook.get("name", ""), f"{path}.name")
    yield from field.each(f"{path}.rules", webhook.get("rules"), _rule)
    yield from field.supported(f"{path}.failurePolicy", webhook.get("failurePolicy"), ("Fail", "Ignore"))
    yield from field.supported(f"{path}.matchPolicy", webhook.get("matchPolicy"), ("Equivalent", "Exact"))
    effects = webhook.get("sideEffects")
    if effects is None:
        yield field.required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun")
    elif effects not in ("None", "NoneOnDryRun"):
        yield field.not_supported(f"{path}.sideEffects", effects, ("None", "NoneOnDryRun"))
    seconds = webhook.get("timeoutSeconds", 10)
    if not 1 <= seconds <= 30:
        yield field.invalid(f"{path}.timeoutSeconds", seconds, "the timeout value must be between 1 and 30 seconds")
    for key in ("namespaceSelector", "objectSelector"):
        yield from metadata.selector(webhook.get(key), f"{path}.{key}")
    again = webhook.get("reinvocationPolicy", "Never")
    yield from field.supported(f"{path}.reinvocationPolicy", again, ("IfNeeded", "Never"))
    yield from client(webhook.get("clientConfig") or {}, f"{path}.clientConfig")


def match_conditions(conditions: list[Json], path: str) -> Causes:
    if len(conditions) > MOST_CONDITIONS:
        yield field.too_many(path, len(conditions), MOST_CONDITIONS)
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        here, text, name = f"{path}[{index}]", condition.get("expression", "").strip(), condition.get("name", "")
        if not text:
            yield field.required(f"{here}.expression")
        elif problem := expressions.problem_with_condition(text):
            yield field.invalid(f"{here}.expression", text, problem)
        if not name:
            yield field.required(f"{here}.name")
        else:
            yield from field.malformed(f"{here}.name", name, names.qualified)
            if name in seen:
                yield field.duplicate(f"{here}.name", name)
        seen.add(name)


def _name(name: str, path: str) -> Errors:
    if not name:
        return [field.required(path)]
    problems = names.subdomain(name)
    if not problems and len(name.split(".")) < 3:
        return [field.invalid(path, name, "should be a domain with at least three segments separated by dots")]
    return [field.invalid(path, name, text) for text in problems]


def client(config: Json, path: str) -> Causes:
    given = [key for key in ("url", "service") if config.get(key) is not None]
    if len(given) != 1:
        yield field.required(path, "exactly one of url or service is required")
        return
    if given == ["url"]:
        yield from _url(config["url"], f"{path}.url")
        return
    service, here = config["service"], f"{path}.service"
    # The server's message names the other field.
    for key, other in (("name", "namespace"), ("namespace", "name")):
        if not service.get(other):
            yield field.required(f"{here}.{key}")
    port = service.get("port", 443)
    yield from (field.invalid(f"{here}.port", port, f"port is not valid: {text}") for text in names.port_number(port))
    yield from _path(service.get("path") or "", f"{here}.path")


def bundle_problem(bundle: str) -> str:
    """Why a caBundle holds no certificate; empty where it holds one, or is empty itself."""
    try:
        text = base64.b64decode(bundle).decode("ascii", "replace")
        if text and not x509.load_pem_x509_certificates(text.encode()):
            return "data does not contain any valid RSA or ECDSA certificates"
    except ValueError:
        return "data does not contain any valid RSA or ECDSA certificates"
    return ""


def _url(url: str, path: str) -> Causes:
    parts = urlsplit(url)
    if parts.scheme != "https":
        yield field.invalid(path, parts.scheme, f"'https' is the only allowed URL scheme; {_FORM}")
    user, _, host = parts.netloc.rpartition("@")
    if not host:
        yield field.invalid(path, "", f"host must be specified; {_FORM}")
    if user:
        yield field.invalid(path, user, "user information is not permitted in the URL")
    if parts.fragment:
        yield field.invalid(path, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield field.invalid(path, parts.query, "query parameters are not permitted in the URL")


def _path(given: str, path: str) -> Causes:
    if given in ("", "/"):
        return
    if given == "//":
        yield field.invalid(path, given, "segment[0] may not be empty")
        return
    if not given.startswith("/"):
        yield field.invalid(path, given, "must start with a '/'")
    for index, step in enumerate(given[1:].removesuffix("/").split("/")):
        if not step:
            yield field.invalid(path, given, f"segment[{index}] may not be empty")
        else:
            yield from (field.invalid(path, given, f"segment[{index}]: {text}") for text in names.subdomain(step))


def review_versions(versions: list[str], path: str, hint: str) -> Causes:
    """`hint`: the message where there are none."""
    if not versions:
        yield field.required(path, hint)
        return
    for index, (version, again) in enumerate(zip(versions, field.repeated(versions), strict=True)):
        if again:
            yield field.invalid(f"{path}[{index}]", version, "duplicate version")
        else:
            yield from field.malformed(f"{path}[{index}]", version, names.label_1035)
    if not set(versions) & set(_REVIEWS):
        yield field.invalid(path, versions, f"must include at least one of {', '.join(_REVIEWS)}")


def _rule(rule: Json, path: str) -> Causes:
    operations = rule.get("operations") or []
    if not operations:
        yield field.required(f"{path}.operations")
    if "*" in operations and len(operations) > 1:
        yield field.invalid(f"{path}.operations", operations, "if '*' is present, must not specify other operations")
    for index, operation in enumerate(operations):
        yield from field.supported(f"{path}.operations[{index}]", operation, _OPERATIONS)
    for key, called in (("apiGroups", "groups"), ("apiVersions", "versions")):
        values = rule.get(key) or []
        if not values:
            yield field.required(f"{path}.{key}")
        if "*" in values and len(values) > 1:
            yield field.invalid(f"{path}.{key}", values, f"if '*' is present, must not specify other API {called}")
    for index, version in enumerate(rule.get("apiVersions") or ()):
        if not version:
            yield field.required(f"{path}.apiVersions[{index}]")
    yield from _resources(rule.get("resources") or [], f"{path}.resources")
    yield from field.supported(f"{path}.scope", rule.get("scope"), ("*", "Cluster", "Namespaced"))


def _resources(resources: list[str], path: str) -> Causes:
    if not resources:
        yield field.required(path)
    all_below: set[str] = set()  # x/*
    below_all: set[str] = set()  # */x
    plain = False
    for index, given in enumerate(resources):
        resource, slash, sub = given.partition("/")
        if not given:
            yield field.required(f"{path}[{index}]")
        elif not slash:
            plain = given != "*"
        else:
            for known, pattern in ((resource in all_below, f"{resource}/*"), (sub in below_all, f"*/{sub}")):
                if known:
                    text = f"if '{pattern}' is present, must not specify {given}"
                    yield field.invalid(f"{path}[{index}]", given, text)
            if sub == "*":
                all_below.add(resource)
            if resource == "*":
                below_all.add(sub)
    if "*/*" in resources and len(resources) > 1:
        yield field.invalid(path, resources, "if '*/*' is present, must not specify other resources")
    if "*" in resources and plain:
        yield field.invalid(path, resources, "if '*' is present, must not specify other resources without subresources")
