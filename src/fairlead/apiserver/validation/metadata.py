"""Validation of metadata, of label selectors, and of a template's metadata."""

from collections.abc import Callable
from typing import Any

from fairlead.apiserver.request.selectors import labels_match
from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import names
from fairlead.apiserver.validation.errors import Causes, Errors, Json

Check = Callable[[str], list[str]]
MOST_ANNOTATION_BYTES = 256 * 1024
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_CHECKED = (*_IMMUTABLE, "generateName", "labels", "annotations", "ownerReferences", "finalizers")


def on_create(metadata: Json, namespaced: bool, name_check: Check, core: bool = True) -> Causes:
    """`core`: whether the kind's rules insist on finalizers with a prefix."""
    generate = metadata.get("generateName")
    if generate:
        problems = name_check(names.beginning(generate))
        yield from (field.invalid("metadata.generateName", generate, text) for text in problems)
    yield from field.mandatory("metadata.name", metadata.get("name"), name_check, "name or generateName is required")
    space = metadata.get("namespace")
    if namespaced:
        yield from field.mandatory("metadata.namespace", space, names.label)
    elif space:
        yield field.forbidden("metadata.namespace", "not allowed on this type")
    yield from field.nonnegative("metadata.generation", metadata.get("generation"))
    yield from _common(metadata)
    yield from _finalizers(metadata.get("finalizers") or (), core)


def common(new: Json, old: Json, namespaced: bool) -> Errors:
    """The server's checks of every update, before the kind's own rules, which check again."""
    if all(new.get(key) == old.get(key) for key in _CHECKED):
        return []
    return [*on_create(new, namespaced, names.path_segment, core=False), *on_update(new, old, core=False)]


def on_update(new: Json, old: Json, core: bool = True) -> Causes:
    if all(new.get(key) == old.get(key) for key in _CHECKED):
        return
    if old.get("deletionTimestamp"):
        extra = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if extra:
            listed = ", ".join(f'"{name}"' for name in extra)
            text = "no new finalizers can be added if the object is being deleted, found new finalizers"
            yield field.forbidden("metadata.finalizers", f"{text} []string{{{listed}}}")
    for key in _IMMUTABLE:
        if new.get(key) != old.get(key):
            value = new.get(key) if key.startswith("deletion") else new.get(key, "")
            yield from field.immutable(f"metadata.{key}", value, old.get(key))
    yield from _common(new)
    if core:
        yield from _qualified_finalizers(new.get("finalizers") or ())


def anew(new: Json, old: Json, namespaced: bool, name_check: Check, core: bool) -> Errors:
    """For kinds that validate the metadata of an update as if the object were new."""
    if all(new.get(key) == old.get(key) for key in _CHECKED):
        return []
    return [*on_update(new, old, core), *on_create(new, namespaced, name_check, core)]


def _common(metadata: Json) -> Causes:
    if metadata.get("labels"):
        yield from labels(metadata["labels"], "metadata.labels")
    if metadata.get("annotations"):
        yield from annotations(metadata["annotations"], "metadata.annotations")
    if metadata.get("ownerReferences"):
        yield from _owners(metadata["ownerReferences"])


def labels(given: Json, path: str) -> Causes:
    for key, value in given.items():
        if not isinstance(value, str):
            continue
        yield from field.malformed(path, key, names.qualified)
        yield from field.malformed(path, value, names.label_value)


def annotations(given: Json, path: str) -> Causes:
    size = 0
    for key, value in given.items():
        for text in names.qualified(key.lower()):
            yield field.invalid(path, key, text)
        size += len(key) + len(value)
    if size > MOST_ANNOTATION_BYTES // 4:
        size = sum(len(key.encode()) + len(value.encode()) for key, value in given.items())
        if size > MOST_ANNOTATION_BYTES:
            yield field.too_long(path, MOST_ANNOTATION_BYTES)


def _owners(owners: list[Json]) -> Causes:
    path = "metadata.ownerReferences"
    controllers: list[str] = []
    for owner in owners:
        version = owner.get("apiVersion", "")
        if not version or version.endswith("/") or version.count("/") > 1:
            yield field.invalid(f"{path}.apiVersion", version, "version must not be empty")
        for key in ("kind", "name", "uid"):
            if not owner.get(key):
                yield field.invalid(f"{path}.{key}", owner.get(key, ""), "must not be empty")
        if (version, owner.get("kind")) == ("v1", "Event"):
            yield field.invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner")
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
            if len(controllers) > 1:
                both = f"{controllers[-2]} and {controllers[-1]}"
                text = f'Only one reference can have Controller set to true. Found "true" in references for {both}'
                yield field.invalid(path, owners, text)


def _finalizers(finalizers: Any, core: bool) -> Causes:
    path = "metadata.finalizers"
    for finalizer in finalizers:
        yield from field.malformed(path, finalizer, names.qualified)
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        yield field.invalid(path, list(finalizers), "finalizer orphan and foregroundDeletion cannot be both set")
    if core:
        yield from _qualified_finalizers(finalizers)


def _qualified_finalizers(finalizers: Any) -> Errors:
    text = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        field.invalid(f"metadata.finalizers[{index}]", finalizer, text)
        for index, finalizer in enumerate(finalizers)
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS
    ]


def selector(given: Json | None, path: str) -> Causes:
    """A label selector's form."""
    if not given:
        return
    yield from labels(given.get("matchLabels") or {}, f"{path}.matchLabels")
    for index, expression in enumerate(given.get("matchExpressions") or ()):
        here = f"{path}.matchExpressions[{index}]"
        yield from operator_and_values(expression, here)
        yield from field.malformed(f"{here}.key", expression.get("key", ""), names.qualified)
        for at, value in enumerate(expression.get("values") or ()):
            yield from field.malformed(f"{here}.values[{at}]", value, names.label_value)


def operator_and_values(expression: Json, path: str) -> Causes:
    """Whether the operator of a requirement has the values that it takes."""
    values = expression.get("values")
    match expression.get("operator"):
        case "In" | "NotIn":
            if not values:
                yield field.required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        case "Exists" | "DoesNotExist":
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield field.forbidden(f"{path}.values", text)
        case operator:
            yield field.invalid(f"{path}.operator", operator or "", "not a valid selector operator")


def template_labels(given: Json | None, template: Json) -> Errors:
    """The labels of a template must be selected by the selector of its owner."""
    labels = (template.get("metadata") or {}).get("labels")
    if labels_match(given, labels or {}):
        return []
    return [field.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")]
