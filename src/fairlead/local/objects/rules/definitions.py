"""What is asked of a CustomResourceDefinition: names, versions, and a schema that is structural."""

import re
from typing import Any

from fairlead.local.objects import expressions, openapi
from fairlead.local.objects.patterns import BadPattern, compiled
from fairlead.local.objects.rules import metadata, names
from fairlead.local.objects.rules.errors import (
    Errors,
    FieldError,
    Json,
    forbidden,
    immutable,
    invalid,
    not_supported,
    required,
)

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_LIST_TYPES = ("atomic", "set", "map")
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_SIMPLE_PATH = re.compile(r"(\.[^.\[\]]+|\[[^\]]+\])+")
# What may stand inside allOf, anyOf, oneOf and not: judgements of values, no structure.
_STRUCTURE = ("type", "default", "additionalProperties", "nullable", "title", "description")


def definition(obj: Json) -> Errors:
    spec = obj["spec"]
    given = spec.get("names") or {}
    found = metadata.on_create(obj["metadata"], False, names.subdomain, core=False)
    name = obj["metadata"].get("name", "")
    if name and name != f"{given.get('plural', '')}.{spec.get('group', '')}":
        found.append(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    return [*found, *_spec(spec, given), *_afterwards(obj, spec), *_approval(obj["metadata"], spec.get("group", ""))]


def definition_update(new: Json, old: Json) -> Errors:
    found = metadata.on_update(new["metadata"], old["metadata"], core=False)
    spec, before = new["spec"], old["spec"]
    found += _spec(spec, spec.get("names") or {})
    found += immutable("spec.scope", spec.get("scope"), before.get("scope"))
    found += immutable("spec.names.kind", spec["names"].get("kind"), before["names"].get("kind"))
    found += immutable("spec.group", spec.get("group"), before.get("group"))
    found += immutable("spec.names.plural", spec["names"].get("plural"), before["names"].get("plural"))
    return [*found, *_afterwards(new, spec)]


def _spec(spec: Json, given: Json) -> Errors:
    found: Errors = []
    group = spec.get("group", "")
    if not group:
        found.append(required("spec.group"))
    elif problems := names.subdomain(group):
        found.append(invalid("spec.group", group, ",".join(problems)))
    elif "." not in group:
        found.append(invalid("spec.group", group, "should be a domain with at least one dot"))
    scope = spec.get("scope", "")
    if not scope:
        found.append(required("spec.scope"))
    elif scope not in ("Cluster", "Namespaced"):
        found.append(not_supported("spec.scope", scope, ("Cluster", "Namespaced")))
    versions = spec.get("versions") or []
    found += _versions(spec.get("versions"))
    found += [required(f"spec.names.{key}") for key in ("plural", "singular", "kind", "listKind") if not given.get(key)]
    found += _names(given)
    if versions:
        # What all versions share, the server moves to the top and complains about there.
        found += _parts(versions[0], {key for key in _SHARED if _alike(versions, key)}, "spec", "validation")
    return [*found, *_conversion(spec)]


def _afterwards(obj: Json, spec: Json) -> Errors:
    found: Errors = []
    kept = (obj.get("status") or {}).get("storedVersions")
    if not kept:
        found.append(invalid("status.storedVersions", None, "must have at least one stored version"))
    else:
        left = {name: index for index, name in enumerate(kept)}
        for version in spec.get("versions") or ():
            if left.pop(version["name"], None) is None and version.get("storage"):
                text = f"must have the storage version {version['name']}"
                found.append(invalid("status.storedVersions", kept, text))
        for name, index in left.items():
            text = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and removes "
                f"{name} from status.storedVersions"
            )
            found.append(invalid(f"status.storedVersions[{index}]", name, text))
    if spec.get("preserveUnknownFields"):
        text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        found.append(invalid("spec.preserveUnknownFields", True, text))
    return found


def _approval(meta: Json, group: str) -> Errors:
    """Groups of Kubernetes' own community ask for a word of consent."""
    if not (group in _COMMUNITY or group.endswith(tuple(f".{name}" for name in _COMMUNITY))):
        return []
    path, given = f"metadata.annotations[{_CONSENT}]", (meta.get("annotations") or {}).get(_CONSENT, "")
    text = f'protected groups must have approval annotation "{_CONSENT}"'
    see = "see https://github.com/kubernetes/enhancements/pull/1111"
    if not given:
        return [required(path, f"{text}, {see}")]
    if given.startswith("unapproved") or re.match(r"[a-z][a-z0-9+.-]*://[^/]", given):
        return []
    return [invalid(path, given, f'{text} with either a URL or a reason starting with "unapproved", {see}')]


def _names(given: Json) -> Errors:
    found: Errors = []
    for key, mixed in (("plural", False), ("singular", False), ("kind", True), ("listKind", True)):
        name = given.get(key, "")
        problems = names.label_1035(name.lower() if mixed else name)
        if name and problems:
            prefix = "may have mixed case, but should otherwise match: " if mixed else ""
            found.append(invalid(f"spec.names.{key}", name, prefix + ",".join(problems)))
    found += _labels(given, "shortNames")
    if given.get("kind") and given.get("kind") == given.get("listKind"):
        found.append(invalid("spec.names.listKind", given["listKind"], "kind and listKind may not be the same"))
    return [*found, *_labels(given, "categories")]


def _labels(given: Json, key: str) -> Errors:
    return [
        invalid(f"spec.names.{key}[{index}]", name, ",".join(problems))
        for index, name in enumerate(given.get(key) or ())
        if (problems := names.label_1035(name))
    ]


def _shown(versions: list[Json] | None) -> list[Json] | None:
    """The server prints its own struct."""
    return (
        None
        if versions is None
        else [
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
    )


def _versions(given: list[Json] | None) -> Errors:
    versions = given or []
    found: Errors = [
        required(f"spec.versions[{index}].schema.openAPIV3Schema")
        for index, version in enumerate(versions)
        if (version.get("schema") or {}).get("openAPIV3Schema") is None
    ]
    own = {key for key in _SHARED if not _alike(versions, key)}
    for index, version in enumerate(versions):
        path, name = f"spec.versions[{index}]", version.get("name", "")
        if problems := names.label_1035(name):
            found.append(invalid(f"{path}.name", name, ",".join(problems)))
        warning = version.get("deprecationWarning")
        if warning is not None and not version.get("deprecated"):
            found.append(invalid(f"{path}.deprecationWarning", warning, "can only be set for deprecated versions"))
        found += _parts(version, own, path, "schema")
    if len({version.get("name") for version in versions}) != len(versions):
        found.append(invalid("spec.versions", _shown(given), "must contain unique version names"))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        found.append(invalid("spec.versions", _shown(given), text))
    first = versions[0].get("name", "") if versions else ""
    if first and (problems := names.label_1035(first)):
        found.append(invalid("spec.version", first, ",".join(problems)))
    return found


_SHARED = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
_COMMUNITY = ("k8s.io", "kubernetes.io")
_CONSENT = "api-approved.kubernetes.io"


def _alike(versions: list[Json], key: str) -> bool:
    return all(version.get(key) == versions[0].get(key) for version in versions)


def _parts(version: Json, wanted: set[str], path: str, called: str) -> Errors:
    """What is wrong with the parts of a version that stand under a path there; `called`: the schema's name."""
    found: Errors = []
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if "schema" in wanted and schema is not None:
        found += structural(schema, f"{path}.{called}.openAPIV3Schema")
    scale = (version.get("subresources") or {}).get("scale")
    if "subresources" in wanted and scale is not None:
        found += _scale(scale, f"{path}.subresources.scale")
    if "additionalPrinterColumns" in wanted:
        for at, column in enumerate(version.get("additionalPrinterColumns") or ()):
            found += _column(column, f"{path}.additionalPrinterColumns[{at}]")
    if "selectableFields" in wanted:
        for at, field in enumerate(version.get("selectableFields") or ()):
            where, here = field.get("jsonPath", ""), f"{path}.selectableFields[{at}].jsonPath"
            if not where:
                found.append(required(here))
            elif schema is not None and _at(schema, where) is None:
                found.append(invalid(here, where, "is an invalid path: does not refer to a valid field"))
    return found


def _at(schema: Json, path: str) -> Json | None:
    here: Any = schema
    for step in path.strip(".").split("."):
        here = (here.get("properties") or {}).get(step) if isinstance(here, dict) else None
    return here if isinstance(here, dict) else None


def _column(column: Json, path: str) -> Errors:
    found: Errors = []
    if not column.get("name"):
        found.append(required(f"{path}.name"))
    kinds = ("boolean", "date", "integer", "number", "string")
    if column.get("type") not in kinds:
        found.append(invalid(f"{path}.type", column.get("type", ""), f"must be one of {','.join(kinds)}"))
    if not column.get("jsonPath"):
        found.append(required(f"{path}.JSONPath"))
    elif not column["jsonPath"].startswith("."):
        found.append(invalid(f"{path}.JSONPath", column["jsonPath"], "must be a simple json path starting with ."))
    return found


def _scale(scale: Json, path: str) -> Errors:
    found: Errors = []
    for key, root in (("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")):
        given = scale.get(key, "")
        if not given:
            found.append(required(f"{path}.{key}"))
        elif not _SIMPLE_PATH.fullmatch(given) or not given.startswith("."):
            found.append(invalid(f"{path}.{key}", given, "must be a simple json path starting with ."))
        elif not given.startswith(f"{root}."):
            found.append(invalid(f"{path}.{key}", given, f"should be a json path under {root}"))
    return found


def _conversion(spec: Json) -> Errors:
    conversion = spec.get("conversion") or {}
    strategy, path = conversion.get("strategy", ""), "spec.conversion"
    found: Errors = []
    if strategy != "None" and spec.get("preserveUnknownFields"):
        text = "must be None if spec.preserveUnknownFields is true"
        found.append(invalid(f"{path}.strategy", strategy, text))
    if strategy not in ("None", "Webhook"):
        found.append(not_supported(f"{path}.strategy", strategy, ("None", "Webhook")))
    if strategy == "Webhook":
        webhook = conversion.get("webhook") or {}
        if not webhook.get("clientConfig"):
            found.append(required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook"))
        if not webhook.get("conversionReviewVersions"):
            found.append(required(f"{path}.conversionReviewVersions"))
    return found


# --- structural schemas -----------------------------------------------------------------------------------------


def structural(schema: Json, path: str) -> Errors:
    found: Errors = []
    if not schema.get("type"):
        found.append(required(f"{path}.type", "must not be empty at the root"))
    elif schema["type"] != "object":
        found.append(invalid(f"{path}.type", schema["type"], "must be object at the root"))
    described = (schema.get("properties") or {}).get("metadata") or {}
    if set(described.get("properties") or {}) - {"name", "generateName"}:
        text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        found.append(forbidden(f"{path}.properties[metadata]", text))
    found += _node(schema, path, correlatable=True, root=True, rules=False)
    if found:
        return [*found, *_forms(schema, path)]
    found = _defaults(schema, path)
    if found:
        return [*found, *_forms(schema, path)]
    return _node(schema, path, correlatable=True, root=True)


def _forms(schema: Json, path: str) -> Errors:
    """What is wrong with how rules are written, where they are not looked at any closer."""
    rules = schema.get("x-kubernetes-validations") or ()
    found: Errors = []
    for name, inner in (schema.get("properties") or {}).items():
        found += _forms(inner, f"{path}.properties[{name}]")
    for key in ("additionalProperties", "items"):
        if isinstance(schema.get(key), dict):
            found += _forms(schema[key], f"{path}.{key}")
    for index, rule in enumerate(rules):
        found += _form(rule, schema, f"{path}.x-kubernetes-validations[{index}]")
    return found


def _node(
    schema: Json, path: str, correlatable: bool, base: str = "", root: bool = False, rules: bool = True
) -> Errors:
    found: Errors = []
    if schema.get("$ref"):
        found.append(forbidden(f"{path}.$ref", "$ref is not supported"))
    kind = schema.get("type", "")
    if kind and kind not in _TYPES:
        found.append(not_supported(f"{path}.type", kind, _TYPES))
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        found.append(forbidden(f"{path}.uniqueItems", text))
    if schema.get("properties") and schema.get("additionalProperties"):
        text = "additionalProperties and properties are mutual exclusive"
        found.append(forbidden(f"{path}.additionalProperties", text))
    if schema.get("pattern"):
        found += _regular_expression(schema["pattern"], f"{path}.pattern")
    found += _embedded(schema, kind, path)
    found += _list(schema, kind, path)
    for name, inner in (schema.get("properties") or {}).items():
        here = f"{path}.properties[{name}]"
        if not _has_shape(inner):
            found.append(required(f"{here}.type", "must not be empty for specified object fields"))
        found += _node(inner, here, correlatable, base, rules=rules)
    rest = schema.get("additionalProperties")
    if isinstance(rest, dict):
        here = f"{path}.additionalProperties"
        if not _has_shape(rest):
            found.append(required(f"{here}.type", "must not be empty for specified object fields"))
        found += _node(rest, here, correlatable, base, rules=rules)
    if isinstance(schema.get("items"), dict):
        here = f"{path}.items"
        if not _has_shape(schema["items"]):
            found.append(required(f"{here}.type", "must not be empty for specified array items"))
        keyed = correlatable and schema.get("x-kubernetes-list-type") == "map"
        found += _node(schema["items"], here, keyed, base if not correlatable else path, rules=rules)
    for key in ("allOf", "anyOf", "oneOf"):
        for index, inner in enumerate(schema.get(key) or ()):
            found += _judgement(inner, f"{path}.{key}[{index}]")
    if isinstance(schema.get("not"), dict):
        found += _judgement(schema["not"], f"{path}.not")
    # A rule is looked at once everything it may look at is sound.
    return [*found, *([] if found or not rules else _rules(schema, path, correlatable, base, root))]


def _has_shape(schema: Json) -> bool:
    return bool(
        schema.get("type")
        or schema.get("x-kubernetes-int-or-string")
        or schema.get("x-kubernetes-preserve-unknown-fields")
        or schema.get("$ref")
    )


def _judgement(schema: Json, path: str) -> Errors:
    found: Errors = [
        forbidden(f"{path}.{key}", "must be empty to be structural") for key in _STRUCTURE if schema.get(key)
    ]
    for name, inner in (schema.get("properties") or {}).items():
        found += _judgement(inner, f"{path}.properties[{name}]")
    if isinstance(schema.get("items"), dict):
        found += _judgement(schema["items"], f"{path}.items")
    return found


def _regular_expression(pattern: str, path: str) -> Errors:
    try:
        compiled(pattern)
    except BadPattern as problem:
        return [
            invalid(path, pattern, f"must be a valid regular expression, but isn't: error parsing regexp: {problem}")
        ]
    return []


def _embedded(schema: Json, kind: str, path: str) -> Errors:
    if not schema.get("x-kubernetes-embedded-resource"):
        return []
    found: Errors = []
    if not schema.get("properties") and not schema.get("x-kubernetes-preserve-unknown-fields"):
        text = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        found.append(required(f"{path}.properties", text))
    if kind != "object":
        found.append(invalid(f"{path}.type", kind, "must be object if x-kubernetes-embedded-resource is true"))
    return found


def _list(schema: Json, kind: str, path: str) -> Errors:
    found: Errors = []
    if kind == "array" and schema.get("items") is None:
        found.append(required(f"{path}.items", "must be specified"))
    list_type, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or []
    if list_type is None:
        return found
    if kind != "array":
        return [*found, invalid(f"{path}.type", kind, "must be array if x-kubernetes-list-type is specified")]
    if list_type not in _LIST_TYPES:
        return [*found, not_supported(f"{path}.x-kubernetes-list-type", list_type, _LIST_TYPES)]
    items = schema.get("items") or {}
    if list_type in ("set", "map") and items.get("nullable"):
        told = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
        found.append(forbidden(f"{path}.items.nullable", told))
    if list_type == "set" and items.get("type") in ("object", "array"):
        key = "x-kubernetes-map-type" if items["type"] == "object" else "x-kubernetes-list-type"
        if items.get(key) != "atomic":
            text = "must be atomic as item of a list with x-kubernetes-list-type=set"
            found.append(invalid(f"{path}.items.{key}", items.get(key), text))
    if list_type == "map":
        if not keys:
            text = "must not be empty if x-kubernetes-list-type is map"
            found.append(required(f"{path}.x-kubernetes-list-map-keys", text))
        properties = items.get("properties") or {}
        if any(key not in properties for key in keys):
            text = "entries must all be names of item properties"
            found.append(invalid(f"{path}.x-kubernetes-list-map-keys", keys, text))
        for key in keys:
            if key in properties and "default" not in properties[key] and key not in (items.get("required") or ()):
                text = (
                    "this property is in x-kubernetes-list-map-keys, so it must have a default "
                    "or be a required property"
                )
                found.append(required(f"{path}.items.properties[{key}].default", text))
    return found


def _default(schema: Json, path: str) -> Errors:
    if schema.get("default") is None:
        return []
    here = f"{path}.default"
    unknown: Errors = []
    if _has_unknown(schema, schema["default"]):
        unknown.append(invalid(here, schema["default"], "must not have unknown fields"))
    bare = {key: value for key, value in schema.items() if key != "default"}
    found = openapi.check(bare, schema["default"], "")
    if not found and expressions.has_rules(bare) and expressions.are_sound(bare):
        found = expressions.check(bare, schema["default"], schema["default"])
    below = [FieldError(each.type, _under(here, each.field), each.message) for each in found]
    return [*unknown, *below]


def _under(path: str, field: str) -> str:
    if not field or field == "<nil>":
        return field or path
    return f"{path}.{field.removeprefix('.')}"


def _defaults(schema: Json, path: str) -> Errors:
    """What is wrong with the defaults here and below; those of a map's values nobody looks at."""
    found = _default(schema, path)
    if isinstance(schema.get("items"), dict):
        found += _defaults(schema["items"], f"{path}.items")
    for name, inner in (schema.get("properties") or {}).items():
        found += _defaults(inner, f"{path}.properties[{name}]")
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


def _rules(schema: Json, path: str, correlatable: bool, base: str, root: bool) -> Errors:
    rules = schema.get("x-kubernetes-validations") or ()
    found = [
        each
        for index, rule in enumerate(rules)
        for each in _form(rule, schema, f"{path}.x-kubernetes-validations[{index}]")
    ]
    if found:
        return found
    self = expressions.declared(schema, root) if rules else None
    for index, rule in enumerate(rules):
        here, text = f"{path}.x-kubernetes-validations[{index}]", rule["rule"]
        problem = expressions.problem_with(rule, self)
        if problem:
            found.append(invalid(f"{here}.rule", _printed_rule(rule), problem))
        problem = expressions.problem_with_message(rule, self)
        if problem:
            found.append(invalid(f"{here}.messageExpression", _printed_rule(rule), problem))
        if expressions.uses_old(text):
            if not correlatable:
                why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {base or path}"
                found.append(invalid(f"{here}.rule", text, why))
        elif rule.get("optionalOldSelf") is not None:
            why = "may not be set if oldSelf is not used in rule"
            found.append(invalid(f"{here}.optionalOldSelf", rule["optionalOldSelf"], why))
    return found


def _form(rule: Json, schema: Json, path: str) -> Errors:
    found: Errors = []
    text, message = rule.get("rule", "").strip(), rule.get("message", "")
    if not text:
        found.append(required(f"{path}.rule", "rule is not specified"))
    elif message and not message.strip():
        found.append(invalid(f"{path}.message", message, "must be non-empty if specified"))
    elif "\n" in message.strip():
        found.append(invalid(f"{path}.message", message, "must not contain line breaks"))
    elif "\n" in text and not message.strip():
        found.append(required(f"{path}.message", "message must be specified if rule contains line breaks"))
    if rule.get("messageExpression") and not rule["messageExpression"].strip():
        found.append(required(f"{path}.messageExpression", "messageExpression must be non-empty if specified"))
    if rule.get("reason") and rule["reason"] not in _REASONS:
        found.append(not_supported(f"{path}.reason", rule["reason"], _REASONS))
    place = rule.get("fieldPath", "")
    if place and not place.strip():
        found.append(invalid(f"{path}.fieldPath", place, "must be non-empty if specified"))
    if "\n" in place or "\r" in place:
        found.append(invalid(f"{path}.fieldPath", place, "must not contain line breaks"))
    if place and not _is_field(schema, place):
        found.append(invalid(f"{path}.fieldPath", place, "must be a valid path"))
    return found


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
