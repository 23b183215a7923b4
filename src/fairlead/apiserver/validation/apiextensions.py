"""Validation of a CustomResourceDefinition: names, versions, and a schema that is structural."""

import re
from typing import Any

from fairlead.apiserver.cel import rules as expressions
from fairlead.apiserver.schema import openapi
from fairlead.apiserver.schema.patterns import BadPattern, compiled
from fairlead.apiserver.validation import admissionregistration as webhooks
from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import names
from fairlead.apiserver.validation import structural as shape
from fairlead.apiserver.validation.errors import Causes, Errors, FieldError, Json, below

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_MOST_SELECTABLE = 8
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")


def definition(new: Json, old: Json | None) -> Causes:
    return _on_create(new) if old is None else _on_update(new, old)


def _on_create(obj: Json) -> Causes:
    spec = obj["spec"]
    given = spec.get("names") or {}
    name = obj["metadata"].get("name", "")
    if name and name != f"{given.get('plural', '')}.{spec.get('group', '')}":
        yield field.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    yield from _spec(spec, given)
    yield from _afterwards(obj, spec)
    yield from _approval(obj["metadata"], spec.get("group", ""))


def _on_update(new: Json, old: Json) -> Causes:
    spec, before = new["spec"], old["spec"]
    yield from _spec(spec, spec.get("names") or {})
    if _is_established(old):
        yield from field.immutable("spec.scope", spec.get("scope"), before.get("scope"))
        yield from field.immutable("spec.names.kind", spec["names"].get("kind"), before["names"].get("kind"))
        bundle, was = _bundle(spec), _bundle(before)
        if bundle and not webhooks.bundle_problem(was):
            yield from _bundle_errors(bundle)
    yield from field.immutable("spec.group", spec.get("group"), before.get("group"))
    yield from field.immutable("spec.names.plural", spec["names"].get("plural"), before["names"].get("plural"))
    yield from _afterwards(new, spec)


def _is_established(obj: Json) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any((each.get("type"), each.get("status")) == ("Established", "True") for each in conditions)


def _bundle(spec: Json) -> str:
    webhook = (spec.get("conversion") or {}).get("webhook") or {}
    return str((webhook.get("clientConfig") or {}).get("caBundle") or "")


def _bundle_errors(bundle: str) -> Errors:
    problem = webhooks.bundle_problem(bundle)
    text = f"unable to load root certificates: {problem}"
    return [field.invalid("spec.conversion.webhookClientConfig.caBundle", bundle, text)] if problem else []


def _spec(spec: Json, given: Json) -> Causes:
    group = spec.get("group", "")
    if not group:
        yield field.required("spec.group")
    elif problems := names.subdomain(group):
        yield field.invalid("spec.group", group, ",".join(problems))
    elif "." not in group:
        yield field.invalid("spec.group", group, "should be a domain with at least one dot")
    yield from field.one_of("spec.scope", spec.get("scope", ""), ("Cluster", "Namespaced"))
    versions = spec.get("versions") or []
    yield from _versions(spec.get("versions"))
    yield from field.missing("spec.names", given, "plural", "singular", "kind", "listKind")
    yield from _names(given)
    if versions:
        # What all versions share, the server moves to the top, and reports its errors there.
        shared = {key for key in _SHARED if _alike(versions, key)}
        any_status = any("status" in (each.get("subresources") or {}) for each in versions)
        yield from _parts(versions[0], shared, "spec", "validation", has_status=any_status)
    yield from _conversion(spec)


def _afterwards(obj: Json, spec: Json) -> Causes:
    kept = (obj.get("status") or {}).get("storedVersions")
    if not kept:
        yield field.invalid("status.storedVersions", None, "must have at least one stored version")
    else:
        left = {name: index for index, name in enumerate(kept)}
        for version in spec.get("versions") or ():
            if left.pop(version["name"], None) is None and version.get("storage"):
                yield field.invalid("status.storedVersions", kept, f"must have the storage version {version['name']}")
        for name, index in left.items():
            text = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and removes "
                f"{name} from status.storedVersions"
            )
            yield field.invalid(f"status.storedVersions[{index}]", name, text)
    if spec.get("preserveUnknownFields"):
        text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        yield field.invalid("spec.preserveUnknownFields", True, text)


def _approval(meta: Json, group: str) -> Errors:
    """Groups of Kubernetes' own domains need the annotation of an approval."""
    if not (group in _COMMUNITY or group.endswith(tuple(f".{name}" for name in _COMMUNITY))):
        return []
    path, given = f"metadata.annotations[{_CONSENT}]", (meta.get("annotations") or {}).get(_CONSENT, "")
    text = f'protected groups must have approval annotation "{_CONSENT}"'
    see = "see https://github.com/kubernetes/enhancements/pull/1111"
    if not given:
        return [field.required(path, f"{text}, {see}")]
    if given.startswith("unapproved") or re.match(r"[a-z][a-z0-9+.-]*://[^/]", given):
        return []
    return [field.invalid(path, given, f'{text} with either a URL or a reason starting with "unapproved", {see}')]


def _names(given: Json) -> Causes:
    for key, mixed in (("plural", False), ("singular", False), ("kind", True), ("listKind", True)):
        name = given.get(key, "")
        problems = names.label_1035(name.lower() if mixed else name)
        if name and problems:
            prefix = "may have mixed case, but should otherwise match: " if mixed else ""
            yield field.invalid(f"spec.names.{key}", name, prefix + ",".join(problems))
    yield from _labels(given, "shortNames")
    if given.get("kind") and given.get("kind") == given.get("listKind"):
        yield field.invalid("spec.names.listKind", given["listKind"], "kind and listKind may not be the same")
    yield from _labels(given, "categories")


def _labels(given: Json, key: str) -> Errors:
    return [
        field.invalid(f"spec.names.{key}[{index}]", name, ",".join(problems))
        for index, name in enumerate(given.get(key) or ())
        if (problems := names.label_1035(name))
    ]


def _shown(versions: list[Json] | None) -> list[Json] | None:
    """The server prints its own struct."""
    if versions is None:
        return None
    return [
        {
            "Name": version.get("name", ""),
            "Served": version.get("served", False),
            "Storage": version.get("storage", False),
            "Deprecated": version.get("deprecated", False),
            "DeprecationWarning": version.get("deprecationWarning"),
            "Schema": None,
            "Subresources": None,
            "AdditionalPrinterColumns": None,
            "SelectableFields": None,
        }
        for version in versions
    ]


def _versions(given: list[Json] | None) -> Causes:
    versions = given or []
    yield from (
        field.required(f"spec.versions[{index}].schema.openAPIV3Schema")
        for index, version in enumerate(versions)
        if (version.get("schema") or {}).get("openAPIV3Schema") is None
    )
    own = {key for key in _SHARED if not _alike(versions, key)}
    for index, version in enumerate(versions):
        path, name = f"spec.versions[{index}]", version.get("name", "")
        if problems := names.label_1035(name):
            yield field.invalid(f"{path}.name", name, ",".join(problems))
        yield from _deprecation(version, f"{path}.deprecationWarning")
        has_status = "status" in (version.get("subresources") or {})
        yield from _parts(version, own, path, "schema", has_status=has_status)
    if len({version.get("name") for version in versions}) != len(versions):
        yield field.invalid("spec.versions", _shown(given), "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield field.invalid("spec.versions", _shown(given), "must have exactly one version marked as storage version")
    first = versions[0].get("name", "") if versions else ""
    if first and (problems := names.label_1035(first)):
        yield field.invalid("spec.version", first, ",".join(problems))


def _deprecation(version: Json, path: str) -> Errors:
    warning = version.get("deprecationWarning")
    if warning is None:
        return []
    if not version.get("deprecated"):
        return [field.invalid(path, warning, "can only be set for deprecated versions")]
    problems = ["must be <= 256 characters long"] if len(warning.encode()) > 256 else []
    problems += [] if warning else ["must not be an empty string"]
    odd = next((at for at, character in enumerate(warning) if not character.isprintable()), None)
    if odd is not None:
        where = len(warning[:odd].encode())
        text = "must only contain printable UTF-8 characters; non-printable character found at index"
        problems.append(f"{text} {where}")
    return [field.invalid(path, warning, problem) for problem in problems]


_SHARED = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
_COMMUNITY = ("k8s.io", "kubernetes.io")
_CONSENT = "api-approved.kubernetes.io"


def _alike(versions: list[Json], key: str) -> bool:
    return all(version.get(key) == versions[0].get(key) for version in versions)


def _parts(version: Json, types: set[str], path: str, called: str, *, has_status: bool) -> Causes:
    """The errors of the parts of a version under a path; `called`: the schema's name."""
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if "schema" in types and schema is not None:
        yield from structural(schema, f"{path}.{called}.openAPIV3Schema", has_status=has_status)
    scale = (version.get("subresources") or {}).get("scale")
    if "subresources" in types and scale is not None:
        yield from _scale(scale, f"{path}.subresources.scale")
    if "additionalPrinterColumns" in types:
        yield from field.each(f"{path}.additionalPrinterColumns", version.get("additionalPrinterColumns"), _column)
    if "selectableFields" in types and version.get("selectableFields"):
        yield from _selectable(version["selectableFields"], schema, f"{path}.selectableFields")


def _selectable(fields: list[Json], schema: Json | None, path: str) -> Causes:
    if schema is None:
        yield field.invalid(path, "", "may only be set when `version.schema.openAPIV3Schema` is not included")
        return
    seen: set[str] = set()
    for at, each in enumerate(fields):
        where, here = each.get("jsonPath", ""), f"{path}[{at}].jsonPath"
        if not where:
            yield field.required(here)
            continue
        inner, problem = _at(schema, where)
        if problem:
            yield field.invalid(here, where, f"is an invalid path: {problem}")
            continue
        if where.split(".")[1] == "metadata":
            yield field.invalid(here, where, "must not point to fields in metadata")
        if inner.get("type") not in ("string", "boolean", "integer"):
            text = (
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats "
                "are allowed."
            )
            yield field.invalid(here, where, text)
        yield from field.unique(seen, here, where)
    if len(seen) > _MOST_SELECTABLE:
        yield field.too_many(path, len(seen), _MOST_SELECTABLE)


def _at(schema: Json, path: str) -> tuple[Json, str]:
    """The schema of the field that a path such as `.spec.colour` names, or why there is none."""
    here: Any = schema
    if "[" in path:
        return {}, "array notation is not allowed"
    if not path.startswith("."):
        return {}, f"expected [ or . but got: {path.partition('.')[0]}"
    for step in path[1:].split("."):
        if not step and path.endswith("."):
            return {}, "unexpected end of JSON path"
        properties, rest = here.get("properties"), here.get("additionalProperties")
        here = properties.get(step) if properties else rest
        if not isinstance(here, dict):
            return {}, "does not refer to a valid field"
    return here, ""


def _column(column: Json, path: str) -> Causes:
    yield from field.missing(path, column, "name")
    kind, form = column.get("type") or "", column.get("format") or ""
    if kind not in _COLUMN_TYPES:
        text = f"must be one of {','.join(_COLUMN_TYPES)}"
        yield field.invalid(f"{path}.type", kind, text) if kind else field.required(f"{path}.type", text)
    if form and form not in _COLUMN_FORMATS:
        yield field.invalid(f"{path}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}")
    if not column.get("jsonPath"):
        yield field.required(f"{path}.JSONPath")
    yield from _simple_path(column.get("jsonPath") or "", f"{path}.JSONPath")


def _simple_path(given: str, path: str) -> Errors:
    is_simple = not given or given.startswith(".")
    return [] if is_simple else [field.invalid(path, given, "must be a simple json path starting with .")]


def _scale(scale: Json, path: str) -> Causes:
    for key, roots, detail in (
        ("specReplicasPath", (".spec.",), ".spec"),
        ("statusReplicasPath", (".status.",), ".status"),
        ("labelSelectorPath", (".spec.", ".status."), "either .spec or .status"),
    ):
        given, here = scale.get(key) or "", f"{path}.{key}"
        if not given and key != "labelSelectorPath":
            yield field.required(here)
        elif problem := _simple_path(given, here):
            yield from problem
        elif given and not given.startswith(roots):
            yield field.invalid(here, given, f"should be a json path under {detail}")


def _conversion(spec: Json) -> Causes:
    conversion = spec.get("conversion") or {}
    strategy, path = conversion.get("strategy") or "", "spec.conversion"
    if strategy != "None" and spec.get("preserveUnknownFields"):
        text = "must be None if spec.preserveUnknownFields is true"
        yield field.invalid(f"{path}.strategy", strategy, text)
    yield from field.one_of(f"{path}.strategy", strategy, ("None", "Webhook"))
    webhook = conversion.get("webhook") or {}
    config, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    if strategy == "Webhook":
        here = f"{path}.webhookClientConfig"
        if config is None:
            yield field.required(here, "required when strategy is set to Webhook")
        else:
            yield from webhooks.client(config, here)
        yield from webhooks.review_versions(versions, f"{path}.conversionReviewVersions", "")
    else:
        text = "should not be set when strategy is not set to Webhook"
        given = (("webhookClientConfig", config is not None), ("conversionReviewVersions", versions))
        yield from (field.forbidden(f"{path}.{key}", text) for key, is_given in given if is_given)


# --- structural schemas -----------------------------------------------------------------------------------------


def structural(schema: Json, path: str, *, has_status: bool = False) -> Errors:
    found = list(shape.root(schema, path, has_status=has_status))
    is_sound = _is_supported(schema)
    if is_sound:
        unsound = shape.invariants(schema, path, _regular_expression) or _defaults(schema, path, is_root=True)
        found += unsound
        is_sound = not unsound
    found += shape.Standard(_forms, _rules, with_rules=is_sound).check(schema, path)
    if not found and not is_sound:
        found.append(field.invalid(path, "", "OpenAPIV3Schema 'schema' is not supported"))
    return found


def _is_supported(schema: Any) -> bool:
    """Whether the schema has only what structural schemas may have; nothing else is validated otherwise."""
    if isinstance(schema, list):
        return not schema
    if not isinstance(schema, dict):
        return True
    if any(schema.get(key) for key in ("id", "$schema", "$ref", "patternProperties", "dependencies", "definitions")):
        return False
    inner = [*(schema.get("properties") or {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return schema.get("additionalItems") is None and all(map(_is_supported, inner))


def _forms(schema: Json, path: str) -> Errors:
    """The errors in the form of a schema's rules."""
    rules, here = schema.get("x-kubernetes-validations"), f"{path}.x-kubernetes-validations"
    return list(field.each(here, rules, lambda rule, at: _form(rule, schema, at)))


def _regular_expression(pattern: str, path: str) -> Errors:
    try:
        compiled(pattern)
    except BadPattern as problem:
        text = f"must be a valid regular expression, but isn't: error parsing regexp: {problem}"
        return [field.invalid(path, pattern, text)]
    return []


def _default(schema: Json, path: str) -> Errors:
    if schema.get("default") is None:
        return []
    here = f"{path}.default"
    unknown: Errors = []
    if _has_unknown(schema, schema["default"]):
        unknown.append(field.invalid(here, schema["default"], "must not have unknown fields"))
    bare = {key: value for key, value in schema.items() if key != "default"}
    found = openapi.check(bare, schema["default"], "")
    if not found and expressions.has_rules(bare) and expressions.are_sound(bare):
        found = expressions.check(bare, schema["default"], schema["default"])
    below = [FieldError(each.type, _under(here, each.field), each.message) for each in found]
    return [*unknown, *below]


def _under(path: str, inner: str) -> str:
    if not inner or inner == "<nil>":
        return inner or path
    return f"{path}.{inner.removeprefix('.')}"


def _defaults(schema: Json, path: str, *, is_root: bool = False) -> Errors:
    """The errors of the defaults here and below; those of a map's values are not checked."""
    found = _default(schema, path)
    is_object = is_root or schema.get("x-kubernetes-embedded-resource")
    if isinstance(schema.get("items"), dict):
        found += _defaults(schema["items"], f"{path}.items")
    for name, inner in (schema.get("properties") or {}).items():
        if not (is_object and name in ("apiVersion", "kind", "metadata")):  # these may have any schema
            found += _defaults(inner, below(path, f".properties[{name}]"))
    return found


def _has_unknown(schema: Json, value: Any) -> bool:
    if isinstance(value, dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, inner in value.items():
            below = properties.get(name) or (rest if isinstance(rest, dict) else None)
            if below is None or _has_unknown(below, inner):
                return rest is not True or below is not None
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return any(_has_unknown(schema["items"], inner) for inner in value)
    return False


def _rules(schema: Json, path: str, old_at: str, root: bool) -> Causes:
    rules = schema.get("x-kubernetes-validations") or ()
    self = expressions.declared(schema, root) if rules else None
    for index, rule in enumerate(rules):
        here, text = f"{path}.x-kubernetes-validations[{index}]", rule["rule"]
        problem = expressions.problem_with(rule, self)
        if problem:
            yield field.invalid(f"{here}.rule", _printed_rule(rule), problem)
        problem = expressions.problem_with_message(rule, self)
        if problem:
            yield field.invalid(f"{here}.messageExpression", _printed_rule(rule), problem)
        if expressions.uses_old(text):
            if old_at:
                why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {old_at}"
                yield field.invalid(f"{here}.rule", text, why)
        elif rule.get("optionalOldSelf") is not None:
            why = "may not be set if oldSelf is not used in rule"
            yield field.invalid(f"{here}.optionalOldSelf", rule["optionalOldSelf"], why)


def _form(rule: Json, schema: Json, path: str) -> Causes:
    text, message = rule.get("rule", "").strip(), rule.get("message", "")
    if not text:
        yield field.required(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        yield field.invalid(f"{path}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip():
        yield field.invalid(f"{path}.message", message, "must not contain line breaks")
    elif "\n" in text and not message.strip():
        yield field.required(f"{path}.message", "message must be specified if rule contains line breaks")
    if rule.get("messageExpression") and not rule["messageExpression"].strip():
        yield field.required(f"{path}.messageExpression", "messageExpression must be non-empty if specified")
    if rule.get("reason") and rule["reason"] not in _REASONS:
        yield field.not_supported(f"{path}.reason", rule["reason"], _REASONS)
    place = rule.get("fieldPath", "")
    if place and not place.strip():
        yield field.invalid(f"{path}.fieldPath", place, "must be non-empty if specified")
    if "\n" in place or "\r" in place:
        yield field.invalid(f"{path}.fieldPath", place, "must not contain line breaks")
    if place and not _is_field(schema, place):
        yield field.invalid(f"{path}.fieldPath", place, "must be a valid path")


_FIELD_STEP = re.compile(r"\.([^.\[\]']+)|\['((?:[^'\\]|\\.)*)'\]")


def _is_field(schema: Json, path: str) -> bool:
    """Whether a path such as `.spec['a b']` leads to a field that the schema names."""
    here: Any = schema
    at = 0
    while at < len(path):
        step = _FIELD_STEP.match(path, at)
        if step is None or not isinstance(here, dict):
            return False
        properties, rest = here.get("properties"), here.get("additionalProperties")
        here = rest if properties is None else properties.get(step[1] or step[2])
        if not isinstance(here, dict):
            return False
        at = step.end()
    return True


def _printed_rule(rule: Json) -> Json:
    """The server prints its own struct."""
    return {
        "Rule": rule.get("rule", ""),
        "Message": rule.get("message", ""),
        "MessageExpression": rule.get("messageExpression", ""),
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath", ""),
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }
