"""Validation of metadata, of label selectors, and of a template's metadata."""

from collections.abc import Callable
from typing import Any

from fairlead.apiserver.validation import names
from fairlead.apiserver.validation.errors import (
    Errors,
    Json,
    forbidden,
    immutable,
    invalid,
    malformed,
    mandatory,
    nonnegative,
    required,
    too_long,
)

Check = Callable[[str], list[str]]
MOST_ANNOTATION_BYTES = 256 * 1024
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_CHECKED = (*_IMMUTABLE, "generateName", "labels", "annotations", "ownerReferences", "finalizers")


def on_create(metadata: Json, namespaced: bool, name_check: Check, core: bool = True) -> Errors:
    """`core`: whether the kind's rules insist on finalizers with a prefix."""
    found: Errors = []
    generate = metadata.get("generateName")
    if generate:
        # A suffix is appended to generateName, so that it may end in a dash.
        tried = generate[:-2] + "a" if generate.endswith("-") and len(generate) > 1 else generate
        found += [invalid("metadata.generateName", generate, text) for text in name_check(tried)]
    name = metadata.get("name")
    if not name:
        found.append(required("metadata.name", "name or generateName is required"))
    else:
        found += malformed("metadata.name", name, name_check)
    space = metadata.get("namespace")
    if namespaced:
        found += mandatory("metadata.namespace", space, names.label)
    elif space:
        found.append(forbidden("metadata.namespace", "not allowed on this type"))
    found += nonnegative("metadata.generation", metadata.get("generation"))
    found += _common(metadata)
    found += _finalizers(metadata.get("finalizers") or (), core)
    return found


def common(new: Json, old: Json, namespaced: bool) -> Errors:
    """The server's checks of every update, before the kind's own rules, which check again."""
    if all(new.get(key) == old.get(key) for key in _CHECKED):
        return []
    return [*on_create(new, namespaced, names.path_segment, core=False), *on_update(new, old, core=False)]


def on_update(new: Json, old: Json, core: bool = True) -> Errors:
    if all(new.get(key) == old.get(key) for key in _CHECKED):
        return []
    found: Errors = []
    if old.get("deletionTimestamp"):
        extra = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if extra:
            listed = ", ".join(f'"{name}"' for name in extra)
            found.append(
                forbidden(
                    "metadata.finalizers",
                    "no new finalizers can be added if the object is being deleted, "
                    f"found new finalizers []string{{{listed}}}",
                )
            )
    for key in _IMMUTABLE:
        if new.get(key) != old.get(key):
            value = new.get(key) if key.startswith("deletion") else new.get(key, "")
            found += immutable(f"metadata.{key}", value, old.get(key))
    found += _common(new)
    return [*found, *_qualified_finalizers(new.get("finalizers") or ())] if core else found


def anew(new: Json, old: Json, namespaced: bool, name_check: Check, core: bool = True) -> Errors:
    """For kinds that validate the metadata of an update as if the object were new."""
    if all(new.get(key) == old.get(key) for key in _CHECKED):
        return []
    return [*on_update(new, old, core), *on_create(new, namespaced, name_check, core)]


def _common(metadata: Json) -> Errors:
    found: Errors = []
    if metadata.get("labels"):
        found += labels(metadata["labels"], "metadata.labels")
    if metadata.get("annotations"):
        found += annotations(metadata["annotations"], "metadata.annotations")
    if metadata.get("ownerReferences"):
        found += _owners(metadata["ownerReferences"])
    return found


def labels(given: Json, path: str) -> Errors:
    found: Errors = []
    for key, value in given.items():
        if not isinstance(value, str):
            continue
        found += malformed(path, key, names.qualified)
        found += malformed(path, value, names.label_value)
    return found


def annotations(given: Json, path: str) -> Errors:
    found: Errors = []
    size = 0
    for key, value in given.items():
        for text in names.qualified(key.lower()):
            found.append(invalid(path, key, text))
        size += len(key) + len(value)
    if size > MOST_ANNOTATION_BYTES // 4:
        size = sum(len(key.encode()) + len(value.encode()) for key, value in given.items())
        if size > MOST_ANNOTATION_BYTES:
            found.append(too_long(path, MOST_ANNOTATION_BYTES))
    return found


def _owners(owners: list[Json]) -> Errors:
    path = "metadata.ownerReferences"
    found: Errors = []
    controllers: list[str] = []
    for owner in owners:
        version = owner.get("apiVersion", "")
        if not version or version.endswith("/") or version.count("/") > 1:
            found.append(invalid(f"{path}.apiVersion", version, "version must not be empty"))
        for key in ("kind", "name", "uid"):
            if not owner.get(key):
                found.append(invalid(f"{path}.{key}", owner.get(key, ""), "must not be empty"))
        if (version, owner.get("kind")) == ("v1", "Event"):
            found.append(invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
            if len(controllers) > 1:
                found.append(
                    invalid(
                        path,
                        owners,
                        "Only one reference can have Controller set to true. "
                        f'Found "true" in references for {controllers[-2]} and {controllers[-1]}',
                    )
                )
    return found


def _finalizers(finalizers: Any, core: bool) -> Errors:
    path = "metadata.finalizers"
    found: Errors = []
    for finalizer in finalizers:
        found += malformed(path, finalizer, names.qualified)
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        found.append(invalid(path, list(finalizers), "finalizer orphan and foregroundDeletion cannot be both set"))
    return [*found, *_qualified_finalizers(finalizers)] if core else found


def _qualified_finalizers(finalizers: Any) -> Errors:
    text = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        invalid(f"metadata.finalizers[{index}]", finalizer, text)
        for index, finalizer in enumerate(finalizers)
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS
    ]


def selector(given: Json | None, path: str) -> Errors:
    """A label selector's form."""
    found: Errors = []
    if not given:
        return found
    found += labels(given.get("matchLabels") or {}, f"{path}.matchLabels")
    for index, expression in enumerate(given.get("matchExpressions") or ()):
        here = f"{path}.matchExpressions[{index}]"
        operator, values = expression.get("operator"), expression.get("values") or []
        match operator:
            case "In" | "NotIn":
                if not values:
                    found.append(required(f"{here}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
            case "Exists" | "DoesNotExist":
                if values:
                    found.append(
                        forbidden(
                            f"{here}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                        )
                    )
            case _:
                found.append(invalid(f"{here}.operator", operator or "", "not a valid selector operator"))
        key = expression.get("key", "")
        found += malformed(f"{here}.key", key, names.qualified)
        for at, value in enumerate(values):
            found += malformed(f"{here}.values[{at}]", value, names.label_value)
    return found


def matches(given: Json | None, found: Json | None) -> bool:
    """Whether a label selector selects labels; an empty one selects all, none selects nothing."""
    if given is None:
        return False
    have = found or {}
    if any(have.get(key) != value for key, value in (given.get("matchLabels") or {}).items()):
        return False
    for expression in given.get("matchExpressions") or ():
        key, values = expression.get("key"), expression.get("values") or ()
        match expression.get("operator"):
            case "In" if key not in have or have[key] not in values:
                return False
            case "NotIn" if key in have and have[key] in values:
                return False
            case "Exists" if key not in have:
                return False
            case "DoesNotExist" if key in have:
                return False
    return True
