"""The body of POST /schedulePod, read by hand so that one answer has the mistakes of all items.

The seed's contract: `operation` 1 or 2, `number` a string of digits (a whole number is taken too).
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from fairlead.placement.requests.spec import MOST_ITEMS, Operation
from fairlead.web.problems import FieldProblem, Problem

OPERATIONS: Final[dict[int, Operation]] = {1: "Add", 2: "Remove"}
MOST_UNKNOWN: Final = 20
"""Unknown fields that are named, of the body and of each item: an answer is not to outgrow its request."""
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_DIGITS = re.compile(r"[0-9]{1,9}")


class PodChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """So many more or fewer pods of one service."""

    operation: Annotated[int, Meta(description="`1` adds pods, `2` removes pods.", ge=1, le=2)]
    namespace: Annotated[str, Meta(description="The namespace the service is in.")]
    service_name: Annotated[
        str,
        Meta(
            description="The Deployment, StatefulSet or ReplicaSet of that name; else the one behind the Service of "
            "that name."
        ),
    ]
    number: Annotated[str | int, Meta(description="How many, a whole number above 0; as text or as a number.")]
    force: Annotated[
        bool, Meta(description="Change it although an autoscaler, or whoever owns it, may change it back.")
    ] = False


class ScheduleBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What to add and to remove; accepted as a whole or not at all."""

    pod_list: Annotated[list[PodChange], Meta(min_length=1, max_length=MOST_ITEMS)]


class CheckedItem(msgspec.Struct, frozen=True):
    """One item, checked as far as it can be without the cluster."""

    operation: Operation
    namespace: str
    service_name: str
    number: int
    force: bool = False


class Parsed(msgspec.Struct, frozen=True):
    """The items that can be read, by their place in the list, and everything that is wrong with the rest.

    `named`: these, and those with mistakes that still name a service: whether it exists can be told all the same.
    """

    items: dict[int, CheckedItem]
    named: dict[int, CheckedItem]
    problems: list[FieldProblem]
    count: int


def parse_body(body: bytes, most_number: int) -> Parsed:
    """The items of a body; a Problem where there is no list of items."""
    try:
        read = msgspec.json.decode(body)
    except RecursionError:
        raise Problem(400, "BadRequest", "the body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise Problem(400, "BadRequest", f"the body is not JSON: {problem}") from None
    if not isinstance(read, dict):
        error = FieldProblem(message=f"the body must be an object with podList, not {_shown(read)}")
        raise Problem(422, "Invalid", error.message, errors=[error])
    problems = _unknown_fields(read, ("podList",))
    listed = read.get("podList")
    if not isinstance(listed, list) or not 1 <= len(listed) <= MOST_ITEMS:
        expected = f"must be a list of 1 to {MOST_ITEMS} items"
        found = f"{len(listed)} items" if isinstance(listed, list) else _shown(listed) if read else "nothing"
        problems.append(FieldProblem(field="podList", message=f"{expected}, not {found}"))
        raise Problem(422, "Invalid", f"{problems[0].field}: {problems[0].message}", errors=problems)
    named = {
        index: item
        for index, each in enumerate(listed)
        if (item := _item(each, index, most_number, problems)) is not None
    }
    wrong = {problem.index for problem in problems}
    return Parsed({index: item for index, item in named.items() if index not in wrong}, named, problems, len(listed))


def invalid(problems: list[FieldProblem], count: int) -> Problem:
    """All or nothing: what was wrong with which items."""
    problems = sorted(problems, key=lambda each: -1 if each.index is None else each.index)
    wrong = len({problem.index for problem in problems if problem.index is not None})
    first = problems[0]
    if first.index is None:
        return Problem(422, "Invalid", f"{first.field}: {first.message}", errors=problems)
    where = ".".join(part for part in (f"podList[{first.index}]", first.field) if part)
    return Problem(
        422,
        "Invalid",
        f"rejected: {wrong} of {count} items {'is' if wrong == 1 else 'are'} invalid; {where}: {first.message}",
        errors=problems,
    )


def _item(given: Any, index: int, most_number: int, problems: list[FieldProblem]) -> CheckedItem | None:
    """The item, with what stands for its mistakes; None where it names no service."""

    def wrong(field: str, expected: str) -> None:
        found = _shown(given.get(field)) if field in given else "nothing"
        problems.append(FieldProblem(index=index, field=field, message=f"must be {expected}, not {found}"))

    if not isinstance(given, dict):
        problems.append(FieldProblem(index=index, message=f"must be an object, not {_shown(given)}"))
        return None
    operation = given.get("operation")
    if not isinstance(operation, int) or isinstance(operation, bool) or operation not in OPERATIONS:
        wrong("operation", "1 (add) or 2 (remove)")
    nameless = [field for field in ("namespace", "serviceName") if not _is_name(given.get(field))]
    for field in nameless:
        wrong(field, "a Kubernetes name (lower-case letters, digits, dashes)")
    number = _number(given.get("number"))
    if number is None or not 1 <= number <= most_number:
        wrong("number", f"a whole number from 1 to {most_number}")
    force = given.get("force", False)
    if not isinstance(force, bool):
        wrong("force", "true or false")
    problems += _unknown_fields(given, ("operation", "namespace", "serviceName", "number", "force"), index)
    if nameless:
        return None
    # An operation or a force that is none: no further complaint depends on it.
    done = OPERATIONS.get(operation, "Remove") if isinstance(operation, int) else "Remove"
    return CheckedItem(done, given["namespace"], given["serviceName"], number or 0, force is not False)


def _unknown_fields(given: dict[str, Any], known: Sequence[str], index: int | None = None) -> list[FieldProblem]:
    """The fields that are not known, each named; past a number of them, how many more there are."""
    unknown = sorted(given.keys() - set(known))
    message = f"there is no such field; there {'is' if len(known) == 1 else 'are'} {', '.join(known)}"
    found = [FieldProblem(index=index, field=field[:100], message=message) for field in unknown[:MOST_UNKNOWN]]
    if len(unknown) > MOST_UNKNOWN:
        more = f"{len(unknown) - MOST_UNKNOWN} more fields that are not known"
        found.append(FieldProblem(index=index, message=more))
    return found


def _is_name(given: Any) -> bool:
    return isinstance(given, str) and _NAME.fullmatch(given) is not None


def _number(given: Any) -> int | None:
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    if isinstance(given, str) and _DIGITS.fullmatch(given.strip()):
        return int(given)
    return None


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else f"{text[:57]}..."
