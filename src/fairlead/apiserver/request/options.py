"""The options of a request: what its query or a body of options says, and what is wrong with it."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from fairlead.apiserver.failures import bad_request, options_invalid
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.request.info import User, is_true, whole_number
from fairlead.apiserver.request.json_errors import quoted
from fairlead.apiserver.schema.shape import DecodeError, decode, for_type
from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation.errors import Causes, Errors, FieldError

Validation = Literal["Ignore", "Warn", "Strict"]
MAX_MANAGER_LENGTH: Final = 128


Warn = Callable[[str], None]
"""Takes a warning for the client; answers and refusals carry them alike."""


def no_warning(warning: str) -> None:
    """For writes without a client."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a write is to be done, and for whom."""

    user: User
    manager: str = "unknown"
    dry_run: bool = False
    validation: Validation = "Warn"
    force: bool = False
    query: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The query's fieldManager and fieldValidation, passed to webhooks."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    uid: str = ""
    resource_version: str = ""
    grace_s: int | None = None
    propagation: str = ""
    dry_run: bool = False
    cascades_the_old_way: bool = False
    """By `orphanDependents: false`: the answer is 202 while the object is still there."""


def check_manager(manager: str) -> Causes:
    if len(manager) > MAX_MANAGER_LENGTH:
        yield field.too_long("fieldManager", MAX_MANAGER_LENGTH)
    at = 0
    for character in manager:
        if not character.isprintable():
            why = f"Invalid value: {quoted(manager)}: invalid character U+{ord(character):04X} (at position {at})"
            yield FieldError("FieldValueInvalid", "fieldManager", why)
        at += len(character.encode("utf-8", "replace"))


def agent_prefix(agent: str) -> str:
    """What a User-Agent gives as the name of a manager: the printable part before the slash, within the bound."""
    name, size = "", 0
    for character in agent.encode("utf-8", "surrogateescape").decode("utf-8", "replace").partition("/")[0]:
        if character.isprintable():
            size += len(character.encode())
            if size > MAX_MANAGER_LENGTH:
                break
            name += character
    return name


def parse_delete_options(sent: Any, query: Mapping[str, str]) -> DeleteOptions:
    """From the body, or where there is none from the query."""
    if sent is not None and not isinstance(sent, dict):
        raise bad_request("decoded object cannot be converted to DeleteOptions")
    found: JsonObject = sent if sent is not None else _delete_query(query)
    if found.get("kind") not in (None, "", "DeleteOptions"):
        raise bad_request("decoded object cannot be converted to DeleteOptions")
    try:
        read: JsonObject = decode(for_type("meta.v1.DeleteOptions"), found, "").value
    except DecodeError as problem:
        raise bad_request(problem.why) from None
    preconditions = read.get("preconditions") or {}
    orphan, propagation = read.get("orphanDependents"), read.get("propagationPolicy", "")
    errors: Errors = []
    if orphan is not None and propagation:
        why = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(field.invalid("propagationPolicy", propagation, why))
    if propagation not in ("", "Background", "Foreground", "Orphan"):
        known = ("Foreground", "Background", "Orphan", "nil")
        errors.append(field.not_supported("propagationPolicy", propagation, known))
    errors += check_dry_run(read.get("dryRun") or ())
    if errors:
        raise options_invalid("DeleteOptions", *errors)
    if orphan is not None:
        propagation = "Orphan" if orphan else "Background"
    grace = read.get("gracePeriodSeconds")
    return DeleteOptions(
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        grace_s=grace if grace is None or grace >= 0 else 1,
        propagation=propagation,
        dry_run="All" in (read.get("dryRun") or ()),
        cascades_the_old_way=orphan is False,
    )


def _delete_query(query: Mapping[str, str]) -> JsonObject:
    found: JsonObject = {}
    if query.get("gracePeriodSeconds"):
        found["gracePeriodSeconds"] = whole_number(query, "gracePeriodSeconds")
    if query.get("orphanDependents"):
        found["orphanDependents"] = is_true(query, "orphanDependents")
    if query.get("propagationPolicy"):
        found["propagationPolicy"] = query["propagationPolicy"]
    if query.get("dryRun"):
        found["dryRun"] = [query["dryRun"]]
    return found


def check_dry_run(values: Iterable[str]) -> Errors:
    given = list(values)
    return [] if set(given) <= {"All"} else [field.not_supported("dryRun", given, ("All",))]
